//! One entry: its machine, its file, and the threads that wait for it.

use crate::{
    Error, Tag, Who,
    clock::now,
    disk::{files::Id, rows::Row},
    error::Patience,
    plan::{asking::Name, names::Called},
};
use godwit_core::{
    Chain, Digest, Leaves, Url, Version,
    holding::{Base, Holding, Mode, Ticket},
};
use godwit_store::{DataHints, Sink};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// One file of another server that is here.
pub(crate) struct Held {
    pub id: Id,
    names: RwLock<Names>,
    pub who: Who,
    /// The order in which they began; of those of one name the older goes first.
    number: AtomicU64,
    /// Seconds since the epoch.
    pub born: u64,
    pub used: AtomicU64,
    /// The time at which all bytes were last compared with their hash, or arrived, in seconds since the epoch.
    pub verified: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

/// Where it belongs.
struct Names {
    /// Where it is delivered.
    url: Url,
    /// Its name here, if it was renamed since it is on its way there.
    name: Option<Url>,
    /// Where it is found by both.
    called: Option<Arc<Called>>,
}

impl Names {
    fn of(url: Url) -> RwLock<Self> {
        RwLock::new(Self {
            url,
            name: None,
            called: None,
        })
    }

    fn both(&self) -> [&Url; 2] {
        [&self.url, self.name.as_ref().unwrap_or(&self.url)]
    }

    /// Is called so, and found so, from now on.
    fn set(&mut self, id: Id, url: Url, name: Option<Url>) {
        if let Some(called) = &self.called {
            called.remove(self.both(), id);
        }
        (self.url, self.name) = (url, name);
        if let Some(called) = &self.called {
            called.add(self.both(), id);
        }
    }
}

/// One doubt of what is here, and what was known before.
pub(crate) struct Doubt {
    number: u64,
    before: (bool, Option<Instant>),
}

/// The state of an entry, behind its lock.
pub(crate) struct State {
    pub machine: Holding,
    /// The hashes of the leaves, as far as they are known.
    pub leaves: Leaves,
    /// Open for writing as long as bytes come that are put here by us.
    pub pen: Option<Arc<File>>,
    /// Counts what changed that belongs on record.
    pub changes: u64,
    /// The last change that is persisted.
    pub recorded: u64,
    /// The change up to which the bytes and their name are durable, if no record relies on that yet. The hashes of leaves
    /// are kept by then if there is no row.
    pub synced: Option<u64>,
    /// A row of it is on record.
    pub is_recorded: bool,
    pub is_recording: bool,
    /// The last generation that a writer committed.
    pub committed: u64,
    /// Unlinked: a caller that finds it looks for another.
    pub is_gone: bool,
    /// Readers of its name get this entry.
    pub is_current: bool,
    /// How many callers have it open or wait for it.
    pub users: u32,
    pub transfers: u64,
    /// How its bytes travel, as the last lazy reader asked.
    pub hints: DataHints,
    /// The class of prices that fetching it again is of.
    pub price: u32,
    /// Tags, which keep it beyond its users.
    pub tags: Vec<Tag>,
    /// Those of them who may write by descriptors.
    pub editors: u32,
    /// Writers by descriptor changed it since the first of them opened it.
    pub is_edited: bool,
    /// The place in the order where one of them closed it last, who was told so.
    pub closed_at: u64,
    /// A thread compares it with what it was, under a lease.
    pub is_scanning: bool,
    /// When the origin was asked last, and still had the base.
    pub looked: Option<Instant>,
    /// Since then a new length of it was promised, or it was changed past us. Until the origin is asked after that, nothing
    /// that is seen there tells whether this entry is current.
    pub is_doubted: bool,
    /// How often it was doubted.
    pub doubts: u64,
    /// How the base looks to who asks for size and time.
    pub seen: Option<Version>,
    /// Where it was then, if that is known.
    pub seen_at: Option<Url>,
    /// There may be something to deliver.
    pub wants: bool,
    /// Only its writer knows it: it is no generation before its writer ends.
    pub is_private: bool,
    /// The entry beside which it was written, and into which it is to be merged.
    pub folds_into: Option<Id>,
    /// A patch is being merged into it: until all of that is there it is no generation.
    pub is_folding: bool,
    /// Its target takes whole files only, and a program still writes it.
    pub waits: bool,
    /// Something newer of the same name is committed.
    pub is_superseded: bool,
    /// Its name was removed: it is for those only who have it open.
    pub is_unlinked: bool,
    /// How often fetching it failed, and how the last time.
    pub failed: (u64, Option<Error>),
    /// The conversation with the target, while no thread uses it.
    pub sink: Option<Parked>,
    /// The last request to its target to publish a generation.
    pub asked: Option<Asked>,
    /// The upload of which the target may have something.
    pub reached: Option<String>,
    /// The bytes of that upload are not those that were sent.
    pub is_spoilt: bool,
    /// A thread delivers it.
    pub is_moving: bool,
    /// Its place in the order if it ended during a delivery, behind something newer. It takes that place when the delivery
    /// is over, unless something came after its end.
    pub ended_at: Option<u64>,
    /// Why it is on hold.
    pub words: String,
    pub session: String,
    /// A program filled it, and not its origin.
    pub is_filled: bool,
    /// A time that means what its users say.
    pub stamp: Option<i64>,
    /// Permission bits that it is to have where it is new.
    pub bits: Option<u32>,
    /// The file that its target had under its name when it came, if that went there from here.
    pub before: Option<Base>,
    /// The upload by which it came.
    pub upload: String,
    /// Which nodes passed it on to here, and we, if we are one.
    pub passed: Vec<String>,
    /// The target only passes it on, and has not said yet that it is at its end.
    pub is_passed_on: bool,
    /// A program of this machine had it changed there since: that it is nowhere is no loss.
    pub is_changed_there: bool,
    /// The last generation that the target has, since we began.
    pub delivered: u64,
    /// Not before then is it tried again.
    pub later: Option<Instant>,
    /// How often delivering was tried in vain, and how it ended.
    pub tries: u32,
    pub last: Option<Error>,
    pub patience: Patience,
    /// Bytes of the depot's quota that are its own.
    pub reserved: u64,
}

/// A conversation with the target that goes on later.
pub(crate) struct Parked {
    pub sink: Box<dyn Sink>,
    /// Where what is sent goes.
    pub at: Url,
    pub attempt: u64,
    /// Of which it is an upload.
    pub generation: u64,
    /// The ranges that were sent, if the target cannot take them back.
    pub once: Option<Mutex<godwit_core::Extents>>,
    /// The target publishes only bytes that have the hash that we send.
    pub compares: bool,
}

/// A request to a target to publish a generation.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub generation: u64,
    pub size: u64,
    /// Its hash, if that is known.
    pub digest: Option<Digest>,
}

impl Parked {
    /// Tells whether it is about what is to be sent now.
    pub(crate) fn is_of(&self, held: &Held, machine: &Holding) -> bool {
        let is_upload = (self.attempt, self.generation) == (machine.attempt(), machine.sending());
        is_upload && self.at == held.url()
    }
}

impl Held {
    pub(crate) fn new(id: Id, number: u64, url: Url, who: Who, machine: Holding) -> Self {
        Self {
            id,
            names: Names::of(url),
            who,
            number: AtomicU64::new(number),
            born: now(),
            used: AtomicU64::new(now()),
            verified: AtomicU64::new(now()),
            state: Mutex::new(State::of(machine)),
            changed: Condvar::new(),
        }
    }

    /// Goes on with what was on record.
    pub(crate) fn again(row: &Row, url: Url, machine: Holding, chains: &[(u64, Chain)]) -> Self {
        let mut state = State::of(machine);
        for (leaf, chain) in chains {
            state.leaves.set(*leaf, *chain);
        }
        state.is_recorded = true;
        state.committed = row.record.committed;
        state.transfers = row.transfers;
        state.words.clone_from(&row.words);
        state.session.clone_from(&row.session);
        (state.is_filled, state.stamp, state.bits) = (row.filled, row.stamp, row.bits);
        state.price = row.price;
        state.before.clone_from(&row.before);
        state.folds_into = row.folds_into;
        state.upload.clone_from(&row.upload);
        let sealed = row.record.sealed.as_ref().zip(row.asked.clone());
        state.asked = sealed.map(|(sealed, digest)| Asked {
            generation: sealed.generation,
            size: sealed.size,
            digest: Some(digest),
        });
        state.is_passed_on = row.passed_on;
        state.is_changed_there = true; // Nobody knows any more that it was not.
        state.passed = row.passed.split_whitespace().map(Into::into).collect();
        state.wants = state.machine.owes();
        if state.wants {
            // Before we ended, something may have come there.
            let generation = state.machine.sending();
            state.reached = Some(crate::plan::entry::upload_of(row.id, generation));
        }
        let who = Who {
            audience: row.audience.clone(),
            credential: (!row.credential.is_empty()).then(|| row.credential.clone().into()),
        };
        Self {
            id: row.id,
            names: Names::of(url),
            who,
            number: AtomicU64::new(row.number),
            born: row.born,
            used: AtomicU64::new(row.used),
            verified: AtomicU64::new(row.verified.max(row.born)),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Returns where it is delivered.
    pub(crate) fn url(&self) -> Url {
        self.names.read().url.clone()
    }

    /// Returns what it is called here.
    pub(crate) fn name(&self) -> Url {
        let names = self.names.read();
        names.name.as_ref().unwrap_or(&names.url).clone()
    }

    /// Returns by what readers of its name find it.
    pub(crate) fn key(&self) -> Name {
        (self.name(), self.who.audience.clone())
    }

    /// Tells whether it was renamed since it is on its way.
    pub(crate) fn is_renamed(&self) -> bool {
        self.names.read().name.is_some()
    }

    /// Tells whether it may rightly not be where it was delivered: this machine had it go from there, or is about to.
    pub(crate) fn may_be_elsewhere(&self, state: &State) -> bool {
        let has_its_name = state.is_current && !state.is_unlinked && !self.is_renamed();
        state.is_changed_there || !has_its_name
    }

    /// Is called otherwise here, and delivered where it was to be.
    pub(crate) fn rename(&self, name: Url) {
        let mut names = self.names.write();
        let url = names.url.clone();
        let name = (name != url).then_some(name);
        names.set(self.id, url, name);
    }

    /// Is delivered elsewhere, and called so.
    pub(crate) fn redirect(&self, url: Url) {
        self.names.write().set(self.id, url, None);
    }

    /// Is delivered elsewhere, and called as it is.
    pub(crate) fn reroute(&self, url: Url) {
        let mut names = self.names.write();
        let name = names.name.as_ref().unwrap_or(&names.url).clone();
        let name = (name != url).then_some(name);
        names.set(self.id, url, name);
    }

    /// Is found by its names from now on.
    pub(crate) fn call(&self, called: &Arc<Called>) {
        let mut names = self.names.write();
        called.add(names.both(), self.id);
        names.called = Some(Arc::clone(called));
    }

    /// Is found by its names no more.
    pub(crate) fn uncall(&self) {
        let mut names = self.names.write();
        if let Some(called) = names.called.take() {
            called.remove(names.both(), self.id);
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    /// Takes the place in the order of one that begins now.
    pub(crate) fn renumber(&self, number: u64) {
        self.number.store(number, Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until something changed, or the time is over.
    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, State>, until: Option<Instant>) {
        match until {
            None => self.changed.wait(state),
            Some(until) => drop(self.changed.wait_until(state, until)),
        }
    }

    /// Waits until nothing is half in it.
    pub(crate) fn folded(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.is_folding {
            self.wait(&mut state, None);
        }
        state
    }

    /// Wakes all threads that wait for a change.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }

    pub(crate) fn touch(&self) {
        self.used.store(now(), Relaxed);
    }

    /// Returns what its leaves hash to if it is so long.
    pub(crate) fn chains(&self, size: u64) -> Vec<(u64, Chain)> {
        self.lock().leaves.known(size).collect()
    }

    pub(crate) fn row(&self, state: &State, boot: &str) -> Row {
        let credential = self.who.credential.as_deref();
        let is_asked = |asked: &&Asked| {
            state.machine.is_asked() && asked.generation == state.machine.sending()
        };
        let asked = state.asked.as_ref().filter(is_asked);
        Row {
            id: self.id,
            number: self.number(),
            url: self.url().to_string(),
            audience: self.who.audience.clone(),
            credential: credential.map_or_else(String::new, |path| path.display().to_string()),
            session: state.session.clone(),
            filled: state.is_filled,
            stamp: state.stamp,
            bits: state.bits,
            before: state.before.clone(),
            asked: asked.and_then(|asked| asked.digest.clone()),
            price: state.price,
            upload: state.upload.clone(),
            folds_into: state.folds_into,
            passed: state.passed.join(" "),
            passed_on: state.is_passed_on,
            record: state.machine.record(state.committed),
            words: state.words.clone(),
            boot: boot.into(),
            used: self.used.load(Relaxed),
            verified: self.verified.load(Relaxed),
            born: self.born,
            transfers: state.transfers,
        }
    }
}

impl State {
    /// Returns how many bytes are still to be sent. Those in flight count as sent, until the conversation breaks.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        match self.is_moving {
            true => self.machine.pushable_bytes(),
            false => self.machine.owed_bytes(),
        }
    }

    fn of(machine: Holding) -> Self {
        Self {
            machine,
            leaves: Leaves::new(),
            pen: None,
            changes: 0,
            recorded: 0,
            synced: None,
            is_recorded: false,
            is_recording: false,
            committed: 0,
            is_gone: false,
            is_current: false,
            users: 0,
            transfers: 0,
            hints: DataHints::default(),
            price: 0,
            tags: Vec::new(),
            editors: 0,
            is_edited: false,
            closed_at: 0,
            is_scanning: false,
            looked: None,
            is_doubted: false,
            doubts: 0,
            seen: None,
            seen_at: None,
            wants: false,
            is_private: false,
            folds_into: None,
            is_folding: false,
            waits: false,
            is_superseded: false,
            is_unlinked: false,
            failed: (0, None),
            sink: None,
            asked: None,
            reached: None,
            is_spoilt: false,
            is_moving: false,
            ended_at: None,
            words: String::new(),
            session: String::new(),
            is_filled: false,
            stamp: None,
            bits: None,
            before: None,
            upload: String::new(),
            passed: Vec::new(),
            is_passed_on: false,
            is_changed_there: false,
            delivered: 0,
            later: None,
            tries: 0,
            last: None,
            patience: Patience::default(),
            reserved: 0,
        }
    }

    /// These nodes passed on what came.
    pub(crate) fn passed_by(&mut self, nodes: &[String]) {
        for node in nodes {
            if !self.passed.contains(node) {
                self.passed.push(node.clone());
            }
        }
    }

    /// A write is over, and the file is so long.
    pub(crate) fn written(&mut self, ticket: Ticket, size: u64) {
        let before = self.machine.size();
        self.machine.written(ticket, size);
        self.may_have_grown(before);
    }

    /// The file was so long before something was done.
    pub(crate) fn may_have_grown(&mut self, before: u64) {
        if self.machine.size() > before {
            self.leaves.grown(before);
        }
    }

    /// The origin was asked, and has what this is.
    pub(crate) fn saw(&mut self) {
        self.looked = (!self.is_doubted).then(Instant::now);
    }

    /// What is here is not what its name says, or nobody knows. Returns what was known before.
    pub(crate) fn doubt(&mut self) -> Doubt {
        self.doubts += 1;
        let before = (self.is_doubted, self.looked);
        (self.is_doubted, self.looked) = (true, None);
        Doubt {
            number: self.doubts,
            before,
        }
    }

    /// The origin was asked after so many doubts, and has what this is.
    pub(crate) fn saw_after(&mut self, doubts: u64) {
        if self.doubts == doubts {
            self.is_doubted = false;
            self.saw();
        }
    }

    /// The origin could not be asked: what was known before is known again, unless somebody doubted since.
    pub(crate) fn believe_again(&mut self, doubt: Doubt) {
        if self.is_doubted && self.doubts == doubt.number {
            (self.is_doubted, self.looked) = doubt.before;
        }
    }

    /// Notes that something changed that belongs on record.
    pub(crate) fn change(&mut self) {
        self.changes += 1;
    }

    /// Returns how few bytes are not worth sending while somebody writes; all are, once they asked for it.
    pub(crate) fn least(&self) -> u64 {
        match self.machine.sending() == self.machine.generation() {
            true => WORTH_SENDING,
            false => 0,
        }
    }

    /// Tells whether a program filled it, and no tag keeps it any more.
    pub(crate) fn is_lapsed(&self) -> bool {
        self.is_filled && self.tags.is_empty() && !self.machine.owes()
    }

    /// Tells whether what its name says is known to be this: ours, or seen there since we began. A record of before may
    /// have an old name: what is clean is not written anew with each rename.
    pub(crate) fn is_sure(&self) -> bool {
        self.machine.owes() || self.looked.is_some()
    }

    /// Tells whether the records lack anything.
    pub(crate) fn is_ahead(&self) -> bool {
        self.recorded < self.changes || !self.is_recorded
    }

    /// Tells whether something newer of the same name may go in its place.
    pub(crate) fn may_be_superseded(&self) -> bool {
        let is_still = self.machine.writers().is_none() && !self.is_recording;
        is_still && self.users == 0 && !self.is_moving && !self.machine.is_asked()
    }

    /// Tells whether all of it may be forgotten by the thread that has just delivered it.
    pub(crate) fn may_go_when_over(&self) -> bool {
        let is_kept = self.users > 0 || !self.tags.is_empty();
        !is_kept && !self.is_recording && !self.is_gone && self.machine.may_be_forgotten()
    }

    /// Tells whether it goes in place to where nothing is, and that has not been looked at yet.
    pub(crate) fn is_to_be_entered(&self) -> bool {
        let is_into = self.machine.mode() == Mode::InPlace;
        is_into && *self.machine.base() == Base::Absent && !self.machine.is_inside()
    }

    /// Tells whether all of it may be forgotten, and the record says that nothing is pending.
    pub(crate) fn may_go(&self) -> bool {
        !self.is_moving && self.may_go_when_over()
    }
}

/// Returns what the upload of a generation is called at its target.
pub(crate) fn upload_of(id: Id, generation: u64) -> String {
    format!("{id}.{generation}")
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.id, self.name())
    }
}

/// Fewer wait for more, or for the end of the file.
pub(crate) const WORTH_SENDING: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_store::{Store, Write};
    use std::path::Path;

    /// Else it would be shown there: what waits for its turn has another name by then, perhaps.
    #[test]
    fn what_was_sent_under_another_name_is_another_upload() {
        let url = |name: &str| Url::from_argument(format!("ftp://far/{name}")).unwrap();
        let machine = Holding::born(Base::Any, Mode::Replace);
        let who = Who::default();
        let held = Held::new(Id::of([1; 12]), 1, url("a"), who, machine);
        let store = godwit_store::Memory::new();
        let sink = store.write(Path::new("a"), &Write::default()).unwrap();
        let state = held.lock();
        let parked = Parked {
            sink,
            at: held.url(),
            attempt: state.machine.attempt(),
            generation: state.machine.sending(),
            once: None,
            compares: false,
        };
        assert!(parked.is_of(&held, &state.machine));
        held.redirect(url("b"));
        assert!(!parked.is_of(&held, &state.machine));
    }

    #[test]
    fn who_asked_before_a_doubt_does_not_end_it() {
        let mut state = State::of(Holding::of(Version::None, 0, Mode::Replace));
        state.saw();
        assert!(state.is_sure());
        let asked_before = state.doubts;
        let doubt = state.doubt();
        state.saw();
        state.saw_after(asked_before);
        assert!(!state.is_sure());
        state.believe_again(doubt);
        assert!(state.is_sure());
        // Somebody else doubts it meanwhile: that one has nobody to take it back.
        let doubt = state.doubt();
        state.doubt();
        state.believe_again(doubt);
        assert!(!state.is_sure());
        state.saw_after(state.doubts);
        assert!(state.is_sure());
    }
}
