//! Lines for the ends of files, from many writers, each once and in order.
//!
//! What is appended goes into a log here at once, so that no writer waits for a
//! network; a log has a writer's number of its own at the target, and counts what
//! it sends, so that what is sent again after a break is known there. A piece is
//! never divided: the target shows all of it or nothing. Many pieces go under one
//! number; which, is on record before they are sent, so that it is the same ones
//! if they are sent again.
//!
//! Whoever may die, or lose us, before they hear that a piece was taken gives it a
//! number of their own: it lies in the log before the piece, so that the piece is
//! taken once, however often it is said.
//!
//! A log counts against the quota until it is gone; one that is at its target as
//! a whole, and long, is emptied. What rots in it is held with all behind it.
//!
//! After a power cut a log may have lost pieces that the target has: its numbers
//! are not used again. It is drained, and what comes then goes into a new one.

use crate::{
    Depot, Error, Result, Who,
    depot::Inner,
    disk::Id,
    error::{Patience, is_shut, may_pass},
    held::now,
    moving::PAUSE,
    records::Change,
    room::Room,
    writing::IsWanted,
};
use godwit_core::{Fault, Url};
use godwit_store::{Error as StoreError, Given, How, SMALL_BYTES, StoreExt, engine::Place};
use godwit_sys::crash;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What is on record of a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LogRow {
    pub id: Id,
    /// Those of one name are drained in this order.
    pub number: u64,
    pub url: String,
    pub audience: String,
    pub credential: String,
    /// Who appends, at the target.
    pub writer: u64,
    /// The number of the next piece there.
    pub seq: u64,
    /// Where it begins in the log.
    pub offset: u64,
    /// Where what may have been sent under that number ends; not behind `offset`: nothing was.
    pub upto: u64,
}

/// Who appends to a file.
#[derive(Debug)]
pub struct Appending {
    depot: Arc<Inner>,
    log: Arc<Log>,
    session: String,
}

/// Pieces that wait for their target, on disk and, the last of them, in memory.
pub(crate) struct Log {
    id: Id,
    number: u64,
    url: Url,
    who: Who,
    /// Who appends, at the target; another once the file there is a new one.
    writer: AtomicU64,
    path: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    file: File,
    /// The end of what is whole in the file.
    end: u64,
    /// Pieces that are in the file, and small enough in sum to be kept at hand.
    ahead: VecDeque<Framed>,
    ahead_bytes: usize,
    /// With their frames.
    ahead_len: u64,
    /// `ahead` has all from here on.
    ahead_from: u64,
    /// The next piece that the target has not said to have.
    seq: u64,
    offset: u64,
    /// So much of what is behind `offset` are frames and marks, and no line.
    framing: u64,
    /// What goes, or went, under `seq` ends here, if that is behind `offset`.
    upto: u64,
    /// The same, as it is on record.
    fixed: u64,
    /// What cannot be read is passed over.
    passes_over: bool,
    /// Bytes of the quota that are its own, and those of them that somebody is about to write.
    reserved: u64,
    promised: u64,
    /// Of whoever counts their pieces, the last one.
    said: BTreeMap<u64, u64>,
    /// Of each session that waits for its target, where the last piece ends.
    sessions: BTreeMap<String, u64>,
    /// Somebody waits for room that only its end, or its emptying, may give.
    is_short: bool,
    synced: u64,
    /// How often all of it was taken out, as its target had it.
    emptied: u64,
    /// Whoever appends.
    users: u32,
    /// When a piece came the last time that may be said again.
    asked: Option<Instant>,
    /// It takes nothing more: numbers may have been lost.
    is_closed: bool,
    is_moving: bool,
    is_gone: bool,
    /// The target will not have it.
    held: Option<String>,
    last: Option<Error>,
    patience: Patience,
    tries: u32,
    /// Since when, in seconds since the epoch.
    since: Option<u64>,
    until: Option<Instant>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.id, self.url)
    }
}

/// All logs of a depot, and who waits for something to send.
pub(crate) struct Logs {
    folder: PathBuf,
    all: Mutex<BTreeMap<u64, Arc<Log>>>,
    /// What is on record and cannot be read, as it stands there, and why.
    unreadable: Mutex<Vec<(Id, String, Error)>>,
    /// The last piece that was taken of each who counts them.
    taken: Mutex<HashMap<u64, u64>>,
    due: Condvar,
}

/// Which piece it is of somebody who counts them, from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Nth {
    /// Who: a number that nobody else has.
    pub by: u64,
    /// Which of theirs.
    pub seq: u64,
}

/// Removes files that no record speaks of: whoever forgot it was killed before its file was gone, or began one and had
/// told nobody.
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
    /// Opens those that are on record; nothing more goes into them.
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
                    room.count(log.state.lock().reserved);
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

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Log>>> {
        self.all.lock()
    }

    /// Returns all logs of which something is not at its target.
    pub(crate) fn owing(&self) -> Vec<Arc<Log>> {
        let all: Vec<_> = self.all().values().cloned().collect();
        all.into_iter()
            .filter(|log| log.state.lock().owes())
            .collect()
    }

    /// Returns what is on record and cannot be read, as it stands there, why, and where its bytes lie.
    pub(crate) fn unreadable(&self) -> Vec<(Id, String, Error, PathBuf)> {
        let all = self.unreadable.lock();
        let with_path = all.iter().map(|(id, url, error)| {
            let path = self.folder.join(id.to_string());
            (*id, url.clone(), error.clone(), path)
        });
        with_path.collect()
    }

    /// Takes one of them, for it to be forgotten, and returns where its bytes lie.
    pub(crate) fn take_unreadable(&self, name: &str) -> Option<(Id, PathBuf)> {
        let mut all = self.unreadable.lock();
        let at = all.iter().position(|(id, ..)| id.to_string() == name)?;
        let (id, ..) = all.swap_remove(at);
        Some((id, self.folder.join(id.to_string())))
    }

    /// Somebody waits for room: whatever is at its target as a whole is emptied.
    pub(crate) fn are_short(&self) {
        for log in self.all().values() {
            log.state.lock().is_short = true;
        }
        self.nudge();
    }

    /// Returns how much of the quota they take, and for which servers.
    pub(crate) fn reserved(&self) -> Vec<(String, u64)> {
        let all: Vec<_> = self.all().values().cloned().collect();
        let of = |log: &Arc<Log>| (log.url.host_port(), log.state.lock().reserved);
        all.iter().map(of).collect()
    }

    /// Sends what is held of a number or a name past what cannot be read of it; false: there is nothing.
    pub(crate) fn release(&self, name: &str) -> bool {
        for log in self.named(name) {
            log.state.lock().passes_over = true;
        }
        self.retry(name)
    }

    /// Tries again what is held of a number or a name; false: there is nothing.
    pub(crate) fn retry(&self, name: &str) -> bool {
        let logs = self.named(name);
        for log in &logs {
            let mut state = log.state.lock();
            state.held = None;
            state.patience = Patience::default();
            state.until = None;
            state.tries = 0;
        }
        self.nudge();
        !logs.is_empty()
    }

    /// Gives up what is held of a number or a name; false: there is nothing.
    pub(crate) fn discard(&self, name: &str) -> bool {
        let held = self.named(name).into_iter();
        let logs: Vec<_> = held.filter(|log| log.state.lock().held.is_some()).collect();
        for log in &logs {
            let mut state = log.state.lock();
            (state.offset, state.framing) = (state.end, 0);
            state.held = None;
            state.is_closed = true;
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
        self.owing().into_iter().filter(is_named).collect()
    }

    /// Returns why nothing is appended to a file of which this log waits for another.
    fn held_before(&self, log: &Log) -> Option<String> {
        let all = self.all();
        let mut older = all.range(..log.number).map(|(_, older)| older);
        older.find_map(|older| match older.url == log.url {
            true => older.state.lock().held.clone(),
            false => None,
        })
    }

    pub(crate) fn nudge(&self) {
        let _all = self.all();
        self.due.notify_all();
    }
}

impl Depot {
    /// Begins to append to a file, as nobody's session. Several who append to one share its log.
    pub fn append(&self, url: &Url, who: &Who) -> Result<Appending> {
        self.append_of(url, who, "")
    }

    /// The same as a session. Which appended is known until this depot ends.
    pub fn append_of(&self, url: &Url, who: &Who, session: &str) -> Result<Appending> {
        let place = (self.inner.connect)(url, who)?;
        // A server of others could not tell what came twice.
        match place.store.can() {
            Ok(can) if !can.append => {
                return Err(StoreError::unsupported(
                    format!("appending to {url} piece by piece"),
                    "its server cannot tell what came twice; put whole files there",
                )
                .into());
            }
            Err(error) if !may_pass(&error) => return Err(error.into()),
            _ => {}
        }
        let mut all = self.inner.logs.all();
        let same = |log: &&Arc<Log>| log.url == *url && log.who == *who && log.joins();
        if let Some(log) = all.values().rev().find(same).cloned() {
            return Ok(self.appending(log, session));
        }
        let log = Arc::new(Log::begin(&self.inner, url, who)?);
        all.insert(log.number, Arc::clone(&log));
        drop(all);
        self.inner.records.write(Change::Log(Box::new(log.row())))?;
        Ok(self.appending(log, session))
    }

    fn appending(&self, log: Arc<Log>, session: &str) -> Appending {
        Appending {
            depot: Arc::clone(&self.inner),
            log,
            session: session.into(),
        }
    }
}

impl Appending {
    /// Appends one piece, which is cut nowhere, in turn with those of others. Waits for room, if there is none at the
    /// moment.
    pub fn add(&self, piece: &[u8]) -> Result<()> {
        self.add_while(piece, &|_| true)
    }

    /// The same as long as somebody wants it, who is asked now and then, and told what is waited for.
    pub fn add_while(&self, piece: &[u8], is_wanted: IsWanted<'_>) -> Result<()> {
        let parts = piece.len().div_ceil(PIECE_MAX);
        let bytes = piece.len() + parts * HEAD_BYTES;
        let promised = self.log.make_room(&self.depot, bytes as u64, is_wanted)?;
        let added = self.log.add(piece, &self.session);
        drop(promised);
        self.depot.logs.nudge();
        added
    }

    /// The same for a caller who does not know whether a piece was taken: what was is not taken again.
    pub fn add_once(&self, piece: &[u8], nth: Nth, is_wanted: IsWanted<'_>) -> Result<()> {
        if piece.len() > PIECE_MAX {
            let why = format!("it has {} bytes, and {PIECE_MAX} are the most", piece.len());
            return Err(StoreError::unsupported("appending all of it at once", why).into());
        }
        // Before it is anybody's turn: the others are not to wait with this one.
        let bytes = 2 * HEAD_BYTES + MARK_BYTES + piece.len();
        let _promised = self.log.make_room(&self.depot, bytes as u64, is_wanted)?;
        let taken = &self.depot.logs.taken;
        let mut taken = taken.lock();
        let last = taken.entry(nth.by).or_default();
        if nth.seq <= *last {
            return Ok(());
        }
        self.log.add_one(piece, Some(nth), &self.session)?;
        *last = nth.seq;
        drop(taken);
        self.depot.logs.nudge();
        Ok(())
    }

    /// Returns when all that was added survives a power cut here.
    pub fn commit(&self) -> Result<()> {
        self.log.commit()
    }

    /// Returns when all that was added until now is at its target.
    pub fn push(&self, limit: Option<Duration>) -> Result<()> {
        let upto = self.log.state.lock().upto();
        self.log.wait_there(&self.depot, upto, limit)
    }
}

/// Room that is kept for who is about to append.
struct Promised<'a> {
    log: &'a Log,
    bytes: u64,
}

impl Drop for Promised<'_> {
    fn drop(&mut self) {
        self.log.state.lock().promised -= self.bytes;
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        self.log.state.lock().users -= 1;
        self.depot.logs.nudge();
    }
}

impl Log {
    fn begin(depot: &Inner, url: &Url, who: &Who) -> Result<Self> {
        let id = depot.disk.fresh()?;
        let path = depot.logs.folder.join(id.to_string());
        let mut how = OpenOptions::new();
        how.read(true).write(true).create_new(true).mode(0o600);
        let file = how.open(&path).map_err(Error::disk(&path))?;
        // Before it is on record.
        let folder = &depot.logs.folder;
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(Error::disk(folder))?;
        Ok(Self {
            id,
            number: depot.next_number(),
            url: url.clone(),
            who: who.clone(),
            writer: AtomicU64::new(id.low()),
            path,
            state: Mutex::new(State::of(file, 0, 1, 0)),
            changed: Condvar::new(),
        })
    }

    /// `is_of_this_boot`: the machine has had power since it was begun.
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
        state.reserved = end;
        state.framing = whole.framing;
        if !whole.marks.is_empty() {
            state.asked = Some(Instant::now());
        }
        for Nth { by, seq } in whole.marks {
            let last = taken.entry(by).or_default();
            *last = seq.max(*last);
            state.said.insert(by, *last);
        }
        state.sessions.insert(String::new(), end);
        state.is_closed = true;
        state.users = 0;
        state.upto = row.upto.min(end);
        state.fixed = state.upto;
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

    /// Counts one more who appends, if it takes anything.
    fn joins(&self) -> bool {
        let mut state = self.state.lock();
        let may = !state.is_closed && !state.is_gone;
        if may {
            state.users += 1;
        }
        may
    }

    fn row(&self) -> LogRow {
        self.row_of(&self.state.lock())
    }

    fn row_of(&self, state: &State) -> LogRow {
        let credential = self.who.credential.as_deref();
        LogRow {
            id: self.id,
            number: self.number,
            url: self.url.to_string(),
            audience: self.who.audience.clone(),
            credential: credential.map_or_else(String::new, |path| path.display().to_string()),
            writer: self.writer.load(Relaxed),
            seq: state.seq,
            offset: state.offset,
            upto: state.upto,
        }
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// Returns up to where somebody who waits for a session waits, if that has something to wait for.
    pub(crate) fn upto_of(&self, session: &str) -> Option<Upto> {
        let state = self.state.lock();
        let end = *state.sessions.get(session)?;
        let emptied = state.emptied;
        (end > state.offset).then_some(Upto { emptied, end })
    }

    /// Returns where it ends now.
    pub(crate) fn upto(&self) -> Upto {
        self.state.lock().upto()
    }

    /// Returns of which session all is that waits; none: it is of several.
    pub(crate) fn session(&self) -> String {
        let state = self.state.lock();
        let mut waiting = state
            .sessions
            .iter()
            .filter(|(_, end)| **end > state.offset);
        match (waiting.next(), waiting.next()) {
            (Some((session, _)), None) => session.clone(),
            _ => String::new(),
        }
    }

    /// Returns how many bytes of lines wait.
    pub(crate) fn owed(&self) -> u64 {
        let state = self.state.lock();
        (state.end - state.offset).saturating_sub(state.framing)
    }

    /// Returns why nothing moves, and how often it was tried; whether somebody must decide, and of what.
    pub(crate) fn trouble(&self) -> (String, u32, bool, Option<Error>) {
        let state = self.state.lock();
        let why = match (&state.held, &state.last) {
            (Some(words), _) => words.clone(),
            (None, Some(error)) => error.words(),
            (None, None) => String::new(),
        };
        let is_held = state.held.is_some();
        (why, state.tries, is_held, state.last.clone())
    }

    /// Takes room for so many bytes more. Waits for it, if there is none at the moment.
    fn make_room(
        &self,
        depot: &Inner,
        bytes: u64,
        is_wanted: IsWanted<'_>,
    ) -> Result<Promised<'_>> {
        loop {
            let mut state = self.state.lock();
            let end = state.end + state.promised + bytes;
            if end <= state.reserved {
                state.promised += bytes;
                let log = self;
                return Ok(Promised { log, bytes });
            }
            let least = end - state.reserved;
            drop(state);
            let could = depot.room.quota().unwrap_or(u64::MAX);
            depot.room.could_hold(&self.url, bytes)?;
            // In large pieces, for few questions.
            let more = least.max(RESERVE_STEP.min(could / 16));
            let reserved = match depot.reserve(&self.url, more) {
                Err(Error::Full { .. }) if more > least => {
                    depot.reserve(&self.url, least).map(|()| least)
                }
                reserved => reserved.map(|()| more),
            };
            match reserved {
                Ok(more) => {
                    let mut state = self.state.lock();
                    match state.is_gone {
                        true => depot.room.release(more),
                        false => state.reserved += more,
                    }
                }
                Err(full @ Error::Full { .. }) if !is_wanted(&full) => return Err(full),
                Err(Error::Full { .. }) => {
                    depot.wait_for_room()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn add(&self, piece: &[u8], session: &str) -> Result<()> {
        let mut parts = piece.chunks(PIECE_MAX);
        parts.try_for_each(|part| self.add_one(part, None, session))
    }

    fn add_one(&self, part: &[u8], nth: Option<Nth>, session: &str) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_closed || state.is_gone {
            return Err(Error::Ending);
        }
        let mut bytes = nth.map(mark).unwrap_or_default();
        bytes.extend(frame(part));
        let at = state.end;
        let written = state.file.write_all_at(&bytes, at);
        written.map_err(Error::disk(&self.path))?;
        state.end += bytes.len() as u64;
        state.framing += (bytes.len() - part.len()) as u64;
        let end = state.end;
        match state.sessions.get_mut(session) {
            Some(last) => *last = end,
            None => drop(state.sessions.insert(session.into(), end)),
        }
        if let Some(Nth { by, seq }) = nth {
            state.asked = Some(Instant::now());
            state.said.insert(by, seq);
        }
        if state.ahead_bytes + part.len() <= AHEAD_MAX && state.ahead_reaches(at) {
            state.ahead_bytes += part.len();
            let (piece, len) = (part.to_vec(), bytes.len() as u64);
            state.ahead_len += len;
            state.ahead.push_back(Framed { piece, len });
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
        self.state.lock().is_safe(upto);
        Ok(())
    }

    /// Waits until the target has all that is before a place.
    pub(crate) fn wait_there(
        &self,
        depot: &Inner,
        upto: Upto,
        limit: Option<Duration>,
    ) -> Result<()> {
        let until = limit.map(|limit| Instant::now() + limit);
        self.state.lock().until = None;
        depot.logs.nudge();
        let mut state = self.state.lock();
        loop {
            if state.is_past(upto) {
                return Ok(());
            }
            let url = Box::new(self.url.clone());
            if let Some(why) = state.held.clone() {
                return Err(Error::held(url, why, ""));
            }
            if depot.is_ending() {
                return Err(Error::Ending);
            }
            drop(state);
            if let Some(why) = depot.logs.held_before(self) {
                return Err(Error::held(url, why, ""));
            }
            state = self.state.lock();
            if state.is_past(upto) {
                return Ok(());
            }
            if let (Some(until), Some(waited)) = (until, limit)
                && Instant::now() >= until
            {
                let why = state.last.as_ref().map(ToString::to_string);
                let what = match why {
                    Some(why) => format!("what was appended to {url} is not there: {why}"),
                    None => format!("what was appended to {url} is still on its way"),
                };
                return Err(Error::timed_out(waited, what));
            }
            let left = until.map_or(LOOK_UP, |until| {
                until.saturating_duration_since(Instant::now()).min(LOOK_UP)
            });
            self.changed.wait_for(&mut state, left);
        }
    }

    /// Goes on as somebody whom the target has not heard of.
    fn begin_anew(&self) {
        let mut state = self.state.lock();
        let next = self
            .writer
            .load(Relaxed)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            | 1;
        self.writer.store(next, Relaxed);
        state.seq = 1;
        state.fixed = 0;
        // What was taken and not sent is read again.
        state.ahead.clear();
    }

    /// Takes what may be sent next: many small pieces in one, which is cut nowhere either.
    fn next(&self) -> Result<Option<Batch>> {
        let bad = |cause| Error::disk(&self.path)(cause);
        let mut state = self.state.lock();
        if !state.owes() {
            return Ok(None);
        }
        let mut batch = Batch {
            seq: state.seq,
            bytes: Vec::new(),
            end: state.offset,
            framing: 0,
        };
        if state.ahead_from != state.offset {
            state.ahead.clear(); // they are of another place
            (state.ahead_bytes, state.ahead_len) = (0, 0);
        }
        let upto = match state.upto > state.offset {
            true => state.upto,
            false => state.end,
        };
        while batch.end < upto {
            let framed = match state.ahead_at(batch.end) {
                Some(framed) => framed,
                None => match read_frame(&state.file, batch.end, state.end) {
                    Ok(frame) => frame.framed(),
                    Err(error) if error.kind() != io::ErrorKind::InvalidData => {
                        return Err(bad(error));
                    }
                    Err(_) if state.passes_over => {
                        let next = next_whole(&state.file, batch.end, state.end).map_err(bad)?;
                        batch.end = next.unwrap_or(state.end);
                        continue;
                    }
                    // What is before it goes.
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

    /// Writes what goes under which number, before it goes.
    fn fix(&self, batch: &Batch, record: impl FnOnce(LogRow) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        if state.fixed == batch.end {
            return Ok(()); // It went before.
        }
        state.upto = batch.end;
        drop(state);
        self.commit()?;
        record(self.row())?;
        self.state.lock().fixed = batch.end;
        crash::point("append-fixed");
        Ok(())
    }
}

/// Pieces under one number of the target.
struct Batch {
    seq: u64,
    bytes: Vec<u8>,
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
    fn of(file: File, end: u64, seq: u64, offset: u64) -> Self {
        Self {
            file,
            end,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            ahead_len: 0,
            ahead_from: end,
            seq,
            offset,
            framing: 0,
            upto: 0,
            fixed: 0,
            passes_over: false,
            reserved: 0,
            promised: 0,
            said: BTreeMap::new(),
            sessions: BTreeMap::new(),
            is_short: false,
            synced: 0,
            emptied: 0,
            users: 1,
            asked: None,
            is_closed: false,
            is_moving: false,
            is_gone: false,
            held: None,
            last: None,
            patience: Patience::default(),
            tries: 0,
            since: None,
            until: None,
        }
    }

    /// Tells whether something waits.
    fn owes(&self) -> bool {
        self.end > self.offset
    }

    /// Returns where it ends now.
    fn upto(&self) -> Upto {
        let (emptied, end) = (self.emptied, self.end);
        Upto { emptied, end }
    }

    /// Tells whether the target has all that was before that. It is emptied only when all was there.
    fn is_past(&self, upto: Upto) -> bool {
        self.emptied > upto.emptied || self.offset >= upto.end
    }

    /// Notes that all before that is on disk. What came after it was emptied is in other places.
    fn is_safe(&mut self, upto: Upto) {
        if self.emptied == upto.emptied {
            self.synced = self.synced.max(upto.end);
        }
    }

    /// The target has it, or it is no line.
    fn is_there(&mut self, batch: &Batch) {
        self.offset = batch.end;
        self.sessions.retain(|_, end| *end > batch.end);
        self.framing = self.framing.saturating_sub(batch.framing);
    }

    /// Returns how long a log is that says only which pieces were taken.
    fn marks(&self) -> u64 {
        (self.said.len() * (HEAD_BYTES + MARK_BYTES)) as u64
    }

    /// Tells whether what is at hand reaches to this place of the log.
    fn ahead_reaches(&mut self, at: u64) -> bool {
        if self.ahead.is_empty() {
            self.ahead_from = at;
            self.ahead_bytes = 0;
            self.ahead_len = 0;
        }
        self.ahead_from + self.ahead_len == at
    }

    /// Takes the piece at this place, if it is at hand.
    fn ahead_at(&mut self, at: u64) -> Option<Framed> {
        if self.ahead_from != at {
            return None;
        }
        let framed = self.ahead.pop_front()?;
        self.ahead_bytes -= framed.piece.len();
        self.ahead_len -= framed.len;
        self.ahead_from += framed.len;
        Some(framed)
    }
}

/// Starts one of the threads that append.
pub(crate) fn start(depot: &Arc<Inner>, number: usize) -> Result<JoinHandle<()>> {
    let depot = Arc::clone(depot);
    let root = depot.disk.root().to_owned();
    let thread = thread::Builder::new().name(format!("appender {number}"));
    let started = thread.spawn(move || {
        while let Some(log) = depot.next_log() {
            depot.drain(&log);
        }
    });
    started.map_err(Error::disk(root))
}

impl Inner {
    fn next_log(&self) -> Option<Arc<Log>> {
        let mut all = self.logs.all();
        loop {
            if self.is_ending() {
                return None;
            }
            let now = Instant::now();
            let mut until = now + LOOK_UP;
            let mut before: Vec<&Url> = Vec::new();
            let mut due = None;
            let mut over = Vec::new();
            for log in all.values() {
                let mut state = log.state.lock();
                let owes = state.owes();
                let is_recent = state.asked.is_some_and(|at| at.elapsed() < MAY_ASK);
                // Somebody waits for room, and it can be emptied.
                let is_short = state.is_short && !state.is_closed && state.end > state.marks();
                if !owes && state.users == 0 && !state.is_moving && !is_recent {
                    state.is_gone = true;
                    over.push(log.number);
                    continue;
                }
                // Of one name the older log goes first.
                let waits = before.contains(&&log.url);
                if owes {
                    before.push(&log.url);
                }
                if waits || !(owes || is_short) || state.is_moving || state.held.is_some() {
                    continue;
                }
                match state.until.filter(|until| *until > now) {
                    Some(later) => until = until.min(later),
                    None => {
                        state.is_moving = true;
                        due = Some(Arc::clone(log));
                        break;
                    }
                }
            }
            let over: Vec<_> = over
                .iter()
                .filter_map(|number| all.remove(number))
                .collect();
            if !over.is_empty() {
                drop(all);
                over.iter().for_each(|log| self.forget_log(log));
                all = self.logs.all();
            }
            if due.is_some() {
                return due;
            }
            self.logs.due.wait_until(&mut all, until);
        }
    }

    /// Its record goes first: one without a file is of a file that was lost.
    fn forget_log(&self, log: &Log) {
        let reserved = std::mem::take(&mut log.state.lock().reserved);
        self.room.release(reserved);
        self.due.notify_all();
        match self.records.write(Change::ForgetLog(log.id)) {
            Ok(()) => {
                crash::point("log-forgotten");
                drop(fs::remove_file(&log.path));
            }
            Err(error) => {
                tracing::warn!(url = %log.url, %error, "a log that is over is forgotten at the next start");
            }
        }
    }

    fn drain(&self, log: &Arc<Log>) {
        let outcome = self.append_all(log);
        let error = outcome.as_ref().err();
        let above = error.and_then(|error| self.above_missing(error, &log.url, &log.who));
        let mut state = log.state.lock();
        state.is_moving = false;
        match outcome {
            Ok(()) => {
                state.tries = 0;
                state.since = None;
                state.last = None;
                state.patience = Patience::default();
                state.until = None;
            }
            Err(error) => {
                state.tries += 1;
                // What was taken and not sent is read again.
                state.ahead.clear();
                tracing::info!(url = %log.url, %error, "not appended");
                let is_shut = error.of_store().is_some_and(is_shut);
                let since = *state.since.get_or_insert_with(now);
                let is_troubled = state.patience.may_pass(&error, self.rules.trouble_max);
                let may_be_there = state.patience.may_be_there(&error, above);
                let may_pass = is_shut || is_troubled || may_be_there;
                if error.fault_since(since) == Fault::Lasting && !may_pass {
                    state.held = Some(error.to_string());
                }
                let pause = PAUSE * 2u32.pow(state.tries.min(6));
                state.until = Some(Instant::now() + pause.min(self.rules.pause_max));
                state.last = Some(error);
            }
        }
        drop(state);
        log.changed.notify_all();
        self.logs.nudge();
    }

    fn append_all(&self, log: &Log) -> Result<()> {
        if self.empty(log)? {
            return Ok(());
        }
        let place = (self.connect)(&log.url, &log.who)?;
        while !self.is_ending() {
            let Some(batch) = log.next()? else {
                break;
            };
            if batch.bytes.is_empty() {
                log.state.lock().is_there(&batch);
                log.changed.notify_all();
                continue;
            }
            log.fix(&batch, |row| self.records.write(Change::Log(Box::new(row))))?;
            match append_one(&place, log, &batch) {
                Err(Error::Store(error)) if is_anew(&error) => {
                    // The file there is another by now, and knows nobody: this goes first into it.
                    tracing::info!(url = %log.url, "the file was replaced; what is appended goes on in the new one");
                    log.begin_anew();
                    self.records.write(Change::Log(Box::new(log.row())))?;
                    continue;
                }
                appended => appended?,
            }
            crash::point("appended");
            self.all().listings.appended(&log.url);
            let mut state = log.state.lock();
            state.seq = batch.seq + 1;
            state.is_there(&batch);
            state.last = None;
            drop(state);
            log.changed.notify_all();
        }
        // What is not on record as sent would be sent again, and is known there.
        match self.empty(log)? {
            true => {}
            false => self.records.write_behind(Change::Log(Box::new(log.row()))),
        }
        Ok(())
    }

    /// Empties a log that is at its target as a whole, where it is long, or somebody waits for room; what was said of
    /// whoever counts their pieces stays. Returns whether it was.
    fn empty(&self, log: &Log) -> Result<bool> {
        let mut state = log.state.lock();
        let is_worth = state.end >= EMPTY_FROM || (state.is_short && state.end > 0);
        if state.owes() || !is_worth || state.is_closed {
            return Ok(false);
        }
        let marks = state
            .said
            .iter()
            .map(|(by, seq)| mark(Nth { by: *by, seq: *seq }));
        let marks: Vec<u8> = marks.flatten().collect();
        if marks.len() as u64 >= state.end {
            return Ok(false);
        }
        let end = state.end;
        let bad = |cause| Error::disk(&log.path)(cause);
        // Nobody appends meanwhile: what is on record as at its target is not to be taken for what comes.
        state.file.set_len(0).map_err(bad)?;
        state.file.write_all_at(&marks, 0).map_err(bad)?;
        (state.end, state.synced) = (marks.len() as u64, 0);
        // The places of what comes have nothing to do with those of what went.
        (state.upto, state.fixed) = (0, 0);
        state.offset = state.end;
        let row = log.row_of(&state);
        if let Err(error) = self.records.write(Change::Log(Box::new(row))) {
            state.file.set_len(end).map_err(bad)?;
            (state.end, state.offset) = (end, end);
            return Err(error);
        }
        state.is_short = false;
        state.emptied += 1;
        let kept = state.end + state.promised;
        let freed = state.reserved.saturating_sub(kept);
        state.reserved -= freed;
        drop(state);
        self.room.release(freed);
        self.due.notify_all();
        Ok(true)
    }
}

/// Tells whether a file counts what comes from its beginning.
fn is_anew(error: &StoreError) -> bool {
    matches!(error, StoreError::OutOfTurn { expected: 1, seq, .. } if *seq > 1)
}

fn append_one(place: &Place, log: &Log, batch: &Batch) -> Result<()> {
    let mut given = Some(Given {
        path: place.path.clone(),
        bytes: batch.bytes.clone(),
        how: How::Append {
            writer: log.writer.load(Relaxed),
            seq: batch.seq,
        },
        mtime: None,
        mode: None,
    });
    let mut outcome = Ok(());
    let told = place
        .store
        .write_small(&mut || given.take(), &mut |_, done| {
            outcome = done.map(drop);
        });
    told?;
    Ok(outcome?)
}

/// A piece with its length and what it hashes to before it.
fn frame(piece: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + piece.len());
    frame.extend((piece.len() as u32).to_le_bytes());
    frame.extend(check(piece));
    frame.extend(piece);
    frame
}

fn check(piece: &[u8]) -> [u8; 4] {
    let digest = godwit_core::Digest::of(godwit_core::Algorithm::Blake3, piece);
    let mut check = [0; 4];
    check.copy_from_slice(&digest.value()[..4]);
    check
}

/// What lies before a piece that may be said again.
fn mark(nth: Nth) -> Vec<u8> {
    let mut of = [0; MARK_BYTES];
    of[..8].copy_from_slice(&nth.by.to_le_bytes());
    of[8..].copy_from_slice(&nth.seq.to_le_bytes());
    let mut mark = frame(&of);
    mark[..4].copy_from_slice(&(MARK | MARK_BYTES as u32).to_le_bytes());
    mark
}

/// A piece, and how long it is in the log.
struct Framed {
    piece: Vec<u8>,
    len: u64,
}

/// What lies at a place of a log.
enum Frame {
    Piece(Vec<u8>),
    Mark(Nth),
}

impl Frame {
    fn framed(self) -> Framed {
        let len = self.len();
        match self {
            Self::Piece(piece) => Framed { piece, len },
            Self::Mark(_) => Framed {
                piece: Vec::new(),
                len,
            },
        }
    }

    fn len(&self) -> u64 {
        let bytes = match self {
            Self::Piece(piece) => piece.len(),
            Self::Mark(_) => MARK_BYTES,
        };
        (HEAD_BYTES + bytes) as u64
    }
}

/// What is found in a log.
struct Whole {
    marks: Vec<Nth>,
    framing: u64,
}

/// Returns the end of the last piece that is whole, and adds what is found of those that are.
fn whole_end(file: &File, from: u64, whole: &mut Whole) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut at = from.min(size);
    let (mut end, mut of_next) = (at, None);
    while at < size {
        let frame = match read_frame(file, at, size) {
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => break,
            Err(error) => return Err(error),
        };
        at += frame.len();
        match frame {
            // A mark without its piece says nothing.
            Frame::Mark(nth) => of_next = Some(nth),
            Frame::Piece(piece) => {
                whole.framing += at - end - piece.len() as u64;
                end = at;
                whole.marks.extend(of_next.take());
            }
        }
    }
    Ok(end)
}

/// Returns where the next whole piece begins, where there may be something else before it.
fn next_whole(file: &File, from: u64, size: u64) -> io::Result<Option<u64>> {
    let mut window = Vec::new();
    let mut begins = from;
    for at in from..size.saturating_sub(HEAD_BYTES as u64 - 1) {
        let mut inside = (at - begins) as usize;
        if inside + HEAD_BYTES > window.len() {
            (begins, inside) = (at, 0);
            window.resize((size - at).min(WINDOW_BYTES) as usize, 0);
            file.read_exact_at(&mut window, at)?;
        }
        let len = u32::from_le_bytes([
            window[inside],
            window[inside + 1],
            window[inside + 2],
            window[inside + 3],
        ]);
        let len = (len & !MARK) as usize;
        let fits = len <= PIECE_MAX && (len + HEAD_BYTES) as u64 <= size - at;
        let is_piece = |at| matches!(read_frame(file, at, size), Ok(Frame::Piece(_)));
        // A mark without its piece says nothing.
        let is_whole = || match read_frame(file, at, size) {
            Ok(Frame::Piece(_)) => true,
            Ok(mark @ Frame::Mark(_)) => is_piece(at + mark.len()),
            Err(_) => false,
        };
        if fits && is_whole() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Returns the marks of what is at the target already; of pieces only the heads are read.
fn marks_before(file: &File, upto: u64) -> io::Result<Vec<Nth>> {
    let end = upto.min(file.metadata()?.len());
    let (mut at, mut marks) = (0, Vec::new());
    while end - at >= HEAD_BYTES as u64 {
        let head = read_head(file, at)?;
        let len = head.bytes.min(PIECE_MAX);
        if head.is_mark
            && let Ok(Frame::Mark(nth)) = read_frame(file, at, end)
        {
            marks.push(nth);
        }
        at = (at + (HEAD_BYTES + len) as u64).min(end);
    }
    Ok(marks)
}

struct Head {
    is_mark: bool,
    bytes: usize,
    check: [u8; 4],
}

fn read_head(file: &File, at: u64) -> io::Result<Head> {
    let mut head = [0; HEAD_BYTES];
    file.read_exact_at(&mut head, at)?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    Ok(Head {
        is_mark: len & MARK != 0,
        bytes: (len & !MARK) as usize,
        check: [head[4], head[5], head[6], head[7]],
    })
}

fn read_frame(file: &File, at: u64, end: u64) -> io::Result<Frame> {
    let torn = || io::Error::from(io::ErrorKind::InvalidData);
    if end - at < HEAD_BYTES as u64 {
        return Err(torn());
    }
    let head = read_head(file, at)?;
    if head.bytes > PIECE_MAX || (head.bytes + HEAD_BYTES) as u64 > end - at {
        return Err(torn());
    }
    let mut piece = vec![0; head.bytes];
    file.read_exact_at(&mut piece, at + HEAD_BYTES as u64)?;
    if check(&piece) != head.check {
        return Err(torn());
    }
    if !head.is_mark {
        return Ok(Frame::Piece(piece));
    }
    let (by, seq) = piece.split_first_chunk().ok_or_else(torn)?;
    let seq = seq.first_chunk().ok_or_else(torn)?;
    Ok(Frame::Mark(Nth {
        by: u64::from_le_bytes(*by),
        seq: u64::from_le_bytes(*seq),
    }))
}

/// In a length: it is a mark.
const MARK: u32 = 1 << 31;
const MARK_BYTES: usize = 16;
/// So long after the last piece somebody may still not know whether it was taken.
const MAY_ASK: Duration = Duration::from_secs(600);
const HEAD_BYTES: usize = 8;
/// The target takes no longer ones in one go.
pub const PIECE_MAX: usize = SMALL_BYTES as usize;
/// So many bytes are sent from memory; more are read again.
const AHEAD_MAX: usize = 8 << 20;
/// So many bytes are reserved at once for a log that grows.
const RESERVE_STEP: u64 = 1 << 20;
/// What is at its target as a whole and as long as this is emptied.
const EMPTY_FROM: u64 = 16 << 20;
const WINDOW_BYTES: u64 = 1 << 20;
const LOOK_UP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_recorded_does_not_go() {
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
    fn who_waits_for_a_place_in_a_log_that_is_emptied_is_past_it() {
        let mut state = State::of(tempfile::tempfile().unwrap(), 100, 1, 0);
        let upto = state.upto();
        assert!(!state.is_past(upto));
        state.offset = 100;
        assert!(state.is_past(upto));
        // Somebody was slow to look, and others went on appending.
        (state.end, state.offset, state.synced, state.emptied) = (50, 20, 0, 1);
        assert!(state.is_past(upto));
        assert!(!state.is_past(state.upto()));
        state.is_safe(upto);
        assert_eq!(state.synced, 0, "nothing of what is in it now was synced");
        state.is_safe(state.upto());
        assert_eq!(state.synced, 50);
    }
}
