//! A catalog that a node serves, asked from another machine.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Machine, Scratch, assert_same, noise, programs};
use std::{fs, process::Stdio};

/// A node called lab, which serves a catalog and one tree, and a laptop.
struct World<'a> {
    lab: Machine<'a>,
    laptop: Machine<'a>,
    catalog: String,
}

impl<'a> World<'a> {
    fn new(scratch: &'a Scratch) -> Self {
        fs::create_dir_all(scratch.join("data/run7/sub")).unwrap();
        fs::write(scratch.join("data/run7/a b"), "small").unwrap();
        fs::write(scratch.join("data/run7/sub/big"), noise(3_000_000, 7)).unwrap();
        let lab = Machine::new(scratch, "a");
        let catalog = format!("sqlite:{}", scratch.join("names.db").display());
        lab.well(&["catalog", "init", "--catalog", &catalog]);
        let mut world = Self {
            lab,
            laptop: Machine::new(scratch, "b"),
            catalog,
        };
        world.lab.init("lab", &scratch.join("data"));
        world.start(&[]);
        world
    }

    fn start(&mut self, environment: &[(&str, &str)]) {
        let words = [
            "node",
            "--ftp",
            "127.0.0.1:0",
            "--json",
            "--catalog",
            &self.catalog,
        ];
        self.lab.start_saying(&words, environment);
    }

    fn join(&self, options: &[&str]) {
        let invite = self
            .lab
            .well(&[&["-q", "peers", "invite"], options].concat());
        self.laptop
            .well(&["join", invite.trim(), "--name", "laptop"]);
    }

    fn well(&self, words: &[&str]) -> String {
        self.laptop.well(&[words, &AT_LAB].concat())
    }

    fn refused(&self, words: &[&str]) -> (i32, String) {
        self.laptop.refused(&[words, &AT_LAB].concat())
    }
}

const AT_LAB: [&str; 2] = ["--catalog", "godwit://lab"];

#[test]
fn names_outlive_killed_node() {
    let scratch = Scratch::new();
    let mut world = World::new(&scratch);
    world.join(&[]);
    world.well(&["register", "-r", "godwit://lab/run7", "--as", "grid:/run7"]);
    assert_eq!(world.well(&["ls", "grid:/run7"]), "a b\nsub/\n");
    world.lab.kill();
    // The verb waits until the node is back.
    let mut locate = world.laptop.command(&["locate", "grid:/run7/a b"]);
    let locate = locate.args(AT_LAB).stdout(Stdio::piped()).spawn().unwrap();
    world.start(&[]);
    let located = locate.wait_with_output().unwrap();
    let located = String::from_utf8(located.stdout).unwrap();
    assert!(located.contains("godwit://lab/run7/a%20b"), "{located}");
    assert_eq!(world.well(&["cat", "grid:/run7/a b"]), "small");
    world.well(&["rm", "grid:/run7/a b"]);
    assert_eq!(world.well(&["ls", "grid:/run7"]), "sub/\n");
    let (status, why) = world.refused(&["cat", "grid:/run7/a b"]);
    assert_eq!(status, 4, "{why}");
}

#[test]
fn lost_answer_changes_once() {
    let scratch = Scratch::new();
    let mut world = World::new(&scratch);
    world.join(&[]);
    world.lab.kill();
    world.start(&[("GODWIT_CRASH", "catalog-changed")]);
    let mut mkdir = world.laptop.command(&["mkdir", "grid:/once"]);
    let mkdir = mkdir.args(AT_LAB).stderr(Stdio::piped()).spawn().unwrap();
    assert!(
        world
            .lab
            .node
            .as_mut()
            .unwrap()
            .ends_within(std::time::Duration::from_secs(20))
    );
    world.start(&[]);
    let made = mkdir.wait_with_output().unwrap();
    assert!(made.status.success(), "{made:?}");
    assert_eq!(world.well(&["ls", "grid:/"]), "once/\n");
    let (_, why) = world.refused(&["mkdir", "grid:/once"]);
    assert!(why.contains("exists"), "{why}");
}

#[test] //= REPLICAS-58
fn reading_peer_changes_nothing() {
    let scratch = Scratch::new();
    let world = World::new(&scratch);
    world.join(&["--read-only"]);
    assert_eq!(world.well(&["ls", "grid:/"]), "");
    let (status, why) = world.refused(&["mkdir", "grid:/mine"]);
    assert_eq!(status, 13, "{why}");
}

#[test] //= REPLICAS-58
fn rights_say_who_may_change_names() {
    let scratch = Scratch::new();
    let mut world = World::new(&scratch);
    world.join(&[]);
    for (rule, expected) in [
        ("[\"read\", \"write\"]", [None, None]),
        ("[\"read\"]", [None, Some(13)]),
        ("[\"list\"]", [Some(13); 2]),
    ] {
        let rights = scratch.join("rights.toml");
        let text = format!(
            "[[rule]]\nwho = [\"/O=godwit/OU=peer/CN=laptop\"]\nunder = [\"/\"]\nmay = {rule}\n"
        );
        fs::write(&rights, text).unwrap();
        world.lab.kill();
        let rights = rights.to_str().unwrap().to_owned();
        let words = [
            "node",
            "--ftp",
            "none",
            "--json",
            "--catalog",
            &world.catalog,
            "--rights",
            &rights,
        ];
        world.lab.start_saying(&words, &[]);
        let asked = world
            .laptop
            .says(&["ls", "grid:/", "--catalog", "godwit://lab"]);
        let name = format!("grid:/x{}", expected.iter().flatten().count());
        let changed = world
            .laptop
            .says(&["mkdir", &name, "--catalog", "godwit://lab"]);
        for (said, expected) in [asked, changed].iter().zip(expected) {
            assert_eq!(said.status.code(), expected.or(Some(0)), "{rule}: {said:?}");
        }
    }
}

#[test]
fn missing_node_catalog_is_named() {
    let scratch = Scratch::new();
    let (_lab, laptop) = Machine::lab_and_laptop(&scratch);
    let (_, why) = laptop.refused(&["locate", "grid:/a", "--catalog", "godwit://lab"]);
    assert!(
        why.contains("serves no catalog") && why.contains("--catalog sqlite:PATH"),
        "{why}"
    );
    let (_, why) = laptop.refused(&["catalog", "init", "--catalog", "godwit://lab"]);
    assert!(
        why.contains("godwit catalog init --catalog sqlite:PATH"),
        "{why}"
    );
    let (_, why) = laptop.refused(&["ls", "grid:/", "--catalog", "godwit://lab/names"]);
    assert!(why.contains("godwit://PEER"), "{why}");
}

/// A put is durable at once, and the node of this machine delivers it by name when the site is back.
#[test]
fn named_put_waits_for_site() {
    let far = Scratch::new();
    let (machine, mut lab) = programs::Machine::of(&far);
    let source = machine.scratch.file("f", 3_000_000);
    let names = ["--catalog", "sqlite:names.db"];
    let says = |words: &[&str]| machine.says(&[words, &names].concat());
    says(&["catalog", "init"]).ok();
    says(&["location", "add", "lab", "godwit://lab/run7", "grid:/run7"]).ok();
    lab.kill();
    says(&["put", "f", "grid:/run7/f"]).ok();
    let refused = machine.says(&["put", "f", "grid:/run7/g", "--catalog", "sqlite:other.db"]);
    assert!(refused.stderr.contains("takes the names of"), "{refused}");
    assert!(refused.stderr.contains("godwit node stop"), "{refused}");
    // A node that is started for another program goes on with what is pending.
    machine.kill();
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&source, &far.join("data/run7/f"));
    let located = says(&["locate", "grid:/run7/f"]).ok();
    assert!(
        located.to_string().contains("godwit://lab/run7/f"),
        "{located}"
    );
    says(&["cp", "grid:/run7/f", "back"]).ok();
    assert_same(&source, &machine.scratch.join("back"));
}
