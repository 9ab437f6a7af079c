//! A machine: a home of its own, and perhaps a node with a door.

use super::{Node, Scratch, as_prepared, godwit, lasting_port, wait_until};
use godwit_trust::{Peer, PeersDir, door::Fingerprint};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

/// One machine: a home of its own, perhaps a network of its own, and perhaps a node.
#[derive(Debug)]
pub struct Machine<'a> {
    scratch: &'a Scratch,
    pub home: PathBuf,
    /// Its program; `None`: the one that is tested.
    program: Option<PathBuf>,
    /// Its namespace.
    net: Option<String>,
    pub node: Option<Node>,
    /// The address of its door, once it was reported.
    pub at: String,
}

impl<'a> Machine<'a> {
    pub fn new(scratch: &'a Scratch, name: &str) -> Self {
        Self {
            scratch,
            home: scratch.dir(name),
            program: None,
            net: None,
            node: None,
            at: String::new(),
        }
    }

    /// A node called lab, which serves `data` with one small file in it.
    pub fn lab(scratch: &'a Scratch) -> Self {
        scratch.file("data/f", 1000);
        let mut lab = Self::new(scratch, "a");
        lab.serve("lab", &scratch.join("data"));
        lab
    }

    /// A node called lab, and a laptop that has joined it.
    pub fn lab_and_laptop(scratch: &'a Scratch) -> (Self, Self) {
        let (lab, laptop) = (Self::lab(scratch), Self::new(scratch, "b"));
        lab.joined_by(&laptop, "laptop");
        (lab, laptop)
    }

    /// This machine with another program.
    pub fn with_program(self, program: Option<&Path>) -> Self {
        let program = program.map(Into::into);
        Self { program, ..self }
    }

    /// This machine in a namespace.
    pub fn within(self, net: String) -> Self {
        let net = Some(net);
        Self { net, ..self }
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut ours = godwit();
        if let Some(program) = &self.program {
            ours = as_prepared(Command::new(program), &ours);
        }
        if let Some(net) = &self.net {
            let mut inside = Command::new("ip");
            inside.args(["netns", "exec", net]).arg(ours.get_program());
            ours = as_prepared(inside, &ours);
        }
        ours.args(words).current_dir(self.scratch.path());
        ours.env("HOME", &self.home);
        ours
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

    /// Returns the last object of `--json`.
    #[track_caller]
    pub fn summary(&self, words: &[&str]) -> Value {
        serde_json::from_str(self.well(words).lines().last().unwrap()).unwrap()
    }

    /// Runs a command that is refused; returns the status and the message.
    #[track_caller]
    pub fn refused(&self, words: &[&str]) -> (i32, String) {
        let said = self.says(words);
        assert!(!said.status.success(), "{words:?}: {said:?}");
        let why = String::from_utf8(said.stderr).unwrap();
        (said.status.code().unwrap(), why)
    }

    /// Makes a node of this machine and starts it; returns where its door is.
    pub fn serve(&mut self, name: &str, export: &Path) -> String {
        self.init(name, export);
        self.start(&[]);
        self.at.clone()
    }

    /// Makes a node of this machine whose door is where nothing else is.
    pub fn init(&mut self, name: &str, export: &Path) {
        self.at = format!("127.0.0.1:{}", lasting_port());
        let export = export.to_str().unwrap();
        self.well(&["init", name, "--export", export, "--https", &self.at]);
        // The invite of `init` is not used, and would keep its key valid after a rotation.
        fs::remove_dir_all(self.state().join("invites")).unwrap();
    }

    /// Starts its node, where it was.
    pub fn start(&mut self, environment: &[(&str, &str)]) {
        self.start_saying(&["node", "--ftp", "127.0.0.1:0", "--json"], environment);
    }

    /// Starts its node with these words; returns its first line.
    pub fn start_saying(&mut self, words: &[&str], environment: &[(&str, &str)]) -> String {
        let mut node = self.command(words);
        node.env("GODWIT_LOG", "trace");
        node.envs(environment.iter().copied());
        let node = Node::spawn(node, &self.home);
        self.node.insert(node).said.clone()
    }

    /// kill -9, if it still lives.
    pub fn kill(&mut self) {
        drop(self.node.take());
    }

    /// Tells its node to stop, and waits until it has.
    #[track_caller]
    pub fn stop(&mut self) {
        let mut node = self.node.take().expect("it has a node");
        node.signal("TERM");
        assert!(node.ends_within(Duration::from_secs(20)), "{}", self.log());
    }

    /// Returns the log of its node.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.with_extension("log")).unwrap_or_default()
    }

    /// Waits until its node has logged that.
    #[track_caller]
    pub fn tells(&self, what: &str) {
        wait_until(what, || self.log().contains(what));
    }

    /// Returns a new invite.
    pub fn invite(&self) -> String {
        self.well(&["-q", "peers", "invite"]).trim().to_owned()
    }

    /// Has another machine join it.
    #[track_caller]
    pub fn joined_by(&self, other: &Self, name: &str) {
        other.well(&["join", &self.invite(), "--name", name]);
    }

    /// Returns the directory of its key, and its peers.
    pub fn state(&self) -> PathBuf {
        self.home.join(".local/state/godwit")
    }

    pub fn knows(&self) -> PeersDir {
        PeersDir::at(&self.state())
    }

    /// Returns its record of a peer of that name.
    pub fn pinned(&self, name: &str) -> Peer {
        self.knows().peer(name).unwrap().unwrap()
    }

    /// Returns the hash of its key.
    pub fn key(&self) -> Fingerprint {
        Fingerprint::of_credential(&self.knows().key().unwrap().unwrap()).unwrap()
    }
}
