//! Names as programs of this machine see them: pending changes go before the answers of a server.

use crate::{
    Depot, Result, Who,
    clock::since_epoch,
    error::may_pass,
    inner::Inner,
    paths::{missing, moved, server_of},
    plan::{
        Plan,
        entry::Entry,
        listings::{self, Listed, directory, plain, split},
        order::{Fact, LENGTH, Order, was_at},
    },
    work::apply::set,
};
use godwit_core::{
    Strength, Url, Version,
    deeds::{Deed, Values, What},
    holding::Base,
};
use godwit_store::{Entry as DirEntry, EntryKind, Error as StoreError, Stat};
use std::{
    collections::BTreeSet,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    time::{Duration, Instant, UNIX_EPOCH},
};

/// A name as this machine knows it without its server.
enum Here {
    There(Stat),
    Gone,
    /// The server has it, if at all, under that name; these attributes are yet to be set.
    Elsewhere(Url, Values),
}

impl Depot {
    /// Looks at a name. Of a server that is away, and of which nothing here tells whether it has that name, the error is
    /// that it is away.
    pub fn look(&self, url: &Url, who: &Who) -> Result<Stat> {
        self.inner.look_at(url, who)
    }

    /// Lists a directory, in the order of the names.
    pub fn entries(&self, url: &Url, who: &Who) -> Result<Vec<DirEntry>> {
        self.inner.entries_of(url, who)
    }
}

impl Inner {
    fn look_at(&self, url: &Url, who: &Who) -> Result<Stat> {
        let (at, values, listed, above) = {
            let mut plan = self.plan();
            match self.here(&plan, url, who, &plan.order.around(url)) {
                Here::There(stat) => return Ok(stat),
                Here::Gone => return Err(missing(url)),
                Here::Elsewhere(at, values) => {
                    let fresh = self.believed(&plan, url);
                    let listed = plan.listings.find(&at, &who.audience, fresh);
                    let above = match listed {
                        None => plan.listings.worth_listing(&at, &who.audience, fresh),
                        Some(_) => None,
                    };
                    (at, values, listed, above)
                }
            }
        };
        let listed = match above {
            // Where it cannot be listed, the name can be looked at.
            Some(above) if self.list_there(&above, who, LOOKED_MAX).is_ok() => {
                let plan = self.plan();
                let fresh = self.believed(&plan, url);
                plan.listings.find(&at, &who.audience, fresh)
            }
            _ => listed,
        };
        // A file that was delivered just now may not be in the list yet.
        let listed = match listed {
            Some(None)
                if [url, &at]
                    .iter()
                    .any(|name| !self.plan().called(name).is_empty()) =>
            {
                None
            }
            listed => listed,
        };
        let found = match listed {
            Some(found) => found.ok_or_else(|| missing(url)),
            None => self.stat_of(url, who).map(|(_, stat)| stat),
        };
        let mut found = match found {
            Err(error) if error.of_store().is_some_and(may_pass) => {
                let plan = self.plan();
                match plan
                    .listings
                    .find(&at, &who.audience, (Instant::now(), Duration::MAX))
                {
                    Some(found) => found.ok_or_else(|| missing(url))?,
                    None => {
                        let entry = plan.current_of(url, who);
                        let stat = entry.and_then(|entry| self.stat_here(&entry, false));
                        let above = || plan.is_above_known(url).then(directory);
                        return stat.or_else(above).ok_or(error);
                    }
                }
            }
            found => found?,
        };
        self.doubt_another(url, who, &found);
        if let Some(entry) = self.plan().current_of(url, who) {
            self.keep_time(&entry, &mut found);
        }
        Ok(with(found, &values))
    }

    /// Leaves a file that was written here the time that it had before its server had it: an editor takes another time for
    /// the change of another program.
    fn keep_time(&self, entry: &Entry, found: &mut Stat) {
        let state = entry.lock();
        let is_ours = state.meta.transfers == 0 && !state.machine.owes() && !state.is_gone;
        let is_it = match &state.validity.seen {
            None => found.size == state.machine.size(),
            Some(seen) => seen.compare(&found.version(since_epoch())).looks_same(),
        };
        drop(state);
        if is_ours
            && is_it
            && let Some(time) = self.written_at(entry)
        {
            found.mtime = Some(time);
        }
    }

    /// Gives a file that was written here another time. One that cannot have it gets it with the answer of its server.
    pub(crate) fn set_time_here(&self, url: &Url, who: &Who, time: Duration) {
        let entry = self.plan().current_of(url, who);
        let file = entry.and_then(|entry| self.disk.reader(entry.id).ok());
        let set = file.map(|file| file.set_modified(UNIX_EPOCH + time));
        if let Some(Err(error)) = set {
            tracing::debug!(%url, %error, "the time is not set here");
        }
    }

    /// Returns when the bytes of a file were written on this disk.
    fn written_at(&self, entry: &Entry) -> Option<Duration> {
        let file = self.disk.path(entry.id).metadata().ok()?;
        file.modified().ok()?.duration_since(UNIX_EPOCH).ok()
    }

    /// Has the next reader ask the server, if that has another file than the one held here.
    fn doubt_another(&self, url: &Url, who: &Who, found: &Stat) {
        let Some(entry) = self.plan().current_of(url, who) else {
            return;
        };
        let mut state = entry.lock();
        let now = found.version(since_epoch());
        let is_another = match (&state.validity.seen, state.machine.base()) {
            (Some(then), _) | (None, Base::Seen(then)) => then.compare(&now) == Strength::Differs,
            _ => false,
        };
        if is_another && !state.machine.owes() {
            state.validity.invalidate();
        }
    }

    fn entries_of(&self, url: &Url, who: &Who) -> Result<Vec<DirEntry>> {
        let listed = {
            let plan = self.plan();
            match self.here(&plan, url, who, &plan.order.around(url)) {
                Here::There(stat) if stat.kind == EntryKind::Directory => Some(Listed::new()),
                Here::There(_) => {
                    return Err(godwit_store::Error::not_directory(url.as_path()).into());
                }
                Here::Gone => return Err(missing(url)),
                Here::Elsewhere(at, _) => {
                    plan.listings
                        .get(&at, &who.audience, self.believed(&plan, url))
                }
            }
        };
        let listed = match listed.map_or_else(|| self.list_there(url, who, usize::MAX), Ok) {
            Err(error) if error.of_store().is_some_and(may_pass) => {
                let plan = self.plan();
                let at = plan.order.now_at(url);
                let known = at.and_then(|at| {
                    plan.listings
                        .get(&at, &who.audience, (Instant::now(), Duration::MAX))
                });
                known.ok_or(error)?
            }
            listed => listed?,
        };
        Ok(self.overlaid(url, who, listed))
    }

    /// Returns how old a list of names may be: of a server that is away, however old.
    fn believed(&self, plan: &Plan, url: &Url) -> listings::Fresh {
        let now = Instant::now();
        let away = plan.backoff.servers.get(&url.host_port());
        match away.is_some_and(|away| away.until > now) {
            true => (now, Duration::MAX),
            false => (now, self.rules.fresh),
        }
    }

    fn list_there(&self, url: &Url, who: &Who, most: usize) -> Result<Listed> {
        let begun = Instant::now();
        let number = self.plan().listings.number();
        let mut at = None;
        let listed = self.at_place(url, who, |place| {
            let mut listed = Listed::new();
            place.store.list(&place.path, &mut |entry| {
                listed.insert(entry.path.as_os_str().as_bytes().to_vec(), entry.stat);
                match listed.len() > most {
                    true => Err(StoreError::Canceled),
                    false => Ok(()),
                }
            })?;
            at = Some(place.url.clone());
            Ok(listed)
        })?;
        let mut plan = self.plan();
        // Names that were changed there meanwhile may be in it or not.
        if let Some(at) = at
            && server_of(&at) == server_of(url)
        {
            (plan.listings).put((&at, &who.audience), (begun, number), &listed);
        }
        Ok(listed)
    }

    /// Applies the pending changes to the list of a directory.
    fn overlaid(&self, url: &Url, who: &Who, mut listed: Listed) -> Vec<DirEntry> {
        let mut renamed = Vec::new();
        let plan = self.plan();
        for entry in plan.called_below(url) {
            let name = last_in(&entry.name(), url);
            if let Some(stat) = name.and_then(|name| listed.get_mut(&name)) {
                self.keep_time(&entry, stat);
            }
        }
        let around = plan.order.around(url);
        let mut touched: BTreeSet<Vec<u8>> = names_in(url, &around).into_iter().collect();
        let pending = plan.pending.values().map(|entry| entry.name());
        touched.extend(pending.filter_map(|name| last_in(&name, url)));
        if !around.is_empty() {
            touched.extend(listed.keys().cloned());
        }
        for name in touched {
            let Ok(child) = url.join(&name) else {
                continue;
            };
            match self.here(&plan, &child, who, &around) {
                Here::There(stat) => drop(listed.insert(name, stat)),
                Here::Gone => drop(listed.remove(&name)),
                Here::Elsewhere(at, values) => match listed.get_mut(&name) {
                    Some(stat) => *stat = with(stat.clone(), &values),
                    None if at != child => renamed.push((name, child)),
                    None => {}
                },
            }
        }
        drop(plan);
        for (name, child) in renamed {
            match self.look_at(&child, who) {
                Ok(stat) => drop(listed.insert(name, stat)),
                Err(error) if error.of_store().is_some_and(may_pass) => {
                    listed.insert(name, plain(0));
                }
                Err(_) => {}
            }
        }
        let entry = |(name, stat): (Vec<u8>, Stat)| DirEntry {
            path: PathBuf::from(std::ffi::OsStr::from_bytes(&name)),
            stat,
        };
        listed.into_iter().map(entry).collect()
    }

    /// Looks a name up among the pending changes; `around`: the deeds that concern it.
    fn here(&self, plan: &Plan, name: &Url, who: &Who, around: &[(&Deed, &Fact)]) -> Here {
        let entry = plan.current_of(name, who);
        if let Some(stat) = entry.and_then(|entry| self.stat_here(&entry, true)) {
            let mut values = Values::new();
            // The length is that of the held file.
            for (deed, _) in around.iter().filter(|(_, fact)| fact.url == *name) {
                if let What::Set(earlier) = &deed.what {
                    add(&mut values, earlier);
                }
            }
            values.remove(LENGTH);
            return Here::There(with(stat, &values));
        }
        let (mut at, mut values) = (name.clone(), Values::new());
        for (deed, fact) in around {
            let is_it = fact.url == at;
            match &deed.what {
                What::Mkdir if is_it => return Here::There(with(directory(), &values)),
                // What is in a new directory is held here.
                What::Mkdir if moved(&at, &fact.url, &fact.url).is_some() => return Here::Gone,
                What::Set(earlier) if is_it => add(&mut values, earlier),
                _ => {}
            }
            match was_at(at, deed, fact) {
                Some(before) => at = before,
                None => return Here::Gone,
            }
        }
        Here::Elsewhere(at, values)
    }

    /// Returns how a file that is held looks; `None`: it is gone, or its length is not known, or (if `is_owed`) it is not
    /// pending.
    fn stat_here(&self, entry: &Entry, is_pending: bool) -> Option<Stat> {
        let state = entry.lock();
        let machine = &state.machine;
        let counts = if is_pending {
            machine.owes()
        } else {
            !machine.is_blind()
        };
        if state.is_gone || state.is_unlinked() || !counts {
            return None;
        }
        let (size, mode) = (machine.size(), state.meta.mode);
        if let (false, Base::Seen(Version::Weak { mtime, .. })) = (machine.owes(), machine.base()) {
            return Some(Stat {
                mtime: Some(*mtime),
                mode,
                ..plain(size)
            });
        }
        drop(state);
        Some(Stat {
            mtime: self.written_at(entry),
            mode,
            ..plain(size)
        })
    }
}

impl Plan {
    /// Tells whether something is known below a name, which then is that of a directory.
    fn is_above_known(&self, name: &Url) -> bool {
        let is_below = |other: &Url| other != name && moved(other, name, name).is_some();
        let mut entry = self.called_below(name).into_iter();
        let mut deeds = self.order.deeds();
        self.listings.has_at_or_below(name)
            || entry.any(|entry| is_below(&entry.name()) && !entry.lock().is_gone)
            || deeds.any(|(_, fact, _)| is_below(fact.to.as_ref().unwrap_or(&fact.url)))
    }
}

impl Order {
    /// Returns the promises that have to do with a name, something above it or below it, the last one first.
    fn around(&self, name: &Url) -> Vec<(&Deed, &Fact)> {
        let mut at = Some(name.clone());
        let concerns = |(deed, fact): &(&Deed, &Fact)| {
            let Some(now) = &at else {
                return false;
            };
            let urls = [Some(&fact.url), fact.to.as_ref()].into_iter().flatten();
            let mut near =
                urls.filter(|url| moved(now, url, url).is_some() || moved(url, now, now).is_some());
            let is_near = near.next().is_some();
            if is_near {
                at = was_at(now.clone(), deed, fact).or_else(|| at.take());
            }
            is_near
        };
        let deeds = self.facts_backwards(name).into_iter();
        deeds
            .map(|(deed, fact, _)| (deed, fact))
            .filter(concerns)
            .collect()
    }
}

/// Returns the names in a directory that something is promised for; `around`: the deeds that concern it.
fn names_in(directory: &Url, around: &[(&Deed, &Fact)]) -> Vec<Vec<u8>> {
    let (mut at, mut names) = (directory.clone(), Vec::new());
    for (deed, fact) in around {
        let new = fact.to.as_ref().unwrap_or(&fact.url);
        names.extend(last_in(new, &at));
        match was_at(at.clone(), deed, fact) {
            Some(before) => at = before,
            None => break,
        }
    }
    names
}

/// Returns the last part of a name that is in a directory.
fn last_in(name: &Url, directory: &Url) -> Option<Vec<u8>> {
    let (above, last) = split(name)?;
    (above == *directory).then_some(last)
}

/// Returns how it will look once attributes are set.
fn with(mut stat: Stat, values: &Values) -> Stat {
    let set = set(values);
    stat.mode = set.mode.or(stat.mode);
    stat.mtime = set.mtime.or(stat.mtime);
    stat.size = set.length.unwrap_or(stat.size);
    stat
}

/// Adds attributes of an earlier deed: those of later ones count.
fn add(values: &mut Values, earlier: &Values) {
    for (key, value) in earlier {
        values.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

/// The names of a larger directory are looked at one by one.
const LOOKED_MAX: usize = 20_000;
