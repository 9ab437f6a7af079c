//! Writers append through the door of a node that is killed under them, again and again.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Scratch, keyed};
use godwit_store::{RemoteOptions, SmallWrite, StoreExt, WriteMode, channel::Cancel, door::Door};
use godwit_trust::{Credential, Peer};
use std::{
    fs,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

fn line(writer: u64, seq: u64) -> String {
    format!("{writer} {seq} {}\n", "x".repeat(4_000))
}

#[test] //= GASS-18 delivery#appends
fn appends_to_killed_node_arrive_once() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 60;
    const KILLS: u64 = 10;
    let scratch = Scratch::new();
    let key = keyed::prepare(&scratch);
    let (mut node, port) = keyed::serve(&scratch, 0, None);
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
                        let mut next = Some(SmallWrite {
                            path: "log".into(),
                            bytes: line(writer, seq).into(),
                            how: WriteMode::Append { writer, seq },
                            mtime: None,
                            mode: None,
                        });
                        let mut done = None;
                        let heard = door.write_small(&mut || next.take(), &mut |_, finished| {
                            done = Some(finished);
                        });
                        // A refused record stays refused; a lost one is sent again.
                        match (heard, done) {
                            (Ok(()), Some(finished)) => break drop(finished.unwrap()),
                            (lost, _) => assert!(Instant::now() < patience, "{lost:?}"),
                        }
                    }
                    told.send(()).unwrap();
                }
            });
        }
        // The node dies after so many more records were reported.
        for _ in 0..KILLS {
            for _ in 0..WRITERS * EACH / (KILLS + 1) {
                appended.recv().unwrap();
            }
            node.kill().unwrap();
            node.wait().unwrap();
            node = keyed::serve(&scratch, port, None).0;
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
