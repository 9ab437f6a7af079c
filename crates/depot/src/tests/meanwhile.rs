//! Interleavings: a test stops one operation in the middle, on the disk or at the target.

use crate::{
    Depot, Edit, Editing, Ended, Fresh, Scope, Stage, Who, Writing,
    disk::files::Watcher,
    id::Id,
    plan::entry::Entry,
    tests::tested::{
        self, LIMIT, by, far, is_mover, patch, push, put, putting, reaching, read, until, url,
        watched,
    },
};
use godwit_core::{
    Extents, LEAF_BYTES, Leaves, Version,
    holding::{Notices, OriginState, PublishOutcome},
};
use godwit_store::{Dir, Opener, Store};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

mod ends;

/// The state of a test, and threads that wait for it.
type Gate = tested::Gate<State>;

#[derive(Default)]
struct State {
    /// Deliveries do not reach the target once it has a file of this name.
    away_with: Option<String>,
    refused: u32,
    /// A thread named `reader` waits before it reaches the target.
    is_shut_out: bool,
    shut: Shut,
    /// A file that arrives whole is not adopted.
    is_shut_in: bool,
    /// The disk fails each sync.
    is_broken: bool,
    /// Syncs fail for want of room; `fulls` counts them.
    is_full: bool,
    fulls: u32,
    /// A writer that reserves blocks waits.
    no_blocks: bool,
    /// After so many pieces the writer waits.
    pieces: Option<u32>,
    synced: u32,
    recorded: u32,
    /// Copies the depot from the first to the second path before the next write.
    copies: Option<(PathBuf, PathBuf)>,
    /// Copies the depot before and after each write of records.
    follows: Option<(PathBuf, PathBuf)>,
}

/// Files whose sync waits until the gate opens.
#[derive(Default)]
enum Shut {
    #[default]
    Nothing,
    /// All but this one.
    But(Id),
    /// Only this one.
    Only(Id),
    /// All, once this path exists.
    Since(PathBuf),
    /// The next sync only.
    Next,
    /// `Next` has caught its sync.
    One,
}

impl Shut {
    fn is_shut(&self, name: &str) -> bool {
        match self {
            Self::Nothing | Self::One => false,
            Self::But(id) => !name.starts_with(&id.to_string()),
            Self::Only(id) => name.starts_with(&id.to_string()),
            Self::Since(path) => path.exists(),
            Self::Next => true,
        }
    }
}

impl Watcher for Gate {
    fn takes_in(&self) -> io::Result<()> {
        self.pass(|state| state.is_shut_in);
        Ok(())
    }

    fn writes(&self, _: &Path, _: &File, _: u64, _: u64) -> io::Result<()> {
        let copies = self.state().copies.take();
        if let Some((from, to)) = copies {
            let copied = Command::new("cp").arg("-r").arg(from).arg(to).status()?;
            assert!(copied.success());
        }
        let mut state = self.state();
        let is_over = state.pieces == Some(0);
        state.pieces = state.pieces.map(|left| left.saturating_sub(1));
        drop(state);
        if is_over {
            self.pass(|state| state.pieces.is_some());
        }
        Ok(())
    }

    fn reserves(&self) -> io::Result<()> {
        self.pass(|state| state.no_blocks);
        Ok(())
    }

    fn synced(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut state = self.state();
        if state.is_broken {
            return Err(io::Error::from_raw_os_error(5));
        }
        let waits = state.shut.is_shut(name);
        if waits && matches!(state.shut, Shut::Next) {
            state.shut = Shut::One;
        }
        drop(state);
        match waits {
            true => {
                self.change(|state| state.waiting += 1);
                self.wait(|state| matches!(state.shut, Shut::Nothing));
            }
            false => self.change(|state| state.synced += 1),
        }
        let is_full = self.state().is_full;
        self.change(|state| state.fulls += u32::from(is_full));
        match is_full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn records(&self, write: &mut dyn FnMut()) {
        self.change(|state| state.recorded += 1);
        let state = self.state();
        let (nth, follows) = (state.recorded, state.follows.clone());
        drop(state);
        let copied = |when: &str| {
            if let Some((from, into)) = &follows {
                let to = into.join(format!("{nth} {when}"));
                fs::create_dir(&to).unwrap();
                let copied = Command::new("cp").arg("-r").arg(from).arg(to).status();
                assert!(copied.unwrap().success());
            }
        };
        copied("before");
        write();
        copied("written");
    }
}

fn opened(gate: &Arc<Gate>, home: &Path, far: &Path, store: Arc<dyn Store>) -> Depot {
    let (at, far) = (Arc::clone(gate), far.to_owned());
    let connect = reaching(store, move || {
        if thread::current().name() == Some("reader") {
            at.pass(|state| state.is_shut_out);
        }
        let away_with = at.state().away_with.clone().filter(|_| is_mover());
        let is_away = away_with.is_some_and(|name| far.join(name).exists());
        if is_away {
            at.change(|state| state.refused += 1);
        }
        is_away
    });
    let boot = ("boot".into(), Arc::clone(gate) as Arc<dyn Watcher>);
    watched(&home.join("depot"), connect, Duration::from_millis(5), boot).unwrap()
}

/// Deliveries do not reach the target.
fn set_away(gate: &Gate, is_away: bool) {
    gate.change(|state| state.away_with = is_away.then(|| ".".into()));
}

/// A gate, a target, a home and their depot.
type World = (Arc<Gate>, tempfile::TempDir, tempfile::TempDir, Depot);

/// A depot that works.
fn gated() -> World {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let gate = Arc::new(Gate::default());
    let depot = opened(&gate, home.path(), far.path(), Arc::new(dir));
    (gate, far, home, depot)
}

/// A depot whose target is away.
fn shut_away() -> World {
    let (gate, far, home, depot) = gated();
    set_away(&gate, true);
    (gate, far, home, depot)
}

/// A file whose publication is about to be asked for, and a patch of it. Closing the patch waits for a block.
fn put_into_what_is_asked_for(gate: &Gate, depot: &Depot) -> (Arc<Entry>, Writing) {
    let entry = put(depot, "a", b"first");
    gate.change(|state| state.shut = Shut::Next);
    set_away(gate, false);
    gate.wait(|state| state.waiting == 1);
    let into = depot.patch(&url("a"), by().who, "").unwrap();
    into.write(5, b" and more").unwrap();
    gate.change(|state| state.no_blocks = true);
    (entry, into)
}

/// Grants blocks, and copies the depot before the next write.
fn go_on_and_copy(gate: &Gate, home: &Path, copy: &Path) {
    fs::create_dir(copy).unwrap();
    let copies = Some((home.join("depot"), copy.into()));
    gate.change(|state| (state.copies, state.no_blocks) = (copies, false));
}

/// Waits until the file is delivered and its mover has left.
fn until_there(entry: &Entry) {
    until("it is delivered", || {
        let state = entry.lock();
        !state.machine.owes() && !state.delivery.is_in_flight
    });
}

/// A file with an unseen edit that is still open.
fn edited(depot: &Depot) -> (Arc<Entry>, Editing) {
    let who = Who::default();
    let edit = Edit {
        create: true,
        ..Edit::default()
    };
    let editing = depot.edit(&url("a"), &who, &edit).unwrap();
    let entry = depot.inner.plan().current[&(url("a"), who.audience)].clone();
    editing.file().unwrap().write_all_at(b"edited", 0).unwrap();
    (entry, editing)
}

/// Another thread may notice the last close first; it gets no earlier answer.
#[test]
fn edit_is_persisted_before_answer() {
    let (gate, _far, _home, depot) = gated();
    let (entry, editing) = edited(&depot);
    let nothing = Id::of([0; 12]);
    gate.change(|state| state.shut = Shut::But(nothing));
    thread::scope(|scope| {
        let ending = scope.spawn(|| editing.end().unwrap());
        gate.wait(|state| state.waiting > 0);
        scope.spawn(|| {
            thread::sleep(LONG_ENOUGH_TO_BE_TOO_EARLY);
            gate.change(|state| state.shut = Shut::Nothing);
        });
        let ended = depot.inner.is_edited(&entry).unwrap();
        let is_ahead = entry.lock().record.is_ahead();
        assert!(matches!(ended, Ended::Last(_)) && !is_ahead, "{ended:?}");
        ending.join().unwrap();
    });
}

/// If the first close could not be persisted, the next call tries again or fails as well.
#[test]
fn failed_close_is_retried() {
    let (gate, _far, _home, depot) = gated();
    let (entry, editing) = edited(&depot);
    gate.change(|state| state.is_broken = true);
    let failed = editing.end();
    assert!(
        failed.is_err() && entry.lock().record.is_ahead(),
        "{failed:?}"
    );
    let again = depot.inner.is_edited(&entry);
    assert!(
        again.is_err() && entry.lock().record.is_ahead(),
        "{again:?}"
    );
    gate.change(|state| state.is_broken = false);
    let ended = depot.inner.is_edited(&entry).unwrap();
    let is_ahead = entry.lock().record.is_ahead();
    assert!(matches!(ended, Ended::Last(_)) && !is_ahead, "{ended:?}");
}

/// Reads of a cached file are noted in memory, and recorded when the depot ends.
#[test] //= GASS-96
fn reading_writes_no_records() {
    let (gate, far, _home, depot) = gated();
    fs::write(far.path().join("a"), b"theirs").unwrap();
    let who = Who::default();
    depot.stage(&url("a"), &who, "mine", None).unwrap();
    // The file is recorded as cached.
    gate.wait(|state| state.recorded > 0);
    depot.commit(&Scope::All).unwrap();
    let before = gate.state().recorded;
    for _ in 0..1000 {
        let reading = depot.read(&url("a"), &who, Fresh::Any).unwrap();
        assert_eq!(reading.size(), 6);
        drop(reading);
        assert!(depot.read_here(&url("a"), &who, Fresh::Any).is_some());
    }
    assert_eq!(gate.state().recorded, before);
    // The last use is recorded when the depot ends.
    drop(depot);
    assert!(gate.state().recorded > before);
}

/// A patch is applied piece by piece; a reader sees all of it or nothing.
#[test]
fn reader_waits_for_whole_patch() {
    let (gate, _far, _home, depot) = shut_away();
    put(&depot, "a", &[1; 2 << 20]);
    let into = depot.patch(&url("a"), by().who, "").unwrap();
    into.write(0, &[2; 2 << 20]).unwrap();
    gate.change(|state| state.pieces = Some(1));
    let (told, heard) = mpsc::channel();
    thread::scope(|scope| {
        let ending = scope.spawn(|| into.end().unwrap());
        gate.wait(|state| state.waiting > 0);
        assert!(depot.read_here(&url("a"), by().who, Fresh::Any).is_none());
        scope.spawn(|| told.send(read(&depot, "a")).unwrap());
        let early = heard.recv_timeout(LONG_ENOUGH_TO_BE_TOO_EARLY);
        gate.change(|state| state.pieces = None);
        ending.join().unwrap();
        assert!(early.is_err(), "it was read half");
        assert!(heard.recv().unwrap() == [2; 2 << 20]);
    });
}

/// A put during the patch of its predecessor supersedes that, whichever closes first.
#[test] //= KANGAROO-9
fn put_survives_patch_of_predecessor() {
    let (gate, far, _home, depot) = shut_away();
    put(&depot, "a", b"what was there");
    let into = depot.patch(&url("a"), by().who, "").unwrap();
    into.write(0, b"into it").unwrap();
    let newest = putting(&depot, "a", b"newest");
    gate.change(|state| state.pieces = Some(0));
    thread::scope(|scope| {
        let ending = scope.spawn(|| into.end());
        gate.wait(|state| state.waiting > 0);
        newest.end().unwrap();
        gate.change(|state| state.pieces = None);
        ending.join().unwrap().unwrap();
    });
    assert_eq!(read(&depot, "a"), b"newest");
    set_away(&gate, false);
    push(&depot);
    assert_eq!(fs::read(far.path().join("a")).unwrap(), b"newest");
}

/// A patch whose rest was never fetched is forgotten after delivery. While another patch is open, it stays the
/// current version.
#[test]
fn patch_after_delivery_stays_readable() {
    let (_gate, _far, _home, depot) = shut_away();
    patch(&depot, "a", 0, b"first");
    let entry = depot.inner.plan().current[&(url("a"), String::new())].clone();
    // The delivery is complete, and its mover has not noted so.
    let mut state = entry.lock();
    state.machine.resumed(&Extents::new());
    let generation = state.machine.seal().unwrap();
    state.machine.looked(OriginState::Same);
    state.machine.enter(generation);
    let sent = state.machine.push(LEAF_BYTES).unwrap();
    state.machine.landed(sent.ticket);
    let asked = state.machine.publish().unwrap();
    let there = PublishOutcome::Published(Version::None);
    state.machine.answered(asked.attempt, there);
    assert!(!state.machine.owes());
    // Another writer has begun.
    state.machine.open(Notices::Each).unwrap();
    drop(state);
    depot.inner.delivered(&entry).unwrap();
    assert!(
        entry.lock().is_current(),
        "readers of its name are sent away"
    );
    entry.lock().machine.close(Notices::Each);
    // A mover may have been first.
    let ended = depot.inner.delivered(&entry);
    assert!(
        matches!(ended, Ok(_) | Err(crate::Error::Unknown(_))),
        "{ended:?}"
    );
    assert!(depot.inner.plan().current.is_empty());
}

/// If the name is removed during a patch, the patch goes into the successor, if there is one. Once the whole patch is
/// applied, it is removed with the file.
#[test] //= delivery#put-and-conflicts
fn patch_of_removed_file_finds_successor() {
    let stops: [fn(&mut State, Id); 3] = [
        |state, _| state.no_blocks = true,
        |state, into| state.shut = Shut::Only(into),
        |state, _| state.pieces = Some(0),
    ];
    let (early, late) = ([Some("INTO it"), Some("INTO")], [Some("into it"), None]);
    for (nth, (stop, after)) in stops.into_iter().zip([early, early, late]).enumerate() {
        for (is_put, after) in [true, false].into_iter().zip(after) {
            let (gate, far, home, depot) = shut_away();
            let under = put(&depot, "a", b"what was there");
            let into = depot.patch(&url("a"), by().who, "").unwrap();
            into.write(0, b"INTO").unwrap();
            let (id, newest) = (into.entry.id, putting(&depot, "a", b"into it"));
            gate.change(|state| stop(state, id));
            thread::scope(|scope| {
                let ending = scope.spawn(|| into.end());
                gate.wait(|state| state.waiting > 0);
                depot.unlink(&url("a"), by()).unwrap();
                if is_put {
                    newest.end().unwrap();
                }
                until("it went", || under.lock().is_gone);
                gate.change(|state| {
                    (state.no_blocks, state.pieces, state.shut) = (false, None, Shut::Nothing);
                });
                let ended = ending.join().unwrap();
                assert!(ended.is_ok(), "{nth}: {ended:?}");
            });
            drop((under, depot));
            // A restart gives the same.
            let store = Arc::new(Dir::open(far.path(), "tests", Opener::Myself).unwrap());
            let depot = opened(&gate, home.path(), far.path(), store);
            set_away(&gate, false);
            push(&depot);
            let there = fs::read_to_string(far.path().join("a")).ok();
            assert_eq!(there.as_deref(), after, "{nth}");
        }
    }
}

/// The rest of the file and its successor are delivered while a patch is open. The patch goes with its file, and is
/// no foreign change.
#[test]
fn late_patch_yields_to_successor() {
    let (gate, far, home, depot) = shut_away();
    let (entry, into) = put_into_what_is_asked_for(&gate, &depot);
    let copy = home.path().join("copy");
    thread::scope(|scope| {
        let ending = scope.spawn(|| into.end());
        gate.wait(|state| state.waiting == 2);
        gate.change(|state| state.shut = Shut::Nothing);
        until_there(&entry);
        let newest = put(&depot, "a", b"newest");
        until_there(&newest);
        go_on_and_copy(&gate, home.path(), &copy);
        ending.join().unwrap().unwrap();
    });
    let is_so = |depot: &Depot| {
        push(depot);
        assert_eq!(read(depot, "a"), b"newest");
        assert_eq!(fs::read(far.path().join("a")).unwrap(), b"newest");
        assert!(depot.queue().is_empty(), "{:?}", depot.queue());
    };
    is_so(&depot);
    drop((entry, depot));
    // A kill in the middle gives the same.
    let store = Arc::new(Dir::open(far.path(), "tests", Opener::Myself).unwrap());
    is_so(&opened(&gate, &copy, far.path(), store));
}

/// After delivery the lines are forgotten. Whenever the node dies, the next one holds none of them and clears its
/// disk.
#[test]
fn delivered_lines_are_forgotten_after_kill() {
    let (gate, far, home, depot) = gated();
    let (from, copies) = (home.path().join("depot"), home.path().join("copies"));
    fs::create_dir(&copies).unwrap();
    let lines = |depot: &Path| fs::read_dir(depot.join("appends")).unwrap().count();
    let appending = depot.append(&url("log"), by().who).unwrap();
    appending.add(b"line\n").unwrap();
    gate.change(|state| state.follows = Some((from.clone(), copies.clone())));
    appending.push(Some(LIMIT)).unwrap();
    drop(appending);
    until("it is forgotten", || lines(&from) == 0);
    drop(depot);
    gate.change(|state| state.follows = None);
    let died: Vec<_> = fs::read_dir(&copies).unwrap().collect();
    assert!(died.len() > 1);
    for at in died {
        let at = at.unwrap().path();
        let dir = Dir::open(far.path(), "tests", Opener::Myself).unwrap();
        let depot = opened(&gate, &at, far.path(), Arc::new(dir));
        assert!(
            depot.queue().iter().all(|row| row.stage != Stage::Held),
            "{at:?}: {:?}",
            depot.queue()
        );
        push(&depot);
        assert_eq!(
            fs::read(far.path().join("log")).unwrap(),
            b"line\n",
            "{at:?}"
        );
        until("nothing of it is left", || lines(&at.join("depot")) == 0);
    }
}

/// A thread that does not wait would be done by then.
const LONG_ENOUGH_TO_BE_TOO_EARLY: Duration = Duration::from_millis(300);

/// A promised file may be delivered before its close returns, and before it is the current version.
#[test] //= KANGAROO-32
fn early_delivery_keeps_the_file() {
    let (gate, far, _home, depot) = shut_away();
    // A file of this size is sent ahead.
    let bytes = vec![7; 2 << 20];
    let writing = putting(&depot, "a", &bytes);
    let entry = Arc::clone(&writing.entry);
    gate.change(|state| state.shut = Shut::Next);
    thread::scope(|scope| {
        let ending = scope.spawn(|| writing.end());
        gate.wait(|state| state.waiting > 0);
        set_away(&gate, false);
        until_there(&entry);
        gate.change(|state| state.shut = Shut::Nothing);
        ending.join().unwrap().unwrap();
    });
    assert!(fs::read(far.path().join("a")).unwrap() == bytes);
    // A later change finds the file as our own.
    assert!(read(&depot, "a") == bytes);
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    push(&depot);
    assert!(fs::read(far.path().join("b")).unwrap() == bytes);
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
}

/// The rest of a file is delivered while a patch is open, and then the node dies. The patch stays pending, before
/// later promises.
#[test] //= KANGAROO-32
fn late_patch_survives_kill() {
    let (gate, far, home, depot) = shut_away();
    let store: Arc<dyn Store> = Arc::new(Dir::open(far.path(), "tests", Opener::Myself).unwrap());
    let (entry, into) = put_into_what_is_asked_for(&gate, &depot);
    let copy = home.path().join("copy");
    thread::scope(|scope| {
        let ending = scope.spawn(|| into.end().unwrap());
        gate.wait(|state| state.waiting == 2);
        gate.change(|state| state.shut = Shut::Nothing);
        until_there(&entry);
        set_away(&gate, true);
        go_on_and_copy(&gate, home.path(), &copy);
        ending.join().unwrap();
    });
    drop((entry, depot));
    let depot = opened(&gate, &copy, far.path(), store.clone());
    assert_eq!(read(&depot, "a"), b"first and more");
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    set_away(&gate, false);
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"first and more");
    assert!(!far.path().join("a").exists());
    drop(depot);
    let again = opened(&gate, &copy, far.path(), store);
    push(&again);
    assert!(again.queue().is_empty(), "{:?}", again.queue());
}

/// An edit begins while the delivery is being recorded, before the promised rename. It is delivered after the rename,
/// under the new name.
#[test]
fn edit_during_delivery_follows_rename() {
    let (gate, far, _home, depot) = shut_away();
    let entry = put(&depot, "a", b"first");
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    let there = far.path().join("a");
    gate.change(|state| (state.shut, state.waiting) = (Shut::Since(there), 0));
    set_away(&gate, false);
    gate.wait(|state| state.waiting > 0);
    let editing = thread::scope(|scope| {
        let opening = scope.spawn(|| depot.edit(&url("b"), by().who, &Edit::default()));
        until("it is open", || entry.lock().machine.is_unseen());
        gate.change(|state| state.shut = Shut::Nothing);
        opening.join().unwrap().unwrap()
    });
    editing.file().unwrap().write_all_at(b"later", 0).unwrap();
    editing.end().unwrap();
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"later");
    assert!(!far.path().join("a").exists());
    assert!(depot.queue().is_empty(), "{:?}", depot.queue());
}

/// Two promises with one number would be one.
#[test]
fn renamed_file_gets_own_number() {
    let (_gate, _far, _home, depot) = shut_away();
    let anew = Edit {
        create: true,
        exclusive: true,
        ..Edit::default()
    };
    for nth in 0..20 {
        let (from, to) = (url(&nth.to_string()), url(&format!("{nth}.new")));
        depot.edit(&from, by().who, &anew).unwrap().end().unwrap();
        let entry = depot.inner.plan().current[&(from.clone(), String::new())].clone();
        until("no mover is at it", || !entry.lock().delivery.is_in_flight);
        let is_over = AtomicBool::new(false);
        let given = thread::scope(|scope| {
            let others = scope.spawn(|| {
                let next = || (!is_over.load(SeqCst)).then(|| depot.inner.numbers.next());
                std::iter::from_fn(next).take(1 << 20).collect::<Vec<_>>()
            });
            depot.rename(&from, &to, by()).unwrap();
            is_over.store(true, SeqCst);
            others.join().unwrap()
        });
        assert!(
            !given.contains(&entry.number()),
            "{nth}: {}",
            entry.number()
        );
    }
    // Some files may have been tried at that moment.
    let queue = depot.queue();
    assert!(queue.len() < 40 && !queue.is_empty(), "{queue:?}");
}

/// A file is renamed after its delivery and before the record of it. Later changes use the new name.
#[test] //= KANGAROO-53
fn rename_during_delivery_moves_file() {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let gate = Arc::new(Gate::default());
    let there = far.path().join("a");
    gate.change(|state| state.shut = Shut::Since(there));
    let depot = opened(&gate, home.path(), far.path(), Arc::new(dir));
    put(&depot, "a", b"all of it");
    gate.wait(|state| state.waiting > 0);
    thread::scope(|scope| {
        let renaming = scope.spawn(|| depot.rename(&url("a"), &url("b"), by()).unwrap());
        let is_promised = || depot.queue().iter().any(|row| row.what == "rename");
        until("the rename is promised", is_promised);
        gate.change(|state| state.shut = Shut::Nothing);
        renaming.join().unwrap();
    });
    push(&depot);
    depot.truncate(&url("b"), 3, by()).unwrap();
    push(&depot);
    assert_eq!(fs::read(far.path().join("b")).unwrap(), b"all");
    assert!(!far.path().join("a").exists());
}

/// Notes that are taken during hashing do not change the bytes.
#[test]
fn hash_survives_concurrent_notes() {
    let (_gate, _far, _home, depot) = shut_away();
    let entry = put(&depot, "a", &[7; 300_000]);
    let (noted, to_note) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let file = &entry;
        scope.spawn(move || to_note.iter().for_each(|()| file.lock().record.change()));
        for nth in 0..200 {
            entry.lock().bytes.leaves = Leaves::new();
            noted.send(()).unwrap();
            let (size, digest) = depot.inner.known_as(&entry);
            assert!(size == 300_000 && digest.is_some(), "{nth}");
        }
        drop(noted);
    });
}

/// A patch at the front of a file that is not cached is short until the rest is fetched. A kill during the fetch must
/// not make it look damaged.
#[test]
fn kill_during_fetch_damages_nothing() {
    let (gate, far, home, depot) = shut_away();
    let bytes = vec![7; 300_000];
    let whole = [b"patch", &bytes[5..]].concat();
    fs::write(far.path().join("a"), &bytes).unwrap();
    let entry = put_into_and_know(&depot, "a", b"patch");
    let (from, copies) = (home.path().join("depot"), home.path().join("copies"));
    fs::create_dir(&copies).unwrap();
    gate.change(|state| state.follows = Some((from, copies.clone())));
    assert!(read(&depot, "a") == whole);
    let (size, digest) = depot.inner.known_as(&entry);
    assert!(size == 300_000 && digest.is_some());
    entry.commit(&depot.inner).unwrap();
    gate.change(|state| state.follows = None);
    drop((entry, depot));
    let mut arrived = 0;
    for at in fs::read_dir(&copies).unwrap() {
        let (at, gate) = (at.unwrap().path(), Arc::new(Gate::default()));
        let (far, dir) = self::far();
        fs::write(far.path().join("a"), &bytes).unwrap();
        let depot = opened(&gate, &at, far.path(), Arc::new(dir));
        // A known file is not replaced by another of its name.
        match depot.push(&Scope::All, Some(LIMIT)) {
            Ok(()) => {
                assert!(fs::read(far.path().join("a")).unwrap() == whole, "{at:?}");
                arrived += 1;
            }
            Err(error) => {
                let queue = depot.queue();
                assert!(
                    queue.iter().all(|row| row.is_conflict),
                    "{at:?}: {error}; {queue:?}"
                );
            }
        }
    }
    assert!(arrived > 0);
}

/// Patches the front of a file that is not cached, and persists the hashes of its leaves.
fn put_into_and_know(depot: &Depot, name: &str, bytes: &[u8]) -> Arc<Entry> {
    patch(depot, name, 0, bytes);
    let entry = depot.inner.plan().current[&(url(name), String::new())].clone();
    depot.inner.know(&entry).unwrap();
    entry.lock().record.change();
    entry.commit(&depot.inner).unwrap();
    entry
}
