//! Runs of programs, and the versions of files that they made.

use super::{
    call::{Name, Text},
    run::Word,
};
use godwit_core::{Algorithm, Digest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The words by which a result can be computed again.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Recipe {
    /// The program and its arguments, with the words for input and output left in.
    pub argv: Vec<Word>,
    /// The digest of the program, if it is kept; else it is found by PATH.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Text<Digest>>,
    /// The digests of the programs that are kept, by platform: each node has the one for its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub programs: BTreeMap<String, Text<Digest>>,
    /// The platform for which it was made.
    pub platform: String,
    /// The variables that it had.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The permission bits that its files lack.
    pub umask: u32,
    /// The count of its ranks.
    pub ranks: u64,
    /// The files that it read.
    pub inputs: Vec<Input>,
    /// The names of its outputs.
    pub outputs: Vec<Name>,
    /// Whether the first output consists of the lines that it printed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub printed: bool,
}

impl Recipe {
    /// Returns the digest by which the catalog knows it.
    pub fn id(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        Digest::of(Algorithm::Blake3, &text).to_string()
    }
}

/// A file that a program read.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Input {
    /// The name.
    pub name: Name,
    /// The version.
    pub version: u64,
    /// Whether each rank had the whole file, not only its fragment.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The digests of the whole file, or of its fragments in their order.
    pub digests: Vec<Text<Digest>>,
}

/// One run of a program on all fragments.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Ran {
    /// The job by which it is known.
    pub run: String,
    /// The recipe.
    pub recipe: Recipe,
    /// The account and host that asked for it.
    pub who: String,
    /// The time of its end, in seconds since the epoch.
    pub at_s: u64,
    /// The engine that started its tasks.
    pub engine: String,
    /// The tasks, in the order of the fragments.
    pub ranks: Vec<RunRank>,
}

/// One task of a run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct RunRank {
    /// The index of the fragment.
    pub fragment: u64,
    /// The node.
    pub node: String,
    /// The exit status.
    pub exit_status: i32,
    /// The time that it took, in milliseconds.
    pub took_ms: u64,
    /// The digests of its outputs.
    pub digests: Vec<Text<Digest>>,
}

/// The run that made a version of a file.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct MadeFile {
    /// The name that was asked for.
    pub name: Name,
    /// The version.
    pub version: u64,
    /// Which of the outputs it is.
    pub output: u64,
    /// The run.
    pub ran: Ran,
    /// Whether a second run gave equal outputs.
    pub is_proved: bool,
}

/// The way in which files whose names fit a pattern are computed.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Definition {
    /// The pattern of the names: `{word}` stands for a part of one segment.
    pub pattern: Name,
    /// The name of the input, with the words of the pattern.
    pub input: Name,
    /// The program and its arguments, with the words of the pattern, `{in}` and `{out}`.
    pub program: Vec<Word>,
}

impl Definition {
    /// Returns the text as which a catalog keeps it.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads that text.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
