//! The one table of what goes wrong: for each reason a number that C programs know.
//!
//! Reasons that a program would treat differently have different numbers; the sentence beside it says which
//! file, server or person it was about.

use serde::{Deserialize, Serialize};

macro_rules! table {
    ($($(#[$doc:meta])* $why:ident = $name:ident $errno:literal,)*) => {
        /// Why something was not done.
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Why {
            $($(#[$doc])* $why,)*
            /// A reason that came later than this program.
            #[serde(other)]
            Other,
        }

        impl Why {
            /// All of them but the one for what is not known.
            pub const ALL: &[Self] = &[$(Self::$why,)*];

            /// Returns the number of errno(3), as Linux has it.
            pub fn errno(self) -> i32 {
                match self {
                    $(Self::$why => $errno,)*
                    Self::Other => 5,
                }
            }

            /// Returns what errno(3) calls it.
            pub fn symbol(self) -> &'static str {
                match self {
                    $(Self::$why => stringify!($name),)*
                    Self::Other => "EIO",
                }
            }
        }
    };
}

table! {
    /// There is no such file or directory.
    Missing = ENOENT 2,
    /// The disk of the depot, or of this machine, does not do what it should.
    Disk = EIO 5,
    /// What was named is not open on this connection, or not for this.
    NotOpen = EBADF 9,
    /// The node has as much to do as it takes; later it may have less.
    TooMany = EAGAIN 11,
    /// The server, the rights there, or the audience of a holding say no.
    Denied = EACCES 13,
    /// Somebody else is at it.
    Busy = EBUSY 16,
    /// It is there, and was not to be.
    Exists = EEXIST 17,
    /// The two names are on different servers.
    OtherServer = EXDEV 18,
    /// A name on the way is no directory.
    NotDirectory = ENOTDIR 20,
    /// It is a directory.
    IsDirectory = EISDIR 21,
    /// The URL, or what is asked of it, makes no sense.
    Invalid = EINVAL 22,
    /// This connection has as many files open as it may.
    TooManyOpen = EMFILE 24,
    /// The file is larger than the depot.
    TooLarge = EFBIG 27,
    /// The disk is full, and nothing can be forgotten.
    NoSpace = ENOSPC 28,
    /// What lies there is only read.
    ReadOnly = EROFS 30,
    /// The stream of an append is broken.
    Broken = EPIPE 32,
    /// A URL or name is too long.
    TooLong = ENAMETOOLONG 36,
    /// The directory is not empty.
    NotEmpty = ENOTEMPTY 39,
    /// What is to pass on the bytes leads back to where they are.
    Loop = ELOOP 40,
    /// No such tag is on it.
    NoTag = ENODATA 61,
    /// No host of that name is known.
    NoHost = ENONET 64,
    /// A server broke the protocol.
    Protocol = EPROTO 71,
    /// The bytes do not hash to what they should.
    Differs = EBADMSG 74,
    /// The target has something else than what was changed here: both are kept.
    Conflict = EREMCHG 78,
    /// The node, or the program, is too old to be talked to.
    Version = EPROTONOSUPPORT 93,
    /// It cannot be done with that kind of server or file.
    Unsupported = EOPNOTSUPP 95,
    /// The server went away in the middle.
    Lost = ECONNABORTED 103,
    /// The node of this machine went away in the middle.
    NodeLost = ECONNRESET 104,
    /// There is no node on this machine, and none could be started.
    NoNode = ENOTCONN 107,
    /// The node is ending.
    Ending = ESHUTDOWN 108,
    /// Not within the time that was given.
    Late = ETIMEDOUT 110,
    /// Nobody listens where the server should be.
    Refused = ECONNREFUSED 111,
    /// The server cannot be reached.
    Unreachable = EHOSTUNREACH 113,
    /// The origin changed while it was read.
    Stale = ESTALE 116,
    /// The server could not do it, for a reason of its own.
    Remote = EREMOTEIO 121,
    /// The depot's quota is full of what is owed or in use.
    Quota = EDQUOT 122,
    /// The state of the node is of a newer version, and was left alone.
    Newer = EMEDIUMTYPE 124,
    /// Whoever asked took it back.
    Cancelled = ECANCELED 125,
    /// There is no proof of who you are, where one is wanted.
    NoProof = ENOKEY 126,
    /// The proof of who you are has expired.
    Expired = EKEYEXPIRED 127,
    /// The server does not believe who you are, or is not who it must be.
    Unproven = EKEYREJECTED 129,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashSet, io::Error};

    #[test]
    fn each_reason_has_a_number_of_its_own() {
        let numbers: HashSet<i32> = Why::ALL.iter().map(|why| why.errno()).collect();
        assert_eq!(numbers.len(), Why::ALL.len());
        let names: HashSet<&str> = Why::ALL.iter().map(|why| why.symbol()).collect();
        assert_eq!(names.len(), Why::ALL.len());
    }

    #[test]
    fn the_c_library_has_words_for_each() {
        for why in Why::ALL {
            let words = Error::from_raw_os_error(why.errno()).to_string();
            assert!(!words.starts_with("Unknown"), "{why:?}: {words}");
        }
        let words = |why: Why| Error::from_raw_os_error(why.errno()).to_string();
        assert!(words(Why::Missing).starts_with("No such file"));
        assert!(words(Why::Quota).starts_with("Disk quota"));
        assert!(words(Why::Late).starts_with("Connection timed out"));
        assert!(words(Why::Stale).starts_with("Stale file handle"));
        assert!(words(Why::Expired).starts_with("Key has expired"));
    }

    #[test]
    fn a_reason_that_came_later_is_an_error_all_the_same() {
        let why: Why = serde_json::from_str("\"comet\"").unwrap();
        assert_eq!((why, why.errno(), why.symbol()), (Why::Other, 5, "EIO"));
        assert_eq!(
            serde_json::to_string(&Why::NotDirectory).unwrap(),
            "\"not_directory\""
        );
    }
}
