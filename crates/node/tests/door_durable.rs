//! A change that the door reports as durable is on the disk.
#![allow(clippy::unwrap_used)]

mod common;

use common::{lab::Lab, needs};
use godwit_core::Block;
use godwit_store::{Error, Expected, Store, StoreExt, Write};
use std::{env, fs, io::Write as _, net::TcpListener, path::Path, process::Command, thread};

/// The one whose calls are noted: run by the test below only.
#[test]
fn child() {
    if env::var_os("GODWIT_CHILD").is_none() {
        return;
    }
    let lab = Lab::new();
    let served = lab.node(&[]);
    let door = lab.anonymous(&served);
    let mark = |what: &str| fs::metadata(format!("/nowhere/{what}")).unwrap_err();
    let write = Write {
        id: Some("1f.7"),
        attempt: 1,
        ..Write::default()
    };
    let sink = door.write(Path::new("f"), &write).unwrap();
    sink.put(Block::at(0, b"bytes")).unwrap();
    sink.settle().unwrap();
    mark("commit");
    sink.commit().unwrap();
    mark("finish");
    sink.finish(&Expected::default()).unwrap();
    mark("flush");
    door.flush(Path::new("f")).unwrap();
    mark("push");
    door.push(Path::new("f"), None).unwrap();
    mark("end");
}

/// A power cut keeps what was synced before it: the bytes and the record after a commit, the name after a flush.
#[test] //= KANGAROO-4
fn commit_and_flush_are_durable_when_answered() {
    needs!("strace");
    let scratch = common::Scratch::new();
    let noted = scratch.path().join("calls");
    let traced = Command::new("strace")
        .args(["-f", "-y", "-o"])
        .arg(&noted)
        .args([
            "-e",
            "trace=fsync,fdatasync,syncfs,renameat,renameat2,rename,statx",
        ])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("GODWIT_CHILD", "yes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&traced.stderr);
    if said.contains("Operation not permitted") {
        common::skip("strace may not trace here");
        return;
    }
    assert!(traced.status.success(), "{said}");
    let calls = fs::read_to_string(&noted).unwrap();
    // Returns the calls between two marks.
    let between = |from: &str, to: &str| -> Vec<String> {
        let at = |mark: &str| {
            let mark = format!("/nowhere/{mark}\"");
            let at = calls.lines().position(|line| line.contains(&mark));
            at.unwrap_or_else(|| panic!("{mark} is not in {calls}"))
        };
        let lines = calls.lines().take(at(to)).skip(at(from) + 1);
        lines.map(str::to_owned).collect()
    };
    let has = |lines: &[String], call: &str, of: &str| {
        let is_it = |line: &String| line.contains(call) && line.contains(of);
        lines.iter().position(is_it)
    };
    let commit = between("commit", "finish");
    let bytes = has(&commit, "fdatasync(", ".part").expect("the bytes");
    let record = has(&commit, "fdatasync(", ".done").expect("the record");
    assert!(bytes < record, "the record speaks of the bytes");
    assert!(
        commit
            .iter()
            .any(|line| line.contains("fsync(") && !line.contains(".godwit-")),
        "the directory, or the names of both are lost: {commit:#?}"
    );
    let finish = between("finish", "flush");
    assert!(has(&finish, "rename", ".part").is_some(), "{finish:#?}");
    for (from, to) in [("flush", "push"), ("push", "end")] {
        let flush = between(from, to);
        assert!(has(&flush, "syncfs(", "").is_some(), "{from}: {flush:#?}");
    }
}

/// The next node may have it or not: the client must check.
#[test] //= KANGAROO-23
fn push_with_lost_answer_is_unknown() {
    let lab = Lab::new();
    let served = lab.node(&[]);
    served.put("f", b"x");
    let port = served.node().addresses().https[0].port();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().port();
    // Passes back as many bytes as TLS and the first answer take, and nothing of the next.
    let pushing = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cuts = std::sync::Arc::clone(&pushing);
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let node = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut up, mut to) = (client.try_clone().unwrap(), node.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut up, &mut to));
            let (mut down, mut back, cuts) = (node, client, std::sync::Arc::clone(&cuts));
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(len @ 1..) = std::io::Read::read(&mut down, &mut buffer) {
                    let is_cut = cuts.load(std::sync::atomic::Ordering::SeqCst);
                    if is_cut || back.write_all(&buffer[..len]).is_err() {
                        break;
                    }
                }
                let _ = back.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    let door = lab.door(at, godwit_trust::Credential::nobody(), &|_| ());
    door.push(Path::new("f"), None).unwrap();
    pushing.store(true, std::sync::atomic::Ordering::SeqCst);
    let lost = door.push(Path::new("f"), None).unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost}");
    assert!(
        lost.to_string().contains("unknown whether it arrived"),
        "{lost}"
    );
}
