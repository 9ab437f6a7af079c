//! What is asked of the node of this machine.

use super::{Handle, Number};
use crate::{
    client::DataHints,
    door::call::{Link, Text, Version},
};
use godwit_core::{Chain, Digest};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, num::NonZeroU64};

/// What is asked. A URL may also be a name below `/godwit/`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ask {
    /// The first of a connection: who asks.
    Hello(Box<Hello>),
    /// A file, as a descriptor.
    Open(Open),
    /// That these bytes of an open file be there.
    Ensure(Ensure),
    /// Given back; what was written is a generation.
    Close(Close),
    /// A file that is written here and delivered to its target.
    Put(Put),
    /// Leave to write a range of an open file by its descriptor.
    Grant(Grant),
    /// That was written. Not answered.
    Written(Written),
    /// Writes, packed into the body ([`records`](super::records)). Not answered: what goes wrong is told at the
    /// end of them.
    Write(Write),
    /// No more comes: the generation ends.
    End(Close),
    /// What was written so far survives a crash of this machine.
    Commit(Whose),
    /// It is where it was to go.
    Push(Whose),
    /// Bytes of a file: in the body of the answer, or where they are many as a file in memory.
    Get(Get),
    /// A whole file, as one in memory that is on no disk.
    Memory(Where),
    /// What is known of a file.
    Stat(Where),
    /// The names in a directory: lines of JSON, each a [`Stat`](super::tell::Stat).
    List(Where),
    /// What is owed, a row each.
    Queue(Whose),
    /// Try now what waits.
    Retry(Where),
    /// Deliver what is owed to somewhere else.
    Redirect(Redirect),
    /// Deliver what is held, over what is there now.
    Release(Where),
    /// Forget what is owed.
    Drop(Where),
    /// What its server has of a name, or below it, was changed past the node: who reads it next is to see that.
    Changed {
        /// The name.
        url: String,
    },
    /// Files that are kept, and why.
    Cache(Cache),
    /// Fetch it, and keep it under a tag.
    Stage(Stage),
    /// Deliver what is owed of it, and take the tag off.
    Unstage(Stage),
    /// The same of the depot of another machine: [`Stage`], [`Unstage`](Ask::Unstage) or [`Cache`] of it.
    On(On),
    /// Something done to a name, in turn with what is written.
    Deed(Deed),
    /// Lines for the end of a file: in the body.
    Append(Append),
    /// That a file of one server be copied to another, from there to there where both can.
    Copy(Copy),
    /// That a directory of the program be served to others, until this is cancelled or the connection ends.
    Serve(Serve),
    /// What the program says to somebody who would see or change what it serves. Not answered.
    Let(Let),
    /// Whole lines for the end of a file, each once: whoever does not hear that they were taken says them again.
    Lines(Lines),
    /// What was asked under that number is not wanted any more.
    Cancel {
        /// The number of the ask.
        of: Number,
    },
    /// A question to the catalog, or changes of it, as JSON in the body.
    Catalog,
    /// The lengths of the fragments of a named file.
    Fragments(Where),
    /// A fragment of a named file, as a descriptor.
    Fragment(Fragment),
    /// A file that programs of this machine read and write together, as a descriptor.
    Share(Share),
    /// Something about such a file.
    Shared(Shared),
    /// The end of a fragment that was written; the chaining values of its leaves are in the body.
    Landed(Landed),
    /// How the node is.
    Status,
    /// That it ends.
    Stop,
}

impl Ask {
    /// Tells whether it gets no answer: whoever asks goes on at once.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Written(_) | Self::Write(_) | Self::Let(_))
    }
}

/// Who asks.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Hello {
    /// How it speaks.
    pub version: u32,
    /// The program, as logs name it.
    pub program: String,
    /// What belongs together, of several programs: `commit` and `push` can be of that alone.
    pub session: Option<String>,
    /// The job that it is part of, as variables of batch systems tell: files it opens get that for a tag.
    pub job: BTreeMap<String, String>,
    /// Where the batch system keeps it, in the kernel's words: this disk may end with the job.
    pub cgroup: Option<String>,
    /// A directory that ends with the job.
    pub scratch: Option<Link>,
    /// A file that proves who it is to servers; else whatever is found as always.
    pub credential: Option<Link>,
    /// Whoever asks does it for somebody of another machine: who sees and keeps a part of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visitor: Option<String>,
    /// The catalog whose names it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
}

/// Which file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Where {
    pub url: String,
    /// Which of several depots, or that of a peer: `peer:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
}

impl Where {
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
pub struct Open {
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
    /// How old may be what is known of its origin. One that is made, `Kept`, need not be asked for at an origin that is
    /// away: it must be absent there when the file is delivered.
    #[serde(skip_serializing_if = "Fresh::is_usual")]
    pub fresh: Fresh,
    /// Some of its bytes may not be there yet: the reader [ensures](Ensure) what it is about to read. With `write`, it may be
    /// a [shared file](Share), of which the program hands in what it wrote by [`Put::in_place`].
    pub lazy: bool,
    /// How the bytes of a lazy one travel.
    #[serde(skip_serializing_if = "DataHints::is_usual")]
    pub hints: DataHints,
}

/// When the origin is asked whether a file is still as it is here.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fresh {
    /// As its kind of version says.
    #[default]
    Usual,
    /// It must be asked, and answer.
    Asked,
    /// It need not be asked while there is anything here.
    Kept,
}

impl Fresh {
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
pub struct Share {
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
pub struct Shared {
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
    /// It is no generation: what was written is not delivered.
    #[serde(default)]
    pub give_up: bool,
    /// How long is waited at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// What whoever writes waits for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Nothing.
    #[default]
    Nothing,
    /// It survives a crash of this machine.
    Commit,
    /// It is at its target.
    Push,
}

/// A file that is written here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Put {
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
    pub base: Option<Version>,
    /// Only if there is nothing.
    pub new: bool,
    /// With `new`: the server is asked first, and makes the file, still empty, if it can do that for one program only. A
    /// server that is away is not waited for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_server: bool,
    /// Writes come as [`Ask::Write`]: no descriptor is wanted.
    pub packed: bool,
}

/// Asks for leave to write.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Grant {
    pub handle: Handle,
    pub start: u64,
    pub end: u64,
}

/// Says that what leave was given for was written.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Written {
    pub handle: Handle,
    pub grant: u64,
    /// How long the file is now.
    pub size: u64,
    /// What was written hashes to, if that was a leaf of 1 MiB: nobody has to read it again to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<Text<Chain>>,
}

/// Writes in the body.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Write {
    pub handle: Handle,
}

/// Of what is owed, which.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Whose {
    /// Of one file; else of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Of one session; else of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With all that is below its URL.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub below: bool,
    /// Only what this connection wrote.
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
    #[serde(skip_serializing_if = "Fresh::is_usual")]
    pub fresh: Fresh,
}

/// Another target for what is owed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Redirect {
    pub url: String,
    pub to: String,
}

/// What is done with the files that are kept.
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
    Stat(Where),
    /// Begins one that a program fills: nobody else does until it is done.
    Add(Add),
    /// It is filled.
    AddDone(AddDone),
    /// Takes a tag off; without one all of them, and forgets the file.
    Rm {
        /// The file.
        url: String,
        /// The tag.
        #[serde(default)]
        tag: Option<String>,
    },
    /// Takes a tag off all files, or one.
    Clean {
        /// The tag.
        tag: String,
        /// The file.
        #[serde(default)]
        url: Option<String>,
    },
    /// Why a file is kept, or is not.
    Why(Where),
    /// How full the depot is.
    Df {
        /// Of a peer's depot.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<String>,
    },
    /// Reads what is kept, and compares it with what it should hash to.
    Verify {
        /// Of one file; else all.
        #[serde(default)]
        url: Option<String>,
    },
}

/// Begins a file that a program fills.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Add {
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
    /// A time that means what its user says.
    #[serde(default)]
    pub timestamp: Option<i64>,
    /// It did not become anything.
    #[serde(default)]
    pub give_up: bool,
}

/// What is fetched before it is wanted, or delivered before anybody asks.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Stage {
    pub url: String,
    pub tag: Option<String>,
    pub expires_in_s: Option<u64>,
    /// It comes no faster; nothing: as fast as it can.
    pub bytes_per_s: Option<NonZeroU64>,
    pub timeout_ms: Option<u64>,
    pub on: Option<String>,
}

/// What is asked of the depot of another machine. What came before this is told so by name: an older node would
/// pass over a member of a deed, and do it here.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct On {
    /// Whose: `peer:NAME`.
    pub on: String,
    /// What.
    pub ask: Box<Ask>,
}

/// What is done to a name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Deed {
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
    /// Attributes: those that are there.
    Set {
        url: String,
        #[serde(default)]
        mode: Option<u32>,
        /// Nanoseconds since the epoch.
        #[serde(default)]
        mtime_ns: Option<u64>,
    },
}

/// From where to where.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Copy {
    pub url: String,
    pub to: String,
}

/// What a program serves.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Serve {
    /// The directory.
    pub directory: Link,
    /// Where, as `127.0.0.1:0`; nothing: there, on any port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// It may be written to.
    #[serde(default)]
    pub writes: bool,
    /// The program is asked about each deed; else all that is served is for everybody.
    #[serde(default)]
    pub asks: bool,
    /// `dev/stdout` and `dev/stderr` may be appended to, whatever else may be written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outputs: bool,
    /// A file of configuration as that of `godwit node`: by what it proves who it is, and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Link>,
}

/// What is answered to a [`Knock`](super::tell::Knock).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Let {
    /// Which.
    pub knock: u64,
    /// Whether they may.
    pub may: bool,
    /// Where it is instead: they are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refer: Option<String>,
}

/// Whole lines for the end of a file, in the body: taken once, however often they are said. After an end of the node
/// as well, for some minutes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Lines {
    /// The file.
    pub url: String,
    /// Who appends: a number that nobody else has.
    pub by: u64,
    /// Which of theirs, from 1. One that follows is said once this is answered.
    pub seq: u64,
}

/// For the end of a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Append {
    /// The file.
    pub url: String,
    /// The body is one piece that is cut nowhere; else it may be divided, also within lines.
    #[serde(default)]
    pub record: bool,
    /// Nothing more comes.
    #[serde(default)]
    pub end: bool,
    /// What is appended comes by a stream, and not in the body: the answer is [`Tell::Opened`](super::Tell::Opened)
    /// with the end to write to, which the node reads until its close. [`Ask::Close`] waits for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// What is waited for.
    #[serde(default)]
    pub wait: Wait,
}

/// A fragment of a named file that a program uses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Fragment {
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
