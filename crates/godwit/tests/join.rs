//! Two machines come to know each other in one line, and move files by their keys alone.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Scratch, godwit};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

/// One machine: a home of its own, and perhaps a node.
struct Machine<'a> {
    scratch: &'a Scratch,
    home: std::path::PathBuf,
    node: Option<Child>,
}

impl<'a> Machine<'a> {
    fn new(scratch: &'a Scratch, name: &str) -> Self {
        let home = scratch.join(name);
        fs::create_dir_all(&home).unwrap();
        Self {
            scratch,
            home,
            node: None,
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = godwit();
        command
            .args(words)
            .current_dir(self.scratch.join(""))
            .env("HOME", &self.home)
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME");
        command
    }

    fn says(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn well(&self, words: &[&str]) -> String {
        let said = self.says(words);
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8(said.stdout).unwrap()
    }

    /// Makes a node of this machine and starts it; returns where its door is.
    fn serve(&mut self, name: &str, export: &Path) -> String {
        let export = export.to_str().unwrap();
        self.well(&[
            "init",
            name,
            "--export",
            export,
            "--https",
            "127.0.0.1:0",
            "--address",
            "127.0.0.1:9",
        ]);
        let mut child = self
            .command(&["node", "--ftp", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        self.node = Some(child);
        let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
        ready["https"][0].as_str().unwrap().to_owned()
    }

    /// Returns a new invite, to where the node really is.
    fn invite(&self, at: &str) -> String {
        let invite = self.well(&["-q", "peers", "invite"]);
        invite.trim().replace("127.0.0.1:9", at)
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

#[test]
fn files_move_after_one_line_on_each_side() {
    let scratch = Scratch::new();
    let file = scratch.file("data/f", 3_000_000);
    let (mut lab, laptop) = (Machine::new(&scratch, "a"), Machine::new(&scratch, "b"));
    let at = lab.serve("lab", &scratch.join("data"));
    let said = laptop.well(&["join", &lab.invite(&at), "--name", "laptop"]);
    assert_eq!(said, "joined lab as laptop: godwit ls godwit://lab/\n");
    assert!(laptop.well(&["ls", "godwit://lab/"]).contains('f'));
    laptop.well(&["cp", "godwit://lab/f", "here"]);
    assert_eq!(
        fs::read(scratch.join("here")).unwrap(),
        fs::read(&file).unwrap()
    );
    let copied = laptop.says(&["cp", "--json", "here", "godwit://lab/there"]);
    let text = String::from_utf8(copied.stdout).unwrap();
    let summary: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(summary["verified"], "verified blake3");
    assert_eq!(
        fs::read(scratch.join("data/there")).unwrap(),
        fs::read(&file).unwrap()
    );
    assert!(lab.well(&["peers"]).starts_with("laptop "));
}

#[test]
fn an_invite_is_good_once_and_a_key_that_is_another_is_nobodys() {
    let scratch = Scratch::new();
    scratch.file("data/f", 10);
    let mut lab = Machine::new(&scratch, "a");
    let (laptop, other) = (Machine::new(&scratch, "b"), Machine::new(&scratch, "c"));
    let at = lab.serve("lab", &scratch.join("data"));
    let invite = lab.invite(&at);
    // Somebody stands in between: another key than the invite says.
    let (head, tail) = invite.rsplit_once('/').unwrap();
    let wrong = format!("{}{}/{tail}", &head[..head.len() - 4], "0000");
    let refused = laptop.says(&["join", &wrong]);
    assert_eq!(refused.status.code(), Some(13), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("key"));
    laptop.well(&["join", &invite]);
    let again = other.says(&["join", &invite]);
    assert_eq!(again.status.code(), Some(13), "{again:?}");
    let why = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(why.contains("it was used already"), "{why}");
    // Who did not join may do nothing, though they know where the door is.
    let stranger = other.says(&["ls", &format!("godwit://{at}/")]);
    assert_eq!(stranger.status.code(), Some(13), "{stranger:?}");
}

#[test]
fn who_left_is_a_stranger() {
    let scratch = Scratch::new();
    scratch.file("data/f", 10);
    let (mut lab, laptop) = (Machine::new(&scratch, "a"), Machine::new(&scratch, "b"));
    let at = lab.serve("lab", &scratch.join("data"));
    laptop.well(&["join", &lab.invite(&at), "--name", "laptop"]);
    let known = scratch.join("b/.local/state/godwit/peers/lab.toml");
    let kept = fs::read(&known).unwrap();
    laptop.well(&["leave", "lab"]);
    assert_eq!(lab.well(&["peers"]), "");
    assert!(!known.exists());
    // As if it had not forgotten: the other side has.
    fs::write(&known, kept).unwrap();
    let refused = laptop.says(&["ls", "godwit://lab/"]);
    assert_eq!(refused.status.code(), Some(13), "{refused:?}");
}
