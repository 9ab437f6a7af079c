//! Bytes as hexadecimal digits.

/// Writes bytes in lower case, two digits each.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    let pairs = bytes.iter();
    pairs
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

/// Reads digits of either case, two a byte; `None` if it is anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    text.as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ways(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(unhex(&hex(&bytes)), Some(bytes.clone()));
            prop_assert_eq!(unhex(&hex(&bytes).to_uppercase()), Some(bytes));
        }
    }

    #[test]
    fn what_is_no_pair_of_digits_is_refused() {
        for text in ["0", "0g", "+1", " 1", "ä"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}
