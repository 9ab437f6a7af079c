//! `godwit catalog`: makes the catalog of names.

use super::{Facts, facts};
use crate::{
    names,
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::{Args, Subcommand};
use godwit_catalog::{Catalog as Tables, Refusal};
use godwit_core::{Scheme, Url};
use std::{path::PathBuf, sync::Arc};

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
    Init(Init),
}

#[derive(Args, Debug)]
struct Init {}

impl Catalog {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let What::Init(Init {}) = self.what;
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

/// Returns the error for a missing `--catalog`.
pub(crate) fn none() -> CliError {
    CliError::asked("open the catalog", "no catalog is named")
        .next("say --catalog sqlite:PATH, or set GODWIT_CATALOG")
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

/// Returns the path of a name in the catalog, or says that it is none.
pub(crate) fn path(url: &Url) -> Run<PathBuf> {
    if url.scheme() != Scheme::Grid {
        let fact = format!("{url} is not a name of the catalog");
        return Err(CliError::asked("find a name", fact).next("write grid:/NAME"));
    }
    Ok(url.as_path().components().skip(1).collect())
}
