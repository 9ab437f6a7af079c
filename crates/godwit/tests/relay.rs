//! A machine that no connection reaches is a node like any other: it makes connections to one that
//! can be reached, and visitors come through these.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Machine, Scratch, arrived, assert_same, assert_same_tree, have, skip, wait_until};
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

/// A relay, a node behind it, and a laptop that has joined the node.
struct Scene<'a> {
    relay: Machine<'a>,
    hidden: Machine<'a>,
    visitor: Machine<'a>,
    files: PathBuf,
}

impl<'a> Scene<'a> {
    fn new(scratch: &'a Scratch) -> Self {
        let [mut relay, mut hidden, visitor] =
            ["relay", "hidden", "visitor"].map(|name| Machine::new(scratch, name));
        relay.serve("hub", &scratch.dir("hub.files"));
        relay.joined_by(&hidden, "laptop");
        let files = scratch.dir("laptop.files");
        let export = files.to_str().unwrap();
        let words = [
            "init", "laptop", "--export", export, "--via", "hub", "--json",
        ];
        let said = hidden.well(&words);
        let invited: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        assert_eq!(invited["addresses"], serde_json::json!([relay.at]));
        hidden.start(&[]);
        let invite = invited["invite"].as_str().unwrap();
        wait_until("being reached", || {
            visitor
                .says(&["join", invite, "--name", "visitor"])
                .status
                .success()
        });
        Self {
            relay,
            hidden,
            visitor,
            files,
        }
    }
}

#[test]
fn relay_moves_files_all_ways() {
    let scratch = Scratch::new();
    let mut scene = Scene::new(&scratch);
    let file = scratch.file("f", 20_000_000);
    let there = scene
        .visitor
        .summary(&["cp", "--json", "f", "godwit://laptop/f"]);
    assert_eq!(there["verified"], "verified blake3", "{there}");
    assert_same(&file, &scene.files.join("f"));
    let back = scene
        .visitor
        .summary(&["cp", "--json", "godwit://laptop/f", "back"]);
    assert_eq!(back["verified"], "verified blake3", "{back}");
    assert_same(&file, &scratch.join("back"));
    assert!(
        scene
            .visitor
            .well(&["ls", "godwit://laptop/"])
            .contains('f')
    );
    // Straight from the hidden one to another, which is told where it is.
    let mut open = Machine::new(&scratch, "open");
    let export = scratch.dir("open.files");
    open.serve("open", &export);
    open.joined_by(&scene.visitor, "visitor");
    let words = ["cp", "--json", "godwit://laptop/f", "godwit://open/g"];
    let across = scene.visitor.summary(&words);
    assert_eq!(across["verified"], "verified blake3", "{across}");
    assert_same(&file, &export.join("g"));
    // And the other way round: the hidden one draws.
    scene
        .visitor
        .well(&["cp", "godwit://open/g", "godwit://laptop/h"]);
    assert_same(&file, &scene.files.join("h"));
    // The relay keeps nothing.
    assert_eq!(fs::read_dir(scratch.join("hub.files")).unwrap().count(), 0);
    // A requested node that is away is named, and found when it is back.
    scene.hidden.kill();
    let said = scene.visitor.says(&["ls", "godwit://laptop/"]);
    let why = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(5), "{why}");
    let wanted = format!("laptop: not connected to {} at the moment", scene.relay.at);
    assert!(why.contains(&wanted), "{why}");
    scene.hidden.start(&[]);
    let again = ["cp", "godwit://laptop/f", "again"];
    wait_until("being back", || scene.visitor.says(&again).status.success());
    assert_same(&file, &scratch.join("again"));
    // The relay forgets it.
    scene.relay.well(&["leave", "laptop"]);
    let said = scene.visitor.says(&["ls", "godwit://laptop/"]);
    assert_eq!(said.status.code(), Some(5), "{said:?}");
}

fn spawned(mut command: Command) -> Child {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap()
}

fn ends(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// Runs an act during a transfer, in each direction.
fn goes_on(happens: impl Fn(&mut Scene<'_>)) {
    let scratch = Scratch::new();
    let mut scene = Scene::new(&scratch);
    let size = 96 << 20;
    let file = scratch.file("f", size);
    let into = scratch.dir("into");
    let ways = [
        (["f", "godwit://laptop/g"], scene.files.clone(), "g"),
        (["godwit://laptop/g", "into/h"], into, "h"),
    ];
    for (words, target, name) in ways {
        let cp = ["cp", "--json", "--progress", "none"];
        let child = spawned(scene.visitor.command(&[&cp[..], &words[..]].concat()));
        let before = arrived(&target);
        wait_until("moving", || arrived(&target) > before + size as u64 / 8);
        assert!(
            !target.join(name).exists(),
            "it was over before anything happened"
        );
        happens(&mut scene);
        let summary = ends(child);
        assert_eq!(summary["verified"], "verified blake3", "{summary}");
        assert!(
            summary["faults"].as_u64() > Some(0),
            "no outage was noticed: {summary}"
        );
        assert_same(&file, &target.join(name));
    }
}

#[test]
fn transfer_survives_relay_restart() {
    goes_on(|scene| {
        scene.relay.kill();
        scene.relay.start(&[]);
    });
}

#[test]
fn transfer_survives_hidden_restart() {
    goes_on(|scene| {
        scene.hidden.kill();
        scene.hidden.start(&[]);
    });
}

#[test]
fn unknown_node_is_not_relayed() {
    let scratch = Scratch::new();
    let export = scratch.dir("files");
    let export = export.to_str().unwrap();
    let machine = Machine::new(&scratch, "home");
    let said = machine.says(&["init", "a", "--export", export, "--via", "hub"]);
    let why = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(2), "{why}");
    assert!(why.contains("hub") && why.contains("godwit join"), "{why}");
    // Nothing was begun.
    assert!(!machine.home.join(".config/godwit/config.toml").exists());
    let state = scratch.dir("state");
    for state in [&["--state", state.to_str().unwrap()][..], &[]] {
        let words = [
            "node",
            "--export",
            export,
            "--ftp",
            "127.0.0.1:0",
            "--via",
            "hub",
        ];
        let said = machine.says(&[&words[..], state].concat());
        let why = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(said.status.code(), Some(2), "{why}");
        assert!(why.contains("cannot be reached through hub"), "{why}");
    }
}

/// A machine in the middle, and others from which nothing leads anywhere but TCP to one port of it.
///
/// There need be no filter for that: routes are found by the port that is wanted, and there is
/// one route for one port. What comes to another port of such a machine is answered by nothing, since
/// the answer has no way; the one in the middle passes no packets on.
struct Nets {
    name: String,
}

const DOOR: &str = "10.88.0.1:13560";

impl Nets {
    fn up(others: &[&str]) -> Option<Nets> {
        if !have("ip") || !have("bash") {
            return None;
        }
        let nets = Nets {
            name: format!("via{}", std::process::id()),
        };
        if let Err(why) = nets.ip("", &format!("netns add {}", nets.of("hub"))) {
            skip(&format!("no namespaces here: {why}"));
            return None;
        }
        nets.do_all("hub", &["link set lo up"]);
        let forward = [
            "netns",
            "exec",
            &nets.of("hub"),
            "sysctl",
            "-qw",
            "net.ipv4.ip_forward=0",
        ];
        assert!(Command::new("ip").args(forward).status().unwrap().success());
        for (nth, other) in others.iter().enumerate() {
            let (own, net) = (nth + 2, nets.of(other));
            nets.do_all("", &[&format!("netns add {net}")]);
            let link = format!("link add to-{other} type veth peer name up netns {net}");
            let address = format!("addr add 10.88.0.1 peer 10.88.0.{own} dev to-{other}");
            nets.do_all(
                "hub",
                &[&link, &address, &format!("link set dev to-{other} up")],
            );
            let address = format!("addr add 10.88.0.{own}/32 dev up");
            let rest = [
                "link set lo up",
                &address,
                "link set dev up up",
                "rule add pref 100 ipproto tcp dport 13560 lookup 100",
                "route add 10.88.0.1 dev up table 100",
            ];
            nets.do_all(other, &rest);
        }
        Some(nets)
    }

    fn of(&self, machine: &str) -> String {
        format!("{}-{machine}", self.name)
    }

    fn ip(&self, machine: &str, words: &str) -> Result<(), String> {
        let mut command = Command::new("ip");
        if !machine.is_empty() {
            command.args(["-n", &self.of(machine)]);
        }
        let output = command.args(words.split(' ')).output().unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    fn do_all(&self, machine: &str, all: &[&str]) {
        for words in all {
            self.ip(machine, words)
                .unwrap_or_else(|why| panic!("ip {words}: {why}"));
        }
    }

    fn bash(&self, machine: &str, words: &str) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.of(machine), "bash", "-c", words]);
        command.output().unwrap()
    }

    /// Tells whether a connection can be made from there.
    fn leads(&self, machine: &str, address: &str) -> bool {
        let connect = format!("timeout 2 bash -c '</dev/tcp/{address}' 2>/dev/null");
        self.bash(machine, &connect).status.success()
    }

    /// Returns how often something there wanted to go where no route leads.
    fn astray(&self, machine: &str) -> u64 {
        let told = self.bash(machine, "cat /proc/net/snmp").stdout;
        let told = String::from_utf8(told).unwrap();
        let mut lines = told.lines().filter(|line| line.starts_with("Ip: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut both = names.split(' ').zip(values.split(' '));
        both.find(|(name, _)| *name == "OutNoRoutes")
            .unwrap()
            .1
            .parse()
            .unwrap()
    }
}

impl Drop for Nets {
    fn drop(&mut self) {
        let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            let net = line.split(' ').next().unwrap_or_default();
            if net.starts_with(&format!("{}-", self.name)) {
                let _ = Command::new("ip").args(["netns", "del", net]).status();
            }
        }
    }
}

#[test]
fn one_port_serves_all() {
    let Some(nets) = Nets::up(&["b", "c", "v"]) else {
        return;
    };
    let scratch = Scratch::new();
    let machine = |name: &str| Machine::new(&scratch, name).within(nets.of(name));
    let (mut hub, mut b, mut c, v) = (machine("hub"), machine("b"), machine("c"), machine("v"));
    let export = scratch.dir("hub.files");
    let words = [
        "init",
        "hub",
        "--address",
        DOOR,
        "--export",
        export.to_str().unwrap(),
    ];
    hub.well(&words);
    // It listens at more ports than can be reached.
    let node = ["node", "--ftp", "127.0.0.1:0,10.88.0.1:2811", "--json"];
    hub.start_saying(&node, &[]);
    for (hidden, name) in [(&mut b, "b"), (&mut c, "c")] {
        hub.joined_by(hidden, name);
        let export = scratch.dir(format!("{name}.files"));
        let words = [
            "init",
            name,
            "--via",
            "hub",
            "--export",
            export.to_str().unwrap(),
        ];
        hidden.well(&words);
        let node = ["node", "--ftp", "127.0.0.1:0,0.0.0.0:2811", "--json"];
        hidden.start_saying(&node, &[]);
        let invite = hidden.invite();
        wait_until("being reached", || {
            v.says(&["join", &invite, "--name", "v"]).status.success()
        });
    }
    // What is closed is closed: to b and c nothing leads, from them and v only to the door.
    for (from, to) in [
        ("hub", "10.88.0.2/2811"),
        ("v", "10.88.0.2/2811"),
        ("b", "10.88.0.3/2811"),
    ] {
        assert!(!nets.leads(from, to), "{from} to {to}");
    }
    for from in ["b", "c"] {
        assert!(nets.leads(from, "10.88.0.1/13560") && !nets.leads(from, "10.88.0.1/2811"));
    }
    assert!(
        nets.leads("hub", "10.88.0.1/2811"),
        "something listens there"
    );
    let before = nets.astray("v");
    // Both ways, and from one that is hidden to another.
    let file = scratch.file("f", 5_000_000);
    for words in [
        ["f", "godwit://b/f"],
        ["godwit://b/f", "godwit://c/g"],
        ["godwit://c/g", "back"],
    ] {
        let summary = v.summary(&[&["cp", "--json"][..], &words[..]].concat());
        assert_eq!(summary["verified"], "verified blake3", "{summary}");
    }
    assert_same(&file, &scratch.join("c.files/g"));
    assert_same(&file, &scratch.join("back"));
    assert!(v.well(&["ls", "godwit://c/"]).contains('g'));
    // All that a client does, with many files, at a node that is reached straight and at one that is not.
    hub.joined_by(&v, "v");
    for nth in 0..300 {
        scratch.file(format!("tree/{}/{nth}", nth % 7), nth * 37);
    }
    for node in ["hub", "b"] {
        let at = |path: &str| format!("godwit://{node}/{path}");
        let back = scratch.join(format!("tree of {node}"));
        v.well(&["sync", "tree", &at("tree")]);
        assert_same_tree(
            &scratch.join("tree"),
            &scratch.join(format!("{node}.files/tree")),
        );
        v.well(&["cp", "-r", &at("tree"), back.to_str().unwrap()]);
        assert_same_tree(&scratch.join("tree"), &back);
        assert_eq!(
            v.well(&["find", &at("tree"), "-type", "f"]).lines().count(),
            300
        );
        v.well(&["mv", &at("tree/0/0"), &at("moved")]);
        v.well(&["sum", &at("moved")]);
        v.well(&["rm", "-r", &at("tree"), &at("moved")]);
        assert_eq!(v.says(&["ls", &at("tree")]).status.code(), Some(4));
    }
    // Nothing else was tried.
    assert_eq!(nets.astray("v"), before, "it went for another way");
    assert!(!nets.leads("v", "10.88.0.1/2811"));
    assert!(nets.astray("v") > before, "who goes for one is seen");
}
