//! `godwit locate`: where the bytes of names are.

use super::{Facts, catalog, facts};
use crate::{
    places,
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::Args;
use godwit_catalog::{Answer, Catalog, Entry, Question, Refusal};
use godwit_store::Error;
use godwit_wire::door::call::Name;
use serde_json::json;
use std::{ffi::OsString, path::Path};

/// Show which servers have the bytes of names
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit locate grid:/run7/a
  godwit locate --json grid:/run7

A line a copy: its state, site, URL and name. whole: it is read. damaged: a comparison found other
bytes. old: an earlier version lies there. Of a collection, all files below are shown.

Exit status: 0; 4 no such name.")]
pub(crate) struct Locate {
    /// Names of the catalog
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
}

impl Locate {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let tables = catalog::open()?;
        let (mut files, mut copies) = (0u64, 0u64);
        for argument in &self.names {
            let url = places::url(argument)?;
            let path = catalog::path(&url)?;
            let wanted = format!("locate {url}");
            let mut failed = None;
            let mut show = |entry: &Entry, name: &Path| {
                files += 1;
                copies += entry.homes.len() as u64;
                let shown = show(screen, entry, name);
                shown.map_err(|error| {
                    failed = Some(error);
                    Refusal::default()
                })
            };
            let asked = each_file(tables.as_ref(), &path, &mut show);
            match (failed, asked) {
                (Some(error), _) => return Err(CliError::store(wanted, error)),
                (None, Err(refusal)) => screen.trouble(&catalog::refused(&wanted, &refusal)),
                (None, Ok(())) => {}
            }
        }
        Ok(facts([("files", files.into()), ("copies", copies.into())]))
    }
}

/// Calls `show` for a file, or for each one below a collection.
fn each_file(
    catalog: &dyn Catalog,
    path: &Path,
    show: &mut dyn FnMut(&Entry, &Path) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut is_collection = false;
    let names = vec![Name(path.into())];
    catalog.ask(&Question::Locate { names }, &mut |answer| match answer {
        Answer::Entry(entry) if entry.collection => {
            is_collection = true;
            Ok(())
        }
        Answer::Entry(entry) => show(&entry, path),
        _ => Err(Refusal::of_kind(
            godwit_core::Kind::Missing,
            format!("grid:/{} is not in the catalog", path.display()),
        )),
    })?;
    let mut after = None;
    while is_collection {
        is_collection = false;
        let question = Question::List {
            name: Name(path.into()),
            deep: true,
            homes: true,
            after: after.clone(),
        };
        catalog.ask(&question, &mut |answer| {
            match answer {
                Answer::More => is_collection = true,
                Answer::Entry(entry) => {
                    after = Some(entry.name.clone());
                    if !entry.collection {
                        show(&entry, &path.join(&entry.name.0))?;
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn show(screen: &Screen, entry: &Entry, name: &Path) -> Result<(), Error> {
    let name = format!("grid:/{}", godwit_wire::door::path::escaped(name));
    if entry.homes.is_empty() && !screen.json() {
        screen.line(format!("nowhere  {name}"))?;
    }
    for home in &entry.homes {
        let state = match home.version == entry.version {
            true => home.state.as_str(),
            false => "old",
        };
        if screen.json() {
            screen.object(&json!({
                "event": "home", "name": name, "url": home.url, "site": home.site, "state": state,
                "version": home.version, "verified_at": home.verified_s,
            }))?;
        } else {
            screen.line(format!("{state:8} {}  {}  {name}", home.site, home.url))?;
        }
    }
    Ok(())
}
