//! Watches the bytes of a connection on their way to hyper and back.
//!
//! hyper has one deadline for both an idle client and one that sends a byte a second, and none for a client that does
//! not read its answer. It parses requests as the standard allows, where other servers may parse them differently. This
//! module adds what is missing. Only hyper divides requests: a request whose head was not recognised is merely
//! unchecked.

use crate::base::admission::Admitted;
use crate::base::idle::Busy;
use godwit_store::door::{RequestBody, Tls};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use parking_lot::Mutex;
use std::{
    convert::Infallible,
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A connection, as hyper has it.
pub(super) struct WatchedStream<S> {
    tls: Tls<S>,
    seen: Arc<SeenRequests>,
    /// How long a head may take, and how long nothing may be taken of an answer.
    patience: Duration,
    head: Option<Pin<Box<Sleep>>>,
    /// Which head that is of.
    nth: u64,
    untaken: Option<Pin<Box<Sleep>>>,
    /// How much the system had taken when that began.
    taken_bytes: u64,
    parting: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WatchedStream<S> {
    pub(super) fn new(tls: Tls<S>, seen: &Arc<SeenRequests>, patience: Duration) -> Self {
        Self {
            tls,
            seen: Arc::clone(seen),
            patience,
            head: None,
            nth: 0,
            untaken: None,
            taken_bytes: 0,
            parting: None,
        }
    }

    /// Turns a write that waits into an error when it has waited too long.
    fn taken<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let sent = self.tls.sent_bytes();
        if written.is_ready() || sent != self.taken_bytes {
            (self.taken_bytes, self.untaken) = (sent, None);
        }
        if written.is_ready() || self.seen.is_passed() {
            return written;
        }
        match is_over(&mut self.untaken, self.patience, context) {
            true => Poll::Ready(Err(too_slow("nothing was taken of an answer"))),
            false => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.tls).poll_read(context, into);
        let Some(nth) = self.seen.read(&into.filled()[before..]) else {
            return read;
        };
        if self.nth != nth {
            (self.nth, self.head) = (nth, None);
        }
        let patience = self.patience;
        match is_over(&mut self.head, patience, context) {
            true => Poll::Ready(Err(too_slow("the headers of a request were not whole"))),
            false => read,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tls).poll_write(context, bytes);
        self.taken(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tls).poll_write_vectored(context, slices);
        self.taken(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.tls).poll_flush(context);
        self.taken(flushed, context)
    }

    /// Ends our half. What the visitor still sends is thrown away for a moment: a socket that is
    /// closed before that resets the connection, and takes with it the answer that says why.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if is_over(&mut this.parting, PARTING, context) {
            return Poll::Ready(Ok(()));
        }
        if !this.seen.is_parting() {
            ready!(Pin::new(&mut this.tls).poll_shutdown(context))?;
            this.seen.part();
        }
        if this.seen.is_idle() {
            return Poll::Ready(Ok(()));
        }
        let mut thrown = [0; 4096];
        loop {
            let mut thrown = ReadBuf::new(&mut thrown);
            let read = Pin::new(&mut this.tls).poll_read(context, &mut thrown);
            if !matches!(ready!(read), Ok(()) if !thrown.filled().is_empty()) {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

fn is_over(
    deadline: &mut Option<Pin<Box<Sleep>>>,
    patience: Duration,
    context: &mut Context<'_>,
) -> bool {
    let deadline = deadline.get_or_insert_with(|| Box::pin(sleep(patience)));
    deadline.as_mut().poll(context).is_ready()
}

fn too_slow(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// State of a connection, as watched.
#[derive(Debug, Default)]
pub(super) struct SeenRequests(Mutex<SeenState>);

#[derive(Debug, Default)]
struct SeenState {
    phase: RequestPhase,
    /// How many heads have begun.
    heads: u64,
    is_parting: bool,
}

#[derive(Debug, Default)]
enum RequestPhase {
    /// Nothing was asked, or all was answered.
    #[default]
    Idle,
    /// A request has begun.
    Head(HeadScan),
    /// The request is being answered.
    Asked,
    /// The last request was answered: further bytes are for an upgraded protocol.
    Passed,
}

impl SeenRequests {
    /// Notes what came; tells the headers of which request are on the way, if any are.
    fn read(&self, bytes: &[u8]) -> Option<u64> {
        self.with(|state| {
            if matches!(state.phase, RequestPhase::Idle) && !bytes.is_empty() {
                state.phase = RequestPhase::Head(HeadScan::default());
                state.heads += 1;
            }
            match &mut state.phase {
                RequestPhase::Head(head) => {
                    head.add(bytes);
                    Some(state.heads)
                }
                RequestPhase::Idle | RequestPhase::Asked | RequestPhase::Passed => None,
            }
        })
    }

    /// The headers of a request are whole. Returns what others would read in another way.
    pub(super) fn asked(&self) -> Option<&'static str> {
        let before = self.with(|state| std::mem::replace(&mut state.phase, RequestPhase::Asked));
        match before {
            RequestPhase::Head(head) => head.doubt(),
            RequestPhase::Idle | RequestPhase::Asked | RequestPhase::Passed => None,
        }
    }

    fn answered(&self) {
        self.with(|state| {
            if !matches!(state.phase, RequestPhase::Passed) {
                state.phase = RequestPhase::Idle;
            }
        });
    }

    /// No more requests come: the connection is passed on.
    pub(super) fn pass(&self) {
        self.with(|state| state.phase = RequestPhase::Passed);
    }

    fn is_passed(&self) -> bool {
        self.with(|state| matches!(state.phase, RequestPhase::Passed))
    }

    fn part(&self) {
        self.with(|state| state.is_parting = true);
    }

    fn is_parting(&self) -> bool {
        self.with(|state| state.is_parting)
    }

    fn is_idle(&self) -> bool {
        self.with(|state| matches!(state.phase, RequestPhase::Idle | RequestPhase::Passed))
    }

    fn with<T>(&self, work: impl FnOnce(&mut SeenState) -> T) -> T {
        work(&mut self.0.lock())
    }
}

/// The headers of a request, as far as they came.
#[derive(Debug, Default)]
struct HeadScan {
    /// The beginning of the last line.
    line: Vec<u8>,
    last: Option<u8>,
    has_request_line: bool,
    is_over: bool,
    has_bare_lf: bool,
    /// How many headers give the length of the body, of each kind.
    lengths: usize,
    codings: usize,
}

impl HeadScan {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.is_over {
                return;
            }
            match byte {
                b'\n' => self.end_line(),
                b'\r' => {}
                byte if self.line.len() < LINE_KEPT => self.line.push(byte),
                _ => {}
            }
            self.last = Some(byte);
        }
    }

    fn end_line(&mut self) {
        self.has_bare_lf |= self.last.is_some_and(|last| last != b'\r');
        match (self.line.is_empty(), self.has_request_line) {
            (true, begun) => self.is_over = begun,
            (false, true) => self.note_header(),
            (false, false) => self.has_request_line = true,
        }
        self.line.clear();
    }

    fn note_header(&mut self) {
        let name = self.line.split(|&byte| byte == b':').next();
        let name = name.unwrap_or_default();
        self.lengths += usize::from(name.eq_ignore_ascii_case(b"content-length"));
        self.codings += usize::from(name.eq_ignore_ascii_case(b"transfer-encoding"));
    }

    fn doubt(&self) -> Option<&'static str> {
        if self.has_bare_lf {
            return Some("a line of its headers ends without CR");
        }
        match (self.lengths, self.codings) {
            (0, 0..=1) | (1, 0) => None,
            (_, 0) => Some("it tells the length of its body twice"),
            (0, _) => Some("it tells the coding of its body twice"),
            _ => Some("both Transfer-Encoding and Content-Length tell where it ends"),
        }
    }
}

/// The body of an answer; its end completes the request, if the request was read to its end.
pub(super) struct AnswerBody {
    body: RequestBody,
    _end: AnswerEnd,
    /// Held by the request until it is answered.
    _kept: (Busy, Option<Admitted>),
}

impl AnswerBody {
    pub(super) fn new(
        body: RequestBody,
        seen: &Arc<SeenRequests>,
        heard: Arc<AtomicBool>,
        kept: (Busy, Option<Admitted>),
    ) -> Self {
        let _end = AnswerEnd {
            seen: Arc::clone(seen),
            heard,
        };
        Self {
            body,
            _end,
            _kept: kept,
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct AnswerEnd {
    seen: Arc<SeenRequests>,
    heard: Arc<AtomicBool>,
}

impl Drop for AnswerEnd {
    fn drop(&mut self) {
        // What comes next is a request only if nothing is left of this one.
        if self.heard.load(Relaxed) {
            self.seen.answered();
        }
    }
}

/// More of a line need not be known to know its name.
const LINE_KEPT: usize = 64;
const PARTING: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(head: &str) -> Option<&'static str> {
        // However it comes divided.
        let all: Vec<_> = (1..=head.len())
            .map(|piece| {
                let seen = SeenRequests::default();
                for piece in head.as_bytes().chunks(piece) {
                    assert_eq!(seen.read(piece), Some(1));
                }
                seen.asked()
            })
            .collect();
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        all[0]
    }

    #[test]
    fn ambiguous_heads_are_reported() {
        let head = |lines: &str| doubt(&format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        assert_eq!(head("Content-Length: 5\r\n"), None);
        assert_eq!(head("Transfer-Encoding: chunked\r\n"), None);
        for lines in [
            "content-length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "X: y\nContent-Length: 5\r\n",
        ] {
            assert!(head(lines).is_some(), "{lines:?}");
        }
    }

    #[test]
    fn a_body_is_no_head() {
        let seen = SeenRequests::default();
        assert_eq!(seen.read(b"GET / HTTP/1.1\r\n\r\nbody\nbody\n\n"), Some(1));
        assert_eq!(seen.asked(), None);
        assert_eq!(seen.read(b"body\n\nContent-Length: 5\n"), None);
        assert_eq!(seen.asked(), None);
        seen.answered();
        assert_eq!(seen.read(b""), None);
        assert_eq!(seen.read(b"\r\nGET / HTTP/1.1\r\n"), Some(2));
    }
}
