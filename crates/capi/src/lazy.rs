//! `godwit_open_lazy` and `godwit_ensure`: files that are read in part.

use crate::{
    descriptors,
    face::{text, told},
    shared::{self, Range, ranges_of},
};
use libc::{c_char, c_int, size_t};

#[unsafe(no_mangle)]
pub extern "C" fn godwit_open_lazy(name: *const c_char) -> c_int {
    told(-1, || {
        descriptors::open_as(text(name)?, libc::O_RDONLY, 0, true)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn godwit_ensure(fd: c_int, ranges: *const Range, count: size_t) -> c_int {
    told(-1, || {
        let ranges = ranges_of(ranges, count)?;
        let ensured = shared::ensure(fd, &ranges);
        ensured.unwrap_or_else(|| descriptors::ensure(fd, &ranges))?;
        Ok(0)
    })
}
