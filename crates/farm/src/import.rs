//! Importing: a file is cut into fragments, and each is written to a site of its own.
//!
//! The bytes are read once. The fragments become visible together, in one transaction, after all have landed.

use crate::{Logical, checking::Checking, failed, now, sites::url_of};
use godwit_catalog::{Change, Changes, Location, NewHome};
use godwit_core::{Algorithm, Block, Digest, Extents, Fault};
use godwit_store::{
    EntryKind, Error, How, Result, Sink, Store, Take, What, Whole, Write, engine::Place,
};
use godwit_wire::door::call::{Name, Text, Time};
use parking_lot::Mutex;
use std::{
    ops::Range,
    path::{Path, PathBuf},
};

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
            let next = "godwit location add SITE URL grid:/COLLECTION names one";
            let what = format!("importing {}", url_of(name)?);
            return Err(Error::unsupported(
                what,
                format!("its collection has no site; {next}"),
            ));
        }
        let ranges = ranges(&*from.store, &from.path, size, cut, sites.len() as u64)?;
        let mut scatter = Scatter(Vec::new());
        let token = now().as_nanos();
        for (index, range) in ranges.iter().enumerate() {
            let location = &sites[index % sites.len()];
            let file = format!("{token:x}-{}.{index}", std::process::id());
            match Fragment::begin(self, location, file.into(), range.clone()) {
                Ok(fragment) => scatter.0.push(fragment),
                Err(error) => {
                    scatter.0.into_iter().for_each(Fragment::abandon);
                    return Err(error);
                }
            }
        }
        let came = Checking::new(&scatter, Some(Algorithm::Blake3));
        let read = from
            .store
            .read(&from.path, &Extents::from(0..size), 1, &came);
        let digest = read.and_then(|_| {
            came.digest(size)
                .ok_or_else(|| Error::changed(&from.path, "not all of its bytes came".to_owned()))
        });
        let digest = match digest {
            Ok(digest) => digest,
            Err(error) => {
                scatter.0.into_iter().for_each(Fragment::abandon);
                return Err(error);
            }
        };
        self.publish_fragments(name, (size, digest), stat.mtime.map(Time), scatter.0)
    }

    /// Has each site publish its fragment, then has the catalog publish the file.
    fn publish_fragments(
        &self,
        name: &Path,
        (size, digest): (u64, Digest),
        mtime: Option<Time>,
        fragments: Vec<Fragment>,
    ) -> Result<Vec<Imported>> {
        let (mut changes, mut imported, mut landed) = (Vec::new(), Vec::new(), Vec::new());
        let mut fragments = fragments.into_iter();
        let mut done = Ok(());
        for fragment in fragments.by_ref() {
            let home = NewHome {
                location: fragment.location.location,
                path: Name(fragment.file.clone()),
                range: (fragment.range != (0..size))
                    .then_some((fragment.range.start, fragment.range.end)),
                verified_s: Some(now().as_secs()),
                ours: true,
                ..NewHome::default()
            };
            changes.push(Change::Register {
                name: Name(name.into()),
                size: Some(size),
                digests: vec![Text(digest.clone())],
                mtime,
                mode: None,
                home: Some(home),
            });
            imported.push(Imported {
                range: fragment.range.clone(),
                site: fragment.location.site.clone(),
            });
            let (place, whole) = (
                fragment.place,
                Whole::of_size(fragment.range.end - fragment.range.start),
            );
            let sink = fragment.sink;
            match sink.finish(&whole) {
                Ok(_) => landed.push(place),
                Err(error) => {
                    done = Err(error);
                    break;
                }
            }
        }
        fragments.for_each(Fragment::abandon);
        let published = done.and_then(|()| {
            let list = Changes::from(changes);
            let changed = self.sites.catalog.change(&list);
            changed.map_err(|refusal| failed(name, refusal))
        });
        match published {
            Ok(_) => Ok(imported),
            // The catalog may have published it, and the answer was lost: then audit decides.
            Err(error) if error.fault() != Fault::Lasting => Err(error),
            Err(error) => {
                for place in landed {
                    let _ = place.store.remove(&place.path, What::File);
                }
                Err(error)
            }
        }
    }
}

/// A fragment that is written to a site.
struct Fragment {
    range: Range<u64>,
    location: Location,
    /// The path below the location.
    file: PathBuf,
    place: Place,
    sink: Box<dyn Sink>,
}

impl Fragment {
    fn begin(
        names: &Logical,
        location: &Location,
        file: PathBuf,
        range: Range<u64>,
    ) -> Result<Self> {
        let place = names.sites.open(&location.url)?.join(&file)?;
        names.sites.make_above(location.location, &place)?;
        let write = Write {
            how: How::New,
            ..Write::of_size(range.end - range.start)
        };
        let sink = place.store.write(&place.path, &write)?;
        Ok(Self {
            range,
            location: location.clone(),
            file,
            place,
            sink,
        })
    }

    fn abandon(self) {
        let _ = self.sink.abandon();
    }
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
            if start >= end {
                break;
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

/// Returns the bytes of each fragment; none is empty, so a small file has fewer.
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
        if end > start {
            ranges.push(start..end);
            start = end;
        }
    }
    // A file without bytes has one fragment, which is empty.
    if ranges.is_empty() {
        ranges.push(0..0);
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
const FRAGMENTS_MAX: u64 = 4096;
