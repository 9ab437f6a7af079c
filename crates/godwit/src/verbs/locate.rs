//! `godwit locate`: where the bytes of names are.

use super::catalog;
use crate::{
    out::{CliError, Facts, Run, Screen, facts},
    places,
};
use clap::Args;
use godwit_catalog::{CatalogAnswer, CatalogEntry, CatalogHome, PAGE, Pages, Question, sites};
use godwit_core::HomeState;
use godwit_farm::Logical;
use godwit_store::{Error, engine::CopyOptions};
use godwit_wire::door::call::Name;
use serde_json::json;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
    ffi::OsString,
    path::Path,
};

/// Show which servers have the bytes of names
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit locate grid:/run7/a
  godwit locate --json grid:/run7
  godwit locate -v grid:/run7/a --to archive
  godwit locate --by-site grid:/run7/a grid:/run7/b

A line a copy: its state, site, URL and name. whole: it is read. damaged: a comparison found other
bytes. old: an earlier version lies there. part: only the bytes FROM-TO lie there, without TO.
Of a collection, all files below are shown. --by-site prints a line a site instead: how many of the
files it has whole, the site with most of them first.

The copy that is read first comes first: that with the least expected time, by what the last
transfers from its site took. -v prints the seconds and why. The attribute latency of a location (in
seconds, as of a tape) counts too. --to tells what a copy at that site would cost, and after how
many reads it pays.

Exit status: 0; 4 no such name.")]
pub(crate) struct LocateArgs {
    /// Names of the catalog
    #[arg(value_name = "NAME", required = true)]
    names: Vec<OsString>,
    /// Tell what one more copy at this site costs
    #[arg(long, value_name = "SITE")]
    to: Option<String>,
    /// Count for each site how many of the named files it has
    #[arg(long)]
    by_site: bool,
}

/// Counts of files and of their copies.
struct Tally<'a> {
    screen: &'a Screen,
    /// The store of names, which knows how long a read takes.
    names: Logical,
    files: u64,
    copies: u64,
    /// Files that were counted: a file with several names counts once.
    seen: HashSet<u64>,
    /// How many of the files each site has.
    sites: BTreeMap<String, u64>,
}

impl LocateArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let tables = catalog::open()?;
        let mut tally = Tally {
            screen,
            names: Logical::new(tables.clone(), CopyOptions::new(places::cancel()?)),
            files: 0,
            copies: 0,
            seen: HashSet::new(),
            sites: BTreeMap::new(),
        };
        let mut has_collection = false;
        let names: Vec<Name> = self
            .names
            .iter()
            .map(|name| catalog::name(name))
            .collect::<Run<_>>()?;
        for names in names.chunks(PAGE) {
            let mut found = Vec::new();
            let question = Question::Locate {
                names: names.into(),
            };
            let asked = tables.ask(&question, &mut |answer| {
                found.push(answer);
                Ok(())
            });
            asked.map_err(|refusal| catalog::refused("locate names", &refusal))?;
            for (Name(name), answer) in names.iter().zip(found) {
                let wanted = format!("locate {}", catalog::shown(name));
                let fails = |error| CliError::store(&*wanted, error);
                match answer {
                    CatalogAnswer::Entry(entry) if entry.collection => {
                        has_collection = true;
                        for page in Pages::new(&*tables, name, true, true) {
                            let page =
                                page.map_err(|refusal| catalog::refused(&wanted, &refusal))?;
                            for entry in page.iter().filter(|entry| !entry.collection) {
                                let name = name.join(&entry.name.0);
                                self.one(&mut tally, entry, &name).map_err(fails)?;
                            }
                        }
                    }
                    CatalogAnswer::Entry(entry) => {
                        self.one(&mut tally, &entry, name).map_err(fails)?
                    }
                    _ => {
                        let fact = format!("{} is not in the catalog", catalog::shown(name));
                        screen.trouble(&CliError::found(&*wanted, fact, 4));
                    }
                }
            }
        }
        if self.by_site || has_collection && screen.json() {
            tally
                .show()
                .map_err(|error| CliError::store("locate names", error))?;
        }
        Ok(facts([
            ("files", tally.files.into()),
            ("copies", tally.copies.into()),
        ]))
    }

    fn one(&self, tally: &mut Tally<'_>, entry: &CatalogEntry, name: &Path) -> Result<(), Error> {
        tally.files += 1;
        tally.copies += entry.homes.len() as u64;
        if tally.seen.insert(entry.file) {
            for site in sites(entry) {
                *tally.sites.entry(site.into()).or_default() += 1;
            }
        }
        if !self.by_site {
            show(tally.screen, &tally.names, entry, name)?;
        }
        match &self.to {
            Some(site) => show_copy(tally.screen, &tally.names, (entry, name), site),
            None => Ok(()),
        }
    }
}

impl Tally<'_> {
    /// Prints the sites, the one with most files first.
    fn show(&self) -> Result<(), Error> {
        let screen = self.screen;
        let of = self.seen.len();
        let mut sites: Vec<_> = self.sites.iter().collect();
        sites.sort_by_key(|(site, files)| (Reverse(**files), *site));
        for (site, files) in sites {
            match screen.json() {
                true => screen
                    .object(&json!({"event": "site", "site": site, "files": files, "of": of}))?,
                false => screen.line(format!("{site}  {files} of {of}"))?,
            }
        }
        Ok(())
    }
}

fn show(screen: &Screen, sites: &Logical, entry: &CatalogEntry, name: &Path) -> Result<(), Error> {
    let name = catalog::shown(name);
    if entry.homes.is_empty() && !screen.json() {
        screen.line(format!("nowhere  {name}"))?;
    }
    let costs = sites.costs(entry, None);
    let is_costed = |home: &CatalogHome| costs.iter().any(|(known, _)| *known == home);
    let others = entry.homes.iter().filter(|home| !is_costed(home));
    let good = costs.iter().map(|(home, cost)| (*home, Some(cost)));
    for (home, cost) in good.chain(others.map(|home| (home, None))) {
        let state = match (home.version == entry.version, home.state.0, home.range) {
            (false, ..) => "old",
            (true, HomeState::Whole, Some(_)) => "part",
            _ => home.state.as_str(),
        };
        let range = home.range.map(|(first, past)| format!("  {first}-{past}"));
        if screen.json() {
            screen.object(&json!({
                "event": "home", "name": name, "url": home.url, "site": home.site, "state": state,
                "version": home.version, "verified_at": home.verified_s, "range": home.range,
                "fragment": home.fragment, "start": home.range.map(|(first, _)| first),
                "size": home.range.map(|(first, past)| past - first),
                "cost_s": cost.map(|cost| cost.seconds), "why": cost.map(|cost| &cost.why),
            }))?;
            continue;
        }
        let range = range.unwrap_or_default();
        screen.line(format!(
            "{state:8} {}  {}  {name}{range}",
            home.site, home.url
        ))?;
        if let Some(cost) = cost.filter(|_| screen.verbose()) {
            screen.line(format!("         {:.3} s: {}", cost.seconds, cost.why))?;
        }
    }
    Ok(())
}

/// Shows the cost of one more copy, and when it pays.
fn show_copy(
    screen: &Screen,
    sites: &Logical,
    (entry, name): (&CatalogEntry, &Path),
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
