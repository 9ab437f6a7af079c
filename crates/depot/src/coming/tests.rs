//! What happens to a name while somebody is about to be told that what they put there is kept.

use crate::{
    By, Depot, Error, Fresh, Put, Scope, Who, Writing,
    disk::{Id, Watcher},
    tested::{is_mover, reaching, url, watched},
    writing::Adopted,
};
use godwit_core::holding::Base;
use godwit_store::{Dir, Error as StoreError, Faulty, Opener, Store, Trouble};
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

/// What waits until a test goes on.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Nothing is delivered.
    is_away: bool,
    /// Nor once there is such a file.
    away_with: Option<PathBuf>,
    refused: u32,
    /// Whoever reads gets to the target later.
    is_shut_out: bool,
    /// Nothing is synced for want of room; so often.
    is_full: bool,
    fulls: u32,
    /// Of all files but this one, nothing is synced.
    shut_but: Option<Id>,
    /// Nor is any taken in.
    is_shut_in: bool,
    waiting: u32,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        let state = self.state();
        drop(self.changed.wait_while(state, |state| !until(state)));
    }

    fn pass(&self, is_shut: impl Fn(&State) -> bool) {
        if is_shut(&self.state()) {
            self.change(|state| state.waiting += 1);
            self.wait(|state| !is_shut(state));
        }
    }
}

impl Watcher for Gate {
    fn writes(&self, _: &Path, _: &File, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn resizes(&self, _: &Path, _: &File, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn takes_in(&self) -> io::Result<()> {
        self.pass(|state| state.is_shut_in);
        Ok(())
    }

    fn synced(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_it = |id: Id| name.starts_with(&id.to_string());
        self.pass(|state| state.shut_but.is_some_and(|id| !is_it(id)));
        let is_full = self.state().is_full;
        self.change(|state| state.fulls += u32::from(is_full));
        match is_full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn records(&self, write: &mut dyn FnMut()) {
        write();
    }
}

fn opened(gate: &Arc<Gate>, home: &Path, store: Arc<dyn Store>) -> Depot {
    let at = Arc::clone(gate);
    let connect = reaching(store, move || {
        if thread::current().name() == Some("reader") {
            at.pass(|state| state.is_shut_out);
        }
        let mut state = at.state();
        let is_there = state.away_with.as_ref().is_some_and(|path| path.exists());
        let is_away = is_mover() && (state.is_away || is_there);
        state.refused += u32::from(is_away);
        drop(state);
        at.changed.notify_all();
        is_away
    });
    let boot = ("boot".into(), Arc::clone(gate) as Arc<dyn Watcher>);
    watched(&home.join("depot"), connect, Duration::from_millis(5), boot).unwrap()
}

fn far() -> (tempfile::TempDir, Dir) {
    let far = tempfile::tempdir().unwrap();
    let dir = Dir::open(far.path(), "tests", Opener::Myself).unwrap();
    (far, dir)
}

fn by() -> By<'static> {
    static WHO: LazyLock<Who> = LazyLock::new(Who::default);
    By {
        who: &WHO,
        session: "",
    }
}

/// Begins to put something in place of whatever there is.
fn putting(depot: &Depot, name: &str, bytes: &[u8]) -> Writing {
    let over = Put {
        base: Base::Any,
        session: String::new(),
    };
    let writing = depot.put(&url(name), by().who, &over).unwrap();
    writing.write(0, bytes).unwrap();
    writing
}

/// The same to its end.
fn kept(depot: &Depot, name: &str, bytes: &[u8]) -> Id {
    let writing = putting(depot, name, bytes);
    let id = writing.held.id;
    writing.end().unwrap();
    id
}

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

fn push(depot: &Depot) {
    let pushed = depot.push(&Scope::All, Some(Duration::from_secs(30)));
    pushed.unwrap();
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// A depot of which nothing is delivered before somebody says so.
fn shut_away() -> (Arc<Gate>, tempfile::TempDir, tempfile::TempDir, Depot) {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let gate = Arc::new(Gate::default());
    gate.change(|state| state.is_away = true);
    let depot = opened(&gate, home.path(), Arc::new(dir));
    (gate, far, home, depot)
}

/// Ends what somebody writes, and does something else once it has its place and is not safe yet.
fn while_it_ends(gate: &Gate, writing: Writing, but: Id, meanwhile: impl FnOnce()) {
    gate.change(|state| (state.shut_but, state.waiting) = (Some(but), 0));
    thread::scope(|scope| {
        let ending = scope.spawn(|| writing.end().unwrap());
        gate.wait(|state| state.waiting > 0);
        meanwhile();
        gate.change(|state| state.shut_but = None);
        ending.join().unwrap();
    });
}

/// What was renamed there arrives, under a number that is later, while something newer is about to be kept.
#[test]
fn what_is_put_is_newer_than_what_arrives_while_it_ends() {
    let (gate, far, _home, depot) = shut_away();
    let first = kept(&depot, "a", b"first");
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    let second = putting(&depot, "b", b"second");
    while_it_ends(&gate, second, first, || {
        gate.change(|state| state.is_away = false);
        let there = far.path().join("b");
        until("it arrives", || {
            fs::read(&there).is_ok_and(|is| is == b"first")
        });
    });
    assert_eq!(read(&depot, "b").unwrap(), b"second");
    // What is written now goes into that, too.
    let into = depot.put_into(&url("b"), by().who, "").unwrap();
    into.write(6, b" and more").unwrap();
    into.end().unwrap();
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"second and more");
    assert_eq!(read(&depot, "b").unwrap(), b"second and more");
}

#[test]
fn what_is_removed_while_it_ends_is_not_there() {
    let (gate, far, _home, depot) = shut_away();
    let first = kept(&depot, "a", b"first");
    let second = putting(&depot, "a", b"second");
    while_it_ends(&gate, second, first, || {
        depot.unlink(&url("a"), by()).unwrap();
        assert_eq!(read(&depot, "a"), None);
    });
    assert_eq!(read(&depot, "a"), None);
    gate.change(|state| state.is_away = false);
    push(&depot);
    assert!(!far.path().join("a").exists());
}

/// Somebody who reads has found out where it is, and looks there after it was removed or renamed.
#[test]
fn what_lost_its_name_while_somebody_asked_for_it_is_not_read() {
    for to in [None, Some("b")] {
        let (gate, far, _home, depot) = shut_away();
        fs::write(far.path().join("a"), b"what was there").unwrap();
        gate.change(|state| state.is_shut_out = true);
        thread::scope(|scope| {
            let reader = thread::Builder::new().name("reader".into());
            let reader = reader.spawn_scoped(scope, || read(&depot, "a")).unwrap();
            gate.wait(|state| state.waiting > 0);
            match to {
                None => depot.unlink(&url("a"), by()).unwrap(),
                Some(to) => depot.rename(&url("a"), &url(to), by()).unwrap(),
            }
            gate.change(|state| state.is_shut_out = false);
            assert_eq!(reader.join().unwrap(), None);
        });
        assert_eq!(read(&depot, "a"), None);
        gate.change(|state| state.is_away = false);
        push(&depot);
        assert!(!far.path().join("a").exists());
    }
}

/// It is renamed there, and something else put where it was.
#[test]
fn what_moves_while_somebody_looks_is_looked_for_again() {
    let (gate, far, _home, depot) = shut_away();
    fs::write(far.path().join("a"), b"one").unwrap();
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    gate.change(|state| state.is_shut_out = true);
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("reader".into());
        let looking = || depot.inner.stat_of(&url("b"), by().who).unwrap();
        let reader = reader.spawn_scoped(scope, looking).unwrap();
        gate.wait(|state| state.waiting > 0);
        kept(&depot, "a", b"another");
        gate.change(|state| state.is_away = false);
        push(&depot);
        gate.change(|state| state.is_shut_out = false);
        assert_eq!(reader.join().unwrap().1.size, 3);
    });
}

#[test]
fn what_is_renamed_while_it_ends_has_the_new_name() {
    let (gate, far, _home, depot) = shut_away();
    let first = kept(&depot, "a", b"first");
    let second = putting(&depot, "a", b"second");
    while_it_ends(&gate, second, first, || {
        depot.rename(&url("a"), &url("b"), by()).unwrap();
    });
    let seen = || (read(&depot, "a"), read(&depot, "b").unwrap());
    assert_eq!(seen(), (None, b"second".to_vec()));
    gate.change(|state| state.is_away = false);
    push(&depot);
    assert_eq!(seen(), (None, b"second".to_vec()));
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"second");
}

#[test]
fn what_is_renamed_over_what_ends_is_what_the_name_says() {
    let (gate, far, _home, depot) = shut_away();
    let other = kept(&depot, "b", b"other");
    let second = putting(&depot, "a", b"second");
    while_it_ends(&gate, second, other, || {
        depot.rename(&url("b"), &url("a"), by()).unwrap();
    });
    assert_eq!(read(&depot, "a").unwrap(), b"other");
    gate.change(|state| state.is_away = false);
    push(&depot);
    assert_eq!(read(&depot, "a").unwrap(), b"other");
    assert_eq!(fs::read(far.path().join("a")).unwrap(), b"other");
}

/// It was put into nothing, which was found out when it was read: it is renamed in its turn, and that is on record.
#[test]
fn what_was_put_into_nothing_has_its_new_name_after_an_end() {
    let (gate, far, home, depot) = shut_away();
    let into = depot.put_into(&url("a"), by().who, "").unwrap();
    into.write(0, b"all of it").unwrap();
    into.end().unwrap();
    assert_eq!(read(&depot, "a").unwrap(), b"all of it");
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    let dir = Dir::open(far.path(), "tests", Opener::Myself).unwrap();
    drop(depot);
    let again = opened(&gate, home.path(), Arc::new(dir));
    let seen = || (read(&again, "a"), read(&again, "b").unwrap());
    assert_eq!(seen(), (None, b"all of it".to_vec()));
    gate.change(|state| state.is_away = false);
    push(&again);
    assert_eq!(seen(), (None, b"all of it".to_vec()));
    assert!(!far.path().join("a").exists());
}

/// A file comes to a hop while what is there is found to have arrived, and its rest takes a new place.
#[test]
fn what_comes_whole_has_its_place_when_it_is_here() {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let store = Arc::new(Faulty::new(dir, [Trouble::LosesFinish]));
    let gate = Arc::new(Gate::default());
    gate.change(|state| state.away_with = Some(far.path().join("a")));
    let depot = opened(&gate, home.path(), store);
    let first = putting(&depot, "a", b"first");
    let held = Arc::clone(&first.held);
    first.end().unwrap();
    gate.wait(|state| state.refused > 0);
    let into = depot.put_into(&url("a"), by().who, "").unwrap();
    into.write(5, b" and more").unwrap();
    into.end().unwrap();
    // Who has it open gets it delivered, whatever comes after it.
    let reading = depot.read(&url("a"), by().who, Fresh::Usual).unwrap();
    let came = home.path().join("depot/came");
    fs::write(&came, b"second").unwrap();
    let adopted = Adopted {
        file: &came,
        base: &Base::Any,
        upload: None,
        passed: &[],
        mode: None,
    };
    let (nothing, number) = (Id::of([0; 12]), held.number());
    gate.change(|state| (state.is_shut_in, state.waiting) = (true, 0));
    thread::scope(|scope| {
        let coming = scope.spawn(|| depot.adopt(&url("a"), by().who, &adopted).unwrap());
        gate.wait(|state| state.waiting > 0);
        gate.change(|state| (state.shut_but, state.away_with) = (Some(nothing), None));
        until("the rest has a new place", || held.number() > number);
        gate.change(|state| {
            (state.is_shut_in, state.shut_but, state.is_away) = (false, None, true);
        });
        coming.join().unwrap();
    });
    assert_eq!(read(&depot, "a").unwrap(), b"second");
    gate.change(|state| state.is_away = false);
    push(&depot);
    assert_eq!(read(&depot, "a").unwrap(), b"second");
    assert_eq!(fs::read(far.path().join("a")).unwrap(), b"second");
    // What was there before went first, and not against what came after it.
    assert!(depot.queue().is_empty());
    drop(reading);
}

/// A file arrived, and lacks what was written since; that it goes under its new name cannot be recorded.
#[test]
fn what_cannot_be_recorded_goes_as_it_was_promised() {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let store = Arc::new(Faulty::new(dir, [Trouble::LosesFinish]));
    let gate = Arc::new(Gate::default());
    gate.change(|state| state.away_with = Some(far.path().join("a")));
    let depot = opened(&gate, home.path(), store);
    let id = kept(&depot, "a", b"first").to_string();
    gate.wait(|state| state.refused > 0);
    let into = depot.put_into(&url("a"), by().who, "").unwrap();
    into.write(5, b" and more").unwrap();
    into.end().unwrap();
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    gate.change(|state| (state.is_full, state.away_with) = (true, None));
    gate.wait(|state| state.fulls > 0);
    gate.change(|state| state.is_full = false);
    // Who waits for room waits longer the oftener it was tried.
    until("it is there", || {
        depot.retry(&id).is_err() || far.path().join("b").exists()
    });
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"first and more");
    assert_eq!(read(&depot, "b").unwrap(), b"first and more");
    assert!(!far.path().join("a").exists());
}
