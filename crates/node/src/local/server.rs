//! Accepts programs up to a limit, and decides when the node ends.

use super::{
    LocalError, LocalRules,
    connection::{LocalReply, converse},
    line::LocalLine,
    socket::Socket,
};
use crate::{
    Error,
    base::{admission::LogPlaces, stop::Stop},
};
use godwit_local::{Kind, Lock, Refusal};
use godwit_sys::{Wake, peer_of, raise_open_files, user_id, wait_readable, why};
use godwit_wire::local::{Request, Response, ResponseHead, request, response};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Answers the requests of programs.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Lets a program in, which says who it is.
    fn visit(self: Arc<Self>, visitor: Visitor) -> Result<Box<dyn Connection>, Refusal>;
    /// Tells whether changes are pending: the node then stays though no program is connected.
    fn owes(&self) -> bool;
    /// Says how it is.
    fn status(&self, status: &mut response::Status);
    /// Takes no more requests, and refuses those that wait.
    fn end(&self);
}

/// A program's connection. Its open files are closed when this is dropped.
pub(crate) trait Connection: Send + Sync {
    /// Answers a request. Several may be in flight, but [quick](super::connection::is_quick) ones arrive in order.
    fn answer(&self, ask: Request, body: Vec<u8>, reply: &LocalReply);

    /// Answers what takes no time after all, in its turn; returns false if it may wait, and is not answered.
    fn answer_at_once(&self, ask: &Request, reply: &LocalReply) -> bool {
        let _ = (ask, reply);
        false
    }
}

/// A program that connects.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// The node's number of the connection.
    pub(crate) connection: u64,
    /// The process that made it.
    pub(crate) process: u32,
    /// How the program introduces itself.
    pub(crate) hello: request::Hello,
}

/// A local node that listens.
pub(crate) struct LocalNode {
    pub(super) server: Arc<LocalServer>,
    listening: JoinHandle<Lock>,
}

impl LocalNode {
    /// Begins to listen.
    pub(crate) fn start<D: Handler>(
        rules: LocalRules,
        alive: Lock,
        handler: Arc<D>,
    ) -> Result<Self, LocalError> {
        raise_open_files().map_err(Error::Start)?;
        let socket = Socket::take(&rules.place, alive)?;
        mark_unfinished(&rules.place.unfinished()).map_err(Error::Start)?;
        let server = Arc::new(LocalServer {
            handler,
            rules,
            stop: Stop::new().map_err(Error::Start)?,
            changed: Wake::new().map_err(Error::Start)?,
            clients: Mutex::default(),
            left: Condvar::new(),
            connections: AtomicU64::new(0),
            since: Instant::now(),
        });
        let keeper = Arc::clone(&server);
        let listening = thread::Builder::new()
            .name("local".into())
            .stack_size(STACK_BYTES)
            .spawn(move || keeper.until_stopped(socket))
            .map_err(Error::Start)?;
        Ok(Self { server, listening })
    }

    /// Returns what stops it.
    pub(crate) fn stopper(&self) -> Stop {
        self.server.stop.clone()
    }

    /// Waits until the node has ended: it does not listen, and all connections are closed.
    pub(crate) fn wait(self) {
        let alive = self.listening.join();
        // A process that waits for the lock finds the depot free.
        drop(self.server);
        drop(alive);
        tracing::info!("stopped");
    }
}

/// Marks durably that changes may be pending while no node runs.
fn mark_unfinished(mark: &Path) -> io::Result<()> {
    match File::create_new(mark) {
        Ok(_) => File::open(mark.parent().unwrap_or(mark))?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// State that all connections share.
pub(super) struct LocalServer {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) rules: LocalRules,
    pub(super) stop: Stop,
    /// A connection has ended.
    changed: Wake,
    clients: Mutex<Clients>,
    left: Condvar,
    connections: AtomicU64,
    since: Instant,
}

#[derive(Default)]
struct Clients {
    lines: HashMap<u64, Arc<LocalLine>>,
    /// Since when there is none.
    alone: Option<Instant>,
}

impl LocalServer {
    fn until_stopped(self: Arc<Self>, mut socket: Socket) -> Lock {
        self.clients.lock().alone = Some(Instant::now());
        while !self.stop.is_draining() {
            let Some(patience) = self.patience() else {
                tracing::info!("idle, with nothing pending");
                break;
            };
            let awaited = [socket.as_fd(), self.stop.draining(), self.changed.as_fd()];
            let _ = wait_readable(awaited, patience.min(CHECK_SOCKET_EVERY));
            self.changed.lower();
            if let Some(left) = socket.look() {
                // A program that found the old socket is served.
                while let Ok((socket, _)) = left.accept() {
                    self.receive(socket);
                }
            }
            match socket.accept() {
                Ok(socket) => self.receive(socket),
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    // No descriptors are left: the loop continues when one is free.
                    tracing::warn!(error = why(&error), "a program cannot be taken");
                    let _ = wait_readable([self.changed.as_fd(), self.stop.draining()], PATIENCE);
                }
            }
        }
        // The place is left before connections are closed: a program that connects from now on starts the next node.
        let alive = socket.leave();
        self.stop.at_once();
        self.handler.end();
        self.see_off();
        // If the mark stays, verbs start a node to ask for the queue, though it is empty.
        if !self.handler.owes() {
            let _ = fs::remove_file(self.rules.place.unfinished());
        }
        alive
    }

    /// Returns how long to wait for a program before the node may end; `None`: it ends now.
    fn patience(&self) -> Option<Duration> {
        let mut clients = self.clients.lock();
        let Some(alone) = clients.alone else {
            return Some(FOREVER);
        };
        let left = self.rules.idle.saturating_sub(alone.elapsed());
        if !left.is_zero() {
            return Some(left);
        }
        drop(clients);
        if !self.handler.owes() {
            return None;
        }
        // The queue is read again after the same time.
        clients = self.clients.lock();
        if clients.alone.is_some() {
            clients.alone = Some(Instant::now());
        }
        Some(self.rules.idle.max(LOOK_MIN))
    }

    fn receive(self: &Arc<Self>, socket: UnixStream) {
        let connection = self.connections.fetch_add(1, Relaxed) + 1;
        let peer = match peer_of(&socket) {
            Ok(peer) => peer,
            Err(error) => return tracing::warn!(error = why(&error), "lost at once"),
        };
        let line = match LocalLine::new(socket) {
            Ok(line) => Arc::new(line),
            Err(error) => return tracing::warn!(error = why(&error), "no descriptor for it"),
        };
        if peer.uid != user_id() {
            tracing::warn!(peer.uid, peer.process, "turned away: another user");
            let words = format!("this node serves user {} only", user_id());
            return turn_away(
                &line,
                Refusal::new(Kind::Denied, "talk with the node", words),
            );
        }
        let places = LogPlaces::take(THREADS_THAT_LOG);
        let mut clients = self.clients.lock();
        let count = clients.lines.len();
        let places = places.filter(|_| count < CONNECTIONS_MAX);
        let Some(places) = places else {
            drop(clients);
            let words = format!("{count} programs talk with it already");
            let refusal = Refusal::new(Kind::Busy, "talk with the node", words)
                .waiting(godwit_core::Fault::Passing);
            return turn_away(&line, refusal);
        };
        clients.lines.insert(connection, Arc::clone(&line));
        clients.alone = None;
        drop(clients);
        let server = Arc::clone(self);
        let begun = thread::Builder::new()
            .name("program".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let leaving = ConnectionGuard {
                    server,
                    connection,
                    _places: places,
                };
                let span = tracing::info_span!("program", connection, peer.process);
                let _inside = span.enter();
                converse(leaving, &line, peer.process);
            });
        if let Err(error) = begun {
            tracing::warn!(error = why(&error), "no thread for a program");
            self.leave(connection);
        }
    }

    fn leave(&self, connection: u64) {
        let mut clients = self.clients.lock();
        clients.lines.remove(&connection);
        if clients.lines.is_empty() {
            clients.alone = Some(Instant::now());
        }
        drop(clients);
        self.left.notify_all();
        self.changed.raise();
    }

    /// Ends all connections, and waits until those who answer them have noticed.
    fn see_off(&self) {
        let mut clients = self.clients.lock();
        for line in clients.lines.values() {
            line.hang_up();
        }
        let is_inside = |clients: &mut Clients| !clients.lines.is_empty();
        self.left.wait_while_for(&mut clients, is_inside, PATIENCE);
        if !clients.lines.is_empty() {
            tracing::warn!(connections = clients.lines.len(), "do not end in time");
        }
    }

    pub(super) fn status(&self) -> response::Status {
        let clients = self.clients.lock();
        let mut status = response::Status {
            process: std::process::id(),
            state: self.rules.place.state.display().to_string(),
            age_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            connections: clients.lines.len() as u64,
            ..response::Status::default()
        };
        drop(clients);
        self.handler.status(&mut status);
        let idle = u64::try_from(self.rules.idle.as_millis()).ok();
        status.ends_in_ms = idle.filter(|_| status.owed_files == 0);
        status
    }
}

/// Ends a connection when dropped, also if its thread panics.
pub(super) struct ConnectionGuard {
    pub(super) server: Arc<LocalServer>,
    pub(super) connection: u64,
    _places: LogPlaces,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.server.leave(self.connection);
    }
}

/// Refuses a program before its first request is read; that has number 1.
fn turn_away(line: &LocalLine, refusal: Refusal) {
    let told = ResponseHead {
        n: 1,
        fds: 0,
        tell: Response::Refused(Box::new(refusal)),
    };
    line.say_at_once(&told);
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

const CONNECTIONS_MAX: usize = 1500;

/// Of one connection: the thread that begins it, and the thread that ends it.
const THREADS_THAT_LOG: usize = 2;

pub(super) const WAITING_MAX: i32 = 4096;

pub(super) const STACK_BYTES: usize = 512 << 10;

/// How long the start or the end of a connection may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How often the node checks that its socket is still there: a program that finds none waits about this long.
pub(super) const CHECK_SOCKET_EVERY: Duration = Duration::from_secs(1);

const LOOK_MIN: Duration = Duration::from_millis(100);

const FOREVER: Duration = Duration::from_secs(365 * 86_400);
