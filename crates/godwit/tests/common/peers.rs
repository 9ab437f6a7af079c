//! Starts foreign programs that tests talk to, and stops them when dropped.
//!
//! A program that cannot run on this machine is no failure: [`Peer::start`] says why and returns `None`, and the test
//! ends. With `GODWIT_PEERS_REQUIRED=1` it is a failure, for machines that have everything.

#[path = "skip.rs"]
mod skipped;

pub use skipped::skip;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A running foreign server.
#[derive(Debug)]
pub struct Peer {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// The directory that it calls `/`.
    pub root: PathBuf,
    /// A directory below `root` that may be written.
    pub r#where: PathBuf,
    /// The directory of its own files.
    pub dir: PathBuf,
}

/// The servers that `tests/peers` knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Gct,
    GctStriped,
    Vsftpd,
    Pureftpd,
}

impl Peer {
    /// Starts one over a directory of its own below `scratch`.
    pub fn start(kind: Kind, scratch: &Path) -> Option<Peer> {
        let script = match kind {
            Kind::Gct => "gct-up",
            Kind::GctStriped => "gct-striped-up",
            Kind::Vsftpd => "vsftpd-up",
            Kind::Pureftpd => "pureftpd-up",
        };
        Self::start_by(script, scratch, &[])
    }

    /// Starts what a script of `tests/peers` starts, with options of the server.
    pub fn start_by(script: &str, scratch: &Path, options: &[&str]) -> Option<Peer> {
        let dir = scratch.join(format!("{script}-{}", next()));
        let output = Command::new(scripts().join(script))
            .arg("--owner")
            .arg(std::process::id().to_string())
            .arg(&dir)
            .arg("--")
            .args(options)
            .stdin(Stdio::null())
            .output()
            .expect("tests/peers is beside the crates");
        let told = String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(SKIP) {
            skip(told.trim());
            return None;
        }
        assert!(output.status.success(), "{script}: {told}");
        let line: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("one JSON line");
        let text = |key: &str| PathBuf::from(line[key].as_str().expect(key));
        Some(Peer {
            port: line["port"].as_u64().expect("port") as u16,
            root: text("root"),
            r#where: text("where"),
            dir,
        })
    }

    /// The name that the peer has for a path below its writable directory, with a leading slash.
    pub fn name(&self, path: &str) -> String {
        let below = self
            .r#where
            .strip_prefix(&self.root)
            .expect("where is below root");
        let whole = Path::new("/").join(below).join(path);
        whole.to_str().expect("test paths are UTF-8").to_owned()
    }

    /// The URL of a path below its writable directory.
    pub fn url(&self, path: &str) -> String {
        format!("ftp://127.0.0.1:{}{}", self.port, self.name(path))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = Command::new(scripts().join("down"))
            .arg(&self.dir)
            .stdin(Stdio::null())
            .status();
    }
}

/// Tells whether a program is installed; says that the test is skipped if it is not.
pub fn have(program: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
    if !found {
        skip(&format!("{program} is missing (tests/peers/install)"));
    }
    found
}

/// Runs a program for at most `seconds` and returns what it said. Ends it when the time is up.
pub fn run<I, S>(seconds: u32, program: &str, args: I) -> Said
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new("timeout");
    command.args(["--kill-after=2", &seconds.to_string(), program]);
    command.args(args).stdin(Stdio::null());
    Said::of(&mut command)
}

/// The status and output of a program.
#[derive(Debug)]
pub struct Said {
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Said {
    pub fn of(command: &mut Command) -> Said {
        let output = command.output().expect("the program starts");
        Said {
            status: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Panics with everything that was said unless the program succeeded.
    #[track_caller]
    pub fn ok(self) -> Said {
        assert_eq!(self.status, Some(0), "{self}");
        self
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stdout = String::from_utf8_lossy(&self.stdout);
        write!(
            f,
            "status {:?}\n--- stdout\n{stdout}\n--- stderr\n{}",
            self.status, self.stderr
        )
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers")
}

fn next() -> u32 {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Exit status of a script whose peer cannot run here.
const SKIP: i32 = 77;
