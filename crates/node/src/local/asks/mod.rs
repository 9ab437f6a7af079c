//! Requests of programs, a file for each or for a few of one kind.

mod append;
mod cache;
pub(crate) mod catalog;
mod close;
mod copy;
mod ensure;
pub(crate) mod fill;
pub(crate) mod fragments;
mod names;
mod open;
mod push;
pub(crate) mod put;
mod queue;
pub(crate) mod read;
pub(crate) mod serve;
pub(crate) mod share;
pub(crate) mod stage;
