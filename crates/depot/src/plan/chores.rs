//! Chores that wait for the housekeeper.

use crate::disk::files::Id;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// What is to be done some time, so that nobody looks for it among all that is held.
#[derive(Default)]
pub(crate) struct Chores {
    /// What was fetched and is not on record.
    pub unrecorded: Mutex<BTreeSet<Id>>,
    /// When tags fall by themselves, in seconds since the epoch.
    falling: Mutex<BTreeSet<(u64, Id)>>,
}

impl Chores {
    /// Has it be recorded once nobody uses it.
    pub(crate) fn record(&self, id: Id) {
        self.unrecorded.lock().insert(id);
    }

    /// Has its tags be looked at then.
    pub(crate) fn falls(&self, at: u64, id: Id) {
        self.falling.lock().insert((at, id));
    }

    /// Returns of what a tag may be over.
    pub(crate) fn fallen(&self, now: u64) -> Vec<Id> {
        let mut falling = self.falling.lock();
        let left = falling.split_off(&(now + 1, Id::of([0; 12])));
        let fallen = std::mem::replace(&mut *falling, left);
        fallen.into_iter().map(|(_, id)| id).collect()
    }
}
