//! The one table of what can go wrong. Each layer names a kind; every face reads its column and decides nothing.

use crate::Fault;

/// HTCondor's type of an error, and who has to act: you, site, network or peer.
pub type Class = (&'static str, &'static str);

/// A column of [`Kind`]'s table that is the same for many rows.
const SPEC: Class = ("Specification", "you");
const SITE: Class = ("Specification", "site");
const PARAMETER: Class = ("Parameter", "you");
const AUTH: Class = ("Authorization", "you");
const DISK: Class = ("Transfer", "site");
const NETWORK: Class = ("Transfer", "network");
const PEER: Class = ("Transfer", "peer");
const UNREACHED: Class = ("Contact", "network");
const NO_SERVICE: Class = ("Contact", "peer");
const NO_NODE: Class = ("Contact", "site");

/// The exit status of kinds for which only the fault decides: 5 if waiting may help, else 1.
const BY_FAULT: u8 = 0;

/// Reply code and `c=` of a failure that only the log of the server explains.
const INTERNAL: (u16, &str) = (451, "INTERNAL_ERROR");

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $fault:ident, $errno:ident $number:literal, exit $exit:expr, $class:expr,
        ftp $ftp:expr, http $http:literal $door:literal, local $local:literal, $hint:literal;)*) => {
        /// Why something was not done, as a program tells it apart.
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
            /// A kind that is newer than this program, or that only the words tell.
            #[default]
            Other,
        }

        const ROWS: &[KindRow] = &[
            $(KindRow {
                kind: Kind::$kind, fault: Fault::$fault, errno: $number, symbol: stringify!($errno), exit: $exit,
                class: $class, ftp: $ftp, status: $http, door: $door, local: $local, hint: $hint,
            },)*
            KindRow {
                kind: Kind::Other, fault: Fault::Lasting, errno: 5, symbol: "EIO", exit: BY_FAULT,
                class: DISK, ftp: INTERNAL, status: 500, door: "other", local: "other", hint: "",
            },
        ];
    };
}

struct KindRow {
    kind: Kind,
    fault: Fault,
    errno: i32,
    symbol: &'static str,
    exit: u8,
    class: Class,
    ftp: (u16, &'static str),
    status: u16,
    door: &'static str,
    local: &'static str,
    hint: &'static str,
}

// The first row with a word is what that word means when it is read.
kinds! {
    /// There is no such file or directory.
    Missing: Lasting, ENOENT 2, exit 4, SPEC, ftp (550, "PATH_NOT_FOUND"), http 404 "missing", local "missing",
        "see what is there: list the directory above it";
    /// The name is taken.
    Exists: Lasting, EEXIST 17, exit 1, SPEC, ftp (553, "PATH_EXISTS"), http 409 "exists", local "exists",
        "choose another name, or remove what has this one";
    /// A file was wanted.
    IsDirectory: Lasting, EISDIR 21, exit 1, SPEC, ftp (550, "IS_A_DIRECTORY"), http 409 "is_directory",
        local "is_directory", "name a file in it";
    /// A name on the way is no directory.
    NotDirectory: Lasting, ENOTDIR 20, exit 3, SPEC, ftp (550, "NOT_A_DIRECTORY"), http 409 "not_directory",
        local "not_directory", "name a directory";
    /// The directory is not empty.
    NotEmpty: Lasting, ENOTEMPTY 39, exit 1, SPEC, ftp (550, "DIRECTORY_NOT_EMPTY"), http 409 "not_empty",
        local "not_empty", "remove what is in it first; an upload under way is in it, too";
    /// The server, its rules, or the audience of a cached file say no.
    Denied: Lasting, EACCES 13, exit 13, AUTH, ftp (550, "PERMISSION_DENIED"), http 403 "denied", local "denied",
        "log in as somebody who may, or ask who runs this server";
    /// The login was refused.
    Login: Lasting, EACCES 13, exit 13, AUTH, ftp (530, ""), http 500 "other", local "denied", "";
    /// The server does not believe who we are, or is not who it must be.
    Unproven: Lasting, EKEYREJECTED 129, exit 13, AUTH, ftp (550, "PERMISSION_DENIED"), http 500 "other",
        local "unproven",
        "log in as somebody who may, or ask who runs this server";
    /// A peer does not know this machine any more.
    Stranger: Lasting, EKEYREJECTED 129, exit 13, AUTH, ftp INTERNAL, http 403 "denied", local "unproven", "";
    /// There is no proof of who you are, where one is wanted.
    NoProof: Lasting, ENOKEY 126, exit 13, AUTH, ftp INTERNAL, http 500 "other", local "no_proof", "";
    /// The proof of who you are has expired.
    Expired: Lasting, EKEYEXPIRED 127, exit 13, AUTH, ftp (550, "PERMISSION_DENIED"), http 500 "other",
        local "expired",
        "log in as somebody who may, or ask who runs this server";
    /// The disk is full.
    NoSpace: Lasting, ENOSPC 28, exit 7, DISK, ftp (552, "NO_SPACE_LEFT"), http 507 "no_space", local "no_space",
        "make room, and begin again";
    /// The quota of the depot is full of what is pending or in use.
    Quota: Passing, EDQUOT 122, exit 7, DISK, ftp (552, "NO_SPACE_LEFT"), http 507 "no_space", local "quota", "";
    /// The file is larger than the depot.
    TooLarge: Lasting, EFBIG 27, exit 7, DISK, ftp (552, "NO_SPACE_LEFT"), http 507 "no_space", local "too_large", "";
    /// The name, or what is asked of it, makes no sense.
    Invalid: Lasting, EINVAL 22, exit 2, PARAMETER, ftp (553, "INVALID_PATH_NAME"), http 400 "bad_name",
        local "invalid", "use another name";
    /// A URL or name is too long.
    TooLong: Lasting, ENAMETOOLONG 36, exit 2, PARAMETER, ftp (553, "INVALID_PATH_NAME"), http 400 "bad_name",
        local "too_long", "";
    /// The file is not what it was when it was looked at.
    Changed: Lasting, ESTALE 116, exit 1, SITE, ftp (550, "FILE_CHANGED"), http 412 "changed", local "stale",
        "look at it again, and begin anew";
    /// The file changed each time it was read.
    Restless: Passing, ESTALE 116, exit 1, SITE, ftp (550, "FILE_CHANGED"), http 412 "changed", local "stale", "";
    /// A later attempt has taken the upload over.
    Superseded: Lasting, ESTALE 116, exit 1, DISK, ftp (550, "FILE_CHANGED"), http 409 "superseded", local "stale",
        "look at it again, and begin anew";
    /// The bytes do not have the digest that they should.
    Corrupt: Lasting, EBADMSG 74, exit 12, NETWORK, ftp (550, "INCORRECT_CHECKSUM"), http 422 "corrupt",
        local "differs", "send it again; nothing of it was published";
    /// An append is not the next one of its writer.
    OutOfTurn: Lasting, EPIPE 32, exit BY_FAULT, DISK, ftp INTERNAL, http 409 "out_of_turn", local "broken", "";
    /// The file would be forwarded in a circle, or too often.
    Loop: Lasting, ELOOP 40, exit BY_FAULT, DISK, ftp (553, "INVALID_PATH_NAME"), http 508 "loop", local "loop",
        "use another name";
    /// A person has to decide: the target has something else, and both are kept.
    OnHold: Lasting, EREMCHG 78, exit 1, SITE, ftp INTERNAL, http 423 "held", local "conflict", "";
    /// The server or file does not allow this.
    Unsupported: Lasting, EOPNOTSUPP 95, exit 1, ("Specification", "peer"), ftp (504, ""), http 501 "unsupported",
        local "unsupported", "";
    /// No store serves that kind of URL.
    NotServed: Lasting, EOPNOTSUPP 95, exit 2, PARAMETER, ftp INTERNAL, http 500 "other", local "unsupported", "";
    /// The server has as much to do as it takes.
    Busy: Passing, EAGAIN 11, exit 5, NO_SERVICE, ftp (450, ""), http 503 "busy", local "too_many", "";
    /// A module did not do what it should.
    Module: Lasting, EIO 5, exit BY_FAULT, DISK, ftp (550, "MODULE_FAILED"), http 500 "other", local "other",
        "see what it takes: SITE GODWIT MODULES; nothing is kept";
    /// The caller, or the end of the server, stopped it.
    Canceled: Lasting, ECANCELED 125, exit 130, ("Transfer", "you"), ftp (426, ""), http 503 "aborted",
        local "cancelled", "";
    /// The connection broke in the middle.
    Lost: Passing, ECONNABORTED 103, exit 5, NETWORK, ftp (426, ""), http 400 "lost", local "lost", "";
    /// The end came too soon; what arrived is kept.
    Incomplete: Lasting, ECONNABORTED 103, exit BY_FAULT, DISK, ftp (426, ""), http 409 "incomplete", local "lost", "";
    /// The server was reached, and something behind it was not.
    Beyond: Passing, ECONNABORTED 103, exit 5, NO_SERVICE, ftp (450, ""), http 400 "lost", local "lost", "";
    /// No byte came within the time that was given.
    Late: Passing, ETIMEDOUT 110, exit 5, NETWORK, ftp (426, ""), http 400 "lost", local "late", "";
    /// The server cannot be reached.
    Unreachable: Passing, EHOSTUNREACH 113, exit 5, UNREACHED, ftp (425, ""), http 400 "lost", local "unreachable", "";
    /// No program listens where the server should be.
    Refused: Passing, ECONNREFUSED 111, exit 5, UNREACHED, ftp (425, ""), http 400 "lost", local "refused", "";
    /// A relay is reached, and the peer is not connected to it.
    Away: Passing, EHOSTUNREACH 113, exit 5, NO_SERVICE, ftp INTERNAL, http 400 "lost", local "unreachable", "";
    /// The name service does not answer.
    NameService: Passing, EHOSTUNREACH 113, exit 5, ("Resolution", "network"), ftp INTERNAL, http 400 "lost",
        local "unreachable", "";
    /// No host of that name is known.
    NoHost: Lasting, ENONET 64, exit 1, ("Resolution", "you"), ftp INTERNAL, http 500 "other", local "no_host", "";
    /// The peer broke the protocol, or does not understand us.
    Protocol: Lasting, EPROTO 71, exit BY_FAULT, PEER, ftp (426, ""), http 400 "bad_request", local "protocol", "";
    /// Another kind of server listens there.
    OtherProtocol: Lasting, EPROTO 71, exit BY_FAULT, NO_SERVICE, ftp INTERNAL, http 500 "other", local "protocol", "";
    /// The shell on the way leads to no server.
    NoShell: Passing, EPROTO 71, exit 5, UNREACHED, ftp INTERNAL, http 500 "other", local "protocol", "";
    /// The server could not do it, for a reason of its own.
    Remote: Lasting, EREMOTEIO 121, exit BY_FAULT, PEER, ftp INTERNAL, http 500 "other", local "remote", "";
    /// The disk of the depot does not do what it should; it may again.
    Disk: Passing, EIO 5, exit BY_FAULT, DISK, ftp INTERNAL, http 500 "other", local "disk", "";
    /// A file system, or a disk, did not do what it should.
    Io: Lasting, EIO 5, exit BY_FAULT, DISK, ftp INTERNAL, http 500 "other", local "disk",
        "try again in a while; the log of this server tells more";
    /// The file system is mounted read-only.
    ReadOnly: Passing, EROFS 30, exit BY_FAULT, DISK, ftp (550, "PERMISSION_DENIED"), http 403 "denied",
        local "read_only", "";
    /// The file is not open on this connection, or not for this.
    NotOpen: Lasting, EBADF 9, exit BY_FAULT, DISK, ftp INTERNAL, http 500 "other", local "not_open", "";
    /// Another program is at it.
    InUse: Passing, EBUSY 16, exit 5, NO_NODE, ftp (450, ""), http 503 "busy", local "busy", "";
    /// The two names are on different servers.
    OtherServer: Lasting, EXDEV 18, exit BY_FAULT, DISK, ftp (504, ""), http 501 "unsupported", local "other_server", "";
    /// This connection has as many files open as it may.
    TooManyOpen: Lasting, EMFILE 24, exit BY_FAULT, DISK, ftp INTERNAL, http 500 "other", local "too_many_open", "";
    /// The tag is not on it.
    NoTag: Lasting, ENODATA 61, exit 4, SPEC, ftp INTERNAL, http 500 "other", local "no_tag", "";
    /// The node, or the program, is too old to be talked to.
    Version: Lasting, EPROTONOSUPPORT 93, exit BY_FAULT, DISK, ftp INTERNAL, http 500 "other", local "version", "";
    /// The node of this machine went away in the middle.
    NodeLost: Passing, ECONNRESET 104, exit 5, NO_NODE, ftp INTERNAL, http 500 "other", local "node_lost", "";
    /// There is no node on this machine, and none could be started.
    NoNode: Lasting, ENOTCONN 107, exit BY_FAULT, DISK, ftp INTERNAL, http 500 "other", local "no_node", "";
    /// The node is ending.
    Ending: Passing, ESHUTDOWN 108, exit 5, NO_NODE, ftp INTERNAL, http 503 "busy", local "ending", "";
    /// The state of the node is of a newer version, and was left alone.
    Newer: Lasting, EMEDIUMTYPE 124, exit BY_FAULT, DISK, ftp INTERNAL, http 500 "other", local "newer", "";
}

impl Kind {
    /// Returns every kind but [`Kind::Other`].
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter()
            .map(|row| row.kind)
            .filter(|kind| *kind != Self::Other)
    }

    /// Returns the kind of the first row with a word; that of "other" is not told apart.
    fn first(word: &str, column: fn(&KindRow) -> &'static str) -> Self {
        let row = ROWS.iter().find(|row| column(row) == word);
        row.filter(|_| word != "other")
            .map_or(Self::Other, |row| row.kind)
    }

    fn row(self) -> &'static KindRow {
        &ROWS[self as usize]
    }

    /// Tells whether waiting helps, as far as the kind alone tells.
    pub fn fault(self) -> Fault {
        self.row().fault
    }

    /// Returns the number of errno(3), as Linux has it.
    pub fn errno(self) -> i32 {
        self.row().errno
    }

    /// Returns the name of that number in errno(3).
    pub fn symbol(self) -> &'static str {
        self.row().symbol
    }

    /// Returns the exit status of a program that ends with an error of this kind and fault. The numbers 0 to 10 are
    /// rclone's, the widest known set.
    pub fn exit_code(self, fault: Fault) -> u8 {
        match self.row().exit {
            BY_FAULT if fault == Fault::Lasting => 1,
            BY_FAULT => 5,
            exit => exit,
        }
    }

    /// Returns the type of HTCondor, and who has to act.
    pub fn class(self) -> Class {
        self.row().class
    }

    /// Returns the code of an FTP reply, and the `c=` that GCT's clients read; empty where a reply is one line.
    pub fn ftp(self) -> (u16, &'static str) {
        self.row().ftp
    }

    /// Returns the status of HTTP.
    pub fn status(self) -> u16 {
        self.row().status
    }

    /// Returns the word in answers of the HTTPS door.
    pub fn door_word(self) -> &'static str {
        self.row().door
    }

    /// Reads a word of the HTTPS door.
    pub fn of_door_word(word: &str) -> Self {
        Self::first(word, |row| row.door)
    }

    /// Returns the word in answers of the local socket.
    pub fn local_word(self) -> &'static str {
        self.row().local
    }

    /// Reads a word of the local socket.
    pub fn of_local_word(word: &str) -> Self {
        Self::first(word, |row| row.local)
    }

    /// Returns what the caller can do next, where that is the same for all errors of this kind.
    pub fn hint(self) -> Option<&'static str> {
        Some(self.row().hint).filter(|hint| !hint.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashMap, io};

    #[test]
    fn each_row_is_found_by_its_kind() {
        for (at, row) in ROWS.iter().enumerate() {
            assert_eq!(row.kind as usize, at);
        }
    }

    /// A word of the local socket stands for one number of errno(3), and the number for that word.
    #[test] //= GASS-11
    fn local_words_and_numbers_agree() {
        let mut numbers = HashMap::new();
        for kind in Kind::all().filter(|kind| !matches!(kind, Kind::Module)) {
            let word = *numbers.entry(kind.local_word()).or_insert(kind.errno());
            assert_eq!(word, kind.errno(), "{kind:?}");
            assert_eq!(Kind::of_local_word(kind.local_word()).errno(), kind.errno());
        }
    }

    #[test]
    fn door_word_has_one_status() {
        for kind in Kind::all() {
            assert_eq!(
                Kind::of_door_word(kind.door_word()).status(),
                kind.status(),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn c_library_has_words_for_each_number() {
        for kind in Kind::all() {
            let words = io::Error::from_raw_os_error(kind.errno()).to_string();
            assert!(!words.starts_with("Unknown"), "{kind:?}: {words}");
        }
        let words = |kind: Kind| io::Error::from_raw_os_error(kind.errno()).to_string();
        assert!(words(Kind::Missing).starts_with("No such file"));
        assert!(words(Kind::Quota).starts_with("Disk quota"));
        assert!(words(Kind::Expired).starts_with("Key has expired"));
    }

    #[test]
    fn unknown_words_are_other() {
        assert_eq!(Kind::of_door_word("comet"), Kind::Other);
        assert_eq!(Kind::of_local_word("comet"), Kind::Other);
        assert_eq!(Kind::of_door_word("other"), Kind::Other);
        assert_eq!(Kind::of_local_word("conflict"), Kind::OnHold);
        assert_eq!(Kind::of_door_word("bad_request"), Kind::Protocol);
    }

    #[test]
    fn fault_decides_exit_status() {
        assert_eq!(Kind::Io.exit_code(Fault::Lasting), 1);
        assert_eq!(Kind::Io.exit_code(Fault::Passing), 5);
        assert_eq!(Kind::Missing.exit_code(Fault::Passing), 4);
    }
}
