//! `godwit farm run`: a program runs where the fragments of a file lie.

use crate::{
    options::Talking,
    places,
    screen::Screen,
    trouble::{CliError, Run as Ran},
    verbs::{Facts, catalog, facts},
};
use clap::Args;
use godwit_farm::{Task, run_at};
use godwit_store::{Error, engine::Options};
use godwit_wire::door::{
    call::Line,
    run::{AskRun, Word},
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    ffi::OsString,
    mem,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// Run a program beside each fragment of a file, on the node that has it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm run --plan grid:/run7/a -- wc -l {in}
  godwit farm run --plan grid:/run7/a --json -- grep -c muon {in}

{in} in an argument is the path of the fragment on its node; nothing is copied. Nodes find the
program by their PATH and run it as their own account, only for peers that may write, and only with
farm.slots = N in their configuration (farm demo sets it). A program sees GODWIT_JOB,
GODWIT_FRAGMENT and GODWIT_FRAGMENTS. Lines come whole, as they are written. A node that cannot be
reached is passed over if another one has the fragment.

Exit status: 0 all programs ended with 0; the status of those that did not, or 1 if they differ; 5 a
node does not answer; 13 a node runs no programs for you.")]
pub(super) struct Run {
    /// The file
    #[arg(value_name = "NAME")]
    name: OsString,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    program: Vec<OsString>,
    /// Say which node gets which fragment, and run nothing
    #[arg(long)]
    plan: bool,
    /// Print the lines of each fragment together, in the order of the fragments
    #[arg(long)]
    ordered: bool,
    #[command(flatten)]
    talking: Talking,
}

/// The lines of all tasks.
struct Printed<'a> {
    screen: &'a Screen,
    is_ordered: bool,
    /// By task: what is not printed yet, and whether the task has ended.
    held: Mutex<Vec<(Vec<u8>, bool)>>,
    /// The bytes of the fragments whose programs ended, each on a node that has it.
    local_bytes: AtomicU64,
}

impl Run {
    pub(super) fn run(self, screen: &Screen) -> Ran<Facts> {
        let options = places::options(&self.talking)?;
        let name = catalog::name(&self.name)?;
        let wanted = format!(
            "run {} on {}",
            self.program[0].display(),
            catalog::shown(&name.0)
        );
        let fails = |error| CliError::store(&*wanted, error);
        let tasks = catalog::logical(options.clone())?.tasks(&name.0);
        let tasks = tasks.map_err(fails)?;
        if self.plan {
            return plan(screen, &tasks).map_err(fails);
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let asked = AskRun {
            fragments: tasks.len() as u64,
            job: format!(
                "{:x}-{}",
                since.unwrap_or_default().as_nanos(),
                std::process::id()
            ),
            program: self.program.into_iter().map(Word).collect(),
            ..AskRun::default()
        };
        let printed = Printed {
            screen,
            is_ordered: self.ordered && !screen.json(),
            held: Mutex::new(vec![Default::default(); tasks.len()]),
            local_bytes: AtomicU64::default(),
        };
        let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            while let Some(task) = tasks.get(next.fetch_add(1, Relaxed)) {
                if let Err(trouble) = one(&printed, task, &asked, &options) {
                    failed.fetch_add(1, Relaxed);
                    screen.trouble(&trouble);
                }
                if let Err(error) = printed.end(task.fragment) {
                    screen.trouble(&CliError::store(&*wanted, error));
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(tasks.len()) {
                scope.spawn(work);
            }
        });
        Ok(facts([
            ("tasks", tasks.len().into()),
            ("failed", failed.into_inner().into()),
            ("local_bytes", printed.local_bytes.into_inner().into()),
            ("moved_bytes", 0.into()),
        ]))
    }
}

/// Runs one task at the first of its nodes that answers. A program that ends with another status than 0 is an error.
fn one(printed: &Printed<'_>, task: &Task, asked: &AskRun, options: &Options) -> Ran {
    let asked = AskRun {
        fragment: task.fragment,
        ..asked.clone()
    };
    let wanted = format!(
        "run {} on fragment {}",
        asked.program[0].0.display(),
        task.fragment
    );
    let mut last = CliError::found(&*wanted, "no node has it", 4);
    for (attempt, home) in task.homes.iter().enumerate() {
        let mut has_written = false;
        let ran = run_at(home, &asked, options, &mut |line| {
            has_written = true;
            printed.take(task.fragment, line)
        });
        let status = match ran {
            Ok(status) => status,
            // Lines that were printed would come twice.
            Err(error) if has_written => return Err(CliError::store(wanted, error)),
            Err(error) => {
                last = CliError::store(&*wanted, error);
                continue;
            }
        };
        let (start, end) = task.range;
        printed.local_bytes.fetch_add(end - start, Relaxed);
        if printed.screen.json() {
            let told = json!({
                "event": "task", "fragment": task.fragment, "node": home.site, "how": "local",
                "attempts": attempt + 1, "exit_status": status,
            });
            let told = printed.screen.object(&told);
            told.map_err(|error| CliError::store(&*wanted, error))?;
        }
        if status == 0 {
            return Ok(());
        }
        let code = u8::try_from(status).unwrap_or(1);
        let fact = format!("it ended with status {status} at {}", home.site);
        return Err(CliError::found(wanted, fact, code));
    }
    Err(last)
}

impl Printed<'_> {
    /// Prints lines of a task, or keeps them until its turn.
    fn take(&self, fragment: u64, line: Line) -> Result<(), Error> {
        let (stream, bytes) = match line {
            Line::Out(bytes) => ("stdout", bytes.0),
            Line::Words(bytes) => ("stderr", bytes.0),
            _ => return Ok(()),
        };
        let at = usize::try_from(fragment).unwrap_or(usize::MAX);
        let mut held = self.held.lock();
        if self.screen.json() {
            let text = String::from_utf8_lossy(&bytes);
            return text.lines().try_for_each(|text| {
                let line =
                    json!({"event": "line", "fragment": fragment, "stream": stream, "text": text});
                self.screen.object(&line)
            });
        }
        if stream == "stderr" {
            let text = String::from_utf8_lossy(&bytes);
            self.screen.aside(text.trim_end_matches('\n'));
            return Ok(());
        }
        held[at].0.extend(bytes);
        let is_turn = held[..at].iter().all(|(_, has_ended)| *has_ended);
        match self.is_ordered && !is_turn {
            true => Ok(()),
            false => self.show(&mut held[at]),
        }
    }

    /// Notes that a task has ended, and prints what waited for that.
    fn end(&self, fragment: u64) -> Result<(), Error> {
        let mut held = self.held.lock();
        let at = usize::try_from(fragment).unwrap_or(usize::MAX);
        held[at].1 = true;
        if !self.is_ordered {
            return self.show(&mut held[at]);
        }
        for task in held.iter_mut() {
            self.show(task)?;
            if !task.1 {
                break;
            }
        }
        Ok(())
    }

    /// Prints the whole lines of a task; of one that has ended all.
    fn show(&self, (bytes, has_ended): &mut (Vec<u8>, bool)) -> Result<(), Error> {
        let end = match bytes.iter().rposition(|&byte| byte == b'\n') {
            _ if *has_ended => bytes.len(),
            Some(at) => at + 1,
            None => return Ok(()),
        };
        let rest = bytes.split_off(end);
        let mut bytes = mem::replace(bytes, rest);
        // A last line without an end would run into another one.
        if bytes.last().is_some_and(|&last| last != b'\n') {
            bytes.push(b'\n');
        }
        self.screen.bytes(&bytes)?;
        self.screen.flush()
    }
}

fn plan(screen: &Screen, tasks: &[Task]) -> Result<Facts, Error> {
    for task in tasks {
        let ((start, end), fragment) = (task.range, task.fragment);
        let sites: Vec<_> = task.homes.iter().map(|home| home.site.as_str()).collect();
        let (node, others) = sites.split_first().unwrap_or((&"nowhere", &[]));
        if screen.json() {
            let told =
                json!({"event": "plan", "fragment": fragment, "node": node, "others": others});
            screen.object(&told)?;
            continue;
        }
        let why = match others {
            [] => "only this node has it".to_owned(),
            others => format!(
                "of the nodes that have it ({}) it has the fewest tasks",
                others.join(", ")
            ),
        };
        screen.line(format!(
            "fragment {fragment}  bytes {start}-{end}  {node}: {why}"
        ))?;
    }
    Ok(facts([("tasks", tasks.len().into())]))
}

/// The most tasks that are under way at the same time.
const AT_ONCE: usize = 64;
