//! The log of transfers through the door: a line a file, as for FTP.
//!
//! A file is read by several requests of ranges; those of one command are one transfer. The transfer ends when the
//! whole file was sent, or after a while without a further request.

use super::{KnownCaller, Visitor};
use crate::base::transfer_log::{Transfer, TransferLog};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

/// The client of a transfer, and the log.
#[derive(Clone, Debug)]
pub(super) struct Noting {
    journal: Arc<TransferLog>,
    user: String,
    peer: SocketAddr,
}

impl Noting {
    pub(super) fn new(journal: &Arc<TransferLog>, known: &KnownCaller, visitor: &Visitor) -> Self {
        let user = match (&known.account, known.owner()) {
            (Some(account), _) => account,
            (None, "") => crate::shared::ANONYMOUS,
            (None, subject) => subject,
        };
        Self {
            journal: Arc::clone(journal),
            user: user.into(),
            peer: visitor.peer,
        }
    }

    /// Logs a file that was sent to the client.
    pub(super) fn sent(&self, path: &Path, begun: Instant, came_to: Result<u64, &str>) {
        let target = self.peer.to_string();
        self.note(path.display().to_string(), target, begun, 1, came_to);
    }

    /// Notes a file that came from them.
    pub(super) fn received(&self, path: &Path, begun: Instant, came_to: Result<u64, &str>) {
        let target = path.display().to_string();
        self.came(self.peer.to_string(), target, begun, 1, came_to);
    }

    /// Tells the log too of a file that was changed.
    fn came(
        &self,
        source: String,
        target: String,
        begun: Instant,
        streams: usize,
        came_to: Result<u64, &str>,
    ) {
        if let Ok(bytes) = came_to {
            let (who, from) = (&self.user, self.peer);
            tracing::info!(source, target, bytes, who, %from, "received");
        }
        self.note(source, target, begun, streams, came_to);
    }

    fn note(
        &self,
        source: String,
        target: String,
        begun: Instant,
        streams: usize,
        came_to: Result<u64, &str>,
    ) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.journal.note(|| Transfer {
            when: now.unwrap_or_default(),
            user: &self.user,
            source,
            target,
            seconds: begun.elapsed().as_secs_f64(),
            streams,
            came_to,
        });
    }

    /// Writes the buffered lines.
    pub(super) fn flush(&self) {
        self.journal.flush();
    }
}

/// Facts about an upload in flight.
#[derive(Debug)]
pub(super) struct UploadNotes {
    noting: Noting,
    begun: Instant,
    bytes: AtomicU64,
    streams: AtomicUsize,
    streams_most: AtomicUsize,
    /// The node from which the bytes are drawn; `None`: the writer sends them.
    source: Mutex<Option<String>>,
    wrong: Mutex<Option<String>>,
}

impl UploadNotes {
    pub(super) fn new(noting: Noting) -> Self {
        Self {
            noting,
            begun: Instant::now(),
            bytes: AtomicU64::new(0),
            streams: AtomicUsize::new(0),
            streams_most: AtomicUsize::new(0),
            source: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    /// Counts more connections that bring bytes, until the returned value is dropped.
    pub(super) fn by(&self, streams: usize) -> UploadStreams<'_> {
        let now = self.streams.fetch_add(streams, Relaxed) + streams;
        self.streams_most.fetch_max(now, Relaxed);
        UploadStreams(self, streams)
    }

    pub(super) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn set_source(&self, source: String) {
        *self.source.lock() = Some(source);
    }

    /// Notes a failure. It is logged if the upload does not succeed later.
    pub(super) fn went_wrong(&self, why: &str) {
        *self.wrong.lock() = Some(why.into());
    }

    pub(super) fn published(&self, target: &Path) {
        self.ended(target, Ok(self.bytes.load(Relaxed)));
    }

    /// Notes that it ended without a file.
    pub(super) fn failed(&self, target: &Path, why: &str) {
        let wrong = self.wrong.lock().take();
        self.ended(target, Err(wrong.as_deref().unwrap_or(why)));
    }

    fn ended(&self, target: &Path, came_to: Result<u64, &str>) {
        let source = self.source.lock().take();
        let source = source.unwrap_or_else(|| self.noting.peer.to_string());
        let (target, streams) = (target.display().to_string(), &self.streams_most);
        let streams = streams.load(Relaxed);
        self.noting
            .came(source, target, self.begun, streams, came_to);
        self.noting.flush();
    }
}

/// Some connections that bring bytes.
pub(super) struct UploadStreams<'a>(&'a UploadNotes, usize);

impl Drop for UploadStreams<'_> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(self.1, Relaxed);
    }
}

/// Files of which shares are being read.
#[derive(Debug, Default)]
pub(crate) struct Readings(Mutex<HashMap<FileTransfer, ReadingNotes>>);

/// Identifies a transfer of a file: the command, its user and the path.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct FileTransfer {
    pub(super) mark: String,
    pub(super) owner: String,
    pub(super) path: PathBuf,
}

#[derive(Debug)]
struct ReadingNotes {
    noting: Noting,
    begun: Instant,
    asked_at: Instant,
    bytes: u64,
    streams: usize,
    streams_most: usize,
    wrong: Option<String>,
}

impl Readings {
    /// Tells whether more of this was asked for a moment ago.
    pub(super) fn has(&self, share: &FileTransfer) -> bool {
        self.0.lock().contains_key(share)
    }

    /// Tells whether anything is read at the moment, between two shares too.
    pub(super) fn go_on(&self) -> bool {
        let is_on = |one: &ReadingNotes| one.streams > 0 || one.asked_at.elapsed() < BETWEEN_SHARES;
        self.0.lock().values().any(is_on)
    }

    /// A share is asked for.
    pub(super) fn begin(&self, share: &FileTransfer, noting: &Noting) {
        let mut open = self.0.lock();
        if open.len() >= READINGS_MAX && !open.contains_key(share) {
            settle(&mut open, |one| one.streams == 0);
        }
        let now = Instant::now();
        let one = open.entry(share.clone()).or_insert_with(|| ReadingNotes {
            noting: noting.clone(),
            begun: now,
            asked_at: now,
            bytes: 0,
            streams: 0,
            streams_most: 0,
            wrong: None,
        });
        one.asked_at = now;
        one.streams += 1;
        one.streams_most = one.streams_most.max(one.streams);
    }

    /// Notes that a range of a file of `size` was sent.
    pub(super) fn end(&self, share: &FileTransfer, sent: u64, size: Result<u64, String>) {
        let mut open = self.0.lock();
        let Some(one) = open.get_mut(share) else {
            return;
        };
        one.asked_at = Instant::now();
        one.streams -= 1;
        one.bytes += sent;
        let is_whole = match size {
            Ok(size) => one.bytes >= size,
            Err(why) => {
                one.wrong = Some(why);
                false
            }
        };
        if is_whole && one.streams == 0 {
            let one = open.remove(share).expect("it was found");
            drop(open);
            one.note(&share.path);
            one.noting.flush();
        }
    }

    /// Logs transfers without a further request.
    pub(super) fn forget_idle(&self) {
        let is_over = |one: &ReadingNotes| one.streams == 0 && one.asked_at.elapsed() >= SILENT;
        settle(&mut self.0.lock(), is_over);
    }

    /// Logs all open transfers when the node ends.
    pub(super) fn forget_all(&self) {
        settle(&mut self.0.lock(), |_| true);
    }
}

fn settle(open: &mut HashMap<FileTransfer, ReadingNotes>, is_over: impl Fn(&ReadingNotes) -> bool) {
    let over = open.extract_if(|_, one| is_over(one));
    let mut last = None;
    for (share, one) in over {
        one.note(&share.path);
        last = Some(one);
    }
    if let Some(last) = last {
        last.noting.flush();
    }
}

impl ReadingNotes {
    fn note(&self, path: &Path) {
        let came_to = match &self.wrong {
            None => Ok(self.bytes),
            Some(why) => Err(&**why),
        };
        let (source, target) = (path.display().to_string(), self.noting.peer.to_string());
        let streams = self.streams_most;
        self.noting
            .note(source, target, self.begun, streams, came_to);
    }
}

/// The most files read at once; beyond that, each range is logged by itself.
const READINGS_MAX: usize = 10_000;
/// A file without a request for this long is no longer being read.
const SILENT: Duration = Duration::from_secs(10);
/// The next share is asked for as soon as one is through.
const BETWEEN_SHARES: Duration = Duration::from_secs(2);
