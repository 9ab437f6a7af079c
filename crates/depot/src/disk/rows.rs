//! The rows of the records, and a change of them.

use crate::{Error, Who, disk::files::Id, error::Patience};
use godwit_core::{
    Digest, Url,
    deeds::Deed,
    holding::{Base, Record},
};
use std::time::Instant;

/// The row of a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LogRow {
    pub id: Id,
    /// Logs of one name are drained in this order.
    pub number: u64,
    pub url: String,
    pub audience: String,
    pub credential: String,
    /// The number of the writer at the target.
    pub writer: u64,
    /// The number of the next piece there.
    pub seq: u64,
    /// Where that piece begins in the log.
    pub offset: u64,
    /// Where the pieces end that may have been sent under that number; not behind `offset`: none were.
    pub upto: u64,
}

/// A row of an operation of which a name cannot be read, as it stands there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OddDeed {
    pub number: u64,
    pub url: String,
    /// The new name of a rename.
    pub to: Option<String>,
    pub what: String,
    pub session: String,
    /// Seconds since the epoch.
    pub created_at: u64,
}

/// A name of which a hop has taken over a file.
#[derive(Clone, Debug)]
pub(crate) struct Forwarded {
    pub url: Url,
    pub who: Who,
    pub session: String,
    /// Tells it from later files of that name.
    pub number: u64,
    /// It may rightly not be there: a program of this machine had it changed there since, or that is unknown after a
    /// restart of this node.
    pub is_changed_there: bool,
}

/// Facts of an operation that the order does not need.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    /// Where.
    pub url: Url,
    /// The new name of a rename.
    pub to: Option<Url>,
    pub who: Who,
    pub session: String,
    /// Seconds since the epoch.
    pub created_at: u64,
    /// How often it was tried in vain, and how the last time.
    pub tries: u32,
    pub last: Option<Error>,
    /// Not before then is it tried again.
    pub later: Option<Instant>,
    pub patience: Patience,
}

/// A deed as it is on record.
#[derive(Clone, Debug)]
pub(crate) struct DeedRow {
    pub deed: Deed,
    pub fact: Fact,
}

/// Everything that is on record of a holding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub id: Id,
    /// The order in which they began.
    pub number: u64,
    pub url: String,
    pub audience: String,
    /// By what its servers are asked; empty: as always.
    pub credential: String,
    /// The session that wrote it.
    pub session: String,
    /// The upload by which it came.
    pub upload: String,
    /// The entry beside which it was written, and into which it is to be merged.
    pub merges_into: Option<Id>,
    /// Which nodes passed it on, the first first, with spaces between.
    pub upstream: String,
    /// The target only passes it on, and has not said yet that it is at its end.
    pub is_forwarded: bool,
    /// A program filled it.
    pub filled: bool,
    /// A time of its users.
    pub stamp: Option<i64>,
    /// Permission bits for a new file.
    pub mode: Option<u32>,
    /// The file that the target had before, if that is known.
    pub before: Option<Base>,
    /// The hash of the generation that the target was asked to publish, if that is known.
    pub asked: Option<Digest>,
    /// The class of prices that fetching it again is of.
    pub price: u32,
    pub record: Record,
    /// Why it is held, in words.
    pub reason: String,
    /// The boot that the record was written in.
    pub boot: String,
    /// Seconds since the epoch.
    pub used: u64,
    /// The time of the last verification, in seconds since the epoch; 0: never.
    pub verified: u64,
    /// The time at which it came to be here, in seconds since the epoch.
    pub created_at: u64,
    /// How often it was fetched.
    pub transfers: u64,
}

/// A change of the records.
pub(crate) enum Change {
    Put(Box<Row>),
    /// The row of an entry, and the other was merged into it.
    Merge(Box<Row>, Id),
    Forget(Id),
    /// The row of a log.
    Log(Box<LogRow>),
    /// A log that its target has as a whole.
    ForgetLog(Id),
    /// Promises that are no publications; nothing: it is over.
    Deeds(Vec<(u64, Option<DeedRow>)>),
    /// A tag of a file; with a count of 0 there is none.
    Tag(Id, Tag),
    /// A hop took something of a name, or it is at its end.
    Forwarded(Box<Forwarded>, bool),
    /// When they were last used.
    Used(Vec<(Id, u64)>),
    /// When it was last verified.
    Verified(Id, u64),
}

impl Change {
    /// Tells whether it says that something is over, which no later change says again.
    pub(crate) fn is_an_end(&self) -> bool {
        matches!(
            self,
            Self::Forget(_) | Self::ForgetLog(_) | Self::Deeds(_) | Self::Forwarded(..)
        )
    }
}

/// A named tag on a file.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Tag {
    /// Its name.
    pub name: String,
    /// How often it was added.
    pub count: u32,
    /// A time that means what its user says.
    pub timestamp: Option<i64>,
    /// When it falls by itself, in seconds since the epoch.
    pub expires: Option<u64>,
}
