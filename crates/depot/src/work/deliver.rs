//! Delivers pending files to their targets.
//!
//! Some threads deliver, one file each at a time. Each sends what is pending until nothing is left to send, and parks the
//! conversation if the writer goes on. Servers that are away are tried again soon, and only once for all their files.

use crate::{
    Error, Result,
    clock::since_epoch,
    error::{is_shut, wants_directory, written_again},
    inner::Inner,
    plan::{
        Plan,
        backoff::{pause_after, server_away},
        delivery::{Requeued, Way},
        entry::{Asked, Entry, Parked},
        leftovers::Leftover,
        schedule::Due,
    },
    work::{
        checksums::{Known, is_compared_here},
        fetch::streams,
        probe::OURS,
    },
};
use godwit_core::{
    Digest, Fault, LEAF_BYTES, Version,
    holding::{Base, Mode, Publication, PublishOutcome, Push, Ticket},
};
use godwit_store::{
    BlockWriterExt, Error as StoreError, Expected, Finished, LocalFile, StoreExt, engine::Place,
};
use godwit_sys::{Buffer, crash};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fs::File,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The outcome of beginning an upload.
pub(crate) enum Begun {
    /// The upload goes on.
    Sink(Parked),
    /// The target has the generation already.
    There,
    /// Another generation is pending by now.
    Anew,
}

/// The outcome of an attempt to deliver.
enum Came {
    /// Nothing is left to send at the moment.
    Dry,
    /// The target has a generation more.
    Published,
}

/// Starts one of the threads that deliver.
pub(crate) fn start(depot: &Arc<Inner>, number: usize) -> Result<JoinHandle<()>> {
    let depot = Arc::clone(depot);
    let thread = thread::Builder::new().name(format!("mover {number}"));
    let root = depot.disk.root().to_owned();
    let started = thread.spawn(move || {
        while let Some(due) = depot.next_due() {
            match due {
                Due::File(entry) => depot.visit(&entry),
                Due::Deed(asked) => depot.attend(&asked),
            }
        }
    });
    started.map_err(Error::disk(root))
}

impl Inner {
    /// Waits for something to deliver; `None`: the depot ends.
    fn next_due(&self) -> Option<Due> {
        let mut plan = self.plan();
        loop {
            if self.is_ending() {
                return None;
            }
            let now = Instant::now();
            let later = match plan.next_leftover(now) {
                Ok(leftover) => {
                    drop(plan);
                    self.clear(leftover);
                    plan = self.plan();
                    continue;
                }
                Err(later) => later,
            };
            if let Some(nth) = plan
                .cleanup
                .unforgotten
                .iter()
                .position(|gone| gone.at <= now)
            {
                let gone = plan.cleanup.unforgotten.swap_remove(nth);
                drop(plan);
                self.forget_again(gone);
                plan = self.plan();
                continue;
            }
            if let Some((_, pause)) = plan.backoff.directories.take_if(|(at, _)| *at <= now) {
                drop(plan);
                self.look_for_directories(pause);
                plan = self.plan();
                continue;
            }
            let (due, until) = plan.pick(now, since_epoch().as_secs());
            let absent = plan.backoff.directories.map(|(at, _)| at);
            let until = until.into_iter().chain(later).chain(absent).min();
            if due.is_some() {
                return due;
            }
            let again = plan.cleanup.unforgotten.iter().map(|gone| gone.at).min();
            let until = until.into_iter().chain(again).min();
            match until {
                None => self.due.wait(&mut plan),
                Some(until) => {
                    let until = until.max(now + Duration::from_millis(1));
                    self.due.wait_until(&mut plan, until);
                }
            }
        }
    }

    /// Delivers what can be delivered now.
    fn visit(&self, entry: &Arc<Entry>) {
        // First of all: later events ask for another attempt.
        entry.lock().delivery.is_due = false;
        let server = entry.url().host_port();
        let came = self.deliver(entry);
        if let Ok(Came::Published) = came {
            let session = entry.lock().meta.session.clone();
            entry.who.audit("deliver", &entry.url(), &session);
        }
        let outcome = came.and_then(|came| match came {
            // Later writes are delivered in their turn.
            Came::Published if entry.lock().machine.owes() => {
                self.requeue_after_publish(entry, None)
            }
            _ => Ok(()),
        });
        tracing::debug!(url = %entry.url(), ?outcome, wants = entry.lock().delivery.is_due, "visited");
        match outcome {
            Ok(()) => self.went(entry, &server),
            Err(error) => self.failed(entry, &server, error),
        }
        entry.tell();
        // Later writes are due, and so are entries that waited for this one.
        self.nudge();
    }

    fn went(&self, entry: &Arc<Entry>, server: &str) {
        let mut state = entry.lock();
        state.delivery.retry.reset();
        let (is_clean, is_gone) = (!state.machine.owes(), state.is_gone);
        drop(state);
        self.plan().backoff.servers.remove(server);
        if !is_clean || is_gone {
            self.over(&mut self.plan(), entry, is_clean);
            return;
        }
        let mut was = None;
        loop {
            match self.delivered(entry) {
                Ok(before) => was = was.or(before),
                Err(error) => {
                    // Later operations wait until a row says that this one is done.
                    tracing::warn!(url = %entry.url(), %error, "that it was delivered cannot be recorded");
                    if let Some(was) = was {
                        self.plan().reroute(entry, was);
                    }
                    self.ended(entry);
                    entry.lock().delivery.is_due = true;
                    server_away(&mut self.plan(), server, error, &self.rules, Instant::now());
                    return;
                }
            }
            // Later writes have another place, and perhaps another name.
            let is_pending_again = entry.lock().machine.owes();
            if is_pending_again && let Err(error) = self.requeue_after_publish(entry, was.clone()) {
                return self.failed(entry, server, error);
            }
            let mut plan = self.plan();
            // After a rename the row says first that nothing more is sent under the old name.
            if !is_pending_again && entry.is_renamed() && !entry.lock().is_gone {
                continue;
            }
            let size = entry.lock().machine.size();
            plan.listings.delivered(&entry.url(), size);
            self.over(&mut plan, entry, true);
            return;
        }
    }

    /// Ends an attempt after which the entry is still pending.
    fn ended(&self, entry: &Arc<Entry>) {
        self.over(&mut self.plan(), entry, false);
    }

    fn over(&self, plan: &mut Plan, entry: &Arc<Entry>, was_clean: bool) {
        if plan.visited(entry, was_clean) {
            self.chores.record(entry.id);
        }
    }

    /// Requeues an entry that was written during its delivery, as [`Plan::requeue`] does. The row says so before any
    /// operation that waited for the delivery is done. `was`: the old place, if the row has a new one.
    fn requeue_after_publish(&self, entry: &Arc<Entry>, was: Option<Way>) -> Result<()> {
        let mut plan = self.plan();
        let before = match plan.requeue(entry, was.as_ref()) {
            Requeued::Unlinked => {
                drop(plan);
                let state = entry.lock();
                return match state.is_gone {
                    true => Ok(()),
                    false => self.unlink(entry, state),
                };
            }
            Requeued::Stays => return Ok(()),
            Requeued::Moved(before) => before,
        };
        drop(plan);
        if let Err(error) = entry.commit(self) {
            self.plan().reroute(entry, was.unwrap_or(before));
            return Err(error);
        }
        self.plan().requeued(entry);
        Ok(())
    }

    /// Persists that an entry is delivered; then it may be forgotten. Returns its old place, if its row has a new one.
    pub(crate) fn delivered(&self, entry: &Arc<Entry>) -> Result<Option<Way>> {
        let was = self.plan().reroute_renamed(entry);
        let state = entry.lock();
        // The rest of a file that was patched unseen may change at its target at any time.
        let is_blind = state.machine.is_blind();
        if (is_blind || !state.is_current()) && state.may_go_when_over() {
            return self.unlink(entry, state).map(|()| None);
        }
        drop(state);
        if is_blind {
            self.plan().hide_blind(entry);
        }
        let kept = entry.commit(self);
        if let (Err(_), Some(was)) = (&kept, &was) {
            self.plan().reroute(entry, was.clone());
        }
        kept.map(|()| was)
    }

    fn failed(&self, entry: &Arc<Entry>, server: &str, error: Error) {
        let said = error.of_store();
        let is_shut = said.is_some_and(is_shut);
        let is_ours = matches!(&error, Error::Disk { .. } | Error::Records { .. });
        // The target lost bytes that had landed: the next attempt asks what it has, and sends the rest. If that does not
        // help, the file or its directory is missing.
        let above = self.above_missing(&error, &entry.url(), &entry.who);
        let is_short = match said {
            Some(StoreError::Incomplete { .. }) => true,
            _ => entry
                .lock()
                .delivery
                .retry
                .patience
                .may_be_there(&error, above),
        };
        // The bytes here are right, so the target's part is wrong: all of it is sent anew.
        let is_spoilt = entry
            .lock()
            .delivery
            .retry
            .patience
            .may_be_sent_anew(&error);
        let is_troubled =
            (entry.lock().delivery.retry.patience).may_pass(&error, self.rules.trouble_max);
        let may_pass = is_shut || is_short || is_spoilt || is_troubled;
        let is_lasting = error.fault_since(entry.created_at) == Fault::Lasting && !may_pass;
        let why = is_lasting.then(|| {
            (
                self.why_on_hold(entry, &error),
                reason_of(entry, &error, above),
            )
        });
        let mut plan = self.plan();
        let mut state = entry.lock();
        state.machine.lost();
        let sink = state.delivery.upload.parked.take();
        state.delivery.upload.is_spoilt |= is_spoilt;
        state.delivery.retry.failed(error.clone());
        // The hold comes before the end of the attempt: another attempt would begin in between.
        let is_held = match why {
            Some((why, reason)) if !state.is_gone && !self.is_ending() => {
                state.delivery.reason = reason;
                state.machine.hold(why);
                state.record.change();
                // A newer entry has its name: this one is forgotten once it has no user.
                state.delivery.is_due = state.is_superseded;
                true
            }
            _ => false,
        };
        drop(state);
        self.over(&mut plan, entry, false);
        drop((plan, sink));
        let mut state = entry.lock();
        if state.is_gone || self.is_ending() {
            return;
        }
        tracing::info!(url = %entry.url(), %error, is_lasting, "not delivered");
        if is_held {
            let is_private = state.is_private();
            drop(state);
            if is_private {
                return; // It is on record with its end, or never.
            }
            self.plan().look_for_directories_soon(Instant::now());
            if let Err(error) = entry.commit(self) {
                tracing::warn!(%error, url = %entry.url(), "that it is held cannot be recorded");
            }
            // The entry that replaced it meanwhile found it in flight.
            if let Err(error) = self.give_way(entry) {
                tracing::warn!(%error, url = %entry.url(), "it is held, and something newer has its name");
            }
            return;
        }
        state.delivery.is_due = true;
        // The server is well: other entries are delivered meanwhile.
        if is_shut || is_ours || is_spoilt || is_troubled || above.is_some() {
            state.delivery.retry.not_before =
                Some(Instant::now() + pause_after(state.delivery.retry.tries));
            return;
        }
        drop(state);
        server_away(&mut self.plan(), server, error, &self.rules, Instant::now());
    }

    /// Does one attempt to deliver an entry.
    fn deliver(&self, entry: &Arc<Entry>) -> Result<Came> {
        if self.give_way(entry)? {
            return Ok(Came::Dry);
        }
        if !entry.lock().machine.owes() {
            return Ok(Came::Dry);
        }
        let place = (self.connect)(&entry.url(), &entry.who)?;
        if self.waits_for_the_end(entry, &place)? {
            return Ok(Came::Dry);
        }
        let is_in_place = entry.lock().machine.mode() == Mode::InPlace;
        if is_in_place && !self.plan().order.is_turn(entry) {
            entry.lock().delivery.is_due = true;
            return Ok(Came::Dry);
        }
        self.leave_others(entry);
        self.enter(entry, &place)?;
        if entry.lock().is_to_be_entered() {
            return Ok(Came::Dry); // A part there would be taken for another program's file.
        }
        let sink = match self.begun(entry, &place)? {
            Begun::Sink(sink) => sink,
            Begun::There => return Ok(Came::Published),
            Begun::Anew => return Ok(Came::Dry),
        };
        self.send(entry, &place, &sink)?;
        let plan = self.plan();
        let mut state = entry.lock();
        let is_turn = plan.may_publish(entry, &state);
        if state.is_gone {
            drop((state, plan));
            self.plan()
                .cleanup
                .leftovers
                .push(Leftover::Open(sink.sink));
            return Ok(Came::Dry);
        }
        // With a user it stays, and is delivered as if no newer entry had come.
        if state.is_superseded && state.users.open == 0 && !state.machine.is_asked() {
            state.delivery.upload.parked = Some(sink);
            drop((state, plan));
            self.give_way(entry)?;
            return Ok(Came::Dry);
        }
        // Its writer may have closed it since it was sent ahead, or a new writer may have opened it.
        let is_of = sink.is_of(entry, &state.machine);
        // The request fixes its place; no thread moves it before that.
        let publication = match is_turn && is_of {
            true => state.machine.publish(),
            false => None,
        };
        state.delivery.is_due |= !is_of;
        let Some(publication) = publication else {
            tracing::debug!(url = %entry.url(), is_turn, is_of, machine = ?state.machine, "nothing is left to send, and it is not published yet");
            state.delivery.upload.parked = Some(sink);
            return Ok(Came::Dry);
        };
        let sealed = (
            state.record.changes,
            state.bytes.leaves.root(publication.size),
        );
        drop((state, plan));
        crash::point("publish-sealed");
        self.note_asked(entry, &publication, sealed)?;
        entry.commit(self)?;
        crash::point("publish-recorded");
        self.publish(entry, &place, sink, &publication)?;
        Ok(Came::Published)
    }

    /// Tells whether to wait for the writer: the target cannot take back what it was sent.
    fn waits_for_the_end(&self, entry: &Entry, place: &Place) -> Result<bool> {
        if entry.lock().machine.writers().is_none() || place.store.can()?.again {
            return Ok(false);
        }
        let mut state = entry.lock();
        let is_open = state.machine.sending() == state.machine.generation()
            && state.machine.writers().is_some();
        state.delivery.upload.waits_for_writer = is_open;
        if is_open {
            state.delivery.is_due = false;
        }
        Ok(is_open)
    }

    /// Sends pending bytes until none is left at the moment. Landed bytes are durable at the target.
    fn send(&self, entry: &Entry, place: &Place, to: &Parked) -> Result<()> {
        loop {
            let on_their_way = self.send_some(entry, streams(place), to)?;
            if on_their_way.is_empty() {
                return Ok(());
            }
            let safe = to.sink.commit()?;
            crash::point("push-sent");
            let mut state = entry.lock();
            let mut short = Vec::new();
            for (ticket, range) in on_their_way {
                match safe.contains(&range) {
                    true => state.machine.landed(ticket),
                    false => short.push(range),
                }
            }
            drop(state);
            entry.tell();
            if !short.is_empty() {
                // A target that compares hashes may have refused damaged bytes.
                for range in short.into_iter().filter(|_| to.compares) {
                    self.search_rot_in(entry, range)?;
                }
                // The next attempt asks the target what it has.
                return Err(StoreError::lost(
                    entry.url().host_port(),
                    "sending",
                    std::io::Error::other("not all that was sent has landed"),
                )
                .into());
            }
        }
    }

    /// Sends up to a bound, over several streams if there is much.
    fn send_some(
        &self,
        entry: &Entry,
        streams: usize,
        to: &Parked,
    ) -> Result<BTreeMap<Ticket, Range<u64>>> {
        let file = self.disk.reader(entry.id)?;
        let (sent, budget) = (Mutex::new(BTreeMap::new()), AtomicU64::new(COMMIT_EVERY));
        let pending = entry.lock().machine.owed_bytes();
        let one = || -> Result<()> {
            let mut buffer = Buffer::take();
            while budget.load(Relaxed) > 0 && !self.is_ending() {
                let Some(push) = self.next_push(entry) else {
                    return Ok(());
                };
                let len = push.range.end - push.range.start;
                budget.fetch_sub(len.min(budget.load(Relaxed)), Relaxed);
                if !self.put(entry, &file, &push, to, &mut buffer)? {
                    return Ok(());
                }
                sent.lock().insert(push.ticket, push.range);
            }
            Ok(())
        };
        let many = streams.min(usize::try_from(pending / LEAF_BYTES).unwrap_or(1));
        match many > 1 {
            false => one()?,
            true => thread::scope(|scope| {
                let others: Vec<_> = (1..many).map(|_| scope.spawn(one)).collect();
                let mut outcome = one();
                for other in others {
                    let theirs = other.join().unwrap_or(Err(Error::Ending));
                    outcome = outcome.and(theirs);
                }
                outcome
            })?,
        }
        if self.is_ending() {
            return Err(Error::Ending);
        }
        Ok(sent.into_inner())
    }

    fn put(
        &self,
        entry: &Entry,
        file: &File,
        push: &Push,
        to: &Parked,
        buffer: &mut Buffer,
    ) -> Result<bool> {
        let (url, sink) = (entry.url(), &*to.sink);
        if let Some(once) = &to.once {
            let mut once = once.lock();
            if once.within(push.range.clone()).next().is_some() {
                return Err(written_again(&url).into());
            }
            once.insert(push.range.clone());
        }
        let path = url.as_path();
        let lying = LocalFile { path, file };
        // While a writer goes on, the bytes and their hash must be of one reading.
        let state = entry.lock();
        let (is_written, is_unseen) =
            (state.machine.writers().is_some(), state.machine.is_unseen());
        drop(state);
        let known = Known::of(entry, &push.range);
        let is_read_here = is_written || is_unseen || is_compared_here(entry, to);
        let sent = match (is_read_here, known) {
            (true, _) => match lying.block(push.range.clone(), buffer) {
                Ok(block) => {
                    self.compare(entry, block)?;
                    if !self.may_be_sent(entry, block, is_unseen) {
                        entry.lock().machine.unread(push.ticket);
                        return Ok(false);
                    }
                    sink.put(block)
                }
                Err(error) => Err(error),
            },
            (false, Some(known)) => self.put_known(entry, &lying, (&push.range, known), to, buffer),
            (false, None) => sink.put_from(&lying, push.range.clone(), buffer),
        };
        match sent {
            Ok(()) => Ok(true),
            Err(StoreError::Changed { .. }) => {
                // Its writer cut it; the next look finds its size.
                entry.lock().machine.unread(push.ticket);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a leaf with the hash that it had when it was written, without hashing it again. The target compares.
    fn put_known(
        &self,
        entry: &Entry,
        lying: &LocalFile<'_>,
        (range, known): (&Range<u64>, Known),
        to: &Parked,
        buffer: &mut [u8],
    ) -> godwit_store::Result<()> {
        let leaf = range.start / LEAF_BYTES;
        to.sink.put_known(lying, (leaf, known.chain()), buffer)?;
        // If it was written meanwhile the hash is unknown: it is sent again, as it is now.
        match (Known::of(entry, range) == Some(known), &to.once) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(written_again(&entry.url())),
            (false, None) => to.sink.put_from(lying, range.clone(), buffer),
        }
    }

    fn next_push(&self, entry: &Entry) -> Option<Push> {
        let mut state = entry.lock();
        if state.is_gone {
            return None;
        }
        // While a writer goes on, few bytes wait for more.
        let is_open = state.machine.writers().is_some();
        let waits = is_open && state.machine.pushable_bytes() < state.least();
        match waits {
            true => None,
            false => state.machine.push(LEAF_BYTES),
        }
    }

    /// Notes the generation that the target is about to be asked to publish, for the row: after a restart the entry may be
    /// longer. `sealed`: the number of changes when it was sealed, and its hash then.
    fn note_asked(
        &self,
        entry: &Entry,
        asked: &Publication,
        sealed: (u64, Option<Digest>),
    ) -> Result<()> {
        self.know(entry)?;
        let mut state = entry.lock();
        // Of a file that is changed in place only parts may be present.
        let is_whole = state.machine.is_whole() && !state.machine.is_blind();
        // Later writes are of the next generation.
        let digest = match sealed {
            (changes, _) if changes == state.record.changes => state.bytes.leaves.root(asked.size),
            (_, digest) => digest,
        };
        state.delivery.upload.asked = Some(Asked {
            generation: asked.generation,
            size: asked.size,
            digest: digest.filter(|_| is_whole),
        });
        state.record.change();
        Ok(())
    }

    /// Asks the target to publish a generation.
    fn publish(
        &self,
        entry: &Entry,
        place: &Place,
        parked: Parked,
        asked: &Publication,
    ) -> Result<()> {
        let state = entry.lock();
        let is_blind = state.machine.is_blind();
        let noted = state.delivery.upload.asked.as_ref();
        let digest = noted.and_then(|noted| noted.digest.clone());
        drop(state);
        let whole = Expected {
            size: (!is_blind).then_some(asked.size),
            digest: digest.clone(),
            ..Expected::default()
        };
        // An error after the request would count as a lost answer.
        let passes_on = place.store.can()?.passes_on;
        crash::point("publish-asked");
        let finished = parked.sink.finish(&whole);
        let answer = match finished.and_then(|finished| {
            place.store.flush(&place.path)?;
            Ok(finished)
        }) {
            Ok(finished) => {
                let version = match version_of(&finished, digest) {
                    Version::None => place.store.stat(&place.path)?.version(since_epoch()),
                    version => version,
                };
                PublishOutcome::Published(version)
            }
            Err(error) => {
                // Other bytes arrived there: either the disk damaged ours, or the way did.
                if matches!(error, StoreError::Corrupt { .. }) {
                    self.search_rot(entry)?;
                }
                return Err(error.into());
            }
        };
        crash::point("published");
        let mut state = entry.lock();
        (state.meta.is_forwarded, state.validity.is_changed_at_target) =
            (passes_on, entry.is_renamed());
        state.machine.answered(asked.attempt, answer);
        state.delivery.upload.sent_as = None;
        state.delivery.delivered = asked.generation;
        state.validity.unsee();
        state.validity.revalidated(Instant::now());
        state.record.change();
        Ok(())
    }

    /// Forgets a superseded entry, unless it is used or in flight. Returns whether it gave way.
    fn give_way(&self, entry: &Entry) -> Result<bool> {
        let state = entry.lock();
        let may = state.is_superseded && state.users.open == 0 && !state.machine.is_asked();
        if may && !state.is_gone {
            self.unlink(entry, state)?;
        }
        Ok(may)
    }
}

/// Returns the version that the target has now: its digest, if that is known.
fn version_of(finished: &Finished, ours: Option<godwit_core::Digest>) -> Version {
    let theirs = finished.digests.iter().find(|d| d.algorithm() == OURS);
    match theirs.cloned().or(ours) {
        Some(digest) => Version::Strong(digest),
        None => finished.version.clone(),
    }
}

/// Returns the reason of a hold, for users.
fn reason_of(entry: &Entry, error: &Error, above: Option<usize>) -> String {
    let is_to_be_there = matches!(entry.lock().machine.base(), Base::Seen(_));
    match entry.url().parent() {
        Some(directory) if !is_to_be_there && above.is_some_and(|levels| levels > 1) => {
            wants_directory(&directory)
        }
        _ => (error.wants_proof()).unwrap_or_else(|| error.to_string()),
    }
}

/// How many bytes are sent before the target is asked to make them durable.
const COMMIT_EVERY: u64 = 64 << 20;
