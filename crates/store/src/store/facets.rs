//! The optional parts of stores, sinks and receivers.
//!
//! [`Store::facets`] says which a store has. Callers use [`StoreExt`], [`SinkExt`] and [`BlockWriterExt`], which do
//! without where a facet is missing.

use crate::{
    BlockWriter, Entry, EntryKind, Error, Expected, Finished, HopStatus, LocalFile, Read, Remedy,
    Result, SMALL_BYTES, Sink, Small, SmallWrite, Space, Store, Verified, Width, Write, Xattrs,
    watch::Watch,
};
use godwit_core::{Block, Chain, Extents, Version, leaf_range};
use parking_lot::Mutex;
use std::{
    any::Any,
    collections::{BTreeSet, HashSet},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The optional parts of a store. A wrapper passes them on as a whole, and replaces those that it changes.
#[derive(Clone, Copy, Default)]
pub struct Facets<'a> {
    /// The server that has the bytes; `None`: they are on this machine.
    pub peer: Option<&'a dyn Peer>,
    /// How bytes become durable, and where they are sent on.
    pub transit: Option<&'a dyn Transit>,
    /// Many files or directories in one request.
    pub batch: Option<&'a dyn Batch>,
    /// Extended attributes and room.
    pub volume: Option<&'a dyn Volume>,
    /// How much longer than its peer a wrapper takes to answer.
    pub latency: Duration,
    /// How its bytes pass, if they are not those of a file.
    pub passage: Option<Passage>,
}

/// How bytes pass that are in order and of which none is at rest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Passage {
    /// No byte is read or put twice.
    Once,
    /// Made anew for each attempt: none resumes an earlier one.
    Anew,
}

/// The optional parts of a sink.
#[derive(Clone, Copy, Default)]
pub struct SinkFacets<'a> {
    /// Knowledge of bytes that landed.
    pub resume: Option<&'a dyn Resume>,
    /// How bytes come that no caller puts.
    pub direct: Option<&'a dyn Direct>,
}

/// Returns the next file; `None`: no more for now.
pub type NextFile<'a, T> = dyn FnMut() -> Option<T> + 'a;
/// Is given what became of a small file.
pub type SmallResult<'a, T> = dyn FnMut(PathBuf, Result<T>) + 'a;

/// The three closures that a walk calls.
pub struct Walk<'a> {
    /// For every entry, with its path below the root of the walk.
    pub each: &'a mut dyn FnMut(Entry) -> Result<()>,
    /// For the names that are kept for partials, of a store that sees them.
    pub hidden: &'a mut dyn FnMut(PathBuf),
    /// Called for a directory that may not be listed; the walk continues if it returns no error.
    pub unread: &'a mut dyn FnMut(PathBuf, Error) -> Result<()>,
}

/// Defines a facet, and the trait by which callers use it. The body of a verb runs if the facet is missing, or has no
/// better way.
macro_rules! facets {
    (@ $self:ident ($($get:tt)*)) => { $self.$($get)* };
    ($of:ident, $(#[$all:meta])* $ext:ident { $($more:tt)* } $(
        $(#[$about:meta])* $facet:ident $get:tt {
            $($(#[$tells:meta])* fn $verb:ident(&$self:ident $(, $arg:ident: $is:ty)* $(,)?) -> $gives:ty $body:block)*
        }
    )*) => {
        $($(#[$about])*
        pub trait $facet: $of {
            $($(#[$tells])* fn $verb(&$self $(, $arg: $is)*) -> $gives { $(let _ = &$arg;)* $body })*
        })*

        $(#[$all])*
        pub trait $ext: $of {
            $($more)*
            $($($(#[$tells])* fn $verb(&$self $(, $arg: $is)*) -> $gives {
                match facets!(@ $self $get) {
                    Some(facet) => $facet::$verb(facet $(, $arg)*),
                    None => { $(let _ = &$arg;)* $body }
                }
            })*)*
        }

        impl<T: $of + ?Sized> $ext for T {}
    };
}

facets! {
    Store,
    /// Every store, with a better way than its ten verbs if it has one.
    StoreExt {
        /// Tells whether the bytes are on a server that must be asked for them.
        fn is_remote(&self) -> bool {
            self.facets().peer.is_some()
        }

        /// Returns how long a question to the host of the bytes takes; zero if they are here.
        fn distance(&self) -> Duration {
            self.facets().latency + self.round_trip()
        }

        /// Lists as [`Store::list`] does, but the whole tree below, with paths relative to `path`; a
        /// directory is before its entries. Links are listed as links, not followed.
        fn walk(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
            self.walk_readable(path, each, &mut |_, error| Err(error))
        }

        /// Walks as [`StoreExt::walk`] does; `unread` is called for each directory that may not be listed. The walk
        /// continues if `unread` returns no error. If the root cannot be listed, the walk fails.
        fn walk_readable(
            &self,
            path: &Path,
            each: &mut dyn FnMut(Entry) -> Result<()>,
            unread: &mut dyn FnMut(PathBuf, Error) -> Result<()>,
        ) -> Result<()> {
            self.walk_all(path, &mut Walk { each, hidden: &mut |_| (), unread })
        }
    }
    /// A server that has the bytes of a store.
    Peer(facets().peer) {
        /// Returns how long a question to it takes.
        fn round_trip(&self) -> Duration { Duration::ZERO }
        /// Returns how far the clocks there and here are apart, if the other side has told its own.
        fn clock_skew(&self) -> Option<Duration> { None }
        /// Returns how many hosts have a part in moving one file, each by a way of its own.
        fn stripes(&self) -> usize { 1 }
        /// Returns the store itself, for `Remote::of` and `Door::of`; `None`: other servers cannot draw from it.
        fn as_any(&self) -> Option<&dyn Any> { None }
    }
    /// How bytes become durable, and where they are sent on.
    Transit(facets().transit) {
        /// Waits until publications at `path` are durable, in a store that can ensure that.
        fn flush(&self, path: &Path) -> Result<()> { Ok(()) }
        /// Waits until the publications under `path` are durable at their last target, at most as long as `watch`
        /// allows. In a store that delivers to no other, they only become durable.
        fn push(&self, path: &Path, watch: Option<&Watch>) -> Result<()> {
            watch.map_or(Ok(()), |watch| watch.canceled().check())?;
            StoreExt::flush(self, path)
        }
        /// Returns as which version the upload `id` was published, if its file is still the one under
        /// `path`: for a caller that lost the answer to [`Sink::finish`] and has taken the upload over.
        /// `None`: it was not, or that is not known, or another file is there.
        fn published_as(&self, path: &Path, id: &str) -> Result<Option<Version>> { Ok(None) }
        /// Tells where a file is on its way, this store first, then the nodes downstream. `passed` are the
        /// nodes that asked before.
        fn trace(&self, path: &Path, passed: &[String]) -> Result<Vec<HopStatus>> {
            Ok(vec![HopStatus::at_the_end(self.stat(path))?])
        }
        /// Decides about a file on hold, at this store or at the first node downstream that has any of it. `passed`:
        /// the nodes that asked before.
        fn decide(&self, path: &Path, what: Remedy, passed: &[String]) -> Result<()> {
            Err(Error::missing(path))
        }
    }
    /// Many files or directories in one request.
    Batch(facets().batch) {
        /// Walks as [`StoreExt::walk_readable`] does, and tells of hidden names too.
        fn walk_all(&self, path: &Path, walk: &mut Walk<'_>) -> Result<()> {
            walk_by_listing(self, path, walk)
        }
        /// Returns the names in the whole tree below that neither listings nor reads show, since they are kept for
        /// partials. A node returns the first hundred; other servers none.
        fn hidden(&self, path: &Path) -> Result<Vec<PathBuf>> { Ok(Vec::new()) }
        /// Reads whole small files, as many in flight as the store can. `next` names
        /// them; `None` means no more for now, and it may be asked again while some are
        /// in flight. `each` gets every one exactly once, in that order.
        /// Returns an error only if the whole conversation broke; then the files not
        /// yet given to `each` were not read.
        fn read_small(&self, next: &mut NextFile<'_, PathBuf>, each: &mut SmallResult<'_, Small>) -> Result<()> {
            read_one_by_one(self, next, each)
        }
        /// Writes whole small files, as many in flight as the store can; the mirror
        /// of [`StoreExt::read_small`].
        fn write_small(&self, next: &mut NextFile<'_, SmallWrite>, each: &mut SmallResult<'_, Finished>) -> Result<()> {
            write_one_by_one(self, next, each)
        }
        /// Makes directories, each as [`Store::mkdir`] does, in this order.
        fn mkdir_many(&self, paths: &[&Path]) -> Vec<Result<()>> {
            paths.iter().map(|path| self.mkdir(path)).collect()
        }
    }
    /// Extended attributes and room.
    Volume(facets().volume) {
        /// Returns the extended attributes of a file or directory, those of users; follows links.
        fn xattrs(&self, path: &Path) -> Result<Xattrs> {
            Err(Error::unsupported("reading extended attributes", "this store has none"))
        }
        /// Returns the room where `path` is.
        fn space(&self, path: &Path) -> Result<Space> {
            Err(Error::unsupported("telling the room", "this store has no bound of its own"))
        }
    }
}

facets! {
    Sink,
    /// Every sink, whatever it has beside its verbs.
    SinkExt {}
    /// The knowledge of a sink of bytes that landed, now and in earlier attempts.
    Resume(facets().resume) {
        /// Returns leaves that became complete since the last call, at most `count_max`, and their hashes. A receiver
        /// sends them to its sender.
        fn newly_whole(&self, count_max: usize) -> Vec<(u64, Chain)> { Vec::new() }
        /// Returns ranges of an earlier attempt that this sink has not read, but needs for the digest of the whole.
        /// If attempts are counted, also the ranges that may differ from the source by now.
        fn unseen(&self) -> Extents { Extents::new() }
        /// Shows the sink bytes that are there already: it hashes them and sends nothing. Where attempts are
        /// counted, what differs from what landed, or cannot be compared with it, is not done any more.
        fn show(&self, block: Block<'_>) -> Result<()> { Ok(()) }
        /// Tells whether readers see put bytes at once, because no partial could be kept.
        fn is_in_place(&self) -> bool { false }
    }
    /// How bytes come to a sink that no caller puts.
    Direct(facets().direct) {
        /// Moves the bytes from `source` without passing them through the caller, and calls `on` with landed ranges.
        /// `None`: these two stores cannot, and no byte moved; the caller then reads and puts.
        fn draw(
            &self, source: &dyn Store, path: &Path, want: &Extents, streams: usize, on: &(dyn Fn(Range<u64>) + Sync),
        ) -> Result<Option<Read>> { Ok(None) }
        /// Returns the place of the bytes before publication, beneath the store's root. Others that share its disk
        /// can write some of them there. `None`: no others can.
        fn lies_at(&self) -> Option<PathBuf> { None }
        /// Takes ranges that another sink has written there, durably, and the hashes of their whole leaves.
        fn came(&self, ranges: &Extents, leaves: &[(u64, Chain)]) -> Result<()> {
            match ranges.is_empty() {
                true => Ok(()),
                false => Err(Error::unsupported(
                    "taking in what others have written",
                    "no others can write there",
                )),
            }
        }
    }
}

facets! {
    BlockWriter,
    /// Everything that takes bytes, with its faster ways if it has any.
    BlockWriterExt {}
    /// Faster ways to take bytes than one block after the other.
    Fast(fast()) {
        /// Takes a range out of a file on this machine; `buffer` has room for it. The result is that of
        /// reading it and calling `put`, for those who need not see the bytes.
        fn put_from(&self, file: &LocalFile<'_>, range: Range<u64>, buffer: &mut [u8]) -> Result<()> {
            self.put(file.block(range, buffer)?)
        }
        /// Takes a leaf of 1 MiB with its hash from the time of its write. A sink that hashes sent bytes only for a
        /// comparison can skip that: other bytes do not land.
        fn put_known(&self, file: &LocalFile<'_>, known: (u64, Chain), buffer: &mut [u8]) -> Result<()> {
            BlockWriterExt::put_from(self, file, leaf_range(known.0), buffer)
        }
        /// Returns how many blocks it can take at once, where that changes on the way:
        /// who reads for it has as many threads.
        fn width(&self) -> Option<&Arc<Width>> { None }
    }
}

/// No path that a walk meets is longer: a server that lists a directory in itself would never end.
const WALK_PATH_BYTES_MAX: usize = 8 << 10;

/// Lists one directory, by its path below the root of a walk.
type ListOne<'a> = dyn FnMut(&Path, &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> + 'a;

/// Walks a tree at once.
type WalkAll<'a> = dyn FnMut(&mut dyn FnMut(Entry) -> Result<()>) -> Result<()> + 'a;

pub(crate) fn walk_by_listing<S: Store + ?Sized>(
    store: &S,
    root: &Path,
    walk: &mut Walk<'_>,
) -> Result<()> {
    let mut list = |below: &Path, each: &mut dyn FnMut(Entry) -> Result<()>| {
        store.list(&root.join(below), each)
    };
    let mut plain = |each: &mut dyn FnMut(Entry) -> Result<()>| {
        let (hidden, unread) = (&mut |_| (), &mut |_, error| Err(error));
        let mut walk = Walk {
            each,
            hidden,
            unread,
        };
        walk_from(vec![PathBuf::new()], &mut list, &mut walk)
    };
    walk_on(store, root, &mut plain, walk)
}

/// Walks from some directories on; calls `unread` for those that may not be listed.
pub(crate) fn walk_from(
    mut left: Vec<PathBuf>,
    list: &mut ListOne<'_>,
    walk: &mut Walk<'_>,
) -> Result<()> {
    // Only directories that are still to be listed are kept: memory grows with their number on one level, not with
    // the files.
    while let Some(below) = left.pop() {
        let mut is_of_each = false;
        let listed = list(&below, &mut |entry| {
            let path = below.join(&entry.path);
            if entry.stat.kind == EntryKind::Directory {
                if path.as_os_str().len() > WALK_PATH_BYTES_MAX {
                    let why = format!("its path has more than {WALK_PATH_BYTES_MAX} bytes");
                    return Err(Error::bad_name(path, why));
                }
                left.push(path.clone());
            }
            let taken = (walk.each)(Entry { path, ..entry });
            taken.inspect_err(|_| is_of_each = true)
        });
        match listed {
            Err(error) if !is_of_each && is_unread(&error) && below != Path::new("") => {
                (walk.unread)(below, error)?;
            }
            listed => listed?,
        }
    }
    Ok(())
}

/// Walks a tree by `plain`. If a directory in it may not be listed, the rest is walked one directory at a time.
pub(crate) fn walk_on<S: Store + ?Sized>(
    store: &S,
    root: &Path,
    plain: &mut WalkAll<'_>,
    walk: &mut Walk<'_>,
) -> Result<()> {
    let (mut seen, mut is_of_each) = (WalkedEntries::default(), false);
    let walked = plain(&mut |entry| {
        seen.note(&entry);
        (walk.each)(entry).inspect_err(|_| is_of_each = true)
    });
    match walked {
        Err(error) if !is_of_each && is_unread(&error) && seen.knows_the_last() => {}
        walked => return walked,
    }
    let mut list = |below: &Path, each: &mut dyn FnMut(Entry) -> Result<()>| {
        let is_last = below == seen.last;
        store.list(&root.join(below), &mut |entry| match is_last {
            true if seen.names.contains(&entry.path) => Ok(()),
            _ => each(entry),
        })
    };
    let left = seen.unlisted.iter().chain([&seen.last]).cloned().collect();
    walk_from(left, &mut list, walk)
}

/// The entries of a walk, one directory after the other, until it ended.
#[derive(Default)]
struct WalkedEntries {
    /// The directory of which the last entry was; more of it may be there.
    last: PathBuf,
    /// The names in it, unless they are too many to be kept.
    names: HashSet<PathBuf>,
    /// Directories of which nothing came.
    unlisted: BTreeSet<PathBuf>,
}

impl WalkedEntries {
    fn note(&mut self, entry: &Entry) {
        let parent = entry.path.parent().unwrap_or(Path::new(""));
        if parent != self.last {
            self.last = parent.into();
            self.names.clear();
            self.unlisted.remove(parent);
        }
        if self.knows_the_last() {
            self.names.extend(entry.path.file_name().map(PathBuf::from));
        }
        if entry.stat.kind == EntryKind::Directory {
            self.unlisted.insert(entry.path.clone());
        }
    }

    fn knows_the_last(&self) -> bool {
        self.names.len() < NAMES_MAX
    }
}

/// Names of one directory that are kept in case that it must be listed again.
const NAMES_MAX: usize = 10_000;

/// Tells whether a directory is there and may not be listed.
fn is_unread(error: &Error) -> bool {
    matches!(
        error,
        Error::Denied { .. } | Error::Io { .. } | Error::Refused { .. }
    )
}

pub(crate) fn read_one_by_one<S: Store + ?Sized>(
    store: &S,
    next: &mut NextFile<'_, PathBuf>,
    each: &mut SmallResult<'_, Small>,
) -> Result<()> {
    while let Some(path) = next() {
        let small = read_one_small(store, &path);
        each(path, small);
    }
    Ok(())
}

pub(crate) fn write_one_by_one<S: Store + ?Sized>(
    store: &S,
    next: &mut NextFile<'_, SmallWrite>,
    each: &mut SmallResult<'_, Finished>,
) -> Result<()> {
    while let Some(given) = next() {
        let finished = write_one_small(store, &given);
        each(given.path, finished);
    }
    Ok(())
}

pub(crate) fn read_one_small<S: Store + ?Sized>(store: &S, path: &Path) -> Result<Small> {
    let collected = Collected::default();
    let read = store.read(path, &Extents::from(0..SMALL_BYTES), 1, &collected)?;
    let bytes = collected.0.into_inner();
    if bytes.len() as u64 != read.stat.size {
        return Err(Error::changed(
            path,
            format!("{} bytes came of {}", bytes.len(), read.stat.size),
        ));
    }
    Ok(Small {
        bytes,
        stat: read.stat,
        verified: Verified::SizeOnly,
    })
}

pub(crate) fn write_one_small<S: Store + ?Sized>(
    store: &S,
    given: &SmallWrite,
) -> Result<Finished> {
    let size = Some(given.bytes.len() as u64);
    let write = Write {
        how: given.how.clone(),
        size,
        mode: given.mode,
        resume: false,
        ..Write::default()
    };
    let sink = store.write(&given.path, &write)?;
    if !given.bytes.is_empty() {
        sink.put(Block::at(0, &given.bytes))?;
    }
    sink.finish(&Expected {
        size,
        digest: None,
        mtime: given.mtime,
        mode: given.mode,
    })
}

/// Keeps its blocks in order of offset, for small files.
#[derive(Default)]
struct Collected(Mutex<Vec<u8>>);

impl BlockWriter for Collected {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let mut bytes = self.0.lock();
        let end = block.range().end as usize;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[block.offset as usize..end].copy_from_slice(block.bytes);
        Ok(())
    }
}
