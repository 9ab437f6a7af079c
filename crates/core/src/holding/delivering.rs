//! From our disk to the target.
//!
//! A generation is what lies between the first writer's opening and the last one's leaving. It is
//! sent while it is being written, into an upload that nobody at the target sees; a write takes
//! back what it makes stale. Once nobody writes, all is sent and the target would not lose it, the
//! target is asked to publish it, on condition that its file is still the base.
//!
//! *In place* nothing is sent before it is sealed and on record, the target was looked at, and that
//! look is on record too: from then on the file there is partly ours, and no version of it tells
//! whose. What others do there until we are done is not noticed.
//!
//! *Sealing* fixes a generation: what is written after it belongs to the next. Asking to publish
//! seals; so does a writer who wants to see their writes at the target while they keep the file open.

use super::{Base, Holding, Mode, Origin, Sealed, Ticket};
use crate::{Extents, Version};
use std::{collections::BTreeMap, ops::Range};

/// What to send to the target next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Push {
    /// Told when it landed.
    pub ticket: Ticket,
    /// The target refuses what comes from an earlier one.
    pub attempt: u64,
    /// To be read from disk now.
    pub range: Range<u64>,
}

/// What to ask the target for: show this to everybody. Not once its attempt is over. In place: the
/// file is as long as this now, and right.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Publication {
    /// Which of our generations it is.
    pub generation: u64,
    /// The target refuses what comes from an earlier one.
    pub attempt: u64,
    /// The length of the file.
    pub size: u64,
    /// Only if the target has this. In place that was looked at before.
    pub base: Base,
}

/// What became of a publication.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It is there, as this version.
    Published(Version),
    /// It is not, and will not be before somebody decides.
    Refused(Held),
    /// Nobody knows: the answer did not come. The target must be looked at.
    Lost,
}

/// What a look at the target found whose answer had been lost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// What we asked it to publish, of the generation that is sealed.
    Ours(Version),
    /// What was there before.
    Base,
    /// Something else.
    Other(Base),
}

/// Why nothing is delivered until somebody decides. All bytes are kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Held {
    /// Somebody else changed the file there; it is this now.
    Conflict(Base),
    /// The target will not have it, whose keeper's words are kept elsewhere.
    Refused,
    /// The power went while it was being written, and the writer had never said that it was good.
    Unfinished,
}

/// In place: whether the target's file may be changed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Entry {
    /// It is to be looked at first: it must be the base.
    #[default]
    None,
    /// It was, or was changed by us since; what we do next is to be on record.
    Looked,
    /// It may be.
    Made,
}

/// What the target has of a generation that is not published yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Upload {
    /// It would survive a crash there, and is what we have.
    landed: Extents,
    sends: BTreeMap<Ticket, Sent>,
    /// After a break: the target must be asked first, and only what is in here can have landed as
    /// it is now.
    resuming: Option<Extents>,
}

impl Upload {
    /// Of which only the target knows what it has.
    pub(super) fn unknown() -> Self {
        Self {
            resuming: Some(Extents::from(0..u64::MAX)),
            ..Self::default()
        }
    }
}

/// On its way.
#[derive(Clone, Debug)]
struct Sent {
    range: Range<u64>,
    /// Written again since it was read from disk.
    stale: Extents,
}

/// A sealed generation.
#[derive(Clone, Debug)]
pub(super) struct Going {
    pub generation: u64,
    pub size: u64,
    /// What the upload must have.
    want: Extents,
    /// What it pays off.
    pub owed: Extents,
    pub altered: bool,
    /// The shortest that the file was cut to since.
    floor: u64,
    pub asked: Option<Asked>,
    /// It is from a record: what lies on our disk may be other by now than what was sealed, and
    /// nobody can tell. It was published as it was sealed, or it is part of what follows it.
    is_remembered: bool,
}

/// The target was asked to publish.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Asked {
    attempt: u64,
    unsure: bool,
}

impl Going {
    /// As it was before a crash, when the file was `size` long: nobody knows whether the target was
    /// asked to publish it, and did.
    pub(super) fn recovered(sealed: Sealed, size: u64, mode: Mode, attempt: u64) -> Self {
        let asked = Some(Asked {
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
    /// What the target must get to have a file of `size` that differs from the base in `owed`.
    fn wanted(self, size: u64, owed: &Extents) -> Extents {
        match self {
            Self::Replace => Extents::from(0..size),
            Self::InPlace => owed.clone(),
        }
    }
}

impl Holding {
    /// Returns the number of the attempt that is under way.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Returns the number of the generation that is being sent.
    pub fn sending(&self) -> u64 {
        let going = self.going.as_ref().map(|going| going.generation);
        going.unwrap_or(self.generation)
    }

    /// Tells whether the target was asked to publish something, and what became of it is not known yet.
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

    /// Takes the next piece to send, in offset order, which does not cross a multiple of `step_bytes`.
    ///
    /// Nothing is sent twice at once, so that the older of two cannot come last.
    pub fn push(&mut self, step_bytes: u64) -> Option<Push> {
        let range = self.pushable().take_aligned(step_bytes)?;
        if self.mode == Mode::InPlace && self.would_gape(range.end) {
            return None;
        }
        let ticket = self.ticket();
        let sent = Sent {
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

    /// Two pieces that make the target's file longer could land in another order, and readers there
    /// would see a hole.
    fn would_gape(&self, end: u64) -> bool {
        let there = self.upload.landed.end().max(self.drawable);
        let mut sends = self.upload.sends.values();
        end > there && sends.any(|s| s.range.end > there)
    }

    /// Tells whether the target is to be [looked at](Self::looked) before anything is changed in place.
    pub fn is_entering(&self) -> bool {
        self.entry == Entry::None && self.may_enter()
    }

    /// Returns the number of the generation that is to be on record as sealed before it
    /// [may be](Self::enter) sent in place.
    pub fn entering(&self) -> Option<u64> {
        let may = self.entry == Entry::Looked && self.may_enter();
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

    /// What the target had when it was looked at. If it is the base, a record is to say so next.
    pub fn looked(&mut self, origin: Origin) {
        if !self.is_entering() {
            return;
        }
        match origin {
            Origin::Same => {
                self.entry = Entry::Looked;
                // No look will find the base again.
                self.unproved = Extents::new();
            }
            Origin::Other(now) => self.hold(Held::Conflict(now)),
        }
        self.check();
    }

    /// It is [on record](Self::entering) that `generation` is sealed and the target's file to be ours:
    /// it may be changed.
    pub fn enter(&mut self, generation: u64) {
        if self.entering() == Some(generation) {
            self.entry = Entry::Made;
        }
    }

    /// In place: the target's file is partly ours, and cannot be drawn from.
    pub fn is_inside(&self) -> bool {
        self.entry != Entry::None
    }

    /// Whether the target may be sent what is to be seen there.
    fn has_entry(&self) -> bool {
        self.mode == Mode::Replace || (self.entry == Entry::Made && self.going.is_some())
    }

    /// The target has said that a push would survive a crash there. What was written here meanwhile
    /// is not what landed.
    pub fn landed(&mut self, ticket: Ticket) {
        if let Some(sent) = self.upload.sends.remove(&ticket) {
            let landed = Extents::from(sent.range).minus(&sent.stale);
            self.upload.landed = self.upload.landed.or(&landed);
        }
    }

    /// A push was not sent: our file is shorter by now, since somebody cut it whom we do not see. That
    /// is to be [glimpsed](Self::glimpsed); zeros in place of what is gone were never in the file.
    pub fn unread(&mut self, ticket: Ticket) {
        self.upload.sends.remove(&ticket);
    }

    /// The conversation with the target broke: all that it had not confirmed is to be sent again, by
    /// a new attempt, once it was asked what it has.
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

    /// Tells whether the target must be asked what it has of the upload. Whoever asks takes the
    /// upload over: from then on the target refuses what older attempts sent.
    pub fn is_resuming(&self) -> bool {
        self.upload.resuming.is_some()
    }

    /// The target has told the new attempt what it has of the upload: `same` of it equals what was
    /// sent last, or, where nobody knows that any more, what is on our disk.
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

    /// Seals what was written until now, so that it is published though somebody still writes, and
    /// returns its number. It may have bytes in it that are written while it is sent.
    ///
    /// Who begins to write after that, where nobody did, before all of it was read to be sent, takes
    /// the seal off: else the target would show a mixture of two generations that were whole.
    ///
    /// Where a writer has a descriptor, what they did must have been [glimpsed](Self::glimpsed) first.
    ///
    /// `None`: nothing is owed, or it is not whole, or nobody writes any more and it is to be scanned,
    /// or the generation before it is not there yet.
    ///
    /// In place nothing else seals, so it is done whenever the target is to have what was written.
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
        if self.entry == Entry::Made {
            self.entry = Entry::Looked;
        }
        Some(self.going.insert(going).generation)
    }

    /// Tells whether the target has all of a generation that is ended, and could be asked to publish
    /// it. What is published must be on record here first, or a power cut could take back here what
    /// everybody sees there.
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

    /// Seals the generation, if that was not done, and returns what to ask the target for; `None`
    /// unless it [is ready](Self::is_ready).
    pub fn publish(&mut self) -> Option<Publication> {
        if !self.is_ready() || (self.going.is_none() && self.seal().is_none()) {
            return None;
        }
        let going = self.going.as_mut()?;
        going.asked = Some(Asked {
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

    /// What became of the publication that `attempt` asked for.
    pub fn answered(&mut self, attempt: u64, answer: Answer) {
        let asked = self.going.as_ref().and_then(|g| g.asked);
        if asked.is_none_or(|a| a.attempt != attempt) {
            return;
        }
        match answer {
            Answer::Published(version) => self.delivered(version),
            Answer::Refused(why) => self.hold(why),
            Answer::Lost => self.lost(),
        }
        self.check();
    }

    /// Tells whether the target must be looked at, since the answer to a publication was lost. Not
    /// before the upload was taken over, or the target could still publish it after the look.
    pub fn is_unsure(&self) -> bool {
        let asked = self.going.as_ref().and_then(|g| g.asked);
        asked.is_some_and(|a| a.unsure) && !self.is_resuming()
    }

    /// What a look at the target found.
    pub fn found(&mut self, found: Found) {
        if !self.is_unsure() {
            return;
        }
        match found {
            Found::Ours(version) => self.delivered(version),
            // What was sent since the record may have been sent of what was written after the seal.
            Found::Base if !self.is_fixed() => self.unseal(),
            Found::Base => {
                if let Some(going) = &mut self.going {
                    going.asked = None;
                }
                self.mend();
            }
            Found::Other(now) => self.hold(Held::Conflict(now)),
        }
        self.check();
    }

    /// Delivers nothing more until somebody decides. The first reason stays: whoever decides on it
    /// is told the next when it comes up again.
    pub fn hold(&mut self, why: Held) {
        self.unseal();
        self.held.get_or_insert(why);
    }

    /// Somebody decided: it is delivered again, and if they say so in place of what is there now.
    /// What was sent before counts no more.
    ///
    /// Over something else only a file goes that is here as a whole; else it stays held.
    pub fn release(&mut self, over: Option<Base>) {
        if let Some(base) = over {
            if !self.is_whole() {
                return;
            }
            self.base = base;
            self.entry = Entry::None;
            // Nothing of it is as it is there.
            self.drawable = 0;
            if self.mode == Mode::InPlace {
                (self.owed, self.altered) = (self.present.clone(), true);
            }
        }
        self.held = None;
        self.attempt += 1;
        self.upload = Upload::unknown();
        self.check();
    }

    fn delivered(&mut self, version: Version) {
        if let Some(going) = self.going.take() {
            if self.is_blind() {
                // What is around it there is as little known as before, and so is what others do to it.
                self.present = self.owed.clone();
                self.drawable = self.size;
            } else {
                self.base = Base::Seen(version);
                self.drawable = going.size.min(going.floor);
            }
            self.upload = Upload::default();
            self.entry = Entry::None;
            // So that each publication has its own: what is asked or answered of this one twice is
            // not taken for the next.
            self.attempt += 1;
        }
    }

    /// A sealed generation of which the target lost something would be sent with what is written by
    /// then: it is part of that.
    fn mend(&mut self) {
        if !self.lacking().is_empty() {
            self.unseal();
        }
    }

    /// Lets a sealed generation be part of what is written after it.
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

    /// A sealed generation that lost bytes before they were sent can no longer be published alone.
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

    /// Somebody begins to write where nobody did. What of a sealed generation was not read yet to be
    /// sent would be sent with what they write: then it is part of that.
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

    /// `range` is other by now than what was sent of it, unless that was sealed.
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

    /// The upload is of a sealed generation: what is written now does not concern it.
    fn is_fixed(&self) -> bool {
        self.going.as_ref().is_some_and(|g| !g.is_remembered)
    }

    /// What the upload must still get.
    fn lacking(&self) -> Extents {
        let want = match &self.going {
            Some(going) if going.asked.is_some() => return Extents::new(),
            Some(going) => going.want.clone(),
            None => self.wanted(),
        };
        want.minus(&self.upload.landed)
    }

    /// What an upload of the file as it is now must have.
    fn wanted(&self) -> Extents {
        if self.is_altered() {
            self.mode.wanted(self.size, &self.owed)
        } else {
            Extents::new()
        }
    }

    /// Something was written that no seal holds.
    fn is_altered(&self) -> bool {
        !self.owed.is_empty() || self.altered
    }
}
