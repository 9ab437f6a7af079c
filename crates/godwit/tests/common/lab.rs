//! A laboratory with an authority of its own, hosts, and Alice, who may come to its nodes.

use super::{Node, Said, Scratch, account, godwit, ours_within};
use godwit_trust::{
    Credential, KeyKind, NewProxy,
    lab::{Ca, Issue, write_pair, write_proxy},
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// An authority, and Alice.
pub struct Lab {
    pub scratch: Scratch,
    pub ca: Ca,
}

impl Lab {
    pub fn new() -> Self {
        Self::of("/O=Lab/CN=Lab CA")
    }

    /// With an authority of that name.
    pub fn of(authority_name: &str) -> Self {
        let scratch = Scratch::new();
        let ca = authority(&scratch.join("ca"), authority_name);
        let lab = Self { scratch, ca };
        lab.host("host", &["localhost", "127.0.0.1"]);
        lab.proxy("alice", &lab.user("alice"));
        let alice = lab.user("alice").identity();
        lab.map(&format!("\"{}\" {}\n", alice.subject(), account()));
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Returns a path as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Says who may come, and under which name.
    pub fn map(&self, text: &str) {
        fs::write(self.path("gridmap"), text).unwrap();
    }

    pub fn user(&self, name: &str) -> Credential {
        self.ca.issue(&quick(Issue::user(name))).unwrap()
    }

    pub fn host(&self, name: &str, names: &[&str]) {
        let host = self.ca.issue(&quick(Issue::host(names))).unwrap();
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        write_pair(&host, &self.path(&cert), &self.path(&key)).unwrap();
    }

    pub fn proxy(&self, name: &str, of: &Credential) {
        let key = KeyKind::Elliptic;
        let wanted = NewProxy {
            key,
            ..NewProxy::default()
        };
        let proxy = of.proxy(&wanted).unwrap();
        write_proxy(&proxy, &self.path(name)).unwrap();
    }

    /// A node of ours to which Alice may come.
    pub fn node(&self, host: &str) -> Node {
        self.node_at(&self.path(&format!("export-{host}")), host, &[])
    }

    /// A node of that directory, with further options.
    pub fn node_at(&self, export: &Path, host: &str, more: &[&str]) -> Node {
        self.node_of(export, 0, host, more)
    }

    /// A node on a given port, to come back after a kill.
    pub fn node_on(&self, export: &Path, port: u16) -> Node {
        self.node_of(export, port, "host", &[])
    }

    fn node_of(&self, export: &Path, port: u16, host: &str, more: &[&str]) -> Node {
        let certificates = self.ca.certificates();
        let (cert, key) = (format!("{host}.pem"), format!("{host}.key"));
        let files = [
            ("--host-cert", self.path(&cert)),
            ("--host-key", self.path(&key)),
            ("--ca-dir", certificates),
            ("--gridmap", self.path("gridmap")),
        ];
        let mut options = vec!["--anonymous", "none"];
        for (flag, path) in &files {
            options.extend([flag, path.to_str().unwrap()]);
        }
        Node::on(export, port, &[&options, more].concat())
    }

    /// Our client with that proxy.
    pub fn run(&self, proxy: &str, args: &[&str]) -> Said {
        let mut command = godwit();
        command
            .env("X509_USER_PROXY", self.path(proxy))
            .env("X509_CERT_DIR", self.ca.certificates());
        ours_within(60, command, args)
    }

    pub fn refused(&self, proxy: &str, url: &str, words: &[&str]) {
        let said = self.run(proxy, &["ls", url]);
        assert_eq!(said.status, Some(13), "{said}");
        for word in words {
            assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
        }
    }
}

pub fn authority(dir: &Path, subject: &str) -> Ca {
    Ca::init(dir, subject, DAY * 30, KeyKind::Elliptic).unwrap()
}

/// With a key that is made in no time.
pub fn quick(issue: Issue) -> Issue {
    let key = KeyKind::Elliptic;
    Issue { key, ..issue }
}

pub fn url(node: &Node, path: &str) -> String {
    format!("gsiftp://localhost:{}/{path}", node.port)
}

pub const DAY: Duration = Duration::from_secs(86_400);
