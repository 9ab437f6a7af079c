//! Programs that jobs bring along: kept in the catalog by their digests, and from there at the nodes that run them.

use crate::{
    Logical,
    making::Alone,
    sites::{make, shown, url_of},
};
use godwit_catalog::{Change, Home, Recipe};
use godwit_core::{Algorithm, BadUrl, Digest, Scheme, Url};
use godwit_store::{
    Error, Result, Set, Store,
    engine::{self, Place, Rule, Task},
};
use godwit_wire::door::{
    call::{Name, Text},
    run::Word,
    staging::{Executable, Staging, kept},
};
use std::path::{Path, PathBuf};

impl Logical {
    /// Keeps a program in the catalog; returns the digest that is its name there.
    pub fn keep(&self, source: &Url) -> Result<Digest> {
        let source = match source.scheme() {
            Scheme::Grid => self.place(source),
            _ => self.sites.stores.open(source)?,
        };
        let digest = self.sites.digest_at(&source, Algorithm::Blake3, None)?;
        let name = kept_as(&digest);
        if self.sites.find(&name)?.is_some() {
            return Ok(digest);
        }
        let _turn = Alone::take(self, &name)?;
        if self.sites.find(&name)?.is_none() {
            let above = Change::Collect {
                name: Name(PROGRAMS.into()),
                parents: true,
            };
            self.sites.change(&name, above)?;
            self.copy(&source, &self.place(&url_of(&name)?))?;
            let set = Set {
                mode: Some(MODE),
                ..Set::default()
            };
            self.set(&name, &set)?;
        }
        Ok(digest)
    }

    /// Has the catalog keep the program of a definition, if it names a file of the catalog.
    pub(crate) fn kept(&self, program: &[Word]) -> Result<Option<Digest>> {
        let word = program.first().map(|word| word.0.to_string_lossy());
        let Some(name) = word.filter(|word| word.starts_with("grid:/")) else {
            return Ok(None);
        };
        let bad = |bad: BadUrl| Error::bad_name(&*name, bad.to_string());
        self.keep(&name.parse().map_err(bad)?).map(Some)
    }

    /// Brings the program of a recipe to the node of a home, unless it is there; returns what that node is told of it.
    pub(crate) fn bring(&self, recipe: &Recipe, home: &Home) -> Result<Staging> {
        let Some(Text(digest)) = &recipe.program else {
            return Ok(Staging::default());
        };
        let bad = |bad: BadUrl| Error::bad_name(&home.url, bad.to_string());
        let url: Url = home.url.parse().map_err(bad)?;
        let path = format!("/{}", kept(digest));
        let to = self
            .sites
            .stores
            .open(&url.with_path(path.as_bytes()).map_err(bad)?)?;
        let there = self.sites.digest_at(&to, Algorithm::Blake3, None);
        if there.ok().as_ref() != Some(digest) {
            let name = kept_as(digest);
            let entry = self.sites.find(&name)?;
            if !entry.is_some_and(|entry| entry.digests.contains(&Text(digest.clone()))) {
                let why = format!("{} is not the program that its history names", shown(&name));
                return Err(Error::unsupported(format!("running {}", digest.hex()), why));
            }
            make(&*to.store, to.path.parent().unwrap_or(Path::new("")))?;
            self.copy(&self.place(&url_of(&name)?), &to)?;
        }
        Ok(Staging {
            executable: Some(Executable::Kept(Text(digest.clone()))),
            ..Staging::default()
        })
    }

    fn copy(&self, source: &Place, target: &Place) -> Result<()> {
        let task = Task {
            source: source.clone(),
            target: target.clone(),
            tree: false,
            mode: None,
            range: None,
            rule: Rule::Always,
            delete: false,
        };
        let copied = engine::copy(vec![task], self.sites.stores.options(), &|_| ());
        copied.errors.into_iter().next().map_or(Ok(()), Err)
    }
}

/// Returns the name under which the catalog keeps a program.
pub fn kept_as(digest: &Digest) -> PathBuf {
    Path::new(PROGRAMS).join(digest.hex())
}

const PROGRAMS: &str = ".programs";
const MODE: u32 = 0o755;
