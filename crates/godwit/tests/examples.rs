//! Executes every example of every verb's help, and every command of the README and the guide.

#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Node, Said, Scratch, as_prepared, farm::END_USERS, godwit};
use std::{
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

const VERBS: [&str; 35] = [
    "cp",
    "mv",
    "sync",
    "ls",
    "find",
    "du",
    "stat",
    "cat",
    "catalog",
    "register",
    "unregister",
    "locate",
    "publish",
    "replicate",
    "audit",
    "rule",
    "location",
    "link",
    "attr",
    "farm",
    "history",
    "run",
    "sum",
    "mkdir",
    "rm",
    "node",
    "config",
    "ca",
    "proxy",
    "auth",
    "cluster",
    "version",
    "help",
    "completions",
    "man",
];

#[test]
fn every_example_of_the_help_works() {
    let (template, examples) = (Template::new(), examples());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(example) = examples.get(next.fetch_add(1, Relaxed)) {
            let place = Place::new(&template);
            let of_names = [
                "grid:/",
                "godwit audit",
                "farm drain",
                "farm return",
                "farm nodes",
            ];
            if of_names.iter().any(|word| example.contains(word)) {
                NAMES.iter().for_each(|line| place.run(line));
            }
            let is_of_farm = example.contains("farm verify");
            let wants_nodes = ["godwit run --on ", "godwit farm leave"];
            let wants_nodes = wants_nodes.iter().any(|word| example.starts_with(word));
            let is_mounted = example.contains(" /godwit/");
            if is_mounted && !common::can_mount() {
                continue;
            }
            if is_of_farm {
                SELECTION.iter().for_each(|line| place.run(line));
            }
            if wants_nodes {
                place.run("godwit farm demo --nodes 2 --dir farm");
            }
            match (is_of_farm || wants_nodes, is_mounted) {
                (true, _) => place.run(&format!("{ENV}{example}")),
                (_, true) => place.run(&format!("{OWN_NODE}{example}; {END_NODE}")),
                _ => place.run(example),
            }
            if is_of_farm || wants_nodes || example.contains("farm demo --nodes") {
                place.run(&format!("{END_USERS}; godwit farm demo --stop --dir farm"));
            }
        }
    };
    // They wait most of the time, for programs that start and end.
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
}

/// Returns the examples of all verbs and of the commands below them.
fn examples() -> Vec<String> {
    let mut pages: Vec<Vec<String>> = VERBS.map(|verb| vec![verb.to_owned()]).into();
    let mut all = Vec::new();
    while let Some(verb) = pages.pop() {
        let help = Said::of(godwit().args(&verb).arg("--help")).ok();
        let help = String::from_utf8(help.stdout).unwrap();
        let (_, rest) = help
            .split_once("Examples:\n")
            .unwrap_or_else(|| panic!("{verb:?}: {help}"));
        let (_, below) = help.split_once("\nCommands:\n").unwrap_or_default();
        let below = below.lines().take_while(|line| line.starts_with("  "));
        let below = below.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        // Verbs of the local node are not run, and an invite works once.
        let is_tried = |word: &str| verb[0] != "node" && (&*verb[0], word) != ("farm", "join");
        let below = below.filter(|word| !word.is_empty() && is_tried(word));
        pages.extend(below.map(|word| vec![verb[0].clone(), word.to_owned()]));
        let examples = rest.lines().take_while(|line| line.starts_with("  "));
        let count = all.len();
        all.extend(examples.map(|example| example.trim().to_owned()));
        assert!(all.len() > count, "{verb:?} has no examples");
    }
    all
}

/// Pages whose commands are run, and how many commands there are at least. Pages of one row continue each other.
const GUIDE: [(&[&str], usize); 9] = [
    (&["README.md"], 2),
    (&["docs/guide/getting-started.md"], 6),
    (&["docs/guide/installing.md"], 4),
    (&["docs/guide/copying.md"], 12),
    (&["docs/guide/serving.md"], 3),
    (&["docs/guide/security.md"], 5),
    (&["docs/guide/ways-in.md"], 2),
    (&["docs/guide/running.md"], 5),
    (
        &[
            "docs/guide/names.md",
            "docs/guide/copies.md",
            "docs/guide/sharing-names.md",
            "docs/guide/farm.md",
        ],
        39,
    ),
];

/// The commands of this page need an MPI; `crates/capi/tests/mpi.rs` runs programs as it does.
const NEEDS_MPI: &str = "docs/guide/mpi.md";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A page whose commands begin with `$ ` is in [`GUIDE`].
#[test]
fn every_command_page_runs() {
    let pages = std::fs::read_dir(root().join("docs/guide")).unwrap();
    for page in pages.map(|page| page.unwrap().path()) {
        let name = page.strip_prefix(root()).unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        let has_commands = text.lines().any(|line| line.starts_with("$ "));
        let is_run = GUIDE.iter().any(|(pages, _)| pages.contains(&name));
        assert!(!has_commands || is_run || name == NEEDS_MPI, "{name}");
    }
}

#[test]
fn commands_of_readme_and_guide_work() {
    let template = Template::new();
    for (pages, least) in GUIDE {
        let texts = pages
            .iter()
            .map(|page| std::fs::read_to_string(root().join(page)).unwrap());
        let text: String = texts.collect();
        let commands = text.lines().filter_map(|line| line.strip_prefix("$ "));
        let place = Place::new(&template);
        let mut count = 0;
        // The node of the place is the one that the page starts.
        for command in commands.filter(|command| !command.starts_with("godwit node --")) {
            count += 1;
            let command = command.replace("127.0.0.1:2811", "fermi.example");
            let is_mounted = command.contains(" /godwit/");
            if !is_mounted {
                place.run(&command);
            } else if common::can_mount() {
                place.run(&format!("{OWN_NODE}{command}; {END_NODE}"));
            }
        }
        place.run(END_USERS);
        assert!(count >= least, "{pages:?}: {count} commands");
    }
}

/// An authority, a user whom it knows, a proxy, rights and a catalog, for the verbs about them.
const PREPARED: [&str; 5] = [
    "godwit catalog init --catalog sqlite:names.db",
    "godwit ca init lab --key ec",
    "godwit ca issue lab alice --key ec",
    "godwit proxy init --cert usercert.pem --key-kind ec --out proxy.pem",
    "printf '[[rule]]\nwho = \"anyone\"\nmay = \"read\"\nunder = \"/data\"' > rights.toml",
];

/// Makes the words of a user of a farm count.
const ENV: &str = ". farm/n1/env; ";

/// Starts a node of the place alone: that of other examples has the names of another catalog.
const OWN_NODE: &str = "set -e; export GODWIT_SOCKET=$PWD/socket GODWIT_STATE=$PWD/state; ";
const END_NODE: &str = "godwit push --timeout 30; godwit node stop";

/// A file that a program made on a farm.
const SELECTION: [&str; 3] = [
    "godwit farm demo --nodes 1 --dir farm",
    ". farm/n1/env; seq 9 > nine; godwit mkdir grid:/run7; godwit farm import nine grid:/run7/nine",
    ". farm/n1/env; godwit farm run --stdout grid:/run7/sel grid:/run7/nine -- sort {in}",
];

/// A catalog whose collection `run7` has files and locations at the node.
const NAMES: [&str; 13] = [
    "godwit catalog init",
    "godwit location add lab ftp://fermi.example/lab grid:/run7",
    "godwit location add archive ftp://fermi.example/archive grid:/run7",
    "godwit location add cluster ftp://fermi.example/cluster grid:/run7",
    "godwit location add old-disk ftp://fermi.example/old-disk grid:/run7",
    "printf a | godwit cp - grid:/run7/a",
    "printf b | godwit cp - grid:/run7/b",
    "printf old > old.db; printf new > calib.db",
    "godwit publish old.db grid:/run7/calib.db --to lab",
    "godwit replicate grid:/run7 --to archive",
    "godwit replicate grid:/run7 --to old-disk",
    "godwit mkdir grid:/best grid:/2026",
    "godwit rule add grid:/run7 copies=1",
];

/// Returns the example of `godwit help config`.
const MODULE: &str = "[modules.first]\n\
    command = [\"/usr/bin/head\", \"-c\", \"{}\"]\n\
    parameters = \"[0-9]\"\n\
    about = \"the first bytes, as many as told\"\n";

/// Files that the examples speak of, some for a node and some here.
struct Template(Scratch);

impl Template {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (export, here) = (scratch.dir("export"), scratch.dir("here"));
        fill(&export);
        fill(&here);
        Said::of(shell("tar cf data.tar data").current_dir(&export)).ok();
        let sums = ["godwit sum -r data > data.b3"];
        for line in PREPARED.iter().chain(&sums) {
            Said::of(shell(line).current_dir(&here)).ok();
        }
        std::fs::write(scratch.join("node.toml"), MODULE).unwrap();
        Self(scratch)
    }
}

/// A copy of the template, and a node that serves its part.
struct Place {
    scratch: Scratch,
    node: Node,
}

impl Place {
    fn new(template: &Template) -> Self {
        let scratch = Scratch::new();
        let mut copy = Command::new("cp");
        copy.arg("-aT").args([template.0.path(), scratch.path()]);
        Said::of(&mut copy).ok();
        let config = scratch.join("node.toml");
        let config = config.to_str().unwrap();
        let more = ["--anonymous", "write", "--config", config];
        let node = Node::with(&scratch.join("export"), &more);
        Self { scratch, node }
    }

    #[track_caller]
    fn run(&self, example: &str) {
        let here = self.scratch.join("here");
        let url = self.node.url("");
        let path = format!("ftp:127.0.0.1:{}/", self.node.port);
        let text = example.replace("ftp://fermi.example/", &url);
        let text = text.replace("ftp:fermi.example/", &path);
        if text.starts_with("godwit node --") {
            return self.serve(&text);
        }
        let said = Said::of(
            shell(&format!("set -o pipefail; {text}"))
                .current_dir(&here)
                .env(
                    "GODWIT_CATALOG",
                    format!("sqlite:{}", here.join("grid.db").display()),
                )
                .stdin(Stdio::null()),
        );
        assert_eq!(said.status, Some(0), "{example}: {said}");
    }

    /// A node says where it serves, serves, and ends in order when told to.
    fn serve(&self, example: &str) {
        let text = format!("exec {}", example.replace(":2811", ":0"));
        let mut command = shell(&text);
        command.current_dir(self.scratch.join("here"));
        let node = Node::spawn(command, &self.scratch.join("here/data"));
        node.signal("TERM");
        let mut node = node;
        assert!(
            node.ends_within(Duration::from_secs(10)),
            "{example} does not end"
        );
    }
}

/// A shell in which `godwit` is the program under test.
fn shell(text: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_godwit"));
    let path = std::env::var("PATH").unwrap();
    let mut command = as_prepared(Command::new("timeout"), &godwit());
    command.args(["60", "bash", "-c", text]);
    command.env(
        "PATH",
        format!("{}:{path}", binary.parent().unwrap().display()),
    );
    command
}

fn fill(directory: &Path) {
    for (name, size_bytes) in [
        ("run7.root", 3_000_000),
        ("notes.txt", 100),
        ("readme.txt", 50),
        ("old.root", 10),
        ("data/run7.root", 2_000_000),
        ("data/small/a", 0),
        ("data/small/b", 4096),
        ("2025/x/y", 10),
        ("2026/run8.root", 1_500_000),
        ("old/x", 10),
    ] {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, common::noise(size_bytes, 7)).unwrap();
    }
}
