//! Tags on entries: set, taken off, expired.

use crate::{
    Error, Result, Tag, clock::now, disk::rows::Change, id::Id, inner::Inner, plan::entry::Entry,
};
use godwit_core::Url;
use std::sync::Arc;

impl Inner {
    pub(crate) fn of_name(&self, url: &Url) -> Result<Arc<Entry>> {
        let plan = self.plan();
        let mut named = plan.called(url).into_iter();
        let entry = named.find(|entry| entry.name() == *url && entry.lock().is_current());
        entry.ok_or_else(|| Error::Unknown(url.to_string()))
    }

    pub(crate) fn tag(
        &self,
        entry: &Entry,
        name: &str,
        timestamp: Option<i64>,
        expires: Option<u64>,
    ) -> Result<()> {
        // A tag stands beside a row.
        entry.commit(self)?;
        let mut state = entry.lock();
        if state.is_gone {
            return Err(Error::Unknown(entry.name().to_string()));
        }
        let at = state.users.tags.iter().position(|tag| tag.name == name);
        let at = at.unwrap_or_else(|| {
            state.users.tags.push(Tag {
                name: name.into(),
                count: 0,
                timestamp: None,
                expires: None,
            });
            state.users.tags.len() - 1
        });
        let tag = &mut state.users.tags[at];
        tag.count += 1;
        tag.timestamp = timestamp.or(tag.timestamp);
        tag.expires = expires.or(tag.expires);
        if let Some(expires) = expires {
            self.chores.falls(expires, entry.id);
        }
        let tag = tag.clone();
        drop(state);
        self.records.write(Change::Tag(entry.id, tag))
    }

    pub(crate) fn untag(
        &self,
        entry: &Entry,
        is_meant: impl Fn(&Tag) -> bool,
        all: bool,
    ) -> Result<bool> {
        let mut state = entry.lock();
        let Some(at) = state.users.tags.iter().position(is_meant) else {
            return Ok(false);
        };
        let mut tag = state.users.tags[at].clone();
        tag.count = match all {
            true => 0,
            false => tag.count - 1,
        };
        match tag.count {
            0 => drop(state.users.tags.remove(at)),
            _ => state.users.tags[at] = tag.clone(),
        }
        drop(state);
        self.records.write(Change::Tag(entry.id, tag))?;
        self.let_lapse(entry)?;
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
            let Some(entry) = self.plan().by_id.get(&id).cloned() else {
                continue;
            };
            let is_over = |tag: &Tag| tag.expires.is_some_and(|expires| expires <= now);
            while self.untag(&entry, is_over, true)? {}
        }
        Ok(())
    }
}
