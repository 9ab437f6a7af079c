//! `godwit cp`: copies files and trees from anywhere to anywhere.

mod print;

use super::Facts;
use crate::{
    layout::{Act, There},
    moving::{self, Pair, Work},
    options::{Moving, Names},
    places,
    screen::Screen,
    signals::Stop,
    trouble::{Run, Trouble},
    units,
};
use clap::Args;
use godwit_core::{Algorithm, Block, Url};
use godwit_store::channel::Cancel;
use godwit_store::engine::{Rule, Stores};
use godwit_store::{Error, How, Kind, Sink, Whole, Write};
use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Read, stdin},
    ops::Range,
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// Copy files and directories
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit cp ftp://fermi.example/run7.root .
  godwit cp run7.root notes.txt ftp://fermi.example/2026/
  godwit cp -r data ftp://fermi.example/backup
  godwit cp -r data/ ftp://fermi.example/2026/
  godwit cp -r --dry-run ftp://fermi.example/2026 here
  tar c data | godwit cp - ftp://fermi.example/data.tar
  godwit cp ftp://fermi.example/data.tar - | tar x

The last argument is where to. cp -r a b makes b/a if b is a directory, else b, as
coreutils do; cp -r a/ b copies what is in a. A file appears under its name only when it
is whole. Broken off, the same command goes on where it stopped. What is said of a copy is
what was compared: \"verified blake3\" if both sides told the same digest, \"size only\" if
one of them could not.

As target, - is standard output: nothing but the bytes goes there, in order, and all else,
the objects of --json too, to standard error. Bytes that turn out wrong are out by then:
exit status 12 says so.

Times of change and permission bits are kept, unlike coreutils' cp: a copy that looks newer
than its source would be copied again by every later sync. -p also keeps set-user-ID and
the like, which else are not taken over.

Exit status: 0; 2 a directory without -r; 4 no such file; 5 a connection that may work
later; 7 no space; 12 bytes arrived wrong; 13 not allowed; 130 interrupted.
godwit help exit-codes tells all.")]
pub(crate) struct Cp {
    #[command(flatten)]
    names: Names,
    /// Directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Leave files that exist alone
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,
    /// Replace files that exist (which is the default)
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    /// Keep set-user-ID, set-group-ID and sticky bits as well
    #[arg(short, long)]
    preserve: bool,
    /// Copy only from this byte on, to the same place in the target, in place
    #[arg(long, value_name = "BYTE", value_parser = units::parse_size)]
    offset: Option<u64>,
    /// Copy at most so many bytes
    #[arg(long, value_name = "BYTES", value_parser = units::parse_size)]
    length: Option<u64>,
    #[command(flatten)]
    moving: Moving,
}

impl Cp {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let (sources, target) = ends(&self.names, "cp")?;
        if target == "-" {
            return print::print(screen, &self.moving, self.range(), &sources);
        }
        let target = places::url(&target)?;
        if sources.iter().any(|source| source == "-") {
            return self.take_stdin(screen, sources.len(), &target);
        }
        let sources = sources.iter().map(|source| places::url(source));
        let sources = sources.collect::<Run<Vec<_>>>()?;
        let mut options = moving::options(&self.moving)?;
        if self.preserve {
            options.mode_bits = 0o7777;
        }
        let stores = Stores::new(options.clone());
        let mut pairs = moving::pairs(screen, Act::Copy, &sources, &target, &stores)?;
        pairs.retain(|pair| self.allows(screen, pair));
        let rule = if self.no_clobber {
            Rule::NoClobber
        } else {
            Rule::Always
        };
        if self.moving.dry_run {
            return Ok(moving::rehearse(screen, &pairs, "copy", &|_, _, target| {
                Ok(!self.no_clobber || moving::what_is_there(target)? == There::Nothing)
            }));
        }
        let work = Work {
            act: "copy",
            pairs,
            rule,
            range: self.range(),
            delete: false,
        };
        Ok(moving::run(screen, &self.moving, work, &options).facts)
    }

    fn allows(&self, screen: &Screen, pair: &Pair) -> bool {
        if !pair.tree || self.recursive {
            return true;
        }
        let wanted = format!("copy {}", pair.source.url);
        screen.trouble(
            &Trouble::asked(wanted, "it is a directory").next("add -r to copy it with all below"),
        );
        false
    }

    fn range(&self) -> Option<Range<u64>> {
        if self.offset.is_none() && self.length.is_none() {
            return None;
        }
        let start = self.offset.unwrap_or(0);
        Some(start..start.saturating_add(self.length.unwrap_or(u64::MAX)))
    }

    /// Copies standard input: of unknown length, in order, and only once.
    fn take_stdin(&self, screen: &Screen, sources: usize, target: &Url) -> Run<Facts> {
        let wanted = format!("copy standard input to {target}");
        let trouble = |error: Error| Trouble::store(wanted.clone(), error);
        if sources != 1 || target.means_directory() {
            let fact = "standard input is one file and has no name of its own";
            return Err(Trouble::asked(wanted.clone(), fact).next("say godwit cp - FILE_OR_URL"));
        }
        if godwit_sys::is_input_closed() {
            return Err(Trouble::asked(wanted, "standard input is closed")
                .next("give it something to read: a pipe, a file, or /dev/null"));
        }
        let options = moving::options(&self.moving)?;
        let place = places::open(&Stores::new(options.clone()), target)?;
        if let Ok(stat) = place.store.stat(&place.path)
            && stat.kind == Kind::Directory
        {
            let path = place.path.clone();
            return Err(trouble(Error::IsDirectory { path }).next("name a file in it"));
        }
        let mut facts = Facts::new();
        if self.moving.dry_run {
            moving::would(screen, "copy", &places::url("-".as_ref())?, Some(target), 0)
                .map_err(trouble)?;
            return Ok(facts);
        }
        let how = if self.no_clobber {
            How::New
        } else {
            How::Replace(None)
        };
        let write = Write {
            how,
            resume: false,
            ..Write::default()
        };
        let started = Instant::now();
        let sink = place.store.write(&place.path, &write).map_err(trouble)?;
        let stop = Stop::watch(options.cancel.clone());
        let bytes = match pour(&*sink, &options.cancel) {
            Ok(bytes) => bytes,
            Err(error) => {
                // What came of a pipe cannot be had again: there is nothing to resume.
                let _ = sink.abandon();
                let signal = stop
                    .exit_code()
                    .map(|code| Trouble::signal(wanted.clone(), code));
                return Err(signal
                    .unwrap_or_else(|| trouble(error))
                    .next("nothing was kept"));
            }
        };
        let whole = Whole {
            size: Some(bytes),
            ..Whole::default()
        };
        let finished = sink.finish(&whole).map_err(trouble)?;
        let digest = finished
            .digests
            .iter()
            .find(|digest| digest.algorithm() == Algorithm::Blake3);
        facts.insert("files".into(), 1.into());
        facts.insert("bytes".into(), bytes.into());
        facts.insert("seconds".into(), started.elapsed().as_secs_f64().into());
        facts.insert("streams".into(), 1.into());
        facts.insert("resumed_bytes".into(), 0.into());
        let digest = digest.map(ToString::to_string);
        facts.insert("digest".into(), digest.into());
        Ok(facts)
    }
}

/// Returns the sources and the target: the last of all names.
///
/// With `--from-file` the list names sources only, the target is the last argument.
pub(crate) fn ends(names: &Names, verb: &str) -> Run<(Vec<OsString>, OsString)> {
    let wrong =
        |fact: &str| Trouble::asked(verb, fact).next(format!("say godwit {verb} SOURCE... TARGET"));
    let mut sources = names.names.clone();
    let target = sources.pop().ok_or_else(|| wrong("nothing was named"))?;
    if let Some(list) = &names.from_file {
        sources.extend(places::read_list(list)?);
        if sources.is_empty() {
            return Err(wrong("the list names nothing"));
        }
        return Ok((sources, target));
    }
    if sources.is_empty() {
        return Err(wrong("only one thing was named, and where to is missing"));
    }
    Ok((sources, target))
}

fn pour(sink: &dyn Sink, cancel: &Cancel) -> Result<u64, Error> {
    // Not `Stdin`: what its own buffer holds no poll would tell.
    let input = stdin().as_fd().try_clone_to_owned();
    let input = File::from(input.map_err(|cause| Error::io("standard input", cause))?);
    let (mut buffer, mut offset) = (vec![0; BUFFER_BYTES], 0);
    loop {
        let len = fill(&input, &mut buffer, cancel)?;
        if len == 0 {
            return Ok(offset);
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

const BUFFER_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
