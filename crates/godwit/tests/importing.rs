//! Files come into the farm from pipes and other stores, cut as is asked, and go out of it again.
#![allow(clippy::unwrap_used)]

mod common;

use common::{farm::Farm, noise};
use std::fs;

impl Farm {
    /// Returns the sizes of the fragments of a name, by their order.
    fn sizes(&self, name: &str) -> Vec<usize> {
        let wanted = "grep '\"fragment\"' | sed 's/.*\"fragment\":\\([0-9]*\\).*\"size\":\\([0-9]*\\).*/\\1 \\2/'";
        let rows = self.say(&format!("godwit locate --json {name} | {wanted} | sort -n"));
        let size = |row: &str| row.split_once(' ').unwrap().1.parse().unwrap();
        rows.lines().map(size).collect()
    }
}

#[test] //= FARM-98 FARM-100
fn pipes_and_stores_are_imported() {
    let farm = Farm::new(3);
    let lines: String = (0..40_000).map(|at| format!("event {at}\n")).collect();
    fs::write(farm.scratch.join("text"), &lines).unwrap();
    farm.say("cat text | godwit farm import --lines --size 64K - grid:/piped");
    farm.say("godwit cat grid:/piped | cmp - text");
    let (sizes, mut end) = (farm.sizes("grid:/piped"), 0);
    assert_eq!(sizes.len(), lines.len().div_ceil((64 << 10) + 6));
    for size in &sizes[..sizes.len() - 1] {
        end += size;
        assert!((64 << 10..(64 << 10) + 13).contains(size), "{size}");
        assert_eq!(lines.as_bytes()[end - 1], b'\n');
    }
    // Its fragments have names that tell their count, and programs run beside them.
    let last = sizes.len() - 1;
    let tail = farm.say(&format!("godwit cat 'grid:/piped#{last}/{}'", sizes.len()));
    assert_eq!(tail, lines[end..]);
    farm.say("godwit farm run --ordered grid:/piped -- cat {in} | cmp - text");
    // From the server of a node, and from another file in fragments, to the nodes that are named.
    farm.say("godwit cp text godwit://n2/text && godwit farm import --to n3,n1 --parts 3 godwit://n2/text grid:/far");
    farm.say("godwit cat grid:/far | cmp - text");
    let sites = "godwit locate --json grid:/far | grep -o '\"site\":\"n[0-9]\"' | sort | uniq -c";
    assert!(
        farm.say(sites)
            .contains("1 \"site\":\"n1\"\n      2 \"site\":\"n3\"")
    );
    farm.say("godwit farm import --record 1000 --size 3500 grid:/piped grid:/records 2> said || grep -q 'records of 1000 bytes' said");
    farm.say("head -c 10000 text > even && godwit farm import --record 1000 --size 3500 even grid:/records");
    assert_eq!(farm.sizes("grid:/records"), [3000, 3000, 3000, 1000]);
    farm.say("godwit farm import --record 1000 --parts 4 grid:/records grid:/again && godwit cat grid:/again | cmp - even");
    assert_eq!(farm.sizes("grid:/again"), [2000, 3000, 2000, 3000]);
    farm.say(r#"godwit farm import --cut "grep -ob 'event 4[0-9]0$' | cut -d: -f1" even grid:/cut && godwit cat grid:/cut | cmp - even"#);
    assert!(
        farm.say("godwit cat 'grid:/cut#1/11'")
            .starts_with("event 400\n")
    );
}

#[test] //= FARM-98 FARM-100
fn bad_imports_are_refused_in_words() {
    let farm = Farm::new(2);
    fs::write(farm.scratch.join("odd"), noise(2_500, 3)).unwrap();
    for (line, status, word) in [
        ("cat odd | godwit farm import - grid:/x", 1, "say --size"),
        (
            "godwit farm import --size 0 odd grid:/x",
            2,
            "1 byte at least",
        ),
        (
            "cat odd | godwit farm import --record 1000 --size 2000 - grid:/x",
            1,
            "only 500 bytes",
        ),
        (
            "cat odd | godwit farm import --cut true - grid:/x",
            2,
            "once",
        ),
        (
            "godwit farm import --record 1000 odd grid:/x",
            1,
            "only 500 bytes",
        ),
        (
            "godwit farm import --cut 'echo 7; echo 7' odd grid:/x",
            1,
            "must rise",
        ),
        (
            "godwit farm import --cut 'echo 2500' odd grid:/x",
            1,
            "not within its 2500 bytes",
        ),
        (
            "godwit farm import --cut 'echo one' odd grid:/x",
            1,
            "no number",
        ),
        (
            "godwit farm import --cut 'echo 7; exit 3' odd grid:/x",
            1,
            "status: 3",
        ),
        ("godwit farm import --to n1,n9 odd grid:/x", 4, "n9"),
        ("godwit farm import odd grid:/", 1, "it is a collection"),
        ("godwit farm import . grid:/x", 1, "godwit cp -r"),
        ("godwit farm import odd 'grid:/x#1/2'", 1, "without #"),
        (
            "godwit farm import odd grid:/no/such/x",
            4,
            "godwit mkdir -p grid:/no/such",
        ),
    ] {
        let why = farm.refused(line, status);
        assert!(why.contains(word), "{line}: {why}");
        farm.refused("godwit stat grid:/x", 4);
    }
    // Bytes that were damaged: the hint helps.
    farm.say("godwit cp odd godwit://n2/.farm/damaged && godwit register godwit://n2/.farm/damaged --as grid:/d");
    farm.say("printf X | dd of=farm/n2/export/.farm/damaged bs=1 conv=notrunc 2> dd");
    let why = farm.refused("godwit farm import grid:/d grid:/x", 12);
    assert!(why.contains("godwit cp FILE grid:/d"), "{why}");
    farm.say("rm farm/n2/export/.farm/damaged");
    // Nothing of them is left at the nodes.
    let left = "find farm/*/export/.farm -type f | wc -l";
    assert_eq!(farm.say(left), "0\n");
    let said = farm.shell("true | godwit farm import --size 1M - grid:/empty");
    assert!(
        said.stderr.contains("1 are empty") && said.status == Some(0),
        "{said}"
    );
    assert_eq!(farm.say("godwit cat grid:/empty"), "");
}

/// While a node hangs, the fragment of another one arrives.
#[test] //= FARM-98 FARM-101
fn fragments_are_gathered_from_several_homes() {
    let farm = Farm::new(3);
    fs::write(farm.scratch.join("big"), noise(24 << 20, 4)).unwrap();
    farm.say("godwit farm import --to n2,n3 --parts 2 big grid:/big && mkdir to");
    let arrived = "$(du -sk to | cut -f1) -ge 12000";
    farm.say(&format!(
        "kill -STOP $(cat farm/n2/pid); godwit cp grid:/big to/big & until [ {arrived} ]; do :; done; \
         kill -CONT $(cat farm/n2/pid); wait $! && cmp to/big big"
    ));
    // A reader in order keeps the second fragment until the first one comes.
    let kept = "stat -L -c %s /proc/$reader/fd/* 2> /dev/null | grep -qx 12582912";
    farm.say(&format!(
        "kill -STOP $(cat farm/n2/pid); godwit cat grid:/big > back & reader=$!; until {kept}; do :; done; \
         kill -CONT $(cat farm/n2/pid); wait $reader && cmp back big"
    ));
    assert_eq!(farm.say("godwit farm hostfile grid:/big"), "n2\nn3\n");
    // The holder of a file is killed in the middle: the other one gives a reader in order the rest.
    farm.say(
        "godwit farm import --to n2 --parts 1 big grid:/two && godwit replicate grid:/two --to n3 && mkfifo pipe",
    );
    for holder in ["n2", "n3"] {
        farm.say(&format!(
            "(head -c 100000 > one; kill -9 $(cat farm/{holder}/pid); cat >> one) < pipe & \
             godwit cat grid:/two > pipe && wait $! && cmp one big; status=$?; \
             godwit farm demo --stop --dir farm && godwit farm demo --nodes 3 --dir farm && exit $status"
        ));
    }
    farm.say("godwit location set n3 grid:/ host=node3.example");
    let rows = farm.say("godwit farm hostfile --json grid:/big");
    assert!(
        rows.contains(r#"{"event":"host","fragment":1,"host":"node3.example","node":"n3"}"#),
        "{rows}"
    );
    farm.refused("godwit farm hostfile grid:/none", 4);
}

/// The node that serves the catalog forgets what an importer had begun that was killed.
#[test] //= FARM-100
fn killed_importer_leaves_no_parts() {
    let farm = Farm::new(2);
    let left = "find farm/*/export/.farm -type f";
    farm.say(&format!(
        "mkfifo pipe; sleep 1000 > pipe & writer=$!; godwit farm import --size 1500K - grid:/x < pipe & importer=$!; \
         head -c 3500000 /dev/zero > pipe; until {left} | grep -q '[.]part$'; do :; done; kill -9 $importer $writer; \
         until [ $({left} | wc -l) = 0 ]; do :; done"
    ));
    farm.refused("godwit stat grid:/x", 4);
}
