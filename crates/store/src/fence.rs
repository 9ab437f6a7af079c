//! Attempts at one upload: the latest supersedes the older ones, whose requests are refused.
//!
//! A client that loses a connection begins another attempt while requests of the first may be in flight. Each attempt
//! begins with its number, and a later one *takes over*. The fence waits for the older attempt's current operation
//! and
//! refuses all later ones. Only then does the new attempt begin. Attempts are kept in memory, until the process
//! ends. So are the requests to refuse, since each arrives by a connection of this process.

use crate::{
    BlockWriter, BlockWriterExt, Error, Expected, Finished, LocalFile, Read, Result, Sink, SinkExt,
    Store, channel::Watch,
};
use godwit_core::{Block, Chain, Extents};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::{
    collections::HashMap,
    hash::Hash,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// The attempts at all uploads of a store that count them. `K` names an upload.
#[derive(Debug)]
pub(crate) struct Fences<K>(Mutex<LatestAttempts<K>>);

/// When `young` is full, idle uploads of `old` are forgotten, and `young` becomes `old`. An upload that ended long
/// ago has no request in flight.
#[derive(Debug)]
struct LatestAttempts<K> {
    young: HashMap<K, Latest>,
    old: HashMap<K, Latest>,
}

#[derive(Clone, Debug)]
struct Latest {
    attempt: u64,
    gate: Weak<Gate>,
}

/// The gate between an attempt and its sink, until a later attempt closes it.
struct Gate {
    is_closed: AtomicBool,
    /// `None`: not begun, or over.
    sink: RwLock<Option<Box<dyn Sink>>>,
    /// Stops what may take long at the end.
    watch: Arc<Watch>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Gate");
        debug.field("is_closed", &self.is_closed).finish()
    }
}

impl<K> Default for Fences<K> {
    fn default() -> Self {
        Self(Mutex::new(LatestAttempts {
            young: HashMap::new(),
            old: HashMap::new(),
        }))
    }
}

impl<K: Clone + Eq + Hash> Fences<K> {
    /// Begins an attempt at the upload `key`, whose sink `begin` makes: whatever an earlier one was doing
    /// is over then. `begin` is given a watch by which a later one stops it.
    pub(crate) fn take_over(
        &self,
        key: &K,
        (path, attempt): (&Path, u64),
        begin: impl FnOnce(&Arc<Watch>) -> Result<Box<dyn Sink>>,
    ) -> Result<Box<dyn Sink>> {
        let watch = Watch::new(Duration::MAX).map_err(|cause| Error::io(path, cause))?;
        let gate = Arc::new(Gate {
            is_closed: AtomicBool::new(false),
            sink: RwLock::new(None),
            watch: Arc::new(watch),
        });
        // An attempt after this one waits until this one has begun or failed.
        let mut sink = gate.sink.write();
        let before = self.enter(key, path, attempt, &gate)?;
        if let Some(before) = before.upgrade()
            && !before.close()
        {
            self.give_back(key, &gate, &before);
            return Err(Error::busy(
                "the store",
                "what the attempt before this one does there does not end",
            ));
        }
        gate.check(path)?;
        let begun = begin(&gate.watch)?;
        gate.check(path)?;
        *sink = Some(begun);
        drop(sink);
        Ok(Box::new(Fenced {
            gate,
            path: path.into(),
        }))
    }

    /// Notes an attempt, and returns the gate of the one before it.
    fn enter(&self, key: &K, path: &Path, attempt: u64, gate: &Arc<Gate>) -> Result<Weak<Gate>> {
        let mut known = self.0.lock();
        let before = known.take(key);
        let is_late = before
            .as_ref()
            .is_some_and(|latest| latest.attempt > attempt);
        let (latest, before) = match before {
            Some(latest) if is_late => (latest, None),
            before => {
                let gate = Arc::downgrade(gate);
                let before = before.map_or(Weak::new(), |before| before.gate);
                (Latest { attempt, gate }, Some(before))
            }
        };
        known.young.insert(key.clone(), latest);
        before.ok_or_else(|| superseded(path))
    }

    /// Has the next attempt wait for the one that this one has waited for in vain.
    fn give_back(&self, key: &K, ours: &Arc<Gate>, before: &Arc<Gate>) {
        let mut known = self.0.lock();
        if let Some(latest) = known.young.get_mut(key)
            && latest.gate.ptr_eq(&Arc::downgrade(ours))
        {
            latest.gate = Arc::downgrade(before);
        }
    }
}

impl<K: Eq + Hash> LatestAttempts<K> {
    fn take(&mut self, key: &K) -> Option<Latest> {
        if self.young.len() >= GENERATION_MAX {
            let old = std::mem::take(&mut self.young);
            let old = std::mem::replace(&mut self.old, old);
            let is_open = |latest: &Latest| latest.gate.strong_count() > 0;
            self.young
                .extend(old.into_iter().filter(|(_, latest)| is_open(latest)));
        }
        let young = self.young.remove(key);
        young.or_else(|| self.old.remove(key))
    }
}

impl Gate {
    /// Closes the gate, and waits for operations in flight: `false` if they do not end.
    fn close(&self) -> bool {
        self.is_closed.store(true, SeqCst);
        self.watch.cancel();
        let begun = Instant::now();
        loop {
            match self.sink.try_write() {
                Some(mut sink) => drop(sink.take()),
                None if begun.elapsed() < PATIENCE => {
                    thread::sleep(LOOK_EVERY);
                    continue;
                }
                None => return false,
            }
            return true;
        }
    }

    fn check(&self, path: &Path) -> Result<()> {
        match self.is_closed.load(SeqCst) {
            true => Err(superseded(path)),
            false => Ok(()),
        }
    }

    fn to_end(&self) -> RwLockWriteGuard<'_, Option<Box<dyn Sink>>> {
        self.sink.write()
    }
}

fn superseded(path: &Path) -> Error {
    Error::superseded(path)
}

/// A sink that a later attempt may take away.
struct Fenced {
    gate: Arc<Gate>,
    path: PathBuf,
}

impl Fenced {
    /// Does something with the sink, which stays until it is done.
    fn with<T>(&self, work: impl FnOnce(&dyn Sink) -> Result<T>) -> Result<T> {
        let sink = self.gate.sink.read();
        self.gate.check(&self.path)?;
        let done = work(sink.as_deref().ok_or_else(|| superseded(&self.path))?);
        self.explained(done)
    }

    /// Runs a query on the sink; behind a closed gate the answer is empty.
    fn look<T: Default>(&self, look: impl FnOnce(&dyn Sink) -> T) -> T {
        self.with(|sink| Ok(look(sink))).unwrap_or_default()
    }

    fn end<T>(&self, end: impl FnOnce(Box<dyn Sink>) -> Result<T>) -> Result<T> {
        let mut sink = self.gate.to_end();
        self.gate.check(&self.path)?;
        // A later attempt waits until this one has ended.
        let done = end(sink.take().ok_or_else(|| superseded(&self.path))?);
        self.explained(done)
    }

    /// Reports an operation that was cancelled for a later attempt as superseded.
    fn explained<T>(&self, done: Result<T>) -> Result<T> {
        match done {
            Err(Error::Canceled) => {
                self.gate.check(&self.path)?;
                Err(Error::Canceled)
            }
            done => done,
        }
    }
}

impl Drop for Fenced {
    /// Within the gate: who takes over must not begin before what landed is free.
    fn drop(&mut self) {
        let mut sink = self.gate.to_end();
        drop(sink.take());
    }
}

impl BlockWriter for Fenced {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.with(|sink| sink.put(block))
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.with(|sink| sink.said(leaf, chain))
    }

    crate::has!(self, Fast);
}

impl crate::Fast for Fenced {
    fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
        self.with(|sink| sink.put_from(file, range, buffer))
    }
}

impl Sink for Fenced {
    fn done(&self) -> Extents {
        self.look(|sink| sink.done())
    }

    fn settle(&self) -> Result<Extents> {
        self.with(|sink| sink.settle())
    }

    fn commit(&self) -> Result<Extents> {
        self.with(|sink| sink.commit())
    }

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        self.end(|sink| sink.finish(whole))
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        self.end(Sink::abandon)
    }

    crate::has!(self, SinkFacets: resume direct);
}

impl crate::Resume for Fenced {
    fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> {
        self.look(|sink| sink.newly_whole(count_max))
    }

    fn unseen(&self) -> Extents {
        self.look(|sink| sink.unseen())
    }

    fn show(&self, block: Block<'_>) -> Result<()> {
        self.with(|sink| sink.show(block))
    }

    fn is_in_place(&self) -> bool {
        self.look(|sink| sink.is_in_place())
    }
}

impl crate::Direct for Fenced {
    fn draw(
        &self,
        source: &dyn Store,
        path: &Path,
        want: &Extents,
        streams: usize,
        on: &(dyn Fn(Range<u64>) + Sync),
    ) -> Result<Option<Read>> {
        self.with(|sink| sink.draw(source, path, want, streams, on))
    }

    fn lies_at(&self) -> Option<PathBuf> {
        self.look(|sink| sink.lies_at())
    }

    fn came(&self, ranges: &Extents, leaves: &[(u64, Chain)]) -> Result<()> {
        self.with(|sink| sink.came(ranges, leaves))
    }
}

/// Half of the most idle uploads that are kept.
const GENERATION_MAX: usize = 10_000;
/// Longer than a disk needs for one block or one sync; a client that waits longer asks again.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Write};
    use std::sync::mpsc;

    fn begin(fences: &Fences<u64>, key: u64, attempt: u64) -> Result<Box<dyn Sink>> {
        fences.take_over(&key, (Path::new("f"), attempt), |_| {
            Memory::new().write(Path::new("f"), &Write::default())
        })
    }

    #[test]
    fn fence_remembers_uploads_in_use() {
        let fences = Fences::default();
        let open = begin(&fences, 0, 5).unwrap();
        for key in 1..=3 * GENERATION_MAX as u64 {
            drop(begin(&fences, key, 7).unwrap());
        }
        let known = fences.0.lock();
        assert!(known.young.len() + known.old.len() <= 2 * GENERATION_MAX + 1);
        drop(known);
        let late = begin(&fences, 0, 4);
        assert!(matches!(late, Err(Error::Superseded { .. })));
        let late = begin(&fences, 3 * GENERATION_MAX as u64, 6);
        assert!(matches!(late, Err(Error::Superseded { .. })));
        drop(open);
    }

    #[test]
    fn failed_begin_blocks_no_other_attempt() {
        let fences = Fences::<u64>::default();
        let failed = fences.take_over(&1, (Path::new("f"), 3), |_| Err(Error::Canceled));
        assert!(matches!(failed, Err(Error::Canceled)));
        assert!(begin(&fences, 1, 2).is_err());
        assert!(begin(&fences, 1, 3).is_ok());
    }

    /// A sink whose puts wait for a signal.
    struct HeldSink {
        entered: mpsc::Sender<()>,
        go: Mutex<mpsc::Receiver<()>>,
    }

    impl BlockWriter for HeldSink {
        fn put(&self, _: Block<'_>) -> Result<()> {
            self.entered.send(()).unwrap();
            self.go.lock().recv().unwrap();
            Ok(())
        }
    }

    impl Sink for HeldSink {
        fn done(&self) -> Extents {
            Extents::new()
        }

        fn commit(&self) -> Result<Extents> {
            Ok(self.done())
        }

        fn finish(self: Box<Self>, _: &Expected) -> Result<Finished> {
            Ok(Finished::default())
        }

        fn abandon(self: Box<Self>) -> Result<()> {
            Ok(())
        }

        crate::has!(self, SinkFacets:);
    }

    #[test]
    fn takeover_waits_for_operation_in_flight() {
        let fences = Fences::<u64>::default();
        let ((entered, inside), (go, wait)) = (mpsc::channel(), mpsc::channel());
        let held = HeldSink {
            entered,
            go: Mutex::new(wait),
        };
        let old = fences.take_over(&1, (Path::new("f"), 1), |_| Ok(Box::new(held)));
        let old = old.unwrap();
        let block = || Block::at(0, b"x");
        let (begun, has_begun) = mpsc::channel();
        let is_early = thread::scope(|scope| {
            let slow = scope.spawn(|| old.put(block()));
            inside.recv().unwrap();
            scope.spawn(|| {
                let new = fences.take_over(&1, (Path::new("f"), 2), |_| {
                    begun.send(()).unwrap();
                    Memory::new().write(Path::new("f"), &Write::default())
                });
                drop(new.unwrap());
            });
            // An operation that begins now is refused; one that began before is still running.
            while old.done().is_empty() && old.commit().is_ok() {}
            let early = has_begun.recv_timeout(Duration::from_millis(300));
            go.send(()).unwrap();
            slow.join().unwrap().unwrap();
            if early.is_err() {
                has_begun.recv().unwrap();
            }
            early.is_ok()
        });
        assert!(!is_early, "it began while the older one wrote");
        assert!(matches!(old.put(block()), Err(Error::Superseded { .. })));
    }
}
