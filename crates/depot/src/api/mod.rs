//! Calls of a depot, one family a file.

pub(crate) mod append;
pub(crate) mod cache;
pub(crate) mod depot;
pub(crate) mod edit;
pub(crate) mod exclusive;
pub(crate) mod fill;
pub(crate) mod forwarded;
pub(crate) mod lazy;
pub(crate) mod look;
pub(crate) mod names;
pub(crate) mod patch;
pub(crate) mod prefetch;
pub(crate) mod push;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod share;
pub(crate) mod tags;
pub(crate) mod unreadable;
pub(crate) mod write;
