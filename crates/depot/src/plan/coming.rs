//! Entries that have their place in the order of their name, and whose bytes are still on their way to the disk. Their
//! writers have no answer yet.
//!
//! Operations on the name that arrive meanwhile come after such an entry, and are applied to it. Whatever the target had
//! before is older, whatever its number. A new writer of the name waits for such an entry: its bytes must not lie under
//! those of a writer that ended without an answer.

use crate::{
    disk::files::Id,
    paths::moved,
    plan::{
        all::All,
        asking::{Asking, Name},
        entry::Held,
        state::Visibility,
    },
};
use godwit_core::Url;
use std::{collections::BTreeMap, sync::Arc};

/// One of them.
pub(crate) struct Coming {
    held: Arc<Held>,
    /// Something that was ended after it has its name.
    is_overtaken: bool,
}

/// Those of which somebody ends just now what they wrote.
#[derive(Default)]
pub(crate) struct Ends {
    pub of: BTreeMap<Id, Arc<Held>>,
    pub(crate) waiting: usize,
}

impl All {
    /// From now on what is done to its name is done to it.
    pub(crate) fn comes(&mut self, held: &Arc<Held>) {
        let held = Arc::clone(held);
        if !held.lock().is_current() {
            let is_overtaken = false;
            self.coming.insert(held.id, Coming { held, is_overtaken });
        }
    }

    /// Its bytes are safe: has it be what its name says, and returns whether it is. Nobody undoes by that what ended
    /// after it.
    pub(crate) fn has_come(&mut self, held: &Arc<Held>) -> bool {
        let is_newest = match self.coming.remove(&held.id) {
            Some(coming) => !coming.is_overtaken,
            None => held.lock().is_current(),
        };
        if is_newest {
            self.make_newest(held);
        }
        is_newest
    }

    /// Has readers of its name get this one, which somebody wrote: what they hear of the target is older.
    pub(crate) fn make_newest(&mut self, held: &Arc<Held>) {
        self.make_current(held);
        let key = held.key();
        for coming in self.coming.values_mut() {
            coming.is_overtaken |= coming.held.key() == key && coming.held.number() < held.number();
        }
        if let Some(asking) = self.asking.get(&key) {
            asking.spoil();
        }
    }

    /// What comes is called otherwise, and what comes under the new name goes.
    pub(crate) fn rename_coming(&self, from: &Url, to: &Url) {
        for held in self.coming_below(to) {
            held.lock().visibility = Visibility::Unlinked;
        }
        for held in self.coming_below(from) {
            if let Some(name) = moved(&held.name(), from, to) {
                held.rename(name);
            }
        }
        self.spoil_below(from);
        self.spoil_below(to);
    }

    /// What comes has no name any more.
    pub(crate) fn unlink_coming(&self, at: &Url) {
        for held in self.coming_below(at) {
            held.lock().visibility = Visibility::Unlinked;
        }
        self.spoil_below(at);
    }

    /// Whoever asks the target for such names just now hears what was.
    pub(crate) fn spoil_below(&self, at: &Url) {
        let is_below = |((name, _), _): &(&Name, &Arc<Asking>)| moved(name, at, at).is_some();
        let below = self.asking.iter().filter(is_below);
        below.for_each(|(_, asking)| asking.spoil());
    }

    pub(crate) fn all_coming(&self) -> impl Iterator<Item = &Arc<Held>> {
        self.coming.values().map(|coming| &coming.held)
    }

    fn coming_below(&self, at: &Url) -> Vec<&Arc<Held>> {
        self.all_coming()
            .filter(|held| moved(&held.name(), at, at).is_some() && !held.lock().is_unlinked())
            .collect()
    }
}
