//! Reads a node's clock, even if the node's identity is unproved.

use super::{DATE, Door, DoorInner, HttpDate, JSON_TYPE, RequestBody};
use crate::Result;
use godwit_trust::{Credential, door::WantedHost};
use hyper::{Method, Response, body::Incoming};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

impl Door {
    /// Returns the difference between a node's clock and ours. The connection shows no credential and checks none:
    /// the result only explains why a certificate is not valid.
    pub fn clock_of_anybody(&self) -> Result<Option<Duration>> {
        let inner = &self.0;
        let mut visit = inner.reach(&WantedHost::Anybody, &Credential::nobody())?;
        let request = inner.request(Method::GET, "/healthz", JSON_TYPE, RequestBody::whole(""));
        let answer = visit.ask(request, "asking for the time")?;
        Ok(DoorInner::skew_in(&answer))
    }
}

impl DoorInner {
    /// Returns how far the date of an answer is from our clock.
    pub(super) fn skew_in(answer: &Response<Incoming>) -> Option<Duration> {
        let theirs: HttpDate = answer.headers().get(DATE)?.to_str().ok()?.parse().ok()?;
        let ours = SystemTime::now().duration_since(UNIX_EPOCH);
        Some(ours.unwrap_or_default().abs_diff(theirs.0))
    }
}
