//! Local paths that read like the name of a host.

use super::Host;
use std::str::from_utf8;

/// A host that a local path may have been meant for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostMeant {
    /// With its port, if there is one.
    pub host: String,
    /// Below it, without a leading slash.
    pub path: Vec<u8>,
}

impl HostMeant {
    /// Reads a local path as scp, rsync and browsers would. Returns `None` unless its first name is one of a host:
    /// `lab:`, `host.example:in`, `ftp.host.example/in`, or a name that `is_peer` knows.
    pub fn in_path(text: &[u8], is_peer: impl Fn(&str) -> bool) -> Option<Self> {
        let end = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
        let (first, below) = (from_utf8(&text[..end]).ok()?, &text[end..]);
        if !first.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') {
            return None;
        }
        let colon = first.rfind("]:").map(|at| at + 1).or(first.find(':'));
        let (host, below) = match colon {
            None if is_peer(first) || is_host_name(first) => (first, below.to_vec()),
            None => return None,
            Some(at) => {
                let (host, rest) = (&first[..at], &first[at + 1..]);
                let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
                host.parse::<Host>().ok()?;
                let is_port = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
                match is_port {
                    true => (first, below.to_vec()),
                    false => (host, [rest.as_bytes(), below].concat()),
                }
            }
        };
        let slashes = below.iter().take_while(|&&b| b == b'/').count();
        Some(Self {
            host: host.into(),
            path: below[slashes..].to_vec(),
        })
    }
}

/// Tells whether a name without a colon is more likely one of a host than one of a file.
fn is_host_name(name: &str) -> bool {
    let labels: Vec<&str> = name.split('.').collect();
    match name.parse() {
        Ok(Host::V4(_)) => true,
        Ok(Host::Name(name)) if !labels.contains(&"") && !name.contains('_') => {
            let last = labels[labels.len() - 1];
            let is_country = last.len() == 2 && last.bytes().all(|b| b.is_ascii_alphabetic());
            let has_known_label = HOST_LABELS.contains(&labels[0]) && labels.len() > 2;
            has_known_label
                || (DOMAINS.contains(&last) && labels.len() > 1)
                || (is_country && labels.len() > 2 && !FILES.contains(&last))
        }
        _ => false,
    }
}

/// First labels of hosts that serve files.
const HOST_LABELS: [&str; 6] = ["ftp", "gridftp", "gsiftp", "node", "sftp", "www"];
/// Domains that no file name ends with.
const DOMAINS: [&str; 6] = ["com", "edu", "gov", "int", "net", "org"];
/// File names end with these, and domains of countries too.
const FILES: [&str; 22] = [
    "bz", "cc", "cs", "db", "go", "gz", "hs", "id", "js", "md", "mk", "ml", "pl", "pm", "ps", "py",
    "rs", "sh", "so", "tf", "ts", "xz",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_like_host_is_read_as_one() {
        let peers = |name: &str| name == "lab";
        for (text, host, path) in [
            ("lab:", "lab", ""),
            ("lab", "lab", ""),
            ("lab/in/f", "lab", "in/f"),
            ("me@lab:/in", "lab", "in"),
            ("host.example:in/f", "host.example", "in/f"),
            ("[::1]:in", "[::1]", "in"),
            ("lab:13560/f", "lab:13560", "f"),
            ("ftp.host.example", "ftp.host.example", ""),
            ("fermi.physics.de/in", "fermi.physics.de", "in"),
            ("fermi.org", "fermi.org", ""),
            ("192.0.2.1/f", "192.0.2.1", "f"),
        ] {
            let meant = HostMeant::in_path(text.as_bytes(), peers);
            let meant = meant.unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (&*meant.host, &*meant.path),
                (host, path.as_bytes()),
                "{text}"
            );
        }
        for file in [
            "run7.root",
            "a.tar.gz",
            "x.test.py",
            "./lab:",
            "/lab:",
            "config.toml.example",
            "12:30",
            "..",
            ".hidden.org",
            "libfoo.so.1",
            "ftp.log",
            "data",
        ] {
            assert_eq!(HostMeant::in_path(file.as_bytes(), peers), None, "{file}");
        }
    }
}
