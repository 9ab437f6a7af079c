//! When to try again after a passing fault.

use godwit_core::Fault;
use std::time::Duration;

/// The patience of one transfer. Knows no timer: it says how long to wait.
#[derive(Clone, Debug)]
pub struct Retry {
    left: u32,
    /// How many attempts remain after progress.
    worth: u32,
    /// How many attempts there are since the last progress.
    most: u32,
    pause: Duration,
}

/// The number of the next attempt, and of the last one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tries {
    /// Since something moved last; the first is 1.
    pub nth: u32,
    /// How many there are.
    pub most: u32,
}

impl Retry {
    /// Allows `max` tries in a row that bring nothing; without it five, and more after progress.
    pub fn new(max: Option<u32>) -> Self {
        let first = max.unwrap_or(USUAL);
        Self {
            left: first,
            most: first,
            worth: max.unwrap_or(USUAL * WORTH),
            pause: FIRST,
        }
    }

    /// Something moved: patience starts anew, and is longer. What has worked is
    /// worth waiting for: a server that restarts, a link that is mended.
    pub fn progressed(&mut self) {
        *self = Self {
            left: self.worth,
            most: self.worth,
            worth: self.worth,
            pause: FIRST,
        };
    }

    /// Returns which try is the next one, after what [`Retry::after`] allowed.
    pub fn tries(&self) -> Tries {
        Tries {
            nth: self.most - self.left,
            most: self.most,
        }
    }

    /// Returns how long to wait before the next try; `None` means give up.
    pub fn after(&mut self, fault: Fault) -> Option<Duration> {
        if fault == Fault::Lasting {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let pause = self.pause;
        self.pause = (self.pause * 2).min(LAST);
        match fault {
            Fault::NotYet(wait) => Some(wait.clamp(pause, NOT_YET_MAX)),
            _ => Some(pause),
        }
    }
}

/// The number of tries if the caller gave none.
const USUAL: u32 = 5;
/// Fifteen tries are four minutes.
const WORTH: u32 = 3;
const FIRST: Duration = Duration::from_millis(200);
const LAST: Duration = Duration::from_secs(30);
/// A longer pause that a server asks for is reported to the user instead.
const NOT_YET_MAX: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test] //= GRIDFTP-50
    fn lasting_faults_are_not_retried() {
        assert_eq!(Retry::new(None).after(Fault::Lasting), None);
    }

    #[test]
    fn pauses_grow_and_reset_with_progress() {
        let mut retry = Retry::new(None);
        let pauses: Vec<_> = std::iter::from_fn(|| retry.after(Fault::Passing)).collect();
        assert_eq!(pauses[..3], [FIRST, FIRST * 2, FIRST * 4]);
        assert_eq!(retry.tries(), Tries { nth: 5, most: 5 });
        retry.progressed();
        assert_eq!(retry.after(Fault::NotYet(FIRST * 10)), Some(FIRST * 10));
        assert_eq!(retry.tries(), Tries { nth: 1, most: 15 });
        assert_eq!(
            std::iter::from_fn(|| retry.after(Fault::Passing)).count(),
            14
        );
        let mut retry = Retry::new(Some(2));
        retry.progressed();
        assert_eq!(
            std::iter::from_fn(|| retry.after(Fault::Passing)).count(),
            2
        );
    }
}
