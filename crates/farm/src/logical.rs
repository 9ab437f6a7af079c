//! The store of names: what the catalog knows, with the bytes of whichever site can give them.

use crate::{
    checking::{BytesBuffer, Checking},
    combining::has_parts,
    failed, pack, reading,
    settle::{self, Settled},
    sites::{CopyAim, HomeFailure, Sites, is_good, stat, url_of},
    weather::ReadCost,
    writing,
};
use godwit_catalog::{
    Catalog, CatalogHome, Change, Changes, ComparedFile, Intent, IntentDeed, Pages, Refusal,
    fragment_name,
};
use godwit_core::{Algorithm, Digest, Extents, Kind, Url};
use godwit_store::{
    Batch, BlockWriter, Capabilities, Entry, Error, Finished, NextFile, Nowhere, Peer, Read,
    RemovalKind, Result, SMALL_BYTES, Set, Sink, Small, SmallResult, SmallWrite, Stat, Store,
    Verified, Walk, Write,
    engine::{CopyOptions, Place},
    has,
};
use godwit_wire::door::call::{Name, Text, Time};
use std::{
    collections::BTreeSet,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A store of the names of a catalog. Paths are names without the leading slash.
#[derive(Clone)]
pub struct Logical {
    pub(crate) sites: Arc<Sites>,
    pub(crate) aim: CopyAim,
}

impl Logical {
    /// Opens the names of a catalog; `options` are for the stores of the sites, which are never names.
    pub fn new(catalog: Arc<dyn Catalog>, options: CopyOptions) -> Self {
        Self {
            sites: Arc::new(Sites::new(catalog, options)),
            aim: CopyAim::default(),
        }
    }

    /// Returns the same names, with another aim.
    pub fn aimed(&self, aim: CopyAim) -> Self {
        let sites = self.sites.clone();
        Self { sites, aim }
    }

    /// Returns the place of a name in this store.
    pub fn place(&self, url: &Url) -> Place {
        Place {
            store: Arc::new(self.clone()),
            path: url.path_from_root(),
            url: url.clone(),
        }
    }

    /// Returns the sites of a collection, of those above it and of those below it.
    pub fn sites(&self, collection: &Path) -> Result<Vec<String>> {
        let locations = self.sites.all_locations(collection)?.into_iter();
        let sites: BTreeSet<String> = locations.map(|location| location.site).collect();
        Ok(sites.into_iter().collect())
    }

    /// Ends what processes that have gone had begun with a name, or with names below it.
    pub fn settle(
        &self,
        name: &Path,
        each: &mut dyn FnMut(&Intent, Result<Settled>),
    ) -> Result<()> {
        settle::all(&self.sites, name, each)
    }

    /// Returns the costs to read each copy of the current version at `to` (`None`: here), the best first.
    pub fn costs<'a>(
        &self,
        entry: &'a godwit_catalog::CatalogEntry,
        to: Option<&str>,
    ) -> Vec<(&'a CatalogHome, ReadCost)> {
        let weather = &self.sites.weather;
        let (sky, to, bytes) = (
            weather.sky(),
            to.unwrap_or(&weather.here),
            entry.size.unwrap_or(0),
        );
        let homes = entry.homes.iter().filter(|home| is_good(home, entry));
        sky.ranked(homes, (to, bytes))
    }

    /// Returns the cost of a read here if `site` had a copy.
    pub fn cost_from(&self, entry: &godwit_catalog::CatalogEntry, site: &str) -> ReadCost {
        let weather = &self.sites.weather;
        weather
            .sky()
            .cost(&weather.here, (site, 0), entry.size.unwrap_or(0))
    }

    /// Forgets copies; the bytes stay. Without a site the name goes too.
    pub fn unregister(&self, name: &Path) -> Result<()> {
        let entry = self.sites.file(name)?;
        let site = self.aim.site.as_deref();
        let mut changes: Vec<_> = entry
            .homes
            .iter()
            .filter(|home| site.is_none_or(|site| site == home.site))
            .map(|home| Change::Unregister {
                location: home.location,
                path: home.path.clone(),
                last: site.is_none() || self.aim.last,
            })
            .collect();
        if site.is_none() {
            changes.push(removal(name, false, false));
        }
        let changed = self.sites.catalog.change(&Changes::from(changes));
        changed
            .map(drop)
            .map_err(|refusal| last_copy(name, refusal))
    }

    /// Lists a collection; of a store of copies at a site what that site has.
    fn list_all(
        &self,
        path: &Path,
        deep: bool,
        each: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let wanted = &self.aim.wanted;
        let homes = self.aim.copy
            || self.aim.from.is_some()
            || self.aim.in_one_piece
            || wanted.has_catalog_part();
        for page in Pages::new(&*self.sites.catalog, path, deep, homes) {
            for entry in page.map_err(|refusal| failed(path, refusal))? {
                if self.aim.in_one_piece && !entry.fragments.is_empty() {
                    continue;
                }
                if self.has(&entry) && (entry.collection || wanted.has(&seen(&entry))) {
                    let stat = stat(&entry);
                    let path = entry.name.0;
                    each(Entry { path, stat })?;
                }
            }
        }
        Ok(())
    }

    /// Finds a name, then all names below it.
    pub fn find(
        &self,
        path: &Path,
        each: &mut dyn FnMut(Entry, &godwit_catalog::CatalogEntry) -> Result<()>,
    ) -> Result<()> {
        let root = self.sites.locate(path)?;
        let stat_of_root = stat(&root);
        let at = |path, stat| Entry { path, stat };
        each(at(PathBuf::new(), stat_of_root), &root)?;
        if !root.collection {
            return Ok(());
        }
        for page in Pages::new(&*self.sites.catalog, path, true, true) {
            for entry in page.map_err(|refusal| failed(path, refusal))? {
                each(at(entry.name.0.clone(), stat(&entry)), &entry)?;
            }
        }
        Ok(())
    }

    /// Returns the URL of each fragment of a file, or of all files below a collection that meet the conditions.
    pub fn fragments(&self, path: &Path) -> Result<Vec<Url>> {
        let mut names = Vec::new();
        self.find(path, &mut |at, entry| {
            if self.aim.wanted.has(&seen(entry)) {
                let parts = entry.parts().len() as u64;
                let file = path.join(&at.path);
                names.extend((0..parts).map(|index| fragment_name(&file, index, parts)));
            }
            Ok(())
        })?;
        names.iter().map(|name| url_of(name)).collect()
    }

    /// Tells whether a file meets the conditions.
    pub fn wants(&self, path: &Path) -> Result<bool> {
        let entry = self.sites.locate(path)?;
        Ok(self.aim.wanted.has(&seen(&entry)))
    }

    /// Tells whether an entry is to be seen.
    fn has(&self, entry: &godwit_catalog::CatalogEntry) -> bool {
        let site = match self.aim.copy {
            true => self.aim.site.as_ref(),
            false => self.aim.from.as_ref(),
        };
        let is_at = |site: &String| {
            let mut homes = entry.homes.iter();
            homes.any(|home| home.site == *site && is_good(home, entry))
        };
        entry.collection || site.is_none_or(is_at)
    }

    /// Removes the copies of a file at one site; its other copies stay.
    fn remove_at(&self, path: &Path, site: &str) -> Result<()> {
        let entry = self.sites.file(path)?;
        for home in entry.homes.iter().filter(|home| home.site == site) {
            self.discard(path, home)?;
        }
        Ok(())
    }

    /// Forgets a copy, and deletes its bytes.
    pub(crate) fn discard(&self, path: &Path, home: &CatalogHome) -> Result<()> {
        let discard = Change::Discard {
            location: home.location,
            path: home.path.clone(),
            last: self.aim.last,
            data: self.aim.data,
            holder: self.sites.leases.holder(),
        };
        let made = self.sites.catalog.change(&discard.into());
        let made = made.map_err(|refusal| last_copy(path, refusal))?;
        let number = made.first().copied().unwrap_or_default();
        if number == 0 {
            tracing::info!(
                url = home.url,
                "another home is the same file: its bytes stay"
            );
            return Ok(());
        }
        let intent = Intent {
            intent: number,
            deed: IntentDeed::Delete,
            name: Name(path.into()),
            location: home.location,
            path: home.path.clone(),
            url: home.url.clone(),
            ..Intent::default()
        };
        left(&intent, settle::one(&self.sites, &intent));
        Ok(())
    }

    /// Deletes the bytes that no name has any more.
    fn delete_bytes(&self, path: &Path) -> Result<()> {
        settle::all(&self.sites, path, &mut left)
    }
}

/// Returns what conditions are compared with.
fn seen(entry: &godwit_catalog::CatalogEntry) -> ComparedFile<'_> {
    ComparedFile {
        name: entry.name.0.file_name().unwrap_or_default().as_bytes(),
        size: entry.size,
        mtime: entry.mtime.map(|Time(time)| time),
        entry: Some(entry),
    }
}

/// Explains why a copy is kept.
fn last_copy(name: &Path, refusal: Refusal) -> Error {
    if refusal.kind != Kind::NotEmpty {
        return failed(name, refusal);
    }
    let what = format!("removing the last copy of grid:/{}", name.display());
    Error::unsupported(
        what,
        "no other site has these bytes; to remove it all the same say --last",
    )
}

/// Says that bytes are left for a later attempt.
fn left(intent: &Intent, settled: Result<Settled>) {
    if let Err(error) = settled {
        tracing::warn!(
            url = intent.url,
            %error,
            "the name is gone, and these bytes could not be deleted now; later: godwit audit --repair"
        );
    }
}

fn removal(path: &Path, collection: bool, data: bool) -> Change {
    Change::Remove {
        name: Name(path.into()),
        collection,
        data,
    }
}

impl Store for Logical {
    has!(self, Facets: peer batch);

    fn can(&self) -> Result<Capabilities> {
        Ok(Capabilities {
            any_order: true,
            atomic: true,
            digests: Algorithm::ALL.to_vec(),
            ranges: true,
            resume: true,
            set_mode: true,
            set_mtime: true,
            write: true,
            ..Capabilities::default()
        })
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        let entry = self.made(path)?;
        match self.has(&entry) {
            true => Ok(stat(&entry)),
            false => Err(Error::missing(path)),
        }
    }

    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.list_all(path, false, each)
    }

    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        let entry = match self.made(path)? {
            entry if entry.collection => return Err(Error::directory(path)),
            entry => entry,
        };
        self.read_entry((path, &entry), want, streams, into)
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        let entry = self.sites.file(path)?;
        let is_whole = |range: &Range<u64>| Some(range) == entry.size.map(|size| 0..size).as_ref();
        if range.as_ref().is_none_or(is_whole) {
            let mut known = entry.digests.iter().map(|Text(digest)| digest);
            if let Some(known) = known.find(|digest| digest.algorithm() == by) {
                return Ok(known.clone());
            }
        }
        let from = self.aim.from.as_deref();
        let told = self
            .sites
            .at_homes(path, (&entry, from, 0), &mut |_, place| {
                let told = self.sites.digest_at(place, by, range.clone());
                told.map_err(HomeFailure::Here)
            });
        match entry.size {
            Some(size) if told.is_err() && has_parts(&entry) => {
                let Range { start, end } = range.unwrap_or(0..size);
                let want = Extents::from(start..end.min(size));
                let checking = Checking::from(&Nowhere, by, start);
                self.read_entry((path, &entry), &want, 1, &checking)?;
                let digest = checking.digest(end.min(size));
                digest.ok_or_else(|| Error::changed(path, "its bytes did not come in order"))
            }
            _ => told,
        }
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        writing::begin(&self.sites, &self.aim, path, write)
    }

    fn remove(&self, path: &Path, what: RemovalKind) -> Result<()> {
        let is_collection = what == RemovalKind::Directory;
        match &self.aim.site {
            Some(_) if is_collection => return Ok(()),
            Some(site) => return self.remove_at(path, site),
            None => {}
        }
        // Asked before: a collection that is gone has no locations.
        let places = match is_collection {
            true => self.sites.directories(path)?,
            false => Vec::new(),
        };
        self.sites
            .change(path, removal(path, is_collection, self.aim.data))?;
        for place in places {
            // One that is not empty is kept, and one that is not there was never made.
            let _ = place.store.remove(&place.path, RemovalKind::Directory);
        }
        self.delete_bytes(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (Name(from.into()), Name(to.into()));
        self.sites
            .change(from, Change::Rename { from: old, to: new })?;
        self.delete_bytes(to)
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        if self.aim.copy {
            return Ok(());
        }
        let (name, parents) = (Name(path.into()), false);
        self.sites
            .change(path, Change::Collect { name, parents })
            .map(drop)
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        let (mode, mtime) = (set.mode, set.mtime.map(Time));
        if set.length.is_some() || set.link_to.is_some() || !set.xattrs.is_empty() {
            let why =
                "a name has a time and permission bits; for more use godwit attr and godwit link";
            return Err(Error::unsupported(
                format!("changing {}", path.display()),
                why,
            ));
        }
        let name = Name(path.into());
        self.sites
            .change(path, Change::Set { name, mtime, mode })
            .map(drop)
    }
}

/// The bytes are at sites.
impl Peer for Logical {}

impl Batch for Logical {
    fn walk_all(&self, path: &Path, walk: &mut Walk<'_>) -> Result<()> {
        self.list_all(path, true, walk.each)
    }

    fn write_small(
        &self,
        next: &mut NextFile<'_, SmallWrite>,
        each: &mut SmallResult<'_, Finished>,
    ) -> Result<()> {
        pack::write(&self.sites, &self.aim, next, each)
    }

    fn read_small(
        &self,
        next: &mut NextFile<'_, PathBuf>,
        each: &mut SmallResult<'_, Small>,
    ) -> Result<()> {
        let alone = |path: &Path| {
            let (buffer, all) = (BytesBuffer::default(), Extents::from(0..SMALL_BYTES));
            let read = self.read(path, &all, 1, &buffer)?;
            let bytes = buffer.0.into_inner();
            if read.stat.size != bytes.len() as u64 {
                return Err(Error::changed(path, "it is no small file any more"));
            }
            Ok(Small {
                bytes,
                stat: read.stat,
                // The read has compared it.
                verified: read.digest.map_or(Verified::SizeOnly, |digest| {
                    Verified::By(digest.algorithm())
                }),
            })
        };
        reading::read((&self.sites, &self.aim), next, each, &alone)
    }
}
