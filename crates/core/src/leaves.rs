//! The BLAKE3 tree of a file whose bytes come in any order.
//!
//! The expensive part is [`Piece::of`]: it hashes a block and needs no lock.
//! [`Leaves::add`] only joins what pieces bring. Nothing is read here: what was
//! forgotten for want of memory, [`Leaves::unknown`] tells to be read again.

use crate::{
    BadDigest, Block, Digest, Extents,
    hex::{hex, unhex},
};
use blake3::{
    Hasher,
    hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    str::FromStr,
};

/// A leaf of ours is 1 MiB of a file: 1024 chunks of BLAKE3, an aligned subtree.
pub const LEAF_BYTES: u64 = 1 << 20;

/// The (non-root) chaining value of one leaf. Written as 64 digits of hex.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Chain(pub [u8; 32]);

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl FromStr for Chain {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        unhex(text)
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or(BadDigest("not a chaining value of 64 hexadecimal digits"))
    }
}

/// Contribution of one block to the tree. Making it is the expensive part and needs no lock.
#[derive(Clone, Debug)]
pub struct Piece(PieceBody);

#[derive(Clone, Debug)]
enum PieceBody {
    /// The block is exactly one leaf: no allocation.
    Leaf { index: u64, node: Subtree },
    /// Anything else: ragged ends, aligned subtrees between.
    Cut {
        head: ChunkBytes,
        nodes: Vec<(u64, Subtree)>,
        tail: ChunkBytes,
    },
}

impl Piece {
    /// Hashes a block.
    pub fn of(block: Block<'_>) -> Self {
        let Block { offset, bytes } = block;
        if offset.is_multiple_of(LEAF_BYTES) && bytes.len() as u64 == LEAF_BYTES {
            return Self(PieceBody::Leaf {
                index: offset / LEAF_BYTES,
                node: Subtree::of(offset, bytes),
            });
        }
        let to_edge = (CHUNK_BYTES - offset % CHUNK_BYTES) % CHUNK_BYTES;
        let head_len = to_edge.min(bytes.len() as u64);
        let (head, mut rest) = bytes.split_at(head_len as usize);
        let head = ChunkBytes {
            offset,
            bytes: head.to_vec(),
        };
        let mut at = offset + head_len;
        let mut nodes = Vec::new();
        while rest.len() as u64 >= CHUNK_BYTES {
            let chunks = rest.len() as u64 / CHUNK_BYTES;
            let level = chunks
                .ilog2()
                .min((at / CHUNK_BYTES).trailing_zeros())
                .min(LEAF_LEVEL);
            let (subtree, after) = rest.split_at((CHUNK_BYTES << level) as usize);
            nodes.push((at, Subtree::of(at, subtree)));
            at += subtree.len() as u64;
            rest = after;
        }
        let tail = ChunkBytes {
            offset: at,
            bytes: rest.to_vec(),
        };
        Self(PieceBody::Cut { head, nodes, tail })
    }

    /// Returns the leaf that the block was, if it was exactly one.
    pub fn leaf(&self) -> Option<(u64, Chain)> {
        match &self.0 {
            PieceBody::Leaf { index, node } => Some((*index, Chain(node.chain))),
            PieceBody::Cut { .. } => None,
        }
    }
}

/// The tree as far as it is known.
///
/// **Bytes that arrive again** replace the earlier ones. A piece that covers a whole leaf replaces
/// its value. A value cannot be taken apart: a piece that covers a part of a joined subtree
/// discards the rest of it. So the tree never returns a digest of bytes that may have been
/// overwritten.
///
/// **Memory**: 33 bytes and a map slot for each whole leaf. At most 256 leaves grow at once, each
/// with at most 64 chunks of 1 KiB in parts. A growing leaf also has at most 1023 chaining values.
/// A leaf beyond that is discarded.
#[derive(Clone, Debug, Default)]
pub struct Leaves {
    whole: BTreeMap<u64, KnownLeaf>,
    growing: BTreeMap<u64, Growing>,
    /// BLAKE3 of leaf 0 as if it were the file.
    first_root: Option<blake3::Hash>,
    /// Whole leaves that `newly_complete` has not reported yet.
    fresh: BTreeSet<u64>,
    last_told: Option<(u64, Chain)>,
}

impl Leaves {
    /// Returns a tree that knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the contribution of a block.
    pub fn add(&mut self, piece: Piece) {
        match piece.0 {
            PieceBody::Leaf { index, node } => self.add_node(index * LEAF_BYTES, node),
            PieceBody::Cut { head, nodes, tail } => {
                self.add_raw(head);
                for (offset, node) in nodes {
                    self.add_node(offset, node);
                }
                self.add_raw(tail);
            }
        }
    }

    /// Returns the value of leaf `index` of a file of `size` bytes, once all its bytes arrived.
    pub fn chain(&self, index: u64, size: u64) -> Option<Chain> {
        let len = leaf_len(index, size);
        match self.whole.get(&index) {
            Some(whole) => (len > 0 && !(whole.is_full && len < LEAF_BYTES)).then_some(whole.chain),
            None => self.growing.get(&index)?.chain(index, len).map(Chain),
        }
    }

    /// Returns every leaf of a file of `size` bytes whose value is known, for a record.
    pub fn known(&self, size: u64) -> impl Iterator<Item = (u64, Chain)> + '_ {
        let last = last_leaf(size).filter(|last| !self.whole.contains_key(last));
        self.whole
            .keys()
            .copied()
            .chain(last)
            .filter_map(move |index| Some((index, self.chain(index, size)?)))
    }

    /// Takes the leaves that became complete by [`Leaves::add`] since last asked,
    /// at most `count_max`, ascending. While the size is not known, `u64::MAX` is
    /// a size that tells full leaves only.
    pub fn newly_complete(&mut self, size: u64, count_max: usize) -> Vec<(u64, Chain)> {
        let mut told = Vec::new();
        while told.len() < count_max
            && let Some(index) = self.fresh.pop_first()
        {
            told.extend(self.chain(index, size).map(|chain| (index, chain)));
        }
        if told.len() < count_max
            && let Some(last) = last_leaf(size).filter(|&last| leaf_len(last, size) < LEAF_BYTES)
            && let Some(chain) = self.chain(last, size)
            && self.last_told != Some((last, chain))
        {
            self.last_told = Some((last, chain));
            told.push((last, chain));
        }
        told
    }

    /// Takes the value of a leaf from a record. It may be the last leaf of the
    /// file and shorter than the others.
    pub fn set(&mut self, index: u64, chain: Chain) {
        self.forget(index);
        let is_full = false;
        self.whole.insert(index, KnownLeaf { chain, is_full });
    }

    /// Takes the value of a leaf of which it is known that it has all of its 1 MiB.
    pub fn set_full(&mut self, index: u64, chain: Chain) {
        self.forget(index);
        let is_full = true;
        self.whole.insert(index, KnownLeaf { chain, is_full });
    }

    /// Adds the value of a leaf that another process has hashed; [`Leaves::newly_complete`] reports
    /// it.
    pub fn learn(&mut self, index: u64, chain: Chain) {
        self.set(index, chain);
        self.fresh.insert(index);
    }

    /// Forgets a leaf and its pieces.
    pub fn forget(&mut self, index: u64) {
        self.whole.remove(&index);
        self.growing.remove(&index);
        self.fresh.remove(&index);
        if index == 0 {
            self.first_root = None;
        }
    }

    /// Notes that the file grew from `before` bytes. The recorded value of its last leaf is of
    /// fewer bytes than the leaf has now.
    pub fn grown(&mut self, before: u64) {
        let last = before / LEAF_BYTES;
        let is_short = !before.is_multiple_of(LEAF_BYTES);
        if is_short && self.whole.get(&last).is_some_and(|whole| !whole.is_full) {
            self.forget(last);
        }
    }

    /// Forgets this leaf and all behind it.
    pub fn forget_from(&mut self, index: u64) {
        self.whole.split_off(&index);
        self.growing.split_off(&index);
        self.fresh.split_off(&index);
        if index == 0 {
            self.first_root = None;
        }
    }

    /// Returns the ranges of a file of `size` bytes that must be read (again) before the root is
    /// known.
    pub fn unknown(&self, size: u64) -> Extents {
        let mut unknown = Extents::from(0..size);
        if size <= LEAF_BYTES && self.root(size).is_none() && self.whole.contains_key(&0) {
            return unknown; // a value from a record is not a root
        }
        for (&index, whole) in &self.whole {
            if !(whole.is_full && leaf_len(index, size) < LEAF_BYTES) {
                unknown.remove(leaf_range(index));
            }
        }
        for (&index, growing) in &self.growing {
            let start = index * LEAF_BYTES;
            for range in growing.known(leaf_len(index, size)) {
                unknown.remove(start + range.start..start + range.end);
            }
        }
        unknown
    }

    /// Returns BLAKE3 of the whole file, as `b3sum` prints it.
    pub fn root(&self, size: u64) -> Option<Digest> {
        if size == 0 {
            return Some(blake3::hash(b"").into());
        }
        if size <= LEAF_BYTES {
            let root = match self.growing.get(&0) {
                Some(growing) => growing.root(size),
                None => self.first_root.filter(|_| size == LEAF_BYTES),
            };
            return root.map(Digest::from);
        }
        let mut chains = (0..size.div_ceil(LEAF_BYTES))
            .map(|index| self.chain(index, size).map(|chain| chain.0))
            .collect::<Option<Vec<_>>>()?;
        // Joining neighbours and carrying an odd one gives BLAKE3's tree: left
        // subtrees are whole powers of two.
        while chains.len() > 2 {
            let above = chains.chunks(2).map(|pair| match pair {
                [left, right] => merge_subtrees_non_root(left, right, Mode::Hash),
                lone => lone[0],
            });
            chains = above.collect();
        }
        Some(merge_subtrees_root(&chains[0], &chains[1], Mode::Hash).into())
    }

    fn add_node(&mut self, offset: u64, node: Subtree) {
        let index = offset / LEAF_BYTES;
        let first_chunk = (offset % LEAF_BYTES / CHUNK_BYTES) as u16; // below 1024
        if node.level == LEAF_LEVEL {
            self.forget(index);
            self.complete(index, node);
            return;
        }
        let growing = self.grow(index);
        growing.add_node(first_chunk, node);
        self.settle(index);
    }

    fn add_raw(&mut self, raw: ChunkBytes) {
        if raw.bytes.is_empty() {
            return;
        }
        let index = raw.offset / LEAF_BYTES;
        let chunk = (raw.offset % LEAF_BYTES / CHUNK_BYTES) as u16; // below 1024
        self.grow(index).add_raw(index, chunk, raw);
        self.settle(index);
    }

    fn grow(&mut self, index: u64) -> &mut Growing {
        if self.whole.contains_key(&index) {
            self.forget(index);
        }
        if self.growing.len() >= GROWING_MAX && !self.growing.contains_key(&index) {
            self.growing.pop_first();
        }
        self.growing.entry(index).or_default()
    }

    /// Looks whether a leaf that grew is whole now, or too much.
    fn settle(&mut self, index: u64) {
        let Some(growing) = self.growing.get(&index) else {
            return;
        };
        if let Some(&node) = growing.nodes.get(&0)
            && node.level == LEAF_LEVEL
        {
            self.growing.remove(&index);
            self.complete(index, node);
        } else if growing.raws.len() > RAWS_MAX {
            self.growing.remove(&index);
        }
    }

    fn complete(&mut self, index: u64, node: Subtree) {
        let (chain, is_full) = (Chain(node.chain), true);
        self.whole.insert(index, KnownLeaf { chain, is_full });
        self.fresh.insert(index);
        if index == 0 {
            self.first_root = node.root;
        }
    }
}

/// A leaf whose value is known.
#[derive(Clone, Copy, Debug)]
struct KnownLeaf {
    chain: Chain,
    /// We saw all its bytes, and they are 1 MiB; from a record it may be a short last one.
    is_full: bool,
}

/// An aligned subtree of `2^level` chunks.
#[derive(Clone, Copy, Debug)]
struct Subtree {
    level: u32,
    chain: [u8; 32],
    /// Only of subtrees that begin the file: BLAKE3 of them as if they were all.
    root: Option<blake3::Hash>,
}

impl Subtree {
    fn of(offset: u64, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.set_input_offset(offset).update(bytes);
        Self {
            level: (bytes.len() as u64 / CHUNK_BYTES).ilog2(),
            chain: hasher.finalize_non_root(),
            root: (offset == 0).then(|| hasher.finalize()),
        }
    }

    fn join(&self, right: &Self) -> Self {
        Self {
            level: self.level + 1,
            chain: merge_subtrees_non_root(&self.chain, &right.chain, Mode::Hash),
            root: self
                .root
                .map(|_| merge_subtrees_root(&self.chain, &right.chain, Mode::Hash)),
        }
    }

    fn chunks(&self, first: u16) -> Range<u16> {
        first..first + (1 << self.level)
    }
}

/// Bytes within one chunk, short of it.
#[derive(Clone, Debug)]
struct ChunkBytes {
    offset: u64,
    bytes: Vec<u8>,
}

/// A leaf of which some is known. Nothing in it overlaps.
#[derive(Clone, Debug, Default)]
struct Growing {
    nodes: BTreeMap<u16, Subtree>,   // by first chunk, always joined
    raws: BTreeMap<u16, ChunkParts>, // by chunk
}

/// A chunk of which some bytes are known.
#[derive(Clone, Debug)]
struct ChunkParts {
    bytes: Vec<u8>, // of a whole chunk
    known: Extents,
}

impl Growing {
    fn add_node(&mut self, mut first: u16, mut node: Subtree) {
        let chunks = node.chunks(first);
        while let Some((&old, _)) = self
            .nodes
            .range(..chunks.end)
            .next_back()
            .filter(|(old, node)| node.chunks(**old).end > chunks.start)
        {
            self.nodes.remove(&old);
        }
        self.raws.retain(|chunk, _| !chunks.contains(chunk));
        while node.level < LEAF_LEVEL
            && let sibling = first ^ (1 << node.level)
            && let Some(other) = self.nodes.get(&sibling)
            && other.level == node.level
        {
            node = if sibling < first {
                other.join(&node)
            } else {
                node.join(other)
            };
            self.nodes.remove(&sibling);
            first = first.min(sibling);
        }
        self.nodes.insert(first, node);
    }

    fn add_raw(&mut self, index: u64, chunk: u16, raw: ChunkBytes) {
        if let Some(first) = self.node_over(chunk) {
            self.nodes.remove(&first);
        }
        let parts = self.raws.entry(chunk).or_insert_with(|| ChunkParts {
            bytes: vec![0; CHUNK_BYTES as usize],
            known: Extents::new(),
        });
        let start = raw.offset % CHUNK_BYTES;
        let end = start + raw.bytes.len() as u64;
        parts.bytes[start as usize..end as usize].copy_from_slice(&raw.bytes);
        parts.known.insert(start..end);
        if parts.known.contains(&(0..CHUNK_BYTES)) {
            let node = Subtree::of(chunk_offset(index, chunk), &parts.bytes);
            self.add_node(chunk, node);
        }
    }

    fn node_over(&self, chunk: u16) -> Option<u16> {
        let (&first, node) = self.nodes.range(..=chunk).next_back()?;
        node.chunks(first).contains(&chunk).then_some(first)
    }

    /// Returns the known ranges, counted from the leaf's start, as far as they
    /// are of use for a leaf of `len` bytes.
    fn known(&self, len: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let bytes = |chunk: u16| u64::from(chunk) * CHUNK_BYTES;
        let nodes = self
            .nodes
            .iter()
            .map(move |(&first, node)| bytes(first)..bytes(node.chunks(first).end))
            .filter(move |range| range.end <= len);
        let raws = self.raws.iter().flat_map(move |(&chunk, parts)| {
            let start = bytes(chunk);
            parts
                .known
                .iter()
                .map(move |r| start + r.start..start + r.end)
        });
        nodes.chain(raws)
    }

    fn chain(&self, index: u64, len: u64) -> Option<[u8; 32]> {
        (len > 0)
            .then(|| self.subtree(index, 0..len.div_ceil(CHUNK_BYTES) as u16, len))
            .flatten()
    }

    /// Returns BLAKE3 of the file, if this is its only leaf, of `len` bytes.
    fn root(&self, len: u64) -> Option<blake3::Hash> {
        let chunks = len.div_ceil(CHUNK_BYTES) as u16;
        if len < CHUNK_BYTES {
            return Some(blake3::hash(self.raws.get(&0)?.start(len)?));
        }
        match self.nodes.get(&0) {
            Some(node) if CHUNK_BYTES << node.level == len => node.root,
            _ => {
                let half = left_of(chunks);
                let left = self.subtree(0, 0..half, len)?;
                let right = self.subtree(0, half..chunks, len)?;
                Some(merge_subtrees_root(&left, &right, Mode::Hash))
            }
        }
    }

    /// Returns the value of some chunks of this leaf, cut off at `len` bytes.
    fn subtree(&self, index: u64, chunks: Range<u16>, len: u64) -> Option<[u8; 32]> {
        if let Some(node) = self.nodes.get(&chunks.start)
            && node.chunks(chunks.start) == chunks
            && u64::from(chunks.end) * CHUNK_BYTES <= len
        {
            return Some(node.chain);
        }
        let count = chunks.end - chunks.start;
        if count == 1 {
            let last_len = len - u64::from(chunks.start) * CHUNK_BYTES;
            let bytes = self.raws.get(&chunks.start)?.start(last_len)?;
            let mut hasher = Hasher::new();
            hasher.set_input_offset(chunk_offset(index, chunks.start));
            return Some(hasher.update(bytes).finalize_non_root());
        }
        let half = chunks.start + left_of(count);
        let left = self.subtree(index, chunks.start..half, len)?;
        let right = self.subtree(index, half..chunks.end, len)?;
        Some(merge_subtrees_non_root(&left, &right, Mode::Hash))
    }
}

impl ChunkParts {
    /// Returns the first `len` bytes, if all are known.
    fn start(&self, len: u64) -> Option<&[u8]> {
        let all = 0..len.min(CHUNK_BYTES);
        self.known
            .contains(&all)
            .then(|| &self.bytes[..all.end as usize])
    }
}

const CHUNK_BYTES: u64 = 1024; // of BLAKE3, §2.1
const LEAF_LEVEL: u32 = 10;
const GROWING_MAX: usize = 256;
const RAWS_MAX: usize = 64;

/// The left subtree of `count` chunks (two or more) is the largest power of two
/// that leaves something for the right (BLAKE3 §2.1).
fn left_of(count: u16) -> u16 {
    count.div_ceil(2).next_power_of_two()
}

/// Returns the bytes of a leaf.
pub fn leaf_range(index: u64) -> Range<u64> {
    let start = index.saturating_mul(LEAF_BYTES);
    start..start.saturating_add(LEAF_BYTES)
}

/// How long leaf `index` is in a file of `size` bytes; 0 behind the end.
fn leaf_len(index: u64, size: u64) -> u64 {
    size.saturating_sub(index.saturating_mul(LEAF_BYTES))
        .min(LEAF_BYTES)
}

fn last_leaf(size: u64) -> Option<u64> {
    size.checked_sub(1).map(|last| last / LEAF_BYTES)
}

fn chunk_offset(index: u64, chunk: u16) -> u64 {
    index * LEAF_BYTES + u64::from(chunk) * CHUNK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;
    use proptest::prelude::*;
    use proptest::sample::Index;

    /// Bytes that differ everywhere, so that a piece in the wrong place shows.
    fn bytes(len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        Hasher::new()
            .update(b"leaves")
            .finalize_xof()
            .fill(&mut bytes);
        bytes
    }

    fn piece(bytes: &[u8], range: Range<u64>) -> Piece {
        Piece::of(Block::at(
            range.start,
            &bytes[range.start as usize..range.end as usize],
        ))
    }

    fn truth(bytes: &[u8]) -> Option<Digest> {
        Some(Digest::of(Algorithm::Blake3, bytes))
    }

    /// The value of a leaf, computed in one go.
    fn chain_of(bytes: &[u8], index: u64) -> Chain {
        let range = leaf_range(index);
        let end = (range.end as usize).min(bytes.len());
        let mut hasher = Hasher::new();
        hasher.set_input_offset(range.start);
        Chain(
            hasher
                .update(&bytes[range.start as usize..end])
                .finalize_non_root(),
        )
    }

    fn cut(size: u64, cuts: &[Index], order: &[Index]) -> Vec<Range<u64>> {
        let mut edges: Vec<u64> = cuts
            .iter()
            .map(|c| c.index(size as usize + 1) as u64)
            .collect();
        edges.extend([0, size]);
        edges.sort_unstable();
        let mut ranges: Vec<_> = edges.windows(2).map(|w| w[0]..w[1]).collect();
        for (i, to) in order.iter().enumerate() {
            let (a, b) = (i % ranges.len(), to.index(ranges.len()));
            ranges.swap(a, b);
        }
        ranges
    }

    /// Adds blocks that cover a file, some twice. Then it reads the unknown ranges again, as a
    /// caller would, and checks every digest.
    fn check(size: u64, ranges: &[Range<u64>], again: &[Range<u64>]) {
        let bytes = bytes(size);
        let mut leaves = Leaves::new();
        let mut come = Extents::new();
        for (i, range) in ranges.iter().enumerate() {
            leaves.add(piece(&bytes, range.clone()));
            come.insert(range.clone());
            if again.is_empty() && i < 8 {
                assert_eq!(
                    leaves.unknown(size),
                    come.missing(0..size),
                    "after {range:?}"
                );
            }
            if !leaves.unknown(size).is_empty() {
                assert_eq!(leaves.root(size), None);
            }
        }
        for range in again {
            leaves.add(piece(&bytes, range.clone()));
        }
        let unknown = leaves.unknown(size);
        assert!(!again.is_empty() || unknown.is_empty(), "{unknown}");
        for range in unknown.iter() {
            assert_eq!(leaves.root(size), None);
            leaves.add(piece(&bytes, range));
        }
        assert!(leaves.unknown(size).is_empty());
        assert_eq!(leaves.root(size), truth(&bytes), "size {size}");
        let count = size.div_ceil(LEAF_BYTES);
        let all: Vec<_> = (0..count).map(|i| (i, chain_of(&bytes, i))).collect();
        assert_eq!(leaves.known(size).collect::<Vec<_>>(), all);
        assert_eq!(leaves.newly_complete(size, 99), all);
        assert!(leaves.newly_complete(size, 99).is_empty());
        assert_eq!(leaves.chain(count, size), None);
        if size > LEAF_BYTES {
            let mut recorded = Leaves::new();
            all.iter().for_each(|&(i, chain)| recorded.set(i, chain));
            assert_eq!(recorded.root(size), truth(&bytes));
        }
    }

    #[test]
    fn short_leaf_value_differs_from_longer_leaf() {
        let (offset, bytes) = (0, [1; 100].as_slice());
        let mut short = Leaves::new();
        short.add(Piece::of(Block { offset, bytes }));
        let mut again = Leaves::new();
        again.set(0, short.chain(0, 100).unwrap());
        assert!(again.chain(0, 100).is_some());
        again.grown(100);
        assert_eq!(again.chain(0, 200), None);
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // one block is meant
    fn small_sizes_in_any_block_order() {
        for size in (0..5 * 1024 + 2).filter(|s| s % 97 == 0 || s % 1024 < 2 || s % 1024 > 1022) {
            check(size, &[0..size], &[]);
            for step in [1, 7, 512, 1000, 1024] {
                let mut blocks = Extents::from(0..size);
                let mut ranges: Vec<_> = std::iter::from_fn(|| blocks.take_aligned(step)).collect();
                if step > 7 || size < 2000 {
                    check(size, &ranges, &[]);
                    ranges.reverse();
                    check(size, &ranges, &[]);
                }
            }
        }
    }

    #[test]
    fn the_edges_of_a_leaf() {
        for size in [-1025i64, -1024, -1, 0, 1, 1023, 1024, 1025] {
            for leaves in [1, 2, 3] {
                let size = (leaves * LEAF_BYTES as i64 + size) as u64;
                let mut blocks = Extents::from(0..size);
                let mut by_leaf: Vec<_> =
                    std::iter::from_fn(|| blocks.take_aligned(LEAF_BYTES)).collect();
                check(size, &by_leaf, &[]);
                by_leaf.reverse();
                check(size, &by_leaf, &[]);
                check(size, &[5..size, 0..5], &[]);
                check(size, &[1024..size, 0..1024], &[]);
                let half = size / 2;
                check(size, &[half..size, 0..half], &[]);
            }
        }
    }

    #[test]
    fn bytes_that_come_again_replace_the_earlier() {
        let good = bytes(2 * LEAF_BYTES);
        let mut bad = good.clone();
        bad[LEAF_BYTES as usize + 3000] ^= 1;
        let size = good.len() as u64;
        // A whole leaf again; a part of a whole leaf; of a joined subtree; of a chunk.
        for (first, again) in [
            (LEAF_BYTES..size, LEAF_BYTES..size),
            (LEAF_BYTES..size, LEAF_BYTES + 2048..LEAF_BYTES + 4096),
            (LEAF_BYTES..size - 1, LEAF_BYTES + 2048..LEAF_BYTES + 4096),
            (LEAF_BYTES..size - 1, LEAF_BYTES + 2999..LEAF_BYTES + 3001),
            (
                LEAF_BYTES + 2999..LEAF_BYTES + 3001,
                LEAF_BYTES + 2999..LEAF_BYTES + 3001,
            ),
            (
                LEAF_BYTES + 2999..LEAF_BYTES + 3001,
                LEAF_BYTES + 2048..LEAF_BYTES + 4096,
            ),
        ] {
            let mut leaves = Leaves::new();
            leaves.add(piece(&good, 0..LEAF_BYTES));
            leaves.add(piece(&bad, first.clone()));
            leaves.add(piece(&good, again.clone()));
            for range in leaves.unknown(size).iter() {
                leaves.add(piece(&good, range));
            }
            assert_eq!(leaves.root(size), truth(&good), "{again:?} over {first:?}");
        }
    }

    #[test]
    fn leaf_in_many_parts_is_read_again() {
        let bytes = bytes(LEAF_BYTES);
        let mut leaves = Leaves::new();
        for chunk in 0..RAWS_MAX as u64 + 1 {
            leaves.add(piece(&bytes, chunk * 1024..chunk * 1024 + 1));
        }
        assert_eq!(leaves.unknown(LEAF_BYTES), Extents::from(0..LEAF_BYTES));
        leaves.add(piece(&bytes, 0..LEAF_BYTES));
        assert_eq!(leaves.root(LEAF_BYTES), truth(&bytes));
    }

    #[test]
    fn growing_leaves_are_bounded() {
        let mut leaves = Leaves::new();
        for index in 0..GROWING_MAX as u64 + 5 {
            leaves.add(Piece::of(Block::at(index * LEAF_BYTES, &[1])));
        }
        assert_eq!(leaves.growing.len(), GROWING_MAX);
        assert!(leaves.unknown(LEAF_BYTES).contains(&(0..1)));
    }

    #[test]
    fn learned_value_is_neither_root_nor_short() {
        let bytes = bytes(LEAF_BYTES);
        let mut leaves = Leaves::new();
        leaves.set(0, chain_of(&bytes[..5000], 0));
        assert_eq!(leaves.chain(0, 5000), Some(chain_of(&bytes[..5000], 0)));
        assert_eq!(leaves.root(5000), None);
        assert_eq!(leaves.unknown(5000), Extents::from(0..5000));
        leaves.add(piece(&bytes, 0..LEAF_BYTES));
        assert_eq!(leaves.chain(0, 5000), None);
        assert_eq!(
            (leaves.root(5000), leaves.unknown(5000)),
            (None, Extents::from(0..5000))
        );
        leaves.forget(0);
        assert_eq!(leaves.root(LEAF_BYTES), None);
        assert!(leaves.newly_complete(LEAF_BYTES, 9).is_empty());
    }

    #[test]
    fn complete_leaves_are_reported_once_within_limit() {
        let bytes = bytes(3 * LEAF_BYTES + 1);
        let size = bytes.len() as u64;
        let mut leaves = Leaves::new();
        leaves.add(piece(&bytes, LEAF_BYTES..size));
        let told = |leaves: &mut Leaves, size, max| -> Vec<u64> {
            leaves
                .newly_complete(size, max)
                .iter()
                .map(|(i, _)| *i)
                .collect()
        };
        assert_eq!(told(&mut leaves, u64::MAX, 1), [1]);
        assert_eq!(told(&mut leaves, u64::MAX, 9), [2]);
        assert_eq!(told(&mut leaves, size, 9), [3]);
        leaves.add(piece(&bytes, 0..LEAF_BYTES));
        leaves.add(piece(&bytes, LEAF_BYTES..2 * LEAF_BYTES)); // sent again: told again
        assert_eq!(told(&mut leaves, size, 9), [0, 1]);
        assert_eq!(leaves.newly_complete(size, 9), []);
    }

    #[test]
    fn a_chain_reads_back() {
        let chain = chain_of(&[7; 100], 0);
        assert_eq!(chain.to_string().parse(), Ok(chain));
        for bad in ["", "00", &"0".repeat(63), &"0".repeat(66), &"g".repeat(64)] {
            assert!(bad.parse::<Chain>().is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn any_order_gives_whole_digest(
            size in prop_oneof![0..5000u64, LEAF_BYTES - 3000..LEAF_BYTES + 3000, 0..4 * LEAF_BYTES],
            cuts in prop::collection::vec(any::<Index>(), 0..30),
            order in prop::collection::vec(any::<Index>(), 0..30),
        ) {
            check(size, &cut(size, &cuts, &order), &[]);
        }

        #[test]
        fn duplicates_never_make_it_lie(
            size in prop_oneof![1..5000u64, LEAF_BYTES - 3000..LEAF_BYTES + 3000, 1..3 * LEAF_BYTES],
            cuts in prop::collection::vec(any::<Index>(), 0..30),
            order in prop::collection::vec(any::<Index>(), 0..30),
            again in prop::collection::vec((any::<Index>(), prop_oneof![1..2000u64, 1..LEAF_BYTES]), 1..4),
        ) {
            let again: Vec<_> = again.iter().map(|(at, len)| {
                let start = at.index(size as usize) as u64;
                start..(start + len).min(size)
            }).collect();
            check(size, &cut(size, &cuts, &order), &again);
        }
    }
}
