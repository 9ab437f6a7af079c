//! Reading a file of which sites have parts: each range from the best site that has it.

use crate::{
    checking::{BytesBuffer, Checking},
    sites::{Sites, best, stat},
};
use godwit_catalog::{CatalogEntry as Named, CatalogHome, is_part};
use godwit_core::{Block, Digest, Extents, Fragment, Home as Held, Layout, Url};
use godwit_store::{BlockWriter, Error, Read, Result, SMALL_BYTES};
use std::{io, ops::Range, path::Path};

/// Tells whether a site has a part of the current version.
pub(crate) fn has_parts(entry: &Named) -> bool {
    entry.size.is_some() && entry.homes.iter().any(|home| is_part(home, entry))
}

/// Returns the bytes of the file that a home has.
fn range_of(home: &CatalogHome, size: u64) -> Range<u64> {
    home.range
        .map_or(0..size, |(first, past)| first..past.min(size))
}

/// Bytes of a file that one home gives in one read.
type Run<'a> = (&'a CatalogHome, Extents);

/// One read of a file from several homes.
struct Combining<'a> {
    sites: &'a Sites,
    path: &'a Path,
    size: u64,
    /// The homes that may be asked, the best first.
    homes: Vec<&'a CatalogHome>,
    errors: Vec<String>,
}

/// Reads each range from the best site that has it.
pub(crate) fn read(
    sites: &Sites,
    (path, entry, from): (&Path, &Named, Option<&str>),
    (want, streams): (&Extents, usize),
    into: &dyn BlockWriter,
) -> Result<Read> {
    let size = entry.size.unwrap_or(0);
    let want: Extents = want.within(0..size).collect();
    let is_whole = want.contains(&(0..size));
    let known = best(&entry.digests).filter(|_| is_whole);
    // A reader who prints what comes is never shown damaged bytes of a small file.
    let buffer = (is_whole && size <= SMALL_BYTES).then(BytesBuffer::default);
    let to: &dyn BlockWriter = match &buffer {
        Some(buffer) => buffer,
        None => into,
    };
    let checking = Checking::new(to, known.map(Digest::algorithm));
    let mut combining = Combining {
        sites,
        path,
        size,
        homes: sites.homes_with_parts(entry, from),
        errors: Vec::new(),
    };
    // Bytes from a home that failed later are read again from another.
    let mut left = want;
    while !left.is_empty() {
        for (home, part) in combining.plan(&left)? {
            let Err(error) = combining.read_part(home, &part, streams, &checking) else {
                left = left.minus(&part);
                continue;
            };
            if checking.is_refused() || matches!(error, Error::Canceled) {
                return Err(error);
            }
            sites.was_silent(home.location, &error);
            combining.errors.push(format!("{}: {error}", home.site));
            combining.homes.retain(|other| *other != home);
            break;
        }
    }
    let hashed = checking.digest(size);
    let bytes = buffer.map(|buffer| buffer.0.into_inner());
    let of_buffer = |bytes: &Vec<u8>| known.map(|known| Digest::of(known.algorithm(), bytes));
    if let (Some(known), Some(found)) = (known, bytes.as_ref().map_or(hashed, of_buffer))
        && found != *known
    {
        let found = format!("{found} in the parts at the sites");
        return Err(Error::corrupt(path, known.to_string(), found));
    }
    if let Some(bytes) = bytes
        && !bytes.is_empty()
    {
        into.put(Block::at(0, &bytes))?;
    }
    Ok(Read {
        stat: stat(entry),
        digest: best(&entry.digests).cloned(),
    })
}

impl<'a> Combining<'a> {
    /// Returns which home gives which bytes, in the order of the bytes; all of `left` must be at some home.
    fn plan(&self, left: &Extents) -> Result<Vec<Run<'a>>> {
        let part = |home: &&CatalogHome| {
            let url: Url = home.url.parse().ok()?;
            let offset_bytes = home.offset;
            let homes = vec![Held {
                offset_bytes,
                ..Held::at(url)
            }];
            let range = range_of(home, self.size);
            Some(Fragment { range, homes })
        };
        let layout = Layout::overlaid(self.homes.iter().filter_map(part));
        let missing = left.minus(&layout.filled());
        if !missing.is_empty() {
            let path = self.path.display();
            let errors = self.errors.join("; ");
            return Err(match errors.is_empty() {
                true => Error::io(
                    self.path,
                    io::Error::other(format!("no site has bytes {missing}")),
                ),
                false => Error::beyond(
                    "",
                    format!("{path}: no site gives bytes {missing} ({errors})"),
                ),
            });
        }
        let mut plan: Vec<Run<'a>> = Vec::new();
        for piece in left
            .iter()
            .flat_map(|range| layout.cut(range).collect::<Vec<_>>())
        {
            let is_it = |home: &&&CatalogHome| {
                let first = piece.homes.first().map(|held| held.url.to_string());
                first == home.url.parse::<Url>().ok().map(|url| url.to_string())
            };
            let Some(home) = self.homes.iter().find(is_it).copied() else {
                continue;
            };
            match plan.last_mut() {
                Some((last, bytes)) if *last == home => bytes.insert(piece.range),
                _ => plan.push((home, piece.range.into())),
            }
        }
        Ok(plan)
    }

    /// Reads these bytes of the file from one home.
    fn read_part(
        &self,
        home: &CatalogHome,
        bytes: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<()> {
        let place = self.sites.open(&home.url)?;
        let first = range_of(home, self.size).start;
        let there = |at: u64| at - first + home.offset;
        let want: Extents = bytes
            .iter()
            .map(|range| there(range.start)..there(range.end))
            .collect();
        let part = Part {
            into,
            want: &want,
            first,
            offset: home.offset,
        };
        let came = Checking::new(&part, None);
        let read = place.store.read(&place.path, &want, streams, &came)?;
        let left = want.minus(&came.came());
        if left.is_empty() {
            return Ok(());
        }
        let end = range_of(home, self.size).end;
        if read.stat.known_size().is_some_and(|size| size < there(end)) {
            self.sites.mark(self.path, home);
        }
        Err(Error::changed(
            &place.path,
            format!("bytes {left} did not come"),
        ))
    }
}

/// Puts what comes from a home to its place in the file.
pub(crate) struct Part<'a> {
    pub(crate) into: &'a dyn BlockWriter,
    /// The bytes that were asked for, at their offsets at the home.
    pub(crate) want: &'a Extents,
    /// The offset in the file of the first byte of the home's range.
    pub(crate) first: u64,
    /// The offset of that byte at the home.
    pub(crate) offset: u64,
}

impl BlockWriter for Part<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if !self.want.contains(&block.range()) {
            let said = "it sent bytes that were not asked for";
            return Err(Error::misbehaved("a site", said));
        }
        let at = block.offset - self.offset + self.first;
        self.into.put(Block::at(at, block.bytes))
    }
}
