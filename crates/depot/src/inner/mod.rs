//! State that the threads of a depot share, without any policy.

pub(crate) mod chores;
pub(crate) mod locks;
pub(crate) mod turns;
pub(crate) mod user;
pub(crate) mod watches;

use crate::{
    Connect, Rules, Who,
    clock::now,
    disk::{files::Disk, logs::Logs, quota::Room, records::Records, reserve::Ballast},
    id::Id,
    inner::{chores::Chores, locks::Locks, watches::Watches},
    plan::{Numbers, Plan, entry::Entry},
};
use godwit_core::{Url, holding::Holding};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

pub(crate) struct Inner {
    // Before the disk, whose lock must be held as long as anything is written.
    pub records: Records,
    pub disk: Disk,
    pub rules: Rules,
    pub connect: Connect,
    pub room: Room,
    pub ballast: Arc<Ballast>,
    pub plan: Mutex<Plan>,
    /// Woken if something is pending, or may be tried again.
    pub due: Condvar,
    pub is_ending: AtomicBool,
    pub numbers: Numbers,
    pub watches: Watches,
    pub logs: Logs,
    pub chores: Chores,
    pub locks: Locks,
    /// Tells this boot of the machine from others.
    pub boot: String,
}

impl Inner {
    pub(crate) fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock()
    }

    /// Returns everything that is held, for a look at each without this lock.
    pub(crate) fn every(&self) -> Vec<Arc<Entry>> {
        self.plan().by_id.values().cloned().collect()
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(SeqCst)
    }

    /// Has the threads look again for work.
    pub(crate) fn nudge(&self) {
        // Under the lock, or a thread that has just found nothing would miss it.
        drop(self.plan());
        self.due.notify_all();
    }

    /// Returns an entry that is created now, with the last place in the order. The plan does not know it yet.
    pub(crate) fn new_entry(&self, id: Id, url: &Url, who: &Who, machine: Holding) -> Arc<Entry> {
        let order = (self.numbers.next(), now());
        Arc::new(Entry::new(id, order, url.clone(), who.clone(), machine))
    }

    /// Waits so long, whatever happens meanwhile, unless the depot ends.
    pub(crate) fn sleep(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut plan = self.plan();
        while !self.is_ending() && !self.due.wait_until(&mut plan, until).timed_out() {}
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the depot in {}", self.disk.root().display())
    }
}
