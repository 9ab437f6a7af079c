//! Reading: each connection asks for its share of a file, and gets a pack.

use super::{DoorInner, Gathered, name, visit::DoorConnection, words::CallForm};
use crate::{BlockWriter, Error, Read, Result, Stat, error::refused};
use godwit_core::{Digest, Extents, LEAF_BYTES, Leaves};
use godwit_wire::door::{
    call::{self, AskRead, PackedEnd, Ranges, WantedFile},
    pack::{Decoder, Frame},
};
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::{path::Path, thread};

/// Reads `want` of a file over at most `visits` connections.
///
/// Each connection asks for a share, and then for another while any is left. Shares become shorter towards the end,
/// so that all connections end at about the same time.
pub(super) fn read(
    inner: &DoorInner,
    path: &Path,
    want: &Extents,
    streams: usize,
    into: &dyn BlockWriter,
) -> Result<Read> {
    let visits = (want.len_bytes() / SHARE_MIN).clamp(1, streams.max(1) as u64);
    let fetch = DoorFetch {
        inner,
        path,
        into,
        told: Mutex::default(),
    };
    // A range without an end cannot be divided.
    if visits == 1 || want.end() == u64::MAX {
        return fetch.share(want).map(|read| fetch.with_digest(read));
    }
    let shares = Mutex::new(Shares {
        left: want.clone(),
        read: None,
    });
    let work = || {
        let next = || shares.lock().next(visits);
        while let Some(share) = next() {
            let read = fetch.share(&share);
            shares.lock().join(path, read);
        }
    };
    thread::scope(|scope| {
        for _ in 1..visits {
            scope.spawn(work);
        }
        work();
    });
    let read = shares.into_inner().read;
    let read = read.expect("a thread read the first share")?;
    Ok(fetch.with_digest(read))
}

/// The unread ranges of a file, and the joined result of the reads so far.
struct Shares {
    left: Extents,
    read: Option<Result<Read>>,
}

impl Shares {
    /// Takes the next share of the unread ranges. Each leaf is in one share only, since a part of one cannot be
    /// verified.
    fn next(&mut self, visits: u64) -> Option<Extents> {
        let wanted = (self.left.len_bytes() / (2 * visits)).max(SHARE_MIN);
        let mut share = Extents::new();
        while share.len_bytes() < wanted
            && let Some(range) = self.left.take_aligned(LEAF_BYTES)
        {
            share.insert(range);
        }
        (!share.is_empty()).then_some(share)
    }

    /// Joins the results of two reads, which must be of the same version.
    fn join(&mut self, path: &Path, read: Result<Read>) {
        let is_same = |one: &Stat, other: &Stat| (one.size, one.mtime) == (other.size, other.mtime);
        let joined = match (self.read.take(), read) {
            (Some(Ok(one)), Ok(other)) if !is_same(&one.stat, &other.stat) => {
                Err(Error::changed(path, "it changed while it was read"))
            }
            (Some(Err(error)), _) | (_, Err(error)) => Err(error),
            (first, Ok(other)) => first.unwrap_or(Ok(other)),
        };
        if joined.is_err() {
            // After a failure the other threads need not read on.
            self.left = Extents::new();
        }
        self.read = Some(joined);
    }
}

struct DoorFetch<'a> {
    inner: &'a DoorInner,
    path: &'a Path,
    into: &'a dyn BlockWriter,
    /// The hashes of leaves that the node sent.
    told: Mutex<Leaves>,
}

impl DoorFetch<'_> {
    /// Adds the hash of the whole file, if the node sent those of all leaves.
    fn with_digest(&self, read: Read) -> Read {
        let told = || self.told.lock().root(read.stat.size);
        Read {
            digest: read.digest.or_else(told),
            ..read
        }
    }

    fn share(&self, want: &Extents) -> Result<Read> {
        let asked = AskRead {
            files: vec![WantedFile {
                path: name(self.path)?,
                ranges: Ranges(want.clone()),
            }],
            digests: self.inner.digests,
        };
        let (visit, body) = self.inner.ask_for_pack(&asked, self.path, READING)?;
        let read = self.pack(&visit, body, want)?;
        self.inner.give_back(visit);
        read
    }

    /// Receives a pack. After the outer error the connection is unusable.
    fn pack(&self, visit: &DoorConnection, body: Incoming, want: &Extents) -> Result<Result<Read>> {
        let mut gathered = Gathered::new(self.into);
        let read = self.frames(visit, body, want, &mut gathered);
        // Bytes that arrived are kept, even if the rest failed.
        gathered.end()?;
        read
    }

    fn frames(
        &self,
        visit: &DoorConnection,
        mut body: Incoming,
        want: &Extents,
        gathered: &mut Gathered<'_>,
    ) -> Result<Result<Read>> {
        let strange = |what: String| self.inner.strange(&what);
        let (mut decoder, mut ended) = (Decoder::new(), None);
        let mut asked = PackRequest::new(want);
        while let Some(bytes) = visit.more(&mut body, READING)? {
            asked
                .heard(bytes.len())
                .map_err(|why| self.inner.broke(why))?;
            let mut input = &bytes[..];
            while !input.is_empty() {
                let (taken, frame) = decoder
                    .next(input)
                    .map_err(|error| strange(error.to_string()))?;
                if let Some(frame) = &frame {
                    asked.check(frame).map_err(|why| self.inner.broke(why))?;
                }
                match frame {
                    Some(Frame::Data(offset, bytes)) => gathered.add(offset, bytes)?,
                    Some(Frame::Leaf(leaf, chain)) => {
                        gathered.put()?;
                        self.told.lock().set(leaf, chain);
                        self.into.said(leaf, chain)?;
                    }
                    Some(Frame::End(_, text)) => {
                        ended = Some(
                            call::read(text.as_bytes())
                                .map_err(|error| strange(error.to_string()))?,
                        );
                    }
                    Some(Frame::File(..) | Frame::Last(_)) | None => {}
                }
                input = &input[taken..];
            }
        }
        if !decoder.is_over() {
            return Err(self.inner.cut(READING));
        }
        match ended {
            Some(PackedEnd::Read(stat, digest)) => {
                let stat = Stat::heard(stat);
                let missing = asked.missing(stat.size);
                if !missing.is_empty() {
                    return Ok(Err(Error::changed(
                        self.path,
                        format!("of {} bytes {missing} did not come", stat.size),
                    )));
                }
                let digest = digest.map(|digest: call::Text<Digest>| digest.0);
                Ok(Ok(Read { stat, digest }))
            }
            Some(PackedEnd::Refused(refusal)) => {
                Ok(Err(refused(&self.inner.limits.at, self.path, refusal)))
            }
            None => Err(self.inner.broke("a file in a pack has no end")),
        }
    }
}

/// The requested ranges and their state; other bytes are refused.
struct PackRequest<'a> {
    want: &'a Extents,
    missing: Extents,
    /// The bytes of the pack, and those of the file among them.
    heard_bytes: u64,
    data_bytes: u64,
    has_begun: bool,
    has_ended: bool,
}

impl<'a> PackRequest<'a> {
    fn new(want: &'a Extents) -> Self {
        Self {
            want,
            missing: want.clone(),
            heard_bytes: 0,
            data_bytes: 0,
            has_begun: false,
            has_ended: false,
        }
    }

    /// Counts the bytes of the answer: frames without data could continue for ever.
    fn heard(&mut self, len: usize) -> Result<(), &'static str> {
        self.heard_bytes += len as u64;
        let allowed = self
            .data_bytes
            .saturating_mul(2)
            .saturating_add(FRAMES_BYTES * (1 + self.want.count() as u64));
        match self.heard_bytes - len as u64 > allowed {
            true => Err("a pack of frames that bring nothing"),
            false => Ok(()),
        }
    }

    fn check(&mut self, frame: &Frame<'_>) -> Result<(), &'static str> {
        let is_first = !self.has_begun;
        match frame {
            Frame::File(number, _) => {
                self.has_begun = true;
                is_true(is_first && *number == 0, "a file that was not asked for")
            }
            Frame::Last(count) => is_true(self.has_ended && *count == 1, "it miscounts its files"),
            _ if is_first || self.has_ended => Err("a frame that is of no file"),
            Frame::Data(offset, bytes) => {
                let range = *offset..offset + bytes.len() as u64;
                is_true(
                    self.missing.contains(&range),
                    "bytes that were not asked for, or came before",
                )?;
                self.missing.remove(range);
                self.data_bytes += bytes.len() as u64;
                Ok(())
            }
            Frame::Leaf(leaf, _) => {
                let bytes = leaf.checked_mul(LEAF_BYTES);
                let bytes = bytes.and_then(|start| Some(start..start.checked_add(LEAF_BYTES)?));
                let is_asked = bytes.is_some_and(|bytes| self.want.within(bytes).next().is_some());
                is_true(is_asked, "a digest of what was not asked for")
            }
            Frame::End(number, _) => {
                self.has_ended = true;
                is_true(*number == 0, "a file that was not asked for")
            }
        }
    }

    /// Returns the ranges that did not arrive of a file of that length.
    fn missing(&self, size: u64) -> Extents {
        self.missing.and(&Extents::from(0..size))
    }
}

fn is_true(is: bool, else_what: &'static str) -> Result<(), &'static str> {
    if is { Ok(()) } else { Err(else_what) }
}

/// Headers, texts and digests of a file or a range may take so much.
const FRAMES_BYTES: u64 = 256 << 10;
const READING: &str = "receiving";
/// Less is not worth a connection.
const SHARE_MIN: u64 = 4 * LEAF_BYTES;
