//! A node that has no depot: files in memory, and what was asked, for tests to look at.

use godwit_core::Fault;
use godwit_sys::{memory, receive_passing, seal, send_passing};
use godwit_wire::door::call::Link;
use godwit_wire::local::{
    Decoder, Handle, Kind, Refusal, Request, RequestHead, Response, ResponseHead, VERSION, records,
    request::{self, Wait},
    response,
};
use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{
            fs::FileExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A file as the node has it.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    pub bytes: Vec<u8>,
    pub mode: Option<u32>,
    pub tags: Vec<String>,
    pub timestamp: Option<i64>,
    pub is_locked: bool,
    pub is_cached: bool,
}

/// State that tests read and set.
#[derive(Debug, Default)]
pub struct World {
    pub files: BTreeMap<String, Kept>,
    /// Requests, a line each: `open godwit://lab/x`.
    pub log: Vec<String>,
    /// Files whose delivery fails, with the kind of failure.
    pub refused: HashMap<String, Kind>,
    /// How many files are open.
    pub open: usize,
    /// How many programs are connected, and how many were.
    pub connected: usize,
    pub connections: u64,
    /// Asks for these are not answered until it is taken away.
    pub held_up: Vec<String>,
    /// Connections end at the next ask of this kind.
    pub dies_at: Option<&'static str>,
    /// Whether the next connection takes over the files that were being written.
    pub goes_on: bool,
    /// Paths of those files.
    being_written: HashMap<String, PathBuf>,
    /// Whether the stand-in returns too many bytes, and passes memory that can change.
    pub lies: bool,
    /// Writes that arrived packed, and their frames.
    pub packed: (u64, u64),
}

#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    changed: Condvar,
    dir: PathBuf,
}

/// The node.
pub struct StandIn {
    shared: Arc<Shared>,
    socket: PathBuf,
}

impl StandIn {
    pub fn start(dir: &Path) -> Self {
        let socket = dir.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::new(Shared {
            world: Mutex::default(),
            changed: Condvar::new(),
            dir: dir.to_owned(),
        });
        let serving = Arc::clone(&shared);
        // It ends with the test's process.
        thread::spawn(move || {
            for socket in listener.incoming() {
                let shared = Arc::clone(&serving);
                let socket = socket.unwrap();
                thread::spawn(move || Talk::new(shared, socket).attend());
            }
        });
        Self { shared, socket }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().unwrap()
    }

    pub fn keep(&self, url: &str, bytes: &[u8]) {
        let kept = Kept {
            bytes: bytes.to_vec(),
            ..Kept::default()
        };
        self.world().files.insert(url.to_owned(), kept);
    }

    pub fn bytes(&self, url: &str) -> Option<Vec<u8>> {
        self.world().files.get(url).map(|kept| kept.bytes.clone())
    }

    pub fn let_go(&self) {
        self.world().held_up.clear();
        self.shared.changed.notify_all();
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, is_so: impl Fn(&World) -> bool) {
        let world = self.world();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(world, Duration::from_secs(30), |world| !is_so(world))
            .unwrap();
        assert!(!waited.1.timed_out(), "never: {what}: {:#?}", *waited.0);
    }

    pub fn count(&self, line: &str) -> usize {
        let world = self.world();
        world
            .log
            .iter()
            .filter(|said| said.starts_with(line))
            .count()
    }
}

enum Open {
    Read,
    Write {
        url: String,
        path: PathBuf,
    },
    Packed {
        url: String,
        bytes: Vec<u8>,
    },
    Stream {
        url: String,
        reading: JoinHandle<Vec<u8>>,
    },
    Added {
        url: String,
        path: Option<PathBuf>,
    },
}

struct Talk {
    shared: Arc<Shared>,
    socket: UnixStream,
    number: u64,
    open: Arc<Mutex<BTreeMap<Handle, Open>>>,
    last: Handle,
}

type Answer = (Response, Vec<u8>, Option<OwnedFd>);

impl Talk {
    fn new(shared: Arc<Shared>, socket: UnixStream) -> Self {
        let mut guard = shared.world.lock().unwrap();
        let world = &mut *guard;
        world.connected += 1;
        world.connections += 1;
        let number = world.connections;
        // A file without a writer counts, as soon as there is a node.
        for (url, path) in &world.being_written {
            let file = File::open(path).unwrap();
            let is_free = godwit_sys::lease(&file, godwit_sys::Unless::Written);
            if matches!(is_free, Ok(godwit_sys::Leased::Granted(_))) {
                world.files.entry(url.clone()).or_default().bytes = fs::read(path).unwrap();
            }
        }
        drop(guard);
        Self {
            shared,
            socket,
            number,
            open: Arc::default(),
            last: 0,
        }
    }

    fn attend(mut self) {
        let (mut decoder, mut buffer, mut files) = (Decoder::new(), vec![0; 64 << 10], Vec::new());
        'all: loop {
            let came = receive_passing(&self.socket, &mut buffer, &mut files).unwrap_or(0);
            if came == 0 {
                break;
            }
            let mut input = &buffer[..came];
            while let Ok((taken, Some(frame))) = decoder.next(input) {
                input = &input[taken..];
                let asked = RequestHead::read(&frame.head).unwrap();
                if !self.answer(asked, frame.body) {
                    break 'all;
                }
            }
        }
        let open = std::mem::take(&mut *self.open.lock().unwrap());
        let mut world = self.shared.world.lock().unwrap();
        world.open -= open.len();
        if world.goes_on {
            let written = open.into_values().filter_map(|open| match open {
                Open::Write { url, path } => Some((url, path)),
                _ => None,
            });
            world.being_written.extend(written);
        }
        world.connected -= 1;
        world.log.push(format!("left {}", self.number));
        self.shared.changed.notify_all();
    }

    fn answer(&mut self, asked: RequestHead, body: Vec<u8>) -> bool {
        let line = describe(&asked.ask);
        {
            let mut world = self.shared.world.lock().unwrap();
            world.log.push(line.clone());
            self.shared.changed.notify_all();
            if world.dies_at.is_some_and(|at| line.starts_with(at)) {
                world.dies_at = None;
                return false;
            }
            let held_up = |world: &World| {
                let waits = match &asked.ask {
                    Request::Cache(request::Cache::Add(add)) => {
                        world.files.get(&add.url).is_some_and(|kept| kept.is_locked)
                    }
                    _ => false,
                };
                waits || world.held_up.iter().any(|at| line.starts_with(at))
            };
            if held_up(&world) {
                drop(world);
                return self.later(asked, body, line);
            }
        }
        self.answer_now(asked, body)
    }

    /// Answers when it is let go, while others are answered.
    fn later(&mut self, asked: RequestHead, body: Vec<u8>, line: String) -> bool {
        // Only asks that open nothing that must be known here are held up, and openings to read.
        let shared = Arc::clone(&self.shared);
        let socket = self.socket.try_clone().unwrap();
        let (number, open) = (self.number, Arc::clone(&self.open));
        self.last += 1000;
        let last = self.last;
        thread::spawn(move || {
            let world = shared.world.lock().unwrap();
            let still = |world: &mut World| {
                let is_taken_back = world.log.contains(&format!("cancel {}", asked.n));
                world.held_up.iter().any(|at| line.starts_with(at)) && !is_taken_back
            };
            drop(shared.changed.wait_while(world, still).unwrap());
            let mut talk = Talk {
                shared: Arc::clone(&shared),
                socket,
                number,
                open,
                last,
            };
            talk.answer_now(asked, body);
        });
        true
    }

    fn answer_now(&mut self, asked: RequestHead, body: Vec<u8>) -> bool {
        let is_silent = asked.ask.is_silent();
        let (tell, body, file) = match self.done(asked.n, asked.ask, body) {
            Ok(answer) => answer,
            Err(refusal) => (Response::Refused(Box::new(refusal)), Vec::new(), None),
        };
        if is_silent {
            return true;
        }
        let told = ResponseHead {
            n: asked.n,
            fds: u8::from(file.is_some()),
            tell,
        };
        let frame = told.write(&body).unwrap();
        let mut passed: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        let mut rest = &frame[..];
        while !rest.is_empty() {
            match send_passing(&self.socket, rest, &passed) {
                Ok(sent) => rest = &rest[sent..],
                Err(_) => break, // what else it said counts
            }
            passed.clear();
        }
        true
    }

    fn done(&mut self, n: u64, ask: Request, body: Vec<u8>) -> Result<Answer, Refusal> {
        let plain = |tell| Ok((tell, Vec::new(), None));
        match ask {
            Request::Hello(_) => plain(Response::Hello(response::Hello {
                version: VERSION,
                godwit: "stand-in".into(),
                process: std::process::id(),
                connection: self.number,
            })),
            Request::Open(open) => self.open(&open),
            Request::Put(put) => self.put(&put),
            Request::Write(write) => {
                let mut world = self.shared.world.lock().unwrap();
                let mut open = self.open.lock().unwrap();
                let Some(Open::Packed { bytes, .. }) = open.get_mut(&write.handle) else {
                    return Err(refusal(Kind::NotOpen, "write"));
                };
                world.packed.1 += 1;
                for (offset, piece) in records::of(&body).unwrap() {
                    world.packed.0 += 1;
                    let end = offset as usize + piece.len();
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[offset as usize..end].copy_from_slice(piece);
                }
                plain(done(0))
            }
            Request::Close(close) | Request::End(close) => self.close(&close),
            Request::Get(get) => {
                let open = self.open.lock().unwrap();
                let put = open.values().find_map(|open| match open {
                    Open::Packed { url, bytes } if *url == get.url => Some(bytes.clone()),
                    _ => None,
                });
                drop(open);
                let kept = match put {
                    Some(bytes) => bytes,
                    None => self.kept(&get.url)?.bytes,
                };
                let end = get.end.unwrap_or(u64::MAX).min(kept.len() as u64);
                let bytes = &kept[get.start.min(end) as usize..end as usize];
                let tell = Response::Bytes {
                    len: bytes.len() as u64,
                    size: kept.len() as u64,
                };
                if self.shared.world.lock().unwrap().lies {
                    let len = kept.len() as u64;
                    let tell = Response::Bytes { len, size: len };
                    return Ok((tell, kept, None));
                }
                match bytes.len() > 1 << 20 {
                    true => Ok((tell, Vec::new(), Some(sealed(bytes)))),
                    false => Ok((tell, bytes.to_vec(), None)),
                }
            }
            Request::Memory(place) => {
                let bytes = self.kept(&place.url)?.bytes;
                let size = bytes.len() as u64;
                let tell = Response::Bytes { len: size, size };
                if self.shared.world.lock().unwrap().lies {
                    let file = memory("test").unwrap();
                    file.write_all_at(&bytes, 0).unwrap();
                    return Ok((tell, Vec::new(), Some(file.into())));
                }
                Ok((tell, Vec::new(), Some(sealed(&bytes))))
            }
            Request::Stat(place) => {
                let kept = self.kept(&place.url)?;
                plain(Response::Stat(response::LocalStat {
                    url: place.url,
                    size: kept.bytes.len() as u64,
                    mode: kept.mode,
                    ..response::LocalStat::default()
                }))
            }
            Request::Commit(_) => plain(done(0)),
            Request::Push(whose) => {
                let world = self.shared.world.lock().unwrap();
                let failed = world
                    .refused
                    .iter()
                    .find(|(url, _)| whose.url.as_ref().is_none_or(|of| of == *url));
                match failed {
                    Some((_, why)) => Err(refusal(*why, "push")),
                    None => plain(done(0)),
                }
            }
            Request::Stage(stage) => {
                self.kept(&stage.url)?;
                let mut world = self.shared.world.lock().unwrap();
                let kept = world.files.get_mut(&stage.url).unwrap();
                kept.tags.extend(stage.tag);
                kept.is_cached = true;
                plain(done(kept.bytes.len() as u64))
            }
            Request::Unstage(stage) => {
                let mut world = self.shared.world.lock().unwrap();
                let kept = world.files.get_mut(&stage.url);
                let kept = kept.ok_or_else(|| refusal(Kind::Missing, "unstage"))?;
                kept.tags.retain(|tag| Some(tag) != stage.tag.as_ref());
                plain(done(0))
            }
            Request::Append(append) if append.stream => self.stream(append.url),
            Request::Append(append) => {
                let mut world = self.shared.world.lock().unwrap();
                let kept = world.files.entry(append.url).or_default();
                kept.bytes.extend(&body);
                plain(done(body.len() as u64))
            }
            Request::Cancel { of } => {
                let mut world = self.shared.world.lock().unwrap();
                world.log.push(format!("cancel {of}"));
                self.shared.changed.notify_all();
                plain(done(0))
            }
            Request::Cache(cache) => self.cache(n, cache),
            Request::Copy(copy) => {
                let from = self.kept(&copy.url)?;
                self.kept(&copy.to).or_else(|refusal| match refusal.kind {
                    Kind::Missing => Ok(Kept::default()),
                    _ => Err(refusal),
                })?;
                let mut world = self.shared.world.lock().unwrap();
                let bytes = from.bytes.len() as u64;
                world.files.entry(copy.to).or_default().bytes = from.bytes;
                plain(done(bytes))
            }
            _ => Err(refusal(Kind::Unsupported, "do that")),
        }
    }

    fn open(&mut self, open: &request::OpenRequest) -> Result<Answer, Refusal> {
        let known = self.kept(&open.url);
        if open.excl && known.is_ok() {
            return Err(refusal(Kind::Exists, "open"));
        }
        let bytes = match known {
            Ok(_) if open.truncate => Vec::new(),
            Ok(kept) => kept.bytes,
            Err(refusal) if refusal.kind == Kind::Missing && open.create => Vec::new(),
            Err(refusal) => return Err(refusal),
        };
        let size = bytes.len() as u64;
        let survivor = self
            .shared
            .world
            .lock()
            .unwrap()
            .being_written
            .remove(&open.url);
        let path = survivor.unwrap_or_else(|| self.file(&bytes));
        let file = OpenOptions::new()
            .read(open.read)
            .write(open.write)
            .open(&path)
            .unwrap();
        let opened = match open.write {
            true => Open::Write {
                url: open.url.clone(),
                path,
            },
            false => {
                fs::remove_file(&path).unwrap();
                Open::Read
            }
        };
        if let Some(mode) = open.mode {
            let mut world = self.shared.world.lock().unwrap();
            let made = world.files.entry(open.url.clone()).or_default();
            made.mode.get_or_insert(mode);
        }
        Ok(self.opened(opened, size, Some(file)))
    }

    fn put(&mut self, put: &request::PutRequest) -> Result<Answer, Refusal> {
        let why = self
            .shared
            .world
            .lock()
            .unwrap()
            .refused
            .get(&put.url)
            .copied();
        if let Some(why) = why.filter(|why| matches!(why, Kind::Quota | Kind::Invalid)) {
            return Err(refusal(why, "put"));
        }
        if put.packed {
            let bytes = self
                .kept(&put.url)
                .map(|kept| kept.bytes)
                .unwrap_or_default();
            let url = put.url.clone();
            return Ok(self.opened(Open::Packed { url, bytes }, 0, None));
        }
        let path = self.file(b"");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let url = put.url.clone();
        Ok(self.opened(Open::Write { url, path }, 0, Some(file)))
    }

    fn stream(&mut self, url: String) -> Result<Answer, Refusal> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (shared, to) = (Arc::clone(&self.shared), url.clone());
        let reading = thread::spawn(move || {
            let (mut ours, mut all, mut piece) = (ours, Vec::new(), [0; 4096]);
            loop {
                match ours.read(&mut piece) {
                    Ok(0) | Err(_) => return all,
                    Ok(came) => {
                        let mut world = shared.world.lock().unwrap();
                        let kept = world.files.entry(to.clone()).or_default();
                        kept.bytes.extend(&piece[..came]);
                        all.extend(&piece[..came]);
                        shared.changed.notify_all();
                    }
                }
            }
        });
        let mut answer = self.opened(Open::Stream { url, reading }, 0, None);
        answer.2 = Some(theirs.into());
        Ok(answer)
    }

    fn opened(&mut self, open: Open, size: u64, file: Option<File>) -> Answer {
        self.last += 1;
        self.open.lock().unwrap().insert(self.last, open);
        self.shared.world.lock().unwrap().open += 1;
        let opened = response::OpenedFile {
            handle: self.last,
            size,
            ..response::OpenedFile::default()
        };
        (
            Response::Opened(opened),
            Vec::new(),
            file.map(OwnedFd::from),
        )
    }

    fn close(&mut self, close: &request::Close) -> Result<Answer, Refusal> {
        let open = self.open.lock().unwrap().remove(&close.handle);
        let open = open.ok_or_else(|| refusal(Kind::NotOpen, "close"))?;
        self.shared.world.lock().unwrap().open -= 1;
        let (url, bytes) = match open {
            Open::Read | Open::Added { .. } => return Ok((done(0), Vec::new(), None)),
            Open::Write { url, path } => {
                // The kernel knows whether a writer is left. A program that another test has just
                // started has this process's descriptors until it runs its own code.
                let file = File::open(&path).unwrap();
                let is_free = || {
                    let leased = godwit_sys::lease(&file, godwit_sys::Unless::Written);
                    matches!(leased, Ok(godwit_sys::Leased::Granted(_)))
                };
                let until = Instant::now() + Duration::from_secs(2);
                while !close.give_up && !is_free() {
                    if Instant::now() < until {
                        thread::yield_now();
                        continue;
                    }
                    let busy = refusal(Kind::InUse, "deliver a file that is still written");
                    return Err(busy.about(url));
                }
                (url, fs::read(&path).unwrap())
            }
            Open::Packed { url, bytes } => (url, bytes),
            Open::Stream { url: _, reading } => {
                let len = reading.join().unwrap().len();
                return Ok((done(len as u64), Vec::new(), None));
            }
        };
        let mut world = self.shared.world.lock().unwrap();
        let why = world.refused.get(&url).copied();
        if let Some(why) = why.filter(|_| close.wait == Wait::Push) {
            let refused = refusal(why, "deliver it").about(url);
            return Err(refused.next("it is kept; see godwit queue"));
        }
        if !close.give_up {
            world.files.entry(url).or_default().bytes = bytes;
            self.shared.changed.notify_all();
        }
        Ok((done(0), Vec::new(), None))
    }

    fn cache(&mut self, n: u64, cache: request::Cache) -> Result<Answer, Refusal> {
        let plain = |tell| Ok((tell, Vec::new(), None));
        match cache {
            request::Cache::Add(add) => {
                let world = self.shared.world.lock().unwrap();
                let mut world = self
                    .shared
                    .changed
                    .wait_while(world, |world| {
                        world.files.get(&add.url).is_some_and(|kept| kept.is_locked)
                    })
                    .unwrap();
                let is_known = world.files.get(&add.url).is_some_and(|kept| kept.is_cached);
                if add.is_there && !is_known {
                    return Err(refusal(Kind::Missing, "lock it"));
                }
                let kept = world.files.entry(add.url.clone()).or_default();
                kept.is_locked = true;
                kept.tags.extend(add.tag);
                let (exists, timestamp) = (kept.is_cached, kept.timestamp);
                let bytes = kept.bytes.clone();
                drop(world);
                let path = self.file(&bytes);
                let file = OpenOptions::new()
                    .read(true)
                    .write(!exists)
                    .open(&path)
                    .unwrap();
                let url = add.url;
                let path = Some(path);
                let size = bytes.len() as u64;
                let mut answer = self.opened(Open::Added { url, path }, size, Some(file));
                if let Response::Opened(opened) = &mut answer.0 {
                    (opened.exists, opened.timestamp) = (exists, timestamp);
                    opened.path = Some(Link("/where/it/lies".into()));
                }
                Ok(answer)
            }
            request::Cache::AddDone(added) => {
                let Some(Open::Added { url, path }) =
                    self.open.lock().unwrap().remove(&added.handle)
                else {
                    return Err(refusal(Kind::NotOpen, "be done"));
                };
                let mut world = self.shared.world.lock().unwrap();
                world.open -= 1;
                let kept = world.files.get_mut(&url).unwrap();
                kept.is_locked = false;
                if !added.give_up {
                    kept.bytes = fs::read(path.unwrap()).unwrap();
                    kept.is_cached = true;
                    kept.timestamp = added.timestamp.or(kept.timestamp);
                } else if !kept.is_cached {
                    world.files.remove(&url);
                }
                self.shared.changed.notify_all();
                plain(done(0))
            }
            request::Cache::Stat(place) => {
                let world = self.shared.world.lock().unwrap();
                let kept = world.files.get(&place.url).filter(|kept| kept.is_cached);
                let kept = kept.ok_or_else(|| refusal(Kind::Missing, "look"))?;
                let row = row(&place.url, kept);
                drop(world);
                self.row(n, row);
                plain(done(1))
            }
            request::Cache::Ls { prefix, .. } => {
                let world = self.shared.world.lock().unwrap();
                let files = world.files.iter();
                let files = files.filter(|(url, kept)| url.starts_with(&prefix) && kept.is_cached);
                let rows: Vec<_> = files.map(|(url, kept)| row(url, kept)).collect();
                drop(world);
                for row in rows {
                    self.row(n, row);
                }
                plain(done(0))
            }
            request::Cache::Rm { url, tag } => {
                let mut world = self.shared.world.lock().unwrap();
                let kept = world.files.get_mut(&url).filter(|kept| kept.is_cached);
                let kept = kept.ok_or_else(|| refusal(Kind::Missing, "remove"))?;
                let at = kept
                    .tags
                    .iter()
                    .position(|known| Some(known) == tag.as_ref());
                let at = at.ok_or_else(|| refusal(Kind::NoTag, "remove"))?;
                kept.tags.remove(at);
                plain(done(1))
            }
            request::Cache::Clean { tag, url } => {
                let mut world = self.shared.world.lock().unwrap();
                for (name, kept) in &mut world.files {
                    if url.as_ref().is_none_or(|url| url == name) {
                        kept.tags.retain(|known| *known != tag);
                    }
                }
                plain(done(0))
            }
            _ => Err(refusal(Kind::Unsupported, "do that")),
        }
    }

    fn row(&mut self, n: u64, row: response::Row) {
        let tell = Response::Row(Box::new(row));
        let told = ResponseHead { n, fds: 0, tell };
        (&self.socket).write_all(&told.write(b"").unwrap()).unwrap();
    }

    fn kept(&self, url: &str) -> Result<Kept, Refusal> {
        let world = self.shared.world.lock().unwrap();
        if let Some(why) = world.refused.get(url)
            && *why != Kind::Lost
        {
            return Err(refusal(*why, "read"));
        }
        let kept = world.files.get(url).cloned();
        kept.ok_or_else(|| refusal(Kind::Missing, "read").about(url))
    }

    fn file(&mut self, bytes: &[u8]) -> PathBuf {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = self.shared.dir.join(format!("file-{count}"));
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn describe(ask: &Request) -> String {
    match ask {
        Request::Hello(hello) => format!("hello {}", hello.program),
        Request::Open(open) => format!("open {}", open.url),
        Request::Put(put) => format!("put {}", put.url),
        Request::Get(get) => format!("get {}", get.url),
        Request::Memory(place) => format!("memory {}", place.url),
        Request::Close(close) => format!(
            "close {} {:?}{}",
            close.handle,
            close.wait,
            if close.give_up { " given up" } else { "" }
        ),
        Request::End(close) => format!(
            "end {} {:?}{}",
            close.handle,
            close.wait,
            if close.give_up { " given up" } else { "" }
        ),
        Request::Commit(whose) => format!("commit mine={}", whose.mine),
        Request::Push(whose) => format!("push {:?} mine={}", whose.url, whose.mine),
        Request::Append(append) => format!("append {}", append.url),
        Request::Write(_) => "write".into(),
        Request::Stage(stage) => format!("stage {}", stage.url),
        other => format!("{other:?}"),
    }
}

fn row(url: &str, kept: &Kept) -> response::Row {
    response::Row {
        url: url.into(),
        size: kept.bytes.len() as u64,
        present_bytes: kept.bytes.len() as u64,
        tags: kept.tags.clone(),
        timestamp: kept.timestamp,
        transfers: 1,
        ..response::Row::default()
    }
}

fn sealed(bytes: &[u8]) -> OwnedFd {
    let file = memory("test").unwrap();
    file.write_all_at(bytes, 0).unwrap();
    seal(&file).unwrap();
    file.into()
}

fn done(bytes: u64) -> Response {
    Response::Done(response::Done {
        files: 1,
        bytes,
        notes: Vec::new(),
    })
}

fn refusal(why: Kind, wanted: &str) -> Refusal {
    Refusal::new(why, wanted, "the test says no").waiting(Fault::Lasting)
}
