//! Reads of whole files.

use crate::{
    Depot, Error, Fresh, Result, StillWanted, Who, inner::user::User, plan::entry::Entry,
    work::fetch::Part,
};
use godwit_core::Url;
use std::{fs::File, path::PathBuf, sync::Arc};

/// An open file of which all bytes are present.
#[derive(Debug)]
pub struct Reading {
    file: File,
    size: u64,
    user: User,
}

impl Reading {
    /// Returns a descriptor of it, with a place of its own in the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns its length.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn of(file: File, size: u64, user: User) -> Self {
        Self { file, size, user }
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.user.entry
    }

    /// Returns how often it was fetched.
    pub fn transfers(&self) -> u64 {
        self.user.entry.lock().meta.transfers
    }
}

impl Depot {
    /// Returns the path of an open file. It is valid until the entry is forgotten.
    pub fn lies_at(&self, reading: &Reading) -> PathBuf {
        self.inner.disk.path(reading.user.entry.id)
    }

    /// Opens a file for reading, and fetches it first if it is missing or stale. Other readers wait for the same transfer.
    pub fn read(&self, url: &Url, who: &Who, fresh: Fresh) -> Result<Reading> {
        self.read_while(url, who, fresh, &|| true)
    }

    /// Opens a file for a reader that may go. A fetch without a reader ends, and the next one goes on from there.
    pub fn read_while(
        &self,
        url: &Url,
        who: &Who,
        fresh: Fresh,
        is_wanted: StillWanted<'_>,
    ) -> Result<Reading> {
        let mut fresh = fresh;
        for _ in 0..RESTARTS_MAX {
            let user = self.inner.find_while(url, who, fresh, is_wanted)?;
            let all = 0..u64::MAX;
            match (self.inner).ensure_while(&user.entry, all, Part::Alone, is_wanted) {
                Ok(()) => {}
                Err(Error::Busy { .. }) => {
                    // It changed during the fetch: the new one is fetched.
                    fresh = fresh.asked();
                    continue;
                }
                Err(error) => return Err(error),
            }
            // A reader sees all of a patch, or nothing of it.
            let state = user.entry.lock_merged();
            if state.is_gone {
                continue;
            }
            let (size, file) = (state.machine.size(), self.inner.disk.reader(user.entry.id)?);
            drop(state);
            return Ok(Reading { file, size, user });
        }
        Err(Error::restless(Box::new(url.clone())))
    }
}

impl Depot {
    /// Notes that a name, or one below it, was changed past this node: its next reader asks the server.
    pub fn changed(&self, url: &Url) {
        self.inner.changed(url);
    }

    /// Opens a file that is present as a whole and fresh. `None`: it has to be fetched or revalidated.
    pub fn read_here(&self, url: &Url, who: &Who, fresh: Fresh) -> Option<Reading> {
        let entry = self.inner.plan().current_of(url, who)?;
        let mut state = entry.lock();
        let is_own = entry.who.audience == who.audience;
        let is_here =
            state.machine.is_whole() && !state.machine.is_blind() && !state.bytes.is_merging;
        let is_fresh = self.inner.is_fresh(&state, fresh) && !self.inner.is_ending();
        if !is_own || !is_here || state.is_gone || !is_fresh {
            return None;
        }
        let size = state.machine.size();
        let file = self.inner.disk.reader(entry.id).ok()?;
        let user = User::of(&entry, &mut state);
        drop(state);
        Some(Reading { file, size, user })
    }
}

/// How often a file may change while it is fetched.
const RESTARTS_MAX: usize = 5;
