//! Invites: the word that is carried to a new node, and the part that is kept.

use super::{check_name, maybe_pin};
use crate::{Error, Peer, Result, door::Fingerprint};
use openssl::hash::{MessageDigest, hash};
use serde::Deserialize;
use std::{
    fmt, fs, io,
    path::Path,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

/// Invite by which one node may join, once.
#[derive(Clone, Eq, PartialEq)]
pub struct Invite {
    /// How the inviting node calls itself.
    pub name: String,
    /// Hash of its key.
    pub key: Fingerprint,
    /// Addresses of the inviting node.
    pub addresses: Vec<String>,
    /// Secret that the new node must send.
    pub secret: String,
}

/// The debug form for logs omits the secret.
impl fmt::Debug for Invite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invite")
            .field("name", &self.name)
            .field("key", &self.key)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Invite {
    /// Returns the peer that it speaks of.
    pub fn peer(&self) -> Peer {
        Peer::new(&self.name, self.key, &self.addresses)
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

    /// Errors name the wrong part by its place and never repeat it: the secret may be in it.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: &str| Error::BadRequest {
            what: format!(
                "that is no invite ({what}): copy the whole word that godwit init or godwit peers invite printed"
            ),
        };
        let text = text.trim();
        if text.contains(char::is_whitespace) {
            return Err(wrong("there is a space or a line break in it"));
        }
        let rest = text
            .strip_prefix(MARK)
            .ok_or_else(|| wrong("it begins with godwit-invite:"))?;
        let (name, rest) = rest
            .split_once('@')
            .ok_or_else(|| wrong("no @ behind the name"))?;
        let parts: Vec<&str> = rest.split('/').collect();
        let [addresses, key, secret] = parts[..] else {
            return Err(wrong(
                "it has three parts behind the @: addresses, fingerprint and secret, with / between them",
            ));
        };
        check_name(name).map_err(|_| wrong("the name is none that a node can have"))?;
        if addresses.is_empty() {
            return Err(wrong("the address is missing"));
        }
        must_be_hex("the fingerprint", key, 64).map_err(|what| wrong(&what))?;
        must_be_hex("the secret at its end", secret, 32).map_err(|what| wrong(&what))?;
        let invite = Self {
            name: name.into(),
            key: key.parse().map_err(|_| wrong("the fingerprint is none"))?,
            addresses: addresses.split(',').map(Into::into).collect(),
            secret: secret.into(),
        };
        invite
            .peer()
            .check()
            .map_err(|error| wrong(&error.to_string()))?;
        Ok(invite)
    }
}

/// Returns the error in hexadecimal digits that a user typed or cut.
fn must_be_hex(part: &str, text: &str, wanted: usize) -> std::result::Result<(), String> {
    if let Some(at) = text.chars().position(|c| !c.is_ascii_hexdigit()) {
        let nth = at + 1;
        return Err(format!("character {nth} of {part} is no hexadecimal digit"));
    }
    match text.len() {
        len if len == wanted => Ok(()),
        len if len < wanted => Err(format!("{part} is cut: {len} of {wanted} digits")),
        len => Err(format!("{part} has {len} digits instead of {wanted}")),
    }
}

/// Part of an invite that is kept until it is used. The secret is not kept.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingInvite {
    /// Last second in which the invite is good.
    pub(super) until: u64,
    /// Hash of our key that the invite tells.
    #[serde(default, deserialize_with = "maybe_pin")]
    pub(super) key: Option<Fingerprint>,
    /// Account for a node that joins by the invite.
    #[serde(default)]
    pub(super) account: Option<String>,
    /// The node that joins by it may read only.
    #[serde(default)]
    pub(super) read_only: bool,
}

impl PendingInvite {
    /// Reads one; `None`: it is not there.
    pub(super) fn read(file: &Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => {
                return Err(Error::io(file, cause));
            }
        };
        toml::from_str(&text)
            .map(Some)
            .map_err(|error| Error::bad_file(file, crate::not_toml(&text, &error)))
    }

    pub(super) fn to_toml(&self) -> String {
        let mut text = format!("until = {}\n", self.until);
        if let Some(key) = &self.key {
            text.push_str(&format!("key = \"{key}\"\n"));
        }
        if let Some(account) = &self.account {
            text.push_str(&format!("account = {account:?}\n"));
        }
        if self.read_only {
            text.push_str("read_only = true\n");
        }
        text
    }
}

pub(super) fn no_invite() -> Error {
    Error::no_invite(
        "the invite is none that this node gave out, or it was used already, or has expired",
    )
}

/// Returns the hash under which an invite is kept. The secret itself is not on the disk of its
/// maker.
pub(super) fn kept_as(secret: &str) -> Result<String> {
    let digest = hash(MessageDigest::sha256(), secret.as_bytes());
    let digest = crate::error::Doing::doing(digest, "hashing a secret")?;
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn since_epoch(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

const MARK: &str = "godwit-invite:";
