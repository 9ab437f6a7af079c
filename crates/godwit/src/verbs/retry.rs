//! `godwit retry`: what waits is tried now.

use super::{Facts, deciding::Held};
use crate::{screen::Screen, trouble::Run};
use clap::Args;
use godwit_store::Decision;
use godwit_wire::local::Ask;
use std::ffi::OsString;

/// Try now to deliver what waits or is held, as it is
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit retry godwit://lab/data/run7.root
  godwit retry --at-hop godwit://hop/data/run7.root

Servers that could not be reached are tried again by themselves; this does not wait for their turn.
What is held is asked for once more, and held again if nothing has changed at its server.

Exit status: 0; 4 nothing of that name is owed.")]
pub(crate) struct Retry {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
    #[command(flatten)]
    held: Held,
}

impl Retry {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let what = (Ask::Retry as fn(_) -> _, Decision::Retry);
        self.held.decide(screen, &self.url, what)
    }
}
