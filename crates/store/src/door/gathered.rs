//! Gathers bytes that arrive from a network in pieces of any length, since disks and hashes need longer ones.

use crate::{BlockWriter, Result};
use godwit_core::Block;

/// Bytes that follow each other, until they are worth being put somewhere.
pub struct Gathered<'a> {
    into: &'a dyn BlockWriter,
    offset: u64,
    bytes: Vec<u8>,
    /// How many there were in all.
    taken: u64,
}

impl<'a> Gathered<'a> {
    /// Begins with nothing.
    pub fn new(into: &'a dyn BlockWriter) -> Self {
        Self {
            into,
            offset: 0,
            bytes: Vec::new(),
            taken: 0,
        }
    }

    /// Takes some more, from anywhere in the file.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.taken += bytes.len() as u64;
        let end = self.offset + self.bytes.len() as u64;
        if offset != end || self.bytes.len() + bytes.len() > GATHER_BYTES {
            self.put()?;
            self.offset = offset;
        }
        // A copy would bring nothing.
        if self.bytes.is_empty() && bytes.len() >= GATHER_BYTES / 2 {
            let block = Block { offset, bytes };
            self.offset = block.range().end;
            return self.into.put(block);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Puts the gathered bytes; returns how many bytes there were in all.
    pub fn end(mut self) -> Result<u64> {
        self.put()?;
        Ok(self.taken)
    }

    /// Puts the gathered bytes, so that readers of the target see them.
    pub fn put(&mut self) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let block = Block::at(self.offset, &self.bytes);
        let end = block.range().end;
        self.into.put(block)?;
        self.offset = end;
        self.bytes.clear();
        Ok(())
    }
}

const GATHER_BYTES: usize = 256 << 10;
