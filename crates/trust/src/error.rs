//! Errors, in words that name the file and the date.

use crate::when;
use godwit_core::{Fault, Kind};
use openssl::error::ErrorStack;
use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Result of an operation that may be refused.
pub type Result<T, E = Error> = std::result::Result<T, E>;

godwit_core::errors! {
    /// Failures that a caller would tell apart. The message is the fact; [`Error::hint`] has the
    /// next step.
    #[derive(Debug)]
    pub enum Error {
        #[error("{}: {}", .path.display(), why(.cause))]
        Io { path: PathBuf, cause: io::Error } => io, Io;
        #[error("{}: {what}", .path.display())]
        BadFile { path: PathBuf, what: String } => bad_file, Invalid;
        #[error("{}: is there already", .path.display())]
        Exists { path: PathBuf } => exists, Exists;
        /// The request cannot be fulfilled.
        #[error("{what}")]
        BadRequest { what: String } => bad_request, Invalid;
        /// A name or a key is taken already.
        #[error("another node is called {name} here")]
        NameTaken { name: String } => name_taken, Invalid;
        #[error("this node itself is called {name}")]
        OwnName { name: String } => own_name, Invalid;
        #[error("the same key is known here as {known_as}")]
        KeyTaken { known_as: String } => key_taken, Invalid;
        #[error("that is this node itself: it has that key")]
        OwnKey, Invalid;
        /// The invite or word admits no node.
        #[error("{what}")]
        NoInvite { what: String } => no_invite, Unproven;
        /// An authority cannot declare its own certificate void.
        #[error("{subject} is the authority itself")]
        Itself { subject: String } => itself, Invalid;
        /// A private key that others could have read, or planted.
        #[error("{}: {what}", .path.display())]
        Exposed { path: PathBuf, what: String } => exposed, Unproven;
        #[error("{}: the private key is encrypted", .path.display())]
        Encrypted { path: PathBuf } => encrypted, Unproven;
        #[error("no directory of certificate authorities (looked for {})", listed(.looked))]
        NoAuthorities { looked: Vec<PathBuf> } => no_authorities, Unproven;
        #[error("{}expired {}, at {}{}", whose(.subject, .ours), when::apart(*.now, *.at), when::utc(*.at), inside(.file))]
        Expired {
            subject: String,
            ours: CertificateOwner,
            at: SystemTime,
            now: SystemTime,
            file: Option<PathBuf>
        } => expired, Expired;
        #[error("{}is not valid before {} ({} from now){}", whose(.subject, .ours), when::utc(*.from), when::apart(*.now, *.from), inside(.file))]
        NotYet {
            subject: String,
            ours: CertificateOwner,
            from: SystemTime,
            now: SystemTime,
            file: Option<PathBuf>
        } => not_yet, Unproven;
        #[error("{subject} is vouched for by {issuer}, and {} has no such authority (wanted {hash}.0)", .dir.display())]
        UnknownAuthority { subject: String, issuer: String, hash: String, dir: PathBuf } => unknown_authority, Unproven;
        #[error("{subject} was revoked at {} by {issuer} ({})", when::utc(*.since), .list.display())]
        Revoked { subject: String, issuer: String, since: SystemTime, list: PathBuf } => revoked, Unproven;
        #[error("the revocation list of {issuer} is out of date since {} ({})", when::utc(*.since), .list.display())]
        StaleList { issuer: String, since: SystemTime, list: PathBuf } => stale_list, Unproven;
        #[error("{authority} has no signing policy (wanted {})", .wanted.display())]
        NoPolicy { authority: String, wanted: PathBuf } => no_policy, Unproven;
        #[error("{authority} may not vouch for {subject}, says {}", .policy.display())]
        OutsidePolicy { authority: String, subject: String, policy: PathBuf } => outside_policy, Unproven;
        /// The certificates do not prove what they say.
        #[error("{subject}: {why}")]
        BadChain { subject: String, why: String } => bad_chain, Unproven;
        /// An authority was made under a name that is taken, or the authority's key was replaced.
        #[error("{subject}: is signed with another key than that of {issuer} in {}", .file.display())]
        OtherIssuer { subject: String, issuer: String, file: PathBuf } => other_issuer, Unproven;
        #[error("{subject} is a proxy of the old kind, without proxyCertInfo (RFC 3820)")]
        OldProxy { subject: String } => old_proxy, Unproven;
        #[error("the peer is {found}, not {wanted}")]
        WrongPeer { wanted: String, found: String } => wrong_peer, Unproven;
        #[error("the peer's certificate is for {}, not for {wanted} ({found})", whom(.names))]
        WrongHost { wanted: String, names: Vec<String>, found: String } => wrong_host, Unproven;
        /// Two members of two clusters, or of one whose key was replaced on one side only.
        #[error("the cluster keys differ: {theirs} was shown, {ours} counts here")]
        OtherKey { theirs: String, ours: String, file: Option<PathBuf> } => other_key, Unproven;
        #[error("the peer does not prove that it has the cluster key: {said}")]
        NoMember { said: String } => no_member, Unproven;
        /// Refusal of our key, in the server's words.
        #[error("{what} was refused: {said}")]
        KeyRefused { what: String, said: String } => key_refused, Unproven;
        #[error("{subject} cannot delegate: {why}")]
        NoDelegation { subject: String, why: String } => no_delegation, Unproven;
        /// The machine has no library that speaks Kerberos.
        #[error("no Kerberos here: {library} cannot be loaded ({said})")]
        NoKerberos { library: String, said: String } => no_kerberos, Unproven;
        /// Kerberos said no.
        #[error("Kerberos: {said}")]
        Ticket { why: NoTicket, said: String } => ticket, Unproven;
        /// The peer's tokens are not those of GSI or Kerberos.
        #[error("the peer broke the security dialogue: {0}")]
        Token(String), Unproven;
        /// The handshake fell apart in TLS's own words: what arrived is not what was sent.
        #[error("the peer broke the security dialogue: {0}")]
        Garbled(String), Unproven;
        /// The peer refused us, in TLS's own words.
        #[error("the peer refused: {0}")]
        Refused(String), Unproven;
        /// The library said no and no better word is known.
        #[error("{doing}: {said}")]
        Library { doing: &'static str, said: String } => library, Unproven;
    }
}

/// Beginning of the error for a file without a readable certificate or key.
pub(crate) const NO_CREDENTIAL: &str = "no readable ";
/// Reason for a revocation list that cannot be read.
pub(crate) const NO_LIST: &str = "no readable revocation list";
pub(crate) const NO_AUTHORITY: &str = "no readable certificate of an authority";

/// Owner of a certificate: ours can be renewed here, the peer's only there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum CertificateOwner {
    Us,
    Peer,
}

/// Why Kerberos said no, as far as there is something to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs)]
pub enum NoTicket {
    /// There is none.
    Nothing,
    Expired,
    /// Two clocks differ.
    Clock,
    /// The KDC does not know the server.
    UnknownServer,
    NoKdc,
    /// A server cannot read its own keys.
    Keys,
    /// The ticket is for another key than the server has.
    Keytab,
    /// A server cannot write its replay cache.
    Replays,
    Other,
}

impl Error {
    /// Returns the row of the table of errors that this one has.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Io { cause, .. } => match cause.kind() {
                io::ErrorKind::NotFound => Kind::Missing,
                io::ErrorKind::PermissionDenied => Kind::Denied,
                _ => Kind::Io,
            },
            _ => self.row(),
        }
    }

    /// Tells whether waiting can help.
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotYet { from, now, .. } => from
                .duration_since(*now)
                .map_or(Fault::Passing, Fault::NotYet),
            Self::Ticket {
                why: NoTicket::NoKdc,
                ..
            }
            | Self::Garbled(_) => Fault::Passing,
            _ => Fault::Lasting,
        }
    }

    /// Tells whether one wrong bit can have ended the handshake so, and a peer with other settings too.
    pub fn is_doubtful(&self) -> bool {
        const WORDS: [&str; 6] = [
            "handshake failure",
            "protocol version",
            "insufficient security",
            "unsupported protocol",
            "no shared cipher",
            "no suitable",
        ];
        let is_one = |said: &String| WORDS.iter().any(|words| said.contains(words));
        self.is_no_tls() || matches!(self, Self::Token(said) | Self::Refused(said) if is_one(said))
    }

    /// Tells whether the peer's bytes are no TLS: the peer speaks another protocol.
    pub fn is_no_tls(&self) -> bool {
        const WORDS: [&str; 3] = [
            "wrong version number",
            "packet length too long",
            "http request",
        ];
        matches!(self, Self::Token(said) if WORDS.iter().any(|words| said.contains(words)))
    }

    /// Returns what to do next, where we know.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Exposed { path, .. } => format!("chmod 600 {}, and be its owner", path.display()),
            Self::BadFile { what, .. } if what.starts_with(NO_LIST) => {
                "fetch the authority's list again (fetch-crl does); as long as it cannot be read, nobody of that \
                 authority is believed"
                    .into()
            }
            Self::BadFile { what, .. } if what.starts_with(NO_AUTHORITY) => {
                "put the authority's own certificate (PEM) there".into()
            }
            Self::BadFile { what, .. } if what.starts_with(NO_CREDENTIAL) => {
                "this is no credential: make a proxy with godwit proxy init, or name the right file".into()
            }
            Self::Itself { .. } => {
                "to end it, remove its files from the directories (X509_CERT_DIR) of all who trust it, and make a new one: \
                 godwit ca init"
                    .into()
            }
            Self::Encrypted { .. } => "make a proxy of it: godwit proxy init".into(),
            Self::OtherKey { file: Some(file), .. } => {
                format!("give all members the same file as {}", file.display())
            }
            Self::KeyRefused { .. } => {
                "give this machine the file that the server has (cluster.key in its godwit config show)".into()
            }
            Self::NoAuthorities { .. } => {
                "install the authorities that you trust there, or name their directory in X509_CERT_DIR".into()
            }
            Self::Expired { ours: CertificateOwner::Us, .. } => {
                "renew it (a proxy: godwit proxy init), or set the clock of this machine if it is wrong".into()
            }
            Self::Expired { .. } => {
                "the other side must renew it; or set the clock of this machine if it is wrong".into()
            }
            Self::NotYet { .. } => "one of the two clocks is wrong: compare date -u here and there".into(),
            Self::UnknownAuthority { hash, dir, .. } => format!(
                "if you trust that authority, put its certificate there as {hash}.0 with {hash}.signing_policy; \
                 is {} the right directory (X509_CERT_DIR)?",
                dir.display()
            ),
            Self::Revoked { .. } => "ask the authority for a new certificate".into(),
            Self::StaleList { .. } => "fetch the authority's new list (fetch-crl does)".into(),
            Self::NoPolicy { wanted, .. } => format!(
                "say in {} which names it may vouch for; the authority publishes that file with its certificate",
                wanted.display()
            ),
            Self::OldProxy { .. } => "make a new one: godwit proxy init, or grid-proxy-init -rfc".into(),
            Self::WrongHost { found, .. } => format!(
                "use the name that the certificate has, or have the host's certificate made for this one; \
                 if you know that it is the right server: --subject '{found}'"
            ),
            Self::NoKerberos { .. } => {
                "install it: libgssapi-krb5-2 (Debian); GODWIT_GSSAPI names another library".into()
            }
            Self::Ticket { why, .. } => return why.hint().map(Into::into),
            _ => return None,
        })
    }

    /// Adds the file of a certificate of our own.
    pub(crate) fn of_ours(self, path: Option<&PathBuf>) -> Self {
        self.lies_in(path.cloned(), CertificateOwner::Us)
    }

    /// Adds the file of a certificate that is not our own.
    pub(crate) fn in_file(self, path: Option<PathBuf>) -> Self {
        self.lies_in(path, CertificateOwner::Peer)
    }

    fn lies_in(self, file: Option<PathBuf>, ours: CertificateOwner) -> Self {
        match self {
            Self::Expired {
                subject, at, now, ..
            } => Self::expired(subject, ours, at, now, file),
            Self::NotYet {
                subject, from, now, ..
            } => Self::not_yet(subject, ours, from, now, file),
            other => other,
        }
    }
}

impl NoTicket {
    fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::Nothing => "get a ticket: kinit (klist shows those that you have)",
            Self::Expired => "get a new ticket: kinit (klist shows those that you have)",
            Self::Clock => {
                "compare date -u here, at the server and at the KDC, and set the clock that is wrong (chronyc tracking): they \
                 may differ by five minutes"
            }
            Self::UnknownServer => {
                "use the name that the server's keys are for (klist -k there), or have some made for this one"
            }
            Self::NoKdc => {
                "check krb5.conf (KRB5_CONFIG), and whether the network leads to the KDC"
            }
            Self::Keys => {
                "the keytab must have a key of ftp/HOST or host/HOST, HOST as clients name this machine, and be readable by \
                 the account that the node runs as (node.user): kadmin -q 'ktadd -k KEYTAB ftp/HOST' adds one, klist -k KEYTAB \
                 (or ktutil) shows what is there"
            }
            Self::Keytab => {
                "whoever runs the server renews its keytab: kadmin -q 'ktadd -k KEYTAB ftp/HOST' (klist -k KEYTAB shows \
                 the keys in it, kvno ftp/HOST that of the KDC); a new ticket may help too: kdestroy, kinit"
            }
            Self::Replays => {
                "let the account that the node runs as (node.user) write there, or name another directory in KRB5RCACHEDIR"
            }
            Self::Other => return None,
        })
    }
}

/// Lets `?` name the operation that the library failed in.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for Result<T, ErrorStack> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|stack| Error::Library {
            doing,
            said: reasons(&stack),
        })
    }
}

/// Returns the library's own words, without its function names and line numbers.
pub(crate) fn reasons(stack: &ErrorStack) -> String {
    let reasons: Vec<_> = stack.errors().iter().filter_map(|e| e.reason()).collect();
    if reasons.is_empty() {
        "the TLS library does not say why".into()
    } else {
        reasons.join(", ")
    }
}

/// Returns the error for a file without the expected content, with the library's own words.
pub(crate) fn unreadable(path: &Path, what: &'static str) -> impl FnOnce(ErrorStack) -> Error {
    let path = path.to_owned();
    move |stack| Error::BadFile {
        path,
        what: format!("{what}: {}", reasons(&stack)),
    }
}

/// Returns the system's words without its number.
pub(crate) fn why(cause: &io::Error) -> String {
    let said = cause.to_string();
    said.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

fn whose(subject: &str, ours: &CertificateOwner) -> String {
    match ours {
        CertificateOwner::Us => format!("our certificate {subject} "),
        CertificateOwner::Peer => format!("the certificate {subject} "),
    }
}

fn inside(file: &Option<PathBuf>) -> String {
    file.as_ref()
        .map_or(String::new(), |path| format!(" ({})", path.display()))
}

fn whom(names: &[String]) -> String {
    match names {
        [] => "no host at all".into(),
        some => some.join(", "),
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_credential_errors_ask_for_renewal() {
        let hint = |what: &str| {
            Error::bad_file("file", format!("{what}: no start line"))
                .hint()
                .unwrap_or_default()
        };
        assert!(hint("no readable certificate").contains("godwit proxy init"));
        assert!(hint(NO_LIST).contains("fetch-crl"));
        assert!(hint(NO_AUTHORITY).contains("authority's own certificate"));
    }
}
