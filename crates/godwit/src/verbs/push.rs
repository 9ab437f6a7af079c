//! `godwit push`: waits until pending files are delivered.

use crate::{
    client,
    out::{Facts, Run, Screen},
    units,
};
use clap::Args;
use godwit_wire::local::Request;
use std::{ffi::OsString, time::Duration};

/// Wait until what was put is delivered
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit push
  godwit push godwit://lab/data/run7.root --timeout 10m

Without a URL it is all that you had put through the node of this machine when this was said; with
GODWIT_SESSION, all of that session. What is put later is not waited for. Servers that could not be
reached are tried again at once. A reader there sees the file afterwards.

If it is not delivered, nothing is lost: it is kept here, and tried again. After a second it says
what it waits for, and what is held until you decide; godwit queue shows it all.
What is held does not keep the rest from being delivered, and is named at the end.

A node that passes on (a hop) and is reached by FTP cannot be asked what it has passed on: once it
has the file this ends, and says so. A URL by its door (godwit://...) waits until it is at its end.

Exit status: 0 all is there; 5 not within the time, or this machine's node ended; 1 the server
has something else than what was changed here, or will not have it, so it is held; 4, 13
the same since a directory is not there, or since it is not allowed.")]
pub(crate) struct PushArgs {
    /// A file, or a directory with all that is below it; else all
    #[arg(value_name = "URL")]
    url: Option<OsString>,
    /// Give up waiting after so long (30, 5m); it is still delivered [default: never]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    timeout: Option<Duration>,
}

impl PushArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let facts = client::wait(screen, self.url.as_ref(), self.timeout, Request::Push)?;
        if self.url.is_some() && facts.get("files") == Some(&0.into()) {
            screen.note("this machine had nothing to deliver there");
        }
        Ok(facts)
    }
}
