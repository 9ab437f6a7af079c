//! Runs programs beside fragments; their output becomes files in fragments, with a history.

use crate::{
    Engine, FileDraft, FileFacts, FragmentSlot, Kept, Logical,
    engine::Start,
    now,
    scheduling::{Board, Task, Turn},
    sites::{CopyAim, best},
    writing::no_location,
};
use godwit_catalog::{CatalogEntry, CatalogHome, Input, Location, Ran, Recipe, RunRank, is_good};
use godwit_core::{BadUrl, Fault, Kind, Url};
use godwit_store::{Error, Result, door::Door, engine::CopyOptions, refused};
use godwit_sys::platform;
use godwit_wire::door::{
    call::{self, Line, Name, Refusal, Text},
    run::{AskRun, Placed, Word},
    staging::Staging,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// A program to run beside each fragment of a file, or a number of times.
#[derive(Clone, Debug, Default)]
pub struct FarmJob {
    /// The name by which nodes and the history know it.
    pub id: String,
    /// The file; empty: none.
    pub name: PathBuf,
    /// The count of tasks, if there is no file.
    pub ranks: u64,
    /// The program and its arguments.
    pub program: Vec<Word>,
    /// The program, if the catalog keeps it ([`Logical::keep`]).
    pub kept: Kept,
    /// Further files that lie beside each program ([`Logical::with`]).
    pub with: Vec<Input>,
    /// The file of which each program writes a fragment as `{out}`.
    pub out: Option<PathBuf>,
    /// The file of which each program prints a fragment.
    pub printed: Option<PathBuf>,
    /// The way in which the programs are started.
    pub engine: Engine,
}

/// News of a job. A task's own end with [`FarmEvent::Over`].
#[derive(Debug)]
pub enum FarmEvent {
    /// A program wrote lines.
    Wrote(u64, Line),
    /// A program ended.
    Ended {
        /// The index of the fragment.
        fragment: u64,
        /// The node.
        node: String,
        /// The length of the fragment.
        bytes: u64,
        /// True if the fragment was copied to that node first.
        is_copied: bool,
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

/// Receives news of a job; an error ends it.
pub type EventSink<'a> = dyn FnMut(FarmEvent) -> Result<()> + 'a;

impl Logical {
    /// Returns a task for each fragment of a file. Of the homes of a fragment the one whose node has the fewest tasks
    /// so far comes first.
    pub fn tasks(&self, name: &Path) -> Result<Vec<Task>> {
        let entry = self.sites.file(name)?;
        let parts = entry.into_pieces();
        let mut counts: HashMap<String, u64> = HashMap::new();
        let mut start = 0;
        let task = |(fragment, part): (u64, CatalogEntry)| {
            let mut homes: Vec<CatalogHome> = part
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

impl Logical {
    /// Returns tasks without a file, each of which any site of a collection may run.
    fn tasks_anywhere(&self, ranks: u64, collection: &Path) -> Result<Vec<Task>> {
        let homes = self.anywhere(collection)?;
        let task = |fragment| Task {
            fragment,
            name: PathBuf::new(),
            range: (0, 0),
            digest: None,
            homes: homes.clone(),
        };
        Ok((0..ranks).map(task).collect())
    }

    /// Returns the places of a collection where a task without a file may run; they have no path.
    pub(crate) fn anywhere(&self, collection: &Path) -> Result<Vec<CatalogHome>> {
        let locations = self.sites.locations(collection, None)?;
        if locations.is_empty() {
            return Err(no_location(&CopyAim::default(), collection));
        }
        let home = |location: Location| CatalogHome {
            location: location.location,
            site: location.site,
            url: location.url,
            ..CatalogHome::default()
        };
        Ok(locations.into_iter().map(home).collect())
    }

    /// Returns site and host of the home at which a task of each fragment would run; `None`: no site has it.
    pub fn hosts(&self, name: &Path) -> Result<Vec<Option<(String, String)>>> {
        let hosts = self.sites.hosts(name.parent().unwrap_or(Path::new("")))?;
        let tasks = self.tasks(name)?.into_iter();
        let host = |task: Task| {
            let home = task.homes.into_iter().next()?;
            let host = hosts.get(&home.location).unwrap_or(&home.site).clone();
            Some((home.site, host))
        };
        Ok(tasks.map(host).collect())
    }
}

/// A job that is under way.
struct RunningJob {
    names: Logical,
    job: FarmJob,
    asked: AskRun,
    tasks: Arc<Vec<Task>>,
    board: Board,
    /// The hosts of locations, as far as attributes tell them.
    hosts: HashMap<u64, String>,
    /// The drafts of its outputs: of `{out}`, and of standard output.
    drafts: Mutex<[Option<FileDraft>; 2]>,
    ranks: Mutex<Vec<RunRank>>,
    recipe: Recipe,
    /// The message about the program for each site's node, after the program was copied.
    ready: Mutex<HashMap<String, Arc<Mutex<Option<Staging>>>>>,
}

impl FarmJob {
    fn has_file(&self) -> bool {
        !self.name.as_os_str().is_empty()
    }

    /// Returns the collection whose sites run the tasks.
    fn collection(&self) -> &Path {
        let name = self.has_file().then_some(&self.name);
        let mut names = name.into_iter().chain(&self.out).chain(&self.printed);
        let above = names.next().and_then(|name| name.parent());
        above.unwrap_or(Path::new(""))
    }

    /// Returns the words by which its outputs can be computed again.
    fn recipe(&self, input: Option<&CatalogEntry>) -> Recipe {
        let outputs = [&self.out, &self.printed].map(|name| name.clone().map(Name));
        let of_file = input.map(|input| Input {
            name: Name(self.name.clone()),
            version: input.version,
            whole: false,
            digests: match input.fragments.is_empty() {
                true => input.digests.clone(),
                false => input
                    .fragments
                    .iter()
                    .filter_map(|one| one.digests.first().cloned())
                    .collect(),
            },
        });
        Recipe {
            argv: self.program.clone(),
            program: self.kept.program.clone(),
            programs: self.kept.programs.clone(),
            platform: platform(),
            umask: UMASK,
            ranks: input.map_or(self.ranks, |input| input.parts().len().max(1) as u64),
            inputs: of_file
                .into_iter()
                .chain(self.with.iter().cloned())
                .collect(),
            printed: self.out.is_none() && self.printed.is_some(),
            outputs: outputs.into_iter().flatten().collect(),
            ..Recipe::default()
        }
    }
}

impl Logical {
    /// Runs a job; returns the count of tasks that failed. Its outputs become visible together, if none did.
    pub fn run(&self, job: &FarmJob, tell: &mut EventSink<'_>) -> Result<usize> {
        let above = job.collection();
        let (entry, tasks) = match job.has_file() {
            false => (None, self.tasks_anywhere(job.ranks, above)?),
            true => {
                let entry = self.sites.file(&job.name)?;
                let mut tasks = self.tasks(&job.name)?;
                if tasks.iter().any(|task| task.homes.is_empty()) {
                    self.make(&job.name)?;
                    tasks = self.tasks(&job.name)?;
                }
                self.must_fit(&job.kept, &tasks, above)?;
                (Some(entry), tasks)
            }
        };
        let tasks = Arc::new(tasks);
        let count = tasks.len() as u64;
        let draft = |name: &Option<PathBuf>| {
            let name = name.as_ref();
            name.map(|name| self.draft(name, count, None)).transpose()
        };
        let hosts = match job.engine {
            Engine::Own => HashMap::new(),
            _ => self.sites.hosts(above)?,
        };
        let drafts = [draft(&job.out)?, draft(&job.printed)?];
        let is_wanted = drafts.iter().any(Option::is_some);
        let running = Arc::new(RunningJob {
            names: self.clone(),
            job: job.clone(),
            hosts,
            asked: AskRun {
                fragments: count,
                job: job.id.clone(),
                program: job.program.clone(),
                ..AskRun::default()
            },
            // Lines of two attempts would be told twice.
            board: Board::new(tasks.clone(), is_wanted),
            tasks,
            drafts: Mutex::new(drafts),
            ranks: Mutex::default(),
            recipe: job.recipe(entry.as_ref()),
            ready: Mutex::default(),
        });
        // A worker may hang at its node and be left behind, so none of them borrows.
        let (news, heard) = sync_channel(NEWS_MAX);
        let workers = AT_ONCE.min(2 * running.tasks.len());
        for _ in 0..workers {
            let (running, news) = (running.clone(), news.clone());
            thread::spawn(move || running.work(&news));
        }
        drop(news);
        let asking = running.clone();
        let above = above.to_owned();
        thread::spawn(move || {
            let asked = asking
                .names
                .ask_nodes(&above, &mut |node| asking.board.add(&node));
            if let Err(error) = asked {
                tracing::warn!(%error, "the nodes cannot be asked how they are");
            }
            asking.board.close();
        });
        let (mut failed, mut over) = (0, 0);
        let mut told = Ok(());
        while over < count
            && let Ok(event) = heard.recv()
        {
            let is_failure = matches!(&event, FarmEvent::Failed(..))
                || matches!(&event, FarmEvent::Ended { status, .. } if *status != 0);
            failed += usize::from(is_failure);
            over += u64::from(matches!(event, FarmEvent::Over(_)));
            told = told.and_then(|()| tell(event));
            if told.is_err() || is_failure && is_wanted {
                break;
            }
        }
        running.board.cancel();
        if told.is_ok() && failed == 0 {
            return running.publish().map(|()| 0);
        }
        // Tasks in flight are discarded with their bytes, unless a node hangs.
        let until = Instant::now() + GIVEN_UP_WITHIN;
        let left = || until.saturating_duration_since(Instant::now());
        while heard.recv_timeout(left()).is_ok() {}
        drop(std::mem::take(&mut *running.drafts.lock()));
        told.map(|()| failed)
    }
}

impl RunningJob {
    /// Does what there is to do, until there is nothing more.
    fn work(&self, news: &SyncSender<FarmEvent>) {
        let tell = |event| news.send(event).map_err(|_| Error::Canceled);
        while let Some(turn) = self.board.next() {
            let done = match turn {
                Turn::Run(at, site) => self.attempt(at, &site, false, &tell),
                Turn::Copy(at, site) => self.attempt(at, &site, true, &tell),
                Turn::Fail(at, error) => {
                    let fragment = self.tasks[at].fragment;
                    tell(FarmEvent::Failed(fragment, error))
                        .and_then(|()| tell(FarmEvent::Over(fragment)))
                }
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// Runs a task at a site, which gets a copy of the fragment first if it has none. An error: the receiver of news has gone.
    fn attempt(
        &self,
        at: usize,
        site: &str,
        is_copied: bool,
        tell: &dyn Fn(FarmEvent) -> Result<()>,
    ) -> Result<()> {
        let (task, began) = (&self.tasks[at], Instant::now());
        let (mut has_written, mut is_deaf) = (false, false);
        let home = self.home(task, site, is_copied);
        let ready = home.and_then(|home| Ok((self.bring(&home)?, home)));
        let (staging, home) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                self.board.ended(at, site, Some(error));
                return Ok(());
            }
        };
        let ran = self.run_at(task, (&home, staging), &mut |line| {
            // The other attempt was faster.
            if self.board.is_over(at) {
                return Err(Error::Canceled);
            }
            if matches!(line, Line::Beat(_)) {
                return Ok(());
            }
            has_written = true;
            let told = tell(FarmEvent::Wrote(task.fragment, line));
            is_deaf = told.is_err();
            told
        });
        if ran
            .as_ref()
            .is_err_and(|error| error.kind() == Kind::Corrupt)
        {
            self.names.sites.mark(&task.name, &home);
        }
        if is_deaf {
            return Err(Error::Canceled);
        }
        let (status, written) = match ran {
            Ok(ran) => ran,
            // Lines that were told would come twice, and another node would say the same of the program.
            Err(error) if (has_written || is_of_program(&error)) && self.board.claim(at) => {
                self.board.ended(at, site, None);
                tell(FarmEvent::Failed(task.fragment, error))?;
                return tell(FarmEvent::Over(task.fragment));
            }
            Err(error) => {
                self.board.ended(at, site, Some(error));
                return Ok(());
            }
        };
        if !self.board.claim(at) {
            self.board.ended(at, site, None);
            written.into_iter().for_each(|(slot, _)| slot.abandon());
            return Ok(());
        }
        let mut digests = Vec::new();
        let mut published = Ok(());
        for (slot, placed) in written {
            published = published.and_then(|()| slot.publish(placed.size, &placed.digest.0));
            digests.push(placed.digest);
        }
        self.ranks.lock().push(RunRank {
            fragment: task.fragment,
            node: site.into(),
            exit_status: status,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            digests,
        });
        self.board.ended(at, site, None);
        tell(match published {
            Ok(()) => FarmEvent::Ended {
                fragment: task.fragment,
                node: site.into(),
                bytes: task.range.1 - task.range.0,
                is_copied,
                attempts: self.board.attempts(at),
                status,
            },
            Err(error) => FarmEvent::Failed(task.fragment, error),
        })?;
        tell(FarmEvent::Over(task.fragment))
    }

    /// Returns the home of a task at a site; makes it first by a copy.
    fn home(&self, task: &Task, site: &str, is_copied: bool) -> Result<CatalogHome> {
        if !is_copied {
            let home = task.homes.iter().find(|home| home.site == site);
            return home.cloned().ok_or_else(|| Error::missing(&task.name));
        }
        self.names.copy_to(site, &task.name)?;
        let part = self.names.sites.file(&task.name)?;
        let mut homes = part.homes.iter();
        let home = homes.find(|home| home.site == site && is_good(home, &part));
        home.cloned().ok_or_else(|| Error::missing(&task.name))
    }

    /// Runs a task beside a home; returns its status, and its output as drafts.
    fn run_at(
        &self,
        task: &Task,
        (home, staging): (&CatalogHome, Staging),
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<(i32, Vec<(FragmentSlot, Placed)>)> {
        let outputs = {
            let drafts = self.drafts.lock();
            let slot = |draft: &Option<FileDraft>| {
                let draft = draft.as_ref();
                let slot = draft.map(|draft| draft.slot(task.fragment, &home.site));
                slot.transpose()
            };
            let [out, printed] = &*drafts;
            TaskOutputs {
                out: slot(out)?,
                printed: slot(printed)?,
            }
        };
        let asked = AskRun {
            fragment: task.fragment,
            digest: task.digest.clone().map(Text),
            staging,
            ..self.asked.clone()
        };
        let host = self.hosts.get(&home.location).unwrap_or(&home.site);
        let start = self.job.engine.start(host)?;
        let options = self.names.sites.stores.options();
        outputs.run(home, &asked, (options, start.as_ref()), each)
    }

    /// Brings the program to the node of a home, once; returns the message for that node.
    fn bring(&self, home: &CatalogHome) -> Result<Staging> {
        let ready = self
            .ready
            .lock()
            .entry(home.site.clone())
            .or_default()
            .clone();
        let mut ready = ready.lock();
        match &*ready {
            Some(staging) => Ok(staging.clone()),
            None => Ok(ready.insert(self.names.bring(&self.recipe, home)?).clone()),
        }
    }

    /// Publishes all outputs, with the run that made them.
    fn publish(&self) -> Result<()> {
        let mut ranks = std::mem::take(&mut *self.ranks.lock());
        ranks.sort_by_key(|rank| rank.fragment);
        let ran = Ran {
            run: self.job.id.clone(),
            recipe: self.recipe.clone(),
            who: who(),
            at_s: now().as_secs(),
            engine: self.job.engine.to_string(),
            ranks,
        };
        let drafts = std::mem::take(&mut *self.drafts.lock());
        let made = drafts
            .into_iter()
            .flatten()
            .zip(0..)
            .map(|(draft, output)| {
                let made = Some((self.job.id.clone(), output));
                let told = FileFacts {
                    made,
                    ..FileFacts::default()
                };
                (draft, told)
            });
        FileDraft::publish(made.collect(), Some(ran))
    }
}

/// Tells whether an error is about the program, not about the node or its copy of the fragment.
fn is_of_program(error: &Error) -> bool {
    let is_of_node = matches!(
        error.kind(),
        Kind::Denied | Kind::Corrupt | Kind::Missing | Kind::NoSpace
    );
    error.fault() == Fault::Lasting && !is_of_node
}

/// How nodes are reached, and what starts a task if its node does not.
pub(crate) type By<'a> = (&'a CopyOptions, Option<&'a Start>);

/// Returns the error for a refusal of a node, with its next command.
fn said_by(node: &Url, mut refusal: Refusal) -> Error {
    if let Some(next) = refusal.next.take() {
        refusal.said = format!("{}; {next}", refusal.said);
    }
    if refusal.kind == Kind::Invalid {
        refusal.said = format!("{} says: {}", node.host_port(), refusal.said);
    }
    refused(&node.host_port(), node.as_path(), refusal)
}

/// Places where a program writes, beside the file that it reads.
#[derive(Default)]
pub(crate) struct TaskOutputs {
    /// The file that it writes as `{out}`.
    pub(crate) out: Option<FragmentSlot>,
    /// The file that gets its standard output.
    pub(crate) printed: Option<FragmentSlot>,
}

impl TaskOutputs {
    /// Runs a program beside a home; returns its exit status, and each place with its file.
    pub(crate) fn run(
        self,
        home: &CatalogHome,
        asked: &AskRun,
        by: By<'_>,
        each: &mut dyn FnMut(Line) -> Result<()>,
    ) -> Result<(i32, Vec<(FragmentSlot, Placed)>)> {
        let path = |slot: &Option<FragmentSlot>| {
            let slot = slot.as_ref();
            slot.map(|slot| path_at(slot.url(), home)).transpose()
        };
        let asked = AskRun {
            out: path(&self.out)?,
            printed: path(&self.printed)?,
            ..asked.clone()
        };
        let (status, placed) = run_at(home, &asked, by, each)?;
        let mut written = Vec::new();
        for (slot, path) in [(self.out, &asked.out), (self.printed, &asked.printed)] {
            let mut all = placed.iter();
            let its = all.find(|one| Some(&one.path) == path.as_ref());
            match (slot, its) {
                (Some(slot), Some(placed)) => {
                    if by.1.is_some() {
                        slot.must_have(placed.size)?;
                    }
                    written.push((slot, placed.clone()));
                }
                (Some(slot), None) => slot.abandon(),
                (None, _) => {}
            }
        }
        // The slots of a node that was lost stay: it may yet write there, and their leases end later.
        Ok((status, written))
    }
}

/// Returns the path of an output at the node of a home.
fn path_at(url: &Url, home: &CatalogHome) -> Result<Name> {
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

fn who() -> String {
    let user = godwit_sys::user_name(godwit_sys::user_id());
    let user = user.ok().flatten().unwrap_or_else(|| "unknown".into());
    let host = godwit_sys::host_name().unwrap_or_else(|| "localhost".into());
    format!("{user}@{host}")
}

/// Runs a program beside a home, at its node; returns its exit status and its output.
fn run_at(
    home: &CatalogHome,
    asked: &AskRun,
    (options, start): By<'_>,
    each: &mut dyn FnMut(Line) -> Result<()>,
) -> Result<(i32, Vec<Placed>)> {
    let bad = |bad: BadUrl| Error::bad_name(&home.url, bad.to_string());
    let url: Url = home.url.parse().map_err(bad)?;
    let has_file = !home.path.0.as_os_str().is_empty();
    let path = if has_file {
        url.as_path()
    } else {
        Path::new("")
    };
    let asked = AskRun {
        path: Name(path.into()),
        ..asked.clone()
    };
    let (mut status, mut placed) = (None, Vec::new());
    let mut hear = |line| match line {
        Line::Ended(code) => {
            status = Some(code);
            Ok(())
        }
        Line::Placed(one) => {
            placed.push(one);
            Ok(())
        }
        Line::Error(refusal) => Err(said_by(&url, refusal)),
        line => each(line),
    };
    match start {
        Some(start) => start.run(call::write(&asked), &options.cancel, &mut hear)?,
        None => {
            let done = Door::open(&url, &options.remote())?.run(&asked, &mut hear)?;
            done.map_err(|refusal| said_by(&url, refusal))?;
        }
    }
    let said = "it does not tell how the program ended";
    let status = status.ok_or_else(|| Error::misbehaved("a node", said))?;
    Ok((status, placed))
}

/// The most tasks that are under way at the same time.
const AT_ONCE: usize = 64;
/// How long a job that failed waits for its other tasks.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(2);
/// How much news of a job may wait for its receiver.
const NEWS_MAX: usize = 256;
/// The permission bits that files of programs lack, as nodes are usually started.
const UMASK: u32 = 0o022;
