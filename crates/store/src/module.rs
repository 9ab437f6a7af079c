//! A module of a server as a store: a read returns the module's output for a file. A write publishes its output for
//! bytes that are drawn from another store.

use crate::{
    BlockWriter, Capabilities, Direct, Error, Expected, Facets, Finished, Passage, Read, Remote,
    Result, SIZE_UNKNOWN, Sink, Stat, Store, Verified, Write, forward, has,
};
use godwit_core::{Algorithm, Block, Digest, Extents};
use godwit_wire::command::Through;
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// A server as one of its modules shows it.
#[derive(Clone)]
pub struct ModuleStore {
    /// The server.
    pub server: Arc<dyn Store>,
    /// Its module, and with which parameters.
    pub through: Through,
}

impl ModuleStore {
    fn remote(&self) -> Result<&Remote> {
        let no_server = "it is on no server, and a module is a program of one";
        let remote = Remote::of(&*self.server);
        remote.ok_or_else(|| Error::unsupported("putting bytes through a module", no_server))
    }
}

impl Store for ModuleStore {
    forward!(self, self.server; list remove rename mkdir set digest);

    fn can(&self) -> Result<Capabilities> {
        Ok(Capabilities {
            digests: vec![Algorithm::Blake3],
            ..self.server.can()?
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        let kind = self.server.stat(path)?.kind;
        Ok(Stat::of(kind, SIZE_UNKNOWN))
    }

    fn read(&self, path: &Path, _: &Extents, _: usize, into: &dyn BlockWriter) -> Result<Read> {
        self.remote()?.read_through(path, &self.through, into)
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        Ok(Box::new(ModuleUpload {
            module: self.clone(),
            path: path.into(),
            is_verified: write.checks.blake3,
            made: Mutex::default(),
        }))
    }

    fn facets(&self) -> Facets<'_> {
        Facets {
            passage: Some(Passage::Anew),
            ..Facets::default()
        }
    }
}

/// An upload through a module. The server publishes the module's output when all bytes are sent.
struct ModuleUpload {
    module: ModuleStore,
    path: PathBuf,
    is_verified: bool,
    /// The bytes that were sent, and the server's hash of the output.
    made: Mutex<Option<(u64, Option<Digest>)>>,
}

impl ModuleUpload {
    fn make(
        &self,
        size: u64,
        digest: Option<&Digest>,
        fill: &(dyn Fn(&dyn BlockWriter) -> Result<()> + Sync),
    ) -> Result<()> {
        let (remote, through) = (self.module.remote()?, &self.module.through);
        let made = remote.write_through(&self.path, through, (size, digest), fill)?;
        *self.made.lock().expect(NO_PANIC) = Some(made);
        Ok(())
    }
}

impl BlockWriter for ModuleUpload {
    fn put(&self, _: Block<'_>) -> Result<()> {
        Err(Error::unsupported(
            "an upload through a module block by block",
            "the server is told the digest of all of it first",
        ))
    }
}

impl Sink for ModuleUpload {
    fn done(&self) -> Extents {
        let made = self.made.lock().expect(NO_PANIC);
        made.as_ref()
            .map_or_else(Extents::new, |(bytes, _)| Extents::from(0..*bytes))
    }

    fn commit(&self) -> Result<Extents> {
        Ok(self.done())
    }

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        if self.made.lock().expect(NO_PANIC).is_none() {
            self.make(0, whole.digest.as_ref(), &|_| Ok(()))?; // of nothing there is nothing to draw
        }
        let made = self.made.lock().expect(NO_PANIC).take();
        let agrees = whole.digest.is_some() && made.is_some_and(|made| made.1 == whole.digest);
        Ok(Finished {
            digests: whole.digest.iter().cloned().collect(),
            verified: match agrees {
                true => Verified::By(Algorithm::Blake3),
                false => Verified::SizeOnly,
            },
            ..Finished::default()
        })
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    has!(self, SinkFacets: direct);
}

impl Direct for ModuleUpload {
    fn draw(
        &self,
        source: &dyn Store,
        path: &Path,
        want: &Extents,
        _: usize,
        on: &(dyn Fn(Range<u64>) + Sync),
    ) -> Result<Option<Read>> {
        let digest = match self.is_verified {
            true => Some(source.digest(path, Algorithm::Blake3, None)?),
            false => None,
        };
        let last = Mutex::new(None);
        self.make(want.end(), digest.as_ref(), &|into| {
            let read = source.read(path, want, 1, &Passing { into, on })?;
            if read.stat.size != want.end() {
                return Err(Error::changed(path, "it was written to while it was read"));
            }
            *last.lock().expect(NO_PANIC) = Some(read);
            Ok(())
        })?;
        let read = last.into_inner().expect(NO_PANIC);
        Ok(read.map(|read| Read { digest, ..read }))
    }
}

/// Tells of the bytes that are sent.
struct Passing<'a> {
    into: &'a dyn BlockWriter,
    on: &'a (dyn Fn(Range<u64>) + Sync),
}

impl BlockWriter for Passing<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.into.put(block)?;
        (self.on)(block.range());
        Ok(())
    }
}

const NO_PANIC: &str = "no thread panics while it holds this";
