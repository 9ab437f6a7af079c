//! Data ports: a range that sessions share, taking turns if it is small.

use godwit_store::{Error, Result, channel::DataChannel};
use godwit_sys::Wake;
use parking_lot::{Condvar, Mutex};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

/// The ports that data connections may come to.
#[derive(Debug)]
pub(crate) struct Ports {
    range: Option<RangeInclusive<u16>>,
    wait: Duration,
    /// How many sessions wait for a port, and what tells them that one is free.
    waiting: (Mutex<usize>, Condvar),
    /// Raised while a session waits.
    wanted: Wake,
}

/// A channel that gives its port back when it is dropped.
#[derive(Debug)]
pub(crate) struct PortChannel {
    /// `None` only while it is being dropped.
    channel: Option<DataChannel>,
    ports: Option<Arc<Ports>>,
}

impl Ports {
    pub(crate) fn new(range: Option<RangeInclusive<u16>>, wait: Duration) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            range,
            wait,
            waiting: Default::default(),
            wanted: Wake::new()?,
        }))
    }

    /// Listens; if all ports of the range are taken, waits for one.
    pub(crate) fn listen(
        self: &Arc<Self>,
        ip: IpAddr,
        given_up: &dyn Fn() -> bool,
    ) -> Result<(PortChannel, SocketAddr)> {
        let deadline = Instant::now() + self.wait;
        let mut in_line = None;
        loop {
            match DataChannel::listen(ip, self.range.clone()) {
                Ok((channel, address)) => {
                    let ports = self.range.is_some().then(|| Arc::clone(self));
                    return Ok((
                        PortChannel {
                            channel: Some(channel),
                            ports,
                        },
                        address,
                    ));
                }
                Err(Error::Unreachable { cause, .. })
                    if cause.kind() == std::io::ErrorKind::AddrInUse
                        && Instant::now() < deadline
                        && !given_up() =>
                {
                    in_line.get_or_insert_with(|| InLine::stand(self));
                    let (waiting, released) = &self.waiting;
                    // Programs that are not ours use these ports too, and say
                    // nothing when they leave.
                    released.wait_for(&mut waiting.lock(), LOOK_AGAIN);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A session that waits for a port.
struct InLine<'a>(&'a Ports);

impl<'a> InLine<'a> {
    fn stand(ports: &'a Ports) -> Self {
        let mut waiting = ports.waiting.0.lock();
        *waiting += 1;
        ports.wanted.raise();
        Self(ports)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.0.lock();
        *waiting -= 1;
        if *waiting == 0 {
            self.0.wanted.lower();
        }
    }
}

impl PortChannel {
    /// Returns what can be read while others wait for a port like the one that is
    /// held, if one is.
    pub(crate) fn wanted(&self) -> Option<BorrowedFd<'_>> {
        self.ports.as_ref().map(|ports| ports.wanted.as_fd())
    }

    /// Holds a channel that took no port of ours.
    pub(crate) fn without_port(channel: DataChannel) -> Self {
        Self {
            channel: Some(channel),
            ports: None,
        }
    }
}

impl std::ops::Deref for PortChannel {
    type Target = DataChannel;

    fn deref(&self) -> &DataChannel {
        self.channel.as_ref().expect("only drop takes it")
    }
}

impl std::ops::DerefMut for PortChannel {
    fn deref_mut(&mut self) -> &mut DataChannel {
        self.channel.as_mut().expect("only drop takes it")
    }
}

impl Drop for PortChannel {
    fn drop(&mut self) {
        self.channel = None;
        if let Some(ports) = &self.ports {
            ports.waiting.1.notify_all();
        }
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(100);
