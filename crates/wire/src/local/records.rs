//! Many small writes in one body: `u64 LE offset | u32 LE length | bytes`, one behind the other.

use super::{Error, Result};

/// How much stands before the bytes of each.
pub const BEFORE_BYTES: usize = 12;

/// Adds a write to a body.
pub fn push(body: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("a body is short");
    body.extend_from_slice(&offset.to_le_bytes());
    body.extend_from_slice(&len.to_le_bytes());
    body.extend_from_slice(bytes);
}

/// Returns the writes of a body, in order. All are checked before the first is returned: a body that was cut is
/// refused as a whole.
pub fn of(body: &[u8]) -> Result<impl Iterator<Item = (u64, &[u8])>> {
    let mut rest = body;
    while !rest.is_empty() {
        let (_, _, behind) = first(rest).ok_or(Error::BadRecords)?;
        rest = behind;
    }
    let mut rest = body;
    Ok(std::iter::from_fn(move || {
        let (offset, bytes, behind) = first(rest)?;
        rest = behind;
        Some((offset, bytes))
    }))
}

fn first(body: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (offset, rest) = body.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let offset = u64::from_le_bytes(*offset);
    let (bytes, behind) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    // The kernel's offsets are signed.
    let end = offset.checked_add(bytes.len() as u64)?;
    (end <= i64::MAX as u64).then_some((offset, bytes, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cut_or_excess_body_writes_nothing() {
        let mut body = Vec::new();
        push(&mut body, 5, b"hello");
        push(&mut body, 0, b"");
        assert_eq!(of(&body).unwrap().count(), 2);
        for len in 1..body.len() {
            let is_whole = len == BEFORE_BYTES + 5;
            assert_eq!(of(&body[..len]).is_ok(), is_whole, "{len}");
        }
        push(&mut body, i64::MAX as u64, b"x");
        assert!(of(&body).is_err());
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_out(writes in prop::collection::vec((0u64..1 << 40, prop::collection::vec(any::<u8>(), 0..30)), 0..10)) {
            let mut body = Vec::new();
            for (offset, bytes) in &writes {
                push(&mut body, *offset, bytes);
            }
            let found: Vec<_> = of(&body).unwrap().map(|(offset, bytes)| (offset, bytes.to_vec())).collect();
            prop_assert_eq!(found, writes);
        }

        #[test]
        fn noise_never_panics(body in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(found) = of(&body) {
                prop_assert!(found.map(|(_, bytes)| bytes.len() + BEFORE_BYTES).sum::<usize>() == body.len());
            }
        }
    }
}
