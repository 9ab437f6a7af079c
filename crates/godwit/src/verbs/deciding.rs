//! What becomes of what is held, here or on the way.

use super::{Facts, config, local, node::Told};
use crate::{
    options::Talking,
    owed, places,
    screen::Screen,
    trouble::{Run, Trouble},
};
use clap::Args;
use godwit_store::Decision;
use godwit_wire::local::{Ask, ask::Where};
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
    /// Has it be done where it is held.
    pub(crate) fn decide(
        self,
        screen: &Screen,
        url: &OsStr,
        (ask, what): (fn(Where) -> Ask, Decision),
    ) -> Run<Facts> {
        if !self.at_hop {
            let facts = local::decide(screen, url, ask)?;
            return Ok(told(screen, url, what, facts));
        }
        let argument = url;
        let url = places::url(url)?;
        let cannot = |error| Trouble::store(format!("decide on what is held of {url}"), error);
        let routes = config::load(&Told::default())?.routes;
        let way = routes.by_way_of(&url).map_err(cannot)?;
        let place = places::stores(&self.talking)?.open(&way).map_err(cannot)?;
        let decided = place.store.decide(&place.path, what, &[]);
        decided.map_err(cannot)?;
        owed::changed(&url);
        Ok(told(screen, argument, what, Facts::new()))
    }
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

const HOW_IT_GOES: &str = "godwit trace shows how far it is";
