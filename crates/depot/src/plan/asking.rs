//! One question to an origin for all readers of a name.

use crate::{Error, Fresh, Result};
use godwit_core::Url;
use godwit_store::Stat;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

/// Who waits for others to fetch something looks so often whether they are to go on.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// By what readers find a file: its name, and their audience.
pub(crate) type Name = (Url, String);

/// Somebody asks the origin what there is of a name; the others wait for what they hear.
#[derive(Default)]
pub(crate) struct Asking {
    pub heard: Mutex<Option<Result<Option<Stat>>>>,
    pub ended: Condvar,
    /// How new they want it.
    pub fresh: Fresh,
    /// The name says something else here since they asked.
    pub is_spoilt: AtomicBool,
}

impl Asking {
    /// Returns what was heard; an error, `Unwanted`, if nobody waits for it any more.
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

    /// What is heard is of before: whoever wants the name asks anew.
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
