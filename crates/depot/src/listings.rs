//! Directories as their servers listed them last.

use godwit_core::{Url, deeds::What};
use godwit_store::{EntryKind, Stat};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

/// The entries of a directory, by name.
pub(crate) type Listed = BTreeMap<Vec<u8>, Stat>;

/// Directories as their servers listed them last.
#[derive(Default)]
pub(crate) struct Listings {
    known: VecDeque<Listing>,
    entries: usize,
    /// Counts what was done at servers.
    number: u64,
}

struct Listing {
    url: Url,
    audience: String,
    /// `None`: it was changed since.
    asked: Option<Instant>,
    listed: Listed,
}

impl Listings {
    /// Counts changes at servers: what was listed while it counts is old or new.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn put(&mut self, url: &Url, audience: &str, asked: Instant, listed: &Listed) {
        self.drop(|one| one.url == *url && one.audience == audience);
        if listed.len() > ENTRIES_MAX {
            return;
        }
        self.entries += listed.len();
        self.known.push_back(Listing {
            url: url.clone(),
            audience: audience.into(),
            asked: Some(asked),
            listed: listed.clone(),
        });
        while self.entries > ENTRIES_MAX || self.known.len() > LISTINGS_MAX {
            let Some(oldest) = self.known.pop_front() else {
                break;
            };
            self.entries -= oldest.listed.len();
        }
    }

    fn drop(&mut self, is_it: impl Fn(&Listing) -> bool) {
        self.known.retain(|one| !is_it(one));
        self.entries = self.known.iter().map(|one| one.listed.len()).sum();
    }

    fn of(&self, url: &Url, audience: &str, fresh: Duration) -> Option<&Listing> {
        self.known.iter().find(|one| {
            let is_fresh = one.asked.is_some_and(|asked| asked.elapsed() < fresh);
            one.url == *url && one.audience == audience && (is_fresh || fresh == Duration::MAX)
        })
    }

    pub(crate) fn get(&self, url: &Url, audience: &str, fresh: Duration) -> Option<Listed> {
        self.of(url, audience, fresh).map(|one| one.listed.clone())
    }

    /// Looks a name up in its directory; `Some(None)`: the directory has no such name.
    pub(crate) fn find(&self, url: &Url, audience: &str, fresh: Duration) -> Option<Option<Stat>> {
        let (above, name) = split(url)?;
        let listing = self.of(&above, audience, fresh)?;
        Some(listing.listed.get(&name).cloned())
    }

    /// Brings them to what was done at a server. They are good without it from then on, and no more with it.
    pub(crate) fn done(&mut self, what: &What, url: &Url, to: Option<&Url>) {
        let was = self.change(url, |listed, name| match what {
            What::Mkdir => listed.insert(name, directory()),
            What::Unlink | What::Rename { .. } => listed.remove(&name),
            _ => None,
        });
        if let Some(to) = to {
            self.change(to, |listed, name| {
                was.clone().and_then(|was| listed.insert(name, was))
            });
        }
        if matches!(what, What::Unlink | What::Rename { .. }) {
            self.drop(|one| is_in(&one.url, url) || to.is_some_and(|to| is_in(&one.url, to)));
        }
    }

    /// Brings them to a file that was delivered.
    pub(crate) fn delivered(&mut self, url: &Url, size: u64) {
        self.change(url, |listed, name| listed.insert(name, plain(size)));
    }

    fn change(
        &mut self,
        url: &Url,
        change: impl Fn(&mut Listed, Vec<u8>) -> Option<Stat>,
    ) -> Option<Stat> {
        self.number += 1;
        let (above, name) = split(url)?;
        let mut before = None;
        for one in self.known.iter_mut().filter(|one| one.url == above) {
            one.asked = None;
            before = change(&mut one.listed, name.clone()).or(before);
        }
        self.entries = self.known.iter().map(|one| one.listed.len()).sum();
        before
    }
}

/// Returns the directory of a name, and its last part.
pub(crate) fn split(url: &Url) -> Option<(Url, Vec<u8>)> {
    Some((url.parent()?, url.file_name()?.to_vec()))
}

/// Tells whether a name is that, or below it.
fn is_in(name: &Url, of: &Url) -> bool {
    let mut at = Some(name.clone());
    while let Some(now) = at {
        if now == *of {
            return true;
        }
        at = now.parent();
    }
    false
}

pub(crate) fn plain(size: u64) -> Stat {
    Stat::of(EntryKind::File, size)
}

pub(crate) fn directory() -> Stat {
    Stat::of(EntryKind::Directory, 0)
}

/// Bounds of what is remembered: names, and directories.
const ENTRIES_MAX: usize = 200_000;
const LISTINGS_MAX: usize = 1_000;
