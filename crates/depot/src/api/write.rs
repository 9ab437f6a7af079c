//! Writes of programs into the depot.

use crate::{
    Depot, Error, Fresh, IsWanted, Result, Who,
    inner::{Inner, user::User},
    plan::{
        entry::Entry,
        fairness::Number,
        state::{State, Visibility, WORTH_SENDING},
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

/// The terms of a put.
#[derive(Clone, Debug)]
pub struct Put {
    /// The file that the target must have; if it has another, the put is a conflict.
    pub base: Base,
    /// The session by which the writer finds it again.
    pub session: String,
}

/// An open new file, which becomes the current entry of its name when its writer closes it.
#[derive(Debug)]
pub struct Writing {
    pub(crate) depot: Arc<Inner>,
    pub(crate) entry: Arc<Entry>,
    is_over: bool,
    /// Writes a patch, which is kept beside the file of its name until the patch is closed.
    is_into: bool,
    /// Its number among all writers that want room.
    arrived: Number,
    /// Grants whose writes have not ended.
    granted: Mutex<BTreeSet<Ticket>>,
}

impl Depot {
    /// Begins a new file that replaces the file of its name, here at its end and at the target later. The target is not
    /// asked, and may be away.
    pub fn put(&self, url: &Url, who: &Who, put: &Put) -> Result<Writing> {
        // A wrong name is refused now, not in the queue.
        drop((self.inner.connect)(url, who)?);
        if put.base == Base::Absent {
            self.inner.must_be_free(url)?;
        }
        let machine = Holding::born(put.base.clone(), Mode::Replace);
        self.begin((url, who), &put.session, machine, false)
    }

    /// Begins a private file.
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
        let entry = self.inner.new_entry(id, url, who, machine);
        let mut state = entry.lock();
        state.bytes.write_fd = Some(Arc::new(file));
        state.meta.session = session.into();
        state.visibility = Visibility::Private;
        drop(state);
        self.inner.plan().insert(&entry);
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

/// A whole file that an upload left on this disk.
pub(crate) struct Adopted<'a> {
    /// Its path, on the same disk.
    pub file: &'a Path,
    /// The file that the target must have.
    pub base: &'a Base,
    /// The upload by which it arrived.
    pub upload: Option<&'a str>,
    /// The nodes that forwarded it.
    pub upstream: &'a [String],
    /// The client that sent it.
    pub session: &'a str,
    /// Permission bits that it is to have where it is new.
    pub mode: Option<u32>,
}

impl Depot {
    /// Takes a file over as the current entry of its name. It is durable when this returns.
    pub(crate) fn adopt(&self, url: &Url, who: &Who, adopted: &Adopted<'_>) -> Result<()> {
        let (id, place) = (self.inner.disk.fresh()?, adopted.file);
        let size = fs::metadata(place).map_err(Error::disk(place))?.len();
        let mut machine = Holding::born(adopted.base.clone(), Mode::Replace);
        let ticket = machine.grant(0..size);
        machine.written(ticket, size);
        let entry = self.inner.new_entry(id, url, who, machine);
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
            // Its sender receives the error.
            if let Err(error) = self.inner.unlink(&entry, entry.lock()) {
                tracing::warn!(%error, %url, "what could not be kept cannot be removed");
            }
            return Err(error);
        }
        self.inner.make_current(&entry)
    }

    /// Returns the version of an upload that is still in this depot.
    pub(crate) fn came_as(&self, url: &Url, upload: &str) -> Option<Version> {
        let called = self.inner.plan().called(url);
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
    /// Notes the nodes that forwarded what is written.
    pub(crate) fn forwarded_by(&self, nodes: &[String]) {
        self.entry.lock().meta.forwarded_by(nodes);
    }

    /// Sets the permission bits of a new file.
    pub fn set_mode(&self, mode: u32) {
        let mut state = self.entry.lock();
        state.meta.mode = Some(mode);
        state.record.change();
    }

    /// Makes the bytes written so far durable. No row is written before the [end](Self::end), or half of the file would be
    /// delivered after a restart of this node.
    pub fn commit(&self) -> Result<()> {
        self.depot.disk.sync(self.entry.id, false)
    }

    /// Returns its id, as the queue shows it.
    pub fn id(&self) -> String {
        self.entry.id.to_string()
    }

    /// Returns a descriptor for a writer that asks for a grant before each write.
    pub fn file(&self) -> Result<File> {
        self.depot.disk.writer(self.entry.id)
    }

    /// Takes room for a whole file of that size before anything is written. Waits for room until cancelled; `is_wanted` is
    /// asked now and then, with the reason. The writer holds no room meanwhile.
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

    /// Permits a write of a range. Waits for room.
    pub fn grant(&self, range: Range<u64>) -> Result<Ticket> {
        self.grant_while(range, &|_| true)
    }

    /// Permits a write of a range. Waits for room until cancelled; `is_wanted` is asked now and then, with the reason.
    pub fn grant_while(&self, range: Range<u64>, is_wanted: IsWanted<'_>) -> Result<Ticket> {
        self.could_be(range.end)?;
        (self.depot).make_room(&self.entry, range.end, &self.asks(), is_wanted)?;
        let ticket = self.entry.lock().machine.grant(range);
        self.granted.lock().insert(ticket);
        Ok(ticket)
    }

    /// Ends a write by descriptor, after which the file has that size.
    pub fn written(&self, range: Range<u64>, ticket: Ticket, size: u64) {
        self.written_as(range, ticket, size, None);
    }

    /// Ends a write of a range whose hash the writer knows. Only the hash of a whole leaf of 1 MiB is kept.
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
        // A thread that is sending it looks again at the end.
        let is_worth =
            !state.delivery.is_in_flight && state.machine.pushable_bytes() >= WORTH_SENDING;
        state.delivery.is_due |= is_worth;
        drop(state);
        if is_worth {
            self.depot.nudge();
        }
    }

    /// Writes bytes, and keeps their hash.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_while(offset, bytes, &|_| true)
    }

    /// Writes bytes, and waits for room until cancelled.
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

    /// Closes the file: when this returns it is durable here and current, and will be delivered. It supersedes pending
    /// entries of its name. An error: nothing was written.
    pub fn end(self) -> Result<u64> {
        self.end_while(&|_| true, &|| true)
    }

    /// Closes the file, and waits for room until cancelled. If `is_there` says that the writer has gone when the file would
    /// get its place, nothing was written: that writer got no answer, and may have written something else since.
    pub fn end_while(self, is_wanted: IsWanted<'_>, is_there: &dyn Fn() -> bool) -> Result<u64> {
        match self.is_into {
            true => self.end_patch(is_wanted, is_there),
            false => self.end_anew(is_there),
        }
    }

    pub(crate) fn end_anew(mut self, is_there: &dyn Fn() -> bool) -> Result<u64> {
        // Another writer may have been faster.
        if *self.entry.lock().machine.base() == Base::Absent {
            self.depot.must_be_free(&self.entry.name())?;
        }
        let _ending = self.depot.ends(&self.entry);
        self.depot.notice_ends(&self.entry);
        if !is_there() {
            return Err(Error::Unwanted);
        }
        // From its place in the order on it may be delivered, and without a user it would then be forgotten.
        let user = User::of(&self.entry, &mut self.entry.lock());
        let generation = self.close();
        self.depot.plan().move_to_end(&self.entry);
        self.is_over = true;
        self.depot.fit(&self.entry);
        let known = self.depot.sync_and_know(&self.entry);
        if let Err(error) = known.and_then(|()| self.entry.commit(&self.depot)) {
            self.is_over = false;
            return Err(error);
        }
        self.depot.make_current(&self.entry)?;
        drop(user);
        // A newer entry is current, and this one may have been delivered meanwhile.
        if !self.entry.lock().is_current() {
            self.depot.let_go(&self.entry)?;
        }
        Ok(generation)
    }

    /// Abandons the grants whose writes have not ended.
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
        // Its writer had no answer.
        let state = self.entry.lock();
        if let Err(error) = self.depot.unlink(&self.entry, state) {
            tracing::warn!(%error, url = %self.entry.url(), "what was not finished cannot be removed");
        }
    }
}

impl Inner {
    /// Refuses a name of which this machine knows a file: it is pending, or the target had it a moment ago.
    fn must_be_free(&self, url: &Url) -> Result<()> {
        let plan = self.plan();
        let is_there = plan.called(url).iter().any(|entry| {
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

    /// Gives an entry that arrived whole the last place in the order. An earlier place would put it before entries that
    /// were closed while it arrived.
    fn adopted(&self, entry: &Arc<Entry>) {
        let mut plan = self.plan();
        entry.renumber(self.numbers.next());
        entry.lock().meta.replaces = plan.before(entry);
        plan.insert(entry);
        plan.comes(entry);
    }
}

/// The longest file of any machine.
const FILE_MAX: u64 = 1 << 60;
