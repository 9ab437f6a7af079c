//! `godwit cache`: what the node of this machine keeps.

use super::{Facts, local};
use crate::{
    screen::Screen,
    trouble::{Run, Trouble},
    units,
};
use clap::{Args, Subcommand};
use godwit_store::Error;
use godwit_wire::local::{
    Ask, Tell,
    ask::{Cache as Of, Where},
};
use serde_json::json;
use std::ffi::OsString;

/// Show what the node of this machine keeps of files of others
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit cache stat godwit://lab/data/run7.root
  godwit cache stat --json godwit://lab/data/run7.root

Exit status: 0; 4 there is no such file.")]
pub(crate) struct Cache {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show what is kept of one file, and how often it was fetched
    Stat(Stat),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit cache stat godwit://lab/data/run7.root

If it is not here it is fetched. With --json an object: url, size, transfers (how often it was fetched
since it is here).

Exit status: 0; 4 there is no such file.")]
struct Stat {
    /// The file
    #[arg(value_name = "URL")]
    url: OsString,
}

impl Cache {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.what {
            What::Stat(stat) => stat.run(screen),
        }
    }
}

impl Stat {
    fn run(self, screen: &Screen) -> Run<Facts> {
        let file = local::named(&self.url)?;
        let mut here = local::here()?;
        let mut row = None;
        let ask = Ask::Cache(Of::Stat(Where::is(file.told)));
        let done = local::done_with(screen, &mut here, ask, &mut |tell| {
            if let Tell::Row(told) = tell {
                row = Some(told);
            }
        })?;
        let Some(row) = row else {
            return Ok(local::facts(&done));
        };
        let told = match screen.json() {
            true => screen.object(&json!({
                "event": "kept",
                "url": row.url,
                "size": row.size,
                "present_bytes": row.present_bytes,
                "transfers": row.transfers,
            })),
            false => screen.line(format!(
                "{}  {}, fetched {} times",
                row.url,
                units::size(row.size),
                row.transfers
            )),
        };
        told.map_err(|error: Error| Trouble::store("show what is kept", error))?;
        Ok(local::facts(&done))
    }
}
