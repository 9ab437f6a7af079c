//! `godwit mv`: renames where it can, else copies, verifies, then removes.

use super::{Facts, cp, rm::Remover};
use crate::{
    bytes,
    layout::{Act, There},
    moving::{self, Moved, Pair, Work},
    options::{Moving, Names},
    places::{self, Place},
    screen::Screen,
    trouble::{Run, Trouble},
};
use clap::Args;
use godwit_core::Algorithm;
use godwit_store::Error;
use godwit_store::engine::{Rule, Stores, extra};
use serde_json::json;
use std::io;

/// Move or rename files and directories
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit mv run7.root run7-good.root
  godwit mv ftp://fermi.example/old ftp://fermi.example/new
  godwit mv data ftp://fermi.example/archive

On one server it is a rename. Between two it copies, compares digests (asking the target
to read again if it told none on the way), and only then removes the source: all of it,
or, if anything failed, nothing.

Exit status: as cp.")]
pub(crate) struct Mv {
    #[command(flatten)]
    names: Names,
    /// Leave files that exist alone
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,
    /// Replace files that exist (which is the default)
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    #[command(flatten)]
    moving: Moving,
}

impl Mv {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let (sources, target) = cp::ends(&self.names, "mv")?;
        let target = places::url(&target)?;
        let sources = sources.iter().map(|source| places::url(source));
        let sources = sources.collect::<Run<Vec<_>>>()?;
        let options = moving::options(&self.moving)?;
        let stores = Stores::new(options.clone());
        let mut pairs = moving::pairs(screen, Act::Move, &sources, &target, &stores)?;
        if self.no_clobber {
            pairs.retain(|pair| !matches!(moving::what_is_there(&pair.target), Ok(There::File)));
        }
        if self.moving.dry_run {
            return Ok(moving::rehearse(screen, &pairs, "move", &|_, _, _| {
                Ok(true)
            }));
        }
        let (mut renamed, mut left) = (0u64, Vec::new());
        for pair in pairs {
            match self.rename(screen, &pair) {
                Ok(true) => renamed += 1,
                Ok(false) => left.push(pair),
                Err(trouble) => screen.trouble(&trouble),
            }
        }
        let mut facts = Facts::new();
        if !left.is_empty() {
            let rule = if self.no_clobber {
                Rule::NoClobber
            } else {
                Rule::Always
            };
            let pairs = left.clone();
            let work = Work {
                act: "move",
                pairs,
                rule,
                range: None,
                delete: false,
            };
            let moved = moving::run(screen, &self.moving, work, &options);
            self.remove_sources(screen, &moved, &left)?;
            facts = moved.facts;
        }
        facts.insert("renamed".into(), renamed.into());
        Ok(facts)
    }

    /// Renames, if both names are on one store that can; says whether it did.
    fn rename(&self, screen: &Screen, pair: &Pair) -> Run<bool> {
        let (source, target) = (&pair.source, &pair.target);
        if !source.url.same_server(&target.url) {
            return Ok(false);
        }
        let trouble =
            |error: Error| Trouble::store(format!("move {} to {}", source.url, target.url), error);
        match source.store.rename(&source.path, &target.path) {
            Ok(()) => {}
            Err(Error::Unsupported { .. }) => return Ok(false),
            Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::CrossesDevices => {
                return Ok(false);
            }
            Err(error) => return Err(trouble(error)),
        }
        if screen.json() {
            screen.object(&json!({
                "event": "renamed",
                "source": source.url.to_string(),
                "target": target.url.to_string(),
            }))
        } else if screen.verbose() {
            screen.line(format!("renamed {} -> {}", source.url, target.url))
        } else {
            Ok(())
        }
        .map_err(trouble)?;
        Ok(true)
    }

    fn remove_sources(&self, screen: &Screen, moved: &Moved, pairs: &[Pair]) -> Run {
        if !moved.all {
            return Ok(()); // what failed was told; nothing is removed
        }
        if !self.moving.no_verify {
            for (source, target) in &moved.size_only {
                self.compare(source, target)?;
            }
        }
        let remover = Remover::new(screen, false);
        for pair in pairs {
            let aside = self.set_aside(pair)?;
            if pair.tree {
                remover.tree(&aside)?;
            } else {
                let trouble = |error| Trouble::store(format!("remove {}", pair.source.url), error);
                remover.file(&aside).map_err(trouble)?;
            }
        }
        Ok(())
    }

    /// Gives the source another name, and looks whether the target is still there.
    ///
    /// One file may be reached by many names: a second name of a host, a local path
    /// and the node that exports it. No comparison of names finds that out, but a
    /// target that goes when the source goes was the source itself.
    fn set_aside(&self, pair: &Pair) -> Run<Place> {
        let (source, target) = (&pair.source, &pair.target);
        let wanted = || format!("move {} to {}", source.url, target.url);
        let trouble = |error: Error| Trouble::store(wanted(), error);
        let aside = aside(source).map_err(trouble)?;
        source
            .store
            .rename(&source.path, &aside.path)
            .map_err(trouble)?;
        let refused = match target.store.stat(&target.path) {
            Ok(_) if !pair.tree => return Ok(aside),
            // What came into the source since it was listed was not copied.
            Ok(_) => match extra(target, &aside) {
                Ok(left) if left.is_empty() => return Ok(aside),
                Ok(left) => {
                    let fact = format!("{} is in the source only", left[0].0.display());
                    Trouble::asked(wanted(), fact).next("nothing was removed; run it again")
                }
                Err(error) => trouble(error),
            },
            Err(Error::Missing { .. }) => {
                let fact = "they are the same file, or one is inside the other";
                Trouble::asked(wanted(), fact).next("nothing was removed")
            }
            Err(error) => trouble(error),
        };
        aside
            .store
            .rename(&aside.path, &source.path)
            .map_err(trouble)?;
        Err(refused)
    }

    /// A source is removed only if its copy is known to be good.
    fn compare(&self, source: &Place, target: &Place) -> Run {
        let digest = |place: &Place| {
            let told = bytes::digest(place, Algorithm::Blake3, None);
            told.map_err(|error| Trouble::store(format!("compare {place}"), error))
        };
        let (was, is) = (digest(source)?, digest(target)?);
        if was == is {
            return Ok(());
        }
        let fact = format!("the source has {was}, the copy {is}; the source was kept");
        Err(Trouble::differs(format!("move {source} to {target}"), fact)
            .next("remove the copy and run the command again"))
    }
}

/// Returns a name beside `source` that is free, unless somebody plays tricks.
fn aside(source: &Place) -> Result<Place, Error> {
    let name = format!(
        ".godwit-moving-{}-{}",
        std::process::id(),
        source.path.as_os_str().len()
    );
    let url = source
        .url
        .parent()
        .and_then(|parent| parent.join(name.as_bytes()).ok());
    let bad = || Error::BadName {
        path: source.path.clone(),
        why: "a root cannot be moved away".into(),
    };
    Ok(Place {
        store: source.store.clone(),
        path: source.path.with_file_name(name),
        url: url.ok_or_else(bad)?,
    })
}
