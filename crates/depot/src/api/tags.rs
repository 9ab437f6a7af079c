//! Tags that keep a file beyond its last user.
//!
//! Removing a tag takes back one adding of it; a clean-up takes all of one tag. An open tag ends with the connection that
//! set it, and has no row.

use crate::{Depot, Error, Fresh, Result, StillWanted, Who, clock::now, disk::rows::Change};
use godwit_core::Url;
use std::time::Duration;

impl Depot {
    /// Fetches a file if it is not here, and keeps it under a tag. Returns its length, and whether it was
    /// here already.
    pub fn stage(
        &self,
        url: &Url,
        who: &Who,
        tag: &str,
        lasts: Option<Duration>,
    ) -> Result<(u64, bool)> {
        self.stage_while(url, who, (tag, lasts), &|| true)
    }

    /// Stages a file, unless cancelled.
    pub fn stage_while(
        &self,
        url: &Url,
        who: &Who,
        (tag, lasts): (&str, Option<Duration>),
        is_wanted: StillWanted<'_>,
    ) -> Result<(u64, bool)> {
        let before = self.transfers(url, who);
        let reading = self.read_while(url, who, Fresh::Usual, is_wanted)?;
        let expires = lasts.map(|lasts| now() + lasts.as_secs());
        self.inner.tag(reading.entry(), tag, None, expires)?;
        Ok((reading.size(), before == Some(reading.transfers())))
    }

    /// Returns how often what is held of a name was fetched.
    pub fn transfers(&self, url: &Url, who: &Who) -> Option<u64> {
        let entry = self.inner.plan().current_of(url, who)?;
        let state = entry.lock();
        (!state.is_gone).then_some(state.meta.transfers)
    }

    /// Adds a tag to what is held of a name, with a time of the user's own.
    pub fn tag(&self, url: &Url, tag: &str, timestamp: Option<i64>) -> Result<()> {
        let entry = self.inner.of_name(url)?;
        self.inner.tag(&entry, tag, timestamp, None)
    }

    /// Notes a time of the user's own with a tag that is on a file already.
    pub fn stamp(&self, url: &Url, tag: &str, timestamp: Option<i64>) -> Result<()> {
        let called = self.inner.plan().called(url);
        let mut is_known = false;
        for entry in called.iter().filter(|entry| entry.name() == *url) {
            let mut state = entry.lock();
            let Some(there) = state.users.tags.iter_mut().find(|there| there.name == tag) else {
                continue;
            };
            is_known = true;
            there.timestamp = timestamp.or(there.timestamp);
            let stamped = there.clone();
            drop(state);
            self.inner.records.write(Change::Tag(entry.id, stamped))?;
        }
        match is_known {
            true => Ok(()),
            false => Err(Error::Unknown(format!("{url} with the tag {tag}"))),
        }
    }

    /// Takes one instance of a tag off a file.
    pub fn untag(&self, url: &Url, tag: &str) -> Result<()> {
        let mut is_known = false;
        let called = self.inner.plan().called(url);
        for entry in called {
            if entry.name() == *url {
                is_known |= self.inner.untag(&entry, |t| t.name == tag, false)?;
            }
        }
        match is_known {
            true => Ok(()),
            false => Err(Error::Unknown(format!("{url} with the tag {tag}"))),
        }
    }

    /// Takes all instances of a tag off one file, or off all, and returns off how many.
    pub fn clean(&self, tag: &str, url: Option<&Url>) -> Result<u64> {
        let mut cleaned = 0;
        for entry in self.inner.every() {
            if url.is_none_or(|url| entry.name() == *url) {
                cleaned += u64::from(self.inner.untag(&entry, |t| t.name == tag, true)?);
            }
        }
        Ok(cleaned)
    }
}
