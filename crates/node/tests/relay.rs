//! A node that only makes connections, reached through another one.
#![allow(clippy::unwrap_used)]

mod common;

use common::{PATIENCE, Scratch, Served, until};
use godwit_core::{Algorithm, Digest, Extents, Fault};
use godwit_store::{
    Error, Expected, RemoteOptions, SinkExt, Store, Write, channel::Cancel, check, door::Door,
};
use godwit_trust::{
    Authorities, Credential, Peer, PeersDir,
    door::{self, Fingerprint, WantedHost},
    lab,
};
use std::{
    io::{Read, Write as _},
    net::{Shutdown, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    pin::Pin,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
    time::timeout,
};
use tokio_openssl::SslStream;

/// A node or client with a key of its own.
struct KeyHolder {
    scratch: Scratch,
    key: Credential,
}

impl KeyHolder {
    fn new() -> Self {
        let scratch = Scratch::new();
        let key = PeersDir::at(&scratch.path().join("state")).key_or_new();
        Self {
            key: key.unwrap(),
            scratch,
        }
    }

    fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    fn home(&self) -> PeersDir {
        PeersDir::at(&self.state())
    }

    fn print(&self) -> Fingerprint {
        Fingerprint::of_credential(&self.key).unwrap()
    }

    fn peer(&self, name: &str, at: &[SocketAddr]) -> Peer {
        let addresses: Vec<_> = at.iter().map(ToString::to_string).collect();
        Peer::new(name, self.print(), &addresses)
    }

    fn knows(&self, name: &str, other: &KeyHolder, at: &[SocketAddr]) {
        self.home().add(&other.peer(name, at)).unwrap();
    }

    fn serves(&self, settings: &[(&'static str, &str)]) -> Served {
        let state = self.state().display().to_string();
        let mut all = vec![("node.state", &*state), ("anonymous.access", "none")];
        all.extend(settings);
        Served::with(&all)
    }
}

fn at(served: &Served) -> SocketAddr {
    served.node().addresses().https[0]
}

/// A relay, a node that is reached through it, and who wants to go there.
struct Scene {
    hidden: Served,
    relay: Served,
    of_hidden: KeyHolder,
    of_relay: KeyHolder,
    visitor: KeyHolder,
}

impl Scene {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(settings: &[(&'static str, &str)]) -> Self {
        let (of_hidden, of_relay, visitor) = (KeyHolder::new(), KeyHolder::new(), KeyHolder::new());
        of_relay.knows("hidden", &of_hidden, &[]);
        of_hidden.knows("visitor", &visitor, &[]);
        let mut all = vec![("https.listen", "127.0.0.1:0")];
        all.extend(settings);
        let relay = of_relay.serves(&all);
        of_hidden.knows("relay", &of_relay, &[at(&relay)]);
        let mut all = vec![("node.via", "relay")];
        all.extend(settings);
        let scene = Self {
            hidden: of_hidden.serves(&all),
            relay,
            of_hidden,
            of_relay,
            visitor,
        };
        scene.parked();
        scene
    }

    /// Waits until visitors can be passed on.
    fn parked(&self) {
        until("being reached", || self.door().can().is_ok());
    }

    fn door(&self) -> Door {
        self.door_of(&self.of_hidden)
    }

    /// Returns the door of a node behind the relay.
    fn door_of(&self, other: &KeyHolder) -> Door {
        let peer = other.peer("hidden", &[at(&self.relay)]);
        let options = RemoteOptions::new(Cancel::new().unwrap());
        Door::of_peer(&peer, self.visitor.key.clone(), &options).unwrap()
    }

    /// Returns what the relay counts under that name.
    fn counted(&self, name: &str) -> u64 {
        count(&self.wild().get("/metrics"), name)
    }

    /// Returns a client that the relay does not know.
    fn wild(&self) -> Raw {
        let nobody = Credential::nobody();
        Raw::to(at(&self.relay), &nobody, self.of_relay.print())
    }
}

fn count(metrics: &str, name: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {metrics}"))
}

/// A connection to a door of which every byte is ours.
struct Raw {
    runtime: Runtime,
    stream: SslStream<TcpStream>,
}

impl Raw {
    fn to(at: SocketAddr, who: &Credential, pin: Fingerprint) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let wanted = WantedHost::Key(pin);
        let stream = runtime.block_on(async {
            let socket = TcpStream::connect(at).await.unwrap();
            let ssl = door::visit(who, &wanted, "relay").unwrap();
            let mut stream = SslStream::new(ssl, socket).unwrap();
            Pin::new(&mut stream).connect().await.unwrap();
            stream
        });
        door::met(stream.ssl(), &wanted, &Authorities::none(), who).unwrap();
        Self { runtime, stream }
    }

    fn say(&mut self, text: &[u8]) {
        let said = self.stream.write_all(text);
        self.runtime.block_on(said).unwrap();
    }

    /// Reads until `end`; returns all bytes read.
    fn until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        self.runtime.block_on(async {
            while !all.ends_with(end) {
                let byte = timeout(PATIENCE, self.stream.read_u8()).await;
                let byte = byte.unwrap_or_else(|_| panic!("only {:?}", text(&all)));
                all.push(byte.unwrap_or_else(|error| panic!("{error} after {}", text(&all))));
            }
        });
        all
    }

    /// Reads to the end, which may be rude.
    fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let read = async { timeout(PATIENCE, self.stream.read_to_end(&mut all)).await };
        let _ = self.runtime.block_on(read).expect("it ends");
        all
    }

    fn get(mut self, path: &str) -> String {
        self.say(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes());
        text(&self.rest())
    }

    /// Asks to be passed visitors.
    fn park(&mut self) -> String {
        self.say(
            b"POST /.godwit/v1/park HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\
              Connection: upgrade\r\nUpgrade: godwit-park\r\n\r\n",
        );
        text(&self.until(b"\r\n\r\n"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the first TLS message of a client that wants that key.
fn hello(pin: Fingerprint) -> Vec<u8> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let ssl = door::visit(&Credential::nobody(), &WantedHost::Key(pin), "x").unwrap();
        let mut stream = SslStream::new(ssl, ours).unwrap();
        let _ = timeout(Duration::from_millis(1), Pin::new(&mut stream).connect()).await;
        let mut said = vec![0; 1 << 16];
        let read = theirs.read(&mut said).await.unwrap();
        said.truncate(read);
        said
    })
}

#[test]
fn node_behind_relay_passes_store_suite() {
    let mut failed = Vec::new();
    for (name, check) in check::CHECKS {
        let scene = Scene::new();
        assert!(scene.hidden.node().addresses().https.is_empty());
        let store = scene.door();
        let mut can = store.can().unwrap();
        if !name.starts_with("digests of files") {
            can.digests.retain(|by| *by == Algorithm::Blake3);
        }
        let kept = catch_unwind(AssertUnwindSafe(|| check(&store, &can)));
        if kept.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "not kept: {failed:#?}");
}

#[test]
fn parked_nodes_get_their_own_visitors() {
    let scene = Scene::new();
    let other = KeyHolder::new();
    scene.of_relay.knows("other", &other, &[]);
    other.knows("relay", &scene.of_relay, &[at(&scene.relay)]);
    other.knows("visitor", &scene.visitor, &[]);
    let second = other.serves(&[("node.via", "relay")]);
    until("the second being reached", || {
        scene.door_of(&other).can().is_ok()
    });
    scene.hidden.put("f", b"one");
    second.put("f", b"the other");
    scene.relay.put("f", b"neither of them");
    let size = |door: Door| door.stat("f".as_ref()).unwrap().size;
    for _ in 0..3 {
        assert_eq!(size(scene.door()), 3);
        assert_eq!(size(scene.door_of(&other)), 9);
    }
}

#[test]
fn absent_node_is_away_until_it_returns() {
    let Scene {
        hidden,
        relay,
        of_hidden,
        of_relay,
        visitor,
    } = Scene::new();
    hidden.stop();
    let peer = of_hidden.peer("hidden", &[at(&relay)]);
    let options = RemoteOptions::new(Cancel::new().unwrap());
    let door = |peer: &Peer| Door::of_peer(peer, visitor.key.clone(), &options).unwrap();
    let away = door(&peer).can().unwrap_err();
    let wanted = format!(
        "hidden: not connected to {} at the moment, or {0} does not know it",
        at(&relay)
    );
    assert_eq!(away.to_string(), wanted);
    assert!(matches!(away, Error::Away { .. }));
    assert_eq!((away.fault(), away.exit_code()), (Fault::Passing, 5));
    assert!(away.hint().unwrap().contains("--via"), "{away:?}");
    // Where two lead, the one that knows the way is found.
    let again = of_hidden.serves(&[("node.via", "relay")]);
    let (stranger, _there) = (KeyHolder::new(), ());
    let wrong = stranger.serves(&[("https.listen", "127.0.0.1:0")]);
    let both = of_hidden.peer("hidden", &[at(&wrong), at(&relay)]);
    until("coming back", || door(&both).can().is_ok());
    drop((again, of_relay));
}

#[test]
fn nodes_draw_from_those_that_are_hidden() {
    let (scene, bytes) = (Scene::new(), common::bytes(5_000_000));
    scene.hidden.put("f", &bytes);
    // One that is reached straight, and one behind the same relay.
    let (open, behind) = (KeyHolder::new(), KeyHolder::new());
    open.knows("visitor", &scene.visitor, &[]);
    behind.knows("visitor", &scene.visitor, &[]);
    behind.knows("relay", &scene.of_relay, &[at(&scene.relay)]);
    scene.of_relay.knows("behind", &behind, &[]);
    let straight = open.serves(&[("https.listen", "127.0.0.1:0")]);
    let through = behind.serves(&[("node.via", "relay")]);
    until("being reached", || scene.door_of(&behind).can().is_ok());
    let options = RemoteOptions::new(Cancel::new().unwrap());
    let peer = open.peer("open", &[at(&straight)]);
    let to_open = Door::of_peer(&peer, scene.visitor.key.clone(), &options).unwrap();
    for (target, served) in [(to_open, &straight), (scene.door_of(&behind), &through)] {
        let size = Some(bytes.len() as u64);
        let write = Write {
            size,
            ..Write::default()
        };
        let sink = target.write("g".as_ref(), &write).unwrap();
        let want = Extents::from(0..bytes.len() as u64);
        let drawn = sink.draw(&scene.door(), "f".as_ref(), &want, 4, &|_| ());
        assert!(drawn.unwrap().is_some(), "both are nodes");
        let whole = Expected {
            size,
            ..Expected::default()
        };
        let finished = sink.finish(&whole).unwrap();
        let digest = Digest::of(Algorithm::Blake3, &bytes);
        assert_eq!(finished.digests.first(), Some(&digest));
        assert_eq!(served.bytes("g"), bytes);
    }
}

#[test]
fn strangers_are_passed_nobody() {
    let scene = Scene::new();
    let stranger = lab::throw_away(Duration::from_secs(3600)).unwrap();
    for who in [stranger, Credential::nobody()] {
        let mut raw = Raw::to(at(&scene.relay), &who, scene.of_relay.print());
        let answer = raw.park();
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        let why = text(&raw.until(b"\n"));
        assert!(why.contains("must have joined"), "{why}");
    }
    // Nor may the relay park at itself, nor a client without Upgrade.
    let mut own = Raw::to(
        at(&scene.relay),
        &scene.of_relay.key,
        scene.of_relay.print(),
    );
    let answer = own.park();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let hidden = &scene.of_hidden.key;
    let mut plain = Raw::to(at(&scene.relay), hidden, scene.of_relay.print());
    plain.say(b"POST /.godwit/v1/park HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    let answer = text(&plain.until(b"\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn who_left_is_passed_nobody_any_more() {
    let scene = Scene::new();
    assert!(scene.counted("godwit_relay_parked ") > 0);
    // The file alone, as the command removes it beside the running node.
    scene.of_relay.home().remove("hidden").unwrap();
    let away = scene.door().can().unwrap_err();
    assert!(matches!(away, Error::Away { .. }), "{away}");
    // As its own word.
    let scene = Scene::new();
    let peer = scene.of_relay.peer("relay", &[at(&scene.relay)]);
    let options = RemoteOptions::new(Cancel::new().unwrap());
    let hidden = scene.of_hidden.key.clone();
    let to_relay = Door::of_peer(&peer, hidden, &options).unwrap();
    to_relay.leave().unwrap();
    until("ending what waited", || {
        scene.counted("godwit_relay_parked ") == 0
    });
    let away = scene.door().can().unwrap_err();
    assert!(matches!(away, Error::Away { .. }), "{away}");
}

#[test]
fn parking_above_limit_keeps_the_newest() {
    let scene = Scene::new();
    let parked = |_| {
        let mut raw = Raw::to(
            at(&scene.relay),
            &scene.of_hidden.key,
            scene.of_relay.print(),
        );
        let answer = raw.park();
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        raw
    };
    let mut all: Vec<Raw> = (0..50).map(parked).collect();
    until("ending the first", || {
        scene.counted("godwit_relay_parked ") <= 32
    });
    assert_eq!(text(&all[0].rest()), "");
    // A parked connection that sends anything else is closed.
    let last = all.last_mut().unwrap();
    last.say(b"taken\n");
    assert_eq!(text(&last.rest()), "");
    assert!(scene.wild().get("/healthz").ends_with("ok\n"));
}

/// Has a node that is ours take a visitor that is ours.
fn met(settings: &[(&'static str, &str)]) -> (Scene, Raw, std::net::TcpStream) {
    let mut scene = Scene::with(settings);
    let hidden = KeyHolder::new();
    scene.of_relay.knows("fake", &hidden, &[]);
    let mut node = Raw::to(at(&scene.relay), &hidden.key, scene.of_relay.print());
    let answer = node.park();
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    let mut visitor = common::data_to(at(&scene.relay));
    let said = hello(hidden.print());
    // In two parts, as a network may cut it.
    visitor.write_all(&said[..20]).unwrap();
    visitor.write_all(&said[20..]).unwrap();
    let line = text(&node.until(b"\n"));
    assert_eq!(line, format!("visitor {}\n", visitor.local_addr().unwrap()));
    let mut heard = vec![0; said.len()];
    let read = node.stream.read_exact(&mut heard);
    node.runtime.block_on(read).unwrap();
    assert_eq!(heard, said, "from its first byte");
    node.say(b"beat\ntaken\n");
    scene.of_hidden = hidden;
    (scene, node, visitor)
}

#[test]
fn ends_are_passed_on_each_by_itself() {
    let (scene, mut node, mut visitor) = met(&[]);
    visitor.write_all(b"that is all").unwrap();
    visitor.shutdown(Shutdown::Write).unwrap();
    assert_eq!(text(&node.rest()), "that is all");
    node.say(b"and the answer");
    let ended = node.stream.shutdown();
    node.runtime.block_on(ended).unwrap();
    let mut heard = Vec::new();
    visitor.read_to_end(&mut heard).unwrap();
    assert_eq!(text(&heard), "and the answer");
    until("being over", || {
        scene.counted("godwit_relay_visitors ") == 0
    });
    let metrics = scene.wild().get("/metrics");
    let there = count(&metrics, "godwit_relay_bytes_total{direction=\"in\"}");
    assert!(there >= 11, "{there}");
}

#[test]
fn disconnect_reaches_the_other_end() {
    let (_scene, mut node, visitor) = met(&[]);
    drop(visitor);
    node.rest();
    let (scene, node, mut visitor) = met(&[]);
    drop(node);
    let mut heard = Vec::new();
    let _ = visitor.read_to_end(&mut heard);
    assert_eq!(heard, b"");
    until("being over", || {
        scene.counted("godwit_relay_visitors ") == 0
    });
}

#[test]
fn relay_skips_node_that_takes_none() {
    let scene = Scene::new();
    let hidden = &scene.of_hidden;
    scene.hidden.put("f", b"here");
    // The last that was parked is asked first, and says nothing.
    let mut dead = Raw::to(at(&scene.relay), &hidden.key, scene.of_relay.print());
    dead.park();
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(|| scene.door().stat("f".as_ref()).unwrap().size);
        assert!(text(&dead.until(b"\n")).starts_with("visitor "));
        drop(dead);
        asked.join().unwrap()
    });
    assert_eq!(asked, 4);
}

#[test]
fn restarted_relay_is_found_again() {
    let mut scene = Scene::new();
    scene.hidden.put("f", b"here");
    let port = at(&scene.relay);
    let idle = scene.door();
    idle.can().unwrap();
    let listen = port.to_string();
    let old = std::mem::replace(
        &mut scene.relay,
        KeyHolder::new().serves(&[("https.listen", "127.0.0.1:0")]),
    );
    // It does not wait for parked connections, though it would wait long for a transfer.
    old.stop();
    scene.relay = scene.of_relay.serves(&[("https.listen", &listen)]);
    until("being reached again", || {
        scene.door().stat("f".as_ref()).is_ok()
    });
    assert_eq!(idle.stat("f".as_ref()).unwrap().size, 4);
}

#[test]
fn idle_relay_and_node_stop_at_once() {
    let scene = Scene::with(&[("limits.grace_seconds", "3600")]);
    let idle = scene.door();
    idle.can().unwrap();
    let (stopped, told) = std::sync::mpsc::channel();
    let Scene { hidden, relay, .. } = scene;
    std::thread::spawn(move || {
        hidden.stop();
        relay.stop();
        stopped.send(())
    });
    told.recv_timeout(PATIENCE)
        .expect("neither waits for the other");
}

#[test]
fn stopping_relay_keeps_only_active_transfers() {
    let (scene, mut node, mut visitor) = met(&[("limits.grace_seconds", "3600")]);
    let (stopped, told) = std::sync::mpsc::channel();
    let Scene { relay, hidden, .. } = scene;
    drop(hidden);
    std::thread::spawn(move || {
        relay.stop();
        stopped.send(())
    });
    // Longer than a quiet connection may last.
    for _ in 0..9 {
        visitor.write_all(b"more").unwrap();
        let mut heard = [0; 4];
        let read = node.stream.read_exact(&mut heard);
        node.runtime.block_on(read).unwrap();
        let until = told.recv_timeout(Duration::from_secs(1));
        assert!(until.is_err(), "it did not wait");
    }
    told.recv_timeout(PATIENCE).expect("nothing moves");
}

#[test]
fn mutual_relays_make_no_loop() {
    let (a, b, visitor) = (KeyHolder::new(), KeyHolder::new(), KeyHolder::new());
    a.knows("visitor", &visitor, &[]);
    b.knows("visitor", &visitor, &[]);
    a.knows("b", &b, &[]);
    let first = a.serves(&[("https.listen", "127.0.0.1:0")]);
    b.knows("a", &a, &[at(&first)]);
    let second = b.serves(&[("https.listen", "127.0.0.1:0"), ("node.via", "a")]);
    let place = at(&first).to_string();
    drop(first);
    a.knows("b", &b, &[at(&second)]);
    let first = a.serves(&[("https.listen", &place), ("node.via", "b")]);
    first.put("f", b"a");
    second.put("f", b"bb");
    let options = RemoteOptions::new(Cancel::new().unwrap());
    let door = |peer: &Peer| Door::of_peer(peer, visitor.key.clone(), &options).unwrap();
    for (who, size) in [(&a, 1), (&b, 2)] {
        for served in [&first, &second] {
            let peer = who.peer("x", &[at(served)]);
            let found = || door(&peer).stat("f".as_ref()).ok().map(|stat| stat.size);
            until("being reached", || found() == Some(size));
        }
    }
    // No node has this key, so it is away.
    let nobody = KeyHolder::new().peer("x", &[at(&first)]);
    let away = door(&nobody).can().unwrap_err();
    assert!(matches!(away, Error::Away { .. }), "{away}");
}
