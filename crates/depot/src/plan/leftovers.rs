//! Partial uploads at targets that no writer will finish.
//!
//! This node tells the target to drop them, if it can be reached. A sweep of the target removes those that a restart of
//! this node forgets.

use crate::{
    Result, Who,
    plan::{Plan, state::State},
};
use godwit_core::{Url, holding::Mode};
use godwit_store::Sink;
use std::time::Instant;

/// An upload that no writer will finish.
pub(crate) enum Leftover {
    /// Its connection is still open.
    Open(Box<dyn Sink>),
    /// The target may have a part of it.
    Lying(Lying),
}

/// The name of an upload at its target.
pub(crate) struct Lying {
    pub url: Url,
    pub who: Who,
    pub upload: String,
    /// A number above all earlier attempts.
    pub attempt: u64,
    pub tries: u32,
    pub until: Option<Instant>,
}

impl State {
    /// Takes the part of an upload that the target may have, to be dropped there. Call it before the URL changes.
    pub(crate) fn take_leftover(&mut self, url: &Url, who: &Who) -> Option<Leftover> {
        let reached = self.delivery.upload.sent_as.take();
        if let Some(parked) = self.delivery.upload.parked.take() {
            return Some(Leftover::Open(parked.sink));
        }
        let upload = reached.filter(|_| self.machine.mode() == Mode::Replace)?;
        Some(Leftover::Lying(Lying {
            url: url.clone(),
            who: who.clone(),
            upload,
            attempt: self.machine.attempt() + 1,
            tries: 0,
            until: None,
        }))
    }
}

impl Plan {
    /// Takes one whose target can be asked now, or returns when to look again.
    pub(crate) fn next_leftover(&mut self, now: Instant) -> Result<Leftover, Option<Instant>> {
        let mut until: Option<Instant> = None;
        for at in 0..self.cleanup.leftovers.len() {
            let later = match &self.cleanup.leftovers[at] {
                Leftover::Open(_) => None,
                Leftover::Lying(lying) => {
                    let away = self
                        .backoff
                        .servers
                        .get(&lying.url.host_port())
                        .map(|away| away.until);
                    away.max(lying.until).filter(|until| *until > now)
                }
            };
            match later {
                None => return Ok(self.cleanup.leftovers.swap_remove(at)),
                Some(later) => until = Some(until.map_or(later, |other| other.min(later))),
            }
        }
        Err(until)
    }
}
