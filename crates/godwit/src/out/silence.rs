//! Messages during a long wait: a verb is never silent for more than two seconds.

use crate::out::Screen;
use serde_json::json;
use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

/// Runs `work`. If it takes longer than two seconds, prints `waits_for`, and again now and then.
pub(crate) fn broken_by<T>(screen: &Screen, waits_for: &str, work: impl FnOnce() -> T) -> T {
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut patience = SILENT_MAX;
            while is_over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                patience = AGAIN;
                match screen.json() {
                    true => screen.event(&json!({"event": "waiting", "for": waits_for})),
                    false => screen.note(&format!("waiting for {waits_for}")),
                }
            }
        });
        let done = work();
        drop(over);
        done
    })
}

/// How long a verb may be silent.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(10);
