//! The node of this machine as it is begun and ended by hand: `godwit node --local`, `install`, `stop` and `status`.

use super::served;
use crate::{
    args::NodeOptions,
    client::{self, hello, variable},
    config,
    out::{CliError, Facts, Run, Screen, log},
    units,
    verbs::serving,
};
use clap::{Args, Subcommand};
use godwit_local::{Kind, NodePlace, Refusal, lock_within, odd};
use godwit_node::{LocalRules, OnFault, Routes, run_local};
use godwit_store::Error;
use godwit_wire::local::{Request, Response};
use serde_json::json;
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// An action on the node of this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeAction {
    /// Have the cache service (for put and get) or the server begin by systemd
    Install(InstallArgs),
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
pub(crate) struct InstallArgs {
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

impl NodeAction {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        match self {
            Self::Install(install) => install.run(screen),
            Self::Stop => stop(screen),
            Self::Status => status(screen),
        }
    }
}

/// Runs the node of this machine.
pub(super) fn serve(screen: &Screen, socket: Option<&Path>, state: Option<&Path>) -> Run<Facts> {
    log::start(screen.tone(), "info");
    let ended = begin(screen, socket, state);
    if let Err(refusal) = &ended
        && screen.json()
    {
        // The program that started this node reads one line.
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

/// Returns the command that is told of lasting faults.
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

/// Refuses a socket in the spool of a hop: only the hop knows the pending files there.
fn must_not_be_a_hops(place: &NodePlace) -> Result<(), Refusal> {
    let dir = place.socket.parent().unwrap_or(Path::new("/"));
    if !dir.join("held.db").exists() {
        return Ok(());
    }
    let why = format!("{} is the spool of a hop that does not run", dir.display());
    Err(Refusal::new(Kind::NoNode, "be the node of this machine", why)
        .next("start the hop (godwit node --spool DIR --next URL), or name another socket in GODWIT_SOCKET"))
}

fn begin(screen: &Screen, socket: Option<&Path>, state: Option<&Path>) -> Result<(), Refusal> {
    let place = NodePlace::of(socket, state, &variable)?;
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
        export: config::load(&NodeOptions::default())
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
        // The program that started this node is served even if it does not listen.
        let _ = told.and_then(|()| screen.flush());
    };
    run_local(rules, config::home(), ready).map_err(|error| error.refusal())
}

/// Returns how often kept files are read again and compared.
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

/// Returns the routes over hops.
fn routes() -> Result<Routes, Refusal> {
    let config = config::load(&NodeOptions::default());
    let config = config.map_err(|error| {
        let fact = CliError::from(error).to_string();
        let fact = fact.lines().nth(1).unwrap_or(&fact).trim();
        Refusal::new(Kind::Invalid, "know the routes", fact)
            .next("godwit config show says what is wrong with the configuration")
    })?;
    Ok(config.routes)
}

impl InstallArgs {
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

/// Returns the path of the unit of this account's server, which need not exist.
pub(crate) fn server_unit() -> Option<PathBuf> {
    match godwit_sys::user_id() {
        0 => Some("/etc/systemd/system/godwit-server.service".into()),
        _ => Some(unit_file()?.with_file_name("godwit-server.service")),
    }
}

fn unit_file() -> Option<PathBuf> {
    let config = config::directory("XDG_CONFIG_HOME", ".config");
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

fn stop(screen: &Screen) -> Run<Facts> {
    let mut facts = Facts::new();
    let Some(mut here) = client::there()? else {
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
    // A living node has the lock beside its socket.
    let place = NodePlace::find(&variable)?;
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
    let servers = serving::running(config::load(&NodeOptions::default())?.state.as_deref());
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
    let Some(mut here) = client::there()? else {
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
    let pending = match status.owed_files {
        0 => "nothing is pending".to_owned(),
        files => format!(
            "{files} files with {} are pending",
            units::size(status.owed_bytes)
        ),
    };
    say(format!(
        "cache service: process {}, state in {}, {pending}",
        status.process, status.state
    ))?;
    let place = NodePlace::find(&variable)?;
    if let Some(displaced) = place.displaced() {
        facts.insert("displaced".into(), displaced.clone().into());
        say(displaced)?;
    }
    Ok(facts)
}

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
    fn unit_quotes_path_of_program() {
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
