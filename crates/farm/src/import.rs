//! Importing: a file is cut into fragments, and each is written to a site of its own.
//!
//! The bytes are read once. The fragments become visible together, in one transaction, after all have landed.

use crate::{Draft, Logical, Told, checking::Checking, sites::url_of, writing};
use godwit_catalog::FRAGMENTS_MAX;
use godwit_core::{Algorithm, Block, Extents};
use godwit_store::{EntryKind, Error, Result, Sink, Store, Take, Whole, engine::Place};
use parking_lot::Mutex;
use std::{ops::Range, path::Path};

/// The way in which a file is cut.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    /// The count of fragments; `None`: as many as there are sites.
    pub parts: Option<u64>,
    /// The bytes of each fragment, instead.
    pub size: Option<u64>,
    /// Whether each fragment ends with a line.
    pub lines: bool,
}

/// A fragment that was imported.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Imported {
    /// The bytes of the file that it holds.
    pub range: Range<u64>,
    /// The site where it lies.
    pub site: String,
}

impl Logical {
    /// Reads a file, and writes a fragment of it to each of the sites of the collection in turn.
    pub fn import(&self, from: &Place, name: &Path, cut: Cut) -> Result<Vec<Imported>> {
        let taken = self.sites.find(name)?;
        if taken.is_some() {
            return Err(Error::exists(url_of(name)?.to_string()));
        }
        let stat = from.store.stat(&from.path)?;
        if stat.kind != EntryKind::File {
            return Err(Error::directory(&from.path));
        }
        let size = stat.known_size().ok_or_else(|| {
            let why = "its length is not known";
            Error::unsupported(
                format!("cutting {} into fragments", from.path.display()),
                why,
            )
        })?;
        let collection = name.parent().unwrap_or(Path::new(""));
        let sites = self.sites.locations(collection, self.aim.site.as_deref())?;
        if sites.is_empty() {
            return Err(writing::no_location(&self.aim, collection));
        }
        let ranges = ranges(&*from.store, &from.path, size, cut, sites.len() as u64)?;
        let draft = self.draft(name, ranges.len() as u64, None)?;
        let (mut scatter, mut imported) = (Scatter(Vec::new()), Vec::new());
        for (index, range) in ranges.iter().enumerate() {
            let site = &sites[index % sites.len()].site;
            let sink = draft.sink(index as u64, site, range.end - range.start)?;
            imported.push(Imported {
                range: range.clone(),
                site: site.clone(),
            });
            let range = range.clone();
            scatter.0.push(Fragment { range, sink });
        }
        let came = Checking::new(&scatter, Some(Algorithm::Blake3));
        from.store
            .read(&from.path, &Extents::from(0..size), 1, &came)?;
        let digest = came.digest(size);
        let changed = || Error::changed(&from.path, "not all of its bytes came".to_owned());
        let told = Told {
            digest: Some(digest.ok_or_else(changed)?),
            mtime: stat.mtime,
            ..Told::default()
        };
        for Fragment { range, sink } in scatter.0 {
            sink.finish(&Whole::of_size(range.end - range.start))?;
        }
        Draft::publish(vec![(draft, told)], None)?;
        Ok(imported)
    }
}

/// A fragment that is written to a site.
struct Fragment {
    range: Range<u64>,
    sink: Box<dyn Sink>,
}

/// Puts each byte into its fragment.
struct Scatter(Vec<Fragment>);

impl Take for Scatter {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let whole = block.range();
        let first = self.0.partition_point(|one| one.range.end <= whole.start);
        for fragment in &self.0[first..] {
            let (start, end) = (
                whole.start.max(fragment.range.start),
                whole.end.min(fragment.range.end),
            );
            if fragment.range.start >= whole.end {
                break;
            }
            if start >= end {
                continue;
            }
            let at = |offset: u64| usize::try_from(offset - whole.start).unwrap_or(usize::MAX);
            let bytes = &block.bytes[at(start)..at(end)];
            fragment
                .sink
                .put(Block::at(start - fragment.range.start, bytes))?;
        }
        Ok(())
    }
}

/// Returns the bytes of each fragment. Where no line ends, they are empty.
fn ranges(
    store: &dyn Store,
    path: &Path,
    size: u64,
    cut: Cut,
    sites: u64,
) -> Result<Vec<Range<u64>>> {
    let count = match (cut.size, cut.parts) {
        (Some(each), _) => size.div_ceil(each.max(1)),
        (None, parts) => parts.unwrap_or(sites),
    };
    let (count, each) = (count.max(1), cut.size);
    if count > FRAGMENTS_MAX {
        let why = format!("{count} fragments are more than {FRAGMENTS_MAX}");
        return Err(Error::unsupported(
            format!("cutting {}", path.display()),
            why,
        ));
    }
    let (mut ranges, mut start) = (Vec::new(), 0);
    for index in 1..=count {
        let edge = match each {
            Some(each) => (each * index).min(size),
            None => u64::try_from(u128::from(size) * u128::from(index) / u128::from(count))
                .unwrap_or(size),
        };
        let end = match cut.lines && edge > start && edge < size {
            true => end_of_line(store, path, edge, size)?,
            false => edge,
        };
        ranges.push(start..end.max(start));
        start = end.max(start);
    }
    Ok(ranges)
}

/// Returns the end of the line that the byte before `edge` is in.
fn end_of_line(store: &dyn Store, path: &Path, edge: u64, size: u64) -> Result<u64> {
    let mut from = edge - 1;
    while from < size {
        let range = from..(from + WINDOW_BYTES).min(size);
        let window = Window(Mutex::default(), from);
        store.read(path, &Extents::from(range.clone()), 1, &window)?;
        let bytes = window.0.into_inner();
        if bytes.is_empty() {
            return Err(Error::changed(path, "it became shorter".to_owned()));
        }
        let newline = bytes.iter().position(|&byte| byte == b'\n');
        if let Some(at) = newline {
            return Ok(from + at as u64 + 1);
        }
        from = range.end;
    }
    Ok(size)
}

/// A few bytes of a file, and the offset of the first.
struct Window(Mutex<Vec<u8>>, u64);

impl Take for Window {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let at = usize::try_from(block.offset.saturating_sub(self.1)).unwrap_or(usize::MAX);
        let mut bytes = self.0.lock();
        let end = at.saturating_add(block.bytes.len());
        if end > WINDOW_BYTES as usize {
            let said = "it sent bytes that were not asked for";
            return Err(Error::misbehaved("the server", said));
        }
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[at..end].copy_from_slice(block.bytes);
        Ok(())
    }
}

const WINDOW_BYTES: u64 = 64 << 10;
