//! Programs and files that jobs bring along: kept in the catalog by their digests, and from there at the nodes.

use crate::{
    Logical,
    alone::SoleMaker,
    scheduling::Task,
    sites::{make, shown, url_of},
};
use godwit_catalog::{CatalogHome, Change, Input, Recipe};
use godwit_core::{Algorithm, BadUrl, Digest, Scheme, Url};
use godwit_store::{
    EntryKind, Error, Result, Set, Store,
    door::Door,
    engine::{self, OverwriteRule, Place},
};
use godwit_wire::door::{
    call::{Name, Text},
    run::Word,
    staging::{self, Executable, Staged, Staging},
};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// A program that the catalog keeps; if it has neither, each node finds it by its PATH.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The digest of the program for all nodes.
    pub program: Option<Text<Digest>>,
    /// The digests of the programs of platforms.
    pub programs: BTreeMap<String, Text<Digest>>,
}

impl Logical {
    /// Has the catalog keep a program, or if it is a collection each member: the program of the platform that it is named by.
    pub fn keep(&self, source: &Url) -> Result<Kept> {
        let source = self.source(source)?;
        let is_collection = source.url.scheme() == Scheme::Grid
            && source.store.stat(&source.path)?.kind == EntryKind::Directory;
        let mut kept = Kept::default();
        if !is_collection {
            kept.program = Some(self.keep_as(&source, kept_as)?);
            return Ok(kept);
        }
        let mut members = Vec::new();
        source.store.list(&source.path, &mut |entry| {
            members.push(entry.path);
            Ok(())
        })?;
        for member in members {
            let digest = self.keep_as(&source.join(&member)?, kept_as)?;
            let platform = member.to_string_lossy().into_owned();
            kept.programs.insert(platform, digest);
        }
        match kept.programs.is_empty() {
            true => Err(Error::unsupported(
                format!("running {}", source.url),
                "it has no member for any platform",
            )),
            false => Ok(kept),
        }
    }

    /// Returns a file as a further input of each task; the catalog keeps one that it has no name for.
    pub fn with(&self, source: &Url) -> Result<Input> {
        let base = source.file_name().unwrap_or_default().to_owned();
        let source = self.source(source)?;
        let (name, digest) = match source.url.scheme() {
            Scheme::Grid => {
                let digest = self.digest(&source.path, Algorithm::Blake3, None)?;
                (source.path, Text(digest))
            }
            _ => {
                let name = |digest: &Digest| {
                    let above = format!("{PROGRAMS}/with-{}", digest.hex());
                    Path::new(&above).join(OsStr::from_bytes(&base))
                };
                let digest = self.keep_as(&source, name)?;
                (name(&digest.0), digest)
            }
        };
        Ok(Input {
            version: self.sites.file(&name)?.version,
            name: Name(name),
            whole: true,
            digests: vec![digest],
        })
    }

    fn source(&self, url: &Url) -> Result<Place> {
        match url.scheme() {
            Scheme::Grid => Ok(self.place(url)),
            _ => self.sites.stores.open(url),
        }
    }

    /// Copies a file to the name that its digest gives, unless it exists.
    fn keep_as(&self, source: &Place, name: impl Fn(&Digest) -> PathBuf) -> Result<Text<Digest>> {
        let digest = self.sites.digest_at(source, Algorithm::Blake3, None)?;
        let name = name(&digest);
        if self.sites.find(&name)?.is_some() {
            return Ok(Text(digest));
        }
        let _turn = SoleMaker::take(&self.sites, &name)?;
        if self.sites.find(&name)?.is_none() {
            let above = Change::Collect {
                name: Name(name.parent().unwrap_or(Path::new("")).into()),
                parents: true,
            };
            self.sites.change(&name, above)?;
            self.copy(source, &self.place(&url_of(&name)?))?;
            let set = Set {
                mode: Some(MODE),
                ..Set::default()
            };
            self.set(&name, &set)?;
        }
        Ok(Text(digest))
    }

    /// Has the catalog keep the program of a definition, if it names a file of the catalog.
    pub(crate) fn kept(&self, program: &[Word]) -> Result<Kept> {
        let word = program.first().map(|word| word.0.to_string_lossy());
        let Some(name) = word.filter(|word| word.starts_with("grid:/")) else {
            return Ok(Kept::default());
        };
        let bad = |bad: BadUrl| Error::bad_name(&*name, bad.to_string());
        self.keep(&name.parse().map_err(bad)?)
    }

    /// Fails if a node that is to run a task first has a platform that the program has no member for.
    pub(crate) fn must_fit(&self, kept: &Kept, tasks: &[Task], collection: &Path) -> Result<()> {
        if kept.programs.is_empty() {
            return Ok(());
        }
        for node in self.nodes(collection)? {
            let mut first = tasks.iter().filter_map(|task| task.homes.first());
            if first.any(|home| home.site == node.site) && node.platform.is_some() {
                member(&kept.programs, &node.site, node.platform.as_deref())?;
            }
        }
        Ok(())
    }

    /// Copies the program of a recipe to the node of a home, unless it is there. Returns the message for that node.
    pub(crate) fn bring(&self, recipe: &Recipe, home: &CatalogHome) -> Result<Staging> {
        let mut staging = Staging::default();
        for input in recipe.inputs.iter().filter(|input| input.whole) {
            self.must_be(&input.name.0, &input.digests)?;
            staging.inputs.push(Staged {
                name: Name(input.name.0.file_name().unwrap_or_default().into()),
                place: staging::StagedPlace::Url(url_of(&input.name.0)?.to_string()),
                digest: input.digests.first().cloned(),
            });
        }
        let bad = |bad: BadUrl| Error::bad_name(&home.url, bad.to_string());
        let url: Url = home.url.parse().map_err(bad)?;
        let digest = match &recipe.program {
            Some(digest) => digest,
            None if recipe.programs.is_empty() => return Ok(staging),
            None => {
                let door = Door::open(&url, &self.sites.stores.options().remote())?;
                member(
                    &recipe.programs,
                    &home.site,
                    door.hello()?.platform.as_deref(),
                )?
            }
        };
        let path = format!("/{}", staging::kept(&digest.0));
        let to = url.with_path(path.as_bytes()).map_err(bad)?;
        let to = self.sites.stores.open(&to)?;
        let there = self.sites.digest_at(&to, Algorithm::Blake3, None);
        if there.ok().as_ref() != Some(&digest.0) {
            let name = kept_as(&digest.0);
            self.must_be(&name, std::slice::from_ref(digest))?;
            make(&*to.store, to.path.parent().unwrap_or(Path::new("")))?;
            self.copy(&self.place(&url_of(&name)?), &to)?;
        }
        staging.executable = Some(Executable::Kept(digest.clone()));
        Ok(staging)
    }

    /// Fails unless a file has one of the digests that a history names.
    fn must_be(&self, name: &Path, digests: &[Text<Digest>]) -> Result<()> {
        let why = match self.sites.find(name)? {
            None => "it is gone",
            Some(_) => {
                let found = Text(self.digest(name, Algorithm::Blake3, None)?);
                match digests.contains(&found) {
                    true => return Ok(()),
                    false => "it has other bytes than its history names",
                }
            }
        };
        Err(Error::unsupported(format!("using {}", shown(name)), why))
    }

    fn copy(&self, source: &Place, target: &Place) -> Result<()> {
        let task = engine::CopyTask {
            source: source.clone(),
            target: target.clone(),
            tree: false,
            mode: None,
            range: None,
            rule: OverwriteRule::Always,
            delete: false,
        };
        let copied = engine::copy(vec![task], self.sites.stores.options(), &|_| ());
        copied.errors.into_iter().next().map_or(Ok(()), Err)
    }
}

/// Returns the program for the platform of a site.
fn member<'a>(
    programs: &'a BTreeMap<String, Text<Digest>>,
    site: &str,
    platform: Option<&str>,
) -> Result<&'a Text<Digest>> {
    let platform = platform.unwrap_or("it does not tell its platform");
    programs.get(platform).ok_or_else(|| {
        let members: Vec<_> = programs.keys().map(String::as_str).collect();
        let what = format!("running it at {site} ({platform})");
        Error::unsupported(
            what,
            format!("the collection has {} only", members.join(", ")),
        )
    })
}

/// Returns the name under which the catalog keeps a program.
pub fn kept_as(digest: &Digest) -> PathBuf {
    Path::new(PROGRAMS).join(digest.hex())
}

const PROGRAMS: &str = ".programs";
const MODE: u32 = 0o755;
