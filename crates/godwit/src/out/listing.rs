//! Entries as text and as objects: a line like that of `ls -l`, or JSON.

use crate::units;
use godwit_store::{EntryKind, Stat};
use serde_json::{Value, json};
use std::{os::unix::ffi::OsStrExt, path::Path};

/// How sizes are shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sizes {
    /// All digits.
    Bytes,
    /// `1.2G`.
    Human,
}

impl Sizes {
    /// Returns a size as text.
    pub(crate) fn show(self, bytes: u64) -> String {
        match self {
            Self::Bytes => bytes.to_string(),
            Self::Human => units::short(bytes),
        }
    }
}

/// Returns a line of `ls -l`, without its end: columns first, then the raw name.
pub(crate) fn long(name: &[u8], stat: &Stat, sizes: Sizes) -> Vec<u8> {
    let mut line = format!(
        "{}{} {:8} {:8} {:>12} {:16} ",
        letter(stat.kind),
        mode(stat.mode),
        stat.owner.as_deref().unwrap_or("-"),
        stat.group.as_deref().unwrap_or("-"),
        sizes.show(stat.size),
        stat.mtime.map(units::minute).unwrap_or_else(|| "-".into()),
    )
    .into_bytes();
    line.extend_from_slice(name);
    if let Some(target) = &stat.target {
        line.extend_from_slice(b" -> ");
        line.extend_from_slice(target.as_os_str().as_bytes());
    }
    line
}

/// Returns the object of an entry. `url` is exact; `path` is for reading.
pub(crate) fn object(path: &Path, url: &godwit_core::Url, stat: &Stat) -> Value {
    json!({
        "event": "entry",
        "path": path.to_string_lossy(),
        "url": url.to_string(),
        "kind": word(stat.kind),
        "size": stat.size,
        "mtime": stat.mtime.map(units::instant),
        "mtime_s": stat.mtime.map(|t| t.as_secs_f64()),
        "mode": stat.mode.map(|mode| format!("{mode:04o}")),
        "owner": stat.owner,
        "group": stat.group,
        "target": stat.target.as_ref().map(|t| t.to_string_lossy()),
    })
}

/// Returns the word for a kind.
pub(crate) fn word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        EntryKind::Other => "other",
    }
}

/// Returns the letter of a kind, as in `ls -l` and `find -type`.
pub(crate) fn letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Link => 'l',
        EntryKind::Other => '?',
    }
}

/// Returns nine letters for permission bits.
pub(crate) fn mode(mode: Option<u32>) -> String {
    let Some(mode) = mode else {
        return "?????????".into();
    };
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    let mut text = String::with_capacity(9);
    for (who, (bit, with, without)) in special.into_iter().enumerate() {
        let bits = mode >> (6 - 3 * who);
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & bit != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_look_as_in_ls() {
        let shown = [0o755, 0o640, 0o4711, 0o1777, 0o2070].map(|m| mode(Some(m)));
        assert_eq!(
            shown,
            [
                "rwxr-xr-x",
                "rw-r-----",
                "rws--x--x",
                "rwxrwxrwt",
                "---rws---"
            ]
        );
    }
}
