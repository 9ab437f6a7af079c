//! Uploads whose attempts are counted: of one there is one partial, which the latest attempt has.

use super::{DirInner, partial::PartialKey, was::Was, wrong};
use crate::{Error, Result, Sink, Write, channel::Watch, fence::Fences};
use godwit_sys as sys;
use std::{
    io,
    path::Path,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// Two openings of one directory in this process are one place.
static FENCES: LazyLock<Fences<AttemptKey>> = LazyLock::new(Fences::default);

/// Device, inode and birth of the root, and the key of an upload beneath it.
type AttemptKey = (u64, u64, Option<Duration>, [u8; 32]);

fn upload(dir: &DirInner, path: &Path, id: Option<&str>) -> io::Result<AttemptKey> {
    let meta = dir.root.meta(Path::new(""))?;
    // Who may not read it does without: the number of one that is gone may be given to another.
    let root = dir.root.folder(Path::new("")).and_then(|f| f.lockable());
    let birth = root.and_then(|root| sys::birth(&root)).unwrap_or_default();
    let PartialKey(key) = PartialKey::of(&dir.identity, path, id);
    Ok((meta.device, meta.inode, birth, key))
}

/// Begins an attempt, once those before it are over.
pub(super) fn begin(
    dir: &Arc<DirInner>,
    path: &Path,
    write: &Write<'_>,
    attempt: u64,
    begin: impl FnOnce(&Write<'_>) -> Result<Box<dyn Sink>>,
) -> Result<Box<dyn Sink>> {
    let key = upload(dir, path, write.id).map_err(|e| wrong(path, e))?;
    FENCES.take_over(&key, (path, attempt), |watch: &Arc<Watch>| {
        // Attempts of an earlier process may have been published.
        let place = dir.place_of_file(path)?;
        let was = Was::read(dir.note(&place.folder, path)).map_err(|e| wrong(path, e))?;
        if was.is_some_and(|was| was.key == key.3 && was.attempt > attempt) {
            return Err(Error::superseded(path));
        }
        let watch = write.watch.as_ref().unwrap_or(watch);
        begin(&Write {
            watch: Some(Arc::clone(watch)),
            ..write.clone()
        })
    })
}
