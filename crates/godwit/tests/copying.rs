//! Targets, refusals and messages of `cp`, `sync` and `mv`.
#![allow(clippy::unwrap_used)] // a test may

mod common;

use common::{Node, Said, Scratch, assert_same_tree, godwit, tree};
use std::{fs, process::Stdio};

/// Expects a refusal with this status and these words.
#[track_caller]
fn refused(said: &Said, status: i32, words: &[&str]) {
    assert_eq!(said.status, Some(status), "{said}");
    for word in words {
        assert!(said.stderr.contains(word), "{word:?} is missing: {said}");
    }
}

// --- a target that reads like a host ----------------------------------------------------------

#[test]
fn target_like_host_is_refused() {
    let scratch = Scratch::new();
    scratch.file("f", 10);
    scratch.file("d/f", 10);
    let before = tree(scratch.path());
    for (line, local, remote) in [
        ("cp f lab:", "./lab:", "godwit://lab/"),
        (
            "cp f host.example:in",
            "./host.example:in",
            "ftp://host.example/in",
        ),
        (
            "cp -r d ftp.host.example",
            "./ftp.host.example",
            "ftp://ftp.host.example/",
        ),
        ("cp --through m f lab:", "./lab:", "godwit://lab/"),
        ("cp --dry-run f lab:", "./lab:", "godwit://lab/"),
        ("cp --parents f lab:a/b", "./lab:a/b", "godwit://lab/a/b"),
        ("cp - lab:f", "./lab:f", "godwit://lab/f"),
        ("sync d lab:d", "./lab:d", "godwit://lab/d"),
        ("mv f lab:", "./lab:", "godwit://lab/"),
        ("mkdir lab:new", "./lab:new", "godwit://lab/new"),
        ("put f lab:", "./lab:", "godwit://lab/"),
        ("get godwit://lab/f lab:", "./lab:", "godwit://lab/"),
    ] {
        refused(&scratch.run(line), 2, &[local, remote, "reads like a host"]);
        assert_eq!(tree(scratch.path()), before, "{line}");
    }
}

#[test]
fn peer_name_is_no_target() {
    let scratch = Scratch::new();
    scratch.file("f", 10);
    let peers = scratch.dir("home/.local/state/godwit/peers");
    let key = "ab".repeat(32);
    let peer = format!("name = \"lab\"\nkey = \"{key}\"\naddresses = [\"127.0.0.1:1\"]\n");
    fs::write(peers.join("lab.toml"), peer).unwrap();
    let cp = |line: &str| {
        let mut command = godwit();
        command.env("HOME", scratch.join("home"));
        command.current_dir(scratch.path()).args(line.split(' '));
        Said::of(command.stdin(Stdio::null()))
    };
    refused(&cp("cp f lab"), 2, &["./lab", "godwit://lab/"]);
    refused(&cp("cp f lab/in/"), 2, &["./lab/in/", "godwit://lab/in/"]);
    cp("cp f ./lab").ok();
    cp("cp f lab").ok();
}

#[test]
fn file_named_like_host_copies() {
    let scratch = Scratch::new();
    scratch.file("lab:", 10);
    scratch.file("ftp.host.example/f", 20);
    scratch.run("cp lab: got").ok();
    scratch.run("cp -r ftp.host.example copy").ok();
    scratch.run("cp got ftp.host.example").ok();
    scratch.run("cp got lab:").ok();
    scratch.run("cp got ./new:").ok();
    scratch.run("cp got run7.tar.gz").ok();
    assert!(scratch.join("ftp.host.example/got").exists());
    assert!(scratch.join("new:").exists());
}

// --- depth ---------------------------------------------------------------------------------------

/// Makes a tree of so many hundred directories, one in the other, with a file in the last.
fn deep(scratch: &Scratch, name: &str, hundreds: usize) {
    let (at, names) = (scratch.path().display(), ["dir"; 100].join("/"));
    let script = format!(
        "cd {at} && mkdir {name} && cd -P {name} || exit; \
         for i in $(seq {hundreds}); do mkdir -p {names} && cd -P {names} || exit; done; echo deep >f"
    );
    let said = common::run(60, "sh", ["-c", &script]);
    assert_eq!(said.status, Some(0), "{said}");
}

#[test]
fn tree_of_any_depth_is_copied() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    deep(&scratch, "a", 6);
    deep(&scratch, "b", 20);
    scratch.run(&format!("cp -r a {}", node.url(""))).ok();
    scratch.run(&format!("cp -r {} back", node.url("a"))).ok();
    assert_same_tree(&scratch.join("a"), &scratch.join("back"));
    scratch.run("cp -r b c").ok();
    let found = common::run(
        60,
        "find",
        [
            scratch.join("c").to_str().unwrap(),
            "-name",
            "f",
            "-size",
            "5c",
        ],
    );
    assert_eq!(
        found
            .stdout
            .split(|&b| b == b'/')
            .filter(|name| *name == b"dir")
            .count(),
        2000,
        "{found}"
    );
    let script = format!("cd {} && exec rm -r b c", scratch.path().display());
    let removed = common::run(60, "sh", ["-c", &script]);
    assert_eq!(removed.status, Some(0), "{removed}");
}

// --- directories above the target ---------------------------------------------------------------

#[test]
fn missing_target_directory_names_the_command() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    scratch.file("f", 10);
    scratch.file("d/f", 10);
    let next = "add --parents, or make it first: godwit mkdir -p ";
    let at = |path: &str| format!("{next}{}", node.url(path));
    for (line, hint) in [
        ("cp f no/g".into(), format!("{next}no")),
        ("cp f no/".into(), format!("{next}no")),
        ("cp -r d no/g".into(), format!("{next}no")),
        ("cp - no/g".into(), format!("{next}no")),
        (format!("cp f {}", node.url("no/g")), at("no")),
        (format!("cp f {}", node.url("no/")), at("no")),
        (format!("mv f {}", node.url("no/g")), at("no")),
    ] {
        let said = scratch.run(&line);
        assert!(matches!(said.status, Some(2 | 4)), "{line}: {said}");
        assert!(said.stderr.contains(&hint), "{line}: {hint:?}: {said}");
    }
}

#[test]
fn parents_makes_missing_target_directories() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    scratch.file("f", 10);
    scratch.file("g", 10);
    scratch.file("d/f", 10);
    scratch.run("cp --parents --dry-run f no/g").ok();
    assert!(!scratch.join("no").exists());
    scratch.run("cp --parents f a/b/g").ok();
    scratch.run("cp --parents f b/c/").ok();
    scratch.run("cp --parents f g c/d").ok();
    scratch.run("cp --parents -r d e/e/e").ok();
    scratch.run("cp --parents - i/i/i").ok();
    scratch
        .run(&format!("cp --parents f {}", node.url("a/b/g")))
        .ok();
    scratch
        .run(&format!("sync --parents d {}", node.url("c/d")))
        .ok();
    scratch
        .run(&format!("mv --parents g {}", node.url("m/m/")))
        .ok();
    for made in [
        "a/b/g",
        "b/c/f",
        "c/d/f",
        "c/d/g",
        "e/e/e/f",
        "i/i/i",
        "node/a/b/g",
        "node/c/d/f",
        "node/m/m/g",
    ] {
        assert!(scratch.join(made).is_file(), "{made}");
    }
}

// --- which names, and how fast --------------------------------------------------------------------

/// Makes a tree with sources, objects and a cache.
fn project(scratch: &Scratch) {
    for name in [
        "p/a.c",
        "p/a.o",
        "p/s/b.c",
        "p/s/b.o",
        "p/.cache/x.c",
        "p/s/.cache/y",
    ] {
        scratch.file(name, 100);
    }
}

fn files(scratch: &Scratch, below: &str) -> Vec<String> {
    let below = scratch.join(below);
    let all = tree(&below).into_iter();
    let files = all.filter(|path| below.join(path).is_file());
    files.map(|path| path.display().to_string()).collect()
}

#[test]
fn first_filter_match_decides() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    project(&scratch);
    for (options, expected) in [
        ("--exclude *.o --exclude .cache/", &["a.c", "s/b.c"][..]),
        ("--include */ --include *.o --exclude *", &["a.o", "s/b.o"]),
        (
            "--exclude /a.* --exclude s/b.c",
            &[".cache/x.c", "s/.cache/y", "s/b.o"],
        ),
        (
            "--include a.o --exclude *.o --exclude .cache",
            &["a.c", "a.o", "s/b.c"],
        ),
        (
            "--exclude *.o --include a.o --exclude .cache",
            &["a.c", "s/b.c"],
        ),
    ] {
        for verb in ["cp -r", "sync"] {
            scratch.run(&format!("{verb} {options} p got")).ok();
            assert_eq!(files(&scratch, "got"), expected, "{verb} {options}");
            let dry = scratch
                .run(&format!("{verb} --dry-run {options} p/ new"))
                .ok();
            let would = String::from_utf8_lossy(&dry.stdout)
                .matches("would copy")
                .count();
            assert_eq!(would, expected.len(), "{dry}");
            fs::remove_dir_all(scratch.join("got")).unwrap();
        }
        scratch
            .run(&format!("cp -r {options} p/ {}", node.url("got")))
            .ok();
        assert_eq!(files(&scratch, "node/got"), expected, "{options}");
        scratch
            .run(&format!("cp -r {options} {} back", node.url("got")))
            .ok();
        assert_eq!(files(&scratch, "back"), expected, "{options}");
        fs::remove_dir_all(scratch.join("node/got")).unwrap();
        fs::remove_dir_all(scratch.join("back")).unwrap();
    }
}

#[test]
fn sync_delete_leaves_what_is_excluded() {
    let scratch = Scratch::new();
    project(&scratch);
    for name in ["got/old", "got/old.o", "got/gone/x", "got/kept/y.o"] {
        scratch.file(name, 10);
    }
    let line = "sync --delete --exclude *.o --exclude .cache p got";
    let dry = scratch.run(&line.replace("sync", "sync --dry-run")).ok();
    assert!(
        !String::from_utf8_lossy(&dry.stdout).contains(".o"),
        "{dry}"
    );
    scratch.run(line).ok();
    assert_eq!(
        files(&scratch, "got"),
        ["a.c", "kept/y.o", "old.o", "s/b.c"]
    );
    assert!(!scratch.join("got/gone").exists());
}

#[test]
fn mv_leaves_what_is_excluded() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    project(&scratch);
    scratch
        .run(&format!(
            "mv --exclude *.o --exclude .cache p {}",
            node.url("q")
        ))
        .ok();
    assert_eq!(files(&scratch, "node/q"), ["a.c", "s/b.c"]);
    assert_eq!(
        files(&scratch, "p"),
        [".cache/x.c", "a.o", "s/.cache/y", "s/b.o"]
    );
    scratch.run("mv --include *.o --exclude .cache p here").ok();
    assert_eq!(files(&scratch, "here"), ["a.o", "s/b.o"]);
    assert_eq!(files(&scratch, "p"), [".cache/x.c", "s/.cache/y"]);
}

#[test]
fn bwlimit_bounds_the_rate() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    scratch.file("large", 4 << 20);
    for nth in 0..20 {
        scratch.file(format!("many/{nth}"), 100_000);
    }
    for line in ["cp large", "cp -r many", "sync large"] {
        let begun = std::time::Instant::now();
        let said = scratch
            .run(&format!("{line} {}", node.url("got-")).replace("cp ", "cp --bwlimit 1M --json "));
        said.ok();
        let limited = line.starts_with("cp");
        assert!(
            !limited || begun.elapsed().as_secs_f64() > 1.5,
            "{line}: {:?}",
            begun.elapsed()
        );
        let _ = fs::remove_dir_all(scratch.join("node/got-"));
        let _ = fs::remove_file(scratch.join("node/got-"));
    }
    let begun = std::time::Instant::now();
    let piped = scratch.run("cp --bwlimit 1M large -").ok();
    assert_eq!(piped.stdout.len(), 4 << 20);
    assert!(begun.elapsed().as_secs_f64() > 1.5, "{:?}", begun.elapsed());
    let made = scratch.run("cp --bwlimit 1M --through first=9 large here");
    refused(&made, 2, &["not for --through"]);
}

#[test]
fn pattern_in_url_is_explained() {
    let scratch = Scratch::new();
    let node = Node::start(&scratch.join("node"));
    let said = scratch.run(&format!("cp {} got", node.url("*.root")));
    refused(&said, 4, &["only the shell expands *", "--include"]);
}

// --- a full disk ------------------------------------------------------------------------------------

/// A file system of two megabytes. Gone when dropped.
struct Small(std::path::PathBuf);

impl Small {
    fn at(scratch: &Scratch) -> Option<Self> {
        let at = scratch.dir("small");
        let mount = [
            "-t",
            "tmpfs",
            "-o",
            "size=2m",
            "tmpfs",
            at.to_str().unwrap(),
        ];
        let said = common::run(10, "mount", mount);
        if said.status != Some(0) {
            common::skip("mounting needs root");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

fn count(text: &str, words: &str) -> usize {
    text.matches(words).count()
}

#[test]
fn full_disk_stops_tree_once() {
    let scratch = Scratch::new();
    let Some(small) = Small::at(&scratch) else {
        return;
    };
    for nth in 0..60 {
        scratch.file(format!("d/{nth}"), 100_000);
    }
    scratch.file("d/large", 3_000_000);
    let node = Node::start(&small.0);
    for target in ["small".into(), node.url("")] {
        let said = scratch.run(&format!("cp -r d/ {target}"));
        refused(
            &said,
            7,
            &["no space left", "make room; ", "godwit sync d "],
        );
        assert_eq!(count(&said.stderr, "godwit: cannot"), 1, "{said}");
        for entry in fs::read_dir(&small.0).unwrap() {
            let path = entry.unwrap().path();
            let _ = fs::remove_file(&path);
        }
    }
}

#[test]
fn room_for_tree_is_checked_first() {
    let scratch = Scratch::new();
    let Some(small) = Small::at(&scratch) else {
        return;
    };
    for nth in 0..30 {
        scratch.file(format!("d/{nth}"), 100_000);
    }
    let node = Node::start(&small.0);
    for target in ["small/d".into(), node.url("d")] {
        let said = scratch.run(&format!("cp -r d {target}"));
        refused(&said, 7, &["3000000 bytes are to be copied, ", " are free"]);
        assert_eq!(count(&said.stderr, "godwit: cannot"), 1, "{said}");
        assert!(!small.0.join("d").exists(), "{said}");
    }
    // Excluded files and holes need no room.
    fs::File::create(scratch.join("d/hole"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    scratch
        .run("cp -r --exclude 1* --exclude 2* --exclude hole d small/d")
        .ok();
}

// --- messages ---------------------------------------------------------------------------------------

#[test]
fn messages_name_the_next_command() {
    let scratch = Scratch::new();
    scratch.file("f", 10);
    let lab = common::Machine::lab(&scratch);
    let laptop = common::Machine::new(&scratch, "laptop");
    lab.joined_by(&laptop, "laptop");
    for (line, words) in [
        (
            "cp grid:/a/b .",
            &["no catalog is named", "--catalog sqlite:PATH"][..],
        ),
        (
            "node --export . --ftp 99999",
            &["99999 is no port", "65535"],
        ),
        (
            "node --export . --ftp 127.0.0.1:99999",
            &["99999 is no port", "65535"],
        ),
        (
            "cat --through m godwit://lab/f",
            &["godwit:// and https:// have none", "ftp://HOST:PORT"],
        ),
        (
            "cp --through m godwit://lab/f got",
            &["godwit:// and https:// have none", "ftp://HOST:PORT"],
        ),
    ] {
        let mut command = laptop.command(&line.split(' ').collect::<Vec<_>>());
        let said = Said::of(command.current_dir(scratch.path()).stdin(Stdio::null()));
        assert_eq!(said.status, Some(2), "{line}: {said}");
        for words in words {
            assert!(
                said.stderr.contains(words),
                "{words:?} is missing: {line}: {said}"
            );
        }
    }
}

/// Answers each command of a client by what `answer` returns for it, and greets after a while.
fn server(greets_after: u64, answer: fn(&str) -> &'static str) -> u16 {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::sleep(std::time::Duration::from_secs(greets_after));
            let mut to = stream.try_clone().unwrap();
            let _ = to.write_all(b"220 hello\r\n");
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let _ = to.write_all(answer(&line).as_bytes());
            }
        }
    });
    port
}

#[test]
fn clear_password_refusal_hints_private() {
    let scratch = Scratch::new();
    let port = server(0, |line| match line.starts_with("USER") {
        true => "530 Passwords are not taken in clear here: say AUTH TLS first.\r\n",
        false => "500 what?\r\n",
    });
    let said = scratch.run(&format!("cp ftp://me:secret@127.0.0.1:{port}/f got"));
    refused(&said, 13, &["not taken in clear", "hint: add --private"]);
}

#[test]
fn silence_is_broken_after_two_seconds() {
    let scratch = Scratch::new();
    let port = server(3, |_| "500 what?\r\n");
    scratch.file("f", 10);
    for line in [
        "cp URL got",
        "cp f URL",
        "sync URL got",
        "mv URL got",
        "sum URL",
    ] {
        let said = scratch.run(&line.replace("URL", &format!("ftp://127.0.0.1:{port}/f")));
        let waits = format!("waiting for 127.0.0.1:{port} to answer");
        let digest = format!("waiting for the digest of ftp://127.0.0.1:{port}/f");
        assert!(
            said.stderr.contains(&waits) || said.stderr.contains(&digest),
            "{line}: {said}"
        );
    }
}
