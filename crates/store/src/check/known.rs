//! Leaves that are put with the hash from the time of their write.

use super::{MIB, begin, noise, p, put, read, whole};
use crate::{BlockWriterExt, Capabilities, LocalFile, Store, Write};
use godwit_core::{Block, Chain, LEAF_BYTES, Leaves, Piece};
use std::os::unix::fs::FileExt;

pub(super) fn put_as_known(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.any_order) {
        return;
    }
    let bytes = noise(3 * MIB + 5, 7);
    let file = godwit_sys::memory("known").expect("a file in memory");
    file.write_all_at(&bytes, 0).expect("written");
    let path = p("file");
    let (lying, mut buffer) = (LocalFile { path, file: &file }, vec![0; MIB]);
    let was = |leaf: u64| {
        let offset = leaf * LEAF_BYTES;
        let bytes = &bytes[offset as usize..offset as usize + MIB];
        let mut leaves = Leaves::new();
        leaves.add(Piece::of(Block { offset, bytes }));
        leaves.chain(leaf, offset + LEAF_BYTES).expect("known")
    };
    let sink = begin(store, "file", &bytes, &Write::default());
    for leaf in 0..3 {
        let mut chain = was(leaf);
        // The leaf has changed since its hash was computed.
        chain.0[7] ^= u8::from(leaf == 1);
        let known = (leaf, Chain(chain.0));
        sink.put_known(&lying, known, &mut buffer).expect("put");
    }
    put(&*sink, 3 * LEAF_BYTES, &bytes[3 * MIB..]);
    let landed = sink.settle().expect("settle");
    for leaf in [0, 2] {
        let range = leaf * LEAF_BYTES..(leaf + 1) * LEAF_BYTES;
        assert!(landed.contains(&range), "{leaf} of {landed}");
    }
    let has_it = landed.contains(&(LEAF_BYTES..2 * LEAF_BYTES));
    assert_eq!(has_it, !can.leaves, "who compares has found it: {landed}");
    if has_it && !can.again {
        // The store did not notice, and takes no bytes back.
        return sink.abandon().expect("abandon");
    }
    let known = (1, was(1));
    sink.put_known(&lying, known, &mut buffer).expect("again");
    sink.finish(&whole(&bytes)).expect("finish");
    assert_eq!(read(store, "file"), bytes);
}
