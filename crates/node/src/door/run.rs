//! Programs that peers run beside files of the export.
//!
//! They run as the account of this node, so only a peer that acts as that account and may write has one run, and only
//! where the node has slots. A program ends when its client is gone.

use super::{
    calls::Asked,
    reply::{BEAT, Lines},
};
use godwit_core::Kind;
use godwit_sys::{Bounds, Made, Program, wait_readable, why};
use godwit_wire::door::{
    call::{Bytes, Line, Refusal},
    run::{AskRun, IN},
};
use std::{
    fs::File,
    os::unix::process::ExitStatusExt,
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
        .and_then(|ask| Ok((program(&asked, &ask)?, ask)));
    let (program, ask) = match ready {
        Ok(ready) => ready,
        Err(refusal) => return asked.reply.refuse(refusal),
    };
    let shared = Arc::clone(&asked.door.shared);
    let slots = shared.config.slots;
    let known = asked.known;
    let mut lines = asked.reply.lines();
    let outcome = (|| {
        let mut told = Instant::now();
        let turn = loop {
            if let Some(turn) = Turn::take(&shared.running, slots) {
                break turn;
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
        };
        let did = format!("run {}", ask.program.join(" "));
        let done = follow(&program, &shared.stop, &mut lines);
        drop(turn);
        known.dir.audited(&did, &ask.path.0, done)
    })();
    lines.end(outcome);
}

/// Returns the program that is to be run, if the client may have it run.
fn program(asked: &Asked<'_>, ask: &AskRun) -> Result<Program, Refusal> {
    let (known, shared) = (asked.known, &asked.door.shared);
    let is_named = ask.program.first().is_some_and(|name| !name.is_empty());
    if !is_named || ask.program.iter().any(|word| word.contains('\0')) {
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
    let path = known.dir.may_run(&ask.path.0)?;
    let path = path.strip_prefix("/").unwrap_or(&path);
    let export = std::path::absolute(&shared.config.export).map_err(|cause| other(&cause))?;
    let path = export.join(path).into_os_string();
    let Ok(path) = path.into_string() else {
        let said = "the path of that file is not text, which arguments of programs are here";
        return Err(Refusal::of_kind(Kind::Unsupported, said));
    };
    let command = ask.program.iter().map(|word| word.replace(IN, &path));
    let command: Vec<String> = command.collect();
    let number = |number: u64| number.to_string();
    Ok(Program {
        command,
        variables: vec![
            (
                "PATH",
                std::env::var("PATH").unwrap_or_else(|_| USUAL_PATH.into()),
            ),
            ("LC_ALL", "C.UTF-8".into()),
            ("GODWIT_JOB", ask.job.clone()),
            ("GODWIT_FRAGMENT", number(ask.fragment)),
            ("GODWIT_FRAGMENTS", number(ask.fragments)),
        ],
        bounds: Bounds {
            cpu_seconds: u64::MAX,
            memory_bytes: u64::MAX,
        },
        hears_words: true,
        confined: None,
    })
}

/// Runs it, and tells whole lines as they come.
fn follow(program: &Program, stop: &crate::Stop, lines: &mut Lines) -> Result<(), Refusal> {
    let nothing = File::open("/dev/null").map_err(|cause| other(&cause))?;
    let mut running = program.start(nothing).map_err(|cause| {
        let name = &program.command[0];
        let said = format!("cannot run {name} here: {}", why(&cause));
        Refusal::of_kind(Kind::Invalid, said)
    })?;
    let (mut out, mut words) = (Held::default(), Held::default());
    let mut buffer = vec![0; HELD_BYTES];
    loop {
        let made = running.read(&mut buffer, stop.ending(), Instant::now() + BEAT);
        match made.map_err(|cause| other(&cause))? {
            Made::Bytes(count) => {
                if let Some(whole) = out.add(&buffer[..count]) {
                    lines.tell(&Line::Out(whole))?;
                }
            }
            Made::Words(said) => {
                if let Some(whole) = words.add(&said) {
                    lines.tell(&Line::Words(whole))?;
                }
            }
            // A beat fails once the client is gone.
            Made::Late => lines.tell(&Line::Beat(0))?,
            Made::Stopped => return Err(stops()),
            Made::Ended(status) => {
                for (held, line) in [(words, Line::Words as fn(Bytes) -> Line), (out, Line::Out)] {
                    if !held.0.is_empty() {
                        lines.tell(&line(Bytes(held.0)))?;
                    }
                }
                return Ok(lines.tell(&Line::Ended(code(status)))?);
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

fn other(cause: &std::io::Error) -> Refusal {
    Refusal::of_kind(Kind::Other, why(cause))
}

fn stops() -> Refusal {
    Refusal::of_kind(Kind::Busy, "this node stops")
}

const HELD_BYTES: usize = 64 << 10;
const FREED_WITHIN: Duration = Duration::from_millis(20);
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
