//! What happens while something else is half done: where a test has to stop one of
//! them in its middle, on the disk or at the target.

use crate::{
    Connect, Depot, Edit, Ended, Put, Rules, Scope, Who,
    disk::{Id, Watcher},
};
use godwit_core::{Url, holding::Base};
use godwit_store::{Dir, Error as StoreError, Faulty, Opener, Store, Trouble, engine::Place};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

/// What a test waits for, and what waits for it.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whoever delivers cannot reach the target once it has a file of this name.
    away_with: Option<String>,
    refused: u32,
    /// Of all files but this one, nothing is synced.
    shut_but: Option<Id>,
    waiting: u32,
    synced: u32,
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
}

impl Watcher for Gate {
    fn writes(&self, _: &Path, _: &File, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn resizes(&self, _: &Path, _: &File, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn synced(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_shut = |state: &State| {
            state
                .shut_but
                .is_some_and(|id| !name.starts_with(&id.to_string()))
        };
        let waits = is_shut(&self.state());
        match waits {
            true => {
                self.change(|state| state.waiting += 1);
                self.wait(|state| !is_shut(state));
            }
            false => self.change(|state| state.synced += 1),
        }
        Ok(())
    }

    fn records(&self, write: &mut dyn FnMut()) {
        write();
    }
}

fn url(name: &str) -> Url {
    Url::from_argument(format!("ftp://far/{name}")).unwrap()
}

fn opened(gate: &Arc<Gate>, home: &Path, far: &Path, store: Arc<dyn Store>) -> Depot {
    let (at, far) = (Arc::clone(gate), far.to_owned());
    let connect: Connect = Arc::new(move |url: &Url, _: &Who| {
        // Who writes asks for the store too, to know whether there is one.
        let is_mover = thread::current()
            .name()
            .is_some_and(|name| name.starts_with("mover"));
        let away_with = at.state().away_with.clone().filter(|_| is_mover);
        if away_with.is_some_and(|name| far.join(name).exists()) {
            at.change(|state| state.refused += 1);
            return Err(StoreError::Unreachable {
                host: "far".into(),
                cause: io::ErrorKind::ConnectionRefused.into(),
            });
        }
        Ok(Place {
            store: store.clone(),
            path: url.as_path().into(),
            url: url.clone(),
        })
    });
    let rules = Rules {
        movers: 2,
        pause_max: Duration::from_millis(5),
        ..Rules::default()
    };
    let watcher = Arc::clone(gate) as Arc<dyn Watcher>;
    Depot::open_watched(
        &home.join("depot"),
        rules,
        connect,
        ("boot".into(), Some(watcher)),
    )
    .unwrap()
}

fn far() -> (tempfile::TempDir, Dir) {
    let far = tempfile::tempdir().unwrap();
    let dir = Dir::open(far.path(), "tests", Opener::Myself).unwrap();
    (far, dir)
}

/// That nobody writes a file any more may be found out by another than who ended last, who is told no earlier.
#[test]
fn what_was_edited_is_on_record_before_anybody_is_told_so() {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let gate = Arc::new(Gate::default());
    let depot = opened(&gate, home.path(), far.path(), Arc::new(dir));
    let (who, nothing) = (Who::default(), Id::of([0; 12]));
    let edit = Edit {
        create: true,
        ..Edit::default()
    };
    let editing = depot.edit(&url("a"), &who, &edit).unwrap();
    let held = depot.inner.all().current[&(url("a"), who.audience)].clone();
    editing.file().unwrap().write_all_at(b"edited", 0).unwrap();
    gate.change(|state| state.shut_but = Some(nothing));
    thread::scope(|scope| {
        let ending = scope.spawn(|| editing.end().unwrap());
        gate.wait(|state| state.waiting > 0);
        scope.spawn(|| {
            thread::sleep(LONG_ENOUGH_TO_BE_TOO_EARLY);
            gate.change(|state| state.shut_but = None);
        });
        let ended = depot.inner.is_edited(&held).unwrap();
        let is_ahead = held.lock().is_ahead();
        assert!(matches!(ended, Ended::Last(_)) && !is_ahead, "{ended:?}");
        ending.join().unwrap();
    });
}

/// Whoever does not wait for what is held up is seen not to.
const LONG_ENOUGH_TO_BE_TOO_EARLY: Duration = Duration::from_millis(300);

/// Somebody wrote more into a file on its way, and it arrived without that while somebody else put another in its
/// place, and had not been told yet that this is kept.
#[test]
fn what_is_put_goes_over_what_was_written_before_it() {
    let ((far, dir), home) = (far(), tempfile::tempdir().unwrap());
    let store = Arc::new(Faulty::new(dir, [Trouble::LosesFinish]));
    let gate = Arc::new(Gate::default());
    gate.change(|state| state.away_with = Some("a".into()));
    let depot = opened(&gate, home.path(), far.path(), store);
    let (who, session) = (Who::default(), String::new());
    let over = Put {
        base: Base::Any,
        session,
    };
    let first = depot.put(&url("a"), &who, &over).unwrap();
    first.write(0, b"first").unwrap();
    let id = first.held.id;
    first.end().unwrap();
    gate.wait(|state| state.refused > 0);
    let into = depot.put_into(&url("a"), &who, "").unwrap();
    into.write(5, b" and more").unwrap();
    into.end().unwrap();
    let second = depot.put(&url("a"), &who, &over).unwrap();
    second.write(0, b"second").unwrap();
    gate.change(|state| state.shut_but = Some(id));
    thread::scope(|scope| {
        let ending = scope.spawn(|| second.end().unwrap());
        gate.wait(|state| state.waiting > 0);
        // The first is found to be there, and what was written into it is on its way.
        gate.change(|state| (state.away_with, state.synced) = (None, 0));
        gate.wait(|state| state.synced > 0);
        gate.change(|state| state.shut_but = None);
        ending.join().unwrap();
    });
    let pushed = depot.push(&Scope::All, Some(Duration::from_secs(30)));
    pushed.unwrap();
    assert_eq!(fs::read(far.path().join("a")).unwrap(), b"second");
}
