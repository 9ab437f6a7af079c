//! Finds the peer that a URL names: by its name here, or by one of its addresses.

use super::Door;
use crate::{Error, RemoteOptions, Result};
use godwit_core::{Host, Scheme, Url};
use godwit_trust::{Credential, Peer, door::WantedHost};

impl Door {
    /// Opens the peer that a URL names; `None`: it names none.
    ///
    /// A name is refused with a port or a user. An address may be that of several nodes, if one of them relays for
    /// the others. The node at the address is therefore asked for its key. If that is no peer's key, the address does
    /// not say which peer is meant.
    pub(super) fn of_url(url: &Url, host: &Host, options: &RemoteOptions) -> Result<Option<Self>> {
        let trust = &options.trust;
        let Some(home) = trust
            .home
            .as_ref()
            .filter(|_| url.scheme() == Scheme::Godwit)
        else {
            return Ok(None);
        };
        let called = host.to_resolve();
        let wrong = Error::not_proved(&called);
        let bad = |why: String| Error::bad_name(url.without_password().to_string(), why);
        let named = home.peer_or_myself(&called).map_err(&wrong)?;
        let is_usual = url.port() == Scheme::Godwit.default_port();
        if let Some(peer) = named.as_ref().filter(|_| is_usual) {
            must_name_nobody(url, peer).map_err(bad)?;
            return Self::of_known(home, peer, options).map(Some);
        }
        let mut there = home.peers().map_err(&wrong)?;
        there.retain(|peer| is_at(peer, url));
        if let (Some(peer), true) = (named, there.is_empty()) {
            let name = peer.name;
            return Err(bad(format!(
                "{name} is a peer here, and is found by its addresses ({}), not by a port: godwit://{name}/",
                peer.addresses.join(" ")
            )));
        }
        // A user who sets a credential or an expected identity means authorities, not peers.
        if there.is_empty() || trust.credential.is_some() || trust.expect.is_some() {
            return Ok(None);
        }
        match found(&there, url, options) {
            Some(peer) => {
                must_name_nobody(url, peer).map_err(bad)?;
                Self::of_known(home, peer, options).map(Some)
            }
            None => Ok(None),
        }
    }
}

/// Returns the peer that answers itself at an address shared by several. If no node answers, returns the first, whose
/// error is then reported.
fn found<'a>(there: &'a [Peer], url: &Url, options: &RemoteOptions) -> Option<&'a Peer> {
    let first = there.first()?;
    let at = format!("{}:{}", url.host()?, url.port()?);
    let whoever = Peer::new(&at, first.key, std::slice::from_ref(&at));
    let door = Door::of_peer(&whoever, Credential::nobody(), options).ok()?;
    match door.0.reach(&WantedHost::Anybody, &Credential::nobody()) {
        Ok(visit) => {
            let key = visit.key?;
            there.iter().find(|peer| peer.has(&key))
        }
        Err(_) => Some(first),
    }
}

fn is_at(peer: &Peer, url: &Url) -> bool {
    peer.addresses.iter().any(|address| {
        let address = format!("godwit://{address}/").parse::<Url>();
        address.is_ok_and(|at| (at.host(), at.port()) == (url.host(), url.port()))
    })
}

fn must_name_nobody(url: &Url, peer: &Peer) -> std::result::Result<(), String> {
    let name = &peer.name;
    match url.user() {
        None => Ok(()),
        Some(user) => Err(format!(
            "{name} is a peer, which knows this machine by its key: as {user} nobody can come to it; godwit://{name}/"
        )),
    }
}
