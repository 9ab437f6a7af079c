//! The depot as a whole: what is held, by name and by number.

use crate::{
    Error, Result,
    adding::Locks,
    appending::{self, Logs},
    ballast::Ballast,
    called::Called,
    coming::{Coming, Ends},
    disk::{Disk, Id, Watcher},
    editing::{self, Watches},
    held::{self, Held, State},
    into::Turns,
    keeping::{self, Chores},
    leftovers::Leftover,
    listings::Listings,
    moving,
    odd_deeds::OddDeed,
    passed::Passed,
    picking::Picks,
    promises::{DeedRow, Promises},
    reading::{Asking, Name},
    records::{Begun, Change, Records, Row},
    room::Room,
    rot::leaf_of,
    scrubbing,
    tags::Tag,
};
use godwit_core::{
    Url,
    holding::{After, Held as Why, Holding, Mode},
};
use godwit_store::engine::Place;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, HashMap},
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Finds the store of a URL, for somebody.
pub type Connect = Arc<dyn Fn(&Url, &Who) -> godwit_store::Result<Place> + Send + Sync>;

/// For whom something is done.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Who {
    /// Who may hit bytes that were fetched for them: a name of the identity that their origin was shown.
    pub audience: String,
    /// By what it was proved, where that is not as always.
    pub credential: Option<PathBuf>,
}

impl Who {
    /// Tells the log what was done at a target, and for which client of a hop or session of this machine.
    pub(crate) fn audit(&self, did: &str, url: &Url, session: &str) {
        let who = if session.is_empty() {
            &self.audience
        } else {
            session
        };
        tracing::info!(did, path = %url.without_password(), who, "changed");
    }
}

/// What a depot keeps to.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How many bytes it may hold; `None`: as many as the disk.
    pub quota: Option<u64>,
    /// How long what the origin said last is believed before it is asked again.
    pub fresh: Duration,
    /// How long a strong version is believed when the origin cannot be asked.
    pub grace: Duration,
    /// How many files are delivered at once.
    pub movers: usize,
    /// The longest pause before a server is tried again.
    pub pause_max: Duration,
    /// How long a server may answer that it has trouble of its own before somebody is to decide.
    pub trouble_max: Duration,
    /// After so long each file is read again, and compared with what it was when it came; `None`: never.
    pub scrub_every: Option<Duration>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            quota: None,
            fresh: Duration::from_secs(5),
            grace: Duration::from_secs(24 * 3600),
            movers: 8,
            pause_max: Duration::from_secs(4),
            trouble_max: Duration::from_secs(60),
            scrub_every: Some(SCRUB_EVERY),
        }
    }
}

/// A directory of this machine with files of others, and the threads that fetch and deliver them.
pub struct Depot {
    pub(crate) inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

pub(crate) struct Inner {
    // Before the disk, whose lock must be held as long as anything is written.
    pub records: Records,
    pub disk: Disk,
    pub rules: Rules,
    pub connect: Connect,
    pub room: Room,
    pub ballast: Arc<Ballast>,
    pub all: Mutex<All>,
    /// Something is owed, or may be tried again.
    pub due: Condvar,
    pub is_ending: AtomicBool,
    /// The number of the last one that began.
    pub numbers: AtomicU64,
    pub watches: Watches,
    pub logs: Logs,
    pub chores: Chores,
    pub locks: Locks,
    /// Who ends what was written into a file, one at a time for each.
    pub turns: Turns,
    /// What tells this boot of the machine from others.
    pub boot: String,
}

/// What is held.
#[derive(Default)]
pub(crate) struct All {
    pub by_id: BTreeMap<Id, Arc<Held>>,
    /// Those of which a target lacks something, by their numbers.
    pub owing: BTreeMap<u64, Arc<Held>>,
    /// Of these, those that only their writers know.
    pub private: BTreeMap<Id, Arc<Held>>,
    /// Those that have a place in the order, and of which readers do not know yet.
    pub coming: BTreeMap<Id, Coming>,
    /// Those that somebody ends just now.
    pub ends: Ends,
    /// In which order.
    pub promises: Promises,
    /// What hops took of which nothing is here any more.
    pub passed: BTreeMap<(Url, String), Passed>,
    /// What targets have of uploads that nobody will finish.
    pub leftovers: Vec<Leftover>,
    /// What is gone, and could not be taken off the record yet.
    pub unforgotten: Vec<Gone>,
    /// When missing directories are looked for again, and the pause after that.
    pub absent: Option<(Instant, Duration)>,
    /// What has a name on record that cannot be read.
    pub unreadable: BTreeMap<Id, Unreadable>,
    /// Promises likewise.
    pub odd_deeds: Vec<OddDeed>,
    /// What readers of a name get.
    pub current: BTreeMap<Name, Arc<Held>>,
    /// What is held, by name.
    pub called: Arc<Called>,
    /// Whoever is asking the origin what there is of a name.
    pub asking: HashMap<Name, Arc<Asking>>,
    /// Servers that could not be reached, and when they are tried again.
    pub away: HashMap<String, moving::Away>,
    /// Directories as servers listed them last.
    pub listings: Listings,
    /// What may be delivered next.
    pub picks: Picks,
}

/// What has a name on record that cannot be read: it is shown, and left alone until somebody gives it up.
pub(crate) struct Unreadable {
    /// As it stands there.
    pub url: String,
    pub size: u64,
    pub owed: u64,
    pub born: u64,
    pub session: String,
    reserved: u64,
}

impl Unreadable {
    fn of(row: &Row, reserved: u64) -> Self {
        Self {
            url: row.url.clone(),
            size: row.record.size,
            owed: row.record.owed.len_bytes(),
            born: row.born,
            session: row.session.clone(),
            reserved,
        }
    }
}

/// What nobody gets any more, and whose file lies there since its record does.
pub(crate) struct Gone {
    id: Id,
    reserved: u64,
    /// Not before then is it tried again.
    pub at: Instant,
}

impl fmt::Debug for Depot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = self.inner.disk.root();
        f.debug_struct("Depot")
            .field("root", &root)
            .finish_non_exhaustive()
    }
}

impl Depot {
    /// Opens the depot in a directory, making it if there is none, and goes on with what it owes.
    pub fn open(root: &Path, rules: Rules, connect: Connect) -> Result<Self> {
        Self::open_watched(root, rules, connect, (held::boot(), None))
    }

    pub(crate) fn open_watched(
        root: &Path,
        rules: Rules,
        connect: Connect,
        (boot, watcher): (String, Option<Arc<dyn Watcher>>),
    ) -> Result<Self> {
        let disk = Disk::open(root, watcher.clone())?;
        let ballast = Arc::new(Ballast::of(root, rules.quota));
        let open = || Records::open(&disk.records(), &boot, watcher.clone(), &ballast);
        let begun = ballast.with(open)?;
        let Begun {
            records,
            start,
            rows,
            tags,
            logs,
            deeds,
            odd_deeds,
            passed,
        } = begun;
        let room = Room::new(rules.quota);
        let logs = Logs::open(root, logs, &room)?;
        let inner = Arc::new(Inner {
            records,
            disk,
            connect,
            room,
            ballast,
            all: Mutex::default(),
            due: Condvar::new(),
            is_ending: AtomicBool::new(false),
            numbers: AtomicU64::new(start << 32),
            watches: Watches::new(),
            logs,
            chores: Chores::default(),
            locks: Locks::default(),
            turns: Turns::default(),
            boot: boot.clone(),
            rules,
        });
        inner.recover(rows, deeds, start)?;
        inner.all().odd_deeds = odd_deeds;
        let key = |passed: Passed| ((passed.url.clone(), passed.who.audience.clone()), passed);
        inner.all().passed = passed.into_iter().map(key).collect();
        inner.retag(tags);
        inner.ballast.take();
        let mut threads = Vec::new();
        for number in 0..inner.rules.movers {
            threads.push(moving::start(&inner, number)?);
        }
        for number in 0..APPENDERS {
            threads.push(appending::start(&inner, number)?);
        }
        threads.push(keeping::start(&inner)?);
        threads.push(editing::start(&inner)?);
        if let Some(every) = inner.rules.scrub_every {
            threads.push(scrubbing::start(&inner, every)?);
        }
        Ok(Self { inner, threads })
    }

    /// Tells whether any target lacks something that is here.
    pub fn owes(&self) -> bool {
        let all = self.inner.all();
        let owes = all.by_id.values().any(|held| held.lock().machine.owes())
            || all.promises.deeds().next().is_some();
        drop(all);
        owes || !self.inner.logs.owing().is_empty()
    }

    /// Tells whether somebody fills a file.
    pub fn is_locked(&self) -> bool {
        self.inner.locks.are_any()
    }

    /// Takes nothing more, and tells whoever waits that it ends. What is owed stays owed.
    pub fn end(&self) {
        self.inner.is_ending.store(true, SeqCst);
        self.inner.nudge();
        self.inner.watches.end();
        self.inner.logs.nudge();
        self.inner.locks.nudge();
        for held in self.inner.every() {
            // Under its lock, or a waiter could miss it.
            drop(held.lock());
            held.tell();
        }
    }

    /// Returns where it is.
    pub fn root(&self) -> &Path {
        self.inner.disk.root()
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        self.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Inner {
    pub(crate) fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock()
    }

    /// Returns everything that is held, for a look at each without this lock.
    pub(crate) fn every(&self) -> Vec<Arc<Held>> {
        self.all().by_id.values().cloned().collect()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(SeqCst)
    }

    /// Has whoever delivers look again what there is to do.
    pub(crate) fn nudge(&self) {
        // Under the lock, or somebody who has just found nothing would miss it.
        drop(self.all());
        self.due.notify_all();
    }

    /// Goes on with what is on record, and removes what is not.
    fn recover(&self, rows: Vec<Row>, deeds: Vec<DeedRow>, start: u64) -> Result<()> {
        let attempts = start << 32;
        // Also what cannot be read today: its bytes are nobody's to remove.
        let mut known: Vec<Id> = rows.iter().map(|row| row.id).collect();
        known.sort_unstable();
        let (mut lost, mut folding) = (Vec::new(), Vec::new());
        let mut all = self.all();
        for row in rows {
            let Ok(url) = Url::from_argument(&row.url) else {
                tracing::error!(id = %row.id, url = row.url, "a holding has a name that cannot be read; it is left alone");
                let reserved = self.disk.taken(row.id);
                self.room.count(reserved);
                all.unreadable
                    .insert(row.id, Unreadable::of(&row, reserved));
                continue;
            };
            let after = match row.boot == self.boot {
                true => After::Kill,
                false => After::PowerCut,
            };
            let machine = Holding::recover(row.record.clone(), after, attempts);
            let (size, mut chains) = self.disk.kept_leaves(row.id);
            chains.retain(|(leaf, _)| {
                let range = leaf_of(*leaf, row.record.size);
                // They are kept before the record is: a last one may be of another length.
                range == leaf_of(*leaf, size) && row.record.present.contains(&range)
            });
            let held = Arc::new(Held::again(&row, url, machine, &chains));
            if let Err(error) = self.settle(&held, &row) {
                // Nothing of one file keeps the others from being delivered.
                tracing::error!(url = %held.url(), id = %row.id, %error, "what was kept of it cannot be read");
                let mut state = held.lock();
                match state.machine.owes() {
                    true => {
                        state.machine.hold(Why::Refused);
                        state.words = error.to_string();
                    }
                    false => lost.push(Arc::clone(&held)),
                }
            }
            if held.lock().machine.is_blind() && !held.lock().machine.owes() {
                lost.push(Arc::clone(&held)); // Nobody knows what others made of it since.
            }
            let mut state = held.lock();
            if state.machine.held() == Some(&Why::Unfinished) && state.words.is_empty() {
                state.words = UNFINISHED.into();
            }
            drop(state);
            if let Some(under) = row.folds_into {
                folding.push((held, under));
                continue;
            }
            all.keep(&held);
            if held.lock().machine.owes() {
                all.owing.insert(held.number(), Arc::clone(&held));
            }
        }
        let owing: Vec<_> = all.owing.values().cloned().collect();
        all.promises = Promises::recover(deeds, &owing, start);
        all.replay(|| self.next_number());
        all.supersede_again();
        all.look_for_directories_soon();
        drop(all);
        for (beside, under) in folding {
            let under = self.all().by_id.get(&under).cloned();
            if let Err(error) = self.fold_again(&beside, under) {
                tracing::error!(url = %beside.url(), %error, "what was on its way into a file cannot be put there");
            }
        }
        // Nothing that others do not have.
        for held in lost {
            if let Err(error) = self.unlink(&held, held.lock()) {
                tracing::warn!(url = %held.url(), %error, "what was fetched and cannot be read stays on the disk");
            }
        }
        let mut strangers = Vec::new();
        self.disk.each(|id| {
            if known.binary_search(&id).is_err() {
                strangers.push(id);
            }
        })?;
        strangers
            .into_iter()
            .try_for_each(|id| self.disk.remove(id))
    }

    /// Gives files the tags that are on record.
    fn retag(&self, tags: Vec<(Id, Tag)>) {
        let all = self.all();
        for (id, tag) in tags {
            if let Some(held) = all.by_id.get(&id) {
                if let Some(expires) = tag.expires {
                    self.chores.falls(expires, id);
                }
                held.lock().tags.push(tag);
            }
        }
    }

    /// Brings the file to what its record says.
    fn settle(&self, held: &Arc<Held>, row: &Row) -> Result<()> {
        let taken = self.disk.taken(held.id);
        self.room.count(taken);
        let mut state = held.lock();
        state.reserved = taken;
        if row.record.open.is_none() {
            let file = self.disk.writer(held.id)?;
            let size = file
                .metadata()
                .map_err(Error::disk(self.disk.path(held.id)))?;
            if size.len() < row.record.size {
                let cause = io::Error::new(io::ErrorKind::UnexpectedEof, CUT_SHORT);
                return Err(Error::disk(self.disk.path(held.id))(cause));
            }
            if size.len() > row.record.size {
                self.disk.resize(held.id, &file, row.record.size)?;
            }
            return Ok(());
        }
        let is_doubtful = state.machine.is_doubtful();
        drop(state);
        match is_doubtful {
            true => self.rescan(held, || true).map(drop),
            // Its writers may be there still; they are looked for.
            false => {
                self.watch(held);
                Ok(())
            }
        }
    }

    /// Unlinks what is gone: first the record no longer has it, then the file goes. Its `state` says so
    /// already, under the lock that was held until now.
    pub(crate) fn unlink<'a>(
        &self,
        held: &'a Held,
        mut state: MutexGuard<'a, State>,
    ) -> Result<()> {
        state.is_gone = true;
        // A record on its way would come after it was forgotten.
        while state.is_recording {
            held.wait(&mut state, None);
        }
        let (was_recorded, reserved) = (state.is_recorded, std::mem::take(&mut state.reserved));
        state.pen = None;
        let leftover = state.take_leftover(&held.url(), &held.who);
        let passed = Passed::of(held, &state);
        drop(state);
        if let Some(passed) = passed {
            self.remember(passed);
        }
        held.tell();
        let mut all = self.all();
        all.remove(held);
        all.leftovers.extend(leftover);
        drop(all);
        let gone = Gone {
            id: held.id,
            reserved,
            at: Instant::now() + FORGET_AGAIN,
        };
        self.forget(gone, was_recorded)
    }

    /// Takes it off the record, and then its file from the disk. Where a full disk does not take that, it is tried
    /// again: until then what was promised after it waits.
    fn forget(&self, gone: Gone, was_recorded: bool) -> Result<()> {
        if was_recorded && let Err(error) = self.records.write(Change::Forget(gone.id)) {
            self.all().unforgotten.push(gone);
            self.nudge();
            return Err(error);
        }
        // Not before, or what comes after it could be done, and it again after an end.
        self.all().promises.forget(gone.id);
        let file = self.disk.reader(gone.id);
        self.disk.remove(gone.id)?;
        match file {
            Ok(file) if gone.reserved > 0 => self.room.release_file(file, gone.reserved),
            _ => self.room.release(gone.reserved),
        }
        self.nudge();
        Ok(())
    }

    /// Gives up what has a name that cannot be read, and returns whether there is any of that number.
    pub(crate) fn forget_unreadable(&self, name: &str) -> Result<bool> {
        if let Some((id, path)) = self.logs.take_unreadable(name) {
            self.records.write(Change::ForgetLog(id))?;
            let removed = std::fs::remove_file(&path);
            return match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Error::disk(path)(error))
                }
                _ => Ok(true),
            };
        }
        let Some(id) = name.parse().ok() else {
            return Ok(false);
        };
        let Some(unreadable) = self.all().unreadable.remove(&id) else {
            return Ok(false);
        };
        let gone = Gone {
            id,
            reserved: unreadable.reserved,
            at: Instant::now() + FORGET_AGAIN,
        };
        self.forget(gone, true).map(|()| true)
    }

    /// Tries that again.
    pub(crate) fn forget_again(&self, mut gone: Gone) {
        let id = gone.id;
        gone.at = Instant::now() + FORGET_AGAIN;
        if let Err(error) = self.forget(gone, true) {
            tracing::info!(%id, %error, "what is gone cannot be taken off the record yet");
        }
    }

    /// Returns the number of one that begins now.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, SeqCst) + 1
    }

    /// Returns a number of bytes of the quota; forgets for it what may be forgotten.
    pub(crate) fn reserve(&self, url: &Url, bytes: u64) -> Result<()> {
        self.room.could_hold(url, bytes)?;
        loop {
            let Err(lacking) = self.room.reserve(bytes) else {
                return self.free(bytes);
            };
            if !self.evict(lacking)? {
                return Err(self.full(bytes, 0));
            }
        }
    }

    /// Makes room on a disk that others fill. Whether there is enough is told by the writing.
    fn free(&self, bytes: u64) -> Result<()> {
        let free = godwit_sys::free_bytes(self.disk.root()).unwrap_or(u64::MAX);
        match bytes.checked_sub(free) {
            Some(lacking) if lacking > 0 => self.evict(lacking).map(drop),
            _ => Ok(()),
        }
    }

    pub(crate) fn full(&self, wanted: u64, before: usize) -> Error {
        let mut used = self.room.open();
        let mut servers: BTreeMap<String, u64> = BTreeMap::new();
        for held in self.every() {
            let state = held.lock();
            match state.machine.owes() && !state.is_private {
                true => *servers.entry(held.url().host_port()).or_default() += state.reserved,
                false => used += state.reserved,
            }
        }
        for (server, reserved) in self.logs.reserved() {
            *servers.entry(server).or_default() += reserved;
        }
        let owed = servers.values().sum();
        let mut to: Vec<_> = servers.into_iter().collect();
        to.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Error::Full {
            wanted,
            quota: self.room.quota().unwrap_or(0),
            owed,
            used,
            to: to.into_iter().map(|(server, _)| server).collect(),
            before,
        }
    }
}

impl All {
    fn keep(&mut self, held: &Arc<Held>) {
        self.by_id.insert(held.id, Arc::clone(held));
        held.call(&self.called);
    }

    pub(crate) fn insert(&mut self, held: &Arc<Held>) {
        self.keep(held);
        let state = held.lock();
        let (is_private, owes) = (state.is_private, state.machine.owes());
        let goes_ahead = state.machine.mode() == Mode::Replace;
        drop(state);
        match (is_private, owes) {
            // What is not ended is nothing yet, and has no place in the order.
            (true, _) => {
                if goes_ahead {
                    self.private.insert(held.id, Arc::clone(held));
                }
                self.owing.insert(held.number(), Arc::clone(held));
            }
            (false, true) => self.owe(held, || held.number()),
            (false, false) => {}
        }
    }

    /// Returns what somebody who reads a name gets of what is here.
    pub(crate) fn current_of(&self, url: &Url, who: &Who) -> Option<Arc<Held>> {
        let key = (url.clone(), who.audience.clone());
        self.current.get(&key).cloned()
    }

    /// Has readers of its name get this one.
    pub(crate) fn make_current(&mut self, held: &Arc<Held>) {
        if let Some(old) = self.current.insert(held.key(), Arc::clone(held))
            && old.id != held.id
        {
            old.lock().is_current = false;
        }
        held.lock().is_current = true;
    }

    pub(crate) fn remove(&mut self, held: &Held) {
        self.by_id.remove(&held.id);
        held.uncall();
        self.private.remove(&held.id);
        self.coming.remove(&held.id);
        self.owing.remove(&held.number());
        self.remove_current(held);
    }
}

const CUT_SHORT: &str = "shorter than when it was last kept; the disk lost bytes of it";

/// Disks lose little in a month.
const SCRUB_EVERY: Duration = Duration::from_secs(30 * 24 * 3600);

/// So many files are appended to at once.
const APPENDERS: usize = 4;

/// Why a file is held whose writer had a descriptor when the power went.
pub(crate) const UNFINISHED: &str =
    "whoever wrote it was cut off with the power of this machine: it may be half of a file";

/// What could not be taken off the record is tried again after that.
const FORGET_AGAIN: Duration = Duration::from_millis(500);
