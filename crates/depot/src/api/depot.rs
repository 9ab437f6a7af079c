//! The depot as a whole: what is held, by name and by number.

use crate::{
    Connect, Result, Rules, clock,
    disk::{
        files::{Disk, Watcher},
        logs::Logs,
        quota::Room,
        records::{Begun, Records},
        reserve::Ballast,
    },
    inner::{Inner, chores::Chores, locks::Locks, watches::Watches},
    plan::{Numbers, Plan, forwarded::Forwarded},
    work::{deliver, drain, edits, housekeep, scrub},
};
use parking_lot::{Condvar, Mutex};
use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

/// A directory of this machine with files of others, and the threads that fetch and deliver them.
pub struct Depot {
    pub(crate) inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Depot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = self.inner.disk.root();
        f.debug_struct("Depot")
            .field("root", &root)
            .finish_non_exhaustive()
    }
}

impl Depot {
    /// Opens the depot in a directory, making it if there is none, and goes on with what is pending.
    pub fn open(root: &Path, rules: Rules, connect: Connect) -> Result<Self> {
        Self::open_watched(root, rules, connect, (clock::boot(), None))
    }

    pub(crate) fn open_watched(
        root: &Path,
        rules: Rules,
        connect: Connect,
        (boot, watcher): (String, Option<Arc<dyn Watcher>>),
    ) -> Result<Self> {
        let disk = Disk::open(root, watcher.clone())?;
        let ballast = Arc::new(Ballast::of(root, rules.quota));
        let open = || Records::open(&disk.records(), &boot, watcher.clone(), &ballast);
        let begun = ballast.with(open)?;
        let Begun {
            records,
            start,
            rows,
            tags,
            logs,
            deeds,
            odd_deeds,
            forwarded,
        } = begun;
        let room = Room::new(rules.quota);
        let logs = Logs::open(root, logs, &room)?;
        let numbers = Numbers::after(start << 32);
        let inner = Arc::new(Inner {
            records,
            disk,
            connect,
            room,
            ballast,
            plan: Mutex::new(Plan {
                numbers: numbers.clone(),
                ..Plan::default()
            }),
            due: Condvar::new(),
            is_ending: AtomicBool::new(false),
            numbers,
            watches: Watches::new(),
            logs,
            chores: Chores::default(),
            locks: Locks::default(),
            boot: boot.clone(),
            rules,
        });
        inner.recover(rows, deeds, start)?;
        inner.plan().unreadable.deeds = odd_deeds;
        let key = |forwarded: Forwarded| {
            (
                (forwarded.url.clone(), forwarded.who.audience.clone()),
                forwarded,
            )
        };
        inner.plan().forwarded = forwarded.into_iter().map(key).collect();
        inner.retag(tags);
        inner.ballast.take();
        let mut threads = Vec::new();
        for number in 0..inner.rules.movers {
            threads.push(deliver::start(&inner, number)?);
        }
        for number in 0..APPENDERS {
            threads.push(drain::start(&inner, number)?);
        }
        threads.push(housekeep::start(&inner)?);
        threads.push(edits::start(&inner)?);
        if let Some(every) = inner.rules.scrub_every {
            threads.push(scrub::start(&inner, every)?);
        }
        Ok(Self { inner, threads })
    }

    /// Tells whether any target lacks something that is here.
    pub fn has_pending(&self) -> bool {
        let plan = self.inner.plan();
        let is_pending = plan.by_id.values().any(|entry| entry.lock().machine.owes())
            || plan.order.deeds().next().is_some();
        drop(plan);
        is_pending || !self.inner.logs.pending().is_empty()
    }

    /// Tells whether a program fills a file.
    pub fn is_locked(&self) -> bool {
        self.inner.locks.are_any()
    }

    /// Takes nothing more, and tells all waiting callers that it ends. Pending files stay pending.
    pub fn end(&self) {
        self.inner.is_ending.store(true, SeqCst);
        self.inner.nudge();
        self.inner.watches.end();
        self.inner.logs.nudge();
        self.inner.locks.nudge();
        for entry in self.inner.every() {
            // Under its lock, or a waiter could miss it.
            drop(entry.lock());
            entry.tell();
        }
    }

    /// Returns where it is.
    pub fn root(&self) -> &Path {
        self.inner.disk.root()
    }
}

impl Drop for Depot {
    fn drop(&mut self) {
        self.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The number of files that are appended to at once.
const APPENDERS: usize = 4;
