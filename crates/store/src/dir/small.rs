//! Writing small files, with as few calls as it takes.

use super::{
    Inner, now,
    partial::passing_name,
    place, stat,
    upload::{Named, dress},
    wrong,
};
use crate::{Error, Finished, Given, How, Result};
use godwit_core::{Algorithm, Digest};
use godwit_sys::{self as sys, Folder, Kind, Open, Over};
use std::{
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// The directory of the file before: the next one is mostly beside it.
#[derive(Debug, Default)]
pub(super) struct Last(Option<(PathBuf, Folder)>);

impl Inner {
    /// Writes a small file at once. `None`: it is none of the plain cases.
    pub(super) fn write_one(&self, given: &Given, last: &mut Last) -> Result<Option<Finished>> {
        let over = match given.how {
            How::New => Over::Nothing,
            How::Replace(None) => Over::Anything,
            _ => return Ok(None),
        };
        let Some(name) = given.path.file_name() else {
            return Ok(None);
        };
        place::not_reserved(&given.path)?;
        let folder = self.folder_of(&given.path, last)?;
        let failed = |e| wrong(&given.path, e);
        let old = match folder.meta(name) {
            Ok(_) if over == Over::Nothing => {
                return Err(Error::Exists {
                    path: given.path.clone(),
                });
            }
            Ok(old) if old.kind == Kind::File => Some(old),
            Ok(_) => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        let passing = passing_name();
        let mode = given.mode.unwrap_or(0o666) & 0o777 | 0o200;
        let file = match folder.open(&passing, Open::CreateNew, mode) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && old.is_some() => {
                return Ok(None);
            }
            done => done.map_err(failed)?,
        };
        let published = file
            .write_all_at(&given.bytes, 0)
            .and_then(|()| {
                let named = Named {
                    folder,
                    name: &passing,
                    file: &file,
                };
                dress(&named, given.mode, old.as_ref(), given.mtime)
            })
            .and_then(|()| folder.rename(&passing, folder, name, over))
            .and_then(|()| sys::meta(&file));
        let meta = published.map_err(|e| {
            let _ = folder.remove_file(&passing);
            failed(e)
        })?;
        let digest = Digest::of(Algorithm::Blake3, &given.bytes);
        self.known.wrote(&meta, &digest);
        Ok(Some(Finished {
            version: stat(&meta, None).version(now()),
            digests: vec![digest],
            ..Finished::default()
        }))
    }

    fn folder_of<'a>(&self, path: &Path, last: &'a mut Last) -> Result<&'a Folder> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let is_same = last.0.as_ref().is_some_and(|(of, _)| of == parent);
        if !is_same {
            let folder = self.root.folder(parent).map_err(|e| wrong(path, e))?;
            last.0 = Some((parent.into(), folder));
        }
        Ok(&last.0.as_ref().expect("just put there").1)
    }
}
