//! Chooses the node that runs a task: one that has the fragment, else one that gets a copy of it.

use crate::Node;
use godwit_catalog::CatalogHome;
use godwit_core::{Digest, Fault};
use godwit_store::Error;
use parking_lot::{Condvar, Mutex};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

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
    pub homes: Vec<CatalogHome>,
}

/// The tasks of a job and the nodes that may run them.
pub(crate) struct Board {
    tasks: Arc<Vec<Task>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether a slow task may be run a second time elsewhere.
    may_repeat: bool,
}

struct State {
    nodes: BTreeMap<String, Load>,
    of: Vec<Progress>,
    /// How long tasks took that ended.
    took: Vec<Duration>,
    /// Whether all nodes have answered, or had the time to.
    is_known: bool,
    is_canceled: bool,
}

#[derive(Default)]
struct Load {
    slots: u64,
    busy: u64,
    /// True if it may get copies of fragments.
    is_open: bool,
    is_lost: bool,
}

#[derive(Default)]
struct Progress {
    running: Vec<(String, Instant)>,
    tried: BTreeSet<String>,
    is_over: bool,
    error: Option<Error>,
}

/// The next thing to do for a worker.
pub(crate) enum Turn {
    /// Runs the task of this index at a site that has its fragment.
    Run(usize, String),
    /// Copies its fragment to a site, and runs it there.
    Copy(usize, String),
    /// No node can run it, for this reason.
    Fail(usize, Error),
}

impl Board {
    pub(crate) fn new(tasks: Arc<Vec<Task>>, may_repeat: bool) -> Self {
        let state = State {
            nodes: BTreeMap::new(),
            of: tasks.iter().map(|_| Progress::default()).collect(),
            took: Vec::new(),
            is_known: false,
            is_canceled: false,
        };
        Self {
            tasks,
            state: Mutex::new(state),
            changed: Condvar::new(),
            may_repeat,
        }
    }

    /// Notes a node that answered.
    pub(crate) fn add(&self, node: &Node) {
        // A result would stay there, so a node that is drained only gives its fragments.
        if !node.is_up || node.is_draining && self.may_repeat {
            return;
        }
        let slots = node.slots.unwrap_or_default();
        let load = Load {
            // One that runs no programs says so when it is asked.
            slots: slots.max(1),
            busy: 0,
            is_open: slots > 0 && !node.is_draining,
            is_lost: false,
        };
        self.state.lock().nodes.insert(node.site.clone(), load);
        self.changed.notify_all();
    }

    /// Notes that no more nodes will answer.
    pub(crate) fn close(&self) {
        self.state.lock().is_known = true;
        self.changed.notify_all();
    }

    /// Ends the job: no task is begun any more.
    pub(crate) fn cancel(&self) {
        self.state.lock().is_canceled = true;
        self.changed.notify_all();
    }

    /// Waits for something to do; `None`: all tasks are over, or the job was canceled.
    pub(crate) fn next(&self) -> Option<Turn> {
        let mut state = self.state.lock();
        loop {
            let is_over = state.of.iter().all(|one| one.is_over);
            if is_over || state.is_canceled {
                return None;
            }
            if let Some(turn) = state.pick(&self.tasks, self.may_repeat) {
                return Some(turn);
            }
            self.changed.wait_for(&mut state, LOOKED_AGAIN);
        }
    }

    /// Tells whether the task is open still, and takes it: the first good result counts.
    pub(crate) fn claim(&self, task: usize) -> bool {
        let mut state = self.state.lock();
        !std::mem::replace(&mut state.of[task].is_over, true)
    }

    /// Tells whether the task has a result by now.
    pub(crate) fn is_over(&self, task: usize) -> bool {
        let state = self.state.lock();
        state.of[task].is_over || state.is_canceled
    }

    /// Returns how many sites were asked to run a task.
    pub(crate) fn attempts(&self, task: usize) -> usize {
        self.state.lock().of[task].tried.len()
    }

    /// Notes that a task ended at a site; `error`: it could not be run there.
    pub(crate) fn ended(&self, task: usize, site: &str, error: Option<Error>) {
        let mut state = self.state.lock();
        if let Some(node) = state.nodes.get_mut(site) {
            node.busy = node.busy.saturating_sub(1);
            let is_lost = error
                .as_ref()
                .is_some_and(|error| error.fault() != Fault::Lasting);
            node.is_lost |= is_lost;
        }
        let at = state.of[task]
            .running
            .iter()
            .position(|(other, _)| other == site);
        let began = at.map(|at| state.of[task].running.swap_remove(at).1);
        match (error, began) {
            (None, Some(began)) => state.took.push(began.elapsed()),
            // The first node's error explains more than those of later attempts.
            (Some(error), _) => drop(state.of[task].error.get_or_insert(error)),
            _ => {}
        }
        drop(state);
        self.changed.notify_one();
    }
}

impl State {
    fn pick(&mut self, tasks: &[Task], may_repeat: bool) -> Option<Turn> {
        let mut usable = self.nodes.values().filter(|node| !node.is_lost).peekable();
        if usable.peek().is_some() && usable.all(|node| node.busy >= node.slots) {
            // Every node has as much to do as it can.
            return None;
        }
        let waiting: Vec<usize> = (0..tasks.len())
            .filter(|at| !self.of[*at].is_over && self.of[*at].running.is_empty())
            .collect();
        // The tasks with the fewest nodes first: others have a choice later too.
        let mut local: Vec<(usize, usize, String)> = Vec::new();
        for at in &waiting {
            let sites = self.sites(&tasks[*at], *at);
            if let Some(site) = sites
                .iter()
                .filter(|site| self.is_free(site))
                .min_by_key(|site| Reverse(self.nodes[*site].slots - self.nodes[*site].busy))
            {
                local.push((sites.len(), *at, site.clone()));
            }
        }
        if let Some((_, at, site)) = local.into_iter().min() {
            return Some(self.begin(at, site, Turn::Run));
        }
        for at in &waiting {
            let is_stuck = self.is_known && self.sites(&tasks[*at], *at).is_empty();
            let has_copy = !tasks[*at].homes.is_empty();
            if is_stuck
                && has_copy
                && let Some(site) = self.open(*at)
            {
                return Some(self.begin(*at, site, Turn::Copy));
            }
            if is_stuck && !(has_copy && self.can_open(*at)) {
                self.of[*at].is_over = true;
                let name = &tasks[*at].name;
                let error = self.of[*at].error.take();
                return Some(Turn::Fail(
                    *at,
                    error.unwrap_or_else(|| Error::missing(name)),
                ));
            }
        }
        self.relieve(tasks, &waiting)
            .or_else(|| match may_repeat && waiting.is_empty() {
                true => self.repeat(tasks),
                false => None,
            })
    }

    fn begin(&mut self, at: usize, site: String, turn: fn(usize, String) -> Turn) -> Turn {
        let progress = &mut self.of[at];
        progress.tried.insert(site.clone());
        progress.running.push((site.clone(), Instant::now()));
        if let Some(node) = self.nodes.get_mut(&site) {
            node.busy += 1;
        }
        turn(at, site)
    }

    /// Returns the sites that have the fragment of a task and may run it.
    fn sites(&self, task: &Task, at: usize) -> Vec<String> {
        let tried = &self.of[at].tried;
        let sites = task.homes.iter().map(|home| &home.site);
        let is_usable = |site: &&String| {
            let node = self.nodes.get(*site);
            node.is_some_and(|node| !node.is_lost) && !tried.contains(*site)
        };
        let mut sites: Vec<String> = sites.filter(is_usable).cloned().collect();
        // A node that runs no programs is asked last, for its refusal.
        let runs = |site: &String| self.nodes[site].is_open;
        if sites.iter().any(runs) {
            sites.retain(runs);
        }
        sites
    }

    fn is_free(&self, site: &str) -> bool {
        let node = self.nodes.get(site);
        node.is_some_and(|node| !node.is_lost && node.busy < node.slots)
    }

    /// Returns the least busy site that may get a copy of the fragment of a task now.
    fn open(&self, at: usize) -> Option<String> {
        let free = self
            .nodes
            .iter()
            .filter(|(site, node)| node.is_open && self.is_free(site));
        let new = free.filter(|(site, _)| !self.of[at].tried.contains(*site));
        new.min_by_key(|(_, node)| node.busy)
            .map(|(site, _)| site.clone())
    }

    /// Tells whether a site may get a copy later.
    fn can_open(&self, at: usize) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.any(|(site, node)| node.is_open && !node.is_lost && !self.of[at].tried.contains(site))
    }

    /// Moves the last task of a node that has many waiting to one that has nothing to do.
    fn relieve(&mut self, tasks: &[Task], waiting: &[usize]) -> Option<Turn> {
        let mean = mean(&self.took).filter(|mean| *mean >= WORTH_A_COPY)?;
        let mut by_site: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for at in waiting {
            if let [site] = self.sites(&tasks[*at], *at).as_slice() {
                by_site.entry(site.clone()).or_default().push(*at);
            }
        }
        let (site, of) = by_site.into_iter().max_by_key(|(_, of)| of.len())?;
        let slots = self.nodes.get(&site)?.slots;
        if (of.len() as u64) < 2 * slots || mean.is_zero() {
            return None;
        }
        let last = *of.last()?;
        let open = self.open(last)?;
        Some(self.begin(last, open, Turn::Copy))
    }

    /// Runs a task a second time that takes much longer than the others did.
    fn repeat(&mut self, tasks: &[Task]) -> Option<Turn> {
        let mut took = self.took.clone();
        took.sort_unstable();
        let median = *took.get(took.len() / 2)?;
        let limit = (2 * median).max(SLOW);
        let slow = (0..tasks.len()).find(|at| {
            let progress = &self.of[*at];
            let is_slow =
                matches!(progress.running.as_slice(), [(_, began)] if began.elapsed() > limit);
            is_slow && !progress.is_over
        })?;
        let sites = self.sites(&tasks[slow], slow);
        let local = sites.into_iter().find(|site| self.is_free(site));
        match local {
            Some(site) => Some(self.begin(slow, site, Turn::Run)),
            None => {
                let site = self.open(slow)?;
                Some(self.begin(slow, site, Turn::Copy))
            }
        }
    }
}

fn mean(took: &[Duration]) -> Option<Duration> {
    let count = u32::try_from(took.len()).ok().filter(|count| *count > 0)?;
    Some(took.iter().sum::<Duration>() / count)
}

/// How often a worker looks for tasks that became slow.
const LOOKED_AGAIN: Duration = Duration::from_millis(200);
/// The mean time of tasks from which on one is moved to an idle node.
const WORTH_A_COPY: Duration = Duration::from_millis(500);
/// The time from which on a task may be slow.
const SLOW: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(sites: &[&[&str]]) -> Arc<Vec<Task>> {
        let home = |site: &&str| CatalogHome {
            site: (*site).into(),
            ..CatalogHome::default()
        };
        let task = |(fragment, sites): (u64, &&[&str])| Task {
            fragment,
            name: format!("f/#{fragment}.9").into(),
            range: (0, 1),
            digest: None,
            homes: sites.iter().map(home).collect(),
        };
        Arc::new((0..).zip(sites).map(task).collect())
    }

    fn node(site: &str, slots: u64) -> Node {
        Node {
            site: site.into(),
            is_up: true,
            slots: Some(slots),
            ..Node::default()
        }
    }

    fn run(board: &Board) -> (usize, String) {
        match board.next() {
            Some(Turn::Run(at, site)) => (at, site),
            Some(Turn::Copy(..)) => panic!("a copy was not needed"),
            Some(Turn::Fail(at, error)) => panic!("task {at}: {error}"),
            None => panic!("there are tasks"),
        }
    }

    #[test] //= FARM-22
    fn tasks_with_one_node_come_first() {
        let board = Board::new(tasks(&[&["a", "b"], &["a"]]), false);
        board.add(&node("a", 1));
        board.add(&node("b", 1));
        assert_eq!(run(&board), (1, "a".into()));
        assert_eq!(run(&board), (0, "b".into()));
    }

    #[test] //= FARM-22
    fn lost_node_hands_its_task_on() {
        let board = Board::new(tasks(&[&["a", "b"]]), false);
        board.add(&node("a", 1));
        let (at, site) = run(&board);
        board.add(&node("b", 1));
        board.close();
        board.ended(at, &site, Some(Error::Canceled));
        assert_eq!(run(&board), (0, "b".into()));
        board.ended(0, "b", Some(Error::Canceled));
        assert!(matches!(board.next(), Some(Turn::Fail(0, _))));
        assert!(board.next().is_none());
    }

    #[test] //= FARM-22
    fn fragment_of_no_usable_node_is_copied() {
        let board = Board::new(tasks(&[&["a"]]), false);
        board.add(&node("a", 0));
        board.add(&node("b", 1));
        board.close();
        // The node says itself that it runs none; then the fragment goes elsewhere.
        let (at, site) = run(&board);
        assert_eq!(site, "a");
        board.ended(at, &site, Some(Error::missing("program")));
        assert!(matches!(board.next(), Some(Turn::Copy(0, site)) if site == "b"));
    }

    #[test]
    fn first_result_counts() {
        let board = Board::new(tasks(&[&["a"]]), true);
        board.add(&node("a", 1));
        run(&board);
        assert!(board.claim(0) && !board.claim(0) && board.is_over(0));
    }
}
