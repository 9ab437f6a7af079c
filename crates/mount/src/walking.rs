//! The path that a waiting program has named: the kernel looks names up one by one, and does not tell what follows.
//!
//! The path is read where the thread waits in its system call. Where that is not allowed, nothing is known.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{ffi::OsStrExt, fs::FileExt},
};

/// The use of a name in the path of a system call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Use {
    /// More of the path follows, so it is to be a directory.
    Directory,
    /// A directory of that name is to be made.
    Made,
    /// The name is the last one, or nothing is known.
    Other,
}

/// Returns the use of a name in the path that a thread has named. `parent`: the path of the directory, from the mount on.
pub(crate) fn use_of(thread: u32, parent: &OsStr, name: &OsStr) -> Use {
    let Ok(call) = fs::read_to_string(format!("/proc/{thread}/syscall")) else {
        return Use::Other;
    };
    let mut words = call.split_ascii_whitespace();
    let number = words.next().and_then(|word| word.parse().ok());
    let Some(number) = number else {
        return Use::Other; // it runs
    };
    let Ok(memory) = File::open(format!("/proc/{thread}/mem")) else {
        return Use::Other;
    };
    let addresses = words
        .take(ARGUMENTS)
        .filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let is_made = MKDIR.contains(&number);
    let uses = addresses.filter_map(|at| place(&text(&memory, at), parent.as_bytes(), name));
    uses.fold(Use::Other, |known, place| match (place, known) {
        (Place::Before, _) | (_, Use::Directory) => Use::Directory,
        (Place::Last, _) if is_made => Use::Made,
        (Place::Last, known) => known,
    })
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// A slash follows.
    Before,
    Last,
}

/// Returns the place of a name in a path; `None`: it is not in it.
fn place(path: &[u8], parent: &[u8], name: &OsStr) -> Option<Place> {
    let parts: Vec<&[u8]> = parts(path).collect();
    // The mount has another path for programs than for the node.
    let above: Vec<&[u8]> = self::parts(parent).skip(1).collect();
    let is_it = |at: &usize| {
        let before = &parts[..*at];
        let pairs = before.iter().rev().zip(above.iter().rev());
        parts[*at] == name.as_bytes()
            && (before.contains(&&b".."[..]) || pairs.into_iter().all(|(one, two)| one == two))
    };
    let at = (0..parts.len()).rev().find(is_it)?;
    match at + 1 < parts.len() || path.ends_with(b"/") {
        true => Some(Place::Before),
        false => Some(Place::Last),
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

/// Reads text up to its zero byte; empty: there is none.
fn text(memory: &File, mut at: u64) -> Vec<u8> {
    let mut text = Vec::new();
    while text.len() < PATH_BYTES_MAX {
        // The next page may be no memory.
        let mut bytes = vec![0; (PAGE_BYTES - at % PAGE_BYTES) as usize];
        let Ok(came @ 1..) = memory.read_at(&mut bytes, at) else {
            break;
        };
        let end = bytes[..came].iter().position(|byte| *byte == 0);
        text.extend_from_slice(&bytes[..end.unwrap_or(came)]);
        if end.is_some() {
            return text;
        }
        at += came as u64;
    }
    Vec::new()
}

/// No system call has a path behind its fourth argument.
const ARGUMENTS: usize = 4;
const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;
const PAGE_BYTES: u64 = 4096;
#[cfg(target_arch = "x86_64")]
const MKDIR: [i64; 2] = [libc::SYS_mkdir, libc::SYS_mkdirat];
#[cfg(not(target_arch = "x86_64"))]
const MKDIR: [i64; 1] = [libc::SYS_mkdirat];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_place_in_paths() {
        let parent = b"/godwit/ftp:host/a";
        for (path, expected) in [
            ("/godwit/ftp:host/a/dir/new", Some(Place::Before)),
            ("/root/far/ftp:host/a//dir/", Some(Place::Before)),
            ("/godwit/ftp:host/a/dir", Some(Place::Last)),
            ("dir/new", Some(Place::Before)),
            ("./dir", Some(Place::Last)),
            ("../a/dir/new", Some(Place::Before)),
            ("/godwit/ftp:host/b/dir/new", None),
            ("a/dir/dir", Some(Place::Before)),
            ("other", None),
            ("", None),
        ] {
            let found = place(path.as_bytes(), parent, OsStr::new("dir"));
            assert_eq!(found, expected, "{path}");
        }
    }
}
