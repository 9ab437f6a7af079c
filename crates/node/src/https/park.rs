//! The call by which a peer has a connection wait for its visitors.

use super::{HttpsDoor, caller::Visitor, reply::HttpReply, stopping};
use crate::{base::idle::Stay, relay::wait};
use godwit_core::Kind;
use godwit_store::door::RequestBody;
use godwit_trust::{Peer, door::Fingerprint};
use godwit_wire::door::{call::Refusal, park};
use hyper::{
    HeaderMap, Request, Response,
    body::{Bytes, Incoming},
    header::{CONNECTION, UPGRADE},
};
use std::sync::Arc;

/// Has a connection wait for visitors of the peer that made it.
pub(super) fn park(
    door: &Arc<HttpsDoor>,
    visitor: &Visitor,
    mut request: Request<Incoming>,
    reply: HttpReply,
    stay: &Stay,
) {
    let peer = match may_park(door, visitor, request.headers()) {
        Ok(peer) => peer,
        Err(refusal) => {
            tracing::info!(peer = %visitor.peer, why = refusal.said, "not parked");
            return reply.refuse(refusal);
        }
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let (door, from, stay) = (Arc::clone(door), visitor.peer, stay.clone());
    tokio::spawn(async move {
        let name = peer.name.clone();
        match wait((&door.relay, &door.shared), peer, upgrade, stay).await {
            Ok(()) => tracing::debug!(peer = %from, name, "a parked connection is a visitor's"),
            Err(why) => tracing::debug!(peer = %from, name, why, "a parked connection ended"),
        }
    });
    let head = Response::builder().status(101);
    let head = head
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, park::UPGRADE);
    let answer = head.body(RequestBody::whole(Bytes::new()));
    reply.whole(answer.expect("its headers are ours"));
}

/// Only a node that has joined may park a connection: no client could verify another.
fn may_park(door: &HttpsDoor, visitor: &Visitor, headers: &HeaderMap) -> Result<Peer, Refusal> {
    let becomes = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    if becomes != Some(park::UPGRADE) {
        let why = format!("a connection is parked by Upgrade: {}", park::UPGRADE);
        return Err(Refusal::of_kind(Kind::Protocol, why));
    }
    if door.shared.stop.is_draining() {
        return Err(stopping());
    }
    let stranger = || Refusal::of_kind(Kind::Denied, "who is passed visitors must have joined");
    let key = visitor.key.as_ref().ok_or_else(stranger)?;
    if door.is_own(key) {
        let why = "this is the node itself: it needs no relay to reach itself";
        return Err(Refusal::of_kind(Kind::Denied, why));
    }
    let home = door.shared.trust.home().ok_or_else(stranger)?;
    let peer = home.peer_with(key);
    let peer = peer.map_err(|error| Refusal::of_kind(Kind::Other, error.told()))?;
    peer.ok_or_else(stranger)
}

impl HttpsDoor {
    fn is_own(&self, key: &Fingerprint) -> bool {
        let own = self.shared.trust.home().and_then(|home| home.key().ok()?);
        own.and_then(|own| Fingerprint::of_credential(&own).ok())
            .is_some_and(|own| own == *key)
    }
}
