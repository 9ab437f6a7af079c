//! What every store promises, as a suite: run it on whatever claims to be one.
//!
//! A check is a function on an empty store. What a store says it cannot do
//! ([`Can`]) it must refuse, with an error and without a trace.

use crate::{
    Can, Checks, Entry, Error, Finished, Given, How, Kind, Origin, Read, Result, Set, Sink, Small,
    Stat, Store, Take, What, Whole, Write,
};
use godwit_core::{Algorithm, Block, Digest, Extents, LEAF_BYTES, Leaves, Piece, Version};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::Duration,
};

/// Runs every check, each on a new and empty store.
///
/// # Panics
/// If a promise is not kept.
pub fn all(make: &dyn Fn() -> Box<dyn Store>) {
    for (name, check) in CHECKS {
        let store = make();
        let can = store.can().expect("a store says what it can");
        eprintln!("check {name}");
        check(&*store, &can);
    }
}

/// Every check, with its name.
pub const CHECKS: &[(&str, Check)] = &[
    ("a file comes back as it was written", a_file_comes_back),
    ("an empty file is a file", an_empty_file),
    ("parts are read, and nothing beyond the end", parts_are_read),
    ("many threads read every byte once", many_threads_read),
    ("blocks come in any order", blocks_in_any_order),
    ("many threads write", many_threads_write),
    ("a file appears only when whole", appears_only_when_whole),
    ("what is not whole is not finished", not_whole_not_finished),
    ("a wrong digest publishes nothing", wrong_digest),
    ("the digests of what was written are told", digests_are_told),
    ("a leaf that differs is sent again", wrong_leaf),
    ("new never replaces", new_never_replaces),
    ("of two that are new one wins", new_race),
    ("a version guards what is replaced", version_guards),
    ("the last to finish wins whole", last_wins_whole),
    ("an interrupted write goes on", goes_on),
    ("another origin begins anew", another_origin),
    ("abandoned is gone", abandoned),
    ("a file is changed in place", in_place),
    ("bytes far out do not fill the room between", far_out),
    ("holes read as zeros", holes),
    ("appending lengthens", appending),
    ("hard names", hard_names),
    ("names do not lead outside", outside),
    ("a directory lists what is in it", listing),
    ("an error of the caller ends the listing", listing_ends),
    ("a tree is walked from above", walking),
    ("what is missing is called missing", missing),
    ("directories are made and removed", directories),
    ("renaming replaces", renaming),
    ("attributes are set", attributes),
    ("links are told as links", links),
    ("digests of files and ranges", digests),
    ("room is told", room),
    ("small files come in order, each once", small_files),
    ("what a store cannot do it refuses", refusals),
];

/// One check.
pub type Check = fn(&dyn Store, &Can);

fn a_file_comes_back(store: &dyn Store, can: &Can) {
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
        assert_eq!((stat.kind, stat.size), (Kind::File, len as u64));
    }
}

fn an_empty_file(store: &dyn Store, can: &Can) {
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

fn parts_are_read(store: &dyn Store, can: &Can) {
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

fn many_threads_read(store: &dyn Store, can: &Can) {
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

fn blocks_in_any_order(store: &dyn Store, can: &Can) {
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

fn many_threads_write(store: &dyn Store, can: &Can) {
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
                    let next = left.lock().expect("no panic").take_aligned(LEAF_BYTES);
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

fn appears_only_when_whole(store: &dyn Store, can: &Can) {
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

fn not_whole_not_finished(store: &dyn Store, can: &Can) {
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

fn wrong_digest(store: &dyn Store, can: &Can) {
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
        let wrong = Whole {
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
        let right = Whole {
            digest: Some(Digest::of(by, &bytes)),
            ..whole(&bytes)
        };
        let finished = sink.finish(&right).expect("the digest is right");
        assert_eq!(finished.verified, crate::Verified::By(by));
        store.remove(p("right"), What::File).expect("remove");
    }
}

fn digests_are_told(store: &dyn Store, can: &Can) {
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

fn wrong_leaf(store: &dyn Store, can: &Can) {
    if !(can.write && can.atomic && can.any_order) {
        return;
    }
    let good = noise(2 * MIB, 11);
    let mut bad = good.clone();
    bad[MIB + 5] ^= 1;
    let mut tree = Leaves::new();
    for (i, leaf) in good.chunks(MIB).enumerate() {
        tree.add(Piece::of(Block {
            offset: (i * MIB) as u64,
            bytes: leaf,
        }));
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

fn new_never_replaces(store: &dyn Store, can: &Can) {
    if !(can.write && can.atomic) {
        return;
    }
    write(store, "file", b"first");
    let refused = store.write(
        p("file"),
        &Write {
            how: How::New,
            size: Some(6),
            ..Write::default()
        },
    );
    let refused = refused.and_then(|sink| {
        sink.put(Block {
            offset: 0,
            bytes: b"second",
        })?;
        sink.finish(&whole(b"second"))
    });
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    assert_eq!(read(store, "file"), b"first");
}

fn new_race(store: &dyn Store, can: &Can) {
    if !(can.write && can.atomic) {
        return;
    }
    let texts: Vec<Vec<u8>> = (0..4).map(|i| noise(1000, 100 + i)).collect();
    let sinks: Vec<_> = texts
        .iter()
        .map(|text| {
            let sink = begin(
                store,
                "file",
                text,
                &Write {
                    how: How::New,
                    ..Write::default()
                },
            );
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

fn version_guards(store: &dyn Store, can: &Can) {
    if !(can.write && can.atomic && can.set_mtime) {
        return;
    }
    write(store, "file", b"first");
    set_mtime(store, "file", 1_000_000_000);
    let seen = stat(store, "file").version(Duration::from_secs(1_500_000_000));
    let guarded = |text: &[u8], version: &Version| {
        let how = How::Replace(Some(version.clone()));
        let sink = store.write(
            p("file"),
            &Write {
                how,
                size: Some(text.len() as u64),
                resume: false,
                ..Write::default()
            },
        )?;
        sink.put(Block {
            offset: 0,
            bytes: text,
        })?;
        sink.finish(&whole(text))
    };
    guarded(b"second", &seen).expect("nobody changed it");
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
    let how = How::Replace(Some(seen));
    let sink = store
        .write(
            p("file"),
            &Write {
                how,
                ..Write::default()
            },
        )
        .expect("it still is");
    put(&*sink, 0, b"fifth");
    write(store, "file", b"somebody else");
    let refused = sink.finish(&whole(b"fifth"));
    assert!(matches!(refused, Err(Error::Changed { .. })), "{refused:?}");
    assert_eq!(read(store, "file"), b"somebody else");
}

fn last_wins_whole(store: &dyn Store, can: &Can) {
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

fn goes_on(store: &dyn Store, can: &Can) {
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
    // Once published there is nothing left to go on with.
    let sink = begin(store, "file", &bytes, &how);
    assert_eq!(sink.done(), Extents::new());
    sink.abandon().expect("abandon");
}

fn another_origin(store: &dyn Store, can: &Can) {
    if !(can.write && can.resume) {
        return;
    }
    let (old, new) = (noise(3 * MIB, 15), noise(3 * MIB, 16));
    let at = |seconds| Version::Weak {
        size: 3 * LEAF_BYTES,
        mtime: Duration::from_secs(seconds),
        seen_at: Duration::from_secs(seconds + 100),
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
    sink.finish(&Whole {
        digest: Some(Digest::of(Algorithm::Blake3, &new)),
        ..whole(&new)
    })
    .expect("finish");
    assert_eq!(read(store, "file"), new, "a mix of two versions");
}

fn abandoned(store: &dyn Store, can: &Can) {
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

fn in_place(store: &dyn Store, can: &Can) {
    if !(can.write && can.in_place) {
        return;
    }
    let mut bytes = noise(2 * MIB, 18);
    write(store, "file", &bytes);
    let how = Write {
        how: How::InPlace,
        ..Write::default()
    };
    let sink = store.write(p("file"), &how).expect("write");
    let patch = noise(1000, 19);
    put(&*sink, LEAF_BYTES - 500, &patch);
    sink.finish(&Whole::default()).expect("finish");
    bytes[MIB - 500..MIB + 500].copy_from_slice(&patch);
    assert_eq!(read(store, "file"), bytes);
    // A file that was not there begins with the bytes that were put.
    let sink = store.write(p("new"), &how).expect("write");
    put(&*sink, 3, b"abc");
    sink.finish(&Whole::default()).expect("finish");
    assert_eq!(read(store, "new"), b"\0\0\0abc");
}

fn far_out(store: &dyn Store, can: &Can) {
    if !(can.write && can.in_place && can.ranges) {
        return;
    }
    let sink = store
        .write(
            p("far"),
            &Write {
                how: How::InPlace,
                ..Write::default()
            },
        )
        .expect("write");
    put(&*sink, FAR, b"end");
    sink.finish(&Whole::default()).expect("finish");
    assert_eq!(stat(store, "far").size, FAR + 3);
    let got = Got::default();
    store
        .read(p("far"), &Extents::from(FAR - 2..u64::MAX), 2, &got)
        .expect("read");
    assert_eq!(got.extents(), Extents::from(FAR - 2..FAR + 3));
    let blocks = got.0.into_inner().expect("no panic");
    let bytes: Vec<u8> = blocks.into_iter().flat_map(|(_, b)| b).collect();
    assert_eq!(bytes, b"\0\0end");
}

fn holes(store: &dyn Store, can: &Can) {
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

fn appending(store: &dyn Store, can: &Can) {
    let how = |seq| Write {
        how: How::Append { writer: 1, seq },
        ..Write::default()
    };
    if !can.append {
        return;
    }
    write(store, "log", b"one ");
    for (seq, text) in [(1, "two "), (2, "three")] {
        let sink = store.write(p("log"), &how(seq)).expect("write");
        put(&*sink, 0, text.as_bytes());
        sink.finish(&Whole::default()).expect("finish");
    }
    assert_eq!(read(store, "log"), b"one two three");
}

fn hard_names(store: &dyn Store, can: &Can) {
    if !can.write {
        return;
    }
    let mut written = Vec::new();
    for name in hard() {
        let path = PathBuf::from(name.clone());
        let text = format!("{name:?}").into_bytes();
        match write_at(store, &path, &text) {
            Ok(_) => written.push((path, text)),
            // The only excuse, and then there is nothing.
            Err(Error::BadName { .. }) => {}
            Err(error) => panic!("{name:?}: {error}"),
        }
    }
    let mut listed = names(store, "");
    listed.sort();
    written.sort();
    let expected: Vec<PathBuf> = written.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(listed, expected);
    assert!(
        written.len() * 2 > hard().len(),
        "few names are possible: {expected:?}"
    );
    for (path, text) in &written {
        assert_eq!(&read_at(store, path), text, "{path:?}");
        store.remove(path, What::File).expect("remove");
    }
    assert_eq!(names(store, ""), Vec::<PathBuf>::new());
    let long = "x".repeat(256);
    assert!(
        write_at(store, p(&long), b"").is_err(),
        "256 bytes are no name"
    );
}

fn hard() -> Vec<OsString> {
    let mut names: Vec<OsString> = [
        "a b",
        " lead",
        "trail ",
        "it's",
        "\"quoted\"",
        "%41",
        "100%",
        "a;b=c",
        "a,b",
        "#x",
        "?x",
        "*",
        "[x]",
        "~",
        "-rf",
        "back\\slash",
        "new\nline",
        "tab\t",
        "cr\rx",
        "gr\u{fc}n",
        "\u{65e5}\u{672c}",
        "...",
        ".hidden",
        ".godwit",
        "a=b; c",
    ]
    .map(OsString::from)
    .to_vec();
    names.push("y".repeat(255).into());
    names.push(OsString::from_vec(b"latin\xe9".to_vec()));
    names.push(OsString::from_vec(b"tel\xffnet".to_vec()));
    names
}

fn outside(store: &dyn Store, can: &Can) {
    for path in ["..", "../x", "a/../../x", "../../../../../../etc/passwd"] {
        assert!(
            store
                .read(p(path), &Extents::from(0..1), 1, &Got::default())
                .is_err(),
            "{path}"
        );
        if can.write {
            assert!(write_at(store, p(path), b"x").is_err(), "{path}");
        }
    }
}

fn listing(store: &dyn Store, can: &Can) {
    if !can.write {
        return;
    }
    store.mkdir(p("inner")).expect("mkdir");
    write(store, "file", b"12345");
    write(store, "inner/deep", b"1");
    let mut entries = BTreeMap::new();
    list(store, "", |entry| {
        let Entry { path, stat } = entry;
        assert!(
            entries.insert(path.clone(), stat).is_none(),
            "{path:?} twice"
        );
    });
    assert_eq!(entries.keys().collect::<Vec<_>>(), [p("file"), p("inner")]);
    assert_eq!(
        (entries[p("file")].kind, entries[p("file")].size),
        (Kind::File, 5)
    );
    assert_eq!(entries[p("inner")].kind, Kind::Directory);
    assert_eq!(names(store, "inner"), [p("deep")]);
    let file = store.list(p("file"), &mut |_| Ok(()));
    assert!(file.is_err(), "a file is listed");
    assert!(is_missing(store.list(p("nowhere"), &mut |_| Ok(()))));
    // The caller may use the store while it lists.
    list(store, "", |entry| {
        store.stat(&entry.path).expect("stat");
    });
}

fn listing_ends(store: &dyn Store, can: &Can) {
    if !can.write {
        return;
    }
    for i in 0..10 {
        write(store, &format!("file{i}"), b"");
    }
    let mut seen = 0;
    let ended = store.list(p(""), &mut |_| {
        seen += 1;
        if seen == 3 {
            Err(Error::Canceled)
        } else {
            Ok(())
        }
    });
    assert!(matches!(ended, Err(Error::Canceled)), "{ended:?}");
    assert_eq!(seen, 3);
    assert_eq!(
        names(store, "").len(),
        10,
        "and the store is as good as before"
    );
}

fn walking(store: &dyn Store, can: &Can) {
    if !can.write {
        return;
    }
    for path in ["top", "top/a", "top/a/b", "top/empty"] {
        store.mkdir(p(path)).expect("mkdir");
    }
    for path in ["top/1", "top/a/2", "top/a/b/3"] {
        write(store, path, b"x");
    }
    let mut seen: Vec<PathBuf> = Vec::new();
    store
        .walk(p("top"), &mut |entry| {
            let parent = entry.path.parent().expect("relative, not empty").to_owned();
            assert!(
                parent.as_os_str().is_empty() || seen.contains(&parent),
                "{:?} before its directory",
                entry.path
            );
            seen.push(entry.path);
            Ok(())
        })
        .expect("walk");
    seen.sort();
    assert_eq!(
        seen,
        ["1", "a", "a/2", "a/b", "a/b/3", "empty"].map(PathBuf::from)
    );
}

fn missing(store: &dyn Store, can: &Can) {
    let got = Got::default();
    assert!(is_missing(store.stat(p("nowhere"))));
    assert!(is_missing(store.read(
        p("nowhere"),
        &Extents::from(0..1),
        1,
        &got
    )));
    assert!(
        is_missing(store.digest(p("nowhere"), Algorithm::Adler32, None)) || can.digests.is_empty()
    );
    if can.write {
        assert!(is_missing(store.remove(p("nowhere"), What::File)));
        assert!(is_missing(store.remove(p("nowhere"), What::Directory)));
        assert!(is_missing(store.rename(p("nowhere"), p("else"))));
        let refused = write_at(store, p("no/where"), b"x");
        assert!(refused.is_err(), "a directory was made for it");
        assert!(is_missing(store.stat(p("no"))));
    }
    let root = store.stat(p("")).expect("the root is there");
    assert_eq!(root.kind, Kind::Directory);
}

fn directories(store: &dyn Store, can: &Can) {
    if !can.write {
        return;
    }
    store.mkdir(p("dir")).expect("mkdir");
    assert_eq!(stat(store, "dir").kind, Kind::Directory);
    assert!(store.mkdir(p("dir")).is_err(), "made twice");
    write(store, "dir/file", b"x");
    assert!(store.mkdir(p("dir/file")).is_err(), "a file is in the way");
    assert!(
        store.remove(p("dir"), What::Directory).is_err(),
        "it is not empty"
    );
    assert!(store.remove(p("dir"), What::File).is_err(), "it is no file");
    assert!(
        store.remove(p("dir/file"), What::Directory).is_err(),
        "it is no directory"
    );
    assert!(
        store
            .read(p("dir"), &Extents::from(0..1), 1, &Got::default())
            .is_err(),
        "read a directory"
    );
    assert!(
        write_at(store, p("dir"), b"x").is_err(),
        "wrote a directory"
    );
    assert_eq!(read(store, "dir/file"), b"x");
    store.remove(p("dir/file"), What::File).expect("remove");
    store.remove(p("dir"), What::Directory).expect("remove");
    assert!(is_missing(store.stat(p("dir"))));
}

fn renaming(store: &dyn Store, can: &Can) {
    if !can.write {
        return;
    }
    write(store, "from", b"moved");
    write(store, "to", b"replaced");
    store.rename(p("from"), p("to")).expect("rename");
    assert_eq!(read(store, "to"), b"moved");
    assert!(is_missing(store.stat(p("from"))));
    store.mkdir(p("dir")).expect("mkdir");
    store.rename(p("to"), p("dir/inner")).expect("rename");
    store.rename(p("dir"), p("other")).expect("rename");
    assert_eq!(read(store, "other/inner"), b"moved");
    assert_eq!(names(store, ""), [p("other")]);
}

fn attributes(store: &dyn Store, can: &Can) {
    if !can.write {
        return;
    }
    write(store, "file", b"12345");
    if can.set_mtime {
        set_mtime(store, "file", 1_234_567_890);
        let told = stat(store, "file").mtime.expect("told, as it can be set");
        assert_eq!(told.as_secs(), 1_234_567_890);
        let sink = begin(store, "dated", b"x", &Write::default());
        put(&*sink, 0, b"x");
        let mtime = Some(Duration::from_secs(1_000_000_001));
        sink.finish(&Whole {
            mtime,
            ..whole(b"x")
        })
        .expect("finish");
        assert_eq!(
            stat(store, "dated").mtime.map(|t| t.as_secs()),
            Some(1_000_000_001)
        );
    }
    if can.set_mode {
        store
            .set(
                p("file"),
                &Set {
                    mode: Some(0o640),
                    ..Set::default()
                },
            )
            .expect("set");
        if let Some(mode) = stat(store, "file").mode {
            assert_eq!(mode, 0o640);
        }
        write(store, "file", b"replaced");
        if let (Some(mode), true) = (stat(store, "file").mode, can.atomic) {
            assert_eq!(mode, 0o640, "the mode of a replaced file stays");
        }
    }
    if can.in_place
        && store
            .set(
                p("file"),
                &Set {
                    length: Some(3),
                    ..Set::default()
                },
            )
            .is_ok()
    {
        assert_eq!(read(store, "file"), b"rep");
        store
            .set(
                p("file"),
                &Set {
                    length: Some(5),
                    ..Set::default()
                },
            )
            .expect("extend");
        assert_eq!(read(store, "file"), b"rep\0\0");
    }
}

fn links(store: &dyn Store, can: &Can) {
    if !(can.write && can.links) {
        return;
    }
    write(store, "file", b"through");
    store.mkdir(p("dir")).expect("mkdir");
    for (path, target) in [
        ("link", "file"),
        ("dir/up", "../file"),
        ("dangling", "nowhere"),
        ("out", "../../../etc/passwd"),
    ] {
        let link_to = Some(target.into());
        store
            .set(
                p(path),
                &Set {
                    link_to,
                    ..Set::default()
                },
            )
            .expect("link");
    }
    let taken = Set {
        link_to: Some("else".into()),
        ..Set::default()
    };
    assert!(store.set(p("file"), &taken).is_err(), "the name is taken");
    assert_eq!(read(store, "link"), b"through");
    assert_eq!(read(store, "dir/up"), b"through");
    assert_eq!(
        (stat(store, "link").kind, stat(store, "link").size),
        (Kind::File, 7)
    );
    assert!(is_missing(store.stat(p("dangling"))));
    assert!(store.stat(p("out")).is_err(), "it leads outside");
    let mut told = BTreeMap::new();
    list(store, "", |entry| {
        told.insert(entry.path, entry.stat);
    });
    assert_eq!(told[p("link")].kind, Kind::Link);
    if let Some(target) = &told[p("link")].target {
        assert_eq!(target, p("file"));
    }
    // Writing to a link writes the file behind it.
    write(store, "link", b"replaced");
    assert_eq!(read(store, "file"), b"replaced");
    assert!(write_at(store, p("out"), b"x").is_err(), "it leads outside");
    store.remove(p("link"), What::File).expect("remove");
    assert_eq!(read(store, "file"), b"replaced", "the link, not the file");
}

fn digests(store: &dyn Store, can: &Can) {
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

fn room(store: &dyn Store, can: &Can) {
    match store.space(p("")) {
        Ok(space) => {
            assert!(can.space, "it said it cannot");
            assert!(
                space.free_bytes <= space.total_bytes && space.total_bytes > 0,
                "{space:?}"
            );
        }
        Err(error) => assert!(!can.space, "{error}"),
    }
}

fn small_files(store: &dyn Store, can: &Can) {
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
        Given {
            path,
            bytes: text(i),
            how: How::Replace(None),
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

fn refusals(store: &dyn Store, can: &Can) {
    let refused =
        |done: bool, can: bool, what: &str| assert!(can || !done, "{what}: it said it cannot");
    let write_as = |how: How| {
        let sink = store.write(
            p("refused"),
            &Write {
                how,
                ..Write::default()
            },
        )?;
        sink.put(Block {
            offset: 0,
            bytes: b"x",
        })?;
        sink.finish(&Whole::default())
    };
    refused(write_as(How::Replace(None)).is_ok(), can.write, "write");
    refused(
        write_as(How::InPlace).is_ok(),
        can.in_place && can.write,
        "in place",
    );
    refused(
        write_as(How::Append { writer: 1, seq: 1 }).is_ok(),
        can.append && can.write,
        "append",
    );
    refused(store.mkdir(p("made")).is_ok(), can.write, "mkdir");
    let link_to = Some("refused".into());
    refused(
        store
            .set(
                p("link"),
                &Set {
                    link_to,
                    ..Set::default()
                },
            )
            .is_ok(),
        can.links && can.write,
        "link",
    );
    let mtime = Some(Duration::from_secs(1_000_000_000));
    refused(
        store
            .set(
                p("refused"),
                &Set {
                    mtime,
                    ..Set::default()
                },
            )
            .is_ok(),
        can.set_mtime,
        "time",
    );
    refused(
        store
            .set(
                p("refused"),
                &Set {
                    mode: Some(0o600),
                    ..Set::default()
                },
            )
            .is_ok(),
        can.set_mode,
        "mode",
    );
}

// What the checks share.

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn begin(store: &dyn Store, path: &str, bytes: &[u8], write: &Write<'_>) -> Box<dyn Sink> {
    let write = Write {
        size: Some(bytes.len() as u64),
        ..write.clone()
    };
    store.write(p(path), &write).expect("write")
}

fn put(sink: &dyn Sink, offset: u64, bytes: &[u8]) {
    sink.put(Block { offset, bytes }).expect("put");
}

fn whole(bytes: &[u8]) -> Whole {
    Whole {
        size: Some(bytes.len() as u64),
        ..Whole::default()
    }
}

fn all_of(bytes: &[u8]) -> Extents {
    Extents::from(0..bytes.len() as u64)
}

fn write(store: &dyn Store, path: &str, bytes: &[u8]) -> Finished {
    write_at(store, p(path), bytes).expect("write")
}

fn write_at(store: &dyn Store, path: &Path, bytes: &[u8]) -> Result<Finished> {
    let size = Some(bytes.len() as u64);
    let sink = store.write(
        path,
        &Write {
            size,
            resume: false,
            ..Write::default()
        },
    )?;
    for (i, block) in bytes.chunks(MIB).enumerate() {
        sink.put(Block {
            offset: (i * MIB) as u64,
            bytes: block,
        })?;
    }
    sink.finish(&whole(bytes))
}

fn read(store: &dyn Store, path: &str) -> Vec<u8> {
    read_at(store, p(path))
}

fn read_at(store: &dyn Store, path: &Path) -> Vec<u8> {
    let got = Got::default();
    let Read { stat, .. } = store
        .read(path, &Extents::from(0..u64::MAX), 1, &got)
        .expect("read");
    assert_eq!(got.extents().len_bytes(), stat.size);
    let blocks = got.0.into_inner().expect("no panic");
    let mut bytes = vec![0; stat.size as usize];
    for (offset, block) in blocks {
        bytes[offset as usize..offset as usize + block.len()].copy_from_slice(&block);
    }
    bytes
}

fn stat(store: &dyn Store, path: &str) -> Stat {
    store.stat(p(path)).expect("stat")
}

fn set_mtime(store: &dyn Store, path: &str, seconds: u64) {
    let mtime = Some(Duration::from_secs(seconds));
    store
        .set(
            p(path),
            &Set {
                mtime,
                ..Set::default()
            },
        )
        .expect("set");
}

fn list(store: &dyn Store, path: &str, mut each: impl FnMut(Entry)) {
    let listed = store.list(p(path), &mut |entry| {
        each(entry);
        Ok(())
    });
    listed.expect("list");
}

fn names(store: &dyn Store, path: &str) -> Vec<PathBuf> {
    let mut names = Vec::new();
    list(store, path, |entry| names.push(entry.path));
    names.sort();
    names
}

/// A foreign server may say no more than 550.
fn is_missing<T>(result: Result<T>) -> bool {
    matches!(
        result,
        Err(Error::Missing { .. } | Error::Refused { code: 550, .. })
    )
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Keeps what it is given.
#[derive(Debug, Default)]
struct Got(Mutex<Vec<(u64, Vec<u8>)>>);

impl Got {
    fn extents(&self) -> Extents {
        let blocks = self.0.lock().expect("no panic");
        let extents: Extents = blocks
            .iter()
            .map(|(at, b)| *at..*at + b.len() as u64)
            .collect();
        let sum: u64 = blocks.iter().map(|(_, b)| b.len() as u64).sum();
        assert_eq!(extents.len_bytes(), sum, "bytes came twice");
        extents
    }

    fn ascending(&self) -> bool {
        self.0
            .lock()
            .expect("no panic")
            .is_sorted_by_key(|(at, _)| *at)
    }

    fn assert_part_of(&self, bytes: &[u8]) {
        for (at, block) in &*self.0.lock().expect("no panic") {
            assert!(
                bytes[*at as usize..].starts_with(block),
                "wrong bytes at {at}"
            );
        }
    }

    fn assert_is(&self, bytes: &[u8]) {
        assert_eq!(self.extents(), all_of(bytes));
        self.assert_part_of(bytes);
    }
}

impl Take for Got {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.0
            .lock()
            .expect("no panic")
            .push((block.offset, block.bytes.to_vec()));
        Ok(())
    }
}

/// Has no room for the third block.
struct Full;

impl Take for Full {
    fn put(&self, block: Block<'_>) -> Result<()> {
        match block.offset {
            0..3_000_000 => Ok(()),
            _ => Err(Error::NoSpace {
                path: "sink".into(),
                said: String::new(),
            }),
        }
    }
}

const MIB: usize = LEAF_BYTES as usize;

/// Beyond what 32 bits can say.
const FAR: u64 = 5 << 30;
