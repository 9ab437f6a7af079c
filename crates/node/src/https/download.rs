//! Bytes out: a file as every client of HTTP reads it, and packs.

use super::{
    HttpsDoor, KnownCaller, Visitor,
    calls::{ClientCall, entity_tag, may_begin, read},
    noted::{FileTransfer, Noting},
    reply::{BodyPipe, HttpReply},
    span_of,
};
use crate::base::metrics::{GaugeGuard, Metrics, Proto, TrafficDirection};
use godwit_core::{Block, Extents, Kind, Leaves, Piece};
use godwit_store::{
    BlockWriter, EntryKind, Error, LocalFile, Result, Store,
    door::{RequestBody, pieces, words::CallForm},
};
use godwit_wire::{
    Refusal,
    door::{
        PACK_TYPE,
        call::{self, AskRead, PackedEnd, Text},
        pack::{self, HEADER_BYTES},
        range::{self, Asked as Wanted},
    },
    time::HttpDate,
};
use hyper::{
    Method, Response, StatusCode,
    body::Bytes,
    header::{
        ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE,
        LAST_MODIFIED, LOCATION, RANGE,
    },
};
use parking_lot::Mutex;
use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// `GET` and `HEAD` of a file.
pub(super) fn file(asked: ClientCall<'_>, method: &Method, path: &Path) {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let head = Response::builder().status(405).header(ALLOW, "GET, HEAD");
        let answer = head.body(RequestBody::whole(
            "files are only read by this name in this version\n",
        ));
        return asked.reply.whole(answer.expect("its headers are ours"));
    }
    let stat = match asked.known.dir.stat(path) {
        Ok(stat) if stat.kind == EntryKind::File => stat,
        Ok(_) => {
            let why = "is no file; this version lists no directories by this name";
            return asked.reply.refuse(Refusal::of_kind(Kind::IsDirectory, why));
        }
        Err(error) => match error.refers_to() {
            Some(to) => {
                let head = Response::builder()
                    .status(307)
                    .header(LOCATION, to.to_string());
                let answer = head.body(RequestBody::whole(format!("it is at {to}\n")));
                return asked
                    .reply
                    .whole(answer.expect("a URL has only what a header may have"));
            }
            None => return asked.reply.refuse(Refusal::from(&error)),
        },
    };
    let tag = entity_tag(&stat);
    let headers = &asked.head.headers;
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &hyper::header::HeaderValue| value.to_str().ok())
    };
    // A weak tag never says that two are the same, byte by byte (RFC 9110 §13.1.5).
    let wanted = match text(RANGE).filter(|_| !headers.contains_key(IF_RANGE)) {
        Some(wanted) => match Wanted::read(wanted) {
            Ok(wanted) => wanted,
            Err(error) => {
                return asked
                    .reply
                    .refuse(Refusal::of_kind(Kind::Protocol, error.to_string()));
            }
        },
        None => None,
    };
    let (status, range) = match &wanted {
        None => (StatusCode::OK, 0..stat.size),
        Some(wanted) => match wanted.of(stat.size) {
            Some(range) => (StatusCode::PARTIAL_CONTENT, range),
            None => {
                let head = Response::builder()
                    .status(StatusCode::RANGE_NOT_SATISFIABLE)
                    .header(CONTENT_RANGE, format!("bytes */{}", stat.size));
                let answer = head.body(RequestBody::whole(format!(
                    "the file has {} bytes\n",
                    stat.size
                )));
                return asked.reply.whole(answer.expect("its headers are ours"));
            }
        },
    };
    let mut head = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, range.end - range.start)
        .header(ACCEPT_RANGES, "bytes")
        .header(ETAG, tag);
    if let Some(mtime) = stat.mtime {
        head = head.header(LAST_MODIFIED, HttpDate(mtime).to_string());
    }
    if status == StatusCode::PARTIAL_CONTENT {
        head = head.header(CONTENT_RANGE, range::content(&range, Some(stat.size)));
    }
    if *method == Method::HEAD || range.is_empty() {
        let answer = head.body(RequestBody::whole(Bytes::new()));
        return asked.reply.whole(answer.expect("its headers are ours"));
    }
    let sending = SendingFile {
        _moving: asked.door.shared.metrics.moving(),
        metrics: Arc::clone(&asked.door.shared.metrics),
        noting: asked.noting(),
        path: path.into(),
        count: range.end - range.start,
        begun: Instant::now(),
    };
    // A local file needs a thread only while the disk is read.
    if let Ok((file, opened)) = asked.known.dir.lend(path)
        && (opened.size, opened.mtime) == (stat.size, stat.mtime)
    {
        let runtime = asked.door.runtime.clone();
        let span = span_of(&asked.reply, asked.visitor);
        let pipe = asked.reply.stream_ahead(head, LARGE_PIECES_AHEAD);
        runtime.spawn(async move {
            let poured = pour(&pipe, file, range, &sending.path).await;
            span.in_scope(|| sending.end(poured));
        });
        return;
    }
    let plain = Plain(asked.reply.stream(head));
    let read = asked.known.dir.read(path, &Extents::from(range), 1, &plain);
    sending.end(read.map(drop));
}

/// A file that goes out as it is.
struct SendingFile {
    _moving: GaugeGuard,
    metrics: Arc<Metrics>,
    noting: Noting,
    path: PathBuf,
    count: u64,
    begun: Instant,
}

impl SendingFile {
    fn end(self, sent: Result<()>) {
        self.metrics
            .moved(TrafficDirection::Out, Proto::Https, self.count);
        let why = sent.as_ref().map_err(ToString::to_string);
        let came_to = why.as_ref().map(|()| self.count).map_err(|why| &**why);
        self.noting.sent(&self.path, self.begun, came_to);
        self.noting.flush();
        if let Err(error) = sent {
            self.metrics.failed("transfer");
            // The client sees the error by the missing bytes.
            tracing::info!(path = %self.path.display(), %error, "a file was not sent whole");
        }
    }
}

/// Sends a range of a file, with a thread only while the disk is read.
async fn pour(pipe: &BodyPipe, file: File, range: Range<u64>, path: &Path) -> Result<()> {
    let (file, path) = (Arc::new(file), Arc::<Path>::from(path));
    for piece in pieces(range, LARGE_PIECE_BYTES) {
        let (file, path) = (Arc::clone(&file), Arc::clone(&path));
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; (piece.end - piece.start) as usize];
            let lying = LocalFile {
                path: &path,
                file: &file,
            };
            lying.fill(piece.start, &mut bytes).map(|()| bytes)
        });
        // The runtime ends with the node.
        let bytes = read.await.map_err(|_| Error::Canceled)??;
        pipe.send_later(bytes.into()).await?;
    }
    Ok(())
}

/// Bytes as they are, in order.
struct Plain(BodyPipe);

impl BlockWriter for Plain {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.0.send(Bytes::copy_from_slice(block.bytes))
    }

    godwit_store::has!(self, Fast);
}

impl godwit_store::Fast for Plain {
    fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, _: &mut [u8]) -> Result<()> {
        pieces(range, PIECE_BYTES).try_for_each(|piece| {
            let mut bytes = vec![0; (piece.end - piece.start) as usize];
            file.fill(piece.start, &mut bytes)?;
            self.0.send(bytes.into())
        })
    }
}

/// `read`: ranges of files, each with its digests.
pub(super) fn pack(asked: ClientCall<'_>) {
    match asked.read() {
        Ok(wanted) => packed(
            asked.door,
            (asked.known, asked.visitor),
            &wanted,
            asked.reply,
        ),
        Err(refusal) => asked.reply.refuse(refusal),
    }
}

/// Sends a file to a client that shows the grant of another.
pub(super) fn granted(
    door: &HttpsDoor,
    visitor: &Visitor,
    (secret, text): (&str, &[u8]),
    reply: HttpReply,
) {
    let shown = read(text)
        .and_then(|wanted: AskRead| Ok((door.grants.shown(door, secret, &wanted)?, wanted)));
    match shown {
        Ok((known, wanted)) => packed(door, (&known, visitor), &wanted, reply),
        Err(refusal) => reply.refuse(refusal),
    }
}

fn packed(
    door: &HttpsDoor,
    (known, visitor): (&KnownCaller, &Visitor),
    wanted: &AskRead,
    reply: HttpReply,
) {
    let share = match &*wanted.files {
        [one] => Some(FileTransfer {
            mark: reply.mark().to_string(),
            owner: known.owner().into(),
            path: one.path.0.clone(),
        }),
        _ => None,
    };
    let goes_on = share.as_ref().is_some_and(|share| door.readings.has(share));
    if !goes_on && let Err(refusal) = may_begin(door, known, None) {
        return reply.refuse(refusal);
    }
    // Of one file alone the status tells whether it can be read.
    if let [one] = &*wanted.files
        && let Err(error) = known.dir.stat(&one.path.0)
    {
        return reply.refuse(Refusal::from(&error));
    }
    let head = Response::builder().header(CONTENT_TYPE, PACK_TYPE);
    let metrics = &door.shared.metrics;
    let noting = Noting::new(&door.shared.journal, known, visitor);
    let _moving = metrics.moving();
    let pipe = reply.stream(head);
    if let Some(share) = &share {
        door.readings.begin(share, &noting);
    }
    let note = |path: &Path, begun, sent, size: Result<u64, String>| match &share {
        Some(share) => door.readings.end(share, sent, size),
        None => noting.sent(
            path,
            begun,
            size.as_ref().map(|_| sent).map_err(|why| &**why),
        ),
    };
    if let Err(error) = send(&pipe, wanted, &known.dir, metrics, &note) {
        metrics.failed("transfer");
        tracing::info!(%error, "a pack was not sent whole");
    }
    noting.flush();
}

/// Notes each file: when it began, how much was sent, and the file's size.
type TransferNote<'a> = dyn Fn(&Path, Instant, u64, Result<u64, String>) + 'a;

fn send(
    pipe: &BodyPipe,
    wanted: &AskRead,
    dir: &dyn Store,
    metrics: &Metrics,
    note: &TransferNote<'_>,
) -> Result<()> {
    for (number, file) in (0u64..).zip(&wanted.files) {
        let (path, begun) = (&file.path.0, Instant::now());
        let packed = Packed {
            pipe,
            leaves: wanted.digests.then(Mutex::default),
            broken: Mutex::default(),
            sent: AtomicU64::new(0),
        };
        let opened = pipe.send(pack::frame(pack::FrameKind::File, number, b"{}").into());
        let read = opened.and_then(|()| dir.read(path, &file.ranges.0, 1, &packed));
        let sent = packed.sent.load(Relaxed);
        metrics.moved(TrafficDirection::Out, Proto::Https, sent);
        // A visitor who is gone needs no end.
        let broken = packed.broken.into_inner();
        let size = match (&broken, &read) {
            (Some(error), _) | (None, Err(error)) => Err(error.to_string()),
            (None, Ok(read)) => Ok(read.stat.size),
        };
        // A missing file is no transfer, except a single one, which existed a moment ago.
        if wanted.files.len() == 1 || !matches!(read, Err(Error::Missing { .. })) {
            note(path, begun, sent, size);
        }
        if let Some(error) = broken {
            return Err(error);
        }
        let told = packed.leaves.map(Mutex::into_inner);
        let mut ends = Vec::new();
        let ended = match read {
            Ok(read) => {
                let size = read.stat.size;
                let of_all = told.and_then(|mut leaves| {
                    // The last leaf may be shorter than the others.
                    for (leaf, chain) in leaves.newly_complete(size, LEAVES_AT_ONCE) {
                        ends.extend(pack::leaf(leaf, &chain));
                    }
                    leaves.root(size)
                });
                PackedEnd::Read(read.stat.say(), of_all.or(read.digest).map(Text))
            }
            Err(error) => PackedEnd::Refused(Refusal::from(&error)),
        };
        ends.extend(pack::frame(
            pack::FrameKind::End,
            number,
            &call::write(&ended),
        ));
        pipe.send(ends.into())?;
    }
    pipe.send(pack::frame(pack::FrameKind::Last, wanted.files.len() as u64, b"").into())
}

/// Bytes in frames, and the hashes of whole leaves.
struct Packed<'a> {
    pipe: &'a BodyPipe,
    leaves: Option<Mutex<Leaves>>,
    /// Why no more can be sent.
    broken: Mutex<Option<Error>>,
    /// Bytes of the file.
    sent: AtomicU64,
}

impl Packed<'_> {
    /// Sends a frame, of which the first bytes are left free for its header.
    fn send(&self, offset: u64, mut frame: Vec<u8>) -> Result<()> {
        let bytes = &frame[HEADER_BYTES..];
        let mut news = Vec::new();
        if let Some(leaves) = &self.leaves {
            let piece = Piece::of(Block { offset, bytes });
            let mut leaves = leaves.lock();
            leaves.add(piece);
            news = leaves.newly_complete(UNKNOWN, LEAVES_AT_ONCE);
        }
        self.sent
            .fetch_add((frame.len() - HEADER_BYTES) as u64, Relaxed);
        let header = pack::header(pack::FrameKind::Data, offset, frame.len() - HEADER_BYTES);
        frame[..HEADER_BYTES].copy_from_slice(&header);
        for (leaf, chain) in news {
            frame.extend(pack::leaf(leaf, &chain));
        }
        self.pipe.send(frame.into()).map_err(|error| {
            let mut broken = self.broken.lock();
            broken.get_or_insert(error);
            Error::Canceled
        })
    }
}

impl BlockWriter for Packed<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let mut frame = vec![0; HEADER_BYTES];
        frame.extend_from_slice(block.bytes);
        self.send(block.offset, frame)
    }

    godwit_store::has!(self, Fast);
}

impl godwit_store::Fast for Packed<'_> {
    fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, _: &mut [u8]) -> Result<()> {
        pieces(range, PIECE_BYTES).try_for_each(|piece| {
            let mut frame = vec![0; HEADER_BYTES + (piece.end - piece.start) as usize];
            file.fill(piece.start, &mut frame[HEADER_BYTES..])?;
            self.send(piece.start, frame)
        })
    }
}

const PIECE_BYTES: u64 = 128 << 10;
const LARGE_PIECE_BYTES: u64 = 256 << 10;
const LARGE_PIECES_AHEAD: usize = 2;
/// Stands for an unknown length; no file is that long.
const UNKNOWN: u64 = u64::MAX;
const LEAVES_AT_ONCE: usize = 16;
