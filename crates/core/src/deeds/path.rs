//! Names at a target.

use std::{borrow::Borrow, fmt, ops::Bound};

/// A name at a target: raw bytes between slashes, none at either end. Empty: the top.
#[derive(Clone, Eq, Ord, PartialEq, PartialOrd)]
pub struct Path(Vec<u8>);

impl Path {
    /// Parses a path. The target must resolve `..` before.
    pub fn new(path: impl AsRef<[u8]>) -> Self {
        let parts = path.as_ref().split(|b| *b == b'/');
        let parts: Vec<&[u8]> = parts.filter(|p| !p.is_empty()).collect();
        Self(parts.join(&b'/'))
    }

    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Tells whether the names are equal, or one is a directory above the other.
    pub fn overlaps(&self, other: &Path) -> bool {
        let (short, long) = match self.0.len() < other.0.len() {
            true => (&self.0, &other.0),
            false => (&other.0, &self.0),
        };
        let rest = long.strip_prefix(&short[..]);
        rest.is_some_and(|r| short.is_empty() || r.is_empty() || r[0] == b'/')
    }

    /// Returns itself and all directories that it is below, the top last.
    pub(super) fn upwards(&self) -> impl Iterator<Item = &[u8]> {
        fn up<'a>(path: &&'a [u8]) -> Option<&'a [u8]> {
            let cut = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
            (!path.is_empty()).then_some(&path[..cut])
        }
        std::iter::successors(Some(&self.0[..]), up)
    }

    /// Between which bounds all lie that are below it, in the order of bytes.
    pub(super) fn below(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        if self.0.is_empty() {
            return (Bound::Excluded(Vec::new()), Bound::Unbounded);
        }
        let with = |last: u8| [&self.0[..], &[last]].concat();
        (Bound::Included(with(b'/')), Bound::Excluded(with(b'/' + 1)))
    }
}

impl Borrow<[u8]> for Path {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}
