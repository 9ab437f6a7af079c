//! One data connection.

use super::safety::{LastWord, LinkShield, LinkSide, Safety, host_of};
use crate::{
    Error, LocalFile, Result,
    watch::{Patience, TICK},
};
use godwit_sys::{retry_often, send_ahead, send_file, wait_readable};
use godwit_wire::mode_e::HEADER_BYTES;
use std::{
    fs::File,
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, TcpStream},
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

/// A connected data socket, with the bytes read ahead and the bytes not yet written.
#[derive(Debug)]
pub(super) struct DataLink {
    stream: TcpStream,
    shield: LinkShield,
    ahead: Vec<u8>,
    start: usize,
    end: usize,
    /// No bytes follow those that were read ahead.
    has_ended: bool,
    queued: Vec<u8>,
}

impl DataLink {
    /// With `safety`, the peer proves its identity before the first byte in either direction.
    pub(super) fn new(
        stream: TcpStream,
        safety: Option<Safety>,
        side: LinkSide,
    ) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        retry_often(stream.as_fd());
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        Ok(Self {
            shield: LinkShield::new(safety, side, &stream)?,
            stream,
            ahead: Vec::new(),
            start: 0,
            end: 0,
            has_ended: false,
            queued: Vec::new(),
        })
    }

    /// Sets the size of the socket's buffers in both directions.
    pub(super) fn size_buffers(&self, bytes: u32) -> io::Result<()> {
        godwit_sys::size_buffers(self.stream.as_fd(), bytes)
    }

    /// Returns a second handle, to look at it while it is written to.
    pub(super) fn try_clone(&self) -> Option<TcpStream> {
        self.stream.try_clone().ok()
    }

    #[cfg(test)]
    pub(super) fn buffer_sizes(&self) -> (usize, usize) {
        godwit_sys::buffer_sizes(self.stream.as_fd()).unwrap()
    }

    /// Runs the proof, if one is due.
    pub(super) fn finish_handshake(&mut self, patience: &mut Patience<'_>) -> Result<()> {
        if let LinkShield::Due(due) = &mut self.shield {
            self.shield = due.prove(&self.stream, patience)?;
        }
        Ok(())
    }

    /// Returns the side of a proof that is due; `None`: none is.
    pub(super) fn due_side(&self) -> Option<LinkSide> {
        match &self.shield {
            LinkShield::Due(due) => Some(due.side),
            _ => None,
        }
    }

    /// Tells whether something is being proved without us.
    pub(super) fn is_proving_in_thread(&self) -> bool {
        matches!(&self.shield, LinkShield::Due(due) if due.runs_in_thread())
    }

    /// Returns the error that refuses the peer, if the proof has failed by now.
    pub(super) fn refusal(&mut self) -> Option<Error> {
        match &mut self.shield {
            LinkShield::Due(due) => due.refusal(),
            _ => None,
        }
    }

    pub(super) fn host(&self) -> String {
        host_of(&self.stream)
    }

    /// Returns the bytes that were read and not yet consumed.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead[self.start..self.end]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end);
    }

    /// Reads until at least `need` bytes are ahead. Reads no further than `need + HEADER_BYTES`, or a small buffer if
    /// that is more. The next header is then read with the payload, and hardly any payload is moved within memory.
    ///
    /// Returns false if the connection ended first.
    pub(super) fn fill(&mut self, need: usize, patience: &mut Patience<'_>) -> Result<bool> {
        if self.end - self.start >= need {
            return Ok(true);
        }
        if self.has_ended {
            return Ok(false);
        }
        self.finish_handshake(patience)?;
        self.align_buffer(need);
        let limit = (self.start + need + HEADER_BYTES)
            .max(self.start + SMALL)
            .min(self.ahead.len());
        while self.end - self.start < need {
            match self.read_into(limit) {
                Ok(0) => return Ok(false),
                Ok(came) => {
                    self.end += came;
                    patience.went_on();
                }
                Err(error) if is_retryable(&error) => {
                    patience.waited(&self.host(), "receiving data")?
                }
                Err(cause) => return Err(self.lost("receiving data", cause)),
            }
        }
        Ok(true)
    }

    /// Reads ahead until `deadline`, or until `bytes_max` are there. Tells whether the connection has ended. A
    /// protected connection is not examined.
    pub(super) fn ends_before(&mut self, deadline: Instant, bytes_max: usize) -> Result<bool> {
        if !matches!(self.shield, LinkShield::Clear) {
            return Ok(false);
        }
        self.align_buffer(bytes_max);
        let limit = self.start + bytes_max;
        while self.end < limit {
            let left = deadline.saturating_duration_since(Instant::now());
            if !matches!(wait_readable([self.stream.as_fd()], left), Ok([true])) {
                return Ok(false);
            }
            match self.read_into(limit) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(true);
                }
                Ok(came) => self.end += came,
                Err(error) if is_retryable(&error) => {}
                Err(cause) => return Err(self.lost("receiving data", cause)),
            }
        }
        Ok(false)
    }

    fn read_into(&mut self, limit: usize) -> io::Result<usize> {
        let room = &mut self.ahead[self.end..limit];
        match &mut self.shield {
            LinkShield::Guarded(guarded) => guarded.read(&self.stream, room),
            _ => (&self.stream).read(room),
        }
    }

    /// Moves the bytes read ahead, so that the payload behind one header is aligned to a page.
    fn align_buffer(&mut self, need: usize) {
        let left = self.end - self.start;
        let room = 2 * PAGE + need.max(SMALL) + HEADER_BYTES;
        if self.ahead.len() < room {
            self.ahead.resize(room, 0);
        }
        // A copy to or from the page cache is a good deal cheaper between pages.
        let to_page = self.ahead.as_ptr().align_offset(PAGE);
        let base = to_page + PAGE - HEADER_BYTES;
        if self.start != base {
            self.ahead.copy_within(self.start..self.end, base);
            (self.start, self.end) = (base, base + left);
        }
    }

    /// Waits until something can be read here, or `over` is raised.
    pub(super) fn wait_for_data(
        &self,
        over: BorrowedFd<'_>,
        patience: &mut Patience<'_>,
    ) -> Result<Waited> {
        if let LinkShield::Guarded(guarded) = &self.shield
            && guarded.has_more()
        {
            return Ok(Waited::Data);
        }
        // One poll for each block: the price of being stoppable while idle.
        loop {
            let fds = [self.stream.as_fd(), over, patience.canceled()];
            match wait_readable(fds, patience.next()) {
                Ok([true, ..]) => return Ok(Waited::Data),
                Ok([_, true, _]) => return Ok(Waited::Over),
                Ok(_) => patience.waited(&self.host(), "waiting for data")?,
                Err(cause) => return Err(self.lost("waiting for data", cause)),
            }
        }
    }

    fn lost(&self, during: &str, cause: io::Error) -> Error {
        Error::lost(self.host(), during, cause)
    }

    /// Writes a header and its payload.
    pub(super) fn write(
        &mut self,
        header: &[u8],
        payload: &[u8],
        patience: &mut Patience<'_>,
    ) -> Result<()> {
        self.flush(patience)?;
        let (mut sent, whole) = (0, header.len() + payload.len());
        while sent < whole {
            let result = if sent < header.len() {
                self.write_both(&header[sent..], payload)
            } else {
                Self::write_some(
                    &self.stream,
                    &mut self.shield,
                    &payload[sent - header.len()..],
                )
            };
            sent += self.check_sent(result, patience)?;
        }
        self.flush_protection(patience)
    }

    /// Writes a header and a payload that lies in a file; `buffer` has room for it.
    ///
    /// The kernel sends the pages of the file itself where it can. A program that changes the file meanwhile changes
    /// the bytes sent, as in any read that takes a while.
    pub(super) fn write_from(
        &mut self,
        header: &[u8],
        lying: &LocalFile<'_>,
        range: Range<u64>,
        buffer: &mut [u8],
        patience: &mut Patience<'_>,
    ) -> Result<()> {
        self.flush(patience)?;
        let mut sent = 0;
        while sent < header.len() {
            let result = self.send_ahead(&header[sent..]);
            sent += self.check_sent(result, patience)?;
        }
        let mut next = range.start;
        while next < range.end {
            match self.send_file(lying.file, next..range.end) {
                Ok(0) => return Err(lying.became_shorter()),
                Err(error) if cannot_be_sent(&error) => {
                    let rest = &mut buffer[..(range.end - next) as usize];
                    lying.fill(next, rest)?;
                    return self.write(&[], rest, patience);
                }
                result => next += self.check_sent(result, patience)? as u64,
            }
        }
        Ok(())
    }

    /// Keeps bytes to be written with those that follow, up to a bound.
    pub(super) fn queue(&mut self, bytes: &[&[u8]], patience: &mut Patience<'_>) -> Result<()> {
        bytes
            .iter()
            .for_each(|part| self.queued.extend_from_slice(part));
        if self.queued.len() >= QUEUE_MAX {
            self.flush(patience)
        } else {
            Ok(())
        }
    }

    /// Writes the queued bytes.
    pub(super) fn flush(&mut self, patience: &mut Patience<'_>) -> Result<()> {
        self.finish_handshake(patience)?;
        let mut sent = 0;
        while sent < self.queued.len() {
            let result = Self::write_some(&self.stream, &mut self.shield, &self.queued[sent..]);
            sent += self.check_sent(result, patience)?;
        }
        self.queued.clear();
        self.flush_protection(patience)
    }

    /// Sends the bytes that the protection still holds.
    fn flush_protection(&mut self, patience: &mut Patience<'_>) -> Result<()> {
        while let LinkShield::Guarded(guarded) = &mut self.shield {
            match guarded.push(&self.stream) {
                Ok(()) => break,
                result => self.check_sent(result.map(|()| 0), patience).map(drop)?,
            }
        }
        Ok(())
    }

    fn write_some(stream: &TcpStream, shield: &mut LinkShield, bytes: &[u8]) -> io::Result<usize> {
        match shield {
            LinkShield::Guarded(guarded) => guarded.write(stream, [bytes, &[]]),
            _ => (&*stream).write(bytes),
        }
    }

    fn write_both(&mut self, first: &[u8], then: &[u8]) -> io::Result<usize> {
        match &mut self.shield {
            LinkShield::Guarded(guarded) => guarded.write(&self.stream, [first, then]),
            _ => {
                let parts = [IoSlice::new(first), IoSlice::new(then)];
                (&self.stream).write_vectored(&parts)
            }
        }
    }

    fn send_ahead(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.shield {
            LinkShield::Guarded(guarded) => guarded.write(&self.stream, [bytes, &[]]),
            _ => send_ahead(&self.stream, bytes),
        }
    }

    fn send_file(&self, file: &File, range: Range<u64>) -> io::Result<usize> {
        match &self.shield {
            LinkShield::Guarded(_) => Err(io::ErrorKind::Unsupported.into()),
            _ => send_file(&self.stream, file, range),
        }
    }

    fn check_sent(&self, result: io::Result<usize>, patience: &mut Patience<'_>) -> Result<usize> {
        let during = "sending data";
        match result {
            Ok(0) => Err(self.lost(during, io::ErrorKind::WriteZero.into())),
            Ok(sent) => {
                patience.went_on();
                Ok(sent)
            }
            Err(error) if is_retryable(&error) => patience.waited(&self.host(), during).map(|()| 0),
            Err(cause) => Err(self.lost(during, cause)),
        }
    }

    /// Announces that no more bytes follow; in stream mode this is the end of the file.
    pub(super) fn end(&mut self, patience: &mut Patience<'_>) -> Result<()> {
        self.flush(patience)?;
        if let LinkShield::Guarded(guarded) = &mut self.shield {
            let ended = guarded.end();
            ended.map_err(|cause| self.lost("ending the data", cause))?;
            self.flush_protection(patience)?;
        }
        let ended = self.stream.shutdown(Shutdown::Write);
        ended.map_err(|cause| self.lost("ending the data", cause))?;
        if let LinkShield::Guarded(guarded) = &mut self.shield {
            guarded.linger(&self.stream, patience);
        }
        Ok(())
    }

    /// Returns the word that protection has for an end, if the connection ended without it.
    pub(super) fn missing_last_word(&self) -> Option<LastWord> {
        match &self.shield {
            LinkShield::Guarded(guarded) => guarded.missing_last_word(),
            _ => None,
        }
    }

    /// Has the peer see a broken connection once this one is closed.
    pub(super) fn reset_on_close(&self) {
        // Then it sees an end before the end was announced; only stream mode cannot tell.
        let _ = godwit_sys::reset_when_closed(self.stream.as_fd());
    }

    /// Gives back the memory that only a transfer needs.
    pub(super) fn release_buffers(&mut self) {
        if self.start == self.end && self.ahead.len() > SMALL + PAGE {
            (self.start, self.end, self.ahead) = (0, 0, Vec::new());
        }
        if let LinkShield::Guarded(guarded) = &mut self.shield {
            guarded.release_buffers();
        }
    }

    /// Tells whether the peer has closed the connection. Bytes that it sent ahead for the next transfer are kept.
    pub(super) fn is_stale(&mut self) -> bool {
        if !self.ahead().is_empty() || self.due_side().is_some() {
            return false;
        }
        match wait_readable([self.stream.as_fd()], Duration::ZERO) {
            Ok([false]) => false,
            // Only inside of the protection it is seen whether this is a goodbye.
            Ok([true]) if matches!(self.shield, LinkShield::Guarded(_)) => {
                self.align_buffer(1);
                let came = self.read_into(self.end + SMALL);
                self.end += came.as_ref().map_or(0, |&count| count);
                !matches!(came, Ok(1..))
            }
            Ok([true]) => !matches!(self.stream.peek(&mut [0]), Ok(1)),
            Err(_) => true,
        }
    }
}

impl Drop for DataLink {
    /// A proof in a thread of its own must end with the connection.
    fn drop(&mut self) {
        if let LinkShield::Due(_) = self.shield {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

impl AsFd for DataLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The reason why a wait ended.
pub(super) enum Waited {
    /// Something can be read.
    Data,
    /// The other condition of the wait is true.
    Over,
}

pub(super) fn is_retryable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Some file systems have no pages to send.
fn cannot_be_sent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

const PAGE: usize = 4096;
/// How much is read ahead if small blocks are expected.
const SMALL: usize = 64 << 10;
/// How much is queued before it is written.
const QUEUE_MAX: usize = 256 << 10;
