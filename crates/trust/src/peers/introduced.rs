//! Peers that another node names: the node of a catalog introduces the nodes of its farm to each other.

use super::{Peer, PeersDir, is_same_name, removed};
use crate::{Error, Result};

/// A change by the word of another node.
#[derive(Debug)]
pub enum Introduced {
    /// A peer that is known from now on.
    Added(Peer),
    /// A peer that is not known any more.
    Removed(Peer),
    /// A peer whose name or key belongs to another peer here.
    Refused(Error),
}

impl PeersDir {
    /// Makes `named` all the peers that are known by the word of the node `by`. A peer that the user added stays as it is.
    pub fn introduce(&self, by: &str, named: &[Peer]) -> Result<Vec<Introduced>> {
        let (_lock, mut changes) = (self.lock()?, Vec::new());
        for known in self.peers()? {
            let is_it = |peer: &Peer| is_same_name(&peer.name, &known.name) && known.has(&peer.key);
            if known.by.is_some() && !named.iter().any(is_it) {
                let file = self.peer_file(&known.name)?;
                file.map(|file| removed(&file)).transpose()?;
                changes.push(Introduced::Removed(known));
            }
        }
        for peer in named {
            let named = Peer {
                by: Some(by.into()),
                ..peer.clone()
            };
            // One that shows a newer key meanwhile keeps it.
            let known = self.peer(&peer.name)?.filter(|known| known.has(&peer.key));
            let done = match known {
                Some(known) if known.by.is_none() => continue,
                Some(known) => self.put_again(known, named).map(|()| None),
                None => self
                    .check(&named)
                    .and_then(|()| self.put(&named))
                    .map(|()| Some(named)),
            };
            match done {
                Ok(added) => changes.extend(added.map(Introduced::Added)),
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(error) => changes.push(Introduced::Refused(error)),
            }
        }
        Ok(changes)
    }

    /// Notes the addresses of a peer that was named before, and the node that names it now.
    fn put_again(&self, known: Peer, named: Peer) -> Result<()> {
        if known.addresses == named.addresses && known.by == named.by {
            return Ok(());
        }
        named.check()?;
        self.put(&Peer {
            addresses: named.addresses,
            by: named.by,
            ..known
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{door::Fingerprint, lab};
    use std::{slice::from_ref, time::Duration};

    fn key() -> Fingerprint {
        let key = lab::throw_away(Duration::from_secs(60)).unwrap();
        Fingerprint::of_credential(&key).unwrap()
    }

    fn peer(name: &str, key: Fingerprint) -> Peer {
        Peer::new(name, key, &[format!("{name}:13560")])
    }

    fn names(home: &PeersDir) -> Vec<(String, Option<String>)> {
        let peers = home.peers().unwrap().into_iter();
        peers.map(|peer| (peer.name, peer.by)).collect()
    }

    #[test]
    fn named_peers_go_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let home = PeersDir::at(&dir.path().join("home"));
        let (hand, friend) = (peer("hand", key()), peer("friend", key()));
        home.add(&hand).unwrap();
        let by = |name: &str| (name.to_owned(), Some("lab".to_owned()));
        let changes = home.introduce("lab", &[friend.clone(), hand.clone()]);
        assert!(matches!(&changes.unwrap()[..], [Introduced::Added(one)] if one.name == "friend"));
        assert_eq!(names(&home), [by("friend"), ("hand".into(), None)]);
        // The local settings stay, and the peer's addresses are updated.
        home.map("friend", Some("alice")).unwrap();
        let moved = Peer::new("friend", friend.key, &["elsewhere:1".into()]);
        assert!(home.introduce("lab", from_ref(&moved)).unwrap().is_empty());
        let known = home.peer("friend").unwrap().unwrap();
        assert_eq!(known.addresses, moved.addresses);
        assert_eq!(known.account.as_deref(), Some("alice"));
        let changes = home.introduce("lab", &[]).unwrap();
        assert!(matches!(&changes[..], [Introduced::Removed(one)] if one.name == "friend"));
        assert_eq!(names(&home), [("hand".into(), None)]);
    }

    #[test]
    fn clashes_with_added_peers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let home = PeersDir::at(&dir.path().join("home"));
        let hand = peer("hand", key());
        home.add(&hand).unwrap();
        home.call_myself("me", &[]).unwrap();
        let own = Fingerprint::of_credential(&home.key().unwrap().unwrap()).unwrap();
        let clashes = [
            peer("HAND", key()),
            peer("alias", hand.key),
            peer("me", key()),
            peer("myself", own),
            peer("../up", key()),
        ];
        let changes = home.introduce("lab", &clashes).unwrap();
        assert_eq!(changes.len(), clashes.len(), "{changes:?}");
        let refused = |change: &Introduced| matches!(change, Introduced::Refused(_));
        assert!(changes.iter().all(refused), "{changes:?}");
        assert_eq!(home.peers().unwrap(), [hand]);
    }

    #[test]
    fn replaced_key_replaces_the_named_peer() {
        let dir = tempfile::tempdir().unwrap();
        let home = PeersDir::at(&dir.path().join("home"));
        let (old, new) = (peer("friend", key()), peer("friend", key()));
        home.introduce("lab", from_ref(&old)).unwrap();
        home.expect_key("friend", new.key).unwrap();
        // The peer sent us its next key, and the other node knows one of the two.
        for one in [&old, &new] {
            assert!(home.introduce("lab", from_ref(one)).unwrap().is_empty());
        }
        let other = peer("friend", key());
        home.introduce("lab", from_ref(&other)).unwrap();
        assert_eq!(home.peer("friend").unwrap().unwrap().key, other.key);
        // An invite makes it one that the user added.
        home.call_myself("me", &[]).unwrap();
        let invite = home.invite(Duration::from_secs(60), None, false).unwrap();
        let now = std::time::SystemTime::now();
        home.join(&invite.secret, &other, now).unwrap();
        assert!(home.introduce("lab", &[]).unwrap().is_empty());
        assert_eq!(names(&home), [("friend".into(), None)]);
    }
}
