//! A transfer goes on by itself: after the network was down, the server was killed and
//! came back, the control connection or the data connections were lost.
//!
//! GODWIT_OUTAGE_SECONDS says how long the network is down; `make outages` has three
//! minutes. Needs namespaces.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    Node, Said, Scratch, arrived, assert_same,
    wan::{FAR, Wan},
};
use serde_json::Value;
use std::{
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A file on its way over a line of 100 Mbit/s.
struct Way {
    node: Node,
    wan: Wan,
    source: PathBuf,
    target: PathBuf,
    _scratch: Scratch, // until all others are gone
}

#[derive(Clone, Copy)]
enum To {
    Here,
    There,
}

impl Way {
    fn new(to: To) -> Option<Way> {
        let scratch = Scratch::new();
        let wan = Wan::up(scratch.path(), &["--rtt", "20ms", "--rate", "100mbit"])?;
        let (from, into) = (scratch.dir("from"), scratch.dir("into"));
        let export = match to {
            To::Here => &from,
            To::There => &into,
        };
        let node = wan.node(export, None);
        Some(Way {
            source: scratch.file("from/f", SIZE),
            target: into.join("f"),
            _scratch: scratch,
            wan,
            node,
        })
    }

    fn begin(&self, to: To) -> Child {
        let url = format!("ftp://{FAR}/f");
        let mut command = self.wan.godwit("a", None);
        command.args(["cp", "--json", "--progress", "none"]);
        // A short outage is to be noticed; with a long one, as by default.
        if outage() < Duration::from_secs(60) {
            command.args(["--stall-timeout", "2s"]);
        }
        match to {
            To::Here => command.arg(url).arg(&self.target),
            To::There => command.arg(&self.source).arg(url),
        };
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        piped.spawn().unwrap()
    }

    /// Waits until some of it has arrived.
    fn under_way(&self) {
        let until = Instant::now() + Duration::from_secs(60);
        while arrived(self.target.parent().unwrap()) < SIZE as u64 / 4 {
            assert!(Instant::now() < until, "nothing arrives");
            assert!(
                !self.target.exists(),
                "it was over before anything happened"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end, which must be a success.
    fn ends(&self, child: Child) -> Value {
        let output = child.wait_with_output().unwrap();
        let said = Said {
            status: output.status.code(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            stdout: output.stdout,
        }
        .ok();
        assert_same(&self.source, &self.target);
        let objects = String::from_utf8_lossy(&said.stdout).into_owned();
        let lines = objects.lines().chain(said.stderr.lines());
        let parsed = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        parsed
            .rev()
            .find(|object| object["event"] == "summary")
            .unwrap_or_else(|| panic!("no summary: {said}"))
    }
}

/// How long the network is down.
fn outage() -> Duration {
    let asked = std::env::var("GODWIT_OUTAGE_SECONDS").ok();
    let seconds = asked.and_then(|text| text.parse().ok()).unwrap_or(5);
    Duration::from_secs(seconds)
}

/// Runs an act during a transfer, in each direction.
fn goes_on(happens: impl Fn(&mut Way)) {
    for to in [To::Here, To::There] {
        let Some(mut way) = Way::new(to) else { return };
        let child = way.begin(to);
        way.under_way();
        happens(&mut way);
        let summary = way.ends(child);
        assert_eq!(summary["files"], 1, "{summary}");
        assert!(
            summary["faults"].as_u64() > Some(0),
            "no outage was noticed: {summary}"
        );
    }
}

#[test] //= GRIDFTP-46
fn network_outage_is_waited_for() {
    goes_on(|way| {
        way.wan.tell("down");
        thread::sleep(outage()); // the outage itself
        way.wan.tell("up");
    });
}

#[test] //= GRIDFTP-46
fn transfer_survives_server_restart() {
    goes_on(|way| {
        let export = way.node.export.clone();
        way.node.kill();
        way.node = way.wan.node(&export, None);
    });
}

#[test] //= GRIDFTP-46
fn lost_control_connection_is_renewed() {
    goes_on(|way| way.wan.cut(true));
}

#[test] //= GRIDFTP-46
fn lost_data_connections_are_renewed() {
    goes_on(|way| way.wan.cut(false));
}

const SIZE: usize = 32 << 20;
