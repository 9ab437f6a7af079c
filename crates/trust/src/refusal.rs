//! Refusals of a login, in a server's words. They never name the server's own files, which are for
//! its log. A client recognizes some of the words, and adds a hint.

use crate::{CertificateOwner, Error, NoTicket, when};
use std::time::SystemTime;

/// Appended to a refusal that only the administrator can mend.
pub const LOG: &str = "its log tells more";

/// Returns the client's hint for a refusal that it recognizes.
pub fn hint_of(said: &str) -> Option<String> {
    let hint = match said {
        _ if said.contains(CLOCKS) => return Some(to_set_the_clock(SystemTime::now())),
        _ if said.contains(KEYTAB) => {
            "tell whoever runs the node to renew its keytab; a new ticket may help too: kdestroy, kinit"
        }
        _ if said.contains(EXPIRED) => "get a new ticket: kinit (klist shows those that you have)",
        _ if said.contains(LOG) => "tell whoever runs the node",
        _ => return None,
    };
    Some(hint.into())
}

impl Error {
    /// Tells whether it says nothing of the other side: a file of ours cannot be used, maybe only for a while.
    pub fn is_of_our_files(&self) -> bool {
        self.of_others().is_none()
    }

    /// Returns the part of the error that the other side may know, without the names of our files.
    pub fn told(&self) -> String {
        self.of_others()
            .unwrap_or_else(|| format!("this node cannot use a file of its own; {LOG}"))
    }

    /// Returns the part of the error that is not about our files, if any.
    fn of_others(&self) -> Option<String> {
        Some(match self {
            Self::Io { .. }
            | Self::BadFile { .. }
            | Self::Exists { .. }
            | Self::Exposed { .. }
            | Self::Encrypted { .. } => return None,
            Self::NoAuthorities { .. } => {
                format!("this node knows no certificate authorities; {LOG}")
            }
            Self::NoKerberos { .. } => format!("this node cannot load Kerberos; {LOG}"),
            Self::Expired {
                subject, at, now, ..
            } => {
                Self::expired(subject.clone(), CertificateOwner::Peer, *at, *now, None).to_string()
            }
            Self::NotYet {
                subject, from, now, ..
            } => Self::not_yet(subject.clone(), CertificateOwner::Peer, *from, *now, None)
                .to_string(),
            Self::UnknownAuthority {
                subject,
                issuer,
                hash,
                ..
            } => format!(
                "{subject} is vouched for by {issuer}, and this node has no such authority (wanted {hash}.0)"
            ),
            Self::Revoked {
                subject,
                issuer,
                since,
                ..
            } => format!("{subject} was revoked at {} by {issuer}", when::utc(*since)),
            Self::StaleList { issuer, since, .. } => format!(
                "the revocation list of {issuer} that this node has is out of date since {}; {LOG}",
                when::utc(*since)
            ),
            Self::NoPolicy { authority, .. } => {
                format!("{authority} has no signing policy at this node; {LOG}")
            }
            Self::OutsidePolicy {
                authority, subject, ..
            } => format!("{authority} may not vouch for {subject}, says its signing policy"),
            Self::OtherIssuer {
                subject, issuer, ..
            } => {
                format!("{subject}: is signed with another key than that of {issuer} at this node")
            }
            Self::KeyRefused { said, .. } => {
                format!("what this node proves by was refused: {said}")
            }
            Self::Ticket { why, said } => why.told(said, SystemTime::now()),
            // These name no file.
            Self::BadRequest { .. }
            | Self::NameTaken { .. }
            | Self::OwnName { .. }
            | Self::KeyTaken { .. }
            | Self::OwnKey
            | Self::NoInvite { .. }
            | Self::BadChain { .. }
            | Self::OldProxy { .. }
            | Self::WrongPeer { .. }
            | Self::WrongHost { .. }
            | Self::OtherKey { .. }
            | Self::NoMember { .. }
            | Self::NoDelegation { .. }
            | Self::Token(_)
            | Self::Garbled(_)
            | Self::Refused(_)
            | Self::Itself { .. }
            | Self::Library { .. } => self.to_string(),
        })
    }
}

impl NoTicket {
    fn told(self, said: &str, now: SystemTime) -> String {
        match self {
            Self::Clock => format!("{CLOCKS}: that of this node says {}", when::utc(now)),
            Self::Keytab => KEYTAB.into(),
            Self::Expired => EXPIRED.into(),
            Self::Keys | Self::Nothing => format!("this node cannot read its keytab; {LOG}"),
            Self::Replays => format!("this node cannot note which tickets it has seen; {LOG}"),
            // The library's own words; a word with a slash may be the path of a file.
            Self::UnknownServer | Self::NoKdc | Self::Other if said.contains('/') => {
                format!("this node's Kerberos does not take the ticket; {LOG}")
            }
            Self::UnknownServer | Self::NoKdc | Self::Other => format!("Kerberos: {said}"),
        }
    }
}

fn to_set_the_clock(now: SystemTime) -> String {
    format!(
        "the clock of this machine says {}: if it is wrong, set the clock (chronyc tracking), else tell whoever runs \
         the node or the KDC to set theirs",
        when::utc(now)
    )
}

const CLOCKS: &str = "two clocks are further apart than Kerberos allows";
const KEYTAB: &str = "the ticket is for another key than this node has: the keytab of the node is outdated, or the ticket is";
const EXPIRED: &str = "the ticket has expired";

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, path::PathBuf, time::Duration};

    #[test]
    fn refusal_names_no_local_file() {
        let path = || PathBuf::from("/etc/secret/place");
        let text = || String::from("/O=Lab/CN=anna");
        let now = SystemTime::now();
        let ticket = |why| Error::ticket(why, "/etc/secret/place: no such file");
        let errors = [
            Error::io(path(), io::ErrorKind::NotFound),
            Error::bad_file(path(), "line 1"),
            Error::exists(path()),
            Error::exposed(path(), "all may read it"),
            Error::encrypted(path()),
            Error::no_authorities(vec![path()]),
            Error::expired(text(), CertificateOwner::Us, now, now, Some(path())),
            Error::not_yet(text(), CertificateOwner::Peer, now, now, Some(path())),
            Error::unknown_authority(text(), text(), "01234567", path()),
            Error::revoked(text(), text(), now, path()),
            Error::stale_list(text(), now, path()),
            Error::no_policy(text(), path()),
            Error::outside_policy(text(), text(), path()),
            Error::other_key("1", "2", Some(path())),
            Error::other_issuer(text(), text(), path()),
            Error::key_refused("the cluster key 1 (/etc/secret/place)", "another"),
            Error::no_kerberos("/etc/secret/place", "/etc/secret/place: cannot open"),
            ticket(NoTicket::Nothing),
            ticket(NoTicket::Expired),
            ticket(NoTicket::Clock),
            ticket(NoTicket::UnknownServer),
            ticket(NoTicket::NoKdc),
            ticket(NoTicket::Keys),
            ticket(NoTicket::Keytab),
            ticket(NoTicket::Replays),
            ticket(NoTicket::Other),
        ];
        for error in errors {
            let told = error.told();
            assert!(!told.contains("secret"), "{error:?}: {told}");
        }
    }

    #[test]
    fn each_cause_has_words_and_hint() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let told = |why: NoTicket| why.told("", now);
        let clock = told(NoTicket::Clock);
        assert!(clock.ends_with("says 2027-01-15 08:00:00 UTC"), "{clock}");
        for (why, words) in [
            (NoTicket::Clock, "set the clock (chronyc tracking)"),
            (
                NoTicket::Keytab,
                "renew its keytab; a new ticket may help too: kdestroy, kinit",
            ),
            (NoTicket::Expired, "get a new ticket: kinit"),
            (NoTicket::Keys, "tell whoever runs the node"),
            (NoTicket::Replays, "tell whoever runs the node"),
        ] {
            let hint = hint_of(&format!("Authentication failed: {}", told(why))).unwrap();
            assert!(hint.contains(words), "{why:?}: {hint}");
        }
        assert_eq!(hint_of("alice has no account here"), None);
    }
}
