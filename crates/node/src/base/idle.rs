//! Limits idle connections of each client; the oldest is closed first.

use super::{
    admission::{Admitted, Party},
    metrics::{GaugeGuard, Metrics},
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    task::Poll,
};
use tokio::sync::{Notify, watch};

/// Connections that wait for a request, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections(Mutex<HashMap<Party, VecDeque<Arc<Notify>>>>);

impl IdleConnections {}

/// One connection; it begins idle.
#[derive(Debug)]
pub(crate) struct TrackedConnection {
    idle: Arc<IdleConnections>,
    party: Mutex<Party>,
    end: Arc<Notify>,
}

impl TrackedConnection {
    pub(crate) fn new(idle: &Arc<IdleConnections>, party: Party) -> Arc<Self> {
        let tracked = Self {
            idle: Arc::clone(idle),
            party: Mutex::new(party),
            end: Arc::default(),
        };
        tracked.rest();
        Arc::new(tracked)
    }

    /// Does `work` until it is done, or the connection is ended for a newer one of the same client.
    pub(crate) async fn host(&self, work: impl Future<Output = ()>) {
        let (mut work, mut ended) = (pin!(work), pin!(self.end.notified()));
        poll_fn(|context| match ended.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => work.as_mut().poll(context),
        })
        .await;
    }

    /// Marks the connection as busy. If `party` is given, the connection is counted for that client from now on.
    pub(crate) fn work(&self, party: Option<&Party>) {
        let mut known = self.party.lock();
        let mut waiting = self.idle.0.lock();
        if let Some(ends) = waiting.get_mut(&known) {
            ends.retain(|end| !Arc::ptr_eq(end, &self.end));
            if ends.is_empty() {
                waiting.remove(&known);
            }
        }
        if let Some(party) = party {
            known.clone_from(party);
        }
    }

    /// Makes the connection idle, and ends the oldest idle one of its client if there are too many.
    fn rest(&self) {
        let party = self.party.lock();
        let mut waiting = self.idle.0.lock();
        let ends = waiting.entry(party.clone()).or_default();
        ends.push_back(Arc::clone(&self.end));
        if ends.len() > IDLE_EACH_MAX
            && let Some(oldest) = ends.pop_front()
        {
            oldest.notify_one();
        }
    }
}

impl Drop for TrackedConnection {
    fn drop(&mut self) {
        self.work(None);
    }
}

/// The places of a connection, kept as long as it or its successor lasts. Clones share them.
#[derive(Clone)]
pub(crate) struct Stay {
    _inside: Arc<(Admitted, GaugeGuard)>,
    pub(crate) tracked: Arc<TrackedConnection>,
    pub(crate) draining: watch::Receiver<()>,
}

impl Stay {
    pub(crate) fn new(
        (idle, metrics): (&Arc<IdleConnections>, &Metrics),
        admitted: Admitted,
        draining: watch::Receiver<()>,
        peer: SocketAddr,
    ) -> Self {
        Self {
            tracked: TrackedConnection::new(idle, Party::Address(peer.ip().to_canonical())),
            _inside: Arc::new((admitted, metrics.connected())),
            draining,
        }
    }
}

/// A request is being answered on a connection, which is idle again when this is dropped.
pub(crate) struct Busy(Option<Arc<TrackedConnection>>);

impl Busy {
    pub(crate) fn new(tracked: &Arc<TrackedConnection>) -> Self {
        tracked.work(None);
        Self(Some(Arc::clone(tracked)))
    }

    /// Leaves the connection to another protocol, under which it is never idle.
    pub(crate) fn pass(&mut self) {
        self.0 = None;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(tracked) = self.0.take() {
            tracked.rest();
        }
    }
}

/// Idle connections of one client.
pub(crate) const IDLE_EACH_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_idle_connection_goes_first() {
        let (idle, party) = (Arc::default(), Party::Peer("p".into()));
        let seats: Vec<_> = (0..IDLE_EACH_MAX)
            .map(|_| TrackedConnection::new(&idle, party.clone()))
            .collect();
        let busy = Busy::new(&seats[0]);
        let _more = [
            TrackedConnection::new(&idle, party.clone()),
            TrackedConnection::new(&idle, party),
        ];
        let is_ended = |tracked: &TrackedConnection| {
            let mut ended = pin!(tracked.end.notified());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            ended.as_mut().poll(&mut context).is_ready()
        };
        assert!(!is_ended(&seats[0]) && is_ended(&seats[1]) && !is_ended(&seats[2]));
        drop(busy);
        assert!(is_ended(&seats[2]) && !is_ended(&seats[0]));
        drop((seats, _more));
        assert!(idle.0.lock().is_empty());
    }
}
