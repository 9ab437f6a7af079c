//! Why something was not done, and the reply that says so.
//!
//! Bodies are what GCT writes, so that its clients, and programs that read
//! their output, find `c=PATH_NOT_FOUND` where they look for it.

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

    /// Writes the reply. `doing` names the act, like "stat".
    pub(crate) fn say(&self, doing: &str, say: &mut Say) {
        let code = self.code();
        let Some((c, errno)) = self.machine_readable() else {
            say.line(code, &self.said);
            return;
        };
        say.more(code, &format!("GlobusError: v=1 c={c}"));
        if let Cause::Corrupt { computed, expected } = &self.cause {
            say.more(code, &format!("GridFTP-Computed-Checksum: {computed}"));
            say.more(code, &format!("GridFTP-Expected-Checksum: {expected}"));
        } else {
            say.more(code, &format!("GridFTP-Errno: {errno}"));
            say.more(code, &format!("GridFTP-Reason: System error in {doing}"));
        }
        say.more(code, &format!("GridFTP-Error-String: {}", self.said));
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
            Cause::Internal => ("INTERNAL_ERROR", 5),
            _ => return None,
        })
    }
}
