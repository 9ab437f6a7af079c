//! Nodes that join a farm by one invite each, come to know each other, and leave it.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Machine, Scratch, wait_until};
use godwit_trust::Peer;
use serde_json::Value;
use std::fs;

/// A node n1, which serves a catalog, and nodes n2 and n3 that are not of its farm yet.
struct World<'a> {
    scratch: &'a Scratch,
    nodes: [Machine<'a>; 3],
    catalog: String,
}

const AT_N1: [&str; 2] = ["--catalog", "godwit://n1"];

impl<'a> World<'a> {
    fn new(scratch: &'a Scratch) -> Self {
        let catalog = format!("sqlite:{}", scratch.join("names.db").display());
        let nodes = ["n1", "n2", "n3"].map(|name| {
            let mut machine = Machine::new(scratch, name);
            machine.init(name, &scratch.dir(format!("{name}-data")));
            machine
        });
        let mut world = Self {
            scratch,
            nodes,
            catalog,
        };
        world.owner(&["catalog", "init"]);
        let url = "godwit://n1/.farm";
        world.owner(&["location", "add", "n1", url, "grid:/"]);
        let at = world.catalog.clone();
        let words = ["node", "--json", "--site", "n1", "--catalog", &at];
        world.nodes[0].start_saying(&words, &[]);
        world
    }

    /// A farm of three nodes, which know each other.
    fn joined(scratch: &'a Scratch) -> Self {
        let mut world = Self::new(scratch);
        world.join(2);
        world.join(3);
        wait_until("n2 and n3 know each other", || {
            world.knows(2, "n3").is_some() && world.knows(3, "n2").is_some()
        });
        world
    }

    /// Has a node join the farm by an invite, and starts it as it is configured then.
    fn join(&mut self, at: usize) {
        let invite = self.nodes[0].invite();
        let node = &mut self.nodes[at - 1];
        node.well(&["farm", "join", &invite, "--slots", "2"]);
        node.start_saying(&["node", "--json"], &[]);
    }

    fn owner(&self, words: &[&str]) -> String {
        self.nodes[0].well(&[words, &["--catalog", &self.catalog]].concat())
    }

    #[track_caller]
    fn owner_refused(&self, words: &[&str], expected: i32) -> String {
        let (status, why) = self.nodes[0].refused(&[words, &["--catalog", &self.catalog]].concat());
        assert_eq!(status, expected, "{words:?}: {why}");
        why
    }

    fn knows(&self, at: usize, name: &str) -> Option<Peer> {
        self.nodes[at - 1].knows().peer(name).unwrap()
    }

    /// Writes a file that lies at n2 alone.
    fn file_at_n2(&self) -> String {
        let text: String = (0..9000).map(|at| format!("line {at}\n")).collect();
        fs::write(self.scratch.join("text"), &text).unwrap();
        self.owner(&["farm", "import", "--lines", "--to", "n2", "text", "grid:/t"]);
        text
    }
}

#[test]
fn joined_nodes_know_each_other() {
    let scratch = Scratch::new();
    let world = World::joined(&scratch);
    let text = world.file_at_n2();
    let n3 = &world.nodes[2];
    assert_eq!(n3.well(&[&["cat", "grid:/t"], &AT_N1[..]].concat()), text);
    let known = world.knows(3, "n2").unwrap();
    assert_eq!(
        (known.key, known.by.as_deref()),
        (world.nodes[1].key(), Some("n1"))
    );
    assert_eq!(known.addresses, [world.nodes[1].at.clone()]);
    assert_eq!(world.knows(3, "n1").unwrap().by, None);
    let nodes = world.owner(&["farm", "nodes", "--json"]);
    let nodes = nodes
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let slots = nodes
        .filter(|row| row["event"] == "node")
        .map(|row| row["slots"].as_u64());
    assert_eq!(slots.collect::<Vec<_>>(), [Some(0), Some(2), Some(2)]);
}

#[test]
fn evicted_node_is_a_stranger() {
    let scratch = Scratch::new();
    let mut world = World::joined(&scratch);
    let ls = ["ls", "godwit://n2/"];
    world.nodes[2].well(&ls);
    // It takes note of nothing any more, and tries the key that it has.
    world.nodes[2].stop();
    world.owner(&["farm", "leave", "n3"]);
    wait_until("n2 forgets n3", || world.knows(2, "n3").is_none());
    let (status, why) = world.nodes[2].refused(&ls);
    assert_eq!(status, 13, "{why}");
    world.owner_refused(&["farm", "leave", "n3"], 4);
}

#[test]
fn leaving_node_is_as_before() {
    let scratch = Scratch::new();
    let mut world = World::new(&scratch);
    let file = world.nodes[2].home.join(".config/godwit/config.toml");
    let before = fs::read_to_string(&file).unwrap();
    world.join(2);
    world.join(3);
    wait_until("n3 knows n2", || world.knows(3, "n2").is_some());
    assert!(fs::read_to_string(&file).unwrap().contains("slots = 2"));
    let (_, why) = world.nodes[2].refused(&["farm", "leave", "n7"]);
    assert!(why.contains("no node n7"), "{why}");
    world.nodes[2].well(&["farm", "leave"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert_eq!(world.knows(3, "n2"), None);
    assert!(world.knows(3, "n1").is_some());
    wait_until("n2 forgets n3", || world.knows(2, "n3").is_none());
}

#[test]
fn added_peers_stay_as_they_are() {
    let scratch = Scratch::new();
    let mut world = World::new(&scratch);
    world.join(2);
    // n3 and n2 know each other without the farm, and another machine is called as n1's node was to be.
    let invite = world.nodes[1].invite();
    world.nodes[2].well(&["join", &invite, "--address", &world.nodes[2].at]);
    let mut other = Machine::new(&scratch, "other");
    other.init("n4", &scratch.dir("other-data"));
    world.nodes[1].joined_by(&other, "n4");
    let mut n4 = Machine::new(&scratch, "n4");
    n4.init("n4", &scratch.dir("n4-data"));
    world.join(3);
    n4.well(&["farm", "join", &world.nodes[0].invite(), "--slots", "0"]);
    wait_until("n3 knows n4", || world.knows(3, "n4").is_some());
    world.nodes[1].tells("a node of the farm is not known here");
    let kept = world.knows(2, "n4").unwrap();
    assert_eq!((kept.key, kept.by), (other.key(), None));
    world.owner(&["farm", "leave", "n3"]);
    world.owner(&["farm", "leave", "n4"]);
    wait_until("n3 forgets n4", || world.knows(3, "n4").is_none());
    assert_eq!(world.knows(2, "n3").unwrap().by, None);
    world.nodes[2].well(&["ls", "godwit://n2/"]);
}

#[test]
fn node_with_last_copies_stays() {
    let scratch = Scratch::new();
    let world = World::joined(&scratch);
    let text = world.file_at_n2();
    let why = world.owner_refused(&["farm", "leave", "n2"], 1);
    assert!(why.contains("godwit farm drain n2"), "{why}");
    world.owner(&["rule", "add", "grid:/", "copies=1"]);
    world.owner(&["farm", "drain", "n2"]);
    let leave = ["farm", "leave", "n2", "--catalog", &world.catalog];
    wait_until("n2 may leave", || {
        world.nodes[0].says(&leave).status.success()
    });
    assert_eq!(world.owner(&["cat", "grid:/t"]), text);
    // By force the file is lost.
    world.owner(&["farm", "import", "--lines", "--to", "n3", "text", "grid:/u"]);
    world.owner(&["rule", "rm", "grid:/", "copies=1"]);
    world.owner(&["farm", "leave", "n3", "--force"]);
    world.owner_refused(&["cat", "grid:/u"], 1);
}

/// A key that a client writes into the catalog does not count, and only a node itself, or the owner, makes it one of the farm.
#[test]
fn clients_introduce_no_other_node() {
    let scratch = Scratch::new();
    let mut world = World::joined(&scratch);
    let key = world.nodes[1].key();
    let [n1, n2, n3] = &mut world.nodes;
    let friend = Machine::new(&scratch, "friend");
    friend.well(&["join", &n1.invite(), "--name", "friend"]);
    let as_friend = |words: &[&str]| friend.says(&[words, &AT_N1].concat());
    let add = [
        "location",
        "add",
        "laptop",
        "godwit://laptop/.farm",
        "grid:/",
    ];
    let refused = as_friend(&add);
    assert_eq!(refused.status.code(), Some(13), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("godwit farm join"), "{said}");
    // A peer that may only read is not named to others, though the owner makes it a site.
    let reader = Machine::new(&scratch, "reader");
    let invite = n1.well(&["-q", "peers", "invite", "--read-only"]);
    reader.well(&["join", invite.trim(), "--name", "reader"]);
    let add = [
        "location",
        "add",
        "reader",
        "godwit://reader/.farm",
        "grid:/",
    ];
    n1.well(&[&add[..], &["--catalog", &world.catalog]].concat());
    let forged = format!("node.key={}", friend.key());
    for site in ["n2", "reader"] {
        let set = [
            "location",
            "set",
            site,
            "grid:/",
            &forged,
            "node.addresses=h:1",
        ];
        assert!(as_friend(&set).status.success());
    }
    // A node that starts anew has seen all of it when it serves.
    n3.stop();
    n3.start_saying(&["node", "--json"], &[]);
    assert_eq!(n3.pinned("n2").key, key);
    assert_eq!(n3.knows().peer("reader").unwrap(), None);
    // What the node of the catalog said does not count once that is no peer, though it says nothing more.
    n1.kill();
    n3.well(&["peers", "remove", "n1"]);
    wait_until("n3 forgets n2", || n3.knows().peer("n2").unwrap().is_none());
    assert!(n2.knows().peer("n3").unwrap().is_some());
}
