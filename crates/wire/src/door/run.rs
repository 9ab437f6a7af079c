//! Messages about a program that a node runs beside a file.

use super::call::Name;
use serde::{Deserialize, Serialize};

/// Asks to run a program.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskRun {
    /// The program and its arguments; `{in}` stands for the path of the file.
    pub program: Vec<String>,
    /// The file: the fragment that the program works on.
    pub path: Name,
    /// The index of the fragment.
    pub fragment: u64,
    /// The count of fragments.
    pub fragments: u64,
    /// The job that it belongs to.
    pub job: String,
}

/// The word in an argument that stands for the path of the file.
pub const IN: &str = "{in}";
