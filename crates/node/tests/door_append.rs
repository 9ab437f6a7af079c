//! Appends through the door: each lands once, even if its answer is lost; and extended attributes.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Scratch, Served, lab::Lab};
use godwit_store::{
    Error, Expected, Finished, Result, Set, SmallWrite, Store, StoreExt, Write, WriteMode,
    door::Door,
};
use godwit_trust::Credential;
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

/// A client that comes by a port of this machine.
fn door(lab: &Lab, port: u16) -> Door {
    lab.door(port, Credential::nobody(), &|_| ())
}

fn port(served: &Served) -> u16 {
    served.node().addresses().https[0].port()
}

/// A way to the node on which one answer can be lost.
struct Way {
    port: u16,
    /// The next bytes from the node do not arrive, and the connection is over.
    loses_answer: Arc<AtomicBool>,
}

impl Way {
    fn to(node: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let loses_answer = Arc::new(AtomicBool::new(false));
        let loses = Arc::clone(&loses_answer);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, node) = (client.unwrap(), TcpStream::connect(("127.0.0.1", node)));
                let node = node.unwrap();
                let never = Arc::new(AtomicBool::new(false));
                for (from, to, loses) in [(&client, &node, &never), (&node, &client, &loses)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let loses = Arc::clone(loses);
                    thread::spawn(move || pump(from, to, &loses));
                }
            }
        });
        Self { port, loses_answer }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, loses: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if loses.swap(false, SeqCst) || to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}

fn given(path: &str, (writer, seq): (u64, u64)) -> SmallWrite {
    SmallWrite {
        path: path.into(),
        bytes: format!("{writer}.{seq} ").into(),
        how: WriteMode::Append { writer, seq },
        mtime: None,
        mode: None,
    }
}

fn append(door: &Door, given: SmallWrite) -> Result<Finished> {
    let (mut next, mut told) = (Some(given), None);
    door.write_small(&mut || next.take(), &mut |_, finished| {
        told = Some(finished)
    })?;
    told.unwrap()
}

fn append_slowly(door: &Door, given: &SmallWrite) -> Result<Finished> {
    let write = Write::with(given.how.clone());
    let sink = door.write(&given.path, &write)?;
    sink.put(godwit_core::Block::at(0, &given.bytes))?;
    sink.finish(&Expected::default())
}

#[test] //= appending#records
fn append_with_lost_answer_lands_once() {
    let lab = Lab::new();
    let served = lab.node(&[]);
    let way = Way::to(port(&served));
    let door = door(&lab, way.port);
    assert!(door.can().unwrap().append);
    let mut all = String::new();
    for seq in 1..=4 {
        let part = given("log", (1, seq));
        all += str::from_utf8(&part.bytes).unwrap();
        way.loses_answer.store(true, SeqCst);
        let lost = append(&door, part.clone()).unwrap_err();
        assert!(matches!(lost, Error::Lost { .. }), "{lost}");
        // The node may have done it or not; the client that asks again need not know.
        append(&door, part.clone()).unwrap();
        append_slowly(&door, &part).unwrap();
        assert_eq!(served.bytes("log"), all.as_bytes());
    }
    // Another client, as after a kill; and numbers out of turn.
    let other = lab.anonymous(&served);
    append(&other, given("log", (1, 4))).unwrap();
    let gap = append(&other, given("log", (1, 6))).unwrap_err();
    let Error::OutOfTurn {
        writer: 1,
        seq: 6,
        expected: 5,
        ..
    } = gap
    else {
        panic!("{gap}");
    };
    assert_eq!(served.bytes("log"), all.as_bytes());
}

#[test] //= appending#records
fn cut_pack_of_appends_resumes() {
    let lab = Lab::new();
    let served = lab.node(&[]);
    let way = Way::to(port(&served));
    let door = door(&lab, way.port);
    assert!(door.can().unwrap().append);
    let numbers = (1..=100).flat_map(|seq| (0..3).map(move |writer| (writer, seq)));
    let sent: Vec<SmallWrite> = numbers.map(|number| given("log", number)).collect();
    let write = || {
        let (mut next, mut done) = (sent.iter().cloned(), 0);
        let written = door.write_small(&mut || next.next(), &mut |_, finished| {
            done += usize::from(finished.is_ok());
        });
        written.map(|()| done)
    };
    way.loses_answer.store(true, SeqCst);
    assert!(write().is_err());
    for _ in 0..2 {
        assert_eq!(write().unwrap(), sent.len());
    }
    let all: Vec<u8> = sent.iter().flat_map(|given| given.bytes.clone()).collect();
    assert_eq!(
        String::from_utf8(served.bytes("log")),
        String::from_utf8(all)
    );
}

#[test]
fn pack_checks_rights_of_each_file() {
    let rights = Scratch::new();
    let file = rights.path().join("rights.toml");
    let rules = r#"
        rule = [
            { who = "anyone", never = "all", under = "/closed" },
            { who = "anyone", may = ["read", "list"], under = "/read" },
            { who = "anyone", may = ["read", "list", "create", "write"], under = "/open" },
        ]
    "#;
    std::fs::write(&file, rules).unwrap();
    let file = file.display().to_string();
    let lab = Lab::new();
    let served = lab.node(&[("node.rights", &file), ("anonymous.access", "write")]);
    for path in ["closed/log", "read/log", "open/log"] {
        let path = served.file(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"").unwrap();
    }
    let door = lab.anonymous(&served);
    let sent = [
        given("closed/log", (1, 1)),
        given("open/log", (1, 1)),
        given("open/log", (1, 2)),
        given("read/log", (1, 1)),
        given("open/log", (1, 3)),
        given("closed/log", (1, 2)),
    ];
    let (mut next, mut told) = (sent.iter().cloned(), Vec::new());
    door.write_small(&mut || next.next(), &mut |path, finished| {
        assert_eq!(path, sent[told.len()].path);
        told.push(finished.is_ok());
    })
    .unwrap();
    assert_eq!(told, [false, true, true, false, true, false]);
    assert_eq!(served.bytes("open/log"), b"1.1 1.2 1.3 ");
    for path in ["closed/log", "read/log"] {
        assert_eq!(served.bytes(path), b"");
    }
    // Readers may read attributes, writers may set them.
    if !door.can().unwrap().xattrs {
        common::skip("the file system of tests has no extended attributes");
        return;
    }
    let set = Set {
        xattrs: [("user.a".into(), Some(b"1".to_vec()))].into(),
        ..Set::default()
    };
    let may = |path: &str| {
        let set = door.set(path.as_ref(), &set).is_ok();
        (set, door.xattrs(path.as_ref()).is_ok())
    };
    assert_eq!(may("open/log"), (true, true));
    assert_eq!(may("read/log"), (false, true));
    assert_eq!(may("closed/log"), (false, false));
}
