//! Partial reads: which bytes are fetched, and when.
#![allow(clippy::unwrap_used)]

mod common;

use common::{both, bytes, depot, read, same, url, who};
use godwit_core::{Extents, STEP_BYTES};
use godwit_depot::{Depot, Error, Fresh, Lazily};
use std::{
    ops::Range,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

fn open(depot: &Depot) -> Lazily {
    depot.lazily(&url("a"), &who(), Fresh::Usual).unwrap()
}

fn ensure(lazily: &Lazily, range: Range<u64>) -> Result<(), Error> {
    lazily.ensure(&Extents::from(range), &|| true)
}

fn present(depot: &Depot) -> u64 {
    depot.list("")[0].present
}

/// Waits until so many bytes are cached.
fn until_present(depot: &Depot, least: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while present(depot) < least {
        assert!(Instant::now() < until, "{} of {least}", present(depot));
        thread::yield_now();
    }
}

#[test]
fn random_reads_fetch_only_their_steps() {
    let (far, dir) = both();
    let wanted = bytes(9 << 20, 4);
    far.put("a", &wanted);
    let depot = depot(&far, &dir);
    let lazily = open(&depot);
    let mut part = vec![0; 100];
    for at in [5_000_000, 100, 9_000_000] {
        ensure(&lazily, at..at + 100).unwrap();
        lazily.file().read_exact_at(&mut part, at).unwrap();
        same(&part, &wanted[at as usize..at as usize + 100]);
    }
    assert_eq!(present(&depot), 3 * STEP_BYTES);
    same(read(&depot, "a").unwrap(), &wanted);
}

#[test]
fn many_ranges_are_one_transfer() {
    let (far, dir) = both();
    let wanted = bytes(9 << 20, 4);
    far.put("a", &wanted);
    let asked = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&asked);
    far.on_ask(move |what, _| {
        *seen.lock().unwrap() += u32::from(what == "read");
        Ok(())
    });
    let depot = depot(&far, &dir);
    let lazily = open(&depot);
    let mut ranges = Extents::new();
    for mib in [8, 1, 6, 3] {
        ranges.insert(mib << 20..(mib << 20) + 10);
    }
    lazily.ensure(&ranges, &|| true).unwrap();
    assert_eq!(*asked.lock().unwrap(), 1);
    assert_eq!(present(&depot), 4 * STEP_BYTES);
    lazily.ensure(&ranges, &|| true).unwrap();
    assert_eq!(*asked.lock().unwrap(), 1);
}

#[test]
fn sequence_comes_before_it_is_asked_for() {
    let (far, dir) = both();
    let wanted = bytes(9 << 20, 4);
    far.put("a", &wanted);
    let depot = depot(&far, &dir);
    let lazily = open(&depot);
    for at in (0..4 << 20).step_by(128 << 10) {
        ensure(&lazily, at..at + (128 << 10)).unwrap();
    }
    until_present(&depot, 6 << 20);
    let mut all = vec![0; 4 << 20];
    lazily.file().read_exact_at(&mut all, 0).unwrap();
    same(&all, &wanted[..4 << 20]);
}

#[test]
fn strides_come_without_the_gaps() {
    let (far, dir) = both();
    far.put("a", &bytes(40 << 20, 4));
    let depot = depot(&far, &dir);
    let lazily = open(&depot);
    for nth in 0..16 {
        let at = nth << 21;
        ensure(&lazily, at..at + 1000).unwrap();
    }
    until_present(&depot, 20 * STEP_BYTES);
    assert_eq!(present(&depot), 20 * STEP_BYTES);
}

#[test]
fn changed_origin_ends_a_partial_read() {
    let (far, dir) = both();
    far.put_as_of_before("a", &bytes(4 << 20, 1));
    let depot = depot(&far, &dir);
    let lazily = depot.lazily(&url("a"), &who(), Fresh::Now).unwrap();
    ensure(&lazily, 0..1000).unwrap();
    far.put_as_of_before("a", &bytes(4 << 20, 2));
    let error = ensure(&lazily, 3 << 20..4 << 20).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
}

#[test]
fn readers_wait_for_one_transfer() {
    let (far, dir) = both();
    far.put("a", &bytes(9 << 20, 4));
    let asked = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&asked);
    far.on_ask(move |what, _| {
        *seen.lock().unwrap() += u32::from(what == "read");
        Ok(())
    });
    let depot = depot(&far, &dir);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| ensure(&open(&depot), 0..1 << 20).unwrap());
        }
    });
    assert_eq!(*asked.lock().unwrap(), 1);
}
