//! Whose turn it is to move a large file.

use std::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// So many files move at once. One that is nearly over lets the next begin, which takes
/// some round trips to get going: so the way stays full between the two.
pub(super) struct Turns {
    free: Mutex<usize>,
    changed: Condvar,
    lead: Duration,
}

impl Turns {
    /// The next file may begin when one has only as much left as moves within `lead`.
    pub(super) fn new(free: usize, lead: Duration) -> Self {
        Self {
            free: Mutex::new(free),
            changed: Condvar::new(),
            lead,
        }
    }

    /// Waits for a turn, at most for `patience`.
    pub(super) fn take(&self, patience: Duration) -> Option<Turn<'_>> {
        let free = self.free.lock().expect(NO_PANIC);
        let (mut free, _) = self
            .changed
            .wait_timeout_while(free, patience, |free| *free == 0)
            .expect(NO_PANIC);
        *free = free.checked_sub(1)?;
        Some(Turn {
            turns: self,
            is_over: AtomicBool::new(false),
            began: Instant::now(),
        })
    }
}

/// The right to move one file; over at its end at the latest.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    is_over: AtomicBool,
    began: Instant,
}

impl Turn<'_> {
    /// Counts from now on: there is a file to move.
    pub(super) fn begun(mut self) -> Self {
        self.began = Instant::now();
        self
    }

    /// Is told how much of the file has moved in this turn, and how much has not yet.
    pub(super) fn moved(&self, bytes: u64, left_bytes: u64) {
        let lead = self.turns.lead.as_secs_f64() / self.began.elapsed().as_secs_f64();
        if left_bytes as f64 <= bytes as f64 * lead {
            self.end();
        }
    }

    fn end(&self) {
        if !self.is_over.swap(true, Relaxed) {
            *self.turns.free.lock().expect(NO_PANIC) += 1;
            self.turns.changed.notify_one();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

const NO_PANIC: &str = "no thread panics while it holds this";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_begins_when_little_is_left_and_only_one_for_each() {
        let turns = Turns::new(1, Duration::from_secs(3600));
        let soon = Duration::from_millis(1);
        let first = turns.take(soon).unwrap();
        assert!(turns.take(soon).is_none());
        // Nothing moved yet: nobody knows how fast it is.
        first.moved(0, 1);
        assert!(turns.take(soon).is_none());
        first.moved(1000, 1000);
        first.moved(1500, 500);
        let second = turns.take(soon).unwrap();
        assert!(turns.take(soon).is_none());
        drop(first);
        assert!(turns.take(soon).is_none(), "its turn was over before");
        drop(second);
        assert!(turns.take(soon).is_some());
    }

    #[test]
    fn without_a_lead_a_turn_lasts_until_the_end() {
        let turns = Turns::new(1, Duration::ZERO);
        let first = turns.take(Duration::ZERO).unwrap();
        first.moved(1000, 1);
        assert!(turns.take(Duration::ZERO).is_none());
        drop(first);
        assert!(turns.take(Duration::ZERO).is_some());
    }
}
