//! Turns of large files to move.

use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Limits how many files move at once. A file that is nearly over lets the next begin, which needs some round trips
/// to gain speed. The link thus stays full between the two.
pub(super) struct FileTurns {
    free: Mutex<usize>,
    changed: Condvar,
    lead: Duration,
}

impl FileTurns {
    /// The next file may begin when one has only as much left as moves within `lead`.
    pub(super) fn new(free: usize, lead: Duration) -> Self {
        Self {
            free: Mutex::new(free),
            changed: Condvar::new(),
            lead,
        }
    }

    /// Waits for a turn, at most for `patience`.
    pub(super) fn take(&self, patience: Duration) -> Option<FileTurn<'_>> {
        let mut free = self.free.lock();
        let is_none = |free: &mut _| *free == 0;
        self.changed.wait_while_for(&mut free, is_none, patience);
        *free = free.checked_sub(1)?;
        Some(FileTurn {
            turns: self,
            is_over: AtomicBool::new(false),
            lately: Mutex::new((Instant::now(), 0)),
        })
    }
}

/// The right to move one file; over at its end at the latest.
pub(super) struct FileTurn<'a> {
    turns: &'a FileTurns,
    is_over: AtomicBool,
    /// How much had moved when: its rate is counted from there.
    lately: Mutex<(Instant, u64)>,
}

impl FileTurn<'_> {
    /// Updates how much of the file has moved, and how much is left.
    pub(super) fn moved(&self, now: Instant, bytes: u64, left_bytes: u64) {
        let mut lately = self.lately.lock();
        let (lead, since) = (self.turns.lead, now.saturating_duration_since(lately.0));
        // It may begin slowly: what counts is how fast it is now.
        if lead.is_zero() || since < lead / PARTS {
            return;
        }
        let fresh = bytes.saturating_sub(lately.1) as f64;
        if left_bytes as f64 <= lead.div_duration_f64(since) * fresh {
            self.end();
        }
        *lately = (now, bytes);
    }

    fn end(&self) {
        if !self.is_over.swap(true, Relaxed) {
            *self.turns.free.lock() += 1;
            self.turns.changed.notify_one();
        }
    }
}

impl Drop for FileTurn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The rate is measured over this fraction of the lead.
const PARTS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_begins_before_the_end_once() {
        let second = Duration::from_secs(1);
        let turns = FileTurns::new(1, second);
        let take = || turns.take(Duration::ZERO);
        let first = take().unwrap();
        let began = Instant::now();
        first.moved(began + second, 100, 900);
        first.moved(began + second * 2, 300, 700);
        // So short a time is no measure of the rate.
        first.moved(began + second * 2, 600, 400);
        assert!(take().is_none());
        first.moved(began + second * 3, 700, 300);
        let next = take().unwrap();
        assert!(take().is_none());
        drop(first);
        assert!(take().is_none(), "its turn was over before");
        drop(next);
        assert!(take().is_some());
    }

    #[test]
    fn turn_without_lead_lasts_until_end() {
        let turns = FileTurns::new(1, Duration::ZERO);
        let first = turns.take(Duration::ZERO).unwrap();
        first.moved(Instant::now() + Duration::from_secs(1), 1000, 0);
        assert!(turns.take(Duration::ZERO).is_none());
        drop(first);
        assert!(turns.take(Duration::ZERO).is_some());
    }
}
