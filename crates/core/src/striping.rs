//! Division of one file among several senders.

use crate::Extents;
use std::ops::Range;

/// Which bytes of a file each of several senders has to send (GFD.20, `StripeLayout`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Striping {
    /// Each one run, all of about one length.
    Partitioned,
    /// Blocks of so many bytes, in turn.
    Blocked {
        /// How long a block is.
        bytes: u64,
    },
}

impl Striping {
    /// Returns the ranges of `whole` for sender number `index` of `count`. The shares of all
    /// senders are disjoint, and together are `whole`.
    pub fn share(self, whole: Range<u64>, index: u64, count: u64) -> Extents {
        let len = whole.end.saturating_sub(whole.start);
        let count = count.max(1);
        let bytes = match self {
            Self::Partitioned => len.div_ceil(count),
            // A peer that asks for tiny blocks must not make us count them all.
            Self::Blocked { bytes } => bytes.max(len / BLOCKS_MAX),
        };
        let bytes = bytes.max(1);
        let starts = (index..).step_by(usize::try_from(count).unwrap_or(usize::MAX));
        starts
            .map_while(|nth| nth.checked_mul(bytes).filter(|&start| start < len))
            .map(|start| whole.start + start..whole.start + start.saturating_add(bytes).min(len))
            .collect()
    }
}

impl Default for Striping {
    /// Whole leaves, so that each leaf is hashed by its sender; enough in a row to suit a disk.
    fn default() -> Self {
        Self::Blocked {
            bytes: 4 * crate::LEAF_BYTES,
        }
    }
}

/// Number of blocks of one file that are counted one by one at most.
const BLOCKS_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn striping() -> impl Strategy<Value = Striping> {
        prop_oneof![
            Just(Striping::Partitioned),
            (0..50u64).prop_map(|bytes| Striping::Blocked { bytes }),
        ]
    }

    proptest! {
        #[test]
        fn shares_are_disjoint_and_together_the_whole(
            by in striping(), start in 0..1000u64, len in 0..1000u64, count in 1..9u64,
        ) {
            let whole = start..start + len;
            let mut all = Extents::new();
            for index in 0..count {
                let share = by.share(whole.clone(), index, count);
                prop_assert!(all.and(&share).is_empty());
                all = all.or(&share);
            }
            prop_assert_eq!(all, Extents::from(whole));
        }
    }

    #[test]
    fn blocks_go_around_and_partitions_are_runs() {
        let blocked = Striping::Blocked { bytes: 10 };
        assert_eq!(blocked.share(0..45, 1, 2).to_string(), "10-20,30-40");
        let partitioned = Striping::Partitioned.share(0..45, 1, 2);
        assert_eq!(partitioned.to_string(), "23-45");
    }

    #[test]
    fn tiny_blocks_of_huge_file_are_bounded() {
        let share = Striping::Blocked { bytes: 1 }.share(0..1 << 40, 0, 1 << 10);
        assert!(share.count() <= 1 << 11, "{}", share.count());
    }
}
