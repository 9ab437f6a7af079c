//! A machine: a home of its own, and perhaps a node with a door.

use super::{Scratch, godwit};
use godwit_trust::{Home, door::Fingerprint};
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// One machine: a home of its own, and perhaps a node.
#[derive(Debug)]
pub struct Machine<'a> {
    scratch: &'a Scratch,
    pub home: PathBuf,
    pub node: Option<Child>,
    /// Where its door is, once it was said.
    pub at: String,
}

impl<'a> Machine<'a> {
    pub fn new(scratch: &'a Scratch, name: &str) -> Self {
        let home = scratch.join(name);
        fs::create_dir_all(&home).unwrap();
        Self {
            scratch,
            home,
            node: None,
            at: String::new(),
        }
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = godwit();
        command
            .args(words)
            .current_dir(self.scratch.join(""))
            .env("HOME", &self.home)
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME");
        command
    }

    pub fn says(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    #[track_caller]
    pub fn well(&self, words: &[&str]) -> String {
        let said = self.says(words);
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8(said.stdout).unwrap()
    }

    /// Says something that is refused; returns the status, and why.
    #[track_caller]
    pub fn refused(&self, words: &[&str]) -> (i32, String) {
        let said = self.says(words);
        assert!(!said.status.success(), "{words:?}: {said:?}");
        let why = String::from_utf8(said.stderr).unwrap();
        (said.status.code().unwrap(), why)
    }

    /// Makes a node of this machine and starts it; returns where its door is.
    pub fn serve(&mut self, name: &str, export: &Path) -> String {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        self.at = free.local_addr().unwrap().to_string();
        drop(free);
        let export = export.to_str().unwrap();
        let at = self.at.clone();
        self.well(&["init", name, "--export", export, "--https", &at]);
        // Nobody carries the first one anywhere; it would keep the key that it tells.
        fs::remove_dir_all(self.state().join("invites")).unwrap();
        self.start(&[]);
        at
    }

    /// Starts its node, where it was.
    pub fn start(&mut self, environment: &[(&str, &str)]) {
        self.start_saying(&["node", "--ftp", "127.0.0.1:0", "--json"], environment);
    }

    /// The same by these words; returns what it says when it serves.
    pub fn start_saying(&mut self, words: &[&str], environment: &[(&str, &str)]) -> String {
        let log = File::create(self.log_file()).unwrap();
        let mut child = self
            .command(words)
            .env("GODWIT_LOG", "trace")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert!(line.contains("serving"), "{}", self.log());
        self.node = Some(child);
        line
    }

    /// kill -9, if it still lives.
    pub fn kill(&mut self) {
        if let Some(mut node) = self.node.take() {
            let _ = node.kill();
            let _ = node.wait();
        }
    }

    fn log_file(&self) -> PathBuf {
        self.home.with_extension("log")
    }

    /// Returns what its node has told so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Waits until its node has told that.
    #[track_caller]
    pub fn tells(&self, what: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.log().contains(what) {
            assert!(Instant::now() < until, "not told: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns a new invite.
    pub fn invite(&self) -> String {
        self.well(&["-q", "peers", "invite"]).trim().to_owned()
    }

    /// Returns where its key is, and whom it knows.
    pub fn state(&self) -> PathBuf {
        self.home.join(".local/state/godwit")
    }

    pub fn knows(&self) -> Home {
        Home::at(&self.state())
    }

    /// Returns what its key hashes to.
    pub fn key(&self) -> Fingerprint {
        Fingerprint::of_credential(&self.knows().key().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}
