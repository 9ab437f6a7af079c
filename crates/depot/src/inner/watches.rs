//! Files of which a program has a writable descriptor.

use crate::plan::entry::Entry;
use godwit_sys::{Closes, Wake, WatchId};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Files with a writable descriptor in a program.
pub(crate) struct Watches {
    pub closes: Option<Closes>,
    pub wake: Option<Wake>,
    pub files: Mutex<HashMap<WatchId, Arc<Entry>>>,
}

impl Watches {
    /// Begins without a watch. If the kernel has no watches left, files are looked at now and then.
    pub(crate) fn new() -> Self {
        Self {
            closes: Closes::new().ok(),
            wake: Wake::new().ok(),
            files: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, path: std::path::PathBuf, entry: &Arc<Entry>) {
        if let Some(Ok(watched)) = self.closes.as_ref().map(|closes| closes.add(&path)) {
            self.files.lock().insert(watched, Arc::clone(entry));
        }
    }

    pub(crate) fn remove(&self, entry: &Entry) {
        let mut files = self.files.lock();
        let watched = files.iter().find(|(_, other)| other.id == entry.id);
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
