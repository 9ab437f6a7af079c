//! globus-url-copy as a client, and globus-gridftp-server as the other end of
//! third-party transfers.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{Scratch, Served, bytes, needs, run};
use std::{
    fs,
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

fn copy(options: &[&str], source: &str, target: &str) -> String {
    let mut arguments = options.to_vec();
    arguments.extend([source, target]);
    run("globus-url-copy", &arguments)
}

fn file(path: &Path) -> String {
    format!("file://{}", path.display())
}

const WAYS: [&[&str]; 6] = [
    &[],
    &["-p", "1"],
    &["-p", "4"],
    &["-fast"],
    &["-fast", "-p", "3"],
    &["-fast", "-dp", "-p", "2"],
];

#[test]
fn all_file_sizes_transfer_in_all_modes() {
    needs!("globus-url-copy");
    let served = Served::new();
    let local = Scratch::new();
    for size in [0, 1, 1_048_576, 1_048_577, 7_654_321] {
        let whole = bytes(size);
        served.put("x", &whole);
        for way in WAYS {
            let target = local.path().join("got");
            copy(way, &served.url("x"), &file(&target));
            assert_eq!(
                fs::read(&target).unwrap(),
                whole,
                "get of {size} by {way:?}"
            );
            fs::remove_file(target).unwrap();
            copy(way, &file(&served.file("x")), &served.url("y"));
            assert_eq!(served.bytes("y"), whole, "put of {size} by {way:?}");
            fs::remove_file(served.file("y")).unwrap();
        }
    }
}

#[test] //= GRIDFTP-34
fn parts_of_files_come_and_go() {
    needs!("globus-url-copy");
    let served = Served::new();
    let local = Scratch::new();
    let whole = bytes(3_000_000);
    served.put("x", &whole);
    for way in [&[][..], &["-p", "4"]] {
        let target = local.path().join("part");
        let options = [way, &["-off", "1000", "-len", "2000000"]].concat();
        copy(&options, &served.url("x"), &file(&target));
        // The client leaves the head of the file out, as a hole.
        let got = fs::read(&target).unwrap();
        assert_eq!(
            got[got.len() - 2_000_000..],
            whole[1000..2_001_000],
            "{way:?}"
        );
        fs::remove_file(target).unwrap();
    }
}

#[test]
fn trees_come_and_go_with_pipelining() {
    needs!("globus-url-copy");
    let served = Served::new();
    let local = Scratch::new();
    let names = [
        "a",
        "sp ace",
        "semi;colon",
        "pct%41x",
        "ünï",
        "hash#x",
        "sub/deep/b",
        "sub/c",
    ];
    fs::create_dir_all(served.file("tree/sub/deep")).unwrap();
    fs::create_dir_all(served.file("tree/empty")).unwrap();
    for (i, name) in names.iter().enumerate() {
        served.put(&format!("tree/{name}"), &bytes(i * 50_000));
    }
    for (i, way) in [
        &["-r"][..],
        &["-r", "-pp"],
        &["-r", "-fast"],
        &["-r", "-pp", "-p", "2"],
        &["-r", "-cc", "2"],
    ]
    .iter()
    .enumerate()
    {
        let target = local.path().join(format!("got{i}"));
        fs::create_dir(&target).unwrap();
        let options = [way, &["-cd"][..]].concat();
        copy(
            &options,
            &served.url("tree/"),
            &format!("{}/", file(&target)),
        );
        copy(
            &options,
            &format!("{}/", file(&target)),
            &served.url(&format!("back{i}/")),
        );
        for name in names {
            let expected = served.bytes(&format!("tree/{name}"));
            assert_eq!(
                fs::read(target.join(name)).unwrap(),
                expected,
                "get {name} by {way:?}"
            );
            assert_eq!(
                served.bytes(&format!("back{i}/{name}")),
                expected,
                "put {name} by {way:?}"
            );
        }
        assert!(served.file(&format!("back{i}/empty")).is_dir());
    }
}

#[test]
fn sync_sends_what_changed_only() {
    needs!("globus-url-copy");
    let served = Served::new();
    let local = Scratch::new();
    fs::create_dir(served.file("tree")).unwrap();
    served.put("tree/a", &bytes(1000));
    served.put("tree/b", &bytes(2000));
    let target = format!("{}/", file(local.path()));
    copy(&["-r", "-sync"], &served.url("tree/"), &target);
    let stamp = |name: &str| {
        fs::metadata(local.path().join(name))
            .unwrap()
            .modified()
            .unwrap()
    };
    let before = stamp("a");
    served.put("tree/b", &bytes(3000));
    copy(
        &["-r", "-sync", "-sync-level", "3"],
        &served.url("tree/"),
        &target,
    );
    assert_eq!(stamp("a"), before);
    assert_eq!(fs::read(local.path().join("b")).unwrap(), bytes(3000));
}

#[test]
fn checksums_are_compared() {
    needs!("globus-url-copy");
    let served = Served::new();
    let local = Scratch::new();
    let whole = bytes(2_000_000);
    served.put("x", &whole);
    let target = local.path().join("got");
    copy(&["-verify-checksum"], &served.url("x"), &file(&target));
    assert_eq!(fs::read(&target).unwrap(), whole);
}

#[test]
fn two_nodes_copy_among_themselves() {
    needs!("globus-url-copy");
    let (one, two) = (Served::new(), Served::new());
    for size in [0, 5_000_000] {
        let whole = bytes(size);
        one.put("x", &whole);
        for way in WAYS {
            copy(way, &one.url("x"), &two.url("y"));
            assert_eq!(two.bytes("y"), whole, "{size} by {way:?}");
            fs::remove_file(two.file("y")).unwrap();
        }
    }
    fs::create_dir(one.file("tree")).unwrap();
    for i in 0..50 {
        one.put(&format!("tree/{i}"), &bytes(i * 100));
    }
    copy(&["-r", "-pp", "-cd"], &one.url("tree/"), &two.url("tree/"));
    for i in 0..50 {
        assert_eq!(two.bytes(&format!("tree/{i}")), bytes(i * 100));
    }
}

#[test]
fn node_and_globus_server_copy_directly() {
    needs!("globus-url-copy", "globus-gridftp-server");
    let Some(globus) = Globus::start() else {
        common::skip("globus-gridftp-server does not start here");
        return;
    };
    let served = Served::new();
    let whole = bytes(6_000_000);
    served.put("x", &whole);
    for way in [&[][..], &["-p", "4"], &["-fast"], &["-stripe"]] {
        let there = globus.scratch.path().join("y");
        copy(way, &served.url("x"), &globus.url(&there));
        assert_eq!(fs::read(&there).unwrap(), whole, "to globus by {way:?}");
        copy(way, &globus.url(&there), &served.url("z"));
        assert_eq!(served.bytes("z"), whole, "from globus by {way:?}");
        fs::remove_file(there).unwrap();
        fs::remove_file(served.file("z")).unwrap();
    }
}

/// A server of the Grid Community Toolkit that lets anonymous write.
struct Globus {
    child: Child,
    address: SocketAddr,
    scratch: Scratch,
}

impl Globus {
    fn start() -> Option<Self> {
        let scratch = Scratch::new();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(scratch.path(), mode).unwrap();
        // It cannot tell which port it took: take one that was free just now.
        let address = TcpListener::bind((common::HERE, 0))
            .unwrap()
            .local_addr()
            .unwrap();
        let child = Command::new("globus-gridftp-server")
            .args([
                "-aa",
                "-anonymous-user",
                "nobody",
                "-anonymous-group",
                "nogroup",
            ])
            .args([
                "-home-dir",
                "/",
                "-data-interface",
                "127.0.0.1",
                "-control-interface",
                "127.0.0.1",
            ])
            .args(["-p", &address.port().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut globus = Self {
            child,
            address,
            scratch,
        };
        let deadline = std::time::Instant::now() + common::PATIENCE;
        while std::time::Instant::now() < deadline {
            if globus.child.try_wait().ok()?.is_some() {
                return None;
            }
            let mut first = [0; 3];
            if TcpStream::connect(address).is_ok_and(|mut s| s.read_exact(&mut first).is_ok())
                && first == *b"220"
            {
                return Some(globus);
            }
            std::thread::yield_now();
        }
        None
    }

    fn url(&self, path: &Path) -> String {
        format!("ftp://{}/{}", self.address, path.display())
    }
}

impl Drop for Globus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
