//! Delivery: from the local disk to the target.
//!
//! A generation lasts from the first writer's open to the last writer's close. While it is being
//! written, its bytes are sent into an upload that no reader at the target sees. A write makes sent
//! ranges stale. When no writer is left and all bytes sent are durable, the target is asked to
//! publish. The condition is that its file is still the base.
//!
//! *In place*, three things must be persisted before a byte is sent: the seal, the check of the
//! target, and its result. From then on the target's file is partly ours, and its version proves
//! nothing. Changes by others during that time are not noticed.
//!
//! *Sealing* fixes a generation: later writes belong to the next. A publication seals. So does a
//! writer who wants to see the bytes at the target while the file stays open.

use super::{Base, Holding, Mode, OriginState, Sealed, Ticket};
use crate::{Extents, Version};
use std::{collections::BTreeMap, ops::Range};

/// Range to send to the target next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Push {
    /// Ticket to report with when the range landed.
    pub ticket: Ticket,
    /// Attempt of this push. The target refuses pushes of earlier attempts.
    pub attempt: u64,
    /// Range to read from disk now.
    pub range: Range<u64>,
}

/// Request to the target to show a generation to readers, valid while its attempt lasts. In place,
/// the file is complete and has this length now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Publication {
    /// Number of the generation.
    pub generation: u64,
    /// Attempt of this request. The target refuses requests of earlier attempts.
    pub attempt: u64,
    /// The length of the file.
    pub size: u64,
    /// Condition on the target's file. In place the condition was checked before.
    pub base: Base,
}

/// Outcome of a publication.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PublishOutcome {
    /// The generation is published, as this version.
    Published(Version),
    /// The generation is not published, and is on hold until a decision is made.
    Refused(Held),
    /// The outcome is unknown, since the answer was lost. The target must be checked.
    Lost,
}

/// Result of a check of the target after an answer was lost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TargetCheck {
    /// The sealed generation that the target was asked to publish.
    Ours(Version),
    /// The base.
    Base,
    /// Another file.
    Other(Base),
}

/// Reason why a holding is on hold until a decision is made. All bytes are kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Held {
    /// Another writer changed the target's file; its state now.
    Conflict(Base),
    /// The target refused; its message is kept elsewhere.
    Refused,
    /// The power failed during the write, before the writer had committed the file.
    Unfinished,
}

/// In place: tells whether the target's file may be changed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum InPlaceState {
    /// The target must be checked first: it must be the base.
    #[default]
    None,
    /// The target was the base, or only we changed it since; the next step must be persisted.
    Looked,
    /// The target's file may be changed.
    Made,
}

/// Progress of a generation that is sent and not yet published.
#[derive(Clone, Debug, Default)]
pub(super) struct UploadProgress {
    /// Ranges that are durable at the target and equal to the local bytes.
    landed: Extents,
    sends: BTreeMap<Ticket, RangeInFlight>,
    /// Set after a break: the target must be asked first, and only these ranges can be unchanged
    /// there.
    resuming: Option<Extents>,
}

impl UploadProgress {
    /// Upload of which only the target knows the ranges.
    pub(super) fn unknown() -> Self {
        Self {
            resuming: Some(Extents::from(0..u64::MAX)),
            ..Self::default()
        }
    }
}

/// Range in flight.
#[derive(Clone, Debug)]
struct RangeInFlight {
    range: Range<u64>,
    /// Ranges written again since they were read from disk.
    stale: Extents,
}

/// A sealed generation.
#[derive(Clone, Debug)]
pub(super) struct Going {
    pub generation: u64,
    pub size: u64,
    /// Ranges that the upload needs.
    want: Extents,
    /// Ranges that are no longer pending once this generation is published.
    pub owed: Extents,
    pub altered: bool,
    /// Shortest length to which the file was cut since the seal.
    floor: u64,
    pub asked: Option<PublishAttempt>,
    /// The seal is from a record: bytes on disk may have changed since, undetected. The generation
    /// was published as sealed, or it joins the next one.
    is_remembered: bool,
}

/// Publication that the target was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PublishAttempt {
    attempt: u64,
    unsure: bool,
}

impl Going {
    /// Restores a sealed generation after a crash, when the file was `size` long. The target may
    /// have been asked to publish it, and may have done so.
    pub(super) fn recovered(sealed: Sealed, size: u64, mode: Mode, attempt: u64) -> Self {
        let asked = Some(PublishAttempt {
            attempt,
            unsure: true,
        });
        Self {
            want: mode.wanted(sealed.size, &sealed.owed),
            generation: sealed.generation,
            size: sealed.size,
            owed: sealed.owed,
            altered: sealed.altered,
            floor: sealed.size.min(size),
            asked,
            is_remembered: true,
        }
    }

    pub(super) fn sealed(&self) -> Sealed {
        Sealed {
            generation: self.generation,
            size: self.size,
            owed: self.owed.clone(),
            altered: self.altered,
        }
    }
}

impl Mode {
    /// Returns the ranges that the target needs for a file of `size` bytes with `owed` pending.
    fn wanted(self, size: u64, owed: &Extents) -> Extents {
        match self {
            Self::Replace => Extents::from(0..size),
            Self::InPlace => owed.clone(),
        }
    }
}

impl Holding {
    /// Returns the number of the attempt in flight.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Returns the number of the generation that is being sent.
    pub fn sending(&self) -> u64 {
        let going = self.going.as_ref().map(|going| going.generation);
        going.unwrap_or(self.generation)
    }

    /// Tells whether the target was asked to publish and the outcome is still unknown.
    pub fn is_asked(&self) -> bool {
        self.going
            .as_ref()
            .is_some_and(|going| going.asked.is_some())
    }

    /// Returns how many bytes [push](Self::push) would still take.
    pub fn pushable_bytes(&self) -> u64 {
        self.pushable().len_bytes()
    }

    fn pushable(&self) -> Extents {
        if self.held.is_some() || self.upload.resuming.is_some() || !self.has_entry() {
            return Extents::new();
        }
        let mut need = self.lacking().and(&self.present);
        for sent in self.upload.sends.values() {
            need.remove(sent.range.clone());
        }
        need
    }

    /// Takes the next range to send, in offset order, without crossing a multiple of `step_bytes`.
    ///
    /// No range is in flight twice, so that an older copy cannot land last.
    pub fn push(&mut self, step_bytes: u64) -> Option<Push> {
        let range = self.pushable().take_aligned(step_bytes)?;
        if self.mode == Mode::InPlace && self.would_gape(range.end) {
            return None;
        }
        let ticket = self.ticket();
        let sent = RangeInFlight {
            range: range.clone(),
            stale: Extents::new(),
        };
        self.upload.sends.insert(ticket, sent);
        Some(Push {
            ticket,
            attempt: self.attempt,
            range,
        })
    }

    /// Tells whether a range must wait because two ranges beyond the target's end are never in
    /// flight together. If they landed out of order, readers at the target would see a hole.
    fn would_gape(&self, end: u64) -> bool {
        let there = self.upload.landed.end().max(self.drawable);
        let mut sends = self.upload.sends.values();
        end > there && sends.any(|s| s.range.end > there)
    }

    /// Tells whether the target is due to be [checked](Self::looked) before a change in place.
    pub fn is_entering(&self) -> bool {
        self.entry == InPlaceState::None && self.may_enter()
    }

    /// Returns the number of the generation whose seal must be persisted before it [may
    /// be](Self::enter) sent in place.
    pub fn entering(&self) -> Option<u64> {
        let may = self.entry == InPlaceState::Looked && self.may_enter();
        self.going.as_ref().filter(|_| may).map(|g| g.generation)
    }

    fn may_enter(&self) -> bool {
        self.mode == Mode::InPlace
            && self.held.is_none()
            && !self.is_doubtful
            && self.upload.resuming.is_none()
            && self.fetches.is_empty()
            && self.going.as_ref().is_some_and(|g| g.asked.is_none())
    }

    /// Receives the result of a check before a change in place. If the target is the base, a record
    /// must say so next.
    pub fn looked(&mut self, origin: OriginState) {
        if !self.is_entering() {
            return;
        }
        match origin {
            OriginState::Same => {
                self.entry = InPlaceState::Looked;
                // No check will find the base again.
                self.unproved = Extents::new();
            }
            OriginState::Other(now) => self.hold(Held::Conflict(now)),
        }
        self.check();
    }

    /// Allows changes of the target's file: the caller [persisted](Self::entering) the seal of
    /// `generation`.
    pub fn enter(&mut self, generation: u64) {
        if self.entering() == Some(generation) {
            self.entry = InPlaceState::Made;
        }
    }

    /// In place: tells whether the target's file is partly ours, so that fetches must not read it.
    pub fn is_inside(&self) -> bool {
        self.entry != InPlaceState::None
    }

    /// Tells whether bytes that readers at the target see may be sent.
    fn has_entry(&self) -> bool {
        self.mode == Mode::Replace || (self.entry == InPlaceState::Made && self.going.is_some())
    }

    /// Marks a push as durable at the target, except for ranges that were written here meanwhile.
    pub fn landed(&mut self, ticket: Ticket) {
        if let Some(sent) = self.upload.sends.remove(&ticket) {
            let landed = Extents::from(sent.range).minus(&sent.stale);
            self.upload.landed = self.upload.landed.or(&landed);
        }
    }

    /// Takes back a push that was not sent, because a writer with a descriptor cut the file. The
    /// caller must report the cut by [glimpsed](Self::glimpsed); zeros in place of the missing
    /// bytes were never in the file.
    pub fn unread(&mut self, ticket: Ticket) {
        self.upload.sends.remove(&ticket);
    }

    /// Begins a new attempt after the connection to the target broke. All unconfirmed ranges are
    /// pending again, once the target was asked for its ranges.
    pub fn lost(&mut self) {
        self.attempt += 1;
        if self.upload.resuming.is_none() {
            let mut maybe = std::mem::take(&mut self.upload.landed);
            for sent in std::mem::take(&mut self.upload.sends).into_values() {
                maybe = maybe.or(&Extents::from(sent.range).minus(&sent.stale));
            }
            self.upload.resuming = Some(maybe);
        }
        if let Some(asked) = self.going.as_mut().and_then(|g| g.asked.as_mut()) {
            asked.unsure = true;
        }
    }

    /// Tells whether the target must be asked for its ranges of the upload. To ask takes the upload
    /// over: from then on the target refuses older attempts.
    pub fn is_resuming(&self) -> bool {
        self.upload.resuming.is_some()
    }

    /// Receives the ranges that the target has of the upload. `same` equals the bytes sent last or,
    /// after a restart, the bytes on the local disk.
    pub fn resumed(&mut self, same: &Extents) {
        if let Some(maybe) = self.upload.resuming.take() {
            self.upload.landed = same.and(&maybe);
            if !self.is_fixed() {
                self.upload.landed = self.upload.landed.and(&self.present);
            }
            self.mend();
            self.check();
        }
    }

    /// Seals the bytes written until now, so that they are published while writers continue, and
    /// returns the generation's number. Bytes written during the sending may be included.
    ///
    /// A new first writer unseals a generation of which a range is still unread. Else the target
    /// would show a mixture of two whole generations.
    ///
    /// Writes through a descriptor must have been [glimpsed](Self::glimpsed) first.
    ///
    /// `None` if no byte is pending, the file is not whole, a scan is due, or an earlier generation
    /// waits.
    ///
    /// In place only this seals, so the caller seals whenever the target is due to get the bytes.
    pub fn seal(&mut self) -> Option<u64> {
        let is_here = self.is_whole() || self.mode == Mode::InPlace;
        let is_known = self.unseen.is_none() || !self.writers.is_empty();
        let is_due = self.is_altered() && is_here && is_known;
        if self.going.is_some() || self.held.is_some() || !is_due {
            return None;
        }
        let going = Going {
            generation: self.generation,
            size: self.size,
            want: self.wanted(),
            owed: std::mem::take(&mut self.owed),
            altered: std::mem::take(&mut self.altered),
            floor: self.size,
            asked: None,
            is_remembered: false,
        };
        self.generation += 1;
        if self.entry == InPlaceState::Made {
            self.entry = InPlaceState::Looked;
        }
        Some(self.going.insert(going).generation)
    }

    /// Tells whether the target has all of a finished generation and may be asked to publish. The
    /// caller must persist the bytes first, or a power cut could revert them locally while the
    /// target shows them.
    pub fn is_ready(&self) -> bool {
        let ended = match &self.going {
            Some(going) => going.asked.is_none(),
            None => self.is_altered() && self.is_still() && self.unseen.is_none(),
        };
        ended
            && self.has_entry()
            && self.held.is_none()
            && self.upload.resuming.is_none()
            && self.upload.sends.is_empty()
            && self.lacking().is_empty()
    }

    /// Seals the generation if necessary, and returns the request for the target; `None` unless
    /// [`is_ready`](Self::is_ready).
    pub fn publish(&mut self) -> Option<Publication> {
        if !self.is_ready() || (self.going.is_none() && self.seal().is_none()) {
            return None;
        }
        let going = self.going.as_mut()?;
        going.asked = Some(PublishAttempt {
            attempt: self.attempt,
            unsure: false,
        });
        Some(Publication {
            generation: going.generation,
            attempt: self.attempt,
            size: going.size,
            base: match self.mode {
                Mode::Replace => self.base.clone(),
                Mode::InPlace => Base::Any,
            },
        })
    }

    /// Receives the outcome of the publication that `attempt` asked for.
    pub fn answered(&mut self, attempt: u64, answer: PublishOutcome) {
        let asked = self.going.as_ref().and_then(|g| g.asked);
        if asked.is_none_or(|a| a.attempt != attempt) {
            return;
        }
        match answer {
            PublishOutcome::Published(version) => self.delivered(version),
            PublishOutcome::Refused(why) => self.hold(why),
            PublishOutcome::Lost => self.lost(),
        }
        self.check();
    }

    /// Tells whether the target must be checked because the answer to a publication was lost. First
    /// the upload must be taken over, or the target could publish after the check.
    pub fn is_unsure(&self) -> bool {
        let asked = self.going.as_ref().and_then(|g| g.asked);
        asked.is_some_and(|a| a.unsure) && !self.is_resuming()
    }

    /// Receives the result of a check of the target.
    pub fn found(&mut self, found: TargetCheck) {
        if !self.is_unsure() {
            return;
        }
        match found {
            TargetCheck::Ours(version) => self.delivered(version),
            // Ranges sent since the record may contain bytes written after the seal.
            TargetCheck::Base if !self.is_fixed() => self.unseal(),
            TargetCheck::Base => {
                if let Some(going) = &mut self.going {
                    going.asked = None;
                }
                self.mend();
            }
            TargetCheck::Other(now) => self.hold(Held::Conflict(now)),
        }
        self.check();
    }

    /// Puts the holding on hold until a decision is made. The first reason stays; a later one is
    /// reported when it recurs.
    pub fn hold(&mut self, why: Held) {
        self.unseal();
        self.held.get_or_insert(why);
    }

    /// Releases the holding, by decision. With `over` it replaces that version of the target.
    /// Ranges sent earlier are discarded.
    ///
    /// With `over` the file must be whole; else the holding stays on hold.
    pub fn release(&mut self, over: Option<Base>) {
        if let Some(base) = over {
            if !self.is_whole() {
                return;
            }
            self.base = base;
            self.entry = InPlaceState::None;
            // No byte is known to equal the target's.
            self.drawable = 0;
            if self.mode == Mode::InPlace {
                (self.owed, self.altered) = (self.present.clone(), true);
            }
        }
        self.held = None;
        self.attempt += 1;
        self.upload = UploadProgress::unknown();
        self.check();
    }

    fn delivered(&mut self, version: Version) {
        if let Some(going) = self.going.take() {
            if self.is_blind() {
                // The ranges around ours are as unknown as before, and so are changes by others.
                self.present = self.owed.clone();
                self.drawable = self.size;
            } else {
                self.base = Base::Seen(version);
                self.drawable = going.size.min(going.floor);
            }
            self.upload = UploadProgress::default();
            self.entry = InPlaceState::None;
            // Each publication has its own attempt, so that a duplicate request or answer does not
            // match the next.
            self.attempt += 1;
        }
    }

    /// Unseals a generation of which the target lost ranges: they would be sent with later writes.
    fn mend(&mut self) {
        if !self.lacking().is_empty() {
            self.unseal();
        }
    }

    /// Merges a sealed generation into the next one.
    fn unseal(&mut self) {
        let Some(going) = self.going.take() else {
            return;
        };
        let since = std::mem::take(&mut self.owed);
        if !going.is_remembered {
            since.iter().for_each(|r| self.staled(r));
            if going.floor < going.size {
                self.staled(going.floor..u64::MAX);
            }
        }
        self.owed = going.owed.and(&self.present).or(&since);
        self.altered |= going.altered;
    }

    /// Notes that the file was cut. A sealed generation that lost unsent bytes is unsealed.
    pub(super) fn going_cut(&mut self, size: u64) {
        let Some(going) = &mut self.going else {
            return;
        };
        going.floor = going.floor.min(size);
        let unsent = going.want.minus(&self.upload.landed);
        if going.asked.is_none() && unsent.end() > size {
            self.unseal();
        }
    }

    /// Unseals a generation with unread ranges when a first writer opens: the ranges would be sent
    /// with the new writes.
    pub(super) fn going_opened(&mut self) {
        let Some(going) = self.going.as_ref().filter(|g| g.asked.is_none()) else {
            return;
        };
        let mut unread = going.want.minus(&self.upload.landed);
        for sent in self.upload.sends.values() {
            unread.remove(sent.range.clone());
        }
        if let Some(maybe) = &self.upload.resuming {
            unread = unread.minus(maybe);
        }
        if !unread.is_empty() {
            self.unseal();
        }
    }

    /// Marks `range` stale in the upload, unless the upload is of a sealed generation.
    pub(super) fn staled(&mut self, range: Range<u64>) {
        if self.is_fixed() {
            return;
        }
        self.upload.landed.remove(range.clone());
        for sent in self.upload.sends.values_mut() {
            sent.stale.insert(range.clone());
        }
        if let Some(maybe) = &mut self.upload.resuming {
            maybe.remove(range);
        }
    }

    /// Tells whether the upload is of a sealed generation, which new writes do not change.
    fn is_fixed(&self) -> bool {
        self.going.as_ref().is_some_and(|g| !g.is_remembered)
    }

    /// Returns the ranges that the upload still needs.
    fn lacking(&self) -> Extents {
        let want = match &self.going {
            Some(going) if going.asked.is_some() => return Extents::new(),
            Some(going) => going.want.clone(),
            None => self.wanted(),
        };
        want.minus(&self.upload.landed)
    }

    /// Returns the ranges that an upload of the current file needs.
    fn wanted(&self) -> Extents {
        if self.is_altered() {
            self.mode.wanted(self.size, &self.owed)
        } else {
            Extents::new()
        }
    }

    /// Tells whether bytes were written that no seal covers.
    fn is_altered(&self) -> bool {
        !self.owed.is_empty() || self.altered
    }
}
