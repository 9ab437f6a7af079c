//! Logins by GSI: globus-url-copy and hand-made tokens as clients, with an
//! authority made here.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Scratch, Served, bytes, needs};
use godwit_trust::{
    Credential, NewProxy,
    lab::{Ca, Issue, write_pair, write_proxy},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, SystemTime},
};

/// An authority, with a host and a user.
struct Lab {
    scratch: Scratch,
    ca: Ca,
    alice: Credential,
}

impl Lab {
    fn new() -> Self {
        let scratch = Scratch::new();
        let ca = Ca::init(
            &scratch.path().join("ca"),
            "/O=Lab/CN=Lab CA",
            YEAR,
            Default::default(),
        );
        let ca = ca.unwrap();
        let lab = Self {
            alice: ca.issue(&Issue::user("alice")).unwrap(),
            ca,
            scratch,
        };
        let host = lab
            .ca
            .issue(&Issue::host(&["localhost", "127.0.0.1"]))
            .unwrap();
        write_pair(&host, &lab.path("hostcert.pem"), &lab.path("hostkey.pem")).unwrap();
        lab.proxy("alice", &lab.alice);
        lab.map("\"/O=Lab/CN=alice\" alice,carol\n");
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn map(&self, text: &str) {
        fs::write(self.path("gridmap"), text).unwrap();
    }

    /// Writes a proxy of a credential.
    fn proxy(&self, name: &str, of: &Credential) -> PathBuf {
        let path = self.path(name);
        write_proxy(&of.proxy(&NewProxy::default()).unwrap(), &path).unwrap();
        path
    }

    fn serve(&self, settings: &[(&'static str, &str)]) -> Served {
        let text = |path: PathBuf| path.display().to_string();
        let (cert, key) = (
            text(self.path("hostcert.pem")),
            text(self.path("hostkey.pem")),
        );
        let (dir, map) = (text(self.ca.certificates()), text(self.path("gridmap")));
        let mut all = vec![
            ("trust.certificate", cert.as_str()),
            ("trust.key", &key),
            ("trust.authorities", &dir),
            ("trust.gridmap", &map),
            ("anonymous.access", "none"),
        ];
        all.extend(settings);
        Served::with(&all)
    }

    /// globus-url-copy with that proxy.
    fn copy_as(&self, proxy: &Path, options: &[&str], source: &str, target: &str) -> Output {
        Command::new("globus-url-copy")
            .args(options)
            .args([source, target])
            .env("X509_USER_PROXY", proxy)
            .env("X509_CERT_DIR", self.ca.certificates())
            .env("HOME", self.scratch.path())
            .output()
            .unwrap()
    }

    fn copy(&self, options: &[&str], source: &str, target: &str) {
        let out = self.copy_as(&self.path("alice"), options, source, target);
        assert!(
            out.status.success(),
            "{options:?} {source} {target}: {}",
            said(&out)
        );
    }

    fn refused(&self, proxy: &Path, source: &str, target: &str) -> String {
        let out = self.copy_as(proxy, &["-nodcau"], source, target);
        assert!(!out.status.success(), "{source} {target}");
        said(&out)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn url(served: &Served, name: &str) -> String {
    format!("gsiftp://localhost:{}/{name}", served.address.port())
}

fn file(path: &Path) -> String {
    format!("file://{}", path.display())
}

#[test]
fn globus_url_copy_works_with_proxy() {
    needs!("globus-url-copy");
    let lab = Lab::new();
    let served = lab.serve(&[]);
    let got = lab.path("got");
    for size in [0, 1, 3_000_000] {
        let whole = bytes(size);
        served.put("x", &whole);
        for way in WAYS {
            lab.copy(way, &url(&served, "x"), &file(&got));
            assert_eq!(fs::read(&got).unwrap(), whole, "get of {size} by {way:?}");
            lab.copy(way, &file(&got), &url(&served, "y"));
            assert_eq!(served.bytes("y"), whole, "put of {size} by {way:?}");
            fs::remove_file(served.file("y")).unwrap();
        }
    }
}

#[test]
fn pipelined_tree_works_under_protection() {
    needs!("globus-url-copy");
    let lab = Lab::new();
    let served = lab.serve(&[]);
    fs::create_dir(served.file("tree")).unwrap();
    for i in 0..50 {
        served.put(&format!("tree/{i}"), &bytes(i * 100));
    }
    let got = lab.path("tree");
    fs::create_dir(&got).unwrap();
    let options = ["-nodcau", "-r", "-pp", "-cd"];
    lab.copy(
        &options,
        &url(&served, "tree/"),
        &format!("{}/", file(&got)),
    );
    lab.copy(
        &options,
        &format!("{}/", file(&got)),
        &url(&served, "back/"),
    );
    for i in 0..50 {
        assert_eq!(served.bytes(&format!("back/{i}")), bytes(i * 100));
    }
}

#[test]
fn who_is_refused_is_told_why() {
    needs!("globus-url-copy");
    let lab = Lab::new();
    let served = lab.serve(&[]);
    served.put("x", b"x");
    let (from, to) = (url(&served, "x"), file(&lab.path("got")));

    let bob = lab.proxy("bob", &lab.ca.issue(&Issue::user("bob")).unwrap());
    let why = lab.refused(&bob, &from, &to);
    assert!(why.contains("/O=Lab/CN=bob has no account here"), "{why}");

    let other = Ca::init(
        &lab.path("other"),
        "/O=Other/CN=CA",
        YEAR,
        Default::default(),
    )
    .unwrap();
    let eve = lab.proxy("eve", &other.issue(&Issue::user("eve")).unwrap());
    let why = lab.refused(&eve, &from, &to);
    assert!(why.contains("has no such authority"), "{why}");

    let old = Issue {
        not_before: SystemTime::now() - YEAR,
        not_after: SystemTime::now() + Duration::from_secs(3600),
        ..Issue::user("alice")
    };
    let short = lab.ca.issue(&old).unwrap();
    let expiring = lab.proxy("expiring", &short);
    lab.copy_as(&expiring, &["-nodcau"], &from, &to);
    lab.ca.revoke(&short_pem(&short)).unwrap();
    let why = lab.refused(&expiring, &from, &to);
    assert!(why.contains("revoked"), "{why}");

    // What the gridmap says now counts.
    lab.map("\"/O=Lab/CN=bob\" bob\n");
    let why = lab.refused(&lab.path("alice"), &from, &to);
    assert!(why.contains("/O=Lab/CN=alice has no account here"), "{why}");
    let out = lab.copy_as(&bob, &["-nodcau"], &from, &to);
    assert!(out.status.success(), "{}", said(&out));
}

fn short_pem(credential: &Credential) -> Vec<u8> {
    credential.to_pem().unwrap()
}

#[test]
fn only_mapped_account_names_are_accepted() {
    needs!("globus-url-copy");
    let lab = Lab::new();
    let served = lab.serve(&[]);
    served.put("x", b"x");
    let to = file(&lab.path("got"));
    let at = |user: &str| format!("gsiftp://{user}@localhost:{}/x", served.address.port());
    lab.copy(&["-nodcau"], &at("carol"), &to);
    let why = lab.refused(&lab.path("alice"), &at("root"), &to);
    assert!(
        why.contains("/O=Lab/CN=alice may not log in as root"),
        "{why}"
    );
}

/// Data connections in clear, authenticated, safe and private, one and several; with the user's credential, and with
/// one made for them that no authority signed.
const WAYS: [&[&str]; 10] = [
    &["-nodcau"],
    &["-nodcau", "-p", "4"],
    &[],
    &["-p", "4"],
    &["-fast"],
    &["-dcsafe", "-p", "2"],
    &["-dcpriv"],
    &["-dcpriv", "-fast", "-p", "3"],
    &["-data-cred", "auto"],
    &["-data-cred", "auto", "-dcpriv", "-p", "2"],
];
const YEAR: Duration = Duration::from_secs(365 * 86_400);

#[test]
fn stripes_use_user_credential_and_privacy() {
    needs!("globus-url-copy");
    let lab = Lab::new();
    let key = lab.path("key").display().to_string();
    godwit_trust::new_key(Path::new(&key)).unwrap();
    let export = lab.path("export").display().to_string();
    fs::create_dir(&export).unwrap();
    let settings = [("cluster.key", &*key), ("node.export", &*export)];
    let members = [lab.serve(&settings), lab.serve(&settings)];
    let at = members.each_ref().map(|m| m.address.to_string()).join(",");
    let front = lab.serve(&[&settings[..], &[("stripes.members", &at)]].concat());
    let whole = bytes(20_000_000);
    let source = lab.path("source");
    fs::write(&source, &whole).unwrap();
    for way in [
        &["-stripe"][..],
        &["-stripe", "-dcpriv", "-p", "2"],
        &["-stripe", "-nodcau"],
    ] {
        let (alice, dbg) = (lab.path("alice"), [way, &["-dbg"]].concat());
        let out = lab.copy_as(&alice, &dbg, &file(&source), &url(&front, "x"));
        assert!(out.status.success(), "{way:?}: {}", said(&out));
        assert!(said(&out).contains("Total Stripe Count: 2"), "{way:?}");
        assert!(
            fs::read(Path::new(&export).join("x")).unwrap() == whole,
            "{way:?}"
        );
        let got = lab.path("got");
        lab.copy(way, &url(&front, "x"), &file(&got));
        assert!(fs::read(&got).unwrap() == whole, "{way:?}");
        fs::remove_file(got).unwrap();
        fs::remove_file(Path::new(&export).join("x")).unwrap();
    }
}
