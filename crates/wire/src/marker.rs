//! Markers that a server sends during a transfer: replies 111 to 115.

use crate::{Error, Result, reply::Reply};
use godwit_core::{Chain, Extents};
use std::time::Duration;

/// A preliminary reply with news of a transfer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Marker {
    /// 111: ranges written since the last one.
    Ranges(Extents),
    /// 112: how far a stripe got.
    Progress(Progress),
    /// 113: bytes read for a checksum.
    Checksum {
        /// How many bytes.
        bytes: u64,
    },
    /// 115 (godwit): hashes of leaves, beginning with leaf `first`.
    Leaves {
        /// Index of the first leaf.
        first: u64,
        /// The hashes of this leaf and those after it.
        chains: Vec<Chain>,
    },
}

/// The progress in a 112.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// When, by the server's clock since the epoch; tenths of a second.
    pub at: Duration,
    /// The index of the stripe.
    pub stripe: u64,
    /// How many bytes that stripe has.
    pub bytes: u64,
    /// How many stripes there are.
    pub stripes: u64,
}

impl Marker {
    /// Reads a preliminary reply; `None` if the reply is of another kind, which a client
    /// must ignore: 150, and all that are unknown.
    pub fn from_reply(reply: &Reply) -> Result<Option<Self>> {
        let read = match reply.code {
            111 => ranges(reply),
            112 => progress(reply),
            113 => checksum(reply),
            115 => leaves(reply),
            _ => return Ok(None),
        };
        read.map(Some)
            .ok_or_else(|| Error::BadMarker { text: reply.said() })
    }

    /// Returns the reply that tells this.
    pub fn to_reply(&self) -> Reply {
        match self {
            Self::Ranges(ranges) => Reply::new(111, format!("Range Marker {ranges}")),
            Self::Progress(progress) => Reply::of_lines(
                112,
                [
                    "Perf Marker".to_owned(),
                    format!("Timestamp: {}", tenths(progress.at)),
                    format!("Stripe Index: {}", progress.stripe),
                    format!("Stripe Bytes Transferred: {}", progress.bytes),
                    format!("Total Stripe Count: {}", progress.stripes),
                    "End.".to_owned(),
                ],
            ),
            Self::Checksum { bytes } => Reply::of_lines(
                113,
                [
                    "Status Marker",
                    &format!("Bytes Processed: {bytes}"),
                    "End.",
                ],
            ),
            Self::Leaves { first, chains } => {
                let chains: Vec<_> = chains.iter().map(ToString::to_string).collect();
                Reply::new(115, format!("Leaves {first} {}", chains.join(",")))
            }
        }
    }
}

fn ranges(reply: &Reply) -> Option<Marker> {
    let text = reply.text();
    let text = text.trim().strip_prefix("Range Marker")?.trim();
    // Some servers send a marker before there is anything to tell.
    if text.is_empty() {
        return Some(Marker::Ranges(Extents::new()));
    }
    text.parse().ok().map(Marker::Ranges)
}

fn progress(reply: &Reply) -> Option<Marker> {
    // A server without stripes may leave their lines out.
    let stripe = fact(reply, "stripe index").map_or(Some(0), |t| t.parse().ok())?;
    let stripes = fact(reply, "total stripe count").map_or(Some(1), |t| t.parse().ok())?;
    let bytes = fact(reply, "stripe bytes transferred")?.parse().ok()?;
    let at = fact(reply, "timestamp")?;
    let (seconds, fraction) = at.split_once('.').unwrap_or((&at, "0"));
    let tenth = fraction
        .chars()
        .next()
        .map_or(Some(0), |d| d.to_digit(10))?;
    let at = Duration::new(seconds.parse().ok()?, tenth * 100_000_000);
    Some(Marker::Progress(Progress {
        at,
        stripe,
        bytes,
        stripes,
    }))
}

fn checksum(reply: &Reply) -> Option<Marker> {
    let bytes = fact(reply, "bytes processed")?.parse().ok()?;
    Some(Marker::Checksum { bytes })
}

fn leaves(reply: &Reply) -> Option<Marker> {
    let text = reply.text();
    let (first, chains) = text.strip_prefix("Leaves ")?.split_once(' ')?;
    let first: u64 = first.parse().ok()?;
    let chains = chains.split(',').map(str::parse);
    let chains: Vec<Chain> = chains.collect::<Result<_, _>>().ok()?;
    // A caller may add an index to `first`, which must not overflow.
    first.checked_add(chains.len() as u64)?;
    Some(Marker::Leaves { first, chains })
}

/// Returns the value of an inner line `name: value`; GCT 13.24 puts two blanks after the colon.
fn fact(reply: &Reply, name: &str) -> Option<String> {
    reply.inner().iter().find_map(|line| {
        let text = str::from_utf8(line).ok()?;
        let (found, value) = text.split_once(':')?;
        let is_it = found.trim().eq_ignore_ascii_case(name);
        is_it.then(|| value.trim().to_owned())
    })
}

fn tenths(at: Duration) -> String {
    format!("{}.{}", at.as_secs(), at.subsec_millis() / 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marker() -> impl Strategy<Value = Marker> {
        let ranges = prop::collection::vec((0..1000u64, 1..50u64), 0..6);
        let tenths = (0..u64::from(u32::MAX), 0..10u32);
        prop_oneof![
            ranges.prop_map(|all| Marker::Ranges(all.into_iter().map(|(a, n)| a..a + n).collect())),
            (tenths, any::<[u64; 3]>()).prop_map(|((s, t), [stripe, bytes, stripes])| {
                let at = Duration::new(s, t * 100_000_000);
                Marker::Progress(Progress {
                    at,
                    stripe,
                    bytes,
                    stripes,
                })
            }),
            any::<u64>().prop_map(|bytes| Marker::Checksum { bytes }),
            (
                0..u64::MAX / 2,
                prop::collection::vec(any::<[u8; 32]>(), 1..5)
            )
                .prop_map(|(first, all)| Marker::Leaves {
                    first,
                    chains: all.into_iter().map(Chain).collect()
                }),
        ]
    }

    proptest! {
        #[test]
        fn a_marker_reads_as_it_was_written(marker in marker()) {
            prop_assert_eq!(Marker::from_reply(&marker.to_reply()), Ok(Some(marker)));
        }

        #[test]
        fn any_reply_is_read_or_refused(code in 111..116u16, lines in prop::collection::vec("[ -~]{0,40}", 1..7)) {
            let _ = Marker::from_reply(&Reply::of_lines(code, lines));
        }
    }

    #[test]
    fn gct_timestamp_may_have_two_blanks() {
        let reply = Reply::of_lines(
            112,
            [
                "Perf Marker",
                "Timestamp:  1795226019.1",
                "Stripe Index: 0",
                "Stripe Bytes Transferred: 10485760",
                "Total Stripe Count: 1",
                "End.",
            ],
        );
        let at = Duration::from_millis(1_795_226_019_100);
        let progress = Progress {
            at,
            stripe: 0,
            bytes: 10_485_760,
            stripes: 1,
        };
        assert_eq!(
            Marker::from_reply(&reply),
            Ok(Some(Marker::Progress(progress)))
        );
    }

    #[test]
    fn what_is_no_marker_is_passed_over() {
        let reply = Reply::new(150, "Beginning transfer.");
        assert_eq!(Marker::from_reply(&reply), Ok(None));
        assert!(Marker::from_reply(&Reply::new(111, "Range Marker 0-10,")).is_err());
        assert!(Marker::from_reply(&Reply::new(115, "Leaves 0 abc")).is_err());
        let far = format!("Leaves {} {}", u64::MAX, "0".repeat(64));
        assert!(Marker::from_reply(&Reply::new(115, far)).is_err());
    }
}
