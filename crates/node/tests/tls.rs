//! Explicit TLS (RFC 4217) with passwords, on bare sockets: failures, and attacks by a machine in the middle.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, PATIENCE, Scratch, Served, bytes, commas, data_to};
use godwit_store::Flow;
use godwit_trust::{
    Authorities, Channel, Context, Credential, Expect, KeyKind, Unsealed,
    lab::{Ca, Issue, write_pair},
    new_token, password_line,
};
use godwit_wire::shield::Guard;
use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    time::Duration,
};

/// An authority, a host, and users with passwords.
struct Lab {
    dir: Scratch,
    ca: Ca,
}

impl Lab {
    fn new() -> Self {
        let dir = Scratch::new();
        let (year, key) = (Duration::from_secs(365 * 86_400), KeyKind::Elliptic);
        let ca = Ca::init(&dir.path().join("ca"), "/O=Lab/CN=Lab CA", year, key).unwrap();
        let lab = Self { dir, ca };
        let host = Issue {
            key,
            ..Issue::host(&["localhost"])
        };
        let host = lab.ca.issue(&host).unwrap();
        write_pair(&host, &lab.path("cert"), &lab.path("key")).unwrap();
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write_passwords(&self, text: &str) -> String {
        let path = self.path("passwords");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path.display().to_string()
    }

    fn serve(&self, settings: &[(&'static str, &str)]) -> Served {
        let [cert, key] = ["cert", "key"].map(|name| self.path(name).display().to_string());
        let own = [("trust.certificate", &*cert), ("trust.key", &*key)];
        Served::with(&[&own[..], settings].concat())
    }

    /// Returns the first message of a client, and its handshake.
    fn hello(&self, nobody: &Credential) -> (Channel, Vec<u8>) {
        let authorities = Authorities::in_dir(&self.ca.certificates()).unwrap();
        Channel::initiate_tls(nobody, &authorities, Expect::Host("localhost".into())).unwrap()
    }

    fn client(&self, served: &Served) -> Private {
        let mut clear = Client::new(served.address);
        clear.expect("AUTH TLS", "234");
        let stream = clear.control.into_inner();
        let nobody = Credential::nobody();
        let flow = Flow::standing(self.shaken(&nobody, &stream));
        Private {
            stream,
            flow,
            nobody,
            heard: Vec::new(),
        }
    }

    /// Both sides agree.
    fn shaken(&self, nobody: &Credential, mut stream: &TcpStream) -> Channel {
        let (mut channel, mut said) = self.hello(nobody);
        loop {
            stream.write_all(&said).unwrap();
            let mut came = [0; 16 << 10];
            let count = stream.read(&mut came).unwrap();
            assert!(count > 0, "the node hung up");
            let step = channel.step(&came[..count]).unwrap();
            said = step.token.unwrap_or_default();
            if step.done {
                stream.write_all(&said).unwrap();
                return channel;
            }
        }
    }
}

/// A client under TLS.
struct Private {
    stream: TcpStream,
    flow: Flow,
    nobody: Credential,
    heard: Vec<u8>,
}

impl Private {
    fn send(&mut self, line: &str) {
        let sealed = self.flow.wrap(format!("{line}\r\n").as_bytes()).unwrap();
        self.stream.write_all(&sealed).unwrap();
    }

    /// One line; none if the node has ended it.
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.heard.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Some(String::from_utf8(line).unwrap().trim_end().to_owned());
            }
            let mut came = [0; 16 << 10];
            match self.stream.read(&mut came).unwrap() {
                0 => return None,
                count => self.heard.extend(self.flow.unwrap(&came[..count]).unwrap()),
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line().unwrap_or_default()
    }

    fn expect(&mut self, line: &str, code: &str) -> String {
        let reply = self.ask(line);
        assert!(reply.starts_with(code), "{line}: {reply}");
        reply
    }

    fn log_in(&mut self, user: &str, secret: &str) {
        self.expect(&format!("USER {user}"), "331");
        self.expect(&format!("PASS {secret}"), "230");
        self.expect("TYPE I", "200");
    }

    fn passive(&mut self) -> SocketAddr {
        commas(&self.expect("PASV", "227"))
    }
}

fn alice() -> String {
    password_line("alice", b"open sesame").unwrap()
}

#[test]
fn clear_commands_after_auth_are_ignored() {
    let lab = Lab::new();
    let served = lab.serve(&[]);
    let mut client = Client::new(served.address);
    client.raw(b"AUTH TLS\r\nUSER anonymous\r\nPASS x\r\nMKD owned\r\n");
    let said = client.reply();
    assert!(said.starts_with("421 Something came in clear"), "{said}");
    assert!(client.is_closed());

    // Sent later, the line is read as TLS, and refused.
    let mut client = Client::new(served.address);
    client.expect("AUTH TLS", "234");
    client.raw(b"USER anonymous\r\nPASS x\r\nMKD owned\r\n");
    let mut rest = Vec::new();
    let _ = client.control.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"331") && rest.len() <= 7, "{rest:?}");
    assert!(!served.has("owned"));
}

#[test]
fn stalled_handshake_ends_with_login_limit() {
    let lab = Lab::new();
    let served = lab.serve(&[("limits.login_seconds", "1")]);
    for sent in [0, 3, 100] {
        let mut client = Client::new(served.address);
        client.expect("AUTH TLS", "234");
        let (_, first) = lab.hello(&Credential::nobody());
        client.raw(&first[..sent]);
        assert!(client.is_closed(), "after {sent} bytes");
    }
}

#[test]
fn password_needs_tls() {
    let lab = Lab::new();
    let file = lab.write_passwords(&alice());
    let served = lab.serve(&[("passwords.file", &file), ("anonymous.access", "none")]);
    let mut clear = Client::new(served.address);
    let said = clear.expect("USER alice", "530");
    assert!(said.contains("AUTH TLS first"), "{said}");
    clear.expect("PASS open sesame", "503");
    let features = clear.expect("FEAT", "211");
    for word in ["\n AUTH TLS", "\n PBSZ", "\n PROT"] {
        assert!(features.contains(word), "{features}");
    }
    let mut private = lab.client(&served);
    private.log_in("alice", "open sesame");
    private.expect("MKD made", "257");
    assert!(served.has("made"));
}

#[test]
fn password_in_clear_works_if_configured() {
    let lab = Lab::new();
    let file = lab.write_passwords(&alice());
    let served = lab.serve(&[("passwords.file", &file), ("passwords.in_clear", "true")]);
    let mut clear = Client::new(served.address);
    clear.expect("USER alice", "331");
    clear.expect("PASS open sesame", "230");
}

#[test]
fn token_works_and_file_is_reread() {
    let lab = Lab::new();
    let (token, line) = new_token("bob").unwrap();
    let file = lab.write_passwords(&line);
    let served = lab.serve(&[("passwords.file", &file)]);
    lab.client(&served).log_in("token", &token);
    lab.client(&served).log_in("bob", &token);
    lab.write_passwords(&alice());
    let mut client = lab.client(&served);
    client.expect("USER bob", "331");
    client.expect(&format!("PASS {token}"), "530");
    client.log_in("alice", "open sesame");
}

#[test]
fn who_guesses_is_sent_away() {
    let lab = Lab::new();
    let file = lab.write_passwords(&alice());
    let served = lab.serve(&[("passwords.file", &file)]);
    let mut client = lab.client(&served);
    for (user, password) in [
        ("alice", "x"),
        ("bob", "open sesame"),
        ("alice", ""),
        ("token", "open sesame"),
        ("alice", "y"),
    ] {
        client.expect(&format!("USER {user}"), "331");
        let said = client.expect(&format!("PASS {password}"), "530");
        assert!(said.contains("no such user, or another password"), "{said}");
    }
    assert_eq!(client.line().unwrap(), "421 Too many failed logins.");
    assert_eq!(client.line(), None);
}

#[test]
fn rights_name_who_has_a_password() {
    let lab = Lab::new();
    let file = lab.write_passwords(&alice());
    let rules = lab.path("rights.toml");
    let text =
        "[[rule]]\nwho = \"/O=godwit/OU=password/CN=alice\"\nmay = \"all\"\nunder = \"/hers\"\n";
    fs::write(&rules, text).unwrap();
    let rules = rules.display().to_string();
    let served = lab.serve(&[("passwords.file", &file), ("node.rights", &rules)]);
    let mut client = lab.client(&served);
    client.log_in("alice", "open sesame");
    client.expect("MKD /hers", "257");
    client.expect("MKD /others", "55");
}

#[test] //= publishing#over-ftp
fn tls_data_needs_close_or_size() {
    let lab = Lab::new();
    let served = lab.serve(&[]);
    let whole = bytes(100_000);
    let mut client = lab.client(&served);
    client.log_in("anonymous", "x");
    client.expect("PBSZ 0", "200");
    client.expect("PROT P", "200");
    for (name, allo, ended, code) in [
        ("said", None, true, "226"),
        ("cut", None, false, "426"),
        ("announced", Some(100_000), false, "226"),
        ("short", Some(200_000), false, "426"),
    ] {
        if let Some(size) = allo {
            client.expect(&format!("ALLO {size}"), "200");
        }
        let at = client.passive();
        client.send(&format!("STOR {name}"));
        let mut data = data_to(at);
        assert!(client.line().unwrap().starts_with("150"), "{name}");
        let mut channel = lab.shaken(&client.nobody, &data);
        let mut sealed = Vec::new();
        channel.seal(&whole, &mut sealed).unwrap();
        if ended {
            channel.end(&mut sealed).unwrap();
        }
        data.write_all(&sealed).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        let said = client.line().unwrap();
        assert!(said.starts_with(code), "{name}: {said}");
        assert_eq!(served.has(name), code == "226", "{name}");
    }
    assert!(served.bytes("said") == whole && served.bytes("announced") == whole);
}

#[test]
fn clear_data_is_refused_under_prot() {
    let lab = Lab::new();
    let served = lab.serve(&[]);
    let mut client = lab.client(&served);
    client.log_in("anonymous", "x");
    client.expect("PROT P", "200");
    let at = client.passive();
    client.send("STOR clear");
    let mut data = data_to(at);
    assert!(client.line().unwrap().starts_with("150"));
    data.write_all(b"hello, this is in clear").unwrap();
    drop(data);
    let said = client.line().unwrap();
    assert!(said.starts_with("426") && said.contains("no TLS"), "{said}");
    assert!(!served.has("clear"));
}

#[test]
fn tls_data_ends_with_close_notify() {
    let lab = Lab::new();
    let served = lab.serve(&[]);
    served.put("x", &bytes(3_000_000));
    let mut client = lab.client(&served);
    client.log_in("anonymous", "x");
    client.expect("PROT P", "200");
    let at = client.passive();
    client.send("RETR x");
    let mut data = data_to(at);
    assert!(client.line().unwrap().starts_with("150"));
    let mut channel = lab.shaken(&client.nobody, &data);
    data.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut came = Vec::new();
    data.read_to_end(&mut came).unwrap();
    channel.take_in(&came).unwrap();
    let (mut plain, mut piece) = (Vec::new(), vec![0; 16 << 10]);
    let last = loop {
        match channel.open(&mut piece).unwrap() {
            Unsealed::Bytes(count) => plain.extend_from_slice(&piece[..count]),
            other => break other,
        }
    };
    assert_eq!(last, Unsealed::End);
    assert!(plain == bytes(3_000_000));
    assert!(client.line().unwrap().starts_with("226"));
}
