//! RFC 4648 §4, with padding, as tokens travel in control lines.

/// Returns the text of bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let mut group = [0; 3];
        group[..three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for i in 0..4 {
            let six = (bits >> (18 - 6 * i)) as usize & 63;
            let is_padding = i > three.len();
            text.push(if is_padding {
                '='
            } else {
                ALPHABET[six].into()
            });
        }
    }
    text
}

/// Returns the bytes of a text; `None` if it is none. Blanks around it do not
/// matter, and padding may be missing; bits that belong to no byte must be zero.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        digits => digits,
    };
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let mut bits = 0;
        for &digit in four {
            bits = bits << 6 | six_bits(digit)?;
        }
        let whole = match four.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bits <<= 6 * (4 - four.len());
        let group = &bits.to_be_bytes()[1..];
        if group[whole..].iter().any(|&b| b != 0) {
            return None;
        }
        bytes.extend(&group[..whole]);
    }
    Some(bytes)
}

fn six_bits(digit: u8) -> Option<u32> {
    Some(
        match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        }
        .into(),
    )
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_read_as_they_were_written(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let text = encode(&bytes);
            prop_assert_eq!(text.len() % 4, 0);
            prop_assert_eq!(decode(text.as_bytes()), Some(bytes.clone()));
            prop_assert_eq!(decode(text.trim_end_matches('=').as_bytes()), Some(bytes));
        }

        #[test]
        fn what_is_read_is_written_the_same(text in "[A-Za-z0-9+/]{0,9}={0,3}") {
            if let Some(bytes) = decode(text.as_bytes()) {
                let written = encode(&bytes);
                prop_assert_eq!(written.trim_end_matches('='), text.trim_end_matches('='));
            }
        }
    }

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()), Some(bytes.into()));
        }
    }

    #[test]
    fn invalid_base64_is_refused() {
        for bad in [
            "A", "Zg=", "Z===", "Zh==", "Zm9v=", "Z g=", "Zm\n9", "=", "Zg==Zg==",
        ] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
