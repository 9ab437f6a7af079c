//! Extended attributes of files, those of users only.

use crate::meta::own_path;
use rustix::{
    fs::{self, XattrFlags},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// Prefix of the names that a user may set.
const USER: &str = "user.";

/// Returns the user attributes of an open file, each with a zero byte behind it. The file may be
/// opened only as a name.
pub(crate) fn names(file: &File) -> io::Result<Vec<u8>> {
    let mut all = vec![0; LIST_BYTES_MAX];
    let len = fs::listxattr(own_path(file), &mut all[..])?;
    let all = all[..len].split_inclusive(|&b| b == 0);
    let users = all.filter(|name| name.starts_with(USER.as_bytes()));
    Ok(users.flatten().copied().collect())
}

/// Returns the value of one.
pub(crate) fn value(file: &File, name: &OsStr) -> io::Result<Vec<u8>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    let len = fs::getxattr(own_path(file), user(name)?, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// Sets one, or removes it; that there is none is as good.
pub(crate) fn set(file: &File, name: &OsStr, value: Option<&[u8]>) -> io::Result<()> {
    let (path, name) = (own_path(file), user(name)?);
    match value {
        Some(value) => Ok(fs::setxattr(path, name, value, XattrFlags::empty())?),
        None => match fs::removexattr(path, name) {
            Err(Errno::NODATA) => Ok(()),
            done => Ok(done?),
        },
    }
}

/// Tells whether the file system of a directory has any, as far as it lets us see.
pub(crate) fn are_there(at: &Path) -> bool {
    let mut none = [0; 0];
    fs::getxattr(at, "user.godwit-asks", &mut none[..]) != Err(Errno::OPNOTSUPP)
}

/// Tells whether a file system said that it has none.
pub fn has_no_xattrs(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error())
}

/// Tells whether there is no attribute of that name any more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NODATA.raw_os_error())
}

/// Refuses attributes of the system.
fn user(name: &OsStr) -> io::Result<&OsStr> {
    match name.as_bytes().starts_with(USER.as_bytes()) {
        true => Ok(name),
        false => Err(Errno::PERM.into()),
    }
}

/// Reads all of a file, by its names and by the value of each.
pub(crate) fn all(
    names: &[u8],
    mut value: impl FnMut(&OsStr) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<(OsString, Vec<u8>)>> {
    let (mut found, mut bytes) = (Vec::new(), names.len());
    let names = names.split(|&b| b == 0).filter(|name| !name.is_empty());
    for name in names.map(OsStr::from_bytes) {
        let value = match value(name) {
            Err(e) if is_gone(&e) => continue,
            done => done?,
        };
        bytes += value.len();
        if bytes > ALL_BYTES_MAX {
            return Err(Errno::TOOBIG.into());
        }
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

/// The kernel lets no value and no list of names be longer.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;
pub(crate) const LIST_BYTES_MAX: usize = 64 << 10;
/// More than this of one file is not read.
const ALL_BYTES_MAX: usize = 1 << 20;
