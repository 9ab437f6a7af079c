//! `godwit release`: what is held goes over what is there.

use super::{Facts, deciding::Held};
use crate::{screen::Screen, trouble::Run};
use clap::Args;
use godwit_store::Decision;
use godwit_wire::local::Request;
use std::ffi::OsString;

/// Deliver a file that is on hold, over what its server has now
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit queue
  godwit release godwit://lab/data/run7.root
  godwit release --at-hop godwit://hop/data/run7.root

For a conflict: the file at the server was changed by somebody else since. What they wrote is
replaced.

Exit status: 0; 4 nothing of that name is owed.")]
pub(crate) struct Release {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
    #[command(flatten)]
    held: Held,
}

impl Release {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let what = (Request::Release as fn(_) -> _, Decision::Release);
        self.held.decide(screen, &self.url, what)
    }
}
