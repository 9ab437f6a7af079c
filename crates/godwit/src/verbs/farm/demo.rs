//! `godwit farm demo`: a farm of some nodes on this machine, to try things on.

use crate::out::{CliError, Facts, Run, Screen, facts};
use clap::Args;
use godwit_sys::{end_detached, start_detached, user_id, user_name, wait_readable, why};
use serde_json::{Value, json};
use std::{
    env, fs,
    io::{self, Read},
    net::TcpListener,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Start a farm of some nodes on this machine
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit farm demo --nodes 2 --dir farm
  godwit farm demo --dir farm --stop

The nodes are called n1 to nN, and n1 has the catalog. DIR/nI/export is what node I serves.
Commands in a shell act as a user of node I after: . DIR/nI/env
--stop ends the nodes; their files stay, and the next start goes on with them.

Exit status: 0 all nodes serve; 1 one does not start: DIR/nI/log says why.")]
pub(crate) struct DemoArgs {
    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    nodes: u16,
    /// The directory of the farm
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The silence after which the copies of a node count as lost, in seconds
    #[arg(long, value_name = "S", default_value_t = 300)]
    down_after: u64,
    /// End the nodes
    #[arg(long)]
    stop: bool,
}

/// One node of the farm.
struct Node {
    name: String,
    dir: PathBuf,
    catalog: String,
    down_after: u64,
}

impl DemoArgs {
    pub(super) fn run(self, screen: &Screen) -> Run<Facts> {
        let dir = std::path::absolute(&self.dir).unwrap_or(self.dir.clone());
        let nodes: Vec<_> = (1..=self.nodes)
            .map(|at| Node::new(&dir, at, self.down_after))
            .collect();
        if self.stop {
            return stop(screen, &dir);
        }
        let first = nodes.first().map(|node| node.dir.clone());
        if let Some(running) = first.filter(|dir| dir.join("pid").exists()) {
            let fact = format!("{} has a farm that runs", running.display());
            let next = format!("godwit farm demo --stop --dir {}", self.dir.display());
            return Err(CliError::asked(WANTED, fact).next(next));
        }
        let (first, others) = nodes.split_first().expect("there is one at least");
        first.begin()?;
        for node in others {
            node.join(first)?;
        }
        // Each asks at its start which nodes there are.
        others.iter().try_for_each(Node::start)?;
        let dir = self.dir.display();
        screen.note(&format!(
            "{} nodes serve; . {dir}/n1/env makes this shell a user of n1; end them: godwit farm demo --stop --dir {dir}",
            nodes.len()
        ));
        Ok(facts([("nodes", nodes.len().into())]))
    }
}

impl Node {
    fn new(farm: &Path, at: u16, down_after: u64) -> Self {
        let name = format!("n{at}");
        let catalog = match at {
            1 => format!("sqlite:{}", farm.join("n1/names.db").display()),
            _ => "godwit://n1".into(),
        };
        Self {
            dir: farm.join(&name),
            name,
            catalog,
            down_after,
        }
    }

    /// Makes the node with the catalog, if it is new, and starts it.
    fn begin(&self) -> Run {
        if self.dir.join("env").exists() {
            return self.start();
        }
        self.make()?;
        self.say(&["-q", "catalog", "init"])?;
        self.start()?;
        let url = format!("godwit://{}/.farm", self.name);
        let words = ["-q", "location", "add", &self.name, &url, "grid:/"];
        self.say(&words).map(drop)
    }

    /// Makes the node, if it is new, and has it join the farm of the node with the catalog.
    fn join(&self, first: &Self) -> Run {
        if self.dir.join("env").exists() {
            return Ok(());
        }
        self.make()?;
        let invite = first.say(&["-q", "peers", "invite"])?;
        let words = ["-q", "farm", "join", invite.trim(), "--slots", SLOTS];
        self.say(&words).map(drop)
    }

    fn make(&self) -> Run {
        let export = self.dir.join("export");
        fs::create_dir_all(&export).map_err(|cause| cannot(&export, &cause))?;
        let port = free_port().map_err(|cause| cannot(&self.dir, &cause))?;
        let at = format!("127.0.0.1:{port}");
        let export = export.to_string_lossy().into_owned();
        self.say(&[
            "-q", "init", &self.name, "--export", &export, "--https", &at,
        ])?;
        let mut text = String::new();
        for (name, value) in self.environment() {
            text += &format!("export {name}='{}'\n", value.replace('\'', "'\\''"));
        }
        text += "unset XDG_CONFIG_HOME XDG_STATE_HOME XDG_CACHE_HOME\n";
        let env = self.dir.join("env");
        fs::write(&env, text).map_err(|cause| cannot(&env, &cause))
    }

    fn start(&self) -> Run {
        let log = self.dir.join("log");
        let opened = fs::File::create(&log).map_err(|cause| cannot(&log, &cause))?;
        let (mut said, saying) = io::pipe().map_err(|cause| cannot(&self.dir, &cause))?;
        let words = [
            "--json",
            "node",
            "--catalog",
            &self.catalog,
            "--site",
            &self.name,
        ];
        let mut command = self.command(&words);
        command.stdin(Stdio::null()).stdout(saying).stderr(opened);
        start_detached(&mut command).map_err(|cause| cannot(&self.dir, &cause))?;
        drop(command);
        let mut buffer = [0; 4096];
        let begun =
            wait_readable([said.as_fd()], STARTS_WITHIN).and_then(|[has_said]| match has_said {
                true => said.read(&mut buffer),
                false => Ok(0),
            });
        let line = &buffer[..begun.unwrap_or_default()];
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let pid = serde_json::from_slice::<Value>(line).ok();
        let pid = pid.and_then(|line| line["pid"].as_u64());
        let Some(pid) = pid else {
            let fact = format!("{} does not start", self.name);
            let next = format!("cat {}", log.display());
            return Err(CliError::found(WANTED, fact, 1).next(next));
        };
        let file = self.dir.join("pid");
        fs::write(&file, pid.to_string()).map_err(|cause| cannot(&file, &cause))
    }

    fn environment(&self) -> [(&'static str, String); 6] {
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        [
            ("HOME", path(self.dir.clone())),
            ("GODWIT_SOCKET", path(self.dir.join("socket"))),
            ("GODWIT_CATALOG", self.catalog.clone()),
            ("GODWIT_FARM_SLOTS", SLOTS.into()),
            ("GODWIT_FARM_DOWN_AFTER", self.down_after.to_string()),
            // Where root tries it, the nodes act as root does.
            ("GODWIT_PEERS_ACCOUNT", account()),
        ]
    }

    fn command(&self, words: &[&str]) -> Command {
        let ours = env::current_exe().unwrap_or_else(|_| "godwit".into());
        let mut command = Command::new(ours);
        command.args(words).envs(self.environment());
        for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
            command.env_remove(name);
        }
        command.current_dir(&self.dir);
        command
    }

    fn say(&self, words: &[&str]) -> Run<String> {
        let mut command = self.command(words);
        let done = command.stdin(Stdio::null()).output();
        let done = done.map_err(|cause| cannot(&self.dir, &cause))?;
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        let fact = format!("{}: godwit {}: {}", self.name, words.join(" "), said.trim());
        Err(CliError::found(WANTED, fact, 1))
    }
}

fn stop(screen: &Screen, dir: &Path) -> Run<Facts> {
    let mut stopped = 0;
    for at in 1..=NODES_MAX {
        let file = dir.join(format!("n{at}/pid"));
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        let pid = text.trim().parse::<u32>().ok();
        if let Some(pid) = pid.filter(|pid| is_node(*pid)) {
            end_detached(pid, ENDS_WITHIN).map_err(|cause| cannot(&file, &cause))?;
            stopped += 1;
        }
        fs::remove_file(&file).map_err(|cause| cannot(&file, &cause))?;
    }
    if !screen.json() {
        screen.note(&format!(
            "{stopped} nodes ended; their files stay in {}",
            dir.display()
        ));
    }
    Ok(facts([("nodes", json!(stopped))]))
}

/// Tells whether a process is a node of this program, and not another one that got its number.
fn is_node(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = words.split(|&byte| byte == 0).collect();
    words.contains(&&b"node"[..]) && words.contains(&&b"--site"[..])
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn cannot(path: &Path, cause: &io::Error) -> CliError {
    CliError::found(WANTED, format!("{}: {}", path.display(), why(cause)), 1)
}

fn account() -> String {
    let name = user_name(user_id());
    name.ok().flatten().unwrap_or_default()
}

/// Programs that each node runs at the same time.
const SLOTS: &str = "2";
const NODES_MAX: i64 = 64;
const WANTED: &str = "start a farm";
const STARTS_WITHIN: Duration = Duration::from_secs(20);
const ENDS_WITHIN: Duration = Duration::from_secs(20);
