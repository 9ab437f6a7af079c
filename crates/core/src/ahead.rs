//! Prediction of the ranges that a reader will want next, from the ranges that it has read.

use crate::Extents;
use std::ops::Range;

/// The smallest part of a file that is fetched for a reader.
pub const STEP_BYTES: u64 = 64 << 10;
/// The most that is fetched before a reader asks for it.
pub const WINDOW_BYTES_MAX: u64 = 16 << 20;

/// The pattern of one reader: in sequence, in strides, or at random.
///
/// Each read that continues a pattern doubles the window; one that does not closes it.
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    last: Range<u64>,
    /// From the start of one read to the start of the next; 0: in sequence.
    stride: Option<u64>,
    window: u64,
    /// End of the ranges requested ahead.
    until: u64,
}

impl Ahead {
    /// Notes a read; returns the ranges worth fetching ahead.
    pub fn read(&mut self, read: Range<u64>) -> Extents {
        if read.is_empty() || read == self.last {
            return Extents::new();
        }
        let stride = self.stride_to(&read);
        let is_going_on = stride.is_some() && (stride == self.stride || stride == Some(0));
        self.stride = stride;
        if !is_going_on {
            self.last = read;
            (self.window, self.until) = (0, 0);
            return Extents::new();
        }
        self.last = match stride {
            // The kernel asks for neighbors in any order.
            Some(0) => self.last.start.min(read.start)..self.last.end.max(read.end),
            _ => read,
        };
        let next = self.last.end;
        let len = self.last.end - self.last.start;
        let step = stride.unwrap_or(0);
        let reach = |window: u64| match step {
            0 => window,
            // As many reads as fill the window, and one at least.
            _ => (window / len).clamp(1, READS_MAX) * step,
        };
        let from = self.until.max(next);
        if from.saturating_sub(next) >= reach(self.window / 2).max(1) {
            return Extents::new(); // enough is on its way
        }
        self.window = (self.window * 2).clamp(STEP_BYTES, WINDOW_BYTES_MAX);
        self.until = next.saturating_add(reach(self.window));
        match step {
            0 => Extents::from(from..self.until),
            _ => self.reads_between(from, step, len),
        }
    }

    /// Returns how far a read is from the last one: 0 in sequence, `None` behind it.
    fn stride_to(&self, read: &Range<u64>) -> Option<u64> {
        let near = self.last.start..=self.last.end.saturating_add(NEAR_BYTES);
        if !self.last.is_empty() && near.contains(&read.start) {
            return Some(0);
        }
        read.start
            .checked_sub(self.last.start)
            .filter(|far| *far > 0)
    }

    /// Returns the reads that a stride leads to.
    fn reads_between(&self, from: u64, step: u64, len: u64) -> Extents {
        let mut reads = Extents::new();
        let mut at = self.last.start.saturating_add(step);
        while at < self.until {
            let end = at.saturating_add(len);
            if end > from {
                reads.insert(at.max(from)..end);
            }
            at = at.saturating_add(step);
        }
        reads
    }
}

/// Reads so far apart are in sequence.
const NEAR_BYTES: u64 = 2 * STEP_BYTES;
/// The most reads of a stride that are fetched ahead.
const READS_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1 << 10;

    fn reads(ahead: &mut Ahead, starts: impl IntoIterator<Item = u64>, len: u64) -> Extents {
        let mut all = Extents::new();
        for start in starts {
            all = all.or(&ahead.read(start..start + len));
        }
        all
    }

    #[test]
    fn first_read_fetches_nothing_more() {
        assert!(reads(&mut Ahead::default(), [0], 128 * K).is_empty());
        assert!(reads(&mut Ahead::default(), [5 << 20], 128 * K).is_empty());
    }

    #[test]
    fn windows_double_up_to_the_most() {
        let mut ahead = Ahead::default();
        let mut widest = 0;
        for start in (0..64 << 20).step_by(128 << 10) {
            let window = ahead.read(start..start + 128 * K);
            widest = widest.max(window.end().saturating_sub(start + 128 * K));
            assert!(window.end() <= start + 128 * K + WINDOW_BYTES_MAX);
        }
        assert_eq!(widest, WINDOW_BYTES_MAX);
    }

    #[test]
    fn sequence_fetches_nothing_twice() {
        let (mut ahead, mut all, mut bytes) = (Ahead::default(), Extents::new(), 0);
        for start in (0..32 << 20).step_by(128 << 10) {
            let window = ahead.read(start..start + 128 * K);
            bytes += window.len_bytes();
            all = all.or(&window);
        }
        assert_eq!(all.len_bytes(), bytes);
        assert!(all.contains(&((1 << 20)..(32 << 20))));
    }

    #[test]
    fn neighbors_in_any_order_are_in_sequence() {
        let starts = [0, 256, 128, 384, 640, 512].map(|start| start * K);
        assert!(!reads(&mut Ahead::default(), starts, 128 * K).is_empty());
    }

    #[test]
    fn stride_fetches_its_reads_and_no_gap() {
        let starts = (0..40).map(|nth| nth * (1 << 20));
        let all = reads(&mut Ahead::default(), starts, 64 * K);
        assert!(all.contains(&((30 << 20)..(30 << 20) + 64 * K)));
        let gap = (30 << 20) + 64 * K..31 << 20;
        assert_eq!(all.within(gap).next(), None);
    }

    #[test]
    fn random_reads_fetch_nothing_more() {
        let starts = [40, 3, 90, 17, 64, 5, 80, 33].map(|mib| mib << 20);
        assert!(reads(&mut Ahead::default(), starts, 128 * K).is_empty());
    }

    #[test]
    fn window_closes_when_the_pattern_breaks() {
        let mut ahead = Ahead::default();
        reads(&mut ahead, (0..16).map(|nth| nth * 128 * K), 128 * K);
        assert!(ahead.read(500 << 20..(500 << 20) + 128 * K).is_empty());
        let again = ahead.read((500 << 20) + 128 * K..(500 << 20) + 256 * K);
        assert_eq!(again.len_bytes(), STEP_BYTES);
    }

    #[test]
    fn ends_of_numbers_are_no_trouble() {
        let mut ahead = Ahead::default();
        let last = u64::MAX - 10;
        for start in [0, last, last + 1, u64::MAX - 1] {
            ahead.read(start..u64::MAX);
        }
    }
}
