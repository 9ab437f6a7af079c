//! The progress of a transfer, as a value: events and times go in.
//!
//! The meter knows no terminal and no clock. While files are still being counted the
//! total is not known, and no share of it is shown: a share of a growing total
//! would run backwards.

use std::time::Duration;

/// The progress of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    files_found: u64,
    bytes_found: u64,
    counted: bool,
    files_over: u64,
    bytes_over: u64,
    share: f64,
    rate: Rate,
}

impl Meter {
    /// Adds files that were found; `complete` means that no more will be found.
    pub(crate) fn found(&mut self, files: u64, bytes: u64, complete: bool) {
        self.files_found += files;
        self.bytes_found += bytes;
        self.counted |= complete;
    }

    /// Takes counts from elsewhere: each pair is the part that is over, and the total.
    pub(crate) fn at(&mut self, files: (u64, u64), bytes: (u64, u64), now: Duration) {
        self.rate.add(bytes.0.saturating_sub(self.bytes_over), now);
        (self.files_over, self.files_found) = files;
        (self.bytes_over, self.bytes_found) = bytes;
        self.counted = true;
    }

    /// Takes bytes that need not be moved: a resume found them in place.
    pub(crate) fn already(&mut self, bytes: u64) {
        self.bytes_over += bytes;
    }

    /// Takes bytes that moved by the time `now`.
    pub(crate) fn moved(&mut self, bytes: u64, now: Duration) {
        self.bytes_over += bytes;
        self.rate.add(bytes, now);
    }

    /// Counts a file that ended, well or not.
    pub(crate) fn over(&mut self) {
        self.files_over += 1;
    }

    /// Takes the bytes of a file that failed or was skipped.
    pub(crate) fn dropped(&mut self, bytes: u64) {
        self.bytes_over += bytes;
    }

    /// Returns a snapshot at the time `now`. Its share never shrinks.
    pub(crate) fn look(&mut self, now: Duration) -> Snapshot {
        if self.counted {
            self.share = self.share.max(self.share_now());
        }
        let rate = self.rate.per_second(now);
        let left = self.bytes_found.saturating_sub(self.bytes_over);
        Snapshot {
            files_over: self.files_over,
            files_found: self.files_found.max(self.files_over),
            // Blocks sent again after a fault are moved twice and are still one file.
            bytes_over: self.bytes_over.min(self.bytes_found),
            bytes_found: self.bytes_found,
            counted: self.counted,
            share: self.counted.then_some(self.share),
            bytes_per_second: rate,
            left: (self.counted && rate > 0.0)
                .then(|| Duration::try_from_secs_f64(left as f64 / rate).ok())
                .flatten(),
        }
    }

    fn share_now(&self) -> f64 {
        // A file of no bytes is work too, so each counts as a little more.
        let whole = self.bytes_found + FILE_WEIGHT * self.files_found;
        let over = self.bytes_over.min(self.bytes_found)
            + FILE_WEIGHT * self.files_over.min(self.files_found);
        if whole == 0 {
            1.0
        } else {
            over as f64 / whole as f64
        }
    }
}

/// A snapshot of a [`Meter`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    /// Files that ended, well or not.
    pub(crate) files_over: u64,
    /// Files found so far.
    pub(crate) files_found: u64,
    /// Bytes in place.
    pub(crate) bytes_over: u64,
    /// Bytes found so far.
    pub(crate) bytes_found: u64,
    /// Nothing more will be found.
    pub(crate) counted: bool,
    /// From 0 to 1, once all is counted.
    pub(crate) share: Option<f64>,
    /// Of the last few seconds.
    pub(crate) bytes_per_second: f64,
    /// How long it will still take, if that can be told.
    pub(crate) left: Option<Duration>,
}

/// Bytes per second over a short past.
#[derive(Clone, Debug, Default)]
struct Rate {
    slot: u64,
    slots: [u64; RATE_SLOTS],
}

impl Rate {
    fn add(&mut self, bytes: u64, now: Duration) {
        self.turn(now);
        self.slots[self.slot as usize % RATE_SLOTS] += bytes;
    }

    fn per_second(&mut self, now: Duration) -> f64 {
        self.turn(now);
        let past_ms = (now.as_millis() as u64).clamp(1, RATE_SLOTS as u64 * SLOT_MS);
        let bytes: u64 = self.slots.iter().sum();
        bytes as f64 * 1000.0 / past_ms as f64
    }

    fn turn(&mut self, now: Duration) {
        let slot = (now.as_millis() as u64 / SLOT_MS).max(self.slot);
        for passed in (self.slot + 1..=slot).take(RATE_SLOTS) {
            self.slots[passed as usize % RATE_SLOTS] = 0;
        }
        self.slot = slot;
    }
}

const SLOT_MS: u64 = 250;
const RATE_SLOTS: usize = 20; // five seconds: steady to the eye, and honest about a stall
const FILE_WEIGHT: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Told {
        Found(u64, u64, bool),
        Moved(u64),
        Already(u64),
        Dropped(u64),
        Over,
    }

    fn told() -> impl Strategy<Value = Told> {
        prop_oneof![
            (0..50u64, 0..1u64 << 40, prop::bool::weighted(0.1))
                .prop_map(|(f, b, c)| Told::Found(f, b, c)),
            (0..1u64 << 38).prop_map(Told::Moved),
            (0..1u64 << 38).prop_map(Told::Already),
            (0..1u64 << 38).prop_map(Told::Dropped),
            Just(Told::Over),
        ]
    }

    proptest! {
        #[test]
        fn the_share_never_shrinks(story in prop::collection::vec((told(), 0..3000u64), 0..80)) {
            let (mut meter, mut now, mut last) = (Meter::default(), Duration::ZERO, 0.0);
            for (what, wait_ms) in story {
                now += Duration::from_millis(wait_ms);
                match what {
                    Told::Found(files, bytes, complete) => meter.found(files, bytes, complete),
                    Told::Moved(bytes) => meter.moved(bytes, now),
                    Told::Already(bytes) => meter.already(bytes),
                    Told::Dropped(bytes) => meter.dropped(bytes),
                    Told::Over => meter.over(),
                }
                let look = meter.look(now);
                prop_assert!(look.bytes_over <= look.bytes_found);
                if let Some(share) = look.share {
                    prop_assert!((last..=1.0).contains(&share), "{last} then {share}");
                    last = share;
                }
            }
        }
    }

    #[test]
    fn share_is_unknown_until_counted() {
        let mut meter = Meter::default();
        meter.found(1, 10, false);
        meter.moved(10, Duration::from_secs(1));
        assert_eq!(meter.look(Duration::from_secs(1)).share, None);
        meter.found(1, 20, true);
        meter.over();
        let share = meter.look(Duration::from_secs(1)).share.unwrap();
        assert!((0.4..0.6).contains(&share), "{share}");
        meter.moved(20, Duration::from_secs(2));
        meter.over();
        assert_eq!(meter.look(Duration::from_secs(2)).share, Some(1.0));
    }

    #[test]
    fn a_stall_shows_in_the_rate() {
        let mut meter = Meter::default();
        meter.found(1, 1 << 30, true);
        for second in 1..=10 {
            meter.moved(1000, Duration::from_secs(second));
        }
        let steady = meter.look(Duration::from_secs(10)).bytes_per_second;
        assert!((800.0..=1200.0).contains(&steady), "{steady}");
        let stalled = meter.look(Duration::from_secs(20));
        assert_eq!((stalled.bytes_per_second, stalled.left), (0.0, None));
    }
}
