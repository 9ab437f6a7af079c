//! The id of a request, which is sent with it through every hop.

use godwit_wire::door::is_word;
use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// An id by which an operation's log lines are found on all machines. The id grants no rights.
#[derive(Clone, Debug)]
pub struct RequestId(Arc<SharedId>);

#[derive(Debug)]
struct SharedId {
    id: String,
    told: AtomicBool,
}

impl RequestId {
    /// Returns a new one, which no other is like.
    pub fn new() -> Self {
        // Each has keys of its own, which the system made.
        Self::of(format!("{:016x}", RandomState::new().hash_one(0)))
    }

    fn of(id: String) -> Self {
        Self(Arc::new(SharedId {
            id,
            told: AtomicBool::new(false),
        }))
    }

    /// Returns the id to send to a node, and notes that one has it.
    pub fn tell(&self) -> &str {
        self.0.told.store(true, Relaxed);
        &self.0.id
    }

    /// Tells whether a node received the id, so that its log may have it.
    pub fn is_told(&self) -> bool {
        self.0.told.load(Relaxed)
    }
}

impl Default for RequestId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.id)
    }
}

/// An id from another program is forwarded if it fits into a line of a log.
impl FromStr for RequestId {
    type Err = NoMark;

    fn from_str(id: &str) -> Result<Self, NoMark> {
        match is_word(id, b"-_.:") {
            true => Ok(Self::of(id.into())),
            false => Err(NoMark),
        }
    }
}

/// The text is no id of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the id of a request has up to 64 letters, digits and -_.:")]
pub struct NoMark;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_plain_and_differ() {
        let (one, other) = (RequestId::new(), RequestId::new());
        assert_ne!(one.to_string(), other.to_string());
        assert_eq!(
            one.to_string().parse::<RequestId>().unwrap().to_string(),
            one.to_string()
        );
        for id in ["", "a b", "a\n", "é", &"x".repeat(65)] {
            assert!(id.parse::<RequestId>().is_err(), "{id}");
        }
    }

    #[test]
    fn mark_is_told_after_first_use() {
        let mark = RequestId::new();
        let same = mark.clone();
        assert!(!same.is_told());
        assert_eq!(mark.tell(), same.to_string());
        assert!(same.is_told());
    }
}
