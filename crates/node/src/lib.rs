//! The daemon: listeners, rights, and sessions, each a thread with a blocking conversation. `wire` decides about
//! protocols, and `store` about files; this crate connects them.

mod access;
mod base;
mod config;
mod ftp;
mod hop;
mod https;
mod local;
mod relay;
mod serve;
mod shared;
mod task;

pub use access::obeyed::{Asker, Obeyed, read_right};
pub use base::stop::Stop;
pub use config::{
    Access, Allowed, Cluster, Config, ConfigKey, Data, Hop, KEYS, Limits, MODULE_KEYS,
    ModuleConfig, Network, OnFault, PasswordConfig, Routes, Setting, TrustConfig, ValueOrigin,
};
pub use https::calls;
pub use local::{LocalError, LocalRules};
pub use serve::{listener::Node, reload::Reload, stdio::attend};
pub use task::{LineSink, run_task};

use access::accounts::AccountNodes;
use godwit_sys::why;
use godwit_trust::PeersDir;
use godwit_wire::door::call::Refusal;
use std::{borrow::Cow, io, net::SocketAddr, path::PathBuf};

/// Where a node serves.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Addresses {
    /// FTP.
    pub ftp: Vec<SocketAddr>,
    /// The door: HTTPS.
    pub https: Vec<SocketAddr>,
}

/// Why a node cannot run; the first four are of its configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Error {
    #[error("{}: {}", .path.display(), why(.cause))]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{}: {what}", .path.display())]
    NotToml { path: PathBuf, what: String },
    #[error("{origin}: unknown key {key}; did you mean {nearest}?")]
    UnknownKey {
        origin: ValueOrigin,
        key: String,
        nearest: &'static str,
    },
    #[error("{origin}: {key} = {value:?}: {why}")]
    BadValue {
        origin: ValueOrigin,
        key: Cow<'static, str>,
        value: String,
        why: String,
    },
    #[error("cannot serve {}: {cause}", .path.display())]
    Export {
        path: PathBuf,
        cause: godwit_store::Error,
    },
    /// The node's own account may not enter it.
    #[error("{}: {account} may not enter it", .path.display())]
    Closed { path: PathBuf, account: String },
    #[error("cannot listen on {address}: {}", why(.cause))]
    Listen {
        address: SocketAddr,
        cause: io::Error,
    },
    #[error("cannot keep what is on its way in {}: {cause}", .path.display())]
    Spool {
        path: PathBuf,
        cause: Box<godwit_depot::Error>,
    },
    #[error("cannot use the catalog {text}: {}", .refusal.said)]
    Catalog { text: String, refusal: Box<Refusal> },
    #[error("neither ftp.listen nor https.listen nor node.via says where it would serve")]
    Nowhere,
    /// The configuration of GSI cannot be used.
    #[error("cannot prove who this node is: {0}")]
    Trust(godwit_trust::Error),
    #[error("cannot use the gridmap: {0}")]
    Gridmap(godwit_trust::Error),
    #[error("cannot use the rights: {0}")]
    Rights(godwit_trust::Error),
    #[error(
        "a node with --site keeps the rights of the catalog in a file, and has no directory for it"
    )]
    Homeless,
    #[error("cannot use the passwords: {0}")]
    Passwords(godwit_trust::Error),
    #[error("passwords are taken under TLS only, and this node has no certificate of its host")]
    NoTls,
    #[error("cannot be reached through {peer}: {why}")]
    Via { peer: String, why: String },
    #[error("cannot keep state in {}: {}", .path.display(), why(.cause))]
    State { path: PathBuf, cause: io::Error },
    #[error("cannot {what}: {}", why(.cause))]
    Privilege { what: String, cause: io::Error },
    #[error("cannot start: {}", why(.0))]
    Start(#[source] io::Error),
}

/// Checks a configuration as a node does that starts or reloads with it, without serving.
pub fn rehearse(config: &Config) -> Result<(), Error> {
    serve::listener::rehearse(config)
}

/// Serves until it is stopped: the first SIGTERM or SIGINT lets transfers end, a second one ends them. On SIGHUP it
/// reloads with the result of `again`. `ready` receives the addresses once connections are accepted. If root started
/// it, it drops root, and must have one thread then.
pub fn run(
    config: Config,
    again: impl Fn() -> Result<Config, Error> + Send + 'static,
    ready: impl FnOnce(&Addresses),
) -> Result<(), Error> {
    let accounts = AccountNodes::begin(&config)?;
    let node = Node::start_for(config, accounts)?;
    let stop = node.stopper();
    stop.on_signals().map_err(Error::Start)?;
    node.reloader().on_hangup(again).map_err(Error::Start)?;
    ready(node.addresses());
    node.wait();
    Ok(())
}

/// Runs the node of this machine until it is stopped or idle. `home` knows the peers that it has joined; `ready` is
/// called once it listens.
pub fn run_local(
    rules: LocalRules,
    home: Option<PeersDir>,
    ready: impl FnOnce(),
) -> Result<(), LocalError> {
    let serve = |config| Ok(Box::new(Node::start(config)?) as Box<dyn local::ServedNode>);
    local::run(rules, home, serve, ready)
}
