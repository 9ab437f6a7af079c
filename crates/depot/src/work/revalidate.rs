//! Asks the origin of a name whether the file here is still current.

use crate::{
    Error, Fresh, Result, StillWanted, Who,
    clock::since_epoch,
    inner::{Inner, user::User},
    plan::{
        asking::Asking,
        entry::Entry,
        state::{Check, State},
    },
    work::probe::{base_of, look},
};
use godwit_core::{
    Digest, Strength, Url, Version,
    holding::{Base, Held as Why, Holding, Mode},
};
use godwit_store::{EntryKind, Error as StoreError, Stat, engine::Place};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

impl Inner {
    pub(crate) fn changed(&self, url: &Url) {
        let mut plan = self.plan();
        plan.spoil_below(url);
        plan.note_changed(url);
        for entry in plan.called_below(url) {
            let mut state = entry.lock();
            state.validity.invalidate();
            state.validity.is_changed_at_target = true;
        }
    }
}

impl Inner {
    /// Returns the current entry of a name, and makes one if there is none.
    pub(crate) fn find(&self, url: &Url, who: &Who, fresh: Fresh) -> Result<User> {
        self.find_while(url, who, fresh, &|| true)
    }

    /// Returns the current entry of a name, until cancelled.
    pub(crate) fn find_while(
        &self,
        url: &Url,
        who: &Who,
        fresh: Fresh,
        is_wanted: StillWanted<'_>,
    ) -> Result<User> {
        let found = self.find_seen(url, who, fresh, is_wanted)?;
        Ok(found.0)
    }

    /// Returns the current entry of a name, and the answer of its origin if that was asked.
    pub(crate) fn find_seen(
        &self,
        url: &Url,
        who: &Who,
        mut fresh: Fresh,
        is_wanted: StillWanted<'_>,
    ) -> Result<(User, Option<Stat>)> {
        let key = (url.clone(), who.audience.clone());
        let (mut was_asked, mut seen) = (false, None);
        loop {
            if self.is_ending() {
                return Err(Error::Ending);
            }
            let mut plan = self.plan();
            let current = plan.current.get(&key).cloned();
            if let Some(entry) = &current {
                let mut state = entry.lock();
                // An entry of another audience is shared only after the origin permitted it, each time.
                let is_own = entry.who.audience == who.audience || was_asked;
                if is_own && !state.is_gone && self.is_fresh(&state, fresh) {
                    return Ok((User::of(entry, &mut state), seen));
                }
            }
            // An answer that arrived while this caller waited is fresh enough for it.
            if let Some(asking) = plan.asking.get(&key).cloned() {
                drop(plan);
                let heard = asking.wait(is_wanted)?;
                if !asking.is_spoilt() && (fresh != Fresh::Proved || asking.fresh == fresh) {
                    seen = heard?;
                    (fresh, was_asked) = (Fresh::Any, true);
                }
                continue;
            }
            let asking = Arc::new(Asking {
                fresh,
                ..Asking::default()
            });
            plan.asking.insert(key.clone(), Arc::clone(&asking));
            drop(plan);
            let asked = Asker {
                depot: self,
                key: &key,
                asking: &asking,
            };
            let outcome = self.look(url, who, current, &asking);
            let is_spoilt = asking.is_spoilt();
            asked.end(outcome.clone());
            if !is_spoilt {
                seen = outcome?;
                (fresh, was_asked) = (Fresh::Any, true);
            }
        }
    }

    pub(crate) fn is_fresh(&self, state: &State, fresh: Fresh) -> bool {
        if state.machine.owes() {
            return true; // Ours is newer than whatever there is.
        }
        if state.meta.is_filled && fresh == Fresh::Usual {
            return !state.is_lapsed(); // The program that filled it vouches for it.
        }
        let within = match (fresh, state.machine.base()) {
            (Fresh::Any, _) => return true,
            (Fresh::Now | Fresh::Proved, _) | (_, Base::Seen(Version::None)) => Duration::ZERO,
            (Fresh::Usual, _) => self.rules.fresh,
        };
        let checked_at = state.validity.checked_at();
        checked_at.is_some_and(|at| at.elapsed() < within)
    }

    /// Asks the origin, and makes its file the current entry of the name. Returns the answer; `None`: it did not answer.
    fn look(
        &self,
        url: &Url,
        who: &Who,
        current: Option<Arc<Entry>>,
        asking: &Asking,
    ) -> Result<Option<Stat>> {
        self.must_not_be_cut(url)?;
        let (place, stat) = match self.stat_of(url, who) {
            Ok(found) => found,
            Err(Error::Store(error)) => {
                let own = current.filter(|entry| entry.who.audience == who.audience);
                return self.not_told(own, error, asking.fresh).map(|()| None);
            }
            Err(error) => return Err(error),
        };
        if stat.kind == EntryKind::Directory {
            return Err(StoreError::directory(place.path).into());
        }
        let version = stat.version(since_epoch());
        if let Some(entry) = &current
            && self.is_still_base(entry, &place, &stat, asking.fresh)
        {
            let mut state = entry.lock();
            // No change of the length was in flight when the origin was asked.
            state.validity.check = if asking.is_spoilt() {
                Check::Invalid
            } else {
                Check::At(Instant::now())
            };
            return Ok(Some(stat));
        }
        if !self.share((url, who), &place, &stat, asking) {
            let seen = (version, Some(place.url));
            self.admit(url, who, seen, stat.size, || asking.is_spoilt())?;
        }
        if let Some(old) = current {
            self.let_go(&old)?;
        }
        Ok(Some(stat))
    }

    /// Refuses a name whose length is yet to be changed at the target.
    pub(crate) fn must_not_be_cut(&self, url: &Url) -> Result<()> {
        match self.plan().order.is_resized(url) {
            true => Err(Error::in_use(
                url.clone(),
                "about to be cut at its target; try again",
            )),
            false => Ok(()),
        }
    }

    /// Shares a clean entry of another audience with a caller whom the origin has just let see the file. Pending entries
    /// are not shared.
    fn share(&self, (url, who): (&Url, &Who), place: &Place, stat: &Stat, asking: &Asking) -> bool {
        let is_clean = |state: &State| {
            let is_whole = !state.machine.owes() && state.machine.is_whole();
            is_whole && state.is_current() && !state.is_gone
        };
        let plan = self.plan();
        let called = plan.called(url);
        let others = called.into_iter().find(|entry| {
            let is_theirs = entry.name() == *url && entry.who.audience != who.audience;
            is_theirs && is_clean(&entry.lock())
        });
        let Some(entry) = others else {
            return false;
        };
        drop(plan);
        let is_it = self.is_base(&entry, place, stat, asking.fresh);
        let mut plan = self.plan();
        let is_it = is_it && entry.name() == *url && is_clean(&entry.lock()) && !asking.is_spoilt();
        if is_it {
            let key = (url.clone(), who.audience.clone());
            plan.current.insert(key, entry);
        }
        is_it
    }

    /// Handles an origin that does not answer: a strong version is believed for a while, unless the caller wants a proof.
    fn not_told(
        &self,
        current: Option<Arc<Entry>>,
        error: Arc<StoreError>,
        fresh: Fresh,
    ) -> Result<()> {
        let Some(entry) = current else {
            return Err(Error::Store(error));
        };
        if error.fault() == godwit_core::Fault::Lasting {
            if matches!(*error, StoreError::Missing { .. }) {
                self.let_go(&entry)?;
            }
            return Err(Error::Store(error));
        }
        let is_believed = fresh != Fresh::Proved && self.is_believed(&entry.lock());
        match is_believed {
            true => Ok(()),
            false => Err(Error::Store(error)),
        }
    }

    /// Tells whether it counts as current while its origin cannot be asked.
    pub(crate) fn is_believed(&self, state: &State) -> bool {
        let is_strong = matches!(state.machine.base(), Base::Seen(version) if version.is_strong());
        let checked_at = state.validity.checked_at();
        let is_recent = checked_at.is_some_and(|at| at.elapsed() < self.rules.grace);
        is_strong && is_recent && state.machine.is_whole()
    }

    /// Tells whether the origin still has the base of an entry.
    fn is_base(&self, entry: &Entry, place: &Place, stat: &Stat, fresh: Fresh) -> bool {
        let now = stat.version(since_epoch());
        let state = entry.lock();
        let (seen, base) = (state.validity.seen.clone(), state.machine.base().clone());
        let size = state.machine.size();
        let ours = match state.machine.owes() {
            true => None,
            false => state.bytes.leaves.root(size),
        };
        drop(state);
        let has = |digest: &Digest| {
            let found = place.store.digest(&place.path, digest.algorithm(), None);
            size == stat.size && found.is_ok_and(|found| found == *digest)
        };
        match seen.map_or(base, Base::Seen) {
            // This node delivered it: the digest tells, and is asked for once.
            Base::Seen(Version::Strong(digest)) => has(&digest),
            Base::Seen(then) => match then.compare(&now) {
                Strength::Same => true,
                Strength::Likely if fresh != Fresh::Proved || then.tells_touches(&now) => true,
                // It may be another that looks the same: a second change within a tick, or its time was set back.
                Strength::Likely | Strength::Touched | Strength::AskAgain => {
                    ours.is_some_and(|ours| has(&ours))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Tells whether the origin, just asked, still has the base of an entry; if so, notes that.
    pub(crate) fn is_still_base(
        &self,
        entry: &Entry,
        place: &godwit_store::engine::Place,
        stat: &Stat,
        fresh: Fresh,
    ) -> bool {
        let version = stat.version(since_epoch());
        let is_same = self.is_base(entry, place, stat, fresh);
        let mut state = entry.lock();
        if state.is_gone || !is_same {
            return false;
        }
        state.validity.revalidated(Instant::now());
        (state.validity).see(version, Some(place.url.clone()));
        true
    }

    /// Makes an entry without bytes for a file of the origin, seen as that version and at that URL. `is_older` tells whether
    /// a newer entry became current meanwhile: then none is made.
    pub(crate) fn admit(
        &self,
        url: &Url,
        who: &Who,
        (version, seen_at): (Version, Option<Url>),
        size: u64,
        is_older: impl Fn() -> bool,
    ) -> Result<()> {
        self.reserve(url, size)?;
        let made = self.disk.create().and_then(|(id, file)| {
            self.disk.resize(id, &file, size)?;
            Ok(id)
        });
        let id = made.inspect_err(|_| self.room.release(size))?;
        let machine = Holding::of(version.clone(), size, Mode::Replace);
        let entry = self.new_entry(id, url, who, machine);
        let mut state = entry.lock();
        state.bytes.reserved = size;
        state.validity.revalidated(Instant::now());
        state.validity.see(version, seen_at);
        drop(state);
        let mut plan = self.plan();
        if is_older() {
            drop(plan);
            self.room.release(size);
            return self.disk.remove(id);
        }
        plan.insert(&entry);
        plan.make_current(&entry);
        Ok(())
    }

    /// Forgets an entry, unless it is pending, used, tagged or in flight.
    pub(crate) fn let_go(&self, entry: &Arc<Entry>) -> Result<()> {
        let state = entry.lock();
        match !state.is_gone && state.may_go() {
            true => self.unlink(entry, state),
            false => Ok(()),
        }
    }
}

/// Ends a question, also if its thread panics.
struct Asker<'a> {
    depot: &'a Inner,
    key: &'a (Url, String),
    asking: &'a Asking,
}

impl Asker<'_> {
    fn end(self, outcome: Result<Option<Stat>>) {
        self.depot.plan().asking.remove(self.key);
        self.asking.end(outcome);
        std::mem::forget(self);
    }
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        self.depot.plan().asking.remove(self.key);
        self.asking.end(Err(Error::Ending));
    }
}

impl Inner {
    /// Returns why a failed delivery is put on hold: another program changed the target's file, or the target refused.
    pub(crate) fn why_on_hold(&self, entry: &Entry, error: &Error) -> Why {
        let said = error.of_store();
        if !matches!(
            said,
            Some(StoreError::Changed { .. } | StoreError::Exists { .. })
        ) {
            return Why::Refused;
        }
        let place = (self.connect)(&entry.url(), &entry.who);
        let there = place.and_then(|place| look(&place));
        Why::Conflict(there.map_or(Base::Any, |there| base_of(there.as_ref())))
    }
}
