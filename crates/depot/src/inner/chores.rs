//! Chores that wait for the housekeeper.

use crate::id::Id;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Entries with a chore, so that the housekeeper need not search all entries.
#[derive(Default)]
pub(crate) struct Chores {
    /// Entries that were fetched, and whose rows are not written.
    pub unrecorded: Mutex<BTreeSet<Id>>,
    /// The expiry times of tags, in seconds since the epoch.
    falling: Mutex<BTreeSet<(u64, Id)>>,
}

impl Chores {
    /// Asks for a row of an entry, as soon as the entry has no user.
    pub(crate) fn record(&self, id: Id) {
        self.unrecorded.lock().insert(id);
    }

    /// Notes that a tag of an entry expires at that time.
    pub(crate) fn falls(&self, at: u64, id: Id) {
        self.falling.lock().insert((at, id));
    }

    /// Takes the entries of which a tag may have expired.
    pub(crate) fn fallen(&self, now: u64) -> Vec<Id> {
        let mut falling = self.falling.lock();
        let left = falling.split_off(&(now + 1, Id::of([0; 12])));
        let fallen = std::mem::replace(&mut *falling, left);
        fallen.into_iter().map(|(_, id)| id).collect()
    }
}
