//! `libgodwit.so`: files of other machines, from C.
//!
//! A client of the node of this machine, and nothing else: one connection a process, made by the first call that
//! needs it. It starts no thread, so whoever waits for an answer reads for all who do ([`talk`]). The functions that C
//! sees stand in [`face`]: they look at their pointers and call what is safe.

mod cache;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod catalog;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod deeds;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod face;
mod failure;
mod files;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod gfarm;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod lazy;
mod name;
mod ops;
mod outputs;
mod pio;
#[allow(unsafe_code)]
mod process;
mod puts;
mod serving;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod shared;
mod shares;
#[allow(unsafe_code)]
mod system;
