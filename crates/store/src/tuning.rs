//! How many streams a transfer uses: measurements in, decision out.
//!
//! A transfer begins with few streams, and adds some as long as the rate rises. The best number is kept, and others
//! are tried now and then. The tuning knows no socket and no clock. Of congestion control it knows only the effect: a
//! sender that slows down for losses without a queue gains by more streams.

use std::time::Duration;

/// Measurements of a transfer, counted from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measurements {
    /// When.
    pub at: Duration,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Segments that were sent, and again.
    pub segments: u64,
    /// Of them, sent again.
    pub lost: u64,
    /// The round trip of a stream, as it is now.
    pub round_trip: Duration,
    /// The shortest ever.
    pub round_trip_min: Duration,
    /// Streams that wait for the network, with more bytes to send.
    pub waiting: usize,
    /// Streams that a loss has slowed down.
    pub slowed: usize,
}

/// The result of the tuning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuned {
    /// Streams in use.
    pub streams: usize,
    /// Why no more and no fewer.
    pub why: Limit,
    /// Bytes a second, over the last window that was measured.
    pub rate: f64,
    /// The round trip, without a queue.
    pub round_trip: Duration,
    /// The share of segments that were lost.
    pub lost: f64,
}

/// The reason for the number of streams.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// The user set the number.
    Asked,
    /// Both ends are near: their processors are the limit.
    Near,
    /// The transfer was over before there was anything to decide.
    Brief,
    /// The server opens them, and cannot change its mind.
    Server,
    /// The rate was still rising by itself.
    Rising,
    /// Streams waited for bytes, not for the network.
    Source,
    /// A queue stands on the way: it is full.
    Full,
    /// More were tried and brought no more.
    Best,
    /// More are not allowed.
    Most,
}

impl Limit {
    /// All, with the word for programs and the sentence for people.
    pub const WORDS: [(Self, &'static str, &'static str); 9] = [
        (Self::Asked, "asked", "as asked for"),
        (Self::Near, "near", "the other end is near"),
        (Self::Brief, "brief", "too brief to measure"),
        (Self::Server, "server", "the server decides that"),
        (Self::Rising, "rising", "the rate was still rising"),
        (
            Self::Source,
            "source",
            "the network waited for bytes, not they for it",
        ),
        (Self::Full, "full", "the way is full"),
        (Self::Best, "best", "more were tried and brought no more"),
        (Self::Most, "most", "more are not allowed"),
    ];

    /// Returns the word for programs.
    pub fn word(self) -> &'static str {
        self.words().1
    }

    /// Returns the sentence for people.
    pub fn sentence(self) -> &'static str {
        self.words().2
    }

    /// Reads the word for programs.
    pub fn from_word(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(_, known, _)| *known == word);
        found.map(|(why, ..)| *why)
    }

    fn words(self) -> (Self, &'static str, &'static str) {
        let found = Self::WORDS.into_iter().find(|(why, ..)| *why == self);
        found.expect("each has its words")
    }
}

/// The decision about one transfer in progress.
#[derive(Clone, Debug)]
pub struct Tuning {
    most: usize,
    tuned: Tuned,
    began: Option<Measurements>,
    window: Option<Measurements>,
    trial: Option<Trial>,
    /// How many windows pass without a trial, since the last one brought nothing.
    rest: u32,
    rest_next: u32,
}

/// Streams were added: has it helped?
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The state to return to.
    streams: usize,
    rate: f64,
    windows: u32,
}

impl Tuning {
    /// Begins with `first` streams; never uses more than `most`.
    pub fn new(first: usize, most: usize) -> Self {
        let tuned = Tuned {
            streams: first.min(most),
            why: Limit::Brief,
            rate: 0.0,
            round_trip: Duration::ZERO,
            lost: 0.0,
        };
        Self {
            most,
            tuned,
            began: None,
            window: None,
            trial: None,
            rest: 0,
            rest_next: REST_WINDOWS,
        }
    }

    /// Returns the result so far.
    pub fn tuned(&self) -> Tuned {
        self.tuned
    }

    /// Takes a measurement; returns how many streams to use from now on.
    pub fn look(&mut self, seen: Measurements) -> usize {
        let began = *self.began.get_or_insert(seen);
        let before = *self.window.get_or_insert(seen);
        let lasted = seen.at.saturating_sub(before.at);
        if lasted < WINDOW_MIN.max(seen.round_trip_min * WINDOW_TURNS) {
            return self.tuned.streams;
        }
        let rate = seen.bytes.saturating_sub(before.bytes) as f64 / lasted.as_secs_f64();
        let is_rising = rate > self.tuned.rate * RISING;
        let segments = seen.segments.saturating_sub(began.segments).max(1);
        self.tuned.rate = rate;
        self.tuned.lost = seen.lost.saturating_sub(began.lost) as f64 / segments as f64;
        self.tuned.round_trip = seen.round_trip_min;
        self.window = Some(seen);
        match self.rest.checked_sub(1) {
            Some(rest) => self.rest = rest,
            None => self.decide(&seen, is_rising),
        }
        self.tuned.streams
    }

    fn decide(&mut self, seen: &Measurements, is_rising: bool) {
        if let Some(mut trial) = self.trial {
            trial.windows += 1;
            self.trial = Some(trial);
            // Added streams need a while to gain speed.
            if trial.windows < 2 || (is_rising && trial.windows < TRIAL_WINDOWS_MAX) {
                return;
            }
            self.trial = None;
            if self.tuned.rate < trial.rate * WORTH {
                (self.tuned.streams, self.tuned.why) = (trial.streams, Limit::Best);
                (self.rest, self.rest_next) = (self.rest_next, self.rest_next.saturating_mul(2));
                return;
            }
        }
        let streams = self.tuned.streams;
        let queue = seen.round_trip > seen.round_trip_min.mul_f64(QUEUED) + QUEUED_LEAST;
        let is_slowed = seen.slowed * 2 >= streams;
        self.tuned.why = if queue {
            Limit::Full
        } else if seen.waiting * 2 < streams {
            Limit::Source
        } else if is_rising && !is_slowed {
            Limit::Rising
        } else if streams >= self.most {
            Limit::Most
        } else {
            self.try_more(if is_slowed { MANY } else { SOME });
            Limit::Rising
        };
    }

    fn try_more(&mut self, times: usize) {
        self.trial = Some(Trial {
            streams: self.tuned.streams,
            rate: self.tuned.rate,
            windows: 0,
        });
        self.tuned.streams = (self.tuned.streams * times).min(self.most);
    }
}

/// A shorter look sees bursts.
const WINDOW_MIN: Duration = Duration::from_millis(300);
const WINDOW_TURNS: u32 = 3;
/// Faster than this from one window to the next is still getting going.
const RISING: f64 = 1.15;
/// The factor by which an addition must raise the rate.
const WORTH: f64 = 1.1;
const TRIAL_WINDOWS_MAX: u32 = 6;
/// An addition without effect may have been tried at a bad moment, and is tried again, ever more rarely.
const REST_WINDOWS: u32 = 32;
/// A round trip so much longer than the shortest stands in a queue.
const QUEUED: f64 = 1.25;
const QUEUED_LEAST: Duration = Duration::from_millis(2);
/// Losses without a queue will stay with twice as many streams, so a larger step is sooner there.
const MANY: usize = 4;
const SOME: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of `capacity` bytes a second, on which one stream reaches at most `of_one`.
    struct ModelLink {
        capacity: f64,
        of_one: f64,
        loses: bool,
        feeds: f64,
    }

    const WAY: ModelLink = ModelLink {
        capacity: 100e6,
        of_one: 100e6,
        loses: false,
        feeds: f64::MAX,
    };

    /// Runs a transfer of 30 s with a measurement every tenth of a second. Returns when each number of streams was
    /// chosen.
    fn run(way: &ModelLink, tuning: &mut Tuning) -> Vec<(u64, usize)> {
        let mut seen = Measurements::default();
        let mut streams = tuning.tuned().streams;
        let mut changes = vec![(0, streams)];
        for tenth in 1..=300 {
            let offered = (way.of_one * streams as f64).min(way.feeds);
            let is_queued = offered > way.capacity * 1.5 && !way.loses;
            let rate = offered.min(way.capacity);
            seen.at = Duration::from_millis(tenth * 100);
            seen.bytes += (rate / 10.0) as u64;
            seen.segments += (rate / 14_000.0) as u64;
            seen.lost += u64::from(way.loses);
            seen.round_trip_min = Duration::from_millis(100);
            seen.round_trip = Duration::from_millis(if is_queued { 160 } else { 102 });
            seen.waiting = if offered >= way.feeds { 0 } else { streams };
            seen.slowed = if way.loses { streams } else { 0 };
            let now = tuning.look(seen);
            if now != streams {
                changes.push((tenth, now));
                streams = now;
            }
        }
        changes
    }

    #[test]
    fn a_full_way_gets_no_more_streams() {
        let mut tuning = Tuning::new(4, 64);
        assert_eq!(run(&WAY, &mut tuning), [(0, 4)]);
        assert_eq!(tuning.tuned().why, Limit::Full);
        assert_eq!(tuning.tuned().round_trip, Duration::from_millis(100));
    }

    #[test]
    fn losses_without_queue_add_streams_fast() {
        let way = ModelLink {
            of_one: 1e6,
            loses: true,
            ..WAY
        };
        let mut tuning = Tuning::new(4, 64);
        let changes = run(&way, &mut tuning);
        let chosen: Vec<_> = changes.iter().map(|(_, streams)| *streams).collect();
        assert_eq!(chosen, [4, 16, 64]);
        assert!(changes.last().unwrap().0 <= 20, "{changes:?}");
        assert_eq!(tuning.tuned().why, Limit::Most);
        assert!(tuning.tuned().lost > 0.0);
    }

    #[test]
    fn useless_streams_are_dropped_and_rarely_retried() {
        let way = ModelLink {
            of_one: 25e6,
            loses: true,
            ..WAY
        };
        let mut tuning = Tuning::new(4, 64);
        let changes = run(&way, &mut tuning);
        let chosen: Vec<_> = changes.iter().map(|(_, streams)| *streams).collect();
        assert_eq!(chosen, [4, 16, 4, 16, 4], "100 MB/s is all there is");
        assert!(changes[3].0 - changes[2].0 >= 90, "{changes:?}");
        assert_eq!(tuning.tuned().why, Limit::Best);
    }

    #[test]
    fn small_windows_are_offset_by_streams() {
        let way = ModelLink { of_one: 5e6, ..WAY };
        let mut tuning = Tuning::new(4, 64);
        run(&way, &mut tuning);
        assert!((16..=32).contains(&tuning.tuned().streams), "{tuning:?}");
    }

    #[test]
    fn a_slow_source_gets_no_streams() {
        let way = ModelLink {
            of_one: 25e6,
            feeds: 10e6,
            ..WAY
        };
        let mut tuning = Tuning::new(4, 64);
        assert_eq!(run(&way, &mut tuning), [(0, 4)]);
        assert_eq!(tuning.tuned().why, Limit::Source);
    }

    #[test]
    fn no_more_than_allowed() {
        let way = ModelLink {
            of_one: 1e6,
            loses: true,
            ..WAY
        };
        let mut tuning = Tuning::new(4, 6);
        assert_eq!(run(&way, &mut tuning).last().unwrap().1, 6);
    }

    #[test]
    fn every_reason_has_its_words() {
        for (why, word, sentence) in Limit::WORDS {
            assert_eq!(Limit::from_word(word), Some(why));
            assert_eq!((why.word(), why.sentence()), (word, sentence));
        }
        assert_eq!(Limit::from_word("luck"), None);
    }
}
