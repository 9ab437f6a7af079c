//! Reads entries again from time to time, and compares them with their hashes.
//!
//! A disk may lose bytes of a file that is not read for long. So each file is verified once in a while: one at a time, if
//! nothing is in flight, with a pause after each that keeps to a rate. Pending files are left out: they are compared when
//! they are sent.

use crate::{
    Error, Result, Verified,
    clock::now,
    disk::rows::Change,
    inner::{Inner, user::User},
    plan::entry::Entry,
    work::probe::OURS,
};
use godwit_core::holding::Base;
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::Duration,
};

impl Inner {
    /// Verifies an entry at a time in seconds since the epoch. `None`: it is not whole, or a program writes it.
    pub(crate) fn verify(&self, entry: &Arc<Entry>, time: u64) -> Result<Option<Verified>> {
        let mut state = entry.lock();
        let is_still = state.machine.writers().is_none() && !state.machine.is_unseen();
        if state.is_gone || !is_still || !state.machine.is_whole() {
            return Ok(None);
        }
        let _user = User::keeper(entry, &mut state);
        let (known, size) = (state.bytes.leaves.clone(), state.machine.size());
        let base = state.machine.base().clone();
        drop(state);
        let (_, found) = self.hashed_while(entry, &|| !self.is_ending())?;
        self.verified(entry, time);
        let wrong: Vec<u64> = known
            .known(size)
            .filter(|(leaf, chain)| found.chain(*leaf, size).as_ref() != Some(chain))
            .map(|(leaf, _)| leaf)
            .collect();
        let root = match base {
            Base::Seen(godwit_core::Version::Strong(digest)) => {
                Some(digest).filter(|d| d.algorithm() == OURS)
            }
            _ => None,
        };
        let is_unknown = !known.unknown(size).is_empty() && root.is_none();
        let is_other = root.is_some_and(|root| found.root(size).as_ref() != Some(&root));
        let mut state = entry.lock();
        let is_spoilt = !wrong.is_empty() || is_other;
        if is_spoilt && !state.machine.owes() && !state.is_gone {
            tracing::error!(url = %entry.url(), "what is held is not what came; it is forgotten and fetched again");
            state.is_gone = true;
            self.unlink(entry, state)?;
        } else {
            drop(state);
        }
        Ok(Some(Verified {
            url: entry.name(),
            bytes: size,
            wrong,
            is_unknown,
        }))
    }

    /// Notes the time of the verification. The row is written later.
    pub(crate) fn verified(&self, entry: &Entry, time: u64) {
        entry.verified.store(time, Relaxed);
        self.records.write_behind(Change::Verified(entry.id, time));
    }
}

/// Starts the thread that verifies.
pub(crate) fn start(depot: &Arc<Inner>, every: Duration) -> Result<JoinHandle<()>> {
    let depot = Arc::clone(depot);
    let root = depot.disk.root().to_owned();
    let thread = thread::Builder::new().name("scrubber".into());
    let started = thread.spawn(move || {
        while !depot.is_ending() {
            depot.sleep(LOOK_EVERY);
            for entry in depot.unverified(now(), every) {
                while !depot.is_ending() && !depot.is_still() {
                    depot.sleep(LOOK_EVERY);
                }
                if depot.is_ending() {
                    break;
                }
                let bytes = depot.scrub(&entry, now());
                depot.sleep(pause_after(bytes));
            }
        }
    });
    started.map_err(Error::disk(root))
}

impl Inner {
    /// Returns the entries that were not verified for so long, the longest ago first.
    fn unverified(&self, time: u64, every: Duration) -> Vec<Arc<Entry>> {
        let mut all = self.every();
        all.retain(|entry| {
            let state = entry.lock();
            let is_safe = state.machine.may_be_forgotten() && state.machine.is_whole();
            let ago = time.saturating_sub(entry.verified.load(Relaxed));
            is_safe && !state.is_gone && ago >= every.as_secs()
        });
        all.sort_by_cached_key(|entry| (entry.verified.load(Relaxed), entry.number()));
        all
    }

    /// Tells whether no entry is being sent or fetched.
    fn is_still(&self) -> bool {
        let is_still = |entry: &Arc<Entry>| {
            let state = entry.lock();
            !state.delivery.is_in_flight && !state.machine.is_fetching()
        };
        self.every().iter().all(is_still)
    }

    /// Verifies one, and returns how many bytes were read.
    fn scrub(&self, entry: &Arc<Entry>, time: u64) -> u64 {
        match self.verify(entry, time) {
            Ok(found) => found.map_or(0, |found| found.bytes),
            Err(Error::Ending) => 0,
            Err(error) => {
                tracing::error!(url = %entry.url(), %error, "what is held cannot be read again");
                self.verified(entry, time);
                0
            }
        }
    }
}

/// Returns the pause after so many bytes.
fn pause_after(bytes: u64) -> Duration {
    let pause = Duration::from_secs(bytes) / BYTES_A_SECOND;
    pause.max(PAUSE_MIN)
}

const BYTES_A_SECOND: u32 = 8 << 20;

/// The least pause, since opening a file has a cost too.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// How often due entries are looked for; tests do not wait for that.
const LOOK_EVERY: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 60_000 });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Depot, Rules,
        tests::tested::{far, reaching, read, until},
    };
    use godwit_core::holding::{Base, Holding, Mode};
    use std::{fs, path::Path, sync::Arc};

    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

    /// A depot that has read a file, and what else there is to it.
    fn reading(root: &Path, store: &godwit_store::Dir, scrub_every: Option<Duration>) -> Depot {
        let rules = Rules {
            scrub_every,
            ..Rules::default()
        };
        let depot = Depot::open(root, rules, reaching(Arc::new(store.clone()), || false)).unwrap();
        assert_eq!(read(&depot, "a"), b"as it came");
        depot
    }

    fn only(depot: &Depot) -> Arc<Entry> {
        depot.inner.every().pop().unwrap()
    }

    #[test] //= KANGAROO-X7 depot#how-fresh-a-read-is
    fn scrub_refetches_damaged_files() {
        let (server, store) = far();
        fs::write(server.path().join("a"), b"as it came").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("depot");
        let depot = reading(&root, &store, None);
        let entry = only(&depot);
        let (came, used) = (entry.verified.load(Relaxed), entry.used.load(Relaxed));
        let is_due = |depot: &Depot, time| depot.inner.unverified(time, MONTH).len() == 1;
        let after = came + MONTH.as_secs();
        assert!(!is_due(&depot, after - 1) && is_due(&depot, after));
        entry.used.store(used - 1, Relaxed);
        assert_eq!(depot.inner.scrub(&entry, after), 10);
        assert_eq!(entry.used.load(Relaxed), used - 1, "nobody used it");
        assert!(!is_due(&depot, after + 1));
        drop((entry, depot));
        // When that was is known after the next start.
        let depot = reading(&root, &store, None);
        let later = after + MONTH.as_secs();
        assert!(!is_due(&depot, later - 1) && is_due(&depot, later));
        let entry = only(&depot);
        fs::write(depot.inner.disk.path(entry.id), b"as it rots").unwrap();
        depot.inner.scrub(&entry, later);
        assert!(entry.lock().is_gone);
        assert_eq!(read(&depot, "a"), b"as it came");
    }

    #[test] //= KANGAROO-X7 depot#how-fresh-a-read-is
    fn what_is_due_is_verified_by_itself() {
        let (server, store) = far();
        fs::write(server.path().join("a"), b"as it came").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let depot = reading(&dir.path().join("depot"), &store, Some(Duration::ZERO));
        let entry = only(&depot);
        fs::write(depot.inner.disk.path(entry.id), b"as it rots").unwrap();
        until("it was verified", || entry.lock().is_gone);
        assert_eq!(read(&depot, "a"), b"as it came");
    }

    #[test] //= depot#how-fresh-a-read-is
    fn scrub_waits_for_transfers() {
        let (server, store) = far();
        fs::write(server.path().join("a"), b"as it came").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let depot = reading(&dir.path().join("depot"), &store, None);
        let entry = only(&depot);
        assert!(depot.inner.is_still());
        entry.lock().delivery.is_in_flight = true;
        assert!(!depot.inner.is_still());
        entry.lock().delivery.is_in_flight = false;
        let version = entry.lock().machine.base().clone();
        let Base::Seen(version) = version else {
            panic!("{version:?}");
        };
        let mut machine = Holding::of(version, 10, Mode::Replace);
        let fetch = machine.fetch(0..10).unwrap();
        entry.lock().machine = machine;
        assert!(!depot.inner.is_still());
        entry.lock().machine.broke_off(fetch.ticket);
        assert!(depot.inner.is_still());
    }

    #[test]
    fn a_pause_keeps_to_the_rate() {
        assert_eq!(pause_after(0), PAUSE_MIN);
        assert_eq!(pause_after(80 << 20), Duration::from_secs(10));
        assert!(pause_after(u64::MAX) > MONTH);
    }
}
