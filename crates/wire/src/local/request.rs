//! Requests of programs to the node of their machine.

use super::{Handle, Number};
use crate::{
    client::DataHints,
    door::call::{DoorVersion, Link, Text},
};
use godwit_core::{Chain, Digest};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, num::NonZeroU64};

/// A request. A URL may also be a name below `/godwit/`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// The first request of a connection: introduces the program.
    Hello(Box<Hello>),
    /// Opens a file; the answer carries a descriptor.
    Open(OpenRequest),
    /// Waits until these bytes of an open file are present.
    Ensure(Ensure),
    /// Closes a file; the bytes written to it become a generation.
    Close(Close),
    /// Opens a file that is written here and delivered to its target.
    Put(PutRequest),
    /// Asks for permission to write a range of an open file by its descriptor.
    Grant(Grant),
    /// Reports a finished write. Not answered.
    Written(Written),
    /// Writes, packed into the body ([`records`](super::records)). Not answered: a failure is reported at their end.
    Write(WriteRequest),
    /// The last write was sent: the generation ends.
    End(Close),
    /// Waits until the bytes written so far are durable on this machine.
    Commit(Selector),
    /// Waits until the file is at its target.
    Push(Selector),
    /// Reads bytes of a file: in the body of the answer, or if they are many in a file in memory.
    Get(Get),
    /// Reads a whole file into a file in memory, which is on no disk.
    Memory(FileTarget),
    /// The attributes of a file.
    Stat(FileTarget),
    /// Lists a directory: lines of JSON, each a [`LocalStat`](super::response::LocalStat).
    List(FileTarget),
    /// Lists the pending changes, a row each.
    Queue(Selector),
    /// Retries a pending change now.
    Retry(FileTarget),
    /// Delivers a pending change to another target.
    Redirect(Redirect),
    /// Delivers a change that is on hold, over the target's current version.
    Release(FileTarget),
    /// Discards a pending change.
    Drop(FileTarget),
    /// Marks cached data of a name, and of all below the name, as stale: the server's copy was changed past the node.
    Changed {
        /// The name.
        url: String,
    },
    /// Lists or changes the kept files.
    Cache(Cache),
    /// Fetches a file and keeps it under a tag.
    Stage(StageRequest),
    /// Delivers a file's pending changes, and takes the tag off.
    Unstage(StageRequest),
    /// A request to the depot of another machine: [`StageRequest`], [`Unstage`](Request::Unstage) or [`Cache`].
    On(RemoteRequest),
    /// An operation on a name, in order with the writes.
    Deed(NameDeed),
    /// Appends lines to a file: in the body.
    Append(Append),
    /// Copies a file between two servers, directly if both can.
    Copy(Copy),
    /// Serves a directory of the program to others, until this request is cancelled or the connection ends.
    Serve(Serve),
    /// The program's decision about a request to what it serves. Not answered.
    #[serde(rename = "let")]
    AccessReply(AccessReply),
    /// Appends whole lines to a file, each once: a program that gets no answer sends them again.
    Lines(LinesRequest),
    /// Cancels an earlier request.
    Cancel {
        /// The number of the ask.
        of: Number,
    },
    /// A question to the catalog, or changes of it, as JSON in the body.
    Catalog,
    /// The lengths of the fragments of a named file.
    Fragments(FileTarget),
    /// A fragment of a named file, as a descriptor.
    Fragment(FragmentRequest),
    /// A file that programs of this machine read and write together, as a descriptor.
    Share(ShareRequest),
    /// Something about such a file.
    Shared(SharedRequest),
    /// The end of a fragment that was written; the chaining values of its leaves are in the body.
    Landed(Landed),
    /// How the node is.
    Status,
    /// Ends the node.
    Stop,
}

impl Request {
    /// Tells whether the request gets no answer, so that the program continues at once.
    pub fn is_silent(&self) -> bool {
        matches!(
            self,
            Self::Written(_) | Self::Write(_) | Self::AccessReply(_)
        )
    }
}

/// The program at the other end, as its first request introduces it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Hello {
    /// The version of the protocol.
    pub version: u32,
    /// The program, as logs name it.
    pub program: String,
    /// A name that several programs share, so that `commit` and `push` can wait for their files alone.
    pub session: Option<String>,
    /// The job that it is part of, as variables of batch systems tell: files it opens get that for a tag.
    pub job: BTreeMap<String, String>,
    /// Where the batch system keeps it, in the kernel's words: this disk may end with the job.
    pub cgroup: Option<String>,
    /// A directory that ends with the job.
    pub scratch: Option<Link>,
    /// A file that proves who it is to servers; else whatever is found as always.
    pub credential: Option<Link>,
    /// The user of another machine for whom the program acts: that user sees and keeps only their own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visitor: Option<String>,
    /// The catalog whose names it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
}

/// The file of a request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct FileTarget {
    pub url: String,
    /// One of several depots, or the depot of a peer: `peer:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

impl FileTarget {
    /// Names a file on this machine's own depot.
    pub fn is(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            on: None,
        }
    }
}

/// How a file is opened: as by open(2).
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct OpenRequest {
    pub url: String,
    pub read: bool,
    pub write: bool,
    pub create: bool,
    /// Only if it is not there.
    pub excl: bool,
    pub truncate: bool,
    /// Permission bits of one that is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Keeps it under this tag as well, beyond the end of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// How fresh the origin's version must be. A new file with `Kept` need not be checked at an origin that is away:
    /// the name must be absent when the file is delivered.
    #[serde(skip_serializing_if = "Freshness::is_usual")]
    pub fresh: Freshness,
    /// Some of its bytes may not be there yet: the reader [ensures](Ensure) what it is about to read. With `write`, it may be
    /// a [shared file](ShareRequest), of which the program hands in what it wrote by [`PutRequest::in_place`].
    pub lazy: bool,
    /// How the bytes of a lazy one travel.
    #[serde(skip_serializing_if = "DataHints::is_usual")]
    pub hints: DataHints,
}

/// When the origin is asked whether a file is still as it is here.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// By the kind of the file's version.
    #[default]
    Usual,
    /// The origin must be asked, and must answer.
    Asked,
    /// The origin is not asked while any version is here.
    Kept,
}

impl Freshness {
    fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

/// Asks that bytes be there: it is answered when all of them are.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Ensure {
    pub handle: Handle,
    /// The start and the end of each range, [`RANGES_MAX`] at most.
    pub ranges: Vec<(u64, u64)>,
}

/// How many ranges one ask may have: a head has room for them, however long their numbers are.
pub const RANGES_MAX: usize = 1024;

/// A file that programs of this machine read and write together.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct ShareRequest {
    /// The name of the file.
    pub url: String,
    /// The word by which others find the file of this machine; `None`: there are no others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Whether the server gets an empty file if it has none.
    pub create: bool,
    /// Whether the server must have none.
    pub excl: bool,
    /// How its bytes travel.
    #[serde(skip_serializing_if = "DataHints::is_usual")]
    pub hints: DataHints,
}

/// Something about a shared file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct SharedRequest {
    pub handle: Handle,
    pub act: Act,
}

/// An act on a shared file. Ranges are [`RANGES_MAX`] at most.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Act {
    /// Bytes that come from the server stay off these ranges. The answer's `bytes` are where the bytes begin that need no
    /// grant, until the next look.
    Grant(Vec<(u64, u64)>),
    /// These ranges were written, and are to be delivered.
    Wrote(Vec<(u64, u64)>),
    /// The file is cut or extended to this length.
    Resize(u64),
    /// Bytes that were written go to the server.
    Deliver,
    /// The server is asked whether others changed the file.
    Look {
        /// The program knows that they did.
        #[serde(default)]
        is_changed: bool,
    },
    /// How many bytes have crossed the network: three numbers of 8 bytes in the body, fetched, delivered and transfers.
    Count,
}

/// Gives a file back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Close {
    pub handle: Handle,
    #[serde(default)]
    pub wait: Wait,
    /// Whether to discard the written bytes: they are no generation and are not delivered.
    #[serde(default)]
    pub give_up: bool,
    /// How long is waited at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// How far a change must be before the node answers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Nothing.
    #[default]
    Nothing,
    /// Durable on this machine.
    Commit,
    /// At its target.
    Push,
}

/// A file that is written here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PutRequest {
    /// Its target.
    pub url: String,
    /// Into the file that is there, as one generation: ranges are written, the rest stays. Else it is replaced.
    pub in_place: bool,
    /// How long the file becomes, if that is known: room is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permission bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Only if the target still has this; nothing: whatever it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<DoorVersion>,
    /// Whether the target must not exist.
    pub new: bool,
    /// With `new`: the server is asked first, and makes the file, still empty, if it can do that for one program only. A
    /// server that is away is not waited for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_server: bool,
    /// Whether all writes are sent as [`Request::Write`], without a descriptor.
    pub packed: bool,
}

/// Asks for permission to write.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Grant {
    pub handle: Handle,
    pub start: u64,
    pub end: u64,
}

/// Reports that a granted range was written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Written {
    pub handle: Handle,
    pub grant: u64,
    /// How long the file is now.
    pub size: u64,
    /// The hash of the written bytes, if they were one leaf of 1 MiB; that leaf need not be read again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Text<Chain>>,
}

/// Writes in the body.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct WriteRequest {
    pub handle: Handle,
}

/// Selects pending changes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Selector {
    /// Of one file; else of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Of one session; else of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With all that is below its URL.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub below: bool,
    /// Only files that this connection wrote.
    pub mine: bool,
    /// How long is waited at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Of a peer's depot: `peer:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

/// Asks for bytes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Get {
    pub url: String,
    pub start: u64,
    /// All, if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    #[serde(skip_serializing_if = "Freshness::is_usual")]
    pub fresh: Freshness,
}

/// Sends a pending change to another target.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Redirect {
    pub url: String,
    pub to: String,
}

/// An operation on the kept files.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cache {
    /// Those whose URL begins so, a row each.
    Ls {
        /// The beginning.
        #[serde(default)]
        prefix: String,
        /// Of a peer's depot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<String>,
    },
    /// One of them.
    Stat(FileTarget),
    /// Begins a file that a program fills; no other program fills the same one until the end.
    Add(AddRequest),
    /// Ends the filling of a file.
    AddDone(AddDone),
    /// Takes a tag off; without one all of them, and forgets the file.
    Rm {
        /// The file.
        url: String,
        /// The tag.
        tag: Option<String>,
    },
    /// Takes a tag off all files, or one.
    Clean {
        /// The tag.
        tag: String,
        /// The file.
        url: Option<String>,
    },
    /// Why a file is kept, or is not.
    Why(FileTarget),
    /// How full the depot is.
    Df {
        /// Of a peer's depot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<String>,
    },
    /// Reads kept files, and compares them with their hashes.
    Verify {
        /// Of one file; else all.
        url: Option<String>,
    },
}

/// Begins a file that a program fills.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct AddRequest {
    pub url: String,
    pub tag: Option<String>,
    /// When the tag falls by itself, in seconds from now.
    pub expires_in_s: Option<u64>,
    /// Nothing is filled: it must be there, and no tag is put on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_there: bool,
    /// The lock outlives the connection, for so long, and is ended by its URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lasts_s: Option<u64>,
}

/// Ends it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct AddDone {
    #[serde(default)]
    pub handle: Handle,
    /// Which, where it outlived its connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Under which tag, of the depot of another machine; where it was added here that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// A time whose meaning is the program's own.
    pub timestamp: Option<i64>,
    /// Whether to discard the file.
    #[serde(default)]
    pub give_up: bool,
}

/// A file to fetch early, or to deliver at once.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct StageRequest {
    pub url: String,
    pub tag: Option<String>,
    pub expires_in_s: Option<u64>,
    /// The highest rate; `None`: no limit.
    pub bytes_per_s: Option<NonZeroU64>,
    pub timeout_ms: Option<u64>,
    pub on: Option<String>,
}

/// A request to the depot of another machine. An older node ignores an unknown member of a request, and would act on
/// its own depot; therefore this is a request of its own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RemoteRequest {
    /// The other machine: `peer:NAME`.
    pub on: String,
    /// The request.
    pub ask: Box<Request>,
}

/// An operation on a name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum NameDeed {
    Rename {
        url: String,
        to: String,
    },
    Unlink {
        url: String,
    },
    Mkdir {
        url: String,
    },
    Truncate {
        url: String,
        size: u64,
    },
    /// Sets the attributes that are given.
    Set {
        url: String,
        mode: Option<u32>,
        /// Nanoseconds since the epoch.
        mtime_ns: Option<u64>,
    },
}

/// The source and the target of a copy.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Copy {
    pub url: String,
    pub to: String,
}

/// A directory that a program serves.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Serve {
    /// The directory.
    pub directory: Link,
    /// Where, as `127.0.0.1:0`; nothing: there, on any port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Whether others may write.
    #[serde(default)]
    pub writes: bool,
    /// Whether the program is asked about each access; else the directory is open to every visitor.
    #[serde(default)]
    pub asks: bool,
    /// `dev/stdout` and `dev/stderr` may be appended to, whatever else may be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outputs: bool,
    /// A configuration file as for `godwit node`, with the credential and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Link>,
}

/// The program's answer to an [`AccessRequest`](super::response::AccessRequest).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AccessReply {
    /// The number of the knock.
    pub knock: u64,
    /// Whether the access is granted.
    pub may: bool,
    /// The URL at which to ask instead, sent to the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refer: Option<String>,
}

/// Whole lines for the end of a file, in the body, taken once however often they are sent. That holds for some
/// minutes after a restart of the node.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LinesRequest {
    /// The file.
    pub url: String,
    /// The appending program: a number that no other program has.
    pub by: u64,
    /// The number of these lines, from 1. The program sends the next ones after the answer.
    pub seq: u64,
}

/// Bytes for the end of a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Append {
    /// The file.
    pub url: String,
    /// The body is one piece that is cut nowhere; else it may be divided, also within lines.
    #[serde(default)]
    pub record: bool,
    /// Whether these are the last bytes.
    #[serde(default)]
    pub end: bool,
    /// Whether the bytes arrive by a stream instead of the body. The answer is [`Response::Opened`](super::Response::Opened)
    /// with the stream's end to write to. The node reads until its close, for which [`Request::Close`] waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// How far the append must be before the node answers.
    #[serde(default)]
    pub wait: Wait,
}

/// A fragment of a named file that a program uses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct FragmentRequest {
    /// The name of the file.
    pub url: String,
    /// The index of the fragment.
    pub index: u64,
    /// The count of fragments.
    pub count: u64,
    /// The version that is read or replaced; 0: the file is new.
    pub version: u64,
    /// The job whose processes write the file together; `None`: it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The node where it is written; `None`: this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The permission bits of a new file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Whether a fragment of another node gets a copy here first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replicate: bool,
    /// Whether the bytes that lie here are wrong: another copy is wanted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub differs: bool,
}

/// The end of a fragment that was written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Landed {
    pub handle: Handle,
    pub size: u64,
    pub digest: Text<Digest>,
}
