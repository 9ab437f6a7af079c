//! Engines: what starts the tasks of a job on the nodes that have its fragments.

use godwit_store::{Error, Result, channel::Cancel};
use godwit_sys::{Program, ProgramLimits, ProgramOutput, RunningProgram, why};
use godwit_wire::{
    door::call::{LINE_BYTES_MAX, Line},
    lines::LineBuffer,
};
use std::{
    env,
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, OwnedFd},
    process::{Command, Stdio},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

/// The way in which tasks are started on a node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Engine {
    /// The call `run` of the node.
    #[default]
    Own,
    /// Slurm: one `srun` a task.
    Slurm,
    /// A command for the shell, with the host of the node in place of `{host}`.
    Command(String),
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "own" => Ok(Self::Own),
            "slurm" => Ok(Self::Slurm),
            command if command.contains(HOST) => Ok(Self::Command(command.into())),
            other => Err(format!(
                "{other:?} is no engine: say own, slurm, or a command with {HOST}"
            )),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::Slurm => "slurm",
            Self::Command(command) => command,
        })
    }
}

impl Engine {
    /// Returns what starts a task on a host; `None`: its node does.
    pub(crate) fn start(&self, host: &str) -> Result<Option<Start>> {
        if *self == Self::Own {
            return Ok(None);
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@[]%".contains(c);
        if host.starts_with('-') || host.is_empty() || !host.chars().all(is_plain) {
            let why = "it is no name of a host; set it: godwit location set SITE NAME host=HOST";
            return Err(Error::bad_name(host, why));
        }
        let words = match self {
            Self::Command(command) => ["sh", "-c", &command.replace(HOST, host)]
                .map(OsString::from)
                .into(),
            _ => {
                let within = env::var_os("SLURM_JOB_ID").map(|_| ["--overlap", "--exact"]);
                let words = [
                    "srun",
                    "-n1",
                    "-N1",
                    "-w",
                    host,
                    "--kill-on-bad-exit=0",
                    "--job-name=godwit",
                ];
                let words = words.into_iter().chain(within.into_iter().flatten());
                words
                    .chain(["godwit", "farm", "task"])
                    .map(OsString::from)
                    .collect()
            }
        };
        Ok(Some(Start {
            words,
            name: self.to_string(),
            host: host.into(),
            is_slurm: *self == Self::Slurm,
        }))
    }
}

/// A command that starts a task on a host.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    words: Vec<OsString>,
    /// The engine.
    name: String,
    host: String,
    is_slurm: bool,
}

impl Start {
    /// Starts the task that the line `asked` describes, and passes on its news until its end.
    pub(crate) fn run(
        &self,
        asked: Vec<u8>,
        cancel: &Cancel,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<()> {
        let mut running = self.begin(asked).map_err(|cause| {
            let next = match self.is_slurm {
                true => "install the client of Slurm (Debian: slurm-client), or say --by own",
                false => "see that this machine has it",
            };
            let program = self.words[0].to_string_lossy();
            let why = format!("{}; {next}", why(&cause));
            Error::unsupported(format!("running {program}"), why)
        })?;
        let heard = self.hear(&mut running, cancel, each);
        if heard.is_err() {
            // Slurm takes back a task that has not begun, and ends one that has.
            running.terminate();
        }
        // If srun were killed, Slurm would keep the processors for a while.
        running.wait_within(ENDS_WITHIN);
        heard
    }

    fn begin(&self, asked: Vec<u8>) -> io::Result<RunningProgram> {
        let program = Program {
            command: self.words.clone(),
            directory: env::current_dir()?,
            variables: env::vars_os().collect(),
            bounds: ProgramLimits {
                cpu_seconds: u64::MAX,
                memory_bytes: u64::MAX,
                open_files: u64::MAX,
            },
            hears_words: false,
            is_tool: true,
            confined: None,
        };
        let (input, mut writing) = io::pipe()?;
        let running = program.start(File::from(OwnedFd::from(input)))?;
        // A command that does not read it tells why itself.
        thread::spawn(move || writing.write_all(&asked));
        Ok(running)
    }

    fn hear(
        &self,
        running: &mut RunningProgram,
        cancel: &Cancel,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<()> {
        let (mut lines, mut buffer) = (LineBuffer::new(LINE_BYTES_MAX), vec![0; PIECE_BYTES]);
        let (mut heard_at, mut has_begun, mut patience) = (Instant::now(), false, LOOK_AFTER);
        let odd = |bad: godwit_wire::Error| {
            let said = format!("it tells something else than godwit farm task: {bad}");
            Error::misbehaved(&self.name, said)
        };
        loop {
            let made = running.read(&mut buffer, cancel.as_fd(), Instant::now() + patience);
            match made.map_err(|cause| Error::io(&self.name, cause))? {
                ProgramOutput::Bytes(count) => lines.push(&buffer[..count]),
                ProgramOutput::Stopped => return Err(Error::Canceled),
                ProgramOutput::Ended(status) => {
                    let said = format!(
                        "{} ended ({status}) before the task did: {}",
                        self.name,
                        running.last_words()
                    );
                    return Err(Error::beyond(&self.host, said));
                }
                ProgramOutput::Words(_) => {}
                ProgramOutput::Late => {
                    self.must_live(heard_at.elapsed(), has_begun)?;
                    patience *= 2;
                }
            }
            while let Some((line, _)) = lines.next_line().map_err(odd)? {
                (heard_at, has_begun, patience) = (Instant::now(), true, LOOK_AFTER);
                match Line::read(line).map_err(odd)? {
                    Line::End => return Ok(()),
                    line => each(line)?,
                }
            }
        }
    }

    /// Fails if a task that has told nothing for a while is lost, or waits for a node that is down.
    fn must_live(&self, silent: Duration, has_begun: bool) -> Result<()> {
        if has_begun && silent < LOST_AFTER {
            return Ok(());
        }
        match self.is_slurm {
            true => match state(&self.host)
                .filter(|state| DOWN.iter().any(|down| state.contains(down)))
            {
                Some(state) => {
                    let host = &self.host;
                    let said = format!("Slurm says that it is {state}; see: sinfo -R -n {host}");
                    Err(Error::beyond(host, said))
                }
                None => Ok(()),
            },
            false if has_begun => Err(Error::stalled(&self.host, "running a task", silent)),
            false => Ok(()),
        }
    }
}

/// Returns the state of a node, as Slurm says it.
fn state(host: &str) -> Option<String> {
    let mut sinfo = Command::new("sinfo");
    let sinfo = sinfo.args(["-h", "-o", "%T", "-n", host]);
    let said = sinfo.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = String::from_utf8(said.ok()?.stdout).ok()?;
    said.lines().next().map(str::to_owned)
}

/// The word in a command that stands for the host of a node.
const HOST: &str = "{host}";
/// Parts of the names of states in which a node begins nothing; * is one that does not respond.
const DOWN: [&str; 6] = ["down", "drain", "fail", "maint", "unk", "*"];
/// How long a new task may be silent before its node is checked; the time doubles with each check.
const LOOK_AFTER: Duration = Duration::from_secs(5);
/// A running task sends a beat every few seconds; after this time without one it is lost.
const LOST_AFTER: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const PIECE_BYTES: usize = 64 << 10;
