//! Which of the standard streams this process was given.
//!
//! The runtime of Rust opens `/dev/null` in place of what is closed, before `main`:
//! what is written then is lost without an error. Afterwards nobody can tell it from
//! a `/dev/null` that somebody chose, so we look before the runtime does.

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
        // SAFETY: the number is only asked about, and this is before anything could
        // close it; what is not open is what we want to know.
        let stream = unsafe { BorrowedFd::borrow_raw(number) };
        if fcntl_getfd(stream).is_err() {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

// SAFETY: the loader calls what this section lists, once, before `main`; `look` needs
// nothing that `main` or the runtime would have to set up, and cannot panic.
#[used]
#[allow(unsafe_code)]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;
