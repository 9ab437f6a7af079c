//! A store that misbehaves on purpose, by a plan: what networks, disks and
//! servers do, but when a test wants it.

use crate::{
    BlockWriter, Entry, Error, Expected, Facets, Finished, Read, Result, Sink, Stat, Store,
    StoreExt, Transit, Volume, Write, forward,
};
use godwit_core::{Block, Extents};
use parking_lot::Mutex;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A store with troubles.
///
/// Small files go through `read` and `write`, so that troubles meet them too.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    plan: Arc<FaultPlan>,
}

/// A fault to inject. Bytes are counted over all files, separately for each direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Defect {
    /// The connection is lost instead of the `n`th verb, from 1. Once.
    LosesVerb(u64),
    /// The connection is lost when that many bytes were read. Once.
    LosesReadAt(u64),
    /// The connection is lost when that many bytes were written. Once.
    LosesWriteAt(u64),
    /// The answer to `finish` is lost: the file is published, and the client does not know. Once.
    LosesFinish,
    /// The connection is lost before `finish` arrives: no file is published, and the client does not know. Once.
    LosesPublish,
    /// Landed bytes are lost before publication, as in a power cut at a server that does not sync. Once.
    LosesLanded,
    /// The store has room for that many bytes, until [`Faulty::mend`].
    FullAt(u64),
    /// A bit of the byte at this offset of a file flips when it is read. Once.
    FlipsRead(u64),
    /// A bit of the byte at this offset of a file flips when it is written. Once.
    FlipsWrite(u64),
    /// Reported sizes are too large by so much, until [`Faulty::mend`].
    LiesAboutSize(i64),
}

impl<S: Store> Faulty<S> {
    /// Returns a store with these troubles before it.
    pub fn new(inner: S, plan: impl IntoIterator<Item = Defect>) -> Self {
        let plan = FaultPlan {
            troubles: Mutex::new(plan.into_iter().collect()),
            ..FaultPlan::default()
        };
        Self {
            inner,
            plan: Arc::new(plan),
        }
    }

    /// Returns a store that loses its connection `times` times within the next
    /// `bytes`, where the seed says.
    pub fn seeded(inner: S, seed: u64, times: usize, bytes: u64) -> Self {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let plan: Vec<Defect> = (0..times)
            .map(|_| {
                let at = next() % bytes.max(1);
                if next() % 2 == 0 {
                    Defect::LosesReadAt(at)
                } else {
                    Defect::LosesWriteAt(at)
                }
            })
            .collect();
        Self::new(inner, plan)
    }

    /// Adds a trouble.
    pub fn trouble(&self, trouble: Defect) {
        self.plan.troubles.lock().push(trouble);
    }

    /// Adds a trouble whose verb or byte is counted from now.
    pub fn trouble_ahead(&self, trouble: Defect) {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.trouble(match trouble {
            Defect::LosesVerb(n) => Defect::LosesVerb(now(&self.plan.verbs) + n),
            Defect::LosesReadAt(at) => Defect::LosesReadAt(now(&self.plan.read_bytes) + at),
            Defect::LosesWriteAt(at) => Defect::LosesWriteAt(now(&self.plan.written_bytes) + at),
            other => other,
        });
    }

    /// Ends all troubles.
    pub fn mend(&self) {
        self.plan.troubles.lock().clear();
    }

    /// Returns the troubles that are still to come.
    pub fn left(&self) -> Vec<Defect> {
        self.plan.troubles.lock().clone()
    }

    /// Returns the store behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

#[derive(Debug, Default)]
struct FaultPlan {
    troubles: Mutex<Vec<Defect>>,
    verbs: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl FaultPlan {
    /// Takes the first trouble that `is` it.
    fn take(&self, is: impl Fn(&Defect) -> bool) -> Option<Defect> {
        let mut troubles = self.troubles.lock();
        let at = troubles.iter().position(is)?;
        Some(troubles.remove(at))
    }

    fn verb(&self, during: &str) -> Result<()> {
        let n = self.verbs.fetch_add(1, Ordering::Relaxed) + 1;
        match self.take(|t| *t == Defect::LosesVerb(n)) {
            Some(_) => Err(lost(during)),
            None => Ok(()),
        }
    }

    fn size(&self, stat: Stat) -> Stat {
        let lie = self.troubles.lock().iter().find_map(|t| match t {
            Defect::LiesAboutSize(by) => Some(*by),
            _ => None,
        });
        Stat {
            size: stat.size.saturating_add_signed(lie.unwrap_or(0)),
            ..stat
        }
    }

    /// Passes a block on, as far as it gets: cut where the connection is lost.
    fn pass(
        &self,
        block: Block<'_>,
        way: FaultySide,
        put: &dyn Fn(Block<'_>) -> Result<()>,
    ) -> Result<()> {
        let counter = match way {
            FaultySide::Read => &self.read_bytes,
            FaultySide::Write => &self.written_bytes,
        };
        let before = counter.fetch_add(block.bytes.len() as u64, Ordering::Relaxed);
        let here = before..before + block.bytes.len() as u64;
        let flip = |t: &Defect| match (t, way) {
            (Defect::FlipsRead(at), FaultySide::Read)
            | (Defect::FlipsWrite(at), FaultySide::Write) => block.range().contains(at),
            _ => false,
        };
        if let Some(Defect::FlipsRead(at) | Defect::FlipsWrite(at)) = self.take(flip) {
            let mut bytes = block.bytes.to_vec();
            bytes[(at - block.offset) as usize] ^= 1;
            return put(Block::at(block.offset, &bytes));
        }
        let lose = |t: &Defect| match (t, way) {
            (Defect::LosesReadAt(at), FaultySide::Read)
            | (Defect::LosesWriteAt(at), FaultySide::Write) => here.contains(at),
            _ => false,
        };
        if let Some(Defect::LosesReadAt(at) | Defect::LosesWriteAt(at)) = self.take(lose) {
            let whole = &block.bytes[..(at - before) as usize];
            if !whole.is_empty() {
                put(Block::at(block.offset, whole))?;
            }
            return Err(lost("moving bytes"));
        }
        let room = self.troubles.lock().iter().find_map(|t| match t {
            Defect::FullAt(room) if way == FaultySide::Write && here.end > *room => Some(*room),
            _ => None,
        });
        if room.is_some() {
            counter.fetch_sub(block.bytes.len() as u64, Ordering::Relaxed);
            return Err(Error::no_space(PathBuf::new(), "as planned"));
        }
        put(block)
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum FaultySide {
    Read,
    Write,
}

fn lost(during: &str) -> Error {
    Error::lost("faulty", during, io::ErrorKind::ConnectionReset)
}

impl<S: Store> Store for Faulty<S> {
    forward!(self, self.inner; can);
    forward!(self, self.inner, |verb| self.plan.verb(verb); remove rename mkdir set digest);

    crate::has!(self, Facets: transit volume; Facets { batch: None, ..self.inner.facets() });

    fn stat(&self, path: &Path) -> Result<Stat> {
        self.plan.verb("stat")?;
        Ok(self.plan.size(self.inner.stat(path)?))
    }

    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.plan.verb("list")?;
        self.inner.list(path, &mut |entry| {
            each(Entry {
                stat: self.plan.size(entry.stat),
                path: entry.path,
            })
        })
    }

    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        self.plan.verb("read")?;
        let read = self.inner.read(
            path,
            want,
            streams,
            &Passing {
                plan: &self.plan,
                into,
            },
        )?;
        Ok(Read {
            stat: self.plan.size(read.stat),
            ..read
        })
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        self.plan.verb("write")?;
        let sink = self.inner.write(path, write)?;
        Ok(Box::new(FaultySink {
            plan: Arc::clone(&self.plan),
            path: path.into(),
            sink,
        }))
    }
}

impl<S: Store> Transit for Faulty<S> {
    forward!(self, self.inner; trace decide);
    forward!(self, self.inner, |verb| self.plan.verb(verb); flush push published_as);
}

impl<S: Store> Volume for Faulty<S> {
    forward!(self, self.inner, |verb| self.plan.verb(verb); xattrs space);
}

/// Stands between a read and whom it is for.
struct Passing<'a> {
    plan: &'a FaultPlan,
    into: &'a dyn BlockWriter,
}

impl BlockWriter for Passing<'_> {
    forward!(self, self.into; said);

    fn put(&self, block: Block<'_>) -> Result<()> {
        self.plan
            .pass(block, FaultySide::Read, &|block| self.into.put(block))
    }
}

/// Stands before a sink of the store.
struct FaultySink {
    plan: Arc<FaultPlan>,
    path: PathBuf,
    sink: Box<dyn Sink>,
}

impl BlockWriter for FaultySink {
    forward!(self, self.sink; said);

    fn put(&self, block: Block<'_>) -> Result<()> {
        let passed = self
            .plan
            .pass(block, FaultySide::Write, &|block| self.sink.put(block));
        passed.map_err(|error| match error {
            Error::NoSpace { said, .. } => Error::no_space(self.path.clone(), said),
            other => other,
        })
    }
}

impl Sink for FaultySink {
    forward!(self, self.sink; done settle commit abandon sink_facets);

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        if self.plan.take(|t| *t == Defect::LosesPublish).is_some() {
            return Err(lost("asking to publish"));
        }
        if self.plan.take(|t| *t == Defect::LosesLanded).is_some() {
            let missing = self.sink.done();
            self.sink.abandon()?;
            return Err(Error::incomplete(
                self.path,
                whole.size.unwrap_or_default(),
                missing,
            ));
        }
        let finished = self.sink.finish(whole)?;
        match self.plan.take(|t| *t == Defect::LosesFinish) {
            Some(_) => Err(lost("finishing")),
            None => Ok(finished),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn without_troubles_keeps_what_every_store_promises() {
        crate::check::all(&|| Box::new(Faulty::new(Memory::new(), [])));
    }

    #[derive(Default)]
    struct Got(Mutex<Vec<u8>>);

    impl BlockWriter for Got {
        fn put(&self, block: Block<'_>) -> Result<()> {
            self.0.lock().extend_from_slice(block.bytes);
            Ok(())
        }
    }

    fn with_file(bytes: &[u8]) -> Memory {
        let memory = Memory::new();
        let sink = memory.write(Path::new("file"), &Write::default()).unwrap();
        sink.put(Block { offset: 0, bytes }).unwrap();
        sink.finish(&Expected::default()).unwrap();
        memory
    }

    fn read(store: &dyn Store) -> (Vec<u8>, Result<Read>) {
        let got = Got::default();
        let read = store.read(Path::new("file"), &Extents::from(0..1000), 1, &got);
        (got.0.into_inner(), read)
    }

    #[test]
    fn every_trouble_comes_as_planned_and_once() {
        let plan = [
            Defect::LosesReadAt(3),
            Defect::FlipsRead(1),
            Defect::LosesVerb(4),
        ];
        let store = Faulty::new(with_file(b"abcdef"), plan);
        assert_eq!(read(&store).0, b"accdef", "flipped");
        store.trouble(Defect::LosesReadAt(9));
        let (bytes, result) = read(&store);
        assert_eq!(bytes, b"abc");
        assert!(matches!(result, Err(Error::Lost { .. })), "{result:?}");
        assert_eq!(read(&store).0, b"abcdef");
        assert!(
            matches!(read(&store).1, Err(Error::Lost { .. })),
            "the fourth verb"
        );
        assert_eq!(read(&store).0, b"abcdef");
        assert_eq!(
            store.left(),
            [Defect::LosesReadAt(3)],
            "its byte has passed unharmed"
        );
    }

    #[test]
    fn full_store_stays_full_until_mended() {
        let store = Faulty::new(Memory::new(), [Defect::FullAt(10)]);
        let sink = store.write(Path::new("file"), &Write::default()).unwrap();
        sink.put(Block::at(0, &[1; 8])).unwrap();
        for _ in 0..2 {
            let full = sink.put(Block::at(8, &[2; 8]));
            assert!(matches!(full, Err(Error::NoSpace { .. })), "{full:?}");
        }
        store.mend();
        sink.put(Block::at(8, &[2; 8])).unwrap();
        assert_eq!(sink.done(), Extents::from(0..16));
    }

    #[test]
    fn sizes_are_lied_about() {
        let store = Faulty::new(with_file(b"abc"), [Defect::LiesAboutSize(7)]);
        assert_eq!(store.stat(Path::new("file")).unwrap().size, 10);
        assert_eq!(read(&store).1.unwrap().stat.size, 10);
    }
}
