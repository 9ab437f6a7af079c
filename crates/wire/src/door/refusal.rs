//! One type for refusals on every wire.

use crate::{
    door::call::{Name, Ranges},
    words,
};
use godwit_core::{Fault, Kind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, time::Duration};

/// The reason why something was not done. In JSON it has the form of the door, in answers of
/// the local socket that of [`local`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Refusal {
    /// The kind, by which programs tell refusals apart.
    pub kind: Kind,
    /// The code of an FTP reply.
    pub code: u16,
    /// The wish: `read godwit://lab/run7`.
    pub wanted: String,
    /// The reason, for a person.
    pub said: String,
    /// The next step of the caller.
    pub next: Option<String>,
    /// Whether waiting can help.
    pub waiting: Waiting,
    /// Details of some kinds.
    pub more: Box<More>,
}

/// Details that only some refusals tell.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct More {
    /// The file that the refusal is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// For [`Kind::Corrupt`]: the expected hash, and the one found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<(String, String)>,
    /// Of [`Kind::Incomplete`]: of how many bytes which are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<(u64, Ranges)>,
    /// For [`Kind::OutOfTurn`]: the writer, the number it sent, and the next number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<(u64, u64, u64)>,
    /// For [`Kind::OnHold`]: the answer of the next node downstream.
    #[serde(skip_serializing_if = "Option::is_none", with = "words::door::option")]
    pub cause: Option<Kind>,
    /// For [`Kind::OnHold`]: the file on hold, which may be one that must be delivered first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Name>,
    /// Of [`Kind::Denied`]: the client came as a peer, and is none, or is none any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stranger: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "Refusal")]
struct AtDoor {
    #[serde(default, rename = "why", with = "words::door")]
    kind: Kind,
    #[serde(skip)]
    code: u16,
    #[serde(skip)]
    wanted: String,
    #[serde(default)]
    said: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip)]
    waiting: Waiting,
    #[serde(flatten)]
    more: Box<More>,
}

impl Serialize for Refusal {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        AtDoor::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for Refusal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        AtDoor::deserialize(from)
    }
}

/// The form of the local socket.
pub(crate) mod local {
    use super::*;

    #[derive(Deserialize, Serialize)]
    #[serde(remote = "Refusal")]
    struct AtSocket {
        #[serde(rename = "why", with = "words::local")]
        kind: Kind,
        #[serde(skip)]
        code: u16,
        wanted: String,
        #[serde(rename = "because")]
        said: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<String>,
        #[serde(default)]
        waiting: Waiting,
        #[serde(flatten)]
        more: Box<More>,
    }

    pub(crate) fn serialize<S: Serializer>(refusal: &Refusal, to: S) -> Result<S::Ok, S::Error> {
        AtSocket::serialize(refusal, to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<Refusal>>(
        from: D,
    ) -> Result<T, D::Error> {
        AtSocket::deserialize(from).map(T::from)
    }
}

/// Whether waiting can help, as it is written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// Waiting may help.
    Helps,
    /// Only a change can.
    #[default]
    Helpless,
    /// Waiting helps, but for at least that many milliseconds.
    HelpsIn(u64),
}

impl From<Fault> for Waiting {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Passing => Self::Helps,
            Fault::Lasting => Self::Helpless,
            Fault::NotYet(time) => {
                Self::HelpsIn(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
        }
    }
}

impl From<Waiting> for Fault {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Helps => Self::Passing,
            Waiting::Helpless => Self::Lasting,
            Waiting::HelpsIn(ms) => Self::NotYet(Duration::from_millis(ms)),
        }
    }
}

impl Refusal {
    /// Returns one of which nothing but the kind and a sentence is known.
    pub fn of_kind(kind: Kind, said: impl Into<String>) -> Self {
        Self {
            kind,
            said: said.into(),
            ..Self::default()
        }
    }

    /// Returns one that has a code of FTP.
    pub fn coded(code: u16, kind: Kind, said: impl Into<String>) -> Self {
        Self {
            code,
            ..Self::of_kind(kind, said)
        }
    }

    /// Returns one that waiting does not help.
    pub fn new(kind: Kind, wanted: impl Into<String>, said: impl Into<String>) -> Self {
        Self {
            wanted: wanted.into(),
            ..Self::of_kind(kind, said)
        }
    }

    /// Returns the line by which a node that cannot begin says why, to the process that started it.
    pub fn write(&self) -> Vec<u8> {
        let cannot_begin = self.clone();
        let line = serde_json::to_vec(&CannotBegin { cannot_begin });
        let mut line = line.expect("all of it can be written as JSON");
        line.push(b'\n');
        line
    }

    /// Reads that line; any other says something else.
    pub fn read(line: &[u8]) -> Option<Self> {
        let said: CannotBegin = serde_json::from_slice(line).ok()?;
        Some(said.cannot_begin)
    }

    /// Adds what to do.
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Adds whether waiting helps.
    pub fn waiting(mut self, fault: Fault) -> Self {
        self.waiting = fault.into();
        self
    }

    /// Adds the file that it is about.
    pub fn about(mut self, url: impl Into<String>) -> Self {
        self.more.url = Some(url.into());
        self
    }
}

#[derive(Deserialize, Serialize)]
struct CannotBegin {
    #[serde(with = "local")]
    cannot_begin: Refusal,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.wanted, self.said)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wire_has_its_own_form() {
        let mut refusal = Refusal::new(Kind::Corrupt, "read u", "so").about("u");
        let socket =
            br#"{"why":"differs","wanted":"read u","because":"so","waiting":"helpless","url":"u"}"#;
        let socket = [br#"{"cannot_begin":"#, &socket[..], b"}\n"].concat();
        assert_eq!(refusal.write(), socket);
        assert_eq!(Refusal::read(&socket).as_ref(), Some(&refusal));
        refusal.more.url = None;
        refusal.more.differs = Some(("a".into(), "b".into()));
        let door = r#"{"why":"corrupt","said":"so","differs":["a","b"]}"#;
        assert_eq!(serde_json::to_string(&refusal).unwrap(), door);
        let read: Refusal = serde_json::from_str(door).unwrap();
        assert_eq!(
            read,
            Refusal {
                wanted: String::new(),
                ..refusal
            }
        );
    }
}
