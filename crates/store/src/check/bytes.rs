//! Bytes are read as they were written, in any order and at any offset.

use super::{FAR, Full, Got, MIB, all_of, begin, noise, p, put, read, stat, whole, write};
use crate::{
    Capabilities, EntryKind, Error, Expected, Result, Small, SmallWrite, Store, StoreExt, Write,
    WriteMode,
};
use godwit_core::{Algorithm, Digest, Extents, LEAF_BYTES};
use parking_lot::Mutex;
use std::{path::PathBuf, thread};

pub(super) fn a_file_comes_back(store: &dyn Store, can: &Capabilities) {
    for len in [1, 1000, MIB, 3 * MIB + 17] {
        if !can.write {
            return;
        }
        let bytes = noise(len, len as u64);
        let finished = write(store, "file", &bytes);
        assert!(!finished.in_place);
        assert_eq!(
            finished.reread_bytes, 0,
            "{len} bytes in order need no second look"
        );
        assert_eq!(read(store, "file"), bytes);
        let stat = stat(store, "file");
        assert_eq!((stat.kind, stat.size), (EntryKind::File, len as u64));
    }
}

pub(super) fn an_empty_file(store: &dyn Store, can: &Capabilities) {
    if !can.write {
        return;
    }
    let finished = write(store, "empty", b"");
    assert!(
        finished
            .digests
            .iter()
            .all(|d| *d == Digest::of(d.algorithm(), b""))
    );
    assert_eq!(stat(store, "empty").size, 0);
    assert_eq!(read(store, "empty"), b"");
}

pub(super) fn parts_are_read(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.ranges) {
        return;
    }
    let bytes = noise(2 * MIB + 100, 3);
    write(store, "file", &bytes);
    for text in [
        "0-1",
        "5-6,2097251-2097252",
        "1048000-1049000",
        "2097000-9999999999",
    ] {
        let want: Extents = text.parse().expect("ranges");
        let got = Got::default();
        let told = store.read(p("file"), &want, 1, &got).expect("read");
        assert_eq!(told.stat.size, bytes.len() as u64);
        let there: Extents = want.within(0..bytes.len() as u64).collect();
        assert_eq!(got.extents(), there, "{text}");
        assert!(got.ascending(), "{text}");
        got.assert_part_of(&bytes);
    }
    let got = Got::default();
    store
        .read(p("file"), &Extents::from(1 << 40..1 << 41), 4, &got)
        .expect("nothing is there");
    assert_eq!(got.extents(), Extents::new());
}

pub(super) fn many_threads_read(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.ranges) {
        return;
    }
    let bytes = noise(24 * MIB + 5, 4);
    write(store, "file", &bytes);
    for streams in [1, 3, 8] {
        let got = Got::default();
        store
            .read(p("file"), &all_of(&bytes), streams, &got)
            .expect("read");
        got.assert_is(&bytes);
    }
    // An error of the sink ends the read, and is returned.
    let full = store.read(p("file"), &all_of(&bytes), 4, &Full);
    assert!(matches!(full, Err(Error::NoSpace { .. })), "{full:?}");
}

pub(super) fn blocks_in_any_order(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.any_order) {
        return;
    }
    let bytes = noise(3 * MIB + 333, 5);
    let sink = begin(store, "file", &bytes, &Write::default());
    // Pieces that respect neither leaves nor each other's order.
    let mut left = Extents::from(0..bytes.len() as u64);
    let mut pieces = Vec::new();
    while let Some(piece) = left.take_aligned(100_003) {
        pieces.push(piece);
    }
    let n = pieces.len();
    for i in 0..n {
        let piece = &pieces[(i * 11 + 7) % n];
        put(
            &*sink,
            piece.start,
            &bytes[piece.start as usize..piece.end as usize],
        );
    }
    let finished = sink.finish(&whole(&bytes)).expect("finish");
    assert_eq!(read(store, "file"), bytes);
    for digest in finished.digests {
        assert_eq!(digest, Digest::of(digest.algorithm(), &bytes));
    }
}

pub(super) fn many_threads_write(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.any_order) {
        return;
    }
    let bytes = noise(12 * MIB + 1, 6);
    let how = Write {
        streams: 4,
        ..Write::default()
    };
    let sink = begin(store, "file", &bytes, &how);
    let left = Mutex::new(all_of(&bytes));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().take_aligned(LEAF_BYTES);
                    let Some(piece) = next else { return };
                    put(
                        &*sink,
                        piece.start,
                        &bytes[piece.start as usize..piece.end as usize],
                    );
                }
            });
        }
    });
    sink.finish(&whole(&bytes)).expect("finish");
    assert_eq!(read(store, "file"), bytes);
}

pub(super) fn in_place(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.in_place) {
        return;
    }
    let mut bytes = noise(2 * MIB, 18);
    write(store, "file", &bytes);
    let how = Write::with(WriteMode::InPlace);
    let sink = store.write(p("file"), &how).expect("write");
    let patch = noise(1000, 19);
    put(&*sink, LEAF_BYTES - 500, &patch);
    sink.finish(&Expected::default()).expect("finish");
    bytes[MIB - 500..MIB + 500].copy_from_slice(&patch);
    assert_eq!(read(store, "file"), bytes);
    // A file that was not there begins with the bytes that were put.
    let sink = store.write(p("new"), &how).expect("write");
    put(&*sink, 3, b"abc");
    sink.finish(&Expected::default()).expect("finish");
    assert_eq!(read(store, "new"), b"\0\0\0abc");
    // A new file may have no bytes, and a write of no bytes leaves an existing file unchanged.
    let none = Expected::of_size(0);
    let sink = store.write(p("none"), &how).expect("write");
    sink.finish(&none).expect("finish");
    assert_eq!(stat(store, "none").size, 0);
    let sink = store.write(p("file"), &how).expect("write");
    sink.finish(&Expected::default()).expect("finish");
    assert_eq!(read(store, "file"), bytes);
}

pub(super) fn far_out(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.in_place && can.ranges) {
        return;
    }
    let sink = store
        .write(p("far"), &Write::with(WriteMode::InPlace))
        .expect("write");
    put(&*sink, FAR, b"end");
    sink.finish(&Expected::default()).expect("finish");
    assert_eq!(stat(store, "far").size, FAR + 3);
    let got = Got::default();
    store
        .read(p("far"), &Extents::from(FAR - 2..u64::MAX), 2, &got)
        .expect("read");
    assert_eq!(got.extents(), Extents::from(FAR - 2..FAR + 3));
    let blocks = got.0.into_inner();
    let bytes: Vec<u8> = blocks.into_iter().flat_map(|(_, b)| b).collect();
    assert_eq!(bytes, b"\0\0end");
}

pub(super) fn holes(store: &dyn Store, can: &Capabilities) {
    if !can.write {
        return;
    }
    let mut bytes = vec![0; 4 * MIB + 100];
    bytes[MIB + 7] = 1;
    bytes[3 * MIB] = 2;
    let finished = write(store, "sparse", &bytes);
    assert_eq!(read(store, "sparse"), bytes);
    for digest in finished.digests {
        assert_eq!(digest, Digest::of(digest.algorithm(), &bytes));
    }
}

pub(super) fn digests(store: &dyn Store, can: &Capabilities) {
    if !can.write {
        return;
    }
    let bytes = noise(2 * MIB + 77, 20);
    write(store, "file", &bytes);
    for by in Algorithm::ALL {
        let whole = store.digest(p("file"), by, None);
        if !can.digests.contains(&by) {
            assert!(whole.is_err(), "{by} was not promised");
            continue;
        }
        assert_eq!(whole.expect("promised"), Digest::of(by, &bytes));
        let range = store
            .digest(p("file"), by, Some(1000..LEAF_BYTES + 1000))
            .expect("promised");
        assert_eq!(range, Digest::of(by, &bytes[1000..MIB + 1000]), "{by}");
    }
}

pub(super) fn small_files(store: &dyn Store, can: &Capabilities) {
    if !can.write {
        return;
    }
    store.mkdir(p("many")).expect("mkdir");
    let path = |i: usize| PathBuf::from(format!("many/{i:03}"));
    let text = |i: usize| noise(i * 37 % 5000, i as u64 + 1);
    let mut given = (0..100).map(|i| {
        // One of them cannot be written; the others must not suffer.
        let path = if i == 50 {
            PathBuf::from("nowhere/x")
        } else {
            path(i)
        };
        SmallWrite {
            path,
            bytes: text(i),
            how: WriteMode::Replace(None),
            mtime: None,
            mode: None,
        }
    });
    let mut written = Vec::new();
    store
        .write_small(&mut || given.next(), &mut |path, finished| {
            written.push((path, finished.is_ok()))
        })
        .expect("the conversation holds");
    let expected: Vec<_> = (0..100)
        .map(|i| {
            if i == 50 {
                (PathBuf::from("nowhere/x"), false)
            } else {
                (path(i), true)
            }
        })
        .collect();
    assert_eq!(written, expected);
    let mut wanted = (0..100).map(path);
    let mut seen = Vec::new();
    store
        .read_small(&mut || wanted.next(), &mut |path, small: Result<Small>| {
            seen.push((path, small.map(|s| s.bytes)))
        })
        .expect("the conversation holds");
    assert_eq!(seen.len(), 100);
    for (i, (seen_path, bytes)) in seen.into_iter().enumerate() {
        assert_eq!(seen_path, path(i));
        match bytes {
            Ok(bytes) => assert_eq!(bytes, text(i), "file {i}"),
            Err(error) => assert_eq!(i, 50, "{error}"),
        }
    }
}
