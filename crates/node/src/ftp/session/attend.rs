//! Listening to the client while another thread works for it.

use super::FtpSession;
use godwit_store::{Error, Result, channel::Watch};
use godwit_sys::{Wake, wait_readable};
use godwit_wire::server::{self as wire, Urgent};
use std::{
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

impl FtpSession {
    /// Runs `work` in a thread of its own, and `tick` now and then in this one.
    /// `ABOR`, the loss of the control connection and the end of the node cancel
    /// `watch`; `STAT` is answered; everything else waits in the queue.
    pub(super) fn attended<T: Send>(
        &mut self,
        watch: &Watch,
        every: Duration,
        tick: &mut dyn FnMut(&mut wire::Session),
        work: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let over = std::mem::replace(&mut self.over, Wake::new().map_err(no_thread)?);
        let result = thread::scope(|scope| {
            let raise = Raise(&over);
            let worker = thread::Builder::new()
                .name("transfer".into())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || {
                    let _raise = raise;
                    work()
                })
                .map_err(no_thread)?;
            self.attend(&over, watch, every, tick);
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        over.lower();
        self.over = over;
        result
    }

    fn attend(
        &mut self,
        over: &Wake,
        watch: &Watch,
        every: Duration,
        tick: &mut dyn FnMut(&mut wire::Session),
    ) {
        let mut next_tick = Instant::now() + every;
        if self.machine.wants_abort() {
            watch.cancel(); // heard while the data connections came about
        }
        loop {
            if self.flush_replies().is_err() {
                self.gone = true;
            }
            let ending = self.shared.stop.is_ending();
            if self.gone || ending {
                watch.cancel();
            }
            let listening = !self.gone && self.machine.wants_bytes();
            let control = if listening {
                self.control.as_fd()
            } else {
                over.as_fd()
            };
            let stop = if ending {
                over.as_fd()
            } else {
                self.shared.stop.ending()
            };
            let patience = next_tick.saturating_duration_since(Instant::now());
            let Ok([came, done, _]) = wait_readable([control, over.as_fd(), stop], patience) else {
                return; // the worker ends by its own deadlines
            };
            if came && listening {
                self.hear_during(watch);
            }
            if done {
                return;
            }
            if Instant::now() >= next_tick {
                tick(&mut self.machine);
                next_tick = Instant::now() + every;
            }
        }
    }

    fn hear_during(&mut self, watch: &Watch) {
        if self.hear().is_err() {
            self.gone = true;
        }
        match self.machine.urgent() {
            Some(Urgent::Abort) => watch.cancel(),
            Some(Urgent::Status) => self.machine.on_status(watch.moved_bytes()),
            None => {}
        }
    }

    /// Tells whether the control connection outlives the end of data: a client
    /// that was killed loses both at once. A transfer that took long may wait a little longer.
    pub(super) fn is_control_alive(&mut self, watch: &Watch) -> bool {
        let apart = match godwit_sys::traffic(self.control.as_fd()) {
            Ok(seen) if !self.machine.is_guarded() => (seen.round_trip_min * 2)
                .max(watch.elapsed() / OUTLIVES_SHARE)
                .clamp(OUTLIVES_MIN, OUTLIVES_MAX),
            _ => OUTLIVES_MAX, // by GSI, or by `ssh`, of whose way nothing is known
        };
        let deadline = Instant::now() + apart;
        while !self.gone {
            let left = deadline.saturating_duration_since(Instant::now());
            match wait_readable([self.control.as_fd()], left) {
                Ok([true]) if self.hear().is_ok() => {
                    // A further command is as good a sign of life as any.
                    return !self.gone;
                }
                Ok([false]) => return true,
                _ => self.gone = true,
            }
        }
        false
    }
}

/// Raises the flag also when the thread ends by a panic.
struct Raise<'a>(&'a Wake);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

fn no_thread(cause: std::io::Error) -> Error {
    Error::system("transfer", cause)
}

const STACK_BYTES: usize = 256 << 10;

/// Both ends of a killed client leave in the same moment, but may arrive apart: the longer
/// their way, the more. A client pays this for each upload of stream mode.
const OUTLIVES_MIN: Duration = Duration::from_micros(20);
const OUTLIVES_MAX: Duration = Duration::from_millis(50);
/// On a busy machine the kernel is a while between the two. No upload takes more than this part longer.
const OUTLIVES_SHARE: u32 = 16;
