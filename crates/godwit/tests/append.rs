//! Writers append through the door of a node that is killed under them, again and again.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Scratch, godwit};
use godwit_store::{Given, How, RemoteOptions, Store, channel::Cancel, door::Door};
use godwit_trust::{Credential, Home, Peer, door::Fingerprint};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Starts a node with its own key and no other; returns it and its port.
fn serve(scratch: &Scratch, port: u16) -> (Child, u16) {
    let (export, state) = (scratch.join("export"), scratch.join("state"));
    let mut child = godwit()
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

fn line(writer: u64, seq: u64) -> String {
    format!("{writer} {seq} {}\n", "x".repeat(4_000))
}

#[test]
fn what_is_appended_to_a_node_that_is_killed_is_there_once() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 60;
    const KILLS: u64 = 10;
    let scratch = Scratch::new();
    for made in ["export", "state"] {
        fs::create_dir_all(scratch.join(made)).unwrap();
    }
    let key = Home::at(&scratch.join("state")).key_or_new().unwrap();
    let key = Fingerprint::of_credential(&key).unwrap();
    let (mut node, port) = serve(&scratch, 0);
    let peer = Peer::new("node", key, &[format!("127.0.0.1:{port}")]);
    let (told, appended) = mpsc::channel();
    thread::scope(|scope| {
        for writer in 1..=WRITERS {
            let (peer, told) = (&peer, told.clone());
            scope.spawn(move || {
                let options = RemoteOptions::new(Cancel::new().unwrap());
                let door = Door::of_peer(peer, Credential::nobody(), &options).unwrap();
                for seq in 1..=EACH {
                    let patience = Instant::now() + Duration::from_secs(60);
                    loop {
                        let mut next = Some(Given {
                            path: "log".into(),
                            bytes: line(writer, seq).into(),
                            how: How::Append { writer, seq },
                            mtime: None,
                            mode: None,
                        });
                        let mut done = None;
                        let heard = door.write_small(&mut || next.take(), &mut |_, finished| {
                            done = Some(finished);
                        });
                        // What was refused would be refused again; what was lost is asked again.
                        match (heard, done) {
                            (Ok(()), Some(finished)) => break drop(finished.unwrap()),
                            (lost, _) => assert!(Instant::now() < patience, "{lost:?}"),
                        }
                    }
                    told.send(()).unwrap();
                }
            });
        }
        // The node dies when so many more were told to be there, whatever it does then.
        for _ in 0..KILLS {
            for _ in 0..WRITERS * EACH / (KILLS + 1) {
                appended.recv().unwrap();
            }
            node.kill().unwrap();
            node.wait().unwrap();
            node = serve(&scratch, port).0;
        }
    });
    node.kill().unwrap();
    node.wait().unwrap();
    let all = fs::read_to_string(scratch.join("export/log")).unwrap();
    let mut next = [1; 1 + WRITERS as usize];
    for found in all.split_inclusive('\n') {
        let writer: usize = found.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(found, line(writer as u64, next[writer]));
        next[writer] += 1;
    }
    assert_eq!(next[1..], [EACH + 1; WRITERS as usize]);
}
