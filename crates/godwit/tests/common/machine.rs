//! Machines that come to know each other: each has a home of its own, a program, and perhaps a node.

use super::{Scratch, godwit};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

pub struct Machine<'a> {
    scratch: &'a Scratch,
    name: &'static str,
    /// Its program; `None`: the one that is tested.
    program: Option<PathBuf>,
    node: Option<Child>,
    /// Where its door is.
    at: String,
}

impl<'a> Machine<'a> {
    pub fn new(scratch: &'a Scratch, name: &'static str, program: Option<&Path>) -> Self {
        scratch.dir(name);
        Self {
            scratch,
            name,
            program: program.map(Into::into),
            node: None,
            at: String::new(),
        }
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None => godwit(),
        };
        command
            .args(words)
            .current_dir(self.scratch.path())
            .env("HOME", self.scratch.join(self.name))
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null());
        command
    }

    pub fn says(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What it says of what must go well.
    pub fn well(&self, words: &[&str]) -> String {
        let said = self.says(words);
        assert!(said.status.success(), "{}: {words:?}: {said:?}", self.name);
        String::from_utf8(said.stdout).unwrap()
    }

    /// Makes a node of it that serves its directory `NAME/data`, and starts that.
    pub fn serve(&mut self, more: &[&str]) {
        let data = self.scratch.dir(format!("{}/data", self.name));
        let (data, nowhere) = (data.to_str().unwrap(), "127.0.0.1:9");
        let words = ["--https", "127.0.0.1:0", "--address", nowhere];
        self.well(&[&["init", self.name, "--export", data][..], &words].concat());
        let log = fs::File::create(self.scratch.join(format!("{}/log", self.name))).unwrap();
        let mut node =
            self.command(&[&["node", "--ftp", "127.0.0.1:0", "--json"][..], more].concat());
        node.env("GODWIT_LOG", "debug")
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = node.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        self.node = Some(child);
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        self.at = ready["https"][0].as_str().unwrap().into();
    }

    /// Has another machine join it.
    pub fn invite(&self, other: &Self) {
        let invite = self.well(&["-q", "peers", "invite"]);
        let invite = invite.trim().replace("127.0.0.1:9", &self.at);
        other.well(&["join", &invite, "--name", other.name]);
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.join(self.name).join(name)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap()
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if let Some(mut node) = self.node.take() {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}
