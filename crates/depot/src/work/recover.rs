//! Restores entries and operations from the records.

use crate::{
    Error, Result, Tag,
    disk::rows::Row,
    id::Id,
    inner::Inner,
    plan::{Unreadable, entry::Entry, order::DeedRow},
    work::checksums::leaf_of,
};
use godwit_core::{
    Url,
    holding::{After, Held as Why, Holding},
};
use std::{io, sync::Arc, time::Instant};

impl Inner {
    /// Restores entries and operations from their rows, and removes files without a row.
    pub(crate) fn recover(&self, rows: Vec<Row>, deeds: Vec<DeedRow>, start: u64) -> Result<()> {
        let attempts = start << 32;
        // Also rows that cannot be read: their bytes stay.
        let mut known: Vec<Id> = rows.iter().map(|row| row.id).collect();
        known.sort_unstable();
        let (mut lost, mut merging) = (Vec::new(), Vec::new());
        let mut plan = self.plan();
        for row in rows {
            let Ok(url) = Url::from_argument(&row.url) else {
                tracing::error!(id = %row.id, url = row.url, "a holding has a name that cannot be read; it is left alone");
                let reserved = self.disk.taken(row.id);
                self.room.count(reserved);
                plan.unreadable
                    .entries
                    .insert(row.id, Unreadable::of(&row, reserved));
                continue;
            };
            let after = match row.boot == self.boot {
                true => After::Kill,
                false => After::PowerCut,
            };
            let machine = Holding::recover(row.record.clone(), after, attempts);
            let (size, mut chains) = self.disk.kept_leaves(row.id);
            chains.retain(|(leaf, _)| {
                let range = leaf_of(*leaf, row.record.size);
                // They are written before the row: the last leaf may have another length.
                range == leaf_of(*leaf, size) && row.record.present.contains(&range)
            });
            let entry = Arc::new(row.entry(url, machine, &chains));
            if let Err(error) = self.settle(&entry, &row) {
                // A damaged file does not keep the others from being delivered.
                tracing::error!(url = %entry.url(), id = %row.id, %error, "what was kept of it cannot be read");
                let mut state = entry.lock();
                match state.machine.owes() {
                    true => {
                        state.machine.hold(Why::Refused);
                        state.delivery.reason = error.to_string();
                    }
                    false => lost.push(Arc::clone(&entry)),
                }
            }
            if entry.lock().machine.is_blind() && !entry.lock().machine.owes() {
                lost.push(Arc::clone(&entry)); // Other programs may have changed it since.
            }
            let mut state = entry.lock();
            if state.machine.held() == Some(&Why::Unfinished) && state.delivery.reason.is_empty() {
                state.delivery.reason = UNFINISHED.into();
            }
            drop(state);
            if let Some(under) = row.merges_into {
                merging.push((entry, under));
                continue;
            }
            plan.keep(&entry);
            if entry.lock().machine.owes() {
                plan.pending.insert(entry.number(), Arc::clone(&entry));
            }
        }
        plan.restore(deeds, start);
        plan.look_for_directories_soon(Instant::now());
        drop(plan);
        for (beside, under) in merging {
            let under = self.plan().by_id.get(&under).cloned();
            if let Err(error) = self.merge_again(&beside, under) {
                tracing::error!(url = %beside.url(), %error, "what was on its way into a file cannot be put there");
            }
        }
        // Their origins have these files.
        for entry in lost {
            if let Err(error) = self.unlink(&entry, entry.lock()) {
                tracing::warn!(url = %entry.url(), %error, "what was fetched and cannot be read stays on the disk");
            }
        }
        let mut strangers = Vec::new();
        self.disk.each(|id| {
            if known.binary_search(&id).is_err() {
                strangers.push(id);
            }
        })?;
        strangers
            .into_iter()
            .try_for_each(|id| self.disk.remove(id))
    }

    /// Gives entries their persisted tags.
    pub(crate) fn retag(&self, tags: Vec<(Id, Tag)>) {
        let plan = self.plan();
        for (id, tag) in tags {
            if let Some(entry) = plan.by_id.get(&id) {
                if let Some(expires) = tag.expires {
                    self.chores.falls(expires, id);
                }
                entry.lock().users.tags.push(tag);
            }
        }
    }

    /// Brings the file to the length of its row, or looks for its writers.
    fn settle(&self, entry: &Arc<Entry>, row: &Row) -> Result<()> {
        let taken = self.disk.taken(entry.id);
        self.room.count(taken);
        let mut state = entry.lock();
        state.bytes.reserved = taken;
        if row.record.open.is_none() {
            let file = self.disk.writer(entry.id)?;
            let size = file
                .metadata()
                .map_err(Error::disk(self.disk.path(entry.id)))?;
            if size.len() < row.record.size {
                let cause = io::Error::new(io::ErrorKind::UnexpectedEof, CUT_SHORT);
                return Err(Error::disk(self.disk.path(entry.id))(cause));
            }
            if size.len() > row.record.size {
                self.disk.resize(entry.id, &file, row.record.size)?;
            }
            return Ok(());
        }
        let is_doubtful = state.machine.is_doubtful();
        drop(state);
        match is_doubtful {
            true => self.rescan(entry, || true).map(drop),
            // Its writers may still have it open.
            false => {
                self.watch(entry);
                Ok(())
            }
        }
    }
}

const CUT_SHORT: &str = "shorter than when it was last kept; the disk lost bytes of it";

/// The reason of a hold: its writer had a descriptor when the power went.
pub(crate) const UNFINISHED: &str =
    "its writer was cut off with the power of this machine: it may be half of a file";
