//! The way from this node to other servers.

use super::names::CatalogNames;
use crate::config::routes::Routes;
use godwit_core::Scheme;
use godwit_depot::Connect;
use godwit_store::{
    Proofs, TrustOptions,
    channel::Cancel,
    engine::{CopyOptions, Stores},
};
use godwit_trust::{Credential, PeersDir};
use std::sync::Arc;

/// Returns a function that opens the store of a URL with the caller's credential, through the hop that leads there.
/// `cancel` ends all connections; `names` resolves `grid:` URLs.
pub(crate) fn connect(
    home: Option<PeersDir>,
    routes: Routes,
    names: Option<&CatalogNames>,
    cancel: Cancel,
) -> Connect {
    let options = CopyOptions::new(cancel);
    let trust = TrustOptions {
        home,
        ..options.trust
    };
    let mut options = CopyOptions { trust, ..options };
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
