//! The errors that a server's refusals mean for the caller.

pub(super) use crate::error::refused;
use crate::{
    Error, Result,
    error::{GREETING, GREETING_AGAIN},
};
use godwit_wire::{
    self as wire,
    client::{Refusal, Unspeakable},
    reply::Reply,
};
use std::path::Path;

/// Tells of a server that has greeted us before that it does so no more: it is at the right port.
pub(super) fn of_one_that_greeted(mut error: Error) -> Error {
    if let Error::Lost { during, .. } | Error::Stalled { during, .. } = &mut error
        && during == GREETING
    {
        *during = GREETING_AGAIN.into();
    }
    error
}

/// Returns an error about `path` unless the reply is positive.
pub(super) fn check<'a>(host: &str, path: &Path, reply: &'a Reply) -> Result<&'a Reply> {
    Refusal::check(reply).map_err(|refusal| refused(host, path, refusal))
}

/// A reply of a peer that cannot be understood; `about` adds the host and the path.
impl From<wire::Error> for Error {
    fn from(error: wire::Error) -> Self {
        Self::PeerMisbehaved {
            host: String::new(),
            what: error.to_string(),
        }
    }
}

impl From<Unspeakable> for Error {
    fn from(error: Unspeakable) -> Self {
        Self::BadName {
            path: Default::default(),
            why: error.to_string(),
        }
    }
}

/// Fills in who and what an error is about, where the wire did not know.
pub(super) fn about(error: Error, at: &str, name: &Path) -> Error {
    match error {
        Error::PeerMisbehaved { host, what } if host.is_empty() => Error::misbehaved(at, what),
        Error::BadName { path, why } if path.as_os_str().is_empty() => Error::bad_name(name, why),
        Error::Lost {
            host,
            during,
            cause,
        } if host == NOBODY => Error::lost(at, during, cause),
        Error::Stalled {
            host,
            during,
            waited,
        } if host == NOBODY => Error::stalled(at, during, waited),
        other => other,
    }
}

/// The name of a peer of a data connection, if that is unknown.
const NOBODY: &str = "the peer";
