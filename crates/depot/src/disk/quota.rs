//! The quota of the depot. Bytes are reserved before they arrive, so that not even a block exceeds the quota.

use crate::{
    Error, Result,
    plan::fairness::{Crowd, Number, Turn, Wish},
};
use godwit_core::Url;
use godwit_sys::{Leased, Unless, lease};
use parking_lot::Mutex;
use std::{
    fs::File,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

/// The quota, and what of it is taken.
pub(crate) struct Room {
    quota: Option<u64>,
    taken: Mutex<u64>,
    crowd: Mutex<Crowd>,
    /// The number of the last writer.
    came: AtomicU64,
    /// Files without a name that programs have open, and their bytes.
    lingering: Mutex<Vec<(File, u64)>>,
}

impl Room {
    pub(crate) fn new(quota: Option<u64>) -> Self {
        Self {
            quota,
            taken: Mutex::new(0),
            crowd: Mutex::default(),
            came: AtomicU64::new(0),
            lingering: Mutex::default(),
        }
    }

    pub(crate) fn quota(&self) -> Option<u64> {
        self.quota
    }

    pub(crate) fn taken(&self) -> u64 {
        *self.taken.lock()
    }

    /// Refuses a file that is larger than the quota.
    pub(crate) fn could_hold(&self, url: &Url, size: u64) -> Result<()> {
        match self.quota {
            Some(quota) if size > quota => {
                Err(Error::too_large(Box::new(url.clone()), size, quota))
            }
            _ => Ok(()),
        }
    }

    /// Takes so many bytes of the quota. An error: how many are missing.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), u64> {
        let mut taken = self.taken.lock();
        let wanted = taken.saturating_add(bytes);
        match self.quota {
            Some(quota) if wanted > quota => Err(wanted - quota),
            _ => {
                *taken = wanted;
                Ok(())
            }
        }
    }

    /// Returns a number for a new writer.
    pub(crate) fn arrive(&self) -> Number {
        self.came.fetch_add(1, Relaxed)
    }

    /// Tells whether a writer with this wish may take room now.
    pub(crate) fn turn(&self, wish: Wish) -> Turn {
        match self.quota {
            Some(quota) => self.crowd.lock().ask(quota, wish, Instant::now()),
            None => Turn::Now,
        }
    }

    /// Returns how many bytes to take at once, so that a writer asks rarely.
    pub(crate) fn step(&self, by: Number, most: u64) -> u64 {
        match self.quota {
            Some(quota) if self.crowd.lock().is_alone(by) => most.min(quota / 16),
            Some(_) => 0,
            None => most,
        }
    }

    pub(crate) fn got(&self, by: Number, bytes: u64) {
        self.crowd.lock().got(by, bytes, Instant::now());
    }

    /// Notes that a writer waits for room no more. Returns whether others do.
    pub(crate) fn goes(&self, by: Number) -> bool {
        self.crowd.lock().goes(by)
    }

    /// Notes that a writer has ended. Returns whether others wait.
    pub(crate) fn leave(&self, by: Number) -> bool {
        self.crowd.lock().leave(by)
    }

    /// Counts bytes that are in the depot already, even above the quota.
    pub(crate) fn count(&self, bytes: u64) {
        let mut taken = self.taken.lock();
        *taken = taken.saturating_add(bytes);
    }

    pub(crate) fn release(&self, bytes: u64) {
        let mut taken = self.taken.lock();
        *taken = taken.saturating_sub(bytes);
    }

    /// Releases the bytes of a file without a name, as soon as no program has it open.
    pub(crate) fn release_file(&self, file: File, bytes: u64) {
        match is_open(&file) {
            true => self.lingering.lock().push((file, bytes)),
            false => self.release(bytes),
        }
    }

    /// Releases files that no program has open any more. Returns whether there was any.
    pub(crate) fn look_again(&self) -> bool {
        let mut lingering = self.lingering.lock();
        let before = lingering.len();
        lingering.retain(|(file, bytes)| {
            let is_open = is_open(file);
            if !is_open {
                self.release(*bytes);
            }
            is_open
        });
        lingering.len() < before
    }

    /// Returns the bytes of files without a name that programs have open.
    pub(crate) fn open(&self) -> u64 {
        self.lingering.lock().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Tells whether a program has the file open, as far as the disk can tell.
fn is_open(file: &File) -> bool {
    matches!(lease(file, Unless::Open), Ok(Leased::Refused))
}
