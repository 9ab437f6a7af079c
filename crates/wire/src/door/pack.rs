//! A pack: files, or ranges of files, one behind the other, with their hashes.
//!
//! A frame has a header of 13 bytes (kind, number, length; big-endian) and as many bytes as its length. One format
//! serves a range of a large file, a thousand ranges, and a thousand small files. A pack that ends without
//! [`FrameKind::Last`] was cut.

use super::{Error, Result};
use godwit_core::Chain;

/// How long a header is.
pub const HEADER_BYTES: usize = 13;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum FrameKind {
    /// The start of another file: its number in the request, and JSON.
    File = b'F',
    /// Bytes of it, and the offset of the first.
    Data = b'D',
    /// The hash of a leaf, and which leaf.
    Leaf = b'L',
    /// The end of a file: its number, and JSON.
    End = b'E',
    /// The end of the pack: how many files it had.
    Last = b'Z',
}

/// A frame or a piece of one that the decoder found.
#[derive(Debug, Eq, PartialEq)]
pub enum Frame<'a> {
    /// See [`FrameKind::File`].
    File(u64, &'a str),
    /// Some of the bytes of a [`FrameKind::Data`], as they come.
    Data(u64, &'a [u8]),
    /// See [`FrameKind::Leaf`].
    Leaf(u64, Chain),
    /// See [`FrameKind::End`].
    End(u64, &'a str),
    /// See [`FrameKind::Last`].
    Last(u64),
}

/// Writes the header of a frame.
pub fn header(kind: FrameKind, number: u64, len: usize) -> [u8; HEADER_BYTES] {
    let len = u32::try_from(len).expect("frames are short");
    let mut bytes = [kind as u8; HEADER_BYTES];
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes[9..].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Writes a whole frame.
pub fn frame(kind: FrameKind, number: u64, body: &[u8]) -> Vec<u8> {
    [&header(kind, number, body.len())[..], body].concat()
}

/// Writes the frame of a leaf's hash.
pub fn leaf(index: u64, chain: &Chain) -> Vec<u8> {
    frame(FrameKind::Leaf, index, &chain.0)
}

/// Reads a pack, in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    /// A header, or a frame that must be whole, as far as it came.
    held: Vec<u8>,
    state: FrameState,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum FrameState {
    #[default]
    Header,
    /// Bytes of a file: the offset of the next, and how many are to come.
    Data(u64, usize),
    /// A frame that must be whole.
    Whole(FrameKind, u64, usize),
    /// The last frame that was handed out lies in `held`.
    Given,
    Over,
}

impl Decoder {
    /// Returns a decoder at the beginning of a pack.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells whether the pack has ended as it should.
    pub fn is_over(&self) -> bool {
        self.state == FrameState::Over
    }

    /// Returns how many bytes of `input` were used, and a frame. `None`: all were used and more are needed.
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Option<Frame<'a>>)> {
        if self.state == FrameState::Given {
            self.held.clear();
            self.state = FrameState::Header;
        }
        let mut taken = 0;
        loop {
            match self.state {
                FrameState::Header => {
                    taken += self.hold(&input[taken..], HEADER_BYTES);
                    let Ok(header) = <[u8; HEADER_BYTES]>::try_from(&*self.held) else {
                        return Ok((taken, None));
                    };
                    self.held.clear();
                    self.state = begin(&header)?;
                }
                FrameState::Data(_, 0) => self.state = FrameState::Header,
                FrameState::Data(offset, left) => {
                    let len = left.min(input.len() - taken);
                    if len == 0 {
                        return Ok((taken, None));
                    }
                    self.state = FrameState::Data(offset + len as u64, left - len);
                    let bytes = &input[taken..taken + len];
                    return Ok((taken + len, Some(Frame::Data(offset, bytes))));
                }
                FrameState::Whole(kind, number, len) => {
                    taken += self.hold(&input[taken..], len);
                    if self.held.len() < len {
                        return Ok((taken, None));
                    }
                    self.state = match kind {
                        FrameKind::Last => FrameState::Over,
                        _ => FrameState::Given,
                    };
                    return Ok((taken, Some(whole(kind, number, &self.held)?)));
                }
                FrameState::Over if taken == input.len() => return Ok((taken, None)),
                FrameState::Over => return Err(Error::BadPack("more comes behind its end")),
                FrameState::Given => unreachable!("it was ended above"),
            }
        }
    }

    /// Adds the missing bytes up to `len`, and returns how many were added.
    fn hold(&mut self, input: &[u8], len: usize) -> usize {
        let wanted = (len - self.held.len()).min(input.len());
        self.held.extend_from_slice(&input[..wanted]);
        wanted
    }
}

fn begin(header: &[u8; HEADER_BYTES]) -> Result<FrameState> {
    let number = u64::from_be_bytes(header[1..9].try_into().expect("eight bytes"));
    let len = u32::from_be_bytes(header[9..].try_into().expect("four bytes")) as usize;
    let kind = match header[0] {
        b'F' => FrameKind::File,
        b'D' => FrameKind::Data,
        b'L' => FrameKind::Leaf,
        b'E' => FrameKind::End,
        b'Z' => FrameKind::Last,
        _ => return Err(Error::BadPack("a frame of no known kind")),
    };
    match kind {
        FrameKind::Data if len > DATA_BYTES_MAX || number.checked_add(len as u64).is_none() => {
            Err(Error::BadPack("a frame of bytes is too long"))
        }
        FrameKind::Data => Ok(FrameState::Data(number, len)),
        FrameKind::Leaf if len != 32 => Err(Error::BadPack("a leaf is not of 32 bytes")),
        FrameKind::Last if len != 0 => Err(Error::BadPack("its end is not empty")),
        FrameKind::File | FrameKind::End if len > TEXT_BYTES_MAX => {
            Err(Error::BadPack("a frame of text is too long"))
        }
        kind => Ok(FrameState::Whole(kind, number, len)),
    }
}

fn whole(kind: FrameKind, number: u64, body: &[u8]) -> Result<Frame<'_>> {
    let text = || std::str::from_utf8(body).map_err(|_| Error::BadPack("text is not UTF-8"));
    Ok(match kind {
        FrameKind::File => Frame::File(number, text()?),
        FrameKind::End => Frame::End(number, text()?),
        FrameKind::Leaf => {
            let chain = body.try_into().expect("its length was looked at");
            Frame::Leaf(number, Chain(chain))
        }
        FrameKind::Last => Frame::Last(number),
        FrameKind::Data => unreachable!("bytes are given out as they come"),
    })
}

/// The longest frame of bytes.
pub const DATA_BYTES_MAX: usize = 16 << 20;
/// The longest frame of text: a name has at most 4 KiB, escaped three times as much.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a pack in pieces of `piece` bytes; bytes that follow each other are joined.
    fn read(bytes: &[u8], piece: usize) -> Result<(Vec<String>, bool)> {
        let (mut decoder, mut found) = (Decoder::new(), Vec::<String>::new());
        let mut next_offset = None;
        for mut input in bytes.chunks(piece) {
            loop {
                let (taken, frame) = decoder.next(input)?;
                let Some(frame) = frame else {
                    assert_eq!(taken, input.len());
                    break;
                };
                match frame {
                    Frame::Data(offset, bytes) => {
                        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                        match found.last_mut() {
                            Some(last) if next_offset == Some(offset) => last.push_str(&hex),
                            _ => found.push(format!("{offset}:{hex}")),
                        }
                        next_offset = Some(offset + bytes.len() as u64);
                    }
                    frame => {
                        next_offset = None;
                        found.push(format!("{frame:?}"));
                    }
                }
                input = &input[taken..];
            }
        }
        Ok((found, decoder.is_over()))
    }

    fn sample() -> Vec<u8> {
        [
            frame(FrameKind::File, 0, b"{}"),
            frame(FrameKind::Data, 5, b"hello"),
            leaf(7, &Chain([9; 32])),
            frame(FrameKind::Data, 100, b""),
            frame(FrameKind::Data, 200, b"x"),
            frame(FrameKind::End, 0, b"{\"a\":1}"),
            frame(FrameKind::Last, 1, b""),
        ]
        .concat()
    }

    #[test]
    fn pack_reads_alike_in_any_pieces() {
        let whole = read(&sample(), usize::MAX).unwrap();
        assert!(whole.1);
        assert_eq!(whole.0[1], "5:68656c6c6f");
        assert_eq!(whole.0.len(), 6);
        for piece in 1..60 {
            assert_eq!(read(&sample(), piece).unwrap(), whole, "{piece}");
        }
    }

    #[test]
    fn what_is_cut_is_not_over() {
        let sample = sample();
        for len in 0..sample.len() {
            assert!(!read(&sample[..len], 7).unwrap().1, "{len}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let long = |kind, len: u32| {
            let mut bytes = header(kind, 1, 0).to_vec();
            bytes[9..].copy_from_slice(&len.to_be_bytes());
            bytes
        };
        for bytes in [
            frame(FrameKind::Leaf, 0, b"short"),
            frame(FrameKind::Last, 0, b"x"),
            frame(FrameKind::File, 0, b"\xff"),
            long(FrameKind::Data, u32::MAX),
            long(FrameKind::File, 1 << 17),
            frame(FrameKind::Data, u64::MAX, b"x"),
            [sample(), b"x".to_vec()].concat(),
            b"what is this?".to_vec(),
        ] {
            assert!(read(&bytes, 5).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_little_is_held(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1usize..50) {
            let _ = read(&bytes, piece);
        }
    }
}
