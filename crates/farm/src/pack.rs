//! Writes many small files together: one transaction announces a pack of them, and one publishes it.

use crate::{
    failed,
    sites::{CopyAim, Sites, is_good},
    writing::{At, Begun, alone, change_all, check, intend, no_location, places_of, version},
};
use godwit_catalog::{CatalogAnswer, CatalogEntry as Named, Location, Question};
use godwit_core::{Algorithm, Digest, Fault};
use godwit_store::{
    Error, Finished, NextFile, Result, SmallResult, SmallWrite, StoreExt, Verified, WriteMode,
};
use godwit_sys::crash;
use godwit_wire::door::call::Name;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// One file of a pack.
struct One {
    given: SmallWrite,
    digest: Digest,
    begun: Begun,
}

/// Writes small files, and reports each in order.
pub(crate) fn write(
    sites: &Arc<Sites>,
    aim: &CopyAim,
    next: &mut NextFile<'_, SmallWrite>,
    each: &mut SmallResult<'_, Finished>,
) -> Result<()> {
    let mut first = None;
    loop {
        let (mut pack, mut names, mut bytes) = (Vec::new(), Vec::new(), 0);
        while pack.len() < FILES_MAX
            && bytes < BYTES_MAX
            && let Some(given) = first.take().or_else(&mut *next)
        {
            // The second of two versions of a name waits for the first.
            if names.contains(&given.path) {
                first = Some(given);
                break;
            }
            bytes += given.bytes.len();
            names.push(given.path.clone());
            pack.push(given);
        }
        if pack.is_empty() {
            return Ok(());
        }
        let mut writing = Pack {
            sites,
            aim,
            told: HashMap::new(),
            locations: HashMap::new(),
        };
        writing.write(pack);
        for name in names {
            let lost = || Err(Error::beyond("", BROKE_OFF));
            let finished = writing.told.remove(&name).unwrap_or_else(lost);
            each(name, finished);
        }
    }
}

struct Pack<'a> {
    sites: &'a Arc<Sites>,
    aim: &'a CopyAim,
    told: HashMap<PathBuf, Result<Finished>>,
    /// The locations of the collections that were met.
    locations: HashMap<PathBuf, Vec<Location>>,
}

impl Pack<'_> {
    fn write(&mut self, pack: Vec<SmallWrite>) {
        let entries = match entries(self.sites, pack.iter().map(|given| &given.path)) {
            Ok(entries) => entries,
            // Each file tells why in words of its own.
            Err(_) => return pack.into_iter().for_each(|given| self.alone(&given)),
        };
        let mut ready = Vec::new();
        for (given, entry) in pack.into_iter().zip(entries) {
            match self.place(&given, entry.as_ref()) {
                Ok(Some(at)) => ready.push((given, entry, at)),
                Ok(None) => self.tell(given.path, Ok(Finished::default())),
                Err(error) => self.tell(given.path, Err(error)),
            }
        }
        let begun = self.begin(ready);
        crash::point("pack-landed");
        let written = self.upload(begun);
        crash::point("pack-finished");
        self.publish(written);
        crash::point("pack-published");
    }

    fn tell(&mut self, path: PathBuf, finished: Result<Finished>) {
        self.told.insert(path, finished);
    }

    /// Chooses the place of one file; `None`: its copy already exists.
    fn place(&mut self, given: &SmallWrite, entry: Option<&Named>) -> Result<Option<At>> {
        let (sites, aim) = (self.sites, self.aim);
        check(aim, &given.path, entry, &given.how)?;
        let above = given.path.parent().unwrap_or(Path::new(""));
        if !self.locations.contains_key(above) {
            let found = sites.locations(above, aim.site.as_deref())?;
            self.locations.insert(above.into(), found);
        }
        let mut places = places_of(sites, &self.locations[above], &given.path, entry);
        let at = places.next().ok_or_else(|| no_location(aim, above))??;
        at.how()?;
        let is_there = |entry: &Named| {
            let mut homes = entry.homes.iter();
            homes.any(|home| home.location == at.location && is_good(home, entry))
        };
        Ok(Some(at.clone()).filter(|_| !(aim.copy && entry.is_some_and(is_there))))
    }

    /// Announces all files with their digests. Refused files are announced alone.
    fn begin(&mut self, ready: Vec<(SmallWrite, Option<Named>, At)>) -> Vec<One> {
        let (sites, aim) = (self.sites, self.aim);
        let digest_of =
            |(given, ..): &(SmallWrite, _, _)| Digest::of(Algorithm::Blake3, &given.bytes);
        let digests: Vec<Digest> = ready.iter().map(digest_of).collect();
        let announced = ready.iter().zip(&digests).map(|((given, _, at), digest)| {
            let bytes = (given.bytes.len() as u64, digest.clone());
            intend(sites, aim, &given.path, at, Some(bytes))
        });
        crash::point("pack-land");
        let made = change_all(sites, &announced.collect::<Vec<_>>());
        let mut begun = Vec::new();
        for (((given, entry, at), digest), made) in ready.into_iter().zip(digests).zip(made) {
            let Ok(intent) = made else {
                self.alone(&given);
                continue;
            };
            let lease = sites.leases.hold(intent);
            let of = (entry.as_ref(), at);
            begun.push(One {
                begun: Begun::new((sites, aim), &given.path, of, lease),
                given,
                digest,
            });
        }
        begun
    }

    /// Sends the files to their sites; returns those that arrived.
    fn upload(&mut self, begun: Vec<One>) -> Vec<(One, Finished)> {
        let mut by_location: HashMap<u64, Vec<One>> = HashMap::new();
        for one in begun {
            by_location
                .entry(one.begun.at.location)
                .or_default()
                .push(one);
        }
        let mut written = Vec::new();
        for (_, group) in by_location {
            let Some(store) = group.first().map(|one| one.begun.at.place.store.clone()) else {
                continue;
            };
            let mut told: HashMap<PathBuf, Result<Finished>> = HashMap::new();
            let mut files = group.iter().map(|one| {
                let At {
                    place, location, ..
                } = &one.begun.at;
                // The error of a directory that cannot be made is reported for the file in it.
                let _ = self.sites.make_above(*location, place);
                SmallWrite {
                    path: place.path.clone(),
                    // A place that refuses was refused when it was chosen.
                    how: one.begun.at.how().unwrap_or(WriteMode::New),
                    ..one.given.clone()
                }
            });
            let sent = store.write_small(&mut || files.next(), &mut |path, finished| {
                told.insert(path, finished);
            });
            drop(files);
            let mut broken = sent.err();
            for one in group {
                let path = &one.begun.at.place.path;
                let finished = told.remove(path).unwrap_or_else(|| {
                    Err(broken
                        .take()
                        .unwrap_or_else(|| Error::beyond("", BROKE_OFF)))
                });
                match finished {
                    Ok(finished) => written.push((one, finished)),
                    Err(error) => self.failed(one, error),
                }
            }
        }
        written
    }

    /// Handles a file that a site did not take.
    fn failed(&mut self, one: One, error: Error) {
        let size = one.given.bytes.len() as u64;
        let At {
            location, place, ..
        } = &one.begun.at;
        let is_passing = error.fault() != Fault::Lasting;
        self.sites.was_silent(*location, &error);
        let resolved = one.begun.resolve(error, size, Some(&one.digest));
        match resolved {
            Err(Error::Missing { .. }) => {
                self.sites.unmake_above(*location, place);
                self.alone(&one.given);
            }
            Err(Error::Exists { .. }) if one.begun.at.is_new() => {
                self.tell(one.given.path, Err(one.begun.occupied()))
            }
            // Another site may take a new file.
            Err(_) if one.begun.at.is_new() && is_passing => self.alone(&one.given),
            resolved => self.tell(one.given.path, resolved),
        }
    }

    fn publish(&mut self, written: Vec<(One, Finished)>) {
        let publication = |(one, finished): &(One, Finished)| {
            let is_verified = finished.verified != Verified::SizeOnly;
            let of = (one.given.mtime, one.given.mode);
            let digests = vec![one.digest.clone()];
            one.begun.publication(digests, of, (is_verified, false))
        };
        let changes: Vec<_> = written.iter().map(publication).collect();
        let made = self.sites.catalog.change(&changes.clone().into());
        for ((one, finished), change) in written.into_iter().zip(changes) {
            let size = one.given.bytes.len() as u64;
            let published = match &made {
                Ok(_) => Ok(()),
                Err(_) => one.begun.publish(change, None, size, Some(&one.digest)),
            };
            let finished = Finished {
                version: version(Some(&one.digest)),
                ..finished
            };
            self.tell(one.given.path, published.map(|()| finished));
        }
    }

    /// Writes one file by itself.
    fn alone(&mut self, given: &SmallWrite) {
        let written = alone(self.sites, self.aim, given);
        self.tell(given.path.clone(), written);
    }
}

/// Finds the entries of many names.
pub(crate) fn entries<'a>(
    sites: &Sites,
    names: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<Option<Named>>> {
    let names: Vec<Name> = names.cloned().map(Name).collect();
    let (mut entries, count) = (Vec::with_capacity(names.len()), names.len());
    let first = names.first().map_or(PathBuf::new(), |name| name.0.clone());
    let asked = sites
        .catalog
        .ask(&Question::Locate { names }, &mut |answer| {
            match answer {
                CatalogAnswer::Entry(entry) => entries.push(Some(*entry)),
                CatalogAnswer::Missing(_) => entries.push(None),
                _ => {}
            }
            Ok(())
        });
    asked.map_err(|refusal| failed(&first, refusal))?;
    match entries.len() == count {
        true => Ok(entries),
        false => Err(Error::misbehaved(
            "the catalog",
            "it did not answer for every name",
        )),
    }
}

const BROKE_OFF: &str = "the site broke off while many files were under way";
/// How many files a transaction announces.
const FILES_MAX: usize = 500;
/// The most bytes of them in memory.
const BYTES_MAX: usize = 16 << 20;
