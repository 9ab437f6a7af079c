//! One connection to a door: HTTP/1.1 under TLS, one call after the other.
//!
//! hyper is asynchronous, and the verbs of a store block. Each connection therefore has its own runtime, which runs
//! in the waiting thread while a caller waits. N threads encrypt for N connections, and an idle connection has no
//! thread.

use super::{
    ConnectionLimits,
    tls::{Tls, TlsFailure},
};
use crate::{Error, Result, channel::Cancel, error::LOGIN};
use godwit_sys::wait_readable;
use godwit_trust::{
    Authorities, Credential, Identity,
    door::{self, Fingerprint, WantedHost},
};
use godwit_wire::door::call::NEW_KEY;
use hyper::{
    Request, Response,
    body::{Body, Bytes, Frame, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::TcpStream,
    os::fd::AsFd,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::{Builder, Runtime},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

/// One connection, and the runtime that moves it.
pub(super) struct DoorConnection {
    runtime: Runtime,
    /// Away while a body is poured.
    sender: Option<SendRequest<RequestBody>>,
    waiting: WaitLimits,
    /// The socket below, to see whether the peer closed an idle connection.
    socket: TcpStream,
    /// The identity that the node proved.
    pub(super) peer: Identity,
    /// The hash of the key that the node showed.
    pub(super) key: Option<Fingerprint>,
    pub(super) round_trip: Duration,
    /// When the last answer ended.
    pub(super) used_at: Instant,
    /// The hash of the node's new key, as it announced.
    pub(super) new_key: Option<String>,
    /// A body was sent with the last request. Who refuses it need not have read it, and ends the
    /// connection behind their answer.
    pub(super) has_poured: bool,
}

/// The limits of a wait: it times out, or is cancelled.
struct WaitLimits {
    host: String,
    stall: Duration,
    cancel: Cancel,
}

/// The credential to show, and the identity that the node must prove.
pub(super) struct Showing<'a> {
    pub(super) credential: &'a Credential,
    pub(super) authorities: &'a Authorities,
    pub(super) wanted: &'a WantedHost,
    pub(super) host: &'a str,
    /// Where that is.
    pub(super) at: &'a str,
}

impl DoorConnection {
    /// Makes a TLS connection over a socket: shows our credential, and learns the node's identity.
    pub(super) fn begin(
        socket: TcpStream,
        showing: &Showing<'_>,
        limits: &ConnectionLimits,
    ) -> Result<Self> {
        let at = &limits.at;
        let lost = |cause| Error::lost(at.clone(), LOGIN, cause);
        let wrong = Error::not_proved(at);
        let begun = Instant::now();
        socket.set_nodelay(true).map_err(lost)?;
        socket.set_nonblocking(true).map_err(lost)?;
        let ours = socket.try_clone().map_err(lost)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(lost)?;
        let ssl = door::visit(showing.credential, showing.wanted, showing.host).map_err(&wrong)?;
        let waiting = WaitLimits::of(limits);
        let inside = runtime.enter();
        let socket = tokio::net::TcpStream::from_std(socket).map_err(lost)?;
        drop(inside);
        let tls = runtime.block_on(waiting.over(LOGIN, async {
            Tls::begin(ssl, socket)
                .await
                .map_err(|failed| match failed {
                    TlsFailure::Io(cause) => lost(cause),
                    TlsFailure::Said(error) if error.is_no_tls() => Error::not_tls(
                        at.clone(),
                        format!("something else answers at {}", showing.at),
                    ),
                    TlsFailure::Said(error) => wrong(error),
                    TlsFailure::Elsewhere => Error::away(at.clone(), showing.at),
                })
        }))?;
        let met = door::met(
            tls.ssl(),
            showing.wanted,
            showing.authorities,
            showing.credential,
        );
        let peer = met.map_err(&wrong)?;
        let key = door::key_shown(tls.ssl()).map_err(wrong)?;
        // The engine's work is no distance.
        let shortest = godwit_sys::traffic(ours.as_fd()).map(|seen| seen.round_trip_min);
        let shortest = shortest.ok().filter(|shortest| !shortest.is_zero());
        let round_trip = shortest.unwrap_or_else(|| begun.elapsed() / 2);
        let mut visit = Self::over(tls, (runtime, waiting, ours))?;
        (visit.peer, visit.key, visit.round_trip) = (peer, key, round_trip);
        Ok(visit)
    }

    /// Speaks HTTP with the server at the other end of a socket, without TLS.
    pub(super) fn in_clear(socket: TcpStream, limits: &ConnectionLimits) -> Result<Self> {
        let lost = |cause| Error::lost(limits.at.clone(), LOGIN, cause);
        socket.set_nonblocking(true).map_err(lost)?;
        let ours = socket.try_clone().map_err(lost)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(lost)?;
        let inside = runtime.enter();
        let socket = tokio::net::TcpStream::from_std(socket).map_err(lost)?;
        drop(inside);
        Self::over(socket, (runtime, WaitLimits::of(limits), ours))
    }

    fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        stream: S,
        (runtime, waiting, socket): (Runtime, WaitLimits, TcpStream),
    ) -> Result<Self> {
        let (sender, connection) = runtime
            .block_on(http1::handshake(TokioIo::new(stream)))
            .map_err(|error| waiting.lost(LOGIN, error))?;
        runtime.spawn(connection);
        Ok(Self {
            runtime,
            sender: Some(sender),
            waiting,
            socket,
            peer: door::peer("anybody"),
            key: None,
            round_trip: Duration::ZERO,
            used_at: Instant::now(),
            new_key: None,
            has_poured: false,
        })
    }

    /// Sets the time limit and the cancellation of the next caller.
    pub(super) fn for_whom(mut self, limits: &ConnectionLimits) -> Self {
        (self.waiting.stall, self.waiting.cancel) = (limits.stall, limits.cancel.clone());
        self
    }

    /// Tells whether the other side has closed the connection, or sent bytes that no call asked for.
    pub(super) fn is_stale(&self) -> bool {
        let readable = wait_readable([self.socket.as_fd()], Duration::ZERO);
        self.sender.as_ref().is_none_or(SendRequest::is_closed)
            || readable.is_ok_and(|[is_readable]| is_readable)
    }

    /// Asks, and waits for the beginning of the answer.
    pub(super) fn ask(
        &mut self,
        request: Request<RequestBody>,
        during: &str,
    ) -> Result<Response<Incoming>> {
        let (sender, waiting) = (self.sender.as_mut().expect(AT_HOME), &self.waiting);
        let answer = self.runtime.block_on(waiting.over(during, async {
            let answer = async {
                sender.ready().await?;
                sender.send_request(request).await
            };
            answer.await.map_err(|error| waiting.lost(during, error))
        }))?;
        let new_key = answer.headers().get(NEW_KEY);
        self.new_key = new_key.and_then(|key| Some(key.to_str().ok()?.to_owned()));
        Ok(answer)
    }

    /// Returns more of an answer; `None`: that was all.
    pub(super) fn more(&self, body: &mut Incoming, during: &str) -> Result<Option<Bytes>> {
        let waiting = &self.waiting;
        self.runtime.block_on(waiting.over(during, async {
            loop {
                let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
                match frame {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(waiting.lost(during, error)),
                    Some(Ok(frame)) => {
                        if let Ok(bytes) = frame.into_data() {
                            return Ok(Some(bytes));
                        }
                    }
                }
            }
        }))
    }
}

/// A request whose body is still being sent.
pub(super) struct Pouring {
    visit: DoorConnection,
    body: Option<mpsc::Sender<Bytes>>,
    answer: JoinHandle<(SendRequest<RequestBody>, hyper::Result<Response<Incoming>>)>,
}

impl Pouring {
    /// Begins to ask; `request` makes the request of a body.
    pub(super) fn begin(
        mut visit: DoorConnection,
        request: impl FnOnce(RequestBody) -> Request<RequestBody>,
    ) -> Self {
        let (body, bytes) = mpsc::channel(BLOCKS_AHEAD);
        let request = request(RequestBody::Stream(bytes));
        let mut sender = visit.sender.take().expect(AT_HOME);
        let answer = visit.runtime.spawn(async move {
            let answer = async {
                sender.ready().await?;
                sender.send_request(request).await
            };
            let answer = answer.await;
            (sender, answer)
        });
        Self {
            visit,
            body: Some(body),
            answer,
        }
    }

    /// Sends some of the body. `false`: the other side takes no more, and its answer says why.
    pub(super) fn pour(&mut self, bytes: Bytes, during: &str) -> Result<bool> {
        let Some(body) = &self.body else {
            return Ok(false);
        };
        let waiting = &self.visit.waiting;
        let sent = self
            .visit
            .runtime
            .block_on(waiting.over(during, async { Ok(body.send(bytes).await.is_ok()) }))?;
        if !sent || self.answer.is_finished() {
            self.body = None;
        }
        Ok(sent)
    }

    /// Ends the body, and waits for the beginning of the answer.
    pub(super) fn end(mut self, during: &str) -> Result<(DoorConnection, Response<Incoming>)> {
        self.body = None;
        let (waiting, answer) = (&self.visit.waiting, &mut self.answer);
        let (sender, answer) = self.visit.runtime.block_on(waiting.over(during, async {
            answer
                .await
                .map_err(|error| Error::lost(waiting.host.clone(), during, io::Error::other(error)))
        }))?;
        let answer = answer.map_err(|error| waiting.lost(during, error))?;
        self.visit.sender = Some(sender);
        self.visit.has_poured = true;
        Ok((self.visit, answer))
    }
}

impl WaitLimits {
    fn of(limits: &ConnectionLimits) -> Self {
        Self {
            host: limits.at.clone(),
            stall: limits.stall,
            cancel: limits.cancel.clone(),
        }
    }

    /// Waits for `work`. A cancellation has no descriptor to wait for: the check every 100 ms is as good, and costs
    /// nothing while bytes move.
    async fn over<T>(&self, during: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = pin!(work);
        let since = Instant::now();
        loop {
            self.cancel.check()?;
            if let Ok(done) = timeout(LOOK_EVERY, work.as_mut()).await {
                return done;
            }
            if since.elapsed() >= self.stall {
                return Err(Error::stalled(self.host.clone(), during, self.stall));
            }
        }
    }

    fn lost(&self, during: &str, error: hyper::Error) -> Error {
        let cause = match error.is_incomplete_message() || error.is_closed() || error.is_canceled()
        {
            true => io::ErrorKind::UnexpectedEof.into(),
            false => io_cause(error),
        };
        Error::lost(self.host.clone(), during, cause)
    }
}

/// Finds the system's error beneath hyper's.
fn io_cause(error: hyper::Error) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(found) = inner.downcast_ref::<io::Error>() {
            return match found.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(found.kind(), found.to_string()),
            };
        }
        cause = inner.source();
    }
    io::Error::other(error)
}

/// The body of a request, or of an answer.
pub enum RequestBody {
    /// In one piece, or nothing.
    Whole(Option<Bytes>),
    /// A body that is sent as it is produced; dropping the sender ends it.
    Stream(mpsc::Receiver<Bytes>),
}

impl RequestBody {
    /// Returns the body that is these bytes.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(bytes) => bytes
                .poll_recv(context)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                let len = bytes.as_ref().map_or(0, Bytes::len) as u64;
                hyper::body::SizeHint::with_exact(len)
            }
            Self::Stream(_) => hyper::body::SizeHint::default(),
        }
    }
}

/// Blocks of a body that wait to be sent.
const BLOCKS_AHEAD: usize = 2;
const AT_HOME: &str = "no call is made while a body is sent";
const LOOK_EVERY: Duration = Duration::from_millis(100);
