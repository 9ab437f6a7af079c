//! Cached files: concurrent readers, tags, freshness and eviction.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    both, bytes, depot, of_quota, over, push, put, read, rules, same, until, url, who, with,
};
use godwit_depot::{Depot, Error, Fresh, Rules, Scope, Stage, Who};
use godwit_store::Error as StoreError;
use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

fn held(depot: &Depot) -> Vec<String> {
    let name = |url: &godwit_core::Url| url.to_string().replace("ftp://far/", "");
    depot
        .list("")
        .iter()
        .map(|holds| name(&holds.url))
        .collect()
}

/// Waits until the condition holds.
fn soon(is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "it never was");
        thread::yield_now();
    }
}

/// Returns the path of a cached file's bytes.
fn place(depot: &Depot, name: &str) -> std::path::PathBuf {
    let id = depot.holds(&url(name))[0].id.clone();
    depot.root().join("bytes").join(&id[..2]).join(&id)
}

#[test] //= GASS-11 GASS-26
fn waiting_readers_share_one_failure() {
    let (far, dir) = both();
    far.put("a", &bytes(2 << 20, 5));
    let depot = depot(&far, &dir);
    far.gate.shut("a");
    thread::scope(|scope| {
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(|| read(&depot, "a"))).collect();
        far.gate.reached(1);
        fs::remove_file(far.dir.path().join("a")).unwrap();
        far.gate.open();
        for reader in readers {
            let error = reader.join().unwrap().unwrap_err();
            let is_missing =
                matches!(&error, Error::Store(e) if matches!(**e, StoreError::Missing { .. }));
            assert!(is_missing, "{error}");
        }
    });
    // No partial is kept.
    depot.read(&url("a"), &who(), Fresh::Now).unwrap_err();
    assert!(held(&depot).is_empty(), "{:?}", held(&depot));
    // The next read begins anew.
    far.put("a", b"another");
    let late = depot.read(&url("a"), &who(), Fresh::Now).unwrap();
    assert_eq!(late.size(), 7);
}

#[test] //= delivery#what-a-failure-costs
fn fetch_ends_with_last_waiter() {
    let (far, dir) = both();
    for name in ["a", "b"] {
        far.put(name, &bytes(2 << 20, 5));
    }
    let depot = depot(&far, &dir);
    let reads = |name: &str, is_wanted: &AtomicBool| {
        let is_wanted = || is_wanted.load(SeqCst);
        depot.read_while(&url(name), &who(), Fresh::Usual, &is_wanted)
    };
    let users = |name: &str| depot.holds(&url(name)).first().map_or(0, |held| held.users);
    let present = |name: &str| depot.holds(&url(name))[0].present;
    let [first, second] = [true, true].map(AtomicBool::new);
    thread::scope(|scope| {
        far.gate.shut("a");
        let fetches = scope.spawn(|| reads("a", &first));
        far.gate.reached(1);
        let waits = scope.spawn(|| reads("a", &second));
        soon(|| users("a") == 2);
        // A second waiter leaves at once; the fetch continues.
        second.store(false, SeqCst);
        let left = waits.join().unwrap().unwrap_err();
        assert!(matches!(left, Error::Unwanted), "{left}");
        // Now no reader waits for the fetch.
        first.store(false, SeqCst);
        far.gate.open();
        let left = fetches.join().unwrap().unwrap_err();
        assert!(matches!(left, Error::Unwanted), "{left}");
        assert_eq!((users("a"), present("a")), (0, 0));
    });
    same(read(&depot, "a").unwrap(), bytes(2 << 20, 5));
    first.store(true, SeqCst);
    thread::scope(|scope| {
        far.gate.shut("b");
        let fetches = scope.spawn(|| reads("b", &first));
        far.gate.reached(1);
        let waits = scope.spawn(|| read(&depot, "b"));
        soon(|| users("b") == 2);
        first.store(false, SeqCst);
        far.gate.open();
        assert_eq!(waits.join().unwrap().unwrap(), bytes(2 << 20, 5));
        drop(fetches.join().unwrap());
    });
    assert_eq!(depot.transfers(&url("b"), &who()), Some(1));
}

#[test] //= depot#how-fresh-a-read-is
fn fresh_file_needs_no_request() {
    let (far, dir) = both();
    let rules = Rules {
        fresh: Duration::from_secs(3600),
        ..rules()
    };
    let depot = with(&far, &dir, rules);
    far.put("a", b"as it was");
    same(read(&depot, "a").unwrap(), b"as it was");
    far.put("a", b"as it is");
    same(read(&depot, "a").unwrap(), b"as it was");
    let now = depot.read(&url("a"), &who(), Fresh::Now).unwrap();
    assert_eq!(now.size(), 8);
}

#[test] //= GASS-52
fn slow_file_delays_no_other() {
    let (far, dir) = both();
    far.put("slow", b"slow");
    far.put("fast", b"fast");
    let depot = depot(&far, &dir);
    far.gate.shut("slow");
    thread::scope(|scope| {
        let slow = scope.spawn(|| read(&depot, "slow"));
        far.gate.reached(1);
        let fast = scope.spawn(|| read(&depot, "fast"));
        let until = Instant::now() + Duration::from_secs(20);
        while !fast.is_finished() && Instant::now() < until {
            thread::yield_now();
        }
        let is_delayed = !fast.is_finished();
        far.gate.open();
        assert!(!is_delayed);
        same(fast.join().unwrap().unwrap(), b"fast");
        same(slow.join().unwrap().unwrap(), b"slow");
    });
}

#[test] //= GASS-15 GASS-58 GASS-60
fn similar_names_are_different_files() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let names = ["a", "A", "a%20", "a."];
    for name in names {
        far.put(&name.replace("%20", " "), name.as_bytes());
    }
    for name in names {
        same(read(&depot, name).unwrap(), name.as_bytes());
    }
    assert_eq!(depot.list("").len(), 4);
    assert_eq!(depot.list("ftp://far/a").len(), 3);
    assert_eq!(depot.holds(&url("a"))[0].url, url("a"));
    // Two names of one file at the origin are two cached files.
    std::os::unix::fs::symlink("a", far.dir.path().join("link")).unwrap();
    same(read(&depot, "link").unwrap(), b"a");
    assert_eq!(depot.list("").len(), 5);
}

#[test] //= GASS-47 depot#room
fn tagged_file_is_not_evicted() {
    let (far, dir) = both();
    let depot = with(&far, &dir, of_quota(10 << 20));
    for name in ["a", "b", "c"] {
        far.put(name, &bytes(4 << 20, 1));
    }
    for _ in 0..2 {
        depot.stage(&url("a"), &who(), "mine", None).unwrap();
    }
    read(&depot, "b").unwrap();
    read(&depot, "c").unwrap();
    assert_eq!(
        held(&depot),
        ["a", "c"],
        "what was used last stays, and what has a tag"
    );
    depot.untag(&url("a"), "mine").unwrap();
    assert_eq!(depot.holds(&url("a"))[0].tags[0].count, 1);
    read(&depot, "b").unwrap();
    assert_eq!(held(&depot), ["a", "b"]);
    depot.untag(&url("a"), "mine").unwrap();
    let error = depot.untag(&url("a"), "mine").unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error}");
    read(&depot, "c").unwrap();
    assert_eq!(held(&depot), ["b", "c"]);
}

#[test] //= GASS-49 depot#tags-and-filling
fn clean_removes_one_tag_only() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    for name in ["a", "b"] {
        far.put(name, b"x");
        for tag in ["one", "one", "two"] {
            depot.stage(&url(name), &who(), tag, None).unwrap();
        }
    }
    depot.tag(&url("a"), "two", Some(-7)).unwrap();
    let tags = |depot: &Depot, name: &str| {
        let tags = depot.holds(&url(name))[0].tags.clone();
        let shown = |tag: &godwit_depot::Tag| format!("{} {}", tag.name, tag.count);
        tags.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(depot.clean("one", Some(&url("a"))).unwrap(), 1);
    assert_eq!(tags(&depot, "a"), ["two 2"]);
    assert_eq!(tags(&depot, "b"), ["one 2", "two 1"]);
    assert_eq!(depot.clean("two", None).unwrap(), 2);
    assert_eq!(tags(&depot, "a"), [""; 0]);
    assert_eq!(tags(&depot, "b"), ["one 2"]);
    assert_eq!(depot.clean("none", None).unwrap(), 0);
}

#[test] //= GASS-45 GASS-46 GASS-49 GASS-59 depot#tags-and-filling
fn tags_and_times_survive_restart() {
    let (far, dir) = both();
    far.put("a", b"fetched");
    far.put("b", b"for a while");
    let first = depot(&far, &dir);
    first.stage(&url("a"), &who(), "mine", None).unwrap();
    first.tag(&url("a"), "mine", Some(-7)).unwrap();
    let lasts = Some(Duration::from_secs(1));
    first.stage(&url("b"), &who(), "soon", lasts).unwrap();
    drop(first);
    let again = depot(&far, &dir);
    let tag = again.holds(&url("a"))[0].tags[0].clone();
    assert_eq!((tag.count, tag.timestamp), (2, Some(-7)));
    far.set_away(true);
    let reading = again.read(&url("a"), &who(), Fresh::Any).unwrap();
    assert_eq!((reading.size(), reading.transfers()), (7, 1));
    // The tag with a duration expires by itself.
    soon(|| again.holds(&url("b"))[0].tags.is_empty());
}

#[test] //= GASS-57
fn open_reader_outlives_forget() {
    let (far, dir) = both();
    far.put("a", b"bytes");
    let depot = depot(&far, &dir);
    let error = depot.forget(&url("a")).unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error}");
    let reading = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
    assert_eq!(depot.forget(&url("a")).unwrap(), 1);
    assert!(depot.list("").is_empty());
    let mut bytes = Vec::new();
    reading.file().read_to_end(&mut bytes).unwrap();
    same(bytes, b"bytes");
    drop(reading);
    // A file with pending bytes cannot be forgotten.
    far.set_away(true);
    put(&depot, "b", b"pending");
    until("its server is waited for", || {
        matches!(depot.queue()[0].stage, Stage::Waiting { .. })
    });
    let error = depot.forget(&url("b")).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    same(read(&depot, "b").unwrap(), b"pending");
}

#[test] //= GASS-72 KANGAROO-X7 depot#how-fresh-a-read-is
fn damaged_copy_is_fetched_again() {
    let (far, dir) = both();
    let wanted = bytes(3 << 20, 9);
    far.put("a", &wanted);
    let depot = depot(&far, &dir);
    read(&depot, "a").unwrap();
    let verify = |depot: &Depot| {
        let mut found = Vec::new();
        depot
            .verify(Some(&url("a")), |one| found.push(one))
            .unwrap();
        found
    };
    assert_eq!(verify(&depot)[0].wrong, [0u64; 0]);
    let file = File::options()
        .write(true)
        .open(place(&depot, "a"))
        .unwrap();
    file.write_all_at(&[wanted[2 << 20] ^ 1], 2 << 20).unwrap();
    assert_eq!(verify(&depot)[0].wrong, [2]);
    same(read(&depot, "a").unwrap(), &wanted);
    assert_eq!(verify(&depot)[0].wrong, [0u64; 0]);
}

#[test] //= KANGAROO-20 depot#room
fn writer_waits_for_room() {
    let (far, dir) = both();
    let depot = with(&far, &dir, of_quota(20 << 20));
    far.set_away(true);
    put(&depot, "a", &bytes(12 << 20, 1));
    thread::scope(|scope| {
        let second = scope.spawn(|| put(&depot, "b", &bytes(12 << 20, 2)));
        // The second put needs room, and the first has not been delivered.
        let limit = Some(Duration::from_millis(300));
        let error = depot.push(&Scope::Url(url("a")), limit).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(!second.is_finished());
        assert!(depot.usage().taken <= 20 << 20);
        far.set_away(false);
        second.join().unwrap();
    });
    push(&depot);
    same(far.get("a").unwrap(), bytes(12 << 20, 1));
    same(far.get("b").unwrap(), bytes(12 << 20, 2));
}

#[test] //= depot#room
fn open_descriptor_counts_against_quota() {
    let (far, dir) = both();
    far.put("a", &bytes(6 << 20, 1));
    far.put("b", &bytes(6 << 20, 2));
    let depot = with(&far, &dir, of_quota(10 << 20));
    let reading = depot.read(&url("a"), &who(), Fresh::Usual).unwrap();
    // A program that received the descriptor keeps it open.
    let theirs = reading.file().try_clone().unwrap();
    drop(reading);
    let error = read(&depot, "b").unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    let usage = depot.usage();
    assert_eq!((usage.taken, usage.kept), (6 << 20, 6 << 20));
    assert!(depot.list("").is_empty());
    drop(theirs);
    soon(|| depot.usage().taken == 0);
    assert_eq!(read(&depot, "b").unwrap().len(), 6 << 20);
}

#[test] //= KANGAROO-42 depot#commit-and-push
fn push_ignores_later_writes() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let busy = depot.put(&url("busy"), &who(), &over()).unwrap();
    busy.write(0, b"goes on").unwrap();
    put(&depot, "a", b"done");
    depot
        .push(&Scope::All, Some(Duration::from_secs(30)))
        .unwrap();
    same(far.get("a").unwrap(), b"done");
    busy.end().unwrap();
    push(&depot);
    same(far.get("busy").unwrap(), b"goes on");
}

#[test] //= GASS-23 depot#how-fresh-a-read-is
fn weak_copy_needs_its_origin() {
    let (far, dir) = both();
    far.put("weak", b"fetched");
    let depot = with(
        &far,
        &dir,
        Rules {
            fresh: Duration::ZERO,
            ..rules()
        },
    );
    same(read(&depot, "weak").unwrap(), b"fetched");
    put(&depot, "strong", b"delivered by us");
    push(&depot);
    far.set_away(true);
    let error = read(&depot, "weak").unwrap_err();
    assert!(error.to_string().contains("far"), "{error}");
    same(read(&depot, "strong").unwrap(), b"delivered by us");
    // Other users are refused while the origin cannot confirm their access.
    let other = Who {
        audience: "another user".into(),
        credential: None,
    };
    let error = depot.read(&url("strong"), &other, Fresh::Any).unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    // `Fresh::Any` accepts the cached copy.
    assert_eq!(
        depot.read(&url("weak"), &who(), Fresh::Any).unwrap().size(),
        7
    );
}

fn prefetch(depot: &Depot, name: &str, rate: u64) -> Result<u64, Error> {
    let rate = rate.try_into().unwrap();
    let lazily = depot.prefetch(&url(name), &who(), rate, &|| true)?;
    Ok(lazily.size())
}

#[test] //= depot#reading
fn prefetch_obeys_its_rate() {
    let (far, dir) = both();
    far.put("a", &bytes(5 << 20, 5));
    let depot = depot(&far, &dir);
    let began = Instant::now();
    assert_eq!(prefetch(&depot, "a", 4 << 20).unwrap(), 5 << 20);
    assert!(began.elapsed() >= Duration::from_millis(1000), "too fast");
    let visits = far.visits.load(SeqCst);
    same(read(&depot, "a").unwrap(), bytes(5 << 20, 5));
    // A cached file is not slowed by any rate.
    assert_eq!(prefetch(&depot, "a", 1).unwrap(), 5 << 20);
    assert_eq!(
        depot.holds(&url("a"))[0].transfers,
        1,
        "whatever the slices"
    );
    assert!(
        far.visits.load(SeqCst) <= visits + 2,
        "it asks what there is"
    );
}

#[test] //= depot#reading
fn reader_overtakes_prefetch() {
    let (far, dir) = both();
    far.put("a", &bytes(5 << 20, 5));
    let depot = depot(&far, &dir);
    thread::scope(|scope| {
        // At this rate the rest would take months.
        let ahead = scope.spawn(|| prefetch(&depot, "a", 1));
        soon(|| {
            depot
                .holds(&url("a"))
                .first()
                .is_some_and(|held| held.transfers > 0)
        });
        same(read(&depot, "a").unwrap(), bytes(5 << 20, 5));
        assert_eq!(ahead.join().unwrap().unwrap(), 5 << 20);
    });
}

#[test] //= depot#reading
fn unwanted_prefetch_ends() {
    let (far, dir) = both();
    far.put("a", &bytes(5 << 20, 5));
    let depot = depot(&far, &dir);
    let is_wanted = AtomicBool::new(true);
    let rate = 1.try_into().unwrap();
    thread::scope(|scope| {
        let ahead =
            scope.spawn(|| depot.prefetch(&url("a"), &who(), rate, &|| is_wanted.load(SeqCst)));
        soon(|| {
            depot
                .holds(&url("a"))
                .first()
                .is_some_and(|held| held.transfers > 0)
        });
        is_wanted.store(false, SeqCst);
        let ended = ahead.join().unwrap();
        assert!(matches!(ended, Err(Error::Unwanted)), "{ended:?}");
    });
    assert_eq!(depot.holds(&url("a"))[0].transfers, 1);
    // The file changes, so its partial is useless.
    far.put("a", &bytes(3 << 20, 6));
    assert_eq!(prefetch(&depot, "a", 1 << 30).unwrap(), 3 << 20);
    same(read(&depot, "a").unwrap(), bytes(3 << 20, 6));
}

#[test] //= depot#room
fn costly_file_outlives_cheap_one() {
    let (far, dir) = both();
    let small = || Rules {
        quota: Some(10 << 20),
        ..rules()
    };
    let first = with(&far, &dir, small());
    for name in ["slow", "quick", "new"] {
        far.put(name, &bytes(4 << 20, 1));
    }
    for name in ["slow", "quick"] {
        read(&first, name).unwrap();
    }
    let root = first.root().to_owned();
    drop(first);
    let records = rusqlite::Connection::open(root.join("held.db")).unwrap();
    let dear = "UPDATE holdings SET price = 3 WHERE url LIKE '%/slow'";
    assert_eq!(records.execute(dear, []).unwrap(), 1);
    drop(records);
    let again = with(&far, &dir, small());
    read(&again, "new").unwrap();
    let names: Vec<_> = again.list("").into_iter().map(|held| held.url).collect();
    assert_eq!(names, [url("new"), url("slow")]);
}
