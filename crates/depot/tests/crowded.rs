//! Many concurrent writers when there is not room for all of them.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, both, bytes, over, push, put, rules, same, url, who};
use godwit_depot::{Depot, Error, Result, Rules, Writing};
use std::{sync::mpsc, thread, time::Duration};

const MIB: u64 = 1 << 20;

fn of_quota(quota: u64, far: &Far, dir: &tempfile::TempDir) -> Depot {
    let rules = Rules {
        quota: Some(quota),
        ..rules()
    };
    Depot::open(&dir.path().join("depot"), rules, far.connect()).unwrap()
}

fn begin(depot: &Depot, name: &str) -> Writing {
    depot.put(&url(name), &who(), &over()).unwrap()
}

/// Puts many files at once, and returns the results in the order of their names.
fn put_all(depot: &Depot, contents: &[Vec<u8>], is_known: bool) -> Vec<Result<u64>> {
    let all = thread::scope(|scope| {
        let (ended, ends) = mpsc::channel();
        for (nth, content) in contents.iter().enumerate() {
            let ended = ended.clone();
            scope.spawn(move || {
                let writing = begin(depot, &nth.to_string());
                let put = || {
                    if is_known {
                        writing.take_room(content.len() as u64, &|_| true)?;
                    }
                    for (nth, part) in content.chunks(MIB as usize).enumerate() {
                        writing.write(nth as u64 * MIB, part)?;
                    }
                    writing.end()
                };
                ended.send((nth, put())).unwrap();
            });
        }
        let end = |_| match ends.recv_timeout(Duration::from_secs(60)) {
            Ok(end) => end,
            Err(_) => {
                depot.end(); // or the test would wait with them
                panic!("they wait for each other");
            }
        };
        let mut all: Vec<_> = contents.iter().map(end).collect();
        all.sort_by_key(|(nth, _)| *nth);
        all
    });
    all.into_iter().map(|(_, put)| put).collect()
}

#[test]
fn sized_writers_all_finish() {
    let (far, dir) = both();
    let depot = of_quota(5_000_000, &far, &dir);
    let contents: Vec<_> = (0..6).map(|seed| bytes(2_000_000, seed)).collect();
    for put in put_all(&depot, &contents, true) {
        put.unwrap();
    }
    push(&depot);
    for (nth, content) in contents.iter().enumerate() {
        same(far.get(&nth.to_string()).unwrap(), content);
    }
}

#[test]
fn unsized_writers_let_oldest_finish() {
    let (far, dir) = both();
    let depot = of_quota(5_000_000, &far, &dir);
    let contents: Vec<_> = (0..6).map(|seed| bytes(2_000_000, seed)).collect();
    let ends = put_all(&depot, &contents, false);
    push(&depot);
    let mut kept = 0;
    for (nth, (end, content)) in ends.iter().zip(&contents).enumerate() {
        match end {
            Ok(_) => {
                same(far.get(&nth.to_string()).unwrap(), content);
                kept += 1;
            }
            Err(Error::Crowded { .. }) => assert_eq!(far.get(&nth.to_string()), None),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(kept >= 1, "{ends:?}");
}

#[test] //= KANGAROO-20
fn newest_writer_breaks_deadlock() {
    let (far, dir) = both();
    let depot = of_quota(4 * MIB, &far, &dir);
    let (first, last) = (begin(&depot, "first"), begin(&depot, "last"));
    let part = bytes(MIB as usize, 1);
    for at in [0, MIB] {
        first.write(at, &part).unwrap();
        last.write(at, &part).unwrap();
    }
    thread::scope(|scope| {
        let going_on = scope.spawn(|| {
            first.write(2 * MIB, &part).unwrap();
            first.end().unwrap();
        });
        let error = last.write(2 * MIB, &part).unwrap_err();
        assert!(matches!(error, Error::Crowded { .. }), "{error}");
        let words = error.to_string();
        for said in ["1048576 bytes more", "2097152 of 4194304", "began last"] {
            assert!(words.contains(said), "{words}");
        }
        drop(last);
        going_on.join().unwrap();
    });
    push(&depot);
    assert_eq!(far.get("first").unwrap().len() as u64, 3 * MIB);
    assert_eq!(far.get("last"), None);
    assert_eq!(depot.list("").len(), 1);
}

#[test]
fn first_waiter_is_not_overtaken() {
    let (far, dir) = both();
    let depot = of_quota(4 * MIB, &far, &dir);
    far.set_away(true);
    put(&depot, "pending", &bytes(2 << 20, 1));
    let (large, small) = (begin(&depot, "large"), begin(&depot, "small"));
    let (told, tells) = mpsc::channel();
    thread::scope(|scope| {
        let (large, heard) = (&large, told.clone());
        let waiting = scope
            .spawn(move || large.take_room(3 * MIB, &|full| heard.send(full.to_string()).is_ok()));
        let words = tells.recv().unwrap();
        for said in [
            "3145728 bytes are wanted of 4194304",
            "2097152 wait for delivery",
        ] {
            assert!(words.contains(said), "{words}");
        }
        // There is room for the small file alone.
        let refused = small.take_room(MIB, &|full| {
            assert!(full.to_string().contains("one other waits"), "{full}");
            false
        });
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        far.set_away(false);
        waiting.join().unwrap().unwrap();
    });
    small.take_room(MIB, &|_| true).unwrap();
    let never = small.take_room(5 * MIB, &|_| true);
    assert!(matches!(never, Err(Error::TooLarge { .. })), "{never:?}");
}
