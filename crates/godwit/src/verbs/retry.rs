//! `godwit retry`: what waits is tried now.

use super::{Facts, deciding::Held, local, queue};
use crate::{screen::Screen, trouble::Run};
use clap::Args;
use godwit_local::Kind;
use godwit_store::Decision;
use godwit_wire::local::{
    Request,
    request::{FileTarget, Selector},
};
use std::{ffi::OsString, os::unix::ffi::OsStrExt};

/// Try now to deliver what is pending or on hold
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit retry godwit://lab/data/run7.root
  godwit retry godwit://lab/data/
  godwit retry --all
  godwit retry --at-hop godwit://hop/data/run7.root

Servers that could not be reached are tried again by themselves; this does not wait for their turn.
A URL that ends in / is all that is below it.

What is held is asked for once more, and held again if nothing has changed at its server.

Exit status: 0; 4 nothing of that name is owed.")]
pub(crate) struct Retry {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL", required_unless_present = "all")]
    url: Option<OsString>,
    /// All that this machine has not delivered yet
    #[arg(long, conflicts_with_all = ["url", "at_hop"])]
    all: bool,
    #[command(flatten)]
    held: Held,
}

impl Retry {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let what = (Request::Retry as fn(_) -> _, Decision::Retry);
        match self.url {
            Some(url) if self.held.is_at_hop() || !url.as_bytes().ends_with(b"/") => {
                self.held.decide(screen, &url, what)
            }
            url => retry_all(screen, url.as_ref()),
        }
    }
}

/// Tries all that is pending, or all below a name.
fn retry_all(screen: &Screen, url: Option<&OsString>) -> Run<Facts> {
    let whose = Selector {
        session: None,
        ..local::whose(url, None)?
    };
    let mut here = local::here()?;
    let (rows, mut done) = queue::rows(&mut here, &whose)?;
    done.files = 0;
    for row in rows.iter().filter(|row| row.stage != "writing") {
        match here.ask(Request::Retry(FileTarget::is(&*row.id))) {
            Ok(_) => done.files += 1,
            // It was delivered meanwhile.
            Err(refusal) if refusal.kind == Kind::Missing => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    let words = format!(
        "{} tried again now; godwit queue shows how far they are",
        done.files
    );
    Ok(local::with_note(screen, local::facts(&done), words))
}
