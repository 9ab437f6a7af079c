//! Starts the node if none listens.
//!
//! Of many programs that need the node at once, the one that gets the lock beside the socket starts
//! it. The others wait for the lock, which the kernel frees if its holder is killed, and then find
//! the node. No program polls: closing the lock is an event of inotify(7), and the node reports on
//! a pipe that it listens.

use crate::{Kind, NodePlace, Refusal, Result};
use godwit_core::Fault;
use godwit_sys::{Closes, Wake, start_detached, try_lock, wait_readable, why};
use godwit_wire::local::request::Hello;
use std::{
    env,
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions},
    io::{self, PipeReader, Read, Seek, SeekFrom},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// A lock of a file, let go when it is dropped, or when this process ends however it may.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Tells whether it is of the file that has this name now: others may have removed the one that was locked.
    pub fn is_of(&self, path: &Path) -> bool {
        let same = |there: Metadata| {
            let ours = self.0.metadata()?;
            Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        fs::metadata(path).and_then(same).is_ok_and(|is| is)
    }
}

/// Locks a file, which is made if it does not exist; `None` if another process has the lock until
/// `deadline`.
pub fn lock_within(path: &Path, deadline: Instant) -> io::Result<Option<Lock>> {
    let open = || {
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
    };
    let file = open()?;
    if try_lock(&file)? {
        return Ok(Some(Lock(file)));
    }
    // A close by the present holder is not missed, since the watch begins before the next try.
    let (Ok(closes), Ok(wake)) = (Closes::new(), Wake::new()) else {
        // There are too many watches of this user already: the kernel wakes us, if later than `deadline`.
        file.lock()?;
        return Ok(Some(Lock(file)));
    };
    closes.add(path)?;
    loop {
        if try_lock(&file)? {
            return Ok(Some(Lock(file)));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        closes.wait(wake.as_fd(), left)?;
    }
}

/// Result of starting a node.
pub(crate) enum Started {
    /// The node listens.
    Listens,
    /// The node ended first, without a reason: it may have been killed, and the next one may live.
    Ended(Refusal),
}

/// Starts the node of that place and waits until it listens. The caller has the lock.
pub(crate) fn start(
    place: &NodePlace,
    hello: &Hello,
    _starting: &Lock,
    deadline: Instant,
) -> Result<Started> {
    place.prepare()?;
    let path = place.log();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path);
    let log = log.map_err(|error| failed(format!("{}: {}", path.display(), why(&error))))?;
    let begin = log.metadata().map_or(0, |meta| meta.len());
    let program = program();
    let begun = begin_at(place, hello, &program, &log);
    let mut said = begun.map_err(|error| {
        let words = format!("{}: {}", Path::new(&program).display(), why(&error));
        failed(words).next("name the program in GODWIT_BIN, or put it in PATH")
    })?;
    let hint = format!("see {}", path.display());
    match first_line(&mut said, deadline) {
        Ok(Some(line)) => match Refusal::read(&line) {
            Some(refusal) => Err(refusal),
            None if line.is_empty() => {
                let refusal = match last_line(&path, begin) {
                    Some(words) => failed(words),
                    None => failed("it ended at once".into()).waiting(Fault::Passing),
                };
                Ok(Started::Ended(refusal.next(hint)))
            }
            None => Ok(Started::Listens),
        },
        Ok(None) => Err(Refusal::new(Kind::Late, WANTED, "it does not listen yet")
            .waiting(Fault::Passing)
            .next(hint)),
        Err(error) => Err(failed(why(&error).to_string()).next(hint)),
    }
}

/// Returns the first line, empty if the node ended; `None` if no line arrives until `deadline`.
fn first_line(said: &mut PipeReader, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let [has_spoken] = wait_readable([said.as_fd()], left)?;
        if !has_spoken {
            return Ok(None);
        }
        let mut buffer = [0; 4096];
        let came = said.read(&mut buffer)?;
        line.extend_from_slice(&buffer[..came]);
        if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            line.truncate(end);
            return Ok(Some(line));
        }
        if came == 0 || line.len() > LINE_BYTES_MAX {
            return Ok(Some(line));
        }
    }
}

fn begin_at(
    place: &NodePlace,
    hello: &Hello,
    program: &OsString,
    log: &File,
) -> io::Result<PipeReader> {
    let (said, saying) = io::pipe()?;
    let mut command = Command::new(program);
    command
        .args(["--json", "node", "--local", "--socket"])
        .arg(&place.socket)
        .arg("--state")
        .arg(&place.state)
        .env_remove("GODWIT_SESSION")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(saying)
        .stderr(log.try_clone()?);
    // The node is no rank of the program that starts it, and no program of a preloaded library.
    for (name, _) in env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if FOREIGN
            .iter()
            .any(|begin| bytes.starts_with(begin.as_bytes()))
        {
            command.env_remove(&name);
        }
    }
    if let Some(catalog) = &hello.catalog {
        command.env("GODWIT_CATALOG", catalog);
    }
    start_detached(&mut command)?;
    Ok(said)
}

/// The beginnings of variables that libraries and launchers of a program set for that program alone.
const FOREIGN: [&str; 6] = ["LD_PRELOAD", "PMI_", "PMIX_", "OMPI_", "MPI", "HYDRA_"];

/// Returns the program to start: `GODWIT_BIN`; else this program, if it is godwit; else the one in
/// PATH.
fn program() -> OsString {
    let told = env::var_os("GODWIT_BIN").filter(|told| !told.is_empty());
    let ours = || {
        let path = env::current_exe().ok()?;
        (path.file_name()? == "godwit" && path.exists()).then(|| path.into_os_string())
    };
    told.or_else(ours).unwrap_or_else(|| "godwit".into())
}

/// Returns the last message of a log after the offset `begin`.
fn last_line(path: &Path, begin: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let end = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(begin.max(end.saturating_sub(TAIL_BYTES))))
        .ok()?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    // A message for a person has three lines: the wish, the reason, the next step.
    let mut lines = tail.lines().rev().map(str::trim);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with("hint: "))?;
    Some(line.to_owned())
}

fn failed(because: String) -> Refusal {
    Refusal::new(Kind::NoNode, WANTED, because)
}

const WANTED: &str = "start the node of this machine";
const TAIL_BYTES: u64 = 4096;
const LINE_BYTES_MAX: usize = 64 << 10;

/// How long is waited until a node listens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Barrier, thread};

    #[test]
    fn released_lock_wakes_a_waiter() {
        let dir = env::temp_dir().join(format!("godwit-local-lock-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("lock");
        let soon = || Instant::now() + Duration::from_secs(20);
        let held = lock_within(&path, soon()).unwrap().unwrap();
        assert!(lock_within(&path, Instant::now()).unwrap().is_none());
        let begun = Barrier::new(9);
        thread::scope(|scope| {
            let wait = || {
                begun.wait();
                lock_within(&path, soon()).unwrap().is_some()
            };
            let waiting: Vec<_> = (0..8).map(|_| scope.spawn(wait)).collect();
            begun.wait();
            thread::sleep(Duration::from_millis(100)); // no event tells of a waiter
            let let_go = Instant::now();
            drop(held);
            for waiter in waiting {
                assert!(waiter.join().unwrap());
            }
            let took = let_go.elapsed();
            assert!(
                took < Duration::from_secs(10),
                "no waiter was woken for {took:?}"
            );
        });
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn last_log_line_is_the_reason() {
        let path = env::temp_dir().join(format!("godwit-local-log-{}", std::process::id()));
        fs::write(&path, "before\nwanted\n  the disk is full\nhint: do\n\n").unwrap();
        assert_eq!(last_line(&path, 7).as_deref(), Some("the disk is full"));
        assert_eq!(last_line(&path, 60), None);
        fs::remove_file(&path).unwrap();
    }
}
