//! `godwit mount`: files of other machines in a directory, for every program of this user.

use super::mounted;
use crate::{
    client,
    out::{CliError, Facts, Run, Screen, facts},
};
use clap::Args;
use godwit_mount::Mount as Served;
use godwit_store::Error;
use godwit_sys::{start_detached, why};
use serde_json::{Value, json};
use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Show files of other machines in a directory
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  mkdir far; godwit mount far; ls far/ftp:fermi.example/data
  godwit mount --foreground --wait forever far

Programs find files as DIR/[SCHEME:]HOST[:PORT]/PATH, and names of the catalog as DIR/grid/NAME.
What they write is kept here, and delivered though the link is down. godwit umount DIR ends it.
Only programs of this user see the files. Another user than root needs fusermount3 (package fuse3);
godwit run -- PROGRAM needs neither that nor a directory.

Exit status: 0 it is mounted; 1 it cannot be; 2 DIR is no directory, or mounted already.")]
pub(crate) struct MountArgs {
    /// Serve it in this process, until it is unmounted
    #[arg(long)]
    foreground: bool,
    /// Time to wait for a server to read from (or forever) [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = mounted::parse_wait)]
    wait: Option<Duration>,
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl MountArgs {
    pub(crate) fn run(self, screen: &'static Screen) -> Run<Facts> {
        let wanted = format!("mount {}", self.directory.display());
        let failed = |cause| CliError::store(&*wanted, Error::io(&self.directory, cause));
        let directory = self.directory.canonicalize().map_err(failed)?;
        if !directory.is_dir() {
            return Err(CliError::asked(wanted, "it is no directory").next("mkdir another"));
        }
        let source = godwit_sys::mounted_from(&directory).map_err(failed)?;
        if source.is_some_and(|source| process_of(&source.to_string_lossy()).is_some()) {
            let next = format!("godwit umount {}", directory.display());
            return Err(CliError::asked(wanted, "it is mounted already").next(next));
        }
        match self.foreground {
            true => self.serve(&wanted, &directory, screen),
            false => self.begin(&wanted, &directory),
        }
    }

    fn serve(&self, wanted: &str, directory: &Path, screen: &'static Screen) -> Run<Facts> {
        let wait = self.wait.unwrap_or(mounted::WAIT);
        let rules = mounted::rules(wait, session_of(directory), screen);
        let failed = |cause| CliError::store(wanted, Error::io(directory, cause));
        let mount = Served::new(rules).map_err(failed)?;
        mount.begin()?;
        let lost_list = lost_list(std::process::id())?;
        let _ = fs::remove_file(&lost_list); // of an earlier process of this number
        let told = || {
            if screen.json() {
                let _ = screen.object(&json!({"event": "mounted", "pid": std::process::id()}));
                let _ = screen.flush();
            }
        };
        let source = format!("{SOURCE}{}", std::process::id());
        let served = mount.serve_at(directory, &source, told);
        served.map_err(|cause| {
            let fact = format!("this system refuses it: {}", why(&cause));
            CliError::found(wanted, fact, 1).next(NEXT)
        })?;
        let lost = mount.lost();
        if let Some(fact) = mounted::lost_words(&lost) {
            fs::write(&lost_list, &fact).map_err(failed)?;
            return Err(CliError::found(wanted, fact, mounted::LOST).next(NEXT_LOST));
        }
        mount.keep(mounted::Promise::Commit.into())?;
        Ok(facts([("lost", lost.len().into())]))
    }

    /// Starts a process that serves the mount, and waits until it is mounted.
    fn begin(&self, wanted: &str, directory: &Path) -> Run<Facts> {
        let failed = |cause: io::Error| CliError::store(wanted, Error::io(directory, cause));
        let (said, saying) = io::pipe().map_err(failed)?;
        let mut command = Command::new(env::current_exe().map_err(failed)?);
        command.args(["--json", "mount", "--foreground"]);
        if let Some(wait) = self.wait {
            let text = match wait {
                Duration::MAX => "forever".to_owned(),
                wait => format!("{}ms", wait.as_millis()),
            };
            command.arg("--wait").arg(text);
        }
        command.arg("--").arg(directory).current_dir("/");
        command.stdin(Stdio::null()).stdout(saying).stderr(log());
        start_detached(&mut command).map_err(failed)?;
        drop(command); // and with it our end of the pipe
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).map_err(failed)?;
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        if told["event"] == "mounted" {
            return Ok(facts([("pid", told["pid"].clone())]));
        }
        let fact = told["message"].as_str().unwrap_or("it ended at once");
        let code = told["code"]
            .as_u64()
            .and_then(|code| u8::try_from(code).ok());
        let next = told["next"].as_str().unwrap_or(NEXT);
        Err(CliError::found(wanted, fact, code.unwrap_or(1)).next(next))
    }
}

/// Returns the path of the list of files that a mount could not keep.
pub(super) fn lost_list(process: u32) -> Run<PathBuf> {
    let state = client::place()?.state;
    Ok(state.join(format!("mount-{process}.lost")))
}

/// Returns the path of the log of a process without a terminal.
fn log() -> Stdio {
    let place = client::place().ok();
    let file = place.and_then(|place| {
        place.prepare().ok()?;
        let path = place.state.join("mount.log");
        OpenOptions::new().create(true).append(true).open(path).ok()
    });
    file.map_or_else(Stdio::null, Stdio::from)
}

/// Returns the session of writes below a directory.
pub(super) fn session_of(directory: &Path) -> String {
    format!("mount {}", directory.display())
}

/// Returns the process that serves a mount, by the source that the table of mounts has; `None`: it is no mount of ours.
pub(super) fn process_of(source: &str) -> Option<u32> {
    source.strip_prefix(SOURCE)?.parse().ok()
}

const SOURCE: &str = "godwit#";
pub(super) const NEXT_LOST: &str = "write them again: their targets are as they were";
const NEXT: &str =
    "see that /dev/fuse is there, and fusermount3; godwit run -- PROGRAM needs no fusermount3";
