//! The node of this machine, as verbs reach it, and as it is begun and ended by hand.

use super::{
    Facts, config,
    node::{Told, served},
    queue, serving,
};
use crate::{
    log, names,
    progress::Reporter,
    record,
    screen::Screen,
    trouble::{CliError, Run, plain},
    units,
};
use clap::{Args, Subcommand};
use godwit_core::Url;
use godwit_local::{Answer, Here, Kind, Place, Refusal, lock_within, odd, who};
use godwit_node::{LocalRules, OnFault, Routes, run_local};
use godwit_store::Error;
use godwit_wire::local::{
    Request, Response,
    request::{FileTarget, Hello, RemoteRequest, Selector},
    response,
};
use serde_json::json;
use std::{
    cell::OnceCell,
    collections::HashMap,
    env,
    ffi::{OsStr, OsString},
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Returns a conversation with the node of this machine, which is started if nobody listens.
pub(super) fn here() -> Run<Here> {
    Here::find(&hello(), &variable).map_err(CliError::from)
}

/// Returns what is asked of the depot of this machine, or of that of a peer.
pub(super) fn on(peer: Option<&str>, ask: Request) -> Request {
    match peer {
        None => ask,
        Some(name) => Request::On(RemoteRequest {
            on: format!("peer:{name}"),
            ask: Box::new(ask),
        }),
    }
}

/// Returns who we are.
pub(super) fn hello() -> Hello {
    who("godwit", &variable)
}

fn variable(name: &str) -> Option<OsString> {
    match name {
        "GODWIT_CATALOG" => names::text().map(Into::into),
        _ => env::var_os(name),
    }
}

/// A file, as it was named.
pub(super) struct Named {
    /// As the node is told it, with a password if there is one.
    pub(super) told: String,
    /// As anybody may see it.
    pub(super) shown: String,
    /// Where it is, if it is a file of this machine.
    pub(super) here: Option<PathBuf>,
}

/// Reads an argument: a URL, or a name below `/godwit/`; a path is a file of this machine.
pub(super) fn named(argument: &OsStr) -> Run<Named> {
    let mut url = crate::places::url(argument)?;
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

/// Says what the node says besides.
pub(super) fn note(screen: &Screen, tell: &Response) {
    if let Response::Row(row) = tell
        && let Some(words) = &row.why
    {
        screen.note(&plain(words));
    }
}

/// The same, or what the queue calls something that is owed.
pub(super) fn name_of_owed(argument: &OsStr) -> Run<String> {
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

/// A time as the node is told it.
pub(super) fn ms(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// What commit, push and queue are of, if nothing is named: the session that we are part of.
pub(super) fn whose(url: Option<&OsString>, timeout: Option<Duration>) -> Run<Selector> {
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

/// The same, as anybody may see it.
pub(super) fn shown(argument: &OsStr) -> String {
    let url = crate::places::url(argument);
    url.map_or_else(
        |_| argument.to_string_lossy().into_owned(),
        |url| url.to_string(),
    )
}

/// Says what was done, and adds it to what programs are told.
pub(super) fn with_note(screen: &Screen, mut facts: Facts, words: String) -> Facts {
    if !screen.json() {
        screen.note(&plain(&words));
    }
    let notes = facts.entry("notes").or_insert(json!([]));
    if let Some(notes) = notes.as_array_mut() {
        notes.push(words.into());
    }
    facts
}

/// Has done with something that is owed what somebody decided.
pub(super) fn decide(screen: &Screen, url: &OsStr, ask: fn(FileTarget) -> Request) -> Run<Facts> {
    let name = name_of_owed(url)?;
    let done = done(screen, &mut here()?, ask(FileTarget::is(name)))?;
    Ok(facts(&done))
}

/// Waits until what was put is where it was to be, of one name or of all.
pub(super) fn wait(
    screen: &Screen,
    url: Option<&OsString>,
    timeout: Option<Duration>,
    ask: fn(Selector) -> Request,
) -> Run<Facts> {
    let whose = whose(url, timeout)?;
    let mut here = here()?;
    let left = Left::new(screen);
    let told = &mut |tell| how_it_goes(screen, tell);
    let look = &mut |here: &mut Here| left.look(here, &whose);
    let waiting = || ask_looking(&mut here, ask(whose.clone()), told, look);
    let answer = left.reporter.while_running(waiting)?;
    let done = answer.map(|answer| done_of(screen, answer)).transpose()?;
    Ok(facts(&done.unwrap_or_default()))
}

/// Asks, and until that is answered calls `look` every second: where that returns `false` the answer is not waited for.
pub(crate) fn ask_looking<E: From<Refusal>>(
    here: &mut Here,
    ask: Request,
    told: &mut dyn FnMut(Response),
    look: &mut dyn FnMut(&mut Here) -> Result<bool, E>,
) -> Result<Option<Answer>, E> {
    let n = here.send(ask, b"")?;
    loop {
        match here.receive(n, Some(Instant::now() + LOOK_EVERY)) {
            Ok(answer) => match answer.tell {
                Response::Refused(refusal) => return Err((*refusal).into()),
                tell if !tell.is_last() => told(tell),
                tell => return Ok(Some(Answer { tell, ..answer })),
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

/// What is left, shown on a terminal, of what was pending when it was looked at first.
pub(super) struct Left<'a> {
    pub(super) reporter: Reporter<'a>,
    first: OnceCell<HashMap<String, u64>>,
}

impl<'a> Left<'a> {
    pub(super) fn new(screen: &'a Screen) -> Self {
        let reporter = Reporter::patient(screen);
        let first = OnceCell::new();
        Self { reporter, first }
    }

    /// Asks for that, if it is shown.
    fn look(&self, here: &mut Here, whose: &Selector) -> Run<bool> {
        if self.reporter.is_shown() {
            self.show(&queue::rows(here, whose)?.0);
        }
        Ok(true)
    }

    pub(super) fn show(&self, rows: &[response::Row]) {
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

/// Shows what is told while a delivery is waited for.
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
        // A reader that is gone is told nothing.
        let _ = screen.object(&event).and_then(|()| screen.flush());
        return;
    }
    match is_held {
        true => screen.note(&plain(&format!("held: {}: {why}", row.url))),
        false => screen.note(&plain(&format!("waiting: {why}"))),
    }
}

/// Asks for what ends with [`Response::Done`], and tells what is to be known about it.
pub(super) fn done(screen: &Screen, here: &mut Here, ask: Request) -> Run<response::Done> {
    let answer = here.ask(ask)?;
    done_of(screen, answer)
}

pub(super) fn done_of(screen: &Screen, answer: Answer) -> Run<response::Done> {
    let done = match answer.tell {
        Response::Done(done) => done,
        other => return Err(odd(&other).into()),
    };
    if !screen.json() {
        done.notes.iter().for_each(|note| screen.note(note));
    }
    Ok(done)
}

/// What was done, for the summary.
pub(super) fn facts(done: &response::Done) -> Facts {
    let mut facts = Facts::new();
    facts.insert("files".into(), done.files.into());
    facts.insert("bytes".into(), done.bytes.into());
    facts.insert("notes".into(), json!(done.notes));
    facts
}

/// What is done with the node of this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Act {
    /// Have the cache service (for put and get) or the server begin by systemd
    Install(Install),
    /// End the cache service; a server (godwit node) ends by SIGTERM
    #[command(after_help = "Examples:\n  godwit node stop\n  godwit node stop --json")]
    Stop,
    /// Show the server and the cache service of this account
    #[command(after_help = "Examples:\n  godwit node status\n  godwit node status --json")]
    Status,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit node install
  systemctl --user enable --now godwit
  godwit node install --server --print
  godwit node install --server --account godwit

Programs start the cache service when they need it. A unit of systemd starts it after the machine
was restarted, too. With --server the unit is of the server: it serves what the configuration says
(godwit init). Root's server begins with the machine, that of another account with its first login.
To have that begin without a login: loginctl enable-linger. With --account the server runs as that
account from the start, without rights of root, and systemd closes the rest of the machine to it.

Exit status: 0; 1 the unit cannot be written; 2 --server without a configuration, or --account
without root.")]
pub(crate) struct Install {
    /// A unit for the server, which the configuration describes
    #[arg(long)]
    server: bool,
    /// The account that the server runs as, with few rights [default: systemd starts it as root, which it gives up]
    #[arg(long, value_name = "ACCOUNT", requires = "server")]
    account: Option<String>,
    /// Print the unit, and write nothing
    #[arg(long)]
    print: bool,
}

impl Act {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self {
            Self::Install(install) => install.run(screen),
            Self::Stop => stop(screen),
            Self::Status => status(screen),
        }
    }
}

/// Is the node of this machine.
pub(super) fn serve(screen: &Screen, socket: Option<&Path>, state: Option<&Path>) -> Run<Facts> {
    log::start(screen.tone(), "info");
    let ended = begin(screen, socket, state);
    if let Err(refusal) = &ended
        && screen.json()
    {
        // Whoever started us reads one line.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&refusal.write()).and_then(|()| out.flush());
    }
    ended.map(|()| Facts::new()).map_err(CliError::from)
}

fn bad(name: &str, why: String) -> Refusal {
    Refusal::new(Kind::Invalid, format!("understand {name}"), why)
        .next("godwit help env says what it means")
}

fn text(name: &str) -> Option<String> {
    let value = variable(name).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}

/// Returns who is told of lasting faults.
pub(super) fn on_fault() -> Result<OnFault, Refusal> {
    let mut on_fault = OnFault {
        command: text("GODWIT_ON_FAULT"),
        ..OnFault::default()
    };
    if let Some(told) = text("GODWIT_FAULT_AFTER") {
        let after = units::parse_duration(&told);
        on_fault.after = after.map_err(|why| bad("GODWIT_FAULT_AFTER", why))?;
    }
    Ok(on_fault)
}

/// A socket in a spool is that of the hop, which alone knows what it holds.
fn must_not_be_a_hops(place: &Place) -> Result<(), Refusal> {
    let dir = place.socket.parent().unwrap_or(Path::new("/"));
    if !dir.join("held.db").exists() {
        return Ok(());
    }
    let why = format!("{} is the spool of a hop that does not run", dir.display());
    Err(Refusal::new(Kind::NoNode, "be the node of this machine", why)
        .next("start the hop (godwit node --spool DIR --next URL), or name another socket in GODWIT_SOCKET"))
}

fn begin(screen: &Screen, socket: Option<&Path>, state: Option<&Path>) -> Result<(), Refusal> {
    let place = Place::of(socket, state, &variable)?;
    must_not_be_a_hops(&place)?;
    let idle = match text("GODWIT_LOCAL_IDLE") {
        Some(told) => units::parse_duration(&told).map_err(|why| bad("GODWIT_LOCAL_IDLE", why))?,
        None => IDLE,
    };
    let quota = text("GODWIT_DEPOT_QUOTA")
        .map(|told| units::parse_size(&told).map_err(|why| bad("GODWIT_DEPOT_QUOTA", why)))
        .transpose()?;
    let rules = LocalRules {
        on_fault: on_fault()?,
        place: place.clone(),
        idle,
        quota,
        scrub_every: scrub_every()?,
        // What a node runs for a peer may end; what it started goes on.
        is_of_job: hello().job.keys().any(|name| name != "GODWIT_JOB"),
        is_installed: unit_file().is_some_and(|unit| is_installed(&unit)),
        routes: routes()?,
        catalog: hello().catalog,
        export: config::load(&Told::default())
            .ok()
            .map(|config| config.export),
    };
    let ready = || {
        let told = match screen.json() {
            true => screen.object(&json!({
                "event": "serving",
                "socket": place.socket.to_string_lossy(),
                "state": place.state.to_string_lossy(),
                "pid": std::process::id(),
            })),
            false => screen.line(format!(
                "serving the programs of this machine at {}",
                place.socket.display()
            )),
        };
        // Who started us and does not listen is served all the same.
        let _ = told.and_then(|()| screen.flush());
    };
    run_local(rules, record::home(), ready).map_err(|error| error.refusal())
}

/// Returns after how long what is kept is read again.
fn scrub_every() -> Result<Option<Duration>, Refusal> {
    match text("GODWIT_SCRUB").as_deref() {
        Some("never") => Ok(None),
        Some(told) => {
            let every = units::parse_duration(told).map_err(|why| bad("GODWIT_SCRUB", why))?;
            Ok(Some(every))
        }
        None => Ok(Some(SCRUB_EVERY)),
    }
}

/// Returns which hop leads where.
fn routes() -> Result<Routes, Refusal> {
    let config = config::load(&Told::default());
    let config = config.map_err(|trouble| {
        let fact = trouble.to_string();
        let fact = fact.lines().nth(1).unwrap_or(&fact).trim();
        Refusal::new(Kind::Invalid, "know the routes", fact)
            .next("godwit config show says what is wrong with the configuration")
    })?;
    Ok(config.routes)
}

impl Install {
    fn run(self, screen: &Screen) -> Run<Facts> {
        const WANTED: &str = "install the node of this machine";
        let program = env::current_exe()
            .map_err(|cause| CliError::store(WANTED, Error::io("this program", cause)))?;
        let config = match config::file_in_use().filter(|_| self.server) {
            None if self.server => {
                let fact = "no configuration says what the server serves";
                return Err(CliError::asked(WANTED, fact).next("godwit init NAME --export DIR"));
            }
            config => config.map(std::path::absolute).transpose(),
        };
        let config = config.map_err(|cause| CliError::store(WANTED, Error::io(".", cause)))?;
        if self.account.is_some() && !self.print && godwit_sys::user_id() != 0 {
            let fact = "only root makes units that run as an account";
            return Err(CliError::asked(WANTED, fact)
                .next("leave --account out, or say it as root; --print shows the unit"));
        }
        let unit = unit(&program, config.as_deref(), self.account.as_deref());
        let told = |said: Result<(), Error>| said.map_err(|error| CliError::store(WANTED, error));
        let mut facts = Facts::new();
        if self.print {
            facts.insert("unit".into(), unit.clone().into());
            if !screen.json() {
                told(screen.page(&unit))?;
            }
            return Ok(facts);
        }
        let file = match self.server {
            true => server_unit(),
            false => unit_file(),
        };
        let file = file.ok_or_else(|| {
            CliError::asked(
                WANTED,
                "neither XDG_CONFIG_HOME nor HOME says where units are",
            )
        })?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&file, &unit));
        written.map_err(|cause| CliError::store(WANTED, Error::io(&file, cause)))?;
        facts.insert("file".into(), file.to_string_lossy().into());
        if !screen.json() {
            told(screen.line(format!("wrote {}", file.display())))?;
        }
        let (user, unit) = match (self.server, godwit_sys::user_id()) {
            (true, 0) => ("", SERVER),
            (is_server, _) => (" --user", if is_server { SERVER } else { "godwit" }),
        };
        screen.note(&format!("next: systemctl{user} enable --now {unit}"));
        Ok(facts)
    }
}

/// Returns the unit of the server with that configuration, or of the cache service. With an account the server begins as
/// that account, with few rights.
fn unit(program: &Path, config: Option<&Path>, account: Option<&str>) -> String {
    // systemd reads backslashes, quotes, $ and % in a quoted word (systemd.service(5)).
    let quoted = |path: &Path| {
        let text = path.to_string_lossy().replace('\\', "\\\\");
        let text = text.replace('"', "\\\"").replace('$', "$$");
        format!("\"{}\"", text.replace('%', "%%"))
    };
    let (what, words, more) = match config {
        None => (
            "cache service, for put and get",
            "--local".to_owned(),
            "Environment=GODWIT_LOCAL_IDLE=365d",
        ),
        Some(config) => (
            "server",
            format!("--config {}", quoted(config)),
            "ExecReload=/bin/kill -HUP $MAINPID\nKillMode=mixed",
        ),
    };
    let target = match (config, godwit_sys::user_id()) {
        (Some(_), 0) => "multi-user",
        _ if account.is_some() => "multi-user",
        _ => "default",
    };
    let rights = account.map(|account| format!("User={account}\n{HARDENED}"));
    let rights = rights.unwrap_or_default();
    format!(
        "[Unit]\n\
         Description=godwit {what}\n\
         Documentation=man:godwit-node(1)\n\
         After=network.target\n\
         \n\
         [Service]\n\
         Type=simple\n\
         ExecStart={} node {words}\n\
         {more}\n\
         Restart=on-failure\n\
         RestartSec=20s\n\
         {rights}\
         \n\
         [Install]\n\
         WantedBy={target}.target\n",
        quoted(program)
    )
}

/// How systemd confines a server that needs no rights of root. The directory that it serves can be anywhere, so only
/// directories of the system are read-only.
const HARDENED: &str = "\
StateDirectory=godwit
StateDirectoryMode=0700
UMask=0027
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=full
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
";

/// Returns where the unit of this account's server is, or would be.
pub(super) fn server_unit() -> Option<PathBuf> {
    match godwit_sys::user_id() {
        0 => Some("/etc/systemd/system/godwit-server.service".into()),
        _ => Some(unit_file()?.with_file_name("godwit-server.service")),
    }
}

fn unit_file() -> Option<PathBuf> {
    let absolute = |name| {
        let path = variable(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let config = absolute("XDG_CONFIG_HOME");
    let config = config.or_else(|| Some(absolute("HOME")?.join(".config")));
    Some(config?.join("systemd/user/godwit.service"))
}

/// Tells whether this account has the unit, its own or, by the link that `systemctl --user enable` makes, one of a package.
fn is_installed(unit: &Path) -> bool {
    let name = unit.file_name().unwrap_or_default();
    unit.exists()
        || unit
            .with_file_name("default.target.wants")
            .join(name)
            .exists()
}

/// Returns the place of the node of this machine.
pub(super) fn place() -> Result<Place, Refusal> {
    Place::find(&variable)
}

/// Returns the node that listens, if one does.
pub(crate) fn there() -> Run<Option<Here>> {
    let place = Place::find(&variable);
    place
        .and_then(|place| Here::at(&place, &hello()))
        .map_err(CliError::from)
}

/// Returns the node that listens; starts one where the last one ended, or was ended, with deliveries pending. `None`:
/// nothing is pending.
pub(crate) fn there_if_pending() -> Run<Option<Here>> {
    let find = || {
        let place = Place::find(&variable)?;
        let here = Here::at(&place, &hello())?;
        match here.is_none() && place.find_unfinished()? {
            true => Here::find_at(&place, &hello()).map(Some),
            false => Ok(here),
        }
    };
    find().map_err(CliError::from)
}

fn stop(screen: &Screen) -> Run<Facts> {
    let mut facts = Facts::new();
    let Some(mut here) = there()? else {
        facts.insert("was_running".into(), false.into());
        screen.note("no cache service runs for this account; a server (godwit node) ends by SIGTERM or systemctl");
        return Ok(facts);
    };
    let process = here.node().process;
    facts.insert("was_running".into(), true.into());
    facts.insert("pid".into(), process.into());
    let n = here.send(Request::Stop, b"")?;
    let deadline = Instant::now() + STOP_PATIENCE;
    here.receive(n, Some(deadline))?;
    // As long as it lives it has the lock beside its socket.
    let place = Place::find(&variable)?;
    let ended = lock_within(&place.alive(), deadline)
        .map_err(|cause| CliError::store(STOP, Error::io(place.alive(), cause)))?;
    if ended.is_none() {
        return Err(CliError::found(
            STOP,
            format!("process {process} does not end"),
            5,
        ));
    }
    if !screen.json() {
        screen
            .line(format!("stopped the cache service, process {process}"))
            .map_err(|error| CliError::store("say so", error))?;
    }
    Ok(facts)
}

fn status(screen: &Screen) -> Run<Facts> {
    let mut facts = Facts::new();
    let say = |line: String| match screen.json() {
        true => Ok(()),
        false => screen
            .line(line)
            .map_err(|error| CliError::store("say so", error)),
    };
    let servers = serving::running(config::load(&Told::default())?.state.as_deref());
    if servers.is_empty() {
        say("no server runs for this account; godwit node starts one".into())?;
    }
    for server in &servers {
        let unit = server["unit"].as_str();
        let unit = unit.map_or(String::new(), |unit| format!(", unit {unit}"));
        let (pid, serves) = (&server["pid"], served(server));
        say(format!("server: process {pid}{unit}, serves {serves}"))?;
    }
    facts.insert("servers".into(), servers.into());
    let Some(mut here) = there()? else {
        facts.insert("running".into(), false.into());
        say("no cache service runs for this account; the next put or get starts it".into())?;
        return Ok(facts);
    };
    let answer = here.ask(Request::Status);
    let status = match answer.map(|answer| answer.tell) {
        Ok(Response::Status(status)) => status,
        Ok(other) => return Err(odd(&other).into()),
        Err(refusal) => return Err(refusal.into()),
    };
    facts.insert("running".into(), true.into());
    facts.insert("pid".into(), status.process.into());
    facts.insert("state".into(), status.state.clone().into());
    facts.insert("age_s".into(), (status.age_ms / 1000).into());
    facts.insert("connections".into(), status.connections.into());
    facts.insert("owed_files".into(), status.owed_files.into());
    facts.insert("owed_bytes".into(), status.owed_bytes.into());
    let owed = match status.owed_files {
        0 => "nothing is owed".to_owned(),
        files => format!(
            "{files} files with {} are owed",
            units::size(status.owed_bytes)
        ),
    };
    say(format!(
        "cache service: process {}, state in {}, {owed}",
        status.process, status.state
    ))?;
    let place = Place::find(&variable)?;
    if let Some(displaced) = place.displaced() {
        facts.insert("displaced".into(), displaced.clone().into());
        say(displaced)?;
    }
    Ok(facts)
}

/// How often it is looked how far it is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(300);
/// Disks lose little in a month.
const SCRUB_EVERY: Duration = Duration::from_secs(30 * 24 * 3600);
const SERVER: &str = "godwit-server";
const STOP: &str = "stop the node of this machine";
const STOP_PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_names_the_program_whatever_it_is_called() {
        let program = Path::new("/opt/50% \"odd\"/godwit");
        let server = super::unit(program, Some(Path::new("/etc/$a/c.toml")), None);
        let words = "/godwit\" node --config \"/etc/$$a/c.toml\"\n";
        assert!(server.contains(words), "{server}");
        let unit = unit(program, None, None);
        assert!(
            unit.contains("ExecStart=\"/opt/50%% \\\"odd\\\"/godwit\" node --local\n"),
            "{unit}"
        );
        assert!(unit.contains("Type=simple") && unit.contains("WantedBy=default.target"));
    }

    #[test]
    fn enabled_unit_of_package_is_installed() {
        let folder = env::temp_dir().join(format!("godwit-units-{}", std::process::id()));
        let unit = folder.join("godwit.service");
        let wants = folder.join("default.target.wants");
        fs::create_dir_all(&wants).unwrap();
        let before = is_installed(&unit);
        std::os::unix::fs::symlink("/dev/null", wants.join("godwit.service")).unwrap();
        let after = is_installed(&unit);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((before, after), (false, true));
    }

    /// The account of the builder does not matter: a package has this unit.
    #[test]
    fn server_with_account_begins_without_root() {
        let config = Some(Path::new("/etc/godwit/server.toml"));
        let unit = unit(Path::new("/usr/bin/godwit"), config, Some("godwit"));
        let (_, service) = unit.split_once("[Service]\n").unwrap();
        let (service, install) = service.split_once("\n\n[Install]\n").unwrap();
        for line in [
            "User=godwit",
            "NoNewPrivileges=yes",
            "CapabilityBoundingSet=",
        ] {
            assert!(service.lines().any(|set| set == line), "{line}: {service}");
        }
        assert_eq!(install, "WantedBy=multi-user.target\n");
    }
}
