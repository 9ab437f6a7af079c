//! Helpers of all tests of the program: a scratch directory, a running node, foreign servers.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    missing_docs,
    clippy::unwrap_used
)] // each test file uses its part

pub mod between;
pub mod chain;
pub mod farm;
pub mod joined;
pub mod keyed;
pub mod lab;
pub mod peers;
pub mod programs;
pub mod wan;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

pub use joined::Machine;
pub use peers::{Kind, Peer, Said, have, run, skip};

/// Returns a free port of the loopback below those that the kernel gives out, so that no other program gets it while
/// the server is down.
pub fn lasting_port() -> u16 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    const PORTS: std::ops::Range<u32> = 10_000..32_000;
    let first = std::process::id().wrapping_mul(97);
    loop {
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let port = PORTS.start + first.wrapping_add(next) % (PORTS.end - PORTS.start);
        let port = u16::try_from(port).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A directory that is gone when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        Scratch::below(&std::env::temp_dir())
    }

    /// Below a given directory: another file system, say.
    pub fn below(parent: &Path) -> Scratch {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = parent.join(format!("godwit-test-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        chmod(&path, 0o755); // peers run as other accounts
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Runs a line in this directory; words are cut at spaces.
    pub fn run(&self, line: &str) -> Said {
        let mut command = godwit();
        command.current_dir(self.path()).args(line.split(' '));
        Said::of(command.stdin(Stdio::null()))
    }

    /// Makes a directory.
    pub fn dir(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Makes a file of bytes that do not compress and do not repeat.
    pub fn file(&self, name: impl AsRef<Path>, size_bytes: usize) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, noise(size_bytes, size_bytes as u64)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A node of ours that serves `export`.
#[derive(Debug)]
pub struct Node {
    pub port: u16,
    /// Its first line.
    pub said: String,
    pub export: PathBuf,
    child: Child,
}

impl Node {
    /// Serves a directory to anonymous users who may write, with its state beside it.
    pub fn start(export: &Path) -> Node {
        Node::with(export, &["--anonymous", "write"])
    }

    pub fn with(export: &Path, options: &[&str]) -> Node {
        Node::on(export, 0, options)
    }

    /// On a given port: to come back after a kill.
    pub fn on(export: &Path, port: u16, options: &[&str]) -> Node {
        std::fs::create_dir_all(export).unwrap();
        let name = export.file_name().unwrap().to_str().unwrap();
        let state = export.with_file_name(format!("{name}.state"));
        let mut command = godwit();
        command.arg("node").arg("--export").arg(export);
        command.arg("--ftp").arg(format!("127.0.0.1:{port}"));
        command
            .arg("--state")
            .arg(state)
            .arg("--json")
            .args(options);
        Node::spawn(command, export)
    }

    /// By a prepared command, which another account may run.
    pub fn by(mut command: Command, export: &Path, options: &[&str]) -> Node {
        command.args(["node", "--ftp", "127.0.0.1:0", "--json", "--export"]);
        command.arg(export).args(options);
        Node::spawn(command, export)
    }

    /// Starts a command that is a node or leads to one, and waits for its line.
    pub fn spawn(mut command: Command, export: &Path) -> Node {
        let log = export.with_extension("log");
        command.stderr(std::fs::File::create(&log).unwrap());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (told, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout);
            let mut line = String::new();
            let _ = lines.read_line(&mut line);
            let _ = told.send(line);
            // The output must be read, or the node would block.
            let _ = std::io::copy(&mut lines, &mut std::io::sink());
        });
        let line = heard
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_default();
        let Some(port) = port_in(&line) else {
            let _ = child.kill();
            let _ = child.wait();
            let log = std::fs::read_to_string(log).unwrap_or_default();
            panic!("the node did not say where it serves: {line:?}\n{log}");
        };
        Node {
            port,
            said: line,
            export: export.to_owned(),
            child,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("ftp://127.0.0.1:{}/{path}", self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it ended by itself; false if the time was up first.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let until = std::time::Instant::now() + time;
        while std::time::Instant::now() < until {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Sends a signal by its name without SIG.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The port in the first `127.0.0.1:PORT` of a line.
fn port_in(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once("127.0.0.1:")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Returns a command with the catalog `names.db` of a directory, which it runs in.
pub fn by_name(scratch: &Scratch, words: &[&str]) -> Command {
    let mut command = godwit();
    let catalog = format!("sqlite:{}", scratch.join("names.db").display());
    command.args(words).env("GODWIT_CATALOG", catalog);
    command.current_dir(scratch.path());
    command
}

/// Our program with its own home, so that no user's configuration matters.
pub fn godwit() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit"));
    let home = std::env::temp_dir().join(format!("godwit-home-{}", std::process::id()));
    command.env("HOME", &home);
    // The node of this account may take the names of another catalog.
    command.env("GODWIT_SOCKET", home.join("socket"));
    // Where root runs the tests, peers act as the node does.
    command.env("GODWIT_PEERS_ACCOUNT", "root");
    for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    command
}

/// The account that runs the tests: a node of root serves accounts of this machine only.
pub fn account() -> String {
    String::from_utf8(run(5, "id", ["-un"]).stdout)
        .unwrap()
        .trim()
        .into()
}

/// Gives a command the environment of one that was prepared.
pub fn as_prepared(mut command: Command, prepared: &Command) -> Command {
    for (name, value) in prepared.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Our program as an account that owns nothing; none if that cannot be had.
pub fn as_nobody(scratch: &Scratch) -> Option<impl Fn() -> Command + use<>> {
    let root = run(5, "id", ["-u"]).stdout == b"0\n";
    if !root {
        skip("becoming another account needs root");
        return None;
    }
    // The test binary may lie where other accounts may not look.
    let (ours, seen) = (env!("CARGO_BIN_EXE_godwit"), scratch.join(".godwit"));
    if std::fs::hard_link(ours, &seen).is_err() {
        std::fs::copy(ours, &seen).unwrap();
    }
    Some(move || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
        command.arg(&seen);
        command.env("HOME", "/nonexistent");
        command
    })
}

/// Tells whether this account can serve a mount; says so where it cannot.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if device.is_err() {
        skip("this account may not use /dev/fuse");
    }
    device.is_ok()
}

/// Runs `godwit ARGS` for at most a minute.
pub fn ours<I, S>(args: I) -> Said
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    ours_within(60, godwit(), args)
}

/// Runs a prepared [`godwit`] command; status 124 says that the time was up.
pub fn ours_within<I, S>(seconds: u32, prepared: Command, args: I) -> Said
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = as_prepared(Command::new("timeout"), &prepared);
    command.args(["--kill-after=2", &seconds.to_string()]);
    command
        .arg(prepared.get_program())
        .args(prepared.get_args());
    command.args(args).stdin(Stdio::null());
    Said::of(&mut command)
}

/// Bytes that look random and are the same every time.
pub fn noise(size_bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(size_bytes + 8);
    while bytes.len() < size_bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size_bytes);
    bytes
}

/// Panics with the first difference unless two files have the same bytes.
#[track_caller]
pub fn assert_same(left: &Path, right: &Path) {
    let open = |path: &Path| {
        std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (mut a, mut b) = (open(left), open(right));
    let sizes = (a.metadata().unwrap().len(), b.metadata().unwrap().len());
    assert_eq!(
        sizes.0,
        sizes.1,
        "sizes of {} and {}",
        left.display(),
        right.display()
    );
    let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut offset = 0u64;
    while offset < sizes.0 {
        let length = (sizes.0 - offset).min(1 << 20) as usize;
        a.read_exact(&mut x[..length]).unwrap();
        b.read_exact(&mut y[..length]).unwrap();
        if let Some(at) = (0..length).find(|&i| x[i] != y[i]) {
            let at = offset + at as u64;
            panic!(
                "{} and {} differ at byte {at}",
                left.display(),
                right.display()
            );
        }
        offset += length as u64;
    }
}

/// Panics with the difference unless two directories hold the same names and bytes, at any depth.
#[track_caller]
pub fn assert_same_tree(left: &Path, right: &Path) {
    let (names, others) = (tree(left), tree(right));
    assert_eq!(
        names,
        others,
        "names in {} and {}",
        left.display(),
        right.display()
    );
    for name in names {
        if left.join(&name).is_file() {
            assert_same(&left.join(&name), &right.join(&name));
        }
    }
}

/// The relative paths of everything below a directory, sorted.
pub fn tree(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(here) = waiting.pop() {
        for entry in std::fs::read_dir(&here).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(dir).unwrap().to_owned());
            if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Waits until something is so; `what` names it if it does not come.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20)); // nothing tells it
    }
}

/// Sets the permission bits of a file or directory.
pub fn chmod(path: &Path, bits: u32) {
    let bits = std::os::unix::fs::PermissionsExt::from_mode(bits);
    std::fs::set_permissions(path, bits).unwrap();
}

/// Returns how many bytes of the files in a directory have their place on the disk.
pub fn arrived(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).unwrap();
    let files = entries.filter_map(|entry| entry.ok()?.metadata().ok());
    files.map(|meta| meta.blocks() * 512).sum()
}

/// Returns a path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// Returns the last line of `--json`.
pub fn summary(said: &Said) -> serde_json::Value {
    let text = String::from_utf8_lossy(&said.stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("{said}"));
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {said}"))
}
