//! Faults of the other side, the network and the disk: each ends with a sentence and an exit status, never with a
//! hang, a stack trace, or half a file under the final name.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Node, Said, Scratch, as_nobody, assert_same, chmod, godwit, lasting_port, noise, ours,
    ours_within, run, skip, text, wait_until,
};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Expects a failure in plain words, with one of these codes.
#[track_caller]
fn refused(said: &Said, codes: &[i32]) {
    let code = said.status.unwrap_or(-1);
    assert_ne!(code, 124, "it hung\n{said}");
    assert!(
        codes.contains(&code),
        "wanted a status of {codes:?}\n{said}"
    );
    assert!(said.stderr.contains("godwit: cannot"), "{said}");
    for word in ["panicked", "RUST_BACKTRACE", "unwrap", "(os error"] {
        assert!(
            !said.stderr.contains(word),
            "{word} is not for people\n{said}"
        );
    }
}

/// Expects a hint with the next command, and no promise that bytes are kept.
#[track_caller]
fn hints(said: &Said, words: &str) {
    let hint = said.stderr.lines().find(|line| line.starts_with("hint: "));
    let hint = hint.unwrap_or_else(|| panic!("no hint\n{said}"));
    assert!(hint.contains(words), "{said}");
    assert!(!said.stderr.contains("is kept"), "{said}");
}

/// Few and quick retries, so that a test need not wait for an operator's patience.
const HASTE: [&str; 5] = ["cp", "--retries", "1", "--stall-timeout", "2s"];

fn hasty(source: &str, target: &str) -> Said {
    ours_within(40, godwit(), [&HASTE[..], &[source, target]].concat())
}

// --- absent servers -----------------------------------------------------------------------------

#[test]
fn a_refused_port_is_told() {
    let port = lasting_port();
    let scratch = Scratch::new();
    let target = scratch.join("got");
    let said = hasty(&format!("ftp://127.0.0.1:{port}/x"), text(&target));
    refused(&said, &[5]);
    assert!(said.stderr.contains("(connection refused)"), "{said}");
    hints(&said, "nothing listens there");
    assert!(!target.exists());
}

/// Runs a script without any network but an unused loopback.
fn private(script: &str) -> Said {
    run(60, "unshare", ["-r", "-n", "-m", "sh", "-c", script])
}

impl Said {
    fn ok_or_skip(self, what: &str) -> bool {
        if self.status != Some(0) {
            skip(&format!(
                "{what} is not possible here: {}",
                self.stderr.trim()
            ));
        }
        self.status == Some(0)
    }
}

/// In a namespace without any route every address is unreachable.
#[test] //= GRIDFTP-48
fn unresolved_names_are_told() {
    let scratch = Scratch::new();
    if !private("true").ok_or_skip("unshare -n") {
        return;
    }
    let (binary, got) = (env!("CARGO_BIN_EXE_godwit"), scratch.join("got"));
    for (host, fact, hint) in [
        ("fermi.example", "fermi.example", "/etc/resolv.conf"),
        (
            "192.0.2.1",
            "unreachable",
            "no way leads from here to 192.0.2.1:21",
        ),
    ] {
        let got = text(&got);
        let said = private(&format!(
            "exec {binary} cp --retries 1 ftp://{host}/x {got}"
        ));
        refused(&said, &[5]);
        assert!(said.stderr.contains(fact), "{said}");
        hints(&said, hint);
    }
}

// --- not there, not allowed ---------------------------------------------------------------------

#[test]
fn a_missing_name_is_told() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    let target = scratch.join("got");
    let said = hasty(&node.url("nothing"), text(&target));
    refused(&said, &[3, 4]);
    assert!(said.stderr.contains("nothing"), "{said}");
    assert!(!target.exists());
    refused(&hasty(text(&scratch.join("none")), &node.url("x")), &[3, 4]);
    assert!(!node.export.join("x").exists());
}

#[test]
fn read_only_node_refuses_writes() {
    let scratch = Scratch::new();
    let node = Node::with(&scratch.join("export"), &["--anonymous", "read"]);
    let source = scratch.file("source", 1000);
    let said = hasty(text(&source), &node.url("x"));
    refused(&said, &[13]);
    assert_eq!(std::fs::read_dir(&node.export).unwrap().count(), 0);
}

#[test]
fn missing_permission_is_told() {
    let scratch = Scratch::new();
    let home = scratch.dir("home");
    chmod(&home, 0o777);
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    // A node that is an ordinary user, and may not read one file and not write one directory.
    let export = scratch.dir("export");
    std::fs::write(export.join("secret"), b"secret").unwrap();
    chmod(&export.join("secret"), 0o600);
    chmod(&export, 0o755);
    let state = home.join("state");
    let options = ["--anonymous", "write", "--state", text(&state)];
    let node = Node::by(nobody(), &export, &options);
    let got = scratch.join("got");
    refused(&hasty(&node.url("secret"), text(&got)), &[13]);
    assert!(!got.exists());
    let source = scratch.file("source", 100_000);
    refused(&hasty(text(&source), &node.url("new")), &[13]);
    assert!(!export.join("new").exists());
    // The client is an ordinary user too.
    chmod(&export.join("secret"), 0o644);
    let closed = scratch.dir("closed");
    chmod(&closed, 0o755);
    let secret = node.url("secret");
    let args = [&HASTE[..], &[&*secret, text(&closed)]].concat();
    refused(&ours_within(40, nobody(), args), &[13]);
    assert_eq!(std::fs::read_dir(&closed).unwrap().count(), 0);
}

#[test]
fn unreadable_directory_leaves_the_rest() {
    let scratch = Scratch::new();
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    let (export, home) = (scratch.dir("export"), scratch.dir("home"));
    for name in [
        "a/f",
        "a/deep/g",
        "a/no/x",
        "no/secret",
        "z/no/secret",
        "z/h",
        "top",
    ] {
        scratch.file(format!("export/s/{name}"), 1000);
    }
    for closed in ["s/no", "s/a/no", "s/z/no"] {
        chmod(&export.join(closed), 0o700);
    }
    for open in ["", "s", "s/a", "s/z"] {
        chmod(&export.join(open), 0o777);
    }
    chmod(&home, 0o777);
    // Partials of a month ago are removed when the node starts.
    let given_up = ["s/a", "s/z"].map(|directory| {
        let name = format!(".godwit-{}.part", "0".repeat(HASH_DIGITS));
        let part = scratch.file(format!("export/{directory}/{name}"), 10);
        let file = std::fs::File::options().write(true).open(&part).unwrap();
        let month = Duration::from_secs(30 * 86_400);
        file.set_modified(SystemTime::now() - month).unwrap();
        chmod(&part, 0o666);
        part
    });
    let options = ["--anonymous", "write"];
    let node = Node::by(nobody(), &export, &options);
    wait_until("partials are swept", || {
        !given_up.iter().any(|part| part.exists())
    });
    let run = |args: &[&str]| {
        let said = ours_within(40, nobody(), args);
        refused(&said, &[13]);
        let closed = said.stderr.matches("permission denied").count();
        assert!(
            closed >= if args[0] == "mv" { 1 } else { 2 },
            "{args:?}: {said}"
        );
        said
    };
    for (number, source) in [text(&export.join("s")), &*node.url("s")]
        .into_iter()
        .enumerate()
    {
        let is_there = |target: &Path| {
            let names = ["a/f", "a/deep/g", "z/h", "top"];
            names.iter().all(|name| target.join(name).is_file())
        };
        std::os::unix::fs::symlink(".", export.join("s/a/ring")).unwrap();
        for verb in ["list -R", "measure", "search", "sum"] {
            let args: &[&str] = match verb {
                "list -R" => &["ls", "-R", source],
                "measure" => &["du", source],
                "search" => &["find", source],
                _ => &["sum", "-r", source],
            };
            let said = run(args);
            let told = String::from_utf8_lossy(&said.stdout);
            let files: &[&str] = match verb {
                "measure" => &["a/deep", "z"],
                _ => &["a/f", "a/deep/g", "z/h", "top"],
            };
            for file in files {
                let times = told.lines().filter(|line| line.ends_with(file)).count();
                assert_eq!(times, 1, "{args:?} {file}: {said}");
            }
        }
        std::fs::remove_file(export.join("s/a/ring")).unwrap(); // cp complains of it
        let copy = home.join(format!("copy{number}"));
        run(&["cp", "-r", source, text(&copy)]);
        assert!(is_there(&copy));
        // An unreadable source may still be at the target.
        let synced = home.join(format!("synced{number}"));
        for only_here in ["no/kept", "kept"] {
            scratch.file(synced.join(only_here), 10);
        }
        for directory in [&synced, &synced.join("no")] {
            chmod(directory, 0o777);
        }
        let said = run(&["sync", "--delete", "--dry-run", source, text(&synced)]);
        let told = String::from_utf8_lossy(&said.stdout);
        assert!(!told.contains("remove"), "{said}");
        run(&["sync", "--delete", source, text(&synced)]);
        assert!(is_there(&synced));
        assert!(synced.join("no/kept").exists() && synced.join("kept").exists());
        let (here, there) = (home.join("moved"), node.url("moved"));
        let other = [&*there, text(&here)][number]; // on one disk it is a rename
        run(&["mv", source, other]);
        assert!(is_there(&export.join("s")) && export.join("s/no/secret").exists());
    }
}

#[test] //= publishing#the-file
fn in_place_write_names_closed_directory() {
    let scratch = Scratch::new();
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    let export = scratch.dir("export");
    for name in ["small", "large"] {
        std::fs::write(export.join(name), b"old").unwrap();
        chmod(&export.join(name), 0o666);
    }
    chmod(&export, 0o555);
    let options = ["--anonymous", "write"];
    let node = Node::by(nobody(), &export, &options);
    for (name, size) in [("small", 1000), ("large", 3_000_000)] {
        let source = scratch.file(name, size);
        let here = export.join(name);
        let (there, source) = (node.url(name), text(&source).to_owned());
        for target in [text(&here), &there] {
            let args = ["cp", "--json", &source, target];
            let said = ours_within(40, nobody(), args).ok();
            let told = String::from_utf8_lossy(&said.stdout);
            assert!(told.contains(r#""in_place":true"#), "{target}: {said}");
            assert!(told.contains(r#""in_place":1"#), "{target}: {said}");
            assert_same(Path::new(&source), &here);
        }
    }
    chmod(&export, 0o755);
}

#[test]
fn node_refuses_closed_export() {
    let scratch = Scratch::new();
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    let export = scratch.dir("above/export");
    // Neither listed nor entered, only listed, out of reach.
    for (above, bits) in [(0o755, 0o700), (0o755, 0o744), (0o700, 0o755)] {
        chmod(&export, bits);
        chmod(&scratch.join("above"), above);
        let args = ["node", "--ftp", "127.0.0.1:0", "--export", text(&export)];
        let said = ours_within(10, nobody(), args);
        refused(&said, &[2]);
        let fact = format!("{}: nobody may not enter it", export.display());
        assert!(said.stderr.contains(&fact), "{said}");
        assert!(
            said.stderr.contains("hint: let that account enter"),
            "{said}"
        );
    }
}

#[test]
fn unlistable_file_is_served_by_name() {
    let scratch = Scratch::new();
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    let export = scratch.dir("export");
    let file = scratch.file("export/known", 1000);
    chmod(&file, 0o644);
    chmod(&export, 0o711);
    let options = ["--anonymous", "read"];
    let node = Node::by(nobody(), &export, &options);
    let got = scratch.join("got");
    ours(["cp", &node.url("known"), text(&got)]).ok();
    assert_same(&file, &got);
    refused(&ours(["ls", &node.url("")]), &[13]);
    let log = std::fs::read_to_string(export.with_extension("log")).unwrap();
    let warning = log.lines().find(|line| line.contains("may not list"));
    let warning = warning.unwrap_or_else(|| panic!("no warning in {log}"));
    assert!(
        warning.contains("WARN") && warning.contains(text(&export)),
        "{warning}"
    );
}

#[test]
fn log_names_export_closed_later() {
    let scratch = Scratch::new();
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    let export = scratch.dir("export");
    let node = Node::by(nobody(), &export, &[]);
    chmod(&export, 0o700);
    let said = ours(["ls", &node.url("")]);
    refused(&said, &[13]);
    let log = std::fs::read_to_string(export.with_extension("log")).unwrap();
    for told in [&said.stderr, &log] {
        let has_no_name = |line: &str| line.trim_start().starts_with(": ") || line.contains("=: ");
        assert!(!told.lines().any(has_no_name), "{told}");
    }
}

#[test]
fn unreadable_source_keeps_its_target() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    let secret = scratch.file("from/n", 10);
    chmod(&secret, 0o600);
    for target in ["to", "export/to"] {
        scratch.file(format!("{target}/n/keep"), 10);
        chmod(&scratch.join(target), 0o777);
        chmod(&scratch.join(target).join("n"), 0o777);
    }
    let from = scratch.join("from");
    for target in [text(&scratch.join("to")), &node.url("to")] {
        let args = ["sync", "--delete", text(&from), target];
        refused(&ours_within(40, nobody(), args), &[13]);
    }
    assert!(scratch.join("to/n/keep").exists());
    assert!(scratch.join("export/to/n/keep").exists());
}

/// Digits in the name of a partial.
const HASH_DIGITS: usize = 24;

// --- full disks ---------------------------------------------------------------------------------

/// Runs a script with a file system of 4 MiB on `full`, if that is possible here. It must fail, and say why.
fn fills_small_disk(scratch: &Scratch, script: &str) {
    let full = scratch.dir("full");
    let mount = format!("mount -t tmpfs -o size=4m tmpfs {} && ", text(&full));
    let inside =
        |seconds, script: String| run(seconds, "unshare", ["-r", "-m", "sh", "-c", &script]);
    if !inside(10, format!("{mount} true")).ok_or_skip("mounting a small tmpfs") {
        return;
    }
    let said = inside(90, mount + script);
    refused(&said, &[1, 5, 7]);
    let whole = "half a file under the final name";
    assert!(!said.stderr.contains("HALF"), "{whole}\n{said}");
    assert!(said.stderr.contains("space"), "{said}");
}

#[test]
fn full_local_disk_keeps_partial() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    std::fs::write(node.export.join("big"), noise(12_000_000, 1)).unwrap();
    let binary = env!("CARGO_BIN_EXE_godwit");
    let (url, full) = (node.url("big"), scratch.join("full"));
    let full = text(&full);
    let script = format!(
        "timeout 60 {binary} cp --retries 1 {url} {full}/big; code=$?; ls -A {full} >&2; test ! -e {full}/big || echo HALF >&2; exit $code"
    );
    fills_small_disk(&scratch, &script);
}

#[test]
fn full_remote_disk_keeps_partial() {
    let scratch = Scratch::new();
    let source = scratch.file("source", 12_000_000);
    let binary = env!("CARGO_BIN_EXE_godwit");
    let (full, state) = (scratch.join("full"), scratch.join("state"));
    let (source, full, state) = (text(&source), text(&full), text(&state));
    let script = format!(
        "{binary} node --export {full} --state {state} --ftp 127.0.0.1:0 --anonymous write --json > {full}.line & node=$!
         while ! grep -q 127.0.0.1 {full}.line; do kill -0 $node || exit 99; sleep 0.05; done
         port=$(sed 's/.*127.0.0.1:\\([0-9]*\\).*/\\1/' {full}.line | head -n 1)
         timeout 60 {binary} cp --retries 1 {source} ftp://127.0.0.1:$port/big; code=$?
         test ! -e {full}/big || echo HALF >&2
         kill $node; wait $node; exit $code"
    );
    fills_small_disk(&scratch, &script);
}

// --- servers that misbehave ---------------------------------------------------------------------

/// How a false server answers a request for the file.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// SIZE is larger than the file.
    LargerSize,
    /// SIZE is smaller than the file.
    SmallerSize,
    /// Closes the data connection early and says it was whole.
    ClosesEarly,
    /// Answers in another protocol.
    Garbage,
    /// Never greets.
    Silent,
    /// Greets, then says nothing.
    StallsAtLogin,
    /// Sends half, hangs up, and never greets again.
    FallsSilent,
    /// Sends half, then nothing.
    StallsInData,
    /// Hangs up at once.
    HangsUp,
    /// Reports progress again and again, and never ends.
    TalksInsteadOfFacts,
    /// Reports progress on the file again and again.
    TalksInsteadOfData,
    /// Sends a reply line without end.
    EndlessLine,
    /// Lists names that lead outside.
    HostileListing,
    WrongDigest,
    /// A directory that contains itself.
    HoldsItself,
}

/// A server on loopback that logs anybody in and then does its `Lie`.
struct False {
    port: u16,
    stop: Arc<AtomicBool>,
}

const FILE_BYTES: usize = 100_000;

impl False {
    fn serve(lie: Lie) -> False {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::spawn(move || {
            for (nth, stream) in listener.incoming().enumerate() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let lie = match lie {
                    Lie::FallsSilent if nth > 0 => Lie::Silent,
                    lie => lie,
                };
                let stopped = Arc::clone(&stopped);
                std::thread::spawn(move || {
                    let _ = talk(stream.unwrap(), lie, &stopped);
                });
            }
        });
        False { port, stop }
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for False {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn talk(mut control: TcpStream, lie: Lie, stop: &AtomicBool) -> std::io::Result<()> {
    control.set_nodelay(true)?;
    match lie {
        Lie::Silent => return hold(stop),
        Lie::HangsUp => return Ok(()),
        Lie::Garbage => {
            control.write_all(&noise(100_000, 1))?;
            return hold(stop);
        }
        Lie::EndlessLine => {
            control.write_all(b"220 ")?;
            while !stop.load(Ordering::Relaxed) {
                control.write_all(&[b'x'; 65_536])?;
            }
            return Ok(());
        }
        _ => control.write_all(b"220 false\r\n")?,
    }
    if let Lie::StallsAtLogin = lie {
        return hold(stop);
    }
    let mut lines = BufReader::new(control.try_clone()?).lines();
    let data = TcpListener::bind("127.0.0.1:0")?;
    let port = data.local_addr()?.port();
    let told = match lie {
        Lie::LargerSize => FILE_BYTES * 2,
        Lie::SmallerSize => FILE_BYTES / 2,
        _ => FILE_BYTES,
    };
    while let Some(Ok(line)) = lines.next() {
        let verb = line.split(' ').next().unwrap_or_default().to_uppercase();
        let reply = match verb.as_str() {
            "MLST" | "SIZE" if matches!(lie, Lie::TalksInsteadOfFacts) => return chatter(&mut control, stop),
            "USER" => "331 password".into(),
            "PASS" => "230 in".into(),
            "FEAT" if matches!(lie, Lie::WrongDigest) => "211-Features\r\n SIZE\r\n EPSV\r\n CKSM ADLER32:1\r\n MLST type*;size*;modify*;\r\n211 End".into(),
            "CKSM" if matches!(lie, Lie::WrongDigest) => "213 0badc0de".into(),
            "FEAT" => "211-Features\r\n SIZE\r\n REST STREAM\r\n EPSV\r\n MLST type*;size*;modify*;\r\n211 End".into(),
            "TYPE" | "NOOP" | "OPTS" | "MODE" => "200 ok".into(),
            "PWD" => "257 \"/\"".into(),
            "CWD" => "250 ok".into(),
            "SIZE" => format!("213 {told}"),
            "MDTM" => "213 20260101000000".into(),
            "MLST" if matches!(lie, Lie::HostileListing | Lie::HoldsItself) => "250-facts\r\n type=dir; /dir\r\n250 End".into(),
            "MLST" => format!("250-facts\r\n type=file;size={told};modify=20260101000000; /x\r\n250 End"),
            "PASV" => format!("227 in (127,0,0,1,{},{})", port >> 8, port & 255),
            "EPSV" => format!("229 in (|||{port}|)"),
            "RETR" if matches!(lie, Lie::TalksInsteadOfData) => return chatter(&mut control, stop),
            "RETR" | "MLSD" | "LIST" => {
                control.write_all(b"150 here it comes\r\n")?;
                let (mut stream, _) = data.accept()?;
                match (lie, verb.as_str()) {
                    (Lie::HoldsItself, _) => stream.write_all(b"type=dir; again\r\n")?,
                    (Lie::HostileListing, _) => stream.write_all(HOSTILE)?,
                    (Lie::ClosesEarly, _) => stream.write_all(&noise(FILE_BYTES / 2, 1))?,
                    (Lie::FallsSilent, _) => return stream.write_all(&noise(FILE_BYTES / 2, 1)),
                    (Lie::StallsInData, _) => {
                        stream.write_all(&noise(FILE_BYTES / 2, 1))?;
                        return hold(stop);
                    }
                    _ => stream.write_all(&noise(FILE_BYTES, 1))?,
                }
                drop(stream);
                "226 whole, honestly".into()
            }
            "QUIT" => "221 bye".into(),
            _ => "502 no".into(),
        };
        control.write_all(format!("{reply}\r\n").as_bytes())?;
    }
    Ok(())
}

/// Names that lead outside, control characters, bad sizes and bad lines.
const HOSTILE: &[u8] = b"type=file;size=5; ../../escaped\r\n\
type=file;size=5; /etc/escaped\r\n\
type=file;size=5; a/b\r\n\
type=file;size=99999999999999999999999; huge\r\n\
type=dir; ..\r\n\
type=file;size=5; \x1b[31mred\r\n\
no facts at all\r\n\
type=file;size=-1; \r\n";

/// Reports progress without end.
fn chatter(control: &mut TcpStream, stop: &AtomicBool) -> std::io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        control.write_all(b"150 still at it\r\n")?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn hold(stop: &AtomicBool) -> std::io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn lied_to(lie: Lie, codes: &[i32]) -> Said {
    let scratch = Scratch::new();
    let server = False::serve(lie);
    let target = scratch.join("got");
    let begun = Instant::now();
    let said = hasty(&server.url("x"), text(&target));
    refused(&said, codes);
    assert!(!target.exists(), "half a file under the final name\n{said}");
    assert!(begun.elapsed() < Duration::from_secs(30), "too patient");
    said
}

/// Anything but success; a server's fault may be passing or lasting.
const FAULT: [i32; 4] = [1, 5, 7, 12];

#[test]
fn lies_of_servers_are_told() {
    let port = "the right port of an FTP server?";
    for (lie, codes, fact, hint) in [
        (Lie::LargerSize, &FAULT[..], "", ""),
        (Lie::SmallerSize, &FAULT, "", ""),
        (Lie::ClosesEarly, &FAULT, "", ""),
        (Lie::EndlessLine, &FAULT, "", ""),
        (Lie::StallsInData, &[5], "", ""),
        (Lie::TalksInsteadOfFacts, &[5], "", ""),
        (Lie::TalksInsteadOfData, &[5], "", ""),
        (Lie::Garbage, &FAULT, "does not speak FTP", port),
        (Lie::HangsUp, &[5], "", port),
        (Lie::Silent, &[5], "", "waits for us to speak"),
        (
            Lie::StallsAtLogin,
            &[5],
            "while logging in",
            "try again in a while",
        ),
    ] {
        let said = lied_to(lie, codes);
        assert!(said.stderr.contains(fact), "{lie:?} {said}");
        if !hint.is_empty() {
            hints(&said, hint);
        }
    }
}

#[test]
fn lost_greeting_blames_no_port() {
    let said = lied_to(Lie::FallsSilent, &[5]);
    assert!(said.stderr.contains("to greet again"), "{said}");
    let hint = "hint: what arrived is kept; the same command continues from there";
    assert!(said.stderr.contains(hint), "{said}");
}

#[test]
fn recursive_directory_ends() {
    let server = False::serve(Lie::HoldsItself);
    let scratch = Scratch::new();
    let url = server.url("d");
    let target = scratch.join("got");
    for args in [&["find", &*url][..], &["cp", "-r", &url, text(&target)]] {
        let said = ours_within(60, godwit(), args);
        refused(&said, &[2]);
        assert!(said.stderr.contains("more than 8192 bytes"), "{said}");
    }
}

#[test]
fn printed_bytes_must_match_digest() {
    let server = False::serve(Lie::WrongDigest);
    let said = hasty(&server.url("x"), "-");
    refused(&said, &[12]);
    assert!(said.stderr.contains("0badc0de"), "{said}");
    assert!(said.stdout == noise(FILE_BYTES, 1), "nothing but the bytes");
    let url = server.url("x");
    let args = [&HASTE[..], &["--json", &url, "-"]].concat();
    let said = ours_within(40, godwit(), args);
    assert_eq!(said.status, Some(12), "{said}");
    assert!(said.stdout == noise(FILE_BYTES, 1), "nothing but the bytes");
    let objects: Vec<serde_json::Value> = said
        .stderr
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(objects.last().unwrap()["exit_code"], 12, "{said}");
    assert!(
        objects.iter().any(|object| object["event"] == "error"),
        "{said}"
    );
}

#[test]
fn broken_printing_is_told() {
    let said = hasty(&False::serve(Lie::ClosesEarly).url("x"), "-");
    refused(&said, &FAULT);
    assert!(!said.stderr.contains("kept"), "nothing is: {said}");
    assert!(noise(FILE_BYTES, 1).starts_with(&said.stdout), "{said}");
}

#[test]
fn a_hostile_listing_writes_nothing_outside() {
    let scratch = Scratch::new();
    let server = False::serve(Lie::HostileListing);
    let target = scratch.dir("a/b/target");
    let args = [
        "cp",
        "-r",
        "--retries",
        "1",
        "--stall-timeout",
        "2s",
        &server.url("dir"),
        text(&target),
    ];
    let said = ours_within(60, godwit(), args);
    assert_ne!(said.status, Some(0), "{said}");
    assert_ne!(said.status, Some(124), "it hung\n{said}");
    assert!(
        !said.stderr.contains('\x1b'),
        "control characters reach the terminal\n{said}"
    );
    assert!(!said.stderr.contains("panicked"), "{said}");
    for name in ["a/escaped", "escaped", "a/b/escaped"] {
        assert!(!scratch.join(name).exists(), "{name} was written");
    }
    assert!(!Path::new("/etc/escaped").exists());
}

#[test]
fn stopped_node_is_told_and_resumed() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    let source = scratch.file("source", 1000);
    node.signal("STOP");
    let said = hasty(text(&source), &node.url("x"));
    node.signal("CONT");
    refused(&said, &[5]);
    hasty(text(&source), &node.url("x")).ok();
    assert_same(&source, &node.export.join("x"));
}

// --- too much -----------------------------------------------------------------------------------

#[test]
fn ten_thousand_connections_are_survived() {
    const ASKED: usize = 10_000;
    let scratch = Scratch::new();
    let script = scratch.join("crowd.py");
    std::fs::write(&script, CROWD).unwrap();
    let node = Node::start(&scratch.join("export"));
    let source = scratch.file("source", 100_000);
    let mut crowd = Command::new("python3")
        .arg(&script)
        .args([&node.port.to_string(), &ASKED.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    let mut stdout = BufReader::new(crowd.stdout.take().unwrap());
    stdout.read_line(&mut told).unwrap();
    eprintln!("{}", told.trim()); // the count, and the descriptor limit
    let limit = std::fs::read_to_string(format!("/proc/{}/limits", node.pid())).unwrap();
    eprintln!(
        "{}",
        limit
            .lines()
            .find(|line| line.contains("open files"))
            .unwrap()
    );
    // With all connections open the node answers at least that it is full; after them it serves.
    let said = hasty(text(&source), &node.url("crowded"));
    if said.status != Some(0) {
        refused(&said, &[5]);
    }
    drop(crowd.stdin.take());
    crowd.wait().unwrap();
    wait_until("the node serves again", || {
        ours(["cp", "-f", text(&source), &node.url("after")]).status == Some(0)
    });
    assert_same(&source, &node.export.join("after"));
}

const CROWD: &str = r#"
import resource, socket, sys
port, asked = int(sys.argv[1]), int(sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
crowd = []
for i in range(asked):
    try:
        s = socket.socket()
        s.settimeout(5)
        s.connect(("127.0.0.1", port))
        crowd.append(s)
    except OSError as e:
        break
print(f"{len(crowd)} of {asked} connections, descriptor limit {hard}", flush=True)
sys.stdin.read()
"#;
