//! The data connections of one session: who connects, how blocks are framed,
//! and which connections live on into the next transfer.
//!
//! Blocking sockets, one thread a connection and 1 MiB blocks; a transfer that
//! fits into one connection starts no thread at all. What goes over the control
//! channel meanwhile is none of our business.

mod link;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod watch;

pub use link::Shield;
pub use receive::Received;
pub(crate) use send::look;
pub use send::{Sending, Sent};
pub use watch::{Cancel, Watch};

use crate::{Error, Result};
use godwit_core::Extents;
use godwit_sys::wait_readable;
use link::Link;
use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    ops::RangeInclusive,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::Duration,
};

/// How the bytes of a file go over data connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// MODE S: as they are, on one connection, whose end is the end of the file.
    Stream,
    /// MODE E: in blocks with offsets, on any number of connections.
    Extended,
}

/// Whether `open` had to make a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Opened {
    /// A new one: servers say 150.
    New,
    /// One was left by the transfer before: servers say 125.
    Reused,
}

/// The data connections of one session.
#[derive(Debug)]
pub struct Channel {
    reach: Reach,
    links: Vec<Stripe>,
}

/// How further connections are had.
#[derive(Debug)]
struct Reach {
    way: Way,
    /// `None`: the kernel tunes.
    buffer_bytes: Option<u32>,
}

#[derive(Debug)]
enum Way {
    Listen(Door),
    Connect(Vec<SocketAddr>),
}

/// A listener, and who may come in.
#[derive(Debug)]
struct Door {
    listener: TcpListener,
    only: Option<IpAddr>,
}

impl Door {
    /// Accepts the next connection of those who may come in; others are closed.
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

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A connection, and to which of several striped addresses it leads.
#[derive(Debug)]
struct Stripe {
    link: Link,
    index: usize,
}

impl Channel {
    /// Listens on `ip`, on a free port, or on the first free one of `ports`.
    pub fn listen(ip: IpAddr, ports: Option<RangeInclusive<u16>>) -> Result<(Self, SocketAddr)> {
        let listener = bind(ip, ports).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        match listener {
            Ok((listener, address)) => Ok((
                Self {
                    reach: Reach::by(Way::Listen(Door {
                        listener,
                        only: None,
                    })),
                    links: Vec::new(),
                },
                address,
            )),
            Err(cause) => Err(Error::Unreachable {
                host: format!("{ip} (own data port)"),
                cause,
            }),
        }
    }

    /// Will connect to these addresses: one, or one for each stripe.
    pub fn connect(to: Vec<SocketAddr>) -> Self {
        Self {
            reach: Reach::by(Way::Connect(to)),
            links: Vec::new(),
        }
    }

    /// Takes connections of this address only.
    pub fn accept_only(&mut self, from: IpAddr) {
        if let Way::Listen(door) = &mut self.reach.way {
            door.only = Some(from);
        }
    }

    /// Has connections hold so many bytes; `None`: what the kernel finds best, for
    /// connections that are still to come.
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
        self.links.retain(|stripe| !stripe.link.is_stale());
        !self.links.is_empty()
    }

    /// Returns once there is a connection.
    ///
    /// Who connects makes `streams` of them (one to each stripe if that is more).
    /// Who listens waits for one, and takes in those that are there as well: a
    /// client that lets the server send opens all of them before it asks.
    pub fn open(&mut self, streams: usize, watch: &Watch) -> Result<Opened> {
        if self.is_warm() {
            return Ok(Opened::Reused);
        }
        let streams = match &self.reach.way {
            Way::Listen(_) => 1,
            Way::Connect(to) => streams.max(to.len()),
        };
        self.links = match streams {
            1 => vec![self.reach.next(0, watch)?],
            _ => self.reach.many(streams, watch)?,
        };
        while let Some(stripe) = self.reach.pending() {
            self.links.push(stripe);
        }
        Ok(Opened::New)
    }

    /// Returns how many connections there are.
    pub fn streams(&self) -> usize {
        self.links.len()
    }
}

impl Reach {
    /// Makes connections, all at the same time: far away, each takes a while.
    fn many(&self, streams: usize, watch: &Watch) -> Result<Vec<Stripe>> {
        thread::scope(|scope| {
            let start =
                |nth| thread::Builder::new().spawn_scoped(scope, move || self.next(nth, watch));
            let started = (0..streams).map(start).collect::<io::Result<Vec<_>>>();
            let started = started.map_err(|cause| Error::Io {
                path: "a thread".into(),
                cause,
            })?;
            let made = |one: thread::ScopedJoinHandle<'_, _>| {
                one.join().expect("connecting does not panic")
            };
            started.into_iter().map(made).collect()
        })
    }

    fn by(way: Way) -> Self {
        Self {
            way,
            buffer_bytes: None,
        }
    }

    /// Makes or accepts connection number `nth`, waiting for it.
    fn next(&self, nth: usize, watch: &Watch) -> Result<Stripe> {
        let mut patience = watch.patience();
        let (stream, index) = match &self.way {
            Way::Listen(listener) => {
                let lost = |cause| Error::Lost {
                    host: "the peer".into(),
                    during: ACCEPTING.into(),
                    cause,
                };
                let stream = loop {
                    match listener.accept() {
                        Ok((stream, _)) => break stream,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(cause) => return Err(lost(cause)),
                    }
                    let fds = [listener.as_fd(), patience.canceled()];
                    let [ready, _] = wait_readable(fds, patience.next()).map_err(lost)?;
                    if !ready {
                        patience.waited("the peer", ACCEPTING)?;
                    }
                };
                (stream, 0)
            }
            Way::Connect(to) => {
                let index = nth % to.len().max(1);
                let address = to.get(index).ok_or_else(|| Error::PeerMisbehaved {
                    host: "the peer".into(),
                    what: "no address for the data connection".into(),
                })?;
                watch.canceled().check()?;
                let stream = TcpStream::connect_timeout(address, CONNECT_MAX).map_err(|cause| {
                    Error::Unreachable {
                        host: format!("data port {address}"),
                        cause,
                    }
                })?;
                (stream, index)
            }
        };
        let link = self.link(stream).map_err(|cause| Error::Lost {
            host: "the peer".into(),
            during: "setting up a data connection".into(),
            cause,
        })?;
        Ok(Stripe { link, index })
    }

    /// Accepts a connection if one is waiting.
    fn pending(&self) -> Option<Stripe> {
        let Way::Listen(listener) = &self.way else {
            return None;
        };
        let (stream, _) = listener.accept().ok()?;
        Some(Stripe {
            link: self.link(stream).ok()?,
            index: 0,
        })
    }

    fn link(&self, stream: TcpStream) -> io::Result<Link> {
        let link = Link::new(stream)?;
        if let Some(bytes) = self.buffer_bytes {
            link.size_buffers(bytes)?;
        }
        Ok(link)
    }
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

/// Returns how many connections a transfer should use, when nobody said.
///
/// On a near network one connection for each core that can drive it is best;
/// far away, losses halve a window now and then, and many windows lose less.
pub fn streams_for(round_trip: Duration, left: &Extents) -> usize {
    let blocks = left.len_bytes().div_ceil(godwit_core::LEAF_BYTES).max(1);
    let best = if round_trip < NEAR {
        NEAR_STREAMS
    } else {
        FAR_STREAMS
    };
    best.min(usize::try_from(blocks).unwrap_or(best))
}

const NEAR: Duration = Duration::from_millis(3);
const NEAR_STREAMS: usize = 2;
const FAR_STREAMS: usize = 16;
const CONNECT_MAX: Duration = Duration::from_secs(30);
const ACCEPTING: &str = "waiting for a data connection";
