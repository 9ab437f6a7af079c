//! A store over a directory of this machine.
//!
//! Every name is looked up beneath the held root: no `..`, no link and no race leads out. Files appear whole. A file
//! in progress has a hidden name beside the target ([`partial`]), with a record of the landed ranges ([`record`]).
//! One step gives it the target's name ([`upload`]).

mod append;
mod attempts;
mod known;
mod ledger;
mod list;
mod partial;
mod patch;
mod place;
mod read;
mod record;
mod small;
#[cfg(test)]
mod tests;
mod upload;
mod was;

pub use partial::Partial;

use crate::{
    BlockWriter, Capabilities, Entry, EntryKind, Error, Finished, NextFile, Read, RemovalKind,
    Result, Set, Sink, Small, SmallResult, SmallWrite, Space, Stat, Store, Walk, Write, WriteMode,
    Xattrs, channel::Watch,
};
use godwit_core::{Algorithm, Chain, Digest, Extents, Version};
use godwit_sys::{self as sys, Account, Attributes, Folder, Meta, OpenMode, Overwrite, Root};
use known::KnownHashes;
use ledger::{Carried, Doomed};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// A directory of this machine, opened for one user. Clones share it.
#[derive(Clone, Debug)]
pub struct Dir(Arc<DirInner>);

/// The rights with which names are looked up and files opened.
#[derive(Clone, Debug, Default)]
pub enum Opener {
    /// With those of this process.
    #[default]
    Myself,
    /// With the rights of this process, and following no links. The caller asked [`Dir::without_links`] for the
    /// resolved path.
    Plainly,
    /// With those of an account, beneath its export.
    Account(Account),
}

#[derive(Debug)]
struct DirInner {
    root: Root,
    identity: String,
    known: KnownHashes,
    /// When each directory was last searched for old notes; `None`: a node does that.
    tidied: Option<Mutex<HashMap<PathBuf, Instant>>>,
    /// The directory for notes of publications; `None`: beside the files.
    notes: Option<Folder>,
}

impl Dir {
    /// Opens the directory `root` for `identity`, whose partials are apart from
    /// those of others. With the root `/` links may lead anywhere. An account
    /// sees the export that its openers were begun for, which `root` must be.
    pub fn open(root: &Path, identity: &str, opener: Opener) -> Result<Self> {
        let root = match opener {
            Opener::Myself => Root::open(root).map_err(|e| Error::io(root, e))?,
            Opener::Plainly => Root::open_plain(root).map_err(|e| Error::io(root, e))?,
            Opener::Account(account) if account.export() == root => Root::of(account),
            Opener::Account(account) => {
                return Err(Error::unsupported(
                    format!("opening {} as {}", root.display(), account.name()),
                    format!("openers see only {}", account.export().display()),
                ));
            }
        };
        Ok(Self(Arc::new(DirInner {
            root,
            identity: identity.into(),
            known: KnownHashes::default(),
            tidied: None,
            notes: None,
        })))
    }

    /// Removes leftovers when it writes another note in a directory: notes of publications after a day, idle uploads
    /// after a week. For a tree that no node serves, which has no [sweep](Self::sweep). A directory is searched once
    /// a day.
    pub fn tidying(mut self) -> Self {
        let inner = Arc::get_mut(&mut self.0).expect("it is not shared yet");
        inner.tidied = Some(Mutex::default());
        self
    }

    /// Keeps notes of publications in `directory`, and not beside the files.
    pub fn keeping_notes(mut self, directory: &Path) -> Result<Self> {
        let notes = Root::open(directory).and_then(|root| root.folder(Path::new("")));
        let inner = Arc::get_mut(&mut self.0).expect("it was just opened");
        inner.notes = Some(notes.map_err(|e| Error::io(directory, e))?);
        Ok(self)
    }

    /// Returns the hashes of leaves of a file, which is read if necessary. Leaves beyond the end are left out.
    pub fn leaves(&self, path: &Path, leaves: Range<u64>) -> Result<Vec<Chain>> {
        self.0.leaves(path, leaves)
    }

    /// Returns the kept upload of this identity to `path`, if there is one.
    pub fn partial(&self, path: &Path, id: Option<&str>) -> Result<Option<Partial>> {
        self.0.partial(path, id)
    }

    /// Removes the kept upload of this identity to `path`. `Missing` if there is none, `Denied` while a process is
    /// writing it.
    pub fn abandon(&self, path: &Path, id: Option<&str>) -> Result<()> {
        self.0.abandon(path, id)
    }

    /// Starts to write some bytes of a file that another process puts together at `path`. `path` is on the same disk:
    /// its sink returned the place ([`Sink::lies_at`]). The ranges are reported to that sink ([`Sink::came`]); this
    /// one publishes nothing.
    pub fn share(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        patch::share(&self.0, path, write)
    }

    /// Returns the same path without links, as far as it exists. For stores that follow no links
    /// ([`Opener::Plainly`]): a name that becomes a link afterwards is then refused.
    pub fn without_links(&self, path: &Path) -> Result<PathBuf> {
        self.0.without_links(path)
    }

    /// Opens a file for a program to read, and returns its attributes.
    pub fn lend(&self, path: &Path) -> Result<(File, Stat)> {
        self.0.lend(path)
    }

    /// Returns a file without a name, on the disk of `path`, for bytes that must be complete before their use. The
    /// kernel removes the file at its close.
    pub fn spool(&self, path: &Path) -> Result<File> {
        let folder = self.0.place_of_file(path)?.folder;
        let name = partial::passing_name();
        let made = folder.open(&name, OpenMode::CreateNew, 0o600);
        made.and_then(|file| folder.remove_file(&name).map(|()| file))
            .map_err(|e| wrong(path, e))
    }

    /// Tells whether files are opened with the rights of this process, and not of an account.
    pub fn is_our_own(&self) -> bool {
        !self.0.root.is_afar()
    }

    /// Returns the attributes of the name itself: those of a link, not of its target.
    pub fn stat_of_name(&self, path: &Path) -> Result<Stat> {
        self.0.stat_of_name(path)
    }

    /// Renames as [`Store::rename`] does; the new name must be free.
    pub fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to, Overwrite::Nothing)
    }

    /// Hands a file to another group, as far as the kernel permits.
    pub fn set_group(&self, path: &Path, group: u32) -> Result<()> {
        place::not_reserved(path)?;
        let attributes = Attributes {
            group: Some(group),
            ..Attributes::default()
        };
        self.0
            .root
            .dress(path, &attributes)
            .map_err(|e| wrong(path, e))
    }

    /// Returns the digest of a file as [`Store::digest`] does, for as long as `watch`
    /// is not cancelled; it counts the bytes that are read.
    pub fn digest_watched(
        &self,
        path: &Path,
        by: Algorithm,
        range: Option<Range<u64>>,
        watch: &Watch,
    ) -> Result<Digest> {
        self.0.digest(path, by, range, &|bytes| {
            watch.moved(bytes);
            watch.canceled().check()
        })
    }

    /// Removes partials of all users, in the whole tree, that are not in use and were not written for `age`. Returns
    /// how many.
    pub fn sweep(&self, age: Duration) -> Result<u64> {
        self.0.sweep(Path::new(""), age)
    }
}

impl Store for Dir {
    fn can(&self) -> Result<Capabilities> {
        Ok(Capabilities {
            any_order: true,
            again: true,
            in_place: true,
            append: true,
            attempts: true,
            atomic: true,
            resume: true,
            ranges: true,
            write: true,
            set_mtime: true,
            set_mode: true,
            xattrs: self.0.root.has_xattrs(),
            links: true,
            space: true,
            digests: Algorithm::ALL.to_vec(),
            leaves: false,
            passes_on: false,
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        place::not_reserved(path)?;
        let meta = self.0.root.meta(path).map_err(|e| wrong(path, e))?;
        Ok(stat(&meta, None))
    }

    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.0.list(path, each)
    }

    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        self.0.read(path, want, streams, into)
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        match write.attempt {
            0 => self.begin(path, write),
            attempt => attempts::begin(&self.0, path, write, attempt, |write| {
                self.begin(path, write)
            }),
        }
    }

    fn remove(&self, path: &Path, what: RemovalKind) -> Result<()> {
        let (folder, name) = self.0.place(path)?;
        let removed = match what {
            RemovalKind::File => {
                let ledger = folder.meta(&name).ok();
                let ledger = ledger.and_then(|old| Doomed::find(&folder, &name, &old));
                let removed = folder.remove_file(&name);
                if removed.is_ok() {
                    ledger.into_iter().for_each(|ledger| ledger.remove(&folder));
                }
                removed
            }
            RemovalKind::Directory => match folder.remove_folder(&name) {
                // The directory may have only partials of abandoned uploads.
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    self.0.remove_orphans(path)?;
                    folder.remove_folder(&name)
                }
                done => done,
            },
        };
        removed.map_err(|e| wrong(path, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to, Overwrite::Anything)
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        let (folder, name) = self.0.place(path).map_err(|e| match e {
            Error::IsDirectory { path } => Error::exists(path),
            other => other,
        })?;
        folder.make_folder(&name).map_err(|e| wrong(path, e))
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        let inner = &self.0;
        if let Some(target) = &set.link_to {
            let (folder, name) = inner.place(path)?;
            return folder.make_link(&name, target).map_err(|e| wrong(path, e));
        }
        place::not_reserved(path)?;
        if let Some(length) = set.length {
            let file = inner.file(path, OpenMode::ChangeUnread, 0)?;
            regular(path, &sys::meta(&file).map_err(|e| wrong(path, e))?)?;
            file.set_len(length).map_err(|e| wrong(path, e))?;
        }
        set.check_xattrs(path)?;
        for (name, value) in &set.xattrs {
            let done = inner.root.set_xattr(path, name, value.as_deref());
            done.map_err(|e| of_xattrs(path, e))?;
        }
        if set.mode.is_none() && set.mtime.is_none() && set.atime.is_none() {
            return Ok(());
        }
        let attributes = Attributes {
            mode: set.mode,
            mtime: set.mtime,
            atime: set.atime,
            ..Attributes::default()
        };
        inner
            .root
            .dress(path, &attributes)
            .map_err(|e| wrong(path, e))
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        self.0.digest(path, by, range, &|_| Ok(()))
    }

    crate::has!(self, Facets: transit batch volume);
}

impl crate::Batch for Dir {
    fn walk_all(&self, path: &Path, walk: &mut Walk<'_>) -> Result<()> {
        let Walk {
            each,
            hidden,
            unread,
        } = walk;
        let mut list = |below: &Path, each: &mut dyn FnMut(Entry) -> Result<()>| {
            let hidden = &mut |name: &OsStr| hidden(below.join(name));
            self.0.list_over(&path.join(below), each, hidden)
        };
        crate::store::walk_from(
            vec![PathBuf::new()],
            &mut list,
            &mut Walk {
                each,
                hidden: &mut |_| (),
                unread,
            },
        )
    }

    fn hidden(&self, path: &Path) -> Result<Vec<PathBuf>> {
        self.0.hidden(path)
    }

    fn read_small(
        &self,
        next: &mut NextFile<'_, PathBuf>,
        each: &mut SmallResult<'_, Small>,
    ) -> Result<()> {
        while let Some(path) = next() {
            let small = self.0.read_one(&path);
            each(path, small);
        }
        Ok(())
    }

    fn write_small(
        &self,
        next: &mut NextFile<'_, SmallWrite>,
        each: &mut SmallResult<'_, Finished>,
    ) -> Result<()> {
        let (mut last, mut behind) = (small::LastFolder::default(), None);
        while let Some(given) = behind.take().or_else(&mut *next) {
            if append::writer_of(&given).is_some() {
                let mut run = append::AppendRun::of(given, next);
                behind = run.behind.take();
                run.write(&self.0, each);
                continue;
            }
            let finished = match self.0.write_one(&given, &mut last) {
                Ok(Some(finished)) => Ok(finished),
                Ok(None) => crate::store::write_one_small(self, &given),
                Err(error) => Err(error),
            };
            each(given.path, finished);
        }
        Ok(())
    }
}

impl crate::Transit for Dir {
    fn flush(&self, path: &Path) -> Result<()> {
        let synced = self.0.folder_around(path).and_then(|f| f.sync_disk());
        let notes = self.0.notes.as_ref().map_or(Ok(()), Folder::sync_disk);
        synced.and(notes).map_err(|e| wrong(path, e))
    }

    fn published_as(&self, path: &Path, id: &str) -> Result<Option<Version>> {
        self.0.became(path, id)
    }
}

impl crate::Volume for Dir {
    fn xattrs(&self, path: &Path) -> Result<Xattrs> {
        place::not_reserved(path)?;
        let found = self.0.root.xattrs(path).map_err(|e| of_xattrs(path, e))?;
        Ok(found.into_iter().collect())
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let folder = self.0.folder_around(path);
        let room = folder.and_then(|f| f.room()).map_err(|e| wrong(path, e))?;
        Ok(Space {
            total_bytes: room.total_bytes,
            free_bytes: room.free_bytes,
        })
    }
}

impl Dir {
    fn begin(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        match write.how {
            WriteMode::Append { writer, seq } if seq > 0 => {
                append::begin(&self.0, path, write, (writer, seq))
            }
            WriteMode::InPlace | WriteMode::Append { .. } => patch::begin(&self.0, path, write),
            WriteMode::New | WriteMode::Replace(_) => upload::begin(&self.0, path, write),
        }
    }
}

impl DirInner {
    /// Returns the directory that `path` is, or is in.
    fn folder_around(&self, path: &Path) -> io::Result<Folder> {
        match self.root.folder(path) {
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                self.root.folder(path.parent().unwrap_or(Path::new("")))
            }
            done => done,
        }
    }

    fn rename(&self, from: &Path, to: &Path, over: Overwrite) -> Result<()> {
        let (source, old) = self.place(from)?;
        let (target, new) = self.place(to)?;
        self.rename_with_ledger((&source, &old), (&target, &new), over)
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => Error::io(from, e),
                io::ErrorKind::CrossesDevices => Error::unsupported(
                    format!("renaming to {}", to.display()),
                    "it is on another file system",
                ),
                // The kernel does not report which directory forbids the rename.
                io::ErrorKind::PermissionDenied if is_open(&target) => wrong(from, e),
                _ => wrong(to, e),
            })
    }

    /// Renames a file together with its ledger of appends.
    fn rename_with_ledger(
        &self,
        (source, old): (&Folder, &OsStr),
        (target, new): (&Folder, &OsStr),
        over: Overwrite,
    ) -> io::Result<()> {
        let meta = source.meta(old)?;
        if meta.kind != sys::FileKind::File {
            return source.rename(old, target, new, over);
        }
        let replaced = target.meta(new).ok().filter(|is| is.inode != meta.inode);
        let replaced = replaced.and_then(|is| Doomed::find(target, new, &is));
        let carried = Carried::begin(source, old, &meta, target)?;
        let renamed = source.rename(old, target, new, over);
        // Removes the ledger of the replaced file, and one of the two names of the kept one.
        if let (Ok(()), Some(ledger)) = (&renamed, replaced) {
            ledger.remove(target);
        }
        if let Some(ledger) = carried {
            ledger.end(if renamed.is_ok() { source } else { target });
        }
        renamed
    }

    /// Opens a file by its path.
    fn file(&self, path: &Path, how: OpenMode, mode: u32) -> Result<File> {
        self.root.file(path, how, mode).map_err(|e| wrong(path, e))
    }
}

/// Tells whether a name can be made in a directory, by making one.
fn is_open(folder: &Folder) -> bool {
    let name = partial::passing_name();
    let made = folder.open(&name, OpenMode::CreateNew, 0o600);
    made.is_ok() && folder.remove_file(&name).is_ok()
}

/// Adds the path to the error of a system call, and explains names that lead outside.
fn wrong(path: &Path, cause: io::Error) -> Error {
    let why = match cause.kind() {
        io::ErrorKind::CrossesDevices => "leads out of the exported directory",
        _ if sys::is_ring(&cause) => "leads through too many links",
        io::ErrorKind::InvalidInput => "is no name here",
        // No disk returns this error, only an opener that ended.
        io::ErrorKind::ConnectionAborted => {
            return Error::busy("this machine", cause.to_string());
        }
        _ => return Error::io(path, cause),
    };
    Error::bad_name(path, why)
}

/// Adds the path to the error of a call about extended attributes.
fn of_xattrs(path: &Path, cause: io::Error) -> Error {
    match cause.kind() {
        _ if sys::has_no_xattrs(&cause) => Error::unsupported(
            format!("an extended attribute of {}", path.display()),
            "its file system has none",
        ),
        io::ErrorKind::ArgumentListTooLong => Error::unsupported(
            format!("reading the attributes of {}", path.display()),
            "they have more than 1 MiB",
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::no_space(path, "for its attributes")
        }
        _ => wrong(path, cause),
    }
}

/// Refuses a name that is no regular file. The file was opened without waiting, so that a pipe without a writer does
/// not block.
fn regular(path: &Path, meta: &Meta) -> Result<()> {
    let is = match meta.kind {
        sys::FileKind::File => return Ok(()),
        sys::FileKind::Directory => return Err(Error::directory(path)),
        sys::FileKind::Pipe => "a pipe",
        sys::FileKind::Socket => "a socket",
        sys::FileKind::Device => "a device",
        sys::FileKind::Link | sys::FileKind::Unknown => "not a file",
    };
    Err(Error::bad_name(path, format!("is {is}")))
}

fn stat(meta: &Meta, target: Option<PathBuf>) -> Stat {
    Stat {
        kind: match meta.kind {
            sys::FileKind::File => EntryKind::File,
            sys::FileKind::Directory => EntryKind::Directory,
            sys::FileKind::Link => EntryKind::Link,
            _ => EntryKind::Other,
        },
        size: meta.size,
        mtime: Some(meta.mtime),
        mode: Some(meta.mode),
        owner: Some(meta.uid.to_string()),
        group: Some(meta.gid.to_string()),
        target,
        unique: Some(format!("{:x}-{:x}", meta.device, meta.inode)),
        digest: None,
        touched: Some(meta.ctime),
    }
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
