//! The shared files that this process has open.

use godwit_core::Extents;
use godwit_wire::{client::DataHints, local::Handle};
use std::{
    collections::HashMap,
    os::fd::RawFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The shared files of this process, by descriptor.
#[derive(Debug, Default)]
pub(crate) struct SharedDescriptors(Mutex<HashMap<RawFd, Arc<Mutex<Shared>>>>);

/// A shared file, as this process has it open.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) url: String,
    /// How its bytes travel.
    pub(crate) hints: DataHints,
    pub(crate) era: u64,
    pub(crate) handle: Handle,
    /// The file is only read: its bytes come from the cache of this machine.
    pub(crate) is_read_only: bool,
    /// Bytes that are here for sure.
    pub(crate) here: Extents,
    /// Start of the range that is written without a grant.
    pub(crate) free_from: u64,
    /// Ranges that no byte from the server overwrites.
    pub(crate) granted: Extents,
    /// Ranges that were written and not yet reported to the node.
    pub(crate) wrote: Extents,
}

impl SharedDescriptors {
    pub(crate) fn find(&self, fd: RawFd) -> Option<Arc<Mutex<Shared>>> {
        lock(&self.0).get(&fd).cloned()
    }

    pub(crate) fn insert(&self, fd: RawFd, shared: Shared) {
        lock(&self.0).insert(fd, Arc::new(Mutex::new(shared)));
    }

    pub(crate) fn remove(&self, fd: RawFd) {
        lock(&self.0).remove(&fd);
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
