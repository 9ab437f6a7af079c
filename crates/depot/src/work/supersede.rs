//! Supersedes pending entries by newer ones.

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
    /// Supersedes the older entries that `newer` replaces, the newest first: an entry that needs an older one at the target
    /// keeps that one pending.
    pub(crate) fn supersede_all(&self, mut older: Vec<Arc<Entry>>, newer: &Entry) -> Result<()> {
        older.sort_by_key(|other| Reverse(other.number()));
        older.dedup_by_key(|other| other.id);
        let replaces = is_replacing(newer);
        // An open entry will come after this one.
        older.retain(|other| !other.lock().is_private());
        for other in older {
            // An entry with a condition needs the pending ones to arrive.
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
    /// Supersedes an older entry, unless it was closed again meanwhile and is the newer one now: else each of the two would
    /// supersede the other.
    fn gives_way(&self, other: &Entry, newer: &Entry) -> bool {
        let _all = self.plan();
        let mut state = other.lock();
        let number = state.delivery.next_place.unwrap_or(other.number());
        let is_older = !state.machine.owes() || number < newer.number();
        state.is_superseded |= is_older && !state.is_private();
        is_older
    }
}
