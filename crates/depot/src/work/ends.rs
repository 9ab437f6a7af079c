//! Writers that are closing their entries, and waiting for them.

use crate::{
    id::Id,
    inner::Inner,
    plan::{asking::Name, entry::Entry},
};
use std::sync::Arc;

/// A closing in progress, which is over when this is dropped.
pub(crate) struct Ending {
    depot: Arc<Inner>,
    id: Id,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut plan = self.depot.plan();
        plan.ends.of.remove(&self.id);
        if plan.ends.waiting > 0 {
            self.depot.due.notify_all();
        }
    }
}

impl Inner {
    /// Notes that a writer is closing an entry.
    pub(crate) fn ends(self: &Arc<Self>, entry: &Arc<Entry>) -> Ending {
        let entry = Arc::clone(entry);
        let (depot, id) = (Arc::clone(self), entry.id);
        depot.plan().ends.of.insert(id, entry);
        Ending { depot, id }
    }

    /// Waits for the closings that have begun under a name: later writes come after them.
    pub(crate) fn wait_for_ends(&self, key: &Name) {
        let mut plan = self.plan();
        let begun: Vec<Id> = (plan.ends.of.values())
            .filter(|entry| entry.key() == *key)
            .map(|entry| entry.id)
            .collect();
        plan.ends.waiting += 1;
        while begun.iter().any(|id| plan.ends.of.contains_key(id)) {
            self.due.wait(&mut plan);
        }
        plan.ends.waiting -= 1;
    }
}
