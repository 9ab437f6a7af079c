//! Reading: each connection asks for its share of a file, and gets a pack.

use super::{
    Inner, NO_PANIC, name,
    visit::Visit,
    words::{Said, refused},
};
use crate::{Error, Read, Result, Stat, Take};
use godwit_core::{Block, Digest, Extents, LEAF_BYTES};
use godwit_wire::door::{
    call::{self, AskRead, Ended, Ranges, Wanted},
    pack::{Decoder, Frame},
};
use hyper::body::Incoming;
use std::{path::Path, sync::Mutex, thread};

/// Reads `want` of a file through at most so many connections.
pub(super) fn read(
    inner: &Inner,
    path: &Path,
    want: &Extents,
    streams: usize,
    into: &dyn Take,
) -> Result<Read> {
    let shares = divided(want, streams.max(1));
    let fetch = Fetch { inner, path, into };
    if let [share] = &*shares {
        return fetch.share(share);
    }
    let reads = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for share in &shares {
            let (fetch, reads) = (&fetch, &reads);
            scope.spawn(move || {
                let read = fetch.share(share);
                reads.lock().expect(NO_PANIC).push(read);
            });
        }
    });
    let mut reads = reads.into_inner().expect(NO_PANIC).into_iter();
    let first = reads.next().expect("there is a share")?;
    reads.try_fold(first, |first, other| {
        let other = other?;
        match first.stat.size == other.stat.size && first.stat.mtime == other.stat.mtime {
            true => Ok(first),
            false => Err(Error::Changed {
                path: path.into(),
                what: "it changed while it was read".into(),
            }),
        }
    })
}

/// Divides ranges into so many shares of about the same length, in whole leaves.
fn divided(want: &Extents, shares: usize) -> Vec<Extents> {
    let mut left = want.clone();
    // Nobody may want what is beyond the end; an end that is open is nobody's share.
    let each = want.len_bytes().div_ceil(shares as u64).max(SHARE_MIN);
    let each = each.checked_next_multiple_of(LEAF_BYTES).unwrap_or(each);
    let mut divided = Vec::new();
    while divided.len() + 1 < shares && left.len_bytes() > each {
        divided.push(left.take(each));
    }
    divided.push(left);
    divided
}

struct Fetch<'a> {
    inner: &'a Inner,
    path: &'a Path,
    into: &'a dyn Take,
}

impl Fetch<'_> {
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
    fn pack(&self, visit: &Visit, mut body: Incoming) -> Result<Result<Read>> {
        let broke = |what: String| self.inner.broke(&what);
        let (mut decoder, mut ended) = (Decoder::new(), None);
        while let Some(bytes) = visit.more(&mut body, READING)? {
            let mut input = &bytes[..];
            while !input.is_empty() {
                let (taken, frame) = decoder
                    .next(input)
                    .map_err(|error| broke(error.to_string()))?;
                match frame {
                    Some(Frame::Data(offset, bytes)) => self.into.put(Block { offset, bytes })?,
                    Some(Frame::Leaf(leaf, chain)) => self.into.said(leaf, chain)?,
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
