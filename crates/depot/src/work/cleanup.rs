//! Gives up, at targets, uploads that no writer will finish.

use crate::{
    error::may_pass,
    inner::Inner,
    plan::{
        backoff::PAUSE,
        leftovers::{Leftover, Lying},
    },
};
use godwit_store::{Write, WriteMode};
use std::time::{Duration, Instant};

impl Inner {
    /// Has the target forget it.
    pub(crate) fn clear(&self, leftover: Leftover) {
        let (cleared, lying) = match leftover {
            Leftover::Open(sink) => (sink.abandon(), None),
            Leftover::Lying(lying) => (self.take_back(&lying), Some(lying)),
        };
        let Err(error) = cleared else {
            return;
        };
        let again = lying.filter(|lying| may_pass(&error) && lying.tries < TRIES_MAX);
        match again {
            Some(mut lying) => {
                lying.tries += 1;
                let pause = (PAUSE * 2u32.pow(lying.tries.min(9))).min(PAUSE_MAX);
                lying.until = Some(Instant::now() + pause);
                let mut plan = self.plan();
                if plan.cleanup.leftovers.len() < LEFTOVERS_MAX {
                    plan.cleanup.leftovers.push(Leftover::Lying(lying));
                }
            }
            None => {
                tracing::info!(%error, "an unfinished upload stays at its target for now");
            }
        }
    }

    /// Takes an upload over, and gives it up.
    fn take_back(&self, lying: &Lying) -> godwit_store::Result<()> {
        let place = (self.connect)(&lying.url, &lying.who)?;
        // At other servers our partial file cannot be told from others.
        if !place.store.can()?.attempts {
            return Ok(());
        }
        let write = Write {
            how: WriteMode::Replace(None),
            id: Some(&lying.upload),
            attempt: lying.attempt,
            resume: true,
            ..Write::default()
        };
        place.store.write(&place.path, &write)?.abandon()
    }
}

/// So often it is tried: for hours.
const TRIES_MAX: u32 = 200;
const PAUSE_MAX: Duration = Duration::from_secs(60);
const LEFTOVERS_MAX: usize = 10_000;
