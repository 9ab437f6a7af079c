//! Our copy of somebody's file: bytes we may forget, bytes we owe.
//!
//! A cache keeps what it may forget, a spool what it owes. A holding is both;
//! which of the two it is at the moment depends on whether it owes anything.
//! This machine decides what may be fetched, read, sent, published and
//! forgotten. It touches no byte: whoever has the file asks it before, tells it
//! after, and does both under the lock under which the file is written.
//!
//! Everything that takes time has a beginning and an end, with a ticket between
//! them, so that what happens meanwhile is seen: a write takes its range away
//! from a fetch and makes what is on its way to the target stale.

mod delivering;
mod fetching;
mod recovering;
mod writing;

pub use delivering::{Answer, Found, Held, Publication, Push};
pub use fetching::{Fetch, Origin};
pub use recovering::{After, Record, Sealed};
pub use writing::{Notices, Refused, Scan};

use crate::{Extents, Version};
use delivering::{Entry, Going, Upload};
use std::{collections::BTreeMap, ops::Range};

/// What the target had when our copy was taken, or when we last delivered: what
/// a delivery is conditional on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Base {
    /// There was no such file.
    Absent,
    /// This one.
    Seen(Version),
    /// It was not asked: whoever wrote said that it replaces whatever there is.
    Any,
}

/// How a generation comes to its target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// As a whole, at once: readers there see one generation or the next.
    Replace,
    /// Range by range in offset order, into the file that is there: readers see it grow. What they
    /// see of each byte is old or new, and only after the last is the file right. A generation is
    /// sealed and on record before any of it is sent.
    InPlace,
}

/// Names what was begun, for whoever ends it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Ticket(u64);

/// One file of somebody's that we hold.
#[derive(Clone, Debug)]
pub struct Holding {
    mode: Mode,
    base: Base,
    /// So much of the beginning of the base is not cut away here.
    drawable: u64,
    size: u64,
    /// What a reader may see: on our disk, and right.
    present: Extents,
    fetches: BTreeMap<Ticket, fetching::Asked>,
    /// On our disk from fetches that broke off before the base was looked at again.
    unproved: Extents,
    /// Writes that were let begin and have not ended.
    grants: BTreeMap<Ticket, Range<u64>>,
    tickets: u64,
    writers: writing::Writers,
    /// Somebody wrote whose writes we do not see: the file must be scanned.
    unseen: Option<Notices>,
    scan: Option<Ticket>,
    /// After a crash what is on disk must be looked at before it changes again.
    is_doubtful: bool,
    /// Of `present`, what the target does not have in its published file.
    owed: Extents,
    /// The target differs though not by a byte that is owed: a new file, or one cut short.
    altered: bool,
    /// The number of the generation that is being written.
    generation: u64,
    attempt: u64,
    upload: Upload,
    going: Option<Going>,
    /// In place: how far the target's file is ours to change.
    entry: Entry,
    held: Option<Held>,
}

impl Holding {
    /// Holds nothing yet of a file of `size` bytes that is `version` at its origin.
    pub fn of(version: Version, size: u64, mode: Mode) -> Self {
        Self {
            drawable: size,
            size,
            ..Self::empty(Base::Seen(version), mode)
        }
    }

    /// Holds a file that begins here, empty, in place of `base`: it owes itself.
    pub fn born(base: Base, mode: Mode) -> Self {
        Self {
            altered: true,
            ..Self::empty(base, mode)
        }
    }

    /// Holds what is to be written into a file at the target that is not asked for.
    pub fn blind() -> Self {
        Self::empty(Base::Any, Mode::InPlace)
    }

    fn empty(base: Base, mode: Mode) -> Self {
        Self {
            mode,
            base,
            drawable: 0,
            size: 0,
            present: Extents::new(),
            fetches: BTreeMap::new(),
            unproved: Extents::new(),
            grants: BTreeMap::new(),
            tickets: 0,
            writers: writing::Writers::default(),
            unseen: None,
            scan: None,
            is_doubtful: false,
            owed: Extents::new(),
            altered: false,
            generation: 1,
            attempt: 1,
            upload: Upload::default(),
            going: None,
            entry: Entry::None,
            held: None,
        }
    }

    /// Returns how it comes to its target.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns what deliveries are conditional on.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// Returns the length of the file as a reader here sees it.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns what a reader may see.
    pub fn present(&self) -> &Extents {
        &self.present
    }

    /// Returns how much came of it, also by fetches that broke off: no reader sees that yet.
    pub fn come_bytes(&self) -> u64 {
        self.present.len_bytes() + self.unproved.len_bytes()
    }

    /// Tells whether every byte is here: only then may a descriptor leave.
    pub fn is_whole(&self) -> bool {
        self.present.contains(&(0..self.size))
    }

    /// Returns the number of the generation that is being written.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Tells whether the target lacks anything of what we have.
    ///
    /// Where writes are not seen (`unseen`), we do not know, and then we do.
    pub fn owes(&self) -> bool {
        !self.owed.is_empty() || self.altered || self.going.is_some() || self.unseen.is_some()
    }

    /// Returns how many bytes the target's published file lacks, as far as known.
    pub fn owed_bytes(&self) -> u64 {
        let going = self.going.as_ref().map(|g| &g.owed);
        going.map_or_else(|| self.owed.len_bytes(), |g| g.or(&self.owed).len_bytes())
    }

    /// Returns how many bytes are on our disk, with those of fetches that have not ended.
    pub fn arrived_bytes(&self) -> u64 {
        let fetches = self.fetches.values();
        let all = fetches.fold(self.present.clone(), |all, asked| all.or(&asked.arrived));
        all.len_bytes()
    }

    /// Returns why nothing is delivered until somebody decides.
    pub fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Tells whether all of it may be forgotten: nobody writes, nothing is owed or on its way.
    ///
    /// Readers do not matter: they keep what they have opened, since forgetting is unlinking.
    pub fn may_be_forgotten(&self) -> bool {
        !self.owes() && self.is_still() && self.fetches.is_empty()
    }

    /// Forgets `range` in a file of which no descriptor ever left, and returns what of it may be
    /// punched out: nothing that is owed, written or on its way. Not before a record says that nothing
    /// is owed, or after a crash it would be missed.
    pub fn punch(&mut self, range: Range<u64>) -> Extents {
        if !self.may_be_forgotten() {
            return Extents::new();
        }
        let punched: Extents = self.present.within(range).collect();
        self.present = self.present.minus(&punched);
        self.check();
        punched
    }

    /// Nobody may be changing the bytes.
    fn is_still(&self) -> bool {
        self.writers.is_empty() && self.grants.is_empty()
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn check(&self) {
        let file = Extents::from(0..self.size);
        debug_assert!(self.owed.minus(&self.present).is_empty());
        debug_assert!(self.present.minus(&file).is_empty());
        debug_assert!(self.present.and(&self.unproved).is_empty());
        debug_assert!(self.drawable <= self.size);
        for fetch in self.fetches.values() {
            debug_assert!(fetch.awaited.and(&self.present).is_empty());
            debug_assert!(fetch.arrived.and(&self.present).is_empty());
        }
        // What was born here is here: nobody else has it.
        debug_assert!(
            self.present.contains(&(self.drawable..self.size)) || !self.grants.is_empty()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Digest};

    fn held(size: u64) -> Holding {
        let version = Version::Strong(Digest::of(Algorithm::Blake3, b"base"));
        Holding::of(version, size, Mode::Replace)
    }

    fn fetch_all(held: &mut Holding) {
        let fetch = held.fetch(0..held.size()).expect("something is missing");
        held.arrived(fetch.ticket, 0..held.size());
        held.fetched(fetch.ticket, Origin::Same);
    }

    #[test]
    fn a_descriptor_leaves_when_every_byte_is_here() {
        let mut held = held(10);
        assert_eq!(held.open(Notices::None), Err(Refused::NotWhole));
        fetch_all(&mut held);
        assert_eq!(held.open(Notices::None), Ok(()));
    }

    #[test]
    fn who_needs_what_is_on_its_way_does_not_ask_again() {
        let mut held = held(10);
        let fetch = held.fetch(0..10).expect("all is missing");
        assert_eq!(fetch.wanted, Extents::from(0..10));
        assert_eq!(held.fetch(2..8), None);
        held.broke_off(fetch.ticket);
        assert!(held.fetch(2..8).is_some());
    }

    #[test]
    fn what_could_not_be_put_on_disk_did_not_arrive() {
        let mut held = held(10);
        let fetch = held.fetch(0..10).expect("all is missing");
        held.arrived(fetch.ticket, 0..10);
        held.missed(fetch.ticket, 4..10);
        held.broke_off(fetch.ticket);
        let again = held.fetch(0..10).expect("some is missing");
        assert_eq!(again.wanted, Extents::from(4..10));
    }

    #[test]
    fn what_came_before_a_break_is_only_looked_at_again() {
        let mut held = held(10);
        let broken = held.fetch(0..10).expect("all is missing");
        held.arrived(broken.ticket, 0..10);
        held.broke_off(broken.ticket);
        assert!(held.present().is_empty());
        let look = held.fetch(0..10).expect("it is not proved");
        assert!(look.wanted.is_empty());
        held.fetched(look.ticket, Origin::Same);
        assert!(held.is_whole());
    }

    #[test]
    fn half_of_a_file_is_held_after_a_power_cut() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::None).expect("all of it is here");
        let record = held.record(0);
        let after = |after| Holding::recover(record.clone(), after, 1 << 32);
        assert_eq!(after(After::PowerCut).held(), Some(&Held::Unfinished));
        assert_eq!(after(After::Kill).held(), None);
    }

    #[test]
    fn zeros_behind_what_the_target_has_are_there_after_a_power_cut() {
        let mut blind = Holding::blind();
        blind
            .open(Notices::Each)
            .expect("nobody knows what is there");
        let ticket = blind.grant(20..30);
        blind.written(ticket, 30);
        let Base::Seen(version) = held(10).base().clone() else {
            unreachable!("it was seen");
        };
        blind.seen(Base::Seen(version), 10);
        let record = blind.record(0).opened(Notices::Each);
        let mut held = Holding::recover(record, After::PowerCut, 1 << 32);
        let ticket = held.scan().expect("it was open");
        let found = Scan {
            size: 30,
            changed: (0..30).into(),
            stale: (0..30).into(),
        };
        held.scanned(ticket, &found);
        assert_eq!(held.present(), &Extents::from(10..30));
    }

    #[test]
    fn an_empty_new_file_is_owed() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        assert!(held.owes() && held.is_ready());
        let publication = held.publish().expect("it is ready");
        assert_eq!((publication.size, &publication.base), (0, &Base::Absent));
        held.answered(publication.attempt, Answer::Published(Version::None));
        assert!(held.may_be_forgotten());
    }

    #[test]
    fn the_target_is_looked_at_once_it_can_publish_no_more() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        let asked = held.publish().expect("it is ready");
        held.lost();
        assert!(held.is_resuming() && !held.is_unsure());
        // What an attempt hears that is over counts no more.
        let attempt = held.attempt();
        assert!(attempt > asked.attempt);
        held.resumed(&Extents::new());
        assert!(held.is_unsure());
        held.found(Found::Base);
        let again = held.publish().expect("it is still owed");
        assert_eq!((again.attempt, again.generation), (attempt, 1));
    }

    /// Writes `range`, as somebody whose writes are told.
    fn write(held: &mut Holding, range: Range<u64>) {
        let grant = held.grant(range.clone());
        held.written(grant, range.end.max(held.size()));
    }

    fn send_all(held: &mut Holding) {
        while let Some(push) = held.push(8) {
            held.landed(push.ticket);
        }
    }

    #[test]
    fn what_was_sealed_before_an_end_and_not_published_is_part_of_what_follows() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::Each).expect("anybody may");
        write(&mut held, 0..8);
        held.seal().expect("it is owed");
        let record = held.record(1);
        let mut held = Holding::recover(record, After::Kill, 1 << 32);
        // Of a seal that was taken off, the upload has what was written since, and so has the disk.
        held.resumed(&Extents::from(0..8));
        let scan = held.scan().expect("its writers are gone");
        let found = Scan {
            size: 8,
            changed: Extents::from(2..4),
            stale: Extents::new(),
        };
        held.scanned(scan, &found);
        held.found(Found::Base);
        assert_eq!(held.publish(), None);
        send_all(&mut held);
        let publication = held.publish().expect("all of it is there");
        assert_eq!(publication.generation, 2);
    }

    #[test]
    fn what_was_written_after_a_seal_on_record_is_not_published_as_part_of_it() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::Each).expect("anybody may");
        write(&mut held, 0..8);
        held.seal().expect("it is owed");
        write(&mut held, 2..4);
        held.close(Notices::Each);
        let mut held = Holding::recover(held.record(2), After::Kill, 1 << 32);
        held.resumed(&Extents::from(0..8));
        held.found(Found::Base);
        assert_eq!(held.publish().map(|p| p.generation), Some(2));
    }

    #[test]
    fn who_begins_to_write_takes_the_seal_off_what_was_not_sent() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::Each).expect("anybody may");
        write(&mut held, 0..16);
        held.close(Notices::Each);
        held.seal().expect("it is owed");
        let first = held.push(8).expect("it is owed");
        held.open(Notices::Each).expect("anybody may");
        write(&mut held, 8..12);
        held.landed(first.ticket);
        send_all(&mut held);
        assert_eq!(held.publish(), None);
        held.close(Notices::Each);
        assert_eq!(held.publish().map(|p| p.generation), Some(2));
    }

    #[test]
    fn what_was_answered_twice_does_not_answer_the_next() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        let first = held.publish().expect("it is ready");
        held.answered(first.attempt, Answer::Published(Version::None));
        held.open(Notices::Each).expect("anybody may");
        held.resized(4);
        held.close(Notices::Each);
        send_all(&mut held);
        held.publish().expect("it is ready");
        held.answered(first.attempt, Answer::Refused(Held::Refused));
        assert_eq!(held.held(), None);
    }

    #[test]
    fn in_place_only_what_was_written_is_sent() {
        let mut held = Holding {
            mode: Mode::InPlace,
            ..held(100)
        };
        held.open(Notices::Each).expect("anybody may");
        let grant = held.grant(40..50);
        held.written(grant, 100);
        held.close(Notices::Each);
        assert_eq!(held.seal(), Some(1));
        assert_eq!(held.push(1 << 20), None);
        assert!(held.is_entering());
        held.looked(Origin::Same);
        // Not before that is on record, or after a crash our own bytes were a stranger's.
        assert_eq!(held.push(1 << 20), None);
        held.enter(1);
        let push = held.push(1 << 20).expect("it is owed");
        assert_eq!(push.range, 40..50);
        // What is there now is neither the base nor ours.
        assert_eq!(held.fetch(0..10), None);
        assert_eq!(held.push(1 << 20), None);
        held.landed(push.ticket);
        let publication = held.publish().expect("all of it is there");
        assert_eq!(publication.base, Base::Any);
        held.answered(publication.attempt, Answer::Published(Version::None));
        assert!(held.fetch(0..10).is_some());
    }

    #[test]
    fn in_place_what_was_begun_is_no_strangers_after_an_end() {
        let mut held = Holding::born(Base::Absent, Mode::InPlace);
        held.open(Notices::Each).expect("anybody may");
        write(&mut held, 0..8);
        held.close(Notices::Each);
        held.seal().expect("it is owed");
        held.looked(Origin::Same);
        let mut held = Holding::recover(held.record(1), After::Kill, 1 << 32);
        held.resumed(&Extents::from(0..4));
        held.found(Found::Base);
        let generation = held.seal().expect("it is owed");
        assert!(!held.is_entering());
        assert_eq!(held.entering(), Some(generation));
        held.enter(generation);
        assert_eq!(held.push(8).map(|p| p.range), Some(4..8));
    }

    #[test]
    fn in_place_what_makes_it_longer_is_sent_piece_by_piece() {
        let mut held = Holding {
            mode: Mode::InPlace,
            ..held(16)
        };
        held.open(Notices::Each).expect("anybody may");
        write(&mut held, 0..32);
        held.close(Notices::Each);
        held.seal().expect("it is owed");
        held.looked(Origin::Same);
        held.enter(1);
        let mut next = || held.push(8).map(|p| (p.ticket, p.range));
        // What is there already may come in any order; beyond it a reader would see a hole.
        let sent: Vec<_> = std::iter::from_fn(&mut next).collect();
        assert_eq!(sent.len(), 3);
        held.landed(sent[2].0);
        assert_eq!(held.push(8).map(|p| p.range), Some(24..32));
    }

    #[test]
    fn in_place_nothing_goes_over_what_somebody_else_put_there() {
        let mut held = Holding {
            mode: Mode::InPlace,
            ..held(16)
        };
        held.open(Notices::Each).expect("anybody may");
        write(&mut held, 0..4);
        held.seal().expect("it is owed");
        let other = Base::Seen(Version::None);
        held.looked(Origin::Other(other.clone()));
        held.enter(1);
        assert_eq!(held.held(), Some(&Held::Conflict(other)));
        assert_eq!((held.push(8), held.publish()), (None, None));
    }

    #[test]
    fn what_is_written_into_an_unknown_file_leaves_the_rest_alone() {
        let mut held = Holding::blind();
        held.open(Notices::Each).expect("anybody may");
        let grant = held.grant(40..50);
        held.written(grant, 50);
        assert_eq!(held.owed_bytes(), 10);
        assert_eq!(held.present(), &Extents::from(40..50));
        // Whoever reads it wants to know what is there.
        held.seen(Base::Seen(Version::None), 45);
        assert_eq!(
            held.fetch(0..50).map(|f| f.wanted),
            Some(Extents::from(0..40))
        );
        held.close(Notices::Each);
        let mut sealed = Holding::blind();
        let grant = sealed.grant(40..50);
        sealed.written(grant, 50);
        sealed.seal();
        sealed.seen(Base::Seen(Version::None), 100);
        assert!(sealed.is_blind() && sealed.size() == 50);
        let mut short = Holding::blind();
        let grant = short.grant(40..50);
        short.written(grant, 50);
        short.seen(Base::Absent, 0);
        assert!(short.is_whole());
        assert_eq!(short.owed_bytes(), 10);
    }

    #[test]
    fn of_a_write_whose_writer_died_only_what_was_here_counts() {
        let mut held = Holding::blind();
        held.open(Notices::Each).expect("anybody may");
        write(&mut held, 0..10);
        let grant = held.grant(5..50);
        held.abandoned(grant);
        held.close(Notices::Each);
        assert_eq!((held.owed_bytes(), held.size()), (10, 10));
        assert_eq!(held.seal(), Some(1));
    }

    #[test]
    fn a_writer_who_stays_sees_their_bytes_there_once_they_ask_for_it() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::Each).expect("anybody may");
        let grant = held.grant(0..5);
        held.written(grant, 5);
        assert!(!held.is_ready());
        assert_eq!(held.seal(), Some(1));
        let push = held.push(8).expect("it is owed");
        held.landed(push.ticket);
        let publication = held.publish().expect("it is sealed");
        assert_eq!((publication.generation, publication.size), (1, 5));
    }
}
