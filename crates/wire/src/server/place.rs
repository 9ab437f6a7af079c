//! Where a name on a command line leads.

use crate::Refusal;
use godwit_core::Kind;
use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Joins a name to the current directory; the result is relative to the root.
///
/// `..` is resolved by text, as in a shell. A name that would leave the root is
/// an error, never silently cleaned: the client believes something that is not so. Links
/// are not looked at here.
pub fn resolve(current: &Path, name: &[u8]) -> Result<PathBuf, Refusal> {
    if name.contains(&0) {
        return Err(Refusal::of_kind(Kind::Invalid, "A name cannot contain NUL"));
    }
    let mut bytes: Vec<&[u8]> = Vec::new();
    if name.first() != Some(&b'/') {
        bytes.extend(parts(current.as_os_str().as_bytes()));
    }
    for part in parts(name) {
        if part != b".." {
            bytes.push(part);
        } else if bytes.pop().is_none() {
            return Err(Refusal::of_kind(
                Kind::Denied,
                "The name leads out of what is served",
            ));
        }
    }
    Ok(PathBuf::from(OsString::from_vec(bytes.join(&b'/'))))
}

/// Joins a name to the current directory, or to `home` if it is `~` or begins with `~/`.
pub(super) fn resolve_from(home: &Path, current: &Path, name: &[u8]) -> Result<PathBuf, Refusal> {
    match name.strip_prefix(b"~") {
        Some([]) => resolve(home, b""),
        Some(rest @ [b'/', ..]) => resolve(home, &[b".", rest].concat()),
        _ => resolve(current, name),
    }
}

fn parts(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.split(|&b| b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

/// The path as clients see it, with a slash in front.
pub(crate) fn shown(path: &Path) -> Vec<u8> {
    [b"/", path.as_os_str().as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tilde_is_home_only_in_front() {
        let at = |name: &str| {
            let (home, current) = (Path::new("home/me"), Path::new("pub"));
            resolve_from(home, current, name.as_bytes()).unwrap()
        };
        assert_eq!(at("~"), Path::new("home/me"));
        assert_eq!(at("~//x/../y"), Path::new("home/me/y"));
        assert_eq!(at("./~"), Path::new("pub/~"));
        assert_eq!(at("/~/x"), Path::new("~/x"));
        assert_eq!(at("~you"), Path::new("pub/~you"));
        assert!(resolve_from(Path::new(""), Path::new("a"), b"~/../x").is_err());
    }

    #[test]
    fn names_stay_inside() {
        let at = |current: &str, name: &str| resolve(Path::new(current), name.as_bytes());
        assert_eq!(at("a/b", "c").unwrap(), Path::new("a/b/c"));
        assert_eq!(at("a/b", "/c//d/./").unwrap(), Path::new("c/d"));
        assert_eq!(at("a/b", "../../c").unwrap(), Path::new("c"));
        assert_eq!(at("a", "").unwrap(), Path::new("a"));
        assert_eq!(at("a", "/").unwrap(), Path::new(""));
        for out in ["..", "../..", "/..", "x/../../y", "/a/../../etc/passwd"] {
            assert_eq!(at("", out).unwrap_err().kind, Kind::Denied, "{out}");
        }
        assert!(at("", "a\0b").is_err());
        assert_eq!(at("", "..a/...").unwrap(), Path::new("..a/..."));
    }
}
