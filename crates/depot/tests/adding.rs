//! Programs that fill cached files themselves, and callers that wait for them.
#![allow(clippy::unwrap_used)] // Tests may.

mod common;

use common::{Far, both, bytes, push, put, read, rules, same, url, who};
use godwit_depot::{Add, Adding, Depot, Error, Fresh, Rules};
use std::{
    fs,
    io::Read,
    os::unix::fs::FileExt,
    sync::{Barrier, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

fn depot(far: &Far, dir: &tempfile::TempDir) -> Depot {
    Depot::open(dir.path(), rules(), far.connect()).unwrap()
}

fn add(depot: &Depot, name: &str) -> godwit_depot::Result<Adding> {
    let how = Add {
        by: "me".into(),
        ..Add::default()
    };
    depot.add(&url(name), &who(), &how, &|| true)
}

fn fill(depot: &Depot, name: &str, bytes: &[u8], stamp: i64) {
    let mut adding = add(depot, name).unwrap();
    assert!(adding.is_new());
    let file = adding.file().unwrap();
    file.write_all_at(bytes, 0).unwrap();
    drop(file);
    adding.done(Some(("job", None)), Some(stamp)).unwrap();
}

fn files(dir: &tempfile::TempDir) -> usize {
    let folders = fs::read_dir(dir.path().join("bytes")).unwrap();
    let inside = folders.map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let names = inside.flatten().map(|name| name.unwrap().file_name());
    names
        .filter(|name| !name.to_string_lossy().contains('.'))
        .count()
}

#[test] //= GASS-46
fn filled_file_stays_while_tagged() {
    let (far, dir) = both();
    let filled = bytes(1_500_000, 7);
    {
        let depot = depot(&far, &dir);
        far.put("a", b"what the origin has");
        far.set_away(true);
        fill(&depot, "a", &filled, 42);
        same(read(&depot, "a").unwrap(), &filled);
        let held = depot.holds(&url("a"));
        assert_eq!(
            (held.len(), held[0].stamp, held[0].transfers),
            (1, Some(42), 0)
        );
        // A second program opens the filled file; its timestamp replaces the first one.
        let mut again = add(&depot, "a").unwrap();
        assert_eq!(
            (again.is_new(), again.timestamp(), again.size()),
            (false, Some(42), 1_500_000)
        );
        let mut seen = Vec::new();
        again.file().unwrap().read_to_end(&mut seen).unwrap();
        same(seen, &filled);
        again.done(Some(("night", None)), Some(43)).unwrap();
    }
    let depot = depot(&far, &dir);
    same(read(&depot, "a").unwrap(), &filled);
    assert_eq!(depot.holds(&url("a"))[0].stamp, Some(43));
    let wrong = depot.verify(None, |found| {
        assert!(found.wrong.is_empty() && !found.is_unknown)
    });
    wrong.unwrap();
    depot.untag(&url("a"), "job").unwrap();
    same(read(&depot, "a").unwrap(), &filled);
    far.set_away(false);
    // A read with `Fresh::Now` asks the origin.
    let fresh = depot.read(&url("a"), &who(), Fresh::Now).unwrap();
    assert_eq!(fresh.size(), 19);
    drop(fresh);
    let error = depot.untag(&url("a"), "none").unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error}");
}

#[test]
fn last_tag_removal_drops_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.put("a", b"what the origin has");
    fill(&depot, "a", b"filled", 1);
    assert_eq!(depot.clean("job", None).unwrap(), 1);
    assert!(depot.holds(&url("a")).is_empty());
    assert_eq!(files(&dir), 0);
    same(read(&depot, "a").unwrap(), b"what the origin has");
    // The file is now cached from its origin, so there is nothing to fill.
    assert!(!add(&depot, "a").unwrap().is_new());
}

#[test] //= GASS-51
fn next_waiter_takes_abandoned_fill() {
    const WRITERS: usize = 20;
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let first = add(&depot, "a").unwrap();
    assert!(first.is_new());
    let started = Barrier::new(WRITERS + 1);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            let (depot, started, tell) = (&depot, &started, tell.clone());
            scope.spawn(move || {
                started.wait();
                let adding = add(depot, "a").unwrap();
                tell.send(adding.is_new()).unwrap();
                // Dropping `adding` abandons the fill.
            });
        }
        started.wait();
        assert!(told.try_recv().is_err(), "two fill one file");
        // A fill of another name does not wait.
        assert!(add(&depot, "b").unwrap().is_new());
        let begun = Instant::now();
        drop(first);
        for _ in 0..WRITERS {
            assert!(told.recv().unwrap());
        }
        // Each waiter was woken by the one before; polling would have taken a second each.
        assert!(begun.elapsed() < Duration::from_secs(WRITERS as u64 / 2));
    });
    assert_eq!(files(&dir), 0);
    assert!(!depot.is_locked());
}

#[test]
fn fill_waiters_wake_without_polling() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    // A waiter that is not woken looks once a second. The quickest of five runs counts, since a loaded machine is
    // late.
    let quickest = (0..5).map(|_| {
        let first = add(&depot, "a").unwrap();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let (looked, depot) = (Mutex::new(Vec::new()), &depot);
            let waiter = scope.spawn(move || {
                let is_wanted = || {
                    looked.lock().unwrap().push(Instant::now());
                    tell.send(()).unwrap();
                    true
                };
                let next = depot.unlocked(&url("a"), &who(), &["you"], &is_wanted);
                let late = Instant::now();
                next.unwrap();
                let looked = looked.into_inner().unwrap();
                let (first, last) = (looked[0], looked[looked.len() - 1]);
                (looked.len(), late - last, late - first)
            });
            told.recv().unwrap();
            // Gives a busy loop time to show itself.
            thread::sleep(Duration::from_millis(60));
            drop(first);
            let (looks, last, whole) = waiter.join().unwrap();
            let most = 1 + whole.as_millis() / 1000;
            assert!(looks as u128 <= most, "looked {looks} times in {whole:?}");
            last
        })
    });
    let quickest = quickest.min().unwrap();
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
}

#[test] //= GASS-51
fn readers_wait_for_other_fillers() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let mut adding = add(&depot, "a").unwrap();
    let free = |by: &str, is_wanted: &dyn Fn() -> bool| {
        depot.unlocked(&url("a"), &who(), &[by], is_wanted)
    };
    free("me", &|| true).unwrap();
    let error = free("you", &|| false).unwrap_err();
    assert!(matches!(error, Error::Unwanted), "{error}");
    depot
        .unlocked(&url("b"), &who(), &["you"], &|| false)
        .unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            free("you", &|| true).unwrap();
            read(&depot, "a").unwrap()
        });
        let file = adding.file().unwrap();
        file.write_all_at(b"filled", 0).unwrap();
        drop(file);
        adding.done(Some(("job", None)), None).unwrap();
        same(reader.join().unwrap(), b"filled");
    });
}

#[test] //= GASS-51
fn open_or_oversized_fill_stays_locked() {
    let (far, dir) = both();
    let quota = Some(100_000);
    let depot = Depot::open(dir.path(), Rules { quota, ..rules() }, far.connect()).unwrap();
    let mut adding = add(&depot, "a").unwrap();
    let file = adding.file().unwrap();
    file.write_all_at(&bytes(200_000, 3), 0).unwrap();
    let error = adding.done(Some(("job", None)), None).unwrap_err();
    assert!(error.to_string().contains("closed first"), "{error}");
    drop(file);
    let error = adding.done(Some(("job", None)), None).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    assert!(depot.is_locked() && depot.holds(&url("a")).is_empty());
    let file = adding.file().unwrap();
    file.set_len(50_000).unwrap();
    drop(file);
    adding.done(Some(("job", None)), None).unwrap();
    assert_eq!((depot.usage().taken, depot.usage().kept), (50_000, 50_000));
    drop(adding);
    // A tagged file is not evicted.
    far.put("large", &bytes(60_000, 4));
    let error = read(&depot, "large").unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    depot.untag(&url("a"), "job").unwrap();
    assert_eq!(read(&depot, "large").unwrap().len(), 60_000);
}

#[test]
fn put_during_fill_wins() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let mut adding = add(&depot, "a").unwrap();
    adding.file().unwrap().write_all_at(b"filled", 0).unwrap();
    far.set_away(true);
    put(&depot, "a", b"put");
    let error = adding.done(Some(("job", None)), None).unwrap_err();
    assert!(error.to_string().contains("put meanwhile"), "{error}");
    drop(adding);
    same(read(&depot, "a").unwrap(), b"put");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"put");
}

#[test] //= GASS-51 depot#tags-and-filling
fn waiter_takes_expired_lock() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let how = Add {
        by: "verb".into(),
        lasts: Some(Duration::from_millis(1)),
        ..Add::default()
    };
    let mut late = depot.add(&url("a"), &who(), &how, &|| true).unwrap();
    let mut next = add(&depot, "a").unwrap();
    assert!(next.is_new());
    let error = late.done(Some(("job", None)), None).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    drop(late);
    assert!(depot.is_locked(), "what is not theirs is not freed");
    next.file().unwrap().write_all_at(b"next", 0).unwrap();
    next.done(Some(("job", None)), None).unwrap();
    same(read(&depot, "a").unwrap(), b"next");
}

#[test] //= GASS-51
fn delete_locks_only_existing_files() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let how = Add {
        by: "me".into(),
        is_there: true,
        ..Add::default()
    };
    let error = depot.add(&url("a"), &who(), &how, &|| true).unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error}");
    assert!(!depot.is_locked());
    fill(&depot, "a", b"filled", 1);
    let mut there = depot.add(&url("a"), &who(), &how, &|| true).unwrap();
    assert!(!there.is_new());
    depot.untag(&url("a"), "job").unwrap();
    there.done(None, None).unwrap();
    drop(there);
}

#[test]
fn unfinished_fill_vanishes_at_restart() {
    let (far, dir) = both();
    let left = {
        let depot = depot(&far, &dir);
        let adding = add(&depot, "a").unwrap();
        adding.file().unwrap().write_all_at(b"half", 0).unwrap();
        let path = adding.path().unwrap();
        std::mem::forget(adding);
        path
    };
    assert!(left.exists());
    // A live process keeps its fill; the copy of the depot looks like that of a dead one.
    let copy = tempfile::tempdir().unwrap();
    let folder = left.parent().unwrap().strip_prefix(dir.path()).unwrap();
    fs::create_dir_all(copy.path().join(folder)).unwrap();
    for name in ["depot", "held.db", "held.db-wal"] {
        let _ = fs::copy(dir.path().join(name), copy.path().join(name));
    }
    fs::copy(
        &left,
        copy.path().join(left.strip_prefix(dir.path()).unwrap()),
    )
    .unwrap();
    let depot = depot(&far, &copy);
    assert_eq!(files(&copy), 0);
    assert!(depot.holds(&url("a")).is_empty());
}
