//! Names that a hop forwards, and of which this node has no bytes any more. A push still waits for them.

use crate::{
    Scope, Who,
    paths::is_at_or_below,
    plan::{Plan, entry::Entry, state::State},
};
use godwit_core::Url;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A name of which a hop has taken over a file.
#[derive(Clone, Debug)]
pub(crate) struct Forwarded {
    pub url: Url,
    pub who: Who,
    pub session: String,
    /// Tells it from later files of that name.
    pub number: u64,
    /// No loss if it is missing there: a program of this machine had it changed there since, or that is unknown after a
    /// restart of this node.
    pub is_changed_there: bool,
}

impl Forwarded {
    /// Describes a file that is about to be forgotten; `None`: its target does not forward it.
    pub(crate) fn of(entry: &Entry, state: &State) -> Option<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let is_it = state.meta.is_forwarded && !state.is_unlinked();
        is_it.then(|| Self {
            url: entry.url(),
            who: entry.who.clone(),
            session: state.meta.session.clone(),
            number: NUMBERS.fetch_add(1, Relaxed) + 1,
            is_changed_there: entry.may_be_elsewhere(state),
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

impl Plan {
    /// Notes that a program of this machine renamed or removed a name, or one above it.
    pub(crate) fn note_changed(&mut self, top: &Url) {
        let forwarded = self.forwarded.values_mut();
        for forwarded in forwarded.filter(|forwarded| is_at_or_below(&forwarded.url, top)) {
            forwarded.is_changed_there = true;
        }
    }
}
