//! Helpers of the unit tests: one server, `ftp://far/`, and a depot that delivers to it.

use crate::{
    By, Connect, Depot, Fresh, Put, Rules, Scope, Who, Writing, disk::files::Watcher,
    plan::entry::Entry,
};
use godwit_core::{Url, holding::Base};
use godwit_store::{Dir, Error, Opener, Store, engine::Place};
use std::{
    io::{self, Read},
    ops::{Deref, DerefMut},
    path::Path,
    sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

pub(crate) fn url(name: &str) -> Url {
    Url::from_argument(format!("ftp://far/{name}")).unwrap()
}

/// Reaches `store` under every URL unless `is_away`.
pub(crate) fn reaching(
    store: Arc<dyn Store>,
    is_away: impl Fn() -> bool + Send + Sync + 'static,
) -> Connect {
    Arc::new(move |url: &Url, _: &Who| {
        if is_away() {
            return Err(Error::unreachable("far", io::ErrorKind::ConnectionRefused));
        }
        Ok(Place {
            store: store.clone(),
            path: url.as_path().into(),
            url: url.clone(),
        })
    })
}

/// Returns whether the calling thread is a mover. Writers connect too, to learn whether there is a store.
pub(crate) fn is_mover() -> bool {
    let thread = thread::current();
    thread.name().is_some_and(|name| name.starts_with("mover"))
}

/// Opens a depot on a watched disk, in a boot of that name, with two movers.
pub(crate) fn watched(
    root: &Path,
    connect: Connect,
    pause_max: Duration,
    boot: (String, Arc<dyn Watcher>),
) -> crate::Result<Depot> {
    let rules = Rules {
        movers: 2,
        pause_max,
        ..Rules::default()
    };
    Depot::open_watched(root, rules, connect, (boot.0, Some(boot.1)))
}

/// A caller without a name or a session.
pub(crate) fn by() -> By<'static> {
    static WHO: LazyLock<Who> = LazyLock::new(Who::default);
    By {
        who: &WHO,
        session: "",
        is_wanted: &|| true,
    }
}

/// A put that replaces any file.
pub(crate) fn over() -> Put {
    let session = String::new();
    Put {
        base: Base::Any,
        session,
    }
}

/// Begins to put a file that replaces any other.
pub(crate) fn putting(depot: &Depot, name: &str, bytes: &[u8]) -> Writing {
    let writing = depot.put(&url(name), by().who, &over()).unwrap();
    writing.write(0, bytes).unwrap();
    writing
}

/// Puts a file that replaces any other.
pub(crate) fn put(depot: &Depot, name: &str, bytes: &[u8]) -> Arc<Entry> {
    let writing = putting(depot, name, bytes);
    let entry = Arc::clone(&writing.entry);
    writing.end().unwrap();
    entry
}

/// Patches a file.
pub(crate) fn patch(depot: &Depot, name: &str, offset: u64, bytes: &[u8]) {
    let into = depot.patch(&url(name), by().who, "").unwrap();
    into.write(offset, bytes).unwrap();
    into.end().unwrap();
}

pub(crate) fn read(depot: &Depot, name: &str) -> Vec<u8> {
    let reading = depot.read(&url(name), by().who, Fresh::Any).unwrap();
    let mut bytes = Vec::new();
    reading.file().read_to_end(&mut bytes).unwrap();
    bytes
}

pub(crate) fn push(depot: &Depot) {
    let pushed = depot.push(&Scope::All, Some(LIMIT));
    pushed.unwrap_or_else(|error| panic!("{error}; {:?}", depot.queue()));
}

/// The state of a test, and threads that wait for it.
#[derive(Default)]
pub(crate) struct Gate<S> {
    state: Mutex<Gated<S>>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct Gated<S> {
    said: S,
    pub(crate) waiting: u32,
}

impl<S> Deref for Gated<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.said
    }
}

impl<S> DerefMut for Gated<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.said
    }
}

impl<S> Gate<S> {
    pub(crate) fn state(&self) -> MutexGuard<'_, Gated<S>> {
        self.state.lock().unwrap()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Gated<S>)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits until the condition holds, and fails after `LIMIT`.
    pub(crate) fn wait(&self, until: impl Fn(&Gated<S>) -> bool) {
        let (state, changed) = (self.state(), &self.changed);
        let waited = changed.wait_timeout_while(state, LIMIT, |state| !until(state));
        assert!(!waited.unwrap().1.timed_out(), "no thread waited");
    }

    /// Waits while it is shut, and is counted.
    pub(crate) fn pass(&self, is_shut: impl Fn(&Gated<S>) -> bool) {
        if is_shut(&self.state()) {
            self.change(|state| state.waiting += 1);
            self.wait(|state| !is_shut(state));
        }
    }
}

/// A directory that plays the server.
pub(crate) fn far() -> (tempfile::TempDir, Dir) {
    let far = tempfile::tempdir().unwrap();
    let dir = Dir::open(far.path(), "tests", Opener::Myself).unwrap();
    (far, dir)
}

/// Polls until the condition holds.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "not: {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Limit of every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
