//! Limits the number of clients: in all, and for each client.

use parking_lot::{Condvar, Mutex};
use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A client whose places are counted together.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Party {
    Address(IpAddr),
    /// A client that has proved who it is.
    Peer(String),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Peer(name) => name.fmt(f),
        }
    }
}

/// Counts places.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Names the things that have places.
    what: &'static str,
    /// Places that only peers get, and how many of all places one peer gets.
    of_peers: usize,
    per_peer_max: usize,
    inside: Mutex<AdmittedCounts>,
    left: Condvar,
}

#[derive(Debug)]
struct AdmittedCounts {
    sessions_max: usize,
    per_address_max: usize,
    all: usize,
    of: HashMap<Party, usize>,
}

/// The right to a place, while it lives.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    party: Party,
}

impl Admission {
    pub(crate) fn new(what: &'static str, sessions_max: usize, per_address_max: usize) -> Self {
        Self {
            what,
            of_peers: 0,
            per_peer_max: 0,
            inside: Mutex::new(AdmittedCounts {
                sessions_max,
                per_address_max,
                all: 0,
                of: HashMap::new(),
            }),
            left: Condvar::new(),
        }
    }

    /// Reserves places for peers, and limits those of one peer.
    pub(crate) fn with_peers(self, of_peers: usize, per_peer_max: usize) -> Self {
        Self {
            of_peers,
            per_peer_max,
            ..self
        }
    }

    /// Sets new limits. Clients above them stay connected.
    pub(crate) fn bound(&self, sessions_max: usize, per_address_max: usize) {
        let mut inside = self.inside.lock();
        inside.sessions_max = sessions_max;
        inside.per_address_max = per_address_max;
    }

    /// Gives a place to a client, or says why not.
    pub(crate) fn admit(self: &Arc<Self>, party: Party) -> Result<Admitted, String> {
        let what = self.what;
        let mut inside = self.inside.lock();
        let (room, max) = match &party {
            Party::Address(_) => (inside.sessions_max - self.of_peers, inside.per_address_max),
            Party::Peer(_) => (inside.sessions_max, self.per_peer_max),
        };
        if inside.all >= room {
            return Err(format!("Too many {what} ({room}); try again later."));
        }
        let is_scarce = inside.all >= room - room / KEPT_SHARE;
        let max = if is_scarce { max.min(FEW) } else { max };
        let of = inside.of.get(&party).copied().unwrap_or_default();
        if of >= max {
            return Err(format!(
                "Too many {what} from {party} ({max}); try again later."
            ));
        }
        inside.of.insert(party.clone(), of + 1);
        inside.all += 1;
        Ok(Admitted {
            admission: Arc::clone(self),
            party,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.inside.lock().all
    }

    /// Waits until all clients have left; `false` if it took longer than `patience`.
    pub(crate) fn wait_until_empty(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut inside = self.inside.lock();
        while inside.all > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.left.wait_for(&mut inside, left);
        }
        true
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut inside = self.admission.inside.lock();
        inside.all -= 1;
        if let Some(of) = inside.of.get_mut(&self.party) {
            *of -= 1;
            if *of == 0 {
                inside.of.remove(&self.party);
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
    /// Takes places in the log for threads; `None`: there are none left.
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
/// The share of the places that is reserved for clients that have few.
const KEPT_SHARE: usize = 8;
/// Up to this number of places, a client counts as one that has few.
const FEW: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const A: Party = Party::Address(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
    const B: Party = Party::Address(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

    #[test]
    fn log_places_are_bounded() {
        let all = LogPlaces::take(LOG_PLACES_MAX).unwrap();
        assert!(LogPlaces::take(1).is_none());
        drop(all);
        assert!(LogPlaces::take(1).is_some());
    }

    #[test]
    fn who_leaves_makes_room() {
        let admission = Arc::new(Admission::new("sessions", 3, 2));
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
        let admission = Arc::new(Admission::new("sessions", 80, 80));
        let crowd: Vec<_> = (0..80).map_while(|_| admission.admit(A).ok()).collect();
        assert_eq!(crowd.len(), 70);
        let few: Vec<_> = (0..80).map_while(|_| admission.admit(B).ok()).collect();
        assert_eq!(few.len(), FEW);
    }

    #[test]
    fn peers_have_places_of_their_own() {
        let admission = Arc::new(Admission::new("requests", 32, 32).with_peers(16, 8));
        let parties = (1..=32).map(|n| Party::Address([10, 0, 1, n].into()));
        let strangers: Vec<_> = parties.flat_map(|party| admission.admit(party)).collect();
        assert_eq!(strangers.len(), 16);
        let peer = || admission.admit(Party::Peer("p".into()));
        let theirs: Vec<_> = (0..32).map_while(|_| peer().ok()).collect();
        assert_eq!(theirs.len(), 8);
    }

    #[test]
    fn bounds_are_for_who_comes_later() {
        let admission = Arc::new(Admission::new("sessions", 2, 2));
        let _inside = (admission.admit(A).unwrap(), admission.admit(B).unwrap());
        assert!(admission.admit(B).is_err());
        admission.bound(3, 1);
        assert!(admission.admit(B).unwrap_err().contains("(1)"));
        admission.bound(3, 2);
        assert!(admission.admit(B).is_ok());
    }
}
