//! Gives closed files their place in the order, and makes them the current versions of their names.

use crate::plan::{
    Plan,
    entry::Entry,
    supersede::{goes_over, is_unconditional},
};
use godwit_core::holding::Mode;
use std::sync::Arc;

/// The place of a written entry in the order of its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// Behind all others.
    Last,
    /// Before an entry that will replace it.
    Before,
    /// Before an entry that has replaced it.
    Over,
}

impl Plan {
    /// Moves an edit to the end, as [`Self::move_to_end`] does, unless an upload that was promised after it, and after the
    /// place `since`, replaces all of it.
    pub(crate) fn move_to_end_unless_replaced(
        &mut self,
        entry: &Arc<Entry>,
        since: u64,
    ) -> Standing {
        if self.order.is_replaced_after(entry, since) {
            return Standing::Before;
        }
        let state = entry.lock();
        let is_one = !self.order.has(entry) && !state.is_gone && !state.is_unlinked();
        let (is_one, is_superseded) = (is_one && !state.machine.is_blind(), state.is_superseded);
        drop(state);
        let is_newer = |other: &Arc<Entry>| is_one && goes_over(other, entry);
        if is_one && is_superseded || self.current.get(&entry.key()).is_some_and(is_newer) {
            return Standing::Over;
        }
        if self.all_coming().any(is_newer) {
            self.enqueue_as(entry, entry.number());
            return Standing::Before;
        }
        self.move_to_end(entry);
        Standing::Last
    }

    /// Moves an entry to the end of the order of its name: the last end counts.
    pub(crate) fn move_to_end(&mut self, entry: &Arc<Entry>) {
        self.private.remove(&entry.id);
        let state = entry.lock();
        let is_pending = state.machine.owes();
        // A delivery in place changes its target before it is published.
        let is_entered = state.delivery.is_in_flight && state.machine.mode() == Mode::InPlace;
        let is_under_way = state.delivery.is_in_flight && !self.order.is_overtaken(entry);
        let is_fixed = is_entered || is_under_way || state.machine.is_asked() || !is_pending;
        let is_gone = state.is_gone || state.is_unlinked();
        drop(state);
        if is_gone || (self.order.has(entry) && is_fixed) {
            if !is_gone && is_pending && self.order.is_overtaken(entry) {
                // The delivery in flight keeps its place; the entry gets another one afterwards.
                let mut state = entry.lock();
                state.delivery.next_place = Some(self.numbers.next());
                state.is_superseded = false; // Entries that had its name meanwhile are older now.
                drop(state);
                self.comes(entry);
            }
            return;
        }
        entry.lock().delivery.next_place = None;
        if self.order.is_overtaken(entry) {
            // Later operations need an entry that was renamed, or renamed back, at its present place.
            if entry.is_renamed() || self.order.is_needed(entry) {
                return;
            }
            self.order.forget(entry.id);
            self.enqueue(entry);
            let mut state = entry.lock();
            state.is_superseded = false; // as above
            if state.record.has_row {
                state.record.change(); // A thread that records it now may have read the old place.
            }
        }
        let before = self.before(entry);
        entry.lock().meta.replaces = before;
        self.comes(entry);
    }

    /// Makes a finished file the current version of its name. Returns the older entries of the name, and those of them
    /// that are gone by that: their rows and files are still there.
    pub(crate) fn close(&mut self, entry: &Arc<Entry>) -> (Vec<Arc<Entry>>, Vec<Arc<Entry>>) {
        if entry.lock().is_unlinked() {
            // Its name was removed here, but later operations may need it at its target.
            let is_needed =
                entry.is_renamed() || !is_unconditional(entry) || self.order.is_needed(entry);
            self.coming.remove(&entry.id);
            if is_needed && self.order.has(entry) {
                entry.lock().delivery.is_due = true;
                return Default::default();
            }
            let gone = self.supersede(entry).then(|| Arc::clone(entry));
            return (Vec::new(), gone.into_iter().collect());
        }
        let old = self.current.get(&entry.key()).cloned();
        let is_newest = self.has_come(entry);
        entry.lock().delivery.is_due = true;
        self.enqueue(entry);
        let mut older = self.pending_called(&entry.name());
        older.retain(|other| other.number() < entry.number());
        older.extend(old.filter(|old| is_newest && old.id != entry.id));
        let gone = self.supersede_older(older.clone(), entry);
        (older, gone)
    }
}
