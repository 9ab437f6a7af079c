//! What becomes of what is held, here or on the way.

use super::{Facts, config, local, node::Told};
use crate::{
    options::Talking,
    places,
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
            return local::decide(screen, url, ask);
        }
        let url = places::url(url)?;
        let cannot = |error| Trouble::store(format!("decide on what is held of {url}"), error);
        let routes = config::load(&Told::default())?.routes;
        let way = routes.by_way_of(&url).map_err(cannot)?;
        let place = places::stores(&self.talking)?.open(&way).map_err(cannot)?;
        let decided = place.store.decide(&place.path, what, &[]);
        decided.map_err(cannot)?;
        Ok(Facts::new())
    }
}
