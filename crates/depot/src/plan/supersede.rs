//! Entries that need not be delivered any more, since something newer replaces them.
//!
//! No record says so: after a restart it follows from the order of the pending entries of a name.

use crate::plan::{all::All, entry::Held};
use godwit_core::holding::{Base, Mode};
use std::{cmp::Reverse, sync::Arc};

impl All {
    /// Returns what the target has where something comes to, if nothing is on its way there: what went there from here.
    pub(crate) fn before(&self, held: &Held) -> Option<Base> {
        let comes = |other: &Arc<Held>| other.id != held.id && other.key() == held.key();
        if !self.promises.is_free(&held.url()) || self.all_coming().any(comes) {
            return None;
        }
        let old = self.current.get(&held.key())?; // Else nobody here knows what it has.
        let state = old.lock();
        let base = state.machine.base();
        let is_clean = !state.machine.owes() && !state.is_gone && state.is_sure();
        let is_it = is_clean && matches!(base, Base::Seen(_));
        is_it.then(|| {
            state
                .validity
                .seen
                .clone()
                .map_or_else(|| base.clone(), Base::Seen)
        })
    }

    /// Has something know that of what it came in place of, of which the target has never heard. Returns whether.
    pub(crate) fn inherit(&self, held: &Held, older: &[Arc<Held>]) -> bool {
        let Some(old) = older.first() else {
            return false;
        };
        let is_one = older.iter().all(|other| other.id == old.id);
        let state = old.lock();
        let is_unheard = state.is_gone && state.machine.owes() && !state.machine.is_asked();
        let before = state.meta.replaces.clone();
        drop(state);
        let is_heir = is_one && is_unheard && before.is_some() && self.promises.is_only(held);
        if is_heir {
            let mut state = held.lock();
            state.meta.replaces = before;
            state.record.change();
        }
        is_heir
    }

    /// The same of what gives way now, since its name is removed.
    pub(crate) fn before_unsent(&self, held: &Held) -> Option<Base> {
        if held.is_renamed() || self.promises.is_needed(held) || !self.promises.is_only(held) {
            return None;
        }
        let mut state = held.lock();
        let is_any = matches!(state.machine.base(), Base::Any | Base::Absent);
        let is_whole = state.machine.mode() == Mode::Replace && state.machine.writers().is_none();
        let is_unsent = !state.machine.is_asked() && state.users.open == 0 && !state.is_gone;
        let is_it = is_any && is_whole && is_unsent && state.machine.owes();
        state.is_superseded |= is_it;
        state.meta.replaces.clone().filter(|_| is_it)
    }

    /// The same of all that is owed, after an end.
    pub(crate) fn supersede_again(&self) {
        for newer in self.owing.values().rev() {
            let state = newer.lock();
            let is_ended = !state.machine.is_unseen() && state.machine.held().is_none();
            let is_there = !state.is_unlinked() && state.machine.writers().is_none();
            drop(state);
            if !is_ended || !is_there || !is_replacing(newer) {
                continue;
            }
            let mut older = self.owing_called(&newer.name());
            older.retain(|other| other.number() < newer.number());
            for other in older.iter().rev() {
                let mut state = other.lock();
                // Of what somebody may still write it is not known yet whether it ends later.
                let may = !state.machine.is_unseen() && is_of_one(other, newer);
                state.is_superseded |= may && !self.promises.is_needed(other);
                let is_left = !state.is_superseded || state.machine.is_asked();
                drop(state);
                if is_left && rests_on_older(other) {
                    break;
                }
            }
        }
    }
}

impl All {
    /// What has no name here any more, after an end, need not go either, unless something is to find it there: what was
    /// promised after it, or what was written over it and goes itself.
    pub(crate) fn supersede_unnamed(&self, mut unnamed: Vec<Arc<Held>>) {
        unnamed.sort_by_key(|held| Reverse(held.number()));
        let mut rested_on = Vec::new();
        for held in unnamed {
            let (url, is_needed) = (held.url(), self.promises.is_needed(&held));
            let is_rested_on = rested_on.contains(&url);
            let mut state = held.lock();
            let is_any = matches!(state.machine.base(), Base::Any | Base::Absent);
            state.is_superseded = is_any && !is_needed && !is_rested_on;
            let is_left = !state.is_superseded || state.machine.is_asked();
            drop(state);
            if is_left && rests_on_older(&held) {
                rested_on.push(url);
            }
        }
    }
}

/// Tells whether it goes over whatever there is.
pub(crate) fn is_replacing(newer: &Held) -> bool {
    let state = newer.lock();
    state.machine.mode() == Mode::Replace && *state.machine.base() == Base::Any
}

/// Tells whether the one was put over the other, and is on its way.
pub(crate) fn goes_over(newer: &Held, older: &Held) -> bool {
    let is_later = newer.id != older.id && newer.number() > older.number();
    is_later && is_replacing(newer) && is_of_one(older, newer)
}

/// Tells whether both were put under one name by the same, and have it still.
pub(crate) fn is_of_one(older: &Held, newer: &Held) -> bool {
    let are_as_ever = !older.is_renamed() && !newer.is_renamed();
    are_as_ever && older.name() == newer.name() && older.who == newer.who
}

/// Tells whether it is still to be delivered, and only to where all that is older has been.
pub(crate) fn rests_on_older(held: &Held) -> bool {
    let state = held.lock();
    let is_over_anything = matches!(state.machine.base(), Base::Any | Base::Absent);
    let is_into = state.machine.mode() == Mode::InPlace;
    !state.is_gone && state.machine.owes() && (is_into || !is_over_anything)
}
