//! `godwit catalog`: makes the catalog of names.

use super::{Facts, facts};
use crate::{
    names, places,
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::{Args, Subcommand};
use godwit_catalog::{Catalog as Tables, Changes, Refusal};
use godwit_core::Scheme;
use godwit_store::engine::NO_CATALOG;
use godwit_wire::door::{call::Name, path::escaped};
use std::{ffi::OsStr, path::Path, sync::Arc};

/// Make the catalog, which knows where the bytes of each name are
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit catalog init --catalog sqlite:names.db
  GODWIT_CATALOG=sqlite:names.db godwit catalog init

A catalog gives files names like grid:/run7/a, whichever servers have them. It is one file of
SQLite on a disk of this machine. Every verb finds it by --catalog, or by GODWIT_CATALOG. After
that godwit register notes what lies where, and ls, stat, cat, cp, sum, find and du take names.

Exit status: 0; 2 --catalog names none; 7 no space; 13 not allowed.")]
pub(crate) struct Catalog {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make the catalog that --catalog names; one that exists stays as it is
    #[command(after_help = "\
Examples:
  godwit catalog init --catalog sqlite:names.db
  GODWIT_CATALOG=sqlite:names.db godwit catalog init

Exit status: 0; 2 --catalog names none; 7 no space; 13 not allowed.")]
    Init,
}

impl Catalog {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let What::Init = self.what;
        let wanted = "make a catalog";
        let text = names::text().ok_or_else(none)?;
        godwit_catalog::open(&text, true).map_err(|refusal| refused(wanted, &refusal))?;
        let said = format!(
            "the catalog is {text}; next: godwit register -r URL --as grid:/NAME --catalog {text}"
        );
        if !screen.json() {
            let said = screen.line(said);
            said.map_err(|error| CliError::store(wanted, error))?;
        }
        Ok(facts([("catalog", text.into())]))
    }
}

fn none() -> CliError {
    CliError::asked("open the catalog", NO_CATALOG)
}

/// Opens the catalog that is named.
pub(crate) fn open() -> Run<Arc<dyn Tables>> {
    let text = names::text().ok_or_else(none)?;
    let opened = godwit_catalog::open(&text, false);
    opened.map_err(|refusal| refused("open the catalog", &refusal))
}

/// Returns the error of a verb that the catalog refused.
pub(crate) fn refused(wanted: &str, refusal: &Refusal) -> CliError {
    let code = refusal.kind.exit_code(refusal.kind.fault());
    let trouble = CliError::found(wanted, refusal.said.clone(), code);
    match &refusal.next {
        Some(next) => trouble.next(next.clone()),
        None => trouble,
    }
}

/// Reads a name of the catalog.
pub(crate) fn name(argument: &OsStr) -> Run<Name> {
    let url = places::url(argument)?;
    match url.scheme() {
        Scheme::Grid => Ok(Name(url.path_from_root())),
        _ => {
            let fact = format!("{url} is not a name of the catalog");
            Err(CliError::asked("find a name", fact).next("write grid:/NAME"))
        }
    }
}

/// Returns a name as it is printed.
pub(crate) fn shown(name: &Path) -> String {
    format!("grid:/{}", escaped(name))
}

/// Changes the catalog that is named.
pub(crate) fn change(wanted: &str, changes: impl Into<Changes>) -> Run {
    let changed = open()?.change(&changes.into());
    changed
        .map(drop)
        .map_err(|refusal| refused(wanted, &refusal))
}
