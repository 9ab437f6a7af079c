//! Many small files in one request.

use super::{
    calls::ClientCall,
    noted::Noting,
    reply::{HttpReply, ReplyLines},
    stopping,
};
use godwit_core::Digest;
use godwit_store::{
    Error, Finished, Result, SMALL_BYTES, SmallWrite, StoreExt, Verified, WriteMode,
    door::words::CallForm,
};
use godwit_wire::Refusal;
use godwit_wire::door::{
    self as wire,
    call::{self, Line},
    pack::{Decoder, Frame},
};
use hyper::body::{Bytes, Incoming};
use std::{cell::RefCell, collections::VecDeque, path::Path, time::Instant};

/// `write`: a pack of small files; each is published, or not, by itself.
pub(super) fn pack(mut asked: ClientCall<'_>) {
    if let Err(refusal) = asked.known.must_write() {
        return asked.reply.refuse(refusal);
    }
    if asked.door.shared.stop.is_draining() {
        return asked.reply.refuse(stopping());
    }
    // The results are sent when all files have arrived: until then the client does not read.
    let verdicts = RefCell::new(Verdicts::of(asked.noting()));
    let mut files = PackReader {
        reply: &asked.reply,
        body: &mut asked.body,
        held: Bytes::new(),
        decoder: Decoder::new(),
        coming: None,
        is_cut: None,
    };
    // The store is given them as they come, and takes several at once where that is cheaper.
    let written = asked.known.dir.write_small(
        &mut || files.next(&mut verdicts.borrow_mut()),
        &mut |path, finished| verdicts.borrow_mut().tell(&path, finished),
    );
    let taken = files.is_cut.map_or(written, Err);
    let mut lines: ReplyLines = asked.reply.lines();
    let verdicts = verdicts.into_inner();
    verdicts.noting.flush();
    let told = verdicts.lines();
    let told = told.iter().try_for_each(|line| lines.say(line));
    lines.end(taken.and(told).map_err(Refusal::from));
}

/// The results of files, in the order of their arrival.
struct Verdicts {
    noting: Noting,
    /// `None`: nothing yet.
    lines: Vec<Option<Line>>,
    /// Files whose result is not known yet.
    open: VecDeque<WholeFile>,
}

/// A file that came whole.
struct WholeFile {
    nth: usize,
    verified: Verified,
    bytes: u64,
    since: Instant,
}

impl Verdicts {
    fn of(noting: Noting) -> Self {
        Self {
            noting,
            lines: Vec::new(),
            open: VecDeque::new(),
        }
    }

    fn expect(&mut self, verified: Verified, bytes: u64) {
        self.open.push_back(WholeFile {
            nth: self.lines.len(),
            verified,
            bytes,
            since: Instant::now(),
        });
        self.lines.push(None);
    }

    fn refuse(&mut self, error: &Error) {
        if let Error::Corrupt { path, .. } = error {
            let why = error.to_string();
            self.noting.received(path, Instant::now(), Err(&why));
        }
        self.lines.push(Some(Line::Refused(Refusal::from(error))));
    }

    fn tell(&mut self, path: &Path, finished: Result<Finished>) {
        let open = self.open.pop_front().expect("each file is told once");
        let line = match finished {
            Ok(finished) => {
                self.noting.received(path, open.since, Ok(open.bytes));
                let verified = open.verified;
                let finished = Finished {
                    verified,
                    ..finished
                };
                Line::Finished(finished.say())
            }
            Err(error) => {
                let refusal = Refusal::from(&error);
                self.noting.received(path, open.since, Err(&refusal.said));
                Line::Refused(refusal)
            }
        };
        self.lines[open.nth] = Some(line);
    }

    /// Returns the results, up to the first that is unknown.
    fn lines(self) -> Vec<Line> {
        self.lines.into_iter().map_while(|line| line).collect()
    }
}

/// A pack of small files, as it comes.
struct PackReader<'a> {
    reply: &'a HttpReply,
    body: &'a mut Incoming,
    /// Bytes that were not decoded yet.
    held: Bytes,
    decoder: Decoder,
    coming: Option<PartialFile>,
    /// The error that cut the body off.
    is_cut: Option<Error>,
}

impl PackReader<'_> {
    /// Returns the next file that may be written.
    fn next(&mut self, verdicts: &mut Verdicts) -> Option<SmallWrite> {
        while self.is_cut.is_none() {
            let next = self.next_whole(verdicts.lines.len());
            match next.map(|whole| whole.map(PartialFile::given)) {
                Ok(Some(Ok((given, verified)))) => {
                    verdicts.expect(verified, given.bytes.len() as u64);
                    return Some(given);
                }
                Ok(Some(Err(error))) => verdicts.refuse(&error),
                Ok(None) => return None,
                Err(error) => self.is_cut = Some(error),
            }
        }
        None
    }

    /// Reads to the end of the next file, or of the pack.
    fn next_whole(&mut self, before: usize) -> Result<Option<PartialFile>> {
        let bad = |what| Err(broke(&wire::Error::BadPack(what)));
        loop {
            if self.held.is_empty() {
                match self.reply.more(self.body)? {
                    Some(bytes) => self.held = bytes,
                    None if self.decoder.is_over() && self.coming.is_none() => return Ok(None),
                    None => return bad("it has no end"),
                }
            }
            let (taken, frame) = self
                .decoder
                .next(&self.held)
                .map_err(|error| broke(&error))?;
            match frame {
                Some(Frame::File(_, text)) => {
                    let head: call::PackedFile =
                        call::read(text.as_bytes()).map_err(|error| broke(&error))?;
                    if head.size > SMALL_BYTES || before >= FILES_MAX {
                        return bad("more than small files, or too many");
                    }
                    if self.coming.is_some() {
                        return bad("a file begins before the last is whole");
                    }
                    self.coming = Some(PartialFile::new(head));
                }
                Some(Frame::Data(offset, bytes)) => match &mut self.coming {
                    Some(file) => file.add(offset, bytes)?,
                    None => return bad("bytes of no file"),
                },
                Some(Frame::Leaf(..) | Frame::End(..) | Frame::Last(_)) | None => {}
            }
            self.held = self.held.slice(taken..);
            if let Some(whole) = self.coming.take_if(|file| file.is_whole()) {
                return Ok(Some(whole));
            }
        }
    }
}

/// A file that is not whole yet.
struct PartialFile {
    head: call::PackedFile,
    bytes: Vec<u8>,
}

impl PartialFile {
    fn new(head: call::PackedFile) -> Self {
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

    /// Returns the file, and how it was verified.
    fn given(self) -> Result<(SmallWrite, Verified)> {
        let path = self.head.path.0;
        let mut verified = Verified::SizeOnly;
        if let Some(call::Text(said)) = &self.head.digest {
            let found = Digest::of(said.algorithm(), &self.bytes);
            if found != *said {
                return Err(Error::corrupt(path, said.to_string(), found.to_string()));
            }
            verified = Verified::By(said.algorithm());
        }
        let given = SmallWrite {
            path,
            bytes: self.bytes,
            how: WriteMode::heard(self.head.how),
            mtime: self.head.mtime.map(|time| time.0),
            mode: self.head.mode,
        };
        Ok((given, verified))
    }
}

fn broke(error: &wire::Error) -> Error {
    Error::misbehaved("the client", error.to_string())
}

/// More files in one request are refused.
const FILES_MAX: usize = 100_000;
