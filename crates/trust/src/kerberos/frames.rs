//! The frames of blocks: each with its length in four bytes before it.

use crate::{Error, Result};
use std::ops::Range;

/// Received bytes, cut anywhere, and how many of them are used.
#[derive(Debug)]
pub(super) struct Frames {
    /// Longest block, in bytes.
    bytes_max: usize,
    came: Vec<u8>,
    used: usize,
}

impl Frames {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            came: Vec::new(),
            used: 0,
        }
    }

    /// Takes bytes that arrived. A caller that feeds more than it reads makes the buffer hold them.
    pub(super) fn take_in(&mut self, came: &[u8]) {
        if self.used == self.came.len() {
            self.came.clear();
            self.used = 0;
        } else if self.used > self.bytes_max {
            self.came.drain(..self.used);
            self.used = 0;
        }
        self.came.extend_from_slice(came);
    }

    /// Returns the next block, if it has arrived whole.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        let Some(block) = self.find()? else {
            return Ok(None);
        };
        self.used = block.end;
        Ok(Some(&self.came[block]))
    }

    /// Tells whether `next` would find one, or an error.
    pub(super) fn has_more(&self) -> bool {
        matches!(self.find(), Ok(Some(_)) | Err(_))
    }

    /// Gives memory back, if nothing is left in it.
    pub(super) fn rest(&mut self) {
        if self.used == self.came.len() {
            (self.came, self.used) = (Vec::new(), 0);
        }
    }

    fn find(&self) -> Result<Option<Range<usize>>> {
        let Some((length, rest)) = self.came[self.used..].split_first_chunk::<LENGTH_BYTES>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.bytes_max {
            let most = self.bytes_max;
            let said = format!("a block of {length} bytes, where {most} are agreed on");
            return Err(Error::Token(said));
        }
        let start = self.used + LENGTH_BYTES;
        Ok((rest.len() >= length).then_some(start..start + length))
    }
}

const LENGTH_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_come_out_however_they_were_cut(
            blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12),
            cut in 1usize..50,
        ) {
            let framed = |block: &Vec<u8>| [&(block.len() as u32).to_be_bytes()[..], block].concat();
            let all: Vec<u8> = blocks.iter().flat_map(framed).collect();
            let (mut frames, mut found) = (Frames::new(40), Vec::new());
            for piece in all.chunks(cut) {
                frames.take_in(piece);
                while let Some(block) = frames.next().unwrap() {
                    found.push(block.to_vec());
                }
            }
            prop_assert_eq!(found, blocks);
            frames.rest();
            prop_assert!(!frames.has_more() && frames.came.is_empty());
        }
    }

    #[test]
    fn too_long_block_is_refused_early() {
        let mut frames = Frames::new(1000);
        frames.take_in(&1001u32.to_be_bytes());
        assert!(frames.has_more());
        let error = frames.next().unwrap_err();
        assert!(error.to_string().contains("1000 are agreed on"), "{error}");
        let mut frames = Frames::new(1000);
        frames.take_in(&1000u32.to_be_bytes());
        assert_eq!(frames.next().unwrap(), None);
    }
}
