//! A sink that compares leaves as our servers do: a leaf with another hash does not land.

use super::Lot;
use godwit_core::{Block, Chain, Extents, LEAF_BYTES, Leaves, Piece};
use godwit_store::{BlockWriter, Error, Expected, Finished, LocalFile, Result, Sink, SinkFacets};
use std::{
    ops::Range,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
};

pub(crate) struct Comparing {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) differs: Mutex<Extents>,
    pub(crate) lot: Arc<Lot>,
    /// The bytes that came, if none is taken twice.
    pub(crate) once: Option<Mutex<Extents>>,
}

fn leaf_of(leaf: u64) -> Range<u64> {
    leaf * LEAF_BYTES..(leaf + 1) * LEAF_BYTES
}

impl BlockWriter for Comparing {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if let Some(once) = &self.once {
            let mut once = once.lock().unwrap();
            if once.within(block.range()).next().is_some() {
                return Err(Error::Unsupported {
                    what: format!("sending bytes from {} again", block.offset),
                    why: "the test takes nothing twice".into(),
                });
            }
            once.insert(block.range());
        }
        self.differs.lock().unwrap().remove(block.range());
        self.sink.put(block)
    }

    godwit_store::has!(self, Fast);
}

impl godwit_store::Fast for Comparing {
    fn put_known(
        &self,
        file: &LocalFile<'_>,
        (leaf, chain): (u64, Chain),
        buffer: &mut [u8],
    ) -> Result<()> {
        let range = leaf_of(leaf);
        let block = file.block(range.clone(), buffer)?;
        let mut leaves = Leaves::new();
        leaves.add(Piece::of(block));
        self.put(block)?;
        self.lot.known.fetch_add(1, SeqCst);
        if leaves.chain(leaf, range.end) != Some(chain) {
            self.differs.lock().unwrap().insert(range);
        }
        self.lot.known_gate.pass(file.path);
        Ok(())
    }
}

impl Sink for Comparing {
    fn done(&self) -> Extents {
        self.sink.done().minus(&self.differs.lock().unwrap())
    }

    fn commit(&self) -> Result<Extents> {
        let safe = self.sink.commit()?;
        Ok(safe.minus(&self.differs.lock().unwrap()))
    }

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        self.sink.finish(whole)
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        self.sink.abandon()
    }

    godwit_store::has!(self, SinkFacets:; SinkFacets { direct: None, ..self.sink.facets() });
}
