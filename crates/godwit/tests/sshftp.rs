//! `sshftp:`: ssh lets us in and starts the server, which talks over standard input and output.
//!
//! The sshd is a real one, and so are the GridFTP server and client that stand at the other end in turn.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Peer, Said, Scratch, assert_same, assert_same_tree, have, skip};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

const GODWIT: &str = env!("CARGO_BIN_EXE_godwit");

/// An sshd that starts what is tested here.
struct Sshd(Peer);

impl Sshd {
    fn start(scratch: &Scratch) -> Option<Self> {
        let bin = Path::new(GODWIT).parent().unwrap();
        let path = format!("PATH={}:/usr/sbin:/usr/bin:/bin", bin.display());
        Peer::start_by("sshd-up", scratch.path(), &[&path]).map(Self)
    }

    /// The URL of a path, which is the same here and there.
    fn url(&self, path: &Path) -> String {
        format!("sshftp://127.0.0.1:{}{}", self.0.port, path.display())
    }

    fn godwit(&self, args: &[&str]) -> Said {
        Said::of(&mut self.command(args))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").arg(GODWIT).args(args);
        let ssh = format!("ssh -F {}", self.0.dir.join("ssh_config").display());
        command.env("GODWIT_SSH", ssh).stdin(Stdio::null());
        command
    }

    /// Has `sshftp:` lead to this command, as Globus has its users set it up.
    fn lead_to(&self, command: &str) {
        let globus = self.0.dir.join("home/.globus");
        fs::create_dir_all(&globus).unwrap();
        let file = globus.join("sshftp");
        fs::write(&file, format!("#!/bin/sh\nexec {command}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Copies to the server, back, a tree, and between servers; compares each time.
fn everything_goes(sshd: &Sshd, scratch: &Scratch) {
    let source = scratch.file("source", 3_000_001);
    let there = scratch.join("there");
    fs::create_dir_all(&there).unwrap();
    let (url, back) = (sshd.url(&there.join("a b")), scratch.join("back"));
    let said = sshd.godwit(&[
        "cp",
        "-v",
        source.to_str().unwrap(),
        &url.replace(' ', "%20"),
    ]);
    let said = said.ok();
    assert!(
        String::from_utf8_lossy(&said.stdout).contains("verified"),
        "{said}"
    );
    assert_same(&source, &there.join("a b"));
    for size in [0, 1, 70_000] {
        scratch.file(format!("there/tree/{size}"), size);
    }
    let tree = sshd.url(&there.join("tree"));
    let here = back.to_str().unwrap();
    sshd.godwit(&["cp", "-r", &tree, here]).ok();
    assert_same_tree(&there.join("tree"), &back);
    let third = sshd.url(&there.join("third"));
    sshd.godwit(&["cp", &url.replace(' ', "%20"), &third]).ok();
    assert_same(&source, &there.join("third"));
    let said = sshd.godwit(&["cat", &sshd.url(&there.join("no"))]);
    assert_eq!(said.status, Some(4), "{said}");
}

#[test]
fn ssh_starts_unconfigured_node() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start(&scratch) else {
        return;
    };
    everything_goes(&sshd, &scratch);
}

#[test] //= GASS-13
fn local_node_moves_by_ssh() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start(&scratch) else {
        return;
    };
    let source = scratch.file("source", 300_001);
    let (copy, there) = (scratch.join("copy"), scratch.join("there"));
    let well = |args: &[&str]| {
        let mut command = sshd.command(args);
        command.env("GODWIT_SOCKET", scratch.join("run/socket"));
        command.env("GODWIT_STATE", scratch.join("state"));
        Said::of(command.env("GODWIT_LOCAL_IDLE", "5s")).ok();
    };
    well(&["get", &sshd.url(&source), copy.to_str().unwrap()]);
    assert_same(&source, &copy);
    well(&["put", source.to_str().unwrap(), &sshd.url(&there)]);
    well(&["push", "--timeout", "30"]);
    assert_same(&source, &there);
    well(&["node", "stop"]);
}

#[test]
fn globus_setup_is_used_first() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start(&scratch) else {
        return;
    };
    if !Path::new("/usr/sbin/globus-gridftp-server").exists() {
        return skip("globus-gridftp-server is missing (tests/peers/install)");
    }
    let as_root = match are_root() {
        true => "-aa -anonymous-user root -allow-root",
        false => "",
    };
    sshd.lead_to(&format!("globus-gridftp-server -ssh {as_root}"));
    everything_goes(&sshd, &scratch);
}

/// Its script calls `/usr/bin/ssh`, which takes its configuration from the home in /etc/passwd.
#[test]
fn globus_client_arrives_by_ssh() {
    let scratch = Scratch::new();
    if !are_root() {
        return skip("needs root, to give ssh another home in a mount namespace");
    }
    let Some(sshd) = Sshd::start(&scratch).filter(|_| have("globus-url-copy")) else {
        return;
    };
    sshd.lead_to("godwit node --stdio");
    let home = scratch.join("home");
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::copy(sshd.0.dir.join("ssh_config"), home.join(".ssh/config")).unwrap();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let others = passwd.lines().filter(|line| !line.starts_with("root:"));
    let root = format!("root:x:0:0:root:{}:/bin/sh", home.display());
    let all: Vec<&str> = others.chain([root.as_str()]).collect();
    fs::write(home.join("passwd"), all.join("\n") + "\n").unwrap();
    let copy = |from: &str, to: &str| {
        let mut command = Command::new("timeout");
        command.args([
            "60",
            "unshare",
            "-m",
            "--propagation",
            "private",
            "sh",
            "-c",
        ]);
        command.arg("mount --bind \"$0\" /etc/passwd && exec globus-url-copy -p 2 \"$@\"");
        command.arg(home.join("passwd")).args([from, to]);
        Said::of(command.stdin(Stdio::null())).ok();
    };
    let source = scratch.file("source", 3_000_001);
    let (there, back) = (scratch.join("there"), scratch.join("back"));
    copy(&format!("file://{}", source.display()), &sshd.url(&there));
    assert_same(&source, &there);
    copy(&sshd.url(&there), &format!("file://{}", back.display()));
    assert_same(&source, &back);
}

#[test]
fn ssh_messages_are_shown() {
    let scratch = Scratch::new();
    let Some(sshd) = Sshd::start(&scratch) else {
        return;
    };
    fs::remove_file(sshd.0.dir.join("mine")).unwrap();
    let said = sshd.godwit(&["ls", &sshd.url(Path::new("/"))]);
    assert_eq!(said.status, Some(5), "{said}");
    assert!(
        said.stderr.contains("Permission denied (publickey"),
        "{said}"
    );
    assert!(
        said.stderr.contains("hint: `ssh 127.0.0.1 godwit version`"),
        "{said}"
    );
    let said = sshd.godwit(&["cp", "--private", &sshd.url(Path::new("/x")), "."]);
    assert_eq!(said.status, Some(2), "{said}");
    assert!(said.stderr.contains("goes in clear"), "{said}");
}

fn are_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}
