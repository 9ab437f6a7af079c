//! Changes of a name while a put is being closed.

use super::{Gate, Shut, World, gated, opened, set_away, shut_away};
use crate::{
    Depot, Edit, Ended, Error, Fresh, Writing,
    api::write::Adopted,
    id::Id,
    plan::entry::Entry,
    tests::tested::{by, far, patch, push, put, putting, until, url},
};
use godwit_core::holding::{Base, Notices};
use godwit_store::{Defect, Dir, Error as StoreError, Faulty, Opener};
use std::{fs, io::Read, os::unix::fs::FileExt, process::Command, sync::Arc, thread};

/// Returns what a reader gets; `None` if there is no such name.
fn read(depot: &Depot, name: &str) -> Option<Vec<u8>> {
    let reading = match depot.read(&url(name), by().who, Fresh::Usual) {
        Err(Error::Store(error)) if matches!(*error, StoreError::Missing { .. }) => return None,
        reading => reading.unwrap(),
    };
    let mut bytes = Vec::new();
    reading.file().read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

/// Lets the target come back, and pushes.
fn deliver(gate: &Gate, depot: &Depot) {
    set_away(gate, false);
    push(depot);
}

/// A depot with a file that arrived unnoticed, and a later patch of it.
fn half_there() -> (World, Arc<Entry>) {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let store = Arc::new(Faulty::new(dir, [Defect::LosesFinish]));
    let gate = Arc::new(Gate::default());
    gate.change(|state| state.away_with = Some("a".into()));
    let depot = opened(&gate, home.path(), far.path(), store);
    let entry = put(&depot, "a", b"first");
    gate.wait(|state| state.refused > 0);
    patch(&depot, "a", 5, b" and more");
    ((gate, far, home, depot), entry)
}

/// Runs `meanwhile` between the lookup of a reader and its request.
fn while_somebody_asks<T: Send>(
    gate: &Gate,
    ask: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> T {
    gate.change(|state| state.is_shut_out = true);
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("reader".into());
        let reader = reader.spawn_scoped(scope, ask).unwrap();
        gate.wait(|state| state.waiting > 0);
        meanwhile();
        gate.change(|state| state.is_shut_out = false);
        reader.join().unwrap()
    })
}

/// Closes `writing`, and runs `meanwhile` once it has its number and is not durable.
fn while_it_ends(gate: &Gate, writing: Writing, but: &Entry, meanwhile: impl FnOnce()) {
    gate.change(|state| (state.shut, state.waiting) = (Shut::But(but.id), 0));
    thread::scope(|scope| {
        let ending = scope.spawn(|| writing.end().unwrap());
        gate.wait(|state| state.waiting > 0);
        meanwhile();
        gate.change(|state| state.shut = Shut::Nothing);
        ending.join().unwrap();
    });
}

/// A renamed file arrives, with a later number, while its successor is being closed.
#[test] //= KANGAROO-9
fn put_outranks_late_arrival() {
    let (gate, far, _home, depot) = shut_away();
    let first = put(&depot, "a", b"first");
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    let second = putting(&depot, "b", b"second");
    while_it_ends(&gate, second, &first, || {
        set_away(&gate, false);
        let there = far.path().join("b");
        until("it arrives", || {
            fs::read(&there).is_ok_and(|is| is == b"first")
        });
    });
    assert_eq!(read(&depot, "b").unwrap(), b"second");
    // A later patch goes into the successor.
    patch(&depot, "b", 6, b" and more");
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"second and more");
    assert_eq!(read(&depot, "b").unwrap(), b"second and more");
}

/// The closing writer may have died unanswered; the patch is answered, so it must keep both.
#[test] //= delivery#put-and-conflicts
fn patch_joins_file_being_closed() {
    for is_by_hand in [false, true] {
        let (gate, far, _home, depot) = shut_away();
        let first = put(&depot, "a", b"first");
        let second = putting(&depot, "a", b"second");
        let write = || match is_by_hand {
            false => patch(&depot, "a", 6, b" and more"),
            true => {
                let editing = depot.edit(&url("a"), by().who, &Edit::default()).unwrap();
                let file = editing.file().unwrap();
                file.write_all_at(b" and more", 6).unwrap();
                assert!(matches!(editing.end(), Ok(Ended::Last(_))));
            }
        };
        thread::scope(|scope| {
            while_it_ends(&gate, second, &first, || {
                let writer = scope.spawn(write);
                let waits = || depot.inner.plan().ends.waiting > 0;
                let is_on_its_way = || gate.state().waiting > 1 || writer.is_finished();
                until("they wait", || waits() || is_on_its_way());
            });
        });
        assert_eq!(read(&depot, "a").unwrap(), b"second and more");
        deliver(&gate, &depot);
        assert_eq!(fs::read(far.path().join("a")).unwrap(), b"second and more");
    }
}

/// A removed file has its bytes on the disk a moment longer; no patch changes them.
#[test]
fn patch_spares_removed_bytes() {
    let (gate, _far, _home, depot) = shut_away();
    let under = put(&depot, "a", b"what was there");
    let into = depot.patch(&url("a"), by().who, "").unwrap();
    into.write(0, b"INTO").unwrap();
    let id = into.entry.id;
    gate.change(|state| state.shut = Shut::Only(id));
    thread::scope(|scope| {
        let ending = scope.spawn(|| into.end());
        gate.wait(|state| state.waiting > 0);
        // `is_gone` is set before the bytes are removed.
        under.lock().is_gone = true;
        gate.change(|state| state.shut = Shut::Nothing);
        ending.join().unwrap().unwrap();
    });
    let bytes = fs::read(depot.inner.disk.path(under.id)).unwrap();
    assert_eq!(bytes, b"what was there");
}

/// A starting node scans for unseen writes, and an open stops the scan. The next close finds them.
#[test]
fn unseen_writes_survive_a_second_open() {
    let (gate, far, home, depot) = gated();
    fs::write(far.path().join("a"), b"as it was").unwrap();
    let editing = depot.edit(&url("a"), by().who, &Edit::default()).unwrap();
    editing.file().unwrap().write_all_at(b"is", 0).unwrap();
    // The node dies while the program has the file open.
    let copy = home.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let from = home.path().join("depot");
    let copied = Command::new("cp").arg("-r").args([&from, &copy]).status();
    assert!(copied.unwrap().success());
    let path = depot.inner.disk.path(editing.user.entry.id);
    let path = copy
        .join("depot")
        .join(path.strip_prefix(depot.inner.disk.root()).unwrap());
    let theirs = fs::File::options().write(true).open(path).unwrap();
    let store = Arc::new(Dir::open(far.path(), "tests", Opener::Myself).unwrap());
    let after = opened(&gate, &copy, far.path(), store);
    let entry = after.inner.plan().called(&url("a")).remove(0);
    // The open has stopped the scan.
    entry.lock().machine.close(Notices::None);
    let again = after.edit(&url("a"), by().who, &Edit::default()).unwrap();
    drop(theirs);
    assert!(matches!(again.end(), Ok(Ended::Last(_))));
    push(&after);
    assert_eq!(fs::read(far.path().join("a")).unwrap(), b"is it was");
}

#[test] //= KANGAROO-33
fn unlink_during_close_wins() {
    let (gate, far, _home, depot) = shut_away();
    let first = put(&depot, "a", b"first");
    let second = putting(&depot, "a", b"second");
    while_it_ends(&gate, second, &first, || {
        depot.unlink(&url("a"), by()).unwrap();
        assert_eq!(read(&depot, "a"), None);
    });
    assert_eq!(read(&depot, "a"), None);
    deliver(&gate, &depot);
    assert!(!far.path().join("a").exists());
}

/// The file is removed or renamed between lookup and request.
#[test] //= KANGAROO-33
fn read_in_flight_loses_name() {
    for to in [None, Some("b")] {
        let (gate, far, _home, depot) = shut_away();
        fs::write(far.path().join("a"), b"what was there").unwrap();
        let heard = while_somebody_asks(
            &gate,
            || read(&depot, "a"),
            || match to {
                None => depot.unlink(&url("a"), by()).unwrap(),
                Some(to) => depot.rename(&url("a"), &url(to), by()).unwrap(),
            },
        );
        assert_eq!((heard, read(&depot, "a")), (None, None));
        deliver(&gate, &depot);
        assert!(!far.path().join("a").exists());
    }
}

/// The file is renamed at the target, and another one takes its old name.
#[test] //= KANGAROO-33
fn look_follows_moved_file() {
    let (gate, far, _home, depot) = shut_away();
    fs::write(far.path().join("a"), b"one").unwrap();
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    let look = || depot.inner.stat_of(&url("b"), by().who).unwrap();
    let (_, stat) = while_somebody_asks(&gate, look, || {
        put(&depot, "a", b"another");
        deliver(&gate, &depot);
    });
    assert_eq!(stat.size, 3);
}

#[test] //= KANGAROO-53
fn rename_during_close_moves_file() {
    let (gate, far, _home, depot) = shut_away();
    let first = put(&depot, "a", b"first");
    let second = putting(&depot, "a", b"second");
    while_it_ends(&gate, second, &first, || {
        depot.rename(&url("a"), &url("b"), by()).unwrap();
    });
    let seen = || (read(&depot, "a"), read(&depot, "b").unwrap());
    assert_eq!(seen(), (None, b"second".to_vec()));
    deliver(&gate, &depot);
    assert_eq!(seen(), (None, b"second".to_vec()));
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"second");
}

#[test] //= KANGAROO-53
fn rename_over_closing_file_wins() {
    let (gate, far, _home, depot) = shut_away();
    let other = put(&depot, "b", b"other");
    let second = putting(&depot, "a", b"second");
    while_it_ends(&gate, second, &other, || {
        depot.rename(&url("b"), &url("a"), by()).unwrap();
    });
    assert_eq!(read(&depot, "a").unwrap(), b"other");
    deliver(&gate, &depot);
    assert_eq!(read(&depot, "a").unwrap(), b"other");
    assert_eq!(fs::read(far.path().join("a")).unwrap(), b"other");
}

/// The patch went into an absent file, as a read has confirmed. The rename follows later and is persisted.
#[test] //= KANGAROO-53
fn rename_of_new_patch_is_persisted() {
    let (gate, far, home, depot) = shut_away();
    patch(&depot, "a", 0, b"all of it");
    assert_eq!(read(&depot, "a").unwrap(), b"all of it");
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    let dir = Dir::open(far.path(), "tests", Opener::Myself).unwrap();
    drop(depot);
    let again = opened(&gate, home.path(), far.path(), Arc::new(dir));
    let seen = || (read(&again, "a"), read(&again, "b").unwrap());
    assert_eq!(seen(), (None, b"all of it".to_vec()));
    deliver(&gate, &again);
    assert_eq!(seen(), (None, b"all of it".to_vec()));
    assert!(!far.path().join("a").exists());
}

/// A file is adopted while its predecessor is found delivered and the remainder of that gets a new number.
#[test] //= KANGAROO-9
fn adopted_file_outranks_remainder() {
    let ((gate, far, home, depot), entry) = half_there();
    // An open file is delivered even if it is superseded.
    let reading = depot.read(&url("a"), by().who, Fresh::Usual).unwrap();
    let came = home.path().join("depot/came");
    fs::write(&came, b"second").unwrap();
    let adopted = Adopted {
        file: &came,
        base: &Base::Any,
        upload: None,
        upstream: &[],
        session: "",
        mode: None,
    };
    let (nothing, number) = (Id::of([0; 12]), entry.number());
    gate.change(|state| (state.is_shut_in, state.waiting) = (true, 0));
    thread::scope(|scope| {
        let coming = scope.spawn(|| depot.adopt(&url("a"), by().who, &adopted).unwrap());
        gate.wait(|state| state.waiting > 0);
        gate.change(|state| (state.shut, state.away_with) = (Shut::But(nothing), None));
        until("the rest has a new place", || entry.number() > number);
        gate.change(|state| {
            (state.is_shut_in, state.shut) = (false, Shut::Nothing);
        });
        set_away(&gate, true);
        coming.join().unwrap();
    });
    assert_eq!(read(&depot, "a").unwrap(), b"second");
    deliver(&gate, &depot);
    assert_eq!(read(&depot, "a").unwrap(), b"second");
    assert_eq!(fs::read(far.path().join("a")).unwrap(), b"second");
    // The predecessor was delivered first, without a conflict.
    assert!(depot.queue().is_empty());
    drop(reading);
}

/// A file arrived without its later patch; its rename cannot be recorded.
#[test] //= KANGAROO-53
fn unrecorded_rename_still_happens() {
    let ((gate, far, _home, depot), entry) = half_there();
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    gate.change(|state| (state.is_full, state.away_with) = (true, None));
    gate.wait(|state| state.fulls > 0);
    gate.change(|state| state.is_full = false);
    // The depot backs off longer after each attempt.
    until("it is there", || {
        depot.retry(&entry.id.to_string()).is_err() || far.path().join("b").exists()
    });
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"first and more");
    assert_eq!(read(&depot, "b").unwrap(), b"first and more");
    assert!(!far.path().join("a").exists());
}
