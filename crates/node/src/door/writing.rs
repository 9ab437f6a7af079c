//! Many small files in one request.

use super::{
    calls::Asked,
    refused,
    reply::{Lines, Reply},
};
use crate::guarded::Guarded;
use godwit_core::Digest;
use godwit_store::{
    Error, Finished, Given, How, Result, SMALL_BYTES, Store, Verified, door::words::Said,
};
use godwit_wire::door::{
    self as wire,
    call::{self, Line},
    pack::{Decoder, Frame},
};
use hyper::body::Incoming;

/// `write`: a pack of small files; each is published, or not, by itself.
pub(super) fn pack(mut asked: Asked<'_>) {
    if let Err(refusal) = asked.known.must_write() {
        return asked.reply.refuse(refusal);
    }
    // What became of each is told when all has come: until then nobody listens.
    let mut verdicts = Vec::new();
    let taken = take(
        &asked.reply,
        &mut asked.body,
        &asked.known.dir,
        &mut verdicts,
    );
    let mut lines: Lines = asked.reply.lines();
    let told = verdicts.iter().try_for_each(|verdict| lines.say(verdict));
    lines.end(taken.and(told).map_err(|error| refused(&error)));
}

fn take(reply: &Reply, body: &mut Incoming, dir: &Guarded, verdicts: &mut Vec<Line>) -> Result<()> {
    let (mut decoder, mut coming) = (Decoder::new(), None::<Coming>);
    while let Some(bytes) = reply.more(body)? {
        let mut input = &bytes[..];
        while !input.is_empty() {
            let (taken, frame) = decoder.next(input).map_err(|error| broke(&error))?;
            match frame {
                Some(Frame::File(_, text)) => {
                    let head: call::Given =
                        call::read(text.as_bytes()).map_err(|error| broke(&error))?;
                    if head.size > SMALL_BYTES || verdicts.len() >= FILES_MAX {
                        return Err(broke(&wire::Error::BadPack(
                            "more than small files, or too many",
                        )));
                    }
                    if coming.is_some() {
                        return Err(broke(&wire::Error::BadPack(
                            "a file begins before the last is whole",
                        )));
                    }
                    coming = Some(Coming::new(head));
                }
                Some(Frame::Data(offset, bytes)) => {
                    let file = coming
                        .as_mut()
                        .ok_or_else(|| broke(&wire::Error::BadPack("bytes of no file")))?;
                    file.add(offset, bytes)?;
                }
                Some(Frame::Leaf(..) | Frame::End(..) | Frame::Last(_)) | None => {}
            }
            if let Some(whole) = coming.take_if(|file| file.is_whole()) {
                verdicts.push(match whole.write(dir) {
                    Ok(finished) => Line::Finished(finished.say()),
                    Err(error) => Line::Refused(refused(&error)),
                });
            }
            input = &input[taken..];
        }
    }
    match decoder.is_over() && coming.is_none() {
        true => Ok(()),
        false => Err(broke(&wire::Error::BadPack("it has no end"))),
    }
}

/// A file that is not whole yet.
struct Coming {
    head: call::Given,
    bytes: Vec<u8>,
}

impl Coming {
    fn new(head: call::Given) -> Self {
        Self {
            bytes: Vec::with_capacity(head.size as usize),
            head,
        }
    }

    fn add(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let is_next = offset == self.bytes.len() as u64;
        if !is_next || offset + bytes.len() as u64 > self.head.size {
            return Err(broke(&wire::Error::BadPack(
                "bytes that are not the next of their file",
            )));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.head.size
    }

    fn write(self, dir: &Guarded) -> Result<Finished> {
        let path = self.head.path.0;
        let mut verified = Verified::SizeOnly;
        if let Some(call::Text(said)) = &self.head.digest {
            let found = Digest::of(said.algorithm(), &self.bytes);
            if found != *said {
                return Err(Error::Corrupt {
                    path,
                    expected: said.to_string(),
                    found: found.to_string(),
                });
            }
            verified = Verified::By(said.algorithm());
        }
        let mut next = Some(Given {
            path,
            bytes: self.bytes,
            how: How::heard(self.head.how),
            mtime: self.head.mtime.map(|time| time.0),
            mode: self.head.mode,
        });
        let mut written = None;
        dir.write_small(&mut || next.take(), &mut |_, finished| {
            written = Some(finished)
        })?;
        let finished = written.expect("each file is told once")?;
        Ok(Finished {
            verified,
            ..finished
        })
    }
}

fn broke(error: &wire::Error) -> Error {
    Error::PeerMisbehaved {
        host: "the client".into(),
        what: error.to_string(),
    }
}

/// More in one request are of nobody who means well.
const FILES_MAX: usize = 100_000;
