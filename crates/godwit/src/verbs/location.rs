//! `godwit location`: the places where files of a collection lie.

use super::{Facts, catalog, facts};
use crate::{
    places,
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::{Args, Subcommand};
use godwit_catalog::{Answer, Change, Location as Known, Question};
use godwit_wire::door::call::Name;
use serde_json::json;
use std::ffi::OsString;

/// Add, show, move and remove the places where a collection lies
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit location ls grid:/run7
  godwit location set archive grid:/run7 --url ftp://new.example/run7

A location is a directory of a server. godwit register makes one, named after the host. When its
server or directory moves, one location set moves the URLs of all its files.

Exit status: 0; 1 it has last copies; 4 no such collection or location.")]
pub(crate) struct Location {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
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

Those of collections above and below are shown too.

Exit status: 0; 4 no such collection.")]
    Ls {
        /// The collection
        #[arg(value_name = "NAME")]
        name: OsString,
    },
    /// Move a place: the URLs of all its files follow
    #[command(after_help = "\
Examples:
  godwit location set archive grid:/run7 --url ftp://new.example/run7
  godwit location set lab grid:/run7 --url godwit://lab2/data

Exit status: 0; 2 not a URL; 4 no such location.")]
    Set {
        /// The site
        site: String,
        /// The collection
        #[arg(value_name = "NAME")]
        name: OsString,
        /// The directory where it is now
        #[arg(long, value_name = "URL")]
        url: OsString,
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

impl Location {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let change = match &self.what {
            What::Ls { name: text } => return list(screen, catalog::name(text)?),
            What::Add {
                site,
                url,
                name: text,
            } => Change::AddLocation {
                name: catalog::name(text)?,
                site: site.clone(),
                url: places::without_slashes(&places::url(url)?).to_string(),
                whole: true,
            },
            What::Set {
                site,
                name: text,
                url,
            } => Change::SetLocation {
                name: catalog::name(text)?,
                site: site.clone(),
                url: places::without_slashes(&places::url(url)?).to_string(),
            },
            What::Rm {
                site,
                name: text,
                last,
            } => Change::RemoveLocation {
                name: catalog::name(text)?,
                site: site.clone(),
                last: *last,
            },
        };
        catalog::change("change the locations", change)?;
        Ok(Facts::new())
    }
}

fn list(screen: &Screen, name: Name) -> Run<Facts> {
    let wanted = "list the locations";
    let mut found: Vec<Known> = Vec::new();
    let question = Question::Locations { name, count: true };
    let asked = catalog::open()?.ask(&question, &mut |answer| {
        if let Answer::Location(location) = answer {
            found.push(location);
        }
        Ok(())
    });
    asked.map_err(|refusal| catalog::refused(wanted, &refusal))?;
    for at in &found {
        let name = catalog::shown(&at.name.0);
        let shown = match screen.json() {
            true => screen.object(&json!({
                "event": "location", "name": name, "site": at.site, "url": at.url, "copies": at.homes.unwrap_or_default(),
                "attr": at.attributes,
            })),
            false => screen.line(format!("{}  {}  {name}  {} copies", at.site, at.url, at.homes.unwrap_or_default())),
        };
        shown.map_err(|error| CliError::store(wanted, error))?;
    }
    Ok(facts([("locations", found.len().into())]))
}
