//! The directory of a depot: files by number, and who may touch them.
//!
//! Every byte that the depot itself writes goes through here, so that tests can
//! have a disk that forgets what was not synced.

use crate::{Error, Result, id::Id};
use godwit_core::Chain;
use godwit_sys::reserve_blocks;
use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read},
    ops::Range,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// The events of a disk, to which a test may answer with a fault.
pub(crate) trait Watcher: Send + Sync {
    /// `len` bytes are about to be written.
    fn writes(&self, _path: &Path, _file: &File, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    /// Its length will be this.
    fn resizes(&self, _path: &Path, _file: &File, _size: u64) -> io::Result<()> {
        Ok(())
    }
    /// Blocks are wanted for what comes.
    fn reserves(&self) -> io::Result<()> {
        Ok(())
    }
    /// A file is taken in, and lies where it belongs.
    fn takes_in(&self) -> io::Result<()> {
        Ok(())
    }
    /// Everything that was written to it is safe.
    fn synced(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    /// The records are written by `write`.
    fn records(&self, write: &mut dyn FnMut()) {
        write();
    }
}

/// The directory, held.
pub(crate) struct Disk {
    root: PathBuf,
    /// Held as long as we live.
    _lock: File,
    watcher: Option<Arc<dyn Watcher>>,
    /// Of which folders we have seen to it that their own names survive a power cut.
    lasting: [AtomicBool; 256],
    /// The folder in which those are has a durable name.
    is_lasting: AtomicBool,
}

impl Disk {
    /// Opens a depot, making it if there is none.
    pub(crate) fn open(root: &Path, watcher: Option<Arc<dyn Watcher>>) -> Result<Self> {
        let bad = Error::disk(root);
        private(root).map_err(bad)?;
        let version = root.join("depot");
        match fs::read_to_string(&version) {
            Ok(found) if found.trim_end() == VERSION => {}
            // Its writer had a full disk, or the power failed.
            Ok(found) if found.is_empty() && !root.join("held.db").exists() => {}
            Ok(found) => {
                let found: String = found.trim_end().chars().take(64).collect();
                let known = VERSION;
                let number = found.strip_prefix("godwit depot ");
                let is_other = number.is_some_and(|number| number.parse::<u64>().is_ok());
                return Err(match is_other {
                    true => Error::newer(root, found, known),
                    false => Error::damaged(version, found, known),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut names = fs::read_dir(root).map_err(Error::disk(root))?;
                let is_ours = |name: &OsStr| OURS_AT_FIRST.iter().any(|ours| name == *ours);
                if names.any(|name| name.is_ok_and(|name| !is_ours(&name.file_name()))) {
                    return Err(Error::foreign(root));
                }
            }
            Err(error) => return Err(Error::disk(version)(error)),
        }
        let path = root.join("lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let lock = lock.map_err(Error::disk(&path))?;
        let until = Instant::now() + ENDS_WITHIN;
        while !godwit_sys::try_lock(&lock).map_err(Error::disk(&path))? {
            // A forked child has the lock until it executes another program, and a killed process until its last
            // thread is gone.
            if Instant::now() > until {
                return Err(Error::taken(root, godwit_sys::locked_by(&lock)));
            }
            std::thread::sleep(Duration::from_millis(5)); // nothing tells it
        }
        if fs::metadata(&version).map_or(0, |found| found.len()) == 0 {
            // As a whole or not at all, and before anything else.
            let new = root.join(NEW);
            let written = fs::write(&new, format!("{VERSION}\n"))
                .and_then(|()| File::open(&new)?.sync_all())
                .and_then(|()| fs::rename(&new, &version))
                .and_then(|()| File::open(root)?.sync_all());
            written.map_err(Error::disk(&version))?;
        }
        private(&root.join("bytes")).map_err(Error::disk(root))?;
        Ok(Self {
            root: root.into(),
            _lock: lock,
            watcher,
            lasting: [const { AtomicBool::new(false) }; 256],
            is_lasting: AtomicBool::new(false),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns where the records are.
    pub(crate) fn records(&self) -> PathBuf {
        self.root.join("held.db")
    }

    pub(crate) fn path(&self, id: Id) -> PathBuf {
        let name = id.to_string();
        self.root.join("bytes").join(&name[..2]).join(name)
    }

    fn leaves(&self, id: Id) -> PathBuf {
        self.path(id).with_extension("leaves")
    }

    /// Makes a file of a new number.
    pub(crate) fn create(&self) -> Result<(Id, File)> {
        let id = self.fresh()?;
        let path = self.path(id);
        let mut how = OpenOptions::new();
        how.read(true).write(true).create_new(true).mode(0o600);
        Ok((id, how.open(&path).map_err(Error::disk(&path))?))
    }

    /// Returns an id that no entry has, and makes the folder for its file.
    pub(crate) fn fresh(&self) -> Result<Id> {
        let id = fresh_id().map_err(Error::disk("/dev/urandom"))?;
        if let Some(folder) = self.path(id).parent() {
            private(folder).map_err(Error::disk(folder))?;
        }
        Ok(id)
    }

    /// Takes in a file of the same disk.
    pub(crate) fn take_in(&self, id: Id, file: &Path) -> Result<()> {
        let renamed = fs::rename(file, self.path(id)).and_then(|()| match file.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        });
        let renamed = renamed.and_then(|()| self.watched(|w| w.takes_in()));
        renamed.map_err(Error::disk(file))
    }

    /// Opens one anew: each reader has a place of their own in it.
    pub(crate) fn reader(&self, id: Id) -> Result<File> {
        let path = self.path(id);
        File::open(&path).map_err(Error::disk(&path))
    }

    /// Opens the file of an entry for writing.
    pub(crate) fn writer(&self, id: Id) -> Result<File> {
        let path = self.path(id);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        file.map_err(Error::disk(&path))
    }

    pub(crate) fn write(&self, id: Id, file: &File, offset: u64, bytes: &[u8]) -> Result<()> {
        let path = self.path(id);
        let watched = self.watched(|w| w.writes(&path, file, offset, bytes.len() as u64));
        let written = watched.and_then(|()| file.write_all_at(bytes, offset));
        written.map_err(Error::disk(path))
    }

    pub(crate) fn resize(&self, id: Id, file: &File, size: u64) -> Result<()> {
        let path = self.path(id);
        let watched = self.watched(|w| w.resizes(&path, file, size));
        let resized = watched.and_then(|()| file.set_len(size));
        resized.map_err(Error::disk(path))
    }

    /// Has blocks for a range be there, so that writing it cannot fail for want of room.
    pub(crate) fn reserve(&self, id: Id, file: &File, range: Range<u64>) -> Result<()> {
        let path = self.path(id);
        let watched = self.watched(|w| w.reserves());
        let reserved =
            watched.and_then(|()| reserve_blocks(file, range.start, range.end - range.start));
        reserved.map_err(Error::disk(path))
    }

    /// Has all that was written survive a power cut; `is_new`: its name as well.
    pub(crate) fn sync(&self, id: Id, is_new: bool) -> Result<()> {
        let path = self.path(id);
        let synced = || {
            File::open(&path)?.sync_data()?;
            if is_new {
                let lasts = &self.lasting[usize::from(id.bytes()[0])];
                let count = match (lasts.load(SeqCst), self.is_lasting.load(SeqCst)) {
                    (true, _) => 1,
                    (false, true) => 2,
                    (false, false) => 3,
                };
                for folder in path.ancestors().skip(1).take(count) {
                    File::open(folder)?.sync_all()?;
                }
                lasts.store(true, SeqCst);
                self.is_lasting.store(true, SeqCst);
            }
            self.watched(|w| w.synced(&path))
        };
        synced().map_err(Error::disk(&path))
    }

    /// Keeps the hashes of leaves of a file of that length. The row, which may be of another moment, tells a reader which of
    /// them count.
    pub(crate) fn keep_leaves(&self, id: Id, size: u64, known: &[(u64, Chain)]) -> Result<()> {
        let path = self.leaves(id);
        if known.is_empty() && !path.exists() {
            return Ok(());
        }
        let end = known.last().map_or(0, |(leaf, _)| leaf + 1);
        let mut chains = vec![0; end as usize * 32];
        for (leaf, chain) in known {
            let at = *leaf as usize * 32;
            chains[at..at + 32].copy_from_slice(&chain.0);
        }
        let bytes = [LEAVES_MAGIC, &size.to_le_bytes(), &chains].concat();
        let fresh = path.with_extension("leaves-new");
        let written = fs::write(&fresh, bytes)
            .and_then(|()| File::open(&fresh)?.sync_data())
            .and_then(|()| fs::rename(&fresh, &path));
        written.map_err(Error::disk(path))
    }

    /// Returns what was kept, and of what length of the file; nothing, where that cannot be read: then the leaves are
    /// hashed again.
    pub(crate) fn kept_leaves(&self, id: Id) -> (u64, Vec<(u64, Chain)>) {
        let bytes = fs::read(self.leaves(id)).unwrap_or_default();
        let kept = bytes.strip_prefix(LEAVES_MAGIC);
        let Some((size, chains)) = kept.and_then(|kept| kept.split_first_chunk()) else {
            return (0, Vec::new());
        };
        let chains = chains.chunks_exact(32).map(|chain| {
            let mut value = [0; 32];
            value.copy_from_slice(chain);
            Chain(value)
        });
        let known = (0..).zip(chains).filter(|(_, chain)| chain.0 != [0; 32]);
        (u64::from_le_bytes(*size), known.collect())
    }

    /// Removes the names; a program that has the file open keeps it.
    pub(crate) fn remove(&self, id: Id) -> Result<()> {
        for path in [self.path(id), self.leaves(id)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::disk(path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Calls `each` with the number of every file that is there.
    pub(crate) fn each(&self, mut each: impl FnMut(Id)) -> Result<()> {
        let bytes = self.root.join("bytes");
        for folder in fs::read_dir(&bytes).map_err(Error::disk(&bytes))? {
            let folder = folder.map_err(Error::disk(&bytes))?.path();
            for name in fs::read_dir(&folder).map_err(Error::disk(&folder))? {
                let name = name.map_err(Error::disk(&folder))?.file_name();
                let name = name.to_string_lossy();
                let stem = name.split_once('.').map_or(&*name, |(stem, _)| stem);
                if let Ok(id) = stem.parse() {
                    each(id);
                }
            }
        }
        Ok(())
    }

    /// Returns how many bytes of the disk a file takes.
    pub(crate) fn taken(&self, id: Id) -> u64 {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(self.path(id)).map_or(0, |meta| meta.blocks() * 512)
    }

    fn watched(&self, tell: impl FnOnce(&dyn Watcher) -> io::Result<()>) -> io::Result<()> {
        self.watcher.as_deref().map_or(Ok(()), tell)
    }
}

/// Makes a directory that no other user may enter, and those above it.
fn private(path: &Path) -> io::Result<()> {
    match path.is_dir() {
        true => Ok(()),
        false => DirBuilder::new().recursive(true).mode(0o700).create(path),
    }
}

/// How long a lock may outlive the process that had it.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
const VERSION: &str = "godwit depot 1";
/// The new file that is renamed to the mark.
const NEW: &str = "depot.new";
/// Files that may be there before the mark.
const OURS_AT_FIRST: [&str; 3] = ["lock", "bytes", NEW];
const LEAVES_MAGIC: &[u8] = b"godwitH1";

/// Returns an id that no other entry has.
fn fresh_id() -> io::Result<Id> {
    let mut id = [0; 12];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(Id::of(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_reads_as_written() {
        let id = fresh_id().unwrap();
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "12",
            "+00000000000000000000001",
            "00000000000000000000000G",
        ] {
            assert_eq!(bad.parse::<Id>(), Err(()), "{bad:?}");
        }
    }
}
