//! The BLAKE3 tree of a file whose bytes come in any order.

use crate::{Block, Digest, Extents};

/// A leaf of ours is 1 MiB of a file: 1024 chunks of BLAKE3, an aligned subtree.
pub const LEAF_BYTES: u64 = 1 << 20;

/// The (non-root) chaining value of one leaf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chain(pub [u8; 32]);

/// What one block contributes to the tree. Making it is the expensive part and needs no lock.
#[derive(Debug)]
pub struct Piece;

impl Piece {
    /// Hashes a block.
    pub fn of(_block: Block<'_>) -> Self {
        todo!()
    }
}

/// The tree as far as it is known.
#[derive(Debug, Default)]
pub struct Leaves;

impl Leaves {
    /// Returns a tree that knows nothing.
    pub fn new() -> Self {
        todo!()
    }
    /// Adds what a block contributes. Bytes that come again replace the earlier ones
    /// (of a leaf already complete, only when the piece covers it wholly).
    pub fn add(&mut self, _piece: Piece) {
        todo!()
    }
    /// Returns the value of leaf `index` of a file of `size` bytes, once all its bytes came.
    pub fn chain(&self, _index: u64, _size: u64) -> Option<Chain> {
        todo!()
    }
    /// Takes the value of a leaf from a record.
    pub fn set(&mut self, _index: u64, _chain: Chain) {
        todo!()
    }
    /// Forgets a leaf and its pieces.
    pub fn forget(&mut self, _index: u64) {
        todo!()
    }
    /// Returns which bytes of a file of `size` bytes must be read (again) before the
    /// root can be told.
    pub fn unknown(&self, _size: u64) -> Extents {
        todo!()
    }
    /// Returns BLAKE3 of the whole file, as `b3sum` prints it.
    pub fn root(&self, _size: u64) -> Option<Digest> {
        todo!()
    }
}
