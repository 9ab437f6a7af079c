//! Named data: the store of names, and the verb that registers what lies somewhere.

mod at_node;
mod audit;
mod checking;
mod leases;
mod logical;
mod pack;
mod reading;
mod register;
mod settle;
mod sites;
mod writing;

pub use at_node::open;
pub use audit::{Audited, Finding, Scope, Wrong, audit, repair};
pub use logical::Logical;
pub use register::{Counts, register};
pub use settle::Settled;
pub use sites::Aim;

use godwit_catalog::Refusal;
use godwit_store::{Error, refused};
use std::{
    path::Path,
    time::{Duration, SystemTime},
};

/// Returns the error about a name that a refusal of the catalog stands for.
pub fn failed(name: &Path, mut refusal: Refusal) -> Error {
    if let Some(next) = refusal.next.take() {
        refusal.said = format!("{}; {next}", refusal.said);
    }
    refused("the catalog", name, refusal)
}

/// Returns the time since the epoch.
pub(crate) fn now() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}
