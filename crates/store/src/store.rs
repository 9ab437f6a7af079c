//! The contract of a store.

mod facets;
mod station;

pub use facets::{
    Batch, BlockWriterExt, Direct, Facets, Fast, NextFile, Passage, Peer, Resume, SinkExt,
    SinkFacets, SmallResult, StoreExt, Transit, Volume, Walk,
};
pub(crate) use facets::{
    read_one_by_one, read_one_small, walk_by_listing, walk_from, walk_on, write_one_by_one,
    write_one_small,
};
pub use station::{HopStatus, PASSED_MAX, TAKEN, THERE};

use crate::{Error, Result, Width, watch::Watch};
use godwit_core::{Algorithm, Block, Chain, Digest, Extents, Version};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Holds files.
///
/// Paths are relative to the store's root, without a leading slash; the empty
/// path is the root itself. A store is opened *for* one user, so no verb takes a user. All verbs may be called from
/// several threads at once.
pub trait Store: Send + Sync {
    /// Says honestly what this store can do. May have to ask the server.
    fn can(&self) -> Result<Capabilities>;

    /// Returns the attributes of a file or directory; follows links.
    fn stat(&self, path: &Path) -> Result<Stat>;

    /// Calls `each` for every entry of a directory, in no order, without `.` and
    /// `..`, as they come: memory does not grow with the directory. An error of
    /// `each` ends the listing and is returned.
    fn list(&self, path: &Path, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()>;

    /// Reads the bytes `want` of a file into `into`, from at most `streams`
    /// threads at once; with one stream in ascending order. Bytes beyond the end
    /// of the file are not an error: they are left out, and `Read` has the size. Only a store that knows holes may
    /// skip them; it reports them to the sink.
    fn read(
        &self,
        path: &Path,
        want: &Extents,
        streams: usize,
        into: &dyn BlockWriter,
    ) -> Result<Read>;

    /// Starts to write one file.
    fn write(&self, path: &Path, write: &Write<'_>) -> Result<Box<dyn Sink>>;

    /// Removes a file, a link (not its target), or an empty directory.
    fn remove(&self, path: &Path, what: RemovalKind) -> Result<()>;

    /// Renames within the store; replaces an existing file in one step where the
    /// store can, and says in `Capabilities` where not.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Makes one directory. `Exists` if there is something of that name.
    fn mkdir(&self, path: &Path) -> Result<()>;

    /// Changes attributes; those that are `None` stay.
    fn set(&self, path: &Path, set: &Set) -> Result<()>;

    /// Returns the digest of a range; `None` means the whole file.
    fn digest(&self, path: &Path, by: Algorithm, range: Option<Range<u64>>) -> Result<Digest>;

    /// Returns the abilities beside these verbs; [`Facets::default`] if there are none.
    fn facets(&self) -> Facets<'_>;
}

/// Takes the bytes of one file.
pub trait BlockWriter: Send + Sync {
    /// Takes bytes at their offset, from any thread, in any order. When a sink
    /// returns, the bytes are *landed*: they survive the death of this process
    /// (for a remote sink: they are on their way; `done` tells what landed).
    fn put(&self, block: Block<'_>) -> Result<()>;

    /// Takes the source's hash of a leaf. A landed leaf that differs is removed from `done`; the engine sends it
    /// again.
    fn said(&self, leaf: u64, chain: Chain) -> Result<()> {
        let _ = (leaf, chain);
        Ok(())
    }

    /// Returns faster ways than `put`, if there are any.
    fn fast(&self) -> Option<&dyn Fast> {
        None
    }
}

/// Takes bytes and forgets them: reading into it tells whether there is something to read.
pub struct Nowhere;

impl BlockWriter for Nowhere {
    fn put(&self, _: Block<'_>) -> Result<()> {
        Ok(())
    }
}

/// A file that lies on this machine, open to be read.
#[derive(Clone, Copy, Debug)]
pub struct LocalFile<'a> {
    /// Its name, for errors.
    pub path: &'a Path,
    /// The file.
    pub file: &'a File,
}

impl LocalFile<'_> {
    /// Fills `bytes` from the file; that it ends before is an error.
    pub fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(bytes, offset);
        read.map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => self.became_shorter(),
            _ => Error::io(self.path, cause),
        })
    }

    /// Reads a range into `buffer`, which has room for it.
    pub fn block<'b>(&self, range: Range<u64>, buffer: &'b mut [u8]) -> Result<Block<'b>> {
        let bytes = &mut buffer[..(range.end - range.start) as usize];
        self.fill(range.start, bytes)?;
        Ok(Block::at(range.start, bytes))
    }

    /// Fills `bytes` in the read at the end of an upload, unless `watch` is cancelled.
    pub(crate) fn fill_watched(
        &self,
        offset: u64,
        bytes: &mut [u8],
        watch: Option<&Watch>,
    ) -> Result<()> {
        if let Some(watch) = watch {
            watch.canceled().check()?;
            watch.moved(bytes.len() as u64);
        }
        self.fill(offset, bytes)
    }

    /// Returns the error of a file that has become shorter than its known length.
    pub fn became_shorter(&self) -> Error {
        Error::changed(self.path, "it became shorter")
    }
}

/// Writes one file. Dropping an unfinished sink keeps the partial for a resume.
pub trait Sink: BlockWriter {
    /// Returns the ranges that need not be sent again if this process died now. Files
    /// up to [`SMALL_BYTES`] are an exception: they are sent again as a whole.
    fn done(&self) -> Extents;

    /// Waits until the fate of all put bytes is known, and returns the landed ranges. More may be put later.
    fn settle(&self) -> Result<Extents> {
        Ok(self.done())
    }

    /// Makes the put bytes durable, and returns the ranges that would survive a power cut now.
    fn commit(&self) -> Result<Extents>;

    /// Publishes the complete file under its name, in one step. Refused (`Corrupt`)
    /// if `whole` has a digest that the bytes do not have. Refused (`Changed`) if
    /// the condition of the write no longer holds. The name then keeps its file, and
    /// the partial is kept.
    fn finish(self: Box<Self>, whole: &Expected) -> Result<Finished>;

    /// Removes the written bytes.
    fn abandon(self: Box<Self>) -> Result<()>;

    /// Returns the abilities beside these verbs; [`SinkFacets::default`] if there are none.
    fn facets(&self) -> SinkFacets<'_>;
}

/// The abilities of a store. The suite tests those that it claims, and that it refuses all others.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Capabilities {
    /// Blocks may be put in any order and with gaps filled later.
    pub any_order: bool,
    /// Bytes may be put again before the end, and the last ones count. A file whose length was not announced may be
    /// finished shorter than its put bytes.
    pub again: bool,
    /// An existing file can be changed in place.
    pub in_place: bool,
    /// `WriteMode::Append`.
    pub append: bool,
    /// `Write::attempt`: what an older one still sends is refused.
    pub attempts: bool,
    /// A file appears only when whole.
    pub atomic: bool,
    /// An interrupted write can be resumed, by ranges or by prefix.
    pub resume: bool,
    /// `read` of a part.
    pub ranges: bool,
    /// `rename`, `remove`, `mkdir`, `write` at all.
    pub write: bool,
    /// `set` of the time of change.
    pub set_mtime: bool,
    /// `set` of permission bits.
    pub set_mode: bool,
    /// `set` of extended attributes, and `xattrs`.
    pub xattrs: bool,
    /// `set` of a link target, and links told as links.
    pub links: bool,
    /// `space`.
    pub space: bool,
    /// The algorithms that `digest` can use.
    pub digests: Vec<Algorithm>,
    /// `read` and `finish` compare BLAKE3 leaves: the peer is a node.
    pub leaves: bool,
    /// Files are delivered to another store, and only a push waits for that.
    pub passes_on: bool,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
#[allow(missing_docs)]
pub enum EntryKind {
    File,
    Directory,
    Link,
    Other,
}

/// The attributes of a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stat {
    /// File, directory, link or another kind.
    pub kind: EntryKind,
    /// Length in bytes, or [`SIZE_UNKNOWN`]; of directories whatever the store says.
    pub size: u64,
    /// Time of the last change since the epoch, if told.
    pub mtime: Option<Duration>,
    /// Permission bits (07777), if told.
    pub mode: Option<u32>,
    /// Name or number of the owner, if told.
    pub owner: Option<String>,
    /// Name or number of the group, if told.
    pub group: Option<String>,
    /// Where a link points to, if it is one and we know.
    pub target: Option<PathBuf>,
    /// Something equal for two names of one file on that store, if told.
    pub unique: Option<String>,
    /// The hash of the whole file, if it is known without a read. That is so for a file on its way to its target,
    /// whose time is another there.
    pub digest: Option<Digest>,
    /// When any of the file or its attributes last changed, which no user sets; `None`: unknown.
    pub touched: Option<Duration>,
}

impl Stat {
    /// Returns the attributes of an entry of which only the kind and the length are known.
    pub fn of(kind: EntryKind, size: u64) -> Self {
        Self {
            kind,
            size,
            mtime: None,
            mode: None,
            owner: None,
            group: None,
            target: None,
            unique: None,
            digest: None,
            touched: None,
        }
    }

    /// Returns the length; `None` if it is unknown until the end of a read.
    pub fn known_size(&self) -> Option<u64> {
        (self.size != SIZE_UNKNOWN).then_some(self.size)
    }

    /// Returns the version that its digest tells, or else size and time, seen at `seen_at`.
    pub fn version(&self, seen_at: Duration) -> Version {
        if let Some(digest) = &self.digest {
            return Version::Strong(digest.clone());
        }
        match self.mtime {
            Some(mtime) => Version::Weak {
                size: self.size,
                mtime,
                seen_at,
                touched: self.touched,
            },
            None => Version::None,
        }
    }

    /// Tells whether both have the same time, at the coarser resolution: most servers have whole seconds, disks and
    /// nodes more. False if a time is missing.
    pub fn is_of_time(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (self.mtime, other.mtime) else {
            return false;
        };
        // The unit of the coarser time.
        let unit = unit_nanos(a).max(unit_nanos(b));
        a.as_secs() == b.as_secs() && a.subsec_nanos() / unit == b.subsec_nanos() / unit
    }
}

/// Returns the largest power of ten that divides the fraction; of none, the second.
fn unit_nanos(time: Duration) -> u32 {
    let powers = (0..9).rev().map(|digits| 10u32.pow(digits));
    match time.subsec_nanos() {
        0 => 1_000_000_000,
        nanos => powers
            .into_iter()
            .find(|unit| nanos % unit == 0)
            .unwrap_or(1),
    }
}

/// One name in a directory (for `walk`: relative path) and its attributes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The name, or the path relative to where a walk began.
    pub path: PathBuf,
    /// The attributes of the entry.
    pub stat: Stat,
}

/// How a file is written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WriteMode {
    /// The name must be free when the file is finished.
    New,
    /// Whatever stands under the name is replaced whole; with a version, only if it still is that.
    Replace(Option<Version>),
    /// Bytes of an existing file (or a new one) are changed where they are; readers see them at once.
    InPlace,
    /// Behind the end, and once: an append with the numbers of an earlier one counts as done. An append has
    /// [`SMALL_BYTES`] at most, and is durable when it is finished. A number that is not the next is refused
    /// ([`Error::OutOfTurn`]).
    Append {
        /// The number of the writer, unique among those of one identity.
        writer: u64,
        /// The writer's count of this append, from 1. 0: not counted; the bytes are then appended as they are put, of
        /// any length, and twice if they are sent twice.
        seq: u64,
    },
}

/// Everything there is to know when a write begins.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// How.
    pub how: WriteMode,
    /// The length, if known.
    pub size: Option<u64>,
    /// The source of the copy: a partial of another origin is not resumed.
    pub origin: Option<&'a Origin>,
    /// Name of this upload, if the writer has one; else (identity, path) is the key.
    pub id: Option<&'a str>,
    /// The number of this attempt, which supersedes lower ones: none of their bytes land after this one has begun. 0:
    /// attempts are not counted.
    ///
    /// A writer that counts attempts also receives the hashes of leaves that landed before, by
    /// [`crate::Resume::newly_whole`].
    pub attempt: u64,
    /// Permission bits of a new file.
    pub mode: Option<u32>,
    /// The hashes to compute on the way.
    pub checks: Checks,
    /// Whether to resume an earlier partial of the same key and origin.
    pub resume: bool,
    /// How many threads will call `put`.
    pub streams: usize,
    /// Cancels the read for a hash at the end, which may take long. Also counts the bytes of that read.
    pub watch: Option<Arc<Watch>>,
    /// How many streams it may have, where that is decided on the way.
    pub width: Option<&'a Arc<Width>>,
    /// The nodes that forwarded the file, first one first.
    pub passed: &'a [String],
}

impl Write<'_> {
    /// Returns a write that takes place so, and is otherwise as usual.
    pub fn with(how: WriteMode) -> Self {
        Self {
            how,
            ..Self::default()
        }
    }

    /// Returns a write of that many bytes.
    pub fn of_size(bytes: u64) -> Self {
        Self {
            size: Some(bytes),
            ..Self::default()
        }
    }
}

impl Default for Write<'_> {
    fn default() -> Self {
        Self {
            how: WriteMode::Replace(None),
            size: None,
            origin: None,
            id: None,
            attempt: 0,
            mode: None,
            checks: Checks::blake3(true),
            resume: true,
            streams: 1,
            watch: None,
            width: None,
            passed: &[],
        }
    }
}

/// The source of a copy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Origin {
    /// Its URL without secrets, or any name.
    pub name: String,
    /// Its version when the copy began.
    pub version: Version,
}

/// Tells whether a partial of one origin may be resumed for another.
///
/// A writer without an origin resumes any partial. A source that changed too recently to be sure counts as the same:
/// the digest at the end decides.
pub fn same_origin(kept: Option<&Origin>, now: Option<&Origin>) -> bool {
    match (kept, now) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(kept), Some(now)) => {
            let known = kept.version != Version::None || now.version != Version::None;
            let differs = known && !kept.version.compare(&now.version).looks_same();
            kept.name == now.name && !differs
        }
    }
}

/// Tells whether the found version may be replaced by a writer that expects `version`. A version seen too soon after
/// its change is no conflict, nor is a change of its rights.
pub(crate) fn is_no_conflict(version: &Version, found: &Version) -> bool {
    *version == Version::None || version.compare(found).looks_same()
}

/// The digests that a sink computes of its bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Checks {
    /// Leaves and root of BLAKE3.
    pub blake3: bool,
    /// ADLER32 of the whole, for foreign servers.
    pub adler32: bool,
}

impl Checks {
    /// Returns the digests that godwit itself tells, if `blake3` is true.
    pub const fn blake3(blake3: bool) -> Self {
        Self {
            blake3,
            adler32: false,
        }
    }
}

/// Attributes of the whole file, known at its end.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// Its length. A sink that did not get all of it refuses to finish.
    pub size: Option<u64>,
    /// The hash that the source reported.
    pub digest: Option<Digest>,
    /// Time of change to give it.
    pub mtime: Option<Duration>,
    /// Permission bits to give it.
    pub mode: Option<u32>,
}

impl Expected {
    /// Returns the attributes of a file of that many bytes.
    pub fn of_size(bytes: u64) -> Self {
        Self {
            size: Some(bytes),
            ..Self::default()
        }
    }
}

/// A published file.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// Its version now.
    pub version: Version,
    /// Its digests as computed on the way, for those that were asked.
    pub digests: Vec<Digest>,
    /// The check that both sides made.
    pub verified: Verified,
    /// Bytes that had to be read again to tell the digest.
    pub reread_bytes: u64,
    /// The bytes went into the existing file, where readers saw them at once,
    /// though `Replace` was asked: its directory cannot be written.
    pub in_place: bool,
}

/// How strongly a copy is known to equal its source.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Verified {
    /// Both sides have the same digest.
    By(Algorithm),
    /// Only the sizes were compared.
    #[default]
    SizeOnly,
}

/// The result of a read.
#[derive(Clone, Debug)]
pub struct Read {
    /// The file as it was at the end of the read.
    pub stat: Stat,
    /// Its digest, where the source told one without being asked to read again.
    pub digest: Option<Digest>,
}

/// A small file, read whole.
#[derive(Clone, Debug)]
pub struct Small {
    /// All of it.
    pub bytes: Vec<u8>,
    /// The attributes of the file.
    pub stat: Stat,
    /// The source's own digest of it, compared with `bytes` already.
    pub verified: Verified,
}

/// A small file to be written.
#[derive(Clone, Debug)]
pub struct SmallWrite {
    /// Under which name.
    pub path: PathBuf,
    /// All of it.
    pub bytes: Vec<u8>,
    /// How; `InPlace` is not for small files in flight. Those that are appended follow each other as
    /// they came.
    pub how: WriteMode,
    /// Time of change to give it.
    pub mtime: Option<Duration>,
    /// Permission bits to give it.
    pub mode: Option<u32>,
}

/// The kinds of names that may be removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RemovalKind {
    /// A file or a link.
    File,
    /// A directory that is empty.
    Directory,
}

/// Attributes to change.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Set {
    /// Cut or extend to this length.
    pub length: Option<u64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Time of change.
    pub mtime: Option<Duration>,
    /// Time of the last reading.
    pub atime: Option<Duration>,
    /// Extended attributes to set, or to remove if they exist. They are set in order: an error keeps those before it.
    pub xattrs: BTreeMap<OsString, Option<Vec<u8>>>,
    /// Make a symbolic link that points here; the path must be free.
    pub link_to: Option<PathBuf>,
}

/// Extended attributes: names, which begin with `user.`, and values.
pub type Xattrs = BTreeMap<OsString, Vec<u8>>;

impl Set {
    /// Returns what changes permission bits alone.
    pub fn of_mode(mode: u32) -> Self {
        Self {
            mode: Some(mode),
            ..Self::default()
        }
    }

    /// Returns what cuts or extends to that length.
    pub fn of_length(length: u64) -> Self {
        Self {
            length: Some(length),
            ..Self::default()
        }
    }

    /// Refuses attributes of names or of sizes that there cannot be.
    pub fn check_xattrs(&self, path: &Path) -> Result<()> {
        let bad = |why: String| Error::bad_name(path, why);
        let mut bytes = 0;
        for (name, value) in &self.xattrs {
            let text = name.as_encoded_bytes();
            let is_name = text.len() > XATTR_NAMES.len()
                && text.len() <= XATTR_NAME_MAX
                && text.starts_with(XATTR_NAMES.as_bytes())
                && !text.contains(&0);
            if !is_name {
                return Err(bad(format!(
                    "cannot have an attribute {name:?}: their names begin with {XATTR_NAMES} and have {XATTR_NAME_MAX} bytes at most"
                )));
            }
            let len = value.as_ref().map_or(0, Vec::len);
            if len > XATTR_BYTES_MAX {
                return Err(bad(format!(
                    "cannot have {len} bytes in attribute {name:?}: {XATTR_BYTES_MAX} are the most"
                )));
            }
            bytes += text.len() + len;
        }
        match bytes > XATTRS_BYTES_MAX {
            true => Err(bad(format!(
                "cannot be given {bytes} bytes of attributes at once: {XATTRS_BYTES_MAX} are the most"
            ))),
            false => Ok(()),
        }
    }
}

/// The prefix of a user's extended attributes; others are the system's.
const XATTR_NAMES: &str = "user.";
/// The limits of Linux.
const XATTR_NAME_MAX: usize = 255;
const XATTR_BYTES_MAX: usize = 64 << 10;
/// In one call.
const XATTRS_BYTES_MAX: usize = 1 << 20;

/// Room of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Space {
    /// In all.
    pub total_bytes: u64,
    /// The space that this user may still fill.
    pub free_bytes: u64,
}

/// The length of a source that ends without notice: a pipe, the output of a program.
pub const SIZE_UNKNOWN: u64 = u64::MAX;

/// Files up to this size are read and written whole, in flight together.
pub const SMALL_BYTES: u64 = godwit_core::LEAF_BYTES;
