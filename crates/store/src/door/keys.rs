//! Keys that are replaced: ours, which a node is told, and its own, which it tells.
//!
//! A node that has another key now still shows the older one to those who ask for it, and says so with
//! every answer. Then both count here until the new one was met. Ours goes the same way: whoever visits a
//! node that knows an older one says so first, once.

use super::{Door, Inner, Visit, done};
use crate::{Error, RemoteOptions, Result};
use godwit_trust::{
    Home, Peer,
    door::{Fingerprint, Wanted},
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
    home: Home,
    name: String,
    /// What our own key hashes to, and what that which is shown.
    ours: (Fingerprint, Fingerprint),
    /// The node must be told which key we have.
    is_news: Mutex<bool>,
    /// What it says that its key hashes to.
    next: Mutex<Option<Fingerprint>>,
}

impl Door {
    /// Opens a node that is known here, with the key by which it knows us.
    pub fn of_known(home: &Home, peer: &Peer, options: &RemoteOptions) -> Result<Self> {
        let wrong = |cause| Error::trust(peer.name.clone(), Box::new(cause));
        let shown = home.key_for(peer).map_err(wrong)?;
        let newest = home.key_or_new().map_err(wrong)?;
        let pin = |key| Fingerprint::of_credential(key).map_err(wrong);
        let ours = (pin(&newest)?, pin(&shown)?);
        let door = Self::of_peer(peer, shown, options)?;
        let mut inner = std::sync::Arc::into_inner(door.0).expect("nobody else has it yet");
        inner.pinned = Some(Pinned {
            home: home.clone(),
            name: peer.name.clone(),
            ours,
            is_news: Mutex::new(peer.knows.is_some_and(|key| key != ours.0)),
            next: Mutex::new(peer.next),
        });
        Ok(Self(std::sync::Arc::new(inner)))
    }

    /// Tells the node which key we have now. It is opened anew then, to show it.
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
    /// Tells whether there is something to be told, and that it is being told.
    fn takes_news(&self) -> bool {
        std::mem::take(&mut *self.is_news.lock())
    }

    /// Takes note of what was learned. If that cannot be written down, it will be told again.
    fn note(&self, noted: godwit_trust::Result<()>) {
        if let Err(error) = noted {
            tracing::warn!(%error, name = self.name, "cannot note which key counts");
        }
    }
}

impl Inner {
    /// Makes a connection to whoever has the key that we want, or says that it has it now.
    pub(super) fn meet(&self) -> Result<Visit> {
        let next = self.pinned.as_ref();
        let next = next.and_then(|pinned| Some((pinned, (*pinned.next.lock())?)));
        if let Some((pinned, next)) = next {
            match self.connect(&Wanted::Key(next)) {
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
    pub(super) fn tell_if_news(&self, visit: Visit) -> Option<Visit> {
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

    fn tell_key(&self, mut visit: Visit) -> Result<()> {
        let Some(pinned) = &self.pinned else {
            return Ok(());
        };
        let (newest, shown) = pinned.ours;
        let asked = AskRekey {
            key: newest.to_string(),
        };
        let body = super::Sent::whole(call::write(&asked));
        let request = self.request(Method::POST, &format!("{ROOT}rekey"), JSON_TYPE, body);
        let answer = visit.ask(request, "rekey")?;
        let mut is_done = None;
        self.hear(visit, answer, "rekey", Path::new(""), &mut |line| {
            is_done = is_done.or(done(line));
            Ok(())
        })?;
        is_done.ok_or_else(|| self.broke("its answer does not say what was asked"))?;
        // Only what it has seen is known to be of use; what it was told, it takes from now on.
        pinned.note(match shown == newest {
            true => pinned.home.note_knows(&pinned.name, newest),
            false => pinned.home.note_told(&pinned.name, newest),
        });
        Ok(())
    }

    /// Hears which key a node has now, that showed an older one.
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
