//! What becomes of what is held, here or on the way.

use super::{Facts, config, local, node::Told};
use crate::{
    args::Talking,
    owed, places,
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::Args;
use godwit_core::Url;
use godwit_store::{Decision, Error, StoreExt};
use godwit_wire::local::{Request, request::FileTarget};
use std::ffi::OsStr;

/// Where it is held.
#[derive(Args, Debug)]
pub(crate) struct Held {
    /// Of what a hop on the way there holds, not this machine
    #[arg(long)]
    at_hop: bool,
    #[command(flatten)]
    talking: Talking,
}

impl Held {
    pub(crate) fn is_at_hop(&self) -> bool {
        self.at_hop
    }

    /// Has it be done where it is held.
    pub(crate) fn decide(
        self,
        screen: &Screen,
        url: &OsStr,
        (ask, what): (fn(FileTarget) -> Request, Decision),
    ) -> Run<Facts> {
        if !self.at_hop {
            let facts = local::decide(screen, url, ask)?;
            return Ok(told(screen, url, what, facts));
        }
        let argument = url;
        let url = places::url(url)?;
        let wanted = format!("decide on what is held of {url}");
        let cannot = |error| CliError::store(&*wanted, error);
        let routes = config::load(&Told::default())?.routes;
        let way = routes.by_way_of(&url).map_err(cannot)?;
        let place = places::stores(&self.talking)?.open(&way).map_err(cannot)?;
        let decided = place.store.decide(&place.path, what, &[]);
        decided.map_err(|error| match error {
            Error::Missing { .. } => CliError::found(&*wanted, nothing_held(&way), MISSING)
                .next(format!("godwit trace {} shows where it is", url.pasted())),
            error => cannot(error),
        })?;
        owed::changed(screen, std::slice::from_ref(&url));
        Ok(told(screen, argument, what, Facts::new()))
    }
}

fn nothing_held(way: &Url) -> String {
    format!(
        "nothing of that name is held at {}, or at a hop behind it",
        way.host_port()
    )
}

/// Says what becomes of it.
fn told(screen: &Screen, url: &OsStr, what: Decision, facts: Facts) -> Facts {
    let url = local::shown(url);
    let words = match what {
        Decision::Retry => format!("{url} is tried again now; {HOW_IT_GOES}"),
        Decision::Release => format!("{url} goes over whatever is there; {HOW_IT_GOES}"),
        Decision::Drop => format!("{url} is given up; what its server has stays"),
    };
    local::with_note(screen, facts, words)
}

/// The exit status where there is nothing of a name.
const MISSING: u8 = 4;
const HOW_IT_GOES: &str = "godwit trace shows how far it is";
