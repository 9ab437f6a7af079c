//! Programs on other nodes, with files from anywhere: real nodes on this machine.
#![allow(clippy::unwrap_used)]

mod common;

use common::farm::Farm;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

/// Two nodes, n1 and n2.
fn farm(before: &str) -> Farm {
    Farm::with(before, "--nodes 2")
}

impl Farm {
    #[track_caller]
    fn refused_for(&self, line: &str, status: i32, words: &[&str]) {
        let said = self.shell(line);
        assert_eq!(said.status, Some(status), "{line}: {said}");
        for word in words {
            assert!(
                said.stderr.contains(word),
                "{line}: no {word} in {}",
                said.stderr
            );
        }
    }

    fn export(&self, node: &str, name: &str) -> std::path::PathBuf {
        self.scratch.join(format!("farm/{node}/export/{name}"))
    }

    #[track_caller]
    fn read(&self, node: &str, name: &str) -> String {
        let path = self.export(node, name);
        fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
    }

    /// Counts what the directories of programs still hold.
    fn left(&self, node: &str) -> usize {
        let tasks = fs::read_dir(self.export(node, ".farm/tasks"));
        tasks.map_or(0, Iterator::count)
    }
}

#[test] //= FARM-98 GASS-74
fn programs_run_with_files_from_anywhere() {
    let farm = farm("");
    let counted = farm.say(
        "godwit run --on n1,n2 -n 3 --ordered -- sh -c 'echo $GODWIT_FRAGMENT/$GODWIT_FRAGMENTS; pwd'",
    );
    let counted: Vec<_> = counted.lines().collect();
    for (at, node) in ["n1", "n2", "n1"].iter().enumerate() {
        assert_eq!(counted[2 * at], format!("{at}/3"));
        let place = format!("/farm/{node}/export/.farm/tasks/");
        assert!(counted[2 * at + 1].contains(&place), "{counted:?}");
    }
    // A program of this machine goes there once, inputs come from here and from n1.
    let tool = "#!/bin/sh\ncat \"$@\" - > o; ls; echo err >&2; exit 0\n";
    fs::write(farm.scratch.join("tool"), tool).unwrap();
    fs::write(farm.scratch.join("a"), "here\n").unwrap();
    fs::write(farm.scratch.join("in"), "input\n").unwrap();
    fs::write(farm.export("n1", "b"), "there\n").unwrap();
    farm.say("chmod +x tool");
    let line = "godwit run --on n2 -n 2 --ordered --in a --in godwit://n1/b=c --stdin in --env LANG=C \
        --stderr err --out 'o=godwit://n1/o${GODWIT_FRAGMENT}' -- ./tool a c";
    assert_eq!(farm.say(line), "a\nc\no\na\nc\no\n");
    let push = "(. farm/n2/env; godwit push godwit://n1/o0; godwit push godwit://n1/o1)";
    farm.say(push);
    for output in ["o0", "o1"] {
        assert_eq!(farm.read("n1", output), "here\nthere\ninput\n");
    }
    assert_eq!(
        fs::read_to_string(farm.scratch.join("err")).unwrap(),
        "err\nerr\n"
    );
    let kept = fs::read_dir(farm.export("n2", ".farm/bin")).unwrap();
    let kept: Vec<_> = kept.map(|entry| entry.unwrap()).collect();
    assert_eq!(kept.len(), 1);
    let kept = kept[0].metadata().unwrap();
    assert_eq!(kept.permissions().mode() & 0o111, 0o111);
    farm.say("godwit run --on n2 --stdin a --out o=back -- ./tool && grep -q here back");
    let again = fs::read_dir(farm.export("n2", ".farm/bin")).unwrap().next();
    assert_eq!(
        again.unwrap().unwrap().metadata().unwrap().ino(),
        kept.ino()
    );
    // A program, an input and an output by URL; lines go to the log of n1.
    let arch = std::env::consts::ARCH;
    fs::copy(
        farm.scratch.join("tool"),
        farm.export("n1", &format!("tool-{arch}")),
    )
    .unwrap();
    farm.say(
        "godwit run --on n2 -n 2 --stdin godwit://n1/b --stdout godwit://n1/log \
        -- 'godwit://n1/tool-${GODWIT_ARCH}'",
    );
    farm.say("(. farm/n2/env; godwit push godwit://n1/log)");
    assert_eq!(
        farm.read("n1", "log"),
        format!("o\ntool-{arch}\n").repeat(2)
    );
    // Nothing of the jobs is left, and no tag keeps what they read.
    assert_eq!((farm.left("n1"), farm.left("n2")), (0, 0));
    let rows = farm.say("(. farm/n2/env; godwit --json cache ls)");
    assert!(
        rows.contains("godwit://n1/b") && !rows.contains("godwit-"),
        "{rows}"
    );
}

#[test]
fn outputs_arrive_though_submitter_is_gone() {
    let farm = farm("");
    farm.say("kill $(cat farm/n1/pid); while kill -0 $(cat farm/n1/pid); do :; done");
    let line =
        ". farm/n2/env; godwit run --on n2 --out o=godwit://n1/late -- sh -c 'echo late > o'";
    farm.say(line);
    farm.say("godwit farm demo --stop --dir farm && godwit farm demo --nodes 2 --dir farm");
    farm.say("(. farm/n2/env; godwit push godwit://n1/late)");
    assert_eq!(farm.read("n1", "late"), "late\n");
}

#[test] //= GASS-74
fn lines_of_many_processes_stay_whole() {
    let farm = farm("");
    let script = "for i in $(seq 100); do echo \"$GODWIT_FRAGMENT $i of the lines\"; done; \
        printf \"%s last\" $GODWIT_FRAGMENT";
    let rows = farm.say(&format!("godwit run --on n1,n2 -n 40 -- sh -c '{script}'"));
    let mut next = vec![1; 40];
    for row in rows.lines() {
        let (process, rest) = row.split_once(' ').unwrap();
        let process: usize = process.parse().unwrap();
        let wanted = match next[process] {
            101 => "last".to_owned(),
            at => format!("{at} of the lines"),
        };
        assert_eq!(rest, wanted);
        next[process] += 1;
    }
    assert_eq!(next, [102; 40]);
    let long = farm.say("godwit run --on n1,n2 -- sh -c 'head -c 300000 /dev/zero | tr \"\\0\" $GODWIT_FRAGMENT; echo'");
    let mut long: Vec<_> = long.lines().collect();
    long.sort_unstable();
    assert_eq!(long, ["0".repeat(300_000), "1".repeat(300_000)]);
}

#[test] //= FARM-98
fn programs_end_when_nobody_listens() {
    let farm = farm("GODWIT_LIMITS_STALL_SECONDS=2");
    let script = "echo $$ > $0/process; exec yes";
    for signal in ["STOP", "KILL"] {
        farm.say(&format!(
            "rm -f process; godwit run --on n2 -- sh -c '{script}' $PWD > out & \
            client=$!; until [ -s process ]; do :; done; kill -{signal} $client; \
            while kill -0 $(cat process) 2> gone; do :; done; kill -KILL $client || true"
        ));
    }
}

#[test] //= GASS-74
fn wrong_words_name_thing_and_cause() {
    let farm = farm("");
    fs::write(farm.scratch.join("text"), "text\n").unwrap();
    for (line, status, words) in [
        (
            "--on n2 -- no-such-program",
            2,
            &["no-such-program on godwit://n2/", "here"][..],
        ),
        ("--on nowhere -- true", 1, &["nowhere", "godwit peers"]),
        ("--on n2 -- ./missing", 4, &["missing"]),
        ("--on n2 -- ./text", 2, &["chmod +x"]),
        ("--on n2 --in missing -- true", 4, &["missing"]),
        (
            "--on n2 --in godwit://n1/missing -- true",
            4,
            &["n2", "godwit://n1/missing"],
        ),
        (
            "--on n2 --in text --in text -- true",
            2,
            &["two files are called text", "--in URL=NAME"],
        ),
        ("--on n2 --in text=.. -- true", 2, &["name of a file"]),
        ("--on n2 --out ../o=o -- true", 2, &["../o"]),
        (
            "--on n2 --out o=godwit://n1/o -- true",
            4,
            &["n2", "wrote no file o"],
        ),
        (
            "--on n1,n2 --out o=o -- true",
            2,
            &["2 processes", "${GODWIT_FRAGMENT}"],
        ),
        (
            "--on n2 -- 'godwit://n1/${NOPE}'",
            2,
            &["${NOPE}", "${GODWIT_ARCH}"],
        ),
        (
            "--on n2 -- godwit://n1/missing",
            4,
            &["n2", "godwit://n1/missing"],
        ),
        ("--on n2 --env x -- true", 2, &["NAME=VALUE"]),
        ("--on n2,n2 -- true", 2, &["n2 twice"]),
        ("--on n2", 2, &["PROGRAM"]),
        ("--on n2 -- sh -c 'kill -9 $$'", 137, &["status 137"]),
        (
            "--on n1,n2 -n 3 -- sh -c 'exit $((GODWIT_FRAGMENT + 3))'",
            5,
            &["n1/, process 2", "status 5"],
        ),
    ] {
        farm.refused_for(&format!("godwit run {line}"), status, words);
    }
    // One that runs nothing for others, and a program that is another one by now.
    farm.say("printf '#!/bin/sh\\ntrue\\n' > tool; chmod +x tool; godwit run --on n2 -- ./tool");
    farm.say("for kept in farm/n2/export/.farm/bin/*; do echo false >> $kept; done");
    farm.refused_for("godwit run --on n2 -- ./tool", 12, &["n2", ".farm/bin/"]);
    assert_eq!(farm.left("n2"), 0);
}
