//! Saying what is waited for when nothing else was said for two seconds.

use crate::screen::Screen;
use serde_json::json;
use std::{
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

/// Does some work. If it takes longer than two seconds, says `waits_for`, and again now and then.
pub(crate) fn broken_by<T>(screen: &Screen, waits_for: &str, work: impl FnOnce() -> T) -> T {
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut patience = SILENT_MAX;
            while is_over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                patience = AGAIN;
                match screen.json() {
                    // A reader that is gone is told nothing.
                    true => drop(screen.object(&json!({"event": "waiting", "for": waits_for}))),
                    false => screen.note(&format!("waiting for {waits_for}")),
                }
            }
        });
        let done = work();
        drop(over);
        done
    })
}

/// Nothing is silent for longer.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(10);
