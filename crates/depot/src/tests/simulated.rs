//! A depot on a disk that forgets unsynced writes: programs write and read, the target breaks, and the power is cut
//! at any write, sync or record. A failing seed is printed; `GODWIT_SEED` runs it alone. `GODWIT_SEEDS` runs so many,
//! from that seed or the first.

use crate::{
    By, Depot, Edit, Error, Fresh, Pending, Put, Scope, Stage, Who,
    disk::files::Watcher,
    tests::tested::{reaching, url, watched},
    work::recover::UNFINISHED,
};
use godwit_core::holding::Base;
use godwit_store::{Defect, Dir, Error as StoreError, Faulty, Opener, Store};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read},
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
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

/// The bytes before a write that is not synced.
struct Undo {
    offset: u64,
    before: Vec<u8>,
    size: u64,
}

/// A disk that can be copied as a power cut would leave it.
struct Cutter {
    root: PathBuf,
    state: Mutex<State>,
    /// The power is cut: later answers reach no program.
    is_dead: AtomicBool,
}

struct State {
    dice: Dice,
    unsynced: HashMap<PathBuf, Vec<Undo>>,
    /// Acts until the power is cut.
    left: Option<u64>,
    copy: Option<tempfile::TempDir>,
}

impl Cutter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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

    /// Copies the disk. Each unsynced write is kept or lost at random.
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
                // The file was just removed, or belongs to the database.
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
        if self.is_dead.load(SeqCst) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.unsynced.remove(path);
        Ok(())
    }

    fn records(&self, write: &mut dyn FnMut()) {
        // The database is being written, so no copy is taken.
        let mut state = self.state();
        let _ = self.act(&mut state);
        if self.is_dead.load(SeqCst) {
            return; // The depot would continue on a disk that has lost data.
        }
        write();
        let _ = self.act(&mut state);
    }
}

/// The files by name.
type Names = BTreeMap<&'static str, Vec<u8>>;

struct World {
    seed: u64,
    dice: Dice,
    far: tempfile::TempDir,
    store: Arc<Faulty<Dir>>,
    home: tempfile::TempDir,
    cutter: Arc<Cutter>,
    depot: Option<Depot>,
    /// Possible contents: all promised changes, with or without the others.
    may: Vec<Names>,
    /// Every whole version there has been.
    whole: Vec<Vec<u8>>,
    /// The file was patched, so a reader may see it grow.
    is_into: bool,
    done: Vec<String>,
    cuts: u32,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

/// A real disk would only be slower.
fn scratch() -> io::Result<tempfile::TempDir> {
    match Path::new("/dev/shm").is_dir() {
        true => tempfile::tempdir_in("/dev/shm"),
        false => tempfile::tempdir(),
    }
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
            may: vec![Names::new()],
            whole: Vec::new(),
            is_into: false,
            done: Vec::new(),
            cuts: 0,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let store: Arc<dyn Store> = self.store.clone();
        let cutter = Arc::clone(&self.cutter);
        let connect = reaching(store, move || cutter.is_dead.load(SeqCst));
        let root = self.home.path().join("depot");
        let watcher = Arc::clone(&self.cutter) as Arc<dyn Watcher>;
        let boot = (self.cuts.to_string(), watcher);
        let depot = watched(&root, connect, Duration::from_millis(5), boot);
        self.depot = Some(depot.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)));
    }

    /// After a power cut, opens the depot on what its disk has kept.
    fn after_a_cut(&mut self) {
        if !self.cutter.is_dead.load(SeqCst) {
            return;
        }
        self.done.push("cut".into());
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
            let trouble = match self.dice.below(6) {
                0 => Defect::LosesFinish,
                1 => Defect::LosesPublish,
                2 => Defect::LosesWriteAt(self.dice.below(3_000_000)),
                _ => Defect::LosesVerb(1 + self.dice.below(12)),
            };
            self.store.trouble_ahead(trouble);
        }
        let name = NAMES[self.dice.below(3) as usize];
        match self.dice.below(14) {
            0..3 => self.put(name),
            3 => self.read(name),
            4 => drop(
                self.depot()
                    .push(&Scope::All, Some(Duration::from_millis(50))),
            ),
            5 => drop(
                self.depot()
                    .push(&Scope::Url(url(name)), Some(Duration::from_millis(20))),
            ),
            6..8 => {
                let to = NAMES[self.dice.below(3) as usize];
                self.rename(name, to);
            }
            8 => self.unlink(name),
            9..11 => self.edit(name),
            11 => self.patch(name),
            12 => self.truncate(name),
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

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 1, 5000, 1 << 20, (1 << 20) + 7][self.dice.below(5) as usize];
        let tag = self.dice.roll();
        (0..len).map(|at: u64| (at * 31 + tag) as u8).collect()
    }

    /// A change was made, and its caller was answered, or not.
    fn came(&mut self, what: String, is_promised: bool, change: impl Fn(&mut Names)) {
        // Answers after the power cut are not counted.
        let is_promised = is_promised && !self.cutter.is_dead.load(SeqCst);
        self.done.push(format!("{what}: {is_promised}"));
        let mut after = self.may.clone();
        after.iter_mut().for_each(change);
        for names in &after {
            for bytes in names.values() {
                if !self.whole.contains(bytes) {
                    self.whole.push(bytes.clone());
                }
            }
        }
        match is_promised {
            true => self.may = after,
            false => self.may.extend(after),
        }
        self.may.sort();
        self.may.dedup();
    }

    fn put(&mut self, name: &'static str) {
        let bytes = self.bytes();
        let base = match self.dice.one_in(3) && self.may.iter().all(|s| !s.contains_key(name)) {
            true => Base::Absent,
            false => Base::Any,
        };
        self.whole.push(bytes.clone());
        let session = String::new();
        let Ok(writing) = self.depot().put(&url(name), &who(), &Put { base, session }) else {
            return;
        };
        let step = [1000, 1 << 18, 2 << 20][self.dice.below(3) as usize];
        for (part, chunk) in bytes.chunks(step).enumerate() {
            if writing.write((part * step) as u64, chunk).is_err() {
                return;
            }
        }
        let ended = writing.end().is_ok();
        let what = format!("put {name}, {}", shown(&bytes));
        self.came(what, ended, |names| drop(names.insert(name, bytes.clone())));
    }

    fn is_surely_there(&self, name: &str) -> bool {
        self.may.iter().all(|names| names.contains_key(name))
    }

    fn rename(&mut self, name: &'static str, to: &'static str) {
        if !self.is_surely_there(name) {
            return; // While the target is away, a rename of an absent file is accepted.
        }
        let renamed = self.depot().rename(&url(name), &url(to), by()).is_ok();
        self.came(format!("rename {name} to {to}"), renamed, |names| {
            if let Some(bytes) = names.remove(name) {
                names.insert(to, bytes);
            }
        });
    }

    fn unlink(&mut self, name: &'static str) {
        if !self.is_surely_there(name) {
            return;
        }
        let gone = self.depot().unlink(&url(name), by()).is_ok();
        self.came(format!("unlink {name}"), gone, |names| {
            drop(names.remove(name))
        });
    }

    fn truncate(&mut self, name: &'static str) {
        if !self.is_surely_there(name) {
            return;
        }
        let size = [0, 700, 1 << 20, (1 << 20) + 3000][self.dice.below(4) as usize];
        let cut = self.depot().truncate(&url(name), size, by()).is_ok();
        self.came(format!("cut {name} to {size}"), cut, |names| {
            if let Some(bytes) = names.get_mut(name) {
                bytes.resize(size as usize, 0);
            }
        });
    }

    fn patch(&mut self, name: &'static str) {
        let bytes = self.bytes();
        if bytes.is_empty() {
            return; // An empty patch of an absent file makes no file.
        }
        self.is_into = true;
        let Ok(writing) = self.depot().patch(&url(name), &who(), "") else {
            return;
        };
        let written = writing.write(0, &bytes).is_ok();
        let ended = writing.end().is_ok();
        let what = format!("put {} into {name}", shown(&bytes));
        self.came(what, written && ended, |names| over_it(names, name, &bytes));
    }

    fn edit(&mut self, name: &'static str) {
        let bytes = self.bytes();
        let edit = Edit {
            create: true,
            truncate: self.dice.one_in(3),
            ..Edit::default()
        };
        let empty = |names: &mut Names| {
            if edit.truncate || !names.contains_key(name) {
                names.insert(name, Vec::new());
            }
        };
        let Ok(editing) = self.depot().edit(&url(name), &who(), &edit) else {
            // The record may say that the file was opened.
            return self.came(format!("empty {name}"), false, empty);
        };
        let file = editing.file().unwrap();
        let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let watched = self.cutter.writes(&path, file, 0, bytes.len() as u64);
        let written = watched.and_then(|()| {
            // A copy during the edit would be inconsistent.
            let _state = self.cutter.state();
            file.write_all_at(&bytes, 0)
        });
        let ended = editing.end().is_ok();
        let how = if edit.truncate { "anew" } else { "as it is" };
        let what = format!("edit {name} {how}, {}", shown(&bytes));
        let is_promised = written.is_ok() && ended;
        self.came(what, is_promised, |names| {
            if edit.truncate {
                names.remove(name);
            }
            over_it(names, name, &bytes);
        });
        if !is_promised || self.cutter.is_dead.load(SeqCst) {
            // After a truncating open, no byte needs to be written.
            self.came(format!("empty {name}"), false, empty);
        }
    }

    fn read(&mut self, name: &'static str) {
        let reading = match self.depot().read(&url(name), &who(), Fresh::Usual) {
            Ok(reading) => reading,
            Err(Error::Store(error)) if matches!(*error, StoreError::Missing { .. }) => {
                let may = self.may.iter().any(|names| !names.contains_key(name));
                self.demand(may, &format!("{name} is not found here"));
                return;
            }
            Err(_) => return,
        };
        let mut bytes = Vec::new();
        reading.file().read_to_end(&mut bytes).unwrap();
        drop(reading);
        let may = self.may.iter().any(|names| names.get(name) == Some(&bytes));
        self.demand(
            may,
            &format!("{} bytes of {name} are read here", bytes.len()),
        );
    }

    /// Each file must be a whole version that was promised or being written.
    fn look(&self) {
        for name in NAMES {
            if let Ok(bytes) = fs::read(self.far.path().join(name)) {
                let known = self.is_into || self.whole.contains(&bytes);
                self.demand(
                    known,
                    &format!("{} bytes of {name} are seen there", bytes.len()),
                );
            }
        }
    }

    fn demand(&self, is_so: bool, what: &str) {
        let (seed, done) = (self.seed, self.done.join("\n  "));
        let may: Vec<Vec<_>> = self
            .may
            .iter()
            .map(|names| {
                names
                    .iter()
                    .map(|(name, bytes)| (name, shown(bytes)))
                    .collect()
            })
            .collect();
        assert!(
            is_so,
            "seed {seed}: {what}; it may be {may:?} after\n  {done}"
        );
    }

    fn end(mut self) -> u32 {
        self.cutter.state().left = None;
        self.store.mend();
        self.after_a_cut();
        let mut pushed = self.depot().push(&Scope::All, LIMIT);
        // Holds are decided by the operator; the file is old or new.
        for _ in 0..NAMES.len() {
            let is_unfinished = |row: &Pending| row.stage == Stage::Held && row.why == UNFINISHED;
            let mut queue = self.depot().queue();
            queue.retain(is_unfinished);
            for row in &queue {
                self.depot().release(&row.id).unwrap();
            }
            if queue.is_empty() {
                break;
            }
            pushed = self.depot().push(&Scope::All, LIMIT);
        }
        if let Err(error) = pushed {
            let queue = self.depot().queue();
            self.demand(false, &format!("{error}; {queue:?}"));
        }
        self.look();
        let mut there = Names::new();
        for name in NAMES {
            if let Ok(bytes) = fs::read(self.far.path().join(name)) {
                there.insert(name, bytes);
            }
        }
        let lens: Vec<_> = there
            .iter()
            .map(|(name, bytes)| (name, shown(bytes)))
            .collect();
        self.demand(
            self.may.contains(&there),
            &format!("there is {lens:?} in the end"),
        );
        self.cuts
    }
}

fn shown(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0, |sum: u32, byte| {
        sum.wrapping_mul(31).wrapping_add((*byte).into())
    });
    format!("{} bytes {:04x}", bytes.len(), sum & 0xffff)
}

/// Overwrites the beginning of a file.
fn over_it(names: &mut Names, name: &'static str, bytes: &[u8]) {
    let old = names.entry(name).or_default();
    let rest = old.get(bytes.len()..).unwrap_or_default();
    *old = [bytes, rest].concat();
}

fn by() -> By<'static> {
    By {
        who: &WHO,
        session: "",
        is_wanted: &|| true,
    }
}

static WHO: std::sync::LazyLock<Who> = std::sync::LazyLock::new(Who::default);

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

/// Runs one seed, and returns the number of power cuts.
fn run(seed: u64) -> u32 {
    let mut world = World::new(seed);
    for _ in 0..25 {
        world.step();
    }
    world.end()
}

#[test] //= GASS-17 GASS-59 KANGAROO-3 KANGAROO-9 KANGAROO-24 KANGAROO-32 KANGAROO-X4
fn promises_survive_power_cuts() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (first, last) = match number("GODWIT_SEED") {
        Some(seed) => (seed, seed + number("GODWIT_SEEDS").unwrap_or(1) - 1),
        None => (1, number("GODWIT_SEEDS").unwrap_or(SEEDS)),
    };
    let (next, cuts) = (AtomicU64::new(first), AtomicU32::new(0));
    let some = || loop {
        let seed = next.fetch_add(1, SeqCst);
        if seed > last {
            return;
        }
        cuts.fetch_add(run(seed), SeqCst);
    };
    // Threads mostly wait for locks and for targets.
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(some))));
    assert!(
        first == last || cuts.into_inner() > 0,
        "the power never went"
    );
}

const SEEDS: u64 = 50;
const AT_ONCE: u32 = 3;
