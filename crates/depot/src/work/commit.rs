//! Makes an entry durable: its bytes first, then its record.

use crate::{
    Error, Result,
    disk::rows::{Change, Row},
    id::Id,
    inner::Inner,
    plan::entry::Entry,
};
use godwit_core::Chain;
use godwit_sys::crash;

impl Entry {
    /// Has all that ended until now survive a power cut, and returns then. One record at a time: an
    /// older one is never written over a newer.
    pub(crate) fn commit(&self, depot: &Inner) -> Result<()> {
        self.record(depot, None)
    }

    /// Writes its record, and removes that of the entry which was merged into it, in one transaction.
    pub(crate) fn commit_with(&self, depot: &Inner, merged: Id) -> Result<()> {
        self.record(depot, Some(merged))
    }

    fn record(&self, depot: &Inner, merged: Option<Id>) -> Result<()> {
        let mut state = self.lock();
        let wanted = state.record.changes;
        loop {
            if state.is_gone {
                return Err(Error::Unknown(self.url().to_string()));
            }
            if state.record.persisted >= wanted && state.record.has_row && merged.is_none() {
                return Ok(());
            }
            if !state.record.is_writing {
                break;
            }
            self.wait(&mut state, None);
        }
        state.record.is_writing = true;
        let taken = state.record.changes;
        let is_new = !state.record.has_row;
        let is_synced = state.record.durable.take() == Some(taken);
        let row = Row::of(self, &state, &depot.boot);
        let size = row.record.size;
        let chains: Vec<_> = state.bytes.leaves.known(size).collect();
        let makes_room = state.delivery.is_in_flight;
        drop(state);
        crash::point("commit-taken");
        let change = match merged {
            None => Change::Put(Box::new(row)),
            Some(merged) => Change::Merge(Box::new(row), merged),
        };
        let kept = match is_synced {
            true => Ok(()),
            false => depot.disk.sync(self.id, is_new),
        };
        let has_leaves = is_synced && is_new;
        let leaves = (!has_leaves).then_some((size, &chains[..]));
        let kept = kept.and_then(|()| self.keep(depot, leaves, (change, makes_room)));
        let mut state = self.lock();
        state.record.is_writing = false;
        if kept.is_ok() {
            state.record.persisted = taken;
            state.record.has_row = true;
        }
        drop(state);
        self.tell();
        kept
    }

    fn keep(
        &self,
        depot: &Inner,
        leaves: Option<(u64, &[(u64, Chain)])>,
        (change, makes_room): (Change, bool),
    ) -> Result<()> {
        crash::point("commit-synced");
        if let Some((size, chains)) = leaves {
            let keep = || depot.disk.keep_leaves(self.id, size, chains);
            match makes_room {
                // What is delivered may be forgotten, and that is what room is made by.
                true => depot.ballast.with(keep)?,
                false => keep()?,
            }
        }
        crash::point("leaves-kept");
        depot.records.write(change)?;
        crash::point("commit-recorded");
        Ok(())
    }
}
