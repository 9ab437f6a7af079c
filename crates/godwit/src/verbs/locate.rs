//! `godwit locate`: where the bytes of names are.

use super::{Facts, catalog, facts};
use crate::{
    places,
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::Args;
use godwit_catalog::{Entry, Home, Pages, find};
use godwit_farm::Logical;
use godwit_store::{Error, engine::Options};
use serde_json::json;
use std::{ffi::OsString, path::Path};

/// Show which servers have the bytes of names
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit locate grid:/run7/a
  godwit locate --json grid:/run7
  godwit locate -v grid:/run7/a --to archive

A line a copy: its state, site, URL and name. whole: it is read. damaged: a comparison found other
bytes. old: an earlier version lies there. Of a collection, all files below are shown.

The copy that is read first comes first: that with the least expected time, by what the last transfers
from its site took. -v prints the seconds and why. The attribute latency of a location (in seconds, as
of a tape) counts too. --to tells what a copy at that site would cost, and after how many reads it pays.

Exit status: 0; 4 no such name.")]
pub(crate) struct Locate {
    /// Names of the catalog
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
    /// Tell what one more copy at this site costs
    #[arg(long, value_name = "SITE")]
    to: Option<String>,
}

impl Locate {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let tables = catalog::open()?;
        let sites = Logical::new(tables.clone(), Options::new(places::cancel()?));
        let (mut files, mut copies) = (0u64, 0u64);
        for argument in &self.names {
            let name = catalog::name(argument)?;
            let wanted = format!("locate {}", catalog::shown(&name.0));
            let mut each = |entry: &Entry, name: &Path| {
                files += 1;
                copies += entry.homes.len() as u64;
                let shown = show(screen, &sites, entry, name);
                let shown = shown.and_then(|()| match &self.to {
                    Some(site) => show_copy(screen, &sites, (entry, name), site),
                    None => Ok(()),
                });
                shown.map_err(|error| CliError::store(&*wanted, error))
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

fn show(screen: &Screen, sites: &Logical, entry: &Entry, name: &Path) -> Result<(), Error> {
    let name = catalog::shown(name);
    if entry.homes.is_empty() && !screen.json() {
        screen.line(format!("nowhere  {name}"))?;
    }
    let costs = sites.costs(entry, None);
    let is_costed = |home: &Home| costs.iter().any(|(known, _)| *known == home);
    let others = entry.homes.iter().filter(|home| !is_costed(home));
    let good = costs.iter().map(|(home, cost)| (*home, Some(cost)));
    for (home, cost) in good.chain(others.map(|home| (home, None))) {
        let state = match home.version == entry.version {
            true => home.state.as_str(),
            false => "old",
        };
        if screen.json() {
            screen.object(&json!({
                "event": "home", "name": name, "url": home.url, "site": home.site, "state": state,
                "version": home.version, "verified_at": home.verified_s,
                "cost_s": cost.map(|cost| cost.seconds), "why": cost.map(|cost| &cost.why),
            }))?;
            continue;
        }
        screen.line(format!("{state:8} {}  {}  {name}", home.site, home.url))?;
        if let Some(cost) = cost.filter(|_| screen.verbose()) {
            screen.line(format!("         {:.3} s: {}", cost.seconds, cost.why))?;
        }
    }
    Ok(())
}

/// Tells what one more copy costs, and when it pays.
fn show_copy(
    screen: &Screen,
    sites: &Logical,
    (entry, name): (&Entry, &Path),
    site: &str,
) -> Result<(), Error> {
    let there = sites.costs(entry, Some(site));
    let here = sites.costs(entry, None);
    let (Some((_, copy)), Some((_, now))) = (there.first(), here.first()) else {
        return Ok(());
    };
    let then = sites.cost_from(entry, site);
    let saved = now.seconds - then.seconds;
    let pays_after = (saved > 0.0).then(|| (copy.seconds / saved).ceil().max(1.0));
    let name = catalog::shown(name);
    if screen.json() {
        return screen.object(&json!({
            "event": "copy", "name": name, "to": site, "cost_s": copy.seconds, "read_s": now.seconds,
            "read_there_s": then.seconds, "pays_after": pays_after, "why": copy.why,
        }));
    }
    let pays = match pays_after {
        Some(reads) => format!("pays after {reads} reads here"),
        None => "never pays for reads here".into(),
    };
    screen.line(format!(
        "copy to {site}: {:.3} s; a read takes {:.3} s now and {:.3} s from there: it {pays}  {name}",
        copy.seconds, now.seconds, then.seconds
    ))
}
