//! Forgets entries: first their record, then their file.

use crate::{
    Error, Result,
    disk::rows::Change,
    inner::Inner,
    plan::{Gone, entry::Entry, forwarded::Forwarded, state::State},
};
use parking_lot::MutexGuard;
use std::{
    io,
    time::{Duration, Instant},
};

impl Inner {
    /// Forgets an entry: first its row is removed, then its file. Its `state` says that it is gone before its lock is
    /// released.
    pub(crate) fn unlink<'a>(
        &self,
        entry: &'a Entry,
        mut state: MutexGuard<'a, State>,
    ) -> Result<()> {
        state.is_gone = true;
        // A row in flight would be written after its removal.
        while state.record.is_writing {
            entry.wait(&mut state, None);
        }
        let (was_recorded, reserved) = (
            state.record.has_row,
            std::mem::take(&mut state.bytes.reserved),
        );
        state.bytes.write_fd = None;
        let leftover = state.take_leftover(&entry.url(), &entry.who);
        let forwarded = Forwarded::of(entry, &state);
        drop(state);
        if let Some(forwarded) = forwarded {
            self.remember(forwarded);
        }
        entry.tell();
        let mut plan = self.plan();
        plan.remove(entry);
        plan.cleanup.leftovers.extend(leftover);
        drop(plan);
        let gone = Gone {
            id: entry.id,
            reserved,
            at: Instant::now() + FORGET_AGAIN,
        };
        self.forget(gone, was_recorded)
    }

    /// Removes the row, and then the file. If a full disk refuses that it is tried again, and later operations wait.
    fn forget(&self, gone: Gone, was_recorded: bool) -> Result<()> {
        if was_recorded && let Err(error) = self.records.write(Change::Forget(gone.id)) {
            self.plan().cleanup.unforgotten.push(gone);
            self.nudge();
            return Err(error);
        }
        // Not earlier: later operations would be done, and after a restart this one again.
        self.plan().order.forget(gone.id);
        let file = self.disk.reader(gone.id);
        self.disk.remove(gone.id)?;
        match file {
            Ok(file) if gone.reserved > 0 => self.room.release_file(file, gone.reserved),
            _ => self.room.release(gone.reserved),
        }
        self.nudge();
        Ok(())
    }

    /// Drops a row whose name cannot be read. Returns whether a row has that id.
    pub(crate) fn forget_unreadable(&self, name: &str) -> Result<bool> {
        if let Some((id, path)) = self.logs.take_unreadable(name) {
            self.records.write(Change::ForgetLog(id))?;
            let removed = std::fs::remove_file(&path);
            return match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(Error::disk(path)(error))
                }
                _ => Ok(true),
            };
        }
        let Some(id) = name.parse().ok() else {
            return Ok(false);
        };
        let Some(unreadable) = self.plan().unreadable.entries.remove(&id) else {
            return Ok(false);
        };
        let gone = Gone {
            id,
            reserved: unreadable.reserved,
            at: Instant::now() + FORGET_AGAIN,
        };
        self.forget(gone, true).map(|()| true)
    }

    /// Tries again to forget an entry.
    pub(crate) fn forget_again(&self, mut gone: Gone) {
        let id = gone.id;
        gone.at = Instant::now() + FORGET_AGAIN;
        if let Err(error) = self.forget(gone, true) {
            tracing::info!(%id, %error, "what is gone cannot be taken off the record yet");
        }
    }
}

/// The pause before a row is removed again.
const FORGET_AGAIN: Duration = Duration::from_millis(500);

impl Inner {
    /// Notes that a hop forwards a name. Its row is written before the next change.
    pub(crate) fn remember(&self, forwarded: Forwarded) {
        let change = Change::Forwarded(Box::new(forwarded.clone()), true);
        let mut plan = self.plan();
        if plan.forwarded.len() < NAMES_MAX || plan.forwarded.contains_key(&forwarded.key()) {
            plan.forwarded.insert(forwarded.key(), forwarded);
            self.records.write_behind(change);
        }
    }
}

/// The number of forwarded names that are kept for a later push.
const NAMES_MAX: usize = 100_000;
