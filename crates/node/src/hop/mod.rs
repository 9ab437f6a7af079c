//! A hop: a node that keeps what is written to it in a depot, and delivers it to the next node.

pub(crate) mod admin;

use crate::{Config, Error, access::connect::connect};
use godwit_depot::{Depot, Rules, Spooled, Who};
use godwit_store::channel::Cancel;
use godwit_trust::PeersDir;
use std::sync::Arc;

/// Opens the depot and resumes pending deliveries; `None`: the node serves a directory.
pub(crate) fn begin(
    config: &Config,
    home: Option<&PeersDir>,
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
