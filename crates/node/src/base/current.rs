//! A value that can be replaced while clients keep the version with which they began.

use parking_lot::RwLock;
use std::sync::{Arc, Weak};

/// A value that is replaced as a whole.
#[derive(Debug)]
pub(crate) struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    pub(crate) fn new(value: Arc<T>) -> Arc<Self> {
        Arc::new(Self(RwLock::new(value)))
    }

    /// Makes one whose value knows where it is.
    pub(crate) fn new_cyclic(value: impl FnOnce(&Weak<Self>) -> T) -> Arc<Self> {
        Arc::new_cyclic(|current| Self(RwLock::new(Arc::new(value(current)))))
    }

    pub(crate) fn now(&self) -> Arc<T> {
        Arc::clone(&self.0.read())
    }

    pub(crate) fn replace(&self, value: Arc<T>) {
        *self.0.write() = value;
    }
}
