//! Looks at the connections of a transfer while others write to them.

use super::link::DataLink;
use crate::{Measurements, Width};
use godwit_sys::{Traffic, traffic};
use std::{
    net::TcpStream,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

/// The kernel's measurements of all connections of one transfer.
#[derive(Debug)]
pub struct Gauge {
    width: Arc<Width>,
    began: Instant,
    streams: Vec<TcpStream>,
}

impl Gauge {
    /// Leaves out connections whose measurements cannot be read.
    pub(super) fn new<'a>(width: Arc<Width>, links: impl Iterator<Item = &'a DataLink>) -> Self {
        Self {
            began: Instant::now(),
            streams: match width.is_tuned() {
                true => links.filter_map(DataLink::try_clone).collect(),
                false => Vec::new(),
            },
            width,
        }
    }

    /// Has it decided anew how many of them to use. To be called several times a second.
    pub fn look(&self) {
        if self.streams.is_empty() {
            return;
        }
        let all: Vec<Traffic> = self
            .streams
            .iter()
            .filter_map(|stream| traffic(stream.as_fd()).ok())
            .collect();
        self.width
            .look(sum(&all, self.width.streams(), self.began.elapsed()));
    }
}

/// The connections in use are the last ones: a sender takes them from the end.
fn sum(all: &[Traffic], in_use: usize, at: Duration) -> Measurements {
    let used = &all[all.len().saturating_sub(in_use)..];
    let known = || {
        used.iter()
            .filter(|one| one.round_trip_min > Duration::ZERO)
    };
    let turns: Duration = known().map(|one| one.round_trip).sum();
    Measurements {
        at,
        bytes: all.iter().map(|one| one.delivered_bytes).sum(),
        segments: all.iter().map(|one| one.segments).sum(),
        lost: all.iter().map(|one| one.lost).sum(),
        round_trip: turns / known().count().max(1) as u32,
        round_trip_min: known()
            .map(|one| one.round_trip_min)
            .min()
            .unwrap_or_default(),
        waiting: used.iter().filter(|one| one.waiting_bytes > 0).count(),
        slowed: used.iter().filter(|one| one.has_slowed).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauge_counts_only_streams_in_use() {
        let one = |lost, waiting_bytes| Traffic {
            delivered_bytes: 10,
            waiting_bytes,
            segments: 3,
            lost,
            round_trip: Duration::from_millis(4),
            round_trip_min: Duration::from_millis(3),
            has_slowed: lost > 0,
        };
        let seen = sum(&[one(1, 5), one(0, 5), one(1, 0)], 2, Duration::ZERO);
        assert_eq!((seen.bytes, seen.segments, seen.lost), (30, 9, 2));
        assert_eq!((seen.waiting, seen.slowed), (1, 1));
        assert_eq!(seen.round_trip, Duration::from_millis(4));
    }
}
