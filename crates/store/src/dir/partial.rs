//! Uploads that are not published: their names, locks and records.
//!
//! A partial lies beside its target under a name made of (identity, path, id).
//! A process that holds the lock of a partial owns it, and only the owner renames or removes it. The lock ends with
//! the process, so another process can take over after a crash.

use super::{
    DirInner,
    ledger::{LEDGER, is_orphan},
    now,
    place::FilePlace,
    record::{FoundRecord, LeafSlot, PartialRecord, RecordHeader, keepable},
    was::NOTE,
    wrong,
};
use crate::{Error, LocalFile, Origin, Result, Write, error::gone, store::same_origin};
use godwit_core::{
    Algorithm, Block, Chain, Digest, Extents, LEAF_BYTES, Leaves, Piece, hex, leaf_range,
};
use godwit_sys::{self as sys, Folder, OpenMode};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// A kept upload, as its owner may see it.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The ranges that need not be sent again.
    pub done: Extents,
    /// The length that was announced.
    pub size: Option<u64>,
    /// The source of the copy, and its version.
    pub origin: Option<Origin>,
    /// When it was last written to, since the epoch.
    pub mtime: Duration,
    /// The values of its whole leaves.
    pub leaves: Vec<(u64, Chain)>,
    /// Whether a process is writing the partial now.
    pub in_use: bool,
}

impl Partial {
    /// Returns how many bytes from the beginning have landed without a gap. `SIZE` returns that to a client that can
    /// resume only at the end.
    pub fn prefix(&self) -> u64 {
        self.done.prefix()
    }
}

/// A partial that is locked by us.
#[derive(Debug)]
pub(super) struct LockedPartial {
    pub(super) file: File,
    pub(super) name: PartialName,
    pub(super) inode: u64,
    pub(super) key: PartialKey,
    /// The state that an earlier process left; `None`: the file is new, and empty.
    pub(super) left: Option<LeftState>,
}

/// The state that an earlier process left, verified.
#[derive(Debug)]
pub(super) struct LeftState {
    pub(super) record: PartialRecord,
    pub(super) slots: Vec<(u64, LeafSlot)>,
    /// The first epoch that is unused.
    pub(super) epoch: u64,
    pub(super) reread_bytes: u64,
}

/// Identity, path and id, hashed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PartialKey(pub(super) [u8; 32]);

impl PartialKey {
    pub(super) fn of(identity: &str, path: &Path, id: Option<&str>) -> Self {
        let mut text = Vec::new();
        let parts: Vec<&[u8]> = path
            .components()
            .map(|c| c.as_os_str().as_bytes())
            .collect();
        for part in [
            identity.as_bytes(),
            &parts.join(&b'/'),
            id.unwrap_or("").as_bytes(),
        ] {
            text.extend_from_slice(&(part.len() as u64).to_le_bytes());
            text.extend_from_slice(part);
        }
        text.push(id.is_some().into());
        let digest = Digest::of(Algorithm::Blake3, &text);
        Self(digest.value().try_into().expect("BLAKE3 has 32 bytes"))
    }

    /// Returns the names of the `n`th partial of this key: a partial in use is
    /// never shared, so a second writer gets the next.
    fn name(&self, n: u32) -> PartialName {
        let hash = hex(&self.0[..12]);
        let number = if n == 0 {
            String::new()
        } else {
            format!(".{n}")
        };
        let of = |end: &str| OsString::from(format!("{PREFIX}{hash}{number}{end}"));
        PartialName {
            part: of(PART),
            record: of(RECORD),
        }
    }
}

/// The names of a partial and of its record.
#[derive(Clone, Debug)]
pub(super) struct PartialName {
    pub(super) part: OsString,
    pub(super) record: OsString,
}

/// Tells whether a name is that of a ledger of appends.
fn is_ledger(name: &OsStr) -> bool {
    is_reserved(name) && name.as_bytes().ends_with(LEDGER.as_bytes())
}

/// Tells whether a name is that of a note of a publication.
fn is_note(name: &OsStr) -> bool {
    is_reserved(name) && name.as_bytes().ends_with(NOTE.as_bytes())
}

/// Tells whether a name is kept for something that belongs to a file which is there.
pub(super) fn is_beside(name: &OsStr) -> bool {
    is_ledger(name) || is_note(name)
}

/// Tells whether a name is exactly one of a partial, a record, a ledger or a note. A user's file that only looks
/// similar is the user's.
pub(super) fn is_reserved(name: &OsStr) -> bool {
    let Some(rest) = name.as_bytes().strip_prefix(PREFIX.as_bytes()) else {
        return false;
    };
    let ends = [PART, RECORD, LEDGER, NOTE].map(str::as_bytes);
    let Some(stem) = ends.iter().find_map(|end| rest.strip_suffix(*end)) else {
        return false;
    };
    let Some((hash, tail)) = stem.split_at_checked(HASH_DIGITS) else {
        return false;
    };
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    hash.iter().all(u8::is_ascii_hexdigit)
        && (tail.is_empty() || tail == b"s" || tail.strip_prefix(b".").is_some_and(is_number))
}

/// Returns a name for a file that is written at once and never resumed.
pub(super) fn passing_name() -> OsString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    let nonce = nonce();
    format!("{PREFIX}{nonce:016x}{n:08x}s{PART}").into()
}

/// Two processes, also of two machines on one file system, differ in this.
fn nonce() -> u64 {
    use std::{
        hash::{BuildHasher, RandomState},
        sync::OnceLock,
    };
    static NONCE: OnceLock<u64> = OnceLock::new();
    *NONCE.get_or_init(|| RandomState::new().hash_one((std::process::id(), now())))
}

impl DirInner {
    /// Takes the partial of this upload: the one a predecessor left if it fits,
    /// else a new one.
    pub(super) fn hold(
        &self,
        path: &Path,
        place: &FilePlace,
        write: &Write<'_>,
    ) -> io::Result<LockedPartial> {
        let key = PartialKey::of(&self.identity, path, write.id);
        let patience = Instant::now() + ATTEMPT_PATIENCE;
        for n in 0..WRITERS_MAX {
            let name = key.name(n);
            let lock = || self.lock(&place.folder, &name.part, write.mode);
            let mut locked = lock()?;
            // The attempt before this one has let it go; but a program that was just being started
            // has all that is open here until it begins.
            while locked.is_none() && write.attempt > 0 && Instant::now() < patience {
                thread::sleep(Duration::from_millis(5));
                locked = lock()?;
            }
            let Some((file, meta)) = locked else {
                if write.attempt > 0 {
                    // A partial in use by another process cannot be taken over.
                    let busy = "the upload is in use, by a writer that does not count attempts or by another process";
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, busy));
                }
                continue;
            };
            let mut held = LockedPartial {
                file,
                name,
                inode: meta.inode,
                key,
                left: None,
            };
            if meta.size > 0 && write.resume {
                held.left = self.left_by_predecessor(path, place, write, &held, &meta)?;
            }
            if held.left.is_none() {
                // The record first: it must never describe bytes of a later upload.
                gone(place.folder.remove_file(&held.name.record))?;
                if meta.size > 0 {
                    held.file.set_len(0)?;
                }
            }
            return Ok(held);
        }
        Err(io::Error::other(format!(
            "{WRITERS_MAX} others are writing this file"
        )))
    }

    /// Opens or makes a partial and locks it; `None` if it is in use.
    fn lock(
        &self,
        folder: &Folder,
        name: &OsStr,
        mode: Option<u32>,
    ) -> io::Result<Option<(File, sys::Meta)>> {
        // We must be able to open it again, whatever mode it will have at the end.
        let mode = mode.unwrap_or(0o666) & 0o777 | 0o600;
        for _ in 0..RACES_MAX {
            let file = folder.open(name, OpenMode::Create, mode)?;
            if !patient_lock(&file)? {
                return Ok(None);
            }
            // Its owner may have published or removed it before we got the lock.
            let meta = sys::meta(&file)?;
            if meta.kind != sys::FileKind::File {
                return Err(io::Error::other(
                    "the name of the partial is taken by something else",
                ));
            }
            match folder.meta(name) {
                Ok(named) if (named.device, named.inode) == (meta.device, meta.inode) => {
                    return Ok(Some((file, meta)));
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    fn left_by_predecessor(
        &self,
        path: &Path,
        place: &FilePlace,
        write: &Write<'_>,
        held: &LockedPartial,
        part: &sys::Meta,
    ) -> io::Result<Option<LeftState>> {
        let record = match place.folder.open(&held.name.record, OpenMode::Change, 0) {
            Ok(record) => record,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let Some(found) = FoundRecord::read(&record)? else {
            return Ok(None);
        };
        if !is_of(&found.header, held.inode, held.key) || !fits(&found.header, write) {
            return Ok(None);
        }
        let epoch = found
            .slots
            .iter()
            .map(|(_, s)| s.epoch)
            .max()
            .unwrap_or(0)
            .max(found.synced)
            + 1;
        let changed = is_changed(part, &sys::meta(&record)?);
        let record = PartialRecord::go_on(record, &found);
        let (mut slots, mut lost, mut verified) = (Vec::new(), Vec::new(), Vec::new());
        let mut reread_bytes = 0;
        for (leaf, slot) in found.slots {
            if leaf_range(leaf).start >= part.size
                || slot.in_file(leaf).last().is_some_and(|r| r.end > part.size)
            {
                lost.push(leaf);
                continue;
            }
            if !changed && (slot.boot == sys::boot_id() || slot.epoch <= found.synced) {
                slots.push((leaf, slot));
                continue;
            }
            // The slot may claim bytes that a power cut kept from the disk, or that another program has overwritten
            // since.
            reread_bytes += slot
                .ranges
                .iter()
                .map(|r| u64::from(r.end - r.start))
                .sum::<u64>();
            if slot.chain.is_some()
                && slot.chain == chain_on_disk(path, &held.file, leaf, &slot).ok().flatten()
            {
                let slot = LeafSlot {
                    boot: sys::boot_id(),
                    epoch,
                    ..slot
                };
                verified.push((leaf, slot));
            } else {
                lost.push(leaf);
            }
        }
        // Lost leaves are written to the record before the others and after all reads. The write makes the record
        // younger than the partial, and the next process must not trust lost leaves.
        for leaf in lost {
            let nothing = LeafSlot {
                boot: sys::boot_id(),
                epoch,
                ..LeafSlot::default()
            };
            record.write(leaf, &nothing)?;
        }
        for (leaf, slot) in &verified {
            record.write(*leaf, slot)?;
        }
        slots.extend(verified);
        Ok(Some(LeftState {
            record,
            slots,
            epoch,
            reread_bytes,
        }))
    }

    /// Finds the kept upload of this identity: the one that is not in use, if any.
    pub(super) fn partial(&self, path: &Path, id: Option<&str>) -> Result<Option<Partial>> {
        let place = self.place_of_file(path)?;
        let key = PartialKey::of(&self.identity, path, id);
        let mut busy = None;
        for n in 0..WRITERS_MAX {
            let name = key.name(n);
            let seen = self
                .look(&place.folder, &name, key)
                .map_err(|e| wrong(path, e))?;
            match seen {
                SeenPartial::Nothing => break,
                SeenPartial::Void => {}
                SeenPartial::Some(partial) if partial.in_use => busy = busy.or(Some(partial)),
                SeenPartial::Some(partial) => return Ok(Some(partial)),
            }
        }
        Ok(busy)
    }

    /// Looks at a partial without taking it.
    fn look(
        &self,
        folder: &Folder,
        name: &PartialName,
        key: PartialKey,
    ) -> io::Result<SeenPartial> {
        let part = match folder.open(&name.part, OpenMode::Read, 0) {
            Ok(part) => part,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(SeenPartial::Nothing),
            Err(e) => return Err(e),
        };
        let meta = sys::meta(&part)?;
        let record = match folder.open(&name.record, OpenMode::Read, 0) {
            Ok(record) => record,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(SeenPartial::Void),
            Err(e) => return Err(e),
        };
        let Some(found) = FoundRecord::read(&record)? else {
            return Ok(SeenPartial::Void);
        };
        if !is_of(&found.header, meta.inode, key) {
            return Ok(SeenPartial::Void);
        }
        let changed = is_changed(&meta, &sys::meta(&record)?);
        let (mut done, mut leaves) = (Extents::new(), Vec::new());
        for (leaf, slot) in found.slots {
            let holds = slot.boot == sys::boot_id() || slot.epoch <= found.synced;
            let trusted = holds && !changed || slot.chain.is_some();
            let ranges = slot.in_file(leaf);
            if trusted && ranges.iter().all(|r| r.end <= meta.size) {
                ranges.into_iter().for_each(|r| done.insert(r));
                leaves.extend(slot.chain.map(|chain| (leaf, chain)));
            }
        }
        Ok(SeenPartial::Some(Partial {
            done,
            size: found.header.size,
            origin: found.header.origin,
            mtime: meta.mtime,
            leaves,
            // The lock we may get here ends with `part`, at once.
            in_use: !sys::try_lock(&part)?,
        }))
    }

    pub(super) fn abandon(&self, path: &Path, id: Option<&str>) -> Result<()> {
        let place = self.place_of_file(path)?;
        let key = PartialKey::of(&self.identity, path, id);
        let (mut removed, mut busy) = (false, false);
        for n in 0..WRITERS_MAX {
            match self.remove_partial(&place.folder, &key.name(n), Duration::ZERO) {
                Ok(RemoveOutcome::Nothing) => break,
                Ok(RemoveOutcome::InUse) => busy = true,
                Ok(RemoveOutcome::Gone) => removed = true,
                Err(e) => return Err(wrong(path, e)),
            }
        }
        match (removed, busy) {
            (true, _) => Ok(()),
            (false, true) => Err(Error::denied(path, "the upload is in use")),
            (false, false) => Err(Error::missing(path)),
        }
    }

    fn remove_partial(
        &self,
        folder: &Folder,
        name: &PartialName,
        age: Duration,
    ) -> io::Result<RemoveOutcome> {
        let part = match folder.open(&name.part, OpenMode::Read, 0) {
            Ok(part) => part,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(RemoveOutcome::Nothing),
            Err(e) => return Err(e),
        };
        let young = now().saturating_sub(sys::meta(&part)?.mtime) < age;
        if young || !sys::try_lock(&part)? {
            return Ok(RemoveOutcome::InUse);
        }
        gone(folder.remove_file(&name.record))?;
        gone(folder.remove_file(&name.part))?;
        Ok(RemoveOutcome::Gone)
    }

    /// Finds all names of partials, in the whole tree below.
    pub(super) fn hidden(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        self.each_below(path, &mut Err, &mut |path, _, name| {
            if is_reserved(name) && !is_beside(name) {
                found.push(path.join(name));
            }
        })?;
        Ok(found)
    }

    /// Removes all partials that are unused for `age`, in the whole tree below.
    pub(super) fn sweep(&self, path: &Path, age: Duration) -> Result<u64> {
        let mut removed = 0;
        let mut pass_by = |error| {
            tracing::debug!(%error, "not swept");
            Ok(())
        };
        self.each_below(path, &mut pass_by, &mut |_, folder, name| {
            if is_reserved(name) {
                removed += u64::from(self.sweep_one(folder, name, age));
            }
        })?;
        if let Some(notes) = &self.notes {
            for (name, _) in notes.names().into_iter().flatten().flatten() {
                removed += u64::from(is_note(&name) && self.sweep_one(notes, &name, age));
            }
        }
        Ok(removed)
    }

    /// Removes old notes and abandoned uploads in the directory of a file, once a day. A name that cannot be removed
    /// stays.
    pub(super) fn tidy(&self, folder: &Folder, path: &Path) {
        let Some(tidied) = &self.tidied else {
            return;
        };
        let (above, now) = (path.parent().unwrap_or(path), Instant::now());
        let mut tidied = tidied.lock();
        if (tidied.get(above)).is_some_and(|at| now.duration_since(*at) < NOTES_STAY) {
            return;
        }
        if tidied.len() >= TIDIED_MAX {
            tidied.clear();
        }
        tidied.insert(above.to_owned(), now);
        drop(tidied);
        let names = folder.names().into_iter().flatten().flatten();
        for (name, _) in names.filter(|(name, _)| is_reserved(name)) {
            let age = match is_note(&name) {
                true => NOTES_STAY,
                false => PARTIALS_STAY,
            };
            self.sweep_one(folder, &name, age);
        }
    }

    /// Calls `each` for all names in the whole tree below, and `closed` for a directory that cannot be read. An error
    /// of `closed` ends the walk.
    fn each_below(
        &self,
        path: &Path,
        closed: &mut dyn FnMut(Error) -> Result<()>,
        each: &mut dyn FnMut(&Path, &Folder, &OsStr),
    ) -> Result<()> {
        let mut left = vec![path.to_owned()];
        while let Some(path) = left.pop() {
            let Ok(folder) = self.root.folder(&path) else {
                continue;
            };
            let names = match folder.names() {
                Ok(names) => names,
                Err(e) => {
                    closed(wrong(&path, e))?;
                    continue;
                }
            };
            for found in names {
                let (name, kind) = match found {
                    Ok(found) => found,
                    Err(e) => {
                        closed(wrong(&path, e))?;
                        break;
                    }
                };
                let is_folder = kind == sys::FileKind::Directory
                    || kind == sys::FileKind::Unknown
                        && folder
                            .meta(&name)
                            .is_ok_and(|m| m.kind == sys::FileKind::Directory);
                each(&path, &folder, &name);
                if is_folder && !is_reserved(&name) {
                    left.push(path.join(name));
                }
            }
        }
        Ok(())
    }

    /// A name that cannot be removed stays for the next sweep.
    fn sweep_one(&self, folder: &Folder, name: &OsStr, age: Duration) -> bool {
        if is_ledger(name) {
            return is_orphan(folder, name, age) && folder.remove_file(name).is_ok();
        }
        let is_old = || {
            let meta = folder.meta(name);
            meta.is_ok_and(|m| now().saturating_sub(m.mtime) >= age)
        };
        if is_note(name) {
            return is_old() && folder.remove_file(name).is_ok();
        }
        let Some(stem) = name.as_bytes().strip_suffix(RECORD.as_bytes()) else {
            let stem = &name.as_bytes()[..name.len() - PART.len()];
            let name = PartialName {
                part: name.into(),
                record: join(stem, RECORD),
            };
            return matches!(
                self.remove_partial(folder, &name, age),
                Ok(RemoveOutcome::Gone)
            );
        };
        // A record whose partial was published just before a crash.
        let orphan = folder
            .meta(&join(stem, PART))
            .is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        orphan && is_old() && folder.remove_file(name).is_ok()
    }

    /// Removes the partials in a directory that is to be removed, unless they are in use.
    pub(super) fn remove_orphans(&self, path: &Path) -> Result<()> {
        let folder = self.root.folder(path).map_err(|e| wrong(path, e))?;
        let names: io::Result<Vec<_>> = folder.names().and_then(Iterator::collect);
        let names = names.map_err(|e| wrong(path, e))?;
        if names.iter().all(|(name, _)| is_reserved(name)) {
            for (name, _) in names {
                self.sweep_one(&folder, &name, Duration::ZERO);
            }
        }
        Ok(())
    }

    /// Begins a record for a new partial of this process.
    pub(super) fn begin_record(
        &self,
        place: &FilePlace,
        held: &LockedPartial,
        header: &RecordHeader,
    ) -> io::Result<PartialRecord> {
        gone(place.folder.remove_file(&held.name.record))?;
        let file = place
            .folder
            .open(&held.name.record, OpenMode::CreateNew, 0o600)?;
        crate::crash::point("dir.record-made");
        PartialRecord::begin(file, header)
    }
}

/// A process that only checks whether a partial is in use holds the lock for an instant.
fn patient_lock(file: &File) -> io::Result<bool> {
    for _ in 0..LOOKERS_MAX {
        if sys::try_lock(file)? {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

enum SeenPartial {
    Nothing,
    /// A partial without a valid record.
    Void,
    Some(Partial),
}

enum RemoveOutcome {
    Nothing,
    InUse,
    Gone,
}

fn join(stem: &[u8], end: &str) -> OsString {
    OsStr::from_bytes(&[stem, end.as_bytes()].concat()).to_owned()
}

fn is_of(header: &RecordHeader, inode: u64, key: PartialKey) -> bool {
    header.inode == inode && header.key == key.0
}

/// Tells whether another program wrote to a partial after its record. This one writes the bytes first, and their slot
/// at once.
fn is_changed(part: &sys::Meta, record: &sys::Meta) -> bool {
    part.mtime > record.mtime + BYTES_TO_SLOT
}

fn fits(header: &RecordHeader, write: &Write<'_>) -> bool {
    let size = header.size.is_none() || write.size.is_none() || header.size == write.size;
    size && same_origin(header.origin.as_ref(), write.origin.map(keepable).as_ref())
}

fn chain_on_disk(path: &Path, file: &File, leaf: u64, slot: &LeafSlot) -> Result<Option<Chain>> {
    let [range] = &slot.in_file(leaf)[..] else {
        return Ok(None);
    };
    let mut buffer = sys::Buffer::take();
    let bytes = &mut buffer[..(range.end - range.start) as usize];
    LocalFile { path, file }.fill(range.start, bytes)?;
    let mut tree = Leaves::new();
    tree.add(Piece::of(Block::at(range.start, bytes)));
    let size = if range.end % LEAF_BYTES == 0 {
        u64::MAX
    } else {
        range.end
    };
    Ok(tree.chain(leaf, size))
}

pub(super) const PREFIX: &str = ".godwit-";
/// The digits of twelve bytes of a hash, or of a nonce and a count.
const HASH_DIGITS: usize = 24;
const PART: &str = ".part";
const RECORD: &str = ".done";

/// The most concurrent writers of one file by one identity; more are refused.
const WRITERS_MAX: u32 = 100;
/// A writer that lost the answer to an upload asks long before.
const NOTES_STAY: Duration = Duration::from_secs(86_400);
/// A node's own default for the age of partials.
const PARTIALS_STAY: Duration = Duration::from_secs(7 * 86_400);
/// For how many directories the time of the last search is kept.
const TIDIED_MAX: usize = 10_000;

/// The longest time by which a partial may be newer than its record: a process died
/// between the writes of bytes and of their slot, or clocks are coarse.
const BYTES_TO_SLOT: Duration = Duration::from_millis(50);

/// How long an attempt waits for the process that holds its partial.
const ATTEMPT_PATIENCE: Duration = Duration::from_secs(2);

/// How often we try before we take a partial to be in use.
const LOOKERS_MAX: usize = 4;

/// How often a partial may vanish under us before we take another name.
const RACES_MAX: usize = 16;
