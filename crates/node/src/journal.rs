//! A line for each transfer in the state directory, for those who ask later.
//!
//! Only with `--state`; the log tells the same to those who listen now. Lines are
//! held back until the session waits for its client: of many small files sent
//! ahead, one write tells all. Bounded: a full file becomes `transfers.jsonl.1`.

use godwit_sys::why;
use godwit_wire::time::Written;
use serde_json::{Value, json};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Where transfers are written down; without a state directory nowhere.
#[derive(Debug, Default)]
pub(crate) struct Journal(Option<Mutex<Pages>>);

#[derive(Debug)]
struct Pages {
    directory: PathBuf,
    file: File,
    file_bytes: u64,
    held: Vec<u8>,
}

/// How one transfer went.
pub(crate) struct Transfer<'a> {
    pub(crate) when: Duration,
    pub(crate) user: &'a str,
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) seconds: f64,
    pub(crate) streams: usize,
    /// Bytes that moved, or why they did not.
    pub(crate) came_to: Result<u64, &'a str>,
}

impl Journal {
    /// Opens the file below `state`, and makes the directory.
    pub(crate) fn open(state: Option<&Path>) -> io::Result<Self> {
        let Some(directory) = state else {
            return Ok(Self(None));
        };
        fs::create_dir_all(directory)?;
        Ok(Self(Some(Mutex::new(Pages::open(directory)?))))
    }

    /// Notes a transfer, if anything is noted.
    pub(crate) fn note<'a>(&self, transfer: impl FnOnce() -> Transfer<'a>) {
        if let Some(mut pages) = self.pages() {
            let line = transfer().to_json();
            // Writing to memory does not fail.
            let _ = writeln!(pages.held, "{line}");
            if pages.held.len() > HELD_MAX {
                pages.write();
            }
        }
    }

    /// Writes what is held back.
    pub(crate) fn flush(&self) {
        if let Some(mut pages) = self.pages()
            && !pages.held.is_empty()
        {
            pages.write();
        }
    }

    fn pages(&self) -> Option<MutexGuard<'_, Pages>> {
        let pages = self.0.as_ref()?;
        Some(pages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Pages {
    fn open(directory: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(name(directory))?;
        Ok(Self {
            directory: directory.into(),
            file_bytes: file.metadata()?.len(),
            file,
            held: Vec::new(),
        })
    }

    /// A full disk is told once for each batch, and stops no transfer.
    fn write(&mut self) {
        let held = std::mem::take(&mut self.held);
        if let Err(error) = self.try_write(&held) {
            tracing::warn!(error = why(&error), "transfers are not written down");
        }
    }

    fn try_write(&mut self, held: &[u8]) -> io::Result<()> {
        if self.file_bytes >= FILE_MAX {
            let full = name(&self.directory);
            fs::rename(&full, full.with_extension("jsonl.1"))?;
            *self = Self::open(&self.directory)?;
        }
        self.file_bytes += held.len() as u64;
        self.file.write_all(held)
    }
}

impl Transfer<'_> {
    fn to_json(&self) -> Value {
        let (bytes, message) = match self.came_to {
            Ok(bytes) => (Some(bytes), None),
            Err(message) => (None, Some(message)),
        };
        json!({
            "when": instant(self.when),
            "status": if message.is_none() { "ok" } else { "error" },
            "user": self.user,
            "source": self.source,
            "target": self.target,
            "bytes": bytes,
            "seconds": self.seconds,
            "streams": self.streams,
            "message": message,
        })
    }
}

fn name(directory: &Path) -> PathBuf {
    directory.join("transfers.jsonl")
}

/// RFC 3339, in UTC.
fn instant(at: Duration) -> String {
    let text = Written(Duration::from_secs(at.as_secs())).to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let date = [part(0, 4), part(4, 6), part(6, 8)].join("-");
    let time = [part(8, 10), part(10, 12), part(12, 14)].join(":");
    format!("{date}T{time}Z")
}

const HELD_MAX: usize = 64 << 10;
const FILE_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_as_programs_read_it() {
        assert_eq!(
            instant(Duration::from_millis(1_795_277_736_500)),
            "2026-11-21T16:15:36Z"
        );
    }
}
