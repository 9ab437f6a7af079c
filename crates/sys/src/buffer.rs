//! Memory for blocks on their way.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{Mutex, PoisonError},
};

/// How many bytes a buffer holds.
pub const BUFFER_BYTES: usize = 1 << 20;

/// Buffer of 1 MiB, aligned to a page and reused.
///
/// A reused buffer still has its old bytes.
#[derive(Debug)]
pub struct Buffer(PageBlock);

impl Buffer {
    /// Returns a buffer: a used one if there is one.
    pub fn take() -> Self {
        Self(idle().pop().unwrap_or_else(PageBlock::new))
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.all()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.all_mut()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut idle = idle();
        if idle.len() < IDLE_MAX {
            let block = std::mem::replace(&mut self.0, PageBlock(None));
            idle.push(block);
        }
    }
}

fn idle() -> std::sync::MutexGuard<'static, Vec<PageBlock>> {
    static IDLE: Mutex<Vec<PageBlock>> = Mutex::new(Vec::new());
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Page-aligned memory; `None` once it was handed on.
#[derive(Debug)]
struct PageBlock(Option<NonNull<u8>>);

// SAFETY: the memory is owned by this value alone and reached only through it.
#[allow(unsafe_code)]
unsafe impl Send for PageBlock {}
// SAFETY: shared access only reads.
#[allow(unsafe_code)]
unsafe impl Sync for PageBlock {}

#[allow(unsafe_code)]
impl PageBlock {
    fn new() -> Self {
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(LAYOUT) };
        match NonNull::new(start) {
            Some(start) => Self(Some(start)),
            None => handle_alloc_error(LAYOUT),
        }
    }

    fn all(&self) -> &[u8] {
        self.0.map_or(&[], |start| {
            // SAFETY: allocated with this length, zeroed at birth, lent as long as `self`.
            unsafe { std::slice::from_raw_parts(start.as_ptr(), LAYOUT.size()) }
        })
    }

    fn all_mut(&mut self) -> &mut [u8] {
        self.0.map_or(&mut [], |start| {
            // SAFETY: as in `all`, and `&mut self` makes it the only reference.
            unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), LAYOUT.size()) }
        })
    }
}

#[allow(unsafe_code)]
impl Drop for PageBlock {
    fn drop(&mut self) {
        if let Some(start) = self.0.take() {
            // SAFETY: allocated in `new` with this layout, and not handed on.
            unsafe { dealloc(start.as_ptr(), LAYOUT) }
        }
    }
}

const LAYOUT: Layout = match Layout::from_size_align(BUFFER_BYTES, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// More idle buffers than this are given back to the machine.
const IDLE_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_page() {
        let buffer = Buffer::take();
        assert_eq!(buffer.as_ptr() as usize % 4096, 0);
        assert_eq!(buffer.len(), BUFFER_BYTES);
    }

    #[test]
    fn two_buffers_never_share_memory() {
        for _ in 0..3 {
            let (mut one, mut two) = (Buffer::take(), Buffer::take());
            one.fill(1);
            two.fill(2);
            assert!(one.iter().all(|&b| b == 1) && two.iter().all(|&b| b == 2));
        }
    }
}
