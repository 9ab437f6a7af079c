//! Questions to a catalog, changes of it, and its answers: one set of values for local use, the door and C.

use super::call::{Name, Text, Time};
pub use super::made::{Definition, Input, MadeFile, Ran, Recipe, RunRank};
use godwit_core::{Digest, HomeState};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// A question. Answers are streamed; a page holds [`PAGE`] of them at most.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// Asks for an entry with its homes for each name, in this order; [`CatalogAnswer::Missing`] if there is none.
    Locate {
        /// The names.
        names: Vec<Name>,
    },
    /// Lists a collection, in the order of bytes.
    List {
        /// The collection.
        name: Name,
        /// Whether collections below it are listed too, each before its entries.
        #[serde(default)]
        deep: bool,
        /// Whether entries tell their homes and attributes.
        #[serde(default)]
        homes: bool,
        /// The last name of the page before, relative to `name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Name>,
    },
    /// Asks for the locations of a collection: its own, those above it and those below it.
    Locations {
        /// The collection.
        name: Name,
        /// Whether the homes of each are counted.
        #[serde(default)]
        count: bool,
    },
    /// Asks for every home at a location, in the order of its paths: an entry each, with that home alone.
    Holdings {
        /// The location.
        location: u64,
        /// The last path of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Name>,
    },
    /// Asks for intents, those whose lease ended if `ended`.
    Intents {
        /// Whether intents under a valid lease are left out.
        ended: bool,
        /// Only those of this name and of names below it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Name>,
    },
    /// Asks for what transfers to and from sites measured.
    Weather {},
    /// Asks for the rules of a collection, of those above it and of those below it.
    Rules {
        /// The collection.
        name: Name,
    },
    /// Asks how a version of a file was made: the current one, or the last one if the name is gone.
    History {
        /// The name.
        name: Name,
    },
    /// Asks for files that may not be as the rules say, those whose turn it is first.
    Todo {
        /// Only this file, and also before its turn; `None`: all whose turn it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Name>,
    },
}

/// An answer to a question.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CatalogAnswer {
    /// A file or collection.
    Entry(Box<CatalogEntry>),
    /// A name that is in no collection.
    Missing(Name),
    /// A location.
    Location(Location),
    /// A change that is begun.
    Intent(Box<Intent>),
    /// A transfer that was measured.
    Weather(Measured),
    /// A rule.
    Rule(CatalogRule),
    /// A file that may not be as the rules say.
    Todo(Box<Todo>),
    /// The run that made a version.
    Made(Box<MadeFile>),
    /// There are more answers after this one.
    More,
}

/// A rule about the copies of all files of a collection, which the node that serves the catalog keeps.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct CatalogRule {
    /// Its number.
    pub rule: u64,
    /// The collection.
    pub name: Name,
    /// The rule, as a person writes it.
    pub text: String,
    /// The time at which all files are compared next, in seconds since the epoch.
    pub due_s: u64,
}

/// A file that changed since it was compared with the rules.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Todo {
    /// The file with its homes.
    pub entry: CatalogEntry,
    /// The count of its changes: a later one is not forgotten.
    pub seq: u64,
    /// The attempts that failed.
    pub tries: u64,
    /// The time of the next one, in seconds since the epoch.
    pub again_s: u64,
    /// The reason of the last failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub said: String,
}

/// A file or collection of a catalog.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct CatalogEntry {
    /// The name; in lists relative to the collection.
    pub name: Name,
    /// True for a collection.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub collection: bool,
    /// The number of the file or collection, equal for all its names.
    pub file: u64,
    /// The current version; 0: the name is known, and its bytes are not.
    pub version: u64,
    /// The length in bytes, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The digests of the current version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<Text<Digest>>,
    /// The time of its last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<Time>,
    /// The permission bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// The places of its bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub homes: Vec<CatalogHome>,
    /// Attributes that users set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// The fragments that it consists of, in their order. Each is a file with homes of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fragments: Vec<CatalogFragment>,
}

/// A fragment of a file.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct CatalogFragment {
    /// The number of its file.
    pub file: u64,
    /// The version of its file.
    pub version: u64,
    /// The offset of its first byte in the whole file.
    pub start: u64,
    /// The length in bytes.
    pub size: u64,
    /// The digests of its bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<Text<Digest>>,
}

impl CatalogEntry {
    /// Returns each fragment as the file that it is, with its homes; none of a file that is in one piece.
    pub fn parts(&self) -> Vec<Self> {
        let count = self.fragments.len() as u64;
        let homes_of = |index: u64, version: u64| {
            let its = self
                .homes
                .iter()
                .filter(move |home| home.fragment == Some(index));
            let home = its.map(move |home| CatalogHome {
                range: None,
                fragment: None,
                // Of an older version is also what was older than the file in which it is.
                version: if home.version == self.version {
                    version
                } else {
                    0
                },
                ..home.clone()
            });
            home.collect()
        };
        let part = |(index, fragment): (u64, &CatalogFragment)| Self {
            name: Name(fragment_name(&self.name.0, index, count)),
            file: fragment.file,
            version: fragment.version,
            size: Some(fragment.size),
            digests: fragment.digests.clone(),
            mtime: self.mtime,
            mode: self.mode,
            homes: homes_of(index, fragment.version),
            ..Self::default()
        };
        (0..).zip(&self.fragments).map(part).collect()
    }
}

impl CatalogEntry {
    /// Returns the fragments as the files that they are; of a file in one piece the file itself.
    pub fn into_pieces(self) -> Vec<Self> {
        match self.parts() {
            parts if parts.is_empty() => vec![self],
            parts => parts,
        }
    }
}

/// Returns the name of a fragment: it lies below its file.
pub fn fragment_name(file: &Path, index: u64, count: u64) -> PathBuf {
    file.join(format!("#{index}.{count}"))
}

/// Tells whether a name is that of a fragment.
pub fn is_fragment(name: &Path) -> bool {
    let last = name.file_name().and_then(OsStr::to_str);
    let numbers = last.and_then(|last| last.strip_prefix('#')?.split_once('.'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(index, count)| is_number(index) && is_number(count))
}

/// Returns the collection in which the fragments of a draft are written, beside the name that it will have.
pub fn draft_name(name: &Path, intent: u64) -> PathBuf {
    name.with_file_name(format!("{DRAFT}{intent}"))
}

/// Tells whether a name is that of a fragment in a draft.
pub fn is_in_draft(name: &Path) -> bool {
    let above = name.parent().and_then(Path::file_name);
    above.is_some_and(|above| above.as_encoded_bytes().starts_with(DRAFT.as_bytes()))
}

const DRAFT: &str = ".parts-";

/// One place that holds the bytes of a version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct CatalogHome {
    /// The number of the location.
    pub location: u64,
    /// The site of the location.
    pub site: String,
    /// The file at the location, as a URL.
    pub url: String,
    /// The path below the URL of the location.
    pub path: Name,
    /// The version at that home.
    pub version: u64,
    /// The bytes of the file that it holds, from and to; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(u64, u64)>,
    /// The index of the fragment that these bytes are, if the file consists of fragments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<u64>,
    /// The offset of the first of them in the file there.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// The state, which tells whether a reader may use it.
    pub state: HomeWord,
    /// The time of the last comparison of its digest, in seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_s: Option<u64>,
    /// Whether godwit made the copy, and may delete it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ours: bool,
}

/// The state of a home, as [`HomeState`] has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HomeWord(pub HomeState);

impl Default for HomeWord {
    fn default() -> Self {
        Self(HomeState::Whole)
    }
}

/// The words of the states, in JSON and in tables.
pub const STATES: [(HomeState, &str); 4] = [
    (HomeState::Whole, "whole"),
    (HomeState::Filling, "filling"),
    (HomeState::Damaged, "damaged"),
    (HomeState::Lost, "lost"),
];

impl HomeWord {
    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        let row = STATES.iter().find(|(state, _)| *state == self.0);
        row.map_or("lost", |(_, word)| word)
    }

    /// Reads the word.
    pub fn read(text: &str) -> Option<Self> {
        let row = STATES.iter().find(|(_, word)| *word == text);
        row.map(|(state, _)| Self(*state))
    }
}

impl Serialize for HomeWord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for HomeWord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::read(&text).ok_or_else(|| de::Error::custom("not a state of a home"))
    }
}

/// A directory of a server where files of a collection lie.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Location {
    /// Its number.
    pub location: u64,
    /// The collection.
    pub name: Name,
    /// The site.
    pub site: String,
    /// The directory, as a URL.
    pub url: String,
    /// Whether all that lies there belongs to the collection, so that other files are dark.
    pub whole: bool,
    /// The count of its homes, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homes: Option<u64>,
    /// Attributes that users set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Something that a process has begun to do at a site. Its lease tells whether that process is alive.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Intent {
    /// Its number.
    pub intent: u64,
    /// The deed.
    pub deed: IntentDeed,
    /// The name that is written or copied; of a deletion: the name that there was.
    pub name: Name,
    /// The number of the location.
    pub location: u64,
    /// The path below it.
    pub path: Name,
    /// The file there, as a URL.
    pub url: String,
    /// The version that the writer saw: 0: none. Of a copy: the version that is copied.
    pub base: u64,
    /// The length that is expected there, once the bytes may have landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The digest that is expected there, once the bytes may have landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Text<Digest>>,
    /// The process.
    pub holder: String,
    /// True once the lease has ended.
    pub ended: bool,
}

/// The deed of an intent.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IntentDeed {
    /// A new version.
    #[default]
    Write,
    /// One more copy of a version.
    Copy,
    /// The removal of a copy.
    Delete,
    /// A new version that is written in fragments, at no location of its own.
    Draft,
}

/// Measurements of one transfer between two sites.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Measured {
    /// The site that read.
    pub to: String,
    /// The site that sent.
    pub from: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The time it took, in milliseconds.
    pub took_ms: u64,
    /// True if the transfer failed.
    pub fault: bool,
    /// The time of its end, in seconds since the epoch; 0: now.
    pub at_s: u64,
}

/// A list of changes: all of it is applied in one transaction, or nothing is.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// The changes, in this order.
    pub changes: Vec<Change>,
    /// A random word of the writer and the count of this list: a list that is sent again is applied once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<(String, u64)>,
}

impl From<Vec<Change>> for Changes {
    fn from(changes: Vec<Change>) -> Self {
        Self {
            changes,
            once: None,
        }
    }
}

impl From<Change> for Changes {
    fn from(change: Change) -> Self {
        vec![change].into()
    }
}

/// A home that is to be noted.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewHome {
    /// The number of the location.
    pub location: u64,
    /// The path below it.
    pub path: Name,
    /// The bytes of the file that it holds, from and to; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(u64, u64)>,
    /// The offset of the first of them in the file there.
    #[serde(skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// The time of the comparison of its digest, in seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_s: Option<u64>,
    /// Whether godwit made the copy, and may delete it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ours: bool,
}

/// One change.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Makes a collection. With `parents` also those above it, and one that exists is no error.
    Collect {
        /// The collection.
        name: Name,
        /// Whether those above it are made.
        #[serde(default)]
        parents: bool,
    },
    /// Notes a file that lies somewhere. The name exists with the same size and digest: the home is added.
    /// With others the change is refused ([`Kind::Changed`](godwit_core::Kind::Changed)). Collections above it are made.
    Register {
        /// The name.
        name: Name,
        /// The length in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// The digests.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        digests: Vec<Text<Digest>>,
        /// The time of its last change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtime: Option<Time>,
        /// The permission bits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// The place of its bytes; `None`: the name alone is noted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        home: Option<NewHome>,
    },
    /// Forgets a home; the bytes stay. Refused if it is the last one of a version, unless `last`.
    Unregister {
        /// The number of the location.
        location: u64,
        /// The path below it.
        path: Name,
        /// True if the last home may be forgotten.
        #[serde(default)]
        last: bool,
    },
    /// Forgets a home, and begins the deletion of its bytes under a lease of [`LEASE_S`]. Refused for the last home of a
    /// version unless `last`, and for bytes that were registered in place unless `data`.
    Discard {
        /// The number of the location.
        location: u64,
        /// The path below it.
        path: Name,
        /// True if the last home may go.
        #[serde(default)]
        last: bool,
        /// True if bytes that were registered in place may go.
        #[serde(default)]
        data: bool,
        /// The process.
        holder: String,
    },
    /// Begins a write or copy of one file at one place, under a lease of [`LEASE_S`].
    Intend {
        /// The deed.
        deed: IntentDeed,
        /// The name.
        name: Name,
        /// The number of the location.
        location: u64,
        /// The path below it.
        path: Name,
        /// The version that the writer saw (0: none), or that is copied.
        base: u64,
        /// The process.
        holder: String,
        /// The length, if the bytes are known already; they may then land at once, as after [`Change::Land`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// The digest, if the bytes are known already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Text<Digest>>,
    },
    /// Announces the bytes that will lie there: from now on the home that it replaces is not offered.
    Land {
        /// The intent.
        intent: u64,
        /// The length in bytes.
        size: u64,
        /// The digest, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Text<Digest>>,
    },
    /// Says that the holder is alive, or takes over an intent whose lease has ended. Makes 1; 0: another process has it,
    /// or has settled it.
    Renew {
        /// The intent.
        intent: u64,
        /// The process.
        holder: String,
    },
    /// Ends a write or copy whose bytes have landed: the version and home are noted, the intent is removed.
    /// Refused if another version than the base is current by now ([`Kind::Changed`](godwit_core::Kind::Changed)).
    Publish {
        /// The intent.
        intent: u64,
        /// All digests that are known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        digests: Vec<Text<Digest>>,
        /// The time of its last change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtime: Option<Time>,
        /// The permission bits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// Whether both sides told the same digest.
        #[serde(default)]
        verified: bool,
        /// Whether the file was there before, and is not ours.
        #[serde(default)]
        adopted: bool,
    },
    /// Begins a version in fragments, under a lease of [`LEASE_S`]. They are written as files of the collection
    /// [`draft_name`], which no list shows. Makes the intent.
    Draft {
        /// The name.
        name: Name,
        /// The version that the writer saw; 0: none.
        base: u64,
        /// The process, or the job of several.
        holder: String,
        /// Whether the draft of the same holder, if there is one, is written together with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        join: bool,
    },
    /// Publishes a draft: its fragments become those of the file, all together.
    Assemble {
        /// The intent.
        intent: u64,
        /// The count of its fragments, all of which must be there.
        count: u64,
        /// The digests of the whole file that are known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        digests: Vec<Text<Digest>>,
        /// The time of its last change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtime: Option<Time>,
        /// The permission bits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// The run that made it, and which of its outputs it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made: Option<(String, u64)>,
    },
    /// Notes a run of a program, before its outputs are published in the same list.
    Ran(Box<Ran>),
    /// Notes that a run with this recipe gave equal outputs again.
    Proved {
        /// The digest of the recipe.
        recipe: String,
    },
    /// Ends an intent whose bytes never arrived. An existing home gets this state, `Whole` only if the landing had
    /// hidden that home. `None`: the home is removed.
    Settle {
        /// The intent.
        intent: u64,
        /// The state of the home that was there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        home: Option<HomeWord>,
    },
    /// Notes the result of a comparison at a home.
    Mark {
        /// The number of the location.
        location: u64,
        /// The path below it.
        path: Name,
        /// The state.
        state: HomeWord,
        /// The time of the comparison of its digest, in seconds since the epoch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verified_s: Option<u64>,
    },
    /// Removes a name, or an empty collection. Of the last name of a file each home that godwit made (with `data`:
    /// every home) becomes an intent to delete the bytes; the others are forgotten.
    Remove {
        /// The name.
        name: Name,
        /// Whether a collection is meant.
        #[serde(default)]
        collection: bool,
        /// Whether bytes that were registered in place are deleted too.
        #[serde(default)]
        data: bool,
    },
    /// Renames. A file under the new name is replaced; its homes go as with [`Change::Remove`].
    Rename {
        /// The old name.
        from: Name,
        /// The new name.
        to: Name,
    },
    /// Puts a file or collection under one more name.
    Link {
        /// The name that there is.
        from: Name,
        /// The new name.
        to: Name,
    },
    /// Sets the time or permission bits of a name.
    Set {
        /// The name.
        name: Name,
        /// The time of its last change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtime: Option<Time>,
        /// The permission bits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
    },
    /// Sets an attribute of a name, or of a location of that collection if a site is named.
    Attribute {
        /// The name.
        name: Name,
        /// The site.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        site: Option<String>,
        /// The key.
        key: String,
        /// The value; `None`: the attribute is removed.
        value: Option<String>,
    },
    /// Adds a location to a collection, which is made if it is missing.
    AddLocation {
        /// The collection.
        name: Name,
        /// The site.
        site: String,
        /// The directory, as a URL.
        url: String,
        /// Whether all that lies there belongs to the collection.
        whole: bool,
    },
    /// Moves a location to another URL: all its homes follow.
    SetLocation {
        /// The collection.
        name: Name,
        /// The site.
        site: String,
        /// The new URL.
        url: String,
    },
    /// Removes a location and forgets its homes. Refused if one is the last of a version, unless `last`.
    RemoveLocation {
        /// The collection.
        name: Name,
        /// The site.
        site: String,
        /// Whether last homes go too.
        #[serde(default)]
        last: bool,
    },
    /// Notes the measurements of a transfer.
    Measured(Measured),
    /// Adds a rule to a collection, which must be there.
    AddRule {
        /// The collection.
        name: Name,
        /// The rule.
        text: String,
    },
    /// Removes a rule.
    RemoveRule {
        /// The rule.
        rule: u64,
    },
    /// Notes when all files are compared with a rule next.
    Scanned {
        /// The rule.
        rule: u64,
        /// The time, in seconds since the epoch.
        due_s: u64,
    },
    /// Ends the turn of a file: it is as the rules say, or a later turn is needed.
    Did {
        /// The number of the file.
        file: u64,
        /// The count of its changes when it was compared.
        seq: u64,
        /// The reason why it is not as the rules say; `None`: it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
        /// The time of its next turn, in seconds since the epoch.
        #[serde(default)]
        again_s: u64,
    },
    /// Takes or renews the one lease of a kind of work, for [`LEASE_S`]. Makes 1; 0: another process has it.
    Lease {
        /// The work.
        what: String,
        /// The process.
        holder: String,
        /// True if the process gives it up.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over: bool,
    },
    /// Notes an entry as another catalog has it: number of its version, homes with their states, attributes. Collections
    /// above it are made. An entry that exists with the same size and digest gets the homes and attributes.
    Load(Box<CatalogEntry>),
}

/// Asks the node that serves the catalog to make a file again that no site can give.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AskMake {
    /// The file, or a fragment of it.
    pub name: Name,
}

/// The most answers of a page.
pub const PAGE: usize = 1000;

/// The most changes of a list that a door takes. It takes [`PAGE`] names of [`Question::Locate`] at most.
pub const CHANGES_MAX: usize = 10_000;

/// The most fragments of a file.
pub const FRAGMENTS_MAX: u64 = 4096;

/// The lease of an intent after a sign of life of its holder, in seconds.
pub const LEASE_S: u64 = 10;

/// The longest path of a name.
pub const NAME_BYTES_MAX: usize = 4096;

/// The longest segment of a name.
pub const SEGMENT_BYTES_MAX: usize = 255;

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_unchanged() {
        let home = CatalogHome {
            location: 3,
            site: "lab".into(),
            url: "ftp://lab/a".into(),
            path: Name("a b".into()),
            version: 2,
            range: Some((5, 9)),
            state: HomeWord(HomeState::Damaged),
            ..CatalogHome::default()
        };
        let entry = CatalogEntry {
            name: Name("run7/a b".into()),
            size: Some(1 << 60),
            homes: vec![home],
            ..CatalogEntry::default()
        };
        let answer = CatalogAnswer::Entry(Box::new(entry));
        let text = serde_json::to_string(&answer).unwrap();
        assert!(text.contains(r#""state":"damaged""#), "{text}");
        assert_eq!(
            serde_json::from_str::<CatalogAnswer>(&text).unwrap(),
            answer
        );
    }

    #[test]
    fn changes_with_unknown_members_are_refused() {
        let known = r#"{"changes":[{"collect":{"name":"a"}}]}"#;
        assert!(serde_json::from_str::<Changes>(known).is_ok());
        let newer = r#"{"changes":[{"collect":{"name":"a","colour":1}}]}"#;
        assert!(serde_json::from_str::<Changes>(newer).is_err());
    }
}
