//! Where a file is on its way.

use crate::{Error, Result, Stat};
use std::{path::PathBuf, time::Duration};

/// A place that a file passes, and how it is there.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HopStatus {
    /// The place, as the place upstream names it; empty for the node that answers.
    pub at: String,
    /// `writing`, `queued`, `sending`, `waiting` or `held`: pending for the next place. `passed`: not pending.
    /// `there` or `missing`: the state at the end. `taken`: this place or one downstream has the file, and the answer
    /// does not say which. `away`: the place could not be asked.
    pub stage: String,
    /// Its length.
    pub size: u64,
    /// Bytes that the next place lacks.
    pub owed: u64,
    /// For how long it has been there, if it is on its way.
    pub age: Option<Duration>,
    /// Why it is no further.
    pub why: String,
    /// The file that is on hold and must be delivered first, if there is one.
    pub waits_for: Option<PathBuf>,
}

impl HopStatus {
    /// Returns the last station, by the attributes of the file there.
    pub fn at_the_end(stat: Result<Stat>) -> Result<Self> {
        match stat {
            Ok(stat) => Ok(Self {
                stage: THERE.into(),
                size: stat.size,
                ..Self::default()
            }),
            Err(Error::Missing { .. }) => Ok(Self {
                stage: "missing".into(),
                ..Self::default()
            }),
            Err(error) => Err(error),
        }
    }

    /// Returns one that could not be asked.
    pub fn away(at: String, error: &Error) -> Self {
        Self {
            at,
            stage: "away".into(),
            why: error.to_string(),
            ..Self::default()
        }
    }
}

/// The stage of a station at the end of the way that has the file.
pub const THERE: &str = "there";

/// The stage of a station that has the file, and does not report its deliveries.
pub const TAKEN: &str = "taken";

/// How often a file may be forwarded.
pub const PASSED_MAX: usize = 16;
