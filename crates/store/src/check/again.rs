//! Bytes that a writer changes and puts again before the end: the last ones count.

use super::{MIB, begin, is_missing, noise, p, put, read, whole};
use crate::{Capabilities, Expected, Result, Sink, SinkExt, Store, Write};
use godwit_core::{Algorithm, Block, Chain, Digest, LEAF_BYTES, Leaves, Piece};
use std::collections::BTreeMap;

/// A sink, and the bytes that it must have.
struct Putting {
    sink: Box<dyn Sink>,
    bytes: Vec<u8>,
    /// The hashes of leaves that the sink reported since the last put.
    told: BTreeMap<u64, Chain>,
}

impl Putting {
    fn begin(store: &dyn Store, bytes: Vec<u8>, write: &Write<'_>) -> Self {
        let mut putting = Self {
            sink: store.write(p("file"), write).expect("write"),
            bytes: Vec::new(),
            told: BTreeMap::new(),
        };
        for (at, leaf) in bytes.chunks(MIB).enumerate() {
            putting.put(at * MIB, leaf);
        }
        putting
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        put(&*self.sink, at as u64, bytes);
        let end = at + bytes.len();
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(bytes);
        self.told
            .retain(|&leaf, _| !(at / MIB..end.div_ceil(MIB)).contains(&(leaf as usize)));
    }

    fn hear(&mut self) {
        self.sink.settle().expect("settle");
        self.told.extend(self.sink.newly_whole(1000));
    }

    /// Finishes the file, and compares it with the bytes that were put last.
    //= publishing#a-partial
    fn finish(mut self, store: &dyn Store, can: &Capabilities) {
        self.hear();
        let size = self.bytes.len() as u64;
        let mut tree = Leaves::new();
        for (i, bytes) in self.bytes.chunks(MIB).enumerate() {
            let offset = i as u64 * LEAF_BYTES;
            tree.add(Piece::of(Block { offset, bytes }));
        }
        for (leaf, chain) in self.told {
            if (leaf + 1) * LEAF_BYTES <= size {
                assert_eq!(Some(chain), tree.chain(leaf, size), "leaf {leaf}");
            }
        }
        let by = Algorithm::Blake3;
        let digest = can.digests.contains(&by);
        let digest = digest.then(|| Digest::of(by, &self.bytes));
        let finished = self.sink.finish(&Expected {
            digest,
            ..whole(&self.bytes)
        });
        for digest in finished.expect("finish").digests {
            assert_eq!(digest, Digest::of(digest.algorithm(), &self.bytes));
        }
        assert!(read(store, "file") == self.bytes, "other bytes are there");
    }
}

/// Returns whether there is something to check. A store that cannot refuses it, and publishes nothing.
fn can_again(store: &dyn Store, can: &Capabilities) -> bool {
    if !(can.write && can.atomic) {
        return false;
    }
    if !can.again {
        let bytes = noise(3 * MIB, 30);
        let again = || -> Result<()> {
            let sink = begin(store, "file", &bytes, &Write::default());
            for (i, leaf) in bytes.chunks(MIB).enumerate() {
                put(&*sink, i as u64 * LEAF_BYTES, leaf);
            }
            sink.put(Block::at(0, &noise(MIB, 31)))?;
            sink.finish(&whole(&bytes)).map(drop)
        };
        assert!(again().is_err(), "it said it cannot");
        assert!(is_missing(store.stat(p("file"))));
    }
    can.again
}

//= publishing#a-partial
pub(super) fn put_again(store: &dyn Store, can: &Capabilities) {
    if !can_again(store, can) {
        return;
    }
    for size in [None, Some(4 * LEAF_BYTES + 77)] {
        for streams in [1, 4] {
            let how = Write {
                size,
                streams,
                resume: false,
                ..Write::default()
            };
            let mut putting = Putting::begin(store, noise(4 * MIB + 77, 32), &how);
            // A whole leaf, before and after the sink reported its hash.
            putting.put(0, &noise(MIB, 33));
            putting.hear();
            putting.put(MIB, &noise(MIB, 34));
            // A part of a leaf, bytes over the edge of two, the end, and some that were put twice.
            putting.put(2 * MIB + 5, &noise(1000, 35));
            putting.put(3 * MIB - 70_000, &noise(200_000, 36));
            putting.put(4 * MIB + 70, &noise(7, 37));
            putting.put(500, &noise(70_000, 38));
            // Zeros are bytes too.
            putting.put(MIB, &vec![0; 300_000]);
            putting.finish(store, can);
        }
    }
}

pub(super) fn put_again_after_commit(store: &dyn Store, can: &Capabilities) {
    if !can_again(store, can) {
        return;
    }
    let how = Write {
        resume: false,
        ..Write::default()
    };
    let mut putting = Putting::begin(store, noise(3 * MIB, 40), &how);
    putting.sink.commit().expect("commit");
    putting.put(MIB - 10, &noise(20, 41));
    putting.put(2 * MIB, &noise(MIB, 42));
    let committed = putting.sink.commit().expect("commit");
    let all = can.resume && !committed.is_empty();
    assert!(!all || committed == super::all_of(&putting.bytes));
    putting.put(2 * MIB + 1, &noise(MIB, 43));
    putting.finish(store, can);
}

//= publishing#a-partial
pub(super) fn put_again_after_a_resume(store: &dyn Store, can: &Capabilities) {
    if !can_again(store, can) || !can.resume {
        return;
    }
    let how = Write {
        id: Some("again"),
        ..Write::default()
    };
    let mut putting = Putting::begin(store, noise(3 * MIB + 9, 50), &how);
    putting.put(10, &noise(100, 51));
    putting.hear();
    let Putting { sink, bytes, .. } = putting;
    drop(sink);
    let mut putting = Putting {
        sink: store.write(p("file"), &how).expect("it goes on"),
        bytes,
        told: BTreeMap::new(),
    };
    putting.put(MIB, &noise(MIB, 52));
    putting.put(2 * MIB + 30, &noise(MIB - 60, 53));
    putting.put(11, &noise(50, 54));
    let left = putting.sink.done().missing(0..putting.bytes.len() as u64);
    for piece in left.iter() {
        let range = piece.start as usize..piece.end as usize;
        put(&*putting.sink, piece.start, &putting.bytes[range]);
    }
    putting.finish(store, can);
}

/// The writer cuts the file to less than was put.
//= publishing#a-partial
pub(super) fn shorter_than_put(store: &dyn Store, can: &Capabilities) {
    if !can_again(store, can) {
        return;
    }
    let how = Write {
        resume: false,
        ..Write::default()
    };
    for (size, again) in [
        (MIB + 5, 0),
        (2 * MIB, 0),
        (5, 3),
        (0, 0),
        (2 * MIB + 1024, 30_000),
    ] {
        let mut putting = Putting::begin(store, noise(3 * MIB + 77, 60), &how);
        putting.put(again, &noise(again, 61));
        putting.hear();
        putting.bytes.truncate(size);
        putting.finish(store, can);
    }
    // The file grew again: behind the cut are zeros, and then the bytes written there.
    let mut putting = Putting::begin(store, noise(3 * MIB, 62), &how);
    putting.put(MIB + 100, &vec![0; MIB]);
    putting.put(2 * MIB + 100, &noise(200, 63));
    putting.bytes.truncate(2 * MIB + 300);
    putting.finish(store, can);
}
