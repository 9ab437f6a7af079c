//! Writes at the end of a file, wherever that is by then.

use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::{
    fs::File,
    io::{self, IoSlice},
};

/// Writes at the end that a file has by then, though others write there, too. Bytes that fit into one call of the kernel
/// stay together.
pub fn append_all(file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // The offset says nothing, except that the place of the descriptor stays as it is.
        match pwritev2(file, &[IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn appends_of_two_descriptors_follow_each_other() {
        let scratch = Scratch::new("append");
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
}
