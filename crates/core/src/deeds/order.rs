//! Order of deeds whose names overlap.

use super::{Deed, Deeds, Path, What};
use std::ops::Bound;

impl Deeds {
    /// Returns the number of the first earlier deed whose names overlap those of this deed. To make
    /// a directory does not wait for deeds below it: they need the directory, and an existing one
    /// is kept. `None`: the deed waits for no other.
    pub fn waits_for(&self, number: u64) -> Option<u64> {
        let deed = self.find(number)?;
        let first = match deed.what {
            What::Mkdir => self.upwards_of(&deed.at).min(),
            _ => deed
                .names()
                .filter_map(|name| self.around(name).min())
                .min(),
        };
        let first = first.filter(|first| *first < deed.position)?;
        Some(self.deeds[&first].number)
    }

    /// Returns the last deed whose names overlap `name`.
    pub(super) fn latest(&self, name: &Path) -> Option<&Deed> {
        self.deeds.get(&self.around(name).max()?)
    }

    /// Returns the positions of all deeds whose names overlap `name`, unsorted; a position may
    /// appear twice.
    pub(super) fn around(&self, name: &Path) -> impl Iterator<Item = u64> {
        let (from, to) = name.below();
        let bounds = (as_bytes(&from), as_bytes(&to));
        let below: Vec<_> = self.names.range::<[u8], _>(bounds).collect();
        let below = below.into_iter().flat_map(|(_, positions)| positions);
        self.upwards_of(name).chain(below.copied())
    }

    /// Returns the positions of the deeds at `name` itself and at the directories above it.
    fn upwards_of(&self, name: &Path) -> impl Iterator<Item = u64> {
        let names = name.upwards().filter_map(|n| self.names.get(n));
        names.flatten().copied()
    }

    pub(super) fn insert(&mut self, deed: Deed) {
        let position = deed.position;
        self.last = self.last.max(position).max(deed.number);
        self.changed.insert(deed.number);
        self.positions.insert(deed.number, position);
        for name in deed.names() {
            let at = self.names.entry(name.clone()).or_default();
            at.insert(position);
        }
        let names: Vec<Path> = deed.names().cloned().collect();
        self.deeds.insert(position, deed);
        names.iter().for_each(|name| self.look_around(name));
    }

    pub(super) fn remove(&mut self, position: u64) -> Option<Deed> {
        let deed = self.deeds.remove(&position)?;
        self.changed.insert(deed.number);
        self.positions.remove(&deed.number);
        self.ready.remove(&position);
        self.states.remove(&position);
        self.doubted.remove(&position);
        for name in deed.names() {
            if let Some(positions) = self.names.get_mut(name) {
                positions.remove(&position);
                if positions.is_empty() {
                    self.names.remove(name);
                }
            }
        }
        deed.names().for_each(|name| self.look_around(name));
        Some(deed)
    }

    /// Returns a deed to change. The caller must keep its names and its position.
    pub(super) fn change(&mut self, position: u64) -> Option<&mut Deed> {
        let deed = self.deeds.get_mut(&position)?;
        self.changed.insert(deed.number);
        Some(deed)
    }

    /// Recomputes which deeds around `name` are ready, after a deed was added or removed there.
    fn look_around(&mut self, name: &Path) {
        let positions: Vec<u64> = self.around(name).collect();
        for position in positions {
            let number = self.deeds[&position].number;
            match self.waits_for(number) {
                Some(_) => self.ready.remove(&position),
                None => self.ready.insert(position),
            };
        }
    }
}

fn as_bytes(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(bytes) => Bound::Included(bytes),
        Bound::Excluded(bytes) => Bound::Excluded(bytes),
        Bound::Unbounded => Bound::Unbounded,
    }
}
