//! Uploads through the door that several attempts are about, since a conversation broke.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Scratch, lab::Lab};
use godwit_core::{Block, Extents, LEAF_BYTES};
use godwit_store::{Error, Expected, Result, Sink, Store, StoreExt, Write};
use std::{
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

fn attempt(attempt: u64) -> Write<'static> {
    Write {
        id: Some("0123456789abcdef01234567.3"),
        attempt,
        ..Write::default()
    }
}

fn put(sink: &dyn Sink, leaf: u64, byte: u8) -> Result<()> {
    sink.put(Block::at(
        leaf * LEAF_BYTES,
        &vec![byte; LEAF_BYTES as usize],
    ))
}

fn is_superseded<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Superseded { .. }))
}

const LEAVES: u64 = 4;

fn whole() -> Expected {
    Expected::of_size(LEAVES * LEAF_BYTES)
}

/// Its request sends all the time, over connections of its own.
#[test]
fn open_request_lands_nothing_after_takeover() {
    let lab = Lab::new();
    let served = lab.node(&[]);
    let (one, other) = (lab.anonymous(&served), lab.anonymous(&served));
    let (pouring, is_over) = (Barrier::new(2), AtomicBool::new(false));
    let poured = thread::scope(|scope| {
        let old = scope.spawn(|| {
            let sink = one.write(Path::new("f"), &attempt(1)).unwrap();
            put(&*sink, 0, b'a').unwrap();
            sink.commit().unwrap();
            pouring.wait();
            // Without reading any answer.
            while !is_over.load(SeqCst) {
                for leaf in 0..LEAVES {
                    put(&*sink, leaf, b'a')?;
                }
            }
            sink.finish(&whole()).map(drop)
        });
        pouring.wait();
        let sink = other.write(Path::new("f"), &attempt(2)).unwrap();
        for leaf in 0..LEAVES {
            put(&*sink, leaf, b'b').unwrap();
        }
        let all = Extents::from(0..LEAVES * LEAF_BYTES);
        assert_eq!(sink.commit().unwrap(), all);
        sink.finish(&whole()).unwrap();
        is_over.store(true, SeqCst);
        old.join().unwrap()
    });
    assert!(is_superseded(poured));
    let published = served.bytes("f");
    assert!(published.iter().all(|&byte| byte == b'b'));
    assert_eq!(published.len() as u64, LEAVES * LEAF_BYTES);
}

/// By connections that were open before, and by new ones.
#[test]
fn superseded_attempt_is_refused() {
    let lab = Lab::new();
    let served = lab.node(&[]);
    let (one, other) = (lab.anonymous(&served), lab.anonymous(&served));
    for end in ["commit", "finish", "abandon", "leave"] {
        let path = Path::new(end);
        let old = one.write(path, &attempt(1)).unwrap();
        put(&*old, 0, b'a').unwrap();
        old.settle().unwrap();
        let new = other.write(path, &attempt(2)).unwrap();
        assert_eq!(new.done(), Extents::from(0..LEAF_BYTES));
        match end {
            "commit" => assert!(is_superseded(old.commit())),
            "finish" => assert!(is_superseded(old.finish(&Expected::default()))),
            "abandon" => assert!(is_superseded(old.abandon())),
            _ => drop(old),
        }
        assert!(is_superseded(one.write(path, &attempt(1))));
        assert_eq!(new.settle().unwrap(), Extents::from(0..LEAF_BYTES));
        new.finish(&Expected::default()).unwrap();
    }
}

/// Attempts of other users, at another name, or without a number end none.
#[test]
fn attempts_count_per_upload() {
    let lab = Lab::new();
    let served = lab.node(&[]);
    let door = lab.anonymous(&served);
    let counted = door.write(Path::new("f"), &attempt(9)).unwrap();
    let other = Write {
        id: Some("0123456789abcdef01234567.4"),
        ..attempt(1)
    };
    let uncounted = Write {
        id: None,
        ..attempt(0)
    };
    for write in [&other, &uncounted] {
        let sink = door.write(Path::new("f"), write).unwrap();
        put(&*sink, 0, b'x').unwrap();
        sink.finish(&Expected::default()).unwrap();
    }
    put(&*counted, 0, b'c').unwrap();
    counted.finish(&Expected::default()).unwrap();
    // A client without attempt numbers is not waited for.
    let held = Write {
        attempt: 0,
        ..attempt(0)
    };
    let held = door.write(Path::new("g"), &held).unwrap();
    put(&*held, 0, b'h').unwrap();
    held.settle().unwrap();
    let busy = door.write(Path::new("g"), &attempt(1));
    assert!(matches!(busy, Err(Error::Busy { .. })));
    drop(held);
    let sink = door.write(Path::new("g"), &attempt(1)).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
}

/// A client whose answer was lost asks, also after the node was started again.
#[test]
fn published_attempt_leaves_nothing_in_tree() {
    let (lab, state) = (Lab::new(), Scratch::new());
    let state_text = state.path().display().to_string();
    let settings = [("node.state", &*state_text)];
    let served = lab.node(&settings);
    let (path, write) = (Path::new("f"), attempt(1));
    let sink = lab.anonymous(&served).write(path, &write).unwrap();
    put(&*sink, 0, b'x').unwrap();
    sink.finish(&Expected::default()).unwrap();
    let names = std::fs::read_dir(served.scratch.path()).unwrap();
    let names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
    let served = lab.node_over(served.stop(), &settings);
    let became = lab.anonymous(&served).published_as(path, write.id.unwrap());
    assert!(became.unwrap().is_some());
    let kept = std::fs::read_dir(state.path().join("published")).unwrap();
    assert_eq!(kept.count(), 1);
}
