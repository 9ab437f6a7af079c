//! Reading: each connection asks for its share of a file, and gets a pack.

use super::{
    Gathered, Inner, NO_PANIC, name,
    visit::Visit,
    words::{Said, refused},
};
use crate::{Error, Read, Result, Stat, Take};
use godwit_core::{Digest, Extents, LEAF_BYTES, Leaves};
use godwit_wire::door::{
    call::{self, AskRead, Ended, Ranges, Wanted},
    pack::{Decoder, Frame},
};
use hyper::body::Incoming;
use std::{iter, path::Path, sync::Mutex, thread};

/// Reads `want` of a file through at most so many connections.
///
/// Each asks for a share, and then for another while there is something left. Shares become
/// shorter towards the end, so that none is long in coming while the others are through.
pub(super) fn read(
    inner: &Inner,
    path: &Path,
    want: &Extents,
    streams: usize,
    into: &dyn Take,
) -> Result<Read> {
    let visits = (want.len_bytes() / SHARE_MIN).clamp(1, streams.max(1) as u64);
    let fetch = Fetch {
        inner,
        path,
        into,
        told: Mutex::default(),
    };
    // An end that is open is nobody's share.
    if visits == 1 || want.end() == u64::MAX {
        return fetch.share(want).map(|read| fetch.with_digest(read));
    }
    let left = Mutex::new(want.clone());
    let work = || {
        let mut first = None::<Read>;
        while let Some(share) = next_share(&left, visits) {
            let read = fetch.share(&share).and_then(|read| match first.take() {
                Some(first) => fetch.same(first, read),
                None => Ok(read),
            });
            // Nobody needs to read on if one cannot.
            first = Some(read.inspect_err(|_| *left.lock().expect(NO_PANIC) = Extents::new())?);
        }
        Ok(first)
    };
    let reads: Vec<Result<Option<Read>>> = thread::scope(|scope| {
        let others: Vec<_> = (1..visits).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let others = others.into_iter().map(|other| {
            let panicked = |panic| std::panic::resume_unwind(panic);
            other.join().unwrap_or_else(panicked)
        });
        iter::once(mine).chain(others).collect()
    });
    let mut whole = None;
    for read in reads {
        whole = match (whole, read?) {
            (Some(whole), Some(read)) => Some(fetch.same(whole, read)?),
            (whole, read) => whole.or(read),
        };
    }
    let whole = whole.expect("somebody had the first share");
    Ok(fetch.with_digest(whole))
}

/// Takes the next share of what is left. No leaf is in two shares: it could not be verified.
fn next_share(left: &Mutex<Extents>, visits: u64) -> Option<Extents> {
    let mut left = left.lock().expect(NO_PANIC);
    let wanted = (left.len_bytes() / (2 * visits)).max(SHARE_MIN);
    let mut share = Extents::new();
    while share.len_bytes() < wanted
        && let Some(range) = left.take_aligned(LEAF_BYTES)
    {
        share.insert(range);
    }
    (!share.is_empty()).then_some(share)
}

struct Fetch<'a> {
    inner: &'a Inner,
    path: &'a Path,
    into: &'a dyn Take,
    /// What it says that leaves hash to.
    told: Mutex<Leaves>,
}

impl Fetch<'_> {
    /// Joins what was read of one file: it must have been the same one all the time.
    fn same(&self, first: Read, other: Read) -> Result<Read> {
        match first.stat.size == other.stat.size && first.stat.mtime == other.stat.mtime {
            true => Ok(first),
            false => Err(Error::Changed {
                path: self.path.into(),
                what: "it changed while it was read".into(),
            }),
        }
    }

    /// If all leaves were told, so was what the whole hashes to, though nobody there has seen it all.
    fn with_digest(&self, read: Read) -> Read {
        let told = || self.told.lock().expect(NO_PANIC).root(read.stat.size);
        Read {
            digest: read.digest.or_else(told),
            ..read
        }
    }

    fn share(&self, want: &Extents) -> Result<Read> {
        let asked = AskRead {
            files: vec![Wanted {
                path: name(self.path)?,
                ranges: Ranges(want.clone()),
            }],
            digests: self.inner.digests,
        };
        let (visit, body) = self.inner.ask_for_pack(&asked, self.path, READING)?;
        let read = self.pack(&visit, body)?;
        self.inner.give_back(visit);
        read
    }

    /// Takes in a pack. The outer error is one after which the connection is of no use.
    fn pack(&self, visit: &Visit, body: Incoming) -> Result<Result<Read>> {
        let mut gathered = Gathered::new(self.into);
        let read = self.frames(visit, body, &mut gathered);
        // What came is kept, whatever became of the rest.
        gathered.end()?;
        read
    }

    fn frames(
        &self,
        visit: &Visit,
        mut body: Incoming,
        gathered: &mut Gathered<'_>,
    ) -> Result<Result<Read>> {
        let broke = |what: String| self.inner.broke(&what);
        let (mut decoder, mut ended) = (Decoder::new(), None);
        while let Some(bytes) = visit.more(&mut body, READING)? {
            let mut input = &bytes[..];
            while !input.is_empty() {
                let (taken, frame) = decoder
                    .next(input)
                    .map_err(|error| broke(error.to_string()))?;
                match frame {
                    Some(Frame::Data(offset, bytes)) => gathered.add(offset, bytes)?,
                    Some(Frame::Leaf(leaf, chain)) => {
                        gathered.put()?;
                        self.told.lock().expect(NO_PANIC).set(leaf, chain);
                        self.into.said(leaf, chain)?;
                    }
                    Some(Frame::End(_, text)) => {
                        ended = Some(
                            call::read(text.as_bytes())
                                .map_err(|error| broke(error.to_string()))?,
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
            Some(Ended::Read(stat, digest)) => Ok(Ok(Read {
                stat: Stat::heard(stat),
                digest: digest.map(|digest: call::Text<Digest>| digest.0),
            })),
            Some(Ended::Refused(refusal)) => {
                Ok(Err(refused(&self.inner.limits.at, self.path, refusal)))
            }
            None => Err(broke("a file in a pack has no end".into())),
        }
    }
}

const READING: &str = "receiving";
/// Less is not worth a connection.
const SHARE_MIN: u64 = 4 * LEAF_BYTES;
