//! Entries that have their place in the order of their name, and whose bytes are still on their way to the disk. Their
//! writers have no answer yet.
//!
//! Operations on the name that arrive meanwhile come after such an entry, and are applied to it. Whatever the target had
//! before is older, whatever its number. A new writer of the name waits for such an entry: its bytes must not lie under
//! those of a writer that ended without an answer.

use crate::{
    id::Id,
    paths::moved,
    plan::{
        Plan,
        asking::{Asking, Name},
        entry::Entry,
        state::Visibility,
    },
};
use godwit_core::Url;
use std::{collections::BTreeMap, sync::Arc};

/// An entry that has its place in the order, and is not durable yet.
pub(crate) struct Coming {
    entry: Arc<Entry>,
    /// Its place when its writer closed it. A delivery gives a renamed entry another number.
    place: u64,
    /// A later entry has its name already.
    is_overtaken: bool,
}

/// Entries that their writers are closing.
#[derive(Default)]
pub(crate) struct Ends {
    pub of: BTreeMap<Id, Arc<Entry>>,
    pub(crate) waiting: usize,
}

impl Plan {
    /// Applies operations on its name to this entry from now on.
    pub(crate) fn comes(&mut self, entry: &Arc<Entry>) {
        let state = entry.lock();
        let place = state.delivery.next_place.unwrap_or(entry.number());
        if !state.is_current() {
            drop(state);
            let coming = Coming {
                entry: Arc::clone(entry),
                place,
                is_overtaken: false,
            };
            self.coming.insert(entry.id, coming);
        }
    }

    /// Makes a durable entry the current one of its name, unless a later one is. Returns whether it is current.
    pub(crate) fn has_come(&mut self, entry: &Arc<Entry>) -> bool {
        let (is_newest, place) = match self.coming.remove(&entry.id) {
            Some(coming) => (!coming.is_overtaken, coming.place),
            None => (entry.lock().is_current(), entry.number()),
        };
        if is_newest {
            self.make_newest_at(entry, place);
        }
        is_newest
    }

    /// Makes a written entry the current one. Answers of the target that are in flight are older.
    pub(crate) fn make_newest(&mut self, entry: &Arc<Entry>) {
        self.make_newest_at(entry, entry.number());
    }

    fn make_newest_at(&mut self, entry: &Arc<Entry>, place: u64) {
        self.make_current(entry);
        let key = entry.key();
        for coming in self.coming.values_mut() {
            coming.is_overtaken |= coming.entry.key() == key && coming.place < place;
        }
        if let Some(asking) = self.asking.get(&key) {
            asking.spoil();
        }
    }

    /// Renames coming entries, and unlinks those under the new name.
    pub(crate) fn rename_coming(&self, from: &Url, to: &Url) {
        for entry in self.coming_below(to) {
            entry.lock().visibility = Visibility::Unlinked;
        }
        for entry in self.coming_below(from) {
            if let Some(name) = moved(&entry.name(), from, to) {
                entry.rename(name);
            }
        }
        self.spoil_below(from);
        self.spoil_below(to);
    }

    /// Unlinks coming entries.
    pub(crate) fn unlink_coming(&self, at: &Url) {
        for entry in self.coming_below(at) {
            entry.lock().visibility = Visibility::Unlinked;
        }
        self.spoil_below(at);
    }

    /// Invalidates questions about such names that are in flight.
    pub(crate) fn spoil_below(&self, at: &Url) {
        let is_below = |((name, _), _): &(&Name, &Arc<Asking>)| moved(name, at, at).is_some();
        let below = self.asking.iter().filter(is_below);
        below.for_each(|(_, asking)| asking.spoil());
    }

    pub(crate) fn all_coming(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.coming.values().map(|coming| &coming.entry)
    }

    fn coming_below(&self, at: &Url) -> Vec<&Arc<Entry>> {
        self.all_coming()
            .filter(|entry| moved(&entry.name(), at, at).is_some() && !entry.lock().is_unlinked())
            .collect()
    }
}
