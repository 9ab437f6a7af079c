//! `godwit redirect`: what is owed goes elsewhere.

use super::{Facts, local};
use crate::{screen::Screen, trouble::Run};
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

Exit status: 0; 4 nothing of that name is owed; 5 it is being sent, or may have arrived already; 1
only parts of it are here (put --offset).")]
pub(crate) struct Redirect {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
    /// Where it is to go
    #[arg(value_name = "NEW-URL")]
    to: OsString,
}

impl Redirect {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let mut here = local::here()?;
        let url = local::name_of_owed(&self.url)?;
        let to = local::name_of_owed(&self.to)?;
        let asked = Request::Redirect(request::Redirect { url, to });
        let done = local::done(screen, &mut here, asked)?;
        let (from, to) = (local::shown(&self.url), local::shown(&self.to));
        let words = format!("{from} goes to {to}; godwit push {to} waits for it");
        Ok(local::with_note(screen, local::facts(&done), words))
    }
}
