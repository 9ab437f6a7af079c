//! Files that programs of this machine read and write together.
//!
//! All of them have one sparse file of this machine. What they read is fetched into it, and what they wrote is delivered
//! from it by [`Shared::deliver`], into the server's file. The file has no name, and ends with its last user.

use crate::{
    Depot, Error, Moved, Result, Scope, StillWanted, Who,
    api::lazy::in_steps,
    clock::since_epoch,
    inner::Inner,
    plan::asking::LOOK_EVERY,
    work::{fetch::streams, probe::is_untouched},
};
use godwit_core::{
    Ahead, Block, Extents, Fault, LEAF_BYTES, Url, Version,
    sharing::{Delivery, Fetching, Sharing},
};
use godwit_store::{
    BlockWriter, Checks, DataHints, EntryKind, Error as StoreError, Expected, LocalFile, Set, Stat,
    Write, WriteMode, engine::Place,
};
use godwit_sys::{Buffer, unnamed};
use parking_lot::{Condvar, Mutex};
use std::{
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::Arc,
    time::{Duration, Instant},
};

/// How a shared file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// The server gets an empty file, if it has none.
    pub create: bool,
    /// The server must have none.
    pub exclusive: bool,
    /// The server must be able to change parts of a file.
    pub in_place: bool,
    /// How its bytes travel.
    pub hints: DataHints,
}

/// A file that programs of this machine read and write together.
pub struct Shared {
    depot: Arc<Inner>,
    url: Url,
    who: Who,
    hints: DataHints,
    file: File,
    state: Mutex<State>,
    /// A fetch has ended.
    ended: Condvar,
    /// Held by the one who delivers.
    turn: Mutex<()>,
}

struct State {
    sharing: Sharing,
    /// The version of the server's file that `sharing` is about.
    base: Version,
    /// Bytes that came, and that were delivered.
    moved: Moved,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.without_password();
        f.debug_struct("Shared")
            .field("url", &url)
            .finish_non_exhaustive()
    }
}

impl Depot {
    /// Opens a file that programs of this machine are about to share.
    pub fn share(
        &self,
        (url, who): (&Url, &Who),
        share: Share,
        is_wanted: StillWanted<'_>,
    ) -> Result<Shared> {
        // A program of this machine may have written it a moment ago.
        self.push_while(&Scope::Url(url.clone()), Some(PATIENCE), is_wanted)?;
        let stat = self.inner.look_or_make(url, who, share)?;
        let file = unnamed(self.inner.disk.root()).and_then(|file| {
            file.set_len(stat.size)?;
            Ok(file)
        });
        let file = file.map_err(Error::disk(self.inner.disk.root()))?;
        Ok(Shared {
            depot: Arc::clone(&self.inner),
            url: url.clone(),
            who: who.clone(),
            hints: share.hints,
            file,
            state: Mutex::new(State {
                sharing: Sharing::new(stat.size),
                base: stat.version(since_epoch()),
                moved: Moved::default(),
            }),
            ended: Condvar::new(),
            turn: Mutex::default(),
        })
    }
}

impl Inner {
    /// Returns what the server has of a name, after making an empty file of it where that is asked for.
    fn look_or_make(&self, url: &Url, who: &Who, share: Share) -> Result<Stat> {
        self.at_place(url, who, |place| {
            if share.in_place && !place.store.can()?.in_place {
                return Err(StoreError::unsupported(
                    "to change parts of a file",
                    "its server replaces files as a whole",
                )
                .into());
            }
            match place.store.stat(&place.path) {
                Ok(stat) if stat.kind == EntryKind::Directory => {
                    return Err(StoreError::directory(&*place.path).into());
                }
                Ok(_) if share.exclusive => return Err(StoreError::exists(&*place.path).into()),
                Ok(stat) => return Ok(stat),
                Err(StoreError::Missing { .. }) if share.create => {}
                Err(error) => return Err(error.into()),
            }
            let write = Write {
                resume: false,
                size: Some(0),
                ..Write::with(WriteMode::New)
            };
            let made = (place.store.write(&place.path, &write))
                .and_then(|sink| sink.finish(&Expected::of_size(0)));
            match made {
                // Another machine was faster.
                Err(StoreError::Exists { .. }) if !share.exclusive => {}
                made => drop(made?),
            }
            Ok(place.store.stat(&place.path)?)
        })
    }
}

impl Shared {
    /// Returns what it is called.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the file of this machine. What was not [ensured](Self::ensure) reads as zeros.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns how much has crossed the network.
    pub fn moved(&self) -> Moved {
        self.state.lock().moved
    }

    /// Returns when the bytes of ranges are here. What is missing of them is fetched in one transfer, with what the reader
    /// that `ahead` is of will want next.
    pub fn ensure(
        &self,
        wanted: &Extents,
        ahead: &Mutex<Ahead>,
        is_wanted: StillWanted<'_>,
    ) -> Result<()> {
        let mut steps = in_steps(wanted);
        let mut pattern = ahead.lock();
        for range in wanted.iter() {
            steps = steps.or(&in_steps(&pattern.read(range)));
        }
        drop(pattern);
        let mut until = Instant::now() + PATIENCE;
        loop {
            let mut state = self.state.lock();
            if state.sharing.missing(wanted).is_empty() {
                return Ok(());
            }
            self.must_go_on(is_wanted)?;
            let Some((fetch, ranges)) = state.sharing.fetch(&steps) else {
                self.ended.wait_for(&mut state, LOOK_EVERY);
                continue;
            };
            let before = state.moved.fetched;
            drop(state);
            let fetched = self.fetch(fetch, &ranges, is_wanted);
            let mut state = self.state.lock();
            state.sharing.fetched(fetch, false);
            if state.moved.fetched > before {
                until = Instant::now() + PATIENCE;
            }
            drop(state);
            self.ended.notify_all();
            self.try_again(fetched, until, is_wanted)?;
        }
    }

    fn fetch(&self, fetch: Fetching, ranges: &Extents, is_wanted: StillWanted<'_>) -> Result<()> {
        let coming = Coming {
            shared: self,
            fetch,
            is_wanted,
        };
        let (stat, is_read) = self.at_place(|place| {
            let streams = self.streams_to(place);
            match place.store.read(&place.path, ranges, streams, &coming) {
                // Others, or an earlier delivery of ours, changed the file while it was read.
                Err(StoreError::Changed { .. }) => Ok((place.store.stat(&place.path)?, false)),
                read => Ok((read?.stat, true)),
            }
        })?;
        let version = stat.version(since_epoch());
        let mut state = self.state.lock();
        state.moved.transfers += 1;
        if is_read && is_same(&state.base, &version) {
            state.sharing.fetched(fetch, true);
            return Ok(());
        }
        tracing::info!(url = %self.url.without_password(), "changed at its server while it is shared");
        // The file grows by the next look.
        state.sharing.forget_clean(stat.size);
        state.base = version;
        Ok(())
    }

    fn streams_to(&self, place: &Place) -> usize {
        self.hints.streams_or(streams(place))
    }

    /// Does something where the file is, over connections that are as the hints say.
    fn at_place<T>(&self, mut act: impl FnMut(&Place) -> Result<T>) -> Result<T> {
        let hinted = |place: &Place| act(&place.hinted(&self.hints)?);
        self.depot.at_place(&self.url, &self.who, hinted)
    }

    fn grow(&self, size: u64) -> Result<()> {
        match self.size()? < size {
            true => self.file.set_len(size).map_err(self.bad_disk()),
            false => Ok(()),
        }
    }

    fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(self.bad_disk())?;
        Ok(metadata.len())
    }

    fn bad_disk(&self) -> impl FnOnce(io::Error) -> Error {
        Error::disk(self.depot.disk.root())
    }

    fn must_go_on(&self, is_wanted: StillWanted<'_>) -> Result<()> {
        if self.depot.is_ending() {
            return Err(Error::Ending);
        }
        match is_wanted() {
            true => Ok(()),
            false => Err(Error::Unwanted),
        }
    }

    /// Passes over a fault that may pass, until then.
    fn try_again<T>(
        &self,
        outcome: Result<T>,
        until: Instant,
        is_wanted: StillWanted<'_>,
    ) -> Result<Option<T>> {
        let error = match outcome {
            Ok(done) => return Ok(Some(done)),
            Err(error) => error,
        };
        let is_passing = error.fault() != Fault::Lasting && !matches!(error, Error::Disk { .. });
        if !is_passing || Instant::now() >= until {
            return Err(error);
        }
        self.must_go_on(is_wanted)?;
        tracing::info!(url = %self.url.without_password(), %error, "tried again");
        let mut state = self.state.lock();
        self.ended.wait_for(&mut state, PAUSE);
        Ok(None)
    }

    /// Keeps what comes later off ranges that a program is about to write. Returns where the bytes begin that need no grant
    /// before the next look.
    pub fn grant(&self, ranges: &Extents) -> u64 {
        let mut state = self.state.lock();
        state.sharing.grant(ranges);
        state.sharing.free_from()
    }

    /// Notes that a program has written ranges.
    pub fn wrote(&self, ranges: &Extents) {
        self.state.lock().sharing.wrote(ranges);
    }

    /// Cuts or extends the file.
    pub fn resize(&self, size: u64) -> Result<()> {
        let mut state = self.state.lock();
        let before = self.size()?;
        self.file.set_len(size).map_err(self.bad_disk())?;
        state.sharing.resized(before, size);
        Ok(())
    }

    /// Brings what programs wrote to the server; returns how many bytes that were.
    pub fn deliver(&self, is_wanted: StillWanted<'_>) -> Result<u64> {
        let turn = self.turn.lock();
        let size = self.size()?;
        let delivery = self.state.lock().sharing.deliver(size);
        if delivery.is_empty() {
            return Ok(0);
        }
        let until = Instant::now() + PATIENCE;
        let sent = loop {
            let sent = self.send(&delivery, is_wanted);
            match self.try_again(sent, until, is_wanted) {
                Ok(None) => {}
                Ok(Some(sent)) => break Ok(sent),
                Err(error) => break Err(error),
            }
        };
        let mut state = self.state.lock();
        let (version, bytes) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                state.sharing.failed(&delivery);
                return Err(error);
            }
        };
        state.sharing.delivered(&delivery);
        state.base = version;
        state.moved.delivered += bytes;
        state.moved.transfers += 1;
        drop((state, turn));
        self.who.audit("wrote", &self.url, "");
        self.depot.changed(&self.url);
        Ok(bytes)
    }

    /// Sends a delivery; returns the version of the server's file after it, and how many bytes went.
    fn send(&self, delivery: &Delivery, is_wanted: StillWanted<'_>) -> Result<(Version, u64)> {
        if delivery.is_whole && !self.others_wrote()? {
            return self.replace(delivery.size);
        }
        let sent = self.at_place(|place| {
            if !place.store.can()?.in_place {
                return Ok(None);
            }
            // A file that others removed is not made again: most of its bytes are not here.
            let there = place.store.stat(&place.path)?;
            if let Some(cut) = delivery.cut
                && there.size > cut
            {
                match place.store.set(&place.path, &Set::of_length(cut)) {
                    Err(StoreError::Unsupported { .. }) => return Ok(None),
                    set => set?,
                }
            }
            let streams = self.streams_to(place);
            let write = Write {
                resume: false,
                checks: Checks::default(),
                streams,
                ..Write::with(WriteMode::InPlace)
            };
            if delivery.ranges.is_empty() {
                return Ok(Some((Version::None, 0)));
            }
            let sink = place.store.write(&place.path, &write)?;
            let bytes = self.put(&delivery.ranges, &*sink)?;
            let finished = sink.finish(&Expected::default())?;
            Ok(Some((finished.version, bytes)))
        })?;
        let Some((version, bytes)) = sent else {
            // The server can only replace files: the rest of it is needed here.
            self.ensure(
                &Extents::from(0..delivery.size),
                &Mutex::default(),
                is_wanted,
            )?;
            return self.replace(delivery.size);
        };
        let version = match version {
            Version::None => self.stat()?.version(since_epoch()),
            version => version,
        };
        Ok((version, bytes))
    }

    /// Tells whether the server's file is another than the one that this file was made of.
    fn others_wrote(&self) -> Result<bool> {
        let now = self.stat()?;
        let there = self.state.lock().base.clone();
        Ok(!is_same(&there, &now.version(since_epoch())))
    }

    /// Puts all of the file in the place of the server's, in one step.
    fn replace(&self, size: u64) -> Result<(Version, u64)> {
        self.at_place(|place| {
            let write = Write {
                resume: false,
                size: Some(size),
                streams: self.streams_to(place),
                ..Write::with(WriteMode::Replace(None))
            };
            let sink = place.store.write(&place.path, &write)?;
            let bytes = self.put(&Extents::from(0..size), &*sink)?;
            let finished = sink.finish(&Expected::of_size(size))?;
            let version = match finished.version {
                Version::None => (place.store.stat(&place.path)?).version(since_epoch()),
                version => version,
            };
            Ok((version, bytes))
        })
    }

    fn put(&self, ranges: &Extents, sink: &dyn BlockWriter) -> Result<u64> {
        let path = self.url.as_path();
        let file = &self.file;
        let lying = LocalFile { path, file };
        let mut buffer = Buffer::take();
        let mut bytes = 0;
        for range in ranges.iter() {
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min((at + 1).next_multiple_of(LEAF_BYTES));
                sink.put(lying.block(at..end, &mut buffer)?)?;
                bytes += end - at;
                at = end;
            }
        }
        Ok(bytes)
    }

    fn stat(&self) -> Result<Stat> {
        let looked = self.depot.stat_of(&self.url, &self.who);
        looked.map(|(_, stat)| stat)
    }

    /// Looks at the server, at a time when no program of this machine writes the file. Where the server's file was changed
    /// by others its bytes are fetched anew; `is_changed`: the caller knows that it was.
    pub fn look(&self, is_changed: bool) -> Result<()> {
        let _turn = self.turn.lock();
        let stat = self.stat()?;
        let version = stat.version(since_epoch());
        let mut state = self.state.lock();
        let is_changed = is_changed || !is_same(&state.base, &version);
        state.sharing.looked(stat.size, is_changed);
        state.base = version;
        if !is_changed {
            return Ok(());
        }
        match state.sharing.owes() {
            true => self.grow(stat.size),
            false => self.file.set_len(stat.size).map_err(self.bad_disk()),
        }
    }
}

/// Tells whether a server still has the file of a version; one that tells none may.
fn is_same(then: &Version, now: &Version) -> bool {
    *then == Version::None || *now == Version::None || is_untouched(then, now)
}

/// Puts what comes into the file.
struct Coming<'a> {
    shared: &'a Shared,
    fetch: Fetching,
    is_wanted: StillWanted<'a>,
}

impl BlockWriter for Coming<'_> {
    fn put(&self, block: Block<'_>) -> godwit_store::Result<()> {
        if !(self.is_wanted)() {
            return Err(StoreError::Canceled);
        }
        let mut state = self.shared.state.lock();
        state.moved.fetched += block.bytes.len() as u64;
        for range in state.sharing.arrived(self.fetch, block.range()).iter() {
            let at = (range.start - block.offset) as usize..(range.end - block.offset) as usize;
            let written = (self.shared.file).write_all_at(&block.bytes[at], range.start);
            written.map_err(|cause| StoreError::io(self.shared.depot.disk.root(), cause))?;
        }
        Ok(())
    }
}

/// How long a server may be away before who waits for it is told.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);
