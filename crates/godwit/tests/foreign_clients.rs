//! Clients of others against our node: `globus-url-copy`, `curl`, `lftp`, `wget` and Python's ftplib.
//!
//! Every test compares bytes. A client that is not installed is skipped, with a line that says so.

#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Kind, Node, Peer, Said, Scratch, assert_same, assert_same_tree, have, noise, run, skip, text,
    wait_until,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Around nothing, a block of GCT's server, and a block of ours.
const SIZES: [usize; 6] = [0, 1, 262_144, 1_048_576, 1_048_577, 5_000_003];

/// Hard file names.
const HARD_NAMES: [&str; 20] = [
    "with space",
    " leading space",
    "trailing space ",
    "semi;colon",
    "per%41cent",
    "percent%",
    "hash#mark",
    "single'quote",
    "tab\there",
    "back\\slash",
    "br[ack]et{s}",
    "quest?ion",
    "st*ar",
    "amper&sand",
    "-dash",
    "~tilde",
    "plus+and=",
    "a:b@c",
    "ünïcødé-日本語",
    "...",
];

/// A node that others may write to, and a directory beside it.
struct World {
    scratch: Scratch,
    node: Node,
}

impl World {
    fn new() -> World {
        let scratch = Scratch::new();
        let node = Node::start(&scratch.join("export"));
        World { scratch, node }
    }

    /// For a client; none if it is not installed.
    fn of(client: &str) -> Option<World> {
        have(client).then(World::new)
    }

    fn exported(&self, name: &str) -> PathBuf {
        self.node.export.join(name)
    }

    /// A file that the node serves.
    fn serve(&self, name: &str, size_bytes: usize) -> PathBuf {
        let path = self.exported(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, noise(size_bytes, 7)).unwrap();
        path
    }

    /// A tree with hard names, depth, emptiness and different sizes.
    fn tree(&self, at: &Path) -> PathBuf {
        std::fs::create_dir_all(at.join("deep/er/still")).unwrap();
        std::fs::create_dir_all(at.join("empty dir")).unwrap();
        for (i, name) in HARD_NAMES.iter().enumerate() {
            std::fs::write(at.join(name), noise(i * 1000, i as u64)).unwrap();
        }
        for (i, size) in SIZES.iter().enumerate() {
            std::fs::write(
                at.join(format!("deep/er/still/{size}")),
                noise(*size, i as u64),
            )
            .unwrap();
        }
        at.to_owned()
    }
}

fn file_url(path: &Path) -> String {
    format!("file://{}", text(path))
}

// --- globus-url-copy ----------------------------------------------------------------------------

fn guc(flags: &[&str], pair: [&str; 2]) -> Said {
    let dialogue = ["-q", "-dbg"];
    run(120, "globus-url-copy", [&dialogue, flags, &pair].concat())
}

fn globus_copies_with(flags: &[&str]) {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    for size in SIZES {
        let name = format!("file-{size}");
        let source = world.serve(&name, size);
        let got = world.scratch.join("got");
        guc(flags, [&world.node.url(&name), &file_url(&got)]).ok();
        assert_same(&source, &got);
        guc(flags, [&file_url(&got), &world.node.url("put")]).ok();
        assert_same(&source, &world.exported("put"));
        std::fs::remove_file(&got).unwrap();
    }
}

#[test]
fn globus_copies_plainly() {
    globus_copies_with(&[]);
}

#[test]
fn globus_copies_over_four_streams() {
    globus_copies_with(&["-p", "4"]);
}

#[test]
fn globus_copies_pipelined() {
    globus_copies_with(&["-pp"]);
}

#[test] //= GRIDFTP-51
fn globus_copies_fast() {
    globus_copies_with(&["-fast"]);
}

#[test] //= GRIDFTP-38
fn globus_chooses_buffers_and_blocks() {
    globus_copies_with(&["-tcp-bs", "1048576", "-bs", "65536", "-p", "3"]);
}

#[test]
fn globus_copies_striped() {
    globus_copies_with(&["-stripe", "-p", "2"]);
}

#[test]
fn globus_copies_with_checksums() {
    globus_copies_with(&["-verify-checksum", "-p", "2"]);
}

#[test]
fn globus_copies_over_extended_passive() {
    globus_copies_with(&["-ipv6"]);
}

#[test]
fn globus_copies_over_delayed_passive() {
    globus_copies_with(&["-dp", "-ipv6"]);
}

#[test]
fn globus_copies_to_the_home() {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    let source = world.scratch.join("source");
    std::fs::write(&source, noise(3000, 7)).unwrap();
    guc(&[], [&file_url(&source), &world.node.url("~/home")]).ok();
    assert_same(&source, &world.exported("home"));
}

fn globus_copies_trees_with(flags: &[&str]) {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    let source = world.tree(&world.exported("tree"));
    let got = world.scratch.join("got");
    let flags = [&["-r", "-cd"], flags].concat();
    guc(&flags, [&world.node.url("tree/"), &(file_url(&got) + "/")]).ok();
    assert_same_tree(&source, &got);
    guc(
        &flags,
        [&(file_url(&got) + "/"), &world.node.url("new/put/")],
    )
    .ok();
    assert_same_tree(&source, &world.exported("new/put"));
}

#[test]
fn globus_copies_trees() {
    globus_copies_trees_with(&[]);
}

#[test]
fn globus_copies_trees_over_cached_channels() {
    globus_copies_trees_with(&["-fast"]);
}

#[test]
fn globus_pipelines_trees_in_sessions() {
    globus_copies_trees_with(&["-fast", "-pp", "-cc", "4"]);
}

#[test]
fn globus_syncs_only_what_differs() {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    let tree = world.exported("tree");
    for name in ["same", "longer", "other"] {
        world.serve(&format!("tree/{name}"), 1000);
    }
    let got = world.scratch.dir("got");
    let pair = [&*world.node.url("tree/"), &*(file_url(&got) + "/")];
    guc(&["-r", "-sync", "-sync-level", "1"], pair).ok();
    assert_same_tree(&tree, &got);
    let before = std::fs::metadata(got.join("same"))
        .unwrap()
        .modified()
        .unwrap();
    std::fs::write(tree.join("longer"), noise(2000, 1)).unwrap();
    guc(&["-r", "-sync", "-sync-level", "1"], pair).ok();
    assert_same_tree(&tree, &got);
    let after = std::fs::metadata(got.join("same"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(before, after, "an equal file was sent again");
    // Same size, other bytes: only level 3 looks at checksums.
    std::fs::write(tree.join("other"), noise(1000, 99)).unwrap();
    guc(&["-r", "-sync", "-sync-level", "3"], pair).ok();
    assert_same_tree(&tree, &got);
}

#[test]
fn globus_copies_parts() {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    let source = world.serve("whole", 3_000_000);
    let bytes = std::fs::read(&source).unwrap();
    for flags in [&[][..], &["-p", "2"]] {
        let got = world.scratch.join("got");
        let part = ["-off", "1000001", "-len", "1234567"];
        let url = world.node.url("whole");
        guc(&[flags, &part].concat(), [&url, &file_url(&got)]).ok();
        // It writes the part at its offset, behind a hole.
        let got = std::fs::read(&got).unwrap();
        assert_eq!(got.len(), 1_000_001 + 1_234_567);
        assert!(got[1_000_001..] == bytes[1_000_001..1_000_001 + 1_234_567]);
        // And a put of a part goes to that offset of the file there.
        let over = world.scratch.file("over", 2_000_000);
        let target = world.exported("target");
        std::fs::write(&target, &bytes).unwrap();
        let url = world.node.url("target");
        guc(
            &[flags, &["-off", "500000", "-len", "700000"]].concat(),
            [&file_url(&over), &url],
        )
        .ok();
        let mut wanted = bytes.clone();
        wanted[500_000..1_200_000]
            .copy_from_slice(&std::fs::read(&over).unwrap()[500_000..1_200_000]);
        let stored = std::fs::read(&target).unwrap();
        assert!(stored == wanted, "{flags:?}: {} bytes stored", stored.len());
    }
}

#[test]
fn globus_lists() {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    world.serve("dir/one", 1);
    world.serve("dir/two words", 2);
    let url = world.node.url("dir/");
    let listed = run(30, "globus-url-copy", ["-list", &url]).ok();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("one") && listed.contains("two words"),
        "{listed}"
    );
}

#[test]
fn globus_copies_between_two_nodes() {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    let other = Node::start(&world.scratch.join("other"));
    for flags in [
        &[][..],
        &["-p", "4"],
        &["-fast"],
        &["-stripe", "-p", "2"],
        &["-p", "2", "-verify-checksum"],
    ] {
        for size in SIZES {
            let source = world.serve("source", size);
            guc(flags, [&world.node.url("source"), &other.url("target")]).ok();
            assert_same(&source, &other.export.join("target"));
        }
    }
    let tree = world.tree(&world.exported("tree"));
    for flags in [
        &["-r", "-cd"][..],
        &["-r", "-cd", "-fast"],
        &["-r", "-cd", "-fast", "-pp"],
    ] {
        let _ = std::fs::remove_dir_all(other.export.join("tree"));
        guc(flags, [&world.node.url("tree/"), &other.url("tree/")]).ok();
        assert_same_tree(&tree, &other.export.join("tree"));
    }
}

#[test]
fn globus_copies_between_servers() {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    let Some(gct) = Peer::start(Kind::Gct, world.scratch.path()) else {
        return;
    };
    for flags in [&[][..], &["-p", "4"], &["-fast", "-pp"]] {
        for size in SIZES {
            let source = world.serve("source", size);
            guc(flags, [&world.node.url("source"), &gct.url("file")]).ok();
            assert_same(&source, &gct.r#where.join("file"));
            guc(flags, [&gct.url("file"), &world.node.url("back")]).ok();
            assert_same(&source, &world.exported("back"));
        }
    }
    let tree = world.tree(&world.exported("tree"));
    // Without GSI, GCT's server drops every byte above 127 from a command.
    std::fs::remove_file(tree.join("ünïcødé-日本語")).unwrap();
    for flags in [&["-r", "-cd", "-fast"][..], &["-r", "-cd", "-fast", "-pp"]] {
        let _ = std::fs::remove_dir_all(gct.r#where.join("tree"));
        let _ = std::fs::remove_dir_all(world.exported("tree2"));
        guc(flags, [&world.node.url("tree/"), &gct.url("tree/")]).ok();
        assert_same_tree(&tree, &gct.r#where.join("tree"));
        guc(flags, [&gct.url("tree/"), &world.node.url("tree2/")]).ok();
        assert_same_tree(&tree, &world.exported("tree2"));
    }
}

#[test]
#[ignore = "5 GiB each way: make conformance"]
fn globus_copies_five_sparse_gibibytes() {
    let Some(world) = World::of("globus-url-copy") else {
        return;
    };
    let source = five_gib(&world.exported("big"));
    let got = world.scratch.join("got");
    guc(&["-p", "2"], [&world.node.url("big"), &file_url(&got)]).ok();
    assert_same(&source, &got);
    guc(&["-p", "2"], [&file_url(&got), &world.node.url("back")]).ok();
    assert_same(&source, &world.exported("back"));
    let part = world.scratch.join("part");
    let flags = ["-off", "4294967290", "-len", "1000"];
    guc(&flags, [&world.node.url("big"), &file_url(&part)]).ok();
    let mut wanted = vec![0; 1000];
    let file = std::fs::File::open(&source).unwrap();
    file.read_exact_at(&mut wanted, 4_294_967_290).unwrap();
    let mut found = vec![0; 1000];
    let file = std::fs::File::open(&part).unwrap();
    file.read_exact_at(&mut found, 4_294_967_290).unwrap();
    assert_eq!(found, wanted);
}

/// Bytes at the beginning, around 4 GiB and at the end; holes between.
fn five_gib(path: &Path) -> PathBuf {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(5 << 30).unwrap();
    for offset in [0, (4 << 30) - 50_000, (5 << 30) - 100_000] {
        file.write_all_at(&noise(100_000, offset), offset).unwrap();
    }
    path.to_owned()
}

// --- curl ---------------------------------------------------------------------------------------

fn curl(args: &[&str]) -> Said {
    run(60, "curl", [&["-sS", "-v"], args].concat())
}

#[test]
fn curl_gets_and_puts() {
    let Some(world) = World::of("curl") else {
        return;
    };
    for flags in [
        &[][..],
        &["--disable-epsv"],
        &["-P", "-"],
        &["-P", "-", "--disable-eprt"],
    ] {
        for size in SIZES {
            let source = world.serve("file", size);
            let got = world.scratch.join("got");
            curl(&[flags, &["-o", text(&got), &world.node.url("file")]].concat()).ok();
            if size > 0 || got.exists() {
                assert_same(&source, &got);
            }
            curl(&[flags, &["-T", text(&source), &world.node.url("put")]].concat()).ok();
            assert_same(&source, &world.exported("put"));
        }
    }
}

#[test]
fn curl_puts_unknown_size() {
    let Some(world) = World::of("curl") else {
        return;
    };
    let bytes = noise(3_000_001, 3);
    let url = world.node.url("new/dir/streamed");
    let mut child = curl_from_pipe(&url, &["--ftp-create-dirs"]);
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(std::fs::read(world.exported("new/dir/streamed")).unwrap() == bytes);
}

fn curl_from_pipe(url: &str, flags: &[&str]) -> std::process::Child {
    Command::new("curl")
        .args(["-sS", "-T", "-"])
        .args(flags)
        .arg(url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn curl_gets_the_rest() {
    let Some(world) = World::of("curl") else {
        return;
    };
    let source = world.serve("file", 3_000_000);
    let got = world.scratch.join("got");
    std::fs::write(&got, &std::fs::read(&source).unwrap()[..1_234_567]).unwrap();
    curl(&["-C", "-", "-o", text(&got), &world.node.url("file")]).ok();
    assert_same(&source, &got);
}

#[test]
fn killed_curl_resumes_upload() {
    let Some(world) = World::of("curl") else {
        return;
    };
    let source = world.scratch.file("source", 6_000_000);
    let bytes = std::fs::read(&source).unwrap();
    let url = world.node.url("upload");
    let mut child = curl_from_pipe(&url, &[]);
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&bytes[..4_000_000]).unwrap();
    wait_until("some of the upload is there", || {
        size_of(world.node.port, "upload").is_some_and(|size| size > 1_000_000)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    drop(pipe);
    assert!(
        !world.exported("upload").exists(),
        "half a file under the final name"
    );
    let listed = curl(&["-l", &world.node.url("")]).ok();
    assert!(
        !String::from_utf8_lossy(&listed.stdout).contains("upload"),
        "a partial is listed"
    );
    curl(&["-C", "-", "-T", text(&source), &url]).ok();
    assert_same(&source, &world.exported("upload"));
}

#[test]
fn curl_gets_ranges() {
    let Some(world) = World::of("curl") else {
        return;
    };
    let source = world.serve("file", 3_000_000);
    let bytes = std::fs::read(source).unwrap();
    for (range, wanted) in [
        ("0-0", &bytes[..1]),
        ("1000000-1999999", &bytes[1_000_000..2_000_000]),
        ("2999999-", &bytes[2_999_999..]),
        ("-5", &bytes[2_999_995..]),
    ] {
        let got = curl(&["-r", range, &world.node.url("file")]).ok();
        assert!(got.stdout == wanted, "{range}: {} bytes", got.stdout.len());
    }
}

#[test]
fn curl_lists_heads_appends_and_deletes() {
    let Some(world) = World::of("curl") else {
        return;
    };
    world.serve("dir/one", 10);
    world.serve("dir/two words", 20);
    let names = curl(&["-l", &world.node.url("dir/")]).ok().stdout;
    let mut names: Vec<String> = String::from_utf8(names)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    names.sort();
    assert_eq!(names, ["one", "two words"]);
    let long = String::from_utf8(curl(&[&world.node.url("dir/")]).ok().stdout).unwrap();
    assert!(long.contains("-rw") && long.contains("two words"), "{long}");
    let head = String::from_utf8(curl(&["-I", &world.node.url("dir/one")]).ok().stdout).unwrap();
    assert!(
        head.contains("Content-Length: 10") && head.contains("Last-Modified"),
        "{head}"
    );
    let more = world.scratch.file("more", 5);
    curl(&["-a", "-T", text(&more), &world.node.url("dir/one")]).ok();
    assert_eq!(
        std::fs::metadata(world.exported("dir/one")).unwrap().len(),
        15
    );
    curl(&["-Q", "DELE dir/one", &world.node.url("")]).ok();
    assert!(!world.exported("dir/one").exists());
}

#[test]
fn curl_names_anything_it_can_escape() {
    let Some(world) = World::of("curl") else {
        return;
    };
    for name in HARD_NAMES
        .iter()
        .copied()
        .chain(["dou\"ble"])
        .filter(|name| !["...", "tab\there"].contains(name))
    // a directory, and what curl refuses
    {
        let escaped: String = name.bytes().map(|b| format!("%{b:02X}")).collect();
        let source = world.scratch.file("source", name.len() * 1000);
        curl(&["-T", text(&source), &world.node.url(&escaped)]).ok();
        assert_same(&source, &world.exported(name));
        let got = world.scratch.join("got");
        curl(&["-o", text(&got), &world.node.url(&escaped)]).ok();
        assert_same(&source, &got);
    }
}

// --- lftp ---------------------------------------------------------------------------------------

fn lftp(node: &Node, script: &str) -> Said {
    let settings = "set cmd:fail-exit yes; set net:timeout 10; set net:max-retries 2; set xfer:log no; set xfer:clobber yes; debug 5;";
    let open = format!("{settings} open ftp://127.0.0.1:{}; {script}", node.port);
    run(90, "lftp", ["--norc", "-c", &open])
}

#[test]
fn lftp_mirrors_both_ways() {
    let Some(world) = World::of("lftp") else {
        return;
    };
    let tree = world.tree(&world.exported("tree"));
    let got = world.scratch.join("got");
    lftp(
        &world.node,
        &format!("mirror --parallel=4 tree {}", text(&got)),
    )
    .ok();
    assert_same_tree(&tree, &got);
    lftp(
        &world.node,
        &format!("mirror -R --parallel=4 {} put", text(&got)),
    )
    .ok();
    assert_same_tree(&tree, &world.exported("put"));
    // Nothing left to send: times and sizes agree.
    let again = format!("mirror -R --dry-run {} put", text(&got));
    let again = lftp(&world.node, &again).ok();
    let again = String::from_utf8_lossy(&again.stdout);
    assert!(
        again.lines().all(|line| line.starts_with("mkdir")),
        "{again}"
    );
}

#[test]
fn lftp_gets_in_pieces() {
    let Some(world) = World::of("lftp") else {
        return;
    };
    let source = world.serve("file", 9_000_001);
    let got = world.scratch.join("got");
    lftp(&world.node, &format!("pget -n 4 file -o {}", text(&got))).ok();
    assert_same(&source, &got);
}

#[test]
fn lftp_resumes_partial_files() {
    let Some(world) = World::of("lftp") else {
        return;
    };
    let source = world.serve("file", 3_000_000);
    let got = world.scratch.join("got");
    std::fs::write(&got, &std::fs::read(&source).unwrap()[..1_000_001]).unwrap();
    lftp(&world.node, &format!("get -c file -o {}", text(&got))).ok();
    assert_same(&source, &got);
    interrupted_upload(
        &world.node,
        "upload",
        3_000_000,
        &std::fs::read(&source).unwrap()[..2_000_000],
    );
    assert!(!world.exported("upload").exists());
    lftp(&world.node, &format!("put -c {} -o upload", text(&source))).ok();
    assert_same(&source, &world.exported("upload"));
}

#[test]
fn lftp_renames_removes_and_changes_modes() {
    let Some(world) = World::of("lftp") else {
        return;
    };
    world.serve("a", 10);
    lftp(
        &world.node,
        "mkdir -p x/y; mv a x/y/b; chmod 600 x/y/b; ls x/y",
    )
    .ok();
    let mode = std::fs::metadata(world.exported("x/y/b")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o600
    );
    lftp(&world.node, "rm -r x").ok();
    assert!(!world.exported("x").exists());
}

// --- wget ---------------------------------------------------------------------------------------

fn wget(args: &[&str]) -> Said {
    run(
        60,
        "wget",
        [&["--no-config", "-S", "--tries=2", "--timeout=10"], args].concat(),
    )
}

#[test]
fn wget_gets_and_goes_on() {
    let Some(world) = World::of("wget") else {
        return;
    };
    let source = world.serve("file", 3_000_000);
    let got = world.scratch.join("file");
    wget(&["-O", text(&got), &world.node.url("file")]).ok();
    assert_same(&source, &got);
    wget(&[
        "--no-passive-ftp",
        "-O",
        text(&got),
        &world.node.url("file"),
    ])
    .ok();
    assert_same(&source, &got);
    std::fs::write(&got, &std::fs::read(&source).unwrap()[..1_234_567]).unwrap();
    wget(&[
        "-c",
        "-P",
        text(world.scratch.path()),
        &world.node.url("file"),
    ])
    .ok();
    assert_same(&source, &got);
}

#[test]
fn wget_gets_trees() {
    let Some(world) = World::of("wget") else {
        return;
    };
    let tree = world.exported("tree");
    for (i, name) in ["one", "two words", "ünïcødé", "deep/er/three", "deep/empty"]
        .iter()
        .enumerate()
    {
        world.serve(&format!("tree/{name}"), (4 - i) * 1000);
    }
    let got = world.scratch.dir("got");
    let flags = [
        "-r",
        "-nH",
        "--cut-dirs=1",
        "--restrict-file-names=nocontrol",
        "-P",
        text(&got),
    ];
    wget(&[&flags[..], &[&world.node.url("tree/")]].concat()).ok();
    let listing = got.join(".listing");
    assert!(!listing.exists(), "wget removes its listings");
    assert_same_tree(&tree, &got);
    // -N asks for times: nothing is fetched again.
    let again = wget(&["-N", "-P", text(&got), &world.node.url("tree/one")]).ok();
    assert!(
        again.stderr.contains("not retrieving") || again.stderr.contains("no newer"),
        "{again}"
    );
}

// --- Python -------------------------------------------------------------------------------------

#[test]
fn python_speaks_every_verb_it_knows() {
    let Some(world) = World::of("python3") else {
        return;
    };
    let source = world.scratch.file("source", 2_500_000);
    let script = world.scratch.join("client.py");
    std::fs::write(&script, PYTHON).unwrap();
    for way in ["passive", "active"] {
        let port = world.node.port.to_string();
        let args = [
            text(&script),
            &port,
            text(&source),
            text(&world.node.export),
            way,
        ];
        run(60, "python3", args).ok();
    }
}

const PYTHON: &str = r#"
import ftplib, io, os, sys
port, source, export, way = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
data = open(source, "rb").read()
f = ftplib.FTP(timeout=20, encoding="utf-8")
f.connect("127.0.0.1", port)
f.login()
f.set_pasv(way == "passive")
assert f.pwd() == "/", f.pwd()
f.mkd("dir")
f.cwd("dir")
assert f.pwd() == "/dir", f.pwd()
f.storbinary("STOR file", io.BytesIO(data))
assert open(f"{export}/dir/file", "rb").read() == data
f.voidcmd("TYPE I")
assert f.size("file") == len(data)
got = []
f.retrbinary("RETR file", got.append)
assert b"".join(got) == data
got = []
f.retrbinary("RETR file", got.append, rest=1000000)
assert b"".join(got) == data[1000000:]
# In place: the name exists.
f.storbinary("STOR file", io.BytesIO(b"x" * 10), rest=500)
assert open(f"{export}/dir/file", "rb").read(510) == data[:500] + b"x" * 10
f.storbinary("APPE file", io.BytesIO(b"tail"))
assert open(f"{export}/dir/file", "rb").read().endswith(b"tail")
names = ["with space", "per%41cent", "hash#", "ünïcødé-日本語", "dou\"ble", "semi;colon", "-dash", "[a]*?"]
for name in names:
    f.storbinary("STOR " + name, io.BytesIO(name.encode()))
assert sorted(f.nlst()) == sorted(names + ["file"]), f.nlst()
facts = dict(f.mlsd(facts=["type", "size", "modify"]))
assert facts["per%41cent"]["type"] == "file" and facts["per%41cent"]["size"] == "10", facts
lines = []
f.retrlines("LIST", lines.append)
assert len([l for l in lines if l.strip()]) >= len(names) + 1, lines
for name in names:
    f.rename(name, name + ".new")
    f.delete(name + ".new")
# Half a download, broken off by closing the data connection: the session lives on.
conn = f.transfercmd("RETR file")
conn.recv(1000)
conn.close()
try:
    f.voidresp()
except ftplib.error_temp:
    pass
f.voidcmd("NOOP")
# ABOR with a transfer running.
conn = f.transfercmd("RETR file")
conn.recv(1000)
f.abort()
conn.close()
f.close()
f = ftplib.FTP(timeout=20); f.connect("127.0.0.1", port); f.login()
f.voidcmd("EPSV")
for line in ("RETR nothing", "CWD nothing", "SIZE nothing", "RNTO x", "STOR ../out", "CWD ../.."):
    try:
        reply = f.sendcmd(line)
        assert line == "CWD ../..", (line, reply)
    except ftplib.error_perm as e:
        assert str(e)[:1] == "5", (line, e)
assert f.pwd() in ("/",), f.pwd()
f.delete("dir/file")
f.rmd("dir")
f.quit()
assert os.listdir(export) == [], os.listdir(export)
"#;

// --- by hand ------------------------------------------------------------------------------------

/// Sends part of an announced upload in stream mode and closes both connections.
fn interrupted_upload(node: &Node, name: &str, size_bytes: usize, sent: &[u8]) {
    let mut control = Control::login(node.port);
    control.ask("TYPE I", "200");
    control.ask(&format!("ALLO {size_bytes}"), "20");
    let reply = control.ask("EPSV", "229");
    let port: u16 = reply.split('|').nth(3).unwrap().parse().unwrap();
    let mut data = TcpStream::connect(("127.0.0.1", port)).unwrap();
    control.ask(&format!("STOR {name}"), "1");
    data.write_all(sent).unwrap();
    drop(data);
    control.reply("4");
}

/// Returns the size that the node reports for a name, if it has one.
fn size_of(port: u16, name: &str) -> Option<u64> {
    let mut control = Control::login(port);
    control.ask("TYPE I", "200");
    control.send(&format!("SIZE {name}"));
    let reply = control.read_reply();
    reply
        .strip_prefix("213 ")
        .and_then(|size| size.trim().parse().ok())
}

struct Control(BufReader<TcpStream>);

impl Control {
    fn login(port: u16) -> Control {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut control = Control(BufReader::new(stream));
        control.reply("220");
        control.send("USER anonymous");
        if control.read_reply().starts_with("331") {
            control.ask("PASS x@y", "230");
        }
        control
    }

    fn send(&mut self, line: &str) {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())
            .unwrap();
    }

    #[track_caller]
    fn ask(&mut self, line: &str, code: &str) -> String {
        self.send(line);
        self.reply(code)
    }

    #[track_caller]
    fn reply(&mut self, code: &str) -> String {
        let reply = self.read_reply();
        assert!(reply.starts_with(code), "wanted {code}, got {reply}");
        reply
    }

    /// Reads a whole reply and returns its last line.
    fn read_reply(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the node hung up");
            let code = line.as_bytes();
            if code.len() > 3 && code[..3].iter().all(u8::is_ascii_digit) && code[3] == b' ' {
                return line;
            }
        }
    }
}

#[test]
fn unsent_files_are_never_listed() {
    let world = World::new();
    interrupted_upload(&world.node, "half", 1000, &[1; 500]);
    let names = run(20, "ls", ["-A", text(&world.node.export)]).ok().stdout;
    assert!(
        !String::from_utf8_lossy(&names)
            .lines()
            .any(|name| name == "half")
    );
    assert_eq!(size_of(world.node.port, "half"), Some(500));
    if !have("curl") {
        return skip("the listing was not looked at");
    }
    let mut listed = Vec::new();
    let said = curl(&["-l", &world.node.url("")]).ok();
    said.stdout.as_slice().read_to_end(&mut listed).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&listed).trim(),
        "",
        "partials are hidden"
    );
}
