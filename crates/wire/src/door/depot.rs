//! What is asked of the depot of a node's machine, and what is told of it.
//!
//! Whoever asks sees their own part of it alone, so what is told has no place for what others keep there.

use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// Asks something of the depot.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskDepot {
    /// What is to be done.
    pub what: OfDepot,
    /// The file, as the node calls it; of `ls`: how the URL begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// By what it is kept; nothing: `staged`, or of `rm` all that whoever asks has put on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Of `stage` and `add`: when the tag falls by itself, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_s: Option<u64>,
    /// Of `stage`: it comes no faster; nothing: as fast as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<NonZeroU64>,
    /// Of `add_done`: a time that means what whoever asks says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Of `add_done`: it is not wanted after all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub give_up: bool,
}

/// What can be asked of a depot.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OfDepot {
    /// That a file be fetched, and kept under a tag.
    Stage,
    /// That the tag be taken off once.
    Unstage,
    /// What is kept.
    #[default]
    Ls,
    /// What is kept of one file.
    Stat,
    /// The same, and why.
    Why,
    /// That it be forgotten, or a tag taken off once.
    Rm,
    /// That a tag be taken off all files, or one.
    Clean,
    /// How much room there is.
    Df,
    /// That what is kept be read and compared.
    Verify,
    /// The same as `stage`, and where it lies there.
    Add,
    /// That a time be noted with the tag that `add` has put on; or that it be taken off once.
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
    /// What keeps it there, of whoever asks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was last used: seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_s: Option<u64>,
    /// `current` or `old`; of what was verified: `whole`, `wrong`, `unknown`.
    pub stage: String,
    /// Why it is kept, or what is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// A time that whoever asks has noted with a tag of theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Of what was added: where it lies on that machine, as long as the tag is on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<super::call::Link>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Count {
    pub files: u64,
    pub bytes: u64,
}

/// How much room there is for whoever asks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Room {
    /// What visitors may keep there by tags, all of them together.
    pub quota_bytes: u64,
    /// What is kept by whoever asks.
    pub used_bytes: u64,
    /// Of that, what has a tag.
    pub kept_bytes: u64,
    /// How many files they are.
    pub files: u64,
}
