//! Files written by name at two real nodes: copied, published, audited, and killed on the way.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Node, Said, Scratch, assert_same, assert_same_tree, by_name, noise};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

/// A collection with locations at two nodes.
struct World {
    scratch: Scratch,
    lab: Node,
    archive: Node,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let [lab, archive] = ["lab", "archive"].map(|site| Node::start(&scratch.dir(site)));
        let world = Self {
            scratch,
            lab,
            archive,
        };
        world.run(&["catalog", "init"]);
        let (lab, archive) = (world.lab.url(""), world.archive.url("data"));
        world.run(&["location", "add", "lab", &lab, "grid:/c"]);
        world.run(&["location", "add", "archive", &archive, "grid:/c"]);
        world
    }

    fn said(&self, words: &[&str]) -> Said {
        Said::of(&mut by_name(&self.scratch, words))
    }

    fn run(&self, words: &[&str]) -> String {
        String::from_utf8(self.said(words).ok().stdout).unwrap()
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.scratch.join(path), bytes).unwrap();
    }

    fn at(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.scratch.join(path)).ok()
    }

    /// Returns state and site of each copy.
    fn copies(&self, name: &str) -> Vec<String> {
        let shown = self.run(&["locate", name]);
        let copy = |line: &str| {
            line.split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        };
        shown.lines().map(copy).collect()
    }
}

/// Returns the last line that `--json` prints.
fn summary(said: &Said) -> serde_json::Value {
    let last = said
        .stdout
        .split(|byte| *byte == b'\n')
        .rfind(|line| !line.is_empty());
    serde_json::from_slice(last.unwrap()).unwrap()
}

#[test] //= FARM-98
fn files_are_written_by_name() {
    let world = World::new();
    fs::create_dir_all(world.scratch.join("src/sub")).unwrap();
    world.write("src/a b", "small");
    world.write("src/sub/big", noise(3_000_000, 1));
    world.write("src/sub/empty", "");
    world.run(&["cp", "-r", "src", "grid:/c"]);
    assert_same_tree(&world.scratch.join("src"), &world.scratch.join("lab/src"));
    world.run(&["cp", "-r", "grid:/c/src", "back"]);
    assert_same_tree(&world.scratch.join("src"), &world.scratch.join("back"));
    world.write("moved", "moved");
    world.run(&["mv", "moved", "grid:/c/moved"]);
    assert!(world.at("moved").is_none());
    world.run(&["mv", "grid:/c/moved", "grid:/c/src/renamed"]);
    assert_eq!(world.run(&["cat", "grid:/c/src/renamed"]), "moved");
    world.run(&["rm", "-r", "grid:/c/src"]);
    assert_eq!(
        world.run(&["find", "lab"]),
        "lab\n",
        "nothing is left at the site"
    );
    world.run(&["audit", "grid:/"]);
}

#[test]
fn piped_bytes_are_written_by_name() {
    let world = World::new();
    let mut command = by_name(&world.scratch, &["cp", "-", "grid:/c/piped"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &noise(2_000_000, 3)).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(world.at("lab/piped"), Some(noise(2_000_000, 3)));
    assert!(world.run(&["stat", "grid:/c/piped"]).contains("2000000"));
}

#[test] //= REPLICAS-3
fn copies_survive_their_first_site() {
    let mut world = World::new();
    fs::create_dir(world.scratch.join("src")).unwrap();
    for at in 0..20 {
        world.write(&format!("src/{at}"), format!("content {at}"));
    }
    world.write("src/big", noise(5_000_000, 2));
    world.run(&["cp", "-r", "src", "grid:/c"]);
    let said = world
        .said(&["replicate", "grid:/c", "--to", "archive", "--json"])
        .ok();
    let told = summary(&said);
    assert_eq!(
        (told["files"].as_u64(), told["failed"].as_u64()),
        (Some(21), Some(0))
    );
    assert_same_tree(
        &world.scratch.join("src"),
        &world.scratch.join("archive/data/src"),
    );
    // Which comes first is measured.
    let mut copies = world.copies("grid:/c/src/big");
    copies.sort();
    assert_eq!(copies, ["whole archive", "whole lab"]);
    let again = world
        .said(&["replicate", "grid:/c", "--to", "archive", "--json"])
        .ok();
    assert_eq!(summary(&again)["skipped"].as_u64(), Some(21));
    world.lab.kill();
    world.run(&["cp", "-r", "grid:/c/src", "back"]);
    assert_same_tree(&world.scratch.join("src"), &world.scratch.join("back"));
    // A new file goes to the site that answers.
    world.write("more", "more");
    world.run(&["cp", "more", "grid:/c/more"]);
    assert_same(
        &world.scratch.join("more"),
        &world.scratch.join("archive/data/more"),
    );
}

#[test] //= REPLICAS-9
fn stale_publisher_is_told() {
    let world = World::new();
    world.write("one", "first");
    world.run(&["publish", "one", "grid:/c/a", "--to", "archive"]);
    assert_eq!(world.copies("grid:/c/a"), ["whole archive"]);
    let sum = world.run(&["sum", "one"]);
    let base = sum.split(' ').next().unwrap();
    world.write("two", "second");
    world.run(&["publish", "two", "grid:/c/a", "--based-on", base]);
    let stale = world.said(&["publish", "one", "grid:/c/a", "--based-on", base]);
    assert_eq!(stale.status, Some(1), "{stale}");
    assert!(stale.stderr.contains("is current, not blake3:"), "{stale}");
    assert_eq!(world.run(&["cat", "grid:/c/a"]), "second");
    let nowhere = world.said(&["publish", "one", "grid:/c/a", "--to", "tape"]);
    assert!(
        nowhere
            .stderr
            .contains("godwit location add tape URL grid:/c"),
        "{nowhere}"
    );
}

#[test] //= REPLICAS-51 REPLICAS-57
fn audit_finds_and_repairs() {
    let world = World::new();
    for name in ["gone", "short", "other", "fine"] {
        world.write(name, noise(100_000, 4));
        world.run(&["cp", name, &format!("grid:/c/{name}")]);
    }
    world.run(&["replicate", "grid:/c", "--to", "archive"]);
    world.run(&["audit", "grid:/c", "--digests"]);
    fs::remove_file(world.scratch.join("lab/gone")).unwrap();
    world.write("archive/data/short", "short");
    world.write("lab/other", noise(100_000, 5));
    world.write("archive/data/dark", "dark");
    let found = world.said(&["audit", "grid:/c", "--digests", "--json"]);
    assert_eq!(found.status, Some(12), "{found}");
    let counts = |said: &Said| {
        let summary = summary(said);
        ["lost", "dark", "size", "digest", "repaired"].map(|count| summary[count].as_u64().unwrap())
    };
    assert_eq!(counts(&found), [1, 1, 1, 1, 0]);
    assert_eq!(world.copies("grid:/c/gone"), ["whole archive", "lost lab"]);
    let repaired = world.said(&["audit", "grid:/c", "--repair", "--json"]);
    assert_eq!(
        (counts(&repaired), repaired.status),
        ([1, 1, 1, 1, 3], Some(12)),
        "{repaired}"
    );
    assert_eq!(world.at("lab/other"), Some(noise(100_000, 4)));
    fs::remove_file(world.scratch.join("archive/data/dark")).unwrap();
    world.run(&["audit", "archive", "--digests"]);
    let unknown = world.said(&["audit", "nowhere"]);
    assert!(unknown.stderr.contains("archive, lab"), "{unknown}");
}

#[test] //= FARM-98 REPLICAS-49
fn copies_of_one_site_are_removed() {
    let world = World::new();
    world.write("a", "content");
    world.run(&["cp", "a", "grid:/c/a"]);
    let last = world.said(&["rm", "grid:/c/a", "--at", "lab"]);
    assert!(last.stderr.contains("--last"), "{last}");
    for words in [
        &["rm", "grid:/c/a", "--at", "nosite"][..],
        &["unregister", "grid:/c/a", "--at", "nosite"],
        &[
            "replicate",
            "grid:/c/a",
            "--to",
            "archive",
            "--from",
            "nosite",
        ],
    ] {
        let unknown = world.said(words);
        assert_eq!(unknown.status, Some(4), "{unknown}");
        assert!(
            unknown.stderr.contains("no location at nosite"),
            "{unknown}"
        );
    }
    world.run(&["replicate", "grid:/c/a", "--to", "archive"]);
    world.run(&["rm", "grid:/c/a", "--at", "lab"]);
    assert_eq!(
        (world.at("lab/a"), world.copies("grid:/c/a")),
        (None, vec!["whole archive".into()])
    );
    world.run(&["unregister", "grid:/c/a"]);
    assert_eq!(world.at("archive/data/a").as_deref(), Some(&b"content"[..]));
    let dark = world.said(&["audit", "grid:/c"]);
    assert!(
        String::from_utf8_lossy(&dark.stdout).contains("dark"),
        "{dark}"
    );
}

#[test] //= REPLICAS-4 REPLICAS-24
fn measured_costs_order_the_copies() {
    let mut world = World::new();
    world.write("big", noise(3_000_000, 6));
    world.run(&["cp", "big", "grid:/c/big"]);
    world.run(&["replicate", "grid:/c/big", "--to", "archive"]);
    for _ in 0..4 {
        world.run(&["cp", "grid:/c/big", "copy"]);
    }
    let shown = world.run(&["locate", "-v", "grid:/c/big"]);
    assert!(shown.contains(" s: median of "), "{shown}");
    world.lab.kill();
    for _ in 0..6 {
        world.run(&["cp", "grid:/c/big", "copy"]);
    }
    let shown = world.run(&["locate", "-v", "grid:/c/big", "--to", "tape"]);
    let first = shown.lines().next().unwrap();
    assert!(first.contains("archive"), "{shown}");
    assert!(shown.contains("copy to tape: "), "{shown}");
    let said = world.said(&["locate", "--json", "grid:/c/big", "--to", "archive"]);
    let lines = String::from_utf8(said.stdout).unwrap();
    let home: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert!(
        home["cost_s"].as_f64().unwrap() > 0.0 && home["why"].is_string(),
        "{home}"
    );
    assert!(lines.contains(r#""event":"copy""#), "{lines}");
    // What the transfer of a copy took is noted with its publication.
    world.run(&[
        "location",
        "add",
        "third",
        &world.archive.url("third"),
        "grid:/c",
    ]);
    world.run(&[
        "replicate",
        "grid:/c/big",
        "--to",
        "third",
        "--from",
        "archive",
    ]);
    let said = world.said(&["locate", "--json", "grid:/c/big", "--to", "third"]);
    let lines = String::from_utf8(said.stdout).unwrap();
    assert!(lines.contains(r#""why":"median of 1 transfers"#), "{lines}");
}

#[test]
fn node_keeps_the_rules() {
    let mut world = World::new();
    world.write("a", noise(1_500_000, 8));
    world.run(&["cp", "a", "grid:/c/a"]);
    world.run(&["rule", "add", "grid:/c", "copies=2"]);
    let refused = world.said(&["rule", "add", "grid:/c", "copys=2"]);
    assert_eq!(refused.status, Some(2), "{refused}");
    let lacking = world.said(&["rule", "why", "grid:/c/a"]);
    assert_eq!(lacking.status, Some(1), "{lacking}");
    assert!(
        String::from_utf8_lossy(&lacking.stdout).contains("a copy at archive"),
        "{lacking}"
    );
    let catalog = format!("sqlite:{}", world.scratch.join("names.db").display());
    let export = world.scratch.dir("served");
    let serve = |export| Node::with(export, &["--catalog", &catalog]);
    let mut node = serve(&export);
    let is_met = |world: &World, name: &str| {
        let until = Instant::now() + Duration::from_secs(60);
        while world.said(&["rule", "why", name]).status != Some(0) {
            assert!(
                Instant::now() < until,
                "{}",
                world.said(&["rule", "why", name])
            );
        }
    };
    is_met(&world, "grid:/c/a");
    world.write("b", "small");
    world.run(&["cp", "b", "grid:/c/b"]);
    is_met(&world, "grid:/c/b");
    // What changes while the node is down is done after its restart.
    node.kill();
    world.archive.kill();
    world.run(&["publish", "a", "grid:/c/b", "--to", "lab"]);
    world.archive = Node::on(
        &world.scratch.join("archive"),
        world.archive.port,
        &["--anonymous", "write"],
    );
    let _node = serve(&export);
    is_met(&world, "grid:/c/b");
    assert_same(
        &world.scratch.join("a"),
        &world.scratch.join("archive/data/b"),
    );
}

/// The places where a writer of a large file may die.
const LARGE: [&str; 6] = [
    "name-intend",
    "name-intended",
    "name-land",
    "name-landed",
    "name-finished",
    "name-published",
];
/// The places where a writer of small files may die.
const SMALL: [&str; 4] = [
    "pack-land",
    "pack-landed",
    "pack-finished",
    "pack-published",
];
/// The places where a deletion may die.
const DELETION: [&str; 2] = ["name-delete", "name-deleted"];

/// Contents that a name may have; `None`: it may be missing.
type Allowed = BTreeMap<String, BTreeSet<Option<u64>>>;

/// A world, and what must be true of it.
struct Killing {
    world: World,
    allowed: Allowed,
    seed: u64,
}

impl Killing {
    fn next(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    /// Runs a command that dies at a place or at any time; tells whether it was done all the same.
    fn dies(&mut self, words: &[&str], point: Option<&str>) -> bool {
        let mut command = by_name(&self.world.scratch, words);
        let note = self.world.scratch.join("died-at");
        command
            .env("TEST_CRASH_NOTE", note)
            .arg("--quiet")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(point) = point {
            command.env("GODWIT_CRASH", point);
            return command.status().unwrap().success();
        }
        let mut child = command.spawn().unwrap();
        let dies_at = Instant::now() + Duration::from_millis(self.next(120));
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.success();
            }
            if Instant::now() >= dies_at {
                child.kill().unwrap();
                return child.wait().unwrap().success();
            }
            std::thread::yield_now();
        }
    }

    fn now(&self, name: &str) -> BTreeSet<Option<u64>> {
        self.allowed
            .get(name)
            .cloned()
            .unwrap_or_else(|| BTreeSet::from([None]))
    }

    fn becomes(&mut self, name: &str, content: Option<u64>, is_done: bool) {
        let mut allowed = self.now(name);
        if is_done {
            allowed.clear();
        }
        allowed.insert(content);
        self.allowed.insert(name.into(), allowed);
    }

    fn bytes(content: u64) -> Vec<u8> {
        // One of three is a large file.
        noise(
            if content.is_multiple_of(3) {
                1_200_000
            } else {
                500
            },
            content,
        )
    }

    /// Returns where to die; `None`: at any time.
    fn point(&mut self, points: &[&'static str]) -> Option<&'static str> {
        let at = self.next(points.len() as u64 + 2);
        points.get(at as usize).copied()
    }

    fn round(&mut self, nth: u64) {
        let name = self.next(60).to_string();
        let url = format!("grid:/c/{name}");
        match self.next(10) {
            0..=3 => {
                let bytes = Self::bytes(nth);
                let point = match bytes.len() > 1 << 20 {
                    true => self.point(&LARGE),
                    false => self.point(&SMALL),
                };
                self.world.write("source", bytes);
                let is_done = self.dies(&["cp", "source", &url], point);
                self.becomes(&name, Some(nth), is_done);
            }
            4 | 5 => {
                let dir = self.world.scratch.dir(format!("pack-{nth}"));
                let names: Vec<_> = (0..4).map(|at| ((nth + at * 7) % 60).to_string()).collect();
                for name in &names {
                    fs::write(dir.join(name), noise(300, nth)).unwrap();
                }
                let source = format!("pack-{nth}/");
                let point = self.point(&SMALL);
                let is_done = self.dies(&["cp", "-r", &source, "grid:/c"], point);
                for name in &names {
                    self.becomes(name, Some(u64::MAX - nth), is_done);
                }
            }
            6 | 7 => {
                let point = self.point(&[LARGE.as_slice(), &SMALL].concat());
                self.dies(&["replicate", &url, "--to", "archive"], point);
            }
            8 => {
                let point = self.point(&DELETION);
                let is_done = self.dies(&["rm", &url], point);
                self.becomes(&name, None, is_done);
            }
            _ => {
                let point = self.point(&DELETION);
                self.dies(&["rm", &url, "--at", "lab"], point);
            }
        }
    }

    /// Has everything settled, then compares.
    fn check(&self) {
        let world = &self.world;
        let until = Instant::now() + Duration::from_secs(60);
        let audited = loop {
            let audited = world.said(&["audit", "grid:/c", "--repair", "--digests", "--json"]);
            let shown = world.run(&["locate", "grid:/c"]);
            // Until a lease has ended, a copy may be filling.
            let is_settled = audited.status == Some(0) && !shown.contains("filling");
            if is_settled || Instant::now() > until {
                break audited;
            }
        };
        assert_eq!(audited.status, Some(0), "{audited}");
        for (name, allowed) in &self.allowed {
            let said = world.said(&["cat", &format!("grid:/c/{name}")]);
            let expected: Vec<_> = allowed
                .iter()
                .map(|content| {
                    content.map(|content| match content {
                        content if content > u64::MAX / 2 => noise(300, u64::MAX - content),
                        content => Self::bytes(content),
                    })
                })
                .collect();
            let found = (said.status == Some(0)).then_some(said.stdout);
            let is_missing = said.status == Some(4) && found.is_none();
            assert!(
                expected.contains(&found) && (found.is_some() || is_missing),
                "{name}: {} contents are allowed {allowed:?}, found {:?}\n{}",
                expected.len(),
                found.map(|found| found.len()),
                said.stderr
            );
        }
    }
}

#[test] //= REPLICAS-57
fn killed_writers_lose_nothing() {
    let kills = std::env::var("TEST_KILLS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(40);
    let seed = std::env::var("TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let world = World::new();
    world.write("died-at", "");
    let mut killing = Killing {
        world,
        allowed: Allowed::new(),
        seed,
    };
    for nth in 1..=kills {
        killing.round(nth);
        if nth % 50 == 0 {
            killing.check();
        }
    }
    killing.check();
    let died = fs::read_to_string(killing.world.scratch.join("died-at")).unwrap();
    let places: BTreeSet<_> = died.lines().collect();
    assert!(places.len() >= 6, "it died at {places:?} only");
}
