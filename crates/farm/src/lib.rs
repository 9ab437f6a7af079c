//! Named data: the store of names, and the verb that registers existing files.

mod alone;
mod at_node;
mod audit;
mod checking;
mod combining;
mod copying;
mod defining;
mod draft;
mod engine;
mod gathering;
mod import;
mod in_turn;
mod leases;
mod logical;
mod making;
mod nodes;
mod pack;
mod parts;
mod programs;
mod reading;
mod register;
mod rules;
mod running;
mod scheduling;
mod settle;
mod sites;
mod weather;
mod writing;

pub use at_node::open;
pub use audit::{AuditFault, AuditFinding, AuditScope, Audited, audit, repair};
pub use draft::{FileDraft, FileFacts, FragmentSlot};
pub use engine::Engine;
pub use import::{Cut, Imported};
pub use logical::Logical;
pub use nodes::{ANSWERS_WITHIN, Node, is_of_node};
pub use parts::NewPart;
pub use programs::{Kept, kept_as};
pub use register::{Counts, register};
pub use rules::{Keeper, Needs, RuleStatus, Wanted, is_of_rights};
pub use running::{EventSink, FarmEvent, FarmJob};
pub use scheduling::Task;
pub use settle::Settled;
pub use sites::{CopyAim, shown};
pub use weather::ReadCost;

use godwit_catalog::{Catalog, Refusal};
use godwit_core::Kind;
use godwit_store::{
    Error,
    engine::{CopyOptions, GridOpener},
    refused,
};
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Returns the error for a refusal of the catalog about a name.
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

/// Returns the options with the store of names; `open` opens the catalog at the first name.
pub fn with_names(
    options: CopyOptions,
    open: impl Fn() -> Result<Arc<dyn Catalog>, Refusal> + Send + Sync + 'static,
) -> CopyOptions {
    let sites = options.clone();
    let named = GridOpener::new(move || {
        let catalog = open().map_err(not_opened)?;
        Ok(Arc::new(Logical::new(catalog, sites.clone())))
    });
    CopyOptions {
        named: Some(named),
        ..options
    }
}

fn not_opened(refusal: Refusal) -> Error {
    match refusal.kind {
        // A catalog that is missing is no missing name.
        Kind::Missing | Kind::Corrupt => {
            let next = refusal.next.unwrap_or_default();
            Error::unsupported("using a name", format!("{}; {next}", refusal.said))
        }
        _ => failed(Path::new(""), refusal),
    }
}
