//! `godwit farm run`: a program runs where the fragments of a file lie.

use crate::{
    args::Talking,
    out::{CliError, Facts, Run as Ran, Screen, facts},
    places,
    signals::SignalStop,
    verbs::{catalog, run::executable},
};
use clap::Args;
use godwit_catalog::Input;
use godwit_farm::{Engine, FarmEvent, FarmJob, Kept, Logical, Task};
use godwit_store::Error;
use godwit_wire::door::{
    call::Line,
    run::{IN, OUT, Word},
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::File,
    io::Write,
    mem,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

/// Run a program beside each fragment of a file, on the node that has it
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm run --plan grid:/run7/a -- wc -l {in}
  godwit farm run --plan grid:/run7/a --json -- grep -c muon {in}

{in} in an argument is the path of the fragment on its node. A program with a slash in its name is a
file of this machine or a URL: grid:/.programs keeps it by its digest, and each node gets it once. A
collection has a member for each platform: x86_64-linux. Any other name the nodes find by their
PATH. --with puts a file of the catalog, or one that is kept as programs are, where each program
starts. Nodes run programs as their own account, for peers that may write, with farm.slots = N in
their configuration (farm demo sets it): so many at a time. A program sees GODWIT_JOB,
GODWIT_FRAGMENT and GODWIT_FRAGMENTS. Lines come whole, as they are written. If a node that has a
fragment does not answer, runs no programs or has many waiting, another one runs it that has the
fragment, or gets a copy. With --out or --stdout a slow task gets a second attempt elsewhere; the
first result counts.

With --out each program writes the file {out}, with --stdout what it prints is kept. The files stay
where they were written, and are the fragments of a new file. It becomes visible when all programs
have ended with 0; if one fails, nothing is kept and the name stays free. The digest of each input
is compared meanwhile. godwit history NAME tells how a file was made. -n N runs N programs beside no
file, of which the outputs are files of N fragments.

--by slurm has Slurm start each program on its node, within the allocation if there is one. A node
that is down or drained is passed over. --by 'ssh {host} godwit farm task' starts them by a command.
{host} is the attribute host of the location (godwit location set n1 grid:/ host=NAME), or the name
of the site.

Exit status: 0 all programs ended with 0; the status of those that did not, or 1 if they differ; 5 a
node does not answer; 13 a node runs no programs for you.")]
pub(super) struct RunArgs {
    /// The file
    #[arg(
        value_name = "NAME",
        required_unless_present = "tasks",
        conflicts_with = "tasks"
    )]
    name: Option<OsString>,
    /// Run so many programs, beside no file, on the nodes with the most free slots
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    tasks: Option<u64>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    program: Vec<OsString>,
    /// Make a file of what the programs write as {out}
    #[arg(long, value_name = "NAME")]
    out: Option<OsString>,
    /// Make a file of what the programs print
    #[arg(long, value_name = "NAME")]
    stdout: Option<OsString>,
    /// Another file in the directory of each program, under its own name
    #[arg(long, value_name = "URL|PATH")]
    with: Vec<OsString>,
    /// Start the programs by: own, slurm, or a command with {host}
    #[arg(long, value_name = "ENGINE", default_value = "own")]
    by: Engine,
    /// Say which node gets which fragment, and run nothing
    #[arg(long, conflicts_with_all = ["out", "stdout", "tasks"])]
    plan: bool,
    /// Print the lines of each fragment together, in the order of the fragments
    #[arg(long)]
    ordered: bool,
    #[command(flatten)]
    talking: Talking,
}

/// The lines of all tasks.
pub(crate) struct Printed<'a> {
    screen: &'a Screen,
    is_ordered: bool,
    /// Where standard output and standard error go instead of the screen.
    pub(crate) files: (Option<File>, Option<File>),
    /// By task: what is not printed yet, and whether the task has ended.
    held: Mutex<Vec<(Vec<u8>, bool)>>,
    /// The bytes of the fragments whose programs ended, each on a node that has it.
    local_bytes: AtomicU64,
    /// Those of the fragments that were copied to a node first.
    moved_bytes: AtomicU64,
}

impl RunArgs {
    pub(super) fn run(self, screen: &Screen) -> Ran<Facts> {
        let options = places::options(&self.talking)?;
        let name = self
            .name
            .as_ref()
            .map(|name| catalog::name(name))
            .transpose()?;
        let program = self.program[0].to_string_lossy();
        let wanted = match &name {
            Some(name) => format!("run {program} on {}", catalog::shown(&name.0)),
            None => format!("run {program}"),
        };
        let fails = |error| CliError::store(&*wanted, error);
        let stop = SignalStop::watch(options.cancel.clone());
        let names = catalog::logical(options)?;
        let tasks = match (&name, self.tasks) {
            (Some(name), _) => {
                let tasks = names.tasks(&name.0).map_err(fails)?;
                if self.plan {
                    return plan(screen, &tasks).map_err(fails);
                }
                tasks.len()
            }
            (None, count) => usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX),
        };
        if name.is_none() && self.program.iter().any(|word| contains(word, IN)) {
            return Err(CliError::found(
                &*wanted,
                "an argument has {in}, and no file is named",
                2,
            ));
        }
        let is_written = self.program.iter().any(|word| contains(word, OUT));
        if is_written != self.out.is_some() {
            let fact = match is_written {
                true => "an argument has {out}, and no name for it is given: say --out NAME",
                false => {
                    "no argument says {out}, where each program is to write its part; to keep what it prints say --stdout NAME"
                }
            };
            return Err(CliError::found(&*wanted, fact, 2));
        }
        let output = |name: &Option<OsString>| {
            let name = name.as_ref().map(|name| catalog::name(name));
            name.transpose().map(|name| name.map(|name| name.0))
        };
        if self.out.is_some() && self.out == self.stdout {
            let fact = "--out and --stdout name the same file";
            return Err(CliError::found(&*wanted, fact, 2).next("give each a name of its own"));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let with = self.with(&names)?;
        let kept = kept(&names, &self.program[0])?;
        let job = FarmJob {
            id: format!(
                "{:x}-{}",
                since.unwrap_or_default().as_nanos(),
                std::process::id()
            ),
            name: name.map(|name| name.0).unwrap_or_default(),
            ranks: tasks as u64,
            program: self.program.iter().cloned().map(Word).collect(),
            kept,
            with,
            out: output(&self.out)?,
            printed: output(&self.stdout)?,
            engine: self.by,
        };
        let printed = Printed::new(screen, self.ordered, tasks);
        let failed = names.run(&job, &mut |event| printed.hear(event, &program));
        let failed = failed.map_err(|error| {
            match &error {
                Error::Exists { .. } => {
                    fails(error).or_next("choose another name, or say first: godwit rm NAME")
                }
                Error::Missing { .. } => fails(error).or_next(
                    "godwit ls grid:/ shows the names; a collection of its output is made by godwit mkdir -p",
                ),
                _ => fails(error),
            }
        })?;
        if let Some(code) = stop.exit_code() {
            return Err(CliError::signal(wanted, code).next("nothing of its outputs is kept"));
        }
        Ok(facts([
            ("tasks", tasks.into()),
            ("failed", failed.into()),
            ("local_bytes", printed.local_bytes.into_inner().into()),
            ("moved_bytes", printed.moved_bytes.into_inner().into()),
        ]))
    }
}

impl RunArgs {
    /// Has the catalog keep what is to lie beside each program.
    fn with(&self, names: &Logical) -> Ran<Vec<Input>> {
        let bad = |fact: String| CliError::asked("run a program with further files", fact);
        if !self.with.is_empty() && self.by != Engine::Own {
            let next = "leave out --by, or name the file by a path that all nodes have";
            return Err(bad(format!("--by {} brings none", self.by)).next(next));
        }
        let mut names_of = HashSet::from([b"out".to_vec(), b"stdout".to_vec()]);
        let mut inputs = Vec::new();
        for word in &self.with {
            let url = places::url(word)?;
            let base = url.file_name().unwrap_or_default().to_owned();
            if base.is_empty() || !names_of.insert(base) {
                return Err(bad(format!(
                    "{} is called as another file there",
                    word.display()
                )));
            }
            let fails = |error| CliError::store(format!("keep {url}"), error);
            inputs.push(names.with(&url).map_err(fails)?);
        }
        Ok(inputs)
    }
}

/// Has the catalog keep a program that is named by a path or URL.
pub(super) fn kept(names: &Logical, word: &OsStr) -> Ran<Kept> {
    if !word.as_encoded_bytes().contains(&b'/') {
        return Ok(Kept::default());
    }
    let url = match places::url(word)? {
        url if url.is_local() => executable(url.as_path())?,
        url => url,
    };
    let fails = |error| CliError::store(format!("keep the program {url}"), error);
    names.keep(&url).map_err(fails)
}

fn contains(word: &OsStr, what: &str) -> bool {
    let mut all = word.as_encoded_bytes().windows(what.len());
    all.any(|some| some == what.as_bytes())
}

impl<'a> Printed<'a> {
    pub(crate) fn new(screen: &'a Screen, is_ordered: bool, tasks: usize) -> Self {
        Self {
            screen,
            is_ordered: is_ordered && !screen.json(),
            files: (None, None),
            held: Mutex::new(vec![Default::default(); tasks]),
            local_bytes: AtomicU64::default(),
            moved_bytes: AtomicU64::default(),
        }
    }

    /// Takes news of a task.
    fn hear(&self, event: FarmEvent, program: &str) -> Result<(), Error> {
        match event {
            FarmEvent::Wrote(fragment, line) => self.take(fragment, line),
            FarmEvent::Over(fragment) => self.end(fragment),
            FarmEvent::Failed(_, Error::Canceled) => Ok(()),
            FarmEvent::Failed(fragment, error) => {
                let wanted = format!("run {program} on fragment {fragment}");
                let trouble = match error {
                    Error::Missing { .. } => CliError::found(wanted, "no node has it", 4),
                    error => CliError::store(wanted, error),
                };
                self.screen.trouble(&trouble);
                Ok(())
            }
            FarmEvent::Ended {
                fragment,
                node,
                bytes,
                is_copied,
                attempts,
                status,
            } => {
                let (how, all) = match is_copied {
                    true => ("copied", &self.moved_bytes),
                    false => ("local", &self.local_bytes),
                };
                all.fetch_add(bytes, Relaxed);
                if self.screen.json() {
                    let told = json!({
                        "event": "task", "fragment": fragment, "node": node, "how": how,
                        "attempts": attempts, "exit_status": status,
                    });
                    self.screen.object(&told)?;
                }
                if status != 0 {
                    let wanted = format!("run {program} on fragment {fragment}");
                    let code = u8::try_from(status).unwrap_or(1);
                    let fact = format!("it ended with status {status} at {node}");
                    self.screen.trouble(&CliError::found(wanted, fact, code));
                }
                Ok(())
            }
        }
    }

    /// Prints lines of a task, or keeps them until its turn.
    pub(crate) fn take(&self, fragment: u64, line: Line) -> Result<(), Error> {
        let (stream, bytes) = match line {
            Line::Out(bytes) => ("stdout", bytes.0),
            Line::Words(bytes) => ("stderr", bytes.0),
            _ => return Ok(()),
        };
        let at = usize::try_from(fragment).unwrap_or(usize::MAX);
        let mut held = self.held.lock();
        let file = match stream {
            "stderr" => &self.files.1,
            _ => &self.files.0,
        };
        if let (Some(file), "stderr") = (file, stream) {
            return written(file, &bytes);
        }
        if file.is_none() && self.screen.json() {
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
    pub(crate) fn end(&self, fragment: u64) -> Result<(), Error> {
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
            None if bytes.len() > LINE_BYTES_MAX => bytes.len(),
            None => return Ok(()),
        };
        let rest = bytes.split_off(end);
        let mut bytes = mem::replace(bytes, rest);
        // A last line without an end would run into another one.
        if *has_ended && bytes.last().is_some_and(|&last| last != b'\n') {
            bytes.push(b'\n');
        }
        if let Some(file) = &self.files.0 {
            return written(file, &bytes);
        }
        self.screen.bytes(&bytes)?;
        self.screen.flush()
    }
}

fn written(mut file: &File, bytes: &[u8]) -> Result<(), Error> {
    let written = file.write_all(bytes);
    written.map_err(|cause| Error::io("the file of its lines", cause))
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

/// The longest line that is kept whole.
const LINE_BYTES_MAX: usize = 1 << 20;
