//! A GSI security context: tokens in, tokens out, no socket.

use crate::{Authorities, Credential, Identity, Result, credential::UNREADY};

/// What an initiator gives the acceptor to act with in its name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Delegate {
    /// Nothing.
    No,
    /// A limited proxy: good for files, not for starting jobs.
    #[default]
    Limited,
    /// A full proxy.
    Full,
}

/// Whom an initiator accepts as its peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Expect {
    /// Whoever a trusted authority vouches for.
    Anyone,
    /// The machine of that name or address (RFC 2818, and `host/NAME`, `ftp/NAME` of old).
    Host(String),
    /// Exactly that subject.
    Subject(String),
    /// Somebody with our own identity.
    Myself,
}

/// What comes of a token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Step {
    /// What must be sent to the peer.
    pub token: Option<Vec<u8>>,
    /// The context stands: peer known, delegation over. A token beside it is the last one due.
    pub done: bool,
}

/// A security context in either role.
#[derive(Debug)]
pub struct Channel(());

impl Channel {
    /// Begins as the client; returns the first token.
    pub fn initiate(
        _credential: &Credential,
        _authorities: &Authorities,
        _expect: Expect,
        _delegate: Delegate,
    ) -> Result<(Self, Vec<u8>)> {
        Err(UNREADY)
    }

    /// Begins as the server; the first token is the peer's.
    pub fn accept(_credential: &Credential, _authorities: &Authorities) -> Result<Self> {
        Err(UNREADY)
    }

    /// Takes the peer's token. After an error the channel is of no use.
    pub fn step(&mut self, _token: &[u8]) -> Result<Step> {
        Err(UNREADY)
    }

    /// Protects bytes for the peer. Tokens must be sent in the order they were made.
    pub fn wrap(&mut self, _clear: &[u8]) -> Result<Vec<u8>> {
        Err(UNREADY)
    }

    /// Returns what the peer protected. A token seen before, or out of order, is refused.
    pub fn unwrap(&mut self, _token: &[u8]) -> Result<Vec<u8>> {
        Err(UNREADY)
    }

    /// Returns who the peer is, once that is proved.
    pub fn peer(&self) -> Option<&Identity> {
        None
    }

    /// Returns what the initiator delegated to us.
    pub fn delegated(&self) -> Option<&Credential> {
        None
    }
}

/// No token that a peer sends may be longer.
pub const TOKEN_BYTES_MAX: usize = 256 * 1024;
