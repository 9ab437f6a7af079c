//! The receiving end.

use super::{
    DataChannel, LinkSource, LinkWay, Stripe, TransferMode, Watch,
    link::{DataLink, Waited},
    others_max,
    safety::{LastWord, LinkSide},
};
use crate::{BlockWriter, Error, Result, watch::Patience};
use godwit_core::{Block, LEAF_BYTES};
use godwit_sys::{Wake, wait_readable};
use godwit_wire::{
    self as wire,
    mode_e::{BlockContent, HEADER_BYTES, Header, StreamEnds},
};
use parking_lot::Mutex;
use std::{io, ops::Range, os::fd::AsFd, thread, time::Instant};

/// The result of a receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Payload.
    pub bytes: u64,
    /// Connections that carried it.
    pub streams: u64,
    /// In MODE S under protection: the closing word that did not arrive before the connection ended. An attacker may
    /// have cut off the rest.
    pub lacks: Option<LastWord>,
}

impl Received {
    /// Refuses an end that may be too early, because the closing word did not arrive.
    pub fn whole(self) -> Result<Self> {
        match self.lacks {
            None => Ok(self),
            Some(word) => Err(Error::lost(
                "the peer",
                format!("receiving data: {word}"),
                io::ErrorKind::UnexpectedEof,
            )),
        }
    }
}

impl DataChannel {
    /// Receives one file into `into`, until its end. Offsets of blocks count from `base`.
    ///
    /// In MODE E, connections that arrive meanwhile are accepted. A connection that never sends a proper block is a
    /// stranger, and is dropped while the transfer continues.
    pub fn receive(
        &mut self,
        mode: TransferMode,
        base: u64,
        into: &dyn BlockWriter,
        watch: &Watch,
    ) -> Result<Received> {
        self.collect(watch)?;
        match mode {
            TransferMode::Stream => {
                let mut stripe = match self.links.pop() {
                    Some(stripe) => stripe,
                    None => self.reach.next(0, watch)?.swap_remove(0),
                };
                receive_stream(&mut stripe.link, base, into, watch)
            }
            TransferMode::Extended => self.receive_blocks(base, into, watch),
        }
    }

    /// Tells whether the one connection of MODE S ends by `deadline` with at most `bytes_max`:
    /// then [`DataChannel::receive`] does not wait for anything.
    pub fn ends_before(&mut self, deadline: Instant, bytes_max: usize) -> Result<bool> {
        match self.links.last_mut() {
            Some(stripe) if self.coming.is_none() => stripe.link.ends_before(deadline, bytes_max),
            _ => Ok(false),
        }
    }

    /// Receives a whole small file in the calling thread.
    ///
    /// Reads one connection after the other. GCT makes as many as it may for a single byte too;
    /// some are made when the first already carries the byte.
    pub fn receive_whole(&mut self, bytes_max: u64, watch: &Watch) -> Result<Vec<u8>> {
        self.collect(watch)?;
        let (mut bytes, mut ends) = (Vec::new(), AllEnds::of(&self.reach.way));
        let mut patience = watch.patience();
        let mut nth = 0;
        while !ends.is_complete() {
            if nth == self.links.len() {
                self.links.extend(self.reach.next(nth, watch)?);
            }
            let Stripe { link, index } = &mut self.links[nth];
            let index = *index;
            if link.due_side() == Some(LinkSide::Accepted)
                && link.finish_handshake(&mut patience).is_err()
            {
                watch.canceled().check()?;
                self.links.remove(nth); // a stranger
                continue;
            }
            let header = header(link, &mut patience)?.ok_or_else(|| ended_early(link))?;
            ends.on_header(index, &header)
                .map_err(|bad| misbehaved(link, &bad))?;
            if let BlockContent::Data(range) = header.what {
                if range.end > bytes_max {
                    let why = format!("{} bytes were announced as at most {bytes_max}", range.end);
                    return Err(misbehaved(link, &wire::Error::BadBlock { why }));
                }
                take(
                    link,
                    &mut bytes,
                    range.start as usize..range.end as usize,
                    &mut patience,
                )?;
            }
            if header.close {
                self.links.remove(nth);
            } else if header.end_of_data {
                nth += 1;
            }
        }
        watch.moved(bytes.len() as u64);
        Ok(bytes)
    }

    fn receive_blocks(
        &mut self,
        base: u64,
        into: &dyn BlockWriter,
        watch: &Watch,
    ) -> Result<Received> {
        let failed = |cause| Error::lost("the peer", "starting to receive", cause);
        let round = Round {
            base,
            into,
            watch,
            over: Wake::new().map_err(failed)?,
            state: Mutex::new(RoundState::of(&self.reach.way)),
        };
        let links = std::mem::take(&mut self.links);
        let mut kept = if links.len() == 1 && !self.reach.has_pending() {
            round.one(links, &self.reach)
        } else {
            round.many(links, &self.reach)
        }?;
        kept.iter_mut()
            .for_each(|stripe| stripe.link.release_buffers());
        self.links = kept;
        let state = round.state.lock();
        Ok(Received {
            bytes: state.bytes,
            streams: state.streams,
            lacks: None,
        })
    }
}

/// One transfer in MODE E.
struct Round<'a> {
    base: u64,
    into: &'a dyn BlockWriter,
    watch: &'a Watch,
    over: Wake,
    state: Mutex<RoundState>,
}

struct RoundState {
    ends: AllEnds,
    bytes: u64,
    streams: u64,
    error: Option<Error>,
    /// The last connection that failed to prove the right identity, and when.
    refused: Option<(Error, Instant)>,
    kept: Vec<Stripe>,
}

impl RoundState {
    fn of(way: &LinkWay) -> Self {
        Self {
            ends: AllEnds::of(way),
            bytes: 0,
            streams: 0,
            error: None,
            refused: None,
            kept: Vec::new(),
        }
    }
}

/// The counts of ends, one for each sender that announces its own. All that connect to one of our addresses count as
/// one sender: they agree on the announcement.
struct AllEnds(Vec<StreamEnds>);

impl AllEnds {
    fn of(way: &LinkWay) -> Self {
        let count = match way {
            LinkWay::Listen(_) => 1,
            LinkWay::Connect(to) => to.len().max(1),
        };
        Self(vec![StreamEnds::default(); count])
    }

    fn on_header(&mut self, index: usize, header: &Header) -> wire::Result<()> {
        match self.0.get_mut(index) {
            Some(ends) => ends.on_header(header),
            None => Ok(()),
        }
    }

    fn is_complete(&self) -> bool {
        self.0.iter().all(StreamEnds::is_complete)
    }
}

/// How a connection ended.
enum Fate {
    /// Its part is over; it may serve again.
    Ended,
    /// Its part is over, and so is it.
    Closed,
    /// The transfer ended without it.
    Idle,
    /// Others are knocking.
    Knocked,
    /// The connection never sent a valid block.
    Stranger,
}

impl Round<'_> {
    /// Receives on one connection in the calling thread, until another one arrives.
    fn one(&self, mut links: Vec<Stripe>, reach: &LinkSource) -> Result<Vec<Stripe>> {
        let mut stripe = links.pop().expect("the caller has counted");
        match self.drain(&mut stripe, Some(reach))? {
            Fate::Ended if self.is_over() => Ok(vec![stripe]),
            Fate::Closed if self.is_over() => Ok(Vec::new()),
            Fate::Ended => {
                self.state.lock().kept.push(stripe);
                self.many(Vec::new(), reach)
            }
            Fate::Closed | Fate::Stranger => self.many(Vec::new(), reach),
            Fate::Knocked | Fate::Idle => self.many(vec![stripe], reach),
        }
    }

    /// Receives on all connections at once, a thread each.
    fn many(&self, links: Vec<Stripe>, reach: &LinkSource) -> Result<Vec<Stripe>> {
        thread::scope(|scope| {
            let start = |stripe: Stripe| {
                thread::Builder::new()
                    .spawn_scoped(scope, move || self.run(stripe))
                    .map(drop)
            };
            let started = links.into_iter().try_for_each(start);
            let outcome = started
                .map_err(|cause| Error::system("a thread", cause))
                .and_then(|()| self.admit(reach, &start));
            if let Err(error) = outcome {
                self.fail(error);
            }
        });
        let mut state = self.state.lock();
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut state.kept)),
        }
    }

    /// Lets further connections in until the transfer is over.
    fn admit(&self, reach: &LinkSource, start: &dyn Fn(Stripe) -> io::Result<()>) -> Result<()> {
        let mut patience = self.watch.patience();
        loop {
            if self.is_over() {
                return Ok(());
            }
            let door = match &reach.way {
                LinkWay::Listen(listener) => listener.as_fd(),
                LinkWay::Connect(_) => self.over.as_fd(),
            };
            let fds = [self.over.as_fd(), door, patience.canceled()];
            let lost = |cause| Error::lost("the peer", "waiting for streams", cause);
            match wait_readable(fds, patience.next()).map_err(lost)? {
                [true, ..] => return Ok(()),
                [_, true, _] => {
                    if let Some(stripe) = reach.pending() {
                        start(stripe).map_err(lost)?;
                    }
                }
                _ => {
                    patience.waited("the peer", "receiving data")?;
                    self.check_refused()?;
                }
            }
        }
    }

    /// Returns the error of the refused connection if there was no other: the refused one was probably the right
    /// peer.
    fn check_refused(&self) -> Result<()> {
        let mut state = self.state.lock();
        let is_due = |(error, at): &mut (Error, Instant)| at.elapsed() > others_max(error);
        match state.refused.take_if(is_due) {
            Some((error, _)) if state.streams == 0 => Err(error),
            _ => Ok(()),
        }
    }

    fn run(&self, mut stripe: Stripe) {
        match self.drain(&mut stripe, None) {
            Ok(Fate::Ended | Fate::Idle) => self.state.lock().kept.push(stripe),
            Ok(_) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Reads blocks from one connection until its part is over.
    fn drain(&self, stripe: &mut Stripe, knocking: Option<&LinkSource>) -> Result<Fate> {
        let Stripe { link, index } = stripe;
        let mut patience = self.watch.patience();
        let mut spoke = false;
        if link.due_side() == Some(LinkSide::Connected) {
            link.finish_handshake(&mut patience)?;
        }
        loop {
            if link.ahead().is_empty()
                && let Waited::Over = self.wait(link, knocking, &mut patience)?
            {
                return Ok(if self.is_over() {
                    Fate::Idle
                } else {
                    Fate::Knocked
                });
            }
            if link.due_side().is_some()
                && let Err(error) = link.finish_handshake(&mut patience)
            {
                self.watch.canceled().check()?;
                self.state.lock().refused = Some((error, Instant::now()));
                return Ok(Fate::Stranger);
            }
            let header = match header(link, &mut patience) {
                Ok(Some(header)) => header,
                Ok(None) | Err(Error::PeerMisbehaved { .. }) if !spoke => {
                    return Ok(Fate::Stranger);
                }
                Ok(None) => return Err(ended_early(link)),
                Err(error) => return Err(error),
            };
            self.state.lock().streams += u64::from(!spoke);
            spoke = true;
            if let BlockContent::Data(range) = &header.what {
                self.payload(link, range.clone(), &mut patience)?;
            }
            let counted = self.state.lock().ends.on_header(*index, &header);
            counted.map_err(|bad| misbehaved(link, &bad))?;
            if self.is_over() {
                self.over.raise();
            }
            if header.close {
                return Ok(Fate::Closed);
            }
            if header.end_of_data {
                return Ok(Fate::Ended);
            }
        }
    }

    fn wait(
        &self,
        link: &DataLink,
        knocking: Option<&LinkSource>,
        patience: &mut Patience<'_>,
    ) -> Result<Waited> {
        let other = match knocking {
            Some(LinkSource {
                way: LinkWay::Listen(listener),
                ..
            }) => listener.as_fd(),
            _ => self.over.as_fd(),
        };
        link.wait_for_data(other, patience)
    }

    /// Hands on the payload of a block, in pieces that lie within one leaf.
    fn payload(
        &self,
        link: &mut DataLink,
        range: Range<u64>,
        patience: &mut Patience<'_>,
    ) -> Result<()> {
        let beyond = wire::Error::BadBlock {
            why: "it ends beyond the largest offset".into(),
        };
        self.base
            .checked_add(range.end)
            .ok_or_else(|| misbehaved(link, &beyond))?;
        let (mut offset, end) = (self.base + range.start, self.base + range.end);
        while offset < end {
            let len = (end - offset).min(LEAF_BYTES - offset % LEAF_BYTES) as usize;
            let whole = link.fill(len, patience);
            let came = link.ahead().len().min(len);
            self.land(link, offset, came)?;
            if !whole? {
                return Err(ended_early(link));
            }
            offset += len as u64;
        }
        Ok(())
    }

    fn land(&self, link: &mut DataLink, offset: u64, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if self.state.lock().error.is_some() {
            return Err(Error::Canceled); // the error of another thread is the one that counts
        }
        self.into.put(Block::at(offset, &link.ahead()[..len]))?;
        link.consume(len);
        self.watch.moved(len as u64);
        self.state.lock().bytes += len as u64;
        Ok(())
    }

    fn fail(&self, error: Error) {
        self.state.lock().error.get_or_insert(error);
        self.over.raise();
    }

    fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.error.is_some() || state.ends.is_complete()
    }
}

impl LinkSource {
    fn has_pending(&self) -> bool {
        matches!(&self.way, LinkWay::Listen(listener)
            if wait_readable([listener.as_fd()], std::time::Duration::ZERO).is_ok_and(|[ready]| ready))
    }
}

fn receive_stream(
    link: &mut DataLink,
    base: u64,
    into: &dyn BlockWriter,
    watch: &Watch,
) -> Result<Received> {
    let mut patience = watch.patience();
    let mut received = Received {
        streams: 1,
        ..Received::default()
    };
    loop {
        let offset = base + received.bytes;
        let len = (LEAF_BYTES - offset % LEAF_BYTES) as usize;
        let whole = link.fill(len, &mut patience);
        let came = link.ahead().len().min(len);
        if came > 0 {
            into.put(Block::at(offset, &link.ahead()[..came]))?;
            link.consume(came);
            watch.moved(came as u64);
            received.bytes += came as u64;
        }
        if !whole? {
            received.lacks = link.missing_last_word();
            return Ok(received);
        }
    }
}

/// Copies a payload to its place.
fn take(
    link: &mut DataLink,
    bytes: &mut Vec<u8>,
    at: Range<usize>,
    patience: &mut Patience<'_>,
) -> Result<()> {
    if !link.fill(at.len(), patience)? {
        return Err(ended_early(link));
    }
    if bytes.len() == at.start {
        bytes.extend_from_slice(&link.ahead()[..at.len()]);
    } else {
        bytes.resize(bytes.len().max(at.end), 0);
        bytes[at.clone()].copy_from_slice(&link.ahead()[..at.len()]);
    }
    link.consume(at.len());
    Ok(())
}

/// Reads a header; `None` if the connection ended instead.
fn header(link: &mut DataLink, patience: &mut Patience<'_>) -> Result<Option<Header>> {
    if !link.fill(HEADER_BYTES, patience)? {
        return Ok(None);
    }
    let bytes = link.ahead().first_chunk().expect("filled");
    let header = Header::decode(bytes).map_err(|bad| misbehaved(link, &bad))?;
    link.consume(HEADER_BYTES);
    Ok(Some(header))
}

fn misbehaved(link: &DataLink, bad: &wire::Error) -> Error {
    Error::misbehaved(link.host(), bad.to_string())
}

fn ended_early(link: &DataLink) -> Error {
    Error::lost(
        link.host(),
        "receiving data, before the end was announced",
        io::ErrorKind::UnexpectedEof,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_senders_each_must_end() {
        let to = [1, 2].map(|port| ([127, 0, 0, 1], port).into());
        let mut ends = AllEnds::of(&LinkWay::Connect(to.into()));
        for (index, is_complete) in [(0, false), (1, true)] {
            ends.on_header(index, &Header::end_of_file(1)).unwrap();
            assert_eq!(ends.is_complete(), is_complete, "after {index}");
        }
    }
}
