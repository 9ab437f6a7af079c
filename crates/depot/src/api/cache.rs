//! Lists entries for people: what keeps each, how long, and how much of the quota is used.

use crate::{
    Depot, Error, Result, Tag, Verified,
    clock::now,
    plan::{entry::Entry, state::State},
};
use godwit_core::{Url, holding::Base};
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// An entry, as lists show it.
#[derive(Clone, Debug)]
pub struct Holds {
    /// Its id.
    pub id: String,
    /// Its name.
    pub url: Url,
    /// The audience that may read it.
    pub audience: String,
    /// Its length.
    pub size: u64,
    /// How many bytes are present.
    pub present: u64,
    /// How many bytes are pending.
    pub pending_bytes: u64,
    /// How often it was fetched.
    pub transfers: u64,
    /// Programs that have it open.
    pub users: u32,
    /// The tags that keep it.
    pub tags: Vec<Tag>,
    /// A time whose meaning its users know.
    pub stamp: Option<i64>,
    /// The last use, in seconds since the epoch.
    pub used: u64,
    /// Readers of its name get it.
    pub is_current: bool,
    /// The version of the origin's file, in words.
    pub base: String,
}

/// How full a depot is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Usage {
    /// The quota.
    pub quota: Option<u64>,
    /// The bytes in the depot.
    pub taken: u64,
    /// The pending bytes, which cannot be forgotten.
    pub pending_bytes: u64,
    /// The bytes of entries with users or tags.
    pub kept: u64,
    /// How many files there are; several versions of one name are one file.
    pub files: u64,
}

/// Counts files; several versions of one name are one file, and stand together.
pub fn count_names(holds: &[Holds]) -> u64 {
    holds.chunk_by(|a, b| a.url == b.url).count() as u64
}

impl Depot {
    /// Returns the entries whose name has that prefix, by name.
    pub fn list(&self, prefix: &str) -> Vec<Holds> {
        let all = self.inner.every();
        let named = |entry: &Arc<Entry>| entry.name().to_string().starts_with(prefix);
        let mut holds: Vec<_> = all.iter().filter(|entry| named(entry)).map(holds).collect();
        holds.sort_by(|a, b| (&a.url, a.is_current).cmp(&(&b.url, b.is_current)));
        holds
    }

    /// Returns the entries of a name, of all audiences.
    pub fn holds(&self, url: &Url) -> Vec<Holds> {
        let plan = self.inner.plan().called(url);
        let same = plan.iter().filter(|entry| entry.name() == *url);
        same.map(holds).collect()
    }

    /// Tells how full it is.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage {
            quota: self.inner.room.quota(),
            taken: self.inner.room.taken(),
            pending_bytes: 0,
            kept: self.inner.room.open(),
            files: 0,
        };
        let every = self.inner.every();
        let names: HashSet<Url> = every.iter().map(|entry| entry.name()).collect();
        usage.files = names.len() as u64;
        for entry in every {
            let state = entry.lock();
            if state.machine.owes() {
                usage.pending_bytes += state.bytes.reserved;
            } else if state.users.open > 0 || !state.users.tags.is_empty() {
                usage.kept += state.bytes.reserved;
            }
        }
        let logs = self.inner.logs.reserved();
        usage.pending_bytes += logs.iter().map(|(_, reserved)| reserved).sum::<u64>();
        usage
    }

    /// Forgets the entries of a name, and returns how many. Pending entries are refused. Readers that have one open keep
    /// it.
    pub fn forget(&self, url: &Url) -> Result<u64> {
        self.forget_where(url, |_, _| true)
    }

    /// Forgets the entries of a name that one audience has, and that have no tag.
    pub fn forget_of(&self, url: &Url, audience: &str) -> Result<u64> {
        self.forget_where(url, |entry, state| {
            entry.who.audience == audience && state.users.tags.is_empty()
        })
    }

    fn forget_where(&self, url: &Url, is_meant: impl Fn(&Entry, &State) -> bool) -> Result<u64> {
        let mut forgotten = 0;
        let called = self.inner.plan().called(url);
        for entry in called {
            if entry.name() != *url {
                continue;
            }
            let mut state = entry.lock();
            if state.is_gone || !is_meant(&entry, &state) {
                continue;
            }
            if !state.machine.may_be_forgotten() || state.delivery.is_in_flight {
                return Err(Error::in_use(
                    url.clone(),
                    "pending, or being written or fetched",
                ));
            }
            let tags = std::mem::take(&mut state.users.tags);
            self.inner.unlink(&entry, state)?;
            self.inner.untagged(entry.id, &tags);
            forgotten += 1;
        }
        match forgotten {
            0 => Err(Error::Unknown(url.to_string())),
            _ => Ok(forgotten),
        }
    }

    /// Reads the entries of one name or of all, and compares them with their hashes. A damaged entry that is not pending is
    /// fetched again by its next reader.
    pub fn verify(&self, url: Option<&Url>, each: impl FnMut(Verified)) -> Result<()> {
        self.verify_where(|entry| url.is_none_or(|url| entry.name() == *url), each)
    }

    /// Verifies the entries of one audience.
    pub fn verify_of(
        &self,
        url: Option<&Url>,
        audience: &str,
        each: impl FnMut(Verified),
    ) -> Result<()> {
        let is_meant = |entry: &Entry| {
            entry.who.audience == audience && url.is_none_or(|url| entry.name() == *url)
        };
        self.verify_where(is_meant, each)
    }

    fn verify_where(
        &self,
        is_meant: impl Fn(&Entry) -> bool,
        mut each: impl FnMut(Verified),
    ) -> Result<()> {
        for entry in self.inner.every() {
            if !is_meant(&entry) {
                continue;
            }
            if let Some(verified) = self.inner.verify(&entry, now())? {
                each(verified);
            }
        }
        Ok(())
    }
}

fn holds(entry: &Arc<Entry>) -> Holds {
    let state = entry.lock();
    Holds {
        id: entry.id.to_string(),
        url: entry.name(),
        audience: entry.who.audience.clone(),
        size: state.machine.size(),
        present: state.machine.arrived_bytes(),
        pending_bytes: state.machine.owed_bytes(),
        transfers: state.meta.transfers,
        users: state.users.open,
        tags: state.users.tags.clone(),
        stamp: state.meta.stamp,
        used: entry.used.load(Relaxed),
        is_current: state.is_current(),
        base: match state.machine.base() {
            Base::Absent => "nothing".into(),
            Base::Any => "not asked".into(),
            Base::Seen(version) => crate::disk::columns::shown(version),
        },
    }
}
