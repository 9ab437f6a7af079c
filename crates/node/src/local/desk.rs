//! What programs ask, answered by the depot.

use super::{
    Desk, Reply, Visit, Visitor,
    refusing::{self, url},
};
use godwit_core::{
    Algorithm, Block, Extents, Hashing, Url, Version,
    holding::{Base, Ticket},
};
use godwit_depot::{Depot, Error, Fresh, Owed, Put, Reading, Scope, Stage, Who, Writing};
use godwit_local::{Refusal, Why};
use godwit_store::{Kind, Take};
use godwit_sys::{memory, seal};
use godwit_wire::{
    door::call,
    local::{
        Ask, Handle, Tell,
        ask::{self, Cache, Close, Wait, Where, Whose},
        frame::BODY_BYTES_MAX,
        records, tell,
    },
};
use std::{
    collections::HashMap,
    fs::File,
    io,
    ops::Range,
    os::{fd::AsFd, unix::fs::FileExt},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The desk of a node with a depot.
pub(super) struct Keeping {
    pub(super) depot: Depot,
    pub(super) connect: godwit_depot::Connect,
    pub(super) bounds: Bounds,
}

/// What is known of how long this node will be.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Where its state is.
    pub(super) state: PathBuf,
    /// It was started within a job, and will be ended with it.
    pub(super) is_of_job: bool,
    /// Somebody starts it again after the machine was.
    pub(super) is_installed: bool,
}

impl Desk for Keeping {
    fn visit(self: Arc<Self>, visitor: Visitor) -> Result<Box<dyn Visit>, Refusal> {
        let hello = visitor.hello;
        let session = hello
            .session
            .unwrap_or_else(|| format!("process-{}-{}", visitor.process, visitor.connection));
        let credential = hello.credential.map(|path| path.0);
        let audience = match &credential {
            Some(path) => path.display().to_string(),
            None => String::new(),
        };
        let scratch = hello.scratch.map(|path| path.0);
        let is_private = scratch.is_some_and(|scratch| self.bounds.state.starts_with(scratch));
        let ends_soon = self.bounds.is_of_job || is_private;
        Ok(Box::new(Guest {
            desk: self,
            who: Who {
                audience,
                credential,
            },
            session,
            ends_soon,
            open: Mutex::default(),
            numbers: AtomicU64::new(0),
        }))
    }

    fn owes(&self) -> bool {
        self.depot.owes()
    }

    fn status(&self, status: &mut tell::Status) {
        let queue = self.depot.queue();
        status.owed_files = queue.len() as u64;
        status.owed_bytes = queue.iter().map(|owed| owed.owed).sum();
    }

    fn end(&self) {
        self.depot.end();
    }
}

/// A program that talks with us.
struct Guest {
    desk: Arc<Keeping>,
    who: Who,
    /// By what it finds again what it wrote.
    session: String,
    /// This disk, or whoever delivers from it, ends with the job: what is only here is not safe.
    ends_soon: bool,
    open: Mutex<HashMap<Handle, Open>>,
    numbers: AtomicU64,
}

#[derive(Clone)]
enum Open {
    /// Held so that it is not forgotten while somebody reads it.
    Reading(#[allow(dead_code)] Arc<Reading>),
    Writing(Arc<Pen>),
}

/// A file that a program writes.
struct Pen {
    url: Url,
    writing: Writing,
    grants: Mutex<HashMap<u64, (Range<u64>, Ticket)>>,
    /// Each write is told; else all of the file counts as written when it ends.
    is_told: AtomicBool,
    /// What went wrong with writes that are not answered.
    failed: Mutex<Option<Refusal>>,
}

impl Visit for Guest {
    fn answer(&self, ask: Ask, body: Vec<u8>, reply: &Reply) {
        let is_silent = ask.is_silent();
        match self.attend(ask, &body, reply) {
            Ok(None) => {}
            Ok(Some(tell)) => reply.tell(tell),
            Err(refusal) if is_silent => tracing::debug!(%refusal, "a write is passed over"),
            Err(refusal) => reply.refuse(refusal),
        }
    }
}

type Answered = Result<Option<Tell>, Refusal>;

impl Guest {
    fn attend(&self, ask: Ask, body: &[u8], reply: &Reply) -> Answered {
        match ask {
            Ask::Open(open) => self.open(&open, reply),
            Ask::Ensure(ensure) => self.ensure(&ensure),
            Ask::Close(close) | Ask::End(close) => self.close(&close),
            Ask::Put(put) => self.put(&put, reply),
            Ask::Grant(grant) => self.grant(&grant),
            Ask::Written(written) => self.written(&written),
            Ask::Write(write) => self.write(write.handle, body),
            Ask::Commit(whose) => self.commit(&whose),
            Ask::Push(whose) => self.push(&whose),
            Ask::Get(get) => self.get(&get, reply),
            Ask::Memory(place) => self.memory(&place, reply),
            Ask::Stat(place) => self.stat(&place),
            Ask::Queue(whose) => self.queue(&whose, reply),
            Ask::Retry(place) => self.decide("try to deliver", &place, Depot::retry),
            Ask::Release(place) => self.decide("deliver", &place, Depot::release),
            Ask::Drop(place) => self.decide("drop", &place, Depot::discard),
            Ask::Cache(Cache::Stat(place)) => self.cache_stat(&place, reply),
            Ask::Stage(stage) => self.stage(&stage),
            Ask::Unstage(stage) => self.push(&Whose {
                url: Some(stage.url),
                timeout_ms: stage.timeout_ms,
                on: stage.on,
                ..Whose::default()
            }),
            _ => Err(unknown()),
        }
    }

    fn open(&self, open: &ask::Open, reply: &Reply) -> Answered {
        if open.tag.is_some() {
            return Err(not_yet("keep it under a tag"));
        }
        if open.write {
            return self.open_to_write(open, reply);
        }
        let url = url(&open.url)?;
        let reading = self.read(&url, open.fresh)?;
        let (size, version) = (reading.size(), call::Version::None);
        let reading = Arc::new(reading);
        let handle = self.keep(Open::Reading(Arc::clone(&reading)));
        if reply.is_over() {
            self.lock().remove(&handle);
            return Ok(None);
        }
        let opened = tell::Opened {
            handle,
            size,
            version,
            ..tell::Opened::default()
        };
        reply.tell_with(Tell::Opened(opened), b"", &[reading.file().as_fd()]);
        Ok(None)
    }

    /// A file is written anew: what there is of it is not fetched.
    fn open_to_write(&self, open: &ask::Open, reply: &Reply) -> Answered {
        let wanted = || format!("open {} to write", open.url);
        let url = url(&open.url)?;
        let is_new = open.create && open.excl;
        if !open.truncate && !is_new {
            // One that is not there would be made; one that is would have to be fetched and changed.
            match self.look(&url) {
                Err(refusal) if refusal.why == Why::Missing && open.create => {}
                Err(refusal) => return Err(refusal),
                Ok(_) => return Err(not_yet("change a part of a file that is there")),
            }
        }
        if is_new && self.look(&url).is_ok() {
            let words = "it is there already";
            return Err(Refusal::new(Why::Exists, wanted(), words).about(&open.url));
        }
        if open.truncate && !open.create {
            self.look(&url)?;
        }
        let base = match is_new {
            true => Base::Absent,
            false => Base::Any,
        };
        self.begin(&url, base, false, reply)
    }

    fn put(&self, put: &ask::Put, reply: &Reply) -> Answered {
        if put.in_place {
            return Err(not_yet("write into a file that is there"));
        }
        let url = url(&put.url)?;
        let base = match (&put.base, put.new) {
            (_, true) => Base::Absent,
            (None, false) => Base::Any,
            (Some(version), false) => Base::Seen(core_version(version)),
        };
        self.begin(&url, base, put.packed, reply)
    }

    fn begin(&self, url: &Url, base: Base, is_packed: bool, reply: &Reply) -> Answered {
        let wanted = format!("write {}", url.without_password());
        let bad = |error: Error| refusing::depot(&wanted, Some(url), &error);
        let session = self.session.clone();
        let begun = self
            .desk
            .depot
            .put(url, &self.who, &Put { base, session })
            .map_err(bad)?;
        let file = match is_packed {
            true => None,
            false => Some(begun.file().map_err(bad)?),
        };
        let pen = Pen {
            url: url.clone(),
            writing: begun,
            grants: Mutex::default(),
            is_told: AtomicBool::new(is_packed),
            failed: Mutex::default(),
        };
        let handle = self.keep(Open::Writing(Arc::new(pen)));
        let opened = tell::Opened {
            handle,
            ..tell::Opened::default()
        };
        let files: Vec<_> = file.iter().map(File::as_fd).collect();
        reply.tell_with(Tell::Opened(opened), b"", &files);
        Ok(None)
    }

    fn ensure(&self, ensure: &ask::Ensure) -> Answered {
        // What was opened is here as a whole.
        match self.lock().contains_key(&ensure.handle) {
            true => done(tell::Done::default()),
            false => Err(not_open("read it", ensure.handle)),
        }
    }

    fn grant(&self, grant: &ask::Grant) -> Answered {
        let pen = self.pen(grant.handle)?;
        let range = grant.start..grant.end.max(grant.start);
        let wanted = format!("write {}", pen.url.without_password());
        let ticket = pen
            .writing
            .grant(range.clone())
            .map_err(|error| refusing::depot(&wanted, Some(&pen.url), &error))?;
        pen.is_told.store(true, Relaxed);
        let number = self.number();
        lock(&pen.grants).insert(number, (range, ticket));
        Ok(Some(Tell::Granted { grant: number }))
    }

    fn written(&self, written: &ask::Written) -> Answered {
        let pen = self.pen(written.handle)?;
        let granted = lock(&pen.grants).remove(&written.grant);
        let (range, ticket) = granted.ok_or_else(|| not_open("end a write", written.grant))?;
        pen.writing.written(range, ticket, written.size);
        Ok(None)
    }

    fn write(&self, handle: Handle, body: &[u8]) -> Answered {
        let pen = self.pen(handle)?;
        if lock(&pen.failed).is_some() {
            return Ok(None); // what comes behind a gap is not wanted
        }
        if let Err(refusal) = write_all(&pen, body) {
            *lock(&pen.failed) = Some(refusal);
        }
        Ok(None)
    }

    fn close(&self, close: &Close) -> Answered {
        let open = self.lock().remove(&close.handle);
        let pen = match open {
            None => return Err(not_open("close it", close.handle)),
            Some(Open::Reading(_)) => return done(tell::Done::default()),
            Some(Open::Writing(pen)) => pen,
        };
        let url = pen.url.clone();
        let wanted = format!("write {}", url.without_password());
        let Ok(pen) = Arc::try_unwrap(pen).map_err(drop) else {
            let words = "something is still being written";
            return Err(Refusal::new(Why::Busy, wanted, words));
        };
        if close.give_up {
            return done(tell::Done::default()); // dropped, and forgotten
        }
        if let Some(failed) = lock(&pen.failed).take() {
            return Err(failed);
        }
        let bad = |error: Error| refusing::depot(&wanted, Some(&url), &error);
        if !pen.is_told.load(Relaxed) {
            // Whoever has the descriptor says that it is written: all of it, whatever they did.
            let file = pen.writing.file().map_err(bad)?;
            let size = file
                .metadata()
                .map_err(|error| refusing::disk(&wanted, &error))?
                .len();
            let ticket = pen.writing.grant(0..size).map_err(bad)?;
            pen.writing.written(0..size, ticket, size);
        }
        pen.writing.end().map_err(bad)?;
        let scope = Scope::Url(url.clone());
        match close.wait {
            Wait::Nothing => done(tell::Done::default()),
            Wait::Commit => self.make_safe(&wanted, &scope, close.timeout_ms),
            Wait::Push => self.deliver(&wanted, &scope, close.timeout_ms),
        }
    }

    fn commit(&self, whose: &Whose) -> Answered {
        let scope = self.scope(whose)?;
        self.make_safe("commit", &scope, whose.timeout_ms)
    }

    fn push(&self, whose: &Whose) -> Answered {
        let scope = self.scope(whose)?;
        self.deliver("push", &scope, whose.timeout_ms)
    }

    /// It survives whatever may end this machine's disk, or the job that we are part of.
    fn make_safe(&self, wanted: &str, scope: &Scope, timeout_ms: Option<u64>) -> Answered {
        if self.ends_soon {
            let mut answer = self.deliver(wanted, scope, timeout_ms)?;
            if let Some(Tell::Done(done)) = &mut answer {
                done.notes
                    .push("this node ends with the job, so what it had was delivered first".into());
            }
            return Ok(answer);
        }
        let bad = |error: Error| refusing::depot(wanted, None, &error);
        self.desk.depot.commit(scope).map_err(bad)?;
        let owed = self.owed_of(scope);
        let mut answer = tell::Done {
            files: owed.len() as u64,
            bytes: owed.iter().map(|owed| owed.owed).sum(),
            notes: Vec::new(),
        };
        if !owed.is_empty() && !self.desk.bounds.is_installed {
            answer.notes.push(AFTER_RESTART.into());
        }
        done(answer)
    }

    fn deliver(&self, wanted: &str, scope: &Scope, timeout_ms: Option<u64>) -> Answered {
        let limit = timeout_ms.map(Duration::from_millis);
        let owed = self.owed_of(scope);
        let answer = tell::Done {
            files: owed.len() as u64,
            bytes: owed.iter().map(|owed| owed.owed).sum(),
            notes: Vec::new(),
        };
        let pushed = self.desk.depot.push(scope, limit);
        pushed.map_err(|error| self.not_delivered(wanted, scope, &error))?;
        done(answer)
    }

    fn not_delivered(&self, wanted: &str, scope: &Scope, error: &Error) -> Refusal {
        let mut refusal = refusing::depot(wanted, None, error);
        if let Error::Held { url, .. } = error {
            let held = self.owed_of(scope);
            let is_conflict = |owed: &Owed| owed.url == **url && owed.is_conflict;
            if !held.iter().any(is_conflict) {
                refusal.why = Why::Remote;
            }
            refusal.url = Some(url.without_password().to_string());
        }
        refusal
    }

    fn get(&self, get: &ask::Get, reply: &Reply) -> Answered {
        let url = url(&get.url)?;
        let reading = self.read(&url, get.fresh)?;
        let size = reading.size();
        let end = get.end.unwrap_or(size).min(size);
        let range = get.start.min(end)..end;
        let len = range.end - range.start;
        let failed = |error: io::Error| refusing::disk(&format!("read {}", get.url), &error);
        let tell = Tell::Bytes { len, size };
        if len <= BODY_BYTES_MAX as u64 {
            let mut bytes = vec![0; len as usize];
            reading
                .file()
                .read_exact_at(&mut bytes, range.start)
                .map_err(failed)?;
            reply.tell_with(tell, &bytes, &[]);
            return Ok(None);
        }
        let into = memory(&get.url).map_err(failed)?;
        copy(reading.file(), &into, range).map_err(failed)?;
        seal(&into).map_err(failed)?;
        reply.tell_with(tell, b"", &[into.as_fd()]);
        Ok(None)
    }

    /// Reads a file to memory, with nothing on the disk, unless what is here is newer than its origin.
    fn memory(&self, place: &Where, reply: &Reply) -> Answered {
        let url = url(&place.url)?;
        if !self.owed_of(&Scope::Url(url.clone())).is_empty() {
            let get = ask::Get {
                url: place.url.clone(),
                ..ask::Get::default()
            };
            return self.get(&get, reply);
        }
        let wanted = format!("read {} to memory", url.without_password());
        let bad = |error: godwit_store::Error| refusing::store(&wanted, &url, &error);
        let failed = |error: io::Error| refusing::disk(&wanted, &error);
        let from = (self.desk.connect)(&url, &self.who).map_err(bad)?;
        let into = Into(memory(&place.url).map_err(failed)?);
        let want = Extents::from(0..u64::MAX);
        let read = from
            .store
            .read(&from.path, &want, STREAMS, &into)
            .map_err(bad)?;
        let size = read.stat.size;
        into.0.set_len(size).map_err(failed)?;
        if let Some(told) = read
            .digest
            .filter(|told| told.algorithm() == Algorithm::Blake3)
        {
            let found = digest(&into.0, size).map_err(failed)?;
            if found != told {
                let words = format!("the server told {told}, the bytes have {found}");
                return Err(Refusal::new(Why::Differs, wanted, words).about(&place.url));
            }
        }
        seal(&into.0).map_err(failed)?;
        let tell = Tell::Bytes { len: size, size };
        reply.tell_with(tell, b"", &[into.0.as_fd()]);
        Ok(None)
    }

    fn stat(&self, place: &Where) -> Answered {
        let url = url(&place.url)?;
        self.look(&url).map(|stat| Some(Tell::Stat(stat)))
    }

    /// Returns what there is of a name: what is owed is newer than what its target has.
    fn look(&self, url: &Url) -> Result<tell::Stat, Refusal> {
        let shown = url.without_password().to_string();
        let newest = self.owed_of(&Scope::Url(url.clone()));
        if let Some(owed) = newest.iter().rev().find(|owed| owed.stage != Stage::Open) {
            return Ok(tell::Stat {
                url: shown,
                size: owed.size,
                ..tell::Stat::default()
            });
        }
        let wanted = format!("look at {shown}");
        let found = (self.desk.connect)(url, &self.who)
            .and_then(|place| place.store.stat(&place.path))
            .map_err(|error| refusing::store(&wanted, url, &error))?;
        Ok(tell::Stat {
            url: shown,
            size: found.size,
            is_directory: found.kind == Kind::Directory,
            mtime_ns: found
                .mtime
                .and_then(|mtime| u64::try_from(mtime.as_nanos()).ok()),
            mode: found.mode,
            ..tell::Stat::default()
        })
    }

    fn queue(&self, whose: &Whose, reply: &Reply) -> Answered {
        let scope = self.scope(whose)?;
        let owed = self.owed_of(&scope);
        let mut answer = tell::Done {
            files: owed.len() as u64,
            bytes: owed.iter().map(|owed| owed.owed).sum(),
            notes: Vec::new(),
        };
        if !owed.is_empty() && !self.desk.bounds.is_installed {
            answer.notes.push(AFTER_RESTART.into());
        }
        for owed in owed {
            if reply.is_over() {
                return Ok(None);
            }
            reply.tell(Tell::Row(Box::new(row(owed))));
        }
        done(answer)
    }

    fn decide(
        &self,
        what: &str,
        place: &Where,
        decide: fn(&Depot, &str) -> godwit_depot::Result<()>,
    ) -> Answered {
        if place.on.is_some() {
            return Err(not_yet("decide about the depot of a peer"));
        }
        let wanted = format!("{what} {}", place.url);
        decide(&self.desk.depot, &place.url)
            .map_err(|error| refusing::depot(&wanted, None, &error))?;
        done(tell::Done {
            files: 1,
            ..tell::Done::default()
        })
    }

    fn cache_stat(&self, place: &Where, reply: &Reply) -> Answered {
        let url = url(&place.url)?;
        let reading = self.read(&url, ask::Fresh::Kept)?;
        reply.tell(Tell::Row(Box::new(tell::Row {
            url: url.without_password().to_string(),
            size: reading.size(),
            present_bytes: reading.size(),
            transfers: reading.transfers(),
            ..tell::Row::default()
        })));
        done(tell::Done {
            files: 1,
            bytes: reading.size(),
            notes: Vec::new(),
        })
    }

    fn stage(&self, stage: &ask::Stage) -> Answered {
        if stage.tag.is_some() || stage.on.is_some() {
            return Err(not_yet("keep it under a tag, or with a peer"));
        }
        let url = url(&stage.url)?;
        let reading = self.read(&url, ask::Fresh::Usual)?;
        done(tell::Done {
            files: 1,
            bytes: reading.size(),
            notes: Vec::new(),
        })
    }

    fn read(&self, url: &Url, fresh: ask::Fresh) -> Result<Reading, Refusal> {
        let fresh = match fresh {
            ask::Fresh::Usual => Fresh::Usual,
            ask::Fresh::Asked => Fresh::Now,
            ask::Fresh::Kept => Fresh::Any,
        };
        self.desk
            .depot
            .read(url, &self.who, fresh)
            .map_err(|error| {
                let wanted = format!("read {}", url.without_password());
                refusing::depot(&wanted, Some(url), &error)
            })
    }

    fn scope(&self, whose: &Whose) -> Result<Scope, Refusal> {
        if whose.on.is_some() {
            return Err(not_yet("ask the depot of a peer"));
        }
        Ok(match (&whose.url, &whose.session, whose.mine) {
            (Some(text), ..) => Scope::Url(url(text)?),
            (None, Some(session), _) => Scope::Session(session.clone()),
            (None, None, true) => Scope::Session(self.session.clone()),
            (None, None, false) => Scope::All,
        })
    }

    fn owed_of(&self, scope: &Scope) -> Vec<Owed> {
        let mut queue = self.desk.depot.queue();
        queue.retain(|owed| match scope {
            Scope::All => true,
            Scope::Url(url) => owed.url == *url,
            Scope::Session(session) => owed.session == *session,
        });
        queue
    }

    fn pen(&self, handle: Handle) -> Result<Arc<Pen>, Refusal> {
        match self.lock().get(&handle) {
            Some(Open::Writing(pen)) => Ok(Arc::clone(pen)),
            _ => Err(not_open("write it", handle)),
        }
    }

    fn keep(&self, open: Open) -> Handle {
        let handle = self.number();
        self.lock().insert(handle, open);
        handle
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed) + 1
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Handle, Open>> {
        lock(&self.open)
    }
}

fn write_all(pen: &Pen, body: &[u8]) -> Result<(), Refusal> {
    let wanted = || format!("write {}", pen.url.without_password());
    let writes = records::of(body)
        .map_err(|error| Refusal::new(Why::Invalid, wanted(), error.to_string()))?;
    for (offset, bytes) in writes {
        pen.writing
            .write(offset, bytes)
            .map_err(|error| refusing::depot(&wanted(), Some(&pen.url), &error))?;
    }
    Ok(())
}

fn row(owed: Owed) -> tell::Row {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (stage, next) = match owed.stage {
        Stage::Open => ("writing", None),
        Stage::Queued => ("queued", None),
        Stage::Sending => ("sending", None),
        Stage::Waiting { again_in } => ("waiting", Some(again_in)),
        Stage::Held => ("held", None),
    };
    tell::Row {
        id: owed.id,
        url: owed.url.without_password().to_string(),
        session: Some(owed.session).filter(|session| !session.is_empty()),
        size: owed.size,
        present_bytes: owed.size,
        owed_bytes: owed.owed,
        owes: true,
        stage: stage.into(),
        why: Some(owed.why).filter(|why| !why.is_empty()),
        reason: owed.is_conflict.then_some(Why::Conflict),
        next_ms: next.map(ms),
        age_ms: Some(ms(owed.age)),
        attempts: owed.tries.into(),
        committed: owed.is_committed,
        ..tell::Row::default()
    }
}

/// Takes bytes into a file in memory, in whatever order they come.
struct Into(File);

impl Take for Into {
    fn put(&self, block: Block<'_>) -> godwit_store::Result<()> {
        let written = self.0.write_all_at(block.bytes, block.offset);
        written.map_err(|cause| godwit_store::Error::io("memory", cause))
    }
}

fn digest(file: &File, size: u64) -> io::Result<godwit_core::Digest> {
    let mut hashing = Hashing::new(Algorithm::Blake3);
    each_piece(file, 0..size, |bytes, _| {
        hashing.update(bytes);
        Ok(())
    })?;
    Ok(hashing.finish())
}

fn copy(from: &File, into: &File, range: Range<u64>) -> io::Result<()> {
    let start = range.start;
    each_piece(from, range, |bytes, offset| {
        into.write_all_at(bytes, offset - start)
    })
}

fn each_piece(
    file: &File,
    range: Range<u64>,
    mut each: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut offset = range.start;
    while offset < range.end {
        let len = (range.end - offset).min(PIECE_BYTES as u64) as usize;
        file.read_exact_at(&mut buffer[..len], offset)?;
        each(&buffer[..len], offset)?;
        offset += len as u64;
    }
    Ok(())
}

fn core_version(version: &call::Version) -> Version {
    match version.clone() {
        call::Version::Strong(digest) => Version::Strong(digest.0),
        call::Version::Generation { server, name } => Version::Generation { server, name },
        call::Version::Weak {
            size,
            mtime,
            seen_at,
        } => Version::Weak {
            size,
            mtime: mtime.0,
            seen_at: seen_at.0,
        },
        call::Version::None => Version::None,
    }
}

fn done(done: tell::Done) -> Answered {
    Ok(Some(Tell::Done(done)))
}

fn not_open(wanted: &str, number: u64) -> Refusal {
    let words = format!("nothing is open as number {number} on this connection");
    Refusal::new(Why::NotOpen, wanted, words)
}

fn not_yet(what: &str) -> Refusal {
    Refusal::new(Why::Unsupported, what, "this version of godwit cannot")
}

fn unknown() -> Refusal {
    not_yet("do what was asked")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const AFTER_RESTART: &str = "after a restart of this machine, delivery waits for the next program that asks; \
                             godwit node install has it begin by itself";
const STREAMS: usize = 4;
const PIECE_BYTES: usize = 1 << 20;
