//! A store around another: what is written is kept here and delivered later, what
//! is read is what is kept here, or what is there.
//!
//! Uploads come into a directory of the depot first, as into any: they are
//! resumed, taken over and verified there. Once whole, a file is a holding, and
//! its writer is told so when that survives a power cut: only then is it ours to
//! deliver.

use crate::{
    By, Depot, Error, Fresh, Pending, Put, Scope, Stage, Who, Writing, error::is_missing,
    paths::is_at_or_below, work::probe::OURS,
};
use godwit_core::{Algorithm, Block, Chain, Digest, Extents, Url, Version, holding::Base};
use godwit_store::{
    BlockWriter, BlockWriterExt, Capabilities, Dir, Entry as DirEntry, EntryKind,
    Error as StoreError, Expected, Finished, HopStatus, LocalFile, Opener, PASSED_MAX, Read,
    Remedy, RemovalKind, Result, Set, Sink, SinkFacets, Space, Stat, Store, StoreExt, Write,
    WriteMode, channel::Watch, engine::Place,
};
use godwit_sys::{Buffer, crash};
use names::is_away;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, UNIX_EPOCH},
};

mod cached;
mod names;

/// A store whose writes are kept in a depot on their way.
#[derive(Clone)]
pub struct Spooled {
    depot: Arc<Depot>,
    /// Where its root is.
    next: Url,
    who: Who,
    /// Uploads until they are whole.
    incoming: Dir,
    root: PathBuf,
    /// The name of this node in the list of nodes that forwarded a file.
    us: Arc<str>,
    /// The client for which something is done; empty: this node.
    client: Arc<str>,
    /// One of a name at a time becomes ours: they come to lie in the same place first.
    names: Arc<[Mutex<()>; NAMES]>,
    /// Files that are read are cached as well.
    keeps: bool,
}

impl std::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} by way of {:?}", self.next, self.depot)
    }
}

impl Spooled {
    /// Returns the store at `next` as seen through a depot, for a node that is called `us`. What had come whole
    /// when the depot ended, and was not kept yet, is forgotten: its writer was not told, and has it.
    pub fn new(depot: Arc<Depot>, next: Url, who: Who, us: &str) -> crate::Result<Self> {
        let root = depot.root().join("incoming");
        let made = match root.is_dir() {
            true => Ok(()),
            false => fs::create_dir(&root),
        };
        made.map_err(Error::disk(&root))?;
        let incoming = Dir::open(&root, "the depot", Opener::Myself)?;
        let spooled = Self {
            depot,
            next,
            who,
            incoming,
            root,
            us: us.into(),
            client: "".into(),
            names: Arc::new(std::array::from_fn(|_| Mutex::new(()))),
            keeps: false,
        };
        spooled.forget_what_came()?;
        Ok(spooled)
    }

    /// Has what is read by way of it be kept as well, for those who read it again.
    pub fn keeping(self) -> Self {
        Self {
            keeps: true,
            ..self
        }
    }

    /// Returns the store of another user: unfinished uploads are apart.
    pub fn of(&self, identity: &str) -> Result<Self> {
        let incoming = Dir::open(&self.root, identity, Opener::Myself)?;
        Ok(Self {
            incoming,
            client: identity.into(),
            ..self.clone()
        })
    }

    /// Returns where uploads lie that are not finished.
    pub fn incoming(&self) -> &Dir {
        &self.incoming
    }

    /// Returns where its root is.
    pub fn next(&self) -> &Url {
        &self.next
    }

    /// Returns the depot.
    pub fn depot(&self) -> &Arc<Depot> {
        &self.depot
    }

    fn url(&self, path: &Path) -> Result<Url> {
        if path.as_os_str().is_empty() {
            return Ok(self.next.clone());
        }
        let url = self.next.join(path.as_os_str().as_bytes());
        url.map_err(|bad| StoreError::bad_name(path, bad.to_string()))
    }

    /// Returns what something at the next is called here.
    fn path_of(&self, url: &Url) -> PathBuf {
        let root = self.next.path();
        let below = url.path().strip_prefix(root).unwrap_or(url.path());
        let below = below.strip_prefix(b"/").unwrap_or(below);
        std::ffi::OsStr::from_bytes(below).into()
    }

    /// Returns the local path of a path at the next node; `None`: it is not below our root.
    fn name_here(&self, there: &Path) -> Option<PathBuf> {
        let url = self.next.with_path(there.as_os_str().as_bytes()).ok()?;
        is_at_or_below(&url, &self.next).then(|| self.path_of(&url))
    }

    /// Returns where something is at the next, by the name that it has there still.
    fn there(&self, path: &Path) -> Result<Place> {
        self.depot.inner.place_of(&self.url(path)?, &self.who)
    }

    /// Returns what is here of a name and not there.
    fn pending(&self, path: &Path) -> Result<Option<crate::Reading>> {
        let url = self.url(path)?;
        let entry = self.depot.inner.plan().current_of(&url, &self.who);
        let is_pending = entry.is_some_and(|entry| {
            let state = entry.lock();
            !state.is_gone && state.machine.owes()
        });
        match is_pending {
            true => {
                (self.depot.read(&url, &self.who, Fresh::Any).map(Some)).map_err(self.told(path))
            }
            false => Ok(None),
        }
    }

    fn forget_what_came(&self) -> crate::Result<()> {
        let mut whole = Vec::new();
        self.incoming.walk(Path::new(""), &mut |entry| {
            if entry.stat.kind == EntryKind::File {
                whole.push(entry.path);
            }
            Ok(())
        })?;
        for path in whole {
            tracing::info!(path = %path.display(), "what had come was not ours yet; its writer sends it again");
            self.incoming.remove(&path, RemovalKind::File)?;
        }
        Ok(())
    }

    /// Refuses what we passed on already, or so many others that it goes in a circle too.
    fn must_not_circle(&self, path: &Path, passed: &[String]) -> Result<()> {
        let said = match passed.iter().any(|node| **node == *self.us) {
            true => "this node passed it on already: it goes in a circle".to_owned(),
            false if passed.len() >= PASSED_MAX => {
                format!(
                    "{} nodes passed it on already, and no more may",
                    passed.len()
                )
            }
            false => return Ok(()),
        };
        Err(StoreError::looped(path, said))
    }

    /// Returns who passed it on, and us.
    fn and_us(&self, passed: &[String]) -> Vec<String> {
        let mut passed = passed.to_vec();
        passed.push((*self.us).to_owned());
        passed
    }

    /// Returns the pending entries and operations at a name or below it.
    fn on_their_way(&self, path: &Path) -> Result<Vec<Pending>> {
        let root = self.url(path)?;
        let root = root.path().strip_suffix(b"/").unwrap_or(root.path());
        let is_meant = |pending: &Pending| match pending.url.path().strip_prefix(root) {
            Some(below) => {
                let is_below = root.is_empty() || below.is_empty() || below[0] == b'/';
                pending.is_committed && is_below
            }
            None => false,
        };
        Ok(self.depot.queue().into_iter().filter(is_meant).collect())
    }

    /// Waits, not for long, until nothing of a name, or below it, is on its way.
    fn settle(&self, path: &Path) -> Result<()> {
        for pending in self.on_their_way(path)? {
            self.settle_one(path, &pending)?;
        }
        Ok(())
    }

    fn settle_one(&self, path: &Path, pending: &Pending) -> Result<()> {
        let time = (Some(Instant::now() + SETTLE), Some(SETTLE));
        let scope = Scope::Url(pending.url.clone());
        let arrived = self.depot.arrive(&scope, time, &|| true);
        match arrived {
            Err(Error::TimedOut { what, .. }) => Err(StoreError::busy(
                self.next.host_port(),
                format!("what was asked waits for what is on its way: {what}"),
            )),
            arrived => arrived.map_err(self.told(path)),
        }
    }

    /// Converts errors of the depot to those of a store.
    fn told<'a>(&'a self, path: &'a Path) -> impl Fn(Error) -> StoreError + 'a {
        move |error| {
            let busy = |said: String| StoreError::busy(self.next.host_port(), said);
            match error {
                Error::Store(error) => match Arc::try_unwrap(error) {
                    Ok(StoreError::Held {
                        host,
                        path: there,
                        said,
                        cause,
                    }) => StoreError::Held {
                        host,
                        path: self.name_here(&there).unwrap_or_else(|| path.into()),
                        said,
                        cause,
                    },
                    Ok(error) => error,
                    Err(error) => busy(error.to_string()),
                },
                // There will be room again.
                Error::Full { .. } => busy(format!("the hop before it is full: {error}")),
                Error::TooLarge { .. } => StoreError::no_space(path, error.to_string()),
                Error::Held { url, why, .. } => StoreError::Held {
                    host: String::new(),
                    path: self.path_of(&url),
                    cause: self.depot.why_on_hold(&url),
                    said: why,
                },
                Error::Disk { path, cause } => {
                    let cause = std::io::Error::new(cause.kind(), cause.to_string());
                    self.full(StoreError::io(path, cause))
                }
                Error::Unwanted => StoreError::Canceled,
                Error::GoneBehind { .. } => StoreError::missing(path),
                error => busy(error.to_string()),
            }
        }
    }

    /// Looks at what is on its way, or at the next.
    fn look(&self, path: &Path) -> Result<Stat> {
        let Some(reading) = self.pending(path)? else {
            let url = self.url(path)?;
            let inner = &self.depot.inner;
            let stat = || inner.stat_of(&url, &self.who).map(|(_, stat)| stat);
            let looked = inner.surely((&url, &self.who), stat);
            // It was removed there, so that it is not shown as cached later on.
            let missing = looked.as_ref().err().and_then(Error::of_store);
            if missing.is_some_and(is_missing) {
                self.depot.changed(&url);
            }
            let looked = looked.or_else(|error| self.stat_kept(&url, error));
            return match looked.map_err(self.told(path)) {
                Err(_) if self.is_promised_directory(&url) => Ok(Stat::of(EntryKind::Directory, 0)),
                looked => looked,
            };
        };
        let meta = reading.file().metadata();
        let meta = meta.map_err(|cause| StoreError::io(path, cause))?;
        let changed = meta.modified().ok();
        // Its time is of here, and its target will give it another: what it is like says which version it is.
        let (size, digest) = self.depot.inner.known_as(reading.entry());
        Ok(Stat {
            mtime: changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok()),
            digest,
            ..Stat::of(EntryKind::File, size)
        })
    }

    /// Names the node behind this one as the node that cannot be reached.
    fn beyond(&self, error: StoreError) -> StoreError {
        match is_away(&error) {
            true => StoreError::beyond(
                String::new(),
                format!(
                    "the next node, {}, cannot be reached, and without it only what is on its way there is known: {error}",
                    self.next.without_password()
                ),
            ),
            false => error,
        }
    }

    /// Makes a full disk a passing fault: pending files are delivered, and free it.
    fn full(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::NoSpace { .. } => StoreError::busy(
                self.next.host_port(),
                "the disk of the hop before it is full",
            ),
            error => error,
        }
    }

    fn alone_with(&self, path: &Path) -> MutexGuard<'_, ()> {
        let bytes = path.as_os_str().as_bytes().iter();
        let sum = bytes.fold(0usize, |sum, &byte| {
            sum.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        self.names[sum % NAMES].lock()
    }
}

fn digest_of(file: &fs::File, by: Algorithm, range: Range<u64>) -> std::io::Result<Digest> {
    let mut hashing = godwit_core::Hashing::new(by);
    let mut buffer = Buffer::take();
    let mut left = Extents::from(range);
    while let Some(range) = left.take_aligned(godwit_core::LEAF_BYTES) {
        let bytes = &mut buffer[..(range.end - range.start) as usize];
        file.read_exact_at(bytes, range.start)?;
        hashing.update(bytes);
    }
    Ok(hashing.finish())
}

impl Store for Spooled {
    fn can(&self) -> Result<Capabilities> {
        let mut can = self.incoming.can()?;
        can.xattrs = false;
        can.leaves = false;
        can.passes_on = true;
        can.links = false;
        can.digests = vec![OURS];
        Ok(can)
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        self.look(path).map_err(|error| self.beyond(error))
    }

    /// Lists the files of the next node, with the pending changes applied.
    fn list(&self, path: &Path, each: &mut dyn FnMut(DirEntry) -> Result<()>) -> Result<()> {
        let mut ours: BTreeMap<PathBuf, ()> = BTreeMap::new();
        let root = self.url(path)?;
        for ((url, _), entry) in &self.depot.inner.plan().current {
            let is_below = url.parent().is_some_and(|parent| {
                parent.path().strip_suffix(b"/").unwrap_or(parent.path())
                    == root.path().strip_suffix(b"/").unwrap_or(root.path())
            });
            if is_below
                && entry.lock().machine.owes()
                && let Some(name) = url.file_name()
            {
                ours.insert(std::ffi::OsStr::from_bytes(name).into(), ());
            }
        }
        let promised = self.promised_in(&root)?;
        for name in promised.iter().flatten() {
            ours.insert(name.clone(), ());
        }
        let mut entry_there = |entry: DirEntry| {
            if ours.remove(&entry.path).is_some() {
                return self.each_promised(path, entry.path, each);
            }
            match promised {
                Some(_) => self.each_promised(path, entry.path, each),
                None => each(entry),
            }
        };
        let place = self.there(path);
        let listed = place.and_then(|place| place.store.list(&place.path, &mut entry_there));
        match listed {
            Err(StoreError::Missing { .. })
                if !ours.is_empty() || self.is_promised_directory(&root) => {}
            // Before it is made, nothing is in it but what comes from here.
            Err(error) if is_away(&error) && self.is_promised_directory(&root) => {}
            // The caller gets the names that are known here, and an error that says that the list is incomplete.
            Err(error) if is_away(&error) => {
                for name in ours.into_keys() {
                    match self.each_promised(path, name, each) {
                        Err(StoreError::Beyond { .. }) => {}
                        told => told?,
                    }
                }
                return Err(self.beyond(error));
            }
            listed => listed.map_err(|error| self.beyond(error))?,
        }
        for name in ours.into_keys() {
            self.each_promised(path, name, each)?;
        }
        Ok(())
    }

    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read> {
        let Some(reading) = self.pending(path)? else {
            if self.keeps
                && let Some(read) = self.read_kept(path, want, into)?
            {
                return Ok(read);
            }
            let read = self
                .depot
                .inner
                .at_place(&self.url(path)?, &self.who, |place| {
                    Ok(place.store.read(&place.path, want, streams, into)?)
                });
            return (read.map_err(self.told(path))).map_err(|error| self.beyond(error));
        };
        let mut left: Extents = want.within(0..reading.size()).collect();
        let mut buffer = Buffer::take();
        let lying = LocalFile {
            path,
            file: reading.file(),
        };
        while let Some(range) = left.take_aligned(godwit_core::LEAF_BYTES) {
            into.put_from(&lying, range, &mut buffer)?;
        }
        Ok(Read {
            stat: self.stat(path)?,
            digest: None,
        })
    }

    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        self.must_not_circle(path, write.passed)?;
        let base = match &write.how {
            WriteMode::New => Base::Absent,
            WriteMode::Replace(None) => Base::Any,
            WriteMode::Replace(Some(version)) => Base::Seen(version.clone()),
            WriteMode::InPlace => return self.write_patch(path, write.passed),
            WriteMode::Append { seq, .. } if *seq > 0 => return self.append(path, write),
            WriteMode::Append { .. } => {
                return Err(StoreError::unsupported(
                    "appending by way of a hop",
                    "what has no number could come to be there twice",
                ));
            }
        };
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            let folder = self.root.join(folder);
            fs::create_dir_all(&folder).map_err(|cause| StoreError::io(path, cause))?;
        }
        let room = Taken {
            spooled: self.clone(),
            url: self.url(path)?,
            bytes: Mutex::new(0),
        };
        if let Some(size) = write.size {
            // All of it at once, or two could wait for each other half way.
            room.take(size, Duration::ZERO).map_err(self.told(path))?;
        }
        let here = Write {
            how: WriteMode::Replace(None),
            ..write.clone()
        };
        let sink = self.incoming.write(path, &here);
        Ok(Box::new(Coming {
            path: path.into(),
            base,
            upload: write.id.map(Into::into),
            passed: self.and_us(write.passed),
            mode: write.mode,
            sink: sink.map_err(|error| self.full(error))?,
            room,
        }))
    }

    fn remove(&self, path: &Path, what: RemovalKind) -> Result<()> {
        self.remove_in_turn(path, what)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.rename_in_turn(from, to)
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        self.mkdir_in_turn(path)
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        (self.set_in_turn(path, set)).map_err(|error| self.beyond(error))
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        let Some(reading) = self.pending(path)? else {
            let (inner, url) = (&self.depot.inner, self.url(path)?);
            let asked = inner.surely((&url, &self.who), || {
                inner.at_place(&url, &self.who, |place| {
                    Ok(place.store.digest(&place.path, by, range.clone())?)
                })
            });
            let told = asked.or_else(|error| self.digest_kept(path, by, range, error));
            return (told.map_err(self.told(path))).map_err(|error| self.beyond(error));
        };
        if by == OURS
            && range.is_none()
            && let Some(known) = self.depot.inner.known_as(reading.entry()).1
        {
            return Ok(known);
        }
        let range = range.unwrap_or(0..reading.size());
        let digest = digest_of(reading.file(), by, range);
        digest.map_err(|cause| StoreError::io(path, cause))
    }

    godwit_store::has!(self, Facets: transit volume);
}

impl godwit_store::Transit for Spooled {
    /// Returns at once: a file that this depot has is durable, and will be delivered.
    fn flush(&self, path: &Path) -> Result<()> {
        let scope = Scope::Url(self.url(path)?);
        self.depot.commit(&scope).map_err(self.told(path))
    }

    fn push(&self, path: &Path, watch: Option<&Watch>) -> Result<()> {
        let url = self.url(path)?;
        let is_wanted = || watch.is_none_or(|watch| !watch.canceled().is_canceled());
        let whose = (&url, &self.who);
        let pushed = self
            .depot
            .push_through(whose, watch.and_then(Watch::left), &is_wanted);
        pushed.map_err(self.told(path))
    }

    fn published_as(&self, path: &Path, id: &str) -> Result<Option<Version>> {
        let url = self.url(path)?;
        Ok(self.depot.came_as(&url, id))
    }

    fn trace(&self, path: &Path, passed: &[String]) -> Result<Vec<HopStatus>> {
        self.must_not_circle(path, passed)?;
        let url = self.url(path)?;
        let mut pending = self
            .depot
            .queue()
            .into_iter()
            .filter(|pending| pending.url == url);
        let here = match pending.next_back() {
            Some(pending) => self.station(&pending),
            None => HopStatus {
                stage: "passed".into(),
                ..HopStatus::default()
            },
        };
        let passed = self.and_us(passed);
        let downstream = self.there(path);
        let downstream = downstream.and_then(|place| place.store.trace(&place.path, &passed));
        let mut all = vec![here];
        all.extend(match downstream {
            Ok(mut downstream) => {
                for station in &mut downstream {
                    let name = station.waits_for.take();
                    station.waits_for = name.and_then(|name| self.name_here(&name));
                }
                downstream
            }
            Err(error) => vec![HopStatus::away(String::new(), &error)],
        });
        if let Some(next) = all.get_mut(1).filter(|next| next.at.is_empty()) {
            next.at = self.next.host_port();
        }
        Ok(all)
    }

    fn decide(&self, path: &Path, what: Remedy, passed: &[String]) -> Result<()> {
        self.must_not_circle(path, passed)?;
        let mut pending = self.depot.queue_of(&Scope::Url(self.url(path)?));
        pending.retain(|pending| pending.stage == Stage::Held);
        let Some(entry) = pending.first() else {
            let place = self.there(path)?;
            return place.store.decide(&place.path, what, &self.and_us(passed));
        };
        let decided = match what {
            Remedy::Retry => self.depot.retry(&entry.id),
            Remedy::Release => self.depot.release(&entry.id),
            Remedy::Drop => self.depot.discard(&entry.id),
        };
        decided.map_err(self.told(path))
    }
}

impl godwit_store::Volume for Spooled {
    fn space(&self, path: &Path) -> Result<Space> {
        let _ = path;
        StoreExt::space(&self.incoming, Path::new(""))
    }
}

impl Spooled {
    /// Describes a pending entry for a client, which has other names for it, and other commands.
    fn station(&self, pending: &Pending) -> HopStatus {
        let stage = match pending.stage {
            Stage::Open => "writing",
            Stage::Queued => "queued",
            Stage::Sending => "sending",
            Stage::Waiting { .. } => "waiting",
            Stage::Held => "held",
        };
        let first = pending.waits_for.as_ref();
        let first = first.filter(|_| pending.stage == Stage::Queued);
        let first = first.map(|first| (first, self.path_of(&first.url)));
        let why = match &first {
            Some((first, name)) => first.words_at(&name.to_string_lossy()),
            None => pending.why.clone(),
        };
        HopStatus {
            at: String::new(),
            stage: stage.into(),
            size: pending.size,
            owed: pending.pending_bytes,
            age: Some(pending.age),
            why,
            waits_for: first
                .filter(|(first, _)| first.is_held)
                .map(|(_, name)| name),
        }
    }

    /// Passes pieces to the next node as they come, with the numbers of their writer. A writer without an answer sends a
    /// piece again, and it counts once. So a hop keeps none of them; while the next node is away the writer does.
    fn append(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>> {
        self.settle(path)?;
        let place = self.there(path)?;
        let passed = self.and_us(write.passed);
        let write = Write {
            passed: &passed,
            ..write.clone()
        };
        place.store.write(&place.path, &write)
    }

    fn write_patch(&self, path: &Path, passed: &[String]) -> Result<Box<dyn Sink>> {
        let url = self.url(path)?;
        let writing = self.depot.patch(&url, &self.who, &self.client);
        let writing = writing.map_err(self.told(path))?;
        writing.forwarded_by(&self.and_us(passed));
        Ok(Box::new(Inside {
            spooled: self.clone(),
            path: path.into(),
            writing,
            done: Mutex::default(),
        }))
    }
}

impl Spooled {
    /// Keeps an empty file that a patch made.
    fn keep_empty(&self, path: &Path) -> Result<()> {
        let put = Put {
            base: Base::Any,
            session: self.client.to_string(),
        };
        let writing = self.depot.put(&self.url(path)?, &self.who, &put);
        let ended = writing.and_then(Writing::end);
        ended.map(drop).map_err(self.told(path))
    }

    /// Has it be no longer than that, behind what is on its way: what is written into a file only makes it longer.
    fn cut_downstream(&self, path: &Path, size: u64) -> Result<()> {
        let url = self.url(path)?;
        if self.is_no_longer(path, &url, size) {
            return Ok(());
        }
        let by = By {
            who: &self.who,
            session: &self.client,
            is_wanted: &|| true,
        };
        (self.depot.truncate(&url, size, by)).map_err(self.told(path))
    }

    /// Tells whether it is known to be no longer than that, here and where it goes.
    fn is_no_longer(&self, path: &Path, url: &Url, size: u64) -> bool {
        let plan = self.depot.inner.plan();
        let here = plan.current_of(url, &self.who).map(|entry| {
            let state = entry.lock();
            (state.machine.size(), state.machine.is_blind())
        });
        let is_set = plan.order.is_resized(url);
        drop(plan);
        match here {
            Some((here, _)) if here > size => false,
            Some((_, false)) => true,
            _ if is_set => false,
            _ => {
                let there = self.depot.inner.stat_of(url, &self.who);
                match there.map_err(self.told(path)) {
                    Ok((_, stat)) => stat.size <= size,
                    Err(error) => matches!(error, StoreError::Missing { .. }),
                }
            }
        }
    }
}

/// A file that comes, and is kept when it is whole.
struct Coming {
    path: PathBuf,
    base: Base,
    upload: Option<String>,
    passed: Vec<String>,
    /// Permission bits that it is to have where it is new.
    mode: Option<u32>,
    sink: Box<dyn Sink>,
    room: Taken,
}

/// Room that is reserved for an upload.
struct Taken {
    spooled: Spooled,
    url: Url,
    bytes: Mutex<u64>,
}

impl Taken {
    /// Reserves room up to the end of the next block. Without room the sender waits, `patience` at most.
    fn take(&self, end: u64, patience: Duration) -> crate::Result<()> {
        let (inner, until) = (&self.spooled.depot.inner, Instant::now() + patience);
        let quota = inner.room.quota().unwrap_or(u64::MAX);
        loop {
            let mut taken = self.bytes.lock();
            let Some(lacks) = end.checked_sub(*taken).filter(|lacks| *lacks > 0) else {
                return Ok(());
            };
            inner.room.could_hold(&self.url, end)?;
            // In large pieces, for few questions; but never more than there could be.
            let more = match patience.is_zero() {
                true => lacks,
                false => lacks.max(ROOM_STEP).min(quota - *taken),
            };
            match inner.reserve(&self.url, more) {
                Ok(()) => {
                    *taken += more;
                    return Ok(());
                }
                Err(Error::Full { .. }) if Instant::now() < until => {}
                Err(error) => return Err(error),
            }
            drop(taken);
            inner.wait_for_room()?;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let taken = *self.bytes.lock();
        self.spooled.depot.inner.room.release(taken);
        self.spooled.depot.inner.nudge();
    }
}

impl Coming {
    fn make_room(&self, end: u64) -> Result<()> {
        let room = self.room.take(end, ROOM_PATIENCE);
        room.map_err(self.room.spooled.told(&self.path))
    }

    fn full<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.room.spooled.full(error))
    }
}

impl BlockWriter for Coming {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.make_room(block.range().end)?;
        self.full(self.sink.put(block))
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.sink.said(leaf, chain)
    }

    godwit_store::has!(self, Fast);
}

impl godwit_store::Fast for Coming {
    fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
        self.make_room(range.end)?;
        self.full(self.sink.put_from(file, range, buffer))
    }
}

impl Sink for Coming {
    fn done(&self) -> Extents {
        self.sink.done()
    }

    fn settle(&self) -> Result<Extents> {
        self.sink.settle()
    }

    fn commit(&self) -> Result<Extents> {
        self.full(self.sink.commit())
    }

    /// Only when this returns is it ours to deliver, and its writer may forget it.
    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        let Self {
            path,
            base,
            upload,
            passed,
            mode,
            sink,
            room,
        } = *self;
        let spooled = &room.spooled;
        let url = spooled.url(&path)?;
        let file = spooled.root.join(&path);
        let adopted = crate::api::write::Adopted {
            file: &file,
            base: &base,
            upload: upload.as_deref(),
            upstream: &passed,
            session: &spooled.client,
            mode: whole.mode.or(mode),
        };
        let alone = spooled.alone_with(&path);
        let finished = sink.finish(whole).map_err(|error| spooled.full(error))?;
        crash::point("hop-whole");
        let kept = spooled.depot.adopt(&url, &spooled.who, &adopted);
        drop(alone);
        kept.map_err(spooled.told(&path))?;
        crash::point("hop-kept");
        Ok(finished)
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        self.sink.abandon()
    }

    godwit_store::has!(self, SinkFacets:; SinkFacets { direct: None, ..self.sink.facets() });
}

/// Ranges that go into a file at the target.
struct Inside {
    spooled: Spooled,
    path: PathBuf,
    writing: Writing,
    done: Mutex<Extents>,
}

impl BlockWriter for Inside {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let written = self.writing.write(block.offset, block.bytes);
        written.map_err(self.spooled.told(&self.path))?;
        let mut done = self.done.lock();
        done.insert(block.range());
        Ok(())
    }
}

impl Sink for Inside {
    fn done(&self) -> Extents {
        let done = self.done.lock();
        done.clone()
    }

    fn commit(&self) -> Result<Extents> {
        let committed = self.writing.commit();
        committed.map_err(self.spooled.told(&self.path))?;
        Ok(self.done())
    }

    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished> {
        let Self {
            path,
            writing,
            spooled,
            ..
        } = *self;
        match whole.size {
            Some(0) => spooled.keep_empty(&path)?,
            size => {
                writing.end().map_err(spooled.told(&path))?;
                size.map_or(Ok(()), |size| spooled.cut_downstream(&path, size))?;
            }
        }
        Ok(Finished {
            in_place: true,
            ..Finished::default()
        })
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    godwit_store::has!(self, SinkFacets: resume);
}

impl godwit_store::Resume for Inside {
    fn is_in_place(&self) -> bool {
        true
    }
}

/// How long what is asked about a name waits for what is on its way there.
const SETTLE: Duration = Duration::from_secs(10);

/// How long a writer is held back where there is no room, before it is told so.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// So much is taken at once for what comes without saying how long it is.
const ROOM_STEP: u64 = 4 << 20;

const NAMES: usize = 64;
