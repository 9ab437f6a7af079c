//! Asks to the node that a signal to the asking program ends.

use crate::MountRules;
use fuser::Errno;
use godwit_core::{Fault, Url};
use godwit_local::{Kind, NodeAnswer, Owner, Refusal, SharedConnection};
use godwit_wire::local::{
    Handle, Request, Response,
    request::{Close, FileTarget, Freshness, Wait},
    response::LocalStat,
};
use parking_lot::Mutex;
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::OsStrExt,
    thread,
    time::{Duration, Instant},
};

/// The conversation of a mount with its node.
pub(crate) struct NodeTalk {
    pub(crate) talk: SharedConnection,
    pub(crate) rules: MountRules,
    /// The sentences that were reported.
    said: Mutex<HashSet<String>>,
}

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Failed {
    /// A signal came for the program that asked.
    Interrupted,
    Refused(Refusal),
    /// A number that needs no sentence.
    Plain(i32),
}

pub(crate) type Result<T, E = Failed> = std::result::Result<T, E>;

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Plain(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl Failed {
    /// Tells whether the server, or the node, is away: nothing is known of the name.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Refused(refusal) if is_passing(refusal))
    }

    /// Tells whether the server is away, and the node is not.
    fn is_server_away(&self) -> bool {
        let Self::Refused(refusal) = self else {
            return false;
        };
        let is_of_node = matches!(
            refusal.kind,
            Kind::InUse | Kind::NodeLost | Kind::NoNode | Kind::Ending | Kind::Quota | Kind::Disk
        );
        is_passing(refusal) && !is_of_node
    }

    pub(crate) fn is_node_lost(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.kind == Kind::NodeLost)
    }

    /// Tells whether the name is not there.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.kind == Kind::Missing && !is_passing(refusal),
            Self::Plain(errno) => *errno == libc::ENOENT,
            Self::Interrupted => false,
        }
    }
}

impl NodeTalk {
    pub(crate) fn new(owner: Owner, rules: MountRules) -> io::Result<Self> {
        Ok(Self {
            talk: SharedConnection::new(owner)?,
            rules,
            said: Mutex::default(),
        })
    }

    /// Asks on behalf of a thread. If the node ends meanwhile, the next one is asked.
    pub(crate) fn ask(&self, thread: u32, ask: &Request) -> Result<(u64, NodeAnswer)> {
        match self.ask_on(None, thread, ask) {
            Err(failed) if failed.is_node_lost() => self.ask_on(None, thread, ask),
            answer => answer,
        }
    }

    /// Asks on one connection, or on any.
    pub(crate) fn ask_on(
        &self,
        era: Option<u64>,
        thread: u32,
        ask: &Request,
    ) -> Result<(u64, NodeAnswer)> {
        self.ask_for_more(era, thread, ask, &mut |_| ())
    }

    /// Asks, and tells `more` of what comes before the last answer.
    pub(crate) fn ask_for_more(
        &self,
        era: Option<u64>,
        thread: u32,
        ask: &Request,
        more: &mut dyn FnMut(NodeAnswer),
    ) -> Result<(u64, NodeAnswer)> {
        let ticket = self.talk.send(era, ask.clone(), b"")?;
        loop {
            let soon = Instant::now() + LOOK_EVERY;
            match self.talk.await_answer(ticket, Some(soon))? {
                Some(answer) => match answer.tell {
                    Response::Refused(refusal) => return Err((*refusal).into()),
                    ref tell if tell.is_last() => return Ok((ticket.era, answer)),
                    _ => more(answer),
                },
                None if is_signalled(thread) => {
                    self.talk.cancel(ticket);
                    return Err(Failed::Interrupted);
                }
                None => {}
            }
        }
    }

    /// Asks, and asks again while the server is away, as long as readers wait.
    pub(crate) fn ask_patiently(&self, thread: u32, ask: &Request) -> Result<(u64, NodeAnswer)> {
        self.ask_patiently_on(None, thread, ask)
    }

    /// Asks patiently on one connection, or on any.
    pub(crate) fn ask_patiently_on(
        &self,
        era: Option<u64>,
        thread: u32,
        ask: &Request,
    ) -> Result<(u64, NodeAnswer)> {
        let until = Instant::now().checked_add(self.rules.wait);
        loop {
            let answer = match era {
                None => self.ask(thread, ask),
                Some(_) => self.ask_on(era, thread, ask),
            };
            if era.is_some() && matches!(&answer, Err(failed) if failed.is_node_lost()) {
                return answer; // that connection does not come back
            }
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            match answer {
                Err(failed) if failed.is_away() && !is_over => {
                    thread::sleep(LOOK_EVERY); // the server says nothing when it is back
                    if is_signalled(thread) {
                        return Err(Failed::Interrupted);
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Opens a file: if its server is away, its cached version; without one, waits for the server.
    pub(crate) fn ask_for_file(
        &self,
        thread: u32,
        open: impl Fn(Freshness) -> Request,
    ) -> Result<(u64, NodeAnswer)> {
        match self.ask(thread, &open(Freshness::Usual)) {
            Err(failed) if failed.is_server_away() => {}
            Err(failed) if failed.is_away() => {
                return self.ask_patiently(thread, &open(Freshness::Usual));
            }
            answer => return answer,
        }
        match self.ask(thread, &open(Freshness::Kept)) {
            Err(failed) if failed.is_away() => self.ask_patiently(thread, &open(Freshness::Usual)),
            answer => answer,
        }
    }

    /// Ends a file that was written: it is committed when this returns, or given up.
    pub(crate) fn end(&self, (era, handle): (u64, Handle), give_up: bool) -> Result<()> {
        // An end that waits for the disk is answered beside other asks.
        let end = Request::End(Close {
            handle,
            wait: Wait::Commit,
            give_up,
            timeout_ms: None,
        });
        self.ask_on(Some(era), NO_THREAD, &end).map(drop)
    }

    /// Gives a file back to the node, which waits for nothing.
    pub(crate) fn give_back(&self, (era, handle): (u64, Handle)) {
        let close = Close {
            handle,
            wait: Wait::Nothing,
            give_up: false,
            timeout_ms: None,
        };
        self.talk.give_back(era, Request::Close(close));
    }

    /// Lists a directory: the name and attributes of each entry.
    pub(crate) fn list(&self, thread: u32, url: String) -> Result<Vec<(OsString, LocalStat)>> {
        let (ask, mut list) = (Request::List(FileTarget::is(url)), Vec::new());
        let mut take = |answer: NodeAnswer| {
            for line in answer.body.split(|byte| *byte == b'\n') {
                let stat = serde_json::from_slice::<LocalStat>(line).ok();
                let url = stat.as_ref().and_then(|stat| stat.url.parse::<Url>().ok());
                let name = url.as_ref().and_then(Url::file_name);
                // A name that a directory cannot have is shown to no program.
                if let (Some(stat), Some(name)) =
                    (stat, name.filter(|name| name.len() <= NAME_BYTES_MAX))
                {
                    list.push((OsStr::from_bytes(name).to_owned(), stat));
                }
            }
        };
        self.ask_for_more(None, thread, &ask, &mut take)?;
        Ok(list)
    }

    /// Returns the number for a program, and reports the sentence behind it once.
    pub(crate) fn errno(&self, failed: &Failed) -> Errno {
        let refusal = match failed {
            Failed::Interrupted => return Errno::EINTR,
            Failed::Plain(errno) => return Errno::from_i32(*errno),
            Failed::Refused(refusal) => refusal,
        };
        let errno = match refusal.kind.errno() {
            libc::ENOENT if is_passing(refusal) => libc::EHOSTUNREACH,
            0 => libc::EIO,
            errno => errno,
        };
        if !PLAIN.contains(&errno) {
            self.report(refusal);
        }
        Errno::from_i32(errno)
    }

    /// Reports a sentence, unless it was.
    pub(crate) fn report(&self, refusal: &Refusal) {
        let mut said = self.said.lock();
        if said.len() < SAID_MAX && said.insert(refusal.to_string()) {
            drop(said);
            (self.rules.report)(refusal);
        }
    }
}

fn is_passing(refusal: &Refusal) -> bool {
    Fault::from(refusal.waiting) != Fault::Lasting
}

/// Tells whether a signal waits for a thread: FUSE says so with a request that its library does not know.
pub(crate) fn is_signalled(thread: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else {
        return false;
    };
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0)
    };
    let pending = mask("SigPnd:") | mask("ShdPnd:");
    pending & (!(mask("SigBlk:") | mask("SigIgn:")) | KILL) != 0
}

/// Asks that no thread of a program waits for.
pub(crate) const NO_THREAD: u32 = 0;
/// SIGKILL as a bit of a mask.
const KILL: u64 = 1 << (libc::SIGKILL - 1);
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longer names the kernel refuses, and the whole list with them.
pub(crate) const NAME_BYTES_MAX: usize = 255;
const SAID_MAX: usize = 1000;
/// Numbers that programs expect, and say in words of their own.
const PLAIN: [i32; 5] = [
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
];
