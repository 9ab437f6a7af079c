//! The servers of this account (`godwit node`): each has a locked file in its state as long as it lives.

use crate::config;
use serde_json::Value;
use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process,
};

/// The file of a server that lives.
pub(super) struct AnnouncedServer {
    path: PathBuf,
    _locked: File,
}

/// Writes the addresses of this process to its file.
pub(super) fn announce(state: Option<&Path>, told: &Value) -> io::Result<AnnouncedServer> {
    let state = state.map(Path::to_owned).or_else(config::state_directory);
    let state = state.ok_or(io::ErrorKind::NotFound)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&state)?;
    for (path, _) in files(&state).filter(|(path, pid)| is_stale(path, *pid)) {
        fs::remove_file(path)?;
    }
    let path = state.join(format!("{BEGIN}{}{END}", process::id()));
    let mut open = OpenOptions::new();
    let open = open.write(true).create(true).truncate(true).mode(0o600);
    let mut file = open.open(&path)?;
    file.try_lock()?;
    write!(file, "{told}")?;
    Ok(AnnouncedServer {
        path,
        _locked: file,
    })
}

impl Drop for AnnouncedServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the announcements of the servers with this state, with their units.
pub(super) fn running(state: Option<&Path>) -> Vec<Value> {
    let state = state.map(Path::to_owned).or_else(config::state_directory);
    let live = files(&state.unwrap_or_default()).filter_map(|(path, pid)| {
        let told = is_locked(&path).then(|| fs::read(&path).ok())??;
        let mut told: Value = serde_json::from_slice(&told).ok()?;
        told["unit"] = unit_of(pid).into();
        Some(told)
    });
    live.collect()
}

fn files(state: &Path) -> impl Iterator<Item = (PathBuf, u32)> + use<> {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let pid = name.strip_prefix(BEGIN)?.strip_suffix(END)?.parse().ok()?;
        Some((entry.path(), pid))
    })
}

fn is_locked(path: &Path) -> bool {
    let file = File::open(path);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Another machine may use the same state: its servers have a lock and no process here.
fn is_stale(path: &Path, pid: u32) -> bool {
    !is_locked(path) && !Path::new("/proc").join(pid.to_string()).exists()
}

/// Returns the unit of systemd that `godwit node install` made for a process.
fn unit_of(pid: u32) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let unit = groups.lines().next()?.rsplit('/').next()?;
    (unit.starts_with("godwit") && unit.ends_with(".service")).then(|| unit.into())
}

const BEGIN: &str = "server-";
const END: &str = ".json";
