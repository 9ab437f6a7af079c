//! Blocks that are kept for a full disk. Freed, they give the room to open the records and to forget what is over; that
//! makes room again.

use godwit_sys::{free_bytes, reserve_blocks};
use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Files without bytes that have blocks nevertheless. One is given back at a time, so that opening does not use up what
/// forgetting needs.
pub(crate) struct Ballast {
    root: PathBuf,
    /// How much each of them takes.
    part_bytes: u64,
}

impl Ballast {
    /// Returns that of a depot in a directory, which may take so many bytes.
    pub(crate) fn of(root: &Path, quota: Option<u64>) -> Self {
        let part = quota.map_or(PART_BYTES, |quota| quota / 32);
        Self {
            root: root.into(),
            part_bytes: part.clamp(PART_BYTES_MIN, PART_BYTES),
        }
    }

    fn parts(&self) -> [PathBuf; 2] {
        NAMES.map(|name| self.root.join(name))
    }

    /// Takes what is lacking of it, where as much as a part is left besides.
    pub(crate) fn take(&self) {
        let parts = self.parts();
        let lacking: Vec<_> = parts.iter().filter(|part| !part.exists()).collect();
        let wanted = self.part_bytes * (lacking.len() as u64 + 1);
        if lacking.is_empty() || free_bytes(&self.root).is_ok_and(|free| free < wanted) {
            return;
        }
        for part in lacking {
            if let Err(error) = self.fill(part) {
                tracing::debug!(%error, path = %part.display(), "no blocks are kept for a full disk");
                let _ = fs::remove_file(part);
                return;
            }
        }
    }

    fn fill(&self, part: &Path) -> io::Result<()> {
        let mut how = OpenOptions::new();
        let file = how.write(true).create_new(true).mode(0o600).open(part)?;
        reserve_blocks(&file, 0, self.part_bytes)
    }

    /// Gives some of it back, because the disk is full. Returns false if there is nothing to give.
    pub(crate) fn give(&self) -> bool {
        let parts = self.parts();
        let has_blocks = |part: &&PathBuf| fs::metadata(part).is_ok_and(|part| part.blocks() > 0);
        let Some(part) = parts.iter().find(has_blocks) else {
            return false;
        };
        let is_given = fs::remove_file(part).is_ok();
        if is_given {
            tracing::warn!(path = %part.display(), "the disk is full; what was kept for that is given back");
        }
        is_given
    }

    /// Does something that may need blocks, and again as long as it cannot and there are some to give.
    pub(crate) fn with<T, E>(&self, mut done: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        loop {
            match done() {
                Err(_) if self.is_short() && self.give() => {}
                done => return done,
            }
        }
    }

    /// Tells whether so many blocks are not to be had, as the kernel says: what is free of a disk says nothing of what
    /// a user may have of it.
    fn is_short(&self) -> bool {
        let probe = self.root.join(PROBE);
        let _ = fs::remove_file(&probe);
        let filled = self.fill(&probe);
        let _ = fs::remove_file(&probe);
        filled.is_err_and(|error| is_no_room(&error))
    }
}

/// Tells whether the disk is full, or this user's part of it.
fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

const PROBE: &str = "ballast-probe";
const NAMES: [&str; 2] = ["ballast-1", "ballast-2"];
const PART_BYTES: u64 = 2 << 20;
const PART_BYTES_MIN: u64 = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_quota_counts_as_full_disk() {
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        const EIO: i32 = 5;
        for (errno, is_it) in [(ENOSPC, true), (EDQUOT, true), (EIO, false)] {
            assert_eq!(is_no_room(&io::Error::from_raw_os_error(errno)), is_it);
        }
    }

    #[test]
    fn reserve_stays_while_disk_has_room() {
        let dir = tempfile::tempdir().unwrap();
        let ballast = Ballast::of(dir.path(), Some(1 << 20));
        ballast.take();
        let outcome: Result<(), ()> = ballast.with(|| Err(()));
        assert!(outcome.is_err());
        assert!(ballast.parts().iter().all(|part| part.exists()));
        assert!(!dir.path().join(PROBE).exists());
    }
}
