//! Why a server said no.

use crate::{
    Refusal,
    reply::{Reply, ReplyClass},
};
use godwit_core::Kind;

impl Refusal {
    /// Reads a negative reply; `None` if it is positive.
    pub fn of(reply: &Reply) -> Option<Self> {
        if reply.is_positive() {
            return None;
        }
        let kind = why(reply, &reply.said().to_ascii_lowercase());
        let said = beyond(kind, &reason(reply, kind));
        Some(Self::coded(reply.code, kind, said))
    }

    /// Reads the reply to a proof that was not taken: but for a server that is busy, it is of the login.
    pub(super) fn of_proof(reply: &Reply) -> Self {
        let kind = match Self::of(reply) {
            Some(refusal) if refusal.kind == Kind::Busy => Kind::Busy,
            _ => Kind::Login,
        };
        Self::coded(reply.code, kind, reply.said())
    }

    /// Returns an error unless the reply is positive.
    pub fn check(reply: &Reply) -> Result<&Reply, Self> {
        match Self::of(reply) {
            Some(refusal) => Err(refusal),
            None => Ok(reply),
        }
    }
}

/// Returns what of a reply is for a person: Globus puts it behind a label of its own.
fn reason(reply: &Reply, why: Kind) -> String {
    let labelled = |label: &str| {
        reply.lines.iter().find_map(|line| {
            let line = String::from_utf8_lossy(line);
            let (_, text) = line.split_once(label)?;
            Some(text.trim().to_owned())
        })
    };
    let label = match why {
        Kind::Corrupt => "GridFTP-Computed-Checksum:",
        _ => "GridFTP-Error-String:",
    };
    labelled(label).unwrap_or_else(|| reply.said())
}

/// Leaves out the fact that the kind of refusal tells already.
fn beyond(why: Kind, said: &str) -> String {
    let fact = match why {
        Kind::Denied => "permission denied",
        Kind::NoSpace => "no space left on device",
        Kind::Changed => "the file changed",
        _ => return said.to_owned(),
    };
    match said.get(..fact.len()) {
        Some(start) if start.eq_ignore_ascii_case(fact) => said[fact.len()..]
            .trim_start_matches([':', ' ', '.'])
            .to_owned(),
        _ => said.to_owned(),
    }
}

/// Reads the cause in the order in which servers are precise: a Globus code, the words of a system error, the reply's
/// number. The number is last, since 550 stands for most failures (vsftpd: "550 Failed to open file.").
fn why(reply: &Reply, said: &str) -> Kind {
    if reply.code == 421 {
        return Kind::Busy;
    }
    // The message of a server's module is not about our file.
    if reply.globus_code() == Some(MODULE_FAILED) {
        return Kind::Other;
    }
    if let Some(why) = reply
        .globus_code()
        .and_then(globus)
        .filter(|why| *why != Kind::Other)
    {
        return refine(why, said);
    }
    let is_of_login = matches!(reply.code, 530 | 532 | 331 | 332);
    if is_of_login && !said.contains("too many") {
        return Kind::Login; // whatever its words are about
    }
    if let Some((_, why)) = WORDS.iter().find(|(words, _)| said.contains(words)) {
        return *why;
    }
    match reply.code {
        452 | 552 => Kind::NoSpace,
        425 | 426 => Kind::Lost,
        450 if said.contains("busy") => Kind::Busy,
        553 => Kind::Invalid,
        500..=504 => Kind::Unsupported,
        _ if reply.class() == ReplyClass::Transient => Kind::Other,
        _ => Kind::Other,
    }
}

fn globus(code: &str) -> Option<Kind> {
    Some(match code {
        "PATH_NOT_FOUND" => Kind::Missing,
        "PATH_EXISTS" => Kind::Exists,
        "PERMISSION_DENIED" => Kind::Denied,
        "INCORRECT_CHECKSUM" => Kind::Corrupt,
        "IS_A_DIRECTORY" => Kind::IsDirectory,
        "NOT_A_DIRECTORY" => Kind::NotDirectory,
        "DIRECTORY_NOT_EMPTY" => Kind::NotEmpty,
        "QUOTA_EXCEEDED" | "NO_SPACE_LEFT" => Kind::NoSpace,
        "INVALID_PATH_NAME" => Kind::Invalid,
        "FILE_CHANGED" => Kind::Changed,
        _ => return None,
    })
}

/// `PATH_EXISTS` is also what GCT says for a directory that is not empty.
fn refine(why: Kind, said: &str) -> Kind {
    if said.contains("not empty") {
        Kind::NotEmpty
    } else {
        why
    }
}

const MODULE_FAILED: &str = "MODULE_FAILED";

/// Words of `strerror` as GCT, ProFTPD and Pure-FTPd pass them on, and of vsftpd.
const WORDS: [(&str, Kind); 26] = [
    ("no such file", Kind::Missing),
    ("not found", Kind::Missing),
    ("does not exist", Kind::Missing),
    ("no such dir", Kind::Missing),
    ("doesn't exist", Kind::Missing),
    ("not empty", Kind::NotEmpty),
    ("file exists", Kind::Exists),
    ("already exists", Kind::Exists),
    ("overwrite permission denied", Kind::Denied),
    ("is a directory", Kind::IsDirectory),
    ("not a plain file", Kind::IsDirectory),
    ("not a regular file", Kind::IsDirectory),
    ("not a file", Kind::IsDirectory),
    ("can only retrieve regular files", Kind::IsDirectory),
    ("not a directory", Kind::NotDirectory),
    ("no space left", Kind::NoSpace),
    ("disk full", Kind::NoSpace),
    ("quota", Kind::NoSpace),
    ("name too long", Kind::Invalid),
    ("illegal name", Kind::Invalid),
    ("prohibited file name", Kind::Invalid),
    ("permission denied", Kind::Denied),
    ("operation not permitted", Kind::Denied),
    ("read-only", Kind::Denied),
    ("access denied", Kind::Denied),
    ("too many", Kind::Busy),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn why_of(reply: Reply) -> Kind {
        Refusal::of(&reply).unwrap().kind
    }

    #[test]
    fn message_to_user_has_no_labels() {
        let globus = |c: &str, said: &str| {
            let lines = [
                format!("GlobusError: v=1 c={c}"),
                "GridFTP-Errno: 116".into(),
                "GridFTP-Reason: System error in open".into(),
                format!("GridFTP-Error-String: {said}"),
                "End.".into(),
            ];
            let reply = Reply::of_lines(550, lines.iter().map(String::as_str));
            Refusal::of(&reply).unwrap()
        };
        for (c, why, said, told) in [
            (
                "FILE_CHANGED",
                Kind::Changed,
                "The file changed: it grew",
                "it grew",
            ),
            ("PERMISSION_DENIED", Kind::Denied, "Permission denied", ""),
            (
                "NO_SPACE_LEFT",
                Kind::NoSpace,
                "No space left on device",
                "",
            ),
            (
                "INVALID_PATH_NAME",
                Kind::Invalid,
                "is too long",
                "is too long",
            ),
        ] {
            let refusal = globus(c, said);
            assert_eq!((refusal.kind, &*refusal.said), (why, told), "{c}");
        }
    }

    #[test]
    fn known_servers_are_understood() {
        let globus = [
            "GlobusError: v=1 c=PATH_NOT_FOUND",
            "GridFTP-Errno: 2",
            "End.",
        ];
        assert_eq!(why_of(Reply::of_lines(550, globus)), Kind::Missing);
        let open = [
            "Command failed. : globus_l_gfs_file_open failed.",
            "globus_xio: System error in open: Permission denied",
            "End.",
        ];
        assert_eq!(why_of(Reply::of_lines(500, open)), Kind::Denied);
        assert_eq!(
            why_of(Reply::new(550, "Can't open x: No such file or directory")),
            Kind::Missing
        );
        assert_eq!(
            why_of(Reply::new(
                421,
                "There are too many connected users, please try later."
            )),
            Kind::Busy
        );
        assert_eq!(why_of(Reply::new(530, "Login incorrect.")), Kind::Login);
        let map = "Login incorrect: line 1: the quotation mark is not closed";
        assert_eq!(why_of(Reply::new(530, map)), Kind::Login);
        let module = [
            "GlobusError: v=1 c=MODULE_FAILED",
            "GridFTP-Error-String: reduce: awk: no such file",
            "End.",
        ];
        assert_eq!(why_of(Reply::of_lines(550, module)), Kind::Other);
        assert_eq!(
            why_of(Reply::new(552, "Transfer aborted. Disk full")),
            Kind::NoSpace
        );
        assert_eq!(
            why_of(Reply::new(426, "Failure reading network stream.")),
            Kind::Lost
        );
        assert_eq!(why_of(Reply::new(550, "Failed to open file.")), Kind::Other);
        assert_eq!(
            why_of(Reply::new(500, "Unknown command.")),
            Kind::Unsupported
        );
        assert_eq!(Refusal::of(&Reply::new(226, "ok")), None);
    }
}
