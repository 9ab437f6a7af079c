//! What the node of this machine tells.

use super::Handle;
use crate::{
    door::{
        call::{Link, Version},
        refusal::{self, Refusal},
    },
    words,
};
use godwit_core::Kind;
use serde::{Deserialize, Serialize};

/// What is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tell {
    /// Who answers.
    Hello(Hello),
    /// A file is open: its descriptor comes with this, unless none was wanted.
    Opened(Opened),
    /// Leave to write.
    Granted {
        /// Which, when it is said to be written.
        grant: u64,
    },
    /// It is done.
    Done(Done),
    /// Bytes: in the body, or in the file in memory that comes with this.
    Bytes {
        /// How many.
        len: u64,
        /// How long the file is.
        size: u64,
    },
    /// What is known of a file.
    Stat(Stat),
    /// One of several; more come, and then [`Tell::Done`].
    Row(Box<Row>),
    /// It goes on.
    Progress {
        /// How much of it is done.
        done: u64,
        /// Of how much.
        total: Option<u64>,
    },
    /// Where a program's directory is served; more comes.
    Serving {
        /// Its URL.
        url: String,
    },
    /// Somebody would see or change what a program serves, and waits for its word; more comes.
    Knock(Knock),
    /// How full the depot is.
    Space(Space),
    /// How the node is.
    Status(Status),
    /// Answers of the catalog: lines of JSON in the body; more comes, and then [`Tell::Done`].
    Answers,
    /// The lengths of fragments: 8 bytes each in the body, the lowest first.
    Fragments {
        /// The version of the file; 0: there is none.
        version: u64,
    },
    /// In a sentence.
    Words(String),
    /// It is not done.
    Refused(#[serde(with = "refusal::local")] Box<Refusal>),
}

impl Tell {
    /// Tells whether nothing more is told of the same ask.
    pub fn is_last(&self) -> bool {
        !matches!(
            self,
            Self::Row(_)
                | Self::Progress { .. }
                | Self::Serving { .. }
                | Self::Knock(_)
                | Self::Answers
        )
    }
}

/// Who answers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Hello {
    /// How it speaks.
    pub version: u32,
    /// Of the program.
    pub godwit: String,
    /// Its process.
    pub process: u32,
    /// What it calls this connection.
    pub connection: u64,
}

/// A file that is open.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Opened {
    pub handle: Handle,
    pub size: u64,
    pub version: Version,
    /// It was here, and need not be fetched.
    pub was_here: bool,
    /// Some of its bytes are not here: the reader [ensures](super::ask::Ensure) what it is about to read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lazy: bool,
    /// Of [`Cache::Add`](super::ask::Cache::Add): it is there, and nothing is to be filled.
    pub exists: bool,
    /// Of a [shared file](super::ask::Share): where the bytes begin that are written without a grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_from: Option<u64>,
    /// A time of the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Of [`Cache::Add`](super::ask::Cache::Add): where it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Link>,
}

/// What was done.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Done {
    /// How many files it was about.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What to know about it: that a commit waits for the next hop, that delivery waits for the next start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What is known of a file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Stat {
    pub url: String,
    pub size: u64,
    pub is_directory: bool,
    pub version: Version,
    /// Nanoseconds since the epoch.
    pub mtime_ns: Option<u64>,
    pub mode: Option<u32>,
}

/// A file that is kept, or owed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Row {
    /// Its name among the files of the depot.
    pub id: String,
    /// Where it belongs.
    pub url: String,
    /// What is owed there: `publish`, `rename`, `unlink`, `mkdir`, `set`, `append`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// The new name of a rename.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whose it is.
    pub audience: String,
    /// The session that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// How long it is.
    pub size: u64,
    /// How much of it is here.
    pub present_bytes: u64,
    /// How much of it the target does not have.
    pub owed_bytes: u64,
    /// It owes something, if only its name.
    pub owes: bool,
    /// What is owed survives a crash of this machine.
    pub committed: bool,
    /// How much of it is safe in an upload at the target.
    pub landed_bytes: u64,
    /// What its origin had, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Which generation is being written or delivered.
    pub generation: u64,
    /// Of what is owed: `writing`, `queued`, `sending`, `waiting`, `held`. Of what is kept: `current` or `old`. Of what
    /// was verified: `whole`, `wrong`, `unknown`.
    pub stage: String,
    /// The name of what goes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Why nothing moves, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The same for a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(with = "words::local::option")]
    pub reason: Option<Kind>,
    /// When it is tried next, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_ms: Option<u64>,
    /// For how long it has been owed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// How often delivery was tried.
    pub attempts: u64,
    /// How often it was fetched.
    pub transfers: u64,
    /// What keeps it.
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

/// Who would do what with something that a program serves.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Knock {
    /// What the answer is to name.
    pub knock: u64,
    /// As whom they proved themselves; nothing: they did not.
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
pub struct Space {
    /// Where it is.
    pub path: String,
    /// What it may take; nothing: as much as the disk has.
    pub quota_bytes: Option<u64>,
    /// What it takes.
    pub used_bytes: u64,
    /// Of that, what targets do not have.
    pub owed_bytes: u64,
    /// Of that, what cannot be forgotten now.
    pub kept_bytes: u64,
    /// What the disk has left.
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
    /// Where it keeps its state.
    pub state: String,
    /// For how long it has run.
    pub age_ms: u64,
    /// How many programs talk with it.
    pub connections: u64,
    /// How many files they have open.
    pub open: u64,
    /// What is owed.
    pub owed_files: u64,
    /// The same.
    pub owed_bytes: u64,
    /// When it ends unless somebody asks something; it does not while it owes.
    pub ends_in_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{Ask, Asked, Error, Told, ask};
    use godwit_core::Fault;
    use std::time::Duration;

    #[test]
    fn many_ranges_fit_a_head() {
        let last = u64::MAX - 1;
        let act = ask::Act::Wrote(vec![(last, last); ask::RANGES_MAX]);
        let handle = last;
        let asked = Asked {
            n: last,
            fds: 0,
            ask: Ask::Shared(ask::Shared { handle, act }),
        };
        assert!(asked.write(b"").is_ok());
    }

    #[test]
    fn a_head_is_short_and_says_what_it_is() {
        let open = ask::Open {
            url: "godwit://lab/run7".into(),
            read: true,
            ..ask::Open::default()
        };
        let asked = Asked {
            n: 7,
            fds: 0,
            ask: Ask::Open(open),
        };
        let frame = asked.write(b"").unwrap();
        assert!(frame.len() < 200, "{}", frame.len());
        assert_eq!(Asked::read(&frame[8..]).unwrap(), asked);
    }

    #[test]
    fn what_came_later_is_passed_over_in_objects_and_refused_by_its_number() {
        let known = br#"{"n":3,"later":1,"ask":{"stat":{"url":"u","later":[1]}}}"#;
        let ask = Asked::read(known).unwrap().ask;
        assert_eq!(ask, Ask::Stat(ask::Where::is("u")));
        let later = br#"{"n":4,"fds":2,"ask":{"dance":{"url":"u"}}}"#;
        let error = Asked::read(later).unwrap_err();
        assert!(
            matches!(error, Error::Unknown { n: 4, fds: 2, .. }),
            "{error:?}"
        );
        for head in [&b"{}"[..], b"[]", b"\"x\"", b"", b"{\"n\":-1}"] {
            assert!(matches!(Asked::read(head), Err(Error::BadHead(_))));
        }
    }

    #[test]
    fn rows_and_progress_are_not_the_last() {
        let more = [
            Tell::Row(Box::default()),
            Tell::Progress {
                done: 1,
                total: None,
            },
        ];
        assert!(more.iter().all(|tell| !tell.is_last()));
        let refusal = Refusal::new(Kind::Quota, "read u", "the depot is full")
            .waiting(Fault::NotYet(Duration::from_secs(2)))
            .about("u");
        let told = Told {
            n: 1,
            fds: 0,
            tell: Tell::Refused(Box::new(refusal.clone())),
        };
        assert!(told.tell.is_last());
        let frame = told.write(b"").unwrap();
        assert_eq!(Told::read(&frame[8..]).unwrap(), told);
        assert_eq!(Refusal::read(&refusal.write()), Some(refusal.clone()));
        assert_eq!(Refusal::read(b"{\"event\":\"serving\"}\n"), None);
        assert_eq!(
            Fault::from(refusal.waiting),
            Fault::NotYet(Duration::from_secs(2))
        );
    }
}
