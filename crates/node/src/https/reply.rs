//! An answer to a client, written by a thread that may wait.

use super::HttpsDoor;
use godwit_core::Kind;
use godwit_store::{
    Error, Result,
    door::{RequestBody, RequestId},
};
use godwit_wire::door::{
    LINES_TYPE,
    call::{LINE_BYTES_MAX, Line, MARK, Refusal},
    speaker::Speaker,
};
use hyper::{
    Request, Response, StatusCode,
    body::{Body, Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use parking_lot::Mutex;
use std::{
    cell::Cell,
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::{MissedTickBehavior, interval, timeout},
};

/// The answer to one request, not begun yet.
pub(super) struct HttpReply {
    head: oneshot::Sender<Response<RequestBody>>,
    mark: RequestId,
    theirs: Option<Speaker>,
    runtime: Handle,
    stall: Duration,
    pace: Cell<ReplyPace>,
    /// All that came with the request was read.
    heard: Arc<AtomicBool>,
}

/// The pace of a body: a client must not hold a thread by a byte a second.
#[derive(Clone, Copy, Debug, Default)]
struct ReplyPace {
    waited: Duration,
    bytes: usize,
}

impl ReplyPace {
    /// Reads more of a body, which must arrive at a least rate; `None`: that was all.
    async fn more(
        &mut self,
        body: &mut Incoming,
        stall: Duration,
        pace_bytes: usize,
    ) -> Result<Option<Bytes>> {
        let begun = Instant::now();
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        let frame = timeout(stall.saturating_sub(self.waited), frame).await;
        self.waited += begun.elapsed();
        match frame {
            Err(_) => Err(Error::stalled("the client", "sending", stall)),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => Err(Error::lost(
                "the client",
                "sending",
                io::Error::other(error),
            )),
            Ok(Some(Ok(frame))) => {
                // Trailers mean nothing here.
                let bytes = frame.into_data().unwrap_or_default();
                self.bytes += bytes.len();
                if self.bytes >= pace_bytes {
                    *self = Self::default();
                }
                Ok(Some(bytes))
            }
        }
    }
}

impl HttpReply {
    /// Returns it, and what its beginning comes from.
    pub(super) fn new(
        door: &HttpsDoor,
        request: &Request<Incoming>,
    ) -> (Self, oneshot::Receiver<Response<RequestBody>>) {
        let (head, begun) = oneshot::channel();
        let text = |name: &str| request.headers().get(name)?.to_str().ok();
        let reply = Self {
            head,
            mark: text(MARK)
                .and_then(|id| id.parse().ok())
                .unwrap_or_default(),
            theirs: text(USER_AGENT.as_str()).and_then(Speaker::read),
            runtime: door.runtime.clone(),
            stall: door.shared.config.limits.stall,
            pace: Cell::default(),
            heard: Arc::new(AtomicBool::new(request.body().is_end_stream())),
        };
        (reply, begun)
    }

    /// Returns the id of the request.
    pub(super) fn mark(&self) -> &RequestId {
        &self.mark
    }

    /// Returns the version of the client, if it is godwit.
    pub(super) fn theirs(&self) -> Option<&Speaker> {
        self.theirs.as_ref()
    }

    /// Tells later whether all that came with the request was read.
    pub(super) fn heard(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.heard)
    }

    /// Reads more of the bytes that came with the request; `None`: that was all.
    pub(super) fn more(&self, body: &mut Incoming) -> Result<Option<Bytes>> {
        let mut pace = self.pace.get();
        let more = pace.more(body, self.stall, PACE_BYTES);
        let more = self.runtime.block_on(more)?;
        self.pace.set(pace);
        self.heard.store(more.is_none(), Relaxed);
        Ok(more)
    }

    /// Reads all that is asked, without a thread.
    pub(super) async fn text(&mut self, body: &mut Incoming) -> Result<Vec<u8>, Refusal> {
        let (mut text, mut pace) = (Vec::new(), ReplyPace::default());
        loop {
            let more = pace.more(body, self.stall, PACE_OF_CALL_BYTES).await;
            let Some(bytes) = more? else {
                self.heard.store(true, Relaxed);
                return Ok(text);
            };
            if text.len() + bytes.len() > LINE_BYTES_MAX {
                let why = format!("what is asked is longer than {LINE_BYTES_MAX} bytes");
                return Err(Refusal::of_kind(Kind::Protocol, why));
            }
            text.extend_from_slice(&bytes);
        }
    }

    /// Answers in one piece.
    pub(super) fn whole(self, mut answer: Response<RequestBody>) {
        mark(&mut answer, &self.mark);
        // The client may have left.
        let _ = self.head.send(answer);
    }

    /// Begins an answer of unknown length.
    pub(super) fn stream(self, head: hyper::http::response::Builder) -> BodyPipe {
        self.stream_ahead(head, FRAMES_AHEAD)
    }

    /// Begins an answer of which `frames` may wait to be sent.
    pub(super) fn stream_ahead(
        self,
        head: hyper::http::response::Builder,
        frames: usize,
    ) -> BodyPipe {
        let (to, body) = mpsc::channel(frames);
        let mut answer = head
            .body(RequestBody::Stream(body))
            .expect("its headers are ours");
        mark(&mut answer, &self.mark);
        let _ = self.head.send(answer);
        BodyPipe {
            to,
            runtime: self.runtime,
            stall: self.stall,
        }
    }

    /// Begins an answer of lines.
    pub(super) fn lines(self) -> ReplyLines {
        ReplyLines {
            reply: Some(self),
            pipe: None,
            held: Vec::new(),
        }
    }

    /// Says the one thing that was asked for, or why not.
    pub(super) fn tell(self, told: Result<Line, Refusal>) {
        let mut lines = self.lines();
        let outcome = told.and_then(|line| lines.say(&line).map_err(Refusal::from));
        lines.end(outcome);
    }

    /// Says why nothing was done.
    pub(super) fn refuse(self, refusal: Refusal) {
        self.lines().end(Err(refusal));
    }
}

/// Where an answer goes that is longer than one piece.
#[derive(Clone)]
pub(super) struct BodyPipe {
    to: mpsc::Sender<Bytes>,
    runtime: Handle,
    stall: Duration,
}

impl BodyPipe {
    /// Sends bytes, as soon as the client takes them.
    pub(super) fn send(&self, bytes: Bytes) -> Result<()> {
        let bytes = match self.to.try_send(bytes) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(gone()),
            Err(mpsc::error::TrySendError::Full(bytes)) => bytes,
        };
        self.runtime.block_on(self.send_later(bytes))
    }

    /// Sends bytes without blocking a thread.
    pub(super) async fn send_later(&self, bytes: Bytes) -> Result<()> {
        match timeout(self.stall, self.to.send(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(Error::stalled(
                "the client",
                "taking the answer",
                self.stall,
            )),
        }
    }
}

fn gone() -> Error {
    Error::lost("the client", "taking the answer", io::ErrorKind::BrokenPipe)
}

/// An answer of lines: in one piece, with a status that fits, if it is short.
pub(super) struct ReplyLines {
    reply: Option<HttpReply>,
    pipe: Option<BodyPipe>,
    held: Vec<u8>,
}

impl ReplyLines {
    pub(super) fn say(&mut self, line: &Line) -> Result<()> {
        self.held.extend(line.write());
        match self.held.len() > HELD_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Says a line, and has it go out at once.
    pub(super) fn tell(&mut self, line: &Line) -> Result<()> {
        self.say(line)?;
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        if let Some(reply) = self.reply.take() {
            self.pipe = Some(reply.stream(head(StatusCode::OK)));
        }
        let pipe = self.pipe.as_ref().expect("it was begun");
        pipe.send(std::mem::take(&mut self.held).into())
    }

    /// Ends the answer with the result.
    pub(super) fn end(mut self, outcome: Result<(), Refusal>) {
        let (line, status) = match outcome {
            Ok(()) => (Line::End, StatusCode::OK),
            Err(mut refusal) => {
                let theirs = self.reply.as_ref().and_then(HttpReply::theirs);
                // Newer ones know by themselves that this one must be upgraded.
                if refusal.kind == Kind::Protocol
                    && let Some(theirs) = theirs.filter(|theirs| theirs.compared().is_lt())
                {
                    let why = theirs.must_upgrade().unwrap_or_default();
                    refusal.said = format!("{}; {why}", refusal.said);
                }
                let status = StatusCode::from_u16(refusal.kind.status());
                // That something is not there is asked all day.
                match refusal.kind != Kind::Missing {
                    true => tracing::info!(why = ?refusal.kind, said = refusal.said, "refuse"),
                    false => tracing::debug!(why = ?refusal.kind, said = refusal.said, "refuse"),
                }
                (Line::Error(refusal), status.expect("it is a status"))
            }
        };
        self.held.extend(line.write());
        match self.reply.take() {
            Some(reply) => {
                let answer = head(status).body(RequestBody::whole(self.held));
                reply.whole(answer.expect("its headers are ours"));
            }
            None => {
                // A client without the last line knows that the answer is incomplete.
                let _ = self.flush();
            }
        }
    }

    /// Does long work, with a line of progress at intervals. If the client leaves meanwhile, `gone` is called.
    pub(super) fn during<T>(
        self,
        every: Duration,
        news: Arc<dyn Fn() -> Line + Send + Sync>,
        gone: impl Fn() + Send + 'static,
        work: impl FnOnce() -> T,
    ) -> (Self, T) {
        let runtime = match (&self.reply, &self.pipe) {
            (Some(reply), _) => reply.runtime.clone(),
            (None, Some(pipe)) => pipe.runtime.clone(),
            (None, None) => unreachable!("an answer goes somewhere"),
        };
        let lines = Arc::new(Mutex::new(Some(self)));
        let beating = Arc::clone(&lines);
        let task = runtime.spawn(async move {
            let mut looks = interval(LOOK_EVERY.min(every));
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut told_at = Instant::now();
            loop {
                looks.tick().await;
                let mut lines = beating.lock();
                let Some(lines) = lines.as_mut() else { return };
                if lines.is_for_nobody() {
                    return gone();
                }
                if told_at.elapsed() >= every {
                    told_at = Instant::now();
                    lines.beat(&*news);
                }
            }
        });
        let done = work();
        task.abort();
        let mine = lines.lock().take();
        (mine.expect("only this takes it"), done)
    }

    /// Tells whether the visitor is gone.
    fn is_for_nobody(&self) -> bool {
        match (&self.reply, &self.pipe) {
            (Some(reply), _) => reply.head.is_closed(),
            (None, pipe) => pipe.as_ref().is_none_or(|pipe| pipe.to.is_closed()),
        }
    }

    /// Sends a line of progress, unless the client has not read the last one.
    fn beat(&mut self, news: &dyn Fn() -> Line) {
        let is_behind = self.pipe.is_some() && !self.held.is_empty();
        if let Some(reply) = self.reply.take() {
            self.pipe = Some(reply.stream(head(StatusCode::OK)));
        }
        if !is_behind {
            self.held.extend(news().write());
        }
        let pipe = self.pipe.as_ref().expect("it was begun");
        let held = std::mem::take(&mut self.held);
        if let Err(mpsc::error::TrySendError::Full(held)) = pipe.to.try_send(held.into()) {
            self.held = held.into();
        }
    }
}

fn head(status: StatusCode) -> hyper::http::response::Builder {
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, LINES_TYPE)
}

/// Says who answers, and to what.
fn mark(answer: &mut Response<RequestBody>, mark: &RequestId) {
    let headers = answer.headers_mut();
    for (name, text) in [
        (MARK, mark.to_string()),
        ("server", Speaker::ours().to_string()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(name, value);
        }
    }
}

/// Returns the answer for a request whose thread has failed.
pub(super) fn broken(id: &RequestId) -> Response<RequestBody> {
    let line = Line::Error(Refusal::of_kind(
        Kind::Other,
        "the node could not answer; its log says more",
    ));
    let answer = head(StatusCode::INTERNAL_SERVER_ERROR).body(RequestBody::whole(line.write()));
    let mut answer = answer.expect("its headers are ours");
    mark(&mut answer, id);
    answer
}

const HELD_MAX: usize = 64 << 10;
const FRAMES_AHEAD: usize = 4;
/// A link that brings less is not worth a thread.
const PACE_BYTES: usize = 1 << 10;
const PACE_OF_CALL_BYTES: usize = 64 << 10;
/// How often the connection of the client is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often long work sends a line.
pub(super) const BEAT: Duration = crate::task::BEAT;
