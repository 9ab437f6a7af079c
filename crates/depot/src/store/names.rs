//! Names and attributes through a hop.
//!
//! If nothing is pending at a name, the next node is asked at once, and its answer is returned once the change is durable
//! there, since the client asks no more. Else, and if the next node cannot be reached, the change is promised behind the
//! pending ones, and shown here as done.

use super::Spooled;
use crate::{Attributes, By, Scope, Stage, paths::moved};
use godwit_core::Url;
use godwit_store::{
    Entry as DirEntry, EntryKind, Error, RemovalKind, Result, Set, Store, StoreExt, engine::Place,
};
use std::{
    collections::BTreeSet,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

impl Spooled {
    /// Has something be done at the next, now or in its turn.
    fn in_turn(
        &self,
        names: &[&Path],
        is_awaited: bool,
        now: impl FnOnce() -> Result<()>,
        later: impl FnOnce(By<'_>) -> crate::Result<()>,
    ) -> Result<()> {
        if !is_awaited {
            match now() {
                // The next node has not heard of it.
                Err(error) if is_away(&error) => {}
                done => {
                    self.changed(names)?;
                    return done.and_then(|()| self.must_be_durable_there(names));
                }
            }
        }
        // What is at a name is looked at before anything is promised of it: since we delivered there, others of this hop
        // may have renamed it without a trace here.
        let mut doubted = Vec::new();
        for name in names {
            let url = self.url(name)?;
            if let Some(entry) = self.depot.inner.plan().current_of(&url, &self.who) {
                let doubt = entry.lock().validity.invalidate();
                doubted.push((entry, doubt));
            }
        }
        let by = By {
            who: &self.who,
            session: &self.client,
            is_wanted: &|| true,
        };
        let promised = later(by).map_err(self.told(names[0]));
        // Of one that cannot be asked nothing new was heard.
        for (entry, doubt) in doubted.into_iter().filter(|_| !is_awaited) {
            entry.lock().validity.restore(&doubt);
        }
        promised
    }

    /// Has what the next did to names survive a power cut there.
    fn must_be_durable_there(&self, names: &[&Path]) -> Result<()> {
        let Some(name) = names.last() else {
            return Ok(());
        };
        let safe = self.there(name).and_then(|place| flush_around(&place));
        safe.map_err(|error| match error {
            // It was asked and has done it: to promise it as well would be to do it twice.
            away if is_away(&away) => Error::lost(
                self.next.host_port(),
                "it wrote to its disk what was done",
                std::io::Error::other(away.to_string()),
            ),
            error => error,
        })
    }

    /// Notes that the next node changed these names, or may have: cached answers about them are older.
    fn changed(&self, names: &[&Path]) -> Result<()> {
        for name in names {
            self.depot.changed(&self.url(name)?);
        }
        Ok(())
    }

    /// Tells whether something is on its way to a name, above or below it.
    fn is_awaited(&self, path: &Path) -> Result<bool> {
        let url = self.url(path)?;
        Ok(self.is_concerned(|other| {
            moved(other, &url, &url).is_some() || moved(&url, other, other).is_some()
        }))
    }

    /// Tells whether a change is pending at a name or above it.
    fn is_awaited_above(&self, path: &Path) -> Result<bool> {
        let url = self.url(path)?;
        Ok(self.is_concerned(|other| moved(&url, other, other).is_some()))
    }

    fn is_concerned(&self, is_it: impl Fn(&Url) -> bool) -> bool {
        let mut queue = self.depot.queue().into_iter();
        queue.any(|pending| is_it(&pending.url) || pending.to.as_ref().is_some_and(&is_it))
    }

    /// Removes a file on hold here only: the file that the next node has under that name is another, or an older one.
    pub(super) fn remove_in_turn(&self, path: &Path, what: RemovalKind) -> Result<()> {
        let mut is_awaited = self.is_awaited(path)?;
        if is_awaited {
            let kind = self.must_be(path, what)?;
            if self.give_up(path, what)? {
                return Ok(());
            }
            // Nothing comes to be below a file.
            is_awaited = match kind {
                Some(EntryKind::File) => self.is_awaited_above(path)?,
                _ => true,
            };
        }
        self.in_turn(
            &[path],
            is_awaited,
            || {
                let place = self.there(path)?;
                place.store.remove(&place.path, what)
            },
            |by| self.depot.unlink(&self.url(path)?, by),
        )
    }

    /// Gives up what is on its way to a name, if all of that is held, and what is to be removed; says whether.
    fn give_up(&self, path: &Path, what: RemovalKind) -> Result<bool> {
        let url = self.url(path)?;
        let pending = self.depot.queue_of(&Scope::Url(url.clone()));
        let comes = match what {
            RemovalKind::File => "publish",
            RemovalKind::Directory => "mkdir",
        };
        let is_held = (pending.iter()).all(|pending| {
            pending.stage == Stage::Held && (pending.what == comes || pending.what == "set")
        });
        let is_there = pending.iter().any(|pending| pending.what == comes);
        let is_it = is_held && is_there && !self.depot.inner.plan().is_full(&url);
        for pending in pending.iter().filter(|_| is_it) {
            self.depot.discard(&pending.id).map_err(self.told(path))?;
        }
        Ok(is_it)
    }

    /// Refuses a removal of another kind of entry, if the kind is known. A promised removal takes any entry.
    fn must_be(&self, path: &Path, what: RemovalKind) -> Result<Option<EntryKind>> {
        let kind = match self.look(path) {
            Ok(stat) => stat.kind,
            Err(Error::Beyond { .. }) => return Ok(None),
            Err(error) if is_away(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match (what, kind) {
            (RemovalKind::File, EntryKind::Directory) => Err(Error::directory(path)),
            (RemovalKind::Directory, EntryKind::File) => Err(Error::not_directory(path)),
            _ => Ok(Some(kind)),
        }
    }

    pub(super) fn rename_in_turn(&self, from: &Path, to: &Path) -> Result<()> {
        self.in_turn(
            &[from, to],
            self.is_awaited(from)? || self.is_awaited(to)?,
            || {
                let (place, to) = (self.there(from)?, self.there(to)?);
                place.store.rename(&place.path, &to.path)
            },
            |by| self.depot.rename(&self.url(from)?, &self.url(to)?, by),
        )
    }

    pub(super) fn mkdir_in_turn(&self, path: &Path) -> Result<()> {
        self.in_turn(
            &[path],
            // What is below it may wait for it.
            self.is_awaited_above(path)?,
            || {
                let place = self.there(path)?;
                place.store.mkdir(&place.path)?;
                self.depot.inner.made(&place.url);
                Ok(())
            },
            |by| {
                let url = self.url(path)?;
                match self.is_promised_directory(&url) {
                    true => Err(Error::exists(path).into()),
                    false => self.depot.mkdir(&url, by),
                }
            },
        )
    }

    pub(super) fn set_in_turn(&self, path: &Path, set: &Set) -> Result<()> {
        let can_wait = Set {
            mode: None,
            mtime: None,
            ..set.clone()
        } == Set::default();
        if !can_wait {
            self.settle(path)?;
            let place = self.there(path)?;
            let set = place.store.set(&place.path, set);
            self.changed(&[path])?;
            return set.and_then(|()| self.must_be_durable_there(&[path]));
        }
        let attributes = Attributes {
            mode: set.mode,
            mtime: set.mtime,
        };
        self.in_turn(
            &[path],
            self.is_awaited(path)?,
            || {
                let place = self.there(path)?;
                place.store.set(&place.path, set)
            },
            |by| self.depot.set(&self.url(path)?, &attributes, by),
        )
    }

    pub(super) fn is_promised_directory(&self, url: &Url) -> bool {
        self.depot.inner.plan().order.is_to_be_made(url)
    }

    /// Returns how names in a directory will be other than the next has them; none: they are as they are.
    pub(super) fn promised_in(&self, root: &Url) -> Result<Option<BTreeSet<PathBuf>>> {
        let (mut is_changed, mut new) = (false, BTreeSet::new());
        let is_in = |url: &Url| {
            let parent = url.parent()?;
            let same = bare(parent.path()) == bare(root.path());
            let name = url.file_name().filter(|_| same)?;
            Some(PathBuf::from(std::ffi::OsStr::from_bytes(name)))
        };
        for pending in self.depot.queue() {
            if pending.what == "publish" || pending.what == "append" || pending.what == "set" {
                continue;
            }
            is_changed |= is_in(&pending.url).is_some();
            let made = match pending.what {
                "mkdir" => Some(&pending.url),
                _ => pending.to.as_ref(),
            };
            if let Some(name) = made.and_then(is_in) {
                is_changed = true;
                new.insert(name);
            }
        }
        Ok(is_changed.then_some(new))
    }

    /// Tells of a name as it will be, if it will be.
    pub(super) fn each_promised(
        &self,
        path: &Path,
        entry: PathBuf,
        each: &mut dyn FnMut(DirEntry) -> Result<()>,
    ) -> Result<()> {
        match self.stat(&path.join(&entry)) {
            Ok(stat) => each(DirEntry { path: entry, stat }),
            Err(Error::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Where there is nothing, what it was in is flushed, or the first above that is there.
fn flush_around(place: &Place) -> Result<()> {
    for around in place.path.ancestors() {
        match place.store.flush(around) {
            Err(Error::Missing { .. }) => {}
            // Who may not see a name may still change what is around it.
            Err(Error::Denied { .. }) => return Ok(()),
            flushed => return flushed,
        }
    }
    Ok(())
}

fn bare(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// Tells whether the next has not even been asked.
pub(super) fn is_away(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreachable { .. } | Error::NameService { .. } | Error::Away { .. }
    )
}
