//! The bytes of a file in order: to print them, or to hash them here.

use godwit_core::{Algorithm, Block, Digest, Extents, Hashing};
use godwit_store::{BlockWriter, Error, Read, engine::Place};
use std::{ops::Range, sync::Mutex};

/// Calls `each` with the bytes of `range` in order, as far as the file has them.
pub(crate) fn read(
    place: &Place,
    range: Range<u64>,
    each: &mut (dyn FnMut(&[u8]) -> Result<(), Error> + Send),
) -> Result<Read, Error> {
    let next = range.start;
    let in_order = InOrder(Mutex::new(Inner { next, each }));
    place
        .store
        .read(&place.path, &Extents::from(range), 1, &in_order)
}

/// Returns a digest: from the store if it can tell, else of the bytes it sends.
pub(crate) fn digest(
    place: &Place,
    by: Algorithm,
    range: Option<Range<u64>>,
) -> Result<Digest, Error> {
    match place.store.digest(&place.path, by, range.clone()) {
        Err(Error::Unsupported { .. }) => {}
        told => return told,
    }
    let mut hashing = Hashing::new(by);
    read(place, range.unwrap_or(0..u64::MAX), &mut |bytes| {
        hashing.update(bytes);
        Ok(())
    })?;
    Ok(hashing.finish())
}

/// Passes blocks on; relies on the order that a single stream keeps.
struct InOrder<'a>(Mutex<Inner<'a>>);

struct Inner<'a> {
    next: u64,
    each: &'a mut (dyn FnMut(&[u8]) -> Result<(), Error> + Send),
}

impl BlockWriter for InOrder<'_> {
    fn put(&self, block: Block<'_>) -> Result<(), Error> {
        let Inner { next, each } = &mut *self.0.lock().expect(NO_PANIC);
        in_order(next, block, each)
    }
}

/// Calls `each` with the bytes from `next` on, and counts them.
pub(crate) fn in_order(
    next: &mut u64,
    block: Block<'_>,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut take = |bytes: &[u8], next: &mut u64| {
        each(bytes)?;
        *next += bytes.len() as u64;
        Ok(())
    };
    // A hole that the store skipped is zeros to a reader.
    while *next < block.offset {
        let len = (block.offset - *next).min(ZEROS.len() as u64) as usize;
        take(&ZEROS[..len], next)?;
    }
    match *next > block.offset {
        true => Err(Error::unsupported(
            "reading in order",
            "the bytes came otherwise",
        )),
        false => take(block.bytes, next),
    }
}

const ZEROS: [u8; 4096] = [0; 4096];
const NO_PANIC: &str = "no thread panics while it holds this";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_zeros_and_disorder_is_refused() {
        let mut came = Vec::new();
        let mut each = |bytes: &[u8]| {
            came.extend_from_slice(bytes);
            Ok(())
        };
        let sink = InOrder(Mutex::new(Inner {
            next: 2,
            each: &mut each,
        }));
        let put = |offset, bytes| sink.put(Block { offset, bytes });
        put(2, b"ab").unwrap();
        put(6, b"c").unwrap();
        assert!(put(3, b"d").is_err());
        assert_eq!(came, b"ab\0\0c");
    }
}
