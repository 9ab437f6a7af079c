//! Users of an entry, which is not forgotten meanwhile.

use crate::{
    clock::now,
    plan::{entry::Entry, state::State},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// A user of an entry, which is not forgotten while this lives.
pub(crate) struct User {
    pub entry: Arc<Entry>,
    /// The entry counts as used when this ends.
    touches: bool,
}

impl User {
    /// Counts one more user; `state` is that of `entry`.
    pub(crate) fn of(entry: &Arc<Entry>, state: &mut State) -> Self {
        state.users.open += 1;
        Self {
            entry: Arc::clone(entry),
            touches: true,
        }
    }

    /// Counts a thread that keeps the entry without using it.
    pub(crate) fn keeper(entry: &Arc<Entry>, state: &mut State) -> Self {
        let mut keeper = Self::of(entry, state);
        keeper.touches = false;
        keeper
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.entry.url())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if self.touches {
            self.entry.used.store(now(), Relaxed);
        }
        self.entry.lock().users.open -= 1;
    }
}
