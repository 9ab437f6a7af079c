//! Tasks of a farm that a command or Slurm starts.
#![allow(clippy::unwrap_used)]

mod common;

use common::{farm::Farm, peers::Peer};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt};

/// Returns a farm of two nodes, and four fragments of lines.
fn farm() -> (Farm, String) {
    let farm = Farm::new(2);
    let lines: String = (0..9_000).map(|at| format!("event {at}\n")).collect();
    fs::write(farm.scratch.join("text"), &lines).unwrap();
    farm.say("godwit farm import --lines --parts 4 text grid:/t");
    (farm, lines)
}

/// Runs a task as the user of the node that is meant.
const COMMAND: &str = "--by '. farm/{host}/env; godwit farm task'";

#[test] //= FARM-98
fn commands_start_tasks_beside_fragments() {
    let (farm, lines) = farm();
    let run = |words: &str| format!("godwit farm run {COMMAND} {words}");
    farm.say(&run("--ordered grid:/t -- cat {in} | cmp - text"));
    let own = farm.say("godwit farm run --ordered grid:/t -- grep -c 7 {in}");
    assert_eq!(farm.say(&run("--ordered grid:/t -- grep -c 7 {in}")), own);
    let why = farm.refused(&run("grid:/t -- sh -c 'echo oh >&2; exit 3'"), 3);
    assert!(
        why.contains("status 3 at n2") && why.contains("oh\n"),
        "{why}"
    );
    let why = farm.refused(&run("grid:/t -- no-such-program"), 2);
    assert!(why.contains("cannot run no-such-program here"), "{why}");
    farm.say(&run("--out grid:/o grid:/t -- sort -r {in} -o {out}"));
    let sorted = farm.say("godwit cat grid:/o");
    assert_eq!(sorted.len(), lines.len());
    // A program of this machine lies at the node before.
    farm.say("printf '#!/bin/sh\\ngrep -c 7 $1\\n' > tool; chmod +x tool");
    assert_eq!(farm.say(&run("--ordered grid:/t -- ./tool {in}")), own);
    let told = farm.say("godwit history --json grid:/o");
    let told: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert!(
        told["engine"].as_str().unwrap().contains("{host}"),
        "{told}"
    );
    let left = farm.say("find farm/*/export/.farm/tasks -mindepth 1 | wc -l");
    assert_eq!(left, "0\n");
}

#[test]
fn commands_that_start_nothing_name_host() {
    let (farm, _) = farm();
    let said = farm.shell("godwit farm run --by 'echo no such {host} >&2; exit 9' grid:/t -- true");
    assert_eq!(said.status, Some(5), "{said}");
    assert!(said.stderr.contains("no such n2"), "{said}");
    assert!(said.stderr.contains("exit status: 9"), "{said}");
    let why = farm.refused("godwit farm run --by 'echo {host}' grid:/t -- true", 1);
    assert!(
        why.contains("something else than godwit farm task"),
        "{why}"
    );
    farm.refused("godwit farm run --by 'ssh node' grid:/t -- true", 2);
    farm.refused("echo nonsense | godwit farm task", 2);
    // The attribute of the location says what the host is called.
    farm.say("godwit location set n2 grid:/ 'host=n2;reboot'");
    let why = farm.refused(&format!("godwit farm run {COMMAND} grid:/t -- true"), 2);
    assert!(why.contains("no name of a host"), "{why}");
}

/// A result that the node does not have is not published: the task is run again at another node, with a copy.
#[test]
fn lost_results_do_not_count() {
    let (farm, _) = farm();
    let command = "--by '. farm/{host}/env; [ {host} != n1 ] || exec godwit farm task; godwit farm task > said.$$; \
        find farm/n2/export -name \"#*\" -newer mark -delete; cat said.$$'";
    let rows = farm.say(&format!(
        "touch mark; godwit farm run {command} --json --out grid:/o grid:/t -- cp {{in}} {{out}}"
    ));
    assert_eq!(rows.matches("\"how\":\"copied\"").count(), 2, "{rows}");
    farm.say("godwit cat grid:/o | cmp - text");
}

#[test]
fn slurm_starts_tasks_where_fragments_lie() {
    let (farm, _) = farm();
    let prolog = farm.scratch.join("prolog");
    let above = farm.scratch.path().display();
    let text = format!("#!/bin/sh\nsed \"s/'//g\" {above}/farm/$SLURMD_NODENAME/env\n");
    fs::write(&prolog, text).unwrap();
    fs::set_permissions(&prolog, fs::Permissions::from_mode(0o755)).unwrap();
    let options = ["2", prolog.to_str().unwrap()];
    let Some(slurm) = Peer::start_by("slurm-up", farm.scratch.path(), &options) else {
        return;
    };
    let conf = format!(
        "export SLURM_CONF={}",
        slurm.r#where.join("slurm.conf").display()
    );
    let by = |words: &str| format!("{conf}; {words}");
    let own = farm.say("godwit farm run --ordered grid:/t -- grep -c 7 {in}");
    let run = "godwit farm run --by slurm";
    let counted = format!("{run} --ordered grid:/t -- grep -c 7 {{in}}");
    assert_eq!(farm.say(&by(&counted)), own);
    farm.say(&by(&format!(
        "{run} --ordered --out grid:/o grid:/t -- cp {{in}} {{out}}"
    )));
    farm.say("godwit cat grid:/o | cmp - text");
    assert!(
        farm.say("godwit history --json grid:/o")
            .contains("\"engine\":\"slurm\"")
    );
    farm.refused(&by(&format!("{run} grid:/t -- sh -c 'exit 3'")), 3);
    // Within an allocation, steps of it.
    assert_eq!(farm.say(&by(&format!("salloc -Q -N2 {counted}"))), own);
    // A node that is down gets no task: the fragment is copied.
    let pid = slurm.r#where.join("slurmd.n2.slurm-pid");
    farm.say(&format!("kill -9 $(cat {})", pid.display()));
    let rows = farm.say(&by(&format!(
        "{run} --json --out grid:/p grid:/t -- cp {{in}} {{out}}"
    )));
    assert_eq!(rows.matches("\"how\":\"copied\"").count(), 2, "{rows}");
    farm.say("godwit cat grid:/p | cmp - text");
    farm.say(&by("scontrol update nodename=n1 state=drain reason=full"));
    let said = farm.shell(&by(&counted));
    assert_ne!(said.status, Some(0), "{said}");
    let why = "Slurm says that it is drained; see: sinfo -R -n n1";
    assert!(said.stderr.contains(why), "{said}");
    // Nothing waits for a node any more.
    let queued = farm.say(&by("squeue -h -t PD | wc -l"));
    assert_eq!(queued, "0\n");
    let why = farm.refused(
        &format!("mkdir only && ln -s $(command -v godwit) only && PATH=$PWD/only && {counted}"),
        1,
    );
    assert!(why.contains("slurm-client"), "{why}");
}
