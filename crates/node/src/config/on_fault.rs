//! Alerts about deliveries that fail.

use std::time::Duration;

/// The receiver of alerts, and the delay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OnFault {
    /// A command line for `sh`; `None`: alerts are only logged.
    pub command: Option<String>,
    /// A change that waits longer is a fault.
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
