//! All entries of a depot and all that is pending, behind one lock.

use crate::{
    Who,
    disk::{
        files::Id,
        rows::{OddDeed, Passed, Row},
    },
    plan::{
        asking::{Asking, Name},
        backoff::Backoff,
        coming::{Coming, Ends},
        entry::Held,
        leftovers::Leftover,
        listings::Listings,
        names::Called,
        order::Promises,
        schedule::Picks,
        state::Visibility,
    },
};
use godwit_core::{Url, holding::Mode};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

/// All entries, and what is pending.
#[derive(Default)]
pub(crate) struct All {
    pub by_id: BTreeMap<Id, Arc<Held>>,
    /// Pending entries, by their numbers.
    pub owing: BTreeMap<u64, Arc<Held>>,
    /// Pending entries that only their writers know.
    pub private: BTreeMap<Id, Arc<Held>>,
    /// Entries that have a place in the order, and of which readers do not know yet.
    pub coming: BTreeMap<Id, Coming>,
    /// Entries whose writers end just now.
    pub ends: Ends,
    /// The order of pending operations.
    pub promises: Promises,
    /// Files that hops have taken over, and of which nothing is here any more.
    pub passed: BTreeMap<(Url, String), Passed>,
    pub cleanup: Cleanup,
    pub unreadable: UnreadableRows,
    /// The entry that readers of a name get.
    pub current: BTreeMap<Name, Arc<Held>>,
    /// Entries by their names.
    pub called: Arc<Called>,
    /// Questions to origins in flight, by name.
    pub asking: HashMap<Name, Arc<Asking>>,
    pub backoff: Backoff,
    /// Directories as servers listed them last.
    pub listings: Listings,
    /// Candidates for the next deliveries.
    pub picks: Picks,
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

/// A row of an entry whose name cannot be read: it is shown, and left alone until a person discards it.
pub(crate) struct Unreadable {
    /// As it stands there.
    pub url: String,
    pub size: u64,
    pub owed: u64,
    pub born: u64,
    pub session: String,
    pub reserved: u64,
}

impl Unreadable {
    pub(crate) fn of(row: &Row, reserved: u64) -> Self {
        Self {
            url: row.url.clone(),
            size: row.record.size,
            owed: row.record.owed.len_bytes(),
            born: row.born,
            session: row.session.clone(),
            reserved,
        }
    }
}

/// An entry that no reader gets any more, and whose file stays until its row is removed.
pub(crate) struct Gone {
    pub id: Id,
    pub reserved: u64,
    /// Not before then is it tried again.
    pub at: Instant,
}

impl All {
    pub(crate) fn keep(&mut self, held: &Arc<Held>) {
        self.by_id.insert(held.id, Arc::clone(held));
        held.call(&self.called);
    }

    pub(crate) fn insert(&mut self, held: &Arc<Held>) {
        self.keep(held);
        let state = held.lock();
        let (is_private, owes) = (state.is_private(), state.machine.owes());
        let goes_ahead = state.machine.mode() == Mode::Replace;
        drop(state);
        match (is_private, owes) {
            // What is not ended is nothing yet, and has no place in the order.
            (true, _) => {
                if goes_ahead {
                    self.private.insert(held.id, Arc::clone(held));
                }
                self.owing.insert(held.number(), Arc::clone(held));
            }
            (false, true) => self.owe(held, || held.number()),
            (false, false) => {}
        }
    }

    /// Returns the entry that a reader of a name gets; `None`: none is here.
    pub(crate) fn current_of(&self, url: &Url, who: &Who) -> Option<Arc<Held>> {
        let key = (url.clone(), who.audience.clone());
        self.current.get(&key).cloned()
    }

    /// Has readers of its name get this one.
    pub(crate) fn make_current(&mut self, held: &Arc<Held>) {
        if let Some(old) = self.current.insert(held.key(), Arc::clone(held))
            && old.id != held.id
        {
            old.lock().hide();
        }
        held.lock().visibility = Visibility::Current;
    }

    pub(crate) fn remove(&mut self, held: &Held) {
        self.by_id.remove(&held.id);
        held.uncall();
        self.private.remove(&held.id);
        self.coming.remove(&held.id);
        self.owing.remove(&held.number());
        self.remove_current(held);
    }
}
