//! The catalog with the stores of its sites: what readers and writers by name share.

use crate::{checking::Checking, failed, leases::Leases, weather::SkyWatch};
pub(crate) use godwit_catalog::is_good;
use godwit_catalog::is_part;
use godwit_catalog::{
    Catalog, CatalogEntry as Named, CatalogHome, Change, Conditions, HomeWord as OfHome, Location,
    find, is_fragment,
};
use godwit_core::{Algorithm, BadUrl, Digest, Extents, Fault, HomeState, Url};
use godwit_store::{
    BlockWriter, EntryKind, Error, Nowhere, Read, Result, SIZE_UNKNOWN, Stat, Store,
    engine::{CopyOptions, Place, Stores},
};
use godwit_wire::door::call::{Text, Time};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// A catalog and open connections to its sites.
pub(crate) struct Sites {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) stores: Stores,
    pub(crate) leases: Leases,
    pub(crate) weather: SkyWatch,
    /// Locations that did not answer, and when.
    silent: Mutex<HashMap<u64, Instant>>,
    /// Directories that were made at locations.
    made: Mutex<HashSet<(u64, PathBuf)>>,
}

/// The part of all copies that a store of names acts on.
#[derive(Clone, Debug, Default)]
pub struct CopyAim {
    /// The site where files are written, and which copies are removed; `None`: any, and all.
    pub site: Option<String>,
    /// The site from which files are read; `None`: any.
    pub from: Option<String>,
    /// Whether the write is one more copy of a version, not a new version.
    pub copy: bool,
    /// The digest of the version that a new one is based on.
    pub base: Option<Digest>,
    /// Whether last copies may be removed at `site`.
    pub last: bool,
    /// Whether bytes that were registered in place are deleted too.
    pub data: bool,
    /// Whether files in fragments are left out of lists: each fragment is asked for by its own name.
    pub in_one_piece: bool,
    /// The conditions on files below a collection.
    pub wanted: Conditions,
}

/// A failure to use one home.
pub(crate) enum HomeFailure {
    /// Another home may serve.
    Here(Error),
    /// No other home can serve.
    Everywhere(Error),
}

impl CopyAim {
    /// Returns the source site of a write, if it is known; a copy learns it later.
    pub(crate) fn sender(&self, sites: &Sites) -> Option<String> {
        (!self.copy).then(|| sites.weather.here.clone())
    }
}

impl Sites {
    /// Opens a catalog; `options` are for the stores of the sites, which are never names.
    pub(crate) fn new(catalog: Arc<dyn Catalog>, options: CopyOptions) -> Self {
        let options = CopyOptions {
            named: None,
            ..options
        };
        Self {
            leases: Leases::new(catalog.clone()),
            weather: SkyWatch::new(catalog.clone()),
            catalog,
            stores: Stores::new(options),
            silent: Mutex::default(),
            made: Mutex::default(),
        }
    }

    /// Finds an entry; `None`: the catalog does not know the name.
    pub(crate) fn find(&self, path: &Path) -> Result<Option<Named>> {
        if path.as_os_str().is_empty() {
            return Ok(Some(Named {
                collection: true,
                ..Named::default()
            }));
        }
        find(&*self.catalog, path).map_err(|refusal| failed(path, refusal))
    }

    /// Finds an entry that must be there.
    pub(crate) fn locate(&self, path: &Path) -> Result<Named> {
        self.find(path)?.ok_or_else(|| Error::missing(path))
    }

    /// Finds a file that must be there.
    pub(crate) fn file(&self, path: &Path) -> Result<Named> {
        match self.locate(path)? {
            entry if entry.collection => Err(Error::directory(path)),
            entry => Ok(entry),
        }
    }

    /// Changes the catalog.
    pub(crate) fn change(&self, path: &Path, change: Change) -> Result<u64> {
        let changed = self.catalog.change(&change.into());
        let changed = changed.map_err(|refusal| failed(path, refusal))?;
        Ok(changed.first().copied().unwrap_or_default())
    }

    /// Returns the locations of a collection, of those above it and of those below it.
    pub(crate) fn all_locations(&self, collection: &Path) -> Result<Vec<Location>> {
        let found = godwit_catalog::locations(&*self.catalog, collection, false);
        found.map_err(|refusal| failed(collection, refusal))
    }

    /// Returns the hosts of locations that have an attribute `host`.
    pub(crate) fn hosts(&self, collection: &Path) -> Result<HashMap<u64, String>> {
        let all = self.all_locations(collection)?.into_iter();
        let host = |mut at: Location| Some((at.location, at.attributes.remove("host")?));
        Ok(all.filter_map(host).collect())
    }

    /// Returns the locations of the nearest collection that has any: where files of `collection` are written.
    pub(crate) fn locations(&self, collection: &Path, site: Option<&str>) -> Result<Vec<Location>> {
        self.nearest(collection, &|location| match site {
            Some(site) => location.site == site,
            None => !is_draining(location),
        })
    }

    /// Returns those of the locations that count which are of the nearest collection that has any.
    pub(crate) fn nearest(
        &self,
        collection: &Path,
        counts: &dyn Fn(&Location) -> bool,
    ) -> Result<Vec<Location>> {
        let mut found = self.all_locations(collection)?;
        found.retain(|location| collection.starts_with(&location.name.0) && counts(location));
        let depth = |location: &Location| location.name.0.iter().count();
        let nearest = found.iter().map(depth).max();
        found.retain(|location| Some(depth(location)) == nearest);
        found.sort_by_key(|location| self.is_silent(location.location));
        Ok(found)
    }

    /// Returns the directories at the sites where the files of a collection lie, without those of locations themselves.
    pub(crate) fn directories(&self, collection: &Path) -> Result<Vec<Place>> {
        let mut found = Vec::new();
        for location in self.locations(collection, None)? {
            let below = collection.strip_prefix(&location.name.0);
            if let Ok(below) = below
                && !below.as_os_str().is_empty()
            {
                found.push(self.open(&location.url)?.join(below)?);
            }
        }
        Ok(found)
    }

    /// Opens the place of a URL that the catalog told.
    pub(crate) fn open(&self, url: &str) -> Result<Place> {
        let read = url.parse::<Url>();
        let read = read.map_err(|bad| Error::bad_name(url, bad.to_string()))?;
        self.stores.open(&read)
    }

    /// Remembers that a location did not answer: others are asked before it for a while.
    pub(crate) fn was_silent(&self, location: u64, error: &Error) {
        if error.fault() != Fault::Lasting {
            self.silent.lock().insert(location, Instant::now());
        }
    }

    fn is_silent(&self, location: u64) -> bool {
        let silent = self.silent.lock();
        silent
            .get(&location)
            .is_some_and(|at| at.elapsed() < SILENT_FOR)
    }

    /// Makes the directory that a file at a location is to lie in.
    pub(crate) fn make_above(&self, location: u64, place: &Place) -> Result<()> {
        let Some(above) = place
            .path
            .parent()
            .filter(|above| !above.as_os_str().is_empty())
        else {
            return Ok(());
        };
        let key = (location, above.to_owned());
        if !self.made.lock().contains(&key) {
            make(&*place.store, above)?;
            self.made.lock().insert(key);
        }
        Ok(())
    }

    /// Forgets that the directory of a file was made.
    pub(crate) fn unmake_above(&self, location: u64, place: &Place) {
        if let Some(above) = place.path.parent() {
            self.made.lock().remove(&(location, above.to_owned()));
        }
    }

    /// Returns the digest of a file at a site, or of a range of it: from the site, or else by reading.
    pub(crate) fn digest_at(
        &self,
        place: &Place,
        by: Algorithm,
        range: Option<Range<u64>>,
    ) -> Result<Digest> {
        match place.store.digest(&place.path, by, range.clone()) {
            Err(Error::Unsupported { .. }) => {}
            told => return told,
        }
        let range = range.unwrap_or(0..u64::MAX);
        let checking = Checking::from(&Nowhere, by, range.start);
        let want = Extents::from(range.clone());
        let read = place.store.read(&place.path, &want, 1, &checking)?;
        let end = range.end.min(read.stat.size);
        let digest = checking.digest(end.max(range.start));
        digest.ok_or_else(|| Error::changed(&place.path, "it was changed while it was read"))
    }

    /// Returns the homes from which the current version can be read, the best first.
    pub(crate) fn homes<'a>(&self, entry: &'a Named, from: Option<&str>) -> Vec<&'a CatalogHome> {
        self.ranked(entry, from, is_good)
    }

    /// Returns the homes of the current version or its parts, the best first.
    pub(crate) fn homes_with_parts<'a>(
        &self,
        entry: &'a Named,
        from: Option<&str>,
    ) -> Vec<&'a CatalogHome> {
        self.ranked(entry, from, |home, entry| {
            is_good(home, entry) || is_part(home, entry)
        })
    }

    fn ranked<'a>(
        &self,
        entry: &'a Named,
        from: Option<&str>,
        is_usable: fn(&CatalogHome, &Named) -> bool,
    ) -> Vec<&'a CatalogHome> {
        let is_wanted = |home: &&CatalogHome| {
            is_usable(home, entry) && from.is_none_or(|from| from == home.site)
        };
        let wanted = || entry.homes.iter().filter(is_wanted);
        if wanted().nth(1).is_none() {
            return wanted().collect();
        }
        let mut homes = self.weather.order(wanted(), entry.size.unwrap_or(0));
        homes.sort_by_key(|home| self.is_silent(home.location));
        homes
    }

    /// Tries the homes of a file in turn, until one succeeds. `bytes`: the size to measure by; 0: not measured.
    pub(crate) fn at_homes<T>(
        &self,
        path: &Path,
        (entry, from, bytes): (&Named, Option<&str>, u64),
        attempt: &mut dyn FnMut(&CatalogHome, &Place) -> Result<T, HomeFailure>,
    ) -> Result<T> {
        let mut tried = Vec::new();
        let homes = self.homes(entry, from);
        let is_choice = homes.len() > 1;
        for home in homes {
            let begun = Instant::now();
            let done = match self.open(&home.url) {
                Ok(place) => attempt(home, &place),
                Err(error) => Err(HomeFailure::Here(error)),
            };
            if is_choice && bytes > 0 {
                let is_fault = matches!(&done, Err(HomeFailure::Here(error)) if error.fault() != Fault::Lasting);
                if done.is_ok() || is_fault {
                    self.weather
                        .measured(&home.site, bytes, begun.elapsed(), is_fault);
                }
            }
            match done {
                Ok(done) => return Ok(done),
                Err(HomeFailure::Here(error)) if !matches!(error, Error::Canceled) => {
                    tracing::info!(name = %path.display(), site = home.site, %error, "a home is passed over");
                    self.was_silent(home.location, &error);
                    tried.push((home, error));
                }
                Err(HomeFailure::Here(error) | HomeFailure::Everywhere(error)) => {
                    return Err(error);
                }
            }
        }
        Err(all_failed(path, entry, tried))
    }

    /// Notes that the bytes of a home are not those of its version. That this cannot be noted stops no reader.
    pub(crate) fn mark(&self, path: &Path, home: &CatalogHome) {
        self.mark_as(path, home, HomeState::Damaged);
    }

    /// Notes the state of a home. That this cannot be noted stops no reader.
    pub(crate) fn mark_as(&self, path: &Path, home: &CatalogHome, state: HomeState) {
        let change = Change::Mark {
            location: home.location,
            path: home.path.clone(),
            state: OfHome(state),
            verified_s: None,
        };
        if let Err(error) = self.change(path, change) {
            tracing::warn!(name = %path.display(), url = home.url, %error, "the state of a copy is not noted");
        }
    }

    /// Reads from one home; compares what can be compared.
    pub(crate) fn read_home(
        &self,
        (path, entry): (&Path, &Named),
        at: (&CatalogHome, &Place),
        (want, streams): (&Extents, usize),
        into: &dyn BlockWriter,
    ) -> Result<Read, HomeFailure> {
        let checking = checking(into, entry, want);
        self.read_rest((path, entry), at, (want, streams), &checking)
    }

    /// Reads what has not come yet of the wanted bytes.
    pub(crate) fn read_rest(
        &self,
        (path, entry): (&Path, &Named),
        (home, place): (&CatalogHome, &Place),
        (want, streams): (&Extents, usize),
        checking: &Checking<'_>,
    ) -> Result<Read, HomeFailure> {
        let is_whole = is_whole(entry, want);
        let known = best(&entry.digests);
        let before = checking.came();
        let left = want.minus(&before);
        let has_all = |size| !before.is_empty() && left.within(0..size).next().is_none();
        let read = match entry.size.is_some_and(has_all) {
            // The home before died when it had sent all.
            true => Ok(Read {
                stat: stat(entry),
                digest: None,
            }),
            false => place.store.read(&place.path, &left, streams, checking),
        };
        let read = read.map_err(|error| match checking.is_refused() {
            true => HomeFailure::Everywhere(error),
            false => HomeFailure::Here(error),
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
            return Err(HomeFailure::Here(Error::changed(&place.path, what)));
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
            // The wrong bytes may be those of the home before.
            if before.is_empty() {
                self.mark(path, home);
            }
            let found = format!("{found} at {}", home.site);
            return Err(HomeFailure::Here(Error::corrupt(path, expected, found)));
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

/// Begins to count and hash bytes of a file; a digest needs all of them.
pub(crate) fn checking<'a>(
    into: &'a dyn BlockWriter,
    entry: &Named,
    want: &Extents,
) -> Checking<'a> {
    let known = best(&entry.digests).filter(|_| is_whole(entry, want));
    Checking::new(into, known.map(Digest::algorithm))
}

/// Tells whether all bytes of a file are wanted.
fn is_whole(entry: &Named, want: &Extents) -> bool {
    want.contains(&(0..entry.size.unwrap_or(u64::MAX)))
}

/// Returns a name as users write it.
pub fn shown(name: &Path) -> String {
    if is_fragment(name)
        && let (Some(file), Some(last)) = (name.parent(), name.file_name())
    {
        let numbers = last.to_string_lossy().replace('.', "/");
        return shown(file) + &numbers;
    }
    url_of(name).map_or_else(|_| name.display().to_string(), |url| url.to_string())
}

/// Tells whether the copies at a location are moved away.
pub(crate) fn is_draining(location: &Location) -> bool {
    location
        .attributes
        .get(STATE)
        .is_some_and(|state| state == DRAINING)
}

/// The attribute of a location that has its state.
pub(crate) const STATE: &str = "state";
pub(crate) const DRAINING: &str = "draining";

/// Returns the digest that is compared: BLAKE3 if it is known.
pub(crate) fn best(digests: &[Text<Digest>]) -> Option<&Digest> {
    let all = || digests.iter().map(|Text(digest)| digest);
    let blake3 = all().find(|digest| digest.algorithm() == Algorithm::Blake3);
    blake3.or_else(|| all().next())
}

fn all_failed(path: &Path, entry: &Named, mut tried: Vec<(&CatalogHome, Error)>) -> Error {
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

fn said_of(home: &CatalogHome) -> String {
    let state = match home.state.0 {
        HomeState::Whole => "of another version, or a part",
        _ => home.state.as_str(),
    };
    format!("{}: {state}", home.site)
}

/// Returns what the catalog knows as a store tells it.
pub(crate) fn stat(entry: &Named) -> Stat {
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

/// Returns a name as a URL.
pub(crate) fn url_of(name: &Path) -> Result<Url> {
    use std::os::unix::ffi::OsStrExt;
    let bad = |bad: BadUrl| Error::bad_name(name, bad.to_string());
    let root: Url = "grid:/".parse().map_err(bad)?;
    match name.as_os_str().as_bytes() {
        [] => Ok(root),
        below => root.join(below).map_err(bad),
    }
}

/// Makes a directory and those above it that are missing.
pub(crate) fn make(store: &dyn Store, path: &Path) -> Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let made = match (store.mkdir(path), above) {
        (Err(Error::Missing { .. }), Some(above)) => {
            make(store, above)?;
            store.mkdir(path)
        }
        (made, _) => made,
    };
    // Some servers do not say that it exists.
    match made {
        Err(error)
            if !store
                .stat(path)
                .is_ok_and(|stat| stat.kind == EntryKind::Directory) =>
        {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// How long a location that did not answer is asked last.
const SILENT_FOR: Duration = Duration::from_secs(30);
