//! The log, on standard error.

use crate::{options::LogFormat, screen::Tone};
use std::io::{IsTerminal, stderr};
use tracing_subscriber::{EnvFilter, fmt};

/// Starts the log at `level`, and more with each `-v`.
///
/// `GODWIT_LOG` says it in detail (`godwit_wire=trace`). URLs come without their
/// passwords because nothing shows those.
pub(crate) fn start(tone: Tone, level: &str) {
    let levels = ["error", "warn", "info", "debug", "trace"];
    let at = levels.iter().position(|&known| known == level).unwrap_or(1);
    let level = levels[(at + usize::from(tone.verbose)).min(levels.len() - 1)];
    let filter = std::env::var("GODWIT_LOG").unwrap_or_else(|_| level.into());
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let log = fmt()
        // On a disk that is full the log has gaps. To complain of that where the log goes would be a panic of the thread
        // that had something to say.
        .log_internal_errors(false)
        .with_writer(stderr)
        .with_ansi(!plain && stderr().is_terminal())
        .with_env_filter(EnvFilter::new(filter));
    match tone.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
