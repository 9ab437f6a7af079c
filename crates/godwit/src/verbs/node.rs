//! `godwit node`: serves a directory.

use super::{
    Facts, catalog, config, init,
    local::{self, Act},
    serving,
};
use crate::{
    log, names,
    screen::Screen,
    trouble::{CliError, Run},
};
use clap::{Args, ValueEnum};
use godwit_node::{Addresses, Error as NodeError};
use godwit_store::Error;
use serde_json::json;
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Serve a directory over FTP, GridFTP and HTTPS
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  godwit node --export data --ftp 127.0.0.1:2811 --anonymous read
  godwit node --export data --ftp 127.0.0.1:2811 --anonymous write --json
  godwit node --spool spool --next godwit://far/ --ftp 127.0.0.1:2811 --https 13560

Any user can run it. It prints one line when it serves. Port 0 picks a free one. Your home, and a
directory that holds this node's key or state, are refused. SIGTERM or ^C lets transfers end, a
second one ends them; SIGHUP has it read its configuration again. Started by root it runs as the
owner of the export, or as node.user. docs/guide/serving.md explains hops, certificates and
accounts; man godwit-node lists the rarer options, godwit config show all settings.

Exit status: 0 after it was told to stop; 2 a wrong option or key, or an export that may not be
read; 1 it cannot listen."
)]
pub(crate) struct Node {
    #[command(flatten)]
    told: Told,
    /// Talk with one client over standard input and output, with all your rights, and end with
    /// it: for ssh, which has let it in. Data goes over connections of its own, in clear
    /// [--export is / then]
    #[arg(hide_short_help = true, long, conflicts_with_all = ["ftp", "anonymous"])]
    stdio: bool,
    /// Serve nobody but your programs on this machine: keep files of others for them, and deliver what
    /// they put. Programs start it by themselves
    #[arg(long, conflicts_with_all = ["stdio", "ftp", "https", "export", "via", "anonymous"])]
    local: bool,
    /// With --local: where your programs find it [default: GODWIT_SOCKET, see godwit help env]
    #[arg(hide_short_help = true, long, value_name = "PATH", requires = "local")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    act: Option<Act>,
}

/// What a node can be told on the command line; `config show` takes the same.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Told {
    /// The directory that is served [default: .]
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Serve what is at --next instead of a directory: keep what is written in this directory, and pass it on
    #[arg(long, value_name = "DIR", requires = "next", conflicts_with = "export")]
    spool: Option<PathBuf>,
    /// With --spool: the node or server that it goes to, which this node reaches as itself
    #[arg(long, value_name = "URL", requires = "spool")]
    next: Option<String>,
    /// With --spool: keep what is read as well, as long as there is room, for whoever reads it again
    #[arg(long, requires = "spool")]
    cache: bool,
    /// Where FTP is spoken, IPv6 in brackets; several with commas; none: nowhere [default: [::]:2811]
    #[arg(long, value_name = "ADDRESS:PORT")]
    ftp: Option<String>,
    /// Where other godwits find the door to this node: address and port, or only a port, commas
    /// between several; none: nowhere [default: nowhere; the usual port is 13560]
    #[arg(long, value_name = "ADDR:PORT")]
    https: Option<String>,
    /// A peer that this node is reached through as well, by its name here: connections to it wait for
    /// visitors, so none need reach this machine. It sees no byte of what is said; several may be named
    #[arg(long, value_name = "PEER")]
    via: Vec<String>,
    /// What those may do who do not say their name [default: none]
    #[arg(long, value_enum, value_name = "RIGHT")]
    anonymous: Option<Anonymous>,
    /// Certificate of this host, for GSI and TLS [default: where everybody keeps it, or your own]
    #[arg(long, value_name = "FILE")]
    host_cert: Option<PathBuf>,
    /// Its private key [default: in the file of the certificate]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "FILE",
        requires = "host_cert"
    )]
    host_key: Option<PathBuf>,
    /// Directory of the authorities whose word counts [default: X509_CERT_DIR, or the usual]
    #[arg(hide_short_help = true, long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// Who may log in by GSI, beside you, and by Kerberos [default: GRIDMAP, or the usual]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    gridmap: Option<PathBuf>,
    /// Keys of ftp/HOST or host/HOST, for logins by Kerberos; none: no Kerberos
    /// [default: KRB5_KTNAME, or /etc/krb5.keytab]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    keytab: Option<PathBuf>,
    /// Who may log in by a password or a token, under TLS: the lines of godwit auth password [default: nobody]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    passwords: Option<PathBuf>,
    /// The key that all nodes of a cluster share: whoever has it may act for anybody [default: no cluster]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    cluster_key: Option<PathBuf>,
    /// Rules that say who may do what where, as godwit auth explains them; what none allows is denied
    /// [default: what the account may, and --anonymous]
    #[arg(hide_short_help = true, long, value_name = "FILE")]
    rights: Option<PathBuf>,
    /// With --catalog: the site of it that this node is, whose rights (godwit auth allow) it obeys for the bytes too
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    site: Option<String>,
    /// Write every transfer down in transfers.jsonl there; what a resume needs lies beside the files
    /// [default: none is written]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// A node that serves the same files and makes striped transfers for this one; several may be named
    #[arg(hide_short_help = true, long, value_name = "HOST:PORT")]
    stripe_member: Vec<String>,
    /// Read this configuration file instead of the usual one
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Anonymous {
    /// Nothing.
    None,
    /// Read and list.
    Read,
    /// Write as well.
    Write,
}

impl Node {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        if let Some(act) = self.act {
            return act.run(screen);
        }
        if self.local {
            return local::serve(screen, self.socket.as_deref(), self.told.state.as_deref());
        }
        let mut config = config::load(&self.told)?;
        if self.stdio && self.told.export.is_none() {
            config.export = "/".into();
        }
        if !self.stdio {
            init::may_be_shared(&format!("serve {}", config.export.display()), &config)?;
        }
        if let Some(hop) = &mut config.hop {
            hop.on_fault = local::on_fault()?;
        }
        log::start(screen.tone(), config.log_level());
        for name in &config.unread {
            tracing::warn!(name, "nothing reads this variable");
        }
        let export = config.export.clone();
        let state = config.state.clone();
        let was_root = godwit_sys::user_id() == 0;
        let wanted = format!("serve {}", export.display());
        let next = config.hop.as_ref().map(|hop| hop.next.to_string());
        let mut announced = None;
        let ready = |addresses: &Addresses| {
            let told = told(&export, next.as_deref(), addresses);
            // A server that cannot write it down serves all the same.
            announced = serving::announce(state.as_deref(), &told).ok();
            let _ = tell(screen, &told).and_then(|()| screen.flush());
        };
        let ftp = config.ftp.clone();
        let is_of_ftp = |address| ftp.contains(&address);
        let served = if self.stdio {
            godwit_node::attend(config)
        } else {
            godwit_node::run(config, config::again(&self.told), ready)
        };
        match served {
            Ok(()) => Ok(Facts::new()),
            Err(error @ NodeError::BadValue { .. }) => Err(CliError::asked(wanted, error)),
            Err(NodeError::Export { cause, .. }) => {
                let is_missing = matches!(cause, Error::Missing { .. });
                let trouble = CliError::store(wanted, cause);
                Err(match is_missing {
                    true => trouble.next(format!("mkdir -p {} makes it", export.display())),
                    false => trouble,
                })
            }
            Err(error @ NodeError::Closed { .. }) => Err(CliError::asked(wanted, error).next(
                "let that account enter it (chmod, chown, setfacl; the directories above it too), \
                 or start the node as somebody who may",
            )),
            Err(NodeError::State { path, cause }) => {
                let trouble = CliError::store(wanted, Error::io(path, cause));
                Err(trouble.next("name another directory with --state, or none"))
            }
            Err(
                NodeError::Trust(error)
                | NodeError::Gridmap(error)
                | NodeError::Rights(error)
                | NodeError::Passwords(error),
            ) => {
                let hint = match was_root.then(|| out_of_reach(&error, state.as_deref())) {
                    Some(Some(user)) => Some(init::to_be_in_reach(&user)),
                    _ => error.hint(),
                };
                let trouble = CliError::asked(wanted, error);
                Err(match hint {
                    Some(hint) => trouble.next(hint),
                    None => trouble,
                })
            }
            Err(error @ NodeError::Via { .. }) => Err(CliError::asked(wanted, error).next(
                "godwit peers shows who is known; godwit join INVITE makes one known, with its addresses",
            )),
            Err(error @ NodeError::Spool { .. }) => Err(CliError::asked(wanted, error)
                .next("name a directory with --spool that is empty, or a spool that no other node has")),
            Err(NodeError::Catalog { text, refusal }) => {
                Err(catalog::refused(&format!("know the names of {text}"), &refusal))
            }
            Err(error @ NodeError::NoTls) => Err(CliError::asked(wanted, error)
                .next("name one with --host-cert (godwit ca issue --host makes one)")),
            Err(error @ NodeError::Homeless) => Err(CliError::asked(wanted, error)
                .next("name one with --state DIR, or make this machine a node: godwit init NAME")),
            Err(error @ NodeError::Nowhere) => Err(CliError::asked(wanted, error)
                .next("say where: --ftp ADDRESS:PORT, --https ADDR:PORT or --via PEER")),
            Err(error) => {
                let next = match &error {
                    NodeError::Privilege { .. } => {
                        "see node.user and anonymous.account in: godwit config show".to_owned()
                    }
                    NodeError::Listen { address, .. } => elsewhere(is_of_ftp(*address)),
                    _ => "choose another address or port; port 0 is any free one".to_owned(),
                };
                let cause = std::io::Error::other(error.to_string());
                Err(CliError::store(wanted, Error::system(export.clone(), cause)).next(next))
            }
        }
    }
}

/// Returns who cannot read the state of the node, if it is that: whoever it runs as instead of root.
fn out_of_reach(error: &godwit_trust::Error, state: Option<&Path>) -> Option<String> {
    let godwit_trust::Error::Io { path, cause } = error else {
        return None;
    };
    let uid = godwit_sys::user_id();
    let is_denied = cause.kind() == ErrorKind::PermissionDenied;
    let is_ours = uid != 0 && is_denied && path.starts_with(state?);
    let user = godwit_sys::User::of_number(uid).ok().filter(|_| is_ours)?;
    Some(user.name)
}

/// Says by which option a node that finds an address taken can be elsewhere.
fn elsewhere(is_of_ftp: bool) -> String {
    let (option, what) = match is_of_ftp {
        true => ("--ftp", "FTP"),
        false => ("--https", "door"),
    };
    format!(
        "choose another address or port for it with {option} ADDRESS:PORT (port 0 is any free one); {option} none: \
         no {what}"
    )
}

/// Returns what a server says of itself.
fn told(export: &Path, next: Option<&str>, addresses: &Addresses) -> serde_json::Value {
    let urls = addresses
        .ftp
        .iter()
        .map(|address| format!("ftp://{address}/"));
    let doors = addresses.https.iter();
    let doors = doors.map(|address| format!("godwit://{address}/"));
    json!({
        "event": "serving",
        "export": export.to_string_lossy(),
        "next": next,
        "ftp": addresses.ftp.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "https": addresses.https.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "urls": urls.chain(doors).collect::<Vec<_>>(),
        "pid": std::process::id(),
    })
}

fn tell(screen: &Screen, told: &serde_json::Value) -> Result<(), Error> {
    match screen.json() {
        true => screen.object(told),
        false => screen.line(format!("serving {}", served(told))),
    }
}

/// Says of a server what it serves, and where.
pub(super) fn served(told: &serde_json::Value) -> String {
    let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
    let urls = told["urls"].as_array().into_iter().flatten();
    let urls: Vec<&str> = urls.filter_map(serde_json::Value::as_str).collect();
    let at = match urls.is_empty() {
        true => "through its peers only".to_owned(),
        false => format!("at {}", urls.join(" ")),
    };
    match told["next"].is_string() {
        true => format!("{} by way of {} {at}", text("next"), text("export")),
        false => format!("{} {at}", text("export")),
    }
}

impl Told {
    /// Returns what was said as keys of the configuration.
    pub(crate) fn flags(&self) -> Vec<(&'static str, &'static str, String)> {
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let access = |access: Anonymous| match access {
            Anonymous::None => "none".to_owned(),
            Anonymous::Read => "read".to_owned(),
            Anonymous::Write => "write".to_owned(),
        };
        let several = |names: &[String]| Some(names.join(",")).filter(|names| !names.is_empty());
        [
            (
                "stripes.members",
                "--stripe-member",
                several(&self.stripe_member),
            ),
            ("node.export", "--export", self.export.as_ref().map(path)),
            ("node.spool", "--spool", self.spool.as_ref().map(path)),
            ("node.next", "--next", self.next.clone()),
            (
                "node.cache",
                "--cache",
                self.cache.then(|| "true".to_owned()),
            ),
            ("node.via", "--via", several(&self.via)),
            ("catalog.url", "--catalog", names::said()),
            ("catalog.site", "--site", self.site.clone()),
            ("node.rights", "--rights", self.rights.as_ref().map(path)),
            ("node.state", "--state", self.state.as_ref().map(path)),
            ("ftp.listen", "--ftp", self.ftp.clone()),
            ("https.listen", "--https", self.https.clone()),
            (
                "trust.certificate",
                "--host-cert",
                self.host_cert.as_ref().map(path),
            ),
            ("trust.key", "--host-key", self.host_key.as_ref().map(path)),
            (
                "trust.authorities",
                "--ca-dir",
                self.ca_dir.as_ref().map(path),
            ),
            (
                "trust.gridmap",
                "--gridmap",
                self.gridmap.as_ref().map(path),
            ),
            (
                "kerberos.keytab",
                "--keytab",
                self.keytab.as_ref().map(path),
            ),
            (
                "passwords.file",
                "--passwords",
                self.passwords.as_ref().map(path),
            ),
            (
                "cluster.key",
                "--cluster-key",
                self.cluster_key.as_ref().map(path),
            ),
            (
                "anonymous.access",
                "--anonymous",
                self.anonymous.map(access),
            ),
        ]
        .into_iter()
        .filter_map(|(key, flag, value)| Some((key, flag, value?)))
        .collect()
    }
}
