//! Explicit TLS (RFC 4217) with passwords and tokens: clients of others against our node, our
//! client against servers of others, and what goes wrong.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Node, Peer, Said, account, assert_same, assert_same_tree, godwit, have,
    lab::{DAY, Lab, authority, quick},
    noise, ours, ours_within, run, text,
};
use godwit_trust::lab::{Issue, write_pair};
use std::{
    fs::{self, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::SystemTime,
};

const SIZES: [usize; 4] = [0, 1, 300_000, 5_000_003];
const PASSWORD: &str = "open-sesame";

/// A node that only Alice may enter, with a password.
struct World {
    lab: Lab,
    node: Node,
}

impl World {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(more: &[&str]) -> Self {
        let lab = Lab::new();
        write_private(&lab.path("passwords"), &line_of(&account(), PASSWORD));
        let passwords = lab.text("passwords");
        let options = [&["--passwords", &*passwords][..], more].concat();
        let node = lab.node_at(&lab.path("export"), "host", &options);
        Self { lab, node }
    }

    fn authority(&self) -> String {
        authority_file(&self.lab)
    }

    fn exported(&self, name: &str) -> PathBuf {
        self.node.export.join(name)
    }

    fn url(&self, path: &str) -> String {
        format!(
            "ftp://{}:{PASSWORD}@localhost:{}/{path}",
            account(),
            self.node.port
        )
    }
}

fn authority_file(lab: &Lab) -> String {
    let file = format!("{}.0", lab.ca.hash());
    text(&lab.ca.certificates().join(file)).into()
}

/// The line that `godwit auth password` prints.
fn line_of(name: &str, password: &str) -> String {
    let mut child = godwit()
        .args(["auth", "password", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = format!("{password}\n");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(said.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn write_private(path: &Path, text: &str) {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Our client, which believes the laboratory's authority.
fn client(lab: &Lab, args: &[&str]) -> Said {
    let mut command = godwit();
    command
        .env("X509_CERT_DIR", lab.ca.certificates())
        .env_remove("X509_USER_PROXY");
    ours_within(60, command, args)
}

#[track_caller]
fn refused(said: Said, status: i32, words: &[&str]) {
    assert_eq!(said.status, Some(status), "{said}");
    for word in words {
        assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
    }
}

// --- clients of others --------------------------------------------------------------------------

fn curl(world: &World, flags: &[&str]) -> Said {
    let (ca, who) = (world.authority(), format!("{}:{PASSWORD}", account()));
    let own = ["-sS", "--ssl-reqd", "--cacert", &*ca, "--user", &*who];
    run(60, "curl", [&own[..], flags].concat())
}

#[test]
fn curl_gets_puts_and_lists() {
    if !have("curl") {
        return;
    }
    let world = World::new();
    let at = |name: &str| format!("ftp://localhost:{}/{name}", world.node.port);
    // Not --ftp-port: curl 7.88 stumbles over its own address then.
    let ways: [&[&str]; 3] = [&[], &["--tls-max", "1.2"], &["--ftp-ssl-control"]];
    for way in ways {
        for size in SIZES {
            let source = world.lab.scratch.file("source", size);
            let got = world.lab.path("got");
            curl(&world, &[way, &["-T", text(&source), &*at("put")]].concat()).ok();
            assert_same(&source, &world.exported("put"));
            curl(&world, &[way, &["-o", text(&got), &*at("put")]].concat()).ok();
            // curl makes no empty file.
            if size > 0 {
                assert_same(&source, &got);
                fs::remove_file(got).unwrap();
            }
        }
        let listed = curl(&world, &[way, &["-l", &*at("")]].concat()).ok();
        assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "put");
    }
}

#[test]
fn curl_needs_password_and_tls() {
    if !have("curl") {
        return;
    }
    let world = World::new();
    let at = format!("ftp://localhost:{}/", world.node.port);
    let ca = world.authority();
    let wrong = [
        "-sS",
        "--ssl-reqd",
        "--cacert",
        &*ca,
        "--user",
        "alice:no",
        &*at,
    ];
    assert_eq!(run(60, "curl", wrong).status, Some(67));
    let clear = run(
        60,
        "curl",
        [
            "-sSv",
            "--user",
            &*format!("{}:{PASSWORD}", account()),
            &*at,
        ],
    );
    assert_eq!(clear.status, Some(67), "{clear}");
    assert!(clear.stderr.contains("say AUTH TLS first"), "{clear}");
    assert!(!clear.stderr.contains("> PASS"), "{clear}");
}

#[test]
fn lftp_mirrors_with_protected_data() {
    if !have("lftp") {
        return;
    }
    let world = World::new();
    let source = world.lab.scratch.dir("source/deep/er");
    for (i, size) in SIZES.iter().enumerate() {
        fs::write(source.join(format!("{size} bytes")), noise(*size, i as u64)).unwrap();
    }
    for passive in ["yes", "no"] {
        let script = format!(
            "set ftp:ssl-force yes; set ftp:ssl-protect-data yes; set ftp:ssl-protect-list yes; \
             set ssl:verify-certificate yes; set ssl:ca-file {ca}; set ftp:passive-mode {passive}; \
             set net:max-retries 1; set net:timeout 20; set cmd:fail-exit yes; \
             open -u {who},{PASSWORD} ftp://localhost:{port}; \
             mirror -R {there} up-{passive}; mirror up-{passive} {back}-{passive}; ls up-{passive}",
            who = account(),
            ca = world.authority(),
            port = world.node.port,
            there = text(&world.lab.path("source")),
            back = text(&world.lab.path("back")),
        );
        run(90, "lftp", ["--norc", "-c", &*script]).ok();
        let up = world.exported(&format!("up-{passive}"));
        assert_same_tree(&world.lab.path("source"), &up);
        let back = world.lab.path(&format!("back-{passive}"));
        assert_same_tree(&world.lab.path("source"), &back);
    }
}

const PYTHON: &str = r#"
import ftplib, io, ssl, sys
port, ca, export, password = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
data = bytes(range(256)) * 20000
f = ftplib.FTP_TLS(timeout=20, context=ssl.create_default_context(cafile=ca))
f.connect("localhost", port)
f.login(sys.argv[5], password)
f.prot_p()
for way in True, False:
    f.set_pasv(way)
    f.storbinary("STOR file", io.BytesIO(data))
    assert open(f"{export}/file", "rb").read() == data
    got = []
    f.retrbinary("RETR file", got.append)
    assert b"".join(got) == data
    got = []
    f.retrbinary("RETR file", got.append, rest=1000000)
    assert b"".join(got) == data[1000000:]
    assert f.nlst() == ["file"], f.nlst()
    assert "file" in [name for name, _ in f.mlsd()]
f.prot_c()
f.set_pasv(True)
got = []
f.retrbinary("RETR file", got.append)
assert b"".join(got) == data
try:
    f.ccc()
    sys.exit("CCC was taken")
except ftplib.error_perm as refused:
    assert str(refused).startswith("534"), refused
f.quit()
"#;

#[test]
fn python_ftplib_talks_under_tls() {
    if !have("python3") {
        return;
    }
    let world = World::new();
    let (port, ca) = (world.node.port.to_string(), world.authority());
    let export = text(&world.node.export);
    let who = account();
    let args = ["-c", PYTHON, &*port, &*ca, export, PASSWORD, &who];
    run(60, "python3", args).ok();
}

// --- ours to ours -------------------------------------------------------------------------------

#[test]
fn password_and_token_log_in() {
    let world = World::new();
    let made = ours(["auth", "token", &account(), "--json"]).ok();
    let made = String::from_utf8(made.stdout).unwrap();
    let made: serde_json::Value = serde_json::from_str(made.lines().next().unwrap()).unwrap();
    let both = [
        &line_of(&account(), PASSWORD),
        made["line"].as_str().unwrap(),
    ]
    .concat();
    write_private(&world.lab.path("passwords"), &both);
    let token = format!("token:{}", made["token"].as_str().unwrap());
    for who in [format!("{}:{PASSWORD}", account()), token] {
        let at = format!("ftp://{who}@localhost:{}", world.node.port);
        for size in [0, 1, 1_048_577, 40_000_000] {
            let source = world.lab.scratch.file("source", size);
            let (there, back) = (format!("{at}/file"), world.lab.path("back"));
            let flags = ["cp", "-f", "--private"];
            let put = [&flags[..], &[text(&source), &there]].concat();
            client(&world.lab, &put).ok();
            assert_same(&source, &world.exported("file"));
            let get = [&flags[..], &[&there, text(&back)]].concat();
            client(&world.lab, &get).ok();
            assert_same(&source, &back);
        }
        let tree = world.lab.scratch.dir("tree/a/b");
        for i in 0..30 {
            fs::write(tree.join(i.to_string()), noise(i * 1000, i as u64)).unwrap();
        }
        let (up, from) = (format!("{at}/tree"), world.lab.text("tree"));
        client(&world.lab, &["cp", "-r", "--private", &from, &up]).ok();
        assert_same_tree(&world.lab.path("tree"), &world.exported("tree"));
        let back = world.lab.text("tree-back");
        client(&world.lab, &["cp", "-r", "--private", &up, &back]).ok();
        assert_same_tree(&world.lab.path("tree"), &world.lab.path("tree-back"));
        for verb in ["ls", "stat", "du", "find", "sum"] {
            client(
                &world.lab,
                &[verb, "--private", &format!("{at}/tree/a/b/1")],
            )
            .ok();
        }
        client(&world.lab, &["mkdir", "--private", &format!("{at}/new")]).ok();
        client(&world.lab, &["rm", "-r", "--private", &up]).ok();
        client(&world.lab, &["rm", "-r", "--private", &format!("{at}/new")]).ok();
        fs::remove_dir_all(world.lab.path("tree-back")).unwrap();
    }
    let log = fs::read_to_string(world.node.export.with_extension("log")).unwrap();
    assert!(log.contains("login") && !log.contains(PASSWORD), "{log}");
}

#[test]
fn third_party_tls_passes_client() {
    let world = World::new();
    let passwords = world.lab.text("passwords");
    let export = world.lab.path("other");
    let other = world
        .lab
        .node_at(&export, "host", &["--passwords", &passwords]);
    let source = noise(3_000_000, 5);
    fs::write(world.exported("file"), &source).unwrap();
    let to = format!(
        "ftp://{}:{PASSWORD}@localhost:{}/file",
        account(),
        other.port
    );
    client(&world.lab, &["cp", "--private", &world.url("file"), &to]).ok();
    assert!(fs::read(export.join("file")).unwrap() == source);
}

// --- what goes wrong ----------------------------------------------------------------------------

#[test]
fn login_faults_have_own_messages() {
    let world = World::new();
    let lab = &world.lab;
    let ls = |url: &str| client(lab, &["ls", "--private", url]);
    let port = world.node.port;
    let wrong = format!("ftp://alice:no@localhost:{port}/");
    refused(ls(&wrong), 13, &["no such user, or another password"]);
    let clear = client(lab, &["ls", &world.url("")]);
    refused(clear, 13, &["say AUTH TLS first"]);

    lab.host("other", &["other.example"]);
    let other = lab.node("other");
    let at = format!("ftp://localhost:{}/", other.port);
    refused(ls(&at), 13, &["is for other.example, not for localhost"]);

    let stranger = authority(&lab.path("stranger"), "/O=Other/CN=CA");
    let mut command = godwit();
    command.env("X509_CERT_DIR", stranger.certificates());
    let said = ours_within(60, command, ["ls", "--private", &*world.url("")]);
    refused(
        said,
        13,
        &[
            "is vouched for by /O=Lab/CN=Lab CA",
            "has no such authority",
        ],
    );

    let plain = Node::start(&lab.path("plain"));
    refused(ls(&plain.url("")), 1, &["does not take AUTH TLS (504"]);
    let safe = client(lab, &["cp", "--safe", &plain.url("x"), &lab.text("x")]);
    refused(safe, 2, &["goes in clear"]);
}

#[test]
fn system_authorities_are_trusted() {
    let world = World::new();
    let (url, ca) = (world.url(""), world.authority());
    let ls = |authority: &str| {
        let mut command = godwit();
        command.env("SSL_CERT_FILE", authority);
        command.env_remove("X509_CERT_DIR");
        ours_within(60, command, ["ls", "--private", &*url])
    };
    ls(&ca).ok();
    refused(ls("/dev/null"), 13, &["has no such authority"]);
    // A name that is not the certificate's is refused by any authority.
    world.lab.host("other", &["other.example"]);
    let other = world.lab.node("other");
    let mut command = godwit();
    command
        .env("SSL_CERT_FILE", &ca)
        .env_remove("X509_CERT_DIR");
    let at = format!("ftp://localhost:{}/", other.port);
    let said = ours_within(60, command, ["ls", "--private", &*at]);
    refused(said, 13, &["is for other.example, not for localhost"]);
}

#[test]
fn passwords_without_tls_are_no_configuration() {
    let lab = Lab::new();
    write_private(&lab.path("passwords"), &line_of(&account(), PASSWORD));
    let passwords = lab.text("passwords");
    let export = lab.text("export");
    fs::create_dir(&export).unwrap();
    let node = [
        "node",
        "--export",
        &*export,
        "--ftp",
        "127.0.0.1:0",
        "--passwords",
        &*passwords,
    ];
    refused(ours(node), 2, &["under TLS only", "--host-cert"]);
}

#[test]
fn expired_certificate_is_refused() {
    let lab = Lab::new();
    let old = Issue {
        not_before: SystemTime::now() - DAY * 20,
        not_after: SystemTime::now() - DAY,
        ..quick(Issue::host(&["localhost"]))
    };
    let old = lab.ca.issue(&old).unwrap();
    write_pair(&old, &lab.path("old.pem"), &lab.path("old.key")).unwrap();
    let Some(peer) = vsftpd(&lab, "old") else {
        return;
    };
    let said = client(&lab, &["ls", "--private", &at(&peer, "")]);
    refused(said, 13, &["expired", "the other side must renew it"]);
}

/// A server that answers each line with the next word; returns the lines.
fn pretender(words: &'static [&'static str]) -> (u16, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let told = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let mut heard = Vec::new();
        for word in words {
            stream.write_all(word.as_bytes()).unwrap();
            let mut line = Vec::new();
            if lines.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                break;
            }
            heard.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        let mut rest = Vec::new();
        let _ = lines.read_to_end(&mut rest);
        heard.push(String::from_utf8_lossy(&rest).into_owned());
        heard
    });
    (port, told)
}

#[test]
fn password_needs_tls_first() {
    let lab = Lab::new();
    let at = |port| format!("ftp://alice:{PASSWORD}@localhost:{port}/x");
    let (port, told) = pretender(&["220 hello\r\n", "502 no\r\n"]);
    let url = at(port);
    let cp = ["cp", "--private", "--retries", "0", &*url, "-"];
    refused(client(&lab, &cp), 1, &["does not take AUTH TLS (502 no)"]);
    let heard = told.join().unwrap();
    assert_eq!(heard[0], "AUTH TLS");
    assert!(!heard.concat().contains("alice"), "{heard:?}");

    // It says that it begins, and goes on in clear.
    let (port, told) = pretender(&["220 hello\r\n", "234 go\r\n230 you are in\r\n"]);
    let url = at(port);
    let cp = ["cp", "--private", "--retries", "0", &*url, "-"];
    let said = client(&lab, &cp);
    assert_ne!(said.status, Some(0), "{said}");
    let heard = told.join().unwrap();
    assert!(!heard.concat().contains("alice"), "{heard:?}");
}

#[test]
fn stalled_handshake_times_out() {
    let lab = Lab::new();
    let (port, told) = pretender(&["220 hello\r\n", "234 go\r\n"]);
    let url = format!("ftp://localhost:{port}/x");
    let cp = [
        "cp",
        "--private",
        "--retries",
        "0",
        "--stall-timeout",
        "1",
        &*url,
        "-",
    ];
    let said = client(&lab, &cp);
    assert_ne!(said.status, Some(0), "{said}");
    assert!(said.stderr.contains("nothing came for"), "{said}");
    told.join().unwrap();
}

// --- servers of others --------------------------------------------------------------------------

/// A server with its strictest settings.
fn vsftpd(lab: &Lab, host: &str) -> Option<Peer> {
    let options = [
        "ssl_enable=YES".into(),
        "allow_anon_ssl=YES".into(),
        "force_anon_logins_ssl=YES".into(),
        "force_anon_data_ssl=YES".into(),
        "require_ssl_reuse=YES".into(),
        "strict_ssl_read_eof=YES".into(),
        "ssl_ciphers=HIGH".into(),
        format!("rsa_cert_file={}", lab.text(&format!("{host}.pem"))),
        format!("rsa_private_key_file={}", lab.text(&format!("{host}.key"))),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Peer::start_by("vsftpd-up", lab.scratch.path(), &options)
}

fn pureftpd(lab: &Lab) -> Option<Peer> {
    let both = ["host.pem", "host.key"].map(|name| fs::read_to_string(lab.path(name)).unwrap());
    write_private(&lab.path("both.pem"), &both.concat());
    let options = ["--tls", "3", "--certfile", &*lab.text("both.pem")];
    Peer::start_by("pureftpd-up", lab.scratch.path(), &options)
}

fn at(peer: &Peer, path: &str) -> String {
    peer.url(path).replacen("127.0.0.1", "localhost", 1)
}

fn there_and_back(lab: &Lab, url: &dyn Fn(&str) -> String, peer: &Peer) {
    for size in SIZES {
        let source = lab.scratch.file("source", size);
        let (there, back) = (url("file"), lab.path("back"));
        client(lab, &["cp", "-f", "--private", text(&source), &there]).ok();
        assert_same(&source, &peer.r#where.join("file"));
        client(lab, &["cp", "-f", "--private", &there, text(&back)]).ok();
        assert_same(&source, &back);
    }
    let tree = lab.scratch.dir("tree/a/b");
    for i in 0..10 {
        fs::write(tree.join(i.to_string()), noise(i * 1000, i as u64)).unwrap();
    }
    client(
        lab,
        &["cp", "-r", "--private", &lab.text("tree"), &url("tree")],
    )
    .ok();
    assert_same_tree(&lab.path("tree"), &peer.r#where.join("tree"));
    let back = lab.text("tree-back");
    client(lab, &["cp", "-r", "--private", &url("tree"), &back]).ok();
    assert_same_tree(&lab.path("tree"), &lab.path("tree-back"));
    let listed = client(lab, &["ls", "--private", &url("tree/a")]).ok();
    assert!(
        String::from_utf8_lossy(&listed.stdout).contains('b'),
        "{listed}"
    );
}

#[test]
fn vsftpd_accepts_resumed_sessions() {
    let lab = Lab::new();
    let Some(peer) = vsftpd(&lab, "host") else {
        return;
    };
    there_and_back(&lab, &|path| at(&peer, path), &peer);
    let clear = client(&lab, &["ls", &at(&peer, "")]);
    assert_ne!(clear.status, Some(0), "{clear}");
}

#[test]
fn pureftpd_accepts_tls_everywhere() {
    let lab = Lab::new();
    let Some(peer) = pureftpd(&lab) else {
        return;
    };
    let url = |path: &str| at(&peer, path).replacen("ftp://", "ftp://tester:tester@", 1);
    there_and_back(&lab, &url, &peer);
}

// --- passwords that stand elsewhere -------------------------------------------------------------

#[test]
fn netrc_supplies_password() {
    let world = World::new();
    world.lab.scratch.file("export/f", 10);
    let home = world.lab.scratch.dir("home");
    let netrc = home.join(".netrc");
    let entry = format!(
        "machine localhost login {} password {PASSWORD}\n",
        account()
    );
    write_private(&netrc, &entry);
    let url = |who: &str| format!("ftp://{who}localhost:{}/f", world.node.port);
    let cat = |named: Option<&Path>, url: &str| {
        let mut command = godwit();
        command
            .env("HOME", &home)
            .env("X509_CERT_DIR", world.lab.ca.certificates());
        if let Some(file) = named {
            command.env("NETRC", file);
        }
        ours_within(60, command, ["cat", "--private", url])
    };
    cat(None, &url(&format!("{}@", account()))).ok();
    cat(None, &url("")).ok(); // the first of that host
    refused(cat(None, &url("bob@")), 13, &["login refused", "~/.netrc"]);
    // The URL wins.
    refused(cat(None, &url("alice:wrong@")), 13, &["login refused"]);

    let other = world.lab.path("other");
    write_private(&other, "machine elsewhere login alice password x\n");
    refused(
        cat(Some(&other), &url(&format!("{}@", account()))),
        13,
        &["login refused"],
    );
    let missing = world.lab.path("missing");
    refused(
        cat(Some(&missing), &url(&format!("{}@", account()))),
        13,
        &["missing: is not there, but NETRC names it"],
    );
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o640)).unwrap();
    let said = cat(None, &url(&format!("{}@", account())));
    assert!(!said.stderr.contains(PASSWORD), "{said}");
    refused(said, 13, &[".netrc: others may use it", "hint: chmod 600"]);
}

#[test]
fn clear_login_needs_named_user() {
    let lab = Lab::new();
    let node = Node::start(&lab.path("plain"));
    lab.scratch.file("plain/f", 10);
    let netrc = lab.path("netrc");
    write_private(
        &netrc,
        "machine localhost login alice password secret-word\n",
    );
    let mut command = godwit();
    command.env("NETRC", &netrc).env("GODWIT_LOG", "trace");
    let url = format!("ftp://localhost:{}/f", node.port);
    let said = ours_within(60, command, ["cat", &url]).ok();
    assert!(
        !said.stderr.contains("secret-word") && !said.stderr.contains("alice"),
        "{said}"
    );
}
