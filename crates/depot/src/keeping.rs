//! What is done now and then: records of what was fetched, and room.

use crate::{Error, Result, depot::Inner, disk::Id, held::Held, records::Change};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What is to be done some time, so that nobody looks for it among all that is held.
#[derive(Default)]
pub(crate) struct Chores {
    /// What was fetched and is not on record.
    unrecorded: Mutex<BTreeSet<Id>>,
    /// When tags fall by themselves, in seconds since the epoch.
    falling: Mutex<BTreeSet<(u64, Id)>>,
}

impl Chores {
    /// Has it be recorded once nobody uses it.
    pub(crate) fn record(&self, id: Id) {
        self.unrecorded.lock().insert(id);
    }

    /// Has its tags be looked at then.
    pub(crate) fn falls(&self, at: u64, id: Id) {
        self.falling.lock().insert((at, id));
    }

    /// Returns of what a tag may be over.
    pub(crate) fn fallen(&self, now: u64) -> Vec<Id> {
        let mut falling = self.falling.lock();
        let left = falling.split_off(&(now + 1, Id::of([0; 12])));
        let fallen = std::mem::replace(&mut *falling, left);
        fallen.into_iter().map(|(_, id)| id).collect()
    }
}

/// Starts the thread that keeps house.
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
    /// Waits so long, whatever happens meanwhile, unless the depot ends.
    pub(crate) fn sleep(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut all = self.all();
        while !self.is_ending() && !self.due.wait_until(&mut all, until).timed_out() {}
    }

    /// Writes what was put off.
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
            let all = self.all();
            let held = noted.iter().filter_map(|id| all.by_id.get(id));
            held.cloned().collect()
        };
        unrecorded.retain(|held| !self.is_kept(held));
        (self.chores.unrecorded.lock()).extend(unrecorded.iter().map(|held| held.id));
    }

    /// The same for all that is held, and for when it was used.
    fn keep_all(&self) {
        let every = self.every();
        for held in &every {
            if let Err(error) = self.let_lapse(held) {
                tracing::warn!(%error, url = %held.url(), "what a program filled cannot be forgotten");
            }
        }
        let used = every.iter().filter(|held| self.is_kept(held));
        let used: Vec<_> = used
            .map(|held| (held.id, held.used.load(Relaxed)))
            .collect();
        if self.is_ending() {
            self.records.write_behind(Change::Used(used));
        }
    }

    /// Records what was fetched, once nobody uses it. Returns whether nothing is to be recorded of it.
    fn is_kept(&self, held: &Held) -> bool {
        let state = held.lock();
        if !state.is_ahead() || state.is_gone {
            return true;
        }
        let is_fetched = !state.machine.owes() && state.machine.is_whole();
        let is_idle = state.machine.writers().is_none() && state.users == 0;
        drop(state);
        if is_fetched
            && is_idle
            && let Err(error) = held.commit(self)
        {
            tracing::warn!(%error, url = %held.url(), "what was fetched cannot be recorded");
        }
        false
    }

    /// Forgets what was not used for longest, until at least `wanted` bytes are free; what comes slowly
    /// counts as used later. Returns false if nothing could be.
    pub(crate) fn evict(&self, wanted: u64) -> Result<bool> {
        let mut freed = 0;
        let mut all = self.every();
        all.sort_by_cached_key(|held| {
            let stays = u64::from(held.lock().price) * STAYS;
            (held.used.load(Relaxed) + stays, held.number())
        });
        for held in all {
            if freed >= wanted {
                break;
            }
            freed += self.evict_one(&held)?;
        }
        Ok(freed > 0)
    }

    fn evict_one(&self, held: &Held) -> Result<u64> {
        let state = held.lock();
        if state.is_gone || !state.may_go() {
            return Ok(0);
        }
        let bytes = state.reserved;
        tracing::debug!(url = %held.url(), bytes, "forgotten, to make room");
        self.unlink(held, state)?;
        Ok(bytes)
    }

    /// Waits until something may have been freed.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        self.logs.are_short();
        let mut all = self.all();
        if self.is_ending() {
            return Err(Error::Ending);
        }
        self.due.wait_for(&mut all, EVERY);
        Ok(())
    }
}

/// Returns in which class of prices bytes are that came in so long a time: 0 for all that come at
/// 10 MB/s or faster, and one more for each time ten that they came slower.
pub(crate) fn price(bytes: u64, took: Duration) -> u32 {
    const CHEAP: u128 = 95; // nanoseconds a byte
    let each = took.as_nanos() / u128::from(bytes.max(1));
    (each / CHEAP).checked_ilog10().unwrap_or(0)
}

/// Each class of prices keeps a file for so many seconds more.
const STAYS: u64 = 600;

const EVERY: Duration = Duration::from_secs(1);

/// All that is held is looked at so rarely.
const ALL_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_slowly_is_dearer() {
        let mib = 1 << 20;
        assert_eq!(price(mib, Duration::from_millis(90)), 0);
        assert_eq!(price(mib, Duration::from_secs(2)), 1);
        assert_eq!(price(1000, Duration::from_millis(30)), 2);
        assert_eq!(price(0, Duration::ZERO), 0);
    }
}
