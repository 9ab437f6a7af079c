//! Peers: nodes that know each other by their keys. No name service, no authority, no clock of
//! others.
//!
//! A node's [`PeersDir`] is a directory with its own key and a file for each peer and each pending
//! invite. An [`Invite`] is one line that a person carries from one machine to another. It has the
//! node's addresses, the hash of its key, and a secret that is good once.
//!
//! Several processes use one home: the node, and commands of users. A process that reads a file and
//! writes it anew does both under the home's lock.

mod files;
mod introduced;
mod invite;
mod keys;

use crate::{Error, Result, door::Fingerprint, unguessable};
use files::{Replace, removed};
pub use introduced::Introduced;
pub use invite::Invite;
use invite::{PendingInvite, kept_as, no_invite, since_epoch};
pub use keys::{KeysSeen, PeerSeen};
use serde::Deserialize;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// Directory with a node's key and its records of peers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeersDir(PathBuf);

/// A node that is known by its key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// How it is called here: `godwit://NAME/`.
    pub name: String,
    /// Hash of its key.
    #[serde(deserialize_with = "pin")]
    pub key: Fingerprint,
    /// Hash of the new key that the peer has announced. Both keys count until the peer has shown
    /// the new one.
    #[serde(default, deserialize_with = "maybe_pin")]
    pub next: Option<Fingerprint>,
    /// Addresses of the peer, `HOST:PORT`; empty if it only connects to us.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Account of this machine that the peer acts as, if root started the node.
    #[serde(default)]
    pub account: Option<String>,
    /// Changes by the peer are refused, whatever its account may do.
    #[serde(default)]
    pub read_only: bool,
    /// Our key by which the peer knows us, as far as we have seen.
    #[serde(default, deserialize_with = "maybe_pin")]
    pub knows: Option<Fingerprint>,
    /// Which newer key of ours it has taken note of since.
    #[serde(default, deserialize_with = "maybe_pin")]
    pub told: Option<Fingerprint>,
    /// The node that named it; `None`: the user added it.
    #[serde(default)]
    pub by: Option<String>,
}

/// Stamp of the peers' records, for comparison.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AsOf(Option<(u64, i64, i64)>);

impl PeersDir {
    /// Returns the home in that directory, which need not be there.
    pub fn at(directory: &Path) -> Self {
        Self(directory.into())
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the files that make this machine a node: its keys, its peers and its invites. The
    /// name is last.
    pub fn parts(&self) -> Vec<PathBuf> {
        let parts = [INVITES, PEERS, keys::OLD, keys::KEY, MYSELF];
        let parts = parts.map(|name| self.0.join(name));
        parts.into_iter().filter(|path| path.exists()).collect()
    }

    /// Returns how this node calls itself to others, once that was said.
    pub fn myself(&self) -> Result<Option<Peer>> {
        let file = self.0.join(MYSELF);
        if !file.exists() {
            return Ok(None);
        }
        let myself = read_peer(&file)?;
        // The key itself is what counts: it may have been replaced since.
        let key = self.key()?;
        let key = key.as_ref().map(Fingerprint::of_credential).transpose()?;
        Ok(Some(Peer {
            key: key.unwrap_or(myself.key),
            ..myself
        }))
    }

    /// Refuses a name or addresses that this node cannot have.
    pub fn may_be_called(&self, name: &str, addresses: &[String]) -> Result<()> {
        if let Some(known) = self.peer(name)? {
            return Err(Error::name_taken(known.name));
        }
        check_whole(name, addresses)
    }

    /// Says how this node calls itself, and where others reach it.
    pub fn call_myself(&self, name: &str, addresses: &[String]) -> Result<Peer> {
        let key = Fingerprint::of_credential(&self.key_or_new()?)?;
        let myself = Peer::new(name, key, addresses);
        myself.check()?;
        self.write(
            Path::new(MYSELF),
            myself.to_toml().as_bytes(),
            Replace::Whole,
        )?;
        Ok(myself)
    }

    /// Returns all peers, in the order of their names. An unreadable file is an error: its peer
    /// might be admitted under another name.
    pub fn peers(&self) -> Result<Vec<Peer>> {
        let mut peers = Vec::new();
        for file in self.files(PEERS)? {
            if file.extension().is_some_and(|end| end == "toml") {
                peers.push(self.read_peer(&file)?);
            }
        }
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(peers)
    }

    /// Returns a stamp that changes when a record of a peer changes. It costs one stat of a
    /// directory: each peer is a file in it, which is replaced as a whole.
    pub fn peers_are(&self) -> AsOf {
        let meta = fs::metadata(self.0.join(PEERS)).ok();
        AsOf(meta.map(|meta| (meta.ino(), meta.mtime(), meta.mtime_nsec())))
    }

    /// Returns the peer of that name, ignoring case, since the host of a URL has none. The spelling
    /// is from when the peer became known.
    pub fn peer(&self, name: &str) -> Result<Option<Peer>> {
        if !is_name(name) {
            return Ok(None);
        }
        let file = self.peer_file(name)?;
        file.map(|file| self.read_peer(&file)).transpose()
    }

    /// Returns the peer of that name, or this node itself if that is its name.
    pub fn peer_or_myself(&self, name: &str) -> Result<Option<Peer>> {
        let known = self.peer(name)?;
        let mine = |me: &Peer| is_same_name(&me.name, name) && !me.addresses.is_empty();
        match known {
            None => Ok(self.myself()?.filter(mine)),
            known => Ok(known),
        }
    }

    /// Returns the peer that has that key, or says that it has it now.
    pub fn peer_with(&self, key: &Fingerprint) -> Result<Option<Peer>> {
        Ok(self.peers()?.into_iter().find(|peer| peer.has(key)))
    }

    /// Notes the node that used an invite. A node whose name is taken does not use the invite up. A
    /// node that has joined already, and lost the answer, joins again.
    pub fn join(&self, secret: &str, peer: &Peer, now: SystemTime) -> Result<()> {
        let _lock = self.lock()?;
        let known = self.peer(&peer.name)?;
        if known.is_some_and(|known| known.key == peer.key && known.by.is_none()) {
            return Ok(());
        }
        if !self.invite_file(secret)?.exists() {
            return Err(no_invite());
        }
        self.check(peer)?;
        let invite = self.take_back(secret, now)?;
        self.put(&Peer {
            account: invite.account,
            read_only: invite.read_only,
            ..peer.clone()
        })
    }

    /// Notes a peer. A peer of the same name and key is replaced, but keeps its account and rights.
    pub fn add(&self, peer: &Peer) -> Result<()> {
        let _lock = self.lock()?;
        self.check(peer)?;
        let before = self.peer(&peer.name)?;
        let read_only = before.as_ref().is_some_and(|known| known.read_only);
        let before = before.and_then(|known| known.account);
        self.put(&Peer {
            account: peer.account.clone().or(before),
            read_only: peer.read_only || read_only,
            ..peer.clone()
        })
    }

    /// Writes the record of a peer.
    fn put(&self, peer: &Peer) -> Result<()> {
        let file = Path::new(PEERS).join(format!("{}.toml", peer.name));
        self.write(&file, peer.to_toml().as_bytes(), Replace::Whole)
    }

    /// Changes the record of a peer; `None`: there is no peer of that name.
    fn amend(&self, name: &str, change: impl FnOnce(&mut Peer)) -> Result<Option<Peer>> {
        let _lock = self.lock()?;
        let Some(mut peer) = self.peer(name)? else {
            return Ok(None);
        };
        let before = peer.clone();
        change(&mut peer);
        if peer != before {
            self.put(&peer)?;
        }
        Ok(Some(peer))
    }

    /// Sets the account of this machine that a peer acts as; `false`: there is no peer of that
    /// name.
    pub fn map(&self, name: &str, account: Option<&str>) -> Result<bool> {
        check_name(name)?;
        let account = account.map(str::to_owned);
        Ok(self.amend(name, |peer| peer.account = account)?.is_some())
    }

    /// Refuses a name or key of another peer, or of this node itself.
    pub fn check(&self, peer: &Peer) -> Result<()> {
        peer.check()?;
        let name = &peer.name;
        for own in self.keys()? {
            if Fingerprint::of_credential(&own)? == peer.key {
                return Err(Error::OwnKey);
            }
        }
        let myself = self.myself()?;
        if let Some(myself) = myself.filter(|myself| is_same_name(&myself.name, name)) {
            return Err(Error::own_name(myself.name));
        }
        let known = self.peer(name)?;
        if let Some(known) = known.filter(|known| known.key != peer.key) {
            return Err(Error::name_taken(known.name));
        }
        match self.peer_with(&peer.key)? {
            Some(known) if known.name != *name => Err(Error::key_taken(known.name)),
            _ => Ok(()),
        }
    }

    /// Forgets a peer; `false` if none has that name.
    pub fn remove(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        let _lock = self.lock()?;
        match self.peer_file(name)? {
            Some(file) => removed(&file),
            None => Ok(false),
        }
    }

    /// Makes an invite to this node, good for `lifetime`; the node must have a name. The joining
    /// node acts as that account, if root started this node. With `read_only` it changes nothing.
    pub fn invite(
        &self,
        lifetime: Duration,
        account: Option<&str>,
        read_only: bool,
    ) -> Result<Invite> {
        if lifetime > INVITE_LIFETIME_MAX {
            return Err(Error::bad_request("an invite is good for 30 days at most"));
        }
        let _lock = self.lock()?;
        let myself = self.myself()?.ok_or_else(|| {
            Error::bad_request(
                "this machine is no node yet: godwit init NAME --export DIR makes it one",
            )
        })?;
        let secret = unguessable()?;
        let waiting = PendingInvite {
            until: since_epoch(SystemTime::now() + lifetime),
            key: Some(Fingerprint::of_credential(&self.key_or_new()?)?),
            account: account.map(Into::into),
            read_only,
        };
        let file = Path::new(INVITES).join(kept_as(&secret)?);
        self.write(&file, waiting.to_toml().as_bytes(), Replace::Never)?;
        Ok(Invite {
            name: myself.name,
            key: myself.key,
            addresses: myself.addresses,
            secret,
        })
    }

    /// Takes an invite back that was said to us: it is good once, and only for its time.
    fn take_back(&self, secret: &str, now: SystemTime) -> Result<PendingInvite> {
        let file = self.invite_file(secret)?;
        let waiting = PendingInvite::read(&file)?.ok_or_else(no_invite)?;
        // Of two uses at once, one takes the file away.
        if !removed(&file)? {
            return Err(no_invite());
        }
        match waiting.until >= since_epoch(now) {
            true => Ok(waiting),
            false => Err(Error::no_invite(
                "the invite has expired: have another one made",
            )),
        }
    }

    /// Removes expired invites; returns those that wait.
    fn sweep_invites(&self, now: SystemTime) -> Result<Vec<PendingInvite>> {
        let mut waiting = Vec::new();
        for file in self.files(INVITES)? {
            match PendingInvite::read(&file) {
                Ok(Some(one)) if one.until >= since_epoch(now) => waiting.push(one),
                _ => drop(removed(&file)?),
            }
        }
        Ok(waiting)
    }

    fn invite_file(&self, secret: &str) -> Result<PathBuf> {
        Ok(self.0.join(INVITES).join(kept_as(secret)?))
    }

    /// Returns the file of the peer of that name, whose spelling is from when the peer became
    /// known.
    fn peer_file(&self, name: &str) -> Result<Option<PathBuf>> {
        let file = self.0.join(PEERS).join(format!("{name}.toml"));
        // An exact spelling precedes: homes of older versions have names that differ in case only.
        if file.exists() {
            return Ok(Some(file));
        }
        let is_same = |other: &PathBuf| {
            let called = other.file_name().and_then(|called| called.to_str());
            let called = called.and_then(|called| called.strip_suffix(".toml"));
            called.is_some_and(|called| is_same_name(called, name))
        };
        Ok(self.files(PEERS)?.into_iter().find(is_same))
    }
}

impl Peer {
    /// Returns a peer with a name, a key and addresses only.
    pub fn new(name: &str, key: Fingerprint, addresses: &[String]) -> Self {
        Self {
            name: name.into(),
            key,
            next: None,
            addresses: addresses.into(),
            account: None,
            read_only: false,
            knows: None,
            told: None,
            by: None,
        }
    }

    /// Refuses what cannot be written down, or not be reached.
    pub fn check(&self) -> Result<()> {
        check_whole(&self.name, &self.addresses)
    }

    /// Tells whether it is known by that key.
    pub fn has(&self, key: &Fingerprint) -> bool {
        self.key == *key || self.next.as_ref() == Some(key)
    }

    fn to_toml(&self) -> String {
        let quoted = |text: &str| format!("{text:?}");
        let addresses: Vec<String> = self.addresses.iter().map(|a| quoted(a)).collect();
        let mut text = format!(
            "name = {}\nkey = \"{}\"\naddresses = [{}]\n",
            quoted(&self.name),
            self.key,
            addresses.join(", ")
        );
        if self.read_only {
            text.push_str("read_only = true\n");
        }
        let mut more = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                text.push_str(&format!("{key} = {}\n", quoted(&value)));
            }
        };
        more("account", self.account.clone());
        more("by", self.by.clone());
        more("next", self.next.as_ref().map(ToString::to_string));
        more("knows", self.knows.as_ref().map(ToString::to_string));
        more("told", self.told.as_ref().map(ToString::to_string));
        text
    }
}

fn read_peer(file: &Path) -> Result<Peer> {
    let path = || file.to_owned();
    let text = fs::read_to_string(file).map_err(|cause| Error::io(path(), cause))?;
    toml::from_str(&text).map_err(|error| Error::bad_file(path(), crate::not_toml(&text, &error)))
}

fn check_whole(name: &str, addresses: &[String]) -> Result<()> {
    check_name(name)?;
    for address in addresses {
        let url: std::result::Result<godwit_core::Url, _> = format!("godwit://{address}/").parse();
        if address.len() > ADDRESS_MAX || !url.is_ok_and(|url| url.path().is_empty()) {
            return Err(Error::bad_request(format!(
                "'{address}' is no address of a node: HOST:PORT"
            )));
        }
    }
    Ok(())
}

/// Names are of files, hosts and identities at once.
fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Tells whether two names are one: both are hosts of URLs, which have no capitals.
pub fn is_same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn check_name(name: &str) -> Result<()> {
    match is_name(name) {
        true => Ok(()),
        false => Err(Error::bad_request(format!(
            "'{name}' cannot be the name of a node: up to {NAME_MAX} letters, digits, - and _"
        ))),
    }
}

fn pin<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Fingerprint, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn maybe_pin<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Fingerprint>, D::Error> {
    pin(from).map(Some)
}

/// Longest lifetime of an invite: an older word may be found by others.
pub const INVITE_LIFETIME_MAX: Duration = Duration::from_secs(30 * 86_400);
const MYSELF: &str = "myself.toml";
const PEERS: &str = "peers";
const INVITES: &str = "invites";
const ADDRESS_MAX: usize = 300;
const NAME_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::{keys::KEY, *};
    use crate::{Credential, lab};

    const DAY: Duration = Duration::from_secs(86_400);

    fn home() -> (tempfile::TempDir, PeersDir) {
        let dir = tempfile::tempdir().unwrap();
        let home = PeersDir::at(&dir.path().join("home"));
        (dir, home)
    }

    fn invite(home: &PeersDir) -> Invite {
        let at = ["fermi:13560".to_owned(), "[::1]:13560".to_owned()];
        home.call_myself("lab", &at).unwrap();
        home.invite(DAY, None, false).unwrap()
    }

    #[test]
    fn key_is_made_once_for_owner() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, home) = home();
        assert!(home.key().unwrap().is_none());
        let pin = |key: &Credential| Fingerprint::of_credential(key).unwrap();
        let made = home.key_or_new().unwrap();
        assert_eq!(pin(&made), pin(&home.key_or_new().unwrap()));
        let mode = fs::metadata(home.path().join(KEY)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[test]
    fn invite_is_one_word_and_parses() {
        let (_dir, home) = home();
        let invite = invite(&home);
        let text = invite.to_string();
        assert!(!text.contains(|c: char| c.is_whitespace() || "&?;|<>$'\"".contains(c)));
        assert_eq!(text.parse::<Invite>().unwrap(), invite);
        for cut in 0..text.len() {
            assert!(text[..cut].parse::<Invite>().is_err(), "{cut}");
        }
    }

    #[test]
    fn invite_is_good_once_until_expiry() {
        let (_dir, home) = home();
        let now = SystemTime::now();
        let secret = invite(&home).secret;
        home.take_back(&secret, now).unwrap();
        let again = home.take_back(&secret, now).unwrap_err().to_string();
        assert!(again.contains("used already"), "{again}");
        let late = home.take_back(&invite(&home).secret, now + 2 * DAY);
        assert!(late.unwrap_err().to_string().contains("expired"));
        invite(&home);
        assert_eq!(home.sweep_invites(now).unwrap().len(), 1);
        assert_eq!(home.sweep_invites(now + 2 * DAY).unwrap().len(), 0);
        assert!(home.take_back("../../etc/passwd", now).is_err());
    }

    #[test]
    fn an_invite_does_not_last_for_ever() {
        let (_dir, home) = home();
        home.call_myself("lab", &[]).unwrap();
        assert!(home.invite(INVITE_LIFETIME_MAX, None, false).is_ok());
        let longer = home.invite(Duration::MAX, None, false).unwrap_err();
        assert!(longer.to_string().contains("30 days at most"), "{longer}");
    }

    #[test]
    fn the_secret_is_not_on_the_disk() {
        let (_dir, home) = home();
        let secret = invite(&home).secret;
        for file in home.files(INVITES).unwrap() {
            assert!(!file.display().to_string().contains(&secret));
            assert!(!fs::read_to_string(file).unwrap().contains(&secret));
        }
    }

    #[test]
    fn peer_names_ignore_case() {
        let ((_dir, home), (_there, lab)) = (home(), home());
        let peer = Peer {
            name: "Alice".into(),
            ..invite(&lab).peer()
        };
        home.add(&peer).unwrap();
        for name in ["alice", "Alice", "ALICE"] {
            assert_eq!(home.peer(name).unwrap(), Some(peer.clone()), "{name}");
            assert!(home.peer_seen(name) != PeerSeen::default(), "{name}");
        }
        assert!(home.map("aLICE", Some("hep")).unwrap());
        assert_eq!(home.peers().unwrap().len(), 1);
        // Another node is not called so, nor this one, nor that one otherwise.
        let other = Fingerprint::of_credential(&lab::throw_away(DAY).unwrap()).unwrap();
        let why = |peer: &Peer| home.add(peer).unwrap_err().to_string();
        assert_eq!(
            why(&Peer::new("alice", other, &[])),
            "another node is called Alice here"
        );
        let again = Peer {
            name: "alice".into(),
            ..peer
        };
        assert_eq!(why(&again), "the same key is known here as Alice");
        assert!(home.may_be_called("ALICE", &[]).is_err());
        home.call_myself("Desk", &[]).unwrap();
        assert_eq!(
            why(&Peer::new("desk", other, &[])),
            "this node itself is called Desk"
        );
        assert!(home.remove("alice").unwrap());
        assert_eq!(home.peers().unwrap(), []);
    }

    #[test]
    fn peers_are_found_by_name_and_key() {
        let ((_dir, home), (_there, lab)) = (home(), home());
        assert_eq!(home.peers().unwrap(), []);
        let peer = invite(&lab).peer();
        assert!(matches!(lab.check(&peer), Err(Error::OwnKey)));
        home.add(&peer).unwrap();
        home.add(&peer).unwrap();
        assert_eq!(home.peer("lab").unwrap(), Some(peer.clone()));
        assert_eq!(home.peer_with(&peer.key).unwrap(), Some(peer.clone()));
        // A node that joins again keeps its account.
        home.map("lab", Some("hep")).unwrap();
        home.add(&peer).unwrap();
        let account = home.peer("lab").unwrap().unwrap().account;
        assert_eq!(account.as_deref(), Some("hep"));
        let other = Fingerprint::of_credential(&lab::throw_away(DAY).unwrap()).unwrap();
        let impostor = Peer {
            key: other,
            ..peer.clone()
        };
        assert!(
            home.add(&impostor)
                .unwrap_err()
                .to_string()
                .contains("another node is called lab")
        );
        let alias = Peer {
            name: "bal".into(),
            ..peer
        };
        assert!(
            home.add(&alias)
                .unwrap_err()
                .to_string()
                .contains("known here as lab")
        );
        home.call_myself("desk", &[]).unwrap();
        let namesake = Peer::new("desk", other, &[]);
        assert!(matches!(home.check(&namesake), Err(Error::OwnName { .. })));
        assert!(home.remove("lab").unwrap());
        assert!(!home.remove("lab").unwrap());
        assert!(home.remove("../lab").is_err());
    }
}
