//! The examples, compiled with every warning an error, and run.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    programs::{Scratch, command, compile, good, sources},
    stand_in::StandIn,
};
use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

struct Lab {
    scratch: Scratch,
    node: StandIn,
}

impl Lab {
    fn new() -> Self {
        let scratch = Scratch::new();
        let node = StandIn::start(scratch.path());
        node.keep("godwit://lab/a", b"one two\n");
        node.keep("godwit://lab/b", b"three\n");
        Self { scratch, node }
    }

    fn example(&self, source: &str) -> PathBuf {
        compile(&self.scratch, &format!("examples/{source}"))
    }

    fn command(&self, source: &str) -> Command {
        command(&self.scratch, &self.example(source), &self.node)
    }
}

#[test]
fn cat_and_copy() {
    let lab = Lab::new();
    let plain = lab.scratch.path().join("plain");
    fs::write(&plain, "plain\n").unwrap();
    let said = good(lab.command("cat.c").args(["godwit://lab/a"]).arg(&plain));
    assert_eq!(said, "one two\nplain\n");
    let copy = lab.example("copy.c");
    let copied = |from: &str, to: &str| {
        good(command(&lab.scratch, &copy, &lab.node).args([from, to]));
    };
    copied(plain.to_str().unwrap(), "godwit://lab/copy");
    copied("godwit://lab/copy", "godwit://lab/again");
    assert_eq!(lab.node.bytes("godwit://lab/again").unwrap(), b"plain\n");
    let mut missing = command(&lab.scratch, &copy, &lab.node);
    let missing = missing
        .args(["godwit://lab/none", "/dev/null"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(said.starts_with("copy: cannot "), "{said}");
}

#[test]
fn lines_are_logged() {
    let lab = Lab::new();
    let mut log = lab
        .command("log.c")
        .arg("godwit://lab/log")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = log.stdin.take().unwrap();
    lines.write_all(b"first\n").unwrap();
    lab.node.until("the first line is there", |world| {
        let kept = world.files.get("godwit://lab/log");
        kept.is_some_and(|kept| kept.bytes == b"first\n")
    });
    lines.write_all(b"second\n").unwrap();
    drop(lines);
    assert!(log.wait().unwrap().success());
    assert_eq!(
        lab.node.bytes("godwit://lab/log").unwrap(),
        b"first\nsecond\n"
    );
}

#[test]
fn records_are_put() {
    let lab = Lab::new();
    good(lab.command("puts.c").args(["godwit://lab/records", "1000"]));
    let text = String::from_utf8(lab.node.bytes("godwit://lab/records").unwrap()).unwrap();
    let numbers: Vec<usize> = text
        .lines()
        .map(|line| line.trim().parse().unwrap())
        .collect();
    assert!(numbers.iter().copied().eq(0..1000));
    assert_eq!(
        lab.node
            .count("push Some(\"godwit://lab/records\") mine=false"),
        1
    );
}

#[test]
fn several_at_once() {
    let lab = Lab::new();
    let said = good(
        lab.command("several.c")
            .args(["godwit://lab/a", "godwit://lab/b"]),
    );
    let mut lines: Vec<_> = said.lines().filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["godwit://lab/a: one two", "godwit://lab/b: three"]);
}

#[test]
fn the_cache_is_filled_once() {
    let lab = Lab::new();
    let cache = lab.example("cache.c");
    let run = || good(command(&lab.scratch, &cache, &lab.node).args(["godwit://lab/made", "job"]));
    assert_eq!(run(), "godwit://lab/made 10 job\n");
    assert_eq!(run(), "godwit://lab/made 10 job\n");
    assert_eq!(lab.node.bytes("godwit://lab/made").unwrap(), b"made here\n");
}

#[test]
fn words_in_cxx() {
    let lab = Lab::new();
    assert_eq!(good(lab.command("words.cc").arg("godwit://lab/a")), "2\n");
}

#[test]
fn what_is_measured() {
    let lab = Lab::new();
    let bench = lab.example("bench.c");
    let run = |words: &[&str]| good(command(&lab.scratch, &bench, &lab.node).args(words));
    assert!(run(&["open", "godwit://lab/a", "100"]).starts_with("open+close median_us "));
    let said = run(&["put", "godwit://lab/p", "10000", "100"]);
    assert!(said.starts_with("puts_per_s "), "{said}");
    assert_eq!(lab.node.bytes("godwit://lab/p").unwrap().len(), 1_000_000);
}

#[test]
fn every_example_is_compiled_here() {
    let here = fs::read_to_string(sources().join("tests/examples.rs")).unwrap();
    for example in fs::read_dir(sources().join("examples")).unwrap() {
        let name = example.unwrap().file_name().into_string().unwrap();
        assert!(
            here.contains(&format!("\"{name}\"")),
            "{name} is not compiled"
        );
    }
}
