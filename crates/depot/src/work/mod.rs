//! The threads of a depot, and the steps that calls share with them: ask the plan, do it, tell the plan.

pub(crate) mod apply;
pub(crate) mod checksums;
pub(crate) mod cleanup;
pub(crate) mod close;
pub(crate) mod commit;
pub(crate) mod compare;
pub(crate) mod decide;
pub(crate) mod deliver;
pub(crate) mod drain;
pub(crate) mod edits;
pub(crate) mod ends;
pub(crate) mod fetch;
pub(crate) mod forget;
pub(crate) mod housekeep;
pub(crate) mod patch;
pub(crate) mod places;
pub(crate) mod probe;
pub(crate) mod promise;
pub(crate) mod recover;
pub(crate) mod resume;
pub(crate) mod revalidate;
pub(crate) mod room;
pub(crate) mod scrub;
pub(crate) mod tags;
