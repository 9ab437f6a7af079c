//! Third-party transfer: the target receives bytes directly from the source, and none pass through us. We set the
//! addresses, read both servers' replies, and compare them.

use super::{DeliverPhase, Delivering};
use crate::{
    Error, Read, Result, Width,
    channel::TransferMode,
    remote::{
        Remote, faults,
        fetch::tell_width,
        headway::Headway,
        names, proof,
        session::{PairSettings, RemoteSession, Warm},
    },
};
use godwit_core::{Extents, LEAF_BYTES};
use godwit_sys::wait_readable;
use godwit_wire::{
    client::{Family, Line, ReplyFacts, Talk},
    marker::Marker,
    reply::Reply,
};
use std::{
    ops::Range,
    os::fd::AsFd,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Both ends of one transfer.
struct RelayEnds<'a> {
    source: RemoteSession,
    target: RemoteSession,
    path: &'a Path,
    stall: Duration,
    /// Called with the ranges that landed, as the target reports them.
    on: &'a dyn Fn(Range<u64>),
    landed: Extents,
    /// Connections of the transfer before are to serve again.
    reuses: &'a mut bool,
    /// The connections that can serve the next transfer, if this one ends well.
    pair: Option<PairSettings>,
    /// The error by which the source was lost, while the target continues.
    lost: Option<Error>,
}

impl Delivering {
    /// Has `want` sent by `source` itself. `None`: these two cannot reach each
    /// other, or will not; nothing has moved.
    pub(super) fn relay(
        &self,
        from: &Remote,
        path: &Path,
        want: &Extents,
        on: &dyn Fn(Range<u64>),
    ) -> Result<Option<Read>> {
        let mut reuses = true;
        let relayed = self.relay_over(&mut reuses, from, path, want, on)?;
        if relayed.is_some() || !reuses {
            return Ok(relayed);
        }
        // One of the servers has closed the connections meanwhile.
        reuses = false;
        self.relay_over(&mut reuses, from, path, want, on)
    }

    /// Relays as `relay` does; if `reuses` is set, over the connections of the transfer before. Sets whether there
    /// were any.
    fn relay_over(
        &self,
        reuses: &mut bool,
        from: &Remote,
        path: &Path,
        want: &Extents,
        on: &dyn Fn(Range<u64>),
    ) -> Result<Option<Read>> {
        let target = self.session()?;
        let mut ends = RelayEnds {
            source: from.0.take_for(&target)?,
            target,
            path,
            stall: self.remote.0.options.stall,
            on,
            landed: Extents::new(),
            reuses,
            pair: None,
            lost: None,
        };
        let relayed = self.run(&mut ends, from, want);
        match relayed {
            Ok(Some(_)) => ends.keep_pair(),
            // Each may still wait for the other; hanging up is what ends both.
            _ => (ends.source.is_broken, ends.target.is_broken) = (true, true),
        }
        let RelayEnds { source, target, .. } = ends;
        from.0.give_back(source);
        *self.phase.write() = DeliverPhase::Idle(match target.is_broken {
            true => None,
            false => Some(Box::new(target)),
        });
        relayed
    }

    fn run(&self, ends: &mut RelayEnds<'_>, from: &Remote, want: &Extents) -> Result<Option<Read>> {
        let is_plain = [&ends.source, &ends.target]
            .iter()
            .any(|s| s.family() == Family::Plain);
        let mode = if is_plain {
            TransferMode::Stream
        } else {
            TransferMode::Extended
        };
        let name = from.name(&ends.source, ends.path)?;
        let Some(retr) = self.prepare(ends, mode, want, &name)? else {
            return Ok(None);
        };
        ends.source.say(&retr)?;
        let Some((sent, written)) = ends.hear(self)? else {
            return Ok(None);
        };
        let told = ReplyFacts::from_reply(&sent).unwrap_or_default();
        tell_width(Some(&self.plan.width), &told);
        {
            let mut given = self.given.lock();
            given.bytes = given.bytes.or(want);
            given.is_drawn = true;
        }
        self.take_in(&written);
        for range in self.told.state().landed.and(want).iter() {
            (ends.on)(range);
        }
        let stat = match names::stat_of_told(&told) {
            Some(stat) => stat,
            None => names::stat(&mut ends.source, ends.path, &name)?,
        };
        Ok(Some(Read {
            stat,
            digest: told.blake3,
        }))
    }

    /// Brings both servers to where only the command that sends is missing, and
    /// returns that; `None` if one of them will not have a third party.
    fn prepare(
        &self,
        ends: &mut RelayEnds<'_>,
        mode: TransferMode,
        want: &Extents,
        name: &[u8],
    ) -> Result<Option<Line>> {
        let start = want.iter().next().map_or(0, |range| range.start);
        let whole_rest = want.count() == 1 && Some(want.end()) == self.plan.size;
        if mode == TransferMode::Stream && !whole_rest {
            return Ok(None); // a stream is the rest of a file, not a part of it
        }
        if !ends.agree(&self.remote)? || !ends.meet(mode, &self.plan.width)? {
            return Ok(None);
        }
        let landed = want.missing(0..self.plan.size.unwrap_or(u64::MAX));
        let stor = self.plan.commands(&landed, start)?;
        ends.target.say_all(&stor)?;
        for _ in 1..stor.len() {
            let reply = ends.target.final_reply("preparing an upload")?;
            faults::check(&ends.target.host, &self.plan.path, &reply)?;
        }
        let rest = match mode {
            TransferMode::Stream => (start > 0).then(|| Line::new("REST").and(start)),
            TransferMode::Extended => (!landed.is_empty()).then(|| Line::new("REST").and(&landed)),
        };
        if let Some(rest) = rest {
            let reply = ends.source.ask_one(rest)?;
            faults::check(&ends.source.host, ends.path, &reply)?;
        }
        Ok(Some(Line::new("RETR").bytes(name)?))
    }
}

impl RelayEnds<'_> {
    /// Has both ask the same of data connections. Returns false if they cannot.
    fn agree(&mut self, remote: &Remote) -> Result<bool> {
        match (&self.source.safety, &self.target.safety) {
            // What one of them cannot prove, the other must not ask for.
            (Some(_), None) => self.source.stop_proving()?,
            (None, Some(_)) => self.target.stop_proving()?,
            // They know us by different names, and one need not believe who vouches for the other.
            (Some(one), Some(other)) if one.expect() != other.expect() => {
                if ![&self.source, &self.target]
                    .iter()
                    .all(|s| s.peer.features.has("DCSC"))
                {
                    tracing::info!("one of the servers does not know DCSC; going through here");
                    return Ok(false);
                }
                let shown = remote.throw_away(&self.target)?;
                proof::show_instead(&mut self.source, &shown)?;
                proof::show_instead(&mut self.target, &shown)?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Has the two servers connected with each other, or about to be. Returns false
    /// if one of them will not.
    fn meet(&mut self, mode: TransferMode, width: &Width) -> Result<bool> {
        let hosts = self.source.peer.stripes().max(self.target.peer.stripes());
        let streams = self.source.relay_streams(width, hosts);
        let can_be_kept = mode == TransferMode::Extended && hosts == 1;
        if *self.reuses && can_be_kept {
            self.pair = common(self.source.pair(), self.target.pair(), streams);
        }
        *self.reuses = self.pair.is_some();
        if *self.reuses {
            return Ok(true);
        }
        let to = self.target.relay_target(mode)?;
        let id = NEXT_PAIR.fetch_add(1, Relaxed);
        let at = Instant::now();
        self.pair = can_be_kept.then_some(PairSettings { id, streams, at });
        // Told to each host of the source for itself.
        let streams = self.source.relay_streams(width, hosts.max(to.len()));
        self.source.relay_source(mode, streams, &to)
    }

    fn keep_pair(&mut self) {
        let pair = self.pair.map(|pair| PairSettings {
            at: Instant::now(),
            ..pair
        });
        self.source.warm = pair.map(Warm::Theirs);
        self.target.warm = pair.map(Warm::Theirs);
    }

    /// Reads both servers' replies up to the final ones; `None` if they could
    /// not reach each other. If the source is lost, the target may still receive
    /// bytes in flight, and its replies are read meanwhile.
    fn hear(&mut self, delivering: &Delivering) -> Result<Option<(Reply, Reply)>> {
        let (mut sent, mut written) = (None::<Reply>, None::<Reply>);
        let mut since = Instant::now();
        let mut headways = [Headway::default(), Headway::default()];
        loop {
            while sent.is_none()
                && self.lost.is_none()
                && let Some(reply) = self.source.heard()?
            {
                if reply.is_final() || headways[0].gets_on(&reply) {
                    since = Instant::now();
                }
                if reply.is_final() {
                    sent = Some(reply)
                } else {
                    on_source(delivering, &reply)?
                }
            }
            while written.is_none()
                && let Some(reply) = self.target.heard()?
            {
                if reply.is_final() || headways[1].gets_on(&reply) {
                    since = Instant::now();
                }
                if reply.is_final() {
                    written = Some(reply)
                } else {
                    self.on_target(delivering, &reply)?
                }
            }
            match (&sent, &written) {
                (Some(a), Some(b)) if a.is_positive() && b.is_positive() => break,
                (Some(_), Some(_)) => return self.refused(delivering, sent, written),
                // The other side often says why, if it is given a moment.
                (Some(reply), None) | (None, Some(reply))
                    if !reply.is_positive() && (says_why(reply) || since.elapsed() > MOMENT) =>
                {
                    return self.refused(delivering, sent, written);
                }
                _ => {}
            }
            let is_over = written.is_some() || since.elapsed() > MOMENT;
            if let Some(lost) = self.lost.take_if(|_| is_over) {
                return Err(lost);
            }
            if since.elapsed() > self.stall {
                let host = format!("{} or {}", self.source.host, self.target.host);
                let during = "moving data from server to server";
                return Err(Error::stalled(host, during, since.elapsed()));
            }
            self.wait(delivering, sent.is_some(), written.is_some())?;
        }
        Ok(sent.zip(written))
    }

    fn wait(&mut self, delivering: &Delivering, sent: bool, written: bool) -> Result<()> {
        let cancel = delivering.remote.0.options.cancel.as_fd();
        // A server that has ended may hang up, which would end every wait.
        let is_silent = sent || self.lost.is_some();
        let source = if is_silent {
            cancel
        } else {
            self.source.as_fd()
        };
        let target = if written { cancel } else { self.target.as_fd() };
        let [from, to, stop] = wait_readable([source, target, cancel], MOMENT / 4)
            .map_err(|cause| Error::io("a socket", cause))?;
        if stop {
            return Err(Error::Canceled);
        }
        if from && !is_silent {
            let heard = self.source.listen("moving data from server to server");
            self.lost = heard.err();
        }
        if to && !written {
            self.target.listen("moving data from server to server")?;
        }
        Ok(())
    }

    /// Returns what went wrong: what names a cause counts more than the broken
    /// connection that follows from it.
    fn refused(
        &self,
        delivering: &Delivering,
        sent: Option<Reply>,
        written: Option<Reply>,
    ) -> Result<Option<(Reply, Reply)>> {
        let at_source = sent.and_then(|r| faults::check(&self.source.host, self.path, &r).err());
        let at_target =
            written.and_then(|r| faults::check(&self.target.host, &delivering.plan.path, &r).err());
        let nothing_moved = self.landed.is_empty();
        let error = match (at_source, at_target) {
            (Some(Error::Lost { .. } | Error::Stalled { .. }), Some(error)) => error,
            (Some(error), _) | (None, Some(error)) => error,
            (None, None) => return Ok(None),
        };
        // Servers that do not reach each other are no fault of the file's.
        let unreachable = matches!(error, Error::Lost { .. } | Error::Unsupported { .. });
        if unreachable && nothing_moved && delivering.told.state().chains.is_empty() {
            tracing::info!(%error, "the servers do not reach each other; going through here");
            return Ok(None);
        }
        Err(error)
    }

    fn on_target(&mut self, delivering: &Delivering, reply: &Reply) -> Result<()> {
        let size = delivering.plan.size.unwrap_or(u64::MAX);
        match Marker::from_reply(reply)? {
            Some(Marker::Ranges(ranges)) => {
                ranges.iter().for_each(|range| self.land(range));
                delivering.told.land(&ranges, Some(&delivering.plan.part));
            }
            Some(Marker::Leaves { first, chains }) => {
                for (leaf, chain) in (first..).zip(chains) {
                    self.land(leaf_range(leaf, size));
                    delivering.told.state().chains.insert(leaf, chain);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn land(&mut self, range: Range<u64>) {
        self.landed.insert(range.clone());
        (self.on)(range);
    }
}

/// Returns the connections of an earlier transfer, if both servers keep the same ones and they can serve `streams`.
fn common(
    source: Option<PairSettings>,
    target: Option<PairSettings>,
    streams: (usize, usize),
) -> Option<PairSettings> {
    let serves = |pair: &PairSettings| pair.streams == streams && pair.at.elapsed() < KEPT;
    source.filter(|pair| target == Some(*pair)).filter(serves)
}

/// Takes the source's hashes of leaves, so that this process need not read the file.
fn on_source(delivering: &Delivering, reply: &Reply) -> Result<()> {
    let Some(leaves) = &delivering.leaves else {
        return Ok(());
    };
    if let Some(Marker::Leaves { first, chains }) = Marker::from_reply(reply)? {
        let mut leaves = leaves.lock();
        for (leaf, chain) in (first..).zip(chains) {
            leaves.set(leaf, chain);
        }
    }
    Ok(())
}

/// Tells whether a refusal is of the file: nothing that the other side could say would tell more.
/// An error of the connection is different: the other side may know its cause.
fn says_why(reply: &Reply) -> bool {
    let refused = faults::check("", Path::new(""), reply).err();
    matches!(
        refused,
        Some(
            Error::Missing { .. }
                | Error::Exists { .. }
                | Error::IsDirectory { .. }
                | Error::NotDirectory { .. }
                | Error::NotEmpty { .. }
                | Error::Denied { .. }
                | Error::NoSpace { .. }
                | Error::BadName { .. }
                | Error::Changed { .. }
        )
    )
}

fn leaf_range(leaf: u64, size: u64) -> Range<u64> {
    let start = leaf.saturating_mul(LEAF_BYTES).min(size);
    start..start.saturating_add(LEAF_BYTES).min(size)
}

/// Connections that lay still for longer may have been forgotten on their way.
const KEPT: Duration = Duration::from_secs(30);

static NEXT_PAIR: AtomicU64 = AtomicU64::new(0);

const MOMENT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_file_ends_the_wait() {
        let says_why = |code, text| says_why(&Reply::new(code, text));
        assert!(says_why(550, "f: Permission denied"));
        assert!(says_why(550, "f: No such file or directory"));
        assert!(!says_why(425, "Can't open data connection"));
        assert!(!says_why(426, "Connection closed; transfer aborted"));
        assert!(!says_why(500, "Command failed: something"));
    }

    #[test]
    fn only_what_both_keep_serves_again() {
        let now = Instant::now();
        let pair = |id, streams, at| Some(PairSettings { id, streams, at });
        let one = pair(1, (1, 4), now);
        assert_eq!(common(one, one, (1, 4)), one);
        // Each has connections, but not with the other.
        assert_eq!(common(one, pair(2, (1, 4), now), (1, 4)), None);
        assert_eq!(common(one, None, (1, 4)), None);
        assert_eq!(common(None, one, (1, 4)), None);
        assert_eq!(common(one, one, (4, 4)), None);
        let old = pair(1, (1, 4), now.checked_sub(KEPT).unwrap());
        assert_eq!(common(old, old, (1, 4)), None);
    }
}
