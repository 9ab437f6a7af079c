//! Errors of stores, and whether waiting helps.

mod refused;

pub use refused::refused;

use godwit_core::{Extents, Fault, Kind, Scheme, Url};
use godwit_sys::why;
use godwit_trust::{CertificateOwner, Error as TrustError};
use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::{Display, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The result of a verb on a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

godwit_core::errors! {
    /// The kinds of errors that a caller may tell apart. A message states the fact; the caller adds the operation,
    /// and [`Error::hint`] the next command.
    #[derive(Debug)]
    pub enum Error {
        #[error("{}: no such file or directory", shown(.path))]
        Missing { path: PathBuf } => missing, Missing;
        #[error("{}: already exists", shown(.path))]
        Exists { path: PathBuf } => exists, Exists;
        #[error("{}: is a directory", shown(.path))]
        IsDirectory { path: PathBuf } => directory, IsDirectory;
        #[error("{}: is not a directory", shown(.path))]
        NotDirectory { path: PathBuf } => not_directory, NotDirectory;
        #[error("{}: directory is not empty", shown(.path))]
        NotEmpty { path: PathBuf } => not_empty, NotEmpty;
        #[error("{}: permission denied{}", shown(.path), after_colon(.said, &["permission denied"]))]
        Denied { path: PathBuf, said: String } => denied, Denied;
        #[error("{}: no space left{}", shown(.path), after_colon(.said, NO_SPACE))]
        NoSpace { path: PathBuf, said: String } => no_space, NoSpace;
        /// The name itself cannot be used here: too long, outside the export, bytes the protocol cannot carry.
        #[error("{}: {why}", shown(.path))]
        BadName { path: PathBuf, why: String } => bad_name, Invalid;
        #[error("{}: changed since it was last seen ({what})", shown(.path))]
        Changed { path: PathBuf, what: String } => changed, Changed;
        #[error("{}: bytes differ: {expected} at the source, {found} here", shown(.path))]
        Corrupt { path: PathBuf, expected: String, found: String } => corrupt, Corrupt;
        /// A write was to be finished before all of it came.
        #[error("{}: {} of {size} bytes are missing (the first at {})", shown(.path), .missing.len_bytes(), first(.missing))]
        Incomplete { path: PathBuf, size: u64, missing: Extents } => incomplete, Incomplete;
        /// An append whose number is not the next of its writer: an earlier one is missing.
        #[error("{}: append {seq} of writer {writer} came, and {expected} is the next", shown(.path))]
        OutOfTurn { path: PathBuf, writer: u64, seq: u64, expected: u64 } => out_of_turn, OutOfTurn;
        /// A later attempt at the same upload has begun: what this one still sends or asks is refused.
        #[error("{}: a later attempt has taken this upload over", shown(.path))]
        Superseded { path: PathBuf } => superseded, Superseded;
        /// The file would be forwarded in a circle, or too often.
        #[error("{}: would not arrive: {said}", shown(.path))]
        Loop { path: PathBuf, said: String } => looped, Loop;
        /// A hop holds the file until a user decides; without a host, the node that answers.
        #[error("{}holds {} until you run godwit retry, release or drop: {said}", before(.host), shown(.path))]
        Held {
            host: String,
            path: PathBuf,
            said: String,
            /// The answer of the next node downstream; `None`: it has another file by now, or did not say.
            cause: Option<Arc<Error>>
        } => held_for, OnHold;
        /// The host was reached, and a server behind it was not.
        #[error("{}{said}", before(.host))]
        Beyond { host: String, said: String } => beyond, Beyond;
        #[error("{what} is not possible here: {why}")]
        Unsupported { what: String, why: String } => unsupported, Unsupported;
        #[error("{host}: no such host ({cause})")]
        NoSuchHost { host: String, cause: String } => no_such_host, NoHost;
        /// The resolver itself did not answer.
        #[error("{host}: the name service does not answer ({cause})")]
        NameService { host: String, cause: String } => name_service, NameService;
        #[error("{host}: cannot connect ({})", why(.cause))]
        Unreachable { host: String, cause: io::Error } => unreachable, Unreachable;
        /// The node that is reached shows another key and knows no way to the wanted one.
        #[error("{host}: not connected to {at} at the moment, or {at} does not know it")]
        Away { host: String, at: String } => away, Away;
        /// A node that we have joined has no peer with our key: it let us leave, or never heard of us.
        #[error("{host} does not know this machine any more")]
        Stranger { host: String } => stranger, Stranger;
        /// A node shows a key that no authority vouches for, as nodes do for their peers.
        #[error("{host} is a node that this machine has not joined")]
        NotJoined { host: String } => not_joined, Unproven;
        /// Something listens there that answers TLS with something else.
        #[error("{host}: does not speak TLS ({what})")]
        NotTls { host: String, what: String } => not_tls, OtherProtocol;
        /// `ssh` led to no server.
        #[error("{host}: ssh leads to no server there ({said})")]
        NoShell { host: String, said: String } => no_shell, NoShell;
        /// Something else listens there.
        #[error("{host}: does not speak FTP ({what})")]
        NotFtp { host: String, what: String } => not_ftp, OtherProtocol;
        #[error("{host}: login refused: {said}")]
        Login {
            host: String,
            said: String,
            /// The kind of credential that the server was shown.
            by: LoginCredential
        } => login, Login;
        /// Either side did not prove to the other who it is.
        #[error("{host}: {cause}")]
        Trust { host: String, cause: Box<TrustError> } => trust, Unproven;
        #[error(
            "{host}: no credential to log in with (looked for X509_USER_PROXY, /tmp/x509up_u{}, X509_USER_CERT, ~/.globus/usercert.pem)",
            godwit_sys::user_id()
        )]
        NoCredential { host: String } => no_credential, NoProof;
        /// 421, or a server that says it is full.
        #[error("{host}: is busy{}", after_colon(.said, &["is busy", "busy"]))]
        Busy { host: String, said: String, again_in: Option<Duration> } => busy_until, Busy;
        #[error("{host}: connection lost while {during} ({})", why(.cause))]
        Lost { host: String, during: String, cause: io::Error } => lost, Lost;
        #[error("{host}: nothing came for {} s while {during}", .waited.as_secs())]
        Stalled { host: String, during: String, waited: Duration } => stalled, Late;
        #[error("{host}: broke the protocol: {what}")]
        PeerMisbehaved { host: String, what: String } => misbehaved, Protocol;
        /// A final negative reply that no other variant tells better.
        #[error("{host}: answered {code}: {said}")]
        Refused { host: String, code: u16, said: String } => refused, Remote;
        #[error("{url}: not served yet: {why}")]
        NotServed { url: Box<Url>, why: String } => not_served, NotServed;
        #[error("canceled")]
        Canceled, Canceled;
        #[error("{}: {}", shown(.path), why(.cause))]
        Io { path: PathBuf, cause: io::Error } => system, Io;
    }
}

/// The kind of credential of a login.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum LoginCredential {
    Password,
    Certificate,
    Ticket,
}

/// Displays a path; the empty one, a store's root, as `.`.
fn shown(path: &Path) -> Display<'_> {
    match path.as_os_str().is_empty() {
        true => Path::new(".").display(),
        false => path.display(),
    }
}

fn first(missing: &Extents) -> u64 {
    missing.iter().next().map_or(0, |range| range.start)
}

/// Returns a server's message as an addition to a fact; empty if it repeats one of `facts`.
fn after_colon(said: &str, facts: &[&str]) -> String {
    let said = match said.rsplit_once(" (os error ") {
        Some((said, _)) => said,
        None => said,
    };
    let rest_of = |fact: &&str| {
        let (begins, rest) = said.split_at_checked(fact.len())?;
        let is_whole = rest.is_empty() || rest.starts_with([':', '.']);
        (is_whole && begins.eq_ignore_ascii_case(fact)).then_some(rest)
    };
    let rest = facts.iter().find_map(rest_of).unwrap_or(said);
    match rest.trim_start_matches([':', '.', ' ']) {
        "" => String::new(),
        rest => format!(": {rest}"),
    }
}

/// The limit is the file's size, not the room that is left.
pub(crate) const TOO_LARGE: &str = "file too large";
const NO_SPACE: &[&str] = &["no space left on device", "no space left"];

/// The words of a server before the URL of another place.
pub const REFERS: &str = "it is at ";

impl Error {
    /// Returns the URL to which a refusal refers the caller. Never a file of this machine.
    pub fn refers_to(&self) -> Option<Url> {
        let Self::Denied { said, .. } = self else {
            return None;
        };
        let url: Url = said.rsplit_once(REFERS)?.1.trim().parse().ok()?;
        let is_of_others = url.scheme() != Scheme::File && url.host().is_some();
        (is_of_others && url.user().is_none()).then_some(url)
    }

    /// Returns the error of a local system call on a path.
    pub fn io(path: impl Into<PathBuf>, cause: io::Error) -> Self {
        use io::ErrorKind as K;
        match cause.kind() {
            K::NotFound => Self::missing(path),
            K::AlreadyExists => Self::exists(path),
            K::IsADirectory => Self::directory(path),
            K::NotADirectory => Self::not_directory(path),
            K::DirectoryNotEmpty => Self::not_empty(path),
            K::PermissionDenied => Self::denied(path, ""),
            K::ReadOnlyFilesystem => Self::denied(path, "read-only file system"),
            K::StorageFull => Self::no_space(path, ""),
            K::QuotaExceeded => Self::no_space(path, "quota exceeded"),
            K::FileTooLarge => Self::no_space(path, TOO_LARGE),
            K::InvalidFilename => Self::bad_name(path, "name too long"),
            _ => Self::system(path, cause),
        }
    }

    /// A server has as much to do as it takes, and does not say until when.
    pub fn busy(host: impl Into<String>, said: impl Into<String>) -> Self {
        Self::busy_until(host, said, None::<Duration>)
    }

    /// Returns the error of a numbered append that is too long.
    pub(crate) fn too_long_to_append(bytes_max: u64) -> Self {
        let what = format!("one append of more than {bytes_max} bytes");
        Self::unsupported(
            what,
            "it is written in one go; give its parts numbers of their own",
        )
    }

    /// Says that something was not proved between us and a host.
    pub(crate) fn not_proved(host: &str) -> impl Fn(TrustError) -> Self {
        move |cause| Self::trust(host, cause)
    }

    /// Returns the row of the table of errors that this one has.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Unreachable { cause, .. } if cause.kind() == io::ErrorKind::ConnectionRefused => {
                Kind::Refused
            }
            Self::Trust { cause, .. } if matches!(**cause, TrustError::Expired { .. }) => {
                Kind::Expired
            }
            Self::Io { cause, .. } if cause.kind() == io::ErrorKind::CrossesDevices => {
                Kind::OtherServer
            }
            _ => self.row(),
        }
    }

    /// Returns the error of the node further on, if a node on the way only passes it on.
    pub fn origin(&self) -> &Self {
        match self {
            Self::Held {
                cause: Some(cause), ..
            } => cause.origin(),
            _ => self,
        }
    }

    /// Tells whether waiting can help.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Busy {
                again_in: Some(pause),
                ..
            } => Fault::NotYet(*pause),
            Self::Trust { cause, .. } => cause.fault(),
            // A node says so of a token of TLS that was damaged on the way.
            Self::Login { said, .. } if said.contains(BROKE) => Fault::Passing,
            Self::Refused { code, .. } if (400..500).contains(code) => Fault::Passing,
            _ => self.kind().fault(),
        }
    }

    /// Returns the exit status of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        let origin = self.origin();
        origin.kind().exit_code(origin.fault())
    }

    /// Tells whether we got no further than to the door of a server.
    pub fn is_of_contact(&self) -> bool {
        match self {
            Self::NoSuchHost { .. }
            | Self::NameService { .. }
            | Self::Unreachable { .. }
            | Self::Away { .. }
            | Self::NoShell { .. }
            | Self::NotTls { .. }
            | Self::NotFtp { .. } => true,
            Self::Lost { during, .. } | Self::Stalled { during, .. } => {
                [GREETING, LOGIN].contains(&&**during)
            }
            _ => false,
        }
    }

    /// Tells whether every use of our credential fails too, until the user renews it.
    pub fn is_of_our_proof(&self) -> bool {
        let is_expired = |cause: &TrustError| match cause {
            TrustError::Expired { ours, .. } => *ours == CertificateOwner::Us,
            _ => false,
        };
        match self {
            Self::NoCredential { .. } => true,
            Self::Trust { cause, .. } => is_expired(cause),
            _ => false,
        }
    }

    /// Returns what to do next, where we know.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoSuchHost { host, .. } => format!("check the spelling of {host}"),
            Self::NameService { .. } => "check /etc/resolv.conf, or try again".into(),
            Self::Unreachable { host, cause } => to_reach(host, cause),
            Self::Away { host, at } => format!(
                "if {host} is reached through {at}, see that it runs there (godwit node --via) and try again; \
                 if {at} is {host} itself, it has another key now: godwit leave {host} if godwit peers shows it, have an \
                 invite made there, and join again"
            ),
            Self::Stranger { host } => format!(
                "have an invite made at {host} (godwit peers invite), and join again: godwit join INVITE"
            ),
            Self::NotJoined { .. } => {
                "have an invite made there (godwit peers invite), then: godwit join INVITE".into()
            }
            Self::NotTls { host, .. } => format!(
                "is {host} the right port? the door of a node is at 13560 unless it was told another; godwit node \
                 says where when it begins"
            ),
            Self::NoShell { host, .. } => {
                format!("`ssh {host} godwit version` must work without a question")
            }
            Self::NotFtp { host, .. } => format!("is {host} the right port of an FTP server?"),
            Self::Lost { host, during, .. } if during == GREETING => {
                format!("is {host} the right port of an FTP server? if so, try again in a while")
            }
            Self::Stalled { host, during, .. } if during == GREETING => {
                format!("is {host} the right port? a server for TLS or HTTP waits for us to speak")
            }
            Self::Lost { .. } | Self::Stalled { .. } | Self::Busy { .. } => {
                "try again in a while".into()
            }
            Self::Beyond { .. } => {
                "try again when that can be reached; what is on its way there is kept, and godwit trace says where".into()
            }
            Self::Trust { cause, .. } => return cause.hint(),
            Self::NoCredential { .. } => {
                "make a proxy of your certificate: godwit proxy init".into()
            }
            Self::Login { said, .. } if said.contains(TLS_FIRST) => {
                "add --private: it encrypts what is said, and what is transferred".into()
            }
            Self::Login { said, by, .. } => {
                godwit_trust::hint_of(said).unwrap_or_else(|| to_log_in(*by).into())
            }
            Self::NoSpace { .. } => {
                "make room, then run the same command again".into()
            }
            Self::NotEmpty { .. } => {
                "if an upload is under way there, wait until it is over; else see what is left in it".into()
            }
            Self::Held {
                host,
                path,
                cause: Some(_),
                ..
            } => {
                let url = pasted(host, path);
                format!(
                    "once that is mended it goes by godwit retry --at-hop {url}, or is given up by godwit \
                     drop --at-hop; godwit trace {url} says where it is"
                )
            }
            Self::Held { host, path, .. } => {
                let url = pasted(host, path);
                format!(
                    "godwit trace {url} says where; there it goes over what is there by godwit release \
                     --at-hop {url}, is given up by godwit drop --at-hop, or tried again by godwit \
                     retry --at-hop"
                )
            }
            Self::Corrupt { .. } => {
                "a file that was to be replaced is as before, one that is changed in place has wrong bytes there; \
                 run the command again"
                    .into()
            }
            _ => return None,
        };
        Some(hint)
    }
}

/// Returns what to look at when a server lets us not in, and does not say why.
fn to_log_in(by: LoginCredential) -> &'static str {
    match by {
        LoginCredential::Certificate => {
            "see what was shown: godwit proxy info; the server must have an account for that name, \
             and its authority not have revoked it"
        }
        LoginCredential::Ticket => {
            "see what was shown: klist; the server must take tickets, and have an account for that principal"
        }
        LoginCredential::Password => "check user name and password, in the URL or in ~/.netrc",
    }
}

/// A node's answer to a password in clear.
const TLS_FIRST: &str = "say AUTH TLS first";

fn before(host: &str) -> String {
    match host {
        "" => String::new(),
        host => format!("{host}: "),
    }
}

/// Returns a hint for a host that does not answer.
fn to_reach(host: &str, cause: &io::Error) -> String {
    use io::ErrorKind as K;
    match cause.kind() {
        K::ConnectionRefused => format!("is a server running at {host}? nothing listens there"),
        K::HostUnreachable | K::NetworkUnreachable | K::NetworkDown => {
            format!("check the network: no way leads from here to {host}")
        }
        K::TimedOut => format!("is {host} up, and does a firewall let you reach it?"),
        _ => format!("is a server running at {host}, and does a firewall let you reach it?"),
    }
}

/// Returns the result of a removal; a missing file counts as removed.
pub(crate) fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// The first words of a node about a damaged handshake.
const BROKE: &str = "broke the security dialogue";
/// The first wait of a session.
pub(crate) const GREETING: &str = "waiting for the greeting";
/// The first wait in a session with a server that greeted us before.
pub(crate) const GREETING_AGAIN: &str = "waiting for it to greet again";
/// The step after the greeting.
pub(crate) const LOGIN: &str = "logging in";

/// Returns a name behind a door as a command takes it.
fn pasted(host: &str, path: &Path) -> String {
    let server = Url::from_argument(format!("godwit://{host}/"));
    let url = server.and_then(|url| url.with_path(path.as_os_str().as_bytes()));
    url.map_or_else(|_| host.into(), |url| url.pasted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_message_is_not_repeated() {
        let host = || "lab".to_owned();
        let denied = |said: &str| {
            let error = Error::Denied {
                path: "f".into(),
                said: said.into(),
            };
            error.to_string()
        };
        let busy = |said: &str| {
            let error = Error::busy(host(), said);
            error.to_string()
        };
        let full = |said: &str| {
            let error = Error::NoSpace {
                path: "f".into(),
                said: said.into(),
            };
            error.to_string()
        };
        for said in [
            "",
            "Permission denied",
            "Permission denied (os error 13)",
            "permission denied.",
        ] {
            assert_eq!(denied(said), "f: permission denied", "{said}");
        }
        assert_eq!(
            denied("Permission denied: rule 2 of the rights denies it"),
            "f: permission denied: rule 2 of the rights denies it"
        );
        assert_eq!(
            denied("Permission deniedness"),
            "f: permission denied: Permission deniedness"
        );
        assert_eq!(denied("\u{e9}"), "f: permission denied: \u{e9}");
        assert_eq!(busy("Busy"), "lab: is busy");
        assert_eq!(busy("Busy: it is stopping"), "lab: is busy: it is stopping");
        assert_eq!(busy("too many sessions"), "lab: is busy: too many sessions");
        assert_eq!(full("No space left on device"), "f: no space left");
        assert_eq!(full("quota exceeded"), "f: no space left: quota exceeded");
    }

    #[test]
    fn command_in_hint_can_be_pasted() {
        let held = |cause: Option<Arc<Error>>| {
            let (host, path) = ("hop".into(), "d/two words & 1".into());
            let said = "it is so".into();
            let held = Error::Held {
                host,
                path,
                said,
                cause,
            };
            held.hint().unwrap()
        };
        let url = "'godwit://hop/d/two%20words%20&%201'";
        for said in [held(None), held(Some(Arc::new(Error::Canceled)))] {
            assert!(said.contains(&format!("--at-hop {url}")), "{said}");
            assert!(said.contains(&format!("godwit trace {url} ")), "{said}");
        }
    }

    #[test]
    fn error_at_root_shows_a_name() {
        let denied = |path| Error::io(path, io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied("").to_string(), ".: permission denied");
        assert_eq!(denied("a").to_string(), "a: permission denied");
    }
}
