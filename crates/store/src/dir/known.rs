//! Digests we know without reading.

use super::now;
use godwit_core::{Algorithm, Digest};
use godwit_sys::Meta;
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};

/// BLAKE3 of files that are still as they were, the most recent ones, in memory.
#[derive(Debug, Default)]
pub(super) struct KnownHashes(Mutex<Generations>);

/// When the young are many, the old are forgotten and the young become old.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<DeviceInode, KnownHash>,
    old: HashMap<DeviceInode, KnownHash>,
}

/// Device and inode.
type DeviceInode = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct KnownHash {
    size: u64,
    mtime: Duration,
    ctime: Duration,
    blake3: [u8; 32],
}

impl KnownHashes {
    /// Remembers the hash of a file that this process has just written.
    pub(super) fn wrote(&self, meta: &Meta, digest: &Digest) {
        if digest.algorithm() != Algorithm::Blake3 {
            return;
        }
        let Ok(blake3) = digest.value().try_into() else {
            return;
        };
        let entry = KnownHash {
            size: meta.size,
            mtime: meta.mtime,
            ctime: meta.ctime,
            blake3,
        };
        let mut all = self.0.lock();
        if all.young.len() >= GENERATION_MAX {
            all.old = std::mem::take(&mut all.young);
        }
        all.young.insert((meta.device, meta.inode), entry);
    }

    /// Remembers the hash of a file that was read. A file that changed just before is left out, since a further
    /// change could look the same.
    pub(super) fn read(&self, meta: &Meta, digest: &Digest) {
        let changed = meta.mtime.max(meta.ctime);
        if now().saturating_sub(changed) >= SETTLED {
            self.wrote(meta, digest);
        }
    }

    /// Returns the hash of a file, if the file is unchanged.
    pub(super) fn find(&self, meta: &Meta) -> Option<Digest> {
        let all = self.0.lock();
        let name = (meta.device, meta.inode);
        let entry = all.young.get(&name).or_else(|| all.old.get(&name))?;
        let same = (entry.size, entry.mtime, entry.ctime) == (meta.size, meta.mtime, meta.ctime);
        same.then(|| Digest::new(Algorithm::Blake3, &entry.blake3).expect("32 bytes"))
    }
}

/// Half of the most hashes that are kept: about 10 MB in all.
const GENERATION_MAX: usize = 1 << 15;

/// Clocks of file systems tick coarsely.
const SETTLED: Duration = Duration::from_secs(2);
