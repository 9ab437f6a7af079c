//! Writing one file by name: an intent, the bytes, their landing, the site's own finish, and the publication.

use crate::{
    checking::Hashed,
    failed,
    leases::IntentLease,
    now,
    settle::{self, Settled},
    sites::{CopyAim, HomeFailure, Sites, best, is_good, stat},
};
use godwit_catalog::{
    CatalogEntry as Named, Change, Changes, HomeWord as OfHome, Intent, IntentDeed, Location,
    Measured, Refusal, draft_name, is_fragment,
};
use godwit_core::{Algorithm, Block, Chain, Digest, Extents, Fault, HomeState, Kind};
use godwit_store::{
    BlockWriter, Error, Expected, Finished, Read, Result, SMALL_BYTES, Sink, SinkExt, SmallWrite,
    Stat, Store, Verified, Version, Write, WriteMode, engine::Place, has,
};
use godwit_sys::crash;
use godwit_wire::door::call::{Name, Text, Time};
use parking_lot::Mutex;
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A file that is written, or copied to a further site.
pub(crate) struct Writing {
    begun: Begun,
    /// The upload at the site; `None`: the site has the bytes by now.
    sink: Option<Box<dyn Sink>>,
    hashed: Mutex<Hashed>,
    came: Mutex<Extents>,
    /// Whether bytes came from another server to the site, not through here.
    is_drawn: AtomicBool,
    /// The site that sent the bytes, if it is known.
    source: Mutex<Option<String>>,
    began: Instant,
    mode: Option<u32>,
}

/// A write or copy at one place, which the catalog knows.
pub(crate) struct Begun {
    pub(crate) sites: Arc<Sites>,
    pub(crate) name: PathBuf,
    pub(crate) lease: IntentLease,
    pub(crate) at: At,
    /// The version that is copied; `None`: a new one is written.
    pub(crate) copied: Option<Box<Named>>,
    /// The site from which a copy comes.
    from: Option<String>,
}

/// A place at a location.
#[derive(Clone)]
pub(crate) struct At {
    pub(crate) location: u64,
    pub(crate) site: String,
    pub(crate) path: PathBuf,
    pub(crate) place: Place,
    before: Prior,
    /// The version that is current: of a copy the one that is copied.
    pub(crate) base: u64,
}

/// The bytes that lie at a place before a write, as the catalog knows them.
#[derive(Clone)]
enum Prior {
    /// None: no bytes may be replaced.
    Nothing,
    /// A copy that godwit made.
    Ours,
    /// A registered file, with its version if that is the current one: nothing else may be replaced.
    Registered(Option<Version>),
}

impl At {
    /// Tells whether the catalog knows no copy there.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.before, Prior::Nothing)
    }

    /// Returns how bytes are written there. Registered bytes that were changed in place are never lost.
    pub(crate) fn how(&self) -> Result<WriteMode> {
        match &self.before {
            Prior::Nothing => Ok(WriteMode::New),
            Prior::Ours => Ok(WriteMode::Replace(None)),
            Prior::Registered(Some(version)) => Ok(WriteMode::Replace(Some(version.clone()))),
            Prior::Registered(None) => {
                let url = &self.place.url;
                let why = format!(
                    "its bytes were registered there, not made by godwit, and may be of any version; \
                     forget that copy first: godwit unregister NAME --at {}",
                    self.site
                );
                Err(Error::unsupported(format!("replacing {url}"), why))
            }
        }
    }
}

/// Begins to write a file.
pub(crate) fn begin(
    sites: &Arc<Sites>,
    aim: &CopyAim,
    name: &Path,
    write: &Write<'_>,
) -> Result<Box<dyn Sink>> {
    if write.attempt > 0 {
        let why = "the intent of a write tells which attempt is the latest";
        return Err(Error::unsupported("counting attempts", why));
    }
    let entry = sites.find(name)?;
    check(aim, name, entry.as_ref(), &write.how)?;
    let places = places(sites, aim, name, entry.as_ref())?;
    if aim.copy
        && let Some(entry) = &entry
        && places.iter().any(|at| has_it(entry, at))
    {
        return Ok(Box::new(PresentCopy(entry.clone())));
    }
    let mut last = None;
    for at in places {
        match begin_at(sites, aim, name, (entry.as_ref(), at.clone()), write) {
            // Another site may take a new file.
            Err(error)
                if error.fault() != Fault::Lasting && error.kind() != Kind::Busy && at.is_new() =>
            {
                sites.was_silent(at.location, &error);
                tracing::info!(name = %name.display(), site = at.site, %error, "a site is passed over");
                last.get_or_insert(error);
            }
            begun => return begun,
        }
    }
    Err(last.unwrap_or(Error::Canceled))
}

/// Writes one small file by itself.
pub(crate) fn alone(sites: &Arc<Sites>, aim: &CopyAim, given: &SmallWrite) -> Result<Finished> {
    let size = given.bytes.len() as u64;
    let write = Write {
        how: given.how.clone(),
        mode: given.mode,
        ..Write::of_size(size)
    };
    let sink = begin(sites, aim, &given.path, &write)?;
    if size > 0 {
        sink.put(Block::at(0, &given.bytes))?;
    }
    sink.finish(&Expected {
        mtime: given.mtime,
        mode: given.mode,
        ..Expected::of_size(size)
    })
}

/// Refuses what cannot be written.
pub(crate) fn check(
    aim: &CopyAim,
    name: &Path,
    entry: Option<&Named>,
    how: &WriteMode,
) -> Result<()> {
    let known = entry.filter(|entry| entry.version > 0);
    if entry.is_some_and(|entry| entry.collection) {
        return Err(Error::directory(name));
    }
    match how {
        _ if aim.copy && known.is_none() => return Err(Error::missing(name)),
        WriteMode::New if known.is_some() && !aim.copy => return Err(Error::exists(name)),
        WriteMode::New | WriteMode::Replace(None) => {}
        WriteMode::Replace(Some(version)) => {
            let current = known.map(|entry| stat(entry).version(Duration::ZERO));
            if !current.is_some_and(|current| version.compare(&current).looks_same()) {
                return Err(Error::changed(name, "another version is current"));
            }
        }
        WriteMode::InPlace | WriteMode::Append { .. } => {
            let why = "a file with a name is replaced as a whole; write a new version of it";
            return Err(Error::unsupported("changing a part of a file", why));
        }
    }
    match (&aim.base, known) {
        (Some(base), Some(entry)) if entry.digests.iter().any(|Text(known)| known == base) => {
            Ok(())
        }
        (None, _) => Ok(()),
        (Some(base), known) => {
            let now = known.and_then(|entry| best(&entry.digests));
            let now = now.map_or_else(|| "nothing".into(), Digest::to_string);
            Err(Error::changed(
                name,
                format!("{now} is current, not {base}"),
            ))
        }
    }
}

fn has_it(entry: &Named, at: &At) -> bool {
    let is_it = |home: &&godwit_catalog::CatalogHome| {
        home.location == at.location && home.path.0 == at.path
    };
    entry
        .homes
        .iter()
        .find(is_it)
        .is_some_and(|home| is_good(home, entry))
}

/// Returns where a file may be written, the best place first.
fn places(sites: &Sites, aim: &CopyAim, name: &Path, entry: Option<&Named>) -> Result<Vec<At>> {
    let collection = name.parent().unwrap_or(Path::new(""));
    let locations = sites.locations(collection, aim.site.as_deref())?;
    let places: Vec<_> = places_of(sites, &locations, name, entry).collect::<Result<_>>()?;
    match places.is_empty() {
        true => Err(no_location(aim, collection)),
        false => Ok(places),
    }
}

/// Returns the error of a collection that no site holds files of.
pub(crate) fn no_location(aim: &CopyAim, collection: &Path) -> Error {
    let site = aim.site.as_deref();
    let which = site.map_or_else(String::new, |site| format!(" at {site}"));
    let why = format!(
        "it has no location{which}; say where its files go: godwit location add {} URL grid:/{}",
        site.unwrap_or("SITE"),
        collection.display()
    );
    Error::unsupported(format!("writing into grid:/{}", collection.display()), why)
}

/// Returns the place of a file at each location; those with a copy first.
pub(crate) fn places_of<'a>(
    sites: &'a Sites,
    locations: &'a [Location],
    name: &'a Path,
    entry: Option<&'a Named>,
) -> impl Iterator<Item = Result<At>> + 'a {
    let home_at = move |location: &Location| {
        let homes = entry.map_or(&[][..], |entry| &entry.homes);
        homes.iter().find(|home| home.location == location.location)
    };
    let (old, new): (Vec<_>, Vec<_>) = locations.iter().partition(|at| home_at(at).is_some());
    old.into_iter().chain(new).map(move |location| {
        let home = home_at(location);
        let below = name.strip_prefix(&location.name.0).unwrap_or(name);
        let path = match (home, entry) {
            (Some(home), _) => home.path.0.clone(),
            // A copy of the whole file may be there too, and is no directory.
            (None, Some(entry)) if is_fragment(name) => {
                let last = below.file_name().unwrap_or_default();
                let above = below.parent().unwrap_or(Path::new(""));
                draft_name(above, entry.file).join(last)
            }
            _ => below.to_owned(),
        };
        let place = sites.open(&location.url)?.join(&path)?;
        Ok(At {
            location: location.location,
            site: location.site.clone(),
            path,
            place,
            before: match home {
                None => Prior::Nothing,
                Some(home) if home.ours => Prior::Ours,
                Some(home) => {
                    let entry = entry.filter(|entry| home.version == entry.version);
                    let known = entry.and_then(|entry| best(&entry.digests));
                    Prior::Registered(known.cloned().map(Version::Strong))
                }
            },
            base: entry.map_or(0, |entry| entry.version),
        })
    })
}

/// Returns the change that begins a write or copy.
pub(crate) fn intend(
    sites: &Sites,
    aim: &CopyAim,
    name: &Path,
    at: &At,
    bytes: Option<(u64, Digest)>,
) -> Change {
    let (size, digest) = bytes.unzip();
    Change::Intend {
        deed: if aim.copy {
            IntentDeed::Copy
        } else {
            IntentDeed::Write
        },
        name: Name(name.into()),
        location: at.location,
        path: Name(at.path.clone()),
        base: at.base,
        holder: sites.leases.holder(),
        size,
        digest: digest.map(Text),
    }
}

/// Notes an intent. An intent of a dead process is settled first; a path with another file is left to it.
pub(crate) fn intent(
    sites: &Sites,
    aim: &CopyAim,
    name: &Path,
    at: &mut At,
) -> Result<IntentLease> {
    let (mut count, mut is_settled) = (1, false);
    loop {
        let noted = sites
            .catalog
            .change(&intend(sites, aim, name, at, None).into());
        match noted {
            Ok(made) => return Ok(sites.leases.hold(made.first().copied().unwrap_or_default())),
            Err(refusal) if refusal.kind == Kind::Busy && !is_settled => {
                is_settled = true;
                settle::all(sites, name, &mut |_, _| ())?;
            }
            Err(refusal) if refusal.kind == Kind::Exists && at.is_new() && count < PATHS_MAX => {
                count += 1;
                let file = at.path.file_name().unwrap_or_default().to_owned();
                let mut other = file.clone();
                other.push(format!("~{count}"));
                let above = at.place.path.parent().unwrap_or(Path::new(""));
                let (path, url) = (above.join(&other), at.place.url.parent());
                let url = url.and_then(|above| {
                    use std::os::unix::ffi::OsStrExt;
                    above.join(other.as_bytes()).ok()
                });
                let url = url.unwrap_or_else(|| at.place.url.clone());
                let store = at.place.store.clone();
                at.place = Place { store, path, url };
                at.path.set_file_name(other);
            }
            Err(refusal) => return Err(failed(name, refusal)),
        }
    }
}

fn begin_at(
    sites: &Arc<Sites>,
    aim: &CopyAim,
    name: &Path,
    (entry, mut at): (Option<&Named>, At),
    write: &Write<'_>,
) -> Result<Box<dyn Sink>> {
    crash::point("name-intend");
    let lease = intent(sites, aim, name, &mut at)?;
    crash::point("name-intended");
    let begun = Begun::new((sites, aim), name, (entry, at), lease);
    let sink = match begun.upload(write) {
        Ok(sink) => sink,
        Err(error) => {
            begun.give_up();
            return Err(error);
        }
    };
    let by = begun.copied.is_none().then_some(Algorithm::Blake3);
    Ok(Box::new(Writing {
        begun,
        sink,
        hashed: Mutex::new(Hashed::by(by)),
        came: Mutex::default(),
        is_drawn: AtomicBool::new(false),
        source: Mutex::new(aim.sender(sites)),
        began: Instant::now(),
        mode: write.mode,
    }))
}

impl Begun {
    /// Takes over an intent with its lease.
    pub(crate) fn new(
        (sites, aim): (&Arc<Sites>, &CopyAim),
        name: &Path,
        (entry, at): (Option<&Named>, At),
        lease: IntentLease,
    ) -> Self {
        let copied = entry.filter(|_| aim.copy);
        Self {
            sites: sites.clone(),
            name: name.into(),
            lease,
            at,
            copied: copied.map(|entry| Box::new(entry.clone())),
            from: aim.from.clone(),
        }
    }

    /// Begins the upload at the site; `None`: the bytes of the copy are already there.
    fn upload(&self, write: &Write<'_>) -> Result<Option<Box<dyn Sink>>> {
        let At {
            place, location, ..
        } = &self.at;
        if self.copied.is_some() && self.at.is_new() {
            match place.store.stat(&place.path) {
                Ok(there) => return self.adopt(&there).map(|()| None),
                Err(Error::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let write = Write {
            how: self.at.how()?,
            ..write.clone()
        };
        self.sites.make_above(*location, place)?;
        let begun = match place.store.write(&place.path, &write) {
            Err(Error::Missing { .. }) => {
                self.sites.unmake_above(*location, place);
                self.sites.make_above(*location, place)?;
                place.store.write(&place.path, &write)
            }
            begun => begun,
        };
        match begun {
            Err(Error::Exists { .. }) if self.at.is_new() => Err(self.occupied()),
            begun => begun.map(Some),
        }
    }

    /// Compares an unregistered file with the version that is being copied.
    fn adopt(&self, there: &Stat) -> Result<()> {
        let known = self.copied.as_deref();
        let size = known.and_then(|entry| entry.size);
        let differs = |expected: String, found: String| {
            let url = &self.at.place.url;
            let found = format!("{found} at {url}, which the catalog does not know");
            Err(Error::corrupt(&self.name, expected, found))
        };
        match known.and_then(|entry| best(&entry.digests)) {
            _ if size.is_some_and(|size| there.known_size().is_some_and(|found| found != size)) => {
                differs(
                    format!("{} bytes", size.unwrap_or(0)),
                    format!("{} bytes", there.size),
                )
            }
            Some(digest) => self
                .compare(digest)
                .and_then(|found| match found == *digest {
                    true => Ok(()),
                    false => differs(digest.to_string(), found.to_string()),
                }),
            None => Err(Error::exists(&self.at.place.path)),
        }
    }

    fn compare(&self, digest: &Digest) -> Result<Digest> {
        self.sites
            .digest_at(&self.at.place, digest.algorithm(), None)
    }

    /// Returns the intent as the catalog knows it after its landing.
    fn intent(&self, size: u64, digest: Option<&Digest>) -> Intent {
        Intent {
            intent: self.lease.intent,
            deed: if self.copied.is_some() {
                IntentDeed::Copy
            } else {
                IntentDeed::Write
            },
            name: Name(self.name.clone()),
            location: self.at.location,
            path: Name(self.at.path.clone()),
            url: self.at.place.url.to_string(),
            base: self.at.base,
            size: Some(size),
            digest: digest.cloned().map(Text),
            holder: self.sites.leases.holder(),
            ended: false,
        }
    }

    /// Ends an intent of which no bytes landed. That it cannot be ended now is no error: its lease ends by itself.
    pub(crate) fn give_up(&self) {
        let (intent, home) = (self.lease.intent, Some(OfHome(HomeState::Whole)));
        if let Err(error) = self
            .sites
            .change(&self.name, Change::Settle { intent, home })
        {
            tracing::debug!(name = %self.name.display(), %error, "an intent is left to its lease");
        }
    }

    /// Determines the site's state after a failure with an unknown outcome; returns the version if it was published all
    /// the same.
    pub(crate) fn resolve(
        &self,
        error: Error,
        size: u64,
        digest: Option<&Digest>,
    ) -> Result<Finished> {
        match (settle::one(&self.sites, &self.intent(size, digest)), digest) {
            (Ok(Settled::Published), Some(digest)) => Ok(Finished {
                version: version(Some(digest)),
                digests: vec![digest.clone()],
                verified: Verified::By(digest.algorithm()),
                ..Finished::default()
            }),
            (settled, _) => {
                if let Err(settling) = settled {
                    let name = self.name.display();
                    tracing::info!(%name, %settling, "what the site has is not known yet");
                }
                Err(error)
            }
        }
    }

    /// Returns the change that publishes.
    pub(crate) fn publication(
        &self,
        digests: Vec<Digest>,
        (mtime, mode): (Option<Duration>, Option<u32>),
        (verified, adopted): (bool, bool),
    ) -> Change {
        Change::Publish {
            intent: self.lease.intent,
            digests: digests.into_iter().map(Text).collect(),
            mtime: Some(Time(mtime.unwrap_or_else(now))),
            mode,
            verified,
            adopted,
        }
    }

    /// Publishes; if another process settled the intent meanwhile, sees to it that the bytes have their entry.
    pub(crate) fn publish(
        &self,
        publication: Change,
        measured: Option<Measured>,
        size: u64,
        digest: Option<&Digest>,
    ) -> Result<()> {
        let mut changes = vec![publication.clone()];
        changes.extend(measured.map(Change::Measured));
        let refusal = match self.sites.catalog.change(&changes.into()) {
            Ok(_) => return Ok(()),
            Err(refusal) => refusal,
        };
        match refusal.kind {
            Kind::Superseded => self.publish_again(publication, size, digest, refusal),
            Kind::Changed | Kind::Missing
                if matches!(publication, Change::Publish { adopted: true, .. }) =>
            {
                self.give_up();
                Err(failed(&self.name, refusal))
            }
            Kind::Changed | Kind::Missing => {
                // Another version is current: nothing names these bytes.
                let intent = self.intent(size, digest);
                if let Err(error) = settle::discard(&self.sites, &intent, &self.at.place) {
                    let url = &self.at.place.url;
                    tracing::warn!(%url, %error, "bytes of a version that was not published are left");
                }
                Err(failed(&self.name, refusal))
            }
            _ => Err(failed(&self.name, refusal)),
        }
    }

    fn publish_again(
        &self,
        publication: Change,
        size: u64,
        digest: Option<&Digest>,
        refusal: Refusal,
    ) -> Result<()> {
        let now = self.sites.find(&self.name)?;
        let is_it = |entry: &Named| {
            digest.is_some_and(|digest| entry.digests.contains(&Text(digest.clone())))
        };
        if now
            .as_ref()
            .is_some_and(|entry| is_it(entry) && has_it(entry, &self.at))
        {
            return Ok(());
        }
        if now.map_or(0, |entry| entry.version) != self.at.base {
            return Err(failed(&self.name, refusal));
        }
        let aim = CopyAim {
            copy: self.copied.is_some(),
            ..CopyAim::default()
        };
        let bytes = digest.map(|digest| (size, digest.clone()));
        let intended = intend(&self.sites, &aim, &self.name, &self.at, bytes);
        let again = self.sites.change(&self.name, intended)?;
        let publication = match publication {
            Change::Publish {
                digests,
                mtime,
                mode,
                verified,
                adopted,
                ..
            } => Change::Publish {
                intent: again,
                digests,
                mtime,
                mode,
                verified,
                adopted,
            },
            other => other,
        };
        self.sites.change(&self.name, publication).map(drop)
    }

    /// Explains that a site has a file of that name which the catalog does not know.
    pub(crate) fn occupied(&self) -> Error {
        let url = &self.at.place.url;
        let why = format!(
            "{url} exists, and the catalog does not know it; keep it with godwit register {url} --as NAME, or remove it"
        );
        Error::unsupported(format!("writing grid:/{}", self.name.display()), why)
    }
}

impl Writing {
    fn sink(&self) -> Option<&dyn Sink> {
        self.sink.as_deref()
    }

    /// Returns the length and the digest that are expected at the site.
    fn expected(&self, whole: &Expected) -> (u64, Option<Digest>) {
        if let Some(entry) = &self.begun.copied {
            let size = entry.size.or(whole.size).unwrap_or_default();
            return (size, best(&entry.digests).cloned());
        }
        let end = || {
            self.sink()
                .and_then(|sink| sink.done().iter().last().map(|range| range.end))
        };
        let size = whole.size.or_else(end).unwrap_or_default();
        let hashed = std::mem::replace(&mut *self.hashed.lock(), Hashed::Nothing);
        (size, hashed.digest(size).or_else(|| whole.digest.clone()))
    }

    /// Hashes a block. What bytes that are put again hash to is not known.
    fn hash(&self, block: Block<'_>) {
        let is_again = {
            let mut came = self.came.lock();
            let is_again = came.within(block.range()).next().is_some();
            came.insert(block.range());
            is_again
        };
        match is_again {
            true => *self.hashed.lock() = Hashed::Nothing,
            false => Hashed::add(&self.hashed, block),
        }
    }

    /// Leaves out a digest that the site cannot compare with bytes that did not come through here.
    fn comparable(&self, whole: &Expected) -> Result<Expected> {
        if !self.is_drawn.load(Relaxed) && self.begun.copied.is_none() {
            return Ok(whole.clone());
        }
        let can = self.begun.at.place.store.can()?.digests;
        let known = self
            .begun
            .copied
            .as_ref()
            .map_or(&[][..], |entry| &entry.digests);
        let mut known = known.iter().map(|Text(digest)| digest).chain(&whole.digest);
        let mtime = self.begun.copied.as_ref().and_then(|entry| entry.mtime);
        Ok(Expected {
            digest: known
                .find(|digest| can.contains(&digest.algorithm()))
                .cloned(),
            mtime: mtime.map(|Time(time)| time).or(whole.mtime),
            ..whole.clone()
        })
    }

    /// Publishes what the site has by now, without a byte moved.
    fn take_in(&self, size: u64, digest: Option<&Digest>, whole: &Expected) -> Result<Finished> {
        let known: Vec<_> = digest.cloned().into_iter().collect();
        let of = (whole.mtime, whole.mode);
        let publication = self.begun.publication(known.clone(), of, (true, true));
        self.begun.publish(publication, None, size, digest)?;
        Ok(Finished {
            verified: known
                .first()
                .map_or(Verified::SizeOnly, |known| Verified::By(known.algorithm())),
            digests: known,
            ..Finished::default()
        })
    }
}

impl BlockWriter for Writing {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if let Some(sink) = self.sink() {
            sink.put(block)?;
            self.hash(block);
        }
        Ok(())
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.sink().map_or(Ok(()), |sink| sink.said(leaf, chain))
    }
}

impl Sink for Writing {
    fn done(&self) -> Extents {
        let all = || Extents::from(0..u64::MAX);
        self.sink().map_or_else(all, |sink| sink.done())
    }

    fn settle(&self) -> Result<Extents> {
        self.sink()
            .map_or_else(|| Ok(self.done()), |sink| sink.settle())
    }

    fn commit(&self) -> Result<Extents> {
        self.sink()
            .map_or_else(|| Ok(self.done()), |sink| sink.commit())
    }

    fn finish(mut self: Box<Self>, whole: &Expected) -> Result<Finished> {
        let (size, digest) = self.expected(whole);
        let begun = &self.begun;
        let Some(sink) = self.sink.take() else {
            return self.take_in(size, digest.as_ref(), whole);
        };
        let asked = match self.comparable(whole) {
            Ok(asked) => asked,
            Err(error) => {
                drop(sink);
                begun.give_up();
                return Err(error);
            }
        };
        crash::point("name-land");
        let landing = Change::Land {
            intent: begun.lease.intent,
            size,
            digest: digest.clone().map(Text),
        };
        if let Err(error) = begun.sites.change(&begun.name, landing) {
            drop(sink);
            begun.give_up();
            return Err(error);
        }
        crash::point("name-landed");
        let finished = match sink.finish(&asked) {
            Ok(finished) => finished,
            Err(Error::Exists { .. }) if begun.at.is_new() => {
                let found = digest.as_ref().map(|digest| begun.compare(digest));
                if let Some(Ok(found)) = found
                    && Some(&found) == digest.as_ref()
                {
                    return self.take_in(size, digest.as_ref(), whole);
                }
                begun.give_up();
                return Err(begun.occupied());
            }
            Err(error) => return begun.resolve(error, size, digest.as_ref()),
        };
        crash::point("name-finished");
        let mut digests: Vec<Digest> = digest.iter().cloned().collect();
        for more in &finished.digests {
            if digests
                .iter()
                .all(|known| known.algorithm() != more.algorithm())
            {
                digests.push(more.clone());
            }
        }
        let is_verified = finished.verified != Verified::SizeOnly;
        let of = (whole.mtime, whole.mode.or(self.mode));
        let publication = begun.publication(digests, of, (is_verified, false));
        let source = self.source.lock().take().filter(|_| size > SMALL_BYTES);
        let took = (size, self.began.elapsed());
        let sample = |from: String| {
            begun
                .sites
                .weather
                .sample(&begun.at.site, &from, took, false)
        };
        begun.publish(publication, source.map(sample), size, digest.as_ref())?;
        crash::point("name-published");
        Ok(Finished {
            version: version(digest.as_ref()),
            ..finished
        })
    }

    fn abandon(mut self: Box<Self>) -> Result<()> {
        let abandoned = self.sink.take().map_or(Ok(()), Sink::abandon);
        self.begun.give_up();
        abandoned
    }

    has!(self, SinkFacets: resume direct);
}

impl Drop for Writing {
    fn drop(&mut self) {
        // The site keeps the partial for a resume; the next attempt notes an intent of its own.
        if let Some(sink) = self.sink.take() {
            drop(sink);
            self.begun.give_up();
        }
    }
}

impl godwit_store::Resume for Writing {
    fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> {
        self.sink()
            .map_or_else(Vec::new, |sink| sink.newly_whole(count_max))
    }

    fn unseen(&self) -> Extents {
        self.sink().map_or_else(Extents::new, |sink| sink.unseen())
    }

    fn show(&self, block: Block<'_>) -> Result<()> {
        if let Some(sink) = self.sink() {
            sink.show(block)?;
            self.hash(block);
        }
        Ok(())
    }

    fn is_in_place(&self) -> bool {
        self.sink().is_some_and(|sink| sink.is_in_place())
    }
}

impl godwit_store::Direct for Writing {
    fn draw(
        &self,
        source: &dyn Store,
        path: &Path,
        want: &Extents,
        streams: usize,
        on: &(dyn Fn(Range<u64>) + Sync),
    ) -> Result<Option<Read>> {
        let Some(sink) = self.sink() else {
            return Ok(None);
        };
        let Some(entry) = &self.begun.copied else {
            let drawn = sink.draw(source, path, want, streams, on)?;
            self.is_drawn.fetch_or(drawn.is_some(), Relaxed);
            return Ok(drawn);
        };
        // The source is the name itself: the bytes come from whichever site has them.
        let from = self.begun.from.as_deref();
        if self.begun.sites.homes(entry, from).is_empty() {
            // The bytes come from several sites, by way of the reader.
            return Ok(None);
        }
        let homes = (&**entry, from, 0);
        self.begun
            .sites
            .at_homes(&self.begun.name, homes, &mut |home, place| {
                *self.source.lock() = Some(home.site.clone());
                let drawn = sink.draw(&*place.store, &place.path, want, streams, on);
                let drawn = drawn.map_err(HomeFailure::Here)?;
                Ok(drawn.map(|_| Read {
                    stat: stat(entry),
                    digest: best(&entry.digests).cloned(),
                }))
            })
    }
}

/// Returns the version of a name whose bytes have that digest.
pub(crate) fn version(digest: Option<&Digest>) -> Version {
    digest.map_or(Version::None, |digest| Version::Strong(digest.clone()))
}

/// A copy that is asked for where the site has one.
struct PresentCopy(Named);

impl BlockWriter for PresentCopy {
    fn put(&self, _: Block<'_>) -> Result<()> {
        Ok(())
    }
}

impl Sink for PresentCopy {
    fn done(&self) -> Extents {
        Extents::from(0..u64::MAX)
    }

    fn commit(&self) -> Result<Extents> {
        Ok(self.done())
    }

    fn finish(self: Box<Self>, _: &Expected) -> Result<Finished> {
        Ok(Finished {
            digests: best(&self.0.digests).cloned().into_iter().collect(),
            ..Finished::default()
        })
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    has!(self, SinkFacets:);
}

/// How many other paths are tried where another file has the path of a name.
const PATHS_MAX: usize = 100;

/// Applies changes in one transaction; if the list is refused, each alone, so that one refusal stops no other.
pub(crate) fn change_all(sites: &Sites, changes: &[Change]) -> Vec<Result<u64, Refusal>> {
    if changes.is_empty() {
        return Vec::new();
    }
    match sites.catalog.change(&Changes::from(changes.to_vec())) {
        Ok(made) => made.into_iter().map(Ok).collect(),
        Err(refusal) if changes.len() == 1 => vec![Err(refusal)],
        Err(_) => {
            let one = |change: &Change| {
                let made = sites.catalog.change(&change.clone().into());
                made.map(|made| made.first().copied().unwrap_or_default())
            };
            changes.iter().map(one).collect()
        }
    }
}
