//! From the origin to our disk.

use super::{Base, Held, Holding, Mode, Ticket};
use crate::Extents;
use std::ops::Range;

/// What to ask the origin for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fetch {
    /// Told with each part that arrives, and at the end.
    pub ticket: Ticket,
    /// What nobody else is fetching and nobody has written. Nothing: it is here, and the origin
    /// is to be looked at.
    pub wanted: Extents,
}

/// What the origin was at the end of a fetch, or later, beside the base.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The same file: what arrived is of the base.
    Same,
    /// Another, or it cannot be told: what arrived may be a mixture of two.
    Other(Base),
}

/// A fetch under way.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Still to come, and nobody has written there since.
    pub awaited: Extents,
    /// On our disk, and not yet known to be of the base.
    pub arrived: Extents,
}

impl Holding {
    /// Begins to fetch what is missing of `ranges` and is not on its way already.
    ///
    /// `None`: there is nothing to ask for, or not before the target has what we are changing there
    /// in place. A reader of `ranges` waits until they are
    /// [present](Self::present), or until the fetches that are under way ended without them.
    pub fn fetch(&mut self, ranges: impl Into<Extents>) -> Option<Fetch> {
        // What is on disk must be looked at before it changes; of what we are changing in place
        // nobody could say whether it was the base.
        if self.is_doubtful || self.is_inside() {
            return None;
        }
        let ranges = ranges.into();
        let drawable = ranges.and(&Extents::from(0..self.drawable));
        let mut wanted = drawable.minus(&self.present.or(&self.unproved));
        for other in self.fetches.values() {
            wanted = wanted.minus(&other.awaited).minus(&other.arrived);
        }
        self.grants.values().for_each(|r| wanted.remove(r.clone()));
        // All may have come, in fetches that broke off: then only the look is missing.
        let unproved = !self.unproved.and(&ranges).is_empty() && self.fetches.is_empty();
        if wanted.is_empty() && !unproved {
            return None;
        }
        let ticket = self.ticket();
        let asked = Asked {
            awaited: wanted.clone(),
            arrived: Extents::new(),
        };
        self.fetches.insert(ticket, asked);
        self.check();
        Some(Fetch { ticket, wanted })
    }

    /// Tells whether something of it is on its way from the target.
    pub fn is_fetching(&self) -> bool {
        !self.fetches.is_empty()
    }

    /// Tells whether it goes into a file at the target that nobody has looked at: how long that is, and
    /// what lies between what was written, is not known here.
    pub fn is_blind(&self) -> bool {
        self.mode == Mode::InPlace && self.base == Base::Any
    }

    /// The target was looked at, where nobody had: it has `base`, of `size` bytes. What was not written
    /// may be drawn from there; behind its end it is zeros.
    pub fn seen(&mut self, base: Base, size: u64) {
        // What is sealed is as long as it was then, and goes in without regard to what is there.
        if !self.is_blind() || self.is_inside() || self.going.is_some() {
            return;
        }
        self.base = base;
        let zeros = size..self.size;
        self.size = self.size.max(size);
        self.drawable = size;
        if !zeros.is_empty() {
            self.present.insert(zeros);
        }
        self.check();
    }

    /// Returns what of `range`, which has come, is to be put on disk now.
    ///
    /// What was written here since it was asked for is newer, and stays.
    pub fn arrived(&mut self, ticket: Ticket, range: Range<u64>) -> Extents {
        let Some(asked) = self.fetches.get_mut(&ticket) else {
            return Extents::new();
        };
        let part: Extents = asked.awaited.within(range).collect();
        asked.awaited = asked.awaited.minus(&part);
        asked.arrived = asked.arrived.or(&part);
        self.check();
        part
    }

    /// What had [arrived](Self::arrived) could not be put on disk.
    pub fn missed(&mut self, ticket: Ticket, range: Range<u64>) {
        if let Some(asked) = self.fetches.get_mut(&ticket) {
            asked.arrived.remove(range);
        }
    }

    /// Ends a fetch after the origin was looked at again: readers may see what arrived, or it is as
    /// if it never had. What fetches left behind that broke off is proved or not by the same look.
    pub fn fetched(&mut self, ticket: Ticket, origin: Origin) {
        let Some(asked) = self.fetches.remove(&ticket) else {
            return;
        };
        let left = std::mem::take(&mut self.unproved);
        match origin {
            Origin::Same => self.present = self.present.or(&asked.arrived).or(&left),
            // What is owed lies over a file that can no longer be had as a whole.
            Origin::Other(now) if self.owes() && !self.is_whole() => {
                self.hold(Held::Conflict(now));
            }
            Origin::Other(_) => {}
        }
        self.check();
    }

    /// Ends a fetch that broke off: what arrived need not come again if the origin is still the base
    /// when the next one ends.
    pub fn broke_off(&mut self, ticket: Ticket) {
        if let Some(asked) = self.fetches.remove(&ticket) {
            self.unproved = self.unproved.or(&asked.arrived);
        }
        self.check();
    }

    /// Takes `range` out of all that is being fetched: what comes there is older.
    pub(super) fn overtake(&mut self, range: Range<u64>) {
        self.unproved.remove(range.clone());
        for fetch in self.fetches.values_mut() {
            fetch.awaited.remove(range.clone());
            fetch.arrived.remove(range.clone());
        }
    }
}
