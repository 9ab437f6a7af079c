//! Crowds at a door: more clients than it has places for, each of them slow. A well-behaved client is answered within a
//! second, and the surplus gets 503.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    PATIENCE, Served, bound_to,
    lab::Lab,
    raw::{Raw, context},
};
use godwit_trust::{Credential, lab::Issue};
use openssl::ssl::SslContext;
use rustix::net::sockopt;
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::SocketAddr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

struct Door {
    lab: Lab,
    served: Served,
}

impl Door {
    fn at(&self) -> SocketAddr {
        self.served.node().addresses().https[0]
    }

    fn raw(&self) -> Raw {
        Raw::new(self.at())
    }
}

/// Begins an upload; returns its name.
fn upload(raw: &mut Raw, path: &str) -> String {
    let asked =
        format!("{{\"path\":\"{path}\",\"how\":\"new\",\"checks\":[true,false],\"resume\":true}}");
    let said = raw.call("uploads", asked).text();
    let id = said.split("\"id\":\"").nth(1).unwrap();
    id.split('"').next().unwrap().to_owned()
}

/// A door with a peer that it knows, and what the peer has.
fn door_of_alice() -> (Door, Credential) {
    let lab = Lab::new();
    let gridmap = lab.path("gridmap");
    let names = "\"/O=Lab/CN=alice\" alice\n\"/O=Lab/CN=bob\" bob\n";
    std::fs::write(&gridmap, names).unwrap();
    let gridmap = gridmap.display().to_string();
    let served = lab.node(&[("anonymous.access", "write"), ("trust.gridmap", &gridmap)]);
    served.put("f", b"here");
    let alice = lab.ca.issue(&Issue::user("alice")).unwrap();
    (Door { lab, served }, alice)
}

/// A well-behaved client is answered within a second, whatever the crowd does.
fn must_serve_at_once(door: &Door, alice: &Credential) {
    must_serve_peer_at_once(door, alice);
    let begun = Instant::now();
    let elsewhere = bound_to("127.0.0.2:0", door.at());
    elsewhere.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut other = Raw::over(elsewhere, &context(None));
    assert_eq!(other.ask("GET /f", "").body, b"here");
    waited("another address", begun);
}

/// A known peer and a question of health are answered within a second.
fn must_serve_peer_at_once(door: &Door, peer: &Credential) {
    let begun = Instant::now();
    let said = door.raw().ask("GET /healthz", "");
    assert_eq!((said.status, &*said.body), (200, &b"ok\n"[..]));
    waited("/healthz", begun);
    let begun = Instant::now();
    let mut peer = Raw::of(door.at(), &door.lab, peer);
    assert_eq!(peer.ask("GET /f", "").body, b"here");
    waited("a peer", begun);
}

fn waited(who: &str, begun: Instant) {
    let waited = begun.elapsed();
    println!("{who} waited {} ms", waited.as_millis());
    assert!(waited < Duration::from_secs(1), "{who} waited {waited:?}");
}

/// Sends one request on 530 connections; returns how many were told each status, and the connections.
fn crowd(door: &Door, request: &str) -> (HashMap<u16, usize>, Vec<Raw>) {
    crowd_of(door, &context(None), request)
}

/// As [`crowd`], for clients that show what `context` has.
fn crowd_of(door: &Door, context: &SslContext, request: &str) -> (HashMap<u16, usize>, Vec<Raw>) {
    let mut crowd: Vec<Raw> = (0..530).map(|_| Raw::with(door.at(), context)).collect();
    // As much as a slow way holds; else loopback takes megabytes of each answer at once.
    for raw in &crowd {
        sockopt::set_socket_recv_buffer_size(raw.tls.get_ref(), 64 << 10).unwrap();
    }
    // The door closes the oldest of many idle connections.
    crowd
        .iter_mut()
        .for_each(|raw| drop(raw.tls.write_all(request.as_bytes())));
    let mut told = HashMap::new();
    // The newest connections are answered first.
    for raw in crowd.iter_mut().rev() {
        let pause = Duration::from_millis(if told.is_empty() { 3000 } else { 20 });
        raw.tls.get_ref().set_read_timeout(Some(pause)).unwrap();
        let mut head = [0; 12];
        if raw.tls.read_exact(&mut head).is_ok() {
            let status = std::str::from_utf8(&head[9..]).unwrap().parse().unwrap();
            *told.entry(status).or_default() += 1;
        }
    }
    println!("{request:.40}: {told:?}");
    (told, crowd)
}

#[test]
fn half_sent_calls_keep_nobody_waiting() {
    let (door, alice) = door_of_alice();
    let half = |call: &str| {
        format!("POST /.godwit/v1/{call} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{{")
    };
    let (told, _joining) = crowd(&door, &half("join"));
    must_serve_at_once(&door, &alice);
    assert!(told[&403] >= 500 && told.len() == 1, "{told:?}");
    let (told, _asking) = crowd(&door, &half("stat"));
    must_serve_at_once(&door, &alice);
    assert!(told[&503] >= 300, "{told:?}");
}

#[test]
fn slow_readers_keep_nobody_waiting() {
    let (door, alice) = door_of_alice();
    let large = std::fs::File::create(door.served.file("large")).unwrap();
    large.set_len(64 << 20).unwrap();
    let (told, _slow) = crowd(&door, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    must_serve_at_once(&door, &alice);
    assert!(told[&200] >= 64 && told[&503] >= 300, "{told:?}");
}

/// Every reader with a place takes 64 KB a second; one thread reads for all of them.
#[test]
fn paced_readers_keep_nobody_waiting() {
    let (door, alice) = door_of_alice();
    let bob = door.lab.ca.issue(&Issue::user("bob")).unwrap();
    let large = std::fs::File::create(door.served.file("large")).unwrap();
    large.set_len(64 << 20).unwrap();
    let request = "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
    let (strangers, mut slow) = crowd(&door, request);
    assert!(strangers[&200] >= 64, "{strangers:?}");
    let (peers, more) = crowd_of(&door, &context(Some((&door.lab, &bob))), request);
    assert!(peers[&200] >= 64, "{peers:?}");
    slow.extend(more);
    let (begun, taking) = mpsc::channel();
    let takes = thread::scope(|scope| {
        let taking_all = scope.spawn(|| take_slowly(&mut slow, &begun));
        taking.recv().unwrap(); // every reader has taken once
        while !taking_all.is_finished() {
            must_serve_peer_at_once(&door, &alice);
        }
        taking_all.join().unwrap()
    });
    let served = takes.iter().filter(|&&bytes| bytes > 64 << 10).count();
    println!(
        "{served} readers took {} bytes",
        takes.iter().sum::<usize>()
    );
    assert!(served >= strangers[&200] + peers[&200], "{served}");
}

/// Takes 16 KB of each answer every quarter of a second, for four seconds; returns how much of each.
fn take_slowly(slow: &mut [Raw], begun: &mpsc::Sender<()>) -> Vec<usize> {
    let mut takes = vec![0; slow.len()];
    for raw in &mut *slow {
        raw.tls.get_ref().set_nonblocking(true).unwrap();
    }
    for _ in 0..16 {
        let round = Instant::now();
        for (raw, taken) in slow.iter_mut().zip(&mut takes) {
            *taken += raw.tls.read(&mut [0; 16 << 10]).unwrap_or(0);
        }
        let _ = begun.send(());
        thread::sleep(Duration::from_millis(250).saturating_sub(round.elapsed()));
    }
    takes
}

/// Strangers and one known peer send heads of uploads and packs, and no more; another peer is answered.
#[test]
fn half_sent_uploads_keep_nobody_waiting() {
    let (door, alice) = door_of_alice();
    let bob = door.lab.ca.issue(&Issue::user("bob")).unwrap();
    let shown = context(Some((&door.lab, &bob)));
    let half = |id: &str| {
        format!(
            "PUT /.godwit/v1/uploads/{id}/slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\nContent-Range: bytes 0-99999/*\r\n\r\nx"
        )
    };
    let id = upload(&mut door.raw(), "slow");
    let (told, strangers) = crowd(&door, &half(&id));
    must_serve_at_once(&door, &alice);
    assert!(told[&503] >= 300, "{told:?}");
    let pack = "POST /.godwit/v1/write HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nF";
    let (told, packers) = crowd_of(&door, &shown, pack);
    must_serve_peer_at_once(&door, &alice);
    assert!(told[&503] >= 100, "{told:?}");
    drop((strangers, packers));
    let mut raw = Raw::with(door.at(), &shown);
    let id = upload(&mut raw, "hers");
    let (told, _peers) = crowd_of(&door, &shown, &half(&id).replace("/slow ", "/hers "));
    must_serve_peer_at_once(&door, &alice);
    assert!(told[&503] >= 100, "{told:?}");
}
