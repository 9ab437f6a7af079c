//! Losses, leftovers and omissions of `mv`, `sync` and `cp -r`.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    Node, Said, Scratch, as_nobody, assert_same, chmod, godwit, ours, ours_within, summary, text,
    tree,
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Stdio,
    time::{Duration, UNIX_EPOCH},
};

/// Serializes the tests that stop a copy in the middle; in parallel they come too late.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A second name of the same node.
fn alias(node: &Node, path: &str) -> String {
    node.url(path).replace("ftp://", "ftp://anonymous@")
}

#[test]
fn mv_counts_what_it_removed() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    for name in ["d/f", "d/s/g", "h"] {
        scratch.file(name, 100);
    }
    let said = scratch.run(&format!("mv --json d h {}", node.url(""))).ok();
    let summary = summary(&said);
    let events = String::from_utf8_lossy(&said.stdout);
    let events = events.matches(r#""event":"removed""#).count();
    assert_eq!((events, &summary["removed"]), (5, &5.into()), "{said}");
}

#[test]
fn sync_never_deletes_its_source() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let other = Node::start(&scratch.join("node"));
    let below = Node::start(&scratch.dir("node/zd/below"));
    scratch.file("node/zd/f", 100);
    scratch.file("node/zd/below/g", 100);
    scratch.file("node/keep", 10);
    let here = text(&scratch.join("node")).to_owned();
    let before = tree(&scratch.join("node"));
    for (source, target) in [
        (node.url("zd"), alias(&node, "")),
        (node.url("zd"), other.url("")),
        (node.url("zd"), here.clone()),
        (format!("{here}/zd"), node.url("")),
        (node.url("zd"), alias(&node, "zd")),
        (node.url("zd"), below.url("")),
        (node.url("zd"), below.url("new")),
        (below.url(""), node.url("")),
    ] {
        for dry in [&[][..], &["--dry-run"]] {
            let verb = ["sync", "--delete"].iter().chain(dry).copied();
            let said = ours(verb.chain([source.as_str(), &target]));
            assert_eq!(said.status, Some(2), "sync {source} {target}: {said}");
            assert_eq!(tree(&scratch.join("node")), before, "{source} {target}");
        }
    }
    // From elsewhere it is as ever.
    scratch.file("data/f", 10);
    let data = scratch.join("data");
    ours(["sync", "--delete", text(&data), &node.url("zd")]).ok();
    assert!(!scratch.join("node/zd/below").exists());
}

#[test]
fn mv_into_itself_leaves_nothing() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    scratch.file("node/s/f", 100);
    scratch.dir("node/s/t");
    let before = tree(&scratch.join("node"));
    for target in ["s/t/", "s/t/new", "s"] {
        let said = ours(["mv", &node.url("s"), &alias(&node, target)]);
        assert_eq!(said.status, Some(2), "{target}: {said}");
        assert_eq!(tree(&scratch.join("node")), before, "{target}");
    }
}

#[test]
fn mv_names_unremovable_source() {
    let scratch = Scratch::new();
    let node = Node::with(&scratch.join("node"), &["--anonymous", "write"]);
    for part in ["part1", "part2", "closed/part3"] {
        scratch.file(format!("data/{part}"), 100);
    }
    let closed = scratch.join("data/closed");
    chmod(&closed, 0o555);
    let data = scratch.join("data");
    if fs::write(closed.join("trial"), "").is_ok() {
        return common::peers::skip("root may write everywhere");
    }
    let said = ours(["mv", text(&data), &node.url("data")]);
    chmod(&closed, 0o755);
    let left = tree(&scratch.join("data"));
    assert!(said.stderr.contains("closed/part3"), "{said}");
    assert!(!said.stderr.contains(".godwit-moving"), "{said}");
    assert!(scratch.join("data/closed/part3").exists(), "{left:?}");
}

#[test]
fn mv_counts_unremovable_files() {
    let scratch = Scratch::new();
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    let node = Node::start(&scratch.join("node"));
    for name in ["in/t/f", "in/t/closed/g", "in/t/closed/h"] {
        scratch.file(name, 100);
    }
    for (name, mode) in [("in", 0o777), ("in/t", 0o777), ("in/t/closed", 0o755)] {
        chmod(&scratch.join(name), mode);
    }
    let source = scratch.join("in/t");
    let said = ours_within(
        40,
        nobody(),
        ["mv", "--json", text(&source), &node.url("t")],
    );
    assert_eq!(said.status, Some(13), "{said}");
    let counts = summary(&said);
    assert_eq!(
        (&counts["failed"], &counts["exit_code"], &counts["removed"]),
        (&2.into(), &13.into(), &1.into()),
        "{said}"
    );
    // `rm` too: directories that stay non-empty are no fault of their own.
    let said = ours_within(40, nobody(), ["rm", "-r", text(&source)]);
    assert_eq!(said.status, Some(13), "{said}");
    assert!(
        said.stderr.contains("closed: directory is not empty"),
        "{said}"
    );
    assert_eq!(tree(&source).len(), 3);
    // A file that cannot be renamed counts too.
    let said = ours_within(
        40,
        nobody(),
        [
            "mv",
            "--json",
            text(&source.join("closed/g")),
            text(&source.join("g")),
        ],
    );
    assert_eq!(
        (said.status, &summary(&said)["failed"]),
        (Some(13), &1.into()),
        "{said}"
    );
}

#[test]
fn mv_keeps_concurrent_writes() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    for tree in [false, true] {
        let file = scratch.file("data/f", 40_000_000);
        let source = if tree {
            scratch.join("data")
        } else {
            file.clone()
        };
        let target = node.url(if tree { "tree" } else { "file" });
        let mut child = godwit()
            .args(["mv", "--json", text(&source), &target])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first object tells that all of the file is at the target.
        let out = child.stdout.take().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out));
        let done = lines.find(|line| line.as_ref().unwrap().contains("\"done\""));
        let written = fs::File::options().append(true).open(&file);
        let written = written.and_then(|mut f| std::io::Write::write_all(&mut f, b"late"));
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        let status = child.wait().unwrap();
        if done.is_none() || written.is_err() {
            continue; // the move was faster than the write
        }
        let kept = fs::read(&file).is_ok_and(|bytes| bytes.ends_with(b"late"));
        assert!(kept || status.success(), "{status} {rest:?}");
        assert!(!scratch.join("data").read_dir().unwrap().any(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().contains("godwit-moving")
        }));
    }
}

#[test]
fn mv_keeps_unfinished_uploads() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    scratch.file("data/f", 100);
    let part = format!("data/s/.godwit-{}.part", "a".repeat(24));
    scratch.file(&part, 100);
    let data = scratch.join("data");
    let said = ours(["mv", text(&data), &node.url("data")]);
    assert_eq!(said.status, Some(1), "{said}");
    assert!(said.stderr.contains(".part"), "{said}");
    assert!(scratch.join(&part).exists() && scratch.join("data/f").exists());
}

#[test]
fn mv_from_node_keeps_uploads() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    scratch.file("node/data/f", 100);
    let part = format!("node/data/s/.godwit-{}.part", "a".repeat(24));
    scratch.file(&part, 100);
    let here = scratch.join("here");
    let said = ours(["mv", &node.url("data"), text(&here)]);
    assert_eq!(said.status, Some(1), "{said}");
    let name = format!("data/s/.godwit-{}.part", "a".repeat(24));
    assert!(said.stderr.contains(&name), "{said}");
    assert!(scratch.join(&part).exists() && scratch.join("node/data/f").exists());
    assert!(!here.exists(), "it says so before it copies");
    fs::remove_file(scratch.join(&part)).unwrap();
    ours(["mv", &node.url("data"), text(&here)]).ok();
    assert!(here.join("s").is_dir() && !scratch.join("node/data").exists());
}

#[test]
fn mv_n_keeps_uncopied_files() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    scratch.file("data/f", 100);
    // Both have one length, so that only the skip shows that it was not copied.
    scratch.file("node/data/f", 100);
    fs::write(scratch.join("node/data/f"), [9; 100]).unwrap();
    let data = scratch.join("data");
    let said = ours(["mv", "-n", text(&data), &node.url("")]);
    assert_eq!(said.status, Some(1), "{said}");
    assert_ne!(fs::read(scratch.join("data/f")).unwrap(), [9; 100]);
    assert_eq!(fs::read(scratch.join("node/data/f")).unwrap(), [9; 100]);
}

#[test]
fn sync_sees_change_within_second() {
    let scratch = Scratch::new();
    let (file, copy) = (scratch.file("a/f", 100), scratch.join("b/f"));
    let set = |nanos| {
        let file = fs::File::options().write(true).open(&file).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::new(1_000_000_000, nanos))
            .unwrap();
    };
    set(123_456_789);
    scratch.run("sync a b").ok();
    assert_eq!(
        copy.metadata().unwrap().modified().unwrap(),
        file.metadata().unwrap().modified().unwrap()
    );
    assert_eq!(summary(&scratch.run("sync --json a b"))["files"], 0);
    fs::write(&file, [7; 100]).unwrap();
    set(623_456_789);
    let dry = String::from_utf8(scratch.run("sync --dry-run a b").ok().stdout).unwrap();
    assert_eq!(dry, "would copy a/f -> b/f\n");
    assert_eq!(summary(&scratch.run("sync --json a b"))["files"], 1);
    assert_eq!(fs::read(&copy).unwrap(), [7; 100]);
    // A server with whole seconds is not asked for more.
    fs::write(&file, [8; 100]).unwrap();
    set(0);
    assert_eq!(summary(&scratch.run("sync --json a b"))["files"], 0);
}

#[test]
fn sync_between_nodes_sees_subsecond_changes() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let other = Node::start(&scratch.join("other"));
    scratch.dir("here");
    let (here, back) = (scratch.join("here"), scratch.join("back"));
    let way = [
        (text(&here).to_owned(), node.url("t")),
        (node.url("t"), other.url("t")),
        (other.url("t"), text(&back).to_owned()),
    ];
    let last = back.join("f");
    for (fill, nanos) in [(1, 123_456_789), (2, 123_456_790), (3, 0)] {
        fs::write(here.join("f"), [fill; 100]).unwrap();
        let time = UNIX_EPOCH + Duration::new(1_000_000_000, nanos);
        let file = fs::File::options().write(true).open(here.join("f"));
        file.unwrap().set_modified(time).unwrap();
        // A time without a fraction does not tell its precision.
        let is_seen = nanos != 0;
        for (from, to) in &way {
            let files = |said: &Said| summary(said)["files"].clone();
            let said = ours(["sync", "--json", from, to]).ok();
            assert_eq!(
                files(&said),
                i32::from(is_seen),
                "{fill} {from} {to}: {said}"
            );
            let again = ours(["sync", "--json", from, to]).ok();
            assert_eq!(files(&again), 0, "{fill} {from} {to}: {again}");
        }
        if is_seen {
            assert_eq!(fs::read(&last).unwrap(), [fill; 100]);
            assert_eq!(last.metadata().unwrap().modified().unwrap(), time);
        }
    }
}

#[test]
fn sync_announces_change_of_kind() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let build = |at: &str| {
        scratch.file(format!("{at}/file/in"), 10); // is a file at the source
        scratch.file(format!("{at}/file/deep/er"), 10);
        scratch.file(format!("{at}/tree"), 10); // is a directory at the source
        scratch.file(format!("{at}/bare"), 10); // is an empty one
        scratch.file(format!("{at}/gone"), 10);
    };
    scratch.file("a/file", 100);
    scratch.file("a/tree/s/f", 100);
    scratch.dir("a/bare");
    scratch.file("a/x", 100);
    let source = scratch.join("a");
    for (target, at) in [
        (text(&scratch.join("b")).to_owned(), "b"),
        (node.url("b"), "node/b"),
    ] {
        build(at);
        let before = tree(&scratch.join(at));
        let dry = ours(["sync", "--dry-run", text(&source), &target]);
        assert_eq!(dry.status, Some(1), "{dry}");
        assert_eq!(tree(&scratch.join(at)), before);
        let said = ours(["sync", "--json", text(&source), &target]);
        assert_eq!(said.status, Some(1), "{said}");
        assert!(scratch.join(at).join("file/deep/er").exists());
        fs::remove_file(scratch.join(at).join("x")).unwrap();

        let dry = ours(["sync", "--delete", "--dry-run", text(&source), &target]).ok();
        let dry = String::from_utf8(dry.stdout).unwrap();
        let count = |what: &str| dry.lines().filter(|line| line.contains(what)).count();
        assert_eq!(
            (count("would copy"), count("would remove")),
            (3, 7),
            "{dry}"
        );
        let said = ours(["sync", "--delete", "--json", text(&source), &target]).ok();
        let last = summary(&said);
        assert_eq!(
            (&last["files"], &last["removed"]),
            (&3.into(), &7.into()),
            "{said}"
        );
        common::assert_same_tree(&source, &scratch.join(at));
        let again = ours(["sync", "--delete", "--json", text(&source), &target]).ok();
        assert_eq!(summary(&again)["removed"], 0, "{again}");
    }
}

#[test]
fn sync_tells_undeleted_files() {
    let scratch = Scratch::new();
    scratch.file("a/f", 100);
    common::run(5, "mkfifo", [text(&scratch.join("a/pipe"))]).ok();
    scratch.file("b/surplus", 100);
    let said = scratch.run("sync --delete --json a b");
    assert_eq!(said.status, Some(1), "{said}");
    assert_eq!(summary(&said)["not_deleted"], true, "{said}");
    assert!(said.stderr.contains("was left there"), "{said}");
    assert!(scratch.join("b/surplus").exists());
    fs::remove_file(scratch.join("a/pipe")).unwrap();
    let said = scratch.run("sync --delete --json a b").ok();
    assert_eq!(summary(&said)["not_deleted"], false, "{said}");
}

#[test]
fn cp_names_omitted_files() {
    let scratch = Scratch::new();
    scratch.file("a/f", 100);
    let part = format!("s/.godwit-{}.part", "a".repeat(24));
    scratch.file(format!("a/{part}"), 100);
    let said = scratch.run("cp -r --json a b").ok();
    assert_eq!(
        summary(&said)["left_out"],
        serde_json::json!([format!("a/{part}")])
    );
    assert!(said.stderr.contains(&part), "{said}");
    let said = scratch.run("cp -r -q a quiet").ok();
    assert!(said.stderr.contains(&part), "however quiet: {said}");
    let said = scratch.run("cp -r --json b c").ok();
    assert_eq!(summary(&said)["left_out"], serde_json::json!([]), "{said}");
}

#[test]
fn new_directories_get_source_mode() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let bits = |path: &str, bits| {
        fs::set_permissions(scratch.join(path), PermissionsExt::from_mode(bits)).unwrap();
    };
    let modes = |root: &str| {
        ["", "/open", "/closed", "/closed/in"].map(|path| {
            let at = scratch.join(format!("{root}{path}"));
            at.metadata().unwrap().permissions().mode() & 0o7777
        })
    };
    scratch.file("priv/closed/in/f", 10);
    scratch.dir("priv/open");
    bits("priv/closed/in", 0o750);
    bits("priv/closed", 0o555);
    bits("priv/open", 0o777);
    bits("priv", 0o700);
    let source = scratch.join("priv");
    for (target, root) in [
        (text(&scratch.join("here")).to_owned(), "here"),
        (node.url("there"), "node/there"),
    ] {
        ours(["cp", "-r", text(&source), &target]).ok();
        assert_eq!(modes(root), [0o700, 0o777, 0o555, 0o750], "{root}");
        bits(&format!("{root}/open"), 0o711);
        ours(["sync", text(&source), &target]).ok();
        assert_eq!(modes(root)[1], 0o711, "those that were there keep theirs");
        bits(&format!("{root}/closed"), 0o755);
    }
    bits("priv/closed", 0o755);
}

#[test]
fn directory_over_file_is_refused() {
    let scratch = Scratch::new();
    scratch.file("f", 10);
    scratch.dir("d/f");
    let said = scratch.run("cp f d");
    assert_eq!(said.status, Some(1), "{said}");
    assert!(
        !said.stderr.contains("-r") && said.stderr.contains("a directory has the name"),
        "{said}"
    );
}

#[test]
fn empty_directory_over_file_fails() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    for empty in ["a/x", "a/y", "a/deep/x"] {
        scratch.dir(empty);
    }
    scratch.file("a/f", 10);
    let source = scratch.join("a");
    for (target, at) in [
        (text(&scratch.join("b")).to_owned(), "b"),
        (node.url("b"), "node/b"),
    ] {
        let into = format!("{}/", text(&source));
        scratch.dir(format!("{at}/y"));
        scratch.file(format!("{at}/x"), 10);
        scratch.file(format!("{at}/deep/x"), 10);
        let said = ours(["cp", "-r", &into, &target]);
        assert_eq!(said.status, Some(3), "{said}");
        let told = |what: &str| said.stderr.matches(what).count();
        assert_eq!(
            (told("not a directory"), told("cannot copy")),
            (2, 2),
            "{said}"
        );
        assert_eq!(told("hint: "), 2, "{said}");
        assert!(scratch.join(format!("{at}/f")).exists());
        fs::remove_file(scratch.join(format!("{at}/x"))).unwrap();
        fs::remove_file(scratch.join(format!("{at}/deep/x"))).unwrap();
        ours(["cp", "-r", &into, &target]).ok();
        common::assert_same_tree(&source, &scratch.join(at));
        ours(["cp", "-r", &into, &target]).ok();
    }
}

#[test]
fn mv_names_forbidding_directory() {
    let scratch = Scratch::new();
    scratch.file("closed/f", 10);
    scratch.file("open/f", 10);
    let mode = |mode| {
        let closed = scratch.join("closed");
        fs::set_permissions(closed, PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o555);
    if fs::write(scratch.join("closed/trial"), "").is_ok() {
        return common::peers::skip("root may write everywhere");
    }
    let out = scratch.run("mv closed/f open/g");
    let into = scratch.run("mv open/f closed/g");
    mode(0o755);
    assert_eq!(
        (out.status, into.status),
        (Some(13), Some(13)),
        "{out} {into}"
    );
    assert!(out.stderr.contains("closed/f: permission denied"), "{out}");
    assert!(
        into.stderr.contains("closed/g: permission denied"),
        "{into}"
    );
    assert_eq!(tree(&scratch.join("open")).len(), 1);
}

#[test]
fn mv_survives_colliding_target_names() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    let own = scratch.join("own");
    let targets = [(text(&own).to_owned(), "own"), (node.url(""), "export")];
    for (target, place) in targets {
        for line in ["mv src/f src/g", "mv src"] {
            for at in ["", "/src"] {
                let at = scratch.dir(format!("{place}{at}"));
                for name in ["f", "g"] {
                    let _ = fs::remove_file(at.join(name));
                }
                fs::write(at.join("f"), "old").unwrap();
                std::os::unix::fs::symlink("f", at.join("g")).unwrap();
            }
            scratch.dir("src");
            fs::write(scratch.join("src/f"), "one").unwrap();
            fs::write(scratch.join("src/g"), "two").unwrap();
            let said = scratch.run(&format!("{line} {target}/"));
            let mut left = String::new();
            for at in ["src", place, &format!("{place}/src")] {
                for name in ["f", "g"] {
                    let path = scratch.join(at).join(name);
                    left += &fs::read_to_string(path).unwrap_or_default();
                }
            }
            assert!(
                left.contains("one") && left.contains("two"),
                "{left} {said}"
            );
            assert!(place == "own" || said.status != Some(0), "{said}");
        }
    }
}

#[test]
fn mv_takes_links_of_node() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    scratch.file("export/d/f", 10);
    std::os::unix::fs::symlink("f", scratch.join("export/d/link")).unwrap();
    scratch.run(&format!("mv {} moved", node.url("d"))).ok();
    assert!(!scratch.join("export/d").exists());
    assert_eq!(fs::metadata(scratch.join("moved/f")).unwrap().len(), 10);
}

#[test]
fn small_file_keeps_its_mode() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    let mode = |path: &str| {
        fs::metadata(scratch.join(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    for bits in [0o600, 0o755, 0o444] {
        let file = scratch.file("export/d/f", 10);
        chmod(&file, bits);
        scratch.run(&format!("cp {} one", node.url("d/f"))).ok();
        scratch.run(&format!("cp -r {} tree", node.url("d"))).ok();
        for path in ["one", "tree/f"] {
            assert_eq!(mode(path), bits, "{path}");
        }
        scratch.run("rm -r one tree").ok();
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn one_session_moves_all_files() {
    let scratch = Scratch::new();
    for nth in 0..60 {
        scratch.file(format!("src/{nth}"), 100_000 + nth);
    }
    let config = scratch.join("node.toml");
    fs::write(&config, "[limits]\nsessions = 2\n").unwrap();
    let options = ["--anonymous", "write", "--config", text(&config)];
    let node = Node::with(&scratch.join("export"), &options);
    let up = format!("cp -r --parallel 16 src {}", node.url("there"));
    scratch.run(&up).ok();
    let down = format!("sync --parallel 16 --delete {} back", node.url("there"));
    scratch.run(&down).ok();
    for nth in 0..60 {
        for place in ["export/there", "back"] {
            let (source, copy) = (format!("src/{nth}"), format!("{place}/{nth}"));
            assert_same(&scratch.join(source), &scratch.join(copy));
        }
    }
}

#[test]
fn mv_of_link_leaves_directory() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    scratch.file("real/f", 10);
    std::os::unix::fs::symlink("real", scratch.join("link")).unwrap();
    scratch.run(&format!("mv link {}", node.url(""))).ok();
    assert!(scratch.join("real/f").exists());
    assert!(fs::symlink_metadata(scratch.join("link")).is_err());
    assert_same(&scratch.join("real/f"), &scratch.join("export/link/f"));
}

#[test]
fn false_size_zero_is_read() {
    let scratch = Scratch::new();
    for line in [
        "cp /proc/version v",
        "cp -r /proc/version v",
        "cat /proc/version",
        "sum /proc/version",
    ] {
        let said = scratch.run(line);
        assert_ne!(said.status, Some(0), "{line}: {said}");
        assert!(
            said.stderr.contains("says that it is empty and is not"),
            "{said}"
        );
        assert!(!scratch.join("v").exists(), "{line}");
    }
}

#[test]
fn mv_flushes_before_it_removes() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.dir("from"), Node::start(&scratch.join("to")));
    let from = Node::start(&from);
    scratch.file("from/f", 100);
    let mut command = godwit();
    command.env("GODWIT_LOG", "godwit_store=trace");
    let args = ["mv", &from.url("f"), &to.url("g")];
    let said = common::ours_within(40, command, args).ok();
    let flushed = said.stderr.find("SITE GODWIT FLUSH");
    let removed = said.stderr.find("DELE");
    assert!(flushed.is_some() && flushed < removed, "{said}");
    assert!(!from.export.join("f").exists() && to.export.join("g").exists());
}

#[test]
fn changing_source_leaves_no_mixture() {
    let _alone = alone();
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("to"));
    let source = scratch.file("f", 128 << 20);
    let copying = godwit()
        .args(["cp", "--json", text(&source), &node.url("f")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let hidden = || {
        let names = fs::read_dir(&node.export).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let hidden = names.filter(|name| name.starts_with(".godwit-"));
        hidden.collect::<Vec<_>>()
    };
    while hidden().is_empty() {
        std::thread::yield_now();
    }
    // Stopped, it takes in no more than its sockets hold.
    node.signal("STOP");
    let mut file = fs::OpenOptions::new().append(true).open(&source).unwrap();
    std::io::Write::write_all(&mut file, b"more").unwrap();
    node.signal("CONT");
    let done = copying.wait_with_output().unwrap();
    let last = String::from_utf8_lossy(&done.stdout)
        .lines()
        .last()
        .unwrap()
        .to_owned();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&last["files"], &last["faults"]),
        (&1.into(), &1.into()),
        "{last}"
    );
    assert_same(&source, &node.export.join("f"));
    assert_eq!(hidden(), [""; 0], "{last}");
}

#[test]
fn hinted_command_resumes_tree() {
    let _alone = alone();
    for verb in [&["cp", "-r"][..], &["mv"]] {
        let scratch = Scratch::new();
        let node = Node::start(&scratch.join("to"));
        scratch.file("a tree/one", 100);
        let large = scratch.file("a tree/two", 128 << 20);
        let copying = godwit()
            .current_dir(scratch.path())
            .args(verb)
            .args(["a tree", &node.url("b")])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let there = |begins: &str| {
            let names = fs::read_dir(node.export.join("b")).into_iter().flatten();
            let mut names = names.map(|entry| entry.unwrap().file_name());
            names.any(|name| name.to_string_lossy().starts_with(begins))
        };
        while !there("one") || !there(".godwit-") {
            std::thread::yield_now();
        }
        // Stopped, it takes in no more than its sockets hold.
        node.signal("STOP");
        let pid = copying.id().to_string();
        common::run(5, "kill", ["-s", "INT", &pid]).ok();
        node.signal("CONT");
        let done = copying.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(130), "{told}");
        let command = format!("godwit sync 'a tree' {}", node.url("b"));
        assert!(told.contains(&command), "{told}");
        assert_eq!(
            told.contains("then godwit rm -r 'a tree'"),
            verb == ["mv"],
            "{told}"
        );
        let mut again = godwit();
        again.current_dir(scratch.path());
        again.args(["sync", "--json", "a tree", &node.url("b")]);
        let said = Said::of(again.stdin(Stdio::null())).ok();
        assert_eq!(summary(&said)["files"], 1, "{said}");
        assert_same(&large, &node.export.join("b/two"));
        assert!(!there(".godwit-"));
    }
}

#[test]
fn mv_tells_concurrent_write() {
    ["t", "t/f"]
        .into_iter()
        .for_each(says_that_it_was_written_to);
}

/// Moves `moved` to a node, and writes to the file `t/f` meanwhile.
#[track_caller]
fn says_that_it_was_written_to(moved: &str) {
    let _alone = alone();
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("to"));
    let source = scratch.file("t/f", 128 << 20);
    if moved != "t" {
        fs::create_dir(node.export.join("t")).unwrap();
    }
    let moving = godwit()
        .args(["mv", text(&scratch.join(moved)), &node.url(moved)])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_begun = || {
        let names = fs::read_dir(node.export.join("t")).into_iter().flatten();
        let mut names = names.map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().starts_with(".godwit-"))
    };
    while !is_begun() {
        std::thread::yield_now();
    }
    // Stopped, it takes in no more than its sockets hold.
    node.signal("STOP");
    let mut file = fs::OpenOptions::new().append(true).open(&source).unwrap();
    std::io::Write::write_all(&mut file, b"more").unwrap();
    node.signal("CONT");
    let done = moving.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{told}");
    assert!(
        told.contains("t/f: was written to while it was moved"),
        "{told}"
    );
    assert_same(&source, &node.export.join("t/f"));
}

#[test]
fn sync_tells_obstacle_once() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    for name in ["a/d/f", "a/d/s/g", "a/h", "node/b/d", "node/b/h/x"] {
        scratch.file(name, 100);
    }
    for (name, there) in [("d", "b/d"), ("h/x", "b/h/x")] {
        scratch.file(format!("b/{name}"), 100);
        assert!(node.export.join(there).exists());
    }
    for target in ["b".to_owned(), node.url("b")] {
        let said = scratch.run(&format!("sync --json a {target}"));
        let text = String::from_utf8_lossy(&said.stdout);
        let errors: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|object: &Value| object["event"] == "error")
            .collect();
        assert_eq!(errors.len(), 2, "{said}");
        for error in errors {
            assert_eq!(
                error["next"], "add --delete to have it replaced, or remove it",
                "{said}"
            );
        }
        assert_eq!(summary(&said)["files"], 0, "{said}");
        scratch.run(&format!("sync --delete a {target}")).ok();
        scratch.run(&format!("sync a {target}")).ok();
    }
}

#[test]
fn undone_sources_count_as_failed() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    for name in ["node/n1", "node/n2", "node/dir/x", "node/file", "dir/x"] {
        scratch.file(name, 10);
    }
    let at = |path: &str| node.url(path);
    let stranger = at("n1").replace("ftp://", "ftp://mallory:secret@");
    scratch.dir("B");
    for (line, failed) in [
        (format!("cp {} {} {} B", at("n1"), at("nope"), at("n2")), 1),
        (format!("mv {} {} {} B", at("n1"), at("nope"), at("n2")), 1),
        ("cp nope zz".into(), 1),
        ("cp nope zz --dry-run".into(), 1),
        ("cp nope -".into(), 1),
        ("cp dir zz2".into(), 1),
        ("cp dir nope zz2".into(), 2),
        ("sync nope zz3".into(), 1),
        ("sync dir dir --delete".into(), 1),
        (format!("mv {} {}", at("dir"), at("file")), 1),
        (format!("mv {} {}", at("dir"), at("dir/y")), 1),
        (format!("cp {stranger} here"), 1),
        (format!("cp dir/x B/n1 {stranger}"), 2),
    ] {
        // With `cp X -`, standard output has the requested objects only.
        let said = scratch.run(&format!("{line} --json"));
        assert_ne!(said.status, Some(0), "{line}: {said}");
        let text = match line.ends_with(" -") {
            true => said.stderr.clone(),
            false => String::from_utf8_lossy(&said.stdout).into_owned(),
        };
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["event"], "summary", "{line}: {said}");
        assert_eq!(last["failed"], failed, "{line}: {said}");
    }
}

#[test]
fn mv_n_tells_skipped_files() {
    let scratch = Scratch::new();
    for name in ["f", "g", "d/f"] {
        scratch.file(name, 10);
    }
    let events = |line: &str| {
        let said = scratch.run(line).ok();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let told = text.matches(r#""event":"skipped""#).count();
        (told, summary(&said)["skipped"].as_u64().unwrap())
    };
    assert_eq!(events("cp -n --json f d"), (1, 1));
    assert_eq!(events("mv -n --json f d"), (1, 1));
    let (moved, copied) = (scratch.run("mv -nv f d"), scratch.run("cp -nv f d"));
    let first = |said: &Said| {
        said.stdout
            .split(|&b| b == b'\n')
            .next()
            .map(<[u8]>::to_vec)
    };
    assert_eq!(first(&moved), first(&copied), "{moved} {copied}");
    assert!(
        first(&moved).unwrap().starts_with(b"f: skipped, "),
        "{moved}"
    );
    assert_eq!(events("mv -n --json f g d"), (1, 1));
    assert!(scratch.join("f").exists() && scratch.join("d/g").exists());
}

#[test]
fn mv_names_nonempty_directory() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    for name in ["node/u/x", "node/u2/u/y"] {
        scratch.file(name, 10);
    }
    let here = ["node/u".to_owned(), "node/u2".to_owned()];
    for [u, u2] in [[node.url("u"), node.url("u2")], here] {
        let said = scratch.run(&format!("mv {u} {u2}"));
        assert_ne!(said.status, Some(0), "{said}");
        assert!(
            said.stderr.contains("u2/u: directory is not empty"),
            "{said}"
        );
        assert!(said.stderr.contains("choose another name"), "{said}");
    }
}

#[test]
fn mv_names_unlistable_directory() {
    let scratch = Scratch::new();
    let Some(nobody) = as_nobody(&scratch) else {
        return;
    };
    for name in ["one/u/d1/x", "one/u/y"] {
        scratch.file(name, 10);
    }
    chmod(&scratch.dir("state"), 0o777);
    chmod(&scratch.join("one/u/d1"), 0);
    let (export, state) = (scratch.join("one"), scratch.join("state/one"));
    let options = ["--anonymous", "write", "--state", text(&state)];
    let one = Node::by(nobody(), &export, &options);
    let two = Node::start(&scratch.join("two"));
    let said = ours(["mv", &one.url("u"), &two.url("u")]);
    assert_eq!(said.status, Some(13), "{said}");
    assert!(said.stderr.contains("u/d1: permission denied"), "{said}");
    assert!(scratch.join("one/u/y").exists() && !scratch.join("two/u").exists());
}

#[test]
fn mv_without_name_copies_nothing() {
    let scratch = Scratch::new();
    let (one, two) = (
        Node::start(&scratch.join("one")),
        Node::start(&scratch.join("two")),
    );
    scratch.file("one/d/f", 10);
    for source in ["", ".", "d/."] {
        let said = ours(["mv", &one.url(source), &two.url("all")]);
        assert_eq!(said.status, Some(2), "{source}: {said}");
        assert!(said.stderr.contains("by the name . or .."), "{said}");
        assert!(!scratch.join("two/all").exists() && scratch.join("one/d/f").exists());
    }
}
