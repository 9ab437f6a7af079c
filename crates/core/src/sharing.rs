//! Local ranges of a file that programs of one machine read and write together.
//!
//! The programs use one sparse file. Bytes of the server fill it when a program reads them. Bytes
//! that a program writes are right, whatever the server has.

use crate::Extents;
use std::{collections::BTreeMap, ops::Range};

/// One fetch of a shared file.
pub type Fetching = u64;

/// A file that programs of one machine share.
#[derive(Clone, Debug, Default)]
pub struct Sharing {
    /// The length of the server's file, as far as it is still part of this one.
    there: u64,
    /// Start of the range that programs write without a message: no bytes arrive there before the
    /// next check.
    free_from: u64,
    /// Ranges that arrived from the server and are of one version.
    clean: Extents,
    /// Ranges that a program has written, or may be writing. Arriving bytes never overwrite them.
    granted: Extents,
    /// Ranges in flight, by fetch.
    coming: BTreeMap<Fetching, Extents>,
    /// Bytes that were written and that the server lacks.
    owed: Extents,
    /// The shortest that a program made the file since the last delivery.
    cut: Option<u64>,
    /// A program set the length since the last delivery.
    is_resized: bool,
    /// The server's file was changed by others since the last look.
    is_stale: bool,
    fetches: Fetching,
}

/// The difference of a file to the server's.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Delivery {
    /// The length to cut the server's file to, before anything is written.
    pub cut: Option<u64>,
    /// The bytes to write after that.
    pub ranges: Extents,
    /// The length of the file after both.
    pub size: u64,
    /// All bytes of the file are in `ranges`: it can be replaced in one step.
    pub is_whole: bool,
}

impl Delivery {
    /// Tells whether the server has all of the file already.
    pub fn is_empty(&self) -> bool {
        self.cut.is_none() && self.ranges.is_empty()
    }
}

impl Sharing {
    /// Returns the state of a file of which the server has so many bytes, and this machine none.
    pub fn new(there: u64) -> Self {
        Self {
            there,
            free_from: there,
            ..Self::default()
        }
    }

    /// Returns the bytes that the server has and this machine has not.
    pub fn missing(&self, wanted: &Extents) -> Extents {
        let there = Extents::from(0..self.there.min(self.free_from));
        wanted.and(&there).minus(&self.clean).minus(&self.granted)
    }

    /// Begins to fetch the ranges that are missing and not in flight; `None`: there are none.
    pub fn fetch(&mut self, wanted: &Extents) -> Option<(Fetching, Extents)> {
        let mut ranges = self.missing(wanted);
        for coming in self.coming.values() {
            ranges = ranges.minus(coming);
        }
        if ranges.is_empty() {
            return None;
        }
        self.fetches += 1;
        self.coming.insert(self.fetches, ranges.clone());
        Some((self.fetches, ranges))
    }

    /// Returns the ranges of an arrived block that may be written to the file.
    pub fn arrived(&self, fetch: Fetching, block: Range<u64>) -> Extents {
        let Some(coming) = self.coming.get(&fetch) else {
            return Extents::new();
        };
        let there = block.start..block.end.min(self.there.min(self.free_from));
        if there.is_empty() {
            return Extents::new();
        }
        Extents::from(there).and(coming).minus(&self.granted)
    }

    /// Ends a fetch. Its bytes count only if all of them arrived, and of this file's version.
    pub fn fetched(&mut self, fetch: Fetching, is_good: bool) {
        let Some(came) = self.coming.remove(&fetch) else {
            return;
        };
        if is_good {
            self.clean = self.clean.or(&came.minus(&self.granted));
        }
    }

    /// Returns where the bytes begin that programs write without a grant, until the next look.
    pub fn free_from(&self) -> u64 {
        self.free_from
    }

    /// Notes that programs are about to write ranges.
    pub fn grant(&mut self, ranges: &Extents) {
        for range in ranges.iter() {
            self.granted.insert(range);
        }
    }

    /// Notes that programs have written ranges.
    pub fn wrote(&mut self, ranges: &Extents) {
        self.grant(ranges);
        for range in ranges.iter() {
            self.owed.insert(range);
        }
    }

    /// Notes that a program gave the file a length.
    pub fn resized(&mut self, from: u64, to: u64) {
        self.is_resized = true;
        if to >= from {
            return;
        }
        let cut = self.cut.unwrap_or(u64::MAX).min(to);
        self.cut = Some(cut);
        self.there = self.there.min(to);
        for ranges in [&mut self.clean, &mut self.granted, &mut self.owed] {
            ranges.remove(to..u64::MAX);
        }
        for coming in self.coming.values_mut() {
            coming.remove(to..u64::MAX);
        }
    }

    /// Tells whether the server lacks bytes that were written.
    pub fn owes(&self) -> bool {
        !self.owed.is_empty() || self.cut.is_some()
    }

    /// Begins to deliver the bytes that the server lacks of the file, which has `size` bytes now.
    pub fn deliver(&mut self, size: u64) -> Delivery {
        let mut ranges = self.owed.and(&Extents::from(0..size));
        // A length beyond the last written byte is sent as its last byte, which is zero.
        if self.is_resized && size > ranges.end().max(self.there) {
            ranges.insert(size - 1..size);
        }
        self.owed = Extents::new();
        self.is_resized = false;
        Delivery {
            cut: self.cut,
            is_whole: size > 0 && ranges.contains(&(0..size)),
            ranges,
            size,
        }
    }

    /// Notes that a delivery is at the server.
    pub fn delivered(&mut self, delivery: &Delivery) {
        if self.cut == delivery.cut {
            self.cut = None;
        }
        if self.there < delivery.size {
            // What no program wrote behind the old end is zeros there as here.
            let grown = Extents::from(self.there..delivery.size);
            self.clean = self.clean.or(&grown.minus(&self.granted));
            self.there = delivery.size;
        }
    }

    /// Notes that a delivery failed: the next one has what this one had.
    pub fn failed(&mut self, delivery: &Delivery) {
        self.owed = self.owed.or(&delivery.ranges.and(&self.granted));
        self.is_resized = true;
    }

    /// Notes that the server has another file by now, of so many bytes. Bytes that programs wrote stay.
    pub fn forget_clean(&mut self, there: u64) {
        self.there = self.cut.map_or(there, |cut| cut.min(there));
        self.clean = Extents::new();
        self.coming.clear();
        self.is_stale = true;
    }

    /// Ends a check of the server while no program of this machine writes the file. If others
    /// changed the server's file since the last check, its bytes count. Pending bytes stay.
    pub fn looked(&mut self, there: u64, is_changed: bool) {
        if is_changed || self.is_stale {
            self.forget_clean(there);
            self.granted = self.owed.clone();
        }
        self.is_stale = false;
        self.free_from = self.there;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[Range<u64>]) -> Extents {
        let mut extents = Extents::new();
        ranges
            .iter()
            .for_each(|range| extents.insert(range.clone()));
        extents
    }

    #[test]
    fn a_fetch_leaves_written_bytes() {
        let mut file = Sharing::new(100);
        file.wrote(&Extents::from(10..20));
        let (fetch, ranges) = file.fetch(&Extents::from(0..50)).unwrap();
        assert_eq!(ranges, of(&[0..10, 20..50]));
        file.grant(&Extents::from(30..40));
        assert_eq!(file.arrived(fetch, 0..50), of(&[0..10, 20..30, 40..50]));
        assert!(
            file.fetch(&Extents::from(0..50)).is_none(),
            "it is on its way"
        );
        file.fetched(fetch, true);
        assert!(file.missing(&Extents::from(0..50)).is_empty());
    }

    #[test]
    fn a_failed_delivery_is_owed_again() {
        let mut file = Sharing::new(0);
        file.resized(0, 500);
        file.wrote(&Extents::from(10..20));
        let first = file.deliver(500);
        assert_eq!(first.ranges, of(&[10..20, 499..500]));
        file.wrote(&Extents::from(15..30));
        file.failed(&first);
        let second = file.deliver(500);
        assert_eq!(second.ranges, of(&[10..30, 499..500]));
        file.delivered(&second);
        assert!(file.deliver(500).is_empty());
        assert!(file.missing(&Extents::from(0..500)).is_empty());
    }

    #[test]
    fn bytes_behind_a_cut_are_zeros() {
        let mut file = Sharing::new(100);
        file.wrote(&Extents::from(80..90));
        file.resized(100, 50);
        file.resized(50, 100);
        let delivery = file.deliver(100);
        assert_eq!(delivery.cut, Some(50));
        assert_eq!(delivery.ranges, Extents::from(99..100));
        assert_eq!(file.missing(&Extents::from(0..100)), Extents::from(0..50));
    }

    /// A file of a server, programs that read and write it through one machine, and others that write it at the server.
    struct SharingModel {
        random: u64,
        server: Vec<u8>,
        /// Counts how often others changed the server's file.
        version: u64,
        local: Vec<u8>,
        /// Bytes that programs wrote since the last sync.
        written: BTreeMap<u64, u8>,
        /// The file as the programs must see it: of several versions where others wrote.
        seen: Vec<Vec<u8>>,
        sharing: Sharing,
        base: u64,
    }

    impl SharingModel {
        fn roll(&mut self, below: u64) -> u64 {
            self.random = self
                .random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.random >> 33) % below
        }

        fn range(&mut self) -> Range<u64> {
            let start = self.roll(SIZE);
            start..start + 1 + self.roll(SIZE - start)
        }

        fn ensure(&mut self, wanted: &Extents) {
            while !self.sharing.missing(wanted).is_empty() {
                let (fetch, ranges) = self.sharing.fetch(wanted).unwrap();
                let is_changed = self.roll(8) == 0;
                if is_changed {
                    self.others_write();
                }
                for range in ranges.iter() {
                    for at in self.sharing.arrived(fetch, range).iter() {
                        for at in at {
                            let byte = self.server.get(at as usize).copied().unwrap_or(0);
                            self.local[at as usize] = byte;
                        }
                    }
                }
                let is_base = self.version == self.base;
                self.sharing.fetched(fetch, is_base);
                if !is_base {
                    self.base = self.version;
                    self.sharing.forget_clean(self.server.len() as u64);
                }
            }
        }

        fn others_write(&mut self) {
            let (range, byte) = (self.range(), self.roll(200) as u8);
            let end = self.server.len() as u64;
            for at in range.start..range.end.min(end) {
                self.server[at as usize] = byte;
            }
            self.version += 1;
            self.seen.push(self.server.clone());
        }

        fn sync(&mut self) {
            let size = self.local.len() as u64;
            let delivery = self.sharing.deliver(size);
            if self.roll(4) == 0 {
                self.sharing.failed(&delivery);
                return;
            }
            if let Some(cut) = delivery.cut {
                self.server.truncate(cut as usize);
            }
            for at in delivery.ranges.iter().flatten() {
                let at = at as usize;
                if self.server.len() <= at {
                    self.server.resize(at + 1, 0);
                }
                self.server[at] = self.local[at];
            }
            self.sharing.delivered(&delivery);
            self.written.clear();
            self.seen = vec![self.server.clone()];
            let is_changed = self.version != self.base;
            self.base = self.version;
            self.sharing.looked(self.server.len() as u64, is_changed);
        }

        fn check(&mut self) {
            let range = self.range();
            let end = range.end.min(self.local.len() as u64);
            if range.start >= end {
                return;
            }
            self.ensure(&Extents::from(range.start..end));
            for at in range.start..end {
                let byte = self.local[at as usize];
                match self.written.get(&at) {
                    Some(written) => assert_eq!(byte, *written, "written at {at}"),
                    None => assert!(
                        self.seen
                            .iter()
                            .any(|seen| seen.get(at as usize).copied().unwrap_or(0) == byte),
                        "no version has {byte} at {at}"
                    ),
                }
            }
        }
    }

    const SIZE: u64 = 64;

    #[test]
    fn programs_see_what_they_wrote() {
        for seed in 0..2_000 {
            let server: Vec<u8> = (0..SIZE).map(|at| at as u8).collect();
            let mut world = SharingModel {
                random: seed,
                local: vec![0; server.len()],
                seen: vec![server.clone()],
                sharing: Sharing::new(SIZE),
                server,
                version: 0,
                written: BTreeMap::new(),
                base: 0,
            };
            for _ in 0..60 {
                match world.roll(10) {
                    0..4 => {
                        let range = world.range();
                        let byte = 200 + world.roll(50) as u8;
                        let end = (range.end as usize).max(world.local.len());
                        world.local.resize(end, 0);
                        if range.start < world.sharing.free_from() {
                            world.sharing.grant(&Extents::from(range.clone()));
                        }
                        for at in range.clone() {
                            world.local[at as usize] = byte;
                            world.written.insert(at, byte);
                        }
                        world.sharing.wrote(&Extents::from(range));
                    }
                    4..7 => world.check(),
                    7 => {
                        let (from, to) = (world.local.len() as u64, world.roll(SIZE + 1));
                        world.local.resize(to as usize, 0);
                        world.sharing.resized(from, to);
                        world.written.retain(|at, _| *at < to);
                        for seen in &mut world.seen {
                            seen.truncate(to as usize);
                        }
                    }
                    8 => world.others_write(),
                    _ => world.sync(),
                }
            }
        }
    }
}
