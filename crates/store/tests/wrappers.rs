//! Wrappers pass facets on as a whole.

use godwit_core::{Block, Extents};
use godwit_store::{
    BlockWriter, Direct, Faulty, Memory, Peer, Read, Result, Sink, SinkExt, Slow, SlowPace, Store,
    StoreExt, Write, forward,
};
use std::{ops::Range, path::Path, time::Duration};

/// A store in memory that claims to be on a server, and whose sinks draw.
#[derive(Default)]
struct Far(Memory);

impl Store for Far {
    forward!(self, self.0; can stat list read remove rename mkdir set digest);

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Drawing(self.0.write(path, write)?)))
    }

    godwit_store::has!(self, Facets: peer; self.0.facets());
}

impl Peer for Far {
    fn round_trip(&self) -> Duration {
        Duration::from_millis(7)
    }

    fn stripes(&self) -> usize {
        3
    }
}

struct Drawing(Box<dyn Sink>);

impl BlockWriter for Drawing {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.0.put(block)
    }
}

impl Sink for Drawing {
    forward!(self, self.0; done settle commit finish abandon);

    godwit_store::has!(self, SinkFacets: direct; self.0.facets());
}

impl Direct for Drawing {
    fn draw(
        &self,
        source: &dyn Store,
        path: &Path,
        want: &Extents,
        _: usize,
        on: &(dyn Fn(Range<u64>) + Sync),
    ) -> Result<Option<Read>> {
        want.iter().for_each(on);
        let (stat, digest) = (source.stat(path)?, None);
        Ok(Some(Read { stat, digest }))
    }
}

#[test]
fn wrapper_stays_remote_and_draws() {
    let pace = SlowPace {
        latency: Duration::from_millis(1),
        ..SlowPace::default()
    };
    let store = Faulty::new(Slow::new(Far::default(), pace), []);
    assert!(store.is_remote());
    assert_eq!((store.stripes(), store.distance().as_millis()), (3, 8));
    let sink = store.write(Path::new("a"), &Write::default()).unwrap();
    let (drawn, source) = (std::sync::Mutex::new(Extents::new()), Memory::new());
    let want = Extents::from(0..9);
    let on = |range| drawn.lock().unwrap().insert(range);
    let read = sink.draw(&source, Path::new(""), &want, 1, &on).unwrap();
    assert!(read.is_some());
    assert_eq!(drawn.into_inner().unwrap(), want);
}
