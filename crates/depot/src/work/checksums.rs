//! Finds bytes that rot on our disk while they are pending.
//!
//! The hashes of leaves are known from the end of each generation on. Bytes that are sent are compared with them: by the
//! target, if that compares with the hash that we send, else here before they leave. A file that differs is put on hold,
//! and no reader gets it.

use crate::{
    Error, Result,
    inner::Inner,
    plan::entry::{Entry, Parked},
};
use godwit_core::{Block, Chain, Digest, LEAF_BYTES, Leaves, Piece};
use godwit_sys::Buffer;
use std::{ops::Range, os::unix::fs::FileExt, thread};

impl Inner {
    /// Has the bytes of a file whose writer has ended be on the disk, and meanwhile learns what its leaves hash to; of a
    /// file that no record speaks of yet, that is kept already.
    pub(crate) fn sync_and_know(&self, entry: &Entry) -> Result<()> {
        let state = entry.lock();
        let (size, changes, is_new) = (
            state.machine.size(),
            state.record.changes,
            !state.record.has_row,
        );
        drop(state);
        if size < WORTH_BOTH {
            return self.know(entry);
        }
        thread::scope(|scope| {
            let synced = scope.spawn(|| self.disk.sync(entry.id, is_new));
            let known = self.know(entry);
            let known = known.and_then(|()| self.keep_first_leaves(entry, size));
            synced.join().unwrap_or(Err(Error::Ending)).and(known)
        })?;
        // The thread that records this change need not sync again.
        entry.lock().record.durable = Some(changes);
        Ok(())
    }

    /// Writes the leaves of a file that has no record yet. One thread at a time: two would rename one temporary file.
    fn keep_first_leaves(&self, entry: &Entry, size: u64) -> Result<()> {
        let mut state = entry.lock();
        while state.record.is_writing {
            entry.wait(&mut state, None);
        }
        if state.record.has_row {
            return Ok(());
        }
        state.record.is_writing = true;
        drop(state);
        let kept = self.disk.keep_leaves(entry.id, size, &entry.chains(size));
        entry.lock().record.is_writing = false;
        entry.tell();
        kept
    }

    /// Learns what those leaves hash to of which that is not known, as far as all of them is here.
    pub(crate) fn know(&self, entry: &Entry) -> Result<()> {
        while !self.knows(entry)? {}
        Ok(())
    }

    /// Hashes unknown leaves. Returns false if the file changed meanwhile, perhaps its bytes, without a writer.
    fn knows(&self, entry: &Entry) -> Result<bool> {
        let state = entry.lock();
        let (size, before) = (state.machine.size(), state.record.changes);
        let has_root = size > LEAF_BYTES || state.bytes.leaves.root(size).is_some();
        let is_unknown = |leaf: &u64| !has_root || state.bytes.leaves.chain(*leaf, size).is_none();
        let mut leaves: Vec<u64> = Vec::new();
        // A file may be mostly holes: only what is here is looked through.
        for range in state.machine.present().iter() {
            let end = match range.end == size {
                true => size.div_ceil(LEAF_BYTES),
                false => range.end / LEAF_BYTES,
            };
            leaves.extend((range.start.div_ceil(LEAF_BYTES)..end).filter(is_unknown));
        }
        drop(state);
        if leaves.is_empty() {
            return Ok(true);
        }
        let file = self.disk.reader(entry.id)?;
        let mut buffer = Buffer::take();
        let mut pieces = Vec::new();
        for leaf in leaves {
            let range = leaf_of(leaf, size);
            let bytes = &mut buffer[..(range.end - range.start) as usize];
            let read = file.read_exact_at(bytes, range.start);
            read.map_err(Error::disk(self.disk.path(entry.id)))?;
            let offset = range.start;
            pieces.push(Piece::of(Block { offset, bytes }));
        }
        let mut state = entry.lock();
        // Bytes that were written meanwhile may have been read in part.
        let is_written = state.machine.writers().is_some();
        let is_still = state.record.changes == before && !is_written;
        if is_still {
            pieces
                .into_iter()
                .for_each(|piece| state.bytes.leaves.add(piece));
        }
        Ok(is_still || is_written || state.is_gone)
    }

    /// Returns the length of a whole file, and its digest if it has no writer.
    pub(crate) fn known_as(&self, entry: &Entry) -> (u64, Option<Digest>) {
        drop(entry.lock_merged());
        if let Err(error) = self.know(entry) {
            tracing::warn!(url = %entry.url(), %error, "what it hashes to cannot be told");
        }
        let state = entry.lock();
        let size = state.machine.size();
        let is_still = state.machine.is_whole() && state.machine.writers().is_none();
        (size, state.bytes.leaves.root(size).filter(|_| is_still))
    }

    /// Makes sure that bytes that were read to be sent are those that were written.
    pub(crate) fn compare(&self, entry: &Entry, block: Block<'_>) -> Result<()> {
        let (leaf, range) = (block.offset / LEAF_BYTES, block.range());
        loop {
            let Some((wanted, whole, before)) = expected(entry, leaf) else {
                return Ok(());
            };
            // A part is compared with the rest of its leaf.
            let found = match whole == range {
                true => chain(leaf, whole.clone(), block.bytes),
                false => self.chain_on_disk(entry, leaf, whole.clone())?,
            };
            if found == Some(wanted) {
                return Ok(());
            }
            match expected(entry, leaf) {
                Some((again, _, now)) if again == wanted && now == before => {
                    return Err(rotten(entry, leaf));
                }
                // It was written meanwhile: the sender learns of that.
                _ if whole == range => return Ok(()),
                _ => {}
            }
        }
    }

    /// Notes the hash of a block that is sent while a program may write by a descriptor: later writes differ from it.
    /// Returns false if that writer has ended since, and may have left other bytes.
    pub(crate) fn may_be_sent(&self, entry: &Entry, block: Block<'_>, was_unseen: bool) -> bool {
        if !was_unseen && !entry.lock().machine.is_unseen() {
            return true;
        }
        let piece = Piece::of(block);
        let mut state = entry.lock();
        let is_unseen = state.machine.is_unseen();
        if is_unseen {
            state.bytes.leaves.add(piece);
        }
        is_unseen || !was_unseen
    }

    /// Looks for bytes that are not those that were written, in all of a file.
    pub(crate) fn search_rot(&self, entry: &Entry) -> Result<()> {
        let size = entry.lock().machine.size();
        self.search_rot_in(entry, 0..size)
    }

    /// Compares the leaves of a range with their hashes.
    pub(crate) fn search_rot_in(&self, entry: &Entry, range: Range<u64>) -> Result<()> {
        for leaf in range.start / LEAF_BYTES..range.end.div_ceil(LEAF_BYTES) {
            let Some((wanted, whole, before)) = expected(entry, leaf) else {
                continue;
            };
            let found = self.chain_on_disk(entry, leaf, whole)?;
            let is_still = expected(entry, leaf).is_some_and(|(.., now)| now == before);
            if found != Some(wanted) && is_still {
                return Err(rotten(entry, leaf));
            }
        }
        Ok(())
    }

    fn chain_on_disk(&self, entry: &Entry, leaf: u64, range: Range<u64>) -> Result<Option<Chain>> {
        let file = self.disk.reader(entry.id)?;
        let mut buffer = Buffer::take();
        let bytes = &mut buffer[..(range.end - range.start) as usize];
        let read = file.read_exact_at(bytes, range.start);
        read.map_err(Error::disk(self.disk.path(entry.id)))?;
        Ok(chain(leaf, range, bytes))
    }
}

/// The known hash of a leaf, and the change after which it was known.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct Known {
    chain: Chain,
    changes: u64,
}

impl Known {
    /// Returns the hash of a range, if it is a leaf of 1 MiB with a known hash and without a writer.
    pub(crate) fn of(entry: &Entry, range: &Range<u64>) -> Option<Self> {
        let (chain, whole, changes) = expected(entry, range.start / LEAF_BYTES)?;
        let is_all = whole == *range && range.end - range.start == LEAF_BYTES;
        is_all.then_some(Self { chain, changes })
    }

    pub(crate) fn chain(self) -> Chain {
        self.chain
    }
}

/// Tells whether what is sent is to be compared here: the target does not, or cannot. After a restart only the leaf of a
/// small file is known, which is not what all of it hashes to.
pub(crate) fn is_compared_here(entry: &Entry, to: &Parked) -> bool {
    !to.compares || entry.lock().machine.size() <= LEAF_BYTES
}

/// Returns the known hash of a leaf, its range, and the number of changes, which tells whether it is written meanwhile.
/// `None`: the hash is unknown, or the file has a writer.
fn expected(entry: &Entry, leaf: u64) -> Option<(Chain, Range<u64>, u64)> {
    let state = entry.lock();
    let size = state.machine.size();
    let range = leaf_of(leaf, size);
    let is_still = state.machine.writers().is_none() && !state.machine.is_unseen();
    let is_here = is_still && !state.is_gone && state.machine.present().contains(&range);
    let chain = state.bytes.leaves.chain(leaf, size).filter(|_| is_here)?;
    Some((chain, range, state.record.changes))
}

fn chain(leaf: u64, range: Range<u64>, bytes: &[u8]) -> Option<Chain> {
    let mut leaves = Leaves::new();
    let offset = range.start;
    leaves.add(Piece::of(Block { offset, bytes }));
    leaves.chain(leaf, range.end)
}

/// Returns where a leaf lies in a file of that length.
pub(crate) fn leaf_of(leaf: u64, size: u64) -> Range<u64> {
    leaf.saturating_mul(LEAF_BYTES)..leaf.saturating_add(1).saturating_mul(LEAF_BYTES).min(size)
}

fn rotten(entry: &Entry, leaf: u64) -> Error {
    let url = entry.url();
    tracing::error!(%url, leaf, "the disk damaged a pending file; it is on hold");
    Error::rotten(url, leaf * LEAF_BYTES)
}

/// Of less it takes longer to begin a thread; tests do both.
const WORTH_BOTH: u64 = if cfg!(test) { 8 << 10 } else { 4 << 20 };
