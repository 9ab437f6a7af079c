//! The one connection of this process, shared by its threads.
//!
//! There is no thread that reads. Of those who wait for answers one *leads*: it waits on the socket without the lock,
//! and whoever looks next takes what came for everybody. Whoever takes something while somebody leads wakes the leader,
//! since it may have been theirs; whoever stops leading wakes all others, of whom the next one leads.

use crate::{
    failure::Result,
    process::{self, Known},
};
use godwit_core::Fault;
use godwit_local::{Answer, Here, Kind, Refusal, who};
use godwit_sys::{Wake, wait_readable};
use godwit_wire::local::{Ask, Number, Tell};
use std::{
    env, fs,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// The connection.
#[derive(Debug)]
pub(crate) struct Talk {
    shared: Mutex<Shared>,
    turned: Condvar,
    /// Something was taken that may be the leader's.
    news: Wake,
    /// The same for whoever waits on the descriptor of what is asynchronous.
    pub(crate) ready: Wake,
    /// How much is asynchronous.
    pub(crate) under_way: AtomicUsize,
}

#[derive(Debug)]
struct Shared {
    here: Option<Here>,
    /// Which connection it is: handles of another mean nothing.
    era: u64,
    has_leader: bool,
    /// How often something may have come.
    turns: u64,
}

/// What was asked, on which connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) era: u64,
    n: Number,
}

impl Talk {
    pub(crate) fn new() -> Result<Self> {
        let wake = || Wake::new().map_err(|error| process::no_descriptor(&error));
        Ok(Self {
            shared: Mutex::new(Shared {
                here: None,
                era: 0,
                has_leader: false,
                turns: 0,
            }),
            turned: Condvar::new(),
            news: wake()?,
            ready: wake()?,
            under_way: AtomicUsize::new(0),
        })
    }

    /// Has a child close what is ours.
    pub(crate) fn remember(&self) {
        process::remember(Known::News, &self.news);
        process::remember(Known::Ready, &self.ready);
    }

    /// Asks. With `era` it is only said on that connection.
    pub(crate) fn send(&self, era: Option<u64>, ask: Ask, body: &[u8]) -> Result<Ticket, Refusal> {
        let mut shared = self.connected(era)?;
        let era = shared.era;
        let here = shared.here.as_mut().expect("it is connected");
        let sent = here.send(ask, body);
        self.touched(&mut shared);
        Ok(Ticket { era, n: sent? })
    }

    /// The same for what is not answered.
    pub(crate) fn say(&self, era: u64, ask: Ask, body: &[u8]) -> Result<(), Refusal> {
        self.send(Some(era), ask, body).map(drop)
    }

    /// The same, where the answer does not matter: whoever is gone has given it back.
    pub(crate) fn give_back(&self, era: u64, ask: Ask) {
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
    pub(crate) fn ask(
        &self,
        era: Option<u64>,
        ask: Ask,
        deadline: Option<Instant>,
        more: &mut dyn FnMut(Tell),
    ) -> Result<(u64, Answer), Refusal> {
        let ticket = self.send(era, ask, b"")?;
        loop {
            let answer = self.receive(ticket, deadline)?;
            match answer.tell {
                Tell::Refused(refusal) => return Err(*refusal),
                ref tell if tell.is_last() => return Ok((ticket.era, answer)),
                tell => more(tell),
            }
        }
    }

    /// The same for what may be asked again: if the node ends meanwhile, the next is asked.
    pub(crate) fn ask_twice(&self, ask: &Ask) -> Result<(u64, Answer), Refusal> {
        match self.ask(None, ask.clone(), None, &mut |_| ()) {
            Err(refusal) if refusal.kind == Kind::NodeLost => {
                self.ask(None, ask.clone(), None, &mut |_| ())
            }
            answer => answer,
        }
    }

    /// Waits for the next answer. At the deadline the ask is taken back.
    pub(crate) fn receive(
        &self,
        ticket: Ticket,
        deadline: Option<Instant>,
    ) -> Result<Answer, Refusal> {
        let mut shared = self.lock();
        let mut came = of_era(&mut shared, ticket.era)?.came(ticket.n);
        loop {
            if let Some(answer) = came? {
                return Ok(answer);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                if let Ok(here) = of_era(&mut shared, ticket.era) {
                    here.cancel(ticket.n);
                }
                let words = "the node of this machine has not answered in that time";
                let late = Refusal::new(Kind::Late, "wait for an answer", words);
                return Err(late.waiting(Fault::Passing));
            }
            shared = self.rest(shared, None, deadline);
            came = of_era(&mut shared, ticket.era)?.poll(ticket.n);
            self.touched(&mut shared);
        }
    }

    /// Returns the next answer if it is here.
    pub(crate) fn look(&self, ticket: Ticket) -> Result<Option<Answer>, Refusal> {
        let mut shared = self.lock();
        let came = of_era(&mut shared, ticket.era)?.poll(ticket.n);
        shared.turns += 1;
        if shared.has_leader {
            self.news.raise();
        }
        came
    }

    /// Tells whether that connection is over.
    pub(crate) fn is_lost(&self, era: u64) -> bool {
        let mut shared = self.lock();
        let is_lost = match of_era(&mut shared, era) {
            Ok(here) => here.is_over_by_now(),
            Err(_) => true,
        };
        self.touched(&mut shared); // what came meanwhile may be others'
        is_lost
    }

    /// Takes an ask back.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let mut shared = self.lock();
        if let Ok(here) = of_era(&mut shared, ticket.era) {
            here.cancel(ticket.n);
            self.touched(&mut shared);
        }
    }

    /// The same, but what comes of it is still wanted.
    pub(crate) fn take_back(&self, ticket: Ticket) {
        let mut shared = self.lock();
        if let Ok(here) = of_era(&mut shared, ticket.era) {
            if let Ok(n) = here.send(Ask::Cancel { of: ticket.n }, b"") {
                here.forget(n);
            }
            self.touched(&mut shared);
        }
    }

    /// Returns what [`Talk::await_turn`] compares with.
    pub(crate) fn turns(&self) -> u64 {
        self.lock().turns
    }

    /// Waits until something may have come since that was told.
    pub(crate) fn await_turn(&self, seen: u64, deadline: Option<Instant>) {
        self.await_turn_or(seen, None, deadline);
    }

    /// The same, or until `also` can be read.
    pub(crate) fn await_turn_or(
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

    /// Tells whether nothing can come any more: a descriptor that is always readable helps nobody.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().here.as_ref().is_some_and(Here::is_over)
    }

    /// Waits once until something may have come, or the deadline.
    fn rest<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        also: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, Shared> {
        let mut left = match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => FOREVER,
        };
        if shared.has_leader {
            if also.is_some() {
                left = left.min(MEANWHILE); // whoever leads does not know of it
            }
            let rested = self.turned.wait_timeout(shared, left);
            return rested.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Some(here) = &shared.here else {
            return shared;
        };
        let socket = process::borrowed(&here.waits_on());
        shared.has_leader = true;
        drop(shared);
        // The socket stays open: nobody replaces the connection while somebody leads.
        let news = self.news.as_fd();
        let heard = wait_readable([socket, news, also.unwrap_or(news)], left);
        if heard.map_or(true, |[_, is_news, _]| is_news) {
            self.news.lower();
        }
        let mut shared = self.lock();
        shared.has_leader = false;
        shared.turns += 1;
        self.turned.notify_all();
        shared
    }

    /// Returns the connection, which is made if there is none, or if there was one that is over and no `era` is asked for.
    fn connected(&self, era: Option<u64>) -> Result<MutexGuard<'_, Shared>, Refusal> {
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
        process::forget(Known::Socket);
        shared.here = None;
        let environment = |name: &str| env::var_os(name);
        let here = Here::find(&who(&program(), &environment), &environment)?;
        process::remember(Known::Socket, &here.waits_on());
        shared.era += 1;
        shared.here = Some(here);
        process::watch_socket();
        Ok(shared)
    }

    fn touched(&self, shared: &mut Shared) {
        shared.turns += 1;
        if shared.has_leader {
            self.news.raise();
        }
        if self.under_way.load(SeqCst) > 0 {
            self.ready.raise();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the connection if it still is that one.
fn of_era(shared: &mut Shared, era: u64) -> Result<&mut Here, Refusal> {
    match &mut shared.here {
        Some(here) if shared.era == era => Ok(here),
        _ => Err(gone()),
    }
}

/// Says that a connection is over.
pub(crate) fn gone() -> Refusal {
    let words = "the node of this machine ended meanwhile";
    Refusal::new(Kind::NodeLost, "go on with what was begun", words)
        .waiting(Fault::Passing)
        .next("what was committed is kept; the next call begins anew")
}

/// Returns what the kernel calls this program.
fn program() -> String {
    let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

/// So often a thread that does not lead looks at what else it waits for.
const MEANWHILE: Duration = Duration::from_millis(50);
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
