//! The body of a task: a program that runs beside a file of the export, for the door and for `godwit farm task`.

mod outputs;
pub(crate) mod workplace;

use godwit_core::{Algorithm, Kind};
use godwit_store::{Dir, Opener, Store as _, Transit as _};
use godwit_sys::{Program, ProgramLimits, ProgramOutput, why};
use godwit_wire::door::{
    call::{Bytes, Line, Name, Refusal, Text},
    run::{AskRun, IN, OUT, Word},
    staging::{Executable, kept},
};
use outputs::{HashedFile, PRINTED, WRITTEN, must_be};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{ErrorKind, Write},
    os::{
        fd::BorrowedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            process::ExitStatusExt,
        },
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};
use workplace::Workplace;

/// Receives the lines of a task; an error ends it.
pub type LineSink<'a> = dyn FnMut(Line) -> Result<(), Refusal> + 'a;

/// The parts of its node that a task needs.
pub(crate) struct Around<'a> {
    /// The directory of the program.
    pub(crate) workplace: &'a Workplace,
    /// Puts a file of the export under a new name, durably.
    pub(crate) place: &'a dyn Fn(&Path, &Path) -> godwit_store::Result<()>,
    /// Readable when the program is to end.
    pub(crate) stop: BorrowedFd<'a>,
}

/// Runs a task beside a file of `export` with the rights of this process, until `stop` can be read.
pub fn run_task(
    ask: &AskRun,
    export: &Path,
    stop: BorrowedFd<'_>,
    tell: &mut LineSink<'_>,
) -> Result<(), Refusal> {
    let mut others = ask.staging.clone();
    let executable = others.executable.take();
    if !others.is_empty() || matches!(executable, Some(Executable::Url(_))) {
        let said = "only a node brings files to a program: ask its call run";
        return Err(Refusal::of_kind(Kind::Invalid, said));
    }
    let refused = |error: godwit_store::Error| Refusal::from(&error);
    let dir = Dir::open(export, "", Opener::Myself).map_err(refused)?;
    let export = std::path::absolute(export).map_err(|cause| other(&cause))?;
    let path = Some(&ask.path.0).filter(|path| !path.as_os_str().is_empty());
    path.map_or(Ok(()), |path| dir.lend(path).map(drop))
        .map_err(refused)?;
    let file = path.map(|path| export.join(path.strip_prefix("/").unwrap_or(path)));
    let file = file.as_deref();
    let place = |from: &Path, to: &Path| {
        dir.rename_new(from, to)?;
        dir.flush(to.parent().unwrap_or(Path::new("")))
    };
    let workplace = Workplace::new(&export).map_err(|cause| other(&cause))?;
    let around = Around {
        workplace: &workplace,
        place: &place,
        stop,
    };
    let mut program = program(ask, file, &workplace)?;
    if let Some(Executable::Kept(Text(digest))) = executable {
        let path = PathBuf::from(kept(&digest));
        let found = dir
            .digest(&path, Algorithm::Blake3, None)
            .map_err(refused)?;
        must_be(&Name(path.clone()), &digest, &found)?;
        let path = export.join(path);
        workplace::touch(&path);
        program.command[0] = path.into();
    }
    let nothing = File::open("/dev/null").map_err(|cause| other(&cause))?;
    let status = run((ask, file), (&program, nothing), &around, tell)?;
    tell(Line::Ended(status))
}

/// Runs the program of a task on the input `reads`, and puts its outputs in place; returns its status.
pub(crate) fn run(
    (ask, file): (&AskRun, Option<&Path>),
    (program, reads): (&Program, File),
    around: &Around<'_>,
    tell: &mut LineSink<'_>,
) -> Result<i32, Refusal> {
    let printed = ask.printed.as_ref();
    let printed = printed.map(|_| File::create_new(around.workplace.path().join(PRINTED)));
    let printed = printed.transpose().map_err(|cause| other(&cause))?;
    let input = ask.digest.as_ref().zip(file);
    let input = input.map(|(expected, file)| (expected, HashedFile::begin(file.into())));
    let status = follow(program, (reads, printed), around.stop, tell)?;
    if let Some((expected, hashed)) = input {
        must_be(&ask.path, &expected.0, &hashed.end(tell)?.1)?;
    }
    let written = [(WRITTEN, &ask.out), (PRINTED, &ask.printed)];
    for (file, to) in written {
        if let (0, Some(to)) = (status, to) {
            let placed = outputs::place(around, file, to, tell)?;
            tell(Line::Placed(placed))?;
        }
    }
    Ok(status)
}

/// Returns the program of a task that works in `place`.
pub(crate) fn program(
    ask: &AskRun,
    file: Option<&Path>,
    place: &Workplace,
) -> Result<Program, Refusal> {
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
        bounds: ProgramLimits {
            cpu_seconds: u64::MAX,
            memory_bytes: u64::MAX,
            open_files: OPEN_FILES_MAX,
        },
        hears_words: true,
        is_tool: false,
        confined: None,
    })
}

/// Returns the program's variables: some of the node's own, the requested ones, and those about its files.
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

/// Returns an argument with `path` in place of `what`.
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
    stop: BorrowedFd<'_>,
    tell: &mut LineSink<'_>,
) -> Result<i32, Refusal> {
    let mut running = program.start(input).map_err(|cause| {
        let name = program.command[0].to_string_lossy();
        let said = format!("cannot run {name} here: {}", why(&cause));
        let refusal = Refusal::of_kind(Kind::Invalid, said);
        match cause.kind() {
            ErrorKind::NotFound => {
                refusal.next("install it there; a program of your own is named by a path: ./NAME")
            }
            _ => refusal,
        }
    })?;
    let (mut out, mut words) = (PartialLine::default(), PartialLine::default());
    let mut buffer = vec![0; HELD_BYTES];
    loop {
        let made = running.read(&mut buffer, stop, Instant::now() + BEAT);
        match made.map_err(|cause| other(&cause))? {
            ProgramOutput::Bytes(count) => {
                if let Some(printed) = &mut printed {
                    let written = printed.write_all(&buffer[..count]);
                    written.map_err(|cause| other(&cause))?;
                } else if let Some(whole) = out.add(&buffer[..count]) {
                    tell(Line::Out(whole))?;
                }
            }
            ProgramOutput::Words(said) => {
                if let Some(whole) = words.add(&said) {
                    tell(Line::Words(whole))?;
                }
            }
            // A beat fails once the client is gone.
            ProgramOutput::Late => tell(Line::Beat(0))?,
            ProgramOutput::Stopped => return Err(stops()),
            ProgramOutput::Ended(status) => {
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
struct PartialLine(Vec<u8>);

impl PartialLine {
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

fn code(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or_default(),
    }
}

/// Tells the cause of a failure that is no fault of the client.
pub(crate) fn other(cause: &std::io::Error) -> Refusal {
    let kind = match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Kind::NoSpace,
        _ => Kind::Other,
    };
    Refusal::of_kind(kind, why(cause))
}

/// Returns the refusal of a node that stops.
pub(crate) fn stops() -> Refusal {
    Refusal::of_kind(Kind::Busy, "this node stops")
}

const HELD_BYTES: usize = 64 << 10;
/// How often a running task sends a beat.
pub(crate) const BEAT: Duration = Duration::from_secs(5);
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
