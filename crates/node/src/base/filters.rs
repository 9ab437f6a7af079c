//! Programs that bytes of files go through, as configured: which client may run one, how many run at once, and how
//! their end is judged.

use crate::config::ModuleConfig;
use godwit_core::{Block, Kind, LEAF_BYTES};
use godwit_store::{Error, channel::Watch};
use godwit_sys::{Buffer, Program, ProgramLimits, ProgramOutput, RunningProgram, ended_by, why};
use godwit_wire::{
    command::Through,
    server::{self as wire, ModuleDirection, Refusal},
};
use std::{
    ffi::OsString,
    fs::File,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// All modules of a node.
#[derive(Debug)]
pub(crate) struct Modules(Vec<KnownModule>);

#[derive(Debug)]
struct KnownModule {
    module: Arc<ModuleConfig>,
    running: Arc<AtomicUsize>,
}

/// The right to run a module once, for as long as this is held.
#[derive(Debug)]
pub(crate) struct FilterTurn {
    module: Arc<ModuleConfig>,
    parameters: String,
    running: Arc<AtomicUsize>,
}

impl Modules {
    pub(crate) fn new(modules: &[ModuleConfig]) -> Self {
        let known = |module: &ModuleConfig| KnownModule {
            module: Arc::new(module.clone()),
            running: Arc::default(),
        };
        Self(modules.iter().map(known).collect())
    }

    /// Returns the descriptions for clients.
    pub(crate) fn told(&self) -> Vec<wire::ModuleName> {
        let told = |known: &KnownModule| wire::ModuleName {
            name: known.module.name.clone(),
            way: known.module.way,
            about: known.module.about.clone(),
        };
        self.0.iter().map(told).collect()
    }

    /// Admits one run of a module, if the module exists and allows these parameters.
    pub(crate) fn turn(
        &self,
        through: &Through,
        way: ModuleDirection,
    ) -> Result<FilterTurn, Refusal> {
        let mut all = self.0.iter();
        let known =
            all.find(|known| known.module.name == through.module && known.module.way == way);
        let name = &through.module;
        let Some(KnownModule { module, running }) = known else {
            let why = format!("There is no module {name} here.");
            return Err(Refusal::of_kind(Kind::Unsupported, why));
        };
        if let Some(why) = refusal(module, &through.parameters) {
            let said = format!("Parameters of {name}: {why}.");
            return Err(Refusal::of_kind(Kind::Unsupported, said));
        }
        // Given back by `Turn`, also if it is one too many.
        let before = running.fetch_add(1, Relaxed);
        let turn = FilterTurn {
            module: Arc::clone(module),
            parameters: through.parameters.clone(),
            running: Arc::clone(running),
        };
        if before >= module.at_once {
            let said = format!("Busy: {before} of {name} run already; try again in a while.");
            return Err(Refusal::of_kind(Kind::Busy, said));
        }
        Ok(turn)
    }
}

/// Tells why parameters are not what the configuration allows. As an argument they must not
/// be taken for an option.
fn refusal(module: &ModuleConfig, parameters: &str) -> Option<String> {
    let is_argument = module.command.iter().any(|word| word == PLACE);
    if is_argument && parameters.starts_with('-') {
        return Some("they begin with a dash, as an option would".into());
    }
    module.parameters.refuses(parameters)
}

impl Drop for FilterTurn {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Relaxed);
    }
}

impl FilterTurn {
    pub(crate) fn name(&self) -> &str {
        &self.module.name
    }

    /// Starts the program on a file; it ends with the calling thread at the latest.
    pub(crate) fn start(&self, input: File) -> Result<ModuleRun<'_>, Refusal> {
        let module = &self.module;
        let word = |word: &String| match word.as_str() {
            PLACE => OsString::from(&self.parameters),
            word => word.into(),
        };
        let program = Program {
            command: module.command.iter().map(word).collect(),
            directory: "/".into(),
            variables: vec![("GODWIT_PARAMETERS".into(), (&self.parameters).into())],
            bounds: ProgramLimits {
                cpu_seconds: module.cpu_seconds,
                memory_bytes: module.memory_bytes,
                open_files: OPEN_FILES_MAX,
            },
            hears_words: false,
            is_tool: false,
            confined: module.confined.then(|| module.reads.clone()),
        };
        let late = Instant::now() + module.time;
        let running = program.start(input).map_err(|cause| {
            let (name, cause) = (self.name(), why(&cause));
            tracing::error!(module = name, cause, "a module cannot be started");
            of_module(format!("{name} cannot be started: {cause}"))
        })?;
        Ok(ModuleRun {
            turn: self,
            running,
            late,
        })
    }
}

/// A module at work. Dropping it ends its program.
#[derive(Debug)]
pub(crate) struct ModuleRun<'a> {
    turn: &'a FilterTurn,
    running: RunningProgram,
    late: Instant,
}

impl ModuleRun<'_> {
    /// Gives `put` all that the program writes, in order, and returns how much that was once it
    /// has ended well.
    pub(crate) fn pour(
        mut self,
        watch: &Watch,
        put: &mut dyn FnMut(Block<'_>) -> godwit_store::Result<()>,
    ) -> Result<u64, Refusal> {
        let (mut buffer, mut offset) = (Buffer::take(), 0);
        loop {
            let room = (LEAF_BYTES - offset % LEAF_BYTES) as usize;
            let room = room.min(buffer.len());
            let stop = watch.canceled().as_fd();
            let made = self.running.read(&mut buffer[..room], stop, self.late);
            let made = made.map_err(|cause| Error::io(self.turn.name(), cause))?;
            let count = match made {
                ProgramOutput::Bytes(count) => count,
                ProgramOutput::Words(_) => continue,
                ProgramOutput::Ended(status) if status.success() => return Ok(offset),
                ProgramOutput::Ended(status) => return Err(self.failed(&ended_by(status))),
                ProgramOutput::Stopped => return Err(Error::Canceled.into()),
                ProgramOutput::Late => return Err(self.late()),
            };
            let end = offset + count as u64;
            if end > self.turn.module.out_bytes {
                let most = self.turn.module.out_bytes;
                return Err(self.ended(&format!("it made more than {most} bytes")));
            }
            put(Block::at(offset, &buffer[..count]))?;
            offset = end;
        }
    }

    fn late(&self) -> Refusal {
        let most: Duration = self.turn.module.time;
        self.ended(&format!("it took longer than {} s", most.as_secs()))
    }

    fn ended(&self, why: &str) -> Refusal {
        of_module(format!("{} was ended: {why}", self.turn.name()))
    }

    fn failed(&self, status: &str) -> Refusal {
        let name = self.turn.name();
        of_module(match self.running.last_words().as_str() {
            "" => format!("{name} failed ({status})"),
            words => format!("{name} failed: {words} ({status})"),
        })
    }
}

/// Makes the refusal for a failure of a module.
fn of_module(said: String) -> Refusal {
    Refusal::of_kind(Kind::Module, said)
}

/// Stands for the parameters among the words of a command.
const PLACE: &str = "{}";
const OPEN_FILES_MAX: u64 = 64;
