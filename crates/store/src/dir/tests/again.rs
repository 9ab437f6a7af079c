//! Bytes that are put again, and a crash or a power cut meanwhile.

use super::{crashes::dies_in, publish::reboot, *};
use std::os::unix::fs::FileExt;

const M: u64 = LEAF_BYTES;

/// A file, and a version of it whose second leaf and a part of the third are changed.
fn versions() -> (Vec<u8>, Vec<u8>) {
    let first = noise(3 * MIB, 80);
    let mut second = first.clone();
    second[MIB..2 * MIB + 500].copy_from_slice(&noise(MIB + 500, 81));
    (first, second)
}

fn how() -> Write<'static> {
    Write {
        id: Some("again"),
        ..Write::default()
    }
}

fn committed(dir: &Dir) -> Box<dyn Sink> {
    let sink = dir.write(p("file"), &how()).unwrap();
    for (i, leaf) in versions().0.chunks(MIB).enumerate() {
        put(&*sink, i as u64 * M, leaf);
    }
    assert_eq!(sink.commit().unwrap(), Extents::from(0..3 * M));
    sink
}

/// The one that dies: run by the test below only.
#[test]
fn child_that_puts_again() {
    let Some(root) = std::env::var_os("GODWIT_CHILD") else {
        return;
    };
    let dir = Dir::open(Path::new(&root), "tester", Opener::Myself).unwrap();
    let sink = committed(&dir);
    put(&*sink, M, &versions().1[MIB..2 * MIB + 500]);
}

#[test] //= publishing#a-partial
fn again_after_kill_counts_no_old_bytes() {
    for point in [
        "dir.taken-back",
        "dir.bytes-written:4",
        "dir.slot-written:4",
    ] {
        let place = dies_in("again::child_that_puts_again", point);
        let (_, last) = versions();
        let sink = place.dir().write(p("file"), &how()).unwrap();
        let done = sink.done();
        let is_all = point.starts_with("dir.slot");
        let left = Extents::from(0..M).or(&Extents::from(2 * M + 500..3 * M));
        let expected = if is_all {
            Extents::from(0..3 * M)
        } else {
            left
        };
        assert_eq!(done, expected, "{point}");
        for piece in done.missing(0..3 * M).iter() {
            let range = piece.start as usize..piece.end as usize;
            put(&*sink, piece.start, &last[range]);
        }
        let digest = Some(Digest::of(Algorithm::Blake3, &last));
        let whole = Expected {
            digest,
            ..Expected::default()
        };
        sink.finish(&whole).unwrap();
        assert!(place.bytes("file") == last, "{point}");
    }
}

#[test] //= publishing#a-partial
fn again_after_commit_survives_power_cut() {
    let place = Scratch::new();
    let dir = place.dir();
    let sink = committed(&dir);
    let record = || {
        let names = place.names();
        let name = names.into_iter().find(|name| name.ends_with(".done"));
        let mut open = fs::OpenOptions::new();
        let open = open.read(true).write(true);
        open.open(place.0.join(name.unwrap())).unwrap()
    };
    let slot_at = |leaf: u64| 16384 + 128 * leaf;
    let mut before = [0; 128];
    put(&*sink, M, &noise(MIB, 82));
    record().read_exact_at(&mut before, slot_at(0)).unwrap();
    put(&*sink, 0, &noise(MIB, 83));
    drop(sink);
    // The bytes reached the disk, and their slot did not.
    record().write_all_at(&before, slot_at(0)).unwrap();
    reboot(&place);
    let sink = dir.write(p("file"), &how()).unwrap();
    assert_eq!(sink.done(), Extents::from(M..3 * M));
    // A commit writes the slots of all landed bytes again.
    put(&*sink, 0, &noise(MIB, 84));
    assert_eq!(sink.commit().unwrap(), Extents::from(0..3 * M));
    put(&*sink, 3 * M, &noise(500, 85));
    sink.commit().unwrap();
    drop(sink);
    reboot(&place);
    let sink = dir.write(p("file"), &how()).unwrap();
    assert_eq!(sink.done(), Extents::from(0..3 * M + 500));
}
