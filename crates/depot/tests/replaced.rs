//! What something newer replaces, and what rests on it: as the kill matrix found it.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, both, by, depot, killed, over, push, put, rules, same, url, who, with};
use godwit_core::{Algorithm, Digest, Version, holding::Base};
use godwit_depot::{Depot, Edit, Fresh, Put, Rules, Scope};
use godwit_store::Trouble;
use std::{os::unix::fs::FileExt, time::Duration};

/// Has the target publish a file and its answer be lost, and nobody reach it then.
fn publish_in_vain(far: &Far, depot: &Depot, name: &str, bytes: &[u8], base: Base) {
    far.trouble(Trouble::LosesFinish);
    put_on(depot, name, base, bytes);
    while !far.store.left().is_empty() {
        std::thread::yield_now();
    }
    far.set_away(true);
}

fn patch(depot: &Depot, name: &str, offset: u64, bytes: &[u8]) {
    let writing = depot.put_into(&url(name), &who(), "").unwrap();
    writing.write(offset, bytes).unwrap();
    writing.end().unwrap();
}

/// Puts what is to come over these bytes only.
fn put_over(depot: &Depot, name: &str, base: &[u8], bytes: &[u8]) {
    let base = Version::Strong(Digest::of(Algorithm::Blake3, base));
    put_on(depot, name, Base::Seen(base), bytes);
}

fn put_on(depot: &Depot, name: &str, base: Base, bytes: &[u8]) {
    let put = Put { base, ..over() };
    let writing = depot.put(&url(name), &who(), &put).unwrap();
    writing.write(0, bytes).unwrap();
    writing.end().unwrap();
}

#[test]
fn what_was_replaced_before_an_end_does_not_come_after_what_replaced_it() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    publish_in_vain(&far, &depot, "a", b"one", Base::Any);
    patch(&depot, "a", 3, b" and more");
    put(&depot, "a", b"newer");
    let copy = killed(depot);
    let again = self::depot(&far, &copy);
    far.set_away(false);
    push(&again);
    same(far.get("a").unwrap(), b"newer");
    assert!(again.queue().is_empty(), "{:?}", again.queue());
}

#[test]
fn what_somebody_still_reads_finds_what_it_was_written_over() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    put(&depot, "a", b"one");
    put_over(&depot, "a", b"one", b"two");
    let reading = depot.read(&url("a"), &who(), Fresh::Any).unwrap();
    put(&depot, "a", b"three");
    far.set_away(false);
    push(&depot);
    same(far.get("a").unwrap(), b"three");
    drop(reading);
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
}

#[test]
fn what_is_held_and_replaced_gives_way_when_nobody_reads_it_any_more() {
    let (far, dir) = both();
    far.put("a", b"somebody else's");
    let depot = with(
        &far,
        &dir,
        Rules {
            movers: 1,
            ..rules()
        },
    );
    far.set_away(true);
    put_over(&depot, "a", b"one", b"two");
    let reading = depot.read(&url("a"), &who(), Fresh::Any).unwrap();
    put(&depot, "a", b"three");
    far.set_away(false);
    let until = Some(Duration::from_secs(30));
    let held = depot.push(&Scope::All, until);
    assert!(held.is_err(), "it is in use, and a conflict");
    same(far.get("a").unwrap(), b"somebody else's");
    // Whoever delivers this has left the other.
    put(&depot, "b", b"another");
    depot.push(&Scope::Url(url("b")), until).unwrap();
    drop(reading);
    push(&depot);
    same(far.get("a").unwrap(), b"three");
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
}

#[test]
fn of_a_descriptor_and_a_file_that_was_put_meanwhile_the_last_to_end_counts() {
    // Whether it is just being delivered when it ends is chance: it comes to that in some of them.
    for _ in 0..60 {
        let (far, dir) = both();
        let depot = depot(&far, &dir);
        far.set_away(true);
        let anew = Edit {
            create: true,
            truncate: true,
            ..Edit::default()
        };
        let editing = depot.edit(&url("a"), &who(), &anew).unwrap();
        editing.file().unwrap().write_all_at(b"later", 0).unwrap();
        put(&depot, "a", b"meanwhile");
        editing.end().unwrap();
        far.set_away(false);
        push(&depot);
        same(far.get("a").unwrap(), b"later");
        assert!(depot.queue().is_empty(), "{:?}", depot.queue());
    }
}

#[test]
fn what_was_asked_for_is_known_after_an_end_though_more_was_written_since() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    publish_in_vain(&far, &depot, "a", b"one", Base::Absent);
    patch(&depot, "a", 3, b" and more");
    let copy = killed(depot);
    // As of a server that counts no attempts: it does not know as what an upload was published.
    for entry in std::fs::read_dir(far.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".was") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let again = self::depot(&far, &copy);
    far.set_away(false);
    push(&again);
    same(far.get("a").unwrap(), b"one and more");
}

#[test]
fn what_was_removed_before_an_end_finds_what_it_was_written_over() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    put(&depot, "a", b"one");
    put_over(&depot, "a", b"one", b"two");
    depot.unlink(&url("a"), by()).unwrap();
    let copy = killed(depot);
    let again = self::depot(&far, &copy);
    far.set_away(false);
    push(&again);
    assert_eq!(far.get("a"), None);
    assert!(again.queue().is_empty(), "{:?}", again.queue());
}
