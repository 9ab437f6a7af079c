//! Errors that programs see when a server goes away, a file changes during a fetch, or a node is
//! killed.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{between::Between, machine::Machine, programs::good};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

fn bytes(size: u32, seed: u32) -> Vec<u8> {
    let noise = |i: u32| (i.wrapping_mul(i).wrapping_add(seed.wrapping_mul(i)) >> 7) as u8;
    (0..size).map(noise).collect()
}

/// More than sockets keep of it on the way.
const SIZE: u32 = 24 << 20;
/// Bytes that arrive before the fault.
const SOME: u64 = 12 << 20;

/// vsftpd, an independent server, if it can run here.
struct Vsftpd {
    port: u16,
    shown: PathBuf,
    dir: PathBuf,
}

impl Vsftpd {
    fn start(scratch: &Path, options: &[&str]) -> Option<Self> {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers");
        let dir = scratch.join("vsftpd");
        fs::set_permissions(scratch, PermissionsExt::from_mode(0o755)).unwrap();
        let mut up = Command::new(scripts.join("vsftpd-up"));
        up.args(["--owner", &std::process::id().to_string()]);
        let said = up
            .arg(&dir)
            .arg("--")
            .args(options)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        if !said.status.success() {
            common::skip(String::from_utf8_lossy(&said.stderr).trim());
            return None;
        }
        let port = text.split("\"port\":").nth(1).unwrap().trim_start();
        let port: String = port.chars().take_while(char::is_ascii_digit).collect();
        Some(Self {
            port: port.parse().unwrap(),
            shown: dir.join("root/pub"),
            dir,
        })
    }

    fn is_below_root(&self) -> bool {
        fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
    }

    /// Returns the path of a file of `shown` at the server.
    fn name(&self, name: &str) -> String {
        match self.is_below_root() {
            true => format!("pub/{name}"),
            false => format!("{}/{name}", self.shown.display())
                .trim_start_matches('/')
                .into(),
        }
    }

    fn stop(&self) {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers");
        let _ = Command::new(scripts.join("down")).arg(&self.dir).status();
    }
}

impl Drop for Vsftpd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn ended(child: Child) -> String {
    let said = child.wait_with_output().unwrap();
    String::from_utf8(said.stdout).unwrap()
}

/// Runs a program until its server is killed in the middle of a file; what it was told.
fn until_it_is_gone(
    machine: &Machine,
    between: &Between,
    act: &str,
    name: &str,
    kill: impl FnOnce(),
) -> String {
    between.stop_after(SOME);
    let mut reader = machine.begun(&[act, &between.url(name)]);
    drop(reader.stdin.take());
    assert!(
        between.stopped(|| reader.try_wait().unwrap().is_some()),
        "{}",
        ended(reader)
    );
    kill();
    between.ends();
    between.goes_on();
    ended(reader)
}

#[test] //= GASS-11 depot#reading
fn lost_server_shows_nothing_until_rest_arrives() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let whole = bytes(SIZE, 1);
    fs::write(machine.export("large"), &whole).unwrap();
    let between = Between::before(machine.port);
    let kill = machine.server_to_kill();
    let said = until_it_is_gone(&machine, &between, "read", "large", kill);
    assert!(said.starts_with("ECONNABORTED 1\ncannot "), "{said}");
    assert!(
        said.contains("of 25165824 bytes came before its server went away"),
        "{said}"
    );
    // A caller during the outage gets an error, and no part of the file either.
    let said = machine.told(&["read", &between.url("large")]);
    assert!(said.starts_with("ECONNREFUSED 1\ncannot "), "{said}");
    // The server returns, and the rest of the file is fetched.
    machine.serve();
    let again = Between::on(between.port, machine.port);
    let copy = common::programs::compile(&machine.scratch, "examples/copy.c");
    let back = machine.scratch.path().join("back");
    good(machine.command(&copy).arg(again.url("large")).arg(&back));
    assert!(fs::read(back).unwrap() == whole);
}

#[test] //= GASS-27 delivery#what-a-failure-costs
fn fetch_of_killed_reader_serves_next() {
    let Some(machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("large"), bytes(SIZE, 5)).unwrap();
    let between = Between::before(machine.port);
    between.stop_after(SOME);
    let mut first = machine.begun(&["read", &between.url("large")]);
    assert!(between.stopped(|| first.try_wait().unwrap().is_some()));
    // What it was begun by passes that on.
    good(Command::new("kill").arg(first.id().to_string()));
    assert!(!first.wait().unwrap().success());
    between.goes_on();
    let back = machine.scratch.path().join("back");
    let copy = common::programs::compile(&machine.scratch, "examples/copy.c");
    good(machine.command(&copy).arg(between.url("large")).arg(&back));
    assert!(fs::read(back).unwrap() == bytes(SIZE, 5));
    let transfers = machine.told(&["transfers", &between.url("large")]);
    // What frames them comes by as well.
    let passed = between.passed() - u64::from(SIZE);
    assert!(
        passed < 1 << 20 && transfers == "ok 1\n",
        "{passed} {transfers}"
    );
}

#[test] //= GASS-63
fn lost_server_gives_no_memory_file() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("large"), bytes(SIZE, 2)).unwrap();
    let between = Between::before(machine.port);
    let kill = machine.server_to_kill();
    let said = until_it_is_gone(&machine, &between, "memory", "large", kill);
    assert!(said.starts_with("ECONNABORTED 1\ncannot "), "{said}");
}

/// Replaces the file by another of that length, as a writer that renames a new file over it.
fn replace(file: &Path, seed: u32) -> Vec<u8> {
    let (new, bytes) = (file.with_extension("new"), bytes(SIZE, seed));
    fs::write(&new, &bytes).unwrap();
    let time = SystemTime::now() - Duration::from_secs(1000 * u64::from(seed));
    File::options()
        .write(true)
        .open(&new)
        .unwrap()
        .set_modified(time)
        .unwrap();
    fs::rename(new, file).unwrap();
    bytes
}

fn changes_in_the_middle(machine: &Machine, between: &Between, name: &str, file: &Path) {
    let old = replace(file, 10);
    let copy = common::programs::compile(&machine.scratch, "examples/copy.c");
    let back = machine.scratch.path().join("back");
    // Once: one or the other comes as a whole; all of the old one may have been on its way already.
    between.stop_after(SOME);
    let mut copying = machine.command(&copy);
    let mut copying = copying.arg(between.url(name)).arg(&back).spawn().unwrap();
    assert!(between.stopped(|| copying.try_wait().unwrap().is_some()));
    let new = replace(file, 11);
    between.goes_on();
    assert!(copying.wait().unwrap().success());
    let came = fs::read(&back).unwrap();
    assert!(came == new || came == old, "a mixture of two files");
    // Whenever it is fetched: there is no file that could be shown.
    let mut seed = 20;
    replace(file, seed);
    between.stop_in_each(SOME);
    let mut reader = machine.begun(&["read", &between.url(name)]);
    drop(reader.stdin.take());
    while between.stopped(|| reader.try_wait().unwrap().is_some()) {
        seed += 1;
        replace(file, seed);
        between.goes_on();
    }
    let said = ended(reader);
    let is_whole = said == format!("ok {SIZE}\n");
    assert!(is_whole || said.starts_with("ESTALE 1\ncannot "), "{said}");
}

#[test] //= GASS-11 depot#reading
fn file_changed_during_fetch_is_refetched() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let between = Between::before(machine.port);
    changes_in_the_middle(&machine, &between, "changing", &machine.export("changing"));
}

#[test] //= depot#reading
fn foreign_file_changed_during_fetch_is_refetched() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let Some(foreign) = Vsftpd::start(machine.scratch.path(), &[]) else {
        return;
    };
    let between = Between::before(foreign.port);
    let name = foreign.name("changing");
    changes_in_the_middle(&machine, &between, &name, &foreign.shown.join("changing"));
}

/// Begins something that pauses; what it says then.
fn begin(
    machine: &Machine,
    words: &[&str],
) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let mut child = machine.begun(words);
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    (child, said, line)
}

/// Has it go on to its end; what it says.
fn finish(
    (mut child, mut said, _): (Child, BufReader<std::process::ChildStdout>, String),
) -> String {
    drop(child.stdin.take());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    rest
}

#[test] //= GASS-11
fn foreign_change_is_conflict_keeping_both() {
    let Some(machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("shared"), "as it was").unwrap();
    let url = machine.url("shared");
    let edit = begin(&machine, &["slowly", &url, "ours", "edit"]);
    assert_eq!(edit.2, "half\n");
    fs::write(machine.export("shared"), "another user's").unwrap();
    let said = finish(edit);
    assert!(said.starts_with("EREMCHG 1\ncannot "), "{said}");
    assert_eq!(
        fs::read(machine.export("shared")).unwrap(),
        b"another user's"
    );
    assert_eq!(machine.told(&["whole-of", &url]), "ourst was\n");
    good(machine.command(&machine.godwit).args(["release", &url]));
    assert_eq!(machine.told(&["push", &url]), "ok 0\n");
    assert!(
        fs::read(machine.export("shared"))
            .unwrap()
            .starts_with(b"ours")
    );
}

#[test] //= GASS-10 c-library#processes-threads-and-the-node
fn readers_and_writers_survive_node_kill() {
    let Some(machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("read"), "all of this").unwrap();
    fs::write(machine.export("edited"), "as it was, and more").unwrap();
    let reads = begin(&machine, &["reading", &machine.url("read")]);
    assert_eq!(reads.2, "all\n");
    let all = [("new", "new"), ("edited", "edit"), ("by-stdio", "stdio")];
    let writes = all.map(|(name, how)| {
        let begun = begin(
            &machine,
            &["slowly", &machine.url(name), "one and two", how],
        );
        assert_eq!(begun.2, "half\n");
        begun
    });
    machine.kill_node();
    assert_eq!(finish(reads), " of this\nok 0\n");
    for (begun, (name, _)) in writes.into_iter().zip(all) {
        assert_eq!(finish(begun), "ok 0\n", "{name}");
        let there = fs::read_to_string(machine.export(name)).unwrap();
        assert!(there.starts_with("one and two"), "{name}: {there}");
    }
    assert_eq!(
        fs::read(machine.export("edited")).unwrap(),
        b"one and twoand more"
    );
}

#[test] //= c-library#closing
fn discarded_file_after_kill_is_not_delivered() {
    let Some(machine) = Machine::new() else {
        return;
    };
    fs::write(machine.export("there"), "as it was").unwrap();
    let all = [("there", "new"), ("none", "new")];
    let given_up = all.map(|(name, how)| {
        let url = machine.url(name);
        begin(&machine, &["slowly", &url, "one and two", how, "discard"])
    });
    machine.kill_node();
    for begun in given_up {
        assert_eq!(finish(begun), "ok 0\n");
    }
    good(
        machine
            .command(&machine.godwit)
            .args(["push", "--timeout", "30"]),
    );
    assert_eq!(fs::read(machine.export("there")).unwrap(), b"as it was");
    assert!(!machine.export("none").exists());
}

#[test]
fn confirmed_close_survives_node_kill() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let (kept, late) = (machine.url("kept"), machine.url("late"));
    machine.away();
    let mut command = machine.command(&machine.told);
    let said = good(
        command
            .args(["write", &kept, "kept"])
            .env("GODWIT_CLOSE", "commit"),
    );
    assert_eq!(said, "ok 0\n");
    // While a close waits for the server, its node is killed.
    let mut command = machine.command(&machine.told);
    let waits = command
        .args(["write", &late, "late"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let owes = |words: &str| {
        let mut queue = machine.command(&machine.godwit);
        let queue = good(queue.args(["--json", "queue"]));
        queue.contains(words)
    };
    while !owes("/late") {}
    machine.kill_node();
    machine.serve();
    let said = ended(waits);
    assert!(
        said == "ok 0\n" || said.starts_with("ECONNRESET 1\ncannot "),
        "{said}"
    );
    for (url, name) in [(kept, "kept"), (late, "late")] {
        assert_eq!(machine.told(&["push", &url]), "ok 0\n");
        assert_eq!(fs::read_to_string(machine.export(name)).unwrap(), name);
    }
}

#[test] //= GASS-27 c-library#processes-threads-and-the-node
fn open_during_kill_uses_next_node() {
    let Some(machine) = Machine::new() else {
        return;
    };
    let whole = bytes(SIZE, 4);
    fs::write(machine.export("large"), &whole).unwrap();
    let between = Between::before(machine.port);
    between.stop_after(SOME);
    let mut reader = machine.begun(&["read", &between.url("large")]);
    drop(reader.stdin.take());
    assert!(between.stopped(|| reader.try_wait().unwrap().is_some()));
    machine.kill_node();
    between.goes_on();
    assert_eq!(ended(reader), format!("ok {SIZE}\n"));
}

#[test]
fn unreachable_server_is_reported() {
    let Some(machine) = Machine::new() else {
        return;
    };
    // A network of its own has no way to anywhere.
    let mut apart = Command::new("unshare");
    if !apart
        .args(["-rn", "true"])
        .output()
        .is_ok_and(|done| done.status.success())
    {
        common::skip("unshare -n is refused here");
        return;
    }
    let mut command = machine.command(Path::new("unshare"));
    command.arg("-rn").arg(&machine.told);
    let said = good(command.args(["read", "ftp://192.0.2.1/a"]));
    assert!(said.starts_with("EHOSTUNREACH 1\ncannot "), "{said}");
    // That node lives in the other network, and is the one that is ended below.
}
