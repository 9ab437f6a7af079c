//! A machine whose programs go through a node of their own.

use super::{Machine as Peer, Said, Scratch, godwit, wait_until};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A machine of its own, as far as programs find their node.
pub struct Machine {
    pub scratch: Scratch,
    /// Of a machine that has joined another.
    pub home: Option<PathBuf>,
    pub socket: PathBuf,
    pub state: PathBuf,
}

impl Machine {
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let (socket, state) = (scratch.join("run/socket"), scratch.join("state"));
        Self {
            scratch,
            home: None,
            socket,
            state,
        }
    }

    /// A machine that has joined a node called lab, with that node.
    pub fn of(lab: &Scratch) -> (Self, Peer<'_>) {
        let (lab, laptop) = Peer::lab_and_laptop(lab);
        let mut machine = Self::new();
        machine.home = Some(laptop.home.clone());
        (machine, lab)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = godwit();
        for name in JOB {
            command.env_remove(name);
        }
        command
            .env("GODWIT_SOCKET", &self.socket)
            .env("GODWIT_STATE", &self.state)
            .env("GODWIT_LOCAL_IDLE", "20s")
            .env_remove("GODWIT_SESSION")
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .args(args);
        if let Some(home) = &self.home {
            command.env("HOME", home);
        }
        command
    }

    pub fn says(&self, args: &[&str]) -> Said {
        Said::of(&mut self.command(args))
    }

    pub fn json(&self, args: &[&str]) -> (Option<i32>, Vec<Value>) {
        let mut all = vec!["--json"];
        all.extend(args);
        let said = self.says(&all);
        let text = String::from_utf8(said.stdout.clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (said.status, lines.collect())
    }

    /// The process of the node, if one listens.
    pub fn process(&self) -> Option<u64> {
        let (status, lines) = self.json(&["node", "status"]);
        assert_eq!(status, Some(0), "{lines:?}");
        lines.last()?["pid"].as_u64()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.state.join("node.log")).unwrap_or_default()
    }

    pub fn kill(&self) {
        let process = self.process().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args(["-9", &process])
                .status()
                .unwrap()
                .success()
        );
        let gone = Path::new("/proc").join(&process);
        wait_until("it is killed", || {
            // Its new parent may take a while to notice.
            let stat = fs::read_to_string(gone.join("stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let stopped = self.says(&["node", "stop"]);
        if stopped.status != Some(0) && !std::thread::panicking() {
            panic!("{stopped}\n{}", self.log());
        }
    }
}

const JOB: [&str; 8] = [
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_PROCID",
    "PBS_JOBID",
    "LSB_JOBID",
    "JOB_ID",
    "_CONDOR_JOB_AD",
];
