//! Files of which only what is read comes here.
//!
//! A reader says what it needs, and the depot fetches that in steps. Where the reads have a pattern, a thread fetches
//! what the pattern leads to, while the reader reads.

use crate::{
    Depot, Error, Fresh, Result, StillWanted, Who,
    inner::{Inner, user::User},
    plan::entry::Entry,
    work::fetch::Part,
};
use godwit_core::{Ahead, Extents, LEAF_BYTES, STEP_BYTES, Url, Version, holding::Base};
use godwit_store::DataHints;
use parking_lot::Mutex;
use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// A file of which only what is read comes here.
#[derive(Debug)]
pub struct Lazily {
    depot: Arc<Inner>,
    file: File,
    user: User,
    /// A part of it was fetched for this reader.
    has_begun: AtomicBool,
    ahead: Mutex<Ahead>,
    soon: Arc<Soon>,
}

/// How much has crossed the network for a file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Moved {
    /// Bytes that were fetched.
    pub fetched: u64,
    /// Bytes that were delivered.
    pub delivered: u64,
    /// Transfers in both directions.
    pub transfers: u64,
}

/// Ranges that are fetched before the reader asks for them.
#[derive(Debug, Default)]
struct Soon {
    /// The ranges that the thread takes next; `None`: no thread runs.
    wanted: Mutex<Option<Extents>>,
    /// The reader closed the file.
    is_over: AtomicBool,
}

impl Depot {
    /// Opens a file of which nothing is fetched yet.
    pub fn lazily(&self, url: &Url, who: &Who, fresh: Fresh) -> Result<Lazily> {
        self.lazily_while(url, who, fresh, &|| true)
    }

    /// Opens it for a reader that may go.
    pub fn lazily_while(
        &self,
        url: &Url,
        who: &Who,
        fresh: Fresh,
        is_wanted: StillWanted<'_>,
    ) -> Result<Lazily> {
        let user = self.inner.find_while(url, who, fresh, is_wanted)?;
        if user.entry.lock().machine.is_blind() {
            (self.inner).ensure_while(&user.entry, 0..0, Part::Alone, is_wanted)?;
        }
        let file = self.inner.disk.reader(user.entry.id)?;
        let depot = Arc::clone(&self.inner);
        Ok(Lazily {
            depot,
            file,
            user,
            has_begun: AtomicBool::new(false),
            ahead: Mutex::default(),
            soon: Arc::default(),
        })
    }
}

impl Lazily {
    /// Returns what it is called.
    pub fn url(&self) -> Url {
        self.user.entry.name()
    }

    /// Returns which state of the file its bytes are of.
    pub fn version(&self) -> Version {
        match self.user.entry.lock().machine.base() {
            Base::Seen(version) => version.clone(),
            _ => Version::None,
        }
    }

    /// Has bytes travel as hints say from now on, for all its readers.
    pub fn follow(&self, hints: DataHints) {
        self.user.entry.lock().bytes.hints = hints;
    }

    /// Returns its length.
    pub fn size(&self) -> u64 {
        self.user.entry.lock().machine.size()
    }

    /// Tells whether all of it is here.
    pub fn is_whole(&self) -> bool {
        let state = self.user.entry.lock();
        let size = state.machine.size();
        state.machine.present().contains(&(0..size))
    }

    /// Returns how much of it has come over the network, for all its readers.
    pub fn moved(&self) -> Moved {
        let state = self.user.entry.lock();
        Moved {
            fetched: state.machine.come_bytes(),
            delivered: 0,
            transfers: state.meta.transfers,
        }
    }

    /// Returns a descriptor. What was not [ensured](Self::ensure) reads as zeros.
    pub fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.user.entry
    }

    /// Fills `bytes` from there on; what is missing of it is fetched first, in whole leaves. An error,
    /// `Busy`, if the origin has another file by now: the reader opens it again.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let leaves = offset - offset % LEAF_BYTES..end.next_multiple_of(LEAF_BYTES);
        self.depot.ensure(&self.user.entry, leaves)?;
        let read = self.file.read_exact_at(bytes, offset);
        read.map_err(Error::disk(self.depot.disk.path(self.user.entry.id)))
    }

    /// Returns when ranges are here; what is missing of them is fetched as one, in steps of [`STEP_BYTES`], and the
    /// ranges that the reader will want next are fetched behind its back. An error, `Busy`, as of [`Self::read`].
    pub fn ensure(&self, ranges: &Extents, is_wanted: StillWanted<'_>) -> Result<()> {
        let mut next = Extents::new();
        let mut ahead = self.ahead.lock();
        for range in ranges.iter() {
            next = next.or(&ahead.read(range));
        }
        drop(ahead);
        self.begin(&in_steps(&next));
        let part = match self.has_begun.swap(true, Relaxed) {
            true => Part::More,
            false => Part::Alone,
        };
        let entry = &self.user.entry;
        (self.depot).ensure_while(entry, in_steps(ranges), part, is_wanted)
    }

    /// Has a thread fetch ranges.
    fn begin(&self, ranges: &Extents) {
        let mut state = self.user.entry.lock();
        let missing = ranges
            .and(&Extents::from(0..state.machine.size()))
            .minus(state.machine.present());
        if missing.is_empty() {
            return;
        }
        let user = User::keeper(&self.user.entry, &mut state);
        drop(state);
        let mut wanted = self.soon.wanted.lock();
        if let Some(wanted) = &mut *wanted {
            *wanted = wanted.or(&missing);
            return;
        }
        let (depot, soon) = (Arc::clone(&self.depot), Arc::clone(&self.soon));
        let begun = thread::Builder::new()
            .name("ahead".into())
            .spawn(move || soon.fetch(&depot, &user));
        // Without a thread the reader fetches what it asks for.
        *wanted = begun.is_ok().then_some(missing);
    }
}

impl Drop for Lazily {
    fn drop(&mut self) {
        self.soon.is_over.store(true, Relaxed);
    }
}

impl Soon {
    fn fetch(&self, depot: &Inner, user: &User) {
        loop {
            let mut wanted = self.wanted.lock();
            let ranges = wanted.take().unwrap_or_default();
            if ranges.is_empty() {
                return;
            }
            *wanted = Some(Extents::new());
            drop(wanted);
            let is_wanted = || !self.is_over.load(Relaxed);
            if let Err(error) = depot.ensure_while(&user.entry, ranges, Part::More, &is_wanted) {
                // The reader hears of it when it asks for those bytes.
                tracing::debug!(url = %user.entry.url(), %error, "not fetched ahead");
                self.wanted.lock().take();
                return;
            }
        }
    }
}

/// Widens ranges to whole steps.
pub(crate) fn in_steps(ranges: &Extents) -> Extents {
    let mut steps = Extents::new();
    for range in ranges.iter() {
        let end = range.end.checked_next_multiple_of(STEP_BYTES);
        steps.insert(range.start - range.start % STEP_BYTES..end.unwrap_or(u64::MAX));
    }
    steps
}
