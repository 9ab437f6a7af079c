//! The wrapper of a reader that counts and hashes what a site sends.

use godwit_core::{Algorithm, Block, Chain, Digest, Extents, Hashing, Leaves, Piece};
use godwit_store::{Fast, Result, Take, TakeExt, Width, has};
use parking_lot::Mutex;
use std::sync::Arc;

/// Passes bytes on and hashes them.
pub(crate) struct Checking<'a> {
    into: &'a dyn Take,
    state: Mutex<State>,
}

struct State {
    came: Extents,
    hashing: Hashed,
    is_refused: bool,
}

/// A digest under construction.
enum Hashed {
    /// BLAKE3, in any order.
    Tree(Box<Leaves>),
    /// Another algorithm, and the offset of the next byte.
    InOrder(Box<Hashing>, u64),
    Nothing,
}

impl<'a> Checking<'a> {
    /// Begins; `by`: the algorithm, if a digest is wanted.
    pub(crate) fn new(into: &'a dyn Take, by: Option<Algorithm>) -> Self {
        let hashing = match by {
            Some(Algorithm::Blake3) => Hashed::Tree(Box::default()),
            Some(by) => Hashed::InOrder(Box::new(Hashing::new(by)), 0),
            None => Hashed::Nothing,
        };
        let state = State {
            came: Extents::new(),
            hashing,
            is_refused: false,
        };
        Self {
            into,
            state: Mutex::new(state),
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

    /// Returns what the file of `size` bytes hashes to, if all of it came so that this is known.
    pub(crate) fn digest(self, size: u64) -> Option<Digest> {
        match self.state.into_inner().hashing {
            Hashed::Tree(leaves) => leaves.root(size),
            Hashed::InOrder(hashing, next) => (next == size).then(|| hashing.finish()),
            Hashed::Nothing => None,
        }
    }
}

impl Take for Checking<'_> {
    has!(self, Fast);

    fn put(&self, block: Block<'_>) -> Result<()> {
        let is_tree = matches!(self.state.lock().hashing, Hashed::Tree(_));
        let piece = is_tree.then(|| Piece::of(block));
        let put = self.into.put(block);
        let mut state = self.state.lock();
        if put.is_err() {
            state.is_refused = true;
            return put;
        }
        state.came.insert(block.range());
        match (&mut state.hashing, piece) {
            (Hashed::Tree(leaves), Some(piece)) => leaves.add(piece),
            (Hashed::InOrder(hashing, next), _) if *next == block.offset => {
                hashing.update(block.bytes);
                *next = block.range().end;
            }
            (hashing, _) => *hashing = Hashed::Nothing,
        }
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
pub(crate) struct Buffer(pub(crate) Mutex<Vec<u8>>);

impl Take for Buffer {
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
