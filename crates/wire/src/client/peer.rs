//! Who is at the other end.

use crate::features::Features;
use std::collections::BTreeSet;

/// A server after login.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// What FEAT told.
    pub features: Features,
    /// Commands that `SITE HELP` named, where that was asked.
    pub site: BTreeSet<String>,
    /// Where relative names begin.
    pub home: Vec<u8>,
    /// What the server said first.
    pub banner: String,
}

/// How servers differ in what we may ask of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// Speaks the extension of FORMATS.md §1.
    Godwit,
    /// Speaks GFD.20.
    Grid,
    /// Speaks RFC 959 and perhaps more.
    Plain,
}

impl Peer {
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

    /// Returns how the server is told a path: what begins with `/` is from its
    /// root; all else from the login directory of a plain server, and from the
    /// root of a GridFTP server, as `globus-url-copy` reads a URL.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_as_the_family_reads_them() {
        let plain = Peer {
            home: b"/home/me".to_vec(),
            ..Peer::default()
        };
        assert_eq!(plain.name(b"a/b"), b"a/b");
        assert_eq!(plain.name(b"-l"), b"./-l");
        assert_eq!(plain.name(b""), b"/home/me");
        assert_eq!(plain.name(b"/etc/"), b"/etc");
        let grid = Peer {
            features: Features::of(["PARALLEL"]),
            ..plain
        };
        assert_eq!(grid.name(b"a/b"), b"/a/b");
        assert_eq!(grid.name(b""), b"/");
        assert_eq!(grid.name(b"/"), b"/");
    }
}
