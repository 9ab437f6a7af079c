//! Programs run where fragments lie; what they write becomes files in fragments, with the history of their making.

use crate::{Draft, Logical, Slot, Told, failed, now, sites::best};
use godwit_catalog::{Entry, Home, Input, Ran, Rank, Recipe, is_good};
use godwit_core::{BadUrl, Digest, Kind, Url};
use godwit_store::{Error, Result, door::Door, engine::Options};
use godwit_wire::door::{
    call::{Line, Name, Text},
    run::{AskRun, Placed, Word},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::Instant,
};

/// A program that is to run beside each fragment of a file.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// The name by which nodes and the history know it.
    pub id: String,
    /// The file.
    pub name: PathBuf,
    /// The program and its arguments.
    pub program: Vec<Word>,
    /// The file of which each program writes a fragment as `{out}`.
    pub out: Option<PathBuf>,
    /// The file of which each program prints a fragment.
    pub printed: Option<PathBuf>,
}

/// News of a job. A task's own end with [`Event::Over`].
#[derive(Debug)]
pub enum Event<'a> {
    /// A program wrote lines.
    Wrote(u64, Line),
    /// A program ended.
    Ended {
        /// The task.
        task: &'a Task,
        /// The node.
        node: &'a str,
        /// The nodes that were asked.
        attempts: usize,
        /// The exit status, or 128 and the number of the signal.
        status: i32,
    },
    /// A program could not be run, or its result does not count.
    Failed(u64, Error),
    /// All of a task was told.
    Over(u64),
}

/// Receives news of a job; an error ends the task.
pub type Tell<'a> = dyn Fn(Event<'_>) -> Result<()> + Sync + 'a;

/// A fragment, and the nodes that have it.
#[derive(Clone, Debug)]
pub struct Task {
    /// The index of the fragment.
    pub fragment: u64,
    /// The name of the fragment.
    pub name: PathBuf,
    /// The bytes of the file that it is.
    pub range: (u64, u64),
    /// The digest of these bytes, if it is known.
    pub digest: Option<Digest>,
    /// The homes that are tried, one after another.
    pub homes: Vec<Home>,
}

impl Logical {
    /// Returns a task for each fragment of a file. Of the homes of a fragment the one whose node has the fewest tasks
    /// so far comes first.
    pub fn tasks(&self, name: &Path) -> Result<Vec<Task>> {
        let entry = self.sites.file(name)?;
        // A file in one piece is its own only fragment.
        let parts = match entry.parts() {
            parts if parts.is_empty() => vec![entry],
            parts => parts,
        };
        let mut counts: HashMap<String, u64> = HashMap::new();
        let mut start = 0;
        let task = |(fragment, part): (u64, Entry)| {
            let mut homes: Vec<Home> = part
                .homes
                .iter()
                .filter(|home| is_good(home, &part))
                .cloned()
                .collect();
            homes.sort_by_key(|home| counts.get(&home.site).copied().unwrap_or_default());
            if let Some(first) = homes.first() {
                *counts.entry(first.site.clone()).or_default() += 1;
            }
            let range = (start, start + part.size.unwrap_or_default());
            start = range.1;
            Task {
                fragment,
                name: part.name.0.clone(),
                range,
                digest: best(&part.digests).cloned(),
                homes,
            }
        };
        Ok((0..).zip(parts).map(task).collect())
    }
}

/// A job that is under way.
struct Running<'a> {
    names: &'a Logical,
    job: &'a Job,
    asked: AskRun,
    /// The drafts of its outputs: of `{out}`, and of what is printed.
    drafts: [Option<Draft>; 2],
    /// True once a program failed whose output is needed.
    is_lost: AtomicBool,
    failed: AtomicUsize,
    ranks: Mutex<Vec<Rank>>,
    tell: &'a Tell<'a>,
}

impl Logical {
    /// Runs a job; returns the count of tasks that failed. Its outputs become visible together, if none did.
    pub fn run(&self, job: &Job, tell: &Tell<'_>) -> Result<usize> {
        let entry = self.sites.file(&job.name)?;
        let tasks = self.tasks(&job.name)?;
        let count = tasks.len() as u64;
        let draft = |name: &Option<PathBuf>| {
            let name = name.as_ref();
            name.map(|name| self.draft(name, count, None)).transpose()
        };
        let running = Running {
            names: self,
            job,
            asked: AskRun {
                fragments: count,
                job: job.id.clone(),
                program: job.program.clone(),
                ..AskRun::default()
            },
            drafts: [draft(&job.out)?, draft(&job.printed)?],
            is_lost: AtomicBool::new(false),
            failed: AtomicUsize::new(0),
            ranks: Mutex::default(),
            tell,
        };
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(task) = tasks.get(next.fetch_add(1, Relaxed)) {
                running.follow(task);
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(tasks.len()) {
                scope.spawn(work);
            }
        });
        let failed = running.failed.load(Relaxed);
        match failed {
            0 => running.publish(&entry).map(|()| 0),
            failed => Ok(failed),
        }
    }
}

impl Running<'_> {
    fn follow(&self, task: &Task) {
        let fragment = task.fragment;
        let is_wanted = self.drafts.iter().any(Option::is_some);
        let done = match self.is_lost.load(Relaxed) {
            true => Err(Error::Canceled),
            false => self.attempt(task),
        };
        if !matches!(done, Ok(0)) {
            self.failed.fetch_add(1, Relaxed);
            self.is_lost.fetch_or(is_wanted, Relaxed);
        }
        let told = match done {
            Err(error) => (self.tell)(Event::Failed(fragment, error)),
            Ok(_) => Ok(()),
        };
        if let Err(error) = told.and_then(|()| (self.tell)(Event::Over(fragment))) {
            tracing::warn!(fragment, %error, "news of a task were not taken");
        }
    }

    /// Runs a task at the first of its nodes that can; returns the exit status.
    fn attempt(&self, task: &Task) -> Result<i32> {
        let mut last = Error::missing(&task.name);
        for (before, home) in task.homes.iter().enumerate() {
            let (mut has_written, began) = (false, Instant::now());
            let ran = self.run_at(task, home, &mut |line| {
                has_written = true;
                (self.tell)(Event::Wrote(task.fragment, line))
            });
            let (status, digests) = match ran {
                Ok(ran) => ran,
                Err(error) => {
                    if error.kind() == Kind::Corrupt {
                        self.names.sites.mark(&task.name, home);
                    }
                    if has_written || matches!(error, Error::Canceled) {
                        // Lines that were told would come twice.
                        return Err(error);
                    }
                    last = error;
                    continue;
                }
            };
            self.ranks.lock().push(Rank {
                fragment: task.fragment,
                node: home.site.clone(),
                exit_status: status,
                took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                digests: digests.into_iter().map(Text).collect(),
            });
            (self.tell)(Event::Ended {
                task,
                node: &home.site,
                attempts: before + 1,
                status,
            })?;
            return Ok(status);
        }
        Err(last)
    }

    /// Runs a task beside a home, and publishes what it wrote within the drafts.
    fn run_at(
        &self,
        task: &Task,
        home: &Home,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<(i32, Vec<Digest>)> {
        let slot = |draft: &Option<Draft>| {
            let draft = draft.as_ref();
            draft
                .map(|draft| draft.slot(task.fragment, &home.site))
                .transpose()
        };
        let [out, printed] = &self.drafts;
        let outputs = Outputs {
            out: slot(out)?,
            printed: slot(printed)?,
        };
        let is_written = outputs.out.is_some() || outputs.printed.is_some();
        let asked = AskRun {
            fragment: task.fragment,
            digest: task.digest.clone().filter(|_| is_written).map(Text),
            ..self.asked.clone()
        };
        let options = self.names.sites.stores.options();
        let (status, placed) = outputs.run(home, &asked, options, each)?;
        let mut digests = Vec::new();
        for (slot, placed) in placed {
            slot.publish(placed.size, &placed.digest.0)?;
            digests.push(placed.digest.0);
        }
        Ok((status, digests))
    }

    /// Publishes all outputs, with the run that made them.
    fn publish(self, input: &Entry) -> Result<()> {
        let outputs = [&self.job.out, &self.job.printed].map(|name| name.clone().map(Name));
        let mut ranks = self.ranks.into_inner();
        ranks.sort_by_key(|rank| rank.fragment);
        let digests = match input.fragments.is_empty() {
            true => input.digests.clone(),
            false => input
                .fragments
                .iter()
                .filter_map(|one| one.digests.first().cloned())
                .collect(),
        };
        let ran = Ran {
            run: self.job.id.clone(),
            recipe: Recipe {
                argv: self.job.program.clone(),
                platform: platform(),
                umask: UMASK,
                ranks: ranks.len() as u64,
                inputs: vec![Input {
                    name: Name(self.job.name.clone()),
                    version: input.version,
                    whole: false,
                    digests,
                }],
                printed: self.job.out.is_none() && self.job.printed.is_some(),
                outputs: outputs.into_iter().flatten().collect(),
                ..Recipe::default()
            },
            who: who(),
            at_s: now().as_secs(),
            engine: "own".into(),
            ranks,
        };
        let made = self
            .drafts
            .into_iter()
            .flatten()
            .zip(0..)
            .map(|(draft, output)| {
                let made = Some((self.job.id.clone(), output));
                let told = Told {
                    made,
                    ..Told::default()
                };
                (draft, told)
            });
        Draft::publish(made.collect(), Some(ran))
    }
}

/// Places where a program writes, beside the file that it reads.
#[derive(Default)]
pub(crate) struct Outputs {
    /// The file that it writes as `{out}`.
    pub(crate) out: Option<Slot>,
    /// The file that gets its standard output.
    pub(crate) printed: Option<Slot>,
}

impl Outputs {
    /// Runs a program beside a home; returns its exit status, and each place with what lies there now.
    pub(crate) fn run(
        self,
        home: &Home,
        asked: &AskRun,
        options: &Options,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<(i32, Vec<(Slot, Placed)>)> {
        let path = |slot: &Option<Slot>| {
            let slot = slot.as_ref();
            slot.map(|slot| path_at(slot.url(), home)).transpose()
        };
        let asked = AskRun {
            out: path(&self.out)?,
            printed: path(&self.printed)?,
            ..asked.clone()
        };
        let (status, placed) = run_at(home, &asked, options, each)?;
        let mut written = Vec::new();
        for (slot, path) in [(self.out, &asked.out), (self.printed, &asked.printed)] {
            let mut all = placed.iter();
            let its = all.find(|one| Some(&one.path) == path.as_ref());
            match (slot, its) {
                (Some(slot), Some(placed)) => written.push((slot, placed.clone())),
                (Some(slot), None) => slot.abandon(),
                (None, _) => {}
            }
        }
        // The slots of a node that was lost stay: it may yet write there, and their leases end later.
        Ok((status, written))
    }
}

/// Returns the path of an output at the node of a home.
fn path_at(url: &Url, home: &Home) -> Result<Name> {
    let bad = |bad: BadUrl| Error::bad_name(&home.url, bad.to_string());
    let node: Url = home.url.parse().map_err(bad)?;
    match url.same_server(&node) {
        true => Ok(Name(url.as_path().into())),
        false => {
            let what = format!("writing {url} beside {node}");
            let why = "they are at different servers; name one for both: godwit location set";
            Err(Error::unsupported(what, why))
        }
    }
}

/// Returns the platform of this program, as recipes name it.
pub(crate) fn platform() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

fn who() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| "unknown".into());
    let host = godwit_sys::host_name().unwrap_or_else(|| "localhost".into());
    format!("{user}@{host}")
}

/// Runs a program beside a home, at its node; returns its exit status and what it wrote.
fn run_at(
    home: &Home,
    asked: &AskRun,
    options: &Options,
    each: &mut dyn FnMut(Line) -> Result<()>,
) -> Result<(i32, Vec<Placed>)> {
    let bad = |bad: BadUrl| Error::bad_name(&home.url, bad.to_string());
    let url: Url = home.url.parse().map_err(bad)?;
    let asked = AskRun {
        path: Name(url.as_path().into()),
        ..asked.clone()
    };
    let door = Door::open(&url, &options.remote())?;
    let (mut status, mut placed) = (None, Vec::new());
    let done = door.run(&asked, &mut |line| match line {
        Line::Ended(code) => {
            status = Some(code);
            Ok(())
        }
        Line::Placed(one) => {
            placed.push(one);
            Ok(())
        }
        Line::Beat(_) => Ok(()),
        line => each(line),
    })?;
    done.map_err(|refusal| failed(url.as_path(), refusal))?;
    let said = "it does not tell how the program ended";
    let status = status.ok_or_else(|| Error::misbehaved("a node", said))?;
    Ok((status, placed))
}

/// The most tasks that are under way at the same time.
const AT_ONCE: usize = 64;
/// The permission bits that files of programs lack, as nodes are usually started.
const UMASK: u32 = 0o022;
