//! The machine that a URL names.

use super::{
    BadUrl,
    text::{is_digits, shown},
};
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A host.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Host {
    /// Its name, in lower case.
    Name(String),
    /// Its IPv4 address.
    V4(Ipv4Addr),
    /// Its IPv6 address.
    V6(Ipv6Addr),
}

impl Host {
    /// Returns the text that a resolver takes: no brackets.
    pub fn to_resolve(&self) -> String {
        match self {
            Self::V6(address) => address.to_string(),
            other => other.to_string(),
        }
    }
}

impl FromStr for Host {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = || BadUrl::BadHost(shown(text.as_bytes()));
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(bad)?;
            return inner.parse().map(Self::V6).map_err(|_| bad());
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::V4(address));
        }
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        // Programs that are given a host would read `-x` as an option.
        let is_label =
            |label: &str| matches!(label.len(), 1..=LABEL_MAX) && !label.starts_with('-');
        let mut labels = text.strip_suffix('.').unwrap_or(text).rsplit('.');
        // A resolver would read `1.2.3` or `7` as some other address.
        let is_name = text.len() <= HOST_NAME_MAX
            && text.bytes().all(known)
            && labels.clone().all(is_label)
            && labels
                .next()
                .is_some_and(|last| !is_digits(last.as_bytes()));
        if is_name {
            Ok(Self::Name(text.to_ascii_lowercase()))
        } else if text.is_empty() {
            Err(BadUrl::NoHost)
        } else {
            Err(bad())
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => write!(f, "[{address}]"),
        }
    }
}

const HOST_NAME_MAX: usize = 253; // RFC 1035, without the last dot
const LABEL_MAX: usize = 63;
