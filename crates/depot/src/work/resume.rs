//! Begins a delivery, or takes it up where it was: what the target has of it already.

use crate::{
    Error, Result,
    error::may_pass,
    inner::Inner,
    plan::{
        entry::{Asked, Entry, Parked, upload_of},
        leftovers::Leftover,
    },
    work::{
        deliver::Begun,
        fetch::streams,
        probe::{base_of, is_of_digest, look},
    },
};
use godwit_core::{
    Extents, LEAF_BYTES, Version,
    holding::{Base, Mode, OriginState, TargetCheck},
};
use godwit_store::{
    Error as StoreError, LocalFile, Sink, SinkExt, StoreExt, Write, WriteMode, engine::Place,
};
use godwit_sys::Buffer;
use parking_lot::Mutex;
use std::time::Instant;

impl Inner {
    /// In place nothing is changed before the target was looked at, and that is on record.
    pub(crate) fn enter(&self, entry: &Entry, place: &Place) -> Result<()> {
        let mut state = entry.lock_merged();
        if state.machine.mode() != Mode::InPlace {
            return Ok(());
        }
        loop {
            let base = state.machine.base().clone();
            drop(state);
            // Before it is sealed: a sealed patch cannot be shown over the file of the target.
            let origin = self.looked_in_place(place, &base)?;
            state = entry.lock_merged();
            // After a break the bytes there may be any; the same bytes again do no harm.
            state.machine.resumed(&Extents::new());
            state.machine.found(TargetCheck::Base);
            state.machine.seal();
            state.record.change();
            if *state.machine.base() != base {
                continue; // A reader looked meanwhile.
            }
            if state.machine.is_entering() {
                if let OriginState::Other(_) = origin {
                    state.delivery.reason = CHANGED.into();
                }
                state.machine.looked(origin);
                state.record.change();
            }
            break;
        }
        drop(state);
        let entering = entry.lock().machine.entering();
        if let Some(generation) = entering {
            entry.commit(self)?;
            entry.lock().machine.enter(generation);
        }
        Ok(())
    }

    fn looked_in_place(&self, place: &Place, base: &Base) -> Result<OriginState> {
        let now = base_of(look(place)?.as_ref());
        Ok(match is_base(place, base, &now)? {
            true => OriginState::Same,
            false => OriginState::Other(now),
        })
    }

    /// Returns the conversation about the generation that is under way, taking over what an earlier one left.
    pub(crate) fn begun(&self, entry: &Entry, place: &Place) -> Result<Begun> {
        let at = entry.url();
        let mut state = entry.lock();
        let parked = state.delivery.upload.parked.take();
        if let Some(parked) = parked.filter(|parked| parked.is_of(entry, &state.machine)) {
            return Ok(Begun::Sink(parked));
        }
        let (attempt, generation) = (state.machine.attempt(), state.machine.sending());
        let how = match state.machine.mode() {
            Mode::InPlace => WriteMode::InPlace,
            Mode::Replace => how(state.machine.base()),
        };
        let (upstream, mode) = (state.meta.upstream.clone(), state.meta.mode);
        let is_absent = *state.machine.base() == Base::Absent;
        drop(state);
        // A file that is replaced keeps its mode, also at servers that would change it.
        let stat = mode
            .filter(|_| !is_absent)
            .map(|_| place.store.stat(&place.path));
        let is_new = match stat {
            None => true,
            Some(Err(StoreError::Missing { .. })) => true,
            Some(Err(error)) if may_pass(&error) => return Err(error.into()),
            _ => false,
        };
        let mode = mode.filter(|_| is_new);
        let id = upload_of(entry.id, generation);
        let mut state = entry.lock();
        state.delivery.upload.sent_as = Some(id.clone());
        let is_spoilt = std::mem::take(&mut state.delivery.upload.is_spoilt);
        drop(state);
        // Where attempts are not counted, the old conversation is over: it was ours, and is closed.
        let can = place.store.can()?;
        let write = Write {
            how,
            id: Some(&id),
            attempt: if can.attempts { attempt } else { 0 },
            // A server that cannot compare the part that it has may have an older one.
            resume: can.resume && can.again && !is_spoilt,
            streams: streams(place),
            passed: &upstream,
            mode,
            ..Write::default()
        };
        let sink = match place.store.write(&place.path, &write) {
            // It may be ours: what is there was asked of the publication whose answer was lost. Nothing of ours can come
            // over it any more.
            Err(StoreError::Exists { .. } | StoreError::Changed { .. })
                if entry.lock().machine.is_asked() =>
            {
                entry.lock().machine.resumed(&Extents::new());
                let is_there = self.search(entry, place)?;
                return Ok(self.after_search(entry, is_there));
            }
            sink => sink?,
        };
        let is_resuming = entry.lock().machine.is_resuming();
        if is_resuming && !write.resume {
            entry.lock().machine.resumed(&Extents::new());
        } else if is_resuming {
            self.resume(entry, &*sink)?;
        }
        let parked = Parked {
            sink,
            at,
            attempt,
            generation,
            once: (!can.again).then(Mutex::default),
            compares: can.leaves && !matches!(write.how, WriteMode::InPlace),
        };
        let is_unsure = entry.lock().machine.is_unsure();
        let is_there = is_unsure && self.search(entry, place)?;
        if parked.is_of(entry, &entry.lock().machine) {
            return Ok(Begun::Sink(parked));
        }
        // What is written next is another upload, on another condition.
        self.plan()
            .cleanup
            .leftovers
            .push(Leftover::Open(parked.sink));
        Ok(self.after_search(entry, is_there))
    }

    /// The target was looked at, or is to be, and the conversation is over.
    fn after_search(&self, entry: &Entry, is_there: bool) -> Begun {
        if is_there {
            return Begun::There;
        }
        // The sealed generation is part of the next one, or it is on hold, or a user decided meanwhile.
        let mut state = entry.lock();
        state.machine.lost();
        state.delivery.is_due = true;
        Begun::Anew
    }

    /// Ends a conversation about a generation that became part of another: that is another upload.
    pub(crate) fn leave_others(&self, entry: &Entry) {
        let mut state = entry.lock();
        let attempt = state.machine.attempt();
        let Some(parked) = state.delivery.upload.parked.take() else {
            return;
        };
        if parked.is_of(entry, &state.machine) {
            state.delivery.upload.parked = Some(parked);
            return;
        }
        let is_left = parked.attempt == attempt;
        if is_left {
            state.machine.lost();
        }
        drop(state);
        if is_left {
            self.plan()
                .cleanup
                .leftovers
                .push(Leftover::Open(parked.sink));
        }
    }

    /// Tells what the target has of what is on our disk: it is shown what landed there, and says what differs.
    fn resume(&self, entry: &Entry, sink: &dyn Sink) -> Result<()> {
        let url = entry.url();
        let path = url.as_path();
        let file = self.disk.reader(entry.id)?;
        let size = file.metadata().map_err(Error::disk(path))?.len();
        let lying = LocalFile { path, file: &file };
        let mut buffer = Buffer::take();
        let mut unseen: Extents = sink.unseen().within(0..size).collect();
        while let Some(range) = unseen.take_aligned(LEAF_BYTES) {
            sink.show(lying.block(range, &mut buffer)?)?;
        }
        let same: Extents = sink.done().within(0..size).collect();
        entry.lock().machine.resumed(&same);
        Ok(())
    }

    /// Looks for what became of a publication whose answer was lost. Returns whether it is there.
    fn search(&self, entry: &Entry, place: &Place) -> Result<bool> {
        let state = entry.lock();
        let (base, sending) = (state.machine.base().clone(), state.machine.sending());
        let asked = state.delivery.upload.asked.clone();
        let asked = asked.filter(|asked| asked.generation == sending);
        // After an end of ours what is here may be more than was asked for.
        let asked = asked.unwrap_or_else(|| Asked {
            generation: sending,
            size: state.machine.size(),
            digest: state.bytes.leaves.root(state.machine.size()),
        });
        drop(state);
        let upload = upload_of(entry.id, sending);
        let found = match place.store.published_as(&place.path, &upload)? {
            Some(version) => TargetCheck::Ours(version),
            None => self.found(place, &base, &asked)?,
        };
        let passes_on = place.store.can()?.passes_on;
        if let TargetCheck::Ours(_) = found {
            // The server may have ended before it was durable.
            place.store.flush(&place.path)?;
        }
        let mut state = entry.lock();
        // After a decision of the user meanwhile, it is asked for again.
        let is_there = state.machine.is_unsure() && matches!(found, TargetCheck::Ours(_));
        match found {
            TargetCheck::Ours(_) => {
                (state.delivery.delivered, state.meta.is_forwarded) = (sending, passes_on);
                state.validity.is_changed_at_target = entry.is_renamed();
                state.delivery.upload.sent_as = None;
                state.validity.unsee(); // as it was before
                state.validity.revalidated(Instant::now());
            }
            TargetCheck::Base => {}
            TargetCheck::Other(_) => {
                state.delivery.reason = CHANGED.into();
                // It gives way, where it is held and something newer has its name.
                state.delivery.is_due |= state.is_superseded;
            }
        }
        state.machine.found(found);
        state.record.change();
        Ok(is_there)
    }

    fn found(&self, place: &Place, base: &Base, asked: &Asked) -> Result<TargetCheck> {
        let there = look(place)?;
        let is_as_long = there.as_ref().is_some_and(|stat| stat.size == asked.size);
        if let Some(ours) = asked.digest.as_ref().filter(|_| is_as_long)
            && is_of_digest(place, ours)?
        {
            return Ok(TargetCheck::Ours(Version::Strong(ours.clone())));
        }
        let now = base_of(there.as_ref());
        Ok(match is_base(place, base, &now)? {
            true => TargetCheck::Base,
            false => TargetCheck::Other(now),
        })
    }
}

fn how(base: &Base) -> WriteMode {
    match base {
        Base::Absent => WriteMode::New,
        Base::Any => WriteMode::Replace(None),
        Base::Seen(version) => WriteMode::Replace(Some(version.clone())),
    }
}

/// Tells whether what a target has now is what ours is based on.
fn is_base(place: &Place, base: &Base, now: &Base) -> Result<bool> {
    Ok(match (base, now) {
        // Whatever there is: ours goes over it.
        (Base::Any, _) | (Base::Absent, Base::Absent) => true,
        (Base::Seen(Version::Strong(was)), Base::Seen(_)) => {
            place.store.digest(&place.path, was.algorithm(), None)? == *was
        }
        (Base::Seen(was), Base::Seen(now)) => was.compare(now).looks_same(),
        _ => false,
    })
}

const CHANGED: &str = "another program changed the file at the server";
