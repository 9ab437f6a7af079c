//! A line for each transfer in the state directory: what, whence, whither, how long.
//!
//! For the person who asks on Monday what the weekend did.

use crate::units;
use godwit_store::{Journal, engine::Outcome};
use godwit_sys::why;
use serde_json::json;
use std::{
    env, fs,
    io::{BufWriter, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The open log; without a home to write to, none.
#[derive(Default)]
pub(crate) struct Record(Option<BufWriter<Journal>>);

impl Record {
    /// Opens the log of this user. A log that cannot be written stops no transfer.
    pub(crate) fn open() -> Self {
        let opened = state_directory().map(|directory| Journal::open(&directory));
        match opened {
            Some(Ok(journal)) => Self(Some(BufWriter::new(journal))),
            Some(Err(error)) => {
                tracing::warn!(error = why(&error), "transfers are not recorded");
                Self(None)
            }
            None => Self(None),
        }
    }

    /// Notes what was copied.
    pub(crate) fn done(&mut self, outcome: &Outcome) {
        self.note(&json!({
            "when": units::instant(now()),
            "status": "ok",
            "source": outcome.source.to_string(),
            "target": outcome.target.to_string(),
            "bytes": outcome.bytes,
            "resumed_bytes": outcome.resumed_bytes,
            "seconds": outcome.seconds,
            "streams": outcome.tuned.streams,
            "tuning": crate::progress::tuning(&outcome.tuned),
            "faults": outcome.faults,
            "in_place": outcome.in_place,
            "verified": crate::progress::verified(&outcome.verified),
            "digest": outcome.digest.as_ref().map(ToString::to_string),
        }));
    }

    /// Notes what could not be copied.
    pub(crate) fn failed(&mut self, source: &str, target: &str, why: &str) {
        self.note(&json!({
            "when": units::instant(now()),
            "status": "error",
            "source": source,
            "target": target,
            "message": why,
        }));
    }

    /// Sends on what is still held back.
    pub(crate) fn flush(&mut self) {
        if let Some(log) = &mut self.0
            && log.flush().is_err()
        {
            self.0 = None;
        }
    }

    fn note(&mut self, line: &serde_json::Value) {
        if let Some(log) = &mut self.0
            && writeln!(log, "{line}").is_err()
        {
            self.0 = None; // the disk is full: transfers matter more
        }
    }
}

/// Returns where this person's node has its key, and knows others by theirs.
pub(crate) fn home() -> Option<godwit_trust::Home> {
    let configured = crate::verbs::config::state_of_node().filter(|state| is_for_us(state));
    let directory = configured.or_else(state_directory);
    directory.map(|directory| godwit_trust::Home::at(&directory))
}

/// The state of a node that somebody else runs is not ours to read; root's is whoever's root says.
fn is_for_us(state: &Path) -> bool {
    let us = godwit_sys::user_id();
    match fs::metadata(state) {
        Ok(meta) => us == 0 || meta.uid() == us,
        Err(_) => false,
    }
}

/// Returns `$XDG_STATE_HOME/godwit`, or what stands for it.
pub(crate) fn state_directory() -> Option<PathBuf> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local/state")))
        .map(|state| state.join("godwit"))
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
