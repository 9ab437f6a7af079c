//! Files of which a program has a writable descriptor.

use crate::plan::entry::Held;
use godwit_sys::{Closes, Wake, Watched};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Files of which somebody has a writable descriptor.
pub(crate) struct Watches {
    pub closes: Option<Closes>,
    pub wake: Option<Wake>,
    pub files: Mutex<HashMap<Watched, Arc<Held>>>,
}

impl Watches {
    /// Watches nothing yet. Where the kernel has no watches left, files are looked at now and then.
    pub(crate) fn new() -> Self {
        Self {
            closes: Closes::new().ok(),
            wake: Wake::new().ok(),
            files: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, path: std::path::PathBuf, held: &Arc<Held>) {
        if let Some(Ok(watched)) = self.closes.as_ref().map(|closes| closes.add(&path)) {
            self.files.lock().insert(watched, Arc::clone(held));
        }
    }

    pub(crate) fn remove(&self, held: &Held) {
        let mut files = self.files.lock();
        let watched = files.iter().find(|(_, other)| other.id == held.id);
        let Some(watched) = watched.map(|(watched, _)| *watched) else {
            return;
        };
        files.remove(&watched);
        if let Some(closes) = &self.closes {
            closes.remove(watched);
        }
    }

    pub(crate) fn end(&self) {
        if let Some(wake) = &self.wake {
            wake.raise();
        }
    }
}
