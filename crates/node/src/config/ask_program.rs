//! A program that is asked who may do what, instead of a file of rights.

use godwit_trust::{Deed, Identity};
use std::{path::Path, sync::Arc};

/// Whoever decides instead of a file of rights.
#[derive(Clone)]
pub(crate) struct Porter {
    pub(crate) decide: Arc<Decide>,
    /// What may only grow.
    pub(crate) outputs: &'static [&'static str],
}

/// Tells whether somebody may do that there. It waits, but not for ever.
pub(crate) type Decide = dyn Fn(Option<&Identity>, Deed, &Path) -> Word + Send + Sync;

/// What is said to somebody.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Word {
    Yes,
    No,
    /// It is at that URL.
    Elsewhere(String),
}

impl std::fmt::Debug for Porter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a program that is asked")
    }
}
