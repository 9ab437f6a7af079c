//! Rights: every command asks for the rights that it needs, on the path that it really changes, and is answered as
//! `godwit auth explain` says.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Client, Scratch, Served, until};
use godwit_trust::{PERMISSIONS, Permission, Rights};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

/// The rights that a command needs: all of these, or any right on one place.
#[derive(Clone, Copy, Debug)]
enum Needs {
    All(&'static [(Permission, &'static str)]),
    Any(&'static str),
}

use Needs::{All, Any};
use Permission::{Create, Delete, List, Read, Write};

/// How a command is sent.
#[derive(Clone, Copy, Debug)]
enum Say {
    /// On the control channel; several in a row, of which the last counts.
    Lines(&'static [&'static str]),
    /// A file or a listing comes.
    Get(&'static str),
    /// A file is sent; the lines are sent first.
    Put(&'static [&'static str]),
    /// A file is sent in extended blocks.
    Blocks(&'static [&'static str]),
}

use Say::{Blocks, Get, Lines, Put};

const F: &str = "/d/f";
const NEW: &str = "/d/new";

/// Every command with a name, and the rights that it needs.
const TABLE: &[(Say, Needs)] = &[
    (Get("RETR d/f"), All(&[(Read, F)])),
    (Get("ERET P 1 2 d/f"), All(&[(Read, F)])),
    (Lines(&["CKSM MD5 0 -1 d/f"]), All(&[(Read, F)])),
    (Lines(&["CKSM BLAKE3 0 -1 d/f"]), All(&[(Read, F)])),
    (
        Lines(&["SITE GODWIT LEAVES from=0;count=1 d/f"]),
        All(&[(Read, F)]),
    ),
    (Put(&["STOR d/f"]), All(&[(Write, F)])),
    (Put(&["STOR d/new"]), All(&[(Create, NEW)])),
    (Put(&["REST 2", "STOR d/f"]), All(&[(Write, F)])),
    (Put(&["APPE d/f"]), All(&[(Write, F)])),
    (Put(&["APPE d/new"]), All(&[(Create, NEW)])),
    (
        Put(&["STORATTR modify=20200101000000;", "STOR d/new"]),
        All(&[(Create, NEW)]),
    ),
    (Put(&["ALLO 4", "STOR d/new"]), All(&[(Create, NEW)])),
    (Put(&["STOU d/new"]), All(&[(Create, "/d")])),
    (Blocks(&["STOR d/f"]), All(&[(Write, F)])),
    (Blocks(&["STOR d/new"]), All(&[(Create, NEW)])),
    (Blocks(&["ESTO A 1 d/f"]), All(&[(Write, F)])),
    // In place others may have made it meanwhile.
    (
        Blocks(&["ESTO A 1 d/new"]),
        All(&[(Create, NEW), (Write, NEW)]),
    ),
    (
        Blocks(&["ESTO GODWIT=\"how=new\" d/new"]),
        All(&[(Create, NEW)]),
    ),
    (Blocks(&["ESTO GODWIT=\"id=a\" d/f"]), All(&[(Write, F)])),
    (
        Blocks(&["ESTO GODWIT=\"how=inplace\" d/f"]),
        All(&[(Write, F)]),
    ),
    (Lines(&["DELE d/f"]), All(&[(Delete, F)])),
    (Lines(&["DELE d/link"]), All(&[(Delete, "/d/link")])),
    (Lines(&["RMD d/empty"]), All(&[(Delete, "/d/empty")])),
    (Lines(&["XRMD d/empty"]), All(&[(Delete, "/d/empty")])),
    (
        Lines(&["SITE RDEL d/full"]),
        All(&[(Delete, "/d/full"), (List, "/d/full")]),
    ),
    (Lines(&["MKD d/new"]), All(&[(Create, NEW)])),
    (Lines(&["XMKD d/new"]), All(&[(Create, NEW)])),
    (
        Lines(&["RNFR d/f", "RNTO d/new"]),
        All(&[(Delete, F), (Create, NEW)]),
    ),
    (
        Lines(&["RNFR d/f", "RNTO d/g"]),
        All(&[(Delete, F), (Create, "/d/g"), (Write, "/d/g")]),
    ),
    (
        Lines(&["RNFR d/full", "RNTO d/new"]),
        All(&[(Delete, "/d/full"), (Create, NEW)]),
    ),
    (Lines(&["MFMT 20200101000000 d/f"]), All(&[(Write, F)])),
    (
        Lines(&["SITE UTIME 20200101000000 d/f"]),
        All(&[(Write, F)]),
    ),
    (Lines(&["SITE CHMOD 600 d/f"]), All(&[(Write, F)])),
    (Lines(&["SITE CHGRP GROUP d/f"]), All(&[(Write, F)])),
    (Lines(&["SITE TRNC 2 d/f"]), All(&[(Write, F)])),
    (Lines(&["SITE SYMLINK f d/new"]), All(&[(Create, NEW)])),
    (
        Lines(&["SITE SYMLINKFROM f", "SITE SYMLINKTO d/new"]),
        All(&[(Create, NEW)]),
    ),
    (Get("LIST d"), All(&[(List, "/d")])),
    (Get("NLST d"), All(&[(List, "/d")])),
    (Get("NLST d/*"), All(&[(List, "/d")])),
    (Get("MLSD d"), All(&[(List, "/d")])),
    (Get("MLSR d"), All(&[(List, "/d")])),
    (Lines(&["MLSC d"]), All(&[(List, "/d")])),
    (Lines(&["STAT d"]), All(&[(List, "/d")])),
    (Lines(&["SITE GODWIT HIDDEN d"]), All(&[(List, "/d")])),
    (Lines(&["STAT d/f"]), Any(F)),
    (Lines(&["MLST d/f"]), Any(F)),
    (Lines(&["SIZE d/f"]), Any(F)),
    (Lines(&["MDTM d/f"]), Any(F)),
    (Lines(&["CWD d/full"]), Any("/d/full")),
    (Lines(&["XCWD d/full"]), Any("/d/full")),
    (Lines(&["SITE GODWIT SPACE d/f"]), Any(F)),
    (Lines(&["SITE GODWIT FLUSH d/f"]), Any(F)),
];

/// Commands that name nothing, or only prepare the next one in the table.
const FREE: &[&str] = &[
    "ABOR", "ABUF", "ACCT", "ADAT", "ALLO", "AUTH", "CCC", "CDUP", "CONF", "DCAU", "DCSC", "ENC",
    "EPRT", "EPSV", "FEAT", "HELP", "LANG", "MIC", "MODE", "NOOP", "OPTS", "PASS", "PASV", "PBSZ",
    "PORT", "PROT", "PWD", "QUIT", "REIN", "REST", "SBUF", "SCKS", "SPAS", "SPOR", "STRU", "SYST",
    "TREV", "TYPE", "USER", "XCUP", "XPWD",
];

/// A node with rules, and a tree.
struct World {
    scratch: Scratch,
    served: Served,
}

impl World {
    fn new(rules: &str) -> Self {
        Self::with(rules, &[])
    }

    fn with(rules: &str, settings: &[(&'static str, &str)]) -> Self {
        let scratch = Scratch::new();
        let file = scratch.path().join("rights.toml");
        fs::write(&file, rules).unwrap();
        let file = file.display().to_string();
        let all = [&[("node.rights", file.as_str())], settings].concat();
        let world = Self {
            served: Served::with(&all),
            scratch,
        };
        world.fill();
        world
    }

    fn fill(&self) {
        for dir in ["d/empty", "d/full/deep", "secret"] {
            fs::create_dir_all(self.at(dir)).unwrap();
        }
        for file in ["d/f", "d/g", "d/full/a", "d/full/deep/b", "secret/s", "x"] {
            fs::write(self.at(file), "bytes").unwrap();
        }
        symlink("f", self.at("d/link")).unwrap();
        symlink("../secret", self.at("d/way")).unwrap();
    }

    fn rules(&self, rules: &str) {
        let fresh = self.scratch.path().join("fresh");
        fs::write(&fresh, rules).unwrap();
        fs::rename(fresh, self.scratch.path().join("rights.toml")).unwrap();
    }

    fn again(&self, rules: &str) {
        self.rules(rules);
        for dir in ["d", "secret"] {
            fs::remove_dir_all(self.at(dir)).unwrap();
        }
        self.fill();
    }

    fn at(&self, name: &str) -> PathBuf {
        self.served.file(name)
    }

    /// The reply that says how it went.
    fn say(&self, client: &mut Client, say: Say) -> String {
        let own = fs::metadata(self.at("d")).unwrap().gid().to_string();
        match say {
            Lines(lines) => {
                let mut reply = String::new();
                for line in lines {
                    reply = client.ask(&line.replace("GROUP", &own));
                    if reply.starts_with(['4', '5']) {
                        break;
                    }
                }
                reply
            }
            Get(line) => client.get(line).map_or_else(|e| e, |_| "226 got".into()),
            Put(lines) => {
                let (last, before) = lines.split_last().unwrap();
                before.iter().for_each(|line| drop(client.ask(line)));
                client.put(last, b"more")
            }
            Blocks(lines) => {
                let (last, before) = lines.split_last().unwrap();
                client.ok("MODE E");
                before.iter().for_each(|line| drop(client.ask(line)));
                client.put_blocks(last, &[(0, b"more")]).1
            }
        }
    }

    fn client(&self) -> Client {
        self.served.client()
    }
}

/// Rules that allow these deeds in these places.
fn allowing(deeds: &[(Permission, &str)]) -> String {
    let rule = |(deed, under): &(Permission, &str)| {
        let deed = deed.as_str();
        format!("[[rule]]\nwho = \"anyone\"\nmay = \"{deed}\"\nunder = \"{under}\"\n")
    };
    deeds.iter().map(rule).collect()
}

/// Rules that allow everything but this.
fn all_but((deed, under): (Permission, &str)) -> String {
    let deed = deed.as_str();
    format!(
        "[[rule]]\nwho = \"anyone\"\nnever = \"{deed}\"\nunder = \"{under}\"\n\
         [[rule]]\nwho = \"anyone\"\nmay = \"all\"\n"
    )
}

fn is_allowed(rules: &str, deed: Permission, path: &str) -> bool {
    let rights = Rights::parse(rules).unwrap();
    rights.decide(None, deed, Path::new(path)).allowed
}

#[test] //= GRIDFTP-9
fn each_command_needs_exactly_its_rights() {
    let world = World::new("");
    for &(say, needs) in TABLE {
        let mut rules: Vec<(String, bool)> = Vec::new();
        match needs {
            All(deeds) => {
                rules.push((allowing(deeds), true));
                rules.extend(deeds.iter().map(|&deed| (all_but(deed), false)));
            }
            Any(path) => {
                rules.extend(PERMISSIONS.map(|deed| (allowing(&[(deed, path)]), true)));
                rules.push((allowing(&[(Read, "/elsewhere")]), false));
            }
        }
        rules.push((String::new(), false));
        for (rules, goes) in rules {
            let explained = match needs {
                All(deeds) => deeds
                    .iter()
                    .all(|&(deed, path)| is_allowed(&rules, deed, path)),
                Any(path) => PERMISSIONS
                    .iter()
                    .any(|&deed| is_allowed(&rules, deed, path)),
            };
            assert_eq!(
                explained, goes,
                "{say:?}: the table is wrong about\n{rules}"
            );
            world.again(&rules);
            let reply = world.say(&mut world.client(), say);
            assert_eq!(
                reply.starts_with('2'),
                goes,
                "{say:?}: {reply}, by\n{rules}"
            );
            let why = match rules.contains("never") {
                true => "rule 1 of the rights denies it",
                false => "no rule of the rights allows it",
            };
            assert!(goes || reply.contains(why), "{say:?}: {reply}, by\n{rules}");
        }
    }
}

#[test]
fn the_table_knows_every_command() {
    let world = World::new("");
    let help = world.client().ok("HELP");
    let words = help.lines().skip(1).flat_map(str::split_whitespace);
    let told: BTreeSet<&str> = words
        .filter(|word| word.chars().all(|c| c.is_ascii_uppercase()))
        .collect();
    assert!(told.len() > 50, "{help}");
    let lines = TABLE.iter().flat_map(|(say, _)| match say {
        Lines(lines) | Put(lines) | Blocks(lines) => lines.to_vec(),
        Get(line) => vec![*line],
    });
    let said = lines.filter_map(|line| line.split(' ').next());
    let known: BTreeSet<&str> = said.chain(FREE.iter().copied()).collect();
    let missing: Vec<_> = told
        .difference(&known)
        .filter(|word| !["SITE", "APPE"].contains(word))
        .collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
}

#[test]
fn held_upload_belongs_to_its_writer() {
    let world = World::new(&allowing(&[(Create, "/d")]));
    let hold = Blocks(&["ESTO GODWIT=\"id=a;hold=1\" d/new"]);
    let mut client = world.client();
    client.ok("OPTS GODWIT 1");
    assert!(world.say(&mut client, hold).starts_with("226"));
    assert!(
        client
            .ok("SITE GODWIT DONE id=a d/new")
            .contains("done=0-4")
    );
    world.rules(&all_but((Create, "/d")).replace("\"create\"", "[\"create\", \"write\"]"));
    for line in ["DONE id=a", "ABANDON id=a", "FINISH id=a"] {
        let reply = client.ask(&format!("SITE GODWIT {line} d/new"));
        assert!(reply.starts_with("550"), "{line}: {reply}");
    }
    assert!(!world.served.has("d/new"));
    world.rules(&allowing(&[(Create, "/d")]));
    client.ok("SITE GODWIT FINISH id=a d/new");
    assert_eq!(world.served.bytes("d/new"), b"more");
}

#[test]
fn listing_hides_forbidden_names() {
    let world = World::new(&all_but((List, "/d/full")));
    let mut client = world.client();
    for command in ["LIST d", "NLST d", "MLSD d", "MLSR d"] {
        let listing = String::from_utf8(client.get(command).unwrap()).unwrap();
        assert!(listing.contains("empty"), "{command}: {listing}");
        assert!(
            !listing.contains("full") && !listing.contains("deep"),
            "{command}: {listing}"
        );
    }
    for command in ["STAT d", "MLSC d"] {
        let listing = client.ok(command);
        assert!(
            listing.contains("empty") && !listing.contains("full"),
            "{listing}"
        );
    }
    for (dir, digit) in [("d", "1"), ("d/full", "0")] {
        let part = format!("{dir}/.godwit-{}.part", digit.repeat(24));
        fs::write(world.at(&part), "").unwrap();
    }
    let hidden = client.ok("SITE GODWIT HIDDEN d");
    assert!(
        hidden.contains("godwit-111") && !hidden.contains("full"),
        "{hidden}"
    );
    // What may not be seen is not removed, nor what holds it.
    client.expect("SITE RDEL d", "550");
    assert!(world.served.has("d/full/deep/b"));
    // A directory above a place that the user may list needs no right of its own.
    world.again(&allowing(&[(List, "/d")]));
    let listing = String::from_utf8(client.get("MLSD d").unwrap()).unwrap();
    assert!(
        listing.contains(" f") && !listing.contains("pdir"),
        "{listing}"
    );
}

#[test]
fn a_link_leads_around_no_rule() {
    let secret = "[[rule]]\nwho = \"anyone\"\nnever = \"all\"\nunder = \"/secret\"\n\
                  [[rule]]\nwho = \"anyone\"\nmay = \"all\"\n";
    let world = World::new(secret);
    symlink("../secret/s", world.at("d/last")).unwrap();
    symlink(world.at("secret"), world.at("d/absolute")).unwrap();
    symlink("../secret/none", world.at("d/dangling")).unwrap();
    symlink("full/../../secret", world.at("d/around")).unwrap();
    symlink("link", world.at("d/twice")).unwrap();
    let mut client = world.client();
    for name in [
        "d/way/s",
        "d/last",
        "d/absolute/s",
        "d/around/s",
        "secret/s",
    ] {
        for say in [
            "RETR",
            "STOR",
            "APPE",
            "SIZE",
            "MLST",
            "CKSM MD5 0 -1",
            "SITE CHMOD 777",
        ] {
            let line = format!("{say} {name}");
            let reply = match say {
                "RETR" => client.get(&line).unwrap_err(),
                "STOR" | "APPE" => client.put(&line, b"x"),
                _ => client.ask(&line),
            };
            assert!(
                reply.contains("rule 1 of the rights denies it"),
                "{line}: {reply}"
            );
        }
    }
    for line in [
        "DELE d/way/s",
        "MKD d/way/n",
        "RNFR d/way/s\r\nRNTO d/mine",
        "RNFR d/f\r\nRNTO d/way/n",
        "SITE SYMLINK x d/around/n",
        "CWD d/way",
        "STAT d/absolute",
        "SITE GODWIT SPACE d/way",
        "SITE GODWIT FLUSH d/way",
    ] {
        client.raw(format!("{line}\r\n").as_bytes());
        let replies: Vec<_> = line.lines().map(|_| client.reply()).collect();
        let last = replies.last().unwrap();
        assert!(
            replies.iter().any(|r| r.contains("rule 1 of")) && !last.starts_with('2'),
            "{line}: {replies:?}"
        );
    }
    let reply = client.put("STOR d/dangling", b"x");
    assert!(reply.contains("rule 1 of"), "{reply}");
    assert!(!world.served.has("secret/none"));
    // A link to an allowed file works, and a link to a forbidden one can be removed.
    assert_eq!(client.get("RETR d/twice").unwrap(), b"bytes");
    assert!(client.put("STOR d/twice", b"through").starts_with("226"));
    assert_eq!(world.served.bytes("d/f"), b"through");
    client.ok("DELE d/last");
    assert!(world.served.has("secret/s"));
}

/// A client that swaps a directory for a link to a forbidden one, again and again, never reads through it.
#[test]
fn a_race_leads_around_no_rule() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let world = World::new(&all_but((Read, "/secret")));
    let (real, link, name) = (world.at("real"), world.at("link"), world.at("moving"));
    fs::create_dir(&real).unwrap();
    fs::write(real.join("s"), "mine!").unwrap();
    fs::write(world.at("secret/s"), "theirs").unwrap();
    symlink("secret", &link).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                for one in [&real, &link] {
                    fs::rename(one, &name).unwrap();
                    fs::rename(&name, one).unwrap();
                }
            }
        });
        let mut client = world.client();
        let raced = (0..300).find_map(|_| {
            let bytes = client.get("RETR moving/s").ok()?;
            (bytes != b"mine!").then_some(bytes)
        });
        // Set before any assertion, or a failure would leave the other thread running.
        stop.store(true, Relaxed);
        assert_eq!(raced, None);
    });
}

#[test]
fn directory_above_a_rule_cannot_be_renamed() {
    let private = "[[rule]]\nwho = \"/O=Lab/CN=bob\"\nnever = \"read\"\nunder = \"/d/full/deep\"\n\
                   [[rule]]\nwho = \"anyone\"\nmay = \"all\"\n";
    let world = World::new(private);
    let mut client = world.client();
    let rename = |client: &mut Client, from: &str, to: &str| {
        client.ask(&format!("RNFR {from}"));
        client.ask(&format!("RNTO {to}"))
    };
    for (from, to) in [
        ("d", "e"),
        ("d/full", "d/other"),
        ("d/empty/..", "e"),
        ("secret", "d/full"),
    ] {
        let reply = rename(&mut client, from, to);
        assert!(reply.starts_with("55"), "{from} {to}: {reply}");
    }
    fs::remove_dir_all(world.at("d/full")).unwrap();
    let reply = rename(&mut client, "secret", "d/full");
    assert!(
        reply.contains("rule 1 of the rights speaks of a place below"),
        "{reply}"
    );
    assert!(rename(&mut client, "d/empty", "d/other").starts_with('2'));
    assert!(rename(&mut client, "d/f", "d/h").starts_with('2'));
}

#[test]
fn a_rename_makes_nothing_readable() {
    let world = World::new(
        "[[rule]]\nwho = \"anyone\"\nnever = \"read\"\nunder = \"/secret\"\n\
         [[rule]]\nwho = \"anyone\"\nmay = \"all\"\n",
    );
    let mut client = world.client();
    client.ok("RNFR secret/s");
    let reply = client.ask("RNTO d/s");
    assert!(reply.contains("rule 1 of the rights denies it"), "{reply}");
    client.ok("RNFR secret/s");
    client.ok("RNTO secret/t");
}

#[test]
fn changed_rules_count_and_invalid_ones_never() {
    let world = World::new(&allowing(&[(Read, "/d")]));
    let mut client = world.client();
    client.get("RETR d/f").unwrap();
    world.rules(&allowing(&[(List, "/d")]));
    client.get("RETR d/f").unwrap_err();
    client.get("LIST d").unwrap();
    for bad in ["[[rule]]\nwho = \"bob\"\nmay = \"all\"\n", "garbage"] {
        world.rules(bad);
        client.get("LIST d").unwrap();
        client.get("RETR d/f").unwrap_err();
    }
    fs::remove_file(world.scratch.path().join("rights.toml")).unwrap();
    client.get("LIST d").unwrap();
    client.get("RETR d/f").unwrap_err();
    world.rules(&allowing(&[(Read, "/d")]));
    until("the new rules", || world.client().get("RETR d/f").is_ok());
}

#[test]
fn rights_decide_writes_and_anonymous_access_logins() {
    let rules = allowing(&[(Create, "/d")]);
    for access in ["read", "write"] {
        let world = World::with(&rules, &[("anonymous.access", access)]);
        assert!(
            world.client().put("STOR d/new", b"x").starts_with("226"),
            "{access}"
        );
        client_may_not(&world, "DELE d/f");
    }
    let world = World::with(&rules, &[("anonymous.access", "none")]);
    let mut client = Client::new(world.served.address);
    client.ok("USER anonymous");
    client.expect("PASS me@", "530");
}

fn client_may_not(world: &World, line: &str) {
    let reply = world.client().ask(line);
    assert!(reply.contains("no rule of the rights allows it"), "{reply}");
}
