//! The catalog that the command line names, and the store of its names.

use godwit_catalog::Refusal;
use godwit_core::Kind;
use godwit_farm::{Logical, failed};
use godwit_store::{
    Error,
    engine::{Named, Options},
};
use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

/// The option `--catalog`, once the command line is read.
static SAID: OnceLock<String> = OnceLock::new();

/// Keeps what `--catalog` says.
pub(crate) fn keep(said: Option<String>) {
    if let Some(said) = said {
        let _ = SAID.set(said);
    }
}

/// Returns what the option `--catalog` says.
pub(crate) fn said() -> Option<String> {
    SAID.get().cloned()
}

/// Returns the text that names the catalog: the option, else the environment.
pub(crate) fn text() -> Option<String> {
    let environment = || std::env::var("GODWIT_CATALOG").ok();
    let text = said().or_else(environment);
    text.filter(|text| !text.is_empty())
}

/// Returns the options with the store of names, if a catalog is named.
pub(crate) fn with_names(options: Options) -> Options {
    let Some(text) = text() else {
        return options;
    };
    let sites = options.clone();
    let named = Named::new(move || {
        let catalog = godwit_farm::open(&text, &sites, false);
        let catalog = catalog.map_err(|refusal| error_of(&text, refusal))?;
        Ok(Arc::new(Logical::new(catalog, sites.clone())))
    });
    Options {
        named: Some(named),
        ..options
    }
}

fn error_of(text: &str, refusal: Refusal) -> Error {
    match refusal.kind {
        // A catalog that is missing is no missing name.
        Kind::Missing | Kind::Corrupt => {
            let next = refusal.next.unwrap_or_default();
            Error::unsupported("reading a name", format!("{}; {next}", refusal.said))
        }
        _ => failed(Path::new(text), refusal),
    }
}
