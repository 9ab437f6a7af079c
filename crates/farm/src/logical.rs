//! The store of names: what the catalog knows, with the bytes of whichever site can give them.

use crate::{
    checking::{Buffer, Checking},
    failed,
};
use godwit_catalog::{Catalog, Change, Entry as Named, Home, Pages, State as OfHome, find};
use godwit_core::{Algorithm, Block, Digest, Extents, Fault, HomeState, Url};
use godwit_store::{
    Batch, Can, Entry, EntryKind, Error, Peer, Read, Result, SIZE_UNKNOWN, SMALL_BYTES, Set, Sink,
    Stat, Store, Take, Walk, What, Write,
    engine::{Options, Place, Stores},
    has,
};
use godwit_wire::door::call::{Name, Text, Time};
use std::{io, ops::Range, path::Path, sync::Arc};

/// A store of the names of a catalog. Paths are names without the leading slash.
pub struct Logical {
    catalog: Arc<dyn Catalog>,
    stores: Stores,
}

/// A failure to use one home.
enum Failed {
    /// Another home may serve.
    Here(Error),
    /// No other home can serve.
    Everywhere(Error),
}

impl Logical {
    /// Opens the names of a catalog; `options` are for the stores of the sites, which are never names.
    pub fn new(catalog: Arc<dyn Catalog>, options: Options) -> Self {
        let options = Options {
            named: None,
            ..options
        };
        Self {
            catalog,
            stores: Stores::new(options),
        }
    }

    fn locate(&self, path: &Path) -> Result<Named> {
        if path.as_os_str().is_empty() {
            return Ok(Named {
                collection: true,
                ..Named::default()
            });
        }
        let found = find(&*self.catalog, path).map_err(|refusal| failed(path, refusal))?;
        found.ok_or_else(|| Error::missing(path))
    }

    fn file(&self, path: &Path) -> Result<Named> {
        match self.locate(path)? {
            entry if entry.collection => Err(Error::directory(path)),
            entry => Ok(entry),
        }
    }

    fn change(&self, path: &Path, change: Change) -> Result<()> {
        let changed = self.catalog.change(&change.into());
        changed.map(drop).map_err(|refusal| failed(path, refusal))
    }

    /// Lists a collection.
    fn list_all(
        &self,
        path: &Path,
        deep: bool,
        each: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        for page in Pages::new(&*self.catalog, path, deep, false) {
            for entry in page.map_err(|refusal| failed(path, refusal))? {
                let stat = stat(&entry);
                let path = entry.name.0;
                each(Entry { path, stat })?;
            }
        }
        Ok(())
    }

    /// Tries the homes of a file, one after the other, until one does.
    fn at_homes<T>(
        &self,
        path: &Path,
        entry: &Named,
        attempt: &mut dyn FnMut(&Home, &Place) -> Result<T, Failed>,
    ) -> Result<T> {
        let mut tried = Vec::new();
        for home in entry.homes.iter().filter(|home| is_good(home, entry)) {
            let place = home.url.parse::<Url>();
            let place = place.map_err(|bad| Error::bad_name(&home.url, bad.to_string()));
            let done = match place.and_then(|url| self.stores.open(&url)) {
                Ok(place) => attempt(home, &place),
                Err(error) => Err(Failed::Here(error)),
            };
            match done {
                Ok(done) => return Ok(done),
                Err(Failed::Here(error)) if !matches!(error, Error::Canceled) => {
                    tracing::info!(name = %path.display(), site = home.site, %error, "a home is passed over");
                    tried.push((home, error));
                }
                Err(Failed::Here(error) | Failed::Everywhere(error)) => return Err(error),
            }
        }
        Err(all_failed(path, entry, tried))
    }

    /// Notes that the bytes of a home are not those of its version. That this cannot be noted stops no reader.
    fn mark(&self, path: &Path, home: &Home) {
        let change = Change::Mark {
            location: home.location,
            path: home.path.clone(),
            state: OfHome(HomeState::Damaged),
            verified_s: None,
        };
        if let Err(error) = self.change(path, change) {
            tracing::warn!(name = %path.display(), url = home.url, %error, "a damaged copy is not noted");
        }
    }

    /// Reads from one home; compares what can be compared.
    fn read_home(
        &self,
        (path, entry): (&Path, &Named),
        (home, place): (&Home, &Place),
        (want, streams): (&Extents, usize),
        into: &dyn Take,
    ) -> Result<Read, Failed> {
        let is_whole = want.contains(&(0..entry.size.unwrap_or(u64::MAX)));
        let known = best(&entry.digests);
        let by = known.filter(|_| is_whole).map(Digest::algorithm);
        let checking = Checking::new(into, by);
        let read = place.store.read(&place.path, want, streams, &checking);
        let read = read.map_err(|error| match checking.is_refused() {
            true => Failed::Everywhere(error),
            false => Failed::Here(error),
        })?;
        let size = read.stat.known_size();
        let mut differs = match (entry.size, size) {
            (Some(expected), Some(found)) if expected != found => {
                Some((format!("{expected} bytes"), format!("{found} bytes")))
            }
            _ => None,
        };
        let came = checking.came();
        if let (true, Some(size)) = (differs.is_none() && is_whole, entry.size.or(size))
            && !came.contains(&(0..size))
        {
            let what = format!("{} bytes came of {size}", came.len_bytes());
            return Err(Failed::Here(Error::changed(&place.path, what)));
        }
        let hashed = entry.size.or(size).and_then(|size| checking.digest(size));
        // What came counts more than what the site says.
        for told in hashed.iter().chain(&read.digest) {
            let expected = entry.digests.iter().map(|Text(digest)| digest);
            let mut expected = expected.filter(|known| known.algorithm() == told.algorithm());
            if let Some(known) = expected.next()
                && known != told
            {
                differs.get_or_insert((known.to_string(), told.to_string()));
            }
        }
        if let Some((expected, found)) = differs {
            self.mark(path, home);
            let found = format!("{found} at {}", home.site);
            return Err(Failed::Here(Error::corrupt(path, expected, found)));
        }
        Ok(Read {
            stat: Stat {
                size: entry.size.unwrap_or(read.stat.size),
                ..stat(entry)
            },
            digest: known.cloned().or(read.digest),
        })
    }
}

/// Tells whether a home has all bytes of the current version.
fn is_good(home: &Home, entry: &Named) -> bool {
    let is_all = home.range.is_none() && home.offset == 0;
    is_all && home.state.0 == HomeState::Whole && home.version == entry.version
}

fn best(digests: &[Text<Digest>]) -> Option<&Digest> {
    let all = || digests.iter().map(|Text(digest)| digest);
    let blake3 = all().find(|digest| digest.algorithm() == Algorithm::Blake3);
    blake3.or_else(|| all().next())
}

fn all_failed(path: &Path, entry: &Named, mut tried: Vec<(&Home, Error)>) -> Error {
    let Some((_, last)) = tried.last() else {
        let known: Vec<_> = entry.homes.iter().map(said_of).collect();
        let said = match known.is_empty() {
            true => "the catalog knows no copy of it".into(),
            false => format!("no copy of it can be read ({})", known.join(", ")),
        };
        return Error::io(path, io::Error::other(said));
    };
    let (fault, count) = (last.fault(), tried.len());
    if let (1, Error::Corrupt { .. } | Error::Unsupported { .. }) = (count, last) {
        return tried.pop().expect("there is one").1;
    }
    let sites: Vec<_> = tried
        .iter()
        .map(|(h, e)| format!("{}: {e}", h.site))
        .collect();
    let said = format!(
        "none of {count} copies could be read ({})",
        sites.join("; ")
    );
    match (fault, tried.pop()) {
        (Fault::Lasting, Some((_, Error::Corrupt { expected, .. }))) => {
            Error::corrupt(path, expected, said)
        }
        (Fault::Lasting, Some((_, Error::Unsupported { what, .. }))) => {
            Error::unsupported(what, format!("{}: {said}", path.display()))
        }
        (Fault::Lasting, _) => Error::io(path, io::Error::other(said)),
        _ => Error::beyond("", format!("{}: {said}", path.display())),
    }
}

fn said_of(home: &Home) -> String {
    let state = match home.state.0 {
        HomeState::Whole => "of another version, or a part",
        _ => home.state.as_str(),
    };
    format!("{}: {state}", home.site)
}

fn stat(entry: &Named) -> Stat {
    let (kind, size) = match entry.collection {
        true => (EntryKind::Directory, 0),
        false => (EntryKind::File, entry.size.unwrap_or(SIZE_UNKNOWN)),
    };
    Stat {
        mtime: entry.mtime.map(|Time(time)| time),
        mode: entry.mode,
        digest: best(&entry.digests).cloned(),
        ..Stat::of(kind, size)
    }
}

impl Store for Logical {
    has!(self, Facets: peer batch);

    fn can(&self) -> Result<Can> {
        Ok(Can {
            ranges: true,
            digests: vec![Algorithm::Blake3],
            ..Can::default()
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        Ok(stat(&self.locate(path)?))
    }

    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.list_all(path, false, each)
    }

    fn read(&self, path: &Path, want: &Extents, streams: usize, into: &dyn Take) -> Result<Read> {
        let entry = self.file(path)?;
        let size = entry.size.filter(|size| *size <= SMALL_BYTES);
        let is_small = size.is_some_and(|size| want.contains(&(0..size)));
        let mut differs = None;
        self.at_homes(path, &entry, &mut |home, place| {
            let (buffer, of, at) = (Buffer::default(), (path, &entry), (home, place));
            if let (Some(size), true) = (size, is_small) {
                // A reader who prints what comes is never shown damaged bytes of a small file.
                let all = Extents::from(0..size);
                let read = self.read_home(of, at, (&all, 1), &buffer)?;
                let bytes = buffer.0.into_inner();
                if !bytes.is_empty() {
                    let put = into.put(Block::at(0, &bytes));
                    put.map_err(Failed::Everywhere)?;
                }
                return Ok(read);
            }
            let read = self.read_home(of, at, (want, streams), into);
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
        })
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        let entry = self.file(path)?;
        let is_whole = |range: &Range<u64>| Some(range) == entry.size.map(|size| 0..size).as_ref();
        if range.as_ref().is_none_or(is_whole) {
            let mut known = entry.digests.iter().map(|Text(digest)| digest);
            if let Some(known) = known.find(|digest| digest.algorithm() == by) {
                return Ok(known.clone());
            }
        }
        self.at_homes(path, &entry, &mut |_, place| {
            let told = place.store.digest(&place.path, by, range.clone());
            told.map_err(Failed::Here)
        })
    }

    fn write(&self, path: &Path, _: &Write<'_>) -> Result<Box<dyn Sink>> {
        Err(not_yet("writing", path))
    }

    fn remove(&self, path: &Path, what: What) -> Result<()> {
        // Registered bytes stay where they are; godwit made no copy yet.
        let collection = what == What::Directory;
        let name = Name(path.into());
        self.change(
            path,
            Change::Remove {
                name,
                collection,
                data: false,
            },
        )
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (Name(from.into()), Name(to.into()));
        self.change(from, Change::Rename { from: old, to: new })
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        let name = Name(path.into());
        let parents = false;
        self.change(path, Change::Collect { name, parents })
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        let (mode, mtime) = (set.mode, set.mtime.map(Time));
        if set.length.is_some() || set.link_to.is_some() || !set.xattrs.is_empty() {
            return Err(not_yet("changing", path));
        }
        let name = Name(path.into());
        self.change(path, Change::Set { name, mtime, mode })
    }
}

fn not_yet(what: &str, path: &Path) -> Error {
    let why = "this version only reads by name; copy the file to a server, then godwit register URL --as grid:/NAME";
    Error::unsupported(format!("{what} {}", path.display()), why)
}

/// The bytes are at sites.
impl Peer for Logical {}

impl Batch for Logical {
    fn walk_all(&self, path: &Path, walk: &mut Walk<'_>) -> Result<()> {
        self.list_all(path, true, walk.each)
    }
}
