//! Finds the ends of programs that write by a descriptor of their own.

use crate::{
    Ended, Error, Result,
    inner::Inner,
    plan::{close::Standing, entry::Entry, state::State},
};
use godwit_core::holding::Notices;
use godwit_sys::{Leased, Unless, lease};
use parking_lot::MutexGuard;
use std::{
    os::fd::AsFd,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

impl Inner {
    /// Waits until no thread compares the file with its hashes: that thread has a lease, and opening the file would wait.
    pub(crate) fn still<'a>(&self, entry: &'a Entry) -> MutexGuard<'a, State> {
        let mut state = entry.lock();
        while state.bytes.is_scanning {
            entry.wait(&mut state, None);
        }
        state
    }

    /// Hashes leaves without a known hash. Later changes are found by the hashes.
    pub(crate) fn know_leaves(&self, entry: &Entry) -> Result<()> {
        let state = entry.lock();
        let size = state.machine.size();
        let unknown = state.bytes.leaves.unknown(size);
        drop(state);
        if unknown.is_empty() {
            return Ok(());
        }
        let found = self.hashed(entry)?.1;
        let mut state = entry.lock();
        // What was written unseen would be taken for what was there before.
        if !state.machine.is_unseen() {
            state.bytes.leaves = found;
        }
        Ok(())
    }

    /// Finds out whether all who could write a file unseen are gone, and what they did.
    pub(crate) fn is_edited(&self, entry: &Arc<Entry>) -> Result<Ended> {
        let mut state = self.still(entry);
        let generation = state.meta.committed;
        if state.is_gone {
            return Ok(Ended::Last(generation));
        }
        if !state.machine.is_unseen() {
            drop(state);
            // The thread that found it out may not have recorded it yet.
            return match entry.commit(self) {
                Ok(()) | Err(Error::Unknown(_)) => Ok(Ended::Last(generation)),
                Err(error) => Err(error),
            };
        }
        let file = self.disk.reader(entry.id)?;
        let leased =
            lease(&file, Unless::Written).map_err(Error::disk(self.disk.path(entry.id)))?;
        let lease = match leased {
            Leased::Granted(lease) => lease,
            Leased::Refused => return Ok(Ended::Open),
            Leased::Unsupported => {
                return Err(Error::busy(
                    &entry.url(),
                    &"on a disk without leases: the end of its writers cannot be noticed",
                ));
            }
        };
        while state.machine.writers() == Some(Notices::None) {
            state.machine.close(Notices::None);
        }
        state.bytes.is_scanning = true;
        drop(state);
        let scanned = self.rescan(entry, || !lease.is_broken());
        drop(lease);
        let mut state = entry.lock();
        let is_over = matches!(scanned, Ok(true)) && !state.machine.is_unseen();
        if is_over {
            // What was written by descriptors is a generation now.
            state.meta.committed = state.machine.generation();
            state.record.change();
        }
        drop(state);
        let ended = match scanned {
            Ok(_) if is_over => self.ended_by_all(entry),
            Ok(_) => Ok(Ended::Open),
            Err(error) => Err(error),
        };
        // Others learn of the end when the entry has its place: their next operation comes after it.
        entry.lock().bytes.is_scanning = false;
        entry.tell();
        ended
    }

    /// Notices writers by descriptor of the same name that have ended: they ended before the writer that closes now.
    pub(crate) fn notice_ends(&self, entry: &Entry) {
        let mut called = self.plan().called(&entry.name());
        called.retain(|other| other.id != entry.id);
        self.look_for_ends_of(&called, |state| {
            state.machine.is_unseen() || state.bytes.is_scanning
        });
    }

    /// Finds out what writers by descriptor did until now, while they may go on.
    pub(crate) fn glimpse(&self, entry: &Entry) -> Result<()> {
        let state = self.still(entry);
        if state.machine.writers() != Some(Notices::None) || state.is_gone {
            return Ok(());
        }
        drop(state);
        let (mut state, found, leaves) = self.compare_now(entry)?;
        if state.machine.writers() == Some(Notices::None) {
            state.machine.glimpsed(&found);
            state.bytes.leaves = leaves;
            state.record.change();
            return Ok(());
        }
        // The thread that scans it meanwhile knows better.
        drop(state);
        drop(self.still(entry));
        Ok(())
    }

    /// Closes an edit after its last writer has ended.
    fn ended_by_all(&self, entry: &Arc<Entry>) -> Result<Ended> {
        let state = entry.lock();
        let (generation, is_pending) = (state.meta.committed, state.machine.owes());
        drop(state);
        self.unwatch(entry);
        self.fit(entry);
        let standing = is_pending.then(|| self.standing_of_edits(entry));
        if is_pending {
            entry.lock().delivery.is_due = true;
        }
        entry.commit(self)?;
        match standing {
            Some(Standing::Last) => self.make_current(entry)?,
            Some(Standing::Before) => self.nudge(),
            Some(Standing::Over) => self.supersede(entry)?,
            None => self.nothing_written(entry),
        }
        Ok(Ended::Last(generation))
    }

    /// Gives what was written by descriptors its place: where the last writer closed it who was told so, or else where it
    /// was opened. A writer who died, or wrote nothing, takes the place of nothing that was put meanwhile.
    fn standing_of_edits(&self, entry: &Arc<Entry>) -> Standing {
        let mut state = entry.lock();
        let is_edited = std::mem::take(&mut state.users.is_edited);
        let (place, is_unlinked) = (state.users.closed_at, state.is_unlinked());
        drop(state);
        if is_unlinked {
            self.plan().move_to_end(entry);
            return Standing::Last;
        }
        self.plan()
            .move_to_end_unless_replaced(entry, if is_edited { place } else { 0 })
    }

    /// Ends an edit that changed nothing. An entry that was renamed meanwhile has its new name at the target too from now
    /// on: the next write comes after the rename.
    fn nothing_written(&self, entry: &Entry) {
        let mut plan = self.plan();
        plan.settle(entry);
        let was_renamed = entry.is_renamed();
        if was_renamed {
            entry.redirect(entry.name());
            entry.renumber(self.numbers.next());
            entry.lock().record.change();
        }
        drop(plan);
        if was_renamed {
            self.commit_renamed(entry);
        }
    }

    /// Counts against the quota what a file has become.
    pub(crate) fn fit(&self, entry: &Entry) {
        let mut state = entry.lock();
        let (size, reserved) = (state.machine.size(), state.bytes.reserved);
        state.bytes.reserved = size;
        drop(state);
        match size.checked_sub(reserved) {
            Some(more) => self.room.count(more),
            None => self.room.release(reserved - size),
        }
    }

    pub(crate) fn watch(&self, entry: &Arc<Entry>) {
        self.watches.add(self.disk.path(entry.id), entry);
    }

    pub(crate) fn unwatch(&self, entry: &Entry) {
        self.watches.remove(entry);
    }

    /// Looks at every file whose writer by descriptor may have ended.
    pub(crate) fn look_for_ends(&self) {
        self.look_for_ends_of(&self.every(), |state| {
            state.machine.is_unseen() && !state.bytes.is_scanning
        });
    }

    fn look_for_ends_of(&self, all: &[Arc<Entry>], may_have_ended: impl Fn(&State) -> bool) {
        for entry in all {
            let state = entry.lock();
            let may = may_have_ended(&state) && !state.is_gone;
            drop(state);
            if may && let Err(error) = self.is_edited(entry) {
                tracing::warn!(%error, url = %entry.url(), "what was written cannot be looked at");
            }
        }
    }
}

/// Starts the thread that hears of ends.
pub(crate) fn start(depot: &Arc<Inner>) -> Result<JoinHandle<()>> {
    let depot = Arc::clone(depot);
    let root = depot.disk.root().to_owned();
    let started = thread::Builder::new()
        .name("watcher".into())
        .spawn(move || watch_all(&depot));
    started.map_err(Error::disk(root))
}

fn watch_all(depot: &Inner) {
    depot.look_for_ends();
    let (Some(closes), Some(wake)) = (&depot.watches.closes, &depot.watches.wake) else {
        return;
    };
    while !depot.is_ending() {
        let heard = closes.wait(wake.as_fd(), LOOK_EVERY).unwrap_or_default();
        if heard.is_woken {
            return;
        }
        if heard.closed.is_empty() {
            depot.look_for_ends();
        }
        for watched in heard.closed {
            let entry = depot.watches.files.lock().get(&watched).cloned();
            if let Some(entry) = entry
                && let Err(error) = depot.is_edited(&entry)
            {
                tracing::warn!(%error, url = %entry.url(), "what was written cannot be looked at");
            }
        }
    }
}

/// A watch is only a hint; leases are asked for this often without one.
const LOOK_EVERY: Duration = Duration::from_secs(10);
