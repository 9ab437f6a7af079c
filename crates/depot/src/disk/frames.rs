//! The bytes of a log of appended pieces: frames, marks, and where the last whole one ends.

use godwit_store::SMALL_BYTES;
use std::{fs::File, io, os::unix::fs::FileExt};

/// The number of a piece of a writer that counts its pieces, from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Nth {
    /// A number that no other writer has.
    pub by: u64,
    /// Which of theirs.
    pub seq: u64,
}

/// A piece with its length and what it hashes to before it.
pub(crate) fn frame(piece: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + piece.len());
    frame.extend((piece.len() as u32).to_le_bytes());
    frame.extend(check(piece));
    frame.extend(piece);
    frame
}

fn check(piece: &[u8]) -> [u8; 4] {
    let digest = godwit_core::Digest::of(godwit_core::Algorithm::Blake3, piece);
    let mut check = [0; 4];
    check.copy_from_slice(&digest.value()[..4]);
    check
}

/// Returns the mark before a piece that may be sent again.
pub(crate) fn mark(nth: Nth) -> Vec<u8> {
    let mut of = [0; MARK_BYTES];
    of[..8].copy_from_slice(&nth.by.to_le_bytes());
    of[8..].copy_from_slice(&nth.seq.to_le_bytes());
    let mut mark = frame(&of);
    mark[..4].copy_from_slice(&(MARK | MARK_BYTES as u32).to_le_bytes());
    mark
}

/// A piece, and how long it is in the log.
pub(crate) struct Framed {
    pub piece: Vec<u8>,
    pub len: u64,
}

/// The content at a place of a log.
pub(crate) enum Frame {
    Piece(Vec<u8>),
    Mark(Nth),
}

impl Frame {
    pub(crate) fn framed(self) -> Framed {
        let len = self.len();
        match self {
            Self::Piece(piece) => Framed { piece, len },
            Self::Mark(_) => Framed {
                piece: Vec::new(),
                len,
            },
        }
    }

    fn len(&self) -> u64 {
        let bytes = match self {
            Self::Piece(piece) => piece.len(),
            Self::Mark(_) => MARK_BYTES,
        };
        (HEAD_BYTES + bytes) as u64
    }
}

/// The whole pieces of a log.
pub(crate) struct Whole {
    pub marks: Vec<Nth>,
    pub framing: u64,
}

/// Returns the end of the last piece that is whole, and adds what is found of those that are.
pub(crate) fn whole_end(file: &File, from: u64, whole: &mut Whole) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut at = from.min(size);
    let (mut end, mut of_next) = (at, None);
    while at < size {
        let frame = match read_frame(file, at, size) {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => break,
            Err(error) => return Err(error),
        };
        at += frame.len();
        match frame {
            // A mark without its piece says nothing.
            Frame::Mark(nth) => of_next = Some(nth),
            Frame::Piece(piece) => {
                whole.framing += at - end - piece.len() as u64;
                end = at;
                whole.marks.extend(of_next.take());
            }
        }
    }
    Ok(end)
}

/// Returns where the next whole piece begins, where there may be something else before it.
pub(crate) fn next_whole(file: &File, from: u64, size: u64) -> io::Result<Option<u64>> {
    let mut window = Vec::new();
    let mut begins = from;
    for at in from..size.saturating_sub(HEAD_BYTES as u64 - 1) {
        let mut inside = (at - begins) as usize;
        if inside + HEAD_BYTES > window.len() {
            (begins, inside) = (at, 0);
            window.resize((size - at).min(WINDOW_BYTES) as usize, 0);
            file.read_exact_at(&mut window, at)?;
        }
        let len = u32::from_le_bytes([
            window[inside],
            window[inside + 1],
            window[inside + 2],
            window[inside + 3],
        ]);
        let len = (len & !MARK) as usize;
        let fits = len <= PIECE_MAX && (len + HEAD_BYTES) as u64 <= size - at;
        let is_piece = |at| matches!(read_frame(file, at, size), Ok(Frame::Piece(_)));
        // A mark without its piece says nothing.
        let is_whole = || match read_frame(file, at, size) {
            Ok(Frame::Piece(_)) => true,
            Ok(mark @ Frame::Mark(_)) => is_piece(at + mark.len()),
            Err(_) => false,
        };
        if fits && is_whole() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Returns the marks of what is at the target already; of pieces only the heads are read.
pub(crate) fn marks_before(file: &File, upto: u64) -> io::Result<Vec<Nth>> {
    let end = upto.min(file.metadata()?.len());
    let (mut at, mut marks) = (0, Vec::new());
    while end - at >= HEAD_BYTES as u64 {
        let head = read_head(file, at)?;
        let len = head.bytes.min(PIECE_MAX);
        if head.is_mark
            && let Ok(Frame::Mark(nth)) = read_frame(file, at, end)
        {
            marks.push(nth);
        }
        at = (at + (HEAD_BYTES + len) as u64).min(end);
    }
    Ok(marks)
}

struct Head {
    is_mark: bool,
    bytes: usize,
    check: [u8; 4],
}

fn read_head(file: &File, at: u64) -> io::Result<Head> {
    let mut head = [0; HEAD_BYTES];
    file.read_exact_at(&mut head, at)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    Ok(Head {
        is_mark: len & MARK != 0,
        bytes: (len & !MARK) as usize,
        check: [head[4], head[5], head[6], head[7]],
    })
}

pub(crate) fn read_frame(file: &File, at: u64, end: u64) -> io::Result<Frame> {
    let torn = || io::Error::from(io::ErrorKind::InvalidData);
    if end - at < HEAD_BYTES as u64 {
        return Err(torn());
    }
    let head = read_head(file, at)?;
    if head.bytes > PIECE_MAX || (head.bytes + HEAD_BYTES) as u64 > end - at {
        return Err(torn());
    }
    let mut piece = vec![0; head.bytes];
    file.read_exact_at(&mut piece, at + HEAD_BYTES as u64)?;
    if check(&piece) != head.check {
        return Err(torn());
    }
    if !head.is_mark {
        return Ok(Frame::Piece(piece));
    }
    let (by, seq) = piece.split_first_chunk().ok_or_else(torn)?;
    let seq = seq.first_chunk().ok_or_else(torn)?;
    Ok(Frame::Mark(Nth {
        by: u64::from_le_bytes(*by),
        seq: u64::from_le_bytes(*seq),
    }))
}

/// In a length: it is a mark.
const MARK: u32 = 1 << 31;
pub(crate) const MARK_BYTES: usize = 16;

pub(crate) const HEAD_BYTES: usize = 8;
/// The target takes no longer ones in one go.
pub const PIECE_MAX: usize = SMALL_BYTES as usize;

const WINDOW_BYTES: u64 = 1 << 20;
