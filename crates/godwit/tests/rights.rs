//! `godwit auth explain` says what a node does, for each account.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Node, Said, Scratch, ours, skip};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

const RULES: &str = r#"
[[rule]]
who = "anyone"
never = "all"
under = "/public/private"

[[rule]]
who = "anyone"
may = ["read", "list"]
under = "/public"

[[rule]]
who = "/O=Lab/CN=alice"
may = "all"

[[rule]]
who = "anonymous"
may = ["create", "list"]
under = "/in"

[[rule]]
who = "anonymous"
may = ["write", "delete", "list"]
under = "/out"
"#;

const DIRS: [&str; 4] = ["public", "public/private", "in", "out"];
const DEEDS: [&str; 5] = ["read", "write", "create", "delete", "list"];

struct World {
    scratch: Scratch,
    node: Node,
}

impl World {
    fn new(options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let rules = scratch.join("rights.toml");
        fs::write(&rules, RULES).unwrap();
        let export = scratch.dir("export");
        for dir in DIRS {
            fs::create_dir(export.join(dir)).unwrap();
            let everyone = fs::Permissions::from_mode(0o777);
            fs::set_permissions(export.join(dir), everyone).unwrap();
        }
        symlink("../public/private", export.join("in/way")).unwrap();
        let rules = rules.to_str().unwrap();
        let all = [&["--anonymous", "read", "--rights", rules], options].concat();
        let node = Node::with(&export, &all);
        Self { scratch, node }
    }

    fn path(&self, name: &str) -> String {
        self.scratch.join(name).to_str().unwrap().into()
    }

    fn explain(&self, deed: &str, path: &str) -> Said {
        let rules = self.path("rights.toml");
        ours([
            "auth",
            "explain",
            "--rights",
            &rules,
            "--as",
            "anonymous",
            deed,
            path,
        ])
    }

    /// Does it over FTP, in a directory.
    fn run(&self, deed: &str, dir: &str) -> Said {
        let file = self.node.export.join(dir).join("f");
        let url = self.node.url(&format!("{dir}/f"));
        if deed == "create" {
            let _ = fs::remove_file(&file);
        } else {
            fs::write(&file, "bytes").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        }
        let source = self.scratch.file("source", 10);
        let source = source.to_str().unwrap();
        match deed {
            "read" => ours(["cat", &url]),
            "write" | "create" => ours(["cp", source, &url]),
            "delete" => ours(["rm", &url]),
            _ => ours(["ls", &self.node.url(dir)]),
        }
    }
}

fn both_agree(world: &World) {
    for dir in DIRS {
        for deed in DEEDS {
            let path = match deed {
                "list" => format!("/{dir}"),
                _ => format!("/{dir}/f"),
            };
            let (explained, done) = (world.explain(deed, &path), world.run(deed, dir));
            assert_eq!(
                explained.status, done.status,
                "{deed} {path}: {explained}{done}"
            );
            if done.status == Some(0) {
                continue;
            }
            let told = match explained.stderr.split("rule ").nth(1) {
                Some(rule) if !explained.stderr.contains("no rule") => {
                    let number = rule.split(':').next().unwrap();
                    format!("rule {number} of the rights denies it")
                }
                _ => "no rule of the rights allows it".into(),
            };
            assert!(
                done.stderr.contains(&told),
                "wanted {told}: {deed} {path}: {done}"
            );
        }
    }
}

#[test] //= GRIDFTP-9
fn explained_rights_match_node() {
    let world = World::new(&[]);
    both_agree(&world);
    let through = ours(["ls", &world.node.url("in/way")]);
    assert_eq!(through.status, Some(13), "{through}");
    let log = fs::read_to_string(world.node.export.with_extension("log")).unwrap();
    for word in [
        "rights.toml",
        "anyone may never read",
        "path=public/private/f",
    ] {
        assert!(log.contains(word), "wanted {word} in {log}");
    }
}

#[test]
fn accounts_cannot_bypass_rights() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skip("only root can start a node that opens files as another account");
    }
    let scratch = Scratch::new();
    let config = scratch.join("node.toml");
    fs::write(
        &config,
        "[node]\nuser = \"nobody\"\n[anonymous]\naccount = \"61001\"\n",
    )
    .unwrap();
    let world = World::new(&["--config", config.to_str().unwrap()]);
    both_agree(&world);
    fs::write(world.node.export.join("public/private/s"), "secret").unwrap();
    symlink("../public/private", world.node.export.join("out/way")).unwrap();
    for way in ["in/way/s", "out/way/s"] {
        let said = ours(["cat", &world.node.url(way)]);
        assert_eq!(said.status, Some(13), "{said}");
        assert!(
            said.stderr.contains("rule 1 of the rights denies it"),
            "{said}"
        );
    }
}

#[test]
fn bad_rights_prevent_start() {
    let scratch = Scratch::new();
    let rules = scratch.join("rights.toml");
    fs::write(&rules, "[[rule]]\nwho = \"bob\"\nmay = \"all\"\n").unwrap();
    let said = ours([
        "node",
        "--ftp",
        "127.0.0.1:0",
        "--rights",
        rules.to_str().unwrap(),
    ]);
    assert_eq!(said.status, Some(2), "{said}");
    for word in ["rights.toml", "rule 1", "\"bob\" is nobody"] {
        assert!(said.stderr.contains(word), "wanted {word} in {said}");
    }
}

/// A node that obeys these rules, with a tree below each directory.
fn node_with(scratch: &Scratch, rules: &str, dirs: &[&str]) -> Node {
    let file = scratch.join("rights.toml");
    fs::write(&file, rules).unwrap();
    let export = scratch.dir("export");
    for dir in dirs {
        scratch.file(format!("export/{dir}/f"), 10);
    }
    Node::with(
        &export,
        &["--anonymous", "write", "--rights", file.to_str().unwrap()],
    )
}

#[test]
fn refused_mv_names_its_copy() {
    let scratch = Scratch::new();
    let rules = r#"
[[rule]]
who = "anyone"
may = ["create"]
under = "/drop"

[[rule]]
who = "anyone"
may = ["read", "list"]
under = "/keep"
"#;
    let node = node_with(&scratch, rules, &["keep/t"]);
    scratch.dir("export/drop");
    scratch.file("t/f", 10);
    let here = scratch.join("here");
    let (kept, dropped) = (node.url("keep/t"), node.url("drop/t"));
    let (here, tree) = (here.to_str().unwrap(), scratch.join("t"));
    let tree = tree.to_str().unwrap();
    let file = format!("{kept}/f");
    let one = format!("{here}-one");
    for (source, target) in [(&*kept, here), (&*file, &*one), (tree, &*dropped)] {
        let said = ours(["mv", source, target]);
        assert_eq!(said.status, Some(13), "{said}");
        let hint = format!("hint: the copy is whole: {target}; the source stays: {source}");
        assert!(said.stderr.contains(&hint), "wanted {hint} in {said}");
    }
    for copy in [
        "here/f",
        "here-one",
        "export/drop/t/f",
        "t/f",
        "export/keep/t/f",
    ] {
        assert!(scratch.join(copy).exists(), "{copy}");
    }
}

#[test]
fn upward_paths_are_explained() {
    let world = World::new(&[]);
    fs::write(world.node.export.join("public/f"), "bytes").unwrap();
    let stream = TcpStream::connect(("127.0.0.1", world.node.port)).unwrap();
    let mut lines = BufReader::new(stream);
    let mut ask = |line: &str| {
        lines.get_mut().write_all(line.as_bytes()).unwrap();
        loop {
            let mut reply = String::new();
            assert!(lines.read_line(&mut reply).unwrap() > 0, "{line}");
            if reply.as_bytes()[3] == b' ' && !reply.starts_with("220") {
                return reply;
            }
        }
    };
    ask("USER anonymous\r\n");
    assert!(ask("PASS x\r\n").starts_with("230"));
    for (path, status, code) in [
        ("/public/f", 0, "213"),
        ("/in/../public/./f", 0, "213"),
        ("/public/private/../f", 0, "213"),
        ("/public/private/../../in/f", 13, "550"),
        ("/in/../public/private/f", 13, "550"),
        ("/../public/f", 13, "55"),
    ] {
        let said = world.explain("read", path);
        assert_eq!(said.status, Some(status), "{path}: {said}");
        let reply = ask(&format!("CKSM MD5 0 -1 {path}\r\n"));
        assert!(reply.starts_with(code), "{path}: {reply}");
    }
    let said = world.explain("read", "/../public/f");
    assert!(
        said.stderr.contains("leads out of what is served"),
        "{said}"
    );
}

#[test]
fn rm_tells_hidden_files() {
    let scratch = Scratch::new();
    let rules = r#"
[[rule]]
who = "anyone"
never = "all"
under = "/pub/closed"

[[rule]]
who = "anyone"
may = ["read", "list", "delete"]
"#;
    let node = node_with(&scratch, rules, &["pub/closed", "pub/open"]);
    let said = ours(["rm", "-r", &node.url("pub")]);
    assert_eq!(said.status, Some(1), "{said}");
    assert!(
        said.stderr
            .contains("what is left in it is hidden from you, by a rule of the server"),
        "{said}"
    );
    assert!(!node.export.join("pub/open").exists());
    assert!(node.export.join("pub/closed/f").exists());
}
