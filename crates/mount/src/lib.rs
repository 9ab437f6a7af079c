//! Files of other machines as a mounted directory, for programs that know nothing of godwit.
//!
//! The kernel asks through FUSE, and the node of this machine does the work: this crate translates. It keeps only
//! names, and the descriptors of open files. It runs outside of the program that uses it.

mod asking;
mod body;
mod changes;
mod face;
mod facts;
mod handing;
mod nodes;
mod parts;
mod reader;
mod syncing;
mod walking;
mod workers;
mod written;

use asking::NodeTalk;
use face::Face;
use fuser::{Config, MountOption, Session, SessionACL};
use godwit_local::{Environment, Owner, Refusal, Result};
use godwit_wire::local::{
    Request, Response,
    request::{Hello, Selector, Wait},
    response,
};
use nodes::Nodes;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::{BTreeSet, HashMap},
    fmt, io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use workers::Workers;
use written::Open;

/// Files of other machines, as the kernel sees them.
#[derive(Clone)]
pub struct Mount(Arc<Shared>);

/// How a mount is served.
pub struct MountRules {
    /// How long a reader waits for a server that is away.
    pub wait: Duration,
    /// Returns what the mount says of itself to the node.
    pub hello: fn(Environment<'_>) -> Hello,
    /// The session of all writes.
    pub session: String,
    /// Whether an fsync waits for delivery.
    pub fsync_pushes: bool,
    /// Receives refusals of which a program sees only an errno(3).
    pub report: Box<dyn Fn(&Refusal) + Send + Sync>,
}

/// A file that is not kept as it was written.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Its path below `/godwit`.
    pub url: String,
    /// The bytes that were written by then are kept; else none are.
    pub is_partial: bool,
}

/// All that the threads of a mount share.
pub(crate) struct Shared {
    asking: NodeTalk,
    nodes: Mutex<Nodes>,
    /// Notified when a file ceases to be busy.
    settled: Condvar,
    open: Mutex<HashMap<u64, Open>>,
    last_handle: AtomicU64,
    lost: Mutex<Vec<Lost>>,
}

impl Mount {
    /// Returns a mount of which nothing is known yet.
    pub fn new(rules: MountRules) -> io::Result<Self> {
        let owner = Owner {
            hello: rules.hello,
            on_socket: |_| (),
            session: Some(rules.session.clone()),
        };
        Ok(Self(Arc::new(Shared {
            asking: NodeTalk::new(owner, rules)?,
            nodes: Mutex::new(Nodes::new()),
            settled: Condvar::new(),
            open: Mutex::default(),
            last_handle: AtomicU64::new(0),
            lost: Mutex::default(),
        })))
    }

    /// Finds the node of this machine, and starts one if none listens.
    pub fn begin(&self) -> Result<()> {
        self.0.asking.talk.ask_twice(&Request::Status).map(drop)
    }

    /// Serves the kernel by a descriptor of `/dev/fuse` until nothing uses the mount, and hands in all that was written.
    pub fn serve(&self, device: OwnedFd) -> io::Result<()> {
        let (face, config) = self.face();
        // The kernel lets the owner of the mount in, and no other.
        self.answer(Session::from_fd(face, device, SessionACL::All, config)?)
    }

    /// Mounts on a directory, calls `mounted`, and serves until it is unmounted. `source` is what tables of mounts show.
    pub fn serve_at(&self, at: &Path, source: &str, mounted: impl FnOnce()) -> io::Result<()> {
        let (face, mut config) = self.face();
        config.mount_options = vec![
            MountOption::FSName(source.to_owned()),
            MountOption::Subtype("godwit".into()),
            MountOption::NoDev,
            MountOption::NoSuid,
        ];
        let session = Session::new(face, at, &config)?;
        mounted();
        self.answer(session)
    }

    fn face(&self) -> (Face, Config) {
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        (Face::new(Arc::clone(&self.0), Workers::default()), config)
    }

    /// Answers the kernel until nothing uses the mount, and hands in all that was written.
    fn answer(&self, session: Session<Face>) -> io::Result<()> {
        let served = session.run();
        self.0.end_all();
        served
    }

    /// Waits until the written files have what `promise` says.
    pub fn keep(&self, promise: Wait) -> Result<response::Done> {
        let whose = Selector {
            session: Some(self.0.asking.rules.session.clone()),
            ..Selector::default()
        };
        let ask = match promise {
            Wait::Nothing => return Ok(response::Done::default()),
            Wait::Commit => Request::Commit(whose),
            Wait::Push => Request::Push(whose),
        };
        match self.0.asking.talk.ask_twice(&ask)?.1.tell {
            Response::Done(done) => Ok(done),
            other => Err(godwit_local::odd(&other)),
        }
    }

    /// Tells whether the node ended that had a file which is written now: it is lost.
    pub fn is_broken(&self) -> bool {
        let eras: BTreeSet<u64> = {
            let open = self.0.open.lock();
            open.values().filter_map(Open::era).collect()
        };
        eras.into_iter().any(|era| self.0.asking.talk.is_lost(era))
    }

    /// Returns the files that are not kept as they were written; each was reported.
    pub fn lost(&self) -> Vec<Lost> {
        self.0.lost.lock().clone()
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mount").finish_non_exhaustive()
    }
}

/// How many threads read what the kernel asks.
const THREADS: usize = 2;
