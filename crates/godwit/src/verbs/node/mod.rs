//! `godwit node`: serves a directory.

pub(crate) mod local;

use self::local::NodeAction;
use crate::{
    args::NodeOptions,
    config,
    out::{CliError, Facts, Run, Screen, log},
    verbs::{catalog, init, serving},
};
use clap::Args;
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
pub(crate) struct NodeArgs {
    #[command(flatten)]
    told: NodeOptions,
    /// Talk with one client over standard input and output, with all your rights, and end with
    /// it: for ssh, which has let it in. Data goes over connections of its own, in clear
    /// [--export is / then]
    #[arg(hide_short_help = true, long, conflicts_with_all = ["ftp", "anonymous"])]
    stdio: bool,
    /// Serve only your programs on this machine: keep remote files for them, and deliver what
    /// they put. Programs start it by themselves
    #[arg(long, conflicts_with_all = ["stdio", "ftp", "https", "export", "via", "anonymous"])]
    local: bool,
    /// With --local: where your programs find it [default: GODWIT_SOCKET, see godwit help env]
    #[arg(hide_short_help = true, long, value_name = "PATH", requires = "local")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    act: Option<NodeAction>,
}

impl NodeArgs {
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
            // A server that cannot write its announcement serves all the same.
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
                 or start the node as an account that may",
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
                Err(CliError::asked(wanted, error).maybe_next(hint))
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

/// Returns the account that the node runs as instead of root, if that account cannot read the state of the node.
fn out_of_reach(error: &godwit_trust::Error, state: Option<&Path>) -> Option<String> {
    let godwit_trust::Error::Io { path, cause } = error else {
        return None;
    };
    let uid = godwit_sys::user_id();
    let is_denied = cause.kind() == ErrorKind::PermissionDenied;
    let is_ours = uid != 0 && is_denied && path.starts_with(state?);
    let user = godwit_sys::UserAccount::of_number(uid)
        .ok()
        .filter(|_| is_ours)?;
    Some(user.name)
}

/// Returns the hint for an address that is taken: the option that changes it.
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

/// Returns the announcement of a server.
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

/// Returns the text of an announcement: the export and its URLs.
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
