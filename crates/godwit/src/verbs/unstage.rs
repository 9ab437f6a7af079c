//! `godwit unstage`: ends the need for staged files.

use crate::{
    client,
    out::{Facts, Run, Screen, facts},
    units,
};
use clap::Args;
use godwit_wire::local::{Request, request::StageRequest as Fetched};
use std::{ffi::OsString, time::Duration};

/// Deliver pending changes of files, and keep the files no longer
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit unstage godwit://lab/data/run7.root
  godwit unstage --tag night --timeout 10m godwit://lab/data/run7.root

What programs wrote to it here is at its server when this ends. Then one instance of the tag is
taken off; where the tag is not on it, that is said, and no error.

Exit status: 0; 5 not delivered within the time; 1 the server has something else by now.")]
pub(crate) struct UnstageArgs {
    /// The files
    #[arg(value_name = "URL", required = true)]
    urls: Vec<OsString>,
    /// By what they are kept [default: the job that this is part of, else staged]
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// On the machine of that peer, where the rights must let this one (godwit help cache)
    #[arg(long, value_name = "PEER")]
    on: Option<String>,
    /// Give up waiting after so long (30, 5m) [default: never]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    timeout: Option<Duration>,
}

impl UnstageArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut here = client::here()?;
        let mut files = 0;
        for url in &self.urls {
            let fetched = Fetched {
                url: client::named(url)?.told,
                tag: self.tag.clone(),
                timeout_ms: client::ms(self.timeout),
                ..Fetched::default()
            };
            let ask = client::on(self.on.as_deref(), Request::Unstage(fetched));
            match client::done(screen, &mut here, ask) {
                Ok(_) => files += 1,
                Err(trouble) => screen.trouble(&trouble),
            }
        }
        Ok(facts([("files", files.into())]))
    }
}
