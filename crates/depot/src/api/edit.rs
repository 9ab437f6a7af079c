//! Files that programs write by a descriptor of their own.
//!
//! This node does not see their writes. A lease of the kernel proves that no program has the file open for writing; then
//! the file is compared with its hashes. A watch of the file is a hint to ask for the lease.

use crate::{
    Depot, Ended, Error, Fresh, Result, Who,
    error::may_pass,
    inner::{Inner, user::User},
    plan::state::State,
};
use godwit_core::{
    Url,
    holding::{Base, Holding, Mode, Notices},
};
use godwit_store::Error as StoreError;
use godwit_sys::crash;
use std::{
    fs::File,
    sync::Arc,
    time::{Duration, Instant},
};

/// How a file is opened for writing, as by open(2).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Edit {
    /// Make it if it does not exist.
    pub create: bool,
    /// Refuse it if it exists.
    pub exclusive: bool,
    /// Throw away what is in it.
    pub truncate: bool,
    /// The session by which the writer finds it again.
    pub session: String,
    /// Permission bits for a new file.
    pub mode: Option<u32>,
    /// Take the file as this machine has it; of a server that is away, a name that this machine does not know is absent.
    pub offline: bool,
}

/// Tells whether the program that asked for the open or close still waits.
pub type IsThere<'a> = &'a dyn Fn() -> bool;

/// A file that a program may change by a descriptor.
#[derive(Debug)]
pub struct Editing {
    depot: Arc<Inner>,
    pub(crate) user: User,
    file: Option<File>,
}

impl Depot {
    /// Opens a file for writing by descriptor. Without [`Edit::truncate`] it is fetched first.
    pub fn edit(&self, url: &Url, who: &Who, edit: &Edit) -> Result<Editing> {
        self.edit_while(url, who, edit, &|| true)
    }

    /// Opens a file for a program that may be gone; if it is, no new file is made.
    pub fn edit_while(
        &self,
        url: &Url,
        who: &Who,
        edit: &Edit,
        is_there: IsThere<'_>,
    ) -> Result<Editing> {
        self.inner.edit((url, who), edit, is_there)
    }
}

impl Editing {
    /// Returns the descriptor. All copies must be closed before the [end](Self::end).
    pub fn file(&self) -> Result<&File> {
        self.file.as_ref().ok_or(Error::Ending)
    }

    /// Returns what it is called.
    pub fn url(&self) -> Url {
        self.user.entry.name()
    }

    /// Returns the length of the file as it was opened.
    pub fn size(&self) -> u64 {
        self.user.entry.lock().machine.size()
    }

    /// Ends this writer, and finds out what was written.
    pub fn end(self) -> Result<Ended> {
        self.end_while(&|| true)
    }

    /// Ends the writer of a program that may be gone: then entries that were put since the opening come after its writes.
    pub fn end_while(mut self, is_there: IsThere<'_>) -> Result<Ended> {
        let entry = &self.user.entry;
        // A program that still waits receives its answer after all entries with an earlier place.
        let place = self.depot.numbers.next();
        if is_there() {
            entry.lock().users.closed_at = place;
        }
        self.file = None;
        let is_alone = entry.lock().users.editors == 1;
        let until = Instant::now() + FORKED;
        loop {
            let ended = self.depot.is_edited(entry)?;
            // A child process is about to close its copy: that is no other writer.
            if ended != Ended::Open || !is_alone || Instant::now() >= until {
                return Ok(ended);
            }
            let mut state = entry.lock();
            if state.machine.is_unseen() {
                entry.wait(&mut state, Some(Instant::now() + FORKED / 10));
            }
        }
    }
}

impl Editing {
    /// Drops what was written. If other writers have the file open, or it has older pending changes, it ends as by
    /// [`Editing::end`].
    pub fn discard(self) -> Result<()> {
        // As long as this descriptor is open no thread takes the writers for gone.
        let entry = Arc::clone(&self.user.entry);
        let state = self.depot.still(&entry);
        let was_there = matches!(state.machine.base(), Base::Seen(_));
        let was_clean = match was_there {
            true => state.machine.owed_bytes() == 0,
            false => state.meta.committed == 0,
        };
        if state.is_gone || state.users.editors > 1 || !was_clean {
            drop(state);
            return self.end_while(&|| false).map(drop);
        }
        self.depot.unwatch(&entry);
        self.depot.unlink(&entry, state)
    }
}

impl Drop for Editing {
    fn drop(&mut self) {
        self.user.entry.lock().users.editors -= 1;
        if self.file.take().is_some() {
            // Others may still have it open; the watch tells when they are gone.
            let _ = self.depot.is_edited(&self.user.entry);
        }
    }
}

impl Inner {
    fn edit(
        self: &Arc<Self>,
        (url, who): (&Url, &Who),
        edit: &Edit,
        is_there: IsThere<'_>,
    ) -> Result<Editing> {
        self.wait_for_ends(&(url.clone(), who.audience.clone()));
        let user = match self.edited(url, who, edit)? {
            Some(user) => user,
            None => {
                let base = match edit.truncate && !edit.exclusive {
                    true => Base::Any,
                    false => Base::Absent,
                };
                match self.new_edited((url, who), edit, base, is_there)? {
                    Some(user) => user,
                    None => return self.edit((url, who), edit, is_there),
                }
            }
        };
        let entry = Arc::clone(&user.entry);
        // Opened first: as long as this descriptor is open no thread takes the writers for gone.
        let file = self.disk.writer(entry.id)?;
        let mut state = loop {
            drop(self.still(&entry));
            let plan = self.plan();
            let state = entry.lock();
            if state.is_gone {
                return Err(Error::busy(url, &"gone meanwhile; try again"));
            }
            if !edit.truncate && !state.is_current() {
                drop((state, plan));
                return self.edit((url, who), edit, is_there); // What its name says is something else by now.
            }
            if !state.bytes.is_scanning {
                break state;
            }
        };
        let opened = state.machine.open(Notices::None);
        opened.map_err(|refused| Error::busy(url, &refused))?;
        state.meta.session.clone_from(&edit.session);
        state.users.editors += 1;
        state.bytes.write_fd = None;
        state.record.change();
        drop(state);
        // An error takes it back from here on.
        let editing = Editing {
            depot: Arc::clone(self),
            user,
            file: Some(file),
        };
        self.plan().enqueue(&entry);
        // It must be persisted before a program can write unseen.
        entry.commit(self)?;
        crash::point("open-recorded");
        self.watch(&entry);
        Ok(editing)
    }

    /// Returns the file as it is now, whole; `None`: a new one is to be made.
    fn edited(&self, url: &Url, who: &Who, edit: &Edit) -> Result<Option<User>> {
        if edit.truncate && !edit.exclusive {
            return Ok(None);
        }
        // The origin never had a filled file.
        let fresh = match edit.exclusive || self.is_filled(url, who) {
            true => Fresh::Now,
            false if edit.offline => Fresh::Any,
            false => Fresh::Usual,
        };
        let find = || self.find(url, who, fresh);
        // A wrong answer that it is missing would make a new file over the existing one.
        let found = match edit.create {
            true => self.surely((url, who), find),
            false => find(),
        };
        let user = match found {
            Ok(_) if edit.exclusive => {
                return Err(StoreError::exists(url.as_path()).into());
            }
            // An entry of another audience is not changed for them.
            Ok(user) if user.entry.who.audience != who.audience => self.own(url, who, &user)?,
            Ok(user) => user,
            Err(Error::Store(error))
                if edit.create && matches!(*error, StoreError::Missing { .. }) =>
            {
                return Ok(None);
            }
            Err(Error::Store(error)) if edit.create && edit.offline && may_pass(&error) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.ensure(&user.entry, 0..u64::MAX)?;
        self.know_leaves(&user.entry)?;
        Ok(Some(user))
    }

    /// Makes an own entry of a shared one, for a caller that is about to change it.
    fn own(&self, url: &Url, who: &Who, shared: &User) -> Result<User> {
        let state = shared.entry.lock();
        let size = state.machine.size();
        let seen = match (&state.validity.seen, state.machine.base()) {
            (Some(seen), _) => (seen.clone(), state.validity.seen_at.clone()),
            (None, Base::Seen(version)) => (version.clone(), None),
            _ => {
                return Err(Error::busy(url, &"in use by another program; try again"));
            }
        };
        drop(state);
        self.admit(url, who, seen, size, || false)?;
        self.find(url, who, Fresh::Any)
    }

    /// Begins a new file, which is current at once. `None`: another writer began one since the origin was asked.
    fn new_edited(
        &self,
        (url, who): (&Url, &Who),
        edit: &Edit,
        base: Base,
        is_there: IsThere<'_>,
    ) -> Result<Option<User>> {
        drop((self.connect)(url, who)?);
        let (id, _) = self.disk.create()?;
        if !is_there() {
            self.disk.remove(id)?;
            return Err(Error::Unwanted);
        }
        let base_is_absent = base == Base::Absent;
        let machine = Holding::born(base, Mode::Replace);
        let entry = self.new_entry(id, url, who, machine);
        let mut state = entry.lock();
        state.meta.session.clone_from(&edit.session);
        state.meta.mode = edit.mode;
        let user = User::of(&entry, &mut state);
        drop(state);
        let mut plan = self.plan();
        let current = plan.current_of(url, who).filter(|_| base_is_absent);
        if current.is_some_and(|entry| is_pending(&entry.lock())) {
            drop((plan, user));
            self.disk.remove(id)?;
            return Ok(None);
        }
        plan.insert(&entry);
        plan.make_newest(&entry);
        Ok(Some(user))
    }
}

/// Tells whether an entry with a name is pending.
fn is_pending(state: &State) -> bool {
    !state.is_gone && !state.is_unlinked() && state.machine.owes()
}

/// How long a child process may take from fork to exec.
const FORKED: Duration = Duration::from_millis(200);
