//! Partial uploads at targets that no writer will finish.
//!
//! They are given up there as soon as here, if the target can be reached. A sweep of the target removes those that a
//! restart of this node forgets.

use crate::{
    Result, Who,
    plan::{all::All, state::State},
};
use godwit_core::{Url, holding::Mode};
use godwit_store::Sink;
use std::time::Instant;

/// An upload that nobody will finish.
pub(crate) enum Leftover {
    /// Its conversation is still there.
    Open(Box<dyn Sink>),
    /// The target may have something of it.
    Lying(Lying),
}

/// By what the target knows it.
pub(crate) struct Lying {
    pub url: Url,
    pub who: Who,
    pub upload: String,
    /// Newer than all that were.
    pub attempt: u64,
    pub tries: u32,
    pub until: Option<Instant>,
}

impl State {
    /// Takes what the target may have of an upload, for it to be given up there. To be asked before it has another
    /// URL.
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

impl All {
    /// Takes one that can be given up now, or returns when to look again.
    pub(crate) fn next_leftover(&mut self) -> Result<Leftover, Option<Instant>> {
        let now = Instant::now();
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
