//! Publishing uploads: the cells of the table in docs/semantics/publishing.md that a directory decides.

use super::*;
use crate::{
    Origin, SinkExt, StoreExt, Verified,
    dir::record::{FoundRecord, LeafSlot, PartialRecord},
};
use godwit_core::{Leaves, Piece, Version};
use std::os::unix::{
    fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    process::CommandExt,
};

#[test] //= publishing#a-partial
fn publish_appears_only_when_whole() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(3 * MIB + 5, 1);
    let write = Write::of_size(bytes.len() as u64);
    let sink = dir.write(p("file"), &write).unwrap();
    for (i, block) in bytes.chunks(MIB).enumerate().rev() {
        put(&*sink, (i * MIB) as u64, block);
        assert!(dir.stat(p("file")).is_err());
        dir.list(p(""), &mut |entry| panic!("{entry:?}")).unwrap();
    }
    let finished = sink.finish(&Expected::default()).unwrap();
    assert_eq!(place.names(), ["file"]);
    assert_eq!(place.bytes("file"), bytes);
    assert_eq!(finished.digests, [Digest::of(Algorithm::Blake3, &bytes)]);
    assert_eq!(finished.reread_bytes, 0);
}

#[test] //= GRIDFTP-43 publishing#a-partial
fn publish_resumes_without_reading_again() {
    let place = Scratch::new();
    let bytes = noise(4 * MIB, 2);
    let write = Write::of_size(bytes.len() as u64);
    let sink = place.dir().write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, 2 * LEAF_BYTES, &bytes[2 * MIB..3 * MIB]);
    drop(sink);
    let kept = place.dir().partial(p("file"), None).unwrap().unwrap();
    assert_eq!(
        (kept.prefix(), kept.size, kept.in_use),
        (LEAF_BYTES, Some(4 * LEAF_BYTES), false)
    );
    let sink = place.dir().write(p("file"), &write).unwrap();
    assert_eq!(sink.done().to_string(), "0-1048576,2097152-3145728");
    put(&*sink, LEAF_BYTES, &bytes[MIB..2 * MIB]);
    put(&*sink, 3 * LEAF_BYTES, &bytes[3 * MIB..]);
    let finished = sink.finish(&Expected::default()).unwrap();
    assert_eq!(
        (finished.reread_bytes, place.bytes("file") == bytes),
        (0, true)
    );
    assert_eq!(finished.digests, [Digest::of(Algorithm::Blake3, &bytes)]);
    assert_eq!(place.names(), ["file"]);
}

#[test] //= publishing#a-partial
fn publish_separates_partials_by_identity_and_id() {
    let place = Scratch::new();
    let bytes = noise(2 * MIB, 3);
    let write = Write::of_size(2 * LEAF_BYTES);
    let dir = |who: &str| Dir::open(&place.0, who, Opener::Myself).unwrap();
    let sink = dir("anna")
        .write(
            p("file"),
            &Write {
                id: Some("x"),
                ..write.clone()
            },
        )
        .unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    drop(sink);
    let done = |who: &str, id: Option<&str>| {
        let sink = dir(who)
            .write(
                p("file"),
                &Write {
                    id,
                    ..write.clone()
                },
            )
            .unwrap();
        sink.done().len_bytes()
    };
    assert_eq!(done("anna", Some("y")), 0);
    assert_eq!(done("anna", None), 0);
    assert_eq!(done("bert", Some("x")), 0);
    assert_eq!(done("anna", Some("x")), LEAF_BYTES);
    assert!(dir("bert").partial(p("file"), Some("x")).unwrap().is_none());
}

#[test] //= publishing#a-partial
fn publish_never_shares_a_partial_in_use() {
    let place = Scratch::new();
    let dir = place.dir();
    let (one, two) = (noise(2 * MIB, 4), noise(2 * MIB, 5));
    let write = Write::of_size(2 * LEAF_BYTES);
    let first = dir.write(p("file"), &write).unwrap();
    put(&*first, 0, &one[..MIB]);
    assert!(dir.partial(p("file"), None).unwrap().unwrap().in_use);
    let second = dir.write(p("file"), &write).unwrap();
    assert_eq!(second.done(), Extents::new());
    put(&*second, 0, &two[..MIB]);
    put(&*first, LEAF_BYTES, &one[MIB..]);
    put(&*second, LEAF_BYTES, &two[MIB..]);
    first.finish(&Expected::default()).unwrap();
    assert_eq!(place.bytes("file"), one);
    second.finish(&Expected::default()).unwrap();
    assert_eq!(place.bytes("file"), two, "the last to finish wins, whole");
    assert_eq!(place.names(), ["file"]);
}

#[test] //= publishing#a-partial
fn publish_abandons_only_unused_partials() {
    let place = Scratch::new();
    let dir = place.dir();
    let write = Write::of_size(2 * LEAF_BYTES);
    assert!(matches!(
        dir.abandon(p("file"), None),
        Err(Error::Missing { .. })
    ));
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &noise(MIB, 1));
    assert!(matches!(
        dir.abandon(p("file"), None),
        Err(Error::Denied { .. })
    ));
    drop(sink);
    dir.abandon(p("file"), None).unwrap();
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test] //= publishing#a-partial
fn publish_restarts_for_other_origin_or_size() {
    let place = Scratch::new();
    let dir = place.dir();
    let at = |seconds| Version::Weak {
        size: 2 << 20,
        mtime: Duration::from_secs(seconds),
        seen_at: Duration::from_secs(seconds + 60),
        touched: None,
    };
    let origin = |name: &str, seconds| Origin {
        name: name.into(),
        version: at(seconds),
    };
    let kept = origin("ftp://a/x", 5);
    let write = Write {
        size: Some(2 << 20),
        origin: Some(&kept),
        ..Write::default()
    };
    let goes_on = |again: &Write<'_>| {
        let sink = dir.write(p("file"), &write).unwrap();
        put(&*sink, 0, &noise(MIB, 1));
        drop(sink);
        let sink = dir.write(p("file"), again).unwrap();
        let done = sink.done();
        sink.abandon().unwrap();
        !done.is_empty()
    };
    assert!(goes_on(&write));
    assert!(goes_on(&Write {
        origin: None,
        ..write.clone()
    }));
    assert!(!goes_on(&Write {
        origin: Some(&origin("ftp://a/x", 6)),
        ..write.clone()
    }));
    assert!(!goes_on(&Write {
        origin: Some(&origin("ftp://b/x", 5)),
        ..write.clone()
    }));
    assert!(!goes_on(&Write {
        size: Some(3 << 20),
        ..write.clone()
    }));
    assert!(!goes_on(&Write {
        resume: false,
        ..write.clone()
    }));
}

#[test] //= publishing#the-file
fn publish_keeps_mode_and_owner_when_replacing() {
    let place = Scratch::new();
    let dir = place.dir();
    let path = place.0.join("file");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let is_root = std::os::unix::fs::chown(&path, Some(12345), Some(54321)).is_ok();
    let before = fs::metadata(&path).unwrap();
    let given = |bytes: &[u8]| SmallWrite {
        path: "file".into(),
        bytes: bytes.to_vec(),
        how: WriteMode::Replace(None),
        mtime: None,
        mode: None,
    };
    let mut one = Some(given(b"small"));
    dir.write_small(&mut || one.take(), &mut |_, done| assert!(done.is_ok()))
        .unwrap();
    for bytes in [&b"small"[..], &noise(2 * MIB, 1)] {
        if bytes.len() > MIB {
            super::write(&dir, "file", bytes);
        }
        assert_eq!(place.bytes("file"), bytes);
        let after = fs::metadata(&path).unwrap();
        assert_eq!(after.mode(), before.mode());
        assert_eq!(
            (after.uid(), after.gid()),
            (before.uid(), before.gid()),
            "root: {is_root}"
        );
    }
    // A requested mode has priority over the old file's.
    let sink = dir.write(p("file"), &Write::default()).unwrap();
    put(&*sink, 0, b"x");
    sink.finish(&Expected {
        mode: Some(0o600),
        ..Expected::default()
    })
    .unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
}

#[test] //= publishing#the-file
fn publish_sets_mode_and_time() {
    let place = Scratch::new();
    let sink = place
        .dir()
        .write(
            p("file"),
            &Write {
                mode: Some(0o400),
                ..Write::default()
            },
        )
        .unwrap();
    put(&*sink, 0, b"x");
    let mtime = Some(Duration::new(1_000_000_000, 123_456_789));
    sink.finish(&Expected {
        mtime,
        ..Expected::default()
    })
    .unwrap();
    let meta = fs::metadata(place.0.join("file")).unwrap();
    assert_eq!(
        (meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()),
        (0o400, 1_000_000_000, 123_456_789)
    );
}

#[test] //= publishing#the-file
fn publish_patches_in_place_in_closed_directory() {
    // Root may write everywhere, so an ordinary user runs the test.
    if std::env::var_os("GODWIT_CLOSED").is_none() {
        let place = Scratch::new();
        let path = place.0.join("file");
        fs::write(&path, noise(3 * MIB, 1)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o555)).unwrap();
        let exe = std::env::temp_dir().join(format!("godwit-closed-{}", std::process::id()));
        fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
        let name = "dir::tests::publish::publish_patches_in_place_in_closed_directory";
        let mut command = std::process::Command::new(&exe);
        command
            .args(["--exact", name])
            .env("GODWIT_CLOSED", &place.0)
            .current_dir("/");
        if fs::metadata(&place.0).unwrap().uid() == 0 {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let _ = fs::remove_file(&exe);
        fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        assert_eq!(place.bytes("file"), noise(2 * MIB + 5, 2));
        assert_eq!(place.names(), ["file"]);
        return;
    }
    let root = PathBuf::from(std::env::var_os("GODWIT_CLOSED").unwrap());
    let dir = Dir::open(&root, "tester", Opener::Myself).unwrap();
    let finished = super::write(&dir, "file", &noise(2 * MIB + 5, 2));
    assert!(finished.in_place, "and it is said");
    assert_eq!(
        finished.digests,
        [Digest::of(Algorithm::Blake3, &noise(2 * MIB + 5, 2))]
    );
    let new = dir.write(p("new"), &Write::default());
    assert!(matches!(new, Err(Error::Denied { .. })));
    let mut one = Some(SmallWrite {
        path: "file".into(),
        bytes: b"small".to_vec(),
        how: WriteMode::Replace(None),
        mtime: None,
        mode: None,
    });
    dir.write_small(&mut || one.take(), &mut |_, done| {
        assert!(done.unwrap().in_place)
    })
    .unwrap();
    super::write(&dir, "file", &noise(2 * MIB + 5, 2));
}

#[test] //= publishing#the-file
fn publish_keeps_holes() {
    let place = Scratch::new();
    let dir = place.dir();
    let zeros = vec![0; MIB];
    for (name, size) in [("told", Some(64 << 20)), ("untold", None)] {
        let sink = dir
            .write(
                p(name),
                &Write {
                    size,
                    ..Write::default()
                },
            )
            .unwrap();
        put(&*sink, 0, b"begin");
        put(&*sink, 5, &zeros[5..]);
        for i in 1..64 {
            put(&*sink, i * LEAF_BYTES, &zeros);
        }
        sink.finish(&Expected::default()).unwrap();
        let meta = fs::metadata(place.0.join(name)).unwrap();
        assert_eq!(meta.len(), 64 << 20);
        assert!(
            meta.blocks() * 512 < 1 << 20,
            "{name}: {} blocks",
            meta.blocks()
        );
    }
}

#[test] //= publishing#the-file
fn publish_keeps_holes_over_unrecorded_bytes() {
    let place = Scratch::new();
    let write = Write::of_size(8 << 20);
    let sink = place.dir().write(p("file"), &write).unwrap();
    put(&*sink, 0, &noise(MIB, 1));
    drop(sink);
    // Bytes that landed just before the crash, without a slot.
    let part = place
        .names()
        .into_iter()
        .find(|n| n.ends_with(".part"))
        .unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(place.0.join(part))
        .unwrap();
    file.write_all_at(&noise(3 * MIB, 2), LEAF_BYTES).unwrap();
    let sink = place.dir().write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
    for i in 1..8 {
        put(&*sink, i * LEAF_BYTES, &vec![0; MIB]);
    }
    sink.finish(&Expected::default()).unwrap();
    let bytes = place.bytes("file");
    assert!(bytes[..MIB] == noise(MIB, 1)[..] && bytes[MIB..].iter().all(|&b| b == 0));
}

#[test] //= publishing#the-file
fn publish_overwrites_refused_bytes_with_zeros_too() {
    let place = Scratch::new();
    let sink = place
        .dir()
        .write(p("file"), &Write::of_size(2 << 20))
        .unwrap();
    put(&*sink, LEAF_BYTES, &noise(MIB, 1));
    put(&*sink, 0, &noise(MIB, 1));
    let zeros = vec![0; MIB];
    let mut tree = Leaves::new();
    tree.add(Piece::of(Block::at(0, &zeros)));
    sink.said(0, tree.chain(0, 2 << 20).unwrap()).unwrap();
    assert_eq!(sink.done(), Extents::from(LEAF_BYTES..2 * LEAF_BYTES));
    put(&*sink, 0, &zeros);
    let finished = sink.finish(&Expected::default()).unwrap();
    assert_eq!(place.bytes("file")[..MIB], zeros);
    assert_eq!(
        finished.digests,
        [Digest::of(Algorithm::Blake3, &place.bytes("file"))]
    );
}

#[test] //= publishing#the-file
fn publish_writes_through_links_that_stay_inside() {
    let place = Scratch::new();
    let outside = Scratch::new();
    let dir = place.dir();
    fs::create_dir(place.0.join("deep")).unwrap();
    fs::write(place.0.join("deep/real"), "old").unwrap();
    fs::write(outside.0.join("secret"), "secret").unwrap();
    symlink("deep/real", place.0.join("relative")).unwrap();
    symlink(place.0.join("deep/real"), place.0.join("absolute")).unwrap();
    symlink("deep/new", place.0.join("dangling")).unwrap();
    symlink(outside.0.join("secret"), place.0.join("out")).unwrap();
    symlink(outside.0.join("new"), place.0.join("out-new")).unwrap();
    for name in ["relative", "absolute"] {
        super::write(&dir, name, name.as_bytes());
        assert_eq!(place.bytes("deep/real"), name.as_bytes());
        assert!(
            fs::symlink_metadata(place.0.join(name))
                .unwrap()
                .is_symlink()
        );
    }
    super::write(&dir, "dangling", b"made");
    assert_eq!(place.bytes("deep/new"), b"made");
    for name in ["out", "out-new"] {
        for how in [
            WriteMode::Replace(None),
            WriteMode::New,
            WriteMode::InPlace,
            WriteMode::Append { writer: 1, seq: 1 },
        ] {
            assert!(dir.write(p(name), &Write::with(how)).is_err(), "{name}");
        }
    }
    assert_eq!(outside.names(), ["secret"]);
    assert_eq!(outside.bytes("secret"), b"secret");
}

#[test] //= publishing#a-partial
fn publish_without_room_keeps_the_partial() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(2 * MIB, 1);
    let sink = dir.write(p("file"), &Write::of_size(2 << 20)).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    // Beyond the limit of any file system.
    let refused = sink.put(Block::at(1 << 62, &bytes[MIB..]));
    assert!(refused.is_err());
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
    drop(sink);
    let sink = dir.write(p("file"), &Write::of_size(2 << 20)).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
    put(&*sink, LEAF_BYTES, &bytes[MIB..]);
    sink.finish(&Expected::default()).unwrap();
    assert_eq!(place.bytes("file"), bytes);
}

#[test] //= publishing#a-partial
fn publish_drops_unconfirmed_leaves_after_mismatch() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(3 * MIB, 1);
    let write = Write::of_size(3 << 20);
    let mut tree = Leaves::new();
    tree.add(Piece::of(Block::at(LEAF_BYTES, &bytes[MIB..2 * MIB])));
    let sink = dir.write(p("file"), &write).unwrap();
    for (i, block) in bytes.chunks(MIB).enumerate() {
        put(&*sink, (i * MIB) as u64, block);
    }
    sink.said(1, tree.chain(1, 3 << 20).unwrap()).unwrap();
    let digest = Some(Digest::of(Algorithm::Blake3, b"else"));
    let refused = sink.finish(&Expected {
        digest,
        ..Expected::default()
    });
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    let kept = dir.partial(p("file"), None).unwrap().unwrap();
    assert_eq!(kept.done, Extents::from(LEAF_BYTES..2 * LEAF_BYTES));
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, 2 * LEAF_BYTES, &bytes[2 * MIB..]);
    let digest = Some(Digest::of(Algorithm::Blake3, &bytes));
    let finished = sink
        .finish(&Expected {
            digest,
            ..Expected::default()
        })
        .unwrap();
    assert_eq!(finished.verified, Verified::By(Algorithm::Blake3));
}

#[test] //= publishing#a-partial
fn publish_is_corrupt_until_leaf_is_repaired() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(MIB + 5, 1);
    let write = Write::of_size(bytes.len() as u64);
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, LEAF_BYTES, &bytes[MIB..]);
    sink.said(1, Chain([7; 32])).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
    let refused = sink.finish(&Expected::default());
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_eq!(
        dir.partial(p("file"), None).unwrap().unwrap().done,
        Extents::from(0..LEAF_BYTES)
    );
}

#[test] //= publishing#a-partial
fn publish_reads_only_partial_leaves_again() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(4 * MIB, 1);
    let write = Write::of_size(4 << 20);
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, LEAF_BYTES, &bytes[MIB..MIB + 1000]);
    drop(sink);
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES + 1000));
    put(&*sink, LEAF_BYTES + 1000, &bytes[MIB + 1000..2 * MIB]);
    assert_eq!(
        sink.newly_whole(9).first().map(|(leaf, _)| *leaf),
        Some(1),
        "told as soon as it is whole"
    );
    put(&*sink, 2 * LEAF_BYTES, &bytes[2 * MIB..3 * MIB]);
    put(&*sink, 3 * LEAF_BYTES, &bytes[3 * MIB..]);
    let finished = sink.finish(&Expected::default()).unwrap();
    assert_eq!(finished.reread_bytes, 1000);
    assert_eq!(finished.digests, [Digest::of(Algorithm::Blake3, &bytes)]);
}

#[test] //= publishing#a-partial
fn publish_keeps_a_dropped_small_upload() {
    let place = Scratch::new();
    let dir = place.dir();
    let write = Write::of_size(10_000);
    let bytes = noise(10_000, 1);
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..4000]);
    assert_eq!(
        place.names().len(),
        1,
        "a small file is not worth a record while it is written"
    );
    drop(sink);
    assert_eq!(
        dir.partial(p("file"), None).unwrap().unwrap().prefix(),
        4000
    );
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 4000, &bytes[4000..]);
    sink.finish(&Expected::default()).unwrap();
    assert_eq!(place.bytes("file"), bytes);
    assert_eq!(place.names(), ["file"]);
}

#[test] //= publishing#a-partial
fn publish_leaves_no_trace_without_bytes() {
    let place = Scratch::new();
    drop(
        place
            .dir()
            .write(p("file"), &Write::of_size(5 << 20))
            .unwrap(),
    );
    assert_eq!(place.names(), Vec::<String>::new());
}

#[test] //= publishing#a-partial
fn publish_trusts_synced_bytes_after_power_cut() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(5 * MIB, 1);
    let write = Write::of_size(5 << 20);
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, LEAF_BYTES, &bytes[MIB..MIB + 500]);
    assert_eq!(sink.commit().unwrap(), Extents::from(0..LEAF_BYTES + 500));
    put(&*sink, 2 * LEAF_BYTES, &bytes[2 * MIB..3 * MIB]);
    put(&*sink, 3 * LEAF_BYTES, &bytes[3 * MIB..4 * MIB]);
    put(&*sink, 4 * LEAF_BYTES, &bytes[4 * MIB..4 * MIB + 500]);
    drop(sink);
    reboot(&place);
    // Leaf 3 never reached the disk.
    let part = place
        .names()
        .into_iter()
        .find(|n| n.ends_with(".part"))
        .unwrap();
    let part = fs::OpenOptions::new()
        .write(true)
        .open(place.0.join(part))
        .unwrap();
    part.write_all_at(&[0; 4096], 3 * LEAF_BYTES + 4096)
        .unwrap();
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done().to_string(), "0-1049076,2097152-3145728");
    for piece in sink.done().missing(0..5 << 20).iter() {
        put(
            &*sink,
            piece.start,
            &bytes[piece.start as usize..piece.end as usize],
        );
    }
    let finished = sink.finish(&Expected::default()).unwrap();
    assert_eq!(place.bytes("file"), bytes);
    assert_eq!(finished.digests, [Digest::of(Algorithm::Blake3, &bytes)]);
    assert_eq!(
        finished.reread_bytes,
        2 * LEAF_BYTES + 500 + 500,
        "two whole leaves to be believed, two parts"
    );
}

#[test] //= publishing#a-partial
fn publish_forgets_bytes_lost_in_power_cut() {
    let place = Scratch::new();
    let dir = place.dir();
    let write = Write::of_size(3 << 20);
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &noise(MIB, 1));
    put(&*sink, LEAF_BYTES, &noise(500, 2));
    drop(sink);
    reboot(&place);
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
    // Speaks of all epochs so far: not of slots that were not believed.
    sink.commit().unwrap();
    drop(sink);
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
}

#[test] //= publishing#a-partial
fn publish_resumed_is_not_vouched_for() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(2 * MIB, 1);
    let write = Write::of_size(2 << 20);
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    drop(sink);
    let part = left_file(&place, ".part");
    let mtime = part.metadata().unwrap().modified().unwrap();
    flip(&part, 1000);
    part.set_modified(mtime).unwrap();
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
    put(&*sink, LEAF_BYTES, &bytes[MIB..]);
    let came = Digest::of(Algorithm::Blake3, &bytes);
    let whole = Expected {
        digest: Some(came.clone()),
        ..Expected::default()
    };
    let finished = sink.finish(&whole).unwrap();
    assert_eq!(finished.digests.first(), Some(&came), "of what came");
    let there = Digest::of(Algorithm::Blake3, &place.bytes("file"));
    assert_ne!(there, came);
    assert_eq!(
        dir.digest(p("file"), Algorithm::Blake3, None).unwrap(),
        there
    );
}

#[test] //= publishing#a-partial
fn publish_reads_changed_partial_again() {
    let place = Scratch::new();
    let dir = place.dir();
    let bytes = noise(3 * MIB, 1);
    let write = Write::of_size(3 << 20);
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, LEAF_BYTES, &bytes[MIB..2 * MIB]);
    put(&*sink, 2 * LEAF_BYTES, &bytes[2 * MIB..2 * MIB + 500]);
    drop(sink);
    let part = left_file(&place, ".part");
    let record_is_older_by = |millis: u64| {
        let mtime = part.metadata().unwrap().modified().unwrap();
        left_file(&place, ".done")
            .set_modified(mtime - Duration::from_millis(millis))
            .unwrap();
    };
    record_is_older_by(50);
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..2 * LEAF_BYTES + 500));
    drop(sink);
    flip(&part, LEAF_BYTES + 1000);
    record_is_older_by(51);
    let told = dir.partial(p("file"), None).unwrap().unwrap().done;
    assert_eq!(told, Extents::from(0..2 * LEAF_BYTES), "what can be hashed");
    drop(dir.write(p("file"), &write).unwrap());
    // A wrong leaf is dropped for good, and no byte is read twice.
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
    record_is_older_by(51);
    drop(sink);
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES));
    put(&*sink, LEAF_BYTES, &bytes[MIB..2 * MIB]);
    put(&*sink, 2 * LEAF_BYTES, &bytes[2 * MIB..]);
    let finished = sink.finish(&Expected::default()).unwrap();
    assert_eq!(finished.reread_bytes, LEAF_BYTES);
    assert_eq!(finished.digests, [Digest::of(Algorithm::Blake3, &bytes)]);
    assert!(place.bytes("file") == bytes);
}

/// Opens the file of an upload whose hidden name ends with `end`.
pub(super) fn left_file(place: &Scratch, end: &str) -> fs::File {
    let name = place.names().into_iter().find(|n| n.ends_with(end));
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.0.join(name.unwrap()))
        .unwrap()
}

/// Flips a bit.
fn flip(file: &fs::File, at: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// Makes all slots those of another boot.
pub(super) fn reboot(place: &Scratch) {
    let name = place
        .names()
        .into_iter()
        .find(|n| n.ends_with(".done"))
        .unwrap();
    let open = || {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(place.0.join(&name))
            .unwrap()
    };
    let found = FoundRecord::read(&open()).unwrap().unwrap();
    let record = PartialRecord::go_on(open(), &found);
    for (leaf, slot) in &found.slots {
        record
            .write(
                *leaf,
                &LeafSlot {
                    boot: [0xbb; 16],
                    ..slot.clone()
                },
            )
            .unwrap();
    }
}

#[test] //= publishing#a-partial
fn publish_keeps_records_of_partials_apart() {
    let place = Scratch::new();
    let dir = place.dir();
    let write = Write::of_size(2 << 20);
    let sink = dir.write(p("file"), &write).unwrap();
    put(&*sink, 0, &noise(MIB, 1));
    drop(sink);
    // The partial is gone and another one there, of the same length.
    let part = place
        .names()
        .into_iter()
        .find(|n| n.ends_with(".part"))
        .unwrap();
    fs::write(place.0.join("other"), noise(MIB, 2)).unwrap();
    fs::rename(place.0.join("other"), place.0.join(&part)).unwrap();
    assert!(dir.partial(p("file"), None).unwrap().is_none());
    let sink = dir.write(p("file"), &write).unwrap();
    assert_eq!(sink.done(), Extents::new());
}

#[test] //= publishing#a-partial
fn publish_sweeps_what_nobody_goes_on_with() {
    let place = Scratch::new();
    let dir = place.dir();
    fs::create_dir_all(place.0.join("a/b")).unwrap();
    let write = Write::of_size(2 << 20);
    let left = |path: &str| {
        let sink = dir.write(p(path), &write).unwrap();
        put(&*sink, 0, &noise(MIB, 1));
        sink
    };
    drop(left("a/b/old"));
    let in_use = left("a/used");
    assert_eq!(
        dir.sweep(Duration::from_secs(3600)).unwrap(),
        0,
        "all are young"
    );
    assert_eq!(dir.sweep(Duration::ZERO).unwrap(), 1);
    assert!(dir.partial(p("a/b/old"), None).unwrap().is_none());
    assert!(dir.partial(p("a/used"), None).unwrap().is_some());
    drop(in_use);
    // A directory with nothing but a partial is empty, for all who cannot see it.
    dir.remove(p("a/b"), RemovalKind::Directory).unwrap();
    dir.remove(p("a"), RemovalKind::Directory).unwrap();
    assert_eq!(place.names(), Vec::<String>::new());
}
