//! A farm of nodes on this machine: files in fragments.
#![allow(clippy::unwrap_used)]

mod common;

use common::{farm::Farm, noise};
use serde_json::Value;
use std::fs;

impl Farm {
    /// Returns start, size and site of each fragment.
    fn fragments(&self, name: &str) -> Vec<(u64, u64, String)> {
        let rows = self.say(&format!("godwit locate --json {name}"));
        let rows = rows
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let rows = rows.filter(|row| row["event"] == "home" && row["fragment"].is_u64());
        let number = |value: &Value| value.as_u64().unwrap();
        let mut found: Vec<_> = rows
            .map(|row| {
                let site = row["site"].as_str().unwrap().to_owned();
                let path = row["url"]
                    .as_str()
                    .unwrap()
                    .split(".farm/")
                    .nth(1)
                    .unwrap()
                    .replace("%23", "#");
                let lies = self
                    .scratch
                    .join(format!("farm/{site}/export/.farm/{path}"));
                assert_eq!(fs::metadata(lies).unwrap().len(), number(&row["size"]));
                (number(&row["start"]), number(&row["size"]), site)
            })
            .collect();
        found.sort();
        found
    }
}

#[test] //= FARM-98 FARM-5 FARM-10 FARM-38
fn imported_fragments_lie_at_their_nodes() {
    let farm = Farm::new(3);
    let lines: String = (0..20_000)
        .map(|at| format!("line {at} of the text\n"))
        .collect();
    fs::write(farm.scratch.join("text"), &lines).unwrap();
    farm.say("godwit farm import --lines --parts 6 text grid:/t");
    let fragments = farm.fragments("grid:/t");
    let sites: Vec<_> = fragments.iter().map(|(_, _, site)| site.as_str()).collect();
    assert_eq!(sites, ["n1", "n2", "n3", "n1", "n2", "n3"]);
    let mut end = 0;
    for (start, size, _) in &fragments {
        assert_eq!(*start, end);
        end += size;
        assert_eq!(lines.as_bytes()[end as usize - 1], b'\n');
    }
    assert_eq!(end, lines.len() as u64);
    assert_eq!(farm.say("godwit cat grid:/t"), lines);
    // Another node, and a part in the middle.
    let line = "bash -c '. farm/n3/env; godwit cat grid:/t' | cmp - text";
    farm.say(line);
    farm.say("godwit cp grid:/t back && cmp back text");
    let (start, size) = (fragments[2].0 as usize, fragments[2].1 as usize);
    let third = farm.say("godwit cat 'grid:/t#2/6'");
    assert_eq!(third, lines[start..start + size]);
    let why = farm.refused("godwit cat 'grid:/t#2/7'", 4);
    assert!(why.contains("grid:/t#2/7"), "{why}");
    farm.refused("godwit rm 'grid:/t#2/6'", 1);
    farm.say("godwit farm demo --stop --dir farm");
    let why = farm.refused("godwit cat godwit://n2/", 5);
    assert!(why.contains("n2"), "{why}");
    farm.say("godwit farm demo --nodes 3 --dir farm");
    assert_eq!(farm.say("godwit cat grid:/t"), lines);
    farm.say("godwit rm grid:/t");
    assert_eq!(
        fs::read_dir(farm.scratch.join("farm/n2/export/.farm"))
            .unwrap()
            .count(),
        0
    );
}

/// Each program runs beside its fragment, on the node that has it.
#[test] //= FARM-98 FARM-2 FARM-39b
fn programs_run_where_fragments_lie() {
    let farm = Farm::new(2);
    let lines: String = (0..30_000).map(|at| format!("event {at}\n")).collect();
    fs::write(farm.scratch.join("text"), &lines).unwrap();
    farm.say("godwit farm import --lines --parts 4 text grid:/t");
    let fragments = farm.fragments("grid:/t");
    let counts = farm.say("godwit farm run --ordered grid:/t -- grep -c 7 {in}");
    let counts: Vec<usize> = counts.lines().map(|line| line.parse().unwrap()).collect();
    let mut begin = 0;
    let expected: Vec<usize> = fragments
        .iter()
        .map(|(_, size, _)| {
            let end = begin + *size as usize;
            let count = lines[begin..end].lines().filter(|line| line.contains('7'));
            begin = end;
            count.count()
        })
        .collect();
    assert_eq!(counts, expected);
    // The fragments themselves, in the order of the file, of which a pipe makes the file again.
    farm.say("godwit farm run --ordered grid:/t -- cat {in} | cmp - text");
    let line = "godwit farm run --json grid:/t -- sh -c 'echo {in} $GODWIT_FRAGMENT/$GODWIT_FRAGMENTS; echo oh >&2'";
    let rows = farm.say(line);
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |event: &str| {
        rows.iter()
            .filter(move |row| row["event"] == event)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("task").len(), 4);
    for task in of("task") {
        let (fragment, node) = (
            task["fragment"].as_u64().unwrap(),
            task["node"].as_str().unwrap(),
        );
        assert_eq!(node, fragments[fragment as usize].2);
        let own = |row: &&&Value| row["fragment"] == fragment;
        let written: Vec<_> = rows.iter().filter(|row| row["event"] == "line").collect();
        let out = written
            .iter()
            .filter(own)
            .find(|row| row["stream"] == "stdout")
            .unwrap();
        let text = out["text"].as_str().unwrap();
        assert!(
            text.contains(&format!("/farm/{node}/export/.farm/")),
            "{text}"
        );
        assert!(text.ends_with(&format!(" {fragment}/4")), "{text}");
        let said = written
            .iter()
            .filter(own)
            .find(|row| row["stream"] == "stderr")
            .unwrap();
        assert_eq!(said["text"], "oh");
    }
    assert_eq!(of("summary")[0]["local_bytes"], lines.len());
    // Each in a directory of its own, which goes with it; arguments are bytes.
    let line = r"godwit farm run grid:/t -- sh -c 'pwd; touch left; ls -A; printf %s $0' $'\xff' | sort -u > wrote";
    farm.say(line);
    let wrote = fs::read(farm.scratch.join("wrote")).unwrap();
    let wrote: Vec<_> = wrote.split(|&byte| byte == b'\n').collect();
    let places = wrote.iter().filter(|line| line.starts_with(b"/")).count();
    // Four directories, what is in each, the argument, and nothing behind the last line.
    assert_eq!((places, wrote.len()), (4, 7));
    assert!(wrote.contains(&&b"\xff"[..]) && wrote.contains(&&b"left"[..]));
    for node in ["n1", "n2"] {
        let tasks = farm.scratch.join(format!("farm/{node}/export/.farm/tasks"));
        assert_eq!(fs::read_dir(tasks).unwrap().count(), 0);
    }
    let plan = farm.say("godwit farm run --plan grid:/t -- true");
    assert_eq!(plan.matches("  n1: ").count(), 2);
}

#[test] //= FARM-37
fn refused_programs_name_node_and_cause() {
    let farm = Farm::new(2);
    fs::write(farm.scratch.join("text"), "one\ntwo\n").unwrap();
    farm.say("godwit farm import --lines --parts 2 text grid:/t");
    let why = farm.refused("godwit farm run grid:/t -- no-such-program {in}", 2);
    assert!(
        why.contains("n2 says: cannot run no-such-program") && why.contains("./NAME"),
        "{why}"
    );
    let why = farm.refused(
        "godwit farm run grid:/t -- sh -c 'exit $((GODWIT_FRAGMENT + 3))'",
        1,
    );
    assert!(why.contains("status 4 at n2"), "{why}");
    farm.refused("godwit farm run grid:/t -- sh -c 'exit 4'", 4);
    farm.refused("godwit farm run grid:/t -- sh -c 'kill -9 $$'", 137);
    farm.refused("godwit farm run grid:/missing -- true", 4);
    farm.refused("godwit farm run grid:/t", 2);
    drop(farm);
    // A node without slots runs nothing.
    let farm = Farm::new(1);
    fs::write(farm.scratch.join("text"), "one\n").unwrap();
    farm.say("godwit farm import text grid:/t");
    farm.say("godwit farm demo --stop --dir farm");
    farm.say("GODWIT_FARM_SLOTS=0 godwit node --json > said 2> said.log & echo $! > quiet; until grep -q serving said; do :; done");
    let why = farm.refused("godwit farm run grid:/t -- true", 13);
    assert!(why.contains("farm.slots"), "{why}");
    farm.say("kill $(cat quiet)");
}

#[test] //= FARM-10 FARM-14
fn wrong_imports_leave_nothing() {
    let farm = Farm::new(2);
    fs::write(farm.scratch.join("big"), noise(3_000_000, 5)).unwrap();
    fs::write(farm.scratch.join("empty"), "").unwrap();
    fs::write(farm.scratch.join("short"), "one\ntwo").unwrap();
    farm.say("godwit farm import --size 1M big grid:/big && godwit cat grid:/big | cmp - big");
    assert_eq!(farm.fragments("grid:/big").len(), 3);
    let why = farm.refused("godwit farm import big grid:/big", 1);
    assert!(why.contains("grid:/big"), "{why}");
    farm.refused("godwit farm import missing grid:/m", 4);
    farm.refused("godwit farm import --parts 0 big grid:/m", 2);
    farm.refused("godwit farm import --size 1 big grid:/m", 1);
    farm.say("godwit farm import --lines --parts 9 short grid:/short");
    let sizes: Vec<_> = farm
        .fragments("grid:/short")
        .iter()
        .map(|row| row.1)
        .collect();
    // As many fragments as were asked for, of which most are empty.
    assert_eq!(sizes, [0, 4, 0, 0, 0, 0, 3, 0, 0]);
    assert_eq!(farm.say("godwit cat grid:/short"), "one\ntwo");
    farm.say("godwit farm import empty grid:/empty && [ -z \"$(godwit cat grid:/empty)\" ]");
    farm.say("kill -9 $(cat farm/n2/pid)");
    farm.refused("godwit farm import big grid:/other", 5);
    farm.refused("godwit stat grid:/other", 4);
    // Two of three fragments, five of nine, and one of one.
    let left = farm.say("find farm/n1/export/.farm -name '#*' | wc -l");
    assert_eq!(left, "8\n");
    let why = farm.refused("godwit farm demo --nodes 2 --dir farm", 2);
    assert!(why.contains("--stop"), "{why}");
}

impl Farm {
    /// Imports lines into four fragments at two nodes; returns them.
    fn with_lines(count: usize) -> (Self, String) {
        let farm = Self::new(2);
        let lines: String = (0..count).map(|at| format!("event {at}\n")).collect();
        fs::write(farm.scratch.join("text"), &lines).unwrap();
        farm.say("godwit farm import --lines --parts 4 text grid:/t");
        (farm, lines)
    }

    /// Waits until only those fragments lie at the nodes that `grid:/t` has. A task that was slow may have had one copied.
    #[track_caller]
    fn keep_only_the_input(&self) {
        let files = "find farm/*/export/.farm -name '#*' | wc -l";
        let homes = "godwit locate --json grid:/t | grep -c '\"fragment\"'";
        self.say(&format!("until [ $({files}) = $({homes}) ]; do :; done"));
    }
}

#[test] //= FARM-98 FARM-29 FARM-44a FARM-56
fn outputs_are_published_together() {
    let (farm, lines) = Farm::with_lines(20_000);
    let sevens = |text: &str| -> String {
        let kept = text.lines().filter(|line| line.contains('7'));
        kept.map(|line| format!("{line}\n")).collect()
    };
    farm.say("godwit farm run --out grid:/o grid:/t -- sh -c 'grep 7 {in} > {out}'");
    assert_eq!(farm.say("godwit cat grid:/o"), sevens(&lines));
    let sites = |name: &str| -> Vec<_> {
        let all = farm.fragments(name).into_iter();
        all.map(|(_, _, site)| site).collect()
    };
    assert_eq!(sites("grid:/o"), sites("grid:/t"));
    farm.say("godwit farm run --stdout grid:/counts grid:/t -- grep -c 7 {in}");
    let counts = farm.say("godwit cat grid:/counts");
    let sum: usize = counts
        .lines()
        .map(|line| line.parse::<usize>().unwrap())
        .sum();
    assert_eq!(
        (counts.lines().count(), sum),
        (4, sevens(&lines).lines().count())
    );
    let told = farm.say("godwit history --json grid:/o");
    let told: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(told["event"], "made");
    assert_eq!(told["argv"][2], "grep 7 {in} > {out}");
    assert_eq!(
        (&told["inputs"][0]["name"], &told["is_proved"]),
        (&"t".into(), &false.into())
    );
    let digests = farm.say("for i in 0 1 2 3; do godwit sum -a blake3 grid:/o#$i/4; done");
    for (fragment, line) in digests.lines().enumerate() {
        let rank = &told["ranks"][fragment];
        let digest = rank["digest"]
            .as_str()
            .unwrap()
            .trim_start_matches("blake3:");
        assert!(line.contains(digest), "{line} {rank}");
        assert_eq!(rank["node"], sites("grid:/o")[fragment]);
    }
    assert!(
        farm.say("godwit history grid:/counts")
            .contains("grid:/t  version 1")
    );
    farm.refused("godwit history grid:/none", 4);
    // A catalog that is loaded from a dump has the fragments with their homes and digests.
    farm.say("godwit catalog dump > lines && godwit catalog load --catalog sqlite:copy.db lines && godwit catalog load --catalog sqlite:copy.db lines");
    farm.say("godwit cat --catalog sqlite:copy.db grid:/o > got && godwit cat grid:/o | cmp - got");
    farm.say("godwit catalog dump --catalog sqlite:copy.db | cmp - lines");
}

#[test] //= FARM-14 FARM-31
fn failed_runs_leave_nothing() {
    let (farm, _) = Farm::with_lines(4_000);
    let run = |what: &str| format!("godwit farm run --out grid:/o grid:/t -- sh -c '{what}'");
    for (what, status, why) in [
        (
            "cp {in} {out}; [ $GODWIT_FRAGMENT != 2 ]",
            1,
            "status 1 at n1",
        ),
        ("cp {in} {out}; kill -9 $$", 137, "status 137"),
        ("true {out}", 1, "did not write {out}"),
        ("mkdir {out}", 1, "no plain file"),
    ] {
        let said = farm.refused(&run(what), status);
        assert!(said.contains(why), "{what}: {said}");
        farm.refused("godwit stat grid:/o", 4);
        farm.keep_only_the_input();
    }
    let why = farm.refused(&run("cp {in} {out}; echo >> {in}"), 12);
    assert!(why.contains("changed its input"), "{why}");
    farm.say("godwit rm grid:/t && godwit farm import --lines --parts 4 text grid:/t");
    farm.refused(
        "godwit farm run --out grid:/o --stdout grid:/o grid:/t -- cp {in} {out}",
        2,
    );
    let why = farm.refused("godwit farm run --out grid:/o grid:/t -- cat {in}", 2);
    assert!(why.contains("--stdout"), "{why}");
    farm.refused("godwit farm run grid:/t -- cp {in} {out}", 2);
    farm.say(&run("cp {in} {out}"));
    let why = farm.refused(&run("cp {in} {out}"), 1);
    assert!(why.contains("godwit rm"), "{why}");
    farm.say("godwit rm grid:/o");
    // A result of other bytes than the catalog knows does not count.
    farm.say("f=$(ls farm/n2/export/.farm/.parts-*/'#1.4') && printf X | dd of=$f conv=notrunc status=none");
    let why = farm.refused(&run("cp {in} {out}"), 12);
    assert!(why.contains("does not count"), "{why}");
    let states = farm.say("godwit locate grid:/t");
    assert_eq!(states.matches("damaged").count(), 1, "{states}");
    // The next one is told at once that no node has it.
    let why = farm.refused("godwit farm run grid:/t -- true", 1);
    assert!(why.contains("grid:/t#1/4"), "{why}");
    farm.keep_only_the_input();
}

/// The node that serves the catalog forgets the draft of a submitter that was killed, once its lease has ended. The task
/// that sleeps may have a second attempt by then.
#[test] //= FARM-31
fn killed_submitter_leaves_nothing() {
    let (farm, _) = Farm::with_lines(4_000);
    let line = "godwit farm run --json --out grid:/o grid:/t -- \
        sh -c 'cp {in} {out}; echo begun; [ $GODWIT_FRAGMENT != 3 ] || sleep 100' > said 2> errors & echo $! > pid; \
        until [ $(grep -c '\"task\"' said) = 3 ] && [ $(grep -c begun said) -ge 4 ]; do :; done; kill -9 $(cat pid)";
    farm.say(line);
    let why = farm.refused("godwit farm run --out grid:/o grid:/t -- cp {in} {out}", 5);
    assert!(why.contains("written by another process"), "{why}");
    farm.keep_only_the_input();
    farm.refused("godwit stat grid:/o", 4);
    farm.say(
        "godwit farm run --out grid:/o grid:/t -- cp {in} {out} && godwit cat grid:/o | cmp - text",
    );
}

impl Farm {
    /// Removes the bytes of a fragment behind the back of the catalog.
    fn lose(&self, name: &str) {
        let url = self.say(&format!(
            "godwit locate --json '{name}' | grep -o 'godwit://[^\"]*'"
        ));
        for url in url.lines() {
            let path = url.strip_prefix("godwit://").unwrap().replace("%23", "#");
            let (node, path) = path.split_once('/').unwrap();
            fs::remove_file(self.scratch.join(format!("farm/{node}/export/{path}"))).unwrap();
        }
    }
}

/// A fragment that no node has is computed when it is read, and its lost input before it.
#[test] //= FARM-98 FARM-53
fn lost_fragments_are_made_again() {
    let (farm, lines) = Farm::with_lines(8_000);
    let sevens: String = lines
        .lines()
        .filter(|line| line.contains('7'))
        .map(|line| format!("{line}\n"))
        .collect();
    farm.say("godwit farm run --out grid:/a grid:/t -- sh -c 'grep 7 {in} > {out}'");
    farm.say("godwit farm run --out grid:/b grid:/a -- sh -c 'echo run >> ../../../ran; sort -r {in} > {out}'");
    let b = farm.say("godwit cat grid:/b");
    farm.lose("grid:/b#1/4");
    farm.lose("grid:/a#1/4");
    farm.say("rm -f farm/n*/export/ran");
    // Many readers cause one run.
    farm.say("for i in $(seq 8); do godwit cat grid:/b > got$i & done; wait; for i in $(seq 8); do cmp got1 got$i; done");
    assert_eq!(farm.say("cat got1"), b);
    assert_eq!(farm.say("cat farm/n*/export/ran"), "run\n");
    assert_eq!(farm.say("godwit cat grid:/a"), sevens);
    // What was imported has no history.
    farm.lose("grid:/t#2/4");
    let why = farm.refused("godwit cat grid:/t", 1);
    assert!(why.contains("#2"), "{why}");
    let why = farm.refused("godwit farm make grid:/t", 1);
    assert!(why.contains("not made by a run"), "{why}");
    farm.refused("godwit farm make grid:/none", 4);
}

#[test] //= FARM-98 FARM-58 FARM-60
fn histories_are_proved_or_refused() {
    let (farm, _) = Farm::with_lines(2_000);
    farm.say("godwit farm run --out grid:/a grid:/t -- sh -c 'sort {in} > {out}'");
    farm.refused("godwit rm --keep-recipe grid:/a", 1);
    farm.say("godwit farm verify grid:/a");
    let told = farm.say("godwit history --json grid:/a");
    assert!(told.contains("\"is_proved\":true"), "{told}");
    let before = farm.say("godwit sum -a blake3 grid:/a");
    farm.say("godwit rm --keep-recipe grid:/a");
    let why = farm.refused("godwit cat grid:/a", 4);
    assert!(why.contains("godwit farm make grid:/a"), "{why}");
    farm.say("godwit farm make grid:/a");
    assert_eq!(farm.say("godwit sum -a blake3 grid:/a"), before);
    assert!(farm.say("godwit history grid:/a").contains("sort"));
    // A program whose result differs each time.
    farm.say("godwit farm run --out grid:/r grid:/t -- sh -c 'head -c 99 /dev/urandom > {out}'");
    farm.refused("godwit farm verify grid:/r", 12);
    farm.lose("grid:/r#0/4");
    let why = farm.refused("godwit cat grid:/r", 12);
    assert!(why.contains("kept as grid:/r.other-"), "{why}");
    let kept = farm.say("godwit ls grid:/ | grep r.other-");
    assert_eq!(
        farm.say(&format!("godwit cat grid:/{} | wc -c", kept.trim())),
        "99\n"
    );
}

/// Copies of each fragment keep a file whole through a wrong byte, a node that dies and a node that is drained.
#[test] //= FARM-98 FARM-17 FARM-35
fn copies_survive_failures() {
    let farm = Farm::with("", "--nodes 4 --down-after 12");
    fs::write(farm.scratch.join("text"), noise(2_000_000, 9)).unwrap();
    farm.say("godwit farm import --parts 4 text grid:/t && godwit rule add grid:/ copies=2");
    let two = "until godwit find grid:/ -copies 2 | grep -q grid:/t; do :; done";
    farm.say(two);
    // No fragment has two copies at one node.
    let mut all = farm.fragments("grid:/t");
    assert_eq!(all.len(), 8);
    all.dedup();
    assert_eq!(all.len(), 8);
    // A wrong byte: the reader gets the other copy, and the rule repairs this one.
    farm.say("f=$(ls farm/n2/export/.farm/.parts-*/'#1.4') && printf X | dd of=$f conv=notrunc status=none");
    farm.say("godwit cat grid:/t | cmp - text");
    farm.say(two);
    // A node that hangs, and is down after 12 seconds: its copies are made elsewhere.
    farm.say("kill -STOP $(cat farm/n3/pid)");
    farm.say("godwit cat grid:/t | cmp - text");
    let nodes = farm.say("godwit farm nodes --json");
    assert!(
        nodes.contains("\"node\":\"n3\",\"running\":null,\"slots\":null,\"state\":\"silent\"")
            || nodes.contains("silent"),
        "{nodes}"
    );
    farm.say("until ! godwit locate grid:/t --json | grep '\"fragment\"' | grep -v '\"n3\"' | grep -o '\"fragment\":[0-9]*' | sort | uniq -c | grep -q ' 1 '; do :; done");
    farm.say("kill -CONT $(cat farm/n3/pid)");
    // A drained node: as many copies elsewhere.
    farm.say("godwit farm drain n4");
    farm.say("until ! godwit locate grid:/t --json | grep '\"fragment\"' | grep -v '\"n4\"' | grep -o '\"fragment\":[0-9]*' | sort | uniq -c | grep -q ' 1 '; do :; done");
    farm.say("godwit farm import --parts 4 text grid:/u");
    assert!(
        farm.fragments("grid:/u")
            .iter()
            .all(|(_, _, site)| site != "n4")
    );
    farm.say("godwit farm run --out grid:/v grid:/u -- cp {in} {out}");
    assert!(
        farm.fragments("grid:/v")
            .iter()
            .all(|(_, _, site)| site != "n4")
    );
    farm.say("godwit farm return n4");
    farm.refused("godwit farm drain n9", 4);
    farm.say("godwit cat grid:/t | cmp - text");
}

/// A task goes where the fragment is, or the fragment goes where a task can run; a slow task is run twice.
#[test] //= FARM-22
fn tasks_find_another_node() {
    let farm = Farm::with("", "--nodes 3");
    let lines: String = (0..3_000).map(|at| format!("event {at}\n")).collect();
    fs::write(farm.scratch.join("text"), &lines).unwrap();
    farm.say("godwit farm import --lines --parts 3 text grid:/t");
    // A straggler: at n2 the task hangs, and its fragment is copied to another node.
    let slow = "case $PWD in */n2/*) sleep 60;; esac; cp {in} {out}";
    let rows = farm.say(&format!(
        "godwit farm run --json --out grid:/o grid:/t -- sh -c '{slow}'"
    ));
    let second = rows
        .lines()
        .find(|row| row.contains("\"task\"") && row.contains("\"fragment\":1,"))
        .unwrap();
    assert!(
        second.contains("\"how\":\"copied\"") && second.contains("\"attempts\":2"),
        "{second}"
    );
    farm.say("godwit cat grid:/o | cmp - text");
    // A node that is gone: the copy that was just made is used.
    farm.say("kill -9 $(cat farm/n2/pid)");
    let counts = farm.say("godwit farm run --json grid:/t -- grep -c event {in}");
    let local = counts
        .lines()
        .filter(|row| row.contains("\"task\"") && row.contains("\"local\""));
    assert_eq!(local.count(), 3, "{counts}");
    let summary = counts.lines().last().unwrap();
    assert!(summary.contains("\"moved_bytes\":0"), "{summary}");
    farm.say("kill -9 $(cat farm/n3/pid)");
    let why = farm.refused("godwit farm run grid:/t -- true", 5);
    assert!(why.contains("fragment 2"), "{why}");
}

/// A name that never existed is computed at its first read, from an input that is computed too.
#[test] //= FARM-62
fn defined_names_are_computed_when_read() {
    let (farm, lines) = Farm::with_lines(2_000);
    farm.say("godwit mkdir grid:/raw && godwit mv grid:/t grid:/raw/7");
    farm.say(
        "godwit farm define 'grid:/sel/{run}/{digit}' --in 'grid:/raw/{run}' -- grep {digit} {in}",
    );
    farm.say("godwit farm define 'grid:/sum/{run}/{digit}' --in 'grid:/sel/{run}/{digit}' -- sh -c 'wc -l < {in} > {out}'");
    let count = lines.lines().filter(|line| line.contains('3')).count();
    let sums = farm.say("bash -c '. farm/n2/env; godwit cat grid:/sum/7/3'");
    let sum: usize = sums
        .lines()
        .map(|line| line.parse::<usize>().unwrap())
        .sum();
    assert_eq!((sums.lines().count(), sum), (4, count));
    assert!(
        farm.say("godwit history grid:/sel/7/3")
            .contains("grep 3 {in}")
    );
    assert_eq!(farm.say("godwit ls grid:/sel/7"), "3\n");
    let why = farm.refused("godwit cat grid:/sel/8/3", 4);
    assert!(why.contains("raw/8"), "{why}");
    farm.refused("godwit cat grid:/sel/7/none", 1);
    farm.refused("godwit stat grid:/sel/7/none/deep", 4);
    farm.say("godwit farm define 'grid:/d/{w}' --in 'grid:/e/{w}' -- cat {in} && godwit farm define 'grid:/e/{w}' --in 'grid:/d/{w}' -- cat {in}");
    let why = farm.refused("godwit cat grid:/d/x", 1);
    assert!(why.contains("leads back"), "{why}");
    let wrong = "godwit farm define 'grid:/x/{a}' --in 'grid:/raw/{b}' -- true";
    assert!(farm.refused(wrong, 1).contains("{b}"));
    farm.refused("godwit farm define grid:/x/y --in grid:/raw/7 -- true", 1);
}

impl Farm {
    /// Writes a program that copies lines in reverse order.
    fn with_tool(&self) {
        let text = "#!/bin/sh\nsort -r \"$1\" > \"$2\"\n";
        fs::write(self.scratch.join("tool"), text).unwrap();
        self.say("chmod +x tool");
    }
}

/// A program of the submitter serves what is computed after it is gone.
#[test] //= FARM-51a
fn programs_are_kept_in_catalog() {
    let (farm, _) = Farm::with_lines(2_000);
    farm.with_tool();
    let run = |name: &str| {
        farm.say(&format!(
            "godwit farm run --out {name} grid:/t -- ./tool {{in}} {{out}}"
        ));
        farm.say(&format!("godwit cat {name}"))
    };
    let sorted = run("grid:/o");
    assert_eq!(run("grid:/p"), sorted);
    let digest = farm.say("godwit sum -a blake3 tool | cut -d' ' -f1");
    let digest = digest.trim().trim_start_matches("blake3:");
    assert_eq!(farm.say("godwit ls grid:/.programs"), format!("{digest}\n"));
    let told = farm.say("godwit history --json grid:/o");
    assert!(
        told.contains(&format!("\"program\":\"blake3:{digest}\"")),
        "{told}"
    );
    farm.say("godwit farm define 'grid:/d/{w}' --in 'grid:/{w}' -- ./tool {in} {out} && rm tool");
    assert_eq!(farm.say("godwit cat grid:/d/t"), sorted);
    // Nodes without it get it again; other bytes under its name are replaced.
    farm.say("rm -r farm/n1/export/.farm/bin && echo other > farm/n2/export/.farm/bin/*");
    for fragment in ["grid:/o#0/4", "grid:/o#1/4"] {
        farm.lose(fragment);
    }
    assert_eq!(farm.say("godwit cat grid:/o"), sorted);
    farm.say("godwit farm verify grid:/p");
    farm.say("godwit rm -r grid:/.programs && rm -r farm/n*/export/.farm/bin");
    farm.lose("grid:/o#0/4");
    let why = farm.refused("godwit cat grid:/o", 1);
    assert!(why.contains(&format!("grid:/.programs/{digest}")), "{why}");
    farm.refused("godwit farm run grid:/t -- ./tool {in}", 4);
    let why = farm.refused("godwit farm run grid:/t -- ./text {in}", 2);
    assert!(why.contains("chmod +x"), "{why}");
}

/// Each node has the program for its platform.
#[test] //= FARM-51b
fn programs_are_chosen_by_platform() {
    let (farm, _) = Farm::with_lines(2_000);
    farm.with_tool();
    let here = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    farm.say(&format!(
        "godwit mkdir -p grid:/sel grid:/none && godwit cp tool grid:/sel/{here} && \
         godwit cp text grid:/sel/other-linux && godwit cp tool grid:/none/other-linux"
    ));
    farm.say("godwit farm run --out grid:/o grid:/t -- grid:/sel {in} {out}");
    let sorted = farm.say("godwit cat grid:/o");
    assert!(sorted.starts_with("event 9"), "{sorted}");
    let told = farm.say("godwit history --json grid:/o");
    let programs = serde_json::from_str::<Value>(told.lines().next().unwrap()).unwrap();
    let digest = farm.say("godwit sum -a blake3 tool | cut -d' ' -f1");
    let known = programs["programs"][&here].as_str().unwrap();
    assert!(known.ends_with(digest.trim()), "{told}");
    farm.say("godwit rm -r grid:/sel && rm -r farm/n*/export/.farm/bin");
    farm.lose("grid:/o#0/4");
    assert_eq!(farm.say("godwit cat grid:/o"), sorted);
    let run = "godwit farm run --out grid:/p grid:/t -- grid:/none {in} {out}";
    let why = farm.refused(run, 1);
    let is_told = why.contains(&format!("at n1 ({here})")) && why.contains("other-linux only");
    assert!(is_told, "{why}");
    farm.say("godwit rm grid:/none/other-linux");
    assert!(farm.refused(run, 1).contains("no member"));
    farm.refused("godwit stat grid:/p", 4);
}

/// Files that lie beside each program are inputs of what it makes.
#[test] //= FARM-30a
fn further_files_lie_beside_programs() {
    let (farm, _) = Farm::with_lines(2_000);
    farm.say("echo 77 > more; echo 88 > words; mkdir d; echo 5 > d/more; godwit cp words grid:/w");
    let run = "godwit farm run --with ./more --with grid:/w";
    farm.say(&format!(
        "{run} --stdout grid:/o grid:/t -- grep -f w -f more {{in}} && rm more words"
    ));
    let found = farm.say("godwit cat grid:/o");
    assert_eq!(found, farm.say("grep -e 77 -e 88 text"));
    let told = farm.say("godwit history grid:/o");
    assert!(
        told.contains("grid:/w  version 1, whole") && told.contains("/more  version 1, whole"),
        "{told}"
    );
    farm.lose("grid:/o#1/4");
    assert_eq!(farm.say("godwit cat grid:/o"), found);
    farm.say("godwit rm grid:/w && godwit cp d/more grid:/w");
    farm.lose("grid:/o#1/4");
    let why = farm.refused("godwit cat grid:/o", 1);
    assert!(
        why.contains("it has other bytes than its history names"),
        "{why}"
    );
    farm.refused(&format!("{run} grid:/t -- true"), 4);
    let why = farm.refused(
        "godwit farm run --with d/more --with text --with d/more grid:/t -- true",
        2,
    );
    assert!(why.contains("d/more is called as another"), "{why}");
    let why = farm.refused(
        "godwit farm run --by 'sh {host}' --with text grid:/t -- true",
        2,
    );
    assert!(why.contains("--by"), "{why}");
    let why = farm.refused("godwit farm run --with grid:/none grid:/t -- true", 4);
    assert!(why.contains("grid:/none"), "{why}");
}

/// Programs beside no file make one of as many fragments.
#[test] //= FARM-39a
fn programs_without_file_make_fragments() {
    let farm = Farm::new(2);
    let rank = "sh -c 'echo $GODWIT_FRAGMENT/$GODWIT_FRAGMENTS'";
    let ranks = "0/9\n1/9\n2/9\n3/9\n4/9\n5/9\n6/9\n7/9\n8/9\n";
    let run = "godwit farm run -n 9 --ordered";
    assert_eq!(farm.say(&format!("{run} -- {rank}")), ranks);
    assert_eq!(
        farm.say(&format!(
            "{run} --by '. farm/{{host}}/env; godwit farm task' -- {rank}"
        )),
        ranks
    );
    farm.say(&format!("{run} --stdout grid:/o -- {rank}"));
    assert_eq!(farm.say("godwit cat grid:/o"), ranks);
    let sites: Vec<_> = farm
        .fragments("grid:/o")
        .into_iter()
        .map(|(.., site)| site)
        .collect();
    assert!(
        sites.contains(&"n1".into()) && sites.contains(&"n2".into()),
        "{sites:?}"
    );
    farm.lose("grid:/o#3/9");
    assert_eq!(farm.say("godwit cat grid:/o"), ranks);
    farm.say("printf '#!/bin/sh\\ncat more > $1; echo $GODWIT_FRAGMENT >> $1\\n' > tool; chmod +x tool; echo x > more");
    farm.say("godwit farm run -n 2 --with more --out grid:/p -- ./tool {out} && rm more tool");
    farm.say(
        "godwit farm verify grid:/p && godwit rm --keep-recipe grid:/p && godwit farm make grid:/p",
    );
    assert_eq!(farm.say("godwit cat grid:/p"), "x\n0\nx\n1\n");
    farm.refused(
        &format!("{run} --stdout grid:/q -- sh -c '[ $GODWIT_FRAGMENT != 8 ]'"),
        1,
    );
    farm.refused("godwit stat grid:/q", 4);
    for (words, why) in [
        ("-n 9 grid:/o -- true", "NAME"),
        ("-n 9 -- cat {in}", "no file is named"),
        ("-n 0 -- true", "-n"),
    ] {
        let said = farm.refused(&format!("godwit farm run {words}"), 2);
        assert!(said.contains(why), "{said}");
    }
}
