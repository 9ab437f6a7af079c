//! Users of an entry, which is not forgotten meanwhile.

use crate::plan::{entry::Held, state::State};
use std::sync::Arc;

/// Somebody who uses a holding: it is not forgotten meanwhile.
pub(crate) struct User {
    pub held: Arc<Held>,
    /// It was used.
    touches: bool,
}

impl User {
    /// `state` is that of `held`.
    pub(crate) fn of(held: &Arc<Held>, state: &mut State) -> Self {
        state.users.open += 1;
        Self {
            held: Arc::clone(held),
            touches: true,
        }
    }

    /// The same for whoever looks after it: it is not used by that.
    pub(crate) fn keeper(held: &Arc<Held>, state: &mut State) -> Self {
        let mut keeper = Self::of(held, state);
        keeper.touches = false;
        keeper
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.held.url())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if self.touches {
            self.held.touch();
        }
        self.held.lock().users.open -= 1;
    }
}
