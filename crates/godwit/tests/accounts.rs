//! A node that root started: it runs without root, and files are opened with the
//! rights of an account. Only root can run these; for others they are skipped.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Machine, Node, Scratch,
    lab::{Lab, url},
    ours, skip,
};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Command,
};

/// An account without a name.
const ALICE: &str = "61001";
const NOBODY: u32 = 65_534;

/// Returns a directory for a test; `None`: it is not root's.
fn of_root() -> Option<Scratch> {
    if user_id() != 0 {
        skip("only root can start a node that becomes another account");
        return None;
    }
    Some(Scratch::new())
}

fn user_id() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

/// An export that every account may enter, with a file of its owner only.
fn export(scratch: &Scratch) -> std::path::PathBuf {
    let export = scratch.dir("export");
    fs::set_permissions(&export, fs::Permissions::from_mode(0o1777)).unwrap();
    for (name, owner) in [("of-root", 0), ("of-alice", 61_001)] {
        let path = export.join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    }
    export
}

fn configured(scratch: &Scratch, text: &str) -> String {
    let path = scratch.join("node.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn status(process: u32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

fn children(process: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|&id: &u32| {
            let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            text.lines().any(|line| line == format!("PPid:\t{process}"))
        })
        .collect()
}

fn cp(source: &str, target: &str) -> common::Said {
    ours(["cp", source, target])
}

#[test]
fn root_node_acts_as_account() {
    let Some(scratch) = of_root() else { return };
    let export = export(&scratch);
    let config = "[node]\nuser = \"nobody\"\n[anonymous]\naccount = \"61001\"\n";
    let config = configured(&scratch, config);
    let node = Node::with(&export, &["--anonymous", "write", "--config", &config]);
    let url = |name: &str| format!("ftp://127.0.0.1:{}/{name}", node.port);

    assert!(status(node.pid(), "Uid").starts_with(&NOBODY.to_string()));
    let steward = children(node.pid());
    assert_eq!(steward.len(), 1);
    let openers = children(steward[0]);
    assert_eq!(openers.len(), 1);
    assert!(status(openers[0], "Uid").starts_with(ALICE));
    for process in [node.pid(), openers[0]] {
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            assert_eq!(status(process, set), "0000000000000000", "{set}");
        }
    }

    let got = scratch.join("got");
    let got = got.to_str().unwrap();
    assert_eq!(cp(&url("of-alice"), got).status, Some(0));
    assert_eq!(fs::read(got).unwrap(), b"of-alice");
    let denied = cp(&url("of-root"), got);
    assert_eq!(denied.status, Some(13), "{denied:?}");

    for (name, size) in [("small", 100), ("large", 9 << 20)] {
        let source = scratch.file(name, size);
        assert_eq!(cp(source.to_str().unwrap(), &url(name)).status, Some(0));
        let meta = fs::metadata(export.join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (61_001, 61_001), "{name}");
        assert_eq!(
            fs::read(export.join(name)).unwrap(),
            fs::read(&source).unwrap()
        );
    }
    drop(node);
    for process in [openers[0], steward[0]] {
        until_gone(process);
    }
}

#[test]
fn modules_need_the_accounts_rights() {
    let Some(scratch) = of_root() else { return };
    let export = export(&scratch);
    let config = "[node]\nuser = \"nobody\"\n[modules.copy]\ncommand = [\"/bin/cat\"]\n\
                  [modules.keep]\ncommand = [\"/bin/cat\"]\ndirection = \"write\"\n";
    let of_node = configured(&scratch, config);
    let got = scratch.join("got");
    let got = got.to_str().unwrap();
    fs::write(export.join("open"), "open").unwrap();
    for (account, is_run) in [("", true), (ALICE, false)] {
        let more = format!("{config}[anonymous]\naccount = \"{account}\"\n");
        fs::write(&of_node, more).unwrap();
        let options = ["--anonymous", "write", "--config", &of_node];
        let node = Node::with(&export, &options);
        let url = |name: &str| format!("ftp://127.0.0.1:{}/{name}", node.port);
        let read = ours(["cp", "--through", "copy", &url("open"), got]);
        let written = ours(["cp", "--through", "keep", &of_node, &url("new")]);
        for said in [read, written] {
            assert_eq!(said.status == Some(0), is_run, "{said}");
            let why = "and not with those of the account";
            assert_eq!(said.stderr.contains(why), !is_run, "{said}");
        }
        // The program has the rights of the node, and no others.
        let refused = ours(["cp", "--through", "copy", &url("of-alice"), got]);
        assert_ne!(refused.status, Some(0), "{refused}");
        fs::remove_dir_all(scratch.join("export.state")).unwrap();
        let _ = fs::remove_file(export.join("new"));
    }
}

fn until_gone(process: u32) {
    let late = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let runs = || {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z")
    };
    while runs() {
        assert!(std::time::Instant::now() < late, "{process} still runs");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn root_node_becomes_export_owner() {
    let Some(scratch) = of_root() else { return };
    let export = scratch.dir("export");
    for owner in [61_001, 0] {
        chown(&export, Some(owner), Some(owner)).unwrap();
        let node = Node::with(&export, &["--anonymous", "write"]);
        assert!(status(node.pid(), "Uid").starts_with(&owner.to_string()));
        assert_eq!(status(node.pid(), "CapEff"), "0000000000000000");
        let source = scratch.file("file", 100);
        let url = format!("ftp://127.0.0.1:{}/of-{owner}", node.port);
        assert_eq!(cp(source.to_str().unwrap(), &url).status, Some(0));
        let written = fs::metadata(export.join(format!("of-{owner}"))).unwrap();
        assert_eq!(written.uid(), owner);
        drop(node);
        fs::remove_dir_all(scratch.join("export.state")).unwrap();
    }
}

#[test]
fn root_only_host_key_is_read() {
    if of_root().is_none() {
        return;
    }
    let lab = Lab::new();
    let export = export(&lab.scratch);
    lab.map(&format!("\"/O=Lab/CN=alice\" {ALICE}\n"));
    let config = configured(&lab.scratch, "[node]\nuser = \"nobody\"\n");
    let node = lab.node_at(&export, "host", &["--config", &config]);
    assert!(status(node.pid(), "Uid").starts_with(&NOBODY.to_string()));
    let key = fs::metadata(lab.path("host.key")).unwrap();
    assert_eq!((key.uid(), key.mode() & 0o777), (0, 0o600));
    let get = |subject: &str| {
        let (from, to) = (url(&node, "of-alice"), lab.text("got"));
        lab.run("alice", &["cp", "--subject", subject, &from, &to])
    };
    get("/O=Lab/CN=localhost").ok();

    // Half a renewal: the old certificate stays, and the log says why.
    lab.host("new", &["fermi", "localhost"]);
    fs::rename(lab.path("new.pem"), lab.path("host.pem")).unwrap();
    get("/O=Lab/CN=localhost").ok();
    let log = fs::read_to_string(export.with_extension("log")).unwrap();
    assert!(
        log.contains("host.pem") && log.contains("does not belong"),
        "{log}"
    );
    // The renewal is complete, though only root can read the key.
    fs::rename(lab.path("new.key"), lab.path("host.key")).unwrap();
    get("/O=Lab/CN=fermi").ok();
    let log = fs::read_to_string(export.with_extension("log")).unwrap();
    assert!(log.contains("took a renewed certificate"), "{log}");
    assert!(!log.contains("PRIVATE"), "{log}");
}

/// The export belongs to root, and so the node keeps that number.
#[test] //= access#accounts
fn deleted_account_gets_no_root() {
    let Some(scratch) = of_root() else { return };
    let (mut lab, laptop) = Machine::lab_and_laptop(&scratch);
    let file = lab.state().join("peers/laptop.toml");
    let peer = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{peer}account = \"gone\"\n")).unwrap();
    for strict in ["true", "false"] {
        lab.kill();
        lab.start(&[("GODWIT_ACCOUNTS_STRICT", strict)]);
        for words in [["cat", "godwit://lab/f"], ["mkdir", "godwit://lab/d"]] {
            let (status, why) = laptop.refused(&words);
            assert_eq!(status, 13, "{why}");
            assert!(why.contains("the account gone of"), "{why}");
        }
    }
    lab.kill();
    let lab = Lab::new();
    lab.map("\"/O=Lab/CN=alice\" gone\n");
    let config = configured(&lab.scratch, "[accounts]\nstrict = false\n");
    let node = lab.node_at(&lab.scratch.dir("export"), "host", &["--config", &config]);
    lab.refused("alice", &url(&node, ""), &["gone"]);
    drop(node);
    // A node that is not root may serve them as its own account.
    chown(lab.path("export"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::remove_dir_all(lab.path("export.state")).unwrap();
    let node = lab.node_at(&lab.path("export"), "host", &["--config", &config]);
    lab.run("alice", &["ls", &url(&node, "")]).ok();
}

#[test]
fn system_account_is_refused_at_start() {
    let Some(scratch) = of_root() else { return };
    let export = export(&scratch);
    let config = configured(&scratch, "[anonymous]\naccount = \"daemon\"\n");
    let export = export.to_str().unwrap();
    let arguments = [
        "node",
        "--export",
        export,
        "--ftp",
        "127.0.0.1:0",
        "--config",
        &config,
    ];
    let said = ours(arguments);
    assert_eq!(said.status, Some(13), "{said:?}");
    assert!(
        said.stderr.contains("only those from 1000 on are served"),
        "{said:?}"
    );
}

#[test]
fn plain_user_cannot_change_account() {
    let Some(scratch) = of_root() else { return };
    let config = configured(&scratch, "[anonymous]\naccount = \"61001\"\n");
    let said = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(Path::new(env!("CARGO_BIN_EXE_godwit")))
        .args(["node", "--ftp", "127.0.0.1:0", "--config", &config])
        .arg("--export")
        .arg(scratch.path())
        .output();
    let Ok(said) = said else {
        skip("there is no setpriv");
        return;
    };
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(
        text.contains("cannot act for 61001: only root can start such a node"),
        "{text}"
    );
}

#[test]
fn root_node_names_unusable_directories() {
    let Some(scratch) = of_root() else { return };
    let (export, file) = (scratch.dir("export"), scratch.file("file", 1));
    let (export, file) = (export.to_str().unwrap(), file.to_str().unwrap());
    for (export, state, code, words) in [
        ("/nofile", "", 4, "/nofile: no such file or directory"),
        (file, "", 3, "file: is not a directory"),
        (
            export,
            "/proc/x",
            4,
            "/proc/x: no such file or directory\nhint: name another directory with --state, or none",
        ),
    ] {
        let node = ["node", "--ftp", "127.0.0.1:0", "--export", export];
        let mut args = node.to_vec();
        if !state.is_empty() {
            args.extend(["--state", state]);
        }
        let said = common::ours_within(20, common::godwit(), args);
        assert_eq!(said.status, Some(code), "{said}");
        assert!(said.stderr.contains(words), "wanted {words:?} in {said}");
    }
}
