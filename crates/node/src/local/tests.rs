//! The local server with a fake handler: admission, limits, and the end of the node.

use super::{
    connection::{AT_ONCE_MAX, LocalReply},
    server::*,
    *,
};
use godwit_local::{Kind, NodeAnswer, NodeConnection, NodePlace, Refusal};
use godwit_wire::local::{
    Request, RequestHead, Response, ResponseHead, frame, records,
    request::{self, Hello},
    response,
};
use parking_lot::{Condvar, Mutex};
use std::{
    fs::{self, File},
    io::{Read, Seek, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::Instant,
};

/// Answers what tests need: files in memory, and asks that wait until they are let go.
#[derive(Default)]
struct Stand {
    owes: AtomicBool,
    gate: Arc<Gate>,
    open: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self, reply: &LocalReply) {
        self.waiting.fetch_add(1, SeqCst);
        self.changed.notify_all();
        let mut is_open = self.is_open.lock();
        while !*is_open && !reply.is_over() {
            // A handler that waits checks at intervals that its request is still wanted.
            let step = Duration::from_millis(20);
            self.changed.wait_for(&mut is_open, step);
        }
        self.waiting.fetch_sub(1, SeqCst);
        drop(is_open);
        self.changed.notify_all();
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.changed.notify_all();
    }

    fn wait_for(&self, count: usize) {
        let is_early = |_: &mut bool| self.waiting.load(SeqCst) != count;
        let (mut is_open, patience) = (self.is_open.lock(), Duration::from_secs(20));
        let late = (self.changed).wait_while_for(&mut is_open, is_early, patience);
        assert!(!late.timed_out(), "{} wait", self.waiting.load(SeqCst));
    }
}

impl Handler for Stand {
    fn visit(self: Arc<Self>, visitor: Visitor) -> Result<Box<dyn Connection>, Refusal> {
        if visitor.hello.program == "unwanted" {
            return Err(Refusal::new(Kind::Denied, "visit", "not you"));
        }
        self.open.fetch_add(1, SeqCst);
        Ok(Box::new(Client {
            gate: Arc::clone(&self.gate),
            open: Arc::clone(&self.open),
            written: Mutex::default(),
        }))
    }

    fn owes(&self) -> bool {
        self.owes.load(SeqCst)
    }

    fn status(&self, status: &mut response::Status) {
        status.owed_files = u64::from(self.owes());
    }

    fn end(&self) {}
}

struct Client {
    gate: Arc<Gate>,
    open: Arc<AtomicUsize>,
    written: Mutex<Vec<u8>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.open.fetch_sub(1, SeqCst);
    }
}

impl Connection for Client {
    fn answer(&self, ask: Request, body: Vec<u8>, reply: &LocalReply) {
        match ask {
            Request::Open(open) => {
                let mut file = godwit_sys::memory("opened").unwrap();
                file.write_all(open.url.as_bytes()).unwrap();
                file.rewind().unwrap();
                let opened = response::OpenedFile {
                    handle: 1,
                    size: open.url.len() as u64,
                    ..response::OpenedFile::default()
                };
                reply.tell_with(Response::Opened(opened), b"", &[file.as_fd()]);
            }
            Request::Push(_) => {
                self.gate.pass(reply);
                reply.tell(Response::Done(response::Done::default()));
            }
            Request::Write(_) => {
                for (_, bytes) in records::of(&body).unwrap() {
                    self.written.lock().extend_from_slice(bytes);
                }
            }
            Request::End(_) => {
                let bytes = self.written.lock().len() as u64;
                reply.tell(Response::Done(response::Done {
                    bytes,
                    ..response::Done::default()
                }));
            }
            Request::Queue(_) => {
                for number in 0..100_000 {
                    if reply.is_over() {
                        return;
                    }
                    let row = response::Row {
                        generation: number,
                        ..response::Row::default()
                    };
                    reply.tell(Response::Row(Box::new(row)));
                }
                reply.tell(Response::Done(response::Done::default()));
            }
            _ => reply.refuse(Refusal::new(
                Kind::Unsupported,
                "do that",
                "it is not known",
            )),
        }
    }
}

struct Standing {
    dir: PathBuf,
    place: NodePlace,
    node: Option<LocalNode>,
    handler: Arc<Stand>,
}

impl Standing {
    fn new(name: &str) -> Self {
        Self::idle(name, Duration::from_secs(600))
    }

    fn idle(name: &str, idle: Duration) -> Self {
        let dir =
            std::env::temp_dir().join(format!("godwit-node-local-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let place = NodePlace {
            socket: dir.join("run/socket"),
            state: dir.join("state"),
        };
        let handler = Arc::new(Stand::default());
        let alive = settle(&place).unwrap();
        let rules = LocalRules {
            place: place.clone(),
            idle,
            quota: None,
            scrub_every: None,
            is_of_job: false,
            is_installed: false,
            on_fault: crate::config::OnFault::default(),
            routes: crate::Routes::default(),
            catalog: None,
            export: None,
        };
        let node = LocalNode::start(rules, alive, Arc::clone(&handler)).unwrap();
        Self {
            dir,
            place,
            node: Some(node),
            handler,
        }
    }

    fn here(&self) -> NodeConnection {
        NodeConnection::at(&self.place, &hello("test"))
            .unwrap()
            .expect("it listens")
    }

    fn raw(&self) -> UnixStream {
        let raw = UnixStream::connect(&self.place.socket).unwrap();
        raw.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        raw
    }

    /// Waits until only one connection is open.
    fn await_one_connection(&self) {
        let mut other = self.here();
        let left = Instant::now() + Duration::from_secs(20);
        while self.handler.open.load(SeqCst) > 1 && Instant::now() < left {
            other.ask(Request::Status).unwrap();
        }
        assert_eq!(self.handler.open.load(SeqCst), 1);
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.handler.gate.open();
        if let Some(node) = self.node.take() {
            node.stopper().drain();
            node.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn hello(program: &str) -> Hello {
    Hello {
        version: VERSION,
        program: program.into(),
        ..Hello::default()
    }
}

use godwit_wire::local::VERSION;

fn push() -> Request {
    Request::Push(request::Selector::default())
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

fn why(answer: &NodeAnswer) -> Kind {
    match &answer.tell {
        Response::Refused(refusal) => refusal.kind,
        other => panic!("{other:?}"),
    }
}

#[test] //= GASS-52
fn file_arrives_as_descriptor_and_answers_overtake() {
    let standing = Standing::new("order");
    let mut here = standing.here();
    assert_eq!(here.node().process, std::process::id());
    let slow = here.send(push(), b"").unwrap();
    let open = request::OpenRequest {
        url: "godwit://lab/run7".into(),
        ..request::OpenRequest::default()
    };
    let (opened, file) = here.open(Request::Open(open)).unwrap();
    let mut text = String::new();
    file.unwrap().read_to_string(&mut text).unwrap();
    assert_eq!((opened.size, &*text), (17, "godwit://lab/run7"));
    assert!(here.poll(slow).unwrap().is_none());
    standing.handler.gate.open();
    assert!(here.receive(slow, soon()).unwrap().tell.is_last());
}

#[test] //= KANGAROO-2
fn silent_writes_are_counted_at_end() {
    let standing = Standing::new("writes");
    let mut here = standing.here();
    let mut body = Vec::new();
    for number in 0..1000 {
        records::push(&mut body, number * 100, &[7; 100]);
    }
    for _ in 0..100 {
        here.write(1, &body).unwrap();
    }
    let end = request::Close {
        handle: 1,
        wait: request::Wait::Commit,
        give_up: false,
        timeout_ms: None,
    };
    let answer = here.ask(Request::End(end)).unwrap();
    assert!(matches!(answer.tell, Response::Done(done) if done.bytes == 10_000_000));
}

#[test]
fn unknown_request_is_refused_by_number() {
    let standing = Standing::new("unknown");
    let mut raw = standing.raw();
    let say = |raw: &mut UnixStream, head: &[u8]| {
        raw.write_all(&frame::frame(head, b"").unwrap()).unwrap();
    };
    say(&mut raw, br#"{"n":1,"ask":{"hello":{"version":1}}}"#);
    say(&mut raw, br#"{"n":2,"ask":{"dance":{}}}"#);
    say(&mut raw, br#"{"n":3,"ask":"status"}"#);
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(next_told(&mut raw));
    }
    assert!(matches!(told[0].tell, Response::Hello(_)));
    assert!(matches!(&told[1].tell, Response::Refused(refusal) if refusal.kind == Kind::Version));
    assert!(matches!(&told[2].tell, Response::Status(status) if status.connections == 1));
    assert_eq!(
        told.iter().map(|told| told.n).collect::<Vec<_>>(),
        [1, 2, 3]
    );
}

fn next_told(raw: &mut UnixStream) -> ResponseHead {
    let mut lengths = [0; 8];
    raw.read_exact(&mut lengths).unwrap();
    let head = u32::from_le_bytes(lengths[..4].try_into().unwrap()) as usize;
    let body = u32::from_le_bytes(lengths[4..].try_into().unwrap()) as usize;
    let mut bytes = vec![0; head + body];
    raw.read_exact(&mut bytes).unwrap();
    ResponseHead::read(&bytes[..head]).unwrap()
}

#[test]
fn missing_hello_or_garbage_ends_connection() {
    let standing = Standing::new("nonsense");
    let status = RequestHead {
        n: 1,
        fds: 0,
        ask: Request::Status,
    };
    let old = RequestHead {
        n: 1,
        fds: 0,
        ask: Request::Hello(Box::new(Hello {
            version: 99,
            ..Hello::default()
        })),
    };
    for (bytes, reason) in [
        (status.write(b"").unwrap(), Some(Kind::Invalid)),
        (old.write(b"").unwrap(), Some(Kind::Version)),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None),
        (vec![0xff; 100], None),
        (frame::frame(b"{}", b"").unwrap(), None),
        (
            frame::frame(br#"{"n":1,"fds":3,"ask":"status"}"#, b"").unwrap(),
            Some(Kind::Invalid),
        ),
    ] {
        let mut raw = standing.raw();
        raw.write_all(&bytes).unwrap();
        if let Some(reason) = reason {
            let told = next_told(&mut raw);
            assert!(
                matches!(told.tell, Response::Refused(refusal) if refusal.kind == reason),
                "{reason:?}"
            );
        }
        let mut rest = Vec::new();
        // Unread bytes turn the end into a reset.
        let _ = raw.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    let unwanted = NodeConnection::at(&standing.place, &hello("unwanted")).unwrap_err();
    assert_eq!(unwanted.kind, Kind::Denied);
    assert_eq!(standing.handler.open.load(SeqCst), 0);
    standing.here();
}

#[test]
fn requests_above_limit_wait_until_client_leaves() {
    let standing = Standing::new("flood");
    let mut here = standing.here();
    for _ in 0..AT_ONCE_MAX {
        here.send(push(), b"").unwrap();
    }
    standing.handler.gate.wait_for(AT_ONCE_MAX - 1);
    // No thread reads any more, so this is not answered.
    let status = here.send(Request::Status, b"").unwrap();
    let late = here.receive(status, Some(Instant::now() + Duration::from_millis(200)));
    assert_eq!(late.unwrap_err().kind, Kind::Late);
    // Others are heard all the same.
    assert!(standing.here().ask(Request::Status).is_ok());
    drop(here);
    standing.handler.gate.wait_for(0);
    standing.await_one_connection();
}

#[test]
fn flood_without_reads_fills_only_socket() {
    let standing = Standing::new("deaf");
    let mut here = standing.here();
    let queue = here
        .send(Request::Queue(request::Selector::default()), b"")
        .unwrap();
    let mut raw = standing.raw();
    raw.write_all(
        &RequestHead {
            n: 1,
            fds: 0,
            ask: Request::Hello(Box::new(hello("deaf"))),
        }
        .write(b"")
        .unwrap(),
    )
    .unwrap();
    raw.set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut sent = 0;
    let status = RequestHead {
        n: 2,
        fds: 0,
        ask: Request::Status,
    };
    let status = status.write(b"").unwrap();
    while sent < 64 << 20 && raw.write_all(&status).is_ok() {
        sent += status.len();
    }
    assert!(
        sent < 8 << 20,
        "{sent} bytes were taken of one who does not listen"
    );
    // Rows are not buffered: they are sent as they are read.
    let mut rows = 0;
    while !here.receive(queue, soon()).unwrap().tell.is_last() {
        rows += 1;
    }
    assert_eq!(rows, 100_000);
}

#[test] //= GASS-9 depot#users-and-credentials
fn cancel_ends_request_and_disconnect_closes_files() {
    let standing = Standing::new("cancel");
    let mut here = standing.here();
    let asked = here.send(push(), b"").unwrap();
    standing.handler.gate.wait_for(1);
    here.cancel(asked);
    standing.handler.gate.wait_for(0);
    assert_eq!(standing.handler.open.load(SeqCst), 1);
    drop(here);
    standing.await_one_connection();
}

#[test]
fn second_node_at_socket_is_refused() {
    let standing = Standing::new("second");
    let taken = settle(&standing.place).unwrap_err();
    let words = taken.to_string();
    assert!(
        words.contains("listens") && words.contains(&std::process::id().to_string()),
        "{words}"
    );
    assert_eq!(taken.refusal().kind, Kind::InUse);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&standing.place.socket), 0o600);
    assert_eq!(mode(standing.place.socket.parent().unwrap()), 0o700);
}

#[test] //= KANGAROO-19
fn idle_node_ends_unless_changes_pending() {
    let mut standing = Standing::idle("idle", Duration::from_millis(150));
    standing.handler.owes.store(true, SeqCst);
    let mut here = standing.here();
    let node = standing.node.take().unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    let waiting = thread::spawn(move || {
        node.wait();
        seen.store(true, SeqCst);
    });
    // The node stays several idle times while a program is connected, and while changes are pending.
    let status = |here: &mut NodeConnection| match here.ask(Request::Status).unwrap().tell {
        Response::Status(status) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status(&mut here).ends_in_ms, None);
    drop(here);
    thread::sleep(Duration::from_millis(600)); // nothing tells that something does not happen
    assert!(!ended.load(SeqCst));
    let mut here = standing.here();
    standing.handler.owes.store(false, SeqCst);
    assert_eq!(status(&mut here).ends_in_ms, Some(150));
    drop(here);
    waiting.join().unwrap();
    assert!(!standing.place.socket.exists());
    assert!(
        NodeConnection::at(&standing.place, &hello("late"))
            .unwrap()
            .is_none()
    );
}

#[test] //= KANGAROO-27
fn stop_answers_waiting_clients() {
    let mut standing = Standing::new("stop");
    let mut here = standing.here();
    let waiting = here.send(push(), b"").unwrap();
    standing.handler.gate.wait_for(1);
    standing.here().ask(Request::Stop).unwrap();
    standing.node.take().unwrap().wait();
    let lost = here.receive(waiting, soon());
    match lost {
        Err(refusal) => assert_eq!(refusal.kind, Kind::NodeLost),
        Ok(answer) => assert!(answer.tell.is_last()),
    }
    // The place is free for the next, also where the last was killed and its socket left behind.
    File::create(&standing.place.socket).unwrap();
    settle(&standing.place).unwrap();
}

#[test]
fn removed_socket_is_rebound_unless_taken() {
    let mut standing = Standing::new("away");
    let socket = standing.place.socket.clone();
    let mut before = standing.here();
    fs::remove_file(&socket).unwrap();
    let found = || NodeConnection::at(&standing.place, &hello("late")).unwrap();
    let left = Instant::now() + Duration::from_secs(20);
    while found().is_none() && Instant::now() < left {
        before.ask(Request::Status).unwrap();
    }
    assert!(found().is_some());
    // The place belongs to the holder of the lock that others find.
    fs::remove_file(standing.place.alive()).unwrap();
    let _theirs = settle(&standing.place).unwrap();
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    thread::sleep(CHECK_SOCKET_EVERY * 3 / 2); // nothing tells that something does not happen
    before.ask(Request::Stop).unwrap();
    standing.node.take().unwrap().wait();
    let _reached = UnixStream::connect(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_ok());
}

#[test]
fn reused_number_ends_connection() {
    let standing = Standing::new("twice");
    let mut raw = standing.raw();
    for (n, ask) in [
        (1, Request::Hello(Box::new(hello("twice")))),
        (5, push()),
        (5, push()),
    ] {
        let asked = RequestHead { n, fds: 0, ask };
        raw.write_all(&asked.write(b"").unwrap()).unwrap();
    }
    next_told(&mut raw);
    let mut rest = Vec::new();
    let _ = raw.read_to_end(&mut rest);
    standing.handler.gate.wait_for(0);
}

#[test]
fn handler_refuses_unknown_requests() {
    let standing = Standing::new("words");
    let mut here = standing.here();
    let n = here
        .send(Request::Stat(request::FileTarget::is("u")), b"")
        .unwrap();
    let answer = here.receive(n, soon()).unwrap();
    assert_eq!(why(&answer), Kind::Unsupported);
}
