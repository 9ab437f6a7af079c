//! Logs of pieces that wait for their target: what is in them, what was sent, and what is on record.

use crate::{
    Error, Nth, Result, Who,
    disk::{
        frames::{
            Framed, HEAD_BYTES, MARK_BYTES, PIECE_MAX, Whole, frame, mark, marks_before,
            next_whole, read_frame, whole_end,
        },
        quota::Room,
        rows::LogRow,
    },
    id::Id,
    plan::state::Retry,
};
use godwit_core::Url;
use godwit_sys::crash;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Pieces that wait for their target, on disk and, the last of them, in memory.
pub(crate) struct Log {
    pub id: Id,
    pub number: u64,
    pub url: Url,
    pub who: Who,
    /// The number of the writer at the target; another one after the target's file was replaced.
    pub writer: AtomicU64,
    pub path: PathBuf,
    pub state: Mutex<State>,
    pub changed: Condvar,
}

/// The state of a log, behind its lock.
pub(crate) struct State {
    pub file: File,
    /// The end of the whole frames in the file.
    pub end: u64,
    pub ahead: Ahead,
    pub cursor: Cursor,
    pub room: Reserved,
    /// The last piece of each writer that numbers its pieces.
    pub said: BTreeMap<u64, u64>,
    /// Where the last piece of each session that waits for its target ends.
    sessions: BTreeMap<String, u64>,
    pub synced: u64,
    /// How often all of it was taken out, as its target had it.
    pub emptied: u64,
    /// How many writers append.
    pub users: u32,
    /// When a piece arrived the last time that its writer may send again.
    pub asked: Option<Instant>,
    pub phase: Phase,
    /// A caller waits for room that only its end, or its emptying, may give.
    pub is_short: bool,
    /// A thread sends from it.
    pub is_in_flight: bool,
    pub trouble: Trouble,
}

/// Whether a log takes pieces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Open,
    /// The log takes nothing more: numbers may have been lost.
    Closed,
    /// Its row and its file are about to be removed.
    Gone,
}

/// Pieces that are in the file, and small enough in sum to be kept in memory.
#[derive(Default)]
pub(crate) struct Ahead {
    pub pieces: VecDeque<Framed>,
    bytes: usize,
    /// The length of the pieces with their frames.
    len: u64,
    /// Where the first of them begins; the pieces have everything from there on.
    from: u64,
}

/// How far the target is.
#[derive(Default)]
pub(crate) struct Cursor {
    /// The number of the first piece that the target has not confirmed.
    pub seq: u64,
    /// Where that piece begins.
    pub offset: u64,
    /// How many bytes behind `offset` are frames and marks, and no line.
    framing: u64,
    /// The end of the batch that is, or was, sent under `seq`, if that is behind `offset`.
    pub upto: u64,
    /// `upto` as it is persisted.
    pub fixed: u64,
}

/// Bytes of the quota.
#[derive(Default)]
pub(crate) struct Reserved {
    pub reserved: u64,
    /// Those of them that writers are about to write.
    pub promised: u64,
}

/// Why nothing is sent.
#[derive(Default)]
pub(crate) struct Trouble {
    /// The reason why it is on hold.
    pub on_hold: Option<String>,
    /// Damaged frames are skipped.
    passes_over: bool,
    pub retry: Retry,
    /// The first failure, in seconds since the epoch.
    pub since: Option<u64>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.id, self.url)
    }
}

/// All logs of a depot, and who waits for something to send.
pub(crate) struct Logs {
    pub folder: PathBuf,
    all: Mutex<BTreeMap<u64, Arc<Log>>>,
    /// Rows that cannot be read: id, URL as the row has it, error.
    unreadable: Mutex<Vec<(Id, String, Error)>>,
    /// The last piece of each writer that numbers its pieces.
    pub taken: Mutex<HashMap<u64, u64>>,
    pub due: Condvar,
}

/// Removes files without a row: a node was killed after it removed the row, or before it wrote one.
fn remove_forgotten(folder: &Path, rows: &[LogRow]) -> Result<()> {
    let on_record: HashSet<Id> = rows.iter().map(|row| row.id).collect();
    for name in fs::read_dir(folder).map_err(Error::disk(folder))? {
        let name = name.map_err(Error::disk(folder))?.file_name();
        let id = name.to_str().and_then(|name| name.parse::<Id>().ok());
        if id.is_some_and(|id| !on_record.contains(&id)) {
            let path = folder.join(name);
            fs::remove_file(&path).map_err(Error::disk(path))?;
        }
    }
    Ok(())
}

impl Logs {
    /// Opens the logs that have rows. They take no more pieces.
    pub(crate) fn open(root: &Path, (rows, cut): (Vec<LogRow>, u64), room: &Room) -> Result<Self> {
        let folder = root.join("appends");
        if !folder.is_dir() {
            let made = DirBuilder::new().mode(0o700).create(&folder);
            made.map_err(Error::disk(&folder))?;
        }
        let (mut all, mut taken) = (BTreeMap::new(), HashMap::new());
        let mut unreadable = Vec::new();
        remove_forgotten(&folder, &rows)?;
        for row in rows {
            let path = folder.join(row.id.to_string());
            match Log::again(&row, &path, row.number >> 32 > cut, &mut taken) {
                Ok(log) => {
                    room.count(log.state.lock().room.reserved);
                    all.insert(row.number, Arc::new(log));
                }
                Err(error) => {
                    tracing::error!(%error, url = row.url, "what was to be appended cannot be read");
                    unreadable.push((row.id, row.url, error));
                }
            }
        }
        Ok(Self {
            folder,
            unreadable: Mutex::new(unreadable),
            all: Mutex::new(all),
            taken: Mutex::new(taken),
            due: Condvar::new(),
        })
    }

    pub(crate) fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Log>>> {
        self.all.lock()
    }

    /// Returns the logs with pending pieces.
    pub(crate) fn pending(&self) -> Vec<Arc<Log>> {
        let all: Vec<_> = self.all().values().cloned().collect();
        all.into_iter()
            .filter(|log| log.state.lock().has_pending())
            .collect()
    }

    /// Returns the rows that cannot be read: id, URL as the row has it, error, path of the bytes.
    pub(crate) fn unreadable(&self) -> Vec<(Id, String, Error, PathBuf)> {
        let all = self.unreadable.lock();
        let with_path = all.iter().map(|(id, url, error)| {
            let path = self.folder.join(id.to_string());
            (*id, url.clone(), error.clone(), path)
        });
        with_path.collect()
    }

    /// Takes a row that cannot be read, to be removed. Returns the path of its bytes.
    pub(crate) fn take_unreadable(&self, name: &str) -> Option<(Id, PathBuf)> {
        let mut all = self.unreadable.lock();
        let at = all.iter().position(|(id, ..)| id.to_string() == name)?;
        let (id, ..) = all.swap_remove(at);
        Some((id, self.folder.join(id.to_string())))
    }

    /// Asks for room: logs whose target has all pieces are emptied.
    pub(crate) fn are_short(&self) {
        for log in self.all().values() {
            log.state.lock().is_short = true;
        }
        self.nudge();
    }

    /// Returns the bytes of the quota that logs take, by server.
    pub(crate) fn reserved(&self) -> Vec<(String, u64)> {
        let all: Vec<_> = self.all().values().cloned().collect();
        let of = |log: &Arc<Log>| (log.url.host_port(), log.state.lock().room.reserved);
        all.iter().map(of).collect()
    }

    /// Sends a log on hold, past its damaged frames. Returns false if no log has that id or name.
    pub(crate) fn release(&self, name: &str) -> bool {
        for log in self.named(name) {
            log.state.lock().trouble.passes_over = true;
        }
        self.retry(name)
    }

    /// Tries a log again. Returns false if no log has that id or name.
    pub(crate) fn retry(&self, name: &str) -> bool {
        let logs = self.named(name);
        for log in &logs {
            let mut state = log.state.lock();
            state.trouble.on_hold = None;
            state.trouble.retry = Retry {
                last: state.trouble.retry.last.take(),
                ..Retry::default()
            };
        }
        self.nudge();
        !logs.is_empty()
    }

    /// Drops the pieces of a log on hold. Returns false if no log has that id or name.
    pub(crate) fn discard(&self, name: &str) -> bool {
        let held = self.named(name).into_iter();
        let logs: Vec<_> = held
            .filter(|log| log.state.lock().trouble.on_hold.is_some())
            .collect();
        for log in &logs {
            let mut state = log.state.lock();
            (state.cursor.offset, state.cursor.framing) = (state.end, 0);
            state.trouble.on_hold = None;
            state.phase = Phase::Closed;
            drop(state);
            log.changed.notify_all();
        }
        self.nudge();
        !logs.is_empty()
    }

    fn named(&self, name: &str) -> Vec<Arc<Log>> {
        let id = name.parse().ok();
        let url = Url::from_argument(name).ok();
        let is_named = |log: &Arc<Log>| Some(log.id) == id || Some(&log.url) == url.as_ref();
        self.pending().into_iter().filter(is_named).collect()
    }

    /// Returns why an earlier log of the same file is on hold, if one is.
    pub(crate) fn held_before(&self, log: &Log) -> Option<String> {
        let all = self.all();
        let mut older = all.range(..log.number).map(|(_, older)| older);
        older.find_map(|older| match older.url == log.url {
            true => older.state.lock().trouble.on_hold.clone(),
            false => None,
        })
    }

    pub(crate) fn nudge(&self) {
        let _all = self.all();
        self.due.notify_all();
    }
}

impl Log {
    /// Restores a log from its row. `is_of_this_boot`: the machine has had power since it was begun.
    fn again(
        row: &LogRow,
        path: &Path,
        is_of_this_boot: bool,
        taken: &mut HashMap<u64, u64>,
    ) -> Result<Self> {
        let unread = |what: &str| Error::Records {
            path: path.into(),
            what: what.into(),
        };
        let url = Url::from_argument(&row.url).map_err(|bad| unread(&bad.to_string()))?;
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(Error::disk(path))?;
        let mut whole = Whole {
            marks: marks_before(&file, row.offset).map_err(Error::disk(path))?,
            framing: 0,
        };
        let mut end = whole_end(&file, row.offset, &mut whole).map_err(Error::disk(path))?;
        let size = file.metadata().map_err(Error::disk(path))?.len();
        // What was synced is whole on any disk that keeps what it has; else at most the last piece is torn, unless the
        // power went.
        let rest = next_whole(&file, end, size).map_err(Error::disk(path))?;
        let was_safe = row.upto.min(size) > end;
        let is_rotten = was_safe || (is_of_this_boot && rest.is_some());
        if is_rotten {
            tracing::error!(%url, at = end, bytes = size - end, "what was to be appended was damaged by this machine's disk, and is held from there on");
            let mut next = rest;
            while let Some(at) = next {
                let upto = whole_end(&file, at, &mut whole).map_err(Error::disk(path))?;
                next = next_whole(&file, upto, size).map_err(Error::disk(path))?;
            }
            end = size;
        }
        if size > end {
            let lost = size - end;
            tracing::warn!(%url, lost, "the last of what was to be appended was not whole and is cut off");
        }
        file.set_len(end).map_err(Error::disk(path))?;
        let mut state = State::of(file, end, row.seq, row.offset.min(end));
        state.room.reserved = end;
        state.cursor.framing = whole.framing;
        if !whole.marks.is_empty() {
            state.asked = Some(Instant::now());
        }
        for Nth { by, seq } in whole.marks {
            let last = taken.entry(by).or_default();
            *last = seq.max(*last);
            state.said.insert(by, *last);
        }
        state.sessions.insert(String::new(), end);
        state.phase = Phase::Closed;
        state.users = 0;
        state.cursor.upto = row.upto.min(end);
        state.cursor.fixed = state.cursor.upto;
        Ok(Self {
            id: row.id,
            number: row.number,
            url,
            who: Who {
                audience: row.audience.clone(),
                credential: (!row.credential.is_empty()).then(|| row.credential.clone().into()),
            },
            writer: AtomicU64::new(row.writer),
            path: path.into(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// Counts one more writer. Returns false if the log takes no more pieces.
    pub(crate) fn joins(&self) -> bool {
        let mut state = self.state.lock();
        let may = state.phase == Phase::Open;
        if may {
            state.users += 1;
        }
        may
    }

    pub(crate) fn row(&self) -> LogRow {
        self.row_of(&self.state.lock())
    }

    pub(crate) fn row_of(&self, state: &State) -> LogRow {
        let credential = self.who.credential.as_deref();
        LogRow {
            id: self.id,
            number: self.number,
            url: self.url.to_string(),
            audience: self.who.audience.clone(),
            credential: credential.map_or_else(String::new, |path| path.display().to_string()),
            writer: self.writer.load(Relaxed),
            seq: state.cursor.seq,
            offset: state.cursor.offset,
            upto: state.cursor.upto,
        }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// Returns the end of the last piece of a session; `None`: none is pending.
    pub(crate) fn upto_of(&self, session: &str) -> Option<Upto> {
        let state = self.state.lock();
        let end = *state.sessions.get(session)?;
        let emptied = state.emptied;
        (end > state.cursor.offset).then_some(Upto { emptied, end })
    }

    /// Returns its present end.
    pub(crate) fn upto(&self) -> Upto {
        self.state.lock().upto()
    }

    /// Returns the session of all pending pieces; empty: they are of several sessions.
    pub(crate) fn session(&self) -> String {
        let state = self.state.lock();
        let mut waiting = state
            .sessions
            .iter()
            .filter(|(_, end)| **end > state.cursor.offset);
        match (waiting.next(), waiting.next()) {
            (Some((session, _)), None) => session.clone(),
            _ => String::new(),
        }
    }

    /// Returns how many bytes of lines wait.
    pub(crate) fn pending(&self) -> u64 {
        let state = self.state.lock();
        (state.end - state.cursor.offset).saturating_sub(state.cursor.framing)
    }

    /// Returns the reason why nothing is sent, the number of failures, whether the log is on hold, and the last error.
    pub(crate) fn trouble(&self) -> (String, u32, bool, Option<Error>) {
        let state = self.state.lock();
        let why = match (&state.trouble.on_hold, &state.trouble.retry.last) {
            (Some(reason), _) => reason.clone(),
            (None, Some(error)) => error.reason(),
            (None, None) => String::new(),
        };
        let is_held = state.trouble.on_hold.is_some();
        (
            why,
            state.trouble.retry.tries,
            is_held,
            state.trouble.retry.last.clone(),
        )
    }

    pub(crate) fn add(&self, piece: &[u8], session: &str) -> Result<()> {
        let mut parts = piece.chunks(PIECE_MAX);
        parts.try_for_each(|part| self.add_one(part, None, session))
    }

    pub(crate) fn add_one(&self, part: &[u8], nth: Option<Nth>, session: &str) -> Result<()> {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Err(Error::Ending);
        }
        let mut bytes = nth.map(mark).unwrap_or_default();
        bytes.extend(frame(part));
        let at = state.end;
        let written = state.file.write_all_at(&bytes, at);
        written.map_err(Error::disk(&self.path))?;
        state.end += bytes.len() as u64;
        state.cursor.framing += (bytes.len() - part.len()) as u64;
        let end = state.end;
        match state.sessions.get_mut(session) {
            Some(last) => *last = end,
            None => drop(state.sessions.insert(session.into(), end)),
        }
        if let Some(Nth { by, seq }) = nth {
            state.asked = Some(Instant::now());
            state.said.insert(by, seq);
        }
        if state.ahead.bytes + part.len() <= AHEAD_MAX && state.ahead.reaches(at) {
            let (piece, len) = (part.to_vec(), bytes.len() as u64);
            state.ahead.push(Framed { piece, len });
        }
        Ok(())
    }

    pub(crate) fn commit(&self) -> Result<()> {
        let state = self.state.lock();
        let (upto, is_safe) = (state.upto(), state.synced >= state.end);
        let file = state.file.try_clone().map_err(Error::disk(&self.path))?;
        drop(state);
        if is_safe {
            return Ok(());
        }
        file.sync_data().map_err(Error::disk(&self.path))?;
        if let Some(folder) = self.path.parent() {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            synced.map_err(Error::disk(folder))?;
        }
        self.state.lock().note_durable(upto);
        Ok(())
    }

    /// Goes on as a new writer at the target.
    pub(crate) fn begin_anew(&self) {
        let mut state = self.state.lock();
        let next = self
            .writer
            .load(Relaxed)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            | 1;
        self.writer.store(next, Relaxed);
        state.cursor.seq = 1;
        state.cursor.fixed = 0;
        // Pieces that were not sent are read again.
        state.ahead.pieces.clear();
    }

    /// Takes the next batch: many small pieces in one, which is not divided either.
    pub(crate) fn next(&self) -> Result<Option<Batch>> {
        let bad = |cause| Error::disk(&self.path)(cause);
        let mut state = self.state.lock();
        if !state.has_pending() {
            return Ok(None);
        }
        let mut batch = Batch {
            seq: state.cursor.seq,
            bytes: Vec::new(),
            end: state.cursor.offset,
            framing: 0,
        };
        if state.ahead.from != state.cursor.offset {
            let from = state.ahead.from; // they are of another place
            state.ahead = Ahead {
                from,
                ..Ahead::default()
            };
        }
        let upto = match state.cursor.upto > state.cursor.offset {
            true => state.cursor.upto,
            false => state.end,
        };
        while batch.end < upto {
            let framed = match state.ahead.take(batch.end) {
                Some(framed) => framed,
                None => match read_frame(&state.file, batch.end, state.end) {
                    Ok(frame) => frame.framed(),
                    Err(error) if error.kind() != io::ErrorKind::InvalidData => {
                        return Err(bad(error));
                    }
                    Err(_) if state.trouble.passes_over => {
                        let next = next_whole(&state.file, batch.end, state.end).map_err(bad)?;
                        batch.end = next.unwrap_or(state.end);
                        continue;
                    }
                    // The pieces before it are sent.
                    Err(_) if !batch.bytes.is_empty() => break,
                    Err(_) => {
                        return Err(Error::rotten(self.url.clone(), batch.end));
                    }
                },
            };
            if !batch.bytes.is_empty() && batch.bytes.len() + framed.piece.len() > PIECE_MAX {
                break;
            }
            batch.end += framed.len;
            batch.framing += framed.len - framed.piece.len() as u64;
            batch.bytes.extend(framed.piece);
        }
        Ok(Some(batch))
    }

    /// Persists the number of a batch before it is sent.
    pub(crate) fn fix(
        &self,
        batch: &Batch,
        record: impl FnOnce(LogRow) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        if state.cursor.fixed == batch.end {
            return Ok(()); // It went before.
        }
        state.cursor.upto = batch.end;
        drop(state);
        self.commit()?;
        record(self.row())?;
        self.state.lock().cursor.fixed = batch.end;
        crash::point("append-fixed");
        Ok(())
    }
}

/// Pieces under one number of the target.
pub(crate) struct Batch {
    pub seq: u64,
    pub bytes: Vec<u8>,
    end: u64,
    framing: u64,
}

/// How far a log reached at some moment.
#[derive(Clone, Copy)]
pub(crate) struct Upto {
    emptied: u64,
    end: u64,
}

impl State {
    pub(crate) fn of(file: File, end: u64, seq: u64, offset: u64) -> Self {
        Self {
            file,
            end,
            ahead: Ahead {
                from: end,
                ..Ahead::default()
            },
            cursor: Cursor {
                seq,
                offset,
                ..Cursor::default()
            },
            room: Reserved::default(),
            said: BTreeMap::new(),
            sessions: BTreeMap::new(),
            synced: 0,
            emptied: 0,
            users: 1,
            asked: None,
            phase: Phase::Open,
            is_short: false,
            is_in_flight: false,
            trouble: Trouble::default(),
        }
    }

    /// Tells whether something waits.
    pub(crate) fn has_pending(&self) -> bool {
        self.end > self.cursor.offset
    }

    /// Returns where it ends now.
    pub(crate) fn upto(&self) -> Upto {
        let (emptied, end) = (self.emptied, self.end);
        Upto { emptied, end }
    }

    /// Tells whether the target has everything before that place. A log is emptied only when the target has all of it.
    pub(crate) fn is_past(&self, upto: Upto) -> bool {
        self.emptied > upto.emptied || self.cursor.offset >= upto.end
    }

    /// Notes that everything before that place is durable, unless the log was emptied since.
    fn note_durable(&mut self, upto: Upto) {
        if self.emptied == upto.emptied {
            self.synced = self.synced.max(upto.end);
        }
    }

    /// Moves on behind a batch that the target has.
    pub(crate) fn is_there(&mut self, batch: &Batch) {
        self.cursor.offset = batch.end;
        self.sessions.retain(|_, end| *end > batch.end);
        self.cursor.framing = self.cursor.framing.saturating_sub(batch.framing);
    }

    /// Returns the length of a log that has only the last number of each writer.
    pub(crate) fn marks(&self) -> u64 {
        (self.said.len() * (HEAD_BYTES + MARK_BYTES)) as u64
    }
}

impl Ahead {
    /// Tells whether the pieces reach to this place of the log.
    fn reaches(&mut self, at: u64) -> bool {
        if self.pieces.is_empty() {
            (self.from, self.bytes, self.len) = (at, 0, 0);
        }
        self.from + self.len == at
    }

    /// Takes the piece at this place; `None`: it is not in memory.
    fn take(&mut self, at: u64) -> Option<Framed> {
        if self.from != at {
            return None;
        }
        let framed = self.pieces.pop_front()?;
        self.bytes -= framed.piece.len();
        self.len -= framed.len;
        self.from += framed.len;
        Some(framed)
    }

    fn push(&mut self, framed: Framed) {
        self.bytes += framed.piece.len();
        self.len += framed.len;
        self.pieces.push_back(framed);
    }
}

/// How long after its last piece a writer may still ask whether it was taken.
pub(crate) const MAY_ASK: Duration = Duration::from_secs(600);

/// How many bytes are kept in memory; more are read again.
const AHEAD_MAX: usize = 8 << 20;

pub(crate) const LOOK_UP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrecorded_log_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut how = OpenOptions::new();
        let file = how.read(true).write(true).create_new(true).open(&path);
        let log = Log {
            id: Id::of([0; 12]),
            number: 1,
            url: "ftp://there/log".parse().unwrap(),
            who: Who::default(),
            writer: AtomicU64::new(7),
            path,
            state: Mutex::new(State::of(file.unwrap(), 0, 1, 0)),
            changed: Condvar::new(),
        };
        log.add(b"line", "").unwrap();
        let batch = log.next().unwrap().unwrap();
        assert!(log.fix(&batch, |_| Err(Error::Ending)).is_err());
        let mut upto = 0;
        let recorded = |row: LogRow| {
            upto = row.upto;
            Ok(())
        };
        log.fix(&batch, recorded).unwrap();
        assert_eq!(upto, batch.end, "it is on record before it goes");
        log.fix(&batch, |_| unreachable!("it is on record"))
            .unwrap();
    }

    #[test]
    fn waiter_passes_emptied_log() {
        let mut state = State::of(tempfile::tempfile().unwrap(), 100, 1, 0);
        let upto = state.upto();
        assert!(!state.is_past(upto));
        state.cursor.offset = 100;
        assert!(state.is_past(upto));
        // One reader was slow, and other writers went on appending.
        (state.end, state.cursor.offset, state.synced, state.emptied) = (50, 20, 0, 1);
        assert!(state.is_past(upto));
        assert!(!state.is_past(state.upto()));
        state.note_durable(upto);
        assert_eq!(state.synced, 0, "nothing of what is in it now was synced");
        state.note_durable(state.upto());
        assert_eq!(state.synced, 50);
    }
}
