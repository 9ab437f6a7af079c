//! Each fault ends with three lines and an exit status, and leaves nothing half done.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    Machine, Node, Said, Scratch,
    between::{self, Vanishing, Way},
    godwit, lasting_port, noise, ours,
};
use serde_json::Value;
use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A command, its exit status, and the type and culprit of `--json`.
const FAULTS: [(&str, i32, &str, &str); 16] = [
    ("cp missing there", 4, "Specification", "you"),
    ("cp f no/such/there", 4, "Specification", "you"),
    ("cat d", 1, "Specification", "you"),
    ("cat missing", 4, "Specification", "you"),
    ("sum d", 1, "Specification", "you"),
    ("ls missing", 4, "Specification", "you"),
    ("rm missing", 4, "Specification", "you"),
    ("rm d", 1, "Specification", "you"),
    ("mkdir d", 1, "Specification", "you"),
    ("mkdir no/such", 4, "Specification", "you"),
    ("rm .", 2, "Parameter", "you"),
    ("cp d there", 2, "Parameter", "you"),
    ("cp f", 2, "Parameter", "you"),
    ("ls fpt://fermi/x", 2, "Parameter", "you"),
    ("ls dav://fermi/x", 2, "Parameter", "you"),
    ("sync f d x", 2, "Parameter", "you"),
];

fn place() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("f", 1000);
    scratch.file("d/x", 1000);
    scratch
}

fn in_place(scratch: &Scratch, line: &str) -> Said {
    let mut command = godwit();
    command.current_dir(scratch.path()).args(line.split(' '));
    Said::of(&mut command)
}

/// Returns all objects that were printed.
fn objects(said: &Said) -> Vec<Value> {
    let parse =
        |line: &[u8]| serde_json::from_slice(line).unwrap_or_else(|e| panic!("{e}: {said}"));
    let lines = said.stdout.split(|&b| b == b'\n');
    lines.filter(|line| !line.is_empty()).map(parse).collect()
}

#[test] //= GRIDFTP-50
fn faults_have_code_message_object() {
    for (line, code, error_type, culprit) in FAULTS {
        let scratch = place();
        let before = common::tree(scratch.path());
        let said = in_place(&scratch, line);
        assert_eq!(said.status, Some(code), "{line}: {said}");
        assert!(said.stderr.starts_with("godwit: cannot "), "{line}: {said}");
        assert!(
            said.stderr
                .lines()
                .nth(1)
                .is_some_and(|fact| fact.starts_with("  ")),
            "{line}: {said}"
        );
        assert!(!said.stderr.contains("panicked"), "{line}: {said}");

        let said = in_place(&scratch, &format!("{line} --json"));
        assert_eq!(said.status, Some(code), "{line}: {said}");
        let objects = objects(&said);
        let error = objects
            .iter()
            .find(|o| o["event"] == "error")
            .unwrap_or_else(|| panic!("{line}: {said}"));
        assert_eq!(error["error_type"], error_type, "{line}: {error}");
        assert_eq!(error["culprit"], culprit, "{line}: {error}");
        assert_eq!(error["code"], code, "{line}: {error}");
        assert_eq!(error["retryable"], false, "{line}: {error}");
        assert!(
            error["next"].is_string() && error["wanted"].is_string(),
            "{line}: {error}"
        );
        let last = objects.last().unwrap();
        assert_eq!(
            (&last["event"], &last["status"]),
            (&"summary".into(), &"error".into()),
            "{line}"
        );
        assert_eq!(last["exit_code"], code, "{line}");
        assert_eq!(
            common::tree(scratch.path()),
            before,
            "{line} left something"
        );
    }
}

#[test]
fn bad_options_exit_with_2() {
    let said = ours(["syn", "a", "b"]);
    assert_eq!(said.status, Some(2), "{said}");
    assert!(said.stderr.contains("'sync'"), "{said}");
    assert_eq!(ours(["cp", "--streams", "0", "a", "b"]).status, Some(2));
    assert_eq!(ours(["find", ".", "-size", "ten"]).status, Some(2));
    let said = ours(["cp", "--no-such", "a", "b", "--json"]);
    assert_eq!(said.status, Some(2), "{said}");
    let objects = objects(&said);
    assert_eq!(objects[0]["error_type"], "Parameter", "{said}");
    assert_eq!(objects.last().unwrap()["exit_code"], 2, "{said}");
}

#[test]
fn passwords_are_never_shown() {
    let port = lasting_port();
    let url = format!("ftp://me:hidden-word@127.0.0.1:{port}/x");
    for verb in ["ls", "cat", "stat", "rm"] {
        let said = ours([verb, "-vvv", "--json", &url]);
        assert_ne!(said.status, Some(0), "{said}");
        let all = format!("{said}");
        assert!(!all.contains("hidden-word"), "{verb}: {all}");
    }
}

#[test]
fn mixed_faults_exit_with_1() {
    let scratch = place();
    assert_eq!(in_place(&scratch, "cat no1 no2").status, Some(4));
    let said = in_place(&scratch, "cat no1 ./f dav://fermi/x");
    assert_eq!(said.status, Some(1), "{said}");
    assert_eq!(said.stdout.len(), 1000, "the good one is printed");
    assert_eq!(said.stderr.matches("godwit: cannot").count(), 2, "{said}");
}

#[test]
fn broken_pipe_ends_quietly() {
    let scratch = place();
    for i in 0..3000 {
        std::fs::write(scratch.join(format!("d/name-that-is-not-short-{i}")), "").unwrap();
    }
    for line in [
        "ls d",
        "ls -l --json d",
        "find d",
        "cat big",
        "du d",
        "cp big -",
        "help cp",
    ] {
        scratch.file("big", 3_000_000);
        let mut command = godwit();
        command.current_dir(scratch.path()).args(line.split(' '));
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.signal(), &*stderr), (Some(13), ""), "{line}");
    }
}

#[test]
fn unread_output_is_no_success() {
    let scratch = place();
    scratch.file("big", 3_000_000);
    let mut command = godwit();
    command.current_dir(scratch.path());
    let mut child = command
        .args(["cp", "--json", "big", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last: serde_json::Value =
        serde_json::from_str(stderr.lines().last().unwrap_or_default()).unwrap();
    assert_eq!(output.status.signal(), Some(13), "{stderr}");
    assert_eq!(
        (&last["status"], &last["exit_code"]),
        (&"error".into(), &141.into())
    );
    assert!(!stderr.contains("\"done\""), "{stderr}");
}

#[test]
fn closed_standard_stream_fails() {
    let scratch = place();
    std::fs::write(scratch.join("f"), "bytes").unwrap();
    let binary = env!("CARGO_BIN_EXE_godwit");
    let closed = |line: &str| {
        let line = format!("exec {binary} {line}");
        Said::of(
            Command::new("sh")
                .current_dir(scratch.path())
                .args(["-c", &line]),
        )
    };
    for line in ["cp f -", "cat f", "sum f", "ls", "sum --json f", "version"] {
        let said = closed(&format!("{line} >&-"));
        assert_eq!(said.status, Some(2), "{line}\n{said}");
        assert!(
            said.stderr.contains("standard output: it is closed"),
            "{said}"
        );
    }
    for line in ["cp - g", "rm --from-file -"] {
        let said = closed(&format!("{line} <&-"));
        assert_eq!(said.status, Some(2), "{line}\n{said}");
        assert!(said.stderr.contains("standard input is closed"), "{said}");
    }
    assert!(!scratch.join("g").exists());
    // An absent reader is no fault; parent programs often leave both ends of a pipe open.
    for line in ["cat f <>/dev/null >&0", "cp f h >&-", "cp - i <>/dev/null"] {
        closed(line).ok();
    }
}

#[test]
fn a_signal_stops_in_order() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let scratch = Scratch::new();
        let mut child = godwit()
            .current_dir(scratch.path())
            .args(["cp", "-", "there", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It has begun once it has taken more than a pipe holds.
        let mut input = child.stdin.take().unwrap();
        input.write_all(&vec![7; 4 << 20]).unwrap();
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", name, &pid])
                .status()
                .unwrap()
                .success()
        );
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let last = lines
            .by_ref()
            .map(|line| line.unwrap())
            .last()
            .unwrap_or_default();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{last}");
        assert!(
            !scratch.join("there").exists(),
            "half a file under its name"
        );
        drop(input);
    }
}

#[test]
fn second_signal_ends_blocked_output() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let scratch = Scratch::new();
        scratch.file("big", 3_000_000);
        let mut child = godwit()
            .current_dir(scratch.path())
            .args(["cp", "big", "-"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The first byte was read and no more will be. A pipe is full, and messages wait behind its writer.
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let pid = child.id().to_string();
        let until = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            // Two signals at once count as one.
            let mut kill = Command::new("kill");
            kill.args(["-s", name, &pid]).stderr(Stdio::null());
            let _ = kill.status();
            std::thread::sleep(Duration::from_millis(50));
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > until => break None,
                None => {}
            }
        };
        if ended.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(
            ended.and_then(|status| status.code()),
            Some(code),
            "SIG{name}"
        );
        drop(output);
    }
}

#[test] //= GRIDFTP-46
fn absent_server_is_a_passing_fault() {
    // The port was free a moment ago.
    let port = lasting_port();
    let url = format!("ftp://127.0.0.1:{port}/x");
    let said = ours(["ls", "--json", &url]);
    assert_eq!(said.status, Some(5), "{said}");
    let error = &objects(&said)[0];
    assert_eq!(error["error_type"], "Contact", "{said}");
    assert_eq!(error["retryable"], true, "{said}");
    assert!(said.stderr.contains("127.0.0.1"), "{said}");
}

#[test]
fn unknown_host_is_named() {
    let said = ours(["ls", "--json", "ftp://no-such-host.invalid/x"]);
    let error = &objects(&said)[0];
    assert_eq!(error["error_type"], "Resolution", "{said}");
    assert!(said.stderr.contains("no-such-host.invalid"), "{said}");
    // A name service that does not answer either may do so later.
    let (status, service) = (said.status, error["retryable"] == true);
    assert_eq!(status, Some(if service { 5 } else { 1 }), "{said}");
    let table = String::from_utf8(ours(["help", "exit-codes"]).ok().stdout).unwrap();
    assert!(table.contains("1  other: no such host"), "{table}");
}

#[test]
fn absent_server_is_awaited_once() {
    let scratch = place();
    scratch.dir("to");
    let port = lasting_port();
    let list: String = (0..50)
        .map(|i| format!("ftp://127.0.0.1:{port}/{i}\n"))
        .collect();
    std::fs::write(scratch.join("list"), list).unwrap();
    let said = in_place(&scratch, "cp --json --from-file list to");
    assert_eq!(said.status, Some(5), "{said}");
    let objects = objects(&said);
    assert_eq!(objects.iter().filter(|o| o["event"] == "error").count(), 50);
    assert_eq!(said.stderr.matches("not tried again").count(), 49, "{said}");
    let last = objects.last().unwrap();
    for key in [
        "bytes",
        "files",
        "seconds",
        "streams",
        "resumed_bytes",
        "reread_bytes",
        "reread_source_bytes",
        "reread_target_bytes",
        "in_place",
        "directories",
        "removed",
        "failed",
        "not_deleted",
        "left_out",
        "skipped",
        "faults",
        "status",
    ] {
        assert!(!last[key].is_null(), "{key} in {last}");
    }
    for key in ["digest", "verified"] {
        assert!(last.get(key).is_some(), "{key} in {last}");
    }
    let said = in_place(&scratch, "cp --json nothing-there to");
    let error = &self::objects(&said)[0];
    assert!(
        error["next"]
            .as_str()
            .unwrap()
            .contains("its name may be another"),
        "{said}"
    );
    let last = self::objects(&said).pop().unwrap();
    assert_eq!(last["failed"], 1, "{last}");
}

/// A node of this machine of its own, ended with the test.
struct Local<'a> {
    scratch: &'a Scratch,
    home: Option<&'a Path>,
}

impl Local<'_> {
    fn says(&self, words: &[&str]) -> Said {
        let mut command = godwit();
        command.env("GODWIT_SOCKET", self.scratch.join("socket"));
        command.env("GODWIT_STATE", self.scratch.join("state"));
        if let Some(home) = self.home {
            command.env("HOME", home);
        }
        command.current_dir(self.scratch.path()).args(words);
        let input = fs::File::open(self.scratch.join("part")).unwrap();
        Said::of(command.stdin(input))
    }
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        self.says(&["node", "stop"]);
    }
}

/// Leads an FTP server's data connections over a line that flips one bit behind each marker, so many times.
fn flipping(server: u16, times: &Arc<AtomicI64>) -> u16 {
    let times = times.clone();
    between::to_ftp(server, move |_, _, bytes| {
        let at = bytes.windows(MARK.len()).position(|found| found == MARK);
        if let Some(at) = at
            && times.fetch_sub(1, Relaxed) > 0
        {
            bytes[at + MARK.len()] ^= 1;
        }
        true
    })
}

const MARK: &[u8] = b"a bit is flipped behind this: ";

#[test] //= publishing#changes-in-place
fn in_place_range_is_verified() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.dir("data"));
    let times = Arc::new(AtomicI64::new(0));
    let line = flipping(node.port, &times);
    let (url, from) = ["f", "source"]
        .map(|name| format!("ftp://127.0.0.1:{line}/{name}"))
        .into();
    let mut part = noise(5000, 1);
    part[2000..2000 + MARK.len()].copy_from_slice(MARK);
    fs::write(scratch.join("part"), &part).unwrap();
    for source in [scratch.join("source"), node.export.join("source")] {
        fs::write(source, [&[0; 1000][..], &part].concat()).unwrap();
    }
    let before = noise(9000, 2);
    let after = [&before[..1000], &part, &before[6000..]].concat();
    let local = Local {
        scratch: &scratch,
        home: None,
    };
    let (there, here) = (node.export.join("f"), scratch.join("here"));
    let range = ["--offset", "1000", "--length", "5000"];
    // Bytes of a pipe cannot be read again.
    for (flips, ends, of_pipe) in [(0, 0, 0), (1, 0, 12), (1000, 12, 12)] {
        for (words, target, ends) in [
            (["cp", "source", &url], &there, ends),
            (["cp", &from, "here"], &here, ends),
            (["cp", &from, &url], &there, ends),
            (["cp", "-", &url], &there, of_pipe),
            (["put", "part", &url], &there, ends),
        ] {
            fs::write(target, &before).unwrap();
            times.store(flips, Relaxed);
            let is_put = words[0] == "put";
            let range = if is_put { &range[..2] } else { &range };
            let mut said = local.says(&[&["--json"], &words[..], range].concat());
            if is_put {
                said = local.says(&["push", "--timeout", "60", &url]);
            }
            assert_eq!(said.status, Some(ends), "{flips} {words:?}: {said}");
            if ends != 0 {
                local.says(&["drop", &url]);
                continue;
            }
            assert_eq!(fs::read(target).unwrap(), after, "{flips} {words:?}");
            let told = String::from_utf8_lossy(&said.stdout);
            let is_told = is_put || told.contains("\"verified\":\"verified ");
            assert!(is_told, "{flips} {words:?}: {told}");
        }
    }
}

/// The first two connections end before a byte of the file has landed.
#[test]
fn standard_input_waits_for_server() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.dir("data"));
    let line = between::to(node.port, |nth, way, bytes| {
        if nth < 2 && way == Way::ToClient {
            *bytes = b"421 not now\r\n".to_vec();
        }
        true
    });
    let mut command = godwit();
    let url = format!("ftp://127.0.0.1:{line}/f");
    command.args(["cp", "--json", "-", &url]);
    let sent = scratch.file("sent", 3_000_000);
    let said = Said::of(command.stdin(fs::File::open(&sent).unwrap())).ok();
    let last = String::from_utf8_lossy(&said.stdout).into_owned();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert!(last["faults"].as_u64().unwrap() > 0, "{last}");
    common::assert_same(&sent, &node.export.join("f"));
}

fn port_of(at: &str) -> u16 {
    at.rsplit(':').next().unwrap().parse().unwrap()
}

/// Has a machine reach a node at another port.
fn lead(machine: &Machine<'_>, to: &Machine<'_>, port: u16) {
    let known = machine.state().join("peers/lab.toml");
    let text = fs::read_to_string(&known).unwrap();
    fs::write(&known, text.replace(&to.at, &format!("127.0.0.1:{port}"))).unwrap();
}

/// Wherever it is: in the head of a record, in what is said in clear, in what is protected.
#[test] //= delivery#faults
fn flipped_bit_in_handshake_is_retried() {
    let scratch = Scratch::new();
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    let server = port_of(&lab.at);
    let armed = Arc::new(Mutex::new(None));
    let (flip, seen) = (armed.clone(), Mutex::new(HashMap::new()));
    let line = between::to(server, move |nth, way, bytes| {
        let (mut flip, mut seen) = (flip.lock().unwrap(), seen.lock().unwrap());
        let before = seen.entry((nth, way)).or_insert(0usize);
        let range = *before..*before + bytes.len();
        *before = range.end;
        if let Some(at) = flip.take_if(|(its, at)| *its == way && range.contains(at)) {
            bytes[at.1 - range.start] ^= 1;
        }
        true
    });
    lead(&laptop, &lab, line);
    scratch.file("part", 10);
    let local = Local {
        scratch: &scratch,
        home: Some(&laptop.home),
    };
    let all = [1, 3, 60, 130, 200, 400, 700].map(|at| [(Way::ToServer, at), (Way::ToClient, at)]);
    for (way, at) in all.into_iter().flatten() {
        *armed.lock().unwrap() = Some((way, at));
        local.says(&["put", "part", "godwit://lab/it"]).ok();
        local.says(&["push", "--timeout", "30"]).ok();
        assert_eq!(*armed.lock().unwrap(), None, "{way:?} {at}");
        local.says(&["node", "stop"]);
    }
}

/// An address translator forgot the connection, or this machine slept: nothing comes any more, not even a reset.
#[test] //= delivery#what-a-failure-costs
fn vanished_connection_is_replaced_soon() {
    let scratch = Scratch::new();
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    let node = Node::start(&scratch.dir("ftp"));
    scratch.file("part", 10);
    for name in ["one", "two"] {
        scratch.file(format!("ftp/{name}"), 2000);
        scratch.file(format!("data/{name}"), 2000);
    }
    let (door, ftp) = (Vanishing::to(port_of(&lab.at)), Vanishing::to(node.port));
    lead(&laptop, &lab, door.port);
    let local = Local {
        scratch: &scratch,
        home: Some(&laptop.home),
    };
    let by_ftp = format!("ftp://127.0.0.1:{}", ftp.port);
    for (line, server) in [(&door, "godwit://lab"), (&ftp, &*by_ftp)] {
        local.says(&["get", &format!("{server}/one"), "-"]).ok();
        // What was used a moment ago is not asked whether it lives.
        std::thread::sleep(Duration::from_millis(1200));
        assert_ne!(line.vanish(), 0, "{server}");
        let begun = Instant::now();
        let said = local.says(&["get", &format!("{server}/two"), "-"]).ok();
        let took = begun.elapsed();
        assert_eq!(said.stdout, noise(2000, 2000), "{server}");
        assert!(took < Duration::from_secs(10), "{server}: {took:?}");
    }
}
