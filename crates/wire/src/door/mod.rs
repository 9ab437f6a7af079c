//! The door between nodes: HTTP whose bodies are JSON, one line an answer, or packs of bytes.
//!
//! HTTP itself is hyper's. This module has the values that both ends share: paths, calls and their answers, and packs
//! of bytes and hashes.

pub use crate::{Error, Result};

pub mod call;
pub mod catalog;
mod depot;
pub mod made;
pub mod pack;
pub mod park;
pub mod path;
pub mod range;
pub(crate) mod refusal;
pub mod run;
pub mod speaker;
pub mod staging;

#[cfg(test)]
mod described;

/// Below which path our own calls lie. No file of an export can be reached by this name.
pub const ROOT: &str = "/.godwit/v1/";

/// The version of the protocol, which both ends send in `hello`.
pub const VERSION: u32 = 1;

/// The oldest version that is still understood.
pub const OLDEST: u32 = 1;

/// The revision within that version: a release that asks or answers more than the one before it adds one. A caller
/// sends only what the revision of the other side covers.
pub const REVISION: u32 = 5;

/// All that is asked and answered, for programs: OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("../../openapi.json");

/// The content type of calls.
pub const JSON_TYPE: &str = "application/json";

/// The type of a body of lines of JSON.
pub const LINES_TYPE: &str = "application/x-ndjson";

/// The type of a body that is a pack.
pub const PACK_TYPE: &str = "application/x-godwit-pack";

/// Tells whether a text is a word of letters, digits and `marks`, which fits into lines, logs and URLs unescaped.
pub fn is_word(text: &str, marks: &[u8]) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || marks.contains(&b);
    (1..=WORD_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

const WORD_MAX: usize = 64;
