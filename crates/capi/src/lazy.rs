//! `godwit_open_lazy` and `godwit_ensure`: files that are read in part.

use crate::{
    face::{text, told},
    failure::Failure,
    files,
};
use libc::{c_char, c_int, size_t};
use std::slice;

/// The bytes from one offset to another.
#[repr(C)]
#[derive(Debug)]
pub struct Range {
    start: u64,
    end: u64,
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_open_lazy(name: *const c_char) -> c_int {
    told(-1, || files::open_as(text(name)?, libc::O_RDONLY, 0, true))
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_ensure(fd: c_int, ranges: *const Range, count: size_t) -> c_int {
    told(-1, || {
        if ranges.is_null() && count > 0 {
            return Err(Failure::invalid(
                "read a file in part",
                "the ranges are NULL",
            ));
        }
        let ranges = match count {
            0 => &[],
            // SAFETY: godwit.h asks for that many.
            _ => unsafe { slice::from_raw_parts(ranges, count) },
        };
        let ranges: Vec<_> = ranges
            .iter()
            .map(|range| (range.start, range.end))
            .collect();
        files::ensure(fd, &ranges).map(|()| 0)
    })
}
