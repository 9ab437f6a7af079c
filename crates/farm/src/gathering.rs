//! Reading a file by name: from whichever site can give its bytes, or each fragment from its own.

use crate::{
    Logical,
    checking::Buffer,
    combining::{self, Part, has_parts},
    sites::{Failed, best, is_good, shown, stat},
};
use godwit_catalog::{Entry as Named, is_fragment};
use godwit_core::{Block, Extents};
use godwit_store::{Error, Read, Result, SMALL_BYTES, Take};
use parking_lot::Mutex;
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, ScopedJoinHandle},
};

impl Logical {
    /// Reads bytes of a file that was found.
    pub(crate) fn read_entry(
        &self,
        (path, entry): (&Path, &Named),
        want: &Extents,
        streams: usize,
        into: &dyn Take,
    ) -> Result<Read> {
        let size = entry.size.filter(|size| *size <= SMALL_BYTES);
        let is_small = size.is_some_and(|size| want.contains(&(0..size)));
        let asked = want
            .within(0..entry.size.unwrap_or(0))
            .map(|range| range.end - range.start);
        let asked = asked.sum();
        let (mut differs, mut is_refused) = (None, false);
        let read = self.sites.at_homes(
            path,
            (entry, self.aim.from.as_deref(), asked),
            &mut |home, place| {
                let (buffer, of, at) = (Buffer::default(), (path, entry), (home, place));
                if let (Some(size), true) = (size, is_small) {
                    // A reader who prints what comes is never shown damaged bytes of a small file.
                    let all = Extents::from(0..size);
                    let read = self.sites.read_home(of, at, (&all, 1), &buffer)?;
                    let bytes = buffer.0.into_inner();
                    if !bytes.is_empty() {
                        let put = into.put(Block::at(0, &bytes));
                        put.map_err(|error| {
                            is_refused = true;
                            Failed::Everywhere(error)
                        })?;
                    }
                    return Ok(read);
                }
                let read = self.sites.read_home(of, at, (want, streams), into);
                is_refused = matches!(read, Err(Failed::Everywhere(_)));
                read.map_err(|failed| match (failed, differs.take()) {
                    // The reader cannot take bytes again, after some that were damaged.
                    (Failed::Everywhere(_), Some(before)) => Failed::Everywhere(before),
                    (
                        Failed::Here(Error::Corrupt {
                            path,
                            expected,
                            found,
                        }),
                        _,
                    ) => {
                        differs = Some(Error::corrupt(&path, &*expected, &*found));
                        Failed::Here(Error::corrupt(path, expected, found))
                    }
                    (failed, before) => {
                        differs = before;
                        failed
                    }
                })
            },
        );
        let of = (path, entry, self.aim.from.as_deref());
        match read {
            Err(_) if !entry.fragments.is_empty() => {
                self.read_fragments(entry, want, streams, into)
            }
            // Of the two errors the first tells more, unless there are only parts or they have other bytes.
            Err(error) if has_parts(entry) => {
                let combined = combining::read(&self.sites, of, (want, streams), into);
                combined.map_err(|later| {
                    let is_wrong = matches!(later, Error::Corrupt { .. });
                    match entry.homes.iter().any(|home| is_good(home, entry)) {
                        true if !is_wrong => error,
                        _ => later,
                    }
                })
            }
            Err(error) if !is_refused && !matches!(error, Error::Canceled) => {
                self.read_again((path, entry), want, streams, into, error)
            }
            read => read,
        }
    }

    /// Finds an entry that is to be read; a file that is only defined is computed now.
    pub(crate) fn made(&self, path: &Path) -> Result<Named> {
        if let Some(entry) = self.sites.find(path)? {
            return Ok(entry);
        }
        let is_read = !self.aim.copy && self.aim.site.is_none();
        if is_read && self.defined(path)?.is_some() {
            self.make(path)?;
        } else if is_read && matches!(self.history(path), Ok(Some(_))) {
            let url = shown(path);
            let why = format!("{url} (removed; its recipe is kept: godwit farm make {url})");
            return Err(Error::missing(why));
        }
        self.sites.locate(path)
    }

    /// Has a file made again that no site can give, if its history tells how, and reads it then.
    fn read_again(
        &self,
        (path, entry): (&Path, &Named),
        want: &Extents,
        streams: usize,
        into: &dyn Take,
        error: Error,
    ) -> Result<Read> {
        let above = path.parent().unwrap_or(Path::new(""));
        let file = if is_fragment(path) { above } else { path };
        if !matches!(self.history(file), Ok(Some(_))) {
            return Err(error);
        }
        tracing::info!(name = %path.display(), %error, "no site can give it: it is made again");
        if let Err(later) = self.make(path) {
            tracing::warn!(name = %path.display(), error = %later, "it could not be made again");
            return Err(later);
        }
        let made = self.sites.file(path)?;
        let of = (&made, self.aim.from.as_deref(), 0);
        if made.version != entry.version {
            return Err(error);
        }
        self.sites.at_homes(path, of, &mut |home, place| {
            let at = (home, place);
            self.sites
                .read_home((path, &made), at, (want, streams), into)
        })
    }

    /// Reads each fragment from a site that has it; several at once if their order does not count.
    fn read_fragments(
        &self,
        entry: &Named,
        want: &Extents,
        streams: usize,
        into: &dyn Take,
    ) -> Result<Read> {
        let parts = entry.parts();
        let pieces = parts.iter().zip(&entry.fragments);
        let pieces = pieces.map(|(part, fragment)| {
            let (first, past) = (fragment.start, fragment.start + fragment.size);
            let its = want.within(first..past);
            let its: Extents = its
                .map(|range| range.start - first..range.end - first)
                .collect();
            (part, first, its)
        });
        let pieces = Mutex::new(pieces.filter(|(_, _, its)| !its.is_empty()));
        let at_once = match streams {
            0 | 1 => 1,
            _ => AT_ONCE.min(parts.len()),
        };
        let is_over = AtomicBool::new(false);
        let read = || {
            while !is_over.load(Relaxed) {
                let next = pieces.lock().next();
                let Some((part, first, its)) = next else {
                    break;
                };
                let shifted = Part {
                    into,
                    want: &its,
                    first,
                    offset: 0,
                };
                let of = (&*part.name.0, part);
                let read = self.read_entry(of, &its, (streams / at_once).max(1), &shifted);
                read.inspect_err(|_| is_over.store(true, Relaxed))?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..at_once).map(|_| scope.spawn(read)).collect();
            let joined = |other: ScopedJoinHandle<'_, Result<()>>| {
                let other = other.join();
                other.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let mine = read();
            others
                .into_iter()
                .fold(mine, |all, other| all.and(joined(other)))
        })?;
        Ok(Read {
            stat: stat(entry),
            digest: best(&entry.digests).cloned(),
        })
    }
}

/// The most fragments of a file that are read at the same time.
const AT_ONCE: usize = 8;
