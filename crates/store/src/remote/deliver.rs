//! Writes to a server: a sink sends its blocks over data connections, while a thread of
//! its own reads the server's replies.

mod listening;
mod plan;
mod publish;
mod relay;

pub(super) use plan::part_name;

use listening::{Listening, ReplyListener, UploadReplies};
use parking_lot::{Condvar, Mutex, RwLock};
use plan::DeliveryPlan;
use publish::check_unchanged;

use super::{
    LoginKind, Remote,
    attend::{EXPLAIN_MAX, TransferStart, begin as await_begin},
    data::Hosts,
    faults,
    fetch::new_watch,
    names,
    parts::NoteTiming,
    session::{Flow, RemoteSession},
};
use crate::{
    BlockWriter, Checks, Error, Expected, Finished, LocalFile, Read, Result, SMALL_BYTES, Sink,
    Store, StoreExt, Width, Write, WriteMode,
    channel::{DataChannel, FileSending, Gauge, TransferMode, Watch, look},
};
use godwit_core::{
    AdlerPart, AdlerParts, Block, Chain, Digest, Extents, LEAF_BYTES, Leaves, Piece, leaf_range,
};
use godwit_sys::Wake;
use godwit_wire::{
    client::{Family, Line, ReplyFacts, Talk},
    reply::Reply,
    shield::Level,
};
use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Starts to write one file.
pub(super) fn begin(remote: Remote, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
    if write.how == WriteMode::InPlace && !remote.can()?.in_place {
        return Err(Error::unsupported(
            "changing a file in place",
            "some FTP servers cut off what stands behind",
        ));
    }
    if let WriteMode::Append { .. } = write.how {
        return Err(Error::unsupported(
            "appending",
            "an FTP server cannot tell whose bytes came first",
        ));
    }
    if write.attempt > 0 {
        return Err(Error::unsupported(
            "counting attempts",
            "an FTP server cannot tell whose bytes are of an older one",
        ));
    }
    let mut session = remote.0.take()?;
    match DeliveryPlan::plan(&remote, &mut session, path, write) {
        Ok(plan) => Ok(Box::new(Delivering::new(remote, session, plan))),
        Err(error) => {
            let error = session.about(error, path);
            remote.0.give_back(session);
            Err(error)
        }
    }
}

/// A file on its way.
struct Delivering {
    remote: Remote,
    plan: DeliveryPlan,
    phase: RwLock<DeliverPhase>,
    told: Arc<ReplyListener>,
    given: Mutex<PutRanges>,
    turn: Condvar,
    leaves: Option<Mutex<Leaves>>,
    sums: Option<Mutex<AdlerParts>>,
    shown: Mutex<Extents>,
    /// The bytes of a small file for a node.
    kept: Option<Mutex<Vec<u8>>>,
    /// Another server sends it, so nothing is kept here.
    is_drawn: AtomicBool,
    is_published: bool,
}

/// The ranges that were put, and in stream mode the next offset.
#[derive(Default)]
struct PutRanges {
    bytes: Extents,
    /// In the transfer that is under way.
    now: Extents,
    next: Option<u64>,
    /// Another server sent some of it.
    is_drawn: bool,
}

enum DeliverPhase {
    Idle(Option<Box<RemoteSession>>),
    Moving(Box<MovingUpload>),
    Over,
}

struct MovingUpload {
    sending: FileSending<DataChannel, Arc<Watch>>,
    control: JoinHandle<(RemoteSession, Result<Reply>)>,
}

impl Delivering {
    fn new(remote: Remote, session: RemoteSession, plan: DeliveryPlan) -> Self {
        let sums = plan.sums(&session).then(Mutex::default);
        let leaves = plan.checks.blake3.then(|| Mutex::new(Leaves::new()));
        let said = UploadReplies {
            landed: plan.landed.clone(),
            ..UploadReplies::default()
        };
        Self {
            remote,
            phase: RwLock::new(DeliverPhase::Idle(Some(Box::new(session)))),
            told: Arc::new(ReplyListener {
                state: Mutex::new(said),
                ended: Condvar::new(),
                closing: Wake::new()
                    .expect("the process has file descriptors left: it has just got a socket"),
            }),
            given: Mutex::default(),
            turn: Condvar::new(),
            leaves,
            sums,
            shown: Mutex::default(),
            kept: plan.is_kept().then(Mutex::default),
            is_drawn: AtomicBool::new(false),
            plan,
            is_published: false,
        }
    }

    /// Begins a transfer, if none is under way.
    fn start(&self, first_offset: u64) -> Result<()> {
        let mut phase = self.phase.write();
        let DeliverPhase::Idle(idle) = &mut *phase else {
            return Ok(());
        };
        let mut session = match idle.take() {
            Some(session) => *session,
            None => self.remote.0.take()?,
        };
        match self.open(&mut session, first_offset) {
            Ok((mut sending, begun)) => {
                let gauge = sending.vary(&self.plan.width);
                let control = self.attend(session, sending_watch(&sending), gauge, begun)?;
                self.given.lock().now = Extents::new();
                *phase = DeliverPhase::Moving(Box::new(MovingUpload { sending, control }));
                Ok(())
            }
            Err(error) => {
                let error = session.about(error, &self.plan.path);
                self.remote.0.give_back(session);
                Err(error)
            }
        }
    }

    fn open(
        &self,
        session: &mut RemoteSession,
        first_offset: u64,
    ) -> Result<(FileSending<DataChannel, Arc<Watch>>, TransferStart)> {
        let plan = &self.plan;
        let watch = Arc::new(new_watch(&self.remote.0.options)?);
        let mut channel = session.open_data(
            Flow::Deliver,
            plan.mode(),
            plan.width.most(),
            Hosts::All,
            &watch,
        )?;
        let landed = self.told.state().landed.clone();
        let start = match plan.how {
            WriteMode::InPlace => first_offset,
            _ => landed.prefix(),
        };
        let mut lines = plan.commands(&landed, start)?;
        let transfer = lines.pop().expect("there is always one");
        for line in lines {
            let reply = session.ask_one(line)?;
            faults::check(&session.host, &plan.path, &reply)?;
        }
        session.say(&transfer)?;
        let begun = await_begin(
            session,
            &mut channel,
            &plan.path,
            self.remote.0.options.stall,
        )?;
        if plan.mode() == TransferMode::Stream {
            self.given.lock().next = Some(start);
        }
        let unchecked = Checks::default();
        Ok((
            FileSending::over(channel, plan.mode(), 0, unchecked, watch),
            begun,
        ))
    }

    /// Starts to listen to the server.
    fn attend(
        &self,
        session: RemoteSession,
        watch: Arc<Watch>,
        gauge: Gauge,
        begun: TransferStart,
    ) -> Result<JoinHandle<(RemoteSession, Result<Reply>)>> {
        {
            let mut said = self.told.state();
            (said.is_closing, said.is_broken_off) = (false, false);
            (said.has_ended, said.refusal) = (false, None);
            said.chains.clear();
        }
        self.told.closing.lower();
        let listening = Listening {
            is_ours: session.family() == Family::Godwit,
            session,
            told: self.told.clone(),
            part: Arc::downgrade(&self.plan.part),
            watch,
            gauge,
            options: self.remote.0.options.clone(),
        };
        thread::Builder::new()
            .name("godwit-control".into())
            .spawn(move || listening.until_final(begun))
            .map_err(|cause| Error::io("a thread", cause))
    }

    /// Waits until it is this block's turn: in stream mode bytes have no offsets.
    fn await_turn(&self, offset: u64) -> Result<()> {
        let patience = self.remote.0.options.stall;
        let began = Instant::now();
        let mut given = self.given.lock();
        while let Some(next) = given.next {
            if next == offset {
                return Ok(());
            }
            if next > offset || began.elapsed() > patience {
                return Err(Error::unsupported(
                    format!("writing at {offset} when the next byte is {next}"),
                    "this server takes bytes in order only",
                ));
            }
            self.turn.wait_for(&mut given, TURN);
        }
        Ok(())
    }

    fn keep(&self, kept: &mut Vec<u8>, block: Block<'_>) -> Result<()> {
        let range = block.range();
        if range.end > KEPT_MAX {
            return Err(Error::changed(
                self.plan.path.clone(),
                format!("it is longer than was said: byte {}", range.end),
            ));
        }
        let range = range.start as usize..range.end as usize;
        kept.resize(kept.len().max(range.end), 0);
        kept[range].copy_from_slice(block.bytes);
        Ok(())
    }

    fn hash(&self, block: Block<'_>) {
        if let Some(leaves) = &self.leaves {
            let piece = Piece::of(block);
            leaves.lock().add(piece);
        }
        if let Some(sums) = &self.sums {
            let part = AdlerPart::of(block);
            sums.lock().add(part);
        }
    }

    /// Has `send` send a range in its turn, beginning the transfer if none is under way.
    fn send(
        &self,
        range: Range<u64>,
        send: impl FnOnce(&FileSending<DataChannel, Arc<Watch>>) -> Result<()>,
    ) -> Result<()> {
        loop {
            let phase = self.phase.read();
            match &*phase {
                DeliverPhase::Moving(moving) => {
                    self.must_be_new(&range)?;
                    self.await_turn(range.start)?;
                    send(&moving.sending).map_err(|error| self.explained(error))?;
                    self.note_given(range);
                    return Ok(());
                }
                DeliverPhase::Over => {
                    return Err(Error::lost(
                        self.remote.0.host.clone(),
                        "writing",
                        std::io::ErrorKind::BrokenPipe,
                    ));
                }
                DeliverPhase::Idle(_) => {}
            }
            drop(phase);
            self.start(range.start)?;
        }
    }

    /// If bytes are sent twice over several connections, the server may write either last.
    fn must_be_new(&self, range: &Range<u64>) -> Result<()> {
        let is_in = |all: &Extents| all.within(range.clone()).next().is_some();
        if is_in(&self.given.lock().now) || is_in(&self.told.state().landed) {
            return Err(Error::unsupported(
                format!("sending bytes {} to {} again", range.start, range.end),
                "an FTP server may write the older ones last",
            ));
        }
        Ok(())
    }

    fn note_given(&self, range: Range<u64>) {
        let mut given = self.given.lock();
        given.now.insert(range.clone());
        given.bytes.insert(range.clone());
        if given.next.is_some() {
            given.next = Some(range.end);
            self.turn.notify_all();
        }
    }

    /// Returns the server's reason for a broken data connection, if its reply has one.
    fn explained(&self, error: Error) -> Error {
        let error = faults::about(error, &self.remote.0.host, &self.plan.path);
        if !matches!(
            error,
            Error::Lost { .. } | Error::Stalled { .. } | Error::Canceled
        ) {
            return error;
        }
        match self.told.refusal_within(EXPLAIN_MAX) {
            Some(reply) => {
                let refused = faults::check(&self.remote.0.host, &self.plan.path, &reply);
                refused.map_or_else(|refused| refused, |_| error)
            }
            // Our user did not cancel: the thread that reads the server's replies stopped the transfer.
            None if matches!(error, Error::Canceled)
                && self.remote.0.options.cancel.check().is_ok() =>
            {
                Error::lost(
                    self.remote.0.host.clone(),
                    "sending data",
                    std::io::ErrorKind::ConnectionAborted,
                )
            }
            None => error,
        }
    }

    /// Ends the transfer in progress, and takes the server's final reply.
    fn end_transfer(&self) -> Result<()> {
        let mut phase = self.phase.write();
        let moving = match std::mem::replace(&mut *phase, DeliverPhase::Over) {
            DeliverPhase::Moving(moving) => *moving,
            other => {
                *phase = other;
                return Ok(());
            }
        };
        let MovingUpload { sending, control } = moving;
        let ended = sending.end_with_channel();
        self.told.close();
        let ended = ended.map_err(|error| self.explained(error));
        let (mut session, last) = control.join().expect("listening does not panic");
        let (_, channel) = ended?;
        let reply = last.map_err(|error| session.about(error, &self.plan.path))?;
        if let Err(error) = faults::check(&session.host, &self.plan.path, &reply) {
            self.remote.0.give_back(session);
            *phase = DeliverPhase::Idle(None);
            return Err(error);
        }
        self.take_in(&reply);
        session.keep_data(
            channel,
            Flow::Deliver,
            self.plan.mode(),
            self.plan.width.most(),
            Hosts::All,
        );
        *phase = DeliverPhase::Idle(Some(Box::new(session)));
        Ok(())
    }

    /// Takes the landed ranges of the server's reply, without leaves that differ.
    fn take_in(&self, reply: &Reply) {
        let mut said = self.told.state();
        let given = self.given.lock().bytes.clone();
        let told = ReplyFacts::from_reply(reply).unwrap_or_default();
        match &told.done {
            Some(done) => said.landed = done.clone(),
            None => said.landed = said.landed.or(&given),
        }
        said.published = Some(told).filter(|told| told.published == Some(true));
        let Some(leaves) = &self.leaves else {
            return;
        };
        let leaves = leaves.lock();
        let size = self.plan.size.unwrap_or(said.landed.end());
        let chains = std::mem::take(&mut said.chains);
        for (leaf, chain) in chains {
            if leaves.chain(leaf, size).is_some_and(|ours| ours != chain) {
                let start = leaf.saturating_mul(LEAF_BYTES);
                said.landed.remove(start..start.saturating_add(LEAF_BYTES));
                self.given
                    .lock()
                    .bytes
                    .remove(start..start.saturating_add(LEAF_BYTES));
                tracing::info!(
                    leaf,
                    "a leaf differs from what was sent; it will be sent again"
                );
            }
        }
    }

    /// Sends an empty file, which no block announces.
    fn ensure_begun(&self) -> Result<()> {
        let nothing_came =
            self.given.lock().bytes.is_empty() && self.told.state().landed.is_empty();
        // In place, that could cut off the existing file.
        if nothing_came && (self.plan.how != WriteMode::InPlace || self.is_missing()?) {
            self.start(0)?;
        }
        Ok(())
    }

    fn is_missing(&self) -> Result<bool> {
        let mut session = self.session()?;
        let found = names::stat(&mut session, &self.plan.path, self.plan.file());
        let found = found.map_err(|error| session.about(error, &self.plan.path));
        *self.phase.write() = DeliverPhase::Idle(Some(Box::new(session)));
        match found {
            Ok(_) => Ok(false),
            Err(Error::Missing { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Sends a file that was kept here. Its digest is known before the first byte, so that
    /// one command sends and publishes the file, without a partial.
    fn finish_kept(&self, whole: &Expected, bytes: Vec<u8>) -> Result<Finished> {
        let path = &self.plan.path;
        if let Some(size) = whole.size {
            let missing = self.given.lock().bytes.missing(0..size);
            if !missing.is_empty() || bytes.len() as u64 > size {
                return Err(Error::incomplete(path.clone(), size, missing));
            }
        }
        if let Some(expected) = &whole.digest {
            let found = Digest::of(expected.algorithm(), &bytes);
            if found != *expected {
                return Err(Error::corrupt(
                    path.clone(),
                    expected.to_string(),
                    found.to_string(),
                ));
            }
        }
        let mut given = Some(crate::SmallWrite {
            path: path.clone(),
            bytes,
            how: match &self.plan.how {
                WriteMode::Replace(_) => WriteMode::Replace(None),
                how => how.clone(),
            },
            mtime: whole.mtime,
            mode: whole.mode.or(self.plan.mode),
        });
        let mut finished = None;
        self.remote
            .write_small(&mut || given.take(), &mut |_, outcome| {
                finished = Some(outcome);
            })?;
        finished.expect("each file is told once")
    }

    /// Replaces the target by an empty file, if the target is the expected version.
    fn finish_empty(&self, whole: &Expected) -> Result<Finished> {
        if let WriteMode::Replace(Some(version)) = &self.plan.how {
            let mut session = self.session()?;
            let checked = check_unchanged(&self.remote, &mut session, &self.plan, version);
            let checked = checked.map_err(|error| session.about(error, &self.plan.path));
            self.remote.0.give_back(session);
            checked?;
        }
        self.finish_kept(whole, Vec::new())
    }

    /// Tells whether the upload is an empty one to a node, which keeps no partial of an empty file.
    fn is_empty_for_ours(&self) -> bool {
        let nothing_came =
            self.given.lock().bytes.is_empty() && self.told.state().landed.is_empty();
        let is_whole = matches!(self.plan.how, WriteMode::New | WriteMode::Replace(_));
        self.plan.family == Family::Godwit && nothing_came && is_whole
    }

    fn digest_of_sent(&self, size: u64) -> Option<Digest> {
        let leaves = self.leaves.as_ref()?.lock();
        leaves.root(size)
    }

    fn session(&self) -> Result<RemoteSession> {
        let mut phase = self.phase.write();
        match std::mem::replace(&mut *phase, DeliverPhase::Over) {
            DeliverPhase::Idle(Some(session)) => Ok(*session),
            _ => self.remote.0.take(),
        }
    }

    /// Returns the buffer of a small file until its end, if the bytes pass through this process.
    fn kept(&self) -> Option<&Mutex<Vec<u8>>> {
        self.kept.as_ref().filter(|_| !self.is_drawn.load(Relaxed))
    }
}

impl BlockWriter for Delivering {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if block.bytes.is_empty() {
            return Ok(());
        }
        if let Some(kept) = &self.kept {
            self.keep(&mut kept.lock(), block)?;
            self.note_given(block.range());
            return Ok(());
        }
        self.send(block.range(), |sending| {
            self.hash(block);
            sending.put(block)
        })
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        let Some(leaves) = &self.leaves else {
            return Ok(());
        };
        let size = self.plan.size.unwrap_or(u64::MAX);
        let differs = leaves
            .lock()
            .chain(leaf, size)
            .is_some_and(|ours| ours != chain);
        if differs {
            let start = leaf.saturating_mul(LEAF_BYTES);
            let range = start..start.saturating_add(LEAF_BYTES);
            let mut given = self.given.lock();
            given.bytes.remove(range.clone());
            // The right bytes are sent later, and compared in the end.
            given.now.remove(range.clone());
            drop(given);
            self.told.state().landed.remove(range);
        }
        Ok(())
    }

    crate::has!(self, Fast);
}

impl crate::Fast for Delivering {
    fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
        if self.kept.is_some() {
            return self.put(file.block(range, buffer)?);
        }
        self.send(range.clone(), |sending| {
            if !sending.sends_pages() {
                let block = file.block(range, buffer)?;
                self.hash(block);
                return sending.put(block);
            }
            if self.leaves.is_some() || self.sums.is_some() {
                look(file, range.clone(), buffer, &mut |block| self.hash(block))?;
            }
            sending.write_from(file, range, buffer)
        })
    }

    fn put_known(
        &self,
        file: &LocalFile<'_>,
        known: (u64, Chain),
        buffer: &mut [u8],
    ) -> Result<()> {
        let range = leaf_range(known.0);
        let leaves = match &self.leaves {
            Some(leaves) if self.kept.is_none() && self.sums.is_none() => leaves,
            _ => return self.put_from(file, range, buffer),
        };
        self.send(range.clone(), |sending| match sending.sends_pages() {
            true => sending.write_from(file, range, buffer),
            false => sending.put(file.block(range, buffer)?),
        })?;
        leaves.lock().set_full(known.0, known.1);
        Ok(())
    }

    fn width(&self) -> Option<&Arc<Width>> {
        Some(&self.plan.width)
    }
}

impl Sink for Delivering {
    /// Returns the ranges that landed or are in flight; only [`Sink::settle`] waits for the server's reply.
    fn done(&self) -> Extents {
        self.told.state().landed.or(&self.given.lock().bytes)
    }

    fn settle(&self) -> Result<Extents> {
        if self.kept().is_some() {
            return Ok(self.given.lock().bytes.clone());
        }
        self.end_transfer()?;
        Ok(self.told.state().landed.clone())
    }

    fn commit(&self) -> Result<Extents> {
        self.settle()
    }

    fn finish(mut self: Box<Self>, whole: &Expected) -> Result<Finished> {
        if let Some(kept) = self.kept() {
            let bytes = std::mem::take(&mut *kept.lock());
            let finished = self.finish_kept(whole, bytes);
            self.is_published = finished.is_ok();
            return finished;
        }
        if self.is_empty_for_ours() {
            let finished = self.finish_empty(whole);
            self.is_published = finished.is_ok();
            return finished;
        }
        self.ensure_begun()?;
        let landed = self.settle()?;
        // In place the rest is there already, and a gap behind its end becomes zeros.
        if let Some(size) = whole.size
            && self.plan.how != WriteMode::InPlace
        {
            let missing = landed.missing(0..size);
            if !missing.is_empty() {
                return Err(Error::incomplete(self.plan.path.clone(), size, missing));
            }
        }
        let mut session = self.session()?;
        let finished = self.publish(&mut session, whole);
        let finished = finished.map_err(|error| session.about(error, &self.plan.path));
        self.remote.0.give_back(session);
        self.is_published = finished.is_ok();
        if self.is_published {
            self.plan.part.forget();
        }
        finished
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        self.stop();
        let mut session = self.remote.0.take()?;
        let plan = &self.plan;
        let line = match plan.family {
            Family::Godwit => plan.upload().abandon(&plan.name)?,
            _ if !plan.is_apart() => return Ok(()),
            _ => Line::new("DELE").bytes(plan.file())?,
        };
        // There may be nothing to forget.
        session.ask_one(line)?;
        self.told.state().landed = Extents::new();
        plan.part.forget();
        self.remote.0.give_back(session);
        Ok(())
    }

    crate::has!(self, SinkFacets: resume direct);
}

impl crate::Resume for Delivering {
    /// Returns the ranges that landed before, as long as their hashes are missing.
    fn unseen(&self) -> Extents {
        let (Some(size), true) = (self.plan.size, self.leaves.is_some() || self.sums.is_some())
        else {
            return Extents::new();
        };
        let given = self.given.lock().bytes.clone();
        let shown = self.shown.lock().clone();
        let before = self.plan.landed.minus(&given).minus(&shown);
        before.within(0..size).collect()
    }

    fn show(&self, block: Block<'_>) -> Result<()> {
        self.hash(block);
        self.shown.lock().insert(block.range());
        Ok(())
    }
}

impl crate::Direct for Delivering {
    fn draw(
        &self,
        source: &dyn Store,
        path: &Path,
        want: &Extents,
        _streams: usize, // as many as the width of the upload says
        on: &(dyn Fn(Range<u64>) + Sync),
    ) -> Result<Option<Read>> {
        // Two TLS servers would have to know each other. Data protected by a ticket has the keys of one session,
        // which no other server has.
        let is_for_us = |remote: &Remote| match remote.0.login {
            LoginKind::Tls => true,
            LoginKind::Ticket => remote.0.options.trust.level != Level::Clear,
            _ => false,
        };
        match Remote::of(source) {
            Some(source) if !is_for_us(source) && !is_for_us(&self.remote) => {
                let read = self.relay(source, path, want, on)?;
                self.is_drawn.store(read.is_some(), Relaxed);
                Ok(read)
            }
            _ => Ok(None),
        }
    }
}

impl Delivering {
    /// Breaks off, and waits for the server to notice. An attempt that follows at once can then resume.
    fn stop(&self) {
        let phase = std::mem::replace(&mut *self.phase.write(), DeliverPhase::Over);
        match phase {
            DeliverPhase::Moving(moving) => {
                let MovingUpload { sending, control } = *moving;
                drop(sending);
                self.told.break_off();
                self.told.refusal_within(NOTICE_MAX);
                if control.is_finished()
                    && let Ok((session, Ok(_))) = control.join()
                {
                    self.remote.0.give_back(session);
                }
            }
            DeliverPhase::Idle(Some(session)) => self.remote.0.give_back(*session),
            _ => {}
        }
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        self.stop();
        if !self.is_published {
            let landed = self.told.state().landed.clone();
            self.plan.part.note(&landed, NoteTiming::Now);
        }
    }
}

fn sending_watch(sending: &FileSending<DataChannel, Arc<Watch>>) -> Arc<Watch> {
    sending.watch().clone()
}

const TURN: Duration = Duration::from_millis(250);
/// How long a server may take to notice that we went away.
const NOTICE_MAX: Duration = Duration::from_secs(5);
/// A small file that turned out a little longer is still kept.
const KEPT_MAX: u64 = 2 * SMALL_BYTES;
