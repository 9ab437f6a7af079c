//! `godwit rm`: removes files, and trees if told to.

use super::catalog;
use crate::{
    args::{Names, Talking},
    client::pending::{NameScope, Turn},
    out::{CliError, Facts, Run, Screen},
    places::{self, Place},
    transfer,
};
use clap::Args;
use godwit_catalog::history;
use godwit_core::{Scheme, Url};
use godwit_farm::CopyAim;
use godwit_store::engine::Stores;
use godwit_store::{Entry, EntryKind, Error, RemovalKind, Stat};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Remove files
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  godwit rm old.root
  godwit rm -r --dry-run ftp://fermi.example/2025
  godwit rm -rf ftp://fermi.example/2025
  godwit rm -r grid:/run7 --at old-disk

A link is removed, never what it points to. The root of a server is never removed. What was
put under that name before (godwit put), and is on its way still, arrives first: it says so
while it waits, and ends as godwit push does if that does not arrive.

A name of the catalog goes with the copies that godwit made. Bytes that were registered in place
stay, unless --data is said.

Exit status: 0; 4 no such file (not with -f); 1 a directory without -r; 13 not allowed.")]
pub(crate) struct RmArgs {
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    talking: Talking,
    /// Directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    force: bool,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Of names: also the bytes that were registered in place
    #[arg(long, help_heading = "Names of the catalog")]
    data: bool,
    /// Of names: only the copies at this site; the names stay
    #[arg(long, value_name = "SITE", help_heading = "Names of the catalog")]
    at: Option<String>,
    /// With --at: also the last copy of a file
    #[arg(long, requires = "at", help_heading = "Names of the catalog")]
    last: bool,
    /// Only if godwit farm verify has proved that the file can be computed again
    #[arg(long, conflicts_with_all = ["recursive", "at"], help_heading = "Names of the catalog")]
    keep_recipe: bool,
}

impl RmArgs {
    pub(crate) fn run(self, screen: &Screen) -> Run<Facts> {
        let stores = places::stores(&self.talking)?;
        let remover = Remover::new(screen, self.dry_run);
        let mut turn = Turn::of(screen, self.dry_run);
        for url in self.names.some("rm")? {
            if let Err(trouble) = self.one(&remover, &stores, &url, &mut turn) {
                screen.trouble(&trouble);
            }
        }
        let mut facts = Facts::new();
        facts.insert("removed".into(), remover.removed().into());
        if self.dry_run {
            facts.insert("dry_run".into(), true.into());
        }
        Ok(facts)
    }

    fn one(&self, remover: &Remover<'_>, stores: &Stores, url: &Url, turn: &mut Turn<'_>) -> Run {
        let wanted = format!("remove {url}");
        if url.file_name().is_none() {
            let fact = "this is a root, or a directory by the name . or ..";
            return Err(CliError::asked(wanted, fact).next("name what is in it"));
        }
        let reach = match self.recursive {
            true => NameScope::Below,
            false => NameScope::Name,
        };
        if self.keep_recipe {
            must_be_proved(url, &wanted)?;
        }
        turn.wait(url, reach, &wanted)?;
        let place = self.place(stores, url)?;
        let trouble = |error: Error| CliError::store(wanted.clone(), error);
        match places::stat_unfollowed(&place).map(|stat| stat.kind) {
            Ok(EntryKind::Directory) if !self.recursive => {
                Err(trouble(Error::directory(place.path.clone()))
                    .next("add -r to remove it with all that is below"))
            }
            Ok(EntryKind::Directory) => remover.tree(&place),
            Ok(_) if url.means_directory() => {
                Err(trouble(Error::not_directory(place.path.clone()))
                    .next("leave out the / behind it to remove it all the same"))
            }
            Ok(_) => remover.file(&place),
            Err(Error::Missing { .. }) if self.force => Ok(()),
            Err(error) => Err(trouble(error)),
        }
    }
}

impl RmArgs {
    /// Opens the place; a name of the catalog with the options for its copies.
    fn place(&self, stores: &Stores, url: &Url) -> Run<Place> {
        let is_of_names = self.data || self.at.is_some();
        match (url.scheme(), is_of_names) {
            (_, false) => places::open(stores, url),
            (Scheme::Grid, true) => {
                catalog::must_be_site(&format!("remove {url}"), self.at.as_ref())?;
                let names = catalog::logical(places::options(&self.talking)?)?;
                let aimed = names.aimed(CopyAim {
                    site: self.at.clone(),
                    last: self.last,
                    data: self.data,
                    ..CopyAim::default()
                });
                Ok(aimed.place(&places::without_slashes(url)))
            }
            _ => {
                let fact = "--data and --at are for names of the catalog, and this is none";
                Err(CliError::asked(format!("remove {url}"), fact).next("leave them out"))
            }
        }
    }
}

/// Refuses to remove a file that is not proved to be computable again.
fn must_be_proved(url: &Url, wanted: &str) -> Run {
    if url.scheme() != Scheme::Grid {
        let fact = "--keep-recipe is for names of the catalog, and this is none";
        return Err(CliError::asked(wanted, fact).next("leave it out"));
    }
    let made = history(&*catalog::open()?, &url.path_from_root());
    match made.map_err(|refusal| catalog::refused(wanted, &refusal))? {
        Some(made) if made.is_proved => Ok(()),
        Some(_) => {
            let fact = "nothing has proved yet that its program gives the same bytes again";
            Err(CliError::found(wanted, fact, 1)
                .next(format!("godwit farm verify {}", url.pasted())))
        }
        None => {
            let fact = "it was not made by a run, so it could not be computed again";
            Err(CliError::found(wanted, fact, 1))
        }
    }
}

/// Tells whether an entry of a tree may be removed.
type May<'a> = dyn Fn(&Path, &Stat) -> bool + std::marker::Sync + 'a;

/// Removes files and trees, and says so.
pub(crate) struct Remover<'a> {
    screen: &'a Screen,
    dry_run: bool,
    removed: AtomicUsize,
    failed: AtomicUsize,
}

impl<'a> Remover<'a> {
    /// Returns a remover; in a rehearsal it removes nothing.
    pub(crate) fn new(screen: &'a Screen, dry_run: bool) -> Self {
        Self {
            screen,
            dry_run,
            removed: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
        }
    }

    /// Returns how many files, links and directories it removed.
    pub(crate) fn removed(&self) -> usize {
        self.removed.load(Ordering::Relaxed)
    }

    /// Returns how many errors it reported, without those that follow from others.
    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    fn trouble(&self, trouble: &CliError) {
        if !trouble.follows() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        self.screen.trouble(trouble);
    }

    /// Removes one file or link.
    pub(crate) fn file(&self, place: &Place) -> Run {
        self.remove(place, RemovalKind::File)?;
        self.say(place);
        Ok(())
    }

    fn remove(&self, place: &Place, what: RemovalKind) -> Run {
        if self.dry_run {
            return Ok(());
        }
        let removed = place.store.remove(&place.path, what);
        removed.map_err(|error| CliError::store(format!("remove {}", place.url), error))
    }

    /// Removes a directory whose listed entries are gone.
    fn remove_emptied(&self, place: &Place) -> Run {
        if self.dry_run {
            return Ok(());
        }
        let removed = place.store.remove(&place.path, RemovalKind::Directory);
        removed.map_err(|error| {
            let is_full = matches!(error, Error::NotEmpty { .. });
            let trouble = CliError::store(format!("remove {}", place.url), error);
            match is_full {
                true => trouble.next(
                    "if an upload is under way there, wait until it is over; else what is left in it is hidden from you, \
                     by a rule of the server",
                ),
                false => trouble,
            }
        })
    }

    /// Removes a directory and everything below. Entries that cannot be removed are
    /// reported and left, with the directories above them.
    pub(crate) fn tree(&self, place: &Place) -> Run {
        self.tree_if(place, Path::new(""), &|_, _| true)
    }

    /// Removes a tree, except for entries that `may` refuses. `below` is the path of `place` in the
    /// whole tree; the paths given to `may` begin with it.
    pub(crate) fn tree_if(&self, place: &Place, below: &Path, may: &May<'_>) -> Run {
        let trouble =
            |place: &Place, error: Error| CliError::store(format!("remove {}", place.url), error);
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let mut changed = Vec::new();
        let mut each = |entry: Entry| {
            match entry.stat.kind {
                _ if !may(&below.join(&entry.path), &entry.stat) => changed.push(entry.path),
                EntryKind::Directory => directories.push(entry.path),
                _ => files.push(entry.path),
            }
            Ok(())
        };
        // One directory at a time: memory grows with the largest, not with the tree.
        place
            .store
            .list(&place.path, &mut each)
            .map_err(|error| trouble(place, error))?;
        let left = AtomicUsize::new(changed.len());
        for path in changed {
            let what = "it is new or was changed since it was copied";
            self.trouble(&trouble(place, Error::changed(place.path.join(path), what)));
        }
        in_parallel(&files, |path: &PathBuf| {
            let file = places::inside(place, path).map_err(|error| trouble(place, error));
            if let Err(error) = file.and_then(|file| self.file(&file)) {
                left.fetch_add(1, Ordering::Relaxed);
                self.trouble(&error);
            }
        });
        for path in &directories {
            let inner = places::inside(place, path).map_err(|error| trouble(place, error));
            if let Err(error) = inner.and_then(|inner| self.tree_if(&inner, &below.join(path), may))
            {
                left.fetch_add(1, Ordering::Relaxed);
                self.trouble(&error);
            }
        }
        if left.into_inner() > 0 {
            let error = trouble(place, Error::not_empty(place.path.clone()));
            let error = error.next("what is left in it, and why, was told");
            return Err(error.following());
        }
        self.remove_emptied(place)?;
        self.say(place);
        Ok(())
    }

    /// Says that something was removed, and counts it. What cannot be told is done all
    /// the same.
    pub(crate) fn say(&self, place: &Place) {
        self.removed.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.tell(place) {
            let wanted = match self.dry_run {
                true => format!("say that {} would be removed", place.url),
                false => format!("say that {} was removed, which it is", place.url),
            };
            self.screen.trouble(&CliError::store(wanted, error));
        }
    }

    fn tell(&self, place: &Place) -> Result<(), Error> {
        let url = &place.url;
        if self.dry_run {
            transfer::would(self.screen, "remove", url, None, 0)
        } else if self.screen.json() {
            self.screen
                .object(&json!({ "event": "removed", "url": url.to_string() }))
        } else if self.screen.verbose() {
            self.screen.line(format!("removed {url}"))
        } else {
            Ok(())
        }
    }
}

/// Calls `each` for all, a few at a time: removing waits for round trips, not for us.
fn in_parallel<T: std::marker::Sync>(all: &[T], each: impl Fn(&T) + std::marker::Sync) {
    let next = AtomicUsize::new(0);
    let threads = all.len().min(THREADS_MAX);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    each(one);
                }
            });
        }
    });
}

const THREADS_MAX: usize = 8; // enough to hide a round trip, few enough for a server's limit
