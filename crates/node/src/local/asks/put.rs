//! Putting a file: granted ranges, writes in bodies, and the names that must be new.

use crate::local::{
    answers::{LocalResult, not_open},
    client::{Client, OpenHandle},
    connection::LocalReply,
    refusals,
};
use godwit_core::Fault;
use godwit_core::{
    Url,
    holding::{Base, Ticket},
};
use godwit_depot::{By, Error, Put, Writing};
use godwit_local::{Kind, Refusal};
use godwit_wire::{
    door::call::DoorVersion,
    local::{Handle, Response, records, request, response},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs::File,
    ops::Range,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A file that a program writes.
pub(crate) struct WriteHandle {
    pub(crate) url: Url,
    pub(crate) writing: Writing,
    pub(crate) grants: Mutex<HashMap<u64, (Range<u64>, Ticket)>>,
    /// Whether each write is reported; if not, the whole file counts as written when it ends.
    pub(crate) is_told: AtomicBool,
    /// The first failure among writes that are not answered.
    pub(crate) failed: Mutex<Option<Refusal>>,
}

/// How a file is put.
enum PutMode {
    /// Replaces the file.
    Anew(Base),
    /// Patches the file.
    Into,
}

impl Client {
    pub(crate) fn put(&self, put: &request::PutRequest, reply: &LocalReply) -> LocalResult {
        let url = self.target_found(&put.url, reply)?;
        let base = match (&put.base, put.new) {
            (_, true) if put.at_server => self.made_at_server(&url, put.mode, reply)?,
            (_, true) => Base::Absent,
            (None, false) => Base::Any,
            (Some(version), false) => Base::Seen(version.clone().into()),
        };
        let how = match put.in_place {
            true => PutMode::Into,
            false => PutMode::Anew(base),
        };
        self.begin(&url, how, put, reply)
    }

    fn begin(
        &self,
        url: &Url,
        how: PutMode,
        put: &request::PutRequest,
        reply: &LocalReply,
    ) -> LocalResult {
        let wanted = format!("write {}", url.without_password());
        let bad = |error: Error| refusals::depot(&wanted, Some(url), &error);
        let (depot, session) = (&self.keeping.depot, self.session.clone());
        let version = match &how {
            PutMode::Anew(Base::Seen(version)) => version.clone().into(),
            _ => DoorVersion::None,
        };
        let begun = match how {
            PutMode::Anew(base) => depot.put(url, &self.who, &Put { base, session }),
            PutMode::Into => depot.patch(url, &self.who, &session),
        };
        let begun = begun.map_err(|error| of_new(bad(error)))?;
        if let Some(mode) = put.mode {
            begun.set_mode(mode);
        }
        if let Some(size) = put.size {
            begun.take_room(size, &waiting(reply)).map_err(bad)?;
        }
        let file = match put.packed {
            true => None,
            false => Some(begun.file().map_err(bad)?),
        };
        let pen = WriteHandle {
            url: url.clone(),
            writing: begun,
            grants: Mutex::default(),
            is_told: AtomicBool::new(put.packed),
            failed: Mutex::default(),
        };
        let handle = self.keep(OpenHandle::Writing(Arc::new(pen)));
        let files: Vec<_> = file.iter().map(File::as_fd).collect();
        let told = response::OpenedFile {
            handle,
            version,
            ..response::OpenedFile::default()
        };
        reply.tell_with(Response::Opened(told), b"", &files);
        Ok(None)
    }

    pub(crate) fn grant(&self, grant: &request::Grant, reply: &LocalReply) -> LocalResult {
        let pen = self.pen(grant.handle)?;
        let range = grant.start..grant.end.max(grant.start);
        let wanted = format!("write {}", pen.url.without_password());
        let ticket = pen
            .writing
            .grant_while(range.clone(), &waiting(reply))
            .map_err(|error| refusals::depot(&wanted, Some(&pen.url), &error))?;
        pen.is_told.store(true, Relaxed);
        let number = self.number();
        pen.grants.lock().insert(number, (range, ticket));
        Ok(Some(Response::Granted { grant: number }))
    }

    pub(crate) fn written(&self, written: &request::Written) -> LocalResult {
        let pen = self.pen(written.handle)?;
        let granted = pen.grants.lock().remove(&written.grant);
        let (range, ticket) = granted.ok_or_else(|| not_open("end a write", written.grant))?;
        let chain = written.chain.as_ref().map(|chain| chain.0);
        pen.writing.written_as(range, ticket, written.size, chain);
        Ok(None)
    }

    pub(crate) fn write(&self, handle: Handle, body: &[u8], reply: &LocalReply) -> LocalResult {
        let pen = self.pen(handle)?;
        if pen.failed.lock().is_some() {
            return Ok(None); // what comes behind a gap is not wanted
        }
        if let Err(refusal) = write_all(&pen, body, reply) {
            *pen.failed.lock() = Some(refusal);
        }
        Ok(None)
    }

    fn pen(&self, handle: Handle) -> Result<Arc<WriteHandle>, Refusal> {
        match self.open.lock().get(&handle) {
            Some(OpenHandle::Writing(pen)) => Ok(Arc::clone(pen)),
            _ => Err(not_open("write it", handle)),
        }
    }
}

/// Says of a name that was to be free what has it.
pub(crate) fn of_new(refusal: Refusal) -> Refusal {
    match refusal.kind {
        Kind::Exists => refusal.next(
            "godwit queue shows whether it is on its way there; without --new it is replaced",
        ),
        _ => refusal,
    }
}

fn write_all(pen: &WriteHandle, body: &[u8], reply: &LocalReply) -> Result<(), Refusal> {
    let wanted = || format!("write {}", pen.url.without_password());
    let writes = records::of(body)
        .map_err(|error| Refusal::new(Kind::Invalid, wanted(), error.to_string()))?;
    let write = |offset: u64, bytes: &[u8]| {
        let written = pen
            .writing
            .write_while(offset, bytes, &|_| !reply.is_gone());
        written.map_err(|error| refusals::depot(&wanted(), Some(&pen.url), &error))
    };
    // Consecutive writes are merged: each write has a fixed cost.
    let (mut start, mut run) = (0, Vec::new());
    for (offset, bytes) in writes {
        if offset != start + run.len() as u64 && !run.is_empty() {
            write(start, &run)?;
            run.clear();
        }
        if run.is_empty() {
            start = offset;
        }
        run.extend_from_slice(bytes);
    }
    match run.is_empty() {
        true => Ok(()),
        false => write(start, &run),
    }
}

/// Tells a program that it waits for room, and for which; until it goes.
pub(crate) fn waiting(reply: &LocalReply) -> impl Fn(&Error) -> bool + '_ {
    let told: Mutex<Option<(Instant, String)>> = Mutex::default();
    move |full| {
        let (now, why) = (Instant::now(), full.to_string());
        let mut told = told.lock();
        let is_known = told
            .as_ref()
            .is_some_and(|(at, was)| *was == why || now.duration_since(*at) < TOLD_AGAIN);
        if !is_known {
            reply.tell(Response::Row(Box::new(response::Row {
                what: "room".into(),
                stage: "waiting".into(),
                why: Some(why.clone()),
                reason: Some(Kind::Quota),
                ..response::Row::default()
            })));
            *told = Some((now, why));
        }
        !reply.is_gone()
    }
}

/// How soon the reason of a wait is sent again.
const TOLD_AGAIN: Duration = Duration::from_secs(10);

impl Client {
    /// Makes a file at its server, if the server answers and can. Returns the version made.
    fn made_at_server(
        &self,
        url: &Url,
        mode: Option<u32>,
        reply: &LocalReply,
    ) -> Result<Base, Refusal> {
        let is_wanted = || !reply.is_over();
        let by = By {
            who: &self.who,
            session: &self.session,
            is_wanted: &is_wanted,
        };
        match self
            .keeping
            .depot
            .make_at_server(url, by, mode, MADE_WITHIN)
        {
            Ok(Some(version)) => Ok(Base::Seen(version)),
            Ok(None) => Ok(Base::Absent),
            // Its server is away: the name must still be absent when the file is delivered.
            Err(Error::Store(error)) if error.fault() == Fault::Passing => Ok(Base::Absent),
            Err(Error::TimedOut { .. }) => Ok(Base::Absent),
            Err(error) => {
                let wanted = format!("make {}", url.without_password());
                Err(refusals::depot(&wanted, Some(url), &error))
            }
        }
    }
}

/// How long a server may take to make a file, with all that goes first there.
const MADE_WITHIN: Duration = Duration::from_secs(10);
