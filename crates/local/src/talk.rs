//! One connection to the node, shared by the threads of a process.
//!
//! No thread reads all the time. Of the threads that wait for answers one *leads*: it waits on the socket without the
//! lock, and the thread that looks next takes what came for all. A thread that takes something while another leads
//! wakes the leader, since it may have been for that one. A thread that stops leading wakes all others, of which one
//! leads next.

use crate::{Kind, NodeAnswer, NodeConnection, Refusal, Result, place::Environment};
use godwit_core::Fault;
use godwit_sys::{Wake, wait_readable};
use godwit_wire::local::{Number, Request, Response, request::Hello};
use std::{
    env, io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// A conversation of many threads with the node.
#[derive(Debug)]
pub struct SharedConnection {
    shared: Mutex<TalkState>,
    turned: Condvar,
    /// Raised when something was taken that may be the leader's.
    pub news: Wake,
    /// Raised when something was taken while `under_way` is not 0.
    pub ready: Wake,
    /// How many asks a program waits for by `ready`.
    pub under_way: AtomicUsize,
    owner: Owner,
}

/// The program that has a conversation.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Returns the program's introduction for each new connection.
    pub hello: fn(Environment<'_>) -> Hello,
    /// Receives the socket of each connection, and `None` before that socket is closed.
    pub on_socket: fn(Option<BorrowedFd<'_>>),
    /// The session of connections, if the environment names none.
    pub session: Option<String>,
}

#[derive(Debug)]
struct TalkState {
    here: Option<NodeConnection>,
    /// Which connection it is: handles of another mean nothing.
    era: u64,
    has_leader: bool,
    /// Count of the turns in which an answer may have arrived.
    turns: u64,
}

/// An ask on one connection.
#[derive(Clone, Copy, Debug)]
pub struct PendingRequest {
    /// The connection.
    pub era: u64,
    n: Number,
}

impl SharedConnection {
    /// Returns a conversation that connects when something is asked.
    pub fn new(owner: Owner) -> io::Result<Self> {
        Ok(Self {
            owner,
            shared: Mutex::new(TalkState {
                here: None,
                era: 0,
                has_leader: false,
                turns: 0,
            }),
            turned: Condvar::new(),
            news: Wake::new()?,
            ready: Wake::new()?,
            under_way: AtomicUsize::new(0),
        })
    }

    /// Asks. With `era` it is only said on that connection.
    pub fn send(&self, era: Option<u64>, ask: Request, body: &[u8]) -> Result<PendingRequest> {
        let mut shared = self.connected(era)?;
        let era = shared.era;
        let here = shared.here.as_mut().expect("it is connected");
        let sent = here.send(ask, body);
        self.touched(&mut shared);
        Ok(PendingRequest { era, n: sent? })
    }

    /// Says what gets no answer.
    pub fn say(&self, era: u64, ask: Request, body: &[u8]) -> Result<()> {
        self.send(Some(era), ask, body).map(drop)
    }

    /// Asks, and passes over the answer: a connection that is gone has given all back.
    pub fn give_back(&self, era: u64, ask: Request) {
        let Ok(mut shared) = self.connected(Some(era)) else {
            return;
        };
        let here = shared.here.as_mut().expect("it is connected");
        if let Ok(n) = here.send(ask, b"") {
            here.forget(n);
        }
        self.touched(&mut shared);
    }

    /// Asks and waits for the last answer; refusals are errors.
    pub fn ask(
        &self,
        era: Option<u64>,
        ask: Request,
        deadline: Option<Instant>,
        more: &mut dyn FnMut(Response),
    ) -> Result<(u64, NodeAnswer)> {
        let ticket = self.send(era, ask, b"")?;
        loop {
            let answer = self.receive(ticket, deadline)?;
            match answer.tell {
                Response::Refused(refusal) => return Err(*refusal),
                ref tell if tell.is_last() => return Ok((ticket.era, answer)),
                tell => more(tell),
            }
        }
    }

    /// Sends a request that may be repeated: if the node ends meanwhile, the next node receives it.
    pub fn ask_twice(&self, ask: &Request) -> Result<(u64, NodeAnswer)> {
        match self.ask(None, ask.clone(), None, &mut |_| ()) {
            Err(refusal) if refusal.kind == Kind::NodeLost => {
                self.ask(None, ask.clone(), None, &mut |_| ())
            }
            answer => answer,
        }
    }

    /// Waits for the next answer. At the deadline the ask is taken back.
    pub fn receive(&self, ticket: PendingRequest, deadline: Option<Instant>) -> Result<NodeAnswer> {
        if let Some(answer) = self.await_answer(ticket, deadline)? {
            return Ok(answer);
        }
        self.cancel(ticket);
        let words = "the node of this machine has not answered in that time";
        let late = Refusal::new(Kind::Late, "wait for an answer", words);
        Err(late.waiting(Fault::Passing))
    }

    /// Waits for the next answer until the deadline; `None`: there is none yet, and the request
    /// continues.
    pub fn await_answer(
        &self,
        ticket: PendingRequest,
        deadline: Option<Instant>,
    ) -> Result<Option<NodeAnswer>> {
        let mut shared = self.lock();
        let mut came = of_era(&mut shared, ticket.era)?.came(ticket.n);
        loop {
            if let Some(answer) = came? {
                return Ok(Some(answer));
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(None);
            }
            shared = self.rest(shared, None, deadline);
            came = of_era(&mut shared, ticket.era)?.poll(ticket.n);
            self.touched(&mut shared);
        }
    }

    /// Returns the next answer if it is here.
    pub fn look(&self, ticket: PendingRequest) -> Result<Option<NodeAnswer>> {
        let mut shared = self.lock();
        let came = of_era(&mut shared, ticket.era)?.poll(ticket.n);
        shared.turns += 1;
        if shared.has_leader {
            self.news.raise();
        }
        came
    }

    /// Tells whether that connection is over.
    pub fn is_lost(&self, era: u64) -> bool {
        let mut shared = self.lock();
        let is_lost = match of_era(&mut shared, era) {
            Ok(here) => here.is_over_by_now(),
            Err(_) => true,
        };
        self.touched(&mut shared); // what came meanwhile may be others'
        is_lost
    }

    /// Takes an ask back.
    pub fn cancel(&self, ticket: PendingRequest) {
        let mut shared = self.lock();
        if let Ok(here) = of_era(&mut shared, ticket.era) {
            here.cancel(ticket.n);
            self.touched(&mut shared);
        }
    }

    /// Takes an ask back; the answer is still wanted.
    pub fn take_back(&self, ticket: PendingRequest) {
        let mut shared = self.lock();
        if let Ok(here) = of_era(&mut shared, ticket.era) {
            if let Ok(n) = here.send(Request::Cancel { of: ticket.n }, b"") {
                here.forget(n);
            }
            self.touched(&mut shared);
        }
    }

    /// Returns what [`SharedConnection::await_turn`] compares with.
    pub fn turns(&self) -> u64 {
        self.lock().turns
    }

    /// Waits until an answer may have arrived since the turn `seen`.
    pub fn await_turn(&self, seen: u64, deadline: Option<Instant>) {
        self.await_turn_or(seen, None, deadline);
    }

    /// Waits until an answer may have arrived, or `also` can be read.
    pub fn await_turn_or(
        &self,
        seen: u64,
        also: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) {
        let shared = self.lock();
        if shared.turns == seen && shared.here.is_some() {
            drop(self.rest(shared, also, deadline));
        }
    }

    /// Tells whether no more answers can arrive.
    pub fn is_over(&self) -> bool {
        self.lock()
            .here
            .as_ref()
            .is_some_and(NodeConnection::is_over)
    }

    /// Waits once until an answer may have arrived, or the deadline.
    fn rest<'a>(
        &'a self,
        mut shared: MutexGuard<'a, TalkState>,
        also: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, TalkState> {
        let mut left = match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => FOREVER,
        };
        if shared.has_leader {
            if also.is_some() {
                left = left.min(MEANWHILE); // the leader does not know of it
            }
            let rested = self.turned.wait_timeout(shared, left);
            return rested.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Some(here) = &shared.here else {
            return shared;
        };
        let socket = here.socket();
        shared.has_leader = true;
        drop(shared);
        let news = self.news.as_fd();
        let heard = wait_readable([socket.as_fd(), news, also.unwrap_or(news)], left);
        if heard.map_or(true, |[_, is_news, _]| is_news) {
            self.news.lower();
        }
        drop(socket); // closed by the connection alone
        let mut shared = self.lock();
        shared.has_leader = false;
        shared.turns += 1;
        self.turned.notify_all();
        shared
    }

    /// Returns the connection, which is made if there is none. Without an `era`, a connection that
    /// is over is replaced.
    fn connected(&self, era: Option<u64>) -> Result<MutexGuard<'_, TalkState>> {
        let mut shared = self.lock();
        if let Some(era) = era {
            of_era(&mut shared, era)?;
            return Ok(shared);
        }
        loop {
            if shared.here.as_ref().is_some_and(|here| !here.is_over()) {
                return Ok(shared);
            }
            if !shared.has_leader {
                break;
            }
            self.news.raise();
            let rested = self.turned.wait(shared);
            shared = rested.unwrap_or_else(PoisonError::into_inner);
        }
        (self.owner.on_socket)(None);
        shared.here = None;
        let environment = |name: &str| env::var_os(name);
        let mut hello = (self.owner.hello)(&environment);
        hello.session = hello.session.or_else(|| self.owner.session.clone());
        let here = NodeConnection::find(&hello, &environment)?;
        (self.owner.on_socket)(Some(here.socket().as_fd()));
        shared.era += 1;
        shared.here = Some(here);
        Ok(shared)
    }

    fn touched(&self, shared: &mut TalkState) {
        shared.turns += 1;
        if shared.has_leader {
            self.news.raise();
        }
        if self.under_way.load(SeqCst) > 0 {
            self.ready.raise();
        }
    }

    fn lock(&self) -> MutexGuard<'_, TalkState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the connection if it still is that one.
fn of_era(shared: &mut TalkState, era: u64) -> Result<&mut NodeConnection> {
    match &mut shared.here {
        Some(here) if shared.era == era => Ok(here),
        _ => Err(gone()),
    }
}

/// Says that a connection is over.
pub fn gone() -> Refusal {
    let words = "the node of this machine ended meanwhile";
    Refusal::new(Kind::NodeLost, "go on with what was begun", words)
        .waiting(Fault::Passing)
        .next("what was committed is kept; the next call begins anew")
}

/// How often a waiting thread that does not read checks its other conditions.
const MEANWHILE: Duration = Duration::from_millis(50);
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
