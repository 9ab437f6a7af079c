//! Programs that peers run beside files of the export.
//!
//! They run as the account of this node, so only a peer that acts as that account and may write has one run, and only
//! where the node has slots. A program ends when its client is gone.

use super::{
    KnownCaller,
    calls::ClientCall,
    pack::Carrier,
    reply::{BEAT, ReplyLines},
};
use crate::{
    shared::NodeState,
    task::{self, Around, other, stops, workplace::Workplace},
};
use godwit_core::Kind;
use godwit_sys::{wait_readable, why};
use godwit_wire::door::{
    call::{Line, Refusal},
    run::AskRun,
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// Runs a program when a slot is free.
pub(super) fn run(asked: ClientCall<'_>) {
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
fn beside(asked: &ClientCall<'_>, ask: &AskRun) -> Result<Option<PathBuf>, Refusal> {
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
fn turn(shared: &NodeState, lines: &mut ReplyLines) -> Result<RunSlot, Refusal> {
    let mut told = Instant::now();
    loop {
        if let Some(turn) = RunSlot::take(&shared.running, shared.config.slots) {
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
    (shared, known): (&NodeState, &KnownCaller),
    lines: &mut ReplyLines,
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
    (shared, known): (&NodeState, &KnownCaller),
    lines: &mut ReplyLines,
) -> Result<(), Refusal> {
    let reads = carrier.bring(lines)?;
    let mut program = task::program(ask, file, place)?;
    if let Some(path) = carrier.executable(lines)? {
        program.command[0] = path;
    }
    let around = Around {
        workplace: place,
        place: &|from, to| known.dir.place(from, to),
        stop: shared.stop.ending(),
    };
    let mut tell = |line| match carrier.append(line, lines)? {
        Some(line) => Ok(lines.tell(&line)?),
        None => Ok(()),
    };
    let status = task::run((ask, file), (&program, reads), &around, &mut tell)?;
    carrier.deliver(status, lines)?;
    Ok(lines.tell(&Line::Ended(status))?)
}

/// A slot that is taken.
struct RunSlot(Arc<AtomicUsize>);

impl RunSlot {
    fn take(running: &Arc<AtomicUsize>, slots: usize) -> Option<Self> {
        let more = |count: usize| (count < slots).then_some(count + 1);
        running.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Self(Arc::clone(running)))
    }
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

const FREED_WITHIN: Duration = Duration::from_millis(20);
