//! Hearing the server while bytes go out.

use crate::remote::{
    attend::TransferStart,
    headway::Headway,
    parts::{Claim, NoteTiming},
    session::RemoteSession,
};
use crate::{
    Error, Result,
    channel::{Gauge, Watch},
};
use godwit_core::{Chain, Extents};
use godwit_sys::{Wake, wait_readable};
use godwit_wire::{
    client::{Line, ReplyFacts},
    marker::Marker,
    reply::Reply,
};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

/// The server's replies about this upload.
pub(super) struct ReplyListener {
    pub(super) state: Mutex<UploadReplies>,
    pub(super) ended: Condvar,
    /// Raised when no more bytes will be sent.
    pub(super) closing: Wake,
}

#[derive(Default)]
pub(super) struct UploadReplies {
    pub(super) landed: Extents,
    pub(super) chains: BTreeMap<u64, Chain>,
    pub(super) is_closing: bool,
    /// The transfer is not wanted any more.
    pub(super) is_broken_off: bool,
    pub(super) has_ended: bool,
    pub(super) refusal: Option<Reply>,
    /// A node had nothing to keep, so the file has its name already.
    pub(super) published: Option<ReplyFacts>,
}

impl ReplyListener {
    pub(super) fn state(&self) -> MutexGuard<'_, UploadReplies> {
        self.state.lock()
    }

    pub(super) fn close(&self) {
        self.state().is_closing = true;
        self.closing.raise();
    }

    /// Ends a transfer without its end of data, where the server would wait for more connections.
    pub(super) fn break_off(&self) {
        self.state().is_broken_off = true;
        self.close();
    }

    /// Takes the ranges that the server reports as landed, and notes them.
    pub(super) fn land(&self, ranges: &Extents, part: Option<&Claim>) {
        let landed = {
            let mut said = self.state();
            said.landed = said.landed.or(ranges);
            said.landed.clone()
        };
        if let Some(part) = part {
            part.note(&landed, NoteTiming::InTime);
        }
    }

    /// Waits for the end of the dialogue; returns the refusal if it ended with one.
    pub(super) fn refusal_within(&self, patience: Duration) -> Option<Reply> {
        let (mut said, is_open) = (self.state(), |said: &mut UploadReplies| !said.has_ended);
        self.ended.wait_while_for(&mut said, is_open, patience);
        said.refusal.clone()
    }
}

/// Reads the server's replies about one transfer.
pub(super) struct Listening {
    pub(super) session: RemoteSession,
    pub(super) told: Arc<ReplyListener>,
    /// The claim on the part, given up if the wait for the end timed out.
    pub(super) part: Weak<Claim>,
    /// Only nodes are known to obey ABOR at once and to continue.
    pub(super) is_ours: bool,
    pub(super) watch: Arc<Watch>,
    pub(super) gauge: Gauge,
    pub(super) options: crate::remote::RemoteOptions,
}

impl Listening {
    pub(super) fn until_final(mut self, begun: TransferStart) -> (RemoteSession, Result<Reply>) {
        let last = match begun {
            TransferStart::Over(reply) => Ok(reply),
            TransferStart::Moving => self.hear(),
        };
        let mut said = self.told.state();
        said.has_ended = true;
        match &last {
            Ok(reply) if reply.is_positive() => {}
            Ok(reply) => {
                said.refusal = Some(reply.clone());
                self.watch.cancel();
            }
            Err(_) => {
                self.session.is_broken = true;
                self.watch.cancel();
            }
        }
        drop(said);
        self.told.ended.notify_all();
        (self.session, last)
    }

    pub(super) fn hear(&mut self) -> Result<Reply> {
        let (mut since, mut moved) = (Instant::now(), 0);
        let (mut headway, mut is_told) = (Headway::default(), false);
        loop {
            while let Some(reply) = self.session.heard()? {
                if reply.is_final() {
                    if is_told {
                        self.session.hear_within(TO_END, ABORTED_MAX)?;
                    }
                    return Ok(reply);
                }
                if headway.gets_on(&reply) {
                    since = Instant::now();
                }
                self.on_word(&reply)?;
                self.session.check_patience(since, TO_END)?;
            }
            let (is_closing, is_broken_off) = {
                let said = self.told.state();
                (said.is_closing, said.is_broken_off)
            };
            if !is_closing {
                self.gauge.look();
            }
            if is_broken_off && self.is_ours && !is_told {
                self.session.say(&Line::new("ABOR"))?;
                is_told = true;
            }
            // While bytes are left to send, the sending threads check the timeouts.
            if !is_closing || self.watch.moved_bytes() != moved {
                (since, moved) = (Instant::now(), self.watch.moved_bytes());
            }
            self.session.check_patience(since, TO_END)?;
            self.wait(is_closing)?;
        }
    }

    pub(super) fn wait(&mut self, is_closing: bool) -> Result<()> {
        let cancel = self.options.cancel.as_fd();
        let waited = if is_closing {
            wait_readable([self.session.as_fd(), cancel], TICK)
        } else {
            let fds = [self.session.as_fd(), cancel, self.told.closing.as_fd()];
            wait_readable(fds, TICK).map(|[word, stop, _]| [word, stop])
        };
        let [word, stop] = waited.map_err(|cause| Error::io("a socket", cause))?;
        if stop {
            return Err(Error::Canceled);
        }
        if word {
            self.session.listen("sending data")?;
        }
        Ok(())
    }

    pub(super) fn on_word(&self, reply: &Reply) -> Result<()> {
        match Marker::from_reply(reply)? {
            Some(Marker::Ranges(ranges)) => self.told.land(&ranges, self.part.upgrade().as_deref()),
            Some(Marker::Leaves { first, chains }) => {
                let mut said = self.told.state();
                for (leaf, chain) in (first..).zip(chains) {
                    said.chains.insert(leaf, chain);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

const TO_END: &str = "waiting for the end of the upload";
/// How long a server of ours may take to say that it has stopped.
const ABORTED_MAX: Duration = Duration::from_secs(5);
/// How often the connections are examined.
const TICK: Duration = Duration::from_millis(100);
