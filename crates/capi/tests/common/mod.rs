//! Fixtures of the library's tests: a stand-in for the node, and C programs.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)] // each test file uses its part

pub mod between;
pub mod machine;
pub mod programs;
#[path = "../../../godwit/tests/common/skip.rs"]
mod skipped;
pub mod stand_in;

pub use skipped::skip;
