//! The nodes of a farm come to know each other: the node that serves the catalog tells the keys, and the others take its word.
//!
//! A node of the farm is a location at `godwit://NAME/.farm`, of the site NAME. The key is that of the peer NAME of the node
//! that answers, so what a client writes into the catalog is no key.

use godwit_catalog::{Location, Refusal};
use godwit_core::Kind;
use godwit_farm::is_of_node;
use godwit_trust::{AsOf, Introduced, Peer, PeersDir, is_same_name};

/// The peers of the node that serves a catalog, as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Members {
    as_of: AsOf,
    peers: Vec<Peer>,
}

impl Members {
    /// Adds the key and the addresses of its node to a location. A peer that may only read is not introduced to others.
    pub(crate) fn introduce(
        &mut self,
        home: Option<&PeersDir>,
        location: &mut Location,
    ) -> Result<(), Refusal> {
        location.attributes.remove(KEY);
        location.attributes.remove(ADDRESSES);
        let Some(home) = home.filter(|_| is_of_node(&location.site, &location.url)) else {
            return Ok(());
        };
        let as_of = home.peers_are();
        if as_of != self.as_of {
            // A peer that is left out would be forgotten by all others.
            let peers = home.peers();
            self.peers = peers.map_err(|e| Refusal::of_kind(Kind::Other, e.told()))?;
            self.as_of = as_of;
        }
        let is_it = |peer: &&Peer| is_same_name(&peer.name, &location.site);
        let known = self.peers.iter().find(is_it);
        if let Some(peer) = known.filter(|peer| peer.by.is_none() && !peer.read_only) {
            let told = [
                (KEY, peer.key.to_string()),
                (ADDRESSES, peer.addresses.join(",")),
            ];
            let told = told.map(|(key, value)| (key.to_owned(), value));
            location.attributes.extend(told);
        }
        Ok(())
    }
}

/// Makes the nodes of the farm known to this node, `site`, if it is one of them. `keeper` names the node that serves the
/// catalog: only one that the user added may introduce others. `locations` are those of the catalog; `None`: it is silent.
pub(crate) fn meet(
    home: &PeersDir,
    (site, keeper): (&str, &str),
    locations: Option<&[Location]>,
) -> godwit_trust::Result<Vec<Introduced>> {
    let is_member = |at: &&Location| is_of_node(&at.site, &at.url);
    let members = || locations.into_iter().flatten().filter(is_member);
    let keeper_is_known = home.peer(keeper)?.is_some_and(|peer| peer.by.is_none());
    let mut named = Vec::new();
    if keeper_is_known && locations.is_none() {
        return Ok(Vec::new());
    }
    if keeper_is_known && members().any(|at| at.site == site) {
        let others = members().filter(|at| !is_same_name(&at.site, site));
        named.extend(others.filter_map(read).take(NODES_MAX));
    }
    home.introduce(keeper, &named)
}

/// Reads what the node that serves the catalog says of another one; `None`: it does not know its key.
fn read(location: &Location) -> Option<Peer> {
    let key = location.attributes.get(KEY)?.parse().ok()?;
    let addresses = location.attributes.get(ADDRESSES)?;
    let addresses = addresses.split(',').filter(|address| !address.is_empty());
    let addresses: Vec<_> = addresses.take(ADDRESSES_MAX).map(Into::into).collect();
    Some(Peer::new(&location.site, key, &addresses))
}

const KEY: &str = "node.key";
const ADDRESSES: &str = "node.addresses";
const NODES_MAX: usize = 10_000;
const ADDRESSES_MAX: usize = 16;
