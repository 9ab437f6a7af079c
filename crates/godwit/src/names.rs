//! The catalog that the command line names, and the store of its names.

use godwit_catalog::Catalog;
use godwit_node::{Asker, Obeyed};
use godwit_store::engine::CopyOptions;
use std::sync::{Arc, OnceLock};

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
pub(crate) fn with_names(options: CopyOptions) -> CopyOptions {
    let Some(text) = text() else {
        return options;
    };
    let sites = options.clone();
    godwit_farm::with_names(options, move || {
        Ok(obeyed(&text, godwit_farm::open(&text, &sites, false)?))
    })
}

/// Wraps a catalog so that it obeys its rules of rights. A node that serves names does so itself.
pub(crate) fn obeyed(text: &str, catalog: Arc<dyn Catalog>) -> Arc<dyn Catalog> {
    match text.starts_with("godwit:") {
        true => catalog,
        false => Arc::new(Obeyed::new(catalog, Asker::Owner)),
    }
}
