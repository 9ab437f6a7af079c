//! The node of one user of one machine: it keeps files of others for the programs here.
//!
//! Programs reach it by a UNIX socket ([`godwit_local`]), one connection each. What they ask is answered by a
//! [`Desk`]; here is who may come, how many at once, that none of them can make this process grow or wait, and
//! when it ends: told to, or when nobody has asked for a while and nothing is owed.

mod adding;
mod appending;
mod copying;
mod desk;
mod elsewhere;
mod exclusive;
mod faults;
mod fragments;
mod going;
mod job;
mod known;
mod line;
mod looking;
mod naming;
mod operating;
mod parts;
mod refusing;
mod seat;
mod serving;
mod shared;
mod visit;
mod visiting;

#[cfg(test)]
mod tests;

use crate::{Error, Routes, admission::LogPlaces, hop, names::Names, stop::Stop};
pub use faults::OnFault;
use godwit_depot::{Connect, Depot, Rules};
use godwit_local::{Kind, Lock, Place, Refusal};
use godwit_sys::{Wake, peer_of, raise_open_files, user_id, wait_readable, why};
use godwit_trust::Home;
use godwit_wire::local::{Ask, Tell, Told, ask, tell};
use line::Line;
pub(crate) use operating::Operating;
use parking_lot::{Condvar, Mutex};
use seat::Seat;
pub(crate) use seat::settle;
use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
pub(crate) use visit::Reply;

/// Whoever answers what programs ask.
pub(crate) trait Desk: Send + Sync + 'static {
    /// Lets a program in, which says who it is.
    fn visit(self: Arc<Self>, visitor: Visitor) -> Result<Box<dyn Visit>, Refusal>;
    /// Tells whether it must not end, though nobody asks.
    fn owes(&self) -> bool;
    /// Says how it is.
    fn status(&self, status: &mut tell::Status);
    /// Takes nothing more, and has whoever waits be told.
    fn end(&self);
}

/// A program's connection. What it has open falls when this is dropped.
pub(crate) trait Visit: Send + Sync {
    /// Answers what was asked. Several are asked at once, but what is [quick](visit::is_quick) comes in the order
    /// it was said.
    fn answer(&self, ask: Ask, body: Vec<u8>, reply: &Reply);

    /// Answers what takes no time after all, in its turn; returns false if it may wait, and is not answered.
    fn answer_at_once(&self, ask: &Ask, reply: &Reply) -> bool {
        let _ = (ask, reply);
        false
    }
}

/// Who comes.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// What this node calls the connection.
    pub(crate) connection: u64,
    /// The process that made it.
    pub(crate) process: u32,
    /// What it says of itself.
    pub(crate) hello: ask::Hello,
}

/// How a local node is to be.
#[derive(Clone, Debug)]
pub struct LocalRules {
    /// Where it listens, and what it keeps where.
    pub place: Place,
    /// It ends when nobody has asked for so long.
    pub idle: Duration,
    /// How many bytes it may keep; `None`: as many as the disk has.
    pub quota: Option<u64>,
    /// After how long each file that it keeps is read again and compared; `None`: never.
    pub scrub_every: Option<Duration>,
    /// It was started by a job of a batch system, and ends with that. Whether it is within one it sees for itself too.
    pub is_of_job: bool,
    /// Somebody starts it whenever the machine does.
    pub is_installed: bool,
    /// Who is told when what is owed does not go.
    pub on_fault: OnFault,
    /// Which hop leads where.
    pub routes: Routes,
    /// The catalog whose names it takes.
    pub catalog: Option<String>,
    /// The directory that this machine serves to others.
    pub export: Option<PathBuf>,
}

/// Why a local node cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// There is one already.
    #[error("a node listens at {} already: process {process}", .socket.display())]
    Taken {
        /// Where.
        socket: PathBuf,
        /// Which.
        process: u32,
    },
    /// Its socket, its state or its depot are of no use.
    #[error("{}", .0.said)]
    Refused(Box<Refusal>),
    /// The system would not let it.
    #[error(transparent)]
    Node(#[from] Error),
}

impl LocalError {
    /// Returns it as programs are told it.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Refused(refusal) => (**refusal).clone(),
            Self::Taken { .. } => Refusal::new(Kind::InUse, WANTED, self.to_string())
                .next("use that one, or name another socket and state: --socket, --state"),
            Self::Node(error) => Refusal::new(Kind::NoNode, WANTED, error.to_string()),
        }
    }
}

impl From<Refusal> for LocalError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

/// Is the node of this machine until it is told to stop, or nobody needs it any more. `home` knows the peers that it
/// has joined; `ready` is called once it listens.
pub fn run_local(
    rules: LocalRules,
    home: Option<Home>,
    ready: impl FnOnce(),
) -> Result<(), LocalError> {
    let alive = settle(&rules.place)?;
    let names = catalog_of(&rules)?.map(|text| Names::new(&text, home.as_ref()));
    let myself = home.as_ref().and_then(|home| home.myself().ok().flatten());
    let bounds = desk::Bounds {
        export: myself.map(|myself| myself.name).zip(rules.export.clone()),
        state: rules.place.state.clone(),
        is_of_job: rules.is_of_job || job::is_within(),
        is_installed: rules.is_installed,
        names,
    };
    let cancel = godwit_store::channel::Cancel::new().map_err(Error::Start)?;
    let (names, routes) = (bounds.names.as_ref(), rules.routes.clone());
    let connect = hop::connect(home.clone(), routes, names, cancel.clone());
    let depot = Arc::new(open_depot(&rules, &connect)?);
    let whose = (home, rules.routes.clone());
    let desk = desk::Keeping::new(depot, (connect, cancel), whose, bounds);
    let watching = faults::Watching::start(&desk, rules.on_fault.clone()).map_err(Error::Start)?;
    let node = LocalNode::start(rules, alive, desk)?;
    node.stopper().on_signals().map_err(Error::Start)?;
    tracing::info!(socket = %node.hall.rules.place.socket.display(), "listen");
    if let Some(displaced) = node.hall.rules.place.displaced() {
        tracing::warn!("{displaced}");
    }
    ready();
    node.wait();
    drop(watching);
    Ok(())
}

/// Returns the catalog whose names the node takes: the one of its rules; while something may be pending, the one before.
fn catalog_of(rules: &LocalRules) -> Result<Option<String>, LocalError> {
    let path = rules.place.state.join("catalog");
    let before = fs::read_to_string(&path).ok();
    let catalog = match rules.place.is_unfinished()? {
        true => before.clone().or_else(|| rules.catalog.clone()),
        false => rules.catalog.clone().or_else(|| before.clone()),
    };
    if let (Some(text), true) = (&catalog, catalog != before) {
        let written = fs::write(&path, text).and_then(|()| File::open(&path)?.sync_all());
        written.map_err(Error::Start)?;
    }
    Ok(catalog)
}

fn open_depot(rules: &LocalRules, connect: &Connect) -> Result<Depot, LocalError> {
    let limits = Rules {
        quota: rules.quota,
        scrub_every: rules.scrub_every,
        ..Rules::default()
    };
    let root = rules.place.state.join("depot");
    Depot::open(&root, limits, Arc::clone(connect))
        .map_err(|error| refusing::depot("keep files here", None, &error).into())
}

/// A local node that listens.
pub(crate) struct LocalNode {
    hall: Arc<Hall>,
    listening: JoinHandle<Lock>,
}

impl LocalNode {
    /// Begins to listen.
    pub(crate) fn start<D: Desk>(
        rules: LocalRules,
        alive: Lock,
        desk: Arc<D>,
    ) -> Result<Self, LocalError> {
        raise_open_files().map_err(Error::Start)?;
        let seat = Seat::take(&rules.place, alive)?;
        mark_unfinished(&rules.place.unfinished()).map_err(Error::Start)?;
        let hall = Arc::new(Hall {
            desk,
            rules,
            stop: Stop::new().map_err(Error::Start)?,
            changed: Wake::new().map_err(Error::Start)?,
            guests: Mutex::default(),
            left: Condvar::new(),
            connections: AtomicU64::new(0),
            since: Instant::now(),
        });
        let keeper = Arc::clone(&hall);
        let listening = thread::Builder::new()
            .name("local".into())
            .stack_size(STACK_BYTES)
            .spawn(move || keeper.until_stopped(seat))
            .map_err(Error::Start)?;
        Ok(Self { hall, listening })
    }

    /// Returns what stops it.
    pub(crate) fn stopper(&self) -> Stop {
        self.hall.stop.clone()
    }

    /// Returns when it has ended: nobody listens, and all connections are closed.
    pub(crate) fn wait(self) {
        let alive = self.listening.join();
        // Whoever waits for that lock finds the depot free.
        drop(self.hall);
        drop(alive);
        tracing::info!("stopped");
    }
}

/// Notes that something may be owed here though no node runs, so that a power cut does not undo it.
fn mark_unfinished(mark: &Path) -> io::Result<()> {
    match File::create_new(mark) {
        Ok(_) => File::open(mark.parent().unwrap_or(mark))?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// What all connections share.
struct Hall {
    desk: Arc<dyn Desk>,
    rules: LocalRules,
    stop: Stop,
    /// A connection has ended.
    changed: Wake,
    guests: Mutex<Guests>,
    left: Condvar,
    connections: AtomicU64,
    since: Instant,
}

#[derive(Default)]
struct Guests {
    lines: HashMap<u64, Arc<Line>>,
    /// Since when there is none.
    alone: Option<Instant>,
}

impl Hall {
    fn until_stopped(self: Arc<Self>, mut seat: Seat) -> Lock {
        self.guests.lock().alone = Some(Instant::now());
        while !self.stop.is_draining() {
            let Some(patience) = self.patience() else {
                tracing::info!("nobody has asked for a while, and nothing is owed");
                break;
            };
            let awaited = [seat.as_fd(), self.stop.draining(), self.changed.as_fd()];
            let _ = wait_readable(awaited, patience.min(LOOK_AT_SEAT));
            self.changed.lower();
            if let Some(left) = seat.look() {
                // Who found it before is heard.
                while let Ok((socket, _)) = left.accept() {
                    self.receive(socket);
                }
            }
            match seat.accept() {
                Ok(socket) => self.receive(socket),
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    // No descriptors are left: the next that is given back is heard.
                    tracing::warn!(error = why(&error), "a program cannot be taken");
                    let _ = wait_readable([self.changed.as_fd(), self.stop.draining()], PATIENCE);
                }
            }
        }
        // Whoever comes now finds nobody, and starts the next; before that nobody is seen off, or they would find us.
        let alive = seat.leave();
        self.stop.at_once();
        self.desk.end();
        self.see_off();
        // If it stays, verbs have the next node started and ask it what is owed, for nothing.
        if !self.desk.owes() {
            let _ = fs::remove_file(self.rules.place.unfinished());
        }
        alive
    }

    /// Returns how long it waits until it may end, unless somebody comes; none if it ends now.
    fn patience(&self) -> Option<Duration> {
        let mut guests = self.guests.lock();
        let Some(alone) = guests.alone else {
            return Some(FOREVER);
        };
        let left = self.rules.idle.saturating_sub(alone.elapsed());
        if !left.is_zero() {
            return Some(left);
        }
        drop(guests);
        if !self.desk.owes() {
            return None;
        }
        // What is owed is looked at again when as much time has passed.
        guests = self.guests.lock();
        if guests.alone.is_some() {
            guests.alone = Some(Instant::now());
        }
        Some(self.rules.idle.max(LOOK_MIN))
    }

    fn receive(self: &Arc<Self>, socket: UnixStream) {
        let connection = self.connections.fetch_add(1, Relaxed) + 1;
        let peer = match peer_of(&socket) {
            Ok(peer) => peer,
            Err(error) => return tracing::warn!(error = why(&error), "lost at once"),
        };
        let line = match Line::new(socket) {
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
        let mut guests = self.guests.lock();
        let count = guests.lines.len();
        let places = places.filter(|_| count < CONNECTIONS_MAX);
        let Some(places) = places else {
            drop(guests);
            let words = format!("{count} programs talk with it already");
            let refusal = Refusal::new(Kind::Busy, "talk with the node", words)
                .waiting(godwit_core::Fault::Passing);
            return turn_away(&line, refusal);
        };
        guests.lines.insert(connection, Arc::clone(&line));
        guests.alone = None;
        drop(guests);
        let hall = Arc::clone(self);
        let begun = thread::Builder::new()
            .name("program".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let leaving = Leaving {
                    hall,
                    connection,
                    _places: places,
                };
                let span = tracing::info_span!("program", connection, peer.process);
                let _inside = span.enter();
                visit::converse(leaving, &line, peer.process);
            });
        if let Err(error) = begun {
            tracing::warn!(error = why(&error), "no thread for a program");
            self.leave(connection);
        }
    }

    fn leave(&self, connection: u64) {
        let mut guests = self.guests.lock();
        guests.lines.remove(&connection);
        if guests.lines.is_empty() {
            guests.alone = Some(Instant::now());
        }
        drop(guests);
        self.left.notify_all();
        self.changed.raise();
    }

    /// Ends all connections, and waits until those who answer them have noticed.
    fn see_off(&self) {
        let mut guests = self.guests.lock();
        for line in guests.lines.values() {
            line.hang_up();
        }
        let is_inside = |guests: &mut Guests| !guests.lines.is_empty();
        self.left.wait_while_for(&mut guests, is_inside, PATIENCE);
        if !guests.lines.is_empty() {
            tracing::warn!(connections = guests.lines.len(), "do not end in time");
        }
    }

    fn status(&self) -> tell::Status {
        let guests = self.guests.lock();
        let mut status = tell::Status {
            process: std::process::id(),
            state: self.rules.place.state.display().to_string(),
            age_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            connections: guests.lines.len() as u64,
            ..tell::Status::default()
        };
        drop(guests);
        self.desk.status(&mut status);
        let idle = u64::try_from(self.rules.idle.as_millis()).ok();
        status.ends_in_ms = idle.filter(|_| status.owed_files == 0);
        status
    }
}

/// A connection ends, also if whoever answers it panics.
struct Leaving {
    hall: Arc<Hall>,
    connection: u64,
    _places: LogPlaces,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.hall.leave(self.connection);
    }
}

/// Says why not, to whoever has not been heard yet: their first ask is number 1.
fn turn_away(line: &Line, refusal: Refusal) {
    let told = Told {
        n: 1,
        fds: 0,
        tell: Tell::Refused(Box::new(refusal)),
    };
    line.say_at_once(&told);
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

impl Line {
    /// Ends it: whoever reads or writes here notices.
    fn hang_up(&self) {
        let _ = self.socket().shutdown(Shutdown::Both);
    }
}

const WANTED: &str = "be the node of this machine";
const CONNECTIONS_MAX: usize = 1500;
/// Of one connection: the thread that begins it, and the thread that ends it.
const THREADS_THAT_LOG: usize = 2;
const WAITING_MAX: i32 = 4096;
const STACK_BYTES: usize = 512 << 10;
/// Whoever ends, or begins, has so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Whoever wants a node whose socket was removed waits about so long.
const LOOK_AT_SEAT: Duration = Duration::from_secs(1);
const LOOK_MIN: Duration = Duration::from_millis(100);
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
