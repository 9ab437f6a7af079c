//! Two machines come to know each other in one line, and move files by their keys alone.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Machine, Scratch, have};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

#[test] //= FARM-98
fn one_line_joins_two_nodes() {
    let scratch = Scratch::new();
    let file = scratch.file("data/f", 3_000_000);
    let (mut lab, laptop) = (Machine::new(&scratch, "a"), Machine::new(&scratch, "b"));
    lab.serve("lab", &scratch.join("data"));
    let said = laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    assert_eq!(said, "joined lab as laptop: godwit ls godwit://lab/\n");
    assert!(laptop.well(&["ls", "godwit://lab/"]).contains('f'));
    laptop.well(&["cp", "godwit://lab/f", "here"]);
    assert_eq!(
        fs::read(scratch.join("here")).unwrap(),
        fs::read(&file).unwrap()
    );
    let copied = laptop.says(&["cp", "--json", "here", "godwit://lab/there"]);
    let text = String::from_utf8(copied.stdout).unwrap();
    let summary: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(summary["verified"], "verified blake3");
    assert_eq!(
        fs::read(scratch.join("data/there")).unwrap(),
        fs::read(&file).unwrap()
    );
    assert!(lab.well(&["peers"]).starts_with("laptop "));
}

#[test]
fn invite_works_once() {
    let scratch = Scratch::new();
    let lab = Machine::lab(&scratch);
    let (laptop, other) = (Machine::new(&scratch, "b"), Machine::new(&scratch, "c"));
    let invite = lab.invite();
    // A server in between has another key than the invite says.
    let (head, tail) = invite.rsplit_once('/').unwrap();
    let wrong = format!("{}{}/{tail}", &head[..head.len() - 4], "0000");
    let refused = laptop.says(&["join", &wrong]);
    assert_eq!(refused.status.code(), Some(13), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("key"));
    laptop.well(&["join", &invite]);
    let again = other.says(&["join", &invite]);
    assert_eq!(again.status.code(), Some(13), "{again:?}");
    let why = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(why.contains("it was used already"), "{why}");
    // A machine that has not joined may do nothing, though it knows the door.
    let stranger = other.says(&["ls", &format!("godwit://{}/", lab.at)]);
    assert_eq!(stranger.status.code(), Some(13), "{stranger:?}");
}

#[test]
fn who_left_is_a_stranger() {
    let scratch = Scratch::new();
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    let known = scratch.join("b/.local/state/godwit/peers/lab.toml");
    let kept = fs::read(&known).unwrap();
    laptop.well(&["leave", "lab"]);
    assert_eq!(lab.well(&["peers"]), "");
    assert!(!known.exists());
    // The laptop remembers the lab; the lab has forgotten the laptop.
    fs::write(&known, kept).unwrap();
    let refused = laptop.says(&["ls", "godwit://lab/"]);
    assert_eq!(refused.status.code(), Some(13), "{refused:?}");
}

#[test]
fn concurrent_joins_use_invite_once() {
    let scratch = Scratch::new();
    let lab = Machine::lab(&scratch);
    let invite = lab.invite();
    let names: Vec<String> = (0..6).map(|n| format!("laptop{n}")).collect();
    let machines: Vec<_> = names
        .iter()
        .map(|name| Machine::new(&scratch, name))
        .collect();
    let begun: Vec<_> = machines
        .iter()
        .zip(&names)
        .map(|(machine, name)| {
            let mut join = machine.command(&["join", &invite, "--name", name]);
            join.stdout(Stdio::null()).stderr(Stdio::piped());
            join.spawn().unwrap()
        })
        .collect();
    let said: Vec<_> = begun
        .into_iter()
        .map(|join| join.wait_with_output().unwrap())
        .collect();
    let codes: Vec<_> = said
        .iter()
        .map(|said| said.status.code().unwrap())
        .collect();
    assert_eq!(
        codes.iter().filter(|code| **code == 0).count(),
        1,
        "{said:?}"
    );
    assert_eq!(
        codes.iter().filter(|code| **code == 13).count(),
        5,
        "{said:?}"
    );
    assert_eq!(lab.knows().peers().unwrap().len(), 1);
    // A joined machine may repeat the request, since the answer may have been lost.
    let winner = codes.iter().position(|code| *code == 0).unwrap();
    machines[winner].well(&["join", &invite, "--name", &names[winner]]);
}

#[test]
fn expired_invite_is_refused() {
    let scratch = Scratch::new();
    let (lab, laptop) = (Machine::lab(&scratch), Machine::new(&scratch, "b"));
    let invite = lab.invite();
    let waiting = fs::read_dir(lab.state().join("invites"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    fs::write(waiting.path(), "until = 1\n").unwrap();
    let (code, why) = laptop.refused(&["join", &invite]);
    assert_eq!(code, 13);
    assert!(why.contains("has expired: have another one made"), "{why}");
    assert!(!waiting.path().exists());
    lab.tells("no node joined");
}

/// A server that shows its own key to every client.
struct Evil {
    at: String,
    server: Child,
    out: BufReader<ChildStdout>,
}

impl Evil {
    fn begin(scratch: &Scratch) -> Self {
        let (key, certificate) = (scratch.join("evil.key"), scratch.join("evil.pem"));
        let made = Command::new("openssl")
            .args([
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            ])
            .args(["-subj", "/CN=evil", "-keyout"])
            .args([key.as_path(), Path::new("-out"), &certificate])
            .output();
        assert!(made.unwrap().status.success());
        let mut server = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-naccept", "1"])
            .args([Path::new("-key"), &key, Path::new("-cert"), &certificate])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(server.stdout.take().unwrap());
        let at = loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ends");
            if let Some(at) = line.trim().strip_prefix("ACCEPT ") {
                break at.to_owned();
            }
        };
        Self { at, server, out }
    }

    /// Returns the request that it received.
    fn heard(mut self) -> String {
        let mut heard = String::new();
        self.out.read_to_string(&mut heard).unwrap();
        let _ = self.server.wait();
        heard
    }
}

#[test]
fn secret_needs_the_right_key() {
    if !have("openssl") {
        return;
    }
    let scratch = Scratch::new();
    let (lab, laptop) = (Machine::lab(&scratch), Machine::new(&scratch, "b"));
    let invite = lab.invite();
    let secret = invite.rsplit('/').next().unwrap().to_owned();
    // The way to the lab leads to another server.
    let evil = Evil::begin(&scratch);
    let (code, why) = laptop.refused(&["join", &invite.replace(&lab.at, &evil.at)]);
    assert_eq!(code, 13, "{why}");
    assert!(
        why.contains(&format!("not whoever has the key {}", lab.key())),
        "{why}"
    );
    // The key was checked, and nothing was asked.
    let heard = evil.heard();
    assert!(heard.contains("SSL SESSION"), "{heard}");
    assert!(
        !heard.contains("POST") && !heard.contains(&secret),
        "{heard}"
    );
    // The invite was not used up.
    laptop.well(&["join", &invite]);
}

#[test]
fn invite_fits_one_node_only() {
    let scratch = Scratch::new();
    let (lab, laptop) = (Machine::lab(&scratch), Machine::new(&scratch, "b"));
    let mut other = Machine::new(&scratch, "e");
    let there = other.serve("lab", &scratch.join("data"));
    let invite = lab.invite();
    let (code, why) = laptop.refused(&["join", &invite.replace(&lab.at, &there)]);
    assert_eq!(code, 5, "{why}");
    assert!(why.contains("it has another key now"), "{why}");
    // The invite was not used up.
    laptop.well(&["join", &invite]);
}

#[test]
fn mistyped_invite_names_the_part() {
    let scratch = Scratch::new();
    let laptop = Machine::new(&scratch, "b");
    let (key, secret) = ("ab".repeat(32), "cd".repeat(16));
    let good = format!("godwit-invite:lab@127.0.0.1:9/{key}/{secret}");
    for (word, part) in [
        (
            good.replace("godwit-invite:", ""),
            "begins with godwit-invite:",
        ),
        (good.replace("lab@", "lab"), "no @ behind the name"),
        (good.replace("lab@", "l.b@"), "the name is none"),
        (good.replace("127.0.0.1:9", ""), "the address is missing"),
        (
            good.replace("127.0.0.1:9", "127.0.0.1:x"),
            "no address of a node",
        ),
        (
            good.replace(&key, &key[1..]),
            "the fingerprint is cut: 63 of 64",
        ),
        (
            good.replace(&key, &key.replacen("ab", "ax", 1)),
            "character 2 of the fingerprint",
        ),
        (
            good.replace(&secret, &secret[..30]),
            "the secret at its end is cut: 30 of 32",
        ),
        (
            good.replace(&secret, &format!("{}o", &secret[..31])),
            "character 32 of the secret",
        ),
        (
            good.replace(&secret, &format!("{secret} x")),
            "a space or a line break",
        ),
        (
            good.replace(&format!("/{secret}"), ""),
            "three parts behind the @",
        ),
    ] {
        let (code, why) = laptop.refused(&["join", &word]);
        assert_eq!(code, 2, "{word}: {why}");
        assert!(why.contains(part), "{word}: {why}");
        assert!(!why.contains(&secret), "{why}");
    }
}

#[test]
fn secrets_stay_out_of_logs() {
    let scratch = Scratch::new();
    let (lab, laptop) = (Machine::lab(&scratch), Machine::new(&scratch, "b"));
    let invite = lab.invite();
    let secret = invite.rsplit('/').next().unwrap().to_owned();
    let mut join = laptop.command(&["-v", "-v", "-v", "join", "-"]);
    join.env("GODWIT_LOG", "trace").stdin(Stdio::piped());
    join.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut join = join.spawn().unwrap();
    writeln!(join.stdin.take().unwrap(), "{invite}").unwrap();
    let said = join.wait_with_output().unwrap();
    assert!(said.status.success(), "{said:?}");
    lab.tells("joined");
    for told in [lab.log().into_bytes(), said.stdout, said.stderr] {
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(!told.contains(&secret), "{told}");
    }
}

#[test]
fn local_failure_keeps_invite_valid() {
    let scratch = Scratch::new();
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    let mut other = Machine::new(&scratch, "o");
    other.serve("lab", &scratch.join("data"));
    // Another node of the same name.
    let invite = other.invite();
    let (code, why) = laptop.refused(&["join", &invite, "--name", "laptop"]);
    assert_eq!(code, 2, "{why}");
    assert!(
        why.contains("another node is called lab here") && why.contains("--call"),
        "{why}"
    );
    laptop.well(&["join", &invite, "--name", "laptop", "--call", "lab2"]);
    laptop.well(&["ls", "godwit://lab2/"]);
    // Another machine of the same name.
    let desk = Machine::new(&scratch, "d");
    let invite = lab.invite();
    let (_, why) = desk.refused(&["join", &invite, "--name", "laptop"]);
    assert!(why.contains("another node is called laptop here"), "{why}");
    desk.well(&["join", &invite, "--name", "desk"]);
    // The directory cannot be written, even by root.
    let full = Machine::new(&scratch, "f");
    fs::create_dir_all(full.home.join(".local/state")).unwrap();
    fs::write(full.state(), "no directory").unwrap();
    let invite = lab.invite();
    full.refused(&["join", &invite, "--name", "full"]);
    fs::remove_file(full.state()).unwrap();
    full.well(&["join", &invite, "--name", "full"]);
}

#[test]
fn damaged_or_exposed_files_are_named() {
    let scratch = Scratch::new();
    let (_lab, laptop) = Machine::lab_and_laptop(&scratch);
    let peer = laptop.state().join("peers/lab.toml");
    let kept = fs::read_to_string(&peer).unwrap();
    fs::write(&peer, kept.replace("key = ", "kye = ")).unwrap();
    let (_, why) = laptop.refused(&["ls", "godwit://lab/"]);
    assert!(why.contains("lab.toml") && why.contains("kye"), "{why}");
    fs::write(&peer, kept).unwrap();
    let key = laptop.state().join("node.pem");
    let with_mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    with_mode(&key, 0o644);
    let (code, why) = laptop.refused(&["ls", "godwit://lab/"]);
    assert_eq!(code, 13, "{why}");
    assert!(
        why.contains("others may use it") && why.contains("chmod 600"),
        "{why}"
    );
    with_mode(&key, 0o600);
    with_mode(&laptop.state(), 0o777);
    let (_, why) = laptop.refused(&["peers"]);
    assert!(why.contains("others may write there"), "{why}");
    with_mode(&laptop.state(), 0o700);
    laptop.well(&["ls", "godwit://lab/"]);
}

/// A peer that is denied gives up; a fault of the node's disk may pass.
#[test]
fn unreadable_peer_file_is_passing() {
    let scratch = Scratch::new();
    let (lab, laptop) = Machine::lab_and_laptop(&scratch);
    let known = lab.state().join("peers/laptop.toml");
    let kept = fs::read(&known).unwrap();
    fs::write(&known, "garbage").unwrap();
    let (code, why) = laptop.refused(&["ls", "godwit://lab/"]);
    assert!(why.contains("cannot use a file of its own"), "{why}");
    assert!(code != 13 && !why.contains("denied"), "{code} {why}");
    fs::write(&known, kept).unwrap();
    laptop.well(&["ls", "godwit://lab/"]);
}

#[test]
fn peer_acts_as_named_account() {
    if godwit_of_root().is_none() {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("data/f", 10);
    let export = scratch.join("data");
    fs::set_permissions(&export, fs::Permissions::from_mode(0o777)).unwrap();
    let (mut lab, laptop) = (Machine::new(&scratch, "a"), Machine::new(&scratch, "b"));
    lab.serve("lab", &export);
    lab.kill();
    lab.start(&[("GODWIT_PEERS_ACCOUNT", "")]);
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    let (code, why) = laptop.refused(&["ls", "godwit://lab/"]);
    assert_eq!(code, 13, "{why}");
    assert!(
        why.contains("godwit peers map laptop --as ACCOUNT"),
        "{why}"
    );
    let (code, why) = lab.refused(&["peers", "map", "laptop", "--as", "root"]);
    assert_eq!(code, 2, "{why}");
    lab.refused(&["peers", "map", "laptop", "--as", "nobody-of-this-name"]);
    lab.well(&["peers", "map", "laptop", "--as", "nobody"]);
    fs::write(scratch.join("mine"), "bytes").unwrap();
    laptop.well(&["cp", "mine", "godwit://lab/theirs"]);
    let owner = fs::metadata(export.join("theirs")).unwrap().uid();
    assert_eq!(owner, 65534);
    // The same by the invite.
    let invite = lab.well(&["-q", "peers", "invite", "--as", "nobody"]);
    let desk = Machine::new(&scratch, "d");
    desk.well(&["join", invite.trim(), "--name", "desk"]);
    desk.well(&["cp", "mine", "godwit://lab/again"]);
    assert_eq!(fs::metadata(export.join("again")).unwrap().uid(), 65534);
    let said = lab.well(&["peers", "--json"]);
    assert!(said.contains(r#""account":"nobody""#), "{said}");
}

/// Returns whether root runs the tests; if so, says what is skipped.
fn godwit_of_root() -> Option<()> {
    let root = common::run(5, "id", ["-u"]).stdout == b"0\n";
    if !root {
        common::skip("acting for others needs root");
    }
    root.then_some(())
}

#[test]
fn init_opens_no_ftp_unless_asked() {
    let scratch = Scratch::new();
    scratch.file("data/f", 10);
    let mut lab = Machine::new(&scratch, "a");
    lab.init("lab", &scratch.join("data"));
    let said = lab.start_saying(&["node", "--json"], &[]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["ftp"], serde_json::json!([]), "{said}");
    assert_eq!(said["https"][0], lab.at);
}

#[test]
fn init_with_taken_port_leaves_nothing() {
    let scratch = Scratch::new();
    let (lab, data) = (Machine::new(&scratch, "a"), scratch.dir("data"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let init = [
        "init",
        "lab",
        "--export",
        data.to_str().unwrap(),
        "--https",
        &at,
    ];
    let (code, why) = lab.refused(&init);
    assert_eq!(code, 2, "{why}");
    assert!(why.contains(&at) && why.contains("--https"), "{why}");
    assert!(
        !lab.home
            .join(".config")
            .join("godwit")
            .join("node.toml")
            .exists()
    );
    assert!(!lab.state().join("invites").exists());
    drop(taken);
    lab.well(&init);
}

/// Bash cuts words at colons, unless its user had it not do so.
#[test]
fn bash_completes_names_of_peers() {
    let scratch = Scratch::new();
    let (lab, laptop) = (Machine::lab(&scratch), Machine::new(&scratch, "b"));
    lab.joined_by(&laptop, "laptop");
    let script = scratch.join("godwit.bash");
    fs::write(&script, laptop.well(&["completions", "bash"])).unwrap();
    let godwit = laptop.command(&[]);
    let folder = Path::new(godwit.get_program()).parent().unwrap();
    for (line, word, offered) in [
        ("godwit ls godwit://l", "//l", "//lab/"),
        ("godwit ls godwit://", "godwit://", "godwit://lab/"),
        ("godwit ls godwit://x", "//x", ""),
        ("godwit com", "com", "commit completions"),
    ] {
        let asked = "source $1; COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=($2) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
            _godwit_or_peer godwit \"$3\" ls; echo ${COMPREPLY[@]}";
        let mut bash = Command::new("bash");
        bash.args(["-c", asked, "bash", script.to_str().unwrap(), line, word]);
        bash.env("HOME", scratch.join("b"));
        for (name, value) in godwit.get_envs() {
            bash.env(name, value.unwrap_or_default());
        }
        let path = std::env::var("PATH").unwrap();
        bash.env("PATH", format!("{}:{path}", folder.display()));
        let said = bash.output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&said.stdout).trim(),
            offered,
            "{line}: {said:?}"
        );
    }
}

#[test]
fn read_only_peer_changes_nothing() {
    let scratch = Scratch::new();
    let (lab, laptop) = (Machine::lab(&scratch), Machine::new(&scratch, "b"));
    let invite = lab.well(&["-q", "peers", "invite", "--read-only"]);
    laptop.well(&["join", invite.trim(), "--name", "laptop"]);
    laptop.well(&["cp", "godwit://lab/f", "here"]);
    for words in [
        &["cp", "here", "godwit://lab/new"][..],
        &["rm", "godwit://lab/f"],
        &["mkdir", "godwit://lab/d"],
        &["mv", "godwit://lab/f", "godwit://lab/g"],
    ] {
        let (code, why) = laptop.refused(words);
        assert_eq!(code, 13, "{words:?}: {why}");
    }
    assert_eq!(common::tree(&scratch.join("data")), [Path::new("f")]);
    assert!(lab.well(&["peers"]).contains("may only read"));
}

#[test]
fn second_user_joins_under_own_name() {
    let scratch = Scratch::new();
    let lab = Machine::lab(&scratch);
    let (one, two) = (Machine::new(&scratch, "b"), Machine::new(&scratch, "c"));
    one.well(&["join", &lab.invite()]);
    let said = two.well(&["join", &lab.invite()]);
    let host = lab.knows().peers().unwrap();
    assert_eq!(host.len(), 2, "{said}");
    let user = String::from_utf8(common::run(5, "id", ["-un"]).stdout).unwrap();
    assert!(
        said.starts_with(&format!("joined lab as {}-", user.trim())),
        "{said}"
    );
    two.well(&["ls", "godwit://lab/"]);
}

#[test]
fn init_refuses_closed_export() {
    if common::run(5, "id", ["-u"]).stdout != b"0\n" {
        return common::skip("acting for others needs root");
    }
    let scratch = Scratch::new();
    let (lab, closed) = (Machine::new(&scratch, "a"), scratch.dir("closed/data"));
    fs::set_permissions(scratch.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    let at = format!("127.0.0.1:{}", common::lasting_port());
    let says = |more: &[&str]| {
        let mut init = lab.command(&["init", "lab", "--https", &at, "--export"]);
        init.arg(&closed)
            .args(more)
            .env_remove("GODWIT_PEERS_ACCOUNT");
        init.output().unwrap()
    };
    let refused = says(&[]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(
        why.contains("would act as") && why.contains("--as ACCOUNT"),
        "{why}"
    );
    fs::set_permissions(scratch.join("closed"), fs::Permissions::from_mode(0o711)).unwrap();
    let made = says(&[]);
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn peers_of_root_read_as_nobody() {
    if common::run(5, "id", ["-u"]).stdout != b"0\n" {
        return common::skip("acting for others needs root");
    }
    let scratch = Scratch::new();
    scratch.file("data/run7/f", 1000);
    let (mut lab, laptop) = (Machine::new(&scratch, "a"), Machine::new(&scratch, "b"));
    lab.init("lab", &scratch.join("data"));
    let mut node = lab.command(&["node", "--json"]);
    node.env_remove("GODWIT_PEERS_ACCOUNT");
    lab.node = Some(common::Node::spawn(node, &lab.home));
    lab.joined_by(&laptop, "laptop");
    laptop.well(&["cp", "-r", "godwit://lab/run7", "."]);
    let (code, why) = laptop.refused(&["rm", "godwit://lab/run7/f"]);
    assert_eq!(code, 13, "{why}");
}

#[test]
fn node_without_anonymous_admits_no_stranger() {
    let scratch = Scratch::new();
    let export = scratch.dir("export");
    let node = common::Node::with(&export, &[]);
    let said = common::ours(["ls", &node.url("")]);
    assert_eq!(said.status, Some(13), "{said}");
}

#[test]
fn home_and_state_stay_private() {
    let scratch = Scratch::new();
    let lab = Machine::new(&scratch, "a");
    let home = lab.home.to_str().unwrap();
    let (code, why) = lab.refused(&["node", "--ftp", "127.0.0.1:0", "--export", home]);
    assert_eq!(code, 2, "{why}");
    assert!(
        why.contains("is your home") && why.contains("--export DIR"),
        "{why}"
    );
    let state = scratch.dir("shared/state");
    let shared = scratch.join("shared");
    let (shared, state) = (shared.to_str().unwrap(), state.to_str().unwrap());
    let words = [
        "node",
        "--ftp",
        "127.0.0.1:0",
        "--export",
        shared,
        "--state",
        state,
    ];
    let (code, why) = lab.refused(&words);
    assert_eq!(code, 2, "{why}");
    assert!(why.contains("--state DIR"), "{why}");
    let (code, why) = lab.refused(&["init", "lab", "--export", home]);
    assert_eq!(code, 2, "{why}");
}

#[test]
fn unreadable_found_host_key_is_ignored() {
    let scratch = Scratch::new();
    let Some(ours) = common::as_nobody(&scratch) else {
        return;
    };
    if !Path::new("/etc/grid-security").is_dir() {
        return common::skip("/etc/grid-security is missing");
    }
    let security = scratch.dir("security");
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=h", "-keyout",
        ])
        .args([security.join("hostkey.pem").as_path(), Path::new("-out")])
        .arg(security.join("hostcert.pem"))
        .output();
    assert!(made.unwrap().status.success());
    let key = fs::Permissions::from_mode(0o400);
    fs::set_permissions(security.join("hostkey.pem"), key).unwrap();
    let inside = "mount --bind \"$0\" /etc/grid-security && exec \"$@\"";
    let mut tried = Command::new("unshare");
    tried
        .args(["-m", "sh", "-c", inside])
        .arg(&security)
        .arg("true");
    if !tried.output().is_ok_and(|said| said.status.success()) {
        return common::skip("another /etc/grid-security needs unshare -m");
    }
    let (export, ours) = (scratch.dir("export"), ours());
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", inside]).arg(&security);
    command.arg(ours.get_program()).args(ours.get_args());
    command.args([
        "node",
        "--json",
        "--ftp",
        "none",
        "--https",
        "127.0.0.1:0",
        "--export",
    ]);
    command.arg(&export).env("HOME", "/nonexistent");
    let node = common::Node::spawn(command, &export);
    let log = fs::read_to_string(node.export.with_extension("log")).unwrap();
    assert!(log.contains("ignored the key of the host"), "{log}");
}

/// A machine's program that finds the cache service of that machine alone.
fn with_cache(machine: &Machine<'_>, words: &[&str]) -> Command {
    let mut command = machine.command(words);
    command.env("GODWIT_SOCKET", machine.home.join("run/socket"));
    command.env("GODWIT_STATE", machine.home.join("depot"));
    command
}

#[test]
fn status_shows_server_until_it_ends() {
    let scratch = Scratch::new();
    let mut lab = Machine::lab(&scratch);
    let status = || {
        let said = with_cache(&lab, &["node", "status"]).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let process = lab.node.as_ref().unwrap().pid();
    let shown = status();
    let begin = format!(
        "server: process {process}, serves {}",
        scratch.join("data").display()
    );
    assert!(shown.starts_with(&begin), "{shown}");
    assert!(shown.contains(&format!("godwit://{}/", lab.at)), "{shown}");
    assert!(shown.contains("\nno cache service runs"), "{shown}");
    lab.kill();
    let shown = with_cache(&lab, &["node", "status"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.starts_with("no server runs"), "{shown}");
    lab.start(&[]);
    let left = fs::read_dir(lab.state()).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("server-"));
    assert_eq!(left.count(), 1, "the file of the one that was killed stays");
}

#[test]
fn uninit_asks_and_keeps_shared_files() {
    let scratch = Scratch::new();
    let mut lab = Machine::lab(&scratch);
    let says = |lab: &Machine<'_>, words: &[&str]| {
        let said = with_cache(lab, words)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&said.stderr).into_owned();
        (said.status.code().unwrap(), told)
    };
    let (code, why) = says(&lab, &["uninit", "--yes"]);
    assert!(code == 2 && why.contains("end it: kill "), "{why}");
    lab.stop();
    let (code, why) = says(&lab, &["uninit"]);
    assert!(code == 2 && why.contains("nothing was removed"), "{why}");
    let config = lab.home.join(".config/godwit/config.toml");
    assert!(config.exists() && lab.state().join("node.pem").exists());
    let (code, why) = says(&lab, &["uninit", "--yes"]);
    assert_eq!(code, 0, "{why}");
    assert!(!config.exists() && lab.knows().parts().is_empty());
    assert!(scratch.join("data/f").exists());
    let (code, why) = says(&lab, &["uninit", "--yes"]);
    assert!(code == 2 && why.contains("is no node"), "{why}");
    lab.init("other", &scratch.join("data"));
}

#[test]
fn uninit_waits_for_pending_puts() {
    let scratch = Scratch::new();
    let (mut lab, laptop) = Machine::lab_and_laptop(&scratch);
    lab.kill();
    let file = scratch.file("new", 1000);
    let says = |words: &[&str]| {
        let said = with_cache(&laptop, words).output().unwrap();
        let told = String::from_utf8_lossy(&said.stderr).into_owned();
        (said.status.code().unwrap(), told)
    };
    let (code, why) = says(&["put", file.to_str().unwrap(), "godwit://lab/new"]);
    assert_eq!(code, 0, "{why}");
    let (code, why) = says(&["uninit", "--yes"]);
    assert!(code == 1 && why.contains("godwit uninit --drop"), "{why}");
    assert!(why.contains("godwit queue shows"), "{why}");
    assert!(laptop.state().join("node.pem").exists());
    let (code, why) = says(&["uninit", "--yes", "--drop"]);
    assert_eq!(code, 0, "{why}");
    assert!(!laptop.state().join("node.pem").exists());
    let queue = with_cache(&laptop, &["queue"]).output().unwrap();
    assert!(queue.stdout.is_empty(), "{queue:?}");
    assert_eq!(says(&["node", "stop"]).0, 0);
}
