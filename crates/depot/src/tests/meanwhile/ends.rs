//! What happens to a name while somebody is about to be told that what they put there is kept.

use super::{Gate, Shut, World, gated, opened, set_away, shut_away};
use crate::{
    Depot, Edit, Ended, Error, Fresh, Writing,
    api::write::Adopted,
    disk::files::Id,
    plan::entry::Held,
    tests::tested::{by, far, push, put, put_into, putting, until, url},
};
use godwit_core::holding::{Base, Notices};
use godwit_store::{Defect, Dir, Error as StoreError, Faulty, Opener};
use std::{fs, io::Read, os::unix::fs::FileExt, process::Command, sync::Arc, thread};

/// Returns what a reader gets; nothing, where there is none of that name.
fn read(depot: &Depot, name: &str) -> Option<Vec<u8>> {
    let reading = match depot.read(&url(name), by().who, Fresh::Usual) {
        Err(Error::Store(error)) if matches!(*error, StoreError::Missing { .. }) => return None,
        reading => reading.unwrap(),
    };
    let mut bytes = Vec::new();
    reading.file().read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

/// Delivers all that waited for that.
fn deliver(gate: &Gate, depot: &Depot) {
    set_away(gate, false);
    push(depot);
}

/// One with a file that is there, of which nobody knows that yet, and what was put into it since.
fn half_there() -> (World, Arc<Held>) {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let store = Arc::new(Faulty::new(dir, [Defect::LosesFinish]));
    let gate = Arc::new(Gate::default());
    gate.change(|state| state.away_with = Some("a".into()));
    let depot = opened(&gate, home.path(), far.path(), store);
    let held = put(&depot, "a", b"first");
    gate.wait(|state| state.refused > 0);
    put_into(&depot, "a", 5, b" and more");
    ((gate, far, home, depot), held)
}

/// Returns what somebody hears who has found out where to ask, and asks there after that was done.
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

/// Ends what somebody writes, and does something else once it has its place and is not safe yet.
fn while_it_ends(gate: &Gate, writing: Writing, but: &Held, meanwhile: impl FnOnce()) {
    gate.change(|state| (state.shut, state.waiting) = (Shut::But(but.id), 0));
    thread::scope(|scope| {
        let ending = scope.spawn(|| writing.end().unwrap());
        gate.wait(|state| state.waiting > 0);
        meanwhile();
        gate.change(|state| state.shut = Shut::Nobody);
        ending.join().unwrap();
    });
}

/// What was renamed there arrives, under a number that is later, while something newer is about to be kept.
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
    // What is written now goes into that, too.
    put_into(&depot, "b", 6, b" and more");
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"second and more");
    assert_eq!(read(&depot, "b").unwrap(), b"second and more");
}

/// Whoever wrote that may be gone by now, and was told nothing; whoever writes into it is told that all of theirs is kept.
#[test] //= delivery#put-and-conflicts
fn patch_joins_file_being_closed() {
    for is_by_hand in [false, true] {
        let (gate, far, _home, depot) = shut_away();
        let first = put(&depot, "a", b"first");
        let second = putting(&depot, "a", b"second");
        let write = || match is_by_hand {
            false => put_into(&depot, "a", 6, b" and more"),
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
                let waits = || depot.inner.all().ends.waiting > 0;
                let is_on_its_way = || gate.state().waiting > 1 || writer.is_finished();
                until("they wait", || waits() || is_on_its_way());
            });
        });
        assert_eq!(read(&depot, "a").unwrap(), b"second and more");
        deliver(&gate, &depot);
        assert_eq!(fs::read(far.path().join("a")).unwrap(), b"second and more");
    }
}

/// A file that goes has its bytes on the disk for a moment longer: nothing is put into those.
#[test]
fn patch_spares_removed_bytes() {
    let (gate, _far, _home, depot) = shut_away();
    let under = put(&depot, "a", b"what was there");
    let into = depot.put_into(&url("a"), by().who, "").unwrap();
    into.write(0, b"INTO").unwrap();
    let id = into.held.id;
    gate.change(|state| state.shut = Shut::Only(id));
    thread::scope(|scope| {
        let ending = scope.spawn(|| into.end());
        gate.wait(|state| state.waiting > 0);
        // Its remover says so first.
        under.lock().is_gone = true;
        gate.change(|state| state.shut = Shut::Nobody);
        ending.join().unwrap().unwrap();
    });
    let bytes = fs::read(depot.inner.disk.path(under.id)).unwrap();
    assert_eq!(bytes, b"what was there");
}

/// A node that starts looks for what was written meanwhile, and a program that opens the file then stops that: what was
/// written is found later.
#[test]
fn unseen_writes_survive_a_second_open() {
    let (gate, far, home, depot) = gated();
    fs::write(far.path().join("a"), b"as it was").unwrap();
    let editing = depot.edit(&url("a"), by().who, &Edit::default()).unwrap();
    editing.file().unwrap().write_all_at(b"is", 0).unwrap();
    // The node dies, and the program has the file open still.
    let copy = home.path().join("copy");
    fs::create_dir(&copy).unwrap();
    let from = home.path().join("depot");
    let copied = Command::new("cp").arg("-r").args([&from, &copy]).status();
    assert!(copied.unwrap().success());
    let path = depot.inner.disk.path(editing.user.held.id);
    let path = copy
        .join("depot")
        .join(path.strip_prefix(depot.inner.disk.root()).unwrap());
    let theirs = fs::File::options().write(true).open(path).unwrap();
    let store = Arc::new(Dir::open(far.path(), "tests", Opener::Myself).unwrap());
    let after = opened(&gate, &copy, far.path(), store);
    let held = after.inner.all().called(&url("a")).remove(0);
    // As by a look for what was written that the opening stopped.
    held.lock().machine.close(Notices::None);
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

/// Somebody who reads has found out where it is, and looks there after it was removed or renamed.
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

/// It is renamed there, and something else put where it was.
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

/// It was put into nothing, which was found out when it was read: it is renamed in its turn, and that is on record.
#[test] //= KANGAROO-53
fn rename_of_new_patch_is_persisted() {
    let (gate, far, home, depot) = shut_away();
    put_into(&depot, "a", 0, b"all of it");
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

/// A file comes to a hop while what is there is found to have arrived, and its rest takes a new place.
#[test] //= KANGAROO-9
fn adopted_file_outranks_remainder() {
    let ((gate, far, home, depot), held) = half_there();
    // Who has it open gets it delivered, whatever comes after it.
    let reading = depot.read(&url("a"), by().who, Fresh::Usual).unwrap();
    let came = home.path().join("depot/came");
    fs::write(&came, b"second").unwrap();
    let adopted = Adopted {
        file: &came,
        base: &Base::Any,
        upload: None,
        passed: &[],
        session: "",
        mode: None,
    };
    let (nothing, number) = (Id::of([0; 12]), held.number());
    gate.change(|state| (state.is_shut_in, state.waiting) = (true, 0));
    thread::scope(|scope| {
        let coming = scope.spawn(|| depot.adopt(&url("a"), by().who, &adopted).unwrap());
        gate.wait(|state| state.waiting > 0);
        gate.change(|state| (state.shut, state.away_with) = (Shut::But(nothing), None));
        until("the rest has a new place", || held.number() > number);
        gate.change(|state| {
            (state.is_shut_in, state.shut) = (false, Shut::Nobody);
        });
        set_away(&gate, true);
        coming.join().unwrap();
    });
    assert_eq!(read(&depot, "a").unwrap(), b"second");
    deliver(&gate, &depot);
    assert_eq!(read(&depot, "a").unwrap(), b"second");
    assert_eq!(fs::read(far.path().join("a")).unwrap(), b"second");
    // What was there before went first, and not against what came after it.
    assert!(depot.queue().is_empty());
    drop(reading);
}

/// A file arrived, and lacks what was written since; that it goes under its new name cannot be recorded.
#[test] //= KANGAROO-53
fn unrecorded_rename_still_happens() {
    let ((gate, far, _home, depot), held) = half_there();
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    gate.change(|state| (state.is_full, state.away_with) = (true, None));
    gate.wait(|state| state.fulls > 0);
    gate.change(|state| state.is_full = false);
    // Who waits for room waits longer the oftener it was tried.
    until("it is there", || {
        depot.retry(&held.id.to_string()).is_err() || far.path().join("b").exists()
    });
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"first and more");
    assert_eq!(read(&depot, "b").unwrap(), b"first and more");
    assert!(!far.path().join("a").exists());
}
