//! The node of this machine: found and started once, read through, put to, and its pending puts.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    Machine as Peer, Node, Said, Scratch, assert_same, programs::Machine, run, skip, wait_until,
};
use serde_json::Value;
use std::{
    fs,
    io::Write,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

#[test] //= GASS-54 GASS-69 KANGAROO-58
fn concurrent_programs_start_one_node() {
    let machine = Machine::new();
    let started: Vec<Child> = (0..32)
        .map(|_| {
            let mut command = machine.command(&["--json", "queue"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in started {
        let out = child.wait_with_output().unwrap();
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{words}\n{}", machine.log());
    }
    let log = machine.log();
    assert_eq!(log.matches(" listen").count(), 1, "{log}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&machine.socket), 0o600);
    assert_eq!(mode(machine.socket.parent().unwrap()), 0o700);
    assert_eq!(mode(&machine.state), 0o700);
}

#[test] //= GASS-16 GASS-71 KANGAROO-50
fn cached_file_survives_outage() {
    let machine = Machine::new();
    let export = machine.scratch.dir("export");
    let source = machine.scratch.file("export/run7", 3_000_001);
    let node = Node::start(&export);
    let url = node.url("run7");
    let readers: Vec<Child> = (0..8)
        .map(|number| {
            let mut command = machine.command(&["get", &url, &format!("copy{number}")]);
            command.spawn().unwrap()
        })
        .collect();
    for (number, mut reader) in readers.into_iter().enumerate() {
        assert!(reader.wait().unwrap().success());
        assert_same(&source, &machine.scratch.join(format!("copy{number}")));
    }
    let (status, lines) = machine.json(&["cache", "stat", &url]);
    assert_eq!(
        (status, &lines[0]["transfers"]),
        (Some(0), &1.into()),
        "{lines:?}"
    );
    assert_eq!(lines[0]["size"], 3_000_001);
    let printed = machine.says(&["get", &url, "-"]).ok().stdout;
    assert_eq!(printed, fs::read(&source).unwrap());
    let (status, lines) = machine.json(&["get", &node.url("nosuch")]);
    assert_eq!((status, &lines[0]["errno"]), (Some(4), &"ENOENT".into()));
    assert!(!machine.scratch.join("nosuch").exists());
}

#[test] //= GASS-13 GASS-71 KANGAROO-4 KANGAROO-5 KANGAROO-11 KANGAROO-33 KANGAROO-64 delivery#what-a-failure-costs
fn put_survives_outage() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    let source = machine.scratch.file("result", 2_500_000);
    let url = "godwit://lab/result";
    lab.kill();
    machine.says(&["put", "result", url]).ok();
    machine.says(&["commit", url]).ok();
    let printed = machine.says(&["get", url, "-"]).ok().stdout;
    assert_eq!(printed, fs::read(&source).unwrap(), "not what was put");
    let (status, lines) = machine.json(&["push", url, "--timeout", "1"]);
    let error = lines.iter().find(|line| line["event"] == "error");
    assert_eq!(
        (status, &error.unwrap()["errno"]),
        (Some(5), &"ETIMEDOUT".into()),
        "{lines:?}"
    );
    let (_, queue) = machine.json(&["queue"]);
    assert_eq!(queue.len(), 2, "{queue:?}");
    assert_eq!(
        (&queue[0]["url"], &queue[0]["committed"]),
        (&url.into(), &true.into())
    );
    assert_eq!(queue[0]["size"], 2_500_000);
    assert!(
        queue[1]["notes"][0]
            .as_str()
            .unwrap()
            .contains("node install")
    );
    // The node is killed, and the next program starts another, which goes on.
    machine.kill();
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&source, &far.join("data/result"));
    let (_, queue) = machine.json(&["queue"]);
    assert_eq!(queue.len(), 1, "{queue:?}");
}

#[test] //= KANGAROO-4 KANGAROO-19 delivery#what-a-failure-costs depot#commit-and-push
fn killed_push_still_delivers() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    lab.kill();
    machine.says(&["put", "f", "godwit://lab/after"]).ok();
    let mut pushing = machine.command(&["push"]).spawn().unwrap();
    let talking = || {
        let (_, lines) = machine.json(&["node", "status"]);
        lines.last().unwrap()["connections"].as_u64().unwrap()
    };
    wait_until("it is waited for", || talking() == 2);
    pushing.kill().unwrap();
    pushing.wait().unwrap();
    wait_until("no client waits", || talking() == 1);
    lab.start(&[]);
    wait_until("it is delivered", || far.join("data/after").exists());
}

#[test] //= KANGAROO-32 KANGAROO-50 depot#writing
fn broken_pipe_puts_nothing() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let export = far.join("data");
    let mut command = machine.command(&["put", "-", "godwit://lab/log"]);
    let mut putting = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = putting.stdin.take().unwrap();
    for number in 0..1000 {
        writeln!(input, "line {number}").unwrap();
    }
    drop(input);
    assert!(putting.wait().unwrap().success());
    machine.says(&["push", "--timeout", "30"]).ok();
    let text = fs::read_to_string(export.join("log")).unwrap();
    assert_eq!(
        (text.lines().count(), text.lines().last()),
        (1000, Some("line 999"))
    );
    // A writer that is killed has put nothing.
    let mut command = machine.command(&["put", "-", "godwit://lab/half"]);
    let mut putting = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = putting.stdin.take().unwrap();
    input.write_all(&[7; 3 << 20]).unwrap();
    wait_until("it is being written", || {
        let (_, lines) = machine.json(&["node", "status"]);
        lines.last().unwrap()["connections"].as_u64() > Some(1)
    });
    putting.kill().unwrap();
    putting.wait().unwrap();
    drop(input);
    machine.says(&["push", "--timeout", "30"]).ok();
    assert!(!export.join("half").exists());
}

#[test] //= KANGAROO-3 depot#commit-and-push
fn sessions_are_pushed_apart() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let source = machine.scratch.file("f", 10_000);
    // The rest goes to a server that never answers.
    machine
        .says(&["put", "f", "godwit://localhost:9/never"])
        .ok();
    let with = |args: &[&str]| {
        let mut command = machine.command(args);
        Said::of(command.env("GODWIT_SESSION", "night"))
    };
    with(&["put", "f", "godwit://lab/mine"]).ok();
    with(&["commit"]).ok();
    with(&["push", "--timeout", "30"]).ok();
    assert_same(&source, &far.join("data/mine"));
    assert_eq!(machine.says(&["push", "--timeout", "1"]).status, Some(5));
    let (_, queue) = machine.json(&["queue"]);
    assert_eq!(queue[0]["url"], "godwit://localhost:9/never");
}

#[test] //= depot#commit-and-push
fn session_push_includes_its_lines() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    lab.kill();
    let of = |session: &str, args: &[&str]| {
        let mut command = machine.command(args);
        command.env("GODWIT_SESSION", session);
        command
    };
    let tee = ["tee", "--wait", "commit", "godwit://lab/log"];
    let mut tee = Talking::begin(of("night", &tee));
    tee.say("one");
    assert_eq!(tee.end(), Some(0), "{}", tee.errors.text());
    let push = |session, limit| Said::of(&mut of(session, &["push", "--timeout", limit]));
    assert_eq!(push("night", "0.5").status, Some(5));
    push("day", "0.5").ok();
    lab.start(&[]);
    push("night", "30").ok();
    assert_eq!(fs::read(far.join("data/log")).unwrap(), b"one\n");
}

/// Puts a file as a program with this environment does, and looks for it at its target, without a push. Returns the
/// answer of a commit.
fn deliver_unasked(variable: impl FnOnce(&Machine) -> (&str, PathBuf)) -> String {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let source = machine.scratch.file("f", 1_000_000);
    let (name, value) = variable(&machine);
    let mut command = machine.command(&["put", "f", "godwit://lab/out"]);
    Said::of(command.env(name, &value)).ok();
    assert_same(&source, &far.join("data/out"));
    let mut command = machine.command(&["--json", "commit"]);
    let said = Said::of(command.env(name, &value)).ok();
    String::from_utf8_lossy(&said.stdout).into_owned()
}

#[test] //= KANGAROO-3 KANGAROO-15 depot#commit-and-push
fn job_node_delivers_before_commit() {
    let said = deliver_unasked(|_| ("SLURM_JOB_ID", "77".into()));
    assert!(said.contains("ends with the job"), "{said}");
}

#[test] //= depot#commit-and-push
fn job_directory_node_delivers_first() {
    let said = deliver_unasked(|machine| {
        let folder = machine.state.parent().unwrap();
        ("_CONDOR_SCRATCH_DIR", folder.into())
    });
    assert!(said.contains("with the job"), "{said}");
}

#[test] //= depot#commit-and-push
fn job_tmp_node_delivers_first() {
    let said = deliver_unasked(|machine| {
        let folder = machine.state.parent().unwrap();
        ("SLURM_TMPDIR", folder.into())
    });
    assert!(said.contains("with the job"), "{said}");
}

#[test] //= depot#commit-and-push
fn job_commit_outlives_its_disk() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let source = machine.scratch.file("f", 3_000_000);
    let in_job = |args: &[&str]| Said::of(machine.command(args).env("SLURM_JOB_ID", "77")).ok();
    in_job(&["put", "f", "godwit://lab/out"]);
    in_job(&["commit", "godwit://lab/out"]);
    machine.kill();
    fs::remove_dir_all(&machine.state).unwrap();
    assert_same(&source, &far.join("data/out"));
}

#[test]
fn late_job_delivery_is_told() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    lab.kill();
    machine.scratch.file("f", 10);
    let mut put = machine.command(&["put", "--timeout", "1", "f", "godwit://lab/f"]);
    let late = Said::of(put.env("SLURM_JOB_ID", "77"));
    assert_eq!(late.status, Some(5), "{late}");
    assert!(!late.stderr.contains("room"), "{late}");
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
}

#[test]
fn commit_warns_of_missing_unit() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    lab.kill();
    machine.says(&["put", "f", "godwit://lab/f"]).ok();
    let (status, lines) = machine.json(&["commit"]);
    let summary = lines.last().unwrap();
    assert_eq!((status, &summary["event"]), (Some(0), &"summary".into()));
    assert_eq!(
        (&summary["verb"], &summary["files"]),
        (&"commit".into(), &1.into())
    );
    let note = summary["notes"][0].as_str().unwrap_or_default();
    assert!(note.contains("node install"), "{summary}");
}

#[test]
fn node_log_tells_holds_once() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    fs::write(far.join("data/d"), "a file").unwrap();
    let events = machine.scratch.join("events");
    let tells = format!("echo \"$GODWIT_EVENT\" >>'{}'", events.display());
    let told = |kind: &str| -> Vec<Value> {
        let told = fs::read_to_string(&events).unwrap_or_default();
        let told = told
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        told.filter(|event: &Value| event["kind"] == kind).collect()
    };
    lab.kill();
    let mut first = machine.command(&["put", "f", "godwit://lab/late"]);
    first
        .env("GODWIT_ON_FAULT", &tells)
        .env("GODWIT_FAULT_AFTER", "1s");
    Said::of(&mut first).ok();
    wait_until("the log tells what waits", || !told("waiting").is_empty());
    let waiting = &told("waiting")[0];
    assert_eq!(waiting["url"], "godwit://lab/late");
    assert_eq!(waiting["owed_bytes"], 1000);
    assert!(waiting["age_s"].as_u64() >= Some(1), "{waiting}");
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
    machine.says(&["put", "f", "godwit://lab/d/f"]).ok();
    wait_until("the log tells what is on hold", || !told("held").is_empty());
    assert_eq!(told("held")[0]["url"], "godwit://lab/d/f");
    assert_eq!((told("waiting").len(), told("held").len()), (1, 1));
}

#[test]
fn decisions_print_json() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    fs::write(far.join("data/d"), "a file").unwrap();
    let summary = |args: &[&str]| {
        let (status, lines) = machine.json(args);
        let summary = lines.last().unwrap().clone();
        let told = (status, &summary["event"], &summary["verb"]);
        assert_eq!(
            told,
            (Some(0), &"summary".into(), &args[0].into()),
            "{lines:?}"
        );
        assert_eq!(
            (&summary["status"], &summary["exit_code"]),
            (&"ok".into(), &0.into())
        );
        summary
    };
    let note = |summary: &Value| summary["notes"].to_string();
    machine.says(&["put", "f", "godwit://lab/d/f"]).ok();
    assert_ne!(machine.says(&["push", "--timeout", "30"]).status, Some(0));
    let retried = summary(&["retry", "godwit://lab/d/f"]);
    assert!(note(&retried).contains("is tried again"), "{retried}");
    assert_ne!(machine.says(&["push", "--timeout", "30"]).status, Some(0));
    let moved = summary(&["redirect", "godwit://lab/d/f", "godwit://lab/g"]);
    assert!(note(&moved).contains("goes to godwit://lab/g"), "{moved}");
    machine.says(&["push", "--timeout", "30"]).ok();
    assert!(far.join("data/g").exists());
    // Another program has put the name by the time the file arrives.
    lab.kill();
    machine.says(&["put", "f", "--new", "godwit://lab/h"]).ok();
    fs::write(far.join("data/h"), "other").unwrap();
    lab.start(&[]);
    assert_ne!(machine.says(&["push", "--timeout", "30"]).status, Some(0));
    let released = summary(&["release", "godwit://lab/h"]);
    assert!(
        note(&released).contains("goes over whatever is there"),
        "{released}"
    );
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_eq!(fs::read(far.join("data/h")).unwrap().len(), 1000);
}

#[test]
fn append_json_ends_with_summary() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let mut command = machine.command(&["--json", "tee", "godwit://lab/log"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tee = command.spawn().unwrap();
    tee.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let out = tee.wait_with_output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let summary: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&summary["event"], &summary["verb"]),
        (&"summary".into(), &"tee".into())
    );
    assert_eq!(summary["bytes"], 8, "{text}");
    assert_eq!(fs::read(far.join("data/log")).unwrap(), b"one\ntwo\n");
}

#[test]
fn second_or_newer_node_is_refused() {
    let machine = Machine::new();
    machine.says(&["queue"]).ok();
    let second = machine.says(&["node", "--local"]);
    let words = &second.stderr;
    assert!(
        second.status != Some(0) && words.contains("listens at") && words.contains("already"),
        "{second}"
    );
    let mut elsewhere = machine.command(&["--json", "node", "--local"]);
    elsewhere.env("GODWIT_SOCKET", machine.scratch.join("run/other"));
    let other = Said::of(&mut elsewhere);
    let words = String::from_utf8_lossy(&other.stdout).into_owned();
    assert!(words.contains("EBUSY"), "one state, two nodes: {other}");
    let process = machine.process().unwrap();
    assert!(words.contains(&format!("kill {process}")), "{other}");
    machine.says(&["node", "stop"]).ok();
    assert_eq!(machine.process(), None);

    let mark = machine.state.join("depot/depot");
    fs::write(&mark, "godwit depot 99\n").unwrap();
    let (status, lines) = machine.json(&["queue"]);
    assert_eq!(
        (status, &lines[0]["errno"]),
        (Some(1), &"EMEDIUMTYPE".into()),
        "{lines:?}"
    );
    assert!(lines[0]["message"].as_str().unwrap().contains("newer"));
    assert_eq!(fs::read_to_string(&mark).unwrap(), "godwit depot 99\n");
}

#[test] //= delivery#what-a-failure-costs
fn removed_socket_is_restored() {
    let machine = Machine::new();
    machine.says(&["queue"]).ok();
    let process = machine.process();
    let folder = machine.socket.parent().unwrap();
    for taken in ["its socket", "all there is", "another"] {
        match taken {
            "its socket" => fs::remove_file(&machine.socket).unwrap(),
            "all there is" => fs::remove_dir_all(folder).unwrap(),
            _ => {
                fs::remove_file(&machine.socket).unwrap();
                drop(UnixListener::bind(&machine.socket).unwrap());
            }
        }
        machine.says(&["queue"]).ok();
        assert_eq!(machine.process(), process, "{taken}\n{}", machine.log());
    }
    // A stopped process that notices nothing can still be ended.
    let process = process.unwrap().to_string();
    let signal = |name: &str| run(5, "kill", [name, &process]).ok();
    signal("-STOP");
    fs::remove_file(&machine.socket).unwrap();
    let said = machine.says(&["queue"]);
    signal("-CONT");
    let words = [&*format!("process {process}"), &format!("kill {process}")];
    assert!(
        said.status == Some(5) && words.iter().all(|words| said.stderr.contains(words)),
        "{said}"
    );
    machine.says(&["queue"]).ok();
    assert_eq!(machine.process().unwrap().to_string(), process);
}

#[test] //= KANGAROO-19
fn idle_node_ends_unless_pending() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    let with = |args: &[&str]| {
        let mut command = machine.command(args);
        Said::of(command.env("GODWIT_LOCAL_IDLE", "0.3"))
    };
    with(&["queue"]).ok();
    let gone = || !machine.socket.exists();
    wait_until("it ends", gone);
    machine.scratch.file("f", 1000);
    lab.kill();
    with(&["put", "f", "godwit://lab/late"]).ok();
    std::thread::sleep(Duration::from_secs(2)); // no event tells that nothing happens
    assert!(!gone(), "{}", machine.log());
    lab.start(&[]);
    wait_until("it delivers and ends", gone);
    assert_same(&machine.scratch.join("f"), &far.join("data/late"));
}

#[test]
fn node_killed_early_is_restarted() {
    let machine = Machine::new();
    let program = machine.scratch.join("program");
    let killed = |how_often: &str| {
        let once = machine.scratch.join("once");
        let (once, godwit) = (once.display(), env!("CARGO_BIN_EXE_godwit"));
        let text =
            format!("#!/bin/sh\n{how_often} '{once}' && kill -9 $$\nexec '{godwit}' \"$@\"\n");
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = machine.command(&["--json", "queue"]);
        command.env("GODWIT_BIN", &program);
        Said::of(&mut command)
    };
    let ever = killed("echo >>");
    assert_eq!(ever.status, Some(5), "{ever}");
    let text = String::from_utf8(ever.stdout).unwrap();
    assert!(text.contains("ended at once"), "{text}");
    fs::remove_file(machine.scratch.join("once")).unwrap();
    let once = killed("mkdir");
    assert_eq!(once.status, Some(0), "{once}");
}

#[test]
fn failed_start_quotes_the_program() {
    let machine = Machine::new();
    let mut command = machine.command(&["--json", "queue"]);
    command.env("GODWIT_BIN", "/no/such/godwit");
    let said = Said::of(&mut command);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        text.contains("ENOTCONN")
            && text.contains("/no/such/godwit")
            && text.contains("GODWIT_BIN"),
        "{text}"
    );
    let mut command = machine.command(&["--json", "queue"]);
    command.env("GODWIT_BIN", "/bin/false");
    let said = Said::of(&mut command);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.contains("ended at once"), "{text}");
    let mut command = machine.command(&["--json", "queue"]);
    command.env("GODWIT_LOCAL_IDLE", "soon");
    let said = Said::of(&mut command);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        text.contains("EINVAL") && text.contains("GODWIT_LOCAL_IDLE"),
        "{text}"
    );
    let mut command = machine.command(&["--json", "queue"]);
    command.env("GODWIT_SCRUB", "sometimes");
    let said = Said::of(&mut command);
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(
        text.contains("EINVAL") && text.contains("GODWIT_SCRUB"),
        "{text}"
    );
}

#[test] //= GASS-60
fn hostile_urls_are_refused_by_reason() {
    let machine = Machine::new();
    let long = format!("godwit://localhost:9/{}", "x".repeat(10_000));
    for (url, errno) in [
        (&*long, Some("ENAMETOOLONG")),
        ("ftp://127.0.0.1:9/../etc/passwd", None),
        ("ftp://127.0.0.1:9/%zz", None),
        ("/godwit/ftp:127.0.0.1:9/a/../../b", None),
    ] {
        let (status, lines) = machine.json(&["get", url, "-"]);
        assert_eq!(status, Some(2), "{url}");
        if let Some(errno) = errno {
            assert_eq!(lines[0]["errno"], errno);
        }
        let (status, _) = machine.json(&["put", "/dev/null", url]);
        assert_eq!(status, Some(2), "{url}");
    }
}

#[test]
fn get_writes_into_pipe() {
    let machine = Machine::new();
    let bytes = machine.scratch.file("there", 100_000);
    let url = format!("file://{}", machine.scratch.join("there").display());
    let pipe = machine.scratch.join("pipe");
    run(5, "mkfifo", [pipe.to_str().unwrap()]).ok();
    let mut getting = machine.command(&["get", &url, "pipe"]).spawn().unwrap();
    let came = run(30, "cat", [pipe.to_str().unwrap()]).ok().stdout;
    assert!(
        came == fs::read(&bytes).unwrap(),
        "{} bytes came",
        came.len()
    );
    assert!(getting.wait().unwrap().success());
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test] //= GASS-38 GASS-49 GASS-57 GASS-58 GASS-72 depot#tags-and-filling
fn staged_file_stays_under_tag() {
    let machine = Machine::new();
    let export = machine.scratch.dir("export");
    machine.scratch.file("export/a", 100_000);
    let node = Node::start(&export);
    let url = node.url("a");
    machine.says(&["stage", "--tag", "night", &url]).ok();
    let listed = |prefix: &str| machine.json(&["cache", "ls", prefix]).1;
    let rows = listed("");
    assert_eq!(
        (rows.len(), &rows[0]["tags"][0], &rows[0]["transfers"]),
        (2, &"night".into(), &1.into()),
        "{rows:?}"
    );
    assert_eq!(listed("godwit://").len(), 1);
    let why = String::from_utf8(machine.says(&["cache", "why", &url]).ok().stdout).unwrap();
    assert!(why.contains("the tag night"), "{why}");
    let (status, lines) = machine.json(&["cache", "rm", "--tag", "day", &url]);
    assert_eq!((status, &lines[0]["errno"]), (Some(4), &"ENODATA".into()));
    let (_, lines) = machine.json(&["cache", "clean", "night"]);
    assert_eq!(lines[0]["files"], 1);
    let (_, lines) = machine.json(&["cache", "df"]);
    assert_eq!(
        (&lines[0]["files"], &lines[0]["kept_bytes"]),
        (&1.into(), &0.into())
    );
    let (status, lines) = machine.json(&["cache", "verify"]);
    assert_eq!((status, &lines[0]["status"]), (Some(0), &"whole".into()));
    machine.says(&["cache", "rm", &url]).ok();
    assert_eq!(listed("").len(), 1);
    assert_eq!(machine.says(&["cache", "stat", &url]).status, Some(4));
    // A file that a job reads is kept for its other programs, once.
    for _ in 0..3 {
        let mut command = machine.command(&["get", &url, "copy"]);
        Said::of(command.env("SLURM_JOB_ID", "77")).ok();
    }
    let rows = listed("");
    assert_eq!(rows[0]["tags"], serde_json::json!(["slurm-77"]), "{rows:?}");
}

#[test]
fn versions_of_one_file_count_once() {
    let machine = Machine::new();
    let export = machine.scratch.dir("export");
    machine.scratch.file("export/a", 1000);
    let node = Node::start(&export);
    let url = node.url("a");
    machine.says(&["stage", "--tag", "night", &url]).ok();
    machine.scratch.file("export/a", 2000);
    machine.says(&["get", "--fresh", &url, "copy"]).ok();
    let listed = String::from_utf8(machine.says(&["cache", "ls"]).stdout).unwrap();
    let is_old = |line: &&str| line.contains("(an old version)");
    assert_eq!(
        (
            listed.lines().count(),
            listed.lines().filter(is_old).count()
        ),
        (2, 1)
    );
    for what in ["ls", "df"] {
        let (_, lines) = machine.json(&["cache", what]);
        assert_eq!(lines.last().unwrap()["files"], 1, "{what}: {lines:?}");
    }
}

#[test] //= GASS-38 GASS-68 depot#reading
fn stage_obeys_its_rate() {
    let machine = Machine::new();
    let export = machine.scratch.dir("export");
    machine.scratch.file("export/a", 3 << 20);
    machine.scratch.file("export/b", 1000);
    let node = Node::start(&export);
    let list = format!("# of the run\n{}\n\n  {}  \n", node.url("a"), node.url("b"));
    fs::write(machine.scratch.join("inputs"), &list).unwrap();
    let began = Instant::now();
    let (status, lines) = machine.json(&["stage", "--rate", "2M/s", "--list", "inputs"]);
    assert_eq!(
        (status, &lines[0]["files"]),
        (Some(0), &2.into()),
        "{lines:?}"
    );
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "it came too fast"
    );
    let rows = machine.json(&["cache", "ls"]).1;
    let kept = |row: &Value| row["tags"] == serde_json::json!(["staged"]);
    assert!(rows[..2].iter().all(kept), "{rows:?}");
    assert_eq!(
        (&rows[0]["transfers"], &rows[1]["transfers"]),
        (&1.into(), &1.into())
    );
    // One failure among many stops no other.
    let list = format!("{}\n{}\n", node.url("none"), node.url("b"));
    fs::write(machine.scratch.join("more"), &list).unwrap();
    let (status, lines) = machine.json(&["stage", "--list", "more"]);
    assert_eq!(status, Some(4), "{lines:?}");
    let summary = lines.iter().find(|line| line["files"].is_u64());
    assert_eq!(summary.unwrap()["files"], 1, "{lines:?}");
    fs::write(machine.scratch.join("odd"), "# of the run\n\nnot one\n").unwrap();
    for (words, wanted, status) in [
        (
            &["stage", "--list", "nowhere"][..],
            "read which files to stage from nowhere",
            4,
        ),
        (
            &["stage", "--list", "odd"],
            "line 3 is no URL, \"not one\"",
            2,
        ),
        (&["stage", "--list", "-"], "standard input names no URL", 0),
        (
            &["stage", "--tag", "", "godwit://x/y"],
            "a tag has a name",
            2,
        ),
        (
            &["stage", "--tag", "a\nb", "godwit://x/y"],
            "line breaks",
            2,
        ),
        (
            &["cache", "add", "--tag", "", "godwit://x/y"],
            "a tag has a name",
            2,
        ),
        (&["help", "cache", "ls"], "", 0),
        (&["help", "cache", "nothing"], "no such verb", 2),
        (&["stage", "--rate", "0", "x"], "must be more than 0", 2),
        (&["stage", "--rate", "fast", "x"], "no unit of size", 2),
        (&["stage"], "<URL>", 2),
    ] {
        let said = machine.says(words);
        let is_told = said.status == Some(status) && said.stderr.contains(wanted);
        assert!(is_told, "{words:?}: {said}");
    }
}

#[test] //= GASS-51 depot#tags-and-filling
fn add_verbs_make_others_wait() {
    let machine = Machine::new();
    let url = "ftp://127.0.0.1:1/of-none";
    let add = |url: &str| {
        let (status, lines) = machine.json(&["cache", "add", "--tag", "study", url]);
        assert_eq!(status, Some(0), "{lines:?}");
        lines[0].clone()
    };
    let added = add(url);
    assert_eq!(
        (&added["new"], &added["timestamp"]),
        (&true.into(), &Value::Null)
    );
    let path = PathBuf::from(added["path"].as_str().unwrap());
    let waiting = |args: &[&str]| {
        let mut command = machine.command(args);
        let command = command.stdout(Stdio::piped()).stdin(Stdio::null());
        command.spawn().unwrap()
    };
    let looked = machine.says(&["cache", "stat", url]);
    let is_told = looked.stderr.contains("some program fills it");
    assert!(looked.status == Some(5) && is_told, "{looked}");
    let mut next = waiting(&["--json", "cache", "add", url]);
    let mut reader = waiting(&["get", url, "-"]);
    assert!(next.try_wait().unwrap().is_none() && reader.try_wait().unwrap().is_none());
    assert_eq!(
        machine
            .says(&["cache", "add-done", "ftp://127.0.0.1:1/other"])
            .status,
        Some(4)
    );
    fs::write(&path, "filled").unwrap();
    machine
        .says(&["cache", "add-done", "--timestamp", "-7", url])
        .ok();
    // One program waits to read, and one to add; in either order both see the filled file.
    let said = next.wait_with_output().unwrap();
    let line: Value =
        serde_json::from_slice(said.stdout.split(|&b| b == b'\n').next().unwrap()).unwrap();
    assert_eq!(
        (&line["new"], &line["timestamp"], &line["size"]),
        (&false.into(), &(-7).into(), &6.into())
    );
    machine.says(&["cache", "add-done", url]).ok();
    assert_eq!(reader.wait_with_output().unwrap().stdout, b"filled");
    let (_, rows) = machine.json(&["cache", "stat", url]);
    assert_eq!(
        (&rows[0]["timestamp"], &rows[0]["transfers"]),
        (&(-7).into(), &0.into())
    );
    // An abandoned fill passes to the next program.
    let other = "ftp://127.0.0.1:1/other";
    let (first, mut next) = (add(other), waiting(&["--json", "cache", "add", other]));
    assert!(next.try_wait().unwrap().is_none());
    machine.says(&["cache", "add-done", "--failed", other]).ok();
    let said = next.wait_with_output().unwrap();
    let line: Value =
        serde_json::from_slice(said.stdout.split(|&b| b == b'\n').next().unwrap()).unwrap();
    assert_eq!(line["new"], true);
    assert!(!fs::exists(first["path"].as_str().unwrap()).unwrap());
    machine.says(&["cache", "add-done", "--failed", other]).ok();
    // The file goes with its last tag.
    machine.says(&["cache", "clean", "study"]).ok();
    machine.says(&["cache", "clean", "staged"]).ok();
    assert_eq!(machine.says(&["cache", "stat", url]).status, Some(4));
    assert!(!path.exists());
}

#[test] //= KANGAROO-19
fn unit_goes_to_user_directory() {
    let machine = Machine::new();
    let config = machine.scratch.dir("config");
    let with = |args: &[&str]| {
        let mut command = machine.command(args);
        Said::of(command.env("XDG_CONFIG_HOME", &config)).ok()
    };
    let printed = with(&["node", "install", "--print"]);
    let file = config.join("systemd/user/godwit.service");
    assert!(!file.exists());
    let told = with(&["node", "install"]);
    assert_eq!(fs::read(&file).unwrap(), printed.stdout);
    let words = &told.stderr;
    assert!(
        words.contains("systemctl --user enable --now godwit"),
        "{told}"
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("Type=simple") && text.contains("node --local"));
}

#[test] //= GASS-41 GASS-69
fn socket_falls_back_to_tmp() {
    let scratch = Scratch::new();
    let everyone = PermissionsExt::from_mode(0o777);
    fs::set_permissions(scratch.path(), everyone).unwrap();
    let Some(nobody) = common::as_nobody(&scratch) else {
        return;
    };
    let with = |args: &[&str]| {
        let mut command = nobody();
        command
            .args(args)
            .env_remove("XDG_RUNTIME_DIR")
            .env("GODWIT_STATE", scratch.join("state"))
            .env("GODWIT_BIN", scratch.join(".godwit"))
            .env("GODWIT_LOCAL_IDLE", "20s");
        Said::of(&mut command)
    };
    with(&["queue"]).ok();
    let socket = Path::new("/tmp/godwit-65534/socket");
    assert!(socket.exists() || Path::new("/run/user/65534/godwit/socket").exists());
    with(&["node", "stop"]).ok();
    assert!(!socket.exists());
    let usual = socket.parent().unwrap();
    let _ = fs::remove_dir_all(usual);
    // Another user, here root, makes that directory first.
    fs::create_dir(usual).unwrap();
    with(&["queue"]).ok();
    let told = with(&["node", "status"]).ok();
    fs::remove_dir(usual).unwrap();
    // It is found there, even if the usual place is free again.
    let again = with(&["node", "stop"]).ok();
    assert!(!again.stderr.contains("no cache service runs"), "{again}");
    let words = String::from_utf8(told.stdout).unwrap();
    let said = words.split_once("/tmp/godwit-65534 was not this user's: the node uses ");
    if let Some((_, path)) = said {
        let path = Path::new(path.split_once("/socket").unwrap().0);
        fs::remove_dir_all(path).unwrap();
    }
    assert!(
        said.is_some() || Path::new("/run/user/65534").exists(),
        "{words}"
    );
}

/// Returns the output of a running program so far.
struct Heard(std::sync::Arc<std::sync::Mutex<String>>);

impl Heard {
    fn of(from: impl std::io::Read + Send + 'static) -> Self {
        let heard = Self(std::sync::Arc::default());
        let into = std::sync::Arc::clone(&heard.0);
        std::thread::spawn(move || {
            let mut lines = std::io::BufReader::new(from);
            let mut line = String::new();
            while std::io::BufRead::read_line(&mut lines, &mut line).unwrap_or(0) > 0 {
                into.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        heard
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn times(&self, words: &str) -> usize {
        self.text().matches(words).count()
    }

    fn wait(&self, words: &str) {
        wait_until(words, || self.times(words) > 0);
    }
}

/// A program that is fed and read line by line.
struct Talking {
    program: Child,
    input: Option<std::process::ChildStdin>,
    output: Heard,
    errors: Heard,
}

impl Talking {
    fn begin(mut command: Command) -> Self {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().unwrap();
        Self {
            input: program.stdin.take(),
            output: Heard::of(program.stdout.take().unwrap()),
            errors: Heard::of(program.stderr.take().unwrap()),
            program,
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn end(&mut self) -> Option<i32> {
        self.input = None;
        self.program.wait().unwrap().code()
    }
}

#[test] //= GASS-81 depot#writing
fn appends_outlive_killed_node() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let mut tee = Talking::begin(machine.command(&["tee", "godwit://lab/log"]));
    let mut wanted = String::new();
    for nth in 0..40 {
        let line = format!("line {nth}");
        tee.say(&line);
        wanted += &line;
        wanted += "\n";
        if nth % 10 == 5 {
            tee.output.wait(&format!("line {}", nth - 1));
            machine.kill();
        }
    }
    let status = tee.end();
    assert_eq!(status, Some(0), "{}", tee.errors.text());
    assert_eq!(fs::read_to_string(far.join("data/log")).unwrap(), wanted);
    assert!(tee.errors.times("it is started again") > 0);
    wait_until("all is printed", || tee.output.text() == wanted);
}

#[test] //= GASS-81 depot#writing
fn append_reports_outage_once() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    let mut tee = Talking::begin(machine.command(&["tee", "godwit://lab/log"]));
    tee.say("before");
    wait_until("it is there", || {
        fs::read_to_string(far.join("data/log")).is_ok_and(|text| text == "before\n")
    });
    lab.kill();
    tee.say("meanwhile");
    tee.errors.wait("what comes is kept here meanwhile");
    tee.say("still");
    lab.start(&[]);
    tee.errors.wait("it goes on");
    assert_eq!(tee.errors.times("what comes is kept here meanwhile"), 1);
    assert_eq!(tee.end(), Some(0), "{}", tee.errors.text());
    let text = fs::read_to_string(far.join("data/log")).unwrap();
    assert_eq!(text, "before\nmeanwhile\nstill\n");
}

/// The node takes 4 MiB at once.
#[test] //= GASS-80
fn long_and_unfinished_lines_arrive() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let mut tee = Talking::begin(machine.command(&["tee", "godwit://lab/log"]));
    let long = "x".repeat(5 << 20);
    tee.say(&long);
    write!(tee.input.as_mut().unwrap(), "the last").unwrap();
    assert_eq!(tee.end(), Some(0), "{}", tee.errors.text());
    let there = fs::read_to_string(far.join("data/log")).unwrap();
    assert!(there == format!("{long}\nthe last"), "{}", there.len());
}

#[test] //= KANGAROO-64
fn queue_watch_shows_each_change() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    lab.kill();
    let mut put = machine.command(&["put", "f", "godwit://lab/a"]);
    Said::of(put.env("GODWIT_SESSION", "night")).ok();
    let mut watch = Talking::begin(machine.command(&["queue", "-w"]));
    watch.output.wait("godwit://lab/a");
    machine.says(&["put", "f", "godwit://lab/b"]).ok();
    watch.output.wait("godwit://lab/b");
    wait_until("it was tried", || {
        let first = machine.json(&["queue"]).1.swap_remove(0);
        first["stage"] == "waiting" && first["why"].is_string() && first["again_in_s"].is_number()
    });
    let first = machine.json(&["queue"]).1.swap_remove(0);
    assert_eq!(
        (&first["what"], &first["owed_bytes"], &first["session"]),
        (&"publish".into(), &1000.into(), &"night".into()),
        "{first}"
    );
    assert!(
        first["age_s"].is_number() && first["id"].is_string(),
        "{first}"
    );
    lab.start(&[]);
    assert_eq!(watch.end(), Some(0), "{}", watch.errors.text());
}

#[test] //= GASS-33 depot#writing
fn killed_tee_keeps_its_lines() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    lab.kill();
    let mut tee = Talking::begin(machine.command(&["tee", "godwit://lab/log"]));
    tee.say("kept");
    tee.errors.wait("what comes is kept here meanwhile");
    tee.program.kill().unwrap();
    tee.program.wait().unwrap();
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
    let mut tee = Talking::begin(machine.command(&["tee", "godwit://lab/log"]));
    let input = tee.input.as_mut().unwrap();
    input.write_all(b"a line\nand a rest").unwrap();
    assert_eq!(tee.end(), Some(0), "{}", tee.errors.text());
    let text = fs::read_to_string(far.join("data/log")).unwrap();
    assert_eq!(text, "kept\na line\nand a rest");
}

#[test] //= KANGAROO-20 depot#room
fn room_wait_is_told_and_limited() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    let with = |args: &[&str]| {
        let mut command = machine.command(args);
        command.env("GODWIT_DEPOT_QUOTA", "1000000");
        command
    };
    lab.kill();
    machine.scratch.file("f", 700_000);
    Said::of(&mut with(&["put", "f", "godwit://lab/a"])).ok();
    let late = Said::of(&mut with(&["put", "f", "godwit://lab/b", "--timeout", "1"]));
    assert_eq!(late.status, Some(7), "{late}");
    for words in [
        "waiting for room for godwit://lab/b: ",
        "wait for delivery to",
        "no room within 1 s",
        "godwit queue",
    ] {
        assert!(late.stderr.contains(words), "{words}: {late}");
    }
    let told = Said::of(&mut with(&[
        "--json",
        "put",
        "f",
        "godwit://lab/b",
        "--timeout",
        "1",
    ]));
    let events = String::from_utf8(told.stdout).unwrap();
    let event: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&event["event"], &event["for"]),
        (&"waiting".into(), &"room".into())
    );
    let long = machine.says(&[
        "put",
        "f",
        "godwit://lab/b",
        "--offset",
        "18446744073709551616",
    ]);
    assert_eq!(long.status, Some(2), "{long}");
    let large = Said::of(&mut with(&[
        "put",
        "f",
        "godwit://lab/b",
        "--offset",
        "1000000",
    ]));
    assert_eq!(large.status, Some(7), "{large}");
    for words in ["1700000 bytes", "1000000 at most", "hint: godwit cp"] {
        assert!(large.stderr.contains(words), "{words}: {large}");
    }
    // Failed writers leave nothing, and a waiting writer continues once there is room.
    wait_until("nothing else is kept", || {
        machine.json(&["queue"]).1.len() == 2
    });
    let mut waits = Talking::begin(with(&["put", "f", "godwit://lab/c"]));
    waits.errors.wait("waiting for room");
    lab.start(&[]);
    assert_eq!(waits.end(), Some(0), "{}", waits.errors.text());
    waits.errors.wait("it goes on");
    machine.says(&["push", "--timeout", "30"]).ok();
    assert!(far.join("data/a").exists() && far.join("data/c").exists());
    assert!(!far.join("data/b").exists());
}

#[test] //= depot#room
fn crowded_puts_all_finish() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    machine.scratch.file("f", 2_000_000);
    let names: Vec<_> = (0..6).map(|nth| format!("godwit://lab/{nth}")).collect();
    let begin = |url: &String| {
        let mut command = machine.command(&["put", "f", url, "--timeout", "60"]);
        command.env("GODWIT_DEPOT_QUOTA", "5000000");
        Talking::begin(command)
    };
    let puts: Vec<_> = names.iter().map(begin).collect();
    for mut put in puts {
        assert_eq!(put.end(), Some(0), "{}", put.errors.text());
    }
    machine.says(&["push", "--timeout", "30"]).ok();
    for nth in 0..6 {
        let there = fs::read(far.join(format!("data/{nth}"))).unwrap();
        assert_eq!(there.len(), 2_000_000);
    }
}

/// A file system of that size; dropping it unmounts it.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let said = run(
            10,
            "mount",
            [
                "-t",
                "tmpfs",
                "-o",
                "size=48m,mode=700",
                "tmpfs",
                at.to_str().unwrap(),
            ],
        );
        if said.status != Some(0) {
            skip(&format!("mounting a small tmpfs: {said}"));
            return None;
        }
        Some(Self(at))
    }

    /// Fills it to the last byte.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filled")).unwrap();
        for len in [1 << 20, 4096, 1] {
            while file.write_all(&vec![1; len]).is_ok() {}
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test] //= GASS-37 KANGAROO-68 depot#room
fn full_disk_still_delivers_queue() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    let Some(disk) = Small::mount(machine.state.clone()) else {
        return;
    };
    lab.kill();
    machine.scratch.file("f", 1_000_000);
    for name in ["a", "b", "c"] {
        machine
            .says(&["put", "f", &format!("godwit://lab/{name}")])
            .ok();
    }
    machine.says(&["node", "stop"]).ok();
    disk.fill();
    let names = || {
        let (status, lines) = machine.json(&["queue"]);
        assert_eq!(status, Some(0), "{lines:?}");
        let urls = lines.iter().filter_map(|line| line["url"].as_str());
        urls.map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(
        names(),
        ["godwit://lab/a", "godwit://lab/b", "godwit://lab/c"]
    );
    disk.fill();
    machine.says(&["drop", "godwit://lab/b"]).ok();
    assert_eq!(names(), ["godwit://lab/a", "godwit://lab/c"]);
    machine.kill();
    assert_eq!(names(), ["godwit://lab/a", "godwit://lab/c"]);
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
    assert!(far.join("data/a").exists() && far.join("data/c").exists());
    assert!(!far.join("data/b").exists());
    // With room it is ready for the next time.
    fs::remove_file(disk.0.join("filled")).unwrap();
    wait_until("it is kept again", || {
        machine.state.join("depot/ballast-2").exists()
    });
    machine.says(&["node", "stop"]).ok();
}

#[test]
fn push_names_waits_and_holds() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    // A file stands where the directory is needed.
    for name in ["f/a", "f/b"] {
        machine
            .says(&["put", "f", &format!("godwit://lab/{name}")])
            .ok();
    }
    let refused = machine.says(&["push", "--timeout", "30"]);
    assert!(refused.stderr.contains("held as well"), "{refused}");
    for name in ["godwit://lab/f/a", "godwit://lab/f/b"] {
        assert!(refused.stderr.contains(name), "{refused}");
    }
    // No program listens there.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let away = format!("ftp://127.0.0.1:{}/x", silent.local_addr().unwrap().port());
    drop(silent);
    machine.says(&["put", "f", &away]).ok();
    let mut push = Talking::begin(machine.command(&["push"]));
    push.errors.wait("waiting: ");
    push.errors.wait(&away);
    push.errors.wait("held: godwit://lab/f/a");
    push.errors.wait("held: godwit://lab/f/b");
    push.program.kill().unwrap();
    push.end();
    let late = machine.says(&["push", "--timeout", "1.5"]);
    assert_eq!(late.status, Some(5), "{late}");
    assert!(
        late.stderr
            .contains("on hold until you decide: godwit://lab/f/a"),
        "{late}"
    );
    let (_, events) = machine.json(&["push", "--timeout", "1.5"]);
    let is = |event: &str| events.iter().any(|told| told["event"] == event);
    assert!(is("waiting") && is("held"), "{events:?}");
    lab.kill();
}

#[test] //= GASS-81
fn tail_prints_new_file_fully() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let mut tail = Talking::begin(machine.command(&["tail", "-f", "-n", "0", "godwit://lab/log"]));
    tail.errors.wait("no such file");
    fs::write(far.join("data/new"), "first\nsecond\n").unwrap();
    fs::rename(far.join("data/new"), far.join("data/log")).unwrap();
    tail.output.wait("second");
    assert_eq!(tail.output.times("first"), 1);
    tail.program.kill().unwrap();
    tail.end();
}

#[test] //= delivery#faults
fn running_node_finds_new_peer() {
    let (far, farther) = (Scratch::new(), Scratch::new());
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    for verb in [["put", "f"], ["tee", "--wait=nothing"]] {
        let refused = machine.says(&[verb[0], verb[1], "godwit://late/f"]);
        let is_told = refused.stderr.contains("godwit peers") && refused.stderr.contains("no peer");
        assert!(refused.status == Some(1) && is_told, "{refused}");
    }
    lab.kill();
    machine.says(&["put", "f", "godwit://lab/f"]).ok();
    let redirect = ["redirect", "godwit://lab/f", "godwit://late/f"];
    machine.says(&redirect).ok();
    wait_until("it was looked for", || {
        let (_, lines) = machine.json(&["queue"]);
        lines[0]["why"]
            .as_str()
            .is_some_and(|why| why.contains("late"))
    });
    let node = machine.process();
    let mut late = Peer::new(&farther, "c");
    late.serve("late", &farther.dir("there"));
    machine.says(&["join", &late.invite(), "--name", "us"]).ok();
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_eq!(fs::read(farther.join("there/f")).unwrap().len(), 1000);
    assert_eq!(machine.process(), node);
    // After a new key, the name stands for that.
    late.kill();
    machine.says(&["peers", "remove", "late"]).ok();
    let elsewhere = Scratch::new();
    let mut other = Peer::new(&elsewhere, "d");
    other.serve("late", &elsewhere.dir("there"));
    machine
        .says(&["join", &other.invite(), "--name", "us"])
        .ok();
    machine.says(&["put", "f", "godwit://late/g"]).ok();
    machine.says(&["push", "--timeout", "30"]).ok();
    assert!(elsewhere.join("there/g").exists());
}

#[test] //= delivery#faults
fn unknown_put_target_is_told() {
    let machine = Machine::new();
    machine.scratch.file("f", 1000);
    let put = machine
        .says(&["put", "f", "ftp://no.such.host.invalid/f"])
        .ok();
    assert!(
        put.stderr.contains("no.such.host.invalid is not found"),
        "{put}"
    );
}

#[test]
fn retry_and_push_take_directories() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    for url in ["godwit://lab/no/f", "godwit://lab/none/f"] {
        machine.says(&["put", "f", url]).ok();
    }
    let pushed = machine.says(&["push", "godwit://lab/no/", "--timeout", "30"]);
    let is_named = |name| pushed.stderr.contains(name);
    assert!(is_named("lab/no/f") && !is_named("lab/none/f"), "{pushed}");
    assert_eq!(pushed.status, Some(5), "{pushed}");
    let all = machine.says(&["push", "--timeout", "30"]);
    assert!(all.stderr.contains("lab/none/f"), "{all}");
    let (_, below) = machine.json(&["retry", "godwit://lab/no/"]);
    assert_eq!(below[0]["files"], 1, "{below:?}");
    let (_, all) = machine.json(&["retry", "--all"]);
    assert_eq!(all[0]["files"], 2, "{all:?}");
    far.dir("data/no");
    far.dir("data/none");
    wait_until("it goes by itself", || {
        machine.json(&["queue"]).1.len() == 1
    });
}

#[test] //= delivery#what-a-failure-costs
fn killed_patch_delivers_nothing() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    fs::write(far.join("data/f"), vec![1; 4 << 20]).unwrap();
    let mut put = Talking::begin(machine.command(&["put", "-", "--offset", "5", "godwit://lab/f"]));
    let mut input = put.input.take().unwrap();
    input.write_all(&[7; 3 << 20]).unwrap();
    wait_until("it is being written", || {
        let (_, lines) = machine.json(&["queue"]);
        lines[0]["size"].as_u64() >= Some(2 << 20)
    });
    put.program.kill().unwrap();
    put.program.wait().unwrap();
    drop(input);
    wait_until("it is forgotten", || machine.json(&["queue"]).1.len() == 1);
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_eq!(fs::read(far.join("data/f")).unwrap(), vec![1; 4 << 20]);
}

#[test]
fn words_fit_what_was_asked() {
    let machine = Machine::new();
    let usage = machine.json(&["tee"]).1;
    let message = usage[0]["message"].as_str().unwrap();
    assert!(
        message.contains("<URL>") && message.contains("Usage:"),
        "{message}"
    );
    // By FTP nothing can be appended twice.
    let served = machine.scratch.dir("served");
    let node = Node::start(&served);
    let refused = machine.says(&["tee", &node.url("log")]);
    assert!(
        refused.status == Some(1) && !refused.stderr.contains("is kept"),
        "{refused}"
    );
    let pushed = machine.says(&["push", &node.url("never")]).ok();
    assert!(pushed.stderr.contains("nothing to deliver"), "{pushed}");
}

#[test]
fn new_and_offset_exclude_another() {
    let machine = Machine::new();
    let said = machine.says(&["put", "--new", "--offset", "3", "-", "ftp://far/a"]);
    let is_told = said.status == Some(2) && said.stderr.contains("--offset");
    assert!(is_told, "{said}");
}

#[test]
fn put_into_directory_keeps_name() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    far.dir("data/dir");
    let source = machine.scratch.file("a b", 1000);
    machine.says(&["put", "a b", "godwit://lab/dir/"]).ok();
    let nameless = machine.says(&["put", "-", "godwit://lab/dir/"]);
    assert_eq!(nameless.status, Some(2), "{nameless}");
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&source, &far.join("data/dir/a b"));
}

/// Keeps a server away until the depot backs off for long.
fn until_backed_off(machine: &Machine) {
    wait_until("it was tried often", || {
        let (_, lines) = machine.json(&["queue"]);
        lines[0]["again_in_s"].as_f64() > Some(1.5)
    });
}

#[test] //= delivery#verbs-that-go-to-the-server
fn verbs_wait_for_pending_puts() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("old", 1000);
    let new = machine.scratch.file("new", 2000);
    lab.kill();
    for (source, args) in [
        ("old", vec!["cp", "new", "godwit://lab/it"]),
        ("old", vec!["rm", "godwit://lab/it"]),
        ("old", vec!["rm", "-r", "godwit://lab/dir"]),
        ("new", vec!["mv", "godwit://lab/it", "godwit://lab/there"]),
    ] {
        far.dir("data/dir");
        for url in ["godwit://lab/it", "godwit://lab/dir/it"] {
            machine.says(&["put", source, url]).ok();
        }
        until_backed_off(&machine);
        lab.start(&[]);
        machine.says(&args).ok();
        machine.says(&["push", "--timeout", "30"]).ok();
        match args[..] {
            ["cp", ..] => assert_same(&new, &far.join("data/it")),
            ["rm", "-r", _] => assert!(!far.join("data/dir").exists()),
            ["rm", ..] => assert!(!far.join("data/it").exists()),
            _ => assert_same(&new, &far.join("data/there")),
        }
        lab.kill();
    }
}

/// A killed or stopped node is started for a pending put. A node with nothing pending is not.
#[test] //= delivery#verbs-that-go-to-the-server
fn verbs_start_node_for_puts() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("old", 1000);
    let new = machine.scratch.file("new", 2000);
    let it = "godwit://lab/it";
    for is_killed in [true, false] {
        for args in [
            vec!["cp", "new", it],
            vec!["rm", it],
            vec!["mv", it, "godwit://lab/there"],
        ] {
            lab.kill();
            let source = if args[0] == "mv" { "new" } else { "old" };
            machine.says(&["put", source, it]).ok();
            match is_killed {
                true => machine.kill(),
                false => drop(machine.says(&["node", "stop"]).ok()),
            }
            lab.start(&[]);
            machine.says(&args).ok();
            machine.says(&["push", "--timeout", "30"]).ok();
            match args[0] {
                "cp" => assert_same(&new, &far.join("data/it")),
                "rm" => assert!(!far.join("data/it").exists()),
                _ => assert_same(&new, &far.join("data/there")),
            }
        }
    }
    machine.says(&["node", "stop"]).ok();
    machine.says(&["rm", "godwit://lab/there"]).ok();
    assert_eq!(machine.process(), None);
}

/// The node is killed between two looks of a verb at what is pending. No answer is not "nothing".
#[test] //= delivery#verbs-that-go-to-the-server
fn move_waits_despite_node_death() {
    let far = Scratch::new();
    let (machine, lab) = Machine::of(&far);
    machine.scratch.file("old", 1000);
    let new = machine.scratch.file("new", 2000);
    let (it, there) = ("godwit://lab/it", "godwit://lab/there");
    machine.says(&["cp", "old", it]).ok();
    let server = lab.node.as_ref().unwrap();
    server.signal("STOP");
    machine.says(&["put", "new", it]).ok();
    let mut verb = Talking::begin(machine.command(&["mv", it, there]));
    let port = lab.at.rsplit(':').next().unwrap().parse().unwrap();
    wait_until("mv has asked for its target, and is at the server", || {
        is_connected_to(verb.program.id(), port)
    });
    machine.kill();
    server.signal("CONT");
    assert_eq!(verb.end(), Some(0), "{}", verb.errors.text());
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&new, &far.join("data/there"));
    assert!(!far.join("data/it").exists());
}

/// Returns whether a process has a connection to a port of this machine.
fn is_connected_to(process: u32, port: u16) -> bool {
    let to = format!(":{port:04X}");
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    let has: Vec<_> = files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .collect();
    let all = fs::read_to_string("/proc/net/tcp").unwrap();
    all.lines().skip(1).any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words[2].ends_with(&to) && has.contains(&format!("socket:[{}]", words[9]).into())
    })
}

#[test] //= delivery#verbs-that-go-to-the-server
fn verb_names_put_that_blocks() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    machine.scratch.dir("d");
    lab.kill();
    for name in ["it", "dir/it"] {
        machine
            .says(&["put", "f", &format!("godwit://lab/{name}")])
            .ok();
    }
    let all = [
        vec!["rm", "godwit://lab/it"],
        vec!["rm", "-r", "godwit://lab/dir"],
        vec!["mkdir", "godwit://lab/it"],
        vec!["cp", "f", "godwit://lab/it"],
        vec!["cp", "-", "godwit://lab/it"],
        vec!["mv", "f", "godwit://lab/it"],
        vec!["mv", "godwit://lab/it", "f"],
        vec!["sync", "f", "godwit://lab/it"],
    ];
    let begin = |args: &Vec<&str>| Talking::begin(machine.command(args));
    let mut begun: Vec<_> = all.iter().map(begin).collect();
    for (args, verb) in all.iter().zip(&mut begun) {
        drop(verb.input.take());
        assert_eq!(verb.end(), Some(5), "{args:?}: {}", verb.errors.text());
        for words in ["goes first", "godwit drop"] {
            verb.errors.wait(words);
        }
    }
    // A rehearsal, and a verb on another name, do not wait.
    let rehearsed = machine.says(&["rm", "--dry-run", "godwit://lab/it"]);
    assert!(!rehearsed.stderr.contains("goes first"), "{rehearsed}");
    let other = machine.says(&["rm", "godwit://lab/i"]);
    assert!(!other.stderr.contains("goes first"), "{other}");
    lab.start(&[]);
    far.dir("data/dir");
    machine.says(&["push", "--timeout", "30"]).ok();
}

#[test]
fn vain_wait_is_told() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    lab.kill();
    machine.scratch.file("f", 10);
    machine.says(&["put", "f", "godwit://lab/f"]).ok();
    let late = machine.says(&["push", "--timeout", "1.2345678"]);
    assert_eq!(late.status, Some(5), "{late}");
    for words in [
        "not done within 1.23 s: godwit://lab/f",
        "hint: it is kept here and delivered",
    ] {
        assert!(late.stderr.contains(words), "{words}: {late}");
    }
    // The server is away; this machine did not restart.
    assert!(!late.stderr.contains("restart"), "{late}");
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
}

#[test] //= delivery#what-a-failure-costs
fn uncertain_put_is_told() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let file = machine.scratch.file("f", 3000);
    let url = "godwit://lab/f";
    // The node is started by this put, and dies between taking it and answering.
    for point in ["commit-taken", "commit-recorded"] {
        let put = &mut machine.command(&["put", "f", url]);
        let said = Said::of(put.env("GODWIT_CRASH", point));
        assert_eq!(said.status, Some(5), "{said}");
        for words in [
            "may have been taken before, or not",
            "the same put again is safe",
        ] {
            assert!(said.stderr.contains(words), "{said}");
        }
    }
    machine.says(&["put", "f", url]).ok();
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_eq!(
        fs::read(far.join("data/f")).unwrap(),
        fs::read(file).unwrap()
    );
    assert!(machine.says(&["queue"]).ok().stdout.is_empty());
}

#[test]
fn killed_fill_is_repeated() {
    let (machine, url) = (Machine::new(), "ftp://127.0.0.1:1/f");
    let mut dying = machine.command(&["--json", "cache", "add", url]);
    // The node is started by this call, and dies once the file is complete and unanswered.
    let added = Said::of(dying.env("GODWIT_CRASH", "filled")).ok();
    let added: Value = serde_json::from_slice(&added.stdout).unwrap();
    fs::write(added["path"].as_str().unwrap(), "half").unwrap();
    let done = machine.says(&["cache", "add-done", url]);
    assert_eq!(done.status, Some(5), "{done}");
    assert_eq!(machine.says(&["cache", "stat", url]).status, Some(4));
    let (_, rows) = machine.json(&["cache", "add", url]);
    assert_eq!(rows[0]["new"], true);
    fs::write(rows[0]["path"].as_str().unwrap(), "whole").unwrap();
    machine.says(&["cache", "add-done", url]).ok();
    assert_eq!(machine.says(&["get", url, "-"]).ok().stdout, b"whole");
}

#[test] //= delivery#verbs-that-go-to-the-server
fn hold_stops_writes_not_listings() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    // A file stands where the directory is needed.
    machine.says(&["put", "f", "godwit://lab/f/a"]).ok();
    assert_ne!(machine.says(&["push", "--timeout", "30"]).status, Some(0));
    let refused = machine.says(&["rm", "-r", "godwit://lab/f"]);
    assert_eq!(refused.status, machine.says(&["push"]).status, "{refused}");
    assert!(refused.stderr.contains("goes first"), "{refused}");
    assert!(far.join("data/f").exists());
    let words = "1 name below godwit://lab/ is promised by this machine";
    for args in [&["ls"][..], &["find"], &["du"], &["sum", "-r"]] {
        let listed = machine.says(&[args, &["godwit://lab/"]].concat()).ok();
        assert!(listed.stderr.contains(words), "{args:?}: {listed}");
        let (_, lines) = machine.json(&[args, &["godwit://lab/"]].concat());
        let is_told = |line: &Value| line["event"] == "promised" && line["names"] == 1;
        assert!(lines.iter().any(is_told), "{args:?}: {lines:?}");
    }
    for args in [
        vec!["find", "godwit://lab/f/a"],
        vec!["find", "-maxdepth", "0", "godwit://lab/f/a"],
        vec!["du", "godwit://lab/f/a"],
        vec!["sum", "godwit://lab/f/a"],
        vec!["stat", "godwit://lab/f/a"],
        vec!["cat", "godwit://lab/f/a"],
        vec!["cp", "godwit://lab/f/a", "here"],
        vec!["cp", "godwit://lab/f/a", "-"],
    ] {
        let said = machine.says(&args);
        let words = "godwit://lab/f/a is promised by this machine and not there yet";
        assert!(said.stderr.contains(words), "{said}");
    }
    for args in [&["stat"][..], &["find", "-maxdepth", "0"], &["sum"]] {
        let other = machine.says(&[args, &["godwit://lab/f"]].concat()).ok();
        assert!(!other.stderr.contains("promised"), "{args:?}: {other}");
    }
    // `sum --check` reads a list of names, too.
    let noted = format!("{}  godwit://lab/f/a\n", "0".repeat(64));
    fs::write(machine.scratch.join("noted"), noted).unwrap();
    let checked = machine.says(&["sum", "--check", "noted"]);
    let words = "godwit://lab/f/a is promised by this machine and not there yet";
    assert!(checked.stderr.contains(words), "{checked}");
    // The file in the way can be removed.
    machine.says(&["rm", "godwit://lab/f"]).ok();
    machine.says(&["mkdir", "godwit://lab/f"]).ok();
    let retried = machine.says(&["retry", "godwit://lab/f/a"]).ok();
    assert!(retried.stderr.contains("tried again now"), "{retried}");
    machine.says(&["push", "--timeout", "30"]).ok();
    assert!(far.join("data/f/a").exists());
}

#[test] //= depot#how-fresh-a-read-is
fn reads_see_earlier_verbs() {
    let far = Scratch::new();
    let (machine, _lab) = Machine::of(&far);
    let (one, two) = (
        machine.scratch.file("one", 1000),
        machine.scratch.file("two", 2000),
    );
    let read = |name: &str| machine.says(&["get", &format!("godwit://lab/{name}"), "-"]);
    machine.says(&["cp", "one", "godwit://lab/it"]).ok();
    assert_eq!(read("it").ok().stdout, fs::read(&one).unwrap());
    machine.says(&["cp", "two", "godwit://lab/it"]).ok();
    assert_eq!(read("it").ok().stdout, fs::read(&two).unwrap());
    machine
        .says(&["mv", "godwit://lab/it", "godwit://lab/there"])
        .ok();
    assert_eq!(read("it").status, Some(4));
    assert_eq!(read("there").ok().stdout, fs::read(&two).unwrap());
    machine.says(&["rm", "godwit://lab/there"]).ok();
    assert_eq!(read("there").status, Some(4));
    far.dir("data/dir");
    machine.says(&["cp", "one", "godwit://lab/dir/it"]).ok();
    read("dir/it").ok();
    machine.says(&["rm", "-r", "godwit://lab/dir"]).ok();
    assert_eq!(read("dir/it").status, Some(4));
}

#[test] //= delivery#put-and-conflicts
fn known_file_is_not_new() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("one", 1000);
    let two = machine.scratch.file("two", 2000);
    let url = "godwit://lab/it";
    lab.kill();
    machine.says(&["put", "--new", "one", url]).ok();
    let (status, lines) = machine.json(&["put", "--new", "two", url]);
    let error = lines.iter().find(|line| line["event"] == "error").unwrap();
    assert_eq!(
        (status, &error["errno"]),
        (Some(1), &"EEXIST".into()),
        "{lines:?}"
    );
    // Of two concurrent writers the second to close fails.
    let with_input =
        || Talking::begin(machine.command(&["put", "--new", "-", "godwit://lab/pipe"]));
    let (mut first, mut second) = (with_input(), with_input());
    wait_until("both write", || machine.json(&["queue"]).1.len() == 4);
    drop(first.input.take());
    assert_eq!(first.end(), Some(0));
    drop(second.input.take());
    assert_eq!(second.end(), Some(1), "{}", second.errors.text());
    wait_until("it is dropped", || {
        machine.says(&["drop", url]).status == Some(0)
    });
    machine.says(&["put", "--new", "two", url]).ok();
    lab.start(&[]);
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_eq!(machine.says(&["put", "--new", "one", url]).status, Some(1));
    machine.says(&["rm", url]).ok();
    machine.says(&["put", "--new", "two", url]).ok();
    machine.says(&["push", "--timeout", "30"]).ok();
    assert_same(&two, &far.join("data/it"));
}

#[test]
fn decisions_tell_their_effect() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 1000);
    lab.kill();
    let url = "godwit://lab/it";
    machine.says(&["put", "f", url]).ok();
    for (args, words) in [
        (vec!["retry", url], "is tried again now"),
        (vec!["release", url], "goes over whatever is there"),
    ] {
        let said = machine.says(&args).ok();
        assert!(said.stderr.contains(words), "{said}");
    }
    let elsewhere = "godwit://lab/elsewhere";
    let mut said = None;
    wait_until("it is not being sent", || {
        let now = machine.says(&["redirect", url, elsewhere]);
        let is_done = now.status == Some(0);
        said = Some(now);
        is_done
    });
    let said = said.unwrap();
    assert!(
        said.stderr.contains("goes to godwit://lab/elsewhere"),
        "{said}"
    );
    wait_until("it is dropped", || {
        let (status, lines) = machine.json(&["drop", elsewhere]);
        let is_told = lines
            .iter()
            .any(|line| line["notes"].to_string().contains("given up"));
        assert!(status != Some(0) || is_told, "{lines:?}");
        status == Some(0)
    });
    for args in [
        vec!["retry", url],
        vec!["release", url],
        vec!["drop", url],
        vec!["redirect", url, elsewhere],
    ] {
        let said = machine.says(&args);
        assert_eq!(said.status, Some(4), "{said}");
        assert!(said.stderr.contains("nothing of that name"), "{said}");
    }
    lab.start(&[]);
    let said = machine.says(&["drop", "--at-hop", url]);
    assert_eq!(said.status, Some(4), "{said}");
}

#[test]
fn url_password_is_refused() {
    let machine = Machine::new();
    machine.scratch.file("f", 10);
    let refused = machine.says(&["put", "f", "ftp://me:sesame@127.0.0.1:9/f"]);
    assert_eq!(refused.status, Some(2), "{refused}");
    assert!(refused.stderr.contains(".netrc"), "{refused}");
    assert!(!refused.stderr.contains("sesame"), "{refused}");
}

#[test] //= KANGAROO-X6
fn damaged_put_is_never_delivered() {
    let far = Scratch::new();
    let (machine, mut lab) = Machine::of(&far);
    machine.scratch.file("f", 3_000_000);
    lab.kill();
    machine.says(&["put", "f", "godwit://lab/rotten"]).ok();
    machine.kill();
    let folders = fs::read_dir(machine.state.join("depot/bytes")).unwrap();
    let names = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    let mut paths = names.map(|name| name.unwrap().path());
    let bytes = paths.find(|path| path.extension().is_none()).unwrap();
    let file = fs::File::options().write(true).open(bytes).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"rotten", 2_000_000).unwrap();
    lab.start(&[]);
    let failed = machine.says(&["push", "--timeout", "30"]);
    assert_eq!(failed.status, Some(1), "{failed}");
    assert!(failed.stderr.contains("damaged"), "{failed}");
    assert!(!far.join("data/rotten").exists());
}

#[test]
fn unresolved_name_waits() {
    let machine = Machine::new();
    machine.scratch.file("f", 10);
    let url = "ftp://no-such-host.invalid/f";
    machine.says(&["put", "f", url]).ok();
    wait_until("it was tried", || {
        let (_, lines) = machine.json(&["queue"]);
        lines[0]["attempts"].as_u64() > Some(0)
    });
    let (_, lines) = machine.json(&["queue"]);
    assert_ne!(lines[0]["stage"], "held", "{lines:?}");
    wait_until("it is dropped", || {
        machine.says(&["drop", url]).status == Some(0)
    });
}

#[test] //= delivery#put-and-conflicts
fn waiting_rename_names_its_hold() {
    let machine = Machine::new();
    let far = machine.scratch.dir("far");
    let node = Node::start(&far);
    fs::create_dir_all(far.join("d/keep")).unwrap();
    fs::write(far.join("file"), "a").unwrap();
    machine.scratch.file("a", 100);
    let rows = || {
        let (_, lines) = machine.json(&["queue"]);
        let rows = lines.into_iter().filter(|line| line["event"] == "owed");
        rows.collect::<Vec<_>>()
    };
    // At the name of a directory, and below that of a file.
    for (held, waits) in [("d", "d/x"), ("file/x", "file")] {
        let (held, waits) = (node.url(held), node.url(waits));
        let row = |url: &str| rows().into_iter().find(|row| row["url"] == url).unwrap();
        machine.says(&["put", "a", &held]).ok();
        wait_until("it is held", || row(&held)["stage"] == "held");
        assert_eq!(row(&held)["waits_for"], Value::Null);
        machine.says(&["put", "a", &waits]).ok();
        let waiting = row(&waits);
        assert_eq!(waiting["stage"], "queued", "{waiting}");
        assert_eq!(waiting["waits_for"], row(&held)["id"], "{waiting}");
        let why = waiting["why"].as_str().unwrap();
        assert!(
            why.contains(&format!("waits for {held}, which is held"))
                && why.contains(&format!("drop {held}")),
            "{waiting}"
        );
        let queue = machine.says(&["queue"]).ok().to_string();
        assert!(queue.contains(why), "{queue}");
        machine.says(&["drop", &held]).ok();
        wait_until("nothing waits for it", || {
            rows().iter().all(|row| row["waits_for"].is_null())
        });
        machine.says(&["drop", &waits]);
    }
}

#[test] //= delivery#put-and-conflicts
fn put_to_path_names_target() {
    let machine = Machine::new();
    let file = machine.scratch.file("a", 100);
    let put = machine.says(&["put", "a", "nourl"]).ok();
    let there = machine.scratch.join("nourl");
    let words = format!("it goes to {}, a file of this machine", there.display());
    assert!(put.stderr.contains(&words), "{put}");
    machine.says(&["push", "--timeout", "20s"]).ok();
    assert_same(&file, &there);
    machine.scratch.dir("d");
    fs::write(machine.scratch.join("d/kept"), "kept").unwrap();
    std::os::unix::fs::symlink("d", machine.scratch.join("link")).unwrap();
    let pipe = machine.scratch.join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for (target, word) in [
        ("d", "is a directory"),
        ("link", "is a directory"),
        ("/dev/null", "it is no file"),
        ("pipe", "it is no file"),
    ] {
        let refused = machine.says(&["put", "a", target]);
        assert!(
            refused.status == Some(1) && refused.stderr.contains(word),
            "{target}: {refused}"
        );
    }
    let queue = machine.says(&["queue"]).ok();
    assert!(queue.stdout.is_empty(), "{queue}");
    // A server is none of this machine's files.
    let node = Node::start(&machine.scratch.dir("far"));
    let put = machine.says(&["put", "a", &node.url("a")]).ok();
    assert!(put.stderr.is_empty(), "{put}");
}
