//! Random sequences of operations on three names, while the target is away, loses answers or blocks, and the node is
//! killed. A name always shows the last operation on it. When all is well again, the target has exactly that and
//! nothing is pending.
//!
//! A seed decides everything but threads. `GODWIT_ORDERS=FROM..TO` runs those seeds and prints each failing sequence.
//! Without it a few seeds run.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Far, by, bytes, over, read, url, who};
use godwit_depot::{Depot, Edit, Ended, Fresh, Reading, Scope};
use godwit_store::{Defect, Error as StoreError};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["a", "b", "c"];
const SIZES: [usize; 7] = [0, 5, 9, 100, 4096, 70_000, 200_000];
/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(20);
const ACTS: u64 = 40;
const SIDE_BY_SIDE: usize = 6;

fn main() -> ExitCode {
    if let Ok(home) = std::env::var("GODWIT_ORDERS_HOME") {
        serve(Path::new(&home));
        return ExitCode::SUCCESS;
    }
    let asked = std::env::var("GODWIT_ORDERS").unwrap_or("1..60".into());
    let (from, to) = asked.split_once("..").unwrap();
    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
    let (next, failed) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, SeqCst);
                    if seed >= to {
                        return;
                    }
                    if let Err(why) = run(seed) {
                        println!("seed {seed}: {why}\n");
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!(
        "orders: {} of {} failed: {failed:?}",
        failed.len(),
        to - from
    );
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// The expected contents of each name.
type Model = BTreeMap<&'static str, Vec<u8>>;

/// Random numbers from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// The child process that owns the depot.
struct Node {
    child: Child,
    to: ChildStdin,
    from: Receiver<String>,
}

impl Node {
    fn start(home: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env("GODWIT_ORDERS_HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(
                fs::File::options()
                    .create(true)
                    .append(true)
                    .open(home.join("told"))
                    .unwrap(),
            )
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, from_it) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(from).lines().map_while(Result::ok);
            lines.for_each(|line| drop(tell.send(line)));
        });
        Self {
            child,
            to,
            from: from_it,
        }
    }

    fn say(&mut self, words: &str) {
        let _ = writeln!(self.to, "{words}");
    }

    /// Sends a request and returns its answer; an error is returned as text.
    fn ask(&mut self, words: &str) -> Result<(), String> {
        self.say(words);
        let line = match self.from.recv_timeout(LIMIT * 2) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => return Err("HUNG".into()),
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err("the node ended".into()),
        };
        match line.trim_end().split_once(' ') {
            None if line.trim_end() == "ok" => Ok(()),
            Some(("no", why)) => Err(why.into()),
            _ => Err(format!("the node ended: {line}")),
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// One run of a seed.
struct Run {
    home: TempDir,
    chance: Chance,
    node: Option<Node>,
    /// Possible states; there are several after a kill during a request.
    models: Vec<Model>,
    done: Vec<String>,
    is_away: bool,
    content: u64,
}

fn run(seed: u64) -> Result<(), String> {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("far")).unwrap();
    let mut run = Run {
        chance: Chance(seed),
        node: Some(Node::start(home.path())),
        home,
        models: vec![Model::new()],
        done: Vec::new(),
        is_away: false,
        content: seed << 20,
    };
    let outcome = run.all();
    if let Some(node) = run.node.take() {
        node.kill();
    }
    outcome.map_err(|why| {
        let told = fs::read_to_string(run.home.path().join("told")).unwrap_or_default();
        format!("{why}\n  {}\n{told}", run.done.join("\n  "))
    })
}

impl Run {
    fn all(&mut self) -> Result<(), String> {
        for _ in 0..ACTS {
            self.act()?;
        }
        for good in ["open", "away 0", "lose 0"] {
            self.ask(good)?;
        }
        self.is_away = false;
        self.compare()?;
        self.ask("push")?;
        self.ask("idle")?;
        self.compare()?;
        let mut there = Model::new();
        for name in NAMES {
            if let Ok(found) = fs::read(self.home.path().join("far").join(name)) {
                there.insert(name, found);
            }
        }
        match there == self.models[0] {
            true => Ok(()),
            false => Err(format!(
                "there is {}, and not {}",
                words(&there),
                words(&self.models[0])
            )),
        }
    }

    fn ask(&mut self, what: &str) -> Result<(), String> {
        let outcome = self.node.as_mut().unwrap().ask(what);
        self.done.push(match &outcome {
            Ok(()) => what.into(),
            Err(why) => format!("{what}: {why}"),
        });
        outcome.map_err(|why| format!("{what}: {why}"))
    }

    fn act(&mut self) -> Result<(), String> {
        let name = self.chance.of(&NAMES);
        let size = self.chance.of(&SIZES);
        match self.chance.below(30) {
            0..5 => self.change(&format!("put {name} {size}"), |model, content| {
                model.insert(name, content[..size].into());
            }),
            5..10 => {
                let (at, size) = (self.chance.of(&SIZES), size.max(1));
                self.change(&format!("into {name} {size} {at}"), |model, content| {
                    write(model.entry(name).or_default(), &content[..size], at);
                })
            }
            10..13 => {
                let at = self.chance.of(&SIZES);
                self.change(&format!("edit {name} {size} {at}"), |model, content| {
                    write(model.entry(name).or_default(), &content[..size], at);
                })
            }
            13..17 => {
                let to = self.chance.of(&NAMES);
                if name == to || !self.models.iter().all(|model| model.contains_key(name)) {
                    return Ok(());
                }
                self.change(&format!("rename {name} {to}"), |model, _| {
                    let moved = model.remove(name).unwrap();
                    model.insert(to, moved);
                })
            }
            17 => {
                if !self.models.iter().all(|model| model.contains_key(name)) {
                    return Ok(());
                }
                self.change(&format!("unlink {name}"), |model, _| {
                    model.remove(name);
                })
            }
            18 => {
                if !self.models.iter().all(|model| model.contains_key(name)) {
                    return Ok(());
                }
                self.change(&format!("cut {name} {size}"), |model, _| {
                    model.get_mut(name).unwrap().resize(size, 0);
                })
            }
            19..21 => {
                self.is_away = self.chance.below(2) == 0;
                self.ask(&format!("away {}", u8::from(self.is_away)))
            }
            21 => {
                let what = self
                    .chance
                    .of(&["finish", "publish", "landed", "verb 1", "verb 2", "verb 4"]);
                self.ask(&format!("trouble {what}"))
            }
            22 => {
                let many = 1 + self.chance.below(8);
                self.ask(&format!("lose {many}"))
            }
            23 => {
                let (gate, long) = (self.chance.of(&["write", "flush"]), self.chance.below(300));
                self.ask(&format!("shut {gate} {name} {long}"))
            }
            24 => self.ask("open"),
            25 => {
                let _ = self.ask(&format!("hold {name}"));
                Ok(())
            }
            26 => self.ask("leave"),
            27 => {
                self.restart();
                self.compare()
            }
            _ => self.compare(),
        }
    }

    /// Makes a change, and sometimes kills the node meanwhile.
    fn change(&mut self, what: &str, change: impl Fn(&mut Model, &[u8])) -> Result<(), String> {
        self.content += 1;
        let what = format!("{what} {}", self.content);
        let content = bytes(*SIZES.last().unwrap(), self.content);
        let changed = |models: &[Model]| -> Vec<Model> {
            let mut changed = models.to_vec();
            changed.iter_mut().for_each(|model| change(model, &content));
            changed
        };
        // A kill during an edit may leave a part of it.
        if !what.starts_with("edit") && self.chance.below(12) == 0 {
            self.node.as_mut().unwrap().say(&what);
            thread::sleep(Duration::from_micros(self.chance.below(20_000)));
            self.done.push(format!("{what}: killed meanwhile"));
            let maybe = changed(&self.models);
            self.models.extend(maybe);
            self.restart();
            return self.compare();
        }
        match self.ask(&what) {
            Ok(()) => {
                self.models = changed(&self.models);
                Ok(())
            }
            // The operation needs the target, which is away.
            Err(why) if is_passing(&why) => {
                let maybe = changed(&self.models);
                self.models.extend(maybe);
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    fn restart(&mut self) {
        self.node.take().unwrap().kill();
        self.done.push("kill".into());
        self.node = Some(Node::start(self.home.path()));
        if self.is_away {
            let _ = self.ask("away 1");
        }
    }

    /// Compares each name with the possible states, and drops states that differ.
    fn compare(&mut self) -> Result<(), String> {
        for name in NAMES {
            let found = match self.ask(&format!("read {name}")) {
                Ok(()) => Some(fs::read(self.home.path().join("found")).unwrap()),
                Err(why) if why.contains("NOTHING") => None,
                Err(why) if is_passing(&why) => continue,
                Err(why) => return Err(why),
            };
            let before = self.models.clone();
            self.models
                .retain(|model| model.get(name) == found.as_ref());
            if self.models.is_empty() {
                let before: Vec<_> = before.iter().map(words).collect();
                let found = found.map_or("nothing".into(), |found| word(&found));
                return Err(format!(
                    "{name} is {found}; may be: {}",
                    before.join(" or ")
                ));
            }
        }
        Ok(())
    }
}

fn is_passing(why: &str) -> bool {
    why.contains("PASSING")
}

fn write(content: &mut Vec<u8>, bytes: &[u8], at: usize) {
    if bytes.is_empty() {
        return;
    }
    let end = at + bytes.len();
    content.resize(content.len().max(end), 0);
    content[at..end].copy_from_slice(bytes);
}

fn words(model: &Model) -> String {
    let all: Vec<_> = model
        .iter()
        .map(|(name, content)| format!("{name}: {}", word(content)))
        .collect();
    format!("{{{}}}", all.join(", "))
}

fn word(content: &[u8]) -> String {
    let mut sum = 0u32;
    content
        .iter()
        .for_each(|byte| sum = sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    let first: Vec<_> = content
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{} bytes {sum:08x} {}", content.len(), first.join(""))
}

/// The child process: it obeys one request a line.
fn serve(home: &Path) {
    let far = far(home);
    let depot = Depot::open(&home.join("depot"), common::rules(), far.connect()).unwrap();
    let mut node = Serving {
        home: home.into(),
        lost: far.loses_all(0),
        far,
        depot,
        readers: Vec::new(),
    };
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        // A server that has lost its disk answers "missing" to everything.
        let was_lost = node.lost.load(SeqCst) > 0;
        match node.does(&words) {
            Ok(()) => println!("ok"),
            Err(why) if was_lost => println!(
                "no {}",
                why.replace("NOTHING", "PASSING").replace('\n', " ")
            ),
            Err(why) => println!("no {}", why.replace('\n', " ")),
        }
        io::stdout().flush().unwrap();
    }
}

/// The target's directory outlives this process.
fn far(home: &Path) -> Far {
    let dir = tempfile::Builder::new()
        .disable_cleanup(true)
        .tempdir_in(home)
        .unwrap();
    fs::remove_dir(dir.path()).unwrap();
    std::os::unix::fs::symlink(home.join("far"), dir.path()).unwrap();
    Far::at(dir)
}

struct Serving {
    home: PathBuf,
    lost: Arc<AtomicU64>,
    far: Far,
    depot: Depot,
    readers: Vec<Reading>,
}

impl Serving {
    fn does(&mut self, words: &[&str]) -> Result<(), String> {
        let number = |nth: usize| words[nth].parse::<u64>().unwrap();
        let content = || bytes(*SIZES.last().unwrap(), number(words.len() - 1));
        match words {
            ["put", name, size, _] => {
                let writing = self.depot.put(&url(name), &who(), &over()).map_err(told)?;
                let size: usize = size.parse().unwrap();
                writing.write(0, &content()[..size]).map_err(told)?;
                writing.end().map(drop).map_err(told)
            }
            ["into", name, size, at, _] => {
                let writing = self.depot.patch(&url(name), &who(), "").map_err(told)?;
                let size: usize = size.parse().unwrap();
                writing
                    .write(at.parse().unwrap(), &content()[..size])
                    .map_err(told)?;
                writing.end().map(drop).map_err(told)
            }
            ["edit", name, size, at, _] => {
                let edit = Edit {
                    create: true,
                    ..Edit::default()
                };
                let editing = self.depot.edit(&url(name), &who(), &edit).map_err(told)?;
                let size: usize = size.parse().unwrap();
                editing
                    .file()
                    .unwrap()
                    .write_all_at(&content()[..size], at.parse().unwrap())
                    .unwrap();
                match editing.end().map_err(told)? {
                    Ended::Last(_) => Ok(()),
                    Ended::Open => Err("another writer is reported".into()),
                }
            }
            ["rename", name, to, _] => self.depot.rename(&url(name), &url(to), by()).map_err(told),
            ["unlink", name, _] => self.depot.unlink(&url(name), by()).map_err(told),
            ["cut", name, size, _] => self
                .depot
                .truncate(&url(name), size.parse().unwrap(), by())
                .map_err(told),
            ["read", name] => {
                let found = read(&self.depot, name).map_err(told)?;
                fs::write(self.home.join("found"), found).unwrap();
                Ok(())
            }
            ["hold", name] => {
                let reading = self
                    .depot
                    .read(&url(name), &who(), Fresh::Usual)
                    .map_err(told)?;
                self.readers.push(reading);
                Ok(())
            }
            ["leave"] => {
                self.readers.clear();
                Ok(())
            }
            ["away", is] => {
                self.far.set_away(*is == "1");
                Ok(())
            }
            ["trouble", what @ ..] => {
                self.far.trouble(match what {
                    ["finish"] => Defect::LosesFinish,
                    ["publish"] => Defect::LosesPublish,
                    ["landed"] => Defect::LosesLanded,
                    _ => Defect::LosesVerb(number(2)),
                });
                Ok(())
            }
            ["lose", many] => {
                self.lost.store(many.parse().unwrap(), SeqCst);
                Ok(())
            }
            ["shut", gate, name, _] => {
                self.gate(gate).shut(name);
                // A reader waits while the target changes the file.
                let (lot, long) = (self.far.lot(), Duration::from_millis(number(3)));
                thread::spawn(move || {
                    thread::sleep(long);
                    lot.write_gate.open();
                    lot.flush_gate.open();
                });
                Ok(())
            }
            ["open"] => {
                ["read", "write", "flush"]
                    .iter()
                    .for_each(|gate| self.gate(gate).open());
                Ok(())
            }
            ["push"] => self.depot.push(&Scope::All, Some(LIMIT)).map_err(|error| {
                let lost = self.lost.load(SeqCst);
                format!("{}; lost {lost}, {:#?}", told(error), self.depot.queue())
            }),
            ["idle"] => {
                let until = Instant::now() + LIMIT;
                while !self.depot.queue().is_empty() {
                    if Instant::now() > until {
                        return Err(format!("pending: {:?}", self.depot.queue()));
                    }
                    thread::park_timeout(Duration::from_millis(5));
                }
                Ok(())
            }
            other => Err(format!("what is {other:?}?")),
        }
    }

    fn gate(&self, gate: &str) -> &common::Gate {
        match gate {
            "write" => &self.far.write_gate,
            _ => &self.far.flush_gate,
        }
    }
}

/// Turns an error into text: "absent", or "the target could not be asked".
fn told(error: godwit_depot::Error) -> String {
    let what = match &error {
        godwit_depot::Error::Store(store) => match **store {
            StoreError::Missing { .. } => "NOTHING",
            // The file was truncated or renamed at the target during the fetch.
            StoreError::Incomplete { .. } => "PASSING",
            _ if store.fault() != godwit_core::Fault::Lasting => "PASSING",
            _ => "",
        },
        // Until the promised change is done at the target.
        godwit_depot::Error::Busy { .. } | godwit_depot::Error::Restless { .. } => "PASSING",
        _ => "",
    };
    format!("{what} {error} ({error:?})")
}
