//! A file appears when it is complete and is what was announced. It replaces no file that was to stay. An interrupted
//! upload resumes.

use super::{MIB, begin, is_missing, names, noise, p, put, read, set_mtime, stat, whole, write};
use crate::{Capabilities, Checks, Error, Expected, Origin, RemovalKind, Store, Write, WriteMode};
use godwit_core::{
    Algorithm, Block, Digest, Extents, LEAF_BYTES, Leaves, Piece, Strength, Version,
};
use std::{
    path::PathBuf,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub(super) fn appears_only_when_whole(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic) {
        return;
    }
    let bytes = noise(2 * MIB, 7);
    let sink = begin(store, "file", &bytes, &Write::default());
    put(&*sink, 0, &bytes[..MIB]);
    assert!(is_missing(store.stat(p("file"))), "half a file is visible");
    assert_eq!(
        names(store, ""),
        Vec::<PathBuf>::new(),
        "a partial is listed"
    );
    put(&*sink, LEAF_BYTES, &bytes[MIB..]);
    assert!(is_missing(store.stat(p("file"))), "it was not finished yet");
    sink.finish(&whole(&bytes)).expect("finish");
    assert_eq!(names(store, ""), [p("file")]);
}

//= publishing#a-partial
pub(super) fn not_whole_not_finished(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic) {
        return;
    }
    let bytes = noise(2 * MIB, 8);
    let sink = begin(store, "file", &bytes, &Write::default());
    put(&*sink, 0, &bytes[..MIB]);
    let refused = sink.finish(&whole(&bytes));
    assert!(refused.is_err(), "half of it was published");
    assert!(is_missing(store.stat(p("file"))));
    let sink = begin(
        store,
        "file",
        &bytes[..100],
        &Write {
            resume: false,
            ..Write::default()
        },
    );
    put(&*sink, 0, &bytes[..200]);
    let refused = sink.finish(&whole(&bytes[..100]));
    assert!(refused.is_err(), "more than all of it was published");
    assert!(is_missing(store.stat(p("file"))));
}

pub(super) fn wrong_digest(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic) {
        return;
    }
    let bytes = noise(2 * MIB, 9);
    for by in can.digests.iter().copied() {
        let sink = begin(
            store,
            "file",
            &bytes,
            &Write {
                resume: false,
                ..Write::default()
            },
        );
        put(&*sink, 0, &bytes[..MIB]);
        put(&*sink, LEAF_BYTES, &bytes[MIB..]);
        let wrong = Expected {
            digest: Some(Digest::of(by, b"else")),
            ..whole(&bytes)
        };
        let refused = sink.finish(&wrong);
        assert!(
            matches!(refused, Err(Error::Corrupt { .. })),
            "{by}: {refused:?}"
        );
        assert!(
            is_missing(store.stat(p("file"))),
            "{by}: published all the same"
        );
        assert_eq!(names(store, ""), Vec::<PathBuf>::new());
        let sink = begin(
            store,
            "right",
            &bytes,
            &Write {
                resume: false,
                ..Write::default()
            },
        );
        put(&*sink, 0, &bytes[..MIB]);
        put(&*sink, LEAF_BYTES, &bytes[MIB..]);
        let right = Expected {
            digest: Some(Digest::of(by, &bytes)),
            ..whole(&bytes)
        };
        let finished = sink.finish(&right).expect("the digest is right");
        assert_eq!(finished.verified, crate::Verified::By(by));
        store.remove(p("right"), RemovalKind::File).expect("remove");
    }
}

pub(super) fn digests_are_told(store: &dyn Store, can: &Capabilities) {
    if !can.write {
        return;
    }
    let bytes = noise(MIB + 5, 10);
    let checks = Checks {
        blake3: true,
        adler32: true,
    };
    let sink = begin(
        store,
        "file",
        &bytes,
        &Write {
            checks,
            ..Write::default()
        },
    );
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, LEAF_BYTES, &bytes[MIB..]);
    let finished = sink.finish(&whole(&bytes)).expect("finish");
    for digest in finished.digests {
        assert_eq!(digest, Digest::of(digest.algorithm(), &bytes));
    }
}

pub(super) fn wrong_leaf(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic && can.any_order) {
        return;
    }
    let good = noise(2 * MIB, 11);
    let mut bad = good.clone();
    bad[MIB + 5] ^= 1;
    let mut tree = Leaves::new();
    for (i, leaf) in good.chunks(MIB).enumerate() {
        tree.add(Piece::of(Block::at((i * MIB) as u64, leaf)));
    }
    let sink = begin(store, "file", &good, &Write::default());
    put(&*sink, 0, &bad[..MIB]);
    put(&*sink, LEAF_BYTES, &bad[MIB..]);
    for leaf in 0..2 {
        let chain = tree.chain(leaf, good.len() as u64).expect("all is known");
        sink.said(leaf, chain).expect("said");
    }
    let missing = sink.done().missing(0..good.len() as u64);
    if missing.is_empty() {
        return; // This sink does not compare leaves; the digest at the end decides.
    }
    assert_eq!(missing, Extents::from(LEAF_BYTES..2 * LEAF_BYTES));
    put(&*sink, LEAF_BYTES, &good[MIB..]);
    sink.finish(&whole(&good)).expect("it was repaired");
    assert_eq!(read(store, "file"), good);
}

pub(super) fn new_never_replaces(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic) {
        return;
    }
    write(store, "file", b"first");
    let refused = store.write(
        p("file"),
        &Write {
            how: WriteMode::New,
            size: Some(6),
            ..Write::default()
        },
    );
    let refused = refused.and_then(|sink| {
        sink.put(Block::at(0, b"second"))?;
        sink.finish(&whole(b"second"))
    });
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    assert_eq!(read(store, "file"), b"first");
}

//= publishing#the-file
pub(super) fn new_race(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic) {
        return;
    }
    let texts: Vec<Vec<u8>> = (0..4).map(|i| noise(1000, 100 + i)).collect();
    let sinks: Vec<_> = texts
        .iter()
        .map(|text| {
            let sink = begin(store, "file", text, &Write::with(WriteMode::New));
            put(&*sink, 0, text);
            (sink, text)
        })
        .collect();
    let results: Vec<bool> = thread::scope(|scope| {
        let running: Vec<_> = sinks
            .into_iter()
            .map(|(sink, text)| scope.spawn(move || sink.finish(&whole(text)).is_ok()))
            .collect();
        running
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .collect()
    });
    assert_eq!(results.iter().filter(|&&won| won).count(), 1, "{results:?}");
    let winner = results.iter().position(|&won| won).expect("just counted");
    assert_eq!(read(store, "file"), texts[winner]);
}

//= publishing#the-file
pub(super) fn version_guards(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic && can.set_mtime) {
        return;
    }
    write(store, "file", b"first");
    set_mtime(store, "file", 1_000_000_000);
    let seen = stat(store, "file").version(Duration::from_secs(1_500_000_000));
    let guarded = |text: &[u8], version: &Version| {
        let how = WriteMode::Replace(Some(version.clone()));
        let sink = store.write(
            p("file"),
            &Write {
                how,
                size: Some(text.len() as u64),
                resume: false,
                ..Write::default()
            },
        )?;
        sink.put(Block::at(0, text))?;
        sink.finish(&whole(text))
    };
    guarded(b"second", &seen).expect("the version is current");
    assert_eq!(read(store, "file"), b"second");
    let refused = guarded(b"third!", &seen);
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
    assert_eq!(read(store, "file"), b"second");
    guarded(
        b"third!",
        &Version::Strong(Digest::of(Algorithm::Blake3, b"second")),
    )
    .expect("it is that");
    let refused = guarded(
        b"fourth",
        &Version::Strong(Digest::of(Algorithm::Blake3, b"second")),
    );
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
    // Changed between the beginning and the end.
    let seen = stat(store, "file").version(Duration::from_secs(4_000_000_000));
    let how = WriteMode::Replace(Some(seen));
    let sink = store
        .write(p("file"), &Write::with(how))
        .expect("it still is");
    put(&*sink, 0, b"fifth");
    write(store, "file", b"another write");
    let refused = sink.finish(&whole(b"fifth"));
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
    assert_eq!(read(store, "file"), b"another write");
    // An empty file can replace another one.
    let seen = Version::Strong(Digest::of(Algorithm::Blake3, b"another write"));
    guarded(b"", &seen).expect("it is that");
    assert_eq!(read(store, "file"), b"");
    write(store, "file", b"more");
    let refused = guarded(b"", &seen);
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
    assert_eq!(read(store, "file"), b"more");
}

pub(super) fn last_wins_whole(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic) {
        return;
    }
    let (one, two) = (noise(2 * MIB, 12), noise(2 * MIB, 13));
    let first = begin(store, "file", &one, &Write::default());
    let second = begin(store, "file", &two, &Write::default());
    for at in [0, MIB] {
        put(&*first, at as u64, &one[at..at + MIB]);
        put(&*second, at as u64, &two[at..at + MIB]);
    }
    second.finish(&whole(&two)).expect("finish");
    assert_eq!(read(store, "file"), two);
    first.finish(&whole(&one)).expect("finish");
    assert_eq!(read(store, "file"), one);
    assert_eq!(names(store, ""), [p("file")]);
}

pub(super) fn goes_on(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.resume) {
        return;
    }
    let bytes = noise(4 * MIB + 9, 14);
    let origin = Origin {
        name: "somewhere".into(),
        version: Version::None,
    };
    let how = Write {
        origin: Some(&origin),
        ..Write::default()
    };
    let sink = begin(store, "file", &bytes, &how);
    put(&*sink, 0, &bytes[..MIB]);
    put(&*sink, LEAF_BYTES, &bytes[MIB..2 * MIB]);
    let landed = sink.done();
    drop(sink);
    let sink = begin(store, "file", &bytes, &how);
    let done = sink.done();
    assert!(done.prefix() >= landed.prefix(), "{done} of {landed}");
    for piece in done.missing(0..bytes.len() as u64).iter() {
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
    // After the publication there is no partial to resume.
    let sink = begin(store, "file", &bytes, &how);
    assert_eq!(sink.done(), Extents::new());
    sink.abandon().expect("abandon");
}

pub(super) fn another_origin(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.resume) {
        return;
    }
    let (old, new) = (noise(3 * MIB, 15), noise(3 * MIB, 16));
    let at = |seconds| Version::Weak {
        size: 3 * LEAF_BYTES,
        mtime: Duration::from_secs(seconds),
        seen_at: Duration::from_secs(seconds + 100),
        touched: None,
    };
    let before = Origin {
        name: "somewhere".into(),
        version: at(1000),
    };
    let sink = begin(
        store,
        "file",
        &old,
        &Write {
            origin: Some(&before),
            ..Write::default()
        },
    );
    put(&*sink, 0, &old[..MIB]);
    drop(sink);
    let after = Origin {
        name: "somewhere".into(),
        version: at(1001),
    };
    let sink = begin(
        store,
        "file",
        &new,
        &Write {
            origin: Some(&after),
            ..Write::default()
        },
    );
    for piece in sink.done().missing(0..new.len() as u64).iter() {
        put(
            &*sink,
            piece.start,
            &new[piece.start as usize..piece.end as usize],
        );
    }
    sink.finish(&Expected {
        digest: Some(Digest::of(Algorithm::Blake3, &new)),
        ..whole(&new)
    })
    .expect("finish");
    assert_eq!(read(store, "file"), new, "a mix of two versions");
}

pub(super) fn abandoned(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic) {
        return;
    }
    let bytes = noise(2 * MIB, 17);
    let sink = begin(store, "file", &bytes, &Write::default());
    put(&*sink, 0, &bytes[..MIB]);
    sink.abandon().expect("abandon");
    assert!(is_missing(store.stat(p("file"))));
    let sink = begin(store, "file", &bytes, &Write::default());
    assert_eq!(sink.done(), Extents::new());
    sink.abandon().expect("abandon");
}

/// A writer may hold a version for long, from the answer to a publication or from a `stat`.
//= publishing#the-file
pub(super) fn versions_kept(store: &dyn Store, can: &Capabilities) {
    if !(can.write && can.atomic) {
        return;
    }
    let now = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        stat(store, "file").version(now.unwrap_or_default())
    };
    let over = |version: &Version, bytes: &[u8]| {
        let how = WriteMode::Replace(Some(version.clone()));
        let sink = store.write(
            p("file"),
            &Write {
                how,
                size: Some(bytes.len() as u64),
                resume: false,
                ..Write::default()
            },
        )?;
        sink.put(Block { offset: 0, bytes })?;
        sink.finish(&whole(bytes))
    };
    let mut kept = write(store, "file", b"the first").version;
    for text in [&b"the second"[..], b"the third one"] {
        assert_ne!(kept, Version::None);
        over(&now(), text).expect("it was only looked at");
        // The file is another one now, at least of another length.
        let refused = over(&kept, b"over it").expect_err("it was changed");
        assert!(matches!(refused, Error::Changed { .. }), "{refused}");
        assert_eq!(read(store, "file"), text);
        // A look has no digest to compare with one.
        let compared = kept.compare(&now());
        assert!(matches!(compared, Strength::Differs | Strength::Unknown));
        let base = over(&now(), &[text, b"!"].concat()).expect("as it is now");
        kept = base.version;
        kept = over(&kept, &[text, b"!!"].concat())
            .expect("the version is current")
            .version;
        assert_ne!(kept.compare(&now()), Strength::Differs);
    }
    store.remove(p("file"), RemovalKind::File).expect("remove");
    let refused = over(&kept, b"over nothing").expect_err("it is gone");
    assert!(matches!(refused, Error::Changed { .. }), "{refused}");
    assert!(is_missing(store.stat(p("file"))));
}
