//! How a node ends: first gently, then at once.

use godwit_sys::Wake;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    low_level::pipe,
};
use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// Stops a node, from any thread. Clones stop the same node.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Flags>);

#[derive(Debug)]
struct Flags {
    draining: AtomicBool,
    /// Up once no new work is to begin.
    drain: Wake,
    /// Up once work under way is to end.
    at_once: Wake,
    ending: AtomicBool,
}

impl Stop {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Flags {
            draining: AtomicBool::new(false),
            drain: Wake::new()?,
            at_once: Wake::new()?,
            ending: AtomicBool::new(false),
        })))
    }

    /// Takes no new sessions, and lets transfers end.
    pub fn drain(&self) {
        self.0.draining.store(true, Relaxed);
        self.0.drain.raise();
    }

    /// Ends transfers too; what landed is kept.
    pub fn at_once(&self) {
        self.drain();
        self.0.ending.store(true, Relaxed);
        self.0.at_once.raise();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.0.draining.load(Relaxed)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.0.ending.load(Relaxed)
    }

    pub(crate) fn draining(&self) -> BorrowedFd<'_> {
        self.0.drain.as_fd()
    }

    pub(crate) fn ending(&self) -> BorrowedFd<'_> {
        self.0.at_once.as_fd()
    }

    /// The first signal drains, the second ends.
    pub(crate) fn on_signals(&self) -> io::Result<()> {
        let (mut heard, said) = UnixStream::pair()?;
        pipe::register(SIGTERM, said.try_clone()?)?;
        pipe::register(SIGINT, said)?;
        let stop = self.clone();
        thread::Builder::new()
            .name("signals".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let mut byte = [0];
                while heard.read_exact(&mut byte).is_ok() {
                    if stop.is_draining() {
                        tracing::info!("stop now");
                        stop.at_once();
                    } else {
                        tracing::info!("stop when transfers have ended");
                        stop.drain();
                    }
                }
            })?;
        Ok(())
    }
}

const STACK_BYTES: usize = 64 << 10;
