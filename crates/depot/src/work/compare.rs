//! Compares the bytes of an entry with what they were.

use crate::{
    Error, Result,
    inner::Inner,
    plan::{entry::Entry, state::State},
};
use godwit_core::{Block, Extents, LEAF_BYTES, Leaves, Piece, holding::Scan};
use godwit_sys::{Buffer, crash};
use parking_lot::MutexGuard;
use std::os::unix::fs::FileExt;

impl Inner {
    /// Finds the changes of writers by descriptor. Returns false while one of them may still write, or if `is_still` says
    /// that one could in the meantime.
    pub(crate) fn rescan(&self, entry: &Entry, is_still: impl Fn() -> bool) -> Result<bool> {
        let mut state = entry.lock();
        let Some(ticket) = state.machine.scan() else {
            return Ok(!state.machine.is_unseen());
        };
        let was_doubtful = state.machine.is_doubtful();
        drop(state);
        crash::point("scan-begun");
        let (mut state, found, leaves) = self.compare_now(entry)?;
        if !is_still() {
            return Ok(false);
        }
        state.machine.scanned(ticket, &found);
        state.bytes.leaves = leaves;
        state.record.change();
        if was_doubtful {
            let size = state.machine.size();
            let write_fd = self.disk.writer(entry.id)?;
            self.disk.resize(entry.id, &write_fd, size)?;
        }
        Ok(true)
    }

    /// Compares the file with what is known of it by the time that all of it was looked at.
    pub(crate) fn compare_now<'a>(
        &self,
        entry: &'a Entry,
    ) -> Result<(MutexGuard<'a, State>, Scan, Leaves)> {
        let state = entry.lock();
        let (recorded, present) = (state.machine.size(), state.machine.present().clone());
        drop(state);
        let (size, leaves) = self.hashed(entry)?;
        // A delivery meanwhile may have sent bytes that have changed since.
        let mut state = entry.lock();
        let known = &state.bytes.leaves;
        let mut changed = Extents::new();
        for leaf in 0..size.div_ceil(LEAF_BYTES) {
            let range = leaf * LEAF_BYTES..((leaf + 1) * LEAF_BYTES).min(size);
            let is_present = present.contains(&(range.start..range.end.min(recorded)));
            let then = known.chain(leaf, recorded).filter(|_| is_present);
            if then.is_none() || then != leaves.chain(leaf, size) || range.end > recorded {
                changed.insert(range);
            }
        }
        state.users.is_edited |= !changed.is_empty() || size != recorded;
        let stale = changed.clone();
        let found = Scan {
            size,
            changed,
            stale,
        };
        Ok((state, found, leaves))
    }

    /// Returns how long the file is, and what its leaves hash to.
    pub(crate) fn hashed(&self, entry: &Entry) -> Result<(u64, Leaves)> {
        self.hashed_while(entry, &|| true)
    }

    /// Hashes a file, unless cancelled.
    pub(crate) fn hashed_while(
        &self,
        entry: &Entry,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(u64, Leaves)> {
        let path = self.disk.path(entry.id);
        let file = self.disk.reader(entry.id)?;
        let size = file.metadata().map_err(Error::disk(&path))?.len();
        let mut leaves = Leaves::new();
        let mut buffer = Buffer::take();
        let mut left = Extents::from(0..size);
        while let Some(range) = left.take_aligned(LEAF_BYTES) {
            if !is_wanted() {
                return Err(Error::Ending);
            }
            let bytes = &mut buffer[..(range.end - range.start) as usize];
            let read = file.read_exact_at(bytes, range.start);
            read.map_err(Error::disk(&path))?;
            let offset = range.start;
            leaves.add(Piece::of(Block { offset, bytes }));
        }
        Ok((size, leaves))
    }
}
