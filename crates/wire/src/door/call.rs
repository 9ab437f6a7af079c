//! What is asked and answered.
//!
//! A call is a `POST` below [`ROOT`](super::ROOT) with one object of JSON. Its answer is lines of
//! JSON, each a [`Line`]; the last is [`Line::End`] or [`Line::Error`], so that an answer that was
//! cut is known as such. While something takes long, [`Line::Beat`] says that it goes on.

use super::catalog::Answer;
pub use super::depot::{AskDepot, Count, Kept, OfDepot, Room};

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
    /// It goes on; so many bytes so far.
    Beat(u64),
    Hello(Hello),
    /// Of one of several that were asked about.
    Stat(Stat),
    Entry(Entry),
    /// A name on the way that is kept for partials.
    Hidden(Name),
    /// A directory of a walk that may not be listed, and why.
    Unread(Name, Refusal),
    Digest(Text<Digest>),
    Leaves(Vec<Text<Chain>>),
    Space(Space),
    /// Of an upload.
    Landed(Landed),
    Finished(Finished),
    /// As which version an upload was published, if that is known and it is still there.
    Became(Option<Version>),
    Grant(Grant),
    /// Extended attributes.
    Xattrs(Vec<(Link, Bytes)>),
    /// Where a file is on its way: one for each place, the nearest first.
    Station(Station),
    /// Of a file that was drawn: as it was at its end, and what it hashes to if that is known.
    Read(Stat, Option<Text<Digest>>),
    /// A file that is kept in the depot of that machine.
    Kept(Kept),
    /// What was done there.
    Count(Count),
    /// How much room there is.
    Room(Room),
    /// An answer of the catalog.
    Answer(Answer),
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
    /// Nothing was done, or not all.
    Error(Refusal),
    /// All was said.
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

/// Reads what was asked.
pub fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| Error::BadJson(error.to_string()))
}

/// Writes what is asked.
pub fn write<T: Serialize>(what: &T) -> Vec<u8> {
    serde_json::to_vec(what).expect("all of it can be written as JSON")
}

/// A header that every answer of ours has: the id of the request.
pub const MARK: &str = "godwit-request";

/// How a node begins to say that it does not know a call.
pub const UNKNOWN_CALL: &str = "no call is named ";

/// A header of answers to those who asked for an older key of the node: what the one hashes to that it
/// has now.
pub const NEW_KEY: &str = "godwit-key";

/// The longest line, and the longest body of a call.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// Who answers, and whom it takes us for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Hello {
    /// Always `godwit`.
    pub name: String,
    /// Of the program.
    pub version: String,
    /// The oldest and the newest way to speak that it knows.
    pub speaks: (u32, u32),
    /// What it knows within the newest; the first ones did not say.
    #[serde(default)]
    pub revision: u32,
    /// Who we are to it.
    pub who: Option<String>,
    /// As which account we act.
    pub account: Option<String>,
    /// What its store can do.
    pub can: Can,
    /// What its own key hashes to, for those who pin it.
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

/// What the store can do.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Can {
    pub any_order: bool,
    /// What is put again counts. Nodes from before did not say.
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
    /// What is written goes on to another. Nodes from before kept all.
    pub passes_on: bool,
    pub digests: Vec<String>,
}

/// What is known of a name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Stat {
    /// What it is.
    pub kind: EntryKind,
    /// Its length in bytes.
    pub size: u64,
    /// When it was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    /// Permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Of which group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Where a link leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Link>,
    /// The same for two names of one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
    /// What all of it hashes to, if that is known without reading it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text<Digest>>,
    /// When anything of it was last changed, its time among it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub touched: Option<Time>,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum EntryKind {
    File,
    Directory,
    Link,
    Other,
}

/// A name in a listing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Entry {
    /// Relative to what was listed.
    pub path: Name,
    /// What is known of it.
    pub stat: Stat,
}

/// Room.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// How an upload stands.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Landed {
    /// The name of the upload, which only its writer is told.
    pub id: String,
    /// What need not be sent again.
    pub done: Ranges,
    /// Leaves that became whole since this was last told, and what they hash to.
    pub leaves: Vec<(u64, Text<Chain>)>,
    /// Readers see what is written at once.
    pub in_place: bool,
}

/// What was published.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Finished {
    /// Its version now.
    pub version: Version,
    /// What it hashes to.
    pub digests: Vec<Text<Digest>>,
    /// By which algorithm both sides told the same; nothing: by its length alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// What had to be read again.
    pub reread_bytes: u64,
    /// It went into the existing file.
    pub in_place: bool,
}

/// Which state of a file is meant.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Version {
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

impl From<godwit_core::Version> for Version {
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

impl From<Version> for godwit_core::Version {
    fn from(said: Version) -> Self {
        match said {
            Version::Strong(digest) => Self::Strong(digest.0),
            Version::Generation { server, name } => Self::Generation { server, name },
            Version::Weak {
                size,
                mtime,
                seen_at,
            } => Self::Weak {
                size,
                mtime: mtime.0,
                seen_at: seen_at.0,
                touched: None,
            },
            Version::None => Self::None,
        }
    }
}

/// Asks what is known of many names.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskStat {
    pub paths: Vec<Name>,
}

/// Asks what is in a directory.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskList {
    /// The directory.
    pub path: Name,
    /// And in all below it; directories that may not be listed are told as such.
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
    /// Which nodes asked before, so that nobody is asked in a circle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
}

/// Says what becomes of what a node holds that passes it on, or the first behind it that holds any of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskDecide {
    /// The file.
    pub path: Name,
    /// What becomes of it.
    pub what: Decision,
    /// Which nodes asked before, so that nobody is asked in a circle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
}

/// What becomes of what is held.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is tried once more, as it is.
    Retry,
    /// It goes over whatever is there.
    Release,
    /// It is given up.
    Drop,
}

/// Where a file is on its way, or was.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Station {
    /// The place, as the one before it calls it; of whoever answers: nothing.
    pub at: String,
    /// `writing`, `queued`, `sending`, `waiting` or `held`: it is owed to the next place. `passed`: it is not,
    /// or never was. `there` or `missing`, at the end. `taken`: it or a place behind it has
    /// it, and which is not told. `away`: it cannot be asked.
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
    /// What is held there and goes first, if it waits for that.
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

/// Asks what a range of a file hashes to.
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
    /// In this order.
    pub files: Vec<Wanted>,
    /// Also what leaves hash to, or what small files do.
    pub digests: bool,
}

/// What is wanted of one file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Wanted {
    pub path: Name,
    pub ranges: Ranges,
}

/// What the end of a file in a pack says.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All came: the file as it was at the end, and what it hashes to if that is known.
    Read(Stat, #[serde(default)] Option<Text<Digest>>),
    /// Not all came.
    Refused(Refusal),
}

/// Says that one file of many is coming, in a pack that is sent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Given {
    pub path: Name,
    pub how: How,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// What it hashes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text<Digest>>,
}

/// How a file is written.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum How {
    New,
    Replace(Option<Version>),
    InPlace,
    Append { writer: u64, seq: u64 },
}

/// Begins an upload, or goes on with one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskUpload {
    /// The file.
    pub path: Name,
    /// The upload's own name; nothing: the server makes one that nobody can guess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Which attempt at it this is: it takes over from lower ones. 0: they are not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u64,
    /// How.
    pub how: How,
    /// Its length, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What is being copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<(String, Version)>,
    /// Permission bits of a new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// What to compute: BLAKE3, ADLER32.
    pub checks: (bool, bool),
    /// Go on with what is there.
    pub resume: bool,
    /// Which nodes passed it on, the first first; nothing: whoever has it from its writer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<String>,
}

/// What is true of the whole file.
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

/// Asks for the right to have somebody else read a file in our name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct AskGrant {
    pub path: Name,
    /// How long it is good, at most.
    pub seconds: u64,
}

/// The right to read one file, for whoever shows it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// What is shown, as `Authorization: Bearer`.
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
    /// What its key hashes to.
    pub key: String,
    /// What it granted.
    pub secret: String,
    /// The file there.
    pub source: Name,
    /// Which bytes of it.
    pub ranges: Ranges,
    /// Through how many connections.
    pub streams: u16,
    /// Whether what comes is compared with what it hashes to there.
    pub digests: bool,
}

/// Says that somebody comes with an invite.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskJoin {
    /// What the invite says.
    pub secret: String,
    /// How whoever comes wants to be called.
    pub name: String,
    /// Where they can be reached.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// Says that who asks has another key now. Both count until the new one was shown.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskRekey {
    /// What it hashes to.
    pub key: String,
}

/// Asks to remove a name.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskRemove {
    /// The name.
    pub path: Name,
    /// Whether it must be an empty directory, or must not be one.
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

/// Where a link leads, or what an attribute is called: any bytes, which are read by nobody here.
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
        let stat = Stat {
            kind: EntryKind::Link,
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
        comes_back(&Line::Entry(Entry {
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
        comes_back(&Line::Finished(Finished {
            version: Version::Strong(digest),
            ..Finished::default()
        }));
        comes_back(&Line::Xattrs(vec![(
            Link("user.a%/b".into()),
            Bytes(vec![0, 0xff, b'\n']),
        )]));
        comes_back(&Line::Unread(Name("x".into()), Refusal::default()));
        comes_back(&Line::End);
    }

    #[test]
    fn a_name_of_json_is_as_strict_as_one_of_a_target() {
        for text in ["..", "a%2Fb", "a%00", "/a", "a//b"] {
            let asked = format!("{{\"path\":\"{text}\"}}");
            assert!(read::<AskPath>(asked.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_in_what_is_asked() {
        assert!(read::<AskPath>(br#"{"path":"a","deep":true}"#).is_err());
        // An answer may say more than we know.
        let line = br#"{"space":{"total_bytes":1,"free_bytes":1,"more":2}}"#;
        assert!(Line::read(line).is_ok());
    }

    #[test]
    fn what_an_older_node_would_not_know_is_not_said_in_vain() {
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
