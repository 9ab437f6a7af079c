//! Mounts that are there, and their end.

use crate::wait_readable;
use rustix::{
    mount::UnmountFlags,
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    ffi::OsString,
    fs, io,
    os::{
        fd::AsFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
    time::Duration,
};

/// Returns the source of the uppermost mount on a directory; `None`: nothing is mounted there.
pub fn mounted_from(directory: &Path) -> io::Result<Option<OsString>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let mut sources = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let point = fields.nth(4)?;
        let source = fields.skip_while(|field| *field != b"-").nth(2)?;
        (unescaped(point) == directory.as_os_str().as_bytes()).then(|| unescaped(source))
    });
    Ok(sources.next_back().map(OsString::from_vec))
}

/// Takes the uppermost mount off a directory that nothing uses.
pub fn unmount(directory: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(directory, UnmountFlags::empty())?)
}

/// Waits until a process has ended; tells whether it has.
pub fn ended_within(pid: u32, within: Duration) -> io::Result<bool> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => Ok(true),
        process => Ok(wait_readable([process?.as_fd()], within)?[0]),
    }
}

/// Reads a field of the table, in which the kernel writes spaces and backslashes as octal numbers.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut read, mut rest) = (Vec::new(), field);
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| byte == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(number) => {
                read.push(number);
                rest = &after[3..];
            }
            None => {
                read.push(byte);
                rest = after;
            }
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_fields_are_read() {
        assert_eq!(unescaped(br"/a\040b\134\011"), b"/a b\\\t");
        assert_eq!(unescaped(br"/a\04"), br"/a\04");
        assert_eq!(unescaped(br"/a\9999"), br"/a\9999");
    }

    #[test]
    fn mounts_have_sources() {
        assert_eq!(mounted_from(Path::new("/proc")).unwrap().unwrap(), "proc");
        assert_eq!(mounted_from(Path::new("/no such")).unwrap(), None);
    }
}
