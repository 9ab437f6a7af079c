//! Reads of one far file that begin together become one transfer.
//!
//! Ranks of a program read their parts at the same moment. One transfer for all of them needs one session, and its
//! connections open their windows once.

use godwit_core::Extents;
use std::time::{Duration, Instant};

/// Ranges that readers of a file miss, until one of them fetches all.
#[derive(Debug, Default)]
pub(crate) struct Gathering(Option<(Extents, Instant)>);

/// The next step of a reader.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Fetch these ranges.
    Fetch(Extents),
    /// Wait, and join again.
    Wait(Instant),
}

impl Gathering {
    /// Adds ranges of a reader. `pause` is how long a reader waits for others; zero: it fetches alone.
    pub(crate) fn join(&mut self, missing: &Extents, pause: Duration, now: Instant) -> Turn {
        if pause.is_zero() {
            return Turn::Fetch(missing.clone());
        }
        let (ranges, until) = match self.0.take() {
            Some((ranges, until)) => (ranges.or(missing), until),
            None => (missing.clone(), now + pause),
        };
        if until <= now {
            return Turn::Fetch(ranges);
        }
        self.0 = Some((ranges, until));
        Turn::Wait(until)
    }
}

/// Returns how long a reader waits for others, of a server that is so far away.
pub(crate) fn pause_at(distance: Duration) -> Duration {
    match distance > NEAR {
        true => (distance / 8).min(PAUSE_MAX),
        false => Duration::ZERO,
    }
}

/// A server that is nearer is asked by each reader for itself.
const NEAR: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_begin_together_are_one() {
        let mut gathering = Gathering::default();
        let (now, pause) = (Instant::now(), pause_at(Duration::from_millis(80)));
        let later = now + pause;
        let first = gathering.join(&Extents::from(0..10), pause, now);
        assert_eq!(first, Turn::Wait(later));
        let second = gathering.join(&Extents::from(20..30), pause, now + pause / 2);
        assert_eq!(second, Turn::Wait(later));
        let Turn::Fetch(all) = gathering.join(&Extents::from(0..10), pause, later) else {
            panic!("it has waited");
        };
        assert_eq!(all, Extents::from(0..10).or(&Extents::from(20..30)));
        let next = gathering.join(&Extents::from(40..50), pause, later);
        assert_eq!(next, Turn::Wait(later + pause));
        assert_eq!(pause_at(NEAR), Duration::ZERO);
    }
}
