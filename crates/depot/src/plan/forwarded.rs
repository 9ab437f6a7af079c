//! Names that a hop has taken over, and of which no bytes are here any more. A push waits for them all the same.

use crate::{
    Scope,
    disk::rows::Passed,
    paths::is_at_or_below,
    plan::{all::All, entry::Held, state::State},
};
use godwit_core::Url;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl Passed {
    /// Returns what has to be known of a file that is about to be forgotten; nothing, if whoever has it is its end.
    pub(crate) fn of(held: &Held, state: &State) -> Option<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let is_it = state.meta.is_forwarded && !state.is_unlinked();
        is_it.then(|| Self {
            url: held.url(),
            who: held.who.clone(),
            session: state.meta.session.clone(),
            number: NUMBERS.fetch_add(1, Relaxed) + 1,
            is_changed_there: held.may_be_elsewhere(state),
        })
    }

    pub(crate) fn is_meant(&self, scope: &Scope) -> bool {
        match scope {
            Scope::All => true,
            Scope::Url(url) => self.url == *url,
            Scope::Below(url) => is_at_or_below(&self.url, url),
            Scope::Session(session) => self.session == *session,
        }
    }

    pub(crate) fn key(&self) -> (Url, String) {
        (self.url.clone(), self.who.audience.clone())
    }
}

impl All {
    /// What was passed on of a name, or of what is in it, was renamed or removed by somebody of this machine.
    pub(crate) fn changed_behind(&mut self, top: &Url) {
        let passed = self.passed.values_mut();
        for passed in passed.filter(|passed| is_at_or_below(&passed.url, top)) {
            passed.is_changed_there = true;
        }
    }
}
