//! Relays visitors to nodes that cannot be reached themselves.
//!
//! A node that joined parks connections here. A visitor names its key in the first message of TLS, and gets one of
//! them, byte by byte from the beginning. TLS is between the two, so the relay can read none of it.

pub(crate) mod client_hello;
mod parked;
pub(crate) mod uplink;

use crate::{
    base::{idle::Stay, metrics::TrafficDirection},
    shared::NodeState,
};
use client_hello::Diverted;
use parked::ParkedStream;

use godwit_sys::why;
use godwit_trust::{Peer, door::Fingerprint};
use godwit_wire::door::park::{BEAT, ParkLine, SILENCE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, oneshot},
    time::{Instant, MissedTickBehavior, interval, interval_at, timeout},
};

/// The parked connections, by the label of their node's key.
#[derive(Default)]
pub(crate) struct Relay {
    berths: Mutex<HashMap<String, Berth>>,
}

/// The connections of one node.
struct Berth {
    key: Fingerprint,
    /// Those that wait for a visitor, the last that came behind the others.
    waiting: VecDeque<Call>,
    /// How many there are, those that visitors have among them.
    standing: usize,
    /// Something has changed.
    news: Arc<Notify>,
}

/// Requests a parked connection.
type Call = oneshot::Sender<oneshot::Sender<Moored>>;

/// A connection that waits, or is a visitor's.
struct Moored {
    line: ParkedStream<TokioIo<Upgraded>>,
    /// Last: it may be the last of its node.
    standing: CountedConnection,
    stay: Stay,
}

/// Counts a connection for as long as it lasts.
struct CountedConnection {
    relay: Arc<Relay>,
    label: String,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relay({})", self.berths.lock().len())
    }
}

impl Relay {
    /// Has one more wait. More than a few of one node are of no use: then the oldest goes, which may
    /// be of a machine that is gone.
    fn offer(&self, label: &str) -> oneshot::Receiver<oneshot::Sender<Moored>> {
        let (call, called) = oneshot::channel();
        if let Some(berth) = self.berths.lock().get_mut(label) {
            berth.waiting.retain(|call| !call.is_closed());
            berth.waiting.push_back(call);
            if berth.waiting.len() > WAITING_MAX {
                berth.waiting.pop_front();
            }
            berth.news.notify_waiters();
        }
        called
    }

    /// Waits for a parked connection of a node; `None`: it has none.
    async fn take(&self, label: &str) -> Option<Moored> {
        loop {
            let news = Arc::clone(&self.berths.lock().get(label)?.news);
            let mut news = pin!(news.notified());
            // Registers before the check, so that no change is missed.
            news.as_mut().enable();
            match self.call(label) {
                None => news.await,
                Some(comes) => {
                    // A connection that is late returns to its place.
                    if let Ok(Ok(moored)) = timeout(COMES, comes).await {
                        return Some(moored);
                    }
                }
            }
        }
    }

    fn call(&self, label: &str) -> Option<oneshot::Receiver<Moored>> {
        let mut berths = self.berths.lock();
        let berth = berths.get_mut(label)?;
        while let Some(call) = berth.waiting.pop_back() {
            let (to, comes) = oneshot::channel();
            if call.send(to).is_ok() {
                return Some(comes);
            }
        }
        None
    }

    /// Ends the parked connections of a node that left; those of visitors stay.
    pub(crate) fn forget(&self, key: &Fingerprint) {
        if let Some(berth) = self.berths.lock().get_mut(&key.label()) {
            berth.waiting.clear();
        }
    }
}

impl CountedConnection {
    fn new(relay: &Arc<Relay>, key: &Fingerprint) -> Self {
        let label = key.label();
        let mut berths = relay.berths.lock();
        let berth = berths.entry(label.clone()).or_insert_with(|| Berth {
            key: *key,
            waiting: VecDeque::new(),
            standing: 0,
            news: Arc::default(),
        });
        berth.standing += 1;
        drop(berths);
        Self {
            relay: Arc::clone(relay),
            label,
        }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut berths = self.relay.berths.lock();
        if let Some(berth) = berths.get_mut(&self.label) {
            berth.standing -= 1;
            if berth.standing == 0 {
                berth.news.notify_waiters();
                berths.remove(&self.label);
            }
        }
    }
}

/// Tells whether a key is that of a peer.
fn is_peer(shared: &NodeState, key: &Fingerprint) -> bool {
    let known = shared.trust.home().map(|home| home.peer_with(key));
    matches!(known, Some(Ok(Some(_))))
}

/// Events of a parked connection.
enum ParkedEvent {
    Called(oneshot::Sender<Moored>),
    /// Others took its place, or its node left.
    Unwanted,
    Said(io::Result<ParkLine>),
    Beat,
    Draining,
}

/// Waits until a visitor takes the connection; an error is why it ended before.
pub(crate) async fn wait(
    (relay, shared): (&Arc<Relay>, &NodeState),
    peer: Peer,
    upgrade: OnUpgrade,
    stay: Stay,
) -> Result<(), String> {
    let stream = timeout(BEAT, upgrade).await.map_err(|_| "it never came")?;
    let stream = stream.map_err(|error| error.to_string())?;
    let _parked = shared.metrics.parked();
    let mut draining = stay.draining.clone();
    let mut moored = Moored {
        line: ParkedStream::new(TokioIo::new(stream)),
        standing: CountedConnection::new(relay, &peer.key),
        stay,
    };
    tracing::debug!(name = peer.name, "parked");
    let label = moored.standing.label.clone();
    let mut called = relay.offer(&label);
    let mut beats = interval_at(Instant::now() + BEAT, BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drained = pin!(draining.changed());
    let mut heard_at = Instant::now();
    loop {
        let event = poll_fn(|context| {
            if let Poll::Ready(call) = Pin::new(&mut called).poll(context) {
                return Poll::Ready(call.map_or(ParkedEvent::Unwanted, ParkedEvent::Called));
            }
            if drained.as_mut().poll(context).is_ready() {
                return Poll::Ready(ParkedEvent::Draining);
            }
            if let Poll::Ready(said) = moored.line.poll_said(context) {
                return Poll::Ready(ParkedEvent::Said(said));
            }
            beats.poll_tick(context).map(|_| ParkedEvent::Beat)
        });
        match event.await {
            ParkedEvent::Called(to) => match to.send(moored) {
                Ok(()) => return Ok(()),
                // The visitor did not wait.
                Err(back) => {
                    moored = back;
                    called = relay.offer(&label);
                }
            },
            ParkedEvent::Unwanted => return Err("others took its place, or its node left".into()),
            ParkedEvent::Draining => return Err("this node is stopping".into()),
            ParkedEvent::Said(Ok(ParkLine::Beat)) => heard_at = Instant::now(),
            ParkedEvent::Said(Ok(_)) => {
                return Err("it sent a line that is not allowed while it waits".into());
            }
            ParkedEvent::Said(Err(error)) => return Err(why(&error)),
            ParkedEvent::Beat if heard_at.elapsed() > SILENCE => {
                return Err("it fell silent".into());
            }
            ParkedEvent::Beat => {
                if !is_peer(shared, &peer.key) {
                    return Err("its node left".into());
                }
                let said = moored.line.say(ParkLine::Beat, &[], SILENCE).await;
                said.map_err(|error| why(&error))?;
            }
        }
    }
}

/// Passes a visitor on to the node that it wants, to the end.
pub(crate) async fn divert(
    (relay, shared): (&Relay, &NodeState),
    mut visitor: Diverted<TcpStream>,
    from: SocketAddr,
    stay: Stay,
) {
    let label = visitor.label.clone();
    let brought = timeout(PATIENCE, bring((relay, shared), &visitor, from)).await;
    let absent = match brought {
        Ok(Some(moored)) => {
            let _relaying = shared.metrics.relaying();
            let passed = pass(shared, visitor.stream, moored, stay).await;
            let (there, back) = (passed.there, passed.back);
            tracing::info!(peer = %from, label, there, back, why = passed.why, "passed on");
            return;
        }
        Ok(None) => "no such node is connected",
        Err(_) => "no connection of that node became free",
    };
    shared.metrics.failed("absent");
    tracing::info!(peer = %from, label, why = absent, "a visitor was not passed on");
    let said = async {
        visitor.stream.write_all(&visitor.refusal).await?;
        visitor.stream.shutdown().await?;
        // An immediate close would discard the last message.
        let mut rest = [0; 512];
        while visitor.stream.read(&mut rest).await? > 0 {}
        Ok::<(), io::Error>(())
    };
    // A client that misses the message sees the end.
    let _ = timeout(LAST_WORD, said).await;
}

/// Returns a connection after its node has accepted the visitor.
async fn bring(
    (relay, shared): (&Relay, &NodeState),
    visitor: &Diverted<TcpStream>,
    from: SocketAddr,
) -> Option<Moored> {
    for _ in 0..TRIES {
        let mut moored = relay.take(&visitor.label).await?;
        let key = relay.berths.lock().get(&visitor.label)?.key;
        if !is_peer(shared, &key) {
            relay.forget(&key);
            return None;
        }
        let said = moored
            .line
            .say(ParkLine::Visitor(from), &visitor.heard, TAKES);
        let taken = match said.await {
            Ok(()) => taken(&mut moored).await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => return Some(moored),
            Err(error) => tracing::debug!(why = why(&error), "a parked connection is of no use"),
        }
    }
    None
}

async fn taken(moored: &mut Moored) -> io::Result<()> {
    loop {
        match moored.line.hear(TAKES).await? {
            // It was on its way.
            ParkLine::Beat => {}
            ParkLine::Taken => return Ok(()),
            ParkLine::Visitor(_) => return Err(io::Error::other("it sends us visitors")),
        }
    }
}

/// How many bytes were passed each way, and how the connection ended.
struct Passed {
    there: u64,
    back: u64,
    why: String,
}

/// Passes bytes on both ways until both have ended, one breaks, or nothing moves.
async fn pass(shared: &NodeState, visitor: TcpStream, moored: Moored, stay: Stay) -> Passed {
    let (from_visitor, to_visitor) = visitor.into_split();
    let Moored {
        line,
        standing: _standing,
        stay: _theirs,
    } = moored;
    let (from_node, to_node) = tokio::io::split(line.into_stream());
    let (there, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let metrics = &shared.metrics;
    let mut going = pin!(pump(
        from_visitor,
        to_node,
        &there,
        metrics.relayed(TrafficDirection::In)
    ));
    let mut coming = pin!(pump(
        from_node,
        to_visitor,
        &back,
        metrics.relayed(TrafficDirection::Out)
    ));
    let mut quiet = Quiet::new(shared.config.limits.idle);
    let mut draining = stay.draining.clone();
    let mut drained = pin!(draining.changed());
    let (mut ends, mut is_draining) = ([false; 2], false);
    let why = poll_fn(|context| {
        if !is_draining && drained.as_mut().poll(context).is_ready() {
            is_draining = true;
            // A live transfer sends every few seconds; other clients can reconnect elsewhere.
            quiet.limit = quiet.limit.min(QUIET_AT_THE_END);
        }
        if !ends[0]
            && let Poll::Ready(ended) = going.as_mut().poll(context)
        {
            match ended {
                Ok(()) => ends[0] = true,
                Err(error) => return Poll::Ready(format!("there: {}", why(&error))),
            }
        }
        if !ends[1]
            && let Poll::Ready(ended) = coming.as_mut().poll(context)
        {
            match ended {
                Ok(()) => ends[1] = true,
                Err(error) => return Poll::Ready(format!("back: {}", why(&error))),
            }
        }
        if ends == [true; 2] {
            return Poll::Ready("both have ended".into());
        }
        let moved = there.load(Relaxed) + back.load(Relaxed);
        match quiet.poll_over(context, moved) {
            Poll::Ready(()) => Poll::Ready("nothing moved".into()),
            Poll::Pending => Poll::Pending,
        }
    });
    let why = why.await;
    Passed {
        there: there.load(Relaxed),
        back: back.load(Relaxed),
        why,
    }
}

/// How long nothing has moved.
struct Quiet {
    limit: Duration,
    moved: u64,
    since: Instant,
    looks: tokio::time::Interval,
}

impl Quiet {
    fn new(limit: Duration) -> Self {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            limit,
            moved: 0,
            since: Instant::now(),
            looks,
        }
    }

    fn poll_over(&mut self, context: &mut std::task::Context<'_>, moved: u64) -> Poll<()> {
        while self.looks.poll_tick(context).is_ready() {
            if self.moved != moved {
                (self.moved, self.since) = (moved, Instant::now());
            }
            if self.since.elapsed() >= self.limit {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// Passes bytes on, and their end.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &AtomicU64,
    counted: Counter,
) -> io::Result<()> {
    let mut held = vec![0; HELD_BYTES];
    loop {
        let read = from.read(&mut held).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&held[..read]).await?;
        // More bytes may never come, so these are not left in a buffer.
        to.flush().await?;
        moved.fetch_add(read as u64, Relaxed);
        counted.inc_by(read as u64);
    }
}

/// Connections of one node that wait.
const WAITING_MAX: usize = 32;
/// How long a visitor waits for a connection, while the node makes new ones.
const PATIENCE: Duration = Duration::from_secs(10);
/// A node takes a visitor within this, or is gone.
const TAKES: Duration = Duration::from_secs(5);
const COMES: Duration = Duration::from_secs(1);
const TRIES: usize = 4;
const LAST_WORD: Duration = Duration::from_secs(2);
const HELD_BYTES: usize = 64 << 10;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longer than the pause between two signs of life of an answer that takes long.
const QUIET_AT_THE_END: Duration = Duration::from_secs(6);
