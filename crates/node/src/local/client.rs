//! A connected program: its open files, and the dispatch of its requests.

use crate::local::{
    answers::{LocalResult, done, unknown},
    asks::{
        fill::FillHandle, fragments::FragmentWriter, put::WriteHandle, serve::AccessRequests,
        share::Sharer,
    },
    connection::LocalReply,
    keeping::DepotState,
    peer_in::PeerClient,
    peer_out,
    refusals::url,
    server::Connection,
    stream::AppendPipe,
};
use godwit_core::{Scheme, Url};
use godwit_depot::{Appending, Depot, Editing, Lazily, Reading, Who};
use godwit_farm::FileDraft;
use godwit_local::Refusal;
use godwit_wire::local::{Handle, Request, Response, response};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A program that talks with us.
pub(crate) struct Client {
    pub(crate) keeping: Arc<DepotState>,
    pub(crate) who: Who,
    /// The refusal of names, if they are not those of this node.
    pub(crate) other_names: Option<Refusal>,
    /// Finds the program's writes again after a restart.
    pub(crate) session: String,
    /// Distinguishes this connection from all others.
    pub(crate) connection: String,
    /// The tag that keeps the files of its job.
    pub(crate) job: Option<String>,
    /// The user of another machine for whom the program acts; `None`: it acts for itself.
    pub(crate) staying: Option<PeerClient>,
    /// Whether this disk, or the node itself, ends with the job: bytes that are only local are then not safe.
    pub(crate) ends_soon: bool,
    pub(crate) open: Mutex<HashMap<Handle, OpenHandle>>,
    /// Servers whose names were looked up.
    pub(crate) hosts: Mutex<HashSet<(Scheme, String)>>,
    /// The open logs, by target.
    pub(crate) appends: Mutex<HashMap<Url, Arc<Appending>>>,
    /// Drafts of jobs that it has written its part of: their leases last as long as it does.
    pub(crate) drafts: Mutex<Vec<FileDraft>>,
    /// Visitors that wait for the program's answer.
    pub(crate) knocks: Arc<AccessRequests>,
    pub(crate) numbers: AtomicU64,
}

#[derive(Clone)]
pub(crate) enum OpenHandle {
    /// Keeps the file in the cache while it is read.
    Reading(#[allow(dead_code)] Arc<Reading>),
    /// Read in parts, which come here when they are asked for.
    Lazy(Arc<Lazily>),
    /// Read and written by several programs.
    Shared(Arc<Sharer>),
    Writing(Arc<WriteHandle>),
    /// Written by a descriptor that we see nothing of. Locked while that is on its way.
    Editing(Arc<Mutex<Option<Editing>>>),
    /// Bytes written into it are appended to a file.
    Appending(Arc<AppendPipe>),
    /// A name that is locked.
    Adding(Arc<Mutex<FillHandle>>),
    /// A fragment of a named file that is written.
    Fragment(Arc<Mutex<Option<FragmentWriter>>>),
    /// A local fragment of a named file, open to read.
    Lying,
}

impl Connection for Client {
    fn answer(&self, ask: Request, body: Vec<u8>, reply: &LocalReply) {
        let is_silent = ask.is_silent();
        match self.attend(ask, &body, reply) {
            Ok(None) => {}
            Ok(Some(tell)) => reply.tell(tell),
            Err(refusal) if is_silent => tracing::debug!(%refusal, "a write is passed over"),
            Err(refusal) => reply.refuse(refusal),
        }
    }

    fn answer_at_once(&self, ask: &Request, reply: &LocalReply) -> bool {
        match ask {
            Request::Open(open) if !open.write && self.staying.is_none() => {
                self.must_know_names(ask).is_ok() && self.open_here(open, reply)
            }
            _ => false,
        }
    }
}

impl Client {
    fn attend(&self, ask: Request, body: &[u8], reply: &LocalReply) -> LocalResult {
        self.must_know_names(&ask)?;
        if let Some(staying) = &self.staying {
            return self.attend_visitor(staying, ask, reply);
        }
        if let Some(on) = peer_out::place_of(&ask) {
            return self.ask_elsewhere(&on, ask, reply);
        }
        match ask {
            Request::Open(open) => self.open(&open, reply),
            Request::Ensure(ensure) => self.ensure(&ensure, reply),
            Request::Close(close) | Request::End(close) => self.close(&close, reply),
            Request::Put(put) => self.put(&put, reply),
            Request::Grant(grant) => self.grant(&grant, reply),
            Request::Written(written) => self.written(&written),
            Request::Write(write) => self.write(write.handle, body, reply),
            Request::Commit(whose) => self.commit(&whose, reply),
            Request::Push(whose) => self.push(&whose, reply),
            Request::Get(get) => self.get(&get, reply),
            Request::Memory(place) => self.memory(&place, reply),
            Request::Stat(place) => self
                .look(&url(&place.url)?)
                .map(|stat| Some(Response::Stat(stat))),
            Request::List(place) => self.list(&url(&place.url)?, reply),
            Request::Queue(whose) => self.queue(&whose, reply),
            Request::Retry(place) => self.decide("try to deliver", &place, Depot::retry),
            Request::Release(place) => self.decide("deliver", &place, Depot::release),
            Request::Redirect(redirect) => self.redirect(&redirect),
            Request::Catalog => self.catalog(body, reply),
            Request::Fragments(place) => self.fragments(&place, reply),
            Request::Fragment(asked) => self.fragment(&asked, reply),
            Request::Share(share) => self.share(&share, reply),
            Request::Shared(shared) => self.act(&shared, reply),
            Request::Landed(landed) => self.landed(&landed, body),
            Request::Deed(deed) => self.deed(deed, reply),
            Request::Drop(place) => self.decide("drop", &place, Depot::discard),
            Request::Changed { url: text } => {
                self.keeping.depot.changed(&url(&text)?);
                done(response::Done::default())
            }
            Request::Cache(cache) => self.cache(cache, reply),
            Request::Stage(stage) => self.stage(&stage, reply),
            Request::Unstage(stage) => self.unstage(&stage, reply),
            Request::Append(append) => self.append(&append, body, reply),
            Request::Copy(copy) => self.copy(&copy, reply),
            Request::Serve(serve) => self.serve(&serve, reply),
            Request::AccessReply(told) => {
                self.knocks.answered(&told);
                Ok(None)
            }
            Request::Lines(lines) => self.lines(&lines, body, reply),
            _ => Err(unknown()),
        }
    }

    pub(crate) fn keep(&self, open: OpenHandle) -> Handle {
        let handle = self.number();
        self.open.lock().insert(handle, open);
        handle
    }

    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed) + 1
    }
}
