//! Sends the pieces of logs to their targets.

use crate::{
    Error, Nth, Result,
    clock::now,
    disk::{
        frames::mark,
        logs::{Batch, LOOK_UP, Log, MAY_ASK, Phase},
        rows::Change,
    },
    error::is_shut,
    inner::Inner,
    plan::{backoff::PAUSE, state::Retry},
};
use godwit_core::{Fault, Url};
use godwit_store::{Error as StoreError, SmallWrite, StoreExt, WriteMode, engine::Place};
use godwit_sys::crash;
use std::{
    fs,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::Instant,
};

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
        let mut plan = self.logs.all();
        loop {
            if self.is_ending() {
                return None;
            }
            let now = Instant::now();
            let mut until = now + LOOK_UP;
            let mut before: Vec<&Url> = Vec::new();
            let mut due = None;
            let mut over = Vec::new();
            for log in plan.values() {
                let mut state = log.state.lock();
                let is_pending = state.has_pending();
                let is_recent = state.asked.is_some_and(|at| at.elapsed() < MAY_ASK);
                // A writer waits for room, and the log can be emptied.
                let is_short =
                    state.is_short && state.phase == Phase::Open && state.end > state.marks();
                if !is_pending && state.users == 0 && !state.is_in_flight && !is_recent {
                    state.phase = Phase::Gone;
                    over.push(log.number);
                    continue;
                }
                // Of one name the older log goes first.
                let waits = before.contains(&&log.url);
                if is_pending {
                    before.push(&log.url);
                }
                if waits
                    || !(is_pending || is_short)
                    || state.is_in_flight
                    || state.trouble.on_hold.is_some()
                {
                    continue;
                }
                match state.trouble.retry.not_before.filter(|until| *until > now) {
                    Some(later) => until = until.min(later),
                    None => {
                        state.is_in_flight = true;
                        due = Some(Arc::clone(log));
                        break;
                    }
                }
            }
            let over: Vec<_> = over
                .iter()
                .filter_map(|number| plan.remove(number))
                .collect();
            if !over.is_empty() {
                drop(plan);
                over.iter().for_each(|log| self.forget_log(log));
                plan = self.logs.all();
            }
            if due.is_some() {
                return due;
            }
            self.logs.due.wait_until(&mut plan, until);
        }
    }

    /// Its record goes first: one without a file is of a file that was lost.
    fn forget_log(&self, log: &Log) {
        let reserved = std::mem::take(&mut log.state.lock().room.reserved);
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
        state.is_in_flight = false;
        match outcome {
            Ok(()) => {
                state.trouble.since = None;
                state.trouble.retry = Retry::default();
            }
            Err(error) => {
                // What was taken and not sent is read again.
                state.ahead.pieces.clear();
                tracing::info!(url = %log.url, %error, "not appended");
                let is_shut = error.of_store().is_some_and(is_shut);
                let since = *state.trouble.since.get_or_insert_with(now);
                let patience = &mut state.trouble.retry.patience;
                let is_troubled = patience.may_pass(&error, self.rules.trouble_max);
                let may_be_there = patience.may_be_there(&error, above);
                let may_pass = is_shut || is_troubled || may_be_there;
                if error.fault_since(since) == Fault::Lasting && !may_pass {
                    state.trouble.on_hold = Some(error.to_string());
                }
                state.trouble.retry.failed(error);
                let pause = PAUSE * 2u32.pow(state.trouble.retry.tries.min(6));
                state.trouble.retry.not_before =
                    Some(Instant::now() + pause.min(self.rules.pause_max));
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
                    // The target has another file by now, which knows no writer: this piece goes first into it.
                    tracing::info!(url = %log.url, "the file was replaced; what is appended goes on in the new one");
                    log.begin_anew();
                    self.records.write(Change::Log(Box::new(log.row())))?;
                    continue;
                }
                appended => appended?,
            }
            crash::point("appended");
            self.plan().listings.appended(&log.url);
            let mut state = log.state.lock();
            state.cursor.seq = batch.seq + 1;
            state.is_there(&batch);
            state.trouble.retry.last = None;
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

    /// Empties a long log that is at its target as a whole, or a shorter one if a writer waits for room. The last numbers of
    /// writers that count their pieces are kept. Returns whether it was emptied.
    fn empty(&self, log: &Log) -> Result<bool> {
        let mut state = log.state.lock();
        let is_worth = state.end >= EMPTY_FROM || (state.is_short && state.end > 0);
        if state.has_pending() || !is_worth || state.phase != Phase::Open {
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
        // No writer appends meanwhile: the recorded offset must not count for later pieces.
        state.file.set_len(0).map_err(bad)?;
        state.file.write_all_at(&marks, 0).map_err(bad)?;
        (state.end, state.synced) = (marks.len() as u64, 0);
        // The places of what comes have nothing to do with those of what went.
        (state.cursor.upto, state.cursor.fixed) = (0, 0);
        state.cursor.offset = state.end;
        let row = log.row_of(&state);
        if let Err(error) = self.records.write(Change::Log(Box::new(row))) {
            state.file.set_len(end).map_err(bad)?;
            (state.end, state.cursor.offset) = (end, end);
            return Err(error);
        }
        state.is_short = false;
        state.emptied += 1;
        let kept = state.end + state.room.promised;
        let freed = state.room.reserved.saturating_sub(kept);
        state.room.reserved -= freed;
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
    let mut given = Some(SmallWrite {
        path: place.path.clone(),
        bytes: batch.bytes.clone(),
        how: WriteMode::Append {
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

/// A log that is at its target as a whole is emptied from this length on.
const EMPTY_FROM: u64 = 16 << 20;
