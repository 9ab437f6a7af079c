//! Commands about names: attributes, changes, removal.

use super::{FtpSession, list::told};
use crate::access::guarded::GuardedExport;
use godwit_core::{Chain, Kind};
use godwit_store::{EntryKind, Error, RemovalKind, Result, Set, Stat, Store, StoreExt};
use godwit_wire::server::{Ask, Change, FtpAnswer, Refusal, Removed};
use std::{
    ops::Range,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

impl FtpSession {
    pub(super) fn about_names(&mut self, ask: Ask) -> Result<FtpAnswer, Refusal> {
        if let Ask::Change {
            path,
            change: Change::Group(group),
        } = &ask
        {
            return change_group(self.dir(), path, group);
        }
        let entries_max = self.shared.config.limits.listing_entries;
        about_names(self.dir(), ask, entries_max).map_err(Refusal::from)
    }
}

/// Changes the group by `SITE CHGRP`: the account must own the file and be in the group.
fn change_group(dir: &GuardedExport, path: &Path, group: &str) -> Result<FtpAnswer, Refusal> {
    let groups = || std::fs::read_to_string("/etc/group").unwrap_or_default();
    let Some(number) = group.parse().ok().or_else(|| group_in(&groups(), group)) else {
        let why = format!("There is no group {group} here");
        return Err(Refusal::of_kind(Kind::Denied, why));
    };
    dir.set_group(path, number)?;
    Ok(FtpAnswer::Done)
}

/// Returns the number of a group by its name: `name:password:number:members`.
fn group_in(groups: &str, name: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':'));
    let mut line = lines.find(|line| line.clone().next() == Some(name))?;
    line.nth(2)?.parse().ok()
}

fn about_names(dir: &GuardedExport, ask: Ask, entries_max: u64) -> Result<FtpAnswer> {
    match ask {
        Ask::Stat { path } => Ok(FtpAnswer::Stat(told(&dir.stat(&path)?, None))),
        Ask::Name { path } => {
            let stat = dir.stat(&path);
            // A link can be renamed wherever it leads.
            let stat = stat.or_else(|error| dir.stat_of_name(&path).map_err(|_| error))?;
            Ok(FtpAnswer::Stat(told(&stat, None)))
        }
        Ask::Look { path } => {
            let stat = dir.stat(&path)?;
            if stat.kind == EntryKind::Directory {
                dir.may_list(&path)?;
            }
            Ok(FtpAnswer::Stat(told(&stat, None)))
        }
        Ask::Size { path } => size(dir, &path).map(FtpAnswer::Size),
        Ask::Remove { path, what } => {
            match what {
                Removed::File => dir.remove(&path, RemovalKind::File),
                Removed::Directory => dir.remove(&path, RemovalKind::Directory),
                Removed::Tree => remove_tree(dir, &path, entries_max),
            }?;
            Ok(FtpAnswer::Done)
        }
        Ask::MakeDir { path } => dir.mkdir(&path).map(|()| FtpAnswer::Done),
        Ask::Rename { from, to } => dir.rename(&from, &to).map(|()| FtpAnswer::Done),
        Ask::Change { path, change } => {
            let mut set = Set::default();
            match change {
                Change::Mode(mode) => set.mode = Some(mode),
                Change::Modify(time) => set.mtime = Some(time),
                Change::Length(length) => set.length = Some(length),
                Change::Group(_) => {}
            }
            dir.set(&path, &set).map(|()| FtpAnswer::Done)
        }
        Ask::Link { path, target } => {
            let set = Set {
                link_to: Some(target),
                ..Set::default()
            };
            dir.set(&path, &set).map(|()| FtpAnswer::Done)
        }
        Ask::Landed { path, id } => landed(dir, path, id.as_deref()),
        Ask::Leaves { path, id, leaves } => {
            leaves_of(dir, &path, id.as_deref(), leaves).map(FtpAnswer::Leaves)
        }
        Ask::Abandon { path, id } => dir.abandon(&path, id.as_deref()).map(|()| FtpAnswer::Done),
        Ask::Hidden { path } => hidden(dir, &path).map(FtpAnswer::Names),
        Ask::Flush { path } => dir.flush(&path).map(|()| FtpAnswer::Done),
        Ask::Space { path } => {
            let space = dir.space(&path)?;
            Ok(FtpAnswer::Space {
                total_bytes: space.total_bytes,
                free_bytes: space.free_bytes,
            })
        }
        other => unreachable!("{other:?} is not about names"),
    }
}

/// Returns the ranges of an upload that landed, once no session writes it.
///
/// The session of a killed client lives on while bytes are in flight. A client that resumes must not receive a state
/// that still changes: it would begin a second partial. So it waits a little, and is then told to try again.
fn landed(dir: &GuardedExport, path: PathBuf, id: Option<&str>) -> Result<FtpAnswer> {
    let until = Instant::now() + IN_USE_MAX;
    loop {
        match dir.partial(&path, id)? {
            Some(partial) if partial.in_use && Instant::now() < until => sleep(IN_USE_PAUSE),
            Some(partial) if partial.in_use => {
                return Err(Error::busy(
                    String::new(),
                    "another session is writing this upload",
                ));
            }
            Some(partial) => {
                return Ok(FtpAnswer::Landed {
                    size: partial.size,
                    done: partial.done,
                });
            }
            None => return Err(Error::missing(path)),
        }
    }
}

const IN_USE_MAX: Duration = Duration::from_secs(5);
const IN_USE_PAUSE: Duration = Duration::from_millis(20);

/// Returns the length. For a name with only a partial of this user, that is the length of its unbroken beginning: `curl
/// -C -` and `lftp put -c` resume there.
fn size(dir: &GuardedExport, path: &Path) -> Result<u64> {
    match dir.stat(path) {
        Ok(Stat {
            kind: EntryKind::Directory,
            ..
        }) => Err(Error::directory(path)),
        Ok(stat) => Ok(stat.size),
        Err(Error::Missing { .. }) => match dir.partial(path, None)? {
            Some(partial) => Ok(partial.prefix()),
            None => Err(Error::missing(path)),
        },
        Err(error) => Err(error),
    }
}

fn leaves_of(
    dir: &GuardedExport,
    path: &Path,
    id: Option<&str>,
    leaves: Range<u64>,
) -> Result<Vec<(u64, Chain)>> {
    let Some(id) = id else {
        return Ok((leaves.start..).zip(dir.leaves(path, leaves)?).collect());
    };
    match dir.partial(path, Some(id))? {
        Some(partial) => Ok(partial
            .leaves
            .into_iter()
            .filter(|(leaf, _)| leaves.contains(leaf))
            .collect()),
        None => Err(Error::missing(path)),
    }
}

/// Returns unfinished uploads below a directory, of all users, up to a limit.
fn hidden(dir: &GuardedExport, path: &Path) -> Result<Vec<PathBuf>> {
    let below = |found: PathBuf| {
        found
            .strip_prefix(path)
            .map(Path::to_owned)
            .unwrap_or(found)
    };
    let found = dir.hidden(path)?.into_iter().take(HIDDEN_MAX);
    Ok(found.map(below).collect())
}

const HIDDEN_MAX: usize = 100;

/// Removes all that is below, links as links, deepest first.
fn remove_tree(dir: &GuardedExport, root: &Path, entries_max: u64) -> Result<()> {
    if dir.remove(root, RemovalKind::File).is_ok() {
        return Ok(());
    }
    let (mut to_empty, mut to_remove) = (vec![root.to_owned()], Vec::<PathBuf>::new());
    let mut seen = 0;
    while let Some(folder) = to_empty.pop() {
        let mut files = Vec::new();
        dir.list(&folder, &mut |entry| {
            seen += 1;
            if seen > entries_max {
                let what = "removing so many entries at once";
                return Err(Error::unsupported(
                    what,
                    format!("the limit is {entries_max}"),
                ));
            }
            let path = folder.join(&entry.path);
            match entry.stat.kind {
                EntryKind::Directory => to_empty.push(path),
                _ => files.push(path),
            }
            Ok(())
        })?;
        for file in files {
            dir.remove(&file, RemovalKind::File)?;
        }
        to_remove.push(folder);
    }
    // A directory was listed before those below it.
    to_remove
        .iter()
        .rev()
        .try_for_each(|folder| dir.remove(folder, RemovalKind::Directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_by_full_name() {
        let groups = "root:x:0:\nstaffing:x:7:\nstaff:x:50:a,b\nbroken\n";
        assert_eq!(group_in(groups, "staff"), Some(50));
        assert_eq!(group_in(groups, "sta"), None);
        assert_eq!(group_in(groups, "broken"), None);
    }
}
