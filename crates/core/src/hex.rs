//! Bytes as hexadecimal digits, all of them or some.

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
    text.as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

/// Reads text in which some bytes are escaped as `%2F` (RFC 3986 §2.1); `None` if an escape is broken.
pub fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(match byte {
            b'%' => digit(*rest.next()?)? << 4 | digit(*rest.next()?)?,
            plain => plain,
        });
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
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
    fn broken_escapes_are_refused() {
        assert_eq!(unescape(b"a%2f%C3%a4 b"), Some("a/ä b".into()));
        for text in ["%", "%4", "%zz", "a%2", "%+1"] {
            assert_eq!(unescape(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn other_than_digit_pairs_is_refused() {
        for text in ["0", "0g", "+1", " 1", "ä"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}
