//! One connection, and its threads that read and answer.
//!
//! The thread that reads a request answers it. If the answer may wait (for a server, a disk, another program), another
//! thread reads on before. A program with one request at a time costs one thread that works and one that listens, with
//! no hand-over. At the limit of waiting requests no thread reads: the program is held up, not the node.

use super::server::STACK_BYTES;
use crate::local::{
    line::{LineInput, LineOver, LocalLine},
    server::{Connection, ConnectionGuard, LocalServer, Visitor},
};
use godwit_local::{Kind, Refusal};
use godwit_wire::local::{
    Error, Number, Request, RequestHead, Response, ResponseHead, VERSION,
    request::{Act, Wait},
    response,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

/// Tells whether a request is answered before the next is read: it never waits, or later requests must wait for it.
pub(crate) fn is_quick(ask: &Request) -> bool {
    match ask {
        Request::Hello(_)
        | Request::Grant(_)
        | Request::Written(_)
        | Request::Write(_)
        | Request::AccessReply(_)
        | Request::Cancel { .. }
        | Request::Status
        | Request::Stop => true,
        Request::Close(close) | Request::End(close) => close.wait == Wait::Nothing,
        Request::Shared(shared) => !matches!(shared.act, Act::Deliver | Act::Look { .. }),
        _ => false,
    }
}

/// Where the answers to one request are sent.
#[derive(Clone)]
pub(crate) struct LocalReply {
    line: Arc<LocalLine>,
    n: Number,
    is_cancelled: Arc<AtomicBool>,
}

impl LocalReply {
    /// Tells whether the request was cancelled or its connection has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_cancelled.load(SeqCst) || self.line.is_over()
    }

    /// Tells whether the connection is gone. While a request is answered before the next is read no thread reads, so
    /// this asks the socket.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_over()
            || godwit_sys::wait_gone(self.line.socket().as_fd(), [], Duration::ZERO).unwrap_or(true)
    }

    /// Tells something.
    pub(crate) fn tell(&self, tell: Response) {
        self.tell_with(tell, b"", &[]);
    }

    /// Sends an answer with bytes and files.
    pub(crate) fn tell_with(&self, tell: Response, body: &[u8], files: &[BorrowedFd<'_>]) {
        let told = ResponseHead {
            n: self.n,
            fds: u8::try_from(files.len()).expect("they are few"),
            tell,
        };
        self.line.say(&told, body, files);
    }

    /// Tells why not.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.tell(Response::Refused(Box::new(refusal)));
    }
}

/// Talks with a program until it, or the node, ends.
pub(super) fn converse(leaving: ConnectionGuard, line: &Arc<LocalLine>, process: u32) {
    let (server, connection) = (Arc::clone(&leaving.server), leaving.connection);
    let mut input = LineInput::new();
    let Some((visit, speaks)) = welcome(&server, line, &mut input, connection, process) else {
        return;
    };
    let talk = Arc::new(LocalTalk {
        server,
        line: Arc::clone(line),
        visit,
        speaks,
        input: Mutex::new(input),
        under_way: Mutex::default(),
        waiting: AtomicUsize::new(0),
        _leaving: leaving,
    });
    talk.attend();
}

/// Hears who it is.
fn welcome(
    server: &LocalServer,
    line: &Arc<LocalLine>,
    input: &mut LineInput,
    connection: u64,
    process: u32,
) -> Option<(Box<dyn Connection>, Speaks)> {
    let frame = match input.next(line, server.stop.ending()) {
        Ok(frame) => frame,
        Err(over) => {
            tell_over(&over);
            return None;
        }
    };
    let asked = RequestHead::read(&frame.head);
    let reply = |n| LocalReply {
        line: Arc::clone(line),
        n,
        is_cancelled: Arc::default(),
    };
    let (n, hello) = match asked {
        Ok(RequestHead {
            n,
            fds: 0,
            ask: Request::Hello(hello),
        }) => (n, *hello),
        Ok(RequestHead { n, .. }) | Err(Error::Unknown { n, .. }) => {
            let words = "the first thing to say is who asks";
            reply(n).refuse(Refusal::new(Kind::Invalid, TALK, words));
            return None;
        }
        Err(error) => {
            tell_over(&LineOver::Misled(error.to_string()));
            return None;
        }
    };
    if hello.version != VERSION {
        let words = format!(
            "it speaks version {VERSION}, and the program {}",
            hello.version
        );
        reply(n).refuse(
            Refusal::new(Kind::Version, TALK, words)
                .next("end the node (godwit node stop): the next program starts its own"),
        );
        return None;
    }
    let program = hello.program.clone();
    let speaks = match hello.visitor {
        Some(_) => Speaks::ForAnother,
        None => Speaks::ForItself,
    };
    let visitor = Visitor {
        connection,
        process,
        hello,
    };
    let visit = match Arc::clone(&server.handler).visit(visitor) {
        Ok(visit) => visit,
        Err(refusal) => {
            reply(n).refuse(refusal);
            return None;
        }
    };
    tracing::debug!(program, "begun");
    reply(n).tell(Response::Hello(response::Hello {
        version: VERSION,
        godwit: env!("CARGO_PKG_VERSION").into(),
        process: std::process::id(),
        connection,
    }));
    Some((visit, speaks))
}

/// The user for whom a program acts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Speaks {
    ForItself,
    /// A user of another machine, who may not stop this node.
    ForAnother,
}

/// A conversation, as all threads share it that read and answer.
struct LocalTalk {
    server: Arc<LocalServer>,
    line: Arc<LocalLine>,
    visit: Box<dyn Connection>,
    speaks: Speaks,
    input: Mutex<LineInput>,
    under_way: Mutex<HashMap<Number, Arc<AtomicBool>>>,
    /// How many threads would read next.
    waiting: AtomicUsize,
    /// With the last thread that answers: what the program had open has fallen by then.
    _leaving: ConnectionGuard,
}

impl LocalTalk {
    /// Reads and answers, as one of several.
    fn attend(self: &Arc<Self>) {
        loop {
            self.waiting.fetch_add(1, SeqCst);
            let mut input = self.input.lock();
            self.waiting.fetch_sub(1, SeqCst);
            let Some((asked, body, reply)) = self.next_slow(&mut input) else {
                return self.end();
            };
            if !self.leave_reading(&reply) {
                return self.end();
            }
            drop(input);
            self.visit.answer(asked.ask, body, &reply);
            self.answered(asked.n);
            // One that listens is enough.
            if self.waiting.load(SeqCst) > 0 {
                return;
            }
        }
    }

    /// Answers quick requests, until one is not quick.
    fn next_slow(
        self: &Arc<Self>,
        input: &mut LineInput,
    ) -> Option<(RequestHead, Vec<u8>, LocalReply)> {
        loop {
            if self.line.is_over() {
                return None;
            }
            let frame = match input.next(&self.line, self.server.stop.ending()) {
                Ok(frame) => frame,
                Err(over) => {
                    tell_over(&over);
                    return None;
                }
            };
            let (asked, unknown) = match RequestHead::read(&frame.head) {
                Ok(asked) => (Some(asked), None),
                Err(Error::Unknown { n, fds, said }) => (None, Some((n, fds, said))),
                Err(error) => {
                    tell_over(&LineOver::Misled(error.to_string()));
                    return None;
                }
            };
            let fds = asked.as_ref().map(|asked| asked.fds);
            let fds = fds.or(unknown.as_ref().map(|(_, fds, _)| *fds));
            if let Err(over) = input.drop_files(fds.unwrap_or(0)) {
                tell_over(&over);
                return None;
            }
            let Some(asked) = asked else {
                let (n, _, said) = unknown.unwrap_or_default();
                let refusal = Refusal::new(Kind::Version, "understand what is asked", said);
                self.reply(n).refuse(refusal);
                continue;
            };
            let reply = self.reply(asked.n);
            match &asked.ask {
                Request::Hello(_) => reply.refuse(Refusal::new(
                    Kind::Invalid,
                    TALK,
                    "who asks was said already",
                )),
                Request::Cancel { of } => {
                    if let Some(is_cancelled) = self.under_way.lock().get(of) {
                        is_cancelled.store(true, SeqCst);
                    }
                    reply.tell(Response::Done(response::Done::default()));
                }
                Request::Status if self.speaks == Speaks::ForItself => {
                    reply.tell(Response::Status(self.server.status()));
                }
                Request::Stop if self.speaks == Speaks::ForItself => {
                    reply.tell(Response::Done(response::Done::default()));
                    self.server.stop.drain();
                }
                quick if is_quick(quick) => self.visit.answer(asked.ask, frame.body, &reply),
                // No thread is woken to listen meanwhile.
                short if self.visit.answer_at_once(short, &reply) => {}
                _ => {
                    let known = self
                        .under_way
                        .lock()
                        .insert(asked.n, Arc::clone(&reply.is_cancelled));
                    if known.is_some() {
                        tell_over(&LineOver::Misled("a number is asked twice".into()));
                        return None;
                    }
                    return Some((asked, frame.body, reply));
                }
            }
        }
    }

    /// Makes sure that another thread reads while this one answers. At the limit of threads it waits for one to be
    /// free; returns `false` if the program closes the connection meanwhile.
    fn leave_reading(self: &Arc<Self>, reply: &LocalReply) -> bool {
        loop {
            self.line.freed.lower();
            if self.waiting.load(SeqCst) > 0 {
                return true;
            }
            if self.under_way.lock().len() < AT_ONCE_MAX {
                let talk = Arc::clone(self);
                let span = tracing::Span::current();
                let begun = thread::Builder::new()
                    .name("program".into())
                    .stack_size(STACK_BYTES)
                    .spawn(move || span.in_scope(|| talk.attend()));
                if let Err(error) = begun {
                    tracing::warn!(error = godwit_sys::why(&error), "no thread to listen");
                }
                return true; // without one it is read when this is answered
            }
            let awaited = [self.line.freed.as_fd(), self.server.stop.ending()];
            let is_gone = godwit_sys::wait_gone(self.line.socket().as_fd(), awaited, LOOK_EVERY);
            if is_gone.unwrap_or(true) || self.server.stop.is_ending() || reply.is_over() {
                return false;
            }
        }
    }

    fn answered(&self, n: Number) {
        self.under_way.lock().remove(&n);
        self.line.freed.raise();
    }

    /// Ends the connection and cancels the requests in flight.
    fn end(&self) {
        self.line.end();
        self.line.hang_up();
        for is_cancelled in self.under_way.lock().values() {
            is_cancelled.store(true, SeqCst);
        }
    }

    fn reply(&self, n: Number) -> LocalReply {
        LocalReply {
            line: Arc::clone(&self.line),
            n,
            is_cancelled: Arc::default(),
        }
    }
}

fn tell_over(over: &LineOver) {
    match over {
        LineOver::Gone => {}
        LineOver::Late => tracing::warn!("ended: half of something was said, and then nothing"),
        LineOver::Misled(what) => tracing::warn!(what, "ended: not what programs say"),
    }
}

const TALK: &str = "talk with the node";
/// The most requests in flight on one connection that may wait.
pub(crate) const AT_ONCE_MAX: usize = 64;
/// A reader may stay busy longer; after this time the node only checks that the program is still connected.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
