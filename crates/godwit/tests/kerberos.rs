//! Logins by Kerberos, with a real KDC: yafc and our own client against our node, and what goes
//! wrong.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Node, Peer, Said, Scratch, assert_same, assert_same_tree, godwit, have, noise, ours_within,
    text,
};
use godwit_trust::{Blockwise, Context, Kerberos, Wrapping};
use godwit_wire::base64;
use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

const SIZES: [usize; 4] = [0, 1, 300_000, 5_000_003];

/// A realm, and a node of it to which Alice may come.
struct World {
    node: Node,
    // Stopped by what lies in the place that goes last.
    kdc: Peer,
    scratch: Scratch,
}

impl World {
    fn new() -> Option<Self> {
        Self::of(&[])
    }

    /// A realm that knows these beside its people.
    fn of(hosts: &[&str]) -> Option<Self> {
        let scratch = Scratch::new();
        let kdc = Peer::start_by("kdc-up", scratch.path(), hosts)?;
        let (command, export) = node_of(&scratch, &kdc, &kdc.dir.join("keytab"));
        let node = Node::spawn(command, &export);
        let world = Self { node, kdc, scratch };
        world.kinit("alice", &[]);
        Some(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn exported(&self, name: &str) -> PathBuf {
        self.node.export.join(name)
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://localhost:{}/{path}", self.node.port)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.node.export.with_extension("log")).unwrap()
    }

    /// Gets a ticket for a principal, into a cache of that name.
    fn kinit(&self, who: &str, options: &[&str]) {
        let mut command = Command::new(self.kdc.dir.join("kinit"));
        let command = command.arg(who).args(options);
        Said::of(command.env("KRB5CCNAME", self.cache(who))).ok();
    }

    fn cache(&self, who: &str) -> String {
        format!("FILE:{}", text(&self.path(&format!("tickets of {who}"))))
    }

    /// Runs yafc with the tickets of a principal, and feeds it lines.
    fn yafc(&self, who: &str, lines: &str) -> Said {
        let dir = self.scratch.dir("yafc");
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=2", "20", "yafc", "--quiet", "--verbose"])
            .args(["--norc", "--workdir", text(&dir), "--mechanism=krb5"])
            .arg(format!("{ALICE}@localhost:{}", self.node.port))
            .current_dir(&dir)
            .env("HOME", &dir);
        let said = self.scratch.join("lines");
        fs::write(&said, format!("{lines}\nclose\nquit\n")).unwrap();
        command.stdin(fs::File::open(said).unwrap());
        Said::of(realm(&mut command, &self.kdc).env("KRB5CCNAME", self.cache(who)))
    }

    /// Runs our client with the tickets of a principal.
    fn ours(&self, who: &str, args: &[&str]) -> Said {
        let mut command = godwit();
        realm(&mut command, &self.kdc).env("KRB5CCNAME", self.cache(who));
        ours_within(60, command, args)
    }

    #[track_caller]
    fn refused(&self, who: &str, url: &str, words: &[&str]) -> Said {
        let said = self.ours(who, &["ls", "--kerberos", url]);
        assert_eq!(said.status, Some(13), "{said}");
        for word in words {
            assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
        }
        said
    }

    /// The node refuses in these words without a path; its log has everything.
    #[track_caller]
    fn turned_down(&self, who: &str, words: &[&str], logged: &[&str]) {
        let before = self.log().len();
        let said = self.refused(who, &self.url(""), words);
        let ours = text(self.scratch.path());
        assert!(!said.stderr.contains(ours), "a path of the node in {said}");
        let log = self.log().split_off(before);
        for word in logged {
            assert!(log.contains(word), "wanted {word:?} in {log}");
        }
    }

    /// Has the KDC change what it knows.
    fn kadmin(&self, queries: &[&str]) {
        let mut command = Command::new(self.kdc.dir.join("kadmin"));
        Said::of(command.args(queries)).ok();
    }

    /// Has a test of this file run again in a process that has Alice's tickets, where what it
    /// does is done.
    fn again(&self, test: &str) {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([test, "--exact", "--nocapture"])
            .env("GODWIT_CHILD", self.node.port.to_string())
            .env("KRB5CCNAME", self.cache("alice"));
        Said::of(realm(&mut command, &self.kdc)).ok();
    }
}

fn realm<'a>(command: &'a mut Command, kdc: &Peer) -> &'a mut Command {
    command
        .env("KRB5_CONFIG", kdc.dir.join("krb5.conf"))
        .env("KRB5RCACHEDIR", kdc.dir.join("rcache"))
}

fn node_of(scratch: &Scratch, kdc: &Peer, keytab: &Path) -> (Command, PathBuf) {
    let (export, map) = (scratch.dir("export"), scratch.join("gridmap"));
    fs::write(&map, format!("\"alice@GODWIT.TEST\" {ALICE},{CAROL}\n")).unwrap();
    fs::set_permissions(&export, fs::Permissions::from_mode(0o1777)).unwrap();
    let mut command = godwit();
    command
        .args(["node", "--ftp", "127.0.0.1:0", "--json"])
        .args(["--anonymous", "none", "--gridmap", text(&map)])
        .args(["--keytab", text(keytab), "--export", text(&export)]);
    realm(&mut command, kdc);
    (command, export)
}

/// Accounts by number, which any machine has: a node of root serves no other names.
const ALICE: &str = "61001";
const CAROL: &str = "61002";

/// A client that knows nothing but lines, and how to wrap them.
struct Lines {
    socket: BufReader<TcpStream>,
    ticket: Option<Kerberos>,
}

impl Lines {
    fn new(port: u16) -> Self {
        let mut lines = Self {
            socket: BufReader::new(connect(port)),
            ticket: None,
        };
        lines.reply();
        lines
    }

    /// Logged in as Alice, by the ticket of this process.
    fn proved(port: u16) -> (Self, Blockwise) {
        let mut lines = Self::new(port);
        lines.say("AUTH GSSAPI");
        let (mut ticket, first) = Kerberos::initiate("localhost").unwrap();
        let said = lines.say(&format!("ADAT {}", base64::encode(&first)));
        let token = said.strip_prefix("235 ADAT=").unwrap();
        let step = ticket.step(&base64::decode(token.as_bytes()).unwrap());
        assert!(step.unwrap().done);
        let data = ticket.blockwise().unwrap();
        lines.ticket = Some(ticket);
        let entered = lines.say(&format!("USER {ALICE}"));
        assert_eq!(entered, format!("232 User {ALICE} logged in."));
        (lines, data)
    }

    /// Opens a data connection for what is protected like this.
    fn data(&mut self, level: &str) -> TcpStream {
        assert_eq!(self.say("PBSZ 1048576"), "200 PBSZ=1048576");
        assert!(self.say(&format!("PROT {level}")).starts_with("200 "));
        let said = self.say("EPSV");
        let port = said.split('|').nth(3).unwrap();
        connect(port.parse().unwrap())
    }

    fn say(&mut self, line: &str) -> String {
        self.send(line);
        self.reply()
    }

    fn send(&mut self, line: &str) {
        let line = match &mut self.ticket {
            None => line.to_owned(),
            Some(ticket) => {
                let wrapped = ticket.wrap(format!("{line}\r\n").as_bytes()).unwrap();
                format!("ENC {}", base64::encode(&wrapped))
            }
        };
        self.raw(&line);
    }

    fn raw(&mut self, line: &str) {
        let sent = format!("{line}\r\n");
        self.socket.get_ref().write_all(sent.as_bytes()).unwrap();
    }

    /// Returns the last line of a reply; empty if there is none.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        self.socket.read_line(&mut line).unwrap();
        let Some(ticket) = self.ticket.as_mut().filter(|_| !line.is_empty()) else {
            return line.trim_end().into();
        };
        let wrapped = line.trim_end().strip_prefix("632 ").unwrap();
        let clear = ticket.unwrap(&base64::decode(wrapped.as_bytes()).unwrap());
        String::from_utf8(clear.unwrap()).unwrap().trim_end().into()
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).unwrap();
    stream
}

// --- clients of others --------------------------------------------------------------------------

#[test]
fn yafc_moves_files_by_ticket() {
    let Some(world) = have("yafc").then(World::new).flatten() else {
        return;
    };
    for size in SIZES {
        let source = world.scratch.file("yafc/source", size);
        let said = world.yafc("alice", "put -f source\nls\nget -f -o got source");
        let said = said.ok();
        let words = format!("User {ALICE} logged in.");
        assert!(said.stderr.contains(&words), "{said}");
        assert!(said.stderr.contains("Data protection is clear"), "{said}");
        assert_same(&source, &world.exported("source"));
        assert_same(&source, &world.path("yafc/got"));
        fs::remove_file(world.path("yafc/got")).unwrap();
    }
    let log = world.log();
    let proved = "authenticated by a ticket peer=alice@GODWIT.TEST";
    assert!(log.contains(proved), "{log}");
}

// --- our client ---------------------------------------------------------------------------------

#[test]
fn trees_move_at_each_level() {
    let Some(world) = World::new() else {
        return;
    };
    let source = world.scratch.dir("source");
    fs::create_dir(source.join("deep")).unwrap();
    for (i, size) in [SIZES[0], 1, 70_000, 5_000_003, 30_000_000]
        .iter()
        .enumerate()
    {
        fs::write(source.join(format!("{size}")), noise(*size, i as u64)).unwrap();
    }
    for i in 0..300 {
        fs::write(source.join(format!("deep/{i}")), noise(i * 7, i as u64)).unwrap();
    }
    let levels: [&[&str]; 3] = [&[], &["--safe"], &["--private"]];
    for (i, level) in levels.into_iter().enumerate() {
        let (there, back) = (format!("up-{i}"), world.path(&format!("back-{i}")));
        let url = world.url(&there);
        let own = [&["cp", "-r", "--kerberos"], level].concat();
        let up = [&own[..], &[text(&source), &*url]].concat();
        world.ours("alice", &up).ok();
        assert_same_tree(&source, &world.exported(&there));
        let down = [&own[..], &[&*url, text(&back)]].concat();
        world.ours("alice", &down).ok();
        assert_same_tree(&source, &back);
    }
    let listed = world.ours("alice", &["ls", "--kerberos", "--private", &world.url("")]);
    let listed = String::from_utf8_lossy(&listed.ok().stdout).into_owned();
    assert!(listed.contains("up-2"), "{listed}");
}

#[test]
fn third_party_copy_must_be_clear() {
    let Some(world) = World::new() else {
        return;
    };
    fs::write(world.exported("source"), noise(3_000_000, 1)).unwrap();
    for level in ["--clear", "--private"] {
        let (from, to) = (world.url("source"), world.url(&format!("as{level}")));
        let said = world.ours("alice", &["cp", "--json", "--kerberos", level, &from, &to]);
        said.ok();
        assert_same(
            &world.exported("source"),
            &world.exported(&format!("as{level}")),
        );
    }
}

#[test]
fn long_copy_completes_at_each_level() {
    let Some(world) = World::new() else {
        return;
    };
    let elsewhere = Scratch::new();
    let (command, export) = node_of(&elsewhere, &world.kdc, &world.kdc.dir.join("keytab"));
    let other = Node::spawn(command, &export);
    fs::write(world.exported("source"), noise(40_000_000, 1)).unwrap();
    for level in ["--safe", "--private"] {
        let to = format!("ftp://localhost:{}/as{level}", other.port);
        let args = ["cp", "--kerberos", level, &world.url("source"), &to];
        world.ours("alice", &args).ok();
        assert_same(
            &world.exported("source"),
            &export.join(format!("as{level}")),
        );
    }
}

#[test]
fn host_principal_replaces_ftp() {
    let Some(world) = World::of(&["host/localhost"]) else {
        return;
    };
    world
        .ours("alice", &["ls", "--kerberos", &world.url("")])
        .ok();
}

// --- what goes wrong ----------------------------------------------------------------------------

#[test]
fn bad_ticket_names_next_step() {
    let Some(world) = World::new() else {
        return;
    };
    let url = world.url("");
    world.refused("nobody", &url, &["Kerberos: ", "kinit"]);
    world.kinit("bob", &[]);
    let no_account = ["bob@GODWIT.TEST has no account here", "klist"];
    world.refused("bob", &url, &no_account);
    let as_carol = format!("ftp://{CAROL}@localhost:{}/", world.node.port);
    world.ours("alice", &["ls", "--kerberos", &as_carol]).ok();
    let by_number = format!("ftp://127.0.0.1:{}/", world.node.port);
    let unknown = ["knows neither ftp/127.0.0.1 nor host/127.0.0.1", "klist -k"];
    world.refused("alice", &by_number, &unknown);
    let said = world.ours("alice", &["ls", &url]);
    assert_eq!(said.status, Some(13), "{said}");
    assert!(said.stderr.contains("AUTH GSSAPI"), "{said}");

    world.kinit("alice", &["-l", "1s"]);
    common::wait_until("the ticket expires", || {
        world.ours("alice", &["ls", "--kerberos", &url]).status != Some(0)
    });
    let cache = format!("(in {})", world.cache("alice"));
    world.refused("alice", &url, &["expired", &cache, "kinit"]);
}

#[test]
fn refusal_keeps_paths_in_log() {
    let Some(world) = World::new() else {
        return;
    };
    let (keytab, map) = (world.kdc.dir.join("keytab"), world.path("gridmap"));
    world.kinit("bob", &[]);
    let none = "bob@GODWIT.TEST has no account here (the gridmap does not say so)";
    world.turned_down("bob", &[none, "klist"], &[text(&map)]);

    let unread = [
        "this node cannot read its gridmap; its log tells more",
        "hint: tell whoever runs the node",
    ];
    fs::write(&map, "\"alice@GODWIT.TEST alice\n").unwrap();
    world.turned_down("alice", &unread, &["ERROR", text(&map), "line 1: "]);
    fs::remove_file(&map).unwrap();
    world.turned_down("alice", &unread, &["ERROR", text(&map), "no such file"]);
    fs::write(&map, format!("\"alice@GODWIT.TEST\" {ALICE}\n")).unwrap();

    // Of a newer version, and another of the same.
    let outdated = [
        "the keytab of the node is outdated, or the ticket is",
        "hint: tell whoever runs the node to renew its keytab",
        "kdestroy, kinit",
    ];
    let name = "ftp/localhost";
    let again = [
        "delprinc -force ftp/localhost",
        "addprinc -randkey ftp/localhost",
    ];
    for queries in [&["cpw -randkey ftp/localhost"][..], &again] {
        world.kadmin(queries);
        world.kinit("alice", &[]);
        world.turned_down("alice", &outdated, &[text(&keytab), name, "ktadd"]);
    }

    fs::remove_file(&keytab).unwrap();
    let gone = [
        "this node cannot read its keytab; its log tells more",
        "hint: tell whoever runs the node",
    ];
    world.turned_down("alice", &gone, &[text(&keytab), "no such file"]);
}

#[test]
fn clock_skew_shows_both_times() {
    let Some(world) = World::new() else {
        return;
    };
    world
        .ours("alice", &["ls", "--kerberos", &world.url("")])
        .ok();
    // The cache now has the ticket; its head says how far the KDC is ahead.
    let cache = world.path("tickets of alice");
    let bytes = fs::read(&cache).unwrap();
    let head = 4 + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    assert_eq!(bytes[..2], [5, 4], "a cache of the fourth kind");
    let mut ahead = vec![5, 4, 0, 12, 0, 1, 0, 8];
    ahead.extend(1000_i32.to_be_bytes());
    ahead.extend(0_i32.to_be_bytes());
    ahead.extend(&bytes[head..]);
    fs::write(&cache, ahead).unwrap();
    let words = [
        "two clocks are further apart than Kerberos allows: that of this node says 20",
        "hint: the clock of this machine says 20",
        "set the clock (chronyc tracking)",
    ];
    world.turned_down("alice", &words, &["Clock skew too great"]);
}

#[test]
fn session_outlives_its_ticket() {
    let Ok(port) = env::var("GODWIT_CHILD") else {
        if let Some(world) = World::new() {
            world.kinit("alice", &["-l", "2s"]);
            world.again("session_outlives_its_ticket");
        }
        return;
    };
    let port = port.parse().unwrap();
    let (mut lines, _) = Lines::proved(port);
    let until = Instant::now() + Duration::from_secs(20);
    let comes_in = || {
        let Ok((mut ticket, first)) = Kerberos::initiate("localhost") else {
            return false;
        };
        let mut other = Lines::new(port);
        other.say("AUTH GSSAPI");
        let said = other.say(&format!("ADAT {}", base64::encode(&first)));
        let token = said.strip_prefix("235 ADAT=").unwrap_or_default();
        let token = base64::decode(token.as_bytes()).unwrap_or_default();
        ticket.step(&token).is_ok()
    };
    while comes_in() {
        assert!(Instant::now() < until, "the ticket does not expire");
        thread::sleep(Duration::from_millis(100));
    }
    assert!(lines.say("NOOP").starts_with("200 "));
}

#[test]
fn missing_library_names_its_package() {
    let Some(world) = World::new() else {
        return;
    };
    let mut command = godwit();
    realm(&mut command, &world.kdc)
        .env("KRB5CCNAME", world.cache("alice"))
        .env("GODWIT_GSSAPI", "/nonexistent/lib.so");
    let url = world.url("");
    let said = ours_within(60, command, ["ls", "--kerberos", &url]);
    assert_eq!(said.status, Some(13), "{said}");
    for word in ["/nonexistent/lib.so", "libgssapi-krb5-2"] {
        assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
    }
}

#[test]
fn server_without_kerberos_is_named() {
    let Some(world) = World::new() else {
        return;
    };
    let other = Node::start(&world.scratch.dir("other"));
    let url = format!("ftp://localhost:{}/", other.port);
    world.refused("alice", &url, &["login refused", "klist"]);
}

#[test]
fn malformed_tokens_stop_no_node() {
    let Some(world) = World::new() else {
        return;
    };
    let long = vec![0x60; 300_000];
    let framed = b"\x60\x82\x01\x00\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01\x00rubbish";
    let spnego = b"\x60\x20\x06\x06\x2b\x06\x01\x05\x05\x02\xa0\x16";
    let tls = b"\x16\x03\x01\x00\x05hello";
    let tokens: [&[u8]; 6] = [b"\x60", framed, &framed[..17], spnego, tls, b""];
    for token in tokens {
        let (mut lines, before) = (Lines::new(world.node.port), world.log().len());
        assert!(lines.say("AUTH GSSAPI").starts_with("334 "));
        let said = lines.say(&format!("ADAT {}", base64::encode(token)));
        assert!(!said.contains("certificate"), "{token:x?}: {said}");
        let is_refused = said.starts_with("535 ") || said.starts_with("501 ");
        assert!(is_refused, "{token:x?}: {said}");
        let logged = world.log().split_off(before);
        assert!(
            logged.contains("authentication failed"),
            "{token:x?}: {said}"
        );
        assert!(lines.say("USER alice").starts_with("331 "));
        assert!(lines.say("PASS x").starts_with("530 "));
    }
    let mut lines = Lines::new(world.node.port);
    lines.say("AUTH GSSAPI");
    let said = lines.say(&format!("ADAT {}", base64::encode(&long)));
    assert!(said.starts_with("500 "), "{said}");
    world
        .ours("alice", &["ls", "--kerberos", &world.url("")])
        .ok();
}

#[test]
fn unusable_keytab_is_named() {
    let scratch = Scratch::new();
    let Some(kdc) = Peer::start_by("kdc-up", scratch.path(), &[]) else {
        return;
    };
    let empty = scratch.file("empty", 0);
    for (keytab, words) in [
        (scratch.join("missing"), "no such file"),
        (empty.clone(), "empty: "),
    ] {
        let (mut command, _) = node_of(&scratch, &kdc, &keytab);
        let said = Said::of(&mut command);
        assert_eq!(said.status, Some(2), "{said}");
        for word in [text(&keytab), words, "ftp/HOST or host/HOST"] {
            assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
        }
    }
    for (name, words) in [("missing", "no such file"), ("empty", "empty: ")] {
        for kind in ["", "FILE:"] {
            let mut command = godwit();
            let export = scratch.dir("export");
            command.args(["node", "--ftp", "127.0.0.1:0", "--export", text(&export)]);
            let keytab = format!("{kind}{}", text(&scratch.join(name)));
            realm(&mut command, &kdc).env("KRB5_KTNAME", &keytab);
            let said = ours_within(20, command, [""; 0]);
            assert_eq!(said.status, Some(2), "{said}");
            for word in [text(&scratch.join(name)), words, "ftp/HOST or host/HOST"] {
                assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
            }
        }
    }
    let (mut command, _) = node_of(&scratch, &kdc, &kdc.dir.join("keytab"));
    let said = Said::of(command.env("GODWIT_GSSAPI", "/nonexistent/lib.so"));
    assert_eq!(said.status, Some(2), "{said}");
    for word in ["/nonexistent/lib.so", "libgssapi-krb5-2"] {
        assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
    }
}

#[test]
fn readable_keytab_is_warned_of() {
    let Some(world) = World::new() else {
        return;
    };
    let warned = "the keytab is no secret";
    let keytab = world.kdc.dir.join("keytab");
    assert!(!world.log().contains(warned), "{}", world.log());
    fs::set_permissions(&keytab, fs::Permissions::from_mode(0o644)).unwrap();
    let other = Scratch::new();
    let (command, export) = node_of(&other, &world.kdc, &keytab);
    let _node = Node::spawn(command, &export);
    let log = fs::read_to_string(export.with_extension("log")).unwrap();
    let line = log.lines().find(|line| line.contains(warned)).unwrap();
    for word in ["WARN", text(&keytab), "mode 0644", "chmod 600"] {
        assert!(line.contains(word), "wanted {word:?} in {line}");
    }
}

#[test]
fn node_needs_a_usable_keytab() {
    let scratch = Scratch::new();
    let Some(kdc) = Peer::start_by("kdc-up", scratch.path(), &["HTTP/localhost"]) else {
        return;
    };
    let keytab = kdc.dir.join("keytab");
    let (command, _) = node_of(&scratch, &kdc, &keytab);
    let refused = |command: Command, words: &[&str]| {
        // One that does start would never end.
        let said = ours_within(20, command, [""; 0]);
        assert_eq!(said.status, Some(2), "{said}");
        for word in words {
            assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
        }
    };
    let fact = "only keys of HTTP/localhost@GODWIT.TEST in it, and none of ftp/HOST or host/HOST";
    refused(command, &[text(&keytab), fact, "ktadd -k KEYTAB ftp/HOST"]);

    let good = Scratch::new();
    let Some(kdc) = Peer::start_by("kdc-up", good.path(), &[]) else {
        return;
    };
    for dir in ["missing", "people"] {
        let (mut command, _) = node_of(&good, &kdc, &kdc.dir.join("keytab"));
        let place = kdc.dir.join(dir);
        command.env("KRB5RCACHEDIR", &place);
        let fact = format!("the replay cache cannot be written: {}: ", place.display());
        refused(command, &[&fact, "node.user", "KRB5RCACHEDIR"]);
    }
}

#[test]
fn wrongly_protected_messages_are_refused() {
    let Ok(port) = env::var("GODWIT_CHILD") else {
        if let Some(world) = World::new() {
            world.again("wrongly_protected_messages_are_refused");
            let there = fs::read_dir(&world.node.export).unwrap();
            let names: Vec<_> = there.map(|entry| entry.unwrap().file_name()).collect();
            let mut whole: Vec<_> = names.iter().filter(|name| !is_partial(name)).collect();
            whole.sort();
            assert_eq!(whole, ["good", "late", "safe"], "{}", world.log());
        }
        return;
    };
    let port = port.parse().unwrap();
    let sealed = |data: &Blockwise, how, parts: &[&[u8]]| {
        let mut blocks = data.begin(how, 1 << 20).unwrap();
        let mut sealed = Vec::new();
        for part in parts {
            match part.is_empty() {
                true => blocks.end(&mut sealed).unwrap(),
                false => blocks.seal(part, &mut sealed).unwrap(),
            }
        }
        sealed
    };
    let store = |name: &str, level: &str, bytes: &dyn Fn(&Blockwise) -> Vec<u8>| {
        let (mut lines, data) = Lines::proved(port);
        let mut stream = lines.data(level);
        assert!(lines.say(&format!("STOR {name}")).starts_with("150 "));
        stream.write_all(&bytes(&data)).unwrap();
        // A client that is told to wait for more waits in vain, and says so only later.
        if !name.starts_with("open") {
            drop(stream);
            return lines.reply();
        }
        let said = lines.reply();
        drop(stream);
        said
    };
    let (safe, private) = (Wrapping::Safe, Wrapping::Private);
    let good = store("good", "P", &|data| sealed(data, private, &[b"bytes", b""]));
    assert!(good.starts_with("226 "), "{good}");
    let good = store("safe", "S", &|data| sealed(data, safe, &[b"bytes", b""]));
    assert!(good.starts_with("226 "), "{good}");

    // The library knows 64 tokens back; an older one counts as replayed.
    let (mut lines, data) = Lines::proved(port);
    let mut stream = lines.data("P");
    assert!(lines.say("STOR late").starts_with("150 "));
    let before: Vec<u8> = (0..200)
        .flat_map(|_| sealed(&data, private, &[b"bytes"]))
        .collect();
    lines.send("STAT");
    let mut told = String::new();
    while !told.starts_with("632 ") {
        told.clear();
        assert!(lines.socket.read_line(&mut told).unwrap() > 0);
    }
    stream.write_all(&before).unwrap();
    stream.write_all(&sealed(&data, private, &[b""])).unwrap();
    drop(stream);
    let late = lines.reply();
    assert!(late.starts_with("226 "), "{late}");

    let readable = store("readable", "P", &|data| {
        sealed(data, safe, &[b"bytes", b""])
    });
    assert!(readable.contains("everybody could read"), "{readable}");
    let cut = store("cut", "P", &|data| sealed(data, private, &[b"bytes"]));
    assert!(cut.starts_with("426 ") || cut.starts_with('5'), "{cut}");
    assert!(
        cut.contains("the last block of the data is missing"),
        "{cut}"
    );
    let twice = store("twice", "P", &|data| {
        let once = sealed(data, private, &[b"bytes"]);
        [once.clone(), once, sealed(data, private, &[b""])].concat()
    });
    assert!(twice.contains("twice"), "{twice}");
    let turned = store("turned", "P", &|data| {
        let one = sealed(data, private, &[b"one"]);
        let other = sealed(data, private, &[b"other"]);
        [other, one, sealed(data, private, &[b""])].concat()
    });
    assert!(turned.contains("out of its turn"), "{turned}");
    let clear = store("clear", "P", &|_| b"no block at all".to_vec());
    assert!(clear.contains("agreed on"), "{clear}");
    let long = store("open-long", "P", &|_| vec![0x7f; 100]);
    assert!(long.contains("agreed on"), "{long}");
    let changed = store("changed", "S", &|data| {
        let mut bytes = sealed(data, safe, &[b"bytes", b""]);
        bytes[25] ^= 1;
        bytes
    });
    assert!(
        changed.starts_with("426 ") || changed.starts_with('5'),
        "{changed}"
    );

    let (mut lines, _) = Lines::proved(port);
    assert!(lines.say("PROT P").starts_with("503 "));
    assert!(lines.say("PBSZ 10").starts_with("501 "));
    assert!(lines.say("PROT E").starts_with("536 "));
    assert!(lines.say("DCAU A").starts_with("504 "));
    let ticket = lines.ticket.as_mut().unwrap();
    let line = format!("ENC {}", base64::encode(&ticket.wrap(b"NOOP\r\n").unwrap()));
    lines.raw(&line);
    assert!(lines.reply().starts_with("200 "));
    lines.raw(&line);
    assert_eq!(lines.reply(), "", "a line said twice ends it");
    let (mut lines, _) = Lines::proved(port);
    lines.raw("NOOP");
    assert_eq!(lines.reply(), "", "a line in clear ends it");
}

fn is_partial(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with('.')
}
