//! What a node counts, for Prometheus.
//!
//! Labels have few values: who and what stands in the log.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Registry, Unit},
};
use std::time::Duration;

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    request_seconds: Histogram,
    bytes: Family<Moved, Counter>,
    active: Gauge,
    errors: Family<Failed, Counter>,
    denied: Family<Denied, Counter>,
    connections: Gauge,
    parked: Gauge,
    relaying: Gauge,
    relayed: Family<Relayed, Counter>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Request {
    method: &'static str,
    code: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Moved {
    direction: &'static str,
    proto: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Relayed {
    direction: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Failed {
    r#type: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Denied {
    reason: &'static str,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    In,
    Out,
}

impl Direction {
    fn word(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// By which door.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proto {
    Ftp,
    Https,
}

/// One of those that are counted as long as they last.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn one_of(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("godwit");
        let metrics = Self {
            requests: Family::default(),
            request_seconds: Histogram::new(exponential_buckets(0.001, 4.0, 10)),
            bytes: Family::default(),
            active: Gauge::default(),
            errors: Family::default(),
            denied: Family::default(),
            connections: Gauge::default(),
            parked: Gauge::default(),
            relaying: Gauge::default(),
            relayed: Family::default(),
            registry: Registry::default(),
        };
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Which program this is", version);
        registry.register(
            "http_requests",
            "Requests answered at the door",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "request_duration",
            "From a request to the beginning of its answer",
            Unit::Seconds,
            metrics.request_seconds.clone(),
        );
        registry.register_with_unit(
            "transfer",
            "Bytes of files that moved",
            Unit::Bytes,
            metrics.bytes.clone(),
        );
        registry.register(
            "transfers_active",
            "Transfers that go on",
            metrics.active.clone(),
        );
        registry.register("errors", "What was not done", metrics.errors.clone());
        registry.register("auth_denied", "Who may do nothing", metrics.denied.clone());
        registry.register(
            "connections",
            "Connections at the door",
            metrics.connections.clone(),
        );
        registry.register(
            "relay_parked",
            "Connections of other nodes that wait here for visitors",
            metrics.parked.clone(),
        );
        registry.register(
            "relay_visitors",
            "Visitors that are passed on to other nodes",
            metrics.relaying.clone(),
        );
        registry.register_with_unit(
            "relay",
            "Bytes passed on, to a node behind this one (in) and from it (out)",
            Unit::Bytes,
            metrics.relayed.clone(),
        );
        Self {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    /// Counts a request that was answered.
    pub(crate) fn answered(&self, method: &str, code: u16, after: Duration) {
        const KNOWN: [&str; 5] = ["GET", "HEAD", "POST", "PUT", "DELETE"];
        let known = KNOWN.into_iter().find(|known| *known == method);
        let method = known.unwrap_or("OTHER");
        self.requests.get_or_create(&Request { method, code }).inc();
        self.request_seconds.observe(after.as_secs_f64());
    }

    /// Counts bytes of files.
    pub(crate) fn moved(&self, direction: Direction, proto: Proto, bytes: u64) {
        let moved = Moved {
            direction: direction.word(),
            proto: match proto {
                Proto::Ftp => "ftp",
                Proto::Https => "https",
            },
        };
        self.bytes.get_or_create(&moved).inc_by(bytes);
    }

    /// Counts a transfer for as long as it goes on.
    pub(crate) fn moving(&self) -> Counted {
        Counted::one_of(&self.active)
    }

    /// Counts a connection at the door for as long as it stands.
    pub(crate) fn connected(&self) -> Counted {
        Counted::one_of(&self.connections)
    }

    /// Counts a connection of another node for as long as it waits.
    pub(crate) fn parked(&self) -> Counted {
        Counted::one_of(&self.parked)
    }

    /// Counts a visitor of another node for as long as it is passed on.
    pub(crate) fn relaying(&self) -> Counted {
        Counted::one_of(&self.relaying)
    }

    /// Returns what counts bytes that are passed on that way.
    pub(crate) fn relayed(&self, direction: Direction) -> Counter {
        let direction = direction.word();
        self.relayed.get_or_create(&Relayed { direction }).clone()
    }

    /// Counts something that was not done.
    pub(crate) fn failed(&self, r#type: &'static str) {
        self.errors.get_or_create(&Failed { r#type }).inc();
    }

    /// Counts somebody who may do nothing.
    pub(crate) fn denied(&self, reason: &'static str) {
        self.denied.get_or_create(&Denied { reason }).inc();
    }

    /// Writes all of it as OpenMetrics text.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to memory does not fail");
        text
    }
}

/// The type of that text.
pub(crate) const TEXT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_dashboards_expect() {
        let metrics = Metrics::default();
        metrics.answered("GET", 200, Duration::from_millis(3));
        metrics.answered("BREW", 405, Duration::from_millis(3));
        metrics.moved(Direction::Out, Proto::Https, 10);
        metrics.failed("denied");
        metrics.denied("certificate");
        let (moving, _connected) = (metrics.moving(), metrics.connected());
        let text = metrics.to_text();
        for line in [
            "godwit_http_requests_total{method=\"GET\",code=\"200\"} 1",
            "godwit_http_requests_total{method=\"OTHER\",code=\"405\"} 1",
            "godwit_transfer_bytes_total{direction=\"out\",proto=\"https\"} 10",
            "godwit_transfers_active 1",
            "godwit_connections 1",
            "godwit_request_duration_seconds_count 2",
            "godwit_auth_denied_total{reason=\"certificate\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        drop(moving);
        assert!(metrics.to_text().contains("godwit_transfers_active 0"));
    }
}
