//! Appends that are executed once, however often they are requested.
//!
//! A writer numbers its appends. An append first writes its intent to the file's ledger ([`ledger`](super::ledger))
//! and syncs. Then the bytes are written and synced, and the ledger is marked. The next writer first checks the
//! append before its own: complete bytes count, incomplete ones are cut off. Requests that wait for one file are
//! served together, so that many share two syncs.

use super::{
    DirInner,
    ledger::{AppendIntent, AppendWriter, HASH_BYTES, Ledger, TURNS_MAX, WriterTurn},
    now,
    place::FilePlace,
    record::blake3_of,
    regular, stat, wrong,
};
use crate::{
    BlockWriter, Checks, Error, Expected, Finished, LocalFile, Result, SMALL_BYTES, Sink,
    SmallWrite, Write, WriteMode, crash,
    landed::{BlockHashes, LandedRanges},
};
use godwit_core::{Algorithm, Block, Chain, Digest, Extents};
use godwit_sys::{self as sys, Attributes, Meta, OpenMode};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::File,
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

/// Starts an append that has a number. Nothing is written before it is finished.
pub(super) fn begin(
    dir: &Arc<DirInner>,
    path: &Path,
    write: &Write<'_>,
    (writer, seq): (u64, u64),
) -> Result<Box<dyn Sink>> {
    if write.size.is_some_and(|size| size > SMALL_BYTES) {
        return Err(Error::too_long_to_append(SMALL_BYTES));
    }
    let place = dir.place_of_file(path)?;
    match &place.old {
        Some(old) => {
            regular(path, old)?;
            // A user without the right to write is refused before the bytes arrive.
            let opened = place.folder.open(&place.name, OpenMode::Append, 0);
            opened.map_err(|e| wrong(path, e))?;
        }
        None => of_no_file(path, writer, seq)?,
    }
    Ok(Box::new(AppendSink {
        dir: Arc::clone(dir),
        path: path.into(),
        writer,
        seq,
        mode: write.mode,
        checks: write.checks,
        draft: Mutex::new(AppendDraft {
            bytes: Vec::new(),
            landed: LandedRanges::new(write.checks, write.size),
        }),
    }))
}

/// A file that is not there has had no appends.
fn of_no_file(path: &Path, writer: u64, seq: u64) -> Result<()> {
    match seq {
        1 => Ok(()),
        seq => Err(Error::out_of_turn(path, writer, seq, 1_u64)),
    }
}

/// One append under way, in memory.
struct AppendSink {
    dir: Arc<DirInner>,
    path: PathBuf,
    writer: u64,
    seq: u64,
    mode: Option<u32>,
    checks: Checks,
    draft: Mutex<AppendDraft>,
}

struct AppendDraft {
    bytes: Vec<u8>,
    landed: LandedRanges,
}

impl AppendSink {}

impl BlockWriter for AppendSink {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let end = block.offset.checked_add(block.bytes.len() as u64);
        let end = end
            .filter(|&end| end <= SMALL_BYTES)
            .ok_or_else(|| Error::too_long_to_append(SMALL_BYTES))?;
        let hashed = BlockHashes::of(block, self.checks);
        let mut draft = self.draft.lock();
        let (start, end) = (block.offset as usize, end as usize); // bounded above
        if draft.bytes.len() < end {
            draft.bytes.resize(end, 0);
        }
        draft.bytes[start..end].copy_from_slice(block.bytes);
        draft.landed.begin(block.range());
        draft.landed.landed(block.range(), hashed);
        Ok(())
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.draft.lock().landed.said(leaf, chain);
        Ok(())
    }
}

impl Sink for AppendSink {
    fn done(&self) -> Extents {
        self.draft.lock().landed.done().clone()
    }

    fn commit(&self) -> Result<Extents> {
        Ok(Extents::new()) // It is small, and sent again whole.
    }

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        let this = *self;
        let AppendDraft { bytes, mut landed } = this.draft.into_inner();
        let read = |at: u64, into: &mut [u8]| {
            let at = at as usize; // of what is in memory
            into.copy_from_slice(&bytes[at..at + into.len()]);
            Ok(())
        };
        let finished = landed.settle(&this.path, whole, &read)?;
        let part = AppendPart::of(&this.dir, (this.writer, this.seq), bytes);
        let (mut told, meta) = this.dir.append(&this.path, this.mode, vec![part])?;
        told.remove(0)?;
        if whole.mode.is_some() || whole.mtime.is_some() {
            let attributes = Attributes {
                mode: whole.mode,
                mtime: whole.mtime,
                ..Attributes::default()
            };
            let dressed = this.dir.root.dress(&this.path, &attributes);
            dressed.map_err(|e| wrong(&this.path, e))?;
        }
        Ok(Finished {
            version: stat(&meta, None).version(now()),
            in_place: true,
            ..finished
        })
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    crate::has!(self, SinkFacets: resume);
}

impl crate::Resume for AppendSink {
    fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> {
        self.draft.lock().landed.newly_whole(count_max)
    }
}

/// Small files that follow each other and are all appended to the same file, each with a number.
pub(super) struct AppendRun {
    parts: Vec<SmallWrite>,
    /// The part behind them, which is in another batch.
    pub(super) behind: Option<SmallWrite>,
}

impl AppendRun {
    /// Takes as many as there are. `first` has a number.
    pub(super) fn of(first: SmallWrite, next: &mut dyn FnMut() -> Option<SmallWrite>) -> Self {
        let (mut bytes, mut writers) = (first.bytes.len(), HashSet::from([writer_of(&first)]));
        let mut parts = vec![first];
        while parts.len() < PARTS_MAX {
            let Some(given) = next() else { break };
            bytes += given.bytes.len();
            let writer = writer_of(&given);
            let fits =
                bytes <= BYTES_MAX && (writers.len() < TURNS_MAX || writers.contains(&writer));
            if !fits || writer.is_none() || given.path != parts[0].path {
                return Self {
                    parts,
                    behind: Some(given),
                };
            }
            writers.insert(writer);
            parts.push(given);
        }
        Self {
            parts,
            behind: None,
        }
    }

    /// Appends the files, and reports the result of each.
    pub(super) fn write(
        self,
        dir: &Arc<DirInner>,
        each: &mut dyn FnMut(PathBuf, Result<Finished>),
    ) {
        if let [_, _, ..] = &self.parts[..]
            && let Ok(finished) = write_all(dir, &self.parts)
        {
            let told = self.parts.into_iter().zip(finished);
            return told.for_each(|(given, finished)| each(given.path, finished));
        }
        // Alone, each has an error of its own.
        for given in self.parts {
            let finished = write_all(dir, std::slice::from_ref(&given));
            let finished = finished.and_then(|mut finished| finished.remove(0));
            each(given.path, finished);
        }
    }
}

/// Returns the number of the writer of an append that has one.
pub(super) fn writer_of(given: &SmallWrite) -> Option<u64> {
    match given.how {
        WriteMode::Append { writer, seq } if seq > 0 => Some(writer),
        _ => None,
    }
}

fn write_all(dir: &Arc<DirInner>, run: &[SmallWrite]) -> Result<Vec<Result<Finished>>> {
    let part = |given: &SmallWrite| match given.how {
        _ if given.bytes.len() as u64 > SMALL_BYTES => Err(Error::too_long_to_append(SMALL_BYTES)),
        WriteMode::Append { writer, seq } => {
            Ok(AppendPart::of(dir, (writer, seq), given.bytes.clone()))
        }
        _ => Err(Error::unsupported("appending it", "it has no number")),
    };
    let parts = run.iter().map(part).collect::<Result<Vec<AppendPart>>>()?;
    let (path, mode) = (&run[0].path, run[0].mode);
    let (told, meta) = dir.append(path, mode, parts)?;
    let last = run.last().and_then(|given| given.mtime);
    if let Some(mtime) = last {
        let attributes = Attributes {
            mtime: Some(mtime),
            ..Attributes::default()
        };
        dir.root
            .dress(path, &attributes)
            .map_err(|e| wrong(path, e))?;
    }
    let version = stat(&meta, None).version(now());
    let finished = |(told, given): (Result<()>, &SmallWrite)| {
        told.map(|()| Finished {
            version: version.clone(),
            digests: vec![Digest::of(Algorithm::Blake3, &given.bytes)],
            in_place: true,
            ..Finished::default()
        })
    };
    Ok(told.into_iter().zip(run).map(finished).collect())
}

/// One append.
struct AppendPart {
    key: AppendWriter,
    writer: u64,
    seq: u64,
    bytes: Vec<u8>,
    /// The first bytes of their hash.
    hash: [u8; HASH_BYTES],
}

impl AppendPart {
    fn of(dir: &DirInner, (writer, seq): (u64, u64), bytes: Vec<u8>) -> Self {
        let hash = blake3_of(&bytes)[..HASH_BYTES].try_into();
        Self {
            key: AppendWriter::of(&dir.identity, writer),
            writer,
            seq,
            hash: hash.expect("24 of 32 bytes"),
            bytes,
        }
    }
}

impl DirInner {
    /// Appends the parts, each once: one that is in the file already counts as done. Returns the result of each, and
    /// the attributes of the file.
    fn append(
        &self,
        path: &Path,
        mode: Option<u32>,
        parts: Vec<AppendPart>,
    ) -> Result<(Vec<Result<()>>, Meta)> {
        let wait = Arc::new(WaitingAppend {
            path: path.into(),
            parts,
            told: Mutex::default(),
        });
        for _ in 0..RACES_MAX {
            let opened = AppendFile::of(self, path, mode, &wait.parts)?;
            let queue = AppendQueue::of(&opened.meta);
            if let AppendResult::Done(told, meta) = queue.append(&opened, &wait)? {
                return Ok((told, meta));
            }
        }
        Err(Error::changed(
            path,
            "its name leads elsewhere again and again",
        ))
    }
}

/// A file that is appended to, open, and where it was then.
struct AppendFile {
    path: PathBuf,
    place: FilePlace,
    file: File,
    meta: Meta,
}

impl AppendFile {
    fn of(dir: &DirInner, path: &Path, mode: Option<u32>, parts: &[AppendPart]) -> Result<Self> {
        let place = dir.place_of_file(path)?;
        match &place.old {
            Some(old) => regular(path, old)?,
            None if parts.iter().any(|part| part.seq == 1) => {}
            None => of_no_file(path, parts[0].writer, parts[0].seq)?,
        }
        let failed = |e| wrong(path, e);
        let file = place
            .folder
            .open(&place.name, OpenMode::Append, mode.unwrap_or(0o666));
        let file = file.map_err(failed)?;
        if place.old.is_none()
            && let Some(mode) = mode
        {
            let attributes = Attributes {
                mode: Some(mode),
                ..Attributes::default()
            };
            let dressed = place.folder.dress(&place.name, &file, &attributes);
            dressed.map_err(failed)?;
        }
        crash::point("append.file-made");
        let meta = sys::meta(&file).map_err(failed)?;
        regular(path, &meta)?;
        Ok(Self {
            path: path.into(),
            place,
            file,
            meta,
        })
    }

    /// Appends the parts of all waiting requests, and returns the result of each.
    fn append_all(&self, waits: &[Arc<WaitingAppend>]) -> Result<Vec<AppendResult>> {
        let failed = |e| self.failed(e);
        let _alone = AppendLock::with(&self.file).map_err(failed)?;
        if !self.is_named().map_err(failed)? {
            return Ok(waits.iter().map(|_| AppendResult::Moved).collect());
        }
        let mut ledger = self.ledger().map_err(|e| self.of_ledger(e))?;
        if let Some(ledger) = &mut ledger {
            settle(&self.place, &self.file, ledger).map_err(failed)?;
        }
        let plan = AppendPlan::of(waits, ledger.as_ref()).map_err(failed)?;
        if !plan.turns.is_empty() {
            let mut ledger = match ledger {
                Some(ledger) => ledger,
                None => self.begin_ledger().map_err(|e| self.of_ledger(e))?,
            };
            self.put(&plan, &mut ledger).map_err(failed)?;
        }
        let meta = sys::meta(&self.file).map_err(failed)?;
        let told = plan.told.into_iter();
        Ok(told.map(|told| AppendResult::Done(told, meta)).collect())
    }

    fn is_named(&self) -> io::Result<bool> {
        match self.place.folder.meta(&self.place.name) {
            Ok(named) => Ok(key_of(&named) == key_of(&self.meta)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn ledger(&self) -> io::Result<Option<Ledger>> {
        Ledger::find(&self.place.folder, &self.file, &self.meta)
    }

    fn begin_ledger(&self) -> io::Result<Ledger> {
        let FilePlace { folder, name, .. } = &self.place;
        Ledger::begin(folder, &self.file, &self.meta, name)
    }

    /// Writes the planned bytes: the ledger has the intent before, and its completion after.
    fn put(&self, plan: &AppendPlan, ledger: &mut Ledger) -> io::Result<()> {
        let intent = ledger.intend(AppendIntent {
            count: 0,
            offset: sys::meta(&self.file)?.size,
            len: plan.bytes.len() as u64,
            digest: blake3_of(&plan.bytes),
            turns: plan.turns.clone(),
        })?;
        // Reserves the room first, so that readers never see bytes that are cut off again.
        let room = sys::reserve_blocks(&self.file, intent.offset, intent.len);
        let written = room.and_then(|()| self.write(&plan.bytes)).and_then(|at| {
            crash::point("append.bytes-written");
            crash::sync(&self.file)?;
            Ok(at)
        });
        let at = match written {
            Ok(at) => at,
            Err(error) => {
                // No writer was told of success. If the bytes cannot be cut off now, the next writer does.
                let _ = take_back(&self.file, ledger, &intent);
                return Err(error);
            }
        };
        crash::point("append.synced");
        ledger.note(&intent)?;
        if at != intent.offset {
            // A program that takes no lock wrote in between: the intent does not say where our bytes are.
            tracing::warn!(path = %self.path.display(), at, "others append to it past godwit");
            ledger.sync()?;
        }
        crash::point("append.noted");
        Ok(())
    }

    /// Writes behind the end, and returns where that was.
    fn write(&self, bytes: &[u8]) -> io::Result<u64> {
        let mut file = &self.file;
        file.write_all(bytes)?;
        let end = file.stream_position()?;
        Ok(end.saturating_sub(bytes.len() as u64))
    }

    fn failed(&self, error: io::Error) -> Error {
        failed(&self.path, error)
    }

    fn of_ledger(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                let closed =
                    "what is appended is recorded beside it, and nothing can be written there";
                Error::denied(
                    self.path.clone(),
                    error.get_ref().map_or(closed.into(), ToString::to_string),
                )
            }
            _ => self.failed(error),
        }
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::TimedOut => Error::busy(
            "this machine",
            format!("another program has {} locked", path.display()),
        ),
        _ => wrong(path, error),
    }
}

/// Completes or cuts off every append that was interrupted.
fn settle(place: &FilePlace, file: &File, ledger: &mut Ledger) -> io::Result<()> {
    for intent in ledger.outstanding()? {
        if holds(place, file, &intent)? {
            // The writer may have died before the bytes were durable.
            crash::sync(file)?;
            ledger.note(&intent)?;
        } else {
            take_back(file, ledger, &intent)?;
        }
        crash::point("append.settled");
    }
    Ok(())
}

/// Tells whether the file has all bytes of an intent at their offset.
fn holds(place: &FilePlace, file: &File, intent: &AppendIntent) -> io::Result<bool> {
    let meta = sys::meta(file)?;
    let end = intent.offset.checked_add(intent.len);
    if end.is_none_or(|end| end > meta.size) || intent.len > BYTES_MAX as u64 {
        return Ok(false);
    }
    // The open descriptor is for writing only.
    let file = place.folder.open(&place.name, OpenMode::Read, 0)?;
    if key_of(&sys::meta(&file)?) != key_of(&meta) {
        return Ok(false);
    }
    let mut bytes = vec![0; intent.len as usize]; // bounded above
    let lying = LocalFile {
        path: &place.path,
        file: &file,
    };
    let read = lying.fill(intent.offset, &mut bytes);
    Ok(read.is_ok() && blake3_of(&bytes) == intent.digest)
}

/// Cuts off the bytes of an intent, if no other bytes can be there, and removes the intent.
fn take_back(file: &File, ledger: &mut Ledger, intent: &AppendIntent) -> io::Result<()> {
    let size = sys::meta(file)?.size;
    let end = intent.offset.saturating_add(intent.len);
    if intent.offset < size && size <= end {
        file.set_len(intent.offset)?;
        crash::sync(file)?;
    }
    ledger.forget(intent)
}

/// Writes behind the end of a file for a writer that does not number. No numbered append runs in between, and none
/// that was begun is joined with these bytes.
pub(super) fn between<T>(
    place: &FilePlace,
    file: &File,
    write: impl FnOnce() -> io::Result<T>,
) -> Result<T> {
    let written = || {
        let meta = sys::meta(file)?;
        let queue = AppendQueue::of(&meta);
        let _turn = queue.turn.lock();
        let _alone = AppendLock::with(file)?;
        if let Some(mut ledger) = Ledger::find(&place.folder, file, &meta)? {
            settle(place, file, &mut ledger)?;
        }
        write()
    };
    written().map_err(|e| failed(&place.path, e))
}

/// The batch: the bytes to write, and the result of each request.
struct AppendPlan {
    bytes: Vec<u8>,
    /// The last append of each writer in the batch.
    turns: Vec<WriterTurn>,
    told: Vec<Vec<Result<()>>>,
}

impl AppendPlan {
    fn of(waits: &[Arc<WaitingAppend>], ledger: Option<&Ledger>) -> io::Result<Self> {
        let mut plan = Self {
            bytes: Vec::new(),
            turns: Vec::new(),
            told: Vec::new(),
        };
        let mut known = HashMap::new();
        for wait in waits {
            let mut told = Vec::new();
            for part in &wait.parts {
                let last = match known.get(&part.key) {
                    Some(&last) => last,
                    None => ledger.map_or(Ok(None), |ledger| ledger.turn(part.key))?,
                };
                let verdict = judge(&wait.path, part, last);
                if let Ok(AppendVerdict::Append) = verdict {
                    let turn = WriterTurn {
                        writer: part.key,
                        seq: part.seq,
                        hash: part.hash,
                    };
                    known.insert(part.key, Some(turn));
                    plan.bytes.extend_from_slice(&part.bytes);
                    plan.turns.retain(|turn| turn.writer != part.key);
                    plan.turns.push(turn);
                }
                told.push(verdict.map(drop));
            }
            plan.told.push(told);
        }
        Ok(plan)
    }
}

enum AppendVerdict {
    Append,
    IsThere,
}

/// Decides about one append, by its writer's last one.
fn judge(path: &Path, part: &AppendPart, last: Option<WriterTurn>) -> Result<AppendVerdict> {
    let is_at = last.map_or(0, |turn| turn.seq);
    let is_other = last.is_some_and(|turn| turn.seq == part.seq && turn.hash != part.hash);
    if is_other {
        let (writer, seq) = (part.writer, part.seq);
        return Err(Error::changed(
            path,
            format!("append {seq} of writer {writer} is there, with other bytes"),
        ));
    }
    match part.seq {
        seq if seq <= is_at => Ok(AppendVerdict::IsThere),
        seq if seq == is_at + 1 => Ok(AppendVerdict::Append),
        seq => Err(Error::out_of_turn(path, part.writer, seq, is_at + 1)),
    }
}

/// The requests of this process for one file, for all users.
#[derive(Default)]
struct AppendQueue {
    waiting: Mutex<VecDeque<Arc<WaitingAppend>>>,
    /// The holder of this lock writes for all that wait.
    turn: Mutex<()>,
}

/// A request that waits.
struct WaitingAppend {
    path: PathBuf,
    parts: Vec<AppendPart>,
    told: Mutex<Option<AppendResult>>,
}

enum AppendResult {
    Done(Vec<Result<()>>, Meta),
    /// The file has not this name any more.
    Moved,
}

impl WaitingAppend {
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    fn writers(&self) -> impl Iterator<Item = AppendWriter> {
        self.parts.iter().map(|part| part.key)
    }
}

impl AppendQueue {
    fn of(meta: &Meta) -> Arc<Self> {
        type Queues = HashMap<(u64, u64), Weak<AppendQueue>>;
        static QUEUES: Mutex<Option<Queues>> = Mutex::new(None);
        let mut queues = QUEUES.lock();
        let queues = queues.get_or_insert_default();
        if let Some(queue) = queues.get(&key_of(meta)).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= QUEUES_KEPT {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::default();
        queues.insert(key_of(meta), Arc::downgrade(&queue));
        queue
    }

    /// Waits until another thread has appended the parts, or appends them, and those of others.
    fn append(&self, opened: &AppendFile, wait: &Arc<WaitingAppend>) -> Result<AppendResult> {
        self.waiting.lock().push_back(Arc::clone(wait));
        loop {
            let _turn = self.turn.lock();
            if let Some(told) = wait.told.lock().take() {
                return Ok(told);
            }
            let batch = self.next_batch();
            let is_last = batch.iter().any(|one| Arc::ptr_eq(one, wait));
            match opened.append_all(&batch) {
                Ok(told) if !batch.is_empty() => {
                    let each = batch.iter().zip(told);
                    each.for_each(|(one, told)| *one.told.lock() = Some(told));
                }
                // Others may have rights that this user lacks, and the thread that was to write for us may be gone.
                done => {
                    let others = batch.iter().filter(|one| !Arc::ptr_eq(one, wait));
                    let mut waiting = self.waiting.lock();
                    others
                        .rev()
                        .for_each(|one| waiting.push_front(Arc::clone(one)));
                    waiting.retain(|one| !Arc::ptr_eq(one, wait));
                    drop(waiting);
                    if is_last && batch.len() == 1 {
                        done?;
                    }
                    let alone = opened.append_all(std::slice::from_ref(wait))?;
                    return Ok(alone.into_iter().next().unwrap_or(AppendResult::Moved));
                }
            }
        }
    }

    /// Takes as many requests as fit into one batch, in their order.
    fn next_batch(&self) -> Vec<Arc<WaitingAppend>> {
        let mut waiting = self.waiting.lock();
        let (mut batch, mut bytes, mut writers) = (Vec::new(), 0, HashSet::new());
        while let Some(next) = waiting.front() {
            bytes += next.len();
            writers.extend(next.writers());
            if !batch.is_empty() && (bytes > BYTES_MAX || writers.len() > TURNS_MAX) {
                break;
            }
            batch.extend(waiting.pop_front());
        }
        batch
    }
}

fn key_of(meta: &Meta) -> (u64, u64) {
    (meta.device, meta.inode)
}

/// A file that no other process appends to in our way, as long as this lasts.
struct AppendLock<'a>(&'a File);

impl<'a> AppendLock<'a> {
    fn with(file: &'a File) -> io::Result<Self> {
        lock(file)?;
        Ok(Self(file))
    }
}

/// Waits for the lock of a file. `TimedOut` if that takes too long.
pub(super) fn lock(file: &File) -> io::Result<()> {
    let (patience, mut pause) = (Instant::now() + PATIENCE, PAUSE_MIN);
    while !sys::try_lock(file)? {
        if Instant::now() > patience {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Ok(())
}

impl Drop for AppendLock<'_> {
    fn drop(&mut self) {
        // If not now, then when it is closed.
        let _ = sys::unlock(self.0);
    }
}

/// The most bytes of one write; after a crash that many are read again.
const BYTES_MAX: usize = 8 << 20;

/// The most appends of one batch.
const PARTS_MAX: usize = 4096;

/// An append takes milliseconds. A longer wait means a hung disk, or a file that another program
/// has locked.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// How often a file may be replaced under us before we give up.
const RACES_MAX: usize = 16;

/// With more queues than this, unused ones are removed.
const QUEUES_KEPT: usize = 1024;
