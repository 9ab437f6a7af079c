//! Data ports: a range that sessions share, taking turns if it is small.

use godwit_store::{Error, Result, channel::Channel};
use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The ports that data connections may come to.
#[derive(Debug)]
pub(crate) struct Ports {
    range: Option<RangeInclusive<u16>>,
    wait: Duration,
    released: (Mutex<()>, Condvar),
}

/// A channel that gives its port back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    /// `None` only while it is being dropped.
    channel: Option<Channel>,
    ports: Option<Arc<Ports>>,
}

impl Ports {
    pub(crate) fn new(range: Option<RangeInclusive<u16>>, wait: Duration) -> Arc<Self> {
        Arc::new(Self {
            range,
            wait,
            released: Default::default(),
        })
    }

    /// Listens; if all ports of the range are taken, waits for one.
    pub(crate) fn listen(
        self: &Arc<Self>,
        ip: IpAddr,
        given_up: &dyn Fn() -> bool,
    ) -> Result<(Held, SocketAddr)> {
        let deadline = Instant::now() + self.wait;
        loop {
            match Channel::listen(ip, self.range.clone()) {
                Ok((channel, address)) => {
                    let ports = self.range.is_some().then(|| Arc::clone(self));
                    return Ok((
                        Held {
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
                    let (lock, released) = &self.released;
                    let lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
                    // Programs that are not ours use these ports too, and say
                    // nothing when they leave.
                    drop(released.wait_timeout(lock, LOOK_AGAIN));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Held {
    /// Holds a channel that took no port of ours.
    pub(crate) fn without_port(channel: Channel) -> Self {
        Self {
            channel: Some(channel),
            ports: None,
        }
    }
}

impl std::ops::Deref for Held {
    type Target = Channel;

    fn deref(&self) -> &Channel {
        self.channel.as_ref().expect("only drop takes it")
    }
}

impl std::ops::DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Channel {
        self.channel.as_mut().expect("only drop takes it")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.channel = None;
        if let Some(ports) = &self.ports {
            ports.released.1.notify_all();
        }
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(100);
