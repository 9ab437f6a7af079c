//! How a node tuned the streams that it sent on, as a fact of a final reply.

use std::{fmt, str::FromStr, time::Duration};

/// `tuned=STREAMS,WHY,BYTES_A_SECOND,ROUND_TRIP_US,LOST_PPM` (docs/formats/ftp-extensions.md).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TunedStreams {
    /// Streams in use at the end.
    pub streams: usize,
    /// A word for the reason of the number.
    pub why: String,
    /// Bytes a second, over the last window that was measured.
    pub rate: u64,
    /// The round trip, without a queue.
    pub round_trip: Duration,
    /// Segments of a million that were lost.
    pub lost_ppm: u32,
}

impl fmt::Display for TunedStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.round_trip.as_micros();
        let Self {
            streams,
            why,
            rate,
            lost_ppm,
            ..
        } = self;
        write!(f, "{streams},{why},{rate},{micros},{lost_ppm}")
    }
}

/// The fact could not be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unreadable;

impl FromStr for TunedStreams {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Self, Unreadable> {
        let fields: Vec<&str> = text.splitn(5, ',').collect();
        let [streams, why, rate, micros, lost] = fields[..] else {
            return Err(Unreadable);
        };
        Ok(Self {
            streams: streams.parse().map_err(|_| Unreadable)?,
            why: why.into(),
            rate: rate.parse().map_err(|_| Unreadable)?,
            round_trip: Duration::from_micros(micros.parse().map_err(|_| Unreadable)?),
            lost_ppm: lost.parse().map_err(|_| Unreadable)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let tuned = TunedStreams {
            streams: 16,
            why: "full".into(),
            rate: 117_000_000,
            round_trip: Duration::from_micros(100_250),
            lost_ppm: 98,
        };
        assert_eq!(tuned.to_string(), "16,full,117000000,100250,98");
        assert_eq!(tuned.to_string().parse(), Ok(tuned));
        for bad in ["", "1,full", "x,full,1,1,1", "1,full,1,1,-1", "1,a,1,1,1,1"] {
            assert_eq!(bad.parse::<TunedStreams>(), Err(Unreadable), "{bad}");
        }
    }
}
