//! Notes of the last publication under a name, for writers that count attempts and lost the answer.
//!
//! A note lies in the state directory of the node, else beside the file, one for each writer and path. The note
//! speaks of one inode: the partial's that is about to get the name. It is written before the rename, and is true
//! once the name has that inode. docs/formats/partial.md has every byte.

use super::{
    DirInner, now,
    partial::{PREFIX, PartialKey},
    record::{is_sealed, read_up_to, seal, u64_at},
    wrong,
};
use crate::Result;
use godwit_core::{Version, hex};
use godwit_sys::{self as sys, Folder, OpenMode};
use std::{ffi::OsString, fs::File, io, os::unix::fs::FileExt, path::Path, time::Duration};

/// A note.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Was {
    /// The key of the upload: identity, path and id.
    pub(super) key: [u8; 32],
    pub(super) attempt: u64,
    inode: u64,
    /// When that was made, for numbers of inodes are given again.
    birth: Duration,
    size: u64,
    mtime: Duration,
    seen_at: Duration,
}

impl Was {
    /// Returns the note that is true once the file has its name.
    pub(super) fn of(file: &File, key: PartialKey, attempt: u64) -> io::Result<Self> {
        let meta = sys::meta(file)?;
        Ok(Self {
            key: key.0,
            attempt,
            inode: meta.inode,
            birth: birth(file),
            size: meta.size,
            mtime: meta.mtime,
            seen_at: now(),
        })
    }

    /// Writes it in place of the one before.
    pub(super) fn write(&self, (folder, name): (&Folder, OsString)) -> io::Result<()> {
        let file = folder.open(&name, OpenMode::Create, 0o600)?;
        file.write_all_at(&self.encode(), 0)
    }

    /// Reads a note; `None` if there is no valid one.
    pub(super) fn read((folder, name): (&Folder, OsString)) -> io::Result<Option<Self>> {
        let file = match folder.open(&name, OpenMode::Read, 0) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut bytes = [0; BYTES];
        let len = read_up_to(&file, &mut bytes, 0)?;
        Ok(Self::decode(&bytes[..len]))
    }

    fn version(&self) -> Version {
        Version::Weak {
            size: self.size,
            mtime: self.mtime,
            seen_at: self.seen_at,
            touched: None,
        }
    }

    fn is_of(&self, file: &File) -> io::Result<bool> {
        Ok(self.inode == sys::meta(file)?.inode && self.birth == birth(file))
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[16..48].copy_from_slice(&self.key);
        for (at, number) in [(48, self.attempt), (56, self.inode), (64, self.size)] {
            out[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (at, time) in [(72, self.birth), (84, self.mtime), (96, self.seen_at)] {
            out[at..at + 8].copy_from_slice(&time.as_secs().to_le_bytes());
            out[at + 8..at + 12].copy_from_slice(&time.subsec_nanos().to_le_bytes());
        }
        seal(&mut out[8..], 0);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != BYTES || &bytes[..8] != MAGIC || !is_sealed(&bytes[8..], 0) {
            return None;
        }
        let time = |at: usize| {
            let nanos = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().ok()?);
            (nanos < 1_000_000_000).then(|| Duration::new(u64_at(bytes, at), nanos))
        };
        Some(Self {
            key: bytes[16..48].try_into().ok()?,
            attempt: u64_at(bytes, 48),
            inode: u64_at(bytes, 56),
            size: u64_at(bytes, 64),
            birth: time(72)?,
            mtime: time(84)?,
            seen_at: time(96)?,
        })
    }
}

impl DirInner {
    /// Returns the directory and name of the note about this identity's publications under a path.
    pub(super) fn note<'a>(&'a self, beside: &'a Folder, path: &Path) -> (&'a Folder, OsString) {
        let PartialKey(key) = PartialKey::of(&self.identity, path, None);
        let name = format!("{PREFIX}{}{NOTE}", hex(&key[..12]));
        (self.notes.as_ref().unwrap_or(beside), name.into())
    }

    /// Returns as which version an upload was published that is still the file there.
    pub(super) fn became(&self, path: &Path, id: &str) -> Result<Option<Version>> {
        let place = self.place_of_file(path)?;
        let failed = |e| wrong(path, e);
        let note = Was::read(self.note(&place.folder, path)).map_err(failed)?;
        let PartialKey(key) = PartialKey::of(&self.identity, path, Some(id));
        let Some(was) = note.filter(|was| was.key == key && place.old.is_some()) else {
            return Ok(None);
        };
        let file = place.folder.open(&place.name, OpenMode::Read, 0);
        let is_it = file.and_then(|file| was.is_of(&file));
        Ok(is_it.map_err(failed)?.then(|| was.version()))
    }
}

fn birth(file: &File) -> Duration {
    sys::birth(file).ok().flatten().unwrap_or_default()
}

/// How the names of notes end.
pub(super) const NOTE: &str = ".was";
/// The last letter is the version of the format.
const MAGIC: &[u8; 8] = b"godwitW1";
const BYTES: usize = 108;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_with_changed_byte_is_void() {
        let was = Was {
            key: [7; 32],
            attempt: 1 << 40,
            inode: 5,
            birth: Duration::new(1, 2),
            size: 9 << 33,
            mtime: Duration::new(3, 4),
            seen_at: Duration::new(5, 999_999_999),
        };
        let good = was.encode();
        assert_eq!(Was::decode(&good), Some(was));
        for at in 0..BYTES {
            let mut bad = good;
            bad[at] ^= 1;
            assert_eq!(Was::decode(&bad), None, "byte {at}");
            assert_eq!(Was::decode(&good[..at]), None);
        }
    }
}
