//! `godwit catalog`: makes the catalog of names, moves it and measures it.

mod bench;
mod lines;

use crate::{
    config, names,
    out::{CliError, Facts, Run, Screen, facts, mark},
    places,
};
use clap::{Args, Subcommand};
use godwit_catalog::{Catalog as Tables, Changes, Refusal, is_fragment};
use godwit_core::{Scheme, Url};
use godwit_farm::Logical;
use godwit_store::{
    TrustOptions,
    engine::{CopyOptions, NO_CATALOG, Place, Stores},
};
use godwit_wire::door::{call::Name, path::escaped};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Make, save and measure the catalog, which knows where the bytes of each name are
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit catalog init --catalog sqlite:names.db
  GODWIT_CATALOG=sqlite:names.db godwit catalog init

A catalog gives files names like grid:/run7/a, whichever servers have them. It is one file of
SQLite on a disk of this machine, or lies in a database of PostgreSQL, which several nodes share:
--catalog postgres://USER@HOST:PORT/DB. Every verb finds it by --catalog, or by GODWIT_CATALOG.
PGPASSWORD tells a password; ?sslmode=verify-full asks who the server is. After that godwit
register notes what lies where, and ls, stat, cat, cp, sum, find and du take names. godwit node
--catalog sqlite:PATH serves it to other machines: there say --catalog godwit://PEER.

Exit status: 0; 2 --catalog names none; 7 no space; 13 not allowed.")]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the catalog that --catalog names; one that exists stays as it is
    #[command(after_help = "\
Examples:
  godwit catalog init --catalog sqlite:names.db
  GODWIT_CATALOG=sqlite:names.db godwit catalog init

Exit status: 0; 2 --catalog names none; 7 no space; 13 not allowed.")]
    Init,
    /// Print the catalog as lines of JSON, which load reads
    #[command(after_help = "\
Examples:
  godwit catalog dump --catalog sqlite:names.db > names.jsonl
  godwit catalog dump --catalog sqlite:names.db | godwit catalog load - --catalog sqlite:copy.db

First a line for each location, then one for each name. What a process has begun and not ended is
left out. While the catalog changes, a line is as true as its moment.

Exit status: 0; 2 --catalog names none; 4 there is no such catalog.")]
    Dump,
    /// Read lines of JSON, as dump prints them, into the catalog, which is made if it is missing
    #[command(after_help = "\
Examples:
  godwit catalog dump --catalog sqlite:names.db | godwit catalog load - --catalog sqlite:copy.db
  echo '{\"name\":\"grid:/new\",\"size\":7}' | godwit catalog load - --catalog sqlite:names.db

A line is {\"name\",\"size\",\"digest\",\"version\",\"homes\":[{\"url\",\"state\"}],\"attr\":{}}; all but the name
may be missing. Names that exist with the same bytes get the copies and attributes of their line, so
that to load again does no harm; other bytes are refused. Lines before a bad one stay.

Exit status: 0; 1 a name has other bytes here; 2 a bad line. The line is named by its number.")]
    Load {
        /// The file; -: standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Measure the catalog, in a collection that is removed at the end
    #[command(after_help = "\
Examples:
  godwit catalog bench --files 100 --catalog sqlite:scratch.db
  godwit catalog bench --files 100 --catalog sqlite:names.db --json

It makes that many names, lists them, asks where they are, adds one more, and deletes them; then
eight clients make names and ask for them at once; of a peer they also ask what its export is, to
compare. Each change is durable before the next begins.

Exit status: 0; 2 --catalog names none; 7 no space; 13 not allowed.")]
    Bench {
        /// How many names
        #[arg(long, value_name = "N", default_value_t = 100_000)]
        files: usize,
    },
}

impl CatalogArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self.action {
            Action::Init => init(screen),
            Action::Dump => lines::dump(&*open()?, screen),
            Action::Load { file } => lines::load(&*made()?, &file),
            Action::Bench { files } => bench::bench(&*made()?, peer()?, files, screen),
        }
    }
}

/// Opens the catalog that is named, and makes it first if it is missing and of this machine.
fn made() -> Run<Arc<dyn Tables>> {
    let text = names::text().ok_or_else(none)?;
    let is_elsewhere = text.starts_with("godwit:");
    opened(&text, !is_elsewhere, "make a catalog")
}

fn init(screen: &Screen) -> Run<Facts> {
    let text = names::text().ok_or_else(none)?;
    opened(&text, true, "make a catalog")?;
    let text = without_password(&text);
    let said = format!(
        "the catalog is {text}; next: godwit register -r URL --as grid:/NAME --catalog {text}"
    );
    if !screen.json() {
        let said = screen.line(said);
        said.map_err(|error| CliError::store("make a catalog", error))?;
    }
    Ok(facts([("catalog", text.into())]))
}

/// Leaves the password of a database out of what is printed.
fn without_password(text: &str) -> String {
    let parts = text.split_once("://").and_then(|(scheme, rest)| {
        let (user, rest) = rest.split_once('@')?;
        let (user, _) = user.split_once(':')?;
        Some(format!("{scheme}://{user}@{rest}"))
    });
    parts.unwrap_or_else(|| text.to_owned())
}

fn none() -> CliError {
    CliError::asked("open the catalog", NO_CATALOG)
}

/// Opens the catalog that is named.
pub(crate) fn open() -> Run<Arc<dyn Tables>> {
    let text = names::text().ok_or_else(none)?;
    opened(&text, false, "open the catalog")
}

/// Returns the root of the peer whose catalog is named; `None`: no peer has it.
fn peer() -> Run<Option<Place>> {
    let text = names::text().filter(|text| text.starts_with("godwit:"));
    let Some(text) = text else { return Ok(None) };
    let url = places::url(OsStr::new(&format!("{text}/")))?;
    let place = Stores::new(options()?).open(&url);
    place
        .map(Some)
        .map_err(|error| CliError::store("open the peer", error))
}

fn options() -> Run<CopyOptions> {
    let options = CopyOptions::new(places::cancel()?);
    let trust = TrustOptions {
        home: config::home(),
        ..options.trust
    };
    let mark = mark();
    Ok(CopyOptions {
        trust,
        mark,
        ..options
    })
}

/// Opens the catalog that a text names.
pub(crate) fn opened(text: &str, create: bool, wanted: &str) -> Run<Arc<dyn Tables>> {
    let opened = godwit_farm::open(text, &options()?, create);
    let opened = opened.map_err(|refusal| refused(wanted, &refusal))?;
    Ok(names::obeyed(text, opened))
}

/// Opens the names of the catalog that is named.
pub(crate) fn logical(options: CopyOptions) -> Run<Logical> {
    Ok(Logical::new(open()?, options))
}

/// Returns the error of a verb that the catalog refused.
pub(crate) fn refused(wanted: &str, refusal: &Refusal) -> CliError {
    let code = refusal.kind.exit_code(refusal.kind.fault());
    CliError::found(wanted, refusal.said.clone(), code).maybe_next(refusal.next.clone())
}

/// Reads a name of the catalog.
pub(crate) fn name(argument: &OsStr) -> Run<Name> {
    Ok(Name(url(argument)?.path_from_root()))
}

/// Reads a name of the catalog as a URL.
pub(crate) fn url(argument: &OsStr) -> Run<Url> {
    let url = places::without_slashes(&places::url(argument)?);
    match url.scheme() {
        Scheme::Grid => Ok(url),
        _ => {
            let fact = format!("{url} is not a name of the catalog");
            Err(CliError::asked("find a name", fact).next("write grid:/NAME"))
        }
    }
}

/// Refuses a site at which the catalog has no location.
pub(crate) fn must_be_site(wanted: &str, site: Option<&String>) -> Run {
    let Some(site) = site else {
        return Ok(());
    };
    let known = godwit_catalog::locations(&*open()?, Path::new(""), false);
    let known = known.map_err(|refusal| refused(wanted, &refusal))?;
    if known.iter().any(|at| at.site == *site) {
        return Ok(());
    }
    let fact = format!("the catalog has no location at {site}");
    Err(CliError::found(wanted, fact, 4).next("godwit location ls grid:/ shows the sites"))
}

/// Returns a name as it is printed.
pub(crate) fn shown(name: &Path) -> String {
    match is_fragment(name) {
        true => godwit_farm::shown(name),
        false => format!("grid:/{}", escaped(name)),
    }
}

/// Changes the catalog that is named.
pub(crate) fn change(wanted: &str, changes: impl Into<Changes>) -> Run {
    let changed = open()?.change(&changes.into());
    changed
        .map(drop)
        .map_err(|refusal| refused(wanted, &refusal))
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn password_is_not_printed() {
        let shown = without_password("postgres://alice:secret@db.example:5432/grid");
        assert_eq!(shown, "postgres://alice@db.example:5432/grid");
        for plain in [
            "sqlite:names.db",
            "postgres://alice@db/grid",
            "sqlite:/a:b@c",
        ] {
            assert_eq!(without_password(plain), plain);
        }
    }
}
