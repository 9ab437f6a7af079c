//! A depot in a temporary directory, and a target of which tests decide whether it can be reached.
#![allow(clippy::unwrap_used, dead_code)] // Tests may; each file uses its part.

pub(crate) mod comparing;

use godwit_core::{Url, holding::Base};
use godwit_depot::{By, Connect, Depot, Fresh, Put, Rules, Scope, Who};
use godwit_store::{Dir, Error, Faulty, Opener, Store, Trouble, engine::Place};
use std::{
    fs, io,
    io::Read,
    path::PathBuf,
    sync::{
        Arc, Condvar, LazyLock, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use tempfile::TempDir;

/// A directory that plays the server of `ftp://far/`.
pub(crate) struct Far {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<Faulty<Dir>>,
    pub(crate) is_away: Arc<AtomicBool>,
    /// Nobody knows its name.
    pub(crate) is_unknown: Arc<AtomicBool>,
    /// How often somebody asked for it.
    pub(crate) visits: Arc<AtomicU64>,
    pub(crate) gate: Arc<Gate>,
    /// Nothing gets on its disk.
    pub(crate) is_unsafe: Arc<AtomicBool>,
    /// Is told of each look at a file (`stat`) and each read of one (`read`), and may say why not.
    pub(crate) on_ask: Arc<Mutex<OnAsk>>,
    /// It compares leaves, as ours do.
    pub(crate) is_ours: Arc<AtomicBool>,
    /// How many leaves came as what they were when they were written.
    pub(crate) known: Arc<AtomicU64>,
    /// The same before somebody writes.
    pub(crate) write_gate: Arc<Gate>,
    /// The same after something was published, before that is told.
    pub(crate) flush_gate: Arc<Gate>,
}

type OnAsk = Option<Box<dyn FnMut(&'static str, &Path) -> Done<()> + Send>>;

/// Where reads of one name wait until somebody lets them.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<(Option<PathBuf>, usize)>,
    changed: Condvar,
}

impl Gate {
    /// Whoever asks for a file of this name waits; who waits for another goes on.
    pub(crate) fn shut(&self, name: &str) {
        self.state.lock().unwrap().0 = Some(name.into());
        self.changed.notify_all();
    }

    /// Whoever waits goes on.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap().0 = None;
        self.changed.notify_all();
    }

    /// Returns when so many wait.
    pub(crate) fn reached(&self, wanted: usize) {
        let state = self.state.lock().unwrap();
        let wait = self.changed.wait_while(state, |state| state.1 < wanted);
        drop(wait.unwrap());
    }

    fn pass(&self, path: &Path) {
        let mut state = self.state.lock().unwrap();
        let is_open =
            |shut: &Option<PathBuf>| shut.as_ref().is_none_or(|shut| !path.ends_with(shut));
        if is_open(&state.0) {
            return;
        }
        state.1 += 1;
        self.changed.notify_all();
        let mut state = self
            .changed
            .wait_while(state, |state| !is_open(&state.0))
            .unwrap();
        state.1 -= 1;
    }
}

impl Far {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Dir::open(dir.path(), "tests", Opener::Myself).unwrap();
        Self {
            dir,
            store: Arc::new(Faulty::new(store, [])),
            is_away: Arc::default(),
            is_unknown: Arc::default(),
            visits: Arc::default(),
            gate: Arc::default(),
            is_unsafe: Arc::default(),
            on_ask: Arc::default(),
            is_ours: Arc::default(),
            known: Arc::default(),
            write_gate: Arc::default(),
            flush_gate: Arc::default(),
        }
    }

    /// Has that be called whenever a file is looked at or read.
    pub(crate) fn on_ask(&self, act: impl FnMut(&'static str, &Path) -> Done<()> + Send + 'static) {
        *self.on_ask.lock().unwrap() = Some(Box::new(act));
    }

    pub(crate) fn connect(&self) -> Connect {
        let store: Arc<dyn Store> = self.store.clone();
        let (is_away, visits) = (self.is_away.clone(), self.visits.clone());
        let on_ask = self.on_ask.clone();
        let (is_unknown, is_unsafe) = (self.is_unknown.clone(), self.is_unsafe.clone());
        let (is_ours, known) = (self.is_ours.clone(), self.known.clone());
        let gates = [&self.gate, &self.write_gate, &self.flush_gate].map(Arc::clone);
        Arc::new(move |url: &Url, _: &Who| {
            visits.fetch_add(1, SeqCst);
            if url.host_port() != "far" {
                let host = url.host_port();
                let cause = "no such name".into();
                return Err(Error::NoSuchHost { host, cause });
            }
            let path: PathBuf = url.as_path().into();
            let away = Away {
                store: store.clone(),
                is_away: is_away.clone(),
                gates: gates.clone(),
                on_ask: on_ask.clone(),
                is_unknown: is_unknown.clone(),
                is_unsafe: is_unsafe.clone(),
                is_ours: is_ours.clone(),
                known: known.clone(),
            };
            let store: Arc<dyn Store> = Arc::new(away);
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

    /// Returns what others see there.
    pub(crate) fn get(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.dir.path().join(name)).ok()
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.store.trouble(trouble);
    }
}

/// A store that can be away.
struct Away {
    store: Arc<dyn Store>,
    is_away: Arc<AtomicBool>,
    /// Of reads, writes, and flushes.
    gates: [Arc<Gate>; 3],
    on_ask: Arc<Mutex<OnAsk>>,
    is_unknown: Arc<AtomicBool>,
    is_unsafe: Arc<AtomicBool>,
    is_ours: Arc<AtomicBool>,
    known: Arc<AtomicU64>,
}

impl Away {
    fn ask(&self, what: &'static str, path: &Path) -> Done<()> {
        match &mut *self.on_ask.lock().unwrap() {
            Some(act) => act(what, path),
            None => Ok(()),
        }
    }

    fn there(&self) -> godwit_store::Result<&dyn Store> {
        if self.is_unknown.load(SeqCst) {
            return Err(Error::NoSuchHost {
                host: "far".into(),
                cause: "no such name".into(),
            });
        }
        match self.is_away.load(SeqCst) {
            true => Err(Error::Unreachable {
                host: "far".into(),
                cause: io::ErrorKind::ConnectionRefused.into(),
            }),
            false => Ok(&*self.store),
        }
    }
}

use godwit_core::{Algorithm, Digest, Extents, Version};
use godwit_store::{Can, Entry, Set, Sink, Space, Stat, Take, What, Write};
use std::{ops::Range, path::Path};
type Done<T> = godwit_store::Result<T>;

impl Store for Away {
    fn can(&self) -> Done<Can> {
        let leaves = self.is_ours.load(SeqCst);
        Ok(Can {
            leaves,
            ..self.there()?.can()?
        })
    }
    fn stat(&self, path: &Path) -> Done<Stat> {
        self.ask("stat", path)?;
        self.there()?.stat(path)
    }
    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Done<()>) -> Done<()> {
        self.there()?.list(path, each)
    }
    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn Take,
    ) -> Done<godwit_store::Read> {
        self.gates[0].pass(path);
        self.ask("read", path)?;
        self.there()?.read(path, want, streams, into)
    }
    fn write(&self, path: &Path, write: &Write<'_>) -> Done<Box<dyn Sink>> {
        self.gates[1].pass(path);
        let sink = self.there()?.write(path, write)?;
        let known = self.known.clone();
        Ok(match self.is_ours.load(SeqCst) {
            false => sink,
            true => Box::new(comparing::Comparing {
                sink,
                differs: Mutex::default(),
                known,
            }),
        })
    }
    fn remove(&self, path: &Path, what: What) -> Done<()> {
        self.there()?.remove(path, what)
    }
    fn rename(&self, from: &Path, to: &Path) -> Done<()> {
        self.there()?.rename(from, to)
    }
    fn mkdir(&self, path: &Path) -> Done<()> {
        self.there()?.mkdir(path)
    }
    fn set(&self, path: &Path, set: &Set) -> Done<()> {
        self.there()?.set(path, set)
    }
    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Done<Digest> {
        self.there()?.digest(path, by, range)
    }
    fn space(&self, path: &Path) -> Done<Space> {
        self.there()?.space(path)
    }
    fn flush(&self, path: &Path) -> Done<()> {
        self.gates[2].pass(path);
        if self.is_unsafe.load(SeqCst) {
            return Err(Error::Lost {
                host: "far".into(),
                during: "writing to its disk".into(),
                cause: io::ErrorKind::ConnectionReset.into(),
            });
        }
        self.there()?.flush(path)
    }
    fn became(&self, path: &Path, id: &str) -> Done<Option<Version>> {
        self.there()?.became(path, id)
    }
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

/// Replaces whatever there is.
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

/// Bytes that differ everywhere.
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

/// The same by other rules.
pub(crate) fn with(far: &Far, dir: &TempDir, rules: Rules) -> Depot {
    Depot::open(&dir.path().join("depot"), rules, far.connect()).unwrap()
}

pub(crate) fn both() -> (Far, TempDir) {
    (Far::new(), tempfile::tempdir().unwrap())
}

/// By [`who`], of no session.
pub(crate) fn by() -> By<'static> {
    static WHO: LazyLock<Who> = LazyLock::new(who);
    By {
        who: &WHO,
        session: "",
    }
}

/// The directory of a depot as a kill would leave it at this moment.
pub(crate) fn as_killed(depot: &Depot) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    let mut cp = std::process::Command::new("cp");
    let copied = cp.arg("-r").arg(depot.root()).arg(copy.path());
    assert!(copied.status().unwrap().success());
    copy
}

/// The same, and that depot ends.
pub(crate) fn killed(first: Depot) -> TempDir {
    let copy = as_killed(&first);
    drop(first);
    copy
}

/// Waits until something is so, and fails where that takes too long.
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
