//! `godwit sync`: makes a target equal to a source.

use super::cp;
use crate::{
    args::{MoveOptions, Names},
    bytes,
    client::pending::Turn,
    out::{CliError, Facts, Run, Screen},
    places::{self, Place},
    transfer::{self, Pair, Planned, TransferWork, layout::CopyVerb, same},
};
use clap::Args;
use godwit_core::{Algorithm, Choice};
use godwit_store::engine::{OverwriteRule, Stores};
use godwit_store::{Entry, EntryKind, Error, Stat, StoreExt};
use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// Make a directory equal to another
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit sync data ftp://fermi.example/data
  godwit sync --delete --dry-run ftp://fermi.example/data data
  godwit sync --checksum data ftp://fermi.example/data

sync a b makes what is in b equal to what is in a, with or without slashes. A file is
copied if it is missing, or its size or time of change differs; with --checksum if its
digest differs. --delete then removes what is in the target only, unless something could
not be copied; and it replaces a file by a directory of that name, or the reverse, which
else is an error. A name that --exclude leaves out is kept in the target too (godwit help
cp). What this machine has still to deliver there arrives first (godwit cp).

Exit status: as cp.")]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    names: Names,
    /// Compare digests instead of times
    #[arg(short, long)]
    checksum: bool,
    /// Remove what is in the target only
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    moving: MoveOptions,
}

impl SyncArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let (sources, target) = cp::ends(&self.names, "sync")?;
        let synced = self.sync(screen, &sources, &target);
        Ok(transfer::or_all_failed(screen, sources.len(), synced))
    }

    fn sync(&self, screen: &Screen, sources: &[OsString], target: &OsStr) -> Run<Facts> {
        let [source] = sources else {
            let fact = "it takes one source and one target";
            return Err(CliError::asked("sync", fact).next("run it once for each source"));
        };
        let (source, target) = (places::url(source)?, places::target(target)?);
        let options = transfer::options(&self.moving)?;
        let stores = Stores::new(options.clone());
        let mut turn = Turn::of(screen, self.moving.dry_run);
        let Planned { pairs, refused } = transfer::pairs(
            screen,
            CopyVerb::Sync,
            &[source],
            &target,
            &self.moving,
            &stores,
            &mut turn,
        )?;
        let (pairs, late) = transfer::in_turn(screen, CopyVerb::Sync, pairs, &mut turn);
        let refused = refused + late;
        if self.delete
            && let Some(pair) = pairs
                .iter()
                .find(|pair| pair.tree && transfer::holds(&pair.target, &pair.source))
        {
            let wanted = format!("sync {} to {}", pair.source.url, pair.target.url);
            let fact = "the source is inside the target, where --delete would remove it";
            return Err(
                CliError::asked(wanted, fact).next("leave --delete out, or name another target")
            );
        }
        if self.delete {
            refuse_overlap(&pairs)?;
        }
        if self.moving.dry_run {
            let facts = self.rehearse(screen, &pairs)?;
            return Ok(transfer::with_failed(facts, refused));
        }
        let rule = if self.checksum {
            OverwriteRule::UpdateByDigest
        } else {
            OverwriteRule::Update
        };
        let work = TransferWork {
            act: "copy",
            pairs,
            rule,
            range: None,
            delete: self.delete,
        };
        let facts = transfer::run(screen, &self.moving, work, &options).facts;
        Ok(transfer::with_failed(facts, refused))
    }

    fn rehearse(&self, screen: &Screen, pairs: &[Pair]) -> Run<Facts> {
        let differs =
            |source: &Place, stat: &Stat, target: &Place| self.differs(source, stat, target);
        let mut facts =
            transfer::rehearse(screen, pairs, "copy", &self.moving.choosing.0, &differs);
        let mut surplus = 0;
        for pair in pairs.iter().filter(|pair| pair.tree) {
            let (root, source) = (Path::new(""), &pair.source);
            let told = self.tell_surplus(screen, root, (source, &pair.target), &mut surplus);
            told.map_err(|error| CliError::store(format!("compare with {}", pair.target), error))?;
        }
        if self.delete {
            facts.insert("removed".into(), surplus.into());
        }
        Ok(facts)
    }

    /// Says what would be removed: what is in the target only, and what is of another
    /// kind there; that is an error without `--delete`. One directory at a time, so
    /// that memory grows with the largest directory, not with the tree.
    fn tell_surplus(
        &self,
        screen: &Screen,
        at: &Path,
        (source, target): (&Place, &Place),
        count: &mut u64,
    ) -> Result<(), Error> {
        let there = match kinds(target) {
            // The rehearsal has not made the directory.
            Err(Error::Missing { .. } | Error::NotDirectory { .. }) => return Ok(()),
            kinds => kinds?,
        };
        let wanted = match kinds(source) {
            // This error was reported when the files were listed.
            Err(_) if screen.exit_code() != 0 => return Ok(()),
            kinds => kinds?,
        };
        for (name, kind) in there {
            let (below, at) = (target.join(&name)?, at.join(&name));
            if !self
                .moving
                .choosing
                .0
                .has(&at, kind == EntryKind::Directory)
            {
                continue;
            }
            let path = below.path.clone();
            let clash = match (kind, wanted.get(&name)) {
                (EntryKind::Directory, Some(EntryKind::Directory)) => {
                    self.tell_surplus(screen, &at, (&source.join(&name)?, &below), count)?;
                    continue;
                }
                (EntryKind::Directory, Some(_)) => Some(Error::directory(path)),
                (EntryKind::File | EntryKind::Other, Some(EntryKind::Directory)) => {
                    Some(Error::not_directory(path))
                }
                (_, Some(_)) => continue,
                (_, None) => None,
            };
            match clash {
                _ if self.delete && screen.exit_code() != 0 => {} // would be left
                _ if self.delete => {
                    let chosen = (&*at, &self.moving.choosing.0);
                    tell_removed(screen, chosen, &below, kind, count)?
                }
                Some(error) => {
                    let wanted = format!("copy {} to {}", source.join(&name)?, below);
                    let next = "add --delete to have it replaced, or remove it";
                    screen.trouble(&CliError::store(wanted, error).next(next));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn differs(&self, source: &Place, stat: &Stat, target: &Place) -> Result<bool, Error> {
        let there = match target.store.stat(&target.path) {
            Ok(there) => there,
            Err(Error::Missing { .. }) => return Ok(true),
            // Something else stands above it: replaced, or an error of its own.
            Err(Error::NotDirectory { .. }) => return Ok(self.delete),
            Err(error) => return Err(error),
        };
        if there.kind == EntryKind::Directory {
            return Ok(self.delete);
        }
        if there.size != stat.size {
            return Ok(true);
        }
        if !self.checksum {
            return Ok(!stat.is_of_time(&there));
        }
        let of = |place: &Place| bytes::digest(place, Algorithm::Blake3, None);
        Ok(of(source)? != of(target)?)
    }
}

/// Says that something would be removed, with all that is in it; what is not chosen stays, and what holds that.
fn tell_removed(
    screen: &Screen,
    (at, choice): (&Path, &Choice),
    place: &Place,
    kind: EntryKind,
    count: &mut u64,
) -> Result<(), Error> {
    let (mut gone, mut kept) = (vec![PathBuf::new()], HashSet::new());
    if kind == EntryKind::Directory {
        place.store.walk(&place.path, &mut |entry| {
            let is_directory = entry.stat.kind == EntryKind::Directory;
            match choice.has(&at.join(&entry.path), is_directory) {
                true => gone.push(entry.path),
                false => kept.extend(entry.path.ancestors().map(Path::to_owned)),
            }
            Ok(())
        })?;
    }
    for path in gone.iter().filter(|path| !kept.contains(*path)) {
        *count += 1;
        let place = places::inside(place, path)?;
        transfer::would(screen, "remove", &place.url, None, 0)?;
    }
    Ok(())
}

/// Refuses to remove a tree that is only another name of the source.
fn refuse_overlap(pairs: &[Pair]) -> Run {
    for pair in pairs.iter().filter(|pair| pair.tree) {
        // A tree that cannot be read whole fails later, before anything is removed.
        let found = same::overlap(&pair.source, &pair.target, &mut |_| {});
        if let Ok(Some(fact)) = found {
            let wanted = format!("sync {} to {}", pair.source.url, pair.target.url);
            let fact = format!("{fact}, by another name; --delete would remove what is copied");
            return Err(
                CliError::asked(wanted, fact).next("leave --delete out, or name another target")
            );
        }
    }
    Ok(())
}

fn kinds(place: &Place) -> Result<HashMap<PathBuf, EntryKind>, Error> {
    let mut kinds = HashMap::new();
    place.store.list(&place.path, &mut |entry: Entry| {
        kinds.insert(entry.path, entry.stat.kind);
        Ok(())
    })?;
    Ok(kinds)
}
