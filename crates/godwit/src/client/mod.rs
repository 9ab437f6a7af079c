//! The node of this machine, as verbs reach it: it is found or started, asked, and waited for.

pub(crate) mod pending;

use crate::{
    names,
    out::{self, CliError, Facts, Run, Screen, plain, progress::Reporter},
    places,
};
use godwit_core::Url;
use godwit_local::{Kind, NodeAnswer, NodeConnection, NodePlace, Refusal, odd, who};
use godwit_wire::local::{
    Request, Response,
    request::{Hello, RemoteRequest, Selector},
    response::{self, Done, Row},
};
use serde_json::json;
use std::{
    cell::OnceCell,
    collections::HashMap,
    env,
    ffi::{OsStr, OsString},
    path::PathBuf,
    time::{Duration, Instant},
};

/// Returns a connection to the node of this machine, which is started if none listens.
pub(crate) fn here() -> Run<NodeConnection> {
    NodeConnection::find(&hello(), &variable).map_err(CliError::from)
}

/// Returns a request to the depot of this machine, or to that of a peer.
pub(crate) fn on(peer: Option<&str>, ask: Request) -> Request {
    match peer {
        None => ask,
        Some(name) => Request::On(RemoteRequest {
            on: format!("peer:{name}"),
            ask: Box::new(ask),
        }),
    }
}

/// Returns the greeting of this program.
pub(crate) fn hello() -> Hello {
    who("godwit", &variable)
}

pub(crate) fn variable(name: &str) -> Option<OsString> {
    match name {
        "GODWIT_CATALOG" => names::text().map(Into::into),
        _ => env::var_os(name),
    }
}

/// A file, as it was named.
pub(crate) struct Named {
    /// For the node, with a password if there is one.
    pub(crate) told: String,
    /// For messages, without a password.
    pub(crate) shown: String,
    /// Its path, if the file is of this machine.
    pub(crate) here: Option<PathBuf>,
}

/// Reads an argument: a URL, or a name below `/godwit/`; a path is a file of this machine.
pub(crate) fn named(argument: &OsStr) -> Run<Named> {
    let mut url = places::url(argument)?;
    let is_here = url.is_local();
    if is_here && !url.is_absolute() {
        let absolute = std::path::absolute(url.as_path()).ok();
        if let Some(Ok(whole)) = absolute.map(Url::file) {
            url = whole;
        }
    }
    let shown = url.to_string();
    let told = match argument.to_str() {
        Some(text) if !is_here => text.to_owned(),
        _ => shown.clone(),
    };
    let here = is_here.then(|| url.as_path().to_owned());
    Ok(Named { told, shown, here })
}

/// Shows a note of the node.
pub(crate) fn note(screen: &Screen, tell: &Response) {
    if let Response::Row(row) = tell
        && let Some(words) = &row.why
    {
        screen.note(&plain(words));
    }
}

/// Reads an argument that is a name, or the id of a pending operation in the queue.
pub(crate) fn name_or_id(argument: &OsStr) -> Run<String> {
    let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let is_id = |text: &&str| match text.strip_prefix("deed-") {
        Some(number) => is_hex(number),
        None => text.len() == 24 && is_hex(text),
    };
    match argument.to_str().filter(is_id) {
        Some(id) => Ok(id.to_owned()),
        None => named(argument).map(|named| named.told),
    }
}

/// Returns a time in milliseconds, for the node.
pub(crate) fn ms(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the selector of commit, push and queue. Without a name it selects the session of this program.
pub(crate) fn whose(url: Option<&OsString>, timeout: Option<Duration>) -> Run<Selector> {
    Ok(Selector {
        url: url
            .map(|url| named(url))
            .transpose()?
            .map(|named| named.told),
        session: hello().session,
        below: url.is_some(),
        timeout_ms: ms(timeout),
        ..Selector::default()
    })
}

/// Returns an argument as it may be shown, without a password.
pub(crate) fn shown(argument: &OsStr) -> String {
    let url = places::url(argument);
    url.map_or_else(
        |_| argument.to_string_lossy().into_owned(),
        |url| url.to_string(),
    )
}

/// Says what was done, and adds it to the notes of the summary.
pub(crate) fn with_note(screen: &Screen, mut facts: Facts, words: String) -> Facts {
    if !screen.json() {
        screen.note(&plain(&words));
    }
    let notes = facts.entry("notes").or_insert(json!([]));
    if let Some(notes) = notes.as_array_mut() {
        notes.push(words.into());
    }
    facts
}

/// Waits until the pending files of one name, or all, are delivered.
pub(crate) fn wait(
    screen: &Screen,
    url: Option<&OsString>,
    timeout: Option<Duration>,
    ask: fn(Selector) -> Request,
) -> Run<Facts> {
    let whose = whose(url, timeout)?;
    let mut here = here()?;
    let left = RemainingMeter::new(screen);
    let told = &mut |tell| how_it_goes(screen, tell);
    let look = &mut |here: &mut NodeConnection| left.look(here, &whose);
    let waiting = || ask_looking(&mut here, ask(whose.clone()), told, look);
    let answer = left.reporter.while_running(waiting)?;
    let done = answer.map(|answer| done_of(screen, answer)).transpose()?;
    Ok(facts(&done.unwrap_or_default()))
}

/// Sends a request and calls `look` every second until the answer arrives. If `look` returns `false`, the wait ends.
pub(crate) fn ask_looking<E: From<Refusal>>(
    here: &mut NodeConnection,
    ask: Request,
    told: &mut dyn FnMut(Response),
    look: &mut dyn FnMut(&mut NodeConnection) -> Result<bool, E>,
) -> Result<Option<NodeAnswer>, E> {
    let n = here.send(ask, b"")?;
    loop {
        match here.receive(n, Some(Instant::now() + LOOK_EVERY)) {
            Ok(answer) => match answer.tell {
                Response::Refused(refusal) => return Err((*refusal).into()),
                tell if !tell.is_last() => told(tell),
                tell => return Ok(Some(NodeAnswer { tell, ..answer })),
            },
            Err(refusal) if refusal.kind == Kind::Late => {}
            Err(refusal) => return Err(refusal.into()),
        }
        let looked = look(here);
        if !matches!(looked, Ok(true)) {
            here.cancel(n);
            return looked.map(|_| None);
        }
    }
}

/// Shows on a terminal how much is left of the deliveries that were pending at the first look.
pub(crate) struct RemainingMeter<'a> {
    pub(crate) reporter: Reporter<'a>,
    first: OnceCell<HashMap<String, u64>>,
}

impl<'a> RemainingMeter<'a> {
    pub(crate) fn new(screen: &'a Screen) -> Self {
        let reporter = Reporter::patient(screen);
        let first = OnceCell::new();
        Self { reporter, first }
    }

    /// Asks for the queue and shows it, if anything is shown.
    fn look(&self, here: &mut NodeConnection, whose: &Selector) -> Run<bool> {
        if self.reporter.is_shown() {
            self.show(&rows(here, whose)?.0);
        }
        Ok(true)
    }

    pub(crate) fn show(&self, rows: &[response::Row]) {
        let of = |row: &response::Row| (row.id.clone(), row.owed_bytes);
        let first = self.first.get_or_init(|| rows.iter().map(of).collect());
        let all = (first.len() as u64, first.values().sum::<u64>());
        let left = rows.iter().filter_map(|row| {
            let was = first.get(&row.id)?;
            Some(row.owed_bytes.min(*was))
        });
        let (files, bytes) = left.fold(all, |(files, bytes), left| (files - 1, bytes - left));
        self.reporter.at((files, all.0), (bytes, all.1));
    }
}

/// Shows what the node tells while a verb waits for a delivery.
pub(crate) fn how_it_goes(screen: &Screen, told: Response) {
    let Response::Row(row) = told else {
        return;
    };
    let why = row.why.unwrap_or_default();
    let is_held = row.stage == "held";
    if screen.json() {
        let event = match is_held {
            true => json!({"event": "held", "id": row.id, "url": row.url, "why": why}),
            false => json!({"event": "waiting", "for": "delivery", "why": why}),
        };
        return screen.event(&event);
    }
    match is_held {
        true => screen.note(&plain(&format!("held: {}: {why}", row.url))),
        false => screen.note(&plain(&format!("waiting: {why}"))),
    }
}

/// Sends a request that ends with [`Response::Done`], and shows its notes.
pub(crate) fn done(
    screen: &Screen,
    here: &mut NodeConnection,
    ask: Request,
) -> Run<response::Done> {
    let answer = here.ask(ask)?;
    done_of(screen, answer)
}

pub(crate) fn done_of(screen: &Screen, answer: NodeAnswer) -> Run<response::Done> {
    let done = match answer.tell {
        Response::Done(done) => done,
        other => return Err(odd(&other).into()),
    };
    if !screen.json() {
        done.notes.iter().for_each(|note| screen.note(note));
    }
    Ok(done)
}

/// Returns the counts of an operation, for the summary.
pub(crate) fn facts(done: &response::Done) -> Facts {
    out::facts([
        ("files", done.files.into()),
        ("bytes", done.bytes.into()),
        ("notes", json!(done.notes)),
    ])
}

pub(crate) fn rows(here: &mut NodeConnection, whose: &Selector) -> Run<(Vec<Row>, Done)> {
    let mut rows = Vec::new();
    let answer = here.ask_with(Request::Queue(whose.clone()), b"", None, &mut |tell| {
        if let Response::Row(row) = tell {
            rows.push(*row);
        }
    });
    let done = match answer?.tell {
        Response::Done(done) => done,
        _ => Done::default(),
    };
    Ok((rows, done))
}

/// Returns the place of the node of this machine.
pub(crate) fn place() -> Result<NodePlace, Refusal> {
    NodePlace::find(&variable)
}

/// Returns the node that listens, if one does.
pub(crate) fn there() -> Run<Option<NodeConnection>> {
    let place = NodePlace::find(&variable);
    place
        .and_then(|place| NodeConnection::at(&place, &hello()))
        .map_err(CliError::from)
}

/// Returns the node that listens. If none does and deliveries are pending, starts one. `None`: nothing is pending.
pub(crate) fn there_if_pending() -> Run<Option<NodeConnection>> {
    let find = || {
        let place = NodePlace::find(&variable)?;
        let here = NodeConnection::at(&place, &hello())?;
        match here.is_none() && place.find_unfinished()? {
            true => NodeConnection::find_at(&place, &hello()).map(Some),
            false => Ok(here),
        }
    };
    find().map_err(CliError::from)
}

/// How often a waiting verb looks at the queue.
const LOOK_EVERY: Duration = Duration::from_secs(1);
