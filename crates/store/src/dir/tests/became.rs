//! A writer that lost the answer to a publication receives it from the next process.

use super::{crashes::dies_in, *};
use crate::StoreExt;

fn counted(attempt: u64) -> Write<'static> {
    Write {
        id: Some("1f.7"),
        attempt,
        ..Write::default()
    }
}

/// The one that dies: run by the test below only.
#[test]
fn child_that_counts() {
    let Some(root) = std::env::var_os("GODWIT_CHILD") else {
        return;
    };
    let dir = Dir::open(Path::new(&root), "tester", Opener::Myself).unwrap();
    let sink = dir.write(p("file"), &counted(5)).unwrap();
    put(&*sink, 0, &noise(MIB, 90));
    sink.finish(&Expected::default()).unwrap();
}

#[test] //= publishing#a-partial
fn became_is_told_after_a_kill() {
    for (point, is_published) in [("dir.before-rename", false), ("dir.after-rename", true)] {
        let place = dies_in("became::child_that_counts", point);
        let dir = place.dir();
        // An older attempt is one here too.
        let late = dir.write(p("file"), &counted(4));
        assert!(matches!(late, Err(Error::Superseded { .. })), "{point}");
        let sink = dir.write(p("file"), &counted(6)).unwrap();
        let became = dir.published_as(p("file"), "1f.7").unwrap();
        assert_eq!(became.is_some(), is_published, "{point}");
        if let Some(became) = became {
            let now = dir.stat(p("file")).unwrap().version(now());
            assert_eq!(became.compare(&now), godwit_core::Strength::AskAgain);
            assert_eq!(sink.done(), Extents::new());
            drop(sink);
            assert_eq!(dir.published_as(p("file"), "1f.7").unwrap(), Some(became));
        } else {
            assert_eq!(sink.done(), Extents::from(0..LEAF_BYTES), "{point}");
            sink.finish(&Expected::default()).unwrap();
            assert!(dir.published_as(p("file"), "1f.7").unwrap().is_some());
        }
        assert_eq!(place.bytes("file"), noise(MIB, 90));
        assert!(dir.published_as(p("file"), "1f.6").unwrap().is_none());
        let other = Dir::open(&place.0, "other", Opener::Myself).unwrap();
        assert!(other.published_as(p("file"), "1f.7").unwrap().is_none());
    }
}

/// The note is hidden from listings, and removed in time.
#[test]
fn became_is_hidden_and_swept() {
    let place = Scratch::new();
    let dir = place.dir();
    for generation in ["1f.7", "1f.8", "1f.9"] {
        let write = Write {
            id: Some(generation),
            ..counted(1)
        };
        let sink = dir.write(p("file"), &write).unwrap();
        put(&*sink, 0, generation.as_bytes());
        sink.finish(&Expected::default()).unwrap();
    }
    assert_eq!(place.names().len(), 2, "one note of all of them");
    assert_eq!(dir.hidden(p("")).unwrap(), Vec::<PathBuf>::new());
    let mut listed = Vec::new();
    dir.list(p(""), &mut |entry| {
        listed.push(entry.path);
        Ok(())
    })
    .unwrap();
    assert_eq!(listed, [p("file")]);
    assert_eq!(dir.sweep(Duration::from_secs(3600)).unwrap(), 0);
    assert!(dir.published_as(p("file"), "1f.9").unwrap().is_some());
    assert_eq!(dir.sweep(Duration::ZERO).unwrap(), 1);
    assert_eq!(place.names(), ["file"]);
    assert!(dir.published_as(p("file"), "1f.9").unwrap().is_none());
    // It keeps no directory from being removed.
    dir.mkdir(p("d")).unwrap();
    let sink = dir.write(p("d/file"), &counted(1)).unwrap();
    sink.finish(&Expected::default()).unwrap();
    dir.remove(p("d/file"), RemovalKind::File).unwrap();
    dir.remove(p("d"), RemovalKind::Directory).unwrap();
}

/// A tree that no node serves has no sweep.
#[test]
fn old_notes_are_removed_by_next_note() {
    let place = Scratch::new();
    let writes = |dir: &Dir, name: &str| {
        let sink = dir.write(p(name), &counted(1)).unwrap();
        put(&*sink, 0, name.as_bytes());
        sink.finish(&Expected::default()).unwrap();
    };
    let opened = || Dir::open(&place.0, "tester", Opener::Myself).unwrap();
    let notes = || {
        let mut names = place.names();
        names.retain(|name| name.ends_with(".was"));
        names
    };
    writes(&opened(), "old");
    let [old] = &notes()[..] else {
        panic!("one note: {:?}", notes());
    };
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(2 * 86_400);
    let note = fs::File::options().write(true).open(place.0.join(old));
    note.unwrap().set_modified(long_ago).unwrap();
    // A node sweeps in its own time.
    writes(&opened(), "recent");
    assert_eq!(notes().len(), 2);
    let dir = opened().tidying();
    writes(&dir, "new");
    assert_eq!(notes().len(), 2);
    assert!(!notes().contains(old));
    for name in ["recent", "new"] {
        assert!(
            dir.published_as(p(name), "1f.7").unwrap().is_some(),
            "{name}"
        );
    }
}

/// Leaves an upload with one leaf.
fn leave(dir: &Dir, path: &str) {
    let write = Write::of_size(2 << 20);
    let sink = dir.write(p(path), &write).unwrap();
    put(&*sink, 0, &noise(MIB, 1));
}

#[test] //= publishing#a-partial
fn abandoned_uploads_are_removed_by_next_note() {
    let place = Scratch::new();
    let opened = || place.dir();
    let parts = || {
        let mut names = place.names();
        names.retain(|name| name.ends_with(".part") || name.ends_with(".done"));
        names
    };
    leave(&opened(), "old");
    let old = parts();
    assert_eq!(old.len(), 2, "{old:?}");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(8 * 86_400);
    for name in &old {
        let file = fs::File::options().write(true).open(place.0.join(name));
        file.unwrap().set_modified(long_ago).unwrap();
    }
    leave(&opened(), "recent");
    let dir = opened().tidying();
    let sink = dir.write(p("new"), &counted(1)).unwrap();
    put(&*sink, 0, b"new");
    sink.finish(&Expected::default()).unwrap();
    let left = parts();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(old.iter().all(|name| !left.contains(name)), "{left:?}");
    assert!(dir.partial(p("recent"), None).unwrap().is_some());
}
