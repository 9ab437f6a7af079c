//! `godwit put`: many files, trees, and the directories where they belong.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Said, Scratch, assert_same, programs::Machine, wait_until};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// A file on hold besides decides how `push` ends.
#[test] //= delivery#faults
fn missing_directory_leaves_put_pending() {
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

#[test] //= delivery#faults
fn put_parents_works_offline() {
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
    machine.says(&["push", "--timeout", "30"]).ok();
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

#[test] //= delivery#put-and-conflicts
fn put_copies_trees_like_cp() {
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

/// Each names the cause and the next command, and cuts a name that is too long to read.
#[test]
fn messages_name_next_command() {
    let machine = Machine::new();
    machine.scratch.file("f", 10);
    let long = format!("ftp://127.0.0.1:1/{}", "x".repeat(10_000));
    let cases: [(&[&str], i32, &str, &str); 10] = [
        (&["put"], 2, "nothing was named", "godwit put SOURCE"),
        (&["put", "f", ""], 2, "it is empty", "name a file or a URL"),
        (&["put", "--bogus"], 2, "--bogus", "hint: godwit help put"),
        (
            &["tail", "-n", "-3", "f"],
            2,
            "0 or more",
            "hint: godwit help tail",
        ),
        (&["put", "f", &long], 2, "10018 bytes", "in fewer bytes"),
        (
            &["cp", &long, "here"],
            5,
            "connection refused",
            "is a server running",
        ),
        (
            &["put", &long, "ftp://h/x"],
            2,
            "files of this machine",
            "godwit cp",
        ),
        (
            &["drop", "ftp://h/x"],
            4,
            "nothing of that name",
            "godwit queue",
        ),
        (
            &["put", "f", "ftp://a..b/x"],
            2,
            "a..b",
            "godwit help schemes",
        ),
        (
            &["put", "f", "ftp://h:99999/x"],
            2,
            "99999",
            "godwit help schemes",
        ),
    ];
    for (args, status, cause, next) in cases {
        let said = machine.says(args);
        assert_eq!(said.status, Some(status), "{said}");
        let is_told = said.stderr.contains(cause) && said.stderr.contains(next);
        assert!(is_told && said.stderr.len() < 1000, "{said}");
    }
    let file = machine.scratch.join("f");
    let mut elsewhere = machine.command(&["put", "f", "ftp://h/x"]);
    elsewhere.env("GODWIT_STATE", &file);
    elsewhere.env("GODWIT_SOCKET", machine.scratch.join("other/socket"));
    let said = Said::of(&mut elsewhere);
    let is_told =
        said.stderr.contains(file.to_str().unwrap()) && said.stderr.contains("GODWIT_STATE");
    assert!(said.status != Some(0) && is_told, "{said}");
}

#[test]
fn new_file_on_hold_names_commands() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    machine.scratch.file("f", 10);
    machine.says(&["put", "--new", "f", "godwit://lab/f"]).ok();
    let pushed = machine.says(&["push", "--timeout", "30"]);
    assert_eq!(pushed.status, Some(1), "{pushed}");
    let queue = machine.says(&["queue"]).ok().to_string();
    for verb in ["retry", "release", "drop"] {
        let command = format!("godwit {verb} godwit://lab/f");
        assert!(pushed.stderr.contains(&command), "{pushed}");
        assert!(queue.contains(&command), "{queue}");
    }
    machine.says(&["release", "godwit://lab/f"]).ok();
    machine.says(&["push", "--timeout", "30"]).ok();
}

/// A terminal is shown a bar once a verb takes longer than two seconds.
#[test]
fn terminal_shows_remaining_bytes() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 2048);
    lab.kill();
    for name in ["a", "b"] {
        let url = format!("godwit://lab/{name}");
        machine.says(&["put", "f", &url]).ok();
    }
    let ours = machine.command(&[]);
    let program = ours.get_program().to_str().unwrap();
    let begin = |words: &str| {
        let log = machine.scratch.join(words.replace(' ', "-"));
        let mut command = Command::new("script");
        command.args(["-qefc", &format!("{program} {words}")]);
        command.arg(&log).current_dir(machine.scratch.path());
        for (name, value) in ours.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        (command.spawn().unwrap(), log)
    };
    let shows = |log: &Path, wanted: &str| {
        wait_until(wanted, || {
            let text = fs::read(log).unwrap_or_default();
            String::from_utf8_lossy(&text).contains(wanted)
        });
    };
    let (mut push, pushed) = begin("push");
    let (mut queue, watched) = begin("queue -w");
    shows(&pushed, "0 B of 4.00 KiB  0/2 files");
    shows(&watched, "0 B of 4.00 KiB  0/2 files");
    lab.start(&[]);
    assert!(push.wait().unwrap().success());
    assert!(queue.wait().unwrap().success());
}
