//! Nodes that know each other by their keys: no name service, no authority, no clock of others.
//!
//! A node's [`Home`] is a directory with its own key, a file for each peer, and one for each
//! invite that waits. An [`Invite`] is one line that somebody carries from one machine to another:
//! where the node is, what its key hashes to, and a secret that is good once.

use crate::{Credential, Error, Result, door::Fingerprint, lab, unguessable};
use openssl::hash::{MessageDigest, hash};
use serde::Deserialize;
use std::{
    fmt, fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Where a node keeps its key and what it knows of others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Home(PathBuf);

/// A node that is known by its key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// How it is called here: `godwit://NAME/`.
    pub name: String,
    /// What its key hashes to.
    #[serde(deserialize_with = "pin")]
    pub key: Fingerprint,
    /// Where it can be reached, `HOST:PORT`; nowhere, if it only comes to us.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// What lets somebody join, once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Invite {
    /// How the inviting node calls itself.
    pub name: String,
    /// What its key hashes to.
    pub key: Fingerprint,
    /// Where it is.
    pub addresses: Vec<String>,
    /// What it must be told.
    pub secret: String,
}

impl Home {
    /// Returns the home in that directory, which need not be there.
    pub fn at(directory: &Path) -> Self {
        Self(directory.into())
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the node's own key, if it has one.
    pub fn key(&self) -> Result<Option<Credential>> {
        let file = self.0.join(KEY);
        match file.exists() {
            true => Credential::from_file(&file).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the node's own key, made now if there was none.
    pub fn key_or_new(&self) -> Result<Credential> {
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        let made = lab::throw_away(KEY_LIFETIME)?;
        self.write(Path::new(KEY), &made.to_pem()?, Replace::Never)?;
        self.key()?.ok_or_else(|| Error::Io {
            path: self.0.join(KEY),
            cause: io::ErrorKind::NotFound.into(),
        })
    }

    /// Returns how this node calls itself to others, once that was said.
    pub fn myself(&self) -> Result<Option<Peer>> {
        let file = self.0.join(MYSELF);
        match file.exists() {
            true => read_peer(&file).map(Some),
            false => Ok(None),
        }
    }

    /// Says how this node calls itself, and where others reach it.
    pub fn call_myself(&self, name: &str, addresses: &[String]) -> Result<Peer> {
        let myself = Peer {
            name: name.into(),
            key: Fingerprint::of_credential(&self.key_or_new()?)?,
            addresses: addresses.into(),
        };
        check_whole(&myself)?;
        self.write(
            Path::new(MYSELF),
            myself.to_toml().as_bytes(),
            Replace::Whole,
        )?;
        Ok(myself)
    }

    /// Returns all that are known, in the order of their names. A file that says nothing is an
    /// error: whom it named might be let in by another name.
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

    /// Returns the peer of that name.
    pub fn peer(&self, name: &str) -> Result<Option<Peer>> {
        let file = self.peer_file(name);
        match is_name(name) && file.exists() {
            true => self.read_peer(&file).map(Some),
            false => Ok(None),
        }
    }

    /// Returns the peer that has that key.
    pub fn peer_with(&self, key: &Fingerprint) -> Result<Option<Peer>> {
        Ok(self.peers()?.into_iter().find(|peer| peer.key == *key))
    }

    /// Notes whoever brings an invite back. An invite is not used up by somebody whose name is taken.
    pub fn join(&self, secret: &str, peer: &Peer, now: SystemTime) -> Result<()> {
        if !self.invite_file(secret)?.exists() {
            return Err(no_invite());
        }
        self.check(peer)?;
        self.redeem(secret, now)?;
        self.add(peer)
    }

    /// Notes a peer; one of the same name and key is replaced.
    pub fn add(&self, peer: &Peer) -> Result<()> {
        self.check(peer)?;
        let file = Path::new(PEERS).join(format!("{}.toml", peer.name));
        self.write(&file, peer.to_toml().as_bytes(), Replace::Whole)
    }

    /// Refuses a name or key that stands for another.
    fn check(&self, peer: &Peer) -> Result<()> {
        check_whole(peer)?;
        let known = self.peer(&peer.name)?;
        if known.is_some_and(|known| known.key != peer.key) {
            let name = &peer.name;
            return Err(Error::BadRequest {
                what: format!(
                    "another node is called {name} here: choose another name for it, or let the other one leave"
                ),
            });
        }
        if let Some(known) = self.peer_with(&peer.key)?
            && known.name != peer.name
        {
            let (old, new) = (known.name, &peer.name);
            return Err(Error::BadRequest {
                what: format!("the same key is known here as {old}, and cannot be {new} too"),
            });
        }
        Ok(())
    }

    /// Forgets a peer; `false` if none has that name.
    pub fn remove(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        removed(&self.peer_file(name))
    }

    /// Makes an invite to this node, good for that long; it must have said how it is called.
    pub fn invite(&self, lifetime: Duration) -> Result<Invite> {
        let myself = self.myself()?.ok_or_else(|| Error::BadRequest {
            what: "this machine is no node yet: godwit init NAME --export DIR makes it one".into(),
        })?;
        let secret = unguessable()?;
        let until = since_epoch(SystemTime::now() + lifetime);
        let file = Path::new(INVITES).join(kept_as(&secret)?);
        self.write(&file, format!("{until}\n").as_bytes(), Replace::Never)?;
        Ok(Invite {
            name: myself.name,
            key: Fingerprint::of_credential(&self.key_or_new()?)?,
            addresses: myself.addresses,
            secret,
        })
    }

    /// Takes an invite back that was said to us: it is good once, and only for its time.
    pub fn redeem(&self, secret: &str, now: SystemTime) -> Result<()> {
        let file = self.invite_file(secret)?;
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Err(no_invite()),
            Err(cause) => return Err(Error::Io { path: file, cause }),
        };
        // Of two who say the same at once, one takes the file away.
        if !removed(&file)? {
            return Err(no_invite());
        }
        let until: u64 = text.trim().parse().unwrap_or(0);
        match until >= since_epoch(now) {
            true => Ok(()),
            false => Err(Error::BadRequest {
                what: "the invite has expired: have another one made".into(),
            }),
        }
    }

    /// Removes invites whose time is over; returns how many wait.
    pub fn sweep_invites(&self, now: SystemTime) -> Result<usize> {
        let mut waiting = 0;
        for file in self.files(INVITES)? {
            let text = fs::read_to_string(&file).unwrap_or_default();
            match text.trim().parse::<u64>() {
                Ok(until) if until >= since_epoch(now) => waiting += 1,
                _ => drop(removed(&file)?),
            }
        }
        Ok(waiting)
    }

    fn invite_file(&self, secret: &str) -> Result<PathBuf> {
        Ok(self.0.join(INVITES).join(kept_as(secret)?))
    }

    fn peer_file(&self, name: &str) -> PathBuf {
        self.0.join(PEERS).join(format!("{name}.toml"))
    }

    /// A file says whom it is called after: else two could be let in by one name.
    fn read_peer(&self, file: &Path) -> Result<Peer> {
        let peer = read_peer(file)?;
        match file.file_stem().is_some_and(|stem| stem == &*peer.name) {
            true => Ok(peer),
            false => Err(Error::BadFile {
                path: file.into(),
                what: format!("names {}, and is not called so", peer.name),
            }),
        }
    }

    fn files(&self, below: &str) -> Result<Vec<PathBuf>> {
        let directory = self.0.join(below);
        let listed = match fs::read_dir(&directory) {
            Ok(listed) => listed,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => {
                return Err(Error::Io {
                    path: directory,
                    cause,
                });
            }
        };
        let files = listed.map(|entry| entry.map(|entry| entry.path()));
        files.collect::<io::Result<_>>().map_err(|cause| Error::Io {
            path: directory,
            cause,
        })
    }

    /// Writes a file that only its owner reads, whole or not at all.
    fn write(&self, name: &Path, bytes: &[u8], replace: Replace) -> Result<()> {
        let path = self.0.join(name);
        let written = || {
            let above = path.parent().unwrap_or(&self.0);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(above)?;
            let partial = path.with_extension(format!("{}.new", std::process::id()));
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&partial)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            let published = match replace {
                Replace::Whole => fs::rename(&partial, &path),
                // Whoever was first has it.
                Replace::Never => match fs::hard_link(&partial, &path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    linked => linked,
                },
            };
            let _ = fs::remove_file(&partial);
            published
        };
        written().map_err(|cause| Error::Io { path, cause })
    }
}

impl Peer {
    fn to_toml(&self) -> String {
        let quoted = |text: &str| format!("{text:?}");
        let addresses: Vec<String> = self.addresses.iter().map(|a| quoted(a)).collect();
        format!(
            "name = {}\nkey = \"{}\"\naddresses = [{}]\n",
            quoted(&self.name),
            self.key,
            addresses.join(", ")
        )
    }
}

fn read_peer(file: &Path) -> Result<Peer> {
    let path = || file.to_owned();
    let text = fs::read_to_string(file).map_err(|cause| Error::Io {
        path: path(),
        cause,
    })?;
    toml::from_str(&text).map_err(|error| Error::BadFile {
        path: path(),
        what: crate::not_toml(&text, &error),
    })
}

/// Refuses what cannot be written down, or not be reached.
fn check_whole(peer: &Peer) -> Result<()> {
    check_name(&peer.name)?;
    for address in &peer.addresses {
        let url: std::result::Result<godwit_core::Url, _> = format!("godwit://{address}/").parse();
        if address.len() > ADDRESS_MAX || !url.is_ok_and(|url| url.path().is_empty()) {
            return Err(Error::BadRequest {
                what: format!("'{address}' is no address of a node: HOST:PORT"),
            });
        }
    }
    Ok(())
}

/// Whether what is there already is replaced.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Replace {
    Never,
    Whole,
}

impl Invite {
    /// Returns the peer that it speaks of.
    pub fn peer(&self) -> Peer {
        Peer {
            name: self.name.clone(),
            key: self.key,
            addresses: self.addresses.clone(),
        }
    }
}

/// One word that no shell takes apart.
impl fmt::Display for Invite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.addresses.join(",");
        write!(
            f,
            "{MARK}{}@{addresses}/{}/{}",
            self.name, self.key, self.secret
        )
    }
}

impl FromStr for Invite {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: &str| Error::BadRequest {
            what: format!(
                "that is no invite ({what}): copy the whole word that godwit init or godwit peers invite printed"
            ),
        };
        let rest = text
            .trim()
            .strip_prefix(MARK)
            .ok_or_else(|| wrong("it begins with godwit-invite:"))?;
        let (name, rest) = rest.split_once('@').ok_or_else(|| wrong("no @ in it"))?;
        let parts: Vec<&str> = rest.split('/').collect();
        let [addresses, key, secret] = parts[..] else {
            return Err(wrong("a part is missing"));
        };
        check_name(name)?;
        let is_secret = secret.len() == 32 && secret.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_secret || addresses.is_empty() {
            return Err(wrong("a part is cut"));
        }
        Ok(Self {
            name: name.into(),
            key: key.parse().map_err(|_| wrong("the fingerprint is cut"))?,
            addresses: addresses.split(',').map(Into::into).collect(),
            secret: secret.into(),
        })
    }
}

/// Names are of files, hosts and identities at once.
fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

fn check_name(name: &str) -> Result<()> {
    match is_name(name) {
        true => Ok(()),
        false => Err(Error::BadRequest {
            what: format!(
                "'{name}' cannot be the name of a node: up to {NAME_MAX} letters, digits, - and _"
            ),
        }),
    }
}

fn no_invite() -> Error {
    Error::BadRequest {
        what: "the invite is not known here: it was used already, or is of another node".into(),
    }
}

fn removed(file: &Path) -> Result<bool> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(Error::Io {
            path: file.into(),
            cause,
        }),
    }
}

/// The secret itself is nowhere on the disk of whoever made it.
fn kept_as(secret: &str) -> Result<String> {
    let digest = hash(MessageDigest::sha256(), secret.as_bytes());
    let digest = crate::error::Doing::doing(digest, "hashing a secret")?;
    Ok(godwit_core::hex(&digest))
}

fn since_epoch(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

fn pin<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Fingerprint, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

const KEY: &str = "node.pem";
const MYSELF: &str = "myself.toml";
const PEERS: &str = "peers";
const INVITES: &str = "invites";
const MARK: &str = "godwit-invite:";
const ADDRESS_MAX: usize = 300;
const NAME_MAX: usize = 60;
const KEY_LIFETIME: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(&dir.path().join("home"));
        (dir, home)
    }

    fn invite(home: &Home) -> Invite {
        let at = ["fermi:13560".to_owned(), "[::1]:13560".to_owned()];
        home.call_myself("lab", &at).unwrap();
        home.invite(DAY).unwrap()
    }

    #[test]
    fn a_key_is_made_once_and_is_its_owners() {
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
    fn an_invite_is_one_word_and_reads_back() {
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
    fn an_invite_is_good_once_and_for_its_time() {
        let (_dir, home) = home();
        let now = SystemTime::now();
        let secret = invite(&home).secret;
        home.redeem(&secret, now).unwrap();
        let again = home.redeem(&secret, now).unwrap_err().to_string();
        assert!(again.contains("used already"), "{again}");
        let late = home.redeem(&invite(&home).secret, now + 2 * DAY);
        assert!(late.unwrap_err().to_string().contains("expired"));
        invite(&home);
        assert_eq!(home.sweep_invites(now).unwrap(), 1);
        assert_eq!(home.sweep_invites(now + 2 * DAY).unwrap(), 0);
        assert!(home.redeem("../../etc/passwd", now).is_err());
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
    fn peers_are_known_by_name_and_by_key() {
        let (_dir, home) = home();
        assert_eq!(home.peers().unwrap(), []);
        let peer = invite(&home).peer();
        home.add(&peer).unwrap();
        home.add(&peer).unwrap();
        assert_eq!(home.peer("lab").unwrap(), Some(peer.clone()));
        assert_eq!(home.peer_with(&peer.key).unwrap(), Some(peer.clone()));
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
        assert!(home.remove("lab").unwrap());
        assert!(!home.remove("lab").unwrap());
        assert!(home.remove("../lab").is_err());
    }
}
