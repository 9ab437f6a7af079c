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
        all::All,
        backoff::{pause_after, server_away},
        entry::{Asked, Held, Parked},
        leftovers::Leftover,
        schedule::Due,
        state::State,
    },
    work::{
        checksums::{Known, is_compared_here},
        fetch::streams,
        probe::OURS,
    },
};
use godwit_core::{
    Digest, Fault, LEAF_BYTES, Url, Version,
    holding::{Answer, Base, Mode, Publication, Push, Ticket},
};
use godwit_store::{
    Error as StoreError, Finished, LocalFile, StoreExt, TakeExt, Whole, engine::Place,
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

/// What became of the beginning of a conversation.
pub(crate) enum Begun {
    /// It goes on.
    Sink(Parked),
    /// The target has the generation already.
    There,
    /// What is owed is another generation by now.
    Anew,
}

/// Where something goes, and when: its place in the order. As long as it is promised that is as it was promised.
type Way = (Url, u64);

/// How far a visit at the target came.
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
                Due::File(held) => depot.visit(&held),
                Due::Deed(asked) => depot.attend(&asked),
            }
        }
    });
    started.map_err(Error::disk(root))
}

impl All {
    /// Tells whether it ended while it was delivered, and nothing that has to do with its name came after that.
    fn gets_another_place(&self, held: &Held, state: &State) -> bool {
        let is_last_since = |place| {
            let all = &self.promises;
            !all.is_passed_after(held, place) && !all.is_followed_after(held, place)
        };
        state.delivery.next_place.is_some_and(is_last_since)
    }
}

impl Inner {
    /// Waits for something to deliver; `None`: the depot ends.
    fn next_due(&self) -> Option<Due> {
        let mut all = self.all();
        loop {
            if self.is_ending() {
                return None;
            }
            let later = match all.next_leftover() {
                Ok(leftover) => {
                    drop(all);
                    self.clear(leftover);
                    all = self.all();
                    continue;
                }
                Err(later) => later,
            };
            let now = Instant::now();
            if let Some(nth) = all
                .cleanup
                .unforgotten
                .iter()
                .position(|gone| gone.at <= now)
            {
                let gone = all.cleanup.unforgotten.swap_remove(nth);
                drop(all);
                self.forget_again(gone);
                all = self.all();
                continue;
            }
            if let Some((_, pause)) = all.backoff.directories.take_if(|(at, _)| *at <= now) {
                drop(all);
                self.look_for_directories(pause);
                all = self.all();
                continue;
            }
            let (due, until) = all.pick();
            let absent = all.backoff.directories.map(|(at, _)| at);
            let until = until.into_iter().chain(later).chain(absent).min();
            if due.is_some() {
                return due;
            }
            let again = all.cleanup.unforgotten.iter().map(|gone| gone.at).min();
            let until = until.into_iter().chain(again).min();
            match until {
                None => self.due.wait(&mut all),
                Some(until) => {
                    let until = until.max(now + Duration::from_millis(1));
                    self.due.wait_until(&mut all, until);
                }
            }
        }
    }

    /// Delivers what can be delivered now.
    fn visit(&self, held: &Arc<Held>) {
        // Before anything is looked at: what happens from now on asks for another visit.
        held.lock().delivery.is_due = false;
        let server = held.url().host_port();
        let came = self.deliver(held);
        if let Ok(Came::Published) = came {
            let session = held.lock().meta.session.clone();
            held.who.audit("deliver", &held.url(), &session);
        }
        let outcome = came.and_then(|came| match came {
            // What was written since comes in its turn.
            Came::Published if held.lock().machine.owes() => self.requeue_after_publish(held, None),
            _ => Ok(()),
        });
        tracing::debug!(url = %held.url(), ?outcome, wants = held.lock().delivery.is_due, "visited");
        match outcome {
            Ok(()) => self.went(held, &server),
            Err(error) => self.failed(held, &server, error),
        }
        held.tell();
        // What was written meanwhile, and whatever waited for this one.
        self.nudge();
    }

    fn went(&self, held: &Arc<Held>, server: &str) {
        let mut state = held.lock();
        state.delivery.retry.reset();
        let (is_clean, is_gone) = (!state.machine.owes(), state.is_gone);
        drop(state);
        self.all().backoff.servers.remove(server);
        if !is_clean || is_gone {
            self.over(&mut self.all(), held, is_clean);
            return;
        }
        let mut was = None;
        loop {
            match self.delivered(held) {
                Ok(before) => was = was.or(before),
                Err(error) => {
                    // Whatever waits for it is not done before a record says that this was.
                    tracing::warn!(url = %held.url(), %error, "that it was delivered cannot be recorded");
                    if let Some(was) = was {
                        self.all().reroute(held, was);
                    }
                    self.ended(held);
                    held.lock().delivery.is_due = true;
                    server_away(&mut self.all(), server, error, &self.rules);
                    return;
                }
            }
            // Somebody may have written meanwhile: that has another place, and maybe another name.
            let owes_again = held.lock().machine.owes();
            if owes_again && let Err(error) = self.requeue_after_publish(held, was.clone()) {
                return self.failed(held, server, error);
            }
            let mut all = self.all();
            // Or renamed it: under the old name nothing of it is to come there any more, and the record says so first.
            if !owes_again && held.is_renamed() && !held.lock().is_gone {
                continue;
            }
            let size = held.lock().machine.size();
            all.listings.delivered(&held.url(), size);
            self.over(&mut all, held, true);
            return;
        }
    }

    /// A visit is over, and something is still owed.
    fn ended(&self, held: &Arc<Held>) {
        self.over(&mut self.all(), held, false);
    }

    fn over(&self, all: &mut All, held: &Arc<Held>, was_clean: bool) {
        let mut state = held.lock();
        let is_clean = was_clean && !state.machine.owes();
        let is_asked = state.machine.is_asked();
        state.delivery.is_in_flight = false;
        if is_clean {
            state.delivery.next_place = None;
        }
        drop(state);
        match is_clean {
            true => all.settle(held),
            false => all.promises.visited(held, is_asked),
        }
        // What ended last did so meanwhile.
        if !is_asked && all.gets_another_place(held, &held.lock()) {
            self.move_to_end_in(all, held);
            held.lock().delivery.is_due = true;
            self.chores.record(held.id);
        }
    }

    /// The target has a generation, and lacks what was written since: that comes after all that was
    /// promised meanwhile, under the name that the file has by now. The record says so before anything
    /// that waited for this is done. `was`: where it went, if its record says otherwise already.
    fn requeue_after_publish(&self, held: &Arc<Held>, was: Option<Way>) -> Result<()> {
        let mut all = self.all();
        let state = held.lock();
        if state.is_unlinked() {
            drop(all);
            // That is for those only who have it open, and they keep it: there its name is removed next.
            return self.unlink(held, state);
        }
        drop(state);
        // Its place stays before what is newer, or it would come over that.
        let is_followed = all.promises.is_followed(held);
        let mut state = held.lock();
        let is_followed = is_followed && !all.gets_another_place(held, &state);
        if state.is_superseded || is_followed {
            state.delivery.is_due = true;
            drop(state);
            if let Some(was) = was {
                all.reroute(held, was);
            }
            return Ok(());
        }
        drop(state);
        let before = all.reroute(held, (held.name(), self.next_number()));
        drop(all);
        if let Err(error) = held.commit(self) {
            self.all().reroute(held, was.unwrap_or(before));
            return Err(error);
        }
        let mut all = self.all();
        all.promises.forget(held.id);
        let mut state = held.lock();
        state.delivery.is_due = true;
        state.delivery.next_place = None;
        let is_owed = state.machine.owes() && !state.is_gone;
        let base = state.machine.base().clone();
        drop(state);
        match is_owed {
            true => all.promises.publish(held, base),
            // Meanwhile it was given up, or nobody had written anything.
            false => drop(all.owing.remove(&held.number())),
        }
        Ok(())
    }

    /// The records learn that nothing is owed; then it may be forgotten. Returns where it went, if its record says
    /// otherwise from now on.
    pub(crate) fn delivered(&self, held: &Arc<Held>) -> Result<Option<Way>> {
        let mut all = self.all();
        let was = held
            .is_renamed()
            .then(|| all.reroute(held, (held.name(), self.next_number())));
        drop(all);
        let state = held.lock();
        // Of what went into a file that nobody looked at, nobody knows any more what others make of it.
        let is_blind = state.machine.is_blind();
        if (is_blind || !state.is_current()) && state.may_go_when_over() {
            return self.unlink(held, state).map(|()| None);
        }
        drop(state);
        if is_blind {
            let mut all = self.all();
            let mut state = held.lock();
            // Whoever puts more into it has it be what its name says.
            let is_over = state.machine.writers().is_none() && !state.machine.owes();
            if is_over {
                state.hide();
                all.remove_current(held);
            }
        }
        let kept = held.commit(self);
        if let (Err(_), Some(was)) = (&kept, &was) {
            self.all().reroute(held, was.clone());
        }
        kept.map(|()| was)
    }

    fn failed(&self, held: &Arc<Held>, server: &str, error: Error) {
        let said = error.of_store();
        let is_shut = said.is_some_and(is_shut);
        let is_ours = matches!(&error, Error::Disk { .. } | Error::Records { .. });
        // What landed there is not there any more: it is asked for what it has, and gets the rest. That may be the whole
        // file, or the partial of it; that there never was one, nor a directory for it, is seen when that has not helped.
        let above = self.above_missing(&error, &held.url(), &held.who);
        let is_short = match said {
            Some(StoreError::Incomplete { .. }) => true,
            _ => held
                .lock()
                .delivery
                .retry
                .patience
                .may_be_there(&error, above),
        };
        // Ours are those that were written: what lies there is something else, and all of it is sent anew.
        let is_spoilt = held.lock().delivery.retry.patience.may_be_sent_anew(&error);
        let is_troubled =
            (held.lock().delivery.retry.patience).may_pass(&error, self.rules.trouble_max);
        let may_pass = is_shut || is_short || is_spoilt || is_troubled;
        let is_lasting = error.fault_since(held.born) == Fault::Lasting && !may_pass;
        let why = is_lasting.then(|| (self.why_held(held, &error), words_of(held, &error, above)));
        let mut all = self.all();
        let mut state = held.lock();
        state.machine.lost();
        let sink = state.delivery.upload.parked.take();
        state.delivery.upload.is_spoilt |= is_spoilt;
        state.delivery.retry.failed(error.clone());
        // The hold comes before the end of the attempt: another attempt would begin in between.
        let is_held = match why {
            Some((why, words)) if !state.is_gone && !self.is_ending() => {
                state.delivery.reason = words;
                state.machine.hold(why);
                state.record.change();
                // Something newer has its name: it gives way once nobody uses it.
                state.delivery.is_due = state.is_superseded;
                true
            }
            _ => false,
        };
        drop(state);
        self.over(&mut all, held, false);
        drop((all, sink));
        let mut state = held.lock();
        if state.is_gone || self.is_ending() {
            return;
        }
        tracing::info!(url = %held.url(), %error, is_lasting, "not delivered");
        if is_held {
            let is_private = state.is_private();
            drop(state);
            if is_private {
                return; // It is on record with its end, or never.
            }
            self.all().look_for_directories_soon();
            if let Err(error) = held.commit(self) {
                tracing::warn!(%error, url = %held.url(), "that it is held cannot be recorded");
            }
            // What came in its place meanwhile found it in use.
            if let Err(error) = self.give_way(held) {
                tracing::warn!(%error, url = %held.url(), "it is held, and something newer has its name");
            }
            return;
        }
        state.delivery.is_due = true;
        // One that is well, and lacks something, is there for all else.
        if is_shut || is_ours || is_spoilt || is_troubled || above.is_some() {
            state.delivery.retry.not_before =
                Some(Instant::now() + pause_after(state.delivery.retry.tries));
            return;
        }
        drop(state);
        server_away(&mut self.all(), server, error, &self.rules);
    }

    /// One conversation, or a part of it, with the target of a file.
    fn deliver(&self, held: &Arc<Held>) -> Result<Came> {
        if self.give_way(held)? {
            return Ok(Came::Dry);
        }
        if !held.lock().machine.owes() {
            return Ok(Came::Dry);
        }
        let place = (self.connect)(&held.url(), &held.who)?;
        if self.waits_for_the_end(held, &place)? {
            return Ok(Came::Dry);
        }
        let is_in_place = held.lock().machine.mode() == Mode::InPlace;
        if is_in_place && !self.all().promises.is_turn(held) {
            held.lock().delivery.is_due = true;
            return Ok(Came::Dry);
        }
        self.leave_others(held);
        self.enter(held, &place)?;
        if held.lock().is_to_be_entered() {
            return Ok(Came::Dry); // What is begun there would be found there, and taken for somebody else's.
        }
        let sink = match self.begun(held, &place)? {
            Begun::Sink(sink) => sink,
            Begun::There => return Ok(Came::Published),
            Begun::Anew => return Ok(Came::Dry),
        };
        self.send(held, &place, &sink)?;
        let all = self.all();
        let mut state = held.lock();
        // What the target was asked for already has its place.
        let is_placed = state.machine.is_asked() || !all.gets_another_place(held, &state);
        let is_turn = all.promises.is_turn(held) && is_placed;
        if state.is_gone {
            drop((state, all));
            self.all().cleanup.leftovers.push(Leftover::Open(sink.sink));
            return Ok(Came::Dry);
        }
        // Who has it open keeps it, and then it is delivered as if nothing had come after it.
        if state.is_superseded && state.users.open == 0 && !state.machine.is_asked() {
            state.delivery.upload.parked = Some(sink);
            drop((state, all));
            self.give_way(held)?;
            return Ok(Came::Dry);
        }
        // Its writer may have ended since it was sent ahead; or somebody began to write, and it is part of what they do.
        let is_of = sink.is_of(held, &state.machine);
        // Once it is asked for its place is fixed: until then nobody gives it another.
        let publication = match is_turn && is_of {
            true => state.machine.publish(),
            false => None,
        };
        state.delivery.is_due |= !is_of;
        let Some(publication) = publication else {
            tracing::debug!(url = %held.url(), is_turn, is_of, machine = ?state.machine, "nothing is left to send, and it is not published yet");
            state.delivery.upload.parked = Some(sink);
            return Ok(Came::Dry);
        };
        let sealed = (
            state.record.changes,
            state.bytes.leaves.root(publication.size),
        );
        drop((state, all));
        crash::point("publish-sealed");
        self.note_asked(held, &publication, sealed)?;
        held.commit(self)?;
        crash::point("publish-recorded");
        self.publish(held, &place, sink, &publication)?;
        Ok(Came::Published)
    }

    /// A target that cannot take back what it was sent gets a file once its writer has ended.
    fn waits_for_the_end(&self, held: &Held, place: &Place) -> Result<bool> {
        if held.lock().machine.writers().is_none() || place.store.can()?.again {
            return Ok(false);
        }
        let mut state = held.lock();
        let is_open = state.machine.sending() == state.machine.generation()
            && state.machine.writers().is_some();
        state.delivery.upload.waits_for_writer = is_open;
        if is_open {
            state.delivery.is_due = false;
        }
        Ok(is_open)
    }

    /// Sends what is owed, until there is nothing to send at the moment; what is landed then would
    /// survive a crash of the target.
    fn send(&self, held: &Held, place: &Place, to: &Parked) -> Result<()> {
        loop {
            let on_their_way = self.send_some(held, streams(place), to)?;
            if on_their_way.is_empty() {
                return Ok(());
            }
            let safe = to.sink.commit()?;
            crash::point("push-sent");
            let mut state = held.lock();
            let mut short = Vec::new();
            for (ticket, range) in on_their_way {
                match safe.contains(&range) {
                    true => state.machine.landed(ticket),
                    false => short.push(range),
                }
            }
            drop(state);
            held.tell();
            if !short.is_empty() {
                // Where the target compares, it may be because they are not what they were.
                for range in short.into_iter().filter(|_| to.compares) {
                    self.search_rot_in(held, range)?;
                }
                // What the target does not have any more is found by asking it.
                return Err(StoreError::lost(
                    held.url().host_port(),
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
        held: &Held,
        streams: usize,
        to: &Parked,
    ) -> Result<BTreeMap<Ticket, Range<u64>>> {
        let file = self.disk.reader(held.id)?;
        let (sent, budget) = (Mutex::new(BTreeMap::new()), AtomicU64::new(COMMIT_EVERY));
        let owed = held.lock().machine.owed_bytes();
        let one = || -> Result<()> {
            let mut buffer = Buffer::take();
            while budget.load(Relaxed) > 0 && !self.is_ending() {
                let Some(push) = self.next_push(held) else {
                    return Ok(());
                };
                let len = push.range.end - push.range.start;
                budget.fetch_sub(len.min(budget.load(Relaxed)), Relaxed);
                if !self.put(held, &file, &push, to, &mut buffer)? {
                    return Ok(());
                }
                sent.lock().insert(push.ticket, push.range);
            }
            Ok(())
        };
        let many = streams.min(usize::try_from(owed / LEAF_BYTES).unwrap_or(1));
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
        held: &Held,
        file: &File,
        push: &Push,
        to: &Parked,
        buffer: &mut Buffer,
    ) -> Result<bool> {
        let (url, sink) = (held.url(), &*to.sink);
        if let Some(once) = &to.once {
            let mut once = once.lock();
            if once.within(push.range.clone()).next().is_some() {
                return Err(written_again(&url).into());
            }
            once.insert(push.range.clone());
        }
        let path = url.as_path();
        let lying = LocalFile { path, file };
        // While somebody writes, what is sent and what it is said to hash to are of one reading.
        let state = held.lock();
        let (is_written, is_unseen) =
            (state.machine.writers().is_some(), state.machine.is_unseen());
        drop(state);
        let known = Known::of(held, &push.range);
        let is_read_here = is_written || is_unseen || is_compared_here(held, to);
        let sent = match (is_read_here, known) {
            (true, _) => match lying.block(push.range.clone(), buffer) {
                Ok(block) => {
                    self.compare(held, block)?;
                    if !self.may_be_sent(held, block, is_unseen) {
                        held.lock().machine.unread(push.ticket);
                        return Ok(false);
                    }
                    sink.put(block)
                }
                Err(error) => Err(error),
            },
            (false, Some(known)) => self.put_known(held, &lying, (&push.range, known), to, buffer),
            (false, None) => sink.put_from(&lying, push.range.clone(), buffer),
        };
        match sent {
            Ok(()) => Ok(true),
            Err(StoreError::Changed { .. }) => {
                // Its writer cut it; whoever looks again knows how far.
                held.lock().machine.unread(push.ticket);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a leaf as what it was when it was written, which spares hashing it again: the target finds if it is not.
    fn put_known(
        &self,
        held: &Held,
        lying: &LocalFile<'_>,
        (range, known): (&Range<u64>, Known),
        to: &Parked,
        buffer: &mut [u8],
    ) -> godwit_store::Result<()> {
        let leaf = range.start / LEAF_BYTES;
        to.sink.put_known(lying, (leaf, known.chain()), buffer)?;
        // If somebody writes meanwhile nobody knows of what that was, so again, as what it is now.
        match (Known::of(held, range) == Some(known), &to.once) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(written_again(&held.url())),
            (false, None) => to.sink.put_from(lying, range.clone(), buffer),
        }
    }

    fn next_push(&self, held: &Held) -> Option<Push> {
        let mut state = held.lock();
        if state.is_gone {
            return None;
        }
        // While somebody writes, little waits for more.
        let is_open = state.machine.writers().is_some();
        let waits = is_open && state.machine.pushable_bytes() < state.least();
        match waits {
            true => None,
            false => state.machine.push(LEAF_BYTES),
        }
    }

    /// Notes what is about to be asked for, for the record: whoever has to find out whether it was published, after an
    /// end too, may find more here by then. `sealed`: after how many changes it was sealed, and what it was known to be.
    fn note_asked(
        &self,
        held: &Held,
        asked: &Publication,
        sealed: (u64, Option<Digest>),
    ) -> Result<()> {
        self.know(held)?;
        let mut state = held.lock();
        // Of a file that is changed in place we may have parts only.
        let is_whole = state.machine.is_whole() && !state.machine.is_blind();
        // What is written from then on is of the next generation.
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

    /// Asks the target to show a generation to everybody.
    fn publish(
        &self,
        held: &Held,
        place: &Place,
        parked: Parked,
        asked: &Publication,
    ) -> Result<()> {
        let state = held.lock();
        let is_blind = state.machine.is_blind();
        let noted = state.delivery.upload.asked.as_ref();
        let digest = noted.and_then(|noted| noted.digest.clone());
        drop(state);
        let whole = Whole {
            size: (!is_blind).then_some(asked.size),
            digest: digest.clone(),
            ..Whole::default()
        };
        // Asked before: an error afterwards would be an answer that was lost.
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
                Answer::Published(version)
            }
            Err(error) => {
                // It says that other bytes came: if ours are those that were written, it is the way there.
                if matches!(error, StoreError::Corrupt { .. }) {
                    self.search_rot(held)?;
                }
                return Err(error.into());
            }
        };
        crash::point("published");
        let mut state = held.lock();
        (state.meta.is_forwarded, state.validity.is_changed_at_target) =
            (passes_on, held.is_renamed());
        state.machine.answered(asked.attempt, answer);
        state.delivery.upload.sent_as = None;
        state.delivery.delivered = asked.generation;
        state.validity.unsee();
        state.validity.revalidated(Instant::now());
        state.record.change();
        Ok(())
    }

    /// Forgets what need not be delivered any more, since something newer has its name.
    fn give_way(&self, held: &Held) -> Result<bool> {
        let state = held.lock();
        let may = state.is_superseded && state.users.open == 0 && !state.machine.is_asked();
        if may && !state.is_gone {
            self.unlink(held, state)?;
        }
        Ok(may)
    }
}

impl All {
    /// It goes elsewhere, and in another place; what it is called stays. Returns how it went before.
    fn reroute(&mut self, held: &Arc<Held>, (url, number): Way) -> Way {
        let before = (held.url(), held.number());
        self.owing.remove(&before.1);
        held.reroute(url);
        held.renumber(number);
        self.owing.insert(number, Arc::clone(held));
        held.lock().record.change();
        before
    }
}

/// What the target has now: its digest, if anybody knows it.
fn version_of(finished: &Finished, ours: Option<godwit_core::Digest>) -> Version {
    let theirs = finished.digests.iter().find(|d| d.algorithm() == OURS);
    match theirs.cloned().or(ours) {
        Some(digest) => Version::Strong(digest),
        None => finished.version.clone(),
    }
}

/// Returns why nothing is delivered until somebody decides.
fn words_of(held: &Held, error: &Error, above: Option<usize>) -> String {
    let is_to_be_there = matches!(held.lock().machine.base(), Base::Seen(_));
    match held.url().parent() {
        Some(directory) if !is_to_be_there && above.is_some_and(|levels| levels > 1) => {
            wants_directory(&directory)
        }
        _ => (error.wants_proof()).unwrap_or_else(|| error.to_string()),
    }
}

/// So many bytes are sent before the target is asked to make them safe.
const COMMIT_EVERY: u64 = 64 << 20;
