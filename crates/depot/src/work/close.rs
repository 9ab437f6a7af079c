//! Makes a finished file the current version of its name.

use crate::{
    Result,
    inner::Inner,
    plan::{Plan, entry::Entry, supersede::goes_over},
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

impl Inner {
    /// Moves an entry to the end of the order of its name: the last end counts.
    pub(crate) fn move_to_end(&self, entry: &Arc<Entry>) {
        self.move_to_end_in(&mut self.plan(), entry);
    }

    /// Puts an edit that was written behind all that are there, as [`Self::move_to_end`] does, unless an upload that was promised
    /// after it (and after the place `since`) replaces all of it. An upload that was delivered meanwhile shows no place any
    /// more, so only the promises tell.
    pub(crate) fn move_to_end_unless_replaced(&self, entry: &Arc<Entry>, since: u64) -> Standing {
        let mut plan = self.plan();
        if plan.order.is_replaced_after(entry, since) {
            return Standing::Before;
        }
        let state = entry.lock();
        let is_one = !plan.order.has(entry) && !state.is_gone && !state.is_unlinked();
        let (is_one, is_superseded) = (is_one && !state.machine.is_blind(), state.is_superseded);
        drop(state);
        let is_newer = |other: &Arc<Entry>| is_one && goes_over(other, entry);
        if is_one && is_superseded || plan.current.get(&entry.key()).is_some_and(is_newer) {
            return Standing::Over;
        }
        if plan.all_coming().any(is_newer) {
            plan.enqueue(entry, || entry.number());
            return Standing::Before;
        }
        self.move_to_end_in(&mut plan, entry);
        Standing::Last
    }

    pub(crate) fn move_to_end_in(&self, plan: &mut Plan, entry: &Arc<Entry>) {
        plan.private.remove(&entry.id);
        let state = entry.lock();
        let is_pending = state.machine.owes();
        // A delivery in place changes its target before it is published.
        let is_entered = state.delivery.is_in_flight && state.machine.mode() == Mode::InPlace;
        let is_under_way = state.delivery.is_in_flight && !plan.order.is_overtaken(entry);
        let is_fixed = is_entered || is_under_way || state.machine.is_asked() || !is_pending;
        let is_gone = state.is_gone || state.is_unlinked();
        drop(state);
        if is_gone || (plan.order.has(entry) && is_fixed) {
            if !is_gone && is_pending && plan.order.is_overtaken(entry) {
                // The delivery in flight keeps its place; the entry gets another one afterwards.
                let mut state = entry.lock();
                state.delivery.next_place = Some(self.next_number());
                state.is_superseded = false; // What had its name meanwhile is older now.
                drop(state);
                plan.comes(entry);
            }
            return;
        }
        entry.lock().delivery.next_place = None;
        if plan.order.is_overtaken(entry) {
            // Later operations need an entry that was renamed, or renamed back, at its present place.
            if entry.is_renamed() || plan.order.is_needed(entry) {
                return;
            }
            plan.order.forget(entry.id);
            plan.enqueue(entry, || self.next_number());
            let mut state = entry.lock();
            state.is_superseded = false; // as above
            if state.record.has_row {
                state.record.change(); // Who records it just now may have taken the place that it had.
            }
        }
        let before = plan.before(entry);
        entry.lock().meta.replaces = before;
        plan.comes(entry);
    }

    /// Makes a finished file the current version of its name.
    pub(crate) fn make_current(&self, entry: &Arc<Entry>) -> Result<()> {
        let mut plan = self.plan();
        if entry.lock().is_unlinked() {
            // Its name was removed here, but later operations may need it at its target.
            let is_needed =
                entry.is_renamed() || !self.is_unconditional(entry) || plan.order.is_needed(entry);
            let is_awaited = is_needed && plan.order.has(entry);
            if is_awaited {
                plan.enqueue(entry, || self.next_number());
                entry.lock().delivery.is_due = true;
            }
            plan.coming.remove(&entry.id);
            drop(plan);
            if !is_awaited {
                self.supersede(entry)?;
            }
            self.nudge();
            return Ok(());
        }
        let old = plan.current.get(&entry.key()).cloned();
        let is_newest = plan.has_come(entry);
        entry.lock().delivery.is_due = true;
        plan.enqueue(entry, || self.next_number());
        let mut older = plan.pending_called(&entry.name());
        older.retain(|other| other.number() < entry.number());
        older.extend(old.filter(|old| is_newest && old.id != entry.id));
        drop(plan);
        self.supersede_all(older.clone(), entry)?;
        if self.plan().inherit(entry, &older) {
            entry.commit(self)?;
        }
        self.nudge();
        Ok(())
    }

    /// Supersedes an entry, and forgets it unless it is in flight or open.
    pub(crate) fn supersede(&self, old: &Arc<Entry>) -> Result<()> {
        let mut state = old.lock();
        state.is_superseded |= !state.is_private();
        drop(state);
        self.unlink_superseded(old)
    }

    /// Forgets a superseded entry, unless it is in flight or open.
    pub(crate) fn unlink_superseded(&self, old: &Arc<Entry>) -> Result<()> {
        let mut state = old.lock();
        if state.is_private() || !state.is_superseded {
            return Ok(()); // It is not ended yet, or was ended anew, and comes after.
        }
        if state.is_gone || !state.may_be_superseded() {
            // The thread that has it may have looked before it was superseded.
            state.delivery.is_due = true;
            return Ok(());
        }
        self.unlink(old, state)
    }
}
