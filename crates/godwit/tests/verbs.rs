//! Each verb on local files.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Said, Scratch, assert_same, assert_same_tree, godwit, summary};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    process::Stdio,
    time::{Duration, Instant, UNIX_EPOCH},
};

fn text(said: Said) -> String {
    String::from_utf8(said.ok().stdout).unwrap()
}

#[test]
fn cp_keeps_times_and_mode() {
    let scratch = Scratch::new();
    let source = scratch.file("f", 3_000_001);
    let then = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    std::fs::File::options()
        .write(true)
        .open(&source)
        .unwrap()
        .set_modified(then)
        .unwrap();
    std::fs::set_permissions(&source, PermissionsExt::from_mode(0o751)).unwrap();
    scratch.run("cp -p f g").ok();
    assert_same(&source, &scratch.join("g"));
    let there = scratch.join("g").metadata().unwrap();
    assert_eq!(there.modified().unwrap(), then);
    assert_eq!(there.permissions().mode() & 0o7777, 0o751);
}

#[test]
fn times_before_1970_become_1970() {
    let scratch = Scratch::new();
    let node = common::Node::with(&scratch.dir("node"), &["--anonymous", "write"]);
    let source = scratch.file("a/f", 1000);
    let file = std::fs::File::options().write(true).open(&source).unwrap();
    file.set_modified(UNIX_EPOCH - Duration::from_secs(1_000_000))
        .unwrap();
    for (target, copy) in [("b", "b/f"), (&*node.url("b"), "node/b/f")] {
        scratch.run(&format!("cp -r a {target}")).ok();
        let there = scratch.join(copy).metadata().unwrap();
        assert_eq!(there.modified().unwrap(), UNIX_EPOCH);
        let said = scratch.run(&format!("sync --json a {target}")).ok();
        assert_eq!(summary(&said)["files"], 0, "it is copied again: {said}");
    }
}

#[test]
fn cp_json_ends_with_summary() {
    let scratch = Scratch::new();
    scratch.file("f", 3_000_001);
    let said = scratch.run("cp --json f g").ok();
    let last = summary(&said);
    assert_eq!(last["status"], "ok", "{last}");
    assert_eq!(last["bytes"], 3_000_001, "{last}");
    assert_eq!(last["files"], 1, "{last}");
    assert_eq!(last["resumed_bytes"], 0, "{last}");
    assert!(
        last["seconds"].is_f64() && last["streams"].as_u64() > Some(0),
        "{last}"
    );
    let sum = text(scratch.run("sum g"));
    let hex = sum.split(' ').next().unwrap();
    assert_eq!(last["digest"], format!("blake3:{hex}"), "{last}");
}

#[test]
fn cp_takes_standard_input() {
    let scratch = Scratch::new();
    let bytes = common::noise(2_500_000, 3);
    let mut child = godwit()
        .current_dir(scratch.path())
        .args(["cp", "-", "there"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read(scratch.join("there")).unwrap(), bytes);
}

/// Runs a command with these bytes as its standard input.
fn fed(scratch: &Scratch, line: &str, bytes: &str) -> Said {
    std::fs::write(scratch.join("input"), bytes).unwrap();
    let input = std::fs::File::open(scratch.join("input")).unwrap();
    let mut command = godwit();
    command.current_dir(scratch.path()).args(line.split(' '));
    Said::of(command.stdin(input))
}

#[test]
fn cp_patches_from_standard_input() {
    let scratch = Scratch::new();
    let node = common::Node::with(&scratch.dir("node"), &["--anonymous", "write"]);
    let url = node.url("f");
    for (target, file) in [("f", "f"), (&*url, "node/f")] {
        for (options, wanted) in [
            ("--offset 3", "012ABC6789"),
            ("--offset 3 --length 2", "012AB56789"),
            ("--length 1", "A123456789"),
            ("--offset 9", "012345678ABC"),
        ] {
            std::fs::write(scratch.join(file), "0123456789").unwrap();
            let said = fed(&scratch, &format!("cp --json {options} - {target}"), "ABC").ok();
            let last = summary(&said);
            assert_eq!(last["in_place"], 1, "{said}");
            let text = std::fs::read_to_string(scratch.join(file)).unwrap();
            assert_eq!(text, wanted, "{options} {target}");
        }
    }
}

#[test]
fn cp_n_keeps_existing_target() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("f"), "old").unwrap();
    let said = fed(&scratch, "cp -n --json - f", "new").ok();
    assert_eq!(summary(&said)["files"], 0, "{said}");
    assert_eq!(std::fs::read(scratch.join("f")).unwrap(), b"old");
    let said = fed(&scratch, "cp -n --json - g", "new").ok();
    let last = summary(&said);
    assert_eq!((&last["files"], &last["in_place"]), (&1.into(), &0.into()));
    assert!(last["verified"].is_string(), "{said}");
}

#[test]
fn rm_names_upload_under_way() {
    let scratch = Scratch::new();
    scratch.dir("d");
    let mut child = godwit()
        .current_dir(scratch.path())
        .args(["cp", "-", "d/big"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // It has begun once it has taken more than a pipe holds.
    let mut input = child.stdin.take().unwrap();
    input.write_all(&vec![7; 4 << 20]).unwrap();
    let said = scratch.run("rm -r d");
    assert_eq!(said.status, Some(1), "{said}");
    assert!(
        said.stderr.contains("hint: if an upload is under way"),
        "{said}"
    );
    drop(input);
    assert!(child.wait().unwrap().success());
    let said = fed(&scratch, "cp - .godwit-0123456789abcdef01234567.part", "x");
    assert_eq!(said.status, Some(2), "{said}");
    assert!(said.stderr.contains("choose another name"), "{said}");
}

#[test]
fn impossible_numbers_name_limits() {
    let scratch = Scratch::new();
    for (line, must) in [
        ("cp --stall-timeout 0 f g", "must be above 0"),
        ("cp --stall-timeout -1 f g", "must be above 0"),
        ("cp --length -1 f g", "must be 0 or more"),
        ("cat --offset -1 f", "must be 0 or more"),
        ("cp --streams -1 f g", "1..=256"),
        ("proxy init --valid 0", "must be above 0"),
    ] {
        let said = scratch.run(line);
        assert_eq!(said.status, Some(2), "{line}\n{said}");
        assert!(said.stderr.contains(must), "{line}\n{said}");
    }
}

#[test]
fn cp_copies_range_in_place() {
    let scratch = Scratch::new();
    scratch.file("f", 10_000);
    std::fs::write(scratch.join("g"), vec![0; 10_000]).unwrap();
    scratch.run("cp --offset 1000 --length 50 f g").ok();
    let (source, target) = (
        std::fs::read(scratch.join("f")),
        std::fs::read(scratch.join("g")),
    );
    let (source, target) = (source.unwrap(), target.unwrap());
    assert_eq!(target[1000..1050], source[1000..1050]);
    assert!(
        target[..1000]
            .iter()
            .chain(&target[1050..])
            .all(|&b| b == 0)
    );
}

#[test]
fn cp_takes_lists() {
    let scratch = Scratch::new();
    for name in ["a", "b c", "d"] {
        scratch.file(name, 10);
    }
    scratch.dir("to");
    std::fs::write(scratch.join("lines"), "a\nb c\n").unwrap();
    scratch.run("cp --from-file lines to").ok();
    std::fs::write(scratch.join("nuls"), "b c\0d\0").unwrap();
    scratch.run("cp --from-file nuls to").ok();
    assert_eq!(common::tree(&scratch.join("to")).len(), 3);
}

#[test]
fn a_double_dash_ends_options() {
    let scratch = Scratch::new();
    scratch.file("-r", 10);
    scratch.run("cp -- -r --json").ok();
    assert_same(&scratch.join("-r"), &scratch.join("--json"));
}

#[test]
fn sync_copies_only_differences() {
    let scratch = Scratch::new();
    scratch.file("a/x", 1000);
    scratch.file("a/s/y", 2_000_000);
    assert_eq!(summary(&scratch.run("sync --json a b"))["files"], 2);
    assert_same_tree(&scratch.join("a"), &scratch.join("b"));
    let again = summary(&scratch.run("sync --json a b"));
    assert_eq!(
        (&again["files"], &again["skipped"]),
        (&0.into(), &2.into()),
        "{again}"
    );

    // One byte changed, size and time as before: only a digest tells.
    let changed = scratch.join("b/x");
    let time = changed.metadata().unwrap().modified().unwrap();
    let mut bytes = std::fs::read(&changed).unwrap();
    bytes[500] ^= 1;
    std::fs::write(&changed, bytes).unwrap();
    std::fs::File::options()
        .write(true)
        .open(&changed)
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(summary(&scratch.run("sync --json a b"))["files"], 0);
    let dry = text(scratch.run("sync --checksum --dry-run a b"));
    assert_eq!(dry, "would copy a/x -> b/x\n");
    assert_eq!(
        summary(&scratch.run("sync --json --checksum a b"))["files"],
        1
    );
    assert_same_tree(&scratch.join("a"), &scratch.join("b"));
}

#[test]
fn ls_options_list_everything() {
    let scratch = Scratch::new();
    for name in ["d/b", "d/a", "d/.hidden", "d/s/c", "d/.no/x"] {
        scratch.file(name, 2000);
    }
    assert_eq!(text(scratch.run("ls d")), "a\nb\ns/\n");
    assert_eq!(text(scratch.run("ls -a d")), ".hidden\n.no/\na\nb\ns/\n");
    assert_eq!(text(scratch.run("ls -R d")), "a\nb\ns/\ns/c\n");
    let long = text(scratch.run("ls -lh d/a"));
    assert!(
        long.starts_with("-rw-") && long.contains(" 2.0K 20") && long.ends_with(" d/a\n"),
        "{long}"
    );
    let objects = text(scratch.run("ls --json d"));
    let first: Value = serde_json::from_str(objects.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["path"], &first["size"]),
        (&"a".into(), &2000.into())
    );
    assert_eq!(
        (&first["kind"], &first["url"]),
        (&"file".into(), &"d/a".into())
    );
}

/// The help promises that a directory of any size begins at once.
#[test]
fn ls_streams_huge_directories() {
    let scratch = Scratch::new();
    let huge = scratch.dir("huge");
    for i in 0..60_000 {
        std::fs::write(huge.join(i.to_string()), "").unwrap();
    }
    let started = Instant::now();
    let mut child = godwit()
        .current_dir(scratch.path())
        .args(["ls", "-U", "huge"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let first = started.elapsed();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(rest.lines().count(), 59_999);
    assert!(
        first < started.elapsed() / 2,
        "{first:?} of {:?}",
        started.elapsed()
    );
}

#[test]
fn find_tells_what_matches() {
    let scratch = Scratch::new();
    scratch.file("d/run1.root", 5000);
    scratch.file("d/s/run2.root", 10);
    scratch.file("d/s/notes.txt", 5000);
    let sorted = |line: &str| {
        let text = text(scratch.run(line));
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        sorted("find d -name *.root"),
        ["d/run1.root", "d/s/run2.root"]
    );
    assert_eq!(sorted("find d -name *.root -size +1K"), ["d/run1.root"]);
    assert_eq!(sorted("find d -type d"), ["d", "d/s"]);
    assert_eq!(sorted("find d -maxdepth 1"), ["d", "d/run1.root", "d/s"]);
    assert_eq!(sorted("find d -type f -newer 2200-01-01"), [""; 0]);
    assert_eq!(
        text(scratch.run("find d -name notes* -print0")),
        "d/s/notes.txt\0"
    );
}

#[test]
fn du_sums_what_is_below() {
    let scratch = Scratch::new();
    scratch.file("d/x", 1000);
    scratch.file("d/s/y", 500);
    assert_eq!(text(scratch.run("du d")), "500\td/s\n1500\td\n");
    assert_eq!(text(scratch.run("du -sh d")), "1.5K\td\n");
    assert_eq!(summary(&scratch.run("du --json d"))["bytes"], 1500);
}

#[test]
fn sum_agrees_with_md5sum() {
    let scratch = Scratch::new();
    let path = scratch.file("f", 100_000);
    let theirs = common::run(20, "md5sum", [path.to_str().unwrap()]).ok();
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    let ours = text(scratch.run("sum -a md5 f"));
    assert_eq!(ours.split(' ').next(), theirs.split(' ').next());
    std::fs::write(scratch.join("noted"), text(scratch.run("sum f"))).unwrap();
    assert_eq!(text(scratch.run("sum --check noted")), "f: OK\n");
    std::fs::write(&path, "something else").unwrap();
    let said = scratch.run("sum --check noted");
    assert_eq!(said.status, Some(12), "{said}");
}

#[test]
fn cat_prints_all_or_a_part() {
    let scratch = Scratch::new();
    let bytes = std::fs::read(scratch.file("f", 2_000_000)).unwrap();
    assert!(scratch.run("cat f f").ok().stdout == [&bytes[..], &bytes].concat());
    assert!(scratch.run("cat --offset 1M --length 7 f").ok().stdout == bytes[1 << 20..][..7]);
    assert_eq!(scratch.run("cat --offset 3M f").ok().stdout, b"");
}

#[test]
fn rm_asks_before_trees() {
    let scratch = Scratch::new();
    scratch.file("d/s/x", 10);
    scratch.file("keep/y", 10);
    std::os::unix::fs::symlink("../keep", scratch.join("d/link")).unwrap();
    std::os::unix::fs::symlink("keep", scratch.join("link")).unwrap();
    let dry = text(scratch.run("rm -r --dry-run d"));
    assert_eq!(dry.lines().count(), 4, "{dry}");
    assert!(scratch.join("d/s/x").exists());
    scratch.run("rm -r d").ok();
    let said = scratch.run("rm link/");
    assert!(said.stderr.contains("leave out the /"), "{said}");
    scratch.run("rm link").ok();
    assert_eq!(common::tree(scratch.path()).len(), 2, "keep and keep/y");
    scratch.run("rm -f missing").ok();
}

#[test]
fn rm_and_mv_act_on_links() {
    let scratch = Scratch::new();
    let node = common::Node::with(&scratch.dir("node"), &["--anonymous", "write"]);
    for (name, target) in [
        ("loop", "other"),
        ("other", "loop"),
        ("out", "/etc"),
        ("outfile", "/etc/passwd"),
        ("nowhere", "nothing"),
    ] {
        let is_link = |name: &str| scratch.join("node").join(name).is_symlink();
        let link = || std::os::unix::fs::symlink(target, scratch.join("node").join(name)).unwrap();
        for url in [&|name: &str| format!("node/{name}"), &|name: &str| {
            node.url(name)
        }] as [&dyn Fn(&str) -> String; 2]
        {
            link();
            let (from, to) = (url(name), url("moved"));
            scratch.run(&format!("mv --dry-run {from} {to}")).ok();
            scratch.run(&format!("mv {from} {to}")).ok();
            assert!(is_link("moved") && !is_link(name), "{from}");
            scratch.run(&format!("rm {to}")).ok();
            assert!(!is_link("moved"), "{to}");
        }
        link();
        let (from, to) = (node.url(name), "here");
        if name != "outfile" {
            assert_ne!(scratch.run(&format!("mv {from} {to}")).status, Some(0));
            assert!(is_link(name) && !scratch.join("here").exists(), "{from}");
        }
    }
    assert!(std::path::Path::new("/etc/passwd").exists());
}

#[test]
fn dry_run_summary_says_so() {
    let scratch = Scratch::new();
    for name in ["a/f", "a/g", "b"] {
        scratch.file(name, 100);
    }
    for (line, fact, count) in [
        ("cp -r a new", "files", 2),
        ("cp b -", "files", 1),
        ("cp - new", "files", 1),
        ("mv b new", "files", 1),
        ("sync a new", "files", 2),
        ("sync --delete a new", "files", 2),
        ("rm -r a", "removed", 3),
        ("mkdir -v new other", "made", 2),
    ] {
        let said = fed(&scratch, &format!("{line} --dry-run --json"), "input").ok();
        // With `cp b -`, objects and bytes are on different streams.
        let told = format!("{}{}", String::from_utf8_lossy(&said.stdout), said.stderr);
        let objects = told.lines().map(|line| {
            let object = serde_json::from_str::<Value>(line);
            object.unwrap_or_else(|_| panic!("{line}: {said}"))
        });
        let objects: Vec<Value> = objects.collect();
        let last = objects.last().unwrap();
        assert_eq!(
            (&last["dry_run"], &last[fact]),
            (&true.into(), &count.into()),
            "{said}"
        );
        assert!(
            scratch.join("a/f").exists() && scratch.join("b").exists(),
            "{line}"
        );
        assert!(!scratch.join("new").exists(), "{line}");
    }
}

#[test]
fn rm_tells_removals_despite_full_output() {
    let scratch = Scratch::new();
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for line in ["rm --json x", "rm -rv d", "rm -r --json d"] {
        for name in ["x", "d/f", "d/s/g"] {
            scratch.file(name, 10);
        }
        let mut command = godwit();
        command.current_dir(scratch.path()).args(line.split(' '));
        let output = command.stdin(Stdio::null()).stdout(full()).output();
        let output = output.unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("cannot remove"), "{line}: {told}");
        assert!(told.contains("was removed"), "{line}: {told}");
        assert_eq!(output.status.code(), Some(7), "{line}: {told}");
        let name = line.rsplit(' ').next().unwrap();
        assert!(!scratch.join(name).exists(), "{line}");
    }
}

#[test]
fn cp_refuses_range_behind_end() {
    let scratch = Scratch::new();
    let node = common::Node::with(&scratch.dir("node"), &["--anonymous", "write"]);
    std::fs::write(scratch.join("f"), "012345").unwrap();
    std::fs::write(scratch.join("node/g"), "012345").unwrap();
    let (there, new) = (node.url("g"), node.url("new"));
    for (source, target) in [
        ("f", "new"),
        ("f", &*new),
        (&*there, "new"),
        (&*there, &*new),
    ] {
        let said = scratch.run(&format!("cp --offset 400000 {source} {target}"));
        assert_eq!(said.status, Some(2), "{source} {target}: {said}");
        assert!(
            said.stderr.contains("ends at byte 6, before byte 400000"),
            "{said}"
        );
    }
    for target in ["new", &*new] {
        let said = fed(
            &scratch,
            &format!("cp --offset 18446744073709551610 - {target}"),
            "z\n",
        );
        assert_eq!(said.status, Some(2), "{said}");
        assert!(said.stderr.contains("give a smaller --offset"), "{said}");
    }
    assert!(!scratch.join("new").exists() && !scratch.join("node/new").exists());
    // At the end of the file there is a part of no bytes.
    scratch.run("cp --offset 6 f node/g").ok();
    scratch.run(&format!("cp --offset 6 f {there}")).ok();
    assert_eq!(std::fs::read(scratch.join("node/g")).unwrap(), b"012345");
}

#[test]
fn mkdir_makes_parents_and_modes() {
    let scratch = Scratch::new();
    scratch.run("mkdir -p a/b/c").ok();
    scratch.run("mkdir -p a/b/c").ok();
    scratch.run("mkdir -m 700 a/d").ok();
    let mode = scratch.join("a/d").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    scratch.file("f", 1);
    assert_ne!(scratch.run("mkdir -p f/x").status, Some(0));
}

#[test]
fn mv_renames() {
    let scratch = Scratch::new();
    scratch.file("f", 10);
    let said = scratch.run("mv --json f g").ok();
    assert_eq!(summary(&said)["renamed"], 1, "{said}");
}

#[test] //= GRIDFTP-56
fn transfers_are_recorded_without_secrets() {
    let scratch = Scratch::new();
    scratch.file("f", 1000);
    let mut command = godwit();
    command.current_dir(scratch.path()).args(["cp", "f", "g"]);
    command.env("XDG_STATE_HOME", scratch.join("state"));
    Said::of(&mut command).ok();
    let log = std::fs::read_to_string(scratch.join("state/godwit/transfers.jsonl")).unwrap();
    let line: Value = serde_json::from_str(log.trim()).unwrap();
    for key in [
        "when", "source", "target", "seconds", "streams", "faults", "verified",
    ] {
        assert!(!line[key].is_null(), "{key} in {line}");
    }
    assert_eq!(
        (&line["bytes"], &line["status"]),
        (&1000.into(), &"ok".into())
    );
}

#[test]
fn pages_and_completions_are_made() {
    let scratch = Scratch::new();
    scratch.run("man pages").ok();
    let page = std::fs::read_to_string(scratch.join("pages/godwit-cp.1")).unwrap();
    assert!(page.contains("no\\-clobber"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let script = text(scratch.run(&format!("completions {shell}")));
        assert!(script.contains("no-clobber"), "{shell}");
    }
}

#[test]
fn names_of_any_bytes_work() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let scratch = Scratch::new();
    for name in [
        &b"a b"[..],
        b"%41",
        b"new\nline",
        b"\xff\xfe",
        "ü".as_bytes(),
        b"-dash",
        b"quo\"te'",
    ] {
        let name = OsStr::from_bytes(name);
        scratch.file(std::path::Path::new("d").join(name), 100);
    }
    scratch.run("cp -r d e").ok();
    assert_same_tree(&scratch.join("d"), &scratch.join("e"));
    let found = scratch.run("find d -type f -print0").ok();
    assert_eq!(found.stdout.iter().filter(|&&b| b == 0).count(), 7);
    for line in text(scratch.run("ls --json d")).lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    scratch.run("rm -r d").ok();
}

#[test]
fn special_bits_need_request() {
    let scratch = Scratch::new();
    for (name, size_bytes) in [("small", 10), ("large", 3_000_000)] {
        let path = scratch.file(name, size_bytes);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
        scratch.run(&format!("cp {name} plain")).ok();
        scratch.run(&format!("cp -p {name} special")).ok();
        let mode = |name| scratch.join(name).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("plain"), mode("special")), (0o755, 0o4755), "{name}");
        std::fs::remove_file(scratch.join("plain")).unwrap();
    }
}

#[test]
fn sum_escapes_names_like_coreutils() {
    let scratch = Scratch::new();
    for name in ["a\nb", "c\\d", "plain", "r\rx", "both\\\n"] {
        scratch.file(format!("d/{name}"), 10);
    }
    let list = scratch.run("sum -a md5 -r d").ok().stdout;
    std::fs::write(scratch.join("list"), &list).unwrap();
    let lines = String::from_utf8(list).unwrap();
    assert_eq!(lines.lines().count(), 5, "{lines}");
    assert_eq!(lines.lines().filter(|l| l.starts_with('\\')).count(), 4);
    scratch.run("sum -a md5 --check list").ok();

    let md5sum = |line: &str| {
        let mut command = std::process::Command::new("md5sum");
        Said::of(command.current_dir(scratch.path()).args(line.split(' ')))
    };
    if !common::have("md5sum") {
        return;
    }
    md5sum("-c list").ok();
    let theirs = md5sum("d/a\nb d/c\\d d/plain d/r\rx d/both\\\n").ok();
    std::fs::write(scratch.join("theirs"), theirs.stdout).unwrap();
    scratch.run("sum -a md5 --check theirs").ok();
}

#[test]
fn digest_list_must_have_digests() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("junk"), "no digests here\n").unwrap();
    for line in ["sum --check -", "sum --check junk"] {
        let said = scratch.run(line);
        assert_eq!(said.status, Some(2), "{said}");
        assert!(said.stderr.contains("no properly formatted"), "{said}");
    }
}

#[test]
fn lists_accept_blanks_and_crlf() {
    let scratch = Scratch::new();
    scratch.file("a", 10);
    scratch.file("b", 10);
    scratch.dir("to");
    std::fs::write(scratch.join("list"), "a\r\n \t\r\n\r\nb\r\n").unwrap();
    scratch.run("cp --from-file list to").ok();
    assert_eq!(common::tree(&scratch.join("to")).len(), 2);
    std::fs::write(scratch.join("empty"), " \n\r\n").unwrap();
    for line in ["cp --from-file empty to", "rm --from-file empty"] {
        let said = scratch.run(line);
        assert_eq!(said.status, Some(2), "{said}");
    }
}

#[test]
fn cp_makes_no_dash_file() {
    let scratch = Scratch::new();
    scratch.file("a", 10);
    scratch.run("cp a -").ok();
    assert!(!scratch.join("-").exists());
    scratch.run("cp a ./-").ok();
    assert_same(&scratch.join("a"), &scratch.join("-"));
}

#[test]
fn full_output_is_told_once() {
    let scratch = Scratch::new();
    scratch.file("a", 10);
    for line in ["ls", "ls --json", "find", "cat a"] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = godwit();
        command.current_dir(scratch.path()).args(line.split(' '));
        let mut child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7), "{line}: {told}");
        assert_eq!(told.matches("standard output: ").count(), 1, "{told}");
        assert!(!told.contains("is kept"), "{told}");
    }
}

#[test]
fn errors_escape_control_characters() {
    let scratch = Scratch::new();
    let said = Said::of(
        godwit()
            .current_dir(scratch.path())
            .args(["cat", "a\u{1b}[2J\rb\nc"]),
    );
    assert!(!said.stderr.contains(['\u{1b}', '\r']), "{said}");
    assert_eq!(said.stderr.lines().count(), 2, "{said}");

    scratch.dir("d/real");
    std::os::unix::fs::symlink("real", scratch.join("d/link")).unwrap();
    let said = scratch.run("cp -r --json d e");
    let told = String::from_utf8_lossy(&said.stdout).into_owned();
    let told: Value = told
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|object| object["event"] == "error")
        .unwrap();
    assert_eq!(told["culprit"], "you", "{said}");
}

#[test]
fn cp_prints_only_the_file() {
    let scratch = Scratch::new();
    let bytes = std::fs::read(scratch.file("f", 3_000_001)).unwrap();
    for line in [
        "cp f -",
        "cp -v f -",
        "cp --json f -",
        "cp --progress plain f -",
    ] {
        let said = scratch.run(line).ok();
        assert!(said.stdout == bytes, "{line}: {} bytes", said.stdout.len());
    }
    let said = scratch.run("cp --json f -").ok();
    let last: Value = serde_json::from_str(said.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["bytes"], &last["status"]),
        (&3_000_001.into(), &"ok".into())
    );
    let said = scratch.run("cp --offset 1M --length 7 f -").ok();
    assert!(said.stdout == bytes[1 << 20..][..7]);
    let hole = std::fs::File::create(scratch.join("hole")).unwrap();
    hole.set_len(2_000_000).unwrap();
    assert!(scratch.run("cp hole -").ok().stdout == vec![0; 2_000_000]);
    std::fs::File::create(scratch.join("empty")).unwrap();
    assert!(scratch.run("cp empty -").ok().stdout.is_empty());
}

#[test]
fn cp_to_output_takes_one() {
    let scratch = Scratch::new();
    scratch.file("f", 10);
    scratch.dir("d");
    for line in ["cp f f -", "cp - -", "cp d -", "cp none -", "cp --json d -"] {
        let said = scratch.run(line);
        assert_ne!(said.status, Some(0), "{line}: {said}");
        assert!(
            said.stdout.is_empty() && !said.stderr.is_empty(),
            "{line}: {said}"
        );
    }
}

#[test]
fn cp_tells_in_place_changes() {
    let scratch = Scratch::new();
    scratch.file("f", 10_000);
    let part = "cp --offset 1000 --length 50 f g";
    for (line, done, count) in [("cp f g", false, 0), (part, true, 1)] {
        let said = scratch.run(&format!("{line} --json")).ok();
        let summary = summary(&said);
        assert_eq!(summary["in_place"], count, "{line}: {summary}");
        let told = String::from_utf8(said.stdout).unwrap();
        let event = told.lines().find(|line| line.contains("\"done\"")).unwrap();
        let event: Value = serde_json::from_str(event).unwrap();
        assert_eq!(event["in_place"], done, "{line}: {event}");
        let said = text(scratch.run(&format!("{line} -v")));
        assert_eq!(said.contains(", in place,"), done, "{line}: {said}");
    }
}

#[test]
fn sum_help_matches_odd_names() {
    let scratch = Scratch::new();
    std::fs::write(scratch.join("a\\b\nc\rd"), b"x").unwrap();
    let line = text(scratch.run("sum -a md5 -r ."));
    assert!(
        line.starts_with('\\') && line.ends_with("a\\\\b\\nc\\rd\n"),
        "{line}"
    );
    let help = text(scratch.run("help sum"));
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(r"begins with a backslash if its name holds"),
        "{help}"
    );
    assert!(words.contains(r"written \\, \n and \r"), "{help}");
}
