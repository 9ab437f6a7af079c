//! How a head and a body are put into bytes, and found again.
//!
//! `u32 LE length of the head | u32 LE length of the body | head | body`.

use super::{Error, Result};

/// How long the two lengths are.
pub const LENGTHS_BYTES: usize = 8;
/// The longest head: a URL has at most [`URL_BYTES_MAX`](super::URL_BYTES_MAX), escaped six times as much.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// The longest body. Longer data is sent as a file in memory.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// A whole frame.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[allow(missing_docs)]
pub struct Frame {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

/// Returns the bytes in front of a head and a body of these lengths.
pub fn lengths(head: usize, body: usize) -> Result<[u8; LENGTHS_BYTES]> {
    if head > HEAD_BYTES_MAX {
        return Err(Error::LongHead(head, HEAD_BYTES_MAX));
    }
    if body > BODY_BYTES_MAX {
        return Err(Error::LongBody(body, BODY_BYTES_MAX));
    }
    let mut bytes = [0; LENGTHS_BYTES];
    bytes[..4].copy_from_slice(&(head as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&(body as u32).to_le_bytes());
    Ok(bytes)
}

/// Writes a frame.
pub fn frame(head: &[u8], body: &[u8]) -> Result<Vec<u8>> {
    let lengths = lengths(head.len(), body.len())?;
    Ok([&lengths, head, body].concat())
}

/// Finds frames in pieces of any size. Lengths are checked before a byte is kept, and no more is kept than arrived.
#[derive(Debug, Default)]
pub struct Decoder {
    lengths: [u8; LENGTHS_BYTES],
    /// How many bytes of the current frame have arrived, its lengths included.
    came: usize,
    under_way: Frame,
}

impl Decoder {
    /// Returns a decoder between two frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells whether a frame has begun and not ended.
    pub fn is_within(&self) -> bool {
        self.came > 0
    }

    /// Returns how many bytes of `input` it took, and a frame if one is whole: if none, all were taken.
    /// After an error nothing more can be found.
    pub fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Frame>)> {
        let mut taken = 0;
        if self.came < LENGTHS_BYTES {
            taken = (LENGTHS_BYTES - self.came).min(input.len());
            self.lengths[self.came..self.came + taken].copy_from_slice(&input[..taken]);
            self.came += taken;
        }
        if self.came < LENGTHS_BYTES {
            return Ok((taken, None));
        }
        let (head, body) = self.wanted()?;
        taken += take(&mut self.under_way.head, head, &input[taken..]);
        taken += take(&mut self.under_way.body, body, &input[taken..]);
        let (has_head, has_body) = (self.under_way.head.len(), self.under_way.body.len());
        self.came = LENGTHS_BYTES + has_head + has_body;
        if (has_head, has_body) != (head, body) {
            return Ok((taken, None));
        }
        self.came = 0;
        Ok((taken, Some(std::mem::take(&mut self.under_way))))
    }

    fn wanted(&self) -> Result<(usize, usize)> {
        let [a, b, c, d, e, f, g, h] = self.lengths;
        let head = u32::from_le_bytes([a, b, c, d]) as usize;
        let body = u32::from_le_bytes([e, f, g, h]) as usize;
        lengths(head, body)?;
        Ok((head, body))
    }
}

/// Moves the missing bytes up to `len`, as far as the input has them.
fn take(into: &mut Vec<u8>, len: usize, input: &[u8]) -> usize {
    let more = (len - into.len()).min(input.len());
    // Reserves space for the body at once: a body in many pieces is then not moved as it grows.
    if into.capacity() == 0 && more > 0 {
        into.reserve_exact(len.min(more.max(AT_ONCE_BYTES)));
    }
    into.extend_from_slice(&input[..more]);
    more
}

/// The most that is reserved for bytes that have not arrived.
const AT_ONCE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<Error>) {
        let (mut decoder, mut frames) = (Decoder::new(), Vec::new());
        for mut input in bytes.chunks(piece) {
            loop {
                let before = input.len();
                match decoder.next(input) {
                    Ok((taken, Some(frame))) => {
                        frames.push(frame);
                        input = &input[taken..];
                    }
                    Ok((taken, None)) => {
                        assert_eq!(taken, before);
                        break;
                    }
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    }

    #[test]
    fn excess_lengths_are_refused_before_reading() {
        for (head, body) in [(u32::MAX, 0), (0, u32::MAX), (65537, 0), (0, (4 << 20) + 1)] {
            let mut decoder = Decoder::new();
            let bytes = [head.to_le_bytes(), body.to_le_bytes()].concat();
            assert!(decoder.next(&bytes).is_err(), "{head} {body}");
            assert_eq!(decoder.under_way.head.capacity(), 0);
            assert_eq!(decoder.under_way.body.capacity(), 0);
        }
        assert!(frame(&vec![0; HEAD_BYTES_MAX + 1], b"").is_err());
        assert!(frame(b"", &vec![0; BODY_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn frame_reserves_little_ahead() {
        let mut decoder = Decoder::new();
        let whole = lengths(0, BODY_BYTES_MAX).unwrap();
        decoder.next(&whole).unwrap();
        decoder.next(b"x").unwrap();
        assert!(decoder.under_way.body.capacity() <= AT_ONCE_BYTES);
        assert!(decoder.is_within());
    }

    proptest! {
        #[test]
        fn frames_are_found_however_they_come_divided(
            frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            piece in 1usize..50,
            cut in 0usize..8,
        ) {
            let mut bytes = Vec::new();
            for (head, body) in &frames {
                bytes.extend(frame(head, body).unwrap());
            }
            let expected: Vec<Frame> = frames.into_iter().map(|(head, body)| Frame { head, body }).collect();
            prop_assert_eq!(found(&bytes, piece), (expected.clone(), None));
            bytes.truncate(bytes.len().saturating_sub(cut));
            let (less, _) = found(&bytes, piece);
            prop_assert_eq!(&less[..], &expected[..less.len()]);
        }

        #[test]
        fn noise_reads_alike_in_any_pieces(bytes in prop::collection::vec(any::<u8>(), 0..100), piece in 1usize..9) {
            prop_assert_eq!(found(&bytes, piece), found(&bytes, 100));
        }
    }
}
