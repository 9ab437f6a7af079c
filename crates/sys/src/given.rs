//! Standard streams that this process was started with.
//!
//! The runtime of Rust opens `/dev/null` in place of closed streams before `main`. Bytes written
//! there are lost without an error. Later such a stream looks like a `/dev/null` that the user
//! chose, so this check runs before the runtime.

use rustix::{fd::BorrowedFd, io::fcntl_getfd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Tells whether standard input was closed when this process began.
pub fn is_input_closed() -> bool {
    is_closed(0)
}

/// Tells whether standard output was closed when this process began.
pub fn is_output_closed() -> bool {
    is_closed(1)
}

fn is_closed(number: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & 1 << number != 0
}

/// One bit for each of 0, 1 and 2.
static CLOSED: AtomicU8 = AtomicU8::new(0);

#[allow(unsafe_code)]
extern "C" fn look() {
    for number in 0..3 {
        // SAFETY: the number is only queried, and before any code could close it. A closed
        // descriptor is the result we look for.
        let stream = unsafe { BorrowedFd::borrow_raw(number) };
        if fcntl_getfd(stream).is_err() {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

// SAFETY: the loader calls the functions of this section once, before `main`. `look` needs no
// set-up by `main` or the runtime, and cannot panic.
#[used]
#[allow(unsafe_code)]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
