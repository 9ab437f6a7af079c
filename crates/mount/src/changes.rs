//! Changes to a file of which parts are here.

use crate::asking::{Failed, Result};
use godwit_core::Extents;
use parking_lot::Mutex;
use std::{
    ops::Range,
    time::{SystemTime, UNIX_EPOCH},
};

/// The changes to a file of which parts are here, and where they need a grant.
pub(crate) struct FileParts {
    /// Bytes from here on need no grant: nothing that the server has comes there.
    pub(crate) free_from: u64,
    pub(crate) changes: Mutex<PendingChanges>,
}

/// The changes that are not handed in.
#[derive(Default)]
pub(crate) struct PendingChanges {
    written: Extents,
    /// The shortest that a program made the file.
    cut: Option<u64>,
    /// The length of the server's file once earlier changes are delivered, as far as it is still part of this one.
    pub(crate) size_at_server: u64,
    /// The time of the last change since the file was opened.
    changed_at_ns: Option<u64>,
}

impl FileParts {
    pub(crate) fn new(size: u64, free_from: u64) -> Self {
        Self {
            free_from,
            changes: Mutex::new(PendingChanges {
                size_at_server: size,
                ..PendingChanges::default()
            }),
        }
    }

    /// Returns when the file was changed last; `None`: not since it was opened.
    pub(crate) fn changed_at_ns(&self) -> Option<u64> {
        self.changes.lock().changed_at_ns
    }

    /// Returns the range that data covers. An error: no file can be that long.
    pub(crate) fn range(at: u64, data: &[u8]) -> Result<Range<u64>> {
        let end = at.checked_add(data.len() as u64);
        let end = end.filter(|end| i64::try_from(*end).is_ok());
        Ok(at..end.ok_or(Failed::Plain(libc::EFBIG))?)
    }
}

impl PendingChanges {
    pub(crate) fn wrote(&mut self, range: Range<u64>) {
        self.written.insert(range);
        self.touch();
    }

    pub(crate) fn resized(&mut self, from: u64, to: u64) {
        if to < from {
            self.cut = Some(self.cut.map_or(to, |cut| cut.min(to)));
            self.size_at_server = self.size_at_server.min(to);
            self.written.remove(to..u64::MAX);
        }
        self.touch();
    }

    fn touch(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_nanos());
        self.changed_at_ns = u64::try_from(now).ok();
    }

    /// Returns the ranges to hand in of a file of this size.
    fn ranges(&self, size: u64) -> Extents {
        let mut ranges = self.written.and(&Extents::from(0..size));
        // A length beyond all written bytes is expressed by the last byte, a zero.
        if size > ranges.end().max(self.size_at_server) {
            ranges.insert(size - 1..size);
        }
        ranges
    }

    /// Takes the changes to hand in of a file of this size: the length to cut it to first, and the ranges.
    pub(crate) fn take(&mut self, size: u64) -> (Option<u64>, Extents) {
        let ranges = self.ranges(size);
        self.written = Extents::new();
        self.size_at_server = size;
        (self.cut.take(), ranges)
    }

    /// Takes back what could not be handed in. Later changes count.
    pub(crate) fn put_back(&mut self, cut: Option<u64>, ranges: &Extents, size: u64) {
        let mut ranges = ranges.clone();
        if let Some(later) = self.cut {
            ranges.remove(later..u64::MAX);
        }
        self.written = self.written.or(&ranges);
        self.size_at_server = self.size_at_server.min(size);
        self.cut = cut.into_iter().chain(self.cut).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(size_at_server: u64) -> PendingChanges {
        PendingChanges {
            size_at_server,
            ..PendingChanges::default()
        }
    }

    #[test]
    fn only_written_bytes_are_taken() {
        let mut changes = changes(100);
        changes.wrote(10..20);
        changes.wrote(90..120);
        let (cut, ranges) = changes.take(120);
        assert_eq!(cut, None);
        assert_eq!(ranges, Extents::from(10..20).or(&Extents::from(90..120)));
        assert!(changes.take(120).1.is_empty());
    }

    #[test]
    fn cut_files_are_told_their_length() {
        let mut changes = changes(100);
        changes.wrote(40..60);
        changes.resized(100, 50);
        changes.resized(50, 80);
        let taken = changes.take(80);
        assert_eq!(
            taken,
            (Some(50), Extents::from(40..50).or(&Extents::from(79..80)))
        );
    }

    #[test]
    fn refused_changes_are_taken_again() {
        let mut changes = changes(100);
        changes.resized(100, 50);
        changes.wrote(10..20);
        let size = changes.size_at_server;
        let (cut, ranges) = changes.take(50);
        changes.wrote(0..5);
        changes.put_back(cut, &ranges, size);
        let taken = changes.take(50);
        assert_eq!(
            taken,
            (Some(50), Extents::from(0..5).or(&Extents::from(10..20)))
        );
    }
}
