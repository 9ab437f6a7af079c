//! Connections to a database that readers share.

use crate::Result;
use parking_lot::{Condvar, Mutex};

/// A pool of connections, made when they are needed.
pub(crate) struct ConnectionPool<T> {
    /// Tells whether a connection can be lent again.
    is_usable: fn(&T) -> bool,
    /// The connections that are not lent, and how many are.
    free: Mutex<(Vec<T>, usize)>,
    freed: Condvar,
}

impl<T> ConnectionPool<T> {
    pub(crate) fn new(is_usable: fn(&T) -> bool) -> Self {
        Self {
            is_usable,
            free: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Lends a connection. A reader waits while [`CONNECTIONS_MAX`] are lent.
    pub(crate) fn with<R>(
        &self,
        connect: impl FnOnce() -> Result<T>,
        read: impl FnOnce(&mut T) -> Result<R>,
    ) -> Result<R> {
        let mut lent = Lent {
            pool: self,
            one: self.take(),
        };
        let one = match &mut lent.one {
            Some(one) => one,
            none => none.insert(connect()?),
        };
        read(one)
    }

    /// Closes the connections that are not lent: the database may be another one by now.
    pub(crate) fn forget(&self) {
        let free = std::mem::take(&mut self.free.lock().0);
        drop(free);
    }

    fn take(&self) -> Option<T> {
        let mut free = self.free.lock();
        while free.1 == CONNECTIONS_MAX {
            self.freed.wait(&mut free);
        }
        free.1 += 1;
        free.0.pop()
    }
}

/// A connection that returns to its pool when dropped.
struct Lent<'a, T> {
    pool: &'a ConnectionPool<T>,
    one: Option<T>,
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        let one = self.one.take().filter(self.pool.is_usable);
        let mut free = self.pool.free.lock();
        free.1 -= 1;
        free.0.extend(one);
        self.pool.freed.notify_one();
    }
}

const CONNECTIONS_MAX: usize = 8;
