//! Every verb against a node, and between two.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Node, Said, Scratch, arrived, assert_same, assert_same_tree, godwit, ours, summary};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Stdio},
    time::UNIX_EPOCH,
};

fn fill(directory: &Path) {
    for (name, size_bytes) in [
        ("large", 5_000_001),
        ("leaf", 1 << 20),
        ("small", 4096),
        ("empty", 0),
        ("s/deep/er", 10),
        ("s/a b", 100),
        ("s/%41", 100),
        ("s/quo\"te", 100),
        ("s/ünicode", 100),
        ("s/new\nline", 100),
    ] {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, common::noise(size_bytes, size_bytes as u64)).unwrap();
    }
}

fn text(said: Said) -> String {
    String::from_utf8(said.ok().stdout).unwrap()
}

#[test]
fn tree_survives_round_trip() {
    let scratch = Scratch::new();
    let (one, two) = (
        Node::start(&scratch.join("one")),
        Node::start(&scratch.join("two")),
    );
    let data = scratch.dir("data");
    fill(&data);
    let local = |path: &Path| path.to_str().unwrap().to_owned();
    for (source, target) in [
        (local(&data), one.url("")),
        (one.url("data"), two.url("")),
        (two.url("data"), local(&scratch.dir("back"))),
    ] {
        let said = ours(["cp", "-r", "--json", &source, &target]).ok();
        let summary = summary(&said);
        assert_eq!(summary["files"], 10, "{source}: {summary}");
        assert_eq!(summary["failed"], 0, "{source}: {summary}");
        assert_eq!(
            summary["verified"], "verified blake3",
            "{source}: {summary}"
        );
    }
    for there in ["one/data", "two/data", "back/data"] {
        assert_same_tree(&data, &scratch.join(there));
    }
    // FTP tells whole seconds.
    let second = |path: &Path| {
        let time = path.metadata().unwrap().modified().unwrap();
        time.duration_since(UNIX_EPOCH).unwrap().as_secs()
    };
    let (here, back) = (data.join("small"), scratch.join("back/data/small"));
    assert_eq!(second(&here), second(&back));
}

#[test]
fn verbs_treat_node_like_disk() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    fill(&scratch.join("node/data"));
    let data = scratch.join("node/data");
    let local = data.to_str().unwrap();
    let remote = node.url("data");
    let remote_as_local = |text: String| text.replace(&remote, local);
    for verb in [
        &["ls"][..],
        &["ls", "-R"],
        &["du"],
        &["du", "-sh"],
        &["sum", "-r", "-a", "md5"],
        &["sum", "-r"],
    ] {
        let of = |place: &str| text(ours(verb.iter().copied().chain([place])));
        // Names that a URL must escape differ in their spelling only.
        let plain = |text: String| {
            let text = text
                .replace("%20", " ")
                .replace("%22", "\"")
                .replace("%0A", "\n");
            let text = text.replace("%C3%BC", "ü").replace("%2541", "%41");
            // So must a raw path in a line of digests.
            text.replace("\n\\", "\n").replace("\\n", "\n")
        };
        assert_eq!(
            plain(remote_as_local(of(&remote))),
            plain(of(local)),
            "{verb:?}"
        );
    }
    let bytes = std::fs::read(data.join("large")).unwrap();
    let url = node.url("data/large");
    assert!(ours(["cat", &url]).ok().stdout == bytes);
    let printed = ours(["cp", "--json", &url, "-"]).ok();
    assert!(printed.stdout == bytes, "{} bytes", printed.stdout.len());
    assert!(
        printed.stderr.contains("verified blake3"),
        "{}",
        printed.stderr
    );
    let part = ours(["cat", "--offset", "1000000", "--length", "2000000", &url]);
    assert!(part.ok().stdout == bytes[1_000_000..3_000_000]);
    let found = text(ours(["find", &remote, "-type", "f", "-size", "+1M"]));
    assert_eq!(found, format!("{url}\n"));
}

#[test]
fn names_are_changed_on_a_node() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    fill(&scratch.join("node/data"));
    ours(["mkdir", "-p", &node.url("a/b/c"), &node.url("data")]).ok();
    assert!(scratch.join("node/a/b/c").is_dir());
    assert_eq!(ours(["mkdir", &node.url("data")]).status, Some(1));
    let said = ours(["mv", "--json", &node.url("data/small"), &node.url("a")]).ok();
    assert_eq!(summary(&said)["renamed"], 1, "{said}");
    assert!(scratch.join("node/a/small").exists());
    let dry = text(ours(["rm", "-r", "--dry-run", &node.url("data")]));
    assert!(scratch.join("node/data/large").exists());
    assert_eq!(
        dry.lines()
            .filter(|line| line.starts_with("would remove"))
            .count(),
        12,
        "{dry}"
    );
    let said = ours(["rm", "-r", "--json", &node.url("data")]).ok();
    assert_eq!(summary(&said)["removed"], 12, "{said}");
    assert!(!scratch.join("node/data").exists());
    assert_eq!(ours(["rm", "-r", &node.url("")]).status, Some(2), "a root");
}

#[test]
fn mv_between_servers_removes_what_arrived() {
    let scratch = Scratch::new();
    let (one, two) = (
        Node::start(&scratch.join("one")),
        Node::start(&scratch.join("two")),
    );
    let reference = scratch.dir("reference");
    fill(&reference);
    fill(&scratch.join("one/data"));
    ours(["mv", &one.url("data"), &two.url("")]).ok();
    assert!(!scratch.join("one/data").exists());
    assert_same_tree(&reference, &scratch.join("two/data"));
}

#[test]
fn mv_never_removes_only_copy() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let local = |name: &str| scratch.join("node").join(name).to_str().unwrap().to_owned();
    let alias = |name: &str| node.url(name).replace("ftp://", "ftp://anonymous@");
    fill(&scratch.join("node/data"));
    let before = common::tree(&scratch.join("node"));
    for name in ["data/small", "data/large", "data/empty", "data"] {
        for (source, target) in [
            (node.url(name), alias(name)),
            (local(name), node.url(name)),
            (node.url(name), local(name)),
        ] {
            let said = ours(["mv", &source, &target]);
            assert_ne!(said.status, Some(0), "mv {source} {target}: {said}");
            // A directory may have been copied into itself before the check.
            let after = common::tree(&scratch.join("node"));
            let lost: Vec<_> = before.iter().filter(|name| !after.contains(name)).collect();
            assert!(lost.is_empty(), "mv {source} {target} lost {lost:?}");
        }
    }
}

#[test]
fn mv_takes_lookalikes_of_partials() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let data = scratch.dir("data");
    std::fs::write(data.join(".godwit-notes.part"), "precious").unwrap();
    ours(["mv", data.to_str().unwrap(), &node.url("data")]).ok();
    let there = std::fs::read_to_string(scratch.join("node/data/.godwit-notes.part")).unwrap();
    assert_eq!(there, "precious");
}

#[test]
fn failed_mv_keeps_all_sources() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let data = scratch.dir("data");
    fill(&data);
    let before = common::tree(&data).len() + 1;
    common::run(5, "mkfifo", [data.join("pipe").to_str().unwrap()]).ok();
    let said = ours(["mv", data.to_str().unwrap(), &node.url("")]);
    assert_eq!(said.status, Some(1), "{said}");
    assert!(said.stderr.contains("pipe"), "{said}");
    assert_eq!(common::tree(&data).len(), before, "something was removed");

    // The file under the name at the target need not be the one that was to arrive.
    std::fs::create_dir(scratch.join("node/small")).unwrap();
    let (small, large) = (data.join("small"), data.join("large"));
    let said = ours([
        "mv",
        small.to_str().unwrap(),
        large.to_str().unwrap(),
        &node.url(""),
    ]);
    assert_ne!(said.status, Some(0), "{said}");
    assert_eq!(common::tree(&data).len(), before, "something was removed");
}

#[test]
fn sync_announces_then_equals() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let data = scratch.dir("data");
    fill(&data);
    let (source, target) = (data.to_str().unwrap(), node.url("mirror"));
    ours(["sync", source, &target]).ok();
    assert_same_tree(&data, &scratch.join("node/mirror"));

    std::fs::write(data.join("small"), "changed").unwrap();
    std::fs::remove_file(data.join("leaf")).unwrap();
    let dry = text(ours(["sync", "--delete", "--dry-run", source, &target]));
    let mut lines: Vec<_> = dry.lines().collect();
    lines.sort_unstable();
    let expected = [
        format!("would copy {source}/small -> {target}/small"),
        format!("would remove {target}/leaf"),
    ];
    assert_eq!(lines, expected);
    let said = ours(["sync", "--delete", "--json", source, &target]).ok();
    let summary = summary(&said);
    assert_eq!(
        (&summary["files"], &summary["removed"]),
        (&1.into(), &1.into()),
        "{said}"
    );
    assert_same_tree(&data, &scratch.join("node/mirror"));
}

#[test]
fn standard_input_goes_to_a_node() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let bytes = common::noise(3_000_000, 5);
    let mut child = godwit()
        .args(["cp", "-", &node.url("piped")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(std::fs::read(scratch.join("node/piped")).unwrap() == bytes);
}

#[test]
fn dead_node_tells_bytes_kept() {
    let scratch = Scratch::new();
    let mut node = Node::start(&scratch.join("node"));
    let mut child = godwit()
        .args(["cp", "--stall-timeout", "5s", "-", &node.url("piped")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&vec![7; 8 << 20]).unwrap();
    node.kill();
    // Until no program reads it any more.
    while input.write_all(&[7; 1 << 16]).is_ok() {}
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    let host = format!("127.0.0.1:{}", node.port);
    assert!(
        said.contains(&format!("a hidden part may be left at {host}")),
        "{said}"
    );
    assert!(!said.contains("the peer"), "{said}");
}

#[test]
fn read_only_user_is_told() {
    let scratch = Scratch::new();
    let node = Node::with(&scratch.join("node"), &["--anonymous", "read"]);
    std::fs::write(scratch.join("node/f"), "x").unwrap();
    let source = scratch.file("g", 10);
    for line in [
        vec!["cp", source.to_str().unwrap(), &node.url("g")],
        vec!["rm", &node.url("f")],
        vec!["mkdir", &node.url("d")],
        vec!["mv", &node.url("f"), &node.url("g")],
    ] {
        let said = ours(line.iter().copied().chain(["--json"]));
        assert_eq!(said.status, Some(13), "{line:?}: {said}");
        assert!(
            String::from_utf8_lossy(&said.stdout).contains("\"Authorization\""),
            "{said}"
        );
    }
    assert_eq!(common::tree(&scratch.join("node")).len(), 1);
}

/// Starts a copy of a large file through a slow link, and waits until some of it has gone.
fn start_slowly(scratch: &Scratch, node: &Node) -> (Link, Child, String) {
    let source = scratch.file("large", 30 << 20);
    let link = Link::to(node.port);
    let target = format!("ftp://127.0.0.1:{}/large", link.port);
    let mut child = godwit()
        .args(["cp", "--json", source.to_str().unwrap(), &target])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    for line in lines {
        let object: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if object["event"] == "progress" && object["bytes"].as_u64() > Some(4 << 20) {
            break;
        }
        assert_ne!(object["event"], "summary", "it was over too soon");
    }
    // Much of what was sent may wait in buffers on the way.
    common::wait_until("bytes arrive", || arrived(&scratch.join("node")) >= 4 << 20);
    (link, child, target)
}

#[test]
fn interrupted_copy_is_resumed() {
    if !common::have("python3") {
        return;
    }
    for (signal, code) in [("INT", 130), ("TERM", 143), ("KILL", -1)] {
        let scratch = Scratch::new();
        let node = Node::start(&scratch.join("node"));
        let (link, child, _) = start_slowly(&scratch, &node);
        let pid = child.id().to_string();
        common::run(5, "kill", ["-s", signal, &pid]).ok();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code().unwrap_or(-1), code, "{signal}");
        if code > 0 {
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("the same command continues"), "{stderr}");
        }
        assert!(
            !scratch.join("node/large").exists(),
            "half a file under its name"
        );
        drop(link);
        let source = scratch.join("large");
        let said = ours(["cp", "--json", source.to_str().unwrap(), &node.url("large")]).ok();
        let resumed = summary(&said)["resumed_bytes"].as_u64().unwrap();
        assert!(resumed >= 1 << 20, "{signal}: {said}");
        assert_same(&source, &scratch.join("node/large"));
    }
}

/// A slow link to a server, from demo/link.py.
struct Link {
    port: u16,
    child: Child,
}

impl Link {
    fn to(port: u16) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/link.py");
        let mut child = std::process::Command::new("python3")
            .arg(script)
            .args(["--rate", "8M", "--to", &format!("127.0.0.1:{port}")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self { port, child }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tables of json-lines.md name each event and each field that a verb prints.
#[test]
fn json_lines_match_format_page() {
    const PAGE: &str = "docs/formats/json-lines.md";
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let text = std::fs::read_to_string(root.join(PAGE)).unwrap();
    let (section, _) = text.split_once("\n## ").unwrap();
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut events = Vec::new();
    for row in section.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        if cells[0].contains('`') {
            events = words(cells[0]);
        }
        for event in &events {
            let fields = known.entry(event.clone()).or_default();
            fields.extend(cells.iter().skip(1).flat_map(|cell| words(cell)));
        }
    }
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    fill(&scratch.join("data"));
    let (data, url) = (scratch.join("data"), node.url("data"));
    let (data, small) = (data.to_str().unwrap(), node.url("data/small"));
    let moved = node.url("moved");
    let back = scratch.join("back");
    let mut seen = BTreeSet::new();
    for line in [
        &["cp", "-r", "--dry-run", data, &url][..],
        &["cp", "-r", data, &url],
        &["cp", "-rn", &format!("{data}/"), &url],
        &[
            "sync",
            "--delete",
            "--dry-run",
            &url,
            back.to_str().unwrap(),
        ],
        &["ls", "-R", &url],
        &["find", &url],
        &["stat", &url],
        &["du", &url],
        &["cat", &small],
        &["sum", &small],
        &["mv", &small, &moved],
        &["mkdir", &node.url("new")],
        &["config", "show"],
        &["config", "path"],
        &["version"],
        &["help", "cp"],
        &["rm", "-r", &url],
        &["rm", &url],
    ] {
        let said = ours(line.iter().copied().chain(["--json"]));
        for object in String::from_utf8_lossy(&said.stdout).lines() {
            let object: Value = serde_json::from_str(object).unwrap();
            let event = object["event"].as_str().unwrap().to_owned();
            let fields = known
                .get(&event)
                .unwrap_or_else(|| panic!("{event} of {line:?} is not in {PAGE}"));
            for key in object
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| *key != "event")
            {
                assert!(
                    fields.contains(key),
                    "{key} of {event} ({line:?}) is not in {PAGE}"
                );
            }
            seen.insert(event);
        }
    }
    for event in [
        "summary", "done", "skipped", "made", "removed", "renamed", "would", "error",
    ] {
        assert!(seen.contains(event), "{event} did not come");
    }
}

/// Returns the words that stand in backquotes.
fn words(cell: &str) -> Vec<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted
        .flat_map(|text| text.split(' '))
        .map(str::to_owned)
        .collect()
}

#[test]
fn unsendable_name_is_told() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.dir("export"));
    for number in 0..60 {
        scratch.file(format!("odd/{number}"), 10 + number);
    }
    scratch.file("odd/cr\r\nlf", 10);
    let tree = scratch.join("odd");
    let said = ours([
        "cp",
        "-r",
        "--json",
        tree.to_str().unwrap(),
        &node.url("to"),
    ]);
    let told: Vec<Value> = String::from_utf8_lossy(&said.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let wrong: Vec<_> = told.iter().filter(|o| o["event"] == "error").collect();
    assert_eq!(wrong.len(), 1, "{said}");
    let wanted = wrong[0]["wanted"].as_str().unwrap();
    assert!(wanted.contains("cr%0D%0Alf"), "{said}");
    assert_eq!(told.last().unwrap()["files"], 60, "{said}");
    std::fs::remove_file(scratch.join("odd/cr\r\nlf")).unwrap();
    assert_same_tree(&tree, &scratch.join("export/to"));
}

#[test]
fn buffer_size_reaches_server() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    let source = scratch.file("source", 3_000_000);
    let mut command = godwit();
    command.env("GODWIT_LOG", "godwit_store=trace");
    let args = [
        "cp",
        "--tcp-buffer",
        "64K",
        source.to_str().unwrap(),
        &node.url("x"),
    ];
    let said = common::ours_within(40, command, args).ok();
    assert!(said.stderr.contains("SBUF 65536"), "{said}");
    assert_same(&source, &node.export.join("x"));
    assert_eq!(ours(["cp", "--tcp-buffer", "1G", "a", "b"]).status, Some(2));
}

#[test]
fn state_directory_records_transfers() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("export"));
    let small = scratch.file("small", 1000);
    let large = scratch.file("large", 3_000_000);
    for source in [&small, &large] {
        ours(["cp", source.to_str().unwrap(), &node.url("")]).ok();
    }
    ours(["cat", &node.url("large")]).ok();
    assert_eq!(ours(["cat", &node.url("none")]).status, Some(4));
    drop(node);
    let text = std::fs::read_to_string(scratch.join("export.state/transfers.jsonl")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let told = |key: &str| lines.iter().map(|l| l[key].clone()).collect::<Vec<_>>();
    assert_eq!(told("bytes"), [1000, 3_000_000, 3_000_000], "{text}");
    assert_eq!(
        (&lines[0]["target"], &lines[2]["source"]),
        (&"small".into(), &"large".into())
    );
    assert!(
        lines
            .iter()
            .all(|l| l["user"] == "anonymous" && l["status"] == "ok"),
        "{text}"
    );
    // Without a state directory nothing is recorded; an unusable one is reported.
    let file = scratch.file("file", 1);
    let said = ours([
        "node",
        "--export",
        scratch.path().to_str().unwrap(),
        "--state",
        file.to_str().unwrap(),
    ]);
    assert_ne!(said.status, Some(0), "{said}");
    assert!(said.stderr.contains("--state"), "{said}");
}

#[test]
fn relayed_copy_passes_client() {
    let scratch = Scratch::new();
    let (from, to) = (
        Node::start(&scratch.join("from")),
        Node::start(&scratch.join("to")),
    );
    let source = scratch.file("from/f", 3_000_000);
    for (name, via_me) in [("straight", false), ("this-way", true)] {
        let mut command = godwit();
        command.env("GODWIT_LOG", "godwit_store=trace");
        let (from, to) = (from.url("f"), to.url(name));
        let mut args = vec!["cp", "-v", &from, &to];
        args.extend(via_me.then_some("--via-me"));
        let said = common::ours_within(40, command, args).ok();
        // A third party tells one server where the other listens.
        let is_told = ["PORT ", "SPOR ", "EPRT "];
        let is_told = is_told.iter().any(|word| said.stderr.contains(word));
        assert_eq!(is_told, !via_me, "{said}");
        assert_same(&source, &scratch.join("to").join(name));
    }
}

#[test]
fn server_pairs_are_reused() {
    let scratch = Scratch::new();
    let (from, to) = (
        Node::start(&scratch.join("from")),
        Node::start(&scratch.join("to")),
    );
    for nth in 0..60 {
        scratch.file(format!("from/tree/f{nth}"), 5000 + nth);
    }
    let mut command = godwit();
    command.env("GODWIT_LOG", "godwit_store=trace");
    let (there, here) = (from.url("tree"), to.url("tree"));
    let args = ["cp", "-r", "--json", "--parallel", "3", &there, &here];
    let said = common::ours_within(40, command, args).ok();
    assert_same_tree(&from.export.join("tree"), &to.export.join("tree"));
    let told = said.stderr.matches("line=PORT ").count();
    // Three pairs of sessions, and some more that found each other late.
    assert!((1..=15).contains(&told), "{told} times: {said}");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let summary = said.lines().last().unwrap();
    assert!(summary.contains("\"faults\":0"), "{summary}");
    // Each session serves the server that it was opened for.
    let other = Node::start(&scratch.join("other"));
    let names: Vec<String> = (0..8).map(|nth| format!("g{nth}")).collect();
    let nodes = [&from, &other].into_iter().cycle();
    let urls = nodes.zip(&names).map(|(node, name)| {
        scratch.file(node.export.join(name), 4000 + name.len());
        node.url(name)
    });
    let mut args: Vec<String> = ["cp", "--json", "--parallel", "1"].map(Into::into).into();
    args.extend(urls.chain([to.url("")]));
    let said = ours(args).ok();
    for (node, name) in [&from, &other].into_iter().cycle().zip(&names) {
        assert_same(&node.export.join(name), &to.export.join(name));
    }
    let summary = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(summary.contains("\"faults\":0"), "{summary}");
}
