//! `godwit put`: many files, trees, and the directories where they belong.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Scratch, assert_same, programs::Machine};
use std::fs;

/// A file on hold besides decides how `push` ends.
#[test]
fn missing_directory_is_said_and_pending() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let source = machine.scratch.file("f", 1000);
    let next = "godwit mkdir -p godwit://lab/none";
    let put = machine.says(&["put", "f", "godwit://lab/none/"]).ok();
    let is_said = |words| put.stderr.contains(words);
    assert!(is_said(next) && is_said("put --parents"), "{put}");
    let pushed = machine.says(&["push", "--timeout", "30"]);
    assert_eq!(pushed.status, Some(5), "{pushed}");
    assert!(pushed.stderr.contains(next), "{pushed}");
    let (_, rows) = machine.json(&["queue"]);
    assert_eq!(rows[0]["stage"], "waiting", "{rows:?}");
    machine.says(&["put", "f", "godwit://lab/a"]).ok();
    machine
        .says(&["push", "godwit://lab/a", "--timeout", "30"])
        .ok();
    machine.says(&["put", "f", "godwit://lab/a/below"]).ok();
    let held = machine.says(&["push", "--timeout", "30"]);
    assert_ne!(held.status, Some(5), "{held}");
    assert!(held.stderr.contains("lab/a/below"), "{held}");
    machine.says(&["drop", "godwit://lab/a/below"]).ok();
    let words: Vec<_> = next.split(' ').skip(1).collect();
    machine.says(&words).ok();
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&source, &far.join("data/none/f"));
    let quiet = machine.says(&["put", "f", "godwit://lab/none/"]).ok();
    assert!(quiet.stderr.is_empty(), "{quiet}");
}

#[test]
fn put_parents_makes_directories_though_away() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    let source = machine.scratch.file("f", 1000);
    let there = ["a/b/c/f", "a/b/d/f", "e/f"];
    fs::create_dir_all(far.join("data/e")).unwrap();
    let put = |name: &str| {
        let url = format!("godwit://lab/{name}");
        machine.says(&["put", "--parents", "f", &url]).ok();
    };
    put(there[0]);
    lab.kill();
    put(there[1]);
    // Another program makes it meanwhile.
    fs::create_dir_all(far.join("data/a/b/d")).unwrap();
    put(there[2]);
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
    for name in there {
        assert_same(&source, &far.join("data").join(name));
    }
    put("a/b/c/g");
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&source, &far.join("data/a/b/c/g"));
}

#[test]
fn trees_are_put_as_cp_copies_them() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let scratch = &machine.scratch;
    for name in ["t/x/f", "t/x/f.tmp", "t/cache/f", "t/g", "h"] {
        let file = scratch.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, name).unwrap();
    }
    scratch.dir("t/empty");
    std::os::unix::fs::symlink("g", scratch.join("t/link")).unwrap();
    std::os::unix::fs::symlink("none", scratch.join("t/broken")).unwrap();
    let without = ["put", "t", "h", "godwit://lab/"];
    let refused = machine.says(&without);
    let is_told = refused.status == Some(1) && refused.stderr.contains("add -r");
    assert!(is_told, "{refused}");
    let no_slash = machine.says(&["put", "-r", "t", "godwit://lab/d"]);
    let is_told = no_slash.status == Some(2) && no_slash.stderr.contains("godwit://lab/d/");
    assert!(is_told, "{no_slash}");
    let (code, told) = machine.json(&[
        "put",
        "-r",
        "--exclude",
        "*.tmp",
        "--exclude=cache/",
        "t",
        "h",
        "godwit://lab/",
    ]);
    assert_eq!(code, Some(4), "{told:?}"); // of the link that leads nowhere
    let facts = told.last().unwrap();
    assert_eq!(
        (&facts["files"], &facts["failed"]),
        (&4.into(), &1.into()),
        "{facts}"
    );
    machine
        .says(&["put", "-r", "--parents", "t/x/", "godwit://lab/new/x/"])
        .ok();
    machine.says(&["push", "--timeout", "30"]).ok();
    let listed = machine.says(&["find", "godwit://lab/"]).ok().to_string();
    let mut found: Vec<_> = (listed.split_whitespace())
        .filter_map(|url| url.strip_prefix("godwit://lab/"))
        .filter(|name| !name.is_empty())
        .collect();
    found.sort_unstable();
    let wanted = [
        "f",
        "h",
        "new",
        "new/x",
        "new/x/f",
        "new/x/f.tmp",
        "t",
        "t/empty",
        "t/g",
        "t/link",
        "t/x",
        "t/x/f",
    ];
    assert_eq!(found, wanted, "{listed}");
    assert_eq!(fs::read(far.join("data/t/x/f")).unwrap(), b"t/x/f");
}
