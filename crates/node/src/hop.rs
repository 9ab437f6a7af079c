//! A node that passes on: what is written to it is kept in a depot, and delivered to the next.

use crate::{Config, Error, names::Names, routes::Routes};
use godwit_core::Scheme;
use godwit_depot::{Connect, Depot, Rules, Spooled, Who};
use godwit_store::{
    Proofs, Trust,
    channel::Cancel,
    engine::{Options, Stores},
};
use godwit_trust::{Credential, Home};
use std::sync::Arc;

/// Opens the depot, and goes on with what it owes; `None`: the node serves a directory.
pub(crate) fn begin(
    config: &Config,
    home: Option<&Home>,
    us: &str,
) -> Result<Option<Spooled>, Error> {
    let Some(hop) = &config.hop else {
        return Ok(None);
    };
    let cannot = |cause| Error::Spool {
        path: hop.spool.clone(),
        cause: Box::new(cause),
    };
    let cancel = Cancel::new().map_err(Error::Start)?;
    let connect = connect(home.cloned(), config.routes.clone(), None, cancel);
    let rules = Rules {
        quota: hop.bytes,
        ..Rules::default()
    };
    let depot = Depot::open(&hop.spool, rules, connect).map_err(cannot)?;
    let who = Who {
        audience: "the node".into(),
        credential: None,
    };
    let spooled = Spooled::new(Arc::new(depot), hop.next.clone(), who, us).map_err(cannot)?;
    Ok(Some(match hop.caches {
        true => spooled.keeping(),
        false => spooled,
    }))
}

/// Returns what finds the store of a URL, for whoever shows that credential, by the hop that leads there.
/// `cancel` ends all conversations with them; `names` are those that `grid:` stands for.
pub(crate) fn connect(
    home: Option<Home>,
    routes: Routes,
    names: Option<&Names>,
    cancel: Cancel,
) -> Connect {
    let options = Options::new(cancel);
    let trust = Trust {
        home,
        ..options.trust
    };
    let mut options = Options { trust, ..options };
    if let Some(names) = names {
        options = names.within(options);
    }
    let stores = Stores::new(options);
    Arc::new(move |url, who| {
        let url = &routes.by_way_of(url)?;
        let credential = match &who.credential {
            Some(path) if url.scheme() == Scheme::Gsiftp => {
                let read = Credential::from_file(path);
                Some(read.map_err(|error| godwit_store::Error::Trust {
                    host: url.host_port(),
                    cause: Box::new(error),
                })?)
            }
            _ => None,
        };
        let proofs = Proofs {
            credential,
            ..Proofs::default()
        };
        stores.open_as(url, proofs)
    })
}
