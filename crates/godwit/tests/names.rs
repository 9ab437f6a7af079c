//! Names of a catalog: registered at two nodes, and read whichever of them is down.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Node, Said, Scratch, assert_same, assert_same_tree, by_name, godwit, noise};
use std::fs;

/// Two nodes with equal trees, and a catalog that knows both.
struct World {
    scratch: Scratch,
    nodes: [Node; 2],
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        for side in ["one", "two"] {
            fs::create_dir_all(scratch.join(side).join("run7/sub")).unwrap();
            fs::write(scratch.join(side).join("run7/a b"), "small").unwrap();
            fs::write(scratch.join(side).join("run7/sub/big"), noise(3_000_000, 7)).unwrap();
        }
        let nodes = ["one", "two"].map(|side| Node::start(&scratch.join(side)));
        let world = Self { scratch, nodes };
        world.run(&["catalog", "init"]);
        world
    }

    fn said(&self, words: &[&str]) -> Said {
        Said::of(&mut by_name(&self.scratch, words))
    }

    fn run(&self, words: &[&str]) -> String {
        String::from_utf8(self.said(words).ok().stdout).unwrap()
    }

    fn register(&self, node: usize) -> Said {
        let url = self.nodes[node].url("run7");
        self.said(&["register", "-r", &url, "--as", "grid:/run7"])
    }
}

#[test] //= FARM-98
fn names_survive_either_node_down() {
    let mut world = World::new();
    world.register(0).ok();
    world.register(1).ok();
    world.register(1).ok();
    assert_eq!(
        world
            .run(&["locate", "grid:/run7"])
            .matches("whole")
            .count(),
        4
    );
    for (down, up) in [(0, "one"), (1, "two")] {
        world.nodes[down].kill();
        assert_eq!(world.run(&["ls", "grid:/run7"]), "a b\nsub/\n");
        assert!(
            world
                .run(&["stat", "grid:/run7/a b"])
                .contains("size      5")
        );
        assert_eq!(world.run(&["cat", "grid:/run7/a b"]), "small");
        assert!(
            world
                .run(&["find", "grid:/run7"])
                .contains("grid:/run7/sub/big")
        );
        assert!(world.run(&["du", "grid:/run7"]).contains("3000005"));
        let sum = world.run(&["sum", "grid:/run7/sub/big"]);
        let local = world.run(&["sum", "one/run7/sub/big"]);
        assert_eq!(sum.split(' ').next(), local.split(' ').next());
        let copy = format!("copy-{down}");
        world.run(&["cp", "-r", "grid:/run7", &copy]);
        assert_same_tree(&world.scratch.join("one/run7"), &world.scratch.join(&copy));
        if up == "one" {
            let export = world.scratch.join(up);
            world.nodes[down] =
                Node::on(&export, world.nodes[down].port, &["--anonymous", "write"]);
        }
    }
}

#[test]
fn other_bytes_are_refused() {
    let world = World::new();
    world.register(0).ok();
    fs::write(world.scratch.join("two/run7/a b"), "other").unwrap();
    let refused = world.register(1);
    assert_eq!(refused.status, Some(12), "{refused:?}");
    let shown = world.run(&["locate", "grid:/run7/a b"]);
    assert_eq!(shown.lines().count(), 1, "{shown}");
}

#[test]
fn damaged_copy_is_passed_over() {
    let world = World::new();
    world.register(0).ok();
    world.register(1).ok();
    let first = world.run(&["locate", "--json", "grid:/run7/sub/big"]);
    let is_one = first
        .lines()
        .next()
        .unwrap()
        .contains(&world.nodes[0].url("run7"));
    let side = if is_one { "one" } else { "two" };
    fs::write(
        world.scratch.join(side).join("run7/sub/big"),
        noise(3_000_000, 8),
    )
    .unwrap();
    world.run(&["cp", "grid:/run7/sub/big", "copy"]);
    let good = if is_one { "two" } else { "one" };
    assert_same(
        &world.scratch.join(good).join("run7/sub/big"),
        &world.scratch.join("copy"),
    );
    let shown = world.run(&["locate", "grid:/run7/sub/big"]);
    assert_eq!(
        (
            shown.matches("damaged").count(),
            shown.matches("whole").count()
        ),
        (1, 1),
        "{shown}"
    );
}

#[test]
fn missing_catalog_names_the_next_command() {
    let scratch = Scratch::new();
    let mut command = godwit();
    command.args(["ls", "grid:/a"]).env_remove("GODWIT_CATALOG");
    let said = Said::of(&mut command);
    assert!(said.stderr.contains("--catalog sqlite:PATH"), "{said:?}");
    let text = format!("sqlite:{}", scratch.join("none").display());
    let said = Said::of(godwit().args(["ls", "grid:/a", "--catalog", &text]));
    assert!(
        said.stderr.contains("godwit catalog init --catalog"),
        "{said:?}"
    );
    let said = Said::of(godwit().args(["locate", "grid:/a", "--catalog", &text]));
    assert!(
        said.stderr.contains("godwit catalog init --catalog"),
        "{said:?}"
    );
    assert_eq!(said.status, Some(4));
}

#[test] //= REPLICAS-31
fn one_command_follows_moved_server() {
    let mut world = World::new();
    world.register(0).ok();
    world.nodes[0].kill();
    assert_ne!(world.said(&["cat", "grid:/run7/a b"]).status, Some(0));
    let url = world.nodes[1].url("run7");
    world.run(&["location", "set", "127.0.0.1", "grid:/run7", "--url", &url]);
    assert_eq!(world.run(&["cat", "grid:/run7/a b"]), "small");
    assert!(
        world
            .run(&["location", "ls", "grid:/run7"])
            .contains("2 copies")
    );
    let last = world.said(&["location", "rm", "127.0.0.1", "grid:/run7"]);
    assert_eq!(last.status, Some(1), "{last}");
    assert!(last.stderr.contains("last copy of 2 files"), "{last}");
}

#[test]
fn links_and_attributes_follow_file() {
    let world = World::new();
    world.register(0).ok();
    world.run(&["mkdir", "grid:/best"]);
    world.run(&["link", "grid:/run7/a b", "grid:/best/a"]);
    world.run(&["attr", "grid:/best/a", "energy=13TeV", "owner=alice"]);
    assert_eq!(
        world.run(&["attr", "grid:/run7/a b"]),
        "energy=13TeV\nowner=alice\n"
    );
    world.run(&["attr", "grid:/run7/a b", "owner="]);
    assert_eq!(
        world.said(&["attr", "grid:/best/a", "owner"]).status,
        Some(4)
    );
    world.run(&["rm", "grid:/run7/a b"]);
    assert_eq!(world.run(&["cat", "grid:/best/a"]), "small");
    world.run(&["mv", "grid:/best/a", "grid:/best/b"]);
    assert_eq!(world.run(&["ls", "grid:/best"]), "b\n");
    world.run(&["rm", "-r", "grid:/best", "grid:/run7"]);
    assert_eq!(world.run(&["ls", "grid:/"]), "");
    assert!(
        world.scratch.join("one/run7/a b").exists(),
        "registered bytes stay"
    );
}
