//! The landed ranges of one file, and their hashes: the part of a sink that is common to all stores.

use crate::{Checks, Error, Expected, Finished, Result, Verified};
use godwit_core::{
    AdlerPart, AdlerParts, Algorithm, Block, Chain, Digest, Extents, Hashing, LEAF_BYTES, Leaves,
    Piece, leaf_range,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
};

/// The landed ranges of one file, whose bytes arrive in any order.
#[derive(Debug)]
pub(crate) struct LandedRanges {
    checks: Checks,
    size: Option<u64>,
    done: Extents,
    under_way: Vec<Range<u64>>,
    /// All ranges that were ever put or begun, those that are not done any more among them.
    touched: Extents,
    leaves: Leaves,
    adler: AdlerParts,
    said: BTreeMap<u64, Chain>,
    /// Leaves whose hash differs from the source's, and that did not arrive again.
    refused: BTreeMap<u64, Difference>,
    /// Leaves of which bytes arrived twice at once: only a read can tell which count.
    doubtful: BTreeSet<u64>,
    reread_bytes: u64,
}

/// The state of a range before its write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeforeWrite {
    /// Whether the range is written for the first time by this sink.
    pub(crate) is_first: bool,
    /// Some of it had landed.
    pub(crate) is_again: bool,
}

/// The hashes of one block. Computing them is the expensive part, and needs no lock.
#[derive(Debug)]
pub(crate) struct BlockHashes {
    pieces: Vec<Piece>,
    adler: Option<AdlerPart>,
}

impl BlockHashes {
    /// Hashes a block, leaf by leaf.
    pub(crate) fn of(block: Block<'_>, checks: Checks) -> Self {
        let pieces = match checks.blake3 {
            true => by_leaf(block).map(Piece::of).collect(),
            false => Vec::new(),
        };
        Self {
            pieces,
            adler: checks.adler32.then(|| AdlerPart::of(block)),
        }
    }
}

#[derive(Clone, Debug)]
struct Difference {
    expected: Chain,
    found: Chain,
}

/// Reads bytes back: fills the slice from the offset.
pub(crate) type ReadBack<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<()>;

impl LandedRanges {
    pub(crate) fn new(checks: Checks, size: Option<u64>) -> Self {
        Self {
            checks,
            size,
            done: Extents::new(),
            under_way: Vec::new(),
            touched: Extents::new(),
            leaves: Leaves::new(),
            adler: AdlerParts::new(),
            said: BTreeMap::new(),
            refused: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            reread_bytes: 0,
        }
    }

    pub(crate) fn done(&self) -> &Extents {
        &self.done
    }

    /// Announces bytes that are about to be written. What landed there before is done no more: until
    /// all of the new ones are there, it is neither.
    pub(crate) fn begin(&mut self, range: Range<u64>) -> BeforeWrite {
        let at_once = |r: &Range<u64>| r.start < range.end && range.start < r.end;
        if self.under_way.iter().any(at_once) {
            self.doubtful.extend(leaves_of(range.clone()));
        }
        let is_first = self.touched.within(range.clone()).next().is_none();
        let is_again = self.done.within(range.clone()).next().is_some();
        if is_again {
            self.done.remove(range.clone());
        }
        self.under_way.push(range.clone());
        self.touched.insert(range);
        BeforeWrite { is_first, is_again }
    }

    /// Counts bytes that were read again before this began.
    pub(crate) fn count_reread(&mut self, bytes: u64) {
        self.reread_bytes += bytes;
    }

    /// Takes back an announcement: the bytes were not, or not all, written.
    pub(crate) fn failed(&mut self, range: &Range<u64>) {
        self.end_of(range);
        // The earlier bytes are overwritten.
        self.done.remove(range.clone());
    }

    /// Adds written bytes. Returns the leaves that now differ from the source's hashes, and are not done any more.
    pub(crate) fn landed(&mut self, range: Range<u64>, hashed: BlockHashes) -> Vec<u64> {
        self.end_of(&range);
        self.done.insert(range.clone());
        for piece in hashed.pieces {
            self.leaves.add(piece);
        }
        if let Some(part) = hashed.adler {
            self.adler.add(part);
        }
        leaves_of(range)
            .filter(|&leaf| self.compare(leaf))
            .collect()
    }

    /// Takes bytes from a record, with the value of the leaf if it is whole.
    pub(crate) fn recorded(&mut self, leaf: u64, ranges: &[Range<u64>], chain: Option<Chain>) {
        ranges.iter().for_each(|r| self.done.insert(r.clone()));
        if let Some(chain) = chain
            && self.checks.blake3
        {
            self.leaves.set(leaf, chain);
        }
    }

    /// Has a leaf that was taken from a record told as one that became whole.
    pub(crate) fn tell(&mut self, leaf: u64) {
        if let Some(chain) = self.chain(leaf) {
            self.leaves.learn(leaf, chain);
        }
    }

    /// Takes bytes out of what landed: they are to come again.
    pub(crate) fn lose(&mut self, range: Range<u64>) {
        for leaf in leaves_of(range.clone()) {
            self.leaves.forget(leaf);
        }
        self.adler.forget(range.clone());
        self.done.remove(range);
    }

    /// Adds bytes that others wrote, with the values of those leaves that they saw whole.
    pub(crate) fn came(&mut self, ranges: &Extents, leaves: &[(u64, Chain)]) {
        for range in ranges.iter() {
            if self.begin(range.clone()).is_again {
                // The bytes that we hashed are gone, and we have not seen the new ones.
                self.doubtful.extend(leaves_of(range.clone()));
            }
            let unseen = BlockHashes {
                pieces: Vec::new(),
                adler: None,
            };
            self.landed(range, unseen);
        }
        let end = self.done.end();
        for &(leaf, chain) in leaves {
            let range = leaf_range(leaf);
            let is_here = self.done.contains(&(range.start..range.end.min(end)));
            if is_here && self.checks.blake3 && !self.doubtful.contains(&leaf) {
                self.leaves.learn(leaf, chain);
                self.compare(leaf);
            }
        }
    }

    /// Reads leaves that are partly present again, so that their hashes are known as soon as the rest arrives.
    pub(crate) fn read_partial_leaves(&mut self, read: ReadBack<'_>) -> Result<()> {
        if !self.checks.blake3 {
            return Ok(());
        }
        let end = self.size.unwrap_or(u64::MAX);
        let ragged: Extents = self
            .done
            .iter()
            .flat_map(|r| [r.start, r.end])
            .filter(|&edge| edge % LEAF_BYTES != 0 && edge != end)
            .map(|edge| leaf_range(edge / LEAF_BYTES))
            .collect();
        let mut again = ragged.and(&self.done);
        let mut buffer = godwit_sys::Buffer::take();
        while let Some(range) = again.take_aligned(LEAF_BYTES) {
            self.read_again(range, read, &mut buffer)?;
        }
        Ok(())
    }

    fn read_again(
        &mut self,
        range: Range<u64>,
        read: ReadBack<'_>,
        buffer: &mut [u8],
    ) -> Result<()> {
        let bytes = &mut buffer[..(range.end - range.start) as usize];
        read(range.start, bytes)?;
        let block = Block::at(range.start, bytes);
        self.reread_bytes += bytes.len() as u64;
        let hashed = BlockHashes::of(block, self.checks);
        hashed.pieces.into_iter().for_each(|p| self.leaves.add(p));
        hashed.adler.into_iter().for_each(|p| self.adler.add(p));
        Ok(())
    }

    /// Returns the value of a leaf, once all of it came.
    pub(crate) fn chain(&self, leaf: u64) -> Option<Chain> {
        if self.doubtful.contains(&leaf) || !self.checks.blake3 {
            return None;
        }
        self.leaves.chain(leaf, self.size.unwrap_or(u64::MAX))
    }

    /// Returns leaves that became whole since this was asked last, and their values.
    pub(crate) fn newly_whole(&mut self, count_max: usize) -> Vec<(u64, Chain)> {
        let size = self.size.unwrap_or(u64::MAX);
        let mut whole = self.leaves.newly_complete(size, count_max);
        whole.retain(|(leaf, _)| !self.doubtful.contains(leaf));
        whole
    }

    /// Takes the source's hash of a leaf. Returns whether ours differs; the leaf is then not done any more.
    pub(crate) fn said(&mut self, leaf: u64, chain: Chain) -> bool {
        self.said.insert(leaf, chain);
        self.compare(leaf)
    }

    fn compare(&mut self, leaf: u64) -> bool {
        let (Some(&expected), Some(found)) = (self.said.get(&leaf), self.chain(leaf)) else {
            return false;
        };
        if expected == found {
            self.refused.remove(&leaf);
            return false;
        }
        self.refused.insert(leaf, Difference { expected, found });
        self.forget(leaf);
        true
    }

    fn forget(&mut self, leaf: u64) {
        self.done.remove(leaf_range(leaf));
        self.leaves.forget(leaf);
        self.adler.forget(leaf_range(leaf));
        self.doubtful.remove(&leaf);
    }

    /// Checks that the file is what `whole` says, and tells its digests.
    pub(crate) fn settle(
        &mut self,
        path: &Path,
        whole: &Expected,
        read: ReadBack<'_>,
    ) -> Result<Finished> {
        let size = self.whole_size(path, whole)?;
        self.size = Some(size);
        for leaf in std::mem::take(&mut self.doubtful) {
            self.leaves.forget(leaf);
            self.adler.forget(leaf_range(leaf));
        }
        self.read_what_is_unknown(size, read)?;
        let mut digests = Vec::new();
        if self.checks.blake3 {
            digests.push(self.leaves.root(size).expect("all leaves were read"));
            self.refuse_what_differs(path, size)?;
        }
        if self.checks.adler32 {
            digests.push(self.adler.total(size).expect("all parts were read"));
        }
        let verified = self.compare_whole(path, whole, size, &mut digests, read)?;
        Ok(Finished {
            digests,
            verified,
            reread_bytes: self.reread_bytes,
            ..Finished::default()
        })
    }

    fn whole_size(&mut self, path: &Path, whole: &Expected) -> Result<u64> {
        let size = whole.size.or(self.size).unwrap_or(self.done.end());
        if self.size.is_none() {
            self.cut(size);
        }
        let missing = self.done.missing(0..size);
        if let Some((leaf, difference)) = self.refused.iter().next() {
            return Err(differs(path, *leaf, difference));
        }
        if !missing.is_empty() {
            return Err(Error::incomplete(path, size, missing));
        }
        if self.done.end() > size {
            return Err(Error::corrupt(
                path,
                format!("{size} bytes"),
                format!("{} bytes", self.done.end()),
            ));
        }
        Ok(size)
    }

    /// Removes bytes behind the end of a file whose length was not announced: its writer has cut it. The hash of the
    /// leaf at the cut becomes unknown.
    fn cut(&mut self, size: u64) {
        if self.done.end().max(self.touched.end()) <= size {
            return;
        }
        let first = size / LEAF_BYTES;
        self.done.remove(size..u64::MAX);
        self.adler.forget(size..u64::MAX);
        self.leaves.forget_from(first);
        self.said.split_off(&first);
        self.refused.split_off(&first);
        self.doubtful.split_off(&first);
    }

    fn read_what_is_unknown(&mut self, size: u64, read: ReadBack<'_>) -> Result<()> {
        let mut unknown = Extents::new();
        if self.checks.blake3 {
            unknown = unknown.or(&self.leaves.unknown(size));
        }
        if self.checks.adler32 {
            unknown = unknown.or(&self.adler.unknown(size));
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let mut buffer = godwit_sys::Buffer::take();
        while let Some(range) = unknown.take_aligned(LEAF_BYTES) {
            self.read_again(range, read, &mut buffer)?;
        }
        Ok(())
    }

    /// Compares those leaves whose hashes are known only now.
    fn refuse_what_differs(&mut self, path: &Path, size: u64) -> Result<()> {
        let said: Vec<u64> = self
            .said
            .range(..size.div_ceil(LEAF_BYTES))
            .map(|(&l, _)| l)
            .collect();
        for leaf in said {
            self.compare(leaf);
        }
        match self.refused.iter().next() {
            Some((leaf, difference)) => Err(differs(path, *leaf, difference)),
            None => Ok(()),
        }
    }

    fn compare_whole(
        &mut self,
        path: &Path,
        whole: &Expected,
        size: u64,
        digests: &mut Vec<Digest>,
        read: ReadBack<'_>,
    ) -> Result<Verified> {
        let Some(expected) = &whole.digest else {
            let all_said = self.checks.blake3 && size > 0 && self.said_all(size);
            return Ok(if all_said {
                Verified::By(Algorithm::Blake3)
            } else {
                Verified::SizeOnly
            });
        };
        let by = expected.algorithm();
        let found = match digests.iter().find(|d| d.algorithm() == by) {
            Some(known) => known.clone(),
            None => {
                let digest = self.read_whole(by, size, read)?;
                digests.push(digest.clone());
                digest
            }
        };
        if &found == expected {
            return Ok(Verified::By(by));
        }
        self.distrust(size);
        Err(Error::corrupt(
            path,
            expected.to_string(),
            found.to_string(),
        ))
    }

    fn said_all(&self, size: u64) -> bool {
        self.said.range(..size.div_ceil(LEAF_BYTES)).count() as u64 == size.div_ceil(LEAF_BYTES)
    }

    fn read_whole(&mut self, by: Algorithm, size: u64, read: ReadBack<'_>) -> Result<Digest> {
        let mut hashing = Hashing::new(by);
        let mut buffer = godwit_sys::Buffer::take();
        let mut left = Extents::from(0..size);
        while let Some(range) = left.take_aligned(LEAF_BYTES) {
            let bytes = &mut buffer[..(range.end - range.start) as usize];
            read(range.start, bytes)?;
            hashing.update(bytes);
            self.reread_bytes += bytes.len() as u64;
        }
        Ok(hashing.finish())
    }

    /// Handles a wrong hash of the whole file, in an unknown place. Only leaves that were confirmed one by one stay
    /// done. If all were, one of the two sides is wrong: none stays.
    fn distrust(&mut self, size: u64) {
        let all = self.said_all(size);
        for leaf in leaves_of(0..size) {
            if all || !self.said.contains_key(&leaf) {
                self.forget(leaf);
            }
        }
    }

    fn end_of(&mut self, range: &Range<u64>) {
        if let Some(at) = self.under_way.iter().position(|r| r == range) {
            self.under_way.swap_remove(at);
        }
    }
}

fn differs(path: &Path, leaf: u64, difference: &Difference) -> Error {
    Error::corrupt(
        path,
        format!("leaf {leaf} {}", difference.expected),
        difference.found.to_string(),
    )
}

/// Returns the leaves that a range touches.
pub(crate) fn leaves_of(range: Range<u64>) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / LEAF_BYTES..(range.end - 1) / LEAF_BYTES + 1,
    }
}

fn by_leaf(block: Block<'_>) -> impl Iterator<Item = Block<'_>> {
    leaves_of(block.range()).map(move |leaf| {
        let (leaf, all) = (leaf_range(leaf), block.range());
        let part = leaf.start.max(all.start)..leaf.end.min(all.end);
        Block::at(
            part.start,
            &block.bytes[(part.start - all.start) as usize..(part.end - all.start) as usize],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two streams write the same bytes at once; which of them the disk kept, only
    /// the disk knows.
    #[test] //= publishing#a-partial
    fn bytes_received_twice_are_read_back() {
        let good = vec![7; LEAF_BYTES as usize];
        let (mut disk, checks) = (good.clone(), crate::Write::default().checks);
        disk[5] = 8;
        let block = |bytes| Block { offset: 0, bytes };
        let (_, said) = Piece::of(block(&good)).leaf().expect("it is one leaf");

        for (kept, is_refused) in [(&good, false), (&disk, true)] {
            let mut landed = LandedRanges::new(checks, Some(LEAF_BYTES));
            landed.begin(0..LEAF_BYTES);
            landed.begin(0..10);
            landed.landed(0..LEAF_BYTES, BlockHashes::of(block(&good), checks));
            landed.landed(0..10, BlockHashes::of(block(&good[..10]), checks));
            assert!(!landed.said(0, said), "nothing can be told of it yet");
            let read = |at: u64, bytes: &mut [u8]| {
                bytes.copy_from_slice(&kept[at as usize..][..bytes.len()]);
                Ok(())
            };
            let settled = landed.settle(Path::new("f"), &Expected::default(), &read);
            match settled {
                Ok(finished) => {
                    assert!(!is_refused);
                    assert_eq!(finished.verified, Verified::By(Algorithm::Blake3));
                    assert_eq!(finished.reread_bytes, LEAF_BYTES);
                }
                Err(error) => assert!(is_refused && matches!(error, Error::Corrupt { .. })),
            }
            assert_eq!(
                landed.done().is_empty(),
                is_refused,
                "it is to be sent again"
            );
        }
    }
}
