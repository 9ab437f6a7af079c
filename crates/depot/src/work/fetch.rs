//! From the origin to our disk.

use crate::{
    Error, Result, StillWanted,
    clock::since_epoch,
    inner::Inner,
    plan::{asking::LOOK_EVERY, entry::Entry},
    work::{
        housekeep::price,
        probe::{OURS, base_of, is_of_digest, is_untouched},
    },
};
use godwit_core::{
    Block, Chain, Extents, Fault, Piece, Url, Version,
    holding::{Base, Fetch, Held as Why, OriginState, Ticket},
};
use godwit_store::{BlockWriter, Error as StoreError, Read, Stat, engine::Place};
use godwit_sys::crash;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

/// The part of a file that is fetched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    /// All of it, or the first.
    Alone,
    /// More of what was begun.
    More,
}

impl Inner {
    /// Returns once a range is here; the first caller fetches what is missing. `Busy`: the origin has another file by now.
    pub(crate) fn ensure(&self, entry: &Arc<Entry>, range: Range<u64>) -> Result<()> {
        self.ensure_as(entry, range, Part::Alone)
    }

    /// Fetches a range as [`Self::ensure`] does. Of several parts only the first counts as a transfer.
    pub(crate) fn ensure_as(
        &self,
        entry: &Arc<Entry>,
        range: Range<u64>,
        part: Part,
    ) -> Result<()> {
        self.ensure_while(entry, range, part, &|| true)
    }

    /// Fetches a range, unless cancelled. A fetch that its last user leaves ends, and the bytes that arrived stay.
    pub(crate) fn ensure_while(
        &self,
        entry: &Arc<Entry>,
        ranges: impl Into<Extents>,
        part: Part,
        is_wanted: StillWanted<'_>,
    ) -> Result<()> {
        let ranges = ranges.into();
        let mut state = entry.lock();
        let (failures, tries) = (state.bytes.failed.0, state.delivery.retry.tries);
        loop {
            if state.machine.is_blind() {
                drop(state);
                self.must_not_be_cut(&entry.name())?;
                self.look_below(entry)?;
                state = entry.lock();
                continue;
            }
            let wanted = ranges.and(&Extents::from(0..state.machine.size()));
            if wanted.minus(state.machine.present()).is_empty() {
                return Ok(());
            }
            if state.is_gone {
                return Err(changed(entry));
            }
            // The rest is on hold until a user decides on the conflict.
            if let Some(Why::Conflict(_)) = state.machine.held() {
                return Err(Error::held(entry.name(), state.delivery.reason.clone(), ""));
            }
            if self.is_ending() {
                return Err(Error::Ending);
            }
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            if let (true, Some(error)) = (state.bytes.failed.0 != failures, &state.bytes.failed.1) {
                return Err(error.clone());
            }
            // Parts that came one by one could be of different files.
            let asked = match state.machine.base() {
                Base::Seen(Version::None) => Extents::from(0..state.machine.size()),
                _ => wanted,
            };
            if let Some(fetch) = state.machine.fetch(asked) {
                state.meta.transfers += u64::from(part == Part::Alone);
                if state.bytes.write_fd.is_none() {
                    state.bytes.write_fd = Some(Arc::new(self.disk.writer(entry.id)?));
                }
                drop(state);
                crash::point("fetch-asked");
                self.fetch(entry, fetch, is_wanted)?;
                state = entry.lock();
                continue;
            }
            if let (true, Some(error)) = (
                state.delivery.retry.tries > tries,
                &state.delivery.retry.last,
            ) && state.machine.is_inside()
            {
                return Err(error.clone()); // The file is being changed there, and the server cannot be reached.
            }
            entry.wait(&mut state, Some(Instant::now() + LOOK_EVERY));
        }
    }

    /// Finds out what there is at the target of which only some ranges are written here.
    fn look_below(&self, entry: &Entry) -> Result<()> {
        let name = entry.name();
        // What is said to be missing is read as zeros.
        let looked = self.surely((&name, &entry.who), || self.stat_of(&name, &entry.who));
        let (at, there) = match looked {
            Ok((place, stat)) => (Some(place.url), Some(stat)),
            Err(error) if matches!(error.of_store(), Some(StoreError::Missing { .. })) => {
                (None, None)
            }
            Err(error) => return Err(error),
        };
        let base = base_of(there.as_ref());
        let size = there.map_or(0, |stat| stat.size);
        let mut state = entry.lock();
        if let Base::Seen(version) = &base {
            state.validity.see(version.clone(), at);
        }
        let write_fd = self.disk.writer(entry.id)?;
        self.disk
            .resize(entry.id, &write_fd, size.max(state.machine.size()))?;
        let before = state.machine.size();
        state.machine.seen(base, size);
        state.may_have_grown(before);
        state.record.change();
        if state.machine.is_blind() {
            // It is being changed there just now: what it is then is told by the end of that.
            if state.machine.held().is_some() {
                return Err(Error::held(entry.url(), state.delivery.reason.clone(), ""));
            }
            let before = state.delivery.retry.tries;
            entry.wait(&mut state, Some(Instant::now() + PAUSE));
            if let (true, Some(error)) = (
                state.delivery.retry.tries > before,
                &state.delivery.retry.last,
            ) {
                return Err(error.clone());
            }
        }
        Ok(())
    }

    /// Fetches, trying again after passing faults.
    fn fetch(&self, entry: &Arc<Entry>, first: Fetch, is_wanted: StillWanted<'_>) -> Result<()> {
        let wanted = first.wanted.clone();
        let mut fetch = Some(first);
        let (mut pause, mut tries) = (PAUSE, TRIES);
        let mut has_begun = false;
        while let Some(asked) = fetch.take() {
            let before = entry.lock().machine.come_bytes();
            let began = Instant::now();
            let outcome = self.fetch_once(entry, &asked, is_wanted);
            let error = match outcome {
                Ok(()) => {
                    entry.lock().meta.price = price(asked.wanted.len_bytes(), began.elapsed());
                    return self.fetched(entry, None);
                }
                Err(error) => error,
            };
            let error = self.of_another(entry, error)?;
            if is_left(entry.lock().users.open, is_wanted) {
                return self.fetched(entry, Some(Error::Unwanted));
            }
            let moved = entry.lock().machine.come_bytes() > before;
            if moved {
                (tries, pause) = (TRIES, PAUSE);
            }
            has_begun |= moved
                || matches!(
                    error.of_store(),
                    Some(StoreError::Lost { .. } | StoreError::Beyond { .. })
                );
            let is_room =
                matches!(&error, Error::Store(e) if matches!(**e, StoreError::NoSpace { .. }));
            // Others filled the disk: what may be forgotten makes room.
            let again = match is_room {
                true => self.evict(wanted.len_bytes())?,
                false => error.fault() != Fault::Lasting,
            };
            tries -= 1;
            if !again || tries == 0 || self.is_ending() {
                let error = match has_begun {
                    true => broken_off(entry, error),
                    false => error,
                };
                return self.fetched(entry, Some(error));
            }
            tracing::info!(url = %entry.url(), %error, "a fetch broke off and is tried again");
            let until = Instant::now() + pause;
            pause *= 2;
            let mut state = entry.lock();
            while Instant::now() < until && !self.is_ending() {
                entry.wait(&mut state, Some(until));
            }
            if is_left(state.users.open, is_wanted) {
                drop(state);
                return self.fetched(entry, Some(Error::Unwanted));
            }
            fetch = match wanted.is_empty() {
                true => state.machine.fetch(0..1), // only the look is missing
                false => state.machine.fetch(wanted.clone()),
            };
        }
        self.fetched(entry, None)
    }

    /// Ends the entry if the origin has another file by now: a reader of that file begins anew.
    fn of_another(&self, entry: &Arc<Entry>, error: Error) -> Result<Error> {
        // The server itself may have noticed.
        let is_changed =
            matches!(&error, Error::Store(e) if matches!(**e, StoreError::Changed { .. }));
        let state = entry.lock();
        let is_void = is_changed && !state.machine.owes() && !state.is_gone;
        let is_over = state.is_gone || is_void;
        match is_void {
            true => self.unlink(entry, state)?,
            false => drop(state),
        }
        match is_over {
            true => self.fetched(entry, Some(changed(entry))).map(|()| error),
            false => Ok(error),
        }
    }

    /// Tells all callers that wait how the fetch ended.
    fn fetched(&self, entry: &Arc<Entry>, error: Option<Error>) -> Result<()> {
        let mut state = entry.lock();
        if state.machine.present().contains(&(0..state.machine.size())) {
            state.bytes.write_fd = None;
        }
        state.record.change();
        match &error {
            None => {}
            // A later caller goes on with it, perhaps already.
            Some(Error::Unwanted) if !state.machine.may_be_forgotten() => {}
            Some(Error::Unwanted) => state.bytes.write_fd = None,
            Some(error) => {
                state.bytes.failed = (state.bytes.failed.0 + 1, Some(error.clone()));
                state.bytes.write_fd = None;
            }
        }
        // Its delivery may have waited for the end of the fetch.
        let is_pending = state.machine.owes();
        state.delivery.is_due |= is_pending;
        drop(state);
        self.chores.record(entry.id);
        entry.tell();
        if is_pending {
            self.nudge();
        }
        error.map_or(Ok(()), Err)
    }

    fn fetch_once(
        &self,
        entry: &Arc<Entry>,
        fetch: &Fetch,
        is_wanted: StillWanted<'_>,
    ) -> Result<()> {
        let arriving = Arriving {
            depot: self,
            entry,
            is_wanted,
            ticket: fetch.ticket,
            wanted: fetch.wanted.len_bytes(),
            said: Mutex::default(),
            is_over: Mutex::new(false),
        };
        let hints = entry.lock().bytes.hints;
        let (read, is_base, at) = self.at_place(&entry.name(), &entry.who, |place| {
            if fetch.wanted.is_empty() {
                // All came before: only a look is missing.
                let stat = place.store.stat(&place.path)?;
                let is_base = arriving.is_base(place, &stat)?;
                return Ok((Read { stat, digest: None }, is_base, place.url.clone()));
            }
            let place = &place.hinted(&hints)?;
            let read = place.store.read(
                &place.path,
                &fetch.wanted,
                hints.streams_or(streams(place)),
                &arriving,
            )?;
            crash::point("fetch-landed");
            let is_base = arriving.is_base(place, &read.stat)?;
            Ok((read, is_base, place.url.clone()))
        })?;
        arriving.end(&read, is_base, at)
    }
}

pub(crate) fn streams(place: &Place) -> usize {
    match place.distance() > Duration::from_millis(5) {
        true => 8,
        false => 2,
    }
}

/// Says what is the matter with a server that was there when the fetch began.
fn broken_off(entry: &Entry, error: Error) -> Error {
    use StoreError as E;
    match error {
        Error::Store(cause)
            if matches!(
                *cause,
                E::Lost { .. }
                    | E::Beyond { .. }
                    | E::Unreachable { .. }
                    | E::Away { .. }
                    | E::Stalled { .. }
            ) =>
        {
            let machine = &entry.lock().machine;
            Error::broke_off(entry.name(), machine.come_bytes(), machine.size(), cause)
        }
        other => other,
    }
}

/// Tells whether the caller that fetches a file has gone, and no other uses the file.
fn is_left(users: u32, is_wanted: StillWanted<'_>) -> bool {
    users <= 1 && !is_wanted()
}

fn changed(entry: &Entry) -> Error {
    Error::in_use(entry.name(), "another file by now")
}

/// Writes arriving bytes to the disk. If it is dropped without an outcome, the fetch broke off.
struct Arriving<'a> {
    depot: &'a Inner,
    entry: &'a Entry,
    /// Tells whether the caller that began the fetch still waits.
    is_wanted: StillWanted<'a>,
    ticket: Ticket,
    /// How many bytes were asked for.
    wanted: u64,
    /// The hashes of leaves as the source tells them.
    said: Mutex<BTreeMap<u64, Chain>>,
    is_over: Mutex<bool>,
}

impl Arriving<'_> {
    /// Tells whether the origin, as it was after all came, still has what was to come.
    fn is_base(&self, place: &Place, now: &Stat) -> godwit_store::Result<bool> {
        let state = self.entry.lock();
        let then = match (&state.validity.seen, state.machine.base()) {
            (Some(seen), _) => seen.clone(),
            (None, Base::Seen(version)) => version.clone(),
            _ => return Ok(false),
        };
        let size = state.machine.size();
        drop(state);
        Ok(match (&then, now.version(since_epoch())) {
            // The node that told the digest has forwarded the file since; its present server tells the time only.
            (Version::Strong(digest), Version::Weak { .. } | Version::None) => {
                is_of_digest(place, digest)?
            }
            // Nothing vouches for it but that all of it came at once, as long as it is.
            (Version::None, _) => self.wanted == size && now.size == size,
            (then, told) if self.was_renamed() => then.compare(&told).looks_same(),
            (then, told) => is_untouched(then, &told),
        })
    }

    /// Tells whether we renamed it at its origin since it was seen, or may have just now: that touches it.
    fn was_renamed(&self) -> bool {
        let Some(then) = self.entry.lock().validity.seen_at.clone() else {
            return false;
        };
        let promises = &self.depot.plan().order;
        let now = promises.now_at(&self.entry.name());
        now.is_none_or(|now| now != then || promises.is_unsettled(&now))
    }

    /// The origin was looked at after all came.
    fn end(&self, read: &Read, is_base: bool, at: Url) -> Result<()> {
        let now = read.stat.version(since_epoch());
        let mut state = self.entry.lock();
        let size = state.machine.size();
        // What was written here over it is not what the source says.
        let corrupt = match is_base && !state.machine.owes() {
            true => self.differs(&state.bytes.leaves, size, read),
            false => None,
        };
        let is_same = is_base && corrupt.is_none();
        let origin = match is_same {
            true => OriginState::Same,
            false => OriginState::Other(Base::Seen(now.clone())),
        };
        *self.is_over.lock() = true;
        state.machine.fetched(self.ticket, origin);
        if state.machine.held().is_some() && state.delivery.reason.is_empty() {
            state.delivery.reason =
                "it changed there while it was fetched to be changed here".into();
        }
        state.validity.revalidated(Instant::now());
        if is_same {
            state.validity.see(now, Some(at));
        }
        state.record.change();
        // What cannot be had as a whole any more is not what its name says.
        let is_void = !is_base && !state.machine.owes();
        if is_void {
            state.is_gone = true;
        }
        drop(state);
        self.entry.tell();
        match corrupt {
            Some(error) => Err(error.into()),
            None if is_void => {
                self.depot.unlink(self.entry, self.entry.lock())?;
                Err(changed(self.entry))
            }
            None => Ok(()),
        }
    }

    /// Compares what came with what the source says of it.
    fn differs(&self, leaves: &godwit_core::Leaves, size: u64, read: &Read) -> Option<StoreError> {
        let corrupt = |expected: String, found: String| {
            StoreError::corrupt(self.entry.url().as_path(), expected, found)
        };
        for (leaf, said) in self.said.lock().iter() {
            if let Some(ours) = leaves.chain(*leaf, size).filter(|ours| ours != said) {
                return Some(corrupt(said.to_string(), ours.to_string()));
            }
        }
        let said = read.digest.as_ref().filter(|d| d.algorithm() == OURS)?;
        let ours = leaves.root(size)?;
        (ours != *said).then(|| corrupt(said.to_string(), ours.to_string()))
    }
}

impl BlockWriter for Arriving<'_> {
    fn put(&self, block: Block<'_>) -> godwit_store::Result<()> {
        let piece = Piece::of(block);
        let mut state = self.entry.lock();
        if is_left(state.users.open, self.is_wanted) {
            return Err(StoreError::Canceled);
        }
        let part = state.machine.arrived(self.ticket, block.range());
        let Some(write_fd) = state.bytes.write_fd.clone() else {
            return Err(StoreError::Canceled);
        };
        let is_all = part == Extents::from(block.range());
        for range in part.iter() {
            let at = (range.start - block.offset) as usize..(range.end - block.offset) as usize;
            let bytes = &block.bytes[at];
            let written = self
                .depot
                .disk
                .write(self.entry.id, &write_fd, range.start, bytes);
            if let Err(error) = written {
                let unwritten = range.start..block.range().end;
                state.machine.missed(self.ticket, unwritten);
                return Err(of_store(error));
            }
            if !is_all {
                let offset = range.start;
                state.bytes.leaves.add(Piece::of(Block { offset, bytes }));
            }
        }
        if is_all {
            state.bytes.leaves.add(piece);
        }
        Ok(())
    }

    fn said(&self, leaf: u64, chain: Chain) -> godwit_store::Result<()> {
        self.said.lock().insert(leaf, chain);
        Ok(())
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        if !*self.is_over.lock() {
            self.entry.lock().machine.broke_off(self.ticket);
            self.entry.tell();
        }
    }
}

/// Converts an error of the local disk for a reader of the origin.
fn of_store(error: Error) -> StoreError {
    match error {
        Error::Disk { path, cause } => {
            let kind = cause.kind();
            match cause.raw_os_error() {
                Some(code) => StoreError::io(path, std::io::Error::from_raw_os_error(code)),
                None => StoreError::io(path, kind.into()),
            }
        }
        other => StoreError::system("the depot", std::io::Error::other(other.to_string())),
    }
}

const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(200);
