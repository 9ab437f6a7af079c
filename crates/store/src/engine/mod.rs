//! Copies from any store to any store.
//!
//! One thread finds the files, and several move them. Small files are in flight together; large ones are moved in
//! blocks over several streams. Between two servers no byte passes through this process. Landed bytes are never sent
//! again, and passing faults are retried. Every file ends with a sentence about its verification.

mod file;
mod plan;
mod queue;
mod retry;
mod small;
mod stores;
#[cfg(test)]
mod tests;
mod turns;

pub use plan::extra;
pub use retry::{Retry, Tries};
pub use stores::{GridOpener, NO_CATALOG, Place, Stores};

use crate::{
    Error, Remote, Result, Stat, TrustOptions, Tuned, Verified,
    channel::Cancel,
    error::TOO_LARGE,
    mark::RequestId,
    remote::{Flow, is_renewed},
};
use godwit_core::{Choice, Digest, Fault, Scheme};
use parking_lot::{Mutex, MutexGuard};
use queue::{QueueTake, WorkQueue};
use std::{
    num::NonZeroU64,
    ops::Range,
    path::PathBuf,
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use turns::{FileTurn, FileTurns};

/// How to copy. The default suits nearly every user.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Streams of one large file; `None`: as the transfer finds best on its way.
    pub streams: Option<usize>,
    /// Files in flight; `None`: by the distance to the server.
    pub parallel: Option<usize>,
    /// Servers that the files come from: by default as many files are in flight.
    pub holders: usize,
    /// Have all bytes come here, also from server to server.
    pub via_us: bool,
    /// Compare digests.
    pub verify: bool,
    /// Whether to resume the partial of an earlier attempt.
    pub resume: bool,
    /// Give copies the source's time of change.
    pub keep_times: bool,
    /// Give copies the source's permission bits.
    pub keep_modes: bool,
    /// The permission bits to copy: a program that runs as its owner keeps that right only on request.
    pub mode_bits: u32,
    /// How often in a row a passing fault may come without any progress; `None`: [`Retry`] decides.
    pub retries: Option<u32>,
    /// How long nothing may move.
    pub stall: Duration,
    /// How long a connection may take to come up.
    pub connect: Duration,
    /// Where to note what landed on servers that cannot be asked for it.
    pub notes: Option<PathBuf>,
    /// The buffer size of data connections at both ends; `None`: the kernels' choice.
    pub tcp_buffer: Option<u32>,
    /// Our credentials, and the protection of bytes.
    pub trust: TrustOptions,
    /// The id of this operation, which nodes write to their logs.
    pub mark: RequestId,
    /// The choice of names below directories.
    pub choice: Choice,
    /// How many bytes a second may come through here at most.
    pub bytes_per_s: Option<NonZeroU64>,
    /// The store of `grid:`, if a catalog is named.
    pub named: Option<GridOpener>,
    /// Stops everything.
    pub cancel: Cancel,
}

impl CopyOptions {
    /// Returns the defaults, stopped by `cancel`.
    pub fn new(cancel: Cancel) -> Self {
        Self {
            streams: None,
            parallel: None,
            holders: 1,
            via_us: false,
            verify: true,
            resume: true,
            keep_times: true,
            keep_modes: true,
            mode_bits: 0o777,
            retries: None,
            stall: Duration::from_secs(30),
            connect: Duration::from_secs(15),
            notes: None,
            tcp_buffer: None,
            trust: TrustOptions::default(),
            mark: RequestId::new(),
            choice: Choice::default(),
            bytes_per_s: None,
            named: None,
            cancel,
        }
    }
}

/// One thing to copy: a file, or a tree with all that is in it.
#[derive(Clone, Debug)]
pub struct CopyTask {
    /// From where.
    pub source: Place,
    /// The name of the copy itself, not the directory above.
    pub target: Place,
    /// Whether a directory is meant.
    pub tree: bool,
    /// Its permission bits, which a new copy of a directory gets.
    pub mode: Option<u32>,
    /// Only these bytes, to the same offsets of the target, in place.
    pub range: Option<Range<u64>>,
    /// The treatment of an existing target.
    pub rule: OverwriteRule,
    /// Whether to remove target files that the source tree does not have.
    pub delete: bool,
}

/// The treatment of an existing target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OverwriteRule {
    /// Replace it.
    Always,
    /// Leave it.
    NoClobber,
    /// Replace it if size or time differ.
    Update,
    /// Replace it if size or digest differ.
    UpdateByDigest,
}

/// An event of a copy, reported when it happens.
#[derive(Debug)]
pub enum CopyEvent<'a> {
    /// More to be done was found; `complete`: that is all.
    Found {
        /// Files.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Whether the search is complete.
        complete: bool,
    },
    /// Bytes of a file landed.
    Moved {
        /// How many.
        bytes: u64,
    },
    /// Bytes of a file need not move: they were there already.
    Resumed {
        /// How many.
        bytes: u64,
    },
    /// A file is whole.
    Done(&'a CopyOutcome),
    /// A file could not be copied.
    Failed {
        /// From where.
        source: &'a Place,
        /// To where.
        target: &'a Place,
        /// Why not.
        error: &'a Error,
        /// The next attempt, which may follow after a pause; `None`: there is none.
        again: Option<Tries>,
    },
    /// A file was left as it is, because of the rule.
    Skipped {
        /// From where.
        source: &'a Place,
        /// To where.
        target: &'a Place,
        /// Its length.
        bytes: u64,
    },
    /// A directory was made.
    Directory {
        /// Where.
        target: &'a Place,
    },
    /// Something was left out because it has the name of an unfinished upload.
    LeftOut {
        /// What.
        source: &'a Place,
    },
    /// Something was removed because the source does not have it.
    Removed {
        /// What.
        target: &'a Place,
    },
}

/// How one file was copied: the record of a transfer.
#[derive(Clone, Debug)]
pub struct CopyOutcome {
    /// From where.
    pub source: Place,
    /// To where.
    pub target: Place,
    /// Length of the file, or of the range that was asked.
    pub bytes: u64,
    /// Of them, bytes of an earlier attempt.
    pub resumed_bytes: u64,
    /// Bytes that the source had to read a second time to tell the digest.
    pub reread_source_bytes: u64,
    /// Bytes that the target had to read back to tell the digest.
    pub reread_target_bytes: u64,
    /// Readers of the target saw it change, since it could not be replaced in one step.
    pub in_place: bool,
    /// How long it took.
    pub seconds: f64,
    /// The number of streams, and its reason.
    pub tuned: Tuned,
    /// How the copy was verified.
    pub verified: Verified,
    /// The hash of the file, if it was computed on the way.
    pub digest: Option<Digest>,
    /// Passing faults on the way.
    pub faults: u32,
    /// Whether the bytes went from server to server.
    pub third_party: bool,
}

/// The result of a copy.
#[derive(Debug, Default)]
pub struct Summary {
    /// Files copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of them, bytes of earlier attempts.
    pub resumed_bytes: u64,
    /// Read again by sources to tell digests.
    pub reread_source_bytes: u64,
    /// Read back by targets to tell digests.
    pub reread_target_bytes: u64,
    /// Files that were replaced in place, where readers saw it.
    pub in_place: u64,
    /// Files left as they are.
    pub skipped: u64,
    /// Directories made.
    pub directories: u64,
    /// Things removed.
    pub removed: u64,
    /// Passing faults.
    pub faults: u64,
    /// Most streams used by one file.
    pub streams: usize,
    /// Files known to be right by a digest.
    pub verified: u64,
    /// The errors of files that could not be copied, the first of them.
    pub errors: Vec<Error>,
    /// How many could not be copied.
    pub failed: u64,
    /// Whether files that only the target has were kept, because of an error.
    pub not_deleted: bool,
}

/// One file to be moved.
#[derive(Clone, Debug)]
struct CopyItem {
    source: Place,
    target: Place,
    stat: Stat,
    range: Option<Range<u64>>,
    rule: OverwriteRule,
    tries: u32,
}

/// State that all threads of one `copy` share.
struct Copying<'a> {
    options: &'a CopyOptions,
    on: &'a (dyn Fn(&CopyEvent<'_>) + Sync),
    large: WorkQueue<CopyItem>,
    small: WorkQueue<CopyItem>,
    turns: FileTurns, // to move a large file
    /// How many threads move small files.
    movers: AtomicUsize,
    summary: Mutex<Summary>,
    moved_bytes: AtomicU64,
    /// When the bytes taken so far are through, at the rate that is asked for.
    through_at: Mutex<Instant>,
    /// Our certificate has expired: files that need one are not begun.
    is_unproved: AtomicBool,
    /// The target has no room left: nothing more is begun.
    is_full: AtomicBool,
    undressed: Mutex<Vec<(Place, u32)>>, // directories, and the bits they get at the end
}

/// Copies all tasks, and returns the result. `on` is called often, from many threads. After a cancellation, partials
/// are kept for a resume.
pub fn copy(
    tasks: Vec<CopyTask>,
    options: &CopyOptions,
    on: &(dyn Fn(&CopyEvent<'_>) + Sync),
) -> Summary {
    let crew = Crew::of(&tasks, options);
    let copying = Copying {
        options,
        on,
        large: WorkQueue::new(),
        small: WorkQueue::new(),
        turns: FileTurns::new(crew.large, crew.lead),
        movers: AtomicUsize::new(crew.small),
        summary: Mutex::default(),
        moved_bytes: AtomicU64::new(0),
        through_at: Mutex::new(Instant::now()),
        is_unproved: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
        undressed: Mutex::default(),
    };
    thread::scope(|scope| {
        for _ in 0..crew.small {
            scope.spawn(|| {
                copying.prepare(&tasks);
                copying.move_small();
            });
        }
        for _ in 0..crew.large + crew.relief {
            scope.spawn(|| copying.move_large());
        }
        copying.find(&tasks);
    });
    if options.cancel.is_canceled() {
        let mut summary = copying.summary();
        summary.errors.insert(0, Error::Canceled);
        summary.not_deleted = tasks.iter().any(|task| task.delete);
    } else {
        plan::dress(&copying);
        plan::delete(&copying, &tasks);
    }
    copying.summary.into_inner()
}

impl CopyOptions {
    /// Returns the permission bits for a copy of something with `mode`.
    fn mode(&self, mode: Option<u32>) -> Option<u32> {
        let kept = mode.filter(|_| self.keep_modes);
        kept.map(|mode| mode & self.mode_bits)
    }
}

/// The number of threads that move files.
struct Crew {
    small: usize,
    large: usize,
    /// Threads that begin a large file while others end theirs.
    relief: usize,
    /// How long before the end of one file the next may begin.
    lead: Duration,
}

impl Crew {
    fn of(tasks: &[CopyTask], options: &CopyOptions) -> Self {
        if matches!(tasks, [task] if !task.tree) {
            return Self {
                small: 1,
                large: 1,
                relief: 0,
                lead: Duration::ZERO,
            };
        }
        let far = tasks
            .iter()
            .map(|task| task.source.distance().max(task.target.distance()));
        let far = far.max().unwrap_or_default();
        let is_ours =
            |place: &Place| !place.is_remote() || place.store.can().is_ok_and(|can| can.leaves);
        let best = if far < FAR {
            NEAR_FILES
        } else if tasks
            .iter()
            .all(|t| is_ours(&t.source) && is_ours(&t.target))
        {
            FAR_FILES_OF_OURS
        } else {
            FAR_FILES
        };
        let places = tasks.iter().flat_map(|task| [&task.source, &task.target]);
        let ports = places.filter_map(|place| Remote::of(&*place.store).map(Remote::data_ports));
        let ports = ports.min().unwrap_or(usize::MAX);
        let small = options.parallel.unwrap_or(best.max(options.holders));
        let small = small.min(ports).max(1);
        let large = match far < FAR {
            true => LARGE_FILES,
            false => LARGE_FILES_FAR,
        };
        let large = small.min(large.max(options.holders));
        // A number of streams that the user chose is an upper limit.
        let is_relieved = far >= FAR && options.parallel.is_none();
        Self {
            small,
            large,
            relief: if is_relieved {
                large.min(ports - large)
            } else {
                0
            },
            lead: far * LEAD_TRIPS,
        }
    }
}

impl Copying<'_> {
    /// Has a conversation with a server that is far ready when there is something to
    /// be said in it.
    fn prepare(&self, tasks: &[CopyTask]) {
        let Some(task) = tasks.iter().find(|task| task.tree) else {
            return;
        };
        let is_far = |place: &Place| place.distance() >= FAR;
        match (
            Remote::of(&*task.source.store),
            Remote::of(&*task.target.store),
        ) {
            (Some(source), None) if is_far(&task.source) => source.prepare(Flow::Fetch),
            (None, Some(target)) if is_far(&task.target) => target.prepare(Flow::Deliver),
            _ => {}
        }
    }

    fn find(&self, tasks: &[CopyTask]) {
        for task in tasks {
            match plan::find(self, task) {
                Err(Error::Canceled) if self.is_vain(&task.source, &task.target) => {}
                Err(error) => self.failed(&task.source, &task.target, error),
                Ok(()) => {}
            }
        }
        self.tell(&CopyEvent::Found {
            files: 0,
            bytes: 0,
            complete: tasks.iter().all(|task| task.source.passage().is_none()),
        });
        self.small.close();
        self.large.close();
    }

    fn move_large(&self) {
        while let Some((item, turn)) = self.next_large() {
            match file::copy(self, &item, &turn) {
                Ok(outcome) => self.done(outcome),
                Err(error) => self.failed(&item.source, &item.target, error),
            }
        }
    }

    fn move_small(&self) {
        loop {
            while let Some(item) = self.next(&self.small) {
                if let Some((item, error)) = small::copy(self, item)
                    && self.leave_to_others(item, error)
                {
                    return;
                }
            }
            // Who went may have left something behind in the last moment.
            let is_last = self.movers.fetch_sub(1, SeqCst) == 1;
            if !is_last || self.options.cancel.is_canceled() || self.small.is_empty() {
                return;
            }
            self.movers.fetch_add(1, SeqCst);
        }
    }

    /// Where there is no conversation for one more, fewer do the work; tells whether
    /// to go. The last one tries again, and in the end gives up.
    fn leave_to_others(&self, item: CopyItem, error: Error) -> bool {
        let others_stay = |movers: usize| (movers > 1).then(|| movers - 1);
        // First, so that the last of the others finds it.
        self.small.put_back(item);
        if self
            .movers
            .fetch_update(SeqCst, SeqCst, others_stay)
            .is_ok()
        {
            tracing::info!(%error, "no further conversation: fewer files at once");
            return true;
        }
        if let QueueTake::Item(item) = self.small.take(Duration::ZERO, |_| true) {
            small::failed(self, item, error);
        }
        false
    }

    fn next_large(&self) -> Option<(CopyItem, FileTurn<'_>)> {
        loop {
            if let Some(turn) = self.turns.take(TICK) {
                return self.next(&self.large).map(|item| (item, turn));
            }
            if self.options.cancel.is_canceled() {
                return None;
            }
        }
    }

    /// Waits for work; `None`: there is none left, or we were told to stop.
    fn next(&self, queue: &WorkQueue<CopyItem>) -> Option<CopyItem> {
        loop {
            if self.options.cancel.is_canceled() {
                queue.close();
                return None;
            }
            match queue.take(TICK, |_| true) {
                QueueTake::Item(item) if self.is_vain(&item.source, &item.target) => {
                    self.given_up()
                }
                QueueTake::Item(item) => return Some(item),
                QueueTake::NotNow => {}
                QueueTake::Closed => return None,
            }
        }
    }

    fn done(&self, outcome: CopyOutcome) {
        self.tell(&CopyEvent::Done(&outcome));
        let mut summary = self.summary();
        summary.files += 1;
        summary.bytes += outcome.bytes;
        summary.resumed_bytes += outcome.resumed_bytes;
        summary.reread_source_bytes += outcome.reread_source_bytes;
        summary.reread_target_bytes += outcome.reread_target_bytes;
        summary.in_place += u64::from(outcome.in_place);
        summary.streams = summary.streams.max(outcome.tuned.streams);
        summary.verified += u64::from(outcome.verified != Verified::SizeOnly);
    }

    /// Returns the cause of an error if the user has cancelled nothing.
    ///
    /// Threads of one transfer stop each other by `Canceled` when one of them
    /// fails. Should that be all that is left of the fault, it is still one.
    fn fault(&self, error: Error, place: &Place) -> Error {
        match error {
            Error::Canceled if !self.options.cancel.is_canceled() => Error::lost(
                place.url.to_string(),
                "moving data",
                std::io::ErrorKind::ConnectionAborted,
            ),
            error => error,
        }
    }

    /// Tells whether waiting can help. The credential may have been renewed meanwhile, and the next login uses the
    /// new one.
    fn fault_of(&self, error: &Error) -> Fault {
        match error.fault() {
            Fault::Lasting if error.is_of_our_proof() && is_renewed(&self.options.trust) => {
                Fault::Passing
            }
            fault => fault,
        }
    }

    /// Tells whether something need not be tried, since we can prove nothing any more, or nothing has room there.
    fn is_vain(&self, source: &Place, target: &Place) -> bool {
        let is_proved = |place: &Place| place.url.scheme() == Scheme::Gsiftp;
        self.is_full.load(SeqCst)
            || self.is_unproved.load(SeqCst) && (is_proved(source) || is_proved(target))
    }

    /// Counts a failed file whose cause was reported already.
    fn given_up(&self) {
        self.summary().failed += 1;
    }

    /// Says that a file is tried again, and counts that.
    fn tries_again(&self, source: &Place, target: &Place, error: &Error, tries: Tries) {
        self.tell(&CopyEvent::Failed {
            source,
            target,
            error,
            again: Some(tries),
        });
        self.summary().faults += 1;
    }

    fn failed(&self, source: &Place, target: &Place, error: Error) {
        let error = self.fault(error, target);
        if matches!(error, Error::Canceled) {
            return; // told once, for all
        }
        if error.is_of_our_proof() && self.is_unproved.swap(true, SeqCst) {
            return self.given_up();
        }
        // A file that is too large for its file system says nothing of others.
        let is_full = matches!(&error, Error::NoSpace { said, .. } if said != TOO_LARGE);
        if is_full && self.is_full.swap(true, SeqCst) {
            return self.given_up();
        }
        self.tell(&CopyEvent::Failed {
            source,
            target,
            error: &error,
            again: None,
        });
        let mut summary = self.summary();
        summary.failed += 1;
        if summary.errors.len() < ERRORS_MAX {
            summary.errors.push(error);
        }
    }

    fn skipped(&self, item: &CopyItem) {
        let (source, target) = (&item.source, &item.target);
        self.tell(&CopyEvent::Skipped {
            source,
            target,
            bytes: item.stat.size,
        });
        self.summary().skipped += 1;
    }

    fn moved(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Relaxed);
        self.tell(&CopyEvent::Moved { bytes });
    }

    fn tell(&self, event: &CopyEvent<'_>) {
        (self.on)(event);
    }

    fn undressed(&self) -> MutexGuard<'_, Vec<(Place, u32)>> {
        self.undressed.lock()
    }

    fn summary(&self) -> MutexGuard<'_, Summary> {
        self.summary.lock()
    }

    /// Waits until the rate allows that many more bytes.
    fn pace(&self, bytes: u64) -> Result<()> {
        let Some(rate) = self.options.bytes_per_s else {
            return Ok(());
        };
        let takes = Duration::from_secs_f64(bytes as f64 / rate.get() as f64);
        let until = {
            let mut through_at = self.through_at.lock();
            *through_at = (*through_at).max(Instant::now()) + takes;
            *through_at
        };
        self.pause(until.saturating_duration_since(Instant::now()))
    }

    /// Waits before another try; fails if told to stop meanwhile.
    fn pause(&self, pause: Duration) -> Result<()> {
        use std::os::fd::AsFd;
        let until = Instant::now() + pause;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            self.options.cancel.check()?;
            godwit_sys::wait_readable([self.options.cancel.as_fd()], left)
                .map_err(|cause| Error::system("a pause", cause))?;
        }
        self.options.cancel.check()
    }
}

/// A server farther away than this gets more files and streams in flight.
const FAR: Duration = Duration::from_millis(3);
const NEAR_FILES: usize = 2;
const FAR_FILES: usize = 4;
/// Each connection begins with ten segments, so the more, the sooner all of them
/// together fill the way.
const FAR_FILES_OF_OURS: usize = 12;
/// Large files have many streams each.
const LARGE_FILES: usize = 2;
const LARGE_FILES_FAR: usize = 4;
/// From the first word about a file to its bytes at full speed: a connection that has
/// rested begins with ten segments, and doubles them with each round trip.
const LEAD_TRIPS: u32 = 12;
const TICK: Duration = Duration::from_millis(200);
/// Errors kept in a summary; all of them were told as events.
const ERRORS_MAX: usize = 100;
