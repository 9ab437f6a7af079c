//! A depot in a temporary directory, and a target whose faults the tests decide.
#![allow(clippy::unwrap_used, dead_code)] // Tests may; each file uses its part.

pub(crate) mod comparing;

use godwit_core::{Url, holding::Base};
use godwit_depot::{By, Connect, Depot, Fresh, Put, Rules, Scope, Who};
use godwit_store::{
    Defect, Dir, Error, Faulty, Opener, Store, StoreExt, Transit, Volume, engine::Place,
};
use std::{
    fs, io,
    io::Read,
    ops::Deref,
    path::PathBuf,
    sync::{
        Arc, Condvar, LazyLock, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// A directory that plays the server of `ftp://far/`.
pub(crate) struct Far {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<Faulty<Dir>>,
    lot: Arc<Lot>,
}

/// Faults of the server, and counts of its calls.
#[derive(Default)]
pub(crate) struct Lot {
    pub(crate) is_away: AtomicBool,
    /// Its host name does not resolve.
    pub(crate) is_unknown: AtomicBool,
    /// The number of connections.
    pub(crate) visits: AtomicU64,
    /// Stops reads.
    pub(crate) gate: Gate,
    /// Stops a mover before its `stat`.
    pub(crate) look_gate: Gate,
    /// Stops writes.
    pub(crate) write_gate: Gate,
    /// Stops `flush`, after the file was published.
    pub(crate) flush_gate: Gate,
    /// Nothing becomes durable.
    pub(crate) is_unsafe: AtomicBool,
    /// `stat` has no times.
    pub(crate) tells_no_time: AtomicBool,
    /// `stat` has no change time, as with most servers.
    pub(crate) tells_no_touch: AtomicBool,
    /// Forgets which upload became which file.
    pub(crate) forgets: AtomicBool,
    /// Called at each `stat`, `digest`, `read`, `write`, `remove`, `rename`, `flush` and `mkdir`; may return an
    /// error.
    pub(crate) on_ask: Mutex<OnAsk>,
    /// Compares leaves, as our nodes do.
    pub(crate) is_ours: AtomicBool,
    /// The number of leaves that came with their stored hashes.
    pub(crate) known: AtomicU64,
    /// Stops a sender of leaves with stored hashes.
    pub(crate) known_gate: Gate,
    /// Takes no byte twice in one session, as FTP servers do.
    pub(crate) is_once: AtomicBool,
}

impl Deref for Far {
    type Target = Lot;

    fn deref(&self) -> &Lot {
        &self.lot
    }
}

type OnAsk = Option<Box<dyn FnMut(&'static str, &Path) -> Done<()> + Send>>;

/// Stops calls for one name.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<Shut>,
    changed: Condvar,
}

#[derive(Default)]
struct Shut {
    name: Option<PathBuf>,
    waiting: usize,
    /// The number of names so far; waiters for earlier names do not count.
    turn: u64,
}

impl Shut {
    fn is_open(&self, path: &Path) -> bool {
        self.name.as_ref().is_none_or(|name| !path.ends_with(name))
    }
}

impl Gate {
    /// Calls for this name wait; others pass.
    pub(crate) fn shut(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        let name = Some(name.into());
        if state.name != name {
            (state.waiting, state.turn) = (0, state.turn + 1);
        }
        state.name = name;
        drop(state);
        self.changed.notify_all();
    }

    /// Lets all waiters go on.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap().name = None;
        self.changed.notify_all();
    }

    /// Waits until so many calls wait.
    pub(crate) fn reached(&self, wanted: usize) {
        let state = self.state.lock().unwrap();
        let wait = self
            .changed
            .wait_while(state, |state| state.waiting < wanted);
        drop(wait.unwrap());
    }

    pub(crate) fn pass(&self, path: &Path) {
        let mut state = self.state.lock().unwrap();
        if state.is_open(path) {
            return;
        }
        let turn = state.turn;
        state.waiting += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |state| !state.is_open(path));
        let mut state = waited.unwrap();
        if state.turn == turn {
            state.waiting -= 1;
        }
    }
}

impl Far {
    pub(crate) fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    /// A server that has the files of `dir`.
    pub(crate) fn at(dir: TempDir) -> Self {
        let store = Dir::open(dir.path(), "tests", Opener::Myself).unwrap();
        Self {
            dir,
            store: Arc::new(Faulty::new(store, [])),
            lot: Arc::default(),
        }
    }

    /// Returns the shared faults.
    pub(crate) fn lot(&self) -> Arc<Lot> {
        Arc::clone(&self.lot)
    }

    /// Calls `act` at every call.
    pub(crate) fn on_ask(&self, act: impl FnMut(&'static str, &Path) -> Done<()> + Send + 'static) {
        *self.on_ask.lock().unwrap() = Some(Box::new(act));
    }

    /// Returns a flag that is set by the next call.
    pub(crate) fn notices_asks(&self) -> Arc<AtomicBool> {
        let asked = Arc::new(AtomicBool::new(false));
        let is_asked = Arc::clone(&asked);
        self.on_ask(move |_, _| {
            is_asked.store(true, SeqCst);
            Ok(())
        });
        asked
    }

    /// Is not reachable for the next call if that is `call`.
    pub(crate) fn misses_one(&self, call: &'static str) {
        let mut is_first = true;
        self.on_ask(move |what, _| match std::mem::take(&mut is_first) {
            true if what == call => Err(Error::Unreachable {
                host: "far".into(),
                cause: io::ErrorKind::ConnectionReset.into(),
            }),
            _ => Ok(()),
        });
    }

    /// Answers "missing" so many times, as a server that has lost its disk.
    pub(crate) fn loses_all(&self, times: u64) -> Arc<AtomicU64> {
        let left = Arc::new(AtomicU64::new(times));
        let lost = Arc::clone(&left);
        self.on_ask(move |_, path| {
            match lost.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
                Ok(_) => Err(Error::Missing { path: path.into() }),
                Err(_) => Ok(()),
            }
        });
        left
    }

    pub(crate) fn connect(&self) -> Connect {
        let away = Away {
            store: self.store.clone(),
            lot: self.lot.clone(),
        };
        Arc::new(move |url: &Url, _: &Who| {
            away.lot.visits.fetch_add(1, SeqCst);
            if url.host_port() != "far" {
                let host = url.host_port();
                let cause = "no such name".into();
                return Err(Error::NoSuchHost { host, cause });
            }
            let path: PathBuf = url.as_path().into();
            let store: Arc<dyn Store> = Arc::new(away.clone());
            let url = url.clone();
            Ok(Place { store, path, url })
        })
    }

    pub(crate) fn set_away(&self, away: bool) {
        self.is_away.store(away, SeqCst);
    }

    pub(crate) fn set_unknown(&self, unknown: bool) {
        self.is_unknown.store(unknown, SeqCst);
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    /// Puts a file with an old time, so that it is not revalidated as recent.
    pub(crate) fn put_as_of_before(&self, name: &str, bytes: &[u8]) {
        self.put(name, bytes);
        let file = fs::File::options()
            .write(true)
            .open(self.dir.path().join(name));
        let before = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        file.unwrap().set_modified(before).unwrap();
    }

    /// Returns the file at the server.
    pub(crate) fn get(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.dir.path().join(name)).ok()
    }

    pub(crate) fn trouble(&self, trouble: Defect) {
        self.store.trouble(trouble);
    }
}

/// A store that can be away.
#[derive(Clone)]
struct Away {
    store: Arc<dyn Store>,
    lot: Arc<Lot>,
}

impl Away {
    fn ask(&self, what: &'static str, path: &Path) -> Done<()> {
        match &mut *self.lot.on_ask.lock().unwrap() {
            Some(act) => act(what, path),
            None => Ok(()),
        }
    }

    fn there(&self) -> godwit_store::Result<&dyn Store> {
        if self.lot.is_unknown.load(SeqCst) {
            return Err(Error::NoSuchHost {
                host: "far".into(),
                cause: "no such name".into(),
            });
        }
        match self.lot.is_away.load(SeqCst) {
            true => Err(Error::Unreachable {
                host: "far".into(),
                cause: io::ErrorKind::ConnectionRefused.into(),
            }),
            false => Ok(&*self.store),
        }
    }
}

use godwit_core::{Algorithm, Digest, Extents, Version};
use godwit_store::{BlockWriter, Capabilities, RemovalKind, Sink, Stat, Write};
use std::{ops::Range, path::Path};
type Done<T> = godwit_store::Result<T>;

impl Store for Away {
    godwit_store::forward!(self, self.there()?; list set);

    fn can(&self) -> Done<Capabilities> {
        let can = self.there()?.can()?;
        Ok(Capabilities {
            leaves: self.lot.is_ours.load(SeqCst),
            again: can.again && !self.lot.is_once.load(SeqCst),
            ..can
        })
    }
    fn stat(&self, path: &Path) -> Done<Stat> {
        self.ask("stat", path)?;
        if is_mover() {
            self.lot.look_gate.pass(path);
        }
        let stat = self.there()?.stat(path)?;
        let is_told = !self.lot.tells_no_time.load(SeqCst);
        let mtime = stat.mtime.filter(|_| is_told);
        let is_told = !self.lot.tells_no_touch.load(SeqCst);
        let touched = stat.touched.filter(|_| is_told);
        Ok(Stat {
            mtime,
            touched,
            ..stat
        })
    }
    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Done<godwit_store::Read> {
        self.lot.gate.pass(path);
        self.ask("read", path)?;
        self.there()?.read(path, want, streams, into)
    }
    fn write(&self, path: &Path, write: &Write<'_>) -> Done<Box<dyn Sink>> {
        self.lot.write_gate.pass(path);
        self.ask("write", path)?;
        let sink = self.there()?.write(path, write)?;
        let lot = self.lot.clone();
        Ok(match self.lot.is_ours.load(SeqCst) {
            false => sink,
            true => Box::new(comparing::Comparing {
                sink,
                differs: Mutex::default(),
                once: lot.is_once.load(SeqCst).then(Mutex::default),
                lot,
            }),
        })
    }
    fn remove(&self, path: &Path, what: RemovalKind) -> Done<()> {
        self.ask("remove", path)?;
        self.there()?.remove(path, what)
    }
    fn rename(&self, from: &Path, to: &Path) -> Done<()> {
        self.ask("rename", from)?;
        self.there()?.rename(from, to)
    }
    fn mkdir(&self, path: &Path) -> Done<()> {
        self.ask("mkdir", path)?;
        self.there()?.mkdir(path)
    }
    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Done<Digest> {
        self.ask("digest", path)?;
        self.there()?.digest(path, by, range)
    }
    godwit_store::has!(self, Facets: transit volume);
}

impl Transit for Away {
    fn flush(&self, path: &Path) -> Done<()> {
        self.ask("flush", path)?;
        self.lot.flush_gate.pass(path);
        if self.lot.is_unsafe.load(SeqCst) {
            return Err(Error::Lost {
                host: "far".into(),
                during: "writing to its disk".into(),
                cause: io::ErrorKind::ConnectionReset.into(),
            });
        }
        self.there()?.flush(path)
    }
    fn published_as(&self, path: &Path, id: &str) -> Done<Option<Version>> {
        match self.lot.forgets.load(SeqCst) {
            true => Ok(None),
            false => self.there()?.published_as(path, id),
        }
    }
}

impl Volume for Away {
    godwit_store::forward!(self, self.there()?; space);
}

/// Returns whether a mover calls.
fn is_mover() -> bool {
    let thread = std::thread::current();
    thread.name().is_some_and(|name| name.starts_with("mover"))
}

pub(crate) fn url(name: &str) -> Url {
    Url::from_argument(format!("ftp://far/{name}")).unwrap()
}

pub(crate) fn who() -> Who {
    Who {
        audience: "me".into(),
        credential: None,
    }
}

/// A put that replaces any file.
pub(crate) fn over() -> Put {
    Put {
        base: Base::Any,
        session: String::new(),
    }
}

pub(crate) fn rules() -> Rules {
    Rules {
        movers: 3,
        pause_max: Duration::from_millis(50),
        ..Rules::default()
    }
}

/// The rules with a quota.
pub(crate) fn of_quota(quota: u64) -> Rules {
    Rules {
        quota: Some(quota),
        ..rules()
    }
}

/// Pseudo-random bytes.
pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

pub(crate) fn put(depot: &Depot, name: &str, bytes: &[u8]) {
    let writing = depot.put(&url(name), &who(), &over()).unwrap();
    for (number, part) in bytes.chunks(1 << 20).enumerate() {
        writing.write((number as u64) << 20, part).unwrap();
    }
    writing.end().unwrap();
}

/// Patches the file at the target.
pub(crate) fn put_into(depot: &Depot, name: &str, offset: u64, bytes: &[u8]) {
    let writing = depot.patch(&url(name), &who(), "").unwrap();
    writing.write(offset, bytes).unwrap();
    writing.end().unwrap();
}

pub(crate) fn read(depot: &Depot, name: &str) -> godwit_depot::Result<Vec<u8>> {
    let reading = depot.read(&url(name), &who(), Fresh::Usual)?;
    let mut bytes = Vec::new();
    reading.file().read_to_end(&mut bytes).unwrap();
    Ok(bytes)
}

pub(crate) fn push(depot: &Depot) {
    depot
        .push(&Scope::All, Some(Duration::from_secs(30)))
        .unwrap();
}

/// Compares contents, and prints only where they differ.
pub(crate) fn same(found: impl AsRef<[u8]>, wanted: impl AsRef<[u8]>) {
    let (found, wanted) = (found.as_ref(), wanted.as_ref());
    let at = found.iter().zip(wanted).position(|(a, b)| a != b);
    let is_same = at.is_none() && found.len() == wanted.len();
    let lens = (found.len(), wanted.len());
    assert!(
        is_same,
        "found and wanted have {lens:?} bytes and differ at {at:?}"
    );
}

/// A depot that delivers to `far`.
pub(crate) fn depot(far: &Far, dir: &TempDir) -> Depot {
    with(far, dir, rules())
}

/// A depot that delivers to `far`, by other rules.
pub(crate) fn with(far: &Far, dir: &TempDir, rules: Rules) -> Depot {
    Depot::open(&dir.path().join("depot"), rules, far.connect()).unwrap()
}

pub(crate) fn both() -> (Far, TempDir) {
    (Far::new(), tempfile::tempdir().unwrap())
}

/// By [`who`], without a session.
pub(crate) fn by() -> By<'static> {
    static WHO: LazyLock<Who> = LazyLock::new(who);
    By {
        who: &WHO,
        session: "",
        is_wanted: &|| true,
    }
}

/// Copies the depot's directory as a kill would leave it.
pub(crate) fn as_killed(depot: &Depot) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let mut cp = std::process::Command::new("cp");
    let copied = cp.arg("-r").arg(depot.root()).arg(copy.path());
    assert!(copied.status().unwrap().success());
    copy
}

/// Copies the directory as a kill would leave it, and ends the depot.
pub(crate) fn killed(first: Depot) -> TempDir {
    let copy = as_killed(&first);
    drop(first);
    copy
}

/// Waits until the condition holds, and fails after 20 seconds.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "not within 20 s: {what}"
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
