//! Connections that prove where they lead, over loopback, and those that do not.

use super::{Safety, Tls, TlsPart};
use crate::{
    BlockWriter, Error, Result,
    channel::{DataChannel, TransferMode, Watch},
};
use godwit_core::{Block, LEAF_BYTES};
use godwit_trust::{
    Authorities, Credential, Expect, KeyKind,
    lab::{Ca, Issue},
};
use godwit_wire::shield::Level;
use parking_lot::Mutex;
use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const MODES: [TransferMode; 2] = [TransferMode::Stream, TransferMode::Extended];
const LEVELS: [Level; 3] = [Level::Clear, Level::Safe, Level::Private];

struct World {
    _dir: tempfile::TempDir,
    authorities: Authorities,
    alice: Credential,
    bob: Credential,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let month = Duration::from_secs(30 * 86_400);
        let ca = Ca::init(dir.path(), "/O=Lab/CN=CA", month, KeyKind::Elliptic).unwrap();
        let issue = |name: &str| {
            let (user, key) = (Issue::user(name), KeyKind::Elliptic);
            ca.issue(&Issue { key, ..user }).unwrap()
        };
        Self {
            authorities: Authorities::in_dir(&ca.certificates()).unwrap(),
            alice: issue("alice"),
            bob: issue("bob"),
            _dir: dir,
        }
    }

    fn safety(&self, who: &Credential, level: Level) -> Option<Safety> {
        Some(Safety::Tls(Box::new(Tls {
            credential: who.clone(),
            authorities: self.authorities.clone(),
            expect: Expect::Subject("/O=Lab/CN=alice".into()),
            level,
            part: TlsPart::Peer,
        })))
    }
}

#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl BlockWriter for Kept {
    fn put(&self, block: Block<'_>) -> Result<()> {
        let (mut bytes, range) = (self.0.lock(), block.range());
        let end = bytes.len().max(range.end as usize);
        bytes.resize(end, 0);
        bytes[range.start as usize..range.end as usize].copy_from_slice(block.bytes);
        Ok(())
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn watch() -> Watch {
    Watch::new(Duration::from_secs(20)).unwrap()
}

fn send(sender: &mut DataChannel, mode: TransferMode, streams: usize, whole: &[u8]) -> Result<()> {
    let watch = watch();
    let streams = if mode == TransferMode::Stream {
        1
    } else {
        streams
    };
    sender.open(streams, &watch)?;
    let checks = crate::Checks::default();
    let sending = sender.send(mode, 0, checks, &watch);
    for (i, bytes) in whole.chunks(LEAF_BYTES as usize).enumerate() {
        let offset = i as u64 * LEAF_BYTES;
        sending.put(Block { offset, bytes })?;
    }
    sending.end().map(drop)
}

fn receive(receiver: &mut DataChannel, mode: TransferMode) -> Result<Vec<u8>> {
    let kept = Kept::default();
    receiver.receive(mode, 0, &kept, &watch())?;
    Ok(kept.0.into_inner())
}

fn pair(world: &World, level: Level) -> (DataChannel, DataChannel, SocketAddr) {
    let (mut passive, address) = DataChannel::listen(HERE, None).unwrap();
    let mut active = DataChannel::connect(vec![address]);
    passive.protect(world.safety(&world.alice, level));
    active.protect(world.safety(&world.alice, level));
    (passive, active, address)
}

#[test]
fn protected_file_arrives_whole_on_either_side() {
    let world = World::new();
    for (mode, level) in MODES.into_iter().flat_map(|m| LEVELS.map(|l| (m, l))) {
        for (size, sender_listens) in [(0, false), (3_000_001, false), (3_000_001, true)] {
            let (passive, mut active, _) = pair(&world, level);
            if sender_listens {
                let streams = if mode == TransferMode::Stream { 1 } else { 2 };
                active.open(streams, &watch()).unwrap();
            }
            let (mut sender, mut receiver) = match sender_listens {
                true => (passive, active),
                false => (active, passive),
            };
            let whole = bytes(size);
            thread::scope(|scope| {
                scope.spawn(|| send(&mut sender, mode, 2, &whole).unwrap());
                let came = receive(&mut receiver, mode).unwrap();
                assert!(came == whole, "{mode:?} {level:?} {size} {sender_listens}");
            });
        }
    }
}

#[test]
fn protected_mode_e_connections_are_reused() {
    let world = World::new();
    let (mut receiver, mut sender, _) = pair(&world, Level::Private);
    for size in [10, 2_000_000, 0, 5] {
        let whole = bytes(size);
        thread::scope(|scope| {
            scope.spawn(|| send(&mut sender, TransferMode::Extended, 2, &whole).unwrap());
            assert!(receive(&mut receiver, TransferMode::Extended).unwrap() == whole);
        });
        assert!(receiver.is_warm() && sender.is_warm());
    }
    drop(sender);
    assert!(!receiver.is_warm());
}

#[test]
fn private_bytes_are_encrypted_on_the_wire() {
    let world = World::new();
    let secret = b"the position of the whale".repeat(100);
    for (level, is_seen) in [(Level::Clear, true), (Level::Private, false)] {
        let (mut receiver, _, address) = pair(&world, level);
        let tap = TcpListener::bind((HERE, 0)).unwrap();
        let mut sender = DataChannel::connect(vec![tap.local_addr().unwrap()]);
        sender.protect(world.safety(&world.alice, level));
        let seen = thread::scope(|scope| {
            let tapped = scope.spawn(|| tap_once(&tap, address));
            scope.spawn(|| send(&mut sender, TransferMode::Stream, 1, &secret).unwrap());
            assert!(receive(&mut receiver, TransferMode::Stream).unwrap() == secret);
            drop(receiver);
            tapped.join().unwrap()
        });
        let found = seen.windows(20).any(|w| w == &secret[..20]);
        assert_eq!(found, is_seen, "{level:?}");
    }
}

/// Passes bytes on in both directions; returns those that went to `address`.
fn tap_once(tap: &TcpListener, address: SocketAddr) -> Vec<u8> {
    let (mut from, mut to) = (
        tap.accept().unwrap().0,
        TcpStream::connect(address).unwrap(),
    );
    let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
    let back = thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
    let (mut seen, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut piece) {
        seen.extend(&piece[..count]);
        to.write_all(&piece[..count]).unwrap();
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
    let _ = back.join();
    seen
}

#[test]
fn silent_or_garbled_strangers_delay_no_transfer() {
    let world = World::new();
    for mode in MODES {
        let (mut receiver, mut sender, address) = pair(&world, Level::Private);
        let silent = TcpStream::connect(address).unwrap();
        let mut rude = TcpStream::connect(address).unwrap();
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let whole = bytes(100_000);
        thread::scope(|scope| {
            scope.spawn(|| send(&mut sender, mode, 2, &whole).unwrap());
            assert!(receive(&mut receiver, mode).unwrap() == whole, "{mode:?}");
        });
        drop((silent, rude));
    }
}

#[test]
fn strangers_at_a_sender_receive_no_bytes() {
    let world = World::new();
    for (mode, level) in MODES.into_iter().flat_map(|m| LEVELS.map(|l| (m, l))) {
        let (mut sender, mut receiver, address) = pair(&world, level);
        let early = TcpStream::connect(address).unwrap();
        receiver
            .open(if mode == TransferMode::Stream { 1 } else { 3 }, &watch())
            .unwrap();
        let silent = TcpStream::connect(address).unwrap();
        let mut rude = TcpStream::connect(address).unwrap();
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let whole = bytes(3_000_001);
        thread::scope(|scope| {
            scope.spawn(|| {
                sender.open(1, &watch()).unwrap();
                assert!(sender.may_have_strangers());
                sender.dismiss_strangers(mode, &watch()).unwrap();
                assert_eq!(
                    sender.streams(),
                    if mode == TransferMode::Stream { 1 } else { 3 }
                );
                send(&mut sender, mode, 1, &whole).unwrap();
            });
            assert!(
                receive(&mut receiver, mode).unwrap() == whole,
                "{mode:?} {level:?}"
            );
        });
        for mut stranger in [early, silent, rude] {
            // The end, or an end by force; not a byte.
            assert!(matches!(stranger.read(&mut [0; 64]), Ok(0) | Err(_)));
        }
    }
}

#[test]
fn connection_to_wrong_identity_carries_no_bytes() {
    let world = World::new();
    for (mode, level) in MODES.into_iter().flat_map(|m| LEVELS.map(|l| (m, l))) {
        let (mut receiver, _, address) = pair(&world, level);
        let mut sender = DataChannel::connect(vec![address]);
        sender.protect(world.safety(&world.bob, level));
        thread::scope(|scope| {
            let began = Instant::now();
            scope.spawn(|| send(&mut sender, mode, 1, b"forged"));
            match receive(&mut receiver, mode) {
                Err(Error::Trust { cause, .. }) => {
                    let why = cause.to_string();
                    assert!(
                        why.contains("the peer is /O=Lab/CN=bob, not /O=Lab/CN=alice"),
                        "{why}"
                    );
                }
                other => panic!("{mode:?} {level:?}: {other:?}"),
            }
            // A wrong identity is no stranger by chance: the wait for another peer is short.
            assert!(began.elapsed() < Duration::from_secs(2));
        });
    }
}

#[test]
fn who_connects_to_somebody_else_says_nothing() {
    let world = World::new();
    let (mut passive, address) = DataChannel::listen(HERE, None).unwrap();
    passive.protect(world.safety(&world.bob, Level::Clear));
    let mut sender = DataChannel::connect(vec![address]);
    sender.protect(world.safety(&world.alice, Level::Clear));
    thread::scope(|scope| {
        scope.spawn(move || receive(&mut passive, TransferMode::Stream));
        let sent = send(&mut sender, TransferMode::Stream, 1, b"secret");
        assert!(matches!(sent, Err(Error::Trust { .. })), "{sent:?}");
    });
}
