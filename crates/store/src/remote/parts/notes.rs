//! Notes of landed ranges on servers that are no nodes, in files that outlive this process.
//!
//! A note is a small text, replaced in one step; a lock beside it shows that the part is in use. Without a note, the
//! bytes are sent again.

use crate::error::gone;
use godwit_core::{Algorithm, Digest, Extents};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

/// The note of one part, which no other process of this user writes to meanwhile.
pub(super) struct PartNote {
    path: PathBuf,
    of: String,
    written_at: Option<Instant>,
    _lock: File,
}

/// Whether a note may wait for the next one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::remote) enum NoteTiming {
    /// Another will follow.
    InTime,
    /// This may be the last.
    Now,
}

impl PartNote {
    /// Opens the note of what `of` names; `None`: another process writes to it.
    pub(super) fn open(directory: &Path, of: &str) -> io::Result<Option<Self>> {
        fs::create_dir_all(directory)?;
        let name = Digest::of(Algorithm::Blake3, of.as_bytes()).hex();
        let path = directory.join(&name[..NAME_CHARS]);
        Ok(lock(&path)?.map(|lock| Self {
            path,
            of: of.into(),
            written_at: None,
            _lock: lock,
        }))
    }

    /// Returns the noted ranges; empty if the note is torn or of another part.
    pub(super) fn read(&self) -> Extents {
        let path = self.path.with_extension(LANDED);
        let is_small = fs::metadata(&path).is_ok_and(|meta| meta.len() <= NOTE_BYTES_MAX);
        let text = is_small.then(|| fs::read_to_string(&path).ok()).flatten();
        text.and_then(|text| parse(&text, &self.of))
            .unwrap_or_default()
    }

    /// Notes landed ranges. A note that is too early is skipped. So is one that would be huge, since the older note
    /// still holds.
    pub(super) fn write(&mut self, landed: &Extents, when: NoteTiming) -> io::Result<()> {
        let is_early = self.written_at.is_some_and(|at| at.elapsed() < PAUSE);
        if (is_early && when == NoteTiming::InTime) || landed.count() > RANGES_MAX {
            return Ok(());
        }
        self.written_at = Some(Instant::now());
        let fresh = self.path.with_extension(FRESH);
        fs::write(&fresh, text(&self.of, landed))?;
        fs::rename(fresh, self.path.with_extension(LANDED))
    }

    /// Removes the note: the part cannot be resumed.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.written_at = None;
        gone(fs::remove_file(self.path.with_extension(LANDED)))
    }
}

impl Drop for PartNote {
    fn drop(&mut self) {
        if !self.path.with_extension(LANDED).exists() {
            // The lock is still held, so no other process uses the file.
            let _ = fs::remove_file(self.path.with_extension(LOCK));
        }
    }
}

/// Removes notes that were unused for `age`.
pub(super) fn sweep(directory: &Path, age: Duration) -> io::Result<()> {
    let now = SystemTime::now();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_lock = path.extension().is_some_and(|extension| extension == LOCK);
        let used_at = fs::metadata(&path).and_then(|meta| meta.modified());
        let is_old = used_at.is_ok_and(|at| now.duration_since(at).is_ok_and(|old| old > age));
        if !is_lock || !is_old {
            continue;
        }
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            for extension in [FRESH, LANDED, LOCK] {
                gone(fs::remove_file(path.with_extension(extension)))?;
            }
        }
    }
    Ok(())
}

/// Locks a note; `None`: another process has the lock.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let path = path.with_extension(LOCK);
    for _ in 0..LOCK_TRIES {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The previous owner may have removed the file before we locked it.
        if fs::metadata(&path)
            .is_ok_and(|meta| file.metadata().is_ok_and(|f| f.ino() == meta.ino()))
        {
            file.set_modified(SystemTime::now())?;
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn text(of: &str, landed: &Extents) -> String {
    let text = format!("{FORM}\nof {of}\nlanded {landed}\n");
    let sum = sum(&text);
    format!("{text}sum {sum}\n")
}

fn parse(text: &str, of: &str) -> Option<Extents> {
    let (said, sum_line) = text.split_at_checked(text.trim_end().rfind('\n')? + 1)?;
    if sum_line.strip_prefix("sum ")?.trim_end() != sum(said) {
        return None;
    }
    let rest = said.strip_prefix(FORM)?.strip_prefix("\nof ")?;
    let landed = rest.strip_prefix(of)?.strip_prefix("\nlanded ")?;
    landed.trim_end().parse().ok()
}

fn sum(text: &str) -> String {
    Digest::of(Algorithm::Blake3, text.as_bytes()).hex()[..NAME_CHARS].to_owned()
}

const FORM: &str = "godwit landed 1";
const LANDED: &str = "landed";
const FRESH: &str = "fresh";
const LOCK: &str = "lock";
const NAME_CHARS: usize = 32;
/// Servers that mark every block must not keep a disk busy.
const PAUSE: Duration = Duration::from_secs(1);
const RANGES_MAX: usize = 10_000;
const NOTE_BYTES_MAX: u64 = 1 << 20;
const LOCK_TRIES: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const OF: &str = "ftp://me@fermi:21 /data/.x.0123.godwit-part";

    fn open(directory: &Path) -> PartNote {
        PartNote::open(directory, OF)
            .unwrap()
            .expect("it is not in use")
    }

    #[test]
    fn note_is_read_by_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let landed: Extents = [0..5, 7..9].into_iter().collect();
        let mut note = open(directory.path());
        assert_eq!(note.read(), Extents::new());
        note.write(&landed, NoteTiming::Now).unwrap();
        drop(note);
        assert_eq!(open(directory.path()).read(), landed);
        let other = PartNote::open(directory.path(), "ftp://me@fermi:21 /y");
        assert_eq!(other.unwrap().unwrap().read(), Extents::new());
        open(directory.path()).clear().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_note_has_one_writer() {
        let directory = tempfile::tempdir().unwrap();
        let note = open(directory.path());
        assert!(PartNote::open(directory.path(), OF).unwrap().is_none());
        drop(note);
        open(directory.path());
    }

    #[test]
    fn fast_notes_are_skipped_except_last() {
        let directory = tempfile::tempdir().unwrap();
        let mut note = open(directory.path());
        note.write(&(0..1).into(), NoteTiming::InTime).unwrap();
        note.write(&(0..2).into(), NoteTiming::InTime).unwrap();
        assert_eq!(note.read(), (0..1).into());
        note.write(&(0..3).into(), NoteTiming::Now).unwrap();
        assert_eq!(note.read(), (0..3).into());
    }

    #[test]
    fn a_torn_or_foreign_note_says_nothing() {
        let whole = text(OF, &(0..99).into());
        assert_eq!(parse(&whole, OF), Some((0..99).into()));
        assert_eq!(parse(&whole, "ftp://me@fermi:21"), None);
        assert_eq!(parse(&whole.replace("0-99", "0-9999"), OF), None);
        for len in 0..whole.len() - 1 {
            assert_eq!(parse(&whole[..len], OF), None, "{len}");
        }
    }

    #[test]
    fn sweep_spares_notes_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let mut left = PartNote::open(directory.path(), "left").unwrap().unwrap();
        left.write(&(0..1).into(), NoteTiming::Now).unwrap();
        drop(left);
        let mut used = open(directory.path());
        used.write(&(0..1).into(), NoteTiming::Now).unwrap();
        sweep(directory.path(), Duration::from_secs(60)).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 4);
        for entry in fs::read_dir(directory.path()).unwrap() {
            let file = File::open(entry.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(99))
                .unwrap();
        }
        sweep(directory.path(), Duration::from_secs(60)).unwrap();
        assert_eq!(used.read(), (0..1).into());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
