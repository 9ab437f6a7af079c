//! The log of the nodes in this process, for tests to read.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt::{Debug, Write},
    sync::{
        Mutex, Once,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::set_global_default,
};

/// Keeps all lines from now on.
pub fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| set_global_default(Log).unwrap());
}

/// Waits for a line that contains all these words.
pub fn has(words: &[&str]) {
    super::until(&format!("a line of the log with {words:?}"), || {
        !lines(words).is_empty()
    });
}

/// Returns the lines that contain all these words.
pub fn lines(words: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    let contains = |line: &&String| words.iter().all(|word| line.contains(word));
    lines.iter().filter(contains).cloned().collect()
}

struct Log;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SPANS: Mutex<Option<HashMap<u64, String>>> = Mutex::new(None);
thread_local!(static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("godwit")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Relaxed);
        let mut text = Text(String::new());
        span.record(&mut text);
        let mut spans = SPANS.lock().unwrap();
        spans.get_or_insert_default().insert(id, text.0);
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{} ", event.metadata().level()));
        for id in INSIDE.with_borrow(Vec::clone) {
            let spans = SPANS.lock().unwrap();
            text.0 += spans.as_ref().and_then(|spans| spans.get(&id)).unwrap();
        }
        event.record(&mut text);
        LINES.lock().unwrap().push(text.0);
    }

    fn enter(&self, span: &Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(span.into_u64()));
    }

    fn exit(&self, _: &Id) {
        INSIDE.with_borrow_mut(|inside| inside.pop());
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, "{field}={value} ").unwrap();
    }
}
