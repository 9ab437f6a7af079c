//! Replaced keys: ours, which a node learns, and the node's, which it announces.
//!
//! A node with a new key still shows the older one to clients that ask for it. With every answer the node announces
//! the new key. Both keys then count here until the new one was shown. Our own key is replaced the same way: a
//! visitor announces its new key once to a node that knows the older one.

use super::{Door, DoorConnection, DoorInner, done};
use crate::{Error, RemoteOptions, Result};
use godwit_trust::{
    Peer, PeersDir,
    door::{Fingerprint, WantedHost},
};
use godwit_wire::door::{
    JSON_TYPE, ROOT,
    call::{self, AskRekey},
};
use hyper::Method;
use parking_lot::Mutex;
use std::path::Path;

/// A node that is known here by its key.
pub(super) struct Pinned {
    home: PeersDir,
    name: String,
    /// The hash of our newest key, and of the key that is shown.
    ours: (Fingerprint, Fingerprint),
    /// Whether our newest key must be announced to the node.
    is_news: Mutex<bool>,
    /// The hash of the new key that the node announced.
    next: Mutex<Option<Fingerprint>>,
}

impl Door {
    /// Opens a node that is known here, with the key by which it knows us.
    pub fn of_known(home: &PeersDir, peer: &Peer, options: &RemoteOptions) -> Result<Self> {
        let wrong = |cause| Error::trust(peer.name.clone(), Box::new(cause));
        let shown = home.key_for(peer).map_err(wrong)?;
        let newest = home.key_or_new().map_err(wrong)?;
        let pin = |key| Fingerprint::of_credential(key).map_err(wrong);
        let ours = (pin(&newest)?, pin(&shown)?);
        let door = Self::of_peer(peer, shown, options)?;
        let mut inner = std::sync::Arc::into_inner(door.0).expect("it is not shared yet");
        inner.pinned = Some(Pinned {
            home: home.clone(),
            name: peer.name.clone(),
            ours,
            is_news: Mutex::new(peer.knows.is_some_and(|key| key != ours.0)),
            next: Mutex::new(peer.next),
        });
        Ok(Self(std::sync::Arc::new(inner)))
    }

    /// Announces our new key to the node, over a new connection that shows the key.
    pub fn tell_key(&self) -> Result<()> {
        let visit = match &self.0.pinned {
            Some(pinned) => {
                pinned.takes_news();
                self.0.take()?
            }
            None => return Ok(()),
        };
        self.0.tell_key(visit)
    }
}

impl Pinned {
    /// Tells whether our key must be announced, and clears the mark: the caller does it.
    fn takes_news(&self) -> bool {
        std::mem::take(&mut *self.is_news.lock())
    }

    /// Logs a failure to persist what was learned of a key; the key is then announced again.
    fn note(&self, noted: godwit_trust::Result<()>) {
        if let Err(error) = noted {
            tracing::warn!(%error, name = self.name, "cannot note which key counts");
        }
    }
}

impl DoorInner {
    /// Connects to the node by the key that is pinned, or by the new key that it announced.
    pub(super) fn meet(&self) -> Result<DoorConnection> {
        let next = self.pinned.as_ref();
        let next = next.and_then(|pinned| Some((pinned, (*pinned.next.lock())?)));
        if let Some((pinned, next)) = next {
            match self.connect(&WantedHost::Key(next)) {
                Ok(visit) => {
                    pinned.note(pinned.home.has_shown(&pinned.name, next));
                    return Ok(visit);
                }
                Err(error @ Error::Trust { .. }) => {
                    tracing::debug!(%error, "it does not have the key that it spoke of");
                }
                Err(error) => return Err(error),
            }
        }
        self.connect(&self.wanted)
    }

    /// Tells a node which key we have, if it may not know. The connection is kept, if it lasts.
    pub(super) fn tell_if_news(&self, visit: DoorConnection) -> Option<DoorConnection> {
        match self.pinned.as_ref().is_some_and(Pinned::takes_news) {
            false => Some(visit),
            true => {
                if let Err(error) = self.tell_key(visit) {
                    tracing::info!(%error, host = self.limits.at, "it does not take note of our key");
                }
                None
            }
        }
    }

    fn tell_key(&self, mut visit: DoorConnection) -> Result<()> {
        let Some(pinned) = &self.pinned else {
            return Ok(());
        };
        let (newest, shown) = pinned.ours;
        let asked = AskRekey {
            key: newest.to_string(),
        };
        let body = super::RequestBody::whole(call::write(&asked));
        let request = self.request(Method::POST, &format!("{ROOT}rekey"), JSON_TYPE, body);
        let answer = visit.ask(request, "rekey")?;
        let mut is_done = None;
        self.hear(visit, answer, "rekey", Path::new(""), &mut |line| {
            is_done = is_done.or(done(line));
            Ok(())
        })?;
        is_done.ok_or_else(|| self.broke("its answer does not say what was asked"))?;
        // A key that the node has seen is known to be accepted; one that it was sent counts from now on.
        pinned.note(match shown == newest {
            true => pinned.home.note_knows(&pinned.name, newest),
            false => pinned.home.note_told(&pinned.name, newest),
        });
        Ok(())
    }

    /// Notes the new key that a node announces while it shows an older one.
    pub(super) fn heard_key(&self, said: &str) {
        let (Some(pinned), Ok(key)) = (&self.pinned, said.parse::<Fingerprint>()) else {
            return;
        };
        let mut next = pinned.next.lock();
        if *next != Some(key) {
            tracing::info!(name = pinned.name, %key, "has another key now");
            pinned.note(pinned.home.expect_key(&pinned.name, key));
            *next = Some(key);
        }
    }
}
