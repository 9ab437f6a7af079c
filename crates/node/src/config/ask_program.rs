//! A program that decides about rights, instead of a file.

use godwit_trust::{Identity, Permission};
use std::{path::Path, sync::Arc};

/// Decides instead of a file of rights.
#[derive(Clone)]
pub(crate) struct Porter {
    pub(crate) decide: Arc<Decide>,
    /// Files that can only be appended to.
    pub(crate) outputs: &'static [&'static str],
}

/// Decides about one operation of a client. It waits for the program, up to a limit.
pub(crate) type Decide = dyn Fn(Option<&Identity>, Permission, &Path) -> AccessWord + Send + Sync;

/// The decision about an operation of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum AccessWord {
    Yes,
    No,
    /// The client is referred to that URL.
    Elsewhere(String),
}

impl std::fmt::Debug for Porter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a program that is asked")
    }
}
