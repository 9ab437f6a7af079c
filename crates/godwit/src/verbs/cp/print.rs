//! `godwit cp URL -`: one file to standard output, in order, compared at the end.
//!
//! What is out is out: bytes that turn out wrong are told by exit status 12, and
//! nothing can be gone on with by a later run.

use crate::{
    bytes, moving,
    options::Moving,
    owed::{self, Reach},
    places,
    progress::Reporter,
    screen::Screen,
    signals::Stop,
    trouble::{CliError, Run},
    verbs::Facts,
};
use godwit_core::{Algorithm, Digest, Hashing, Url};
use godwit_store::engine::{Event, Options, Outcome, Place, Retry, Rule, Stores, Summary};
use godwit_store::{EntryKind, Error, Limit, Read, Stat, Verified, Width};
use std::{ffi::OsString, ops::Range, os::fd::AsFd, time::Duration, time::Instant};

/// Prints the only source.
pub(super) fn print(
    screen: &Screen,
    moving: &Moving,
    range: Option<Range<u64>>,
    sources: &[OsString],
) -> Run<Facts> {
    let [source] = sources else {
        let fact = "the target - is standard output, which takes one file";
        return Err(CliError::asked("cp", fact).next("godwit cat prints several"));
    };
    if source == "-" {
        let fact = "standard input and standard output are both no file";
        return Err(CliError::asked("cp", fact).next("./- names a file of that name"));
    }
    screen.say_aside();
    let url = places::url(source)?;
    owed::note(screen, &url, Reach::Name);
    let options = moving::options(moving)?;
    let stores = Stores::new(options.clone());
    let place = places::open_as(&stores, &url, moving.whom.source())?;
    let trouble = |error: Error| CliError::store(format!("print {url}"), error);
    let stat = place.store.stat(&place.path).map_err(trouble)?;
    if stat.kind == EntryKind::Directory {
        return Err(trouble(Error::directory(place.path.clone())).next("name a file in it"));
    }
    if moving.dry_run {
        moving::would(screen, "copy", &url, Some(&output()?), stat.size).map_err(trouble)?;
        return Ok(moving::rehearsed(1, stat.size));
    }
    let by = algorithm(&place, &options).map_err(trouble)?;
    let whole = range.is_none();
    let range = range.unwrap_or(0..stat.size);
    let range = range.start.min(stat.size)..range.end.min(stat.size);
    let reporter = Reporter::new(screen, moving.progress, "print", Rule::Always);
    reporter.on(&Event::Found {
        files: 1,
        bytes: range.end - range.start,
        complete: true,
    });
    let stop = Stop::watch(options.cancel.clone());
    let mut printing = Printing {
        screen,
        options: &options,
        reporter: &reporter,
        place: &place,
        target: Place {
            url: output()?,
            ..place.clone()
        },
        by,
        hashing: Hashing::new(by),
        stat,
        next: range.start,
        began: Instant::now(),
        faults: 0,
    };
    let printed = reporter.while_running(|| {
        let read = printing.until(range.end)?;
        printing.compare(&read, whole && !moving.no_verify)
    });
    let printed_bytes = printing.next - range.start;
    let mut summary = Summary::default();
    match printed {
        Ok(compared) => {
            let outcome = printing.outcome(printed_bytes, compared);
            summary.files = 1;
            summary.streams = 1;
            reporter.on(&Event::Done(&outcome));
        }
        Err(error) => {
            summary.failed = 1;
            let signal = stop.exit_code();
            screen.trouble(&match signal {
                Some(code) => CliError::signal(format!("print {url}"), code),
                None => of_print(&url, error),
            });
        }
    }
    summary.bytes = printed_bytes;
    Ok(reporter.finish(&summary))
}

/// A file on its way out.
struct Printing<'a> {
    screen: &'a Screen,
    options: &'a Options,
    reporter: &'a Reporter<'a>,
    place: &'a Place,
    target: Place,
    by: Algorithm,
    hashing: Hashing,
    stat: Stat,
    next: u64,
    began: Instant,
    faults: u32,
}

/// What the bytes hash to, and whether somebody said the same.
struct Compared {
    digest: Digest,
    verified: Verified,
}

impl Printing<'_> {
    /// Prints up to `end`; what passes is tried again from where it broke.
    fn until(&mut self, end: u64) -> Result<Read, Error> {
        let mut retry = Retry::new(self.options.retries);
        loop {
            let before = self.next;
            let error = match self.on(end) {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            if self.next > before {
                retry.progressed();
            }
            let Some(pause) = retry.after(error.fault()) else {
                return Err(error);
            };
            self.faults += 1;
            self.reporter.on(&Event::Failed {
                source: self.place,
                target: &self.target,
                error: &error,
                again: Some(retry.tries()),
            });
            self.wait(pause)?;
        }
    }

    fn on(&mut self, end: u64) -> Result<Read, Error> {
        let (screen, cancel) = (self.screen, &self.options.cancel);
        let (next, hashing, reporter) = (&mut self.next, &mut self.hashing, self.reporter);
        let read = bytes::read(self.place, *next..end, &mut |bytes| {
            cancel.check()?;
            screen.bytes(bytes)?;
            hashing.update(bytes);
            *next += bytes.len() as u64;
            let bytes = bytes.len() as u64;
            reporter.on(&Event::Moved { bytes });
            Ok(())
        })?;
        let (was, is) = (&self.stat, &read.stat);
        let is_told = was.mtime.is_some() && is.mtime.is_some();
        let same_time = !is_told || was.is_of_time(is);
        if was.size != is.size || !same_time || self.next < end {
            return Err(Error::changed(
                self.place.path.clone(),
                "it was written to while it was read",
            ));
        }
        Ok(read)
    }

    fn wait(&self, pause: Duration) -> Result<(), Error> {
        let stop = [self.options.cancel.as_fd()];
        godwit_sys::wait_readable(stop, pause).map_err(|cause| Error::io("a pause", cause))?;
        self.options.cancel.check()
    }

    /// Compares what was printed with what the source says of the whole.
    fn compare(&self, read: &Read, wanted: bool) -> Result<Compared, Error> {
        let (by, digest) = (self.by, self.hashing.clone().finish());
        let told = read.digest.clone().filter(|told| told.algorithm() == by);
        let verified = match told {
            _ if !wanted => Verified::SizeOnly,
            Some(told) => agreed(self.place, &told, &digest)?,
            None if self.place.url.host().is_some()
                && self.place.store.can()?.digests.contains(&by) =>
            {
                let told = self.place.store.digest(&self.place.path, by, None)?;
                agreed(self.place, &told, &digest)?
            }
            None => Verified::SizeOnly,
        };
        Ok(Compared { digest, verified })
    }

    fn outcome(&self, bytes: u64, compared: Compared) -> Outcome {
        Outcome {
            source: self.place.clone(),
            target: self.target.clone(),
            bytes,
            resumed_bytes: 0,
            reread_source_bytes: 0,
            reread_target_bytes: 0,
            in_place: false,
            seconds: self.began.elapsed().as_secs_f64(),
            tuned: Width::fixed(1, Limit::Server).now(),
            verified: compared.verified,
            digest: Some(compared.digest),
            faults: self.faults,
            third_party: false,
        }
    }
}

/// Returns by which digest the source can be compared: of ours BLAKE3, else what it computes.
fn algorithm(place: &Place, options: &Options) -> Result<Algorithm, Error> {
    if place.url.host().is_none() || !options.verify {
        return Ok(Algorithm::Blake3);
    }
    let can = place.store.can()?;
    let by_adler = !can.leaves && can.digests.contains(&Algorithm::Adler32);
    Ok(if by_adler {
        Algorithm::Adler32
    } else {
        Algorithm::Blake3
    })
}

fn agreed(place: &Place, told: &Digest, found: &Digest) -> Result<Verified, Error> {
    if told == found {
        return Ok(Verified::By(told.algorithm()));
    }
    Err(Error::corrupt(
        place.path.clone(),
        told.to_string(),
        found.to_string(),
    ))
}

/// Says what to do though nothing is kept.
fn of_print(url: &Url, error: Error) -> CliError {
    let is_wrong = matches!(error, Error::Corrupt { .. } | Error::Changed { .. });
    let trouble = CliError::store(format!("print {url}"), error);
    if is_wrong {
        return trouble.next("do not use what was printed; run the command again");
    }
    trouble
}

fn output() -> Run<Url> {
    places::url("-".as_ref())
}
