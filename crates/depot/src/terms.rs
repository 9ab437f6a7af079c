//! Terms of the interface that every layer uses: scopes, freshness, and whether a caller still waits.

use crate::{Error, Result, Who};
use godwit_core::Url;

/// The outcome of the end of an editor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// No other program writes it: this is a generation, durable here, and pending if it differs from the one before.
    Last(u64),
    /// A program still has it open for writing.
    Open,
}

/// Tells whether the caller still waits for the answer.
pub type StillWanted<'a> = &'a (dyn Fn() -> bool + Sync);

/// The outcome of a comparison of an entry with its hashes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verified {
    /// Whose.
    pub url: Url,
    /// Bytes that were read.
    pub bytes: u64,
    /// Leaves that are not what they were; they are fetched again.
    pub wrong: Vec<u64>,
    /// Nothing of ours says what it should be.
    pub is_unknown: bool,
}

/// For whom a name is changed.
#[derive(Clone, Copy)]
pub struct By<'a> {
    /// The identity that is allowed to.
    pub who: &'a Who,
    /// By what they find it again.
    pub session: &'a str,
    /// Whether they still want it: it is asked before it is promised, since servers may take long to say what there is,
    /// and a caller that gave up meanwhile may have done something else to the name since.
    pub is_wanted: &'a (dyn Fn() -> bool + Sync),
}

impl By<'_> {
    pub(crate) fn must_want(&self) -> Result<()> {
        match (self.is_wanted)() {
            true => Ok(()),
            false => Err(Error::Unwanted),
        }
    }
}

impl std::fmt::Debug for By<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:?}", self.who, self.session)
    }
}

/// A selection of pending files and operations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Everything.
    All,
    /// One name.
    Url(Url),
    /// A name, and all that is in it where it is a directory.
    Below(Url),
    /// All that one session wrote.
    Session(String),
}

/// A pending file or operation that goes before another.
#[derive(Clone, Debug)]
pub struct Before {
    /// Its number.
    pub id: String,
    /// The operation, by the words of [`Pending::what`](crate::Pending::what).
    pub what: &'static str,
    /// Where.
    pub url: Url,
    /// The operation is on hold until a person decides.
    pub is_held: bool,
}

impl Before {
    pub(crate) fn reason(&self) -> String {
        let url = self.url.without_password();
        let what = self.words_at(&url.to_string());
        match self.is_held {
            true => format!(
                "{what}: once that is decided (godwit retry, release or drop {}) this goes",
                url.pasted()
            ),
            false => what,
        }
    }

    /// Returns these words for a caller that has another name for it, and asks elsewhere what to do.
    pub(crate) fn words_at(&self, name: &str) -> String {
        let name = match self.what {
            "publish" => name.to_owned(),
            what => format!("the {what} of {name}"),
        };
        match self.is_held {
            true => format!("waits for {name}, which is held"),
            false => format!("{name} goes first"),
        }
    }
}

/// How new a file must be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fresh {
    /// The origin is asked if it was not asked within [`Rules::fresh`](crate::Rules::fresh).
    #[default]
    Usual,
    /// The origin is asked.
    Now,
    /// The origin is asked, and what might be another with the size and the time of the old is not believed.
    Proved,
    /// The origin is not asked.
    Any,
}

impl Fresh {
    /// Returns how new it must be whose origin must be asked now.
    pub(crate) fn asked(self) -> Self {
        match self {
            Self::Proved => Self::Proved,
            _ => Self::Now,
        }
    }
}

/// Is told that there is no room, and says whether that is waited for.
pub type IsWanted<'a> = &'a dyn Fn(&Error) -> bool;
