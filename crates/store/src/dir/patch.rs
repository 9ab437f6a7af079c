//! Patches of a file in place: readers see every byte at once, and nothing is resumed.

use super::{DirInner, append, now, place::FilePlace, regular, stat, wrong};
use crate::{
    BlockWriter, Checks, Error, Expected, Finished, LocalFile, Result, Sink, Write, WriteMode,
    channel::Watch,
    landed::{BlockHashes, LandedRanges},
};
use godwit_core::{Block, Chain, Extents};
use godwit_sys::{self as sys, Attributes, OpenMode};
use parking_lot::Mutex;
use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Starts to change a file in place, or to append to it without a number.
pub(super) fn begin(dir: &Arc<DirInner>, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
    let place = dir.place_of_file(path)?;
    let failed = |e| wrong(path, e);
    if let Some(old) = &place.old {
        regular(path, old)?;
    }
    let (aim, how) = match write.how {
        WriteMode::Append { .. } => (PatchKind::Append, OpenMode::Append),
        _ => (PatchKind::Change, OpenMode::Create),
    };
    let mode = write.mode.unwrap_or(0o666);
    let file = match place.folder.open(&place.name, how, mode) {
        // Writable, but not readable.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && aim == PatchKind::Change => place
            .folder
            .open(&place.name, OpenMode::ChangeUnread, 0)
            .map_err(|_| failed(e))?,
        done => done.map_err(failed)?,
    };
    let meta = sys::meta(&file).map_err(failed)?;
    regular(path, &meta)?;
    if place.old.is_none()
        && let Some(mode) = write.mode
    {
        let attributes = Attributes {
            mode: Some(mode),
            ..Attributes::default()
        };
        place
            .folder
            .dress(&place.name, &file, &attributes)
            .map_err(failed)?;
    }
    let start = if aim == PatchKind::Append {
        meta.size
    } else {
        0
    };
    let opened = PatchFile { place, file };
    Ok(Box::new(Patch::new(dir, path, opened, aim, start, write)))
}

/// Starts to write some of a file that another process on the same disk puts together. The file exists already, under
/// its name or under that of a partial.
pub(super) fn share(dir: &Arc<DirInner>, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
    let place = dir.place_of_shared(path)?;
    let failed = |e| wrong(path, e);
    let file = place.folder.open(&place.name, OpenMode::Change, 0);
    let file = file.map_err(failed)?;
    regular(path, &sys::meta(&file).map_err(failed)?)?;
    let opened = PatchFile { place, file };
    Ok(Box::new(Patch::new(
        dir,
        path,
        opened,
        PatchKind::Change,
        0,
        write,
    )))
}

/// Writes a whole file into the one that is there, because no other can be made beside it.
pub(super) fn instead_of_upload(
    dir: &Arc<DirInner>,
    path: &Path,
    place: FilePlace,
    write: &Write<'_>,
) -> io::Result<Box<dyn Sink>> {
    let file = place.folder.open(&place.name, OpenMode::Change, 0)?;
    let opened = PatchFile { place, file };
    Ok(Box::new(Patch::new(
        dir,
        path,
        opened,
        PatchKind::Whole,
        0,
        write,
    )))
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PatchKind {
    /// Some bytes of it.
    Change,
    /// All of it.
    Whole,
    /// Behind the end.
    Append,
}

/// A file, and where it was when it was opened.
struct PatchFile {
    place: FilePlace,
    file: File,
}

struct Patch {
    dir: Arc<DirInner>,
    path: PathBuf,
    place: FilePlace,
    file: File,
    aim: PatchKind,
    /// Where offset 0 was when we began.
    start: u64,
    checks: Checks,
    watch: Option<Arc<Watch>>,
    landed: Mutex<LandedRanges>,
}

impl Patch {
    fn new(
        dir: &Arc<DirInner>,
        path: &Path,
        PatchFile { place, file }: PatchFile,
        aim: PatchKind,
        start: u64,
        write: &Write<'_>,
    ) -> Self {
        Self {
            dir: Arc::clone(dir),
            path: path.into(),
            place,
            file,
            aim,
            start,
            checks: write.checks,
            watch: write.watch.clone(),
            landed: Mutex::new(LandedRanges::new(write.checks, write.size)),
        }
    }

    fn append(&self, block: Block<'_>, landed: &LandedRanges) -> Result<()> {
        let next = landed.done().end();
        if block.offset != next {
            return Err(Error::unsupported(
                format!("appending byte {} after byte {next}", block.offset),
                "bytes are appended in order",
            ));
        }
        append::between(&self.place, &self.file, || {
            (&self.file).write_all(block.bytes)
        })
    }

    /// Cuts the file to its announced length and compares its digest.
    fn settle_change(&self, whole: &Expected) -> Result<Finished> {
        let failed = |e| wrong(&self.path, e);
        let len = sys::meta(&self.file).map_err(failed)?.size;
        match whole.size {
            Some(size) if size > len => {
                return Err(Error::incomplete(
                    self.path.clone(),
                    size,
                    Extents::from(len..size),
                ));
            }
            Some(size) if size < len => self.file.set_len(size).map_err(failed)?,
            _ => {}
        }
        let len = whole.size.unwrap_or(len);
        let mut landed = self.landed.lock();
        let read = |at, bytes: &mut [u8]| {
            LocalFile {
                path: &self.path,
                file: &self.file,
            }
            .fill_watched(at, bytes, self.watch.as_deref())
        };
        if landed.done() == &Extents::from(0..len) {
            return landed.settle(&self.path, whole, &read);
        }
        let Some(expected) = &whole.digest else {
            return Ok(Finished::default());
        };
        let mut all = LandedRanges::new(Checks::default(), Some(len));
        all.recorded(0, std::slice::from_ref(&(0..len)), None);
        all.settle(
            &self.path,
            &Expected {
                size: Some(len),
                digest: Some(expected.clone()),
                ..Expected::default()
            },
            &read,
        )
    }
}

impl BlockWriter for Patch {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if block.offset.checked_add(block.bytes.len() as u64).is_none() {
            return Err(wrong(&self.path, io::ErrorKind::FileTooLarge.into()));
        }
        let hashed = BlockHashes::of(block, self.checks);
        if self.aim == PatchKind::Append {
            let mut landed = self.landed.lock();
            self.append(block, &landed)?;
            landed.begin(block.range());
            landed.landed(block.range(), hashed);
            return Ok(());
        }
        self.landed.lock().begin(block.range());
        let written = self.file.write_all_at(block.bytes, block.offset);
        let mut landed = self.landed.lock();
        match written {
            Ok(()) => {
                landed.landed(block.range(), hashed);
                Ok(())
            }
            Err(e) => {
                landed.failed(&block.range());
                Err(wrong(&self.path, e))
            }
        }
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.landed.lock().said(leaf, chain);
        Ok(())
    }
}

impl Sink for Patch {
    fn done(&self) -> Extents {
        self.landed.lock().done().clone()
    }

    fn commit(&self) -> Result<Extents> {
        let done = self.done();
        self.file.sync_data().map_err(|e| wrong(&self.path, e))?;
        Ok(done)
    }

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        let failed = |e| wrong(&self.path, e);
        let read = |at: u64, bytes: &mut [u8]| {
            LocalFile {
                path: &self.path,
                file: &self.file,
            }
            .fill_watched(self.start + at, bytes, self.watch.as_deref())
        };
        let mut finished = match self.aim {
            PatchKind::Change => self.settle_change(whole)?,
            PatchKind::Append => self.landed.lock().settle(&self.path, whole, &read)?,
            PatchKind::Whole => {
                let finished = self.landed.lock().settle(&self.path, whole, &read)?;
                let size = self.landed.lock().done().end();
                self.file.set_len(size).map_err(failed)?;
                finished
            }
        };
        let attributes = Attributes {
            mode: whole.mode,
            mtime: whole.mtime,
            ..Attributes::default()
        };
        let FilePlace { folder, name, .. } = &self.place;
        let dressed = match attributes == Attributes::default() {
            true => Ok(()),
            false => folder.dress(name, &self.file, &attributes),
        };
        match dressed {
            // The bytes are in a file of another user, who alone may change its attributes.
            Err(e)
                if self.aim == PatchKind::Whole && e.kind() == io::ErrorKind::PermissionDenied => {}
            done => done.map_err(failed)?,
        }
        let meta = sys::meta(&self.file).map_err(failed)?;
        if self.aim == PatchKind::Whole {
            finished
                .digests
                .iter()
                .for_each(|digest| self.dir.known.wrote(&meta, digest));
        }
        finished.version = stat(&meta, None).version(now());
        finished.in_place = true;
        Ok(finished)
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        Ok(()) // What was there before is gone.
    }

    crate::has!(self, SinkFacets: resume direct);
}

impl crate::Resume for Patch {
    fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> {
        self.landed.lock().newly_whole(count_max)
    }

    fn is_in_place(&self) -> bool {
        true
    }
}

impl crate::Direct for Patch {
    fn lies_at(&self) -> Option<PathBuf> {
        (self.aim != PatchKind::Append).then(|| self.place.path.clone())
    }

    fn came(&self, ranges: &Extents, leaves: &[(u64, Chain)]) -> Result<()> {
        self.landed.lock().came(ranges, leaves);
        Ok(())
    }
}
