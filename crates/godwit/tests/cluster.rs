//! A cluster from end to end: the key that the program makes, and what is said of a wrong one.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Node, Said, Scratch, assert_same, godwit, ours_within};
use std::fs;

struct Cluster {
    scratch: Scratch,
    node: Node,
}

impl Cluster {
    fn new(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let key = make_key(&scratch, "key");
        let all = ["--anonymous", "none", "--cluster-key", &key];
        let node = Node::with(&scratch.dir("export"), &[&all, options].concat());
        Self { scratch, node }
    }

    fn url(&self, path: &str) -> String {
        format!("gsiftp://localhost:{}/{path}", self.node.port)
    }

    fn run(&self, key: &str, args: &[&str]) -> Said {
        let mut command = godwit();
        command.env("GODWIT_CLUSTER_KEY", key);
        ours_within(60, command, args)
    }

    fn path(&self, name: &str) -> String {
        self.scratch.join(name).to_str().unwrap().into()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.node.export.with_extension("log")).unwrap()
    }

    /// No output and no log shows a key.
    fn no_secret_in(&self, texts: &[&str]) {
        for name in ["key", "other"] {
            let secret = fs::read_to_string(self.path(name)).unwrap_or("none".repeat(16));
            for text in texts {
                assert!(!text.contains(&secret[..8]), "{name} in {text}");
            }
        }
    }
}

fn make_key(scratch: &Scratch, name: &str) -> String {
    let path = scratch.join(name).to_str().unwrap().to_owned();
    let said = Said::of(godwit().args(["cluster", "key", &path])).ok();
    let text = String::from_utf8(said.stdout).unwrap();
    let secret = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with("cluster key ") && !text.contains(&secret[..8]),
        "{text}"
    );
    path
}

#[test]
fn cluster_key_suffices_for_files() {
    let cluster = Cluster::new(&[]);
    let file = cluster.scratch.file("f", 3_000_000);
    let (from, key) = (cluster.path("f"), cluster.path("key"));
    for way in ["--clear", "--private"] {
        cluster
            .run(&key, &["cp", way, &from, &cluster.url("g")])
            .ok();
        assert_same(&file, &cluster.node.export.join("g"));
        let back = cluster.path("back");
        cluster
            .run(&key, &["cp", way, &cluster.url("g"), &back])
            .ok();
        assert_same(&file, back.as_ref());
    }
    cluster.no_secret_in(&[&cluster.log()]);
}

#[test]
fn wrong_key_is_named_not_shown() {
    let cluster = Cluster::new(&[]);
    let other = make_key(&cluster.scratch, "other");
    let said = cluster.run(&other, &["ls", &cluster.url("")]);
    assert_eq!(said.status, Some(13), "{said}");
    let log = cluster.log();
    let ours = cluster.path("key");
    assert!(
        said.stderr.contains(&other) && said.stderr.contains("differ"),
        "{said}"
    );
    assert!(log.contains(&ours) && log.contains("differ"), "{log}");
    cluster.no_secret_in(&[&said.stderr, &log]);
}

#[test]
fn readable_key_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let cluster = Cluster::new(&[]);
    let other = make_key(&cluster.scratch, "other");
    let open = |path: &str| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    open(&other);
    let said = cluster.run(&other, &["ls", &cluster.url("")]);
    assert_eq!(said.status, Some(13), "{said}");
    assert!(said.stderr.contains("chmod 600"), "{said}");
    open(&cluster.path("key"));
    let said =
        Said::of(godwit().args(["node", "--cluster-key", &cluster.path("key"), "--ftp", "0"]));
    assert_ne!(said.status, Some(0));
    assert!(said.stderr.contains("chmod 600"), "{said}");
}

#[test]
fn trusted_addresses_need_no_key() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    let config = scratch.join("config.toml");
    fs::write(
        &config,
        "[cluster]\naddresses = [\"127.0.0.0/8\", \"::1\"]\n",
    )
    .unwrap();
    let node = Node::with(&export, &["--config", config.to_str().unwrap()]);
    let cluster = Cluster { scratch, node };
    let file = cluster.scratch.file("f", 1000);
    cluster
        .run("none", &["cp", &cluster.path("f"), &cluster.url("g")])
        .ok();
    assert_same(&file, &cluster.node.export.join("g"));
    let log = cluster.log();
    for word in ["127.0.0.0/8", "without a key", "believed for the address"] {
        assert!(log.contains(word), "wanted {word} in {log}");
    }
    let said = cluster.run(
        "none",
        &["cp", "--private", &cluster.path("f"), &cluster.url("h")],
    );
    assert_ne!(said.status, Some(0), "{said}");
}
