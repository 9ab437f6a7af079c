//! The node of one user on one machine: it keeps files of servers for local programs.
//!
//! Programs connect by a UNIX socket ([`godwit_local`]), one connection each. A [`Handler`] answers their requests.
//! This module decides which programs may connect and how many, bounds what each of them can use, and ends the node: on
//! request, or when it is idle with nothing pending.

pub(crate) mod alerts;
mod answers;
mod asks;
pub(crate) mod client;
pub(crate) mod connection;
mod hosts;
mod job;
pub(crate) mod keeping;
mod line;
mod peer_in;
mod peer_out;
mod progress;
mod refusals;
mod rows;
pub(crate) mod server;
pub(crate) mod socket;
mod stream;

#[cfg(test)]
mod tests;

use crate::{
    Error,
    access::{connect::connect as connect_with, names::CatalogNames},
    config::{OnFault, Routes},
};
use alerts::AlertThread;
pub(crate) use asks::serve::{ServedNode, StartNode};
use godwit_depot::{Connect, Depot, Rules};
use godwit_local::{Kind, NodePlace, Refusal};
use godwit_trust::PeersDir;
use keeping::{DepotState, NodeFacts};
use server::LocalNode;
use socket::settle;
use std::{
    fs::{self, File},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// How a local node is to be.
#[derive(Clone, Debug)]
pub struct LocalRules {
    /// The socket, and the directory of the state.
    pub place: NodePlace,
    /// The node ends when it had no connection for this long.
    pub idle: Duration,
    /// How many bytes it may keep; `None`: as many as the disk has.
    pub quota: Option<u64>,
    /// After how long each file that it keeps is read again and compared; `None`: never.
    pub scrub_every: Option<Duration>,
    /// Whether a batch job started it: it ends with the job. The node also detects a job by itself.
    pub is_of_job: bool,
    /// Whether the system starts it at boot.
    pub is_installed: bool,
    /// Receives alerts when pending changes are not delivered.
    pub on_fault: OnFault,
    /// Which hop leads where.
    pub routes: Routes,
    /// The catalog whose names it takes.
    pub catalog: Option<String>,
    /// The directory that this machine serves to others.
    pub export: Option<PathBuf>,
}

/// Why a local node cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// There is one already.
    #[error("a node listens at {} already: process {process}", .socket.display())]
    Taken {
        /// Where.
        socket: PathBuf,
        /// Which.
        process: u32,
    },
    /// Its socket, its state or its depot are of no use.
    #[error("{}", .0.said)]
    Refused(Box<Refusal>),
    /// The system would not let it.
    #[error(transparent)]
    Node(#[from] Error),
}

impl LocalError {
    /// Returns the refusal for programs.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Refused(refusal) => (**refusal).clone(),
            Self::Taken { .. } => Refusal::new(Kind::InUse, WANTED, self.to_string())
                .next("use that one, or name another socket and state: --socket, --state"),
            Self::Node(error) => Refusal::new(Kind::NoNode, WANTED, error.to_string()),
        }
    }
}

impl From<Refusal> for LocalError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Runs the node of this machine until it is stopped or idle. `home` knows the peers that it has joined; `serve` starts
/// the nodes that programs ask for; `ready` is called once it listens.
pub(crate) fn run(
    rules: LocalRules,
    home: Option<PeersDir>,
    serve: StartNode,
    ready: impl FnOnce(),
) -> Result<(), LocalError> {
    let alive = settle(&rules.place)?;
    let names = catalog_of(&rules)?.map(|text| CatalogNames::new(&text, home.as_ref()));
    let myself = home.as_ref().and_then(|home| home.myself().ok().flatten());
    let bounds = NodeFacts {
        serve: Some(serve),
        export: myself.map(|myself| myself.name).zip(rules.export.clone()),
        state: rules.place.state.clone(),
        is_of_job: rules.is_of_job || job::is_within(),
        is_installed: rules.is_installed,
        names,
    };
    let cancel = godwit_store::channel::Cancel::new().map_err(Error::Start)?;
    let (names, routes) = (bounds.names.as_ref(), rules.routes.clone());
    let connect = connect_with(home.clone(), routes, names, cancel.clone());
    let depot = Arc::new(open_depot(&rules, &connect)?);
    let whose = (home, rules.routes.clone());
    let keeping = DepotState::new(depot, (connect, cancel), whose, bounds);
    let watching = AlertThread::start(&keeping, rules.on_fault.clone()).map_err(Error::Start)?;
    let node = LocalNode::start(rules, alive, keeping)?;
    node.stopper().on_signals().map_err(Error::Start)?;
    tracing::info!(socket = %node.server.rules.place.socket.display(), "listen");
    if let Some(displaced) = node.server.rules.place.displaced() {
        tracing::warn!("{displaced}");
    }
    ready();
    node.wait();
    drop(watching);
    Ok(())
}

/// Returns the catalog whose names the node takes: the one of its rules; while something may be pending, the one before.
fn catalog_of(rules: &LocalRules) -> Result<Option<String>, LocalError> {
    let path = rules.place.state.join("catalog");
    let before = fs::read_to_string(&path).ok();
    let catalog = match rules.place.find_unfinished()? {
        true => before.clone().or_else(|| rules.catalog.clone()),
        false => rules.catalog.clone().or_else(|| before.clone()),
    };
    if let (Some(text), true) = (&catalog, catalog != before) {
        let written = fs::write(&path, text).and_then(|()| File::open(&path)?.sync_all());
        written.map_err(Error::Start)?;
    }
    Ok(catalog)
}

fn open_depot(rules: &LocalRules, connect: &Connect) -> Result<Depot, LocalError> {
    let limits = Rules {
        quota: rules.quota,
        scrub_every: rules.scrub_every,
        ..Rules::default()
    };
    let root = rules.place.state.join("depot");
    Depot::open(&root, limits, Arc::clone(connect))
        .map_err(|error| refusals::depot("keep files here", None, &error).into())
}

pub(crate) const WANTED: &str = "be the node of this machine";
