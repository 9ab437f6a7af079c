//! Names that are locked while a program fills, or is about to forget, their file.

use crate::plan::turns::Turns;
use godwit_core::Url;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::HashMap,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    time::Instant,
};

/// A name, and for whom it is held.
pub(crate) type Name = (Url, String);

/// Names of which somebody fills, or is about to forget, the file.
#[derive(Default)]
pub(crate) struct Locks {
    pub names: Mutex<HashMap<Name, Locked>>,
    /// How many there are: readers look at this alone.
    pub count: AtomicUsize,
    pub freed: Condvar,
    /// The turns of patches, one at a time for each file.
    pub turns: Turns,
}

pub(crate) struct Locked {
    pub number: u64,
    /// Who does it, as they call themselves.
    pub by: String,
    /// When whoever waits takes it over.
    pub until: Option<Instant>,
}

impl Locks {
    pub(crate) fn is_ours(&self, name: &Name, number: u64) -> bool {
        (self.names.lock().get(name)).is_some_and(|locked| locked.number == number)
    }

    pub(crate) fn free(&self, name: &Name, number: u64) {
        let mut names = self.names.lock();
        if names
            .get(name)
            .is_some_and(|locked| locked.number == number)
        {
            names.remove(name);
            self.count.store(names.len(), SeqCst);
        }
        drop(names);
        self.freed.notify_all();
    }

    /// Has whoever waits look again: there is an end.
    pub(crate) fn nudge(&self) {
        drop(self.names.lock());
        self.freed.notify_all();
    }

    /// Tells whether any name is locked.
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }
}
