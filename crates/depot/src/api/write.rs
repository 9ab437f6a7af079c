//! From a program to our disk.

use crate::{
    Depot, Error, Fresh, IsWanted, Result, Who,
    inner::Inner,
    plan::{
        entry::Entry,
        fairness::Number,
        state::{State, Visibility, WORTH_SENDING},
        user::User,
    },
    work::room::Asks,
};
use godwit_core::{
    Block, Chain, LEAF_BYTES, Piece, Url, Version,
    holding::{Base, Holding, Mode, Notices, Ticket},
};
use godwit_store::Error as StoreError;
use godwit_sys::crash;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    ops::Range,
    path::Path,
    sync::Arc,
};

/// What is to be put.
#[derive(Clone, Debug)]
pub struct Put {
    /// What the target must have before; else it is a conflict.
    pub base: Base,
    /// By what the writer finds it again.
    pub session: String,
}

/// A new file that somebody writes, and that becomes what its name says when they end.
#[derive(Debug)]
pub struct Writing {
    pub(crate) depot: Arc<Inner>,
    pub(crate) entry: Arc<Entry>,
    is_over: bool,
    /// What is written belongs into the file that is there, and lies beside it until it ends.
    is_into: bool,
    /// When it came, among all who want room.
    arrived: Number,
    /// Leave that was given, and not yet told to be used.
    granted: Mutex<BTreeSet<Ticket>>,
}

impl Depot {
    /// Begins a new file that will replace whatever there is of its name, here at once and at its target
    /// later. Nobody is asked for anything: that its target is away is no reason not to write.
    pub fn put(&self, url: &Url, who: &Who, put: &Put) -> Result<Writing> {
        // A name that leads nowhere is known now, not when somebody looks at the queue.
        drop((self.inner.connect)(url, who)?);
        if put.base == Base::Absent {
            self.inner.must_be_free(url)?;
        }
        let machine = Holding::born(put.base.clone(), Mode::Replace);
        self.begin((url, who), &put.session, machine, false)
    }

    /// Begins a file that only its writer knows.
    pub(crate) fn begin(
        &self,
        (url, who): (&Url, &Who),
        session: &str,
        mut machine: Holding,
        is_into: bool,
    ) -> Result<Writing> {
        let (id, file) = self.inner.disk.create()?;
        let opened = machine.open(Notices::Each);
        opened.map_err(|refused| Error::busy(url, &refused))?;
        let number = self.inner.next_number();
        let entry = Arc::new(Entry::new(id, number, url.clone(), who.clone(), machine));
        let mut state = entry.lock();
        state.bytes.write_fd = Some(Arc::new(file));
        state.meta.session = session.into();
        state.visibility = Visibility::Private;
        drop(state);
        self.inner.all().insert(&entry);
        Ok(Writing {
            depot: Arc::clone(&self.inner),
            entry,
            is_over: false,
            is_into,
            arrived: self.inner.room.arrive(),
            granted: Mutex::default(),
        })
    }
}

/// A file that came whole by another way.
pub(crate) struct Adopted<'a> {
    /// Where it is, on the same disk.
    pub file: &'a Path,
    /// What the target must have.
    pub base: &'a Base,
    /// As which upload it came.
    pub upload: Option<&'a str>,
    /// Which nodes passed it on.
    pub upstream: &'a [String],
    /// Which client sent it.
    pub session: &'a str,
    /// Permission bits that it is to have where it is new.
    pub mode: Option<u32>,
}

impl Depot {
    /// Takes a file over as what its name says; it survives a power cut when this returns.
    pub(crate) fn adopt(&self, url: &Url, who: &Who, adopted: &Adopted<'_>) -> Result<()> {
        let (id, place) = (self.inner.disk.fresh()?, adopted.file);
        let size = fs::metadata(place).map_err(Error::disk(place))?.len();
        let mut machine = Holding::born(adopted.base.clone(), Mode::Replace);
        let ticket = machine.grant(0..size);
        machine.written(ticket, size);
        let number = self.inner.next_number();
        let entry = Arc::new(Entry::new(id, number, url.clone(), who.clone(), machine));
        let mut state = entry.lock();
        state.meta.committed = state.machine.generation();
        state.bytes.reserved = size;
        state.meta.upload = adopted.upload.unwrap_or_default().into();
        state.meta.upstream = adopted.upstream.into();
        state.meta.session = adopted.session.into();
        state.meta.mode = adopted.mode;
        state.record.change();
        drop(state);
        self.inner.room.count(size);
        self.inner.disk.take_in(id, place)?;
        crash::point("adopted");
        self.inner.adopted(&entry);
        let known = self.inner.know(&entry);
        if let Err(error) = known.and_then(|()| entry.commit(&self.inner)) {
            // Its sender is told that it is not kept.
            if let Err(error) = self.inner.unlink(&entry, entry.lock()) {
                tracing::warn!(%error, %url, "what could not be kept cannot be removed");
            }
            return Err(error);
        }
        self.inner.make_current(&entry)
    }

    /// Returns what came as an upload, if it is here still.
    pub(crate) fn came_as(&self, url: &Url, upload: &str) -> Option<Version> {
        let called = self.inner.all().called(url);
        let mut all = called.into_iter().filter(|entry| entry.url() == *url);
        let entry = all.find(|entry| {
            let state = entry.lock();
            state.meta.upload == upload && !state.is_gone && state.record.has_row
        })?;
        let hashed = self.inner.hashed(&entry).ok()?;
        hashed.1.root(hashed.0).map(Version::Strong)
    }
}

impl Writing {
    /// Notes which nodes passed on what is written.
    pub(crate) fn forwarded_by(&self, nodes: &[String]) {
        self.entry.lock().meta.forwarded_by(nodes);
    }

    /// Says which permission bits it is to have where it is new.
    pub fn set_mode(&self, mode: u32) {
        let mut state = self.entry.lock();
        state.meta.mode = Some(mode);
        state.record.change();
    }

    /// Has what was written until now be on the disk. It is nothing yet: that it is before its
    /// [end](Self::end) is on no record, or half of it would be delivered after an end of this node.
    pub fn commit(&self) -> Result<()> {
        self.depot.disk.sync(self.entry.id, false)
    }

    /// Returns the number by which it is held, as the queue shows it.
    pub fn id(&self) -> String {
        self.entry.id.to_string()
    }

    /// Returns a descriptor for somebody who asks for a grant before each write.
    pub fn file(&self) -> Result<File> {
        self.depot.disk.writer(self.entry.id)
    }

    /// Takes room for so long a file as a whole, before anything is written. Waits as long as there is none and
    /// somebody wants it, who is asked now and then, and told what is waited for. Nothing is held meanwhile.
    pub fn take_room(&self, size: u64, is_wanted: IsWanted<'_>) -> Result<()> {
        self.could_be(size)?;
        let asks = Asks {
            is_growing: false,
            ..self.asks()
        };
        self.depot.make_room(&self.entry, size, &asks, is_wanted)
    }

    fn could_be(&self, size: u64) -> Result<()> {
        match size > FILE_MAX {
            true => Err(Error::too_large(self.entry.url(), size, FILE_MAX)),
            false => Ok(()),
        }
    }

    pub(crate) fn asks(&self) -> Asks<'_> {
        Asks {
            by: self.arrived,
            own: &self.entry,
            is_growing: true,
        }
    }

    /// Lets a write of this range begin. Waits for room, if there is none at the moment.
    pub fn grant(&self, range: Range<u64>) -> Result<Ticket> {
        self.grant_while(range, &|_| true)
    }

    /// The same as long as somebody wants it, who is asked now and then, and told what is waited for.
    pub fn grant_while(&self, range: Range<u64>, is_wanted: IsWanted<'_>) -> Result<Ticket> {
        self.could_be(range.end)?;
        (self.depot).make_room(&self.entry, range.end, &self.asks(), is_wanted)?;
        let ticket = self.entry.lock().machine.grant(range);
        self.granted.lock().insert(ticket);
        Ok(ticket)
    }

    /// Ends a write by descriptor: its bytes are in the file, which is `size` long now.
    pub fn written(&self, range: Range<u64>, ticket: Ticket, size: u64) {
        self.written_as(range, ticket, size, None);
    }

    /// The same for whoever says what it hashes to, of which it is known if all of a leaf of 1 MiB was written: it is
    /// compared with that as if we had read it.
    pub fn written_as(&self, range: Range<u64>, ticket: Ticket, size: u64, chain: Option<Chain>) {
        let mut state = self.entry.lock();
        for leaf in range.start / LEAF_BYTES..range.end.min(size).div_ceil(LEAF_BYTES) {
            state.bytes.leaves.forget(leaf);
        }
        let leaf = range.start / LEAF_BYTES;
        let is_leaf = range == (leaf * LEAF_BYTES..(leaf + 1) * LEAF_BYTES) && range.end <= size;
        if let Some(chain) = chain.filter(|_| is_leaf) {
            state.bytes.leaves.set_full(leaf, chain);
        }
        self.ended(state, ticket, size);
    }

    fn ended(&self, mut state: MutexGuard<'_, State>, ticket: Ticket, size: u64) {
        self.granted.lock().remove(&ticket);
        state.written(ticket, size);
        state.record.change();
        // Whoever sends it at the moment looks again at the end.
        let is_worth =
            !state.delivery.is_in_flight && state.machine.pushable_bytes() >= WORTH_SENDING;
        state.delivery.is_due |= is_worth;
        drop(state);
        if is_worth {
            self.depot.nudge();
        }
    }

    /// Writes bytes; what they hash to is known from now on.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_while(offset, bytes, &|_| true)
    }

    /// The same as long as somebody wants it, who is asked now and then while it waits for room.
    pub fn write_while(&self, offset: u64, bytes: &[u8], is_wanted: IsWanted<'_>) -> Result<()> {
        let range = offset..offset + bytes.len() as u64;
        let ticket = self.grant_while(range.clone(), is_wanted)?;
        let write_fd = self
            .entry
            .lock()
            .bytes
            .write_fd
            .clone()
            .ok_or(Error::Ending)?;
        crash::point("write-granted");
        let written = self
            .depot
            .disk
            .write(self.entry.id, &write_fd, offset, bytes);
        let mut state = self.entry.lock();
        if written.is_ok() {
            state.bytes.leaves.add(Piece::of(Block { offset, bytes }));
        }
        let size = match written {
            Ok(()) => state.machine.size().max(range.end),
            Err(_) => state.machine.size(),
        };
        self.ended(state, ticket, size);
        written
    }

    /// Ends the file: it survives a power cut here when this returns, is what its name says here, and
    /// will be at its target. What had been put under the name before and is not there yet need not go.
    /// If it fails, it is as if nothing had been written.
    pub fn end(self) -> Result<u64> {
        self.end_while(&|_| true, &|| true)
    }

    /// The same as long as somebody wants it, who is asked now and then while it waits for room; and if they are there
    /// still when it gets its place: whoever is not was told nothing, and may have written something else since.
    pub fn end_while(self, is_wanted: IsWanted<'_>, is_there: &dyn Fn() -> bool) -> Result<u64> {
        match self.is_into {
            true => self.end_patch(is_wanted, is_there),
            false => self.end_anew(is_there),
        }
    }

    pub(crate) fn end_anew(mut self, is_there: &dyn Fn() -> bool) -> Result<u64> {
        // Somebody else may have been faster.
        if *self.entry.lock().machine.base() == Base::Absent {
            self.depot.must_be_free(&self.entry.name())?;
        }
        let _ending = self.depot.ends(&self.entry);
        self.depot.notice_ends(&self.entry);
        if !is_there() {
            return Err(Error::Unwanted);
        }
        // Once it is promised it may be delivered, and what nobody uses, and is current for nobody, then goes.
        let user = User::of(&self.entry, &mut self.entry.lock());
        let generation = self.close();
        self.depot.move_to_end(&self.entry);
        self.is_over = true;
        self.depot.fit(&self.entry);
        let known = self.depot.sync_and_know(&self.entry);
        if let Err(error) = known.and_then(|()| self.entry.commit(&self.depot)) {
            self.is_over = false;
            return Err(error);
        }
        self.depot.make_current(&self.entry)?;
        drop(user);
        // Something newer is there already, and this has been delivered meanwhile.
        if !self.entry.lock().is_current() {
            self.depot.let_go(&self.entry)?;
        }
        Ok(generation)
    }

    /// What was let begin, and not told to have ended, was not written.
    pub(crate) fn settle(&self) -> MutexGuard<'_, State> {
        let mut state = self.entry.lock();
        for ticket in std::mem::take(&mut *self.granted.lock()) {
            state.machine.abandoned(ticket);
        }
        state
    }

    fn close(&self) -> u64 {
        let mut state = self.settle();
        state.machine.close(Notices::Each);
        if state.machine.writers().is_none() {
            state.bytes.write_fd = None;
        }
        state.meta.committed = state.machine.generation();
        state.visibility = Visibility::Hidden;
        state.record.change();
        state.meta.committed
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.depot.room.leave(self.arrived) {
            self.depot.due.notify_all();
        }
        if self.is_over {
            return;
        }
        // Nobody was told that it is kept.
        let state = self.entry.lock();
        if let Err(error) = self.depot.unlink(&self.entry, state) {
            tracing::warn!(%error, url = %self.entry.url(), "what was not finished cannot be removed");
        }
    }
}

impl Inner {
    /// An error, if this machine knows of a file of that name: it is owed, or was there a moment ago.
    fn must_be_free(&self, url: &Url) -> Result<()> {
        let all = self.all();
        let is_there = all.called(url).iter().any(|entry| {
            let state = entry.lock();
            let is_known = state.is_current() && entry.name() == *url && !state.meta.is_filled;
            is_known && self.is_fresh(&state, Fresh::Usual)
        });
        let is_appended = self.logs.pending().iter().any(|log| log.url() == url);
        match is_there || is_appended {
            true => Err(StoreError::exists(url.as_path()).into()),
            false => Ok(()),
        }
    }

    /// It came whole, and has its place behind all that are there. Not earlier: what took one while it was on its way to
    /// here would come after it.
    fn adopted(&self, entry: &Arc<Entry>) {
        let mut all = self.all();
        entry.renumber(self.next_number());
        entry.lock().meta.replaces = all.before(entry);
        all.insert(entry);
        all.comes(entry);
    }
}

/// No file of this machine, nor of others, can be longer.
const FILE_MAX: u64 = 1 << 60;
