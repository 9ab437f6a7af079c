//! `ERET` and `ESTO` with a module: files out and in, through a program.

use super::{FtpSession, LinkState, TICK_NEVER, now};
use crate::base::{filters::FilterTurn, metrics::TrafficDirection};
use godwit_core::{Algorithm, Block, Digest, Extents, Hashing, Kind};
use godwit_store::{
    BlockWriter, Checks, Error, Expected, Sink, Store, Write, WriteMode, channel::Watch,
};
use godwit_wire::{
    command::{Through, TransferMode},
    server::{self as wire, FtpAnswer, FtpOutcome, Give, Leg, ModuleDirection, Refusal},
};
use parking_lot::Mutex;
use std::{fs::File, os::unix::fs::FileExt, path::Path, sync::Arc, time::Instant};

type Replied<T> = Result<T, Refusal>;

impl FtpSession {
    pub(super) fn retrieve_through(
        &mut self,
        path: &Path,
        through: &Through,
        leg: &Leg,
    ) -> Replied<FtpAnswer> {
        let begun = Instant::now();
        let sent = self.send_through(path, through, leg);
        if sent.is_ok() {
            self.links = LinkState::Done;
        }
        self.after_transfer(leg.mode);
        let ends = (
            TrafficDirection::Out,
            path.display().to_string(),
            self.peer.to_string(),
        );
        self.tell_of(ends, through, begun, &sent);
        sent.map(FtpAnswer::Sent)
    }

    pub(super) fn store_through(
        &mut self,
        path: &Path,
        through: &Through,
        give: &Give,
        leg: &Leg,
    ) -> Replied<FtpAnswer> {
        let begun = Instant::now();
        let received = self.take_through(path, through, give, leg);
        let links = self.after_transfer(leg.mode);
        let ends = (
            TrafficDirection::In,
            self.peer.to_string(),
            path.display().to_string(),
        );
        self.tell_of(ends, through, begun, &received);
        match received {
            Ok(outcome) => Ok(FtpAnswer::Sent(outcome)),
            Err(failure) if links == LinkState::Done => Ok(FtpAnswer::NotKept(failure)),
            Err(failure) => Err(failure),
        }
    }

    fn tell_of(
        &self,
        (direction, source, target): (TrafficDirection, String, String),
        through: &Through,
        begun: Instant,
        came_to: &Replied<FtpOutcome>,
    ) {
        let (id, module) = (self.transfer_id(), &*through.module);
        let seconds = begun.elapsed().as_secs_f64();
        let came_to = match came_to {
            Ok(outcome) => Ok(outcome.size.unwrap_or_default()),
            Err(fault) => Err(&*fault.said),
        };
        match came_to {
            Ok(bytes) => {
                tracing::info!(id, source, target, module, bytes, seconds, "sent through");
            }
            Err(fault) => {
                tracing::info!(
                    id,
                    source,
                    target,
                    module,
                    seconds,
                    fault,
                    "nothing came through"
                );
            }
        }
        self.note(direction, (&source, &target), seconds, 1, came_to);
    }

    /// A module runs with the rights of the node, so the client must have at least these.
    fn turn(&self, through: &Through, way: ModuleDirection) -> Replied<FilterTurn> {
        if !self.dir().is_our_own() {
            let why = "Modules run with the rights of the node, and not with those of the account \
                       that you have here.";
            return Err(Refusal::of_kind(Kind::Unsupported, why));
        }
        self.shared.modules.turn(through, way)
    }

    fn send_through(&mut self, path: &Path, through: &Through, leg: &Leg) -> Replied<FtpOutcome> {
        let turn = self.turn(through, ModuleDirection::Read)?;
        let (input, _) = self.dir().lend(path)?;
        let run = turn.start(input)?;
        self.open_to_send(leg)?;
        self.flush().map_err(|_| Error::Canceled)?;
        let watch = self.watch_over(leg)?;
        let mut held = self.held.take().expect("it was opened");
        let checks = Checks::blake3(leg.ours && leg.digests);
        let sending = held.send(leg.mode, 0, checks, &watch);
        let poured = self.at_work(leg, &watch, || {
            run.pour(&watch, &mut |block| sending.put(block))
        });
        let size = match poured {
            Ok(size) => size,
            Err(refusal) => {
                sending.break_off();
                return Err(in_mode(leg, refusal));
            }
        };
        let ended = self.attended(&watch, TICK_NEVER, &mut |_| {}, || sending.end());
        let sent = ended?;
        self.held = Some(held);
        let blake3 = sent.leaves.and_then(|leaves| leaves.root(size));
        Ok(FtpOutcome {
            size: Some(size),
            blake3: blake3.map(|digest| digest.hex()),
            ..FtpOutcome::default()
        })
    }

    /// Stores the received bytes, runs them through the module once they are complete, and publishes its output: an
    /// upload of unknown size.
    fn take_through(
        &mut self,
        path: &Path,
        through: &Through,
        give: &Give,
        leg: &Leg,
    ) -> Replied<FtpOutcome> {
        let turn = self.turn(through, ModuleDirection::Write)?;
        let check = give.check.as_ref().map(|(by, value)| {
            Digest::from_hex(*by, value)
                .map_err(|_| Refusal::of_kind(Kind::Invalid, "The checksum is not one."))
        });
        let check = check.transpose()?;
        let watch = Arc::new(self.watch_over(leg)?);
        let id = format!("through-{}", self.transfer_id());
        let write = Write {
            how: WriteMode::Replace(None),
            id: Some(&id),
            resume: false,
            checks: Checks::blake3(leg.digests),
            watch: Some(Arc::clone(&watch)),
            ..Write::default()
        };
        let sink = self.dir().write(path, &write)?;
        let spool = self.dir().spool(path)?;
        let spool = Spool::over(spool, path);
        let made = self
            .open(leg)
            .and_then(|()| self.spool_up(&spool, give, leg, &watch))
            .and_then(|came| self.make(&turn, &*sink, spool, (came, check), leg, &watch));
        let (came, kept, blake3) = match made {
            Ok(made) => made,
            Err(failure) => {
                let _ = sink.abandon(); // what is left is swept
                return Err(failure);
            }
        };
        let whole = Expected {
            size: Some(kept),
            mtime: give.modify,
            ..Expected::default()
        };
        let finished = sink.finish(&whole)?;
        Ok(FtpOutcome {
            size: Some(came),
            blake3: blake3.map(|digest| digest.hex()),
            kept: Some(kept),
            published: Some(true),
            in_place: finished.in_place,
            ..FtpOutcome::default()
        })
    }

    /// Takes what comes, and returns how much that is once it is whole.
    fn spool_up(
        &mut self,
        spool: &Spool<'_>,
        give: &Give,
        leg: &Leg,
        watch: &Watch,
    ) -> Replied<u64> {
        let mut held = self.held.take().expect("it was opened");
        let mode = leg.mode;
        let received = self.at_work(leg, watch, || Ok(held.receive(mode, 0, spool, watch)?));
        let received = received?;
        self.held = Some(held);
        self.links = LinkState::Done;
        let came = spool.came();
        let size = give.size.unwrap_or(0).max(came.end());
        let missing = came.missing(0..size);
        if !missing.is_empty() {
            let (len, missing) = (missing.len_bytes(), missing.iter().next());
            let first = missing.map_or(0, |range| range.start);
            let why = format!(
                "{len} of {size} bytes are missing (the first at {first}); nothing is kept."
            );
            return Err(Refusal::of_kind(Kind::Incomplete, why));
        }
        // A stream says no more than that it ended.
        let is_told = leg.mode == TransferMode::Extended || give.size == Some(received.bytes);
        if !is_told && !self.is_control_alive(watch) {
            let why = "The client left; nothing is kept.";
            return Err(Refusal::of_kind(Kind::Incomplete, why));
        }
        Ok(size)
    }

    /// Returns how many bytes arrived, how many the module made of them, and the hash of the former.
    fn make(
        &mut self,
        turn: &FilterTurn,
        sink: &dyn Sink,
        spool: Spool<'_>,
        (came, check): (u64, Option<Digest>),
        leg: &Leg,
        watch: &Watch,
    ) -> Replied<(u64, u64, Option<Digest>)> {
        let by = match &check {
            Some(digest) => Some(digest.algorithm()),
            None => (leg.ours && leg.digests).then_some(Algorithm::Blake3),
        };
        let told = by.map(|by| self.at_work(leg, watch, || Ok(spool.digest(by, came, watch)?)));
        let told = told.transpose()?;
        if let (Some(expected), Some(found)) = (&check, &told)
            && expected != found
        {
            let why = "The bytes differ from what was announced; nothing is kept";
            return Err(Refusal::corrupt(found.hex(), expected.hex(), why));
        }
        let run = turn.start(spool.file)?;
        let kept = self.at_work(leg, watch, || {
            run.pour(watch, &mut |block| {
                sink.put(block)?;
                watch.moved(block.bytes.len() as u64);
                Ok(())
            })
        });
        let kept = kept?;
        let blake3 = told.filter(|digest| digest.algorithm() == Algorithm::Blake3);
        Ok((came, kept, blake3))
    }

    /// Runs `work` in a thread of its own, and tells the client how far it is.
    fn at_work<T: Send>(
        &mut self,
        leg: &Leg,
        watch: &Watch,
        work: impl FnOnce() -> Replied<T> + Send,
    ) -> Replied<T> {
        let every = leg.progress_every.unwrap_or(TICK_NEVER);
        let mut tick = |machine: &mut wire::Session| {
            if leg.progress_every.is_some() {
                machine.on_progress(&[watch.moved_bytes()], now());
            }
        };
        let done = self.attended(watch, every, &mut tick, || Ok(work()));
        done.unwrap_or_else(|error| Err(error.into()))
            .map_err(|refusal| match refusal.kind {
                Kind::Canceled => Refusal::of_kind(Kind::Canceled, "Aborted; nothing is kept."),
                _ => refusal,
            })
    }
}

/// Adjusts a failure to the mode: in stream mode the connection was broken off, and the client must learn why.
fn in_mode(leg: &Leg, failure: Refusal) -> Refusal {
    let is_broken = failure.kind == Kind::Module && leg.mode == TransferMode::Stream;
    match is_broken {
        true => Refusal::of_kind(Kind::Lost, failure.said),
        false => failure,
    }
}

/// A temporary file for bytes that arrive in any order.
struct Spool<'a> {
    file: File,
    /// For errors.
    path: &'a Path,
    came: Mutex<Extents>,
}

impl<'a> Spool<'a> {
    fn over(file: File, path: &'a Path) -> Self {
        Self {
            file,
            path,
            came: Mutex::default(),
        }
    }

    fn came(&self) -> Extents {
        self.came.lock().clone()
    }

    fn digest(&self, by: Algorithm, size: u64, watch: &Watch) -> godwit_store::Result<Digest> {
        let (mut hashing, mut buffer, mut offset) =
            (Hashing::new(by), godwit_sys::Buffer::take(), 0);
        while offset < size {
            watch.canceled().check()?;
            let room = buffer.len().min((size - offset) as usize);
            let some = &mut buffer[..room];
            let read = self.file.read_exact_at(some, offset);
            read.map_err(|cause| Error::io(self.path, cause))?;
            hashing.update(some);
            offset += room as u64;
        }
        Ok(hashing.finish())
    }
}

impl BlockWriter for Spool<'_> {
    fn put(&self, block: Block<'_>) -> godwit_store::Result<()> {
        let written = self.file.write_all_at(block.bytes, block.offset);
        written.map_err(|cause| Error::io(self.path, cause))?;
        self.came.lock().insert(block.range());
        Ok(())
    }
}
