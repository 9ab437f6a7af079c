//! A node gets another key, and peers that pinned the old one continue without help.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Machine, Scratch};
use godwit_trust::door::Fingerprint;
use serde_json::Value;
use std::{fs, time::Duration};

const PATIENCE: Duration = Duration::from_secs(3);

/// Returns what `peers --json`, or another list of them, says of a peer.
fn of_peer(said: &str, name: &str) -> Value {
    let mut lines = said.lines().map(|line| serde_json::from_str(line).unwrap());
    let found = lines.find(|line: &Value| line["event"] == "peer" && line["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {said}"))
}

fn knows_key_of(machine: &Machine<'_>, name: &str) -> bool {
    let said = machine.well(&["peers", "--json"]);
    of_peer(&said, name)["knows_our_key"].as_bool().unwrap()
}

/// Another node, which has joined the lab and is reached by it.
fn desk<'a>(scratch: &'a Scratch, lab: &Machine<'_>) -> Machine<'a> {
    let mut desk = Machine::new(scratch, "d");
    let at = desk.serve("desk", &scratch.dir("desk"));
    desk.well(&["join", &lab.invite(), "--name", "desk", "--address", &at]);
    desk
}

fn old_keys(machine: &Machine<'_>) -> usize {
    machine.knows().keys().unwrap().len() - 1
}

#[test]
fn peers_learn_new_key() {
    let scratch = Scratch::new();
    scratch.file("desk/g", 1000);
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    let desk = desk(&scratch, &lab);
    let before = lab.key();
    let said = lab.well(&["peers", "rotate", "--json"]);
    assert_ne!(lab.key(), before);
    assert_eq!(of_peer(&said, "desk")["knows_our_key"], true, "{said}");
    assert_eq!(of_peer(&said, "laptop")["knows_our_key"], false, "{said}");
    let known = desk.pinned("lab");
    assert_eq!((known.key, known.next), (lab.key(), None));
    assert_eq!(old_keys(&lab), 1);
    // The peer learns the new key over the old one, and then uses the new one.
    laptop.well(&["ls", "godwit://lab/"]);
    assert_eq!(laptop.pinned("lab").next, Some(lab.key()));
    laptop.well(&["ls", "godwit://lab/"]);
    assert_eq!(laptop.pinned("lab").key, lab.key());
    assert!(knows_key_of(&lab, "laptop"));
    assert_eq!(old_keys(&lab), 0);
    for machine in [&laptop, &desk] {
        assert!(machine.well(&["ls", "godwit://lab/"]).contains('f'));
    }
    assert!(lab.well(&["ls", "godwit://desk/"]).contains('g'));
    // A visitor's key is replaced the same way.
    let said = laptop.well(&["peers", "rotate", "--json"]);
    assert_eq!(of_peer(&said, "lab")["knows_our_key"], true, "{said}");
    assert_eq!(lab.pinned("laptop").key, laptop.key());
    laptop.well(&["ls", "godwit://lab/"]);
}

#[test]
fn absent_peer_learns_key_later() {
    let scratch = Scratch::new();
    let lab = Machine::lab(&scratch);
    let mut desk = desk(&scratch, &lab);
    desk.kill();
    let said = lab.well(&["peers", "rotate", "--json"]);
    assert_eq!(of_peer(&said, "desk")["was_told"], false, "{said}");
    desk.start(&[]);
    lab.well(&["ls", "godwit://desk/"]);
    lab.well(&["ls", "godwit://desk/"]);
    assert!(knows_key_of(&lab, "desk"));
    assert_eq!(desk.pinned("lab").key, lab.key());
    assert_eq!(old_keys(&lab), 0);
    // The next rotation begins with all that.
    lab.well(&["peers", "rotate"]);
    assert_eq!(desk.pinned("lab").key, lab.key());
}

#[test]
fn rotation_keeps_invites_valid() {
    let scratch = Scratch::new();
    let (lab, laptop) = (Machine::lab(&scratch), Machine::new(&scratch, "b"));
    let invite = lab.invite();
    lab.well(&["peers", "rotate"]);
    assert_eq!(old_keys(&lab), 1);
    laptop.well(&["join", &invite, "--name", "laptop"]);
    for _ in 0..3 {
        laptop.well(&["ls", "godwit://lab/"]);
    }
    assert_eq!(laptop.pinned("lab").key, lab.key());
    assert_eq!(old_keys(&lab), 0);
}

#[test]
fn only_peer_changes_its_key() {
    let scratch = Scratch::new();
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    let stranger = Machine::new(&scratch, "c");
    // An attacker who knows all but the key.
    stranger.knows().key_or_new().unwrap();
    stranger.knows().add(&laptop.pinned("lab")).unwrap();
    let before = lab.pinned("laptop");
    let said = stranger.well(&["peers", "rotate", "--json"]);
    let why = of_peer(&said, "lab")["why"].to_string();
    assert!(why.contains("does not know this machine"), "{said}");
    assert_eq!(lab.pinned("laptop"), before);
    laptop.well(&["ls", "godwit://lab/"]);
}

/// Completes what the dead process had begun, and checks the result.
fn goes_on(lab: &Machine<'_>, laptop: &Machine<'_>, point: &str) {
    let talks = || {
        let said = laptop.says(&["ls", "godwit://lab/"]);
        assert!(said.status.success(), "{point}: {said:?}\n{}", lab.log());
    };
    talks();
    let said = laptop.well(&["peers", "rotate", "--json"]);
    assert_eq!(
        of_peer(&said, "lab")["knows_our_key"],
        true,
        "{point}: {said}"
    );
    talks();
    let known = lab.pinned("laptop");
    assert_eq!((known.key, known.next), (laptop.key(), None), "{point}");
    assert_eq!(old_keys(laptop), 0, "{point}");
}

#[test]
fn killed_rotation_keeps_peers() {
    let scratch = Scratch::new();
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    for place in ["home.synced", "home.written"] {
        for nth in 1.. {
            let point = format!("{place}:{nth}");
            let mut rotate = laptop.command(&["peers", "rotate", "--anew"]);
            let died = rotate.env("GODWIT_CRASH", &point).output().unwrap();
            goes_on(&lab, &laptop, &point);
            if died.status.code().is_some() {
                assert!(nth > 4, "only {nth} points at {place}: {died:?}");
                break;
            }
        }
    }
}

#[test]
fn kill_while_told_keeps_peer() {
    let scratch = Scratch::new();
    let (mut lab, laptop) = Machine::lab_and_laptop(&scratch);
    for place in ["home.synced", "home.written"] {
        for nth in 1.. {
            let point = format!("{place}:{nth}");
            lab.kill();
            lab.start(&[("GODWIT_CRASH", &point)]);
            laptop.well(&["peers", "rotate"]);
            // A peer may see the end of the connection before the process is gone.
            let died = lab.node.as_mut().unwrap().ends_within(PATIENCE);
            lab.kill();
            lab.start(&[]);
            goes_on(&lab, &laptop, &point);
            if !died {
                assert!(nth > 2, "only {nth} points at {place}");
                break;
            }
        }
    }
}

#[test]
fn killed_key_replacement_continues() {
    let scratch = Scratch::new();
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    for nth in 1.. {
        let point = format!("home.written:{nth}");
        let mut rotate = lab.command(&["peers", "rotate", "--anew"]);
        let first = rotate.env("GODWIT_CRASH", &point).output().unwrap();
        // The visitor too is killed while it learns the key, at each of its writes.
        let mut deaths = 0;
        for _ in 0..3 {
            let mut list = laptop.command(&["ls", "godwit://lab/"]);
            let died = list.env("GODWIT_CRASH", "home.written:1").output().unwrap();
            deaths += u32::from(died.status.code().is_none());
        }
        for _ in 0..2 {
            let said = laptop.says(&["ls", "godwit://lab/"]);
            assert!(said.status.success(), "{point}: {said:?}\n{}", lab.log());
        }
        assert_eq!(laptop.pinned("lab").key, lab.key(), "{point}");
        assert_eq!(lab.knows().drop_unneeded().unwrap(), 0, "{point}");
        if first.status.code().is_some() {
            assert!(deaths > 0 && nth > 2, "{nth} points, {deaths} deaths");
            break;
        }
    }
}

#[test]
fn damaged_key_file_stops_nothing() {
    let scratch = Scratch::new();
    let (mut lab, laptop) = Machine::lab_and_laptop(&scratch);
    let file = lab.state().join("node.pem");
    let kept = fs::read(&file).unwrap();
    fs::write(&file, "no key").unwrap();
    laptop.well(&["ls", "godwit://lab/"]);
    lab.tells("cannot read the keys of this node");
    // The node does not start with a damaged key, and names the file.
    lab.kill();
    let (code, why) = lab.refused(&["node", "--ftp", "127.0.0.1:0"]);
    assert_eq!(code, 2, "{why}");
    assert!(why.contains("node.pem"), "{why}");
    fs::write(&file, kept).unwrap();
    lab.start(&[]);
    laptop.well(&["ls", "godwit://lab/"]);
}

#[test]
fn keys_need_no_clock() {
    use openssl::{asn1::Asn1Time, x509::X509};
    let scratch = Scratch::new();
    scratch.file("data/f", 1000);
    let (mut lab, laptop) = (Machine::new(&scratch, "a"), Machine::new(&scratch, "b"));
    // As if it had been made by a clock that was two hours ahead, or was over two hours ago.
    let hours = |machine: &Machine<'_>, from: i64, to: i64| {
        let key = openssl::pkey::PKey::ec_gen("prime256v1").unwrap();
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        let mut made = X509::builder().unwrap();
        let at = |hours: i64| Asn1Time::from_unix(now + hours * 3600).unwrap();
        made.set_not_before(&at(from)).unwrap();
        made.set_not_after(&at(to)).unwrap();
        made.set_pubkey(&key).unwrap();
        made.sign(&key, openssl::hash::MessageDigest::sha256())
            .unwrap();
        let pem = [
            made.build().to_pem().unwrap(),
            key.private_key_to_pem_pkcs8().unwrap(),
        ];
        machine.knows().key_or_new().unwrap();
        fs::write(machine.state().join("node.pem"), pem.concat()).unwrap();
    };
    hours(&lab, 2, 3);
    hours(&laptop, -3, -2);
    lab.serve("lab", &scratch.join("data"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    laptop.well(&["ls", "godwit://lab/"]);
    let _: Fingerprint = lab.key();
}
