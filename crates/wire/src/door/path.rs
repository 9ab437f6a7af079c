//! How a path is written where HTTP has one: as a target, and in JSON.
//!
//! A path is raw bytes. All but a few plain characters are escaped, so that proxies, logs and parsers of JSON leave
//! the path alone. Text that can be read in two ways is refused: a name with an escaped slash, `.` and `..`, an empty
//! name.

use super::{Error, Result};
use std::{
    ffi::OsString,
    fmt::Write,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Writes a path, which has no slash at its beginning.
pub fn escaped(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(byte.into());
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Reads what [`escaped`] writes. One slash at the end is left out: the name of a directory
/// may be written so.
pub fn unescaped(text: &str) -> Result<PathBuf> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.is_empty() {
        return Ok(PathBuf::new());
    }
    let mut path = Vec::with_capacity(text.len());
    for (nth, name) in text.split('/').enumerate() {
        if nth > 0 {
            path.push(b'/');
        }
        path.extend(unescaped_name(name)?);
    }
    Ok(OsString::from_vec(path).into())
}

/// Reads any bytes that were written so, whatever they mean.
pub fn anything(text: &str) -> Result<PathBuf> {
    let bytes = unescaped_bytes(text)?;
    match bytes.contains(&0) {
        true => Err(Error::Nul),
        false => Ok(OsString::from_vec(bytes).into()),
    }
}

/// Reads the path of a target of HTTP, which begins with a slash.
pub fn of_target(target: &str) -> Result<PathBuf> {
    unescaped(target.strip_prefix('/').ok_or(Error::BadPath)?)
}

fn unescaped_name(text: &str) -> Result<Vec<u8>> {
    let name = unescaped_bytes(text)?;
    match &*name {
        b"" => Err(Error::Dots("")),
        b"." => Err(Error::Dots(".")),
        b".." => Err(Error::Dots("..")),
        name if name.contains(&0) => Err(Error::Nul),
        name if name.contains(&b'/') => Err(Error::EncodedSlash),
        _ => Ok(name),
    }
}

fn unescaped_bytes(text: &str) -> Result<Vec<u8>> {
    match text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => godwit_core::unescape(text.as_bytes()).ok_or(Error::BadEscape),
        false => Err(Error::BadPath),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Component;

    #[test]
    fn ambiguous_path_is_refused() {
        for (text, error) in [
            ("a%2fb", Error::EncodedSlash),
            ("a%00b", Error::Nul),
            ("a/../b", Error::Dots("..")),
            ("a/%2e%2E", Error::Dots("..")),
            ("./a", Error::Dots(".")),
            ("a//b", Error::Dots("")),
            ("/a", Error::Dots("")),
            ("a%4", Error::BadEscape),
            ("a%zz", Error::BadEscape),
            ("a b", Error::BadPath),
            ("a\tb", Error::BadPath),
            ("ä", Error::BadPath),
        ] {
            assert_eq!(unescaped(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_target_begins_with_a_slash() {
        assert_eq!(of_target("/a/b%20c"), Ok("a/b c".into()));
        assert_eq!(of_target("/"), Ok("".into()));
        assert_eq!(of_target("/a/"), Ok("a".into()));
        assert_eq!(of_target("*"), Err(Error::BadPath));
        assert_eq!(of_target("http://host/a"), Err(Error::BadPath));
    }

    proptest! {
        #[test]
        fn every_path_comes_back(bytes in prop::collection::vec(1u8.., 0..60)) {
            let path = PathBuf::from(OsString::from_vec(bytes));
            let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
            // What `Path` itself would take for the same is not written by us.
            let same: PathBuf = path.components().collect();
            prop_assume!(is_plain && same.as_os_str() == path.as_os_str());
            prop_assert_eq!(unescaped(&escaped(&path)), Ok(path));
        }

        #[test]
        fn nothing_panics(text in ".{0,40}") {
            let _ = unescaped(&text);
        }
    }
}
