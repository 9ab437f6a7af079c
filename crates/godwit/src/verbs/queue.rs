//! `godwit queue`: the pending deliveries, and why they wait.

use crate::{
    client,
    out::{CliError, Facts, Run, Screen, plain},
    units,
};
use clap::Args;
use godwit_core::Url;
use godwit_local::{Kind, NodeConnection};
use godwit_store::Error;
use godwit_wire::local::{Request, request::Selector, response::Row};
use serde_json::json;
use std::{ffi::OsString, time::Duration};

/// Show what is not delivered yet, and why
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit queue
  godwit queue -w
  GODWIT_SOCKET=/var/spool/godwit/socket godwit queue
  godwit queue --json | jq -r 'select(.stage == \"held\") | .url'

A line each, the oldest first: how far it is, its size, how much is still to be sent, for how long
it has been here, its URL, and why it is not there yet. It is

  writing   some program writes it
  queued    its turn comes; what it waits for is said, as a file waits for what was put before at
            its name, below it or above it
  sending   it is being sent
  waiting   its server cannot be reached; it is tried again, and nothing is lost
  held      nothing happens until you decide: the server has something else by now, or
            will not have it

Renames, removals and attributes that are on their way have a line as well, which says so. With
--json an object each, with members id and what besides, and waits_for, the id of what goes first.

Exit status: 0, whatever is on its way. With -w that of godwit push: 1, 4 or 13 if something is
held.")]
pub(crate) struct QueueArgs {
    /// Of one file; else of all, or of GODWIT_SESSION
    #[arg(value_name = "URL")]
    url: Option<OsString>,
    /// Show it again whenever something has changed, until all is delivered or held
    #[arg(short, long)]
    watch: bool,
}

impl QueueArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let whose = client::whose(self.url.as_ref(), None)?;
        let mut here = client::here()?;
        if !self.watch {
            let (rows, done) = client::rows(&mut here, &whose)?;
            show(screen, &rows)?;
            return Ok(client::facts(&done));
        }
        watch(screen, &mut here, &whose)
    }
}

fn watch(screen: &Screen, here: &mut NodeConnection, whose: &Selector) -> Run<Facts> {
    let (mut shown, left) = (Vec::new(), client::RemainingMeter::new(screen));
    let mut look = |here: &mut NodeConnection| {
        let (rows, _) = client::rows(here, whose)?;
        left.show(&rows);
        let now: Vec<_> = rows.iter().map(what_matters).collect();
        if now != shown {
            show(screen, &rows)?;
            let flushed = screen.flush();
            flushed.map_err(|error| CliError::store("show the queue", error))?;
            shown = now;
        }
        Ok(true)
    };
    left.reporter.while_running(|| {
        loop {
            look(here)?;
            // Answered when all that is pending now is delivered; changes are shown meanwhile.
            let pushed = client::ask_looking::<CliError>(
                here,
                Request::Push(whose.clone()),
                &mut |_| (),
                &mut look,
            );
            if let Err(trouble) = pushed {
                let (rows, _) = client::rows(here, whose)?;
                // Deliveries that are not on hold may still arrive.
                let is_heard = !trouble.is_of_output() && !screen.gone();
                if !is_heard || rows.iter().all(|row| row.stage == HELD) {
                    return Err(trouble);
                }
                let moving = rows.iter().filter(|row| row.stage != HELD).count();
                tracing::debug!(moving, "something is held, and the rest goes on");
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            let (rows, done) = client::rows(here, whose)?;
            if rows.is_empty() {
                return Ok(client::facts(&done));
            }
        }
    })
}

fn what_matters(row: &Row) -> (String, String, u64, Option<String>) {
    let why = row.why.clone();
    (row.id.clone(), row.stage.clone(), row.size, why)
}

fn show(screen: &Screen, rows: &[Row]) -> Run<()> {
    for row in rows {
        let told = match screen.json() {
            true => screen.object(&json!({
                "event": "owed",
                "id": row.id,
                "what": row.what,
                "url": row.url,
                "to": row.to,
                "stage": row.stage,
                "waits_for": row.waits_for,
                "size": row.size,
                "owed_bytes": row.owed_bytes,
                "age_s": row.age_ms.unwrap_or(0) as f64 / 1000.0,
                "attempts": row.attempts,
                "committed": row.committed,
                "again_in_s": row.next_ms.map(|ms| ms as f64 / 1000.0),
                "why": row.why,
                "errno": row.reason.map(Kind::symbol),
                "session": row.session,
            })),
            false => screen.line(line(row)),
        };
        told.map_err(|error: Error| CliError::store("show the queue", error))?;
    }
    Ok(())
}

fn line(row: &Row) -> String {
    let age = Duration::from_millis(row.age_ms.unwrap_or(0));
    let mut line = format!(
        "{:<8} {:>9} {:>9} {:>6}  {}",
        row.stage,
        units::size(row.size),
        units::size(row.owed_bytes),
        format!("{}s", age.as_secs()),
        plain(&named(row)),
    );
    if let Some(why) = &row.why {
        line.push_str(&format!("\n         {}", plain(why)));
    }
    if row.stage == HELD {
        let url = row.url.parse::<Url>();
        let name = url.map_or_else(|_| row.id.clone(), |url| url.pasted());
        line.push_str(&format!(
            "\n         godwit retry {name} tries it again, godwit release {name} goes over what is there, godwit drop {name} gives it up"
        ));
    }
    line
}

/// Returns the URL of a row, and its operation if that is not a file.
fn named(row: &Row) -> String {
    match (&*row.what, &row.to) {
        ("" | "publish", _) => row.url.clone(),
        (what, Some(to)) => format!("{what} {} to {to}", row.url),
        (what, None) => format!("{what} {}", row.url),
    }
}

const HELD: &str = "held";
const LOOK_EVERY: Duration = Duration::from_secs(1);
