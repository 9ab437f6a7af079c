//! Why something was not done, and the reply that says so.
//!
//! Bodies have the lines of GCT, so that its clients, and programs that read
//! their output, find `c=PATH_NOT_FOUND` and the words of the system where they
//! look for them. What GCT calls the reason, "System error in open", says what was
//! wanted; a line of ours says what to do next.

use super::say::Say;

/// Why an ask failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What a program tells apart.
    pub cause: Cause,
    /// What a person reads.
    pub said: String,
}

/// Kinds of failure.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum Cause {
    Missing,
    Exists,
    IsDirectory,
    NotDirectory,
    NotEmpty,
    Denied,
    NoSpace,
    BadName,
    Changed,
    /// What was received does not hash to what was announced.
    Corrupt {
        computed: String,
        expected: String,
    },
    /// Not possible here.
    Unsupported,
    /// The end came too soon; what arrived is kept.
    Incomplete,
    /// No data connection came about.
    NoConnection,
    /// A data connection broke, or the peer broke its protocol.
    Lost,
    /// Nothing moved for too long.
    Stalled,
    /// `ABOR`, or the server stops.
    Aborted,
    /// A module did not do what it should.
    Module,
    /// Too much asked for now.
    Busy,
    /// Login refused.
    Login,
    Internal,
}

impl Failure {
    /// Returns a failure with a sentence.
    pub fn new(cause: Cause, said: impl Into<String>) -> Self {
        Self {
            cause,
            said: said.into(),
        }
    }

    /// Writes the reply. `wanted` continues "cannot": `open it`. Plain clients get one line:
    /// PyFilesystem and others read no more.
    pub(crate) fn say(&self, wanted: &str, say: &mut Say) {
        self.say_as(self.code(), wanted, say);
    }

    /// Writes the reply with another code.
    pub(crate) fn say_as(&self, code: u16, wanted: &str, say: &mut Say) {
        let (true, Some((c, errno))) = (say.explains(), self.machine_readable()) else {
            say.line(code, &self.said);
            return;
        };
        say.more(code, &format!("GlobusError: v=1 c={c}"));
        if let Cause::Corrupt { computed, expected } = &self.cause {
            say.more(code, &format!("GridFTP-Computed-Checksum: {computed}"));
            say.more(code, &format!("GridFTP-Expected-Checksum: {expected}"));
        } else {
            say.more(code, &format!("GridFTP-Errno: {errno}"));
            say.more(code, &format!("GridFTP-Reason: Cannot {wanted}"));
        }
        say.more(code, &format!("GridFTP-Error-String: {}", self.said));
        if let Some(next) = self.next() {
            say.more(code, &format!("Hint: {next}"));
        }
        say.line(code, "End.");
    }

    fn code(&self) -> u16 {
        match self.cause {
            Cause::Exists => 553,
            Cause::BadName => 553,
            Cause::NoSpace => 552,
            Cause::Login => 530,
            Cause::NoConnection => 425,
            Cause::Incomplete | Cause::Lost | Cause::Stalled | Cause::Aborted => 426,
            Cause::Busy => 450,
            Cause::Internal => 451,
            Cause::Unsupported => 504,
            _ => 550,
        }
    }

    /// What whoever asked can do, of what has a `c=`.
    fn next(&self) -> Option<&'static str> {
        Some(match self.cause {
            Cause::Missing => "see what is there: list the directory above it",
            Cause::Exists => "choose another name, or remove what has this one",
            Cause::IsDirectory => "name a file in it",
            Cause::NotDirectory => "name a directory",
            Cause::NotEmpty => "remove what is in it first; an upload under way is in it, too",
            Cause::Denied => "log in as somebody who may, or ask who runs this server",
            Cause::NoSpace => "make room; what arrived is kept",
            Cause::BadName => "use another name",
            Cause::Changed => "look at it again, and begin anew",
            Cause::Corrupt { .. } => "send it again; nothing of it was published",
            Cause::Module => "see what it takes: SITE GODWIT MODULES; nothing is kept",
            Cause::Internal => "try again in a while; the log of this server tells more",
            _ => return None,
        })
    }

    /// The `c=` of GCT and the errno of Linux.
    fn machine_readable(&self) -> Option<(&'static str, u16)> {
        Some(match self.cause {
            Cause::Missing => ("PATH_NOT_FOUND", 2),
            Cause::Exists => ("PATH_EXISTS", 17),
            Cause::IsDirectory => ("IS_A_DIRECTORY", 21),
            Cause::NotDirectory => ("NOT_A_DIRECTORY", 20),
            Cause::NotEmpty => ("DIRECTORY_NOT_EMPTY", 39),
            Cause::Denied => ("PERMISSION_DENIED", 13),
            Cause::NoSpace => ("NO_SPACE_LEFT", 28),
            Cause::BadName => ("INVALID_PATH_NAME", 22),
            Cause::Changed => ("FILE_CHANGED", 116),
            Cause::Corrupt { .. } => ("INCORRECT_CHECKSUM", 0),
            Cause::Module => ("MODULE_FAILED", 5),
            Cause::Internal => ("INTERNAL_ERROR", 5),
            _ => return None,
        })
    }
}
