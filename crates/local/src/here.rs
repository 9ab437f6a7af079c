//! A conversation with the node of this machine.

use crate::{
    Environment, Kind, NodePlace, Refusal, Result,
    start::{Lock, PATIENCE, Started, lock_within, start},
};
use godwit_core::Fault;
use godwit_sys::{
    PASSED_MAX, PeerProcess, connect_local, peer_of, receive_passing, send_passing, user_id,
    wait_ready, why,
};
use godwit_wire::local::{
    Decoder, Error, Handle, Number, Request, RequestHead, Response, ResponseHead, VERSION,
    request::Hello, response,
};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// One connection to the node. Many requests may be in flight at once; each answer has the number
/// of its request.
///
/// The connection belongs to the process that made it: a forked child needs one of its own
/// ([`NodeConnection::is_ours`]).
#[derive(Debug)]
pub struct NodeConnection {
    socket: Arc<UnixStream>,
    node: response::Hello,
    process: u32,
    decoder: Decoder,
    /// Kept, since to clear it for each answer takes longer than to read one.
    buffer: Vec<u8>,
    /// Came, and belongs to frames that have not ended.
    files: VecDeque<OwnedFd>,
    /// Answers that no caller has taken yet.
    inbox: BTreeMap<Number, VecDeque<NodeAnswer>>,
    last: Number,
    /// Reason why the connection is over, if it is.
    broken: Option<Refusal>,
}

/// Answer of the node, with its bytes and descriptors.
#[derive(Debug)]
pub struct NodeAnswer {
    /// The message.
    pub tell: Response,
    /// The bytes.
    pub body: Vec<u8>,
    /// The open files.
    pub files: Vec<OwnedFd>,
}

impl NodeConnection {
    /// Finds the node of this machine, and starts it if none listens.
    pub fn find(hello: &Hello, environment: Environment<'_>) -> Result<Self> {
        Self::find_at(&NodePlace::find(environment)?, hello)
    }

    /// Finds or starts the node of a given place.
    pub fn find_at(place: &NodePlace, hello: &Hello) -> Result<Self> {
        if let Some(here) = Self::at(place, hello)? {
            return Ok(here);
        }
        place.prepare()?;
        let deadline = Instant::now() + PATIENCE;
        let path = place.starting();
        let failed = |error: io::Error| {
            let words = format!("{}: {}", path.display(), why(&error));
            Refusal::new(Kind::NoNode, WANTED, words)
        };
        let lock = lock_within(&path, deadline).map_err(failed)?;
        let lock = lock.ok_or_else(|| {
            let words = "another program is starting it, and it does not listen yet";
            Refusal::new(Kind::Late, WANTED, words).waiting(Fault::Passing)
        })?;
        // The previous holder of the lock has probably started it.
        if let Some(here) = Self::at(place, hello)? {
            return Ok(here);
        }
        Self::start(place, hello, &lock, deadline)
    }

    /// Starts the node. Retries for a while if the previous node is still ending, or if the new one
    /// is killed early.
    fn start(place: &NodePlace, hello: &Hello, lock: &Lock, deadline: Instant) -> Result<Self> {
        let until = Instant::now() + AGAIN;
        let mut pause = STEP;
        loop {
            let refusal = match start(place, hello, lock, deadline) {
                Ok(Started::Listens) => gone(place),
                Ok(Started::Ended(refusal)) => refusal,
                Err(refusal) if refusal.kind == Kind::InUse => refusal,
                Err(refusal) => return Err(refusal),
            };
            if let Some(here) = Self::at(place, hello)? {
                return Ok(here);
            }
            if Instant::now() + pause < until {
                thread::sleep(pause); // nothing tells it
                pause *= 2;
                continue;
            }
            // The socket of a live node was removed; the node listens again once it notices.
            return match refusal.kind {
                Kind::InUse => Self::again(place, hello)?.ok_or(refusal),
                _ => Err(refusal),
            };
        }
    }

    /// Waits for a node that does not listen now, longer than a node takes to notice a lost socket.
    fn again(place: &NodePlace, hello: &Hello) -> Result<Option<Self>> {
        let deadline = Instant::now() + NOTICED;
        loop {
            let here = Self::at(place, hello)?;
            if here.is_some() || Instant::now() >= deadline {
                return Ok(here);
            }
            thread::sleep(STEP); // nothing tells it
        }
    }

    /// Connects to a node that listens; `None` if none does.
    pub fn at(place: &NodePlace, hello: &Hello) -> Result<Option<Self>> {
        let path = &place.socket;
        let socket = match connect_local(path, PATIENCE) {
            Ok(socket) => socket,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => {
                let reason = match error.kind() {
                    io::ErrorKind::PermissionDenied => Kind::Denied,
                    io::ErrorKind::WouldBlock => Kind::Late,
                    _ => Kind::NoNode,
                };
                let words = format!("{}: {}", path.display(), why(&error));
                return Err(Refusal::new(reason, WANTED, words));
            }
        };
        let peer = peer_of(&socket).map_err(|error| no_talk(&error))?;
        if peer.uid != user_id() {
            return Err(stranger(path, peer));
        }
        socket
            .set_nonblocking(true)
            .map_err(|error| no_talk(&error))?;
        let mut here = Self::begin(socket);
        let deadline = Instant::now() + PATIENCE;
        let hello = Request::Hello(Box::new(hello.clone()));
        let said = here
            .send(hello, b"")
            .and_then(|n| here.receive(n, Some(deadline)));
        match said {
            Ok(NodeAnswer {
                tell: Response::Hello(node),
                ..
            }) if node.version == VERSION => here.node = node,
            Ok(NodeAnswer {
                tell: Response::Refused(refusal),
                ..
            }) if refusal.kind == Kind::Ending => return Ok(None),
            Ok(NodeAnswer {
                tell: Response::Refused(refusal),
                ..
            }) => return Err(*refusal),
            Ok(_) => {
                return Err(Refusal::new(
                    Kind::Version,
                    WANTED,
                    "it is another godwit, which speaks otherwise",
                )
                .next("godwit node stop ends it; the next program starts one of today"));
            }
            // The node was ending when we connected.
            Err(refusal) if refusal.kind == Kind::NodeLost => return Ok(None),
            Err(refusal) => return Err(refusal),
        }
        Ok(Some(here))
    }

    fn begin(socket: UnixStream) -> Self {
        Self {
            socket: Arc::new(socket),
            node: response::Hello::default(),
            process: std::process::id(),
            decoder: Decoder::new(),
            buffer: Vec::new(),
            files: VecDeque::new(),
            inbox: BTreeMap::new(),
            last: 0,
            broken: None,
        }
    }

    /// Returns the socket alone, for another process ([`NodeConnection::go_on`]). No request may be in
    /// flight.
    pub fn give_up(self) -> OwnedFd {
        let is_between = self.inbox.is_empty() && !self.decoder.is_within();
        assert!(is_between, "an answer is under way");
        let socket = Arc::into_inner(self.socket).expect("no thread waits on it");
        socket.into()
    }

    /// Returns the socket, which is closed when the last owner drops it.
    pub fn socket(&self) -> Arc<UnixStream> {
        Arc::clone(&self.socket)
    }

    /// Takes over a connection that another process began. That process has received the node's
    /// introduction.
    pub fn go_on(socket: OwnedFd) -> Self {
        Self::begin(socket.into())
    }

    /// Returns the node's introduction.
    pub fn node(&self) -> &response::Hello {
        &self.node
    }

    /// Tells whether this process may use it: a child that was forked shares the socket, and must not.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns a descriptor for poll(2), which is readable when an answer may have arrived
    /// ([`receive`](Self::poll)).
    pub fn waits_on(&self) -> impl AsFd {
        self.socket.as_fd()
    }

    /// Asks, and returns the number that the answers name. While the node does not take it, answers of others are
    /// taken, so that neither waits for the other.
    pub fn send(&mut self, ask: Request, body: &[u8]) -> Result<Number> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        self.last += 1;
        let n = self.last;
        let is_silent = ask.is_silent();
        let frame = RequestHead { n, fds: 0, ask }
            .write(body)
            .map_err(|error| {
                let reason = match error {
                    Error::LongHead(..) => Kind::TooLong,
                    _ => Kind::Invalid,
                };
                Refusal::new(reason, "ask the node of this machine", error.to_string())
            })?;
        if !is_silent {
            self.inbox.insert(n, VecDeque::new());
        }
        let mut rest = &frame[..];
        while !rest.is_empty() {
            match send_passing(&self.socket, rest, &[]) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let (can_read, _) = wait_ready(self.socket.as_fd(), true, FOREVER)
                        .map_err(|error| self.lost(&error))?;
                    if can_read {
                        self.take()?;
                    }
                }
                Err(error) => {
                    // It may have said why it went.
                    while self.take().is_ok_and(|came| came) {}
                    return Err(self.lost(&error));
                }
            }
        }
        Ok(n)
    }

    /// Returns the next answer to a request, and waits for it until `deadline`.
    pub fn receive(&mut self, n: Number, deadline: Option<Instant>) -> Result<NodeAnswer> {
        loop {
            if let Some(answer) = self.next_of(n)? {
                return Ok(answer);
            }
            if let Some(broken) = &self.broken {
                return Err(broken.clone());
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => FOREVER,
            };
            if left.is_zero() && deadline.is_some() {
                let words = "the node of this machine has not answered in that time";
                return Err(
                    Refusal::new(Kind::Late, "wait for an answer", words).waiting(Fault::Passing)
                );
            }
            let (can_read, _) =
                wait_ready(self.socket.as_fd(), false, left).map_err(|error| self.lost(&error))?;
            if can_read {
                let _ = self.take(); // what is broken is told above, after what came before
            }
        }
    }

    /// Returns the next answer without waiting; `None` if none has arrived.
    pub fn poll(&mut self, n: Number) -> Result<Option<NodeAnswer>> {
        loop {
            if let Some(answer) = self.came(n)? {
                return Ok(Some(answer));
            }
            // A break is reported above, after the answers that arrived before it.
            if !self.take().unwrap_or(true) {
                return Ok(None);
            }
        }
    }

    /// Returns the next answer that was already read from the socket.
    pub fn came(&mut self, n: Number) -> Result<Option<NodeAnswer>> {
        match (self.next_of(n)?, &self.broken) {
            (None, Some(broken)) => Err(broken.clone()),
            (came, _) => Ok(came),
        }
    }

    /// Sends a request and waits for its answer, ignoring progress; a refusal is an error.
    pub fn ask(&mut self, ask: Request) -> Result<NodeAnswer> {
        self.ask_with(ask, b"", None, &mut |_| ())
    }

    /// Sends a request with bytes and a deadline; `more` receives rows and progress. At the
    /// deadline the request is cancelled.
    pub fn ask_with(
        &mut self,
        ask: Request,
        body: &[u8],
        deadline: Option<Instant>,
        more: &mut dyn FnMut(Response),
    ) -> Result<NodeAnswer> {
        let n = self.send(ask, body)?;
        loop {
            let answer = self.receive(n, deadline);
            match answer {
                Ok(NodeAnswer {
                    tell: Response::Refused(refusal),
                    ..
                }) => return Err(*refusal),
                Ok(answer) if answer.tell.is_last() => return Ok(answer),
                Ok(answer) => more(answer.tell),
                Err(refusal) => {
                    if refusal.kind == Kind::Late {
                        self.cancel(n);
                    }
                    return Err(refusal);
                }
            }
        }
    }

    /// Opens a file by a request, and returns its properties and its descriptor.
    pub fn open(&mut self, ask: Request) -> Result<(response::OpenedFile, Option<File>)> {
        let mut answer = self.ask(ask)?;
        match answer.tell {
            Response::Opened(opened) => Ok((opened, answer.files.pop().map(File::from))),
            other => Err(odd(&other)),
        }
    }

    /// Sends small writes, packed; nothing is waited for.
    pub fn write(&mut self, handle: Handle, records: &[u8]) -> Result<()> {
        let write = godwit_wire::local::request::WriteRequest { handle };
        self.send(Request::Write(write), records).map(drop)
    }

    /// Tells whether the connection is over: answers that arrived before can still be taken.
    pub fn is_over(&self) -> bool {
        self.broken.is_some()
    }

    /// Reads the socket without waiting, and tells whether the connection is over.
    pub fn is_over_by_now(&mut self) -> bool {
        while self.take().is_ok_and(|has_come| has_come) {}
        self.is_over()
    }

    /// Discards the answers to a request, which continues.
    pub fn forget(&mut self, n: Number) {
        self.inbox.remove(&n);
    }

    /// Cancels a request; its answers are discarded.
    pub fn cancel(&mut self, n: Number) {
        self.inbox.remove(&n);
        if let Ok(cancel) = self.send(Request::Cancel { of: n }, b"") {
            self.inbox.remove(&cancel);
        }
    }

    fn next_of(&mut self, n: Number) -> Result<Option<NodeAnswer>> {
        let Some(came) = self.inbox.get_mut(&n) else {
            let words = "nothing was asked under that number";
            return Err(Refusal::new(Kind::Invalid, "wait for an answer", words));
        };
        let answer = came.pop_front();
        if answer.as_ref().is_some_and(|answer| answer.tell.is_last()) {
            self.inbox.remove(&n);
        }
        Ok(answer)
    }

    /// Reads the available answers into the inbox; tells whether there were any.
    fn take(&mut self) -> Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(AT_ONCE_BYTES, 0);
        let taken = self.take_into(&mut buffer);
        self.buffer = buffer;
        taken
    }

    fn take_into(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let mut files = Vec::new();
        let came = match receive_passing(&self.socket, buffer, &mut files) {
            Ok(0) => {
                let gone = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(self.lost(&gone));
            }
            Ok(came) => came,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(self.lost(&error)),
        };
        self.files.extend(files);
        let mut input = &buffer[..came];
        loop {
            let (taken, frame) = self
                .decoder
                .next(input)
                .map_err(|error| self.misled(&error.to_string()))?;
            input = &input[taken..];
            let Some(frame) = frame else {
                // Those are of the one that has begun.
                return match self.files.len() <= PASSED_MAX {
                    true => Ok(true),
                    false => Err(self.misled("more files come than it tells of")),
                };
            };
            let (n, fds, tell) = match ResponseHead::read(&frame.head) {
                Ok(told) => (told.n, told.fds, Some(told.tell)),
                Err(Error::Unknown { n, fds, .. }) => (n, fds, None),
                Err(error) => return Err(self.misled(&error.to_string())),
            };
            let count = usize::from(fds);
            if count > self.files.len() {
                return Err(self.misled("a file that was to come did not"));
            }
            let files = self.files.drain(..count).collect();
            // Answers to a cancelled request are dropped.
            if let Some(came) = self.inbox.get_mut(&n) {
                let words = "it tells what this program does not understand";
                let tell = tell.unwrap_or_else(|| {
                    let refusal = Refusal::new(Kind::Version, "understand the node", words);
                    Response::Refused(Box::new(refusal))
                });
                came.push_back(NodeAnswer {
                    tell,
                    body: frame.body,
                    files,
                });
            }
        }
    }

    fn lost(&mut self, error: &io::Error) -> Refusal {
        let words = match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => "it has ended".to_owned(),
            _ => why(error).to_string(),
        };
        let refusal = Refusal::new(Kind::NodeLost, "talk with the node of this machine", words)
            .waiting(Fault::Passing)
            .next("what was committed is kept; the next program starts it again");
        self.broken.get_or_insert(refusal).clone()
    }

    fn misled(&mut self, words: &str) -> Refusal {
        let refusal = Refusal::new(Kind::Version, "understand the node of this machine", words);
        self.broken.get_or_insert(refusal).clone()
    }
}

fn is_nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

fn gone(place: &NodePlace) -> Refusal {
    let words = "it was started, and does not listen";
    Refusal::new(Kind::NoNode, WANTED, words)
        .waiting(Fault::Passing)
        .next(format!("see {}", place.log().display()))
}

fn no_talk(error: &io::Error) -> Refusal {
    Refusal::new(Kind::NoNode, WANTED, why(error).to_string())
}

fn stranger(path: &std::path::Path, peer: PeerProcess) -> Refusal {
    let words = format!(
        "{}: the process that listens there is of user {}",
        path.display(),
        peer.uid
    );
    Refusal::new(Kind::Denied, WANTED, words).next("name a socket of yours in GODWIT_SOCKET")
}

/// Returns the refusal for an answer that does not fit its request.
pub fn odd(tell: &Response) -> Refusal {
    let words = format!("it answers otherwise than was asked: {tell:?}");
    Refusal::new(Kind::Version, "understand the node of this machine", words)
}

const WANTED: &str = "reach the node of this machine";
const NOTICED: Duration = Duration::from_secs(3);
/// How long a start is retried while the obstacle may vanish.
const AGAIN: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_millis(50);
const AT_ONCE_BYTES: usize = 32 << 10;
const FOREVER: Duration = Duration::from_secs(365 * 86400);
