//! A transfer finds its number of streams while it runs, and reports it. Needs namespaces.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    Said, Scratch, assert_same, ours,
    wan::{FAR, Wan},
};
use serde_json::Value;
use std::path::Path;

/// Copies a file of 64 MiB both ways over a line, and returns what is told of it.
fn both_ways(scratch: &Scratch, wan: &Wan, more: &[&str]) -> Vec<Value> {
    let source = scratch.file("export/f", 64 << 20);
    let node = wan.node(&scratch.join("export"), Some("cubic"));
    let (there, back) = (scratch.join("export/g"), scratch.join("back"));
    let copy = |from: &str, to: &str| {
        let mut command = wan.godwit("a", Some("cubic"));
        command.args(["cp", "--json"]).args(more).args([from, to]);
        told(&Said::of(&mut command).ok())
    };
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let all = vec![
        copy(&format!("ftp://{FAR}/f"), &text(&back)),
        copy(&text(&back), &format!("ftp://{FAR}/g")),
    ];
    assert_same(&source, &back);
    assert_same(&source, &there);
    drop(node);
    all
}

/// Returns the object of the only file.
fn told(said: &Said) -> Value {
    let stdout = String::from_utf8_lossy(&said.stdout);
    let objects = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let done = objects.rev().find(|object| object["event"] == "done");
    done.unwrap_or_else(|| panic!("{said}"))
}

#[test] //= GRIDFTP-39
fn random_losses_add_streams() {
    let scratch = Scratch::new();
    let line = ["--rtt", "60ms", "--rate", "300mbit", "--loss", "0.1%"];
    let Some(wan) = Wan::up(scratch.path(), &line) else {
        return;
    };
    let mut seen = Vec::new();
    for _ in 0..3 {
        let run = both_ways(&scratch, &wan, &[]);
        run.iter().for_each(must_be_measured);
        if run.iter().all(are_many) {
            return;
        }
        seen.extend(run.into_iter().map(|done| done["tuning"].clone()));
    }
    // Where others hold up the emulated line or what feeds it, that is the limit.
    let is_held_up = |tuning: &Value| ["full", "source"].iter().any(|why| tuning["why"] == *why);
    assert!(
        seen.iter().any(is_held_up),
        "few streams, and why? {seen:?}"
    );
    eprintln!("the machine was too busy to have losses be the limit: {seen:?}");
}

/// More streams are in use, or were tried.
fn are_many(done: &Value) -> bool {
    let tuning = &done["tuning"];
    tuning["streams"].as_u64() >= Some(16) || tuning["why"] == "best"
}

fn must_be_measured(done: &Value) {
    let tuning = &done["tuning"];
    assert!(tuning["lost"].as_f64() > Some(0.0001), "{done}");
    let rate = tuning["bytes_per_second"].as_u64();
    assert!(rate > Some(100_000), "{done}");
    assert!(tuning["round_trip_seconds"].as_f64() > Some(0.05), "{done}");
}

#[test]
fn requested_streams_stay() {
    let scratch = Scratch::new();
    let line = ["--rtt", "60ms", "--rate", "300mbit", "--loss", "0.01%"];
    let Some(wan) = Wan::up(scratch.path(), &line) else {
        return;
    };
    for done in both_ways(&scratch, &wan, &["--streams", "3"]) {
        assert_eq!(done["tuning"]["streams"], 3, "{done}");
        assert_eq!(done["tuning"]["why"], "asked", "{done}");
    }
}

#[test]
fn local_copy_reports_near_end() {
    let scratch = Scratch::new();
    let file = scratch.file("f", 3_000_000);
    let (from, to) = (file.to_str().unwrap(), scratch.join("g"));
    let done = told(&ours(["cp", "--json", from, to.to_str().unwrap()]).ok());
    assert_eq!(done["tuning"]["why"], "near", "{done}");
    assert_eq!(
        done["tuning"]["lost"],
        Value::Null,
        "nothing was measured: {done}"
    );
    let said = ours(["cp", "-v", "-f", from, to.to_str().unwrap()]).ok();
    let lines = String::from_utf8_lossy(&said.stdout) + &*said.stderr;
    assert!(lines.contains("the other end is near"), "{said}");
}
