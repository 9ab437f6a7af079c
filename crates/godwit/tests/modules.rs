//! `--through`: files through programs of a node, with the whole program and with others.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{
    Node, Said, Scratch, godwit, have,
    lab::{Lab, url},
    noise, ours, ours_within, summary,
};
use std::{fs, path::PathBuf, process::Command, time::Duration};

struct World {
    scratch: Scratch,
    node: Node,
}

const MODULES: &str = r#"
[modules.first]
command = ["/usr/bin/head", "-c", "{}"]
parameters = "[0-9]"

[modules.unpack]
command = ["/bin/gzip", "-dc"]
direction = "write"

[modules.fails]
command = ["/bin/sh", "-c", "head -c 2000000; echo 'no such file: the third column' >&2; exit 3"]

[modules.waits]
command = ["/bin/sh", "-c", "echo $$ >PID; exec sleep 1000"]
confined = false
"#;

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let config = scratch.join("node.toml");
        let pid = scratch.join("pid");
        let text = MODULES.replace("PID", pid.to_str().unwrap());
        fs::write(&config, text).unwrap();
        let options = ["--anonymous", "write", "--config", config.to_str().unwrap()];
        let node = Node::with(&scratch.join("export"), &options);
        fs::write(scratch.join("export/file"), noise(5_000_000, 1)).unwrap();
        Self { scratch, node }
    }

    fn path(&self, name: &str) -> String {
        self.scratch.join(name).to_str().unwrap().into()
    }
}

fn hidden(directory: PathBuf) -> Vec<String> {
    let names = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test] //= GRIDFTP-70
fn cp_fetches_what_a_module_makes() {
    let world = World::new();
    let (url, part) = (world.node.url("file"), world.path("part"));
    let said = ours(["cp", "--json", "--through", "first=3000000", &url, &part]).ok();
    assert!(fs::read(&part).unwrap() == noise(5_000_000, 1)[..3_000_000]);
    let told = summary(&said);
    assert_eq!(
        (&told["bytes"], &told["verified"]),
        (&3_000_000.into(), &"verified blake3".into()),
        "{said}"
    );
    // The digest is of the output, not of the file.
    let sum = ours(["sum", &part]).ok();
    let sum = String::from_utf8(sum.stdout).unwrap();
    let digest = told["digest"].as_str().unwrap();
    assert!(
        digest.ends_with(sum.split(' ').next().unwrap()),
        "{digest} {sum}"
    );
    // A part that is there is replaced, or left alone.
    ours(["cp", "--through", "first=2", &url, &part]).ok();
    assert_eq!(fs::read(&part).unwrap().len(), 2);
    ours(["cp", "-n", "--through", "first=3", &url, &part]).ok();
    assert_eq!(fs::read(&part).unwrap().len(), 2);
    let said = ours(["cat", "--through", "first=7", &url]).ok();
    assert_eq!(said.stdout, noise(5_000_000, 1)[..7]);
}

#[test]
fn cp_sends_into_module() {
    let world = World::new();
    let packed = world.scratch.join("packed.gz");
    let output = Command::new("gzip")
        .args(["-c", &world.path("export/file")])
        .output();
    fs::write(&packed, output.unwrap().stdout).unwrap();
    let said = ours([
        "cp",
        "--json",
        "--through",
        "unpack",
        packed.to_str().unwrap(),
        &world.node.url("new"),
    ]);
    let said = said.ok();
    common::assert_same(
        &world.scratch.join("export/file"),
        &world.scratch.join("export/new"),
    );
    let told = summary(&said);
    let sent = fs::metadata(&packed).unwrap().len();
    assert_eq!(
        (&told["bytes"], &told["verified"]),
        (&sent.into(), &"verified blake3".into()),
        "{said}"
    );
    let said = ours([
        "cp",
        "--through",
        "unpack",
        &world.path("node.toml"),
        &world.node.url("new"),
    ]);
    assert_eq!(said.status, Some(1), "{said}");
    assert!(said.stderr.contains("unpack failed: gzip: "), "{said}");
    common::assert_same(
        &world.scratch.join("export/file"),
        &world.scratch.join("export/new"),
    );
    assert!(hidden(world.scratch.join("export")).is_empty());
}

#[test]
fn failing_module_leaves_nothing() {
    let world = World::new();
    let url = world.node.url("file");
    let said = ours(["cp", "--through", "fails", &url, &world.path("part")]);
    assert_eq!(said.status, Some(1), "{said}");
    let words = "fails failed: no such file: the third column (exit status 3)";
    assert!(said.stderr.contains(words), "{said}");
    assert!(!world.scratch.join("part").exists());
    assert!(hidden(world.scratch.path().into()).is_empty());
    let said = ours(["cat", "--through", "fails", &url]);
    assert_eq!(said.status, Some(1), "{said}");
    assert!(said.stderr.contains("do not use it"), "{said}");
}

#[test]
fn impossible_requests_name_choices() {
    let world = World::new();
    let (url, here) = (world.node.url("file"), world.path("part"));
    for (arguments, status, words) in [
        (
            vec!["--through", "reduce", &url, &here],
            1,
            "there are fails, first, waits for ERET",
        ),
        (
            vec!["--through", "first=5k", &url, &here],
            1,
            "no k may stand there",
        ),
        (
            vec!["--through", "first=5", &here, &here],
            4,
            "no such file",
        ),
        (
            vec!["--through", "first=5", &world.path("node.toml"), &here],
            2,
            "neither is on one",
        ),
        (
            vec!["--through", "first=5", &url, &world.node.url("x")],
            2,
            "both are on servers",
        ),
        (
            vec!["--through", "first=5", &url, "-"],
            2,
            "godwit cat --through",
        ),
        (
            vec!["--through", "fi rst", &url, &here],
            2,
            "MODULE=PARAMETERS",
        ),
        (
            vec!["--through", "first", "-r", &url, &here],
            2,
            "cannot be used with",
        ),
    ] {
        let said = ours([&["cp"], &arguments[..]].concat());
        assert_eq!(said.status, Some(status), "{arguments:?}: {said}");
        assert!(said.stderr.contains(words), "{arguments:?}: {said}");
        assert!(!world.scratch.join("part").exists());
    }
}

#[test]
fn raw_commands_reach_modules() {
    if !have("curl") {
        return;
    }
    let world = World::new();
    let fetch = |quote: &str| {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "20", "-X", quote]);
        // curl lists a directory, and says so in the words it is told.
        Said::of(command.arg(world.node.url("")))
    };
    let said = fetch("ERET first=\"9\" file").ok();
    assert_eq!(said.stdout, noise(5_000_000, 1)[..9]);
    let said = fetch("ERET fails file");
    assert_ne!(said.status, Some(0), "{said}");
}

#[test]
fn killed_node_ends_its_program() {
    let mut world = World::new();
    let url = world.node.url("file");
    let part = world.path("part");
    let client = std::thread::spawn(move || {
        let arguments = ["cp", "--retries", "0", "--through", "waits", &url, &part];
        ours_within(30, godwit(), arguments)
    });
    let pid = world.scratch.join("pid");
    let told = || fs::read_to_string(&pid).unwrap_or_default();
    let within = std::time::Instant::now() + Duration::from_secs(20);
    while !told().ends_with('\n') {
        assert!(std::time::Instant::now() < within, "it never began");
        std::thread::yield_now();
    }
    let process = PathBuf::from(format!("/proc/{}", told().trim()));
    assert!(process.exists());
    world.node.kill();
    while process.exists() {
        assert!(std::time::Instant::now() < within, "it lives on");
        std::thread::yield_now();
    }
    let said = client.join().unwrap();
    assert_eq!(said.status, Some(5), "{said}");
    assert!(!world.scratch.join("part").exists());
}

#[test]
fn module_output_is_protected() {
    let lab = Lab::new();
    fs::write(lab.path("node.toml"), MODULES).unwrap();
    let (export, config) = (lab.path("export"), lab.text("node.toml"));
    let node = lab.node_at(&export, "host", &["--config", &config]);
    fs::write(export.join("file"), noise(5_000_000, 1)).unwrap();
    let (from, part) = (url(&node, "file"), lab.text("part"));
    let packed = lab.path("packed.gz");
    let output = Command::new("gzip")
        .arg("-c")
        .arg(export.join("file"))
        .output();
    fs::write(&packed, output.unwrap().stdout).unwrap();
    for way in ["--clear", "--safe", "--private"] {
        let fetch =
            |through: &str| lab.run("alice", &["cp", way, "--through", through, &from, &part]);
        fetch("first=3000000").ok();
        assert!(fs::read(&part).unwrap() == noise(5_000_000, 1)[..3_000_000]);
        fs::remove_file(&part).unwrap();
        let failed = fetch("fails");
        let words = "fails failed: no such file: the third column (exit status 3)";
        assert!(failed.stderr.contains(words), "{way}: {failed}");
        assert!(!lab.path("part").exists());
        let packed = packed.to_str().unwrap();
        let new = url(&node, "new");
        let sent = lab.run("alice", &["cp", way, "--through", "unpack", packed, &new]);
        sent.ok();
        common::assert_same(&export.join("file"), &export.join("new"));
        fs::remove_file(export.join("new")).unwrap();
    }
}
