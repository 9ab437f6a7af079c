//! Entries that need not be delivered any more, since something newer replaces them.
//!
//! No record says so: after a restart it follows from the order of the pending entries of a name.

use crate::{
    id::Id,
    plan::{Plan, asking::Name, entry::Entry},
};
use godwit_core::holding::{Base, Mode};
use std::{cmp::Reverse, sync::Arc};

impl Plan {
    /// Returns the file that the target has under the name of `entry`, as [`Self::seen_at`] does.
    pub(crate) fn before(&self, entry: &Entry) -> Option<Base> {
        match self.order.is_free(&entry.url()) {
            true => self.seen_at(&entry.key(), Some(entry.id)),
            false => None,
        }
    }

    /// Returns the file that the target has under a name, apart from that entry. `None`: this node did not deliver or see
    /// that file, or an operation is pending there.
    pub(crate) fn seen_at(&self, key: &Name, apart: Option<Id>) -> Option<Base> {
        let comes = |other: &Arc<Entry>| Some(other.id) != apart && other.key() == *key;
        if !self.order.is_free(&key.0) || self.all_coming().any(comes) {
            return None;
        }
        let old = self.current.get(key)?;
        let state = old.lock();
        let base = state.machine.base();
        let is_clean = !state.machine.owes() && !state.is_gone && state.is_sure();
        let seen = || state.validity.seen.clone().map(Base::Seen);
        (is_clean && matches!(base, Base::Seen(_))).then(|| seen().unwrap_or(base.clone()))
    }

    /// Hands `replaces` of an entry that was never sent on to the one that superseded it. Returns whether it did.
    pub(crate) fn inherit(&self, entry: &Entry, older: &[Arc<Entry>]) -> bool {
        let Some(old) = older.first() else {
            return false;
        };
        let is_one = older.iter().all(|other| other.id == old.id);
        let state = old.lock();
        let is_unheard = state.is_gone && state.machine.owes() && !state.machine.is_asked();
        let before = state.meta.replaces.clone();
        drop(state);
        let is_heir = is_one && is_unheard && before.is_some() && self.order.is_only(entry);
        if is_heir {
            let mut state = entry.lock();
            state.meta.replaces = before;
            state.record.change();
        }
        is_heir
    }

    /// Returns `replaces` of an entry that was never sent and whose name is removed; it is superseded by that.
    pub(crate) fn before_unsent(&self, entry: &Entry) -> Option<Base> {
        if entry.is_renamed() || self.order.is_needed(entry) || !self.order.is_only(entry) {
            return None;
        }
        let mut state = entry.lock();
        let is_any = matches!(state.machine.base(), Base::Any | Base::Absent);
        let is_whole = state.machine.mode() == Mode::Replace && state.machine.writers().is_none();
        let is_unsent = !state.machine.is_asked() && state.users.open == 0 && !state.is_gone;
        let is_it = is_any && is_whole && is_unsent && state.machine.owes();
        state.is_superseded |= is_it;
        state.meta.replaces.clone().filter(|_| is_it)
    }

    /// Finds out after a restart which pending entries are superseded.
    pub(super) fn supersede_again(&self) {
        for newer in self.pending.values().rev() {
            let state = newer.lock();
            let is_ended = !state.machine.is_unseen() && state.machine.held().is_none();
            let is_there = !state.is_unlinked() && state.machine.writers().is_none();
            drop(state);
            if !is_ended || !is_there || !is_replacing(newer) {
                continue;
            }
            let mut older = self.pending_called(&newer.name());
            older.retain(|other| other.number() < newer.number());
            for other in older.iter().rev() {
                let mut state = other.lock();
                // An entry with a writer may still be closed after the newer one.
                let may = !state.machine.is_unseen() && is_of_one(other, newer);
                state.is_superseded |= may && !self.order.is_needed(other);
                let is_left = !state.is_superseded || state.machine.is_asked();
                drop(state);
                if is_left && rests_on_older(other) {
                    break;
                }
            }
        }
    }

    /// Supersedes entries without a name after a restart, unless a later operation or a later patch needs them at the
    /// target.
    pub(crate) fn supersede_unnamed(&self, mut unnamed: Vec<Arc<Entry>>) {
        unnamed.sort_by_key(|entry| Reverse(entry.number()));
        let mut rested_on = Vec::new();
        for entry in unnamed {
            let (url, is_needed) = (entry.url(), self.order.is_needed(&entry));
            let is_rested_on = rested_on.contains(&url);
            let mut state = entry.lock();
            let is_any = matches!(state.machine.base(), Base::Any | Base::Absent);
            state.is_superseded = is_any && !is_needed && !is_rested_on;
            let is_left = !state.is_superseded || state.machine.is_asked();
            drop(state);
            if is_left && rests_on_older(&entry) {
                rested_on.push(url);
            }
        }
    }

    /// Supersedes an entry. Returns whether it is gone by that: its row and file are still there.
    pub(crate) fn supersede(&self, old: &Entry) -> bool {
        let mut state = old.lock();
        state.is_superseded |= !state.is_private();
        state.go_if_superseded()
    }

    /// Supersedes an entry whose name was removed, unless the target needs it before that.
    pub(crate) fn supersede_removed(&self, entry: &Entry) -> bool {
        let is_needed =
            entry.is_renamed() || !is_unconditional(entry) || self.order.is_needed(entry);
        !is_needed && self.supersede(entry)
    }

    /// Supersedes the older entries that `newer` replaces, the newest first: an entry that needs an older one at the target
    /// keeps that one pending. Returns those that are gone by that.
    pub(crate) fn supersede_older(
        &self,
        mut older: Vec<Arc<Entry>>,
        newer: &Entry,
    ) -> Vec<Arc<Entry>> {
        older.sort_by_key(|other| Reverse(other.number()));
        older.dedup_by_key(|other| other.id);
        let replaces = is_replacing(newer);
        // An open entry will come after this one.
        older.retain(|other| !other.lock().is_private());
        let mut gone = Vec::new();
        for other in older {
            // An entry with a condition needs the pending ones to arrive.
            let may = replaces || !other.lock().machine.owes();
            let may = may && is_of_one(&other, newer) && !self.order.is_needed(&other);
            if may && gives_way(&other, newer) && other.lock().go_if_superseded() {
                gone.push(other);
            } else if rests_on_older(&other) {
                break;
            }
        }
        gone
    }
}

/// Supersedes an older entry, unless it was closed again meanwhile and is the newer one now: else each of the two would
/// supersede the other.
fn gives_way(other: &Entry, newer: &Entry) -> bool {
    let mut state = other.lock();
    let number = state.delivery.next_place.unwrap_or(other.number());
    let is_older = !state.machine.owes() || number < newer.number();
    state.is_superseded |= is_older && !state.is_private();
    is_older
}

/// Tells whether its target may have any file, or none.
pub(crate) fn is_unconditional(entry: &Entry) -> bool {
    matches!(entry.lock().machine.base(), Base::Any | Base::Absent)
}

/// Tells whether it replaces any file at its target.
pub(crate) fn is_replacing(newer: &Entry) -> bool {
    let state = newer.lock();
    state.machine.mode() == Mode::Replace && *state.machine.base() == Base::Any
}

/// Tells whether `newer` replaces `older` under the same name.
pub(crate) fn goes_over(newer: &Entry, older: &Entry) -> bool {
    let is_later = newer.id != older.id && newer.number() > older.number();
    is_later && is_replacing(newer) && is_of_one(older, newer)
}

/// Tells whether both have one name and one owner, and were never renamed.
pub(crate) fn is_of_one(older: &Entry, newer: &Entry) -> bool {
    let are_as_ever = !older.is_renamed() && !newer.is_renamed();
    are_as_ever && older.name() == newer.name() && older.who == newer.who
}

/// Tells whether it is pending, and needs the older entries at its target.
pub(crate) fn rests_on_older(entry: &Entry) -> bool {
    let state = entry.lock();
    let is_over_anything = matches!(state.machine.base(), Base::Any | Base::Absent);
    let is_into = state.machine.mode() == Mode::InPlace;
    !state.is_gone && state.machine.owes() && (is_into || !is_over_anything)
}
