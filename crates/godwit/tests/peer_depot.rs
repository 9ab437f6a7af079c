//! The depot of another machine, asked through the door of a node there.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Machine, Said, Scratch};
use godwit_local::{Kind, NodeConnection, NodePlace, Refusal, who};
use godwit_wire::local::{
    Request, Response,
    request::{self, Cache, FileTarget, Hello, RemoteRequest, StageRequest},
};
use serde_json::Value;
use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};

/// A server with files, a cluster whose depot may read them, and two joined machines: the laptop may fetch there, the
/// phone may not.
struct World<'a> {
    scratch: &'a Scratch,
    lab: Machine<'a>,
    cluster: Machine<'a>,
    laptop: Machine<'a>,
    phone: Machine<'a>,
}

impl<'a> World<'a> {
    fn new(scratch: &'a Scratch, quota: Option<&str>) -> Self {
        for (name, size) in [("f", 300_000), ("g", 400_000), ("secret/s", 1000)] {
            scratch.file(format!("data/{name}"), size);
        }
        let machine = |name| Machine::new(scratch, name);
        let [mut lab, mut cluster, laptop, phone] =
            ["lab", "cluster", "laptop", "phone"].map(machine);
        lab.serve("lab", &scratch.join("data"));
        cluster.init("cluster", &scratch.dir("export"));
        lab.joined_by(&cluster, "cluster");
        let mut environment = vec![
            ("GODWIT_NODE_RIGHTS", rights(scratch)),
            ("GODWIT_SOCKET", text(scratch, "cluster.run/socket")),
            ("GODWIT_STATE", text(scratch, "cluster.local")),
            ("GODWIT_LOCAL_IDLE", "20s".to_owned()),
        ];
        environment.extend(quota.map(|quota| ("GODWIT_DEPOT_QUOTA", quota.to_owned())));
        let environment: Vec<_> = environment.iter().map(|(n, v)| (*n, &**v)).collect();
        cluster.start(&environment);
        cluster.joined_by(&laptop, "laptop");
        cluster.joined_by(&phone, "phone");
        Self {
            scratch,
            lab,
            cluster,
            laptop,
            phone,
        }
    }

    fn command(&self, machine: &Machine<'_>, words: &[&str]) -> Command {
        let mut command = machine.command(words);
        let name = machine.home.file_name().unwrap().to_str().unwrap();
        command
            .env(
                "GODWIT_SOCKET",
                text(self.scratch, &format!("{name}.run/socket")),
            )
            .env("GODWIT_STATE", text(self.scratch, &format!("{name}.local")))
            .env("GODWIT_LOCAL_IDLE", "20s")
            .env_remove("GODWIT_SESSION")
            .env_remove("SLURM_JOB_ID");
        command
    }

    fn says(&self, machine: &Machine<'_>, words: &[&str]) -> Said {
        Said::of(&mut self.command(machine, words))
    }

    #[track_caller]
    fn well(&self, machine: &Machine<'_>, words: &[&str]) -> String {
        let said = self.says(machine, words);
        assert_eq!(
            said.status,
            Some(0),
            "{words:?}: {said}\n{}",
            self.cluster.log()
        );
        String::from_utf8(said.stdout.clone()).unwrap()
    }

    /// Expects a refusal with that status and those words.
    #[track_caller]
    fn refused(&self, machine: &Machine<'_>, words: &[&str], (status, why): (i32, &str)) {
        let said = self.says(machine, words);
        assert_eq!(said.status, Some(status), "{words:?}: {said}");
        let told = &said.stderr;
        assert!(told.contains(why), "{words:?}: {told}");
    }

    /// A cached file, as one client sees it.
    #[track_caller]
    fn kept(&self, machine: &Machine<'_>, words: &[&str]) -> Vec<Value> {
        let words: Vec<_> = ["--json", "cache"].iter().chain(words).copied().collect();
        let told = self.well(machine, &words);
        let lines = told.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["event"] == "kept")
            .collect()
    }

    #[track_caller]
    fn summary(&self, machine: &Machine<'_>, words: &[&str]) -> Value {
        let words: Vec<_> = ["--json"].iter().chain(words).copied().collect();
        let told = self.well(machine, &words);
        serde_json::from_str(told.lines().last().unwrap()).unwrap()
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        for machine in [&self.cluster, &self.laptop, &self.phone] {
            let stopped = self.says(machine, &["node", "stop"]);
            assert!(
                stopped.status == Some(0) || std::thread::panicking(),
                "{stopped}"
            );
        }
    }
}

fn text(scratch: &Scratch, name: &str) -> String {
    scratch.join(name).to_str().unwrap().to_owned()
}

fn rights(scratch: &Scratch) -> String {
    let rules = "[[rule]]\nwho = \"anyone\"\nmay = \"all\"\n\
                 [[rule]]\nwho = \"/O=godwit/OU=peer/CN=laptop\"\nnever = \"stage\"\nunder = \"/godwit/lab/secret\"\n\
                 [[rule]]\nwho = [\"/O=godwit/OU=peer/CN=laptop\", \"/O=godwit/OU=peer/CN=desk\"]\nmay = \"stage\"\nunder = \"/godwit/lab\"\n";
    let file = scratch.join("rights");
    fs::write(&file, rules).unwrap();
    file.to_str().unwrap().to_owned()
}

const F: &str = "godwit://lab/f";
const G: &str = "godwit://lab/g";
const ON: [&str; 2] = ["--on", "cluster"];

#[test] //= GASS-38 GASS-72 KANGAROO-X3 peer-cache#rules peer-cache#which-depot
fn peer_stages_for_local_programs() {
    let scratch = Scratch::new();
    let world = World::new(&scratch, None);
    let (cluster, laptop) = (&world.cluster, &world.laptop);
    let done = world.summary(
        laptop,
        &[
            "stage", "--on", "cluster", "--tag", "night", "--lasts", "2d", F,
        ],
    );
    assert_eq!(
        (&done["files"], &done["bytes"]),
        (&1.into(), &300_000.into())
    );
    cluster.tells(
        "did=\"Stage in the depot\" path=godwit://lab/f who=\"/O=godwit/OU=peer/CN=laptop\"",
    );
    let [kept] = &world.kept(laptop, &["ls", ON[0], ON[1]])[..] else {
        panic!("one file is kept");
    };
    assert_eq!(
        (kept["url"].as_str(), &kept["present_bytes"]),
        (Some(F), &300_000.into())
    );
    assert_eq!(
        (&kept["tags"][0], &kept["transfers"]),
        (&"night".into(), &1.into())
    );
    // It came once, and a program there reads it without another transfer.
    let read = world.well(cluster, &["get", F, &text(&scratch, "read")]);
    common::assert_same(&scratch.join("read"), &scratch.join("data/f"));
    let [stat] = &world.kept(cluster, &["stat", F])[..] else {
        panic!("one file is there: {read}");
    };
    assert_eq!(stat["transfers"], 1, "{stat}");
    assert!(
        stat["tags"][0].as_str().unwrap().contains("laptop: night"),
        "{stat}"
    );
    let why = world.well(laptop, &["cache", "why", ON[0], ON[1], F]);
    assert_eq!(why.trim(), "kept, since the tag night is on it");
    let df = world.summary(laptop, &["cache", "df", ON[0], ON[1]]);
    assert_eq!(
        (&df["files"], &df["kept_bytes"]),
        (&1.into(), &300_000.into())
    );
    assert_eq!(df["path"], "peer:cluster");
    let verified = world.summary(laptop, &["cache", "verify", ON[0], ON[1]]);
    assert_eq!(
        (&verified["files"], &verified["wrong"]),
        (&1.into(), &0.into())
    );
    // Another tag, which is taken off with all; then the first, with the file.
    world.well(laptop, &["stage", "--on", "cluster", F]);
    let cleaned = world.summary(laptop, &["cache", "clean", "staged", ON[0], ON[1]]);
    assert_eq!(cleaned["files"], 1);
    world.well(laptop, &["unstage", "--on", "cluster", "--tag", "night", F]);
    let again = ["unstage", "--on", "cluster", "--tag", "night", F];
    // The tag is removed on both sides.
    for words in [&again[..], &["unstage", "--tag", "night", F]] {
        let said = world.says(laptop, words);
        assert_eq!(said.status, Some(0), "{words:?}: {said}");
        assert!(
            said.stderr.contains("not kept under that tag"),
            "{words:?}: {said}"
        );
    }
    let untagged = ["cache", "rm", ON[0], ON[1], "--tag", "night", F];
    world.refused(laptop, &untagged, (4, "cluster"));
    world.well(laptop, &["cache", "rm", ON[0], ON[1], F]);
    assert!(world.kept(laptop, &["ls", ON[0], ON[1]]).is_empty());
    // Missing files are reported there, and verbs for local programs are refused.
    world.refused(
        laptop,
        &["stage", "--on", "cluster", "godwit://lab/none"],
        (4, "none"),
    );
    world.refused(
        laptop,
        &["stage", "--on", "cluster", "./data/f"],
        (2, "a file of this machine"),
    );
    world.refused(laptop, &["stage", "--on", "a/b", F], (2, "names no peer"));
}

#[test] //= GASS-72 peer-cache#rules
fn peer_additions_are_fetched() {
    let scratch = Scratch::new();
    let world = World::new(&scratch, None);
    let (cluster, laptop, phone) = (&world.cluster, &world.laptop, &world.phone);
    let add = |what: &[&str]| {
        let words = [&["cache", "add", "--on", "cluster"][..], what].concat();
        world.summary(laptop, &words)
    };
    let added = add(&["--tag", "study", "--lasts", "2d", F]);
    assert_eq!(
        (&added["new"], &added["size"], &added["on"]),
        (&false.into(), &300_000.into(), &"cluster".into())
    );
    let path = PathBuf::from(added["path"].as_str().unwrap());
    assert!(path.starts_with(scratch.join("cluster.local")), "{added}");
    common::assert_same(&path, &scratch.join("data/f"));
    // It is kept like a staged file, and local programs need no second transfer.
    let [kept] = &world.kept(laptop, &["stat", "--on", "cluster", F])[..] else {
        panic!("one file is theirs");
    };
    assert_eq!(kept["tags"], serde_json::json!(["study"]));
    assert_eq!(kept["timestamp"], Value::Null);
    world.well(cluster, &["get", F, &text(&scratch, "read")]);
    let [stat] = &world.kept(cluster, &["stat", F])[..] else {
        panic!("one file is there");
    };
    assert_eq!(stat["transfers"], 1, "{stat}");
    // A time is noted with the tag, and found by who adds it again: nothing is locked.
    fn done<'a>(what: &[&'a str]) -> Vec<&'a str> {
        [&["cache", "add-done", "--on", "cluster"][..], what].concat()
    }
    world.well(laptop, &done(&["--tag", "study", "--timestamp", "-7", F]));
    let again = add(&["--tag", "study", F]);
    assert_eq!(
        (&again["timestamp"], &again["path"]),
        (&(-7).into(), &added["path"])
    );
    let [kept] = &world.kept(laptop, &["stat", "--on", "cluster", F])[..] else {
        panic!("one file is theirs");
    };
    assert_eq!(kept["timestamp"], -7);
    assert_eq!(kept["tags"], serde_json::json!(["study (2 times)"]));
    for _ in 0..2 {
        world.well(laptop, &done(&["--failed", "--tag", "study", F]));
    }
    world.refused(laptop, &done(&["--tag", "study", F]), (4, "under that tag"));
    world.refused(
        laptop,
        &done(&["--timestamp", "7", F]),
        (4, "under that tag"),
    );
    // A file missing at its server, a client without rights, and an unknown tag.
    let missing = ["cache", "add", "--on", "cluster", "godwit://lab/none"];
    world.refused(laptop, &missing, (4, "none"));
    let denied = ["cache", "add", "--on", "cluster", F];
    world.refused(phone, &denied, (13, "no rule of the rights allows it"));
    let denied = ["cache", "add-done", "--on", "cluster", F];
    world.refused(phone, &denied, (13, "no rule of the rights allows it"));
    world.refused(laptop, &["cache", "add-done", "--tag", "x", F], (2, "--on"));
}

#[test] //= GASS-72 peer-cache#rules
fn interrupt_ends_remote_fetch() {
    let scratch = Scratch::new();
    let world = World::new(&scratch, None);
    let (cluster, laptop) = (&world.cluster, &world.laptop);
    let size = 64 << 20;
    scratch.file("data/big", size);
    let big = "godwit://lab/big";
    let words = ["stage", "--on", "cluster", "--rate", "1M", big];
    let mut stages = heeding_interrupts(&world.command(laptop, &words));
    let mut stages = stages.spawn().unwrap();
    let kept = || world.kept(cluster, &["ls", big]).pop();
    let until = Instant::now() + Duration::from_secs(30);
    let is_so = |what: &str, is_so: &dyn Fn(&Value) -> bool| {
        while !kept().is_some_and(|kept| is_so(&kept)) {
            assert!(Instant::now() < until, "{what}: {:?}", kept());
            assert!(
                !kept().is_some_and(|kept| kept["present_bytes"] == size),
                "{what}"
            );
        }
    };
    is_so("it comes", &|kept| {
        kept["present_bytes"].as_u64().unwrap() > 0
    });
    kill(&stages, "-INT");
    assert_ne!(stages.wait().unwrap().code(), Some(0));
    // It would go on for a minute.
    is_so("no client uses it", &|kept| kept["open"] == 0);
    // The next fetch continues the partial.
    world.well(laptop, &["stage", "--on", "cluster", big]);
}

/// Returns the command with default signals, since shells ignore interrupts behind `&`.
fn heeding_interrupts(command: &Command) -> Command {
    let mut heeding = Command::new("env");
    heeding
        .arg("--default-signal=INT")
        .arg(command.get_program());
    heeding.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => heeding.env(name, value),
            None => heeding.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        heeding.current_dir(dir);
    }
    heeding
}

fn kill(child: &Child, signal: &str) {
    let id = child.id().to_string();
    let said = Command::new("kill").args([signal, &id]).status();
    assert!(said.unwrap().success());
}

#[test] //= GASS-72 peer-cache#rules
fn unlisted_peer_fetches_nothing() {
    let scratch = Scratch::new();
    let world = World::new(&scratch, None);
    let (laptop, phone) = (&world.laptop, &world.phone);
    let (before, fetched) = (world.lab.log(), |log: &str| log.matches("v1/stat").count());
    // Rights on served files give no right to fetch.
    for words in [
        &["stage", "--on", "cluster", F][..],
        &["unstage", "--on", "cluster", F],
        &["cache", "ls", "--on", "cluster"],
        &["cache", "stat", "--on", "cluster", F],
        &["cache", "why", "--on", "cluster", F],
        &["cache", "rm", "--on", "cluster", F],
        &["cache", "clean", "--on", "cluster", "staged"],
        &["cache", "df", "--on", "cluster"],
        &["cache", "verify", "--on", "cluster"],
    ] {
        world.refused(phone, words, (13, "no rule of the rights allows it"));
    }
    // Files that a rule denies, files without a rule, and names that are no file of a server.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let somewhere = [
        "godwit://lab/secret/s".to_owned(),
        "godwit://lab//secret/s".to_owned(),
        format!("ftp://{at}/x"),
        format!("godwit://{at}/x"),
        format!("ftp://me@{at}/x"),
        format!("godwit://lab:{}/f", at.port()),
        "sshftp://lab/f".to_owned(),
    ];
    for url in &somewhere {
        world.refused(laptop, &["stage", "--on", "cluster", url], (13, "denied"));
        world.refused(
            laptop,
            &["cache", "stat", "--on", "cluster", url],
            (13, "denied"),
        );
    }
    assert!(listener.accept().is_err(), "a client was sent there");
    assert_eq!(
        fetched(&world.lab.log()),
        fetched(&before),
        "its origin was asked"
    );
    assert!(world.kept(&world.cluster, &["ls"]).is_empty());
}

#[test] //= GASS-72 peer-cache#rules
fn peers_see_only_own_files() {
    let scratch = Scratch::new();
    let world = World::new(&scratch, None);
    let (cluster, laptop) = (&world.cluster, &world.laptop);
    world.well(cluster, &["stage", "--tag", "mine", F]);
    world.well(cluster, &["stage", "--tag", "mine", G]);
    assert!(world.kept(laptop, &["ls", "--on", "cluster"]).is_empty());
    for verb in ["stat", "why", "rm"] {
        let words = ["cache", verb, "--on", "cluster", F];
        world.refused(laptop, &words, (4, "cluster"));
    }
    // The file is shared: no second transfer, and each client has its own tags.
    world.well(laptop, &["stage", "--on", "cluster", "--tag", "mine", F]);
    let [kept] = &world.kept(laptop, &["ls", "--on", "cluster"])[..] else {
        panic!("one file is theirs");
    };
    assert_eq!(kept["tags"], serde_json::json!(["mine"]));
    assert_eq!((&kept["transfers"], &kept["open"]), (&1.into(), &0.into()));
    let df = world.summary(laptop, &["cache", "df", "--on", "cluster"]);
    assert_eq!(
        (&df["files"], &df["used_bytes"]),
        (&1.into(), &300_000.into())
    );
    let cleaned = world.summary(laptop, &["cache", "clean", "--on", "cluster", "mine"]);
    assert_eq!(cleaned["files"], 1);
    world.well(laptop, &["stage", "--on", "cluster", F]);
    world.well(laptop, &["cache", "rm", "--on", "cluster", F]);
    for url in [F, G] {
        let [kept] = &world.kept(cluster, &["stat", url])[..] else {
            panic!("it is kept on");
        };
        assert_eq!(kept["tags"], serde_json::json!(["mine"]), "{url}");
    }
}

#[test] //= GASS-72 peer-cache#rules
fn peers_keep_half_at_most() {
    let scratch = Scratch::new();
    let world = World::new(&scratch, Some("1M"));
    let (cluster, laptop) = (&world.cluster, &world.laptop);
    world.well(laptop, &["stage", "--on", "cluster", F]);
    world.refused(
        laptop,
        &["stage", "--on", "cluster", G],
        (7, "visitors keep"),
    );
    world.refused(
        laptop,
        &["stage", "--on", "cluster", "--tag", "a b", F],
        (2, "tag"),
    );
    let df = world.summary(laptop, &["cache", "df", "--on", "cluster"]);
    assert_eq!(df["kept_bytes"], 300_000);
    // The owner of the machine has the rest.
    world.well(cluster, &["stage", G]);
    let df = world.summary(cluster, &["cache", "df"]);
    assert!(
        df["used_bytes"].as_u64().unwrap() <= df["quota_bytes"].as_u64().unwrap(),
        "{df}"
    );
    world.well(laptop, &["unstage", "--on", "cluster", F]);
    world.well(laptop, &["stage", "--on", "cluster", G]);
}

#[test] //= peer-cache#rules
fn peer_door_serves_peer_requests_only() {
    let scratch = Scratch::new();
    let world = World::new(&scratch, None);
    let cluster = &world.cluster;
    world.well(cluster, &["stage", "--tag", "mine", F]);
    let place = NodePlace {
        socket: scratch.join("cluster.run/socket"),
        state: scratch.join("cluster.local"),
    };
    let hello = Hello {
        visitor: Some("/O=godwit/OU=peer/CN=laptop".into()),
        ..who("test", &|_| None)
    };
    let here = NodeConnection::at(&place, &hello)
        .unwrap()
        .expect("it listens");
    let node = here.node().process;
    // Handed over it is what it was.
    let mut here = NodeConnection::go_on(here.give_up());
    let url = || F.to_owned();
    let whose = || request::Selector {
        url: Some(url()),
        ..request::Selector::default()
    };
    let on = RemoteRequest {
        on: "peer:lab".into(),
        ask: Box::new(Request::Stage(StageRequest {
            url: url(),
            ..StageRequest::default()
        })),
    };
    for ask in [
        Request::Open(request::OpenRequest {
            url: url(),
            read: true,
            ..request::OpenRequest::default()
        }),
        Request::Put(request::PutRequest {
            url: url(),
            ..request::PutRequest::default()
        }),
        Request::Get(request::Get {
            url: url(),
            ..request::Get::default()
        }),
        Request::Commit(whose()),
        Request::Push(whose()),
        Request::Queue(whose()),
        Request::Stat(FileTarget::is(F)),
        Request::Drop(FileTarget::is(F)),
        Request::Changed { url: url() },
        Request::On(on),
        Request::Status,
        Request::Stop,
    ] {
        let words = format!("{ask:?}");
        assert_eq!(refused(&mut here, ask).kind, Kind::Unsupported, "{words}");
    }
    // Who was said is not said anew.
    let again = Request::Hello(Box::new(who("test", &|_| None)));
    assert_eq!(refused(&mut here, again).kind, Kind::Invalid);
    // A node that was broken into fetches no file of the machine or of a user.
    let data = scratch.join("data/f");
    for url in [
        format!("file://{}", data.display()),
        data.display().to_string(),
        "ftp://me@lab/f".to_owned(),
    ] {
        let stage = StageRequest {
            url: url.clone(),
            ..StageRequest::default()
        };
        let why = refused(&mut here, Request::Stage(stage)).kind;
        assert_eq!(why, Kind::Denied, "{url}");
    }
    let ls = Request::Cache(Cache::Ls {
        prefix: String::new(),
        on: None,
    });
    let answer = here.ask(ls).unwrap();
    assert!(
        matches!(&answer.tell, Response::Done(done) if done.files == 0),
        "{answer:?}"
    );
    // The node lives on, and serves its owner.
    let hello = who("test", &|_| None);
    let mut here = NodeConnection::at(&place, &hello)
        .unwrap()
        .expect("it listens");
    assert_eq!(here.node().process, node);
    assert!(matches!(
        here.ask(Request::Status).unwrap().tell,
        Response::Status(_)
    ));
}

#[track_caller]
fn refused(here: &mut NodeConnection, ask: Request) -> Refusal {
    here.ask(ask).unwrap_err()
}
