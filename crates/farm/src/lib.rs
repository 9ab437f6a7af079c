//! Named data: the store of names, and the verb that registers what lies somewhere.

mod at_node;
mod checking;
mod leases;
mod logical;
mod pack;
mod register;
mod settle;
mod sites;
mod writing;

pub use at_node::open;
pub use logical::Logical;
pub use register::{Counts, register};
pub use settle::Settled;
pub use sites::Aim;

use godwit_catalog::Refusal;
use godwit_store::{Error, refused};
use std::path::Path;

/// Returns the error about a name that a refusal of the catalog stands for.
pub fn failed(name: &Path, mut refusal: Refusal) -> Error {
    if let Some(next) = refusal.next.take() {
        refusal.said = format!("{}; {next}", refusal.said);
    }
    refused("the catalog", name, refusal)
}
