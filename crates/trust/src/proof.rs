//! Security contexts: the common face of all proofs of identity, for callers that carry tokens and
//! lines.

use crate::{Identity, Result};
use std::fmt::Debug;

/// A security context in either role. Tokens are exchanged until both sides know each other. The
/// context then protects their messages.
pub trait Context: Debug + Send + Sync {
    /// Takes the peer's token. After an error the context is of no use.
    fn step(&mut self, token: &[u8]) -> Result<ContextStep>;

    /// Makes bytes unreadable to all but the peer. They must be sent in the order in which
    /// they were wrapped.
    fn wrap(&mut self, clear: &[u8]) -> Result<Vec<u8>>;

    /// Returns the plain bytes of a protected token. A repeated token, or one out of order, is
    /// refused.
    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>>;

    /// Returns the peer's identity, once it is proved.
    fn peer(&self) -> Option<&Identity>;
}

/// Result of a token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ContextStep {
    /// Token that must be sent to the peer.
    pub token: Option<Vec<u8>>,
    /// The context stands: peer known, delegation over. A token beside it is the last one due.
    pub done: bool,
}
