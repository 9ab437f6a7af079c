//! `godwit location`: the places where files of a collection lie.

use super::{attr, catalog, register};
use crate::{
    out::{CliError, Facts, Run, Screen, facts},
    places,
};
use clap::{Args, Subcommand};
use godwit_catalog::{Change, Location as Known, Pages, sites};
use godwit_core::Scheme;
use godwit_wire::door::{call::Name, path::escaped};
use serde_json::json;
use std::ffi::{OsStr, OsString};

/// Add, show, move and remove the places where a collection lies
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit location ls grid:/run7
  godwit location set archive grid:/run7 --url ftp://new.example/run7

A location is a directory of a server. godwit register makes one, named after the host. When its
server or directory moves, one location set moves the URLs of all its files.

Exit status: 0; 1 it has last copies; 4 no such collection or location.")]
pub(crate) struct LocationArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a place to a collection, which is made if it is missing
    #[command(after_help = "\
Examples:
  godwit location add tape ftp://tape.example/run7 grid:/run7
  godwit location add lab godwit://lab/data grid:/

Exit status: 0; 1 the collection has another place at that site; 2 not a URL.")]
    Add {
        /// The site, a word
        site: String,
        /// The directory
        #[arg(value_name = "URL")]
        url: OsString,
        /// The collection
        #[arg(value_name = "NAME")]
        name: OsString,
    },
    /// Show the places of a collection, with how many copies each has
    #[command(after_help = "\
Examples:
  godwit location ls grid:/run7
  godwit location ls grid:/ --json
  godwit location ls grid:/run7 --lacks archive

Those of collections above and below are shown too, with their attributes. --lacks prints names
instead, one a line: of each file of which that site has no whole copy of the current version.

Exit status: 0; 4 no such collection, or no such site.")]
    Ls {
        /// The collection
        #[arg(value_name = "NAME")]
        name: OsString,
        /// The files that this site lacks
        #[arg(long, value_name = "SITE")]
        lacks: Option<String>,
    },
    /// Move a place: the URLs of all its files follow; or set attributes of it
    #[command(after_help = "\
Examples:
  godwit location set archive grid:/run7 --url ftp://new.example/run7
  godwit location set lab grid:/run7 --url godwit://lab2/data
  godwit location set archive grid:/run7 media=tape owner=alice

KEY=VALUE sets an attribute, KEY= removes it. location ls shows them.

Exit status: 0; 2 not a URL, nothing to set; 4 no such location.")]
    Set {
        /// The site
        site: String,
        /// The collection
        #[arg(value_name = "NAME")]
        name: OsString,
        /// The directory where it is now
        #[arg(long, value_name = "URL", required_unless_present = "pairs")]
        url: Option<OsString>,
        /// Attributes
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<String>,
    },
    /// Forget a place and the copies there; the bytes stay
    #[command(after_help = "\
Examples:
  godwit location rm archive grid:/run7
  godwit location rm --last archive grid:/run7

Exit status: 0; 1 it has the last copy of a file, without --last; 4 no such location.")]
    Rm {
        /// The site
        site: String,
        /// The collection
        #[arg(value_name = "NAME")]
        name: OsString,
        /// Also if it has the last copy of a file
        #[arg(long)]
        last: bool,
    },
}

impl LocationArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let changes = match &self.action {
            Action::Ls { name: text, lacks } => {
                let name = catalog::name(text)?;
                return match lacks {
                    Some(site) => list_lacking(screen, &name, site),
                    None => list(screen, name),
                };
            }
            Action::Add {
                site,
                url,
                name: text,
            } => vec![Change::AddLocation {
                name: catalog::name(text)?,
                site: site.clone(),
                url: place(url)?,
                whole: true,
            }],
            Action::Set {
                site,
                name: text,
                url,
                pairs,
            } => {
                let name = catalog::name(text)?;
                let mut changes = attr::changes(&name, Some(site), pairs);
                if changes.len() < pairs.len() {
                    let trouble = CliError::asked("set attributes", "an attribute has no value");
                    return Err(trouble.next("write KEY=VALUE"));
                }
                if let Some(url) = url {
                    changes.push(Change::SetLocation {
                        name,
                        site: site.clone(),
                        url: place(url)?,
                    });
                }
                changes
            }
            Action::Rm {
                site,
                name: text,
                last,
            } => vec![Change::RemoveLocation {
                name: catalog::name(text)?,
                site: site.clone(),
                last: *last,
            }],
        };
        catalog::change("change the locations", changes)?;
        Ok(Facts::new())
    }
}

/// Returns the URL of a directory, from the root: a catalog is asked from any directory.
fn place(argument: &OsStr) -> Run<String> {
    let url = register::absolute(places::without_slashes(&places::url(argument)?))?;
    if url.scheme() == Scheme::Grid {
        let fact = format!("{url} is a name, and a location is a directory of a server");
        let next = "write godwit://NODE/DIR, ftp://HOST/DIR or a path of this machine";
        return Err(CliError::asked("change the locations", fact).next(next));
    }
    match url.is_local() {
        true => Ok(format!("file://{}", escaped(url.as_path()))),
        false => Ok(url.to_string()),
    }
}

/// Returns the locations of a collection, with how many copies each has if `count`.
fn locations(name: &Name, count: bool) -> Run<Vec<Known>> {
    let found = godwit_catalog::locations(&*catalog::open()?, &name.0, count);
    found.map_err(|refusal| catalog::refused("list the locations", &refusal))
}

/// Prints the names of the files that a site lacks.
fn list_lacking(screen: &Screen, name: &Name, site: &str) -> Run<Facts> {
    let wanted = "list what a site lacks";
    if locations(name, false)?.iter().all(|at| at.site != site) {
        let fact = format!("{} has no location at {site}", catalog::shown(&name.0));
        let next = format!("godwit location ls {}", catalog::shown(&name.0));
        return Err(CliError::found(wanted, fact, 4).next(next));
    }
    let (tables, mut count) = (catalog::open()?, 0u64);
    for page in Pages::new(&*tables, &name.0, true, true) {
        let page = page.map_err(|refusal| catalog::refused(wanted, &refusal))?;
        for entry in page.iter().filter(|entry| !entry.collection) {
            if sites(entry).contains(&site) {
                continue;
            }
            count += 1;
            let name = catalog::shown(&name.0.join(&entry.name.0));
            let shown = match screen.json() {
                true => screen.object(&json!({"event": "lacks", "name": name, "site": site})),
                false => screen.line(name),
            };
            shown.map_err(|error| CliError::store(wanted, error))?;
        }
    }
    Ok(facts([("files", count.into())]))
}

fn list(screen: &Screen, name: Name) -> Run<Facts> {
    let wanted = "list the locations";
    let found = locations(&name, true)?;
    for at in &found {
        let name = catalog::shown(&at.name.0);
        let shown = match screen.json() {
            true => screen.object(&json!({
                "event": "location", "name": name, "site": at.site, "url": at.url, "copies": at.homes.unwrap_or_default(),
                "attr": at.attributes,
            })),
            false => {
                let copies = at.homes.unwrap_or_default();
                let mut line = format!("{}  {}  {name}  {copies} copies", at.site, at.url);
                at.attributes.iter().for_each(|(key, value)| line.push_str(&format!("  {key}={value}")));
                screen.line(line)
            }
        };
        shown.map_err(|error| CliError::store(wanted, error))?;
    }
    Ok(facts([("locations", found.len().into())]))
}
