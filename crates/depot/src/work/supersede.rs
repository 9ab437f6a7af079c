//! Has entries give way to newer ones.

use crate::{
    Result,
    inner::Inner,
    plan::{
        entry::Entry,
        supersede::{is_of_one, is_replacing, rests_on_older},
    },
};
use std::{cmp::Reverse, sync::Arc};

impl Inner {
    /// Has what was put under a name before give way to something newer that replaces it. The newest goes first: what
    /// one of them wants to find at the target stays for as long as that one does.
    pub(crate) fn supersede_all(&self, mut older: Vec<Arc<Entry>>, newer: &Entry) -> Result<()> {
        older.sort_by_key(|other| Reverse(other.number()));
        older.dedup_by_key(|other| other.id);
        let replaces = is_replacing(newer);
        // What is not ended comes after this one, whatever it is to find there.
        older.retain(|other| !other.lock().is_private());
        for other in older {
            // A condition on what is on its way wants that to arrive.
            let may = replaces || !other.lock().machine.owes();
            if may
                && is_of_one(&other, newer)
                && !self.is_needed(&other)
                && self.gives_way(&other, newer)
            {
                self.unlink_superseded(&other)?;
            }
            if rests_on_older(&other) {
                break;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Has something older give way. Whoever ended it anew meanwhile has it be newer, and then nothing of it is older:
    /// else each of the two would give way to the other.
    fn gives_way(&self, other: &Entry, newer: &Entry) -> bool {
        let _all = self.all();
        let mut state = other.lock();
        let number = state.delivery.next_place.unwrap_or(other.number());
        let is_older = !state.machine.owes() || number < newer.number();
        state.is_superseded |= is_older && !state.is_private();
        is_older
    }
}
