//! Protection of the lines of a control channel, once both sides have proved their identity. By RFC 2228, commands
//! are sent as `ENC` and reply lines as `632`. By RFC 4217, TLS wraps the whole flow.
//!
//! Knows how protected lines are written, and no cryptography: that is a
//! [`Guard`], which a driver brings.

use crate::{Error, Result, base64, error::shown};
use std::fmt;

/// Makes plain bytes unreadable to others, and bytes of the other side plain
/// again. Each direction has an order that must be kept.
pub trait Guard: fmt::Debug + Send + Sync {
    /// Protects bytes that are to be sent.
    fn wrap(&mut self, plain: &[u8]) -> Result<Vec<u8>, Spoiled>;

    /// Reverses the other side's `wrap`.
    fn unwrap(&mut self, wrapped: &[u8]) -> Result<Vec<u8>, Spoiled>;

    /// Returns the protected closing word, if the protection has one.
    fn end(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Tells whether the handshake is complete. Until then, a guard of the whole flow unwraps to nothing, and its
    /// handshake bytes come out of `wrap`.
    fn stands(&self) -> bool {
        true
    }
}

/// Bytes that the other side did not protect: the session is over.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Spoiled(pub String);

/// The protection between lines and the socket.
#[derive(Debug, Default)]
pub enum Shield {
    /// No protection.
    #[default]
    Clear,
    /// Every line is wrapped.
    Guarded(Box<dyn Guard>),
    /// The whole flow is protected; a piece that arrives may be cut anywhere.
    Flow(Box<dyn Guard>),
}

/// The identity that the peer of a data connection must prove (`DCAU`, GFD.20).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DataPeer {
    /// `N`: no proof is asked for.
    #[default]
    Anyone,
    /// `A`: a peer with the identity of the user who logged in.
    Myself,
    /// `S`: a peer with this subject.
    Subject(String),
}

/// The protection of the bytes on a data connection whose peer proved its identity (`PROT`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Level {
    /// `C`: nothing.
    #[default]
    Clear,
    /// `S`: changes are detected.
    Safe,
    /// `P`: also encrypted.
    Private,
}

/// The protection of data connections.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Cover {
    /// A proof on each of them, and TLS behind it (GFD.20).
    #[default]
    Proofs,
    /// Blocks, wrapped as the control channel's lines are (RFC 2228); in clear, the peer proves nothing.
    Blocks,
}

/// The position of a line in a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Row {
    /// Others of the same reply follow.
    Inner,
    /// The last line of the reply.
    Last,
}

impl Level {
    /// Returns the letter of `PROT`.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Clear => "C",
            Self::Safe => "S",
            Self::Private => "P",
        }
    }

    /// Returns the level of a letter of `PROT`. The `E` of RFC 2228 is unknown here; no client in use sends it.
    pub fn of_letter(letter: &str) -> Option<Self> {
        let all = [Self::Clear, Self::Safe, Self::Private];
        all.into_iter().find(|level| level.letter() == letter)
    }
}

impl Shield {
    /// Tells whether lines are wrapped.
    pub fn is_guarded(&self) -> bool {
        matches!(self, Self::Guarded(_))
    }

    /// Tells whether the whole flow is wrapped.
    pub fn is_flow(&self) -> bool {
        matches!(self, Self::Flow(_))
    }

    /// Unwraps arrived bytes, if the whole flow is wrapped.
    pub(crate) fn open_flow(&mut self, came: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Flow(guard) => guard.unwrap(came).map_err(spoiled),
            _ => Ok(came.to_vec()),
        }
    }

    /// Returns the farewell of the guard around the flow.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        match self {
            Self::Flow(guard) => guard.end(),
            _ => Vec::new(),
        }
    }

    /// Returns a command line as it is sent; both have CR LF. Always `ENC`: the guard does the same for all verbs,
    /// and GCT does not check them.
    pub(crate) fn seal_command(&mut self, line: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Clear => Ok(line.to_vec()),
            Self::Guarded(guard) => {
                let text = base64::encode(&guard.wrap(line).map_err(spoiled)?);
                Ok(format!("ENC {text}\r\n").into_bytes())
            }
            Self::Flow(guard) => guard.wrap(line).map_err(spoiled),
        }
    }

    /// Returns the plain text of a command line; both lack the line end.
    pub(crate) fn open_command(&mut self, line: Vec<u8>) -> Result<Vec<u8>> {
        let Self::Guarded(guard) = self else {
            return Ok(line);
        };
        let (verb, text) = line.split_at(line.len().min(4));
        let verbs = [b"ENC ", b"MIC ", b"CONF"];
        let is_wrapped = verbs.iter().any(|known| verb.eq_ignore_ascii_case(*known));
        let wrapped = is_wrapped.then(|| base64::decode(text)).flatten();
        let Some(wrapped) = wrapped else {
            return Err(Error::NotProtected { line: shown(&line) });
        };
        let mut plain = guard.unwrap(&wrapped).map_err(spoiled)?;
        // GCT's client may count the zero behind its string, or leave the end out.
        for end in [b'\0', b'\n', b'\r'] {
            plain.pop_if(|last| *last == end);
        }
        Ok(plain)
    }

    /// Returns a line of a reply, both with CR LF, as it is sent: line by line, as
    /// GCT does, the last one with a blank.
    pub(crate) fn seal_reply(&mut self, line: &[u8], row: Row) -> Result<Vec<u8>> {
        match self {
            Self::Clear => Ok(line.to_vec()),
            Self::Flow(guard) => guard.wrap(line).map_err(spoiled),
            Self::Guarded(guard) => {
                let text = base64::encode(&guard.wrap(line).map_err(spoiled)?);
                let separator = if row == Row::Last { ' ' } else { '-' };
                Ok(format!("632{separator}{text}\r\n").into_bytes())
            }
        }
    }

    /// Returns the plain text of a reply line that arrived without its CR LF. That is one or more lines, each with
    /// its end. Any 6yz is accepted, as by GCT's client.
    pub(crate) fn open_reply(&mut self, line: &[u8]) -> Result<Vec<u8>> {
        let Self::Guarded(guard) = self else {
            return Ok([line, b"\r\n"].concat());
        };
        let wrapped = match line {
            [b'6', b'0'..=b'9', b'0'..=b'9', b' ' | b'-', text @ ..] => base64::decode(text),
            _ => None,
        };
        let Some(wrapped) = wrapped else {
            return Err(Error::NotProtected { line: shown(line) });
        };
        let mut plain = guard.unwrap(&wrapped).map_err(spoiled)?;
        plain.pop_if(|last| *last == 0);
        if !plain.ends_with(b"\n") {
            plain.extend(b"\r\n");
        }
        Ok(plain)
    }
}

fn spoiled(why: Spoiled) -> Error {
    Error::Spoiled { why: why.0 }
}

#[cfg(test)]
#[path = "../tests/common/turned.rs"]
mod turned;

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::turned::Turned;
    use super::*;

    fn guarded() -> Shield {
        Shield::Guarded(Box::new(Turned::default()))
    }

    #[test]
    fn command_survives_the_shield() {
        let (mut client, mut server) = (guarded(), guarded());
        for line in ["RETR a b ", "NOOP", "PASS "] {
            let sealed = client
                .seal_command(format!("{line}\r\n").as_bytes())
                .unwrap();
            assert!(sealed.starts_with(b"ENC ") && sealed.ends_with(b"\r\n"));
            let came = sealed[..sealed.len() - 2].to_vec();
            assert_eq!(server.open_command(came).unwrap(), line.as_bytes());
        }
    }

    #[test]
    fn the_three_verbs_of_protection_are_one() {
        let (mut client, mut server) = (guarded(), guarded());
        for verb in ["MIC", "conf", "Enc"] {
            let sealed = String::from_utf8(client.seal_command(b"NOOP\0").unwrap()).unwrap();
            let came = sealed.trim_end().replace("ENC", verb);
            assert_eq!(server.open_command(came.into_bytes()).unwrap(), b"NOOP");
        }
    }

    #[test]
    fn plain_line_under_shield_is_refused() {
        for line in ["NOOP", "ENC", "ENC =", "632 ", "ENCODE Zg=="] {
            let opened = guarded().open_command(line.into());
            assert!(
                matches!(
                    opened,
                    Err(Error::NotProtected { .. } | Error::Spoiled { .. })
                ),
                "{line}"
            );
        }
        for line in ["226 done", "632", "632 !", "", "421 bye"] {
            let opened = guarded().open_reply(line.as_bytes());
            assert!(
                matches!(
                    opened,
                    Err(Error::NotProtected { .. } | Error::Spoiled { .. })
                ),
                "{line}"
            );
        }
    }

    #[test]
    fn a_line_said_twice_is_refused() {
        let (mut client, mut server) = (guarded(), guarded());
        let sealed = client.seal_command(b"DELE a\r\n").unwrap();
        let came = sealed.trim_ascii_end().to_vec();
        assert!(server.open_command(came.clone()).is_ok());
        assert!(matches!(
            server.open_command(came),
            Err(Error::Spoiled { .. })
        ));
    }
}
