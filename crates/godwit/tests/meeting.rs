//! Messages while machines get to know each other: taken names, removed peers, names in URLs, failed inits. A refusal
//! leaves nothing on either side.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Machine, Scratch, skip};
use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
};

/// A node called lab, and a directory with a file in it.
fn lab(scratch: &Scratch) -> Machine<'_> {
    scratch.file("data/f", 10);
    let mut lab = Machine::new(scratch, "a");
    lab.serve("lab", &scratch.join("data"));
    lab
}

#[track_caller]
fn says(said: &(i32, String), code: i32, words: &[&str]) {
    assert_eq!(said.0, code, "{}", said.1);
    for words in words {
        assert!(said.1.contains(words), "wanted {words:?} in {}", said.1);
    }
}

#[track_caller]
fn knows_nobody(machine: &Machine<'_>) {
    assert_eq!(machine.knows().peers().unwrap(), []);
}

#[test]
fn nobody_joins_themselves() {
    let scratch = Scratch::new();
    let lab = lab(&scratch);
    let invite = lab.invite();
    for more in [&["--name", "me"][..], &["--call", "me", "--name", "me2"]] {
        let said = lab.refused(&[&["join", &invite][..], more].concat());
        says(&said, 2, &["this node itself", "the invite is still good"]);
    }
    knows_nobody(&lab);
    let laptop = Machine::new(&scratch, "b");
    laptop.well(&["join", &invite, "--name", "laptop"]);
}

#[test]
fn own_name_is_reserved() {
    let scratch = Scratch::new();
    let lab = lab(&scratch);
    let (laptop, mut other) = (Machine::new(&scratch, "b"), Machine::new(&scratch, "c"));
    let invite = lab.invite();
    let said = laptop.refused(&["join", &invite, "--name", "lab"]);
    says(&said, 2, &["called lab itself", "--name", "still good"]);
    // A forged invite has another name, so only the node itself can object.
    let forged = invite.replacen(":lab@", ":other@", 1);
    let said = laptop.refused(&["join", &forged, "--name", "lab"]);
    says(
        &said,
        2,
        &["this node itself is called lab", "--name", "still good"],
    );
    knows_nobody(&laptop);
    knows_nobody(&lab);
    // A node of the same name has one already, by which it would join.
    other.serve("lab", &scratch.join("data"));
    let said = other.refused(&["join", &invite]);
    says(&said, 2, &["this node itself is called lab", "--call NAME"]);
    let said = other.refused(&["join", &invite, "--call", "lab2"]);
    says(&said, 2, &["called lab itself", "--name NAME"]);
    other.well(&["join", &invite, "--call", "lab2", "--name", "other"]);
    other.well(&["ls", "godwit://lab2/"]);
}

#[test] //= door#peers
fn names_ignore_case() {
    let scratch = Scratch::new();
    scratch.file("data/f", 10);
    let [mut lab, mut desk, laptop] = ["a", "b", "c"].map(|name| Machine::new(&scratch, name));
    lab.serve("Lab", &scratch.join("data"));
    desk.serve("desk", &scratch.join("data"));
    let invite = lab.invite();
    let said = laptop.refused(&["join", &invite, "--name", "lab"]);
    says(&said, 2, &["called Lab itself", "--name", "still good"]);
    laptop.well(&["join", &invite, "--name", "Alice"]);
    assert!(laptop.well(&["peers"]).starts_with("Lab "));
    for name in ["Lab", "lab", "LAB"] {
        assert_eq!(laptop.well(&["ls", &format!("godwit://{name}/")]), "f\n");
    }
    let said = laptop.refused(&["join", &desk.invite(), "--call", "LAB"]);
    says(&said, 2, &["another node is called Lab here", "--call"]);
    let said = desk.refused(&["join", &lab.invite(), "--name", "alice"]);
    says(&said, 2, &["another node is called Alice", "--name"]);
    knows_nobody(&desk);
    laptop.well(&["leave", "lab"]);
    knows_nobody(&laptop);
    knows_nobody(&lab);
}

#[test]
fn taken_name_joins_neither_side() {
    let scratch = Scratch::new();
    let lab = lab(&scratch);
    let (laptop, desk) = (Machine::new(&scratch, "b"), Machine::new(&scratch, "d"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    let invite = lab.invite();
    let said = desk.refused(&["join", &invite, "--name", "laptop"]);
    says(&said, 2, &["another node is called laptop", "--name NAME"]);
    knows_nobody(&desk);
    // A machine that is known by another name need not join.
    let said = laptop.refused(&["join", &invite, "--name", "laptop", "--call", "lab2"]);
    says(&said, 2, &["known here as lab", "godwit leave lab"]);
    let said = laptop.refused(&["join", &invite, "--name", "laptop2"]);
    let known = "the same key is known here as laptop";
    says(&said, 2, &[known, "--name laptop, or first", "still good"]);
    desk.well(&["join", &invite, "--name", "desk"]);
    assert_eq!(lab.knows().peers().unwrap().len(), 2);
}

#[test]
fn new_key_needs_forgetting_first() {
    let scratch = Scratch::new();
    let (mut lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    lab.stop();
    fs::remove_dir_all(lab.state()).unwrap();
    fs::remove_dir_all(lab.home.join(".config")).unwrap();
    lab.serve("lab", &scratch.join("data"));
    let invite = lab.invite();
    let said = laptop.refused(&["join", &invite, "--name", "laptop"]);
    let next = "same machine with a new key: godwit leave lab, then join again";
    says(&said, 2, &["another node is called lab here", next]);
    laptop.refused(&["leave", "lab"]);
    laptop.well(&["join", &invite, "--name", "laptop"]);
    // The other way around.
    fs::remove_dir_all(laptop.state()).unwrap();
    let invite = lab.invite();
    let said = laptop.refused(&["join", &invite, "--name", "laptop"]);
    let next = "godwit peers remove laptop, there, then join again";
    says(&said, 2, &["another node is called laptop", next]);
    lab.well(&["peers", "remove", "laptop"]);
    laptop.well(&["join", &invite, "--name", "laptop"]);
}

#[test]
fn joining_node_keeps_its_name() {
    let scratch = Scratch::new();
    let (lab, mut desk) = (lab(&scratch), Machine::new(&scratch, "d"));
    desk.serve("desk", &scratch.join("data"));
    let said = desk.well(&["join", &lab.invite()]);
    assert!(said.starts_with("joined lab as desk:"), "{said}");
    assert!(lab.knows().peer("desk").unwrap().is_some());
}

#[test]
fn impossible_names_are_usage_errors() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    let invite = lab.invite();
    for (option, value, why) in [
        ("--name", "my laptop", "'my laptop' cannot be the name"),
        ("--name", "", "cannot be the name"),
        ("--call", "a.b", "'a.b' cannot be the name"),
        ("--address", "nowhere:x", "no address of a node"),
        ("--address", "a/b", "no address of a node"),
    ] {
        let said = laptop.refused(&["join", &invite, option, value]);
        says(&said, 2, &[why]);
    }
    knows_nobody(&lab);
    let said = lab.refused(&["peers", "invite", "--valid", "31d"]);
    says(&said, 2, &["30 days at most"]);
    lab.well(&["peers", "invite", "--valid", "30d"]);
    laptop.well(&["join", &invite, "--name", "laptop"]);
}

#[test]
fn dead_secrets_are_told_apart() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    let invite = lab.invite();
    let (head, secret) = invite.rsplit_once('/').unwrap();
    let typed = format!("{head}/{}", secret.chars().rev().collect::<String>());
    let said = laptop.refused(&["join", &typed]);
    says(
        &said,
        13,
        &["none that this node gave out, or it was used already, or has expired"],
    );
}

#[test]
fn removed_peer_can_leave() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop", "--call", "far"]);
    lab.well(&["peers", "remove", "laptop"]);
    let said = laptop.refused(&["ls", "godwit://far/"]);
    says(
        &said,
        13,
        &[
            "far does not know this machine any more",
            "godwit join INVITE",
        ],
    );
    assert!(!said.1.contains("authority"), "{}", said.1);
    let found = laptop.says(&["doctor", "godwit://far/"]);
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(
        found.contains("proof") && found.contains("join again"),
        "{found}"
    );
    let said = laptop.well(&["leave", "far"]);
    assert_eq!(said, "left far, which did not know this machine any more\n");
    knows_nobody(&laptop);
    // Everything is as before.
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    laptop.well(&["ls", "godwit://lab/"]);
}

#[test]
fn unreachable_peer_is_forgotten() {
    let scratch = Scratch::new();
    let (mut lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    lab.kill();
    let said = laptop.refused(&["leave", "lab"]);
    says(
        &said,
        5,
        &["lab is forgotten here; say godwit leave there as well"],
    );
    knows_nobody(&laptop);
    assert_eq!(lab.knows().peers().unwrap().len(), 1);
}

#[test]
fn peer_address_names_peer() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    let by_address = format!("godwit://{}/", lab.at);
    assert!(laptop.well(&["ls", &by_address]).contains('f'));
    // Another peer is recorded at this address; the address still means the node that shows its key there.
    let mut other = Machine::new(&scratch, "c");
    other.serve("other", &scratch.join("data"));
    let through = godwit_trust::Peer::new("away", other.key(), std::slice::from_ref(&lab.at));
    laptop.knows().add(&through).unwrap();
    assert!(laptop.well(&["ls", &by_address]).contains('f'));
    laptop.well(&["peers", "remove", "lab"]);
    // A peer that is only reached through the address is not named.
    let said = laptop.refused(&["ls", &by_address]);
    assert!(!said.1.contains("away"), "{}", said.1);
    says(
        &said,
        13,
        &["is a node that this machine has not joined", "godwit join"],
    );
}

#[test]
fn peer_url_keeps_port_user() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    let said = laptop.refused(&["ls", "godwit://lab:1/"]);
    says(&said, 2, &["lab is a peer here", &lab.at, "godwit://lab/"]);
    for url in [
        "godwit://me@lab/".to_owned(),
        format!("godwit://me@{}/", lab.at),
    ] {
        let said = laptop.refused(&["ls", &url]);
        says(&said, 2, &["as me nobody can come to it", "godwit://lab/"]);
    }
    laptop.well(&["ls", "godwit://lab:13560/"]);
}

#[test]
fn wrong_port_is_no_door() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    let open = common::Node::start(&scratch.join("open"));
    let ftp = format!("127.0.0.1:{}", open.port);
    let said = laptop.refused(&["join", &lab.invite().replace(&lab.at, &ftp)]);
    says(&said, 1, &["does not speak TLS", &ftp, "13560"]);
    assert!(!said.1.contains("dialogue"), "{}", said.1);
}

#[test]
fn doctor_names_missing_file() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    let found = laptop.says(&["doctor", "godwit://lab/nothing"]);
    assert_eq!(found.status.code(), Some(4));
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains("fix: the file is missing"), "{found}");
    assert!(!found.contains("its log says more"), "{found}");
}

#[test]
fn what_is_normal_is_no_warning() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    laptop.well(&["ls", "godwit://lab/"]);
    let file = laptop.state().join("peers/lab.toml");
    let known = fs::read(&file).unwrap();
    laptop.well(&["leave", "lab"]);
    lab.tells("left name=\"laptop\"");
    let log = lab.log();
    let since = &log[log.find("serve export").unwrap()..];
    assert!(
        !since.contains(" WARN ") && !since.contains("may do nothing"),
        "{since}"
    );
    // A peer without rights that asks for something gets a line.
    fs::write(&file, known).unwrap();
    laptop.refused(&["ls", "godwit://lab/"]);
    lab.tells("a visitor may do nothing");
}

#[test]
fn failed_init_leaves_nothing() {
    let scratch = Scratch::new();
    let data = scratch.dir("data");
    let data = data.to_str().unwrap();
    let machine = Machine::new(&scratch, "a");
    for (words, why) in [
        (
            &["init", "my lab", "--export", data][..],
            "cannot be the name",
        ),
        (
            &["init", "lab", "--export", data, "--https", "nowhere"],
            "https.listen",
        ),
        (
            &["init", "lab", "--export", data, "--https", "none"],
            "without a door",
        ),
        (
            &["init", "lab", "--export", data, "--address", "x:y"],
            "no address of a node",
        ),
        (
            &["init", "lab", "--export", data, "--via", "nobody"],
            "nobody",
        ),
        (
            &["init", "lab", "--export", data, "--valid", "90d"],
            "30 days at most",
        ),
        (&["init", "lab", "--export", "missing"], "no such file"),
    ] {
        let (_, said) = machine.refused(words);
        assert!(said.contains(why), "{words:?}: {said}");
        assert_eq!(fs::read_dir(&machine.home).unwrap().count(), 0, "{words:?}");
    }
    // The failure is found after the configuration was written.
    fs::create_dir_all(machine.home.join(".local/state")).unwrap();
    fs::write(machine.state(), "no directory").unwrap();
    machine.refused(&["init", "lab", "--export", data]);
    assert!(!machine.home.join(".config/godwit/config.toml").exists());
    fs::remove_file(machine.state()).unwrap();
    fs::create_dir_all(machine.state()).unwrap();
    let invites = machine.state().join("invites");
    fs::write(&invites, "no directory").unwrap();
    machine.refused(&["init", "lab", "--export", data]);
    assert!(!machine.home.join(".config/godwit/config.toml").exists());
    fs::remove_file(&invites).unwrap();
    machine.well(&["init", "lab", "--export", data]);
}

#[test]
fn account_node_can_read_key() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skip("only root can start a node that becomes another account");
    }
    let scratch = Scratch::new();
    let (data, machine) = (scratch.dir("data"), Machine::new(&scratch, "a"));
    chown(&data, Some(61_001), Some(61_001)).unwrap();
    let closed = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    closed(scratch.path(), 0o755);
    closed(&machine.home, 0o700);
    let init = ["init", "lab", "--export", data.to_str().unwrap()];
    let home = machine.home.to_str().unwrap();
    let hint = "godwit init and godwit node as 61001, or give both --state DIR";
    let why = format!("61001 may not enter {home}\n");
    says(&machine.refused(&init), 2, &[&why, hint]);
    assert_eq!(fs::read_dir(&machine.home).unwrap().count(), 0);
    // The account that the node runs as must reach it.
    closed(&machine.home, 0o711);
    let mut as_other = machine.command(&init);
    let said = as_other.env("GODWIT_NODE_USER", "61002").output().unwrap();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(fs::metadata(machine.state()).unwrap().uid(), 61_002);
    let said = machine.refused(&init);
    let why = format!("61001 may not enter {}\n", machine.state().display());
    says(&said, 2, &[&why, hint]);
    fs::remove_dir_all(machine.home.join(".local")).unwrap();
    // A home that is closed to the account is reported by the node as well.
    machine.well(&init);
    closed(&machine.home, 0o700);
    let node = ["node", "--ftp", "none", "--https", "127.0.0.1:0"];
    says(&machine.refused(&node), 2, &["permission denied", hint]);
}

#[test]
fn a_node_is_made_once() {
    let scratch = Scratch::new();
    let (data, other) = (scratch.dir("data"), scratch.dir("other"));
    let (data, other) = (data.to_str().unwrap(), other.to_str().unwrap());
    let machine = Machine::new(&scratch, "a");
    let said = machine.well(&["init", "lab", "--export", data]);
    assert!(said.contains("lab will share"), "{said}");
    let said = machine.well(&["init", "lab", "--export", data]);
    assert!(said.contains("is a node already"), "{said}");
    assert!(said.contains("godwit join godwit-invite:lab@"), "{said}");
    let said = machine.refused(&["init", "fermi", "--export", data]);
    says(
        &said,
        2,
        &[
            "this machine is the node lab already",
            "--rename",
            "godwit peers invite",
        ],
    );
    assert_eq!(machine.knows().myself().unwrap().unwrap().name, "lab");
    let said = machine.refused(&["init", "lab", "--export", other]);
    let differs = format!("something else: node.export is {data:?} there, {other:?} was asked\n");
    says(&said, 2, &["config.toml is there already", &differs]);
    let said = machine.refused(&["init", "lab", "--export", data, "--https", "[::1]:1"]);
    let differs = "something else: https.listen is \"[::]:13560\" there, \"[::1]:1\" was asked\n";
    says(&said, 2, &[differs]);
    let said = machine.well(&["init", "fermi", "--export", data, "--rename"]);
    assert!(said.contains("godwit-invite:fermi@"), "{said}");
}

#[test]
fn relayed_node_opens_no_port() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    let data = scratch.dir("mine");
    laptop.well(&[
        "init",
        "laptop",
        "--export",
        data.to_str().unwrap(),
        "--via",
        "lab",
    ]);
    let shown = laptop.well(&["config", "show"]);
    for key in ["ftp.listen", "https.listen"] {
        let line = shown.lines().find(|line| line.starts_with(key)).unwrap();
        assert!(line.contains("\"none\"") || line.contains("\"\""), "{line}");
    }
}

#[test]
fn taken_port_names_alternatives() {
    let scratch = Scratch::new();
    let data = scratch.dir("data");
    let (data, machine) = (data.to_str().unwrap(), Machine::new(&scratch, "a"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (_, said) = machine.refused(&["node", "--export", data, "--ftp", &taken]);
    assert!(said.contains("--ftp none: no FTP"), "{said}");
    let node = ["node", "--export", data, "--ftp", "none", "--https"];
    let (_, said) = machine.refused(&[&node[..], &[&taken]].concat());
    assert!(said.contains("--https none: no door"), "{said}");
    let said = machine.refused(&[&node[..], &["none"]].concat());
    says(
        &said,
        2,
        &["where it would serve", "--ftp", "--https", "--via"],
    );
    // The same by the configuration.
    let mut config = machine.command(&["config", "check"]);
    config.env("GODWIT_FTP_LISTEN", "none");
    let said = config.output().unwrap();
    assert_eq!(said.status.code(), Some(2), "{said:?}");
}

#[test]
fn node_without_ftp_has_door() {
    let scratch = Scratch::new();
    let data = scratch.dir("data");
    let mut machine = Machine::new(&scratch, "a");
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = door.local_addr().unwrap().to_string();
    drop(door);
    machine.well(&[
        "init",
        "lab",
        "--export",
        data.to_str().unwrap(),
        "--https",
        &at,
    ]);
    let ready = machine.start_saying(&["node", "--ftp", "none", "--json"], &[]);
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(ready["ftp"], serde_json::json!([]));
    assert_eq!(
        ready["urls"],
        serde_json::json!([format!("godwit://{at}/")])
    );
}

#[test]
fn status_shows_old_key_peers() {
    let scratch = Scratch::new();
    let (lab, laptop) = (lab(&scratch), Machine::new(&scratch, "b"));
    laptop.well(&["join", &lab.invite(), "--name", "laptop"]);
    let before = lab.key().to_string();
    assert!(!lab.well(&["peers"]).contains("our old key"));
    lab.well(&["peers", "rotate"]);
    let said = lab.well(&["peers"]);
    let line = said
        .lines()
        .find(|line| line.starts_with("our old key"))
        .unwrap();
    assert!(line.contains(&before) && line.contains("laptop"), "{line}");
    let said = lab.well(&["peers", "--json"]);
    assert!(said.contains(r#""known_by":["laptop"]"#), "{said}");
    // Once the new key was used between them, the old one is void.
    laptop.well(&["ls", "godwit://lab/"]);
    laptop.well(&["ls", "godwit://lab/"]);
    assert!(!lab.well(&["peers"]).contains("our old key"));
}
