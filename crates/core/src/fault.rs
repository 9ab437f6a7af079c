//! Whether waiting can help.

use std::time::Duration;

/// What kind of failure it was, decided where the error is made. Whoever
/// retries asks this and nothing else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The same request may succeed later: a lost connection, a busy server.
    Passing,
    /// Only a change by somebody can help: no permission, no such name.
    Lasting,
    /// It will not succeed before this much time has passed.
    NotYet(Duration),
}
