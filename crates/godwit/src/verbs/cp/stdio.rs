//! The standard streams as a store of one name: reads take standard input, writes print. Both are
//! in order, and once.

use crate::{
    bytes,
    out::{CliError, Run, Screen, error::OUTPUT},
    places::{self, Place},
};
use godwit_core::{Algorithm, Block, Extents, Hashing, Url};
use godwit_store::channel::Cancel;
use godwit_store::{
    BlockWriter, Capabilities, EntryKind, Error, Expected, Facets, Finished, Origin, Passage, Read,
    Result, SIZE_UNKNOWN, Sink, Stat, Store, Verified, Write, forward, has, same_origin,
};
use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Read as _, stdin},
    os::fd::AsFd,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// Returns the streams as a place. Their first byte is at `begins` of the file at the other end.
pub(crate) fn stream(screen: &'static Screen, place: Place, cancel: Cancel, begins: u64) -> Place {
    let stream = Stream {
        screen,
        cancel,
        files: place.store,
        begins,
        state: Arc::new(Mutex::new(State {
            next: begins,
            unput: Vec::new(),
            hashing: Hashing::new(Algorithm::Blake3),
            of: None,
        })),
    };
    Place {
        store: Arc::new(stream),
        ..place
    }
}

/// Returns the one source to print.
pub(super) fn only_source(sources: &[OsString]) -> Run<Url> {
    let [source] = sources else {
        let fact = "the target - is standard output, which takes one file";
        return Err(CliError::asked("cp", fact).next("godwit cat prints several"));
    };
    if source == "-" {
        let fact = "standard input and standard output are both no file";
        return Err(CliError::asked("cp", fact).next("./- names a file of that name"));
    }
    places::url(source)
}

/// Refuses a copy that cannot take standard input.
pub(crate) fn check_input(wanted: &str, sources: &[OsString], target: &Url, begins: u64) -> Run {
    let (fact, next) = if sources.len() != 1 || target.means_directory() {
        let fact = "standard input is one file and has no name of its own";
        (fact, "say godwit cp - FILE_OR_URL")
    } else if godwit_sys::is_input_closed() {
        let next = "give it something to read: a pipe, a file, or /dev/null";
        ("standard input is closed", next)
    } else if begins >= LONGEST {
        let fact = "no file can have a byte 9223372036854775807 or behind it";
        (fact, "give a smaller --offset")
    } else {
        return Ok(());
    };
    Err(CliError::asked(wanted, fact).next(next))
}

#[derive(Clone)]
struct Stream {
    screen: &'static Screen,
    cancel: Cancel,
    /// The files of this machine, for verbs on names.
    files: Arc<dyn Store>,
    begins: u64,
    state: Arc<Mutex<State>>,
}

struct State {
    next: u64,
    /// Bytes that were read and not passed on yet.
    unput: Vec<u8>,
    /// Hash of the printed bytes.
    hashing: Hashing,
    /// The file that is printed, and its length.
    of: Option<(Origin, Option<u64>)>,
}

impl Stream {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no thread panics while it holds this")
    }
}

impl Store for Stream {
    forward!(self, self.files; list remove rename mkdir set digest);

    fn can(&self) -> Result<Capabilities> {
        Ok(Capabilities::default())
    }

    fn stat(&self, _: &Path) -> Result<Stat> {
        Ok(Stat::of(EntryKind::Other, SIZE_UNKNOWN))
    }

    fn read(&self, _: &Path, want: &Extents, _: usize, into: &dyn BlockWriter) -> Result<Read> {
        // Not `Stdin`: poll does not see the bytes in its buffer.
        let input = stdin().as_fd().try_clone_to_owned();
        let input = File::from(input.map_err(|cause| Error::io("standard input", cause))?);
        let State { next, unput, .. } = &mut *self.state();
        loop {
            if unput.is_empty() {
                let room = usize::try_from(want.end() - *next).unwrap_or(usize::MAX);
                unput.resize(room.min(BUFFER_BYTES), 0);
                let len = fill(&input, unput, &self.cancel);
                unput.truncate(*len.as_ref().unwrap_or(&0));
                len?;
            }
            if unput.is_empty() {
                let stat = Stat::of(EntryKind::Other, *next);
                return Ok(Read { stat, digest: None });
            }
            let (offset, bytes) = (*next, &**unput);
            into.put(Block { offset, bytes })?;
            *next += unput.len() as u64;
            unput.clear();
        }
    }

    fn write(&self, _: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        let mut state = self.state();
        match (&state.of, write.origin) {
            (Some((of, size)), Some(now)) => {
                if !same_origin(Some(of), Some(now)) || *size != write.size {
                    let why = "it was written to while it was read";
                    return Err(Error::changed(&*now.name, why));
                }
            }
            (None, Some(now)) => {
                state.of = Some((now.clone(), write.size));
                if write.checks.adler32 {
                    state.hashing = Hashing::new(Algorithm::Adler32);
                }
            }
            (_, None) => {}
        }
        Ok(Box::new(self.clone()))
    }

    fn facets(&self) -> Facets<'_> {
        Facets {
            passage: Some(Passage::Once),
            ..Facets::default()
        }
    }
}

impl BlockWriter for Stream {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let State { next, hashing, .. } = &mut *self.state();
        bytes::in_order(next, block, &mut |bytes| {
            let printed = self.screen.bytes(bytes);
            if self.screen.gone() {
                self.cancel.cancel(); // no reader is left
            }
            hashing.update(bytes);
            printed
        })
    }
}

impl Sink for Stream {
    fn done(&self) -> Extents {
        Extents::from(self.begins..self.state().next)
    }

    fn commit(&self) -> Result<Extents> {
        Ok(self.done())
    }

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        let found = self.state().hashing.clone().finish();
        let by = found.algorithm();
        let told = whole.digest.as_ref().filter(|told| told.algorithm() == by);
        let verified = match told {
            Some(told) if *told == found => Verified::By(by),
            Some(told) => return Err(Error::corrupt(OUTPUT, told.to_string(), found.to_string())),
            None => Verified::SizeOnly,
        };
        Ok(Finished {
            digests: vec![found],
            verified,
            ..Finished::default()
        })
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    has!(self, SinkFacets:);
}

/// Reads until the buffer is full or there is no more: pipes give little at a time.
fn fill(mut input: &File, buffer: &mut [u8], cancel: &Cancel) -> Result<usize, Error> {
    let mut len = 0;
    while len < buffer.len() {
        let ready = godwit_sys::wait_readable([input.as_fd(), cancel.as_fd()], PATIENCE);
        cancel.check()?;
        let more = match ready {
            Ok([true, _]) => input.read(&mut buffer[len..]),
            Ok(_) => continue, // the writer takes its time
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

/// The longest file of any system.
const LONGEST: u64 = i64::MAX as u64;
const BUFFER_BYTES: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
