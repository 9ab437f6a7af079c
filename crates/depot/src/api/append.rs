//! Lines for the ends of files, from many writers, each once and in order.
//!
//! A piece goes into a local log at once, so that no writer waits for the network. A log has a
//! writer's number of its own at the target, and numbers what it sends: the target knows what is sent again. A piece is
//! never divided: the target shows all of it or nothing. Many pieces go under one
//! number; which, is on record before they are sent, so that it is the same ones
//! if they are sent again.
//!
//! A writer that may end before it hears that a piece was taken gives the piece a number. The number is in the
//! log before the piece, so that the piece is taken once, however often it is sent.
//!
//! A log counts against the quota until it is gone; one that is at its target as
//! a whole, and long, is emptied. What rots in it is held with all behind it.
//!
//! After a power cut a log may have lost pieces that the target has: its numbers
//! are not used again. It is drained, and what comes then goes into a new one.

use crate::{
    Depot, Error, IsWanted, Nth, Result, Who,
    disk::{
        frames::{HEAD_BYTES, MARK_BYTES, PIECE_MAX},
        logs::{LOOK_UP, Log, Phase, State, Upto},
        rows::Change,
    },
    error::may_pass,
    inner::Inner,
};
use godwit_core::Url;
use godwit_store::Error as StoreError;
use parking_lot::{Condvar, Mutex};
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

/// A writer that appends to a file.
#[derive(Debug)]
pub struct Appending {
    depot: Arc<Inner>,
    log: Arc<Log>,
    session: String,
}

impl Depot {
    /// Begins to append to a file, without a session. Writers of one file share its log.
    pub fn append(&self, url: &Url, who: &Who) -> Result<Appending> {
        self.append_of(url, who, "")
    }

    /// Begins to append as a session. Which session appended is known until this depot ends.
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
        let mut plan = self.inner.logs.all();
        let same = |log: &&Arc<Log>| log.url == *url && log.who == *who && log.joins();
        if let Some(log) = plan.values().rev().find(same).cloned() {
            return Ok(self.appending(log, session));
        }
        let log = Arc::new(Log::begin(&self.inner, url, who)?);
        plan.insert(log.number, Arc::clone(&log));
        drop(plan);
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

    /// Appends a piece, unless cancelled; `is_wanted` is asked now and then, with the reason of the wait.
    pub fn add_while(&self, piece: &[u8], is_wanted: IsWanted<'_>) -> Result<()> {
        let parts = piece.len().div_ceil(PIECE_MAX);
        let bytes = piece.len() + parts * HEAD_BYTES;
        let promised = self.log.make_room(&self.depot, bytes as u64, is_wanted)?;
        let added = self.log.add(piece, &self.session);
        drop(promised);
        self.depot.logs.nudge();
        added
    }

    /// Appends a piece that may have been taken already: then it is not taken again.
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
        self.log.state.lock().room.promised -= self.bytes;
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
            number: depot.numbers.next(),
            url: url.clone(),
            who: who.clone(),
            writer: AtomicU64::new(id.low()),
            path,
            state: Mutex::new(State::of(file, 0, 1, 0)),
            changed: Condvar::new(),
        })
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
            let end = state.end + state.room.promised + bytes;
            if end <= state.room.reserved {
                state.room.promised += bytes;
                let log = self;
                return Ok(Promised { log, bytes });
            }
            let least = end - state.room.reserved;
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
                    if state.phase == Phase::Gone {
                        depot.room.release(more);
                    } else {
                        state.room.reserved += more;
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

    /// Waits until the target has all that is before a place.
    pub(crate) fn wait_there(
        &self,
        depot: &Inner,
        upto: Upto,
        limit: Option<Duration>,
    ) -> Result<()> {
        let until = limit.map(|limit| Instant::now() + limit);
        self.state.lock().trouble.retry.not_before = None;
        depot.logs.nudge();
        let mut state = self.state.lock();
        loop {
            if state.is_past(upto) {
                return Ok(());
            }
            let url = Box::new(self.url.clone());
            if let Some(why) = state.trouble.on_hold.clone() {
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
                let why = state.trouble.retry.last.as_ref().map(ToString::to_string);
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
}

/// The bytes that are reserved at once for a log that grows.
const RESERVE_STEP: u64 = 1 << 20;
