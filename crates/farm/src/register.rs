//! Registers existing files under names. No byte is read here: the site computes the digests.

use crate::{failed, now};
use godwit_catalog::{Catalog, Change, NewHome, Refusal, locations};
use godwit_core::{Algorithm, Digest, Fault, Kind, Url};
use godwit_store::{
    EntryKind, Error, Result, Stat, Store, StoreExt,
    engine::{Place, Stores},
};
use godwit_wire::door::{
    call::{Name, Text, Time},
    path::escaped,
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

/// Counts of registered files.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Files that are noted now, or were before.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Refused files, and entries that are neither file nor directory.
    pub failed: u64,
}

/// Receives the result for each name.
type Each<'a> = dyn FnMut(&Path, Result<()>) + 'a;

/// How many files a transaction notes.
const LIST_MAX: usize = 500;

/// How many files a site hashes at once.
const HASHED_AT_ONCE: usize = 8;

/// A file to note: its path below the location, and its attributes.
type Found = (PathBuf, Stat);

/// Registers the files at `url` under `name`; `each` receives every file.
pub fn register(
    catalog: &dyn Catalog,
    stores: &Stores,
    url: &Url,
    name: &Url,
    recursive: bool,
    each: &mut Each<'_>,
) -> Result<Counts> {
    let place = stores.open(url)?;
    let name = name.path_from_root();
    let stat = place.store.stat(&place.path)?;
    if stat.kind == EntryKind::Directory {
        if !recursive {
            return Err(Error::directory(&place.path));
        }
        let mut run = Run::begin(catalog, &place, name, true, each)?;
        run.walk()?;
        return Ok(run.counts);
    }
    let file = url.file_name().map(<[u8]>::to_vec);
    let (Some(file), Some(above), Some(_)) = (file, url.parent(), name.file_name()) else {
        let why = "it names no file; register -r registers a directory";
        return Err(Error::bad_name(&name, why));
    };
    use std::os::unix::ffi::OsStringExt;
    let file = PathBuf::from(std::ffi::OsString::from_vec(file));
    let collection = name.parent().unwrap_or(Path::new("")).to_owned();
    let mut run = Run::begin(catalog, &stores.open(&above)?, collection, false, each)?;
    run.flush(vec![(file, stat)], Some(&name))?;
    Ok(run.counts)
}

/// One registration under way.
struct Run<'a, 'b> {
    catalog: &'a dyn Catalog,
    place: Place,
    collection: PathBuf,
    location: u64,
    by: Option<Algorithm>,
    each: &'a mut Each<'b>,
    counts: Counts,
}

impl<'a, 'b> Run<'a, 'b> {
    fn begin(
        catalog: &'a dyn Catalog,
        place: &Place,
        collection: PathBuf,
        whole: bool,
        each: &'a mut Each<'b>,
    ) -> Result<Self> {
        let can = place.store.can()?;
        // The first that the site can do; the cheap ones before the others.
        let by = Algorithm::ALL
            .into_iter()
            .find(|by| can.digests.contains(by));
        let location = location(catalog, place, &collection, whole)?;
        Ok(Self {
            catalog,
            place: place.clone(),
            collection,
            location,
            by,
            each,
            counts: Counts::default(),
        })
    }

    fn walk(&mut self) -> Result<()> {
        let mut found: Vec<Found> = Vec::new();
        let place = self.place.clone();
        place.store.walk(&place.path, &mut |entry| {
            let stat = match entry.stat.kind {
                EntryKind::Link => place.store.stat(&place.path.join(&entry.path)),
                _ => Ok(entry.stat),
            };
            let name = self.collection.join(&entry.path);
            match stat {
                Ok(stat) if stat.kind == EntryKind::File => found.push((entry.path, stat)),
                Ok(stat) if stat.kind == EntryKind::Directory => {
                    let (name, parents) = (Name(name), true);
                    self.change(vec![Change::Collect { name, parents }])
                        .map_err(|refusal| failed(&entry.path, refusal))?;
                }
                Ok(_) => {
                    let what = format!("registering {}", name.display());
                    let error = Error::unsupported(what, "it is neither file nor directory");
                    self.told(&name, 0, Err(error));
                }
                Err(error) => self.told(&name, 0, Err(error)),
            }
            match found.len() >= LIST_MAX {
                true => self.flush(std::mem::take(&mut found), None),
                false => Ok(()),
            }
        })?;
        self.flush(found, None)
    }

    /// Notes files in one transaction; if the list is refused, each in one of its own.
    fn flush(&mut self, found: Vec<Found>, name: Option<&Path>) -> Result<()> {
        let digests = digests(&*self.place.store, &self.place.path, self.by, &found);
        let mut noted = Vec::new();
        for ((path, stat), digest) in found.into_iter().zip(digests) {
            let name = name.map_or_else(|| self.collection.join(&path), Path::to_owned);
            match digest {
                Ok(digest) => {
                    let size = stat.known_size().unwrap_or(0);
                    let change = self.change_of(&name, path, stat, digest.clone());
                    noted.push((name, size, digest, change));
                }
                Err(error) => self.told(&name, 0, Err(error)),
            }
        }
        if noted.is_empty() {
            return Ok(());
        }
        let all = noted.iter().map(|(.., change)| change.clone()).collect();
        let is_noted = self.change(all).is_ok();
        for (name, size, digest, change) in noted {
            let one = match is_noted {
                true => Ok(()),
                false => self.change(vec![change]),
            };
            let one = one.map_err(|refusal| clash(&name, size, digest, refusal));
            match one {
                Err(error) if error.fault() != Fault::Lasting => return Err(error),
                one => self.told(&name, size, one),
            }
        }
        Ok(())
    }

    fn change_of(&self, name: &Path, path: PathBuf, stat: Stat, digest: Option<Digest>) -> Change {
        let verified_s = digest.as_ref().map(|_| now().as_secs());
        let home = NewHome {
            location: self.location,
            path: Name(path),
            verified_s,
            ..NewHome::default()
        };
        Change::Register {
            name: Name(name.into()),
            size: stat.known_size(),
            digests: digest.map(Text).into_iter().collect(),
            mtime: stat.mtime.map(Time),
            mode: stat.mode,
            home: Some(home),
        }
    }

    fn change(&self, changes: Vec<Change>) -> Result<(), Refusal> {
        self.catalog.change(&changes.into()).map(drop)
    }

    fn told(&mut self, name: &Path, size: u64, one: Result<()>) {
        match one {
            Ok(()) => {
                self.counts.files += 1;
                self.counts.bytes += size;
            }
            Err(_) => self.counts.failed += 1,
        }
        (self.each)(name, one);
    }
}

/// Returns the error for a file whose name has other bytes already.
fn clash(name: &Path, size: u64, digest: Option<Digest>, refusal: Refusal) -> Error {
    if refusal.kind != Kind::Changed {
        return failed(name, refusal);
    }
    let here = digest.map_or_else(|| format!("{size} bytes"), |digest| digest.to_string());
    let (there, here) = match refusal.more.differs {
        Some(differs) => differs,
        None => (format!("other bytes by this name ({})", refusal.said), here),
    };
    Error::corrupt(name, here, format!("in the catalog {there}"))
}

/// Returns the digest of each file from the site; `None`: it computes none.
fn digests(
    store: &dyn Store,
    root: &Path,
    by: Option<Algorithm>,
    found: &[Found],
) -> Vec<Result<Option<Digest>>> {
    let one = |(path, _): &Found| match by.map(|by| store.digest(&root.join(path), by, None)) {
        None | Some(Err(Error::Unsupported { .. })) => Ok(None),
        Some(told) => told.map(Some),
    };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut told = Vec::new();
        while let at = next.fetch_add(1, Relaxed)
            && let Some(file) = found.get(at)
        {
            told.push((at, one(file)));
        }
        told
    };
    let mut told: Vec<_> = thread::scope(|scope| {
        let most = HASHED_AT_ONCE.min(found.len());
        let threads: Vec<_> = (0..most).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .flat_map(|told| told.expect("hashing does not panic"))
            .collect()
    });
    told.sort_by_key(|(at, _)| *at);
    told.into_iter().map(|(_, digest)| digest).collect()
}

/// Returns the location of a collection at a place, which is added if it is missing.
pub(crate) fn location(
    catalog: &dyn Catalog,
    place: &Place,
    collection: &Path,
    whole: bool,
) -> Result<u64> {
    let fails = |refusal| failed(collection, refusal);
    let url = match place.url.is_local() {
        true => format!(
            "file:///{}",
            escaped(place.path.strip_prefix("/").unwrap_or(&place.path))
        ),
        false => place.url.without_password().to_string(),
    };
    let name = Name(collection.into());
    let mut known = match locations(catalog, collection, false) {
        // The collection is made with its first location.
        Err(refusal) if refusal.kind == Kind::Missing => Vec::new(),
        known => known.map_err(fails)?,
    };
    known.retain(|location| location.name == name);
    if let Some(known) = known.iter().find(|known| known.url == url) {
        return Ok(known.location);
    }
    let host = match place.url.host() {
        Some(host) => host.to_string(),
        None => godwit_sys::host_name().unwrap_or_else(|| "localhost".into()),
    };
    let is_free = |site: &String| known.iter().all(|known| known.site != *site);
    let port = place.url.port().map(|port| format!("{host}:{port}"));
    let more = (2..).map(|count| format!("{host}-{count}"));
    let mut sites = std::iter::once(host.clone()).chain(port).chain(more);
    let site = sites.find(is_free).expect("there are more than are taken");
    let change = Change::AddLocation {
        name,
        site,
        url,
        whole,
    };
    let made = catalog.change(&change.into()).map_err(fails)?;
    made.first().copied().ok_or_else(|| {
        let said = "it does not tell the number of a location that it made";
        Error::misbehaved("the catalog", said)
    })
}
