//! Bounded runs of the `cargo fuzz` targets, and of whole contexts with a peer that sends broken
//! messages. `GODWIT_HOSTILE_ROUNDS` sets the rounds.

use super::*;
use crate::NewProxy;
use std::{env, fs, sync::LazyLock};

struct World {
    _dir: tempfile::TempDir,
    authorities: Authorities,
    alice: Credential,
    pem: Vec<u8>,
    policy: Vec<u8>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let key = KeyKind::Elliptic;
    let ca = Ca::init(dir.path(), "/O=Lab/CN=CA", Duration::from_secs(86_400), key).unwrap();
    let owner = ca
        .issue(&Issue {
            key,
            ..Issue::host(&["localhost"])
        })
        .unwrap();
    let alice = owner
        .proxy(&NewProxy {
            key,
            ..NewProxy::default()
        })
        .unwrap();
    World {
        authorities: Authorities::in_dir(&ca.certificates()).unwrap(),
        pem: alice.to_pem().unwrap(),
        policy: fs::read(
            ca.certificates()
                .join(format!("{}.signing_policy", ca.hash())),
        )
        .unwrap(),
        alice,
        _dir: dir,
    }
});

#[test]
fn no_file_and_no_certificate_panics() {
    let leaf = WORLD.alice.leaf().unwrap().to_der().unwrap();
    let asked = request_of(&WORLD.alice);
    let map = b"\"/O=Lab/CN=a \\\"b\\x41\" alice,bob # me\n/CN=c d\n".to_vec();
    let rules = b"[[rule]]\nwho = [\"anyone\"]\nmay = \"all\"\nunder = \"/a/*\"\n".to_vec();
    let token =
        b"\x60\x81\x90\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00alice@LAB".to_vec();
    let principal = b"alice/admin@LAB".to_vec();
    let frames = b"\0\0\0\x03abc\0\0\0\0".to_vec();
    for (take, seed) in [
        (policy as fn(&[u8]), &WORLD.policy),
        (mapfile, &map),
        (rights, &rules),
        (elements, &leaf),
        (certificate, &leaf),
        (request, &asked),
        (credential, &WORLD.pem),
        (ticket, &token),
        (ticket, &principal),
        (ticket, &frames),
    ] {
        take(seed);
        for round in 0..rounds(2000) {
            take(&Noise(round).spoil(seed));
        }
    }
}

#[test]
fn hostile_tokens_admit_no_stranger() {
    for round in 0..rounds(400) {
        let mut noise = Noise(round);
        let spoilt_at = noise.below(7);
        let (mut client, mut token) = initiate();
        let mut server = Channel::accept(&WORLD.alice, &WORLD.authorities).unwrap();
        for step in 0.. {
            if step == spoilt_at {
                token = noise.spoil(&token);
            }
            // They speak in turn, the client first.
            let (hearer, is_server) = match step % 2 {
                0 => (&mut server, true),
                _ => (&mut client, false),
            };
            let Ok(answer) = hearer.step(&token) else {
                break;
            };
            if answer.done && is_server {
                assert_eq!(hearer.peer().unwrap().subject(), "/O=Lab/CN=localhost");
            }
            match answer.token {
                Some(next) => token = next,
                None => break,
            }
        }
    }
}

#[test]
fn known_peer_gains_nothing_by_hostile_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let pair = FeedPair::in_dir(dir.path()).unwrap();
    assert!(pair.delegation(&[0, b'D']) && pair.delegation(&[200, 1]));
    assert!(!pair.delegation(&[0, b'D', 0, 99, 0, 1]) && !pair.delegation(&[200, 2]));
    pair.tokens(&[7]);
    pair.records(&[9, 20]);
    for round in 0..rounds(150) {
        let mut noise = Noise(round);
        let length = 2 + noise.below(20);
        let bytes: Vec<u8> = (0..length).map(|_| noise.next() as u8).collect();
        pair.tokens(&bytes);
        pair.delegation(&bytes);
        pair.records(&bytes);
    }
}

#[test]
fn a_spoilt_message_is_never_read() {
    let (mut client, mut token) = initiate();
    let mut server = Channel::accept(&WORLD.alice, &WORLD.authorities).unwrap();
    while let Some(reply) = server.step(&token).unwrap().token {
        token = client.step(&reply).unwrap().token.unwrap();
    }
    let clear = b"STOR /run7\r\n";
    let good = client.wrap(clear).unwrap();
    let bad = Noise(3).spoil(&good);
    assert_ne!(bad, good);
    assert_ne!(server.unwrap(&bad).ok().as_deref(), Some(&clear[..]));
}

fn initiate() -> (Channel, Vec<u8>) {
    let world = &*WORLD;
    Channel::initiate(
        &world.alice,
        &world.authorities,
        Expect::Anyone,
        Delegate::Limited,
    )
    .unwrap()
}

fn rounds(usual: u64) -> u64 {
    let asked = env::var("GODWIT_HOSTILE_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Numbers that look random and are the same each time (splitmix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Returns a broken version: bits turned, bytes lost, doubled or put in.
    fn spoil(&mut self, good: &[u8]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(12)).min(bytes.len());
            match self.below(5) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                3 => bytes.truncate(at),
                _ => bytes.insert(at, self.next() as u8),
            }
        }
        bytes
    }
}
