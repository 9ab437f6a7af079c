//! Writes at the end of a file, wherever that is by then.

use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::{
    fs::File,
    io::{self, IoSlice, Seek},
    ops::Range,
    os::fd::AsRawFd,
};

/// Writes at the end that a file has by then, though others write there, too. Bytes that fit into one call of the kernel
/// stay together.
pub fn append_all(file: &File, bytes: &[u8]) -> io::Result<()> {
    // The offset says nothing, except that the place of the descriptor stays as it is.
    append(file, bytes, 0, |_| Ok(()))
}

/// Appends as [`append_all`], and tells where the bytes are.
pub fn append_told(file: &File, bytes: &[u8], mut told: impl FnMut(Range<u64>)) -> io::Result<()> {
    // A descriptor of its own has a place of its own, which is behind the bytes afterwards.
    let own = File::options()
        .write(true)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    append(&own, bytes, u64::MAX, |written| {
        let end = (&own).stream_position()?;
        told(end - written as u64..end);
        Ok(())
    })
}

fn append(
    file: &File,
    mut bytes: &[u8],
    offset: u64,
    mut wrote: impl FnMut(usize) -> io::Result<()>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::APPEND) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                wrote(written)?;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TestDir;

    #[test]
    fn appends_of_two_descriptors_follow_each_other() {
        let scratch = TestDir::new("append");
        let path = scratch.join("log");
        let open = || {
            File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
        };
        let (one, two) = (open().unwrap(), open().unwrap());
        for file in [&one, &two, &one] {
            append_all(file, b"line\n").unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"line\nline\nline\n");
    }

    #[test]
    fn appends_tell_where_they_are() {
        let scratch = TestDir::new("append-told");
        let path = scratch.join("log");
        std::fs::write(&path, "four").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let mut ranges = Vec::new();
        append_told(&file, b"more", |range| ranges.push(range)).unwrap();
        append_told(&file, b"!", |range| ranges.push(range)).unwrap();
        assert_eq!(ranges, [4..8, 8..9]);
        assert_eq!(std::fs::read(&path).unwrap(), b"fourmore!");
    }
}
