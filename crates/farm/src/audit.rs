//! Compares the catalog with the files at the sites, and repairs differences.

use crate::{
    Logical, failed, now,
    sites::{CopyAim, Sites, best, is_good, url_of},
};
use godwit_catalog::{
    CatalogAnswer, CatalogEntry as Named, CatalogHome, Change, HomeWord as OfHome, Location,
    NewHome, Question, intents,
};
use godwit_core::{HomeState, Url};
use godwit_store::{
    EntryKind, Error, Result, StoreExt,
    engine::{CopyEvent, CopyOptions, CopyTask, OverwriteRule, Place, copy},
};
use godwit_wire::door::call::{Name, Text};
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
};

/// Something that is wrong at a site.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AuditFault {
    /// The catalog has a copy whose file is missing.
    Lost,
    /// The catalog does not know the file.
    Dark,
    /// The file there has another length.
    Size,
    /// The file there has another digest.
    Digest,
}

/// One finding of an audit.
#[derive(Clone, Debug)]
pub struct AuditFinding {
    /// The name; of a dark file the one that it would have.
    pub name: PathBuf,
    /// The site.
    pub site: String,
    /// The file there, as a URL.
    pub url: String,
    /// The fault.
    pub wrong: AuditFault,
    at: (u64, PathBuf),
}

/// Counts of an audit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Audited {
    /// Copies that were compared.
    pub copies: u64,
    /// Findings of [`AuditFault::Lost`].
    pub lost: u64,
    /// Findings of [`AuditFault::Dark`].
    pub dark: u64,
    /// Findings of [`AuditFault::Size`].
    pub size: u64,
    /// Findings of [`AuditFault::Digest`].
    pub digest: u64,
    /// Findings that are repaired.
    pub repaired: u64,
}

impl Audited {
    /// Returns how much is still wrong.
    pub fn left(&self) -> u64 {
        (self.lost + self.dark + self.size + self.digest).saturating_sub(self.repaired)
    }
}

/// The part of the catalog that is compared.
#[derive(Clone, Debug, Default)]
pub struct AuditScope {
    /// The name; empty: all.
    pub name: PathBuf,
    /// The site; `None`: all.
    pub site: Option<String>,
    /// Whether digests are compared, not only lengths.
    pub digests: bool,
}

/// The homes at one location, by their paths there.
type Homes = HashMap<PathBuf, Box<Named>>;

/// Compares the catalog with the files at the sites. `each` receives every finding, and the error of a location that
/// could not be compared. Wrong copies are marked, so that no reader uses them.
pub fn audit(
    names: &Logical,
    scope: &AuditScope,
    each: &mut dyn FnMut(Result<AuditFinding, (Location, Error)>),
) -> Result<(Audited, Vec<AuditFinding>)> {
    let sites = &*names.sites;
    let (mut audited, mut found) = (Audited::default(), Vec::new());
    for location in locations(sites, scope)? {
        let auditing = Auditing {
            sites,
            scope,
            location: &location,
        };
        match auditing.run(&mut audited.copies) {
            Ok(findings) => found.extend(findings),
            Err(error) => each(Err((location, error))),
        }
    }
    for finding in &found {
        let count = match finding.wrong {
            AuditFault::Lost => &mut audited.lost,
            AuditFault::Dark => &mut audited.dark,
            AuditFault::Size => &mut audited.size,
            AuditFault::Digest => &mut audited.digest,
        };
        *count += 1;
        mark(sites, finding)?;
        each(Ok(finding.clone()));
    }
    Ok((audited, found))
}

fn locations(sites: &Sites, scope: &AuditScope) -> Result<Vec<Location>> {
    let mut found = sites.all_locations(&scope.name)?;
    let site = scope.site.as_ref();
    found.retain(|location| site.is_none_or(|site| *site == location.site));
    Ok(found)
}

fn mark(sites: &Sites, finding: &AuditFinding) -> Result<()> {
    let state = match finding.wrong {
        AuditFault::Dark => return Ok(()),
        AuditFault::Lost => HomeState::Lost,
        AuditFault::Size | AuditFault::Digest => HomeState::Damaged,
    };
    let (location, path) = finding.at.clone();
    let change = Change::Mark {
        location,
        path: Name(path),
        state: OfHome(state),
        verified_s: None,
    };
    match sites.change(&finding.name, change) {
        // The copy is gone by now.
        Err(Error::Missing { .. }) => Ok(()),
        marked => marked.map(drop),
    }
}

/// One location that is compared.
struct Auditing<'a> {
    sites: &'a Sites,
    scope: &'a AuditScope,
    location: &'a Location,
}

impl Auditing<'_> {
    fn run(&self, copies: &mut u64) -> Result<Vec<AuditFinding>> {
        let place = self.sites.open(&self.location.url)?;
        let below = self.scope.name.strip_prefix(&self.location.name.0);
        let below = below.unwrap_or(Path::new("")).to_owned();
        // Files and homes are listed at the same time, so changes meanwhile are checked again.
        let mut entries = Vec::new();
        let (homes, walked) = thread::scope(|scope| {
            let homes = scope.spawn(|| self.homes());
            let walked = place.store.walk(&place.path.join(&below), &mut |entry| {
                entries.push((entry.path, entry.stat.kind, entry.stat.known_size()));
                Ok(())
            });
            (homes.join().expect("the catalog does not panic"), walked)
        });
        match walked {
            Ok(()) | Err(Error::Missing { .. } | Error::NotDirectory { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut homes = homes?;
        *copies += homes.len() as u64;
        let (mut wrong, mut dark, mut there) = (Vec::new(), Vec::new(), Vec::new());
        for (path, kind, size) in entries {
            let path = below.join(path);
            match homes.remove(&path) {
                Some(home) => there.extend(self.differs(home, path, size, &mut wrong)),
                None if kind == EntryKind::Directory => {}
                None => dark.push(path),
            }
        }
        // A renamed file has another path, and a link is reported as its target.
        for (path, home) in homes {
            match place.store.stat(&place.path.join(&path)) {
                Ok(stat) => {
                    there.extend(self.differs(home, path, stat.known_size(), &mut wrong));
                }
                Err(Error::Missing { .. } | Error::NotDirectory { .. }) => {
                    wrong.push(self.finding(home.name.0, path, AuditFault::Lost));
                }
                Err(error) => return Err(error),
            }
        }
        self.digests(&place, there, &mut wrong)?;
        self.confirm(&place, wrong, dark)
    }

    /// Returns the homes at the location that are in the scope.
    fn homes(&self) -> Result<Homes> {
        let (mut homes, mut after) = (Homes::new(), None);
        loop {
            let question = Question::Holdings {
                location: self.location.location,
                after: after.take(),
            };
            let mut is_last = true;
            let each = &mut |answer| {
                match answer {
                    CatalogAnswer::Entry(entry) => {
                        let path = entry.homes.first().map(|home| home.path.clone());
                        after.clone_from(&path);
                        let is_in = entry.name.0.starts_with(&self.scope.name);
                        if let Some(Name(path)) = path.filter(|_| is_in) {
                            homes.insert(path, entry);
                        }
                    }
                    CatalogAnswer::More => is_last = false,
                    _ => {}
                }
                Ok(())
            };
            let asked = self.sites.catalog.ask(&question, each);
            asked.map_err(|refusal| failed(&self.location.name.0, refusal))?;
            if is_last {
                return Ok(homes);
            }
        }
    }

    /// Compares the length of one copy; returns the copy if its digest is to be compared.
    fn differs(
        &self,
        entry: Box<Named>,
        path: PathBuf,
        there: Option<u64>,
        wrong: &mut Vec<AuditFinding>,
    ) -> Option<(Box<Named>, PathBuf)> {
        let home = entry.homes.first()?;
        if home.version != entry.version || home.range.is_some() {
            let (first, past) = home.range.unwrap_or_default();
            let end = home.offset + past.saturating_sub(first);
            if home.version == entry.version && there.is_some_and(|size| size < end) {
                wrong.push(self.finding(entry.name.0, path, AuditFault::Size));
            }
            return None;
        }
        match home.state.0 {
            _ if entry.size.is_some() && there != entry.size => {
                wrong.push(self.finding(entry.name.0, path, AuditFault::Size));
            }
            HomeState::Damaged if !self.scope.digests => {
                wrong.push(self.finding(entry.name.0, path, AuditFault::Digest));
            }
            // An intent covers it, or it is compared in any case.
            HomeState::Filling => {}
            state if self.scope.digests || state == HomeState::Lost => return Some((entry, path)),
            _ => {}
        }
        None
    }

    /// Compares digests, several at once, and notes which copies are right.
    fn digests(
        &self,
        place: &Place,
        there: Vec<(Box<Named>, PathBuf)>,
        wrong: &mut Vec<AuditFinding>,
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut told = Vec::new();
            while let at = next.fetch_add(1, Relaxed)
                && let Some((entry, path)) = there.get(at)
                && let Some(known) = best(&entry.digests)
            {
                let place = place.join(path);
                let digest = |place| self.sites.digest_at(&place, known.algorithm(), None);
                told.push((at, place.and_then(digest).map(|found| found == *known)));
            }
            told
        };
        let told: Vec<_> = thread::scope(|scope| {
            let most = AT_ONCE.min(there.len());
            let threads: Vec<_> = (0..most).map(|_| scope.spawn(work)).collect();
            let told = threads.into_iter().map(|thread| thread.join());
            told.flat_map(|told| told.expect("hashing does not panic"))
                .collect()
        });
        for (at, is_equal) in told {
            let (entry, path) = &there[at];
            match is_equal {
                Ok(true) => self.note_right(entry, path)?,
                Ok(false) => {
                    wrong.push(self.finding(entry.name.0.clone(), path.clone(), AuditFault::Digest))
                }
                Err(Error::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Notes that a comparison found the digest of the catalog.
    fn note_right(&self, entry: &Named, path: &Path) -> Result<()> {
        let change = Change::Mark {
            location: self.location.location,
            path: Name(path.into()),
            state: OfHome(HomeState::Whole),
            verified_s: Some(now().as_secs()),
        };
        self.sites.change(&entry.name.0, change).map(drop)
    }

    /// Looks again at what seems wrong: a writer may have come or gone meanwhile.
    fn confirm(
        &self,
        place: &Place,
        mut wrong: Vec<AuditFinding>,
        mut dark: Vec<PathBuf>,
    ) -> Result<Vec<AuditFinding>> {
        if !self.location.whole {
            dark.clear();
        }
        if dark.is_empty() && wrong.is_empty() {
            return Ok(wrong);
        }
        let intended = self.intended()?;
        let now = self.homes_everywhere()?;
        wrong.retain(|finding| {
            let path = &finding.at.1;
            now.contains(path) && !intended.contains(path)
        });
        dark.retain(|path| {
            let is_known = now.contains(path) || intended.contains(path);
            !is_known && place.store.stat(&place.path.join(path)).is_ok()
        });
        let dark = dark.into_iter().map(|path| {
            let name = self.location.name.0.join(&path);
            self.finding(name, path, AuditFault::Dark)
        });
        wrong.extend(dark);
        Ok(wrong)
    }

    /// Returns the paths at this location that an intent knows.
    fn intended(&self) -> Result<HashSet<PathBuf>> {
        let found = intents(&*self.sites.catalog, None, false);
        let found = found.map_err(|refusal| failed(&self.location.name.0, refusal))?;
        let here = found
            .into_iter()
            .filter(|intent| intent.location == self.location.location);
        Ok(here.map(|intent| intent.path.0).collect())
    }

    /// Returns the paths of all homes at places that are in this one: several locations may share a directory.
    fn homes_everywhere(&self) -> Result<HashSet<PathBuf>> {
        let base: Option<Url> = self.location.url.parse().ok();
        let mut found = HashSet::new();
        let all = AuditScope::default();
        for location in locations(self.sites, &all)? {
            let other: Option<Url> = location.url.parse().ok();
            let (Some(base), Some(other)) = (&base, &other) else {
                continue;
            };
            if !base.same_server(other) {
                continue;
            }
            let (base, other) = (base.path_from_root(), other.path_from_root());
            let (prefix, cut) = match (other.strip_prefix(&base), base.strip_prefix(&other)) {
                (Ok(below), _) => (below.to_owned(), PathBuf::new()),
                (_, Ok(above)) => (PathBuf::new(), above.to_owned()),
                _ => continue,
            };
            let auditing = Auditing {
                location: &location,
                scope: &all,
                ..*self
            };
            let paths = auditing.homes()?.into_keys();
            found.extend(paths.filter_map(|path| Some(prefix.join(path.strip_prefix(&cut).ok()?))));
        }
        Ok(found)
    }

    fn finding(&self, name: PathBuf, path: PathBuf, wrong: AuditFault) -> AuditFinding {
        use std::os::unix::ffi::OsStrExt;
        let base: Option<Url> = self.location.url.parse().ok();
        let url = base.and_then(|base| base.join(path.as_os_str().as_bytes()).ok());
        AuditFinding {
            name,
            site: self.location.site.clone(),
            url: url.map(|url| url.to_string()).unwrap_or_default(),
            wrong,
            at: (self.location.location, path),
        }
    }
}

/// Replaces copies that are wrong by good ones, and adopts dark files whose name has equal bytes. Returns how many
/// findings it has mended; `each` receives the error of each of the others.
pub fn repair(
    names: &Logical,
    found: Vec<AuditFinding>,
    options: &CopyOptions,
    each: &(dyn Fn(&AuditFinding, Error) + Sync),
) -> Result<u64> {
    let repaired = AtomicU64::new(0);
    let mut by_site: HashMap<String, Vec<AuditFinding>> = HashMap::new();
    for finding in found {
        match finding.wrong {
            AuditFault::Dark => match adopt(&names.sites, &finding) {
                Ok(true) => drop(repaired.fetch_add(1, Relaxed)),
                Ok(false) => {}
                Err(error) => each(&finding, error),
            },
            _ => by_site
                .entry(finding.site.clone())
                .or_default()
                .push(finding),
        }
    }
    for (site, findings) in by_site {
        let copies = names.aimed(CopyAim {
            site: Some(site),
            copy: true,
            ..CopyAim::default()
        });
        // Of one store, so that small files go in packs.
        let root = url_of(Path::new(""))?;
        let (source, target) = (names.place(&root), copies.place(&root));
        let mut tasks = Vec::new();
        for finding in &findings {
            tasks.push(CopyTask {
                source: source.join(&finding.name)?,
                target: target.join(&finding.name)?,
                tree: false,
                mode: None,
                range: None,
                rule: OverwriteRule::Always,
                delete: false,
            });
        }
        let name_of = |place: &Place| findings.iter().find(|finding| finding.name == place.path);
        copy(tasks, options, &|event| match event {
            CopyEvent::Done(_) => drop(repaired.fetch_add(1, Relaxed)),
            CopyEvent::Failed {
                target,
                error,
                again: None,
                ..
            } => {
                if let Some(finding) = name_of(target) {
                    each(finding, Error::beyond("", error.to_string()));
                }
            }
            _ => {}
        });
    }
    Ok(repaired.into_inner())
}

/// Notes a dark file as a copy of the name that it would have, if it has the bytes of that name.
fn adopt(sites: &Sites, finding: &AuditFinding) -> Result<bool> {
    let Some(entry) = sites.find(&finding.name)?.filter(|entry| !entry.collection) else {
        return Ok(false);
    };
    let Some(known) = best(&entry.digests) else {
        return Ok(false);
    };
    let has_other = entry
        .homes
        .iter()
        .any(|home: &CatalogHome| home.location == finding.at.0 && is_good(home, &entry));
    if has_other || sites.digest_at(&sites.open(&finding.url)?, known.algorithm(), None)? != *known
    {
        return Ok(false);
    }
    let home = NewHome {
        location: finding.at.0,
        path: Name(finding.at.1.clone()),
        ..NewHome::default()
    };
    let change = Change::Register {
        name: Name(finding.name.clone()),
        size: entry.size,
        digests: vec![Text(known.clone())],
        mtime: None,
        mode: None,
        home: Some(home),
    };
    sites.change(&finding.name, change).map(|_| true)
}

/// How many files a site hashes at once.
const AT_ONCE: usize = 8;
