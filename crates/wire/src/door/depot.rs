//! Calls about the depot of a node's machine, and their answers.
//!
//! A caller sees only the files that it keeps there itself; answers have no place for those of others.

use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// Asks something of the depot.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskDepot {
    /// The operation.
    pub what: OfDepot,
    /// The file, as the node calls it; of `ls`: how the URL begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The tag; `None`: `staged`, or for `rm` all tags of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Of `stage` and `add`: when the tag falls by itself, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_s: Option<u64>,
    /// For `stage`: the highest rate; `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<NonZeroU64>,
    /// For `add_done`: a time whose meaning is the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Of `add_done`: it is not wanted after all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub give_up: bool,
}

/// An operation on a depot.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OfDepot {
    /// Fetches a file and keeps it under a tag.
    Stage,
    /// Takes a tag off once.
    Unstage,
    /// Lists the kept files.
    #[default]
    Ls,
    /// Answers about one kept file.
    Stat,
    /// Answers about one kept file, and says why it is kept.
    Why,
    /// Forgets a file, or takes a tag off once.
    Rm,
    /// Takes a tag off all files, or off one.
    Clean,
    /// Answers how much space the caller uses and may use.
    Df,
    /// Reads kept files and compares them with their hashes.
    Verify,
    /// Fetches and tags a file as `stage` does, and answers with its path on that machine.
    Add,
    /// Notes a time with the tag that `add` put on, or takes that tag off once.
    AddDone,
}

/// A file that is kept.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Kept {
    /// Its name.
    pub url: String,
    /// Its length.
    pub size: u64,
    /// How much of it is there.
    pub present_bytes: u64,
    /// How often it was fetched.
    pub transfers: u64,
    /// The caller's tags on the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was last used: seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_s: Option<u64>,
    /// `current` or `old`; of a verified file: `whole`, `wrong`, `unknown`.
    pub stage: String,
    /// The reason for keeping the file, or the fault that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// A time that the caller noted with its tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// For `add`: the path on that machine, as long as the tag is on the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<super::call::Link>,
}

/// How many files and bytes an operation was about.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Count {
    pub files: u64,
    pub bytes: u64,
}

/// How much space the caller uses and may use.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct DepotRoom {
    /// The limit for the tagged files of all visitors together.
    pub quota_bytes: u64,
    /// The bytes of the caller's files.
    pub used_bytes: u64,
    /// Of them, the bytes of tagged files.
    pub kept_bytes: u64,
    /// How many files they are.
    pub files: u64,
}
