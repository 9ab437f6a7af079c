//! Superseded files and what depends on them: cases from the kill matrix.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Far, as_killed, both, by, depot, killed, over, push, put, put_into, read, rules, same, until,
    url, who, with,
};
use godwit_core::{Algorithm, Digest, Version, holding::Base};
use godwit_depot::{Depot, Edit, Editing, Ended, Error, Fresh, Put, Rules, Scope};
use godwit_store::Defect;
use std::{
    os::unix::fs::FileExt,
    sync::{atomic::Ordering::SeqCst, mpsc},
    thread,
    time::Duration,
};

/// Publishes a file at the target, loses the answer, and takes the target away.
fn publish_in_vain(far: &Far, depot: &Depot, name: &str, bytes: &[u8], base: Base) {
    far.trouble(Defect::LosesFinish);
    put_on(depot, name, base, bytes);
    while !far.store.left().is_empty() {
        std::thread::yield_now();
    }
    far.set_away(true);
}

/// Puts a file on the condition that the target has the bytes of `base`.
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
fn kill_frees_superseded_file() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    put(&depot, "a", b"one");
    let reading = depot.read(&url("a"), &who(), Fresh::Any).unwrap();
    put(&depot, "a", b"newer");
    assert_eq!(depot.queue().len(), 2, "a reader has it open");
    let copy = as_killed(&depot);
    drop((reading, depot));
    let again = self::depot(&far, &copy);
    until("it has given way", || again.queue().len() == 1);
    far.set_away(false);
    push(&again);
    same(far.get("a").unwrap(), b"newer");
}

#[test]
fn read_file_keeps_its_base() {
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
fn superseded_conflict_ends_with_reader() {
    let (far, dir) = both();
    far.put("a", b"another's");
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
    same(far.get("a").unwrap(), b"another's");
    // The mover has left the superseded file.
    put(&depot, "b", b"another");
    depot.push(&Scope::Url(url("b")), until).unwrap();
    drop(reading);
    push(&depot);
    same(far.get("a").unwrap(), b"three");
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
}

#[test] //= GASS-17
fn last_of_edit_and_put_wins() {
    // It is random whether the file is being delivered when it closes.
    for _ in 0..10 {
        let (far, dir) = both();
        let depot = depot(&far, &dir);
        far.set_away(true);
        let editing = edited(&depot);
        put(&depot, "a", b"meanwhile");
        editing.end().unwrap();
        far.set_away(false);
        push(&depot);
        same(far.get("a").unwrap(), b"later");
        assert!(depot.queue().is_empty(), "{:?}", depot.queue());
    }
}

fn edited(depot: &Depot) -> Editing {
    let anew = Edit {
        create: true,
        truncate: true,
        ..Edit::default()
    };
    let editing = depot.edit(&url("a"), &who(), &anew).unwrap();
    editing.file().unwrap().write_all_at(b"later", 0).unwrap();
    editing
}

fn ends_as_last(editing: Editing) {
    let ended = editing.end().unwrap();
    assert!(matches!(ended, Ended::Last(_)), "{ended:?}");
}

/// Edits `a` by descriptor, puts another file while the edit is being sent, and then closes the edit. `then` runs
/// while the mover still waits.
fn ended_while_it_goes(far: &Far, depot: &Depot, then: impl FnOnce()) {
    far.write_gate.shut("a");
    let editing = edited(depot);
    thread::scope(|scope| {
        // A push sends the open file before its end.
        scope.spawn(|| drop(depot.push(&Scope::All, Some(Duration::from_secs(30)))));
        far.write_gate.reached(1);
        put(depot, "a", b"meanwhile");
        ends_as_last(editing);
        then();
        far.write_gate.open();
    });
}

#[test]
fn conflict_after_publish_keeps_bytes() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.flush_gate.shut("a");
    let editing = edited(&depot);
    thread::scope(|scope| {
        scope.spawn(|| drop(depot.push(&Scope::All, Some(Duration::from_secs(30)))));
        far.flush_gate.reached(1);
        same(far.get("a").unwrap(), b"later");
        put(&depot, "a", b"meanwhile");
        let file = editing.file().unwrap();
        file.write_all_at(b" and more", 5).unwrap();
        ends_as_last(editing);
        far.flush_gate.open();
    });
    // Its base is not at the target any more.
    let pushed = depot.push(&Scope::All, Some(Duration::from_secs(30)));
    assert!(matches!(pushed, Err(Error::Held { .. })), "{pushed:?}");
    same(far.get("a").unwrap(), b"meanwhile");
    same(read(&depot, "a").unwrap(), b"later and more");
}

#[test]
fn kill_forgets_no_publication() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    publish_in_vain(&far, &depot, "a", b"one", Base::Absent);
    put_into(&depot, "a", 3, b" and more");
    let copy = killed(depot);
    // Without `.was` files the server cannot tell which upload it published.
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
fn unlinked_file_keeps_its_base() {
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

#[test] //= delivery#put-and-conflicts
fn exclusive_put_conflict_keeps_bytes() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    far.set_away(true);
    put_on(&depot, "a", Base::Absent, b"ours");
    far.put("a", b"another's");
    far.set_away(false);
    let pushed = depot.push(&Scope::All, Some(Duration::from_secs(30)));
    assert!(matches!(pushed, Err(Error::Held { .. })), "{pushed:?}");
    assert!(depot.queue()[0].is_conflict, "{:?}", depot.queue());
    same(far.get("a").unwrap(), b"another's");
    same(read(&depot, "a").unwrap(), b"ours");
}

#[test] //= depot#how-fresh-a-read-is
fn delivered_file_is_compared_once() {
    let (far, dir) = both();
    far.tells_no_touch.store(true, SeqCst);
    let depot = depot(&far, &dir);
    put(&depot, "a", b"ours");
    push(&depot);
    // A file that changed just now would be compared again.
    far.put_as_of_before("a", b"ours");
    let (said, heard) = mpsc::channel();
    far.on_ask(move |what, _| {
        said.send(what).unwrap();
        Ok(())
    });
    let asked = || {
        drop(depot.read(&url("a"), &who(), Fresh::Now).unwrap());
        heard.try_iter().collect::<Vec<_>>()
    };
    assert_eq!(asked(), ["stat", "digest"]);
    assert_eq!(asked(), ["stat"]);
}

#[test]
fn proved_read_needs_its_origin() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    put(&depot, "a", b"ours");
    push(&depot);
    far.set_away(true);
    // `Fresh::Now` accepts the version that was delivered a moment ago.
    drop(depot.read(&url("a"), &who(), Fresh::Now).unwrap());
    let read = depot.read(&url("a"), &who(), Fresh::Proved);
    assert!(matches!(read, Err(Error::Store(_))), "{read:?}");
}

#[test]
fn last_close_survives_kill() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    let mut copy = None;
    ended_while_it_goes(&far, &depot, || {
        copy = Some(as_killed(&depot));
    });
    push(&depot);
    drop(depot);
    std::fs::remove_file(far.dir.path().join("a")).unwrap();
    let copy = copy.unwrap();
    let again = self::depot(&far, &copy);
    same(read(&again, "a").unwrap(), b"later");
    push(&again);
    same(far.get("a").unwrap(), b"later");
    assert!(again.queue().is_empty(), "{:?}", again.queue());
}

#[test]
fn rename_moves_file_in_flight() {
    let (far, dir) = both();
    let depot = depot(&far, &dir);
    ended_while_it_goes(&far, &depot, || {
        depot.rename(&url("a"), &url("b"), by()).unwrap();
    });
    push(&depot);
    same(far.get("b").unwrap(), b"later");
    assert_eq!(far.get("a"), None);
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
}
