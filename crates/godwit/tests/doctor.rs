//! The doctor names each obstacle, the cause first, in under five seconds.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    Machine, Scratch,
    lab::{Lab, quick},
};
use godwit_trust::{
    Credential,
    door::{Doorway, Elsewhere, Fingerprint},
    lab::{Issue, write_pair},
};
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime},
};

/// The doctor's status, and each check in order.
struct Found {
    code: i32,
    looks: Vec<Value>,
    took: Duration,
}

impl Found {
    fn by(mut doctor: Command) -> Self {
        let begun = Instant::now();
        let said = doctor.output().unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        Self {
            code: said.status.code().unwrap(),
            looks: lines.filter(|line| line["event"] == "look").collect(),
            took: begun.elapsed(),
        }
    }

    /// Returns the first check, which must have failed.
    #[track_caller]
    fn first(&self, at: &str) -> (&str, &str) {
        let first = &self.looks[0];
        assert_eq!(
            (&first["at"], &first["well"]),
            (&at.into(), &false.into()),
            "{:#?}",
            self.looks
        );
        assert_ne!(self.code, 0);
        let fix = first["fix"].as_str().unwrap();
        assert!(!fix.contains('\n'), "{fix}");
        assert!(self.took < Duration::from_secs(5), "{:?}", self.took);
        (first["said"].as_str().unwrap(), fix)
    }

    /// The disk of the tests may be full: only that check may fail.
    #[track_caller]
    fn all_is_well(&self) {
        let ill = self.looks.iter().filter(|look| look["well"] != true);
        let ill = ill.map(|look| look["at"].as_str().unwrap());
        match ill.collect::<Vec<_>>()[..] {
            [] => assert_eq!(self.code, 0, "{:#?}", self.looks),
            ["disk"] => assert_eq!(self.code, 7, "{:#?}", self.looks),
            _ => panic!("{:#?}", self.looks),
        }
    }
}

fn doctor(machine: &Machine<'_>, url: &str) -> Found {
    Found::by(machine.command(&["--json", "doctor", url]))
}

#[test]
fn healthy_urls_pass_doctor() {
    let (scratch, lab) = (Scratch::new(), Lab::new());
    let (node, laptop) = Machine::lab_and_laptop(&scratch);
    doctor(&laptop, "godwit://lab/f").all_is_well();
    doctor(&laptop, scratch.join("data").to_str().unwrap()).all_is_well();
    Found::by(node.command(&["--json", "doctor"])).all_is_well();
    Found::by(laptop.command(&["--json", "doctor"])).all_is_well();
    let gsi = lab.node("host");
    let mut asked = laptop.command(&["--json", "doctor"]);
    asked
        .arg(format!("gsiftp://localhost:{}/", gsi.port))
        .env("X509_USER_PROXY", lab.path("alice"))
        .env("X509_CERT_DIR", lab.ca.certificates());
    Found::by(asked).all_is_well();
    let open = common::Node::start(&scratch.join("open"));
    doctor(&laptop, &open.url("")).all_is_well();
}

#[test]
fn stopped_node_is_told() {
    let scratch = Scratch::new();
    let mut node = Machine::lab(&scratch);
    node.kill();
    let found = Found::by(node.command(&["--json", "doctor"]));
    assert_eq!(found.first("port").1, "start the node: godwit node");
    assert_eq!(found.code, 5);
    fs::write(node.state().join("node.pem"), "no key").unwrap();
    let found = Found::by(node.command(&["--json", "doctor"]));
    assert!(found.first("key").0.contains("node.pem"));
}

#[test]
fn missing_things_are_told_apart() {
    let scratch = Scratch::new();
    let (node, laptop) = Machine::lab_and_laptop(&scratch);
    doctor(&laptop, "https://no-such-host.invalid/").first("name");
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for scheme in ["https", "godwit", "ftp", "gsiftp"] {
        let found = doctor(&laptop, &format!("{scheme}://{closed}/"));
        // Without a certificate gsiftp: fails before it is asked.
        if scheme != "gsiftp" {
            assert_eq!(found.code, 5, "{scheme}: {:#?}", found.looks);
            found.first("port");
        }
        assert_ne!(found.code, 0);
    }
    let found = doctor(&laptop, "godwit://lab/nothing");
    assert_eq!(
        (found.first("rights").0.contains("no such"), found.code),
        (true, 4)
    );
    laptop.well(&["leave", "lab"]);
    let found = doctor(&laptop, &format!("godwit://{}/", node.at));
    found.first("proof");
}

/// An address that takes no more connections: what is sent there is not answered.
#[test]
fn silent_address_fails_fast() {
    let scratch = Scratch::new();
    let laptop = Machine::new(&scratch, "b");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // No program accepts, and the queue is soon full.
    let wait = Duration::from_millis(300);
    let mut waiting = Vec::new();
    while let Ok(one) = std::net::TcpStream::connect_timeout(&at, wait) {
        waiting.push(one);
        assert!(waiting.len() < 10_000, "the queue has no end");
    }
    for url in [format!("https://{at}/"), format!("ftp://{at}/")] {
        let found = doctor(&laptop, &url);
        assert!(
            found.first("port").1.contains("swallows packets"),
            "{:#?}",
            found.looks
        );
        assert_eq!(found.code, 5);
    }
    // Several such addresses of one peer.
    let key =
        Fingerprint::of_credential(&godwit_trust::lab::throw_away(Duration::from_secs(9)).unwrap());
    let addresses = vec![at.to_string(); 5];
    let peer = godwit_trust::Peer::new("far", key.unwrap(), &addresses);
    laptop.knows().add(&peer).unwrap();
    doctor(&laptop, "godwit://far/").first("port");
    // One that takes connections, and says nothing.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let found = doctor(&laptop, &format!("https://{}/", mute.local_addr().unwrap()));
    assert!(!found.looks[0]["well"].as_bool().unwrap() && found.code != 0);
    assert!(found.took < Duration::from_secs(5), "{:?}", found.took);
}

/// Answers as a node whose clock is two hours behind, to as many as come.
fn late(host: Credential) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let way = Doorway::of(&host, &[], None).unwrap();
    let then = SystemTime::now() - Duration::from_secs(7200);
    let then = then.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let date = common::run(
        5,
        "date",
        ["-u", "-R", "-d", &format!("@{}", then.as_secs())],
    );
    let date = String::from_utf8(date.stdout)
        .unwrap()
        .replace("+0000", "GMT");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut tls =
                openssl::ssl::SslStream::new(way.open(&Elsewhere::default()).unwrap(), stream)
                    .unwrap();
            if tls.accept().is_ok() && tls.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ndate: ";
                let _ = write!(tls, "{head}{}\r\n\r\n", date.trim());
            }
        }
    });
    at
}

#[test]
fn wrong_clock_is_named_first() {
    let (scratch, lab) = (Scratch::new(), Lab::new());
    let laptop = Machine::new(&scratch, "b");
    let ask = |url: String| {
        let mut asked = laptop.command(&["--json", "doctor"]);
        asked.arg(url).env("X509_CERT_DIR", lab.ca.certificates());
        asked.env("SSL_CERT_DIR", lab.ca.certificates());
        Found::by(asked)
    };
    let two_hours = Duration::from_secs(7200);
    let early = Issue {
        not_before: SystemTime::now() + two_hours,
        ..quick(Issue::host(&["localhost", "127.0.0.1"]))
    };
    let host = lab.ca.issue(&early).unwrap();
    write_pair(&host, &lab.path("early.pem"), &lab.path("early.key")).unwrap();
    // The server's clock is ahead, says the certificate; the date of the client says two hours behind.
    let at = late(host);
    let found = ask(format!("https://localhost:{}/", at.port()));
    assert!(
        found.first("clock").0.contains("clocks are 2"),
        "{:#?}",
        found.looks
    );
    let ill = found
        .looks
        .iter()
        .filter(|look| look["well"] == false)
        .count();
    assert_eq!(ill, 2, "{:#?}", found.looks);
}

#[test]
fn https_names_missing_authority() {
    let scratch = Scratch::new();
    let (node, laptop) = (Machine::lab(&scratch), Machine::new(&scratch, "b"));
    let empty = scratch.dir("none");
    let mut asked = laptop.command(&["--json", "doctor", &format!("https://{}/", node.at)]);
    asked
        .env("SSL_CERT_DIR", &empty)
        .env("X509_CERT_DIR", &empty);
    asked.env("SSL_CERT_FILE", empty.join("none.pem"));
    let found = Found::by(asked);
    let (said, fix) = found.first("proof");
    assert!(
        fix.contains("X509_CERT_DIR") || fix.contains("godwit join"),
        "{said}: {fix}"
    );
}
