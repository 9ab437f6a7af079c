//! The place of an entry during an attempt to deliver it, and after that.

use crate::plan::{Plan, entry::Entry, state::State};
use godwit_core::Url;
use std::sync::Arc;

/// The name of an entry at its target, and its place in the order.
pub(crate) type Way = (Url, u64);

/// The place of an entry that was written during its delivery.
pub(crate) enum Requeued {
    /// Its name was removed: the entry need not be delivered. Callers that have it open keep it.
    Unlinked,
    /// Before newer entries, or it would replace them.
    Stays,
    /// Last in the order, under its present name. This is the old place.
    Moved(Way),
}

impl Plan {
    /// Tells whether an entry may be published now. A publication in flight has its place.
    pub(crate) fn may_publish(&self, entry: &Entry, state: &State) -> bool {
        let is_placed = state.machine.is_asked() || !self.gets_another_place(entry, state);
        self.order.is_turn(entry) && is_placed
    }

    /// Ends an attempt. Returns whether the entry got another place, for which its row is to be written.
    pub(crate) fn visited(&mut self, entry: &Arc<Entry>, was_clean: bool) -> bool {
        let mut state = entry.lock();
        let is_clean = was_clean && !state.machine.owes();
        let is_asked = state.machine.is_asked();
        state.delivery.is_in_flight = false;
        if is_clean {
            state.delivery.next_place = None;
        }
        drop(state);
        match is_clean {
            true => self.settle(entry),
            false => self.order.visited(entry, is_asked),
        }
        // Its last writer closed it during the attempt.
        let is_moved = !is_asked && self.gets_another_place(entry, &entry.lock());
        if is_moved {
            self.move_to_end(entry);
            entry.lock().delivery.is_due = true;
        }
        is_moved
    }

    /// Moves a published entry that was written meanwhile to the end of the order, under its present name. `was`: the old
    /// place, if the row has a new one. Call [`Self::requeued`] once the row says so.
    pub(crate) fn requeue(&mut self, entry: &Arc<Entry>, was: Option<&Way>) -> Requeued {
        if entry.lock().is_unlinked() {
            return Requeued::Unlinked;
        }
        // Behind a later cut its bytes would be there again.
        let is_followed = self.order.is_followed(entry) || self.order.is_cut_later(entry);
        let mut state = entry.lock();
        let is_followed = is_followed && !self.gets_another_place(entry, &state);
        if state.is_superseded || is_followed {
            state.delivery.is_due = true;
            drop(state);
            if let Some(was) = was {
                self.reroute(entry, was.clone());
            }
            return Requeued::Stays;
        }
        drop(state);
        let number = self.numbers.next();
        Requeued::Moved(self.reroute(entry, (entry.name(), number)))
    }

    /// Gives a requeued entry a publication of its own, as its row says it.
    pub(crate) fn requeued(&mut self, entry: &Entry) {
        self.order.forget(entry.id);
        let mut state = entry.lock();
        state.delivery.is_due = true;
        state.delivery.next_place = None;
        let is_pending = state.machine.owes() && !state.is_gone;
        let base = state.machine.base().clone();
        drop(state);
        match is_pending {
            true => self.order.publish(entry, base),
            // It was dropped meanwhile, or not written at all.
            false => drop(self.pending.remove(&entry.number())),
        }
    }

    /// Gives a delivered entry its present name at the target as well. Returns its old place; `None`: it was not renamed.
    pub(crate) fn reroute_renamed(&mut self, entry: &Arc<Entry>) -> Option<Way> {
        let number = entry.is_renamed().then(|| self.numbers.next())?;
        Some(self.reroute(entry, (entry.name(), number)))
    }

    /// Takes a delivered patch from readers of its name, unless a writer of another patch keeps it current.
    pub(crate) fn hide_blind(&mut self, entry: &Entry) {
        let mut state = entry.lock();
        if state.machine.writers().is_none() && !state.machine.owes() {
            state.hide();
            drop(state);
            self.remove_current(entry);
        }
    }

    /// Changes its name at the target and its place in the order. Returns the old ones.
    pub(crate) fn reroute(&mut self, entry: &Arc<Entry>, (url, number): Way) -> Way {
        let before = (entry.url(), entry.number());
        self.pending.remove(&before.1);
        entry.reroute(url);
        entry.renumber(number);
        self.pending.insert(number, Arc::clone(entry));
        entry.lock().record.change();
        before
    }

    /// Tells whether it was closed during its delivery, and no later operation concerns its name.
    fn gets_another_place(&self, entry: &Entry, state: &State) -> bool {
        let is_last_since = |place| {
            let all = &self.order;
            let is_followed = all.is_followed_after(entry, place) || all.is_cut_after(entry, place);
            !all.is_overtaken_after(entry, place) && !is_followed
        };
        state.delivery.next_place.is_some_and(is_last_since)
    }
}
