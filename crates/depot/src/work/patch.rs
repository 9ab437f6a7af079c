//! Puts what was written beside a file into it.

use crate::{
    Error, IsWanted, Result,
    inner::Inner,
    plan::{entry::Entry, state::State},
    work::{close::Standing, room::Asks},
};
use godwit_core::{Block, Extents, LEAF_BYTES, Piece, Url, holding::Notices};
use godwit_sys::{Buffer, crash};
use std::{os::unix::fs::FileExt, sync::Arc};

impl Inner {
    /// Returns what is owed of a name already, to write into that.
    pub(crate) fn pending_of(&self, key: &(Url, String)) -> Option<Arc<Entry>> {
        let all = self.all();
        let entry = all.current.get(key)?;
        let state = entry.lock();
        let is_ours = state.machine.owes() && !state.is_gone && !state.is_superseded;
        drop(state);
        // It would come before its file is cut, or what was cut off would come after.
        let may = is_ours && !all.promises.is_cut_later(entry);
        may.then(|| Arc::clone(entry))
    }

    /// Puts all that was written beside a file into it; `None`: it went meanwhile.
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
        // What goes wrong goes wrong before the first byte: then it is as it was.
        let prepare = |written: &Extents| {
            self.may_change(under, written)?;
            self.will_merge(beside, under)
        };
        let Some(generation) = self.pour(beside, under, is_there, prepare)? else {
            return Ok(None);
        };
        let standing = self.move_to_end_unless_replaced(under, 0);
        if standing == Standing::Over {
            // There it would come over what was put after it.
            if let Err(error) = self.unlink(under, under.lock()) {
                tracing::warn!(url = %under.url(), %error, "what was replaced cannot be removed yet");
            }
            return Ok(Some(generation));
        }
        self.fit(under);
        match under.commit_with(self, beside.id) {
            // It gave way or was delivered or given up, with all that is in it.
            Err(_) if under.lock().is_gone => return Ok(Some(generation)),
            kept => kept.map_err(|error| Error::not_safe(under.url(), error.to_string()))?,
        }
        // What was put meanwhile goes over all of it, and does not know what was written here.
        if standing == Standing::Last {
            self.make_current(under)?;
        }
        Ok(Some(generation))
    }

    /// Puts what was written beside a file into it, which is no generation until all of that is there, and returns
    /// which one it is then; `None`: it may not, or went before all was there.
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
                // Its file may still be on the disk, and would take all of it.
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
            // Whatever was not found or not known was its.
            Err(_) if is_gone => Ok(None),
            poured => poured.map(|()| Some(generation)),
        }
    }

    /// Makes sure that bytes can be changed: there are blocks for them, and it is on record that they may be other
    /// than they were.
    fn may_change(&self, under: &Entry, ranges: &Extents) -> Result<()> {
        let file = self.disk.writer(under.id)?;
        for range in ranges.iter() {
            self.disk.reserve(under.id, &file, range)?;
        }
        under.commit(self)
    }

    /// Has what was written be on record, and where it goes.
    fn will_merge(&self, beside: &Entry, under: &Entry) -> Result<()> {
        let mut state = beside.lock();
        state.machine.close(Notices::Each);
        state.bytes.write_fd = None;
        state.bytes.merges_into = Some(under.id);
        state.record.change();
        drop(state);
        beside.commit(self)
    }

    /// Puts into a file what was on its way there when we ended, and had been told to nobody.
    pub(crate) fn merge_again(&self, beside: &Entry, under: Option<Arc<Entry>>) -> Result<()> {
        // All else of it may have been delivered, and something newer too.
        let is_there = |state: &State| state.machine.owes() || state.is_current();
        let may = |state: &State| {
            state.machine.held().is_none() && !state.is_unlinked() && is_there(state)
        };
        if let Some(under) = under
            && self.pour(beside, &under, may, |_| Ok(()))?.is_some()
        {
            under.lock().delivery.is_due = true;
            self.fit(&under);
            // If all else of it had been delivered, nothing waits for it yet.
            self.all().enqueue(&under, || self.next_number());
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
