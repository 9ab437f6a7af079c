//! What programs ask, answered by the depot.

use super::{
    Desk, Reply, Visit, Visitor,
    adding::Added,
    appending::Stream,
    elsewhere,
    fragments::{Filling, Fragment, digest},
    going,
    refusing::{self, url, url_owed},
    serving::Knocks,
    shared::{SharedFiles, Sharer},
    visiting::Staying,
};
use crate::{hop, names::Names, routes::Routes};
use godwit_core::{
    Algorithm, Extents, Scheme, Url,
    holding::{Base, Ticket},
};
use godwit_depot::{
    Appending, Attributes, By, Depot, Edit, Editing, Ended, Error, Fresh, Holds, Lazily, Nth, Owed,
    Put, Reading, Scope, Stage, Tag, Verified, Who, Writing, count_names,
};
use godwit_farm::Draft;
use godwit_local::{Kind, Refusal};
use godwit_store::channel::Cancel;
use godwit_sys::{memory, seal};
use godwit_trust::Home;
use godwit_wire::{
    door::call::Version,
    local::{
        Ask, Handle, Tell,
        ask::{self, Cache, Close, Wait, Where, Whose},
        frame::BODY_BYTES_MAX,
        records, tell,
    },
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io,
    num::NonZeroU64,
    ops::Range,
    os::{fd::AsFd, unix::fs::FileExt},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The desk of a node with a depot.
pub(super) struct Keeping {
    pub(super) depot: Arc<Depot>,
    pub(super) connect: godwit_depot::Connect,
    /// Ends conversations with servers, also those that say nothing.
    pub(super) cancel: Cancel,
    pub(super) bounds: Bounds,
    /// What was kept for which job already: a second opening of the same writes nothing.
    pub(super) kept: Mutex<HashSet<(String, Url, String)>>,
    /// By what it proves who it is.
    pub(super) home: Option<Home>,
    /// Which hop leads where.
    pub(super) routes: Routes,
    /// Names that are locked beyond the connection of who locked them.
    pub(super) added: Mutex<HashMap<(Url, String), Added>>,
    /// Finds the depots of other machines: no route leads around them.
    pub(super) direct: godwit_depot::Connect,
    /// How many visitors have something fetched.
    pub(super) fetching: AtomicUsize,
    /// Files that programs of this machine write together.
    pub(super) shared: SharedFiles,
    /// Held while it is decided what visitors keep.
    pub(super) visitors: Mutex<()>,
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
    /// The names that programs may use.
    pub(super) names: Option<Names>,
    /// The directory that this machine serves to others, as a node of that name.
    pub(super) export: Option<(String, PathBuf)>,
}

impl Keeping {
    /// Returns the desk of a depot that `connect` serves.
    pub(super) fn new(
        depot: Arc<Depot>,
        (connect, cancel): (godwit_depot::Connect, Cancel),
        (home, routes): (Option<Home>, Routes),
        bounds: Bounds,
    ) -> Arc<Self> {
        Arc::new(Self {
            depot,
            connect,
            direct: hop::connect(home.clone(), Routes::default(), None, cancel.clone()),
            cancel,
            bounds,
            kept: Mutex::default(),
            home,
            routes,
            added: Mutex::default(),
            fetching: AtomicUsize::default(),
            shared: SharedFiles::default(),
            visitors: Mutex::default(),
        })
    }

    pub(super) fn guest(self: Arc<Self>, visitor: Visitor) -> Guest {
        let mut hello = visitor.hello;
        let staying = hello.visitor.take().map(Staying::new);
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
        Guest {
            other_names: self.other_names(hello.catalog.as_deref(), staying.is_some()),
            desk: self,
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

impl Desk for Keeping {
    fn visit(self: Arc<Self>, visitor: Visitor) -> Result<Box<dyn Visit>, Refusal> {
        Ok(Box::new(self.guest(visitor)))
    }

    fn owes(&self) -> bool {
        self.depot.owes() || self.depot.is_locked()
    }

    fn status(&self, status: &mut tell::Status) {
        let queue = self.depot.queue();
        status.owed_files = queue.len() as u64;
        status.owed_bytes = queue.iter().map(|owed| owed.owed).sum();
    }

    fn end(&self) {
        self.depot.end();
        self.cancel.cancel();
    }
}

/// A program that talks with us.
pub(super) struct Guest {
    pub(super) desk: Arc<Keeping>,
    pub(super) who: Who,
    /// The refusal of names, if they are not those of this node.
    pub(super) other_names: Option<Refusal>,
    /// By what it finds again what it wrote.
    pub(super) session: String,
    /// What tells it from all others.
    pub(super) connection: String,
    /// What keeps the files of its job.
    pub(super) job: Option<String>,
    /// It speaks for somebody of another machine.
    staying: Option<Staying>,
    /// This disk, or whoever delivers from it, ends with the job: what is only here is not safe.
    ends_soon: bool,
    pub(super) open: Mutex<HashMap<Handle, Open>>,
    /// Where it writes, and whose names were looked for.
    pub(super) hosts: Mutex<HashSet<(Scheme, String)>>,
    /// Whom it appends to.
    appends: Mutex<HashMap<Url, Arc<Appending>>>,
    /// Drafts of jobs that it has written its part of: their leases last as long as it does.
    pub(super) drafts: Mutex<Vec<Draft>>,
    /// Whoever waits for its word.
    pub(super) knocks: Arc<Knocks>,
    numbers: AtomicU64,
}

#[derive(Clone)]
pub(super) enum Open {
    /// Held so that it is not forgotten while somebody reads it.
    Reading(#[allow(dead_code)] Arc<Reading>),
    /// Read in parts, which come here when they are asked for.
    Lazy(Arc<Lazily>),
    /// Read and written by several programs.
    Shared(Arc<Sharer>),
    Writing(Arc<Pen>),
    /// Written by a descriptor that we see nothing of. Locked while that is on its way.
    Editing(Arc<Mutex<Option<Editing>>>),
    /// What is written into it goes to the end of a file.
    Appending(Arc<Stream>),
    /// A name that is locked.
    Adding(Arc<Mutex<Added>>),
    /// A fragment of a named file that is written.
    Fragment(Arc<Mutex<Option<Fragment>>>),
    /// A fragment of a named file that lies here, and is read.
    Lying,
}

/// A file that a program writes.
pub(super) struct Pen {
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

    fn answer_at_once(&self, ask: &Ask, reply: &Reply) -> bool {
        match ask {
            Ask::Open(open) if !open.write && self.staying.is_none() => {
                self.must_know_names(ask).is_ok() && self.open_here(open, reply)
            }
            _ => false,
        }
    }
}

pub(super) type Answered = Result<Option<Tell>, Refusal>;

impl Guest {
    fn attend(&self, ask: Ask, body: &[u8], reply: &Reply) -> Answered {
        self.must_know_names(&ask)?;
        if let Some(staying) = &self.staying {
            return self.attend_visitor(staying, ask, reply);
        }
        if let Some(on) = elsewhere::place_of(&ask) {
            return self.ask_elsewhere(&on, ask, reply);
        }
        match ask {
            Ask::Open(open) => self.open(&open, reply),
            Ask::Ensure(ensure) => self.ensure(&ensure, reply),
            Ask::Close(close) | Ask::End(close) => self.close(&close, reply),
            Ask::Put(put) => self.put(&put, reply),
            Ask::Grant(grant) => self.grant(&grant, reply),
            Ask::Written(written) => self.written(&written),
            Ask::Write(write) => self.write(write.handle, body, reply),
            Ask::Commit(whose) => self.commit(&whose, reply),
            Ask::Push(whose) => self.push(&whose, reply),
            Ask::Get(get) => self.get(&get, reply),
            Ask::Memory(place) => self.memory(&place, reply),
            Ask::Stat(place) => self
                .look(&url(&place.url)?)
                .map(|stat| Some(Tell::Stat(stat))),
            Ask::List(place) => self.list(&url(&place.url)?, reply),
            Ask::Queue(whose) => self.queue(&whose, reply),
            Ask::Retry(place) => self.decide("try to deliver", &place, Depot::retry),
            Ask::Release(place) => self.decide("deliver", &place, Depot::release),
            Ask::Redirect(redirect) => self.redirect(&redirect),
            Ask::Catalog => self.catalog(body, reply),
            Ask::Fragments(place) => self.fragments(&place, reply),
            Ask::Fragment(asked) => self.fragment(&asked, reply),
            Ask::Share(share) => self.share(&share, reply),
            Ask::Shared(shared) => self.act(&shared, reply),
            Ask::Landed(landed) => self.landed(&landed, body),
            Ask::Deed(deed) => self.deed(deed, reply),
            Ask::Drop(place) => self.decide("drop", &place, Depot::discard),
            Ask::Changed { url: text } => {
                self.desk.depot.changed(&url(&text)?);
                done(tell::Done::default())
            }
            Ask::Cache(cache) => self.cache(cache, reply),
            Ask::Stage(stage) => self.stage(&stage, reply),
            Ask::Unstage(stage) => self.unstage(&stage, reply),
            Ask::Append(append) => self.append(&append, body, reply),
            Ask::Copy(copy) => self.copy(&copy, reply),
            Ask::Serve(serve) => self.serve(&serve, reply),
            Ask::Let(told) => {
                self.knocks.answered(&told);
                Ok(None)
            }
            Ask::Lines(lines) => self.lines(&lines, body, reply),
            _ => Err(unknown()),
        }
    }

    fn open(&self, open: &ask::Open, reply: &Reply) -> Answered {
        let url = match open.write {
            true => self.target(&open.url)?,
            false => url(&open.url)?,
        };
        self.unlocked(&url, reply)?;
        if open.write {
            return match open.lazy && self.open_in_parts(&url, open, reply) {
                true => Ok(None),
                false => self.edit(&url, open, reply),
            };
        }
        open.tag.as_deref().map(refusing::tag).transpose()?;
        if open.lazy && open.tag.is_none() {
            return self.open_lazily(&url, open, reply);
        }
        let reading = self.read(&url, open.fresh)?;
        self.keep_for_job(&url);
        if let Some(tag) = &open.tag {
            let tagged = self.desk.depot.tag(&url, tag, None);
            tagged.map_err(|error| refusing::depot("keep it under a tag", Some(&url), &error))?;
        }
        self.hand_over(reading, reply);
        Ok(None)
    }

    /// Opens what is here and fresh; returns false if more is to be done than that.
    fn open_here(&self, open: &ask::Open, reply: &Reply) -> bool {
        let Ok(url) = url(&open.url) else {
            return false;
        };
        if open.tag.is_some() || self.is_new_to_job(&url) {
            return false;
        }
        let depot = &self.desk.depot;
        if depot.is_locked() {
            return false;
        }
        let Some(reading) = depot.read_here(&url, &self.who, fresh_of(open.fresh)) else {
            return false;
        };
        self.hand_over(reading, reply);
        true
    }

    pub(super) fn hand_over(&self, reading: Reading, reply: &Reply) {
        let size = reading.size();
        let reading = Arc::new(reading);
        let handle = self.keep(Open::Reading(Arc::clone(&reading)));
        if reply.is_over() {
            self.open.lock().remove(&handle);
            return;
        }
        reply.tell_with(opened(handle, size), b"", &[reading.file().as_fd()]);
    }

    fn is_new_to_job(&self, url: &Url) -> bool {
        let Some(job) = &self.job else {
            return false;
        };
        let kept = (job.clone(), url.clone(), self.who.audience.clone());
        !self.desk.kept.lock().contains(&kept)
    }

    /// A file to write by a descriptor, and to read where that was asked: what comes of it is found when it is closed.
    fn edit(&self, url: &Url, open: &ask::Open, reply: &Reply) -> Answered {
        let wanted = format!("open {} to write", url.without_password());
        let bad = |error: Error| refusing::depot(&wanted, Some(url), &error);
        let edit = Edit {
            create: open.create,
            exclusive: open.create && open.excl,
            truncate: open.truncate,
            mode: open.mode,
            offline: open.fresh == ask::Fresh::Kept,
            session: self.session.clone(),
        };
        let (depot, is_there) = (&self.desk.depot, || !reply.is_gone());
        let editing = depot.edit_while(url, &self.who, &edit, &is_there);
        let editing = editing.map_err(bad)?;
        let size = editing.size();
        let kept = Arc::new(Mutex::new(Some(editing)));
        // Whoever closes it at once waits until our own descriptor is no longer in use.
        let editing = kept.lock();
        let handle = self.keep(Open::Editing(Arc::clone(&kept)));
        if let Some(editing) = &*editing {
            let file = editing.file().map_err(bad)?;
            reply.tell_with(opened(handle, size), b"", &[file.as_fd()]);
        }
        Ok(None)
    }

    /// Files that a job reads are kept for its other programs, for a while.
    fn keep_for_job(&self, url: &Url) {
        let Some(job) = &self.job else {
            return;
        };
        let mut kept = self.desk.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        let is_new = kept.insert((job.clone(), url.clone(), self.who.audience.clone()));
        drop(kept);
        if is_new {
            let staged = self.desk.depot.stage(url, &self.who, job, Some(JOB_LASTS));
            if let Err(error) = staged {
                tracing::debug!(%url, %error, "not kept for the job");
            }
        }
    }

    fn put(&self, put: &ask::Put, reply: &Reply) -> Answered {
        let url = self.target_found(&put.url, reply)?;
        let base = match (&put.base, put.new) {
            (_, true) if put.at_server => self.made_at_server(&url, put.mode, reply)?,
            (_, true) => Base::Absent,
            (None, false) => Base::Any,
            (Some(version), false) => Base::Seen(version.clone().into()),
        };
        let how = match put.in_place {
            true => How::Into,
            false => How::Anew(base),
        };
        self.begin(&url, how, put, reply)
    }

    fn begin(&self, url: &Url, how: How, put: &ask::Put, reply: &Reply) -> Answered {
        let wanted = format!("write {}", url.without_password());
        let bad = |error: Error| refusing::depot(&wanted, Some(url), &error);
        let (depot, session) = (&self.desk.depot, self.session.clone());
        let version = match &how {
            How::Anew(Base::Seen(version)) => version.clone().into(),
            _ => Version::None,
        };
        let begun = match how {
            How::Anew(base) => depot.put(url, &self.who, &Put { base, session }),
            How::Into => depot.put_into(url, &self.who, &session),
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
        let pen = Pen {
            url: url.clone(),
            writing: begun,
            grants: Mutex::default(),
            is_told: AtomicBool::new(put.packed),
            failed: Mutex::default(),
        };
        let handle = self.keep(Open::Writing(Arc::new(pen)));
        let files: Vec<_> = file.iter().map(File::as_fd).collect();
        let told = tell::Opened {
            handle,
            version,
            ..tell::Opened::default()
        };
        reply.tell_with(Tell::Opened(told), b"", &files);
        Ok(None)
    }

    fn grant(&self, grant: &ask::Grant, reply: &Reply) -> Answered {
        let pen = self.pen(grant.handle)?;
        let range = grant.start..grant.end.max(grant.start);
        let wanted = format!("write {}", pen.url.without_password());
        let ticket = pen
            .writing
            .grant_while(range.clone(), &waiting(reply))
            .map_err(|error| refusing::depot(&wanted, Some(&pen.url), &error))?;
        pen.is_told.store(true, Relaxed);
        let number = self.number();
        pen.grants.lock().insert(number, (range, ticket));
        Ok(Some(Tell::Granted { grant: number }))
    }

    fn written(&self, written: &ask::Written) -> Answered {
        let pen = self.pen(written.handle)?;
        let granted = pen.grants.lock().remove(&written.grant);
        let (range, ticket) = granted.ok_or_else(|| not_open("end a write", written.grant))?;
        let chain = written.chain.as_ref().map(|chain| chain.0);
        pen.writing.written_as(range, ticket, written.size, chain);
        Ok(None)
    }

    fn write(&self, handle: Handle, body: &[u8], reply: &Reply) -> Answered {
        let pen = self.pen(handle)?;
        if pen.failed.lock().is_some() {
            return Ok(None); // what comes behind a gap is not wanted
        }
        if let Err(refusal) = write_all(&pen, body, reply) {
            *pen.failed.lock() = Some(refusal);
        }
        Ok(None)
    }

    fn close(&self, close: &Close, reply: &Reply) -> Answered {
        let open = self.open.lock().remove(&close.handle);
        let pen = match open {
            None => return Err(not_open("close it", close.handle)),
            Some(Open::Reading(_) | Open::Lazy(_) | Open::Shared(_) | Open::Lying) => {
                return done(tell::Done::default());
            }
            Some(Open::Fragment(fragment)) => {
                if let Some(fragment) = fragment.lock().take() {
                    fragment.give_up();
                }
                return done(tell::Done::default());
            }
            Some(Open::Editing(editing)) => return self.edited(close, &editing, reply),
            Some(Open::Appending(stream)) => return self.appended(close, &stream),
            Some(Open::Adding(_)) => return done(tell::Done::default()), // given up
            Some(Open::Writing(pen)) => pen,
        };
        let url = pen.url.clone();
        let wanted = format!("write {}", url.without_password());
        let Ok(pen) = Arc::try_unwrap(pen).map_err(drop) else {
            let words = "something is still being written";
            return Err(Refusal::new(Kind::InUse, wanted, words));
        };
        if close.give_up {
            return done(tell::Done::default()); // dropped, and forgotten
        }
        if let Some(failed) = pen.failed.lock().take() {
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
            let granted = pen.writing.grant_while(0..size, &waiting(reply));
            let ticket = granted.map_err(bad)?;
            pen.writing.written(0..size, ticket, size);
        }
        let ended = pen.writing.end_while(&waiting(reply), &|| !reply.is_gone());
        ended.map_err(|error| of_new(bad(error)))?;
        self.closed(&wanted, &Scope::Url(url.clone()), close, reply)
    }

    /// Lines for the end of a file, in the body or by a stream.
    fn append(&self, append: &ask::Append, body: &[u8], reply: &Reply) -> Answered {
        let url = self.target(&append.url)?;
        let wanted = format!("append to {}", url.without_password());
        let bad = |error: Error| refusing::depot(&wanted, Some(&url), &error);
        if append.record && body.len() > RECORD_BYTES_MAX {
            let len = body.len();
            let words = format!(
                "a record of {len} bytes would be divided: {RECORD_BYTES_MAX} are the most that stay together"
            );
            let refusal = Refusal::new(Kind::TooLarge, &*wanted, words).about(&append.url);
            return Err(refusal.next("append it in records that are shorter"));
        }
        let appending = self.appending(&url).map_err(bad)?;
        if append.stream {
            let (stream, theirs) = Stream::begin(&url, appending)?;
            let handle = self.keep(Open::Appending(stream));
            reply.tell_with(opened(handle, 0), b"", &[theirs.as_fd()]);
            return Ok(None);
        }
        if !body.is_empty() {
            let wanted = |_: &Error| !reply.is_gone();
            appending.add_while(body, &wanted).map_err(bad)?;
        }
        self.appended_to(&appending, append.wait, None)
            .map_err(bad)?;
        if append.end {
            self.appends.lock().remove(&url);
        }
        done(tell::Done::default())
    }

    fn lines(&self, lines: &ask::Lines, body: &[u8], reply: &Reply) -> Answered {
        // Programs ask with nothing first.
        let url = match body.is_empty() {
            true => self.target_found(&lines.url, reply)?,
            false => url_owed(&lines.url)?,
        };
        let wanted = format!("append to {}", url.without_password());
        let bad = |error: Error| refusing::depot(&wanted, Some(&url), &error);
        let appending = self.appending(&url).map_err(bad)?;
        let nth = Nth {
            by: lines.by,
            seq: lines.seq,
        };
        if !body.is_empty() {
            let wanted = |_: &Error| !reply.is_gone();
            appending.add_once(body, nth, &wanted).map_err(bad)?;
        }
        done(tell::Done {
            bytes: body.len() as u64,
            ..tell::Done::default()
        })
    }

    fn appending(&self, url: &Url) -> Result<Arc<Appending>, Error> {
        let mut appends = self.appends.lock();
        if let Some(appending) = appends.get(url) {
            return Ok(Arc::clone(appending));
        }
        let appending = Arc::new(self.desk.depot.append_of(url, &self.who, &self.session)?);
        if appends.len() >= APPENDS_MAX {
            appends.clear();
        }
        appends.insert(url.clone(), Arc::clone(&appending));
        Ok(appending)
    }

    fn appended(&self, close: &Close, stream: &Stream) -> Answered {
        let wanted = format!("append to {}", stream.url.without_password());
        let bad = |error: Error| refusing::depot(&wanted, Some(&stream.url), &error);
        let limit = close.timeout_ms.map(Duration::from_millis);
        let appending = stream.wait(limit.unwrap_or(LAST_CLOSE)).map_err(bad)?;
        self.appended_to(appending, close.wait, limit)
            .map_err(bad)?;
        done(tell::Done::default())
    }

    /// Waits for lines, as long as their program wants.
    fn appended_to(
        &self,
        appending: &Appending,
        wait: Wait,
        limit: Option<Duration>,
    ) -> godwit_depot::Result<()> {
        match wait {
            Wait::Nothing => Ok(()),
            Wait::Commit if !self.ends_soon => appending.commit(),
            Wait::Commit | Wait::Push => appending.push(limit),
        }
    }

    fn edited(&self, close: &Close, editing: &Mutex<Option<Editing>>, reply: &Reply) -> Answered {
        const WANTED: &str = "close it";
        let Some(editing) = editing.lock().take() else {
            return Err(not_open(WANTED, close.handle));
        };
        let bad = |error: Error| refusing::depot(WANTED, None, &error);
        if close.give_up {
            editing.discard().map_err(bad)?;
            return done(tell::Done::default());
        }
        let scope = Scope::Url(editing.url().clone());
        let ended = (editing.end_while(&|| !reply.is_gone())).map_err(bad)?;
        if ended == Ended::Open && close.wait != Wait::Nothing {
            let note = "another program, or a copy of the descriptor, can still write it: it goes when the last is closed";
            return done(tell::Done {
                notes: vec![note.into()],
                ..tell::Done::default()
            });
        }
        self.closed(WANTED, &scope, close, reply)
    }

    /// Waits for what was written, as long as its program wants.
    fn closed(&self, wanted: &str, scope: &Scope, close: &Close, reply: &Reply) -> Answered {
        match close.wait {
            Wait::Nothing => done(tell::Done::default()),
            Wait::Commit => self.make_safe(wanted, scope, close.timeout_ms, reply),
            Wait::Push => self.deliver(wanted, scope, close.timeout_ms, reply),
        }
    }

    fn commit(&self, whose: &Whose, reply: &Reply) -> Answered {
        let scope = self.scope(whose)?;
        self.make_safe("commit", &scope, whose.timeout_ms, reply)
    }

    fn push(&self, whose: &Whose, reply: &Reply) -> Answered {
        let scope = self.scope(whose)?;
        let is_owed = !self.owed_of(&scope).is_empty();
        let mut answer = self.deliver("push", &scope, whose.timeout_ms, reply)?;
        // A hop may have it of somebody else, or of a verb.
        if let (Scope::Url(url) | Scope::Below(url), false) = (&scope, is_owed) {
            let limit = whose.timeout_ms.map(Duration::from_millis);
            let pushed =
                (self.desk.depot).push_unowed_while((url, &self.who), limit, &|| !reply.is_over());
            let unseen = pushed.map_err(|error| self.not_delivered("push", &scope, &error))?;
            if let (Some(hop), Some(Tell::Done(done))) = (unseen, &mut answer) {
                let words = going::out_of_sight(&hop);
                if !done.notes.contains(&words) {
                    done.notes.push(words);
                }
            }
        }
        Ok(answer)
    }

    /// It survives whatever may end this machine's disk, or the job that we are part of.
    fn make_safe(
        &self,
        wanted: &str,
        scope: &Scope,
        timeout_ms: Option<u64>,
        reply: &Reply,
    ) -> Answered {
        if self.ends_soon {
            let mut answer = self.deliver(wanted, scope, timeout_ms, reply)?;
            if let Some(Tell::Done(done)) = &mut answer {
                done.notes
                    .push("this node ends with the job, so what it had was delivered first".into());
            }
            return Ok(answer);
        }
        let bad = |error: Error| refusing::depot(wanted, None, &error);
        self.desk.depot.commit(scope).map_err(bad)?;
        done(self.told_of(&self.owed_of(scope)))
    }

    fn get(&self, get: &ask::Get, reply: &Reply) -> Answered {
        let url = url(&get.url)?;
        self.unlocked(&url, reply)?;
        if get.start > 0
            || get
                .end
                .is_some_and(|end| end <= get.start + BODY_BYTES_MAX as u64)
        {
            return self.part(&url, get, reply);
        }
        let reading = self.read(&url, get.fresh)?;
        let wanted = format!("read {}", url.without_password());
        let read = |at, bytes: &mut [u8]| {
            let read = reading.file().read_exact_at(bytes, at);
            read.map_err(|error| refusing::disk(&wanted, &error))
        };
        tell_part(get, reading.size(), &wanted, read, reply)
    }

    /// A part of a file: of the rest nothing comes here for that.
    fn part(&self, url: &Url, get: &ask::Get, reply: &Reply) -> Answered {
        let wanted = format!("read {}", url.without_password());
        let bad = |error: Error| refusing::depot(&wanted, Some(url), &error);
        let part = self
            .desk
            .depot
            .lazily(url, &self.who, fresh_of(get.fresh))
            .map_err(bad)?;
        let read = |at, bytes: &mut [u8]| part.read(at, bytes).map_err(bad);
        tell_part(get, part.size(), &wanted, read, reply)
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
        let file = memory(&place.url).map_err(failed)?;
        let into = Filling(&file, "memory");
        let want = Extents::from(0..u64::MAX);
        let read = from
            .store
            .read(&from.path, &want, STREAMS, &into)
            .map_err(bad)?;
        let size = read.stat.size;
        file.set_len(size).map_err(failed)?;
        if let Some(told) = read
            .digest
            .filter(|told| told.algorithm() == Algorithm::Blake3)
        {
            let found = digest(&file, size).map_err(failed)?;
            if found != told {
                let words = format!("the server told {told}, the bytes have {found}");
                return Err(Refusal::new(Kind::Corrupt, wanted, words).about(&place.url));
            }
        }
        seal(&file).map_err(failed)?;
        let tell = Tell::Bytes { len: size, size };
        reply.tell_with(tell, b"", &[file.as_fd()]);
        Ok(None)
    }

    fn queue(&self, whose: &Whose, reply: &Reply) -> Answered {
        let scope = self.scope(whose)?;
        let owed = self.owed_of(&scope);
        let answer = self.told_of(&owed);
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
        of_files(1)
    }

    /// What is done to a name: here at once, and there in its turn.
    fn deed(&self, deed: ask::Deed, reply: &Reply) -> Answered {
        let is_wanted = || !reply.is_gone();
        let (depot, by) = (
            &self.desk.depot,
            By {
                who: &self.who,
                session: &self.session,
                is_wanted: &is_wanted,
            },
        );
        let (verb, at, done) = match deed {
            ask::Deed::Rename { url: from, to } => {
                let (from, to) = (self.target(&from)?, self.target(&to)?);
                ("rename", from.clone(), depot.rename(&from, &to, by))
            }
            ask::Deed::Unlink { url: text } => {
                let at = self.target(&text)?;
                ("remove", at.clone(), depot.unlink(&at, by))
            }
            ask::Deed::Mkdir { url: text } => {
                let at = self.target(&text)?;
                ("make", at.clone(), depot.mkdir(&at, by))
            }
            ask::Deed::Truncate { url: text, size } => {
                let at = self.target(&text)?;
                ("cut", at.clone(), depot.truncate(&at, size, by))
            }
            ask::Deed::Set {
                url: text,
                mode,
                mtime_ns,
            } => {
                let at = self.target(&text)?;
                let mtime = mtime_ns.map(Duration::from_nanos);
                let set = depot.set(&at, &Attributes { mode, mtime }, by);
                ("change", at, set)
            }
            _ => return Err(unknown()),
        };
        let wanted = format!("{verb} {}", at.without_password());
        done.map_err(|error| refusing::depot(&wanted, Some(&at), &error))?;
        of_files(1)
    }

    fn cache(&self, cache: Cache, reply: &Reply) -> Answered {
        let depot = &self.desk.depot;
        let bad = |what: &'static str, url: Option<Url>| {
            move |error: Error| refusing::depot(what, url.as_ref(), &error)
        };
        match cache {
            Cache::Ls { prefix, .. } => rows(reply, depot.list(&prefix), kept_row),
            Cache::Add(add) => self.add(&add, reply),
            Cache::AddDone(added) => self.add_done(&added),
            Cache::Stat(place) => rows(reply, self.held(&place, reply)?, kept_row),
            Cache::Why(place) => {
                let held = self.held(&place, reply)?;
                let words: Vec<String> = held.iter().map(why_kept).collect();
                Ok(Some(Tell::Words(words.join("; "))))
            }
            Cache::Rm { url: text, tag } => {
                let url = url(&text)?;
                self.unlocked(&url, reply)?;
                let files = match tag {
                    Some(tag) => depot.untag(&url, &tag).map(|()| 1).map_err(|error| {
                        let mut refusal = bad("take a tag off", Some(url.clone()))(error);
                        if refusal.kind == Kind::Missing {
                            refusal.kind = Kind::NoTag;
                        }
                        refusal
                    })?,
                    None => depot
                        .forget(&url)
                        .map_err(bad("forget it", Some(url.clone())))?,
                };
                of_files(files)
            }
            Cache::Clean { tag, url: text } => {
                let url = text.map(|text| url(&text)).transpose()?;
                if let Some(url) = &url {
                    self.unlocked(url, reply)?;
                }
                let cleaned = depot.clean(&tag, url.as_ref());
                of_files(cleaned.map_err(bad("take a tag off", url.clone()))?)
            }
            Cache::Df { .. } => {
                let usage = depot.usage();
                Ok(Some(Tell::Space(tell::Space {
                    path: depot.root().display().to_string(),
                    quota_bytes: usage.quota,
                    used_bytes: usage.taken,
                    owed_bytes: usage.owed,
                    kept_bytes: usage.kept,
                    free_bytes: godwit_sys::free_bytes(depot.root()).ok(),
                    files: usage.files,
                })))
            }
            Cache::Verify { url: text } => {
                let url = text.map(|text| url(&text)).transpose()?;
                let mut told = tell::Done::default();
                let verified = depot.verify(url.as_ref(), |found| {
                    told.files += 1;
                    told.bytes += found.bytes;
                    reply.tell(Tell::Row(Box::new(verified_row(&found))));
                });
                verified.map_err(bad("verify what is kept", url))?;
                done(told)
            }
            _ => Err(unknown()),
        }
    }

    fn held(&self, place: &Where, reply: &Reply) -> Result<Vec<Holds>, Refusal> {
        let url = url(&place.url)?;
        self.unlocked(&url, reply)?;
        let held = self.desk.depot.holds(&url);
        match held.is_empty() {
            true => Err(Refusal::new(
                Kind::Missing,
                format!("look at {}", url.without_password()),
                "nothing of it is kept here",
            )),
            false => Ok(held),
        }
    }

    fn stage(&self, stage: &ask::Stage, reply: &Reply) -> Answered {
        let url = url(&stage.url)?;
        self.unlocked(&url, reply)?;
        let tag = stage.tag.as_deref().map(refusing::tag).transpose()?;
        let tag = tag.or(self.job.as_deref());
        let lasts = stage.expires_in_s.map(Duration::from_secs);
        let wanted = format!("stage {}", url.without_password());
        let bad = |error: Error| refusing::depot(&wanted, Some(&url), &error);
        // Kept until a tag keeps it.
        let ahead = self.ahead(&url, stage.bytes_per_s, reply).map_err(bad)?;
        let (as_tag, is_wanted) = ((tag.unwrap_or(STAGED), lasts), || !reply.is_over());
        let staged = (self.desk.depot).stage_while(&url, &self.who, as_tag, &is_wanted);
        let (bytes, _) = staged.map_err(bad)?;
        drop(ahead);
        done(tell::Done {
            files: 1,
            bytes,
            notes: Vec::new(),
        })
    }

    /// Fetches it no faster than is wished, if anything is.
    pub(super) fn ahead(
        &self,
        url: &Url,
        rate: Option<NonZeroU64>,
        reply: &Reply,
    ) -> godwit_depot::Result<Option<Lazily>> {
        let is_wanted = || !reply.is_over();
        rate.map(|rate| (self.desk.depot).prefetch(url, &self.who, rate, &is_wanted))
            .transpose()
    }

    /// What is owed of it is delivered, and then the tag keeps it no more.
    fn unstage(&self, stage: &ask::Stage, reply: &Reply) -> Answered {
        let url = url(&stage.url)?;
        let wanted = format!("unstage {}", url.without_password());
        let scope = Scope::Url(url.clone());
        let delivered = self.deliver(&wanted, &scope, stage.timeout_ms, reply)?;
        let tag = stage.tag.as_deref().or(self.job.as_deref());
        match self.desk.depot.untag(&url, tag.unwrap_or(STAGED)) {
            Ok(()) => Ok(delivered),
            Err(Error::Unknown(_)) => Ok(elsewhere::without_tag(delivered)),
            Err(error) => Err(refusing::depot(&wanted, Some(&url), &error)),
        }
    }

    /// A fetch that was begun for a program goes on for whoever comes next, also if that is killed.
    pub(super) fn read(&self, url: &Url, fresh: ask::Fresh) -> Result<Reading, Refusal> {
        self.desk
            .depot
            .read(url, &self.who, fresh_of(fresh))
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
            (Some(text), ..) if whose.below => Scope::Below(url(text)?),
            (Some(text), ..) => Scope::Url(url(text)?),
            (None, Some(session), _) => Scope::Session(session.clone()),
            (None, None, true) => Scope::Session(self.session.clone()),
            (None, None, false) => Scope::All,
        })
    }

    pub(super) fn owed_of(&self, scope: &Scope) -> Vec<Owed> {
        self.desk.depot.pending_of(scope)
    }

    /// How much that is, and what somebody should know of it.
    fn told_of(&self, owed: &[Owed]) -> tell::Done {
        let mut notes = Vec::new();
        if !owed.is_empty() && !self.desk.bounds.is_installed {
            notes.push(AFTER_RESTART.into());
        }
        tell::Done {
            files: owed.len() as u64,
            bytes: owed.iter().map(|owed| owed.owed).sum(),
            notes,
        }
    }

    fn pen(&self, handle: Handle) -> Result<Arc<Pen>, Refusal> {
        match self.open.lock().get(&handle) {
            Some(Open::Writing(pen)) => Ok(Arc::clone(pen)),
            _ => Err(not_open("write it", handle)),
        }
    }

    pub(super) fn keep(&self, open: Open) -> Handle {
        let handle = self.number();
        self.open.lock().insert(handle, open);
        handle
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed) + 1
    }
}

/// Tells what is asked of a file of `size` bytes: as the body of the answer if it has room, else in memory.
fn tell_part(
    get: &ask::Get,
    size: u64,
    wanted: &str,
    read: impl Fn(u64, &mut [u8]) -> Result<(), Refusal>,
    reply: &Reply,
) -> Answered {
    let end = get.end.unwrap_or(size).min(size);
    let start = get.start.min(end);
    let len = end - start;
    let tell = Tell::Bytes { len, size };
    let mut piece = vec![0; len.min(BODY_BYTES_MAX as u64) as usize];
    if len <= BODY_BYTES_MAX as u64 {
        read(start, &mut piece)?;
        reply.tell_with(tell, &piece, &[]);
        return Ok(None);
    }
    let failed = |error: io::Error| refusing::disk(wanted, &error);
    let into = memory(&get.url).map_err(failed)?;
    let mut at = start;
    while at < end {
        let len = (end - at).min(piece.len() as u64) as usize;
        read(at, &mut piece[..len])?;
        let written = into.write_all_at(&piece[..len], at - start);
        written.map_err(failed)?;
        at += len as u64;
    }
    seal(&into).map_err(failed)?;
    reply.tell_with(tell, b"", &[into.as_fd()]);
    Ok(None)
}

/// Says as what a file is open, and how long it is.
pub(super) fn opened(handle: Handle, size: u64) -> Tell {
    Tell::Opened(tell::Opened {
        handle,
        size,
        ..tell::Opened::default()
    })
}

/// How a file is put.
enum How {
    /// In place of what is there.
    Anew(Base),
    /// Into what is there.
    Into,
}

/// Says of a name that was to be free what has it.
fn of_new(refusal: Refusal) -> Refusal {
    match refusal.kind {
        Kind::Exists => refusal.next(
            "godwit queue shows whether it is on its way there; without --new it is replaced",
        ),
        _ => refusal,
    }
}

/// Returns by what the files of a job are kept: the first that a batch system says.
fn job_tag(job: &std::collections::BTreeMap<String, String>) -> Option<String> {
    let (name, value) = JOBS
        .iter()
        .find_map(|(variable, name)| Some((name, job.get(*variable)?)))?;
    let tag = format!("{name}-{value}");
    refusing::tag(&tag).is_ok().then_some(tag)
}

/// Tells what is held, and counts a file once however many versions of it there are.
pub(super) fn rows(reply: &Reply, held: Vec<Holds>, row: impl Fn(Holds) -> tell::Row) -> Answered {
    let mut told = tell::Done {
        files: count_names(&held),
        ..tell::Done::default()
    };
    for held in held {
        told.bytes += held.present;
        reply.tell(Tell::Row(Box::new(row(held))));
    }
    done(told)
}

pub(super) fn kept_row(held: Holds) -> tell::Row {
    let tags = held.tags.iter().map(tag_words).collect();
    tell::Row {
        id: held.id,
        url: held.url.without_password().to_string(),
        audience: held.audience,
        size: held.size,
        present_bytes: held.present,
        owed_bytes: held.owed,
        owes: held.owed > 0,
        stage: match held.is_current {
            true => "current",
            false => "old",
        }
        .into(),
        transfers: held.transfers,
        timestamp: (held.stamp).or_else(|| held.tags.iter().find_map(|tag| tag.timestamp)),
        tags,
        readers: held.users.into(),
        used_s: Some(held.used),
        base: Some(held.base),
        ..tell::Row::default()
    }
}

pub(super) fn verified_row(found: &Verified) -> tell::Row {
    let stage = match (found.wrong.is_empty(), found.is_unknown) {
        (false, _) => "wrong",
        (true, true) => "unknown",
        (true, false) => "whole",
    };
    let is_wrong = !found.wrong.is_empty();
    tell::Row {
        url: found.url.without_password().to_string(),
        size: found.bytes,
        stage: stage.into(),
        why: is_wrong.then(|| format!("{} leaves of 1 MiB differ", found.wrong.len())),
        reason: is_wrong.then_some(Kind::Corrupt),
        ..tell::Row::default()
    }
}

fn tag_words(tag: &Tag) -> String {
    match tag.count {
        0 | 1 => tag.name.clone(),
        count => format!("{} ({count} times)", tag.name),
    }
}

pub(super) fn why_kept(held: &Holds) -> String {
    let mut why = Vec::new();
    if held.owed > 0 {
        why.push(format!("its target lacks {} bytes", held.owed));
    }
    if held.users > 0 {
        why.push(format!("{} programs have it open", held.users));
    }
    for tag in &held.tags {
        why.push(format!("the tag {} is on it", tag_words(tag)));
    }
    match why.is_empty() {
        true => "nothing keeps it: it goes when room is wanted".into(),
        false => format!("kept, since {}", why.join(" and ")),
    }
}

pub(super) fn of_files(files: u64) -> Answered {
    done(tell::Done {
        files,
        ..tell::Done::default()
    })
}

fn write_all(pen: &Pen, body: &[u8], reply: &Reply) -> Result<(), Refusal> {
    let wanted = || format!("write {}", pen.url.without_password());
    let writes = records::of(body)
        .map_err(|error| Refusal::new(Kind::Invalid, wanted(), error.to_string()))?;
    let write = |offset: u64, bytes: &[u8]| {
        let written = pen
            .writing
            .write_while(offset, bytes, &|_| !reply.is_gone());
        written.map_err(|error| refusing::depot(&wanted(), Some(&pen.url), &error))
    };
    // Those that follow each other are one: what a write costs, it costs whatever its length.
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

pub(super) fn row(owed: Owed) -> tell::Row {
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
        what: owed.what.into(),
        to: owed.to.map(|to| to.without_password().to_string()),
        url: owed.url.without_password().to_string(),
        session: Some(owed.session).filter(|session| !session.is_empty()),
        size: owed.size,
        present_bytes: owed.size,
        owed_bytes: owed.owed,
        owes: true,
        stage: stage.into(),
        waits_for: owed.waits_for.map(|first| first.id),
        why: Some(owed.why).filter(|why| !why.is_empty()),
        reason: owed.is_conflict.then_some(Kind::OnHold),
        next_ms: next.map(ms),
        age_ms: Some(ms(owed.age)),
        attempts: owed.tries.into(),
        committed: owed.is_committed,
        ..tell::Row::default()
    }
}

/// Tells a program that it waits for room, and for which; until it goes.
fn waiting(reply: &Reply) -> impl Fn(&Error) -> bool + '_ {
    let told: Mutex<Option<(Instant, String)>> = Mutex::default();
    move |full| {
        let (now, why) = (Instant::now(), full.to_string());
        let mut told = told.lock();
        let is_known = told
            .as_ref()
            .is_some_and(|(at, was)| *was == why || now.duration_since(*at) < TOLD_AGAIN);
        if !is_known {
            reply.tell(Tell::Row(Box::new(tell::Row {
                what: "room".into(),
                stage: "waiting".into(),
                why: Some(why.clone()),
                reason: Some(Kind::Quota),
                ..tell::Row::default()
            })));
            *told = Some((now, why));
        }
        !reply.is_gone()
    }
}

pub(super) fn done(done: tell::Done) -> Answered {
    Ok(Some(Tell::Done(done)))
}

pub(super) fn not_open(wanted: &str, number: u64) -> Refusal {
    let words = format!("nothing is open as number {number} on this connection");
    Refusal::new(Kind::NotOpen, wanted, words)
}

fn not_yet(what: &str) -> Refusal {
    Refusal::new(Kind::Unsupported, what, "this version of godwit cannot")
}

fn unknown() -> Refusal {
    not_yet("do what was asked")
}

const AFTER_RESTART: &str = "after a restart of this machine, delivery waits for the next program that asks; \
                             godwit node install has it begin by itself";
pub(super) const STAGED: &str = "staged";
/// What a job keeps without having said so.
const JOB_LASTS: Duration = Duration::from_secs(86_400);
const KEPT_MAX: usize = 100_000;
const JOBS: [(&str, &str); 6] = [
    ("GODWIT_JOB", "godwit"),
    ("SLURM_JOB_ID", "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("_CONDOR_JOB_AD", "condor"),
    ("JOB_ID", "job"),
];
const STREAMS: usize = 4;

pub(super) fn fresh_of(fresh: ask::Fresh) -> Fresh {
    match fresh {
        ask::Fresh::Usual => Fresh::Usual,
        ask::Fresh::Asked => Fresh::Proved,
        ask::Fresh::Kept => Fresh::Any,
    }
}

/// How soon a program is told anew what it waits for.
const TOLD_AGAIN: Duration = Duration::from_secs(10);

/// So many files one program appends to without their logs being asked for again.
const APPENDS_MAX: usize = 256;

/// What is appended at once and not divided: the target is sent no more at a time.
const RECORD_BYTES_MAX: usize = godwit_depot::RECORD_BYTES_MAX;
/// Whoever closes a stream may have copies of it in children that are about to end.
const LAST_CLOSE: Duration = Duration::from_secs(10);
