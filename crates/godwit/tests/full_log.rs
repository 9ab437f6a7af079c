//! A log that cannot be written has gaps, and the node goes on.

#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Node, Scratch, godwit, ours};
use std::{fs, os::unix::fs::symlink};

#[test]
fn full_log_stops_no_node() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    fs::write(export.join("file"), b"what was asked for").unwrap();
    symlink("/dev/full", export.with_extension("log")).unwrap();
    let mut node = godwit();
    node.args(["node", "--ftp", "127.0.0.1:0", "--anonymous", "read"])
        .arg("--json")
        .arg("--export")
        .arg(&export)
        .arg("--state")
        .arg(scratch.join("state"))
        // Enough load that every part of the node logs something.
        .env("GODWIT_LOG", "trace");
    let node = Node::spawn(node, &export);
    for _ in 0..2 {
        let said = ours(["cat", &node.url("file")]).ok();
        assert_eq!(said.stdout, b"what was asked for");
    }
}
