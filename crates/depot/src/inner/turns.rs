//! One patch at a time for each name.

use godwit_core::Url;
use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;

/// Names that a patch is being merged into.
#[derive(Default)]
pub(crate) struct Turns {
    taken: Mutex<HashSet<Key>>,
    changed: Condvar,
}

type Key = (Url, String);

/// The turn of a patch, until this is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    key: Key,
}

impl Turns {
    pub(crate) fn take(&self, key: Key) -> Turn<'_> {
        let mut taken = self.taken.lock();
        while !taken.insert(key.clone()) {
            self.changed.wait(&mut taken);
        }
        drop(taken);
        Turn { turns: self, key }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.taken.lock().remove(&self.key);
        self.turns.changed.notify_all();
    }
}
