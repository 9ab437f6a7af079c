//! What a hop took, and of which nothing is here any more: whoever pushes waits for it all the same.

use crate::{
    Error, Result, Scope, Who,
    called::is_at_or_below,
    depot::{All, Inner},
    error::is_nowhere,
    held::{Held, State},
    queue::{Behind, Time},
    records::Change,
};
use godwit_core::Url;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A name that a hop took something of, for somebody.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub url: Url,
    pub who: Who,
    pub session: String,
    /// Tells it from what is passed on of that name later.
    pub number: u64,
    /// It may rightly not be there: somebody of this machine had it changed there since, or nobody knows any more after an
    /// end of this node.
    pub is_changed_there: bool,
}

impl Passed {
    /// Returns what has to be known of a file that is about to be forgotten; nothing, if whoever has it is its end.
    pub(crate) fn of(held: &Held, state: &State) -> Option<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let is_it = state.is_passed_on && !state.is_unlinked;
        is_it.then(|| Self {
            url: held.url(),
            who: held.who.clone(),
            session: state.session.clone(),
            number: NUMBERS.fetch_add(1, Relaxed) + 1,
            is_changed_there: held.may_be_elsewhere(state),
        })
    }

    fn is_meant(&self, scope: &Scope) -> bool {
        match scope {
            Scope::All => true,
            Scope::Url(url) => self.url == *url,
            Scope::Below(url) => is_at_or_below(&self.url, url),
            Scope::Session(session) => self.session == *session,
        }
    }

    fn key(&self) -> (Url, String) {
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

impl Inner {
    /// Keeps in mind that a hop has something of a name; the record of it is written before the next.
    pub(crate) fn remember(&self, passed: Passed) {
        let change = Change::Passed(Box::new(passed.clone()), true);
        let mut all = self.all();
        if all.passed.len() < NAMES_MAX || all.passed.contains_key(&passed.key()) {
            all.passed.insert(passed.key(), passed);
            self.records.write_behind(change);
        }
    }

    /// Waits until what hops took, and nobody has here any more, is at its end.
    pub(crate) fn follow_passed(
        &self,
        scope: &Scope,
        time: Time,
        is_wanted: &dyn Fn() -> bool,
        behind: &mut Behind,
    ) -> Result<()> {
        let mut all: Vec<Passed> = self.all().passed.values().cloned().collect();
        all.retain(|passed| passed.is_meant(scope));
        let mut is_lost = Ok(());
        for passed in all {
            match self.pass_on((&passed.url, &passed.who), time, is_wanted) {
                // Told once: somebody removed it at its end, or behind us.
                Err(error) if error.of_store().is_some_and(is_nowhere) => {
                    if !self.is_changed_there(&passed) {
                        is_lost = is_lost.and(Err(Error::gone_behind(&passed.url)));
                    }
                }
                Err(error) => {
                    behind.note(&passed.url, Err(error))?;
                    continue;
                }
                Ok(()) => behind.look(self, (&passed.url, &passed.who)),
            }
            let (key, mut all) = (passed.key(), self.all());
            if all
                .passed
                .get(&key)
                .is_some_and(|now| now.number == passed.number)
            {
                all.passed.remove(&key);
                self.records
                    .write_behind(Change::Passed(Box::new(passed), false));
            }
        }
        is_lost
    }

    /// Tells whether that is so by now: it may be since it was waited for.
    fn is_changed_there(&self, passed: &Passed) -> bool {
        let all = self.all();
        let now = all.passed.get(&passed.key());
        now.is_none_or(|now| now.number != passed.number || now.is_changed_there)
    }
}

/// So many names are kept in mind for somebody who may push some day.
const NAMES_MAX: usize = 100_000;
