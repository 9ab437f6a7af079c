//! A file while it is written.

use crate::{
    asking::{Done, Failed},
    changes::Parts,
    facts::Facts,
};
use godwit_sys::{append_all, begin_to_sync};
use godwit_wire::{
    door::call::Version,
    local::{Handle, ask::Deed},
};
use parking_lot::{Mutex, RwLock};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::UNIX_EPOCH,
};

/// The disk begins with so many bytes at a time.
const EARLY_BYTES: u64 = 8 << 20;

/// Whether a file is written.
#[derive(Default)]
pub(crate) enum Writes {
    #[default]
    None,
    /// A worker opens it to write, or hands it in.
    Busy,
    Open(Arc<Body>),
}

/// A file while it is written, shared by its writers.
pub(crate) struct Body {
    /// `None` once it is handed in.
    pub(crate) file: RwLock<Option<File>>,
    pub(crate) era: u64,
    pub(crate) handle: Handle,
    /// The name that the node knows it by.
    pub(crate) url: String,
    pub(crate) kept: Kept,
    /// Permission bits of a file that is made.
    pub(crate) mode: Option<u32>,
    /// Whether the name must be free when the file is delivered.
    pub(crate) is_exclusive: bool,
    /// The empty file that its server made first.
    pub(crate) made: Option<Version>,
    pub(crate) state: Mutex<State>,
    /// The end of what the disk was told to begin with.
    pub(crate) begun: AtomicU64,
}

/// When the node has a file on record that is written.
pub(crate) enum Kept {
    /// Once it is handed in.
    AtTheEnd,
    /// Since it was opened: the next node finds what was written.
    AsWritten,
    /// Parts of the file are here, and its changes are handed in: by each sync, and at the end.
    InParts(Parts),
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) writers: u64,
    /// Nothing was there before.
    pub(crate) is_new: bool,
    pub(crate) is_unlinked: bool,
    /// The node ended while it was written.
    pub(crate) is_cut_short: bool,
    /// Deeds to the name once it is handed in.
    pub(crate) then: Vec<Deed>,
    pub(crate) mode: Option<u32>,
    pub(crate) mtime_ns: Option<u64>,
}

impl Body {
    /// Returns the parts of a file that is not here as a whole.
    pub(crate) fn parts(&self) -> Option<&Parts> {
        match &self.kept {
            Kept::InParts(parts) => Some(parts),
            _ => None,
        }
    }

    /// Does something with the file, if it is not handed in.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&File) -> io::Result<T>) -> Done<T> {
        match &*self.file.read() {
            Some(file) => Ok(act(file)?),
            None => Err(Failed::Plain(libc::EBADF)),
        }
    }

    /// Writes, and has the disk begin with what follows each other: a sync at the end waits for less.
    pub(crate) fn write(&self, data: &[u8], offset: u64) -> Done<()> {
        self.with(|file| {
            file.write_all_at(data, offset)?;
            let (from, end) = (self.begun.load(Relaxed), offset + data.len() as u64);
            if offset < from || offset - from > EARLY_BYTES {
                self.begun.store(offset, Relaxed);
            } else if end - from >= EARLY_BYTES {
                begin_to_sync(file, from..end);
                self.begun.store(end, Relaxed);
            }
            Ok(())
        })
    }

    /// Writes at the end that the file has by then: other mounts of this machine may write there, too.
    pub(crate) fn append(&self, data: &[u8]) -> Done<()> {
        self.with(|file| append_all(file, data))
    }

    /// Returns what the kernel is told of it.
    pub(crate) fn facts(&self, known: &Facts) -> Facts {
        let state = self.state.lock();
        let meta = self.with(File::metadata).ok();
        let mtime = meta.as_ref().and_then(|meta| meta.modified().ok());
        let mtime = mtime.and_then(|mtime| mtime.duration_since(UNIX_EPOCH).ok());
        let mtime = mtime.and_then(|mtime| u64::try_from(mtime.as_nanos()).ok());
        // Bytes that come also change the time of the file.
        let mtime = (self.parts()).map_or(mtime, Parts::changed_at_ns);
        Facts {
            is_directory: false,
            size: meta.map_or(known.size, |meta| meta.len()),
            mtime_ns: state.mtime_ns.or(mtime).unwrap_or(known.mtime_ns),
            mode: state.mode.unwrap_or(known.mode),
            is_guess: false,
        }
    }

    /// Keeps attributes until it is handed in.
    pub(crate) fn set(&self, mode: Option<u32>, mtime_ns: Option<u64>) {
        let mut state = self.state.lock();
        state.mode = mode.or(state.mode);
        state.mtime_ns = mtime_ns.or(state.mtime_ns);
    }

    /// Has it renamed once it is handed in.
    pub(crate) fn rename(&self, url: String, to: String) {
        self.state.lock().then.push(Deed::Rename { url, to });
    }

    /// Has it forgotten at its end. Tells whether a file of that name is at the server.
    pub(crate) fn unlink(&self) -> bool {
        let mut state = self.state.lock();
        state.is_unlinked = true;
        !state.is_new
    }
}
