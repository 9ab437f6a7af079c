//! `godwit trace`: shows where a file is on its way.

use crate::{
    args::{NodeOptions, Talking},
    client, config,
    out::{CliError, Facts, Run, Screen, facts, plain},
    places, units,
};
use clap::Args;
use godwit_core::Url;
use godwit_store::{Error, HopStatus, StoreExt};
use godwit_wire::local::{Request, Response, request::Selector, response::Row};
use serde_json::json;
use std::{ffi::OsString, os::unix::ffi::OsStrExt, time::Duration};

/// Show where a file is on its way
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit trace godwit://hop/data/run7.root
  godwit trace --json godwit://hop/data/run7.root | jq -r 'select(.stage == \"held\") | .why'

A line for each place on the way, this machine first: what it does with the file, its size there,
how much the next place lacks, for how long it has been there, the place, and why it is no further.
At a place it is

  writing, queued, sending, waiting, held
            pending for the next place, as godwit queue shows it
  passed    not pending: the next place has it, or it never came
  there     at its end
  taken     it has it, or a place behind it does: it passes things on and is reached by FTP, which
            does not tell
  missing   not at its end, though that can be asked
  away      not known: the place cannot be asked

Exit status: 0, wherever it is; 4 it is nowhere; 1 or 5 no node on the way can be asked.")]
pub(crate) struct TraceArgs {
    /// The file, or its id as godwit queue --json shows it
    #[arg(value_name = "URL")]
    url: OsString,
    #[command(flatten)]
    talking: Talking,
}

impl TraceArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let name = client::name_or_id(&self.url)?;
        let row = pending(&name)?;
        let url = match &row {
            Some(row) => places::url(row.url.as_ref())?,
            None => places::url(&self.url)?,
        };
        let routes = config::load(&NodeOptions::default())?.routes;
        let way = routes.by_way_of(&url);
        let way = way.map_err(|error| CliError::store(format!("trace {url}"), error))?;
        let mut all: Vec<HopStatus> = row.as_ref().map(here).into_iter().collect();
        let behind = behind(&self.talking, &way);
        match behind {
            Ok(behind) => all.extend(behind),
            // The stations that are known are shown all the same.
            Err(error) if !all.is_empty() => all.push(HopStatus::away(way.host_port(), &error)),
            Err(error) => return Err(CliError::store(format!("trace {url}"), error)),
        }
        for station in &all {
            show(screen, (&url, &way), station)?;
        }
        let is_nowhere = |station: &HopStatus| ["passed", "missing"].contains(&&*station.stage);
        if all.iter().all(is_nowhere) {
            let path = url.as_path();
            return Err(CliError::store(
                format!("trace {url}"),
                Error::missing(path),
            ));
        }
        Ok(facts([("stations", all.len().into())]))
    }
}

/// Returns the pending delivery of a name at the node of this machine. `None`: no node runs, or nothing is pending.
fn pending(name: &str) -> Run<Option<Row>> {
    let Some(mut here) = client::there_if_pending()? else {
        return Ok(None);
    };
    let mut found = None;
    let mut each = |tell| {
        if let Response::Row(row) = tell
            && (row.id == name || row.url == name)
        {
            found = Some(*row);
        }
    };
    let asked = here.ask_with(Request::Queue(Selector::default()), b"", None, &mut each);
    asked?;
    Ok(found)
}

fn here(row: &Row) -> HopStatus {
    HopStatus {
        at: HERE.into(),
        stage: row.stage.clone(),
        size: row.size,
        owed: row.owed_bytes,
        age: row.age_ms.map(Duration::from_millis),
        why: row.why.clone().unwrap_or_default(),
        waits_for: None,
    }
}

fn behind(talking: &Talking, way: &Url) -> Result<Vec<HopStatus>, Error> {
    let stores = places::stores(talking).map_err(|_| Error::Canceled)?;
    let place = stores.open(way)?;
    let mut all = place.store.trace(&place.path, &[])?;
    if let Some(first) = all.first_mut().filter(|first| first.at.is_empty()) {
        first.at = way.host_port();
    }
    Ok(all)
}

fn show(screen: &Screen, names: (&Url, &Url), station: &HopStatus) -> Run<()> {
    let told = match screen.json() {
        true => screen.object(&json!({
            "event": "station",
            "url": names.0.to_string(),
            "at": station.at,
            "stage": station.stage,
            "size": station.size,
            "owed_bytes": station.owed,
            "age_s": station.age.map(|age| age.as_secs_f64()),
            "why": Some(&station.why).filter(|why| !why.is_empty()),
            "waits_for": station.waits_for.as_ref().map(|path| path.to_string_lossy()),
            "next": next(names, station),
        })),
        false => screen.line(line(names, station)),
    };
    told.map_err(|error| CliError::store("show the way", error))
}

/// Returns the next command for a file on hold, by its own name and the name that its way begins with.
fn next((url, way): (&Url, &Url), station: &HopStatus) -> Option<String> {
    if let Some(first) = &station.waits_for {
        let first = way.with_path(first.as_os_str().as_bytes()).ok()?;
        return Some(format!(
            "godwit trace {} says why that is held, and what to do",
            first.pasted()
        ));
    }
    let place = match &*station.at {
        HERE => "",
        _ => "--at-hop ",
    };
    let (is_held, url) = (station.stage == "held", url.pasted());
    is_held.then(|| {
        format!("godwit retry {place}{url} tries it again; godwit drop {place}{url} gives it up")
    })
}

fn line(names: (&Url, &Url), station: &HopStatus) -> String {
    let age = station.age.map(|age| format!("{}s", age.as_secs()));
    let mut line = format!(
        "{:<8} {:>9} {:>9} {:>6}  {}",
        plain(&station.stage),
        units::size(station.size),
        units::size(station.owed),
        age.unwrap_or_default(),
        plain(&station.at),
    );
    if !station.why.is_empty() {
        line.push_str(&format!("\n         {}", plain(&station.why)));
    }
    if let Some(next) = next(names, station) {
        line.push_str(&format!("\n         {}", plain(&next)));
    }
    line
}

/// Name of the first place on the way, if that is the node of this machine.
const HERE: &str = "this machine";
