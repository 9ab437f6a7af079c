//! The log of transfers in the state directory: a line for each, with source, target and time.

use crate::{config, units};
use godwit_store::{Journal, Tuned, Verified, engine::CopyOutcome};
use godwit_sys::why;
use serde_json::json;
use std::{
    io::{BufWriter, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The open log; `None` without a home to write to.
#[derive(Default)]
pub(crate) struct TransferLog(Option<BufWriter<Journal>>);

impl TransferLog {
    /// Opens the log of this user. A log that cannot be written stops no transfer.
    pub(crate) fn open() -> Self {
        let opened = config::state_directory().map(|directory| Journal::open(&directory));
        match opened {
            Some(Ok(journal)) => Self(Some(BufWriter::new(journal))),
            Some(Err(error)) => {
                tracing::warn!(error = why(&error), "transfers are not recorded");
                Self(None)
            }
            None => Self(None),
        }
    }

    /// Records a copy.
    pub(crate) fn done(&mut self, outcome: &CopyOutcome) {
        self.note(&json!({
            "when": units::instant(now()),
            "status": "ok",
            "source": outcome.source.to_string(),
            "target": outcome.target.to_string(),
            "bytes": outcome.bytes,
            "resumed_bytes": outcome.resumed_bytes,
            "seconds": outcome.seconds,
            "streams": outcome.tuned.streams,
            "tuning": tuning(&outcome.tuned),
            "faults": outcome.faults,
            "in_place": outcome.in_place,
            "verified": verified(&outcome.verified),
            "digest": outcome.digest.as_ref().map(ToString::to_string),
        }));
    }

    /// Records a copy that failed.
    pub(crate) fn failed(&mut self, source: &str, target: &str, why: &str) {
        self.note(&json!({
            "when": units::instant(now()),
            "status": "error",
            "source": source,
            "target": target,
            "message": why,
        }));
    }

    /// Flushes the log.
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

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Says how strongly a copy is known to equal its source.
pub(crate) fn verified(verified: &Verified) -> String {
    match verified {
        Verified::By(algorithm) => format!("verified {algorithm}"),
        Verified::SizeOnly => "size only".into(),
    }
}

/// Returns the tuning for programs; `null`: nothing was measured.
pub(crate) fn tuning(tuned: &Tuned) -> serde_json::Value {
    let measured = tuned.rate > 0.0;
    json!({
        "streams": tuned.streams,
        "why": tuned.why.word(),
        "bytes_per_second": measured.then_some(tuned.rate as u64),
        "round_trip_seconds": measured.then_some(tuned.round_trip.as_secs_f64()),
        "lost": measured.then_some(tuned.lost),
    })
}
