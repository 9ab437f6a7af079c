//! State that the threads of one transfer share: whether to continue, and whether bytes move.

use crate::{Error, Result};
use godwit_sys::Wake;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Stops a transfer, from any thread. Clones stop the same transfers.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<(AtomicBool, Wake)>);

impl Cancel {
    /// Returns a flag that is not cancelled.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new((AtomicBool::new(false), Wake::new()?))))
    }

    /// Stops everything that watches this flag; there is no way back.
    pub fn cancel(&self) {
        self.0.0.store(true, Relaxed);
        self.0.1.raise();
    }

    /// Tells whether the transfer was cancelled.
    pub fn is_canceled(&self) -> bool {
        self.0.0.load(Relaxed)
    }

    /// Returns `Canceled` if the transfer was cancelled.
    pub fn check(&self) -> Result<()> {
        if self.is_canceled() {
            Err(Error::Canceled)
        } else {
            Ok(())
        }
    }
}

impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.1.as_fd()
    }
}

/// Watches one transfer.
#[derive(Debug)]
pub struct Watch {
    cancel: Cancel,
    moved_bytes: AtomicU64,
    stall: Duration,
    until: Option<Instant>,
    began: Instant,
}

impl Watch {
    /// Returns a watch over a transfer that may stand still for `stall`.
    pub fn new(stall: Duration) -> io::Result<Self> {
        Ok(Self::over(Cancel::new()?, stall))
    }

    /// Returns a watch that ends with `cancel`.
    pub fn over(cancel: Cancel, stall: Duration) -> Self {
        Self {
            cancel,
            began: Instant::now(),
            moved_bytes: AtomicU64::new(0),
            stall,
            until: None,
        }
    }

    /// Limits the watch to a caller that waits no longer than `limit`.
    pub fn within(self, limit: Option<Duration>) -> Self {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        Self { until, ..self }
    }

    /// Returns how much longer the caller waits; `None`: without a limit.
    pub fn left(&self) -> Option<Duration> {
        let until = self.until?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Stops the transfer.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Returns the flag that stops the transfer.
    pub fn canceled(&self) -> &Cancel {
        &self.cancel
    }

    /// Returns how long nothing may move.
    pub fn stall(&self) -> Duration {
        self.stall
    }

    /// Returns how long it has watched.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns how many bytes have moved.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes.load(Relaxed)
    }

    /// Notes that bytes have moved.
    pub fn moved(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn patience(&self) -> Patience<'_> {
        Patience {
            watch: self,
            seen: self.moved_bytes(),
            since: Instant::now(),
        }
    }
}

/// How long one thread has waited while nothing moved on any stream.
pub(crate) struct Patience<'a> {
    watch: &'a Watch,
    seen: u64,
    since: Instant,
}

impl<'a> Patience<'a> {
    /// Returns a descriptor that becomes readable when the transfer is cancelled.
    pub(crate) fn canceled(&self) -> BorrowedFd<'a> {
        self.watch.cancel.as_fd()
    }

    /// Restarts the timeout, because bytes moved. Part of a block is enough: a slow peer is no stalled peer.
    pub(crate) fn went_on(&mut self) {
        self.since = Instant::now();
    }

    /// Counts a wait that ended without bytes; fails if they lasted too long.
    pub(crate) fn waited(&mut self, host: &str, during: &str) -> Result<()> {
        self.watch.cancel.check()?;
        let moved = self.watch.moved_bytes();
        if moved != self.seen {
            (self.seen, self.since) = (moved, Instant::now());
        }
        let waited = self.since.elapsed();
        if waited < self.watch.stall {
            return Ok(());
        }
        Err(Error::stalled(host, during, waited))
    }

    /// Returns how long nothing may move.
    pub(crate) fn left(&self) -> Duration {
        self.watch.stall
    }

    /// Returns how long the next wait may be.
    pub(crate) fn next(&self) -> Duration {
        self.watch
            .stall
            .saturating_sub(self.since.elapsed())
            .clamp(Duration::from_millis(1), TICK)
    }
}

/// How soon a thread that is blocked in a read or write notices a cancel.
pub(crate) const TICK: Duration = Duration::from_millis(250);
