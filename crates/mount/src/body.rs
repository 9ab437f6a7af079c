//! A file while it is written.

use crate::{
    asking::{Failed, Result},
    changes::FileParts,
    facts::Facts,
};
use godwit_sys::{append_all, begin_to_sync};
use godwit_wire::{
    door::call::DoorVersion,
    local::{Handle, request::NameDeed},
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

/// The disk starts to write after this many bytes.
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
    pub(crate) hold: RwLock<Hold>,
    /// The name that the node knows it by.
    pub(crate) url: Mutex<String>,
    /// The changes to a file of which parts are here.
    pub(crate) parts: Option<FileParts>,
    /// Permission bits of a file that is made.
    pub(crate) mode: Option<u32>,
    /// Whether the name must be free when the file is delivered.
    pub(crate) is_exclusive: bool,
    /// The empty file that its server made first.
    pub(crate) made: Option<DoorVersion>,
    pub(crate) state: Mutex<State>,
    /// Held by the one who syncs the file, renames it, or opens it again.
    pub(crate) turn: Mutex<()>,
    /// The end of what the disk was told to begin with.
    pub(crate) begun: AtomicU64,
}

/// The descriptor of a file, and the handle that the node knows it by.
pub(crate) struct Hold {
    /// `None` once it is handed in.
    pub(crate) file: Option<File>,
    pub(crate) era: u64,
    pub(crate) handle: Handle,
    pub(crate) kept: Kept,
}

/// When the node persists a written file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kept {
    /// Once it is handed in.
    AtTheEnd,
    /// Since it was opened: the next node finds the bytes.
    AsWritten,
    /// Parts of the file are here, and its changes are handed in: by each sync, and at the end.
    InParts,
    /// Since it was synced. The descriptor is only read.
    Synced,
    /// Never: its name was removed after it was synced.
    Orphan,
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
    pub(crate) then: Vec<NameDeed>,
    pub(crate) mode: Option<u32>,
    pub(crate) mtime_ns: Option<u64>,
}

impl Body {
    /// Returns the name that the node knows it by.
    pub(crate) fn url(&self) -> String {
        self.url.lock().clone()
    }

    /// Returns the connection and the handle of the file there.
    pub(crate) fn at_node(&self) -> (u64, Handle) {
        let hold = self.hold.read();
        (hold.era, hold.handle)
    }

    /// Returns the connection that the file is lost with; `None`: it survives that.
    pub(crate) fn lost_with(&self) -> Option<u64> {
        let hold = self.hold.read();
        match hold.kept {
            Kept::AtTheEnd | Kept::AsWritten => Some(hold.era),
            Kept::InParts | Kept::Synced | Kept::Orphan => None,
        }
    }

    /// Tells whether the node knows the file by its name, so that a rename need not wait for its end.
    pub(crate) fn is_known(&self) -> bool {
        let is_there = matches!(self.hold.read().kept, Kept::AsWritten | Kept::Synced);
        is_there && self.state.lock().then.is_empty()
    }

    /// Does something with the file, if it is not handed in.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&File) -> io::Result<T>) -> Result<T> {
        match &self.hold.read().file {
            Some(file) => Ok(act(file)?),
            None => Err(Failed::Plain(libc::EBADF)),
        }
    }

    /// Changes the file. Returns `None` if it was synced, and is to be opened again before.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&File) -> io::Result<T>) -> Result<Option<T>> {
        let hold = self.hold.read();
        match (&hold.file, hold.kept) {
            (_, Kept::Synced) => Ok(None),
            (Some(file), _) => Ok(Some(act(file)?)),
            (None, _) => Err(Failed::Plain(libc::EBADF)),
        }
    }

    /// Writes at an offset, or at the end that the file has by then: other mounts of this machine may write there, too.
    /// Returns `None` as [`Self::change`].
    pub(crate) fn write(&self, data: &[u8], at: Option<u64>) -> Result<Option<()>> {
        self.change(|file| {
            let Some(offset) = at else {
                return append_all(file, data);
            };
            file.write_all_at(data, offset)?;
            // The disk begins with what follows each other: a sync at the end waits for less.
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

    /// Returns the attributes for the kernel.
    pub(crate) fn facts(&self, known: &Facts) -> Facts {
        let state = self.state.lock();
        let meta = self.with(File::metadata).ok();
        let mtime = meta.as_ref().and_then(|meta| meta.modified().ok());
        let mtime = mtime.and_then(|mtime| mtime.duration_since(UNIX_EPOCH).ok());
        let mtime = mtime.and_then(|mtime| u64::try_from(mtime.as_nanos()).ok());
        // Bytes that come also change the time of the file.
        let mtime = (self.parts.as_ref()).map_or(mtime, FileParts::changed_at_ns);
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
        self.state.lock().then.push(NameDeed::Rename { url, to });
    }

    /// Has it forgotten at its end. Tells whether a file of that name is at the server.
    pub(crate) fn unlink(&self) -> bool {
        let mut state = self.state.lock();
        state.is_unlinked = true;
        !state.is_new
    }
}
