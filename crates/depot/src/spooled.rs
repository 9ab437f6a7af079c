//! A store around another: what is written is kept here and delivered later, what
//! is read is what is kept here, or what is there.
//!
//! Uploads come into a directory of the depot first, as into any: they are
//! resumed, taken over and verified there. Once whole, a file is a holding, and
//! its writer is told so when that survives a power cut: only then is it ours to
//! deliver.

use crate::{Depot, Error, Fresh, Scope, Who, Writing, reading::OURS};
use godwit_core::{Algorithm, Block, Chain, Digest, Extents, Url, Version, holding::Base};
use godwit_store::{
    Can, Dir, Entry, Error as StoreError, Finished, How, Kind, Lying, Opener, Read, Result, Set,
    Sink, Space, Stat, Store, Take, What, Whole, Write, channel::Watch, engine::Place,
};
use godwit_sys::Buffer;
use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, UNIX_EPOCH},
};

/// A store whose writes are kept in a depot on their way.
#[derive(Clone)]
pub struct Spooled {
    depot: Arc<Depot>,
    /// Where its root is.
    next: Url,
    who: Who,
    /// What comes in, until it is whole.
    incoming: Dir,
    root: PathBuf,
}

impl std::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} by way of {:?}", self.next, self.depot)
    }
}

impl Spooled {
    /// Returns the store at `next` as seen through a depot. What had come whole and was not kept yet when
    /// the depot ended is kept now.
    pub fn new(depot: Arc<Depot>, next: Url, who: Who) -> crate::Result<Self> {
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
        };
        spooled.keep_what_came()?;
        Ok(spooled)
    }

    fn url(&self, path: &Path) -> Result<Url> {
        if path.as_os_str().is_empty() {
            return Ok(self.next.clone());
        }
        let url = self.next.join(path.as_os_str().as_bytes());
        url.map_err(|bad| StoreError::BadName {
            path: path.into(),
            why: bad.to_string(),
        })
    }

    fn there(&self, path: &Path) -> Result<Place> {
        (self.depot.inner.connect)(&self.url(path)?, &self.who)
    }

    /// Returns what is here of a name and not there.
    fn owed(&self, path: &Path) -> Result<Option<crate::Reading>> {
        let url = self.url(path)?;
        let key = (url.clone(), self.who.audience.clone());
        let held = self.depot.inner.all().current.get(&key).cloned();
        let is_owed = held.is_some_and(|held| {
            let state = held.lock();
            !state.is_gone && state.machine.owes()
        });
        match is_owed {
            true => {
                (self.depot.read(&url, &self.who, Fresh::Any).map(Some)).map_err(of_store(path))
            }
            false => Ok(None),
        }
    }

    fn keep_what_came(&self) -> crate::Result<()> {
        let mut whole = Vec::new();
        self.incoming.walk(Path::new(""), &mut |entry| {
            if entry.stat.kind == Kind::File {
                whole.push(entry.path);
            }
            Ok(())
        })?;
        for path in whole {
            tracing::info!(path = %path.display(), "keep what had come before the end");
            self.keep(&path, &Base::Any, None)?;
        }
        Ok(())
    }

    /// Has what came whole be ours to deliver.
    fn keep(&self, path: &Path, base: &Base, upload: Option<&str>) -> crate::Result<()> {
        let url = self.url(path)?;
        let file = self.root.join(path);
        let adopted = crate::writing::Adopted {
            file: &file,
            base,
            upload,
        };
        self.depot.adopt(&url, &self.who, &adopted)
    }
}

/// What our errors are to whoever uses us as a store.
fn of_store(path: &Path) -> impl Fn(Error) -> StoreError + '_ {
    |error| match error {
        Error::Store(error) => match Arc::try_unwrap(error) {
            Ok(error) => error,
            Err(error) => StoreError::Busy {
                host: "the next".into(),
                said: error.to_string(),
                again_in: None,
            },
        },
        Error::Full { .. } | Error::TooLarge { .. } => StoreError::NoSpace {
            path: path.into(),
            said: error.to_string(),
        },
        Error::Held { why, .. } => StoreError::Refused {
            host: "the next".into(),
            code: 550,
            said: why,
        },
        Error::Disk { path, cause } => {
            StoreError::io(path, std::io::Error::new(cause.kind(), cause.to_string()))
        }
        error => StoreError::Busy {
            host: "the depot".into(),
            said: error.to_string(),
            again_in: None,
        },
    }
}

impl Store for Spooled {
    fn distance(&self) -> Duration {
        Duration::ZERO
    }

    fn can(&self) -> Result<Can> {
        let mut can = self.incoming.can()?;
        can.append = false;
        can.xattrs = false;
        can.digests = vec![OURS];
        Ok(can)
    }

    fn stat(&self, path: &Path) -> Result<Stat> {
        let Some(reading) = self.owed(path)? else {
            let place = self.there(path)?;
            return place.store.stat(&place.path);
        };
        let meta = reading.file().metadata();
        let meta = meta.map_err(|cause| StoreError::io(path, cause))?;
        let changed = meta.modified().ok();
        Ok(Stat {
            kind: Kind::File,
            size: reading.size(),
            mtime: changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok()),
            mode: None,
            owner: None,
            group: None,
            target: None,
            unique: None,
        })
    }

    /// What is there, and what is on its way there.
    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        let mut ours: BTreeMap<PathBuf, ()> = BTreeMap::new();
        let root = self.url(path)?;
        for owed in self.depot.queue() {
            let is_below = owed.url.parent().is_some_and(|parent| {
                parent.path().strip_suffix(b"/").unwrap_or(parent.path())
                    == root.path().strip_suffix(b"/").unwrap_or(root.path())
            });
            if is_below
                && owed.is_committed
                && let Some(name) = owed.url.file_name()
            {
                ours.insert(std::ffi::OsStr::from_bytes(name).into(), ());
            }
        }
        let place = self.there(path)?;
        let listed = place.store.list(&place.path, &mut |entry| {
            if ours.remove(&entry.path).is_some() {
                let stat = self.stat(&path.join(&entry.path))?;
                return each(Entry { stat, ..entry });
            }
            each(entry)
        });
        match listed {
            Err(StoreError::Missing { .. }) if !ours.is_empty() => {}
            listed => listed?,
        }
        for name in ours.into_keys() {
            let stat = self.stat(&path.join(&name))?;
            each(Entry { path: name, stat })?;
        }
        Ok(())
    }

    fn read(&self, path: &Path, want: &Extents, streams: usize, into: &dyn Take) -> Result<Read> {
        let Some(reading) = self.owed(path)? else {
            let place = self.there(path)?;
            return place.store.read(&place.path, want, streams, into);
        };
        let mut left: Extents = want.within(0..reading.size()).collect();
        let mut buffer = Buffer::take();
        let lying = Lying {
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
        let base = match &write.how {
            How::New => Base::Absent,
            How::Replace(None) => Base::Any,
            How::Replace(Some(version)) => Base::Seen(version.clone()),
            How::InPlace => return self.write_into(path),
            How::Append { .. } => {
                return Err(StoreError::Unsupported {
                    what: "appending by way of a depot".into(),
                    why: "what is appended goes to its file at once".into(),
                });
            }
        };
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            let folder = self.root.join(folder);
            fs::create_dir_all(&folder).map_err(|cause| StoreError::io(path, cause))?;
        }
        if let Some(size) = write.size {
            let room = self.depot.inner.reserve(&self.url(path)?, size);
            room.map_err(of_store(path))?;
            self.depot.inner.room.release(size);
        }
        let here = Write {
            how: How::Replace(None),
            ..write.clone()
        };
        let sink = self.incoming.write(path, &here)?;
        Ok(Box::new(Coming {
            spooled: self.clone(),
            path: path.into(),
            base,
            upload: write.id.map(Into::into),
            sink,
        }))
    }

    fn remove(&self, path: &Path, what: What) -> Result<()> {
        let place = self.there(path)?;
        place.store.remove(&place.path, what)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (place, to) = (self.there(from)?, self.there(to)?);
        self.push(from)?;
        place.store.rename(&place.path, &to.path)
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        let place = self.there(path)?;
        place.store.mkdir(&place.path)
    }

    fn set(&self, path: &Path, set: &Set) -> Result<()> {
        self.push(path)?;
        let place = self.there(path)?;
        place.store.set(&place.path, set)
    }

    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest> {
        let Some(reading) = self.owed(path)? else {
            let place = self.there(path)?;
            return place.store.digest(&place.path, by, range);
        };
        let range = range.unwrap_or(0..reading.size());
        let mut hashing = godwit_core::Hashing::new(by);
        let mut buffer = Buffer::take();
        let mut left = Extents::from(range);
        while let Some(range) = left.take_aligned(godwit_core::LEAF_BYTES) {
            let bytes = &mut buffer[..(range.end - range.start) as usize];
            let read = reading.file().read_exact_at(bytes, range.start);
            read.map_err(|cause| StoreError::io(path, cause))?;
            hashing.update(bytes);
        }
        Ok(hashing.finish())
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let _ = path;
        self.incoming.space(Path::new(""))
    }

    fn became(&self, path: &Path, id: &str) -> Result<Option<Version>> {
        let url = self.url(path)?;
        Ok(self.depot.came_as(&url, id))
    }

    /// It is kept here, and will be there.
    fn flush(&self, path: &Path) -> Result<()> {
        let scope = Scope::Url(self.url(path)?);
        self.depot.commit(&scope).map_err(of_store(path))
    }

    fn push(&self, path: &Path) -> Result<()> {
        let url = self.url(path)?;
        let pushed = self.depot.push_through(&url, &self.who, None);
        pushed.map_err(of_store(path))
    }

    fn push_watched(&self, path: &Path, watch: &Watch) -> Result<()> {
        let scope = Scope::Url(self.url(path)?);
        let mut pushed = self.depot.push(&scope, Some(LOOK_UP));
        while let Err(Error::TimedOut { .. }) = pushed {
            watch.canceled().check()?;
            pushed = self.depot.push(&scope, Some(LOOK_UP));
        }
        pushed.map_err(of_store(path))?;
        let place = self.there(path)?;
        place.store.push_watched(&place.path, watch)
    }
}

impl Spooled {
    fn write_into(&self, path: &Path) -> Result<Box<dyn Sink>> {
        let url = self.url(path)?;
        let writing = self.depot.put_into(&url, &self.who, "");
        Ok(Box::new(Inside {
            path: path.into(),
            writing: writing.map_err(of_store(path))?,
            done: Mutex::default(),
        }))
    }
}

/// A file that comes, and is kept when it is whole.
struct Coming {
    spooled: Spooled,
    path: PathBuf,
    base: Base,
    upload: Option<String>,
    sink: Box<dyn Sink>,
}

impl Take for Coming {
    fn put(&self, block: Block<'_>) -> Result<()> {
        self.sink.put(block)
    }

    fn put_from(&self, file: &Lying<'_>, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
        self.sink.put_from(file, range, buffer)
    }

    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        self.sink.said(leaf, chain)
    }
}

impl Sink for Coming {
    fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> {
        self.sink.newly_whole(count_max)
    }

    fn done(&self) -> Extents {
        self.sink.done()
    }

    fn unseen(&self) -> Extents {
        self.sink.unseen()
    }

    fn show(&self, block: Block<'_>) -> Result<()> {
        self.sink.show(block)
    }

    fn settle(&self) -> Result<Extents> {
        self.sink.settle()
    }

    fn commit(&self) -> Result<Extents> {
        self.sink.commit()
    }

    fn finish(self: Box<Self>, whole: &Whole) -> Result<Finished> {
        let Self {
            spooled,
            path,
            base,
            upload,
            sink,
        } = *self;
        let finished = sink.finish(whole)?;
        let kept = spooled.keep(&path, &base, upload.as_deref());
        kept.map_err(of_store(&path))?;
        Ok(finished)
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        self.sink.abandon()
    }
}

/// Ranges that go into a file at the target.
struct Inside {
    path: PathBuf,
    writing: Writing,
    done: Mutex<Extents>,
}

impl Take for Inside {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let written = self.writing.write(block.offset, block.bytes);
        written.map_err(of_store(&self.path))?;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.insert(block.range());
        Ok(())
    }
}

impl Sink for Inside {
    fn done(&self) -> Extents {
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.clone()
    }

    fn is_in_place(&self) -> bool {
        true
    }

    fn commit(&self) -> Result<Extents> {
        self.writing.commit().map_err(of_store(&self.path))?;
        Ok(self.done())
    }

    fn finish(self: Box<Self>, _: &Whole) -> Result<Finished> {
        let Self { path, writing, .. } = *self;
        writing.end().map_err(of_store(&path))?;
        Ok(Finished {
            in_place: true,
            ..Finished::default()
        })
    }

    fn abandon(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// How often a long wait looks whether it is still wanted.
const LOOK_UP: Duration = Duration::from_secs(1);
