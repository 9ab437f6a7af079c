//! Bytes and where they belong.

use std::ops::Range;

/// Some bytes of a file and their offset in it. Blocks may arrive in any order.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// The bytes themselves.
    pub bytes: &'a [u8],
}

impl<'a> Block<'a> {
    /// Returns bytes that begin at `offset`.
    pub const fn at(offset: u64, bytes: &'a [u8]) -> Self {
        Self { offset, bytes }
    }

    /// Returns the range of the file that the block covers.
    ///
    /// The maker of a block has checked that its end does not overflow.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes.len() as u64
    }
}
