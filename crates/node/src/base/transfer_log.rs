//! A line for each transfer in the state directory, for those who ask later.
//!
//! Only with `--state`; the log tells the same to those who listen now. Lines are
//! held back until the session waits for its client: of many small files sent
//! ahead, one write tells all.

use godwit_sys::why;
use godwit_wire::time::Rfc3339;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

/// Where transfers are written down; without a state directory nowhere.
#[derive(Debug, Default)]
pub(crate) struct TransferLog(Option<Mutex<LogBuffer>>);

#[derive(Debug)]
struct LogBuffer {
    file: godwit_store::Journal,
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

impl TransferLog {
    /// Opens the file below `state`, and makes the directory.
    pub(crate) fn open(state: Option<&Path>) -> io::Result<Self> {
        let Some(directory) = state else {
            return Ok(Self(None));
        };
        let file = godwit_store::Journal::open(directory)?;
        let held = Vec::new();
        Ok(Self(Some(Mutex::new(LogBuffer { file, held }))))
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

    /// Writes the buffered lines.
    pub(crate) fn flush(&self) {
        if let Some(mut pages) = self.pages()
            && !pages.held.is_empty()
        {
            pages.write();
        }
    }

    fn pages(&self) -> Option<MutexGuard<'_, LogBuffer>> {
        let pages = self.0.as_ref()?;
        Some(pages.lock())
    }
}

impl LogBuffer {
    /// A full disk is logged once for each batch, and stops no transfer.
    fn write(&mut self) {
        let held = std::mem::take(&mut self.held);
        if let Err(error) = self.file.write_all(&held) {
            tracing::warn!(error = why(&error), "transfers are not written down");
        }
    }
}

impl Transfer<'_> {
    fn to_json(&self) -> Value {
        let (bytes, message) = match self.came_to {
            Ok(bytes) => (Some(bytes), None),
            Err(message) => (None, Some(message)),
        };
        json!({
            "when": Rfc3339(self.when).to_string(),
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

const HELD_MAX: usize = 64 << 10;
