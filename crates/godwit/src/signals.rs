//! ^C and `kill`: the first time we stop in order, the second time at once.

use godwit_store::channel::Cancel;
use godwit_sys::why;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

/// The signal that came, if one did.
#[derive(Clone, Debug, Default)]
pub(crate) struct SignalStop(Arc<AtomicU8>);

impl SignalStop {
    /// From now on SIGINT and SIGTERM cancel `cancel`; where that cannot be
    /// arranged they end the program, as ever.
    pub(crate) fn watch(cancel: Cancel) -> Self {
        let stop = Self::default();
        let seen = stop.clone();
        match Signals::new([SIGINT, SIGTERM]) {
            Ok(mut signals) => {
                std::thread::spawn(move || {
                    for signal in signals.forever() {
                        seen.on(signal, &cancel);
                    }
                });
            }
            Err(error) => tracing::warn!(error = why(&error), "signals end the program at once"),
        }
        stop
    }

    /// Returns the exit status for the signal that came: 130 or 143.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&code| code != 0)
    }

    fn on(&self, signal: i32, cancel: &Cancel) {
        let code = if signal == SIGTERM { 143 } else { 130 };
        if self.0.swap(code, Ordering::Relaxed) != 0 {
            // The second signal: landed bytes are on disk anyway.
            std::process::exit(code.into());
        }
        cancel.cancel();
    }
}
