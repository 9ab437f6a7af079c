//! Names that are locked while a program fills, or is about to forget, their file.

use crate::inner::turns::Turns;
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

/// A name, and the audience for which it is locked.
pub(crate) type Name = (Url, String);

/// Names that programs have locked.
#[derive(Default)]
pub(crate) struct Locks {
    pub names: Mutex<HashMap<Name, Locked>>,
    /// The number of locked names: readers look at this alone.
    pub count: AtomicUsize,
    pub freed: Condvar,
    /// The turns of patches, one at a time for each file.
    pub turns: Turns,
}

pub(crate) struct Locked {
    pub number: u64,
    /// The holder's own name.
    pub by: String,
    /// When the next waiter takes the lock over; `None`: never.
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

    /// Wakes all waiters, since the depot ends.
    pub(crate) fn nudge(&self) {
        drop(self.names.lock());
        self.freed.notify_all();
    }

    /// Tells whether any name is locked.
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }
}
