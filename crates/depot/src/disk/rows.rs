//! The rows of the records, and a change of them.

use crate::{Error, Who, disk::files::Id, error::Patience};
use godwit_core::{
    Digest, Url,
    deeds::Deed,
    holding::{Base, Record},
};
use std::time::Instant;

/// What is on record of a log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LogRow {
    pub id: Id,
    /// Those of one name are drained in this order.
    pub number: u64,
    pub url: String,
    pub audience: String,
    pub credential: String,
    /// Who appends, at the target.
    pub writer: u64,
    /// The number of the next piece there.
    pub seq: u64,
    /// Where it begins in the log.
    pub offset: u64,
    /// Where what may have been sent under that number ends; not behind `offset`: nothing was.
    pub upto: u64,
}

/// One of them, as it stands there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OddDeed {
    pub number: u64,
    pub url: String,
    /// The new name of a rename.
    pub to: Option<String>,
    pub what: String,
    pub session: String,
    /// Seconds since the epoch.
    pub born: u64,
}

/// A name that a hop took something of, for somebody.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub url: Url,
    pub who: Who,
    pub session: String,
    /// Tells it from what is passed on of that name later.
    pub number: u64,
    /// It may rightly not be there: somebody of this machine had it changed there since, or nobody knows any more after an
    /// end of this node.
    pub is_changed_there: bool,
}

/// What the order does not know of a deed that is no publication.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    /// Where.
    pub url: Url,
    /// The new name of a rename.
    pub to: Option<Url>,
    pub who: Who,
    pub session: String,
    /// Seconds since the epoch.
    pub born: u64,
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
    /// Whoever wrote it.
    pub session: String,
    /// The upload by which it came.
    pub upload: String,
    /// It was written beside that one, and is on its way into it.
    pub folds_into: Option<Id>,
    /// Which nodes passed it on, the first first, with spaces between.
    pub passed: String,
    /// The target only passes it on, and has not said yet that it is at its end.
    pub passed_on: bool,
    /// A program filled it.
    pub filled: bool,
    /// A time of its users.
    pub stamp: Option<i64>,
    /// Permission bits for a new file.
    pub bits: Option<u32>,
    /// What the target had before, if that is known.
    pub before: Option<Base>,
    /// What the target was asked to publish hashes to, if that is known.
    pub asked: Option<Digest>,
    /// The class of prices that fetching it again is of.
    pub price: u32,
    pub record: Record,
    /// Why it is held, in words.
    pub words: String,
    /// The boot that the record was written in.
    pub boot: String,
    /// Seconds since the epoch.
    pub used: u64,
    /// Likewise, when it was last verified; 0: never.
    pub verified: u64,
    /// Likewise, when it came to be here.
    pub born: u64,
    /// How often it was fetched.
    pub transfers: u64,
}

/// A change of the records.
pub(crate) enum Change {
    Put(Box<Row>),
    /// The same, and the other was put into it.
    Fold(Box<Row>, Id),
    Forget(Id),
    /// What is to be appended, and where.
    Log(Box<LogRow>),
    /// It was.
    ForgetLog(Id),
    /// Promises that are no publications; nothing: it is over.
    Deeds(Vec<(u64, Option<DeedRow>)>),
    /// A tag of a file; with a count of 0 there is none.
    Tag(Id, Tag),
    /// A hop took something of a name, or it is at its end.
    Passed(Box<Passed>, bool),
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
            Self::Forget(_) | Self::ForgetLog(_) | Self::Deeds(_) | Self::Passed(..)
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
