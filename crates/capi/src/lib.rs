//! `libgodwit.so`: files of other machines, from C.
//!
//! A client of this machine's node, and nothing else: one connection a process, made by the first
//! call that needs it. The library starts no thread, so a waiting thread reads for all that wait
//! ([`talk`]). [`face`] has the functions that C sees: they check their pointers and call safe
//! functions.

mod cache;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod catalog;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod deeds;
mod descriptors;
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
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod served;
mod serving;
#[allow(unsafe_code)]
#[allow(missing_docs, unreachable_pub)]
mod shared;
mod shares;
#[allow(unsafe_code)]
mod system;
