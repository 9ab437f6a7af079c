//! Why a server said no.

use crate::reply::{Class, Reply};

/// A negative reply, read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The code.
    pub code: u16,
    /// What was said for a person, in one line.
    pub said: String,
    /// What it means.
    pub why: Why,
}

/// What a negative reply means, as far as codes and texts of known servers tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// Nothing of that name.
    Missing,
    /// The name is taken.
    Exists,
    /// It is a directory, and a file was wanted.
    IsDirectory,
    /// It is no directory, and one was wanted.
    NotDirectory,
    /// There is something in the directory.
    NotEmpty,
    /// Not allowed.
    Denied,
    /// The disk or a quota is full.
    NoSpace,
    /// The name itself is bad.
    BadName,
    /// It is not any more what it was.
    Changed,
    /// The bytes do not hash to what was said.
    BadDigest,
    /// Not now.
    Busy,
    /// Not logged in, or not as this user.
    Login,
    /// The data connection did not come, or broke.
    Data,
    /// The server does not know the command, or not with this argument.
    Unknown,
    /// Anything else.
    Other,
}

impl Refusal {
    /// Reads a negative reply; `None` if it is positive.
    pub fn of(reply: &Reply) -> Option<Self> {
        if reply.is_positive() {
            return None;
        }
        let why = why(reply, &reply.said().to_ascii_lowercase());
        Some(Self {
            code: reply.code,
            why,
            said: beyond(why, &reason(reply, why)),
        })
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
fn reason(reply: &Reply, why: Why) -> String {
    let labelled = |label: &str| {
        reply.lines.iter().find_map(|line| {
            let line = String::from_utf8_lossy(line);
            let (_, text) = line.split_once(label)?;
            Some(text.trim().to_owned())
        })
    };
    let label = match why {
        Why::BadDigest => "GridFTP-Computed-Checksum:",
        _ => "GridFTP-Error-String:",
    };
    labelled(label).unwrap_or_else(|| reply.said())
}

/// Leaves out the fact that the kind of refusal tells already.
fn beyond(why: Why, said: &str) -> String {
    let fact = match why {
        Why::Denied => "permission denied",
        Why::NoSpace => "no space left on device",
        Why::Changed => "the file changed",
        _ => return said.to_owned(),
    };
    match said.get(..fact.len()) {
        Some(start) if start.eq_ignore_ascii_case(fact) => said[fact.len()..]
            .trim_start_matches([':', ' ', '.'])
            .to_owned(),
        _ => said.to_owned(),
    }
}

/// What servers write is in the order in which it decides: a code of the Globus
/// kind first, then the words of a system error, then the number of the reply,
/// since 550 stands for half of everything (vsftpd: "550 Failed to open file.").
fn why(reply: &Reply, said: &str) -> Why {
    if reply.code == 421 {
        return Why::Busy;
    }
    // What a program of theirs says is not about our file.
    if reply.globus_code() == Some(MODULE_FAILED) {
        return Why::Other;
    }
    if let Some(why) = reply
        .globus_code()
        .and_then(globus)
        .filter(|why| *why != Why::Other)
    {
        return refine(why, said);
    }
    let is_of_login = matches!(reply.code, 530 | 532 | 331 | 332);
    if is_of_login && !said.contains("too many") {
        return Why::Login; // whatever its words are about
    }
    if let Some((_, why)) = WORDS.iter().find(|(words, _)| said.contains(words)) {
        return *why;
    }
    match reply.code {
        452 | 552 => Why::NoSpace,
        425 | 426 => Why::Data,
        450 if said.contains("busy") => Why::Busy,
        553 => Why::BadName,
        500..=504 => Why::Unknown,
        _ if reply.class() == Class::Transient => Why::Other,
        _ => Why::Other,
    }
}

fn globus(code: &str) -> Option<Why> {
    Some(match code {
        "PATH_NOT_FOUND" => Why::Missing,
        "PATH_EXISTS" => Why::Exists,
        "PERMISSION_DENIED" => Why::Denied,
        "INCORRECT_CHECKSUM" => Why::BadDigest,
        "IS_A_DIRECTORY" => Why::IsDirectory,
        "NOT_A_DIRECTORY" => Why::NotDirectory,
        "DIRECTORY_NOT_EMPTY" => Why::NotEmpty,
        "QUOTA_EXCEEDED" | "NO_SPACE_LEFT" => Why::NoSpace,
        "INVALID_PATH_NAME" => Why::BadName,
        "FILE_CHANGED" => Why::Changed,
        _ => return None,
    })
}

/// `PATH_EXISTS` is also what GCT says for a directory that is not empty.
fn refine(why: Why, said: &str) -> Why {
    if said.contains("not empty") {
        Why::NotEmpty
    } else {
        why
    }
}

const MODULE_FAILED: &str = "MODULE_FAILED";

/// Words of `strerror` as GCT, ProFTPD and Pure-FTPd pass them on, and of vsftpd.
const WORDS: [(&str, Why); 26] = [
    ("no such file", Why::Missing),
    ("not found", Why::Missing),
    ("does not exist", Why::Missing),
    ("no such dir", Why::Missing),
    ("doesn't exist", Why::Missing),
    ("not empty", Why::NotEmpty),
    ("file exists", Why::Exists),
    ("already exists", Why::Exists),
    ("overwrite permission denied", Why::Denied),
    ("is a directory", Why::IsDirectory),
    ("not a plain file", Why::IsDirectory),
    ("not a regular file", Why::IsDirectory),
    ("not a file", Why::IsDirectory),
    ("can only retrieve regular files", Why::IsDirectory),
    ("not a directory", Why::NotDirectory),
    ("no space left", Why::NoSpace),
    ("disk full", Why::NoSpace),
    ("quota", Why::NoSpace),
    ("name too long", Why::BadName),
    ("illegal name", Why::BadName),
    ("prohibited file name", Why::BadName),
    ("permission denied", Why::Denied),
    ("operation not permitted", Why::Denied),
    ("read-only", Why::Denied),
    ("access denied", Why::Denied),
    ("too many", Why::Busy),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn why_of(reply: Reply) -> Why {
        Refusal::of(&reply).unwrap().why
    }

    #[test]
    fn a_person_is_told_the_sentence_and_no_labels() {
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
                Why::Changed,
                "The file changed: it grew",
                "it grew",
            ),
            ("PERMISSION_DENIED", Why::Denied, "Permission denied", ""),
            ("NO_SPACE_LEFT", Why::NoSpace, "No space left on device", ""),
            (
                "INVALID_PATH_NAME",
                Why::BadName,
                "is too long",
                "is too long",
            ),
        ] {
            let refusal = globus(c, said);
            assert_eq!((refusal.why, &*refusal.said), (why, told), "{c}");
        }
    }

    #[test]
    fn known_servers_are_understood() {
        let globus = [
            "GlobusError: v=1 c=PATH_NOT_FOUND",
            "GridFTP-Errno: 2",
            "End.",
        ];
        assert_eq!(why_of(Reply::of_lines(550, globus)), Why::Missing);
        let open = [
            "Command failed. : globus_l_gfs_file_open failed.",
            "globus_xio: System error in open: Permission denied",
            "End.",
        ];
        assert_eq!(why_of(Reply::of_lines(500, open)), Why::Denied);
        assert_eq!(
            why_of(Reply::new(550, "Can't open x: No such file or directory")),
            Why::Missing
        );
        assert_eq!(
            why_of(Reply::new(
                421,
                "There are too many connected users, please try later."
            )),
            Why::Busy
        );
        assert_eq!(why_of(Reply::new(530, "Login incorrect.")), Why::Login);
        let map = "Login incorrect: line 1: the quotation mark is not closed";
        assert_eq!(why_of(Reply::new(530, map)), Why::Login);
        let module = [
            "GlobusError: v=1 c=MODULE_FAILED",
            "GridFTP-Error-String: reduce: awk: no such file",
            "End.",
        ];
        assert_eq!(why_of(Reply::of_lines(550, module)), Why::Other);
        assert_eq!(
            why_of(Reply::new(552, "Transfer aborted. Disk full")),
            Why::NoSpace
        );
        assert_eq!(
            why_of(Reply::new(426, "Failure reading network stream.")),
            Why::Data
        );
        assert_eq!(why_of(Reply::new(550, "Failed to open file.")), Why::Other);
        assert_eq!(why_of(Reply::new(500, "Unknown command.")), Why::Unknown);
        assert_eq!(Refusal::of(&Reply::new(226, "ok")), None);
    }
}
