//! A node that is stopped during an upload through its door.
#![allow(clippy::unwrap_used)]

mod common;

use common::{PATIENCE, Served, asking::Asking};
use godwit_core::Block;
use godwit_store::{Expected, RemoteOptions, Sink, Store, Write, channel::Cancel, door::Door};
use godwit_trust::{Credential, Peer};
use std::{
    net::SocketAddr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Returns a node, and the address of its door.
fn node(settings: &[(&'static str, &str)]) -> (Served, SocketAddr) {
    let mut all = vec![("https.listen", "127.0.0.1:0")];
    all.extend(settings);
    let served = Served::with(&all);
    let at = served.node().addresses().https[0];
    (served, at)
}

/// Starts a node with these limits in seconds, for silent transfers and for all.
fn patient(stall: &str, grace: &str) -> (Served, SocketAddr) {
    node(&[
        ("limits.stall_seconds", stall),
        ("limits.grace_seconds", grace),
    ])
}

fn door(at: SocketAddr) -> Door {
    let peer = Peer::new("lab", Asking::at(at).key(), &[at.to_string()]);
    let options = RemoteOptions::new(Cancel::new().unwrap());
    Door::of_peer(&peer, Credential::nobody(), &options).unwrap()
}

/// An upload of two pieces, of which one has landed; nothing is asked now.
fn half_sent(door: &Door) -> Box<dyn Sink> {
    let write = Write::of_size(2 * PIECE as u64);
    let sink = door.write("f".as_ref(), &write).unwrap();
    put(&*sink, 0);
    sink
}

fn put(sink: &dyn Sink, offset: u64) {
    let bytes = &[7; PIECE];
    sink.put(Block { offset, bytes }).unwrap();
    sink.settle().unwrap();
}

/// Tells how long the node takes to end from now on.
fn ending(served: Served) -> mpsc::Receiver<Duration> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let begun = Instant::now();
        let _export = served.stop();
        let _ = tell.send(begun.elapsed());
    });
    told
}

#[track_caller]
fn ends(served: Served) {
    let ended = ending(served);
    ended.recv_timeout(PATIENCE).expect("the node ends");
}

#[test]
fn an_upload_goes_on_between_its_requests() {
    let (served, at) = node(&[]);
    let (source, export) = (door(at), served.file(""));
    let sink = half_sent(&source);
    served.node().stopper().drain();
    // Each of these uses a new connection, so the node must still accept.
    for _ in 0..NEWCOMERS {
        let asked = br#"{"path":"g","how":"new","size":1,"checks":[true,false],"resume":true}"#;
        let refused = Asking::at(at).ask("POST", "/.godwit/v1/uploads", &[], asked.to_vec());
        assert_eq!(refused.status, 503, "{}", refused.refusal());
        assert_eq!(refused.refusal()["said"], "this node is stopping");
    }
    let small = Asking::at(at).ask("POST", "/.godwit/v1/write", &[], Vec::new());
    assert_eq!(small.status, 503, "{}", small.refusal());
    put(&*sink, PIECE as u64);
    let whole = Expected::of_size(2 * PIECE as u64);
    let ended = ending(served);
    sink.finish(&whole).unwrap();
    assert!(!export.join("g").exists());
    let took = ended.recv_timeout(PATIENCE).expect("the node ends");
    assert!(took < PATIENCE, "{took:?}");
}

#[test]
fn reader_of_ranges_finishes_during_stop() {
    let (served, at) = node(&[]);
    served.put("f", &[7; 2 * PIECE]);
    let read = |id: &str, ranges: &str| {
        let asked = format!(r#"{{"files":[{{"path":"f","ranges":"{ranges}"}}],"digests":true}}"#);
        let id = [("godwit-request", id)];
        let answer = Asking::at(at).ask("POST", "/.godwit/v1/read", &id, asked.into_bytes());
        answer.status
    };
    assert_eq!(read("one", &format!("0-{PIECE}")), 200);
    served.node().stopper().drain();
    assert_eq!(read("other", &format!("0-{PIECE}")), 503);
    assert_eq!(read("one", &format!("{PIECE}-{}", 2 * PIECE)), 200);
    ends(served);
}

#[test]
fn stop_ignores_upload_of_gone_writer() {
    let (served, at) = patient("3600", "3600");
    let asked = br#"{"path":"f","how":"new","size":9,"checks":[true,false],"resume":true}"#;
    let begun = Asking::at(at).ask("POST", "/.godwit/v1/uploads", &[], asked.to_vec());
    assert_eq!(begun.status, 200);
    ends(served);
}

#[test]
fn stop_ignores_silent_upload() {
    let (served, at) = patient("1", "3600");
    let door = door(at);
    let _sink = half_sent(&door);
    ends(served);
}

#[test]
fn stop_waits_for_upload_within_grace() {
    let (served, at) = patient("3600", "1");
    let door = door(at);
    let _sink = half_sent(&door);
    ends(served);
}

#[test]
fn a_second_word_ends_uploads_too() {
    let (served, at) = patient("3600", "3600");
    let (door, stop) = (door(at), served.node().stopper());
    let _sink = half_sent(&door);
    let ended = ending(served);
    stop.at_once();
    ended.recv_timeout(PATIENCE).expect("the node ends");
}

#[test]
fn stop_ignores_abandoned_upload() {
    let (served, at) = patient("3600", "3600");
    let door = door(at);
    let sink = half_sent(&door);
    served.node().stopper().drain();
    sink.abandon().unwrap();
    ends(served);
}

const PIECE: usize = 1 << 20;
/// Longer than it takes to hear that the node stops.
const NEWCOMERS: usize = 50;
