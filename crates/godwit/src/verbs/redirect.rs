//! `godwit redirect`: a pending file goes to another URL.

use crate::{
    client,
    out::{Facts, Run, Screen},
};
use clap::Args;
use godwit_wire::local::{Request, request};
use std::ffi::OsString;

/// Deliver a pending file to another URL, also on another server
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit queue
  godwit redirect godwit://lab/data/run7.root godwit://backup/run7.root

For what is held, or waits for a server that will not come back. It replaces whatever lies under the
new URL; what the old server has of the upload is given up. Programs here find the file under the
new URL only.

Exit status: 0; 4 nothing of that name is pending; 5 it is being sent, or may have arrived; 1
only parts of it are here (put --offset).")]
pub(crate) struct RedirectArgs {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
    /// Where it is to go
    #[arg(value_name = "NEW-URL")]
    to: OsString,
}

impl RedirectArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut here = client::here()?;
        let url = client::name_or_id(&self.url)?;
        let to = client::name_or_id(&self.to)?;
        let asked = Request::Redirect(request::Redirect { url, to });
        let done = client::done(screen, &mut here, asked)?;
        let (from, to) = (client::shown(&self.url), client::shown(&self.to));
        let words = format!("{from} goes to {to}; godwit push {to} waits for it");
        Ok(client::with_note(screen, client::facts(&done), words))
    }
}
