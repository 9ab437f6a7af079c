//! `gsiftp:` from end to end: our client with our node, and with the server of the Grid
//! Community Toolkit. Authorities are made here.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    Node, Said, Scratch, assert_same, godwit, have,
    lab::{DAY, Lab, authority, quick, url},
    ours_within, skip,
};
use godwit_trust::lab::{Issue, write_pair, write_proxy};
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

#[test]
fn files_move_by_gsi() {
    let lab = Lab::new();
    let node = lab.node("host");
    for (size, way) in [
        (0, &["--clear"][..]),
        (1, &[]),
        (3_000_000, &["--streams", "4"]),
        (0, &["--private"]),
        (3_000_000, &["--private", "--streams", "4"]),
        (3_000_000, &["--private", "--no-verify"]),
        (2_000_000, &["--safe"]),
    ] {
        let file = lab.scratch.file(format!("f{size}"), size);
        let (there, back) = (url(&node, "f"), lab.path("back"));
        let file_name = file.to_str().unwrap();
        let copy = |from: &str, to: &str| lab.run("alice", &[&["cp"], way, &[from, to]].concat());
        copy(file_name, &there).ok();
        assert_same(&file, &node.export.join("f"));
        copy(&there, back.to_str().unwrap()).ok();
        assert_same(&file, &back);
    }
}

#[test]
fn tree_moves_in_one_session() {
    let lab = Lab::new();
    let node = lab.node("host");
    for i in 0..100 {
        lab.scratch.file(format!("tree/d{}/{i}", i % 3), i * 100);
    }
    lab.scratch.file("tree/new\nline", 5);
    let tree = lab.path("tree");
    lab.run(
        "alice",
        &["cp", "-r", tree.to_str().unwrap(), &url(&node, "t")],
    )
    .ok();
    let back = lab.path("back");
    lab.run(
        "alice",
        &["cp", "-r", &url(&node, "t"), back.to_str().unwrap()],
    )
    .ok();
    for i in 0..100 {
        let name = format!("d{}/{i}", i % 3);
        assert_same(&tree.join(&name), &back.join(&name));
    }
    assert_same(&tree.join("new\nline"), &back.join("new\nline"));
}

#[test]
fn failed_login_names_next_step() {
    let lab = Lab::new();
    let node = lab.node("host");
    let at = url(&node, "");

    lab.proxy("bob", &lab.ca.issue(&quick(Issue::user("bob"))).unwrap());
    lab.refused(
        "bob",
        &at,
        &[
            "login refused",
            "/O=Lab/CN=bob has no account here",
            "hint: see what was shown: godwit proxy info",
        ],
    );

    let short = Issue {
        not_before: SystemTime::now() - DAY,
        not_after: SystemTime::now() - Duration::from_secs(60),
        ..quick(Issue::user("alice"))
    };
    let old = lab.ca.issue(&short).unwrap();
    write_proxy(&old, &lab.path("old")).unwrap();
    lab.refused(
        "old",
        &at,
        &["our certificate", "expired", "old", "hint: renew it"],
    );

    let other = authority(&lab.path("other"), "/O=Other/CN=CA");
    lab.proxy("eve", &other.issue(&quick(Issue::user("eve"))).unwrap());
    lab.refused(
        "eve",
        &at,
        &["Authentication failed", "has no such authority"],
    );

    lab.refused("nowhere", &at, &["nowhere: is not there"]);

    let said = ours_within(
        60,
        {
            let mut command = godwit();
            command.env("X509_USER_PROXY", lab.path("alice"));
            command.env("X509_CERT_DIR", other.certificates());
            command
        },
        ["ls", &at],
    );
    assert_eq!(said.status, Some(13), "{said}");
    assert!(said.stderr.contains("has no such authority"), "{said}");
    assert!(
        said.stderr.contains("hint: if you trust that authority"),
        "{said}"
    );

    // Anonymous users are told how others come in.
    let said = lab.run("alice", &["ls", &format!("ftp://localhost:{}/", node.port)]);
    assert!(said.stderr.contains("gsiftp://"), "{said}");
}

#[test]
fn broken_credentials_appear_in_log() {
    let lab = Lab::new();
    let node = lab.node("host");
    let (at, ours) = (url(&node, ""), lab.scratch.path().to_str().unwrap());
    let log = || fs::read_to_string(node.export.with_extension("log")).unwrap();
    let refused = |proxy: &str, words: &[&str], logged: &[&str]| {
        let before = log().len();
        let said = lab.run(proxy, &["ls", &at]);
        assert_eq!(said.status, Some(13), "{said}");
        assert!(!said.stderr.contains(ours), "a path of the node in {said}");
        for word in words {
            assert!(said.stderr.contains(word), "wanted {word:?} in {said}");
        }
        let log = log().split_off(before);
        for word in logged {
            assert!(log.contains(word), "wanted {word:?} in {log}");
        }
    };
    let (map, dir) = (lab.text("gridmap"), lab.ca.certificates());
    lab.proxy("bob", &lab.ca.issue(&quick(Issue::user("bob"))).unwrap());
    let none = "CN=bob has no account here (the gridmap does not say so)";
    refused("bob", &[none, "godwit proxy info"], &[&map]);

    let other = authority(&lab.path("other"), "/O=Other/CN=CA");
    lab.proxy("eve", &other.issue(&quick(Issue::user("eve"))).unwrap());
    let unknown = ["this node has no such authority", "godwit proxy info"];
    refused("eve", &unknown, &[dir.to_str().unwrap()]);

    fs::remove_file(lab.path("gridmap")).unwrap();
    let unread = [
        "this node cannot read its gridmap",
        "hint: tell whoever runs the node",
    ];
    refused("alice", &unread, &[&map, "no such file"]);
}

#[test]
fn node_warns_of_impossible_logins() {
    let lab = Lab::new();
    fs::write(lab.path("half"), "\"/O=Lab/CN=alice alice\n").unwrap();
    let past = SystemTime::now() - Duration::from_secs(60);
    let old = Issue {
        not_before: past - DAY,
        not_after: past,
        ..quick(Issue::host(&["localhost"]))
    };
    let old = lab.ca.issue(&old).unwrap();
    write_pair(&old, &lab.path("old.pem"), &lab.path("old.key")).unwrap();
    let certificates = lab.ca.certificates();
    for (host, gridmap, words) in [
        ("host", "nowhere", "nowhere: no such file"),
        (
            "host",
            "half",
            "half: line 1: the quotation mark is not closed",
        ),
        ("old", "gridmap", "localhost expired"),
    ] {
        let (cert, key) = (
            lab.text(&format!("{host}.pem")),
            lab.text(&format!("{host}.key")),
        );
        let (map, authorities) = (lab.text(gridmap), certificates.to_str().unwrap());
        let export = lab.scratch.dir("export");
        let serve = ["node", "--ftp", "127.0.0.1:0", "--export"];
        let flags = [
            "--host-cert",
            &cert,
            "--host-key",
            &key,
            "--ca-dir",
            authorities,
            "--gridmap",
            &map,
        ];
        let said = ours_within(
            20,
            godwit(),
            [&serve[..], &[export.to_str().unwrap()], &flags].concat(),
        );
        assert_eq!(said.status, Some(2), "{said}");
        assert!(said.stderr.contains(words), "wanted {words:?} in {said}");

        // A fault that was not reported at the start may be repaired while the node serves.
        let config = format!(
            "[trust]\ncertificate = {cert:?}\nkey = {key:?}\nauthorities = {authorities:?}\ngridmap = {map:?}\n"
        );
        fs::write(lab.path("node.toml"), config).unwrap();
        let node = Node::with(&export, &["--config", &lab.text("node.toml")]);
        let log = fs::read_to_string(node.export.with_extension("log")).unwrap();
        let warning = log.lines().find(|line| line.contains("can log in"));
        let warning = warning.unwrap_or_else(|| panic!("no warning in {log}"));
        assert!(
            warning.contains("WARN") && warning.contains(words),
            "{warning}"
        );
    }
}

#[test]
fn server_identity_is_verified() {
    let lab = Lab::new();
    lab.host("else", &["fermi.example.org"]);
    let node = lab.node("else");
    lab.refused(
        "alice",
        &url(&node, ""),
        &[
            "for fermi.example.org, not for localhost",
            "hint: use the name",
        ],
    );
    let log = fs::read_to_string(node.export.with_extension("log")).unwrap();
    assert!(!log.contains("authenticated"), "{log}");
}

#[test]
fn server_subject_replaces_host_name() {
    let lab = Lab::new();
    lab.host("else", &["fermi.example.org"]);
    let (here, there) = (lab.node("host"), lab.node("else"));
    let file = lab.scratch.file("f", 300_000);
    let (f, back) = (file.to_str().unwrap(), lab.text("back"));
    let (fermi, local) = ("/O=Lab/CN=fermi.example.org", "/O=Lab/CN=localhost");
    let (to, from) = (url(&there, "f"), url(&here, "f"));

    let cp = |args: &[&str]| lab.run("alice", &[&["cp"], args].concat());
    let wrong = |args: &[&str], words: &str| {
        let said = cp(args);
        assert_eq!(said.status, Some(13), "{said}");
        assert!(said.stderr.contains(words), "{said}");
    };
    cp(&["--subject", fermi, f, &to]).ok();
    cp(&["--subject", fermi, &to, &back]).ok();
    assert_same(&file, &lab.path("back"));
    cp(&["--subject", local, f, &from]).ok(); // by both names
    wrong(
        &["--subject", local, f, &to],
        "the peer is /O=Lab/CN=fermi.example.org, not /O=Lab/CN=localhost",
    );

    // In a copy between two servers each end has its own subject.
    cp(&["--target-subject", fermi, &from, &to]).ok();
    cp(&[
        "--source-subject",
        fermi,
        "--target-subject",
        local,
        &to,
        &from,
    ])
    .ok();
    wrong(
        &[
            "--source-subject",
            fermi,
            "--target-subject",
            fermi,
            &from,
            &to,
        ],
        "the peer is /O=Lab/CN=localhost, not",
    );
    wrong(
        &["--target-subject", local, &from, &to],
        "the peer is /O=Lab/CN=fermi.example.org, not",
    );

    // A server without a proof has no subject.
    let plain = format!("ftp://localhost:{}/f", here.port);
    let said = cp(&["--subject", local, f, &plain]);
    assert_eq!(said.status, Some(2), "{said}");
    assert!(said.stderr.contains("ftp: proves nothing"), "{said}");
    let said = cp(&["--safe", f, &plain]);
    assert_eq!(said.status, Some(2), "{said}");
    assert!(said.stderr.contains("ftp: goes in clear"), "{said}");
    let said = cp(&["--subject", "fermi", f, &to]);
    assert_eq!(said.status, Some(2), "{said}");
}

#[test]
fn every_verb_accepts_server_subject() {
    let lab = Lab::new();
    lab.host("else", &["fermi.example.org"]);
    let node = lab.node("else");
    lab.scratch.file("export-else/f", 100);
    let (at, file, dir) = (url(&node, ""), url(&node, "f"), url(&node, "d"));
    for line in [
        ["mkdir", &dir],
        ["ls", &at],
        ["stat", &file],
        ["cat", &file],
        ["sum", &file],
        ["du", &at],
        ["find", &at],
        ["rm", &file],
    ] {
        let said = lab.run("alice", &line);
        assert_eq!(said.status, Some(13), "{said}");
        let hint = "--subject '/O=Lab/CN=fermi.example.org'";
        assert!(said.stderr.contains(hint), "wanted {hint} in {said}");
        let subject = ["--subject", "/O=Lab/CN=fermi.example.org"];
        lab.run("alice", &[&line[..], &subject].concat()).ok();
        let other = ["--subject", "/O=Lab/CN=localhost"];
        let said = lab.run("alice", &[&line[..], &other].concat());
        assert_eq!(said.status, Some(13), "{said}");
    }
}

#[test]
fn server_without_gsi_is_named() {
    let lab = Lab::new();
    let node = Node::start(&lab.path("export"));
    lab.refused(
        "alice",
        &url(&node, ""),
        &["AUTH GSSAPI is not offered here"],
    );
}

#[test]
fn files_move_with_globus_server() {
    let Some(globus) = Globus::start() else {
        return;
    };
    for size in [0, 1, 5_000_000] {
        let file = globus.scratch.file("f", size);
        let back = globus.scratch.join("back");
        let file_name = file.to_str().unwrap();
        for way in [
            &["--streams", "1"][..],
            &["--streams", "4"],
            &["--safe"],
            &["--private", "--streams", "1"],
            &["--private", "--streams", "3"],
        ] {
            let copy = |from: &str, to: &str| globus.run(&[&["cp"], way, &[from, to]].concat());
            copy(file_name, &globus.url("f")).ok();
            assert_same(&file, &globus.data().join("f"));
            copy(&globus.url("f"), back.to_str().unwrap()).ok();
            assert_same(&file, &back);
        }
    }
    globus.run(&["ls", "-l", &globus.url("")]).ok();
    globus.run(&["rm", &globus.url("f")]).ok();
    assert!(!globus.data().join("f").exists());
}

#[test]
fn small_files_move_with_globus() {
    let Some(globus) = Globus::start() else {
        return;
    };
    for i in 0..60 {
        globus.scratch.file(format!("tree/d{}/{i}", i % 3), i * 300);
    }
    let (tree, back) = (globus.scratch.join("tree"), globus.scratch.join("back"));
    for way in [&["--clear"], &["--private"]] {
        let there = globus.url(&way[0][2..]);
        let copy =
            |from: &str, to: &str| globus.run(&[&["cp", "-r"], &way[..], &[from, to]].concat());
        copy(tree.to_str().unwrap(), &there).ok();
        copy(&there, back.to_str().unwrap()).ok();
        for i in 0..60 {
            let name = format!("d{}/{i}", i % 3);
            assert_same(&tree.join(&name), &back.join(&name));
        }
        fs::remove_dir_all(&back).unwrap();
    }
}

#[test] //= GRIDFTP-22
fn third_parties_prove_same_user() {
    let Some(globus) = Globus::start() else {
        return;
    };
    let world = globus.scratch.join("world");
    let text = |name: &str| world.join(name).to_str().unwrap().to_owned();
    let start = |name: &str| {
        let options = [
            ("--host-cert", "host1cert.pem"),
            ("--host-key", "host1key.pem"),
            ("--ca-dir", "certs"),
            ("--gridmap", "grid-mapfile"),
        ];
        let mut all = vec!["--anonymous".to_owned(), "write".into()];
        all.extend(
            options
                .iter()
                .flat_map(|(flag, file)| [(*flag).to_owned(), text(file)]),
        );
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        // A node of root acts as the account that the user is mapped to.
        let export = globus.scratch.dir(name);
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&export, everyone).unwrap();
        Node::with(&export, &all)
    };
    let (one, two) = (start("one"), start("two"));
    let file = globus.scratch.file("one/f", 4_000_000);
    for way in ["--clear", "--private"] {
        let copy = |from: &str, to: &str| globus.run(&["cp", way, from, to]).ok();
        copy(&url(&one, "f"), &url(&two, "g"));
        assert_same(&file, &two.export.join("g"));
        copy(&url(&two, "g"), &globus.url("h"));
        assert_same(&file, &globus.data().join("h"));
        copy(&globus.url("h"), &url(&one, "i"));
        assert_same(&file, &one.export.join("i"));
        for path in [
            two.export.join("g"),
            globus.data().join("h"),
            one.export.join("i"),
        ] {
            fs::remove_file(path).unwrap();
        }
    }
    // A server without GSI works in clear, and is refused with `--safe`.
    let plain = format!("ftp://localhost:{}/g", two.port);
    globus.run(&["cp", &url(&one, "f"), &plain]).ok();
    assert_same(&file, &two.export.join("g"));
    let said = globus.run(&["cp", "--safe", &url(&one, "f"), &plain]);
    assert_ne!(said.status, Some(0));
    assert!(said.stderr.contains("ftp: goes in clear"), "{said}");
    // Under TLS, through us.
    globus
        .run(&["cp", "-f", "--private", &url(&one, "f"), &plain])
        .ok();
    assert_same(&file, &two.export.join("g"));
}

/// `globus-gridftp-server` with GSI, in a world of its own.
#[test] //= GRIDFTP-22
fn third_parties_may_differ_in_authorities() {
    let (here, there) = (Lab::new(), Lab::of("/O=Far/CN=Far CA"));
    let (one, two) = (here.node("host"), there.node("host"));
    // Only we know both.
    let both = here.scratch.dir("both");
    for lab in [&here, &there] {
        for file in fs::read_dir(lab.ca.certificates()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), both.join(file.file_name())).unwrap();
        }
    }
    let cp = |more: &[&str]| {
        let mut command = godwit();
        command
            .env("X509_CERT_DIR", &both)
            .env("X509_USER_PROXY", here.path("alice"))
            .env("GODWIT_LOG", "godwit_store=trace");
        ours_within(60, command, ["cp", "-v", "-r"].iter().chain(more))
    };
    let file = here.scratch.file("export-host/data/f", 3_000_000);
    here.scratch.file("export-host/data/g", 3);
    let (from, to) = (url(&one, "data"), url(&two, "data"));
    let theirs = there.text("alice");
    for way in ["--clear", "--safe", "--private"] {
        let said = cp(&[way, "--target-credential", &theirs, &from, &to]).ok();
        assert_same(&file, &two.export.join("data/f"));
        assert!(said.stderr.contains("line=PORT "), "{said}");
        // A credential is delegated, and shown to no other server.
        assert!(said.stderr.contains("line=DCSC …"), "{said}");
        assert!(!said.stderr.contains("PRIVATE"), "{said}");
        fs::remove_dir_all(two.export.join("data")).unwrap();
    }
    // Globus' server knows neither of them.
    if let Some(globus) = Globus::start() {
        for file in fs::read_dir(&globus.world["X509_CERT_DIR"]).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), both.join(file.file_name())).unwrap();
        }
        let (known, back) = (&globus.world["X509_USER_PROXY"], url(&one, "back"));
        for way in ["--clear", "--private"] {
            let said = cp(&[
                way,
                "-f",
                "--target-credential",
                known,
                &from,
                &globus.url("data"),
            ]);
            assert_same(&file, &globus.data().join("data/f"));
            assert!(said.ok().stderr.contains("line=PORT "));
            let said = cp(&[
                way,
                "-f",
                "--source-credential",
                known,
                &globus.url("data"),
                &back,
            ]);
            assert_same(&file, &one.export.join("back/f"));
            assert!(said.ok().stderr.contains("line=PORT "));
            fs::remove_dir_all(globus.data().join("data")).unwrap();
            fs::remove_dir_all(one.export.join("back")).unwrap();
        }
    }
    // The other way round; what was shown to the one counts not at the other.
    let ours = here.text("alice");
    let said = cp(&["--source-credential", &ours, &from, &to]);
    assert_eq!(said.status, Some(13), "{said}");
    let ftp = format!("ftp://localhost:{}/data", two.port);
    let said = cp(&["--target-credential", &theirs, &from, &ftp]);
    assert!(said.stderr.contains("ftp: has no use for it"), "{said}");
    let said = cp(&["--target-credential", "/no/such/proxy", &from, &to]);
    assert_eq!(said.status, Some(2), "{said}");
    assert!(said.stderr.contains("/no/such/proxy"), "{said}");
}

/// The local node has no proxy; each program shows its own.
#[test] //= GASS-13
fn local_node_moves_by_gsi() {
    let lab = Lab::new();
    let node = lab.node("host");
    lab.proxy("bob", &lab.ca.issue(&quick(Issue::user("bob"))).unwrap());
    let certificates = lab.ca.certificates();
    let depot = Depot::of(&lab.scratch, &certificates);
    let source = lab.scratch.file("source", 3_000_001);
    let there = url(&node, "there");
    depot.goes(
        &source,
        &there,
        &node.export.join("there"),
        &lab.path("alice"),
    );
    // A program without access gets no file that others fetched.
    for name in ["bob", "nowhere"] {
        let said = depot.says(Some(&lab.path(name)), &["get", &there, &lab.text("stolen")]);
        assert_eq!(said.status, Some(13), "{name}: {said}");
        assert!(!lab.path("stolen").exists(), "{name}");
    }
    depot.says(None, &["node", "stop"]).ok();
    // The server of Globus gives the same.
    let Some(globus) = Globus::start() else {
        return;
    };
    let depot = Depot::of(&globus.scratch, Path::new(&globus.world["X509_CERT_DIR"]));
    let (there, proxy) = (globus.url("there"), &globus.world["X509_USER_PROXY"]);
    depot.goes(
        &source,
        &there,
        &globus.data().join("there"),
        Path::new(proxy),
    );
    depot.says(None, &["node", "stop"]).ok();
}

/// A local node that caches and spools.
struct Depot<'a> {
    scratch: &'a Scratch,
    certificates: &'a Path,
}

impl<'a> Depot<'a> {
    fn of(scratch: &'a Scratch, certificates: &'a Path) -> Self {
        Self {
            scratch,
            certificates,
        }
    }

    fn says(&self, proxy: Option<&Path>, args: &[&str]) -> Said {
        let mut command = godwit();
        command
            .env("GODWIT_SOCKET", self.scratch.join("run/socket"))
            .env("GODWIT_STATE", self.scratch.join("state"))
            .env("GODWIT_LOCAL_IDLE", "20s")
            .env("X509_CERT_DIR", self.certificates)
            .env_remove("X509_USER_PROXY");
        if let Some(proxy) = proxy {
            command.env("X509_USER_PROXY", proxy);
        }
        ours_within(60, command, args)
    }

    /// Puts a file, reads it locally, and reads a change that another program made at the server.
    fn goes(&self, source: &Path, url: &str, there: &Path, proxy: &Path) {
        // The first program without a node starts it.
        self.says(None, &["queue"]).ok();
        let well = |args: &[&str]| self.says(Some(proxy), args).ok();
        let back = self.scratch.join("back");
        well(&["put", source.to_str().unwrap(), url]);
        well(&["push", "--timeout", "30", url]);
        assert_same(source, there);
        fs::write(there, "a foreign change").unwrap();
        well(&["get", "--fresh", url, back.to_str().unwrap()]);
        assert_same(&back, there);
        let kept = String::from_utf8(well(&["--json", "cache", "ls"]).stdout).unwrap();
        assert!(kept.contains(url), "it went past the depot: {kept}");
    }
}

struct Globus {
    scratch: Scratch,
    world: HashMap<String, String>,
}

impl Globus {
    fn start() -> Option<Self> {
        if !have("globus-gridftp-server") || !have("openssl") {
            return None;
        }
        let scratch = Scratch::new();
        let dir = scratch.join("world");
        let up = peers("gct-secure-up")
            .arg(&dir)
            .env("GCT_PORT", "0")
            .output()
            .unwrap();
        if !up.status.success() {
            skip(&String::from_utf8_lossy(&up.stderr));
            return None;
        }
        let text = fs::read_to_string(dir.join("env.sh")).unwrap();
        let word = |word: &str| {
            let (key, value) = word.split_once('=')?;
            Some((key.into(), value.trim_matches('\'').into()))
        };
        Some(Self {
            world: text.split_whitespace().filter_map(word).collect(),
            scratch,
        })
    }

    fn data(&self) -> PathBuf {
        self.world["GCT_DATA"].clone().into()
    }

    fn url(&self, name: &str) -> String {
        let (port, data) = (&self.world["GCT_PORT"], &self.world["GCT_DATA"]);
        format!("gsiftp://localhost:{port}{data}/{name}")
    }

    fn run(&self, args: &[&str]) -> Said {
        let mut command = godwit();
        for name in ["X509_CERT_DIR", "X509_USER_PROXY"] {
            command.env(name, &self.world[name]);
        }
        ours_within(60, command, args)
    }
}

impl Drop for Globus {
    fn drop(&mut self) {
        let _ = peers("gct-secure-down")
            .arg(self.scratch.join("world"))
            .status();
    }
}

fn peers(script: &str) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/peers")
        .join(script);
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    command
}

#[test] //= delivery#faults
fn pending_put_needs_renewed_proxy() {
    let lab = Lab::new();
    let node = lab.node("host");
    let file = lab.scratch.file("f", 300_000);
    let short = Issue {
        not_before: SystemTime::now() - DAY,
        not_after: SystemTime::now() - Duration::from_secs(60),
        ..quick(Issue::user("alice"))
    };
    write_proxy(&lab.ca.issue(&short).unwrap(), &lab.path("proxy")).unwrap();
    let says = |args: &[&str]| {
        let mut command = godwit();
        command
            .env("X509_USER_PROXY", lab.path("proxy"))
            .env("X509_CERT_DIR", lab.ca.certificates())
            .env("GODWIT_SOCKET", lab.path("run/socket"))
            .env("GODWIT_STATE", lab.path("state"))
            .env("GODWIT_LOCAL_IDLE", "20s")
            .current_dir(lab.scratch.path());
        ours_within(60, command, args)
    };
    let target = url(&node, "f");
    says(&["put", file.to_str().unwrap(), &target]).ok();
    let held = says(&["push", &target, "--timeout", "30"]);
    assert!(matches!(held.status, Some(1 | 13)), "{held}");
    let queue = says(&["queue"]).ok();
    let queue = String::from_utf8(queue.stdout).unwrap();
    for words in [
        "held",
        "our certificate /O=Lab/CN=alice expired",
        &lab.text("proxy"),
        "renew it (a proxy: godwit proxy init)",
        "godwit retry",
    ] {
        assert!(queue.contains(words), "wanted {words:?} in {queue}");
    }
    assert!(!node.export.join("f").exists());
    lab.proxy("proxy", &lab.user("alice"));
    says(&["retry", &target]).ok();
    says(&["push", &target, "--timeout", "30"]).ok();
    assert_same(&file, &node.export.join("f"));
    says(&["node", "stop"]).ok();
}
