//! A process that dies at a named point, and another that resumes.

use super::*;
use std::{os::unix::process::ExitStatusExt, process::Command};

/// The bytes that the child writes; one block for every byte but the last five.
fn source() -> Vec<u8> {
    noise(4 * MIB + 5, 77)
}

fn how() -> Write<'static> {
    Write::of_size(4 * LEAF_BYTES + 5)
}

/// The one that dies: run by `dies_at` only.
#[test]
fn child() {
    let Some(root) = std::env::var_os("GODWIT_CHILD") else {
        return;
    };
    let dir = Dir::open(Path::new(&root), "tester", Opener::Myself).unwrap();
    let sink = dir.write(p("file"), &how()).unwrap();
    for (i, block) in source().chunks(MIB).enumerate() {
        put(&*sink, (i * MIB) as u64, block);
        if i == 1 {
            sink.commit().unwrap();
        }
    }
    sink.finish(&Expected::default()).unwrap();
}

fn dies_at(point: &str) -> Scratch {
    dies_in("crashes::child", point)
}

pub(super) fn dies_in(child: &str, point: &str) -> Scratch {
    let place = Scratch::new();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("dir::tests::{child}"), "--nocapture"])
        .env("GODWIT_CHILD", &place.0)
        .env("GODWIT_CRASH", point)
        .output()
        .unwrap()
        .status;
    assert_eq!(status.signal(), Some(9), "{point} was not reached");
    place
}

/// Resumes the upload, and returns how many bytes the dead process had left.
fn goes_on(place: &Scratch, point: &str) -> u64 {
    let dir = place.dir();
    let sink = dir.write(p("file"), &how()).unwrap();
    let done = sink.done();
    for piece in done.missing(0..4 * LEAF_BYTES + 5).iter() {
        put(
            &*sink,
            piece.start,
            &source()[piece.start as usize..piece.end as usize],
        );
    }
    let digest = Some(Digest::of(Algorithm::Blake3, &source()));
    sink.finish(&Expected {
        digest,
        ..Expected::default()
    })
    .unwrap_or_else(|e| panic!("{point}: {e}"));
    assert_eq!(place.bytes("file"), source(), "{point}");
    assert_eq!(place.names(), ["file"], "{point}");
    done.len_bytes()
}

#[test] //= publishing#a-partial
fn publish_resumes_after_kill_at_every_point() {
    const M: u64 = LEAF_BYTES;
    let points = [
        ("dir.part-made", 0),
        ("dir.record-made", 0),
        ("dir.record-begun", 0),
        ("dir.bytes-written:1", 0),
        ("dir.bytes-written:3", 2 * M),
        ("dir.slot-written:1", M),
        ("dir.slot-written:3", 3 * M),
        ("dir.synced", 2 * M),
        ("dir.before-rename", 4 * M + 5),
    ];
    for (point, left) in points {
        let place = dies_at(point);
        assert!(
            !place.0.join("file").exists(),
            "{point}: half a file is visible"
        );
        assert_eq!(goes_on(&place, point), left, "{point}");
    }
}

const MANY: u64 = 48;

fn many_blocks() -> Write<'static> {
    Write {
        size: Some(MANY * LEAF_BYTES),
        streams: 4,
        ..Write::default()
    }
}

/// Block `i` of the file that many threads write.
fn block(i: u64) -> Vec<u8> {
    noise(MIB, 1000 + i)
}

/// The one that dies while four threads write: run by `publish_loses_at_most…` only.
#[test]
fn child_of_many_threads() {
    let Some(root) = std::env::var_os("GODWIT_CHILD") else {
        return;
    };
    let dir = Dir::open(Path::new(&root), "tester", Opener::Myself).unwrap();
    let sink = dir.write(p("file"), &many_blocks()).unwrap();
    let next = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= MANY {
                        return;
                    }
                    // Every block once, far from its neighbours.
                    let i = i * 17 % MANY;
                    put(&*sink, i * LEAF_BYTES, &block(i));
                }
            });
        }
    });
}

#[test] //= publishing#a-partial
fn publish_loses_one_block_per_thread() {
    for (point, landed) in [
        ("dir.bytes-written:5", 1),
        ("dir.slot-written:20", 20),
        ("dir.bytes-written:44", 40),
    ] {
        let place = dies_in("crashes::child_of_many_threads", point);
        // Where the machine is slow, it died long after it wrote the bytes.
        let mtime = |end| {
            let meta = publish::left_file(&place, end).metadata();
            meta.unwrap().modified().unwrap()
        };
        publish::left_file(&place, ".part")
            .set_modified(mtime(".done"))
            .unwrap();
        let kept = place.dir().partial(p("file"), None).unwrap().unwrap();
        let blocks = kept.done.len_bytes() / LEAF_BYTES;
        assert!((landed..=landed + 7).contains(&blocks), "{point}: {blocks}");
        let sink = place.dir().write(p("file"), &many_blocks()).unwrap();
        assert_eq!(sink.done(), kept.done);
        for i in 0..MANY {
            if !kept.done.contains(&(i * LEAF_BYTES..(i + 1) * LEAF_BYTES)) {
                put(&*sink, i * LEAF_BYTES, &block(i));
            }
        }
        let finished = sink.finish(&Expected::default()).unwrap();
        assert_eq!(finished.reread_bytes, 0);
        let all: Vec<u8> = (0..MANY).flat_map(block).collect();
        assert!(place.bytes("file") == all, "{point}");
        assert_eq!(finished.digests, [Digest::of(Algorithm::Blake3, &all)]);
    }
}

/// A crash between the rename and the removal of the record: the file is complete, and the record has no use.
#[test] //= publishing#a-partial
fn publish_is_over_after_the_rename() {
    let place = dies_at("dir.after-rename");
    assert_eq!(place.bytes("file"), source());
    assert_eq!(place.names().len(), 2, "the record is still there");
    assert!(place.dir().partial(p("file"), None).unwrap().is_none());
    assert_eq!(place.dir().sweep(Duration::ZERO).unwrap(), 1);
    assert_eq!(place.names(), ["file"]);
    let place = dies_at("dir.after-rename");
    assert_eq!(
        goes_on(&place, "dir.after-rename"),
        0,
        "a new upload begins anew"
    );
}

/// Fails if a crash point has no test.
#[test]
fn every_point_is_tested() {
    let code = concat!(include_str!("../upload.rs"), include_str!("../partial.rs"));
    let tests = concat!(include_str!("crashes.rs"), include_str!("again.rs"));
    let points: Vec<&str> = code
        .split("crash::point(\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(points.len() >= 8);
    for point in points {
        assert!(tests.contains(&format!("\"{point}")), "{point}");
    }
}
