//! `godwit mv`: renames where it can, else copies, verifies, then removes.

use super::{cp, rm::Remover};
use crate::{
    args::{MoveOptions, Names},
    bytes,
    client::pending::Turn,
    out::{CliError, Facts, Run, Screen, progress::tell_skipped, silence},
    places::{self, Place},
    transfer::{
        self, CopyResult, Pair, Planned, TransferWork,
        layout::{CopyVerb, Existing},
        same,
    },
};
use clap::Args;
use godwit_core::{Algorithm, Choice};
use godwit_store::engine::{OverwriteRule, Stores, extra};
use godwit_store::{EntryKind, Error, RemovalKind, Stat, StoreExt};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

/// Move or rename files and directories
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit mv run7.root run7-good.root
  godwit mv ftp://fermi.example/old ftp://fermi.example/new
  godwit mv data ftp://fermi.example/archive

On one server it is a rename. Between two it copies, compares digests (asking the target
to read again if it told none on the way), and only then removes the source: all of it,
or, if anything failed, nothing. With --exclude a directory is copied, and what is left out stays
where it is (godwit help cp). What this machine has still to deliver to either name arrives first,
as with godwit cp.

Exit status: as cp.")]
pub(crate) struct MvArgs {
    #[command(flatten)]
    names: Names,
    /// Leave files that exist alone
    #[arg(short, long, overrides_with = "force")]
    no_clobber: bool,
    /// Replace files that exist (which is the default)
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    #[command(flatten)]
    moving: MoveOptions,
}

impl MvArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let (sources, target) = cp::ends(&self.names, "mv")?;
        let moved = self.shift(screen, &sources, &target);
        Ok(transfer::or_all_failed(screen, sources.len(), moved))
    }

    fn shift(&self, screen: &Screen, sources: &[OsString], target: &OsStr) -> Run<Facts> {
        let target = places::target(target)?;
        let sources = sources.iter().map(|source| places::url(source));
        let sources = sources.collect::<Run<Vec<_>>>()?;
        let options = transfer::options(&self.moving)?;
        let stores = Stores::new(options.clone());
        let mut turn = Turn::of(screen, self.moving.dry_run);
        let Planned { mut pairs, refused } = transfer::pairs(
            screen,
            CopyVerb::Move,
            &sources,
            &target,
            &self.moving,
            &stores,
            &mut turn,
        )?;
        let asked = pairs.len();
        pairs.retain(|pair| !self.leaves_alone(screen, pair));
        let skipped = asked - pairs.len();
        let (pairs, late) = transfer::in_turn(screen, CopyVerb::Move, pairs, &mut turn);
        let refused = refused + late;
        if self.moving.dry_run {
            let facts = transfer::rehearse(
                screen,
                &pairs,
                "move",
                &self.moving.choosing.0,
                &|_, _, _| Ok(true),
            );
            return Ok(transfer::with_failed(facts, refused));
        }
        let (mut renamed, mut failed, mut left) = (0u64, refused, Vec::new());
        for pair in pairs {
            let waits_for = transfer::answer_of(&pair.source.url);
            match silence::broken_by(screen, &waits_for, || self.rename(screen, &pair)) {
                Ok(true) => renamed += 1,
                Ok(false) => left.push(pair),
                Err(trouble) => {
                    failed += 1;
                    screen.trouble(&trouble);
                }
            }
        }
        let mut facts = Facts::new();
        if !left.is_empty() {
            let rule = if self.no_clobber {
                OverwriteRule::NoClobber
            } else {
                OverwriteRule::Always
            };
            let asked = left.len();
            let sources = left.into_iter().filter_map(|pair| {
                let waits_for = format!("all below {} to be looked at", pair.source.url);
                let source = silence::broken_by(screen, &waits_for, || {
                    MoveSource::look(pair, &self.moving.choosing.0)
                });
                source.map_err(|trouble| screen.trouble(&trouble)).ok()
            });
            let sources: Vec<MoveSource> = sources.collect();
            failed += asked - sources.len();
            let pairs = sources.iter().map(|source| source.pair.clone()).collect();
            let work = TransferWork {
                act: "move",
                pairs,
                rule,
                range: None,
                delete: false,
            };
            let moved = transfer::run(screen, &self.moving, work, &options);
            let remover = Remover::new(screen, false);
            let waits_for = "the copies to be looked at and the sources to be removed";
            let removed = silence::broken_by(screen, waits_for, || {
                self.remove_sources(&remover, &moved, &sources)
            });
            if let Err(trouble) = removed {
                failed += remover.failed() + usize::from(!trouble.follows());
                screen.trouble(&trouble);
            }
            facts = moved.facts;
            facts.insert("removed".into(), remover.removed().into());
        }
        facts.insert("renamed".into(), renamed.into());
        let facts = transfer::with_more(facts, "skipped", skipped as u64);
        Ok(transfer::with_failed(facts, failed))
    }

    /// Tells whether `-n` leaves a file where it is; reports that, except in a rehearsal.
    fn leaves_alone(&self, screen: &Screen, pair: &Pair) -> bool {
        if !self.no_clobber {
            return false;
        }
        match transfer::what_is_there(&pair.target) {
            Ok(Existing::File) => {
                if !self.moving.dry_run {
                    tell_skipped(screen, &pair.source, &pair.target);
                }
                true
            }
            Err(error @ Error::Beyond { .. }) => {
                let wanted = format!("tell whether {} is there", pair.target.url);
                screen.trouble(&CliError::store(wanted, error));
                true
            }
            _ => false,
        }
    }

    /// Renames, if both names are on one store that can rename. Tells whether it did.
    fn rename(&self, screen: &Screen, pair: &Pair) -> Run<bool> {
        let (source, target) = (&pair.source, &pair.target);
        let is_part = pair.tree && !self.moving.choosing.0.is_all();
        if is_part || !source.url.same_server(&target.url) {
            return Ok(false);
        }
        let trouble =
            |error: Error| CliError::store(format!("move {} to {}", source.url, target.url), error);
        match source.store.rename(&source.path, &target.path) {
            Ok(()) => {}
            Err(Error::Unsupported { .. }) => return Ok(false),
            Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::CrossesDevices => {
                return Ok(false);
            }
            // The server says it of the name that it was told first.
            Err(Error::NotEmpty { .. }) => {
                return Err(trouble(Error::not_empty(target.path.clone()))
                    .next("a directory of that name is there: choose another name, or remove it"));
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

    fn remove_sources(
        &self,
        remover: &Remover<'_>,
        moved: &CopyResult,
        sources: &[MoveSource],
    ) -> Run {
        if !moved.all {
            return Ok(()); // what failed was told; nothing is removed
        }
        let skipped = moved.facts.get("skipped").and_then(Value::as_u64);
        if skipped.is_some_and(|skipped| skipped > 0) {
            let fact = "some of it stands at the target already, and was left alone there";
            return Err(
                CliError::kept("remove what was copied", fact).next("the sources were kept")
            );
        }
        if !self.moving.no_verify {
            for (source, target) in &moved.size_only {
                self.compare(source, target)?;
            }
        }
        self.copies_stand(sources)?;
        for source in sources {
            let target = &source.pair.target;
            let durable = target.store.flush(&target.path);
            durable.map_err(|error| source.copied_only(CliError::store(source.wanted(), error)))?;
        }
        for source in sources {
            let removed = match source.pair.tree {
                true if !self.moving.choosing.0.is_all() => source.remove_chosen(remover),
                true => source.remove_tree(remover),
                false => source.remove_file(remover),
            };
            removed.map_err(|trouble| source.copied_only(trouble))?;
        }
        Ok(())
    }

    /// Looks at all copies once more: through links at the target two names may be one
    /// file, which then has the bytes of one source only.
    fn copies_stand(&self, sources: &[MoveSource]) -> Run {
        let mut seen = HashMap::new();
        for source in sources {
            let copies = source.copies();
            for (name, stat) in copies.map_err(|trouble| source.copied_only(trouble))? {
                let name = inside(&source.pair.target.path, &name);
                let Some(unique) = stat.unique else { continue };
                if let Some(other) = seen.insert((stat.mtime, unique), name.clone()) {
                    let (name, other) = (name.display(), other.display());
                    let fact = format!("{name} and {other} are one file at the target");
                    return Err(CliError::kept(source.wanted(), fact)
                        .next("no source was removed; see which of the names there is a link"));
                }
            }
        }
        Ok(())
    }

    /// A source is removed only if its copy is known to be good.
    fn compare(&self, source: &Place, target: &Place) -> Run {
        let digest = |place: &Place| {
            let told = bytes::digest(place, Algorithm::Blake3, None);
            told.map_err(|error| CliError::store(format!("compare {place}"), error))
        };
        let (was, is) = (digest(source)?, digest(target)?);
        if was == is {
            return Ok(());
        }
        let fact = format!("the source has {was}, the copy {is}; the source was kept");
        Err(
            CliError::differs(format!("move {source} to {target}"), fact)
                .next("remove the copy and run the command again"),
        )
    }
}

/// A source as it was before it was copied: only that is removed afterwards.
struct MoveSource {
    pair: Pair,
    before: HashMap<PathBuf, Stat>,
}

impl MoveSource {
    /// Lists a source. Refuses one that is also the target, or that holds
    /// entries which would not be copied.
    fn look(pair: Pair, choice: &Choice) -> Run<Self> {
        let (source, target) = (&pair.source, &pair.target);
        let wanted = || format!("move {} to {}", source.url, target.url);
        let trouble = |error: Error| CliError::store(wanted(), error);
        let mut before = HashMap::new();
        if !pair.tree {
            let stat = source.store.stat(&source.path).map_err(trouble)?;
            before.insert(PathBuf::new(), stat);
            return Ok(Self { pair, before });
        }
        let found = same::overlap(source, target, &mut |entry| {
            if choice.has(&entry.path, entry.stat.kind == EntryKind::Directory) {
                before.insert(entry.path, entry.stat);
            }
        });
        let found = found.map_err(|error| trouble(unread(source, error)));
        if let Some(fact) = found? {
            let fact = format!("{fact}, by another name");
            return Err(CliError::asked(wanted(), fact).next("nothing was copied or removed"));
        }
        let leaving = Self { pair, before };
        leaving.refuse_hidden("nothing was moved")?;
        Ok(leaving)
    }

    /// Refuses to remove a directory with unfinished uploads, which are not copied:
    /// a program that continues one would find it gone.
    fn refuse_hidden(&self, so: &str) -> Run {
        let source = &self.pair.source;
        let hidden = source.store.hidden(&source.path);
        let hidden = hidden.map_err(|error| CliError::store(self.wanted(), error))?;
        let Some(first) = hidden.first() else {
            return Ok(());
        };
        let more = if hidden.len() > 1 { ", and others" } else { "" };
        let fact = format!("it holds unfinished uploads: {}{more}", first.display());
        let next = match source.url.is_local() {
            false => "finish or abandon these uploads, or use cp -r",
            true => "finish these uploads, or remove or rename them",
        };
        Err(CliError::kept(self.wanted(), fact).next(format!("{next}; {so}")))
    }

    /// Returns the files at the target that were copied, each as it is there now; and
    /// refuses if one of them is not as long as what was copied.
    fn copies(&self) -> Run<Vec<(PathBuf, Stat)>> {
        let (target, trouble) = (&self.pair.target, |error| {
            CliError::store(self.wanted(), error)
        });
        let mut copies = Vec::new();
        let mut wrong = None;
        let mut each = |path: PathBuf, stat: Stat| {
            let Some(before) = self.before.get(&path).filter(|b| b.kind == EntryKind::File) else {
                return;
            };
            if before.size != stat.size {
                wrong.get_or_insert(path.clone());
            }
            copies.push((path, stat));
        };
        if self.pair.tree {
            let walked = target.store.walk(&target.path, &mut |entry| {
                each(entry.path, entry.stat);
                Ok(())
            });
            walked.map_err(trouble)?;
        } else {
            let stat = target.store.stat(&target.path).map_err(trouble)?;
            each(PathBuf::new(), stat);
        }
        match wrong {
            Some(path) if self.was_written_to(&path) => Err(self.changed(&path)),
            Some(path) => {
                let path = inside(&target.path, &path);
                let fact = format!("{}: is not as long as its source", path.display());
                Err(CliError::kept(self.wanted(), fact)
                    .next("no source was removed; another program wrote there, or it is a link"))
            }
            None => Ok(copies),
        }
    }

    fn wanted(&self) -> String {
        format!("move {} to {}", self.pair.source.url, self.pair.target.url)
    }

    /// Adds a hint to the error of a move after its copy, unless the error has one.
    fn copied_only(&self, trouble: CliError) -> CliError {
        let (source, target) = (&self.pair.source.url, &self.pair.target.url);
        trouble.or_next(format!(
            "the copy is whole: {target}; the source stays: {source}"
        ))
    }

    /// Tells whether a file was changed since it was listed.
    fn was_written_to(&self, path: &Path) -> bool {
        let source = &self.pair.source;
        let (before, now) = (
            self.before.get(path),
            source.store.stat(&inside(&source.path, path)),
        );
        matches!((before, now), (Some(before), Ok(now))
            if (before.size, before.mtime) != (now.size, now.mtime))
    }

    fn changed(&self, path: &Path) -> CliError {
        let is_file = self
            .before
            .get(path)
            .is_some_and(|b| b.kind == EntryKind::File);
        let what = match is_file && self.was_written_to(path) {
            true => "was written to",
            false => "changed",
        };
        let path = inside(&self.pair.source.path, path);
        let fact = format!("{}: {what} while it was moved", path.display());
        CliError::kept(self.wanted(), fact).next("nothing was removed; run it again")
    }

    /// Tells whether something in the source is as it was before it was copied.
    fn is_unchanged(&self, path: &Path, now: &Stat) -> bool {
        let Some(before) = self.before.get(path) else {
            return false;
        };
        if (before.kind, now.kind) == (EntryKind::Link, EntryKind::Link) {
            // The rest may be told of the link itself or of what it leads to.
            return before.target == now.target;
        }
        let as_before = before.kind == now.kind && before.unique == now.unique;
        // A directory's own time changes as it is emptied.
        as_before
            && (now.kind == EntryKind::Directory
                || (before.size, before.mtime) == (now.size, now.mtime))
    }

    fn remove_file(&self, remover: &Remover<'_>) -> Run {
        let source = &self.pair.source;
        let aside = self.set_aside()?;
        let removed = match aside.store.stat(&aside.path) {
            Ok(now) if !self.is_unchanged(Path::new(""), &now) => Err(self.changed(Path::new(""))),
            Ok(_) => {
                let removed = aside.store.remove(&aside.path, RemovalKind::File);
                removed.map_err(|error| {
                    CliError::store(format!("remove {}", source.url), named(error, &source.path))
                })
            }
            Err(error) => Err(CliError::store(self.wanted(), named(error, &source.path))),
        };
        if let Err(trouble) = removed {
            self.put_back(&aside)?;
            return Err(trouble);
        }
        remover.say(source);
        Ok(())
    }

    /// Removes the copied files of a tree, and directories that are then empty.
    fn remove_chosen(&self, remover: &Remover<'_>) -> Run {
        let source = &self.pair.source;
        let trouble = |error: Error| CliError::store(self.wanted(), error);
        let mut paths: Vec<_> = self.before.iter().collect();
        paths.sort_by(|a, b| b.0.cmp(a.0));
        for (path, before) in paths {
            let place = places::inside(source, path).map_err(trouble)?;
            if before.kind == EntryKind::Directory {
                // Files that were left out may be in it.
                if place
                    .store
                    .remove(&place.path, RemovalKind::Directory)
                    .is_ok()
                {
                    remover.say(&place);
                }
                continue;
            }
            let now = places::stat_unfollowed(&place).map_err(trouble)?;
            if !self.is_unchanged(path, &now) {
                return Err(self.changed(path));
            }
            remover.file(&place)?;
        }
        if source
            .store
            .remove(&source.path, RemovalKind::Directory)
            .is_ok()
        {
            remover.say(source);
        }
        Ok(())
    }

    fn remove_tree(&self, remover: &Remover<'_>) -> Run {
        let (source, target) = (&self.pair.source, &self.pair.target);
        let trouble = |error: Error| CliError::store(self.wanted(), error);
        self.put_back(&self.set_aside()?)?;
        let mut changed = None;
        let walked = source.store.walk(&source.path, &mut |entry| {
            if !self.is_unchanged(&entry.path, &entry.stat) {
                changed.get_or_insert(entry.path);
            }
            Ok(())
        });
        walked.map_err(trouble)?;
        // An entry that only the source has was not copied.
        if changed.is_none() {
            changed = extra(target, source)
                .map_err(trouble)?
                .into_iter()
                .map(|(path, _)| path)
                .next();
        }
        if let Some(path) = changed {
            return Err(self.changed(&path));
        }
        // The source was a link: its target was copied, and stays.
        if source.store.remove(&source.path, RemovalKind::File).is_ok() {
            remover.say(source);
            return Ok(());
        }
        self.refuse_hidden("the copy stays, nothing was removed")?;
        remover.tree_if(source, Path::new(""), &|path, now| {
            self.is_unchanged(path, now)
        })
    }

    /// Gives the source another name, and looks whether the target is still there.
    ///
    /// One file may be reached by many names: a second name of a host, a local path
    /// and the node that exports it. No comparison of names finds that out, but a
    /// target that vanishes with the source was the source itself.
    fn set_aside(&self) -> Run<Place> {
        let Pair { source, target, .. } = &self.pair;
        let trouble = |error: Error| CliError::store(self.wanted(), error);
        let aside = aside(source).map_err(trouble)?;
        source
            .store
            .rename(&source.path, &aside.path)
            .map_err(|error| trouble(named(error, &source.path)))?;
        let refused = match target.store.stat(&target.path) {
            Ok(_) => return Ok(aside),
            Err(Error::Missing { .. }) => {
                let fact = "they are the same file, or one is inside the other";
                CliError::asked(self.wanted(), fact).next("nothing was removed")
            }
            Err(error) => trouble(error),
        };
        self.put_back(&aside)?;
        Err(refused)
    }

    /// Gives the source its name back, or says where it is.
    fn put_back(&self, aside: &Place) -> Run {
        let source = &self.pair.source;
        let (wanted, at) = (format!("give {} its name back", source.url), &aside.url);
        let next = format!(
            "it is whole and is called {at} now: godwit mv {at} {}",
            source.url
        );
        match source.store.stat(&source.path) {
            Err(Error::Missing { .. }) => {}
            Ok(_) => {
                let fact = "something else was put there while it was moved";
                return Err(CliError::kept(wanted, fact).next(next));
            }
            Err(error) => return Err(CliError::store(wanted, error).next(next)),
        }
        aside
            .store
            .rename(&aside.path, &source.path)
            .map_err(|error| CliError::store(wanted, error).next(next))
    }
}

/// Names the directory that may not be listed, which a server of ours does not when it is asked
/// for a whole tree.
fn unread(source: &Place, error: Error) -> Error {
    if !matches!(error, Error::Denied { .. }) {
        return error;
    }
    let mut first = None;
    // `first` has the error, if there is one.
    let _ = source
        .store
        .walk_readable(&source.path, &mut |_| Ok(()), &mut |_, error| {
            first = Some(error);
            Err(Error::Canceled)
        });
    first.unwrap_or(error)
}

/// Returns what `path` is called in `above`; the empty path is `above` itself, and brings no
/// slash with it.
fn inside(above: &Path, path: &Path) -> PathBuf {
    match path.as_os_str().is_empty() {
        true => above.to_owned(),
        false => above.join(path),
    }
}

/// Returns an error about a file that is set aside, with the name that the user gave.
fn named(error: Error, path: &Path) -> Error {
    let path = path.to_owned();
    match error {
        Error::Denied { said, .. } => Error::denied(path, said),
        Error::Io { cause, .. } => Error::system(path, cause),
        Error::Missing { .. } => Error::missing(path),
        error => error,
    }
}

/// Returns a name beside `source` that no other program is likely to use.
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
