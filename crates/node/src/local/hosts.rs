//! Whether there is such a host as a program writes to.

use crate::local::{
    answers::{LocalResult, of_files},
    client::Client,
    connection::LocalReply,
    refusals::{self, url_to_deliver},
};
use godwit_core::{Host, Scheme, Url};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{Response, request, response};
use std::{net::ToSocketAddrs, sync::mpsc, thread, time::Duration};

impl Client {
    /// Reads a URL that is delivered to later. Refuses a node that is no peer and whose name is no host.
    pub(crate) fn target(&self, text: &str) -> Result<Url, Refusal> {
        let url = url_to_deliver(text)?;
        if is_name_of_peer(&url) {
            self.not_found(&url)?;
        }
        Ok(url)
    }

    /// Does so, and says which other host is not found. The network may be down: what has the name of a host is kept,
    /// and tried again.
    pub(crate) fn target_found(&self, text: &str, reply: &LocalReply) -> Result<Url, Refusal> {
        let url = url_to_deliver(text)?;
        if let Some(words) = self.not_found(&url)? {
            reply.tell(Response::Row(Box::new(response::Row {
                what: "host".into(),
                why: Some(words),
                ..response::Row::default()
            })));
        }
        Ok(url)
    }

    /// Delivers a pending entry to another URL.
    pub(crate) fn redirect(&self, redirect: &request::Redirect) -> LocalResult {
        let to = url_to_deliver(&redirect.to)?;
        let wanted = format!("deliver {} to {}", redirect.url, to.without_password());
        let redirected = self.keeping.depot.redirect(&redirect.url, &to);
        redirected.map_err(|error| refusals::depot(&wanted, None, &error))?;
        of_files(1)
    }

    /// Says that the host of a URL leads to no address, if that is neither a peer nor reached by way of a hop.
    fn not_found(&self, url: &Url) -> Result<Option<String>, Refusal> {
        let Some(host) = url.host().map(Host::to_resolve) else {
            return Ok(None);
        };
        if !self.hosts.lock().insert((url.scheme(), host.clone())) {
            return Ok(None); // It was said.
        }
        let is_routed = self
            .keeping
            .routes
            .by_way_of(url)
            .is_ok_and(|way| *way != *url);
        let home = self.keeping.home.as_ref();
        let is_peer = url.scheme() == Scheme::Godwit
            && home.is_some_and(|home| !matches!(home.peer_or_myself(&host), Ok(None)));
        if is_routed || is_peer {
            return Ok(None);
        }
        let Some(why) = unresolved(&host) else {
            return Ok(None);
        };
        let shown = url.without_password().to_string();
        if is_name_of_peer(url) {
            self.hosts.lock().remove(&(url.scheme(), host.clone()));
            let words = format!("{host} is no peer of this machine, and no host ({why})");
            let refusal = Refusal::new(Kind::NoHost, format!("write {shown}"), words);
            return Err(refusal.about(shown).next(KNOWN));
        }
        Ok(Some(format!(
            "{host} is not found at the moment ({why}); {shown} is kept here and tried again: godwit queue shows it"
        )))
    }
}

/// Tells whether the host of a URL can hardly be anything but the name of a peer.
fn is_name_of_peer(url: &Url) -> bool {
    let host = url.host().map(Host::to_resolve);
    url.scheme() == Scheme::Godwit && host.is_some_and(|host| !host.contains(['.', ':']))
}

/// Returns why a name leads to no address, if that is known soon.
fn unresolved(host: &str) -> Option<String> {
    let (told, hears) = mpsc::channel();
    let host = host.to_owned();
    let resolving = thread::Builder::new().spawn(move || {
        let found = (&*host, 0).to_socket_addrs();
        let _ = told.send(found.err().map(|error| error.to_string()));
    });
    resolving.ok()?;
    match hears.recv_timeout(PATIENCE) {
        Ok(error) => error,
        Err(_) => Some("the name service does not answer".into()),
    }
}

const KNOWN: &str =
    "godwit peers lists those that are known; godwit join INVITE makes another one known";
/// How long the lookup of a host may take.
const PATIENCE: Duration = Duration::from_secs(2);
