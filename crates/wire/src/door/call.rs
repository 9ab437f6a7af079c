//! Calls of the door and their answers.
//!
//! A call is a `POST` below [`ROOT`](super::ROOT) with one object of JSON. Its answer is lines of
//! JSON, each a [`Line`]; the last is [`Line::End`] or [`Line::Error`], so that an answer that was
//! cut is known as such. During a long call, [`Line::Beat`] shows that the node is still at work.

use super::catalog::CatalogAnswer;
pub use super::depot::{AskDepot, Count, DepotRoom, Kept, OfDepot};

pub use super::refusal::{More, Refusal};
use super::{Error, Result, path};

use crate::base64;
use godwit_core::{Chain, Digest, Extents};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, marker::PhantomData, path::PathBuf, str::FromStr, time::Duration};

/// One line of an answer.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Line {
    /// The call is still at work; the bytes handled so far.
    Beat(u64),
    Hello(Hello),
    /// The attributes of one of several names.
    Stat(DoorStat),
    Entry(DoorEntry),
    /// A name on the way that is kept for partials.
    Hidden(Name),
    /// A directory of a walk that may not be listed, and why.
    Unread(Name, Refusal),
    Digest(Text<Digest>),
    Leaves(Vec<Text<Chain>>),
    Space(DoorSpace),
    /// The state of an upload.
    Landed(Landed),
    Finished(FinishedUpload),
    /// The version of a published upload, if that is known and still current.
    Became(Option<DoorVersion>),
    Grant(Grant),
    /// Extended attributes.
    Xattrs(Vec<(Link, Bytes)>),
    /// Where a file is on its way: one for each place, the nearest first.
    Station(Station),
    /// The attributes of a drawn file at its end, and its hash if known.
    Read(DoorStat, Option<Text<Digest>>),
    /// A file that is kept in the depot of that machine.
    Kept(Kept),
    /// The files and bytes that the call was about, in the depot of that machine.
    Count(Count),
    /// How much room there is.
    Room(DepotRoom),
    /// An answer of the catalog.
    Answer(CatalogAnswer),
    /// The numbers that changes of the catalog made: one for each change.
    Made(Vec<u64>),
    /// Whole lines that a program wrote to its standard output.
    Out(Bytes),
    /// Whole lines that a program wrote to its standard error.
    Words(Bytes),
    /// A file that a program wrote; only after its status 0.
    Placed(super::run::Placed),
    /// A program ended with that status; killed by a signal: 128 and its number.
    Ended(i32),
    /// One of several was not done.
    Refused(Refusal),
    /// One of several was done.
    Done,
    /// The call failed, or was not completed.
    Error(Refusal),
    /// The answer is complete.
    End,
}

impl Line {
    /// Writes the line, with its end.
    pub fn write(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("all of it can be written as JSON");
        line.push(b'\n');
        line
    }

    /// Reads a line, without its end.
    pub fn read(line: &[u8]) -> Result<Self> {
        read(line)
    }
}

/// Reads a call.
pub fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| Error::BadJson(error.to_string()))
}

/// Writes a call.
pub fn write<T: Serialize>(what: &T) -> Vec<u8> {
    serde_json::to_vec(what).expect("all of it can be written as JSON")
}

/// A header that every answer of ours has: the id of the request.
pub const MARK: &str = "godwit-request";

/// How a node begins to say that it does not know a call.
pub const UNKNOWN_CALL: &str = "no call is named ";

/// A header of answers to callers that asked for an older key of the node: the hash of the newer one.
pub const NEW_KEY: &str = "godwit-key";

/// The longest line, and the longest body of a call.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// The node that answers, and the identity that it gives the caller.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Hello {
    /// Always `godwit`.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// The oldest and the newest way to speak that it knows.
    pub speaks: (u32, u32),
    /// The revision within the newest version; 0 from the first nodes, which did not send one.
    #[serde(default)]
    pub revision: u32,
    /// The caller's identity at this node; `None`: the caller proved none.
    pub who: Option<String>,
    /// The account as which the caller acts.
    pub account: Option<String>,
    /// The abilities of the node's store.
    pub can: DoorCan,
    /// The hash of the node's own key, for callers that pin it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many programs of peers it runs at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u64>,
    /// How many it runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u64>,
    /// The platform for which these programs are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
}

/// The abilities of a store.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct DoorCan {
    pub any_order: bool,
    /// Bytes that are written twice are accepted, and the later ones count. Early nodes do not send this.
    pub again: bool,
    pub in_place: bool,
    pub append: bool,
    /// Uploads whose attempts are counted. Nodes from before counted none.
    pub attempts: bool,
    pub atomic: bool,
    pub resume: bool,
    pub ranges: bool,
    pub write: bool,
    /// Appends that have a number are there once. Nodes from before counted none.
    pub append_once: bool,
    pub set_mtime: bool,
    pub set_mode: bool,
    /// Nodes from before say nothing of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xattrs: Option<bool>,
    pub links: bool,
    pub space: bool,
    pub leaves: bool,
    /// Files are delivered to another node or server. Early nodes kept all of them.
    pub passes_on: bool,
    pub digests: Vec<String>,
}

/// The attributes of a name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DoorStat {
    /// File, directory, link or another kind.
    pub kind: DoorKind,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    /// Permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// The owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The owning group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Link>,
    /// An id of the file itself: equal for two names of one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
    /// The hash of the whole file, if it is known without a read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text<Digest>>,
    /// When anything of it was last changed, its time among it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched: Option<Time>,
}

/// The kind of a name.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum DoorKind {
    File,
    Directory,
    Link,
    Other,
}

/// A name in a listing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct DoorEntry {
    /// The path, relative to the listed directory.
    pub path: Name,
    /// The attributes of the name.
    pub stat: DoorStat,
}

/// Room.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct DoorSpace {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// How an upload stands.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Landed {
    /// The id of the upload, known to its writer only.
    pub id: String,
    /// The ranges that need not be sent again.
    pub done: Ranges,
    /// Leaves that became complete since the last report, and their hashes.
    pub leaves: Vec<(u64, Text<Chain>)>,
    /// Whether readers see written bytes at once.
    pub in_place: bool,
}

/// A published upload.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct FinishedUpload {
    /// Its version now.
    pub version: DoorVersion,
    /// The hashes of the file.
    pub digests: Vec<Text<Digest>>,
    /// The algorithm by which both sides have the same hash; `None`: only the length was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// Bytes that the node had to read again.
    pub reread_bytes: u64,
    /// Whether the upload patched the existing file in place.
    pub in_place: bool,
}

/// A version of a file.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum DoorVersion {
    Strong(Text<Digest>),
    Generation {
        server: String,
        name: String,
    },
    Weak {
        size: u64,
        mtime: Time,
        seen_at: Time,
    },
    #[default]
    None,
}

impl From<godwit_core::Version> for DoorVersion {
    fn from(version: godwit_core::Version) -> Self {
        use godwit_core::Version as Known;
        match version {
            Known::Strong(digest) => Self::Strong(Text(digest)),
            Known::Generation { server, name } => Self::Generation { server, name },
            // When it was touched is of no use to a writer over it.
            Known::Weak {
                size,
                mtime,
                seen_at,
                ..
            } => Self::Weak {
                size,
                mtime: Time(mtime),
                seen_at: Time(seen_at),
            },
            Known::None => Self::None,
        }
    }
}

impl From<DoorVersion> for godwit_core::Version {
    fn from(said: DoorVersion) -> Self {
        match said {
            DoorVersion::Strong(digest) => Self::Strong(digest.0),
            DoorVersion::Generation { server, name } => Self::Generation { server, name },
            DoorVersion::Weak {
                size,
                mtime,
                seen_at,
            } => Self::Weak {
                size,
                mtime: mtime.0,
                seen_at: seen_at.0,
                touched: None,
            },
            DoorVersion::None => Self::None,
        }
    }
}

/// Asks for the attributes of many names.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskStat {
    pub paths: Vec<Name>,
}

/// Asks for the entries of a directory.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskList {
    /// The directory.
    pub path: Name,
    /// Whether to list all directories below too; one that may not be listed is in the answer with its refusal.
    #[serde(default)]
    pub deep: bool,
}

/// Asks about one name: digests, room, partials, names kept for partials.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskPath {
    pub path: Name,
}

/// Asks to wait until a file is where it is to go in the end.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskPush {
    /// The file.
    pub path: Name,
    /// How long, at most, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

/// Asks where a file is on its way.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskTrace {
    /// The file.
    pub path: Name,
    /// The nodes that asked before; a circle ends at a node that finds itself in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
}

/// A decision about a file on hold, for this hop or the first one downstream that has any of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskDecide {
    /// The file.
    pub path: Name,
    /// The decision for the file.
    pub what: Remedy,
    /// The nodes that asked before; a circle ends at a node that finds itself in the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
}

/// A user's decision about a file that is on hold.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Deliver once more, under the same conditions.
    Retry,
    /// Deliver over the target's current version.
    Release,
    /// Discard the pending change.
    Drop,
}

/// Where a file is on its way, or was.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Station {
    /// The place, as the place upstream names it; empty for the node that answers.
    pub at: String,
    /// `writing`, `queued`, `sending`, `waiting` or `held`: pending for the next place. `passed`: not pending, or
    /// never was. `there` or `missing`: the state at the end. `taken`: this place or one downstream has the file, and
    /// the answer does not say which. `away`: the place cannot be asked.
    pub stage: String,
    /// Its length.
    pub size: u64,
    /// Bytes that the next place lacks.
    pub owed: u64,
    /// For how long it has been here, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Why it is no further.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The file that is on hold and must be delivered first, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<Name>,
}

/// Asks what became of an upload that was to be published.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskBecame {
    /// The file.
    pub path: Name,
    /// The writer's own name of the upload.
    pub id: String,
}

/// Asks for the hash of a range of a file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskDigest {
    /// The file.
    pub path: Name,
    /// How.
    pub by: String,
    /// From where to where, exclusive; nothing: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(u64, u64)>,
}

/// Asks for bytes: a pack answers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskRead {
    /// The files, in the order of the answer.
    pub files: Vec<WantedFile>,
    /// Whether to send hashes too: of each leaf, or of each small file.
    pub digests: bool,
}

/// One file to read, and its ranges.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct WantedFile {
    pub path: Name,
    pub ranges: Ranges,
}

/// The end of a file in a pack.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PackedEnd {
    /// All bytes were sent: the attributes of the file at the end, and its hash if known.
    Read(DoorStat, #[serde(default)] Option<Text<Digest>>),
    /// Not all came.
    Refused(Refusal),
}

/// Says that one file of many is coming, in a pack that is sent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct PackedFile {
    pub path: Name,
    pub how: How,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// The hash of the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text<Digest>>,
}

/// How a file is written.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum How {
    New,
    Replace(Option<DoorVersion>),
    InPlace,
    Append { writer: u64, seq: u64 },
}

/// Begins an upload, or resumes one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskUpload {
    /// The file.
    pub path: Name,
    /// The upload's own id; `None`: the server makes one that cannot be guessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The number of this attempt, which supersedes lower ones. 0: attempts are not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u64,
    /// How.
    pub how: How,
    /// Its length, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The source of the copy and its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<(String, DoorVersion)>,
    /// Permission bits of a new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Which hashes to compute: BLAKE3, ADLER32.
    pub checks: (bool, bool),
    /// Resume with the bytes that have landed.
    pub resume: bool,
    /// The nodes that forwarded the file, first one first; empty: the caller received it from its writer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
}

/// The length and hash that the complete file must have, and the attributes to set.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskFinish {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text<Digest>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// Publishes an upload.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskPublish {
    pub path: Name,
    #[serde(deserialize_with = "object")]
    pub whole: AskFinish,
}

/// Asks for a grant, with which another node may read a file in the caller's name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskGrant {
    pub path: Name,
    /// How many seconds the grant is valid, at most.
    pub seconds: u64,
}

/// The right to read one file, for any caller that presents the secret.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// The secret, presented as `Authorization: Bearer`.
    pub secret: String,
}

/// Asks to fill an upload with what another node has.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskDraw {
    /// The file that is written.
    pub path: Name,
    /// Where the other node is, `HOST:PORT`.
    pub from: Vec<String>,
    /// The hash of the other node's key.
    pub key: String,
    /// The secret of the other node's grant.
    pub secret: String,
    /// The file there.
    pub source: Name,
    /// The ranges of that file.
    pub ranges: Ranges,
    /// Through how many connections.
    pub streams: u16,
    /// Whether each leaf is compared with its hash at the other node.
    pub digests: bool,
}

/// Says that a machine joins with an invite.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskJoin {
    /// The secret in the invite.
    pub secret: String,
    /// The name that the new machine asks for.
    pub name: String,
    /// Where they can be reached.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// Announces the caller's new key. Both keys count until the new one is used.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskRekey {
    /// The hash of the new key.
    pub key: String,
}

/// Asks to remove a name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskRemove {
    /// The name.
    pub path: Name,
    /// Whether the name must be an empty directory; else a directory is refused.
    pub directory: bool,
}

/// Asks to rename.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskRename {
    pub from: Name,
    pub to: Name,
}

/// Asks to make directories, in this order.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskMkdir {
    pub paths: Vec<Name>,
}

/// Asks to change attributes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskSet {
    pub path: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atime: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_to: Option<Link>,
    /// Extended attributes to set; those without a value are to be removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<(Link, Option<Bytes>)>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Reads an object: a list of its members, which serde takes as well, is not described.
fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> std::result::Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> std::result::Result<T, A::Error> {
            T::deserialize(de::value::MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Object(PhantomData))
}

/// Writes a type as text, and reads it from text.
macro_rules! as_text {
    ($name:ident, |$it:ident| $written:expr, |$text:ident| $read:expr) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
                let $it = self;
                to.collect_str(&$written)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                let $text = text.as_str();
                $read.map_err(de::Error::custom)
            }
        }
    };
}

/// A path below the export, written as [`path::escaped`] does.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(pub PathBuf);

as_text!(Name, |name| path::escaped(&name.0), |text| path::unescaped(
    text
)
.map(Name));

/// The target of a link or the name of an attribute: any bytes, which are not interpreted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link(pub PathBuf);

as_text!(Link, |link| path::escaped(&link.0), |text| path::anything(
    text
)
.map(Link));

/// Any bytes, written in base64.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Bytes(pub Vec<u8>);

as_text!(Bytes, |bytes| base64::encode(&bytes.0), |text| {
    let bytes = base64::decode(text.as_bytes());
    bytes.map(Bytes).ok_or("bytes are written in base64")
});

/// Something that is written as its text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Text<T>(pub T);

impl<T: fmt::Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

/// Ranges of bytes, as restart markers are written; no text: none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ranges(pub Extents);

as_text!(Ranges, |ranges| &ranges.0, |text| match text {
    "" => Ok(Ranges::default()),
    text => text.parse().map(Ranges),
});

/// Since the Unix epoch, as seconds and nine digits of their fraction: a number of JSON would be
/// rounded by many who read it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Time(pub Duration);

impl Time {
    /// Reads what `Display` writes.
    pub fn read(text: &str) -> Option<Self> {
        let (secs, nanos) = text.split_once('.')?;
        let is_digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let is_whole = nanos.len() == 9 && is_digits;
        let time = Duration::new(secs.parse().ok()?, nanos.parse().ok()?);
        is_whole.then_some(Self(time))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
    }
}

as_text!(Time, |time| time, |text| Time::read(text)
    .ok_or("a time is written as SECONDS.NANOSECONDS"));

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_core::Algorithm;

    fn comes_back(line: &Line) {
        let written = line.write();
        let text = written.strip_suffix(b"\n").unwrap();
        assert!(!text.contains(&b'\n'));
        assert_eq!(Line::read(text).as_ref(), Ok(line));
    }

    #[test]
    fn lines_come_back_as_they_were() {
        let digest = Text(Digest::of(Algorithm::Blake3, b"x"));
        let stat = DoorStat {
            kind: DoorKind::Link,
            size: u64::MAX,
            mtime: Some(Time(Duration::new(1 << 40, 7))),
            mode: Some(0o7777),
            owner: Some("me".into()),
            group: None,
            target: Some(Link("/../a\n%".into())),
            unique: None,
            digest: Some(digest.clone()),
            touched: Some(Time(Duration::new(5, 8))),
        };
        comes_back(&Line::Stat(stat.clone()));
        comes_back(&Line::Entry(DoorEntry {
            path: Name("a b/\n".into()),
            stat,
        }));
        comes_back(&Line::Digest(digest.clone()));
        comes_back(&Line::Landed(Landed {
            id: "1".into(),
            leaves: vec![(3, Text(Chain([7; 32])))],
            ..Landed::default()
        }));
        let done = Ranges(Extents::from(0..10));
        comes_back(&Line::Landed(Landed {
            done,
            ..Landed::default()
        }));
        comes_back(&Line::Finished(FinishedUpload {
            version: DoorVersion::Strong(digest),
            ..FinishedUpload::default()
        }));
        comes_back(&Line::Xattrs(vec![(
            Link("user.a%/b".into()),
            Bytes(vec![0, 0xff, b'\n']),
        )]));
        comes_back(&Line::Unread(Name("x".into()), Refusal::default()));
        comes_back(&Line::End);
    }

    #[test]
    fn json_name_is_strict_as_target() {
        for text in ["..", "a%2Fb", "a%00", "/a", "a//b"] {
            let asked = format!("{{\"path\":\"{text}\"}}");
            assert!(read::<AskPath>(asked.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_member_of_request_is_refused() {
        assert!(read::<AskPath>(br#"{"path":"a","deep":true}"#).is_err());
        // An answer may say more than we know.
        let line = br#"{"space":{"total_bytes":1,"free_bytes":1,"more":2}}"#;
        assert!(Line::read(line).is_ok());
    }

    #[test]
    fn newer_members_are_sent_when_needed() {
        let asked = AskSet {
            path: Name("a".into()),
            length: None,
            mode: Some(0o600),
            mtime: None,
            atime: None,
            link_to: None,
            xattrs: Vec::new(),
        };
        assert_eq!(write(&asked), br#"{"path":"a","mode":384}"#);
        assert!(read::<AskSet>(br#"{"path":"a","xattrs":[["user.a","!"]]}"#).is_err());
        let none = read::<AskSet>(br#"{"path":"a","xattrs":[["user.a",null]]}"#).unwrap();
        assert_eq!(none.xattrs, [(Link("user.a".into()), None)]);
    }

    #[test]
    fn times_are_exact() {
        let read = |text: &str| serde_json::from_str::<Time>(text);
        let time = read("\"12.000000345\"").unwrap();
        assert_eq!(time.0, Duration::new(12, 345));
        for text in [
            "12",
            "\"12\"",
            "\"12.5\"",
            "\"-1.000000000\"",
            "\"1.0000000000\"",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
