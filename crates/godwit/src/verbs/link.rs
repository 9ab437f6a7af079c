//! `godwit link`: one more name for a file or collection.

use super::catalog;
use crate::out::{Facts, Run, Screen};
use clap::Args;
use godwit_catalog::Change;
use std::ffi::OsString;

/// Give a file or collection of the catalog one more name
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit link grid:/run7/a grid:/best/a
  godwit link grid:/run7 grid:/2026/run7

Both names are equal: a copy or an attribute belongs to both. The copies are forgotten with the
last name.

Exit status: 0; 1 the new name is taken; 4 no such name.")]
pub(crate) struct LinkArgs {
    /// The name that there is
    #[arg(value_name = "NAME")]
    from: OsString,
    /// The new name, in a collection that exists
    #[arg(value_name = "NEW_NAME")]
    to: OsString,
}

impl LinkArgs {
    pub(crate) fn run(self, _: &Screen) -> Run<Facts> {
        let (from, to) = (catalog::name(&self.from)?, catalog::name(&self.to)?);
        catalog::change("link a name", Change::Link { from, to })?;
        Ok(Facts::new())
    }
}
