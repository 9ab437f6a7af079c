//! How wide a transfer is just now: what its threads, its connections and its report share.

use crate::tuning::{Limit, Measurements, Tuned, Tuning};
use godwit_core::LEAF_BYTES;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// The streams of one transfer: how many it may have, and how many it uses.
///
/// All connections are made at the beginning, when that costs one round trip for all;
/// an unused one costs nothing. So using more needs no word to the other side.
#[derive(Debug)]
pub struct Width {
    most: usize,
    is_tuned: bool,
    state: Mutex<WidthState>,
    changed: Condvar,
}

#[derive(Debug)]
struct WidthState {
    tuning: Tuning,
    /// The result that the sender reported, if another process sends, or one known from the start.
    told: Option<Tuned>,
    poked: bool,
}

impl Width {
    /// Uses `streams` from the beginning to the end.
    pub fn fixed(streams: usize, why: Limit) -> Self {
        let mut width = Self::tuned(streams, streams);
        width.is_tuned = false;
        let told = Tuned { why, ..width.now() };
        width.tell(told);
        width
    }

    /// Begins with `first`, and uses at most `most` if they are worth it.
    pub fn tuned(first: usize, most: usize) -> Self {
        let (first, most) = (first.max(1), most.max(1));
        Self {
            most,
            is_tuned: true,
            state: Mutex::new(WidthState {
                tuning: Tuning::new(first, most),
                told: None,
                poked: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Returns how many connections there should be.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Tells whether it is decided on the way.
    pub fn is_tuned(&self) -> bool {
        self.is_tuned
    }

    /// Returns how many streams to use now.
    pub fn streams(&self) -> usize {
        self.state.lock().tuning.tuned().streams
    }

    /// Returns the result so far.
    pub fn now(&self) -> Tuned {
        let state = self.state.lock();
        state.told.unwrap_or_else(|| state.tuning.tuned())
    }

    /// Sets the result that the sender reported.
    pub fn tell(&self, told: Tuned) {
        self.state.lock().told = Some(told);
    }

    /// Returns the best size of a block: what a stream sends in a quarter of a second. Streams then end at about the
    /// same time.
    pub fn block_bytes(&self) -> u64 {
        let tuned = self.state.lock().tuning.tuned();
        let share = (tuned.rate / tuned.streams as f64 * BLOCK_SECONDS) as u64;
        match share {
            0 => LEAF_BYTES, // nothing was measured
            _ => share.next_power_of_two().clamp(BLOCK_MIN, LEAF_BYTES),
        }
    }

    /// Takes a measurement; wakes waiting threads if there are more streams to use.
    pub fn look(&self, seen: Measurements) {
        let mut state = self.state.lock();
        let before = state.tuning.tuned();
        state.tuning.look(seen);
        let now = state.tuning.tuned();
        drop(state);
        if now.streams != before.streams {
            tracing::debug!(
                streams = now.streams,
                rate = now.rate,
                lost = now.lost,
                "streams"
            );
            self.changed.notify_all();
        }
    }

    /// Waits a moment for more streams than `streams`, or until poked; returns how
    /// many there are.
    pub fn wait_beyond(&self, streams: usize, patience: Duration) -> usize {
        let is_all =
            |state: &mut WidthState| state.tuning.tuned().streams <= streams && !state.poked;
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, is_all, patience);
        state.poked = false;
        state.tuning.tuned().streams
    }

    /// Ends a wait.
    pub fn poke(&self) {
        self.state.lock().poked = true;
        self.changed.notify_all();
    }
}

const BLOCK_SECONDS: f64 = 0.25;
const BLOCK_MIN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays() {
        let width = Width::fixed(7, Limit::Asked);
        assert_eq!((width.streams(), width.most()), (7, 7));
        assert_eq!(width.now().why, Limit::Asked);
        assert_eq!(width.block_bytes(), LEAF_BYTES);
    }

    #[test]
    fn slow_streams_carry_small_blocks() {
        let width = Width::tuned(4, 4);
        let at = |tenths: u64, bytes| Measurements {
            at: Duration::from_millis(100 * tenths),
            bytes,
            ..Measurements::default()
        };
        width.look(at(0, 0));
        width.look(at(10, 1_000_000));
        assert_eq!(width.block_bytes(), 64 << 10);
        width.look(at(20, 401_000_000));
        assert_eq!(width.block_bytes(), LEAF_BYTES);
    }
}
