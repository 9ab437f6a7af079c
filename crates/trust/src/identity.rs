//! A proved name, and the form in which the grid writes names.

use openssl::{
    nid::Nid,
    x509::{X509NameRef, X509Ref},
};
use std::{fmt, net::IpAddr, time::SystemTime};

/// Proved name of a peer: the subject of the end entity, whatever proxies stand before it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    pub(crate) subject: String,
    pub(crate) chain: Vec<String>,
    pub(crate) limited: bool,
    pub(crate) not_after: Option<SystemTime>,
    pub(crate) by: ProofKind,
}

/// Proof by which a peer is known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum ProofKind {
    /// A name that an authority vouches for.
    #[default]
    Name,
    /// The key of a cluster.
    Key,
    /// The address of the peer.
    Address,
}

impl Identity {
    /// Returns the identity of that name, as if a certificate of the name had been shown.
    pub fn named(subject: impl Into<String>) -> Self {
        let subject = subject.into();
        Self {
            chain: vec![subject.clone()],
            subject,
            limited: false,
            not_after: None,
            by: ProofKind::Name,
        }
    }

    /// Returns a member of a cluster; `name` is its own claim, which is not proved.
    pub(crate) fn member(by: ProofKind, name: Option<&str>) -> Self {
        let chain = name.map(|name| format!("{CLUSTER}/CN={name}"));
        Self {
            chain: vec![chain.unwrap_or_else(|| CLUSTER.into())],
            by,
            ..Self::named(CLUSTER)
        }
    }

    /// Returns a node whose key is pinned under that name.
    pub(crate) fn peer(name: &str) -> Self {
        Self::named(format!("{PEER}/CN={name}"))
    }

    /// Tells whether it is a member of a cluster, known by its key or its address: it may act for
    /// others.
    pub fn is_member(&self) -> bool {
        self.by != ProofKind::Name
    }

    /// Tells whether nothing was proved but an address.
    pub fn is_by_address(&self) -> bool {
        self.by == ProofKind::Address
    }

    /// Returns the subject of the end entity: `/O=Grid/CN=alice`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the subjects that were shown, proxies first.
    pub fn chain(&self) -> &[String] {
        &self.chain
    }

    /// Tells whether the rights of a limited proxy are all there are: files yes, jobs no.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// Returns when the first of the certificates that were shown expires.
    pub fn not_after(&self) -> Option<SystemTime> {
        self.not_after
    }

    /// Tells whether `subject` is the same name, in any of the spellings in use.
    pub fn is_called(&self, subject: &str) -> bool {
        spelled(&self.subject) == spelled(subject)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)
    }
}

/// Prefix of the names of nodes that are known by their keys.
const PEER: &str = "/O=godwit/OU=peer";
/// Name of all members of a cluster: the key does not tell them apart.
const CLUSTER: &str = "/O=godwit/CN=cluster";

/// Tells whether a text is a name: `/O=Grid/CN=alice` as in certificates, or `alice@REALM` as in
/// Kerberos. A name with stars is one too.
pub fn is_name(text: &str) -> bool {
    let is_plain = !text.contains(char::is_control);
    is_plain && (text.starts_with('/') || is_principal(text))
}

/// Tells whether a text is one of Kerberos' names.
pub(crate) fn is_principal(text: &str) -> bool {
    let parts = text.rsplit_once('@');
    let is_whole = parts.is_some_and(|(name, realm)| !name.is_empty() && !realm.is_empty());
    is_whole && !text.starts_with('/')
}

/// Returns a name as OpenSSL's `oneline` form has it, which grid-mapfiles and policies use.
pub(crate) fn slashed(name: &X509NameRef) -> String {
    let mut text = String::new();
    for entry in name.entries() {
        let object = entry.object();
        text.push('/');
        match object.nid() {
            Nid::UNDEF => text.push_str(&object.to_string()),
            nid => text.push_str(nid.short_name().unwrap_or("?")),
        }
        text.push('=');
        for &byte in entry.data().as_slice() {
            match byte {
                b' '..=b'~' => text.push(char::from(byte)),
                _ => text.push_str(&format!("\\x{byte:02X}")),
            }
        }
    }
    text
}

/// Returns the one spelling of a name that has several: old Globus wrote `Email` and `USERID`.
pub(crate) fn spelled(subject: &str) -> String {
    subject
        .replace("/Email=", "/emailAddress=")
        .replace("/E=", "/emailAddress=")
        .replace("/USERID=", "/UID=")
}

/// Tells whether a certificate was made for that host.
///
/// RFC 2818: the alternative names if there are any of that kind, else the common name. The common
/// name may be `host/NAME` or `ftp/NAME` as GT2 made them. No resolver is asked for other names.
pub(crate) fn is_for_host(certificate: &X509Ref, host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host_names(certificate)
        .iter()
        .any(|name| matches_host(name, host))
}

/// Returns the hosts that a certificate was made for.
pub(crate) fn host_names(certificate: &X509Ref) -> Vec<String> {
    let mut names = Vec::new();
    for name in certificate.subject_alt_names().iter().flatten() {
        if let Some(dns) = name.dnsname() {
            names.push(dns.to_owned());
        } else if let Some(octets) = name.ipaddress() {
            names.extend(address(octets).map(|address| address.to_string()));
        }
    }
    if names.is_empty() {
        let common = certificate.subject_name().entries_by_nid(Nid::COMMONNAME);
        names.extend(common.last().and_then(|entry| {
            let name = std::str::from_utf8(entry.data().as_slice()).ok()?;
            let plain = ["host/", "ftp/"]
                .iter()
                .find_map(|kind| name.strip_prefix(kind));
            Some(plain.unwrap_or(name).to_owned())
        }));
    }
    names
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(<[u8; 4]>::try_from(octets).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(octets).ok()?.into()),
        _ => None,
    }
}

fn matches_host(name: &str, host: &str) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        return name.parse() == Ok(address);
    }
    let (name, host) = (name.trim_end_matches('.'), host.trim_end_matches('.'));
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    // A star stands for one label, the first, and never for a whole domain.
    let Some(domain) = name
        .strip_prefix("*.")
        .filter(|domain| domain.contains('.'))
    else {
        return false;
    };
    host.split_once('.')
        .is_some_and(|(label, rest)| !label.is_empty() && rest.eq_ignore_ascii_case(domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_match_as_rfc_2818_says() {
        for (name, host, same) in [
            ("fermi.example", "FERMI.example", true),
            ("fermi.example", "fermi.example.", true),
            ("fermi.example", "dirac.example", false),
            ("*.cern.example", "fermi.cern.example", true),
            ("*.cern.example", "a.b.cern.example", false),
            ("*.cern.example", "cern.example", false),
            ("*.example", "fermi.example", false),
            ("*", "fermi", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("::1", "0:0:0:0:0:0:0:1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("*.0.0.1", "127.0.0.1", false),
        ] {
            assert_eq!(matches_host(name, host), same, "{name} for {host}");
        }
    }

    #[test]
    fn old_spellings_name_the_same() {
        let alice = Identity::named("/O=Grid/CN=alice/emailAddress=a@b");
        assert!(alice.is_called("/O=Grid/CN=alice/Email=a@b"));
        assert!(!alice.is_called("/O=Grid/CN=bob/Email=a@b"));
    }
}
