//! An open directory, and operations on names in it.

use crate::{FileKind, Meta};
use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
};

/// A directory held open by this process.
#[derive(Debug)]
pub(crate) struct OpenDir(pub(crate) OwnedFd);

/// How a file is opened. Never through a last link, never waiting for a peer of
/// a pipe, and never handed to a child.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpenMode {
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

impl OpenMode {
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

/// Permission of a rename to replace the entry under the new name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Overwrite {
    /// Replace it.
    Anything,
    /// The name must be free.
    Nothing,
}

/// Attributes of a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NameMeta {
    /// Attributes of the entry; of a link itself, not of its target.
    pub meta: Meta,
    /// Target of a link; `None` for other entries.
    pub target: Option<PathBuf>,
}

/// A new file that is to take a name once it is whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewFileRequest {
    /// The name it will take.
    pub name: OsString,
    /// Entry that the file may replace.
    pub over: Overwrite,
    /// Temporary name of the file until it is whole.
    pub passing: OsString,
    /// Its permission bits, less the process's umask.
    pub mode: u32,
}

/// Result of beginning a new file.
#[derive(Debug)]
pub struct NewFile {
    /// Entry under the name now.
    pub old: Option<Meta>,
    /// The new file. `None`: the old entry is in the way, or the directory takes no file.
    pub file: Option<File>,
}

/// Room of a file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct DiskSpace {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

impl OpenDir {
    /// Opens a file in it; `mode` is for a new one, less the process's umask.
    pub(crate) fn open(&self, name: &OsStr, how: OpenMode, mode: u32) -> io::Result<File> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let fd = fs::openat(&self.0, name, how.flags() | OFlags::NOFOLLOW, mode)?;
        Ok(File::from(fd))
    }

    /// Returns the attributes of a name; of a link itself if it is one.
    pub(crate) fn meta(&self, name: &OsStr) -> io::Result<Meta> {
        Ok(fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?.into())
    }

    /// Returns where a link points to.
    pub(crate) fn target(&self, name: &OsStr) -> io::Result<PathBuf> {
        let bytes = fs::readlinkat(&self.0, name, Vec::new())?.into_bytes();
        Ok(OsString::from_vec(bytes).into())
    }

    /// Returns the attributes of a name, and the target of a link.
    pub(crate) fn told(&self, name: &OsStr) -> io::Result<NameMeta> {
        let meta = self.meta(name)?;
        let target = match meta.kind {
            FileKind::Link => Some(self.target(name)?),
            _ => None,
        };
        Ok(NameMeta { meta, target })
    }

    /// Makes a new file, unless the entry under its name is in the way.
    pub(crate) fn begin(&self, fresh: &NewFileRequest) -> io::Result<NewFile> {
        let old = match self.meta(&fresh.name) {
            Ok(old) => Some(old),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let is_free = |old: Meta| fresh.over == Overwrite::Anything && old.kind == FileKind::File;
        if !old.is_none_or(is_free) {
            return Ok(NewFile { old, file: None });
        }
        match self.open(&fresh.passing, OpenMode::CreateNew, fresh.mode) {
            Ok(file) => Ok(NewFile {
                old,
                file: Some(file),
            }),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && old.is_some() => {
                Ok(NewFile { old, file: None })
            }
            Err(e) => Err(e),
        }
    }

    /// Renames in one step.
    pub(crate) fn rename(
        &self,
        name: &OsStr,
        to: &OpenDir,
        new: &OsStr,
        over: Overwrite,
    ) -> io::Result<()> {
        if over == Overwrite::Anything {
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
    pub(crate) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes a directory.
    pub(crate) fn make_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o777))?)
    }

    /// Makes a symbolic link.
    pub(crate) fn make_link(&self, name: &OsStr, target: &std::path::Path) -> io::Result<()> {
        Ok(fs::symlinkat(target, &self.0, name)?)
    }

    /// Returns the room of the file system it is on.
    pub(crate) fn room(&self) -> io::Result<DiskSpace> {
        let told = fs::fstatvfs(&self.0)?;
        Ok(DiskSpace {
            total_bytes: told.f_blocks.saturating_mul(told.f_frsize),
            free_bytes: told.f_bavail.saturating_mul(told.f_frsize),
        })
    }
}

/// The names in a directory, with the kinds that the directory reports.
#[derive(Debug)]
pub struct DirNames(fs::Dir);

impl DirNames {
    pub(crate) fn of(folder: File) -> io::Result<Self> {
        Ok(Self(fs::Dir::new(folder)?))
    }
}

impl Iterator for DirNames {
    type Item = io::Result<(OsString, FileKind)>;

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
