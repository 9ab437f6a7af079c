//! Copies, as `cp`, `mv` and `sync` make them: the plan, and the run of the engine.

pub(crate) mod layout;
mod plan;
mod run;
pub(crate) mod same;

pub(crate) use plan::*;
pub(crate) use run::*;
