//! Programs that peers run beside files of the export.
//!
//! They run as the account of this node, so only a peer that acts as that account and may write has one run, and only
//! where the node has slots. A program ends when its client is gone.

use super::{
    Known,
    calls::Asked,
    outputs::{self, Hashed, PRINTED, WRITTEN, must_be},
    reply::{BEAT, Lines},
    staging::Carrier,
};
use crate::{Stop, listener::Shared, workplace::Workplace};
use godwit_core::Kind;
use godwit_sys::{Bounds, Made, Program, wait_readable, why};
use godwit_wire::door::{
    call::{Bytes, Line, Refusal},
    run::{AskRun, IN, OUT, Word},
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::Write,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// Runs a program when a slot is free.
pub(super) fn run(asked: Asked<'_>) {
    let ready = asked
        .read::<AskRun>()
        .and_then(|ask| Ok((beside(&asked, &ask)?, ask)));
    let (file, ask) = match ready {
        Ok(ready) => ready,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    let shared = Arc::clone(&asked.door.shared);
    let known = asked.known;
    let mut lines = asked.reply.lines();
    let outcome = (|| {
        let _turn = turn(&shared, &mut lines)?;
        let words: Vec<_> = (ask.program.iter().map(|word| word.0.to_string_lossy())).collect();
        let done = task(&ask, file.as_deref(), (&shared, known), &mut lines);
        known
            .dir
            .audited(&format!("run {}", words.join(" ")), &ask.path.0, done)
    })();
    lines.end(outcome);
}

/// Returns the path of the file, if there is one; a client that may not have a program run here is refused.
fn beside(asked: &Asked<'_>, ask: &AskRun) -> Result<Option<PathBuf>, Refusal> {
    let (known, shared) = (asked.known, &asked.door.shared);
    if ask.program.first().is_none_or(|name| name.0.is_empty()) {
        return Err(Refusal::of_kind(Kind::Protocol, "no program is named"));
    }
    let denied = |said: &str, next: &str| Refusal::of_kind(Kind::Denied, said).next(next);
    if shared.config.slots == 0 {
        let next = "start it with farm.slots = N in its configuration (GODWIT_FARM_SLOTS=N)";
        return Err(denied("this node runs no programs for others", next));
    }
    known.must_write()?;
    if !asked.acts_as_node()? {
        let said = "programs run as the account of this node, and you act as another one";
        return Err(denied(said, "join that account's node: godwit join INVITE"));
    }
    if ask.path.0.as_os_str().is_empty() {
        known.dir.may_run_here()?;
        return Ok(None);
    }
    let path = known.dir.may_run(&ask.path.0)?;
    let export = std::path::absolute(&shared.config.export).map_err(|cause| other(&cause))?;
    Ok(Some(export.join(below_root(&path))))
}

/// Returns a path of the export without the slash that it may begin with.
pub(super) fn below_root(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Waits until a slot is free.
fn turn(shared: &Shared, lines: &mut Lines) -> Result<Turn, Refusal> {
    let mut told = Instant::now();
    loop {
        if let Some(turn) = Turn::take(&shared.running, shared.config.slots) {
            return Ok(turn);
        }
        let waited = wait_readable([shared.stop.draining()], FREED_WITHIN);
        let [is_draining] = waited.map_err(|cause| other(&cause))?;
        if is_draining {
            return Err(stops());
        }
        if told.elapsed() >= BEAT {
            told = Instant::now();
            lines.tell(&Line::Beat(0))?;
        }
    }
}

/// Runs the program in a directory of its own, with all that comes there and goes from there.
fn task(
    ask: &AskRun,
    file: Option<&Path>,
    (shared, known): (&Shared, &Known),
    lines: &mut Lines,
) -> Result<(), Refusal> {
    let place = Workplace::new(&shared.config.export).map_err(|cause| {
        let said = format!("no directory can be made for it: {}", why(&cause));
        Refusal::of_kind(Kind::Other, said)
    })?;
    let mut carrier = Carrier::new(known, ask, &place);
    let done = ran((ask, file, &place), &mut carrier, (shared, known), lines);
    carrier.end();
    done
}

/// Runs the program, and tells how it ended.
fn ran(
    (ask, file, place): (&AskRun, Option<&Path>, &Workplace),
    carrier: &mut Carrier<'_>,
    (shared, known): (&Shared, &Known),
    lines: &mut Lines,
) -> Result<(), Refusal> {
    let reads = carrier.bring(lines)?;
    let mut program = program(ask, file, place)?;
    if let Some(path) = carrier.executable(lines)? {
        program.command[0] = path;
    }
    let printed = ask.printed.as_ref();
    let printed = printed.map(|_| File::create_new(place.path().join(PRINTED)));
    let printed = printed.transpose().map_err(|cause| other(&cause))?;
    let input = ask.digest.as_ref().zip(file);
    let input = input.map(|(expected, file)| (expected, Hashed::begin(file.into())));
    let mut tell = |line| match carrier.append(line, lines)? {
        Some(line) => Ok(lines.tell(&line)?),
        None => Ok(()),
    };
    let status = follow(&program, (reads, printed), &shared.stop, &mut tell)?;
    if let Some((expected, hashed)) = input {
        must_be(&ask.path, &expected.0, &hashed.end(lines)?.1)?;
    }
    let written = [(WRITTEN, &ask.out), (PRINTED, &ask.printed)];
    for (file, to) in written {
        if let (0, Some(to)) = (status, to) {
            let placed = outputs::place(known, (place, file), to, lines)?;
            lines.tell(&Line::Placed(placed))?;
        }
    }
    carrier.deliver(status, lines)?;
    Ok(lines.tell(&Line::Ended(status))?)
}

fn program(ask: &AskRun, file: Option<&Path>, place: &Workplace) -> Result<Program, Refusal> {
    let out = place.path().join(WRITTEN);
    let word = |word: &Word| {
        let paths = [(IN, file), (OUT, ask.out.as_ref().map(|_| &*out))];
        let mut word = word.0.clone();
        for (what, path) in paths {
            if let Some(path) = path {
                word = filled(&word, what, path);
            }
        }
        word
    };
    Ok(Program {
        command: ask.program.iter().map(word).collect(),
        directory: place.path().into(),
        variables: environment(ask)?,
        bounds: Bounds {
            cpu_seconds: u64::MAX,
            memory_bytes: u64::MAX,
            open_files: OPEN_FILES_MAX,
        },
        hears_words: true,
        confined: None,
    })
}

/// Returns all variables of the program: those that it has of this node, those asked for, and what it works on.
fn environment(ask: &AskRun) -> Result<Vec<(OsString, OsString)>, Refusal> {
    let ours = |name: &&str| Some(((*name).into(), std::env::var_os(name)?));
    let mut variables = vec![("PATH".into(), USUAL_PATH.into())];
    variables.extend(KEPT.iter().filter_map(ours));
    for Word(word) in &ask.variables {
        let bytes = word.as_bytes();
        let at = bytes.iter().position(|&byte| byte == b'=').unwrap_or(0);
        if at == 0 {
            let said = format!("{} is not NAME=VALUE", word.to_string_lossy());
            return Err(Refusal::of_kind(Kind::Protocol, said));
        }
        let (name, value) = (&bytes[..at], &bytes[at + 1..]);
        variables.push((
            OsStr::from_bytes(name).into(),
            OsStr::from_bytes(value).into(),
        ));
    }
    let task = [
        ("LC_ALL", "C.UTF-8".into()),
        ("GODWIT_JOB", ask.job.clone()),
        ("GODWIT_FRAGMENT", ask.fragment.to_string()),
        ("GODWIT_FRAGMENTS", ask.fragments.to_string()),
    ];
    variables.extend(task.map(|(name, value)| (name.into(), value.into())));
    Ok(variables)
}

/// Returns an argument with a path wherever `what` stands in it.
fn filled(word: &OsStr, what: &str, path: &Path) -> OsString {
    let (mut rest, mut filled) = (word.as_bytes(), Vec::new());
    let place = what.as_bytes();
    while let Some(at) = rest.windows(place.len()).position(|some| some == place) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(path.as_os_str().as_bytes());
        rest = &rest[at + place.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

/// Runs it, tells whole lines as they come, and returns its status. Its standard output goes to `printed`, if there is one.
fn follow(
    program: &Program,
    (input, mut printed): (File, Option<File>),
    stop: &Stop,
    tell: &mut dyn FnMut(Line) -> Result<(), Refusal>,
) -> Result<i32, Refusal> {
    let mut running = program.start(input).map_err(|cause| {
        let name = program.command[0].to_string_lossy();
        let said = format!("cannot run {name} here: {}", why(&cause));
        Refusal::of_kind(Kind::Invalid, said)
    })?;
    let (mut out, mut words) = (Held::default(), Held::default());
    let mut buffer = vec![0; HELD_BYTES];
    loop {
        let made = running.read(&mut buffer, stop.ending(), Instant::now() + BEAT);
        match made.map_err(|cause| other(&cause))? {
            Made::Bytes(count) => {
                if let Some(printed) = &mut printed {
                    let written = printed.write_all(&buffer[..count]);
                    written.map_err(|cause| other(&cause))?;
                } else if let Some(whole) = out.add(&buffer[..count]) {
                    tell(Line::Out(whole))?;
                }
            }
            Made::Words(said) => {
                if let Some(whole) = words.add(&said) {
                    tell(Line::Words(whole))?;
                }
            }
            // A beat fails once the client is gone.
            Made::Late => tell(Line::Beat(0))?,
            Made::Stopped => return Err(stops()),
            Made::Ended(status) => {
                for (held, line) in [(words, Line::Words as fn(Bytes) -> Line), (out, Line::Out)] {
                    if held.0.is_empty() {
                        continue;
                    }
                    // A client that is gone does not undo how it ended.
                    match tell(line(Bytes(held.0))) {
                        Err(refusal) if refusal.kind != Kind::Lost => return Err(refusal),
                        _ => {}
                    }
                }
                return Ok(code(status));
            }
        }
    }
}

/// The bytes that a program wrote behind its last whole line.
#[derive(Default)]
struct Held(Vec<u8>);

impl Held {
    /// Returns the lines that are whole now; of a line without end what there is once it is long.
    fn add(&mut self, bytes: &[u8]) -> Option<Bytes> {
        self.0.extend_from_slice(bytes);
        let end = match self.0.iter().rposition(|&byte| byte == b'\n') {
            Some(at) => at + 1,
            None if self.0.len() >= HELD_BYTES => self.0.len(),
            None => return None,
        };
        let rest = self.0.split_off(end);
        Some(Bytes(std::mem::replace(&mut self.0, rest)))
    }
}

/// A slot that is taken.
struct Turn(Arc<AtomicUsize>);

impl Turn {
    fn take(running: &Arc<AtomicUsize>, slots: usize) -> Option<Self> {
        let more = |count: usize| (count < slots).then_some(count + 1);
        running.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Self(Arc::clone(running)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn code(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or_default(),
    }
}

pub(super) fn other(cause: &std::io::Error) -> Refusal {
    Refusal::of_kind(Kind::Other, why(cause))
}

fn stops() -> Refusal {
    Refusal::of_kind(Kind::Busy, "this node stops")
}

const HELD_BYTES: usize = 64 << 10;
const FREED_WITHIN: Duration = Duration::from_millis(20);
const OPEN_FILES_MAX: u64 = 1024;
/// The variables of this node that its programs have too.
const KEPT: [&str; 7] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TZ",
    "GODWIT_SOCKET",
    "GODWIT_CATALOG",
];
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
