//! Writes: from a program to the local disk.

use super::{Holding, Ticket};
use crate::Extents;
use std::{collections::BTreeMap, ops::Range};

/// How much a writer reports of its writes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Notices {
    /// Each write, with its range, before it happens.
    Each,
    /// No write: the writer has a descriptor. A scan finds the changes.
    None,
}

/// Reason why a writer may not open the file now.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A descriptor reaches every byte, and some are missing locally.
    #[error("it is not here as a whole yet")]
    NotWhole,
    /// After a crash, the bytes on disk must be scanned before they change again.
    #[error("it was being written when this node ended, and is still being looked at")]
    NotScanned,
}

/// Result of a scan.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scan {
    /// Length of the file.
    pub size: u64,
    /// Ranges that differ from the last known bytes; after a crash, from the record.
    pub changed: Extents,
    /// Ranges sent for the current generation that have changed since.
    pub stale: Extents,
}

/// Count of the possible writers, by what they report.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers(BTreeMap<Notices, u32>);

impl Writers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lowest level of notice among the writers.
    pub(super) fn least(&self) -> Option<Notices> {
        self.0.last_key_value().map(|(&notices, _)| notices)
    }

    fn add(&mut self, notices: Notices) {
        *self.0.entry(notices).or_default() += 1;
    }

    fn remove(&mut self, notices: Notices) {
        if let Some(count) = self.0.get_mut(&notices) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&notices);
            }
        }
    }
}

impl Holding {
    /// Admits a writer. The caller must persist this before the writer is answered, so that the
    /// file is scanned after a crash.
    pub fn open(&mut self, notices: Notices) -> Result<(), Refused> {
        if self.is_doubtful {
            return Err(Refused::NotScanned);
        }
        if notices == Notices::None {
            if !self.is_whole() {
                return Err(Refused::NotWhole);
            }
            self.unseen = Some(Notices::None);
        }
        if self.writers.is_empty() {
            self.going_opened();
        }
        self.writers.add(notices);
        self.scan = None; // What it has seen so far may change again.
        Ok(())
    }

    /// Removes a writer. The kernel reports a closed descriptor; other writers report themselves.
    pub fn close(&mut self, notices: Notices) {
        self.writers.remove(notices);
        self.check();
    }

    /// Returns the lowest level of notice among the writers; `None` if no writer is left.
    pub fn writers(&self) -> Option<Notices> {
        self.writers.least()
    }

    /// Begins a write of `range`: bytes in flight for that range are stale.
    pub fn grant(&mut self, range: Range<u64>) -> Ticket {
        let ticket = self.ticket();
        self.overtake(range.clone());
        self.staled(range.clone());
        self.grants.insert(ticket, range);
        ticket
    }

    /// Ends a write: its range is on disk and pending, up to `size`, the length of the file now.
    ///
    /// A write beyond the end makes the file longer; the zeros in between are pending too.
    pub fn written(&mut self, ticket: Ticket, size: u64) {
        if let Some(range) = self.grants.get(&ticket).cloned() {
            self.broken(ticket, &Extents::from(range.start..range.end.min(size)));
        }
    }

    /// Ends a write whose writer died before it reported the result. Present bytes of the range are
    /// old or new, as on any disk, and pending; absent ranges stay absent.
    pub fn abandoned(&mut self, ticket: Ticket) {
        let here = self.present.clone();
        self.broken(ticket, &here);
    }

    /// Ends a write whose writer died. Within its range `landed` may have changed; other bytes are
    /// unchanged.
    pub(super) fn broken(&mut self, ticket: Ticket, landed: &Extents) {
        let Some(range) = self.grants.remove(&ticket) else {
            return;
        };
        for part in landed.within(range) {
            match self.is_blind() {
                true => self.wrote_blind(part),
                false => self.wrote(part.start.min(self.size)..part.end),
            }
        }
        self.check();
    }

    /// Bytes before the range are the target's, or zeros; the holding cannot tell which.
    fn wrote_blind(&mut self, range: Range<u64>) {
        self.wrote(range);
        self.drawable = self.size;
    }

    fn wrote(&mut self, range: Range<u64>) {
        // Repeated, since a fetch or a push may have begun after the grant.
        self.overtake(range.clone());
        self.staled(range.clone());
        self.size = self.size.max(range.end);
        self.present.insert(range.clone());
        self.owed.insert(range);
    }

    /// Notes that one system call, under the lock, set the file's length to `size`.
    pub fn resized(&mut self, size: u64) {
        let old = self.size;
        if size < old {
            let gone = size..u64::MAX;
            self.overtake(gone.clone());
            self.staled(gone.clone());
            self.present.remove(gone.clone());
            self.owed.remove(gone);
            self.drawable = self.drawable.min(size);
            self.size = size;
            self.altered = true;
            self.going_cut(size);
        } else if size > old {
            self.wrote(old..size);
        }
        self.check();
    }

    /// Tells whether a writer wrote without reporting.
    pub fn is_unseen(&self) -> bool {
        self.unseen.is_some()
    }

    /// Tells whether the bytes on disk are unknown since a crash. They must be scanned before the
    /// file is recorded, fetched or written.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Begins a scan for unreported writes. `None` while a writer may still write, or if there were
    /// no such writes.
    pub fn scan(&mut self) -> Option<Ticket> {
        if self.unseen.is_none() || !self.is_still() {
            return None;
        }
        let ticket = self.ticket();
        self.scan = Some(ticket);
        Some(ticket)
    }

    /// Ends a scan that no writer interrupted: changed ranges are pending now.
    ///
    /// After a crash of the node, uncommitted writes of reporting writers are undone. Their ranges
    /// are fetched again, and growth is cut off. Pending ranges, and ranges that the target never
    /// had, cannot be fetched: there the writes count, as on any disk.
    pub fn scanned(&mut self, ticket: Ticket, found: &Scan) {
        if self.scan != Some(ticket) {
            return;
        }
        self.scan = None;
        self.is_doubtful = false;
        if self.unseen.take() == Some(Notices::None) {
            return self.glimpsed(found);
        }
        self.resized(self.size.min(found.size));
        let sealed = self.going.as_ref().map(|g| g.owed.clone());
        let mut ours = self.owed.or(&sealed.unwrap_or_default());
        // Nor beyond the target's end, where zeros are as good as written.
        ours.insert(self.drawable..self.size);
        let undone = found.changed.minus(&ours);
        self.present = self.present.minus(&undone);
        undone.iter().for_each(|r| self.staled(r));
        self.glimpsed(&Scan {
            size: self.size,
            changed: found.changed.and(&ours).and(&self.present),
            stale: found.stale.clone(),
        });
    }

    /// Notes the writes of descriptors so far, while their writers may continue. The ranges are
    /// pending and may be sent, but a scan is still due.
    pub fn glimpsed(&mut self, found: &Scan) {
        self.resized(found.size);
        found.stale.iter().for_each(|r| self.staled(r));
        for range in found
            .changed
            .within(0..self.size)
            .collect::<Extents>()
            .iter()
        {
            self.wrote(range);
        }
        self.check();
    }
}
