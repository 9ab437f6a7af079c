//! Finds the files to copy, and decides about each.

use super::{CopyEvent, CopyItem, CopyTask, Copying, OverwriteRule, Place};
use crate::{
    Entry, EntryKind, Error, Nowhere, RemovalKind, Result, SMALL_BYTES, Set, Stat, StoreExt, Walk,
};
use godwit_core::{Algorithm, Extents, Scheme};
use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Finds all files of one task and hands them to the threads that move them.
pub(super) fn find(copying: &Copying<'_>, task: &CopyTask) -> Result<()> {
    // A server that is far tells that it is none when it is asked to list it.
    if task.tree && task.source.is_remote() {
        match find_tree(copying, task) {
            Err(Error::NotDirectory { .. }) => {}
            found => return found,
        }
    }
    let stat = task.source.store.stat(&task.source.path)?;
    match stat.kind {
        EntryKind::Directory if !task.tree => Err(Error::directory(task.source.path.clone())),
        EntryKind::Directory => find_tree(copying, task),
        _ => {
            let there = match task.rule {
                OverwriteRule::Always => None, // replaced in any case
                _ => task.target.store.stat(&task.target.path).ok(),
            };
            offer(
                copying,
                item(task, task.source.clone(), task.target.clone(), stat),
                there,
            )
        }
    }
}

/// Refuses a tree for which the target has no room, if the source is on this machine: there a second walk costs
/// little. An existing target is not checked, since an earlier run may have left a part of the tree there.
fn check_room(copying: &Copying<'_>, task: &CopyTask) -> Result<()> {
    let (source, target) = (&task.source, &task.target);
    let is_there = || !matches!(target.store.stat(&target.path), Err(Error::Missing { .. }));
    if source.is_remote() || is_there() {
        return Ok(());
    }
    let above = target.path.parent().unwrap_or(Path::new(""));
    let Ok(space) = target.store.space(above) else {
        return Ok(());
    };
    let (choice, mut bytes) = (&copying.options.choice, 0u64);
    let mut each = |entry: Entry| {
        copying.options.cancel.check()?;
        if entry.stat.kind == EntryKind::File && choice.has(&entry.path, false) {
            bytes += filled_bytes(source, &entry);
        }
        Ok(())
    };
    // A directory that cannot be listed is reported when it is copied.
    source
        .store
        .walk_readable(&source.path, &mut each, &mut |_, _| Ok(()))?;
    match bytes > space.free_bytes {
        true => Err(Error::no_space(
            target.path.clone(),
            format!(
                "{bytes} bytes are to be copied, {} are free",
                space.free_bytes
            ),
        )),
        false => Ok(()),
    }
}

/// Returns how many bytes of a file are not holes, if the store knows; else its size.
fn filled_bytes(source: &Place, entry: &Entry) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let told = match source.url.scheme() {
        Scheme::File => source.path.join(&entry.path).symlink_metadata().ok(),
        _ => None,
    };
    told.map_or(entry.stat.size, |told| {
        entry.stat.size.min(told.blocks() * 512)
    })
}

fn find_tree(copying: &Copying<'_>, task: &CopyTask) -> Result<()> {
    check_room(copying, task)?;
    let mut finding = TreeListing {
        copying,
        task,
        there: TargetTree::new(task),
        unmade: vec![Unmade {
            target: task.target.clone(),
            path: PathBuf::new(),
            mode: task.mode,
        }],
        behind: Vec::new(),
        unproved: HashMap::new(),
        blocked: HashSet::new(),
        replaced: false,
        usual: None,
        since: Instant::now(),
    };
    let choice = &copying.options.choice;
    let mut each = |entry: Entry| {
        copying.options.cancel.check()?;
        if copying.is_vain(&task.source, &task.target) {
            return Err(Error::Canceled);
        }
        match choice.has(&entry.path, entry.stat.kind == EntryKind::Directory) {
            true => finding.found(entry),
            false => Ok(()),
        }
    };
    let mut hidden = |path: PathBuf| {
        if choice.has(&path, false)
            && let Ok(source) = &task.source.join(&path)
        {
            copying.tell(&CopyEvent::LeftOut { source });
        }
    };
    let Place { store, path, .. } = &task.source;
    // It is no reason to leave out what can be read.
    let mut unread = |path: PathBuf, error| {
        if !choice.has(&path, true) {
            return Ok(());
        }
        copying.failed(&task.source.join(&path)?, &task.target.join(&path)?, error);
        Ok(())
    };
    let (each, hidden, unread) = (&mut each, &mut hidden, &mut unread);
    store.walk_all(
        path,
        &mut Walk {
            each,
            hidden,
            unread,
        },
    )?;
    finding.make()?;
    finding.prove();
    Ok(())
}

/// A tree that is being listed.
///
/// Directories of a remote target are made in batches; entries behind the first of them wait until they exist.
struct TreeListing<'a> {
    copying: &'a Copying<'a>,
    task: &'a CopyTask,
    there: TargetTree<'a>,
    unmade: Vec<Unmade>,
    behind: Vec<Entry>,
    since: Instant,
    /// Targets taken for directories since an entry has their name, by source path. A file copied
    /// into one proves that.
    unproved: HashMap<PathBuf, Place>,
    /// Directories of the source whose names something else has at the target.
    blocked: HashSet<PathBuf>,
    replaced: bool,     // a directory took the name of something else
    usual: Option<u32>, // permission bits that new directories get there
}

/// A directory that is to be at the target.
struct Unmade {
    target: Place,
    path: PathBuf,     // below the root of the task
    mode: Option<u32>, // of the source, if told
}

impl TreeListing<'_> {
    fn found(&mut self, entry: Entry) -> Result<()> {
        if self.unmade.is_empty() {
            self.since = Instant::now();
        }
        if entry.stat.kind == EntryKind::Directory {
            match self.task.target.join(&entry.path) {
                Ok(target) => self.unmade.push(Unmade {
                    target,
                    path: entry.path,
                    mode: entry.stat.mode,
                }),
                Err(error) => self.failed(&entry, error),
            }
        } else {
            self.behind.push(entry);
        }
        let can_wait = self.task.target.is_remote()
            && self.unmade.len() + self.behind.len() < BEHIND_MAX
            && self.since.elapsed() < BEHIND_FOR;
        match can_wait && !self.unmade.is_empty() {
            true => Ok(()),
            false => self.make(),
        }
    }

    /// Makes the directories, and hands on the files that waited for them. Without
    /// the first of all there is nothing to do.
    fn make(&mut self) -> Result<()> {
        let unmade = std::mem::take(&mut self.unmade);
        let paths: Vec<&Path> = unmade.iter().map(|one| &*one.target.path).collect();
        let made = self.task.target.store.mkdir_many(&paths);
        for (one, made) in unmade.iter().zip(made) {
            if self.is_blocked(&one.path) {
                self.copying.given_up();
                continue;
            }
            let made = self
                .is_made(one, made)
                .and_then(|is_new| if is_new { self.dress(one) } else { Ok(()) });
            match made {
                Err(error) if one.path.as_os_str().is_empty() => return Err(error),
                Err(error) => {
                    if let Error::NotDirectory { .. } = error {
                        self.blocked.insert(one.path.clone());
                    }
                    let source = self.task.source.join(&one.path);
                    let source = source.unwrap_or_else(|_| self.task.source.clone());
                    self.copying.failed(&source, &one.target, error);
                }
                Ok(()) => {}
            }
        }
        let behind = std::mem::take(&mut self.behind);
        let unmade = unmade.iter().map(|one| &one.path);
        for path in unmade.chain(behind.iter().map(|entry| &entry.path)) {
            path.parent().map(|parent| self.unproved.remove(parent));
        }
        if self.unproved.len() > UNPROVED_MAX {
            self.prove();
        }
        for entry in behind {
            if self.is_blocked(&entry.path) {
                self.copying.given_up();
                continue;
            }
            if let Err(error) = offer_entry(self.copying, self.task, &entry, &mut self.there) {
                self.failed(&entry, error);
            }
        }
        Ok(())
    }

    /// Checks the unproved directories that received no file.
    fn prove(&mut self) {
        for (path, target) in std::mem::take(&mut self.unproved) {
            let error = match target.store.stat(&target.path) {
                Ok(stat) if stat.kind == EntryKind::Directory => continue,
                Ok(_) => Error::not_directory(target.path.clone()),
                Err(error) => error,
            };
            let source = self.task.source.join(&path);
            let source = source.unwrap_or_else(|_| self.task.source.clone());
            self.copying.failed(&source, &target, error);
        }
    }

    /// Tells whether a directory exists and is new, from the result of `mkdir`.
    fn is_made(&mut self, one: &Unmade, made: Result<()>) -> Result<bool> {
        let target = &one.target;
        let is_directory = || {
            let stat = target.store.stat(&target.path);
            stat.is_ok_and(|stat| stat.kind == EntryKind::Directory)
        };
        match made {
            Ok(()) => {}
            Err(Error::Exists { .. }) => match self.there.stat(&one.path)?.map(|stat| stat.kind) {
                Some(EntryKind::Directory) => return Ok(false),
                None => {
                    self.unproved.insert(one.path.clone(), target.clone());
                    return Ok(false);
                }
                Some(EntryKind::Link) if is_directory() => return Ok(false),
                Some(_) if !self.task.delete => {
                    return Err(Error::not_directory(target.path.clone()));
                }
                Some(_) => {
                    remove(self.copying, target, EntryKind::File)?;
                    target.store.mkdir(&target.path)?;
                    self.replaced = true;
                }
            },
            // It was asked for when something else stood above it.
            Err(_) if self.replaced => target.store.mkdir(&target.path)?,
            // Some servers do not say why; some refuse the root itself.
            Err(_) if is_directory() => return Ok(false),
            Err(error) => return Err(error),
        }
        self.copying.tell(&CopyEvent::Directory { target });
        self.copying.summary().directories += 1;
        Ok(true)
    }

    /// Gives a new directory the permission bits of its source: at once what keeps
    /// others out, at the end what would keep us out or only lets others in.
    fn dress(&mut self, one: &Unmade) -> Result<()> {
        let target = &one.target;
        let Some(mode) = self.copying.options.mode(one.mode) else {
            return Ok(());
        };
        // What servers give anyhow is not worth a round trip.
        if mode == USUAL_FAR && target.is_remote() {
            return Ok(());
        }
        let usual = match self.usual {
            Some(usual) => usual,
            None => match target.store.stat(&target.path)?.mode {
                Some(usual) => *self.usual.insert(usual),
                None => return Ok(()), // the target has no modes
            },
        };
        let mode = mode | usual & SET_GROUP_ID;
        if usual & !mode & OTHERS != 0 {
            set_mode(target, mode | OWNER)?;
        }
        if mode & OWNER != OWNER || mode & !usual != 0 {
            self.copying.undressed().push((target.clone(), mode));
        }
        Ok(())
    }

    fn failed(&self, entry: &Entry, error: Error) {
        let place = self.task.source.join(&entry.path);
        let place = place.unwrap_or_else(|_| self.task.source.clone());
        let target = self.task.target.join(&entry.path);
        let target = target.unwrap_or_else(|_| self.task.target.clone());
        self.copying.failed(&place, &target, error);
    }

    /// Tells whether a file is in the place of this entry's directory; that was reported.
    fn is_blocked(&self, path: &Path) -> bool {
        let mut above = path.ancestors().skip(1);
        !self.blocked.is_empty() && above.any(|above| self.blocked.contains(above))
    }
}

fn offer_entry(
    copying: &Copying<'_>,
    task: &CopyTask,
    entry: &Entry,
    there: &mut TargetTree<'_>,
) -> Result<()> {
    let (source, target) = (
        task.source.join(&entry.path)?,
        task.target.join(&entry.path)?,
    );
    match entry.stat.kind {
        EntryKind::Directory => Ok(()), // made already
        EntryKind::File => {
            let from = (&source, entry.stat.size);
            let there = cleared(copying, task, from, &target, there.stat(&entry.path)?)?;
            offer(
                copying,
                item(task, source, target, entry.stat.clone()),
                there,
            )
        }
        EntryKind::Link => {
            // The target of a link is copied, as `cp` and all FTP clients do. A link to a directory could lead in
            // circles, and is skipped.
            let stat = source.store.stat(&source.path)?;
            if stat.kind == EntryKind::File {
                let from = (&source, stat.size);
                let there = cleared(copying, task, from, &target, there.stat(&entry.path)?)?;
                return offer(copying, item(task, source, target, stat), there);
            }
            let why = "a link to a directory is not followed";
            Err(Error::unsupported(
                format!("copying {}", source.path.display()),
                why,
            ))
        }
        EntryKind::Other => Err(Error::unsupported(
            format!("copying {}", source.path.display()),
            "it is neither a file nor a directory",
        )),
    }
}

fn item(task: &CopyTask, source: Place, target: Place, stat: Stat) -> CopyItem {
    CopyItem {
        source,
        target,
        stat,
        range: task.range.clone(),
        rule: task.rule,
        tries: 0,
    }
}

/// Gives new directories the bits that had to wait until all is in them.
pub(super) fn dress(copying: &Copying<'_>) {
    // Directories are in the list before those within them, so the last ones come first.
    while let Some((target, mode)) = { copying.undressed().pop() } {
        if let Err(error) = set_mode(&target, mode) {
            copying.failed(&target, &target, error);
        }
    }
}

/// A server that cannot is no reason to fail.
fn set_mode(target: &Place, mode: u32) -> Result<()> {
    let set = Set::of_mode(mode);
    match target.store.set(&target.path, &set) {
        Err(_) if target.is_remote() => Ok(()),
        done => done,
    }
}

/// Makes the name free for a file, where a directory has it.
fn cleared(
    copying: &Copying<'_>,
    task: &CopyTask,
    (source, size): (&Place, u64),
    target: &Place,
    there: Option<Stat>,
) -> Result<Option<Stat>> {
    let kind = there.as_ref().map(|there| there.kind);
    if kind != Some(EntryKind::Directory)
        || !matches!(
            task.rule,
            OverwriteRule::Update | OverwriteRule::UpdateByDigest
        )
    {
        return Ok(there);
    }
    if !task.delete {
        return Err(Error::directory(target.path.clone()));
    }
    // A file is removed only if its replacement can be read.
    source.store.read(
        &source.path,
        &Extents::from(0..u64::from(size > 0)),
        1,
        &Nowhere,
    )?;
    let mut below = Vec::new();
    let (choice, root) = (&copying.options.choice, &task.target.path);
    let at = target.path.strip_prefix(root).unwrap_or(Path::new(""));
    target.store.walk(&target.path, &mut |entry| {
        // A name outside the choice is not removed.
        if !choice.has(
            &at.join(&entry.path),
            entry.stat.kind == EntryKind::Directory,
        ) {
            return Err(Error::not_empty(target.path.clone()));
        }
        below.push((entry.path, entry.stat.kind));
        Ok(())
    })?;
    below.sort_by(|a, b| b.0.cmp(&a.0));
    for (path, kind) in below {
        remove(copying, &target.join(&path)?, kind)?;
    }
    remove(copying, target, EntryKind::Directory)?;
    Ok(None)
}

/// Queues a file, unless the rule says that it stays.
fn offer(copying: &Copying<'_>, item: CopyItem, there: Option<Stat>) -> Result<()> {
    refuse_beyond(&item)?;
    copying.tell(&CopyEvent::Found {
        files: 1,
        bytes: wanted_bytes(&item),
        complete: false,
    });
    let stays = match (item.rule, &there) {
        (OverwriteRule::Always, _) | (_, None) => false,
        (OverwriteRule::NoClobber, Some(_)) => true,
        (OverwriteRule::Update, Some(there)) => looks_same(&item.stat, there),
        (OverwriteRule::UpdateByDigest, Some(there)) => {
            item.stat.size == there.size && same_digest(&item.source, &item.target)?
        }
    };
    if stays {
        copying.skipped(&item);
        return Ok(());
    }
    // Between two servers nothing is small: no byte may come through us. Small files with names go in packs, which costs
    // far less than an intent for each of them.
    let has_name = |place: &Place| place.url.scheme() == Scheme::Grid;
    let direct = item.source.is_remote()
        && item.target.is_remote()
        && !(has_name(&item.source) && has_name(&item.target));
    let is_file = item.source.passage().or(item.target.passage()).is_none();
    let small = item.stat.size <= SMALL_BYTES && item.range.is_none() && !direct && is_file;
    let queue = if small {
        &copying.small
    } else {
        &copying.large
    };
    queue.put(item);
    Ok(())
}

/// Refuses a range that begins behind the end of the file.
fn refuse_beyond(item: &CopyItem) -> Result<()> {
    let size = item.stat.size;
    match &item.range {
        Some(range) if range.start > size => Err(Error::bad_name(
            item.source.path.clone(),
            format!("ends at byte {size}, before byte {}", range.start),
        )),
        _ => Ok(()),
    }
}

/// Returns how many bytes of the file are asked for, as far as its length is known.
fn wanted_bytes(item: &CopyItem) -> u64 {
    let Some(size) = item.stat.known_size() else {
        return 0;
    };
    item.range.as_ref().map_or(size, |range| {
        range.end.min(size).saturating_sub(range.start)
    })
}

fn looks_same(source: &Stat, there: &Stat) -> bool {
    source.size == there.size && source.is_of_time(there)
}

fn same_digest(source: &Place, target: &Place) -> Result<bool> {
    let (ours, theirs) = (source.store.can()?.digests, target.store.can()?.digests);
    let strongest = [
        Algorithm::Blake3,
        Algorithm::Sha256,
        Algorithm::Md5,
        Algorithm::Adler32,
    ];
    let Some(by) = strongest
        .into_iter()
        .find(|by| ours.contains(by) && theirs.contains(by))
    else {
        return Err(Error::unsupported(
            "comparing digests",
            format!("{source} and {target} know no common algorithm"),
        ));
    };
    let digest = |place: &Place| place.store.digest(&place.path, by, None);
    Ok(digest(source)? == digest(target)?)
}

/// The existing entries of the target tree. They are listed one directory at a time: memory does not grow with the
/// tree, and there is no request per file.
struct TargetTree<'a> {
    task: &'a CopyTask,
    listed: Vec<(PathBuf, HashMap<OsString, Stat>)>,
}

impl<'a> TargetTree<'a> {
    fn new(task: &'a CopyTask) -> Self {
        Self {
            task,
            listed: Vec::new(),
        }
    }

    fn stat(&mut self, path: &Path) -> Result<Option<Stat>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        if self.task.rule == OverwriteRule::Always {
            return Ok(None); // replaced in any case
        }
        if let Some((_, names)) = self
            .listed
            .iter()
            .find(|(directory, _)| directory == parent)
        {
            return Ok(names.get(name).cloned());
        }
        let mut names = HashMap::new();
        let target = &self.task.target;
        target.store.list(&target.path.join(parent), &mut |entry| {
            names.insert(entry.path.into_os_string(), entry.stat);
            Ok(())
        })?;
        let stat = names.get(name).cloned();
        if self.listed.len() == LISTED_MAX {
            self.listed.remove(0);
        }
        self.listed.push((parent.into(), names));
        Ok(stat)
    }
}

/// Removes files that the sources do not have, if the task asks for it and no file failed.
pub(super) fn delete(copying: &Copying<'_>, tasks: &[CopyTask]) {
    for task in tasks.iter().filter(|task| task.delete) {
        if copying.summary().failed > 0 {
            copying.summary().not_deleted = true;
            return; // a source that could not be read whole says nothing about what is gone
        }
        if let Err(error) = delete_tree(copying, task) {
            copying.failed(&task.source, &task.target, error);
        }
    }
}

fn delete_tree(copying: &Copying<'_>, task: &CopyTask) -> Result<()> {
    let extra = extra(&task.source, &task.target)?;
    let (choice, mut kept) = (&copying.options.choice, HashSet::new());
    for (path, kind) in &extra {
        if !choice.has(path, *kind == EntryKind::Directory) {
            kept.extend(path.ancestors());
        }
    }
    for (path, kind) in extra.iter().filter(|(path, _)| !kept.contains(&**path)) {
        remove(copying, &task.target.join(path)?, *kind)?;
    }
    Ok(())
}

/// Removes one thing from a target, and says so.
fn remove(copying: &Copying<'_>, target: &Place, kind: EntryKind) -> Result<()> {
    let what = match kind {
        EntryKind::Directory => RemovalKind::Directory,
        _ => RemovalKind::File,
    };
    target.store.remove(&target.path, what)?;
    copying.tell(&CopyEvent::Removed { target });
    copying.summary().removed += 1;
    Ok(())
}

/// Returns the names below `target` that are not below `source`, deepest first.
pub fn extra(source: &Place, target: &Place) -> Result<Vec<(PathBuf, EntryKind)>> {
    let mut known = HashSet::new();
    source.store.walk(&source.path, &mut |entry| {
        known.insert(entry.path);
        Ok(())
    })?;
    let mut extra = Vec::new();
    target.store.walk(&target.path, &mut |entry| {
        if !known.contains(&entry.path) {
            extra.push((entry.path, entry.stat.kind));
        }
        Ok(())
    })?;
    extra.sort_by(|a, b| b.0.cmp(&a.0));
    Ok(extra)
}

/// The bits that new directories get at servers, as nearly all are set up.
const USUAL_FAR: u32 = 0o755;
/// How much is found before directories are made, and how long that may take.
const BEHIND_MAX: usize = 1024;
const BEHIND_FOR: Duration = Duration::from_millis(100);
/// How many directories stay unproved before one is checked.
const UNPROVED_MAX: usize = 4096;
/// Directories of the target whose listings are kept.
const LISTED_MAX: usize = 64;
/// Permission bits of the owner, of all others, and what files get the group by.
const OWNER: u32 = 0o700;
const OTHERS: u32 = 0o077;
const SET_GROUP_ID: u32 = 0o2000;
