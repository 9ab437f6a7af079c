//! One entry: its machine, its file, and the threads that wait for it.

use crate::{
    Who,
    id::Id,
    plan::{asking::Name, names::Called, state::State},
};
use godwit_core::{Chain, Digest, Url, holding::Holding};
use godwit_store::Sink;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// A file of another server in this depot.
pub(crate) struct Entry {
    pub id: Id,
    names: RwLock<Names>,
    pub who: Who,
    /// Its place in the order; of one name the smaller is delivered first.
    number: AtomicU64,
    /// The time of its creation, in seconds since the epoch.
    pub created_at: u64,
    pub used: AtomicU64,
    /// The time at which all bytes were last compared with their hash, or arrived, in seconds since the epoch.
    pub verified: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

/// The names of an entry.
struct Names {
    /// Its name at the target.
    url: Url,
    /// Its local name, if it was renamed while it was pending.
    name: Option<Url>,
    /// The index that finds it by both.
    called: Option<Arc<Called>>,
}

impl Names {
    fn of(url: Url) -> RwLock<Self> {
        RwLock::new(Self {
            url,
            name: None,
            called: None,
        })
    }

    fn both(&self) -> [&Url; 2] {
        [&self.url, self.name.as_ref().unwrap_or(&self.url)]
    }

    /// Sets both names, and brings the index up to date.
    fn set(&mut self, id: Id, url: Url, name: Option<Url>) {
        if let Some(called) = &self.called {
            called.remove(self.both(), id);
        }
        (self.url, self.name) = (url, name);
        if let Some(called) = &self.called {
            called.add(self.both(), id);
        }
    }
}

/// An upload to the target that goes on later.
pub(crate) struct Parked {
    pub sink: Box<dyn Sink>,
    /// The name at the target.
    pub at: Url,
    pub attempt: u64,
    /// The generation that it uploads.
    pub generation: u64,
    /// The ranges that were sent, if the target cannot take them back.
    pub once: Option<Mutex<godwit_core::Extents>>,
    /// The target publishes only bytes that have the hash that we send.
    pub compares: bool,
}

/// A request to a target to publish a generation.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub generation: u64,
    pub size: u64,
    /// Its hash, if that is known.
    pub digest: Option<Digest>,
}

impl Parked {
    /// Tells whether it is about what is to be sent now.
    pub(crate) fn is_of(&self, entry: &Entry, machine: &Holding) -> bool {
        let is_upload = (self.attempt, self.generation) == (machine.attempt(), machine.sending());
        is_upload && self.at == entry.url()
    }
}

impl Entry {
    /// Returns an entry with this place in the order, which was created at this time.
    pub(crate) fn new(
        id: Id,
        (number, created_at): (u64, u64),
        url: Url,
        who: Who,
        machine: Holding,
    ) -> Self {
        Self {
            id,
            names: Names::of(url),
            who,
            number: AtomicU64::new(number),
            created_at,
            used: AtomicU64::new(created_at),
            verified: AtomicU64::new(created_at),
            state: Mutex::new(State::of(machine)),
            changed: Condvar::new(),
        }
    }

    /// Returns its name at the target.
    pub(crate) fn url(&self) -> Url {
        self.names.read().url.clone()
    }

    /// Returns its local name.
    pub(crate) fn name(&self) -> Url {
        let names = self.names.read();
        names.name.as_ref().unwrap_or(&names.url).clone()
    }

    /// Returns the key by which readers find it.
    pub(crate) fn key(&self) -> Name {
        (self.name(), self.who.audience.clone())
    }

    /// Tells whether it was renamed while it was pending.
    pub(crate) fn is_renamed(&self) -> bool {
        self.names.read().name.is_some()
    }

    /// Tells whether a program of this machine removed it from its target, or is about to: then it is not lost.
    pub(crate) fn may_be_elsewhere(&self, state: &State) -> bool {
        let has_its_name = state.is_current() && !self.is_renamed();
        state.validity.is_changed_at_target || !has_its_name
    }

    /// Changes its local name; its name at the target stays.
    pub(crate) fn rename(&self, name: Url) {
        let mut names = self.names.write();
        let url = names.url.clone();
        let name = (name != url).then_some(name);
        names.set(self.id, url, name);
    }

    /// Changes both names.
    pub(crate) fn redirect(&self, url: Url) {
        self.names.write().set(self.id, url, None);
    }

    /// Changes its name at the target; its local name stays.
    pub(crate) fn reroute(&self, url: Url) {
        let mut names = self.names.write();
        let name = names.name.as_ref().unwrap_or(&names.url).clone();
        let name = (name != url).then_some(name);
        names.set(self.id, url, name);
    }

    /// Enters it into the index of names.
    pub(crate) fn call(&self, called: &Arc<Called>) {
        let mut names = self.names.write();
        called.add(names.both(), self.id);
        names.called = Some(Arc::clone(called));
    }

    /// Takes it from the index of names.
    pub(crate) fn uncall(&self) {
        let mut names = self.names.write();
        if let Some(called) = names.called.take() {
            called.remove(names.both(), self.id);
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    /// Sets its place in the order.
    pub(crate) fn renumber(&self, number: u64) {
        self.number.store(number, Relaxed);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for a change, until that time at most.
    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, State>, until: Option<Instant>) {
        match until {
            None => self.changed.wait(state),
            Some(until) => drop(self.changed.wait_until(state, until)),
        }
    }

    /// Locks it while no patch is being merged into it.
    pub(crate) fn lock_merged(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.bytes.is_merging {
            self.wait(&mut state, None);
        }
        state
    }

    /// Wakes all threads that wait for a change.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }

    /// Returns the known hashes of its leaves, for a file of that size.
    pub(crate) fn chains(&self, size: u64) -> Vec<(u64, Chain)> {
        self.lock().bytes.leaves.known(size).collect()
    }
}

/// Returns the name of an upload at its target.
pub(crate) fn upload_of(id: Id, generation: u64) -> String {
    format!("{id}.{generation}")
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.id, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_core::holding::{Base, Mode};
    use godwit_store::{Store, Write};
    use std::path::Path;

    /// The target would show the upload under the old name.
    #[test]
    fn rename_begins_another_upload() {
        let url = |name: &str| Url::from_argument(format!("ftp://far/{name}")).unwrap();
        let machine = Holding::born(Base::Any, Mode::Replace);
        let who = Who::default();
        let entry = Entry::new(Id::of([1; 12]), (1, 0), url("a"), who, machine);
        let store = godwit_store::Memory::new();
        let sink = store.write(Path::new("a"), &Write::default()).unwrap();
        let state = entry.lock();
        let parked = Parked {
            sink,
            at: entry.url(),
            attempt: state.machine.attempt(),
            generation: state.machine.sending(),
            once: None,
            compares: false,
        };
        assert!(parked.is_of(&entry, &state.machine));
        entry.redirect(url("b"));
        assert!(!parked.is_of(&entry, &state.machine));
    }
}
