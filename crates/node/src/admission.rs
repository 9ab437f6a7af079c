//! Who gets a session: so many in all, so many of one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Counts sessions.
#[derive(Debug)]
pub(crate) struct Admission {
    inside: Mutex<Inside>,
    left: Condvar,
}

#[derive(Debug)]
struct Inside {
    sessions_max: usize,
    per_address_max: usize,
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// The right to a session, while it lives.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    address: IpAddr,
}

impl Admission {
    pub(crate) fn new(sessions_max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self {
            inside: Mutex::new(Inside {
                sessions_max,
                per_address_max,
                all: 0,
                of: HashMap::new(),
            }),
            left: Condvar::new(),
        })
    }

    /// Lets in so many from now on. Nobody who is inside has to leave.
    pub(crate) fn bound(&self, sessions_max: usize, per_address_max: usize) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.sessions_max = sessions_max;
        inside.per_address_max = per_address_max;
    }

    /// Lets somebody in, or says why not.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Admitted, String> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let (sessions_max, max) = (inside.sessions_max, inside.per_address_max);
        if inside.all >= sessions_max {
            return Err(format!(
                "Too many sessions ({sessions_max}); try again later."
            ));
        }
        let is_scarce = inside.all >= sessions_max - sessions_max / KEPT_SHARE;
        let of = inside.of.entry(address).or_default();
        let max = if is_scarce { max.min(FEW) } else { max };
        if *of >= max {
            return Err(format!(
                "Too many sessions from {address} ({max}); try again later."
            ));
        }
        *of += 1;
        inside.all += 1;
        Ok(Admitted {
            admission: Arc::clone(self),
            address,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.inside
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .all
    }

    /// Waits until nobody is inside; `false` if it took longer than `patience`.
    pub(crate) fn wait_until_empty(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        while inside.all > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inside = self
                .left
                .wait_timeout(inside, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut inside = self
            .admission
            .inside
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        inside.all -= 1;
        if let Some(of) = inside.of.get_mut(&self.address) {
            *of -= 1;
            if *of == 0 {
                inside.of.remove(&self.address);
            }
        }
        if inside.all == 0 {
            self.admission.left.notify_all();
        }
    }
}

/// Places of threads in the log, held while those threads live.
///
/// The log has places for 4,096 threads of a process, and a thread beyond them panics.
#[derive(Debug)]
pub(crate) struct LogPlaces(usize);

impl LogPlaces {
    /// Takes places for so many threads; `None` if the log has no room for them.
    pub(crate) fn take(threads: usize) -> Option<Self> {
        let more = |taken: usize| Some(taken + threads).filter(|all| *all <= LOG_PLACES_MAX);
        let taken = LOG_PLACES_TAKEN.fetch_update(Relaxed, Relaxed, more);
        taken.ok().map(|_| Self(threads))
    }
}

impl Drop for LogPlaces {
    fn drop(&mut self) {
        LOG_PLACES_TAKEN.fetch_sub(self.0, Relaxed);
    }
}

static LOG_PLACES_TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Places for sessions and local programs. The other 1,024 are for the door's threads, and for threads that are ending.
pub(crate) const LOG_PLACES_MAX: usize = 3072;
/// One place in so many is kept for addresses that have few sessions.
const KEPT_SHARE: usize = 8;
/// So many sessions of one address are few.
const FEW: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn who_leaves_makes_room() {
        let admission = Admission::new(3, 2);
        let first = admission.admit(A).unwrap();
        let _second = admission.admit(A).unwrap();
        assert!(admission.admit(A).unwrap_err().contains("from 10.0.0.1"));
        let _third = admission.admit(B).unwrap();
        assert!(
            admission
                .admit(B)
                .unwrap_err()
                .starts_with("Too many sessions (3)")
        );
        drop(first);
        assert!(admission.admit(A).is_ok());
        assert_eq!(admission.count(), 2);
    }

    #[test]
    fn last_places_are_for_addresses_with_few() {
        let admission = Admission::new(80, 80);
        let crowd: Vec<_> = (0..80).map_while(|_| admission.admit(A).ok()).collect();
        assert_eq!(crowd.len(), 70);
        let few: Vec<_> = (0..80).map_while(|_| admission.admit(B).ok()).collect();
        assert_eq!(few.len(), FEW);
    }

    #[test]
    fn bounds_are_for_who_comes_later() {
        let admission = Admission::new(2, 2);
        let _inside = (admission.admit(A).unwrap(), admission.admit(B).unwrap());
        assert!(admission.admit(B).is_err());
        admission.bound(3, 1);
        assert!(admission.admit(B).unwrap_err().contains("(1)"));
        admission.bound(3, 2);
        assert!(admission.admit(B).is_ok());
    }
}
