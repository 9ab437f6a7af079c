//! What targets have of uploads that nobody will finish.
//!
//! It is given up there as soon as it is here, where the target can be reached;
//! what is forgotten here with the end of this node, a sweep there removes.

use crate::{
    Result, Who,
    depot::{All, Inner},
    error::may_pass,
    held::State,
    moving::PAUSE,
};
use godwit_core::{Url, holding::Mode};
use godwit_store::{How, Sink, Write};
use std::time::{Duration, Instant};

/// An upload that nobody will finish.
pub(crate) enum Leftover {
    /// Its conversation is still there.
    Open(Box<dyn Sink>),
    /// The target may have something of it.
    Lying(Lying),
}

/// By what the target knows it.
pub(crate) struct Lying {
    url: Url,
    who: Who,
    upload: String,
    /// Newer than all that were.
    attempt: u64,
    tries: u32,
    until: Option<Instant>,
}

impl State {
    /// Takes what the target may have of an upload, for it to be given up there. To be asked before it has another
    /// URL.
    pub(crate) fn take_leftover(&mut self, url: &Url, who: &Who) -> Option<Leftover> {
        let reached = self.reached.take();
        if let Some(parked) = self.sink.take() {
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
        for at in 0..self.leftovers.len() {
            let later = match &self.leftovers[at] {
                Leftover::Open(_) => None,
                Leftover::Lying(lying) => {
                    let away = self.away.get(&lying.url.host_port()).map(|away| away.until);
                    away.max(lying.until).filter(|until| *until > now)
                }
            };
            match later {
                None => return Ok(self.leftovers.swap_remove(at)),
                Some(later) => until = Some(until.map_or(later, |other| other.min(later))),
            }
        }
        Err(until)
    }
}

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
                let mut all = self.all();
                if all.leftovers.len() < LEFTOVERS_MAX {
                    all.leftovers.push(Leftover::Lying(lying));
                }
            }
            None => {
                tracing::info!(%error, "what a target has of a file that nobody finishes stays there for now");
            }
        }
    }

    /// Takes an upload over, and gives it up.
    fn take_back(&self, lying: &Lying) -> godwit_store::Result<()> {
        let place = (self.connect)(&lying.url, &lying.who)?;
        // Of others nobody knows which partial is ours.
        if !place.store.can()?.attempts {
            return Ok(());
        }
        let write = Write {
            how: How::Replace(None),
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
