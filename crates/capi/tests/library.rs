//! The library as C programs see it, beside a stand-in for the node that shows what was asked.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    programs::{Scratch, all, command, compile, good, library, sources},
    stand_in::StandIn,
};
use godwit_local::Kind;
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

const RUN: &str = "godwit://lab/run7";

/// Runs one rule of `c/rules.c`.
fn rule(name: &str, prepare: impl FnOnce(&StandIn)) -> (StandIn, Scratch) {
    let scratch = Scratch::new();
    let node = StandIn::start(scratch.path());
    node.keep(RUN, b"hello world");
    node.keep("/godwit/lab/run7", b"hello world");
    prepare(&node);
    let rules = compile(&scratch, "tests/c/rules.c");
    let done = command(&scratch, &rules, &node).arg(name).output().unwrap();
    assert!(
        done.status.success(),
        "{}\n{:#?}",
        all(&done),
        node.world().log
    );
    node.until("the program is gone", |world| world.connected == 0);
    (node, scratch)
}

#[test] //= GASS-2
fn descriptors_are_those_of_open() {
    let (node, _scratch) = rule("descriptors", |_| ());
    assert_eq!(node.world().connections, 1);
    assert_eq!(node.count("close"), 2);
}

#[test] //= GASS-6
fn plain_names_ask_nobody() {
    let scratch = Scratch::new();
    let node = StandIn::start(scratch.path());
    let rules = compile(&scratch, "tests/c/rules.c");
    let path = scratch.path().join("plain");
    good(command(&scratch, &rules, &node).arg("plain").arg(&path));
    assert_eq!(fs::read(path).unwrap(), b"plain");
    assert_eq!(node.world().connections, 0);
}

#[test] //= GASS-2 GASS-4 KANGAROO-52 KANGAROO-X1
fn close_returns_after_delivery() {
    let (node, _scratch) = rule("written", |_| ());
    assert_eq!(node.bytes("godwit://lab/new").unwrap(), b"First");
    assert_eq!(node.bytes("godwit://lab/by-stdio").unwrap(), b"3 lines");
    assert_eq!(node.bytes("godwit://lab/thrown-away").unwrap(), b"");
    assert_eq!(node.world().files["godwit://lab/new"].mode, Some(0o640));
    assert_eq!(node.count("close 1 Push"), 1);
    assert_eq!(node.count("close 4 Nothing given up"), 1);
    assert_eq!(node.count("close 5 Commit"), 1);
}

#[test] //= GASS-11
fn each_failure_has_a_number_and_words() {
    rule("failures", |node| {
        let mut world = node.world();
        world
            .refused
            .insert("godwit://far/x".into(), Kind::Unreachable);
        world
            .refused
            .insert("godwit://closed/x".into(), Kind::Denied);
        world
            .refused
            .insert("godwit://full/x".into(), Kind::TooLarge);
        world.refused.insert("godwit://full/x".into(), Kind::OnHold);
        world.refused.insert("godwit://full/x".into(), Kind::Quota);
    });
}

#[test] //= GASS-10
fn close_reports_failed_write_back() {
    let url = "godwit://lab/refused";
    let (node, _scratch) = rule("refused", |node| {
        node.keep(url, b"");
        node.world().refused.insert(url.into(), Kind::Lost);
    });
    assert_eq!(node.bytes(url).unwrap(), b"other");
    assert_eq!(node.bytes("godwit://lab/half").unwrap_or_default(), b"");
    assert_eq!(node.count("close 3 Nothing given up"), 1);
}

#[test] //= c-library#closing
fn exit_delivers_closed_files_only() {
    let (node, _scratch) = rule("left", |_| ());
    assert_eq!(node.bytes("godwit://lab/closed").unwrap(), b"whole");
    assert_eq!(node.bytes("godwit://lab/other").unwrap(), b"whole");
    assert_eq!(node.bytes("godwit://lab/open").unwrap(), b"");
    assert_eq!(node.count("close"), 2, "{:#?}", node.world().log);
}

#[test] //= GASS-12
fn last_descriptor_releases_file_once() {
    let (node, _scratch) = rule("copies", |_| ());
    assert_eq!(node.bytes("godwit://lab/dup").unwrap(), b"one two");
    assert_eq!(node.count("close 1 "), 1);
    assert_eq!(node.count("close"), 5);
    assert_eq!(node.count("open"), 5);
    let world = node.world();
    let waited = world.log.iter().filter(|line| line.ends_with(" Push"));
    assert_eq!(waited.count(), 1, "{:#?}", world.log);
}

#[test] //= GASS-61
fn wrong_answers_of_node_are_refused() {
    rule("lies", |node| node.world().lies = true);
}

#[test] //= GASS-54
fn threads_wait_for_their_own_answers_alone() {
    let scratch = Scratch::new();
    let node = StandIn::start(scratch.path());
    node.keep(RUN, b"hello world");
    node.keep("godwit://slow/x", b"slow");
    node.world().held_up.push("open godwit://slow/x".into());
    let rules = compile(&scratch, "tests/c/rules.c");
    let mut program = command(&scratch, &rules, &node)
        .arg("threads")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(program.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "fast\n", "{:?}", program.wait());
    node.let_go();
    assert!(program.wait().unwrap().success());
    assert_eq!(node.world().connections, 1);
}

#[test]
fn library_leaves_no_threads_signals_or_descriptors() {
    rule("quiet", |_| ());
}

#[test] //= GASS-9 GASS-12
fn child_has_own_connection() {
    let scratch = Scratch::new();
    let node = StandIn::start(scratch.path());
    node.keep(RUN, b"hello world");
    let rules = compile(&scratch, "tests/c/rules.c");
    let mut program = command(&scratch, &rules, &node)
        .arg("forked")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(program.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(
        !line.is_empty(),
        "{:?} {:#?}",
        program.wait(),
        node.world().log
    );
    node.until("the first child is gone", |world| world.connected == 1);
    assert_eq!(node.world().connections, 2);
    assert_eq!(node.bytes("godwit://lab/forked").unwrap(), b"parent child");
    assert_eq!(node.bytes("godwit://lab/puts").unwrap(), b"abcdef");
    assert_eq!(node.bytes("godwit://lab/of-the-child").unwrap(), b"child");
    assert_eq!(
        node.world().packed.0,
        3,
        "puts of the parent were sent twice"
    );
    // Killed, the parent leaves a child: what it had open falls all the same.
    drop(program.stdin.take());
    let _ = program.wait();
    let child = line.trim();
    assert!(fs::exists(format!("/proc/{child}/status")).unwrap());
    node.until("the parent is gone", |world| world.connected == 0);
    assert!(
        Command::new("kill")
            .args(["-9", child])
            .status()
            .unwrap()
            .success()
    );
}

#[test] //= KANGAROO-27
fn lost_node_is_reported_once() {
    let (node, _scratch) = rule("lost", |node| {
        node.world().dies_at = Some("get godwit://lab/dies");
        // The next has another file of that name.
        node.keep("godwit://lab/held", b"");
    });
    assert_eq!(node.bytes("godwit://lab/puts").unwrap(), b"new");
    assert_eq!(node.world().connections, 2);
}

#[test] //= KANGAROO-23 KANGAROO-27
fn lost_unawaited_write_is_reported() {
    let (node, _scratch) = rule("lost_behind", |node| {
        node.world().dies_at = Some("get godwit://lab/dies");
    });
    assert_eq!(
        node.count("push None mine=false"),
        1,
        "{:#?}",
        node.world().log
    );
}

#[test]
fn next_node_continues_open_writes() {
    let (node, _scratch) = rule("survives", |node| {
        let mut world = node.world();
        world.dies_at = Some("get godwit://lab/dies");
        world.goes_on = true;
        for url in ["godwit://lab/written", "godwit://lab/given-up"] {
            world.files.entry(url.into()).or_default();
        }
    });
    assert_eq!(node.bytes("godwit://lab/written").unwrap(), b"whole");
    assert_eq!(node.bytes("godwit://lab/given-up").unwrap(), b"");
    assert_eq!(node.count("open godwit://lab/written"), 2);
}

#[test]
fn reads_continue_at_next_node() {
    let (node, _scratch) = rule("again", |node| {
        node.world().dies_at = Some("get godwit://lab/run7");
    });
    assert_eq!(node.world().connections, 2);
    assert_eq!(node.count("get godwit://lab/run7"), 2);
}

#[test] //= KANGAROO-1 KANGAROO-2 KANGAROO-8 depot#writing
fn puts_are_gathered_and_arrive_in_order() {
    let (node, _scratch) = rule("puts", |node| {
        let mut world = node.world();
        world
            .refused
            .insert("godwit://lab/refused".into(), Kind::Denied);
        world.refused.insert("godwit://full/x".into(), Kind::Quota);
    });
    let bytes = node.bytes("godwit://lab/puts").unwrap();
    assert_eq!(bytes.len(), 9_000_011);
    assert_eq!(bytes.last(), Some(&b'z'));
    assert_eq!(node.bytes("godwit://lab/at-exit").unwrap(), b"lastword");
    let (puts, frames) = node.world().packed;
    assert!((300_000..301_000).contains(&puts), "{puts}");
    assert!(frames < 5_000, "{frames} frames for {puts} puts");
}

#[test] //= GASS-38 GASS-54 GASS-61 GASS-63 GASS-68
fn what_is_asynchronous_goes_on_meanwhile() {
    let (node, _scratch) = rule("asynchronous", |node| {
        node.keep("godwit://slow/x", b"slow!");
        node.keep("godwit://lab/empty", b"");
        node.world().held_up.push("get godwit://slow/x".into());
    });
    assert_eq!(node.bytes("godwit://lab/half"), None);
    assert_eq!(node.bytes("godwit://lab/log").unwrap(), b"line\n");
    assert_eq!(
        node.bytes("godwit://lab/from-file").unwrap().len(),
        (5 << 20) - 10
    );
    let log = node.world().log.clone();
    assert!(
        log.iter().any(|line| line.starts_with("cancel ")),
        "{log:#?}"
    );
    // Whatever was opened was closed, also what was opened behind a cancel.
    let closed = log
        .iter()
        .filter(|line| line.starts_with("close") || line.starts_with("end"));
    let opened = log
        .iter()
        .filter(|line| line.starts_with("open") || line.starts_with("put"));
    assert_eq!(closed.count(), opened.count(), "{log:#?}");
}

#[test] //= GASS-46 GASS-47 GASS-51
fn cache_calls_add_lock_tag_and_clean() {
    let (node, _scratch) = rule("cache", |_| ());
    assert_eq!(node.bytes("godwit://lab/a").unwrap(), b"filled");
    let world = node.world();
    assert!(!world.files.contains_key("godwit://lab/c"));
    assert_eq!(world.open, 0, "{:#?}", world.log);
}

#[test] //= GASS-33
fn what_is_appended_goes_at_once() {
    let scratch = Scratch::new();
    let node = StandIn::start(scratch.path());
    let rules = compile(&scratch, "tests/c/rules.c");
    let mut program = command(&scratch, &rules, &node)
        .arg("stream")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    node.until("the first line is there", |world| {
        let kept = world.files.get("godwit://lab/log");
        kept.is_some_and(|kept| kept.bytes == b"one\n")
    });
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    assert_eq!(
        node.bytes("godwit://lab/log").unwrap(),
        b"one\ntwo\nthree\n"
    );
    let pushed = node.count("close 1 Push") + node.count("close 2 Push");
    assert_eq!(pushed, 2, "{:#?}", node.world().log);
}

#[test]
fn exported_names_match_header() {
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library())
        .output();
    let symbols = String::from_utf8(symbols.unwrap().stdout).unwrap();
    let mut exported: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    exported.sort_unstable();
    let header = ["godwit.h", "gfarm.h"].map(|name| sources().join("include").join(name));
    let header = header
        .map(|path| fs::read_to_string(path).unwrap())
        .concat();
    let code: String = header
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect::<Vec<_>>()
        .join("\n");
    let mut code = code.as_str();
    let mut without_comments = String::new();
    while let Some((before, rest)) = code.split_once("/*") {
        without_comments.push_str(before);
        code = rest.split_once("*/").unwrap().1;
    }
    without_comments.push_str(code);
    let mut declared: Vec<_> = without_comments
        .match_indices('(')
        .filter_map(|(at, _)| {
            let before = &without_comments[..at];
            let from = before.rfind(|c: char| !c.is_alphanumeric() && c != '_')? + 1;
            let name = &before[from..];
            ["godwit_", "gass_", "gfs_", "gfarm_"]
                .iter()
                .any(|begin| name.starts_with(begin))
                .then_some(name)
        })
        .collect();
    declared.sort_unstable();
    assert_eq!(exported, declared);
    let about = Command::new("readelf")
        .arg("-d")
        .arg(library())
        .output()
        .unwrap();
    let about = String::from_utf8(about.stdout).unwrap();
    assert!(about.contains("soname: [libgodwit.so.0]"), "{about}");
    assert!(about.contains("NODELETE"), "{about}");
    let needed: Vec<_> = about
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .collect();
    assert!(
        needed
            .iter()
            .all(|line| ["libc.so", "libgcc_s.so", "libm.so", "ld-linux"]
                .iter()
                .any(|name| line.contains(name))),
        "{needed:?}"
    );
}
