//! A directory held open, and what can be done to names in it.

use crate::{Kind, Meta};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
};

/// A directory held open: names in it mean the same whatever is renamed above it.
#[derive(Debug)]
pub struct Folder(pub(crate) OwnedFd);

/// How a file is opened. Never through a last link, never waiting for a peer of
/// a pipe, and never handed to a child.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Open {
    /// To be read.
    Read,
    /// To be read and changed; it exists.
    Change,
    /// To be changed only; it exists.
    ChangeUnread,
    /// To be read and changed; made if it does not exist.
    Create,
    /// To be read and changed; it must not exist.
    CreateNew,
    /// To be written behind its end; made if it does not exist.
    Append,
    /// Only as a name: to be asked about, not read.
    Name,
}

impl Open {
    pub(crate) fn flags(self) -> OFlags {
        let how = match self {
            Self::Read => OFlags::RDONLY,
            Self::Change => OFlags::RDWR,
            Self::ChangeUnread => OFlags::WRONLY,
            Self::Create => OFlags::RDWR | OFlags::CREATE,
            Self::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Self::Append => OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND,
            Self::Name => return OFlags::PATH | OFlags::CLOEXEC,
        };
        how | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC
    }
}

/// What a rename may do to what stands under the new name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Over {
    /// Replace it.
    Anything,
    /// The name must be free.
    Nothing,
}

/// Room of a file system.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Room {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

impl Folder {
    /// Opens a file in it; `mode` is for a new one, less the process's umask.
    pub fn open(&self, name: &OsStr, how: Open, mode: u32) -> io::Result<File> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let fd = fs::openat(&self.0, name, how.flags() | OFlags::NOFOLLOW, mode)?;
        Ok(File::from(fd))
    }

    /// Returns what the kernel tells of a name; of a link itself if it is one.
    pub fn meta(&self, name: &OsStr) -> io::Result<Meta> {
        Ok(fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?.into())
    }

    /// Returns where a link points to.
    pub fn target(&self, name: &OsStr) -> io::Result<PathBuf> {
        let bytes = fs::readlinkat(&self.0, name, Vec::new())?.into_bytes();
        Ok(OsString::from_vec(bytes).into())
    }

    /// Renames in one step.
    pub fn rename(&self, name: &OsStr, to: &Folder, new: &OsStr, over: Over) -> io::Result<()> {
        if over == Over::Anything {
            return Ok(fs::renameat(&self.0, name, &to.0, new)?);
        }
        match fs::renameat_with(&self.0, name, &to.0, new, RenameFlags::NOREPLACE) {
            // A file system that does not know the flag: a second name can
            // only be given where there is none.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::linkat(&self.0, name, &to.0, new, AtFlags::empty())?;
                Ok(fs::unlinkat(&self.0, name, AtFlags::empty())?)
            }
            done => Ok(done?),
        }
    }

    /// Removes a file or a link.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes a directory.
    pub fn make_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777))?)
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, name: &OsStr, target: &std::path::Path) -> io::Result<()> {
        Ok(fs::symlinkat(target, &self.0, name)?)
    }

    /// Returns the names in it, as they come.
    pub fn names(&self) -> io::Result<Names> {
        Ok(Names(fs::Dir::read_from(&self.0)?))
    }

    /// Returns the room of the file system it is on.
    pub fn room(&self) -> io::Result<Room> {
        let told = fs::fstatvfs(&self.0)?;
        Ok(Room {
            total_bytes: told.f_blocks.saturating_mul(told.f_frsize),
            free_bytes: told.f_bavail.saturating_mul(told.f_frsize),
        })
    }

    /// Returns a descriptor of the directory itself that can be locked.
    pub fn lockable(&self) -> io::Result<File> {
        self.open(OsStr::new("."), Open::Read, 0)
    }

    /// Waits until its names are on disk.
    pub fn sync(&self) -> io::Result<()> {
        self.lockable()?.sync_all()
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The names in a directory, with what the directory says they are.
#[derive(Debug)]
pub struct Names(fs::Dir);

impl Iterator for Names {
    type Item = io::Result<(OsString, Kind)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.0.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                return Some(Ok((
                    OsStr::from_bytes(name).to_owned(),
                    entry.file_type().into(),
                )));
            }
        }
    }
}
