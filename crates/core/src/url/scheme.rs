//! Schemes: the part of a URL before the colon.

use super::BadUrl;
use std::{fmt, str::FromStr};

/// How to speak to a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
#[allow(missing_docs)]
pub enum Scheme {
    File,
    Ftp,
    Gsiftp,
    Sshftp,
    Http,
    Https,
    Dav,
    Davs,
    Godwit,
    Grid,
}

impl Scheme {
    /// All there are.
    pub const ALL: [Self; 10] = [
        Self::File,
        Self::Ftp,
        Self::Gsiftp,
        Self::Sshftp,
        Self::Http,
        Self::Https,
        Self::Dav,
        Self::Davs,
        Self::Godwit,
        Self::Grid,
    ];

    /// Returns the name as it stands before the colon.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Ftp => "ftp",
            Self::Gsiftp => "gsiftp",
            Self::Sshftp => "sshftp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Dav => "dav",
            Self::Davs => "davs",
            Self::Godwit => "godwit",
            Self::Grid => "grid",
        }
    }

    /// Returns the port where such servers listen, if there is a usual one.
    pub fn default_port(self) -> Option<u16> {
        match self {
            // ssh has ports in a configuration of its own.
            Self::File | Self::Sshftp | Self::Grid => None,
            Self::Ftp => Some(21),
            Self::Gsiftp => Some(2811),
            Self::Http | Self::Dav => Some(80),
            Self::Https | Self::Davs => Some(443),
            Self::Godwit => Some(13_560),
        }
    }

    /// Returns why this version cannot speak it; `None` if it can.
    pub fn not_served(self) -> Option<&'static str> {
        match self {
            Self::Dav | Self::Davs => Some("no WebDAV in this version"),
            _ => None,
        }
    }

    /// Tells whether the path of a URL always counts from the server's root, as
    /// it does in HTTP and as every GridFTP client reads it. RFC 1738 begins an
    /// FTP path at the login directory.
    pub(super) fn is_rooted(self) -> bool {
        !matches!(self, Self::Ftp | Self::Godwit)
    }
}

/// Reads a scheme in any case.
impl FromStr for Scheme {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        Self::ALL
            .into_iter()
            .find(|scheme| scheme.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| BadUrl::UnknownScheme(text.into()))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
