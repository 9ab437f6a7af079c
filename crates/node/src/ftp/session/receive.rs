//! `STOR APPE ESTO`: files in.

use super::{
    FtpSession, LinkState, TICK_NEVER, now,
    publish::{UploadPlan, UploadVerdict, blake3},
    text::FromWire,
};
use crate::base::{metrics::TrafficDirection, ports::PortChannel};
use godwit_core::{Algorithm, Digest, Extents, Kind};
use godwit_store::{
    Checks, Error, Expected, Finished, Result, SMALL_BYTES, Sink, SinkExt, SmallWrite, Store,
    StoreExt, Write, WriteMode,
    channel::{Received, Watch},
};
use godwit_wire::{
    command::{TransferMode, Upload, UploadHow},
    server::{self as wire, FtpAnswer, FtpOutcome, Give, Leg, Refusal, UploadPlace},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

impl FtpSession {
    pub(super) fn store(
        &mut self,
        path: &Path,
        give: &Give,
        leg: &Leg,
    ) -> Result<FtpAnswer, Refusal> {
        let begun = Instant::now();
        let id = self.transfer_id();
        let unique = (give.place == UploadPlace::Unique).then(|| unique(path, id));
        if let Some(unique) = &unique {
            self.machine.on_unique(unique);
        }
        let path = unique.as_deref().unwrap_or(path);
        let is_striped = self.is_received_striped();
        let received = match is_striped {
            true => self.take_striped(path, give, leg),
            false => self.take(path, give, leg),
        };
        let streams = self.streams_used();
        let links = self.after_transfer(leg.mode);
        let seconds = begun.elapsed().as_secs_f64();
        match &received {
            Ok((_, bytes)) => {
                tracing::info!(id, source = %self.peer, target = %path.display(), bytes, seconds, streams, who = self.dir().subject(), "received");
            }
            Err(fault) => {
                tracing::info!(id, source = %self.peer, target = %path.display(), seconds, streams, fault = fault.said, "receive failed");
            }
        }
        let came_to = received.as_ref().map(|(_, bytes)| *bytes);
        self.note(
            TrafficDirection::In,
            (&self.peer, &path.display()),
            seconds,
            streams,
            came_to.map_err(|fault| &*fault.said),
        );
        match received {
            Ok((outcome, _)) => Ok(FtpAnswer::Sent(outcome)),
            Err(failure) if links == LinkState::Done => Ok(FtpAnswer::NotKept(failure)),
            Err(failure) => Err(failure),
        }
    }

    fn take(&mut self, path: &Path, give: &Give, leg: &Leg) -> Result<(FtpOutcome, u64), Refusal> {
        // The number of streams is only known on established connections: a foreign sender with four may still be
        // opening the others.
        let one = |held: &mut PortChannel| held.is_warm() && held.streams() == 1;
        if let Some(how) = small(give, leg)
            && (leg.ours || self.held.as_mut().is_some_and(one))
        {
            self.open(leg)?;
            if self.held.as_ref().is_some_and(|held| held.streams() == 1) {
                return self.take_small(path, give, how, leg).map_err(Refusal::from);
            }
            return self.take_any(path, give, leg, OpenState::Already);
        }
        self.take_any(path, give, leg, OpenState::NotYet)
    }

    /// A file that fits into a block comes and is written in this thread.
    fn take_small(
        &mut self,
        path: &Path,
        give: &Give,
        how: WriteMode,
        leg: &Leg,
    ) -> Result<(FtpOutcome, u64)> {
        // The client may wait for the reply before it sends.
        self.flush().map_err(|_| Error::Canceled)?;
        let held = self.held.as_mut().expect("it was opened");
        let bytes = held.receive_whole(SMALL_BYTES, &self.watch)?;
        self.links = LinkState::Done;
        let upload = match &give.place {
            UploadPlace::Named(upload) => upload.clone(),
            _ => Upload::default(),
        };
        let count = bytes.len() as u64;
        if let Some(size) = upload.size.or(give.size).filter(|&size| size > count) {
            return Err(Error::incomplete(path, size, Extents::from(count..size)));
        }
        let expected = upload.blake3.as_deref().and_then(blake3);
        let wanted = leg.ours && leg.digests || expected.is_some();
        let digest = wanted.then(|| Digest::of(Algorithm::Blake3, &bytes));
        if let (Some(expected), Some(digest)) = (expected, &digest)
            && expected != *digest
        {
            return Err(Error::corrupt(path, expected.hex(), digest.hex()));
        }
        let given = SmallWrite {
            path: path.into(),
            bytes,
            how,
            mtime: upload.modify.or(give.modify),
            mode: upload.mode,
        };
        let finished = self.write_small(given)?;
        let outcome = FtpOutcome {
            size: Some(count),
            blake3: digest.map(|digest| digest.hex()),
            published: Some(true),
            in_place: finished.in_place,
            ..FtpOutcome::default()
        };
        Ok((outcome, count))
    }

    fn write_small(&self, given: SmallWrite) -> Result<Finished> {
        let mut next = Some(given);
        let mut written = None;
        self.dir()
            .write_small(&mut || next.take(), &mut |_, finished| {
                written = Some(finished)
            })?;
        written.expect("each file is told once")
    }

    fn take_any(
        &mut self,
        path: &Path,
        give: &Give,
        leg: &Leg,
        opened: OpenState,
    ) -> Result<(FtpOutcome, u64), Refusal> {
        let plan = UploadPlan::of(self.dir(), path, give, leg.mode)?;
        let watch = Arc::new(self.watch_over(leg)?);
        let write = Write {
            watch: Some(Arc::clone(&watch)),
            ..plan.write(leg)
        };
        let sink = match (leg.share, &give.place) {
            (Some(_), UploadPlace::At(_)) if !self.is_member() => {
                // The file is an upload of another node, which trusts the leaves of the parts.
                let why =
                    "Only a member of the cluster may write into what another node puts together.";
                return Err(Refusal::of_kind(Kind::Denied, why));
            }
            (Some(_), UploadPlace::At(_)) => self.dir().share(path, &write),
            _ => self.dir().write(path, &write),
        };
        let sink = sink?;
        if opened == OpenState::NotYet {
            self.open(leg)?;
        }
        let received = self.receive(&*sink, &plan, leg, &watch)?;
        let outcome = self.end_upload(path, sink, &plan, give, leg, (received, &watch))?;
        Ok((outcome, received.bytes))
    }

    fn receive(
        &mut self,
        sink: &dyn Sink,
        plan: &UploadPlan,
        leg: &Leg,
        watch: &Watch,
    ) -> Result<Received> {
        let mut held = self.held.take().expect("it was opened");
        let mode = leg.mode;
        let text = leg.is_text.then(|| FromWire::new(sink, plan.base));
        let mut news = News::new(leg, sink);
        if let (Some(_), TransferMode::Extended) = (leg.progress_every, leg.mode) {
            self.machine.on_progress(&[0], now());
        }
        let all = |held: &mut PortChannel| {
            let Some(text) = &text else {
                return held.receive(mode, plan.base, sink, watch);
            };
            let received = held.receive(mode, plan.base, text, watch)?;
            let bytes = text.end()?;
            Ok(Received { bytes, ..received })
        };
        // A small file arrives before a thread for it would start.
        let is_brief = leg.mode == TransferMode::Stream && {
            self.flush_replies().map_err(|_| Error::Canceled)?;
            held.ends_before(Instant::now() + BRIEFLY, BRIEF_BYTES)?
        };
        let received = match is_brief {
            true => all(&mut held),
            false => self.attended(
                watch,
                news.every(),
                &mut |machine| news.tell(machine, &[watch.moved_bytes()]),
                || all(&mut held),
            ),
        };
        news.tell_last(&mut self.machine, &[watch.moved_bytes()]);
        let received = received?;
        self.held = Some(held);
        self.links = LinkState::Done;
        Ok(received)
    }

    pub(super) fn end_upload(
        &mut self,
        path: &Path,
        sink: Box<dyn Sink>,
        plan: &UploadPlan,
        give: &Give,
        leg: &Leg,
        (received, watch): (Received, &Watch),
    ) -> Result<FtpOutcome, Refusal> {
        let size = match plan.at_end(leg.mode, &received, &sink.done()) {
            UploadVerdict::Finish(size) => size,
            UploadVerdict::FinishIfAlive(size) if self.is_control_alive(watch) => Some(size),
            UploadVerdict::FinishIfAlive(_) => {
                return Err(Refusal::of_kind(
                    Kind::Incomplete,
                    "The client left; what arrived is kept.",
                ));
            }
            UploadVerdict::Cut(word) => {
                let why = format!(
                    "The data connection is cut after {} bytes: {word}; what arrived is kept.",
                    received.bytes
                );
                return Err(Refusal::of_kind(Kind::Incomplete, why));
            }
            UploadVerdict::Keep { announced } => {
                let why = format!(
                    "{} of {announced} bytes came; what arrived is kept.",
                    plan.base + received.bytes
                );
                return Err(Refusal::of_kind(Kind::Incomplete, why));
            }
            UploadVerdict::Hold => {
                let done = sink.settle()?;
                if sink.is_in_place() && !done.is_empty() {
                    return self.end_in_place(path, sink, give, leg, &done);
                }
                return Ok(FtpOutcome {
                    done: Some(done),
                    published: Some(false),
                    ..FtpOutcome::default()
                });
            }
        };
        let finished = self.compare_and_finish(sink, &plan.whole(size), watch)?;
        let size = match size {
            Some(size) => Some(size),
            None => self.dir().stat(path).ok().map(|stat| stat.size),
        };
        Ok(self.published(path, leg.ours, size, &finished))
    }

    /// Publishes an upload. A comparison may read the file again, which takes a while: the control connection is read
    /// meanwhile.
    fn compare_and_finish(
        &mut self,
        sink: Box<dyn Sink>,
        whole: &Expected,
        watch: &Watch,
    ) -> Result<Finished> {
        match whole.digest {
            None => sink.finish(whole),
            Some(_) => self.attended(watch, TICK_NEVER, &mut |_| {}, || sink.finish(whole)),
        }
    }

    /// Ends an upload that was written in place, since its directory cannot hold a partial. The file is complete, or it
    /// is lost.
    fn end_in_place(
        &self,
        path: &Path,
        sink: Box<dyn Sink>,
        give: &Give,
        leg: &Leg,
        done: &Extents,
    ) -> Result<FtpOutcome, Refusal> {
        let size = match &give.place {
            UploadPlace::Named(upload) => upload.size,
            _ => None,
        };
        let size = size.unwrap_or(done.end());
        let whole = Expected::of_size(size);
        let finished = sink.finish(&whole)?;
        Ok(self.published(path, leg.ours, Some(size), &finished))
    }

    fn published(
        &self,
        path: &Path,
        ours: bool,
        size: Option<u64>,
        finished: &Finished,
    ) -> FtpOutcome {
        let modify = if ours {
            self.dir().stat(path).ok().and_then(|stat| stat.mtime)
        } else {
            None
        };
        let blake3 = finished
            .digests
            .iter()
            .find(|d| d.algorithm() == Algorithm::Blake3);
        FtpOutcome {
            size,
            modify,
            blake3: blake3.map(Digest::hex),
            published: Some(true),
            reread_bytes: finished.reread_bytes,
            in_place: finished.in_place,
            ..FtpOutcome::default()
        }
    }

    /// `SITE GODWIT FINISH`.
    pub(super) fn finish(
        &mut self,
        path: &Path,
        upload: &Upload,
        digests: bool,
    ) -> Result<FtpAnswer, Refusal> {
        let finished = self.try_finish(path, upload, digests)?;
        let outcome = self.published(path, true, upload.size, &finished);
        let size = outcome
            .size
            .or_else(|| self.dir().stat(path).ok().map(|stat| stat.size));
        Ok(FtpAnswer::Sent(FtpOutcome { size, ..outcome }))
    }

    fn try_finish(&mut self, path: &Path, upload: &Upload, digests: bool) -> Result<Finished> {
        let id = upload.id.as_deref();
        if self.dir().partial(path, id)?.is_none() {
            return Err(Error::missing(path));
        }
        let how = match upload.how {
            UploadHow::New => WriteMode::New,
            _ => WriteMode::Replace(None),
        };
        let watch = Arc::new(self.new_watch()?);
        let write = Write {
            how,
            watch: Some(Arc::clone(&watch)),
            size: upload.size,
            id,
            mode: upload.mode,
            resume: true,
            checks: Checks::blake3(digests),
            ..Write::default()
        };
        let sink = self.dir().write(path, &write)?;
        let size = upload.size.unwrap_or_else(|| sink.done().end());
        let whole = Expected {
            size: Some(size),
            digest: upload.blake3.as_deref().and_then(blake3),
            mtime: upload.modify,
            mode: upload.mode,
        };
        self.compare_and_finish(sink, &whole, &watch)
    }
}

/// Whether a data connection was opened before it was known how to write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum OpenState {
    Already,
    NotYet,
}

/// Returns a unique name, made from the time and the transfer's number.
fn unique(path: &Path, transfer: u64) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:x}.{transfer}", now().as_nanos()));
    path.with_file_name(name)
}

/// Tells how a small file is written, if this is one.
fn small(give: &Give, leg: &Leg) -> Option<WriteMode> {
    let (size, how) = match &give.place {
        UploadPlace::Whole => (give.size, WriteMode::Replace(None)),
        UploadPlace::Unique => (give.size, WriteMode::New),
        UploadPlace::Named(upload) if !upload.hold => match upload.how {
            UploadHow::New => (upload.size, WriteMode::New),
            UploadHow::Replace => (upload.size, WriteMode::Replace(None)),
            UploadHow::InPlace => return None,
        },
        _ => return None,
    };
    let plain = give.rest.is_none() && give.check.is_none() && leg.mode == TransferMode::Extended;
    (plain && size? <= SMALL_BYTES).then_some(how)
}

/// Reports about an upload in flight.
pub(super) struct News<'a> {
    leg: &'a Leg,
    sink: &'a dyn Sink,
    extended: bool,
    told: Extents,
    progress_at: Instant,
    range_at: Instant,
}

impl<'a> News<'a> {
    pub(super) fn new(leg: &'a Leg, sink: &'a dyn Sink) -> Self {
        let now = Instant::now();
        Self {
            leg,
            sink,
            extended: leg.mode == TransferMode::Extended,
            told: sink.done(),
            progress_at: now,
            range_at: now,
        }
    }

    pub(super) fn every(&self) -> Duration {
        let leaves = if self.leg.leaves {
            LEAVES_EVERY
        } else {
            TICK_NEVER
        };
        let markers = if self.extended {
            self.leg
                .restart_every
                .min(self.leg.progress_every.unwrap_or(TICK_NEVER))
        } else {
            TICK_NEVER
        };
        leaves.min(markers)
    }

    pub(super) fn tell(&mut self, machine: &mut wire::Session, bytes: &[u64]) {
        if self.leg.leaves {
            machine.on_leaves(&self.sink.newly_whole(LEAVES_MAX));
        }
        if self.extended
            && self
                .leg
                .progress_every
                .is_some_and(|e| self.progress_at.elapsed() >= e)
        {
            self.progress_at = Instant::now();
            machine.on_progress(bytes, now());
        }
        if self.extended && self.range_at.elapsed() >= self.leg.restart_every {
            self.range_at = Instant::now();
            self.tell_ranges(machine);
        }
    }

    pub(super) fn tell_last(&mut self, machine: &mut wire::Session, bytes: &[u64]) {
        if self.leg.leaves {
            loop {
                let leaves = self.sink.newly_whole(LEAVES_MAX);
                if leaves.is_empty() {
                    break;
                }
                machine.on_leaves(&leaves);
            }
        }
        if self.extended {
            if self.leg.progress_every.is_some() {
                machine.on_progress(bytes, now());
            }
            self.tell_ranges(machine);
        }
    }

    fn tell_ranges(&mut self, machine: &mut wire::Session) {
        // Ranges reported to a front are durable: the front counts them even if this machine fails.
        let done = match self.leg.share {
            None => self.sink.done(),
            Some(_) => match self.sink.commit() {
                Ok(done) => done,
                Err(error) => {
                    tracing::warn!(%error, "not on the disk yet");
                    return;
                }
            },
        };
        machine.on_range(&done.minus(&self.told));
        self.told = done;
    }
}

/// Less than a client that says `ABOR` notices.
const BRIEFLY: Duration = Duration::from_millis(20);
const BRIEF_BYTES: usize = 64 << 10;
const LEAVES_EVERY: Duration = Duration::from_millis(100);
const LEAVES_MAX: usize = 64;
