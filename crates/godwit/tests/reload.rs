//! SIGHUP: a node takes another configuration, and no transfer is dropped.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Node, Scratch, godwit, lab::authority, lasting_port, noise};
use godwit_trust::lab::{Ca, Issue, write_pair};
use openssl::ssl::{SslConnector, SslMethod, SslStream, SslVerifyMode};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

const MIB: usize = 1 << 20;

/// A node that has a configuration file, a certificate, and one file to give.
struct World {
    scratch: Scratch,
    ca: Ca,
    door: u16,
    bytes: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let ca = authority(&scratch.join("ca"), "/O=Lab/CN=Lab CA");
        let door = lasting_port();
        let bytes = noise(48 * MIB, 1);
        fs::create_dir_all(scratch.join("export")).unwrap();
        fs::write(scratch.join("export/file"), &bytes).unwrap();
        let world = Self {
            scratch,
            ca,
            door,
            bytes,
        };
        world.certify("one");
        world
    }

    /// Makes a certificate of the host.
    fn certify(&self, name: &str) {
        let issue = common::lab::quick(Issue::host(&["localhost"]));
        let host = self.ca.issue(&issue).unwrap();
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        write_pair(&host, &self.scratch.join(cert), &self.scratch.join(key)).unwrap();
    }

    fn configure(&self, certificate: &str, more: &str) {
        let at = |name: &str| self.scratch.join(name).display().to_string();
        let usual = match more.contains("[anonymous") {
            true => "",
            false => "[anonymous]\naccess = \"read\"\n",
        };
        let text = format!(
            "[node]\nexport = {:?}\n[ftp]\nlisten = \"127.0.0.1:0\"\n[https]\nlisten = \"127.0.0.1:{}\"\n\
             [trust]\ncertificate = {:?}\nkey = {:?}\nauthorities = {:?}\n{usual}{more}",
            at("export"),
            self.door,
            at(&format!("{certificate}.pem")),
            at(&format!("{certificate}.key")),
            self.ca.certificates().display().to_string(),
        );
        fs::write(self.scratch.join("config.toml"), text).unwrap();
    }

    fn start(&self) -> Node {
        let mut command = godwit();
        command.args(["node", "--json", "--config"]);
        command.arg(self.scratch.join("config.toml"));
        Node::spawn(command, &self.scratch.join("export"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.join("export.log")).unwrap()
    }

    /// Sends the signal, and waits until the node has told that so many times.
    #[track_caller]
    fn hang_up(&self, node: &Node, what: &str, times: usize) {
        node.signal("HUP");
        common::wait_until(what, || self.log().matches(what).count() >= times);
    }

    fn visit(&self) -> SslStream<TcpStream> {
        let mut ours = SslConnector::builder(SslMethod::tls()).unwrap();
        ours.set_verify(SslVerifyMode::NONE);
        let socket = TcpStream::connect(("127.0.0.1", self.door)).unwrap();
        ours.build().connect("localhost", socket).unwrap()
    }

    /// Returns the key that is shown at the door.
    fn shown(&self) -> Vec<u8> {
        let certificate = self.visit().ssl().peer_certificate().unwrap();
        certificate
            .public_key()
            .unwrap()
            .public_key_to_der()
            .unwrap()
    }

    /// Asks for the file; what comes is left where it is.
    fn ask(&self, tls: &mut SslStream<TcpStream>) -> String {
        write!(tls, "GET /file HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tls.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }
}

/// A session of FTP.
struct Ftp(BufReader<TcpStream>);

impl Ftp {
    fn new(node: &Node) -> Self {
        let mut ftp = Self(BufReader::new(
            TcpStream::connect(("127.0.0.1", node.port)).unwrap(),
        ));
        ftp.reply();
        ftp
    }

    fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            if line.as_bytes().get(3) == Some(&b' ') {
                return line;
            }
        }
    }

    fn say(&mut self, line: &str) -> String {
        write!(self.0.get_mut(), "{line}\r\n").unwrap();
        self.reply()
    }

    fn login(&mut self) -> String {
        self.say("USER anonymous");
        self.say("PASS x@y")
    }

    /// Begins to get the file.
    fn get(&mut self) -> TcpStream {
        self.say("TYPE I");
        let told = self.say("EPSV");
        let port = told.split('|').nth(3).unwrap().parse().unwrap();
        let data = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(self.say("RETR file").starts_with('1'));
        data
    }
}

fn read_some(from: &mut impl Read, into: &mut Vec<u8>, count: usize) {
    let begun = into.len();
    into.resize(begun + count, 0);
    from.read_exact(&mut into[begun..]).unwrap();
}

#[test]
fn reload_spares_running_transfers() {
    let world = World::new();
    world.configure("one", "");
    let node = world.start();
    let before = world.shown();
    let (mut door, mut ftp) = (world.visit(), Ftp::new(&node));
    assert!(ftp.login().starts_with('2'));
    assert!(world.ask(&mut door).starts_with("HTTP/1.1 200"));
    let mut data = ftp.get();
    let (mut by_door, mut by_ftp) = (Vec::new(), Vec::new());
    read_some(&mut door, &mut by_door, MIB);
    read_some(&mut data, &mut by_ftp, MIB);

    // Another certificate and key, and anonymous logins are off.
    world.certify("two");
    let elsewhere =
        "[anonymous]\naccess = \"none\"\n[limits]\nsessions = 7\n[log]\nlevel = \"debug\"\n";
    world.configure("two", elsewhere);
    world.hang_up(&node, "go on under the configuration", 1);
    assert!(
        world.log().contains("needs a restart: log.level"),
        "{}",
        world.log()
    );

    assert_ne!(world.shown(), before);
    assert!(Ftp::new(&node).login().starts_with('5'));
    assert!(world.ask(&mut world.visit()).starts_with("HTTP/1.1 403"));

    read_some(&mut door, &mut by_door, 47 * MIB);
    read_some(&mut data, &mut by_ftp, 47 * MIB);
    assert!(by_door == world.bytes && by_ftp == world.bytes);
    assert!(ftp.reply().starts_with("226"));
    // A running transfer ends under the old rules; new requests meet the new ones.
    assert!(world.ask(&mut door).starts_with("HTTP/1.1 403"));
}

#[test]
fn bad_configuration_changes_nothing() {
    let world = World::new();
    world.configure("one", "[limits]\nsessions = 9\n");
    let node = world.start();
    let before = world.shown();
    let broken = "the configuration is of no use";
    let is_as_before = || {
        assert_eq!(world.shown(), before);
        assert!(Ftp::new(&node).login().starts_with('2'));
        assert!(world.ask(&mut world.visit()).starts_with("HTTP/1.1 200"));
    };
    for (nth, (certificate, more)) in [
        ("one", "[anonymous]\naccess = \"none\"\nacess = 1\n"),
        ("none", "[anonymous]\naccess = \"none\"\n"),
        (
            "one",
            "[passwords]\nfile = \"/nonexistent\"\n[anonymous]\naccess = \"none\"\n",
        ),
        ("one", "[anonymous\n"),
    ]
    .into_iter()
    .enumerate()
    {
        world.configure(certificate, more);
        world.hang_up(&node, broken, nth + 1);
        is_as_before();
        // The same is said before it is tried.
        let mut check = godwit();
        check.args(["config", "check", "--config"]);
        let checked = check
            .arg(world.scratch.join("config.toml"))
            .output()
            .unwrap();
        assert_eq!(checked.status.code(), Some(2), "{more}: {checked:?}");
    }
    // A file that is not there does not mean that nothing is configured.
    fs::remove_file(world.scratch.join("config.toml")).unwrap();
    world.hang_up(&node, broken, 5);
    is_as_before();
    world.configure("one", "[anonymous]\naccess = \"none\"\n");
    world.hang_up(&node, "go on under the configuration", 1);
    assert!(Ftp::new(&node).login().starts_with('5'));
}

#[test]
fn reload_changes_rights_not_ports() {
    let world = World::new();
    world.configure("one", "");
    let mut node = world.start();
    fs::write(world.scratch.join("rights"), "allow anybody list /\n").unwrap();
    let rights = format!(
        "rights = {:?}\n[https]",
        world.scratch.join("rights").display().to_string()
    );
    let file = world.scratch.join("config.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("[ftp]\nlisten = \"127.0.0.1:0\"\n[https]", &rights);
    fs::write(&file, text.replace(&world.door.to_string(), "1")).unwrap();
    if common::run(5, "id", ["-u"]).stdout == b"0\n" {
        world.hang_up(&node, "needs a restart: node.rights", 1);
        common::skip(
            "where root starts the node, rights are there from the beginning or not at all",
        );
    } else {
        world.hang_up(&node, "go on under the configuration", 1);
        assert!(world.ask(&mut world.visit()).starts_with("HTTP/1.1 403"));
    }
    assert!(
        world.log().contains("needs a restart: https.listen"),
        "{}",
        world.log()
    );
    node.signal("TERM");
    assert!(node.ends_within(Duration::from_secs(20)));
}
