//! The library beside the real thing: it starts the node of this machine, which fetches from a server and delivers to it.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    machine::Machine,
    programs::{compile, good},
};
use std::{
    collections::HashSet,
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

#[test] //= GASS-2 GASS-4 GASS-12 GASS-13 GASS-19 GASS-61 KANGAROO-1
fn files_come_and_go() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let copy = compile(&machine.scratch, "examples/copy.c");
    let plain = machine.scratch.path().join("plain");
    let bytes: Vec<u8> = (0..3_000_001u32)
        .map(|i| (i.wrapping_mul(i) >> 7) as u8)
        .collect();
    fs::write(&plain, &bytes).unwrap();
    let url = machine.url("there");
    good(machine.command(&copy).arg(&plain).arg(&url));
    assert_eq!(
        fs::read(machine.export("there")).unwrap(),
        bytes,
        "it is there when the program ends"
    );
    good(
        machine
            .command(&copy)
            .arg(&url)
            .arg(machine.scratch.path().join("back")),
    );
    assert_eq!(
        fs::read(machine.scratch.path().join("back")).unwrap(),
        bytes
    );
    assert_eq!(machine.told(&["stat", &url]), "ok 3000001\n");
    assert_eq!(
        machine.told(&["whole", &machine.url("whole"), "all of it"]),
        "ok 9\n"
    );
    assert_eq!(fs::read(machine.export("whole")).unwrap(), b"all of it");
    assert_eq!(machine.told(&["get", &machine.url("whole")]), "ll of it\n");
    assert_eq!(
        machine.told(&["dup", &machine.url("dup"), "one "]),
        "ok 0\n"
    );
    assert_eq!(fs::read(machine.export("dup")).unwrap(), b"one one ");
    let words = compile(&machine.scratch, "examples/words.cc");
    assert_eq!(
        good(machine.command(&words).arg(machine.url("whole"))),
        "3\n"
    );
    machine.away();
}

#[test]
fn slices_come_without_the_rest() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mut bytes = vec![0; 9 << 20];
    bytes[1 << 20..][..2].copy_from_slice(b"on");
    bytes[7 << 20..][..2].copy_from_slice(b"ly");
    fs::write(machine.export("large"), bytes).unwrap();
    let mut slices = machine.command(&machine.told);
    slices.args(["slices", &machine.url("large")]);
    let said = good(slices.stdin(Stdio::null()));
    assert_eq!(said, "only\nok 0\n");
    let mut kept = machine.command(&machine.godwit);
    let kept = good(kept.args(["--json", "cache", "ls"]));
    assert!(kept.contains("\"present_bytes\":131072"), "{kept}");
}

#[test] //= GASS-18 KANGAROO-2 KANGAROO-36 delivery#appends
fn parts_are_put_and_files_changed() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let puts = compile(&machine.scratch, "examples/puts.c");
    good(
        machine
            .command(&puts)
            .arg(machine.url("records"))
            .arg("1000"),
    );
    let text = fs::read_to_string(machine.export("records")).unwrap();
    let numbers = text
        .lines()
        .map(|line| line.trim().parse::<usize>().unwrap());
    assert!(numbers.eq(0..1000));
    fs::write(machine.export("there"), "one two three").unwrap();
    assert_eq!(
        machine.told(&["put", &machine.url("there"), "ONE"]),
        "ok 0\n"
    );
    assert_eq!(fs::read(machine.export("there")).unwrap(), b"ONE two three");
    assert_eq!(
        machine.told(&["edit", &machine.url("there"), "o"]),
        "ok 0\n"
    );
    assert_eq!(fs::read(machine.export("there")).unwrap(), b"oNE two three");
    // A server that cannot tell what came twice is sent no lines.
    let log = compile(&machine.scratch, "examples/log.c");
    let url = machine.url("log");
    let logged = machine
        .command(&log)
        .arg(&url)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(logged.status.code(), Some(1));
    let said = machine.told(&["append", &url, "line\n"]);
    assert!(
        said.starts_with("EOPNOTSUPP 1\ncannot append to "),
        "{said}"
    );
    assert!(!machine.export("log").exists());
}

#[test] //= delivery#faults
fn write_to_unknown_peer_is_refused() {
    let Some(machine) = Machine::new() else {
        return;
    };
    for act in ["write", "put", "whole", "append"] {
        let said = machine.told(&[act, "godwit://nowhere/f", "text"]);
        let is_told = said.starts_with("ENONET 1") && said.contains("no peer");
        assert!(is_told, "{act}: {said}");
    }
}

#[test] //= GASS-22
fn partial_get_fetches_only_its_part() {
    let Some(machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("large"), vec![b'x'; 3 << 20]).unwrap();
    let url = machine.url("large");
    let part = format!("{}\n", "x".repeat(63));
    assert_eq!(machine.told(&["get", &url]), part);
    let mut command = machine.command(&machine.godwit);
    let held = good(command.args(["--json", "cache", "stat", &url]));
    assert!(held.contains("\"present_bytes\":1048576"), "{held}");
}

#[test] //= GASS-16
fn many_readers_fetch_file_once() {
    let Some(machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("cold"), vec![7; 10_000]).unwrap();
    let url = machine.url("cold");
    let readers: Vec<Child> = (0..32)
        .map(|_| {
            let mut command = machine.command(&machine.told);
            command
                .args(["read", &url])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for reader in readers {
        let said = reader.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), "ok 10000\n");
    }
    assert_eq!(machine.told(&["transfers", &url]), "ok 1\n");
}

#[test] //= GASS-10 GASS-11 KANGAROO-52 KANGAROO-X1
fn failed_delivery_is_reported_without_loss() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let said = machine.told(&["read", &machine.url("none")]);
    assert!(said.starts_with("ENOENT 1\ncannot "), "{said}");
    let said = machine.told(&["read", "nonsense://x/y"]);
    assert!(said.starts_with("EINVAL 1\ncannot "), "{said}");
    fs::write(machine.export("plain"), "x").unwrap();
    let said = machine.told(&["write", &machine.url("plain/below"), "text"]);
    let first = said.lines().next().unwrap();
    assert!(first.ends_with(" 1") && !said.starts_with("ok"), "{said}");
    machine.away();
    let said = machine.told(&["read", &machine.url("plain")]);
    assert!(said.starts_with("ECONNREFUSED 1\n"), "{said}");
    // With the server away, a commit is all that can be had; what was written is delivered later.
    let url = machine.url("later");
    let write = |name: &str, value: &str| {
        let mut command = machine.command(&machine.told);
        good(command.args(["write", &url, "kept"]).env(name, value))
    };
    let said = write("GODWIT_CLOSE_TIMEOUT", "0.2");
    assert!(said.starts_with("ETIMEDOUT 1\n"), "{said}");
    assert_eq!(write("GODWIT_CLOSE", "commit"), "ok 0\n");
    machine.serve();
    assert_eq!(machine.told(&["push", &url]), "ok 0\n");
    assert_eq!(fs::read(machine.export("later")).unwrap(), b"kept");
}

#[test] //= GASS-46 GASS-51 c-library#cache
fn next_program_fills_after_first_dies() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let url = machine.url("filled");
    let mut first = machine.command(&machine.told);
    let mut first = first
        .args(["hold", &url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 4];
    first
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    assert_eq!(&said, b"new ");
    let mut next = machine.command(&machine.told);
    let mut next = next
        .args(["fill", &url, "by the next"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(next.try_wait().unwrap().is_none());
    // Its end, also by kill -9, is seen by the node at once.
    let child = fs::read_to_string(format!("/proc/{0}/task/{0}/children", first.id())).unwrap();
    good(Command::new("kill").args(["-9", child.trim()]));
    let _ = first.wait();
    let said = next.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(said.stdout).unwrap(), "new ok 0\n");
    // The origin has no such file, and was not asked.
    assert_eq!(machine.told(&["whole-of", &url]), "by the next\n");
    assert_eq!(machine.told(&["transfers", &url]), "ok 0\n");
    assert_eq!(machine.told(&["fill", &url, ""]), "exists ok 0\n");
    assert_eq!(machine.told(&["stamp", &url]), "ok 7\n");
    assert_eq!(machine.told(&["untag", &url, "job"]), "7 ok 0\n");
    assert_eq!(machine.told(&["untag", &url, "job"]), "7 ok 0\n");
    let said = machine.told(&["untag", &url, "job"]);
    assert!(said.starts_with("ENOENT 1\n"), "{said}");
    let said = machine.told(&["read", &url]);
    assert!(said.starts_with("ENOENT 1\n"), "{said}");
}

#[test] //= c-library#calls-that-do-not-wait
fn file_is_copied_between_servers() {
    let (Some(here), Some(there)) = (Machine::new(), Machine::new()) else {
        return;
    };
    let bytes: Vec<u8> = (0..2_000_003u32)
        .map(|i| (i.wrapping_mul(i) >> 9) as u8)
        .collect();
    fs::write(here.export("from"), &bytes).unwrap();
    let said = here.told(&["copy", &here.url("from"), &there.url("to")]);
    assert_eq!(said, "ok 2000003\n");
    assert_eq!(fs::read(there.export("to")).unwrap(), bytes);
    assert!(
        here.told(&["transfers", &here.url("from")])
            .starts_with("ENOENT"),
        "it is not kept"
    );
    // Who has read what was there sees at once what is there now.
    fs::write(here.export("new"), "new text").unwrap();
    fs::write(there.export("text"), "old").unwrap();
    let (new, text) = (here.url("new"), there.url("text"));
    assert_eq!(here.told(&["whole-of", &text]), "old\n");
    assert_eq!(here.told(&["copy", &new, &text]), "ok 8\n");
    assert_eq!(here.told(&["whole-of", &text]), "new text\n");
    for (from, to, errno) in [
        (here.url("none"), there.url("x"), "ENOENT"),
        (
            here.url("from"),
            "ftp://127.0.0.1:1/x".into(),
            "ECONNREFUSED",
        ),
        (here.url("from"), there.url("to/below"), "ENOTDIR"),
    ] {
        let said = here.told(&["copy", &from, &to]);
        assert!(said.starts_with(errno), "{from} {to}: {said}");
    }
    drop(there.told(&["stat", &there.url("to")]));
}

#[test] //= GASS-65 c-library#serving-a-directory
fn program_serves_directory_and_decides_rights() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let served = machine.scratch.path().join("shown");
    for dir in ["open", "closed"] {
        fs::create_dir_all(served.join(dir)).unwrap();
        fs::write(served.join(dir).join("a"), "text").unwrap();
    }
    let program = compile(&machine.scratch, "tests/c/serves.c");
    let begin = |words: &[&str]| {
        let mut command = machine.command(&program);
        let command = command.arg(&served).args(words);
        let mut serving = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(serving.stdout.take().unwrap());
        let mut url = String::new();
        said.read_line(&mut url).unwrap();
        assert!(url.starts_with("ftp://127.0.0.1:"), "{url}");
        (serving, said, url.trim().to_owned())
    };
    let (mut serving, mut said, url) = begin(&[]);
    let at = |name: &str| format!("{url}{name}");
    assert_eq!(machine.told(&["whole-of", &at("open/a")]), "text\n");
    assert_eq!(machine.told(&["write", &at("open/new"), "came"]), "ok 0\n");
    assert_eq!(fs::read(served.join("open/new")).unwrap(), b"came");
    let refused = machine.told(&["read", &at("closed/a")]);
    assert!(refused.starts_with("EACCES 1\n"), "{refused}");
    let refused = machine.told(&["write", &at("closed/new"), "came"]);
    assert!(refused.starts_with("EACCES 1\n"), "{refused}");
    assert!(!served.join("closed/new").exists());
    drop(serving.stdin.take());
    assert!(serving.wait().unwrap().success());
    let mut all = String::new();
    said.read_to_string(&mut all).unwrap();
    assert!(all.contains("somebody read /open/a yes\n"), "{all}");
    assert!(all.contains("somebody create /open/new yes\n"), "{all}");
    assert!(
        all.contains("read /closed/a no\n") && all.ends_with("closed\n"),
        "{all}"
    );
    let gone = machine.told(&["stat", &at("open/b")]);
    assert!(gone.starts_with("ECONNREFUSED 1\n"), "{gone}");
    // A file that was read is known without its server.
    assert_eq!(machine.told(&["stat", &at("open/a")]), "ok 4\n");
    // The program is not asked, and no file is written.
    let (mut serving, _said, url) = begin(&["all"]);
    assert_eq!(
        machine.told(&["whole-of", &format!("{url}closed/a")]),
        "text\n"
    );
    let refused = machine.told(&["write", &format!("{url}open/b"), "came"]);
    assert!(refused.starts_with("EACCES 1\n"), "{refused}");
    // A program that is killed serves nothing any more.
    let _ = serving.kill();
    let _ = serving.wait();
}

#[test] //= GASS-4 c-library#closing
fn discarded_edit_is_not_delivered() {
    let Some(machine) = Machine::new() else {
        return;
    };
    assert_eq!(
        machine.told(&["discard", &machine.url("discarded"), "bytes"]),
        "ok 0\n"
    );
    let said = machine.told(&["half", &machine.url("half"), "longer than that"]);
    assert!(said.starts_with("EFBIG 1\n"), "{said}");
    fs::write(machine.export("there"), "as it was").unwrap();
    assert_eq!(
        machine.told(&["discard", &machine.url("there"), "bytes"]),
        "ok 0\n"
    );
    // When this returns, all pending bytes have been delivered.
    assert_eq!(
        machine.told(&["write", &machine.url("kept"), "kept"]),
        "ok 0\n"
    );
    good(
        machine
            .command(&machine.godwit)
            .args(["push", "--timeout", "30"]),
    );
    assert!(!machine.export("discarded").exists());
    assert!(!machine.export("half").exists());
    assert_eq!(fs::read(machine.export("there")).unwrap(), b"as it was");
    let queue = good(machine.command(&machine.godwit).args(["--json", "queue"]));
    assert!(
        !queue.contains("discarded") && !queue.contains("half"),
        "{queue}"
    );
}

#[test] //= GASS-2 c-library#opening-and-reading
fn new_file_gets_mode_old_keeps() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let mode = |name: &str| {
        let meta = fs::metadata(machine.export(name)).unwrap();
        meta.permissions().mode() & 0o7777
    };
    assert_eq!(
        machine.told(&["private", &machine.url("new"), "bytes"]),
        "ok 0\n"
    );
    assert_eq!(mode("new"), 0o640);
    fs::write(machine.export("old"), "as it was").unwrap();
    fs::set_permissions(machine.export("old"), PermissionsExt::from_mode(0o604)).unwrap();
    assert_eq!(
        machine.told(&["private", &machine.url("old"), "bytes"]),
        "ok 0\n"
    );
    assert_eq!(
        (mode("old"), &*fs::read(machine.export("old")).unwrap()),
        (0o604, &b"bytes"[..])
    );
}

#[test] //= GASS-4 c-library#closing
fn last_of_several_writers_delivers() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let said = machine.told(&["others", &machine.url("shared"), "bytes"]);
    assert!(
        said.contains("can still write it") && said.ends_with("\n.\nok 0\n"),
        "{said}"
    );
    assert_eq!(fs::read(machine.export("shared")).unwrap(), b"bytes!");
}

/// Each bad input gives a program a number, its name, and words.
#[test] //= GASS-11 c-library#processes-threads-and-the-node
fn each_bad_input_has_own_error() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("a"), "text").unwrap();
    fs::write(machine.export("large"), vec![1; 300_000]).unwrap();
    fs::write(machine.export("closed"), "x").unwrap();
    fs::write(machine.export("other"), vec![2; 150_000]).unwrap();
    let closed = fs::Permissions::from_mode(0o000);
    fs::set_permissions(machine.export("closed"), closed).unwrap();
    machine.quota = Some("200000");
    let is_root = File::open(machine.export("closed")).is_ok();
    let long = machine.url(&"x".repeat(10_000));
    let (up, zero) = (machine.url("../../etc/passwd"), machine.url("a%00b"));
    let table = [
        ("read", machine.url("none"), "ENOENT", "no such"),
        (
            "read",
            "ftp://no-such-host.invalid/a".into(),
            "ENONET",
            "no-such-host.invalid",
        ),
        (
            "read",
            "ftp://127.0.0.1:1/a".into(),
            "ECONNREFUSED",
            "127.0.0.1",
        ),
        ("read", machine.url("large"), "EFBIG", "300000"),
        ("read", long, "ENAMETOOLONG", "more than 8192"),
        ("read", up, "EINVAL", ".."),
        ("read", zero, "EINVAL", ""),
        ("read", "gopher://h/x".into(), "EINVAL", "gopher"),
        ("read", machine.url("closed"), "EACCES", "closed"),
        ("write", machine.url("a/below"), "ENOTDIR", "a"),
        ("append-large", machine.url("log"), "EFBIG", "divided"),
        ("read", machine.url("line%0Abreak%1B"), "ENOENT", "no such"),
    ];
    let mut sentences = HashSet::new();
    for (act, url, errno, words) in table {
        if is_root && errno == "EACCES" {
            common::skip("root may read everything");
            continue;
        }
        let said = machine.told(&[act, &url, "text"]);
        let mut lines = said.lines();
        assert_eq!(
            lines.next(),
            Some(&*format!("{errno} 1")),
            "{act} {url}: {said}"
        );
        let sentence = lines.next().unwrap();
        assert!(
            sentence.starts_with("cannot ") && sentence.contains(words),
            "{url}: {said}"
        );
        assert!(
            sentence.len() < 400 && !sentence.contains('\u{1b}'),
            "{url}: {said}"
        );
        assert!(sentences.insert(sentence.to_owned()), "twice: {sentence}");
    }
    // The depot is full of pending bytes, which cannot be forgotten.
    machine.away();
    let mut command = machine.command(&machine.told);
    let bytes = "b".repeat(100_000);
    let said = good(
        command
            .args(["write", &machine.url("pending"), &bytes])
            .env("GODWIT_CLOSE", "commit"),
    );
    assert_eq!(said, "ok 0\n");
    machine.serve_readonly();
    let said = machine.told(&["read", &machine.url("other")]);
    assert!(
        said.starts_with("EDQUOT 1\ncannot ") && said.contains("full"),
        "{said}"
    );
    // A write-back that fails is reported; its bytes are kept and listed.
    let said = machine.told(&["push", &machine.url("pending")]);
    assert!(said.starts_with("EACCES 1\ncannot "), "{said}");
    let queue = good(machine.command(&machine.godwit).args(["--json", "queue"]));
    assert!(
        queue.contains("/pending") && queue.contains("\"held\""),
        "{queue}"
    );
    good(machine.command(&machine.godwit).args(["node", "stop"]));
    // A state that is newer is left alone.
    let depot = machine.scratch.path().join("state/depot/depot");
    assert!(depot.exists());
    fs::write(&depot, "godwit depot 99\n").unwrap();
    let said = machine.told(&["read", &machine.url("a")]);
    assert!(
        said.starts_with("EMEDIUMTYPE 1\ncannot ") && said.contains("newer"),
        "{said}"
    );
    fs::write(&depot, "godwit depot 1\n").unwrap();
}
