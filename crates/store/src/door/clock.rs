//! What a node's clock says, though nobody may have proved who is there.

use super::{DATE, Door, HttpDate, Inner, JSON_TYPE, Sent};
use crate::Result;
use godwit_trust::{Credential, door::Wanted};
use hyper::{Method, Response, body::Incoming};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

impl Door {
    /// Returns how far the clock is from ours of whoever is there. Nothing is shown to them, and nothing
    /// that they say is believed but this: it is to tell why a certificate is not.
    pub fn clock_of_anybody(&self) -> Result<Option<Duration>> {
        let inner = &self.0;
        let mut visit = inner.reach(&Wanted::Anybody, &Credential::nobody())?;
        let request = inner.request(Method::GET, "/healthz", JSON_TYPE, Sent::whole(""));
        let answer = visit.ask(request, "asking for the time")?;
        Ok(Inner::skew_in(&answer))
    }
}

impl Inner {
    /// Returns how far the date of an answer is from our clock.
    pub(super) fn skew_in(answer: &Response<Incoming>) -> Option<Duration> {
        let theirs: HttpDate = answer.headers().get(DATE)?.to_str().ok()?.parse().ok()?;
        let ours = SystemTime::now().duration_since(UNIX_EPOCH);
        Some(ours.unwrap_or_default().abs_diff(theirs.0))
    }
}
