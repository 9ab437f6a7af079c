//! Fetches what a caller will want, no faster than the caller allows.
//!
//! Each slice comes as fast as it can, with rests between. A reader of the file waits for one slice at most, and gets the
//! rest at once. Only callers that do not know yet whether they need the file are slowed down.

use crate::{
    Depot, Error, Fresh, Lazily, Result, StillWanted, Who, inner::Inner, plan::entry::Entry,
    work::fetch::Part,
};
use godwit_core::{LEAF_BYTES, Url};
use std::{
    num::NonZeroU64,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

impl Depot {
    /// Fetches what is missing of a file, so many bytes a second. It is here as a whole, and is kept as
    /// long as what is returned. `is_wanted` is asked now and then.
    pub fn prefetch(
        &self,
        url: &Url,
        who: &Who,
        rate: NonZeroU64,
        is_wanted: StillWanted<'_>,
    ) -> Result<Lazily> {
        let mut fresh = Fresh::Usual;
        loop {
            let lazily = self.lazily(url, who, fresh)?;
            match self.inner.come(lazily.entry(), rate, is_wanted) {
                Ok(()) => return Ok(lazily),
                // It changed while it came: once more, with what there is now, and no faster.
                Err(Error::Busy { .. }) => fresh = Fresh::Now,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Inner {
    fn come(&self, entry: &Arc<Entry>, rate: NonZeroU64, is_wanted: StillWanted<'_>) -> Result<()> {
        let slice = (rate.get() / SLICES_A_SECOND).next_multiple_of(LEAF_BYTES);
        let slice = slice.clamp(LEAF_BYTES, SLICE_MAX);
        let (mut next, mut part) = (0, Part::Alone);
        while let Some(range) = missing(entry, next, slice) {
            next = range.end;
            let (began, bytes) = (Instant::now(), range.end - range.start);
            self.ensure_while(entry, range, part, is_wanted)?;
            part = Part::More;
            let took = Duration::from_secs_f64(bytes as f64 / rate.get() as f64);
            // Centuries are as good as for ever.
            let due = began.checked_add(took.min(FOR_EVER)).unwrap_or(began);
            self.rest(entry, due, is_wanted)?;
        }
        Ok(())
    }

    /// Returns when it is time to go on, or when nothing is missing any more.
    fn rest(&self, entry: &Arc<Entry>, due: Instant, is_wanted: StillWanted<'_>) -> Result<()> {
        loop {
            if self.is_ending() {
                return Err(Error::Ending);
            }
            if !is_wanted() {
                return Err(Error::Unwanted);
            }
            let mut state = entry.lock();
            let whole = 0..state.machine.size();
            let now = Instant::now();
            if now >= due || state.is_gone || state.machine.present().contains(&whole) {
                return Ok(());
            }
            entry.wait(&mut state, Some(due.min(now + LOOK_EVERY)));
        }
    }
}

/// Returns the next slice of which something is missing.
fn missing(entry: &Arc<Entry>, from: u64, slice: u64) -> Option<Range<u64>> {
    let state = entry.lock();
    let size = state.machine.size();
    let mut start = from;
    while start < size {
        let range = start..size.min(start + slice);
        if !state.machine.present().contains(&range) {
            return Some(range);
        }
        start = range.end;
    }
    None
}

/// A reader waits for one slice at most.
const SLICES_A_SECOND: u64 = 4;
const SLICE_MAX: u64 = 64 << 20;
/// How soon a reader that has gone, or the end of the node, is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const FOR_EVER: Duration = Duration::from_secs(3600 * 24 * 365);
