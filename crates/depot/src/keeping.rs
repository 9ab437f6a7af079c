//! What is done now and then: records of what was fetched, and room.

use crate::{Error, Result, depot::Inner, held::Held, records::Change};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Starts the thread that keeps house.
pub(crate) fn start(depot: &Arc<Inner>) -> Result<JoinHandle<()>> {
    let depot = Arc::clone(depot);
    let root = depot.disk.root().to_owned();
    let started = thread::Builder::new().name("keeper".into()).spawn(move || {
        while !depot.is_ending() {
            let all = depot.all();
            let waited = depot.due.wait_timeout(all, EVERY);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            depot.keep_house();
        }
        depot.keep_house();
    });
    started.map_err(Error::disk(root))
}

impl Inner {
    /// Writes what was put off.
    fn keep_house(&self) {
        if let Err(error) = self.expire() {
            tracing::warn!(%error, "tags whose time is over cannot be taken off");
        }
        if self.room.look_again() {
            self.due.notify_all();
        }
        let mut used = Vec::new();
        for held in self.every() {
            let state = held.lock();
            let is_fetched = !state.is_gone && !state.machine.owes() && state.machine.is_whole();
            let is_idle = state.machine.writers().is_none() && state.users == 0;
            if is_fetched && is_idle && state.is_ahead() {
                drop(state);
                if let Err(error) = held.commit(self) {
                    tracing::warn!(%error, url = %held.url(), "what was fetched cannot be recorded");
                }
            } else if !state.is_ahead() {
                used.push((held.id, held.used.load(Relaxed)));
            }
        }
        if self.is_ending() {
            self.records.write_behind(Change::Used(used));
        }
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
        let all = self.all();
        if self.is_ending() {
            return Err(Error::Ending);
        }
        let waited = self.due.wait_timeout(all, EVERY);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
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
