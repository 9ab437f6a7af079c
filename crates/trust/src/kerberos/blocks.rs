//! Data connections in blocks that the control channel's context wraps. Each block has its length
//! in four bytes before it; an empty block is the end (RFC 2228, 3).

use super::{SharedContext, frames::Frames, held, refusal, seen::number_of};
use crate::{Error, Result, Unsealed};
use godwit_sys::{Unwrapped, Wrapping};
use std::fmt;

/// Wrapper of data connections: the context of their control connection.
#[derive(Clone)]
pub struct Blockwise(SharedContext);

impl Blockwise {
    pub(super) fn new(context: SharedContext) -> Self {
        Self(context)
    }

    /// Begins with a connection, in blocks of at most so many bytes.
    pub fn begin(&self, how: Wrapping, bytes_max: u32) -> Result<Blocks> {
        Blocks::new(self.0.clone(), how, bytes_max)
    }
}

impl fmt::Debug for Blockwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blockwise")
    }
}

/// Wraps and unwraps the bytes of one data connection.
pub struct Blocks {
    context: SharedContext,
    how: Wrapping,
    /// How many plain bytes we put into one.
    room: usize,
    came: Frames,
    clear: Vec<u8>,
    /// How much of `clear` has been handed over.
    taken: usize,
    is_over: bool,
    /// Number of the last block: on one connection numbers rise.
    last: Option<u64>,
}

impl Blocks {
    fn new(context: SharedContext, how: Wrapping, bytes_max: u32) -> Result<Self> {
        let room = held(&context)
            .context
            .room(bytes_max, how)
            .map_err(refusal)?;
        if room == 0 {
            return Err(Error::Token(format!(
                "blocks of {bytes_max} bytes have no room for data"
            )));
        }
        Ok(Self {
            context,
            how,
            room: room as usize,
            came: Frames::new(bytes_max as usize + OVERDRAFT),
            clear: Vec::new(),
            taken: 0,
            is_over: false,
            last: None,
        })
    }

    /// Protects bytes, and appends the sealed bytes to `sealed`.
    pub fn seal(&mut self, clear: &[u8], sealed: &mut Vec<u8>) -> Result<()> {
        clear
            .chunks(self.room)
            .try_for_each(|some| self.add(some, sealed))
    }

    /// Says, under protection, that nothing more will be said.
    pub fn end(&mut self, sealed: &mut Vec<u8>) -> Result<()> {
        self.add(&[], sealed)
    }

    fn add(&mut self, some: &[u8], sealed: &mut Vec<u8>) -> Result<()> {
        let block = held(&self.context)
            .context
            .wrap(some, self.how)
            .map_err(refusal)?;
        let length = u32::try_from(block.len())
            .map_err(|_| Error::Token("a block too long to be sent".into()))?;
        sealed.extend(length.to_be_bytes());
        sealed.extend(block);
        Ok(())
    }

    /// Takes bytes that arrived, cut anywhere. A caller that feeds more than it reads makes the
    /// buffer hold them.
    pub fn take_in(&mut self, came: &[u8]) {
        self.came.take_in(came);
    }

    /// Looks for plain bytes in the bytes that arrived.
    pub fn open(&mut self, into: &mut [u8]) -> Result<Unsealed> {
        while self.taken == self.clear.len() {
            if self.is_over {
                return Ok(Unsealed::End);
            }
            if !self.unwrap_next()? {
                return Ok(Unsealed::Nothing);
            }
        }
        let left = &self.clear[self.taken..];
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        Ok(Unsealed::Bytes(count))
    }

    /// Tells whether `open` would find something without anything more coming.
    pub fn has_more(&self) -> bool {
        self.taken < self.clear.len() || self.is_over || self.came.has_more()
    }

    /// Gives back the memory that only a transfer needs.
    pub fn rest(&mut self) {
        self.came.rest();
        if self.taken == self.clear.len() {
            (self.clear, self.taken) = (Vec::new(), 0);
        }
    }

    /// Unwraps the next block; returns false if it has not arrived whole.
    fn unwrap_next(&mut self) -> Result<bool> {
        let Some(block) = self.came.next()? else {
            return Ok(false);
        };
        let number = number_of(block);
        let Unwrapped { clear, how, .. } = held(&self.context).unwrap(block)?;
        if number.is_some() && number <= self.last {
            return Err(Error::Token("a block out of its turn".into()));
        }
        self.last = number;
        if self.how == Wrapping::Private && how != Wrapping::Private {
            let said = "a block that everybody could read, where all are to be private";
            return Err(Error::Token(said.into()));
        }
        self.is_over = clear.is_empty();
        (self.clear, self.taken) = (clear, 0);
        Ok(true)
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks")
            .field("how", &self.how)
            .finish_non_exhaustive()
    }
}

/// curl counts plain bytes where PBSZ is about wrapped ones.
const OVERDRAFT: usize = 1024;
