//! `godwit cp --through`: single files through a program of the server, on their way from it
//! or to it.
//!
//! What comes out has neither size nor digest before it is there, so the engine, which plans
//! by sizes and goes on by ranges, has no part in this.

use super::Cp;
use crate::{
    layout::{Act, There},
    moving::{self, Pair},
    owed::Turn,
    places::{self, Place},
    progress::Reporter,
    screen::Screen,
    signals::Stop,
    trouble::{CliError, Run},
    verbs::Facts,
};
use godwit_core::{Algorithm, Block, Digest, Extents};
use godwit_store::engine::{Event, Options, Outcome, Retry, Rule, Stores, Summary, Tries};
use godwit_store::{
    Error, How, Limit, Lying, Remote, Sink, StoreExt, Take, TakeExt, Verified, Whole, Width, Write,
};
use godwit_wire::command::Through;
use std::{
    ffi::{OsStr, OsString},
    ops::Range,
    os::fd::AsFd,
    time::Instant,
};

/// Copies each source through the module.
pub(super) fn copy(
    screen: &Screen,
    cp: &Cp,
    through: &Through,
    sources: &[OsString],
    target: &OsStr,
) -> Run<Facts> {
    if target == "-" || sources.iter().any(|source| source == "-") {
        let fact = "--through copies between files, and - is none";
        return Err(CliError::asked("cp", fact).next("godwit cat --through prints"));
    }
    let target = places::target(target)?;
    let sources = sources.iter().map(|source| places::url(source));
    let sources = sources.collect::<Run<Vec<_>>>()?;
    let options = moving::options(&cp.moving)?;
    let stores = Stores::new(options.clone());
    let mut turn = Turn::of(screen, cp.moving.dry_run);
    let planned = moving::pairs(
        screen,
        Act::Copy,
        &sources,
        &target,
        &cp.moving,
        &stores,
        &mut turn,
    )?;
    let mut pairs = planned.pairs;
    pairs.retain(|pair| is_possible(screen, pair));
    let (pairs, _) = moving::in_turn(screen, Act::Copy, pairs, &mut turn);
    let refused = sources.len() - pairs.len();
    if cp.moving.dry_run {
        let facts = moving::rehearse(
            screen,
            &pairs,
            "copy",
            &cp.moving.choosing.0,
            &|_, _, target| Ok(!cp.no_clobber || moving::what_is_there(target)? == There::Nothing),
        );
        return Ok(moving::with_failed(facts, refused));
    }
    let rule = if cp.no_clobber {
        Rule::NoClobber
    } else {
        Rule::Always
    };
    let reporter = Reporter::new(screen, cp.moving.progress, "copy", rule);
    let stop = Stop::watch(options.cancel.clone());
    let copying = Copying {
        through,
        options: &options,
        reporter: &reporter,
        no_clobber: cp.no_clobber,
    };
    let summary = reporter.while_running(|| copying.all(&pairs));
    let mut facts = moving::with_failed(reporter.finish(&summary), refused);
    facts.insert("through".into(), through.module.clone().into());
    if let Some(code) = stop.exit_code() {
        screen.trouble(&CliError::signal("copy everything", code));
    }
    Ok(facts)
}

fn is_possible(screen: &Screen, pair: &Pair) -> bool {
    let wanted = || format!("copy {} to {}", pair.source.url, pair.target.url);
    let ends = (pair.source.store.as_remote(), pair.target.store.as_remote());
    let trouble = match ends {
        _ if pair.tree => CliError::asked(wanted(), "it is a directory").next("name a file in it"),
        (None, None) if is_on_node(pair) => no_module(wanted()),
        (None, None) => CliError::asked(
            wanted(),
            "a module is a program of a server, and neither is on one",
        )
        .next("leave --through out, and run the program here"),
        (Some(_), Some(_)) => CliError::asked(
            wanted(),
            "both are on servers, and which is to run the module?",
        )
        .next("copy it here through the module of one, and then to the other"),
        _ => return true,
    };
    screen.trouble(&trouble);
    false
}

fn is_on_node(pair: &Pair) -> bool {
    [&pair.source, &pair.target]
        .iter()
        .any(|place| place.is_remote())
}

/// Says where modules are.
pub(crate) fn no_module(wanted: String) -> CliError {
    CliError::asked(wanted, "modules run where FTP or GridFTP is spoken; godwit:// and https:// have none")
        .next("name the same node by its FTP port: ftp://HOST:PORT/PATH (godwit node status there tells it)")
}

/// Files on their way.
struct Copying<'a> {
    through: &'a Through,
    options: &'a Options,
    reporter: &'a Reporter<'a>,
    no_clobber: bool,
}

/// What one copy came to.
struct Copied {
    bytes: u64,
    /// Of what was sent.
    digest: Option<Digest>,
    verified: Verified,
    in_place: bool,
}

impl Copying<'_> {
    fn all(&self, pairs: &[Pair]) -> Summary {
        let mut summary = Summary::default();
        self.reporter.on(&Event::Found {
            files: pairs.len() as u64,
            bytes: 0,
            complete: false, // nobody knows what comes
        });
        for pair in pairs {
            let (source, target) = (&pair.source, &pair.target);
            match self.until_it_works(pair, &mut summary) {
                Ok(Some(outcome)) => {
                    summary.files += 1;
                    summary.bytes += outcome.bytes;
                    summary.streams = 1;
                    summary.in_place += u64::from(outcome.in_place);
                    self.reporter.on(&Event::Done(&outcome));
                }
                Ok(None) => {
                    summary.skipped += 1;
                    self.reporter.on(&Event::Skipped {
                        source,
                        target,
                        bytes: 0,
                    });
                }
                Err(error) => {
                    summary.failed += 1;
                    self.failed(pair, &error, None);
                }
            }
            if self.options.cancel.is_canceled() {
                break;
            }
        }
        summary
    }

    fn failed(&self, pair: &Pair, error: &Error, again: Option<Tries>) {
        self.reporter.on(&Event::Failed {
            source: &pair.source,
            target: &pair.target,
            error,
            again,
        });
    }

    /// Begins anew after what passes. `None`: what is there is left alone.
    fn until_it_works(&self, pair: &Pair, summary: &mut Summary) -> Result<Option<Outcome>, Error> {
        let (mut retry, mut faults) = (Retry::new(self.options.retries), 0);
        loop {
            if self.no_clobber && moving::what_is_there(&pair.target)? != There::Nothing {
                return Ok(None);
            }
            let began = Instant::now();
            let error = match self.once(pair) {
                Ok(copied) => return Ok(Some(outcome(pair, copied, began, faults))),
                Err(Error::Exists { .. }) if self.no_clobber => return Ok(None),
                Err(error) => error,
            };
            let Some(pause) = retry.after(error.fault()) else {
                return Err(error);
            };
            (faults, summary.faults) = (faults + 1, summary.faults + 1);
            self.failed(pair, &error, Some(retry.tries()));
            let stop = [self.options.cancel.as_fd()];
            godwit_sys::wait_readable(stop, pause).map_err(|cause| Error::io("a pause", cause))?;
            self.options.cancel.check()?;
        }
    }

    fn once(&self, pair: &Pair) -> Result<Copied, Error> {
        match (pair.source.store.as_remote(), pair.target.store.as_remote()) {
            (Some(server), _) => self.fetch(server, pair),
            (None, Some(server)) => self.deliver(server, pair),
            (None, None) => unreachable!("it was refused before"),
        }
    }

    fn fetch(&self, server: &Remote, pair: &Pair) -> Result<Copied, Error> {
        let target = &pair.target;
        let write = Write {
            how: match self.no_clobber {
                true => How::New,
                false => How::Replace(None),
            },
            id: Some(ID),
            resume: false,
            ..Write::default()
        };
        let sink: Box<dyn Sink> = target.store.write(&target.path, &write)?;
        let counted = Counted {
            into: &*sink,
            reporter: self.reporter,
        };
        let made = match server.read_through(&pair.source.path, self.through, &counted) {
            Ok(made) => made,
            Err(error) => {
                let _ = sink.abandon(); // nobody goes on with it
                return Err(error);
            }
        };
        let digest = made.digest.filter(|_| self.options.verify);
        let finished = sink.finish(&Whole {
            size: Some(made.bytes),
            digest: digest.clone(),
            ..Whole::default()
        })?;
        Ok(Copied {
            bytes: made.bytes,
            verified: verified(digest.is_some()),
            digest: finished.digests.into_iter().find(is_blake3).or(digest),
            in_place: finished.in_place,
        })
    }

    fn deliver(&self, server: &Remote, pair: &Pair) -> Result<Copied, Error> {
        let Place { store, path, .. } = &pair.source;
        let size = store.stat(path)?.size;
        // The server is told before, so that it makes nothing of other bytes.
        let digest = match self.options.verify {
            true => Some(store.digest(path, Algorithm::Blake3, None)?),
            false => None,
        };
        let fill = |into: &dyn Take| {
            let counted = Counted {
                into,
                reporter: self.reporter,
            };
            let read = store.read(path, &Extents::from(0..size), 1, &counted)?;
            match read.stat.size == size {
                true => Ok(()),
                false => Err(Error::changed(
                    path.clone(),
                    "it was written to while it was read",
                )),
            }
        };
        let sent = (size, digest.as_ref());
        let made = server.write_through(&pair.target.path, self.through, sent, &fill)?;
        let agrees = digest.is_some() && made.digest == digest;
        Ok(Copied {
            bytes: made.bytes,
            verified: verified(agrees),
            digest,
            in_place: false,
        })
    }
}

fn outcome(pair: &Pair, copied: Copied, began: Instant, faults: u32) -> Outcome {
    Outcome {
        source: pair.source.clone(),
        target: pair.target.clone(),
        bytes: copied.bytes,
        resumed_bytes: 0,
        reread_source_bytes: 0,
        reread_target_bytes: 0,
        in_place: copied.in_place,
        seconds: began.elapsed().as_secs_f64(),
        tuned: Width::fixed(1, Limit::Server).now(),
        verified: copied.verified,
        digest: copied.digest,
        faults,
        third_party: false,
    }
}

fn verified(agrees: bool) -> Verified {
    match agrees {
        true => Verified::By(Algorithm::Blake3),
        false => Verified::SizeOnly,
    }
}

fn is_blake3(digest: &Digest) -> bool {
    digest.algorithm() == Algorithm::Blake3
}

/// Tells what passes.
struct Counted<'a> {
    into: &'a dyn Take,
    reporter: &'a Reporter<'a>,
}

impl Take for Counted<'_> {
    fn put(&self, block: Block<'_>) -> Result<(), Error> {
        self.into.put(block)?;
        let bytes = block.bytes.len() as u64;
        self.reporter.on(&Event::Moved { bytes });
        Ok(())
    }

    godwit_store::has!(self, Fast);
}

impl godwit_store::Fast for Counted<'_> {
    fn put_from(
        &self,
        file: &Lying<'_>,
        range: Range<u64>,
        buffer: &mut [u8],
    ) -> Result<(), Error> {
        let bytes = range.end - range.start;
        self.into.put_from(file, range, buffer)?;
        self.reporter.on(&Event::Moved { bytes });
        Ok(())
    }
}

/// Keeps partials of this apart from those that can be gone on with.
const ID: &str = "through";
