//! A full disk of this machine, and kills in the middle of a change.

use crate::{
    Depot, Error, Who, Writing,
    disk::{
        files::Watcher,
        records::Records,
        reserve::Ballast,
        rows::{Change, LogRow},
    },
    id::Id,
    tests::tested::{by, is_mover, push, put, reaching, read, until, url, watched},
};
use godwit_store::{Dir, Opener, Store};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

/// Faults of the disk, and counts.
#[derive(Default)]
struct Plan {
    /// There is room for one piece only.
    is_full: AtomicBool,
    pieces: AtomicU64,
    /// Records fail once this path exists.
    unrecorded_after: Mutex<Option<PathBuf>>,
    refused: AtomicU64,
    /// Copies the depot before the write of this number to a file.
    ends_at: Mutex<Option<(u64, PathBuf)>>,
    is_away: AtomicBool,
}

struct Planned(Arc<Plan>, PathBuf);

impl Watcher for Planned {
    fn writes(&self, _: &Path, _: &File, _: u64, _: u64) -> io::Result<()> {
        if self.0.is_full.load(SeqCst) && self.0.pieces.fetch_add(1, SeqCst) > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut ends = self.0.ends_at.lock().unwrap();
        if let Some((left, copy)) = &mut *ends {
            match left {
                0 => {
                    let copied = Command::new("cp").arg("-r").arg(&self.1).arg(copy).status();
                    assert!(copied.unwrap().success());
                    *ends = None;
                }
                left => *left -= 1,
            }
        }
        Ok(())
    }

    fn reserves(&self) -> io::Result<()> {
        match self.0.is_full.load(SeqCst) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    fn records(&self, write: &mut dyn FnMut()) {
        let after = self.0.unrecorded_after.lock().unwrap();
        match after.as_ref().is_some_and(|path| path.exists()) {
            true => drop(self.0.refused.fetch_add(1, SeqCst)),
            false => write(),
        }
    }
}

struct World {
    far: tempfile::TempDir,
    home: tempfile::TempDir,
    plan: Arc<Plan>,
}

impl World {
    fn new() -> Self {
        Self {
            far: tempfile::tempdir().unwrap(),
            home: tempfile::tempdir().unwrap(),
            plan: Arc::default(),
        }
    }

    fn open(&self) -> Depot {
        self.open_at(&self.home.path().join("depot"))
    }

    fn open_at(&self, root: &Path) -> Depot {
        let store: Arc<dyn Store> =
            Arc::new(Dir::open(self.far.path(), "tests", Opener::Myself).unwrap());
        let plan = Arc::clone(&self.plan);
        let connect = reaching(store, move || is_mover() && plan.is_away.load(SeqCst));
        let watcher = Planned(Arc::clone(&self.plan), root.into());
        let boot = ("a boot".into(), Arc::new(watcher) as Arc<dyn Watcher>);
        watched(root, connect, Duration::from_millis(20), boot).unwrap()
    }

    fn away(&self, is_away: bool) {
        self.plan.is_away.store(is_away, SeqCst);
    }

    /// Records fail once this path exists; `None` means that they work.
    fn unrecorded_after(&self, name: Option<&Path>) {
        *self.plan.unrecorded_after.lock().unwrap() = name.map(Into::into);
    }

    /// Copies the depot as a kill would leave it.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.home.path().join(name);
        let depot = self.home.path().join("depot");
        let copied = Command::new("cp").arg("-r").arg(depot).arg(&copy).status();
        assert!(copied.unwrap().success());
        copy
    }

    fn there(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.far.path().join(name)).ok()
    }
}

fn into(depot: &Depot, name: &str, bytes: &[u8]) -> Writing {
    let writing = depot.patch(&url(name), &Who::default(), "night").unwrap();
    for (nth, part) in bytes.chunks(1 << 20).enumerate() {
        writing.write((nth as u64) << 20, part).unwrap();
    }
    writing
}

#[test] //= KANGAROO-24
fn unrecorded_delivery_is_recorded_later() {
    let world = World::new();
    let depot = world.open();
    world.away(true);
    put(&depot, "a", b"ours");
    depot.rename(&url("a"), &url("b"), by()).unwrap();
    // The publication can be recorded, the delivery cannot.
    world.unrecorded_after(Some(&world.far.path().join("a")));
    world.away(false);
    until("it was tried twice", || world.plan.refused.load(SeqCst) > 1);
    assert_eq!(world.there("a").unwrap(), b"ours");
    assert_eq!(world.there("b"), None, "renamed, but recorded as pending");
    world.unrecorded_after(None);
    push(&depot);
    assert_eq!((world.there("a"), depot.queue().len()), (None, 0));
    // A restart without a clean end does not deliver the file again.
    let copy = world.copy("copy");
    drop(depot);
    fs::write(world.far.path().join("b"), b"theirs, since").unwrap();
    let again = world.open_at(&copy);
    assert!(!again.has_pending());
    push(&again);
    assert_eq!(
        (world.there("a"), world.there("b").unwrap().len()),
        (None, 13)
    );
}

#[test]
fn unrecorded_drop_blocks_nothing() {
    let world = World::new();
    let depot = world.open();
    world.away(true);
    put(&depot, "a", b"given up");
    world.unrecorded_after(Some(world.home.path()));
    // A drop is refused while an attempt is in flight.
    let mut error = Error::Ending;
    until("it is given up", || {
        error = depot.discard("ftp://far/a").unwrap_err();
        !matches!(error, Error::Busy { .. })
    });
    assert!(matches!(error, Error::Records { .. }), "{error}");
    world.unrecorded_after(None);
    put(&depot, "a", b"newer");
    world.away(false);
    push(&depot);
    assert_eq!(world.there("a").unwrap(), b"newer");
    // The bytes and the record are removed as well.
    until("its bytes are gone", || {
        depot.list("").len() == 1 && files(&world) == 1
    });
    drop(depot);
    assert!(!world.open().has_pending());
}

#[test] //= GASS-59
fn next_record_includes_failed_one() {
    let world = World::new();
    let path = world.home.path().join("held.db");
    let open = || {
        let watcher = Planned(Arc::clone(&world.plan), world.home.path().into());
        let ballast = Arc::new(Ballast::of(world.home.path(), None));
        Records::open(&path, "a boot", Some(Arc::new(watcher)), &ballast).unwrap()
    };
    let log = |nth: u8| LogRow {
        id: Id::of([nth; 12]),
        number: nth.into(),
        url: "ftp://far/log".into(),
        audience: String::new(),
        credential: String::new(),
        writer: 1,
        seq: 1,
        offset: 0,
        upto: 0,
    };
    let begun = open();
    begun.records.write(Change::Log(Box::new(log(1)))).unwrap();
    world.unrecorded_after(Some(world.home.path()));
    let over = begun.records.write(Change::ForgetLog(log(1).id));
    assert!(matches!(over, Err(Error::Records { .. })), "{over:?}");
    world.unrecorded_after(None);
    begun.records.write(Change::Log(Box::new(log(2)))).unwrap();
    drop(begun);
    assert_eq!(open().logs.0, [log(2)]);
}

fn files(world: &World) -> usize {
    let folders = fs::read_dir(world.home.path().join("depot/bytes")).unwrap();
    let names = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.contains('.')).count()
}

#[test] //= GASS-37
fn patch_on_full_disk_is_atomic() {
    let world = World::new();
    let depot = world.open();
    world.away(true);
    let (old, new) = (vec![1; 3 << 20], vec![2; 2 << 20]);
    put(&depot, "a", &old);
    let blocks = into(&depot, "a", &new);
    world.plan.is_full.store(true, SeqCst);
    let error = blocks.end().unwrap_err();
    assert!(matches!(error, Error::Disk { .. }), "{error}");
    world.plan.is_full.store(false, SeqCst);
    let records = into(&depot, "a", &new);
    world.unrecorded_after(Some(world.home.path()));
    records.end().unwrap_err();
    world.unrecorded_after(None);
    assert!(read(&depot, "a") == old, "as it was");
    into(&depot, "a", &new).end().unwrap();
    let both = [&new[..], &old[2 << 20..]].concat();
    assert!(read(&depot, "a") == both);
    world.away(false);
    push(&depot);
    assert!(world.there("a").unwrap() == both);
}

#[test] //= KANGAROO-32
fn patch_during_kill_is_completed() {
    let (old, new) = (vec![1; 3 << 20], vec![2; 2 << 20]);
    let both = [&new[..], &old[2 << 20..]].concat();
    for writes in 0..2 {
        let world = World::new();
        let depot = world.open();
        world.away(true);
        put(&depot, "a", &old);
        let writing = into(&depot, "a", &new);
        let copy = world.home.path().join("copy");
        *world.plan.ends_at.lock().unwrap() = Some((writes, copy.clone()));
        writing.end().unwrap();
        drop(depot);
        let again = world.open_at(&copy);
        assert!(read(&again, "a") == both, "after {writes} pieces");
        assert_eq!(again.queue()[0].session, "night");
        world.away(false);
        push(&again);
        assert!(world.there("a").unwrap() == both);
        assert_eq!(again.list("").len(), 1);
        drop(again);
        assert!(!world.open_at(&copy).has_pending());
    }
}
