//! Random sequences of operations on three names, against the plan alone: in memory, thousands of them a second.
//! Deliveries stop between their steps, answers are lost, and the node restarts. A name always shows the last operation on
//! it. In the end the target has exactly that, and nothing is pending.
//!
//! `GODWIT_PLANNED=FROM..TO` runs those seeds. A failing seed prints its sequence.

use crate::{
    Who,
    disk::rows::Row,
    id::Id,
    plan::{
        Numbers, Plan,
        change::{Removed, Renamed},
        close::Standing,
        delivery::Requeued,
        entry::Entry,
        order::{DeedRow, Fact, LENGTH},
        schedule::Due,
        state::Visibility,
    },
};
use godwit_core::{
    Algorithm, Digest, Extents, Url, Version,
    deeds::{Do, Held as Why, Outcome, Sight, Step, Thing, Values, What},
    holding::{
        After, Base, Holding, Mode, Notices, OriginState, Publication, PublishOutcome, TargetCheck,
    },
};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

const NAMES: [&str; 3] = ["a", "b", "c"];
const STEPS: usize = 60;
const LONGEST: u64 = 6;
/// Steps in which everything must be delivered once nothing fails any more.
const ENOUGH: usize = 500;

#[test]
fn plan_keeps_order() {
    let seeds = std::env::var("GODWIT_PLANNED").unwrap_or("0..1500".into());
    let (from, to) = seeds.split_once("..").unwrap();
    for seed in from.parse().unwrap()..to.parse::<u64>().unwrap() {
        World::of(seed).run();
    }
}

type Files = BTreeMap<Url, Vec<u8>>;

/// A writer that has not closed its file.
struct Writer {
    entry: Arc<Entry>,
    /// The content so far: of a patch, the range that begins there.
    from: u64,
    bytes: Vec<u8>,
    /// The entry has its place in the order, and the writer no answer yet.
    is_placed: bool,
}

/// A request on its way to the target.
struct Flight {
    what: Request,
    /// The target did it, or refused.
    outcome: Option<Outcome>,
}

enum Request {
    File(Arc<Entry>, Url, Publication),
    Deed(Do, Box<Fact>),
}

/// An upload that goes on with the next attempt.
struct Upload {
    at: Url,
    attempt: u64,
    generation: u64,
    bytes: Vec<u8>,
}

struct World {
    seed: u64,
    dice: u64,
    plan: Plan,
    /// The files and the records of the node, which survive a restart.
    bytes: BTreeMap<Id, Vec<u8>>,
    rows: BTreeMap<Id, Row>,
    deeds: BTreeMap<u64, DeedRow>,
    /// The bytes that the target was asked to publish.
    asked: BTreeMap<Id, (u64, Vec<u8>)>,
    uploads: BTreeMap<Id, Upload>,
    flights: Vec<Flight>,
    writers: Vec<Writer>,
    target: Files,
    /// The content that each name must show.
    model: Files,
    starts: u64,
    ids: u64,
    content: u8,
    now: Instant,
    done: Vec<String>,
}

fn url(name: &str) -> Url {
    format!("ftp://there/{name}").parse().unwrap()
}

fn version(bytes: &[u8]) -> Version {
    Version::Strong(Digest::of(Algorithm::Md5, bytes))
}

fn put_into(file: &mut Vec<u8>, from: u64, bytes: &[u8]) {
    let (from, end) = (from as usize, from as usize + bytes.len());
    file.resize(file.len().max(end), 0);
    file[from..end].copy_from_slice(bytes);
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("seed {}:\n  {}", self.seed, self.done.join("\n  "));
            println!("there is {:?}\nand not {:?}", self.target, self.model);
        }
    }
}

impl World {
    fn of(seed: u64) -> Self {
        let mut world = Self {
            seed,
            dice: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            plan: Plan::default(),
            bytes: BTreeMap::new(),
            rows: BTreeMap::new(),
            deeds: BTreeMap::new(),
            asked: BTreeMap::new(),
            uploads: BTreeMap::new(),
            flights: Vec::new(),
            writers: Vec::new(),
            target: Files::new(),
            model: Files::new(),
            starts: 0,
            ids: 0,
            content: 0,
            now: Instant::now(),
            done: Vec::new(),
        };
        world.restart();
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        (self.dice.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    fn name(&mut self) -> Url {
        url(NAMES[self.below(3) as usize])
    }

    fn log(&mut self, what: String) {
        self.done.push(what);
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.step();
            self.look();
        }
        while !self.writers.is_empty() {
            let nth = self.below(self.writers.len() as u64) as usize;
            self.end_writer(nth);
        }
        for _ in 0..ENOUGH {
            self.finish_all();
            self.deliver();
        }
        self.finish_all();
        self.look();
        assert_eq!(self.target, self.model, "at the target");
        let left: Vec<_> = self.plan.pending.values().collect();
        assert!(left.is_empty(), "{left:?} is pending");
        assert_eq!(self.plan.order.deeds().count(), 0, "pending operations");
    }

    fn step(&mut self) {
        let name = self.name();
        let is_there = self.model.contains_key(&name);
        match self.below(20) {
            0..3 => self.open(&name),
            3..7 if !self.writers.is_empty() => {
                let nth = self.below(self.writers.len() as u64) as usize;
                match self.below(4) {
                    0 => self.write(nth),
                    _ => self.end_writer(nth),
                }
            }
            7..9 if is_there => {
                let to = self.name();
                self.rename(&name, &to);
            }
            9 if is_there => self.unlink(&name),
            10 if is_there => self.cut(&name),
            11..17 => self.deliver(),
            17..19 if !self.flights.is_empty() => {
                let nth = self.below(self.flights.len() as u64) as usize;
                match self.flights[nth].outcome {
                    None => self.arrive(nth),
                    Some(_) => {
                        let is_lost = self.below(3) == 0;
                        self.answer(nth, is_lost);
                    }
                }
            }
            19 => match self.below(3) {
                0 if !self.writers.iter().any(|writer| writer.is_placed) => self.restart(),
                _ => self.evict(&name),
            },
            _ => self.deliver(),
        }
    }

    // Programs

    fn open(&mut self, name: &Url) {
        let (base, is_patch) = match self.below(3) {
            0 if !self.model.contains_key(name) && self.plan.called(name).is_empty() => {
                (Base::Absent, false)
            }
            0 | 1 => (Base::Any, false),
            _ => (Base::Any, true),
        };
        let mut machine = match is_patch {
            true => Holding::blind(),
            false => Holding::born(base, Mode::Replace),
        };
        machine.open(Notices::Each).unwrap();
        self.ids += 1;
        let mut id = [0; 12];
        id[4..].copy_from_slice(&self.ids.to_be_bytes());
        let number = self.plan.numbers.next();
        let entry = Entry::new(
            Id::of(id),
            (number, 0),
            name.clone(),
            Who::default(),
            machine,
        );
        let entry = Arc::new(entry);
        entry.lock().visibility = Visibility::Private;
        self.plan.insert(&entry);
        self.bytes.insert(entry.id, Vec::new());
        let from = if is_patch { self.below(LONGEST) } else { 0 };
        let kind = entry.lock().machine.base().clone();
        self.log(format!(
            "open {} as {entry:?}, {kind:?}, patch {is_patch}",
            name
        ));
        self.writers.push(Writer {
            entry,
            from,
            bytes: Vec::new(),
            is_placed: false,
        });
        let nth = self.writers.len() - 1;
        self.write(nth);
    }

    fn write(&mut self, nth: usize) {
        let many = 1 + self.below(LONGEST);
        self.content = self.content.wrapping_add(1);
        let writer = &mut self.writers[nth];
        if writer.is_placed {
            return;
        }
        let at = writer.from + writer.bytes.len() as u64;
        let bytes = vec![self.content; many as usize];
        writer.bytes.extend(&bytes);
        put_into(self.bytes.get_mut(&writer.entry.id).unwrap(), at, &bytes);
        let mut state = writer.entry.lock();
        let ticket = state.machine.grant(at..at + many);
        state.written(ticket, at + many);
        state.delivery.is_due = true;
    }

    /// Ends a writer in two steps; between them, others are at work.
    fn end_writer(&mut self, nth: usize) {
        let entry = Arc::clone(&self.writers[nth].entry);
        let is_patch = entry.lock().machine.is_blind();
        if !self.writers[nth].is_placed {
            let is_before = |writer: &Writer| writer.is_placed && writer.entry.key() == entry.key();
            if is_patch && self.writers.iter().any(is_before) {
                return; // The patch waits for the other's answer.
            }
            if *entry.lock().machine.base() == Base::Absent && self.is_known(&entry.name()) {
                self.writers.remove(nth);
                self.log(format!("{entry:?} finds its name taken"));
                self.remove(&entry);
                return;
            }
            if is_patch && self.merge(nth) {
                return;
            }
            self.log(format!("close {entry:?}"));
            let mut state = entry.lock();
            state.users.open += 1;
            state.machine.close(Notices::Each);
            state.meta.committed = state.machine.generation();
            state.visibility = Visibility::Hidden;
            state.record.change();
            drop(state);
            self.plan.move_to_end(&entry);
            self.writers[nth].is_placed = true;
            self.shown(nth);
            if self.below(2) == 0 {
                return;
            }
        }
        self.writers.remove(nth);
        self.log(format!("{entry:?} is closed"));
        self.commit(&entry);
        self.make_current(&entry);
        entry.lock().users.open -= 1;
        if !entry.lock().is_current() {
            self.let_go(&entry);
        }
    }

    /// From its place on, later operations come after what was written.
    fn shown(&mut self, nth: usize) {
        let Writer {
            entry, from, bytes, ..
        } = &self.writers[nth];
        let is_patch = entry.lock().machine.is_blind();
        let file = self.model.entry(entry.url()).or_default();
        if !is_patch {
            file.clear();
        }
        put_into(file, *from, bytes);
    }

    fn is_known(&self, name: &Url) -> bool {
        let mut called = self.plan.called(name).into_iter();
        called.any(|entry| entry.lock().is_current()) || self.model.contains_key(name)
    }

    /// Merges a patch into the pending entry of its name. Returns whether there is one.
    fn merge(&mut self, nth: usize) -> bool {
        let (beside, from) = (Arc::clone(&self.writers[nth].entry), self.writers[nth].from);
        let Some(under) = self.plan.pending_of(&beside.key()) else {
            return false;
        };
        let bytes = self.writers[nth].bytes.clone();
        let mut state = under.lock();
        if state.machine.open(Notices::Each).is_err() {
            return true; // The writer tries again.
        }
        self.done.push(format!("merge {beside:?} into {under:?}"));
        let end = from + bytes.len() as u64;
        let ticket = state.machine.grant(from..end);
        put_into(self.bytes.get_mut(&under.id).unwrap(), from, &bytes);
        let size = state.machine.size().max(end);
        state.written(ticket, size);
        state.machine.close(Notices::Each);
        state.meta.committed = state.machine.generation();
        state.record.change();
        drop(state);
        self.shown(nth);
        self.writers.remove(nth);
        let standing = self.plan.move_to_end_unless_replaced(&under, 0);
        assert_ne!(standing, Standing::Over, "its name shows it");
        self.commit(&under);
        self.remove(&beside);
        if standing == Standing::Last {
            self.make_current(&under);
        }
        true
    }

    fn fact(&self, name: &Url, to: Option<&Url>) -> Fact {
        Fact::new((name, to), (&Who::default(), ""), 0)
    }

    /// Tells whether the target had the current file of a name a moment ago.
    fn is_sure(&self, name: &Url) -> bool {
        let current = self.plan.current_of(name, &Who::default());
        current.is_some_and(|entry| !entry.lock().is_gone && entry.lock().is_sure())
    }

    fn rename(&mut self, name: &Url, to: &Url) {
        if name == to {
            return;
        }
        self.log(format!("rename {} {}", name, to));
        let (fact, is_known) = (self.fact(name, Some(to)), self.is_sure(name));
        match self.plan.promise_rename(fact, to, is_known) {
            Renamed::Unsent(entry) => self.commit(&entry),
            Renamed::InTurn(renamed) => {
                self.note(name);
                for entry in renamed {
                    if entry.lock().record.has_row {
                        self.commit(&entry);
                    }
                }
            }
        }
        let moved = self.model.remove(name).unwrap();
        self.model.insert(to.clone(), moved);
    }

    fn unlink(&mut self, name: &Url) {
        self.log(format!("unlink {}", name));
        let (fact, is_known) = (self.fact(name, None), self.is_sure(name));
        match self.plan.promise_removal(fact, is_known) {
            Removed::Unsent(entry) => self.remove(&entry),
            Removed::InTurn(gone) => {
                self.note(name);
                for entry in gone {
                    if self.plan.supersede_removed(&entry) {
                        self.remove(&entry);
                    }
                }
            }
        }
        self.model.remove(name);
    }

    fn cut(&mut self, name: &Url) {
        let size = self.below(LONGEST);
        self.log(format!("cut {} {size}", name));
        let values = Values::from([(LENGTH.into(), size.to_string().into())]);
        let fact = self.fact(name, None);
        self.plan.promise_values(fact, values);
        self.note(name);
        self.model.get_mut(name).unwrap().resize(size as usize, 0);
    }

    fn evict(&mut self, name: &Url) {
        for entry in self.plan.called(name) {
            self.let_go(&entry);
        }
    }

    /// Each name shows the last operation on it, as far as this node can tell without the target.
    fn look(&mut self) {
        for name in NAMES.map(url) {
            let is_closing = self.writers.iter().any(|writer| writer.is_placed);
            if is_closing || self.plan.order.is_resized(&name) {
                continue;
            }
            let wanted = self.model.get(&name);
            if let Some(entry) = self.plan.current_of(&name, &Who::default()) {
                let state = entry.lock();
                if state.is_sure() && !state.machine.is_blind() {
                    let shown = &self.bytes[&entry.id];
                    assert_eq!(Some(shown), wanted, "{} shows {entry:?}", name);
                }
            } else if self.plan.pending_called(&name).is_empty() {
                let at = self.plan.order.now_at(&name);
                let has_unread_answer = self.flights.iter().any(|flight| flight.outcome.is_some());
                let is_pending = |at: &Url| !self.plan.pending_called(at).is_empty();
                match at {
                    None => assert_eq!(None, wanted, "{} shows nothing", name),
                    Some(at) if has_unread_answer || is_pending(&at) => {}
                    Some(at) if self.plan.order.is_unsettled(&at) => {}
                    Some(at) => {
                        let shown = self.target.get(&at);
                        assert_eq!(shown, wanted, "{} is {}", name, at);
                    }
                }
            }
        }
    }

    // The node

    fn commit(&mut self, entry: &Entry) {
        let mut state = entry.lock();
        assert!(!state.is_gone, "{entry:?} is gone");
        self.rows.insert(entry.id, Row::of(entry, &state, "boot"));
        state.record.persisted = state.record.changes;
        state.record.has_row = true;
    }

    fn note(&mut self, at: &Url) {
        for (number, row) in self.plan.order.changes(at) {
            match row {
                Some(row) => drop(self.deeds.insert(number, row)),
                None => drop(self.deeds.remove(&number)),
            }
        }
    }

    fn remove(&mut self, entry: &Entry) {
        self.done.push(format!("remove {entry:?}"));
        entry.lock().is_gone = true;
        self.plan.remove(entry);
        self.rows.remove(&entry.id);
        self.plan.order.forget(entry.id);
        self.bytes.remove(&entry.id);
        self.uploads.remove(&entry.id);
    }

    fn let_go(&mut self, entry: &Entry) {
        let state = entry.lock();
        let may = !state.is_gone && state.may_go();
        drop(state);
        if may {
            self.remove(entry);
        }
    }

    fn make_current(&mut self, entry: &Arc<Entry>) {
        let (older, gone) = self.plan.close(entry);
        gone.iter().for_each(|gone| self.remove(gone));
        if self.plan.inherit(entry, &older) {
            self.commit(entry);
        }
    }

    fn restart(&mut self) {
        self.log("restart".into());
        self.starts += 1;
        let numbers = Numbers::after(self.starts << 32);
        self.plan = Plan {
            numbers,
            ..Plan::default()
        };
        self.flights.clear();
        self.uploads.clear();
        // Writers without an answer have no rows.
        self.writers.clear();
        self.bytes.retain(|id, _| self.rows.contains_key(id));
        let mut lost = Vec::new();
        for row in self.rows.values() {
            let machine = Holding::recover(row.record.clone(), After::Kill, self.starts << 32);
            let entry = Arc::new(row.entry(row.url.parse().unwrap(), machine, &[]));
            let (is_blind, is_pending) = {
                let state = entry.lock();
                (state.machine.is_blind(), state.machine.owes())
            };
            if is_blind && !is_pending {
                lost.push(Arc::clone(&entry));
            }
            self.plan.keep(&entry);
            if is_pending {
                self.plan.pending.insert(entry.number(), entry);
            }
        }
        let deeds = self.deeds.values().cloned().collect();
        self.plan.restore(deeds, self.starts);
        lost.iter().for_each(|entry| self.remove(entry));
    }

    // Delivery

    fn deliver(&mut self) {
        self.now += Duration::from_secs(1);
        match self.plan.pick(self.now, 0).0 {
            Some(Due::File(entry)) => {
                self.log(format!("deliver {entry:?}"));
                entry.lock().delivery.is_due = false;
                if !self.send(&entry) {
                    self.went(&entry);
                }
            }
            Some(Due::Deed(asked)) => {
                let Some((_, fact)) = self.plan.order.deed(asked.number) else {
                    return;
                };
                let fact = fact.clone();
                self.done
                    .push(format!("{:?} {:?} {}", asked.step, asked.what, fact.url));
                self.note(&fact.url);
                self.flights.push(Flight {
                    what: Request::Deed(asked, Box::new(fact)),
                    outcome: None,
                });
            }
            None => {}
        }
    }

    /// Removes a superseded entry without users.
    fn give_way(&mut self, entry: &Entry) -> bool {
        let state = entry.lock();
        let may = state.is_superseded && state.users.open == 0 && !state.machine.is_asked();
        let is_gone = state.is_gone;
        drop(state);
        if may && !is_gone {
            self.remove(entry);
        }
        may
    }

    /// Sends what is pending. Returns whether the target was asked to publish it.
    fn send(&mut self, entry: &Arc<Entry>) -> bool {
        if self.give_way(entry) || !entry.lock().machine.owes() {
            return false;
        }
        let is_in_place = entry.lock().machine.mode() == Mode::InPlace;
        if is_in_place && !self.plan.order.is_turn(entry) {
            entry.lock().delivery.is_due = true;
            return false;
        }
        let at = entry.url();
        let is_of = |upload: &Upload, entry: &Entry| {
            let state = entry.lock();
            let is_one = upload.attempt == state.machine.attempt();
            is_one && upload.generation == state.machine.sending() && upload.at == entry.url()
        };
        // The conversation about another generation is over.
        if let Some(upload) = self.uploads.get(&entry.id)
            && !is_of(upload, entry)
        {
            let mut state = entry.lock();
            if upload.attempt == state.machine.attempt() {
                state.machine.lost();
            }
            self.uploads.remove(&entry.id);
        }
        if is_in_place {
            self.enter(entry);
        }
        if entry.lock().is_to_be_entered() {
            return false;
        }
        let mut upload = match self
            .uploads
            .remove(&entry.id)
            .filter(|upload| is_of(upload, entry))
        {
            Some(upload) => upload,
            None => {
                let mut state = entry.lock();
                let upload = Upload {
                    at: at.clone(),
                    attempt: state.machine.attempt(),
                    generation: state.machine.sending(),
                    bytes: Vec::new(),
                };
                if state.machine.is_resuming() {
                    state.machine.resumed(&Extents::new());
                }
                let is_unsure = state.machine.is_unsure();
                drop(state);
                let is_there = is_unsure && self.search(entry);
                if !is_of(&upload, entry) {
                    if is_there {
                        self.published(entry);
                        return true;
                    }
                    let mut state = entry.lock();
                    state.machine.lost();
                    state.delivery.is_due = true;
                    return false;
                }
                upload
            }
        };
        while let Some(push) = {
            let mut state = entry.lock();
            let is_gone = state.is_gone;
            (!is_gone).then(|| state.machine.push(LONGEST)).flatten()
        } {
            let range = push.range.start as usize..push.range.end as usize;
            let bytes = self.bytes[&entry.id][range].to_vec();
            match is_in_place {
                true => put_into(
                    self.target.entry(at.clone()).or_default(),
                    push.range.start,
                    &bytes,
                ),
                false => put_into(&mut upload.bytes, push.range.start, &bytes),
            }
            entry.lock().machine.landed(push.ticket);
        }
        let mut state = entry.lock();
        let is_turn = self.plan.may_publish(entry, &state);
        if state.is_superseded && state.users.open == 0 && !state.machine.is_asked() {
            drop(state);
            self.give_way(entry);
            return false;
        }
        let publication = is_turn.then(|| state.machine.publish()).flatten();
        let Some(publication) = publication else {
            drop(state);
            self.uploads.insert(entry.id, upload);
            return false;
        };
        state.record.change();
        drop(state);
        upload.bytes.resize(publication.size as usize, 0);
        self.asked
            .insert(entry.id, (publication.generation, upload.bytes));
        self.commit(entry);
        let what = Request::File(Arc::clone(entry), at, publication);
        self.flights.push(Flight {
            what,
            outcome: None,
        });
        true
    }

    /// Begins to change the target's file in place.
    fn enter(&mut self, entry: &Entry) {
        let mut state = entry.lock();
        state.machine.resumed(&Extents::new());
        state.machine.found(TargetCheck::Base);
        state.machine.seal();
        state.record.change();
        if state.machine.is_entering() {
            state.machine.looked(OriginState::Same);
        }
        let entering = state.machine.entering();
        drop(state);
        if let Some(generation) = entering {
            self.commit(entry);
            entry.lock().machine.enter(generation);
        }
    }

    /// Looks for the outcome of a publication whose answer was lost. Returns whether the target has it.
    fn search(&mut self, entry: &Entry) -> bool {
        let mut state = entry.lock();
        let sending = state.machine.sending();
        let asked = self.asked.get(&entry.id).filter(|asked| asked.0 == sending);
        let asked = asked.filter(|_| !state.machine.is_blind());
        let there = self.target.get(&entry.url());
        let is_there = asked.is_some_and(|asked| there == Some(&asked.1));
        let found = match is_there {
            true => TargetCheck::Ours(version(&asked.unwrap().1)),
            false => TargetCheck::Base,
        };
        if is_there {
            state.delivery.delivered = sending;
            state.validity.is_changed_at_target = entry.is_renamed();
            state.validity.revalidated(self.now);
        }
        state.machine.found(found);
        state.record.change();
        is_there
    }

    /// A request arrives at the target.
    fn arrive(&mut self, nth: usize) {
        let outcome = match &self.flights[nth].what {
            Request::File(entry, at, asked) => {
                let is_base = match &asked.base {
                    Base::Any => true,
                    Base::Absent => !self.target.contains_key(at),
                    Base::Seen(seen) => {
                        self.target.get(at).map(|file| version(file)).as_ref() == Some(seen)
                    }
                };
                assert!(
                    is_base,
                    "{entry:?} finds another file than {:?}",
                    asked.base
                );
                if entry.lock().machine.mode() == Mode::Replace {
                    self.target
                        .insert(at.clone(), self.asked[&entry.id].1.clone());
                }
                Outcome::Done
            }
            Request::Deed(asked, _) if asked.step == Step::Look => Outcome::Done,
            Request::Deed(asked, fact) => {
                if let Base::Seen(seen) = &asked.condition {
                    let there = self.target.get(&fact.url).map(|file| version(file));
                    assert_eq!(
                        there.as_ref(),
                        Some(seen),
                        "{:?} of {}",
                        asked.what,
                        fact.url
                    );
                }
                match (&asked.what, &fact.to) {
                    (What::Rename { .. }, Some(to)) => match self.target.remove(&fact.url) {
                        Some(file) => {
                            self.target.insert(to.clone(), file);
                            Outcome::Done
                        }
                        None => Outcome::Refused(Why::Missing),
                    },
                    (What::Unlink, _) => {
                        self.target.remove(&fact.url);
                        Outcome::Done
                    }
                    (What::Set(values), _) => match self.target.get_mut(&fact.url) {
                        Some(file) => {
                            let size = std::str::from_utf8(&values[LENGTH]).unwrap();
                            file.resize(size.parse().unwrap(), 0);
                            Outcome::Done
                        }
                        None => Outcome::Refused(Why::Missing),
                    },
                    _ => Outcome::Done,
                }
            }
        };
        self.flights[nth].outcome = Some(outcome);
        self.done.push("it arrives".into());
    }

    /// The node receives an answer, or an error instead.
    fn answer(&mut self, nth: usize, is_lost: bool) {
        let Flight { what, outcome } = self.flights.remove(nth);
        self.log(format!("answer {outcome:?}, lost {is_lost}"));
        match what {
            Request::File(entry, _, _) if is_lost => {
                let mut state = entry.lock();
                state.machine.lost();
                state.delivery.is_due = true;
                drop(state);
                self.plan.visited(&entry, false);
            }
            Request::File(entry, _, asked) => {
                let version = match asked.base {
                    _ if entry.lock().machine.is_blind() => version(b"unknown"),
                    _ => version(&self.asked[&entry.id].1),
                };
                let mut state = entry.lock();
                state.validity.is_changed_at_target = entry.is_renamed();
                state
                    .machine
                    .answered(asked.attempt, PublishOutcome::Published(version));
                state.delivery.delivered = asked.generation;
                state.validity.unsee();
                state.validity.revalidated(self.now);
                state.record.change();
                drop(state);
                self.published(&entry);
            }
            Request::Deed(asked, fact) => {
                let thing = |at: &Url| {
                    let file = self.target.get(at);
                    file.map_or(Thing::Nothing, |file| Thing::File(version(file)))
                };
                let sight = Sight {
                    at: thing(&fact.url),
                    to: fact.to.as_ref().map_or(Thing::Nothing, thing),
                };
                if let Some((deeds, _)) = self.plan.order.deed(asked.number) {
                    match (is_lost, asked.step) {
                        (true, _) => deeds.broke(asked.number, asked.attempt),
                        (_, Step::Look) => deeds.saw(asked.number, asked.attempt, &sight),
                        _ => deeds.ended(asked.number, asked.attempt, outcome.unwrap()),
                    }
                    let held = deeds.find(asked.number).and_then(|deed| deed.held.clone());
                    assert_eq!(held, None, "{:?} of {}", asked.what, fact.url);
                }
                self.note(&fact.url);
            }
        }
    }

    fn published(&mut self, entry: &Arc<Entry>) {
        if entry.lock().machine.owes() {
            self.requeue(entry, None);
        }
        self.went(entry);
    }

    fn requeue(&mut self, entry: &Arc<Entry>, was: Option<&(Url, u64)>) {
        match self.plan.requeue(entry, was) {
            Requeued::Unlinked if entry.lock().is_gone => {}
            Requeued::Unlinked => self.remove(entry),
            Requeued::Stays => {}
            Requeued::Moved(_) => {
                self.commit(entry);
                self.plan.requeued(entry);
            }
        }
    }

    /// Ends an attempt.
    fn went(&mut self, entry: &Arc<Entry>) {
        let state = entry.lock();
        let (is_clean, is_gone) = (!state.machine.owes(), state.is_gone);
        drop(state);
        if self
            .flights
            .iter()
            .any(|flight| matches!(&flight.what, Request::File(of, ..) if of.id == entry.id))
        {
            return; // It goes on.
        }
        if !is_clean || is_gone {
            self.plan.visited(entry, is_clean);
            return;
        }
        let mut was = None;
        loop {
            was = was.or(self.plan.reroute_renamed(entry));
            let state = entry.lock();
            let is_blind = state.machine.is_blind();
            let goes = (is_blind || !state.is_current()) && state.may_go_when_over();
            drop(state);
            if goes {
                self.remove(entry);
            } else {
                if is_blind {
                    self.plan.hide_blind(entry);
                }
                self.commit(entry);
            }
            if entry.lock().machine.owes() {
                self.requeue(entry, was.as_ref());
            } else if entry.is_renamed() && !entry.lock().is_gone {
                continue;
            }
            self.plan.visited(entry, true);
            return;
        }
    }

    fn finish_all(&mut self) {
        while !self.flights.is_empty() {
            if self.flights[0].outcome.is_none() {
                self.arrive(0);
            }
            self.answer(0, false);
        }
    }
}
