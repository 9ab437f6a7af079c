//! Wraps a reader to count and hash the bytes from a site.

use godwit_core::{Algorithm, Block, Chain, Digest, Extents, Hashing, Leaves, Piece};
use godwit_store::{BlockWriter, BlockWriterExt, Fast, Result, Width, has};
use parking_lot::Mutex;
use std::sync::Arc;

/// Passes bytes on and hashes them.
pub(crate) struct Checking<'a> {
    into: &'a dyn BlockWriter,
    hashed: Mutex<Hashed>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    came: Extents,
    is_refused: bool,
}

/// A digest under construction.
pub(crate) enum Hashed {
    /// BLAKE3, in any order.
    Tree(Box<Leaves>),
    /// Another algorithm, and the offset of the next byte.
    InOrder(Box<Hashing>, u64),
    /// Bytes came so that the digest cannot be known, or none is wanted.
    Nothing,
}

impl Hashed {
    /// Begins; `by`: the algorithm, if a digest is wanted.
    pub(crate) fn by(by: Option<Algorithm>) -> Self {
        match by {
            Some(Algorithm::Blake3) => Self::Tree(Box::default()),
            Some(by) => Self::InOrder(Box::new(Hashing::new(by)), 0),
            None => Self::Nothing,
        }
    }

    /// Adds a block that came. The lock is not held while BLAKE3 hashes it.
    pub(crate) fn add(of: &Mutex<Self>, block: Block<'_>) {
        let is_tree = matches!(*of.lock(), Self::Tree(_));
        let piece = is_tree.then(|| Piece::of(block));
        let mut hashed = of.lock();
        match (&mut *hashed, piece) {
            (Self::Tree(leaves), Some(piece)) => leaves.add(piece),
            (Self::InOrder(hashing, next), _) if *next == block.offset => {
                hashing.update(block.bytes);
                *next = block.range().end;
            }
            (hashed, _) => *hashed = Self::Nothing,
        }
    }

    /// Returns the digest of the file of `size` bytes; `None`: not all bytes arrived in order.
    pub(crate) fn digest(self, size: u64) -> Option<Digest> {
        match self {
            Self::Tree(leaves) => leaves.root(size),
            Self::InOrder(hashing, next) => (next == size).then(|| hashing.finish()),
            Self::Nothing => None,
        }
    }
}

impl<'a> Checking<'a> {
    /// Begins; `by`: the algorithm, if a digest is wanted.
    pub(crate) fn new(into: &'a dyn BlockWriter, by: Option<Algorithm>) -> Self {
        Self {
            into,
            hashed: Mutex::new(Hashed::by(by)),
            state: Mutex::default(),
        }
    }

    /// Begins with the byte at an offset; the bytes must come in order.
    pub(crate) fn from(into: &'a dyn BlockWriter, by: Algorithm, offset: u64) -> Self {
        let hashing = Box::new(Hashing::new(by));
        Self {
            hashed: Mutex::new(Hashed::InOrder(hashing, offset)),
            ..Self::new(into, None)
        }
    }

    /// Returns which bytes the reader has taken.
    pub(crate) fn came(&self) -> Extents {
        self.state.lock().came.clone()
    }

    /// Tells whether the reader refused bytes: then no other site helps.
    pub(crate) fn is_refused(&self) -> bool {
        self.state.lock().is_refused
    }

    /// Returns the digest of the file of `size` bytes; `None`: not all bytes arrived in order.
    pub(crate) fn digest(&self, size: u64) -> Option<Digest> {
        std::mem::replace(&mut *self.hashed.lock(), Hashed::Nothing).digest(size)
    }
}

impl BlockWriter for Checking<'_> {
    has!(self, Fast);

    fn put(&self, block: Block<'_>) -> Result<()> {
        let put = self.into.put(block);
        if put.is_err() {
            self.state.lock().is_refused = true;
            return put;
        }
        self.state.lock().came.insert(block.range());
        Hashed::add(&self.hashed, block);
        Ok(())
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        let said = self.into.said(leaf, chain);
        self.state.lock().is_refused |= said.is_err();
        said
    }
}

impl Fast for Checking<'_> {
    fn width(&self) -> Option<&Arc<Width>> {
        self.into.width()
    }
}

/// Keeps a small file until its digest is known.
#[derive(Default)]
pub(crate) struct BytesBuffer(pub(crate) Mutex<Vec<u8>>);

impl BlockWriter for BytesBuffer {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let (from, to) = (block.offset as usize, block.range().end as usize);
        let mut bytes = self.0.lock();
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        bytes[from..to].copy_from_slice(block.bytes);
        Ok(())
    }
}
