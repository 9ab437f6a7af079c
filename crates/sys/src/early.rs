//! Early start of disk reads and writes.

use std::{fs::File, ops::Range, os::fd::AsRawFd};

/// Asks the disk to begin writing a range of written bytes. The range is not durable by that; a
/// later sync waits for less. Errors are ignored.
#[allow(unsafe_code)]
pub fn begin_to_sync(file: &File, range: Range<u64>) {
    let Some((start, len)) = span(&range) else {
        return;
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and no memory is handed over.
    unsafe { libc::sync_file_range(file.as_raw_fd(), start, len, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Has the disk begin to read a range that will be wanted. An error changes nothing: the reader waits for the disk.
#[allow(unsafe_code)]
pub fn begin_to_read(file: &File, range: Range<u64>) {
    let Some((start, len)) = span(&range) else {
        return;
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and no memory is handed over.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), start, len, libc::POSIX_FADV_WILLNEED) };
}

/// Returns start and length for the kernel, which takes an empty range for all up to the end; `None`: there is nothing to do.
fn span(range: &Range<u64>) -> Option<(i64, i64)> {
    let start = i64::try_from(range.start).ok()?;
    let len = i64::try_from(range.end.saturating_sub(range.start)).ok()?;
    (len > 0).then_some((start, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::TestDir;

    #[test]
    fn what_was_begun_is_what_was_written() {
        let scratch = TestDir::new("early");
        let path = scratch.join("file");
        std::fs::write(&path, b"early").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        for range in [0..5, 3..3, 0..u64::MAX, u64::MAX - 1..u64::MAX] {
            begin_to_sync(&file, range.clone());
            begin_to_read(&file, range);
        }
        file.sync_data().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"early");
    }
}
