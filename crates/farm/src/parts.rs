//! Notes sites that have a part of a file.

use crate::{Logical, failed, now, register::location};
use godwit_catalog::{CatalogHome, Change, NewHome};
use godwit_core::{Algorithm, Url};
use godwit_store::{EntryKind, Error, Result, Stat, Store};
use godwit_wire::door::call::Name;
use std::{
    ffi::OsStr,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A part of a file that is at a URL and will be noted.
#[derive(Clone, Debug)]
pub struct NewPart<'a> {
    /// The file there: it has only these bytes, or all of the whole file at their offsets.
    pub url: &'a Url,
    /// The name.
    pub name: &'a Path,
    /// The range of bytes.
    pub range: Range<u64>,
    /// The length of the whole file, if the catalog need not know it.
    pub size: Option<u64>,
}

impl Logical {
    /// Notes that only these bytes of a file lie somewhere. Bytes that other sites can give are compared.
    pub fn register_part(&self, part: &NewPart<'_>) -> Result<()> {
        let (name, Range { start, end }) = (part.name, part.range.clone());
        let place = self.sites.stores.open(part.url)?;
        let there = place.store.stat(&place.path)?;
        if there.kind != EntryKind::File {
            return Err(Error::directory(&place.path));
        }
        let known = self.sites.find(name)?;
        if known.as_ref().is_some_and(|entry| entry.collection) {
            return Err(Error::directory(name));
        }
        let size = known.as_ref().and_then(|entry| entry.size).or(part.size);
        let size = size.ok_or_else(|| {
            let why = "the length of the whole file is not known; say it with --size";
            Error::unsupported(format!("noting a part of grid:/{}", name.display()), why)
        })?;
        let offset = offset_of(&there, part, size)?;
        let mut verified_s = None;
        let by = Algorithm::Blake3;
        if known.is_some()
            && let Ok(expected) = self.digest(name, by, Some(start..end))
        {
            let found = Some(offset..offset + (end - start));
            let found = self.sites.digest_at(&place, by, found)?;
            if found != expected {
                let (expected, found) = (found.to_string(), format!("in the catalog {expected}"));
                return Err(Error::corrupt(name, expected, found));
            }
            verified_s = Some(now().as_secs());
        }
        let (Some(file), Some(above)) = (part.url.file_name(), part.url.parent()) else {
            return Err(Error::bad_name(name, "the URL names no file"));
        };
        let collection = name.parent().unwrap_or(Path::new(""));
        let above = self.sites.stores.open(&above)?;
        let home = NewHome {
            location: location(&*self.sites.catalog, &above, collection, false)?,
            path: Name(PathBuf::from(OsStr::from_bytes(file))),
            range: Some((start, end)),
            offset,
            verified_s,
            ours: false,
        };
        let is_other = |other: &CatalogHome| {
            let is_same = (other.range, other.offset) == (home.range, home.offset);
            (other.location, &other.path) == (home.location, &home.path) && !is_same
        };
        if known.is_some_and(|entry| entry.homes.iter().any(is_other)) {
            let why = "it is noted for other bytes; say godwit unregister --at SITE first";
            return Err(Error::unsupported(format!("noting {}", part.url), why));
        }
        let change = Change::Register {
            name: Name(name.into()),
            size: Some(size),
            digests: Vec::new(),
            mtime: None,
            mode: None,
            home: Some(home),
        };
        let changed = self.sites.catalog.change(&change.into());
        changed.map(drop).map_err(|refusal| failed(name, refusal))
    }
}

/// Returns the offset of a range's first byte: at the begin, or where the whole file has it.
fn offset_of(there: &Stat, part: &NewPart<'_>, size: u64) -> Result<u64> {
    let Range { start, end } = part.range;
    let why = match there.known_size() {
        _ if start >= end || end > size => {
            format!("bytes {start}-{end} are no part of {size} bytes")
        }
        Some(length) if length == end - start => return Ok(0),
        Some(length) if length >= end => return Ok(start),
        Some(length) => format!("it has {length} bytes, and bytes {start}-{end} cannot be in it"),
        None => "its length is not known".into(),
    };
    Err(Error::unsupported(format!("noting {}", part.url), why))
}
