//! Writing a file that appears under its name whole, in one step.

use super::{
    DirInner,
    ledger::Doomed,
    now,
    partial::LockedPartial,
    patch,
    place::FilePlace,
    record::{LeafSlot, PartialRecord, RecordHeader, keepable},
    regular, stat,
    was::Was,
    wrong,
};
use crate::{
    BlockWriter, Checks, Error, Expected, Finished, LocalFile, Origin, Result, SMALL_BYTES, Sink,
    Write, WriteMode,
    channel::Watch,
    crash,
    error::gone,
    landed::{BlockHashes, LandedRanges, leaves_of},
};
use godwit_core::{Block, Chain, Digest, Extents, LEAF_BYTES, Version, leaf_range};
use godwit_sys::{self as sys, Attributes, Meta, Overwrite};
use parking_lot::Mutex;
use std::{
    ffi::OsStr,
    fs::File,
    io,
    ops::Range,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Starts an upload; where the directory cannot be written but the file can, a
/// change of the file itself.
pub(super) fn begin(dir: &Arc<DirInner>, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
    let place = dir.place_of_file(path)?;
    if let Some(old) = &place.old {
        regular(path, old)?;
    }
    let checked = check_condition(dir, path, &place, place.old.as_ref(), &write.how);
    // A writer that lost the answer must be able to begin again, to receive it.
    if let Err(error) = checked
        && !is_published(dir, path, write)?
    {
        return Err(error);
    }
    let held = match dir.hold(path, &place, write) {
        Ok(held) => held,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && place.old.is_some() => {
            return patch::instead_of_upload(dir, path, place, write).map_err(|_| wrong(path, e));
        }
        Err(e) => return Err(wrong(path, e)),
    };
    crash::point("dir.part-made");
    Ok(Box::new(DirUpload::new(
        Arc::clone(dir),
        path,
        place,
        held,
        write,
    )?))
}

/// Tells whether the current file is this very upload, published by an earlier attempt.
fn is_published(dir: &DirInner, path: &Path, write: &Write<'_>) -> Result<bool> {
    match write.id.filter(|_| write.attempt > 0) {
        Some(id) => Ok(dir.became(path, id)?.is_some()),
        None => Ok(false),
    }
}

/// One upload under way.
struct DirUpload {
    dir: Arc<DirInner>,
    path: PathBuf,
    place: FilePlace,
    held: LockedPartial,
    how: WriteMode,
    attempt: u64,
    size: Option<u64>,
    origin: Option<Origin>,
    mode: Option<u32>,
    checks: Checks,
    watch: Option<Arc<Watch>>,
    /// Whether the partial is new: ranges that are not written are holes.
    is_fresh: bool,
    progress: Mutex<PartialProgress>,
    /// The kernel lets one thread at a time write to a file, and the others spin
    /// for it; here they sleep, and a core is free to receive and to hash.
    writing: Mutex<()>,
    over: bool,
}

struct PartialProgress {
    landed: LandedRanges,
    /// How long the partial is at least.
    len: u64,
    /// The furthest end that was put or is being put.
    claimed: u64,
    record: Option<PartialRecord>,
    /// The first epoch that no commit has closed.
    epoch: u64,
    /// Landed ranges that found no room in their slots.
    unrecorded: Extents,
    /// The record vouches for something after a power cut.
    is_committed: bool,
    /// The ranges that were put again since the last commit began.
    taken_back: Extents,
    names_synced: bool,
    /// Leaves are known by hearsay only, from the record or from others who wrote
    /// them: we did not see their bytes.
    has_unseen: bool,
    /// A put found no room on the disk.
    is_full: bool,
}

impl DirUpload {
    fn new(
        dir: Arc<DirInner>,
        path: &Path,
        place: FilePlace,
        mut held: LockedPartial,
        write: &Write<'_>,
    ) -> Result<Self> {
        let left = held.left.take();
        let is_fresh = left.is_none();
        let has_unseen = left
            .as_ref()
            .is_some_and(|left| left.slots.iter().any(|(_, slot)| slot.chain.is_some()));
        let mut progress = PartialProgress {
            landed: LandedRanges::new(write.checks, write.size),
            len: 0,
            claimed: 0,
            record: None,
            epoch: 1,
            unrecorded: Extents::new(),
            is_committed: false,
            taken_back: Extents::new(),
            names_synced: false,
            has_unseen,
            is_full: false,
        };
        if let Some(left) = left {
            progress.epoch = left.epoch;
            progress.is_committed = true;
            progress.record = Some(left.record);
            progress.landed.count_reread(left.reread_bytes);
            for (leaf, slot) in &left.slots {
                let ranges = slot.in_file(*leaf);
                progress.landed.recorded(*leaf, &ranges, slot.chain);
                if write.attempt > 0 {
                    progress.landed.tell(*leaf);
                }
            }
            progress.landed.read_partial_leaves(&|at, bytes| {
                LocalFile {
                    path,
                    file: &held.file,
                }
                .fill(at, bytes)
            })?;
            progress.len = progress.landed.done().end();
            progress.claimed = progress.len;
        }
        Ok(Self {
            dir,
            path: path.into(),
            place,
            held,
            how: write.how.clone(),
            attempt: write.attempt,
            size: write.size,
            origin: write.origin.cloned(),
            mode: write.mode,
            checks: write.checks,
            watch: write.watch.clone(),
            is_fresh,
            progress: Mutex::new(progress),
            writing: Mutex::new(()),
            over: false,
        })
    }

    /// Writes a block at its offset; zeros become holes. `untouched`: this process has not written there before.
    /// Returns whether the end was left a hole.
    fn write(&self, block: Block<'_>, untouched: bool) -> io::Result<bool> {
        let file = &self.held.file;
        let _one_at_a_time = self.writing.lock();
        let mut ends_in_hole = false;
        for (range, is_zero) in runs(block) {
            let part = (range.start - block.offset) as usize..(range.end - block.offset) as usize;
            let is_hole = self.is_fresh && untouched;
            let punch = || sys::punch(file, range.start, range.end - range.start).is_ok();
            ends_in_hole = is_zero && (is_hole || punch());
            if !ends_in_hole {
                file.write_all_at(&block.bytes[part], range.start)?;
            }
        }
        Ok(ends_in_hole)
    }

    /// Writes the landed ranges of all leaves that `range` touches to the record.
    fn record(&self, progress: &mut PartialProgress, range: Range<u64>) -> io::Result<()> {
        if progress.record.is_none() {
            if !self.wants_record(progress) {
                return Ok(());
            }
            self.begin_record(progress)?;
            let all: Vec<u64> = leaves_in(progress.landed.done());
            return all
                .into_iter()
                .try_for_each(|leaf| record_leaf(progress, leaf));
        }
        leaves_of(range).try_for_each(|leaf| record_leaf(progress, leaf))
    }

    /// A small file is not worth one: it is sent again, or recorded when the sink is dropped.
    fn wants_record(&self, progress: &PartialProgress) -> bool {
        self.size.is_some_and(|size| size > SMALL_BYTES)
            || progress.landed.done().len_bytes() >= SMALL_BYTES
    }

    fn begin_record(&self, progress: &mut PartialProgress) -> io::Result<()> {
        let header = RecordHeader {
            inode: self.held.inode,
            size: self.size,
            origin: self.origin.as_ref().map(keepable),
            key: self.held.key.0,
            path: self.path.as_os_str().as_bytes().to_vec(),
        };
        progress.record = Some(self.dir.begin_record(&self.place, &self.held, &header)?);
        crash::point("dir.record-begun");
        Ok(())
    }

    /// Writes the record of a file that had none so far.
    fn record_all(&self, progress: &mut PartialProgress) -> io::Result<()> {
        if progress.record.is_some() {
            return Ok(());
        }
        self.begin_record(progress)?;
        leaves_in(progress.landed.done())
            .into_iter()
            .try_for_each(|leaf| record_leaf(progress, leaf))
    }

    /// Writes again the slots of leaves that are less done than they were.
    fn record_losses(&self, progress: &mut PartialProgress, before: &Extents) -> io::Result<()> {
        let lost = before.minus(progress.landed.done());
        match progress.record.is_some() {
            true => leaves_in(&lost)
                .into_iter()
                .try_for_each(|leaf| record_leaf(progress, leaf)),
            false => Ok(()),
        }
    }

    /// Takes landed bytes out of the record before they are overwritten. Otherwise, after a kill, the record would
    /// claim blocks that are half old and half new.
    ///
    /// A power cut may undo that change of the record and keep the new bytes. Committed ranges are therefore read
    /// again after a power cut, until the next commit. That costs one sync for all bytes that are put again between
    /// two commits.
    fn take_back(&self, progress: &mut PartialProgress, range: Range<u64>) -> io::Result<()> {
        progress.taken_back.insert(range.clone());
        if progress.record.is_none() {
            return Ok(());
        }
        leaves_of(range).try_for_each(|leaf| record_leaf(progress, leaf))?;
        if std::mem::take(&mut progress.is_committed)
            && let Some(record) = &mut progress.record
        {
            record.distrust()?;
        }
        crash::point("dir.taken-back");
        Ok(())
    }

    /// Gives the partial its name, if the condition still holds.
    fn publish(&self, whole: &Expected) -> Result<()> {
        let FilePlace { folder, name, .. } = &self.place;
        let failed = |e| wrong(&self.path, e);
        let _alone = match self.how {
            // Two of us must not both find the old version in place.
            WriteMode::Replace(Some(_)) => Some(lock_folder(folder)),
            _ => None,
        };
        let old = match folder.meta(name) {
            Ok(old) => Some(old),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(failed(e)),
        };
        if let Some(old) = &old {
            regular(&self.path, old)?;
        }
        check_condition(&self.dir, &self.path, &self.place, old.as_ref(), &self.how)?;
        let mode = whole.mode.or(if old.is_none() { self.mode } else { None });
        let named = NamedFile {
            folder,
            name: &self.held.name.part,
            file: &self.held.file,
        };
        if self.attempt > 0 {
            self.say_what_it_becomes(&named, whole.mtime)
                .map_err(failed)?;
        }
        crash::point("dir.before-rename");
        let over = if self.how == WriteMode::New {
            Overwrite::Nothing
        } else {
            Overwrite::Anything
        };
        named
            .publish(mode, old.as_ref(), whole.mtime, (name, over))
            .map_err(failed)
    }
}

impl DirUpload {
    /// Notes the id of the upload before its publication: a writer that counts attempts may lose the answer.
    fn say_what_it_becomes(
        &self,
        named: &NamedFile<'_>,
        mtime: Option<Duration>,
    ) -> io::Result<()> {
        if mtime.is_some() {
            // The file system may keep a coarser time, which the note must have.
            let attributes = Attributes {
                mtime,
                ..Attributes::default()
            };
            named.folder.dress(named.name, named.file, &attributes)?;
        }
        let was = Was::of(named.file, self.held.key, self.attempt)?;
        was.write(self.dir.note(named.folder, &self.path))?;
        self.dir.tidy(named.folder, &self.path);
        Ok(())
    }
}

impl BlockWriter for DirUpload {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if block.bytes.is_empty() {
            return Ok(());
        }
        let end = block.offset.checked_add(block.bytes.len() as u64);
        let end = end.ok_or_else(|| wrong(&self.path, io::ErrorKind::FileTooLarge.into()))?;
        let untouched = {
            let mut progress = self.progress.lock();
            progress.claimed = progress.claimed.max(end);
            let begun = progress.landed.begin(block.range());
            if begun.is_again {
                let told = self.take_back(&mut progress, block.range());
                told.map_err(|e| {
                    progress.landed.failed(&block.range());
                    wrong(&self.path, e)
                })?;
            }
            begun.is_first
        };
        let hash = || BlockHashes::of(block, self.checks);
        // Who would have to wait for others to write hashes meanwhile.
        let hashed = self.writing.try_lock().is_none().then(hash);
        let written = self.write(block, untouched);
        crash::point("dir.bytes-written");
        let hashed = hashed.unwrap_or_else(hash);
        let mut progress = self.progress.lock();
        let recorded = match written {
            Ok(ends_in_hole) => {
                if ends_in_hole && progress.len < end {
                    // No put that began is cut: all are below `claimed`.
                    let claimed = progress.claimed;
                    self.held
                        .file
                        .set_len(claimed)
                        .map_err(|e| wrong(&self.path, e))?;
                    progress.len = claimed;
                }
                progress.len = progress.len.max(end);
                progress.landed.landed(block.range(), hashed);
                self.record(&mut progress, block.range())
            }
            Err(e) => {
                progress.landed.failed(&block.range());
                let _ = self.record(&mut progress, block.range()); // As little room as for the bytes.
                Err(e)
            }
        };
        crash::point("dir.slot-written");
        // A put beside this one may still find room, and changes nothing: the upload fails.
        progress.is_full |= recorded.as_ref().is_err_and(is_no_space);
        recorded.map_err(|e| wrong(&self.path, e))
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        let mut progress = self.progress.lock();
        if progress.landed.said(leaf, chain) && progress.record.is_some() {
            record_leaf(&mut progress, leaf).map_err(|e| wrong(&self.path, e))?;
        }
        Ok(())
    }
}

impl Sink for DirUpload {
    fn done(&self) -> Extents {
        let progress = self.progress.lock();
        progress.landed.done().minus(&progress.unrecorded)
    }

    fn commit(&self) -> Result<Extents> {
        let failed = |e| wrong(&self.path, e);
        let (epoch, done) = {
            let mut progress = self.progress.lock();
            self.record_all(&mut progress).map_err(failed)?;
            let epoch = progress.epoch;
            progress.epoch += 1;
            progress.taken_back = Extents::new();
            (epoch, progress.landed.done().minus(&progress.unrecorded))
        };
        self.held.file.sync_data().map_err(failed)?;
        crash::point("dir.synced");
        let mut progress = self.progress.lock();
        progress
            .record
            .as_mut()
            .expect("begun above")
            .commit(epoch)
            .map_err(failed)?;
        progress.is_committed = true;
        if !progress.names_synced {
            self.place.folder.sync().map_err(failed)?;
            progress.names_synced = true;
        }
        Ok(done.minus(&progress.taken_back))
    }

    fn finish(mut self: Box<Self>, whole: &Expected) -> Result<Finished> {
        let failed = |e| wrong(&self.path, e);
        let mut progress = self.progress.lock();
        let before = progress.landed.done().clone();
        let read = |at, bytes: &mut [u8]| {
            LocalFile {
                path: &self.path,
                file: &self.held.file,
            }
            .fill_watched(at, bytes, self.watch.as_deref())
        };
        let settled = progress.landed.settle(&self.path, whole, &read);
        self.record_losses(&mut progress, &before).map_err(failed)?;
        let mut finished = settled?;
        let size = progress.landed.done().end();
        if sys::meta(&self.held.file).map_err(failed)?.size != size {
            self.held.file.set_len(size).map_err(failed)?;
        }
        let (has_record, has_unseen) = (progress.record.is_some(), progress.has_unseen);
        drop(progress);
        self.publish(whole)?;
        crash::point("dir.after-rename");
        if has_record {
            // It is of an inode that has a name now, and so is void: a sweep would take it too.
            let _ = self.place.folder.remove_file(&self.held.name.record);
        }
        let meta = sys::meta(&self.held.file).map_err(failed)?;
        if !has_unseen {
            finished
                .digests
                .iter()
                .for_each(|digest| self.dir.known.wrote(&meta, digest));
        }
        finished.version = stat(&meta, None).version(now());
        self.over = true;
        Ok(finished)
    }

    fn abandon(mut self: Box<Self>) -> Result<()> {
        self.over = true;
        self.forget().map_err(|e| wrong(&self.path, e))
    }

    crate::has!(self, SinkFacets: resume direct);
}

impl crate::Resume for DirUpload {
    fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> {
        self.progress.lock().landed.newly_whole(count_max)
    }

    fn unseen(&self) -> Extents {
        match self.attempt {
            0 => Extents::new(),
            _ => self.progress.lock().landed.done().clone(),
        }
    }

    fn show(&self, block: Block<'_>) -> Result<()> {
        if self.attempt == 0 {
            return Ok(());
        }
        let mut buffer = sys::Buffer::take();
        let mut left: Extents = self.done().within(block.range()).collect();
        while let Some(range) = left.take_aligned(LEAF_BYTES) {
            let found = &mut buffer[..(range.end - range.start) as usize];
            let (path, file) = (&*self.path, &self.held.file);
            LocalFile { path, file }.fill(range.start, found)?;
            let (from, to) = (range.start - block.offset, range.end - block.offset);
            if block.bytes[from as usize..to as usize] == *found {
                continue;
            }
            let mut progress = self.progress.lock();
            progress.landed.lose(range.clone());
            self.take_back(&mut progress, range)
                .map_err(|e| wrong(&self.path, e))?;
        }
        Ok(())
    }
}

impl crate::Direct for DirUpload {
    fn lies_at(&self) -> Option<PathBuf> {
        Some(self.place.path.with_file_name(&self.held.name.part))
    }

    fn came(&self, ranges: &Extents, leaves: &[(u64, Chain)]) -> Result<()> {
        let mut progress = self.progress.lock();
        progress.has_unseen = true;
        progress.len = progress.len.max(ranges.end());
        progress.claimed = progress.claimed.max(ranges.end());
        progress.landed.came(ranges, leaves);
        let recorded = ranges
            .iter()
            .try_for_each(|range| self.record(&mut progress, range));
        recorded.map_err(|e| wrong(&self.path, e))
    }
}

impl DirUpload {
    fn forget(&self) -> io::Result<()> {
        gone(self.place.folder.remove_file(&self.held.name.record))?;
        gone(self.place.folder.remove_file(&self.held.name.part))
    }
}

impl Drop for DirUpload {
    /// Keeps the partial for a resume, unless no byte landed.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut progress = self.progress.lock();
        // An empty file is whole as soon as it begins: a held one waits to be finished.
        let is_nothing = progress.landed.done().is_empty() && self.size != Some(0);
        // On a full disk an old part takes the room of all others.
        let kept = if is_nothing || progress.is_full {
            self.forget()
        } else {
            self.record_all(&mut progress)
        };
        if let Err(error) = kept {
            tracing::warn!(path = %self.path.display(), %error, "upload not kept");
        }
    }
}

fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// An open file and its name: its attributes may be set by the process of another account.
pub(super) struct NamedFile<'a> {
    pub(super) folder: &'a sys::Folder,
    pub(super) name: &'a OsStr,
    pub(super) file: &'a File,
}

impl NamedFile<'_> {
    /// Sets the attributes of the file, and then its final name, which replaces an existing file. Attributes that the
    /// writer did not set are those of the replaced file, if the process may set them.
    pub(super) fn publish(
        &self,
        mut mode: Option<u32>,
        old: Option<&Meta>,
        mtime: Option<Duration>,
        (name, over): (&OsStr, Overwrite),
    ) -> io::Result<()> {
        if let Some(old) = old {
            let kept = mode.unwrap_or(old.mode);
            // Set-uid and set-gid bits do not pass to a file of another owner.
            mode = Some(if self.give(old)? { kept } else { kept & 0o777 });
        }
        let attributes = Attributes {
            mode,
            mtime,
            ..Attributes::default()
        };
        let replaced = old.and_then(|old| Doomed::find(self.folder, name, old));
        self.folder
            .publish(self.name, self.file, &attributes, name, over)?;
        // The appends that it had are not of the new one.
        if let Some(ledger) = replaced {
            ledger.remove(self.folder);
        }
        Ok(())
    }

    /// Gives the file the old one's owner and group; tells whether they are the same now.
    fn give(&self, old: &Meta) -> io::Result<bool> {
        let owner = |meta: Meta| (meta.uid, meta.gid);
        if owner(sys::meta(self.file)?) == owner(*old) {
            return Ok(true);
        }
        let attributes = Attributes {
            owner: Some(owner(*old)),
            ..Attributes::default()
        };
        self.folder.dress(self.name, self.file, &attributes)?;
        Ok(owner(sys::meta(self.file)?) == owner(*old))
    }
}

fn record_leaf(progress: &mut PartialProgress, leaf: u64) -> io::Result<()> {
    let range = leaf_range(leaf);
    let (slot, is_all) = LeafSlot::of(leaf, progress.landed.done().within(range.clone()));
    let slot = LeafSlot {
        boot: sys::boot_id(),
        epoch: progress.epoch,
        chain: progress.landed.chain(leaf),
        ..slot
    };
    progress
        .record
        .as_ref()
        .expect("asked by the callers")
        .write(leaf, &slot)?;
    progress.unrecorded.remove(range.clone());
    if !is_all {
        let landed: Extents = progress.landed.done().within(range).collect();
        let recorded: Extents = slot.in_file(leaf).into_iter().collect();
        progress.unrecorded = progress.unrecorded.or(&landed.minus(&recorded));
    }
    Ok(())
}

fn leaves_in(extents: &Extents) -> Vec<u64> {
    let mut leaves: Vec<u64> = extents.iter().flat_map(leaves_of).collect();
    leaves.dedup();
    leaves
}

/// Refuses the write if the current file is not the one that the writer expects.
fn check_condition(
    dir: &DirInner,
    path: &Path,
    place: &FilePlace,
    old: Option<&Meta>,
    how: &WriteMode,
) -> Result<()> {
    match (how, old) {
        (WriteMode::New, Some(_)) => Err(Error::exists(path)),
        (WriteMode::Replace(Some(_)), None) => Err(Error::changed(path, "it is gone")),
        (WriteMode::Replace(Some(version)), Some(old)) => {
            match is_still(dir, path, place, old, version)? {
                true => Ok(()),
                false => Err(Error::changed(path, "another program wrote it")),
            }
        }
        _ => Ok(()),
    }
}

fn is_still(
    dir: &DirInner,
    path: &Path,
    place: &FilePlace,
    old: &Meta,
    version: &Version,
) -> Result<bool> {
    if let Version::Strong(expected) = version {
        if let Some(known) = dir.known.find(old)
            && known.algorithm() == expected.algorithm()
        {
            return Ok(known == *expected);
        }
        let file = place
            .folder
            .open(&place.name, sys::OpenMode::Read, 0)
            .map_err(|e| wrong(path, e))?;
        return Ok(digest_of(path, &file, old.size, expected)? == *expected);
    }
    let found = stat(old, None).version(now());
    Ok(crate::store::is_no_conflict(version, &found))
}

fn digest_of(path: &Path, file: &File, size: u64, like: &Digest) -> Result<Digest> {
    let mut hashing = godwit_core::Hashing::new(like.algorithm());
    let (mut left, mut buffer) = (Extents::from(0..size), sys::Buffer::take());
    while let Some(range) = left.take_aligned(LEAF_BYTES) {
        let bytes = &mut buffer[..(range.end - range.start) as usize];
        LocalFile { path, file }.fill(range.start, bytes)?;
        hashing.update(bytes);
    }
    Ok(hashing.finish())
}

/// Locks a directory against others of us. Where that cannot be, the condition
/// is checked just before the rename, which is nearly as good.
fn lock_folder(folder: &sys::Folder) -> Option<File> {
    let file = folder.lockable().ok()?;
    for _ in 0..FOLDER_LOCK_TRIES {
        if sys::try_lock(&file).ok()? {
            return Some(file);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}

/// Cuts a block into runs that are all zero, in whole 64 KiB of the file, and others.
fn runs(block: Block<'_>) -> Vec<(Range<u64>, bool)> {
    let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
    let end = block.range().end;
    let mut at = block.offset;
    while at < end {
        let next = (at / HOLE_BYTES + 1).saturating_mul(HOLE_BYTES).min(end);
        let part = &block.bytes[(at - block.offset) as usize..(next - block.offset) as usize];
        let is_zero = next - at == HOLE_BYTES && is_zero(part);
        match runs.last_mut() {
            Some((last, was_zero)) if *was_zero == is_zero => last.end = next,
            _ => runs.push((at..next, is_zero)),
        }
        at = next;
    }
    runs
}

fn is_zero(bytes: &[u8]) -> bool {
    // Most data shows in its first bytes that it is none.
    bytes.iter().take(64).all(|&b| b == 0)
        && bytes
            .chunks(4096)
            .all(|c| c.iter().fold(0, |all, b| all | b) == 0)
}

/// Zeros are left out in pieces of this size.
const HOLE_BYTES: u64 = 1 << 16;

/// A rename takes microseconds: who waits longer than this many milliseconds waits for a hung disk.
const FOLDER_LOCK_TRIES: usize = 2000;
