//! `godwit drop`: what is owed is given up.

use super::{Facts, deciding::Held};
use crate::{screen::Screen, trouble::Run};
use clap::Args;
use godwit_store::Decision;
use godwit_wire::local::Request;
use std::ffi::OsString;

/// Give up a pending file: its bytes are lost, unless its server has them
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit queue
  godwit drop godwit://lab/data/run7.root
  godwit drop --at-hop godwit://hop/data/run7.root

For a conflict where what the server has is right. There is no way back.

Exit status: 0; 4 nothing of that name is owed; 5 it is being sent or written.")]
pub(crate) struct Drop {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
    #[command(flatten)]
    held: Held,
}

impl Drop {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let what = (Request::Drop as fn(_) -> _, Decision::Drop);
        self.held.decide(screen, &self.url, what)
    }
}
