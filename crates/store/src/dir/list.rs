//! What is in a directory.

use super::{Inner, partial, place, stat, wrong};
use crate::{Entry, Result};
use godwit_sys::{Folder, Kind};
use std::{ffi::OsString, io, path::Path};

impl Inner {
    pub(super) fn list(
        &self,
        path: &Path,
        each: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        place::not_reserved(path)?;
        let folder = self.root.folder_to_list(path).map_err(|e| wrong(path, e))?;
        for found in folder.names().map_err(|e| wrong(path, e))? {
            let (name, _) = found.map_err(|e| wrong(path, e))?;
            if partial::is_reserved(&name) {
                continue;
            }
            if let Some(entry) = entry(&folder, name).map_err(|e| wrong(path, e))? {
                each(entry)?;
            }
        }
        Ok(())
    }
}

/// Returns what a name is; `None` if it is gone by now.
fn entry(folder: &Folder, name: OsString) -> io::Result<Option<Entry>> {
    let told = folder.meta(&name).and_then(|meta| {
        let target = match meta.kind {
            Kind::Link => Some(folder.target(&name)?),
            _ => None,
        };
        Ok((meta, target))
    });
    match told {
        Ok((meta, target)) => Ok(Some(Entry {
            path: name.into(),
            stat: stat(&meta, target),
        })),
        // Removed, or no link any more, since the directory was read.
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}
