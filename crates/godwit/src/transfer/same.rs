//! Trees that overlap under different names, as far as their servers tell.
//!
//! A second name of a host, a local path and the node that exports it, two nodes on
//! one directory: no comparison of names finds these out.

use crate::places::Place;
use godwit_store::{Entry, EntryKind, Error, Stat, StoreExt};
use std::path::Path;

/// Returns how the trees overlap; `None` also if their servers do not tell.
///
/// All of the source is given to `each`.
pub(crate) fn overlap(
    source: &Place,
    target: &Place,
    each: &mut dyn FnMut(Entry),
) -> Result<Option<&'static str>, Error> {
    let above_source = upward(source, &source.path);
    let above_target = upward(target, &target.path);
    // For a missing entry, this is the directory that it will be in.
    let (from, to) = (above_source.first(), above_target.first());
    let is_there = target.store.stat(&target.path).is_ok();
    let holds = |ids: &[Stat], one: Option<&Stat>| {
        one.is_some_and(|one| ids.iter().any(|other| is_same(other, one)))
    };
    let mut in_source = holds(&above_target, from);
    source.store.walk(&source.path, &mut |entry| {
        in_source |= to.is_some_and(|to| is_same(to, &entry.stat));
        each(entry);
        Ok(())
    })?;
    if let (Some(from), Some(to)) = (from, to)
        && is_there
        && is_same(from, to)
    {
        return Ok(Some("they are the same directory"));
    }
    if in_source {
        return Ok(Some("the target is inside the source"));
    }
    let mut in_target = is_there && holds(&above_source, to);
    if let Some(from) = from
        && is_there
        && !in_target
    {
        // A tree that cannot be listed is not removed either.
        let _ = target.store.walk(&target.path, &mut |entry| {
            in_target |= is_same(from, &entry.stat);
            Ok(())
        });
    }
    Ok(in_target.then_some("the source is inside the target"))
}

/// Returns the directory `path` and those above it, as far as they can be seen.
fn upward(place: &Place, path: &Path) -> Vec<Stat> {
    let stats = path.ancestors().map(|path| place.store.stat(path));
    stats.filter_map(Result::ok).collect()
}

/// Numbers of devices and files are told by each machine for itself, and the root of
/// a file system has the same on most: so the time of change must agree as well.
fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.kind, b.kind) == (EntryKind::Directory, EntryKind::Directory)
        && a.unique.is_some()
        && a.unique == b.unique
        && a.mtime.is_some()
        && a.is_of_time(b)
}
