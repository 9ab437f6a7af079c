//! Names beneath an export, looked up by this process or by the opener of an account. The caller
//! need not know which.

use crate::{
    Account, Attributes, DirNames, DiskSpace, Lookup, Meta, NameMeta, NewFile, NewFileRequest,
    OpenMode, Overwrite, account::Afar, beneath::Beneath, folder::OpenDir, xattrs,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// A directory, and all that is beneath it: no name leads out of it.
#[derive(Debug)]
pub struct Root(RootLookup);

#[derive(Debug)]
enum RootLookup {
    Us(Beneath),
    Account(Account),
}

/// A directory held open: names in it mean the same whatever is renamed above it.
#[derive(Debug)]
pub struct Folder(FolderAt);

#[derive(Debug)]
enum FolderAt {
    Here(OpenDir),
    Afar(Afar),
}

impl Root {
    /// Opens the directory; names are looked up with the rights of this process.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(RootLookup::Us(Beneath::open(path)?)))
    }

    /// Opens the directory, with this way of looking up.
    pub fn open_with(path: PathBuf, lookup: Lookup) -> io::Result<Self> {
        Ok(Self(RootLookup::Us(Beneath::open_with(path, lookup)?)))
    }

    /// Opens the directory for lookups that follow no links: a link is refused, and
    /// [`crate::is_ring`] recognizes the error.
    pub fn open_plain(path: &Path) -> io::Result<Self> {
        Ok(Self(RootLookup::Us(Beneath::open_plain(path)?)))
    }

    /// Tells whether no link is followed.
    pub fn is_plain(&self) -> bool {
        match &self.0 {
            RootLookup::Us(beneath) => beneath.is_plain(),
            RootLookup::Account(account) => account.is_plain(),
        }
    }

    /// Tells whether names are looked up by an account's opener.
    pub fn is_afar(&self) -> bool {
        matches!(self.0, RootLookup::Account(_))
    }

    /// Returns the export of an account; names are looked up with its rights.
    pub fn of(account: Account) -> Self {
        Self(RootLookup::Account(account))
    }

    /// Returns where it was when it was opened.
    pub fn path(&self) -> &Path {
        match &self.0 {
            RootLookup::Us(beneath) => beneath.path(),
            RootLookup::Account(account) => account.export(),
        }
    }

    /// Opens a file; `mode` is for a new one, less the process's umask.
    pub fn file(&self, path: &Path, how: OpenMode, mode: u32) -> io::Result<File> {
        match &self.0 {
            RootLookup::Us(beneath) => beneath.file(path, how, mode),
            RootLookup::Account(account) => account.file(path, how, mode),
        }
    }

    /// Opens a directory, to do something to names in it.
    pub fn folder(&self, path: &Path) -> io::Result<Folder> {
        Ok(Folder(match &self.0 {
            RootLookup::Us(beneath) => FolderAt::Here(beneath.folder(path)?),
            RootLookup::Account(account) => FolderAt::Afar(account.folder(path)?),
        }))
    }

    /// Opens a directory, and returns the attributes of a name in it.
    pub fn place(&self, folder: &Path, name: &OsStr) -> io::Result<(Folder, io::Result<NameMeta>)> {
        match &self.0 {
            RootLookup::Us(beneath) => {
                let held = beneath.folder(folder)?;
                let told = held.told(name);
                Ok((Folder(FolderAt::Here(held)), told))
            }
            RootLookup::Account(account) => {
                let (afar, told) = account.place(folder, name)?;
                Ok((Folder(FolderAt::Afar(afar)), told))
            }
        }
    }

    /// Opens a directory and makes a new file in it: [`Folder::begin`].
    pub fn begin(&self, folder: &Path, fresh: &NewFileRequest) -> io::Result<(Folder, NewFile)> {
        match &self.0 {
            RootLookup::Us(beneath) => {
                let held = beneath.folder(folder)?;
                let begun = held.begin(fresh)?;
                Ok((Folder(FolderAt::Here(held)), begun))
            }
            RootLookup::Account(account) => {
                let (afar, begun) = account.begin(folder, fresh)?;
                Ok((Folder(FolderAt::Afar(afar)), begun))
            }
        }
    }

    /// Returns the attributes of a name; links are followed.
    pub fn meta(&self, path: &Path) -> io::Result<Meta> {
        match &self.0 {
            RootLookup::Us(beneath) => beneath.meta(path),
            RootLookup::Account(account) => account.meta(path),
        }
    }

    /// Sets attributes of the named file; links are followed.
    pub fn dress(&self, path: &Path, attributes: &Attributes) -> io::Result<()> {
        match &self.0 {
            RootLookup::Us(beneath) => attributes.put_on(&beneath.file(path, OpenMode::Name, 0)?),
            RootLookup::Account(account) => account.dress(path, attributes),
        }
    }

    /// Returns the extended attributes of the named file; links are followed.
    pub fn xattrs(&self, path: &Path) -> io::Result<Vec<(OsString, Vec<u8>)>> {
        match &self.0 {
            RootLookup::Us(beneath) => {
                let file = beneath.file(path, OpenMode::Name, 0)?;
                xattrs::all(&xattrs::names(&file)?, |name| xattrs::value(&file, name))
            }
            RootLookup::Account(account) => {
                let names = account.xattr(path, None)?;
                xattrs::all(&names, |name| account.xattr(path, Some(name)))
            }
        }
    }

    /// Sets an extended attribute of the named file, or removes it; links are followed.
    pub fn set_xattr(&self, path: &Path, name: &OsStr, value: Option<&[u8]>) -> io::Result<()> {
        match &self.0 {
            RootLookup::Us(beneath) => {
                xattrs::set(&beneath.file(path, OpenMode::Name, 0)?, name, value)
            }
            RootLookup::Account(account) => account.set_xattr(path, name, value),
        }
    }

    /// Tells whether its file system has extended attributes.
    pub fn has_xattrs(&self) -> bool {
        xattrs::are_there(self.path())
    }
}

impl Folder {
    /// Opens a file in it; `mode` is for a new one, less the process's umask.
    pub fn open(&self, name: &OsStr, how: OpenMode, mode: u32) -> io::Result<File> {
        match &self.0 {
            FolderAt::Here(held) => held.open(name, how, mode),
            FolderAt::Afar(afar) => afar.open(name, how, mode),
        }
    }

    /// Returns the attributes of a name; of a link itself if it is one.
    pub fn meta(&self, name: &OsStr) -> io::Result<Meta> {
        match &self.0 {
            FolderAt::Here(held) => held.meta(name),
            FolderAt::Afar(afar) => Ok(afar.tell_one(name)?.meta),
        }
    }

    /// Returns the attributes of many names: faster than one by one.
    pub fn tell(&self, names: &[OsString]) -> io::Result<Vec<io::Result<NameMeta>>> {
        match &self.0 {
            FolderAt::Here(held) => Ok(names.iter().map(|name| held.told(name)).collect()),
            FolderAt::Afar(afar) => afar.tell(names),
        }
    }

    /// Returns where a link points to.
    pub fn target(&self, name: &OsStr) -> io::Result<PathBuf> {
        match &self.0 {
            FolderAt::Here(held) => held.target(name),
            FolderAt::Afar(afar) => {
                let no_link = || io::ErrorKind::InvalidInput.into();
                afar.tell_one(name)?.target.ok_or_else(no_link)
            }
        }
    }

    /// Renames in one step.
    pub fn rename(
        &self,
        name: &OsStr,
        to: &Folder,
        new: &OsStr,
        over: Overwrite,
    ) -> io::Result<()> {
        match (&self.0, &to.0) {
            (FolderAt::Here(held), FolderAt::Here(to)) => held.rename(name, to, new, over),
            (FolderAt::Afar(afar), FolderAt::Afar(to)) => afar.rename(name, to, new, over),
            _ => Err(io::ErrorKind::CrossesDevices.into()),
        }
    }

    /// Removes a file or a link.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        match &self.0 {
            FolderAt::Here(held) => held.remove_file(name),
            FolderAt::Afar(afar) => afar.remove_file(name),
        }
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        match &self.0 {
            FolderAt::Here(held) => held.remove_folder(name),
            FolderAt::Afar(afar) => afar.remove_folder(name),
        }
    }

    /// Makes a directory.
    pub fn make_folder(&self, name: &OsStr) -> io::Result<()> {
        match &self.0 {
            FolderAt::Here(held) => held.make_folder(name),
            FolderAt::Afar(afar) => afar.make_folder(name),
        }
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        match &self.0 {
            FolderAt::Here(held) => held.make_link(name, target),
            FolderAt::Afar(afar) => afar.make_link(name, target),
        }
    }

    /// Gives attributes to an open file that is called `name` here. Where another
    /// account has the right to, the file must still have that name.
    pub fn dress(&self, name: &OsStr, file: &File, attributes: &Attributes) -> io::Result<()> {
        match &self.0 {
            FolderAt::Here(_) => attributes.put_on(file),
            FolderAt::Afar(afar) => afar.dress(name, file, attributes),
        }
    }

    /// Makes a new file, unless the entry under its name is in the way.
    pub fn begin(&self, fresh: &NewFileRequest) -> io::Result<NewFile> {
        match &self.0 {
            FolderAt::Here(held) => held.begin(fresh),
            FolderAt::Afar(afar) => afar.begin(fresh),
        }
    }

    /// Gives attributes to an open file that is called `fresh` here, and then
    /// another name, in one step.
    pub fn publish(
        &self,
        fresh: &OsStr,
        file: &File,
        attributes: &Attributes,
        name: &OsStr,
        over: Overwrite,
    ) -> io::Result<()> {
        match &self.0 {
            FolderAt::Here(held) => {
                attributes.put_on(file)?;
                held.rename(fresh, held, name, over)
            }
            FolderAt::Afar(afar) => afar.publish(fresh, file, attributes, name, over),
        }
    }

    /// Returns the names in the directory, unsorted.
    pub fn names(&self) -> io::Result<DirNames> {
        DirNames::of(self.lockable()?)
    }

    /// Returns the room of the file system it is on.
    pub fn room(&self) -> io::Result<DiskSpace> {
        match &self.0 {
            FolderAt::Here(held) => held.room(),
            FolderAt::Afar(afar) => afar.room(),
        }
    }

    /// Returns a descriptor of the directory itself that can be locked.
    pub fn lockable(&self) -> io::Result<File> {
        self.open(OsStr::new("."), OpenMode::Read, 0)
    }

    /// Waits until all that was written to its file system is on disk.
    pub fn sync_disk(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(self.lockable()?)?)
    }

    /// Waits until its names are on disk.
    pub fn sync(&self) -> io::Result<()> {
        self.lockable()?.sync_all()
    }
}
