//! `godwit locate`: where the bytes of names are.

use super::{Facts, catalog, facts};
use crate::{
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::Args;
use godwit_catalog::{Entry, Pages, find};
use godwit_store::Error;
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
            let name = catalog::name(argument)?;
            let wanted = format!("locate {}", catalog::shown(&name.0));
            let mut each = |entry: &Entry, name: &Path| {
                files += 1;
                copies += entry.homes.len() as u64;
                show(screen, entry, name).map_err(|error| CliError::store(&*wanted, error))
            };
            let refused = |refusal| catalog::refused(&wanted, &refusal);
            let done = match find(&*tables, &name.0).map_err(refused)? {
                None => {
                    let fact = format!("{} is not in the catalog", catalog::shown(&name.0));
                    screen.trouble(&CliError::found(&*wanted, fact, 4));
                    Ok(())
                }
                Some(entry) if !entry.collection => each(&entry, &name.0),
                Some(_) => Pages::new(&*tables, &name.0, true, true).try_for_each(|page| {
                    let page = page.map_err(refused)?;
                    let mut files = page.iter().filter(|entry| !entry.collection);
                    files.try_for_each(|entry| each(entry, &name.0.join(&entry.name.0)))
                }),
            };
            done?;
        }
        Ok(facts([("files", files.into()), ("copies", copies.into())]))
    }
}

fn show(screen: &Screen, entry: &Entry, name: &Path) -> Result<(), Error> {
    let name = catalog::shown(name);
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
