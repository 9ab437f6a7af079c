//! Answers of the node of this machine.

use super::Handle;
use crate::{
    door::{
        call::{DoorVersion, Link},
        refusal::{self, Refusal},
    },
    words,
};
use godwit_core::Kind;
use serde::{Deserialize, Serialize};

/// An answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Response {
    /// The node introduces itself.
    Hello(Hello),
    /// A file is open; its descriptor is sent with this answer, unless the request declined one.
    Opened(OpenedFile),
    /// Permission to write a range.
    Granted {
        /// The number of the grant, for [`Request::Written`](super::Request::Written).
        grant: u64,
    },
    /// The request is done.
    Done(Done),
    /// Bytes: in the body, or in the file in memory that is sent with this answer.
    Bytes {
        /// How many.
        len: u64,
        /// How long the file is.
        size: u64,
    },
    /// The attributes of a file.
    Stat(LocalStat),
    /// One of several rows; others follow, and then [`Response::Done`].
    Row(Box<Row>),
    /// The request is still at work.
    Progress {
        /// How much of it is done.
        done: u64,
        /// Of how much.
        total: Option<u64>,
    },
    /// Where a program's directory is served; other answers follow.
    Serving {
        /// Its URL.
        url: String,
    },
    /// A visitor asks to see or change what a program serves, and waits for its decision; other answers follow.
    #[serde(rename = "knock")]
    AccessRequest(AccessRequest),
    /// How full the depot is.
    Space(LocalSpace),
    /// How the node is.
    Status(Status),
    /// Answers of the catalog: lines of JSON in the body; others follow, and then [`Response::Done`].
    Answers,
    /// The lengths of fragments: 8 bytes each in the body, the lowest first.
    Fragments {
        /// The version of the file; 0: there is none.
        version: u64,
    },
    /// A sentence for the user.
    Words(String),
    /// The request failed.
    Refused(#[serde(with = "refusal::local")] Box<Refusal>),
}

impl Response {
    /// Tells whether this is the last answer to its request.
    pub fn is_last(&self) -> bool {
        !matches!(
            self,
            Self::Row(_)
                | Self::Progress { .. }
                | Self::Serving { .. }
                | Self::AccessRequest(_)
                | Self::Answers
        )
    }
}

/// The node, as it introduces itself.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Hello {
    /// The version of the protocol.
    pub version: u32,
    /// The version of the program.
    pub godwit: String,
    /// Its process.
    pub process: u32,
    /// The node's number of this connection.
    pub connection: u64,
}

/// A file that is open.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct OpenedFile {
    pub handle: Handle,
    pub size: u64,
    pub version: DoorVersion,
    /// Whether the file was present and need not be fetched.
    pub was_here: bool,
    /// Some of its bytes are not here: the reader [ensures](super::request::Ensure) what it is about to read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lazy: bool,
    /// Of [`Cache::Add`](super::request::Cache::Add): it is there, and nothing is to be filled.
    pub exists: bool,
    /// Of a [shared file](super::request::Share): where the bytes begin that are written without a grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_from: Option<u64>,
    /// A time of the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Of [`Cache::Add`](super::request::Cache::Add): where it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Link>,
}

/// The result of a request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Done {
    /// How many files it was about.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Notes for the user: that a commit waits for the next hop, or a delivery for the node's next start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The attributes of a file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct LocalStat {
    pub url: String,
    pub size: u64,
    pub is_directory: bool,
    pub version: DoorVersion,
    /// Nanoseconds since the epoch.
    pub mtime_ns: Option<u64>,
    pub mode: Option<u32>,
}

/// A kept file, or a pending change.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Row {
    /// Its name among the files of the depot.
    pub id: String,
    /// The URL of the file.
    pub url: String,
    /// The pending operation: `publish`, `rename`, `unlink`, `mkdir`, `set`, `append`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// The new name of a rename.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The users who may see the file.
    pub audience: String,
    /// The session that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// How long it is.
    pub size: u64,
    /// How many of its bytes are present.
    pub present_bytes: u64,
    /// How many of its bytes the target lacks.
    pub owed_bytes: u64,
    /// Whether a change is pending, if only of the name.
    pub owes: bool,
    /// Whether the pending change is durable on this machine.
    pub committed: bool,
    /// How many of its bytes have landed in an upload at the target.
    pub landed_bytes: u64,
    /// The version that the origin had, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The generation that is being written or delivered.
    pub generation: u64,
    /// Of a pending change: `writing`, `queued`, `sending`, `waiting`, `held`. Of a kept file: `current` or `old`. Of
    /// a verified file: `whole`, `wrong`, `unknown`.
    pub stage: String,
    /// The name of the change that must be delivered first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Why nothing moves, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The cause as a code, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(with = "words::local::option")]
    pub reason: Option<Kind>,
    /// When delivery is retried, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_ms: Option<u64>,
    /// For how long the change has been pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// How often delivery was tried.
    pub attempts: u64,
    /// How often it was fetched.
    pub transfers: u64,
    /// The tags that keep the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// How many have it open.
    pub readers: u64,
    /// How many have it open to write.
    pub writers: u64,
    /// A time of the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// When it was last used: seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_s: Option<u64>,
}

/// A visitor who asks to see or change what a program serves.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AccessRequest {
    /// The number that the answer repeats.
    pub knock: u64,
    /// The identity that the visitor proved; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// `read`, `write`, `create`, `delete`, `list`.
    pub deed: String,
    /// Below the directory that is served, beginning with a slash; links are resolved.
    pub path: Link,
}

/// How full the depot is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LocalSpace {
    /// The directory of the depot.
    pub path: String,
    /// The limit of the depot; `None`: the disk's own.
    pub quota_bytes: Option<u64>,
    /// The bytes that the depot uses.
    pub used_bytes: u64,
    /// Of them, the bytes that targets lack.
    pub owed_bytes: u64,
    /// Of them, the bytes that cannot be evicted now.
    pub kept_bytes: u64,
    /// The free bytes of the disk.
    pub free_bytes: Option<u64>,
    /// How many files.
    pub files: u64,
}

/// How the node is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Status {
    /// Its process.
    pub process: u32,
    /// The directory of the node's state.
    pub state: String,
    /// For how long it has run.
    pub age_ms: u64,
    /// How many programs talk with it.
    pub connections: u64,
    /// How many files they have open.
    pub open: u64,
    /// How many files have pending changes.
    pub owed_files: u64,
    /// How many bytes are pending.
    pub owed_bytes: u64,
    /// When the node ends if no request arrives; `None` while changes are pending.
    pub ends_in_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{Error, Request, RequestHead, ResponseHead, request};
    use godwit_core::Fault;
    use std::time::Duration;

    #[test]
    fn many_ranges_fit_a_head() {
        let last = u64::MAX - 1;
        let act = request::Act::Wrote(vec![(last, last); request::RANGES_MAX]);
        let handle = last;
        let asked = RequestHead {
            n: last,
            fds: 0,
            ask: Request::Shared(request::SharedRequest { handle, act }),
        };
        assert!(asked.write(b"").is_ok());
    }

    #[test]
    fn head_is_short_and_named() {
        let open = request::OpenRequest {
            url: "godwit://lab/run7".into(),
            read: true,
            ..request::OpenRequest::default()
        };
        let asked = RequestHead {
            n: 7,
            fds: 0,
            ask: Request::Open(open),
        };
        let frame = asked.write(b"").unwrap();
        assert!(frame.len() < 200, "{}", frame.len());
        assert_eq!(RequestHead::read(&frame[8..]).unwrap(), asked);
    }

    #[test]
    fn unknown_members_ignored_unknown_ask_refused() {
        let known = br#"{"n":3,"later":1,"ask":{"stat":{"url":"u","later":[1]}}}"#;
        let ask = RequestHead::read(known).unwrap().ask;
        assert_eq!(ask, Request::Stat(request::FileTarget::is("u")));
        let later = br#"{"n":4,"fds":2,"ask":{"dance":{"url":"u"}}}"#;
        let error = RequestHead::read(later).unwrap_err();
        assert!(
            matches!(error, Error::Unknown { n: 4, fds: 2, .. }),
            "{error:?}"
        );
        for head in [&b"{}"[..], b"[]", b"\"x\"", b"", b"{\"n\":-1}"] {
            assert!(matches!(RequestHead::read(head), Err(Error::BadHead(_))));
        }
    }

    #[test]
    fn rows_and_progress_are_not_the_last() {
        let more = [
            Response::Row(Box::default()),
            Response::Progress {
                done: 1,
                total: None,
            },
        ];
        assert!(more.iter().all(|tell| !tell.is_last()));
        let refusal = Refusal::new(Kind::Quota, "read u", "the depot is full")
            .waiting(Fault::NotYet(Duration::from_secs(2)))
            .about("u");
        let told = ResponseHead {
            n: 1,
            fds: 0,
            tell: Response::Refused(Box::new(refusal.clone())),
        };
        assert!(told.tell.is_last());
        let frame = told.write(b"").unwrap();
        assert_eq!(ResponseHead::read(&frame[8..]).unwrap(), told);
        assert_eq!(Refusal::read(&refusal.write()), Some(refusal.clone()));
        assert_eq!(Refusal::read(b"{\"event\":\"serving\"}\n"), None);
        assert_eq!(
            Fault::from(refusal.waiting),
            Fault::NotYet(Duration::from_secs(2))
        );
    }
}
