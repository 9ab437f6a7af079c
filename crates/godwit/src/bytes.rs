//! The bytes of a file in order: to print them, or to hash them here.

use godwit_core::{Algorithm, Block, Digest, Extents, Hashing};
use godwit_store::{Error, Made, Read, StoreExt, Take, engine::Place};
use godwit_wire::command::Through;
use std::{ops::Range, sync::Mutex};

/// Calls `each` with the bytes of `range`, from first to last; what the file does
/// not have does not come.
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

/// Calls `each` with what a module of the server makes of a file, from first to last.
pub(crate) fn read_through(
    place: &Place,
    through: &Through,
    each: &mut (dyn FnMut(&[u8]) -> Result<(), Error> + Send),
) -> Result<Made, Error> {
    let in_order = InOrder(Mutex::new(Inner { next: 0, each }));
    let remote = place.store.as_remote().ok_or_else(|| Error::Unsupported {
        what: format!("putting {} through a module", place.url),
        why: "it is on no server, and a module is a program of one".into(),
    })?;
    remote.read_through(&place.path, through, &in_order)
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

/// Hands on what comes; relies on the order that a single stream keeps.
struct InOrder<'a>(Mutex<Inner<'a>>);

struct Inner<'a> {
    next: u64,
    each: &'a mut (dyn FnMut(&[u8]) -> Result<(), Error> + Send),
}

impl Take for InOrder<'_> {
    fn put(&self, block: Block<'_>) -> Result<(), Error> {
        let mut inner = self.0.lock().expect(NO_PANIC);
        // A hole that the store skipped is zeros to a reader.
        while inner.next < block.offset {
            let len = (block.offset - inner.next).min(ZEROS.len() as u64) as usize;
            inner.take(&ZEROS[..len])?;
        }
        if inner.next > block.offset {
            return Err(Error::unsupported(
                "reading in order",
                "the bytes came otherwise",
            ));
        }
        inner.take(block.bytes)
    }
}

impl Inner<'_> {
    fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        (self.each)(bytes)?;
        self.next += bytes.len() as u64;
        Ok(())
    }
}

const ZEROS: [u8; 4096] = [0; 4096];
const NO_PANIC: &str = "nobody panics while holding it";

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
