//! `RETR`: files out.

use super::{FtpSession, LinkState, now, text::ToWire};
use crate::base::metrics::TrafficDirection;
use godwit_core::{Algorithm, Digest, Extents, Kind};
use godwit_store::{
    BlockWriter, Checks, EntryKind, Error, Nowhere, Result, SMALL_BYTES, Small, Stat, Store,
    StoreExt, Tuned, Width,
    channel::{DataChannel, FileSending, Watch},
};
use godwit_wire::{
    command::TransferMode,
    server::{self as wire, FtpAnswer, FtpOutcome, Leg, Refusal, Want},
};
use std::{
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// A file to send, and the connections for it.
pub(super) struct SendOrder<'a> {
    pub(super) path: &'a Path,
    pub(super) stat: &'a Stat,
    /// The wanted range, as far as the file has it.
    pub(super) part: Range<u64>,
    pub(super) want: &'a Want,
    pub(super) leg: &'a Leg,
}

impl SendOrder<'_> {
    /// Tells whether a whole small file is sent, and by this node alone.
    fn is_small(&self) -> bool {
        let is_whole = self.part == (0..self.stat.size) && self.want.have.is_empty();
        is_whole && self.leg.share.is_none() && self.stat.size <= SMALL_BYTES
    }

    /// Returns what the receiver lacks, as far as it is for us to send.
    fn lacks(&self) -> Extents {
        let part = &self.part;
        // What the receiver has counts from the start of the part.
        let shift = |at: u64| at.saturating_add(part.start).min(part.end);
        let have = self.want.have.iter();
        let have: Extents = have
            .map(|range| shift(range.start)..shift(range.end))
            .collect();
        let lacks = Extents::from(part.clone()).minus(&have);
        match &self.leg.share {
            Some(share) => {
                let striping = self.leg.striping.unwrap_or_default();
                lacks.and(&striping.share(part.clone(), share.index, share.count))
            }
            None => lacks,
        }
    }
}

impl FtpSession {
    pub(super) fn retrieve(
        &mut self,
        path: &Path,
        want: &Want,
        leg: &Leg,
    ) -> Result<FtpAnswer, Refusal> {
        let stat = self.dir().stat(path)?;
        readable(&stat)?;
        let order = SendOrder {
            path,
            stat: &stat,
            part: want.part.start.min(stat.size)..want.part.end.min(stat.size),
            want,
            leg,
        };
        let begun = Instant::now();
        let id = self.transfer_id();
        let sent = match self.is_sent_striped(stat.size, leg) {
            true => self.send_striped(&order),
            false => self.send(&order),
        };
        let streams = self.streams_used();
        if sent.is_ok() {
            self.links = LinkState::Done;
        }
        self.after_transfer(leg.mode);
        let seconds = begun.elapsed().as_secs_f64();
        match &sent {
            Ok((_, bytes)) => {
                tracing::info!(id, source = %path.display(), target = %self.peer, bytes, seconds, streams, "sent");
            }
            Err(fault) => {
                tracing::info!(id, source = %path.display(), target = %self.peer, seconds, streams, fault = fault.said, "send failed");
            }
        }
        let came_to = sent.as_ref().map(|(_, bytes)| *bytes);
        self.note(
            TrafficDirection::Out,
            (&path.display(), &self.peer),
            seconds,
            streams,
            came_to.map_err(|fault| &*fault.said),
        );
        sent.map(|(outcome, _)| FtpAnswer::Sent(outcome))
    }

    fn send(&mut self, order: &SendOrder<'_>) -> Result<(FtpOutcome, u64), Refusal> {
        let &SendOrder { path, leg, .. } = order;
        if leg.mode == TransferMode::Extended && order.is_small() {
            let small = self.read_small(path)?;
            self.open_to_send(leg)?;
            return self.send_small(&small, leg).map_err(Refusal::from);
        }
        // A denied read is reported before a connection is used for it.
        self.check_readable(path)?;
        self.open_to_send(leg)?;
        self.send_ranges(order).map_err(Refusal::from)
    }

    pub(super) fn check_readable(&self, path: &Path) -> Result<()> {
        let nothing = Extents::new();
        self.dir().read(path, &nothing, 1, &Nowhere).map(drop)
    }

    /// Returns how many connections the last transfer had, at least.
    pub(super) fn streams_used(&self) -> usize {
        match (&self.held, &self.stripes) {
            (Some(held), _) => held.streams().max(1),
            (None, Some(stripes)) => stripes.count().max(1),
            (None, None) => 1,
        }
    }

    /// Sends files that fit into a block, in batches of one write: for many small files the writes cost most. Foreign
    /// clients may wait for the reply before they read, so they get it first.
    fn send_small(&mut self, small: &Small, leg: &Leg) -> Result<(FtpOutcome, u64)> {
        let Small { bytes, stat, .. } = small;
        if !leg.ours || self.queued_bytes + bytes.len() > QUEUE_BYTES_MAX {
            self.flush().map_err(|_| Error::Canceled)?;
        }
        let watch = &self.watch;
        let held = self.held.as_mut().expect("it was opened");
        held.queue_whole(bytes, watch)?;
        self.queued_bytes += bytes.len() + 1;
        if !leg.ours {
            self.flush_data()?;
        }
        let tells = leg.ours && leg.digests;
        let blake3 = tells.then(|| Digest::of(Algorithm::Blake3, bytes).hex());
        let count = bytes.len() as u64;
        let outcome = FtpOutcome {
            size: Some(count),
            modify: stat.mtime,
            touched: stat.touched,
            blake3,
            ..FtpOutcome::default()
        };
        Ok((outcome, count))
    }

    fn read_small(&self, path: &Path) -> Result<Small> {
        let mut next = Some(path.to_owned());
        let mut read = None;
        self.dir()
            .read_small(&mut || next.take(), &mut |_, small| read = Some(small))?;
        read.expect("each file is given once")
    }

    fn send_ranges(&mut self, order: &SendOrder<'_>) -> Result<(FtpOutcome, u64)> {
        let &SendOrder { path, leg, .. } = order;
        self.flush().map_err(|_| Error::Canceled)?;
        let wanted = order.lacks();
        let watch = self.watch_over(leg)?;
        let mut held = self.held.take().expect("it was opened");
        let mode = leg.mode;
        let streams = held.streams().max(1);
        let checks = Checks::blake3(leg.ours && leg.digests && !leg.is_text);
        let mut sending = held.send(mode, order.part.start, checks, &watch);
        let width = leg
            .streams_first
            .filter(|_| leg.mode == TransferMode::Extended)
            .map(|first| Arc::new(Width::tuned(first, streams)));
        let gauge = width.as_ref().map(|width| sending.vary(width));
        let dir = self.dir().clone();
        let size = order.stat.size;
        let tell_leaves = leg.leaves && size > SMALL_BYTES;
        let (mut every, mut last) = (TICK_NEVER, Instant::now());
        if let Some(progress) = leg.progress_every {
            every = progress;
        }
        if tell_leaves {
            every = every.min(LEAVES_EVERY);
        }
        if gauge.is_some() {
            every = every.min(LOOKS_EVERY);
        }
        let read = {
            let mut tick = |machine: &mut wire::Session| {
                if let Some(gauge) = &gauge {
                    gauge.look();
                }
                if tell_leaves {
                    tell_new_leaves(machine, &sending, size);
                }
                if leg
                    .progress_every
                    .is_some_and(|every| last.elapsed() >= every)
                {
                    last = Instant::now();
                    machine.on_progress(&[watch.moved_bytes()], now());
                }
            };
            let text = leg.is_text.then(|| ToWire::new(&sending));
            let into: &dyn BlockWriter = match &text {
                Some(text) => text,
                None => &sending,
            };
            let small = wanted.len_bytes() <= SMALL_BYTES;
            if small {
                dir.read(path, &wanted, 1, into)
            } else {
                self.attended(&watch, every, &mut tick, || {
                    dir.read(path, &wanted, streams, into)
                })
            }
        }?;
        if tell_leaves {
            while tell_new_leaves(&mut self.machine, &sending, size) {}
        }
        let sent = if leg.mode == TransferMode::Extended && wanted.len_bytes() > SMALL_BYTES {
            self.attended(&watch, TICK_NEVER, &mut |_| {}, || sending.end())?
        } else {
            sending.end()?
        };
        if leg.progress_every.is_some() {
            self.machine.on_progress(&[sent.bytes], now());
        }
        self.held = Some(held);
        let root = sent.leaves.as_ref().and_then(|leaves| leaves.root(size));
        let blake3 = root.or(read.digest.filter(|d| d.algorithm() == Algorithm::Blake3));
        let outcome = FtpOutcome {
            size: Some(read.stat.size),
            modify: read.stat.mtime,
            touched: read.stat.touched,
            blake3: blake3.map(|digest| digest.hex()),
            tuned: width.map(|width| told(&width.now())),
            ..FtpOutcome::default()
        };
        Ok((outcome, sent.bytes))
    }
}

fn told(tuned: &Tuned) -> wire::TunedStreams {
    wire::TunedStreams {
        streams: tuned.streams,
        why: tuned.why.word().into(),
        rate: tuned.rate as u64,
        round_trip: tuned.round_trip,
        lost_ppm: (tuned.lost * 1e6) as u32,
    }
}

/// Tells leaves that are wholly sent; `false` if there was none.
fn tell_new_leaves(
    machine: &mut wire::Session,
    sending: &FileSending<&mut DataChannel, &Watch>,
    size: u64,
) -> bool {
    let new = sending
        .leaves(|leaves| leaves.newly_complete(size, LEAVES_MAX))
        .unwrap_or_default();
    machine.on_leaves(&new);
    !new.is_empty()
}

fn readable(stat: &Stat) -> Result<(), Refusal> {
    match stat.kind {
        EntryKind::File => Ok(()),
        EntryKind::Directory => Err(Refusal::of_kind(Kind::IsDirectory, "Is a directory")),
        _ => Err(Refusal::of_kind(Kind::Invalid, "Is not a file")),
    }
}

pub(super) const TICK_NEVER: Duration = Duration::from_secs(3600);
const LEAVES_EVERY: Duration = Duration::from_millis(100);
const LOOKS_EVERY: Duration = Duration::from_millis(100);
const LEAVES_MAX: usize = 64;
/// Less than any socket takes in, so that a client that reads replies first
/// does not block us for ever.
const QUEUE_BYTES_MAX: usize = 128 << 10;
