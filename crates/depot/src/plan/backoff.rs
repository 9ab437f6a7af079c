//! The one table of servers that are away, and the pauses until they are tried again.

use crate::{Error, Rules, error::is_unknown_host, plan::Plan};
use godwit_core::Fault;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Servers and directories that are tried again later.
#[derive(Default)]
pub(crate) struct Backoff {
    /// Servers that could not be reached, by their addresses.
    pub servers: HashMap<String, Away>,
    /// When missing directories are looked for again, and the pause after that.
    pub directories: Option<(Instant, Duration)>,
}

/// A server that could not be reached.
pub(crate) struct Away {
    pub until: Instant,
    pause: Duration,
    pub why: Error,
}

impl Plan {
    /// Has missing directories be looked for soon, since an entry is on hold.
    pub(crate) fn look_for_directories_soon(&mut self, now: Instant) {
        self.backoff.directories = Some((now + ABSENT_MIN, ABSENT_MIN));
    }
}

/// Notes that a server cannot be reached, or is busy.
pub(crate) fn server_away(
    plan: &mut Plan,
    server: &str,
    error: Error,
    rules: &Rules,
    now: Instant,
) {
    let longest = rules.pause_max;
    let before = plan.backoff.servers.get(server).map(|away| away.pause * 2);
    let pause = match error.fault() {
        Fault::NotYet(wait) => wait.min(longest * 16),
        // The next answer is the same, most likely.
        _ if is_unknown_host(&error) => before.unwrap_or(PAUSE).min(longest * 16),
        _ => before.unwrap_or(PAUSE).min(longest),
    };
    let away = Away {
        until: now + pause,
        pause,
        why: error,
    };
    plan.backoff.servers.insert(server.into(), away);
}

/// Returns the pause of an entry after so many failures.
pub(crate) fn pause_after(tries: u32) -> Duration {
    (PAUSE * 2u32.pow(tries.min(8))).min(FULL_MAX)
}

/// The first pause before a server is tried again.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);

/// The first pause before a missing directory is looked for again; each later pause is longer.
const ABSENT_MIN: Duration = Duration::from_secs(1);
pub(crate) const ABSENT_MAX: Duration = Duration::from_secs(30);

/// The longest pause after failures.
const FULL_MAX: Duration = Duration::from_secs(30);
