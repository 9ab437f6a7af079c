//! Local copy of a target's file, with clean bytes and pending bytes.
//!
//! A cache may forget clean bytes; a spool must keep pending bytes. A holding is both, and is a
//! spool while bytes are pending. This machine decides which bytes may be fetched, read, sent,
//! published and forgotten. It touches no byte: the owner of the file asks it before each step and
//! reports after. The owner does both under the lock under which the file is written.
//!
//! Each operation that takes time has a beginning and an end with a ticket between them. So events
//! in between are seen: a write takes its range away from a fetch, and makes bytes in flight to the
//! target stale.

mod delivering;
mod fetching;
mod recovering;
mod writing;

pub use delivering::{Held, Publication, PublishOutcome, Push, TargetCheck};
pub use fetching::{Fetch, OriginState};
pub use recovering::{After, Record, Sealed};
pub use writing::{Notices, Refused, Scan};

use crate::{Extents, Version};
use delivering::{Going, InPlaceState, UploadProgress};
use std::{collections::BTreeMap, ops::Range};

/// Version at the target when the copy was taken or last delivered. A delivery is conditional on
/// it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Base {
    /// There was no such file.
    Absent,
    /// This one.
    Seen(Version),
    /// Not asked: the writer replaces any version.
    Any,
}

/// Way in which a generation is delivered to its target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// As a whole, at once: readers there see one generation or the next.
    Replace,
    /// Range by range in offset order, into the existing file, so that readers see the file grow.
    /// Until the last range is sent, readers see old and new bytes. A generation is sealed and
    /// persisted before a byte of it is sent.
    InPlace,
}

/// Identifies an operation from its begin to its end.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Ticket(u64);

/// Local copy of one file.
#[derive(Clone, Debug)]
pub struct Holding {
    mode: Mode,
    base: Base,
    /// Length of the base's beginning that was not cut away locally.
    drawable: u64,
    size: u64,
    /// Ranges that a reader may see: on the local disk, and right.
    present: Extents,
    fetches: BTreeMap<Ticket, fetching::FetchInFlight>,
    /// Ranges on the local disk from fetches that broke off before the base was revalidated.
    unproved: Extents,
    /// Writes that were let begin and have not ended.
    grants: BTreeMap<Ticket, Range<u64>>,
    tickets: u64,
    writers: writing::Writers,
    /// Writers with a descriptor wrote, and their writes are not reported: the file must be
    /// scanned.
    unseen: Option<Notices>,
    scan: Option<Ticket>,
    /// After a crash: the bytes on disk must be scanned before they change again.
    is_doubtful: bool,
    /// Ranges of `present` that the target's published file lacks.
    owed: Extents,
    /// The target differs by more than pending bytes: the file is new, or was cut short.
    altered: bool,
    /// The number of the generation that is being written.
    generation: u64,
    attempt: u64,
    upload: UploadProgress,
    going: Option<Going>,
    /// In place: how far the target's file is ours to change.
    entry: InPlaceState,
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

    /// Creates an empty new file in place of `base`. The file itself is pending.
    pub fn born(base: Base, mode: Mode) -> Self {
        Self {
            altered: true,
            ..Self::empty(base, mode)
        }
    }

    /// Creates a holding for writes into a file that is never checked at the target.
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
            upload: UploadProgress::default(),
            going: None,
            entry: InPlaceState::None,
            held: None,
        }
    }

    /// Returns the way in which the file is delivered.
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

    /// Returns the ranges that a reader may see.
    pub fn present(&self) -> &Extents {
        &self.present
    }

    /// Returns how many bytes arrived, also in fetches that broke off: readers do not see those
    /// yet.
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

    /// Tells whether the target is stale.
    ///
    /// While writes are not reported (`unseen`), the answer is yes.
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

    /// Returns why the holding is on hold until a decision is made; `None` if it is not.
    pub fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Tells whether the whole holding may be forgotten: no writer, no pending byte, no fetch.
    ///
    /// Readers do not matter: they keep the file they opened, since to forget is to unlink.
    pub fn may_be_forgotten(&self) -> bool {
        !self.owes() && self.is_still() && self.fetches.is_empty()
    }

    /// Forgets `range` of a file that no descriptor ever left, and returns the ranges to punch out.
    /// Pending, granted and fetched ranges are kept. First a record must say that no byte is
    /// pending, or the bytes would be missing after a crash.
    pub fn punch(&mut self, range: Range<u64>) -> Extents {
        if !self.may_be_forgotten() {
            return Extents::new();
        }
        let punched: Extents = self.present.within(range).collect();
        self.present = self.present.minus(&punched);
        self.check();
        punched
    }

    /// Tells whether no writer may be changing the bytes.
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
        // Bytes written locally are present: no other copy exists.
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
        held.fetched(fetch.ticket, OriginState::Same);
    }

    #[test] //= GASS-21 depot#reading
    fn descriptor_leaves_when_file_is_whole() {
        let mut held = held(10);
        assert_eq!(held.open(Notices::None), Err(Refused::NotWhole));
        fetch_all(&mut held);
        assert_eq!(held.open(Notices::None), Ok(()));
    }

    #[test] //= GASS-16
    fn range_in_flight_is_not_fetched_again() {
        let mut held = held(10);
        let fetch = held.fetch(0..10).expect("all is missing");
        assert_eq!(fetch.wanted, Extents::from(0..10));
        assert_eq!(held.fetch(2..8), None);
        held.broke_off(fetch.ticket);
        assert!(held.fetch(2..8).is_some());
    }

    #[test]
    fn missed_range_is_fetched_again() {
        let mut held = held(10);
        let fetch = held.fetch(0..10).expect("all is missing");
        held.arrived(fetch.ticket, 0..10);
        held.missed(fetch.ticket, 4..10);
        held.broke_off(fetch.ticket);
        let again = held.fetch(0..10).expect("some is missing");
        assert_eq!(again.wanted, Extents::from(4..10));
    }

    #[test]
    fn broken_fetch_is_only_revalidated() {
        let mut held = held(10);
        let broken = held.fetch(0..10).expect("all is missing");
        held.arrived(broken.ticket, 0..10);
        held.broke_off(broken.ticket);
        assert!(held.present().is_empty());
        let look = held.fetch(0..10).expect("it is not proved");
        assert!(look.wanted.is_empty());
        held.fetched(look.ticket, OriginState::Same);
        assert!(held.is_whole());
    }

    #[test] //= delivery#faults
    fn power_cut_puts_unfinished_file_on_hold() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::None).expect("all of it is here");
        let record = held.record(0);
        let after = |after| Holding::recover(record.clone(), after, 1 << 32);
        assert_eq!(after(After::PowerCut).held(), Some(&Held::Unfinished));
        assert_eq!(after(After::Kill).held(), None);
    }

    #[test]
    fn power_cut_keeps_zeros_past_target_end() {
        let mut blind = Holding::blind();
        blind
            .open(Notices::Each)
            .expect("a blind holding takes writers");
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
    fn empty_new_file_is_pending() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        assert!(held.owes() && held.is_ready());
        let publication = held.publish().expect("it is ready");
        assert_eq!((publication.size, &publication.base), (0, &Base::Absent));
        held.answered(
            publication.attempt,
            PublishOutcome::Published(Version::None),
        );
        assert!(held.may_be_forgotten());
    }

    #[test]
    fn lost_publication_is_checked_after_takeover() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        let asked = held.publish().expect("it is ready");
        held.lost();
        assert!(held.is_resuming() && !held.is_unsure());
        // An answer to an attempt that is over is ignored.
        let attempt = held.attempt();
        assert!(attempt > asked.attempt);
        held.resumed(&Extents::new());
        assert!(held.is_unsure());
        held.found(TargetCheck::Base);
        let again = held.publish().expect("it is still pending");
        assert_eq!((again.attempt, again.generation), (attempt, 1));
    }

    /// Writes `range` as a writer whose writes are reported.
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
    fn unpublished_seal_joins_next_generation_after_restart() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::Each).expect("any writer may open");
        write(&mut held, 0..8);
        held.seal().expect("it is pending");
        let record = held.record(1);
        let mut held = Holding::recover(record, After::Kill, 1 << 32);
        // The upload may have bytes of a generation that was unsealed, and so may the disk.
        held.resumed(&Extents::from(0..8));
        let scan = held.scan().expect("its writers are gone");
        let found = Scan {
            size: 8,
            changed: Extents::from(2..4),
            stale: Extents::new(),
        };
        held.scanned(scan, &found);
        held.found(TargetCheck::Base);
        assert_eq!(held.publish(), None);
        send_all(&mut held);
        let publication = held.publish().expect("all of it is there");
        assert_eq!(publication.generation, 2);
    }

    #[test]
    fn write_after_persisted_seal_is_next_generation() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::Each).expect("any writer may open");
        write(&mut held, 0..8);
        held.seal().expect("it is pending");
        write(&mut held, 2..4);
        held.close(Notices::Each);
        let mut held = Holding::recover(held.record(2), After::Kill, 1 << 32);
        held.resumed(&Extents::from(0..8));
        held.found(TargetCheck::Base);
        assert_eq!(held.publish().map(|p| p.generation), Some(2));
    }

    #[test]
    fn new_writer_unseals_unsent_generation() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::Each).expect("any writer may open");
        write(&mut held, 0..16);
        held.close(Notices::Each);
        held.seal().expect("it is pending");
        let first = held.push(8).expect("it is pending");
        held.open(Notices::Each).expect("any writer may open");
        write(&mut held, 8..12);
        held.landed(first.ticket);
        send_all(&mut held);
        assert_eq!(held.publish(), None);
        held.close(Notices::Each);
        assert_eq!(held.publish().map(|p| p.generation), Some(2));
    }

    #[test]
    fn duplicate_answer_does_not_answer_next_publication() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        let first = held.publish().expect("it is ready");
        held.answered(first.attempt, PublishOutcome::Published(Version::None));
        held.open(Notices::Each).expect("any writer may open");
        held.resized(4);
        held.close(Notices::Each);
        send_all(&mut held);
        held.publish().expect("it is ready");
        held.answered(first.attempt, PublishOutcome::Refused(Held::Refused));
        assert_eq!(held.held(), None);
    }

    #[test]
    fn in_place_sends_only_written_ranges() {
        let mut held = Holding {
            mode: Mode::InPlace,
            ..held(100)
        };
        held.open(Notices::Each).expect("any writer may open");
        let grant = held.grant(40..50);
        held.written(grant, 100);
        held.close(Notices::Each);
        assert_eq!(held.seal(), Some(1));
        assert_eq!(held.push(1 << 20), None);
        assert!(held.is_entering());
        held.looked(OriginState::Same);
        // A record must say so first, or after a crash our own bytes would be a conflict.
        assert_eq!(held.push(1 << 20), None);
        held.enter(1);
        let push = held.push(1 << 20).expect("it is pending");
        assert_eq!(push.range, 40..50);
        // The target's file is neither the base nor complete.
        assert_eq!(held.fetch(0..10), None);
        assert_eq!(held.push(1 << 20), None);
        held.landed(push.ticket);
        let publication = held.publish().expect("all of it is there");
        assert_eq!(publication.base, Base::Any);
        held.answered(
            publication.attempt,
            PublishOutcome::Published(Version::None),
        );
        assert!(held.fetch(0..10).is_some());
    }

    #[test]
    fn in_place_begun_delivery_continues_after_restart() {
        let mut held = Holding::born(Base::Absent, Mode::InPlace);
        held.open(Notices::Each).expect("any writer may open");
        write(&mut held, 0..8);
        held.close(Notices::Each);
        held.seal().expect("it is pending");
        held.looked(OriginState::Same);
        let mut held = Holding::recover(held.record(1), After::Kill, 1 << 32);
        held.resumed(&Extents::from(0..4));
        held.found(TargetCheck::Base);
        let generation = held.seal().expect("it is pending");
        assert!(!held.is_entering());
        assert_eq!(held.entering(), Some(generation));
        held.enter(generation);
        assert_eq!(held.push(8).map(|p| p.range), Some(4..8));
    }

    #[test]
    fn in_place_growth_is_sent_in_order() {
        let mut held = Holding {
            mode: Mode::InPlace,
            ..held(16)
        };
        held.open(Notices::Each).expect("any writer may open");
        write(&mut held, 0..32);
        held.close(Notices::Each);
        held.seal().expect("it is pending");
        held.looked(OriginState::Same);
        held.enter(1);
        let mut next = || held.push(8).map(|p| (p.ticket, p.range));
        // Ranges of the old file may land in any order; beyond its end a reader would see a hole.
        let sent: Vec<_> = std::iter::from_fn(&mut next).collect();
        assert_eq!(sent.len(), 3);
        held.landed(sent[2].0);
        assert_eq!(held.push(8).map(|p| p.range), Some(24..32));
    }

    #[test]
    fn in_place_foreign_change_is_a_conflict() {
        let mut held = Holding {
            mode: Mode::InPlace,
            ..held(16)
        };
        held.open(Notices::Each).expect("any writer may open");
        write(&mut held, 0..4);
        held.seal().expect("it is pending");
        let other = Base::Seen(Version::None);
        held.looked(OriginState::Other(other.clone()));
        held.enter(1);
        assert_eq!(held.held(), Some(&Held::Conflict(other)));
        assert_eq!((held.push(8), held.publish()), (None, None));
    }

    #[test]
    fn blind_write_leaves_other_ranges_alone() {
        let mut held = Holding::blind();
        held.open(Notices::Each).expect("any writer may open");
        let grant = held.grant(40..50);
        held.written(grant, 50);
        assert_eq!(held.owed_bytes(), 10);
        assert_eq!(held.present(), &Extents::from(40..50));
        // A reader needs the target's size and version.
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
    fn abandoned_write_keeps_present_ranges_only() {
        let mut held = Holding::blind();
        held.open(Notices::Each).expect("any writer may open");
        write(&mut held, 0..10);
        let grant = held.grant(5..50);
        held.abandoned(grant);
        held.close(Notices::Each);
        assert_eq!((held.owed_bytes(), held.size()), (10, 10));
        assert_eq!(held.seal(), Some(1));
    }

    #[test]
    fn seal_publishes_while_writer_stays() {
        let mut held = Holding::born(Base::Absent, Mode::Replace);
        held.open(Notices::Each).expect("any writer may open");
        let grant = held.grant(0..5);
        held.written(grant, 5);
        assert!(!held.is_ready());
        assert_eq!(held.seal(), Some(1));
        let push = held.push(8).expect("it is pending");
        held.landed(push.ticket);
        let publication = held.publish().expect("it is sealed");
        assert_eq!((publication.generation, publication.size), (1, 5));
    }
}
