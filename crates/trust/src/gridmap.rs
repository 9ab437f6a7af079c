//! The grid-mapfile: which accounts belong to a certificate's subject.

use crate::{Identity, Result, credential::UNREADY};
use std::path::Path;

/// Which accounts of this machine each subject may use, the first by default.
#[derive(Clone, Debug, Default)]
pub struct Gridmap(());

impl Gridmap {
    /// Reads a grid-mapfile.
    pub fn read(_path: &Path) -> Result<Self> {
        Err(UNREADY)
    }

    /// Returns the account that somebody gets without asking for one.
    pub fn account(&self, _who: &Identity) -> Option<String> {
        None
    }

    /// Returns all accounts that somebody may ask for.
    pub fn accounts(&self, _who: &Identity) -> &[String] {
        &[]
    }
}
