//! A store that takes its time: far away, on a thin line, or hanging.

use crate::{
    BlockWriter, Expected, Facets, Finished, Read, Result, Sink, Store, StoreExt, Transit, Volume,
    Write, forward,
};
use godwit_core::{Block, Extents};
use parking_lot::Mutex;
use std::{
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// A store that is slow on purpose.
#[derive(Debug)]
pub struct Slow<S> {
    inner: S,
    line: Arc<SlowLine>,
}

/// How slow.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlowPace {
    /// Every verb waits this long first.
    pub latency: Duration,
    /// No more than this moves, in both directions and all streams together.
    pub bytes_per_second: Option<u64>,
    /// After that many bytes, the line stalls for this long; once.
    pub stall: Option<(u64, Duration)>,
}

impl<S: Store> Slow<S> {
    /// Returns a store at this pace.
    pub fn new(inner: S, pace: SlowPace) -> Self {
        let state = LineState {
            free_at: Instant::now(),
            moved_bytes: 0,
            stall: pace.stall,
        };
        Self {
            inner,
            line: Arc::new(SlowLine {
                pace,
                state: Mutex::new(state),
            }),
        }
    }
}

#[derive(Debug)]
struct SlowLine {
    pace: SlowPace,
    state: Mutex<LineState>,
}

#[derive(Debug)]
struct LineState {
    free_at: Instant,
    moved_bytes: u64,
    stall: Option<(u64, Duration)>,
}

impl SlowLine {
    fn verb(&self, _: &str) -> Result<()> {
        thread::sleep(self.pace.latency);
        Ok(())
    }

    /// Waits until the line has carried that many more bytes.
    fn carry(&self, bytes: usize) {
        let until = {
            let mut state = self.state.lock();
            state.moved_bytes += bytes as u64;
            let mut takes = match self.pace.bytes_per_second {
                Some(rate) => Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64),
                None => Duration::ZERO,
            };
            let moved_bytes = state.moved_bytes;
            if let Some((_, pause)) = state.stall.take_if(|(at, _)| moved_bytes >= *at) {
                takes += pause;
            }
            state.free_at = state.free_at.max(Instant::now()) + takes;
            state.free_at
        };
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

impl<S: Store> Store for Slow<S> {
    forward!(self, self.inner; can);
    forward!(self, self.inner, |verb| self.line.verb(verb); stat list remove rename mkdir set digest);

    fn facets(&self) -> Facets<'_> {
        let facets = self.inner.facets();
        Facets {
            transit: Some(self),
            volume: Some(self),
            batch: None,
            latency: facets.latency + self.line.pace.latency,
            ..facets
        }
    }

    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        self.line.verb("")?;
        self.inner.read(
            path,
            want,
            streams,
            &SlowReader {
                line: &self.line,
                sink: into,
            },
        )
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        self.line.verb("")?;
        let sink = self.inner.write(path, write)?;
        Ok(Box::new(Dragging {
            line: Arc::clone(&self.line),
            sink,
        }))
    }
}

impl<S: Store> Transit for Slow<S> {
    forward!(self, self.inner, |verb| self.line.verb(verb); flush push published_as trace decide);
}

impl<S: Store> Volume for Slow<S> {
    forward!(self, self.inner, |verb| self.line.verb(verb); xattrs space);
}

/// Before whom a read is for.
struct SlowReader<'a> {
    line: &'a SlowLine,
    sink: &'a dyn BlockWriter,
}

impl BlockWriter for SlowReader<'_> {
    forward!(self, self.sink; said);

    fn put(&self, block: Block<'_>) -> Result<()> {
        self.line.carry(block.bytes.len());
        self.sink.put(block)
    }
}

/// Before a sink of the store.
struct Dragging {
    line: Arc<SlowLine>,
    sink: Box<dyn Sink>,
}

impl BlockWriter for Dragging {
    forward!(self, self.sink; said);

    fn put(&self, block: Block<'_>) -> Result<()> {
        self.line.carry(block.bytes.len());
        self.sink.put(block)
    }
}

impl Sink for Dragging {
    forward!(self, self.sink; done settle commit abandon sink_facets);

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        self.line.verb("")?;
        self.sink.finish(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn when_fast_keeps_what_every_store_promises() {
        crate::check::all(&|| Box::new(Slow::new(Memory::new(), SlowPace::default())));
    }

    #[test]
    fn bytes_take_time_by_line_rate() {
        let pace = SlowPace {
            bytes_per_second: Some(1_000_000),
            stall: Some((10_000, Duration::from_millis(20))),
            ..SlowPace::default()
        };
        let store = Slow::new(Memory::new(), pace);
        let sink = store.write(Path::new("file"), &Write::default()).unwrap();
        let began = Instant::now();
        for i in 0..4 {
            sink.put(Block::at(i * 5000, &[7; 5000])).unwrap();
        }
        assert!(
            began.elapsed() >= Duration::from_millis(40),
            "{:?}",
            began.elapsed()
        );
    }
}
