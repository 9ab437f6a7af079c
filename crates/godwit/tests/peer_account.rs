//! The depot of an account of another machine, asked through the door of a node that root started there. Only root can
//! run these; for others they are skipped.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Machine, Node, Said, Scratch, as_prepared, skip};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// An account, as the node sees it in whose namespace it is.
struct Account {
    uid: u32,
    /// A group that it is in besides its own.
    more: u32,
    home: PathBuf,
    program: PathBuf,
}

impl Account {
    /// One that nothing else on this machine uses.
    fn new(scratch: &Scratch, program: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let uid = 40_000 + process::id() % 2_000 * 10 + COUNT.fetch_add(1, Relaxed);
        let account = Self {
            uid,
            more: uid - 20_000,
            home: scratch.dir("home"),
            program: program.into(),
        };
        chown(&account.home, Some(uid), Some(uid)).unwrap();
        let (home, more) = (account.home.display(), account.more);
        let passwd = format!("root:x:0:0::/root:/bin/sh\nvisited:x:{uid}:{uid}::{home}:/bin/sh\n");
        fs::write(scratch.join("passwd"), passwd).unwrap();
        let group = format!("root:x:0:\nvisited:x:{uid}:\nmore:x:{more}:visited\n");
        fs::write(scratch.join("group"), group).unwrap();
        account
    }

    /// Where programs of this account look for their node.
    fn folder(&self) -> PathBuf {
        format!("/tmp/godwit-{}", self.uid).into()
    }

    /// A program of this account, after its login.
    fn says(&self, words: &[&str]) -> Said {
        let id = self.uid;
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={id}"), format!("--regid={id}")])
            .arg("--clear-groups")
            .arg(&self.program)
            .args(words)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.home)
            .current_dir("/");
        Said::of(&mut command)
    }

    #[track_caller]
    fn well(&self, words: &[&str]) -> String {
        let said = self.says(words);
        assert_eq!(said.status, Some(0), "{words:?}: {said}");
        String::from_utf8(said.stdout).unwrap()
    }

    /// Returns what it keeps of a file.
    #[track_caller]
    fn kept(&self, url: &str) -> Value {
        kept(&self.well(&["--json", "cache", "stat", url]))
    }

    /// Returns the process that is its node.
    #[track_caller]
    fn node(&self) -> u64 {
        let told = self.well(&["--json", "node", "status"]);
        let told: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
        told["pid"].as_u64().unwrap()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let stopped = self.says(&["node", "stop"]);
        let _ = fs::remove_dir_all(self.folder());
        assert!(
            stopped.status == Some(0) || std::thread::panicking(),
            "{stopped}"
        );
    }
}

/// A server with files; a cluster whose node root started; and a laptop that has an account there.
struct World<'a> {
    _lab: Machine<'a>,
    cluster: Machine<'a>,
    laptop: Machine<'a>,
    account: Account,
}

impl<'a> World<'a> {
    /// `None` if this machine cannot run it, with a message.
    fn new(scratch: &'a Scratch) -> Option<Self> {
        let mount = "mount --bind \"$0\" /etc/passwd && mount --bind \"$1\" /etc/group";
        let files = ["passwd", "group"].map(|name| scratch.file(name, 1));
        if common::run(5, "id", ["-u"]).stdout != b"0\n" {
            skip("acting for others needs root");
            return None;
        }
        let mut tried = Command::new("unshare");
        tried.args(["-m", "sh", "-c", mount]).args(&files);
        if !tried.output().is_ok_and(|said| said.status.success()) {
            skip("a table of accounts of one's own needs unshare -m");
            return None;
        }
        let program = program(scratch);
        let account = Account::new(scratch, &program);
        scratch.file("data/f", 300_000);
        scratch.file("data/g", 1000);
        let machine = |name| Machine::new(scratch, name);
        let [mut lab, cluster, laptop] = ["lab", "cluster", "laptop"].map(machine);
        let mut cluster = cluster.with_program(Some(&program));
        lab.serve("lab", &scratch.join("data"));
        let export = scratch.dir("export");
        fs::set_permissions(&export, fs::Permissions::from_mode(0o777)).unwrap();
        cluster.init("cluster", &export);
        account.well(&["join", &lab.invite(), "--name", "visited"]);
        let variables = [
            ("GODWIT_NODE_RIGHTS", rights(scratch)),
            ("GODWIT_SOCKET", scratch.join("cluster.run/socket")),
            ("GODWIT_STATE", scratch.join("cluster.local")),
            ("GODWIT_SECRET", "of root".into()),
            ("SLURM_JOB_ID", "7".into()),
        ];
        let mut node = cluster.command(&["node", "--ftp", "127.0.0.1:0", "--json"]);
        node.envs(variables).env("GODWIT_LOG", "debug");
        let inside = format!("{mount} && shift && umask 077 && exec \"$@\"");
        let mut command = as_prepared(Command::new("unshare"), &node);
        command.args(["-m", "sh", "-c", &inside]).args(&files);
        command.arg(node.get_program()).args(node.get_args());
        cluster.node = Some(Node::spawn(command, &cluster.home));
        let as_account = account.uid.to_string();
        let invite = cluster.well(&["-q", "peers", "invite", "--as", &as_account]);
        laptop.well(&["join", invite.trim(), "--name", "laptop"]);
        Some(Self {
            _lab: lab,
            cluster,
            laptop,
            account,
        })
    }

    fn says(&self, words: &[&str]) -> Said {
        let mut command = self.laptop.command(words);
        let run = self.laptop.home.join("run");
        command
            .env("GODWIT_SOCKET", run.join("socket"))
            .env("GODWIT_STATE", self.laptop.home.join("local"))
            .env_remove("GODWIT_SESSION");
        Said::of(&mut command)
    }

    #[track_caller]
    fn well(&self, words: &[&str]) -> String {
        let said = self.says(words);
        let log = self.cluster.log();
        assert_eq!(said.status, Some(0), "{words:?}: {said}\n{log}");
        String::from_utf8(said.stdout).unwrap()
    }

    #[track_caller]
    fn refused(&self, words: &[&str], (status, why): (i32, &str)) {
        let said = self.says(words);
        let log = self.cluster.log();
        assert_eq!(said.status, Some(status), "{words:?}: {said}\n{log}");
        assert!(said.stderr.contains(why), "{words:?}: {said}");
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        let stopped = self.says(&["node", "stop"]);
        assert!(
            stopped.status == Some(0) || std::thread::panicking(),
            "{stopped}"
        );
    }
}

/// The program, where every account may begin it.
fn program(scratch: &Scratch) -> PathBuf {
    let (ours, seen) = (
        env!("CARGO_BIN_EXE_godwit"),
        scratch.dir("bin").join("godwit"),
    );
    if fs::hard_link(ours, &seen).is_err() {
        fs::copy(ours, &seen).unwrap();
    }
    seen
}

fn rights(scratch: &Scratch) -> PathBuf {
    let rules = "[[rule]]\nwho = \"anyone\"\nmay = \"all\"\n\
                 [[rule]]\nwho = \"/O=godwit/OU=peer/CN=laptop\"\nmay = \"stage\"\nunder = \"/godwit/lab\"\n";
    let file = scratch.join("rights");
    fs::write(&file, rules).unwrap();
    file
}

fn kept(told: &str) -> Value {
    let mut lines = told.lines().map(|line| serde_json::from_str(line).unwrap());
    let kept = lines.find(|line: &Value| line["event"] == "kept");
    kept.unwrap_or_else(|| panic!("nothing is kept: {told}"))
}

fn status(process: u64, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_once(':').unwrap().1.trim().replace('\t', " ")
}

/// Returns all files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push(path),
        }
    }
    all
}

const F: &str = "godwit://lab/f";
const ON: [&str; 2] = ["--on", "cluster"];

#[test] //= peer-cache#which-depot
fn peer_stages_for_its_account() {
    let scratch = Scratch::new();
    let Some(world) = World::new(&scratch) else {
        return;
    };
    let account = &world.account;
    world.well(&["stage", ON[0], ON[1], "--tag", "night", F]);
    let theirs = kept(&world.well(&["--json", "cache", "stat", ON[0], ON[1], F]));
    assert_eq!(theirs["tags"], serde_json::json!(["night"]));
    let listed = kept(&world.well(&["--json", "cache", "ls", ON[0], ON[1]]));
    assert_eq!(listed["url"], F);

    // It came once, and a program of the account reads it without another transfer.
    let read = account.home.join("read");
    account.well(&["get", F, read.to_str().unwrap()]);
    common::assert_same(&read, &scratch.join("data/f"));
    let kept = account.kept(F);
    assert_eq!(
        (&kept["transfers"], &kept["present_bytes"]),
        (&1.into(), &300_000.into()),
        "{kept}"
    );
    assert!(kept["tags"].to_string().contains("laptop: night"), "{kept}");
    let depot = account.home.join(".local/state/godwit/local");
    let lie = files(&depot);
    assert!(
        lie.iter()
            .any(|file| file.metadata().unwrap().len() == 300_000)
    );
    for file in lie {
        let meta = file.metadata().unwrap();
        let owner = (meta.uid(), meta.gid());
        assert_eq!(owner, (account.uid, account.uid), "{}", file.display());
    }
    assert!(!scratch.join("cluster.local").exists());

    // A tag that one program removed is gone for all.
    world.well(&["unstage", ON[0], ON[1], "--tag", "night", F]);
    assert_eq!(account.kept(F)["tags"], serde_json::json!([]));
}

#[test] //= peer-cache#which-depot
fn account_node_starts_like_login() {
    let scratch = Scratch::new();
    let Some(world) = World::new(&scratch) else {
        return;
    };
    let account = &world.account;
    world.well(&["stage", ON[0], ON[1], F]);
    let node = account.node();
    let ids = [account.uid.to_string().as_str(); 4].join(" ");
    assert_eq!(
        (status(node, "Uid"), status(node, "Gid")),
        (ids.clone(), ids)
    );
    let groups = format!("{} {}", account.more, account.uid);
    assert_eq!(status(node, "Groups"), groups);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(node, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(node, "NoNewPrivs"), "1");
    assert_eq!(status(node, "Umask"), "0022");
    let cwd = fs::read_link(format!("/proc/{node}/cwd")).unwrap();
    assert_eq!(cwd, Path::new("/"));
    let environment = fs::read(format!("/proc/{node}/environ")).unwrap();
    let environment: BTreeSet<String> = environment
        .split(|&byte| byte == 0)
        .filter(|variable| !variable.is_empty())
        .map(|variable| String::from_utf8(variable.to_vec()).unwrap())
        .collect();
    let expected = [
        format!("GODWIT_BIN={}", account.program.display()),
        format!("HOME={}", account.home.display()),
        "LOGNAME=visited".to_owned(),
        "PATH=/usr/local/bin:/usr/bin:/bin".to_owned(),
        "SHELL=/bin/sh".to_owned(),
        "USER=visited".to_owned(),
    ];
    assert_eq!(environment, BTreeSet::from(expected));
    // A running node is asked, and no second one is started.
    world.well(&["cache", "df", ON[0], ON[1]]);
    assert_eq!(account.node(), node);
    account.well(&["node", "stop"]);
    world.well(&["stage", ON[0], ON[1], F]);
    assert_ne!(account.node(), node);
    assert_eq!(account.kept(F)["transfers"], 1);
}

#[test] //= peer-cache#which-depot
fn failed_account_node_names_remedy() {
    let scratch = Scratch::new();
    let Some(world) = World::new(&scratch) else {
        return;
    };
    let account = &world.account;
    let bin = account.program.parent().unwrap();
    fs::set_permissions(bin, fs::Permissions::from_mode(0o700)).unwrap();
    let why = "bin/godwit: permission denied";
    world.refused(&["stage", ON[0], ON[1], F], (1, why));
    fs::set_permissions(bin, fs::Permissions::from_mode(0o755)).unwrap();
    world.well(&["stage", ON[0], ON[1], F]);
}

/// A node that knows no peer clients, and reports after each connection what was asked.
const OLDER: &str = r#"
import json, os, signal, socket, struct, sys
signal.alarm(60)
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
os.makedirs(os.path.dirname(sys.argv[1]), 0o700, True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
while True:
    peer, _ = listener.accept()
    stream, asked = peer.makefile("rwb"), []
    while lengths := stream.read(8):
        head, body = struct.unpack("<II", lengths)
        said = json.loads(stream.read(head))
        stream.read(body)
        asked.append(said["ask"])
        tell = {"hello": {"version": 1}} if len(asked) == 1 else {"status": {}}
        told = json.dumps({"n": said["n"], "tell": tell}).encode()
        stream.write(struct.pack("<II", len(told), 0) + told)
        stream.flush()
    print(json.dumps(asked[1:]), flush=True)
"#;

#[test]
fn older_account_node_is_refused() {
    if !common::have("python3") {
        return skip("there is no python3");
    }
    let scratch = Scratch::new();
    let Some(world) = World::new(&scratch) else {
        return;
    };
    let account = &world.account;
    let mut older = Command::new("python3")
        .args([
            "-c",
            OLDER,
            account.folder().join("socket").to_str().unwrap(),
        ])
        .arg(account.uid.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(older.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "listens");
    let why = "it is an older godwit, which does not keep visitors apart; godwit node stop, said there by visited";
    world.refused(&["stage", ON[0], ON[1], F], (1, why));
    assert_eq!(said.next().unwrap().unwrap(), r#"["status"]"#);
    older.kill().unwrap();
    older.wait().unwrap();
    world.well(&["stage", ON[0], ON[1], F]);
}

#[test] //= peer-cache#which-depot
fn system_account_gets_no_node() {
    let scratch = Scratch::new();
    let Some(world) = World::new(&scratch) else {
        return;
    };
    // It was an account of people when it was mapped.
    let passwd = scratch.join("passwd");
    let less = fs::read_to_string(&passwd).unwrap();
    let own = format!(":{0}:{0}:", world.account.uid);
    let name = format!("{}:x:999:{1}:", world.account.uid, world.account.uid);
    let less = format!("{}{name}:/:/bin/sh\n", less.replace(&own, ":998:998:"));
    fs::write(&passwd, less).unwrap();
    for words in [
        &["stage", ON[0], ON[1], F][..],
        &["cache", "ls", ON[0], ON[1]],
    ] {
        world.refused(words, (13, "is an account of the system"));
    }
    assert!(!Path::new("/tmp/godwit-999").exists());
}
