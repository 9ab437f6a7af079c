//! The state of a depot: entries, their names and order, and what is to be done next.

pub(crate) mod all;
pub(crate) mod asking;
pub(crate) mod backoff;
pub(crate) mod coming;
pub(crate) mod entry;
pub(crate) mod fairness;
pub(crate) mod forwarded;
pub(crate) mod leftovers;
pub(crate) mod listings;
pub(crate) mod names;
pub(crate) mod order;
pub(crate) mod schedule;
pub(crate) mod state;
pub(crate) mod supersede;
