//! Tokens of a context that have arrived: each counts once, in any order.
//!
//! The library remembers the last few dozen tokens. Lines and several data connections overtake
//! each other by more, so older tokens are looked up here.

use std::collections::BTreeMap;

/// Numbers of the tokens that arrived, as ranges: first to end.
#[derive(Debug, Default)]
pub(super) struct SeenTokens(BTreeMap<u64, u64>);

impl SeenTokens {
    /// Notes a number; returns false if it was there, or if too many are missing to remember all.
    pub(super) fn note(&mut self, number: u64) -> bool {
        let Some(behind) = number.checked_add(1) else {
            return false;
        };
        let before = self.0.range(..=number).next_back();
        let before = before.map(|(&first, &end)| (first, end));
        if before.is_some_and(|(_, end)| end > number) {
            return false;
        }
        let end = self.0.remove(&behind).unwrap_or(behind);
        match before {
            Some((first, reaches)) if reaches == number => self.0.insert(first, end),
            _ => self.0.insert(number, end),
        };
        self.0.len() <= RANGES_MAX
    }
}

/// Returns the number of a wrapped token as RFC 4121, 4.2.6.2, has it; `None`: it is of an
/// older kind.
pub(super) fn number_of(token: &[u8]) -> Option<u64> {
    match token {
        [5, 4, _, 0xff, _, _, _, _, number @ ..] => {
            number.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
        }
        _ => None,
    }
}

/// Connections that broke leave holes.
const RANGES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_number_counts_once_in_any_order(numbers in proptest::collection::vec(0u64..40, 0..80)) {
            let (mut seen, mut model) = (SeenTokens::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(seen.note(number), model.insert(number));
            }
        }
    }

    #[test]
    fn missing_numbers_are_kept_within_bound() {
        let mut seen = SeenTokens::default();
        for hole in 0..RANGES_MAX as u64 {
            assert!(seen.note(2 * hole));
        }
        assert!(!seen.note(u64::MAX - 1) && !seen.note(u64::MAX));
        let mut in_order = SeenTokens::default();
        assert!((0..200_000).all(|number| in_order.note(number)) && in_order.0.len() == 1);
    }

    #[test]
    fn a_token_tells_its_number() {
        let token = b"\x05\x04\x02\xff\x00\x00\x00\x1c\x00\x00\x00\x00\x00\x00\x01\x02rest";
        assert_eq!(number_of(token), Some(0x102));
        for wrong in [
            &token[..15],
            b"\x60\x05\x04\xff",
            b"",
            b"\x04\x04\x02\xff\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(number_of(wrong), None);
        }
    }
}
