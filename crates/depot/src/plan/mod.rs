//! The state of a depot, and what is to be done next: entries, their names and order, and the next delivery.
//!
//! The plan knows no file, no thread and no clock: its callers pass the time, and the threads of `work` do what it decides.
//! One lock of [`crate::inner::Inner`] guards it. An entry has a lock of its own, which is taken after that one.

pub(crate) mod asking;
pub(crate) mod backoff;
pub(crate) mod change;
pub(crate) mod close;
pub(crate) mod coming;
pub(crate) mod delivery;
pub(crate) mod entry;
pub(crate) mod fairness;
pub(crate) mod forwarded;
pub(crate) mod leftovers;
pub(crate) mod listings;
pub(crate) mod names;
pub(crate) mod order;
pub(crate) mod schedule;
pub(crate) mod state;
pub(crate) mod supersede;

use crate::{
    Who,
    id::Id,
    plan::{
        asking::{Asking, Name},
        backoff::Backoff,
        coming::{Coming, Ends},
        entry::Entry,
        forwarded::Forwarded,
        leftovers::Leftover,
        listings::Listings,
        names::Called,
        order::Order,
        schedule::Picks,
        state::Visibility,
    },
};
use godwit_core::{Url, holding::Mode};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// All entries, and what is pending.
#[derive(Default)]
pub(crate) struct Plan {
    pub by_id: BTreeMap<Id, Arc<Entry>>,
    /// Pending entries, by their numbers.
    pub pending: BTreeMap<u64, Arc<Entry>>,
    /// Pending entries that only their writers know.
    pub private: BTreeMap<Id, Arc<Entry>>,
    /// Entries that have a place in the order, and of which readers do not know yet.
    pub coming: BTreeMap<Id, Coming>,
    /// Entries whose writers end just now.
    pub ends: Ends,
    /// The order of pending operations.
    pub order: Order,
    /// Files that hops have taken over, and of which nothing is here any more.
    pub forwarded: BTreeMap<(Url, String), Forwarded>,
    pub cleanup: Cleanup,
    pub unreadable: UnreadableRows,
    /// The entry that readers of a name get.
    pub current: BTreeMap<Name, Arc<Entry>>,
    /// Entries by their names.
    pub called: Arc<Called>,
    /// Questions to origins in flight, by name.
    pub asking: HashMap<Name, Arc<Asking>>,
    pub backoff: Backoff,
    /// Directories as servers listed them last.
    pub listings: Listings,
    /// Candidates for the next deliveries.
    pub picks: Picks,
    pub numbers: Numbers,
}

/// Numbers of entries and operations, which tell their order. Threads share them.
#[derive(Clone, Default)]
pub(crate) struct Numbers(Arc<AtomicU64>);

impl Numbers {
    /// Returns numbers greater than this one.
    pub(crate) fn after(number: u64) -> Self {
        Self(Arc::new(AtomicU64::new(number)))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Relaxed) + 1
    }
}

/// Rests that no caller needs any more, and that still have to be removed.
#[derive(Default)]
pub(crate) struct Cleanup {
    /// Partial uploads at targets that no writer will finish.
    pub leftovers: Vec<Leftover>,
    /// Entries that are gone, and whose rows could not be removed yet.
    pub unforgotten: Vec<Gone>,
}

/// Rows with a name that cannot be read.
#[derive(Default)]
pub(crate) struct UnreadableRows {
    pub entries: BTreeMap<Id, Unreadable>,
    pub deeds: Vec<OddDeed>,
}

/// A row of an operation of which a name cannot be read, as it stands there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OddDeed {
    pub number: u64,
    pub url: String,
    /// The new name of a rename.
    pub to: Option<String>,
    pub what: String,
    pub session: String,
    /// Seconds since the epoch.
    pub created_at: u64,
}

/// A row of an entry whose name cannot be read: it is shown, and left alone until a person discards it.
pub(crate) struct Unreadable {
    /// The name as the row has it.
    pub url: String,
    pub size: u64,
    pub pending_bytes: u64,
    pub created_at: u64,
    pub session: String,
    pub reserved: u64,
}

/// An entry that no reader gets any more, and whose file stays until its row is removed.
pub(crate) struct Gone {
    pub id: Id,
    pub reserved: u64,
    /// The time of the next attempt.
    pub at: Instant,
}

impl Plan {
    pub(crate) fn keep(&mut self, entry: &Arc<Entry>) {
        self.by_id.insert(entry.id, Arc::clone(entry));
        entry.call(&self.called);
    }

    pub(crate) fn insert(&mut self, entry: &Arc<Entry>) {
        self.keep(entry);
        let state = entry.lock();
        let (is_private, is_pending) = (state.is_private(), state.machine.owes());
        let goes_ahead = state.machine.mode() == Mode::Replace;
        drop(state);
        match (is_private, is_pending) {
            // An open entry has no place in the order.
            (true, _) => {
                if goes_ahead {
                    self.private.insert(entry.id, Arc::clone(entry));
                }
                self.pending.insert(entry.number(), Arc::clone(entry));
            }
            (false, true) => self.enqueue_as(entry, entry.number()),
            (false, false) => {}
        }
    }

    /// Returns the entry that a reader of a name gets; `None`: none is here.
    pub(crate) fn current_of(&self, url: &Url, who: &Who) -> Option<Arc<Entry>> {
        let key = (url.clone(), who.audience.clone());
        self.current.get(&key).cloned()
    }

    /// Makes an entry the one that readers of its name get.
    pub(crate) fn make_current(&mut self, entry: &Arc<Entry>) {
        if let Some(old) = self.current.insert(entry.key(), Arc::clone(entry))
            && old.id != entry.id
        {
            old.lock().hide();
        }
        entry.lock().visibility = Visibility::Current;
    }

    pub(crate) fn remove(&mut self, entry: &Entry) {
        self.by_id.remove(&entry.id);
        entry.uncall();
        self.private.remove(&entry.id);
        self.coming.remove(&entry.id);
        self.pending.remove(&entry.number());
        self.remove_current(entry);
    }
}
