//! Reading a file by name: from whichever site can give its bytes, or each fragment from its own.

use crate::{
    Logical,
    checking::{BytesBuffer, Checking},
    combining::{self, Part, has_parts},
    in_turn::{self, Early},
    sites::{self, HomeFailure, best, is_good, shown, stat},
};
use godwit_catalog::{CatalogEntry as Named, is_fragment};
use godwit_core::{Block, Digest, Extents};
use godwit_store::{BlockWriter, Error, Read, Result, SMALL_BYTES};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread::{self, ScopedJoinHandle},
};

impl Logical {
    /// Reads bytes of a file that was found.
    pub(crate) fn read_entry(
        &self,
        (path, entry): (&Path, &Named),
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        let size = entry.size.filter(|size| *size <= SMALL_BYTES);
        let is_small = size.is_some_and(|size| want.contains(&(0..size)));
        let asked = want
            .within(0..entry.size.unwrap_or(0))
            .map(|range| range.end - range.start);
        let asked = asked.sum();
        let (mut differs, mut is_refused) = (None, false);
        // After a home that died the next one gives the rest.
        let mut checking = sites::checking(into, entry, want);
        let read = self.sites.at_homes(
            path,
            (entry, self.aim.from.as_deref(), asked),
            &mut |home, place| {
                let (buffer, of, at) = (BytesBuffer::default(), (path, entry), (home, place));
                if let (Some(size), true) = (size, is_small) {
                    // A reader who prints what comes is never shown damaged bytes of a small file.
                    let all = Extents::from(0..size);
                    let read = self.sites.read_home(of, at, (&all, 1), &buffer)?;
                    let bytes = buffer.0.into_inner();
                    if !bytes.is_empty() {
                        let put = into.put(Block::at(0, &bytes));
                        put.map_err(|error| {
                            is_refused = true;
                            HomeFailure::Everywhere(error)
                        })?;
                    }
                    return Ok(read);
                }
                let read = self.sites.read_rest(of, at, (want, streams), &checking);
                is_refused = matches!(read, Err(HomeFailure::Everywhere(_)));
                if matches!(read, Err(HomeFailure::Here(Error::Corrupt { .. }))) {
                    checking = sites::checking(into, entry, want);
                }
                read.map_err(|failed| match (failed, differs.take()) {
                    // The reader cannot take bytes again, after some that were damaged.
                    (HomeFailure::Everywhere(_), Some(before)) => HomeFailure::Everywhere(before),
                    (
                        HomeFailure::Here(Error::Corrupt {
                            path,
                            expected,
                            found,
                        }),
                        _,
                    ) => {
                        differs = Some(Error::corrupt(&path, &*expected, &*found));
                        HomeFailure::Here(Error::corrupt(path, expected, found))
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
        into: &dyn BlockWriter,
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

    /// Reads each fragment from a site that has it, several at once.
    fn read_fragments(
        &self,
        entry: &Named,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        let parts = entry.parts();
        let pieces = parts.iter().zip(&entry.fragments);
        let pieces = pieces.map(|(part, fragment)| {
            let (first, past) = (fragment.start, fragment.start + fragment.size);
            let its = want.within(first..past);
            let want = its
                .map(|range| range.start - first..range.end - first)
                .collect();
            let names = self;
            FragmentPiece {
                names,
                part,
                first,
                want,
                into,
            }
        });
        let pieces: Vec<_> = pieces.filter(|piece| !piece.want.is_empty()).collect();
        match streams {
            0 | 1 => in_turn::read(&pieces, self.count_sites(&pieces))?,
            _ => read_in_any_order(&pieces, streams)?,
        }
        Ok(Read {
            stat: stat(entry),
            digest: best(&entry.digests).cloned(),
        })
    }

    /// Returns how many other machines are asked for pieces; 1 if there is none.
    fn count_sites(&self, pieces: &[FragmentPiece<'_>]) -> usize {
        let from = self.aim.from.as_deref();
        let homes = pieces
            .iter()
            .filter_map(|piece| self.sites.homes(piece.part, from).into_iter().next());
        let others = homes.filter(|home| !home.url.starts_with("file:"));
        let others: BTreeSet<&String> = others.map(|home| &home.site).collect();
        others.len().clamp(1, AT_ONCE)
    }
}

/// A fragment of which bytes are wanted.
struct FragmentPiece<'a> {
    names: &'a Logical,
    part: &'a Named,
    /// The offset in the file of its first byte.
    first: u64,
    /// The bytes of the fragment.
    want: Extents,
    into: &'a dyn BlockWriter,
}

impl FragmentPiece<'_> {
    fn read_by(&self, want: &Extents, streams: usize, into: &dyn BlockWriter) -> Result<()> {
        let of = (&*self.part.name.0, self.part);
        self.names.read_entry(of, want, streams, into).map(drop)
    }

    /// Returns a reader of bytes of the fragment, which go to their places in the file.
    fn shifted(&self) -> Part<'_> {
        Part {
            into: self.into,
            want: &self.want,
            first: self.first,
            offset: 0,
        }
    }
}

impl in_turn::ReadPiece for FragmentPiece<'_> {
    fn wanted(&self) -> &Extents {
        &self.want
    }

    fn read(&self, want: &Extents, into: &dyn BlockWriter) -> Result<()> {
        self.read_by(want, 1, into)
    }

    fn pass_on(&self, early: &Early, late: &Extents) -> Result<()> {
        let shifted = self.shifted();
        if early.is_empty() || late.is_empty() {
            early.give(&shifted)?;
            return match late.is_empty() {
                true => Ok(()),
                false => self.read_by(late, 1, &shifted),
            };
        }
        // Neither part of a whole fragment was compared with its digest.
        let size = self.part.size.unwrap_or_default();
        let is_whole = self.want.contains(&(0..size));
        let known = best(&self.part.digests).filter(|_| is_whole);
        let checking = Checking::new(&shifted, known.map(Digest::algorithm));
        early.give(&checking)?;
        self.read_by(late, 1, &checking)?;
        match (known, checking.digest(size)) {
            (Some(known), Some(found)) if *known != found => {
                let name = &self.part.name.0;
                Err(Error::corrupt(name, known.to_string(), found.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// Reads pieces of a file into a reader that takes bytes in any order.
fn read_in_any_order(pieces: &[FragmentPiece<'_>], streams: usize) -> Result<()> {
    let at_once = AT_ONCE.min(pieces.len()).max(1);
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let read = || {
        while !is_over.load(Relaxed)
            && let Some(piece) = pieces.get(next.fetch_add(1, Relaxed))
        {
            let read = piece.read_by(&piece.want, (streams / at_once).max(1), &piece.shifted());
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
    })
}

/// The most fragments of a file that are read at the same time.
const AT_ONCE: usize = 8;
