//! `godwit drop`: what is owed is given up.

use super::{Facts, local};
use crate::{screen::Screen, trouble::Run};
use clap::Args;
use godwit_wire::local::Ask;
use std::ffi::OsString;

/// Give up what is owed: its bytes are lost, unless its server has them
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit queue
  godwit drop godwit://lab/data/run7.root

For a conflict where what the server has is right. There is no way back.

Exit status: 0; 4 nothing of that name is owed; 5 it is being sent or written.")]
pub(crate) struct Drop {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
}

impl Drop {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        local::decide(screen, &self.url, Ask::Drop)
    }
}
