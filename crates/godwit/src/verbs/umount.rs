//! `godwit umount`: the end of `godwit mount`.

use super::{
    mount::{NEXT_LOST, lost_list, process_of, session_of},
    mounted,
};
use crate::{
    client,
    out::{CliError, Facts, Run, Screen, facts},
    units,
};
use clap::Args;
use godwit_store::Error;
use godwit_sys::{ended_within, mounted_from, unmount, why};
use godwit_wire::local::{Request, request::Selector};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// End a mount of files of other machines
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit umount far
  godwit umount --push --timeout 10m far

What programs wrote there is safe on this machine when this ends, with --push at its servers.
fusermount3 -u DIR ends a mount, too, and waits for nothing.

Exit status: 0; 1 a program uses it; 2 it is no mount of godwit; 5 not delivered within the time;
75 a file is not kept, since the node of this machine ended while it was written.")]
pub(crate) struct UmountArgs {
    /// Wait until all that was written there is delivered
    #[arg(long)]
    push: bool,
    /// Give up waiting after so long (30, 5m) [default: never]
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl UmountArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let wanted = format!("unmount {}", self.directory.display());
        let failed = |cause| CliError::store(&*wanted, Error::io(&self.directory, cause));
        // A mount whose process is gone cannot be looked at.
        let directory = self.directory.canonicalize();
        let directory = directory.or_else(|_| std::path::absolute(&self.directory));
        let directory = directory.map_err(failed)?;
        let source = mounted_from(&directory).map_err(failed)?;
        let process = source.and_then(|source| process_of(&source.to_string_lossy()));
        let Some(process) = process else {
            let fact = "it is no mount of godwit";
            return Err(CliError::asked(wanted, fact).next("grep godwit# /proc/mounts"));
        };
        take_off(&directory).map_err(|cause| {
            CliError::found(&*wanted, why(&cause).to_string(), 1).next(format!(
                "fuser -vm {} shows what uses it",
                directory.display()
            ))
        })?;
        let patience = self.timeout.unwrap_or(PATIENCE);
        if !ended_within(process, patience).map_err(failed)? {
            let fact = format!("process {process}, which served it, does not end");
            return Err(CliError::found(wanted, fact, 5));
        }
        let lost_list = lost_list(process)?;
        let lost = fs::read_to_string(&lost_list).ok();
        let _ = fs::remove_file(&lost_list);
        let kept = self.keep(&directory, screen);
        match lost {
            None => kept,
            Some(fact) => {
                if let Err(trouble) = kept {
                    screen.trouble(&trouble);
                }
                Err(CliError::found(wanted, fact, mounted::LOST).next(NEXT_LOST))
            }
        }
    }

    /// Waits for the writes below the mount that are kept here.
    fn keep(&self, directory: &Path, screen: &Screen) -> Run<Facts> {
        let Some(mut here) = client::there_if_pending()? else {
            return Ok(Facts::new());
        };
        let whose = Selector {
            session: Some(session_of(directory)),
            timeout_ms: client::ms(self.timeout),
            ..Selector::default()
        };
        let ask = match self.push {
            true => Request::Push(whose),
            false => Request::Commit(whose),
        };
        let done = client::done(screen, &mut here, ask)?;
        Ok(facts([
            ("files", done.files.into()),
            ("bytes", done.bytes.into()),
        ]))
    }
}

/// Takes a mount off; where that is for root alone, by the program for others.
fn take_off(directory: &Path) -> io::Result<()> {
    match unmount(directory) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mut command = Command::new("fusermount3");
            let ended = command
                .arg("-u")
                .arg(directory)
                .stdin(Stdio::null())
                .output()?;
            match ended.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(
                    String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
                )),
            }
        }
        done => done,
    }
}

/// How long a process may take to hand in its writes.
const PATIENCE: Duration = Duration::from_secs(60);
