//! `godwit init`: makes this machine a node, and the first invite to it.

use crate::{
    args::NodeOptions,
    config,
    out::{CliError, Facts, Run, Screen, mark},
    places, units,
};
use clap::Args;
use godwit_node::Config as NodeConfig;
use godwit_store::Error;
use godwit_sys::UserAccount;
use godwit_trust::{INVITE_LIFETIME_MAX, Invite, PeersDir};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::fs::{DirBuilderExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    time::Duration,
};

/// Make this machine a node that others can join
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit init lab --export /data
  godwit init lab --export /data --address fermi.example:13560 --valid 1h
  godwit init laptop --export ~/runs --via lab

What is printed at the end is an invite: one word, good once. Carry it to the other machine,
and say there: godwit join INVITE. From then on both know each other by their keys, and files
are godwit://lab/path there. No name service, account, authority or clock has a say.

With --via, a node that joins comes through that peer, which this machine has joined before (godwit
join) and connects to; this machine need not be reached from anywhere, and opens no port for it.

Said again with the same name and directory, it only prints another invite. What fails leaves
nothing behind.

Exit status: 0; 2 this machine is another node already, or the configuration says something else.")]
pub(crate) struct InitArgs {
    /// How others will call it: letters, digits, - and _
    #[arg(value_name = "NAME")]
    name: String,
    /// The directory that it shares
    #[arg(long, value_name = "DIR")]
    export: PathBuf,
    /// Where it listens [default: [::]:13560; with --via nowhere]
    #[arg(long, value_name = "ADDR:PORT")]
    https: Option<String>,
    /// Where it speaks FTP as well [default: nowhere]
    #[arg(long, value_name = "ADDR:PORT")]
    ftp: Option<String>,
    /// A peer that it is reached through, by its name here; several times for several
    #[arg(long, value_name = "PEER")]
    via: Vec<String>,
    /// Where others reach it, HOST:PORT, several times for several [default: what this machine is called, and its address]
    #[arg(long = "address", value_name = "HOST:PORT")]
    addresses: Vec<String>,
    /// Where the node keeps its key and whom it knows [default: node.state, or ~/.local/state/godwit]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The account of this machine that a joining node acts as, if root starts this node
    #[arg(long = "as", value_name = "ACCOUNT")]
    account: Option<String>,
    /// How long the invite is good (10m, 1d), 30 days at most
    #[arg(long, value_name = "TIME", value_parser = lifetime, default_value = "1d")]
    valid: Duration,
    /// Call this node by another name than before: those that have joined go on by the one that they know
    #[arg(long)]
    rename: bool,
}

impl InitArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("make the node {}", self.name);
        let home = match &self.state {
            Some(state) => PeersDir::at(state),
            None => home(&wanted)?,
        };
        let export = fs::canonicalize(&self.export).and_then(|export| {
            fs::read_dir(&export)?;
            Ok(export)
        });
        let export =
            export.map_err(|cause| CliError::store(&wanted, Error::io(&self.export, cause)))?;
        let mut planned = config::load(&NodeOptions::default())?;
        planned.export.clone_from(&export);
        planned.state = Some(home.path().to_owned());
        may_be_shared(&wanted, &planned)?;
        if let Some(account) = &self.account {
            super::peers::must_be_account(&wanted, account)?;
        }
        let addresses = self.reached_at(&wanted, &home)?;
        let config = self.config(&home, &export);
        self.check(&wanted, &home, &addresses)?;
        let runs_as = runs_as(&wanted, &export)?;
        if let Some(user) = &runs_as {
            must_be_in_reach(&wanted, &home, user)?;
            let usual = planned.peers_account.filter(|name| !name.is_empty());
            let peers = self.account.clone().or(usual);
            may_be_read(&wanted, &export, peers.as_deref().unwrap_or(GUEST))?;
        }
        let written = write_config(&wanted, &config)?;
        let can_listen = match written {
            Written::Now(_) => self.must_be_free(&wanted),
            Written::Before => Ok(()),
        };
        let made = can_listen.and_then(|()| belong(&wanted, &home, runs_as.as_ref()));
        let made = made.and_then(|()| {
            let myself = home.call_myself(&self.name, &addresses);
            let invite =
                myself.and_then(|_| home.invite(self.valid, self.account.as_deref(), false));
            invite.map_err(|error| CliError::trust(&wanted, error))
        });
        let invite = made.inspect_err(|_| written.undo())?;
        if !screen.json() && !screen.quiet() {
            let (name, export) = (&self.name, export.display());
            let line = match written {
                Written::Now(_) => {
                    format!("{name} will share {export}; start it with: godwit node")
                }
                Written::Before => {
                    format!("{name} is a node already, and shares {export}; here is another invite")
                }
            };
            screen
                .line(line)
                .map_err(|error| CliError::store(&wanted, error))?;
        }
        screen.note(&match (&self.account, godwit_sys::user_id()) {
            (Some(account), _) => format!("a node that joins by this invite acts as {account}"),
            (None, 0) => OF_ROOT.to_owned(),
            (None, _) => OF_USER.to_owned(),
        });
        tell(screen, &wanted, &invite, self.valid)
    }

    /// Refuses arguments that cannot work, before anything is written.
    fn check(&self, wanted: &str, home: &PeersDir, addresses: &[String]) -> Run {
        let trust = |error| CliError::trust(wanted, error);
        if let Some(listens) = self.listens() {
            must_listen(wanted, listens)?;
        }
        let myself = home.myself().map_err(trust)?;
        if let Some(before) = myself.filter(|before| before.name != self.name)
            && !self.rename
        {
            let fact = format!("this machine is the node {} already", before.name);
            let next = format!(
                "for another invite: godwit peers invite; to call it {} from now on: --rename",
                self.name
            );
            return Err(CliError::asked(wanted, fact).next(next));
        }
        home.may_be_called(&self.name, addresses).map_err(trust)
    }

    /// Refuses addresses where this machine cannot listen now.
    fn must_be_free(&self, wanted: &str) -> Run {
        let mut told = vec![(
            "ftp.listen",
            "--ftp",
            self.ftp.clone().unwrap_or("none".into()),
        )];
        if let Some(listens) = self.listens() {
            told.push(("https.listen", "--https", listens.to_owned()));
        }
        let read = NodeConfig::load(None, [], &told).map_err(|e| CliError::asked(wanted, e))?;
        for address in read.https.iter().chain(&read.ftp) {
            if let Err(cause) = TcpListener::bind(address) {
                let fact = format!("cannot listen on {address}: {}", godwit_sys::why(&cause));
                let next = "end what listens there (ss -ltnp shows it), or choose another port: --https [::]:PORT";
                return Err(CliError::asked(wanted, fact).next(next));
            }
        }
        Ok(())
    }

    /// Returns the addresses of the node: its own first, then those of peers that lead to it.
    fn reached_at(&self, wanted: &str, home: &PeersDir) -> Run<Vec<String>> {
        let mut addresses = match (self.addresses.is_empty(), self.listens()) {
            (true, Some(listens)) => found(listens),
            _ => self.addresses.clone(),
        };
        through(wanted, home, &self.via, &mut addresses)?;
        Ok(addresses)
    }

    fn listens(&self) -> Option<&str> {
        match &self.https {
            Some(https) => Some(https),
            None => self.via.is_empty().then_some(EVERYWHERE),
        }
    }

    fn config(&self, home: &PeersDir, export: &Path) -> String {
        let mut text = format!(
            "{MADE}; godwit config show tells what counts.\n\
             [node]\nexport = {:?}\nstate = {:?}\n",
            export.display().to_string(),
            home.path().display().to_string(),
        );
        if !self.via.is_empty() {
            text += &format!("via = {:?}\n", self.via);
        }
        if let Some(listens) = self.listens() {
            text += &format!("\n[https]\nlisten = {listens:?}\n");
        }
        let ftp = self.ftp.as_deref().unwrap_or("none");
        text += &format!("\n[ftp]\nlisten = {ftp:?}\n");
        if godwit_sys::user_id() == 0 && UserAccount::find(GUEST).is_ok() {
            text += &format!(
                "\n# As whom nodes act that joined without --as.\n[peers]\naccount = {GUEST:?}\n"
            );
        }
        text + "\n# Who does not say who they are.\n[anonymous]\naccess = \"none\"\n"
    }
}

/// Refuses to export a user's home, or a directory with the key or state of the node in it.
pub(super) fn may_be_shared(wanted: &str, config: &NodeConfig) -> Run {
    let Ok(export) = fs::canonicalize(&config.export) else {
        return Ok(()); // The error appears when it is opened.
    };
    let refuse = |what: &str, path: &Path, more: &str| {
        let fact = format!("{} {what} {}", export.display(), path.display());
        let next = format!("serve another directory, made for that: --export DIR{more}");
        Err(CliError::asked(wanted, fact).next(next))
    };
    let home = env::var_os("HOME").filter(|home| !home.is_empty());
    if let Some(home) = home.and_then(|home| fs::canonicalize(home).ok())
        && home == export
        && config.hop.is_none()
    {
        return refuse("is your home:", &home, " (one below it, for example)");
    }
    // The spool of a hop is its own directory, and no client sees a name of it.
    let own = match config.hop {
        Some(_) => return Ok(()),
        None => [
            config.state.clone(),
            config::home().map(|home| home.path().into()),
        ],
    };
    let keys = [config.trust.key.clone(), config.trust.certificate.clone()];
    for path in own.into_iter().chain(keys).flatten() {
        if fs::canonicalize(&path).is_ok_and(|path| path.starts_with(&export)) {
            let more = "; or keep them elsewhere: --state DIR";
            return refuse("holds this node's own key or state:", &path, more);
        }
    }
    Ok(())
}

/// Adds the addresses of the peers through which this node is reached.
pub(crate) fn through(
    wanted: &str,
    home: &PeersDir,
    names: &[String],
    addresses: &mut Vec<String>,
) -> Run<()> {
    for name in names {
        let peer = home.peer(name);
        let peer = peer.map_err(|error| CliError::trust(wanted, error))?;
        let of_peer = peer.map(|peer| peer.addresses).unwrap_or_default();
        if of_peer.is_empty() {
            let fact = format!("no address of a peer called {name} is known here");
            let next = "join it first: godwit join INVITE; godwit peers shows who is known";
            return Err(CliError::asked(wanted, fact).next(next));
        }
        for address in of_peer {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    Ok(())
}

/// Returns the addresses at which others reach a listener.
fn found(listens: &str) -> Vec<String> {
    let first = listens.split(',').next().unwrap_or_default().trim();
    let port = first.rsplit(':').next().unwrap_or_default();
    match first.parse::<SocketAddr>() {
        Ok(address) if !address.ip().is_unspecified() => vec![address.to_string()],
        _ => godwit_sys::names_of_this_machine()
            .into_iter()
            .map(|name| match name.contains(':') {
                true => format!("[{name}]:{port}"),
                false => format!("{name}:{port}"),
            })
            .collect(),
    }
}

/// Returns the account that the node will run as if root starts it. `None`: this program is not run by root.
fn runs_as(wanted: &str, export: &Path) -> Run<Option<UserAccount>> {
    if godwit_sys::user_id() != 0 {
        return Ok(None);
    }
    let named = config::load(&NodeOptions::default())?.accounts.user;
    let user = match &*named {
        "" => UserAccount::owner_of(export),
        name => UserAccount::find(name),
    };
    user.map(Some).map_err(|cause| {
        let fact = format!("as whom would the node run? {}", godwit_sys::why(&cause));
        CliError::asked(wanted, fact).next("see node.user in: godwit config show")
    })
}

/// Refuses a home that the node cannot read once it has given up root.
fn must_be_in_reach(wanted: &str, home: &PeersDir, user: &UserAccount) -> Run {
    let io = |cause| CliError::store(wanted, Error::io(home.path(), cause));
    let path = std::path::absolute(home.path()).map_err(io)?;
    let there = path.ancestors().find(|dir| dir.exists());
    let there = there.unwrap_or(Path::new("/"));
    // If it cannot be found out here, godwit node finds it out.
    if !there.is_dir() || user.may_enter(there).unwrap_or(true) {
        return Ok(());
    }
    let user = &user.name;
    let fact = format!(
        "the node would run as {user} and keep its key in {}, but {user} may not enter {}",
        path.display(),
        there.display()
    );
    Err(CliError::asked(wanted, fact).next(to_be_in_reach(user)))
}

/// Refuses an export that the account of joining nodes cannot open: an invite to it would be of no use.
fn may_be_read(wanted: &str, export: &Path, account: &str) -> Run {
    let closed =
        UserAccount::find(account).is_ok_and(|user| !user.may_enter(export).unwrap_or(true));
    if !closed {
        return Ok(());
    }
    let fact = format!(
        "a node that joins would act as {account}, and {account} may not enter {}",
        export.display()
    );
    let next =
        "name an account that may, whose rights it gets: --as ACCOUNT; or share another directory";
    Err(CliError::asked(wanted, fact).next(next))
}

/// Says what to do if the account of a node cannot reach its state.
pub(crate) fn to_be_in_reach(user: &str) -> String {
    format!(
        "run godwit init and godwit node as {user}, or give both --state DIR that {user} can reach"
    )
}

/// Gives a home that root makes to the account that the node will run as.
fn belong(wanted: &str, home: &PeersDir, user: Option<&UserAccount>) -> Run {
    let Some(user) = user.filter(|_| !home.path().exists()) else {
        return Ok(());
    };
    let give = || {
        lead_to(home.path(), user)?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(home.path())?;
        chown(home.path(), Some(user.uid), Some(user.gid))
    };
    give().map_err(|cause| CliError::store(wanted, Error::io(home.path(), cause)))
}

/// Makes the directories above a home so that another account can enter them.
fn lead_to(home: &Path, user: &UserAccount) -> io::Result<()> {
    if user.uid == 0 {
        return Ok(());
    }
    let above = home.ancestors().skip(1);
    let missing: Vec<&Path> = above
        .take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists())
        .collect();
    for dir in missing.into_iter().rev() {
        fs::create_dir(dir)?;
        // The umask must not change the mode.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o711))?;
    }
    Ok(())
}

/// Returns the home of this user's node.
pub(crate) fn home(wanted: &str) -> Run<PeersDir> {
    let nowhere = "neither HOME nor XDG_STATE_HOME says where to keep a key";
    config::home().ok_or_else(|| CliError::asked(wanted, nowhere))
}

/// Prints an invite, and what to do with it.
pub(crate) fn tell(screen: &Screen, wanted: &str, invite: &Invite, valid: Duration) -> Run<Facts> {
    let said = match screen.json() {
        true => screen.object(&json!({
            "event": "invite",
            "name": invite.name,
            "invite": invite.to_string(),
            "addresses": invite.addresses,
            "key": invite.key.to_string(),
            "valid_seconds": valid.as_secs(),
        })),
        false if screen.quiet() => screen.line(invite.to_string()),
        false => screen.line(format!(
            "on the other machine, once, within {}:\n  godwit join {invite}",
            units::duration(valid)
        )),
    };
    said.map_err(|error| CliError::store(wanted, error))?;
    Ok(Facts::new())
}

/// Reads the lifetime of an invite.
pub(crate) fn lifetime(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text)?;
    match time > INVITE_LIFETIME_MAX {
        true => Err("an invite is good for 30 days at most".into()),
        false => Ok(time),
    }
}

/// The configuration that a node was made by.
enum Written {
    Before,
    Now(PathBuf),
}

impl Written {
    /// A node that could not be made leaves nothing that says it was.
    fn undo(&self) {
        if let Self::Now(file) = self {
            let _ = fs::remove_file(file);
        }
    }
}

/// Writes the configuration, unless there is one that says something else.
fn write_config(wanted: &str, text: &str) -> Run<Written> {
    let file = config::of_this_user().ok_or_else(|| {
        CliError::asked(
            wanted,
            "neither HOME nor XDG_CONFIG_HOME says where a configuration would be",
        )
    })?;
    match fs::read_to_string(&file) {
        Ok(there) if there == text => return Ok(Written::Before),
        Ok(there) => {
            let differences = differences(&there, text);
            let fact = format!(
                "{} is there already, and says something else: {differences}",
                file.display()
            );
            let next = "say the same as it does, or set these in it, then: godwit peers invite";
            return Err(CliError::asked(wanted, fact).next(next));
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(CliError::store(wanted, Error::io(&file, cause))),
    }
    let write = || {
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
        fs::write(&file, text)
    };
    let written = Written::Now(file.clone());
    match write() {
        Ok(()) => Ok(written),
        Err(cause) => {
            written.undo();
            Err(CliError::store(wanted, Error::io(&file, cause)))
        }
    }
}

/// Lists the keys in which two configurations differ.
fn differences(there: &str, asked: &str) -> String {
    let (there, asked) = (settings(there), settings(asked));
    let or_nothing = |value: Option<&String>| value.map_or("nothing".into(), Clone::clone);
    let keys: BTreeSet<&String> = there.keys().chain(asked.keys()).collect();
    let said: Vec<String> = keys
        .into_iter()
        .map(|key| (key, there.get(key), asked.get(key)))
        .filter(|(_, there, asked)| there != asked)
        .map(|(key, there, asked)| {
            let (there, asked) = (or_nothing(there), or_nothing(asked));
            format!("{key} is {there} there, {asked} was asked")
        })
        .collect();
    match said.is_empty() {
        true => "in how it is written".to_owned(),
        false => said.join("; "),
    }
}

/// Reads a configuration as far as a difference needs it: a key and its value in each line.
fn settings(text: &str) -> BTreeMap<String, String> {
    let mut section = "";
    let mut found = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        let name = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'));
        match (name, line.split_once('=')) {
            (Some(name), _) => section = name.trim(),
            (None, Some((key, value))) if !line.starts_with('#') => {
                let key = format!("{section}.{}", key.trim());
                found.insert(key, value.trim().to_owned());
            }
            _ => {}
        }
    }
    found
}

/// Returns the options of a verb that asks another node.
pub(crate) fn asking() -> Run<godwit_store::RemoteOptions> {
    Ok(godwit_store::RemoteOptions {
        mark: mark(),
        ..godwit_store::RemoteOptions::new(places::cancel()?)
    })
}

/// The first line of a configuration that this verb writes.
pub(super) const MADE: &str = "# Made by godwit init";
/// Note for root about the rights of nodes that join.
const OF_ROOT: &str = "if root starts the node, a node that joins acts as nobody: it reads what every account may \
     read; for more: --as ACCOUNT here, or godwit peers map NAME --as ACCOUNT later";
/// Note for other accounts about the rights of nodes that join.
const OF_USER: &str = "a node that joins may read, write and delete everything in this directory; for one that may \
     only read: godwit peers invite --read-only";
/// The account that peers of a node of root act as by default.
const GUEST: &str = "nobody";
/// The usual port, on every address.
const EVERYWHERE: &str = "[::]:13560";

/// Refuses a text without an address to listen at.
pub(crate) fn must_listen(wanted: &str, text: &str) -> Run {
    let told = [("https.listen", "--https", text.to_owned())];
    let read = NodeConfig::load(None, [], &told).map_err(|error| CliError::asked(wanted, error))?;
    match read.https.is_empty() {
        true => Err(
            CliError::asked(wanted, "a node without a door cannot be joined")
                .next("leave --https out, or name an address and a port"),
        ),
        false => Ok(()),
    }
}
