//! From a program to our disk.

use super::{Holding, Ticket};
use crate::Extents;
use std::{collections::BTreeMap, ops::Range};

/// What we learn of a writer's writes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Notices {
    /// Each, with its range, before it happens.
    Each,
    /// None: the writer has a descriptor. What changed is found by a scan.
    None,
}

/// Why somebody may not write here now.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A descriptor reaches every byte, and some are not here.
    #[error("it is not here as a whole yet")]
    NotWhole,
    /// After a crash, what is on disk must be looked at before it changes again.
    #[error("it was being written when this node ended, and is still being looked at")]
    NotScanned,
}

/// What a scan found, beside what was known.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scan {
    /// The length of the file.
    pub size: u64,
    /// What differs from what we last knew to be there; after a crash, from what the record says.
    pub changed: Extents,
    /// Of what the target has got for the generation under way, what is other by now.
    pub stale: Extents,
}

/// Who may be writing, by what we learn of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers(BTreeMap<Notices, u32>);

impl Writers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The least that we learn of any of them.
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
    /// Lets somebody write. It must be on record before they learn of it, so that after a crash the
    /// file is scanned.
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

    /// A writer is gone. Of descriptors the kernel knows it; others say so.
    pub fn close(&mut self, notices: Notices) {
        self.writers.remove(notices);
        self.check();
    }

    /// Tells who may be writing.
    pub fn writers(&self) -> Option<Notices> {
        self.writers.least()
    }

    /// Lets a write of `range` begin: whatever is being fetched there comes too late.
    pub fn grant(&mut self, range: Range<u64>) -> Ticket {
        let ticket = self.ticket();
        self.overtake(range.clone());
        self.staled(range.clone());
        self.grants.insert(ticket, range);
        ticket
    }

    /// Ends a write: all of its range is on our disk, and owed, but for what was cut away since:
    /// the file has `size` bytes now.
    ///
    /// A write beyond the end makes the file longer, and what lies between is zeros, ours too.
    pub fn written(&mut self, ticket: Ticket, size: u64) {
        if let Some(range) = self.grants.get(&ticket).cloned() {
            self.broken(ticket, &Extents::from(range.start..range.end.min(size)));
        }
    }

    /// Ends a write whose writer died before they said how it went: what was here of its range is old or
    /// new, as on any disk, and owed; what was not is not here now either, whatever came of it.
    pub fn abandoned(&mut self, ticket: Ticket) {
        let here = self.present.clone();
        self.broken(ticket, &here);
    }

    /// Ends a write whose writer died: of its range, `landed` may have changed, and the rest is as
    /// it was before.
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

    /// What lies between is the target's, or zeros, and nobody here knows which.
    fn wrote_blind(&mut self, range: Range<u64>) {
        self.wrote(range);
        self.drawable = self.size;
    }

    fn wrote(&mut self, range: Range<u64>) {
        // Once more, since a fetch or a push may have begun after the grant.
        self.overtake(range.clone());
        self.staled(range.clone());
        self.size = self.size.max(range.end);
        self.present.insert(range.clone());
        self.owed.insert(range);
    }

    /// The file was cut or stretched to `size`, by one call to the kernel, under the lock.
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

    /// Tells whether somebody wrote whose writes we have not seen.
    pub fn is_unseen(&self) -> bool {
        self.unseen.is_some()
    }

    /// Tells whether what is on disk is not known since a crash: it must be scanned before it is
    /// recorded, fetched or written.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Begins to look for what writers did whom we do not see. `None` while one of them may still
    /// write, or if there were none.
    pub fn scan(&mut self) -> Option<Ticket> {
        if self.unseen.is_none() || !self.is_still() {
            return None;
        }
        let ticket = self.ticket();
        self.scan = Some(ticket);
        Some(ticket)
    }

    /// Ends a scan that nobody broke: what changed is owed now.
    ///
    /// After a crash of ours, what a writer of whom each write is told had not committed is undone:
    /// it is fetched again, and what the file is longer by is to be cut off. Where it lies over
    /// bytes that are owed, or that the target never had, there is nothing to fetch: there it counts,
    /// as on any disk.
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
        // Nor behind the end of what the target has, where zeros are as good as written.
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

    /// What writers with a descriptor did until now, while they may go on: it is owed, and may be
    /// sent, but the file is still to be scanned.
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
