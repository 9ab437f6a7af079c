//! The counters of a node, for Prometheus.
//!
//! Labels have few values: names and paths are in the log.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Metric, Registry, Unit},
};
use std::time::Duration;

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    bytes: Family<MovedLabels, Counter>,
    active: Gauge,
    errors: Family<FailedLabels, Counter>,
    denied: Family<Denied, Counter>,
    connections: Gauge,
    parked: Gauge,
    relaying: Gauge,
    relayed: Family<Relayed, Counter>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RequestLabels {
    method: &'static str,
    code: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct MovedLabels {
    direction: &'static str,
    proto: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Relayed {
    direction: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FailedLabels {
    r#type: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Denied {
    reason: &'static str,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrafficDirection {
    In,
    Out,
}

impl TrafficDirection {
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
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn one_of(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = Registry::with_prefix("godwit");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "Which program this is", version);
        let seconds = Histogram::new(exponential_buckets(0.001, 4.0, 10));
        let help = "From a request to the beginning of its answer";
        all.register_with_unit("request_duration", help, Unit::Seconds, seconds.clone());
        let passed_on = "Bytes passed on, to a node behind this one (in) and from it (out)";
        let parked = "Connections of other nodes that wait here for visitors";
        let relaying = "Visitors that are passed on to other nodes";
        Self {
            requests: added(&mut all, "http_requests", "Requests answered at the door"),
            request_seconds: seconds,
            bytes: bytes_added(&mut all, "transfer", "Bytes of files that moved"),
            active: added(&mut all, "transfers_active", "Transfers that go on"),
            errors: added(&mut all, "errors", "What was not done"),
            denied: added(&mut all, "auth_denied", "Who may do nothing"),
            connections: added(&mut all, "connections", "Connections at the door"),
            parked: added(&mut all, "relay_parked", parked),
            relaying: added(&mut all, "relay_visitors", relaying),
            relayed: bytes_added(&mut all, "relay", passed_on),
            registry: all,
        }
    }
}

/// Makes what counts something, and registers it.
fn added<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Makes what counts bytes, and registers it.
fn bytes_added<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register_with_unit(name, help, Unit::Bytes, metric.clone());
    metric
}

impl Metrics {
    /// Counts a request that was answered.
    pub(crate) fn answered(&self, method: &str, code: u16, after: Duration) {
        const KNOWN: [&str; 5] = ["GET", "HEAD", "POST", "PUT", "DELETE"];
        let known = KNOWN.into_iter().find(|known| *known == method);
        let method = known.unwrap_or("OTHER");
        self.requests
            .get_or_create(&RequestLabels { method, code })
            .inc();
        self.request_seconds.observe(after.as_secs_f64());
    }

    /// Counts bytes of files.
    pub(crate) fn moved(&self, direction: TrafficDirection, proto: Proto, bytes: u64) {
        let moved = MovedLabels {
            direction: direction.word(),
            proto: match proto {
                Proto::Ftp => "ftp",
                Proto::Https => "https",
            },
        };
        self.bytes.get_or_create(&moved).inc_by(bytes);
    }

    /// Counts a transfer until the returned value is dropped.
    pub(crate) fn moving(&self) -> GaugeGuard {
        GaugeGuard::one_of(&self.active)
    }

    /// Counts a connection at the door until the returned value is dropped.
    pub(crate) fn connected(&self) -> GaugeGuard {
        GaugeGuard::one_of(&self.connections)
    }

    /// Counts a connection of another node for as long as it waits.
    pub(crate) fn parked(&self) -> GaugeGuard {
        GaugeGuard::one_of(&self.parked)
    }

    /// Counts a visitor of another node for as long as it is passed on.
    pub(crate) fn relaying(&self) -> GaugeGuard {
        GaugeGuard::one_of(&self.relaying)
    }

    /// Returns what counts bytes that are passed on that way.
    pub(crate) fn relayed(&self, direction: TrafficDirection) -> Counter {
        let direction = direction.word();
        self.relayed.get_or_create(&Relayed { direction }).clone()
    }

    /// Counts something that was not done.
    pub(crate) fn failed(&self, r#type: &'static str) {
        self.errors.get_or_create(&FailedLabels { r#type }).inc();
    }

    /// Counts a client that was refused.
    pub(crate) fn denied(&self, reason: &'static str) {
        self.denied.get_or_create(&Denied { reason }).inc();
    }

    /// Writes all metrics as OpenMetrics text.
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
        metrics.moved(TrafficDirection::Out, Proto::Https, 10);
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

    /// `make reference` has this test write the page.
    #[test]
    fn reference_page_is_current() {
        let metrics = Metrics::default();
        metrics.answered("GET", 200, Duration::ZERO);
        metrics.moved(TrafficDirection::In, Proto::Ftp, 0);
        metrics.relayed(TrafficDirection::In).inc_by(0);
        metrics.failed("");
        metrics.denied("");
        let mut page = String::from(
            "# Metrics\n\n<!-- make reference writes this page -->\n\nA node tells them at `/metrics` of its door, as OpenMetrics \
             text. Transfers, callers and files are in the log, not in labels.\n\n| metric | type | labels | counts |\n|---|---|---|---|\n",
        );
        let text = metrics.to_text();
        for line in text.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, help) = line.split_once(' ').unwrap();
            let begin = format!("# TYPE {name} ");
            let kind = text
                .lines()
                .find_map(|line| line.strip_prefix(&begin))
                .unwrap();
            let sample = text.lines().find(|line| line.starts_with(name)).unwrap();
            let labels = sample
                .split(['{', ',', '}'])
                .filter_map(|part| part.split_once("=\""));
            let labels: Vec<&str> = labels
                .map(|(label, _)| label)
                .filter(|label| *label != "le")
                .collect();
            let sampled = match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            };
            page += &format!(
                "| `{sampled}` | {kind} | {} | {} |\n",
                labels.join(", "),
                help.trim_end_matches('.')
            );
        }
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/metrics.md"
        );
        if std::env::var("GODWIT_REFERENCE").is_ok_and(|word| word == "write") {
            std::fs::write(path, &page).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == page,
            "docs/reference/metrics.md is out of date; run make reference"
        );
    }
}
