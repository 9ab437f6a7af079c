//! `godwit run` without `--on`: a program of this machine, to which files of other machines are below `/godwit`.

use crate::{
    client, names,
    out::{CliError, Facts, Run, Screen, facts},
    units,
};
use clap::ValueEnum;
use godwit_core::{Scheme, Url};
use godwit_local::Refusal;
use godwit_mount::{Lost, Mount, MountRules};
use godwit_store::Error;
use godwit_sys::{View, ViewError, ViewStep, why};
use godwit_wire::local::request::Wait;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
};
use std::{
    env,
    ffi::OsString,
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::ExitStatusExt,
    },
    process::{Command, ExitStatus},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The end that a program's writes reach before `run` ends.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Promise {
    /// No wait.
    None,
    /// Its writes are safe on this machine.
    Commit,
    /// Its writes are delivered.
    Push,
}

impl From<Promise> for Wait {
    fn from(promise: Promise) -> Self {
        match promise {
            Promise::None => Self::Nothing,
            Promise::Commit => Self::Commit,
            Promise::Push => Self::Push,
        }
    }
}

/// The end that a program's writes reach before an fsync ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Fsync {
    /// They are safe on this machine.
    Commit,
    /// They are delivered.
    Push,
}

/// How a program is run with files of other machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) promise: Promise,
    pub(super) fsync: Fsync,
    /// Time to wait for a server to read from.
    pub(super) wait: Duration,
}

/// Runs a program with a mount of its own, and waits until nothing uses that.
pub(super) fn run(words: &[OsString], asked: Asked, screen: &'static Screen) -> Run<Facts> {
    let wanted = format!("run {}", words[0].display());
    let failed = |cause| CliError::store(&*wanted, Error::io(&words[0], cause));
    let session = session();
    let rules = MountRules {
        fsync_pushes: asked.fsync == Fsync::Push,
        ..rules(asked.wait, session.clone(), screen)
    };
    let mount = Mount::new(rules).map_err(failed)?;
    mount.begin()?;
    let mut command = command(words, &session);
    // A signal before the program starts must not end this command alone.
    let signals = signals().map_err(failed)?;
    let view = View::new("godwit").map_err(failed)?;
    let server = mount.clone();
    let viewed = view.start(&mut command, move |device| server.serve(device));
    let mut viewed = viewed.map_err(|error| refused(&wanted, error))?;
    let child = viewed.child.id();
    thread::spawn(move || pass_on(signals, child));
    let (watched, kill) = (mount.clone(), viewed.killer());
    thread::spawn(move || {
        while !watched.is_broken() {
            thread::sleep(LOOK_EVERY); // nothing tells it
        }
        kill();
    });
    let status = viewed.child.wait().map_err(failed)?;
    if let Ok(Ok(Err(error))) = viewed.served.join() {
        screen.aside(&format!("the mount of /godwit ended: {}", why(&error)));
    }
    let code = code_of(status);
    if let Some(fact) = lost_words(&mount.lost()) {
        return Err(CliError::found(wanted, fact, LOST).next(NEXT_LOST));
    }
    ended(&mount, asked.promise, code, screen)
}

/// Names the files that were not kept as they were written; `None`: all were.
pub(super) fn lost_words(lost: &[Lost]) -> Option<String> {
    let words = |is_partial: bool, what: [&str; 2]| {
        let mut names: Vec<&str> = (lost.iter())
            .filter(|lost| lost.is_partial == is_partial)
            .map(|lost| &*lost.url)
            .collect();
        let [one, many] = what;
        let what = if names.len() == 1 { one } else { many };
        let more = names.len().saturating_sub(NAMED_MAX);
        names.truncate(NAMED_MAX);
        let named = names.join(", ");
        match (names.len(), more) {
            (0, _) => None,
            (_, 0) => Some(format!("{named} {what}")),
            (_, more) => Some(format!("{named} and {more} more {what}")),
        }
    };
    let gone = words(false, ["was not kept", "were not kept"]);
    let partial = words(
        true,
        [
            "is kept as far as it was written",
            "are kept as far as they were written",
        ],
    );
    let all: Vec<String> = gone.into_iter().chain(partial).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Returns the command of a program that finds files of other machines.
pub(super) fn command(words: &[OsString], session: &str) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(words[1..].iter().map(as_path));
    command.env("GODWIT_SESSION", session);
    if let Some(catalog) = names::text() {
        command.env("GODWIT_CATALOG", catalog);
    }
    command
}

/// Waits until the writes of a program are as safe as promised, and ends with its status.
pub(super) fn ended(
    mount: &Mount,
    promise: Promise,
    code: u8,
    screen: &'static Screen,
) -> Run<Facts> {
    screen.ended_with(code);
    let kept = mount.keep(promise.into())?;
    kept.notes.iter().for_each(|note| screen.note(note));
    Ok(facts([
        ("status", code.into()),
        ("files", kept.files.into()),
    ]))
}

/// Returns the signals that are passed on to the program.
pub(super) fn signals() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2])
}

/// Returns the path below `/godwit` of an argument that is a URL. Programs have URLs of the web of their own.
fn as_path(word: &OsString) -> OsString {
    let text = word.as_bytes();
    let is_url = text.starts_with(b"grid:/") || text.windows(3).any(|part| part == b"://");
    let url = Url::from_argument(word).ok().filter(|_| is_url);
    let path = url.filter(|url| !matches!(url.scheme(), Scheme::Https | Scheme::File));
    let path = path.and_then(|url| url.path_form());
    path.map_or_else(|| word.clone(), OsString::from_vec)
}

pub(super) fn rules(wait: Duration, session: String, screen: &'static Screen) -> MountRules {
    MountRules {
        wait,
        hello: |_| client::hello(),
        session,
        fsync_pushes: false,
        report: Box::new(move |refusal: &Refusal| {
            screen.aside(&CliError::from(refusal.clone()).to_string());
        }),
    }
}

/// Returns the session of this command, or a new one.
pub(super) fn session() -> String {
    let told = env::var("GODWIT_SESSION").ok();
    told.filter(|told| !told.is_empty()).unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default().as_nanos();
        format!("run-{}-{since:x}", std::process::id())
    })
}

/// Passes signals to the program. Those of a terminal it gets itself.
pub(super) fn pass_on(mut signals: Signals, child: u32) {
    for signal in signals.forever() {
        if !matches!(signal, SIGINT | SIGQUIT) {
            let _ = godwit_sys::send_signal(child, signal);
        }
    }
}

/// Returns the status of a program as a shell has it.
pub(super) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Says why a program has no view of its own, and what to do.
fn refused(wanted: &str, refused: ViewError) -> CliError {
    let error = &refused.error;
    let (fact, code, next) = match refused.step {
        ViewStep::Program => return not_started(wanted, error),
        ViewStep::Device => (format!("/dev/fuse: {}", why(error)), 1, NEXT_DEVICE),
        ViewStep::Namespaces | ViewStep::Root | ViewStep::Mount => {
            let fact = format!("this system refuses a mount of its own: {}", why(error));
            (fact, 1, NEXT_NAMESPACES)
        }
        ViewStep::Directory => {
            let fact = format!("the working directory is gone: {}", why(error));
            (fact, 1, "cd to a directory that is there")
        }
    };
    CliError::found(wanted, fact, code).next(next)
}

/// Says why a program was not started.
pub(super) fn not_started(wanted: &str, error: &io::Error) -> CliError {
    let code = match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    CliError::found(wanted, why(error).to_string(), code).next(NEXT_PROGRAM)
}

/// Reads a time to wait.
pub(super) fn parse_wait(text: &str) -> Result<Duration, String> {
    match text {
        "forever" => Ok(Duration::MAX),
        _ => units::parse_duration(text),
    }
}

/// How long reading waits by default for a server that is away.
pub(super) const WAIT: Duration = Duration::from_secs(30);
/// The exit status if writes of a program were lost.
pub(super) const LOST: u8 = 75;
/// How many lost files a message names.
const NAMED_MAX: usize = 20;
/// How often the node is looked for while a program writes.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const NEXT_LOST: &str = "run it again: the targets of files that were not kept are as they were";
const NEXT_PROGRAM: &str = "name a program of this machine; --on NODE runs it at a node";
const NEXT_DEVICE: &str = "modprobe fuse; chmod 666 /dev/fuse; or --via preload, which needs neither for dynamic programs";
const NEXT_NAMESPACES: &str = "allow user namespaces (sysctl user.max_user_namespaces, AppArmor), or --via preload for dynamic programs";
