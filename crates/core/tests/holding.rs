//! Simulates a holding under faults. Programs write; the origin changes; messages arrive late, twice or never.
//! The disk loses bytes that were not synced, and the node crashes at every named point. `GODWIT_SEED` runs one seed alone.

use godwit_core::{
    Digest, Extents, Version,
    holding::{
        After, Base, Fetch, Held, Holding, Mode, Notices, OriginState, Publication, PublishOutcome,
        Push, Record, Scan, TargetCheck, Ticket,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

const LEAF: u64 = 8;
const SIZE_MAX: u64 = 40;

/// Points at which the node may crash. Each is reached.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Point {
    Idle,
    FetchAsked,
    FetchLanded,
    WriteGranted,
    OpenRecorded,
    CommitTaken,
    CommitSynced,
    CommitRecorded,
    ScanBegun,
    PushSent,
    PublishSealed,
    PublishRecorded,
    PublishAsked,
    Published,
    EntryLooked,
    EntryRecorded,
}

const POINTS: [Point; 16] = [
    Point::Idle,
    Point::FetchAsked,
    Point::FetchLanded,
    Point::WriteGranted,
    Point::OpenRecorded,
    Point::CommitTaken,
    Point::CommitSynced,
    Point::CommitRecorded,
    Point::ScanBegun,
    Point::PushSent,
    Point::PublishSealed,
    Point::PublishRecorded,
    Point::PublishAsked,
    Point::Published,
    Point::EntryLooked,
    Point::EntryRecorded,
];

struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        // xorshift64*, seeded with anything but zero.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.roll() >> 33) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn range(&mut self, end: u64) -> Range<u64> {
        let start = self.below(end);
        start..start + 1 + self.below(12).min(end - start - 1)
    }
}

type Bytes = Vec<u8>;

/// A copy of bytes at their offsets, without the bytes that did not arrive.
type Parts = BTreeMap<u64, u8>;

fn name(number: u64) -> Version {
    Version::Strong(Digest::of(
        godwit_core::Algorithm::Blake3,
        &number.to_le_bytes(),
    ))
}

fn overlay(file: &mut Bytes, at: u64, bytes: &[u8]) {
    let end = at as usize + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at as usize..end].copy_from_slice(bytes);
}

/// The target: one file, one upload of it, and changes by other clients.
#[derive(Default)]
struct Remote {
    /// Holding that the upload belongs to.
    holding: u64,
    content: Bytes,
    number: u64,
    /// Content of each version.
    versions: BTreeMap<u64, Bytes>,
    upload: Parts,
    /// The attempt that has the upload.
    fence: u64,
    /// Content before a change in place began. Other clients do not write during such a change,
    /// since no check would notice.
    before: Option<Bytes>,
    /// Last generation that arrived in place, and the version that it became.
    finished: Option<(u64, u64)>,
}

impl Remote {
    fn become_(&mut self, content: Bytes) {
        self.number += 1;
        self.versions.insert(self.number, content.clone());
        self.content = content;
    }

    fn is(&self, base: &Base) -> bool {
        self.is_then(self.number, base)
    }

    fn is_then(&self, number: u64, base: &Base) -> bool {
        match base {
            Base::Absent => number == 0,
            Base::Seen(version) => *version == name(number),
            Base::Any => true,
        }
    }

    fn seen(&self) -> Seen {
        Seen {
            number: self.number,
            open: self.before.is_some(),
            finished: self.finished,
        }
    }

    fn now(&self) -> Base {
        match self.number {
            0 => Base::Absent,
            n => Base::Seen(name(n)),
        }
    }
}

#[derive(Clone, Debug)]
enum Ask {
    Fetch(Fetch),
    /// The look at the origin that ends a fetch.
    Look(Ticket),
    Put(Push, Bytes),
    Publish(Publication),
    /// Takes the upload over.
    Resume(u64),
    /// Looks for what became of a publication.
    Search(u64),
    /// Looks at the target, to change it in place.
    Enter(u64, Base),
}

/// Receiver of an answer: none, once the node crashed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Asker {
    holding: u64,
    incarnation: u64,
}

/// Result of a check of the target.
#[derive(Clone, Copy, Debug)]
struct Seen {
    number: u64,
    /// A change in place has begun.
    open: bool,
    finished: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Reply {
    Part(Ticket, u64, Bytes),
    Looked(Ticket, u64),
    Landed(u64, Ticket),
    Answer(u64, PublishOutcome),
    Resumed(u64, Parts),
    Searched(u64, Seen),
    Entered(u64, u64),
}

/// Operation in several steps.
#[derive(Debug)]
enum Job {
    /// A write: granted, then on disk, then ended.
    Write(Ticket, Range<u64>, u8, bool),
    /// A record: taken, then the file is synced, then the record is written, then it is reported.
    Commit(Box<Commit>),
    Scan(Ticket, Scan),
}

/// Purpose of a record.
#[derive(Debug)]
enum Then {
    Tell,
    Publish(Publication),
    Enter(u64),
}

#[derive(Debug)]
struct Commit {
    record: Record,
    digests: Parts,
    /// Which of the states since the last promise it is of.
    promise: usize,
    then: Then,
    done: u8,
}

struct World {
    dice: Dice,
    mode: Mode,
    remote: Remote,
    disk: Bytes,
    safe: Bytes,
    record: Record,
    /// When the power was there that the record was written by.
    boot: u64,
    record_boot: u64,
    committed: u64,
    held: Holding,
    id: u64,
    incarnation: u64,
    asks: Vec<(Asker, Ask)>,
    replies: Vec<Reply>,
    /// Requests that arrived. They may arrive again once their attempt is over.
    gone: Vec<(Asker, Ask)>,
    jobs: Vec<Job>,
    fetching: BTreeSet<Ticket>,
    /// Attempts that asked for the takeover of the upload and for the check.
    resuming: Option<u64>,
    searching: Option<u64>,
    entering: Option<u64>,
    /// Our digests of each piece of the upload, as sent.
    sent: Parts,
    writers: Vec<Notices>,
    /// Our digests of the bytes on disk, as last known and as persisted.
    digests: Parts,
    recorded: Parts,
    /// Content that a local reader sees.
    view: Bytes,
    /// Contents that the file may have after a crash: each state since the last commit.
    since: Vec<Bytes>,
    /// Contents while no writer was writing.
    wholes: BTreeSet<Bytes>,
    /// Contents at any time.
    history: Vec<Bytes>,
    /// A writer asked to see an unfinished file at the target.
    loose: bool,
    /// Generations that the target was asked to publish, with their content.
    asked: BTreeSet<(u64, Bytes)>,
    /// The last version of the target that this side has seen or made.
    known: u64,
    /// Last version that this side has made.
    made: u64,
    /// The holding was recovered, and not yet compared with the commits.
    recovered: bool,
    /// The power failed while a writer without a commit was writing.
    unfinished: bool,
    hit: BTreeSet<Point>,
    trouble: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mode = [Mode::Replace, Mode::InPlace][usize::from(seed % 4 == 1)];
        let mut remote = Remote::default();
        remote.versions.insert(0, Bytes::new());
        if !dice.one_in(4) {
            let size = 1 + dice.below(SIZE_MAX);
            remote.become_((0..size).map(|_| dice.roll() as u8).collect());
        }
        let held = Holding::born(Base::Absent, mode);
        let mut world = Self {
            mode,
            record: held.record(0),
            held,
            dice,
            remote,
            disk: Bytes::new(),
            safe: Bytes::new(),
            boot: 0,
            record_boot: 0,
            committed: 0,
            id: 0,
            incarnation: 0,
            asks: Vec::new(),
            replies: Vec::new(),
            gone: Vec::new(),
            jobs: Vec::new(),
            fetching: BTreeSet::new(),
            resuming: None,
            searching: None,
            entering: None,
            sent: Parts::new(),
            writers: Vec::new(),
            digests: Parts::new(),
            recorded: Parts::new(),
            view: Bytes::new(),
            since: Vec::new(),
            wholes: BTreeSet::new(),
            history: Vec::new(),
            loose: false,
            asked: BTreeSet::new(),
            known: 0,
            made: 0,
            recovered: false,
            unfinished: false,
            hit: BTreeSet::new(),
            trouble: true,
        };
        world.begin();
        world
    }

    /// Creates a holding of the target's present file.
    fn begin(&mut self) {
        self.id += 1;
        self.view = self.remote.content.clone();
        self.known = self.remote.number;
        self.held = match self.remote.number {
            0 => Holding::born(Base::Absent, self.mode),
            n => Holding::of(name(n), self.view.len() as u64, self.mode),
        };
        if self.mode == Mode::InPlace {
            // A drop is reported to the target, or bytes in flight would still arrive.
            (self.remote.holding, self.remote.fence) = (self.id, 0);
            (self.remote.before, self.remote.finished) = (None, None);
        }
        self.disk = vec![0; self.view.len()];
        self.safe = self.disk.clone();
        self.committed = 0;
        self.record = self.held.record(0);
        self.record_boot = self.boot;
        self.since = vec![self.view.clone()];
        self.wholes = BTreeSet::from([self.view.clone()]);
        self.history = self.since.clone();
        self.sent.clear();
        self.digests.clear();
        self.recorded.clear();
        self.asked.clear();
        self.replies.clear();
        self.fetching.clear();
        self.forget_questions();
        (self.loose, self.recovered, self.unfinished) = (false, false, false);
    }

    fn step(&mut self) {
        if self.mode == Mode::InPlace && self.dice.one_in(8) {
            self.enter();
        }
        match self.dice.below(34) {
            0 => self.open(),
            1..=3 => self.write(),
            4 => self.resize(),
            5 => self.close(),
            6 => self.commit(Then::Tell),
            7 => self.fetch(),
            8 => self.scan(),
            9..=11 => self.push(),
            12 => self.publish(),
            13 => self.world_turns(),
            14 => self.decide(),
            15 => self.forget(),
            16 => self.seal(),
            17 => self.ask_the_target(),
            18 | 19 => self.job(),
            20 | 21 => self.ask_arrives(),
            22 => self.reply_arrives(),
            23 => drop(self.reach(Point::Idle)),
            24 | 25 => self.push(),
            26 | 27 => self.job(),
            28..=30 => self.ask_arrives(),
            _ => self.reply_arrives(),
        }
        self.look();
    }

    /// Dies at `point` now and then.
    fn reach(&mut self, point: Point) -> bool {
        let dies = self.trouble && self.dice.one_in(30);
        if dies {
            self.hit.insert(point);
            self.die();
        }
        dies
    }

    /// Checks that readers see the local writes over one version of the origin.
    fn look(&self) {
        if self.recovered {
            return;
        }
        let between = |j: &Job| matches!(j, Job::Write(.., true));
        if !self.held.is_unseen() && !self.jobs.iter().any(between) {
            assert_eq!(self.held.size(), self.view.len() as u64, "the length");
        }
        for i in self.held.present().iter().flatten() {
            let (read, meant) = (self.disk.get(i as usize), self.view.get(i as usize));
            assert_eq!(read, meant, "what is read at {i}");
        }
    }

    fn me(&self) -> Asker {
        Asker {
            holding: self.id,
            incarnation: self.incarnation,
        }
    }

    fn is_committing(&self) -> bool {
        self.jobs.iter().any(|j| matches!(j, Job::Commit(_)))
    }

    fn open(&mut self) {
        // One task at a time changes the record.
        if !self.trouble || self.writers.len() > 1 || self.is_committing() {
            return;
        }
        let notices = [Notices::Each, Notices::None][self.dice.below(2) as usize];
        // A descriptor leaves only when a record says that all bytes are local.
        let (size, kept) = (self.held.size(), &self.record);
        let whole = kept.size == size && kept.present.contains(&(0..size));
        if self.record_boot != self.boot {
            return; // What was found after the power cut is to be on record first.
        }
        if (notices == Notices::None && !whole) || self.held.open(notices).is_err() {
            return;
        }
        self.record = self.record.clone().opened(notices);
        self.record_boot = self.boot;
        self.writers.push(notices);
        self.reach(Point::OpenRecorded);
    }

    fn changed(&mut self) {
        self.since.push(self.view.clone());
        self.history.push(self.view.clone());
    }

    fn forget_questions(&mut self) {
        (self.resuming, self.searching, self.entering) = (None, None, None);
    }

    fn write(&mut self) {
        if !self.trouble || self.writers.is_empty() {
            return;
        }
        let range = self.dice.range(SIZE_MAX);
        let byte = self.dice.roll() as u8;
        match self.writers[self.dice.below(self.writers.len() as u64) as usize] {
            Notices::None => self.land(&range, byte),
            Notices::Each => {
                let ticket = self.held.grant(range.clone());
                if !self.reach(Point::WriteGranted) {
                    self.jobs.push(Job::Write(ticket, range, byte, false));
                }
            }
        }
    }

    fn land(&mut self, range: &Range<u64>, byte: u8) {
        let bytes = vec![byte; (range.end - range.start) as usize];
        overlay(&mut self.disk, range.start, &bytes);
        overlay(&mut self.view, range.start, &bytes);
        self.changed();
    }

    fn resize(&mut self) {
        if !self.trouble || self.writers.is_empty() || !self.dice.one_in(2) {
            return;
        }
        let size = self.dice.below(SIZE_MAX);
        self.disk.resize(size as usize, 0);
        self.view.resize(size as usize, 0);
        if !self.writers.contains(&Notices::None) {
            let old = self.held.size();
            self.held.resized(size);
            self.digest(old..size);
        }
        self.changed();
    }

    /// Notes the digests of bytes on disk.
    fn digest(&mut self, range: Range<u64>) {
        for i in range {
            if let Some(byte) = self.disk.get(i as usize) {
                self.digests.insert(i, *byte);
            }
        }
    }

    fn close(&mut self) {
        let writing = |j: &Job| matches!(j, Job::Write(..));
        if self.writers.is_empty() || self.jobs.iter().any(writing) {
            return;
        }
        let i = self.dice.below(self.writers.len() as u64) as usize;
        self.held.close(self.writers.swap_remove(i));
        if self.writers.is_empty() {
            self.wholes.insert(self.view.clone());
        }
    }

    /// One at a time: a record must not be written after a later one. It is of writes that ended.
    fn commit(&mut self, then: Then) {
        let between = |j: &Job| matches!(j, Job::Commit(_) | Job::Write(.., true));
        if self.recovered || self.jobs.iter().any(between) {
            return;
        }
        let good = match &then {
            Then::Publish(publication) => publication.generation,
            Then::Tell | Then::Enter(_) => self.held.generation(),
        };
        self.committed = self.committed.max(good);
        let record = self.held.record(self.committed);
        self.jobs.push(Job::Commit(Box::new(Commit {
            record,
            digests: self.digests.clone(),
            promise: self.since.len() - 1,
            then,
            done: 0,
        })));
        self.reach(Point::CommitTaken);
    }

    fn fetch(&mut self) {
        let range = self.dice.range(SIZE_MAX);
        if let Some(fetch) = self.held.fetch(range) {
            self.fetching.insert(fetch.ticket);
            let ask = if fetch.wanted.is_empty() {
                Ask::Look(fetch.ticket)
            } else {
                Ask::Fetch(fetch)
            };
            self.asks.push((self.me(), ask));
            self.reach(Point::FetchAsked);
        }
    }

    fn base_bytes(&self) -> Bytes {
        let is = |n: &u64| match self.held.base() {
            Base::Seen(version) => *version == name(*n),
            _ => *n == 0,
        };
        let number = self.remote.versions.keys().copied().find(is);
        self.remote.versions[&number.expect("it was a version")].clone()
    }

    fn scan(&mut self) {
        if !self.writers.is_empty() {
            return; // The kernel says so: there is no lease.
        }
        if let Some(ticket) = self.held.scan() {
            self.jobs.push(Job::Scan(ticket, self.found()));
            self.reach(Point::ScanBegun);
        }
    }

    /// Compares the bytes on disk with the last known digests, leaf by leaf.
    fn found(&self) -> Scan {
        let same = |r: Range<u64>, other: &dyn Fn(u64) -> Option<u8>| {
            r.clone()
                .all(|i| self.disk.get(i as usize).copied() == other(i))
        };
        let mut found = Scan {
            size: self.disk.len() as u64,
            ..Scan::default()
        };
        for leaf in (0..SIZE_MAX * 2).step_by(LEAF as usize) {
            for part in self.held.present().within(leaf..leaf + LEAF) {
                if !same(part.clone(), &|i| self.digests.get(&i).copied()) {
                    found.changed.insert(part);
                }
            }
        }
        for &i in self.sent.keys() {
            if !same(i..i + 1, &|i| self.sent.get(&i).copied()) {
                found.stale.insert(i..i + 1);
            }
        }
        found
    }

    /// Sends writes of descriptors ahead.
    fn glimpse(&mut self) {
        if self.writers.contains(&Notices::None) && !self.held.is_doubtful() {
            self.held.glimpsed(&self.found());
            self.digest(0..self.held.size());
        }
    }

    fn push(&mut self) {
        if let Some(push) = self.held.push(LEAF) {
            let byte = |i: u64| self.disk.get(i as usize).copied();
            let Some(bytes) = push.range.clone().map(byte).collect::<Option<Bytes>>() else {
                self.held.unread(push.ticket);
                return self.glimpse();
            };
            self.sent.extend(push.range.clone().zip(bytes.clone()));
            self.asks.push((self.me(), Ask::Put(push, bytes)));
            self.reach(Point::PushSent);
        }
    }

    fn publish(&mut self) {
        if self.recovered || !self.jobs.is_empty() {
            return;
        }
        if let Some(publication) = self.held.publish()
            && !self.reach(Point::PublishSealed)
        {
            self.commit(Then::Publish(publication));
        }
    }

    fn seal(&mut self) {
        match self.dice.below(8) {
            0 | 1 => {
                self.glimpse();
                if self.held.seal().is_some() {
                    self.loose |= !self.writers.is_empty();
                }
            }
            2 => self.glimpse(),
            _ => {}
        }
    }

    /// Prepares a delivery in place: no byte is sent before the seal and the check of the target.
    fn enter(&mut self) {
        if self.writers.is_empty() {
            self.held.seal();
        }
        if let Some(generation) = self.held.entering()
            && self.jobs.is_empty()
        {
            self.commit(Then::Enter(generation));
        }
        self.ask_the_target();
    }

    /// Takes a step of the world outside: other clients and failures.
    fn world_turns(&mut self) {
        if !self.trouble {
            return;
        }
        match self.dice.below(8) {
            0 if self.remote.before.is_some() => {}
            0 => {
                let size = self.dice.below(SIZE_MAX);
                let content = (0..size).map(|_| self.dice.roll() as u8).collect();
                self.remote.become_(content);
            }
            1 => self.remote.upload.clear(),
            2..=4 => self.lose(),
            _ => {}
        }
    }

    /// The connection breaks. Messages in flight may still arrive, later than newer ones.
    fn lose(&mut self) {
        for ticket in std::mem::take(&mut self.fetching) {
            self.held.broke_off(ticket);
        }
        self.held.lost();
        self.cut_off();
    }

    fn cut_off(&mut self) {
        self.replies.clear();
        self.forget_questions();
        let again = self.dice.below(3) as usize;
        let late = self.gone.iter().rev().take(again).cloned();
        self.asks.extend(late.collect::<Vec<_>>());
        while self.asks.len() > 6 {
            let i = self.dice.below(self.asks.len() as u64) as usize;
            self.asks.swap_remove(i);
        }
    }

    /// Decides about a holding on hold, as a user would.
    fn decide(&mut self) {
        let Some(held) = self.held.held().cloned() else {
            return;
        };
        if !self.jobs.is_empty() || !self.writers.is_empty() || self.held.is_unseen() {
            return;
        }
        if self.held.is_resuming() || self.held.is_unsure() {
            return; // What was asked of the target could still happen.
        }
        let keep = self.held.is_whole() && self.dice.one_in(2);
        match held {
            _ if !keep => self.begin(),
            Held::Conflict(_) => {
                self.known = self.remote.number;
                self.held.release(Some(self.remote.now()));
            }
            _ => {
                self.unfinished = false;
                self.wholes.insert(self.view.clone());
                self.held.release(None);
            }
        }
        self.forget_questions();
        self.sent.clear();
    }

    /// Room is needed, or the origin has something newer.
    fn forget(&mut self) {
        let idle = self.jobs.is_empty() && self.fetching.is_empty() && self.writers.is_empty();
        if !idle || self.recovered || !self.held.may_be_forgotten() {
            return;
        }
        assert_eq!(
            self.base_bytes(),
            self.view,
            "what is forgotten was delivered"
        );
        if !self.remote.is(self.held.base()) {
            return self.begin();
        }
        if self.record.sealed.is_some() || self.record.base != *self.held.base() {
            return; // It is not on record yet that the target has it.
        }
        let range = self.dice.range(SIZE_MAX);
        let punched = self.held.punch(range);
        // Persisted before the bytes are gone, or a hole could be taken for bytes.
        self.record.present = self.record.present.minus(&punched);
        for i in punched.iter().flatten() {
            self.disk[i as usize] = 0;
        }
    }

    fn ask_the_target(&mut self) {
        let attempt = self.held.attempt();
        if self.held.is_resuming() && self.resuming != Some(attempt) {
            self.resuming = Some(attempt);
            self.asks.push((self.me(), Ask::Resume(attempt)));
        } else if self.held.is_unsure() && self.searching != Some(attempt) {
            self.searching = Some(attempt);
            self.asks.push((self.me(), Ask::Search(attempt)));
        } else if self.held.is_entering() && self.entering != Some(attempt) {
            self.entering = Some(attempt);
            let base = self.held.base().clone();
            self.asks.push((self.me(), Ask::Enter(attempt, base)));
        }
    }

    fn job(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        let i = self.dice.below(self.jobs.len() as u64) as usize;
        match self.jobs.swap_remove(i) {
            Job::Write(ticket, range, byte, false) => {
                self.land(&range, byte);
                self.jobs.push(Job::Write(ticket, range, byte, true));
            }
            Job::Write(ticket, range, _, true) => {
                let old = self.held.size();
                self.held.written(ticket, self.disk.len() as u64);
                self.digest(range.start.min(old)..range.end);
            }
            Job::Scan(ticket, found) => {
                let unseen = self.held.is_unseen();
                self.held.scanned(ticket, &found);
                if unseen && !self.held.is_unseen() {
                    self.disk.resize(self.held.size() as usize, 0);
                    self.digest(0..self.held.size());
                }
                self.compare_with_promises();
            }
            Job::Commit(commit) => self.go_on(commit),
        }
    }

    fn go_on(&mut self, mut commit: Box<Commit>) {
        commit.done += 1;
        match commit.done {
            1 => {
                self.safe = self.disk.clone();
                if self.reach(Point::CommitSynced) {
                    return;
                }
            }
            2 => {
                self.record = commit.record.clone();
                self.record_boot = self.boot;
                self.recorded = commit.digests.clone();
                let point = match commit.then {
                    Then::Tell => Point::CommitRecorded,
                    Then::Publish(_) => Point::PublishRecorded,
                    Then::Enter(_) => Point::EntryRecorded,
                };
                if self.reach(point) {
                    return;
                }
            }
            _ => {
                // It is promised: from now on it may not be lost.
                self.since.drain(..commit.promise);
                // Not by an attempt that is over.
                let attempt = self.held.attempt();
                match commit.then {
                    Then::Publish(publication) if publication.attempt == attempt => {
                        let sent = |i: u64| self.sent.get(&i).copied().unwrap_or(0);
                        let content = (0..publication.size).map(sent).collect();
                        self.asked.insert((publication.generation, content));
                        self.asks.push((self.me(), Ask::Publish(publication)));
                        self.reach(Point::PublishAsked);
                    }
                    Then::Enter(generation) => self.held.enter(generation),
                    _ => {}
                }
                return;
            }
        }
        self.jobs.push(Job::Commit(commit));
    }

    fn ask_arrives(&mut self) {
        if self.asks.is_empty() {
            return;
        }
        let i = self.dice.below(self.asks.len() as u64) as usize;
        let (asker, ask) = self.asks.swap_remove(i);
        self.gone.push((asker, ask.clone()));
        if self.gone.len() > 8 {
            self.gone.remove(0);
        }
        if self.remote.holding != asker.holding {
            if asker.holding < self.remote.holding {
                return; // All that was asked of the one before is over, and refused.
            }
            (self.remote.holding, self.remote.fence) = (asker.holding, 0);
            self.remote.upload.clear();
        }
        let replies = self.at_the_target(ask);
        if asker == self.me() && !(self.trouble && self.dice.one_in(12)) {
            self.replies.extend(replies);
        }
    }

    fn at_the_target(&mut self, ask: Ask) -> Vec<Reply> {
        let remote = &mut self.remote;
        match ask {
            Ask::Fetch(fetch) => {
                let part = |r: Range<u64>| {
                    let end = remote.content.len().min(r.end as usize);
                    let start = end.min(r.start as usize);
                    let bytes = remote.content[start..end].to_vec();
                    Reply::Part(fetch.ticket, r.start, bytes)
                };
                fetch.wanted.iter().map(part).collect()
            }
            Ask::Look(ticket) => vec![Reply::Looked(ticket, remote.number)],
            Ask::Put(push, _) if push.attempt < remote.fence => vec![],
            Ask::Put(push, bytes) => {
                remote.fence = push.attempt;
                match self.mode {
                    Mode::Replace => remote.upload.extend(push.range.zip(bytes)),
                    Mode::InPlace => {
                        let mut content = remote.content.clone();
                        overlay(&mut content, push.range.start, &bytes);
                        self.change_in_place(content);
                    }
                }
                vec![Reply::Landed(push.attempt, push.ticket)]
            }
            Ask::Resume(attempt) if attempt < remote.fence => vec![],
            Ask::Resume(attempt) => {
                remote.fence = attempt;
                let parts = match self.mode {
                    Mode::Replace => remote.upload.clone(),
                    Mode::InPlace => (0..).zip(remote.content.clone()).collect(),
                };
                vec![Reply::Resumed(attempt, parts)]
            }
            Ask::Enter(attempt, _) if attempt < remote.fence => vec![],
            Ask::Enter(attempt, base) => {
                remote.fence = attempt;
                if remote.is(&base) {
                    assert_eq!(remote.number, self.known, "no local reader has seen it");
                    remote.before = Some(remote.content.clone());
                }
                vec![Reply::Entered(attempt, remote.number)]
            }
            Ask::Search(attempt) => vec![Reply::Searched(attempt, remote.seen())],
            Ask::Publish(asked) if asked.attempt < remote.fence => vec![],
            Ask::Publish(asked) => {
                remote.fence = asked.attempt;
                vec![Reply::Answer(asked.attempt, self.show(&asked))]
            }
        }
    }

    /// Checks that each byte at the target is its old value, or one that the local file has had.
    fn change_in_place(&mut self, content: Bytes) {
        let before = self.remote.before.as_ref().expect("it was looked at first");
        for (i, byte) in content.iter().enumerate() {
            let mut allowed = [before].into_iter().chain(&self.history);
            assert!(
                allowed.any(|s| s.get(i) == Some(byte)),
                "{byte} at {i} is neither old nor new"
            );
        }
        self.remote.become_(content);
        (self.known, self.made) = (self.remote.number, self.remote.number);
    }

    /// Answers a request to publish the upload.
    fn show(&mut self, asked: &Publication) -> PublishOutcome {
        if self.trouble && self.dice.one_in(10) {
            self.remote.upload.clear(); // It was swept.
        }
        if self.mode == Mode::InPlace {
            return self.finish_in_place(asked);
        }
        let remote = &mut self.remote;
        let bytes = (0..asked.size).map(|i| remote.upload.get(&i).copied());
        let Some(content) = bytes.collect::<Option<Bytes>>() else {
            return PublishOutcome::Lost;
        };
        if !remote.is(&asked.base) {
            return PublishOutcome::Refused(Held::Conflict(remote.now()));
        }
        assert_eq!(
            remote.number, self.known,
            "it replaces a version that was not seen locally"
        );
        assert!(
            self.loose || self.wholes.contains(&content),
            "{content:?} was never the whole file; {:?}",
            self.wholes
        );
        remote.upload.clear();
        remote.become_(content);
        (self.known, self.made) = (remote.number, remote.number);
        PublishOutcome::Published(name(remote.number))
    }

    /// The target is asked to make its file as long as it is here, when all else is there.
    fn finish_in_place(&mut self, asked: &Publication) -> PublishOutcome {
        let mut content = self.remote.content.clone();
        content.truncate(asked.size as usize);
        assert_eq!(content.len() as u64, asked.size, "it is shorter");
        assert!(
            self.loose || self.wholes.contains(&content),
            "{content:?} was never the whole file; {:?}",
            self.wholes
        );
        self.change_in_place(content);
        self.remote.before = None;
        self.remote.finished = Some((asked.generation, self.remote.number));
        self.remote.fence += 1; // Nothing more of this attempt.
        PublishOutcome::Published(name(self.remote.number))
    }

    fn reply_arrives(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        let i = self.dice.below(self.replies.len() as u64) as usize;
        let attempt = self.held.attempt();
        match self.replies.remove(i) {
            Reply::Part(ticket, start, bytes) => self.part(ticket, start, &bytes),
            Reply::Looked(ticket, number) => {
                let now = Base::Seen(name(number));
                let same = *self.held.base() == now;
                let origin = if same {
                    OriginState::Same
                } else {
                    OriginState::Other(now)
                };
                self.held.fetched(ticket, origin);
                self.fetching.remove(&ticket);
            }
            Reply::Landed(of, ticket) if of == attempt => self.held.landed(ticket),
            Reply::Answer(of, answer) => self.answer(of, answer),
            Reply::Resumed(of, parts) if of == attempt => self.resume(&parts),
            Reply::Searched(of, seen) if of == attempt => {
                self.searching = None;
                let found = self.recognise(seen);
                self.held.found(found);
            }
            Reply::Entered(of, number) if of == attempt => {
                self.entering = None;
                let now = match number {
                    0 => Base::Absent,
                    n => Base::Seen(name(n)),
                };
                let origin = match *self.held.base() == now {
                    true => OriginState::Same,
                    false => OriginState::Other(now),
                };
                self.held.looked(origin);
                self.reach(Point::EntryLooked);
            }
            _ => {}
        }
    }

    fn part(&mut self, ticket: Ticket, start: u64, bytes: &[u8]) {
        let landed = self.held.arrived(ticket, start..start + bytes.len() as u64);
        for i in landed.iter().flatten() {
            overlay(&mut self.disk, i, &[bytes[(i - start) as usize]]);
            self.digest(i..i + 1);
        }
        if self.reach(Point::FetchLanded) {
            return;
        }
        let more = |r: &Reply| matches!(r, Reply::Part(t, ..) if *t == ticket);
        if self.fetching.contains(&ticket) && !self.replies.iter().any(more) {
            self.asks.push((self.me(), Ask::Look(ticket)));
        }
    }

    fn recognise(&mut self, seen: Seen) -> TargetCheck {
        let number = seen.number;
        if self.mode == Mode::InPlace && seen.open {
            return TargetCheck::Base;
        }
        let generation = self.held.generation() - 1;
        if self.mode == Mode::InPlace && seen.finished == Some((generation, number)) {
            return TargetCheck::Ours(name(number));
        }
        if self.remote.is_then(number, self.held.base()) {
            TargetCheck::Base
        } else if self
            .asked
            .contains(&(generation, self.remote.versions[&number].clone()))
        {
            // Or another client's file with the same bytes, which is as good.
            self.known = number;
            TargetCheck::Ours(name(number))
        } else {
            TargetCheck::Other(Base::Seen(name(number)))
        }
    }

    fn answer(&mut self, of: u64, answer: PublishOutcome) {
        let answer = match answer {
            // The generation had been published, and the answer was lost.
            PublishOutcome::Refused(Held::Conflict(Base::Seen(version))) => {
                let number = self.remote.versions.keys().copied();
                let number = number.into_iter().find(|n| name(*n) == version);
                let seen = Seen {
                    number: number.expect("it was a version"),
                    ..self.remote.seen()
                };
                match self.recognise(seen) {
                    TargetCheck::Ours(version) => PublishOutcome::Published(version),
                    _ => PublishOutcome::Refused(Held::Conflict(Base::Seen(version))),
                }
            }
            answer => answer,
        };
        self.held.answered(of, answer);
        let ours = Held::Conflict(Base::Seen(name(self.made)));
        assert_ne!(
            self.held.held(),
            Some(&ours),
            "it is in conflict with what it published itself"
        );
        self.reach(Point::Published);
    }

    fn resume(&mut self, parts: &Parts) {
        self.resuming = None;
        let same = |(i, byte): (&u64, &u8)| {
            let ours = self.sent.get(i).or_else(|| self.disk.get(*i as usize));
            (ours == Some(byte)).then_some(*i..i + 1)
        };
        let same: Extents = parts.iter().filter_map(same).collect();
        self.sent
            .extend(parts.iter().filter(|(i, _)| same.contains(&(**i..**i + 1))));
        self.held.resumed(&same);
    }

    fn die(&mut self) {
        let after = [After::Kill, After::PowerCut][self.dice.below(2) as usize];
        self.cut_off();
        self.jobs.clear();
        self.fetching.clear();
        self.sent.clear();
        self.digests = self.recorded.clone();
        self.incarnation += 1;
        let dice = &mut self.dice;
        self.writers
            .retain(|w| *w == Notices::None && after == After::Kill && dice.one_in(2));
        if after == After::PowerCut {
            let size = [self.disk.len(), self.safe.len()][dice.below(2) as usize];
            let old = std::mem::take(&mut self.disk);
            self.disk = vec![0; size];
            for page in (0..size).step_by(4) {
                let kept = [&old, &self.safe][dice.below(2) as usize];
                for i in page..size.min(page + 4) {
                    self.disk[i] = kept.get(i).copied().unwrap_or(0);
                }
            }
            self.safe = self.disk.clone();
        }
        self.boot += u64::from(after == After::PowerCut);
        // Of a power cut before the one before, too, if nothing was recorded since.
        let after = match self.record_boot == self.boot {
            true => After::Kill,
            false => After::PowerCut,
        };
        self.committed = self.record.committed;
        let kept = &self.record;
        self.unfinished |= after == After::PowerCut
            && kept.open == Some(Notices::None)
            && kept.committed < kept.generation;
        self.held = Holding::recover(self.record.clone(), after, self.incarnation << 32);
        // Without a writer, an unseen cut or growth is not ours.
        if !self.held.is_unseen() {
            self.disk.resize(self.held.size() as usize, 0);
        }
        self.recovered = true;
        if !self.held.is_unseen() {
            self.compare_with_promises();
        }
    }

    /// Checks that the file is as committed or as written since.
    fn compare_with_promises(&mut self) {
        if !self.recovered || self.held.is_unseen() {
            return;
        }
        self.recovered = false;
        if self.record.open == Some(Notices::Each) {
            assert!(
                self.held.size() <= self.record.size,
                "its growth was not committed"
            );
        }
        let base = self.base_bytes();
        let size = self.held.size() as usize;
        let lens = |s: &Bytes| s.len() == size;
        assert!(
            self.since.iter().any(lens),
            "a length of {size} was never promised"
        );
        let byte = |i: usize| {
            let here = self.held.present().contains(&(i as u64..i as u64 + 1));
            let from = if here { &self.disk } else { &base };
            let found = from.get(i).copied().unwrap_or(0);
            let allowed = |s: &Bytes| s.get(i).copied().unwrap_or(0) == found;
            assert!(
                self.since.iter().any(allowed),
                "byte {i} is {found} ({}), and was promised {:?}",
                if here { "here" } else { "there" },
                self.since
            );
            found
        };
        self.view = (0..size).map(byte).collect();
        // The older commit still counts: bytes found now may be lost again.
        self.changed();
        if self.writers.is_empty() && !self.unfinished {
            self.wholes.insert(self.view.clone());
        }
    }

    /// Ends the faults: all operations end, and the target has the right file.
    fn settle(&mut self) {
        self.trouble = false;
        self.lose(); // Waiters for a lost answer give up.
        let mut steps = 0;
        while !self.writers.is_empty()
            || !self.jobs.is_empty()
            || self.held.owes()
            || self.recovered
        {
            self.step();
            steps += 1;
            assert!(steps < 20_000, "it does not come to rest: {:?}", self.held);
        }
        assert_eq!(self.base_bytes(), self.view, "what arrived");
    }
}

#[test] //= GASS-21 KANGAROO-24 KANGAROO-26 KANGAROO-35 KANGAROO-X4
fn committed_bytes_survive_and_arrive() {
    let alone = std::env::var("GODWIT_SEED")
        .ok()
        .map(|s| s.parse().expect("a number"));
    let count: u64 = std::env::var("GODWIT_SEEDS").map_or(2000, |s| s.parse().expect("a number"));
    let seeds = alone.map_or(1..count, |seed: u64| seed..seed + 1);
    let mut hit = BTreeSet::new();
    for seed in seeds.clone() {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut world = World::new(seed);
            for _ in 0..600 {
                world.step();
            }
            world.settle();
            world.hit
        });
        match std::panic::catch_unwind(run) {
            Ok(points) => hit.extend(points),
            Err(_) => panic!("seed {seed} (GODWIT_SEED={seed} runs it alone)"),
        }
    }
    if seeds.end - seeds.start > 1 {
        let all = POINTS.iter().copied().collect();
        assert_eq!(hit, all, "a crash point was never reached");
    }
}
