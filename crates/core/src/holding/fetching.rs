//! Fetches: from the origin to the local disk.

use super::{Base, Held, Holding, Mode, Ticket};
use crate::Extents;
use std::ops::Range;

/// Ranges to ask the origin for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fetch {
    /// Ticket to report with for each range that arrives, and at the end.
    pub ticket: Ticket,
    /// Ranges that no other fetch is fetching and no writer has written. If empty, all bytes are
    /// local and only the origin must be revalidated.
    pub wanted: Extents,
}

/// State of the origin at the end of a fetch, compared with the base.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OriginState {
    /// The base: bytes that arrived are of the base.
    Same,
    /// Another file, or unknown: bytes that arrived may be a mixture of two.
    Other(Base),
}

/// Fetch in flight.
#[derive(Clone, Debug)]
pub(super) struct FetchInFlight {
    /// Ranges that have not arrived and were not written since.
    pub awaited: Extents,
    /// Ranges on the local disk that are not yet proved to be of the base.
    pub arrived: Extents,
}

impl Holding {
    /// Begins to fetch the ranges of `ranges` that are neither present nor in flight.
    ///
    /// `None`: there is nothing to ask for, or a delivery in place is unfinished. A reader of
    /// `ranges` waits until they are [present](Self::present), or until the fetches in flight ended
    /// without them.
    pub fn fetch(&mut self, ranges: impl Into<Extents>) -> Option<Fetch> {
        // Bytes on disk must be scanned before they change. While we change the target in place,
        // its bytes cannot be proved to be of the base.
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
        // If all ranges arrived in fetches that broke off, only the revalidation is missing.
        let unproved = !self.unproved.and(&ranges).is_empty() && self.fetches.is_empty();
        if wanted.is_empty() && !unproved {
            return None;
        }
        let ticket = self.ticket();
        let asked = FetchInFlight {
            awaited: wanted.clone(),
            arrived: Extents::new(),
        };
        self.fetches.insert(ticket, asked);
        self.check();
        Some(Fetch { ticket, wanted })
    }

    /// Tells whether a fetch is in flight.
    pub fn is_fetching(&self) -> bool {
        !self.fetches.is_empty()
    }

    /// Tells whether the holding is for a file that was never checked at the target. Its length and
    /// the bytes between the written ranges are unknown here.
    pub fn is_blind(&self) -> bool {
        self.mode == Mode::InPlace && self.base == Base::Any
    }

    /// Notes that a blind holding's target was checked: it has `base`, of `size` bytes. Unwritten
    /// ranges may be fetched from there; beyond its end they are zeros.
    pub fn seen(&mut self, base: Base, size: u64) {
        // A sealed generation keeps its length, and is delivered without regard to the target's
        // file.
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

    /// Returns the part of an arrived `range` that must be written to disk now.
    ///
    /// Ranges written locally since the request are newer, and stay.
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

    /// Notes that a range which [arrived](Self::arrived) could not be written to disk.
    pub fn missed(&mut self, ticket: Ticket, range: Range<u64>) {
        if let Some(asked) = self.fetches.get_mut(&ticket) {
            asked.arrived.remove(range);
        }
    }

    /// Ends a fetch after the origin was revalidated. Readers may see the bytes if the origin is
    /// the base; else they are discarded. The ranges of fetches that broke off share that fate.
    pub fn fetched(&mut self, ticket: Ticket, origin: OriginState) {
        let Some(asked) = self.fetches.remove(&ticket) else {
            return;
        };
        let left = std::mem::take(&mut self.unproved);
        match origin {
            OriginState::Same => self.present = self.present.or(&asked.arrived).or(&left),
            // Pending bytes lie over a file that can no longer be fetched as a whole.
            OriginState::Other(now) if self.owes() && !self.is_whole() => {
                self.hold(Held::Conflict(now));
            }
            OriginState::Other(_) => {}
        }
        self.check();
    }

    /// Ends a fetch that broke off. Its ranges need not be fetched again if the next revalidation
    /// finds the base.
    pub fn broke_off(&mut self, ticket: Ticket) {
        if let Some(asked) = self.fetches.remove(&ticket) {
            self.unproved = self.unproved.or(&asked.arrived);
        }
        self.check();
    }

    /// Takes `range` out of all fetches: bytes that arrive there later are stale.
    pub(super) fn overtake(&mut self, range: Range<u64>) {
        self.unproved.remove(range.clone());
        for fetch in self.fetches.values_mut() {
            fetch.awaited.remove(range.clone());
            fetch.arrived.remove(range.clone());
        }
    }
}
