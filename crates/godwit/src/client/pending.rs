//! Deliveries of this machine that are pending at a name which a verb changes by itself.
//!
//! Verbs ask servers at once, and the node of this machine delivers what was put when it can. To keep the order, a verb
//! that changes a name waits until the pending deliveries there have arrived. Afterwards the verb tells the node that
//! the name has changed. A node is started for that only where the last one left deliveries.

use crate::{
    args::NodeOptions,
    client, config,
    out::{CliError, Run, Screen, plain},
    places,
};
use godwit_core::{Fault, Url};
use godwit_local::{Kind, NodeConnection, Refusal};
use godwit_node::Routes;
use godwit_wire::local::{Request, Response, request::Selector, response::Row};
use serde_json::json;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

/// How much of a name a verb changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NameScope {
    /// The name alone.
    Name,
    /// The name with all that is below it.
    Below,
}

/// The place of a verb among pending deliveries. When the verb ends, the node is told which names were changed.
pub(crate) struct Turn<'a> {
    screen: &'a Screen,
    is_rehearsal: bool,
    here: Option<NodeConnection>,
    routes: Routes,
    named: Vec<Url>,
}

impl<'a> Turn<'a> {
    /// Returns the turn of a verb; one that only rehearses waits for nothing and changes nothing.
    pub(crate) fn of(screen: &'a Screen, is_rehearsal: bool) -> Self {
        Self {
            screen,
            is_rehearsal,
            here: None,
            routes: Routes::default(),
            named: Vec::new(),
        }
    }

    /// Waits until earlier puts to a name are at its server, and shows what the verb waits for. `wanted` continues
    /// "cannot", if a delivery fails. A node that ends meanwhile is started again if deliveries are left. A node
    /// that cannot be asked ends the verb, since a missing answer does not mean that nothing is pending.
    pub(crate) fn wait(&mut self, url: &Url, reach: NameScope, wanted: &str) -> Run {
        if self.is_rehearsal || url.is_local() {
            return Ok(());
        }
        self.named.push(url.clone());
        let whose = whose(url, reach);
        for is_last in [false, false, true] {
            if self.here.is_none() {
                self.here = client::there_if_pending()?;
                self.routes = match self.here {
                    Some(_) => config::load(&NodeOptions::default())?.routes,
                    None => return Ok(()),
                };
            }
            let Some(here) = &mut self.here else { break };
            // Then deliveries pass a hop, and the verb goes to the server directly.
            let is_routed = self.routes.by_way_of(url).is_ok_and(|way| *way != *url);
            match arrived(self.screen, here, &whose, is_routed) {
                Err(refusal) if refusal.kind == Kind::NodeLost && !is_last => self.here = None,
                told => return told.map_err(|refusal| not_there(wanted, url, refusal)),
            }
        }
        Ok(())
    }
}

/// Waits for what is pending under a name now.
fn arrived(
    screen: &Screen,
    here: &mut NodeConnection,
    whose: &Selector,
    is_routed: bool,
) -> Result<(), Refusal> {
    let first = promised(here, whose)?;
    if first.is_empty() && !is_routed {
        return Ok(());
    }
    let waiting = Waiting {
        screen,
        whose: whose.clone(),
        ids: first.into_iter().map(|row| row.id).collect(),
        is_routed,
        away_since: None,
    };
    waiting.until_it_is_there(here)
}

/// A program of this machine that reads a changed name sees the change at once.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.named.is_empty() {
            changed(self.screen, &self.named);
        }
    }
}

/// Tells the node of this machine, if one runs, that some names were changed at their servers.
pub(crate) fn changed(screen: &Screen, urls: &[Url]) {
    let told = client::there().and_then(|here| {
        let Some(mut here) = here else { return Ok(()) };
        for url in urls {
            let url = places::without_slashes(url).to_string();
            let told = here.ask(Request::Changed { url });
            told?;
        }
        Ok(())
    });
    if let Err(trouble) = told {
        unknown(screen, "may show for a while what was there", &trouble);
    }
}

/// Notes the consequence if the node of this machine does not answer.
fn unknown(screen: &Screen, what: &str, trouble: &CliError) {
    let words = format!("the node of this machine {what}: {}", trouble.fact());
    screen.note(&plain(&words));
}

/// Says that deliveries of this machine are pending at a name or below it, so that the server does not have them yet.
pub(crate) fn note(screen: &Screen, url: &Url, reach: NameScope) {
    if url.is_local() {
        return;
    }
    let rows = client::there_if_pending().and_then(|here| {
        let Some(mut here) = here else {
            return Ok(Vec::new());
        };
        let rows = promised(&mut here, &whose(url, reach));
        rows.map_err(CliError::from)
    });
    let rows = match rows {
        Ok(rows) => rows,
        Err(trouble) => {
            return unknown(screen, "does not tell what it has yet to deliver", &trouble);
        }
    };
    let names: HashSet<&String> = rows
        .iter()
        .map(|row| row.to.as_ref().unwrap_or(&row.url))
        .collect();
    let shown = places::without_slashes(url).to_string();
    let is_it = names.len() == 1 && names.contains(&shown);
    if names.is_empty() {
        return;
    }
    if screen.json() {
        return screen.event(&json!({"event": "promised", "url": shown, "names": names.len()}));
    }
    let what = match names.len() {
        1 if is_it => format!("{shown} is promised by this machine and not there yet"),
        1 => format!("1 name below {shown} is promised by this machine and not there yet"),
        count => {
            format!("{count} names below {shown} are promised by this machine and not there yet")
        }
    };
    screen.note(&plain(&format!("{what} (godwit queue)")));
}

fn whose(url: &Url, reach: NameScope) -> Selector {
    Selector {
        url: Some(places::without_slashes(url).to_string()),
        below: reach == NameScope::Below,
        ..Selector::default()
    }
}

/// Returns the pending deliveries. A file that is still being written comes after the present verb.
fn promised(here: &mut NodeConnection, whose: &Selector) -> Result<Vec<Row>, Refusal> {
    let mut rows = Vec::new();
    let asked = here.ask_with(Request::Queue(whose.clone()), b"", None, &mut |tell| {
        if let Response::Row(row) = tell
            && row.stage != "writing"
        {
            rows.push(*row);
        }
    });
    match asked {
        // Nothing of such a name was ever put.
        Err(refusal) if refusal.kind != Kind::TooLong => Err(refusal),
        _ => Ok(rows),
    }
}

/// A delivery that is waited for.
struct Waiting<'a> {
    screen: &'a Screen,
    whose: Selector,
    /// Ids of the deliveries that are waited for.
    ids: HashSet<String>,
    /// `true`: wait until the file is at its last server. `false`: wait until the next hop has the file, since a hop
    /// keeps the order.
    is_routed: bool,
    /// When the server was first seen to be away.
    away_since: Option<Instant>,
}

impl Waiting<'_> {
    fn until_it_is_there(mut self, here: &mut NodeConnection) -> Result<(), Refusal> {
        let (screen, push) = (self.screen, Request::Push(self.whose.clone()));
        let told = &mut |tell| client::how_it_goes(screen, tell);
        client::ask_looking(here, push, told, &mut |here| self.look(here)).map(drop)
    }

    /// Looks at the queue. Returns `false` if no delivery is left, and an error if their server stays away.
    fn look(&mut self, here: &mut NodeConnection) -> Result<bool, Refusal> {
        let mut left = promised(here, &self.whose)?;
        left.retain(|row| self.ids.contains(&row.id));
        match left.iter().find(|row| row.stage == "waiting") {
            _ if left.is_empty() && !self.is_routed => return Ok(false),
            None => self.away_since = None,
            Some(row) => {
                let since = *self.away_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE {
                    return Err(away(row));
                }
            }
        }
        Ok(true)
    }
}

fn away(row: &Row) -> Refusal {
    let why = row.why.as_deref().unwrap_or("its server cannot be reached");
    let words = format!("{} is not there yet: {why}", row.url);
    Refusal::new(Kind::Late, "push", words).waiting(Fault::Passing)
}

/// Returns the error of a verb if an earlier put cannot be delivered before it.
fn not_there(wanted: &str, url: &Url, mut refusal: Refusal) -> CliError {
    refusal.wanted = wanted.into();
    refusal.said = format!("what was put there before goes first: {}", refusal.said);
    if refusal.kind == Kind::Late || refusal.next.is_none() {
        let next = format!(
            "godwit queue shows it; godwit push {} waits for it, godwit drop gives it up",
            url.pasted()
        );
        refusal.next = Some(next);
    }
    CliError::from(refusal)
}

/// How long a server may be away before the verb gives up.
const PATIENCE: Duration = Duration::from_secs(3);
