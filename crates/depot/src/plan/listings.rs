//! Directories as their servers listed them last.

use godwit_core::{Url, deeds::What};
use godwit_store::{EntryKind, Stat};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    time::{Duration, Instant},
};

/// The entries of a directory, by name.
pub(crate) type Listed = BTreeMap<Vec<u8>, Stat>;

/// The present time, and how old a list may be.
pub(crate) type Fresh = (Instant, Duration);

/// Directories as their servers listed them last.
#[derive(Default)]
pub(crate) struct Listings {
    known: VecDeque<Listing>,
    entries: usize,
    /// Counts what was done at servers.
    number: u64,
    /// The names of the last changes, each with its number.
    changes: VecDeque<(u64, Url)>,
    /// When looks in a directory began to ask its server, and how many did.
    looks: HashMap<Url, (Instant, u32)>,
}

struct Listing {
    url: Url,
    audience: String,
    asked: Instant,
    listed: Listed,
    /// Names that were changed since: their attributes are not known.
    touched: BTreeSet<Vec<u8>>,
}

impl Listings {
    /// Counts changes at servers: what was listed while it counts is old or new.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the names in a directory that were changed after a number; `None`: that is too long ago.
    fn changed_since(&self, number: u64, above: &Url) -> Option<BTreeSet<Vec<u8>>> {
        let known = self.changes.len() as u64;
        if self.number - number > known {
            return None;
        }
        let later = self.changes.iter().filter(|(nth, _)| *nth > number);
        let names = later.filter_map(|(_, url)| split(url));
        Some(
            names
                .filter(|(at, _)| at == above)
                .map(|(_, name)| name)
                .collect(),
        )
    }

    /// Keeps a list that was begun after a change of that number.
    pub(crate) fn put(
        &mut self,
        (url, audience): (&Url, &str),
        (asked, number): (Instant, u64),
        listed: &Listed,
    ) {
        let touched = self.changed_since(number, url);
        self.drop(|one| one.url == *url && one.audience == audience);
        let Some(touched) = touched.filter(|_| listed.len() <= ENTRIES_MAX) else {
            return;
        };
        self.entries += listed.len();
        self.known.push_back(Listing {
            url: url.clone(),
            audience: audience.into(),
            asked,
            listed: listed.clone(),
            touched,
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

    fn of(&self, url: &Url, audience: &str, fresh: Fresh) -> Option<&Listing> {
        let (now, longest) = fresh;
        let is_it = |one: &&Listing| one.url == *url && one.audience == audience;
        let mut known = self.known.iter().filter(is_it);
        known.find(|one| now.saturating_duration_since(one.asked) < longest)
    }

    /// Tells whether a directory of that name, or below it, was listed.
    pub(crate) fn has_at_or_below(&self, name: &Url) -> bool {
        self.known.iter().any(|one| is_in(&one.url, name))
    }

    pub(crate) fn get(&self, url: &Url, audience: &str, fresh: Fresh) -> Option<Listed> {
        let one = self.of(url, audience, fresh)?;
        let is_exact = one.touched.is_empty() || fresh.1 == Duration::MAX;
        is_exact.then(|| one.listed.clone())
    }

    /// Looks a name up in its directory; `Some(None)`: the directory has no such name. Without a list, looks are
    /// counted; see [`Self::worth_listing`].
    pub(crate) fn find(&self, url: &Url, audience: &str, fresh: Fresh) -> Option<Option<Stat>> {
        let (above, name) = split(url)?;
        let listing = self.of(&above, audience, fresh)?;
        let is_exact = fresh.1 == Duration::MAX || !listing.touched.contains(&name);
        is_exact.then(|| listing.listed.get(&name).cloned())
    }

    /// Counts looks that no list answers. Returns the directory, if a list of it costs less than the looks to come.
    pub(crate) fn worth_listing(&mut self, url: &Url, audience: &str, fresh: Fresh) -> Option<Url> {
        let (above, _) = split(url)?;
        if self.of(&above, audience, fresh).is_some() {
            return None; // one name of it was changed
        }
        if self.looks.len() >= LISTINGS_MAX {
            self.looks.clear();
        }
        let looks = self.looks.entry(above.clone()).or_insert((fresh.0, 0));
        if fresh.0.saturating_duration_since(looks.0) > fresh.1 {
            *looks = (fresh.0, 0);
        }
        looks.1 += 1;
        (looks.1 == LOOKS).then_some(above)
    }

    /// Brings them to what was done at a server. The attributes of such a name are asked for again.
    pub(crate) fn done(
        &mut self,
        what: &What,
        (audience, now): (&str, Instant),
        url: &Url,
        to: Option<&Url>,
    ) {
        let is_gone = matches!(what, What::Unlink | What::Rename { .. });
        let was = self.change(url, is_gone, |listed, name| match what {
            What::Mkdir => listed.insert(name, directory()),
            _ if is_gone => listed.remove(&name),
            _ => None,
        });
        if let Some(to) = to {
            self.change(to, false, |listed, name| {
                was.clone().and_then(|was| listed.insert(name, was))
            });
        }
        if is_gone {
            self.drop(|one| is_in(&one.url, url) || to.is_some_and(|to| is_in(&one.url, to)));
        }
        if matches!(what, What::Mkdir) {
            self.put((url, audience), (now, self.number), &Listed::new());
        }
    }

    /// Brings them to a file that was delivered.
    pub(crate) fn delivered(&mut self, url: &Url, size: u64) {
        self.change(url, false, |listed, name| listed.insert(name, plain(size)));
    }

    /// Brings them to a file that was appended to.
    pub(crate) fn appended(&mut self, url: &Url) {
        self.change(url, false, |listed, name| {
            listed.entry(name).or_insert_with(|| plain(0));
            None
        });
    }

    fn change(
        &mut self,
        url: &Url,
        is_gone: bool,
        change: impl Fn(&mut Listed, Vec<u8>) -> Option<Stat>,
    ) -> Option<Stat> {
        self.number += 1;
        self.changes.push_back((self.number, url.clone()));
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
        let (above, name) = split(url)?;
        let mut before = None;
        for one in self.known.iter_mut().filter(|one| one.url == above) {
            before = change(&mut one.listed, name.clone()).or(before);
            match is_gone {
                true => one.touched.remove(&name),
                false => one.touched.insert(name.clone()),
            };
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
/// More changes while a directory is listed, and the list is not kept.
const CHANGES_MAX: usize = 10_000;
/// Looks in a directory, within the freshness of a list, after which it is listed.
const LOOKS: u32 = 4;
