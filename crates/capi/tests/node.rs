//! The library beside the real thing: it starts the node of this machine, which fetches from a server and delivers to it.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::programs::{Scratch, compile, good, library};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// The binary that cargo built for the tests of all crates.
fn godwit() -> Option<PathBuf> {
    let built = library().ancestors().nth(1)?.join("../godwit");
    let found = built.canonicalize().ok();
    if found.is_none() {
        println!(
            "skipped: {} is not built (cargo build -p godwit)",
            built.display()
        );
    }
    found
}

/// A machine with a server beside it.
struct Machine {
    scratch: Scratch,
    godwit: PathBuf,
    server: Option<Child>,
    port: u16,
    told: PathBuf,
}

impl Machine {
    fn new() -> Option<Self> {
        let godwit = godwit()?;
        let scratch = Scratch::new();
        for dir in ["export", "run"] {
            fs::create_dir(scratch.path().join(dir)).unwrap();
        }
        fs::set_permissions(scratch.path().join("run"), PermissionsExt::from_mode(0o700)).unwrap();
        let told = compile(&scratch, "tests/c/told.c");
        let mut machine = Self {
            scratch,
            godwit,
            server: None,
            port: 0,
            told,
        };
        machine.serve();
        Some(machine)
    }

    fn serve(&mut self) {
        let mut server = Command::new(&self.godwit)
            .args(["node", "--anonymous", "write", "--json", "--export"])
            .arg(self.export(""))
            .args(["--ftp", &format!("127.0.0.1:{}", self.port), "--state"])
            .arg(self.scratch.path().join("served"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(self.scratch.path().join("server.log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(server.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let port = line
            .split("127.0.0.1:")
            .nth(1)
            .expect("it says where it serves");
        let digits: String = port.chars().take_while(char::is_ascii_digit).collect();
        self.port = digits.parse().unwrap();
        self.server = Some(server);
    }

    fn away(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    fn export(&self, name: &str) -> PathBuf {
        self.scratch.path().join("export").join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("ftp://127.0.0.1:{}/{name}", self.port)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", "100"])
            .arg(program)
            .env("LD_LIBRARY_PATH", self.scratch.path())
            .env("GODWIT_SOCKET", self.scratch.path().join("run/socket"))
            .env("GODWIT_STATE", self.scratch.path().join("state"))
            .env("GODWIT_BIN", &self.godwit)
            .env("GODWIT_LOCAL_IDLE", "20s")
            .env_remove("GODWIT_SESSION")
            .env_remove("GODWIT_CLOSE")
            .env_remove("GODWIT_CLOSE_TIMEOUT");
        command
    }

    fn told(&self, words: &[&str]) -> String {
        good(self.command(&self.told).args(words))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let stopped = self.command(&self.godwit).args(["node", "stop"]).output();
        self.away();
        if std::thread::panicking() {
            for log in ["state/node.log", "server.log"] {
                let text = fs::read_to_string(self.scratch.path().join(log));
                eprintln!("{log}:\n{}", text.unwrap_or_default());
            }
        }
        assert!(stopped.unwrap().status.success() || std::thread::panicking());
    }
}

#[test]
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

#[test]
fn many_readers_of_one_file_fetch_it_once() {
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

#[test]
fn what_goes_wrong_is_told_and_nothing_is_lost() {
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
