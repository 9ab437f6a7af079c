//! `godwit commit`: waits until pending files are durable on this machine.

use crate::{
    client,
    out::{Facts, Run, Screen},
    units,
};
use clap::Args;
use godwit_wire::local::Request;
use std::{ffi::OsString, time::Duration};

/// Wait until what was put is durable on this machine
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit commit
  godwit commit godwit://lab/data/run7.root
  GODWIT_SESSION=night godwit commit --timeout 60

Without a URL it is all that you have put through the node of this machine before this was said;
with GODWIT_SESSION, all of that session. That it is safe does not mean that it is at its server:
that is godwit push. In a job of a batch system, whose node ends with it, it does mean that.

Exit status: 0 it is safe; 1 it cannot be kept, or in a job it is on hold; 5 not within the
time, or this machine's node ended; 7 the disk is full.")]
pub(crate) struct CommitArgs {
    /// A file; else all
    #[arg(value_name = "URL")]
    url: Option<OsString>,
    /// Give up after so long (30, 5m) [default: never]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    timeout: Option<Duration>,
}

impl CommitArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        client::wait(screen, self.url.as_ref(), self.timeout, Request::Commit)
    }
}
