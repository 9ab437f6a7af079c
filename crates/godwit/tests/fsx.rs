//! Random operations on a file of a mount, whose server goes and comes back.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Node, assert_same, can_mount, lasting_port, programs::Machine};
use std::{
    env,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

/// `tests/ways/fsx.py` compares after each act; afterwards the server has the same bytes. `GODWIT_FSX_SECONDS`: how long.
#[test] //= ways-in#promises
fn random_acts_survive_outages() {
    try_acts_on(0, "30");
}

/// Parts of a large file come when they are read, and go when it is closed or synced.
#[test] //= ways-in#promises
fn large_files_survive_outages() {
    try_acts_on(9 << 20, "15");
}

fn try_acts_on(size: usize, seconds: &str) {
    if !can_mount() {
        return;
    }
    let machine = Machine::new();
    let export = machine.scratch.dir("export");
    let options = ["--anonymous", "write"];
    let mut node = Node::on(&export, lasting_port(), &options);
    let seconds = env::var("GODWIT_FSX_SECONDS").unwrap_or(seconds.into());
    if size > 0 {
        let model = machine.scratch.file("model", size);
        std::fs::copy(&model, export.join("file")).unwrap();
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/ways/fsx.py");
    let file = format!("/godwit/ftp:127.0.0.1:{}/file", node.port);
    let words = ["run", "--", "python3", script, &file, "model", &seconds];
    let mut command = machine.command(&words);
    let mut acts = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut next = Instant::now() + PAUSE;
    while acts.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(50)); // nothing tells it
        if Instant::now() < next {
            continue;
        }
        node.kill();
        thread::sleep(PAUSE / 2); // as long as the server is away
        node = Node::on(&export, node.port, &options);
        next = Instant::now() + PAUSE;
    }
    let said = acts.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success(), "{words}");
    machine.says(&["push", "--timeout", "60"]).ok();
    assert_same(&machine.scratch.join("model"), &export.join("file"));
}

/// The server is up for this long, and away for half of that.
const PAUSE: Duration = Duration::from_millis(1500);
