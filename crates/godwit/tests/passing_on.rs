//! Hops: a file that is put at one machine arrives at the last, whichever process dies and whichever link is up.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::chain::{Chain, spool, start};
use common::{Machine, Node, Said, Scratch, assert_same, godwit, wait_until};
use serde_json::Value;
use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

#[test] //= KANGAROO-12 hops#delivery
fn push_waits_through_two_hops() {
    let scratch = Scratch::new();
    let chain = Chain::of(&scratch, 2, &[]);
    let file = scratch.file("a", 3_000_000);
    chain.well(&["put", "a", "godwit://hop0/a"]);
    chain.well(&["push", "godwit://hop0/a", "--timeout", "30s"]);
    assert_same(&file, &chain.far("a"));
}

#[test] //= KANGAROO-64 hops#on-hold-at-a-hop
fn trace_names_every_stop() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 2, &[]);
    scratch.file("a", 300_000);
    chain.dest.kill();
    chain.well(&["put", "a", "godwit://hop0/a"]);
    let places = |chain: &Chain<'_>| -> Vec<(String, String)> {
        let all = chain.trace("godwit://hop0/a").into_iter();
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        all.map(|line| (text(&line, "at"), text(&line, "stage")))
            .collect()
    };
    let wanted = [("hop0", "passed"), ("hop1", "waiting"), ("dest", "away")];
    let wanted = wanted.map(|(at, stage)| (at.to_owned(), stage.to_owned()));
    wait_until("it waits at the last hop", || places(&chain) == wanted);
    let lines = chain.trace("godwit://hop0/a");
    assert!(
        lines[1]["why"].as_str().unwrap().contains("cannot connect"),
        "{lines:?}"
    );
    assert_eq!(lines[1]["size"], 300_000);
    chain.dest.start(&[]);
    chain.well(&["push", "godwit://hop0/a"]);
    assert_eq!(places(&chain).last().unwrap().1, "there");
    let missing = chain.says(&["trace", "godwit://hop0/b"]);
    assert_eq!(missing.status, Some(4), "{missing}");
}

#[test] //= KANGAROO-12 hops#delivery
fn alternating_links_deliver_all() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    let names: Vec<String> = (0..8).map(|nth| format!("f{nth}")).collect();
    for (nth, name) in names.iter().enumerate() {
        scratch.file(name, 100_000 * (nth + 1));
    }
    // The first link is up, and the second is not.
    chain.dest.kill();
    for name in &names {
        chain.well(&["put", name, &format!("godwit://hop0/{name}")]);
    }
    chain.laptop_has_nothing();
    // The hop goes on by itself, and the laptop's node is gone.
    chain.hops[0].kill();
    chain.well(&["node", "stop"]);
    chain.dest.start(&[]);
    chain.start(0, None);
    for name in &names {
        chain.arrives(name, &scratch.join(name));
    }
    // The other way round: the hop is away when it is put.
    chain.hops[0].kill();
    let late = scratch.file("late", 400_000);
    chain.well(&["put", "late", "godwit://hop0/late"]);
    chain.dest.kill();
    chain.start(0, None);
    chain.laptop_has_nothing();
    chain.hops[0].kill();
    chain.dest.start(&[]);
    chain.start(0, None);
    chain.arrives("late", &late);
    assert_eq!(chain.all_far().len(), names.len() + 1);
}

#[test] //= KANGAROO-12 hops#delivery
fn crashes_anywhere_lose_nothing() {
    let deaths = [
        (Who::Laptop, "commit-taken"),
        (Who::Laptop, "commit-recorded"),
        (Who::Laptop, "publish-sealed"),
        (Who::Laptop, "publish-recorded"),
        (Who::Laptop, "publish-asked"),
        (Who::Laptop, "published"),
        (Who::Hop, "hop-whole"),
        (Who::Hop, "adopted"),
        (Who::Hop, "commit-taken"),
        (Who::Hop, "commit-synced"),
        (Who::Hop, "commit-recorded"),
        (Who::Hop, "hop-kept"),
        (Who::Hop, "push-sent"),
        (Who::Hop, "publish-sealed"),
        (Who::Hop, "publish-asked"),
        (Who::Hop, "published"),
        (Who::Dest, "door.published"),
    ];
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    for (nth, (who, at)) in deaths.into_iter().enumerate() {
        let name = format!("f{nth}");
        let file = scratch.file(&name, 1_500_000 + nth);
        chain.well(&["node", "stop"]);
        chain.start_to_die(who, at);
        let url = format!("godwit://hop0/{name}");
        let mut put = chain.command(&["put", &name, &url]);
        if who == Who::Laptop {
            put.env("GODWIT_CRASH", at);
        }
        let is_kept = Said::of(&mut put).status == Some(0);
        chain.dies(who, at);
        if !is_kept {
            // A writer without an answer tries again.
            chain.well(&["put", &name, &url]);
        }
        chain.well(&["push", &url, "--timeout", "40s"]);
        assert_same(&file, &chain.far(&name));
    }
    let found = chain.all_far();
    assert_eq!(
        found.len(),
        deaths.len(),
        "each once, and nothing else: {found:?}"
    );
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Who {
    Laptop,
    Hop,
    Dest,
}

impl Chain<'_> {
    #[track_caller]
    fn laptop_has_nothing(&self) {
        wait_until("the laptop has nothing pending", || {
            let told = self.well(&["--json", "queue"]);
            !told.contains("\"owed\"")
        });
    }

    fn start_to_die(&mut self, who: Who, at: &str) {
        match who {
            Who::Laptop => {}
            Who::Hop => {
                self.hops[0].kill();
                self.start(0, Some(at));
            }
            Who::Dest => {
                self.dest.kill();
                self.dest.start(&[("GODWIT_CRASH", at)]);
            }
        }
    }

    /// Waits until it has died, and starts it again.
    #[track_caller]
    fn dies(&mut self, who: Who, at: &str) {
        let machine = match who {
            // The next program starts another.
            Who::Laptop => return self.laptop_died(at),
            Who::Hop => &mut self.hops[0],
            Who::Dest => &mut self.dest,
        };
        let died = machine
            .node
            .as_mut()
            .unwrap()
            .ends_within(Duration::from_secs(20));
        assert!(died, "nothing dies at {at}\n{}", machine.log());
        machine.kill();
        match who {
            Who::Dest => self.dest.start(&[]),
            _ => self.start(0, None),
        }
    }

    #[track_caller]
    fn laptop_died(&self, at: &str) {
        wait_until(&format!("the laptop's node dies at {at}"), || {
            // A client may find the node while it ends.
            let told = self.says(&["--json", "node", "status"]);
            String::from_utf8_lossy(&told.stdout).contains("\"running\":false")
        });
    }
}

#[test] //= hops#delivery
fn push_names_absent_hop() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 2, &[]);
    let file = scratch.file("a", 300_000);
    for away in ["hop1", "dest"] {
        match away {
            "hop1" => chain.hops[1].kill(),
            _ => chain.dest.kill(),
        }
        let at = match away {
            "hop1" => chain.hops[1].at.clone(),
            _ => chain.dest.at.clone(),
        };
        let url = format!("godwit://hop0/{away}");
        chain.well(&["put", "a", &url]);
        let begun = Instant::now();
        let said = chain.says(&["push", &url, "--timeout", "3s"]);
        assert_eq!(said.status, Some(5), "{said}");
        assert!(
            begun.elapsed() < Duration::from_secs(15),
            "{:?}",
            begun.elapsed()
        );
        let why = said.stderr.clone();
        assert!(
            why.contains(away) && (why.contains(&at) || why.contains("not at")),
            "{why}"
        );
        match away {
            "hop1" => chain.start(1, None),
            _ => chain.dest.start(&[]),
        }
        chain.well(&["push", &url, "--timeout", "40s"]);
        assert_same(&file, &chain.far(away));
    }
}

#[test] //= hops#delivery
fn push_tells_hop_loss_once() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    scratch.file("a", 300_000);
    let (lost, removed) = ("godwit://hop0/lost", "godwit://hop0/removed");
    chain.dest.kill();
    chain.well(&["put", "a", lost]);
    chain.laptop_has_nothing();
    chain.hops[0].kill();
    let spool = spool(&scratch, 0);
    std::fs::remove_dir_all(&spool).unwrap();
    chain.dest.start(&[]);
    chain.start(0, None);
    let said = chain.says(&["push", lost, "--timeout", "30s"]);
    assert_eq!(said.status, Some(1), "{said}");
    for words in [
        "was given to hop0, which has it no more",
        "the hop lost it",
        "put it again",
    ] {
        assert!(said.stderr.contains(words), "wanted {words:?} in {said}");
    }
    chain.well(&["push", "--timeout", "30s"]);
    // A removal by this machine is no loss.
    chain.well(&["put", "a", removed]);
    chain.arrives("removed", &scratch.join("a"));
    chain.laptop_has_nothing();
    chain.well(&["rm", removed]);
    chain.well(&["push", "--timeout", "30s"]);
    chain.well(&["put", "a", lost]);
    chain.well(&["push", lost, "--timeout", "30s"]);
    assert_same(&scratch.join("a"), &chain.far("lost"));
}

#[test] //= KANGAROO-59 hops#delivery
fn hop_loop_loses_nothing() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 2, &[]);
    // The last hop is told to go on with the first.
    chain.hops[0].joined_by(&chain.hops[1], "hop1");
    chain.hops[1].kill();
    let spool = spool(&scratch, 1);
    start(&mut chain.hops[1], (&spool, "godwit://hop0/"), &[], &[]);
    scratch.file("a", 300_000);
    chain.well(&["put", "a", "godwit://hop0/a"]);
    let said = chain.says(&["push", "godwit://hop0/a", "--timeout", "20s"]);
    assert_eq!(said.status, Some(1), "{said}");
    let why = said.stderr.clone();
    assert!(why.contains("goes in a circle"), "{why}");
    let lines = chain.trace("godwit://hop0/a");
    let held = lines.iter().find(|line| line["stage"] == "held");
    let held = held.unwrap_or_else(|| panic!("{lines:?}"));
    assert!(
        held["why"].as_str().unwrap().contains("circle"),
        "{lines:?}"
    );
    assert!(lines.len() <= 3, "trace goes in no circle: {lines:?}");
    // With the right route, the next put delivers it.
    chain.hops[1].kill();
    chain.start(1, None);
    let b = scratch.file("b", 1000);
    chain.well(&["put", "b", "godwit://hop0/a"]);
    chain.well(&["push", "godwit://hop0/a", "--timeout", "30s"]);
    assert_same(&b, &chain.far("a"));
}

#[test] //= KANGAROO-12 KANGAROO-59 hops#delivery
fn routes_need_no_hop_url() {
    let scratch = Scratch::new();
    let chain = Chain::of(&scratch, 1, &[]);
    let file = scratch.file("a", 300_000);
    let routes = [("GODWIT_NODE_ROUTES", "far=godwit://hop0/")];
    let said = Said::of(chain.command(&["put", "a", "godwit://far/a"]).envs(routes));
    assert_eq!(said.status, Some(0), "{said}");
    let said = Said::of(chain.command(&["push", "godwit://far/a"]).envs(routes));
    assert_eq!(said.status, Some(0), "{said}");
    assert_same(&file, &chain.far("a"));
    let traced = Said::of(chain.command(&["trace", "godwit://far/a"]).envs(routes));
    let told = String::from_utf8_lossy(&traced.stdout).into_owned();
    assert!(told.contains("hop0") && told.contains("there"), "{traced}");
}

#[test] //= GASS-42 hops#reading
fn machines_share_what_a_hop_keeps() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &["--cache"]);
    let desktop = Machine::new(&scratch, "desktop");
    chain.hops[0].joined_by(&desktop, "desktop");
    let file = scratch.file("a", 7_300_000);
    chain.well(&["put", "a", "godwit://hop0/a"]);
    chain.well(&["push", "godwit://hop0/a"]);
    std::fs::copy(&file, chain.far("b")).unwrap();
    let copy = |chain: &Chain<'_>, name: &str, to: &str| {
        let source = format!("godwit://hop0/{name}");
        let to = scratch.join(to);
        let mut at_desktop = desktop.command(&["cp", &source, to.to_str().unwrap()]);
        let mut here = chain.command(&["cp", &source, to.with_extension("2").to_str().unwrap()]);
        for command in [&mut at_desktop, &mut here] {
            let said = Said::of(command);
            assert_eq!(said.status, Some(0), "{said}");
        }
        assert_same(&file, &to);
        assert_same(&file, &to.with_extension("2"));
    };
    copy(&chain, "b", "cold");
    copy(&chain, "b", "warm");
    // Delivered files are named by their content: the end may be away.
    chain.dest.stop();
    copy(&chain, "a", "away");
    let record = chain.dest.state().join("transfers.jsonl");
    let record = std::fs::read_to_string(record).unwrap();
    let lines = record
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let read = lines.filter(|line: &Value| line["source"] == "b");
    let bytes: u64 = read.map(|line| line["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, 7_300_000, "{record}");
}

#[test] //= KANGAROO-12 hops#delivery
fn full_spool_slows_its_writer() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    chain.hops[0].kill();
    let environment = [("GODWIT_NODE_SPOOL_BYTES", "4000000")];
    let spool = spool(&scratch, 0);
    let next = (&*spool, "godwit://dest/");
    start(&mut chain.hops[0], next, &[], &environment);
    let names: Vec<String> = (0..6).map(|nth| format!("f{nth}")).collect();
    chain.dest.kill();
    for name in &names {
        scratch.file(name, 1_500_000);
        chain.well(&["put", name, &format!("godwit://hop0/{name}")]);
    }
    // Two files have room at the hop; the others wait at the laptop, with the reason.
    wait_until("the hop says that it is full", || {
        let told = chain.well(&["--json", "queue"]);
        told.contains("is full")
    });
    let kept = used(&spool);
    assert!(
        kept <= 4_000_000 + 4_000_000,
        "partials and holdings: {kept}"
    );
    chain.dest.start(&[]);
    for name in &names {
        chain.arrives(name, &scratch.join(name));
    }
    // A file that can never fit is refused at once.
    scratch.file("large", 5_000_000);
    let url = "godwit://hop0/large";
    let said = chain.says(&["cp", "large", url]);
    assert_eq!(said.status, Some(7), "{said}");
    let why = said.stderr.clone();
    assert!(why.contains("holds 4000000 at most"), "{why}");
    assert!(!chain.all_far().contains(&"large".to_owned()));
}

/// Bytes in files below a directory.
fn used(root: &Path) -> u64 {
    let sizes = common::tree(&root.join("incoming")).into_iter();
    let sizes = sizes.map(|path| {
        root.join("incoming")
            .join(path)
            .metadata()
            .map_or(0, |meta| meta.len())
    });
    sizes.sum()
}

#[test] //= KANGAROO-53 hops#reading
fn hop_lists_pending_and_delivered() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &["--anonymous", "write"]);
    let (old, new) = (scratch.file("far/old", 2000), scratch.file("new", 3000));
    let hop = chain.hops[0].node.as_ref().unwrap().url("");
    chain.well(&["mkdir", &format!("{hop}d")]);
    chain.well(&["cp", "new", &format!("{hop}d/new")]);
    // Through the door and FTP alike.
    for root in ["godwit://hop0/", &hop] {
        let listed = chain.well(&["ls", &format!("{root}d")]);
        assert!(listed.contains("new"), "{listed}");
        assert!(chain.well(&["ls", root]).contains("old"));
        let stat = chain.well(&["--json", "stat", &format!("{root}d/new")]);
        assert!(stat.contains("3000"), "{stat}");
    }
    chain.well(&["cp", &format!("{hop}old"), "copy"]);
    assert_same(&old, &scratch.join("copy"));
    // Files that were written a moment ago can be renamed and removed.
    chain.well(&["mv", &format!("{hop}d/new"), &format!("{hop}d/newer")]);
    assert_same(&new, &chain.far("d/newer"));
    chain.well(&["rm", &format!("{hop}d/newer")]);
    assert!(!chain.far("d/newer").exists());
    // During the outage names show the pending state, and impossible changes are refused.
    chain.dest.kill();
    chain.well(&["put", "new", "godwit://hop0/late"]);
    chain.laptop_has_nothing();
    let stat = chain.well(&["--json", "stat", "godwit://hop0/late"]);
    assert!(stat.contains("3000"), "{stat}");
    chain.well(&["cp", "godwit://hop0/late", "back"]);
    assert_same(&new, &scratch.join("back"));
    // A pending file is dropped at once, and an existing one is removed after the outage.
    chain.well(&["put", "new", "godwit://hop0/never"]);
    chain.laptop_has_nothing();
    chain.well(&["rm", "godwit://hop0/never"]);
    let said = chain.says(&["stat", "godwit://hop0/never"]);
    assert_ne!(said.status, Some(0), "{said}");
    chain.dest.start(&[]);
    chain.arrives("late", &new);
    chain.well(&["push", "godwit://hop0/late", "--timeout", "40s"]);
    assert!(!chain.far("never").exists());
}

#[test] //= KANGAROO-12 KANGAROO-68 hops#on-hold-at-a-hop
fn upstream_decides_hop_holds() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 2, &[]);
    let ours = scratch.file("ours", 3000);
    let url = "godwit://hop0/a";
    chain.dest.kill();
    chain.well(&["put", "--new", "ours", url]);
    chain.laptop_has_nothing();
    let theirs = scratch.file("far/a", 2000);
    chain.dest.start(&[]);
    let held = chain.says(&["push", url, "--timeout", "40s"]);
    let command = format!("godwit release --at-hop {url}");
    assert!(
        held.status != Some(0) && held.stderr.contains(&command),
        "{held}"
    );
    assert_same(&theirs, &chain.far("a"));
    let nothing = chain.says(&["drop", "--at-hop", "godwit://hop0/b"]);
    assert_eq!(nothing.status, Some(4), "{nothing}");
    let is_told = |words: &str| nothing.stderr.contains(words);
    assert!(
        is_told("nothing of that name is held at hop0") && is_told("godwit trace godwit://hop0/b"),
        "{nothing}"
    );
    // Only who may write it may say so.
    let rights = scratch.join("rights");
    let all = "[[rule]]\nwho = \"anyone\"\nmay = \"all\"\n";
    let none = format!("[[rule]]\nwho = \"anyone\"\nnever = \"write\"\n{all}");
    std::fs::write(&rights, none).unwrap();
    chain.hops[0].kill();
    let (spool, next) = (spool(&scratch, 0), chain.next(0));
    let rules = [("GODWIT_NODE_RIGHTS", rights.to_str().unwrap())];
    start(&mut chain.hops[0], (&spool, &next), &[], &rules);
    for verb in ["drop", "release", "retry"] {
        let denied = chain.says(&[verb, "--at-hop", url]);
        assert_eq!(denied.status, Some(13), "{denied}");
    }
    std::fs::write(&rights, all).unwrap();
    // It is put on hold again.
    chain.well(&["retry", "--at-hop", url]);
    let held = chain.says(&["push", url, "--timeout", "40s"]);
    assert_ne!(held.status, Some(0), "{held}");
    chain.well(&["release", "--at-hop", url]);
    chain.well(&["push", url, "--timeout", "40s"]);
    assert_same(&ours, &chain.far("a"));
}

/// The status is that without a hop, however many there are.
#[test]
fn end_refusal_decides_exit_status() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 2, &[]);
    scratch.file("f", 100);
    chain.well(&["put", "f", "godwit://hop0/no/f"]);
    let push = |chain: &Chain<'_>, name: &str| {
        let url = format!("godwit://hop0/{name}");
        chain.says(&["push", &url, "--timeout", "40s"])
    };
    let missing = push(&chain, "no/f");
    assert_eq!(missing.status, Some(4), "{missing}");
    let hint = "godwit retry --at-hop godwit://hop0/no/f";
    assert!(missing.stderr.contains(hint), "{missing}");
    let rights = scratch.join("rights");
    let rules = "[[rule]]\nwho = \"anyone\"\nmay = [\"read\", \"list\"]\n";
    std::fs::write(&rights, rules).unwrap();
    chain.dest.kill();
    chain
        .dest
        .start(&[("GODWIT_NODE_RIGHTS", rights.to_str().unwrap())]);
    chain.well(&["put", "f", "godwit://hop0/g"]);
    let denied = push(&chain, "g");
    assert_eq!(denied.status, Some(13), "{denied}");
}

#[test] //= KANGAROO-X2 hops#what-a-hop-does-not-pass-on
fn lines_pass_hops_once() {
    let scratch = Scratch::new();
    let chain = Chain::of(&scratch, 2, &[]);
    let mut tee = chain.command(&["tee", "godwit://hop0/log"]);
    let mut tee = tee
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let lines: String = (0..500).map(|nth| format!("line {nth}\n")).collect();
    let mut into = tee.stdin.take().unwrap();
    std::io::Write::write_all(&mut into, lines.as_bytes()).unwrap();
    drop(into);
    assert!(tee.wait().unwrap().success());
    wait_until("all lines are at the end", || {
        std::fs::read_to_string(chain.far("log")).is_ok_and(|there| there.len() >= lines.len())
    });
    let there = std::fs::read_to_string(chain.far("log")).unwrap();
    assert!(there == lines, "{} bytes of {}", there.len(), lines.len());
}

#[test]
fn stopped_hop_resumes_later() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    let file = scratch.file("a", 2_000_000);
    chain.dest.node.as_ref().unwrap().signal("STOP");
    chain.well(&["put", "a", "godwit://hop0/a"]);
    chain.laptop_has_nothing();
    chain.hops[0].stop();
    chain.dest.node.as_ref().unwrap().signal("CONT");
    chain.start(0, None);
    chain.well(&["push", "godwit://hop0/a", "--timeout", "40s"]);
    assert_same(&file, &chain.far("a"));
}

#[test] //= hops#names
fn hop_makes_directories_top_down() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    let file = scratch.file("x", 3000);
    chain.dest.kill();
    chain.well(&["mkdir", "-p", "godwit://hop0/a/b"]);
    chain.well(&["put", "x", "godwit://hop0/a/b/x"]);
    chain.well(&["mkdir", "godwit://hop0/c/d"]);
    chain.well(&["put", "x", "godwit://hop0/c/d/x"]);
    chain.dest.start(&[]);
    chain.arrives("a/b/x", &file);
    let url = "godwit://hop0/c/d/x";
    let held = chain.says(&["push", url, "--timeout", "40s"]);
    let next = "godwit mkdir -p godwit://dest/c makes it";
    let is_told = held.stderr.contains(next);
    assert!(held.status != Some(0) && is_told, "{held}");
    let told = chain.well(&["trace", "godwit://hop0/c/d"]);
    assert!(told.contains("held"), "{told}");
    // The command of the hint works.
    let begins = told.find("godwit retry ").unwrap();
    let command = told[begins..].split(" tries").next().unwrap();
    assert_eq!(command, "godwit retry --at-hop godwit://hop0/c/d", "{told}");
    assert_eq!(told.matches("godwit retry").count(), 1, "{told}");
    chain.well(&command.split(' ').skip(1).collect::<Vec<_>>());
    chain.well(&["mkdir", "godwit://hop0/c"]);
    // A retry that was done before this directory was there put the other on hold again until the hop looks.
    chain.arrives("c/d/x", &file);
    chain.well(&["push", url, "--timeout", "40s"]);
}

#[test] //= hops#reading
fn offline_hop_names_absent_node() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &["--anonymous", "write"]);
    let file = scratch.file("x", 3000);
    let hop = chain.hops[0].node.as_ref().unwrap().url("");
    chain.dest.kill();
    for name in ["d", "e"] {
        chain.well(&["mkdir", &format!("godwit://hop0/{name}")]);
        chain.well(&["cp", "x", &format!("godwit://hop0/{name}/")]);
    }
    assert_eq!(chain.well(&["ls", "godwit://hop0/d"]), "x\n");
    chain.well(&["mv", "godwit://hop0/d/x", "godwit://hop0/y"]);
    assert_eq!(chain.well(&["ls", "godwit://hop0/d"]), "");
    chain.well(&["rm", "-r", "godwit://hop0/e"]);
    for words in [
        vec!["ls", "godwit://hop0/"],
        vec!["rm", "godwit://hop0/never"],
        vec!["rm", "-r", "godwit://hop0/never"],
        vec!["mv", "godwit://hop0/never", "godwit://hop0/z"],
        vec!["mv", "-n", "godwit://hop0/y", "godwit://hop0/z"],
        vec!["ls", &hop],
    ] {
        let said = chain.says(&words);
        assert_eq!(said.status, Some(5), "{words:?}: {said}");
        let next = "the next node, godwit://dest/, cannot be reached";
        let is_told = said.stderr.contains(next) && !said.stderr.contains("lost");
        assert!(is_told, "{words:?}: {said}");
    }
    let listed = chain.says(&["ls", "godwit://hop0/"]);
    assert_eq!(listed.stdout, b"d/\ny\n", "{listed}");
    chain.dest.start(&[]);
    chain.arrives("y", &file);
    chain.well(&["push", "godwit://hop0/y", "--timeout", "40s"]);
    wait_until("the directory is removed", || chain.all_far() == ["d", "y"]);
}

#[test]
fn hop_tells_its_work() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    scratch.file("x", 3000);
    chain.dest.kill();
    chain.well(&["mkdir", "godwit://hop0/d"]);
    chain.well(&["cp", "x", "godwit://hop0/d/"]);
    chain.dest.start(&[]);
    chain.well(&["push", "godwit://hop0/d/x", "--timeout", "40s"]);
    for did in [
        "make directory\" path=godwit://dest/d",
        "deliver\" path=godwit://dest/d/x",
    ] {
        chain.hops[0].tells(&format!("did=\"{did} who=\"/O=godwit/OU=peer/CN=laptop\""));
    }
}

/// A hop that is reached by FTP, with a spool of its own.
fn hop_by_ftp(scratch: &Scratch, next: &str) -> Node {
    let mut command = godwit();
    command
        .args(["node", "--next", next])
        .arg("--spool")
        .arg(scratch.join("ftp-hop.spool"))
        .args(["--ftp", "127.0.0.1:0", "--https", "none", "--json"])
        .args(["--anonymous", "write"])
        .arg("--state")
        .arg(scratch.join("ftp-hop.state"));
    Node::spawn(command, &scratch.join("ftp-hop"))
}

#[test] //= hops#what-a-hop-does-not-pass-on
fn ftp_hop_is_not_end() {
    let scratch = Scratch::new();
    let chain = Chain::of(&scratch, 0, &[]);
    let mut dest = Node::start(&scratch.dir("far"));
    let hop = hop_by_ftp(&scratch, &dest.url(""));
    scratch.file("a", 300_000);
    let is_told = |said: &Said, at: u16| {
        let at = format!("127.0.0.1:{at} has it and passes it on");
        said.stderr.contains(&at) && said.stderr.contains("godwit://")
    };
    let stages = |url: &str| -> Vec<String> {
        let all = chain.trace(url).into_iter();
        all.map(|line| line["stage"].as_str().unwrap().to_owned())
            .collect()
    };
    // One that is the end says nothing more.
    chain.well(&["put", "a", &dest.url("b")]);
    let pushed = chain.says(&["push", &dest.url("b"), "--timeout", "30s"]);
    assert!(
        pushed.status == Some(0) && !pushed.stderr.contains("passes it on"),
        "{pushed}"
    );
    assert_eq!(stages(&dest.url("b")), ["there"]);
    dest.kill();
    let url = hop.url("a");
    chain.well(&["put", "a", &url]);
    let pushed = chain.says(&["push", &url, "--timeout", "30s"]);
    assert!(
        pushed.status == Some(0) && is_told(&pushed, hop.port),
        "{pushed}"
    );
    let said = pushed.stderr.matches("passes it on").count();
    assert_eq!(said, 1, "{pushed}");
    // Also if all of it had gone before.
    let pushed = chain.says(&["push", &url, "--timeout", "30s"]);
    assert!(is_told(&pushed, hop.port), "{pushed}");
    assert_eq!(stages(&url), ["taken"]);
    let traced = chain.well(&["trace", &url]);
    assert!(traced.contains("FTP does not tell"), "{traced}");
    let decided = chain.says(&["drop", "--at-hop", &url]);
    assert!(
        decided.status != Some(0) && decided.stderr.contains("by its door"),
        "{decided}"
    );
    // All at once says so for one of each server.
    for name in ["c", "d"] {
        chain.well(&["put", "a", &hop.url(name)]);
    }
    let all = chain.says(&["--json", "push", "--timeout", "30s"]);
    let mut summary = all.stdout.split(|byte| *byte == b'\n');
    let summary = summary.rfind(|line| !line.is_empty()).unwrap();
    let summary: Value = serde_json::from_slice(summary).unwrap();
    assert_eq!(summary["notes"].as_array().map(Vec::len), Some(1), "{all}");
}

#[test] //= hops#what-a-hop-does-not-pass-on
fn second_ftp_hop_is_recognized() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    let behind = hop_by_ftp(&scratch, "ftp://127.0.0.1:1/");
    let next = behind.url("");
    chain.hops[0].kill();
    start(&mut chain.hops[0], (&spool(&scratch, 0), &next), &[], &[]);
    scratch.file("a", 300_000);
    let url = "godwit://hop0/a";
    chain.well(&["put", "a", url]);
    let pushed = chain.says(&["push", url, "--timeout", "30s"]);
    let words = format!("127.0.0.1:{} has it and passes it on", behind.port);
    assert!(
        pushed.status == Some(0) && pushed.stderr.contains(&words),
        "{pushed}"
    );
    let stages: Vec<_> = chain
        .trace(url)
        .into_iter()
        .map(|line| line["stage"].clone())
        .collect();
    assert_eq!(stages, ["passed", "taken"]);
}

#[test] //= hops#on-hold-at-a-hop
fn waiting_change_names_hop_hold() {
    let scratch = Scratch::new();
    let chain = Chain::of(&scratch, 2, &[]);
    scratch.file("a", 300);
    std::fs::create_dir_all(chain.far("d/keep")).unwrap();
    let held = "godwit://hop0/d";
    chain.well(&["put", "a", held]);
    let refused = chain.says(&["push", held, "--timeout", "40s"]);
    assert!(refused.stderr.contains("holds d until"), "{refused}");
    let waits = "godwit://hop0/d/x";
    chain.well(&["put", "a", waits]);
    let refused = chain.says(&["push", waits, "--timeout", "40s"]);
    let is_told = |words: &str| refused.stderr.contains(words);
    assert!(
        is_told("holds d until you run godwit retry, release or drop")
            && is_told("godwit://hop0/d/x waits for that")
            && is_told("godwit retry --at-hop godwit://hop0/d,")
            && !is_told("--at-hop godwit://hop0/d/x"),
        "{refused}"
    );
    // Nothing else is on hold.
    let all = chain.says(&["push", "--timeout", "40s"]);
    assert!(
        all.stderr.contains("holds d until") && !all.stderr.contains("held as well"),
        "{all}"
    );
    let way = chain.trace(waits);
    assert_eq!(way[1]["stage"], "queued", "{way:?}");
    assert_eq!(way[1]["waits_for"], "d", "{way:?}");
    assert_eq!(way[1]["why"], "waits for d, which is held", "{way:?}");
    let next = way[1]["next"].as_str().unwrap();
    assert!(next.starts_with("godwit trace godwit://hop0/d "), "{way:?}");
    chain.well(&["drop", "--at-hop", held]);
    chain.well(&["push", waits, "--timeout", "40s"]);
    assert_same(&scratch.join("a"), &chain.far("d/x"));
}

#[test] //= hops#delivery hops#on-hold-at-a-hop
fn hop_directory_hold_is_decidable() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    let url = "godwit://hop0/no/d";
    let push = |chain: &Chain<'_>, url: &str| chain.says(&["push", url, "--timeout", "40s"]);
    chain.dest.kill();
    chain.well(&["mkdir", url]);
    chain.dest.start(&[]);
    let held = push(&chain, url);
    let is_told = |words: &str| held.stderr.contains(words);
    assert!(
        held.status == Some(4)
            && is_told("holds no/d until you run godwit retry, release or drop")
            && is_told("no is not there")
            && is_told("godwit retry --at-hop godwit://hop0/no/d"),
        "{held}"
    );
    chain.well(&["retry", "--at-hop", url]);
    assert_eq!(push(&chain, url).status, Some(4));
    chain.well(&["mkdir", "godwit://hop0/no"]);
    push(&chain, url).ok();
    assert!(chain.far("no/d").is_dir());
    // An absent name is not waited for.
    let nothing = push(&chain, "godwit://hop0/nothing").ok();
    assert!(nothing.stderr.contains("nothing to deliver"), "{nothing}");
    // A change that a verb asked of a hop is waited for.
    chain.dest.kill();
    let late = "godwit://hop0/late";
    chain.well(&["mkdir", late]);
    let waited = chain.says(&["push", late, "--timeout", "1s"]);
    assert_eq!(waited.status, Some(5), "{waited}");
    chain.dest.start(&[]);
    push(&chain, late).ok();
    assert!(chain.far("late").is_dir());
}

/// Verbs about the local node work at the socket in the hop's spool.
#[test] //= hops#on-hold-at-a-hop
fn hop_operator_decides_holds() {
    let scratch = Scratch::new();
    let mut chain = Chain::of(&scratch, 1, &[]);
    chain.hops[0].stop();
    let events = scratch.join("events");
    let tells = format!("echo \"$GODWIT_EVENT\" >>'{}'", events.display());
    let (spool, next) = (spool(&scratch, 0), chain.next(0));
    let environment = [("GODWIT_ON_FAULT", tells.as_str())];
    start(&mut chain.hops[0], (&spool, &next), &[], &environment);
    let operator = |hop: &Machine<'_>, words: &[&str]| {
        let mut command = hop.command(words);
        command
            .env("GODWIT_SOCKET", spool.join("socket"))
            .stdin(Stdio::null());
        Said::of(&mut command)
    };
    // A file stands where the directory is needed.
    scratch.file("far/d", 10);
    let file = scratch.file("x", 3000);
    chain.well(&["put", "x", "godwit://hop0/d/x"]);
    let held = chain.says(&["push", "--timeout", "40s"]);
    assert_ne!(held.status, Some(0), "{held}");
    let said = operator(&chain.hops[0], &["queue", "--json"]);
    let first = said.stdout.split(|byte| *byte == b'\n').next().unwrap();
    let row: Value = serde_json::from_slice(first).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(row["stage"], "held", "{said}");
    assert_eq!(row["url"], "godwit://dest/d/x", "{said}");
    wait_until("the operator is told", || {
        let told = std::fs::read_to_string(&events).unwrap_or_default();
        told.contains("\"held\"") && told.contains("godwit://dest/d/x")
    });
    let status = operator(&chain.hops[0], &["node", "status"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("1 files with"), "{status}");
    // Files go by its URL.
    for words in [
        &["put", "x", "godwit://dest/y"][..],
        &["get", "godwit://dest/d", "-"],
    ] {
        let refused = operator(&chain.hops[0], words);
        assert_eq!(refused.status, Some(1), "{refused}");
        assert!(
            refused.stderr.contains("at the socket of a hop"),
            "{refused}"
        );
    }
    let moved = operator(
        &chain.hops[0],
        &["redirect", row["id"].as_str().unwrap(), "godwit://dest/x"],
    );
    assert_eq!(moved.status, Some(0), "{moved}");
    chain.arrives("x", &file);
    let pushed = operator(&chain.hops[0], &["push", "--timeout", "40s"]);
    assert_eq!(pushed.status, Some(0), "{pushed}");
    // The hop ends as a whole, and no other node takes its place.
    let stopped = operator(&chain.hops[0], &["node", "stop"]);
    assert_eq!(stopped.status, Some(0), "{stopped}");
    let refused = operator(&chain.hops[0], &["queue"]);
    assert!(
        refused.status != Some(0)
            && refused
                .stderr
                .contains("is the spool of a hop that does not run"),
        "{refused}"
    );
    chain.start(0, None);
    let again = operator(&chain.hops[0], &["queue"]);
    assert_eq!(again.status, Some(0), "{again}");
}
