//! The time, and the boot of this machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the seconds since the epoch.
pub(crate) fn now() -> u64 {
    crate::clock::since_epoch().as_secs()
}

/// Returns what tells this boot from all others.
pub(crate) fn boot() -> String {
    let number = u128::from_be_bytes(godwit_sys::boot_id());
    format!("{number:032x}")
}

pub(crate) fn since_epoch() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO)
}
