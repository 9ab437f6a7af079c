//! Transfers through several machines: one id stands in all their logs, and the first machine sees the progress.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Machine, Scratch};

/// A node with a file, one without, and a laptop that has joined both.
fn both_and_laptop(scratch: &Scratch) -> [Machine<'_>; 3] {
    let [mut from, mut to, laptop] =
        ["from", "to", "laptop"].map(|name| Machine::new(scratch, name));
    scratch.file("from.data/f", 3_000_000);
    for (node, name) in [(&mut from, "from"), (&mut to, "to")] {
        node.serve(name, &scratch.dir(format!("{name}.data")));
        node.joined_by(&laptop, "laptop");
    }
    [from, to, laptop]
}

/// Returns the text between two others, at its first place.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    rest.split(to).next()
}

#[test]
fn both_logs_share_transfer_id() {
    let scratch = Scratch::new();
    let [from, to, laptop] = both_and_laptop(&scratch);
    let copied = laptop.says(&["-vv", "cp", "godwit://from/f", "godwit://to/f"]);
    let log = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert!(copied.status.success(), "{log}");
    let id = between(&log, "request=", " ")
        .expect("what is asked is logged")
        .to_owned();
    // The laptop asked one node, which asked the other for the bytes.
    let asked = |log: &str, call: &str| {
        let lines = log
            .lines()
            .filter(|line| line.contains("asked") && line.contains(call));
        let ids = lines.map(|line| {
            between(line, "request{id=", " ")
                .unwrap_or_default()
                .to_owned()
        });
        ids.collect::<Vec<_>>()
    };
    let (drawn, read) = (asked(&to.log(), "/draw"), asked(&from.log(), "v1/read"));
    assert!(
        !drawn.is_empty() && drawn.iter().all(|drawn| *drawn == id),
        "{drawn:?} {id}"
    );
    assert!(
        !read.is_empty() && read.iter().all(|read| *read == id),
        "{read:?} {id}"
    );
    // Grants and invites need no peer, and the log names none.
    for log in [from.log(), to.log()] {
        assert!(!log.contains("may do nothing"), "{log}");
    }
}

#[test]
fn error_names_its_log_id() {
    let scratch = Scratch::new();
    let [from, mut to, laptop] = both_and_laptop(&scratch);
    let rules = "[[rule]]\nwho = \"anyone\"\nmay = [\"read\", \"list\"]\n";
    let file = scratch.join("rights");
    std::fs::write(&file, rules).unwrap();
    to.kill();
    to.start(&[("GODWIT_NODE_RIGHTS", file.to_str().unwrap())]);
    let failed = laptop.says(&["cp", "--json", "godwit://from/f", "godwit://to/f"]);
    assert!(!failed.status.success());
    let out = String::from_utf8_lossy(&failed.stdout).into_owned();
    let error = out
        .lines()
        .find(|line| line.contains("\"event\":\"error\""))
        .expect(&out);
    let error: serde_json::Value = serde_json::from_str(error).unwrap();
    let id = error["request"].as_str().expect("it was asked of nodes");
    for machine in [&from, &to] {
        assert!(
            machine.log().contains(&format!("request{{id={id}")),
            "{id} in {}",
            machine.log()
        );
    }
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(said.contains(&format!("request: {id}")), "{said}");
    // A command that asks no node has no id.
    let failed = laptop.says(&["cp", "nowhere", "here"]);
    assert!(!String::from_utf8_lossy(&failed.stderr).contains("request:"));
}
