//! Reading from a server, in the way that suits it.

use super::{
    RemoteOptions,
    attend::{self, TransferStart, attend, begin},
    data::Hosts,
    faults, names,
    session::{Flow, RemoteSession},
};
use crate::{
    BlockWriter, BlockWriterExt, Error, Limit, Read, Result, Stat, Tuned, Width,
    channel::{TransferMode, Watch},
};
use godwit_core::{Block, Chain, Digest, Extents};
use godwit_wire::{
    client::{self, Family, Line, ReplyFacts, Talk},
    marker::Marker,
    reply::Reply,
};
use parking_lot::Mutex;
use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// The path and the ranges of a read.
pub(super) struct RemoteFetch<'a> {
    pub(super) path: &'a Path,
    pub(super) name: Vec<u8>,
    pub(super) want: &'a Extents,
    pub(super) streams: usize,
    pub(super) into: &'a dyn BlockWriter,
    pub(super) options: &'a RemoteOptions,
}

impl RemoteFetch<'_> {
    /// Reads in extended block mode: any ranges at once, over all streams.
    ///
    /// The command lists the ranges that are *not* to be sent. GCT must be given the file's end: with any further
    /// end, it sends that many bytes again, at offsets beyond the end. A node need not be asked first.
    pub(super) fn in_blocks(&self, session: &mut RemoteSession) -> Result<Read> {
        let (want, end) = match session.family() {
            Family::Godwit => (self.want.clone(), OFFSET_MAX),
            _ => {
                let stat = names::stat(session, self.path, &self.name)?;
                let want: Extents = self.want.within(0..stat.size).collect();
                if stat.kind == crate::EntryKind::Directory {
                    return Err(Error::directory(self.path));
                }
                if want.is_empty() && stat.size > 0 {
                    return Ok(Read { stat, digest: None });
                }
                (want, stat.size)
            }
        };
        let wanted = WantedRanges::new(self.into, want.clone(), TransferMode::Extended);
        let mut told = None;
        let mut stat = None;
        for leg in legs(&want) {
            (stat, told) = self.leg(session, &leg, end, &wanted)?;
            if stat.as_ref().is_some_and(|stat| stat.size <= leg.end()) {
                break;
            }
        }
        let stat = match stat {
            Some(stat) => stat,
            None => names::stat(session, self.path, &self.name)?,
        };
        wanted.check_whole(&session.host, stat.size)?;
        // A REST in ranges ends where the file was to end; without one all was asked for.
        if rest_in_ranges(&want, end).is_none() && want.end() < OFFSET_MAX {
            wanted.check_end(self.path, end)?;
        }
        Ok(Read { stat, digest: told })
    }

    /// Reads some ranges with one command.
    fn leg(
        &self,
        session: &mut RemoteSession,
        leg: &Extents,
        end: u64,
        wanted: &WantedRanges<'_>,
    ) -> Result<(Option<Stat>, Option<Digest>)> {
        let is_ours = session.family() == Family::Godwit;
        let watch = new_watch(self.options)?;
        let mut channel = session.open_data(
            Flow::Fetch,
            TransferMode::Extended,
            self.streams,
            Hosts::All,
            &watch,
        )?;
        let (rest, retr) = (
            rest_in_ranges(leg, end),
            Line::new("RETR").bytes(&self.name)?,
        );
        // A node may choose the number of connections in use, unless the user set it.
        let width = self.into.width().filter(|_| is_ours);
        let varies = width.and_then(|width| {
            let settings = &mut session.settings;
            let is_due = width.is_tuned() || settings.varies();
            is_due.then(|| settings.parallelism(width.streams(), width.most()))?
        });
        let mut lines: Vec<Line> = varies.iter().chain(&rest).cloned().collect();
        lines.push(retr);
        if !is_ours {
            // Executed at the end of the transfer: the attributes of the file then.
            lines.push(Line::new("MLST").bytes(&self.name)?);
        }
        session.say_all(&lines)?;
        if varies.is_some() {
            // An older one that does not know this uses all of them.
            session.final_reply("naming streams")?;
        }
        if rest.is_some() {
            let reply = session.final_reply("naming ranges")?;
            if !reply.is_positive() {
                // What follows would be the whole file.
                session.is_broken = true;
            }
            faults::check(&session.host, self.path, &reply)?;
        }
        let patience = if is_ours {
            self.options.stall
        } else {
            CONNECT_BACK_MAX.min(self.options.stall)
        };
        let moved = begin(session, &mut channel, self.path, patience).and_then(|begun| {
            let carry = || channel.receive(TransferMode::Extended, 0, wanted, &watch);
            let mut on_word = |reply: &Reply| on_leaves(reply, self.into);
            attend(
                session,
                self.options,
                &watch,
                self.path,
                begun,
                carry,
                &mut on_word,
            )
        });
        let (_, last) = match moved {
            Ok(moved) => moved,
            Err(error) => {
                if !is_ours && !session.is_broken {
                    session.final_reply("looking at the file")?;
                }
                return Err(error);
            }
        };
        session.keep_data(
            channel,
            Flow::Fetch,
            TransferMode::Extended,
            self.streams,
            Hosts::All,
        );
        if is_ours {
            let told = ReplyFacts::from_reply(&last).unwrap_or_default();
            let digest = told.blake3.clone();
            tell_width(width, &told);
            return Ok((names::stat_of_told(&told), digest));
        }
        let looked = session.final_reply("looking at the file")?;
        faults::check(&session.host, self.path, &looked)?;
        let facts = client::facts_of(&looked)?;
        Ok((Some(names::stat_of_facts(&facts)), None))
    }

    /// Reads in stream mode: one range after another.
    pub(super) fn in_streams(&self, session: &mut RemoteSession) -> Result<Read> {
        let before = names::stat(session, self.path, &self.name)?;
        if before.kind == crate::EntryKind::Directory {
            return Err(Error::directory(self.path));
        }
        for range in self.want.within(0..before.size) {
            self.stream(session, range, before.size)?;
        }
        let stat = names::stat(session, self.path, &self.name)?;
        Ok(Read { stat, digest: None })
    }

    fn stream(&self, session: &mut RemoteSession, range: Range<u64>, size: u64) -> Result<()> {
        let watch = new_watch(self.options)?;
        let wanted = WantedRanges::new(
            self.into,
            Extents::from(range.clone()),
            TransferMode::Stream,
        );
        let mut channel =
            session.open_data(Flow::Fetch, TransferMode::Stream, 1, Hosts::One, &watch)?;
        if range.start > 0 {
            let reply = session.ask_one(Line::new("REST").and(range.start))?;
            faults::check(&session.host, self.path, &reply)?;
        }
        session.say(&Line::new("RETR").bytes(&self.name)?)?;
        let begun = begin(session, &mut channel, self.path, self.options.stall)?;
        let to_the_end = range.end == size;
        if to_the_end {
            let carry = || {
                channel
                    .receive(TransferMode::Stream, range.start, &wanted, &watch)
                    .map(drop)
            };
            let attended = attend(
                session,
                self.options,
                &watch,
                self.path,
                begun,
                carry,
                &mut |_| Ok(()),
            );
            wanted.check_end(self.path, size)?;
            attended?;
        } else {
            match channel.receive(TransferMode::Stream, range.start, &wanted, &watch) {
                Err(_) if wanted.has_enough() => {}
                received => drop(received?),
            }
            if matches!(begun, TransferStart::Moving) {
                attend::break_off(session, channel)?;
            }
        }
        wanted.check_whole(&session.host, size)
    }
}

/// Notes how the sender tuned its streams.
pub(super) fn tell_width(width: Option<&Arc<Width>>, told: &ReplyFacts) {
    let (Some(width), Some(said)) = (width.filter(|width| width.is_tuned()), &told.tuned) else {
        return;
    };
    width.tell(Tuned {
        streams: said.streams,
        why: Limit::from_word(&said.why).unwrap_or(Limit::Server),
        rate: said.rate as f64,
        round_trip: said.round_trip,
        lost: f64::from(said.lost_ppm) / 1e6,
    });
}

/// Returns a watch for one transfer.
pub(super) fn new_watch(options: &RemoteOptions) -> Result<Watch> {
    Watch::new(options.stall).map_err(|cause| Error::io("a wake", cause))
}

/// Passes on the server's hashes of leaves.
fn on_leaves(reply: &Reply, into: &dyn BlockWriter) -> Result<()> {
    if let Some(Marker::Leaves { first, chains }) = Marker::from_reply(reply)? {
        for (leaf, chain) in (first..).zip(chains) {
            into.said(leaf, chain)?;
        }
    }
    Ok(())
}

/// Returns the command with the ranges that are *not* to be sent; `None`: all are.
fn rest_in_ranges(want: &Extents, end: u64) -> Option<Line> {
    let already = want.missing(0..end);
    (!already.is_empty()).then(|| Line::new("REST").and(already))
}

/// Divides the wanted ranges into pieces that fit on a command line.
fn legs(want: &Extents) -> Vec<Extents> {
    let ranges: Vec<_> = want.iter().collect();
    if ranges.is_empty() {
        return vec![Extents::new()]; // an empty file
    }
    ranges
        .chunks(RANGES_MAX)
        .map(|chunk| chunk.iter().cloned().collect())
        .collect()
}

/// Passes on the wanted bytes, and notes which arrived.
pub(super) struct WantedRanges<'a> {
    into: &'a dyn BlockWriter,
    left: Mutex<Extents>,
    whole: Extents,
    mode: TransferMode,
    /// Bytes arrived behind the last range that was asked for.
    extra: AtomicBool,
}

impl<'a> WantedRanges<'a> {
    pub(super) fn new(into: &'a dyn BlockWriter, want: Extents, mode: TransferMode) -> Self {
        Self {
            into,
            mode,
            extra: AtomicBool::new(false),
            left: Mutex::new(want.clone()),
            whole: want,
        }
    }

    /// Tells whether nothing is missing any more.
    pub(super) fn has_enough(&self) -> bool {
        self.left.lock().is_empty()
    }

    /// Data must end where the server said that the file ends.
    fn check_end(&self, path: &Path, size: u64) -> Result<()> {
        if !self.extra.load(Relaxed) {
            return Ok(());
        }
        Err(Error::changed(
            path,
            format!("the server said {size} bytes, and sent more"),
        ))
    }

    /// A read that ends early is an error, never a short success.
    pub(super) fn check_whole(&self, host: &str, size: u64) -> Result<()> {
        let left = self.left.lock();
        let missing: u64 = left.within(0..size).map(|r| r.end - r.start).sum();
        if missing == 0 {
            return Ok(());
        }
        let wanted: u64 = self.whole.within(0..size).map(|r| r.end - r.start).sum();
        Err(attend::ended_early(host, wanted - missing, wanted))
    }
}

impl BlockWriter for WantedRanges<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let range = block.range();
        for part in self.whole.within(range.clone()) {
            let at = |offset: u64| (offset - block.offset) as usize;
            self.into.put(Block::at(
                part.start,
                &block.bytes[at(part.start)..at(part.end)],
            ))?;
        }
        if range.end > self.whole.end() {
            self.extra.store(true, Relaxed);
        }
        let mut left = self.left.lock();
        left.remove(range.clone());
        // In stream mode there is no other way to say that it is enough; in blocks
        // GCT sends what lies beyond the end of a file, at offsets beyond it.
        if self.mode == TransferMode::Stream && left.is_empty() && range.end > self.whole.end() {
            return Err(Error::Canceled);
        }
        Ok(())
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.into.said(leaf, chain)
    }
}

/// How long a GridFTP server may take to connect to us before we believe that
/// something between us forbids it.
const CONNECT_BACK_MAX: Duration = Duration::from_secs(8);
/// Ranges on one command line: some 20 kB, which GCT reads.
const RANGES_MAX: usize = 500;
/// Offsets in other programs are signed.
const OFFSET_MAX: u64 = i64::MAX as u64;
