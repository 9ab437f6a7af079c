//! Why a request failed, and the reply that says so.
//!
//! Bodies have the lines of GCT. Its clients, and programs that read their output, find `c=PATH_NOT_FOUND` and the
//! system's words in their usual place. The reason in GCT's lines ("System error in open") names the operation; a
//! godwit line adds the next step.

use super::say::Say;
use crate::Refusal;
use godwit_core::Kind;

impl Refusal {
    /// Returns the refusal of bytes that do not have the digest that was announced.
    pub fn corrupt(computed: String, expected: String, said: impl Into<String>) -> Self {
        let mut refusal = Self::of_kind(Kind::Corrupt, said);
        refusal.more.differs = Some((expected, computed));
        refusal
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
        if let Some((expected, computed)) = &self.more.differs {
            say.more(
                code,
                &format!("GridFTP-Computed-Checksum: {}", bare(computed)),
            );
            say.more(
                code,
                &format!("GridFTP-Expected-Checksum: {}", bare(expected)),
            );
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

/// Strips the algorithm: `blake3:ab…` becomes `ab…`, as in GCT.
fn bare(digest: &str) -> &str {
    digest.rsplit([':', ' ']).next().unwrap_or(digest)
}
