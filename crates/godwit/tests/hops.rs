//! What goes through several machines: one id finds it in all their logs, and whoever began it sees how
//! far it is.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Scratch, machine::Machine};

/// What is between two texts, behind the first.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    rest.split(to).next()
}

#[test]
fn one_id_finds_a_copy_in_the_logs_of_both_nodes() {
    let scratch = Scratch::new();
    let (mut from, mut to) = (
        Machine::new(&scratch, "from", None),
        Machine::new(&scratch, "to", None),
    );
    let laptop = Machine::new(&scratch, "laptop", None);
    scratch.file("from/data/f", 3_000_000);
    from.serve(&[]);
    to.serve(&[]);
    from.invite(&laptop);
    to.invite(&laptop);
    let copied = laptop.says(&["-vv", "cp", "godwit://from/f", "godwit://to/f"]);
    let log = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert!(copied.status.success(), "{log}");
    let id = between(&log, "request=", " ")
        .expect("what is asked is logged")
        .to_owned();
    // The one was asked for the bytes by the other, which the laptop had asked for it.
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
    // Who comes by a grant, or with an invite, need not be anybody, and nothing is said of that.
    for log in [from.log(), to.log()] {
        assert!(!log.contains("may do nothing"), "{log}");
    }
}

#[test]
fn an_error_says_by_which_id_the_logs_tell_of_it() {
    let scratch = Scratch::new();
    let (mut from, mut to) = (
        Machine::new(&scratch, "from", None),
        Machine::new(&scratch, "to", None),
    );
    let laptop = Machine::new(&scratch, "laptop", None);
    scratch.file("from/data/f", 3_000_000);
    from.serve(&[]);
    let rules = "[[rule]]\nwho = \"anyone\"\nmay = [\"read\", \"list\"]\n";
    std::fs::write(scratch.join(RIGHTS), rules).unwrap();
    to.serve(&["--rights", RIGHTS]);
    from.invite(&laptop);
    to.invite(&laptop);
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
    // What asks no node has no such id.
    let failed = laptop.says(&["cp", "nowhere", "here"]);
    assert!(!String::from_utf8_lossy(&failed.stderr).contains("request:"));
}

const RIGHTS: &str = "rights";
