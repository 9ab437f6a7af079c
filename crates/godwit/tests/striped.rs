//! `godwit cp` to, from and between servers of which several hosts move one file.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Kind, Node, Peer, Scratch, godwit, have, peers::Said};
use std::{fs, path::Path};

/// Members and a front over one directory.
struct Striped {
    front: Node,
    members: Vec<Node>,
}

impl Striped {
    fn start(scratch: &Scratch, name: &str, count: usize) -> Self {
        let export = scratch.dir(name);
        let key = scratch.join(format!("{name}.key"));
        let key = key.to_str().unwrap();
        Said::of(godwit().args(["cluster", "key", key])).ok();
        let options = ["--anonymous", "write", "--cluster-key", key];
        let members: Vec<Node> = (0..count).map(|_| Node::with(&export, &options)).collect();
        let at: Vec<String> = members
            .iter()
            .map(|member| format!("127.0.0.1:{}", member.port))
            .collect();
        let mut options = options.to_vec();
        for at in &at {
            options.extend(["--stripe-member", at]);
        }
        let front = Node::with(&export, &options);
        Self { front, members }
    }

    fn url(&self, name: &str) -> String {
        format!("ftp://127.0.0.1:{}/{name}", self.front.port)
    }
}

/// Copies, and returns the line about the file.
fn copy(source: &str, target: &str) -> serde_json::Value {
    let said = Said::of(godwit().args(["cp", "--json", source, target])).ok();
    let lines = String::from_utf8(said.stdout).unwrap();
    let objects = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let done = |object: &serde_json::Value| object["event"] == "done";
    objects.into_iter().find(done).unwrap()
}

fn same(a: &Path, b: &Path) {
    assert!(
        fs::read(a).unwrap() == fs::read(b).unwrap(),
        "{} {}",
        a.display(),
        b.display()
    );
}

/// How many bytes a node has moved to or from others, by its own record.
fn moved(export: &Path) -> Vec<u64> {
    let name = export.file_name().unwrap().to_str().unwrap();
    let record = export.with_file_name(format!("{name}.state/transfers.jsonl"));
    let text = fs::read_to_string(record).unwrap();
    let bytes =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["bytes"].as_u64();
    text.lines().filter_map(bytes).collect()
}

#[test]
fn all_stripes_share_client_copy() {
    let scratch = Scratch::new();
    let source = scratch.file("local", 40_000_001);
    let here = Striped::start(&scratch, "here", 3);
    let there = Striped::start(&scratch, "there", 2);
    let local = source.to_str().unwrap();
    let put = copy(local, &here.url("x"));
    assert_eq!(put["verified"], "verified blake3", "{put}");
    same(&source, &here.front.export.join("x"));
    let between = copy(&here.url("x"), &there.url("y"));
    assert_eq!(between["verified"], "verified blake3", "{between}");
    same(&source, &there.front.export.join("y"));
    let back = scratch.join("back");
    let got = copy(&there.url("y"), back.to_str().unwrap());
    assert_eq!(got["verified"], "verified blake3", "{got}");
    same(&source, &back);
    // The record of all of them is beside the export: three parts and the whole, in each transfer.
    let parts = moved(&here.front.export);
    assert!(
        parts
            .iter()
            .filter(|&&bytes| bytes < 40_000_001 && bytes > 0)
            .count()
            >= 6,
        "{parts:?}"
    );
    drop((here.members, there.members));
}

#[test]
fn gct_stripes_read_and_write() {
    if !have("globus-gridftp-server") {
        return;
    }
    let scratch = Scratch::new();
    let Some(gct) = Peer::start(Kind::GctStriped, scratch.path()) else {
        return;
    };
    let source = scratch.file("local", 30_000_001);
    let ours = Striped::start(&scratch, "ours", 2);
    let put = copy(source.to_str().unwrap(), &gct.url("x"));
    same(&source, &gct.r#where.join("x"));
    assert_eq!(put["bytes"], 30_000_001, "{put}");
    let back = scratch.join("back");
    copy(&gct.url("x"), back.to_str().unwrap());
    same(&source, &back);
    copy(&gct.url("x"), &ours.url("y"));
    same(&source, &ours.front.export.join("y"));
    copy(&ours.url("y"), &gct.url("z"));
    same(&source, &gct.r#where.join("z"));
}
