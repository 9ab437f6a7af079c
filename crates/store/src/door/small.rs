//! Many small files in one request, both ways: a round trip is paid once for hundreds.

use super::{Door, DoorInner, is_numbered, name, visit::DoorConnection, words::CallForm};
use crate::{
    Error, Finished, NextFile, Result, SMALL_BYTES, Small, SmallWrite, Stat, Verified,
    error::refused,
};
use godwit_core::{Algorithm, Digest, Extents, LEAF_BYTES};
use godwit_wire::door::{
    ROOT,
    call::{self, AskRead, Line, PackedEnd, Ranges, Text, Time, WantedFile},
    pack::{self, Decoder, Frame, FrameKind},
};
use hyper::{
    Method,
    body::{Bytes, Incoming},
};
use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

type EachRead<'a> = &'a mut dyn FnMut(PathBuf, Result<Small>);
type EachWritten<'a> = &'a mut dyn FnMut(PathBuf, Result<Finished>);

/// Reads small files, hundreds a request.
pub(super) fn read(
    inner: &DoorInner,
    next: &mut NextFile<'_, PathBuf>,
    each: EachRead<'_>,
) -> Result<()> {
    loop {
        let some: VecDeque<PathBuf> = std::iter::from_fn(&mut *next).take(FILES_A_CALL).collect();
        if some.is_empty() {
            return Ok(());
        }
        read_some(inner, some, each)?;
    }
}

fn read_some(inner: &DoorInner, mut some: VecDeque<PathBuf>, each: EachRead<'_>) -> Result<()> {
    let mut files = Vec::new();
    // A name that cannot be sent does not disturb the others; its error is returned in its turn.
    let mut unspeakable = VecDeque::new();
    for path in &some {
        match name(path) {
            Ok(path) => files.push(WantedFile {
                path,
                ranges: Ranges(Extents::from(0..SMALL_BYTES + 1)),
            }),
            Err(_) => unspeakable.push_back(path.clone()),
        }
    }
    let mut tell = |path: PathBuf, small: Option<Result<Small>>| match small {
        Some(small) => each(path, small),
        None => {
            let refused = name(&path).map(drop);
            each(path, Err(refused.expect_err("it was refused before")));
        }
    };
    let asked = AskRead {
        files,
        digests: inner.digests,
    };
    let about = some.front().cloned().unwrap_or_default();
    let (visit, body) = match inner.ask_for_pack(&asked, &about, READING) {
        Ok(begun) => begun,
        // A call for one file may be refused for the file's own reason.
        Err(error) if some.len() == 1 && is_of_file(&error) => {
            tell(about, Some(Err(error)));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut files = FilePack {
        inner,
        visit: &visit,
        body,
        held: Bytes::new(),
        decoder: Decoder::new(),
        nth: 0,
    };
    while let Some(path) = some.pop_front() {
        if unspeakable.front() == Some(&path) {
            unspeakable.pop_front();
            tell(path, None);
            continue;
        }
        let small = files.next(&path)?;
        tell(path, Some(small));
    }
    files.end()?;
    inner.give_back(visit);
    Ok(())
}

/// Tells whether an error is of one file, so that the connection can be used further.
fn is_of_file(error: &Error) -> bool {
    !matches!(
        error,
        Error::Lost { .. }
            | Error::Beyond { .. }
            | Error::Stalled { .. }
            | Error::PeerMisbehaved { .. }
            | Error::Canceled
            | Error::Unreachable { .. }
            | Error::Away { .. }
            | Error::Stranger { .. }
            | Error::Trust { .. }
    )
}

/// An incoming pack of files.
struct FilePack<'a> {
    inner: &'a DoorInner,
    visit: &'a DoorConnection,
    body: Incoming,
    /// Bytes that arrived and were not decoded yet.
    held: Bytes,
    decoder: Decoder,
    /// The number of the next file.
    nth: u64,
}

impl FilePack<'_> {
    /// Reads the next file to its end. The outer error ends the conversation.
    fn next(&mut self, path: &Path) -> Result<Result<Small>> {
        let (mut bytes, mut has_begun, mut leaves) = (Vec::new(), false, 0);
        let mut heard_bytes = 0;
        loop {
            if self.held.is_empty() {
                let more = self.visit.more(&mut self.body, READING)?;
                self.held = more.ok_or_else(|| self.inner.cut(READING))?;
            }
            let next = self.decoder.next(&self.held);
            let (taken, frame) = next.map_err(|error| self.inner.strange(&error.to_string()))?;
            let mut ended = None;
            match frame {
                None => {}
                Some(Frame::File(number, _)) if !has_begun && number == self.nth => {
                    has_begun = true;
                }
                Some(Frame::File(..)) => {
                    return Err(self.inner.broke("a file that was not asked for"));
                }
                Some(Frame::Last(_)) => {
                    return Err(self.inner.broke("a pack ends before its last file"));
                }
                Some(_) if !has_begun => {
                    return Err(self.inner.broke("a frame that is of no file"));
                }
                Some(Frame::Data(offset, more)) if offset == bytes.len() as u64 => {
                    bytes.extend_from_slice(more);
                }
                Some(Frame::Data(..)) => {
                    return Err(self.inner.broke("a small file comes out of order"));
                }
                // The hash of the whole file follows at its end.
                Some(Frame::Leaf(..)) if leaves <= SMALL_BYTES / LEAF_BYTES => leaves += 1,
                Some(Frame::Leaf(..)) => {
                    return Err(self.inner.broke("a digest of what was not asked for"));
                }
                Some(Frame::End(number, text)) if number == self.nth => {
                    let read = call::read(text.as_bytes());
                    ended = Some(read.map_err(|error| self.inner.strange(&error.to_string()))?);
                    self.nth += 1;
                }
                Some(Frame::End(..)) => {
                    return Err(self.inner.broke("a file that was not asked for"));
                }
            }
            heard_bytes += taken as u64;
            self.held = self.held.slice(taken..);
            if heard_bytes > HEARD_BYTES_MAX {
                return Err(self.inner.broke("a pack of frames that bring nothing"));
            }
            if bytes.len() as u64 > SMALL_BYTES {
                return Err(Error::changed(
                    path,
                    format!("it has more than {SMALL_BYTES} bytes, which is not small"),
                ));
            }
            match ended {
                None => {}
                Some(PackedEnd::Refused(refusal)) => {
                    return Ok(Err(refused(&self.inner.limits.at, path, refusal)));
                }
                Some(PackedEnd::Read(stat, digest)) => {
                    return Ok(small(path, bytes, Stat::heard(stat), digest.map(|d| d.0)));
                }
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        loop {
            let next = self.decoder.next(&self.held);
            let (taken, frame) = next.map_err(|error| self.inner.strange(&error.to_string()))?;
            match frame {
                None => {}
                Some(Frame::Last(count)) if count == self.nth => {}
                Some(_) => return Err(self.inner.broke("it miscounts its files")),
            }
            self.held = self.held.slice(taken..);
            if self.held.is_empty() {
                match self.visit.more(&mut self.body, READING)? {
                    Some(more) => self.held = more,
                    None if self.decoder.is_over() => return Ok(()),
                    None => return Err(self.inner.cut(READING)),
                }
            }
        }
    }
}

fn small(path: &Path, bytes: Vec<u8>, stat: Stat, said: Option<Digest>) -> Result<Small> {
    if bytes.len() as u64 != stat.size {
        return Err(Error::changed(
            path,
            format!("{} bytes came of {}", bytes.len(), stat.size),
        ));
    }
    let verified = match said {
        Some(said) => {
            let found = Digest::of(said.algorithm(), &bytes);
            if found != said {
                return Err(Error::corrupt(path, said.to_string(), found.to_string()));
            }
            Verified::By(said.algorithm())
        }
        None => Verified::SizeOnly,
    };
    Ok(Small {
        bytes,
        stat,
        verified,
    })
}

/// Writes small files, hundreds a request.
pub(super) fn write(
    door: &Door,
    next: &mut NextFile<'_, SmallWrite>,
    each: EachWritten<'_>,
) -> Result<()> {
    let mut held = next();
    while held.is_some() {
        let (mut some, mut bytes) = (Vec::new(), 0);
        while let Some(given) = held.take() {
            bytes += given.bytes.len();
            some.push(given);
            if some.len() < FILES_A_CALL && bytes < BYTES_A_CALL {
                held = next();
            } else {
                break;
            }
        }
        if some.iter().any(|given| is_numbered(&given.how)) {
            door.must_count()?;
        }
        write_some(&door.0, some, each)?;
        if held.is_none() {
            held = next();
        }
    }
    Ok(())
}

fn write_some(inner: &DoorInner, some: Vec<SmallWrite>, each: EachWritten<'_>) -> Result<()> {
    let mut pouring = inner.pour_pack(Method::POST, &format!("{ROOT}write"))?;
    let (mut sent, mut buffer) = (VecDeque::new(), Vec::new());
    for given in some {
        let path = match name(&given.path) {
            Ok(path) => path,
            Err(error) => {
                each(given.path, Err(error));
                continue;
            }
        };
        let digest = inner
            .digests
            .then(|| Digest::of(Algorithm::Blake3, &given.bytes));
        let head = call::PackedFile {
            path,
            how: given.how.say(),
            size: given.bytes.len() as u64,
            mtime: given.mtime.map(Time),
            mode: given.mode,
            digest: digest.map(Text),
        };
        buffer.extend(pack::frame(
            FrameKind::File,
            sent.len() as u64,
            &call::write(&head),
        ));
        buffer.extend(pack::frame(FrameKind::Data, 0, &given.bytes));
        sent.push_back(given.path);
        if buffer.len() > BLOCK_BYTES
            && !pouring.pour(std::mem::take(&mut buffer).into(), WRITING)?
        {
            break;
        }
    }
    buffer.extend(pack::frame(FrameKind::Last, sent.len() as u64, b""));
    pouring.pour(buffer.into(), WRITING)?;
    let (visit, answer) = pouring.end(WRITING)?;
    inner.hear(visit, answer, WRITING, Path::new(""), &mut |line| {
        let path = sent.pop_front();
        let path = path.ok_or_else(|| inner.broke("it tells of more files than were sent"))?;
        let finished = match line {
            Line::Finished(finished) => Ok(Finished::heard(finished)),
            Line::Refused(refusal) => Err(refused(&inner.limits.at, &path, refusal)),
            _ => return Err(inner.broke("a line that was not asked for")),
        };
        each(path, finished);
        Ok(())
    })?;
    match sent.is_empty() {
        true => Ok(()),
        false => Err(inner.broke("it tells of fewer files than were sent")),
    }
}

const READING: &str = "receiving small files";
const WRITING: &str = "sending small files";
/// The most bytes of a small file with all its frames.
const HEARD_BYTES_MAX: u64 = 3 * SMALL_BYTES;
const FILES_A_CALL: usize = 512;
const BYTES_A_CALL: usize = 16 << 20;
const BLOCK_BYTES: usize = 256 << 10;
