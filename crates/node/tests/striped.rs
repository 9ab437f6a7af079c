//! One transfer made by several nodes over one file system.
#![allow(clippy::unwrap_used)] // it is all test

mod common;

use common::{
    Client, HERE, Scratch, Served, accept, block, bytes, commas, data_to, needs, read_blocks, run,
};
use godwit_core::Extents;
use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
};

/// A front and its members, all over the directory of the front.
struct Striped {
    members: Vec<Served>,
    front: Served,
    _keys: Scratch,
}

impl Striped {
    fn new(count: usize) -> Self {
        let scratch = Scratch::new();
        let export = scratch.path().display().to_string();
        let keys = Scratch::new();
        let key = keys.path().join("key");
        godwit_trust::new_key(&key).unwrap();
        let key = key.display().to_string();
        let member = |_| Served::with(&[("node.export", &export), ("cluster.key", &key)]);
        let members: Vec<Served> = (0..count).map(member).collect();
        let at: Vec<String> = members.iter().map(|m| m.address.to_string()).collect();
        let settings = [("stripes.members", &*at.join(",")), ("cluster.key", &key)];
        let front = Served::over(scratch, &settings);
        Self {
            members,
            front,
            _keys: keys,
        }
    }

    fn client(&self) -> Client {
        let mut client = self.front.client();
        client.ok("MODE E");
        client
    }
}

fn copy(options: &[&str], source: &str, target: &str) -> String {
    let mut arguments = vec!["60", "globus-url-copy"];
    arguments.extend_from_slice(options);
    arguments.extend([source, target]);
    run("timeout", &arguments)
}

const WAYS: [&[&str]; 6] = [
    &["-stripe"],
    &["-stripe", "-p", "3"],
    &["-stripe", "-sbs", "0"],
    &["-stripe", "-sbs", "300000", "-p", "2"],
    &["-stripe", "-sbs", "1048576", "-p", "2"],
    &["-fast", "-p", "2"],
];

#[test] //= GRIDFTP-29
fn globus_url_copy_gets_and_puts_stripes() {
    needs!("globus-url-copy");
    let striped = Striped::new(2);
    let local = Scratch::new();
    for size in [0, 1, 5_000_000, 64 << 20] {
        let whole = bytes(size);
        striped.front.put("x", &whole);
        for way in WAYS {
            let target = local.path().join("got");
            let file = format!("file://{}", target.display());
            copy(way, &striped.front.url("x"), &file);
            assert!(
                fs::read(&target).unwrap() == whole,
                "get of {size} by {way:?}"
            );
            fs::remove_file(target).unwrap();
            // It cannot partition a file of its own ("must be greater than 0"), and
            // does not send the end of one if its last buffer is of several blocks.
            if way.contains(&"0") || way.contains(&"300000") {
                continue;
            }
            let file = format!("file://{}", striped.front.file("x").display());
            copy(way, &file, &striped.front.url("y"));
            assert!(
                striped.front.bytes("y") == whole,
                "put of {size} by {way:?}"
            );
            fs::remove_file(striped.front.file("y")).unwrap();
        }
    }
}

#[test]
fn every_member_that_answers_has_an_address() {
    let mut striped = Striped::new(3);
    let mut client = striped.client();
    assert_eq!(stripes(&client.ok("SPAS")).len(), 3);
    striped.members.pop();
    assert_eq!(stripes(&client.ok("SPAS")).len(), 2);
    striped.members.clear();
    let alone = stripes(&client.ok("SPAS"));
    assert_eq!(alone.len(), 1, "the front itself");
    client.ok("MODE S");
    assert_eq!(stripes(&client.ok("SPAS")).len(), 1);
}

#[test] //= GRIDFTP-29
fn each_address_gets_connection_count_once() {
    let striped = Striped::new(3);
    let whole = bytes(9 << 20);
    striped.front.put("x", &whole);
    let mut client = striped.client();
    let listeners = [(); 2].map(|()| TcpListener::bind((HERE, 0)).unwrap());
    let to = listeners.each_ref().map(|listener| {
        let [high, low] = listener.local_addr().unwrap().port().to_be_bytes();
        format!("127,0,0,1,{high},{low}")
    });
    client.ok(&format!("SPOR {}", to.join(" ")));
    for _ in 0..2 {
        client.send("RETR x");
        let mut got = vec![0; whole.len()];
        let (mut sent, mut ends) = (0, Vec::new());
        for (listener, links) in listeners.iter().zip([2, 1]) {
            let mut announced = Vec::new();
            for _ in 0..links {
                let (blocks, told) = read_blocks(&mut accept(listener));
                announced.extend(told);
                for (at, bytes) in blocks {
                    sent += bytes.len();
                    got[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
            }
            ends.push(announced);
        }
        assert_eq!(ends, [[2], [1]]);
        assert!(got == whole);
        assert_eq!(sent, whole.len(), "no byte twice");
        assert!(client.reply().starts_with("150"));
        assert!(client.last_reply().1.starts_with("226"));
        client.ok(&format!("SPOR {}", to.join(" ")));
    }
}

#[test] //= GRIDFTP-29
fn dead_member_costs_only_unreported_bytes() {
    let mut striped = Striped::new(2);
    let whole = bytes(6 << 20);
    let mut client = striped.client();
    client.ok("TREV RESTART 1");
    let to = stripes(&client.ok("SPAS"));
    client.ok(&format!("ALLO {}", whole.len()));
    client.send("STOR x");
    let mut links: Vec<TcpStream> = to.into_iter().map(data_to).collect();
    for (nth, link) in links.iter_mut().enumerate() {
        let at = nth * (2 << 20);
        link.write_all(&block(0, 2 << 20, at as u64)).unwrap();
        link.write_all(&whole[at..][..2 << 20]).unwrap();
    }
    assert!(client.reply().starts_with("150"));
    let mut told = Extents::new();
    while told.len_bytes() < 4 << 20 {
        let reply = client.reply();
        assert!(reply.starts_with("11"), "{reply}");
        if let Some(ranges) = reply.strip_prefix("111 Range Marker ") {
            told = told.or(&ranges.parse().unwrap());
        }
    }
    striped.members.pop();
    let (_, last) = client.last_reply();
    assert!(last.starts_with('4'), "{last}");
    assert!(!striped.front.has("x"));

    let to = stripes(&client.ok("SPAS"));
    assert_eq!(to.len(), 1);
    client.ok(&format!("REST {told}"));
    client.ok(&format!("ALLO {}", whole.len()));
    client.send("STOR x");
    let mut link = data_to(to[0]);
    let rest = &whole[4 << 20..];
    link.write_all(&block(0, rest.len() as u64, 4 << 20))
        .unwrap();
    link.write_all(rest).unwrap();
    link.write_all(&block(0x48, 0, 1)).unwrap();
    assert!(client.reply().starts_with("150"));
    let (_, last) = client.last_reply();
    assert!(last.starts_with("226"), "{last}");
    assert!(striped.front.bytes("x") == whole);
}

#[test]
fn only_members_write_into_shared_upload() {
    let node = Served::new();
    node.put("x", b"whole");
    let mut client = node.extended();
    client.ok("OPTS GODWIT 1;stripe=0/2;ends=1");
    client.ok("PASV");
    client.send("ESTO A 0 x");
    let (_, last) = client.last_reply();
    assert!(last.starts_with('5'), "{last}");
    assert!(last.contains("Only a member of the cluster"), "{last}");
    assert_eq!(node.bytes("x"), b"whole");
}

/// The addresses that a SPAS was answered with.
fn stripes(reply: &str) -> Vec<SocketAddr> {
    let lines = reply.lines().filter(|line| line.starts_with(' '));
    lines
        .map(|line| commas(&format!("({})", line.trim())))
        .collect()
}
