//! Persistence of a holding: its record, and recovery from it.
//!
//! A record says which bytes were on disk at the last sync. The order is: take the record, sync the
//! file, write the record, answer the waiting clients. In another order the record could claim more
//! than the disk has.

use super::{
    Base, Going, Held, Holding, InPlaceState, Mode, Notices, UploadProgress, writing::Writers,
};
use crate::Extents;
use std::collections::BTreeMap;

/// State of a holding that is written in one transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Way in which the file is delivered.
    pub mode: Mode,
    /// Version on which deliveries are conditional.
    pub base: Base,
    /// Length of the base's beginning that was not cut away.
    pub drawable: u64,
    /// Length of the file.
    pub size: u64,
    /// Ranges that a reader may see.
    pub present: Extents,
    /// Ranges that the target lacks.
    pub owed: Extents,
    /// The target differs by more than pending bytes.
    pub altered: bool,
    /// Number of the generation that is being written.
    pub generation: u64,
    /// Writers that may be writing unreported or have not closed. `None`: there are none.
    pub open: Option<Notices>,
    /// Last generation that a writer committed.
    pub committed: u64,
    /// Generation that the target may have been asked to publish.
    pub sealed: Option<Sealed>,
    /// In place: the target's file may be partly ours, and is no longer the base.
    pub inside: bool,
    /// Reason why the holding is on hold, if it is.
    pub held: Option<Held>,
}

/// Sealed generation, as persisted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sealed {
    /// Number of the generation.
    pub generation: u64,
    /// Length of the file.
    pub size: u64,
    /// Ranges of the generation that the target lacks.
    pub owed: Extents,
    /// The target differs by more than pending bytes.
    pub altered: bool,
}

/// Event that ended the node before this start. A record of an earlier boot means a power cut,
/// however often the node started since.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// Only the node ended: the kernel has all written bytes, and writers may live on.
    Kill,
    /// The machine ended, and bytes that were not synced may be lost.
    PowerCut,
}

impl Record {
    /// Returns the record with writers added whose writes may not all be persisted. No sync is
    /// needed, since the ranges are unchanged. A record of an earlier boot must be rewritten first,
    /// or the power cut would be forgotten.
    pub fn opened(mut self, notices: Notices) -> Self {
        self.open = self.open.max(Some(notices));
        self
    }
}

impl Holding {
    /// Returns the record to write after the next sync. `committed` is the last generation that a
    /// writer has committed.
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

    /// Restores a holding from its record. `attempts` is greater than any earlier attempt, since
    /// each node start adds more than all attempts of one run.
    ///
    /// If the record has `open`, the file must be [scanned](Self::scan) first. Only writers with a
    /// descriptor may go on before that.
    pub fn recover(record: Record, after: After, attempts: u64) -> Self {
        let mut held = record.held;
        let torn = record.open == Some(Notices::None) && record.committed < record.generation;
        if after == After::PowerCut && torn {
            held = Some(Held::Unfinished);
        }
        // Only writers with a descriptor can outlive the node, and they continue as before.
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
            upload: UploadProgress::unknown(),
            going,
            entry: match record.inside {
                true => InPlaceState::Looked,
                false => InPlaceState::None,
            },
            held,
        }
    }
}
