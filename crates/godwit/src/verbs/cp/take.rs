//! `godwit cp - URL`: standard input to one file, of unknown length, in order, and
//! only once: what came of a pipe cannot be had again, so nothing can be gone on with.

use super::Cp;
use crate::{
    moving,
    owed::{Reach, Turn},
    places::{self, Place},
    progress,
    screen::Screen,
    signals::Stop,
    trouble::{CliError, Run},
    verbs::Facts,
};
use godwit_core::{Algorithm, Block, Url};
use godwit_store::channel::Cancel;
use godwit_store::engine::{Options, Stores};
use godwit_store::{Checks, EntryKind, Error, Finished, How, Sink, Whole, Write};
use std::{
    fs::File,
    io::{ErrorKind, Read, stdin},
    ops::Range,
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// Copies standard input to `target`.
pub(super) fn take(screen: &Screen, cp: &Cp, sources: usize, target: &Url) -> Run<Facts> {
    let wanted = format!("copy standard input to {target}");
    if sources != 1 || target.means_directory() {
        let fact = "standard input is one file and has no name of its own";
        return Err(CliError::asked(wanted, fact).next("say godwit cp - FILE_OR_URL"));
    }
    if godwit_sys::is_input_closed() {
        return Err(CliError::asked(wanted, "standard input is closed")
            .next("give it something to read: a pipe, a file, or /dev/null"));
    }
    if cp.range().is_some_and(|range| range.start >= LONGEST) {
        let fact = format!("no file can have a byte {LONGEST} or behind it");
        return Err(CliError::asked(wanted, fact).next("give a smaller --offset"));
    }
    let mut turn = Turn::of(screen, cp.moving.dry_run);
    turn.wait(target, Reach::Name, &wanted)?;
    let options = moving::options(&cp.moving)?;
    let stores = Stores::new(options.clone());
    let place = places::open_as(&stores, target, cp.moving.whom.target())?;
    if cp.moving.parents && !cp.moving.dry_run {
        moving::make_parents(&place).map_err(|error| CliError::store(&*wanted, error))?;
    }
    let there = place.store.stat(&place.path).ok().map(|stat| stat.kind);
    if there == Some(EntryKind::Directory) {
        let error = Error::directory(place.path.clone());
        return Err(CliError::store(wanted, error).next("name a file in it"));
    }
    if there.is_some() && cp.no_clobber {
        return Ok(skipped());
    }
    if cp.moving.dry_run {
        moving::would(screen, "copy", &places::url("-".as_ref())?, Some(target), 0)
            .map_err(|error| CliError::store(wanted, error))?;
        return Ok(moving::rehearsed(1, 0));
    }
    let taking = Taking {
        wanted,
        place: &place,
        options: &options,
        range: cp.range(),
    };
    taking.run(cp.no_clobber)
}

/// What is there is left alone.
fn skipped() -> Facts {
    let mut facts = Facts::new();
    facts.insert("skipped".into(), 1.into());
    facts
}

/// Standard input on its way.
struct Taking<'a> {
    wanted: String,
    place: &'a Place,
    options: &'a Options,
    /// In place, and there.
    range: Option<Range<u64>>,
}

impl Taking<'_> {
    fn run(&self, no_clobber: bool) -> Run<Facts> {
        let started = Instant::now();
        let stop = Stop::watch(self.options.cancel.clone());
        let sink = match self
            .place
            .store
            .write(&self.place.path, &self.write(no_clobber))
        {
            Ok(sink) => sink,
            // Somebody was faster.
            Err(Error::Exists { .. }) if no_clobber => return Ok(skipped()),
            Err(error) => {
                let above = self.place.url.parent();
                let above = above.filter(|_| matches!(error, Error::Missing { .. }));
                let trouble = CliError::store(&*self.wanted, error);
                return Err(match above {
                    Some(above) => trouble.next(moving::make_first(&above)),
                    None => trouble,
                });
            }
        };
        let range = self.range.clone().unwrap_or(0..u64::MAX);
        let bytes = match pour(&*sink, range, &self.options.cancel) {
            Ok(bytes) => bytes,
            Err(error) => {
                let forgotten = sink.abandon().is_ok();
                let trouble = match stop.exit_code() {
                    Some(code) => CliError::signal(&*self.wanted, code),
                    None => CliError::store(&*self.wanted, error),
                };
                return Err(trouble.next(self.left(forgotten)));
            }
        };
        let whole = Whole {
            size: self.range.is_none().then_some(bytes),
            ..Whole::default()
        };
        match sink.finish(&whole) {
            Ok(finished) => Ok(self.facts(bytes, started.elapsed(), &finished)),
            Err(Error::Exists { .. }) if no_clobber => Ok(skipped()),
            Err(error) => Err(CliError::store(&*self.wanted, error).next(self.left(false))),
        }
    }

    fn write(&self, no_clobber: bool) -> Write<'static> {
        let write = Write {
            resume: false,
            ..Write::default()
        };
        match self.range {
            None if no_clobber => Write {
                how: How::New,
                ..write
            },
            None => write,
            Some(_) => Write {
                how: How::InPlace,
                checks: Checks::blake3(self.options.verify && self.place.is_remote()),
                ..write
            },
        }
    }

    /// Says what is left of bytes that cannot be had again.
    fn left(&self, forgotten: bool) -> String {
        match (&self.range, self.place.url.host()) {
            (Some(_), _) => "what arrived before stands in the file".into(),
            (None, _) if forgotten => "nothing was kept".into(),
            (None, None) => {
                "a hidden part may be left beside the file; nothing goes on with it".into()
            }
            (None, Some(_)) => format!(
                "a hidden part may be left at {}; nothing goes on with it",
                self.place.url.host_port()
            ),
        }
    }

    fn facts(&self, bytes: u64, time: Duration, finished: &Finished) -> Facts {
        let digest = finished
            .digests
            .iter()
            .find(|digest| digest.algorithm() == Algorithm::Blake3);
        let in_place = finished.in_place || self.range.is_some();
        let mut facts = Facts::new();
        facts.insert("files".into(), 1.into());
        facts.insert("bytes".into(), bytes.into());
        facts.insert("seconds".into(), time.as_secs_f64().into());
        facts.insert("streams".into(), 1.into());
        facts.insert("resumed_bytes".into(), 0.into());
        facts.insert("in_place".into(), u64::from(in_place).into());
        let verified = progress::verified(&finished.verified);
        facts.insert("verified".into(), verified.into());
        let digest = digest.map(ToString::to_string);
        facts.insert("digest".into(), digest.into());
        facts
    }
}

/// Reads what there is, at most as much as fits into `range`, and puts it there.
fn pour(sink: &dyn Sink, range: Range<u64>, cancel: &Cancel) -> Result<u64, Error> {
    // Not `Stdin`: what its own buffer holds no poll would tell.
    let input = stdin().as_fd().try_clone_to_owned();
    let input = File::from(input.map_err(|cause| Error::io("standard input", cause))?);
    let (mut buffer, mut offset) = (vec![0; BUFFER_BYTES], range.start);
    loop {
        let room = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        let room = room.min(BUFFER_BYTES);
        let len = fill(&input, &mut buffer[..room], cancel)?;
        if len == 0 {
            return Ok(offset - range.start);
        }
        let bytes = &buffer[..len];
        sink.put(Block { offset, bytes })?;
        offset += len as u64;
    }
}

/// Reads until the buffer is full or there is no more: pipes give little at a time.
fn fill(mut input: &File, buffer: &mut [u8], cancel: &Cancel) -> Result<usize, Error> {
    let mut len = 0;
    while len < buffer.len() {
        let ready = godwit_sys::wait_readable([input.as_fd(), cancel.as_fd()], PATIENCE);
        cancel.check()?;
        let more = match ready {
            Ok([true, _]) => input.read(&mut buffer[len..]),
            Ok(_) => continue, // whoever writes into the pipe takes their time
            Err(cause) => Err(cause),
        };
        match more {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) => return Err(Error::io("standard input", cause)),
        }
    }
    Ok(len)
}

/// Longer than this no system lets a file be.
const LONGEST: u64 = i64::MAX as u64;
const BUFFER_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
