//! Makes a finished file the current version of its name.

use crate::{Result, inner::Inner, plan::entry::Entry};
use std::sync::Arc;

impl Inner {
    /// Makes a finished file the current version of its name.
    pub(crate) fn make_current(&self, entry: &Arc<Entry>) -> Result<()> {
        let (older, gone) = self.plan().close(entry);
        let removed = gone.iter().map(|gone| self.unlink(gone, gone.lock()));
        // All of them, also after an error.
        removed.fold(Ok(()), Result::and)?;
        if self.plan().inherit(entry, &older) {
            entry.commit(self)?;
        }
        self.nudge();
        Ok(())
    }

    /// Supersedes an entry, and forgets it unless it is in flight or open.
    pub(crate) fn supersede(&self, old: &Arc<Entry>) -> Result<()> {
        match self.plan().supersede(old) {
            true => self.unlink(old, old.lock()),
            false => Ok(()),
        }
    }
}
