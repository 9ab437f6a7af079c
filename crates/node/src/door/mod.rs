//! The door: one port, HTTPS, for all that nodes say to each other.
//!
//! hyper takes connections and cuts requests, a few threads for all of them; what a request wants
//! of the store blocks, so it has a thread from a bounded pool while it lasts. Who comes is judged once
//! a connection. Nothing here decides about data: each call is a verb of the store.

mod calls;
mod grants;
mod heads;
mod health;
mod opening;
mod parked;
mod peers;
mod reading;
mod relay;
mod reply;
mod uploads;
mod via;
mod watched;
mod writing;

use crate::{
    admission::{Admission, Admitted},
    config::Access,
    failure::failure,
    guarded::Guarded,
    listener::Shared,
    metrics::Counted,
    trust::MAPPED,
};
use calls::CALLS;
use godwit_store::door::{Failed, Tls, words::refusal};
use godwit_sys::why;
use godwit_trust::{
    Identity,
    door::{self, Elsewhere, Fingerprint, SslRef},
};
use godwit_wire::door::{
    ROOT,
    call::{Refusal, Why},
    park,
};
use grants::Grants;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use opening::Opening;
use relay::Relay;
use reply::Reply;
use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
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
use uploads::Uploads;
use via::Via;
use watched::{Answer, Seen, Watched};

/// Returns how each call is asked and what it is named, below `wire::door::ROOT`.
pub fn calls() -> impl Iterator<Item = (&'static str, &'static str)> {
    CALLS.iter().map(|call| (call.0.as_str(), call.1))
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Door {
    pub(super) shared: Arc<Shared>,
    pub(super) uploads: Uploads,
    pub(super) grants: Grants,
    relay: Relay,
    pub(super) runtime: Handle,
}

/// Who is at the other end of a connection.
#[derive(Debug)]
struct Visitor {
    peer: SocketAddr,
    /// What the key that was shown hashes to.
    key: Option<Fingerprint>,
    /// What may be done, or why nothing.
    access: Result<Known, Refusal>,
}

/// Somebody who may do something.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// `None`: somebody who does not say who they are.
    who: Option<Identity>,
    account: Option<String>,
    pub(super) dir: Guarded,
    may_write: bool,
}

impl Known {
    /// Under which name the uploads of this person are kept.
    fn owner(&self) -> &str {
        self.who.as_ref().map_or("", Identity::subject)
    }
}

/// What a connection has for as long as it, or what it became, goes on. Clones are of the same one.
#[derive(Clone)]
struct Stay {
    _inside: Arc<(Admitted, Counted)>,
    draining: watch::Receiver<()>,
}

impl Stay {
    fn new(door: &Door, admitted: Admitted, draining: watch::Receiver<()>) -> Self {
        Self {
            _inside: Arc::new((admitted, door.shared.metrics.connected())),
            draining,
        }
    }
}

/// Begins to take connections, and to be reached through others; returns where, and the thread that ends when the node has stopped
/// and nobody is left.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    listeners: Vec<TcpListener>,
    connections_max: usize,
) -> io::Result<(Vec<SocketAddr>, JoinHandle<()>)> {
    let workers = thread::available_parallelism().map_or(2, usize::from);
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers.clamp(2, WORKERS_MAX))
        .max_blocking_threads(CALLS_MAX)
        .thread_stack_size(STACK_BYTES)
        .thread_name("door")
        .enable_all()
        .build()?;
    let door = Arc::new(Door {
        shared: Arc::clone(shared),
        uploads: Uploads::default(),
        grants: Grants::default(),
        relay: Relay::default(),
        runtime: runtime.handle().clone(),
    });
    let admission = Admission::new(connections_max, connections_max);
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
        runtime.spawn(via::keep(Arc::new(Via {
            door: Arc::clone(&door),
            admission: Arc::clone(&admission),
            draining: draining.clone(),
            name: name.clone(),
            at: Mutex::default(),
        })));
    }
    let thread = thread::Builder::new()
        .name("doorkeeper".into())
        .stack_size(STACK_BYTES)
        .spawn(move || keep(runtime, &door, &admission, drain))?;
    Ok((addresses, thread))
}

/// Waits until the node is to stop, and then until the last request has been answered.
fn keep(runtime: Runtime, door: &Door, admission: &Admission, drain: watch::Sender<()>) {
    let stop = &door.shared.stop;
    let kept = door.shared.config.limits.upload;
    let every = SWEEP_EVERY.min(kept.max(SWEEP_EVERY_MIN));
    while !stop.is_draining() {
        let _ = godwit_sys::wait_readable([stop.draining()], every);
        door.uploads.forget_idle(kept);
        door.grants.forget_old();
    }
    drop(drain);
    let grace = door.shared.config.limits.grace;
    let mut left = grace;
    while !left.is_zero() && !stop.is_ending() && !admission.wait_until_empty(left.min(LOOK_EVERY))
    {
        left = left.saturating_sub(LOOK_EVERY);
    }
    // What is being written is kept by its upload.
    runtime.shutdown_timeout(LAST_WORDS);
}

struct Accept {
    door: Arc<Door>,
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
        match self.admission.admit(peer.ip().to_canonical()) {
            Ok(admitted) => {
                let door = Arc::clone(&self.door);
                let stay = Stay::new(&door, admitted, self.draining.clone());
                let _ = stream.set_nodelay(true);
                tokio::spawn(receive(door, stream, peer, stay));
            }
            Err(why) => tracing::warn!(%peer, why, "turned away"),
        }
    }
}

/// One connection, to its end; it may be for somebody whom we know the way to.
async fn receive(door: Arc<Door>, stream: TcpStream, peer: SocketAddr, stay: Stay) {
    let (elsewhere, diverted) = (Elsewhere::default(), Arc::default());
    let stream = Opening::new(stream, elsewhere.clone(), Arc::clone(&diverted));
    if let Some(tls) = meet(&door, stream, &elsewhere, peer).await {
        return converse(door, tls, peer, stay).await;
    }
    let diverted = diverted
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(diverted) = diverted {
        relay::divert(&door, diverted, peer, stay).await;
    }
}

/// One connection that can only be for us, to its end.
async fn attend<S>(door: Arc<Door>, stream: S, peer: SocketAddr, stay: Stay)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if let Some(tls) = meet(&door, stream, &Elsewhere::default(), peer).await {
        converse(door, tls, peer, stay).await;
    }
}

/// What is said under TLS.
async fn converse<S>(door: Arc<Door>, tls: Tls<S>, peer: SocketAddr, stay: Stay)
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
    let seen = Arc::new(Seen::default());
    let watched = Watched::new(tls, &seen, stall);
    let answer = service_fn(move |request| {
        let (door, visitor, seen) = (Arc::clone(&door), Arc::clone(&visitor), Arc::clone(&seen));
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

/// What hyper says, and beneath it what we or the system said; and whether we were tired of waiting.
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

/// Agrees on TLS; why that failed goes to the log, unless somebody else is wanted.
async fn meet<S>(door: &Door, stream: S, elsewhere: &Elsewhere, peer: SocketAddr) -> Option<Tls<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let begun = async {
        let ssl = door.shared.trust.door().and_then(|way| way.open(elsewhere));
        let begun = Tls::begin(ssl.map_err(|error| error.to_string())?, stream).await;
        begun.map_err(|failed| match failed {
            Failed::Io(cause) => why(&cause),
            Failed::Said(error) => error.to_string(),
            Failed::Elsewhere => "it wants somebody else".into(),
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

impl Door {
    fn visitor(&self, ssl: &SslRef, peer: SocketAddr) -> Visitor {
        let key = door::key_shown(ssl);
        let access = match &key {
            Ok(None) => match door::member_visitor(ssl) {
                Some(member) => self.known(member),
                None => self.nobody(),
            },
            Ok(Some(key)) => self.shown(ssl, key),
            Err(error) => Err(said(Why::Denied, error.told())),
        };
        match &access {
            Ok(known) => {
                tracing::debug!(%peer, who = known.owner(), account = known.account, "visit")
            }
            Err(refusal) => {
                let by = if matches!(key, Ok(None)) {
                    "nothing"
                } else {
                    "certificate"
                };
                self.shared.metrics.denied(by);
                tracing::info!(%peer, why = refusal.said, "a visitor may do nothing");
            }
        }
        let key = key.ok().flatten();
        Visitor { peer, key, access }
    }

    /// Who shows a key is a peer, or somebody for whom an authority vouches.
    fn shown(&self, ssl: &SslRef, key: &Fingerprint) -> Result<Known, Refusal> {
        let trust = &self.shared.trust;
        let denied = |error: godwit_trust::Error| {
            tracing::info!(%error, "a visitor is not known");
            said(Why::Denied, error.told())
        };
        let peer = trust.home().map(|home| home.peer_with(key)).transpose();
        if let Some(peer) = peer.map_err(denied)?.flatten() {
            return self.peer(&peer.name);
        }
        let authorities = trust.authorities_if_any();
        self.known(door::vouched_visitor(ssl, &authorities).map_err(denied)?)
    }

    /// A node that joined acts as the account of this one, or as what the gridmap says.
    fn peer(&self, name: &str) -> Result<Known, Refusal> {
        let who = door::peer(name);
        let account = self.shared.trust.account_of_peer(&who);
        let account = account.map_err(|why| said(Why::Denied, why))?;
        let dir = match &account {
            Some(account) => self.shared.dir_of(account, &who),
            None => self.shared.dir_of_guest(&who),
        };
        Ok(Known {
            who: Some(who),
            account,
            dir: dir.map_err(|error| refused(&error))?,
            may_write: true,
        })
    }

    fn known(&self, who: Identity) -> Result<Known, Refusal> {
        let account = self.shared.trust.account(&who, MAPPED);
        let account = account.map_err(|why| said(Why::Denied, why))?;
        let dir = self.shared.dir_of(&account, &who);
        let dir = dir.map_err(|error| refused(&error))?;
        Ok(Known {
            who: Some(who),
            account: Some(account),
            dir,
            may_write: true,
        })
    }

    fn nobody(&self) -> Result<Known, Refusal> {
        let access = self.shared.config.anonymous;
        if access == Access::None {
            let why = "this node wants to know who you are: show a certificate";
            return Err(said(Why::Denied, why.into()));
        }
        Ok(Known {
            who: None,
            account: None,
            dir: self.shared.dir_of_anybody(),
            may_write: access == Access::Write || self.shared.asks_rights(),
        })
    }
}

/// Answers one request, in a thread that may wait.
async fn answer(
    door: Arc<Door>,
    visitor: Arc<Visitor>,
    seen: &Arc<Seen>,
    request: Request<Incoming>,
    stay: Stay,
) -> Response<Answer> {
    let (begun_at, method) = (Instant::now(), request.method().clone());
    let checked = heads::check(&request, seen.asked());
    let is_last = checked.is_err();
    let (reply, begun) = Reply::new(&door, &request);
    let (id, heard) = (reply.mark().clone(), reply.heard());
    match checked {
        Err(refusal) => {
            let span = tracing::info_span!("request", id = %reply.mark(), peer = %visitor.peer);
            span.in_scope(|| reply.refuse(refusal));
        }
        Ok(()) if is_parking(&request) => relay::park(&door, &visitor, request, reply, &stay),
        Ok(()) => {
            let runtime = door.runtime.clone();
            let working = Arc::clone(&door);
            runtime.spawn_blocking(move || {
                let span = tracing::info_span!("request", id = %reply.mark(), peer = %visitor.peer);
                let _inside = span.enter();
                calls::answer(&working, &visitor, request, reply);
            });
        }
    }
    let mut answer = begun.await.unwrap_or_else(|_| reply::broken(&id));
    let code = answer.status().as_u16();
    door.shared
        .metrics
        .answered(method.as_str(), code, begun_at.elapsed());
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        seen.pass();
    }
    if is_last {
        // Where the next one begins would be a guess.
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer.map(|body| Answer::new(body, seen, heard))
}

fn is_parking(request: &Request<Incoming>) -> bool {
    let call = request.uri().path().strip_prefix(ROOT);
    request.method() == Method::POST && call == Some(park::CALL)
}

/// What is told of an error of the store.
fn refused(error: &godwit_store::Error) -> Refusal {
    refusal(error, failure(error).said)
}

fn said(why: Why, said: String) -> Refusal {
    Refusal {
        why,
        said,
        ..Refusal::default()
    }
}

/// Threads that cut requests and protect bytes.
const WORKERS_MAX: usize = 8;
/// Requests that have a thread at once; others wait.
const CALLS_MAX: usize = 512;
const STACK_BYTES: usize = 512 << 10;
const HANDSHAKE: Duration = Duration::from_secs(20);
const HEADERS_MAX: usize = 64;
const HEADERS_BYTES_MAX: usize = 64 << 10;
const BUFFER_BYTES: usize = 512 << 10;
const OUT_OF_BREATH: Duration = Duration::from_millis(50);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LAST_WORDS: Duration = Duration::from_secs(5);
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(100);
