//! Lists a directory.

use super::{DirInner, partial, place, stat, wrong};
use crate::{Entry, Result};
use std::{
    ffi::{OsStr, OsString},
    io,
    path::Path,
};

impl DirInner {
    pub(super) fn list(
        &self,
        path: &Path,
        each: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        self.list_over(path, each, &mut |_| {})
    }

    /// Lists a directory as `list` does, and calls `hidden` for names that are kept for partials.
    pub(super) fn list_over(
        &self,
        path: &Path,
        each: &mut dyn FnMut(Entry) -> Result<()>,
        hidden: &mut dyn FnMut(&OsStr),
    ) -> Result<()> {
        place::not_reserved(path)?;
        let folder = self.root.folder(path).map_err(|e| wrong(path, e))?;
        let found = folder.names().map_err(|e| wrong(path, e))?;
        let mut found =
            found
                .map(|found| found.map(|(name, _)| name))
                .filter(|found| match found {
                    Ok(name) if partial::is_reserved(name) => {
                        if !partial::is_beside(name) {
                            hidden(name);
                        }
                        false
                    }
                    _ => true,
                });
        loop {
            let some: io::Result<Vec<OsString>> = found.by_ref().take(AT_ONCE).collect();
            let some = some.map_err(|e| wrong(path, e))?;
            if some.is_empty() {
                return Ok(());
            }
            let told = folder.tell(&some).map_err(|e| wrong(path, e))?;
            for (name, told) in some.into_iter().zip(told) {
                match told {
                    Ok(told) => each(Entry {
                        path: name.into(),
                        stat: stat(&told.meta, told.target),
                    })?,
                    Err(e) if is_gone(&e) => {}
                    Err(e) => return Err(wrong(path, e)),
                }
            }
        }
    }
}

/// Removed, or no link any more, since the directory was read.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
    )
}

/// How many names are examined together.
const AT_ONCE: usize = 256;
