//! What all ways to prove who somebody is have in common, for whoever carries tokens and lines.

use crate::{Identity, Result};
use std::fmt::Debug;

/// A security context in either role: tokens go back and forth until both sides know each
/// other, and what is said behind is protected by the same.
pub trait Context: Debug + Send + Sync {
    /// Takes the peer's token. After an error the context is of no use.
    fn step(&mut self, token: &[u8]) -> Result<Step>;

    /// Makes bytes unreadable to all but the peer. They must be sent in the order in which
    /// they were wrapped.
    fn wrap(&mut self, clear: &[u8]) -> Result<Vec<u8>>;

    /// Returns what the peer protected. What came before, or is out of order, is refused.
    fn unwrap(&mut self, token: &[u8]) -> Result<Vec<u8>>;

    /// Returns who the peer is, once that is proved.
    fn peer(&self) -> Option<&Identity>;
}

/// What comes of a token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Step {
    /// What must be sent to the peer.
    pub token: Option<Vec<u8>>,
    /// The context stands: peer known, delegation over. A token beside it is the last one due.
    pub done: bool,
}
