//! Files through a program of the server, in either direction. The output is unknown until it exists, so no transfer
//! is resumed.

use super::{
    Remote,
    attend::{attend, begin},
    data::Hosts,
    faults,
    fetch::new_watch,
    session::{Flow, RemoteSession},
};
use crate::{
    BlockWriter, Checks, EntryKind, Error, Read, Result, Stat,
    channel::{DataChannel, TransferMode, Watch},
};
use godwit_core::{Block, Chain, Digest, Extents};
use godwit_wire::{
    client::{Family, Line, ReplyFacts, Talk},
    command::Through,
};
use parking_lot::Mutex;
use std::path::Path;

impl Remote {
    /// Runs a file through one of the server's modules, and passes the output to `into`, in order. After an error the
    /// output is incomplete.
    pub(crate) fn read_through(
        &self,
        path: &Path,
        through: &Through,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        self.with(path, |session| {
            let line = line("ERET", through, &self.name(session, path)?)?;
            let counted = CountedRanges::over(into);
            let carry = |channel: &mut DataChannel, watch: &Watch| {
                channel.receive(BLOCKS, 0, &counted, watch)
            };
            let (_, told) = self.over_module(session, path, Flow::Fetch, &[], &line, carry)?;
            Ok(Read {
                stat: Stat::of(EntryKind::File, counted.whole(&session.host, &told)?),
                digest: told.blake3,
            })
        })
    }

    /// Sends the `size` bytes of `fill`, in order; the server publishes its module's output. `digest` is their hash,
    /// if known. Returns what was sent, and the server's hash of the output.
    pub(crate) fn write_through(
        &self,
        path: &Path,
        through: &Through,
        (size, digest): (u64, Option<&Digest>),
        fill: &(dyn Fn(&dyn BlockWriter) -> Result<()> + Sync),
    ) -> Result<(u64, Option<Digest>)> {
        self.with(path, |session| {
            let line = line("ESTO", through, &self.name(session, path)?)?;
            let mut before = vec![Line::new("ALLO").and(size)];
            let digest = digest.filter(|_| session.family() == Family::Godwit);
            before.extend(digest.map(|digest| Line::new("SCKS BLAKE3").and(digest.hex())));
            let checks = Checks::default();
            let carry = |channel: &mut DataChannel, watch: &Watch| {
                let sending = channel.send(BLOCKS, 0, checks, watch);
                fill(&sending)?;
                sending.end()
            };
            let (sent, told) =
                self.over_module(session, path, Flow::Deliver, &before, &line, carry)?;
            Ok((sent.bytes, told.blake3))
        })
    }

    /// Runs `carry` after `line`, which is sent behind the lines `before`. Returns its result and the facts in the
    /// server's reply.
    fn over_module<T: Send>(
        &self,
        session: &mut RemoteSession,
        path: &Path,
        flow: Flow,
        before: &[Line],
        line: &Line,
        carry: impl FnOnce(&mut DataChannel, &Watch) -> Result<T> + Send,
    ) -> Result<(T, ReplyFacts)> {
        let options = &self.0.options;
        let watch = self.watch_over_module(session)?;
        let mut channel = session.open_data(flow, BLOCKS, 1, Hosts::One, &watch)?;
        for reply in session.ask(before)? {
            faults::check(&session.host, path, &reply)?;
        }
        session.say(line)?;
        let begun = begin(session, &mut channel, path, options.stall)?;
        let carry = || carry(&mut channel, &watch);
        let (came, last) = attend(
            session,
            options,
            &watch,
            path,
            begun,
            carry,
            &mut |_| Ok(()),
        )?;
        session.keep_data(channel, flow, BLOCKS, 1, Hosts::One);
        Ok((came, ReplyFacts::from_reply(&last).unwrap_or_default()))
    }

    fn watch_over_module(&self, session: &RemoteSession) -> Result<Watch> {
        match session.family() {
            Family::Plain => Err(Error::unsupported(
                "putting bytes through a module",
                format!("{} is no GridFTP server", session.host),
            )),
            _ => new_watch(&self.0.options),
        }
    }
}

fn line(verb: &str, through: &Through, name: &[u8]) -> Result<Line> {
    let line = Line::new(verb).bytes(through.to_string().as_bytes())?;
    Ok(line.bytes(name)?)
}

/// Notes the ranges that arrive.
struct CountedRanges<'a> {
    into: &'a dyn BlockWriter,
    came: Mutex<Extents>,
}

impl<'a> CountedRanges<'a> {
    fn over(into: &'a dyn BlockWriter) -> Self {
        Self {
            into,
            came: Mutex::default(),
        }
    }

    /// Returns the size; output with a hole, or of another length than the server reported, is incomplete.
    fn whole(&self, host: &str, told: &ReplyFacts) -> Result<u64> {
        let came = self.came.lock();
        let size = told.size.unwrap_or(came.end());
        if came.minus(&Extents::from(0..size)).is_empty() && came.prefix() == size {
            return Ok(size);
        }
        Err(Error::misbehaved(
            host,
            format!("{size} bytes are what its module made, and {came} came"),
        ))
    }
}

impl BlockWriter for CountedRanges<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.into.put(block)?;
        self.came.lock().insert(block.range());
        Ok(())
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.into.said(leaf, chain)
    }
}

const BLOCKS: TransferMode = TransferMode::Extended;
