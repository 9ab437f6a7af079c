//! The depot on a disk that forgets what was not synced, from seeds: programs
//! that write and read, a target that breaks, and cuts of the power at any
//! write, any sync and any record. A failing seed is named; `GODWIT_SEED` runs
//! it alone, `GODWIT_SEEDS` so many.

use crate::{Connect, Depot, Fresh, Put, Rules, Scope, Who, disk::Watcher};
use godwit_core::{Url, holding::Base};
use godwit_store::{Dir, Error as StoreError, Faulty, Opener, Store, Trouble, engine::Place};
use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What was there before a write that is not synced yet.
struct Undo {
    offset: u64,
    before: Vec<u8>,
    size: u64,
}

/// A disk of which a copy can be taken as a cut of the power would leave it.
struct Cutter {
    root: PathBuf,
    state: Mutex<State>,
    /// The machine has no power any more: what it says reaches nobody.
    is_dead: AtomicBool,
}

struct State {
    dice: Dice,
    unsynced: HashMap<PathBuf, Vec<Undo>>,
    /// After so many more of its acts the power goes.
    left: Option<u64>,
    copy: Option<tempfile::TempDir>,
}

impl Cutter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn act(&self, state: &mut State) -> io::Result<()> {
        match &mut state.left {
            Some(0) => {}
            Some(left) => {
                *left -= 1;
                return Ok(());
            }
            None => return Ok(()),
        }
        state.left = None;
        self.cut(state)
    }

    /// Takes the copy. Of each write that was not synced the kernel had written it or not.
    fn cut(&self, state: &mut State) -> io::Result<()> {
        if self.is_dead.swap(true, SeqCst) {
            return Ok(());
        }
        let copy = scratch()?;
        let to = copy.path().join("depot");
        copy_all(&self.root, &to)?;
        for (path, undone) in &state.unsynced {
            let Ok(inside) = path.strip_prefix(&self.root) else {
                continue;
            };
            let Ok(file) = File::options().write(true).open(to.join(inside)) else {
                continue;
            };
            for undo in undone.iter().rev() {
                if state.dice.one_in(2) {
                    file.write_all_at(&undo.before, undo.offset)?;
                    file.set_len(undo.size)?;
                }
            }
        }
        state.copy = Some(copy);
        Ok(())
    }
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &target)?,
            false => match fs::copy(entry.path(), &target) {
                // Forgotten just now, or the database's own.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => drop(copied?),
            },
        }
    }
    Ok(())
}

impl Watcher for Cutter {
    fn writes(&self, path: &Path, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.state();
        let size = file.metadata()?.len();
        let mut before = vec![0; len.min(size.saturating_sub(offset)) as usize];
        file.read_exact_at(&mut before, offset)?;
        let undo = Undo {
            offset,
            before,
            size,
        };
        state.unsynced.entry(path.into()).or_default().push(undo);
        self.act(&mut state)
    }

    fn resizes(&self, path: &Path, file: &File, size: u64) -> io::Result<()> {
        self.writes(path, file, size, u64::MAX)
    }

    fn synced(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        self.act(&mut state)?;
        if !self.is_dead.load(SeqCst) {
            state.unsynced.remove(path);
        }
        Ok(())
    }

    fn records(&self, write: &mut dyn FnMut()) {
        // Nobody takes a copy of a database that is being written.
        let mut state = self.state();
        let _ = self.act(&mut state);
        write();
        let _ = self.act(&mut state);
    }
}

/// What a name may say: what was promised last, or what came after it and was not.
#[derive(Default)]
struct Name {
    /// Everything that was ever a whole generation.
    whole: Vec<Vec<u8>>,
    /// Of these, from the last that was promised on.
    promised: usize,
}

struct World {
    seed: u64,
    dice: Dice,
    far: tempfile::TempDir,
    store: Arc<Faulty<Dir>>,
    home: tempfile::TempDir,
    cutter: Arc<Cutter>,
    depot: Option<Depot>,
    names: BTreeMap<&'static str, Name>,
    cuts: u32,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// The disk is ours to play: a real one would only be slower.
fn scratch() -> io::Result<tempfile::TempDir> {
    match Path::new("/dev/shm").is_dir() {
        true => tempfile::tempdir_in("/dev/shm"),
        false => tempfile::tempdir(),
    }
}

fn url(name: &str) -> Url {
    Url::from_argument(format!("ftp://far/{name}")).unwrap()
}

fn who() -> Who {
    Who::default()
}

impl World {
    fn new(seed: u64) -> Self {
        let far = scratch().unwrap();
        let dir = Dir::open(far.path(), "tests", Opener::Myself).unwrap();
        let home = scratch().unwrap();
        let cutter = cutter(home.path().join("depot"), seed);
        let mut world = Self {
            seed,
            dice: Dice::new(seed),
            far,
            store: Arc::new(Faulty::new(dir, [])),
            home,
            cutter,
            depot: None,
            names: BTreeMap::new(),
            cuts: 0,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let store: Arc<dyn Store> = self.store.clone();
        let cutter = Arc::clone(&self.cutter);
        let connect: Connect = Arc::new(move |url: &Url, _: &Who| {
            if cutter.is_dead.load(SeqCst) {
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
        let root = self.home.path().join("depot");
        let watcher = Arc::clone(&self.cutter) as Arc<dyn Watcher>;
        let depot = Depot::open_watched(
            &root,
            rules,
            connect,
            (self.cuts.to_string(), Some(watcher)),
        );
        self.depot = Some(depot.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)));
    }

    /// If the power went, the machine begins anew with what its disk has kept.
    fn after_a_cut(&mut self) {
        if !self.cutter.is_dead.load(SeqCst) {
            return;
        }
        drop(self.depot.take());
        let copy = self.cutter.state().copy.take().expect("it was cut");
        self.home = copy;
        self.cuts += 1;
        let seed = self.dice.roll();
        self.cutter = cutter(self.home.path().join("depot"), seed);
        self.begin();
    }

    fn depot(&self) -> &Depot {
        self.depot.as_ref().expect("it is there between cuts")
    }

    fn step(&mut self) {
        if self.dice.one_in(4) {
            let at = self.dice.below(12);
            self.cutter.state().left = Some(at);
        }
        if self.dice.one_in(5) {
            let trouble = match self.dice.below(3) {
                0 => Trouble::LosesFinish,
                1 => Trouble::LosesWriteAt(self.dice.below(3_000_000)),
                _ => Trouble::LosesVerb(self.dice.below(40)),
            };
            self.store.trouble(trouble);
        }
        let name = NAMES[self.dice.below(3) as usize];
        match self.dice.below(8) {
            0..4 => self.put(name),
            4 => self.read(name),
            5 => drop(
                self.depot()
                    .push(&Scope::All, Some(Duration::from_millis(50))),
            ),
            6 => drop(
                self.depot()
                    .push(&Scope::Url(url(name)), Some(Duration::from_millis(20))),
            ),
            _ => {
                let mut state = self.cutter.state();
                if self.dice.one_in(2) {
                    self.cutter.cut(&mut state).unwrap();
                }
            }
        }
        self.after_a_cut();
        self.look();
    }

    fn put(&mut self, name: &'static str) {
        let len = [0, 1, 5000, 1 << 20, (1 << 20) + 7][self.dice.below(5) as usize];
        let tag = self.dice.roll();
        let bytes: Vec<u8> = (0..len).map(|at: u64| (at * 31 + tag) as u8).collect();
        let all = self.names.entry(name).or_default();
        all.whole.push(bytes.clone());
        let number = all.whole.len() - 1;
        let how = Put {
            base: Base::Any,
            session: String::new(),
        };
        let Ok(writing) = self.depot().put(&url(name), &who(), &how) else {
            return;
        };
        let step = [1000, 1 << 18, 2 << 20][self.dice.below(3) as usize];
        for (part, chunk) in bytes.chunks(step).enumerate() {
            if writing.write((part * step) as u64, chunk).is_err() {
                return;
            }
        }
        let ended = writing.end();
        // What was said after the power went was heard by nobody.
        if ended.is_ok() && !self.cutter.is_dead.load(SeqCst) {
            self.names.get_mut(name).expect("it was put").promised = number;
        }
    }

    fn read(&mut self, name: &'static str) {
        let Ok(reading) = self.depot().read(&url(name), &who(), Fresh::Usual) else {
            return;
        };
        let mut bytes = Vec::new();
        reading.file().read_to_end(&mut bytes).unwrap();
        drop(reading);
        self.must_be_whole(name, &bytes, "is read here");
    }

    /// Whatever is there was once promised or being written, as a whole.
    fn look(&self) {
        for name in NAMES {
            if let Ok(bytes) = fs::read(self.far.path().join(name)) {
                self.must_be_whole(name, &bytes, "is seen there");
            }
        }
    }

    fn must_be_whole(&self, name: &str, bytes: &[u8], what: &str) {
        let known = self
            .names
            .get(name)
            .is_some_and(|all| all.whole.iter().any(|w| w == bytes));
        let (seed, len) = (self.seed, bytes.len());
        assert!(
            known,
            "seed {seed}: {len} bytes of {name} that never were a whole {what}"
        );
    }

    fn end(mut self) -> u32 {
        self.cutter.state().left = None;
        self.store.mend();
        self.after_a_cut();
        let pushed = self.depot().push(&Scope::All, LIMIT);
        let seed = self.seed;
        if let Err(error) = pushed {
            panic!("seed {seed}: {error}; {:?}", self.depot().queue());
        }
        self.look();
        for (name, all) in &self.names {
            let there = fs::read(self.far.path().join(name)).ok();
            let was_promised = all.promised > 0 || there.is_some();
            let may = all.whole.get(all.promised..).unwrap_or_default();
            let is_one = there.as_ref().is_some_and(|there| may.contains(there));
            assert!(
                is_one || !was_promised,
                "seed {seed}: {name} is not what was promised last"
            );
        }
        self.cuts
    }
}

fn cutter(root: PathBuf, seed: u64) -> Arc<Cutter> {
    Arc::new(Cutter {
        root,
        state: Mutex::new(State {
            dice: Dice::new(seed),
            unsynced: HashMap::new(),
            left: None,
            copy: None,
        }),
        is_dead: AtomicBool::new(false),
    })
}

#[test]
fn what_was_promised_survives_cuts_of_the_power() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds: Vec<u64> = match number("GODWIT_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("GODWIT_SEEDS").unwrap_or(25)).collect(),
    };
    let mut cuts = 0;
    for seed in seeds {
        let mut world = World::new(seed);
        for _ in 0..25 {
            world.step();
        }
        cuts += world.end();
    }
    assert!(cuts > 0, "the power never went");
}
