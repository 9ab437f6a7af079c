//! Forgets entries: first their record, then their file.

use crate::{
    Error, Result,
    disk::rows::{Change, Forwarded},
    inner::Inner,
    plan::{all::Gone, entry::Entry, state::State},
};
use parking_lot::MutexGuard;
use std::{
    io,
    time::{Duration, Instant},
};

impl Inner {
    /// Unlinks what is gone: first the record no longer has it, then the file goes. Its `state` says so
    /// already, under the lock that was held until now.
    pub(crate) fn unlink<'a>(
        &self,
        entry: &'a Entry,
        mut state: MutexGuard<'a, State>,
    ) -> Result<()> {
        state.is_gone = true;
        // A record on its way would come after it was forgotten.
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
        let mut all = self.all();
        all.remove(entry);
        all.cleanup.leftovers.extend(leftover);
        drop(all);
        let gone = Gone {
            id: entry.id,
            reserved,
            at: Instant::now() + FORGET_AGAIN,
        };
        self.forget(gone, was_recorded)
    }

    /// Takes it off the record, and then its file from the disk. Where a full disk does not take that, it is tried
    /// again: until then what was promised after it waits.
    fn forget(&self, gone: Gone, was_recorded: bool) -> Result<()> {
        if was_recorded && let Err(error) = self.records.write(Change::Forget(gone.id)) {
            self.all().cleanup.unforgotten.push(gone);
            self.nudge();
            return Err(error);
        }
        // Not before, or what comes after it could be done, and it again after an end.
        self.all().promises.forget(gone.id);
        let file = self.disk.reader(gone.id);
        self.disk.remove(gone.id)?;
        match file {
            Ok(file) if gone.reserved > 0 => self.room.release_file(file, gone.reserved),
            _ => self.room.release(gone.reserved),
        }
        self.nudge();
        Ok(())
    }

    /// Gives up what has a name that cannot be read, and returns whether there is any of that number.
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
        let Some(unreadable) = self.all().unreadable.entries.remove(&id) else {
            return Ok(false);
        };
        let gone = Gone {
            id,
            reserved: unreadable.reserved,
            at: Instant::now() + FORGET_AGAIN,
        };
        self.forget(gone, true).map(|()| true)
    }

    /// Tries that again.
    pub(crate) fn forget_again(&self, mut gone: Gone) {
        let id = gone.id;
        gone.at = Instant::now() + FORGET_AGAIN;
        if let Err(error) = self.forget(gone, true) {
            tracing::info!(%id, %error, "what is gone cannot be taken off the record yet");
        }
    }
}

/// What could not be taken off the record is tried again after that.
const FORGET_AGAIN: Duration = Duration::from_millis(500);

impl Inner {
    /// Keeps in mind that a hop has something of a name; the record of it is written before the next.
    pub(crate) fn remember(&self, forwarded: Forwarded) {
        let change = Change::Forwarded(Box::new(forwarded.clone()), true);
        let mut all = self.all();
        if all.forwarded.len() < NAMES_MAX || all.forwarded.contains_key(&forwarded.key()) {
            all.forwarded.insert(forwarded.key(), forwarded);
            self.records.write_behind(change);
        }
    }
}

/// So many names are kept in mind for somebody who may push some day.
const NAMES_MAX: usize = 100_000;
