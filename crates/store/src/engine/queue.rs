//! Work between the thread that finds files and those that move them.

use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// A bounded queue with one end that closes. A full queue blocks who finds, so
/// memory does not grow with the tree.
pub(super) struct WorkQueue<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

struct QueueState<T> {
    items: VecDeque<T>,
    closed: bool,
}

/// The result of a take.
pub(super) enum QueueTake<T> {
    /// Something to do.
    Item(T),
    /// The queue is empty at the moment.
    NotNow,
    /// The queue is empty and closed.
    Closed,
}

impl<T> WorkQueue<T> {
    pub(super) fn new() -> Self {
        let state = QueueState {
            items: VecDeque::new(),
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Adds an item, as soon as there is room. Returns false if the queue is closed.
    pub(super) fn put(&self, item: T) -> bool {
        let mut state = self.state.lock();
        while state.items.len() >= ITEMS_MAX && !state.closed {
            self.changed.wait(&mut state);
        }
        let open = !state.closed;
        if open {
            state.items.push_back(item);
            self.changed.notify_all();
        }
        open
    }

    /// Returns an item to the front, to be tried again.
    pub(super) fn put_back(&self, item: T) {
        self.state.lock().items.push_front(item);
        self.changed.notify_all();
    }

    /// Tells whether nothing is left to take.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().items.is_empty()
    }

    /// Says that no more will be found. Who took an item may still put it back, and
    /// takes it again himself if all others have gone.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Takes an item that `fits`, waiting at most for `patience`.
    pub(super) fn take(&self, patience: Duration, fits: impl Fn(&T) -> bool) -> QueueTake<T> {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            match state.items.front() {
                Some(item) if fits(item) => {
                    let item = state.items.pop_front().expect("looked at it");
                    self.changed.notify_all();
                    return QueueTake::Item(item);
                }
                Some(_) => return QueueTake::NotNow,
                None if state.closed => return QueueTake::Closed,
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return QueueTake::NotNow;
            }
            self.changed.wait_for(&mut state, left);
        }
    }
}

const ITEMS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_put_back_precedes_the_end() {
        let queue = WorkQueue::new();
        assert!(queue.put(1));
        queue.close();
        assert!(!queue.put(2));
        assert!(matches!(
            queue.take(Duration::ZERO, |_| false),
            QueueTake::NotNow
        ));
        assert!(matches!(
            queue.take(Duration::ZERO, |_| true),
            QueueTake::Item(1)
        ));
        queue.put_back(1);
        assert!(matches!(
            queue.take(Duration::ZERO, |_| true),
            QueueTake::Item(1)
        ));
        assert!(matches!(
            queue.take(Duration::from_secs(60), |_| true),
            QueueTake::Closed
        ));
    }
}
