//! The data connections of one session: which side connects, how blocks are framed, and which connections are kept
//! for the next transfer.
//!
//! Blocking sockets, one thread a connection and 1 MiB blocks; a transfer that
//! fits into one connection starts no thread at all. The control channel is the caller's.

mod awaited;
mod gauge;
mod link;
mod receive;
mod safety;
mod send;
#[cfg(test)]
mod tests;

pub use crate::watch::{Cancel, Watch};
pub use gauge::Gauge;
pub use godwit_wire::command::TransferMode;
pub use receive::Received;
pub use safety::{LastWord, Safety, Tls, TlsPart};
pub(crate) use send::look;
pub use send::{FileSending, SendReport};

use crate::{Error, Limit, Result, Width};
use awaited::Awaited;
use godwit_core::Extents;
use godwit_sys::{wait_any, wait_readable};
use link::DataLink;
use safety::LinkSide;
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    ops::RangeInclusive,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

/// Whether `open` had to make a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectionUse {
    /// A new connection: servers reply 150.
    New,
    /// A connection left by the transfer before: servers reply 125.
    Reused,
}

/// The data connections of one session.
#[derive(Debug)]
pub struct DataChannel {
    reach: LinkSource,
    links: Vec<Stripe>,
    coming: Option<AwaitedLinks>,
    /// How many ends of data are announced where we send; `None`: our own.
    ends: Option<u64>,
}

/// A connection that is waited for elsewhere.
#[derive(Debug)]
struct AwaitedLinks {
    links: Awaited<Vec<DataLink>>,
    cancel: Cancel,
}

impl Drop for AwaitedLinks {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// How further connections are had.
#[derive(Debug)]
struct LinkSource {
    way: LinkWay,
    /// `None`: the kernel tunes.
    buffer_bytes: Option<u32>,
    /// `None`: nothing is proved, and bytes go in clear.
    safety: Option<Safety>,
}

#[derive(Debug)]
enum LinkWay {
    Listen(DataListener),
    Connect(Vec<SocketAddr>),
}

/// A listener, and the addresses that may connect.
#[derive(Debug)]
struct DataListener {
    listener: TcpListener,
    only: Option<IpAddr>,
}

impl DataListener {
    /// Accepts the next connection from an allowed address; others are closed.
    fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let (stream, from) = self.listener.accept()?;
            let may = |only: IpAddr| from.ip().to_canonical() == only.to_canonical();
            if self.only.is_none_or(may) {
                return Ok((stream, from));
            }
        }
    }
}

impl AsFd for DataListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A connection, and to which of several striped addresses it leads.
#[derive(Debug)]
struct Stripe {
    link: DataLink,
    index: usize,
}

impl DataChannel {
    /// Listens on `ip`, on a free port, or on the first free one of `ports`.
    pub fn listen(ip: IpAddr, ports: Option<RangeInclusive<u16>>) -> Result<(Self, SocketAddr)> {
        let listener = bind(ip, ports).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            if address.ip().to_canonical().is_loopback() {
                godwit_sys::spare_pacing(listener.as_fd());
            }
            Ok((listener, address))
        });
        match listener {
            Ok((listener, address)) => Ok((
                Self {
                    reach: LinkSource::by(LinkWay::Listen(DataListener {
                        listener,
                        only: None,
                    })),
                    links: Vec::new(),
                    coming: None,
                    ends: None,
                },
                address,
            )),
            Err(cause) => Err(Error::unreachable(format!("{ip} (own data port)"), cause)),
        }
    }

    /// Will connect to these addresses: one, or one for each stripe.
    pub fn connect(to: Vec<SocketAddr>) -> Self {
        Self {
            reach: LinkSource::by(LinkWay::Connect(to)),
            links: Vec::new(),
            coming: None,
            ends: None,
        }
    }

    /// Sets how many ends of data are announced at the target, to which others send too. 0: another sender announces
    /// them. `None`: as many as there are connections.
    pub fn announce(&mut self, ends: Option<u64>) {
        self.ends = ends;
    }

    /// Takes connections of this address only.
    pub fn accept_only(&mut self, from: IpAddr) {
        if let LinkWay::Listen(door) = &mut self.reach.way {
            door.only = Some(from);
        }
    }

    /// Sets the protection of connections made later.
    pub fn protect(&mut self, safety: Option<Safety>) {
        self.reach.safety = safety;
    }

    /// Waits in a thread for the first connection, if it needs a proof: a server that connects sends no reply before
    /// the end of the proof.
    pub fn await_proof(&mut self) -> Result<()> {
        let LinkWay::Listen(door) = &self.reach.way else {
            return Ok(());
        };
        if !self.reach.proves_peer() {
            return Ok(());
        }
        let cancel = Cancel::new().map_err(lost)?;
        let watch = Watch::over(cancel.clone(), ALONE_MAX);
        let listener = door.listener.try_clone().map_err(lost)?;
        let reach = LinkSource {
            way: LinkWay::Listen(DataListener {
                listener,
                only: door.only,
            }),
            safety: self.reach.safety.clone(),
            ..self.reach
        };
        let links = Awaited::begin(move || match &reach.way {
            LinkWay::Listen(door) => reach.accept_proved(door, &watch),
            LinkWay::Connect(_) => Ok(Vec::new()),
        });
        self.coming = Some(AwaitedLinks {
            links: links.map_err(lost)?,
            cancel,
        });
        Ok(())
    }

    /// Adds connections that another thread has opened meanwhile.
    fn collect(&mut self, watch: &Watch) -> Result<()> {
        let Some(mut coming) = self.coming.take() else {
            return Ok(());
        };
        let mut patience = watch.patience();
        let links = coming.links.wait("the peer", ACCEPTING, &mut patience)?;
        let stripe = |link| Stripe { link, index: 0 };
        self.links.extend(links.into_iter().map(stripe));
        Ok(())
    }

    /// Sets the buffer size of connections; `None`: the kernel's choice, for connections made later.
    pub fn size_buffers(&mut self, bytes: Option<u32>) {
        if let Some(bytes) = bytes
            && self.reach.buffer_bytes != Some(bytes)
        {
            for stripe in &self.links {
                // A connection that cannot be set is no worse than it was.
                let _ = stripe.link.size_buffers(bytes);
            }
        }
        self.reach.buffer_bytes = bytes;
    }

    /// Tells whether connections of an earlier transfer are still there.
    pub fn is_warm(&mut self) -> bool {
        self.links.retain_mut(|stripe| !stripe.link.is_stale());
        !self.links.is_empty()
    }

    /// Returns once there is a connection.
    ///
    /// The connecting side makes `streams` connections, or more if some stripe would lack one. The listening side
    /// waits for one, and accepts all that have arrived: a client that lets the server send opens all before it asks.
    pub fn open(&mut self, streams: usize, watch: &Watch) -> Result<ConnectionUse> {
        if self.is_warm() {
            return Ok(ConnectionUse::Reused);
        }
        self.reach.check_dates()?;
        self.collect(watch)?;
        let streams = match &self.reach.way {
            LinkWay::Listen(_) => 1,
            // As many to each.
            LinkWay::Connect(to) => streams.max(1).next_multiple_of(to.len().max(1)),
        };
        if self.links.is_empty() {
            self.links = match streams {
                1 => self.reach.next(0, watch)?,
                _ => self.reach.many(streams, watch)?,
            };
        }
        while let Some(stripe) = self.reach.pending() {
            self.links.push(stripe);
        }
        Ok(ConnectionUse::New)
    }

    /// Tells whether a proof runs in a thread, so that [`DataChannel::refusal`] may return an error later.
    pub(crate) fn is_proving_in_thread(&self) -> bool {
        let mut links = self.links.iter();
        self.coming.is_some() || links.any(|stripe| stripe.link.is_proving_in_thread())
    }

    /// Returns the error that refuses the peer of a connection, if the proof has failed by now: waiting is then in
    /// vain. If the peer refuses us, the peer's message says why.
    pub fn refusal(&mut self) -> Option<Error> {
        let coming = self
            .coming
            .as_mut()
            .and_then(|coming| coming.links.refusal());
        let mut links = self.links.iter_mut();
        coming.or_else(|| links.find_map(|stripe| stripe.link.refusal()))
    }

    /// Tells whether an accepted connection has not proved its identity.
    pub fn may_have_strangers(&self) -> bool {
        let is_due = |stripe: &Stripe| stripe.link.due_side() == Some(LinkSide::Accepted);
        self.reach.proves_peer() && self.links.iter().any(is_due)
    }

    /// Closes accepted connections that have not begun a proof, before a file is divided among the connections. A
    /// part that one of them received would be missing.
    ///
    /// A client that wants a file begins the proof on each connection at once; one without a proof has no owner.
    pub fn dismiss_strangers(&mut self, mode: TransferMode, watch: &Watch) -> Result<()> {
        if mode == TransferMode::Stream {
            self.links.truncate(1); // the first is that which proved it
            return Ok(());
        }
        let is_due = |stripe: &Stripe| stripe.link.due_side() == Some(LinkSide::Accepted);
        let all = std::mem::take(&mut self.links);
        let (due, mut proved): (Vec<_>, Vec<_>) = all.into_iter().partition(is_due);
        if !due.is_empty() {
            proved.extend(prove_all(due, watch)?);
        }
        self.links = proved;
        Ok(())
    }

    /// Tells whether the kernel can send pages of files; protected bytes must be read and encrypted first.
    fn sends_pages(&self) -> bool {
        let safety = self.reach.safety.as_ref();
        safety.is_none_or(Safety::goes_in_clear)
    }

    /// Returns how many connections there are.
    pub fn streams(&self) -> usize {
        self.links.len()
    }
}

impl LinkSource {
    /// Makes connections, all at the same time: far away, each takes a while.
    fn many(&self, streams: usize, watch: &Watch) -> Result<Vec<Stripe>> {
        thread::scope(|scope| {
            let start =
                |nth| thread::Builder::new().spawn_scoped(scope, move || self.next(nth, watch));
            let started = (0..streams).map(start).collect::<io::Result<Vec<_>>>();
            let started = started.map_err(|cause| Error::system("a thread", cause))?;
            let made = |one: thread::ScopedJoinHandle<'_, _>| {
                one.join().expect("connecting does not panic")
            };
            let all: Result<Vec<Vec<Stripe>>> = started.into_iter().map(made).collect();
            Ok(all?.into_iter().flatten().collect())
        })
    }

    /// Refuses to begin a proof with a credential that has expired or is not valid yet.
    fn check_dates(&self) -> Result<()> {
        match &self.safety {
            Some(safety) => safety.check_dates("the data connection"),
            None => Ok(()),
        }
    }

    /// Tells whether connections prove where they lead.
    fn proves_peer(&self) -> bool {
        self.safety.as_ref().is_some_and(Safety::proves_peer)
    }

    fn by(way: LinkWay) -> Self {
        Self {
            way,
            buffer_bytes: None,
            safety: None,
        }
    }

    /// Makes or accepts connection number `nth`, and waits for it. Others that arrived meanwhile stand behind it,
    /// with their identity unproved.
    fn next(&self, nth: usize, watch: &Watch) -> Result<Vec<Stripe>> {
        match &self.way {
            LinkWay::Listen(door) => {
                let links = match self.proves_peer() {
                    false => vec![self.accept(door, watch)?],
                    true => self.accept_proved(door, watch)?,
                };
                let stripe = |link| Stripe { link, index: 0 };
                Ok(links.into_iter().map(stripe).collect())
            }
            LinkWay::Connect(to) => {
                let index = nth % to.len().max(1);
                let address = to.get(index).ok_or_else(|| {
                    Error::misbehaved("the peer", "no address for the data connection")
                })?;
                watch.canceled().check()?;
                let stream = godwit_sys::connect(*address, CONNECT_MAX)
                    .map_err(|cause| Error::unreachable(format!("data port {address}"), cause))?;
                let link = self.link(stream, LinkSide::Connected)?;
                Ok(vec![Stripe { link, index }])
            }
        }
    }

    /// Waits for a connection from any peer.
    fn accept(&self, door: &DataListener, watch: &Watch) -> Result<DataLink> {
        let mut patience = watch.patience();
        loop {
            match door.accept() {
                Ok((stream, _)) => return self.link(stream, LinkSide::Accepted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(cause) => return Err(lost(cause)),
            }
            let fds = [door.as_fd(), patience.canceled()];
            let [ready, _] = wait_readable(fds, patience.next()).map_err(lost)?;
            if !ready {
                patience.waited("the peer", ACCEPTING)?;
            }
        }
    }

    /// Waits for a connection that proves the expected identity. Connections that send nothing, or prove nothing, do
    /// not disturb the wait. If no other arrives, the wait ends with the error of one of them.
    fn accept_proved(&self, door: &DataListener, watch: &Watch) -> Result<Vec<DataLink>> {
        let mut patience = watch.patience();
        let brief = Watch::over(watch.canceled().clone(), patience.left().min(PROOF_MAX));
        let (mut silent, mut refused): (Vec<DataLink>, Option<(Error, Instant)>) =
            (Vec::new(), None);
        loop {
            while let Ok((stream, _)) = door.accept() {
                silent.push(self.link(stream, LinkSide::Accepted)?);
                if silent.len() > SILENT_MAX {
                    silent.remove(0);
                }
            }
            let mut fds = vec![door.as_fd(), patience.canceled()];
            fds.extend(silent.iter().map(DataLink::as_fd));
            let ready = wait_any(&fds, patience.next()).map_err(lost)?;
            if let Some(spoke) = ready[2..].iter().position(|&ready| ready) {
                let mut link = silent.remove(spoke);
                match link.finish_handshake(&mut brief.patience()) {
                    Ok(()) => {
                        silent.insert(0, link);
                        return Ok(silent);
                    }
                    Err(Error::Canceled) => return Err(Error::Canceled),
                    Err(error) => refused = Some((error, Instant::now())),
                }
            } else if !ready[0] {
                match refused {
                    Some((error, at)) if at.elapsed() > others_max(&error) => return Err(error),
                    _ => patience.waited("the peer", ACCEPTING)?,
                }
            }
        }
    }

    /// Accepts a connection if one is waiting.
    fn pending(&self) -> Option<Stripe> {
        let LinkWay::Listen(listener) = &self.way else {
            return None;
        };
        let (stream, _) = listener.accept().ok()?;
        Some(Stripe {
            link: self.link(stream, LinkSide::Accepted).ok()?,
            index: 0,
        })
    }

    fn link(&self, stream: TcpStream, side: LinkSide) -> Result<DataLink> {
        let link = DataLink::new(stream, self.safety.clone(), side).and_then(|link| {
            if let Some(bytes) = self.buffer_bytes {
                link.size_buffers(bytes)?;
            }
            Ok(link)
        });
        link.map_err(|cause| Error::lost("the peer", "setting up a data connection", cause))
    }
}

/// Returns those that prove to be the right ones, all at the same time.
fn prove_all(mut silent: Vec<Stripe>, watch: &Watch) -> Result<Vec<Stripe>> {
    let late = Instant::now() + SILENCE_MAX;
    let brief = Watch::over(
        watch.canceled().clone(),
        watch.patience().left().min(PROOF_MAX),
    );
    let prove = |mut stripe: Stripe| match stripe.link.finish_handshake(&mut brief.patience()) {
        Ok(()) => Some(stripe),
        Err(error) => {
            tracing::debug!(%error, "dismiss a stranger at a data port");
            None
        }
    };
    let proved: io::Result<Vec<Stripe>> = thread::scope(|scope| {
        let mut proofs = Vec::new();
        while !silent.is_empty() && !watch.canceled().is_canceled() {
            let mut fds = vec![watch.canceled().as_fd()];
            fds.extend(silent.iter().map(|stripe| stripe.link.as_fd()));
            let ready = wait_any(&fds, late.saturating_duration_since(Instant::now()))?;
            let Some(spoke) = ready[1..].iter().position(|&ready| ready) else {
                break;
            };
            let stripe = silent.remove(spoke);
            proofs.push(thread::Builder::new().spawn_scoped(scope, move || prove(stripe))?);
        }
        let proved =
            |one: thread::ScopedJoinHandle<'_, _>| one.join().expect("a proof does not panic");
        Ok(proofs.into_iter().filter_map(proved).collect())
    });
    watch.canceled().check()?;
    proved.map_err(lost)
}

/// Returns how long to wait for another connection after this error of a proof. A peer that proved another identity
/// is hardly a stranger by chance, so that wait is short.
fn others_max(error: &Error) -> Duration {
    use godwit_trust::Error as Cause;
    let Error::Trust { cause, .. } = error else {
        return OTHERS_MAX;
    };
    match **cause {
        Cause::WrongPeer { .. }
        | Cause::Expired { .. }
        | Cause::NotYet { .. }
        | Cause::Revoked { .. } => KNOWN_MAX,
        _ => OTHERS_MAX,
    }
}

fn lost(cause: io::Error) -> Error {
    Error::lost("the peer", ACCEPTING, cause)
}

fn bind(ip: IpAddr, ports: Option<RangeInclusive<u16>>) -> io::Result<TcpListener> {
    let Some(ports) = ports else {
        return TcpListener::bind((ip, 0));
    };
    let mut last = io::Error::new(io::ErrorKind::AddrInUse, "the range of data ports is empty");
    for port in ports {
        match TcpListener::bind((ip, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns how many connections a transfer should have, if the user set no number.
///
/// On a near network, one connection for each core that can drive one is best. On a far one the number depends on
/// losses and buffers, which the transfer measures. One that is too short to measure has many, so that their windows
/// together grow soon.
pub fn width_for(round_trip: Duration, left: &Extents, lanes_max: usize) -> Width {
    let blocks = left.len_bytes().div_ceil(godwit_core::LEAF_BYTES).max(1);
    let at_most = |best: usize| best.min(usize::try_from(blocks).unwrap_or(best));
    if round_trip < NEAR {
        Width::fixed(at_most(NEAR_STREAMS), Limit::Near)
    } else if blocks < WORTH_MEASURING {
        Width::fixed(at_most(BRIEF_STREAMS), Limit::Brief)
    } else {
        Width::tuned(FIRST_STREAMS, lanes_max)
    }
}

const NEAR: Duration = Duration::from_millis(3);
const NEAR_STREAMS: usize = 2;
const BRIEF_STREAMS: usize = 16;
const FIRST_STREAMS: usize = 4;
/// The least blocks for which measuring pays: on slow paths they take a second or more.
const WORTH_MEASURING: u64 = 64;
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// Until a server connects; who wants to wait no longer drops the channel.
const ALONE_MAX: Duration = Duration::from_secs(3600);
/// For a proof, once it has begun.
const PROOF_MAX: Duration = Duration::from_secs(10);
/// How long to wait for another connection after one that proved nothing.
const OTHERS_MAX: Duration = Duration::from_secs(5);
/// How long to wait for another connection after one that proved a wrong identity.
const KNOWN_MAX: Duration = Duration::from_millis(300);
/// Between connecting and beginning to prove who one is.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// The most silent connections that are kept.
const SILENT_MAX: usize = 64;
const ACCEPTING: &str = "waiting for a data connection";
