//! The server at the other end: its banner, its features and what they allow.

use crate::features::Features;
use std::collections::BTreeSet;

/// A server after login.
#[derive(Clone, Debug, Default)]
pub struct FtpPeer {
    /// The features that FEAT listed.
    pub features: Features,
    /// Commands that `SITE HELP` named, where that was asked.
    pub site: BTreeSet<String>,
    /// Where relative names begin.
    pub home: Vec<u8>,
    /// The server's greeting.
    pub banner: String,
}

/// The kinds of servers, by the commands that they accept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// Speaks the extension of docs/formats/ftp-extensions.md.
    Godwit,
    /// Speaks GFD.20.
    Grid,
    /// Speaks RFC 959 and perhaps more.
    Plain,
}

impl FtpPeer {
    /// Returns what kind of server it is.
    pub fn family(&self) -> Family {
        if self.features.is_godwit() {
            Family::Godwit
        } else if self.features.is_gridftp() {
            Family::Grid
        } else {
            Family::Plain
        }
    }

    /// Returns how many hosts have a part in a transfer with SPAS. GCT's front end does not report how many are
    /// behind it.
    pub fn stripes(&self) -> usize {
        let told = self.features.rest("STRIPES").and_then(|n| n.parse().ok());
        let is_front = |dsi: &str| dsi.starts_with("remote");
        match self.features.rest("DSI").is_some_and(is_front) {
            true => 2,
            false => told.map_or(1, |n: usize| n.clamp(1, STRIPES_MAX)),
        }
    }

    /// Returns a path as the server expects it. A path that begins with `/` is relative to the server's root. Any
    /// other is relative to the login directory of a plain server. On a GridFTP server it is relative to the root, as
    /// `globus-url-copy` reads a URL.
    pub fn name(&self, path: &[u8]) -> Vec<u8> {
        let path = path
            .strip_suffix(b"/")
            .filter(|p| !p.is_empty())
            .unwrap_or(path);
        if path.starts_with(b"/") {
            return path.to_vec();
        }
        if self.family() != Family::Plain {
            return [b"/", path].concat();
        }
        match path {
            [] if self.home.is_empty() => b".".to_vec(),
            [] => self.home.clone(),
            // Servers give what looks like options to ls.
            [b'-', ..] => [b"./", path].concat(),
            _ => path.to_vec(),
        }
    }
}

/// The most connections for one file; more do not raise throughput.
const STRIPES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_tells_of_its_stripes() {
        let stripes = |lines: &[&str]| {
            let features = Features::of(lines.iter().copied());
            FtpPeer {
                features,
                ..FtpPeer::default()
            }
            .stripes()
        };
        assert_eq!(stripes(&["SPAS"]), 1);
        assert_eq!(stripes(&["STRIPES 8"]), 8);
        assert_eq!(stripes(&["STRIPES 8000000000"]), 64);
        assert_eq!(stripes(&["STRIPES many"]), 1);
        assert_eq!(stripes(&["DSI remote-13.24"]), 2);
    }

    #[test]
    fn names_are_written_by_server_family() {
        let plain = FtpPeer {
            home: b"/home/me".to_vec(),
            ..FtpPeer::default()
        };
        assert_eq!(plain.name(b"a/b"), b"a/b");
        assert_eq!(plain.name(b"-l"), b"./-l");
        assert_eq!(plain.name(b""), b"/home/me");
        assert_eq!(plain.name(b"/etc/"), b"/etc");
        let grid = FtpPeer {
            features: Features::of(["PARALLEL"]),
            ..plain
        };
        assert_eq!(grid.name(b"a/b"), b"/a/b");
        assert_eq!(grid.name(b""), b"/");
        assert_eq!(grid.name(b"/"), b"/");
    }
}
