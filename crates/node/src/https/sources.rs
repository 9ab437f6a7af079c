//! Open connections to nodes that files are drawn from: a tree is drawn file by file, without a new handshake for each.

use godwit_store::door::DoorPool;
use godwit_trust::door::Fingerprint;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Idle connections by the key of the server. They prove no identity: each request shows a grant.
#[derive(Debug, Default)]
pub(crate) struct SourceConnections(Mutex<HashMap<Fingerprint, (DoorPool, Instant)>>);

impl SourceConnections {
    /// Returns those to that node, which the caller may use and add to.
    pub(super) fn to(&self, key: Fingerprint) -> DoorPool {
        let mut all = self.0.lock();
        if all.len() >= SOURCES_MAX && !all.contains_key(&key) {
            return DoorPool::default();
        }
        let (idle, used) = all
            .entry(key)
            .or_insert_with(|| (DoorPool::default(), Instant::now()));
        *used = Instant::now();
        idle.clone()
    }

    /// Closes connections that were not used for a while.
    pub(super) fn forget_idle(&self) {
        let mut all = self.0.lock();
        all.retain(|_, (_, used)| used.elapsed() < UNUSED);
    }

    /// Closes all of them. The call may block.
    pub(super) fn forget_all(&self) {
        self.0.lock().clear();
    }
}

/// The most nodes whose connections are kept.
const SOURCES_MAX: usize = 64;
const UNUSED: Duration = Duration::from_secs(20);
