//! Detects whether a server makes progress with a command. Words alone are no reason to wait longer: some servers
//! repeat their position every few seconds, even when they are stuck.

use godwit_core::Extents;
use godwit_wire::{marker::Marker, reply::Reply};
use std::collections::BTreeMap;

/// The furthest that a server said it was.
#[derive(Debug, Default)]
pub(super) struct Headway {
    landed: Extents,
    leaves: Extents,
    stripes: BTreeMap<u64, u64>,
    checked: u64,
}

impl Headway {
    /// Takes a preliminary reply; tells whether it reports more progress than those before.
    pub(super) fn gets_on(&mut self, reply: &Reply) -> bool {
        match Marker::from_reply(reply) {
            Ok(Some(Marker::Ranges(ranges))) => grows(&mut self.landed, &ranges),
            Ok(Some(Marker::Leaves { first, chains })) => {
                let end = first.saturating_add(chains.len() as u64);
                grows(&mut self.leaves, &Extents::from(first..end))
            }
            Ok(Some(Marker::Progress(progress))) => {
                let is_known = self.stripes.contains_key(&progress.stripe);
                if !is_known && self.stripes.len() >= STRIPES_MAX {
                    return false;
                }
                let before = self.stripes.entry(progress.stripe).or_default();
                let moved = progress.bytes > *before;
                *before = progress.bytes.max(*before);
                moved
            }
            Ok(Some(Marker::Checksum { bytes })) => {
                let moved = bytes > self.checked;
                self.checked = bytes.max(self.checked);
                moved
            }
            Ok(None) | Err(_) => false,
        }
    }
}

fn grows(known: &mut Extents, told: &Extents) -> bool {
    if told.minus(known).is_empty() || known.count() > RANGES_MAX {
        return false;
    }
    *known = known.or(told);
    true
}

const STRIPES_MAX: usize = 1024;
const RANGES_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_wire::marker::Progress;
    use std::time::Duration;

    fn progress(at_s: u64, bytes: u64) -> Reply {
        let at = Duration::from_secs(at_s);
        let (stripe, stripes) = (0, 1);
        Marker::Progress(Progress {
            at,
            stripe,
            bytes,
            stripes,
        })
        .to_reply()
    }

    #[test]
    fn only_what_is_more_is_news() {
        let mut headway = Headway::default();
        let ranges = |range| Marker::Ranges(Extents::from(range)).to_reply();
        let said = [
            (Reply::new(150, "still"), false),
            (progress(1, 0), false),
            (progress(2, 500), true),
            (progress(3, 500), false),
            (ranges(0..10), true),
            (ranges(2..10), false),
            (ranges(2..11), true),
            (Marker::Checksum { bytes: 7 }.to_reply(), true),
            (Marker::Checksum { bytes: 7 }.to_reply(), false),
        ];
        for (reply, is_news) in said {
            assert_eq!(headway.gets_on(&reply), is_news, "{reply:?}");
        }
    }
}
