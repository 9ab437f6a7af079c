//! Cache of a file's parsed content, valid while the file stays the same.

use crate::{Error, Result};
use std::{
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Parsed content of a file. Each question checks the file, and reads it again if it has changed.
pub(crate) struct FileCache<T> {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Arc<T>)>>,
}

impl<T> FileCache<T> {
    /// Nothing is read yet.
    pub(crate) fn of(path: &Path) -> Self {
        Self {
            path: path.into(),
            read: Mutex::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file's present content, parsed by `parse`.
    pub(crate) fn now(
        &self,
        read: impl FnOnce(&Path) -> Result<Vec<u8>>,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Arc<T>> {
        let path = || self.path.clone();
        let meta = fs::metadata(&self.path).map_err(|cause| Error::io(path(), cause))?;
        let stamp = Stamp::of(&meta);
        let mut kept = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, said)) = &*kept
            && *known == stamp
        {
            return Ok(said.clone());
        }
        let said =
            parse(&read(&self.path)?).map_err(|what| Error::BadFile { path: path(), what })?;
        Ok(kept.insert((stamp, Arc::new(said))).1.clone())
    }
}

impl<T> fmt::Debug for FileCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileCache").field(&self.path).finish()
    }
}

/// Tells whether a file is still the one that was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of a file.
    pub(crate) fn of(meta: &fs::Metadata) -> Self {
        Self {
            inode: (meta.dev(), meta.ino()),
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}
