//! The place of a name: its directory, and its name there.

use super::{DirInner, partial, stat, wrong};
use crate::{Error, Result, Stat};
use godwit_sys::{self as sys, Folder, Meta, NameMeta};
use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Component, Path, PathBuf},
};

/// The place of a file that will be written; links are followed, even to a missing name.
#[derive(Debug)]
pub(super) struct FilePlace {
    /// Beneath the root, with links followed.
    pub(super) path: PathBuf,
    pub(super) folder: Folder,
    pub(super) name: OsString,
    pub(super) old: Option<Meta>,
}

impl DirInner {
    /// Finds the directory that holds a name; a link is that name itself.
    pub(super) fn place(&self, path: &Path) -> Result<(Folder, OsString)> {
        let (parent, name) = split(path)?;
        let folder = self.root.folder(parent).map_err(|e| wrong(path, e))?;
        Ok((folder, name.to_owned()))
    }

    /// Looks at a name, and follows no link there.
    pub(super) fn stat_of_name(&self, path: &Path) -> Result<Stat> {
        let (parent, name) = split(path)?;
        let failed = |e| wrong(path, e);
        let (_, told) = self.root.place(parent, name).map_err(failed)?;
        let told = told.map_err(failed)?;
        Ok(stat(&told.meta, told.target))
    }

    /// Finds where a file that is called so is, or will be.
    pub(super) fn place_of_file(&self, path: &Path) -> Result<FilePlace> {
        let mut at = path.to_owned();
        for _ in 0..LINKS_MAX {
            let (folder, name) = split(&at)?;
            let (folder, told) = self.root.place(folder, name).map_err(|e| wrong(path, e))?;
            let told = match told {
                Ok(told) => Some(told),
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                Err(e) => return Err(wrong(path, e)),
            };
            let Some(NameMeta {
                target: Some(target),
                ..
            }) = told
            else {
                let (name, old) = (name.to_owned(), told.map(|told| told.meta));
                return Ok(FilePlace {
                    path: at,
                    folder,
                    name,
                    old,
                });
            };
            if self.root.is_plain() {
                return Err(Error::bad_name(path, "became a link"));
            }
            at = self
                .beneath(path, &target)?
                .unwrap_or_else(|| parent(&at).join(target));
        }
        Err(too_many_links(path))
    }

    /// Finds out where links lead, if there are any, and follows none.
    pub(super) fn without_links(&self, path: &Path) -> Result<PathBuf> {
        match self.root.meta(path) {
            Err(e) if sys::is_ring(&e) => self.behind_links(path),
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => Err(wrong(path, e)),
            // Where nothing is, or nothing to be seen, there is no link before it.
            _ => Ok(path.into()),
        }
    }

    fn behind_links(&self, path: &Path) -> Result<PathBuf> {
        let mut at = PathBuf::new();
        let mut left: Vec<OsString> = names(path).rev().collect();
        let mut links = 0;
        while let Some(name) = left.pop() {
            if name == ".." {
                let is_outside = !at.pop();
                if is_outside {
                    return Err(wrong(path, io::ErrorKind::CrossesDevices.into()));
                }
                continue;
            }
            let told = self.root.place(&at, &name).and_then(|(_, told)| told);
            let Ok(NameMeta {
                target: Some(target),
                ..
            }) = &told
            else {
                // A missing directory has no parent.
                if told.is_err() && left.iter().any(|name| name == "..") {
                    return Err(Error::missing(path));
                }
                at.push(name);
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(too_many_links(path));
            }
            match self.beneath(path, target)? {
                Some(beneath) => {
                    at.clear();
                    left.extend(names(&beneath).rev());
                }
                None => left.extend(names(target).rev()),
            }
        }
        Ok(at)
    }

    /// Finds a file that is there, also under the name of a partial.
    pub(super) fn place_of_shared(&self, path: &Path) -> Result<FilePlace> {
        let name = path
            .file_name()
            .ok_or_else(|| Error::IsDirectory { path: path.into() })?;
        let failed = |e| wrong(path, e);
        let folder = self.root.folder(parent(path)).map_err(failed)?;
        let meta = folder.meta(name).map_err(failed)?;
        Ok(FilePlace {
            path: path.into(),
            folder,
            name: name.into(),
            old: Some(meta),
        })
    }

    /// Returns an absolute target of a link as a path beneath the root.
    fn beneath(&self, path: &Path, target: &Path) -> Result<Option<PathBuf>> {
        if target.is_relative() {
            return Ok(None);
        }
        match target.strip_prefix(self.root.path()) {
            Ok(beneath) => Ok(Some(beneath.into())),
            Err(_) => Err(wrong(path, io::ErrorKind::CrossesDevices.into())),
        }
    }
}

/// Returns the names of a path; `..` is one.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

fn too_many_links(path: &Path) -> Error {
    Error::bad_name(path, "leads through too many links")
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn split(path: &Path) -> Result<(&Path, &OsStr)> {
    not_reserved(path)?;
    match path.file_name() {
        Some(name) => Ok((parent(path), name)),
        None if path.as_os_str().is_empty() => Err(Error::directory(path)),
        None => Err(Error::bad_name(path, "ends in no name")),
    }
}

/// Refuses the names of partials, which are no user's files.
pub(super) fn not_reserved(path: &Path) -> Result<()> {
    match path.file_name().is_some_and(partial::is_reserved) {
        true => Err(Error::bad_name(
            path,
            "is reserved for parts of uploads: choose another name",
        )),
        false => Ok(()),
    }
}

/// The limit of links, as in Linux.
const LINKS_MAX: usize = 40;
