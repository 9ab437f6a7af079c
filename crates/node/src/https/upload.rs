//! Uploads, each with a name that only its writer knows.
//!
//! An upload is a partial of the store, so it outlives this process; only the open ones are listed here. A client that
//! knows the name, and has the same identity, can resume it from anywhere.

use super::{
    Visitor,
    calls::{CallNames, ClientCall, done, passed},
    noted::UploadNotes,
    reply::BEAT,
    stopping,
};
use crate::base::metrics::{Proto, TrafficDirection};
use godwit_core::{Block, Chain, Kind, Version};
use godwit_store::{
    BlockWriter, Checks, Error, Expected, Origin, RemoteOptions, Result, Sink, SinkExt, Store,
    Write, WriteMode,
    channel::Cancel,
    door::{Door, Gathered, words::CallForm},
};
use godwit_trust::unguessable;
use godwit_wire::door::{
    self as wire, PACK_TYPE,
    call::{AskDraw, AskPath, AskPublish, AskUpload, Landed, Line, Name, Ranges, Refusal, Text},
    pack::{Decoder, Frame},
    path, range,
};
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{HashMap, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Open uploads, by their secret names.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    open: Mutex<HashMap<String, Arc<OpenUpload>>>,
    /// Names that a later attempt took over, the oldest first: requests by them receive that answer.
    taken_over: Mutex<VecDeque<String>>,
}

/// An open upload.
struct OpenUpload {
    key: UploadKey,
    /// 0: not counted.
    attempt: u64,
    /// `None`: it was finished or abandoned.
    sink: RwLock<Option<Box<dyn Sink>>>,
    used: Mutex<Instant>,
    /// The clients that used it, while their connections last.
    users: Mutex<Vec<Weak<Visitor>>>,
    /// Whether the client that had it drawn has left, and the draw is being stopped.
    is_left: AtomicBool,
    /// A put found no room on the disk.
    is_full: AtomicBool,
    coming: UploadNotes,
}

/// Identifies an upload.
#[derive(Clone, Debug, Eq, PartialEq)]
struct UploadKey {
    owner: String,
    path: PathBuf,
    /// The writer's own name for it.
    id: Option<String>,
}

impl std::fmt::Debug for OpenUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Upload");
        debug.field("key", &self.key).finish_non_exhaustive()
    }
}

impl Uploads {
    fn must_have_room(&self, owner: &str) -> Result<(), Refusal> {
        let open = self.open.lock();
        let theirs = open.values().filter(|upload| upload.key.owner == owner);
        let (all, theirs) = (open.len(), theirs.count());
        if all < OPEN_MAX && theirs < OPEN_EACH_MAX {
            return Ok(());
        }
        let why = format!("{all} uploads are open, {theirs} of them yours; try again later");
        Err(Refusal::of_kind(Kind::Busy, why))
    }

    /// Tells whether any upload is in flight: it had a request within `stall`.
    pub(super) fn go_on(&self, stall: Duration) -> bool {
        let open = self.open.lock();
        open.values().any(|upload| upload.is_wanted(stall))
    }

    /// Tells whether an upload of one user is in flight.
    pub(super) fn go_on_of(&self, owner: &str, stall: Duration) -> bool {
        let open = self.open.lock();
        open.values()
            .any(|upload| upload.key.owner == owner && upload.is_wanted(stall))
    }

    fn has(&self, key: &UploadKey) -> bool {
        self.open.lock().values().any(|upload| upload.key == *key)
    }

    /// Closes uploads under this key whose clients have left, so that they can be resumed. The connection of a killed
    /// client may end a moment later, and its draw must be stopped first.
    fn close_orphans(&self, key: &UploadKey) {
        let begun = Instant::now();
        loop {
            let same = |upload: &Arc<OpenUpload>| upload.key == *key;
            let closed: Vec<_> = self
                .open
                .lock()
                .extract_if(|_, upload| same(upload) && upload.is_orphan())
                .collect();
            for (_, upload) in closed {
                // Another thread may look at it even now; the landed bytes must be free when it is opened again.
                drop(upload.take());
                upload.coming.failed(&upload.key.path, WENT);
            }
            let patience = {
                let open = self.open.lock();
                let is_left = |upload: &Arc<OpenUpload>| upload.is_left.load(Relaxed);
                let used = open.values().filter(|upload| same(upload));
                used.map(|upload| if is_left(upload) { STOPPING } else { LEAVING })
                    .max()
            };
            if patience.is_none_or(|patience| begun.elapsed() > patience) {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Closes uploads of older attempts under this key. The store already refuses their bytes; here they lose their
    /// names.
    fn close_older(&self, key: &UploadKey, attempt: u64) {
        let is_older = |upload: &Arc<OpenUpload>| {
            upload.key == *key && (1..=attempt).contains(&upload.attempt)
        };
        let older: Vec<_> = self
            .open
            .lock()
            .extract_if(|_, upload| is_older(upload))
            .collect();
        let mut names = self.taken_over.lock();
        for (name, upload) in older {
            upload
                .coming
                .failed(&key.path, "a later attempt took it over");
            names.push_back(name);
        }
        let many = names.len().saturating_sub(OPEN_MAX);
        names.drain(..many);
    }

    /// Closes uploads without a request for `kept`; their bytes stay on disk. An upload that filled the disk is closed
    /// as soon as its client has left.
    pub(super) fn forget_idle(&self, kept: Duration) {
        let is_over = |upload: &Arc<OpenUpload>| {
            let filled = upload.is_full.load(Relaxed) && upload.is_orphan();
            !upload.goes_on(if filled { Duration::ZERO } else { kept })
        };
        let closed: Vec<_> = self
            .open
            .lock()
            .extract_if(|_, upload| is_over(upload))
            .collect();
        for (_, upload) in closed {
            upload.coming.failed(
                &upload.key.path,
                "its client sent no more; what arrived is kept",
            );
            let path = upload.key.path.display();
            tracing::info!(%path, owner = upload.key.owner, "an unused upload is closed; what arrived is kept");
        }
    }

    /// Notes what did not come to its end: the node ends.
    pub(super) fn forget_all(&self) {
        for (_, upload) in self.open.lock().drain() {
            upload.coming.failed(
                &upload.key.path,
                "the node was stopped; what arrived is kept",
            );
        }
    }
}

/// Begins an upload, or resumes one.
pub(super) fn begin(asked: ClientCall<'_>) {
    let begun = asked.known.must_write().and_then(|()| {
        let ask: AskUpload = asked.read()?;
        let (upload, id) = opened(&asked, ask)?;
        Ok(landed(&upload, &id))
    });
    asked.reply.tell(begun.flatten().map(Line::Landed));
}

fn opened(asked: &ClientCall<'_>, ask: AskUpload) -> Result<(Arc<OpenUpload>, String), Refusal> {
    if ask.id.as_deref().is_some_and(|id| !is_own_id(id)) {
        let why = "the name of an upload has up to 64 letters, digits, -, _ and dots";
        return Err(Refusal::of_kind(Kind::Protocol, why));
    }
    let handle = unguessable().map_err(|error| Refusal::of_kind(Kind::Other, error.to_string()))?;
    let origin = ask.origin.map(|(name, version)| Origin {
        name,
        version: Version::heard(version),
    });
    let passed = passed(ask.passed)?;
    let how = WriteMode::heard(ask.how);
    let write = Write {
        how,
        size: ask.size,
        origin: origin.as_ref(),
        id: ask.id.as_deref(),
        attempt: ask.attempt,
        mode: ask.mode,
        checks: Checks {
            blake3: ask.checks.0,
            adler32: ask.checks.1,
        },
        resume: ask.resume,
        passed: &passed,
        ..Write::default()
    };
    let key = UploadKey {
        owner: asked.known.owner().into(),
        path: ask.path.0.clone(),
        id: ask.id.clone(),
    };
    // A writer may resume its upload by another connection.
    if asked.door.shared.stop.is_draining() && !asked.door.uploads.has(&key) {
        return Err(stopping());
    }
    // Who counts attempts need not wait for the older ones to be gone.
    if ask.resume && ask.attempt == 0 {
        asked.door.uploads.close_orphans(&key);
    }
    // Before it is opened: each holds descriptors of the node.
    asked.door.uploads.must_have_room(&key.owner)?;
    let sink = asked.known.dir.write(&ask.path.0, &write);
    let sink = sink?;
    if ask.attempt > 0 {
        asked.door.uploads.close_older(&key, ask.attempt);
    }
    let upload = Arc::new(OpenUpload {
        key,
        attempt: ask.attempt,
        sink: RwLock::new(Some(sink)),
        used: Mutex::new(Instant::now()),
        users: Mutex::new(vec![Arc::downgrade(asked.visitor)]),
        is_left: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
        coming: UploadNotes::new(asked.noting()),
    });
    let mut open = asked.door.uploads.open.lock();
    open.insert(handle.clone(), Arc::clone(&upload));
    Ok((upload, handle))
}

fn landed(upload: &OpenUpload, id: &str) -> Result<Landed, Refusal> {
    upload.with(|sink| {
        Ok(Landed {
            id: id.into(),
            done: Ranges(sink.done()),
            leaves: news(sink),
            in_place: sink.is_in_place(),
        })
    })
}

/// Returns leaves that became whole, as many as one line has room for.
fn news(sink: &dyn Sink) -> Vec<(u64, Text<godwit_core::Chain>)> {
    let mut news = Vec::new();
    while news.len() < LEAVES_A_LINE {
        let more = sink.newly_whole(LEAVES_AT_ONCE);
        if more.is_empty() {
            break;
        }
        news.extend(more.into_iter().map(|(leaf, chain)| (leaf, Text(chain))));
    }
    news
}

/// The work of a call about an upload, with the upload's name and the path.
pub(super) type UploadCall = fn(ClientCall<'_>, &str, &str);

/// Answers a call about an upload.
pub(super) fn answer(asked: ClientCall<'_>, (id, rest): CallNames<'_>, work: UploadCall) {
    if let Err(refusal) = asked.known.must_write() {
        return asked.reply.refuse(refusal);
    }
    if !is_id(id) {
        let why = "uploads/ID/PATH or uploads/ID/VERB is wanted";
        return asked.reply.refuse(Refusal::of_kind(Kind::Protocol, why));
    }
    work(asked, id, rest);
}

/// Takes bytes of an upload.
pub(super) fn put(asked: ClientCall<'_>, id: &str, path: &str) {
    match path::unescaped(path) {
        Ok(path) => put_into(asked, id, &path),
        Err(error) => asked
            .reply
            .refuse(Refusal::of_kind(Kind::Invalid, error.to_string())),
    }
}

fn put_into(mut asked: ClientCall<'_>, id: &str, path: &Path) {
    let outcome = find(&asked, id, path).and_then(|upload| {
        upload.touch(asked.visitor);
        let _moving = asked.door.shared.metrics.moving();
        let stream = upload.coming.by(1);
        let taken = upload.with(|sink| match is_pack(&asked) {
            true => take(&mut asked, (sink, &upload.coming), take_pack),
            false => take(&mut asked, (sink, &upload.coming), take_range),
        });
        if let Err(refusal) = &taken {
            asked.door.shared.metrics.failed("transfer");
            upload.coming.went_wrong(&refusal.said);
        }
        drop(stream);
        upload.touch(asked.visitor);
        taken.map(|()| upload)
    });
    let mut lines = asked.reply.lines();
    let outcome = outcome.and_then(|upload| {
        loop {
            let landed = landed(&upload, id)?;
            let is_full = landed.leaves.len() >= LEAVES_A_LINE;
            lines.say(&Line::Landed(landed))?;
            if !is_full {
                return Ok(());
            }
        }
    });
    lines.end(outcome);
}

fn is_pack(asked: &ClientCall<'_>) -> bool {
    let kind = asked.head.headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind == PACK_TYPE)
}

/// Receives bytes. Those that arrived stay, even if the request fails.
fn take(
    asked: &mut ClientCall<'_>,
    (sink, coming): (&dyn Sink, &UploadNotes),
    each: fn(&mut ClientCall<'_>, &mut Gathered<'_>) -> Result<()>,
) -> Result<()> {
    let mut gathered = Gathered::new(sink);
    let all = each(asked, &mut gathered);
    let taken = gathered.end()?;
    let metrics = &asked.door.shared.metrics;
    metrics.moved(TrafficDirection::In, Proto::Https, taken);
    coming.moved(taken);
    all
}

/// Blocks in any order. The end of the pack must come: else something was cut.
fn take_pack(asked: &mut ClientCall<'_>, gathered: &mut Gathered<'_>) -> Result<()> {
    let broke = |error: wire::Error| Error::PeerMisbehaved {
        host: "the client".into(),
        what: error.to_string(),
    };
    let mut decoder = Decoder::new();
    while let Some(bytes) = asked.reply.more(&mut asked.body)? {
        let mut input = &bytes[..];
        while !input.is_empty() {
            let (taken, frame) = decoder.next(input).map_err(broke)?;
            if let Some(Frame::Data(offset, bytes)) = frame {
                gathered.add(offset, bytes)?;
            }
            input = &input[taken..];
        }
    }
    match decoder.is_over() {
        true => Ok(()),
        false => Err(Error::misbehaved(
            "the client",
            "a pack without an end; what came of it is kept",
        )),
    }
}

/// One range, as every client of HTTP can send it.
fn take_range(asked: &mut ClientCall<'_>, gathered: &mut Gathered<'_>) -> Result<()> {
    let bad = |what: String| Error::PeerMisbehaved {
        host: "the client".into(),
        what,
    };
    let text = asked.head.headers.get(CONTENT_RANGE);
    let text = text.and_then(|text| text.to_str().ok());
    let text =
        text.ok_or_else(|| bad("Content-Range is wanted: where do these bytes belong?".into()))?;
    let (range, _) = range::of_content(text).map_err(|error| bad(error.to_string()))?;
    let mut offset = range.start;
    while let Some(bytes) = asked.reply.more(&mut asked.body)? {
        if bytes.len() as u64 > range.end - offset {
            return Err(bad("more bytes came than Content-Range says".into()));
        }
        gathered.add(offset, &bytes)?;
        offset += bytes.len() as u64;
    }
    match offset == range.end {
        true => Ok(()),
        false => Err(bad(
            "fewer bytes came than Content-Range says; they are kept".into(),
        )),
    }
}

/// Draws the bytes from another node, by its grant to the client.
pub(super) fn draw(asked: ClientCall<'_>, id: &str) {
    let shared = &asked.door.shared;
    let cancel =
        Cancel::new().map_err(|cause| Refusal::of_kind(Kind::Other, godwit_sys::why(&cause)));
    let begun = asked.read().and_then(|asking: AskDraw| {
        let cancel = cancel?;
        let key = asking.key.parse();
        let key = key.map_err(|error: godwit_trust::Error| {
            Refusal::of_kind(Kind::Protocol, error.to_string())
        })?;
        let upload = find(&asked, id, &asking.path.0)?;
        if !shared.config.data.third_party {
            let why = "this node makes no connections to others (data.third_party)";
            return Err(Refusal::of_kind(Kind::Unsupported, why));
        }
        if asked.known.who.is_none() {
            let why = "this node makes connections to others only for known peers";
            return Err(Refusal::of_kind(Kind::Unsupported, why));
        }
        let idle = asked.door.sources.to(key);
        let options = RemoteOptions {
            stall: shared.config.limits.stall,
            digests: asking.digests,
            mark: asked.reply.mark().clone(),
            ..RemoteOptions::new(cancel.clone())
        };
        let door = Door::with_grant(&asking.from, key, &asking.secret, (&options, &idle));
        let door = door?;
        Ok((upload, door, asking, cancel))
    });
    let (upload, from, asking, cancel) = match begun {
        Ok(begun) => begun,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    upload.touch(asked.visitor);
    let _moving = shared.metrics.moving();
    let moved = AtomicU64::new(0);
    let streams = usize::from(asking.streams).clamp(1, DRAW_STREAMS_MAX);
    upload.coming.set_source(source_of(&asking));
    let drawing = upload.coming.by(streams);
    let (news, leaving, name) = (Arc::clone(&upload), Arc::clone(&upload), id.to_owned());
    let news = move || news.news(&name);
    let gone = move || {
        tracing::info!(path = %leaving.key.path.display(), "stop drawing: the client that asked for it has left");
        leaving.is_left.store(true, Relaxed);
        cancel.cancel();
    };
    let (mut lines, drawn) = asked
        .reply
        .lines()
        .during(NEWS_EVERY, Arc::new(news), gone, || {
            upload.with(|sink| {
                let drawing = Drawing {
                    sink,
                    moved: &moved,
                };
                let (source, want) = (&asking.source.0, &asking.ranges.0);
                from.read(source, want, streams, &drawing)
            })
        });
    drop(drawing);
    let moved = moved.into_inner();
    shared
        .metrics
        .moved(TrafficDirection::In, Proto::Https, moved);
    upload.coming.moved(moved);
    if let Err(refusal) = &drawn {
        upload.coming.went_wrong(&refusal.said);
    }
    upload.touch(asked.visitor);
    let told = drawn.and_then(|read| {
        let line = Line::Read(read.stat.say(), read.digest.map(Text));
        lines.say(&line).map_err(Refusal::from)
    });
    let told = told.and_then(|()| {
        let landed = landed(&upload, id)?;
        lines.say(&Line::Landed(landed)).map_err(Refusal::from)
    });
    lines.end(told);
}

/// Says where a file is drawn from.
fn source_of(asking: &AskDraw) -> String {
    let at = asking.from.first().map_or("", |at| at);
    format!("godwit://{at}/{}", asking.source.0.display())
}

/// A sink that counts what comes.
struct Drawing<'a> {
    sink: &'a dyn Sink,
    moved: &'a AtomicU64,
}

impl BlockWriter for Drawing<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.moved.fetch_add(block.bytes.len() as u64, Relaxed);
        self.sink.put(block)
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.sink.said(leaf, chain)
    }
}

/// Makes sure of what landed, which takes as long as the disk does.
pub(super) fn commit(asked: ClientCall<'_>, id: &str) {
    let begun = asked
        .read()
        .and_then(|AskPath { path: Name(path) }| find(&asked, id, &path));
    let upload = match begun {
        Ok(upload) => upload,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    let (mut lines, done) = asked.reply.lines().during(
        BEAT,
        Arc::new(|| Line::Beat(0)),
        || (),
        || upload.with(|sink| sink.commit()),
    );
    let told = done.and_then(|done| {
        let line = Line::Landed(Landed {
            done: Ranges(done),
            ..landed(&upload, id)?
        });
        lines.say(&line).map_err(Refusal::from)
    });
    lines.end(told);
}

/// Publishes an upload.
pub(super) fn finish(asked: ClientCall<'_>, id: &str) {
    let taken = asked.read().and_then(
        |AskPublish {
             path: Name(path),
             whole,
         }| { Ok((close(&asked, id, &path)?, Expected::heard(whole))) },
    );
    let ((upload, sink), whole) = match taken {
        Ok(taken) => taken,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    let (mut lines, finished) = asked.reply.lines().during(
        BEAT,
        Arc::new(|| Line::Beat(0)),
        || (),
        || sink.finish(&whole),
    );
    let finished = finished.map_err(Refusal::from);
    match &finished {
        Ok(_) => {
            godwit_sys::crash::point("door.published");
            upload.coming.published(&upload.key.path);
        }
        Err(refusal) => {
            upload.coming.went_wrong(&refusal.said);
            upload.coming.failed(&upload.key.path, "");
        }
    }
    let told = finished.and_then(|finished| {
        let line = Line::Finished(finished.say());
        lines.say(&line).map_err(Refusal::from)
    });
    lines.end(told);
}

/// Forgets what landed.
pub(super) fn abandon(asked: ClientCall<'_>, id: &str) {
    end(asked, id, Sink::abandon);
}

/// Closes an upload and keeps its bytes for a resume.
pub(super) fn leave(asked: ClientCall<'_>, id: &str) {
    end(asked, id, |sink| {
        drop(sink);
        Ok(())
    });
}

/// Ends an upload without publishing anything.
fn end(asked: ClientCall<'_>, id: &str, how: impl FnOnce(Box<dyn Sink>) -> Result<()>) {
    let ended = asked.read().and_then(|AskPath { path: Name(path) }| {
        let (upload, sink) = close(&asked, id, &path)?;
        upload.coming.failed(&path, WENT);
        Ok(how(sink))
    });
    let mut lines = asked.reply.lines();
    let outcome = ended.and_then(|ended| done(&mut lines, ended));
    lines.end(outcome);
}

/// Finds an open upload. If this process has not opened it, the writer must begin it again: only its name is known.
fn find(asked: &ClientCall<'_>, id: &str, path: &Path) -> Result<Arc<OpenUpload>, Refusal> {
    let upload = asked.door.uploads.open.lock().get(id).cloned();
    let is_theirs = |upload: &Arc<OpenUpload>| {
        upload.key.owner == asked.known.owner() && upload.key.path == path
    };
    upload.filter(is_theirs).ok_or_else(|| {
        if asked
            .door
            .uploads
            .taken_over
            .lock()
            .iter()
            .any(|name| name == id)
        {
            let why = "a later attempt has taken this upload over";
            return Refusal::of_kind(Kind::Superseded, why);
        }
        let why = "no upload of that name is open here: begin it again, it goes on where it was";
        Refusal::of_kind(Kind::Canceled, why)
    })
}

/// Finds an upload and closes it.
fn close(
    asked: &ClientCall<'_>,
    id: &str,
    path: &Path,
) -> Result<(Arc<OpenUpload>, Box<dyn Sink>), Refusal> {
    let upload = find(asked, id, path)?;
    let sink = upload.take()?;
    asked.door.uploads.open.lock().remove(id);
    Ok((upload, sink))
}

impl OpenUpload {
    fn touch(&self, visitor: &Arc<Visitor>) {
        *self.used.lock() = Instant::now();
        let mut users = self.users.lock();
        if !users
            .iter()
            .any(|user| user.ptr_eq(&Arc::downgrade(visitor)))
        {
            users.retain(|user| user.strong_count() > 0);
            users.push(Arc::downgrade(visitor));
        }
    }

    /// Tells whether its writer may still use it: it has a connection, or lost it just now.
    fn is_wanted(self: &Arc<Self>, stall: Duration) -> bool {
        self.goes_on(match self.is_orphan() {
            true => stall.min(COMING_BACK),
            false => stall,
        })
    }

    /// Tells whether a request is using it, or did within `patience`.
    fn goes_on(self: &Arc<Self>, patience: Duration) -> bool {
        let used = *self.used.lock();
        Arc::strong_count(self) > 1 || used.elapsed() < patience
    }

    /// Tells whether all who asked for it are gone.
    fn is_orphan(&self) -> bool {
        let users = self.users.lock();
        users.iter().all(|user| user.strong_count() == 0)
    }

    fn with<T>(&self, work: impl FnOnce(&dyn Sink) -> Result<T>) -> Result<T, Refusal> {
        let sink = self.sink.read();
        match &*sink {
            Some(sink) => {
                let done = work(&**sink);
                if matches!(done, Err(Error::NoSpace { .. })) {
                    self.is_full.store(true, Relaxed);
                }
                done.map_err(Refusal::from)
            }
            None => Err(over()),
        }
    }

    /// Returns the landed ranges without waiting for the threads that fill the upload. Leaves are sent at the end.
    fn news(&self, id: &str) -> Line {
        match self.sink.try_read().as_deref() {
            Some(Some(sink)) => Line::Landed(Landed {
                id: id.into(),
                done: Ranges(sink.done()),
                leaves: Vec::new(),
                in_place: sink.is_in_place(),
            }),
            _ => Line::Beat(0),
        }
    }

    fn take(&self) -> Result<Box<dyn Sink>, Refusal> {
        let mut sink = self.sink.write();
        sink.take().ok_or_else(over)
    }
}

fn over() -> Refusal {
    Refusal::of_kind(Kind::Canceled, "the upload is over")
}

/// Tells whether this can be a writer's id, which stands in no path.
fn is_own_id(id: &str) -> bool {
    wire::is_word(id, b"-_.")
}

fn is_id(id: &str) -> bool {
    wire::is_word(id, b"-_")
}

/// The log's reason for an upload that was not published.
const WENT: &str = "its writer left before it was whole";
const OPEN_MAX: usize = 10_000;
/// The most uploads of one user, so that one user cannot take all.
const OPEN_EACH_MAX: usize = 1_000;
const LEAVES_AT_ONCE: usize = 1024;
/// Some 80 bytes each, of the 4 MiB that a line may have.
const LEAVES_A_LINE: usize = 16 * LEAVES_AT_ONCE;
/// How long a node that is to stop waits for a writer without a connection.
const COMING_BACK: Duration = Duration::from_secs(5);
/// How long the connection of a killed client may take to end.
const LEAVING: Duration = Duration::from_secs(1);
/// How long a draw may take to stop after its client has left.
const STOPPING: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// More connections bring nothing between two nodes.
const DRAW_STREAMS_MAX: usize = 64;
/// How often the landed ranges of a draw are sent.
const NEWS_EVERY: Duration = Duration::from_secs(1);
