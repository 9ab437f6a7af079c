//! `godwit stage`: files are here before they are wanted.

use super::{Facts, local};
use crate::{screen::Screen, trouble::Run, units};
use clap::Args;
use godwit_wire::local::{Ask, ask::Stage as Fetch};
use std::{ffi::OsString, time::Duration};

/// Fetch files before they are wanted, and keep them here
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit stage godwit://lab/data/run7.root
  godwit stage --tag night --lasts 2d godwit://lab/data/run7.root godwit://lab/data/run8.root
  godwit unstage --tag night godwit://lab/data/run7.root
  godwit stage --on cluster godwit://lab/data/run7.root

They stay under the tag until godwit unstage or godwit cache clean takes it off, or its time is over; whatever
program wants one then reads it from this machine's disk. Each time it is staged counts.

With --on they come to the depot of another machine that runs a node: so that they are there before a job
is. What is asked is the node there, which reads the URL with its own proof and its own names of peers.

Exit status: 0; 13 the rights there say no; 4 no such file; 7 no room is left here; 5 its server cannot be reached.")]
pub(crate) struct Stage {
    /// The files
    #[arg(value_name = "URL", required = true)]
    urls: Vec<OsString>,
    /// By what they are kept [default: the job that this is part of, else staged]
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// On the machine of that peer, where the rights must let this one (godwit help cache)
    #[arg(long, value_name = "PEER")]
    on: Option<String>,
    /// How long (12h, 2d) [default: until it is taken off]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    lasts: Option<Duration>,
}

impl Stage {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut here = local::here()?;
        let (mut files, mut bytes) = (0, 0);
        for url in &self.urls {
            let fetch = Fetch {
                url: local::named(url)?.told,
                tag: self.tag.clone(),
                expires_in_s: self.lasts.map(|time| time.as_secs()),
                ..Fetch::default()
            };
            let ask = local::on(self.on.as_deref(), Ask::Stage(fetch));
            match local::done(screen, &mut here, ask) {
                Ok(done) => (files, bytes) = (files + done.files, bytes + done.bytes),
                Err(trouble) => screen.trouble(&trouble),
            }
        }
        let mut facts = Facts::new();
        facts.insert("files".into(), files.into());
        facts.insert("bytes".into(), bytes.into());
        Ok(facts)
    }
}
