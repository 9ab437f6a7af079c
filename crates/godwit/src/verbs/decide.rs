//! `godwit retry`, `godwit release` and `godwit drop`: decisions on pending files.

use crate::{
    args::{NodeOptions, Talking},
    client::{self, pending},
    config,
    out::{CliError, Facts, Run, Screen},
    places,
};
use clap::Args;
use godwit_local::Kind;
use godwit_store::{Error, Remedy, StoreExt};
use godwit_wire::local::{
    Request,
    request::{FileTarget, Selector},
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

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

Exit status: 0; 4 nothing of that name is pending.")]
pub(crate) struct RetryArgs {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL", required_unless_present = "all")]
    url: Option<OsString>,
    /// All that this machine has not delivered yet
    #[arg(long, conflicts_with_all = ["url", "at_hop"])]
    all: bool,
    #[command(flatten)]
    on_hold: OnHold,
}

impl RetryArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let what = (Request::Retry as fn(_) -> _, Remedy::Retry);
        match self.url {
            Some(url) if self.on_hold.at_hop || !url.as_bytes().ends_with(b"/") => {
                self.on_hold.decide(screen, &url, what)
            }
            url => retry_all(screen, url.as_ref()),
        }
    }
}

/// Tries all that is pending, or all below a name.
fn retry_all(screen: &Screen, url: Option<&OsString>) -> Run<Facts> {
    let whose = Selector {
        session: None,
        ..client::whose(url, None)?
    };
    let mut here = client::here()?;
    let (rows, mut done) = client::rows(&mut here, &whose)?;
    done.files = 0;
    for row in rows.iter().filter(|row| row.stage != "writing") {
        match here.ask(Request::Retry(FileTarget::is(&*row.id))) {
            Ok(_) => done.files += 1,
            // The file was delivered meanwhile.
            Err(refusal) if refusal.kind == Kind::Missing => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    let words = format!(
        "{} tried again now; godwit queue shows how far they are",
        done.files
    );
    Ok(client::with_note(screen, client::facts(&done), words))
}

/// Deliver a file that is on hold, over what its server has now
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit queue
  godwit release godwit://lab/data/run7.root
  godwit release --at-hop godwit://hop/data/run7.root

For a conflict: the file at the server was changed by another writer since. Those bytes are
replaced.

Exit status: 0; 4 nothing of that name is pending.")]
pub(crate) struct ReleaseArgs {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
    #[command(flatten)]
    on_hold: OnHold,
}

impl ReleaseArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let what = (Request::Release as fn(_) -> _, Remedy::Release);
        self.on_hold.decide(screen, &self.url, what)
    }
}

/// Give up a pending file: its bytes are lost, unless its server has them
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit queue
  godwit drop godwit://lab/data/run7.root
  godwit drop --at-hop godwit://hop/data/run7.root

For a conflict where what the server has is right. There is no way back.

Exit status: 0; 4 nothing of that name is pending; 5 it is being sent or written.")]
pub(crate) struct DropArgs {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
    #[command(flatten)]
    on_hold: OnHold,
}

impl DropArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let what = (Request::Drop as fn(_) -> _, Remedy::Drop);
        self.on_hold.decide(screen, &self.url, what)
    }
}

/// The machine that has the file on hold.
#[derive(Args, Debug)]
pub(crate) struct OnHold {
    /// Decide at a hop on the way, not at this machine
    #[arg(long)]
    at_hop: bool,
    #[command(flatten)]
    talking: Talking,
}

impl OnHold {
    /// Carries out a decision on the machine that has the file on hold.
    fn decide(
        self,
        screen: &Screen,
        url: &OsStr,
        (ask, what): (fn(FileTarget) -> Request, Remedy),
    ) -> Run<Facts> {
        if !self.at_hop {
            let asked = ask(FileTarget::is(client::name_or_id(url)?));
            let done = client::done(screen, &mut client::here()?, asked)?;
            return Ok(told(screen, url, what, client::facts(&done)));
        }
        let argument = url;
        let url = places::url(url)?;
        let wanted = format!("decide on what is held of {url}");
        let cannot = |error| CliError::store(&*wanted, error);
        let routes = config::load(&NodeOptions::default())?.routes;
        let way = routes.by_way_of(&url).map_err(cannot)?;
        let place = places::stores(&self.talking)?.open(&way).map_err(cannot)?;
        let decided = place.store.decide(&place.path, what, &[]);
        decided.map_err(|error| match error {
            Error::Missing { .. } => {
                let host = way.host_port();
                let fact = format!("nothing of that name is held at {host}, or at a hop behind it");
                CliError::found(&*wanted, fact, MISSING)
                    .next(format!("godwit trace {} shows where it is", url.pasted()))
            }
            error => cannot(error),
        })?;
        pending::changed(screen, std::slice::from_ref(&url));
        Ok(told(screen, argument, what, Facts::new()))
    }
}

/// Says the result of a decision.
fn told(screen: &Screen, url: &OsStr, what: Remedy, facts: Facts) -> Facts {
    let url = client::shown(url);
    let words = match what {
        Remedy::Retry => format!("{url} is tried again now; {HOW_IT_GOES}"),
        Remedy::Release => format!("{url} goes over whatever is there; {HOW_IT_GOES}"),
        Remedy::Drop => format!("{url} is given up; what its server has stays"),
    };
    client::with_note(screen, facts, words)
}

/// The exit status if nothing of a name is on hold.
const MISSING: u8 = 4;
const HOW_IT_GOES: &str = "godwit trace shows how far it is";
