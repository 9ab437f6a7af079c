//! Reads fragments of several sites for a reader in order: while one is passed on, others are fetched.
//!
//! Early bytes are kept in files without a name, up to a limit for all. No transfer waits for its turn: the rest of a
//! fragment above its share is read in its turn.

use crate::combining::Part;
use godwit_core::{Block, Extents, Fault};
use godwit_store::{BlockWriter, Error, Result};
use godwit_sys::unnamed;
use parking_lot::{Condvar, Mutex};
use std::{
    env,
    fs::File,
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread::{self, ScopedJoinHandle},
};

/// A piece of the read, and its source.
pub(crate) trait ReadPiece: Sync {
    /// The wanted bytes, at their offsets in the piece.
    fn wanted(&self) -> &Extents;

    /// Reads some of the wanted bytes.
    fn read(&self, want: &Extents, into: &dyn BlockWriter) -> Result<()>;

    /// Passes on all wanted bytes in order: the early ones, and the others as they arrive.
    fn pass_on(&self, early: &Early, late: &Extents) -> Result<()>;
}

/// Bytes that came before their turn.
pub(crate) struct Early {
    kept: Option<File>,
    came: Extents,
    /// The reason why they cannot be read later either.
    error: Option<Error>,
}

impl Early {
    fn none() -> Self {
        Self {
            kept: None,
            came: Extents::new(),
            error: None,
        }
    }

    /// Reads bytes of a piece early. After a passing failure none are kept: they are read in the turn of the piece.
    fn read(piece: &dyn ReadPiece, want: Extents, is_over: &(dyn Fn() -> bool + Sync)) -> Self {
        let has_failed = AtomicBool::new(false);
        let keep = || {
            let file = unnamed(&env::temp_dir()).map_err(|cause| {
                has_failed.store(true, Relaxed);
                Error::io(KEPT, cause)
            })?;
            let keeping = EarlyBytes {
                file: &file,
                is_over,
                has_failed: &has_failed,
            };
            let asked = Part {
                into: &keeping,
                want: &want,
                first: 0,
                offset: 0,
            };
            piece.read(&want, &asked)?;
            Ok::<_, Error>(file)
        };
        match keep() {
            Ok(file) => Self {
                kept: Some(file),
                came: want,
                error: None,
            },
            // The source of a lost fragment is gone: no second attempt.
            Err(error) if error.fault() == Fault::Lasting && !has_failed.load(Relaxed) => Self {
                error: Some(error),
                ..Self::none()
            },
            Err(error) => {
                tracing::info!(%error, "bytes could not be read ahead");
                Self::none()
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.came.is_empty()
    }

    /// Passes on all early bytes.
    pub(crate) fn give(&self, into: &dyn BlockWriter) -> Result<()> {
        let Some(file) = &self.kept else {
            return Ok(());
        };
        let mut buffer = vec![0; STEP_BYTES];
        for range in self.came.iter() {
            let mut at = range.start;
            while at < range.end {
                let left = usize::try_from(range.end - at).unwrap_or(STEP_BYTES);
                let bytes = &mut buffer[..left.min(STEP_BYTES)];
                let read = file.read_exact_at(bytes, at);
                read.map_err(|cause| Error::io(KEPT, cause))?;
                into.put(Block::at(at, bytes))?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }
}

struct EarlyBytes<'a> {
    file: &'a File,
    is_over: &'a (dyn Fn() -> bool + Sync),
    /// Whether bytes were refused here.
    has_failed: &'a AtomicBool,
}

impl BlockWriter for EarlyBytes<'_> {
    fn put(&self, block: Block<'_>) -> Result<()> {
        if (self.is_over)() {
            return Err(Error::Canceled);
        }
        let kept = self.file.write_all_at(block.bytes, block.offset);
        kept.map_err(|cause| {
            self.has_failed.store(true, Relaxed);
            Error::io(KEPT, cause)
        })
    }
}

/// Reads `at_once` pieces in parallel, and passes them on in order.
pub(crate) fn read(pieces: &[impl ReadPiece], at_once: usize) -> Result<()> {
    let (next, turn) = (AtomicUsize::new(0), Mutex::new(Ok(0)));
    let changed = Condvar::new();
    let share = WINDOW_BYTES / at_once.max(1) as u64;
    let is_over = || turn.lock().is_err();
    let one = |index: usize| {
        let piece = &pieces[index];
        let wanted = piece.wanted();
        let is_early = matches!(*turn.lock(), Ok(now) if now < index);
        let mut early = match is_early {
            true => Early::read(piece, wanted.clone().take(share), &is_over),
            false => Early::none(),
        };
        let mut now = turn.lock();
        while matches!(*now, Ok(at) if at < index) {
            changed.wait(&mut now);
        }
        if now.is_err() {
            return false;
        }
        drop(now);
        let passed = match early.error.take() {
            Some(error) => Err(error),
            None => piece.pass_on(&early, &wanted.minus(&early.came)),
        };
        let is_passed = passed.is_ok();
        *turn.lock() = passed.map(|()| index + 1);
        changed.notify_all();
        is_passed
    };
    let work = || {
        loop {
            let index = next.fetch_add(1, Relaxed);
            if index >= pieces.len() || !one(index) {
                return;
            }
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..at_once).map(|_| scope.spawn(work)).collect();
        work();
        let joined = |other: ScopedJoinHandle<'_, ()>| {
            let other = other.join();
            other.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        };
        others.into_iter().for_each(joined);
    });
    turn.into_inner().map(drop)
}

const KEPT: &str = "a temporary file";
/// The most bytes that are kept before their turn.
const WINDOW_BYTES: u64 = 1 << 30;
const STEP_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Pieces whose holders answer only when two have been asked, or of which one fails.
    struct Held<'a> {
        want: Extents,
        asked: &'a Condvar,
        count: &'a Mutex<usize>,
        out: &'a Mutex<Vec<u8>>,
        fails: bool,
    }

    impl ReadPiece for Held<'_> {
        fn wanted(&self) -> &Extents {
            &self.want
        }

        fn read(&self, want: &Extents, into: &dyn BlockWriter) -> Result<()> {
            let mut count = self.count.lock();
            *count += 1;
            self.asked.notify_all();
            while *count < 2 {
                let waited = self.asked.wait_for(&mut count, Duration::from_secs(20));
                assert!(!waited.timed_out(), "they were asked one at a time");
            }
            drop(count);
            if self.fails {
                return Err(Error::missing("a piece"));
            }
            for range in want.iter() {
                let bytes: Vec<u8> = range.clone().map(|at| at as u8).collect();
                into.put(Block::at(range.start, &bytes))?;
            }
            Ok(())
        }

        fn pass_on(&self, early: &Early, late: &Extents) -> Result<()> {
            let out = PassedBytes(self.out);
            early.give(&out)?;
            match late.is_empty() {
                true => Ok(()),
                false => self.read(late, &out),
            }
        }
    }

    struct PassedBytes<'a>(&'a Mutex<Vec<u8>>);

    impl BlockWriter for PassedBytes<'_> {
        fn put(&self, block: Block<'_>) -> Result<()> {
            self.0.lock().extend(block.bytes);
            Ok(())
        }
    }

    fn gather(fails: Option<u8>) -> (Result<()>, Vec<u8>) {
        let (count, asked, out) = (Mutex::new(0), Condvar::new(), Mutex::default());
        let held = |at: u8| Held {
            want: Extents::from(u64::from(at)..u64::from(at) + 1),
            asked: &asked,
            count: &count,
            out: &out,
            fails: fails == Some(at),
        };
        let pieces: Vec<_> = (0..5).map(held).collect();
        let done = read(&pieces, 2);
        drop(pieces);
        (done, out.into_inner())
    }

    #[test]
    fn two_holders_send_at_once() {
        let (done, out) = gather(None);
        done.unwrap();
        assert_eq!(out, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn failed_piece_ends_the_rest() {
        let (done, out) = gather(Some(2));
        assert!(matches!(done, Err(Error::Missing { .. })), "{done:?}");
        assert_eq!(out, [0, 1]);
        let (done, _) = gather(Some(4));
        assert!(matches!(done, Err(Error::Missing { .. })), "{done:?}");
    }
}
