//! Peers that join by an invite, leave, or change their key.

use super::{HttpsDoor, Visitor, caller::stranger, calls::read, reply::HttpReply};
use godwit_core::Kind;
use godwit_trust::{Error, Peer, door::Fingerprint};
use godwit_wire::door::call::{AskJoin, AskRekey, Line, Refusal};
use std::time::SystemTime;

/// Redeems an invite, and stores the key of the client that showed it.
pub(super) fn join(door: &HttpsDoor, visitor: &Visitor, text: &[u8], reply: HttpReply) {
    let joined = || {
        let key = visitor
            .key
            .ok_or_else(|| Refusal::of_kind(Kind::Denied, "a node that joins must show a key"))?;
        let asked: AskJoin = read(text)?;
        let trust = &door.shared.trust;
        let home = trust.home().ok_or_else(|| {
            Refusal::of_kind(
                Kind::Unsupported,
                "this node keeps no state, so no node can join it (--state)",
            )
        })?;
        let peer = Peer {
            // The key that the invite named, which will not always be our newest.
            knows: door.known_to(visitor),
            ..Peer::new(&asked.name, key, &asked.addresses)
        };
        let denied = |error: Error| {
            tracing::warn!(peer = %visitor.peer, name = peer.name, %error, "no node joined");
            let why = match error {
                Error::NoInvite { .. } => Kind::Denied,
                // A bad name or address: the invite stays valid.
                Error::BadRequest { .. }
                | Error::NameTaken { .. }
                | Error::OwnName { .. }
                | Error::KeyTaken { .. }
                | Error::OwnKey => Kind::Invalid,
                _ => Kind::Other,
            };
            Refusal::of_kind(why, error.told())
        };
        home.join(&asked.secret, &peer, SystemTime::now())
            .map_err(denied)?;
        visitor.who.forget();
        tracing::info!(peer = %visitor.peer, name = peer.name, %key, "joined");
        Ok(Line::Done)
    };
    reply.tell(joined());
}

/// Removes the peer that asks for it.
pub(super) fn leave(door: &HttpsDoor, visitor: &Visitor, _: &[u8], reply: HttpReply) {
    let left = || {
        let home = door.shared.trust.home().ok_or_else(stranger)?;
        let key = visitor.key.as_ref().ok_or_else(stranger)?;
        let other = |error: Error| Refusal::of_kind(Kind::Other, error.told());
        let peer = home.peer_with(key).map_err(other)?.ok_or_else(stranger)?;
        home.remove(&peer.name).map_err(other)?;
        door.relay.forget(key);
        tracing::info!(name = peer.name, %key, "left");
        Ok(Line::Done)
    };
    reply.tell(left());
}

/// Notes that a peer, which has proved one of its keys, has another one now. It says so again by that, to
/// show that it has it.
pub(super) fn rekey(door: &HttpsDoor, visitor: &Visitor, text: &[u8], reply: HttpReply) {
    let noted = || {
        let home = door.shared.trust.home().ok_or_else(stranger)?;
        let shown = visitor.key.ok_or_else(stranger)?;
        let asked: AskRekey = read(text)?;
        let wrong = |error: Error| Refusal::of_kind(Kind::Protocol, error.told());
        let next: Fingerprint = asked.key.parse().map_err(wrong)?;
        let other = |error: Error| Refusal::of_kind(Kind::Other, error.told());
        let peer = home
            .peer_with(&shown)
            .map_err(other)?
            .ok_or_else(stranger)?;
        home.has_shown(&peer.name, shown).map_err(other)?;
        if next != shown {
            home.expect_key(&peer.name, next).map_err(|error| {
                tracing::warn!(%error, name = peer.name, key = %next, "another key is not noted");
                Refusal::of_kind(Kind::Denied, error.told())
            })?;
            tracing::info!(name = peer.name, key = %next, "will have another key");
        }
        Ok(Line::Done)
    };
    reply.tell(noted());
}
