//! Transfers through a door are logged as FTP transfers are: one line a file.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Machine, Scratch, noise};
use serde_json::Value;
use std::fs;

/// The transfers in a node's log: status, source, target, bytes.
fn record(machine: &Machine<'_>) -> Vec<(String, String, String, Option<u64>)> {
    let text = fs::read_to_string(machine.state().join("transfers.jsonl")).unwrap();
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        for key in [
            "when", "status", "user", "source", "target", "bytes", "seconds", "streams", "message",
        ] {
            assert!(line.get(key).is_some(), "{key}: {line}");
        }
        // The account of the joined peer, or the peer itself.
        assert!(!["", "anonymous"].contains(&&*word("user")), "{line}");
        assert!(line["streams"].as_u64().unwrap() > 0, "{line}");
        (
            word("status"),
            word("source"),
            word("target"),
            line["bytes"].as_u64(),
        )
    });
    lines.collect()
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::SocketAddr>().is_ok()
}

#[test]
fn every_transfer_is_logged() {
    let scratch = Scratch::new();
    let [mut from, mut to, laptop] =
        ["from", "to", "laptop"].map(|name| Machine::new(&scratch, name));
    for (node, name) in [(&mut from, "from"), (&mut to, "to")] {
        node.serve(name, &scratch.dir(format!("{name}.data")));
        node.joined_by(&laptop, "laptop");
    }
    let large = laptop.home.join("large");
    fs::write(&large, noise(LARGE as usize, 1)).unwrap();
    let tree = scratch.dir("laptop/tree");
    (0..SMALL).for_each(|nth| fs::write(tree.join(nth.to_string()), [7; 100]).unwrap());
    let (large, tree) = (large.to_str().unwrap(), tree.to_str().unwrap());
    let back = laptop.home.join("back");
    for words in [
        &["cp", large, "godwit://from/large"][..],
        &["cp", "-r", tree, "godwit://from/tree"],
        &["cp", "godwit://from/large", back.to_str().unwrap()],
        &["cp", "godwit://from/large", "godwit://to/drawn"],
    ] {
        laptop.well(words);
    }
    from.stop();
    to.stop();
    let of_from = record(&from);
    let puts = of_from.iter().filter(|(_, source, ..)| is_address(source));
    let gets = of_from
        .iter()
        .filter(|(_, _, target, _)| is_address(target));
    let (puts, gets): (Vec<_>, Vec<_>) = (puts.collect(), gets.collect());
    assert_eq!(puts.len() as u64, 1 + SMALL, "{of_from:?}");
    let small = puts
        .iter()
        .filter(|(.., target, bytes)| target.starts_with("tree/") && *bytes == Some(100));
    assert_eq!(small.count() as u64, SMALL, "{of_from:?}");
    // One line for the laptop, in many parts, and one for the other node, which acts for it.
    assert_eq!(gets.len(), 2, "{of_from:?}");
    let is_whole = |line: &&&(String, String, String, Option<u64>)| {
        line.0 == "ok" && line.1 == "large" && line.3 == Some(LARGE)
    };
    assert_eq!(gets.iter().filter(is_whole).count(), 2, "{of_from:?}");
    let [(status, source, target, bytes)] = &record(&to)[..] else {
        panic!("{:?}", record(&to));
    };
    assert_eq!((&**status, &**target, *bytes), ("ok", "drawn", Some(LARGE)));
    assert!(
        source.starts_with("godwit://127.0.0.1:") && source.ends_with("/large"),
        "{source}"
    );
}

const LARGE: u64 = 40 << 20;
const SMALL: u64 = 50;
