//! `godwit run --on`: a program runs on other nodes, with files from anywhere.

use super::{
    farm::Printed,
    mounted::{self, Asked, Fsync, Promise, WAIT, parse_wait},
    preloaded,
};
use crate::{
    args::Talking,
    out::{CliError, Facts, Run as Ran, Screen, facts},
    places,
};
use clap::{Args, ValueEnum};
use godwit_core::{Algorithm, Url};
use godwit_store::{
    Error, RemovalKind,
    door::Door,
    engine::{self, CopyOptions, OverwriteRule, Place, Stores},
};
use godwit_wire::door::{
    call::{Line, Name, Refusal, Text},
    run::{AskRun, Word},
    staging::{self, Executable, PROGRAMS, Staged, Staging, VARIABLES, filled},
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Run a program with files from anywhere: here, or on other nodes
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit run -- cp notes.txt /godwit/ftp:fermi.example/notes.txt
  godwit run --on n1,n2 -- uname -m
  godwit run --on n2 --in notes.txt --out sorted=notes.sorted -- sort -o sorted notes.txt
  godwit run --on n1,n2 -n 4 --out 'o=godwit://n1/o${GODWIT_FRAGMENT}' -- sh -c 'date > o'

Without --on any program finds files of other machines in a mount of its own, which needs /dev/fuse
and no privilege: /godwit/[SCHEME:]HOST[:PORT]/PATH, /godwit/grid/NAME. Arguments that are URLs of
ftp, gsiftp, godwit or grid become such paths. Its writes are delivered though the link is down.

With --on each process starts in an empty directory of its own on its node, which ends with it. --in
puts files there first: NAME is their name, by default the last part of the URL (a URL with = needs
one). --out delivers what the program wrote there as NAME, once it ended with 0: the node keeps it
and delivers it, also when this command is gone and the server is down. A URL is one that the node
reaches, and its copy of an input serves all processes. A path is a file of this machine.
A program with a slash in its name is a file of this machine, kept at the node in .farm/bin for the
next time. A URL is fetched by the node. Any other name the node finds by its PATH. URLs may have
${GODWIT_ARCH} and ${GODWIT_OS} (x86_64, linux: of the node), ${GODWIT_JOB}, ${GODWIT_FRAGMENT} (the
number of the process, from 0) and ${GODWIT_FRAGMENTS}, which are variables of the process, too.

Lines come whole, as they are written; with --stdout or --stderr they are appended there instead. A
node needs farm.slots = N in its configuration (farm demo sets it), and runs programs as its own
account, for peers that may write. What this command no longer reads for 60 s is ended there.

Exit status: that of the program, of several the worst, which is named; 128 and the number of a
signal; 5 no node answers, 13 it runs none for you, 75 what was written is lost, 126, 127 no start.")]
pub(crate) struct RunArgs {
    /// The nodes, which take turns
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    on: Vec<String>,
    /// Here: wait for none, commit (safe) or push (delivered)
    #[arg(long, value_enum, default_value_t = Promise::Commit, hide_possible_values = true, value_name = "WHAT", conflicts_with = "on")]
    promise: Promise,
    /// Here: an fsync waits for commit or push
    #[arg(long, value_enum, default_value_t = Fsync::Commit, hide_possible_values = true, value_name = "WHAT", conflicts_with = "on")]
    fsync: Fsync,
    /// Here: time to wait for a server to read from (or forever) [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_wait, conflicts_with = "on")]
    wait: Option<Duration>,
    /// Here: mount, or preload (a library; no /dev/fuse)
    #[arg(long, value_enum, default_value_t = ProgramAccess::Mount, hide_possible_values = true, value_name = "WAY", conflicts_with = "on")]
    via: ProgramAccess,
    /// Processes [default: one a node]
    #[arg(short = 'n', value_name = "N", requires = "on", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    processes: Option<u64>,
    /// A file for each process
    #[arg(long = "in", value_name = "URL[=NAME]", requires = "on")]
    inputs: Vec<OsString>,
    /// A file that each process writes
    #[arg(long = "out", value_name = "NAME=URL", requires = "on")]
    outputs: Vec<OsString>,
    /// Standard input of each process [default: nothing]
    #[arg(long, value_name = "URL", requires = "on")]
    stdin: Option<OsString>,
    /// Append standard output there
    #[arg(long, value_name = "URL", requires = "on")]
    stdout: Option<OsString>,
    /// Append standard error there
    #[arg(long, value_name = "URL", requires = "on")]
    stderr: Option<OsString>,
    /// A variable of each process
    #[arg(long, value_name = "NAME=VALUE", requires = "on")]
    env: Vec<OsString>,
    /// Print the lines of each process together, in the order of the processes
    #[arg(long, requires = "on")]
    ordered: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    program: Vec<OsString>,
    #[command(flatten)]
    talking: Talking,
}

/// The way by which a program of this machine opens files of others.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProgramAccess {
    Mount,
    Preload,
}

/// One end of a file, as it was named.
#[derive(Clone, Debug)]
enum End {
    /// A server, in text with variables.
    There(String),
    /// A file of this machine.
    Here(PathBuf),
}

/// Files by their names in the directory of a process.
type Files = Vec<(PathBuf, End)>;

/// A node, and the files that it was given.
struct RunSite<'a> {
    name: &'a str,
    root: Place,
    door: Door,
    /// Whether all files of this machine are there.
    is_ready: Mutex<bool>,
}

/// State that the processes share.
struct RunJob<'a> {
    run: &'a RunArgs,
    screen: &'a Screen,
    options: &'a CopyOptions,
    program: Option<PathBuf>,
    inputs: Files,
    outputs: Files,
    stdin: Option<End>,
    ask: AskRun,
    printed: Printed<'a>,
    /// The worst status, and its process.
    worst: Mutex<Option<CliError>>,
    failed: AtomicU64,
}

impl RunArgs {
    pub(crate) fn run(self, screen: &'static Screen) -> Ran<Facts> {
        if self.on.is_empty() {
            let asked = Asked {
                promise: self.promise,
                fsync: self.fsync,
                wait: self.wait.unwrap_or(WAIT),
            };
            let run = match self.via {
                ProgramAccess::Mount => mounted::run,
                ProgramAccess::Preload => preloaded::run,
            };
            return run(&self.program, asked, screen);
        }
        let options = places::options(&self.talking)?;
        let job = self.job(screen, &options)?;
        let stores = Stores::new(options.clone());
        let mut sites = Vec::new();
        for name in &self.on {
            let url = places::url(format!("godwit://{name}/").as_ref())?;
            let failed = |error| CliError::store(format!("run a program on {url}"), error);
            sites.push(RunSite {
                name,
                root: places::open(&stores, &url)?,
                door: Door::open(&url, &options.remote()).map_err(failed)?,
                is_ready: Mutex::new(false),
            });
        }
        let next = AtomicU64::new(0);
        let work = || {
            loop {
                let at = next.fetch_add(1, Relaxed);
                if at >= job.ask.fragments {
                    return;
                }
                job.process(at, &sites[at as usize % sites.len()]);
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(job.ask.fragments) {
                scope.spawn(work);
            }
        });
        sites.iter().for_each(|site| job.tidy(site));
        let failed = job.failed.into_inner();
        if let Some(worst) = job.worst.into_inner() {
            screen.trouble(&worst);
        }
        Ok(facts([
            ("processes", job.ask.fragments.into()),
            ("failed", failed.into()),
        ]))
    }

    /// Checks all words, before anything is asked of a node.
    fn job<'a>(&'a self, screen: &'a Screen, options: &'a CopyOptions) -> Ran<RunJob<'a>> {
        let wanted = format!("run {}", self.program[0].display());
        let bad = |fact: String| CliError::asked(&*wanted, fact);
        let mut nodes = HashSet::new();
        if let Some(twice) = self.on.iter().find(|name| !nodes.insert(*name)) {
            let next = "-n N says how many processes there are; the nodes take turns";
            return Err(bad(format!("--on names {twice} twice")).next(next));
        }
        let (inputs, outputs) = self.files(&wanted)?;
        let count = self.processes.unwrap_or(self.on.len() as u64);
        for (_, end) in &outputs {
            let text = end.text();
            if count > 1 && !text.contains("${GODWIT_FRAGMENT}") {
                let next = "put ${GODWIT_FRAGMENT}, the number of the process, into the URL";
                return Err(bad(format!("{count} processes would replace {text}")).next(next));
            }
        }
        for (_, end) in &inputs {
            end.must_be_there(&wanted)?;
        }
        let stdin = self.stdin.as_deref().map(end).transpose()?;
        if let Some(stdin) = &stdin {
            stdin.must_be_there(&wanted)?;
        }
        let (stdout, out) = stream(self.stdout.as_deref())?;
        let (stderr, words) = stream(self.stderr.as_deref())?;
        let urls = (stdout, stderr);
        for word in &self.env {
            if word
                .as_bytes()
                .iter()
                .position(|&byte| byte == b'=')
                .unwrap_or(0)
                == 0
            {
                return Err(bad(format!("--env {} is not NAME=VALUE", word.display())));
            }
        }
        let (program, executable) = self.program()?;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let ask = AskRun {
            program: self.program.iter().cloned().map(Word).collect(),
            fragments: count,
            job: format!("{:x}-{}", since.as_nanos(), std::process::id()),
            variables: self.env.iter().cloned().map(Word).collect(),
            staging: Staging {
                executable,
                out: urls.0,
                words: urls.1,
                ..Staging::default()
            },
            ..AskRun::default()
        };
        let mut printed = Printed::new(screen, self.ordered, count as usize);
        printed.files = (out, words);
        Ok(RunJob {
            run: self,
            screen,
            options,
            program,
            inputs,
            outputs,
            stdin,
            ask,
            printed,
            worst: Mutex::default(),
            failed: AtomicU64::default(),
        })
    }

    /// Returns the files that each process reads, and those that it writes.
    fn files(&self, wanted: &str) -> Ran<(Files, Files)> {
        let bad = |fact: String| CliError::asked(wanted, fact);
        let mut names = HashSet::new();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (is_output, word) in (self.inputs.iter().map(|word| (false, word)))
            .chain(self.outputs.iter().map(|word| (true, word)))
        {
            let (name, end) = named(word, is_output)?;
            let shown = name.display();
            if name.file_name() != Some(name.as_os_str()) {
                return Err(bad(format!("{shown} is no name of a file in a directory"))
                    .next("give it a name without slashes: --in URL=NAME, --out NAME=URL"));
            }
            if !names.insert(name.clone()) {
                return Err(bad(format!("two files are called {shown}"))
                    .next("give one of them another name: --in URL=NAME"));
            }
            match is_output {
                true => outputs.push((name, end)),
                false => inputs.push((name, end)),
            }
        }
        Ok((inputs, outputs))
    }

    /// Returns the program, if it is a file of this machine, and how the node finds it if not by its PATH.
    fn program(&self) -> Ran<(Option<PathBuf>, Option<Executable>)> {
        let word = &self.program[0];
        if !word.as_bytes().contains(&b'/') {
            return Ok((None, None));
        }
        let path = match end(word)? {
            End::There(url) => return Ok((None, Some(Executable::Url(url)))),
            End::Here(path) => path,
        };
        let wanted = format!("run {}", word.display());
        let url = executable(&path)?;
        let place = places::open(&Stores::new(CopyOptions::new(places::cancel()?)), &url)?;
        let digest = place.store.digest(&place.path, Algorithm::Blake3, None);
        let digest = digest.map_err(|error| CliError::store(wanted, error))?;
        Ok((Some(path), Some(Executable::Kept(Text(digest)))))
    }
}

impl RunJob<'_> {
    /// Runs one process, and counts it if it does not end well.
    fn process(&self, at: u64, site: &RunSite<'_>) {
        let done = self.run_at(at, site);
        if let Err(error) = self.printed.end(at) {
            self.screen
                .trouble(&CliError::store("print its lines", error));
        }
        let Err(trouble) = done else { return };
        let failed = self.failed.fetch_add(1, Relaxed);
        let mut worst = self.worst.lock();
        if self.ask.fragments > 1 && failed < TOLD_MAX {
            let told = CliError::found(self.wanted(at, site), trouble.fact(), trouble.exit_code());
            self.screen.trouble(&told.following());
        }
        if worst
            .as_ref()
            .is_none_or(|worst| worst.exit_code() < trouble.exit_code())
        {
            *worst = Some(trouble);
        }
    }

    fn wanted(&self, at: u64, site: &RunSite<'_>) -> String {
        let program = self.run.program[0].display();
        match self.ask.fragments {
            1 => format!("run {program} on godwit://{}/", site.name),
            _ => format!("run {program} on godwit://{}/, process {at}", site.name),
        }
    }

    fn run_at(&self, at: u64, site: &RunSite<'_>) -> Ran {
        self.prepare(site)?;
        let wanted = self.wanted(at, site);
        let failed = |error: Error| CliError::store(&*wanted, error);
        let asked = self.asked(at);
        let mut status = None;
        let answered = site.door.run(&asked, &mut |line| match line {
            Line::Ended(code) => {
                status = Some(code);
                Ok(())
            }
            line => self.printed.take(at, line),
        });
        answered.map_err(failed)?.map_err(|refusal| {
            CliError::from(Refusal {
                wanted: wanted.clone(),
                ..refusal
            })
        })?;
        let status = status.unwrap_or(1);
        if self.screen.json() {
            let told = json!({
                "event": "process", "process": at, "node": site.name, "exit_status": status,
            });
            self.screen.object(&told).map_err(failed)?;
        }
        if status != 0 {
            let code = u8::try_from(status).unwrap_or(1);
            let fact = format!("it ended with status {status}");
            return Err(CliError::found(wanted, fact, code).next("its lines may say why"));
        }
        for (nth, (_, end)) in self.outputs.iter().enumerate() {
            if let End::Here(path) = end {
                let text = path.to_string_lossy();
                let path = filled(&text, |name| self.value(name, at)).unwrap_or_default();
                let from = self.kept(site, &format!("out-{nth}-{at}"))?;
                let to = places::url(path.as_ref())?;
                let to = places::open(&Stores::new(self.options.clone()), &to)?;
                self.copy(&from, &to, OverwriteRule::Always)?;
                let _ = from.store.remove(&from.path, RemovalKind::File);
            }
        }
        Ok(())
    }

    /// Returns the value of a variable that this machine knows, too.
    fn value(&self, name: &str, at: u64) -> Option<String> {
        match name {
            "GODWIT_JOB" => Some(self.ask.job.clone()),
            "GODWIT_FRAGMENT" => Some(at.to_string()),
            "GODWIT_FRAGMENTS" => Some(self.ask.fragments.to_string()),
            _ => None,
        }
    }

    /// Returns the request to the node of a process.
    fn asked(&self, at: u64) -> AskRun {
        let kept = |file: String| staging::StagedPlace::Path(Name(self.directory().join(file)));
        let staged = |(name, place): (&PathBuf, staging::StagedPlace)| Staged {
            name: Name(name.clone()),
            place,
            digest: None,
        };
        let inputs = self.inputs.iter().enumerate();
        let inputs = inputs
            .map(|(nth, (name, end))| staged((name, end.place(|| kept(format!("in-{nth}"))))));
        let outputs = self.outputs.iter().enumerate();
        let outputs = outputs.map(|(nth, (name, end))| {
            staged((name, end.place(|| kept(format!("out-{nth}-{at}")))))
        });
        let stdin = self.stdin.as_ref();
        AskRun {
            fragment: at,
            staging: Staging {
                inputs: inputs.collect(),
                outputs: outputs.collect(),
                reads: stdin.map(|end| end.place(|| kept("stdin".into()))),
                ..self.ask.staging.clone()
            },
            ..self.ask.clone()
        }
    }

    /// Gives a node the program and the files of this machine, once.
    fn prepare(&self, site: &RunSite<'_>) -> Ran {
        let mut is_ready = site.is_ready.lock();
        if *is_ready {
            return Ok(());
        }
        let kept = (&self.program, &self.ask.staging.executable);
        if let (Some(path), Some(Executable::Kept(Text(digest)))) = kept {
            make(&site.root, Path::new(PROGRAMS))?;
            let there = site.root.join(Path::new(&staging::kept(digest)));
            let there = there.map_err(|error| CliError::store("name a program", error))?;
            self.put(path, &there)?;
        }
        for (path, file) in self.files() {
            self.put(path, &self.kept(site, &file)?)?;
        }
        let has_outputs = self
            .outputs
            .iter()
            .any(|(_, end)| matches!(end, End::Here(_)));
        if has_outputs {
            make(&site.root, &self.directory())?;
        }
        *is_ready = true;
        Ok(())
    }

    /// Removes the files that a node was given for this job alone.
    fn tidy(&self, site: &RunSite<'_>) {
        if !*site.is_ready.lock() {
            return;
        }
        for (_, file) in self.files() {
            if let Ok(place) = self.kept(site, &file) {
                let _ = place.store.remove(&place.path, RemovalKind::File);
            }
        }
        let _ = site
            .root
            .store
            .remove(&self.directory(), RemovalKind::Directory);
    }

    /// Returns the files of this machine that programs read, and their names at the node.
    fn files(&self) -> impl Iterator<Item = (&Path, String)> {
        let inputs = self.inputs.iter().enumerate();
        let inputs = inputs.map(|(nth, (_, end))| (end, format!("in-{nth}")));
        let all = inputs.chain(self.stdin.iter().map(|end| (end, "stdin".into())));
        all.filter_map(|(end, file)| match end {
            End::Here(path) => Some((&**path, file)),
            End::There(_) => None,
        })
    }

    /// Returns the directory of this job at a node, which the node removes when it starts if this program cannot.
    fn directory(&self) -> PathBuf {
        Path::new(TASKS).join(format!("job-{}", self.ask.job))
    }

    fn kept(&self, site: &RunSite<'_>, file: &str) -> Ran<Place> {
        let place = site.root.join(&self.directory().join(file));
        place.map_err(|error| CliError::store("name a file", error))
    }

    fn put(&self, from: &Path, to: &Place) -> Ran {
        let from = places::url(from.as_os_str())?;
        let from = places::open(&Stores::new(self.options.clone()), &from)?;
        if let Some(above) = to.path.parent() {
            make(to, above)?;
        }
        self.copy(&from, to, OverwriteRule::NoClobber)
    }

    fn copy(&self, from: &Place, to: &Place, rule: OverwriteRule) -> Ran {
        let task = engine::CopyTask {
            source: from.clone(),
            target: to.clone(),
            tree: false,
            mode: None,
            range: None,
            rule,
            delete: false,
        };
        let copied = engine::copy(vec![task], self.options, &|_| ());
        match copied.errors.into_iter().next() {
            None => Ok(()),
            // Another job brought it meanwhile.
            Some(Error::Exists { .. }) if rule == OverwriteRule::NoClobber => Ok(()),
            Some(error) => Err(CliError::store(format!("copy {from} to {to}"), error)),
        }
    }
}

impl End {
    fn text(&self) -> String {
        match self {
            Self::There(url) => url.clone(),
            Self::Here(path) => path.to_string_lossy().into_owned(),
        }
    }

    /// Returns the place for the request to a node; a file of this machine is kept at the node.
    fn place(&self, kept: impl FnOnce() -> staging::StagedPlace) -> staging::StagedPlace {
        match self {
            Self::There(url) => staging::StagedPlace::Url(url.clone()),
            Self::Here(_) => kept(),
        }
    }

    /// Refuses a file of this machine that cannot be read.
    fn must_be_there(&self, wanted: &str) -> Ran {
        match self {
            Self::There(_) => Ok(()),
            Self::Here(path) => {
                let opened = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
                    true => Err(io::ErrorKind::IsADirectory.into()),
                    false => Ok(()),
                });
                opened.map_err(|cause| CliError::store(wanted, Error::io(path, cause)))
            }
        }
    }
}

/// Returns the URL of a program of this machine.
pub(super) fn executable(path: &Path) -> Ran<Url> {
    let wanted = format!("run {}", path.display());
    let failed = |cause| CliError::store(&*wanted, Error::io(path, cause));
    let meta = fs::metadata(path).map_err(failed)?;
    if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
        let next = format!("chmod +x {}", path.display());
        return Err(CliError::asked(wanted, "it is no file that can be executed").next(next));
    }
    let url = Url::file(std::path::absolute(path).map_err(failed)?);
    url.map_err(|bad| CliError::bad_url(&path.to_string_lossy(), &bad))
}

/// Makes a directory at a node, and those above it.
fn make(root: &Place, path: &Path) -> Ran {
    let above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
    let mut above: Vec<&Path> = above.collect();
    above.reverse();
    for path in above {
        match root.store.mkdir(path) {
            Ok(()) | Err(Error::Exists { .. }) => {}
            Err(error) => {
                let wanted = format!("make {} at {}", path.display(), root.url);
                return Err(CliError::store(wanted, error));
            }
        }
    }
    Ok(())
}

/// Reads the name and the other end of a file.
fn named(word: &OsStr, is_output: bool) -> Ran<(PathBuf, End)> {
    let bytes = word.as_bytes();
    let os = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let at = match is_output {
        true => bytes.iter().position(|&byte| byte == b'='),
        false => bytes.iter().rposition(|&byte| byte == b'='),
    };
    let divided = at.map(|at| (os(&bytes[..at]), os(&bytes[at + 1..])));
    match (is_output, divided) {
        (true, Some((name, url))) => Ok((name.into(), end(&url)?)),
        (true, None) => {
            let fact = format!("--out {} is not NAME=URL", word.display());
            Err(CliError::asked("run a program", fact))
        }
        (false, Some((url, name))) => Ok((name.into(), end(&url)?)),
        (false, None) => {
            let end = end(word)?;
            let url = places::url(sample(&end.text())?.as_ref())?;
            let name = url.file_name().map(os);
            let name = name.ok_or_else(|| {
                let fact = format!("{} has no last part that could be its name", word.display());
                CliError::asked("run a program", fact).next("say --in URL=NAME")
            })?;
            Ok((name.into(), end))
        }
    }
}

/// Reads one end of a file. Variables that no node has are refused.
fn end(word: &OsStr) -> Ran<End> {
    let Some(text) = word.to_str() else {
        return Ok(End::Here(word.into()));
    };
    let url = places::url(sample(text)?.as_ref())?;
    match url.is_local() {
        false => Ok(End::There(text.to_owned())),
        true => Ok(End::Here(match text.starts_with("file:") {
            true => url.as_path().to_owned(),
            false => text.into(),
        })),
    }
}

/// Returns where a stream is appended: at the node, or to a file of this machine.
fn stream(word: Option<&OsStr>) -> Ran<(Option<String>, Option<File>)> {
    match word.map(end).transpose()? {
        None => Ok((None, None)),
        Some(End::There(url)) => Ok((Some(url), None)),
        Some(End::Here(path)) => {
            let opened = File::options().append(true).create(true).open(&path);
            let failed = |cause| {
                let wanted = format!("append to {}", path.display());
                CliError::store(wanted, Error::io(&path, cause))
            };
            Ok((None, Some(opened.map_err(failed)?)))
        }
    }
}

/// Returns a text with something in place of each variable.
fn sample(text: &str) -> Ran<String> {
    let value = |name: &str| VARIABLES.contains(&name).then(|| "0".to_owned());
    filled(text, value).map_err(|name| {
        let fact = format!("no node has the variable ${{{name}}}");
        let known = VARIABLES.map(|name| format!("${{{name}}}")).join(" ");
        CliError::asked(format!("understand {text}"), fact).next(format!("they have {known}"))
    })
}

/// Processes that are under way at the same time.
const AT_ONCE: u64 = 64;
/// Failures that are told one by one.
const TOLD_MAX: u64 = 20;
const TASKS: &str = ".farm/tasks";
