//! Names, directories, and the attributes of entries.

use super::{
    Got, begin, is_missing, list, names, p, put, read, read_at, set_mtime, stat, whole, write,
    write_at,
};
use crate::{
    Capabilities, Entry, EntryKind, Error, Expected, RemovalKind, Set, Store, StoreExt, Write,
};
use godwit_core::{Algorithm, Extents};
use std::{
    collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf, time::Duration,
};

pub(super) fn hard_names(store: &dyn Store, can: &Capabilities) {
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
        store.remove(path, RemovalKind::File).expect("remove");
    }
    assert_eq!(names(store, ""), Vec::<PathBuf>::new());
    let long = "x".repeat(256);
    assert!(
        write_at(store, p(&long), b"").is_err(),
        "256 bytes are no name"
    );
}

pub(super) fn outside(store: &dyn Store, can: &Capabilities) {
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

pub(super) fn listing(store: &dyn Store, can: &Capabilities) {
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
        (EntryKind::File, 5)
    );
    assert_eq!(entries[p("inner")].kind, EntryKind::Directory);
    assert_eq!(names(store, "inner"), [p("deep")]);
    let file = store.list(p("file"), &mut |_| Ok(()));
    assert!(file.is_err(), "a file is listed");
    assert!(is_missing(store.list(p("nowhere"), &mut |_| Ok(()))));
    // The caller may use the store while it lists.
    list(store, "", |entry| {
        store.stat(&entry.path).expect("stat");
    });
}

pub(super) fn listing_ends(store: &dyn Store, can: &Capabilities) {
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

pub(super) fn walking(store: &dyn Store, can: &Capabilities) {
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

pub(super) fn missing(store: &dyn Store, can: &Capabilities) {
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
        assert!(is_missing(store.remove(p("nowhere"), RemovalKind::File)));
        assert!(is_missing(
            store.remove(p("nowhere"), RemovalKind::Directory)
        ));
        assert!(is_missing(store.rename(p("nowhere"), p("else"))));
        let refused = write_at(store, p("no/where"), b"x");
        assert!(refused.is_err(), "a directory was made for it");
        assert!(is_missing(store.stat(p("no"))));
    }
    let root = store.stat(p("")).expect("the root is there");
    assert_eq!(root.kind, EntryKind::Directory);
}

pub(super) fn directories(store: &dyn Store, can: &Capabilities) {
    if !can.write {
        return;
    }
    store.mkdir(p("dir")).expect("mkdir");
    assert_eq!(stat(store, "dir").kind, EntryKind::Directory);
    assert!(store.mkdir(p("dir")).is_err(), "made twice");
    write(store, "dir/file", b"x");
    assert!(store.mkdir(p("dir/file")).is_err(), "a file is in the way");
    assert!(
        store.remove(p("dir"), RemovalKind::Directory).is_err(),
        "it is not empty"
    );
    assert!(
        store.remove(p("dir"), RemovalKind::File).is_err(),
        "it is no file"
    );
    assert!(
        store.remove(p("dir/file"), RemovalKind::Directory).is_err(),
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
    store
        .remove(p("dir/file"), RemovalKind::File)
        .expect("remove");
    store
        .remove(p("dir"), RemovalKind::Directory)
        .expect("remove");
    assert!(is_missing(store.stat(p("dir"))));
}

pub(super) fn renaming(store: &dyn Store, can: &Capabilities) {
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

pub(super) fn extended_attributes(store: &dyn Store, can: &Capabilities) {
    let set = |path: &str, xattrs: &[(&str, Option<&[u8]>)]| {
        let each = xattrs.iter();
        let xattrs = each.map(|(name, value)| ((*name).into(), value.map(<[u8]>::to_vec)));
        let set = Set {
            xattrs: xattrs.collect(),
            ..Set::default()
        };
        store.set(p(path), &set)
    };
    if !can.write {
        return;
    }
    write(store, "file", b"12345");
    if !can.xattrs {
        eprintln!("skipped: extended attributes, which this store says it has not");
        let refused = set("file", &[("user.a", Some(b"1"))]);
        assert!(
            matches!(refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
        return;
    }
    let told = |path: &str| {
        let xattrs = store.xattrs(p(path)).expect("they are told");
        let each = xattrs.into_iter();
        each.map(|(name, value)| (name.into_string().expect("plain names were set"), value))
            .collect::<Vec<_>>()
    };
    let are = |path: &str, expected: &[(&str, &[u8])]| {
        let expected = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        assert_eq!(told(path), expected.collect::<Vec<_>>());
    };
    are("file", &[]);
    let odd = b"\0\xff\n".as_slice();
    set("file", &[("user.b", Some(odd)), ("user.a", Some(b""))]).expect("set");
    are("file", &[("user.a", b""), ("user.b", odd)]);
    set(
        "file",
        &[
            ("user.a", Some(b"other")),
            ("user.b", None),
            ("user.none", None),
        ],
    )
    .expect("what is not there is gone as well");
    are("file", &[("user.a", b"other")]);
    assert_eq!(read(store, "file"), b"12345");
    // With the rest, and of a directory.
    let mode = can.set_mode.then_some(0o640);
    let with_mode = Set {
        mode,
        xattrs: [("user.c%/".into(), Some(vec![7; 1000]))].into(),
        ..Set::default()
    };
    store.set(p("file"), &with_mode).expect("set");
    are("file", &[("user.a", b"other"), ("user.c%/", &[7; 1000])]);
    store.mkdir(p("made")).expect("mkdir");
    set("made", &[("user.of", Some(b"a directory"))]).expect("set");
    are("made", &[("user.of", b"a directory")]);
    // Names and values that there cannot be; nothing of the call is done.
    let long = format!("user.{}", "x".repeat(251));
    let big = vec![0; (64 << 10) + 1];
    for bad in [
        "user.",
        "trusted.a",
        "security.a",
        "a",
        "",
        "User.a",
        "user.a\0b",
        &long,
    ] {
        let refused = set("file", &[(bad, Some(b"1")), ("user.z", Some(b"1"))]);
        assert!(
            matches!(refused, Err(Error::BadName { .. })),
            "{bad}: {refused:?}"
        );
    }
    let refused = set("file", &[("user.big", Some(&big))]);
    assert!(matches!(refused, Err(Error::BadName { .. })), "{refused:?}");
    are("file", &[("user.a", b"other"), ("user.c%/", &[7; 1000])]);
    assert!(super::is_missing(store.xattrs(p("nowhere"))));
    assert!(super::is_missing(set("nowhere", &[("user.a", Some(b"1"))])));
}

pub(super) fn attributes(store: &dyn Store, can: &Capabilities) {
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
        sink.finish(&Expected {
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
        store.set(p("file"), &Set::of_mode(0o640)).expect("set");
        if let Some(mode) = stat(store, "file").mode {
            assert_eq!(mode, 0o640);
        }
        write(store, "file", b"replaced");
        if let (Some(mode), true) = (stat(store, "file").mode, can.atomic) {
            assert_eq!(mode, 0o640, "the mode of a replaced file stays");
        }
    }
    if can.in_place && store.set(p("file"), &Set::of_length(3)).is_ok() {
        assert_eq!(read(store, "file"), b"rep");
        store.set(p("file"), &Set::of_length(5)).expect("extend");
        assert_eq!(read(store, "file"), b"rep\0\0");
    }
}

pub(super) fn links(store: &dyn Store, can: &Capabilities) {
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
        (EntryKind::File, 7)
    );
    assert!(is_missing(store.stat(p("dangling"))));
    assert!(store.stat(p("out")).is_err(), "it leads outside");
    let mut told = BTreeMap::new();
    list(store, "", |entry| {
        told.insert(entry.path, entry.stat);
    });
    assert_eq!(told[p("link")].kind, EntryKind::Link);
    if let Some(target) = &told[p("link")].target {
        assert_eq!(target, p("file"));
    }
    // Writing to a link writes the file behind it.
    write(store, "link", b"replaced");
    assert_eq!(read(store, "file"), b"replaced");
    assert!(write_at(store, p("out"), b"x").is_err(), "it leads outside");
    store.remove(p("link"), RemovalKind::File).expect("remove");
    assert_eq!(read(store, "file"), b"replaced", "the link, not the file");
}

pub(super) fn room(store: &dyn Store, can: &Capabilities) {
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
