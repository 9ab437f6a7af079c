//! Files of a home: each whole or not there, read and written by their owner alone.

use super::{Peer, PeersDir, read_peer};
use crate::{Error, Result};
use godwit_sys::crash;
use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Whether an existing file is replaced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Replace {
    Never,
    Whole,
}

impl PeersDir {
    /// Locks the home against changes by other processes until the lock is dropped.
    pub(super) fn lock(&self) -> Result<File> {
        let path = self.0.join(LOCK);
        let io = |cause| Error::io(path.clone(), cause);
        self.make_directory(&self.0).map_err(io)?;
        self.must_be_ours_alone()?;
        let mut open = fs::OpenOptions::new();
        let file = open.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(&path).map_err(io)?;
        self.give_to_owner(&path).map_err(io)?;
        let until = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(cause)) => return Err(io(cause)),
                Err(TryLockError::WouldBlock) if Instant::now() > until => {
                    return Err(io(io::Error::other("another godwit holds it for too long")));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(LOOK_AGAIN),
            }
        }
    }

    /// Refuses a home in which other users could add peers.
    pub(super) fn must_be_ours_alone(&self) -> Result<()> {
        for path in [self.0.clone(), self.0.join(super::PEERS)] {
            let mode = fs::metadata(&path).map_or(0, |meta| meta.mode());
            if mode & 0o022 != 0 {
                let what = format!(
                    "others may write there (mode {:04o}), and so could say who is let in",
                    mode & 0o7777
                );
                return Err(Error::exposed(path, what));
            }
        }
        Ok(())
    }

    /// Tells whether something can be written there, before something is asked of others.
    pub fn must_be_writable(&self) -> Result<()> {
        self.write(Path::new(PROBE), b"", Replace::Whole)?;
        removed(&self.0.join(PROBE)).map(drop)
    }

    /// Reads a peer. The file must have the peer's name: else one name could admit two nodes.
    pub(super) fn read_peer(&self, file: &Path) -> Result<Peer> {
        let peer = read_peer(file)?;
        match file.file_stem().is_some_and(|stem| stem == &*peer.name) {
            true => Ok(peer),
            false => Err(Error::bad_file(
                file,
                format!("names {}, and is not called so", peer.name),
            )),
        }
    }

    pub(super) fn files(&self, below: &str) -> Result<Vec<PathBuf>> {
        self.must_be_ours_alone()?;
        let directory = self.0.join(below);
        let listed = match fs::read_dir(&directory) {
            Ok(listed) => listed,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => {
                return Err(Error::io(directory, cause));
            }
        };
        let files = listed.map(|entry| entry.map(|entry| entry.path()));
        files
            .collect::<io::Result<_>>()
            .map_err(|cause| Error::io(directory, cause))
    }

    /// Writes a file that only its owner reads, whole or not at all.
    pub(super) fn write(&self, name: &Path, bytes: &[u8], replace: Replace) -> Result<()> {
        let path = self.0.join(name);
        let written = || {
            let above = path.parent().unwrap_or(&self.0);
            self.make_directory(above)?;
            let partial = path.with_extension(format!("{}.new", std::process::id()));
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&partial)?;
            file.write_all(bytes)?;
            self.give_to_owner(&partial)?;
            file.sync_all()?;
            crash::point("home.synced");
            let published = match replace {
                Replace::Whole => fs::rename(&partial, &path),
                // The first writer wins.
                Replace::Never => match fs::hard_link(&partial, &path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    linked => linked,
                },
            };
            crash::point("home.written");
            let _ = fs::remove_file(&partial);
            published?;
            // A name that is lost in a power cut would be a key that others know and we do not.
            File::open(above)?.sync_all()
        };
        written().map_err(|cause| Error::Io { path, cause })
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let is_below = path != self.0;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)?;
        match is_below {
            true => self.give_to_owner(path),
            false => Ok(()),
        }
    }

    /// Gives a file that root wrote into a user's home to that user: the user's node must read and
    /// change it.
    fn give_to_owner(&self, path: &Path) -> io::Result<()> {
        if godwit_sys::user_id() != 0 {
            return Ok(());
        }
        let home = fs::metadata(&self.0)?;
        match home.uid() {
            0 => Ok(()),
            uid => chown(path, Some(uid), Some(home.gid())),
        }
    }
}

pub(super) fn removed(file: &Path) -> Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => {
            crash::point("home.written");
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(Error::io(file, cause)),
    }
}

const LOCK: &str = "lock";
const PROBE: &str = "probe";
/// A lock holder only writes a few small files.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
