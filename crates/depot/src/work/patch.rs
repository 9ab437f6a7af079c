//! Merges patches into the files beside which they were written.

use crate::{
    Error, IsWanted, Result,
    inner::Inner,
    plan::{close::Standing, entry::Entry, state::State},
    work::room::Asks,
};
use godwit_core::{Block, Extents, LEAF_BYTES, Piece, holding::Notices};
use godwit_sys::{Buffer, crash};
use std::{os::unix::fs::FileExt, sync::Arc};

impl Inner {
    /// Merges a patch into a pending entry. `None`: the entry is gone.
    pub(crate) fn merge(
        &self,
        asks: &Asks<'_>,
        under: &Arc<Entry>,
        is_wanted: IsWanted<'_>,
    ) -> Result<Option<u64>> {
        let beside = asks.own;
        let size = beside.lock().machine.size();
        self.make_room(under, size, asks, is_wanted)?;
        let is_there =
            |state: &State| !state.is_gone && !state.is_superseded && state.machine.owes();
        // A failure comes before the first byte, and leaves the entry as it was.
        let prepare = |written: &Extents| {
            self.may_change(under, written)?;
            self.will_merge(beside, under)
        };
        let Some(generation) = self.pour(beside, under, is_there, prepare)? else {
            return Ok(None);
        };
        let standing = self.plan().move_to_end_unless_replaced(under, 0);
        if standing == Standing::Over {
            // At the target it would replace the newer entry.
            if let Err(error) = self.unlink(under, under.lock()) {
                tracing::warn!(url = %under.url(), %error, "what was replaced cannot be removed yet");
            }
            return Ok(Some(generation));
        }
        self.fit(under);
        match under.commit_with(self, beside.id) {
            // It was superseded, delivered or dropped, with the patch in it.
            Err(_) if under.lock().is_gone => return Ok(Some(generation)),
            kept => kept.map_err(|error| Error::not_safe(under.url(), error.to_string()))?,
        }
        // A newer entry replaces all of it, with the patch.
        if standing == Standing::Last {
            self.make_current(under)?;
        }
        Ok(Some(generation))
    }

    /// Copies a patch into an entry, which is no generation until all of it is there. Returns the new generation; `None`:
    /// the entry may not be changed, or is gone.
    fn pour(
        &self,
        beside: &Entry,
        under: &Entry,
        may: impl FnOnce(&State) -> bool,
        prepare: impl FnOnce(&Extents) -> Result<()>,
    ) -> Result<Option<u64>> {
        let state = beside.lock();
        let written = state.machine.present().clone();
        let (session, upstream) = (state.meta.session.clone(), state.meta.upstream.clone());
        drop(state);
        let mut state = under.lock();
        if !may(&state) {
            return Ok(None);
        }
        let opened = state.machine.open(Notices::Each);
        opened.map_err(|refused| Error::busy(&under.url(), &refused))?;
        state.bytes.is_merging = true;
        state.record.change();
        drop(state);
        let poured = prepare(&written).and_then(|()| {
            let is_gone = under.lock().is_gone;
            match is_gone {
                // Its file may still be on the disk, and would take the bytes.
                true => Err(Error::Unwanted),
                false => self.copy(beside, under, &written),
            }
        });
        let mut state = under.lock();
        state.machine.close(Notices::Each);
        state.bytes.is_merging = false;
        state.record.change();
        if poured.is_ok() {
            state.meta.committed = state.machine.generation();
            state.meta.session = session;
            state.meta.forwarded_by(&upstream);
        }
        let (generation, is_gone) = (state.meta.committed, state.is_gone);
        drop(state);
        under.tell();
        self.nudge();
        match poured {
            // The error came from its removal.
            Err(_) if is_gone => Ok(None),
            poured => poured.map(|()| Some(generation)),
        }
    }

    /// Prepares a change of bytes: reserves their blocks, and persists that they may change.
    fn may_change(&self, under: &Entry, ranges: &Extents) -> Result<()> {
        let file = self.disk.writer(under.id)?;
        for range in ranges.iter() {
            self.disk.reserve(under.id, &file, range)?;
        }
        under.commit(self)
    }

    /// Persists a patch, and the entry into which it is merged.
    fn will_merge(&self, beside: &Entry, under: &Entry) -> Result<()> {
        let mut state = beside.lock();
        state.machine.close(Notices::Each);
        state.bytes.write_fd = None;
        state.bytes.merges_into = Some(under.id);
        state.record.change();
        drop(state);
        beside.commit(self)
    }

    /// Merges a patch after a restart; its writer had received no answer.
    pub(crate) fn merge_again(&self, beside: &Entry, under: Option<Arc<Entry>>) -> Result<()> {
        // The entry may have been delivered, and a newer one too.
        let is_there = |state: &State| state.machine.owes() || state.is_current();
        let may = |state: &State| {
            state.machine.held().is_none() && !state.is_unlinked() && is_there(state)
        };
        if let Some(under) = under
            && self.pour(beside, &under, may, |_| Ok(()))?.is_some()
        {
            under.lock().delivery.is_due = true;
            self.fit(&under);
            // An entry that had been delivered is not in the order yet.
            self.plan().enqueue(&under);
            under.commit_with(self, beside.id)?;
        }
        self.unlink(beside, beside.lock())
    }

    fn copy(&self, beside: &Entry, under: &Entry, ranges: &Extents) -> Result<()> {
        let (from, into) = (self.disk.reader(beside.id)?, self.disk.writer(under.id)?);
        let mut buffer = Buffer::take();
        let mut left = ranges.clone();
        while let Some(range) = left.take_aligned(LEAF_BYTES) {
            let bytes = &mut buffer[..(range.end - range.start) as usize];
            let read = from.read_exact_at(bytes, range.start);
            read.map_err(Error::disk(self.disk.path(beside.id)))?;
            let ticket = under.lock().machine.grant(range.clone());
            let offset = range.start;
            let written = self.disk.write(under.id, &into, offset, bytes);
            crash::point("folded-in-part");
            let mut state = under.lock();
            if let Err(error) = written {
                state.machine.abandoned(ticket);
                state.bytes.leaves.forget(offset / LEAF_BYTES);
                return Err(error);
            }
            state.bytes.leaves.add(Piece::of(Block { offset, bytes }));
            let size = state.machine.size().max(range.end);
            state.written(ticket, size);
        }
        Ok(())
    }
}
