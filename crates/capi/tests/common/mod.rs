//! What the tests of the library share: a stand-in for the node, and C programs.

#![allow(dead_code, unreachable_pub)]

pub mod programs;
pub mod stand_in;
