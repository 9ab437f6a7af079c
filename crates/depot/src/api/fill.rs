//! Files that programs fill themselves, and names that are locked meanwhile.
//!
//! A program that adds a name locks it until the file is filled; then other programs that add it or [wait](Depot::unlocked)
//! for it are woken. If the filling program goes away, the next one fills the file. A filled file is current as long as it
//! has a tag; its origin is not asked. No reader sees it before it is done, and after a restart an unfinished one is gone.

use crate::{
    Depot, Error, Reading, Result, Who,
    disk::rows::Change,
    id::Id,
    inner::{
        Inner,
        locks::{Locked, Name},
        user::User,
    },
    plan::entry::Entry,
};
use godwit_core::{
    Url, Version,
    holding::{Holding, Mode, OriginState},
};
use godwit_sys::{Leased, Unless, crash, lease};
use parking_lot::MutexGuard;
use std::{
    collections::HashMap,
    fs::{self, File},
    path::PathBuf,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

/// The terms of an adding.
#[derive(Clone, Debug, Default)]
pub struct Add {
    /// The program's name: it does not wait for its own locks.
    pub by: String,
    /// The file must be present as a whole: nothing is filled.
    pub is_there: bool,
    /// How long the lock lasts at most; `None`: until this is dropped.
    pub lasts: Option<Duration>,
}

/// A name that is locked, until this is dropped.
#[derive(Debug)]
pub struct Adding {
    depot: Arc<Inner>,
    name: Name,
    who: Who,
    number: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    /// The file is present.
    There(Reading),
    /// The program fills a file that has no row yet.
    New(Id),
    /// The file was filled.
    Done,
}

impl Depot {
    /// Locks a name, after the locks of others and a fetch in flight. Then the file is present as a whole, or to be filled.
    pub fn add(
        &self,
        url: &Url,
        who: &Who,
        add: &Add,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Adding> {
        let depot = &self.inner;
        let name = (url.clone(), who.audience.clone());
        let number = depot.lock(&name, add, is_wanted)?;
        let mut adding = Adding {
            depot: Arc::clone(depot),
            name,
            who: who.clone(),
            number,
            what: What::Done,
        };
        adding.what = match depot.there(&adding.name, is_wanted)? {
            Some(reading) => What::There(reading),
            None if add.is_there => return Err(Error::Unknown(url.to_string())),
            None => What::New(depot.disk.create()?.0),
        };
        Ok(adding)
    }

    /// Waits until no program outside `us` has a name locked.
    pub fn unlocked(
        &self,
        url: &Url,
        who: &Who,
        us: &[&str],
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<()> {
        if self.inner.locks.count.load(SeqCst) == 0 {
            return Ok(());
        }
        let name = (url.clone(), who.audience.clone());
        let is_ours = |locked: &Locked| us.contains(&&*locked.by);
        self.inner.free_of(&name, is_ours, is_wanted).map(drop)
    }
}

impl Adding {
    /// Tells whether it is to be filled.
    pub fn is_new(&self) -> bool {
        matches!(self.what, What::New(_))
    }

    /// Returns a descriptor to fill or to read the file.
    pub fn file(&self) -> Result<File> {
        match &self.what {
            What::New(id) => self.depot.disk.writer(*id),
            What::There(reading) => self.depot.disk.reader(reading.entry().id),
            What::Done => Err(Error::Ending),
        }
    }

    /// Returns where the file is.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.what {
            What::New(id) => Some(self.depot.disk.path(*id)),
            What::There(reading) => Some(self.depot.disk.path(reading.entry().id)),
            What::Done => None,
        }
    }

    /// Returns its size; 0 if it is to be filled.
    pub fn size(&self) -> u64 {
        match &self.what {
            What::There(reading) => reading.size(),
            _ => 0,
        }
    }

    /// Returns the time that its users gave it.
    pub fn timestamp(&self) -> Option<i64> {
        match &self.what {
            What::There(reading) => reading.entry().lock().meta.stamp,
            _ => None,
        }
    }

    /// Makes the filled file current, and puts a tag on it; both are durable when this returns. An error: the name stays
    /// locked.
    pub fn done(&mut self, tag: Option<(&str, Option<u64>)>, timestamp: Option<i64>) -> Result<()> {
        if !self.depot.locks.is_ours(&self.name, self.number) {
            return Err(self.busy("being added by another program"));
        }
        let user = match &self.what {
            What::Done => return Err(Error::Ending),
            What::New(id) => self.filled(*id)?,
            What::There(reading) => User::of(reading.entry(), &mut reading.entry().lock()),
        };
        let kept = self.tell(&user.entry, tag, timestamp);
        if kept.is_err() && self.is_new() {
            // The file stays, so that it can be tried again.
            self.depot.withdraw(&user.entry);
            return kept;
        }
        kept?;
        let entry = Arc::clone(&user.entry);
        self.what = What::Done;
        drop(user);
        self.depot.locks.free(&self.name, self.number);
        // Its last tag may have been taken off under the lock.
        self.depot.let_lapse(&entry)
    }

    fn tell(
        &self,
        entry: &Arc<Entry>,
        tag: Option<(&str, Option<u64>)>,
        timestamp: Option<i64>,
    ) -> Result<()> {
        if timestamp.is_some() {
            let mut state = entry.lock();
            state.meta.stamp = timestamp;
            state.record.change();
        }
        match tag {
            Some((tag, expires)) => self.depot.tag(entry, tag, None, expires),
            None => entry.commit(&self.depot),
        }
    }

    /// Makes an entry of a filled file that no program can write any more.
    fn filled(&self, id: Id) -> Result<User> {
        let (depot, (url, _)) = (&self.depot, &self.name);
        let path = depot.disk.path(id);
        let found = fs::symlink_metadata(&path).map_err(Error::disk(&path))?;
        if !found.is_file() {
            return Err(self.busy("no file any more where it was to be filled"));
        }
        let file = depot.disk.reader(id)?;
        let _lease = match lease(&file, Unless::Written).map_err(Error::disk(&path))? {
            Leased::Granted(lease) => Some(lease),
            Leased::Refused => {
                return Err(self.busy("still open to be written: it is closed first"));
            }
            // On such a disk the program is believed.
            Leased::Unsupported => None,
        };
        let size = found.len();
        let mut machine = Holding::of(Version::None, size, Mode::Replace);
        if let Some(fetch) = machine.fetch(0..size) {
            machine.arrived(fetch.ticket, 0..size);
            machine.fetched(fetch.ticket, OriginState::Same);
        }
        let entry = depot.new_entry(id, url, &self.who, machine);
        let leaves = depot.hashed(&entry)?.1;
        depot.reserve(url, size)?;
        crash::point("filled");
        let mut state = entry.lock();
        let user = User::of(&entry, &mut state);
        (state.bytes.leaves, state.bytes.reserved) = (leaves, size);
        state.meta.is_filled = true;
        state.record.change();
        drop(state);
        let mut plan = depot.plan();
        let old = plan.current.get(&self.name).cloned();
        if old.as_ref().is_some_and(|old| old.lock().machine.owes()) {
            drop(plan);
            depot.room.release(size);
            return Err(self.busy("put meanwhile, and that counts"));
        }
        plan.insert(&entry);
        plan.make_current(&entry);
        drop(plan);
        if let Some(old) = old {
            depot.let_go(&old)?;
        }
        Ok(user)
    }

    fn busy(&self, what: &str) -> Error {
        Error::in_use(self.name.0.clone(), what)
    }
}

impl Drop for Adding {
    fn drop(&mut self) {
        if let What::New(id) = self.what
            && let Err(error) = self.depot.disk.remove(id)
        {
            tracing::warn!(%error, url = %self.name.0, "what was not filled cannot be removed");
        }
        self.what = What::Done;
        self.depot.locks.free(&self.name, self.number);
    }
}

impl Inner {
    /// Locks a name; returns by which number.
    fn lock(&self, name: &Name, add: &Add, is_wanted: &dyn Fn() -> bool) -> Result<u64> {
        let mut names = self.free_of(name, |_| false, is_wanted)?;
        let number = self.numbers.next();
        let locked = Locked {
            number,
            by: add.by.clone(),
            until: add.lasts.map(|lasts| Instant::now() + lasts),
        };
        names.insert(name.clone(), locked);
        self.locks.count.store(names.len(), SeqCst);
        Ok(number)
    }

    /// Waits until only `is_ours` have a name locked. Checks `is_wanted` now and then.
    fn free_of(
        &self,
        name: &Name,
        is_ours: impl Fn(&Locked) -> bool,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<MutexGuard<'_, HashMap<Name, Locked>>> {
        let mut names = self.locks.names.lock();
        loop {
            let now = Instant::now();
            let left = match names.get(name).filter(|locked| !is_ours(locked)) {
                None => return Ok(names),
                Some(Locked { until: None, .. }) => LOOK,
                Some(Locked {
                    until: Some(until), ..
                }) => until.saturating_duration_since(now),
            };
            if left.is_zero() {
                return Ok(names);
            }
            if self.is_ending() {
                return Err(Error::Ending);
            }
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            self.locks.freed.wait_for(&mut names, left.min(LOOK));
        }
    }

    /// Returns the file of a name that is present as a whole. Waits for a fetch in flight.
    fn there(&self, name: &Name, is_wanted: &dyn Fn() -> bool) -> Result<Option<Reading>> {
        loop {
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            let plan = self.plan();
            if let Some(asking) = plan.asking.get(name).cloned() {
                drop(plan);
                // The answer is for that caller; the next look finds what came of it.
                let _ = asking.wait(is_wanted)?;
                continue;
            }
            let Some(entry) = plan.current.get(name).cloned() else {
                return Ok(None);
            };
            drop(plan);
            let mut state = entry.lock();
            let is_own = entry.who.audience == name.1;
            if state.is_gone || !is_own || state.machine.is_blind() {
                return Ok(None);
            }
            if state.machine.is_whole() && !state.is_lapsed() {
                let file = self.disk.reader(entry.id)?;
                let (size, user) = (state.machine.size(), User::of(&entry, &mut state));
                return Ok(Some(Reading::of(file, size, user)));
            }
            // Without a writer, an entry that may not be forgotten is being fetched.
            let is_coming = !state.machine.owes() && !state.machine.may_be_forgotten();
            if !is_coming {
                return Ok(None);
            }
            entry.wait(&mut state, Some(Instant::now() + LOOK));
        }
    }

    /// Tells whether a program filled the current entry of a name.
    pub(crate) fn is_filled(&self, url: &Url, who: &Who) -> bool {
        let name = (url.clone(), who.audience.clone());
        let current = self.plan().current.get(&name).cloned();
        current.is_some_and(|entry| {
            let state = entry.lock();
            state.meta.is_filled && !state.machine.owes()
        })
    }

    /// Takes back an entry that could not be persisted. Its file stays for the program that filled it.
    fn withdraw(&self, entry: &Arc<Entry>) {
        let mut state = entry.lock();
        state.is_gone = true;
        let reserved = std::mem::take(&mut state.bytes.reserved);
        if state.record.has_row {
            self.records.write_behind(Change::Forget(entry.id));
        }
        drop(state);
        self.room.release(reserved);
        self.plan().remove(entry);
    }
}

/// How often a waiter checks whether to go on; the end of a lock wakes it.
const LOOK: Duration = Duration::from_secs(1);
