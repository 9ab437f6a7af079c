//! Uploads to a node. Only a client that knows an upload's id can find it. Blocks are sent as packs, over requests
//! that stay open until a caller asks which bytes have landed.

use super::{Door, DoorInner, UNASKED, name, pieces, visit::Pouring, words::CallForm};
use crate::{
    BlockWriter, Checks, Error, Expected, Finished, LocalFile, Read, Result, Sink, Stat, Store,
    Write,
};
use godwit_core::{Block, Chain, Extents, Fault, LEAF_BYTES, Leaves, Piece};
use godwit_wire::door::{
    ROOT,
    call::{AskDraw, AskPath, AskUpload, Landed, Line, Name, Ranges},
    pack::{self, FrameKind, HEADER_BYTES},
    path,
};
use hyper::Method;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
};

/// Begins an upload, or resumes one.
pub(super) fn begin(door: &Door, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
    let inside = name(path)?;
    let asked = AskUpload {
        path: inside.clone(),
        id: write.id.map(Into::into),
        attempt: write.attempt,
        how: write.how.say(),
        size: write.size,
        origin: write
            .origin
            .map(|origin| (origin.name.clone(), origin.version.say())),
        mode: write.mode,
        checks: (write.checks.blake3, write.checks.adler32),
        resume: write.resume,
        passed: write.passed.into(),
    };
    let landed = door.call_for("uploads", &asked, path, landed)?;
    // Only who counts attempts asks what leaves hash to that landed before.
    let told = (write.attempt > 0).then(BTreeMap::new);
    let before = told.clone();
    let upload = DoorUpload {
        door: door.clone(),
        path: path.into(),
        inside,
        id: landed.id.clone(),
        in_place: landed.in_place,
        checks: write.checks,
        unseen: landed.done.0.clone(),
        announced: write.size.unwrap_or(u64::MAX),
        state: Mutex::new(DoorUploadState {
            done: landed.done.0.clone(),
            leaves: Leaves::new(),
            said: BTreeMap::new(),
            wrong: Extents::new(),
            size: 0,
            told,
            before: None,
            sent: landed.done.0.clone(),
            again: BTreeSet::new(),
            idle: Vec::new(),
            open: BTreeMap::new(),
            count: 0,
            is_over: false,
        }),
        freed: Condvar::new(),
        streams: write.streams.max(1),
    };
    upload.hear_before(landed, before)?;
    Ok(Box::new(upload))
}

fn landed(line: Line) -> Option<Landed> {
    match line {
        Line::Landed(landed) => Some(landed),
        _ => None,
    }
}

struct DoorUpload {
    door: Door,
    path: PathBuf,
    /// The path as calls carry it.
    inside: Name,
    id: String,
    in_place: bool,
    checks: Checks,
    unseen: Extents,
    /// The length; more than any if it was not said.
    announced: u64,
    state: Mutex<DoorUploadState>,
    freed: Condvar,
    streams: usize,
}

struct DoorUploadState {
    /// The ranges that the node reported as landed, and those sent since.
    done: Extents,
    /// The hashes of the bytes sent.
    leaves: Leaves,
    /// The hashes that the source reported.
    said: BTreeMap<u64, Chain>,
    /// Leaves that do not, and must come again.
    wrong: Extents,
    size: u64,
    /// The node's hashes of leaves that no caller took yet; `None`: none will.
    told: Option<BTreeMap<u64, Chain>>,
    /// The hashes of leaves that landed before, compared with shown bytes. `None`: they are not compared.
    before: Option<BTreeMap<u64, Chain>>,
    /// All that was ever sent.
    sent: Extents,
    /// Leaves of which bytes were sent twice: the node's hash of one may be older than ours.
    again: BTreeSet<u64>,
    /// Open requests that no thread writes to now.
    idle: Vec<UploadStream>,
    /// The ranges sent by each open request, those in use among them.
    open: BTreeMap<u64, Extents>,
    /// How many requests there ever were.
    count: u64,
    /// The node has closed it.
    is_over: bool,
}

/// A request whose body is still being sent.
struct UploadStream {
    nth: u64,
    pouring: Pouring,
}

impl DoorUpload {
    fn inner(&self) -> &DoorInner {
        &self.door.0
    }

    fn target(&self) -> String {
        format!(
            "{ROOT}uploads/{}/{}",
            self.id,
            path::escaped(&self.inside.0)
        )
    }

    /// Returns a request for these bytes, in no other use.
    ///
    /// Two requests may be read in either order. A range that is sent again therefore uses the same request, or the
    /// first request is ended before.
    fn take(&self, range: &Range<u64>) -> Result<UploadStream> {
        let mut state = self.state.lock();
        loop {
            match state.next_for(range) {
                NextRequest::Idle(at) => {
                    let stream = state.idle.swap_remove(at);
                    state.note_open(stream.nth, range);
                    return Ok(stream);
                }
                NextRequest::New if state.open.len() < self.streams => break,
                NextRequest::End(at) => {
                    let stream = state.idle.swap_remove(at);
                    drop(state);
                    self.end(stream, RequestEnd::Whole)?;
                    state = self.state.lock();
                }
                NextRequest::New | NextRequest::Wait => self.freed.wait(&mut state),
            }
        }
        state.count += 1;
        let nth = state.count;
        state.note_open(nth, range);
        drop(state);
        let pouring = self.inner().pour_pack(Method::PUT, &self.target());
        let pouring = pouring.inspect_err(|_| self.lose(nth))?;
        Ok(UploadStream { nth, pouring })
    }

    /// Sends a range in frames, whose bytes `fill` gives.
    fn put_pieces(
        &self,
        range: Range<u64>,
        is_hashed: bool,
        mut fill: impl FnMut(Range<u64>, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut stream = self.take(&range)?;
        for piece in pieces(range, PIECE_BYTES) {
            let mut frame = vec![0; HEADER_BYTES + (piece.end - piece.start) as usize];
            if let Err(error) = fill(piece.clone(), &mut frame[HEADER_BYTES..]) {
                // What went before is whole.
                self.give_back(stream);
                return Err(error);
            }
            stream = self.pour(stream, piece.start, frame, is_hashed)?;
        }
        self.give_back(stream);
        Ok(())
    }

    /// Sends a frame whose header is still free, and notes its range.
    fn pour(
        &self,
        mut stream: UploadStream,
        offset: u64,
        mut frame: Vec<u8>,
        is_hashed: bool,
    ) -> Result<UploadStream> {
        let len = frame.len() - HEADER_BYTES;
        frame[..HEADER_BYTES].copy_from_slice(&pack::header(FrameKind::Data, offset, len));
        let bytes = &frame[HEADER_BYTES..];
        let piece = is_hashed.then(|| Piece::of(Block { offset, bytes }));
        let poured = stream.pouring.pour(frame.into(), WRITING);
        if !poured.inspect_err(|_| self.lose(stream.nth))? {
            // Its answer says why.
            self.end(stream, RequestEnd::Cut)?;
            return Err(self.inner().cut(WRITING));
        }
        let range = offset..offset + len as u64;
        let mut state = self.state.lock();
        state.size = state.size.max(range.end);
        // A preliminary note; the node's report decides.
        state.done.insert(range.clone());
        state.wrong.remove(range.clone());
        if let Some(piece) = piece {
            state.leaves.add(piece);
            for leaf in range.start / LEAF_BYTES..range.end.div_ceil(LEAF_BYTES) {
                state.compare(leaf);
            }
        }
        Ok(stream)
    }

    fn lose(&self, nth: u64) {
        self.state.lock().open.remove(&nth);
        self.freed.notify_all();
    }

    /// Wakes all threads: some wait for this request, and others for any.
    fn give_back(&self, stream: UploadStream) {
        self.state.lock().idle.push(stream);
        self.freed.notify_all();
    }

    /// Ends all requests, and learns what has landed.
    fn end_all(&self) -> Result<()> {
        let idle = std::mem::take(&mut self.state.lock().idle);
        let mut wrong = None;
        for stream in idle {
            if let Err(error) = self.end(stream, RequestEnd::Whole) {
                wrong.get_or_insert(error);
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    /// Ends a request, and learns what has landed.
    fn end(&self, UploadStream { nth, mut pouring }: UploadStream, how: RequestEnd) -> Result<()> {
        let last = match how {
            RequestEnd::Whole => pouring
                .pour(pack::frame(FrameKind::Last, 0, b"").into(), WRITING)
                .map(drop),
            RequestEnd::Cut => Ok(()),
        };
        let ended = last.and_then(|()| self.hear_end(pouring));
        self.lose(nth);
        ended
    }

    fn hear_end(&self, pouring: Pouring) -> Result<()> {
        let (visit, answer) = pouring.end(WRITING)?;
        let mut said = None;
        self.inner()
            .hear(visit, answer, WRITING, &self.path, &mut |line| {
                let landed = landed(line).ok_or_else(|| self.inner().broke(UNASKED))?;
                said = Some(());
                self.note(landed);
                Ok(())
            })?;
        said.ok_or_else(|| self.inner().broke("it does not say what has landed"))
    }

    fn note(&self, said: Landed) {
        let mut state = self.state.lock();
        state.done = said.done.0;
        let end = state.size.max(state.done.end());
        let leaves = end.div_ceil(LEAF_BYTES);
        for (leaf, chain) in said.leaves.into_iter().filter(|(leaf, _)| *leaf < leaves) {
            if let Some(told) = &mut state.told {
                told.insert(leaf, chain.0);
            }
            let ours = state.leaves.chain(leaf, state.size);
            let is_sure = !state.again.contains(&leaf);
            if is_sure && ours.is_some_and(|ours| ours != chain.0) {
                tracing::info!(path = %self.path.display(), leaf, "a leaf differs and is sent again");
                let bytes = bytes_of(leaf);
                state.wrong.insert(bytes);
            }
        }
    }

    /// Notes what an earlier attempt has left; of many leaves the node does not tell all at once.
    fn hear_before(&self, landed: Landed, before: Option<BTreeMap<u64, Chain>>) -> Result<()> {
        let mut said = landed;
        let Some(mut before) = before else {
            self.note(said);
            return Ok(());
        };
        for nth in 1.. {
            let leaves = said.leaves.iter().map(|(leaf, chain)| (*leaf, chain.0));
            before.extend(leaves);
            let is_all = said.leaves.len() < LEAVES_A_LINE;
            self.note(said);
            // Ranges that are not reported by then are sent again.
            if is_all || nth == LINES_MAX {
                break;
            }
            said = self.ask("commit", &self.about(), self::landed)?;
        }
        self.state.lock().before = Some(before);
        Ok(())
    }

    fn about(&self) -> AskPath {
        AskPath {
            path: self.inside.clone(),
        }
    }

    fn ask<T: serde::Serialize, R>(
        &self,
        what: &str,
        asked: &T,
        wanted: impl FnMut(Line) -> Option<R>,
    ) -> Result<R> {
        let name = format!("uploads/{}/{what}", self.id);
        self.door.call_for(&name, asked, &self.path, wanted)
    }
}

impl BlockWriter for DoorUpload {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let start = block.offset;
        self.put_pieces(block.range(), self.checks.blake3, |piece, bytes| {
            let (from, to) = (piece.start - start, piece.end - start);
            bytes.copy_from_slice(&block.bytes[from as usize..to as usize]);
            Ok(())
        })
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        let mut state = self.state.lock();
        state.said.insert(leaf, chain);
        state.compare(leaf);
        Ok(())
    }

    crate::has!(self, Fast);
}

impl crate::Fast for DoorUpload {
    /// Bytes are read directly into the buffer that is sent, without a copy.
    fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, _: &mut [u8]) -> Result<()> {
        let is_hashed = self.checks.blake3;
        self.put_pieces(range, is_hashed, |piece, bytes| {
            file.fill(piece.start, bytes)
        })
    }

    fn put_known(&self, file: &LocalFile<'_>, known: (u64, Chain), _: &mut [u8]) -> Result<()> {
        let (leaf, chain) = known;
        self.put_pieces(bytes_of(leaf), false, |piece, bytes| {
            file.fill(piece.start, bytes)
        })?;
        // Only now, since earlier bytes of the leaf were from another read.
        let mut state = self.state.lock();
        state.leaves.set_full(leaf, chain);
        state.compare(leaf);
        Ok(())
    }
}

/// How a request is ended.
#[derive(Clone, Copy)]
enum RequestEnd {
    /// The body is complete.
    Whole,
    /// The node takes no more.
    Cut,
}

/// The request on which a range is sent.
enum NextRequest {
    /// This one of those that are idle.
    Idle(usize),
    /// One that is begun, if there may be more.
    New,
    /// Another, once this idle one was ended.
    End(usize),
    /// Wait until another thread has given a request back.
    Wait,
}

impl DoorUploadState {
    fn next_for(&self, range: &Range<u64>) -> NextRequest {
        let is_over = |sent: &Extents| sent.within(range.clone()).next().is_some();
        let over = self.open.iter().filter(|(_, sent)| is_over(sent));
        let over: Vec<u64> = over.map(|(&nth, _)| nth).collect();
        let at = |nth: u64| self.idle.iter().position(|stream| stream.nth == nth);
        match over[..] {
            [] if self.idle.is_empty() => NextRequest::New,
            [] => NextRequest::Idle(self.idle.len() - 1),
            [nth] => at(nth).map_or(NextRequest::Wait, NextRequest::Idle),
            [nth, ..] => at(nth).map_or(NextRequest::Wait, NextRequest::End),
        }
    }

    /// Notes a range sent by a request, and its leaves if some of it is sent again.
    fn note_open(&mut self, nth: u64, range: &Range<u64>) {
        if self.sent.within(range.clone()).next().is_some() {
            let leaves = range.start / LEAF_BYTES..range.end.div_ceil(LEAF_BYTES);
            self.again.extend(leaves);
        }
        self.sent.insert(range.clone());
        self.open.entry(nth).or_default().insert(range.clone());
    }

    /// Notes shown ranges that differ from the bytes that landed, or cannot be compared with them.
    fn compare_shown(&mut self, shown: Range<u64>, size: u64) {
        let Some(before) = &self.before else {
            return;
        };
        for leaf in shown.start / LEAF_BYTES..shown.end.div_ceil(LEAF_BYTES) {
            let bytes = bytes_of(leaf);
            match (before.get(&leaf), self.leaves.chain(leaf, size)) {
                (None, _) => {
                    let part = shown.start.max(bytes.start)..shown.end.min(bytes.end);
                    self.wrong.insert(part);
                }
                (Some(theirs), Some(ours)) if *theirs != ours => self.wrong.insert(bytes),
                // Not all of it was shown yet.
                (Some(_), _) => {}
            }
        }
    }

    /// Notes a leaf of which we have sent something else than the source has.
    fn compare(&mut self, leaf: u64) {
        let ours = self.leaves.chain(leaf, self.size);
        if let (Some(ours), Some(said)) = (ours, self.said.get(&leaf))
            && ours != *said
        {
            self.wrong.insert(bytes_of(leaf));
            self.leaves.forget(leaf);
        }
    }
}

fn bytes_of(leaf: u64) -> Range<u64> {
    leaf * LEAF_BYTES..(leaf + 1) * LEAF_BYTES
}

/// A writer that does not finish leaves its partial for a resume, and logs how.
impl Drop for DoorUpload {
    fn drop(&mut self) {
        let is_over = self.state.get_mut().is_over;
        // Who refused something is there, and need not wait for more.
        let is_away = |error: Error| error.fault() != Fault::Lasting;
        if !is_over && !self.end_all().is_err_and(is_away) {
            // If this is not heard, the end of our connections says the same.
            let _ = self.ask("leave", &self.about(), super::done);
        }
    }
}

impl Sink for DoorUpload {
    fn done(&self) -> Extents {
        let state = self.state.lock();
        state.done.minus(&state.wrong)
    }

    fn settle(&self) -> Result<Extents> {
        self.end_all()?;
        Ok(self.done())
    }

    fn commit(&self) -> Result<Extents> {
        self.end_all()?;
        let said = self.ask("commit", &self.about(), landed)?;
        self.note(said);
        Ok(self.done())
    }

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        self.end_all()?;
        let mut asked = whole.say();
        if asked.digest.is_none() && self.checks.blake3 {
            let state = self.state.lock();
            asked.digest = whole
                .size
                .and_then(|size| state.leaves.root(size))
                .map(godwit_wire::door::call::Text);
        }
        let asked = godwit_wire::door::call::AskPublish {
            path: self.inside.clone(),
            whole: asked,
        };
        self.state.lock().is_over = true;
        self.ask("finish", &asked, |line| match line {
            Line::Finished(finished) => Some(Finished::heard(finished)),
            _ => None,
        })
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        self.end_all()?;
        self.state.lock().is_over = true;
        self.ask("abandon", &self.about(), super::done)
    }

    crate::has!(self, SinkFacets: resume direct);
}

impl crate::Resume for DoorUpload {
    fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> {
        let mut state = self.state.lock();
        let Some(told) = &mut state.told else {
            return Vec::new();
        };
        let left = told.keys().nth(count_max).copied();
        let left = left.map_or(BTreeMap::new(), |first| told.split_off(&first));
        std::mem::replace(told, left).into_iter().collect()
    }

    fn unseen(&self) -> Extents {
        match self.checks.blake3 {
            true => self.unseen.clone(),
            false => Extents::new(),
        }
    }

    fn show(&self, block: Block<'_>) -> Result<()> {
        let piece = Piece::of(block);
        let mut state = self.state.lock();
        state.size = state.size.max(block.range().end);
        state.leaves.add(piece);
        state.compare_shown(block.range(), self.announced);
        Ok(())
    }

    fn is_in_place(&self) -> bool {
        self.in_place
    }
}

impl crate::Direct for DoorUpload {
    fn draw(
        &self,
        source: &dyn Store,
        path: &Path,
        want: &Extents,
        streams: usize,
        on: &(dyn Fn(Range<u64>) + Sync),
    ) -> Result<Option<Read>> {
        let Some(source) = Door::of(source) else {
            return Ok(None);
        };
        self.end_all()?;
        let (from, key) = source.place()?;
        let asked = AskDraw {
            path: self.inside.clone(),
            from,
            key: key.to_string(),
            secret: source.grant(path)?,
            source: name(path)?,
            ranges: Ranges(want.clone()),
            streams: u16::try_from(streams).unwrap_or(u16::MAX),
            digests: self.inner().digests,
        };
        let mut told = self.done();
        let mut read = None;
        let about = format!("uploads/{}/draw", self.id);
        let drawn = self
            .door
            .call(&about, Method::POST, &asked, &self.path, &mut |line| {
                match line {
                    Line::Read(stat, digest) => {
                        read = Some(Read {
                            stat: Stat::heard(stat),
                            digest: digest.map(|digest| digest.0),
                        });
                    }
                    // The first nodes report it at the end, later ones meanwhile too. If the call fails, reported
                    // ranges have landed nevertheless.
                    Line::Landed(said) => {
                        self.note(said);
                        for range in self.done().minus(&told).iter() {
                            on(range.clone());
                            told.insert(range);
                        }
                    }
                    _ => return Err(self.inner().broke(UNASKED)),
                }
                Ok(())
            });
        match drawn {
            // It makes no connections, or none for us.
            Err(Error::Unsupported { .. }) if read.is_none() => return Ok(None),
            drawn => drawn?,
        };
        let read = read.ok_or_else(|| self.inner().broke("it does not say what it drew"))?;
        Ok(Some(read))
    }
}

/// Enough lines for the leaves of 512 GiB.
const LINES_MAX: u32 = 32;
/// A node tells no more leaves at once.
const LEAVES_A_LINE: usize = 16 << 10;
/// The size of a piece; each wakes a thread at the node.
const PIECE_BYTES: u64 = 256 << 10;
const WRITING: &str = "sending";

#[cfg(test)]
mod tests {
    use super::*;

    /// Two requests may be read in either order.
    #[test]
    fn repeated_range_waits_for_its_request() {
        let mut state = DoorUploadState {
            done: Extents::new(),
            leaves: Leaves::new(),
            said: BTreeMap::new(),
            wrong: Extents::new(),
            size: 0,
            told: None,
            before: None,
            sent: Extents::new(),
            again: BTreeSet::new(),
            idle: Vec::new(),
            open: BTreeMap::new(),
            count: 0,
            is_over: false,
        };
        state.note_open(1, &(0..2 * LEAF_BYTES));
        state.note_open(2, &(4 * LEAF_BYTES..5 * LEAF_BYTES));
        let is_new =
            |state: &DoorUploadState, range| matches!(state.next_for(&range), NextRequest::New);
        assert!(is_new(&state, 2 * LEAF_BYTES..4 * LEAF_BYTES));
        assert!(!is_new(&state, 7..8));
        assert!(!is_new(&state, LEAF_BYTES..5 * LEAF_BYTES));
        assert!(state.again.is_empty());
        state.note_open(1, &(LEAF_BYTES + 5..LEAF_BYTES + 6));
        assert_eq!(state.again, [1].into());
        // Once it has been answered, it was read.
        state.open.remove(&1);
        assert!(is_new(&state, 7..8));
    }
}
