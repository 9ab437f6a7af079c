//! Whether waiting can help.

use std::time::Duration;

/// Kind of a failure, decided where the error is made. A retry depends on nothing else.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// A later attempt may succeed: a lost connection, a busy server.
    Passing,
    /// Only a change by a person can help: no permission, no such name.
    Lasting,
    /// No attempt will succeed before this much time has passed.
    NotYet(Duration),
}
