//! Whom to tell of deliveries that do not go, and when.

use std::time::Duration;

/// Whom to tell of lasting faults, and when.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OnFault {
    /// A command line for `sh`; none: only the log is told.
    pub command: Option<String>,
    /// Whatever waits longer is a fault.
    pub after: Duration,
}

impl Default for OnFault {
    fn default() -> Self {
        Self {
            command: None,
            after: Duration::from_secs(900),
        }
    }
}
