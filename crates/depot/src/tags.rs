//! What keeps a file beyond its last user.
//!
//! Each adding of a tag is taken back by one removing; a clean-up takes all of one
//! tag. An open tag falls with whoever holds it and is no row anywhere.

use crate::{
    Depot, Error, Fresh, Result, Who,
    depot::Inner,
    disk::Id,
    fetching::StillWanted,
    held::{Held, now},
    records::Change,
};
use godwit_core::Url;
use std::{sync::Arc, time::Duration};

/// A named tag on a file.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Tag {
    /// Its name.
    pub name: String,
    /// How often it was added.
    pub count: u32,
    /// A time that means what its user says.
    pub timestamp: Option<i64>,
    /// When it falls by itself, in seconds since the epoch.
    pub expires: Option<u64>,
}

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

    /// The same for somebody who may go.
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
        self.inner.tag(reading.held(), tag, None, expires)?;
        Ok((reading.size(), before == Some(reading.transfers())))
    }

    /// Returns how often what is held of a name was fetched.
    pub fn transfers(&self, url: &Url, who: &Who) -> Option<u64> {
        let held = self.inner.all().current_of(url, who)?;
        let state = held.lock();
        (!state.is_gone).then_some(state.transfers)
    }

    /// Adds a tag to what is held of a name, with a time of the user's own.
    pub fn tag(&self, url: &Url, tag: &str, timestamp: Option<i64>) -> Result<()> {
        let held = self.inner.of_name(url)?;
        self.inner.tag(&held, tag, timestamp, None)
    }

    /// Notes a time of the user's own with a tag that is on a file already.
    pub fn stamp(&self, url: &Url, tag: &str, timestamp: Option<i64>) -> Result<()> {
        let called = self.inner.all().called(url);
        let mut is_known = false;
        for held in called.iter().filter(|held| held.name() == *url) {
            let mut state = held.lock();
            let Some(there) = state.tags.iter_mut().find(|there| there.name == tag) else {
                continue;
            };
            is_known = true;
            there.timestamp = timestamp.or(there.timestamp);
            let stamped = there.clone();
            drop(state);
            self.inner.records.write(Change::Tag(held.id, stamped))?;
        }
        match is_known {
            true => Ok(()),
            false => Err(Error::Unknown(format!("{url} with the tag {tag}"))),
        }
    }

    /// Takes one instance of a tag off a file.
    pub fn untag(&self, url: &Url, tag: &str) -> Result<()> {
        let mut is_known = false;
        let called = self.inner.all().called(url);
        for held in called {
            if held.name() == *url {
                is_known |= self.inner.untag(&held, |t| t.name == tag, false)?;
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
        for held in self.inner.every() {
            if url.is_none_or(|url| held.name() == *url) {
                cleaned += u64::from(self.inner.untag(&held, |t| t.name == tag, true)?);
            }
        }
        Ok(cleaned)
    }
}

impl Inner {
    pub(crate) fn of_name(&self, url: &Url) -> Result<Arc<Held>> {
        let all = self.all();
        let mut named = all.called(url).into_iter();
        let held = named.find(|held| held.name() == *url && held.lock().is_current);
        held.ok_or_else(|| Error::Unknown(url.to_string()))
    }

    pub(crate) fn tag(
        &self,
        held: &Held,
        name: &str,
        timestamp: Option<i64>,
        expires: Option<u64>,
    ) -> Result<()> {
        // A tag stands beside a row.
        held.commit(self)?;
        let mut state = held.lock();
        if state.is_gone {
            return Err(Error::Unknown(held.name().to_string()));
        }
        let at = state.tags.iter().position(|tag| tag.name == name);
        let at = at.unwrap_or_else(|| {
            state.tags.push(Tag {
                name: name.into(),
                count: 0,
                timestamp: None,
                expires: None,
            });
            state.tags.len() - 1
        });
        let tag = &mut state.tags[at];
        tag.count += 1;
        tag.timestamp = timestamp.or(tag.timestamp);
        tag.expires = expires.or(tag.expires);
        if let Some(expires) = expires {
            self.chores.falls(expires, held.id);
        }
        let tag = tag.clone();
        drop(state);
        self.records.write(Change::Tag(held.id, tag))
    }

    fn untag(&self, held: &Held, is_meant: impl Fn(&Tag) -> bool, all: bool) -> Result<bool> {
        let mut state = held.lock();
        let Some(at) = state.tags.iter().position(is_meant) else {
            return Ok(false);
        };
        let mut tag = state.tags[at].clone();
        tag.count = match all {
            true => 0,
            false => tag.count - 1,
        };
        match tag.count {
            0 => drop(state.tags.remove(at)),
            _ => state.tags[at] = tag.clone(),
        }
        drop(state);
        self.records.write(Change::Tag(held.id, tag))?;
        self.let_lapse(held)?;
        Ok(true)
    }

    /// The tags of a file that is gone.
    pub(crate) fn untagged(&self, id: Id, tags: &[Tag]) {
        for tag in tags {
            let tag = Tag {
                count: 0,
                ..tag.clone()
            };
            self.records.write_behind(Change::Tag(id, tag));
        }
    }

    /// Takes off tags whose time is over.
    pub(crate) fn expire(&self) -> Result<()> {
        let now = now();
        for id in self.chores.fallen(now) {
            let Some(held) = self.all().by_id.get(&id).cloned() else {
                continue;
            };
            let is_over = |tag: &Tag| tag.expires.is_some_and(|expires| expires <= now);
            while self.untag(&held, is_over, true)? {}
        }
        Ok(())
    }
}
