//! `godwit ca`, `proxy` and `auth`, as scripts use them.

#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Said, Scratch, godwit};
use openssl::x509::{CrlNumber, X509Crl};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// Runs a verb in a directory; returns its exit status and the objects it printed.
fn ask(here: &Path, line: &str) -> (i32, Vec<Value>) {
    let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
    ask_words(here, &words)
}

fn ask_words(here: &Path, words: &[String]) -> (i32, Vec<Value>) {
    let mut command = godwit();
    command.current_dir(here).args(words).arg("--json");
    for name in ["X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY"] {
        command.env_remove(name);
    }
    command.env("X509_CERT_DIR", here.join("lab/certificates"));
    let said = Said::of(&mut command);
    let text = String::from_utf8(said.stdout.clone()).unwrap();
    let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (
        said.status.unwrap_or_else(|| panic!("{said}")),
        objects.collect(),
    )
}

#[track_caller]
fn good(here: &Path, line: &str) -> Value {
    let (status, objects) = ask(here, line);
    assert_eq!(status, 0, "{line}: {objects:?}");
    objects[0].clone()
}

#[track_caller]
fn bad(here: &Path, line: &str, status: i32) -> String {
    let (found, objects) = ask(here, line);
    assert_eq!(found, status, "{line}: {objects:?}");
    let error = objects
        .iter()
        .find(|object| object["event"] == "error")
        .unwrap();
    format!(
        "{} ({})",
        error["message"].as_str().unwrap(),
        error["next"].as_str().unwrap()
    )
}

/// A laboratory with alice in it; elliptic keys, since they are quick.
fn lab() -> Scratch {
    let scratch = Scratch::new();
    let here = scratch.path();
    good(here, "ca init lab --key ec");
    good(here, "ca issue lab alice --out alice --key ec");
    scratch
}

#[test]
fn authority_issues_usable_certificates() {
    let scratch = lab();
    let here = scratch.path();
    let made = good(
        here,
        "proxy init --cert alice/usercert.pem --out p --key-kind ec --limited --valid 1h",
    );
    assert_eq!(made["identity"], "/O=Lab/CN=alice");
    assert_eq!(made["limited"], true);
    assert_eq!(made["accepted_here"], true, "{made}");
    let left = made["seconds_left"].as_u64().unwrap();
    assert!((3590..=3600).contains(&left), "{left}");
    let mode = fs::metadata(here.join("p")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(good(here, "proxy info p")["chain"], made["chain"]);
    good(here, "proxy destroy p");
    assert!(!here.join("p").exists());
    bad(here, "proxy info p", 4);
    bad(here, "proxy destroy p", 4);
}

#[test]
fn revoked_certificate_is_refused() {
    let scratch = lab();
    let here = scratch.path();
    good(
        here,
        "proxy init --cert alice/usercert.pem --out p --key-kind ec",
    );
    assert_eq!(
        good(here, "ca revoke lab alice/usercert.pem")["subject"],
        "/O=Lab/CN=alice"
    );
    let info = good(here, "proxy info p");
    assert_eq!(info["accepted_here"], false);
    assert!(
        info["why_not"].as_str().unwrap().contains("was revoked at"),
        "{info}"
    );
    good(here, "ca init other --key ec");
    bad(here, "ca revoke other alice/usercert.pem", 2);
}

#[test]
fn nothing_is_overwritten_unasked() {
    let scratch = lab();
    let here = scratch.path();
    let before = fs::read(here.join("alice/userkey.pem")).unwrap();
    let said = bad(here, "ca issue lab alice --out alice --key ec", 1);
    assert!(said.contains("--force"), "{said}");
    assert_eq!(fs::read(here.join("alice/userkey.pem")).unwrap(), before);
    good(here, "ca issue lab alice --out alice --key ec --force");
    assert_ne!(fs::read(here.join("alice/userkey.pem")).unwrap(), before);
    bad(here, "ca init lab", 1);
}

#[test]
fn exposed_key_makes_no_proxy() {
    let scratch = lab();
    let here = scratch.path();
    let key = here.join("alice/userkey.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let said = bad(here, "proxy init --cert alice/usercert.pem --out p", 13);
    assert!(
        said.contains("mode 0644") && said.contains("chmod 600"),
        "{said}"
    );
    assert!(!here.join("p").exists());
}

#[test]
fn expired_proxy_is_an_error() {
    let scratch = lab();
    let here = scratch.path();
    good(
        here,
        "proxy init --cert alice/usercert.pem --out p --key-kind ec --valid 1ms",
    );
    let said = bad(here, "proxy info p", 13);
    assert!(
        said.contains("expired") && said.contains("godwit proxy init"),
        "{said}"
    );
}

#[test]
fn deciding_rule_is_told() {
    let scratch = Scratch::new();
    let here = scratch.path();
    let rules = "[[rule]]\nwho = \"/O=Lab/*\"\nmay = [\"read\", \"list\"]\nunder = \"/data\"\n";
    fs::write(here.join("rights"), rules).unwrap();
    fs::write(here.join("map"), "\"/O=Lab/CN=alice\" alice,shared\n").unwrap();
    let told = good(
        here,
        "auth explain --rights rights --as /O=Lab/CN=alice --gridmap map read /data/x",
    );
    assert_eq!(told["rule"], 1);
    assert_eq!(
        told["because"],
        "rule 1: /O=Lab/* may read, list under /data"
    );
    assert_eq!(told["accounts"], serde_json::json!(["alice", "shared"]));
    let said = bad(
        here,
        "auth explain --rights rights --as anonymous read /data/x",
        13,
    );
    assert!(said.starts_with("no rule speaks of it"), "{said}");
    assert!(said.contains("have an operator there allow it"), "{said}");
    let (_, objects) = ask(
        here,
        "auth explain --rights rights --as anonymous read /data/x",
    );
    assert_eq!(objects[0]["who"], "anonymous");
    fs::write(
        here.join("rights"),
        "[[rule]]\nwho = \"alice\"\nmay = \"read\"\n",
    )
    .unwrap();
    let said = bad(
        here,
        "auth explain --rights rights --as anonymous read /x",
        2,
    );
    assert!(said.contains("rule 1: \"alice\" is nobody"), "{said}");
}

#[test]
fn missing_certificate_names_its_source() {
    let scratch = Scratch::new();
    let hint = |line: &str| {
        let mut command = godwit();
        command.current_dir(scratch.path()).args(line.split(' '));
        let said = Said::of(&mut command);
        assert_ne!(said.status, Some(0), "{said}");
        said.stderr
    };
    let said = hint("proxy init --cert no.pem --out proxy.pem");
    assert!(said.contains("godwit ca issue"), "{said}");
    let garbage = scratch.join("garbage");
    std::fs::write(&garbage, "not a proxy").unwrap();
    std::fs::set_permissions(&garbage, PermissionsExt::from_mode(0o600)).unwrap();
    for line in ["proxy info garbage", "proxy destroy garbage"] {
        let said = hint(line);
        assert!(
            said.contains("hint: ") && said.contains("godwit proxy init"),
            "{said}"
        );
    }
    assert!(garbage.exists());
}

#[test]
fn unreadable_authority_is_not_made() {
    let scratch = Scratch::new();
    let here = scratch.path();
    for valid in ["3000000d", "9999999999d", "100000000000000d"] {
        let said = bad(here, &format!("ca init far --key ec --valid {valid}"), 2);
        assert!(said.contains("before the year 10000"), "{said}");
        assert!(!here.join("far").exists());
    }
    good(here, "ca init far --key ec --valid 2900000d");
    // What it issues ends with it at the latest.
    good(
        here,
        "ca issue far bob --key ec --out bob --valid 100000000000000d",
    );
    good(
        here,
        "proxy init --cert bob/usercert.pem --out p --key-kind ec --valid 100000000000000d",
    );
}

#[test]
fn expired_authority_issues_nothing() {
    let scratch = Scratch::new();
    let here = scratch.path();
    good(here, "ca init lab --key ec --valid 1ms");
    let said = bad(here, "ca issue lab bob --key ec --out bob", 2);
    assert!(
        said.contains("expired") && said.contains("(lab/ca.pem)"),
        "{said}"
    );
    assert!(said.contains("godwit ca init"), "{said}");
    assert!(!here.join("bob").exists());
}

#[test]
fn authority_name_is_never_issued() {
    let scratch = lab();
    let here = scratch.path();
    for name in ["/O=Lab/CN=Lab+CA", "/O=Lab/CN=lab++ca", "Lab+CA"] {
        let line = ["ca", "issue", "lab", name, "--out", "it"];
        let line = line.map(|word| word.replace('+', " "));
        let (status, objects) = ask_words(here, &line);
        assert_eq!(status, 2, "{name}: {objects:?}");
        let said = objects[0]["message"].as_str().unwrap();
        assert_eq!(said, "/O=Lab/CN=Lab CA is the authority itself");
        assert_eq!(objects[0]["next"], "choose another name");
        assert!(!here.join("it").exists());
    }
}

#[test]
fn authority_refuses_unbelievable_certificates() {
    let scratch = lab();
    let here = scratch.path();
    let said = bad(here, "ca issue lab /O=Other/CN=eve --out eve --key ec", 2);
    assert!(
        said.contains("/O=Lab/CN=Lab CA may not vouch for /O=Other/CN=eve, says lab/certificates/"),
        "{said}"
    );
    assert!(!here.join("eve").exists());
    good(
        here,
        "ca issue lab /O=Lab/OU=People/CN=eve --out eve --key ec",
    );
    let all = fs::read_dir(here.join("lab/certificates")).unwrap();
    let mut all = all.map(|entry| entry.unwrap().path());
    let policy = all.find(|path| path.extension().is_some_and(|e| e == "signing_policy"));
    let policy = policy.unwrap();
    let wider = fs::read_to_string(&policy).unwrap() + "cond_subjects globus '/O=Other/*'\n";
    fs::write(policy, wider).unwrap();
    good(here, "ca issue lab /O=Other/CN=eve --out other --key ec");
}

#[test]
fn revocation_lists_are_numbered() {
    let scratch = lab();
    let here = scratch.path();
    let mut last = 0u64;
    // Several within a second.
    for _ in 0..4 {
        let made = good(here, "ca revoke lab");
        let list = fs::read(here.join(made["list"].as_str().unwrap())).unwrap();
        let list = X509Crl::from_pem(&list).unwrap();
        let (_, number) = list.extension::<CrlNumber>().unwrap().unwrap();
        let number = number.to_bn().unwrap().to_string().parse().unwrap();
        assert!(number > last, "{number} behind {last}");
        last = number;
    }
}

#[test]
fn hints_fit_the_file() {
    let scratch = lab();
    let here = scratch.path();
    fs::write(here.join("gm"), "\"/O=Lab/CN=alice\" alice\n").unwrap();
    let said = bad(here, "proxy destroy gm", 2);
    assert!(said.contains("no certificate with its key"), "{said}");
    let said = bad(here, "proxy destroy alice/userkey.pem", 2);
    assert!(said.contains("no certificate with its key"), "{said}");
    assert!(here.join("gm").exists() && here.join("alice/userkey.pem").exists());
    let said = bad(
        here,
        "proxy init --cert lab/ca.key --key lab/ca.key --out p",
        2,
    );
    assert!(
        said.contains("ca.key: no readable certificate: there is none in it"),
        "{said}"
    );
    let said = bad(here, "ca revoke lab gm", 2);
    assert!(
        said.contains("there is no certificate (PEM) in it"),
        "{said}"
    );
    let (_, objects) = ask(here, "ca revoke lab gm");
    assert_eq!(objects[0]["wanted"], "revoke gm");
    let said = bad(here, "ca issue lab  --key ec", 2);
    assert!(said.contains("the name is empty"), "{said}");

    // A proxy that anybody can read is destroyed all the same.
    good(
        here,
        "proxy init --cert alice/usercert.pem --out p --key-kind ec",
    );
    fs::set_permissions(here.join("p"), fs::Permissions::from_mode(0o644)).unwrap();
    good(here, "proxy destroy p");
    assert!(!here.join("p").exists());
}

#[test]
fn mismatched_authority_key_is_refused() {
    let scratch = lab();
    let here = scratch.path();
    good(here, "ca init other --key ec");
    let list = "other/certificates";
    let before = fs::read_dir(here.join(list)).unwrap().count();
    fs::copy(here.join("lab/ca.key"), here.join("other/ca.key")).unwrap();
    for line in [
        "ca issue other bob --out bob --key ec",
        "ca revoke other",
        "ca revoke other alice/usercert.pem",
    ] {
        let said = bad(here, line, 2);
        assert!(
            said.starts_with("other/ca.key does not belong to other/ca.pem "),
            "{said}"
        );
    }
    assert!(!here.join("bob").exists());
    assert_eq!(fs::read_dir(here.join(list)).unwrap().count(), before);
}

#[test]
fn authority_never_revokes_itself() {
    let scratch = lab();
    let here = scratch.path();
    let said = bad(here, "ca revoke lab lab/ca.pem", 2);
    assert!(
        said.starts_with("/O=Lab/CN=Lab CA is the authority itself ")
            && said.contains("godwit ca init"),
        "{said}"
    );
    let all = fs::read_dir(here.join("lab/certificates")).unwrap();
    let mut all = all.map(|entry| entry.unwrap().path());
    assert!(!all.any(|path| path.extension().is_some_and(|e| e == "r0")));
}

#[test]
fn broken_authority_names_its_file() {
    let scratch = lab();
    let here = scratch.path();
    let said = bad(here, "ca revoke lab alice", 2);
    assert!(
        said.contains("alice") && said.contains("name the certificate that is in it"),
        "{said}"
    );
    fs::write(here.join("lab/ca.key"), "no key").unwrap();
    let said = bad(here, "ca issue lab bob --out bob --key ec", 2);
    assert!(said.starts_with("lab/ca.key: it holds no"), "{said}");
    fs::write(here.join("lab/ca.pem"), "no certificate").unwrap();
    let said = bad(here, "ca issue lab bob --out bob --key ec", 2);
    assert!(said.starts_with("lab/ca.pem: no readable"), "{said}");
}

#[test]
fn token_prints_only_its_line() {
    let said = Said::of(godwit().args(["auth", "token", "alice", "--quiet"])).ok();
    let (line, token) = (String::from_utf8(said.stdout).unwrap(), said.stderr);
    let hash = line.strip_prefix("alice token sha256:").unwrap().trim_end();
    assert!(hash.len() == 64 && line.lines().count() == 1, "{line}");
    let token = token.strip_prefix("token: godwit-").unwrap().trim_end();
    assert!(token.len() == 64 && !line.contains(token), "{line}");
}

#[test]
fn authority_refuses_impossible_names() {
    let scratch = lab();
    let here = scratch.path();
    let refused = |words: &[&str], fact: &str| {
        let line = ["ca", "issue", "lab", "--key", "ec", "--out", "it"];
        let words: Vec<_> = line.iter().chain(words).map(|&w| w.to_owned()).collect();
        let (status, objects) = ask_words(here, &words);
        let said = objects[0]["message"].as_str().unwrap();
        assert!(status == 2 && said.contains(fact), "{words:?}: {objects:?}");
        assert!(!here.join("it").exists());
    };
    for host in ["a/b", "a b", "", "a..b", "a\nb"] {
        refused(&["--host", "good", "--host", host], "is no name or address");
    }
    refused(&["bo\nb"], "control character");
    refused(&["/O=Lab/CN=bo\rb"], "control character");
    for host in ["a-b_c.example", "*.example", "10.0.0.7", "::1"] {
        good(
            here,
            &format!("ca issue lab --host {host} --key ec --out h --force"),
        );
    }
    let said = Said::of(
        godwit()
            .current_dir(here)
            .args(["ca", "issue", "lab", "bob", "--key", "ec"]),
    );
    let said = String::from_utf8(said.ok().stdout).unwrap();
    assert!(said.contains(" UTC in "), "{said}");
}
