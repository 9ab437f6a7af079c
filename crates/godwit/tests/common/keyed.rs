//! A node that is found by its key alone, and may be killed and come back.

use super::{Scratch, godwit};
use godwit_trust::{PeersDir, door::Fingerprint};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

/// Makes its directories; returns what its key hashes to.
pub fn prepare(scratch: &Scratch) -> Fingerprint {
    for made in ["export", "state"] {
        fs::create_dir_all(scratch.join(made)).unwrap();
    }
    let key = PeersDir::at(&scratch.join("state")).key_or_new().unwrap();
    Fingerprint::of_credential(&key).unwrap()
}

/// Starts a node with its own key and no other, which dies where `crash` says; returns it and its port.
pub fn serve(scratch: &Scratch, port: u16, crash: Option<&str>) -> (Child, u16) {
    let (export, state) = (scratch.join("export"), scratch.join("state"));
    let mut command = godwit();
    if let Some(crash) = crash {
        command.env("GODWIT_CRASH", crash);
    }
    let mut child = command
        .args([
            "node",
            "--anonymous",
            "write",
            "--json",
            "--ftp",
            "127.0.0.1:0",
        ])
        .arg("--https")
        .arg(format!("127.0.0.1:{port}"))
        .arg("--export")
        .arg(export)
        .arg("--state")
        .arg(state)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let at = ready["https"][0].as_str().unwrap();
    let port = at.rsplit(':').next().unwrap().parse().unwrap();
    (child, port)
}
