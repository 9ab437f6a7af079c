//! After a lost connection, a writer begins another attempt, which supersedes the older ones.

use super::{MIB, begin, is_missing, noise, p, put, read, whole};
use crate::{
    Capabilities, Error, Expected, Result, Sink, SinkExt, Store, StoreExt, Write, WriteMode,
};
use godwit_core::{Algorithm, Block, Digest, Extents, LEAF_BYTES, Leaves, Piece, Strength};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

/// Each check has an upload of its own: a store may have been emptied, and remember.
fn attempt(id: &'static str, attempt: u64) -> Write<'static> {
    Write {
        id: Some(id),
        attempt,
        ..Write::default()
    }
}

fn superseded<T>(result: Result<T>, what: &str) {
    match result {
        Err(Error::Superseded { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: it was done"),
    }
}

/// Puts something, and asks whether it landed.
fn lands(sink: &dyn Sink, offset: u64, bytes: &[u8]) -> Result<Extents> {
    sink.put(Block { offset, bytes })?;
    sink.settle()
}

/// Returns whether there is something to check; who cannot count refuses it.
fn can_count(store: &dyn Store, can: &Capabilities) -> bool {
    if can.write && !can.attempts {
        let sink = store.write(p("counted"), &attempt("1f.7", 1));
        assert!(sink.is_err(), "it said it cannot");
    }
    can.write && can.attempts
}

//= KANGAROO-26 publishing#a-partial
pub(super) fn taken_over(store: &dyn Store, can: &Capabilities) {
    if !can_count(store, can) {
        return;
    }
    let bytes = noise(3 * MIB, 70);
    let old = || {
        let old = begin(store, "file", &bytes, &attempt("1e.1", 5));
        put(&*old, 0, &noise(MIB, 71));
        old.settle().expect("settle");
        old
    };
    let (put_late, commit_late, finish_late, abandon_late) = (old(), old(), old(), old());
    let new = begin(store, "file", &bytes, &attempt("1e.1", 6));
    let foreign = noise(MIB, 72);
    superseded(lands(&*put_late, LEAF_BYTES, &foreign), "puts");
    superseded(commit_late.commit(), "commits");
    superseded(finish_late.finish(&whole(&bytes)), "ends");
    superseded(abandon_late.abandon(), "gives up");
    // They leave, and take nothing along.
    drop(put_late);
    drop(commit_late);
    let late = store.write(p("file"), &attempt("1e.1", 5));
    superseded(late, "an older attempt begins again");
    // Another upload has attempts of its own.
    let other = Write {
        id: Some("1f.8"),
        ..attempt("1e.1", 1)
    };
    let other = store.write(p("file"), &other).expect("it is another one");
    other.abandon().expect("abandon");
    for (i, leaf) in bytes.chunks(MIB).enumerate() {
        put(&*new, i as u64 * LEAF_BYTES, leaf);
    }
    assert!(is_missing(store.stat(p("file"))));
    new.finish(&whole(&bytes)).expect("finish");
    assert!(read(store, "file") == bytes);
    let late = store.write(p("file"), &attempt("1e.1", 5));
    superseded(late, "an older attempt begins after the end");
    assert!(read(store, "file") == bytes);
}

//= KANGAROO-26 publishing#a-partial
pub(super) fn what_landed_is_told(store: &dyn Store, can: &Capabilities) {
    if !(can_count(store, can) && can.resume && can.any_order) {
        return;
    }
    let bytes = noise(4 * MIB, 73);
    let old = store.write(p("file"), &attempt("1e.2", 1)).expect("write");
    put(&*old, 0, &bytes[..2 * MIB]);
    put(&*old, 3 * LEAF_BYTES, &bytes[3 * MIB..3 * MIB + 700]);
    old.settle().expect("settle");
    let new = store.write(p("file"), &attempt("1e.2", 2)).expect("write");
    let ranges = "0-2097152,3145728-3146428";
    assert_eq!(new.done().to_string(), ranges, "what landed is lost");
    let mut tree = Leaves::new();
    tree.add(Piece::of(Block::at(0, &bytes)));
    let told = new.newly_whole(10);
    let known = (0..2).map(|leaf| (leaf, tree.chain(leaf, 4 * LEAF_BYTES).expect("it is known")));
    assert_eq!(told, known.collect::<Vec<_>>());
    put(&*new, 2 * LEAF_BYTES, &bytes[2 * MIB..3 * MIB]);
    put(&*new, 3 * LEAF_BYTES + 700, &bytes[3 * MIB + 700..]);
    new.finish(&whole(&bytes)).expect("finish");
    assert!(read(store, "file") == bytes);
}

/// The store's file may differ from the bytes that the writer remembers, after a crash at either side.
pub(super) fn what_differs_is_not_done(store: &dyn Store, can: &Capabilities) {
    if !(can_count(store, can) && can.resume && can.any_order) {
        return;
    }
    let landed = noise(4 * MIB, 90);
    let mut here = landed.clone();
    here[MIB + 17] ^= 1;
    here[3 * MIB + 5] ^= 1;
    for size in [None, Some(4 * LEAF_BYTES)] {
        let how = |nth| Write {
            size,
            ..attempt("1e.3", nth)
        };
        let nth = size.map_or(1, |_| 3);
        let old = store.write(p("file"), &how(nth)).expect("write");
        put(&*old, 0, &landed[..3 * MIB]);
        put(&*old, 3 * LEAF_BYTES, &landed[3 * MIB..3 * MIB + 700]);
        old.settle().expect("settle");
        let new = store.write(p("file"), &how(nth + 1)).expect("write");
        let unseen = new.unseen();
        assert_eq!(unseen, Extents::from(0..3 * LEAF_BYTES + 700));
        for i in 0..4 {
            let end = here.len().min((i + 1) * MIB).min(unseen.end() as usize);
            let bytes = &here[i * MIB..end];
            let offset = (i * MIB) as u64;
            new.show(Block { offset, bytes }).expect("show");
        }
        let done = new.done();
        assert_eq!(done.to_string(), "0-1048576,2097152-3145728");
        for piece in done.missing(0..4 * LEAF_BYTES).iter() {
            let range = piece.start as usize..piece.end as usize;
            put(&*new, piece.start, &here[range]);
        }
        let digest = can.digests.contains(&Algorithm::Blake3);
        let digest = digest.then(|| Digest::of(Algorithm::Blake3, &here));
        let whole = Expected {
            digest,
            ..whole(&here)
        };
        new.finish(&whole).expect("finish");
        assert!(read(store, "file") == here);
    }
}

/// Each writer thinks that it is the last one; of all only the last has anything there.
//= KANGAROO-26 publishing#a-partial
pub(super) fn racing(store: &dyn Store, can: &Capabilities) {
    if !(can_count(store, can) && can.any_order) {
        return;
    }
    let texts: Vec<Vec<u8>> = (0..4).map(|i| noise(2 * MIB, 74 + i)).collect();
    let latest = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let pour = |nth: u64| {
        let write = Write {
            streams: 2,
            ..attempt("1e.4", nth)
        };
        let sink = store.write(p("file"), &write)?;
        latest.fetch_max(nth, SeqCst);
        let text = &texts[nth as usize - 1];
        while !is_over.load(SeqCst) {
            for (i, leaf) in text.chunks(MIB).enumerate() {
                sink.put(Block::at(i as u64 * LEAF_BYTES, leaf))?;
            }
            sink.settle()?;
            // The attempt that put all its bytes after the last one began wins.
            if nth == 4 {
                is_over.store(true, SeqCst);
                return sink.finish(&whole(text)).map(drop);
            }
        }
        sink.finish(&whole(text)).map(drop)
    };
    let ended: Vec<Result<()>> = thread::scope(|scope| {
        let running: Vec<_> = (1..=4)
            .map(|nth| {
                let running = scope.spawn(move || pour(nth));
                // In this order, or it would be refused.
                while latest.load(SeqCst) < nth && !running.is_finished() {
                    thread::yield_now();
                }
                running
            })
            .collect();
        let joined = running.into_iter().map(|one| one.join().expect("no panic"));
        joined.collect()
    });
    for (i, ended) in ended.into_iter().enumerate() {
        match i {
            3 => ended.expect("it is the latest"),
            _ => superseded(ended, "an older one ends"),
        }
    }
    assert!(read(store, "file") == texts[3], "an older attempt is there");
}

//= publishing#a-partial
pub(super) fn what_it_became_is_told(store: &dyn Store, can: &Capabilities) {
    if !(can_count(store, can) && can.atomic) {
        return;
    }
    let became = |id: &str| store.published_as(p("file"), id).expect("became");
    let publish = |nth: u64, text: &[u8], write: &Write<'_>| {
        let sink = begin(
            store,
            "file",
            text,
            &Write {
                attempt: nth,
                ..write.clone()
            },
        );
        if !text.is_empty() {
            put(&*sink, 0, text);
        }
        assert_eq!(became("1f.7").is_some(), nth > 1, "before it is finished");
        let finished = sink.finish(&Expected {
            mtime: (nth == 2).then(|| Duration::new(1_000_000_000, 123_456_789)),
            ..whole(text)
        });
        finished.expect("finish").version
    };
    assert_eq!(became("1f.7"), None);
    // Of any length; with a time of its own; by a later attempt at the same upload.
    let texts = [noise(10, 80), noise(2 * MIB + 1, 81), Vec::new()];
    for (nth, text) in (1..).zip(&texts) {
        let version = publish(nth, text, &attempt("1f.7", 0));
        let told = became("1f.7").expect("it was published");
        assert_eq!(version.compare(&told), told.compare(&version));
        assert!(!matches!(
            told.compare(&version),
            Strength::Differs | Strength::Unknown
        ));
        // A writer that received this version can replace the file by it.
        let sink = store.write(p("file"), &Write::with(WriteMode::Replace(Some(told))));
        sink.expect("the version is current")
            .abandon()
            .expect("abandon");
    }
    assert_eq!(became("1f.8"), None, "it is another upload");
    // A writer that began again receives the same answer, though its upload may replace no file.
    let new = |id| Write {
        how: WriteMode::New,
        ..attempt(id, 4)
    };
    let sink = store.write(p("file"), &new("1f.7")).expect("it is that");
    assert!(became("1f.7").is_some());
    sink.abandon().expect("abandon");
    let other = store.write(p("file"), &new("1f.8"));
    assert!(matches!(other, Err(Error::Exists { .. })));
    super::write(store, "file", b"another user's");
    assert_eq!(became("1f.7"), None, "another file is there");
}
