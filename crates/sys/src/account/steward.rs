//! Steward: the process that keeps root. It forks openers and processes on an [errand], and does
//! nothing else.
//!
//! [errand]: super::errand
//!
//! The other way round, the started process keeping root and its child serving,
//! was rejected: signals and the exit status would have to be passed on.

#![allow(unsafe_code)] // each block says who guarantees what

use super::{
    Account,
    errand::{self, Errand, ErrandResult},
    message::OpenerReply,
    opener, passing,
    rights::{self, UserAccount},
};
use crate::beneath::Beneath;
use rustix::{
    process::{DumpableBehavior, Pid, WaitOptions, getpid, set_dumpable_behavior, setsid, wait},
    thread::{CapabilitySet, set_name},
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Accounts that openers may become, and their scope. Fixed once the steward runs.
#[derive(Clone, Debug)]
pub struct StewardRules {
    /// Directory beneath which openers look names up.
    pub export: PathBuf,
    /// No account, nor its group, below this number. Root never.
    pub uid_min: u32,
    /// An opener that holds no directory ends after this time without a request.
    pub idle: Duration,
    /// Files that the node reads again when they change, and that only root may read.
    pub secrets: Vec<PathBuf>,
    /// Openers follow no links: the caller has resolved them already.
    pub plain: bool,
    /// Work done as an account at the node's request; `None`: none.
    pub errand: Option<Errand>,
}

/// The way to the process that keeps root. Clones share it; it ends with the last.
#[derive(Clone, Debug)]
pub struct Steward(Arc<StewardInner>);

#[derive(Debug)]
struct StewardInner {
    line: Mutex<OwnedFd>,
    export: PathBuf,
    secrets: Vec<PathBuf>,
    plain: bool,
}

impl Steward {
    /// Forks it. Only root can, and only before there are threads.
    pub fn start(rules: StewardRules) -> io::Result<Self> {
        rights::alone()?;
        let rules = StewardRules {
            export: rules.export.canonicalize()?,
            ..rules
        };
        let (line, theirs) = passing::pair()?;
        passing::patience(&line, PATIENCE)?;
        let (export, secrets) = (rules.export.clone(), rules.secrets.clone());
        let plain = rules.plain;
        fork(|| run(&theirs, &rules))?;
        Ok(Self(Arc::new(StewardInner {
            line: Mutex::new(line),
            export,
            secrets,
            plain,
        })))
    }

    /// Returns the directory beneath which names are looked up.
    pub fn export(&self) -> &Path {
        &self.0.export
    }

    pub(super) fn is_plain(&self) -> bool {
        self.0.plain
    }

    /// Returns an account for looking names up. [`Account::ready`] tells whether the account
    /// exists.
    pub fn account(&self, name: &str) -> Account {
        Account::new(self.clone(), name)
    }

    /// Opens, as root, one of the files that the rules name; no other.
    pub fn secret(&self, path: &Path) -> io::Result<File> {
        let nth = self.0.secrets.iter().position(|secret| secret == path);
        let nth = nth.ok_or(io::ErrorKind::PermissionDenied)?;
        Ok(File::from(self.ask(&format!("{SECRET}{nth}"))?))
    }

    /// Has the errand done by a process that becomes that account, with a word for it. Returns the
    /// result. Other requests are served meanwhile.
    pub fn send(&self, name: &str, word: &str) -> io::Result<ErrandResult> {
        if !rights::is_name(name) {
            return Err(no_account());
        }
        if word.len() > WORD_MAX {
            let why = format!("{} bytes are too many for an errand", word.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let line = self.ask(&format!("{ERRAND}{name}{ERRAND}{word}"))?;
        errand::await_back(&line)
    }

    /// Has an opener forked and returns the line to it.
    pub(super) fn opener(&self, name: &str) -> io::Result<OwnedFd> {
        if name.is_empty() || name.len() > NAME_MAX || name.starts_with([SECRET, ERRAND]) {
            return Err(no_account());
        }
        self.ask(name)
    }

    fn ask(&self, name: &str) -> io::Result<OwnedFd> {
        let ended = |_| {
            let why = "the process that kept root for this node has ended; restart the node";
            io::Error::new(io::ErrorKind::BrokenPipe, why)
        };
        let line = self.0.line.lock().unwrap_or_else(PoisonError::into_inner);
        passing::send(&line, name.as_bytes(), None).map_err(ended)?;
        let mut said = [0; SAID_MAX];
        match passing::receive(&line, &mut said).map_err(ended)? {
            (_, Some(opener)) => Ok(opener),
            (len, None) => Err(io::Error::other(
                String::from_utf8_lossy(&said[..len]).into_owned(),
            )),
        }
    }
}

fn run(line: &OwnedFd, rules: &StewardRules) {
    // In a session of its own no terminal stops it before the node has ended.
    let begun = close_others(line)
        .and_then(|()| Ok(setsid().map(drop)?))
        .and_then(|()| Ok(set_name(c"godwit-steward")?))
        .and_then(|()| Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?))
        .and_then(|()| rights::keep_only(NEEDED));
    if begun.is_err() {
        return;
    }
    let mut forked = Forked::default();
    let mut buffer = vec![0; ASKED_MAX];
    // A sender that closes, or sends an unknown message, ends the loop.
    while let Ok((len, None)) = passing::receive(line, &mut buffer) {
        forked.reap();
        let asked = std::str::from_utf8(&buffer[..len]).ok();
        let made = match asked.and_then(StewardRequest::read) {
            Some(StewardRequest::Secret(nth)) => open(nth, rules),
            Some(StewardRequest::Opener(name)) => forked.opener(name, rules),
            Some(StewardRequest::Errand { name, word }) => forked.errand(name, word, rules),
            None => Err(no_account()),
        };
        let said = match &made {
            Ok(opener) => passing::send(line, b"+", Some(opener.as_fd())),
            Err(error) => {
                let why = error.to_string();
                passing::send(line, &why.as_bytes()[..why.len().min(SAID_MAX)], None)
            }
        };
        if said.is_err() {
            return;
        }
    }
}

/// Request of the node.
enum StewardRequest<'a> {
    /// The file of that number in the rules.
    Secret(&'a str),
    Opener(&'a str),
    Errand {
        name: &'a str,
        word: &'a str,
    },
}

impl<'a> StewardRequest<'a> {
    fn read(asked: &'a str) -> Option<Self> {
        if let Some(nth) = asked.strip_prefix(SECRET) {
            return Some(Self::Secret(nth));
        }
        match asked.strip_prefix(ERRAND) {
            Some(rest) => {
                let (name, word) = rest.split_once(ERRAND)?;
                Some(Self::Errand { name, word })
            }
            None => Some(Self::Opener(asked)),
        }
    }
}

/// Processes that were forked and have not ended. Errands, which an account can delay, are counted
/// apart from openers: one account must not keep others from theirs.
#[derive(Default)]
struct Forked {
    openers: usize,
    errands: Vec<Pid>,
}

impl Forked {
    fn reap(&mut self) {
        while let Ok(Some((ended, _))) = wait(WaitOptions::NOHANG) {
            match self.errands.iter().position(|&errand| errand == ended) {
                Some(nth) => drop(self.errands.swap_remove(nth)),
                None => self.openers = self.openers.saturating_sub(1),
            }
        }
    }

    fn opener(&mut self, name: &str, rules: &StewardRules) -> io::Result<OwnedFd> {
        if self.openers >= OPENERS_MAX {
            return Err(io::Error::other("too many accounts at once"));
        }
        let (theirs, ours) = passing::pair()?;
        fork(|| work(&ours, name, rules))?;
        self.openers += 1;
        Ok(theirs)
    }

    fn errand(&mut self, name: &str, word: &str, rules: &StewardRules) -> io::Result<OwnedFd> {
        let errand = rules.errand.as_ref();
        let errand = errand.ok_or_else(|| io::Error::other("nothing is done for accounts"))?;
        if self.errands.len() >= ERRANDS_MAX {
            let why = format!("{ERRANDS_MAX} processes of accounts are busy already");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let (theirs, ours) = passing::pair()?;
        let process = fork(|| {
            let begin = || {
                set_name(c"godwit-errand")?;
                close_others(&ours)?;
                become_account(name, rules)
            };
            errand::go(&ours, begin, errand, word);
        })?;
        self.errands.push(process);
        Ok(theirs)
    }
}

/// Opens the file of that number in the rules.
fn open(nth: &str, rules: &StewardRules) -> io::Result<OwnedFd> {
    let secret = nth
        .parse()
        .ok()
        .and_then(|nth: usize| rules.secrets.get(nth));
    Ok(File::open(secret.ok_or(io::ErrorKind::NotFound)?)?.into())
}

fn no_account() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "this is no name of an account",
    )
}

/// The life of an opener.
fn work(line: &OwnedFd, name: &str, rules: &StewardRules) {
    let begun = set_name(c"godwit-opener")
        .map_err(io::Error::from)
        .and_then(|()| close_others(line))
        .and_then(|()| become_account(name, rules))
        .and_then(|_| passing::patience(line, rules.idle));
    let root = begun.and_then(|()| {
        // As the account: it must be able to get there.
        let opened = match rules.plain {
            true => Beneath::open_plain(&rules.export),
            false => Beneath::open(&rules.export),
        };
        opened.map_err(|e| {
            let export = rules.export.display();
            io::Error::other(format!("{name} cannot open {export}: {e}"))
        })
    });
    let word = match &root {
        Ok(_) => OpenerReply::Hello {
            process: getpid().as_raw_nonzero().get().unsigned_abs(),
        },
        Err(error) => OpenerReply::Refused(error.to_string()),
    };
    if let (Ok(()), Ok(root)) = (passing::send(line, &word.encode(), None), root) {
        opener::serve(line, root);
    }
}

/// Looks the account up only here: lookups (in LDAP, say) never run in the steward.
fn become_account(name: &str, rules: &StewardRules) -> io::Result<UserAccount> {
    let user = UserAccount::find(name)?;
    let least = rules.uid_min.max(1);
    if user.uid < least || user.gid < least || user.uid == u32::MAX {
        return Err(io::Error::other(format!(
            "{name} is an account of the system (user {}, group {}); only those from {least} on are served",
            user.uid, user.gid
        )));
    }
    // A group of the system is no reason to refuse, but its rights stay here.
    rights::become_user(&user)?;
    Ok(user)
}

/// Runs `child` in a new process and returns its number. In the new process this never returns.
fn fork(child: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: there is only one thread (`Steward::start` checks, and a steward never makes one). So
    // no lock is held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // What belongs to the parent must not be unwound here, nor run at exit.
            let ended = catch_unwind(AssertUnwindSafe(child));
            // SAFETY: it ends the process, and touches nothing.
            unsafe { libc::_exit(ended.is_err().into()) }
        }
        process => Ok(Pid::from_raw(process).expect("it is neither -1 nor 0")),
    }
}

/// Closes all that this process inherited but one, and puts nothing in the place
/// of the standard streams.
fn close_others(kept: &OwnedFd) -> io::Result<()> {
    let null = rustix::fs::open(
        c"/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let kept = kept.as_raw_fd();
    let above = [(3, kept - 1), (kept + 1, i32::MAX)];
    for (first, last) in above.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: the owners of those descriptors belong to the life of the parent. This process
        // runs `child` of `fork` and then ends, and `child` uses none of them. `null` is among
        // them, and is forgotten below.
        let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    std::mem::forget(null);
    Ok(())
}

/// Capabilities needed to become another account.
const NEEDED: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP);

/// Forking takes a millisecond; looking an account up may ask the network.
const PATIENCE: Duration = Duration::from_secs(60);
const OPENERS_MAX: usize = 4096;
const ERRANDS_MAX: usize = 256;
const NAME_MAX: usize = 255;
/// The longest word for an errand.
const WORD_MAX: usize = 4096;
/// First character of a request for a file by its number; no account name has it.
const SECRET: char = '/';
/// First and last character around the account name of an errand.
const ERRAND: char = ':';
const ASKED_MAX: usize = NAME_MAX + WORD_MAX + 2;
const SAID_MAX: usize = 1024;
