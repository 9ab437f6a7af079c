//! A farm of nodes on this machine, and a shell beside it.

use super::{Said, Scratch, as_prepared, godwit};
use std::process::{Command, Stdio};

/// A farm that ends with the test.
pub struct Farm {
    pub scratch: Scratch,
}

impl Farm {
    pub fn new(nodes: u16) -> Self {
        Self::with("", &format!("--nodes {nodes}"))
    }

    /// Starts one with variables before the command and options behind it.
    pub fn with(before: &str, options: &str) -> Self {
        let farm = Self {
            scratch: Scratch::new(),
        };
        farm.say(&format!("{before} godwit farm demo --dir farm {options}"));
        farm
    }

    /// Runs a line of a shell, as a user of n1 once there is one.
    pub fn shell(&self, line: &str) -> Said {
        let text = format!("set -o pipefail; [ ! -e farm/n1/env ] || . farm/n1/env; {line}");
        let mut command = as_prepared(Command::new("timeout"), &godwit());
        command.args(["100", "bash", "-c", &text]);
        let ours = std::path::Path::new(env!("CARGO_BIN_EXE_godwit"));
        let path = std::env::var("PATH").unwrap();
        let above = ours.parent().unwrap().display();
        command.env("PATH", format!("{above}:{path}"));
        command
            .current_dir(self.scratch.path())
            .stdin(Stdio::null());
        Said::of(&mut command)
    }

    #[track_caller]
    pub fn say(&self, line: &str) -> String {
        let said = self.shell(line);
        assert_eq!(said.status, Some(0), "{line}: {said}");
        String::from_utf8(said.stdout).unwrap()
    }

    #[track_caller]
    pub fn refused(&self, line: &str, status: i32) -> String {
        let said = self.shell(line);
        assert_eq!(said.status, Some(status), "{line}: {said}");
        said.stderr
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        self.shell(&format!("{END_USERS}; godwit farm demo --stop --dir farm"));
    }
}

/// Ends the local nodes that commands of users of a farm have started.
pub const END_USERS: &str =
    "for env in farm/*/env; do [ ! -e $env ] || (. $env; godwit node stop || true); done";
