//! The godwit of today and an older one (tests/older/COMMIT): each as client of the other's node, and
//! nodes of both that draw from each other. Skipped where the older commit is not there.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Machine, Scratch, assert_same, assert_same_tree, skip};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Builds the older program unless it is there; `None` if it cannot be built, with a message.
fn older() -> Option<PathBuf> {
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/older/build");
    // The directory of our own program, whatever cargo was told.
    let target = Path::new(env!("CARGO_BIN_EXE_godwit"))
        .parent()
        .unwrap()
        .parent()
        .unwrap();
    let built = Command::new(build)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr).into_owned();
    if built.status.code() == Some(77) {
        skip(said.trim());
        return None;
    }
    assert!(built.status.success(), "{said}");
    Some(String::from_utf8(built.stdout).unwrap().trim().into())
}

/// The steps of a client against a node of another version.
fn they_get_on(scratch: &Scratch, node: Option<&Path>, client: Option<&Path>) {
    let mut lab = Machine::new(scratch, "lab").with_program(node);
    let laptop = Machine::new(scratch, "laptop").with_program(client);
    let data = scratch.dir("data");
    lab.serve("lab", &data);
    lab.joined_by(&laptop, "laptop");
    let ours = scratch.dir("ours");
    scratch.file("ours/small", 1000);
    for nth in 0..500 {
        scratch.file(format!("ours/many/{}/{nth}", nth % 7), 10 + nth);
    }
    scratch.file("ours/large", LARGE);
    let (there, back) = ("godwit://lab/there", scratch.join("back"));
    laptop.well(&["cp", "-r", ours.to_str().unwrap(), there]);
    assert_same_tree(&data.join("there"), &ours);
    laptop.well(&["cp", "-r", there, back.to_str().unwrap()]);
    assert_same_tree(&back, &ours);
    assert!(laptop.well(&["ls", there]).contains("large"));
    let stat = laptop.well(&["stat", "--json", "godwit://lab/there/large"]);
    assert!(stat.contains(&LARGE.to_string()), "{stat}");
    they_resume(&laptop, &ours.join("large"), &data.join("again"));
    laptop.well(&["rm", "-r", there]);
    assert!(!data.join("there").exists());
    let missing = laptop.says(&["cp", "godwit://lab/there", "nowhere"]);
    assert_eq!(missing.status.code(), Some(4), "{missing:?}");
}

/// A client that is killed goes on where it was.
fn they_resume(laptop: &Machine<'_>, large: &Path, again: &Path) {
    let words = [
        "cp",
        "--json",
        large.to_str().unwrap(),
        "godwit://lab/again",
    ];
    let mut command = laptop.command(&words);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    // Some of it has landed.
    for line in out.lines() {
        let said: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        if said["event"] == "progress" && said["bytes"].as_u64() > Some(0) {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    let summary = laptop.summary(&words);
    // A copy that was done before the kill had nothing to resume.
    eprintln!("resumed {} of {LARGE} bytes", summary["resumed_bytes"]);
    assert_eq!(summary["status"], "ok");
    assert_same(again, large);
}

#[test]
fn older_client_works_with_node() {
    let Some(older) = older() else { return };
    they_get_on(&Scratch::new(), None, Some(&older));
}

#[test]
fn client_works_with_older_node() {
    let Some(older) = older() else { return };
    they_get_on(&Scratch::new(), Some(&older), None);
}

#[test]
fn old_and_new_nodes_draw() {
    let Some(older) = older() else { return };
    let older = Some(older.as_path());
    for (from, to, client) in [
        (older, None, None),
        (None, older, None),
        (older, None, older),
        (None, older, older),
    ] {
        let scratch = Scratch::new();
        let mut source = Machine::new(&scratch, "source").with_program(from);
        let mut target = Machine::new(&scratch, "target").with_program(to);
        let laptop = Machine::new(&scratch, "laptop").with_program(client);
        let file = scratch.file("source.data/f", LARGE);
        for (node, name) in [(&mut source, "source"), (&mut target, "target")] {
            node.serve(name, &scratch.dir(format!("{name}.data")));
            node.joined_by(&laptop, "laptop");
        }
        laptop.well(&["cp", "godwit://source/f", "godwit://target/g"]);
        assert_same(&scratch.join("target.data/g"), &file);
        // The bytes did not pass through this client.
        assert!(source.log().contains("v1/grant"), "{}", source.log());
    }
}

const LARGE: usize = 50_000_000;
