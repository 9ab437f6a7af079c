//! Does chores that can wait: rows of fetched entries, tags that expire, room.

use crate::{Error, Result, disk::rows::Change, inner::Inner, plan::entry::Entry};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

impl Inner {
    /// Forgets a filled entry that has no tag and no reader any more.
    pub(crate) fn let_lapse(&self, entry: &Entry) -> Result<()> {
        let state = entry.lock();
        match state.is_lapsed() && !state.is_gone && state.may_go() {
            true => self.unlink(entry, state),
            false => Ok(()),
        }
    }
}

/// Starts the thread of the housekeeper.
pub(crate) fn start(depot: &Arc<Inner>) -> Result<JoinHandle<()>> {
    let depot = Arc::clone(depot);
    let root = depot.disk.root().to_owned();
    let started = thread::Builder::new().name("keeper".into()).spawn(move || {
        let mut all_kept = Instant::now();
        while !depot.is_ending() {
            depot.sleep(EVERY);
            depot.keep_house();
            if all_kept.elapsed() > ALL_EVERY {
                depot.keep_all();
                all_kept = Instant::now();
            }
        }
        depot.keep_all();
    });
    started.map_err(Error::disk(root))
}

impl Inner {
    /// Does the chores that are due.
    fn keep_house(&self) {
        self.ballast.take();
        if let Err(error) = self.expire() {
            tracing::warn!(%error, "tags whose time is over cannot be taken off");
        }
        if self.room.look_again() {
            self.due.notify_all();
        }
        let noted = std::mem::take(&mut *self.chores.unrecorded.lock());
        let mut unrecorded: Vec<_> = {
            let plan = self.plan();
            let entry = noted.iter().filter_map(|id| plan.by_id.get(id));
            entry.cloned().collect()
        };
        unrecorded.retain(|entry| !self.is_kept(entry));
        (self.chores.unrecorded.lock()).extend(unrecorded.iter().map(|entry| entry.id));
    }

    /// Does the chores of all entries, and at the end writes when they were used.
    fn keep_all(&self) {
        let every = self.every();
        for entry in &every {
            if let Err(error) = self.let_lapse(entry) {
                tracing::warn!(%error, url = %entry.url(), "what a program filled cannot be forgotten");
            }
        }
        let used = every.iter().filter(|entry| self.is_kept(entry));
        let used: Vec<_> = used
            .map(|entry| (entry.id, entry.used.load(Relaxed)))
            .collect();
        if self.is_ending() {
            self.records.write_behind(Change::Used(used));
        }
    }

    /// Writes the row of a fetched entry without a user. Returns whether the row was up to date.
    fn is_kept(&self, entry: &Entry) -> bool {
        let state = entry.lock();
        if !state.record.is_ahead() || state.is_gone {
            return true;
        }
        let is_fetched = !state.machine.owes() && state.machine.is_whole();
        let is_idle = state.machine.writers().is_none() && state.users.open == 0;
        drop(state);
        if is_fetched
            && is_idle
            && let Err(error) = entry.commit(self)
        {
            tracing::warn!(%error, url = %entry.url(), "what was fetched cannot be recorded");
        }
        false
    }
}

/// Returns in which class of prices bytes are that came in so long a time: 0 for all that come at
/// 10 MB/s or faster, and one more for each time ten that they came slower.
pub(crate) fn price(bytes: u64, took: Duration) -> u32 {
    const CHEAP: u128 = 95; // nanoseconds a byte
    let each = took.as_nanos() / u128::from(bytes.max(1));
    (each / CHEAP).checked_ilog10().unwrap_or(0)
}

pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// How often all entries are looked at.
const ALL_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test] //= depot#room
    fn what_comes_slowly_is_dearer() {
        let mib = 1 << 20;
        assert_eq!(price(mib, Duration::from_millis(90)), 0);
        assert_eq!(price(mib, Duration::from_secs(2)), 1);
        assert_eq!(price(1000, Duration::from_millis(30)), 2);
        assert_eq!(price(0, Duration::ZERO), 0);
    }
}
