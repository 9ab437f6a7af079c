//! Writing small files, with as few calls as it takes.

use super::{DirInner, now, partial::passing_name, place, stat, upload::NamedFile, wrong};
use crate::{Error, Finished, Result, SmallWrite, WriteMode};
use godwit_core::{Algorithm, Digest};
use godwit_sys::{self as sys, Folder, NewFile, NewFileRequest, Overwrite};
use std::{
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// The directory of the file before: the next one is mostly beside it.
#[derive(Debug, Default)]
pub(super) struct LastFolder(Option<(PathBuf, Folder)>);

impl DirInner {
    /// Writes a small file at once. `None`: it is none of the plain cases.
    pub(super) fn write_one(
        &self,
        given: &SmallWrite,
        last: &mut LastFolder,
    ) -> Result<Option<Finished>> {
        let over = match given.how {
            WriteMode::New => Overwrite::Nothing,
            WriteMode::Replace(None) => Overwrite::Anything,
            _ => return Ok(None),
        };
        let Some(name) = given.path.file_name() else {
            return Ok(None);
        };
        place::not_reserved(&given.path)?;
        let failed = |e| wrong(&given.path, e);
        let fresh = NewFileRequest {
            name: name.to_owned(),
            over,
            passing: passing_name(),
            mode: given.mode.unwrap_or(0o666) & 0o777 | 0o200,
        };
        let (folder, begun) = self.begin(&given.path, &fresh, last).map_err(failed)?;
        let (file, old) = match begun {
            NewFile {
                file: Some(file),
                old,
            } => (file, old),
            NewFile { old: Some(_), .. } if over == Overwrite::Nothing => {
                return Err(Error::exists(given.path.clone()));
            }
            _ => return Ok(None),
        };
        let named = NamedFile {
            folder,
            name: &fresh.passing,
            file: &file,
        };
        let published = file
            .write_all_at(&given.bytes, 0)
            .and_then(|()| named.publish(given.mode, old.as_ref(), given.mtime, (name, over)))
            .and_then(|()| sys::meta(&file));
        let meta = published.map_err(|e| {
            let _ = folder.remove_file(&fresh.passing);
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

    fn begin<'a>(
        &self,
        path: &Path,
        fresh: &NewFileRequest,
        last: &'a mut LastFolder,
    ) -> io::Result<(&'a Folder, NewFile)> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let is_same = last.0.as_ref().is_some_and(|(of, _)| of == parent);
        let begun = match &last.0 {
            Some((_, folder)) if is_same => folder.begin(fresh)?,
            _ => {
                let (folder, begun) = self.root.begin(parent, fresh)?;
                last.0 = Some((parent.into(), folder));
                begun
            }
        };
        Ok((&last.0.as_ref().expect("just put there").1, begun))
    }
}
