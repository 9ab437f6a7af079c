//! The two ways of a connection: frames in, frames out.

use godwit_sys::{Wake, receive_passing, send_passing, wait_readable};
use godwit_wire::local::{Decoder, Error, Frame, ResponseHead};
use parking_lot::Mutex;
use std::{
    io,
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

/// A connection as all see it who answer on it.
#[derive(Debug)]
pub(crate) struct LocalLine {
    socket: UnixStream,
    /// One frame after the other.
    speaking: Mutex<()>,
    is_over: AtomicBool,
    /// Raised when a thread that answers is free.
    pub(crate) freed: Wake,
}

impl LocalLine {
    /// Closes the connection; threads that read or write on it notice.
    pub(crate) fn hang_up(&self) {
        let _ = self.socket().shutdown(Shutdown::Both);
    }

    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        Ok(Self {
            socket,
            speaking: Mutex::new(()),
            is_over: AtomicBool::new(false),
            freed: Wake::new()?,
        })
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Tells whether the program no longer reads.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, SeqCst);
    }

    /// Sends an answer. Waits for a program that does not read; no request of it is read meanwhile.
    pub(crate) fn say(&self, told: &ResponseHead, body: &[u8], files: &[BorrowedFd<'_>]) {
        let frame = match told.write(body) {
            Ok(frame) => frame,
            Err(error) => return tracing::error!(%error, "an answer is too long"),
        };
        let _turn = self.speaking.lock();
        let (mut rest, mut files) = (&frame[..], files);
        while !rest.is_empty() && !self.is_over() {
            match send_passing(&self.socket, rest, files) {
                Ok(sent) => (rest, files) = (&rest[sent..], &[]),
                Err(_) => self.end(),
            }
        }
    }

    /// Says it if that takes no time.
    pub(crate) fn say_at_once(&self, told: &ResponseHead) {
        if let (Ok(frame), Ok(())) = (told.write(b""), self.socket.set_nonblocking(true)) {
            let _ = send_passing(&self.socket, &frame, &[]);
        }
    }
}

/// Received bytes and files, read by one thread at a time.
#[derive(Debug)]
pub(crate) struct LineInput {
    decoder: Decoder,
    buffer: Box<[u8]>,
    /// Bytes `from..to` of the buffer are not decoded yet.
    from: usize,
    to: usize,
    files: Vec<OwnedFd>,
    /// When the frame began that is under way.
    began: Option<Instant>,
}

/// Why no more comes.
#[derive(Debug)]
pub(crate) enum LineOver {
    /// The other end is closed, or the node ends.
    Gone,
    /// Half a frame, and then nothing.
    Late,
    /// Not what programs say.
    Misled(String),
}

impl LineInput {
    pub(crate) fn new() -> Self {
        Self {
            decoder: Decoder::new(),
            buffer: vec![0; AT_ONCE_BYTES].into(),
            from: 0,
            to: 0,
            files: Vec::new(),
            began: None,
        }
    }

    /// Returns the next frame, and waits for it: between frames for as long as it takes, within one not.
    pub(crate) fn next(
        &mut self,
        line: &LocalLine,
        stop: BorrowedFd<'_>,
    ) -> Result<Frame, LineOver> {
        loop {
            let (taken, frame) = self
                .decoder
                .next(&self.buffer[self.from..self.to])
                .map_err(|error| misled(&error))?;
            self.from += taken;
            if let Some(frame) = frame {
                self.began = None;
                return Ok(frame);
            }
            self.read(line, stop)?;
        }
    }

    /// Drops the files that came with a frame: nothing that is asked comes with one.
    pub(crate) fn drop_files(&mut self, count: u8) -> Result<(), LineOver> {
        let count = usize::from(count);
        if count > self.files.len() {
            return Err(LineOver::Misled("a file that was to come did not".into()));
        }
        self.files.drain(..count);
        Ok(())
    }

    fn read(&mut self, line: &LocalLine, stop: BorrowedFd<'_>) -> Result<(), LineOver> {
        let patience = match self.decoder.is_within() {
            false => FOREVER,
            true => {
                let began = *self.began.get_or_insert_with(Instant::now);
                FRAME_PATIENCE.saturating_sub(began.elapsed())
            }
        };
        let [is_here, is_stopped] =
            wait_readable([line.socket().as_fd(), stop], patience).map_err(|_| LineOver::Gone)?;
        if is_stopped {
            return Err(LineOver::Gone);
        }
        if !is_here {
            return match self.decoder.is_within() && patience.is_zero() {
                true => Err(LineOver::Late),
                false => Ok(()), // looked at again, with what is left of the time
            };
        }
        let came = receive_passing(line.socket(), &mut self.buffer, &mut self.files);
        match came {
            Ok(0) => Err(LineOver::Gone),
            Ok(_) if self.files.len() > FILES_MAX => Err(LineOver::Misled(
                "it sends files that no request takes".into(),
            )),
            Ok(came) => {
                (self.from, self.to) = (0, came);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(LineOver::Misled(error.to_string()))
            }
            Err(_) => Err(LineOver::Gone),
        }
    }
}

fn misled(error: &Error) -> LineOver {
    LineOver::Misled(error.to_string())
}

const AT_ONCE_BYTES: usize = 64 << 10;
/// Files that came with frames of which the end did not.
const FILES_MAX: usize = 8;
/// Between the first and the last byte of a frame.
pub(crate) const FRAME_PATIENCE: Duration = Duration::from_secs(30);
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
