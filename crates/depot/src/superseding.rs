//! What need not be delivered any more, since something newer replaces it.
//!
//! That is on no record: after an end it follows from what is owed of one name, in
//! its order.

use crate::{
    Result,
    depot::{All, Inner},
    held::Held,
};
use godwit_core::holding::{Base, Mode};
use std::{cmp::Reverse, sync::Arc};

impl Inner {
    /// Has what was put under a name before give way to something newer that replaces it. The newest goes first: what
    /// one of them wants to find at the target stays for as long as that one does.
    pub(crate) fn supersede_all(&self, mut older: Vec<Arc<Held>>, newer: &Held) -> Result<()> {
        older.sort_by_key(|other| Reverse(other.number()));
        older.dedup_by_key(|other| other.id);
        let replaces = is_replacing(newer);
        for other in older {
            // A condition on what is on its way wants that to arrive.
            let may = replaces || !other.lock().machine.owes();
            if may && is_of_one(&other, newer) && !self.is_needed(&other) {
                self.supersede(&other)?;
            }
            if rests_on_older(&other) {
                break;
            }
        }
        Ok(())
    }
}

impl All {
    /// The same of all that is owed, after an end.
    pub(crate) fn supersede_again(&self) {
        for newer in self.owing.values().rev() {
            let state = newer.lock();
            let is_ended = !state.machine.is_unseen() && state.machine.held().is_none();
            let is_there = !state.is_unlinked && state.machine.writers().is_none();
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
fn is_replacing(newer: &Held) -> bool {
    let state = newer.lock();
    state.machine.mode() == Mode::Replace && *state.machine.base() == Base::Any
}

/// Tells whether both were put under one name by the same, and have it still.
fn is_of_one(older: &Held, newer: &Held) -> bool {
    let are_as_ever = !older.is_renamed() && !newer.is_renamed();
    are_as_ever && older.name() == newer.name() && older.who == newer.who
}

/// Tells whether it is still to be delivered, and only to where all that is older has been.
fn rests_on_older(held: &Held) -> bool {
    let state = held.lock();
    let is_over_anything = matches!(state.machine.base(), Base::Any | Base::Absent);
    let is_into = state.machine.mode() == Mode::InPlace;
    !state.is_gone && state.machine.owes() && (is_into || !is_over_anything)
}
