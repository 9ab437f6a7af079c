//! What survives us.
//!
//! A record says what was on disk when the file was last synced: it is taken first, then the file is
//! synced, then the record is written, then whoever waited is told. In another order it could say
//! more than the disk has.

use super::{Base, Entry, Going, Held, Holding, Mode, Notices, Upload, writing::Writers};
use crate::Extents;
use std::collections::BTreeMap;

/// What is written of a holding, in one transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// How it goes to its target.
    pub mode: Mode,
    /// What the target had.
    pub base: Base,
    /// So much of the base's beginning is not cut away.
    pub drawable: u64,
    /// The length.
    pub size: u64,
    /// What a reader may see.
    pub present: Extents,
    /// What the target lacks.
    pub owed: Extents,
    /// The target differs though not by a byte that is owed.
    pub altered: bool,
    /// The number of the generation that is being written.
    pub generation: u64,
    /// Somebody may write without our seeing it, or has not ended.
    pub open: Option<Notices>,
    /// The last generation of which somebody said that it is good as it is.
    pub committed: u64,
    /// What the target may have been asked to publish.
    pub sealed: Option<Sealed>,
    /// In place: the target's file may be partly ours, so that it is no longer the base.
    pub inside: bool,
    /// Why nothing is delivered.
    pub held: Option<Held>,
}

/// A generation that was fixed, on record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sealed {
    /// Its number.
    pub generation: u64,
    /// The length of the file.
    pub size: u64,
    /// What of it the target lacks.
    pub owed: Extents,
    /// It differs though not by a byte that is owed.
    pub altered: bool,
}

/// What ended us, as a record tells: one of an earlier boot was followed by a power cut, however often
/// we began since.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// Only we died: the kernel has all that was written, and writers may live on.
    Kill,
    /// All died, and what was not synced may or may not be there.
    PowerCut,
}

impl Record {
    /// The same, but that somebody may write whose writes will not all be on record. Says nothing
    /// of bytes, so it needs no sync before it. Not of a record of an earlier boot, or nobody would
    /// know any more that there was a power cut: there what was found after it is recorded first.
    pub fn opened(mut self, notices: Notices) -> Self {
        self.open = self.open.max(Some(notices));
        self
    }
}

impl Holding {
    /// Returns what to write once the file was synced. `committed` is the last generation of which
    /// somebody said, now or before, that it is good as it is.
    pub fn record(&self, committed: u64) -> Record {
        Record {
            mode: self.mode,
            base: self.base.clone(),
            drawable: self.drawable,
            size: self.size,
            present: self.present.clone(),
            owed: self.owed.clone(),
            altered: self.altered,
            generation: self.generation,
            open: self.unseen.max(self.writers.least()),
            committed,
            sealed: self.going.as_ref().map(Going::sealed),
            inside: self.is_inside(),
            held: self.held.clone(),
        }
    }

    /// Goes on from a record. `attempts` is greater than any attempt before, since each start of ours
    /// counts more than all attempts of one.
    ///
    /// Where `open` was on record, the file is to be [scanned](Self::scan): before anything else, but
    /// for writers with a descriptor who are still there.
    pub fn recover(record: Record, after: After, attempts: u64) -> Self {
        let mut held = record.held;
        let torn = record.open == Some(Notices::None) && record.committed < record.generation;
        if after == After::PowerCut && torn {
            held = Some(Held::Unfinished);
        }
        // Only writers with a descriptor can have outlived us, and they go on as before.
        let is_doubtful = match record.open {
            Some(Notices::Each) => true,
            Some(Notices::None) => after == After::PowerCut,
            None => false,
        };
        let going = record
            .sealed
            .map(|s| Going::recovered(s, record.size, record.mode, attempts));
        Self {
            mode: record.mode,
            base: record.base,
            drawable: record.drawable,
            size: record.size,
            present: record.present,
            fetches: BTreeMap::new(),
            unproved: Extents::new(),
            grants: BTreeMap::new(),
            tickets: 0,
            writers: Writers::default(),
            unseen: record.open,
            scan: None,
            is_doubtful,
            owed: record.owed,
            altered: record.altered,
            generation: record.generation,
            attempt: attempts,
            upload: Upload::unknown(),
            going,
            entry: match record.inside {
                true => Entry::Looked,
                false => Entry::None,
            },
            held,
        }
    }
}
