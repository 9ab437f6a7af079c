//! The door: one HTTPS port for all calls between nodes.
//!
//! A few threads of hyper accept connections and divide requests. A request blocks on the store, so it has a thread
//! from a bounded pool. A client's rights are checked for its connection. This module decides nothing about data: each
//! call is a verb of the store.

mod caller;
mod calls;
mod catalog;
mod depot;
mod download;
mod grants;
mod headers;
mod health;
mod metered;
mod noted;
mod pack;
mod park;
mod peers;
mod reply;
mod run;
mod sources;
mod upload;
mod writing;

use crate::{
    base::{
        admission::{Admission, Admitted, Party},
        current::Current,
        idle::{Busy, IdleConnections, Stay, TrackedConnection},
    },
    relay::{
        Relay,
        client_hello::HelloStream,
        divert,
        uplink::{self, UplinkNode},
    },
    shared::NodeState,
};
use caller::{Caller, KnownCaller, Visitor};
use calls::{CALLS, ReceivedCall};
use godwit_core::Kind;
use godwit_store::door::{Tls, TlsFailure};
use godwit_sys::{bound_unsent, why};
use godwit_trust::door::Elsewhere;
use godwit_wire::door::{
    ROOT,
    call::{NEW_KEY, Refusal},
    park as parking,
};
use grants::Grants;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONNECTION, HeaderValue, RETRY_AFTER},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use metered::{AnswerBody, SeenRequests, WatchedStream};
use noted::Readings;
use parking_lot::Mutex;
use reply::HttpReply;
use sources::SourceConnections;
use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::{SocketAddr, TcpListener},
    os::fd::AsFd,
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    time::timeout,
};

use upload::Uploads;

/// Returns the method and the name of each call, below `wire::door::ROOT`.
pub fn calls() -> impl Iterator<Item = (&'static str, &'static str)> {
    CALLS.iter().map(|call| (call.0.as_str(), call.1))
}

/// State that all connections share.
#[derive(Debug)]
pub(crate) struct HttpsDoor {
    pub(super) shared: Arc<NodeState>,
    pub(super) uploads: Arc<Uploads>,
    pub(super) grants: Arc<Grants>,
    pub(super) readings: Arc<Readings>,
    pub(super) sources: Arc<SourceConnections>,
    relay: Arc<Relay>,
    /// Places for requests.
    requests: Arc<Admission>,
    idle: Arc<IdleConnections>,
    pub(super) runtime: Handle,
    /// How many configurations there were before this one.
    pub(super) generation: u64,
    /// The current door, if this one was replaced.
    current: Weak<Current<HttpsDoor>>,
}

impl HttpsDoor {
    /// Returns the same door under another configuration.
    pub(crate) fn again(&self, shared: &Arc<NodeState>) -> Self {
        Self {
            shared: Arc::clone(shared),
            uploads: Arc::clone(&self.uploads),
            grants: Arc::clone(&self.grants),
            readings: Arc::clone(&self.readings),
            sources: Arc::clone(&self.sources),
            runtime: self.runtime.clone(),
            generation: self.generation + 1,
            relay: Arc::clone(&self.relay),
            requests: Arc::clone(&self.requests),
            idle: Arc::clone(&self.idle),
            current: Weak::clone(&self.current),
        }
    }

    /// Returns the door as it is now.
    fn now(self: &Arc<Self>) -> Arc<Self> {
        let current = self.current.upgrade();
        current.map_or_else(|| Arc::clone(self), |current| current.now())
    }
}

/// A door that is open.
#[derive(Debug)]
pub(crate) struct OpenedDoor {
    /// Where it is.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Ends when the node has stopped and no client is left.
    pub(crate) keeper: JoinHandle<()>,
    pub(crate) door: Arc<Current<HttpsDoor>>,
}

/// Begins to take connections, and to be reached through others.
pub(crate) fn begin(
    shared: &Arc<NodeState>,
    listeners: Vec<TcpListener>,
    connections_max: usize,
) -> io::Result<OpenedDoor> {
    let workers = thread::available_parallelism().map_or(2, usize::from);
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers.clamp(2, WORKERS_MAX))
        .max_blocking_threads(CALLS_MAX)
        .thread_stack_size(STACK_BYTES)
        .thread_name("door")
        .enable_all()
        .build()?;
    let door = Current::new_cyclic(|current| HttpsDoor {
        shared: Arc::clone(shared),
        uploads: Arc::default(),
        grants: Arc::default(),
        readings: Arc::default(),
        sources: Arc::default(),
        relay: Arc::default(),
        requests: Arc::new(
            Admission::new("requests", REQUESTS_MAX, REQUESTS_OF_ADDRESS_MAX)
                .with_peers(REQUESTS_MAX / 4, REQUESTS_OF_PEER_MAX),
        ),
        idle: Arc::default(),
        runtime: runtime.handle().clone(),
        generation: 0,
        current: Weak::clone(current),
    });
    let admission = Admission::new("connections", connections_max, connections_max);
    let admission = Arc::new(admission);
    let (drain, draining) = watch::channel(());
    let mut addresses = Vec::new();
    for listener in listeners {
        listener.set_nonblocking(true)?;
        addresses.push(listener.local_addr()?);
        let inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        drop(inside);
        let accept = Accept {
            door: Arc::clone(&door),
            admission: Arc::clone(&admission),
            draining: draining.clone(),
        };
        runtime.spawn(accept.all(listener));
    }
    for name in &shared.config.via {
        let (host, drained) = (door.now(), draining.clone());
        runtime.spawn(uplink::keep(Arc::new(UplinkNode {
            shared: Arc::clone(&host.shared),
            attend: Box::new(move |stream, from, admitted| {
                let stay = Stay::new(
                    (&host.idle, &host.shared.metrics),
                    admitted,
                    drained.clone(),
                    from,
                );
                Box::pin(attend(Arc::clone(&host), stream, from, stay))
            }),
            admission: Arc::clone(&admission),
            draining: draining.clone(),
            name: name.clone(),
            at: Mutex::default(),
        })));
    }
    let kept = door.now();
    let keeper = thread::Builder::new()
        .name("doorkeeper".into())
        .stack_size(STACK_BYTES)
        .spawn(move || keep(runtime, &kept, &admission, drain))?;
    Ok(OpenedDoor {
        addresses,
        keeper,
        door,
    })
}

/// Waits until the node is to stop, and then until uploads have ended and the last request has been
/// answered.
fn keep(runtime: Runtime, door: &HttpsDoor, admission: &Admission, drain: watch::Sender<()>) {
    let stop = &door.shared.stop;
    let kept = door.shared.config.limits.upload;
    let every = SWEEP_EVERY.min(kept.max(SWEEP_EVERY_MIN));
    while !stop.is_draining() {
        let _ = godwit_sys::wait_readable([stop.draining()], every);
        door.uploads.forget_idle(kept);
        door.readings.forget_idle();
        door.sources.forget_idle();
        door.grants.forget_old();
    }
    let over = Instant::now() + door.shared.config.limits.grace;
    let left = || over.saturating_duration_since(Instant::now());
    let may_wait = || !left().is_zero() && !stop.is_ending();
    // Between two ranges of one file no request is open, and yet the transfer is in flight.
    let stall = door.shared.config.limits.stall;
    while may_wait() && (door.uploads.go_on(stall) || door.readings.go_on()) {
        let _ = godwit_sys::wait_readable([stop.ending()], left().min(LOOK_EVERY));
    }
    drop(drain);
    while may_wait() && !admission.wait_until_empty(left().min(LOOK_EVERY)) {}
    // Uploads in flight are kept as partials.
    runtime.shutdown_timeout(LAST_WORDS);
    door.readings.forget_all();
    door.sources.forget_all();
    door.uploads.forget_all();
}

struct Accept {
    door: Arc<Current<HttpsDoor>>,
    admission: Arc<Admission>,
    draining: watch::Receiver<()>,
}

impl Accept {
    async fn all(self, listener: tokio::net::TcpListener) {
        let mut draining = self.draining.clone();
        loop {
            let mut drained = pin!(draining.changed());
            let accepted = poll_fn(|context| match drained.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(None),
                Poll::Pending => listener.poll_accept(context).map(Some),
            });
            match accepted.await {
                None => return,
                Some(Ok((stream, peer))) => self.take(stream, peer),
                Some(Err(error)) => {
                    tracing::debug!(error = why(&error), "lost before it was accepted");
                    // Of what runs out, others must give back first.
                    tokio::time::sleep(OUT_OF_BREATH).await;
                }
            }
        }
    }

    fn take(&self, stream: TcpStream, peer: SocketAddr) {
        match self
            .admission
            .admit(Party::Address(peer.ip().to_canonical()))
        {
            Ok(admitted) => {
                let door = self.door.now();
                let idle = (&door.idle, &*door.shared.metrics);
                let stay = Stay::new(idle, admitted, self.draining.clone(), peer);
                let _ = stream.set_nodelay(true);
                // Hundreds of slow readers would have megabytes each encrypted ahead, and others wait for that.
                bound_unsent(stream.as_fd(), UNSENT_BYTES_MAX);
                tokio::spawn(async move {
                    let tracked = Arc::clone(&stay.tracked);
                    tracked.host(receive(door, stream, peer, stay)).await;
                });
            }
            Err(why) => tracing::warn!(%peer, why, "turned away"),
        }
    }
}

/// Serves one connection to its end; its client may want a parked node instead.
async fn receive(door: Arc<HttpsDoor>, stream: TcpStream, peer: SocketAddr, stay: Stay) {
    let (elsewhere, diverted) = (Elsewhere::default(), Arc::default());
    let stream = HelloStream::new(stream, elsewhere.clone(), Arc::clone(&diverted));
    if let Some(tls) = meet(&door, stream, &elsewhere, peer).await {
        return converse(door, tls, peer, stay).await;
    }
    let diverted = diverted.lock().take();
    if let Some(diverted) = diverted {
        stay.tracked.work(None);
        divert((&door.relay, &door.shared), diverted, peer, stay).await;
    }
}

/// One connection that can only be for us, to its end.
async fn attend<S>(door: Arc<HttpsDoor>, stream: S, peer: SocketAddr, stay: Stay)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tracked = Arc::clone(&stay.tracked);
    let talk = async {
        if let Some(tls) = meet(&door, stream, &Elsewhere::default(), peer).await {
            converse(Arc::clone(&door), tls, peer, stay).await;
        }
    };
    tracked.host(talk).await;
}

/// Serves a connection under TLS.
async fn converse<S>(door: Arc<HttpsDoor>, tls: Tls<S>, peer: SocketAddr, stay: Stay)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let visitor = Arc::new(door.visitor(tls.ssl(), peer));
    let mut draining = stay.draining.clone();
    // From the end of an answer to the end of the next headers; once they have begun, a stall.
    let (idle, stall) = {
        let limits = &door.shared.config.limits;
        (limits.idle, limits.stall)
    };
    let seen = Arc::new(SeenRequests::default());
    let watched = WatchedStream::new(tls, &seen, stall);
    let answer = service_fn(move |request| {
        // A request uses the current configuration.
        let (door, visitor, seen) = (door.now(), Arc::clone(&visitor), Arc::clone(&seen));
        let stay = stay.clone();
        async move { Ok::<_, Infallible>(answer(door, visitor, &seen, request, stay).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(idle)
            .max_headers(HEADERS_MAX)
            .max_header_size(HEADERS_BYTES_MAX)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(watched), answer)
            .with_upgrades()
    );
    // Kept from poll to poll: who drops it is not woken by it.
    let mut drained = pin!(draining.changed());
    let mut is_draining = false;
    let ended = poll_fn(|context| {
        if !is_draining && drained.as_mut().poll(context).is_ready() {
            is_draining = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    });
    if let Err(error) = ended.await {
        let (why, is_slow) = whole(&error);
        // Who goes away, or has nothing more to ask, is no news.
        match error.is_parse() || is_slow {
            true => tracing::info!(%peer, why, "a connection ended"),
            false => tracing::debug!(%peer, why, "a connection ended"),
        }
    }
}

/// Returns the text of an error with its cause, and whether a deadline of ours ended the connection.
fn whole(error: &hyper::Error) -> (String, bool) {
    let (mut said, mut is_slow) = (error.to_string(), false);
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        said = format!("{said}: {next}");
        let io = next.downcast_ref::<io::Error>();
        is_slow |= io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut);
        cause = next.source();
    }
    (said, is_slow)
}

/// Makes the TLS handshake. A failure is logged, unless the client wants a parked node.
async fn meet<S>(
    door: &HttpsDoor,
    stream: S,
    elsewhere: &Elsewhere,
    peer: SocketAddr,
) -> Option<Tls<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let begun = async {
        let ssl = door.shared.trust.door().and_then(|way| way.open(elsewhere));
        let begun = Tls::begin(ssl.map_err(|error| error.to_string())?, stream).await;
        begun.map_err(|failed| match failed {
            TlsFailure::Io(cause) => why(&cause),
            TlsFailure::Said(error) => error.to_string(),
            TlsFailure::Elsewhere => "it wants another node".into(),
        })
    };
    match timeout(HANDSHAKE, begun).await {
        Ok(Ok(tls)) => return Some(tls),
        Ok(Err(_)) if elsewhere.label().is_some() => {}
        Ok(Err(error)) => tracing::info!(%peer, error, "no TLS"),
        Err(_) => tracing::info!(%peer, "no TLS within {} s", HANDSHAKE.as_secs()),
    }
    None
}

/// Answers one request.
async fn answer(
    door: Arc<HttpsDoor>,
    visitor: Arc<Visitor>,
    seen: &Arc<SeenRequests>,
    request: Request<Incoming>,
    stay: Stay,
) -> Response<AnswerBody> {
    let (begun_at, method) = (Instant::now(), request.method().clone());
    let (mut busy, mut place) = (Busy::new(&stay.tracked), None);
    let checked = headers::check(&request, seen.asked());
    let is_last = checked.is_err();
    let (reply, begun) = HttpReply::new(&door, &request);
    let (id, heard) = (reply.mark().clone(), reply.heard());
    let new_key = door.news_for(&visitor);
    match checked {
        Err(refusal) => refuse(&visitor, reply, refusal),
        Ok(()) if is_parking(&request) => park::park(&door, &visitor, request, reply, &stay),
        Ok(()) => place = work(&door, &visitor, request, reply, &stay.tracked).await,
    }
    let mut answer = begun.await.unwrap_or_else(|_| reply::broken(&id));
    if let Some(key) = new_key.and_then(|key| key.to_string().parse().ok()) {
        answer.headers_mut().insert(NEW_KEY, key);
    }
    let code = answer.status().as_u16();
    door.shared
        .metrics
        .answered(method.as_str(), code, begun_at.elapsed());
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        seen.pass();
        busy.pass();
    }
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
        let soon = HeaderValue::from_static("1");
        answer.headers_mut().insert(RETRY_AFTER, soon);
    }
    if is_last {
        // Where the next one begins would be a guess.
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer.map(|body| AnswerBody::new(body, seen, heard, (busy, place)))
}

fn refuse(visitor: &Visitor, reply: HttpReply, refusal: Refusal) {
    span_of(&reply, visitor).in_scope(|| reply.refuse(refusal));
}

/// Returns the span for the log of a request.
fn span_of(reply: &HttpReply, visitor: &Visitor) -> tracing::Span {
    tracing::info_span!("request", id = %reply.mark(), peer = %visitor.peer)
}

/// Has a request answered by a thread, once its client has a place for it and all was heard that the thread would
/// wait for. Returns the place.
async fn work(
    door: &Arc<HttpsDoor>,
    visitor: &Arc<Visitor>,
    request: Request<Incoming>,
    mut reply: HttpReply,
    tracked: &TrackedConnection,
) -> Option<Admitted> {
    if let Some(alive) = health::alive(&request) {
        reply.whole(alive);
        return None;
    }
    let (head, mut body) = request.into_parts();
    let mut access_of_client = None;
    if calls::asks_who(&head) {
        access_of_client = Some(access(door, visitor).await);
    }
    let party = match &access_of_client {
        Some(Ok(known)) if known.who.is_some() => Party::Peer(known.owner().into()),
        _ => Party::Address(visitor.peer.ip().to_canonical()),
    };
    tracked.work(Some(&party));
    let place = match admitted(door, &party).await {
        Ok(place) => place,
        Err(why) => {
            refuse(visitor, reply, Refusal::of_kind(Kind::Busy, why));
            return None;
        }
    };
    let may_ask = access_of_client.is_none_or(|access| access.is_ok());
    let mut text = Vec::new();
    if may_ask && calls::is_heard_first(&head, visitor) {
        match reply.text(&mut body).await {
            Ok(heard) => text = heard,
            Err(refusal) => {
                refuse(visitor, reply, refusal);
                return Some(place);
            }
        }
    }
    let (working, visitor) = (Arc::clone(door), Arc::clone(visitor));
    let heard = ReceivedCall { head, text, body };
    door.runtime.spawn_blocking(move || {
        let span = span_of(&reply, &visitor);
        let _inside = span.enter();
        calls::answer(&working, &visitor, heard, reply);
    });
    Some(place)
}

/// Gives a client a place for a request, within a moment.
async fn admitted(door: &HttpsDoor, party: &Party) -> Result<Admitted, String> {
    let begun = Instant::now();
    loop {
        match door.requests.admit(party.clone()) {
            Err(why) if begun.elapsed() > PLACE_PATIENCE => return Err(why),
            Err(_) => tokio::time::sleep(PLACE_EVERY).await,
            Ok(place) => return Ok(place),
        }
    }
}

/// Judges a client; where that may take a look at the disk, in a thread.
async fn access(door: &Arc<HttpsDoor>, visitor: &Visitor) -> Result<KnownCaller, Refusal> {
    if let Some(access) = door.access_at_once(&visitor.who) {
        return access;
    }
    let (judging, who) = (Arc::clone(door), Arc::clone(&visitor.who));
    let judged = door.runtime.spawn_blocking(move || judging.access(&who));
    let judged = judged.await;
    judged.unwrap_or_else(|error| Err(Refusal::of_kind(Kind::Other, error.to_string())))
}

fn is_parking(request: &Request<Incoming>) -> bool {
    let call = request.uri().path().strip_prefix(ROOT);
    request.method() == Method::POST && call == Some(parking::CALL)
}

/// Returns the refusal of new work while the node stops.
fn stopping() -> Refusal {
    Refusal::of_kind(Kind::Busy, "this node is stopping")
}

/// Threads that cut requests and protect bytes.
const WORKERS_MAX: usize = 8;
/// Threads that may wait.
const CALLS_MAX: usize = 512;
/// The most requests at once, each with a thread. The remaining threads read files and check clients.
const REQUESTS_MAX: usize = 448;
const REQUESTS_OF_ADDRESS_MAX: usize = 128;
const REQUESTS_OF_PEER_MAX: usize = 384;
/// How long a request waits for a place before it gets 503, and how often it checks.
const PLACE_PATIENCE: Duration = Duration::from_secs(1);
const PLACE_EVERY: Duration = Duration::from_millis(50);
const STACK_BYTES: usize = 512 << 10;
const HANDSHAKE: Duration = Duration::from_secs(20);
const HEADERS_MAX: usize = 64;
const HEADERS_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 512 << 10;
const UNSENT_BYTES_MAX: i32 = 128 << 10;
const OUT_OF_BREATH: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LAST_WORDS: Duration = Duration::from_secs(5);
const SWEEP_EVERY: Duration = Duration::from_secs(2);
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(100);
