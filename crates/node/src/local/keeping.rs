//! The handler of a node with a depot.

use crate::{
    access::connect::connect as connect_with,
    access::names::CatalogNames,
    config::routes::Routes,
    local::{
        StartNode,
        asks::{fill::FillHandle, share::ShareTable},
        client::Client,
        peer_in::PeerClient,
        refusals,
        server::{Connection, Handler, Visitor},
    },
};
use godwit_core::Url;
use godwit_depot::{Depot, Who};
use godwit_local::Refusal;
use godwit_store::channel::Cancel;
use godwit_trust::PeersDir;
use godwit_wire::local::response;
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize},
    },
};

/// State that all connections of a node with a depot share.
pub(crate) struct DepotState {
    pub(crate) depot: Arc<Depot>,
    pub(crate) connect: godwit_depot::Connect,
    /// Ends conversations with servers, also those that say nothing.
    pub(crate) cancel: Cancel,
    pub(crate) bounds: NodeFacts,
    /// Files already tagged for a job, so that a second opening writes nothing.
    pub(crate) kept: Mutex<HashSet<(String, Url, String)>>,
    /// The node's own credential and peers.
    pub(crate) home: Option<PeersDir>,
    /// Which hop leads where.
    pub(crate) routes: Routes,
    /// Names that are locked beyond the connection of who locked them.
    pub(crate) added: Mutex<HashMap<(Url, String), FillHandle>>,
    /// Finds the depots of other machines: no route leads around them.
    pub(crate) direct: godwit_depot::Connect,
    /// How many visitors have something fetched.
    pub(crate) fetching: AtomicUsize,
    /// Files that programs of this machine write together.
    pub(crate) shared: ShareTable,
    /// Held while it is decided what visitors keep.
    pub(crate) visitors: Mutex<()>,
}

/// Facts about the node and how long it lives.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    /// Starts the nodes that programs ask for; `None`: programs cannot ask.
    pub(crate) serve: Option<StartNode>,
    /// Where its state is.
    pub(crate) state: PathBuf,
    /// Whether a job started it and will end it.
    pub(crate) is_of_job: bool,
    /// Whether the system starts it again after a reboot.
    pub(crate) is_installed: bool,
    /// The names that programs may use.
    pub(crate) names: Option<CatalogNames>,
    /// The directory that this machine serves to others, as a node of that name.
    pub(crate) export: Option<(String, PathBuf)>,
}

impl DepotState {
    /// Returns the state for a depot whose servers `connect` opens.
    pub(crate) fn new(
        depot: Arc<Depot>,
        (connect, cancel): (godwit_depot::Connect, Cancel),
        (home, routes): (Option<PeersDir>, Routes),
        bounds: NodeFacts,
    ) -> Arc<Self> {
        Arc::new(Self {
            depot,
            connect,
            direct: connect_with(home.clone(), Routes::default(), None, cancel.clone()),
            cancel,
            bounds,
            kept: Mutex::default(),
            home,
            routes,
            added: Mutex::default(),
            fetching: AtomicUsize::default(),
            shared: ShareTable::default(),
            visitors: Mutex::default(),
        })
    }

    pub(crate) fn guest(self: Arc<Self>, visitor: Visitor) -> Client {
        let mut hello = visitor.hello;
        let staying = hello.visitor.take().map(PeerClient::new);
        if staying.is_some() {
            (hello.credential, hello.job) = (None, Default::default());
        }
        let session = hello
            .session
            .unwrap_or_else(|| format!("process-{}-{}", visitor.process, visitor.connection));
        let credential = hello.credential.map(|path| path.0);
        let audience = match (&staying, &credential) {
            (Some(staying), _) => staying.audience(),
            (None, Some(path)) => path.display().to_string(),
            (None, None) => String::new(),
        };
        let scratch = hello.scratch.map(|path| path.0);
        let is_private = scratch.is_some_and(|scratch| self.bounds.state.starts_with(scratch));
        let ends_soon = self.bounds.is_of_job || is_private;
        Client {
            other_names: self.other_names(hello.catalog.as_deref(), staying.is_some()),
            keeping: self,
            who: Who {
                audience,
                credential,
            },
            session,
            connection: format!("connection-{}", visitor.connection),
            job: job_tag(&hello.job),
            staying,
            ends_soon,
            open: Mutex::default(),
            hosts: Mutex::default(),
            appends: Mutex::default(),
            drafts: Mutex::default(),
            knocks: Arc::default(),
            numbers: AtomicU64::new(0),
        }
    }
}

impl Handler for DepotState {
    fn visit(self: Arc<Self>, visitor: Visitor) -> Result<Box<dyn Connection>, Refusal> {
        Ok(Box::new(self.guest(visitor)))
    }

    fn owes(&self) -> bool {
        self.depot.has_pending() || self.depot.is_locked()
    }

    fn status(&self, status: &mut response::Status) {
        let queue = self.depot.queue();
        status.owed_files = queue.len() as u64;
        status.owed_bytes = queue.iter().map(|owed| owed.pending_bytes).sum();
    }

    fn end(&self) {
        self.depot.end();
        self.cancel.cancel();
    }
}

/// Returns the tag for the files of a job, from the first variable that a batch system sets.
fn job_tag(job: &std::collections::BTreeMap<String, String>) -> Option<String> {
    let (name, value) = JOBS
        .iter()
        .find_map(|(variable, name)| Some((name, job.get(*variable)?)))?;
    let tag = format!("{name}-{value}");
    refusals::tag(&tag).is_ok().then_some(tag)
}

const JOBS: [(&str, &str); 6] = [
    ("GODWIT_JOB", "godwit"),
    ("SLURM_JOB_ID", "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("_CONDOR_JOB_AD", "condor"),
    ("JOB_ID", "job"),
];
