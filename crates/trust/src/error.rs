//! What can go wrong, in words that name the file and the date.

use godwit_core::Fault;
use std::{io, path::PathBuf};

/// The result of what may be refused.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller would tell apart. The message is the fact; what to do next says [`Error::hint`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Error {
    #[error("{}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    /// The peer's tokens are not those of GSI.
    #[error("the peer broke the security dialogue: {0}")]
    Token(String),
    /// The library said no and no better word is known.
    #[error("{doing}: {said}")]
    Library { doing: &'static str, said: String },
}

impl Error {
    /// Tells whether waiting can help.
    pub fn fault(&self) -> Fault {
        Fault::Lasting
    }

    /// Returns what to do next, where we know.
    pub fn hint(&self) -> Option<String> {
        None
    }
}
