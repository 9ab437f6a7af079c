//! Writers that end just now what they wrote, and waiting for them.

use crate::{
    disk::files::Id,
    inner::Inner,
    plan::{asking::Name, entry::Entry},
};
use std::sync::Arc;

/// Says that an end is over, well or not.
pub(crate) struct Ending {
    depot: Arc<Inner>,
    id: Id,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut all = self.depot.all();
        all.ends.of.remove(&self.id);
        if all.ends.waiting > 0 {
            self.depot.due.notify_all();
        }
    }
}

impl Inner {
    /// Somebody is there who ends what they wrote.
    pub(crate) fn ends(self: &Arc<Self>, entry: &Arc<Entry>) -> Ending {
        let entry = Arc::clone(entry);
        let (depot, id) = (Arc::clone(self), entry.id);
        depot.all().ends.of.insert(id, entry);
        Ending { depot, id }
    }

    /// Waits for the ends that have begun under a name: what is written into that from now on comes after them.
    pub(crate) fn wait_for_ends(&self, key: &Name) {
        let mut all = self.all();
        let begun: Vec<Id> = (all.ends.of.values())
            .filter(|entry| entry.key() == *key)
            .map(|entry| entry.id)
            .collect();
        all.ends.waiting += 1;
        while begun.iter().any(|id| all.ends.of.contains_key(id)) {
            self.due.wait(&mut all);
        }
        all.ends.waiting -= 1;
    }
}
