//! Writing into the file of a name, as it is at its target.
//!
//! The bytes are in a file of their own until the writer closes it: then all of them count, or none. If an entry of the
//! name is pending they are merged into it, so that readers see both; else the patch is delivered by itself. The row of
//! the patch names the entry before the merge begins: after a restart the merge is done again. If the entry has gone
//! meanwhile, the patch is merged into its successor.

use crate::{Depot, Error, IsWanted, Result, Who, Writing};
use godwit_core::{Url, holding::Holding};
use std::sync::Arc;

impl Depot {
    /// Begins to write into the file of a name, as it is at its target: bytes outside the written ranges are kept, and
    /// no server is asked. No reader sees any of it before its [end](Writing::end).
    pub fn patch(&self, url: &Url, who: &Who, session: &str) -> Result<Writing> {
        drop((self.inner.connect)(url, who)?);
        self.begin((url, who), session, Holding::blind(), true)
    }
}

impl Writing {
    /// Ends what was written into a file: it survives a power cut here when this returns, and all of it counts.
    pub(crate) fn end_patch(
        self,
        is_wanted: IsWanted<'_>,
        is_there: &dyn Fn() -> bool,
    ) -> Result<u64> {
        let depot = Arc::clone(&self.depot);
        let key = (self.entry.name(), self.entry.who.audience.clone());
        let _turn = depot.locks.turns.take(key.clone());
        if !self.settle().machine.owes() {
            return Ok(0); // Nothing was written, and so nothing changes.
        }
        depot.wait_for_ends(&key);
        loop {
            if !is_there() {
                return Err(Error::Unwanted);
            }
            let Some(under) = depot.plan().pending_of(&key) else {
                return self.end_anew(is_there);
            };
            if let Some(generation) = depot.merge(&self.asks(), &under, is_wanted)? {
                return Ok(generation);
            }
            self.entry.lock().bytes.merges_into = None; // That is gone, and so would this be after an end.
        }
    }
}
