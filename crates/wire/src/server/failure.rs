//! Why something was not done, and the reply that says so.
//!
//! Bodies have the lines of GCT, so that its clients, and programs that read
//! their output, find `c=PATH_NOT_FOUND` and the words of the system where they
//! look for them. What GCT calls the reason, "System error in open", says what was
//! wanted; a line of ours says what to do next.

use super::say::Say;
use godwit_core::Kind;

/// Why an ask failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What a program tells apart.
    pub kind: Kind,
    /// What a person reads.
    pub said: String,
    /// Of [`Kind::Corrupt`]: the digest that was computed, and the one that was announced.
    pub digests: Option<Box<(String, String)>>,
}

impl Failure {
    /// Returns a failure with a sentence.
    pub fn new(kind: Kind, said: impl Into<String>) -> Self {
        Self {
            kind,
            said: said.into(),
            digests: None,
        }
    }

    /// Returns the failure of bytes that do not have the digest that was announced.
    pub fn corrupt(computed: String, expected: String, said: impl Into<String>) -> Self {
        Self {
            digests: Some(Box::new((computed, expected))),
            ..Self::new(Kind::Corrupt, said)
        }
    }

    /// Writes the reply. `wanted` continues "cannot": `open it`. Plain clients get one line:
    /// PyFilesystem and others read no more.
    pub(crate) fn say(&self, wanted: &str, say: &mut Say) {
        self.say_as(self.kind.ftp().0, wanted, say);
    }

    /// Writes the reply with another code.
    pub(crate) fn say_as(&self, code: u16, wanted: &str, say: &mut Say) {
        let (_, c) = self.kind.ftp();
        if c.is_empty() || !say.explains() {
            say.line(code, &self.said);
            return;
        }
        let is_internal = c == Kind::Io.ftp().1;
        let told = if is_internal { Kind::Io } else { self.kind };
        say.more(code, &format!("GlobusError: v=1 c={c}"));
        if let Some((computed, expected)) = self.digests.as_deref() {
            say.more(code, &format!("GridFTP-Computed-Checksum: {computed}"));
            say.more(code, &format!("GridFTP-Expected-Checksum: {expected}"));
        } else {
            say.more(code, &format!("GridFTP-Errno: {}", told.errno()));
            say.more(code, &format!("GridFTP-Reason: Cannot {wanted}"));
        }
        say.more(code, &format!("GridFTP-Error-String: {}", self.said));
        if let Some(next) = told.hint() {
            say.more(code, &format!("Hint: {next}"));
        }
        say.line(code, "End.");
    }
}
