//! One question to an origin for all readers of a name.

use crate::{Error, Fresh, Result};
use godwit_core::Url;
use godwit_store::Stat;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

/// How often a caller that waits for another's fetch checks whether to go on.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The key of a reader: a name, and an audience.
pub(crate) type Name = (Url, String);

/// A question to the origin about a name. One caller asks, and the others wait for the answer.
#[derive(Default)]
pub(crate) struct Asking {
    pub heard: Mutex<Option<Result<Option<Stat>>>>,
    pub ended: Condvar,
    /// The freshness that the caller asked for.
    pub fresh: Fresh,
    /// Another entry became current since the question was sent.
    pub is_spoilt: AtomicBool,
}

impl Asking {
    /// Returns the answer; an error, `Unwanted`, if the waiting caller has gone.
    pub(crate) fn wait(&self, is_wanted: &dyn Fn() -> bool) -> Result<Result<Option<Stat>>> {
        let mut heard = self.heard.lock();
        loop {
            if let Some(heard) = &*heard {
                return Ok(heard.clone());
            }
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            self.ended.wait_for(&mut heard, LOOK_EVERY);
        }
    }

    /// Makes the answer stale: callers ask again.
    pub(crate) fn spoil(&self) {
        self.is_spoilt.store(true, SeqCst);
    }

    pub(crate) fn is_spoilt(&self) -> bool {
        self.is_spoilt.load(SeqCst)
    }

    pub(crate) fn end(&self, outcome: Result<Option<Stat>>) {
        *self.heard.lock() = Some(outcome);
        self.ended.notify_all();
    }
}
