//! Drafts: a version that is written in fragments, which become visible together.

use crate::{
    Logical, failed,
    leases::IntentLease,
    now, settle,
    sites::{CopyAim, url_of},
    writing::{self, At, Begun},
};
use godwit_catalog::{
    CatalogEntry as Named, CatalogHome, Change, Changes, Intent, MadeFile, Ran, Refusal,
    draft_name, fragment_name,
};
use godwit_core::{Digest, Fault, Kind};
use godwit_store::{Error, Result, Sink, Store, Write, WriteMode};
use godwit_wire::door::call::{Name, Text, Time};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// A version that is written in fragments. The draft and its bytes are discarded unless it is
/// published. For a job, that happens only if one of its processes asks, or when all leases have
/// ended.
pub struct FileDraft {
    names: Logical,
    name: PathBuf,
    lease: IntentLease,
    /// The count of its fragments; 0: it is not known yet.
    pub(crate) count: u64,
    /// The version that it replaces; 0: none.
    base: u64,
    /// True if the draft stays when this is dropped.
    is_kept: bool,
}

/// A place at a site where a program writes a fragment.
pub struct FragmentSlot {
    begun: Begun,
}

/// Facts of a whole file that its fragments do not tell.
#[derive(Clone, Debug, Default)]
pub struct FileFacts {
    /// The digest, if it is known.
    pub digest: Option<Digest>,
    /// The time of its last change; `None`: now.
    pub mtime: Option<Duration>,
    /// The permission bits.
    pub mode: Option<u32>,
    /// The run that made it, and which of its outputs it is.
    pub made: Option<(String, u64)>,
}

impl Logical {
    /// Begins a version in fragments; of a file that exists only if it is `base`, the version that the writer saw.
    pub fn draft(&self, name: &Path, count: u64, base: Option<&Named>) -> Result<FileDraft> {
        self.draft_by(name, count, base, None)
    }

    /// Begins a version that the processes of a job write together, or joins it.
    pub fn join(
        &self,
        name: &Path,
        count: u64,
        base: Option<&Named>,
        job: &str,
    ) -> Result<FileDraft> {
        self.draft_by(name, count, base, Some(format!("job {job} of {count}")))
    }

    fn draft_by(
        &self,
        name: &Path,
        count: u64,
        base: Option<&Named>,
        job: Option<String>,
    ) -> Result<FileDraft> {
        let known = self.sites.find(name)?;
        match (&known, base) {
            (Some(entry), _) if entry.collection => return Err(Error::directory(name)),
            (Some(entry), None) if entry.version > 0 => {
                return Err(Error::exists(url_of(name)?.to_string()));
            }
            _ => {}
        }
        let change = Change::Draft {
            name: Name(name.into()),
            base: base.map_or(0, |entry| entry.version),
            holder: job.clone().unwrap_or_else(|| self.sites.leases.holder()),
            join: job.is_some(),
        };
        let change = Changes::from(change);
        let made = match self.sites.catalog.change(&change) {
            Err(refusal) if refusal.kind == Kind::Busy => {
                settle::all(&self.sites, name, &mut |_, _| ())?;
                self.sites.catalog.change(&change)
            }
            made => made,
        };
        let made = made.map_err(|refusal| failed(name, refusal))?;
        let (leases, intent) = (
            &self.sites.leases,
            made.first().copied().unwrap_or_default(),
        );
        let is_shared = job.is_some();
        let lease = match job {
            Some(job) => leases.hold_as(intent, job),
            None => leases.hold(intent),
        };
        Ok(FileDraft {
            names: self.clone(),
            name: name.into(),
            lease,
            count,
            base: base.map_or(0, |entry| entry.version),
            is_kept: is_shared,
        })
    }

    /// Returns what the catalog knows of a file.
    pub fn entry(&self, name: &Path) -> Result<Named> {
        self.sites.file(name)
    }

    /// Notes that the bytes of a home are not those of its version.
    pub fn mark(&self, name: &Path, home: &CatalogHome) {
        self.sites.mark(name, home);
    }

    /// Returns the run that made the current version of a file, or the last version of one that is gone.
    pub fn history(&self, name: &Path) -> Result<Option<MadeFile>> {
        let made = godwit_catalog::history(&*self.sites.catalog, name);
        made.map_err(|refusal| failed(name, refusal))
    }
}

impl FileDraft {
    /// Returns the name of a fragment, under which it is written before the publication.
    pub fn fragment(&self, index: u64) -> PathBuf {
        let draft = draft_name(&self.name, self.lease.intent);
        fragment_name(&draft, index, self.count)
    }

    /// Begins a fragment that a program writes at a site.
    pub fn slot(&self, index: u64, site: &str) -> Result<FragmentSlot> {
        FragmentSlot::begin(&self.names, &self.fragment(index), site, None)
    }

    /// Begins a fragment that is sent to a site; it is part of the draft once it is finished. `size`: if it is known.
    pub fn sink(&self, index: u64, site: &str, size: Option<u64>) -> Result<Box<dyn Sink>> {
        let aim = CopyAim {
            site: Some(site.into()),
            ..CopyAim::default()
        };
        let write = Write {
            how: WriteMode::New,
            size,
            ..Write::default()
        };
        self.names.aimed(aim).write(&self.fragment(index), &write)
    }

    /// Publishes a draft of a job if all fragments are written; returns false if other processes still write.
    pub fn publish_if_whole(&self, told: &FileFacts) -> Result<bool> {
        match self.names.sites.catalog.change(&self.assembly(told).into()) {
            Ok(_) => Ok(true),
            Err(refusal) if refusal.kind == Kind::Missing => Ok(false),
            // Another process published it, or one ended without a word.
            Err(refusal) if refusal.kind == Kind::Superseded => {
                let found = self.names.sites.find(&self.name)?;
                match found.is_some_and(|found| found.version > self.base) {
                    true => Ok(true),
                    false => Err(failed(&self.name, refusal)),
                }
            }
            Err(refusal) => Err(failed(&self.name, refusal)),
        }
    }

    /// Forgets a draft of a job: one of its processes ended without a word.
    pub fn forget(mut self) {
        self.is_kept = false;
    }

    fn assembly(&self, told: &FileFacts) -> Change {
        Change::Assemble {
            intent: self.lease.intent,
            count: self.count,
            digests: told.digest.clone().map(Text).into_iter().collect(),
            mtime: Some(Time(told.mtime.unwrap_or_else(now))),
            mode: told.mode,
            made: told.made.clone(),
        }
    }

    /// Publishes drafts together, after the run that made them, if there is one.
    pub fn publish(mut drafts: Vec<(Self, FileFacts)>, ran: Option<Ran>) -> Result<()> {
        let Some((first, _)) = drafts.first() else {
            return Ok(());
        };
        let (name, sites) = (first.name.clone(), first.names.sites.clone());
        let mut changes: Vec<_> = ran
            .map(|ran| Change::Ran(Box::new(ran)))
            .into_iter()
            .collect();
        changes.extend(drafts.iter().map(|(draft, told)| draft.assembly(told)));
        let published = sites.catalog.change(&Changes::from(changes));
        let is_lost = matches!(&published, Err(refusal) if refusal.kind.fault() != Fault::Lasting);
        for (draft, _) in &mut drafts {
            // If the answer was lost, the catalog may have published it: its lease decides.
            draft.is_kept = published.is_ok() || is_lost;
        }
        published
            .map(drop)
            .map_err(|refusal| failed(&name, refusal))
    }
}

impl Drop for FileDraft {
    fn drop(&mut self) {
        if !self.is_kept {
            let intent = Intent {
                intent: self.lease.intent,
                name: Name(self.name.clone()),
                ..Intent::default()
            };
            if let Err(error) = settle::draft(&self.names.sites, &intent) {
                let name = self.name.display();
                tracing::info!(%name, %error, "a draft is left to its lease");
            }
        }
    }
}

impl FragmentSlot {
    /// Begins to write a file at a site; `entry`: one more copy of that one.
    pub(crate) fn begin(
        names: &Logical,
        name: &Path,
        site: &str,
        entry: Option<&Named>,
    ) -> Result<Self> {
        let sites = &names.sites;
        let aim = CopyAim {
            site: Some(site.into()),
            copy: entry.is_some(),
            ..CopyAim::default()
        };
        let collection = name.parent().unwrap_or(Path::new(""));
        let locations = sites.locations(collection, Some(site))?;
        let at = writing::places_of(sites, &locations, name, entry).next();
        let mut at: At = at.unwrap_or_else(|| Err(writing::no_location(&aim, collection)))?;
        let lease = writing::intent(sites, &aim, name, &mut at)?;
        sites.make_above(at.location, &at.place)?;
        let begun = Begun::new((sites, &aim), name, (entry, at), lease);
        Ok(Self { begun })
    }

    /// Returns the location and the path of the file, and the intent under which it is written.
    pub(crate) fn at(&self) -> (u64, PathBuf, u64) {
        let at = &self.begun.at;
        (at.location, at.path.clone(), self.begun.lease.intent)
    }

    /// Changes the catalog.
    pub(crate) fn change(&self, changes: Vec<Change>) -> Result<(), Refusal> {
        let changes = Changes::from(changes);
        self.begun.sites.catalog.change(&changes).map(drop)
    }

    /// Returns the URL of the file that is to be written.
    pub fn url(&self) -> &godwit_core::Url {
        &self.begun.at.place.url
    }

    /// Fails unless a file of that size is there now.
    pub(crate) fn must_have(&self, size: u64) -> Result<()> {
        let place = &self.begun.at.place;
        match place.store.stat(&place.path) {
            Ok(found) if found.size == size => Ok(()),
            Ok(_) | Err(Error::Missing { .. }) => {
                let why = "the task was run on another machine than that of the node";
                let next = "godwit location set SITE NAME host=HOST tells which one it is";
                Err(Error::beyond(
                    place.url.to_string(),
                    format!("{why}; {next}"),
                ))
            }
            Err(error) => Err(error),
        }
    }

    /// Notes the current file as the fragment.
    pub fn publish(self, size: u64, digest: &Digest) -> Result<()> {
        let begun = &self.begun;
        let landing = Change::Land {
            intent: begun.lease.intent,
            size,
            digest: Some(Text(digest.clone())),
        };
        let publication = begun.publication(vec![digest.clone()], (None, None), (true, false));
        let name = begun.name.clone();
        match self.change(vec![landing, publication]) {
            Ok(()) => Ok(()),
            Err(refusal) => {
                // If the answer was lost, the catalog may know it: its lease decides.
                if refusal.kind.fault() == Fault::Lasting {
                    self.abandon();
                }
                Err(failed(&name, refusal))
            }
        }
    }

    /// Deletes the file, if there is one.
    pub fn abandon(self) {
        let begun = &self.begun;
        let intent = Intent {
            intent: begun.lease.intent,
            name: Name(begun.name.clone()),
            ..Intent::default()
        };
        if let Err(error) = settle::discard(&begun.sites, &intent, &begun.at.place) {
            tracing::info!(url = %begun.at.place.url, %error, "bytes of a draft are left to its lease");
        }
    }
}
